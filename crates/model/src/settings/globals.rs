//! Settings of the file that stand outside of every group.

use super::Effect::{self, NoEffect, Restart};
use super::value::{BOOL, TEXT, count};

const NO_PLUGINS: Effect = NoEffect("there are no plugins");
const NO_ANGEL: Effect = NoEffect("restarts are left to the service manager");

settings! {
    /// The settings outside of every group.
    GlobalSettings in "global";

    datadir: String = "", TEXT, Restart, "Directory of the proxy's own files. Empty: the program chooses one.";
    errorlog: String = "", TEXT, Restart, "Log file. Empty: standard error.";
    pidfile: String = "", TEXT, Restart, "File for the process id. Empty: none.";
    uuid: String = "", TEXT, Restart, "Name of this proxy among those that share a configuration. Empty: the first start creates one.";
    cluster_sync_interfaces: bool = false, BOOL, NoEffect("listeners are each proxy's own"), "Share listeners in the cluster too.";
    restart_on_missing_heartbeats: u64 = 10, count(0, 1_000_000), NO_ANGEL, "Missed heartbeats after which the process restarts.";
    execute_on_exit_failure: String = "", TEXT, NO_ANGEL, "Command that runs after a crash.";
    strict: bool = false, BOOL, Restart, "Refuse what ProxySQL ignores: unknown names, duplicate rows and columns, { } for ( ), false for 0. If false, the proxy only warns.";
    sqlite3_plugin: String = "", TEXT, NO_PLUGINS, "Kept for compatibility.";
    web_interface_plugin: String = "", TEXT, NO_PLUGINS, "Kept for compatibility.";
    ldap_auth_plugin: String = "", TEXT, NO_PLUGINS, "Kept for compatibility.";
}
