//! Model clients: a connection, what its session must look like, and random scripts.

mod connection;
mod crowd;
mod script;
mod session;

pub(crate) use crowd::Reader;
pub(crate) use script::{Client, Terms};
