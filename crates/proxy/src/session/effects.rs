//! What a statement did to the session: state, pins, schema epoch. From the server's word first, from the text else.

use super::Session;
use super::command::Incoming;
use super::guard::guarded;
use crate::backend::Tracking;
use crate::pins::PinReason;
use crate::reframe::{ReplyFacts, TrackFilter};
use sql::{Analysis, Facts, Kind, LockCall, Target, Value};
use std::sync::atomic::Ordering;
use wire::flags::StatusFlags;

/// Session variables that act once, or on the connection itself: they are not carried but pin.
const UNCARRIED: &[&str] = &[
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
        self.note_status(analysis, reply);
        if !self.needs_notes(analysis, reply) {
            return;
        }
        // The text is needed beside `self`; statements that get here are few.
        let sql = self.sql_text(command, start).to_vec();
        self.note_all(&sql, analysis, reply);
    }

    /// Is there more to note than the transaction?
    pub(super) fn needs_notes(&self, analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let counts_inserts = self.worker.snapshot.vars.auto_increment_delay_multiplex > 0;
        !is_plain(analysis, reply) || self.pins.set().contains(PinReason::FoundRows) || counts_inserts
    }

    /// Notes what a statement with this text did (COM_QUERY and COM_STMT_EXECUTE alike).
    pub(super) fn note_all(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        self.note_changes(sql, analysis, reply);
        if analysis.facts.contains(Facts::MULTI) {
            for one in sql::split(sql, self.lex) {
                let each = sql::analyze(one, self.lex);
                self.note_statement(one, &each, reply);
            }
        } else {
            self.note_statement(sql, analysis, reply);
        }
        self.note_unexplained(analysis, reply);
        self.note_counted_pins(analysis, reply);
    }

    /// The transaction, as the server's status flags say.
    pub(super) fn note_status(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        if reply.error.is_none() && matches!(analysis.kind, Kind::Commit | Kind::Rollback | Kind::Begin | Kind::Ddl | Kind::Set) {
            self.pins.end(PinReason::Savepoint);
        }
        let Some(status) = reply.status else { return };
        let in_transaction = status.intersects(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY);
        if !in_transaction && !matches!(analysis.kind, Kind::SetTransaction | Kind::Set | Kind::Use | Kind::Show) {
            self.pins.end(PinReason::NextTransaction);
        }
        if status == self.status {
            return;
        }
        self.status = status;
        self.lex.no_backslash_escapes = status.contains(StatusFlags::NO_BACKSLASH_ESCAPES);
        let now = self.now_ms();
        if in_transaction {
            self.pins.begin(PinReason::Transaction, now, analysis.digest);
        } else {
            self.pins.end(PinReason::Transaction);
        }
        self.entry.set_transaction(in_transaction, now);
    }

    /// What the session tracker said changed.
    fn note_changes(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if let Some(schema) = &reply.schema {
            let schema = if schema.is_empty() { None } else { Some(schema.as_ref().into()) };
            self.state.schema.clone_from(&schema);
            if let Some(backend) = self.backend.as_mut() {
                backend.core.state.schema = schema;
            }
        }
        // `SET STATEMENT x=1 FOR ...` tells of values that are gone again when it is over.
        let passing = analysis.kind == Kind::SetStatement;
        for (name, value) in reply.variables.iter().filter(|_| !passing) {
            self.note_variable(name, value, sql, analysis);
        }
        if reply.variables.iter().any(|(n, _)| n.starts_with("character_set_") || n.starts_with("collation_")) && self.has_text_variables()
        {
            // Their values were read in the old character set.
            self.pin(PinReason::UserVariable, analysis);
        }
    }

    fn has_text_variables(&self) -> bool {
        self.state.user_variables.entries().iter().any(|(_, literal)| literal.contains(&b'\'') || literal.contains(&b'"'))
    }

    fn note_variable(&mut self, name: &str, value: &[u8], sql: &[u8], analysis: &Analysis) {
        match name {
            "last_insert_id" | "identity" => {
                if let Some(id) = std::str::from_utf8(value).ok().and_then(|t| t.parse().ok()) {
                    self.facts.last_insert_id = id;
                    if let Some(backend) = self.backend.as_mut() {
                        backend.core.last_insert_id = Some(id);
                    }
                }
            }
            // MariaDB tells of the proxy's own settings once more with the next reply.
            name if name.starts_with("session_track_") && !analysis.facts.contains(Facts::SESSION_TRACK) => {}
            "session_track_system_variables" | "session_track_schema" | "session_track_state_change" => self.note_tracking(name, value),
            "session_track_transaction_info" | "session_track_gtids" => {
                self.set_variable(name, Some(value));
                if let Some(filter) = self.filter.as_mut() {
                    let on = !value.eq_ignore_ascii_case(b"OFF");
                    if name == "session_track_gtids" { filter.gtids = on } else { filter.transaction_info = on }
                }
            }
            "gtid_next" if value.eq_ignore_ascii_case(b"AUTOMATIC") => {}
            "profiling" if value.eq_ignore_ascii_case(b"OFF") => {}
            name if UNCARRIED.contains(&name) => self.pin(PinReason::SessionState, analysis),
            "timestamp" if sets_default(sql, self.lex) => self.set_variable(name, None),
            "autocommit" => {
                let is_default = value.eq_ignore_ascii_case(b"ON") == self.autocommit_default();
                self.set_variable(name, (!is_default).then_some(value));
            }
            "sql_mode" => {
                self.lex.ansi_quotes = contains_word(value, b"ANSI_QUOTES");
                self.set_variable(name, Some(value));
            }
            _ => self.set_variable(name, Some(value)),
        }
    }

    fn autocommit_default(&self) -> bool {
        self.backend.as_ref().is_none_or(|b| b.core.info.status.contains(StatusFlags::AUTOCOMMIT))
    }

    /// A value that a SET answered here gives the session; no backend is held.
    pub(super) fn note_learnt_variable(&mut self, name: &str, value: &[u8]) {
        match name {
            "autocommit" => {
                let on = value.eq_ignore_ascii_case(b"ON");
                self.status.set(StatusFlags::AUTOCOMMIT, on);
                let default = self.initial_status().contains(StatusFlags::AUTOCOMMIT);
                self.set_variable(name, (on != default).then_some(value));
            }
            "sql_mode" => {
                self.lex.ansi_quotes = contains_word(value, b"ANSI_QUOTES");
                self.lex.no_backslash_escapes = contains_word(value, b"NO_BACKSLASH_ESCAPES");
                self.status.set(StatusFlags::NO_BACKSLASH_ESCAPES, self.lex.no_backslash_escapes);
                self.set_variable(name, Some(value));
            }
            _ => self.set_variable(name, Some(value)),
        }
    }

    /// After a SET: learns what the tracker does not tell, and remembers the statement's effect.
    pub(super) async fn learn_set(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if reply.error.is_some() || reply.variables.is_empty() {
            return;
        }
        let mut effect: Vec<crate::memory::Change> = reply.variables.iter().map(|(n, v)| ((**n).into(), (**v).into())).collect();
        if reply.variables.iter().any(|(n, _)| n.starts_with("character_set_") || n.starts_with("collation_")) {
            let Some(collation) = self.ask_for_collation().await else { return };
            self.set_variable("collation_connection", Some(&collation));
            effect.retain(|(n, _)| &**n != "collation_connection");
            effect.push(("collation_connection".into(), collation.into()));
        }
        let plain = !analysis.facts.intersects(Facts::MULTI | Facts::USER_VARIABLE | Facts::SESSION_TRACK | Facts::SYSTEM_VARIABLE);
        let constant = |v: &Value| matches!(v, Value::Literal(_) | Value::Word(_));
        let known = |t: &Target| match t {
            Target::Session(name) => {
                !UNCARRIED.contains(&name.as_str()) && !matches!(name.as_str(), "timestamp" | "last_insert_id" | "identity")
            }
            Target::Names { .. } | Target::CharacterSet(_) | Target::TransactionSession { .. } => true,
            Target::Global(_) | Target::Persist(_) | Target::User(_) => false,
        };
        let Some(all) = sql::parse_set(sql, self.lex) else { return };
        // Whatever else the server tells of (the end of an earlier SET STATEMENT) is not this statement's doing.
        let own = |name: &str| {
            name.starts_with("character_set_")
                || name.starts_with("collation_")
                || name.starts_with("tx_")
                || name.starts_with("transaction_")
                || all.iter().any(|a| matches!(&a.target, Target::Session(n) if n == name))
        };
        let repeatable = all.iter().all(|a| known(&a.target) && constant(&a.value)) && effect.iter().all(|(name, _)| own(name));
        if plain && repeatable && reply.warnings == 0 && self.state_is_ordinary() {
            self.worker.memory.borrow_mut().learn_set(sql, effect.into());
        }
    }

    async fn ask_for_collation(&mut self) -> Option<Vec<u8>> {
        let backend = self.backend.as_mut()?;
        let question = backend.query("SELECT @@collation_connection", &self.worker.buffers);
        let reply = guarded(&self.worker, &self.entry, question).await.ok()?;
        wire::codec::Reader::new(reply.rows.first()?).lenenc_bytes().ok().map(<[u8]>::to_vec)
    }

    /// The session and its backend both have this value now.
    pub(super) fn set_variable(&mut self, name: &str, value: Option<&[u8]>) {
        self.state.variables.set(name, value);
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
            (wish.gtids, wish.transaction_info) = (filter.gtids, filter.transaction_info);
            filter.clone_from(&wish);
        }
        self.tracking_wish = Some(wish);
    }

    /// What a client is told that never asked for anything else: the server's own defaults.
    pub(super) fn default_filter(&self) -> TrackFilter {
        let known = self.pool.shared.servers.iter().find_map(|s| s.tracking.get()).map(|t| &t.defaults);
        match known {
            Some(defaults) => TrackFilter {
                system_variables: variable_list(defaults.system_variables.as_deref().unwrap_or_default().as_bytes()),
                schema: defaults.schema,
                state_change: defaults.state_change,
                ..TrackFilter::default()
            },
            None => TrackFilter { system_variables: variable_list(COMMON_DEFAULT), schema: true, ..TrackFilter::default() },
        }
    }

    fn pin(&mut self, reason: PinReason, analysis: &Analysis) {
        let now = self.now_ms();
        self.pins.begin(reason, now, analysis.digest);
    }

    /// What the text of one statement means for the session.
    fn note_statement(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        let (now, digest) = (self.now_ms(), analysis.digest);
        let failed = reply.error.is_some();
        if !failed {
            self.note_locks(sql, analysis);
        }
        match analysis.kind {
            Kind::Ddl | Kind::DropTable | Kind::CreateTemporaryTable => {
                self.worker.shared.ddl_epoch.fetch_add(1, Ordering::AcqRel);
            }
            _ => {}
        }
        match analysis.kind {
            Kind::DropTable => self.pins.tables_dropped(&sql::temporary_tables(sql, self.lex)),
            Kind::Set if !failed => self.note_set(sql, analysis, reply),
            Kind::CreateTemporaryTable if !failed => {
                for name in sql::temporary_tables(sql, self.lex) {
                    self.pins.table_created(name, now, digest);
                }
            }
            Kind::LockTables | Kind::FlushReadLock if !failed => self.pins.begin(PinReason::LockTables, now, digest),
            Kind::UnlockTables if !failed => self.pins.end(PinReason::LockTables),
            Kind::Prepare if !failed => match sql::prepared_name(sql, self.lex) {
                Some(name) => self.pins.statement_prepared(name, now, digest),
                None => self.pin(PinReason::SessionState, analysis),
            },
            Kind::Deallocate if !failed => {
                if let Some(name) = sql::prepared_name(sql, self.lex) {
                    self.pins.statement_deallocated(&name);
                }
            }
            Kind::Savepoint if !failed && !self.status.contains(StatusFlags::AUTOCOMMIT) => self.pin(PinReason::Savepoint, analysis),
            Kind::SetTransaction if !failed => self.pin(PinReason::NextTransaction, analysis),
            Kind::SetRole if !failed => self.pin(PinReason::SessionState, analysis),
            Kind::Xa => self.note_xa(sql, analysis, failed),
            Kind::Handler if !failed => match handler_verb(sql) {
                HandlerVerb::Open => self.pins.handler_opened(now, digest),
                HandlerVerb::Close => self.pins.handler_closed(),
                HandlerVerb::Read => {}
            },
            Kind::Use if reply.schema.is_none() && !failed && self.tracks_nothing() => {
                let schema = sql::parse_use(sql, self.lex).map(|s| s.as_slice().into());
                self.state.schema.clone_from(&schema);
                if let Some(backend) = self.backend.as_mut() {
                    backend.core.state.schema = schema;
                }
            }
            _ => {}
        }
        let assigns = analysis.facts.contains(Facts::USER_VARIABLE_ASSIGN)
            || analysis.facts.contains(Facts::USER_VARIABLE)
                && matches!(analysis.kind, Kind::Call | Kind::LoadData | Kind::GetDiagnostics | Kind::Compound);
        if assigns && analysis.kind != Kind::Set {
            self.pin(PinReason::UserVariable, analysis);
        }
    }

    fn tracks_nothing(&self) -> bool {
        self.backend.as_ref().is_some_and(|b| b.core.tracking == Tracking::None)
    }

    fn note_locks(&mut self, sql: &[u8], analysis: &Analysis) {
        if !analysis.facts.intersects(Facts::GET_LOCK | Facts::RELEASE_LOCK) {
            return;
        }
        let now = self.now_ms();
        for call in sql::lock_names(sql, self.lex) {
            match call {
                LockCall::Get(name) => self.pins.lock_taken(name, now, analysis.digest),
                LockCall::Release(name) => self.pins.lock_released(name.as_deref()),
                LockCall::ReleaseAll => self.pins.locks_released(),
            }
        }
    }

    fn note_xa(&mut self, sql: &[u8], analysis: &Analysis, failed: bool) {
        let words: Vec<String> = String::from_utf8_lossy(sql).split_whitespace().take(2).map(str::to_ascii_uppercase).collect();
        let verb = words.get(1).map(String::as_str).unwrap_or_default();
        match verb {
            "COMMIT" | "ROLLBACK" if !failed => self.pins.end(PinReason::Xa),
            "RECOVER" => {}
            _ => self.pin(PinReason::Xa, analysis),
        }
    }

    /// SET: user variables, and what the tracker does not tell.
    fn note_set(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        let tracked = !self.tracks_nothing();
        let Some(assignments) = sql::parse_set(sql, self.lex) else {
            if !tracked || reply.variables.is_empty() || analysis.facts.contains(Facts::USER_VARIABLE) {
                self.pin(PinReason::SessionState, analysis);
            }
            return;
        };
        for a in assignments {
            match (a.target, a.value) {
                (Target::User(name), Value::Literal(literal)) => self.set_user_variable(&name, &literal),
                (Target::User(_), _) => self.pin(PinReason::UserVariable, analysis),
                (Target::Global(_) | Target::Persist(_), _) => {}
                _ if tracked => {}
                (Target::Session(name), Value::Literal(v) | Value::Word(v)) => {
                    let value = v.trim_matches(|c| c == '\'' || c == '"').to_owned();
                    self.set_variable(&name, Some(value.as_bytes()));
                }
                (Target::Session(name), Value::Default) => self.set_variable(&name, None),
                (Target::Names { charset: Some(charset), collation }, _) => self.set_names(&charset, collation.as_deref()),
                _ => self.pin(PinReason::SessionState, analysis),
            }
        }
    }

    fn set_user_variable(&mut self, name: &str, literal: &str) {
        let value = (!literal.eq_ignore_ascii_case("null")).then_some(literal.as_bytes());
        // NULL is kept too: a variable that was assigned is not one that never was.
        let value = value.or(Some(b"NULL"));
        self.state.user_variables.set(name, value);
        if let Some(backend) = self.backend.as_mut() {
            backend.core.state.user_variables.set(name, value);
        }
    }

    /// SET NAMES on a server that does not tell.
    fn set_names(&mut self, charset: &str, collation: Option<&str>) {
        let flavor = self.backend.as_ref().map(|b| b.core.info.flavor);
        for name in ["character_set_client", "character_set_connection", "character_set_results"] {
            self.set_variable(name, Some(charset.as_bytes()));
        }
        let default = flavor.and_then(|f| wire::charset::default_of(f, charset)).map(|c| c.name);
        if let Some(collation) = collation.or(default) {
            self.set_variable("collation_connection", Some(collation.as_bytes()));
        }
    }

    /// The server says that state changed, and nothing above explains it: stored code did it.
    fn note_unexplained(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        let stored_code =
            matches!(analysis.kind, Kind::Call | Kind::Compound | Kind::Do) || analysis.facts.contains(Facts::UNKNOWN_FUNCTION);
        if reply.state_change && stored_code && reply.schema.is_none() && reply.variables.is_empty() {
            self.pin(PinReason::SessionState, analysis);
        }
    }

    /// Pins that count statements.
    fn note_counted_pins(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        if analysis.facts.contains(Facts::CALC_FOUND_ROWS) && reply.error.is_none() {
            self.pin(PinReason::FoundRows, analysis);
        } else if !analysis.facts.contains(Facts::FOUND_ROWS) {
            self.pins.end(PinReason::FoundRows);
        }
        let delay = self.worker.snapshot.vars.auto_increment_delay_multiplex;
        if delay > 0 && reply.last_insert_id != 0 {
            self.facts.auto_increment_left = delay;
            self.pin(PinReason::AutoIncrementDelay, analysis);
        } else if self.facts.auto_increment_left > 0 {
            self.facts.auto_increment_left -= 1;
            if self.facts.auto_increment_left == 0 {
                self.pins.end(PinReason::AutoIncrementDelay);
            }
        }
    }
}

/// What servers track when nobody changed it.
const COMMON_DEFAULT: &[u8] = b"time_zone,autocommit,character_set_client,character_set_results,character_set_connection";

fn variable_list(value: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(value).split(',').map(|v| v.trim().to_ascii_lowercase()).filter(|v| !v.is_empty()).collect()
}

fn contains_word(value: &[u8], word: &[u8]) -> bool {
    value.split(|b| *b == b',').any(|w| w.eq_ignore_ascii_case(word))
}

fn sets_default(sql: &[u8], lex: sql::LexMode) -> bool {
    let zero = |v: &Value| matches!(v, Value::Default) || matches!(v, Value::Literal(t) if t == "0");
    sql::parse_set(sql, lex)
        .is_some_and(|all| all.iter().any(|a| matches!(&a.target, Target::Session(n) if n == "timestamp") && zero(&a.value)))
}

/// A statement that changes nothing the session must note: the hot path ends here.
fn is_plain(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    let loud = Facts::GET_LOCK
        | Facts::RELEASE_LOCK
        | Facts::USER_VARIABLE_ASSIGN
        | Facts::CALC_FOUND_ROWS
        | Facts::MULTI
        | Facts::UNKNOWN_FUNCTION;
    let quiet_kind = matches!(
        analysis.kind,
        Kind::Select
            | Kind::Insert
            | Kind::Update
            | Kind::Delete
            | Kind::Replace
            | Kind::Show
            | Kind::Explain
            | Kind::Commit
            | Kind::Begin
            | Kind::Rollback
    );
    quiet_kind && !analysis.facts.intersects(loud) && reply.variables.is_empty() && reply.schema.is_none() && !reply.state_change
}

enum HandlerVerb {
    Open,
    Read,
    Close,
}

fn handler_verb(sql: &[u8]) -> HandlerVerb {
    let text = String::from_utf8_lossy(sql).to_ascii_uppercase();
    match text.split_whitespace().find(|w| matches!(w.trim_end_matches(';'), "OPEN" | "CLOSE" | "READ")).map(|w| w.trim_end_matches(';')) {
        Some("OPEN") => HandlerVerb::Open,
        Some("CLOSE") => HandlerVerb::Close,
        _ => HandlerVerb::Read,
    }
}
