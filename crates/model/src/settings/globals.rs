//! Settings of the file that stand outside of every group.

use super::Effect::{self, NoEffect, Restart};
use super::value::{BOOL, TEXT, count};

const NO_PLUGINS: Effect = NoEffect("there are no plugins");
const NO_ANGEL: Effect = NoEffect("restarts are left to the service manager");

settings! {
    /// The settings outside of every group.
    GlobalSettings in "global";

    datadir: String = "", TEXT, Restart, "Directory of the proxy's own files; empty lets the program choose.";
    errorlog: String = "", TEXT, Restart, "Log file; empty means standard error.";
    pidfile: String = "", TEXT, Restart, "File that the process id is written to; empty writes none.";
    uuid: String = "", TEXT, Restart, "This proxy's name among those that share a configuration; empty makes one at the first start.";
    cluster_sync_interfaces: bool = false, BOOL, NoEffect("listeners are each proxy's own"), "Listeners are shared by the cluster too.";
    restart_on_missing_heartbeats: u64 = 10, count(0, 1_000_000), NO_ANGEL, "Missed heartbeats after which the process restarts.";
    execute_on_exit_failure: String = "", TEXT, NO_ANGEL, "Command that is run after a crash.";
    strict: bool = false, BOOL, Restart, "Refuse what ProxySQL would start with and pass over: unknown names, rows and columns given twice, { } for ( ), false for 0. Else each is a warning.";
    sqlite3_plugin: String = "", TEXT, NO_PLUGINS, "Kept for compatibility.";
    web_interface_plugin: String = "", TEXT, NO_PLUGINS, "Kept for compatibility.";
    ldap_auth_plugin: String = "", TEXT, NO_PLUGINS, "Kept for compatibility.";
}
