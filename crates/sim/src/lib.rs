//! The seeded simulator: the real data plane and the real reducers among model servers, model clients and a model network, in one thread
//! and under virtual time.
//!
//! A seed is a world: the number of servers and clients, the faults and their times. The same seed gives the same run. The promises of the
//! design must hold in every world. The [`oracle`] checks them, and the clients, which know the view of a private connection.

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
