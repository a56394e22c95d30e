//! The table of `mysql-*` variables: ProxySQL 2.7's, then Tidegate's own.
//!
//! Defaults and ranges are ProxySQL's unless a comment says otherwise.

use super::Effect::{Live, NoEffect, NotYet, Restart};
use super::value::{BOOL, Kind, NULLABLE, PERCENT, TEXT, TextRule, bytes, count, mebibytes, ms, secs, us};
use crate::secret::Secret;

words! {
    /// The authentication plugin that the greeting announces.
    AuthPlugin {
        /// SHA-1 based, known to every client.
        MysqlNativePassword = "mysql_native_password",
        /// MySQL 8's default.
        CachingSha2Password = "caching_sha2_password",
    }
}

words! {
    /// How far a backend's TLS certificate is checked.
    #[derive(Default)]
    BackendSslVerify {
        /// Not at all: encryption only.
        #[default]
        Off = "off",
        /// It must be signed by a CA we trust.
        Ca = "ca",
        /// As `Ca`, and it must name the host we connect to.
        Identity = "identity",
    }
}

words! {
    /// The least version of TLS that clients may use.
    TlsVersion {
        /// TLS 1.2.
        V1_2 = "TLSv1.2",
        /// TLS 1.3.
        V1_3 = "TLSv1.3",
    }
}

words! {
    /// Which GTIDs backends are asked to report.
    SessionTrackGtids {
        /// None.
        Off = "OFF",
        /// The session's own.
        OwnGtid = "OWN_GTID",
    }
}

words! {
    /// When a cluster's preferred server becomes its writer again, after another server took over.
    Failback {
        /// Not as long as the writer at hand is healthy.
        Never = "never",
        /// As soon as it can write.
        Immediate = "immediate",
        /// When it was healthy for `failback_delay_ms`.
        Delayed = "delayed",
        /// When an operator says `FAILBACK HOSTGROUP`.
        Command = "command",
    }
}

words! {
    /// Which servers of a replication cluster may write beside the one that does.
    SecondWriters {
        /// Servers that the operator wrote to the writer hostgroup, unless they replicate from one that writes.
        Configured = "configured",
        /// All that say `read_only=0`.
        Any = "any",
    }
}

words! {
    /// Whether reads wait for earlier writes.
    CausalReads {
        /// They do not.
        Off = "off",
        /// A session reads its own writes.
        Session = "session",
        /// As `session`, and a token that the application hands on carries it to other sessions.
        Token = "token",
    }
}

const POLL: super::Effect = NoEffect("workers wait for events, not for a poll interval");
const STREAMED: super::Effect = NoEffect("results always stream, see `frontend_window`");
const NO_IDLE_THREADS: super::Effect = NoEffect("idle sessions cost no thread time, so there are no idle threads");
const ANY_STATE: super::Effect = NoEffect("autocommit is session state and is carried to any backend");
const ONE_ALGORITHM: super::Effect = NoEffect("there is one algorithm");
const UNUSED: super::Effect = NoEffect("unused in ProxySQL too");

settings! {
    /// Every `mysql-*` variable. Fields are named as the variables are.
    MysqlVariables in "mysql";

    // Listeners and clients
    interfaces: String = "0.0.0.0:6033", Kind::Text(TextRule::Listeners), Restart, "Where clients connect: `ip:port`, `[ipv6]:port` or `/path`, separated by `;`.";
    threads: u64 = 4, count(1, 255), Restart, "Worker threads.";
    stacksize: u64 = 1_048_576, bytes(262_144, 4_194_304), Restart, "Stack of each worker thread.";
    max_connections: u64 = 10_000, count(1, 1_000_000), Live, "Client connections at a time. The next client gets error 1040, 'Too many connections'.";
    max_connections_per_address: u64 = 0, count(0, 1_000_000), Live, "Client connections from one address, including logins in progress. The next one gets error 1040. 0 is no limit; Unix sockets have none.";
    connect_timeout_client: u64 = 10_000, ms(500, 3_600_000), Live, "A client that has not logged in after this time is disconnected.";
    wait_timeout: u64 = 28_800_000, ms(0, 1_728_000_000), Live, "An idle client is disconnected after this time; 0 means never.";
    memory_budget: u64 = 0, bytes(0, 1_099_511_627_776), Live, "Memory limit (0: 80 % of the control group or machine). Near it, the proxy refuses commands over 64 KiB, empties its cache, then refuses logins.";
    stuck_worker_ms: u64 = 3_000, ms(0, 3_600_000), Live, "A worker busy with one task for this long is stuck: it gets no new clients, and `/readyz` and the log report it. 0: off.";
    max_allowed_packet: u64 = 67_108_864, bytes(8_192, 1_073_741_824), Live, "Largest command that a client may send. A larger one gets error 1153.";
    // ProxySQL announces the fixed text 8.0.11.
    server_version: String = "", TEXT, Live, "Version that the greeting announces. Empty announces the backends' version.";
    // Without it Connector/J 8.3 and 26.10 take MariaDB 10 for MySQL 10, ask for @@transaction_isolation and give up (1193).
    mariadb_version_prefix: bool = true, BOOL, Live, "Announce MariaDB 10 versions with the prefix 5.5.5-, as these servers do. The text of `server_version` is announced unchanged.";
    server_capabilities: u64 = 569_867, count(11, 4_294_967_295), NoEffect("the greeting announces what the proxy can do"), "Capability bits that the greeting announces.";
    default_authentication_plugin: AuthPlugin = AuthPlugin::MysqlNativePassword, AuthPlugin::KIND, Live, "Authentication plugin that the greeting announces.";
    default_schema: String = "", TEXT, Live, "Schema of a session if neither the client nor its user names one.";
    default_charset: String = "utf8", Kind::Text(TextRule::Charset), NoEffect("the greeting announces the backends' own collation"), "Character set that the greeting announces.";
    default_collation_connection: String = "utf8_general_ci", TEXT, NoEffect("the greeting announces the backends' own collation"), "Collation that the greeting announces. It must belong to `default_charset`.";
    handle_unknown_charset: u64 = 1, count(0, 3), Live, "If servers do not know a client's collation: 0 refuses the login (error 1273), 1 to 3 use the servers' default. 1 also logs it.";
    have_ssl: bool = true, BOOL, Live, "Offer TLS to clients.";
    require_secure_transport: bool = false, BOOL, Live, "Clients must log in with TLS or over a Unix socket. Other logins get error 3159.";
    tls_min_version: TlsVersion = TlsVersion::V1_2, TlsVersion::KIND, Live, "Lowest TLS version for clients. Logins with an older version get error 3159.";
    have_compress: bool = true, BOOL, Live, "Offer compression to clients.";
    // ProxySQL's default is 3; servers use 6. Its -1, which is 6, is none here.
    protocol_compression_level: u64 = 6, count(0, 9), Live, "zlib level for data sent to clients and servers on new connections: 0 stores, 1 is fastest, 9 is smallest.";
    protocol_zstd_level_max: u64 = 3, count(1, 22), Live, "Highest zstd level for data sent to a client, whatever the client requests. Level 22 takes about a thousand times as long as level 3.";
    enable_client_deprecate_eof: bool = true, BOOL, Live, "Offer CLIENT_DEPRECATE_EOF to clients.";
    client_session_track_gtid: bool = true, BOOL, Live, "Report the GTIDs of a client's writes if it requests them (`session_track_gtids`, MySQL).";
    proxy_protocol_networks: String = "", Kind::Text(TextRule::Networks), Live, "Networks whose connections may begin with a PROXY protocol header: `address/bits`, separated by commas. `*` means all.";
    forward_administrative_commands: bool = false, BOOL, Live, "Forward COM_SHUTDOWN and COM_DEBUG to servers. Rules and the firewall match them as SHUTDOWN and DEBUG.";
    use_tcp_keepalive: bool = true, BOOL, Live, "Enable TCP keepalive on client and server connections.";
    tcp_keepalive_time: u64 = 120, secs(0, 7_200), Live, "Silence before the first TCP keepalive. 0 keeps the system's value.";
    tcp_keepalive_interval: u64 = 15, secs(0, 7_200), Live, "Time between unanswered TCP keepalives. 0 keeps the system's value (Linux: 75 s).";
    tcp_keepalive_probes: u64 = 4, count(0, 127), Live, "Unanswered TCP keepalives after which the connection counts as lost. 0 keeps the system's value (Linux: 9).";
    client_host_cache_size: u64 = 0, count(0, 1_048_576), Live, "Client addresses whose failed logins are counted. The address with the oldest failure is evicted first. 0 counts none.";
    client_host_error_counts: u64 = 0, count(0, 1_048_576), Live, "Failed or unfinished logins after which the proxy closes new connections from an address at once.";
    throttle_max_bytes_per_second_to_client: u64 = 0, bytes(0, 2_147_483_647), Live, "Most bytes a second sent to one client, and read from a backend for it. 0 is no limit.";
    throttle_ratio_server_to_client: u64 = 0, PERCENT, NoEffect("reading always follows the speed of the client"), "How far reading from the backend is slowed too while a client is throttled.";
    enable_load_data_local_infile: bool = true, BOOL, Live, "Allow LOAD DATA LOCAL INFILE for new sessions. The file is streamed from the client; the proxy never reads its own disk.";

    // Backends: connecting
    connect_timeout_server: u64 = 1_000, ms(10, 120_000), Live, "Longest time for one connect to a backend, or for one reset of a connection.";
    connect_timeout_server_max: u64 = 10_000, ms(10, 3_600_000), Live, "Longest time that a query waits for a backend connection before it gets error 9001.";
    connect_retries_on_failure: u64 = 10, count(0, 1_000), NoEffect("connects are tried until connect_timeout_server_max is over"), "Further connects for one query after a failed connect.";
    connect_retries_delay: u64 = 1, ms(0, 10_000), NoEffect("the pause grows with each failed connect"), "Pause between the connects of `connect_retries_on_failure`.";
    throttle_connections_per_sec_to_hostgroup: u64 = 1_000_000, count(1, 100_000_000), Live, "New backend connections a second in each hostgroup. Further queries wait.";
    init_connect: String = "", NULLABLE, Live, "SQL that runs once on every new backend connection.";
    enable_server_deprecate_eof: bool = true, BOOL, Live, "Use CLIENT_DEPRECATE_EOF with backends.";
    default_session_track_gtids: SessionTrackGtids = SessionTrackGtids::Off, SessionTrackGtids::KIND, Live, "Value of `session_track_gtids` for sessions that do not set it (MySQL).";
    ssl_p2s_ca: String = "", NULLABLE, Live, "File of CAs that verify backend certificates.";
    ssl_p2s_capath: String = "", NULLABLE, Live, "Directory of CAs that verify backend certificates.";
    ssl_p2s_cert: String = "", NULLABLE, Live, "Client certificate for backends.";
    ssl_p2s_key: String = "", NULLABLE, Live, "Key of `ssl_p2s_cert`.";
    ssl_p2s_cipher: String = "", NULLABLE, Live, "Ciphers for backends, separated by `:`.";
    ssl_p2s_crl: String = "", NULLABLE, Live, "File of revoked backend certificates.";
    ssl_p2s_crlpath: String = "", NULLABLE, Live, "Directory of files with revoked backend certificates.";

    // Backends: keeping and choosing
    ping_interval_server_msec: u64 = 10_000, ms(1_000, 604_800_000), Live, "Time between pings of an idle backend connection.";
    ping_timeout_server: u64 = 200, ms(10, 600_000), Live, "Longest time for a ping of an idle backend connection.";
    free_connections_pct: u64 = 10, PERCENT, Live, "Share of a server's `max_connections` that is kept idle. 0 keeps none.";
    connection_max_age_ms: u64 = 0, ms(0, 86_400_000), Live, "Idle backend connections older than this are closed. 0 means never.";
    reconnect_after_grants: bool = true, BOOL, Live, "Close idle backend connections after GRANT, REVOKE or similar statements. Servers keep the old privileges on existing connections.";
    connection_warming: bool = false, BOOL, Live, "Open connections ahead of need, up to `free_connections_pct` of `max_connections`.";
    shun_on_failures: u64 = 5, count(0, 10_000_000), NoEffect("the pause after a failed connect grows"), "Failed connects within a second that shun a server.";
    shun_recovery_time_sec: u64 = 10, secs(0, 31_536_000), NoEffect("the pause after a failed connect grows"), "A shunned server is tried again after this.";
    unshun_algorithm: u64 = 0, count(0, 1), NoEffect("each server has one state for all its hostgroups"), "1: a server readmitted in one hostgroup is readmitted in all.";
    default_max_latency_ms: u64 = 1_000, ms(0, 1_728_000_000), Live, "Servers with a slower ping are not chosen, unless `mysql_servers` sets their own limit.";
    min_num_servers_lantency_awareness: u64 = 1_000, count(0, 10_000), Live, "With at least this many candidates, servers slower than the average are left out.";
    aurora_max_lag_ms_only_read_from_replicas: u64 = 2, count(0, 100), Live, "With at least this many candidates, lag-limited reads avoid the writer.";
    evaluate_replication_lag_on_servers_load: u64 = 1, count(0, 1), NoEffect("observations of a server survive LOAD"), "1: a server shunned for lag stays so when servers are loaded.";
    connpoll_reset_queue_length: u64 = 50, count(0, 10_000), NoEffect("connections are reset by the worker that owns them"), "Length of the queue of connections to reset.";
    reset_connection_algorithm: u64 = 2, count(1, 2), ONE_ALGORITHM, "How connections are reset.";
    max_stmts_per_connection: u64 = 20, count(1, 1_024), Live, "Prepared statements kept on one backend connection.";
    max_stmts_cache: u64 = 10_000, count(128, 1_048_576), Live, "Prepared statements remembered by the whole proxy.";

    // Multiplexing and sessions
    multiplexing: bool = true, BOOL, Live, "Share backend connections between sessions. If false, every session keeps its own.";
    connection_delay_multiplex_ms: u64 = 0, ms(0, 300_000), Live, "How long a session keeps its backend connection after a query.";
    // ProxySQL's default is 5. Here the last insert id is session state, so nothing needs to be delayed.
    auto_increment_delay_multiplex: u64 = 0, count(0, 1_000_000), Live, "Queries for which a session keeps its backend after it received an insert id.";
    auto_increment_delay_multiplex_timeout_ms: u64 = 10_000, ms(0, 3_600_000), Live, "Longest effect of `auto_increment_delay_multiplex`. 0 is no limit.";
    keep_multiplexing_variables: String = "tx_isolation,transaction_isolation,version", TEXT, NoEffect("reading a variable never pins a session"), "Variables that may be read without keeping the backend.";
    last_insert_id_in_triggers: bool = true, BOOL, Live, "Before a write, restore the session's LAST_INSERT_ID() for triggers. If no trigger reads it, set false to save one SET.";
    carry_user_variables_max_length: u64 = 4_096, count(0, 16_384), Live, "Longest value of a computed user variable that the proxy reads and carries to other connections. 0 reads none, and the session stays pinned.";
    kill_backend_connection_when_disconnect: bool = true, BOOL, Live, "Kill the running query on the backend if its client disconnects.";
    max_transaction_idle_time: u64 = 14_400_000, ms(1_000, 1_728_000_000), Live, "A client that is idle in a transaction for this long is disconnected.";
    max_transaction_time: u64 = 14_400_000, ms(1_000, 1_728_000_000), Live, "A client whose transaction lasts longer is disconnected.";
    set_query_lock_on_hostgroup: u64 = 1, count(0, 1), NoEffect("an unparsed SET pins the session and never fails"), "1: a SET that cannot be parsed ties the session to its hostgroup.";
    set_parser_algorithm: u64 = 2, count(1, 2), ONE_ALGORITHM, "How SET is parsed.";
    enforce_autocommit_on_reads: bool = false, BOOL, Live, "If true, plain reads with autocommit=0 begin a transaction where rules send BEGIN. If false, they run with autocommit=1 where their rule says.";
    autocommit_false_not_reusable: bool = false, BOOL, ANY_STATE, "Do not share connections that have autocommit=0.";
    autocommit_false_is_transaction: bool = false, BOOL, Live, "With autocommit=0, a session counts as in a transaction. Until autocommit=1 it keeps the backend that the rules choose for BEGIN.";
    handle_warnings: u64 = 1, count(0, 1), Live, "1: read warnings before a connection is shared, so that SHOW WARNINGS works later. 0: save that round trip; released sessions lose their warnings.";
    session_track_variables: u64 = 0, count(0, 2), NoEffect("reports of session variables are always followed, in addition to SET"), "Ask servers to report session variables: 0 never, 1 where supported, 2 always.";
    fast_forward_grace_close_ms: u64 = 5_000, ms(0, 3_600_000), NoEffect("all data is relayed before the connection counts as closed"), "How long a fast_forward session whose server closed may go on sending to its client.";
    session_idle_ms: u64 = 1, ms(1, 3_600_000), NO_IDLE_THREADS, "Idle time before a session moves to an idle thread.";
    session_idle_show_processlist: bool = true, BOOL, NO_IDLE_THREADS, "List sessions of idle threads.";
    sessions_sort: bool = true, BOOL, NoEffect("sessions are served in order of their events"), "Serve older sessions first.";
    poll_timeout: u64 = 2_000, ms(10, 20_000), POLL, "Longest wait of a worker.";
    poll_timeout_on_failure: u64 = 100, ms(10, 20_000), POLL, "Longest wait of a worker that waits for a backend.";

    // Queries
    default_query_timeout: u64 = 86_400_000, ms(1_000, 1_728_000_000), Live, "A query that runs longer is killed on its backend.";
    default_query_delay: u64 = 0, ms(0, 3_600_000), Live, "Delay before every query.";
    query_retries_on_failure: u64 = 1, count(0, 1_000), Live, "Safe retries of a query on another connection if its server is lost. Outside clusters, failed queries are retried too.";
    long_query_time: u64 = 1_000, ms(0, 1_728_000_000), Live, "Queries that take longer count as slow.";
    threshold_query_length: u64 = 524_288, bytes(1_024, 1_073_741_824), NoEffect("a long query leaves no state on its connection"), "A connection that ran a longer query is not shared.";
    threshold_resultset_size: u64 = 4_194_304, bytes(1_024, 1_073_741_824), STREAMED, "Result bytes that are buffered before streaming begins.";
    query_processor_iterations: u64 = 0, count(0, 1_000_000), Live, "How often rules may start over after a flagOUT.";
    query_processor_regex: u64 = 1, count(1, 2), Live, "Regular expression dialect of rules: 1 PCRE, 2 RE2.";
    query_rules_fast_routing_algorithm: u64 = 1, count(1, 2), ONE_ALGORITHM, "How the fast routing map is kept.";
    mirror_max_concurrency: u64 = 16, count(1, 8_192), Live, "Mirrored statements that run at a time, in all workers.";
    mirror_max_queue_length: u64 = 32_000, count(0, 1_048_576), Live, "Mirrored statements that may wait in each worker. More are dropped and counted.";
    default_reconnect: bool = true, BOOL, UNUSED, "Kept for compatibility.";

    // Digests and statistics
    commands_stats: bool = true, BOOL, Live, "Count statements by kind.";
    servers_stats: bool = true, BOOL, UNUSED, "Kept for compatibility.";
    query_digests: bool = true, BOOL, Live, "Keep statistics by digest.";
    query_digests_lowercase: bool = false, BOOL, Live, "Lower-case digests.";
    query_digests_replace_null: bool = false, BOOL, Live, "Write NULL as ? in digests.";
    query_digests_no_digits: bool = false, BOOL, Live, "Write digits within names as ? in digests.";
    query_digests_normalize_digest_text: bool = false, BOOL, NoEffect("digest texts are always shared between rows"), "Keep each digest's text once.";
    query_digests_track_hostname: bool = false, BOOL, Live, "Count digests by client address too.";
    query_digests_percentiles: bool = true, BOOL, Live, "Count the time distribution of each digest after 16 runs on a worker (`stats_tidegate_query_digest`). It takes 192 bytes for each digest.";
    query_digests_keep_comment: bool = false, BOOL, Live, "Keep comments in digests.";
    query_digests_max_digest_length: u64 = 2_048, bytes(16, 1_048_576), Live, "Bytes of a digest's text that are kept and shown. The hash and `match_digest` use the whole text.";
    query_digests_max_query_length: u64 = 65_000, bytes(16, 1_048_576), Live, "Bytes of a prepared statement that `stats_mysql_prepared_statements_info` shows.";
    // Tidegate's own
    query_digests_max_match_length: u64 = 1_048_576, bytes(65_536, 1_073_741_824), Live, "Bytes of digest text that `match_digest` reads. Longer statements are refused if such a rule applies to their user, schema and address.";
    query_digests_grouping_limit: u64 = 3, count(1, 2_089), Live, "Values of a list that a digest keeps.";
    query_digests_groups_grouping_limit: u64 = 10, count(0, 2_089), Live, "Row groups that a digest keeps; 0 keeps all.";
    stats_time_backend_query: bool = false, BOOL, Live, "Measure the time from sending a statement to the end of its reply (`Backend_query_time_nsec`).";
    stats_time_query_processor: bool = false, BOOL, Live, "Measure the time spent in rules (`Query_Processor_time_nsec`).";
    show_processlist_extended: u64 = 0, count(0, 2), Live, "Session details in the process list: 0 none, 1 JSON, 2 indented JSON.";
    // ProxySQL's default is 2 MiB.
    processlist_max_query_length: u64 = 4_096, bytes(1_024, 33_554_432), Live, "Bytes of a running statement that the process list shows, at most 4096.";
    data_packets_history_size: u64 = 0, count(0, 2_147_483_647), NotYet, "Packets of each connection kept for debugging.";

    // Query cache
    query_cache_size_MB: u64 = 256, mebibytes(0, 10_485_760), Live, "Memory for cached results and their bookkeeping. 0 disables the cache.";
    query_cache_soft_ttl_pct: u64 = 0, PERCENT, Live, "After this share of a cached result's life, one client refreshes it while others read it. 0: off.";
    query_cache_handle_warnings: u64 = 0, count(0, 1), Live, "1: cache results with warnings too. Clients that read them from the cache see no warnings.";
    query_cache_stores_empty_result: bool = true, BOOL, Live, "Cache empty results if the rule does not decide.";
    // Tidegate's own
    query_cache_max_entry_bytes: u64 = 1_048_576, bytes(1_024, 1_073_741_824), Live, "A result larger than this is not cached.";
    query_cache_wait_ms: u64 = 1_000, ms(0, 3_600_000), Live, "How long clients wait while another client fetches the same cacheable result. Then they query a server themselves. 0: no wait.";

    // Logs
    eventslog_filename: String = "", Kind::Text(TextRule::FileBase), Live, "Base name of the query log, relative to `datadir`. Empty: off.";
    eventslog_filesize: u64 = 104_857_600, bytes(1_048_576, 1_073_741_824), Live, "Size at which the query log starts a new file.";
    eventslog_default_log: u64 = 0, count(0, 1), Live, "1: log queries that no rule decides.";
    eventslog_format: u64 = 1, count(1, 2), Live, "Query log format: 1 binary, 2 JSON lines.";
    eventslog_hide_literals: bool = false, BOOL, Live, "The query log holds digest texts without literals, and errors without quoted text.";
    eventslog_stmt_parameters: u64 = 0, count(0, 1), NotYet, "1: log the parameters of prepared statements too.";
    eventslog_buffer_history_size: u64 = 0, count(0, 8_388_608), Live, "Newest logged queries kept in memory for DUMP EVENTSLOG. 0 keeps none.";
    eventslog_table_memory_size: u64 = 10_000, count(0, 8_388_608), Live, "Rows of `stats_mysql_query_events`. The oldest rows are evicted first.";
    eventslog_buffer_max_query_length: u64 = 32_768, bytes(128, 33_554_432), Live, "Bytes of a query's text kept in memory for DUMP EVENTSLOG.";
    slowlog_filename: String = "", Kind::Text(TextRule::FileBase), Live, "Base name of the slow log, relative to `datadir`. Empty: off.";
    slowlog_filesize: u64 = 104_857_600, bytes(1_048_576, 1_073_741_824), Live, "Size at which the slow log starts a new file.";
    slowlog_threshold_ms: u64 = 1_000, ms(0, 86_400_000), Live, "The slow log records statements that take at least this long, whatever rules say about the query log.";
    auditlog_filename: String = "", Kind::Text(TextRule::FileBase), Live, "Base name of the audit log, relative to `datadir`. Empty: off.";
    auditlog_filesize: u64 = 104_857_600, bytes(1_048_576, 1_073_741_824), Live, "Size at which the audit log starts a new file.";
    log_mysql_warnings_enabled: bool = false, BOOL, Live, "Read the warnings of every statement and log them.";
    log_unhealthy_connections: bool = true, BOOL, Live, "Log clients that disconnect early, time out or break the protocol.";
    verbose_query_error: bool = false, BOOL, Live, "Log statement errors with user, schema, client and digest. If false, `stats_mysql_errors` only counts them.";
    hostgroup_manager_verbose: u64 = 1, count(0, 3), NotYet, "How much is logged when servers change.";
    parse_failure_logs_digest: bool = false, BOOL, NoEffect("an unparsed SET pins the session and is not logged"), "Log the digest, not the text, of a SET that cannot be parsed.";

    // Firewall, LDAP, GTID readers
    automatic_detect_sqli: bool = false, BOOL, NotYet, "Look for SQL injection in every query.";
    firewall_whitelist_enabled: bool = false, BOOL, Live, "Enable the firewall.";
    firewall_whitelist_errormsg: String = "Firewall blocked this query", TEXT, Live, "Text of the error for a blocked query.";
    ldap_user_variable: String = "", NULLABLE, NotYet, "Session variable that is given the LDAP user's name.";
    add_ldap_user_comment: String = "", NULLABLE, NotYet, "Key of a comment with the LDAP user's name.";
    ignore_min_gtid_annotations: bool = false, BOOL, Live, "Ignore `min_gtid` in statement comments: statements do not wait for that GTID.";
    binlog_reader_connect_retry_msec: u64 = 3_000, ms(200, 120_000), NoEffect("servers wait for GTIDs themselves"), "Pause before a GTID reader reconnects.";

    // Monitor
    monitor_enabled: bool = true, BOOL, Live, "Check servers.";
    monitor_username: String = "monitor", Kind::Text(TextRule::NonEmpty), Live, "User of the monitor's checks.";
    monitor_password: Secret = "monitor", Kind::Secret(TextRule::Any), Live, "Password of `monitor_username`.";
    monitor_password_file: String = "", NULLABLE, Live, "File with the monitor's password, reread when it changes. Empty: `monitor_password` applies.";
    monitor_history: u64 = 7_200_000, ms(1_000, 604_800_000), Live, "How long check results are kept.";
    monitor_connect_interval: u64 = 120_000, ms(100, 604_800_000), Live, "Time between connect checks.";
    monitor_connect_timeout: u64 = 600, ms(100, 600_000), Live, "Longest time for a connect check.";
    monitor_ping_interval: u64 = 8_000, ms(100, 604_800_000), Live, "Time between ping checks.";
    monitor_ping_max_failures: u64 = 3, count(1, 1_000_000), Live, "Consecutive failed pings after which a server is shunned.";
    monitor_ping_timeout: u64 = 1_000, ms(100, 600_000), Live, "Longest time for a ping check.";
    monitor_aws_rds_topology_discovery_interval: u64 = 0, count(0, 100_000), Live, "Number of read_only intervals after which RDS servers are asked for the instances of their Multi-AZ DB cluster. 0: off.";
    monitor_read_only_interval: u64 = 1_000, ms(100, 604_800_000), Live, "Time between read_only checks.";
    monitor_read_only_timeout: u64 = 800, ms(100, 600_000), Live, "Longest time for a read_only check.";
    monitor_read_only_max_timeout_count: u64 = 3, count(1, 1_000_000), Live, "Consecutive timeouts after which a server counts as read-only.";
    monitor_replication_channel: String = "", Kind::Text(TextRule::Any), Live, "Replication channel (MariaDB: connection) whose lag counts on servers that have it. Empty: channels from the own cluster, otherwise all.";
    replication_channel_username: String = "", NULLABLE, Live, "User that replication channels log in to their sources as, if a server needs one. Empty keeps the servers' own settings.";
    replication_channel_password: Secret = "", Kind::Secret(TextRule::OneLine), Live, "Password of `replication_channel_username`.";
    replication_channel_password_file: String = "", NULLABLE, Live, "File with that password, reread when it changes. Empty: `replication_channel_password` applies.";
    replication_channel_check_interval: u64 = 1_000, ms(100, 600_000), Live, "Time between checks of `mysql_replication_channels`. Role changes are followed at once.";
    monitor_replication_lag_group_by_host: bool = false, BOOL, NoEffect("lag is checked once for each server"), "Check lag once for each host.";
    monitor_replication_lag_interval: u64 = 10_000, ms(100, 604_800_000), Live, "Time between replication lag checks.";
    monitor_replication_lag_timeout: u64 = 1_000, ms(100, 600_000), Live, "Longest time for a replication lag check.";
    monitor_replication_lag_count: u64 = 1, count(1, 10), Live, "Consecutive lagging results after which a server is shunned.";
    monitor_replication_lag_use_percona_heartbeat: String = "", Kind::Text(TextRule::TableName), Live, "Heartbeat table, `schema.table`, from which lag is read.";
    monitor_slave_lag_when_null: u64 = 60, secs(0, 604_800), Live, "Lag assumed if a server reports none.";
    monitor_groupreplication_healthcheck_interval: u64 = 5_000, ms(100, 604_800_000), Live, "Time between Group Replication checks.";
    monitor_groupreplication_healthcheck_timeout: u64 = 800, ms(100, 600_000), Live, "Longest time for a Group Replication check.";
    monitor_groupreplication_healthcheck_max_timeout_count: u64 = 3, count(1, 10), Live, "Consecutive timeouts after which a member counts as offline.";
    monitor_groupreplication_max_transactions_behind_count: u64 = 3, count(1, 10), Live, "Consecutive lagging results after which a member is shunned.";
    monitor_groupreplication_max_transactions_behind_for_read_only: u64 = 1, count(0, 2), Live, "Members that are shunned for lag: 0 writers, 1 readers, 2 both.";
    monitor_galera_healthcheck_interval: u64 = 5_000, ms(50, 604_800_000), Live, "Time between Galera checks.";
    monitor_galera_healthcheck_timeout: u64 = 800, ms(50, 600_000), Live, "Longest time for a Galera check.";
    monitor_galera_healthcheck_max_timeout_count: u64 = 3, count(1, 10), Live, "Consecutive timeouts after which a node counts as offline.";
    monitor_query_interval: u64 = 60_000, ms(100, 604_800_000), UNUSED, "Kept for compatibility.";
    monitor_query_timeout: u64 = 100, ms(100, 600_000), UNUSED, "Kept for compatibility.";
    monitor_threads_min: u64 = 8, count(2, 256), NoEffect("checks are tasks, not threads"), "Fewest check threads.";
    monitor_threads_max: u64 = 128, count(4, 1_024), NoEffect("checks are tasks, not threads"), "Most check threads.";
    monitor_threads_queue_maxsize: u64 = 128, count(16, 1_024), NoEffect("checks are tasks, not threads"), "Waiting checks that start another thread.";
    monitor_local_dns_cache_ttl: u64 = 300_000, ms(0, 604_800_000), Live, "How long a resolved name is kept. 0 keeps none.";
    monitor_local_dns_cache_refresh_interval: u64 = 60_000, ms(0, 604_800_000), Live, "Time between refreshes of resolved names. 0: off.";
    monitor_local_dns_resolver_queue_maxsize: u64 = 128, count(16, 1_024), Live, "Names that may wait for resolution.";
    monitor_wait_timeout: bool = true, BOOL, Live, "Set wait_timeout on the monitor's connections.";
    monitor_writer_is_also_reader: bool = true, BOOL, Live, "A writer also stays in the reader hostgroup.";

    // Tidegate's own: roles, failover
    monitor_fast_interval: u64 = 20, ms(5, 60_000), Live, "Time between checks of a cluster that has no usable writer, or where traffic signals a change.";
    monitor_events_max: u64 = 1_000, count(0, 1_000_000), Live, "Role changes kept in `stats_tidegate_events`. The oldest are evicted first.";
    failback: Failback = Failback::Delayed, Failback::KIND, Live, "When the server with the highest weight becomes the writer again after a failover.";
    second_writers: SecondWriters = SecondWriters::Configured, SecondWriters::KIND, Live, "Servers that may write beside the writer. `configured`: those in the writer hostgroup that replicate from no writer. `any`: all with read_only=0.";
    reads_to_writer_after_ms: u64 = 500, ms(0, 3_600_000), Live, "If no reader takes work for this long, read/write-split reads use the writer. 0 waits up to `connect_timeout_server_max`. The reader hostgroup's value applies.";
    shun_stray_replicas: bool = true, BOOL, Live, "Shun servers of a `read_only` or `super_read_only` cluster that do not replicate from its writer, directly or indirectly. false: they serve reads.";
    failback_delay_ms: u64 = 10_000, ms(0, 86_400_000), Live, "With `failback=delayed`: how long the server must be healthy first.";
    server_ramp_ms: u64 = 10_000, ms(0, 3_600_000), Live, "Time in which a returning server's share of work grows to its weight. 0 restores the full share at once.";
    wait_for_buffer_pool_load: bool = false, BOOL, Live, "Use a restarted server only after its buffer pool is loaded (`Innodb_buffer_pool_load_status`).";
    max_backend_connections_per_user: u64 = 0, count(0, 10_000_000), Live, "Most connections of one user to all servers of a hostgroup. Further statements wait up to `connect_timeout_server_max`. 0 is no limit.";
    max_transactions_behind: u64 = 0, count(0, 1_000_000_000), Live, "Replicas in `mysql_replication_hostgroups` that lack more of their writer's transactions (GTIDs) serve no reads. 0 is no limit. The reader hostgroup's value applies.";
    reader_floor: u64 = 1, count(0, 1_000), Live, "Readers kept in use despite high or unknown lag. The proxy keeps those with the lowest lag.";
    demotion_grace_ms: u64 = 5_000, ms(0, 3_600_000), Live, "How long an open transaction may continue on a demoted server, or a statement on an unreachable one. Then its session gets an error.";
    drain_grace_ms: u64 = 5_000, ms(0, 3_600_000), Live, "How long sessions pinned without a transaction may stay on a draining server (desync, donor, pxc_maint_mode, DRAIN SERVER). OFFLINE_SOFT ends no session.";
    suspicion_ms: u64 = 1_000, ms(0, 60_000), Live, "A writer that refuses a write as read-only gets no new writes until its next check, at most this long.";
    transaction_replay: bool = false, BOOL, Live, "Replay a transaction on another server if its server is lost and every statement returns the same result.";
    transaction_replay_max_bytes: u64 = 1_048_576, bytes(0, 1_073_741_824), Live, "Bytes of statements kept for a replay. A larger transaction is not replayed.";
    transaction_replay_timeout_ms: u64 = 10_000, ms(0, 3_600_000), Live, "Longest time for a replay, including the wait for a server.";
    transaction_replay_head_start_ms: u64 = 500, ms(0, 60_000), Live, "Longest that new transactions wait for replays in their hostgroup, which keeps AUTO_INCREMENT values free. Then nothing waits for as long again.";
    transaction_replay_conflicts: bool = false, BOOL, Live, "Also replay transactions that end by a deadlock (1213) or a certification conflict (Galera, Group Replication).";
    settle_lost_writes: bool = false, BOOL, Live, "Choose each write's GTID in advance (MySQL replication, Group Replication). If its reply is lost, the proxy looks it up on the new writer.";
    causal_reads: CausalReads = CausalReads::Off, CausalReads::KIND, Live, "Whether reads wait for earlier writes to reach the replica. `session`: the session's own writes. `token`: also those of SET TIDEGATE GTID.";
    causal_reads_timeout_ms: u64 = 100, ms(1, 60_000), Live, "Longest wait for a replica. Then the writer serves the read.";
    switchover_manages_read_only: bool = false, BOOL, Live, "SWITCHOVER sets read_only on both servers with the monitor's user.";
    switchover_repoints: bool = true, BOOL, Live, "If SWITCHOVER sets read_only, it also points the old writer and the other replicas at the new writer. false: replication stays as it is.";
    replication_username: String = "", NULLABLE, Live, "User that an old writer logs in to the new one as, if it has no replication account of its own (`switchover_repoints`).";
    replication_password: Secret = "", Kind::Secret(TextRule::OneLine), Live, "Password of `replication_username`.";
    replication_password_file: String = "", NULLABLE, Live, "File with that password, reread when it changes. Empty: `replication_password` applies.";
    switchover_timeout_ms: u64 = 10_000, ms(100, 3_600_000), Live, "Longest time for a SWITCHOVER without TIMEOUT. Then it is undone.";

    // Tidegate's own
    connect_concurrency: u64 = 16, count(1, 10_000), Live, "Connects to one server that may be in progress at a time; the rest wait in order.";
    connection_growth_delay_us: u64 = 10_000, us(0, 10_000_000), Live, "Uninterrupted waiting before a busy hostgroup opens one more connection. It opens one at once if waiting queries reach half its connections.";
    adaptive_connections: bool = true, BOOL, Live, "Learn how many connections to a server help, and open no more. If false, connections open as long as queries wait.";
    pipeline_depth: u64 = 8, count(1, 64), Live, "Quick reads of waiting sessions that may be under way on one connection at a time. 1 sends one statement at a time.";
    pipeline_late_ms: u64 = 10, ms(1, 10_000), Live, "How long the server may work at one of them. Then those behind it are sent again on other connections.";
    pipeline_max_statement_us: u64 = 1_000, us(1, 1_000_000), Live, "A statement is quick if the server takes no longer for 95 of 100 runs, or no longer than eight times the median of all statements.";
    pipeline_max_reply_bytes: u64 = 16_384, bytes(1_024, 1_048_576), Live, "A statement with a longer reply runs alone.";
    max_queries_per_second: u64 = 0, count(0, 100_000_000), Live, "Statements a second for each user, in bursts of a tenth of that. 0 is no limit. Query rules can set their own limit.";
    max_queries_wait_ms: u64 = 1_000, ms(0, 3_600_000), Live, "Longest wait because of `max_queries_per_second`. A statement that would wait longer gets error 1226.";
    free_connections_ms: u64 = 5_000, ms(0, 86_400_000), Live, "Idle connections unused for this long are closed, except one for each user and thread. 0 or `connection_warming` closes none.";
    drain_timeout: u64 = 10_000, ms(0, 3_600_000), Live, "How long sessions may continue after SIGTERM.";
    prepared_metadata_max_age: u64 = 5_000, ms(0, 3_600_000), Live, "How long remembered metadata may answer a PREPARE. 0 always asks a backend.";
    max_stmts_bytes_per_client: u64 = 67_108_864, bytes(65_536, 1_099_511_627_776), Live, "Bytes of text of one client's prepared statements. Beyond it, PREPARE gets error 1461. A single statement may be larger.";
    frontend_window: u64 = 65_536, bytes(4_096, 16_777_216), Live, "Result bytes that may wait for a slow client. Beyond it, the proxy stops reading from the backend.";
    query_digests_max_entries: u64 = 100_000, count(0, 10_000_000), Live, "Rows of the statistics by digest. Beyond it, the rows unused longest are evicted and counted.";
    query_digests_memory_max_mb: u64 = 256, mebibytes(1, 1_048_576), Live, "Memory for all statistics by digest.";
    log_queue_max_mb: u64 = 16, mebibytes(1, 4_096), Live, "Unwritten records of the query, slow, audit and error log, each. More is dropped and counted.";
    log_lines_per_second: u64 = 200, count(0, 1_000_000), Live, "Lines of one kind in the error log per second. One line reports how many were dropped. 0: no limit.";
    capture_directory: String = "captures", Kind::Text(TextRule::NonEmpty), Live, "Directory of captured traffic, relative to `datadir`. CAPTURE START creates it with mode 0700.";
    capture_queue_max_mb: u64 = 16, mebibytes(1, 4_096), Live, "Unwritten records of a capture, for each thread. A session that does not fit has a gap, which is counted.";
    capture_disk_reserve_percent: u64 = 10, count(0, 99), Live, "A capture ends when less than this percentage of the disk is free.";
    trace_endpoint: String = "", Kind::Text(TextRule::HttpUrl), Live, "OTLP/HTTP receiver; `/v1/traces` is added to a URL without a path. Empty uses `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`, if set.";
    trace_headers: Secret = "", Kind::Secret(TextRule::Pairs), Live, "Headers for the receiver of traces, such as a key. Empty uses `OTEL_EXPORTER_OTLP_HEADERS`.";
    trace_headers_file: String = "", NULLABLE, Live, "File with these headers, reread when it changes. Empty: `trace_headers` applies.";
    trace_ca: String = "", NULLABLE, Live, "File of the CA that verifies the receiver's certificate. Empty uses the system's CAs.";
    trace_service_name: String = "", TEXT, Live, "service.name of the proxy in traces. Empty uses `OTEL_SERVICE_NAME`, otherwise tidegate.";
    trace_resource_attributes: String = "", Kind::Text(TextRule::Pairs), Live, "Further attributes of the proxy in traces. Empty uses `OTEL_RESOURCE_ATTRIBUTES`.";
    trace_sample_ratio: String = "0.01", Kind::Text(TextRule::Ratio), Live, "Share of statements traced if the client sends no traceparent. A traceparent's own sampling flag takes precedence.";
    trace_slow_ms: u64 = 1_000, ms(0, 31_536_000_000), Live, "Statements this slow are always traced, like failed, retried, replayed and held ones. 0 ignores slowness.";
    trace_unsampled_parents: bool = false, BOOL, Live, "Also trace statements whose traceparent says 'not sampled'. MySQL Connector/Python sends that for every span.";
    trace_lift_comments: bool = false, BOOL, Live, "Remove traceparent and tracestate from a statement's first or last comment before processing. Commented statements then share digests, prepared statements and cached results.";
    trace_max_per_second: u64 = 200, count(1, 1_000_000), Live, "Most statements traced in a second, for any reason. Further ones are counted and not traced.";
    trace_queue_size: u64 = 4_096, count(1, 1_000_000), Live, "Traced statements that may wait to be sent. More are dropped and counted.";
    trace_timeout_ms: u64 = 5_000, ms(10, 600_000), Live, "Longest time for the receiver's reply.";
    client_multi_statements: bool = true, BOOL, Live, "Let clients send several statements in one command.";
    backend_ssl_verify: BackendSslVerify = BackendSslVerify::Off, BackendSslVerify::KIND, Live, "Verification of backend certificates: `off`, `ca` (signed by a known CA), `identity` (also names the host).";
}
