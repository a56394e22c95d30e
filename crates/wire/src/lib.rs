//! The MySQL protocol's bytes, without IO: slices in, slices out.
//!
//! Owns framing, the handshake, authentication, commands, reply tracking, compression and the PROXY header. Does not own sockets, clocks or
//! randomness: scrambles and keys come in as arguments. Lives wherever a connection lives, one value per connection.
//!
//! INVARIANT: no bytes from a peer make this crate panic. Malformed input is a [`WireError`] that names the fault.
//!
//! Source: the MySQL client/server protocol pages (dev.mysql.com/doc/dev/mysql-server) and MariaDB's
//! (mariadb.com/kb/en/clientserver-protocol), checked against running servers.

pub mod auth;
mod binary;
pub mod charset;
pub mod codec;
pub mod codes;
pub mod command;
pub mod compress;
pub mod error;
pub mod flags;
pub mod handshake;
pub mod message;
pub mod packet;
pub mod prepared;
pub mod proxy_protocol;
pub mod query;
pub mod reframe;
pub mod reply;
pub mod reply_digest;
pub mod session_state;
pub mod split;
pub mod temporal;

pub use command::Command;
pub use error::WireError;
pub use flags::{Capabilities, StatusFlags};
