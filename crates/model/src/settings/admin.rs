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
    admin_credentials: Secret = "admin:admin", Kind::Secret(TextRule::Logins), Live, "Logins that may change things: user:password, separated by ';'.";
    admin_credentials_file: String = "", NULLABLE, Live, "File that holds them, read again when it changes; empty: admin_credentials holds.";
    stats_credentials: Secret = "stats:stats", Kind::Secret(TextRule::Logins), Live, "Logins that may only read.";
    stats_credentials_file: String = "", NULLABLE, Live, "File that holds them, read again when it changes; empty: stats_credentials holds.";
    mysql_ifaces: String = "0.0.0.0:6032", Kind::Text(TextRule::Listeners), Live, "Where administrators connect.";
    max_connections: u64 = 200, count(1, 10_000), Live, "Most connections to the admin port; clients of this machine have a few more.";
    // Tidegate's own
    login_failures: u64 = 10, count(0, 1_000_000), Live, "Logins to the admin port and the web page from one address (IPv6: one /64) that may fail in a minute. Beyond it they are judged one at a time, a second after one that failed. 0: no limit.";
    wait_timeout: u64 = 28_800_000, ms(1_000, 31_536_000_000), Live, "How long an admin session may wait for its next command.";
    telnet_admin_ifaces: String = "", NULLABLE, TELNET, "Kept for compatibility.";
    telnet_stats_ifaces: String = "", NULLABLE, TELNET, "Kept for compatibility.";
    refresh_interval: u64 = 2_000, ms(101, 99_999), NoEffect("statistics are read when they are asked for"), "Time between refreshes of statistics.";
    read_only: bool = false, BOOL, Live, "Refuse changes.";
    config_history_size: u64 = 50, count(0, 10_000), Live, "Configurations that are kept for CONFIG ROLLBACK; 0 keeps none.";
    upgrade_timeout: u64 = 30_000, ms(100, 3_600_000), Live, "How long the new process of PROXYSQL UPGRADE may take to be ready; else the old one serves on.";
    version: String = env!("CARGO_PKG_VERSION"), TEXT, NoEffect("read-only; it names the build"), "Version of this build.";
    ssl_keylog_file: String = "", TEXT, Live, "File that the keys of TLS sessions are written to, those of clients and of servers (NSS key log format), relative to datadir; empty is off. Who has it can read recorded traffic.";

    // Statistics
    vacuum_stats: bool = true, BOOL, NoEffect("statistics are computed when they are read and take no room"), "Give memory of statistics tables back after each query.";
    stats_mysql_connections: u64 = 60, secs(0, 300), Live, "Time between samples of connections; 0 is off.";
    stats_mysql_connection_pool: u64 = 60, secs(0, 300), Live, "Time between samples of the pools; 0 is off.";
    stats_mysql_query_cache: u64 = 60, secs(0, 300), Live, "Time between samples of the query cache; 0 is off.";
    stats_system_cpu: u64 = 60, secs(0, 600), Live, "Time between samples of CPU use; 0 is off.";
    stats_system_memory: u64 = 60, secs(0, 600), Live, "Time between samples of memory use; 0 is off.";
    stats_mysql_query_digest_to_disk: u64 = 0, secs(0, 86_400), Live, "Time between saves of digest statistics; 0 is off.";
    stats_mysql_eventslog_sync_buffer_to_disk: u64 = 0, secs(0, 86_400), Live, "Time between moves of the logged queries that are kept in memory to history_mysql_query_events; 0 is off.";
    stats_history_days: u64 = 7, count(1, 3_650), Live, "Days that samples and saved digests are kept.";
    stats_history_hour_days: u64 = 365, count(1, 36_500), Live, "Days that the averages of hours are kept.";
    stats_history_day_days: u64 = 3_650, count(1, 36_500), Live, "Days that the averages of days are kept.";
    stats_history_rows: u64 = 1_000_000, count(1_000, 1_000_000_000), Live, "Most rows of each table of the statistics' history; the oldest go first.";
    prometheus_memory_metrics_interval: u64 = 61, secs(1, 604_799), NoEffect("metrics are computed when they are read"), "Time between refreshes of memory metrics.";

    // Cluster
    cluster_username: String = "", TEXT, Live, "User that peers of proxysql_servers are connected to with, an administrator there; empty is off.";
    cluster_password: Secret = "", Kind::Secret(TextRule::Any), Live, "Its password.";
    cluster_password_file: String = "", NULLABLE, Live, "File that holds it, read again when it changes; empty: cluster_password holds.";
    cluster_check_interval_ms: u64 = 1_000, ms(10, 300_000), Live, "Time between checks of peers.";
    cluster_check_status_frequency: u64 = 10, count(0, 10_000), Live, "Every so many checks a peer's status is read too; 0 is never.";
    cluster_mysql_query_rules_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "Differing checks before query rules of a newer revision are taken over; 0 never takes nor gives them.";
    cluster_mysql_servers_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "The same for servers.";
    cluster_mysql_users_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "The same for users.";
    cluster_proxysql_servers_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "The same for the list of proxies.";
    cluster_mysql_variables_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "The same for mysql variables.";
    cluster_admin_variables_diffs_before_sync: u64 = 3, count(0, 1_000), Live, "The same for admin variables.";
    cluster_ldap_variables_diffs_before_sync: u64 = 3, count(0, 1_000), NO_LDAP, "The same for LDAP variables.";
    cluster_mysql_query_rules_save_to_disk: bool = true, BOOL, Live, "Save query rules that were taken over.";
    cluster_mysql_servers_save_to_disk: bool = true, BOOL, Live, "The same for servers.";
    cluster_mysql_users_save_to_disk: bool = true, BOOL, Live, "The same for users.";
    cluster_proxysql_servers_save_to_disk: bool = true, BOOL, Live, "The same for the list of proxies.";
    cluster_mysql_variables_save_to_disk: bool = true, BOOL, Live, "The same for mysql variables.";
    cluster_admin_variables_save_to_disk: bool = true, BOOL, Live, "The same for admin variables.";
    cluster_ldap_variables_save_to_disk: bool = true, BOOL, NO_LDAP, "The same for LDAP variables.";
    cluster_mysql_servers_sync_algorithm: u64 = 1, count(1, 3), NoEffect("servers are taken over as they were configured; what was observed never is"), "Servers that are taken over: 1 as running and as configured, 2 as configured, 3 depends on the monitor.";
    checksum_mysql_query_rules: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_mysql_servers: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_mysql_users: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_mysql_variables: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_admin_variables: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";
    checksum_ldap_variables: bool = true, BOOL, CHECKSUMS, "Kept for compatibility.";

    // One configuration for many proxies
    shared_config_endpoints: String = "", NULLABLE, Live, "URLs of etcd, separated by commas: every proxy that names the same cluster there has one configuration with this one. Empty is off.";
    shared_config_cluster: String = "main", TEXT, Live, "Name of the proxies that share a configuration: letters, digits, '.', '_' and '-'.";
    shared_config_prefix: String = "/tidegate", TEXT, Live, "What the keys in etcd begin with, before the name of the cluster.";
    shared_config_username: String = "", NULLABLE, Live, "User of etcd; empty for none.";
    shared_config_password: Secret = "", Kind::Secret(TextRule::Any), Live, "Its password.";
    shared_config_password_file: String = "", NULLABLE, Live, "File that holds it, read again when it changes; empty: shared_config_password holds.";
    shared_config_ca: String = "", NULLABLE, Live, "File of CAs that certificates of etcd, or of peers, must come from; empty takes the system's for etcd, and any for peers.";
    shared_config_cert: String = "", NULLABLE, Live, "Client certificate that is shown to etcd.";
    shared_config_key: String = "", NULLABLE, Live, "Its key.";
    shared_config_timeout: u64 = 2_000, ms(100, 60_000), Live, "How long one member of etcd may take for an answer before the next one is asked.";
    shared_config_max_bytes: u64 = 67_108_864, bytes(1_048_576, 1_073_741_824), Live, "Largest shared configuration, uncompressed: a larger one is neither published nor taken from etcd or a peer.";
    shared_config_error_band: u64 = 5, count(1, 100), Live, "A CONFIG ROLLOUT is aborted where, in 10 seconds with 20 statements or more, so many more of 100 statements fail than before it.";

    // HTTP and debugging
    restapi_enabled: bool = false, BOOL, Live, "Serve the REST interface.";
    restapi_address: String = "127.0.0.1", Kind::Text(TextRule::Address), Live, "The IP address that it listens on.";
    restapi_port: u64 = 6_070, count(1, 65_534), Live, "Its port.";
    web_enabled: bool = false, BOOL, Live, "Serve the web page.";
    web_address: String = "0.0.0.0", Kind::Text(TextRule::Address), Live, "The IP address that it listens on.";
    web_port: u64 = 6_080, count(1, 65_534), Live, "Its port.";
    web_plain_http: bool = false, BOOL, Live, "Serve the web page without TLS too; on loopback it always is.";
    web_hosts: String = "", NULLABLE, Live, "Names, separated by commas, that the web page is known by. Addresses and localhost always are; with TLS and an empty list all names are.";
    web_idle_timeout: u64 = 1_800_000, ms(10_000, 43_200_000), Live, "Time without a request after which one has to log in to the web page again; 12 hours after the login one always has to.";
    web_trusted_proxies: String = "", NULLABLE, Live, "IP addresses, separated by commas, of proxies in front of the web page. What they say in X-Forwarded-For is the client's address: for limits, for logins that are for this machine only, and in logs.";
    web_verbosity: u64 = 0, count(0, 10), NoEffect("what it logs is little, and log levels sort it"), "How much the web interface logs.";
    coredump_generation_interval_ms: u64 = 30_000, ms(0, 2_147_483_646), NoEffect("core dumps are left to the system"), "Least time between core dumps.";
    coredump_generation_threshold: u64 = 10, count(1, 500), NoEffect("core dumps are left to the system"), "Most core dumps.";
}
