//! Why a statement did not run, and what its client is told.

use super::Session;
use super::end::{End, SERVER_LOST, SERVER_LOST_STATE};
use crate::clients::session_handle::Signal;
use crate::workers::safety::Safety;
use crate::workers::worker::Worker;
use session_state::certainty::Refusal;
use session_state::pins::PinSet;
use wire::codes;

/// Why a statement did not run; the session may go on.
#[derive(Debug)]
pub(super) enum Fault {
    /// The session ends.
    End(End),
    /// The client gets this error.
    Error {
        /// MySQL error number.
        code: u16,
        /// SQLSTATE.
        sqlstate: [u8; 5],
        /// Text.
        text: Vec<u8>,
    },
    /// The connection to the server failed while (or before) the statement ran.
    Lost {
        /// What is known of the statement's effect.
        certainty: Certainty,
        /// For the client and the log.
        text: String,
        /// What pinned the session to it. Unless the session moves ([`Session::reopen`]), it ends.
        pins: PinSet,
    },
    /// The server refused the statement, certainly without applying it, and nothing was sent to the client. Only where
    /// another server may take it.
    Refused {
        /// How.
        refusal: Refusal,
        /// MySQL error number.
        code: u16,
        /// SQLSTATE.
        sqlstate: [u8; 5],
        /// Text.
        text: Vec<u8>,
    },
}

/// What is known of a statement whose connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// It never reached the server.
    NeverSent,
    /// It was sent, and nothing of the answer was seen.
    Unknown,
    /// Part of the answer is with the client already.
    Answering,
}

impl From<End> for Fault {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

impl Fault {
    /// An error of our own making.
    pub(super) fn error(code: u16, sqlstate: &[u8; 5], text: impl Into<Vec<u8>>) -> Self {
        Self::Error { code, sqlstate: *sqlstate, text: text.into() }
    }

    /// The statement was killed, by its time limit or otherwise.
    pub(super) fn interrupted(by: Signal) -> Self {
        match by {
            Signal::QueryTimeout => Self::error(1907, b"70100", "Query execution was interrupted, query_timeout exceeded"),
            _ => Self::error(1317, b"70100", "Query execution was interrupted"),
        }
    }

    /// Error 1243, as the servers put it. MariaDB names its function for the command, MySQL (since 8.0) one for all.
    pub(super) fn unknown_statement(worker: &Worker, id: u32, function: &str) -> Self {
        let mysql = worker.shared.serves_mysql();
        let function = if mysql { "mysql_stmt_precheck" } else { function };
        Self::error(codes::UNKNOWN_STMT_HANDLER, b"HY000", format!("Unknown prepared statement handler ({id}) given to {function}"))
    }

    /// A server's error, passed on.
    pub(super) fn server(e: session_state::collected::ServerError) -> Self {
        Self::Error { code: e.code, sqlstate: e.sqlstate, text: e.message }
    }
}

/// The session ends with its backend.
pub(super) fn end_of_pinned(why: &str, pins: PinSet) -> End {
    let pinned = if pins.is_empty() { String::new() } else { format!(" (the session was pinned: {pins})") };
    End::BackendLost(format!("Lost connection to server during query: {why}{pinned}"))
}

impl Session {
    /// Tells the client of a fault; the session goes on where it can.
    pub(super) async fn report(&mut self, fault: Fault) -> Result<(), End> {
        self.account().fault_reported(&fault);
        match fault {
            Fault::End(end) => Err(end),
            Fault::Error { code, sqlstate, text } => {
                self.facts.note_own_error(code, sqlstate, &text);
                let state = String::from_utf8_lossy(&sqlstate).into_owned();
                self.client.send_error_at(&mut self.at, self.client.answer_seq(), code, &state, &text).await?;
                // The backend was not touched by the statement; an unpinned session gives it back.
                self.at.give_back();
                Ok(())
            }
            Fault::Lost { certainty: Certainty::Answering, text, pins } if pins.is_empty() => {
                Err(End::BackendLost(format!("Lost connection to server during query: {text}")))
            }
            // What the session has is gone with the backend.
            Fault::Lost { text, pins, .. } if !pins.is_empty() => Err(end_of_pinned(&self.recovery.told_with_gap(&text), pins)),
            Fault::Lost { certainty: Certainty::Unknown, .. } if Safety::HonestLoss.is_off() => self.client.send_ok(&mut self.at).await,
            Fault::Lost { text, .. } => {
                tracing::warn!("session {}: connection to the server lost during a statement: {text}", self.handle.id);
                let text = format!("Lost connection to server during query ({text})");
                self.client.send_error(&mut self.at, SERVER_LOST, SERVER_LOST_STATE, &text).await
            }
            Fault::Refused { code, sqlstate, text, .. } => Box::pin(self.report(Fault::Error { code, sqlstate, text })).await,
        }
    }
}
