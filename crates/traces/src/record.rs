//! What a worker notes of a statement that is traced. Times are of the process clock, us.

use crate::context::{Parent, TraceId};
use crate::policy::Why;
use model::ServerKey;
use std::net::SocketAddr;
use std::sync::Arc;

/// Attempts that are noted one by one; of more, the last one takes the place of the one before.
pub const MAX_ATTEMPTS: usize = 16;

/// Bytes of a statement's text that are sent.
pub const MAX_TEXT: usize = 4096;

/// Who answered a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// A server.
    Server,
    /// The proxy, from its query cache or from what it knows.
    Proxy,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// With this MySQL error number.
    Error(u16),
    /// The connection was lost.
    Lost,
    /// The session ended meanwhile: its client left, or somebody ended it.
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
    /// The server.
    pub server: Option<ServerKey>,
    /// The server's id of the connection.
    pub thread_id: u32,
    /// How it failed.
    pub failure: Option<Failure>,
}

/// A statement that has ended.
#[derive(Clone, Debug)]
pub struct Record {
    /// The trace that it belongs to.
    pub trace_id: TraceId,
    /// The span of the client, if it named one.
    pub parent: Option<Parent>,
    /// Why it is traced.
    pub why: Why,
    /// When its command came.
    pub began_us: u64,
    /// When it ended.
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
    /// The session.
    pub session: u64,
    /// The session's user.
    pub user: Arc<str>,
    /// The session's schema.
    pub schema: Option<Box<[u8]>>,
    /// The client; None on Unix sockets.
    pub client: Option<SocketAddr>,
    /// The rule that matched last.
    pub rule: Option<u32>,
    /// Who answered.
    pub answered: Answered,
    /// The error that the client was told.
    pub error: Option<u16>,
    /// Rows that the client was sent.
    pub rows_sent: u64,
    /// Rows that were changed.
    pub rows_affected: u64,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// How many there were.
    pub tried: u32,
    /// Its transaction was said again on another server.
    pub is_replayed: bool,
    /// It waited for a server to become usable.
    pub is_held: bool,
}
