//! The table of `admin-*` variables of ProxySQL 2.7.

use super::Effect::{self, Live, NoEffect};
use super::value::{BOOL, Kind, NULLABLE, TEXT, TextRule, bytes, count, ms, secs};
use crate::secret::Secret;

const TELNET: Effect = NoEffect("there is no telnet interface");
const NO_LDAP: Effect = NoEffect("there is no LDAP");
const CHECKSUMS: Effect = NoEffect("deprecated in ProxySQL; checksums are always made");

settings! {
    /// Every `admin-*` variable. Fields are named as the variables are.
    AdminVariables in "admin";

    // Logins and listeners
    admin_credentials: Secret = "admin:admin", Kind::Secret(TextRule::Logins), Live, "Logins with write access: `user:password`, separated by `;`.";
    admin_credentials_file: String = "", NULLABLE, Live, "File with these logins, reread when it changes. Empty: `admin_credentials` applies.";
    stats_credentials: Secret = "stats:stats", Kind::Secret(TextRule::Logins), Live, "Logins with read access only.";
    stats_credentials_file: String = "", NULLABLE, Live, "File with these logins, reread when it changes. Empty: `stats_credentials` applies.";
    mysql_ifaces: String = "0.0.0.0:6032", Kind::Text(TextRule::Listeners), Live, "Where administrators connect.";
    max_connections: u64 = 200, count(1, 10_000), Live, "Connections to the admin port. Local clients have a few more.";
    // Tidegate's own
    login_failures: u64 = 10, count(0, 1_000_000), Live, "Failed logins a minute from one address (IPv6: one /64). Beyond it, logins are checked singly, one second after a failure. 0: no limit.";
    wait_timeout: u64 = 28_800_000, ms(1_000, 31_536_000_000), Live, "Longest time that an admin session waits for its next command.";
    telnet_admin_ifaces: String = "", NULLABLE, TELNET, "Kept for compatibility.";
    telnet_stats_ifaces: String = "", NULLABLE, TELNET, "Kept for compatibility.";
    refresh_interval: u64 = 2_000, ms(101, 99_999), NoEffect("statistics are computed on each read"), "Time between refreshes of statistics.";
    read_only: bool = false, BOOL, Live, "Refuse changes.";
    config_history_size: u64 = 50, count(0, 10_000), Live, "Configurations kept for CONFIG ROLLBACK. 0 keeps none.";
    upgrade_timeout: u64 = 30_000, ms(100, 3_600_000), Live, "Longest startup of the new process in PROXYSQL UPGRADE. After that, the old process continues.";
    version: String = env!("CARGO_PKG_VERSION"), TEXT, NoEffect("read-only; it names the build"), "Version of this build.";
    ssl_keylog_file: String = "", TEXT, Live, "File for TLS session keys of clients and servers (NSS key log format), relative to `datadir`. Empty: off. Its readers can decrypt recorded traffic.";

    // Statistics
    vacuum_stats: bool = true, BOOL, NoEffect("statistics are computed on each read and occupy no memory"), "Free the memory of statistics tables after each query.";
    stats_mysql_connections: u64 = 60, secs(0, 300), Live, "Time between samples of connections. 0: off.";
    stats_mysql_connection_pool: u64 = 60, secs(0, 300), Live, "Time between samples of the pools. 0: off.";
    stats_mysql_query_cache: u64 = 60, secs(0, 300), Live, "Time between samples of the query cache. 0: off.";
    stats_system_cpu: u64 = 60, secs(0, 600), Live, "Time between samples of CPU use. 0: off.";
    stats_system_memory: u64 = 60, secs(0, 600), Live, "Time between samples of memory use. 0: off.";
    stats_mysql_query_digest_to_disk: u64 = 0, secs(0, 86_400), Live, "Time between saves of digest statistics. 0: off.";
    stats_mysql_eventslog_sync_buffer_to_disk: u64 = 0, secs(0, 86_400), Live, "Time between moves of logged queries from memory to `history_mysql_query_events`. 0: off.";
    stats_history_days: u64 = 7, count(1, 3_650), Live, "How many days samples and saved digests are kept.";
    stats_history_hour_days: u64 = 365, count(1, 36_500), Live, "How many days hourly averages are kept.";
    stats_history_day_days: u64 = 3_650, count(1, 36_500), Live, "How many days daily averages are kept.";
    stats_history_rows: u64 = 1_000_000, count(1_000, 1_000_000_000), Live, "Rows of each table in the statistics history. The oldest rows are evicted first.";
    prometheus_memory_metrics_interval: u64 = 61, secs(1, 604_799), NoEffect("metrics are computed on each read"), "Time between refreshes of memory metrics.";

    // Cluster
    cluster_username: String = "", TEXT, Live, "Administrator that the proxy logs in as at the peers in `proxysql_servers`. Empty: off.";
    cluster_password: Secret = "", Kind::Secret(TextRule::Any), Live, "Password of `cluster_username`.";
    cluster_password_file: String = "", NULLABLE, Live, "File with that password, reread when it changes. Empty: `cluster_password` applies.";
    cluster_check_interval_ms: u64 = 1_000, ms(10, 300_000), Live, "Time between checks of peers.";
    cluster_check_status_frequency: u64 = 10, count(0, 10_000), Live, "Number of checks after which a peer's status is read too. 0: never.";
    cluster_mysql_query_rules_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "Differing checks before newer query rules are copied from a peer. 0 neither takes nor offers them.";
    cluster_mysql_servers_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "Differing checks before newer servers are copied from a peer. 0 neither takes nor offers them.";
    cluster_mysql_users_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "Differing checks before newer users are copied from a peer. 0 neither takes nor offers them.";
    cluster_proxysql_servers_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "Differing checks before a newer list of proxies is copied from a peer. 0 neither takes nor offers it.";
    cluster_mysql_variables_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "Differing checks before newer mysql variables are copied from a peer. 0 neither takes nor offers them.";
    cluster_admin_variables_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "Differing checks before newer admin variables are copied from a peer. 0 neither takes nor offers them.";
    cluster_ldap_variables_diffs_before_sync: u64 = 3, count(0, 1_000), NO_LDAP, "Differing checks before newer LDAP variables are copied from a peer.";
    cluster_mysql_query_rules_save_to_disk: bool = true, BOOL, Live, "Save query rules copied from a peer to disk.";
    cluster_mysql_servers_save_to_disk: bool = true, BOOL, Live, "Save servers copied from a peer to disk.";
    cluster_mysql_users_save_to_disk: bool = true, BOOL, Live, "Save users copied from a peer to disk.";
    cluster_proxysql_servers_save_to_disk: bool = true, BOOL, Live, "Save a list of proxies copied from a peer to disk.";
    cluster_mysql_variables_save_to_disk: bool = true, BOOL, Live, "Save mysql variables copied from a peer to disk.";
    cluster_admin_variables_save_to_disk: bool = true, BOOL, Live, "Save admin variables copied from a peer to disk.";
    cluster_ldap_variables_save_to_disk: bool = true, BOOL, NO_LDAP, "Save LDAP variables copied from a peer to disk.";
    cluster_mysql_servers_sync_algorithm: u64 = 1, count(1, 3), NoEffect("servers are copied as configured, never as observed"), "Servers copied from a peer: 1 running and configured, 2 configured, 3 depends on the monitor.";
    checksum_mysql_query_rules: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_mysql_servers: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_mysql_users: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_mysql_variables: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_admin_variables: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_ldap_variables: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";

    // One configuration for many proxies
    shared_config_endpoints: String = "", NULLABLE, Live, "URLs of etcd, separated by commas. Proxies with the same `shared_config_cluster` there share one configuration. Empty: off.";
    shared_config_cluster: String = "main", TEXT, Live, "Name of the proxies that share a configuration: letters, digits, '.', '_' and '-'.";
    shared_config_prefix: String = "/tidegate", TEXT, Live, "Prefix of the keys in etcd, before the name of the cluster.";
    shared_config_username: String = "", NULLABLE, Live, "User of etcd. Empty: none.";
    shared_config_password: Secret = "", Kind::Secret(TextRule::Any), Live, "Password of `shared_config_username`.";
    shared_config_password_file: String = "", NULLABLE, Live, "File with that password, reread when it changes. Empty: `shared_config_password` applies.";
    shared_config_ca: String = "", NULLABLE, Live, "File of CAs that verify etcd or peers. Empty: the system's CAs for etcd, and no verification for peers.";
    shared_config_cert: String = "", NULLABLE, Live, "Client certificate for etcd.";
    shared_config_key: String = "", NULLABLE, Live, "Key of `shared_config_cert`.";
    shared_config_timeout: u64 = 2_000, ms(100, 60_000), Live, "Longest wait for one member of etcd before the next one is asked.";
    shared_config_max_bytes: u64 = 67_108_864, bytes(1_048_576, 1_073_741_824), Live, "Largest shared configuration, uncompressed. A larger one is neither published nor taken from etcd or a peer.";
    shared_config_error_band: u64 = 5, count(1, 100), Live, "Rise of the error rate, in percentage points over 10 seconds and at least 20 statements, that aborts a CONFIG ROLLOUT.";

    // Healing
    healing_alone: bool = false, BOOL, Live, "No other proxy promotes servers of these clusters: needed for mode `full` of `mysql_healing` without a shared configuration. Refused with rows in `proxysql_servers` and with `shared_config_endpoints`.";
    healing_max_clusters: u64 = 2, count(1, 1_000), Live, "If more clusters of `mysql_healing` than this lose their writers within 60 seconds, no server is promoted.";
    healing_hooks_dir: String = "", NULLABLE, Live, "Directory of the programs that `mysql_healing_hooks` names. Each proxy has its own value. Empty: no program runs.";

    // HTTP and debugging
    restapi_enabled: bool = false, BOOL, Live, "Serve the REST interface.";
    restapi_address: String = "127.0.0.1", Kind::Text(TextRule::Address), Live, "IP address that the REST interface listens on.";
    restapi_port: u64 = 6_070, count(1, 65_534), Live, "Port of the REST interface.";
    web_enabled: bool = false, BOOL, Live, "Serve the web page.";
    web_address: String = "0.0.0.0", Kind::Text(TextRule::Address), Live, "IP address that the web page listens on.";
    web_port: u64 = 6_080, count(1, 65_534), Live, "Port of the web page.";
    web_plain_http: bool = false, BOOL, Live, "Serve the web page without TLS too. On loopback, plain HTTP is always allowed.";
    web_hosts: String = "", NULLABLE, Live, "Host names of the web page, separated by commas. Addresses and localhost always work. With TLS, an empty list allows every name.";
    web_idle_timeout: u64 = 1_800_000, ms(10_000, 43_200_000), Live, "Time without a request after which the web page asks for a login. A login lasts 12 hours at most.";
    web_trusted_proxies: String = "", NULLABLE, Live, "IP addresses of HTTP proxies before the web page, separated by commas. Their X-Forwarded-For is the client's address in limits, local logins and logs.";
    web_verbosity: u64 = 0, count(0, 10), NoEffect("log levels already sort its few messages"), "How much the web interface logs.";
    coredump_generation_interval_ms: u64 = 30_000, ms(0, 2_147_483_646), NoEffect("core dumps are left to the system"), "Least time between core dumps.";
    coredump_generation_threshold: u64 = 10, count(1, 500), NoEffect("core dumps are left to the system"), "Most core dumps.";
}
