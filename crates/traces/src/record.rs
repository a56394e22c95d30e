//! A worker's notes about a traced statement. Times are of the process clock, us.

use crate::context::{Parent, TraceId};
use crate::policy::Why;
use model::ServerKey;
use std::net::SocketAddr;
use std::sync::Arc;

/// Attempts that are noted one by one; of more, the last one takes the place of the one before.
pub const MAX_ATTEMPTS: usize = 16;

/// Bytes of a statement's text that are sent.
pub const MAX_TEXT: usize = 4096;

/// The origin of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The server of the last attempt.
    Server,
    /// The proxy, from its query cache or from the session's state.
    Proxy,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// With this MySQL error number.
    Error(u16),
    /// The connection broke before the answer.
    Lost,
    /// The session ended meanwhile: its client left, or it was killed.
    Ended,
}

/// One time that a server was, or was to be, given the statement.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// When a connection was asked for.
    pub began_us: u64,
    /// When there was one; None where there was none.
    pub held_us: Option<u64>,
    /// When it was in the session's state, and the statement was sent.
    pub sent_us: Option<u64>,
    /// When the answer was with the client, or it had failed.
    pub ended_us: u64,
    /// None if no server was chosen.
    pub server: Option<ServerKey>,
    /// The server's id of the connection.
    pub thread_id: u32,
    /// None if it succeeded.
    pub failure: Option<Failure>,
}

/// A statement that has ended.
#[derive(Clone, Debug)]
pub struct Record {
    /// The client's, or a new one.
    pub trace_id: TraceId,
    /// The span of the client, if it named one.
    pub parent: Option<Parent>,
    /// Shown as an attribute of the span.
    pub why: Why,
    /// When its command came.
    pub began_us: u64,
    /// On the process clock, us.
    pub ended_us: u64,
    /// The same by the wall clock, us since 1970.
    pub ended_unix_us: u64,
    /// Its digest's text, which has no values; at most [`MAX_TEXT`] bytes.
    pub text: Box<[u8]>,
    /// Its digest, as tables and logs write it.
    pub digest: String,
    /// It was prepared before.
    pub is_execution: bool,
    /// Whether servers here are MariaDB's.
    pub is_mariadb: bool,
    /// The session's number in the proxy.
    pub session: u64,
    /// The session's user.
    pub user: Arc<str>,
    /// None without a schema.
    pub schema: Option<Box<[u8]>>,
    /// The client; None on Unix sockets.
    pub client: Option<SocketAddr>,
    /// The rule that matched last.
    pub rule: Option<u32>,
    /// The origin of the answer to the client.
    pub answered: Answered,
    /// The error that the client was told.
    pub error: Option<u16>,
    /// Rows that the client was sent.
    pub rows_sent: u64,
    /// Rows that were changed.
    pub rows_affected: u64,
    /// The first ones, in order; `tried` counts all.
    pub attempts: Vec<Attempt>,
    /// All attempts, also those without an entry.
    pub tried: u32,
    /// Its transaction was replayed on another server.
    pub is_replayed: bool,
    /// It waited for a server to become usable.
    pub is_held: bool,
}
