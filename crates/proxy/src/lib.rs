//! The data plane: workers, sessions, pools, prepared statements.
//!
//! [`Proxy::start`] spawns one thread for each worker and one that accepts clients. Everything that a session touches
//! lives on its worker; between workers there are only messages and `Arc`s.

mod absent;
mod addresses;
mod aside;
mod ask;
mod backend;
#[cfg(test)]
mod bed;
mod before;
mod buffer;
mod cache;
mod causal;
mod certainty;
mod choice;
mod class;
mod cleaning;
mod clock;
mod connect;
mod control;
mod counters;
mod defaults;
mod digest;
mod elsewhere;
mod entry;
mod explain;
mod flavors;
mod fleet;
#[cfg(test)]
mod fleet_tests;
mod gtid;
mod gtid_source;
mod habits;
mod heir;
mod held;
mod histogram;
mod host_cache;
mod hostgroup;
mod in_force;
mod kill;
mod lane;
mod lateness;
#[cfg(test)]
mod layers_tests;
mod link;
mod listener;
mod log_throttle;
mod logs;
mod mailbox;
mod memory;
mod meter;
mod mirror;
mod mirror_room;
mod names;
mod overload;
mod pins;
mod pool;
mod positions;
mod prefetch;
mod prepared;
mod proven;
mod queue;
mod quota;
mod ramp;
mod refusals;
mod replays;
mod replica;
mod routines;
mod safety;
mod server;
mod server_counts;
mod server_info;
mod session;
mod shadow;
mod shared;
mod signals;
#[cfg(feature = "sim")]
pub mod sim;
mod state;
mod stats;
mod stmt_cache;
mod stream;
mod terms;
mod tls_loads;
mod users;
mod view;
mod watchdog;
mod work;
mod worker;

mod sizing;
mod start;
pub use before::{Before, ProcessRecord};
pub use control::Control;
pub use elsewhere::{Connections, Holdings};
pub use heir::{Heir, Offer};
pub use start::{Proxy, StartError};
pub use stats::Counts;
pub use stream::DetachedSocket;
pub use worker::REPORT;
