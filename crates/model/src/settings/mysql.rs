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
        /// 1.2.
        V1_2 = "TLSv1.2",
        /// 1.3.
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
    /// When the preferred server of a cluster becomes its writer again, after another one took over.
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
        /// Those that the operator wrote to the writer hostgroup, unless they replicate from one that writes.
        Configured = "configured",
        /// All that say `read_only=0`.
        Any = "any",
    }
}

words! {
    /// Whether reads wait for what was written before.
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
const STREAMED: super::Effect = NoEffect("results stream through a window, see frontend_window");
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
    max_connections: u64 = 10_000, count(1, 1_000_000), Live, "Client connections at a time; one more is told 'Too many connections' (1040).";
    max_connections_per_address: u64 = 0, count(0, 1_000_000), Live, "Client connections at a time from one address, logins under way too; one more is told 1040. 0 means no limit, and Unix sockets have none.";
    connect_timeout_client: u64 = 10_000, ms(500, 3_600_000), Live, "A client that has not logged in after this is dropped.";
    wait_timeout: u64 = 28_800_000, ms(0, 1_728_000_000), Live, "An idle client is closed after this; 0 means never.";
    memory_budget: u64 = 0, bytes(0, 1_099_511_627_776), Live, "Memory that the process may use: towards it commands longer than 64 KiB are refused, then the query cache is emptied, then logins are refused. 0 is 80 % of what its control group or the machine has.";
    stuck_worker_ms: u64 = 3_000, ms(0, 3_600_000), Live, "A worker that does nothing but one piece of work for so long is stuck: it gets no new clients, /readyz says so, and the log. 0 switches that off.";
    max_allowed_packet: u64 = 67_108_864, bytes(8_192, 1_073_741_824), Live, "Largest command a client may send; a larger one gets error 1153.";
    // ProxySQL announces the fixed text 8.0.11.
    server_version: String = "", TEXT, Live, "Version that the greeting announces; empty means the one that the backends announce.";
    // Without it Connector/J 8.3 and 26.10 take MariaDB 10 for MySQL 10, ask for @@transaction_isolation and give up (1193).
    mariadb_version_prefix: bool = true, BOOL, Live, "Announce the versions of MariaDB 10 with 5.5.5- before them, as these servers do. The text of server_version is announced as it stands.";
    server_capabilities: u64 = 569_867, count(11, 4_294_967_295), NoEffect("the greeting announces what the proxy can do"), "Capability bits that the greeting announces.";
    default_authentication_plugin: AuthPlugin = AuthPlugin::MysqlNativePassword, AuthPlugin::KIND, Live, "Authentication plugin that the greeting announces.";
    default_schema: String = "", TEXT, Live, "Schema of a session when neither the client nor its user names one.";
    default_charset: String = "utf8", Kind::Text(TextRule::Charset), NoEffect("the greeting announces the backends' own collation"), "Character set that the greeting announces.";
    default_collation_connection: String = "utf8_general_ci", TEXT, NoEffect("the greeting announces the backends' own collation"), "Collation that the greeting announces; must belong to default_charset.";
    handle_unknown_charset: u64 = 1, count(0, 3), Live, "For a client whose handshake names a collation that the servers do not know: 0 refuse it (error 1273); 1 use the servers' default, and log it once for each collation and worker; 2 and 3 use the default.";
    have_ssl: bool = true, BOOL, Live, "Offer TLS to clients.";
    require_secure_transport: bool = false, BOOL, Live, "Clients log in with TLS or over a Unix socket only; others are told 3159.";
    tls_min_version: TlsVersion = TlsVersion::V1_2, TlsVersion::KIND, Live, "Least version of TLS that clients may use: TLSv1.2, TLSv1.3. Another one is told 3159.";
    have_compress: bool = true, BOOL, Live, "Offer compression to clients.";
    // ProxySQL's default is 3; servers use 6. Its -1, which is 6, is none here.
    protocol_compression_level: u64 = 6, count(0, 9), Live, "zlib level of what connections that begin from then on are sent compressed, to clients and to servers: 0 stores, 1 is fastest, 9 smallest.";
    protocol_zstd_level_max: u64 = 3, count(1, 22), Live, "Highest zstd level at which a client gets what it is sent, whatever it asks for: level 22 takes a thousand times as long as 3.";
    enable_client_deprecate_eof: bool = true, BOOL, Live, "Offer CLIENT_DEPRECATE_EOF to clients.";
    client_session_track_gtid: bool = true, BOOL, Live, "Tell clients that ask for them (session_track_gtids, MySQL) the GTIDs of their writes.";
    proxy_protocol_networks: String = "", Kind::Text(TextRule::Networks), Live, "Networks whose connections may begin with a PROXY protocol header: address/bits separated by commas, '*' for all.";
    forward_administrative_commands: bool = false, BOOL, Live, "Pass COM_SHUTDOWN and COM_DEBUG on to servers; rules and the firewall judge them as SHUTDOWN and DEBUG.";
    use_tcp_keepalive: bool = true, BOOL, Live, "Switch TCP keepalive on, on both sides.";
    tcp_keepalive_time: u64 = 120, secs(0, 7_200), Live, "Silence before the first TCP keepalive; 0 leaves it to the system.";
    tcp_keepalive_interval: u64 = 15, secs(0, 7_200), Live, "Time between TCP keepalives that are not answered; 0 leaves it to the system (Linux: 75 s).";
    tcp_keepalive_probes: u64 = 4, count(0, 127), Live, "TCP keepalives without an answer after which the other side is taken for gone; 0 leaves it to the system (Linux: 9).";
    client_host_cache_size: u64 = 0, count(0, 1_048_576), Live, "Client addresses whose failed logins are counted; the one that failed longest ago goes first. 0 counts none.";
    client_host_error_counts: u64 = 0, count(0, 1_048_576), Live, "Logins that failed or were not finished in time, after which connections from an address are closed at once.";
    throttle_max_bytes_per_second_to_client: u64 = 0, bytes(0, 2_147_483_647), Live, "Bytes a second that each client is sent at most, and its results read from a backend; 0 means no limit.";
    throttle_ratio_server_to_client: u64 = 0, PERCENT, NoEffect("a backend is read only as fast as its client is sent to"), "While a client is throttled: how far reading from the backend is slowed too.";
    enable_load_data_local_infile: bool = true, BOOL, Live, "Allow LOAD DATA LOCAL INFILE, for sessions that begin from then on: a client is told at its login. The client's own file is streamed; the proxy's disk is never read.";

    // Backends: connecting
    connect_timeout_server: u64 = 1_000, ms(10, 120_000), Live, "Longest that one connect to a backend, or one reset of a connection, may take.";
    connect_timeout_server_max: u64 = 10_000, ms(10, 3_600_000), Live, "Longest that a query waits for a backend connection before it gets error 9001.";
    connect_retries_on_failure: u64 = 10, count(0, 1_000), NoEffect("connects are tried until connect_timeout_server_max is over"), "Further connects that are tried for one query after a failed one.";
    connect_retries_delay: u64 = 1, ms(0, 10_000), NoEffect("the pause grows with each failed connect"), "Pause between those connects.";
    throttle_connections_per_sec_to_hostgroup: u64 = 1_000_000, count(1, 100_000_000), Live, "New backend connections a second in each hostgroup; queries wait beyond it.";
    init_connect: String = "", NULLABLE, Live, "SQL that is run once on every new backend connection.";
    enable_server_deprecate_eof: bool = true, BOOL, Live, "Use CLIENT_DEPRECATE_EOF with backends.";
    default_session_track_gtids: SessionTrackGtids = SessionTrackGtids::Off, SessionTrackGtids::KIND, Live, "session_track_gtids of a session that has not set it itself (MySQL): OFF or OWN_GTID.";
    ssl_p2s_ca: String = "", NULLABLE, Live, "File of CAs that backend certificates are checked against.";
    ssl_p2s_capath: String = "", NULLABLE, Live, "Directory of such CAs.";
    ssl_p2s_cert: String = "", NULLABLE, Live, "Client certificate shown to backends.";
    ssl_p2s_key: String = "", NULLABLE, Live, "Key of that certificate.";
    ssl_p2s_cipher: String = "", NULLABLE, Live, "Ciphers for backends, separated by ':'.";
    ssl_p2s_crl: String = "", NULLABLE, Live, "File of revoked backend certificates.";
    ssl_p2s_crlpath: String = "", NULLABLE, Live, "Directory of such files.";

    // Backends: keeping and choosing
    ping_interval_server_msec: u64 = 10_000, ms(1_000, 604_800_000), Live, "Idle backend connections are pinged this often.";
    ping_timeout_server: u64 = 200, ms(10, 600_000), Live, "Longest such a ping may take.";
    free_connections_pct: u64 = 10, PERCENT, Live, "Share of a server's max_connections that is kept idle; 0 keeps none.";
    connection_max_age_ms: u64 = 0, ms(0, 86_400_000), Live, "Idle backend connections older than this are closed; 0 means never.";
    reconnect_after_grants: bool = true, BOOL, Live, "Close idle backend connections once GRANT, REVOKE or their like ran through the proxy: servers keep the rights of older connections.";
    connection_warming: bool = false, BOOL, Live, "Open connections ahead of need, up to free_connections_pct of max_connections, beside the statements that run.";
    shun_on_failures: u64 = 5, count(0, 10_000_000), NoEffect("a failing server is left alone for a pause that grows"), "Failed connects within a second that shun a server.";
    shun_recovery_time_sec: u64 = 10, secs(0, 31_536_000), NoEffect("a failing server is left alone for a pause that grows"), "A shunned server is tried again after this.";
    unshun_algorithm: u64 = 0, count(0, 1), NoEffect("a server is watched once, for all its hostgroups"), "1: a server readmitted in one hostgroup is readmitted in all.";
    default_max_latency_ms: u64 = 1_000, ms(0, 1_728_000_000), Live, "Servers whose ping takes longer are not chosen, when their row says nothing.";
    min_num_servers_lantency_awareness: u64 = 1_000, count(0, 10_000), Live, "With at least this many candidates, those slower than average are left out.";
    aurora_max_lag_ms_only_read_from_replicas: u64 = 2, count(0, 100), Live, "With at least this many candidates, lag-limited reads avoid the Aurora writer.";
    evaluate_replication_lag_on_servers_load: u64 = 1, count(0, 1), NoEffect("what was observed of a server outlives a LOAD"), "1: a server shunned for lag stays so when servers are loaded.";
    connpoll_reset_queue_length: u64 = 50, count(0, 10_000), NoEffect("connections are reset by the worker that owns them"), "Length of the queue of connections to reset.";
    reset_connection_algorithm: u64 = 2, count(1, 2), ONE_ALGORITHM, "How connections are reset.";
    max_stmts_per_connection: u64 = 20, count(1, 1_024), Live, "Prepared statements kept on one backend connection.";
    max_stmts_cache: u64 = 10_000, count(128, 1_048_576), Live, "Prepared statements remembered in all.";

    // Multiplexing and sessions
    multiplexing: bool = true, BOOL, Live, "Share backend connections between sessions; false gives every session its own.";
    connection_delay_multiplex_ms: u64 = 0, ms(0, 300_000), Live, "A session keeps its backend connection this long after a query.";
    // ProxySQL's default is 5. Here the last insert id is session state, so nothing needs to be delayed.
    auto_increment_delay_multiplex: u64 = 0, count(0, 1_000_000), Live, "Queries for which a session keeps its backend after an insert id was returned.";
    auto_increment_delay_multiplex_timeout_ms: u64 = 10_000, ms(0, 3_600_000), Live, "... but at most this long; 0 means no limit.";
    keep_multiplexing_variables: String = "tx_isolation,transaction_isolation,version", TEXT, NoEffect("reading a variable never pins a session"), "Variables that may be read without keeping the backend.";
    last_insert_id_in_triggers: bool = true, BOOL, Live, "Give a connection the session's LAST_INSERT_ID() before each INSERT, UPDATE, DELETE or REPLACE, where another session's is there: triggers may read it. Costs such writes one short SET in the same packet; false where no trigger does.";
    carry_user_variables_max_length: u64 = 4_096, count(0, 16_384), Live, "User variables that a statement computes are asked for when it is over, and carried to other connections, so that the session need not keep its own: values of so many bytes at most; 0 asks for none.";
    kill_backend_connection_when_disconnect: bool = true, BOOL, Live, "Kill the running query on the backend when its client has gone.";
    max_transaction_idle_time: u64 = 14_400_000, ms(1_000, 1_728_000_000), Live, "A client idle within a transaction is closed after this.";
    max_transaction_time: u64 = 14_400_000, ms(1_000, 1_728_000_000), Live, "A client whose transaction lasts longer is closed.";
    set_query_lock_on_hostgroup: u64 = 1, count(0, 1), NoEffect("a SET that cannot be followed pins the session and never fails it"), "1: a SET that cannot be parsed ties the session to its hostgroup.";
    set_parser_algorithm: u64 = 2, count(1, 2), ONE_ALGORITHM, "How SET is parsed.";
    enforce_autocommit_on_reads: bool = false, BOOL, Live, "With autocommit=0, a plain read that a rule sends to another hostgroup begins a transaction all the same, where the rules would send a BEGIN; false runs it with autocommit=1 where the rule says.";
    autocommit_false_not_reusable: bool = false, BOOL, ANY_STATE, "Do not share connections that have autocommit=0.";
    autocommit_false_is_transaction: bool = false, BOOL, Live, "A session with autocommit=0 counts as in a transaction even before it begins one: until autocommit=1 it keeps its backend, where the rules would send a BEGIN.";
    handle_warnings: u64 = 1, count(0, 1), Live, "1: warnings are read before the connection is lent on, so that SHOW WARNINGS has them later; 0: a session that gives its connection back forgets them, which saves a round trip.";
    session_track_variables: u64 = 0, count(0, 2), NoEffect("what servers tell of session variables is always followed, beside what SET says"), "Servers are asked to tell of session variables: 0 never, 1 where they can, 2 always.";
    fast_forward_grace_close_ms: u64 = 5_000, ms(0, 3_600_000), NoEffect("what a server sent last is relayed before its connection counts as closed"), "How long a fast_forward session whose server closed may go on sending to its client.";
    session_idle_ms: u64 = 1, ms(1, 3_600_000), NO_IDLE_THREADS, "Idle time before a session moves to an idle thread.";
    session_idle_show_processlist: bool = true, BOOL, NO_IDLE_THREADS, "List sessions of idle threads.";
    sessions_sort: bool = true, BOOL, NoEffect("sessions are served in the order of their events"), "Serve older sessions first.";
    poll_timeout: u64 = 2_000, ms(10, 20_000), POLL, "Longest wait of a worker.";
    poll_timeout_on_failure: u64 = 100, ms(10, 20_000), POLL, "Longest wait of a worker that waits for a backend.";

    // Queries
    default_query_timeout: u64 = 86_400_000, ms(1_000, 1_728_000_000), Live, "A query that runs longer is killed on its backend.";
    default_query_delay: u64 = 0, ms(0, 3_600_000), Live, "Every query is delayed by this.";
    query_retries_on_failure: u64 = 1, count(0, 1_000), Live, "Times a query that was lost with its server, or elsewhere than in a cluster failed, may be tried on another connection, where that is safe.";
    long_query_time: u64 = 1_000, ms(0, 1_728_000_000), Live, "Slower queries count as slow.";
    threshold_query_length: u64 = 524_288, bytes(1_024, 1_073_741_824), NoEffect("a long query leaves nothing behind on its connection"), "A connection that ran a longer query is not shared.";
    threshold_resultset_size: u64 = 4_194_304, bytes(1_024, 1_073_741_824), STREAMED, "Result bytes that are buffered before streaming begins.";
    query_processor_iterations: u64 = 0, count(0, 1_000_000), Live, "Times that rules may start over after a flagOUT.";
    query_processor_regex: u64 = 1, count(1, 2), Live, "Regular expression dialect of rules: 1 PCRE, 2 RE2.";
    query_rules_fast_routing_algorithm: u64 = 1, count(1, 2), ONE_ALGORITHM, "How the fast routing map is kept.";
    mirror_max_concurrency: u64 = 16, count(1, 8_192), Live, "Mirrored statements that run at a time, in all workers.";
    mirror_max_queue_length: u64 = 32_000, count(0, 1_048_576), Live, "Mirrored statements that may wait in each worker; more are dropped and counted.";
    default_reconnect: bool = true, BOOL, UNUSED, "Kept for compatibility.";

    // Digests and statistics
    commands_stats: bool = true, BOOL, Live, "Count statements by kind.";
    servers_stats: bool = true, BOOL, UNUSED, "Kept for compatibility.";
    query_digests: bool = true, BOOL, Live, "Keep statistics by digest.";
    query_digests_lowercase: bool = false, BOOL, Live, "Lower-case digests.";
    query_digests_replace_null: bool = false, BOOL, Live, "Write NULL as ? in digests.";
    query_digests_no_digits: bool = false, BOOL, Live, "Write digits within names as ? in digests.";
    query_digests_normalize_digest_text: bool = false, BOOL, NoEffect("a digest's text is always shared by the rows that show it"), "Keep each digest's text once.";
    query_digests_track_hostname: bool = false, BOOL, Live, "Count digests by client address too.";
    query_digests_percentiles: bool = true, BOOL, Live, "Count how the times of each digest are spread (stats_tidegate_query_digest), once it has run 16 times on a worker; 192 bytes each.";
    query_digests_keep_comment: bool = false, BOOL, Live, "Keep comments in digests.";
    query_digests_max_digest_length: u64 = 2_048, bytes(16, 1_048_576), Live, "Bytes of a digest's text that are kept and shown. The hash, and rules by match_digest, are about the whole text.";
    query_digests_max_query_length: u64 = 65_000, bytes(16, 1_048_576), Live, "Bytes of a prepared statement's text that stats_mysql_prepared_statements_info shows.";
    // Tidegate's own
    query_digests_max_match_length: u64 = 16_777_216, bytes(65_536, 1_073_741_824), Live, "Bytes of a digest's text that match_digest reads. A statement with a longer one is refused if a rule with match_digest applies to its user, schema and address.";
    query_digests_grouping_limit: u64 = 3, count(1, 2_089), Live, "Values of a list that a digest keeps.";
    query_digests_groups_grouping_limit: u64 = 10, count(0, 2_089), Live, "Row groups that a digest keeps; 0 keeps all.";
    stats_time_backend_query: bool = false, BOOL, Live, "Measure time from when a statement was sent to a backend to the end of its reply (Backend_query_time_nsec).";
    stats_time_query_processor: bool = false, BOOL, Live, "Measure time spent on rules (Query_Processor_time_nsec).";
    show_processlist_extended: u64 = 0, count(0, 2), Live, "Session details in the process list: 0 none, 1 JSON, 2 indented JSON.";
    // ProxySQL's default is 2 MiB.
    processlist_max_query_length: u64 = 4_096, bytes(1_024, 33_554_432), Live, "Bytes of a running statement that the process list shows; more than 4096 are not kept.";
    data_packets_history_size: u64 = 0, count(0, 2_147_483_647), NotYet, "Packets of each connection kept for debugging.";

    // Query cache
    query_cache_size_MB: u64 = 256, mebibytes(0, 10_485_760), Live, "Most memory for cached results and what goes with them; 0 switches the cache off.";
    query_cache_soft_ttl_pct: u64 = 0, PERCENT, Live, "After this share of its life a cached result is refreshed by one client while others still read it; 0 is off.";
    query_cache_handle_warnings: u64 = 0, count(0, 1), Live, "1: results with warnings are cached too; who gets one from the cache is told of no warnings.";
    query_cache_stores_empty_result: bool = true, BOOL, Live, "Cache empty results, when the rule says nothing.";
    // Tidegate's own
    query_cache_max_entry_bytes: u64 = 1_048_576, bytes(1_024, 1_073_741_824), Live, "A result larger than this is not cached.";
    query_cache_wait_ms: u64 = 1_000, ms(0, 3_600_000), Live, "While one client fetches a result for the cache, others with the same statement wait for it this long, then ask a server themselves; 0 does not wait.";

    // Logs
    eventslog_filename: String = "", Kind::Text(TextRule::FileBase), Live, "Base name of the query log, relative to datadir; empty is off.";
    eventslog_filesize: u64 = 104_857_600, bytes(1_048_576, 1_073_741_824), Live, "Size at which the query log begins a new file.";
    eventslog_default_log: u64 = 0, count(0, 1), Live, "1: log queries that no rule decides about.";
    eventslog_format: u64 = 1, count(1, 2), Live, "Query log format: 1 binary, 2 JSON lines.";
    eventslog_hide_literals: bool = false, BOOL, Live, "The query log has statements by their digest text, without any literal, and errors without what stands in quotes.";
    eventslog_stmt_parameters: u64 = 0, count(0, 1), NotYet, "1: log the parameters of prepared statements too.";
    eventslog_buffer_history_size: u64 = 0, count(0, 8_388_608), Live, "Logged queries that are kept in memory for DUMP EVENTSLOG, the newest; 0 keeps none.";
    eventslog_table_memory_size: u64 = 10_000, count(0, 8_388_608), Live, "Rows of stats_mysql_query_events; older ones make room.";
    eventslog_buffer_max_query_length: u64 = 32_768, bytes(128, 33_554_432), Live, "Bytes of a query's text that are kept in memory for DUMP EVENTSLOG.";
    slowlog_filename: String = "", Kind::Text(TextRule::FileBase), Live, "Base name of the slow log, relative to datadir; empty is off.";
    slowlog_filesize: u64 = 104_857_600, bytes(1_048_576, 1_073_741_824), Live, "Size at which the slow log begins a new file.";
    slowlog_threshold_ms: u64 = 1_000, ms(0, 86_400_000), Live, "The slow log has statements that took so long or longer, whatever rules say of the query log.";
    auditlog_filename: String = "", Kind::Text(TextRule::FileBase), Live, "Base name of the audit log, relative to datadir; empty is off.";
    auditlog_filesize: u64 = 104_857_600, bytes(1_048_576, 1_073_741_824), Live, "Size at which the audit log begins a new file.";
    log_mysql_warnings_enabled: bool = false, BOOL, Live, "Read the warnings of every statement that has some, and write them to the log.";
    log_unhealthy_connections: bool = true, BOOL, Live, "Log clients that broke off, did not log in or read in time, or broke the protocol.";
    verbose_query_error: bool = false, BOOL, Live, "Write errors of statements to the log, with user, schema, client and digest. Otherwise they are counted only (stats_mysql_errors).";
    hostgroup_manager_verbose: u64 = 1, count(0, 3), NotYet, "How much is logged when servers change.";
    parse_failure_logs_digest: bool = false, BOOL, NoEffect("a SET that cannot be parsed pins the session and is not logged"), "Log the digest, not the text, of a SET that cannot be parsed.";

    // Firewall, LDAP, GTID readers
    automatic_detect_sqli: bool = false, BOOL, NotYet, "Look for SQL injection in every query.";
    firewall_whitelist_enabled: bool = false, BOOL, Live, "Switch the firewall on.";
    firewall_whitelist_errormsg: String = "Firewall blocked this query", TEXT, Live, "Text of the error for a blocked query.";
    ldap_user_variable: String = "", NULLABLE, NotYet, "Session variable that is given the LDAP user's name.";
    add_ldap_user_comment: String = "", NULLABLE, NotYet, "Key of a comment with the LDAP user's name.";
    ignore_min_gtid_annotations: bool = false, BOOL, Live, "Statements do not wait for what min_gtid in their comment names.";
    binlog_reader_connect_retry_msec: u64 = 3_000, ms(200, 120_000), NoEffect("servers are asked to wait for GTIDs; there are no readers"), "Pause before a GTID reader is connected again.";

    // Monitor
    monitor_enabled: bool = true, BOOL, Live, "Probe servers.";
    monitor_username: String = "monitor", Kind::Text(TextRule::NonEmpty), Live, "User that probes log in as.";
    monitor_password: Secret = "monitor", Kind::Secret(TextRule::Any), Live, "Its password.";
    monitor_password_file: String = "", NULLABLE, Live, "File that holds it, read again when it changes; empty: monitor_password holds.";
    monitor_history: u64 = 7_200_000, ms(1_000, 604_800_000), Live, "How long probe results are kept.";
    monitor_connect_interval: u64 = 120_000, ms(100, 604_800_000), Live, "Time between connect probes.";
    monitor_connect_timeout: u64 = 600, ms(100, 600_000), Live, "Longest that a connect probe may take.";
    monitor_ping_interval: u64 = 8_000, ms(100, 604_800_000), Live, "Time between ping probes.";
    monitor_ping_max_failures: u64 = 3, count(1, 1_000_000), Live, "Missed pings in a row that shun a server.";
    monitor_ping_timeout: u64 = 1_000, ms(100, 600_000), Live, "Longest that a ping probe may take.";
    monitor_aws_rds_topology_discovery_interval: u64 = 0, count(0, 100_000), Live, "Every so many read_only intervals, RDS servers of replication hostgroups are asked for the instances of their Multi-AZ DB cluster; 0 is off.";
    monitor_read_only_interval: u64 = 1_000, ms(100, 604_800_000), Live, "Time between read_only probes.";
    monitor_read_only_timeout: u64 = 800, ms(100, 600_000), Live, "Longest that a read_only probe may take.";
    monitor_read_only_max_timeout_count: u64 = 3, count(1, 1_000_000), Live, "Timeouts in a row after which a server counts as read-only.";
    monitor_replication_channel: String = "", Kind::Text(TextRule::Any), Live, "Name of the replication channel (MariaDB: connection) whose lag counts on servers that have it; empty is those from servers of the own cluster, else all.";
    replication_channel_username: String = "", NULLABLE, Live, "User that channels of mysql_replication_channels log in to their sources as, where a server has to be told; empty leaves it to what the servers know.";
    replication_channel_password: Secret = "", Kind::Secret(TextRule::Any), Live, "Its password.";
    replication_channel_password_file: String = "", NULLABLE, Live, "File that holds it, read again when it changes; empty: replication_channel_password holds.";
    replication_channel_check_interval: u64 = 1_000, ms(100, 600_000), Live, "Time between looks at the channels of mysql_replication_channels; a change of roles is followed at once.";
    monitor_replication_lag_group_by_host: bool = false, BOOL, NoEffect("lag is probed once for each server, whatever hostgroups it is in"), "Probe lag once for each host.";
    monitor_replication_lag_interval: u64 = 10_000, ms(100, 604_800_000), Live, "Time between replication lag probes.";
    monitor_replication_lag_timeout: u64 = 1_000, ms(100, 600_000), Live, "Longest that a lag probe may take.";
    monitor_replication_lag_count: u64 = 1, count(1, 10), Live, "Lagging results in a row that shun a server.";
    monitor_replication_lag_use_percona_heartbeat: String = "", Kind::Text(TextRule::TableName), Live, "Heartbeat table, schema.table, that lag is read from.";
    monitor_slave_lag_when_null: u64 = 60, secs(0, 604_800), Live, "Lag that is assumed when a server reports none.";
    monitor_groupreplication_healthcheck_interval: u64 = 5_000, ms(100, 604_800_000), Live, "Time between Group Replication probes.";
    monitor_groupreplication_healthcheck_timeout: u64 = 800, ms(100, 600_000), Live, "Longest that one may take.";
    monitor_groupreplication_healthcheck_max_timeout_count: u64 = 3, count(1, 10), Live, "Timeouts in a row after which a member counts as offline.";
    monitor_groupreplication_max_transactions_behind_count: u64 = 3, count(1, 10), Live, "Lagging results in a row that shun a member.";
    monitor_groupreplication_max_transactions_behind_for_read_only: u64 = 1, count(0, 2), Live, "Members that are shunned for lag: 0 writers, 1 readers, 2 both.";
    monitor_galera_healthcheck_interval: u64 = 5_000, ms(50, 604_800_000), Live, "Time between Galera probes.";
    monitor_galera_healthcheck_timeout: u64 = 800, ms(50, 600_000), Live, "Longest that one may take.";
    monitor_galera_healthcheck_max_timeout_count: u64 = 3, count(1, 10), Live, "Timeouts in a row after which a node counts as offline.";
    monitor_query_interval: u64 = 60_000, ms(100, 604_800_000), UNUSED, "Kept for compatibility.";
    monitor_query_timeout: u64 = 100, ms(100, 600_000), UNUSED, "Kept for compatibility.";
    monitor_threads_min: u64 = 8, count(2, 256), NoEffect("probes are tasks, not threads"), "Fewest probe threads.";
    monitor_threads_max: u64 = 128, count(4, 1_024), NoEffect("probes are tasks, not threads"), "Most probe threads.";
    monitor_threads_queue_maxsize: u64 = 128, count(16, 1_024), NoEffect("probes are tasks, not threads"), "Waiting probes that start another thread.";
    monitor_local_dns_cache_ttl: u64 = 300_000, ms(0, 604_800_000), Live, "How long a resolved name is kept; 0 keeps none.";
    monitor_local_dns_cache_refresh_interval: u64 = 60_000, ms(0, 604_800_000), Live, "Time between refreshes of resolved names; 0 is off.";
    monitor_local_dns_resolver_queue_maxsize: u64 = 128, count(16, 1_024), Live, "Names that may wait to be resolved.";
    monitor_wait_timeout: bool = true, BOOL, Live, "Set wait_timeout on probe connections.";
    monitor_writer_is_also_reader: bool = true, BOOL, Live, "A writer stays in the reader hostgroup too.";

    // Tidegate's own: roles, failover
    monitor_fast_interval: u64 = 20, ms(5, 60_000), Live, "Time between probes of a cluster that has no usable writer, or of which traffic says that something has changed.";
    monitor_events_max: u64 = 1_000, count(0, 1_000_000), Live, "Role changes that stats_tidegate_events keeps; beyond it the oldest go.";
    failback: Failback = Failback::Delayed, Failback::KIND, Live, "When the heaviest server becomes the writer again after another one took over: never, immediate, delayed, command.";
    second_writers: SecondWriters = SecondWriters::Configured, SecondWriters::KIND, Live, "Which servers of a replication cluster may write beside the one that does: configured (those written to the writer hostgroup, unless they replicate from one that writes), any (all that say read_only=0).";
    reads_to_writer_after_ms: u64 = 500, ms(0, 3_600_000), Live, "Reads that the read/write split sends to a reader hostgroup go to the writer while no server there takes work: those that wait after this time, and new ones at once. 0 lets them wait up to connect_timeout_server_max. The reader hostgroup's counts.";
    shun_stray_replicas: bool = true, BOOL, Live, "A server of a replication cluster (check_type read_only or super_read_only) that does not replicate from the writer, directly or through other servers of the cluster, is SHUNNED: it serves no reads, whatever max_replication_lag says. False lets it serve.";
    failback_delay_ms: u64 = 10_000, ms(0, 86_400_000), Live, "With failback=delayed: how long it must have been healthy.";
    server_ramp_ms: u64 = 10_000, ms(0, 3_600_000), Live, "The share of work of a server that came back grows to its weight over this time; 0 gives it all at once.";
    wait_for_buffer_pool_load: bool = false, BOOL, Live, "A server that was restarted is used only when its buffer pool has been loaded (Innodb_buffer_pool_load_status).";
    max_backend_connections_per_user: u64 = 0, count(0, 10_000_000), Live, "Most connections of one user to the servers of one hostgroup together, in all workers; 0 is no limit. Who finds all of them in use waits in order, up to connect_timeout_server_max.";
    max_transactions_behind: u64 = 0, count(0, 1_000_000_000), Live, "A replica of mysql_replication_hostgroups that lacks more transactions of its writer's is not read from, 0 is no limit: counted by GTIDs every monitor_replication_lag_interval, in monitor_replication_lag_count results in a row. The reader hostgroup's counts.";
    reader_floor: u64 = 1, count(0, 1_000), Live, "Readers that stay in use though they lag or their lag is unknown: those that lag least.";
    demotion_grace_ms: u64 = 5_000, ms(0, 3_600_000), Live, "An open transaction may go on for this long on a server that is not to be used any more, and any statement on one that is cut off, or that was lost on the way there; then its session gets an error.";
    drain_grace_ms: u64 = 5_000, ms(0, 3_600_000), Live, "A session that is pinned by something other than a transaction (temporary table, user lock, user variable, ...) may stay for this long on a server that drains: desync, donor, pxc_maint_mode, DRAIN SERVER; then it ends. Transactions may finish, and an OFFLINE_SOFT of mysql_servers ends nothing.";
    suspicion_ms: u64 = 1_000, ms(0, 60_000), Live, "A writer that refuses a write as read-only gets no new ones until it was probed, but at most this long.";
    transaction_replay: bool = false, BOOL, Live, "A transaction whose server is lost is done again on another, if every statement answers as it did before.";
    transaction_replay_max_bytes: u64 = 1_048_576, bytes(0, 1_073_741_824), Live, "Statements kept for that; a larger transaction is not replayed.";
    transaction_replay_timeout_ms: u64 = 10_000, ms(0, 3_600_000), Live, "Longest that a replay may take, with the wait for a server.";
    transaction_replay_head_start_ms: u64 = 500, ms(0, 60_000), Live, "While transactions are replayed in a hostgroup others begin nothing there, so that AUTO_INCREMENT values stay free: for this long at most after the first replay has a server; then nobody waits for replays for as long.";
    transaction_replay_conflicts: bool = false, BOOL, Live, "Replay also what ended by a deadlock (1213) or a conflict that certification found (Galera, Group Replication).";
    settle_lost_writes: bool = false, BOOL, Live, "Choose the GTID of a write beforehand (MySQL replication, Group Replication), so that one whose answer was lost is looked up on the new writer, and answered or sent again.";
    causal_reads: CausalReads = CausalReads::Off, CausalReads::KIND, Live, "Whether reads wait until a replica has what was written before: off; session: what the same session wrote; token: also what a token names (SET TIDEGATE GTID).";
    causal_reads_timeout_ms: u64 = 100, ms(1, 60_000), Live, "How long a replica is waited for; then the writer serves.";
    switchover_manages_read_only: bool = false, BOOL, Live, "SWITCHOVER sets read_only on both servers, as the monitor's user.";
    switchover_timeout_ms: u64 = 10_000, ms(100, 3_600_000), Live, "Longest that a SWITCHOVER without a TIMEOUT may take; then it is undone.";

    // Tidegate's own
    connect_concurrency: u64 = 16, count(1, 10_000), Live, "Connects to one server that may be in progress at a time; the rest wait in order.";
    connection_growth_delay_us: u64 = 10_000, us(0, 10_000_000), Live, "When a hostgroup has connections but none is free, one more is opened when queries have waited for so long without a break; at once where half as many wait as there are connections.";
    adaptive_connections: bool = true, BOOL, Live, "Learn how many connections to a server help, and open no more (stats_tidegate_pool_sizing). Otherwise connections are opened as long as queries wait for them.";
    max_queries_per_second: u64 = 0, count(0, 100_000_000), Live, "Statements of a user that are let through each second, a tenth of a second's at once; 0 is no limit. A query rule has a limit of its own in its attributes.";
    max_queries_wait_ms: u64 = 1_000, ms(0, 3_600_000), Live, "A statement waits so long to be let through by max_queries_per_second; one that would have to wait longer gets error 1226.";
    free_connections_ms: u64 = 5_000, ms(0, 86_400_000), Live, "An idle connection that no query has used for so long is closed, but for one of each user and thread; 0 keeps as many as free_connections_pct allows. With connection_warming none is closed so.";
    drain_timeout: u64 = 10_000, ms(0, 3_600_000), Live, "After SIGTERM sessions may finish for this long.";
    prepared_metadata_max_age: u64 = 5_000, ms(0, 3_600_000), Live, "Remembered metadata of a prepared statement answers a PREPARE for this long; 0 always asks a backend.";
    max_stmts_bytes_per_client: u64 = 67_108_864, bytes(65_536, 1_099_511_627_776), Live, "Bytes of text that the prepared statements of one client may have together, where it has more than one; beyond it a PREPARE gets error 1461.";
    frontend_window: u64 = 65_536, bytes(4_096, 16_777_216), Live, "Result bytes that may wait for a slow client before reading from its backend pauses.";
    query_digests_max_entries: u64 = 100_000, count(0, 10_000_000), Live, "Rows that statistics by digest may have; beyond it those used longest ago go, and are counted.";
    query_digests_memory_max_mb: u64 = 256, mebibytes(1, 1_048_576), Live, "Memory that statistics by digest may take, in all.";
    log_queue_max_mb: u64 = 16, mebibytes(1, 4_096), Live, "What may wait to be written of the query log, of the audit log, and of the error log; more is dropped and counted.";
    log_lines_per_second: u64 = 200, count(0, 1_000_000), Live, "Lines of one kind that the error log takes in a second; one line tells how many more there were. 0: all.";
    trace_endpoint: String = "", Kind::Text(TextRule::HttpUrl), Live, "Where traces go, by OTLP over HTTP (protobuf): the URL of a receiver, to which /v1/traces is added where it names no path. Empty: as OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT says, and nowhere if there is neither.";
    trace_headers: Secret = "", Kind::Secret(TextRule::Pairs), Live, "Headers that the receiver of traces is sent, such as a key. Empty: as OTEL_EXPORTER_OTLP_HEADERS says.";
    trace_headers_file: String = "", NULLABLE, Live, "File that holds them, read again when it changes; empty: trace_headers holds.";
    trace_ca: String = "", NULLABLE, Live, "File of the CA that the receiver's certificate is checked against; empty: those of the system.";
    trace_service_name: String = "", TEXT, Live, "service.name of the proxy in traces. Empty: as OTEL_SERVICE_NAME says, else tidegate.";
    trace_resource_attributes: String = "", Kind::Text(TextRule::Pairs), Live, "Further attributes of the proxy in traces. Empty: as OTEL_RESOURCE_ATTRIBUTES says.";
    trace_sample_ratio: String = "0.01", Kind::Text(TextRule::Ratio), Live, "Share of the statements that are traced, of those whose client says nothing of a trace; what a client's traceparent says of sampling goes before it.";
    trace_slow_ms: u64 = 1_000, ms(0, 31_536_000_000), Live, "A statement that takes so long is traced in any case, as are those that fail, are sent again, replayed, or held for a server; 0: slowness is no reason.";
    trace_unsampled_parents: bool = false, BOOL, Live, "Trace statements whose client names a span and says that its trace is not sampled, too. MySQL Connector/Python says so of each span.";
    trace_lift_comments: bool = false, BOOL, Live, "Take traceparent and tracestate out of the comment that a statement ends or begins with, before it is looked at: servers get it without them. So statements with a comment of their own each time share digests, prepared statements and cached results.";
    trace_max_per_second: u64 = 200, count(1, 1_000_000), Live, "Statements that are traced in a second at most, whatever the reason; more are counted and not traced.";
    trace_queue_size: u64 = 4_096, count(1, 1_000_000), Live, "Traced statements that may wait to be sent; more are dropped and counted.";
    trace_timeout_ms: u64 = 5_000, ms(10, 600_000), Live, "How long the receiver may take to answer.";
    client_multi_statements: bool = true, BOOL, Live, "Let clients send several statements in one command.";
    backend_ssl_verify: BackendSslVerify = BackendSslVerify::Off, BackendSslVerify::KIND, Live, "How far backends' certificates are checked: off, ca (signed by a known CA), identity (and names the host).";
}
