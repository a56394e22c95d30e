//! What a statement did to the session: state, pins, schema epoch. From the server's word first, from the text else.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::connection::Connection;
use super::door::{ServerDoor, door};
use super::failed::leaves_nothing;
use super::frontend::Frontend;
use super::route::Directions;
use super::untracked::UNKNOWN_STATEMENT;
use crate::workers::safety::Safety;
use session_state::door::Door;
use session_state::effects::{changes_data_at_most, token_at, verb};
use session_state::facts::{SessionFacts, counts_found_rows};
use session_state::pins::PinReason;
use session_state::routines::has_word;
use session_state::untracked::mentions_role;
use session_state::wants::Wants;
use session_state::words::contains;
use sql::{Analysis, Facts, Kind, LexMode, LockCall};
use std::sync::atomic::Ordering;
use wire::codes;
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;

/// A transaction is open.
const IN_TRANSACTION: StatusFlags = StatusFlags::IN_TRANS.union(StatusFlags::IN_TRANS_READONLY);

/// What holds stored routines, as a data definition names it.
const ROUTINES: [&str; 5] = ["procedure", "function", "package", "database", "schema"];

/// What a statement may change of a session by its effects: what the session wants, knows and keeps, not what runs or is run again.
pub(super) struct Effects<'a> {
    pub at: &'a mut Backends,
    pub client: &'a mut Frontend,
    pub facts: &'a mut SessionFacts,
    pub wants: &'a mut Wants,
    /// How the statement was run.
    pub directions: &'a Directions,
}

impl Session {
    /// Where the effects of the statement at hand are noted.
    pub(super) fn effects(&mut self) -> Effects<'_> {
        Effects {
            at: &mut self.at,
            client: &mut self.client,
            facts: &mut self.facts,
            wants: &mut self.wants,
            directions: &self.hand.directions,
        }
    }
}

impl Effects<'_> {
    /// Where the proxy asks what the reply does not tell.
    pub(super) fn door(&mut self) -> ServerDoor<'_> {
        door!(self)
    }

    /// What this text left behind is not known.
    fn pin_state(&mut self, sql: &[u8], analysis: &Analysis) {
        self.at.pin_unknown(mentions_role(sql), analysis);
    }

    /// Notes what a COM_QUERY did.
    pub(super) fn note_effects(&mut self, command: Incoming, start: usize, analysis: &Analysis, reply: &ReplyFacts) {
        let read_by = self.wants.lex;
        self.note_status(analysis, reply);
        if !self.needs_notes(analysis, reply) {
            return;
        }
        // The text is needed beside `self`; statements that get here are few.
        let sql = self.client.sql_text(command, start).to_vec();
        let read_by = self.wants.changes_its_text(&sql, analysis, reply, read_by).then_some(read_by);
        self.note_all(&sql, analysis, reply, read_by);
        let schema = self.wants.state.schema.clone();
        self.note_stored_code(&sql, schema.as_ref(), analysis, reply);
    }

    /// Notes what a statement with this text did (COM_QUERY and COM_STMT_EXECUTE alike); `read_by` is how it was read, where its
    /// text is not what the session's settings say now.
    pub(super) fn note_all(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: Option<LexMode>) {
        if self.client.is_refused_whole(analysis, reply) {
            return;
        }
        self.note_unseen(sql, analysis);
        let clients = self.at.backend.tells_by_clients_wish();
        if analysis.facts.contains(Facts::MULTI) && (self.wants.is_read_anew(sql, reply) || self.wants.is_read_anew_untold(sql, clients)) {
            // What followed was read in another way by the server than here.
            self.at.pin(PinReason::SessionState, analysis);
        }
        if analysis.facts.contains(Facts::TORN) || reply.is_garbled {
            self.at.pin_unknown(true, analysis);
        }
        let returns = self.wants.returns_to_its_schema(reply);
        self.facts.came_back_to_schema = returns;
        self.note_changes(sql, analysis, reply);
        if analysis.facts.contains(Facts::MULTI) {
            let mut ends_transaction = false;
            for one in sql::split(sql, self.wants.lex) {
                let each = sql::analyze(one, self.wants.lex);
                ends_transaction |= ends_transaction_alone(&each, reply);
                self.note_statement(one, &each, reply, read_by);
                if reply.error.is_some() && !leaves_nothing(&each) {
                    // Which one failed is not known.
                    self.pin_state(one, analysis);
                }
            }
            if ends_transaction && self.client.status.intersects(IN_TRANSACTION) {
                self.begin_transaction_anew(analysis);
            }
        } else {
            self.note_statement(sql, analysis, reply, read_by);
            self.note_dropped(sql, analysis, reply);
        }
        // The statement may have changed the settings itself.
        if (clients || self.at.backend.tells_by_clients_wish()) && !self.wants.is_told_by_text(sql, analysis) {
            self.pin_state(sql, analysis);
        }
        self.note_next_transaction(analysis, reply);
        if !(returns && self.wants.only_moved(sql, analysis, reply)) {
            self.note_unexplained(sql, analysis, reply);
        }
        self.note_counted_pins(analysis, reply);
    }

    /// The transaction, as the server's status flags say.
    pub(super) fn note_status(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        let ends_transaction = match analysis.kind {
            Kind::Commit | Kind::Rollback | Kind::Begin | Kind::Ddl => true,
            // Only what switches it on.
            Kind::Set => reply.status.is_some_and(|status| status.contains(StatusFlags::AUTOCOMMIT)),
            _ => false,
        };
        if ends_transaction && reply.error.is_none() {
            self.at.pins.end(PinReason::Savepoint);
        }
        let Some(mut status) = reply.status else { return };
        if self.directions.alone {
            // It is on for the statement only.
            status.remove(StatusFlags::AUTOCOMMIT);
        }
        let in_transaction = status.intersects(IN_TRANSACTION);
        if in_transaction && self.client.status.intersects(IN_TRANSACTION) && ends_transaction_alone(analysis, reply) {
            self.begin_transaction_anew(analysis);
        }
        if status == self.client.status {
            return;
        }
        self.client.status = status;
        self.wants.lex.no_backslash_escapes = status.contains(StatusFlags::NO_BACKSLASH_ESCAPES);
        let now = self.at.worker.clock.now_ms();
        if in_transaction && !Safety::TransactionPin.is_off() {
            self.at.pins.begin(PinReason::Transaction, now, analysis.digest);
        } else {
            self.at.pins.end(PinReason::Transaction);
        }
        self.at.handle.set_transaction(in_transaction, now);
    }

    /// What the text of one statement means for the session.
    fn note_statement(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: Option<LexMode>) {
        if analysis.facts.contains(Facts::VERSIONED) && may_end_pins(analysis) {
            // It may not have run.
            return self.at.pin(PinReason::SessionState, analysis);
        }
        self.note_locks(sql, analysis, reply);
        self.note_kind(sql, analysis, reply, read_by);
        let assigns = analysis.facts.contains(Facts::USER_VARIABLE_ASSIGN)
            || analysis.facts.contains(Facts::USER_VARIABLE)
                && matches!(analysis.kind, Kind::Call | Kind::LoadData | Kind::GetDiagnostics | Kind::Compound);
        // A text that the server could not read, or that names a variable as none may be named, assigned nothing.
        let was_read = !matches!(reply.error, Some(codes::PARSE | codes::ILLEGAL_USER_VAR)) || analysis.facts.contains(Facts::MULTI);
        if assigns && was_read && analysis.kind != Kind::Set {
            self.user_variables().computed_by(sql, analysis);
        }
    }

    fn note_kind(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: Option<LexMode>) {
        let (now, digest) = (self.at.worker.clock.now_ms(), analysis.digest);
        let failed = reply.error.is_some();
        match analysis.kind {
            Kind::Ddl | Kind::DropTable | Kind::CreateTemporaryTable => {
                self.at.worker.shared.ddl_epoch.fetch_add(1, Ordering::AcqRel);
            }
            Kind::Compound => self.note_compound(sql),
            // A part of one that failed may hold, too.
            Kind::Grant => self.at.worker.rights_changed(),
            Kind::Flush if has_word(sql, "privileges") => self.at.worker.rights_changed(),
            _ => {}
        }
        if matches!(analysis.kind, Kind::Ddl | Kind::Compound) && ROUTINES.iter().any(|word| has_word(sql, word)) {
            self.at.worker.shared.routines_defined.note(Some(sql));
        }
        if analysis.kind == Kind::Ddl && !failed && self.at.tracks_nothing() && self.wants.drops_its_schema(sql) {
            self.wants.enter_schema(self.at, None);
        }
        match analysis.kind {
            Kind::Ddl if contains(sql, b"rename") => self.at.pins.tables_renamed(),
            Kind::Set => match reply.error {
                None => self.note_set(sql, analysis, reply, read_by),
                Some(code) => self.note_failed_set(sql, analysis, code),
            },
            Kind::CreateTemporaryTable if !failed && !Safety::TemporaryTablePin.is_off() => {
                let names = self.wants.temporary_tables(sql);
                if names.is_empty() {
                    self.at.pin(PinReason::SessionState, analysis);
                }
                for name in names {
                    self.at.pins.table_created(name, now, digest);
                }
            }
            Kind::LockTables | Kind::FlushReadLock if !failed => {
                self.at.pins.tables_locked(analysis.kind == Kind::FlushReadLock, now, digest);
            }
            Kind::Begin if !failed => self.at.pins.transaction_begun(),
            // What gives such a lock back is not looked for: they are rare, and a stage does not end with a lock.
            Kind::BackupLock if !failed => self.at.pin(PinReason::SessionState, analysis),
            Kind::UnlockTables if !failed => self.at.pins.tables_unlocked(),
            Kind::Prepare if !failed => match sql::prepared_name(sql, self.wants.lex) {
                Some(name) => self.at.pins.statement_prepared(name, self.wants.trace_of(sql), now, digest),
                None => self.at.pin(PinReason::SessionState, analysis),
            },
            Kind::Deallocate if !failed || reply.error == Some(UNKNOWN_STATEMENT) => {
                if let Some(name) = sql::prepared_name(sql, self.wants.lex) {
                    self.at.pins.statement_deallocated(&name);
                }
            }
            Kind::Savepoint if !failed && !self.client.status.contains(StatusFlags::AUTOCOMMIT) => {
                self.at.pin(PinReason::Savepoint, analysis)
            }
            Kind::SetTransaction if !failed => self.at.pin(PinReason::NextTransaction, analysis),
            Kind::SetRole if !failed => self.at.pin(PinReason::Role, analysis),
            Kind::Execute => self.note_dynamic(sql, analysis, reply),
            Kind::Compound if mentions_role(sql) => self.at.pin(PinReason::Role, analysis),
            Kind::Xa => self.note_xa(sql, analysis, failed),
            Kind::Handler if !failed => match handler_verb(sql, self.wants.lex) {
                HandlerVerb::Open => self.at.pins.handler_opened(now, digest),
                HandlerVerb::Close => self.at.pins.handler_closed(),
                HandlerVerb::Read => {}
            },
            Kind::Use if reply.schema.is_none() && !failed && (self.at.tracks_nothing() || self.at.backend.tells_by_clients_wish()) => {
                let schema = sql::parse_use(sql, self.wants.lex)
                    .map(|name| self.wants.in_utf8(self.at.worker.shared.info.get().as_deref(), self.client.collation, &name));
                self.wants.enter_schema(self.at, schema);
            }
            Kind::SetStatement => self.note_set_statement(sql, analysis, reply),
            _ => {}
        }
    }

    /// `SET STATEMENT x=1 FOR ...`: what follows FOR runs as it would alone, but the server's word on variables does not tell
    /// its own from those that are gone again.
    fn note_set_statement(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        let Some(body) = sql::set_statement_body(sql, self.wants.lex) else { return self.pin_state(sql, analysis) };
        let inner = sql::analyze(body, self.wants.lex);
        match inner.kind {
            Kind::Set | Kind::SetStatement | Kind::Call | Kind::Compound | Kind::Execute | Kind::Do => self.pin_state(body, analysis),
            _ => self.note_kind(body, &inner, reply, None),
        }
        match inner.kind {
            Kind::Compound => self.note_compound(body),
            Kind::Execute => self.note_dynamic(body, &inner, reply),
            _ => {}
        }
    }

    /// A compound statement may define data, also if it fails later.
    fn note_compound(&self, sql: &[u8]) {
        if sql::compound(sql, self.wants.lex).defines {
            self.at.worker.shared.anything_was_defined();
        }
    }

    /// DROP TABLE, alone: a warning may say that there was no such table, and of several statements only the last one's are told.
    fn note_dropped(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if analysis.kind == Kind::DropTable
            && !analysis.facts.contains(Facts::VERSIONED)
            && reply.error.is_none()
            && reply.warnings == 0
            && self.at.pins.set().contains(PinReason::TemporaryTable)
        {
            let dropped = self.wants.temporary_tables(sql);
            self.at.pins.tables_dropped(&dropped);
        }
    }

    /// A statement that failed may have taken what it names, and has perhaps released nothing; nor does one with
    /// `sql_select_limit=0` (DO too, on MySQL).
    fn note_locks(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if !analysis.facts.intersects(Facts::GET_LOCK | Facts::RELEASE_LOCK) || Safety::LockPin.is_off() {
            return;
        }
        let now = self.at.worker.clock.now_ms();
        let is_limited = self.wants.state.variables.get("sql_select_limit").is_some_and(|limit| **limit == *b"0");
        let releases = reply.error.is_none() && !is_limited && (analysis.kind != Kind::Select || reply.all_rows > 0);
        for call in sql::lock_names(sql, self.wants.lex) {
            match call {
                LockCall::Release(_) | LockCall::ReleaseAll if !releases => {}
                LockCall::Get(name) => self.at.pins.lock_taken(name, now, analysis.digest),
                LockCall::Release(name) => self.at.pins.lock_released(name.as_deref()),
                LockCall::ReleaseAll => self.at.pins.locks_released(),
            }
        }
    }

    fn note_xa(&mut self, sql: &[u8], analysis: &Analysis, failed: bool) {
        // Where not every server runs a part of it, that part may be the verb.
        let is_certain = !analysis.facts.contains(Facts::VERSIONED);
        match verb(sql, self.wants.lex, 1).as_deref() {
            Some("COMMIT" | "ROLLBACK") if is_certain && !failed => self.at.pins.end(PinReason::Xa),
            Some("RECOVER") if is_certain => {}
            // What is refused begins nothing; what there was before has its pin.
            Some(_) if is_certain && failed => {}
            _ => self.at.pin(PinReason::Xa, analysis),
        }
    }

    /// What SET TRANSACTION asked for is over with COMMIT and ROLLBACK. Other statements use it up or not, as the engines of their
    /// tables will: no answer tells.
    fn note_next_transaction(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        let ended = reply.status.is_some_and(|s| !s.intersects(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY));
        let is_certain = reply.error.is_none() && !analysis.facts.intersects(Facts::MULTI.union(Facts::VERSIONED));
        if ended && is_certain && matches!(analysis.kind, Kind::Commit | Kind::Rollback) {
            self.at.pins.end(PinReason::NextTransaction);
        }
    }

    /// A transaction ended and the next one began with it: `COMMIT AND CHAIN`, `BEGIN` within a transaction. It has its own time.
    fn begin_transaction_anew(&mut self, analysis: &Analysis) {
        let now = self.at.worker.clock.now_ms();
        self.at.handle.set_transaction(false, now);
        self.at.handle.set_transaction(true, now);
        if self.at.pins.set().contains(PinReason::Transaction) {
            self.at.pins.end(PinReason::Transaction);
            self.at.pins.begin(PinReason::Transaction, now, analysis.digest);
        }
    }

    /// Is there more to note than the transaction?
    pub(super) fn needs_notes(&self, analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let counts_inserts = self.at.lane.settings().auto_increment_delay_multiplex > 0;
        let waits = self.at.pins.set().contains(PinReason::FoundRows)
            || self.at.pins.set().contains(PinReason::NextTransaction)
            || analysis.kind == Kind::Begin && self.at.pins.set().contains(PinReason::LockTables);
        !is_plain(analysis, reply) || waits || counts_inserts || self.at.tracks_nothing() || self.at.backend.tells_by_clients_wish()
    }
}

impl Effects<'_> {
    /// Pins that count statements.
    fn note_counted_pins(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        if analysis.facts.contains(Facts::CALC_FOUND_ROWS) && reply.error.is_none() {
            self.at.pin(PinReason::FoundRows, analysis);
        } else if counts_found_rows(analysis, reply) {
            self.at.pins.end(PinReason::FoundRows);
        }
        let settings = self.at.lane.settings();
        let delay = settings.auto_increment_delay_multiplex;
        if delay > 0 && reply.last_insert_id != 0 {
            let until_ms = match settings.auto_increment_delay_multiplex_timeout_ms {
                0 => 0,
                // Not the worker's clock, which may be behind: it would end too early.
                ms => self.at.worker.shared.clock.now_ms() + ms,
            };
            let left = u32::try_from(delay).unwrap_or(u32::MAX);
            (self.facts.auto_increment_left, self.facts.auto_increment_until_ms) = (left, until_ms);
            self.at.handle.hold_backend_until(until_ms);
            self.at.pin(PinReason::AutoIncrementDelay, analysis);
        } else if self.facts.auto_increment_left > 0 {
            self.facts.auto_increment_left -= 1;
            if self.facts.auto_increment_left == 0 || self.facts.is_insert_delay_over(&self.at.pins, self.at.worker.clock.now_ms()) {
                self.facts.end_insert_delay(&mut self.at.pins);
            }
        }
    }
}

/// A statement that changes nothing the session must note: the hot path ends here.
fn is_plain(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    let loud =
        Facts::GET_LOCK | Facts::RELEASE_LOCK | Facts::USER_VARIABLE_ASSIGN | Facts::CALC_FOUND_ROWS | Facts::MULTI | Facts::UNKNOWN_CODE;
    let quiet_kind = changes_data_at_most(analysis.kind) || matches!(analysis.kind, Kind::Commit | Kind::Begin | Kind::Rollback);
    quiet_kind && !analysis.facts.intersects(loud) && reply.variables.is_empty() && reply.schema.is_none() && !reply.state_change
}

/// Does the statement, being one, end the transaction that was open before it?
fn ends_transaction_alone(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    reply.error.is_none()
        && !analysis.facts.intersects(Facts::MULTI | Facts::VERSIONED)
        && matches!(analysis.kind, Kind::Begin | Kind::Commit | Kind::Rollback)
}

/// Statements that end pins by their text alone.
fn may_end_pins(analysis: &Analysis) -> bool {
    matches!(analysis.kind, Kind::UnlockTables | Kind::Deallocate | Kind::Handler) || analysis.facts.contains(Facts::RELEASE_LOCK)
}

enum HandlerVerb {
    Open,
    Read,
    Close,
}

/// `HANDLER t OPEN`, `HANDLER db.t OPEN`.
fn handler_verb(sql: &[u8], lex: sql::LexMode) -> HandlerVerb {
    let is_qualified = token_at(sql, lex, 2).is_some_and(|token| token.is(b'.'));
    match verb(sql, lex, if is_qualified { 4 } else { 2 }).as_deref() {
        Some("READ") => HandlerVerb::Read,
        Some("CLOSE") => HandlerVerb::Close,
        _ => HandlerVerb::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_stand_where_they_belong() {
        let handler = |sql: &str| match handler_verb(sql.as_bytes(), sql::LexMode::default()) {
            HandlerVerb::Open => "open",
            HandlerVerb::Read => "read",
            HandlerVerb::Close => "close",
        };
        for (sql, expected) in [
            ("HANDLER t OPEN", "open"),
            ("/* READ */ handler db . `t` open AS close;", "open"),
            ("; HANDLER /* OPEN */ t CLOSE", "close"),
            ("/* CLOSE */ HANDLER close READ FIRST", "read"),
            ("HANDLER open.close READ `close` = (1)", "read"),
            ("HANDLER", "open"),
        ] {
            assert_eq!(handler(sql), expected, "{sql}");
        }
        let xa = |sql: &str| verb(sql.as_bytes(), sql::LexMode::default(), 1);
        assert_eq!(xa("/* commit phase 1 */ XA PREPARE 'xy'").as_deref(), Some("PREPARE"));
        assert_eq!(xa("/* RECOVER */ ;XA -- COMMIT\n start 'x'").as_deref(), Some("START"));
        assert_eq!(xa("XA"), None);
    }

    #[test]
    fn a_statement_has_more_to_note_by_its_text_or_by_its_reply() {
        let quiet = ReplyFacts::default();
        for (text, expected) in [
            ("SELECT a FROM t", true),
            ("INSERT INTO t VALUES (1)", true),
            ("COMMIT", true),
            ("SET autocommit = 0", false),
            ("CALL p()", false),
            ("SELECT f()", false),
            ("SELECT GET_LOCK('a', 1)", false),
            ("SELECT RELEASE_LOCK('a')", false),
            ("SELECT @a := 1", false),
            ("SELECT SQL_CALC_FOUND_ROWS a FROM t", false),
            ("SELECT 1; SELECT 2", false),
        ] {
            assert_eq!(is_plain(&sql::analyze(text.as_bytes(), LexMode::default()), &quiet), expected, "{text}");
        }
        let select = sql::analyze(b"SELECT a FROM t", LexMode::default());
        for told in [
            ReplyFacts { variables: vec![("sql_mode".into(), b"".as_slice().into())], ..ReplyFacts::default() },
            ReplyFacts { schema: Some(b"".as_slice().into()), ..ReplyFacts::default() },
            ReplyFacts { state_change: true, ..ReplyFacts::default() },
        ] {
            assert!(!is_plain(&select, &told), "{told:?}");
        }
    }

    #[test]
    fn some_statements_end_pins_by_their_text_alone() {
        let ends = |text: &str| may_end_pins(&sql::analyze(text.as_bytes(), LexMode::default()));
        for text in ["UNLOCK TABLES", "DEALLOCATE PREPARE s", "HANDLER t CLOSE", "DO RELEASE_LOCK('a')", "SELECT RELEASE_ALL_LOCKS()"] {
            assert!(ends(text), "{text}");
        }
        for text in ["LOCK TABLES t READ", "PREPARE s FROM 'SELECT 1'", "SELECT GET_LOCK('a', 1)", "COMMIT"] {
            assert!(!ends(text), "{text}");
        }
    }
}

#[cfg(test)]
#[path = "pins_tests.rs"]
mod pins_tests;
