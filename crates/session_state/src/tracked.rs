//! What a server's session tracker reports: schema and variables. Which variables sessions carry, and which reports a client gets.

use crate::door::Door;
use crate::held::TRACK_GTIDS;
use crate::server_info::TrackDefaults;
use crate::state::{Text, canonical, displaced_by};
use crate::wants::Wants;
use crate::words::{contains, contains_word};
use sql::{Analysis, Facts, LexMode};
use wire::reframe::TrackFilter;

/// Variables that servers report and that no session can set: what happened, not what the session wants.
const OBSERVED: &[&str] = &["last_gtid", "in_transaction", "warning_count", "error_count", "proxy_user", "external_user"];

/// Session variables that act once, or on the connection itself: they are not carried but pin.
pub const UNCARRIED: &[&str] = &[
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
    // Its text is read in the time zone of then.
    ASOF,
];

/// MariaDB's variable that shows tables as they were.
pub const ASOF: &str = "system_versioning_asof";

/// What servers track when nobody changed it.
const COMMON_DEFAULT: &[u8] = b"time_zone,autocommit,character_set_client,character_set_results,character_set_connection";

impl Wants {
    /// The session and its backend have this schema now, and with it the schema's character set.
    pub fn enter_schema<D: Door>(&mut self, at: &mut D, schema: Option<Text>) {
        self.state.enter_schema(schema.clone());
        if let Some(held) = at.held_mut() {
            held.entered(schema);
        }
    }

    /// The session and its backend both have this value now.
    pub fn set_variable<D: Door>(&mut self, at: &mut D, name: &str, value: Option<&[u8]>) {
        let name = canonical(name, self.family);
        if let Some(other) = displaced_by(name).filter(|other| self.state.variables.get(other).is_some()) {
            self.set_one_variable(at, other, None);
        }
        self.set_one_variable(at, name, value);
    }

    fn set_one_variable<D: Door>(&mut self, at: &mut D, name: &str, value: Option<&[u8]>) {
        if name == "wait_timeout" {
            let seconds = value.and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
            at.set_idle_limit(seconds.unwrap_or(0).saturating_mul(1000));
        }
        self.state.variables.set(name, value);
        if name == "character_set_client" {
            self.read_client_charset();
        }
        if let Some(held) = at.held_mut() {
            held.variable_changed(name, value, &self.state.variables);
        }
    }

    /// What a client is told that never asked for anything else: the server's own defaults, if they are known.
    pub fn default_filter(&self, known: Option<TrackDefaults>) -> TrackFilter {
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

    /// What a `sql_mode` says of how text is read. Whether backslashes escape, the server's status tells too.
    pub fn read_text_by(&mut self, sql_mode: &[u8]) {
        let no_backslash_escapes = self.lex.no_backslash_escapes;
        self.lex = LexMode { no_backslash_escapes, ..self.lex.under(|word| contains_word(sql_mode, word.as_bytes())) };
    }
}

/// Is it no variable that a session sets? (A client that has all told is told of `statement_id` with each statement.)
pub fn is_observed(name: &str) -> bool {
    OBSERVED.contains(&name) || is_of_no_session(name)
}

/// Whether a text, which is one statement, has a hint that sets variables for it alone: `/*+ SET_VAR(x=1) */`.
pub fn has_set_var(sql: &[u8], analysis: &Analysis) -> bool {
    analysis.facts.contains(Facts::COMMENT) && !analysis.facts.contains(Facts::MULTI) && contains(sql, b"set_var")
}

/// A list of variables as servers read it.
pub fn variable_list(value: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(value).split(',').map(|v| v.trim().to_ascii_lowercase()).filter(|v| !v.is_empty()).collect()
}

/// Variables that no session changes, or (`statement_id`) that change with each statement: told of them, MySQL would add
/// to every single reply.
pub fn is_of_no_session(name: &str) -> bool {
    const PREFIXES: [&str; 12] = [
        "performance_schema_",
        "replica_",
        "slave_",
        "rpl_",
        "ssl_",
        "tls_",
        "admin_",
        "caching_sha2_",
        "sha256_",
        "temptable_",
        "report_",
        "relay_",
    ];
    name == "statement_id" || PREFIXES.iter().any(|p| name.starts_with(p))
}
