//! What the session knows itself about its last statements, so that it need not keep the backend that ran them.

use crate::collected::{Collected, packets};
use crate::insert_id::LastInsertId;
use crate::pins::{PinReason, PinSet, Pins};
use crate::tableless;
use serde::{Deserialize, Serialize};
use sql::{Analysis, Facts, Kind, Offset};
use wire::charset::Flavor;
use wire::codec::Reader;
use wire::flags::Capabilities;
use wire::reframe::ReplyFacts;

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
    pub came_back_to_schema: bool,
    /// A server refused what the session has set; the next SET may mend it.
    pub is_refused: bool,
    /// FOUND_ROWS().
    found_rows: u64,
    /// A pinned backend knows FOUND_ROWS() better: what ran there counts in ways of its own.
    found_rows_with_backend: bool,
    /// ROW_COUNT().
    row_count: i64,
    /// A pinned backend knows ROW_COUNT() better.
    row_count_with_backend: bool,
    /// @@warning_count.
    warnings: u16,
    /// @@error_count.
    errors: u16,
    /// What SHOW WARNINGS shows; None when there is nothing to show.
    diagnostics: Option<Box<Diagnostics>>,
    /// The last statement's error, when no server knows of it.
    own_error: Option<Box<OwnError>>,
    /// The warnings of the statement that just ran were read before it is settled.
    warnings_read: bool,
    /// ROW_COUNT() and FOUND_ROWS() of the statement that just ran were noted before it is settled.
    counts_noted: bool,
    /// The statement that just ran leaves older warnings standing (MariaDB, no table read).
    keeps_warnings: bool,
    /// The statements that just ran, of one text, leave FOUND_ROWS() as it was.
    keeps_found_rows: bool,
    /// What the statement called that just ran, if it failed.
    pub failed_calls: FailedCalls,
    /// How many definitions of routines there were before the statement that calls some.
    pub routines_defined: u32,
    /// Statements left before `auto_increment_delay_multiplex` ends.
    pub auto_increment_left: u32,
    /// Process clock (ms) at which it ends in any case (`auto_increment_delay_multiplex_timeout_ms`); 0 is never.
    pub auto_increment_until_ms: u64,
    /// Some: a server has answered, and the reply is not noted yet. Whether it left warnings or an error on the connection.
    #[serde(skip)]
    unnoted: Option<bool>,
    /// The server may have warnings, though the count in the reply says none: they are of an earlier statement of the text.
    #[serde(skip)]
    may_have_warnings: bool,
}

/// What only the backend knows of the session's last statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// The list of warnings, or the error.
    pub warnings: bool,
    /// LAST_INSERT_ID().
    pub last_insert_id: bool,
    /// FOUND_ROWS().
    pub found_rows: bool,
}

impl Unread {
    /// Whether there is anything.
    pub fn any(self) -> bool {
        self.warnings || self.last_insert_id || self.found_rows
    }
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

/// The statement at hand, from its beginning to the noted reply.
impl SessionFacts {
    /// A statement is to be run: what was not noted of the reply before never will be.
    pub fn begin(&mut self) {
        (self.unnoted, self.may_have_warnings, self.warnings_read, self.counts_noted) = (None, false, false, false);
    }

    /// A server has answered. Its warnings are the reply's until the reply is noted.
    pub fn answered(&mut self, reply: &ReplyFacts) {
        self.unnoted = Some(reply.error.is_some() || reply.warned);
    }

    /// The statements that ran, being several of one text, leave older warnings standing, or FOUND_ROWS() as it was.
    pub fn several_keep(&mut self, warnings: bool, found_rows: bool) {
        (self.keeps_warnings, self.keeps_found_rows) = (warnings, found_rows);
    }

    /// The command that ran leaves older warnings standing if this holds.
    pub fn keep_warnings(&mut self, keeps: bool) {
        self.keeps_warnings = keeps;
    }

    /// The command that ran counts no rows.
    pub fn keep_counts(&mut self) {
        self.counts_noted = true;
    }

    /// Notes FOUND_ROWS() and ROW_COUNT() of a reply. False where that was done before.
    pub fn note_counts(&mut self, analysis: &Analysis, reply: &ReplyFacts) -> bool {
        if std::mem::replace(&mut self.counts_noted, true) {
            return false;
        }
        let unclear =
            matches!(analysis.kind, Kind::Call | Kind::Compound | Kind::Execute) || analysis.facts.intersects(Facts::MULTI | Facts::TORN);
        let row_count = match (reply.error, reply.rows) {
            (None, None) if analysis.kind == Kind::GetDiagnostics && !unclear => self.row_count,
            (None, None) => i64::try_from(reply.affected_rows).unwrap_or(i64::MAX),
            _ => -1,
        };
        self.set_row_count(row_count, unclear && reply.error.is_none());
        if std::mem::take(&mut self.keeps_found_rows) {
            return true;
        }
        if unclear || reply.is_behind_cursor() || analysis.facts.contains(Facts::CALC_FOUND_ROWS) {
            self.found_rows_with_backend = true;
        } else if counts_found_rows(analysis, reply) {
            self.found_rows_with_backend = false;
        }
        if let Some(rows) = reply.rows.filter(|_| counts_found_rows(analysis, reply)) {
            self.found_rows = rows;
        } else if analysis.kind == Kind::Select && reply.error.is_none() && !reply.had_rows {
            // SELECT ... INTO: its rows are told as changed ones.
            self.found_rows = reply.affected_rows;
        }
        true
    }

    /// Notes the warnings of a reply, and that all of it is noted. Returns whether the statement left the diagnostics area to this reply.
    pub fn note_diagnostics(&mut self, analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let failed = reply.error.is_some();
        let kept = std::mem::take(&mut self.keeps_warnings) && !failed && !reply.warned;
        let read = std::mem::take(&mut self.warnings_read);
        (self.unnoted, self.counts_noted) = (None, false);
        if keeps_diagnostics(analysis) || kept {
            // Left standing on the backend that the session may give back now.
            self.may_have_warnings = self.is_unread();
            return false;
        }
        (self.warnings, self.errors) = if failed { (1, 1) } else { (reply.warnings, 0) };
        self.own_error = None;
        if !read {
            self.diagnostics = None;
            // Those of an earlier statement of the text may still stand.
            self.may_have_warnings = failed || reply.warned;
        }
        true
    }

    /// Whether the time of `auto_increment_delay_multiplex` is over, though not the statements.
    pub fn is_insert_delay_over(&self, pins: &Pins, now_ms: u64) -> bool {
        let until_ms = self.auto_increment_until_ms;
        until_ms > 0 && until_ms <= now_ms && pins.set().contains(PinReason::AutoIncrementDelay)
    }

    /// An insert id keeps the backend no more.
    pub fn end_insert_delay(&mut self, pins: &mut Pins) {
        (self.auto_increment_left, self.auto_increment_until_ms) = (0, 0);
        pins.end(PinReason::AutoIncrementDelay);
    }

    /// Does one of several statements leave the diagnostics as they were?
    pub fn leaves_diagnostics(&self, flavor: Flavor, analysis: &Analysis, sql: &[u8]) -> bool {
        // MySQL clears them for a SELECT that shows their numbers.
        keeps_diagnostics(analysis) || is_about_diagnostics(analysis) && self.leaves_warnings(flavor, analysis, sql)
    }

    /// MariaDB keeps the warnings of an earlier statement as long as statements read no table.
    pub fn leaves_warnings(&self, flavor: Flavor, analysis: &Analysis, sql: &[u8]) -> bool {
        flavor == Flavor::MariaDb && self.has_diagnostics() && tableless::leaves_warnings(analysis.kind, sql)
    }

    /// A command that is no statement: MariaDB keeps warnings over it.
    pub fn leave_warnings(&mut self, flavor: Flavor) {
        self.keep_warnings(flavor == Flavor::MariaDb && self.has_diagnostics());
    }

    /// Does the session with these pins know this better than its backend?
    pub fn knows(&self, pins: PinSet, fact: sql::Fact) -> bool {
        let may_be_set = fact == sql::Fact::PseudoThreadId && pins.contains(PinReason::SessionState);
        pins.is_empty() || !may_be_set && !self.is_with_backend(fact)
    }
}

/// What the backend knows, and the session does not.
impl SessionFacts {
    /// All of it.
    pub fn unread(&self) -> Unread {
        let warnings = match self.unnoted {
            Some(warned) => !self.warnings_read && (warned || self.keeps_warnings && self.is_unread()),
            None => self.may_have_warnings || self.is_unread(),
        };
        Unread { warnings, last_insert_id: !self.insert_id.is_known(), found_rows: self.found_rows_with_backend }
    }

    /// Are there warnings that only the backend has, to which the session is pinned?
    pub fn is_unread(&self) -> bool {
        self.warnings > 0 && self.diagnostics.is_none() && self.own_error.is_none()
    }

    /// FOUND_ROWS() is with the backend.
    pub fn found_rows_are_with_backend(&self) -> bool {
        self.found_rows_with_backend
    }

    /// The server answered SHOW WARNINGS, on a connection with these capabilities.
    pub fn read_warnings(&mut self, reply: Collected, caps: Capabilities) {
        let errors = reply.rows.iter().filter(|row| row.get(1..6) == Some(b"Error")).count();
        self.errors = u16::try_from(errors).unwrap_or(u16::MAX);
        self.warnings = u16::try_from(reply.rows.len()).unwrap_or(u16::MAX).max(self.warnings);
        self.diagnostics = Some(Box::new(Diagnostics { packets: reply.raw, caps }));
        (self.warnings_read, self.may_have_warnings) = (self.unnoted.is_some(), false);
    }

    /// Whether SHOW WARNINGS is answered without the backend: the session read the warnings of its last statement, or raised the error.
    pub fn knows_warnings(&self) -> bool {
        match self.unnoted {
            Some(_) => self.warnings_read,
            None => self.diagnostics.is_some() || self.own_error.is_some(),
        }
    }

    /// The warnings of the statement that ran, where they were read before they are noted.
    pub fn warnings_read(&self) -> Option<&Diagnostics> {
        self.diagnostics.as_deref().filter(|_| self.warnings_read)
    }

    /// The server said what FOUND_ROWS() is.
    pub fn learn_found_rows(&mut self, found_rows: u64) {
        (self.found_rows, self.found_rows_with_backend) = (found_rows, false);
    }

    /// The server said what ROW_COUNT() is.
    pub fn learn_row_count(&mut self, row_count: i64) {
        self.set_row_count(row_count, false);
    }

    /// Something was asked of the backend, or it is left: it no longer knows ROW_COUNT(), and the reply's count is the best word on it.
    pub fn lose_row_count(&mut self) {
        self.set_row_count(self.row_count, false);
    }

    /// The backend was lost before it was asked: what replies said is the best word on it.
    pub fn lose_backend(&mut self) {
        if self.unread().warnings {
            self.forget_warnings();
        }
        self.insert_id.lose_backend();
        self.found_rows_with_backend = false;
        self.lose_row_count();
    }

    /// The session gives its backend back, and its user does not want warnings (`handle_warnings=0`).
    pub fn forget_warnings(&mut self) {
        (self.warnings, self.errors, self.may_have_warnings) = (0, 0, false);
    }

    /// ROW_COUNT() changed on the backend in ways of its own.
    pub fn leave_row_count(&mut self) {
        self.set_row_count(self.row_count, true);
    }

    /// FOUND_ROWS() of a query with a LIMIT: the rows that its offset skipped count with those that were sent. Where none were sent,
    /// there may have been fewer than that, and only the server knows.
    pub fn skipped_rows(&mut self, offset: Offset) {
        match offset {
            _ if self.found_rows_with_backend => {}
            Offset::None | Offset::Rows(0) => {}
            Offset::Rows(rows) if self.found_rows > 0 => self.found_rows = self.found_rows.saturating_add(rows),
            Offset::Rows(_) | Offset::Unclear => self.found_rows_with_backend = true,
        }
    }

    /// FOUND_ROWS() will be the number of rows that are fetched by a cursor, if that is read to its end.
    pub fn count_from_zero(&mut self) {
        self.found_rows = 0;
    }

    /// So many rows were fetched by that cursor.
    pub fn count_fetched(&mut self, rows: u64, is_last: bool) {
        if self.found_rows_with_backend {
            self.found_rows += rows;
            self.found_rows_with_backend = !is_last;
        }
    }
}

/// What is answered without a server.
impl SessionFacts {
    /// A command was answered that has no rows (0), or is none that changes any (-1).
    pub fn answered_here(&mut self, row_count: i64) {
        self.set_row_count(row_count, false);
    }

    /// A query was answered from the cache, with so many rows. `keeps_warnings`: a server would keep those of before.
    pub fn answered_from_cache(&mut self, rows: u64, keeps_warnings: bool) {
        self.set_row_count(-1, false);
        (self.found_rows, self.found_rows_with_backend) = (rows, false);
        if !keeps_warnings {
            self.clear_diagnostics();
        }
    }

    /// A statement succeeded that leaves no warnings.
    pub fn clear_diagnostics(&mut self) {
        (self.warnings, self.errors) = (0, 0);
        (self.diagnostics, self.own_error) = (None, None);
    }

    /// The last statement failed before a server saw it.
    pub fn note_own_error(&mut self, code: u16, sqlstate: [u8; 5], text: &[u8]) {
        self.begin();
        self.set_row_count(-1, false);
        (self.warnings, self.errors) = (1, 1);
        self.diagnostics = None;
        self.own_error = Some(Box::new(OwnError { code, sqlstate, text: text.to_vec() }));
    }

    /// COM_RESET_CONNECTION, which keeps FOUND_ROWS().
    pub fn was_reset(&mut self) {
        *self = Self { found_rows: self.found_rows, ..Self::default() };
    }

    /// ROW_COUNT() is this, unless the backend knows it better.
    fn set_row_count(&mut self, row_count: i64, is_with_backend: bool) {
        (self.row_count, self.row_count_with_backend) = (row_count, is_with_backend);
    }
}

/// What is known.
impl SessionFacts {
    /// Were the diagnostics read, be a backend held or not?
    pub fn knows_diagnostics(&self, holds_backend: bool) -> bool {
        !holds_backend || self.diagnostics().is_some()
    }

    /// A statement without rows was answered here.
    pub fn note_success(&mut self, leaves_warnings: bool) {
        self.answered_here(0);
        if !leaves_warnings {
            self.clear_diagnostics();
        }
    }

    /// ROW_COUNT(), as far as the session knows.
    pub fn row_count(&self) -> i64 {
        self.row_count
    }

    /// What SHOW WARNINGS shows; None when it is not known, or there is nothing to show.
    pub fn diagnostics(&self) -> Option<&Diagnostics> {
        self.diagnostics.as_deref()
    }

    /// The last statement's error, when no server knows of it.
    pub fn own_error(&self) -> Option<&OwnError> {
        self.own_error.as_deref()
    }

    /// Is there anything for SHOW WARNINGS to show, be it of a server, the session's own, or still with the backend?
    pub fn has_diagnostics(&self) -> bool {
        self.diagnostics.is_some() || self.own_error.is_some() || self.is_unread()
    }

    /// Is this better asked of a pinned backend?
    pub fn is_with_backend(&self, fact: sql::Fact) -> bool {
        match fact {
            sql::Fact::FoundRows => self.found_rows_with_backend,
            sql::Fact::RowCount => self.row_count_with_backend,
            // Who sets @@pseudo_thread_id is pinned for it: SessionFacts::knows().
            sql::Fact::ConnectionId | sql::Fact::PseudoThreadId => false,
            sql::Fact::WarningCount | sql::Fact::ErrorCount => self.diagnostics.is_none(),
        }
    }

    /// A fact as the number that is put into a statement or its reply.
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

/// For tests of sessions.
impl SessionFacts {
    /// ROW_COUNT(), FOUND_ROWS(), and the numbers of warnings and errors.
    pub fn numbers(&self) -> (i64, u64, u16, u16) {
        (self.row_count, self.found_rows, self.warnings, self.errors)
    }

    /// They are these.
    pub fn set_numbers(&mut self, numbers: (i64, u64, u16, u16)) {
        (self.row_count, self.found_rows, self.warnings, self.errors) = numbers;
    }

    /// FOUND_ROWS() is with the backend.
    pub fn leave_found_rows(&mut self) {
        self.found_rows_with_backend = true;
    }

    /// These were read.
    pub fn set_diagnostics(&mut self, diagnostics: Diagnostics) {
        self.diagnostics = Some(Box::new(diagnostics));
    }
}

/// Does the statement read the diagnostics area and leave it as it is?
pub fn is_about_diagnostics(analysis: &Analysis) -> bool {
    matches!(analysis.kind, Kind::ShowWarnings | Kind::ShowErrors | Kind::ShowCountWarnings | Kind::ShowCountErrors | Kind::GetDiagnostics)
        || analysis.facts.contains(Facts::DIAGNOSTICS)
}

/// Is the statement, being one, such that it leaves the diagnostics as they were, whatever it says?
pub fn keeps_diagnostics(analysis: &Analysis) -> bool {
    let is_about = is_about_diagnostics(&Analysis { facts: Facts::NONE, ..*analysis });
    is_about && !analysis.facts.contains(Facts::MULTI)
}

/// Is FOUND_ROWS() another one after this reply? Statements without rows leave it alone, and so do those that show diagnostics and
/// those whose rows are what they changed (RETURNING).
pub fn counts_found_rows(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    let leaves =
        matches!(analysis.kind, Kind::ShowWarnings | Kind::ShowErrors | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete);
    reply.error.is_none() && reply.rows.is_some() && !leaves
}

/// May FOUND_ROWS() count rows that a LIMIT left out at the front?
pub fn leaves_out_rows(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    analysis.facts.contains(Facts::OFFSET) && analysis.kind == Kind::Select && counts_found_rows(analysis, reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::Fact;
    use wire::codec::put_lenenc_bytes;
    use wire::packet::put_packet;

    fn analysis(text: &str) -> Analysis {
        sql::analyze(text.as_bytes(), sql::LexMode::default())
    }

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

    #[test]
    fn rows_count_unless_they_are_diagnostics_or_what_was_changed() {
        let reply = |rows, error| ReplyFacts { rows, error, ..ReplyFacts::default() };
        for (text, reply, expected) in [
            ("SELECT a FROM t", reply(Some(0), None), true),
            ("SHOW TABLES", reply(Some(2), None), true),
            ("CALL p()", reply(Some(2), None), true),
            ("CALL p()", reply(None, None), false),
            ("SELECT a FROM t", reply(Some(1), Some(1317)), false),
            ("SHOW WARNINGS", reply(Some(1), None), false),
            ("SHOW ERRORS", reply(Some(1), None), false),
            ("DELETE FROM t RETURNING a", reply(Some(1), None), false),
        ] {
            assert_eq!(counts_found_rows(&analysis(text), &reply), expected, "{text}, {:?}", reply.rows);
        }
    }
}
