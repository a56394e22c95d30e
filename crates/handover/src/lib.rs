//! How a process hands over to its successor: messages with descriptors, the listening sockets, and which of the two is in charge.
//!
//! The senders define the content of messages; this crate defines their form. Every value is written with the names of its fields, so that
//! another version can read the fields that it knows. A message with an unknown name is refused.

mod channel;
mod record;
mod sockets;

pub use channel::{Descriptors, Inlet, MAX_DESCRIPTORS, Outlet, pair};
pub use record::{RecordError, decode, encode};
pub use sockets::{Opened, Sockets};
