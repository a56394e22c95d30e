//! `stats_mysql_global` and `stats_memory_metrics`: one list of numbers, which feeds the metrics too.
//!
//! What ProxySQL lists and Tidegate has no use for is there as 0, so that dashboards find it. What other parts of the
//! process know (monitor, SQLite) they publish themselves.

use super::totals::Totals;
use super::{Rows, Table};
use crate::net::buffer::grown_bytes;
use crate::stats::ProxyStats;
use model::stats::MetricKind::{self, Counter, Gauge};
use model::stats::{Reading, StatsSchema, StatsTable, stat};
use std::sync::atomic::Ordering;

/// See the module.
pub(super) const TABLES: &[Table] = &[
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_global",
            columns: &[stat("Variable_Name", "VARCHAR"), stat("Variable_Value", "VARCHAR")],
            primary_key: &["Variable_Name"],
            has_reset: false,
            help: "Counters and gauges of the whole process",
        },
        rows: |stats, _| {
            let mut all = rows(stats, GLOBAL);
            all.extend(stats.shared.cache.values().map(|(name, value)| vec![name.into(), value.to_string().into()]));
            all.push(vec!["mysql_listener_paused".into(), is_paused(stats).to_string().into()]);
            all
        },
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_memory_metrics",
            columns: &[stat("Variable_Name", "VARCHAR"), stat("Variable_Value", "VARCHAR")],
            primary_key: &["Variable_Name"],
            has_reset: false,
            help: "Memory by purpose, in bytes",
        },
        rows: |stats, _: Reading| rows(stats, MEMORY),
    },
];

/// Whether clients are not accepted.
pub(super) fn is_paused(stats: &ProxyStats) -> bool {
    stats.shared.listening.load(Ordering::Relaxed) == 0
}

fn rows(stats: &ProxyStats, list: &[Number]) -> Rows {
    let totals = Totals::read(stats);
    let shown = list.iter().filter(|number| !number.name.is_empty());
    shown.map(|number| vec![number.name.into(), (number.value)(&totals).to_string().into()]).collect()
}

/// A number: its name in the table (empty: a metric only), and as a metric (None: in the table only).
pub(super) struct Number {
    /// Name in the table.
    pub name: &'static str,
    /// Name, kind, label, what it counts.
    pub metric: Option<NumberMetric>,
    /// The number.
    pub value: fn(&Totals) -> u64,
}

/// A number as a metric.
pub(super) struct NumberMetric {
    /// Its name; several numbers may share one, with different labels.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// Its label.
    pub label: Option<(&'static str, &'static str)>,
    /// One line for people.
    pub help: &'static str,
}

/// A number of the table that is a metric too.
const fn both(
    name: &'static str,
    (metric, kind, help): (&'static str, MetricKind, &'static str),
    label: Option<(&'static str, &'static str)>,
    value: fn(&Totals) -> u64,
) -> Number {
    Number { name, metric: Some(NumberMetric { name: metric, kind, label, help }), value }
}

/// A number of the table only.
const fn only(name: &'static str, value: fn(&Totals) -> u64) -> Number {
    Number { name, metric: None, value }
}

const NONE: fn(&Totals) -> u64 = |_| 0;
/// The help of a number that dashboards read and nothing here counts. The page of metrics lists those that begin so apart.
const NOT_COUNTED: &str = "Always 0: not counted";
/// The help of a number of actions that the proxy never takes.
const NOT_DONE: &str = "Always 0: the proxy never does this";

/// Families with several labels.
const CLIENTS: (&str, MetricKind, &str) = ("proxysql_client_connections_total", Counter, "Client connections");
const SERVERS: (&str, MetricKind, &str) = ("proxysql_server_connections_total", Counter, "Connections to servers");
const BACKEND_BYTES: (&str, MetricKind, &str) =
    ("proxysql_queries_backends_bytes_total", Counter, "Bytes of packets between the proxy and servers");
const FRONTEND_BYTES: (&str, MetricKind, &str) =
    ("proxysql_queries_frontends_bytes_total", Counter, "Bytes of packets between clients and the proxy");
const BACKEND_STMT: (&str, MetricKind, &str) =
    ("proxysql_com_backend_stmt_total", Counter, "Commands about prepared statements sent to servers");
const FRONTEND_STMT: (&str, MetricKind, &str) =
    ("proxysql_com_frontend_stmt_total", Counter, "Commands about prepared statements from clients");
const MIRRORED: (&str, MetricKind, &str) = ("tidegate_mirrored_total", Counter, "Mirrored statements by outcome");
const MEMORY_REFUSALS: (&str, MetricKind, &str) =
    ("tidegate_memory_refusals_total", Counter, "Commands and logins refused because of mysql-memory_budget");
const PACED: (&str, MetricKind, &str) =
    ("tidegate_queries_paced_total", Counter, "Statements delayed or refused by max_queries_per_second");
const LOG_RECORDS: (&str, MetricKind, &str) =
    ("tidegate_log_records_total", Counter, "Records of the query, slow and audit logs, by outcome");
const TRACE_SPANS: (&str, MetricKind, &str) = ("tidegate_trace_spans_total", Counter, "Spans by outcome");
const TRACE_BATCHES: (&str, MetricKind, &str) =
    ("tidegate_trace_batches_total", Counter, "Batches of spans that a receiver refused: retried or dropped");
const LOST_WRITES: (&str, MetricKind, &str) = ("tidegate_lost_writes_total", Counter, "Writes with a lost reply, by outcome");

const REPLAYS: (&str, MetricKind, &str) =
    ("tidegate_transaction_replays_total", Counter, "Transactions with a lost server, by outcome of their replay");

macro_rules! counted {
    ($field:ident) => {
        |t| t.census.counted.$field
    };
}

/// Every number, in ProxySQL's order, then Tidegate's own metrics.
pub(super) const GLOBAL: &[Number] = &[
    both("ProxySQL_Uptime", ("proxysql_uptime_seconds_total", Counter, "Seconds since the start"), None, |t| t.uptime_s),
    both("Active_Transactions", ("proxysql_active_transactions", Gauge, "Sessions in a transaction"), None, |t| t.census.transactions),
    both("Client_Connections_aborted", CLIENTS, Some(("status", "aborted")), |t| {
        t.census.counted.clients_aborted + t.census.counted.clients_refused
    }),
    both("Client_Connections_connected", ("proxysql_client_connections_connected", Gauge, "Clients connected"), None, |t| t.clients),
    both("Client_Connections_created", CLIENTS, Some(("status", "created")), counted!(clients)),
    both("Client_Connections_non_idle", ("proxysql_client_connections_non_idle", Gauge, "Clients with a running command"), None, |t| {
        t.census.busy
    }),
    both("Server_Connections_aborted", SERVERS, Some(("status", "aborted")), |t| t.of_servers(|s| s.totals.connects_failed)),
    both("Server_Connections_connected", ("proxysql_server_connections_connected", Gauge, "Connections to servers"), None, |t| {
        t.of_servers(|s| u64::from(s.used + s.free))
    }),
    both("Server_Connections_created", SERVERS, Some(("status", "created")), |t| t.of_servers(|s| s.totals.connects_ok)),
    both("Server_Connections_delayed", SERVERS, Some(("status", "delayed")), counted!(connects_throttled)),
    both("mysql_backend_buffers_bytes", ("proxysql_mysql_backend_buffers_bytes", Gauge, NOT_COUNTED), None, NONE),
    both("mysql_frontend_buffers_bytes", ("proxysql_mysql_frontend_buffers_bytes", Gauge, "Bytes of spare and grown buffers"), None, |t| {
        t.census.buffer_bytes + grown_bytes() as u64
    }),
    both("mysql_session_internal_bytes", ("proxysql_mysql_session_internal_bytes", Gauge, NOT_COUNTED), None, NONE),
    both("Com_autocommit", ("proxysql_com_autocommit_total", Counter, "SET autocommit from clients"), None, counted!(set_autocommits)),
    both("Com_autocommit_filtered", ("proxysql_com_autocommit_filtered_total", Counter, NOT_DONE), None, NONE),
    both("Com_commit", ("proxysql_com_commit_cnt_total", Counter, "COMMIT from clients"), None, counted!(commits)),
    both("Com_commit_filtered", ("proxysql_com_commit_cnt_filtered_total", Counter, NOT_DONE), None, NONE),
    both("Com_rollback", ("proxysql_com_rollback_total", Counter, "ROLLBACK from clients"), None, counted!(rollbacks)),
    both("Com_rollback_filtered", ("proxysql_com_rollback_filtered_total", Counter, NOT_DONE), None, NONE),
    both(
        "Com_backend_change_user",
        ("proxysql_com_backend_change_user_total", Counter, "Connections to servers that were reset"),
        None,
        counted!(resets),
    ),
    both(
        "Com_backend_init_db",
        ("proxysql_com_backend_init_db_total", Counter, "COM_INIT_DB to servers"),
        None,
        counted!(backend_init_dbs),
    ),
    both(
        "Com_backend_set_names",
        ("proxysql_com_backend_set_names_total", Counter, "Changes of session state sent to servers"),
        None,
        counted!(state_syncs),
    ),
    both("Com_frontend_init_db", ("proxysql_com_frontend_init_db_total", Counter, "COM_INIT_DB from clients"), None, counted!(init_dbs)),
    both("Com_frontend_set_names", ("proxysql_com_frontend_set_names_total", Counter, "SET NAMES from clients"), None, counted!(set_names)),
    both("Com_frontend_use_db", ("proxysql_com_frontend_use_db_total", Counter, "USE from clients"), None, counted!(use_dbs)),
    both("Com_backend_stmt_prepare", BACKEND_STMT, Some(("op", "prepare")), counted!(backend_prepares)),
    both("Com_backend_stmt_execute", BACKEND_STMT, Some(("op", "execute")), counted!(backend_executes)),
    both("Com_backend_stmt_close", BACKEND_STMT, Some(("op", "close")), counted!(backend_closes)),
    both("Com_frontend_stmt_prepare", FRONTEND_STMT, Some(("op", "prepare")), counted!(prepares)),
    both("Com_frontend_stmt_execute", FRONTEND_STMT, Some(("op", "execute")), counted!(executes)),
    both("Com_frontend_stmt_close", FRONTEND_STMT, Some(("op", "close")), counted!(closes)),
    both("Questions", ("proxysql_questions_total", Counter, "Commands from clients"), None, counted!(questions)),
    both("Slow_queries", ("proxysql_slow_queries_total", Counter, "Statements slower than long_query_time"), None, counted!(slow_queries)),
    both("GTID_consistent_queries", ("proxysql_gtid_consistent_queries_total", Counter, NOT_COUNTED), None, NONE),
    both("GTID_session_collected", ("proxysql_gtid_session_collected_total", Counter, NOT_COUNTED), None, NONE),
    both("Queries_backends_bytes_recv", BACKEND_BYTES, Some(("traffic_flow", "received")), |t| t.of_servers(|s| s.totals.bytes_received)),
    both("Queries_backends_bytes_sent", BACKEND_BYTES, Some(("traffic_flow", "sent")), |t| t.of_servers(|s| s.totals.bytes_sent)),
    both("Queries_frontends_bytes_recv", FRONTEND_BYTES, Some(("traffic_flow", "received")), counted!(bytes_from_clients)),
    both("Queries_frontends_bytes_sent", FRONTEND_BYTES, Some(("traffic_flow", "sent")), counted!(bytes_to_clients)),
    // As metrics they are seconds.
    only("Query_Processor_time_nsec", counted!(rules_ns)),
    only("Backend_query_time_nsec", counted!(backend_ns)),
    both(
        "ConnPool_get_conn_latency_awareness",
        ("proxysql_connpool_get_conn_success_latency_awareness_total", Counter, NOT_COUNTED),
        None,
        NONE,
    ),
    both(
        "ConnPool_get_conn_immediate",
        ("proxysql_connpool_get_conn_success_immediate_total", Counter, "Requests for a connection served at once"),
        None,
        immediate,
    ),
    both(
        "ConnPool_get_conn_success",
        ("proxysql_connpool_get_conn_success_total", Counter, "Requests for a connection that got one"),
        None,
        |t| t.census.counted.wants.saturating_sub(t.census.counted.wait_timeouts),
    ),
    both(
        "ConnPool_get_conn_failure",
        ("proxysql_connpool_get_conn_failure_total", Counter, "Requests for a connection that had to wait"),
        None,
        counted!(waits),
    ),
    both(
        "generated_error_packets",
        ("proxysql_generated_error_packets_total", Counter, "Errors that the proxy itself sent"),
        None,
        counted!(own_errors),
    ),
    both(
        "max_connect_timeouts",
        ("proxysql_max_connect_timeouts_total", Counter, "Statements that got no connection in time"),
        None,
        counted!(wait_timeouts),
    ),
    both("backend_lagging_during_query", ("proxysql_backend_lagging_during_query_total", Counter, NOT_COUNTED), None, NONE),
    both(
        "backend_offline_during_query",
        ("proxysql_backend_offline_during_query_total", Counter, "Connections lost while a statement ran"),
        None,
        counted!(backends_lost),
    ),
    both("queries_with_max_lag_ms", ("proxysql_queries_with_max_lag_total", Counter, NOT_COUNTED), None, NONE),
    both("queries_with_max_lag_ms__delayed", ("proxysql_queries_with_max_lag__delayed_total", Counter, NOT_COUNTED), None, NONE),
    both(
        "queries_with_max_lag_ms__total_wait_time_us",
        ("proxysql_queries_with_max_lag__total_wait_time_total", Counter, NOT_COUNTED),
        None,
        NONE,
    ),
    both(
        "mysql_unexpected_frontend_com_quit",
        ("proxysql_mysql_unexpected_frontend_com_quit_total", Counter, "Clients that left while a statement ran"),
        None,
        counted!(unexpected_quits),
    ),
    both(
        "mysql_unexpected_frontend_packets",
        ("proxysql_mysql_unexpected_frontend_packets_total", Counter, "Clients that broke the protocol"),
        None,
        counted!(unexpected_packets),
    ),
    both("hostgroup_locked_set_cmds", ("proxysql_hostgroup_locked_set_cmds_total", Counter, NOT_DONE), None, NONE),
    both("hostgroup_locked_queries", ("proxysql_hostgroup_locked_queries_total", Counter, NOT_DONE), None, NONE),
    both("Client_Connections_hostgroup_locked", ("proxysql_client_connections_hostgroup_locked", Gauge, NOT_DONE), None, NONE),
    both(
        "get_aws_aurora_replicas_skipped_during_query",
        ("proxysql_aws_aurora_replicas_skipped_during_query_total", Counter, NOT_COUNTED),
        None,
        NONE,
    ),
    both("automatic_detected_sql_injection", ("proxysql_automatic_detected_sql_injection_total", Counter, NOT_COUNTED), None, NONE),
    both("whitelisted_sqli_fingerprint", ("proxysql_whitelisted_sqli_fingerprint_total", Counter, NOT_COUNTED), None, NONE),
    both(
        "mysql_killed_backend_connections",
        ("proxysql_mysql_killed_backend_connections_total", Counter, "KILL CONNECTION sent to servers"),
        None,
        counted!(killed_connections),
    ),
    both(
        "mysql_killed_backend_queries",
        ("proxysql_mysql_killed_backend_queries_total", Counter, "KILL QUERY sent to servers"),
        None,
        counted!(killed_queries),
    ),
    both(
        "client_host_error_killed_connections",
        ("proxysql_client_host_error_killed_connections", Counter, "Clients refused because their address failed too often"),
        None,
        counted!(hosts_blocked),
    ),
    both("Mirror_concurrency", ("proxysql_mirror_concurrency", Gauge, "Mirrored statements running now"), None, |t| {
        t.census.mirrors_running
    }),
    both("Mirror_queue_length", ("proxysql_mirror_queue_lengths", Gauge, "Mirrored statements waiting now"), None, |t| {
        t.census.mirrors_waiting
    }),
    both("Mirror_done", MIRRORED, Some(("outcome", "done")), counted!(mirrors_done)),
    both("Mirror_errors", MIRRORED, Some(("outcome", "error")), counted!(mirrors_refused)),
    both("Mirror_failed", MIRRORED, Some(("outcome", "failed")), counted!(mirrors_failed)),
    both("Mirror_dropped", MIRRORED, Some(("outcome", "dropped")), counted!(mirrors_dropped)),
    both(
        "Selects_for_update__autocommit0",
        ("proxysql_selects_for_update__autocommit0_total", Counter, "Locking reads with autocommit=0"),
        None,
        counted!(locking_reads_without_autocommit),
    ),
    both("MySQL_Thread_Workers", ("proxysql_mysql_thread_workers", Gauge, "Worker threads"), None, |t| t.workers),
    both(
        "Access_Denied_Wrong_Password",
        ("proxysql_access_denied_wrong_password_total", Counter, "Logins with a wrong name or password"),
        None,
        counted!(denied_password),
    ),
    both(
        "Access_Denied_Max_Connections",
        ("proxysql_access_denied_max_connections_total", Counter, "Logins beyond mysql-max_connections"),
        None,
        counted!(denied_max_connections),
    ),
    both(
        "Access_Denied_Max_User_Connections",
        ("proxysql_access_denied_max_user_connections_total", Counter, "Logins beyond the user's max_connections"),
        None,
        counted!(denied_max_user_connections),
    ),
    both("MyHGM_myconnpoll_get", ("proxysql_myhgm_myconnpool_get_total", Counter, "Requests for a connection"), None, counted!(wants)),
    both(
        "MyHGM_myconnpoll_get_ok",
        ("proxysql_myhgm_myconnpool_get_ok_total", Counter, "Requests that an idle connection served"),
        None,
        immediate,
    ),
    both("MyHGM_myconnpoll_push", ("proxysql_myhgm_myconnpool_push_total", Counter, NOT_COUNTED), None, NONE),
    both("MyHGM_myconnpoll_destroy", ("proxysql_myhgm_myconnpool_destroy_total", Counter, NOT_COUNTED), None, NONE),
    both("MyHGM_myconnpoll_reset", ("proxysql_myhgm_myconnpool_reset_total", Counter, "Connections reset"), None, counted!(resets)),
    both("ConnPool_memory_bytes", ("proxysql_connpool_memory_bytes", Gauge, NOT_COUNTED), None, NONE),
    both("Stmt_Client_Active_Total", ("proxysql_stmt_client_active", Gauge, "Prepared statements that clients hold"), None, |t| {
        t.prepared.clients
    }),
    both(
        "Stmt_Client_Active_Unique",
        ("proxysql_stmt_client_active_unique", Gauge, "Distinct prepared statements that clients hold"),
        None,
        |t| t.prepared.clients_unique,
    ),
    both("Stmt_Server_Active_Total", ("proxysql_stmt_server_active", Gauge, "Statements prepared on servers"), None, |t| {
        t.prepared.servers
    }),
    both(
        "Stmt_Server_Active_Unique",
        ("proxysql_stmt_server_active_unique", Gauge, "Distinct statements prepared on servers"),
        None,
        |t| t.prepared.servers_unique,
    ),
    both("Stmt_Max_Stmt_id", ("proxysql_stmt_max_stmt_id", Gauge, "Largest number of a prepared statement"), None, |t| t.prepared.last_id),
    both("Stmt_Cached", ("proxysql_stmt_cached", Gauge, "Prepared statements remembered"), None, |t| t.prepared.cached),
    both(
        "new_req_conns_count",
        ("tidegate_backend_waits_total", Counter, "Statements that waited for a connection"),
        None,
        counted!(waits),
    ),
    // Metrics of Tidegate's own.
    both(
        "tidegate_pipelined",
        ("tidegate_pipelined_statements_total", Counter, "Reads that shared a connection with others"),
        None,
        counted!(pipelined),
    ),
    both(
        "tidegate_pipelined_again",
        ("tidegate_pipelined_again_total", Counter, "Pipelined reads that were sent again, alone"),
        None,
        counted!(pipelined_again),
    ),
    both(
        "tidegate_pipelined_dropped",
        ("tidegate_pipelined_dropped_total", Counter, "Replies to pipelined reads that no session waited for"),
        None,
        counted!(pipelined_dropped),
    ),
    both("", ("tidegate_answered_by_proxy_total", Counter, "Statements answered without a server"), None, counted!(answered_here)),
    both(
        "",
        ("tidegate_transactions_left_total", Counter, "Transactions rolled back because their server was demoted or removed"),
        None,
        counted!(transactions_left),
    ),
    both("", ("tidegate_retries_total", Counter, "Statements retried on another connection"), None, counted!(retries)),
    both(
        "tidegate_refusals_hidden",
        ("tidegate_refusals_hidden_total", Counter, "Statements refused without effect by one server and sent to another"),
        None,
        counted!(refusals_hidden),
    ),
    both(
        "tidegate_digests_too_long",
        (
            "tidegate_digests_too_long_total",
            Counter,
            "Statements refused because their digest text exceeds mysql-query_digests_max_match_length and a rule has match_digest",
        ),
        None,
        counted!(digests_too_long),
    ),
    both(
        "tidegate_comments_misread",
        ("tidegate_comments_misread_total", Counter, "Statements whose comment has a directive that the proxy could not parse"),
        None,
        counted!(misread_comments),
    ),
    both(
        "tidegate_sessions_moved",
        ("tidegate_sessions_moved_total", Counter, "Pinned sessions that continued on another backend after theirs was lost"),
        None,
        counted!(moves),
    ),
    both("tidegate_transaction_replays_ok", REPLAYS, Some(("outcome", "ok")), counted!(replays_ok)),
    both("tidegate_transaction_replays_failed", REPLAYS, Some(("outcome", "failed")), counted!(replays_failed)),
    both("tidegate_transaction_replays_too_large", REPLAYS, Some(("outcome", "too_large")), counted!(replays_too_large)),
    both(
        "tidegate_transaction_replay_waits",
        ("tidegate_transaction_replay_waits_total", Counter, "Statements that waited for replays of lost transactions"),
        None,
        counted!(replay_waits),
    ),
    both("tidegate_lost_writes_applied", LOST_WRITES, Some(("outcome", "applied")), counted!(lost_writes_applied)),
    both("tidegate_lost_writes_not_applied", LOST_WRITES, Some(("outcome", "not_applied")), counted!(lost_writes_not_applied)),
    both("tidegate_lost_writes_undecided", LOST_WRITES, Some(("outcome", "undecided")), counted!(lost_writes_undecided)),
    both(
        "tidegate_gtids_refused",
        ("tidegate_gtids_refused_total", Counter, "GTIDs chosen for a transaction that a server refused"),
        None,
        counted!(gtids_refused),
    ),
    both(
        "tidegate_replicas_refused",
        ("tidegate_replicas_refused_total", Counter, "Replicas refused because their file and position come from another server"),
        None,
        counted!(positions_refused),
    ),
    both(
        "tidegate_causal_waits",
        ("tidegate_causal_waits_total", Counter, "Waits of replicas for a session's own write"),
        None,
        counted!(causal_waits),
    ),
    both(
        "tidegate_causal_timeouts",
        ("tidegate_causal_timeouts_total", Counter, "Reads served by the writer because no replica had the session's write in time"),
        None,
        counted!(causal_timeouts),
    ),
    both(
        "tidegate_reads_to_writer",
        ("tidegate_reads_to_writer_total", Counter, "Read/write-split reads served by the writer because no reader took work"),
        None,
        counted!(reads_to_writer),
    ),
    both("", ("tidegate_handed_over_total", Counter, "Connections that changed workers"), None, counted!(handed_over)),
    both(
        "tidegate_user_variables_asked",
        ("tidegate_user_variables_asked_total", Counter, "Reads of user variables that a statement computed"),
        None,
        counted!(user_variables_asked),
    ),
    both(
        "tidegate_idle_connections_lost",
        ("tidegate_idle_connections_lost_total", Counter, "Idle connections to servers found closed"),
        None,
        counted!(found_closed),
    ),
    both(
        "tidegate_rights_changed",
        ("tidegate_rights_changed_total", Counter, "Statements about accounts and privileges, after which idle connections are closed"),
        None,
        counted!(rights_changed),
    ),
    both("", ("tidegate_query_digests_dropped_total", Counter, "Digests evicted from a full table"), None, |t| t.others.keys),
    both("", ("tidegate_query_digests_other_statements_total", Counter, "Statements of evicted digests"), None, |t| t.others.statements),
    both("", ("tidegate_memory_budget_bytes", Gauge, "mysql-memory_budget"), None, |t| t.shared.memory.budget()),
    both("", ("tidegate_memory_used_bytes", Gauge, "Memory of the process"), None, |t| t.shared.memory.used()),
    both("", MEMORY_REFUSALS, Some(("what", "command")), |t| t.shared.memory.refused_commands.load(Ordering::Relaxed)),
    both("", MEMORY_REFUSALS, Some(("what", "login")), |t| t.shared.memory.refused_logins.load(Ordering::Relaxed)),
    both("", ("tidegate_stuck_workers", Gauge, "Workers busy with one task for too long (mysql-stuck_worker_ms)"), None, |t| {
        let limit_ms = t.snapshot.vars.stuck_worker_ms;
        t.shared.beats.stuck(t.shared.clock.now_ms(), limit_ms).count() as u64
    }),
    both("", ("tidegate_longest_stall_milliseconds", Gauge, "Longest time that a worker was busy with one task"), None, |t| {
        t.shared.beats.longest_ms()
    }),
    both("tidegate_queries_paced", PACED, Some(("outcome", "waited")), counted!(paced)),
    both("tidegate_queries_pace_refused", PACED, Some(("outcome", "refused")), counted!(pace_refusals)),
    both("", LOG_RECORDS, Some(("outcome", "query_written")), |t| t.events.written),
    both("", LOG_RECORDS, Some(("outcome", "query_dropped")), |t| t.events.dropped),
    both("", LOG_RECORDS, Some(("outcome", "query_failed")), |t| t.events.failed),
    both("", LOG_RECORDS, Some(("outcome", "query_made_room")), |t| t.events_made_room),
    both("", LOG_RECORDS, Some(("outcome", "slow_written")), |t| t.slow.written),
    both("", LOG_RECORDS, Some(("outcome", "slow_dropped")), |t| t.slow.dropped),
    both("", LOG_RECORDS, Some(("outcome", "slow_failed")), |t| t.slow.failed),
    both("", LOG_RECORDS, Some(("outcome", "audit_written")), |t| t.audits.written),
    both("", LOG_RECORDS, Some(("outcome", "audit_dropped")), |t| t.audits.dropped),
    both("", LOG_RECORDS, Some(("outcome", "audit_failed")), |t| t.audits.failed),
    both("Trace_Spans_exported", TRACE_SPANS, Some(("outcome", "exported")), |t| t.traces.exported),
    both("Trace_Spans_dropped", TRACE_SPANS, Some(("outcome", "dropped")), |t| t.traces.dropped),
    both("Trace_Spans_failed", TRACE_SPANS, Some(("outcome", "failed")), |t| t.traces.failed),
    both("Trace_Batches_retried", TRACE_BATCHES, Some(("outcome", "retried")), |t| t.traces.batches_retried),
    both("Trace_Batches_failed", TRACE_BATCHES, Some(("outcome", "failed")), |t| t.traces.batches_failed),
    both(
        "Trace_Statements_limited",
        ("tidegate_trace_statements_limited_total", Counter, "Statements not traced because of trace_max_per_second"),
        None,
        |t| t.traces.limited,
    ),
    both("Trace_Spans_waiting", ("tidegate_trace_spans_waiting", Gauge, "Spans that wait for a receiver"), None, |t| t.traces.waiting),
];

fn immediate(t: &Totals) -> u64 {
    t.census.counted.wants.saturating_sub(t.census.counted.waits)
}

/// Memory by purpose, bytes. What SQLite takes, the admin interface adds.
pub(super) const MEMORY: &[Number] = &[
    both("jemalloc_resident", JEMALLOC, Some(("type", "resident")), |t| t.heap.resident),
    both("jemalloc_active", JEMALLOC, Some(("type", "active")), |t| t.heap.active),
    both("jemalloc_allocated", ("proxysql_jemalloc_allocated_bytes_total", Gauge, "Memory in use, as jemalloc counts it"), None, |t| {
        t.heap.allocated
    }),
    both("jemalloc_mapped", JEMALLOC, Some(("type", "mapped")), |t| t.heap.mapped),
    both("jemalloc_metadata", JEMALLOC, Some(("type", "metadata")), |t| t.heap.metadata),
    both("jemalloc_retained", JEMALLOC, Some(("type", "retained")), |t| t.heap.retained),
    both("Auth_memory", ("proxysql_auth_memory_bytes", Gauge, "Memory of users, estimated"), None, |t| {
        t.snapshot.users.keys().map(|name| bytes_of::<model::User>(1) + 2 * name.len() as u64).sum()
    }),
    both("query_digest_memory", ("proxysql_query_digest_memory_bytes", Gauge, "Memory of statistics by digest"), None, |t| t.digest_bytes),
    both(
        "mysql_query_rules_memory",
        ("proxysql_mysql_query_rules_memory_bytes", Gauge, "Memory of query rules and fast routing, estimated"),
        None,
        |t| {
            let rules = &t.snapshot.rules;
            let pattern = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len() as u64);
            let texts: u64 = rules.rules.iter().map(|rule| pattern(&rule.match_digest) + pattern(&rule.match_pattern)).sum();
            bytes_of::<model::QueryRule>(rules.rules.len()) + texts + bytes_of::<model::snapshot::FastRoute>(rules.fast_routes.len())
        },
    ),
    both(
        "mysql_firewall_users_table",
        ("proxysql_mysql_firewall_users_table_bytes", Gauge, "Memory of the firewall's users, estimated"),
        None,
        |t| bytes_of::<model::snapshot::FirewallUser>(t.snapshot.rules.firewall.users.len()),
    ),
    both("mysql_firewall_users_config", ("proxysql_mysql_firewall_users_config_bytes", Gauge, NOT_COUNTED), None, NONE),
    both(
        "mysql_firewall_rules_table",
        ("proxysql_mysql_firewall_rules_table_bytes", Gauge, "Memory of the firewall's rules, estimated"),
        None,
        |t| bytes_of::<model::snapshot::FirewallRule>(t.snapshot.rules.firewall.rules.len()),
    ),
    both("mysql_firewall_rules_config", ("proxysql_mysql_firewall_rules_config_bytes", Gauge, NOT_COUNTED), None, NONE),
    both("stack_memory_mysql_threads", ("proxysql_stack_memory_mysql_threads_bytes", Gauge, "Memory of the workers' stacks"), None, |t| {
        t.workers * t.snapshot.vars.stacksize
    }),
    both("stack_memory_admin_threads", ("proxysql_stack_memory_admin_threads_bytes", Gauge, NOT_COUNTED), None, NONE),
    both("stack_memory_cluster_threads", ("proxysql_stack_memory_cluster_threads", Gauge, NOT_COUNTED), None, NONE),
];

const JEMALLOC: (&str, MetricKind, &str) = ("proxysql_jemalloc_bytes", Gauge, "Memory of the allocator jemalloc by kind");

fn bytes_of<T>(count: usize) -> u64 {
    (size_of::<T>() * count) as u64
}
