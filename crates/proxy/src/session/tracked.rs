//! What a server told of the session's state, by its session tracker: its schema and its variables; and what the client is told of that.

use super::backends::Backends;
use super::connection::Connection;
use super::effects::Effects;
use super::untracked::LOCK_TIMEOUTS;
use session_state::held::TRACK_GTIDS;
use session_state::pins::PinReason;
use session_state::server_info::TrackDefaults;
use session_state::setting::AUTOCOMMIT;
use session_state::setting::assignments;
use session_state::state::{CLIENT_COLLATION, RESULTS_COLLATION, assignment_rank, is_nullable};
use session_state::tracked::{ASOF, UNCARRIED, has_set_var, is_observed, variable_list};
use session_state::words::{contains, contains_word};
use sql::{Analysis, Facts, Kind, Target, Value};
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;

impl Effects<'_> {
    /// What the session tracker said changed.
    pub(super) fn note_changes(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if let Some(schema) = &reply.schema {
            let schema = if schema.is_empty() { None } else { Some(schema.as_ref().into()) };
            self.wants.enter_schema(self.at, schema);
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
        let mut changes: Vec<_> = reply.variables.iter().filter(|(name, _)| !is_over(name)).collect();
        // All are told as they are now, in whatever order they were set.
        changes.sort_by_key(|(name, _)| assignment_rank(name, false));
        for (name, value) in changes {
            self.note_variable(name, value, sql, analysis);
        }
    }

    pub(super) fn note_variable(&mut self, name: &str, value: &[u8], sql: &[u8], analysis: &Analysis) {
        match name {
            // MariaDB tells of the proxy's own settings once more with the next reply.
            "last_insert_id" | "identity" if !matches!(analysis.kind, Kind::Set) => {}
            "last_insert_id" | "identity" => {
                if let Some(id) = std::str::from_utf8(value).ok().and_then(|t| t.parse().ok()) {
                    self.facts.insert_id.set(id);
                    if let Some(backend) = self.at.backend.as_mut() {
                        backend.core.held.has_insert_id(id);
                    }
                }
            }
            name if name.starts_with("session_track_") && !analysis.facts.contains(Facts::SESSION_TRACK) => {
                if !self.at.backend.is_our_tracking(name, value) {
                    // Stored code did it, and what comes next may not be told.
                    self.at.pin(PinReason::SessionState, analysis);
                }
            }
            "session_track_system_variables" | "session_track_schema" | "session_track_state_change" => self.note_tracking(name, value),
            "session_track_transaction_info" | TRACK_GTIDS => {
                self.wants.set_variable(self.at, name, Some(value));
                if let Some(backend) = self.at.backend.as_mut() {
                    backend.core.held.client_chose_gtids();
                }
                if let Some(filter) = self.client.filter.as_mut().filter(|_| name == TRACK_GTIDS) {
                    filter.gtids = !value.eq_ignore_ascii_case(b"OFF");
                }
            }
            "gtid_next" if value.eq_ignore_ascii_case(b"AUTOMATIC") => {}
            "profiling" if value.eq_ignore_ascii_case(b"OFF") => {}
            // No time.
            ASOF if value.eq_ignore_ascii_case(b"DEFAULT") => {}
            name if is_observed(name) => {}
            name if UNCARRIED.contains(&name) => self.at.pin(PinReason::SessionState, analysis),
            "timestamp" if sets_default(sql, self.wants.lex) => self.wants.set_variable(self.at, name, None),
            // NULL needs a privilege, its default does not.
            name if value.is_empty() && is_nullable(name) && ends_in_default(name, sql, analysis, self.wants.lex) => {
                self.wants.set_variable(self.at, name, None)
            }
            AUTOCOMMIT => {
                let is_default = value.eq_ignore_ascii_case(b"ON") == self.at.backend.autocommit_default();
                self.wants.set_variable(self.at, name, (!is_default).then_some(value));
            }
            "sql_mode" => {
                self.wants.read_text_by(value);
                self.wants.set_variable(self.at, name, Some(value));
            }
            _ => self.wants.set_variable(self.at, name, Some(value)),
        }
    }

    /// The client changed what it wants to be told.
    fn note_tracking(&mut self, name: &str, value: &[u8]) {
        if let Some(backend) = self.at.backend.as_mut() {
            backend.core.held.client_chose_tracking();
        }
        let mut wish = self.client.tracking_wish.take().unwrap_or_else(|| Box::new(self.wants.default_filter(track_defaults(self.at))));
        let on = value.eq_ignore_ascii_case(b"ON") || value == b"1";
        match name {
            "session_track_schema" => wish.schema = on,
            "session_track_state_change" => wish.state_change = on,
            _ => wish.system_variables = variable_list(value),
        }
        if let Some(filter) = self.client.filter.as_mut() {
            wish.gtids = filter.gtids;
            filter.clone_from(&wish);
        }
        self.client.tracking_wish = Some(wish);
    }

    /// A value that a SET answered here gives the session; no backend is held.
    pub(super) fn note_learnt_variable(&mut self, name: &str, value: &[u8]) {
        match name {
            AUTOCOMMIT => {
                let on = value.eq_ignore_ascii_case(b"ON");
                self.client.status.set(StatusFlags::AUTOCOMMIT, on);
                let default = self.at.worker.shared.initial_status().contains(StatusFlags::AUTOCOMMIT);
                self.wants.set_variable(self.at, name, (on != default).then_some(value));
            }
            "sql_mode" => {
                self.wants.read_text_by(value);
                self.wants.lex.no_backslash_escapes = contains_word(value, b"NO_BACKSLASH_ESCAPES");
                self.client.status.set(StatusFlags::NO_BACKSLASH_ESCAPES, self.wants.lex.no_backslash_escapes);
                let mariadb = self.at.worker.shared.serves_mariadb();
                self.client.status.set(StatusFlags::ANSI_QUOTES, self.wants.lex.ansi_quotes && mariadb);
                self.wants.set_variable(self.at, name, Some(value));
            }
            CLIENT_COLLATION | RESULTS_COLLATION => self.wants.set_variable(self.at, name, Some(value).filter(|value| !value.is_empty())),
            _ => self.wants.set_variable(self.at, name, Some(value)),
        }
    }
}

/// The session tracking of the servers at hand, where one has said.
pub(super) fn track_defaults(at: &Backends) -> Option<TrackDefaults> {
    at.pool.servers().iter().find_map(|server| server.info.track_defaults())
}

/// Was the last that a text assigned to this variable its default?
fn ends_in_default(name: &str, sql: &[u8], analysis: &Analysis, lex: sql::LexMode) -> bool {
    let all = assignments(sql, analysis, lex);
    let last = all.iter().rev().find(|a| matches!(&a.target, Target::Session(target) if target == name));
    last.is_some_and(|a| matches!(a.value, Value::Default))
}

fn sets_default(sql: &[u8], lex: sql::LexMode) -> bool {
    let zero = |v: &Value| matches!(v, Value::Default) || matches!(v, Value::Literal(t) if t == "0");
    sql::parse_set(sql, lex)
        .is_some_and(|all| all.iter().any(|a| matches!(&a.target, Target::Session(n) if n == "timestamp") && zero(&a.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn analysis(text: &str) -> Analysis {
        sql::analyze(text.as_bytes(), sql::LexMode::default())
    }

    #[test]
    fn the_last_assignment_decides_whether_a_variable_has_its_default() {
        for (text, expected) in [
            ("SET sql_mode = DEFAULT", true),
            ("SET sql_mode = '', sql_mode = DEFAULT", true),
            ("SET sql_mode = DEFAULT, sql_mode = ''", false),
            ("SET sql_mode = ''; SET SESSION sql_mode = DEFAULT", true),
            ("SET sql_mode = DEFAULT; SET sql_mode = ''", false),
            ("SET sql_mode = 'DEFAULT'", false),
            ("SET autocommit = DEFAULT", false),
            ("SET GLOBAL sql_mode = DEFAULT", false),
        ] {
            assert_eq!(ends_in_default("sql_mode", text.as_bytes(), &analysis(text), sql::LexMode::default()), expected, "{text}");
        }
    }

    #[test]
    fn the_clock_runs_on_after_a_timestamp_of_zero_or_its_default() {
        for (text, expected) in [
            ("SET timestamp = DEFAULT", true),
            ("SET SESSION timestamp = 0", true),
            ("SET autocommit = 1, timestamp = 0", true),
            ("SET timestamp = 1", false),
            ("SET autocommit = 0", false),
            ("SET @timestamp = 0", false),
            ("SELECT 1", false),
        ] {
            assert_eq!(sets_default(text.as_bytes(), sql::LexMode::default()), expected, "{text}");
        }
    }

    #[test]
    fn a_hint_sets_variables_of_one_statement_only() {
        for (text, expected) in [
            ("SELECT /*+ SET_VAR(sort_buffer_size=1M) */ 1", true),
            ("select /*+ set_var(max_execution_time=1) */ a from t", true),
            ("SELECT set_var FROM t", false),
            ("SELECT /* nothing */ 1", false),
            ("SELECT /*+ SET_VAR(sort_buffer_size=1M) */ 1; SELECT 2", false),
        ] {
            assert_eq!(has_set_var(text.as_bytes(), &analysis(text)), expected, "{text}");
        }
    }

    #[test]
    fn a_list_of_variables_is_read_as_servers_read_it() {
        assert_eq!(variable_list(b" Time_Zone,,autocommit , "), ["time_zone", "autocommit"]);
        assert!(variable_list(b"").is_empty());
    }
}
