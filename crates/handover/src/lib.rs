//! How a process hands over to the one that takes its place: messages with descriptors between the two, the listening sockets that go
//! along, and who of them is in charge.
//!
//! What is in the messages belongs to those who write them: this crate gives them their form. Every value is written with the names of
//! its fields, so that a process of another version reads what it knows; a name that it does not know makes it refuse the message.

mod channel;
mod record;
mod sockets;

pub use channel::{Descriptors, Inlet, MAX_DESCRIPTORS, Outlet, pair};
pub use record::{RecordError, decode, encode};
pub use sockets::{Opened, Sockets};
