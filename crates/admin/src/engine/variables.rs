//! The values of `@@name` beside the proxy's own variables, and of VERSION().

use std::fs;

use super::Engine;
use crate::process::Process;
use crate::reply::SessionInfo;

/// System variables that clients ask for; names in lower case. Values are those of a server with default settings.
const VARIABLES: &[(&str, &str)] = &[
    ("auto_increment_increment", "1"),
    ("auto_increment_offset", "1"),
    ("autocommit", "1"),
    ("character_set_client", "utf8mb4"),
    ("character_set_connection", "utf8mb4"),
    ("character_set_database", "utf8mb4"),
    ("character_set_results", "utf8mb4"),
    ("character_set_server", "utf8mb4"),
    ("character_set_system", "utf8mb3"),
    ("collation_connection", "utf8mb4_general_ci"),
    ("collation_database", "utf8mb4_general_ci"),
    ("collation_server", "utf8mb4_general_ci"),
    ("connect_timeout", "10"),
    ("default_storage_engine", "SQLite"),
    ("error_count", "0"),
    ("event_scheduler", "OFF"),
    ("foreign_key_checks", "1"),
    ("explicit_defaults_for_timestamp", "1"),
    ("group_concat_max_len", "1024"),
    ("have_openssl", "YES"),
    ("have_query_cache", "NO"),
    ("have_ssl", "YES"),
    ("identity", "0"),
    ("init_connect", ""),
    ("innodb_lock_wait_timeout", "50"),
    ("innodb_read_only", "0"),
    ("interactive_timeout", "28800"),
    ("last_insert_id", "0"),
    ("lc_messages", "en_US"),
    ("lc_time_names", "en_US"),
    ("license", "Apache-2.0"),
    ("log_bin", "0"),
    ("lower_case_file_system", "OFF"),
    ("lower_case_table_names", "0"),
    ("max_allowed_packet", "67108864"),
    ("max_execution_time", "0"),
    ("net_buffer_length", "16384"),
    ("net_read_timeout", "30"),
    ("net_write_timeout", "60"),
    ("performance_schema", "0"),
    ("profiling", "0"),
    ("protocol_version", "10"),
    ("query_cache_size", "0"),
    ("query_cache_type", "OFF"),
    ("rand_seed1", "0"),
    ("rand_seed2", "0"),
    ("server_id", "0"),
    ("session_track_gtids", "OFF"),
    ("sql_auto_is_null", "0"),
    ("sql_big_selects", "1"),
    ("sql_mode", ""),
    ("sql_notes", "1"),
    ("sql_quote_show_create", "1"),
    ("sql_safe_updates", "0"),
    ("sql_select_limit", "18446744073709551615"),
    ("storage_engine", "SQLite"),
    ("system_time_zone", "UTC"),
    ("time_zone", "SYSTEM"),
    ("transaction_isolation", "SERIALIZABLE"),
    ("transaction_read_only", "0"),
    ("tx_isolation", "SERIALIZABLE"),
    ("tx_read_only", "0"),
    ("unique_checks", "1"),
    ("version_comment", "(ProxySQL Admin Module)"),
    ("version_compile_machine", "x86_64"),
    ("version_compile_os", "Linux"),
    ("wait_timeout", "28800"),
];

/// The MySQL whose ways SQLAlchemy, Django and their like may expect, as far as SQLite has them.
const LIKE_MYSQL: &str = "8.4.0";

/// The value of VERSION() and `@@version`: in the form that drivers parse, with the program's version. `@@admin-version` is that version
/// alone.
pub(crate) fn version(process: &dyn Process) -> String {
    format!("{LIKE_MYSQL}-Tidegate-{}", process.version())
}

/// The values of `@@name` and SHOW VARIABLES LIKE beside the proxy's own variables.
pub(crate) fn variables(engine: &Engine, session: &SessionInfo) -> Vec<(String, String)> {
    let read_only = if engine.is_read_only() { "1" } else { "0" };
    let more = [
        ("version", version(&*engine.process)),
        ("read_only", read_only.to_owned()),
        ("super_read_only", read_only.to_owned()),
        ("hostname", fs::read_to_string(HOSTNAME).unwrap_or_default().trim().to_owned()),
        ("port", port(&engine.runtime().admin.mysql_ifaces)),
        ("warning_count", session.warnings.len().to_string()),
    ];
    let fixed = VARIABLES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    fixed.chain(more.into_iter().map(|(name, value)| (name.to_owned(), value))).collect()
}

/// The machine's name on Linux.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// The port of the first address of `admin-mysql_ifaces`; 0 for a socket.
fn port(ifaces: &str) -> String {
    let first = ifaces.split(';').next().unwrap_or_default();
    let port = first.rsplit_once(':').and_then(|(_, port)| port.trim().parse::<u16>().ok());
    port.unwrap_or_default().to_string()
}

/// Whether a session may set this variable, which changes nothing.
pub(crate) fn is_settable(name: &str) -> bool {
    const MORE: &[&str] = &["sql_log_bin", "old_alter_table", "net_retry_count", "tmp_table_size", "sql_warnings", "lock_wait_timeout"];
    VARIABLES.iter().map(|(name, _)| *name).chain(MORE.iter().copied()).any(|known| known.eq_ignore_ascii_case(name))
}
