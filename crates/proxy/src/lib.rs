//! The data plane: workers, sessions, pools, prepared statements.
//!
//! [`Proxy::start`] spawns one thread for each worker and one that accepts clients. Everything that a session touches
//! lives on its worker; between workers there are only messages and `Arc`s.

mod backends;
#[cfg(test)]
mod bed;
mod captures;
mod clients;
mod copying;
mod hostgroups;
#[cfg(test)]
mod layers_tests;
mod limits;
mod logs;
mod mirror;
mod net;
mod servers;
mod session;
mod shadow;
#[cfg(feature = "sim")]
pub mod sim;
mod statements;
mod stats;
mod takeover;
mod workers;

pub use net::stream::DetachedSocket;
pub use stats::Counts;
pub use takeover::hand_over_queue::{ForSuccessor, HandOverQueue, Offer};
pub use takeover::inheritance::{Inheritance, ProcessRecord};
pub use takeover::other_process::{Changes, Connections, Holdings};
pub use workers::control::Control;
pub use workers::start::{Proxy, StartError};
pub use workers::worker::REPORT;
