//! Faults between the parts: a network that stops carrying bytes, and a list of open sockets.

pub mod relay;
pub mod sockets;

pub use relay::{Lost, Relay};
