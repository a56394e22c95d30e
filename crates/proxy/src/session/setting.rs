//! SET: what it gave the session, as far as the server's tracker does not tell, and whether that can be repeated without a server.

use super::command::Incoming;
use super::connection::Connection;
use super::door::door;
use super::effects::Effects;
use session_state::charsets::{self};
use session_state::chosen::Decided;
use session_state::door::Door;
use session_state::pins::{PinReason, WISHES};
use session_state::setting::AUTOCOMMIT;
use session_state::setting::{Change, assignments, changes_another, lost_schema};
use session_state::state::{CHARSETS, CLIENT_COLLATION, NAMED_COLLATIONS, RESULTS_COLLATION, assignment_rank, canonical, displaced_by};
use session_state::tracked::{UNCARRIED, is_of_no_session};
use session_state::untracked::mentions_authorization;
use session_state::words::contains;
use sql::{Analysis, Assignment, Facts, Kind, LexMode, Target, Value};
use wire::charset::Flavor;
use wire::codes;
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;
use wire::session_state::is_variable_name;

/// Errors of a SET that was not read to its end: syntax, ER_UNKNOWN_SYSTEM_VARIABLE.
const UNREAD: [u16; 2] = [codes::PARSE, codes::UNKNOWN_SYSTEM_VARIABLE];
/// Errors that come before the first assignment is in force: rights, a scope that the variable has not, what can only be read.
const UNASSIGNED: [u16; 4] =
    [codes::SPECIFIC_ACCESS_DENIED, codes::LOCAL_VARIABLE, codes::GLOBAL_VARIABLE, codes::INCORRECT_GLOBAL_LOCAL_VAR];

/// What SET SESSION TRANSACTION assigns.
const TRANSACTION: [&str; 2] = ["transaction_isolation", "transaction_read_only"];

/// What a SET that failed may have left.
enum LeftBySet {
    Nothing,
    /// Some of these assignments may be in force.
    Of(Vec<Assignment>),
    /// The text does not tell.
    Unknown,
}

impl Effects<'_> {
    /// SET: user variables, and what the tracker does not tell.
    pub(super) fn note_set(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: Option<LexMode>) {
        let lex = read_by.unwrap_or(self.wants.lex);
        let Some(assignments) = sql::parse_set(sql, lex) else {
            if mentions_authorization(sql) {
                self.note_authorization(reply);
            }
            if names_resource_group(sql) || mentions_authorization(sql) {
                // A thread keeps it over a reset, like a role.
                self.at.pin(PinReason::Role, analysis);
            }
            let more = Facts::USER_VARIABLE | Facts::SYSTEM_VARIABLE | Facts::SESSION_TRACK;
            if reply.variables.is_empty() || analysis.facts.intersects(more) {
                self.at.pin(PinReason::SessionState, analysis);
            }
            return;
        };
        let computes = assignments.iter().any(|a| !matches!(a.value, Value::Literal(_) | Value::Word(_) | Value::Default));
        let switches = |a: &Assignment| matches!(&a.target, Target::Session(name) if name == AUTOCOMMIT);
        if computes && !self.client.status.contains(StatusFlags::AUTOCOMMIT) && contains(sql, b"select") && assignments.iter().any(switches)
        {
            // What it has read stays locked: no status tells, and MariaDB keeps it over a reset.
            if let Some(backend) = self.at.backend.as_mut() {
                backend.core.held.ran_unseen();
                backend.core.held.ran_lasting();
            }
        }
        let has_argument = self.at.is_on(Flavor::MariaDb) && analysis.facts.contains(Facts::UNKNOWN_FUNCTION.union(Facts::USER_VARIABLE));
        if computes && (has_argument || analysis.facts.contains(Facts::USER_VARIABLE_ASSIGN)) {
            // Values may assign too: `SET @a = (@b := 1) + 1`, `SET @a = f(@b)` with an OUT parameter.
            self.user_variables().computed(sql::user_variables(sql, lex), analysis);
        }
        for a in assignments {
            match (a.target, a.value) {
                // It may not have run.
                (Target::User(name), Value::Literal(_)) if analysis.facts.contains(Facts::VERSIONED) => {
                    self.user_variables().computed(Some(vec![name]), analysis);
                }
                (Target::User(name), Value::Literal(literal)) if read_by.is_some() && literal.ends_with(['\'', '"']) => {
                    self.user_variables().computed(Some(vec![name]), analysis);
                }
                (Target::User(name), Value::Literal(literal)) => self.user_variables().set(name, &literal, analysis),
                (Target::User(name), _) => self.user_variables().computed(Some(vec![name]), analysis),
                (Target::Global(_) | Target::Persist(_), _) => {}
                (Target::NextTransaction(_), _) => self.at.pin(PinReason::NextTransaction, analysis),
                // The server's word counts: what it tells, or answers to [`Self::learn_set`].
                _ => {}
            }
        }
    }

    /// SET SESSION AUTHORIZATION: as after a login of the other account, no schema is chosen and no user variable is set.
    fn note_authorization(&mut self, reply: &ReplyFacts) {
        self.user_variables().forget_all();
        if reply.schema.is_none() {
            self.wants.enter_schema(self.at, None);
        }
    }

    /// A SET that failed. Which of its variables are in force, the server is asked behind it: [`Self::learn_failed_set`].
    pub(super) fn note_failed_set(&mut self, sql: &[u8], analysis: &Analysis, code: u16) {
        let assignments = match left_by_failed_set(sql, self.wants.lex, code) {
            LeftBySet::Nothing => return,
            LeftBySet::Of(assignments) if analysis.kind == Kind::Set && !analysis.facts.contains(Facts::MULTI) => assignments,
            LeftBySet::Of(_) | LeftBySet::Unknown => {
                self.user_variables().computed_by(sql, analysis);
                return self.at.pin(PinReason::SessionState, analysis);
            }
        };
        for assignment in &assignments {
            match &assignment.target {
                Target::User(_) => self.user_variables().computed_by(sql, analysis),
                Target::NextTransaction(_) => self.at.pin(PinReason::NextTransaction, analysis),
                Target::Session(name) if !can_be_asked_for(name) => self.at.pin(PinReason::SessionState, analysis),
                _ => {}
            }
        }
    }

    /// Asks for session variables that may have changed, and notes those. False when there is no answer.
    async fn learn_changed(&mut self, names: &[String], sql: &[u8], analysis: &Analysis) -> bool {
        let is_set = |name: &String| name == AUTOCOMMIT || self.wants.state.variables.get(canonical(name, self.wants.family)).is_some();
        let (own, fresh): (Vec<String>, Vec<String>) = names.iter().cloned().partition(is_set);
        let mut changed = own;
        if !fresh.is_empty() {
            let columns: Vec<String> = fresh.iter().map(|name| format!("@@session.{name} <=> @@global.{name}")).collect();
            let Ok(answers) = self.wants.ask_for_values(&mut door!(self), &columns).await else { return false };
            changed.extend(fresh.into_iter().zip(answers).filter(|(_, alike)| alike != b"1").map(|(name, _)| name));
        }
        if changed.is_empty() {
            return true;
        }
        let Ok(mut values) = self.wants.ask_for_variables(&mut door!(self), &changed).await else { return false };
        values.sort_by_key(|(name, _)| assignment_rank(name, false));
        for (name, value) in &values {
            self.note_variable(name, value, sql, analysis);
        }
        true
    }

    /// After a change of character sets: asks for them. False when there is no answer.
    async fn learn_charsets(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let (assignments, is_versioned) = (assignments(sql, analysis, self.wants.lex), analysis.facts.contains(Facts::VERSIONED));
        let hidden =
            charsets::hidden_after(&assignments, is_versioned, reply, |charset| self.at.backend.usual_collation(self.wants, charset));
        self.wants.chosen.note(Decided::by(&assignments));
        self.wants.ask_for_charsets(&mut door!(self), &hidden).await
    }

    /// Asks what a SET that failed has changed. A variable that the session has not set, and that is as it is globally, was not.
    async fn learn_failed_set(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        let code = reply.error.unwrap_or_default();
        let LeftBySet::Of(assignments) = left_by_failed_set(sql, self.wants.lex, code) else { return };
        if self.at.pins.set().contains(PinReason::SessionState) {
            return;
        }
        let (mut names, mut charsets_changed) = (Vec::new(), false);
        for assignment in assignments {
            match assignment.target {
                Target::Names { .. } | Target::CharacterSet(_) => charsets_changed = true,
                Target::Session(name) if charsets::is_one(&name) => charsets_changed = true,
                Target::Session(name) => {
                    let along = changes_another(&name).map(str::to_owned);
                    let new: Vec<String> = [name].into_iter().chain(along).filter(|name| !names.contains(name)).collect();
                    names.extend(new);
                }
                _ => {}
            }
        }
        let is_learnt = (!charsets_changed || self.wants.has_kept_charsets(&mut door!(self)).await)
            && (names.is_empty() || self.learn_changed(&names, sql, analysis).await);
        if !is_learnt {
            self.at.pin(PinReason::SessionState, analysis);
        }
    }

    /// After a SET: learns what the tracker does not tell. Returns those variables; None when something is not known, so
    /// that the statement's effect cannot be repeated.
    pub(super) async fn learn_set(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) -> Option<Vec<Change>> {
        if reply.error.is_some() && !analysis.facts.contains(Facts::MULTI) {
            if analysis.kind == Kind::Set {
                self.learn_failed_set(sql, analysis, reply).await;
            }
            return None;
        }
        let mut untold = self.untold(sql, analysis, reply);
        if lost_schema(reply) && !self.facts.came_back_to_schema {
            // It has become the session's collation_server, which servers do not tell.
            untold.push("collation_database".to_owned());
        }
        let names_charsets = self.at.backend.tells_by_clients_wish() && self.wants.names_charsets(sql, analysis);
        let charsets_changed = charsets::changed_by(reply) || names_charsets || untold.iter().any(|name| charsets::is_one(name));
        let told = if untold.is_empty() { Ok(Vec::new()) } else { self.wants.ask_for_variables(&mut door!(self), &untold).await };
        let is_skipped = analysis.kind == Kind::Set
            && analysis.facts.contains(Facts::VERSIONED)
            && !analysis.facts.intersects(Facts::MULTI | Facts::TORN)
            && reply.variables.is_empty()
            && untold.iter().all(|name| changes_another(name).is_none());
        let untold = match told {
            Ok(untold) => untold,
            // `/*!80000 SET SESSION information_schema_stats_expiry=0 */`: the server has no such variable, so it ran nothing.
            Err(codes::UNKNOWN_SYSTEM_VARIABLE) if is_skipped => return None,
            Err(_) => {
                self.at.pin(PinReason::SessionState, analysis);
                return None;
            }
        };
        let mut in_order: Vec<&Change> = untold.iter().collect();
        in_order.sort_by_key(|(name, _)| assignment_rank(name, false));
        for (name, value) in in_order {
            self.note_variable(name, value, sql, analysis);
        }
        if charsets_changed && !self.learn_charsets(sql, analysis, reply).await {
            self.at.pin(PinReason::SessionState, analysis);
            return None;
        }
        Some(untold)
    }

    /// A server refused what the session has set: what this SET assigns anew need not be brought to it before.
    pub(super) fn make_way_for(&mut self, command: Incoming, start: usize, analysis: &Analysis) {
        if analysis.facts.intersects(Facts::SYSTEM_VARIABLE | Facts::MULTI) {
            return;
        }
        for assignment in sql::parse_set(self.client.sql_text(command, start), self.wants.lex).unwrap_or_default() {
            match assignment.target {
                Target::Session(name) => self.wants.state.variables.set(canonical(&name, self.wants.family), None),
                Target::User(name) => self.user_variables().forget(&name),
                Target::Names { .. } | Target::CharacterSet(_) => {
                    for name in NAMED_COLLATIONS {
                        self.wants.state.variables.set(name, None);
                    }
                }
                _ => {}
            }
        }
        self.facts.is_refused = false;
    }

    /// Remembers what a SET in text did, so that it can be answered without a server.
    pub(super) fn remember_set(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, untold: &[Change]) {
        let plain = !analysis.facts.intersects(Facts::MULTI | Facts::USER_VARIABLE | Facts::SESSION_TRACK | Facts::SYSTEM_VARIABLE);
        let did = reply.error.is_none() && !(reply.variables.is_empty() && untold.is_empty());
        // What a role may set, say, is no matter of those without.
        let is_free = self.at.pins.set().without(WISHES).is_empty();
        if did && plain && is_free && analysis.kind == Kind::Set && reply.warnings == 0 && self.wants.state_is_ordinary(sql) {
            let effect = sql::parse_set(sql, self.wants.lex).and_then(|all| self.wants.repeatable_effect(&all, reply, untold));
            if let Some((effect, info)) = effect.zip(self.at.pool.one_version()) {
                self.at.worker.memory.borrow_mut().learn_set(&self.at.place(&info), sql, effect, self.at.worker.clock.now_ms());
            }
        }
    }

    /// Variables that the statement changed and the server did not report: those that others change along with them. MariaDB reports
    /// nothing after `SET @@name = ...` either. While the client's own tracking settings are in force, the server reports only what
    /// the client tracks, and a server that does not track sessions reports nothing: all that the text assigns is asked for. MySQL
    /// reports the variables that it had when it was asked for them first; one that a plugin brought later is a change without a name.
    fn untold(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) -> Vec<String> {
        let clients = self.at.backend.tells_by_clients_wish();
        let is_silent = self.at.tracks_nothing();
        let may_be_silent = clients || is_silent || self.at.is_on(Flavor::MariaDb);
        let mut names: Vec<String> = Vec::new();
        for assignment in assignments(sql, analysis, self.wants.lex) {
            match assignment.target {
                Target::Session(name) => names.push(name),
                Target::Names { .. } | Target::CharacterSet(_) if is_silent => {
                    names.extend(CHARSETS.iter().filter(|name| is_variable(name)).map(|name| (*name).to_owned()));
                }
                // By the names that all such servers have.
                Target::TransactionSession { isolation, read_only } if is_silent => {
                    names.extend(isolation.map(|_| "tx_isolation".to_owned()));
                    names.extend(read_only.map(|_| "tx_read_only".to_owned()));
                }
                Target::TransactionSession { .. } if clients => {
                    names.extend(TRANSACTION.map(|name| canonical(name, self.wants.family).to_owned()));
                }
                _ => {}
            }
        }
        let told_names = reply.variables.iter().map(|(name, _)| &**name);
        let changed_along = names.iter().map(String::as_str).chain(told_names).filter_map(changes_another).map(str::to_owned);
        let changed_along: Vec<String> = changed_along.collect();
        let is_told = |name: &str| reply.variables.iter().any(|(told, _)| **told == *name);
        // A collation tells its character set; late MariaDB tells nothing else.
        let told = |name: &str| is_told(name) || displaced_by(name).is_some_and(|other| is_told(other) && other.starts_with("collation_"));
        let is_untold =
            |name: &String| !told(name) && (clients || !name.starts_with("session_track_")) && is_variable_name(name.as_bytes());
        let is_asked = |name: &String| is_untold(name) && (may_be_silent || reply.state_change && !is_of_no_session(name));
        names.into_iter().filter(is_asked).chain(changed_along).collect()
    }
}

/// What a SET with this text may have left that failed with this error. Servers check all assignments before the first is in force,
/// but some are refused only when their turn comes, and values assign (`@a := 1`) while they are checked.
fn left_by_failed_set(sql: &[u8], lex: LexMode, code: u16) -> LeftBySet {
    if UNREAD.contains(&code) {
        return LeftBySet::Nothing;
    }
    let is_global = |a: &Assignment| matches!(a.target, Target::Global(_) | Target::Persist(_));
    match sql::parse_set(sql, lex).filter(|_| !contains(sql, b":=")) {
        Some(all) if all.len() == 1 || all.iter().all(is_global) || UNASSIGNED.contains(&code) => LeftBySet::Nothing,
        Some(all) => LeftBySet::Of(all),
        None => LeftBySet::Unknown,
    }
}

/// Does the value of a session variable tell whether it was set? Some act once, some run on, and the proxy has its own tracking.
fn can_be_asked_for(name: &str) -> bool {
    !UNCARRIED.contains(&name)
        && !matches!(name, "timestamp" | "last_insert_id" | "identity")
        && !name.starts_with("session_track_")
        && is_variable_name(name.as_bytes())
}

/// Is it one, and not what is kept beside them?
fn is_variable(name: &str) -> bool {
    ![CLIENT_COLLATION, RESULTS_COLLATION].contains(&name)
}

/// MySQL's `SET RESOURCE GROUP`.
fn names_resource_group(sql: &[u8]) -> bool {
    contains(sql, b"resource")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::bed::{Bed, ok, told};

    #[tokio::test]
    async fn mysql_is_asked_for_what_it_changed_without_a_name() {
        let mut bed = Bed::new("").on(Flavor::MySql);
        let unnamed = || ReplyFacts { state_change: true, ..ok() };
        for (sql, reply, expected) in [
            ("SET rocksdb_bulk_load = 1", unnamed(), &["rocksdb_bulk_load"][..]),
            ("SET rocksdb_bulk_load = 1", told(&[("rocksdb_bulk_load", "ON")]), &[]),
            ("SET rocksdb_bulk_load = 1", ok(), &[]),
            ("SET @a = 1", unnamed(), &[]),
            ("SET GLOBAL rocksdb_bulk_load = 1", unnamed(), &[]),
        ] {
            let analysis = bed.analysis(sql);
            assert_eq!(bed.effects().untold(sql.as_bytes(), &analysis, &reply), expected, "{sql}");
        }
    }

    #[test]
    fn what_a_failed_set_may_have_left() {
        for (sql, code, expected) in [
            ("SET unique_checks=1, sql_mode='nonsense'", 1231, "of"),
            ("SET sql_mode='nonsense'", 1231, "nothing"),
            ("SET unique_checks=1, nonsense=2", 1193, "nothing"),
            ("SET unique_checks=1, max_connections=2", 1229, "nothing"),
            ("SET unique_checks=1, max_connections=(@a := 2)", 1229, "unknown"),
            ("SET GLOBAL max_connections=1, GLOBAL sql_mode='nonsense'", 1231, "nothing"),
            ("SET @a=1, sql_mode='nonsense'", 1231, "of"),
            ("SET sql_mode=(@a := 'nonsense')", 1231, "unknown"),
        ] {
            let left = match left_by_failed_set(sql.as_bytes(), LexMode::default(), code) {
                LeftBySet::Nothing => "nothing",
                LeftBySet::Of(_) => "of",
                LeftBySet::Unknown => "unknown",
            };
            assert_eq!(left, expected, "{sql}: {code}");
        }
    }

    #[test]
    fn a_variable_that_acts_once_or_runs_on_is_not_asked_for() {
        for (name, expected) in [
            ("sql_mode", true),
            ("optimizer_switch", true),
            ("timestamp", false),
            ("last_insert_id", false),
            ("identity", false),
            ("session_track_gtids", false),
            ("no name", false),
        ] {
            assert_eq!(can_be_asked_for(name), expected, "{name}");
        }
    }

    #[test]
    fn a_schema_is_lost_when_a_success_tells_of_an_empty_one() {
        let reply = |error, schema: Option<&[u8]>| ReplyFacts { error, schema: schema.map(Into::into), ..ReplyFacts::default() };
        assert!(lost_schema(&reply(None, Some(b""))));
        for other in [reply(None, Some(b"s")), reply(None, None), reply(Some(1008), Some(b""))] {
            assert!(!lost_schema(&other), "{other:?}");
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod state_tests;
