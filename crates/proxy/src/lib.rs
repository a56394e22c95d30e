//! The data plane: workers, sessions, pools, prepared statements.
//!
//! [`Proxy::start`] spawns one thread for each worker and one that accepts clients. Everything that a session touches
//! lives on its worker; between workers there are only messages and `Arc`s.

mod backend;
mod buffer;
mod class;
mod clock;
mod connect;
mod counters;
mod entry;
mod lane;
mod link;
mod listener;
mod mailbox;
mod memory;
mod pins;
mod pool;
pub mod reframe;
mod session;
mod shared;
mod state;
mod stmt_cache;
mod stream;
pub mod tls;
mod worker;

mod start;
pub use start::{Proxy, StartError};
