//! SET: what it gave the session, as far as the server's tracker does not tell, and whether that can be repeated without a server.

use super::Session;
use super::charsets;
use super::command::Incoming;
use super::effects::{contains, may_name_others};
use super::guard::guarded;
use super::leave::WISHES;
use super::settle::Unread;
use super::sync::AUTOCOMMIT;
use super::told::UNCARRIED;
use crate::backend::Tracking;
use crate::memory::{Change, SetEffect};
use crate::pins::PinReason;
use crate::reframe::ReplyFacts;
use crate::state::{RESULTS_COLLATION, assignment_rank, canonical};
use sql::{Analysis, Assignment, Facts, Kind, LexMode, Target, Value};
use wire::charset::Flavor;
use wire::codec::Reader;
use wire::flags::StatusFlags;
use wire::session_state::is_variable_name;

/// Errors of a SET that was not read to its end: syntax, ER_UNKNOWN_SYSTEM_VARIABLE.
const UNREAD: [u16; 2] = [1064, 1193];

impl Session {
    /// SET: user variables, and what the tracker does not tell.
    pub(super) fn note_set(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: Option<LexMode>) {
        let tracked = !self.tracks_nothing();
        let lex = read_by.unwrap_or(self.lex);
        let Some(assignments) = sql::parse_set(sql, lex) else {
            if names_resource_group(sql) {
                // A thread keeps it over a reset, like a role.
                self.pin(PinReason::Role, analysis);
            }
            if !tracked || reply.variables.is_empty() || analysis.facts.intersects(Facts::USER_VARIABLE | Facts::SYSTEM_VARIABLE) {
                self.pin(PinReason::SessionState, analysis);
            }
            return;
        };
        let computes = assignments.iter().any(|a| !matches!(a.value, Value::Literal(_) | Value::Word(_) | Value::Default));
        let switches = |a: &Assignment| matches!(&a.target, Target::Session(name) if name == AUTOCOMMIT);
        if computes && !self.status.contains(StatusFlags::AUTOCOMMIT) && contains(sql, b"select") && assignments.iter().any(switches) {
            // What it has read stays locked: no status tells, and MariaDB keeps it over a reset.
            if let Some(backend) = self.backend.as_mut() {
                (backend.core.must_reset, backend.core.outlives_reset) = (true, true);
            }
        }
        if computes && analysis.facts.contains(Facts::USER_VARIABLE_ASSIGN) {
            // Values may assign too: `SET @a = (@b := 1) + 1`.
            self.pin_variables(sql::user_variables(sql, lex), analysis);
        }
        for a in assignments {
            match (a.target, a.value) {
                // It may not have run.
                (Target::User(name), Value::Literal(_)) if analysis.facts.contains(Facts::VERSIONED) => {
                    self.pin_variables(Some(vec![name]), analysis);
                }
                (Target::User(name), Value::Literal(literal)) if read_by.is_some() && literal.ends_with(['\'', '"']) => {
                    self.pin_variables(Some(vec![name]), analysis);
                }
                (Target::User(name), Value::Literal(literal)) => self.set_user_variable(name, &literal, analysis),
                (Target::User(name), _) => self.pin_variables(Some(vec![name]), analysis),
                (Target::Global(_) | Target::Persist(_), _) => {}
                (Target::NextTransaction(_), _) => self.pin(PinReason::NextTransaction, analysis),
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

    fn set_user_variable(&mut self, name: String, literal: &str, analysis: &Analysis) {
        if may_name_others(&name) {
            return self.pin_variables(Some(vec![name]), analysis);
        }
        // NULL is kept too: a variable that was assigned is not one that never was.
        let kept = match literal.eq_ignore_ascii_case("NULL") {
            true => self.null_for(&name),
            false => charsets::portable(literal, self.lex, &self.state),
        };
        match kept {
            Some(kept) if self.carry_user_variable(&name, &kept) => {}
            Some(_) => self.pin_variables(None, analysis),
            None => self.pin_variables(Some(vec![name]), analysis),
        }
    }

    /// A SET that failed: servers check all assignments before the first is in force, but some are refused only when their turn comes,
    /// and values assign (`@a := 1`) and call while they are checked. What was in force then stays.
    pub(super) fn note_failed_set(&mut self, sql: &[u8], analysis: &Analysis, code: u16) {
        if UNREAD.contains(&code) {
            return;
        }
        let assignments = sql::parse_set(sql, self.lex);
        let is_global = |a: &Assignment| matches!(a.target, Target::Global(_) | Target::Persist(_));
        let assigns_within = contains(sql, b":=");
        let leaves_nothing = assignments.is_some_and(|all| !assigns_within && (all.len() == 1 || all.iter().all(is_global)));
        if !leaves_nothing {
            self.pin_variables(sql::user_variables(sql, self.lex), analysis);
            self.pin(PinReason::SessionState, analysis);
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
            self.set_variable(RESULTS_COLLATION, Some(collation.as_bytes()));
        }
    }

    /// A server refused what the session has set: what this SET assigns anew need not be brought to it before.
    pub(super) fn make_way_for(&mut self, command: Incoming, start: usize, analysis: &Analysis) {
        if analysis.facts.intersects(Facts::SYSTEM_VARIABLE | Facts::MULTI) {
            return;
        }
        for assignment in sql::parse_set(self.sql_text(command, start), self.lex).unwrap_or_default() {
            match assignment.target {
                Target::Session(name) => self.state.variables.set(canonical(&name, self.family), None),
                Target::User(name) => self.state.user_variables.set(&name, None),
                Target::Names { .. } | Target::CharacterSet(_) => {
                    self.state.variables.set("collation_connection", None);
                    self.state.variables.set(RESULTS_COLLATION, None);
                }
                _ => {}
            }
        }
        self.facts.is_refused = false;
    }

    /// Is there something to learn from the statement that the tracker does not tell?
    pub(super) fn teaches(analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let sets = analysis.kind == Kind::Set || analysis.facts.contains(Facts::MULTI);
        sets || lost_schema(reply) || !reply.variables.is_empty() && charsets::changed_by(reply)
    }

    /// After a SET: learns what the tracker does not tell. Answers those variables; None when something is not known, so
    /// that the statement's effect cannot be repeated.
    pub(super) async fn learn_set(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) -> Option<Vec<Change>> {
        let mut untold = self.untold(sql, analysis, reply);
        let mut forgets = !untold.is_empty() && self.is_on(Flavor::MySql);
        if lost_schema(reply) && !self.facts.returned {
            // It has become the session's collation_server, which servers do not tell.
            untold.push("collation_database".to_owned());
            forgets = true;
        }
        let charsets_changed = charsets::changed_by(reply) || untold.iter().any(|name| charsets::is_one(name));
        let asks = charsets_changed || !untold.is_empty();
        if forgets && reply.warnings > 0 && !self.keep_warnings().await || asks && !self.keep_counts(reply).await {
            self.pin(PinReason::SessionState, analysis);
            return None;
        }
        let untold = if untold.is_empty() { Some(Vec::new()) } else { self.ask_for_variables(&untold).await };
        let Some(untold) = untold else {
            self.pin(PinReason::SessionState, analysis);
            return None;
        };
        let mut in_order: Vec<&Change> = untold.iter().collect();
        in_order.sort_by_key(|(name, _)| assignment_rank(name, false));
        for (name, value) in in_order {
            self.note_variable(name, value, sql, analysis);
        }
        if charsets_changed && !self.learn_charsets(reply).await {
            self.pin(PinReason::SessionState, analysis);
            return None;
        }
        Some(untold)
    }

    /// Remembers what a SET in text did, so that it can be answered without a server.
    pub(super) fn remember_set(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, untold: &[Change]) {
        let plain = !analysis.facts.intersects(Facts::MULTI | Facts::USER_VARIABLE | Facts::SESSION_TRACK | Facts::SYSTEM_VARIABLE);
        let did = reply.error.is_none() && !(reply.variables.is_empty() && untold.is_empty());
        // What a role may set, say, is no matter of those without.
        let is_free = self.pins.set().without(WISHES).is_empty();
        if did && plain && is_free && analysis.kind == Kind::Set && reply.warnings == 0 && self.state_is_ordinary(sql) {
            let effect = sql::parse_set(sql, self.lex).and_then(|all| self.repeatable_effect(&all, reply, untold));
            if let Some((effect, info)) = effect.zip(self.pool.one_version()) {
                self.worker.memory.borrow_mut().learn_set(&self.place(&info), sql, effect);
            }
        }
    }

    /// Variables that the statement set and the server did not tell of: MariaDB says nothing after `SET @@name = ...`, and while
    /// the client's own tracking settings are there, only what the client tracks is told.
    fn untold(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) -> Vec<String> {
        let clients = self.backend.as_ref().is_some_and(|b| b.core.tracking == Tracking::Clients);
        let may_be_silent = clients || self.is_on(Flavor::MariaDb) && !self.tracks_nothing();
        if !may_be_silent || reply.error.is_some() && !analysis.facts.contains(Facts::MULTI) {
            return Vec::new();
        }
        let names = assignments(sql, analysis, self.lex).into_iter().filter_map(|assignment| match assignment.target {
            Target::Session(name) => Some(name),
            _ => None,
        });
        let told = |name: &str| reply.variables.iter().any(|(told, _)| **told == *name);
        names.filter(|name| !told(name) && (clients || !name.starts_with("session_track_")) && is_variable_name(name.as_bytes())).collect()
    }

    /// Asks the held backend for session variables.
    pub(super) async fn ask_for_variables(&mut self, names: &[String]) -> Option<Vec<Change>> {
        let is_wide = self.has_wide_results();
        let column = |name: &String| if is_wide { format!("CAST(@@session.{name} AS BINARY)") } else { format!("@@session.{name}") };
        let columns: Vec<String> = names.iter().map(column).collect();
        let question = format!("SELECT {}", columns.join(","));
        let backend = self.backend.as_mut()?;
        let reply = guarded(&self.worker, &self.entry, backend.query(&question, &self.worker.buffers)).await.ok()?;
        let mut values = Reader::new(reply.rows.first()?);
        let value = |name: &String| {
            // NULL (0xfb) is no string.
            let value = values.lenenc_bytes().map(<[u8]>::to_vec).unwrap_or_default();
            let value = match (name.as_str(), value.as_slice()) {
                ("autocommit", b"1") => b"ON".to_vec(),
                ("autocommit", b"0") => b"OFF".to_vec(),
                _ => value,
            };
            (name.as_str().into(), value.into())
        };
        Some(names.iter().map(value).collect())
    }

    /// After a change of character sets: asks for them. False when there is no answer.
    pub(super) async fn learn_charsets(&mut self, reply: &ReplyFacts) -> bool {
        (reply.warnings == 0 || self.keep_warnings().await) && self.ask_for_charsets().await
    }

    /// Reads the statement's warnings before something else is asked, which makes the server forget them. False when they
    /// cannot be had.
    async fn keep_warnings(&mut self) -> bool {
        if !self.facts.warnings_read {
            self.facts.warnings_read = self.read_warnings().await.is_ok();
        }
        self.facts.warnings_read
    }

    /// The same of FOUND_ROWS() and ROW_COUNT(), where only the backend knows them.
    async fn keep_counts(&mut self, reply: &ReplyFacts) -> bool {
        self.facts.row_count_with_backend = false;
        let unread = Unread { found_rows: self.facts.found_rows_with_backend, ..Unread::default() };
        !unread.any() || (reply.warnings == 0 || self.keep_warnings().await) && self.read_unread(unread).await.is_ok()
    }

    /// What the statement would do in any session, if that depends on nothing else.
    fn repeatable_effect(&self, all: &[Assignment], reply: &ReplyFacts, untold: &[Change]) -> Option<SetEffect> {
        let constant = |v: &Value| matches!(v, Value::Literal(_) | Value::Word(_));
        let known = |t: &Target| match t {
            Target::Session(name) => {
                !UNCARRIED.contains(&name.as_str()) && !matches!(name.as_str(), "timestamp" | "last_insert_id" | "identity")
            }
            Target::Names { .. } | Target::TransactionSession { .. } => true,
            Target::NextTransaction(_) | Target::CharacterSet(_) | Target::Global(_) | Target::Persist(_) | Target::User(_) => false,
        };
        if !all.iter().all(|a| known(&a.target) && constant(&a.value)) {
            return None;
        }
        let told: Vec<Change> = reply.variables.iter().map(|(n, v)| ((**n).into(), (**v).into())).collect();
        // Whatever else the server tells of (the end of an earlier SET STATEMENT) is not this statement's doing.
        let own = |name: &str| {
            charsets::is_one(name)
                || name.starts_with("tx_")
                || name.starts_with("transaction_")
                || all.iter().any(|a| matches!(&a.target, Target::Session(n) if n == name))
        };
        if !told.iter().all(|(name, _)| own(name)) {
            return None;
        }
        if all.iter().any(|a| is_relative(a, told.iter().chain(untold))) {
            return None;
        }
        let mut changes: Vec<Change> = told.iter().chain(untold).filter(|(name, _)| !charsets::is_one(name)).cloned().collect();
        for assignment in all {
            changes.extend(self.charset_changes(charsets::decided_by(&assignment.target)?));
        }
        changes.sort_by_key(|(name, _)| assignment_rank(name, false));
        Some(SetEffect { told, changes })
    }
}

/// Variables with switches: a SET changes those that it names.
const OF_SWITCHES: &[&str] = &["optimizer_switch", "optimizer_trace", "optimizer_trace_features"];

/// Does the value that it gave depend on the one of before? Not where it is what the text says.
fn is_relative<'a>(assignment: &Assignment, mut told: impl Iterator<Item = &'a Change>) -> bool {
    let Target::Session(name) = &assignment.target else { return false };
    let (Value::Literal(text) | Value::Word(text)) = &assignment.value else { return true };
    let is_said = |value: &[u8]| value.eq_ignore_ascii_case(text.trim_matches(['\'', '"']).as_bytes());
    OF_SWITCHES.contains(&name.as_str()) && !told.any(|(told, value)| **told == **name && is_said(value))
}

/// MySQL's `SET RESOURCE GROUP`.
fn names_resource_group(sql: &[u8]) -> bool {
    contains(sql, b"resource")
}

/// What all the SETs of a text assign that are understood.
pub(super) fn assignments(sql: &[u8], analysis: &Analysis, lex: LexMode) -> Vec<Assignment> {
    let statements = match analysis.facts.contains(Facts::MULTI) {
        true => sql::split(sql, lex).collect(),
        false => vec![sql],
    };
    statements.into_iter().filter_map(|one| sql::parse_set(one, lex)).flatten().collect()
}

/// Has the session no schema any more? It was dropped.
fn lost_schema(reply: &ReplyFacts) -> bool {
    reply.error.is_none() && reply.schema.as_ref().is_some_and(|schema| schema.is_empty())
}
