//! The seeded simulator: the real data plane and the real reducers among model servers, model clients and a model network, in
//! one thread and under virtual time.
//!
//! A seed is a world: how many servers and clients, what goes wrong and when. The same seed gives the same run. What must hold
//! whatever happens (the promises of the design) is checked by the [`oracle`] and by the clients, who know what a private
//! connection would show.

mod chaos;
mod client;
mod fleet;
mod lack;
mod net;
pub mod oracle;
mod prober;
mod proxies;
mod random;
mod server;
mod trace;
mod world;

pub use lack::Lack;
pub use world::{Outcome, Settings, run};
