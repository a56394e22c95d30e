//! Names that older versions of ProxySQL knew. They are accepted so that old files load, and do nothing.

use super::bare_name;

use std::fmt;

/// A name that is accepted and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retired {
    /// `mysql` or `admin`.
    pub module: &'static str,
    /// The name without its module prefix.
    pub name: &'static str,
    /// Why nothing is lost.
    pub reason: &'static str,
}

/// The hint for an operator that still uses it.
impl fmt::Display for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "retired, ignored: {}", self.reason)
    }
}

const TRACKED: &str = "session variables are tracked per session and need no global default";
const DEBUG: &str = "exists in debug builds of ProxySQL only";

/// The retired setting that SQL called `name`, in any letter case: its prefix is needed.
pub fn retired_by_full_name(name: &str) -> Option<&'static Retired> {
    let (module, bare) = name.split_once('-')?;
    retired(&module.to_ascii_lowercase(), bare)
}

/// All of them.
pub(super) const RETIRED: &[Retired] = &[
    mysql("forward_autocommit", "deprecated in ProxySQL; autocommit is tracked per session"),
    mysql("session_debug", DEBUG),
    mysql("client_found_rows", "CLIENT_FOUND_ROWS is taken from each client"),
    mysql("default_sql_mode", TRACKED),
    mysql("default_time_zone", TRACKED),
    mysql("default_isolation_level", TRACKED),
    mysql("default_tx_isolation", TRACKED),
    mysql("default_transaction_read", TRACKED),
    mysql("default_character_set_results", TRACKED),
    mysql("default_sql_auto_is_null", TRACKED),
    mysql("default_sql_select_limit", TRACKED),
    mysql("default_sql_safe_updates", TRACKED),
    mysql("default_max_join_size", TRACKED),
    mysql("default_net_write_timeout", TRACKED),
    admin("hash_passwords", "passwords are stored unchanged"),
    admin("debug", DEBUG),
    admin("debug_output", DEBUG),
];

/// The retired setting called `name` in `module`: any letter case, with or without the prefix.
pub fn retired(module: &str, name: &str) -> Option<&'static Retired> {
    let bare = bare_name(module, name);
    RETIRED.iter().find(|retired| retired.module == module && retired.name.eq_ignore_ascii_case(bare))
}

const fn mysql(name: &'static str, reason: &'static str) -> Retired {
    Retired { module: "mysql", name, reason }
}

const fn admin(name: &'static str, reason: &'static str) -> Retired {
    Retired { module: "admin", name, reason }
}
