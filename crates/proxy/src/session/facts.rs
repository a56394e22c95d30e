//! What the session knows itself about its last statements, so that it need not keep the backend that ran them.

use super::insert_id::LastInsertId;
use serde::{Deserialize, Serialize};
use wire::codec::Reader;
use wire::flags::Capabilities;
use wire::packet;

/// Warnings (or the error) of the last statement, as SHOW WARNINGS gave them before the backend was lent on.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diagnostics {
    /// The reply's packets with headers.
    pub packets: Vec<u8>,
    /// Capabilities of the backend that gave it.
    pub caps: Capabilities,
}

impl Diagnostics {
    /// Each as `level code: text`.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        // The number of columns and their descriptions, which MariaDB and MySQL end with an EOF unless it was agreed to leave it out.
        let described = 1 + Self::COLUMNS + usize::from(!self.caps.contains(Capabilities::DEPRECATE_EOF));
        packets(&self.packets).skip(described).filter_map(|payload| {
            let mut reader = Reader::new(payload);
            let mut word = || reader.lenenc_bytes().ok().map(|word| String::from_utf8_lossy(word).into_owned());
            Some(format!("{} {}: {}", word()?, word()?, word()?))
        })
    }

    /// Level, Code, Message.
    pub const COLUMNS: usize = 3;
}

/// The payloads of whole packets, one behind the other.
pub(super) fn packets(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, _) = packet::header(bytes)?;
        let payload = bytes.get(packet::HEADER..packet::HEADER + len)?;
        bytes = bytes.get(packet::HEADER + len..)?;
        Some(payload)
    })
}

/// An error that the session answered without a server, for SHOW WARNINGS.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnError {
    /// MySQL error number.
    pub code: u16,
    /// SQLSTATE.
    pub sqlstate: [u8; 5],
    /// Text.
    pub text: Vec<u8>,
}

/// What is known of the routines that a statement calls which failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailedCalls {
    /// They may have run.
    #[default]
    Unknown,
    /// They are the server's own.
    Natives,
    /// The error says that they are not there, and whether that is so has a pin, or was seen.
    Judged,
}

/// See the module.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionFacts {
    /// LAST_INSERT_ID().
    pub insert_id: LastInsertId,
    /// The schema that the server last told of is the one that the session was in all along.
    pub returned: bool,
    /// A server refused what the session has set; the next SET may mend it.
    pub is_refused: bool,
    /// FOUND_ROWS().
    pub found_rows: u64,
    /// A pinned backend knows FOUND_ROWS() better: what ran there counts in ways of its own.
    pub found_rows_with_backend: bool,
    /// ROW_COUNT().
    pub row_count: i64,
    /// A pinned backend knows ROW_COUNT() better.
    pub row_count_with_backend: bool,
    /// @@warning_count.
    pub warnings: u16,
    /// @@error_count.
    pub errors: u16,
    /// What SHOW WARNINGS shows; None when there is nothing to show.
    pub diagnostics: Option<Box<Diagnostics>>,
    /// The last statement's error, when no server knows of it.
    pub own_error: Option<Box<OwnError>>,
    /// The warnings of the statement that just ran were read before it is settled.
    pub warnings_read: bool,
    /// ROW_COUNT() and FOUND_ROWS() of the statement that just ran were noted before it is settled.
    pub counts_noted: bool,
    /// The statement that just ran leaves older warnings standing (MariaDB, no table read).
    pub keeps_warnings: bool,
    /// The statements that just ran, of one text, leave FOUND_ROWS() as it was.
    pub keeps_found_rows: bool,
    /// What the statement called that just ran, if it failed.
    pub failed_calls: FailedCalls,
    /// How many definitions of routines there were before the statement that calls some.
    pub routines_defined: u32,
    /// Statements left before `auto_increment_delay_multiplex` ends.
    pub auto_increment_left: u32,
    /// Process clock (ms) at which it ends in any case (`auto_increment_delay_multiplex_timeout_ms`); 0 is never.
    pub auto_increment_until_ms: u64,
}

impl OwnError {
    /// The statement that makes a server raise this error.
    pub fn signal(&self) -> String {
        // A backslash would mean something else under some modes; the text has 128 characters at most.
        let text: String = String::from_utf8_lossy(&self.text).chars().take(128).collect();
        let text = text.replace('\\', "/").replace('\'', "''");
        let state = String::from_utf8_lossy(&self.sqlstate);
        format!("SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO={}, MESSAGE_TEXT='{text}'", self.code)
    }
}

impl SessionFacts {
    /// The last statement failed before a server saw it.
    pub fn note_own_error(&mut self, code: u16, sqlstate: [u8; 5], text: &[u8]) {
        (self.row_count, self.warnings, self.errors) = (-1, 1, 1);
        self.diagnostics = None;
        self.own_error = Some(Box::new(OwnError { code, sqlstate, text: text.to_vec() }));
    }

    /// Is there anything for SHOW WARNINGS to show, be it of a server, the session's own, or still with the backend?
    pub fn has_diagnostics(&self) -> bool {
        self.diagnostics.is_some() || self.own_error.is_some() || self.is_unread()
    }

    /// Are there warnings that only the backend has, to which the session is pinned?
    pub fn is_unread(&self) -> bool {
        self.warnings > 0 && self.diagnostics.is_none() && self.own_error.is_none()
    }

    /// Is this better asked of a pinned backend?
    pub fn is_with_backend(&self, fact: sql::Fact) -> bool {
        match fact {
            sql::Fact::FoundRows => self.found_rows_with_backend,
            sql::Fact::RowCount => self.row_count_with_backend,
            // Who sets @@pseudo_thread_id is pinned for it: Session::knows().
            sql::Fact::ConnectionId | sql::Fact::PseudoThreadId => false,
            sql::Fact::WarningCount | sql::Fact::ErrorCount => self.diagnostics.is_none(),
        }
    }

    /// @@error_count, @@warning_count as numbers to patch in.
    pub fn of(&self, fact: sql::Fact, connection_id: u64) -> i64 {
        match fact {
            sql::Fact::FoundRows => i64::try_from(self.found_rows).unwrap_or(i64::MAX),
            sql::Fact::RowCount => self.row_count,
            sql::Fact::ConnectionId | sql::Fact::PseudoThreadId => i64::try_from(connection_id).unwrap_or(i64::MAX),
            sql::Fact::WarningCount => i64::from(self.warnings),
            sql::Fact::ErrorCount => i64::from(self.errors),
        }
    }
}
