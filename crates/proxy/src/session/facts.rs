//! What the session knows itself about its last statements, so that it need not keep the backend that ran them.

use super::insert_id::LastInsertId;
use serde::{Deserialize, Serialize};
use wire::codec::Reader;
use wire::flags::Capabilities;
use wire::packet;

/// Warnings (or the error) of the last statement, as SHOW WARNINGS gave them before the backend was lent on.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Diagnostics {
    /// The reply's packets with headers.
    pub packets: Vec<u8>,
    /// Capabilities of the backend that gave it.
    pub caps: Capabilities,
}

impl Diagnostics {
    /// Each as `level code: text`.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        // The number of columns and their descriptions, which MariaDB and MySQL end with an EOF unless it was agreed to leave it out.
        let described = 1 + Self::COLUMNS + usize::from(!self.caps.contains(Capabilities::DEPRECATE_EOF));
        packets(&self.packets).skip(described).filter_map(|payload| {
            let mut reader = Reader::new(payload);
            let mut word = || reader.lenenc_bytes().ok().map(|word| String::from_utf8_lossy(word).into_owned());
            Some(format!("{} {}: {}", word()?, word()?, word()?))
        })
    }

    /// Level, Code, Message.
    pub(super) const COLUMNS: usize = 3;
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
pub(super) struct OwnError {
    /// MySQL error number.
    pub code: u16,
    /// SQLSTATE.
    pub sqlstate: [u8; 5],
    /// Text.
    pub text: Vec<u8>,
}

/// What is known of the routines that a statement calls which failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FailedCalls {
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
pub(super) struct SessionFacts {
    /// LAST_INSERT_ID().
    pub insert_id: LastInsertId,
    /// The schema that the server last told of is the one that the session was in all along.
    pub came_back_to_schema: bool,
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
    pub(super) fn signal(&self) -> String {
        // A backslash would mean something else under some modes; the text has 128 characters at most.
        let text: String = String::from_utf8_lossy(&self.text).chars().take(128).collect();
        let text = text.replace('\\', "/").replace('\'', "''");
        let state = String::from_utf8_lossy(&self.sqlstate);
        format!("SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO={}, MESSAGE_TEXT='{text}'", self.code)
    }
}

impl SessionFacts {
    /// The last statement failed before a server saw it.
    pub(super) fn note_own_error(&mut self, code: u16, sqlstate: [u8; 5], text: &[u8]) {
        (self.row_count, self.warnings, self.errors) = (-1, 1, 1);
        self.diagnostics = None;
        self.own_error = Some(Box::new(OwnError { code, sqlstate, text: text.to_vec() }));
    }

    /// Is there anything for SHOW WARNINGS to show, be it of a server, the session's own, or still with the backend?
    pub(super) fn has_diagnostics(&self) -> bool {
        self.diagnostics.is_some() || self.own_error.is_some() || self.is_unread()
    }

    /// Are there warnings that only the backend has, to which the session is pinned?
    pub(super) fn is_unread(&self) -> bool {
        self.warnings > 0 && self.diagnostics.is_none() && self.own_error.is_none()
    }

    /// Is this better asked of a pinned backend?
    pub(super) fn is_with_backend(&self, fact: sql::Fact) -> bool {
        match fact {
            sql::Fact::FoundRows => self.found_rows_with_backend,
            sql::Fact::RowCount => self.row_count_with_backend,
            // Who sets @@pseudo_thread_id is pinned for it: Session::knows().
            sql::Fact::ConnectionId | sql::Fact::PseudoThreadId => false,
            sql::Fact::WarningCount | sql::Fact::ErrorCount => self.diagnostics.is_none(),
        }
    }

    /// A fact as the number that is put into a statement or its reply.
    pub(super) fn of(&self, fact: sql::Fact, connection_id: u64) -> i64 {
        match fact {
            sql::Fact::FoundRows => i64::try_from(self.found_rows).unwrap_or(i64::MAX),
            sql::Fact::RowCount => self.row_count,
            sql::Fact::ConnectionId | sql::Fact::PseudoThreadId => i64::try_from(connection_id).unwrap_or(i64::MAX),
            sql::Fact::WarningCount => i64::from(self.warnings),
            sql::Fact::ErrorCount => i64::from(self.errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::Fact;
    use wire::codec::put_lenenc_bytes;
    use wire::packet::put_packet;

    /// Warnings as a server shows them, with a connection of these capabilities.
    fn diagnostics(rows: &[[&str; 3]], caps: Capabilities) -> Diagnostics {
        let (mut packets, mut seq) = (Vec::new(), 1);
        let mut put = |payload: &[u8]| put_packet(&mut packets, &mut seq, payload);
        put(&[3]);
        for column in ["Level", "Code", "Message"] {
            put(column.as_bytes());
        }
        if !caps.contains(Capabilities::DEPRECATE_EOF) {
            put(&[0xfe, 0, 0, 2, 0]);
        }
        for row in rows {
            let mut payload = Vec::new();
            row.iter().for_each(|word| put_lenenc_bytes(&mut payload, word.as_bytes()));
            put(&payload);
        }
        put(&[0xfe, 0, 0, 2, 0]);
        Diagnostics { packets, caps }
    }

    #[test]
    fn warnings_are_told_from_what_surrounds_them() {
        for caps in [Capabilities::default(), Capabilities::DEPRECATE_EOF] {
            let two = diagnostics(&[["Warning", "1292", "Truncated 'x'"], ["Note", "1051", ""]], caps);
            assert_eq!(two.lines().collect::<Vec<_>>(), ["Warning 1292: Truncated 'x'", "Note 1051: "], "{caps:?}");
            assert_eq!(diagnostics(&[], caps).lines().count(), 0, "{caps:?}");
        }
    }

    #[test]
    fn a_packet_that_is_not_whole_is_none() {
        let mut bytes = Vec::new();
        put_packet(&mut bytes, &mut 0, b"one");
        put_packet(&mut bytes, &mut 1, b"other");
        for (len, expected) in [(bytes.len(), 2), (bytes.len() - 1, 1), (packet::HEADER + 3, 1), (packet::HEADER, 0), (0, 0)] {
            assert_eq!(packets(&bytes[..len]).count(), expected, "{len}");
        }
    }

    #[test]
    fn a_server_raises_an_error_as_the_session_answered_it() {
        let error = |text: &str| OwnError { code: 1064, sqlstate: *b"42000", text: text.into() }.signal();
        let signal = |text: &str| format!("SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO=1064, MESSAGE_TEXT='{text}'");
        for (text, expected) in [
            ("plain", "plain".to_owned()),
            ("near 'x'", "near ''x''".to_owned()),
            ("a\\' OR 1", "a/'' OR 1".to_owned()),
            (&"é".repeat(129), "é".repeat(128)),
            (&"'".repeat(200), "'".repeat(256)),
        ] {
            assert_eq!(error(text), signal(&expected));
        }
    }

    #[test]
    fn an_error_of_the_sessions_own_replaces_what_a_server_said() {
        let mut facts = SessionFacts { warnings: 3, ..SessionFacts::default() };
        assert!(facts.is_unread() && facts.has_diagnostics(), "the backend has them");
        facts.diagnostics = Some(Box::new(diagnostics(&[], Capabilities::default())));
        assert!(!facts.is_unread() && facts.has_diagnostics());
        facts.note_own_error(1064, *b"42000", b"no");
        assert!(facts.diagnostics.is_none() && !facts.is_unread() && facts.has_diagnostics());
        let told = [Fact::RowCount, Fact::WarningCount, Fact::ErrorCount].map(|fact| facts.of(fact, 7));
        assert_eq!(told, [-1, 1, 1]);
        assert!(!SessionFacts::default().has_diagnostics());
    }

    #[test]
    fn each_fact_is_asked_of_the_backend_for_a_reason_of_its_own() {
        use Fact::{ConnectionId, ErrorCount, FoundRows, PseudoThreadId, RowCount, WarningCount};
        let read = || Some(Box::new(diagnostics(&[], Capabilities::default())));
        for (facts, with_backend) in [
            (SessionFacts { diagnostics: read(), ..SessionFacts::default() }, &[][..]),
            (SessionFacts::default(), &[WarningCount, ErrorCount]),
            (SessionFacts { diagnostics: read(), found_rows_with_backend: true, ..SessionFacts::default() }, &[FoundRows]),
            (SessionFacts { diagnostics: read(), row_count_with_backend: true, ..SessionFacts::default() }, &[RowCount]),
        ] {
            for fact in [FoundRows, RowCount, ConnectionId, PseudoThreadId, WarningCount, ErrorCount] {
                assert_eq!(facts.is_with_backend(fact), with_backend.contains(&fact), "{fact:?}, of {with_backend:?}");
            }
        }
    }

    #[test]
    fn numbers_beyond_the_signed_range_stop_at_its_end() {
        let facts = SessionFacts { found_rows: u64::MAX, ..SessionFacts::default() };
        assert_eq!((facts.of(Fact::FoundRows, 1), facts.of(Fact::ConnectionId, u64::MAX)), (i64::MAX, i64::MAX));
    }
}
