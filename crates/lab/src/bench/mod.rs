//! The benchmark: the same load sent directly to a server, through HAProxy in TCP mode, and through Tidegate.
//!
//! Owns the load generator ([`fleet`], one thread, no decoding of rows), its peers ([`peer`]), the cost of a process ([`usage`]) and the
//! report. The figure to compare is the proxy's own processor time per query: it depends least on the machine's other work. HAProxy copies
//! bytes and examines nothing, so it is the floor.
//!
//! INVARIANT: peers take turns within each repeat (A B C A B C ...), so that a slow minute of the machine hits all alike. Every reply is
//! checked for completeness, and point selects also for the right row. Nothing here fails because something was slow.
//!
//! Tidegate is also compared with itself: [`compare`] puts configurations ([`arrangement`]) under the same load, [`load_times`] loads large
//! ones, [`digests`] reads statements without a proxy. [`builds`] measures several builds in turn. [`scale`] raises the number of clients.

mod addresses;
pub mod arrangement;
pub mod builds;
pub mod bystanders;
pub mod compare;
pub mod connection;
pub mod digests;
pub mod fleet;
pub mod histogram;
pub mod idle;
pub mod instructions;
pub mod json;
pub mod load_times;
pub mod login;
pub mod peer;
pub mod plan;
pub mod profile;
pub mod reply;
pub mod report;
pub mod runner;
pub mod scale;
pub mod summary;
pub mod usage;
pub mod work;

pub use plan::Plan;
pub use runner::{Outcome, run};
