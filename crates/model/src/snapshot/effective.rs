//! Settings that exist globally, for a hostgroup and for a user. The nearest wins: the user's own, then the hostgroup's, then the `mysql-*`
//! variable.
//!
//! A hostgroup's settings stand in `mysql_hostgroup_attributes.hostgroup_settings`, a user's in `mysql_users.attributes`. Both are JSON
//! with the variables' names without prefix: `{"auto_increment_delay_multiplex": 5}`.

use crate::error::ErrorKind;
use crate::settings::{CausalReads, Failback, MysqlVariables, SecondWriters, Setting};
use crate::suggest;
use serde_json::Value;

/// The kind of row that has the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `mysql_hostgroup_attributes.hostgroup_settings`.
    Hostgroup,
    /// `mysql_users.attributes`.
    User,
}

impl Place {
    /// Whether this setting can stand there.
    fn may_set(self, name: &str) -> bool {
        self == Self::Hostgroup || !HOSTGROUPS_ONLY.contains(&name)
    }
}

/// The origin of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The `mysql-*` variable.
    Global,
    /// The hostgroup's row of `mysql_hostgroup_attributes`.
    Hostgroup,
    /// The user's row of `mysql_users`.
    User,
}

impl Source {
    /// As `SHOW EFFECTIVE SETTINGS` says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Hostgroup => "hostgroup",
            Self::User => "user",
        }
    }
}

/// Settings of the pool: they can be a hostgroup's, but not a user's.
const HOSTGROUPS_ONLY: &[&str] = &[
    "adaptive_connections",
    "connect_concurrency",
    "connect_timeout_server",
    "connection_growth_delay_us",
    "connection_max_age_ms",
    "demotion_grace_ms",
    "drain_grace_ms",
    "failback",
    "failback_delay_ms",
    "free_connections_ms",
    "max_transactions_behind",
    "monitor_slave_lag_when_null",
    "pipeline_depth",
    "reader_floor",
    "reads_to_writer_after_ms",
    "second_writers",
    "server_ramp_ms",
    "shun_stray_replicas",
    "suspicion_ms",
    "switchover_manages_read_only",
    "switchover_repoints",
    "wait_for_buffer_pool_load",
];

macro_rules! effective {
    ( $( $name:ident: $ty:ty, )* ) => {
        /// The settings for a user's sessions in a hostgroup. Units and ranges are those of the variables.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Effective {
            $( #[doc = concat!("`mysql-", stringify!($name), "`.")] pub $name: $ty, )*
        }

        impl Effective {
            /// The names that a place may set.
            pub const NAMES: &'static [&'static str] = &[$( stringify!($name), )*];

            /// Without settings of a hostgroup or a user.
            pub fn from_variables(vars: &MysqlVariables) -> Self {
                Self { $( $name: vars.$name, )* }
            }
        }
    };
}

effective! {
    adaptive_connections: bool,
    auto_increment_delay_multiplex: u64,
    auto_increment_delay_multiplex_timeout_ms: u64,
    autocommit_false_is_transaction: bool,
    causal_reads: CausalReads,
    causal_reads_timeout_ms: u64,
    connect_concurrency: u64,
    connect_timeout_server: u64,
    connect_timeout_server_max: u64,
    connection_delay_multiplex_ms: u64,
    connection_growth_delay_us: u64,
    connection_max_age_ms: u64,
    default_query_delay: u64,
    default_query_timeout: u64,
    demotion_grace_ms: u64,
    drain_grace_ms: u64,
    eventslog_default_log: u64,
    failback: Failback,
    failback_delay_ms: u64,
    free_connections_ms: u64,
    handle_warnings: u64,
    long_query_time: u64,
    max_backend_connections_per_user: u64,
    max_queries_per_second: u64,
    max_queries_wait_ms: u64,
    max_transaction_idle_time: u64,
    max_transaction_time: u64,
    max_transactions_behind: u64,
    monitor_slave_lag_when_null: u64,
    multiplexing: bool,
    pipeline_depth: u64,
    query_retries_on_failure: u64,
    reader_floor: u64,
    reads_to_writer_after_ms: u64,
    second_writers: SecondWriters,
    server_ramp_ms: u64,
    settle_lost_writes: bool,
    shun_stray_replicas: bool,
    suspicion_ms: u64,
    switchover_manages_read_only: bool,
    switchover_repoints: bool,
    transaction_replay: bool,
    transaction_replay_conflicts: bool,
    transaction_replay_head_start_ms: u64,
    transaction_replay_max_bytes: u64,
    transaction_replay_timeout_ms: u64,
    wait_for_buffer_pool_load: bool,
    wait_timeout: u64,
}

/// The settings of one place, checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides(Vec<(&'static str, String)>);

impl Overrides {
    /// Takes the settings out of a JSON object; `others` are keys that are read elsewhere. Errors name the key: it is unknown, its value is
    /// out of range, or the setting is not allowed here.
    pub fn read(object: &serde_json::Map<String, Value>, place: Place, others: &[&str]) -> Result<Self, ErrorKind> {
        let mut all = Vec::new();
        for (key, value) in object {
            let fault = |reason: String| ErrorKind::BadJson(format!("'{key}': {reason}"));
            let Some(name) = Effective::NAMES.iter().find(|name| *name == key) else {
                if others.contains(&key.as_str()) {
                    continue;
                }
                let known = Effective::NAMES.iter().filter(|name| place.may_set(name)).chain(others).copied();
                return Err(fault(format!("unknown key{}", suggest::hint(&suggest::nearest(key, known)))));
            };
            if !place.may_set(name) {
                return Err(fault("can be set globally and for a hostgroup, not for a user".to_owned()));
            }
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                _ => return Err(fault("must be a number, true, false or a string".to_owned())),
            };
            // ProxySQL's word for "as the variable says".
            if matches!(*name, "monitor_slave_lag_when_null" | "handle_warnings") && text == "-1" {
                continue;
            }
            MysqlVariables::default().set(name, &text).map_err(|e| fault(e.to_string()))?;
            all.push((*name, text));
        }
        Ok(Self(all))
    }

    /// The value given for `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, text)| text.as_str())
    }

    fn apply(&self, vars: &mut MysqlVariables) {
        for (name, text) in &self.0 {
            // Checked when it was read.
            let _ = vars.set(name, text);
        }
    }
}

/// The settings for a user in a hostgroup; either may have none of its own.
pub fn resolve(vars: &MysqlVariables, hostgroup: Option<&Overrides>, user: Option<&Overrides>) -> Effective {
    let nothing = |overrides: Option<&Overrides>| overrides.is_none_or(|o| o.0.is_empty());
    if nothing(hostgroup) && nothing(user) {
        return Effective::from_variables(vars);
    }
    let mut vars = vars.clone();
    for place in [hostgroup, user].into_iter().flatten() {
        place.apply(&mut vars);
    }
    Effective::from_variables(&vars)
}

/// Every setting with its value and the value's origin.
pub fn explain(vars: &MysqlVariables, hostgroup: Option<&Overrides>, user: Option<&Overrides>) -> Vec<(&'static Setting, String, Source)> {
    let one = |name: &&'static str| {
        let setting = MysqlVariables::find(name)?;
        let (text, source) = match (user.and_then(|u| u.get(name)), hostgroup.and_then(|h| h.get(name))) {
            (Some(text), _) => (text.to_owned(), Source::User),
            (None, Some(text)) => (text.to_owned(), Source::Hostgroup),
            (None, None) => (vars.get(name)?, Source::Global),
        };
        Some((setting, text, source))
    };
    Effective::NAMES.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str, place: Place) -> Result<Overrides, String> {
        let value: Value = serde_json::from_str(json).unwrap();
        Overrides::read(value.as_object().unwrap(), place, &["other"]).map_err(|e| e.to_string())
    }

    #[test]
    fn the_nearest_wins() {
        let vars = MysqlVariables::default();
        let hostgroup = read(r#"{"auto_increment_delay_multiplex": 5, "wait_timeout": "1000", "other": 1}"#, Place::Hostgroup).unwrap();
        let user = read(r#"{"auto_increment_delay_multiplex": 7, "multiplexing": false}"#, Place::User).unwrap();
        let both = resolve(&vars, Some(&hostgroup), Some(&user));
        assert_eq!((both.auto_increment_delay_multiplex, both.wait_timeout, both.multiplexing), (7, 1000, false));
        let one = resolve(&vars, Some(&hostgroup), None);
        assert_eq!((one.auto_increment_delay_multiplex, one.multiplexing), (5, true));
        assert_eq!(resolve(&vars, None, None), Effective::from_variables(&vars));
        let explained = explain(&vars, Some(&hostgroup), Some(&user));
        let source = |name: &str| explained.iter().find(|(s, ..)| s.name == name).map(|(_, text, source)| (text.as_str(), *source));
        assert_eq!(source("auto_increment_delay_multiplex"), Some(("7", Source::User)));
        assert_eq!(source("wait_timeout"), Some(("1000", Source::Hostgroup)));
        assert_eq!(source("query_retries_on_failure"), Some(("1", Source::Global)));
    }

    #[test]
    fn what_cannot_stand_there_is_refused() {
        let out_of_range = read(r#"{"wait_timeout": -1}"#, Place::User).unwrap_err();
        assert!(out_of_range.contains("'wait_timeout'") && out_of_range.contains("range"), "{out_of_range}");
        assert!(read(r#"{"connect_concurrency": 3}"#, Place::User).unwrap_err().contains("not for a user"));
        assert!(read(r#"{"connect_concurrency": 3}"#, Place::Hostgroup).is_ok());
        assert!(read(r#"{"multiplexing": [1]}"#, Place::User).is_err());
        let unknown = read(r#"{"wait_timeuot": 1}"#, Place::User).unwrap_err();
        assert!(unknown.contains("'wait_timeuot': unknown key; did you mean 'wait_timeout'?"), "{unknown}");
        assert!(read(r#"{"another": 1}"#, Place::Hostgroup).unwrap_err().contains("unknown key"));
    }
}
