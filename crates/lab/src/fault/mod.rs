//! What breaks between the parts: a network that stops carrying bytes, and a look at the sockets that are open.

pub mod relay;
pub mod sockets;

pub use relay::{Lost, Relay};
