//! What a statement did to the session: state, pins, schema epoch. From the server's word first, from the text else.

use super::Session;
use super::charsets;
use super::command::Incoming;
use super::facts::InsertId;
use super::failed::leaves_nothing;
use super::setting::assignments;
use super::settle::counts_found_rows;
use super::sync::AUTOCOMMIT;
use crate::backend::Tracking;
use crate::connect::is_of_no_session;
use crate::pins::{PinReason, Trace};
use crate::reframe::{ReplyFacts, TrackFilter};
use crate::routines::has_word;
use crate::safety::Safety;
use crate::state::{RESULTS_COLLATION, Text};
use model::snapshot::RuleMultiplex;
use sql::{Analysis, Facts, Kind, LexMode, Lexer, LockCall, MultiByte, Target, Token, TokenKind, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::charset::Flavor;
use wire::flags::StatusFlags;

/// ER_UNKNOWN_STMT_HANDLER: there is none of that name (any more, after a PREPARE that failed).
const UNKNOWN_STATEMENT: u16 = 1243;

/// MySQL's variable that has a client told the GTIDs of its writes.
pub const TRACK_GTIDS: &str = "session_track_gtids";

/// Variables that servers tell of and nobody can set: what happened, not what the session wants.
const OBSERVED: &[&str] = &["last_gtid", "in_transaction", "warning_count", "error_count", "proxy_user", "external_user"];

/// What MariaDB changes for a statement that says how long it waits for locks, and for it alone.
const LOCK_TIMEOUTS: [&str; 2] = ["lock_wait_timeout", "innodb_lock_wait_timeout"];

/// What in sql_mode decides how text is read.
const READS_TEXT: &[&[u8]] = &[b"ANSI_QUOTES", b"NO_BACKSLASH_ESCAPES", b"ORACLE", b"IGNORE_SPACE"];

/// What holds stored routines, as a data definition names it.
const ROUTINES: [&str; 5] = ["procedure", "function", "package", "database", "schema"];

/// Session variables that act once, or on the connection itself: they are not carried but pin.
pub(super) const UNCARRIED: &[&str] = &[
    "insert_id",
    "rand_seed1",
    "rand_seed2",
    "pseudo_thread_id",
    "pseudo_slave_mode",
    "pseudo_replica_mode",
    "gtid_next",
    "gtid_seq_no",
    "gtid_domain_id",
    "server_id",
    "profiling",
    "debug",
    "debug_sync",
    "proxy_user",
    "external_user",
];

impl Session {
    /// Notes what a COM_QUERY did.
    pub(super) fn note_effects(&mut self, command: Incoming, start: usize, analysis: &Analysis, reply: &ReplyFacts) {
        let read_by = self.lex;
        self.note_status(analysis, reply);
        if !self.needs_notes(analysis, reply) {
            return;
        }
        // The text is needed beside `self`; statements that get here are few.
        let sql = self.sql_text(command, start).to_vec();
        let read_by = self.changes_its_text(&sql, analysis, reply, read_by).then_some(read_by);
        self.note_all(&sql, analysis, reply, read_by);
        let schema = self.state.schema.clone();
        self.note_stored_code(&sql, schema.as_ref(), analysis, reply);
    }

    /// Is there more to note than the transaction?
    pub(super) fn needs_notes(&self, analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let counts_inserts = self.lane.settings().auto_increment_delay_multiplex > 0;
        let waits = self.pins.set().contains(PinReason::FoundRows)
            || self.pins.set().contains(PinReason::NextTransaction)
            || analysis.kind == Kind::Begin && self.pins.set().contains(PinReason::LockTables);
        !is_plain(analysis, reply) || waits || counts_inserts
    }

    /// Notes what a statement with this text did (COM_QUERY and COM_STMT_EXECUTE alike); `read_by` is how it was read, where its
    /// text is not what the session's settings say now.
    pub(super) fn note_all(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: Option<LexMode>) {
        if self.is_refused_whole(analysis, reply) {
            return;
        }
        if analysis.facts.contains(Facts::MULTI) && (self.is_read_anew(sql, reply) || self.is_read_anew_untold(sql)) {
            // What followed was read in another way by the server than here.
            self.pin(PinReason::SessionState, analysis);
        }
        if analysis.facts.contains(Facts::TORN) || reply.is_garbled {
            self.pin_unknown(true, analysis);
        }
        let returns = self.returns_to_its_schema(reply);
        self.facts.returned = returns;
        self.note_changes(sql, analysis, reply);
        if analysis.facts.contains(Facts::MULTI) {
            for one in sql::split(sql, self.lex) {
                let each = sql::analyze(one, self.lex);
                self.note_statement(one, &each, reply, read_by);
                if reply.error.is_some() && !leaves_nothing(&each) {
                    // Which one failed is not known.
                    self.pin_state(one, analysis);
                }
            }
        } else {
            self.note_statement(sql, analysis, reply, read_by);
            self.note_dropped(sql, analysis, reply);
        }
        self.note_next_transaction(analysis, reply);
        if !(returns && self.only_moved(sql, analysis, reply)) {
            self.note_unexplained(sql, analysis, reply);
        }
        self.note_counted_pins(analysis, reply);
    }

    /// Does what assigns user variables change how text is read, or in which character set and collation it is?
    pub(super) fn changes_its_text(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: LexMode) -> bool {
        let decides = |name: &str| name == "sql_mode" || charsets::is_one(name);
        let changes = |assignment: sql::Assignment| match assignment.target {
            Target::Session(name) => decides(&name),
            Target::Names { .. } | Target::CharacterSet(_) => true,
            _ => false,
        };
        let is_told = || reply.variables.iter().any(|(name, _)| decides(name));
        // MariaDB does not tell of a SET that is written with @@.
        let is_said = || assignments(sql, analysis, read_by).into_iter().any(changes);
        analysis.facts.contains(Facts::USER_VARIABLE_ASSIGN) && (self.lex != read_by || is_told() || is_said())
    }

    /// Did one of several statements change how text is read? The session has the state from before them.
    fn is_read_anew(&self, sql: &[u8], reply: &ReplyFacts) -> bool {
        reply.variables.iter().any(|(name, value)| {
            let before = self.state.variables.get(name).map_or(&b""[..], |value| value);
            match &**name {
                "sql_mode" => [before, value].into_iter().any(|mode| READS_TEXT.iter().any(|word| contains_word(mode, word))),
                "character_set_client" => differ_on(sql, MultiByte::of(before), MultiByte::of(value)),
                _ => false,
            }
        })
    }

    /// The same of a SET that is written with @@, of which MariaDB does not tell.
    fn is_read_anew_untold(&self, sql: &[u8]) -> bool {
        let names = [b"sql_mode".as_slice(), b"character_set_client"];
        let may_change = |one: &[u8]| contains(one, b"@@") && names.iter().any(|name| contains(one, name));
        let text = |value: &Value| match value {
            Value::Literal(text) | Value::Word(text) => Some(text.trim_matches(['\'', '"']).to_owned()),
            Value::Default | Value::Expression => None,
        };
        let changes = |assignment: &sql::Assignment| match (&assignment.target, text(&assignment.value)) {
            (Target::Session(name), value) if name == "sql_mode" => value.is_none_or(|mode| {
                let before = self.state.variables.get(name).map_or(&b""[..], |value| value);
                [before, mode.as_bytes()].into_iter().any(|mode| READS_TEXT.iter().any(|word| contains(mode, word)))
            }),
            (Target::Session(name), value) if name == "character_set_client" => {
                value.is_none_or(|charset| differ_on(sql, self.lex.multi_byte, MultiByte::of(charset.as_bytes())))
            }
            _ => false,
        };
        sql::split(sql, self.lex)
            .filter(|one| may_change(one) && sql::analyze(one, self.lex).kind == Kind::Set)
            .any(|one| sql::parse_set(one, self.lex).is_none_or(|all| all.iter().any(changes)))
    }

    /// The transaction, as the server's status flags say.
    pub(super) fn note_status(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        if reply.error.is_none() && matches!(analysis.kind, Kind::Commit | Kind::Rollback | Kind::Begin | Kind::Ddl | Kind::Set) {
            self.pins.end(PinReason::Savepoint);
        }
        let Some(mut status) = reply.status else { return };
        if self.directions.alone {
            // It is on for the statement only.
            status.remove(StatusFlags::AUTOCOMMIT);
        }
        let in_transaction = status.intersects(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY);
        if status == self.status {
            return;
        }
        self.status = status;
        self.lex.no_backslash_escapes = status.contains(StatusFlags::NO_BACKSLASH_ESCAPES);
        let now = self.now_ms();
        if in_transaction && !Safety::TransactionPin.is_off() {
            self.pins.begin(PinReason::Transaction, now, analysis.digest);
        } else {
            self.pins.end(PinReason::Transaction);
        }
        self.entry.set_transaction(in_transaction, now);
    }

    /// What the session tracker said changed.
    pub(super) fn note_changes(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if let Some(schema) = &reply.schema {
            let schema = if schema.is_empty() { None } else { Some(schema.as_ref().into()) };
            self.enter_schema(schema);
        }
        // `SET STATEMENT x=1 FOR ...` tells of values that are gone again when it is over.
        let passing = analysis.kind == Kind::SetStatement;
        // So does a hint: of the values that the variables have again.
        let hints = has_set_var(sql, analysis);
        let waits = self.has_own_lock_timeouts(sql, analysis, reply);
        let lent = self.directions.alone;
        let is_over = |name: &str| {
            passing || hints && contains(sql, name.as_bytes()) || waits && LOCK_TIMEOUTS.contains(&name) || lent && name == AUTOCOMMIT
        };
        for (name, value) in reply.variables.iter().filter(|(name, _)| !is_over(name)) {
            self.note_variable(name, value, sql, analysis);
        }
        if charsets::changed_by(reply) && !self.text_variables().is_empty() {
            // Their values were read in the old character set.
            self.pin_variables(Some(self.text_variables()), analysis);
        }
    }

    /// The session and its backend have this schema now, and with it the schema's character set.
    pub(super) fn enter_schema(&mut self, schema: Option<Text>) {
        self.state.enter_schema(schema.clone());
        if let Some(backend) = self.backend.as_mut() {
            backend.core.state.enter_schema(schema);
        }
    }

    pub(super) fn note_variable(&mut self, name: &str, value: &[u8], sql: &[u8], analysis: &Analysis) {
        match name {
            // MariaDB tells of the proxy's own settings once more with the next reply.
            "last_insert_id" | "identity" if !matches!(analysis.kind, Kind::Set) => {}
            "last_insert_id" | "identity" => {
                if let Some(id) = std::str::from_utf8(value).ok().and_then(|t| t.parse().ok()) {
                    self.facts.last_insert_id = id;
                    self.facts.insert_id = InsertId::Session;
                    if let Some(backend) = self.backend.as_mut() {
                        backend.core.last_insert_id = Some(id);
                    }
                }
            }
            name if name.starts_with("session_track_") && !analysis.facts.contains(Facts::SESSION_TRACK) => {
                if !self.is_our_tracking(name, value) {
                    // Stored code did it, and what comes next may not be told.
                    self.pin(PinReason::SessionState, analysis);
                }
            }
            "session_track_system_variables" | "session_track_schema" | "session_track_state_change" => self.note_tracking(name, value),
            "session_track_transaction_info" | TRACK_GTIDS => {
                self.set_variable(name, Some(value));
                if let Some(backend) = self.backend.as_mut() {
                    backend.core.tells_gtids = false;
                }
                if let Some(filter) = self.filter.as_mut().filter(|_| name == TRACK_GTIDS) {
                    filter.gtids = !value.eq_ignore_ascii_case(b"OFF");
                }
            }
            "gtid_next" if value.eq_ignore_ascii_case(b"AUTOMATIC") => {}
            "profiling" if value.eq_ignore_ascii_case(b"OFF") => {}
            name if is_observed(name) => {}
            name if UNCARRIED.contains(&name) => self.pin(PinReason::SessionState, analysis),
            "timestamp" if sets_default(sql, self.lex) => self.set_variable(name, None),
            AUTOCOMMIT => {
                let is_default = value.eq_ignore_ascii_case(b"ON") == self.autocommit_default();
                self.set_variable(name, (!is_default).then_some(value));
            }
            "sql_mode" => {
                self.read_text_by(value);
                self.set_variable(name, Some(value));
            }
            _ => self.set_variable(name, Some(value)),
        }
    }

    /// What a `sql_mode` says of how text is read. Whether backslashes escape, the server's status tells too.
    fn read_text_by(&mut self, sql_mode: &[u8]) {
        self.lex.ansi_quotes = contains_word(sql_mode, b"ANSI_QUOTES");
        self.lex.oracle = contains_word(sql_mode, b"ORACLE");
        self.lex.ignore_space = contains_word(sql_mode, b"IGNORE_SPACE");
    }

    fn autocommit_default(&self) -> bool {
        self.backend.as_ref().is_none_or(|b| b.core.info.status.contains(StatusFlags::AUTOCOMMIT))
    }

    /// A value that a SET answered here gives the session; no backend is held.
    pub(super) fn note_learnt_variable(&mut self, name: &str, value: &[u8]) {
        match name {
            AUTOCOMMIT => {
                let on = value.eq_ignore_ascii_case(b"ON");
                self.status.set(StatusFlags::AUTOCOMMIT, on);
                let default = self.initial_status().contains(StatusFlags::AUTOCOMMIT);
                self.set_variable(name, (on != default).then_some(value));
            }
            "sql_mode" => {
                self.read_text_by(value);
                self.lex.no_backslash_escapes = contains_word(value, b"NO_BACKSLASH_ESCAPES");
                self.status.set(StatusFlags::NO_BACKSLASH_ESCAPES, self.lex.no_backslash_escapes);
                let mariadb = self.worker.shared.serves_mariadb();
                self.status.set(StatusFlags::ANSI_QUOTES, self.lex.ansi_quotes && mariadb);
                self.set_variable(name, Some(value));
            }
            RESULTS_COLLATION => self.set_variable(name, Some(value).filter(|value| !value.is_empty())),
            _ => self.set_variable(name, Some(value)),
        }
    }

    /// The session and its backend both have this value now.
    pub(super) fn set_variable(&mut self, name: &str, value: Option<&[u8]>) {
        if name == "wait_timeout" {
            let seconds = value.and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
            self.entry.set_own_idle_limit(seconds.unwrap_or(0).saturating_mul(1000));
        }
        self.state.variables.set(name, value);
        if name == "character_set_client" {
            self.read_client_charset();
        }
        if let Some(backend) = self.backend.as_mut() {
            if backend.core.state.variables == self.state.variables {
                return;
            }
            backend.core.state.variables.set(name, value);
            if backend.core.state.variables == self.state.variables {
                // One copy in memory, and the next comparison is that of two pointers.
                backend.core.state.variables = self.state.variables.clone();
            }
        }
    }

    /// The client changed what it wants to be told.
    fn note_tracking(&mut self, name: &str, value: &[u8]) {
        if let Some(backend) = self.backend.as_mut() {
            backend.core.tracking = Tracking::Clients;
        }
        let mut wish = self.tracking_wish.take().unwrap_or_else(|| Box::new(self.default_filter()));
        let on = value.eq_ignore_ascii_case(b"ON") || value == b"1";
        match name {
            "session_track_schema" => wish.schema = on,
            "session_track_state_change" => wish.state_change = on,
            _ => wish.system_variables = variable_list(value),
        }
        if let Some(filter) = self.filter.as_mut() {
            wish.gtids = filter.gtids;
            filter.clone_from(&wish);
        }
        self.tracking_wish = Some(wish);
    }

    /// Whether the proxy itself, or the client, has set this (or it decides nothing of what the proxy is told).
    fn is_our_tracking(&self, name: &str, value: &[u8]) -> bool {
        let Some(core) = self.backend.as_ref().map(|backend| &backend.core).filter(|core| core.tracking == Tracking::Ours) else {
            return true;
        };
        match name {
            "session_track_schema" | "session_track_state_change" => value.eq_ignore_ascii_case(b"ON") || value == b"1",
            "session_track_system_variables" => {
                let ours = core.info.tracking.get().map(|tracking| Arc::clone(&tracking.ours));
                let value = format!("'{}'", String::from_utf8_lossy(value));
                ours.is_none_or(|ours| ours.contains(&value))
            }
            _ => true,
        }
    }

    /// What a client is told that never asked for anything else: the server's own defaults.
    pub(super) fn default_filter(&self) -> TrackFilter {
        let known = self.pool.servers().iter().find_map(|s| s.track_defaults());
        let mut filter = match known {
            Some(defaults) => TrackFilter {
                system_variables: variable_list(defaults.system_variables.as_deref().unwrap_or_default().as_bytes()),
                schema: defaults.schema,
                state_change: defaults.state_change,
                gtids: defaults.gtids,
            },
            None => TrackFilter { system_variables: variable_list(COMMON_DEFAULT), schema: true, ..TrackFilter::default() },
        };
        if let Some(value) = self.state.variables.get(TRACK_GTIDS) {
            filter.gtids = !value.eq_ignore_ascii_case(b"OFF");
        }
        filter
    }

    pub(super) fn pin(&mut self, reason: PinReason, analysis: &Analysis) {
        let now = self.now_ms();
        self.pins.begin(reason, now, analysis.digest);
    }

    /// What this text left behind is not known.
    fn pin_state(&mut self, sql: &[u8], analysis: &Analysis) {
        self.pin_unknown(mentions_role(sql), analysis);
    }

    /// What was left behind is not known; with `role`, it may be a role.
    pub(super) fn pin_unknown(&mut self, role: bool, analysis: &Analysis) {
        self.pin(PinReason::SessionState, analysis);
        if role {
            self.pin(PinReason::Role, analysis);
        }
    }

    /// User variables have values that the text does not tell; None when it is not known which.
    pub(super) fn pin_variables(&mut self, names: Option<Vec<String>>, analysis: &Analysis) {
        if self.directions.multiplex != Some(RuleMultiplex::IgnoreVariables) {
            let now = self.now_ms();
            self.pins.variables_computed(names, now, analysis.digest);
        }
    }

    /// What the text of one statement means for the session.
    fn note_statement(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: Option<LexMode>) {
        if analysis.facts.contains(Facts::VERSIONED) && may_end_pins(analysis) {
            // It may not have run.
            return self.pin(PinReason::SessionState, analysis);
        }
        self.note_locks(sql, analysis, reply);
        self.note_kind(sql, analysis, reply, read_by);
        let assigns = analysis.facts.contains(Facts::USER_VARIABLE_ASSIGN)
            || analysis.facts.contains(Facts::USER_VARIABLE)
                && matches!(analysis.kind, Kind::Call | Kind::LoadData | Kind::GetDiagnostics | Kind::Compound);
        if assigns && analysis.kind != Kind::Set {
            self.pin_variables(sql::user_variables(sql, self.lex), analysis);
        }
    }

    fn note_kind(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: Option<LexMode>) {
        let (now, digest) = (self.now_ms(), analysis.digest);
        let failed = reply.error.is_some();
        match analysis.kind {
            Kind::Ddl | Kind::DropTable | Kind::CreateTemporaryTable => {
                self.worker.shared.ddl_epoch.fetch_add(1, Ordering::AcqRel);
            }
            _ => {}
        }
        if matches!(analysis.kind, Kind::Ddl | Kind::Compound) && ROUTINES.iter().any(|word| has_word(sql, word)) {
            self.worker.shared.routines_defined.note(Some(sql));
        }
        match analysis.kind {
            Kind::Ddl if contains(sql, b"rename") => self.pins.tables_renamed(),
            Kind::Set if !failed => self.note_set(sql, analysis, reply, read_by),
            Kind::CreateTemporaryTable if !failed && !Safety::TemporaryTablePin.is_off() => {
                let names = self.temporary_tables(sql);
                if names.is_empty() {
                    self.pin(PinReason::SessionState, analysis);
                }
                for name in names {
                    self.pins.table_created(name, now, digest);
                }
            }
            Kind::LockTables | Kind::FlushReadLock if !failed => {
                self.pins.tables_locked(analysis.kind == Kind::FlushReadLock, now, digest);
            }
            Kind::Begin if !failed => self.pins.transaction_begun(),
            // What gives such a lock back is not looked for: they are rare, and a stage does not end with a lock.
            Kind::BackupLock if !failed => self.pin(PinReason::SessionState, analysis),
            Kind::UnlockTables if !failed => self.pins.tables_unlocked(),
            Kind::Prepare if !failed => match sql::prepared_name(sql, self.lex) {
                Some(name) => self.pins.statement_prepared(name, self.trace_of(sql), now, digest),
                None => self.pin(PinReason::SessionState, analysis),
            },
            Kind::Deallocate if !failed || reply.error == Some(UNKNOWN_STATEMENT) => {
                if let Some(name) = sql::prepared_name(sql, self.lex) {
                    self.pins.statement_deallocated(&name);
                }
            }
            Kind::Savepoint if !failed && !self.status.contains(StatusFlags::AUTOCOMMIT) => self.pin(PinReason::Savepoint, analysis),
            Kind::SetTransaction if !failed => self.pin(PinReason::NextTransaction, analysis),
            Kind::SetRole if !failed => self.pin(PinReason::Role, analysis),
            Kind::Execute => self.note_dynamic(sql, analysis, reply),
            Kind::Compound if mentions_role(sql) => self.pin(PinReason::Role, analysis),
            Kind::Xa => self.note_xa(sql, analysis, failed),
            Kind::Handler if !failed => match handler_verb(sql, self.lex) {
                HandlerVerb::Open => self.pins.handler_opened(now, digest),
                HandlerVerb::Close => self.pins.handler_closed(),
                HandlerVerb::Read => {}
            },
            Kind::Use if reply.schema.is_none() && !failed && self.tracks_nothing() => {
                let schema = sql::parse_use(sql, self.lex).map(|s| s.as_slice().into());
                self.enter_schema(schema);
            }
            Kind::SetStatement => self.note_set_statement(sql, analysis, reply),
            _ => {}
        }
    }

    /// `SET STATEMENT x=1 FOR ...`: what follows FOR runs as it would alone, but the server's word on variables does not tell
    /// its own from those that are gone again.
    fn note_set_statement(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        let Some(body) = sql::set_statement_body(sql, self.lex) else { return self.pin_state(sql, analysis) };
        let inner = sql::analyze(body, self.lex);
        match inner.kind {
            Kind::Set | Kind::SetStatement | Kind::Call | Kind::Compound | Kind::Execute | Kind::Do => self.pin_state(body, analysis),
            _ => self.note_kind(body, &inner, reply, None),
        }
    }

    /// DROP TABLE, alone: a warning may say that there was no such table, and of several statements only the last one's are told.
    fn note_dropped(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if analysis.kind == Kind::DropTable
            && !analysis.facts.contains(Facts::VERSIONED)
            && reply.error.is_none()
            && reply.warnings == 0
            && self.pins.set().contains(PinReason::TemporaryTable)
        {
            let dropped = self.temporary_tables(sql);
            self.pins.tables_dropped(&dropped);
        }
    }

    /// The tables that are made or dropped, with their schemas.
    fn temporary_tables(&self, sql: &[u8]) -> Vec<(Text, String)> {
        let own = || self.state.schema.clone().unwrap_or_else(|| (*b"").into());
        let tables = sql::temporary_tables(sql, self.lex).into_iter();
        tables.map(|(schema, table)| (schema.map_or_else(own, |schema| schema.as_bytes().into()), table)).collect()
    }

    /// Is the backend at hand one of these?
    pub(super) fn is_on(&self, flavor: Flavor) -> bool {
        self.backend.as_ref().is_some_and(|b| b.core.info.flavor == flavor)
    }

    pub(super) fn tracks_nothing(&self) -> bool {
        self.backend.as_ref().is_some_and(|b| b.core.tracking == Tracking::None)
    }

    /// A statement that failed may have taken what it names, and has perhaps released nothing; nor does one with
    /// `sql_select_limit=0` (DO too, on MySQL).
    fn note_locks(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if !analysis.facts.intersects(Facts::GET_LOCK | Facts::RELEASE_LOCK) || Safety::LockPin.is_off() {
            return;
        }
        let now = self.now_ms();
        let is_limited = self.state.variables.get("sql_select_limit").is_some_and(|limit| **limit == *b"0");
        let releases = reply.error.is_none() && !is_limited && (analysis.kind != Kind::Select || reply.all_rows > 0);
        for call in sql::lock_names(sql, self.lex) {
            match call {
                LockCall::Release(_) | LockCall::ReleaseAll if !releases => {}
                LockCall::Get(name) => self.pins.lock_taken(name, now, analysis.digest),
                LockCall::Release(name) => self.pins.lock_released(name.as_deref()),
                LockCall::ReleaseAll => self.pins.locks_released(),
            }
        }
    }

    fn note_xa(&mut self, sql: &[u8], analysis: &Analysis, failed: bool) {
        // Where not every server runs a part of it, that part may be the verb.
        let is_certain = !analysis.facts.contains(Facts::VERSIONED);
        match verb(sql, self.lex, 1).as_deref() {
            Some("COMMIT" | "ROLLBACK") if is_certain && !failed => self.pins.end(PinReason::Xa),
            Some("RECOVER") if is_certain => {}
            // What is refused begins nothing; what there was before has its pin.
            Some(_) if is_certain && failed => {}
            _ => self.pin(PinReason::Xa, analysis),
        }
    }

    /// EXECUTE, EXECUTE IMMEDIATE: servers do not tell of temporary tables that dynamic SQL makes, nor of roles.
    fn note_dynamic(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        let trace = match sql::prepared_name(sql, self.lex) {
            Some(_) if reply.error == Some(UNKNOWN_STATEMENT) => Trace::Nothing,
            Some(name) => self.pins.trace_of(&name),
            None => self.trace_of(sql),
        };
        if trace != Trace::Nothing {
            self.pin(PinReason::SessionState, analysis);
        }
        if matches!(trace, Trace::Definition | Trace::Anything) {
            self.worker.shared.anything_was_defined();
        }
        if trace == Trace::Anything {
            self.pin(PinReason::Role, analysis);
        }
    }

    /// What the text that this PREPARE or EXECUTE IMMEDIATE gives leaves behind.
    fn trace_of(&self, sql: &[u8]) -> Trace {
        let Some(text) = sql::dynamic_text(sql, self.lex) else { return Trace::Anything };
        let analysis = sql::analyze(&text, self.lex);
        let tracing = Facts::USER_VARIABLE_ASSIGN
            | Facts::GET_LOCK
            | Facts::RELEASE_LOCK
            | Facts::CALC_FOUND_ROWS
            | Facts::MULTI
            | Facts::LAST_INSERT_ID_SET
            | Facts::UNKNOWN_FUNCTION;
        match analysis.kind {
            _ if mentions_role(&text) || analysis.facts.contains(Facts::TORN) => Trace::Anything,
            Kind::Call | Kind::Compound => Trace::Anything,
            kind if changes_data_at_most(kind) && !analysis.facts.intersects(tracing) => Trace::Nothing,
            _ if analysis.facts.contains(Facts::MULTI) => Trace::Definition,
            kind if changes_data_at_most(kind) || matches!(kind, Kind::Set | Kind::Do) => Trace::State,
            _ => Trace::Definition,
        }
    }

    /// Did the server enter another schema, and come back to the session's own? It tells of both as of one change.
    fn returns_to_its_schema(&self, reply: &ReplyFacts) -> bool {
        reply.state_change && reply.schema.as_deref().is_some_and(|schema| *schema == *self.state.schema.as_deref().unwrap_or_default())
    }

    /// Does that explain the change? No trigger and no view may have run; what a routine did is judged by its body.
    fn only_moved(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let is_known = changes_data_at_most(analysis.kind) || matches!(analysis.kind, Kind::Do | Kind::Call);
        is_known
            && !analysis.facts.intersects(Facts::MULTI | Facts::VERSIONED | Facts::TORN | Facts::USER_VARIABLE)
            && !reply.is_garbled
            && reply.variables.iter().all(|(name, _)| is_observed(name))
            && !sql::names_table(sql, self.lex, |_, _| true)
    }

    /// The server says that state changed, and nothing above explains it: stored code did it, be it behind a trigger or a view.
    fn note_unexplained(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if !reply.state_change {
            return;
        }
        let stored_code =
            matches!(analysis.kind, Kind::Call | Kind::Compound | Kind::Do) || analysis.facts.contains(Facts::UNKNOWN_FUNCTION);
        // A table made of a view's rows; on MySQL also of a variable that was never set and is NULL now.
        let is_silent = reply.schema.is_none() && reply.variables.is_empty();
        let word = |one: &[u8], behind| verb(one, self.lex, behind).unwrap_or_default();
        let fills = |one: &[u8]| is_silent && word(one, 0) == "CREATE" && ["TABLE", "OR"].contains(&&*word(one, 1));
        let is_quiet = |one: &[u8], kind| kind == Kind::LoadData || changes_data_at_most(kind) || kind == Kind::Ddl && fills(one);
        let changes_nothing_itself = match analysis.facts.contains(Facts::MULTI) {
            true => sql::split(sql, self.lex).all(|one| is_quiet(one, sql::analyze(one, self.lex).kind)),
            false => is_quiet(sql, analysis.kind),
        };
        let waits =
            || reply.variables.iter().all(|(name, _)| LOCK_TIMEOUTS.contains(&&**name)) && self.has_own_lock_timeouts(sql, analysis, reply);
        if changes_nothing_itself && !stored_code && (has_set_var(sql, analysis) || waits()) {
            // The hint (or NOWAIT) does it, and undoes it. Perhaps a trigger did more, which others must not meet.
            if let Some(backend) = self.backend.as_mut() {
                backend.core.must_reset = true;
            }
            return;
        }
        if stored_code || changes_nothing_itself {
            self.pin(PinReason::SessionState, analysis);
            if let Some(backend) = self.backend.as_mut().filter(|backend| backend.core.info.flavor == Flavor::MariaDb) {
                // It tells of a role as of any change.
                backend.core.may_have_role = true;
            }
        }
        if let Some(backend) = self.backend.as_ref().filter(|_| changes_nothing_itself && !stored_code) {
            backend.core.server.has_loud_triggers.store(true, Ordering::Relaxed);
        }
    }

    /// Does MariaDB tell of lock timeouts that a statement, being one, had for itself?
    fn has_own_lock_timeouts(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let may_set = matches!(analysis.kind, Kind::Set | Kind::Call | Kind::Compound | Kind::Execute | Kind::Do);
        !may_set
            && !analysis.facts.contains(Facts::MULTI)
            && reply.variables.iter().any(|(name, _)| LOCK_TIMEOUTS.contains(&&**name))
            && self.is_on(Flavor::MariaDb)
            && limits_waiting(sql, self.lex)
    }

    /// What SET TRANSACTION asked for is over with COMMIT and ROLLBACK. Other statements use it up or not, as the engines of their
    /// tables will: no answer tells.
    fn note_next_transaction(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        let ended = reply.status.is_some_and(|s| !s.intersects(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY));
        let is_certain = reply.error.is_none() && !analysis.facts.intersects(Facts::MULTI.union(Facts::VERSIONED));
        if ended && is_certain && matches!(analysis.kind, Kind::Commit | Kind::Rollback) {
            self.pins.end(PinReason::NextTransaction);
        }
    }

    /// Pins that count statements.
    fn note_counted_pins(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        if analysis.facts.contains(Facts::CALC_FOUND_ROWS) && reply.error.is_none() {
            self.pin(PinReason::FoundRows, analysis);
        } else if counts_found_rows(analysis, reply) {
            self.pins.end(PinReason::FoundRows);
        }
        let settings = self.lane.settings();
        let delay = settings.auto_increment_delay_multiplex;
        if delay > 0 && reply.last_insert_id != 0 {
            let until_ms = match settings.auto_increment_delay_multiplex_timeout_ms {
                0 => 0,
                // Not the worker's clock, which may be behind: it would end too early.
                ms => self.worker.shared.clock.now_ms() + ms,
            };
            let left = u32::try_from(delay).unwrap_or(u32::MAX);
            (self.facts.auto_increment_left, self.facts.auto_increment_until_ms) = (left, until_ms);
            self.entry.hold_backend_until(until_ms);
            self.pin(PinReason::AutoIncrementDelay, analysis);
        } else if self.facts.auto_increment_left > 0 {
            self.facts.auto_increment_left -= 1;
            if self.facts.auto_increment_left == 0 || self.is_insert_delay_over() {
                self.end_insert_delay();
            }
        }
    }

    /// Whether the time of `auto_increment_delay_multiplex` is over, though not the statements.
    pub(super) fn is_insert_delay_over(&self) -> bool {
        let until_ms = self.facts.auto_increment_until_ms;
        until_ms > 0 && until_ms <= self.now_ms() && self.pins.set().contains(PinReason::AutoIncrementDelay)
    }

    /// An insert id keeps the backend no more.
    pub(super) fn end_insert_delay(&mut self) {
        (self.facts.auto_increment_left, self.facts.auto_increment_until_ms) = (0, 0);
        self.pins.end(PinReason::AutoIncrementDelay);
    }
}

/// Is it no variable that a session sets? (A client that has all told is told of `statement_id` with each statement.)
fn is_observed(name: &str) -> bool {
    OBSERVED.contains(&name) || is_of_no_session(name)
}

/// Whether a text, which is one statement, has a hint that sets variables for it alone: `/*+ SET_VAR(x=1) */`.
fn has_set_var(sql: &[u8], analysis: &Analysis) -> bool {
    analysis.facts.contains(Facts::COMMENT) && !analysis.facts.contains(Facts::MULTI) && contains(sql, b"set_var")
}

/// Is this text perhaps another one in the other of these character sets?
fn differ_on(sql: &[u8], before: MultiByte, after: MultiByte) -> bool {
    before != after && !(before.reads_alike(sql) && after.reads_alike(sql))
}

/// Does the text say how long it waits for locks: `NOWAIT`, `WAIT 5`?
fn limits_waiting(sql: &[u8], lex: sql::LexMode) -> bool {
    let mut lexer = Lexer::new(sql, lex);
    let mut waits = false;
    let tokens = std::iter::from_fn(|| Some(lexer.token()).filter(|token| token.kind != TokenKind::End));
    for token in tokens {
        let is = |word: &[u8]| token.kind == TokenKind::Word && token.text(sql).eq_ignore_ascii_case(word);
        if is(b"nowait") || waits && token.kind == TokenKind::Number {
            return true;
        }
        waits = is(b"wait");
    }
    false
}

/// Whether a text may say SET ROLE.
fn mentions_role(sql: &[u8]) -> bool {
    contains(sql, b"role")
}

pub(super) fn contains(sql: &[u8], word: &[u8]) -> bool {
    sql.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// What servers track when nobody changed it.
const COMMON_DEFAULT: &[u8] = b"time_zone,autocommit,character_set_client,character_set_results,character_set_connection";

fn variable_list(value: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(value).split(',').map(|v| v.trim().to_ascii_lowercase()).filter(|v| !v.is_empty()).collect()
}

pub(super) fn contains_word(value: &[u8], word: &[u8]) -> bool {
    value.split(|b| *b == b',').any(|w| w.eq_ignore_ascii_case(word))
}

fn sets_default(sql: &[u8], lex: sql::LexMode) -> bool {
    let zero = |v: &Value| matches!(v, Value::Default) || matches!(v, Value::Literal(t) if t == "0");
    sql::parse_set(sql, lex)
        .is_some_and(|all| all.iter().any(|a| matches!(&a.target, Target::Session(n) if n == "timestamp") && zero(&a.value)))
}

/// Kinds of statements that leave the session's state alone, but for what stored code does.
pub(super) fn changes_data_at_most(kind: Kind) -> bool {
    matches!(kind, Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Replace | Kind::Show | Kind::Explain)
}

/// A statement that changes nothing the session must note: the hot path ends here.
fn is_plain(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    let loud =
        Facts::GET_LOCK | Facts::RELEASE_LOCK | Facts::USER_VARIABLE_ASSIGN | Facts::CALC_FOUND_ROWS | Facts::MULTI | Facts::UNKNOWN_CODE;
    let quiet_kind = changes_data_at_most(analysis.kind) || matches!(analysis.kind, Kind::Commit | Kind::Begin | Kind::Rollback);
    quiet_kind && !analysis.facts.intersects(loud) && reply.variables.is_empty() && reply.schema.is_none() && !reply.state_change
}

/// Statements that end pins by their text alone.
fn may_end_pins(analysis: &Analysis) -> bool {
    matches!(analysis.kind, Kind::UnlockTables | Kind::Deallocate | Kind::Handler) || analysis.facts.contains(Facts::RELEASE_LOCK)
}

/// The word of a statement behind this many tokens, in upper case; None when it is none, or in quotes.
fn verb(sql: &[u8], lex: sql::LexMode, behind: usize) -> Option<String> {
    let token = token_at(sql, lex, behind).filter(|token| token.kind == TokenKind::Word)?;
    Some(String::from_utf8_lossy(token.text(sql)).to_ascii_uppercase())
}

/// The token behind so many others; `;` ahead of them all does not count.
fn token_at(sql: &[u8], lex: sql::LexMode, behind: usize) -> Option<Token> {
    let mut lexer = Lexer::new(sql, lex);
    std::iter::from_fn(|| Some(lexer.token())).skip_while(|token| token.is(b';')).nth(behind)
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
    fn waits_are_limited_by_words_of_the_text() {
        let limits = |sql: &str| limits_waiting(sql.as_bytes(), sql::LexMode::default());
        for sql in ["SELECT 1 FROM t FOR UPDATE nowait", "(SELECT 1 FROM t LOCK IN SHARE MODE WAIT /* s */ 5);"] {
            assert!(limits(sql), "{sql}");
        }
        for sql in ["SELECT wait, 5 FROM `nowait`", "SELECT 'NOWAIT' FROM t FOR UPDATE -- WAIT 5", "SELECT 1 FROM t WAIT"] {
            assert!(!limits(sql), "{sql}");
        }
    }

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
}
