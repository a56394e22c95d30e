//! The tables: each one's description stands beside its rows.
//!
//! Names and columns are ProxySQL's (interface 1.6), except in tables whose name begins with `stats_tidegate_`.

use model::ServerAddr;
use model::snapshot::RoleKind;
use model::stats::{StatsSchema, StatsTable, Value, stat, stat_null};
use topology::{AuroraInstance, CheckKind, Identity, Lag, MemberIdentity};

use super::time::date_time;
use crate::lane::Checked;
use crate::monitor::{Monitor, error_text, lock};
use crate::probe::{Found, group_view};

type Rows = Vec<Vec<Value>>;

/// A table with the function that makes its rows.
pub(crate) struct Table {
    /// The name and the columns.
    pub(crate) table: StatsTable,
    rows: fn(&Monitor) -> Rows,
}

/// Every table but `stats_mysql_global`, to which other crates add rows.
pub(crate) fn all() -> impl Iterator<Item = &'static StatsTable> {
    TABLES.iter().map(|table| &table.table)
}

/// The rows of one of them.
pub(crate) fn rows(monitor: &Monitor, name: &str) -> Rows {
    TABLES.iter().find(|table| table.table.name == name).map(|table| (table.rows)(monitor)).unwrap_or_default()
}

const KEY: &[&str] = &["hostname", "port", "time_start_us"];

const fn monitor(
    name: &'static str,
    columns: &'static [model::stats::StatsColumn],
    primary_key: &'static [&'static str],
    help: &'static str,
) -> StatsTable {
    StatsTable { schema: StatsSchema::Monitor, name, columns, primary_key, has_reset: false, help }
}

static TABLES: &[Table] = &[
    Table {
        table: monitor(
            "mysql_server_connect_log",
            &[
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("time_start_us", "INT"),
                stat_null("connect_success_time_us", "INT"),
                stat_null("connect_error", "VARCHAR"),
            ],
            KEY,
            "Logins of the monitor",
        ),
        rows: |monitor| each(monitor, CheckKind::Connect, |checked| vec![took(checked), error(checked)]),
    },
    Table {
        table: monitor(
            "mysql_server_ping_log",
            &[
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("time_start_us", "INT"),
                stat_null("ping_success_time_us", "INT"),
                stat_null("ping_error", "VARCHAR"),
            ],
            KEY,
            "Round trips of pings",
        ),
        rows: |monitor| each(monitor, CheckKind::Ping, ping),
    },
    Table {
        table: monitor(
            "mysql_server_read_only_log",
            &[
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("time_start_us", "INT"),
                stat_null("success_time_us", "INT"),
                stat_null("read_only", "INT"),
                stat_null("error", "VARCHAR"),
            ],
            KEY,
            "read_only by server",
        ),
        rows: |monitor| each(monitor, ANY_READ_ONLY, read_only),
    },
    Table {
        table: monitor(
            "mysql_server_replication_lag_log",
            &[
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("time_start_us", "INT"),
                stat_null("success_time_us", "INT"),
                stat_null("repl_lag", "INT"),
                stat_null("error", "VARCHAR"),
            ],
            KEY,
            "Replication lag by server, in seconds; NULL if unknown",
        ),
        rows: |monitor| each(monitor, CheckKind::Lag, lag),
    },
    Table {
        table: monitor(
            "mysql_server_gtids_log",
            &[
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("time_start_us", "INT"),
                stat_null("success_time_us", "INT"),
                stat_null("gtids", "VARCHAR"),
                stat_null("error", "VARCHAR"),
            ],
            KEY,
            "GTIDs executed by servers that have a limit of max_transactions_behind",
        ),
        rows: |monitor| each(monitor, CheckKind::Gtids, gtids),
    },
    Table {
        table: monitor(
            "mysql_server_group_replication_log",
            &[
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("time_start_us", "INT"),
                stat_null("success_time_us", "INT"),
                stat("viable_candidate", "VARCHAR"),
                stat("read_only", "VARCHAR"),
                stat_null("transactions_behind", "INT"),
                stat_null("error", "VARCHAR"),
            ],
            KEY,
            "Checks of Group Replication members",
        ),
        rows: |monitor| each(monitor, CheckKind::Group, group),
    },
    Table {
        table: monitor(
            "mysql_server_galera_log",
            &[
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("time_start_us", "INT"),
                stat_null("success_time_us", "INT"),
                stat("primary_partition", "VARCHAR"),
                stat("read_only", "VARCHAR"),
                stat_null("wsrep_local_recv_queue", "INT"),
                stat_null("wsrep_local_state", "INT"),
                stat("wsrep_desync", "VARCHAR"),
                stat("wsrep_reject_queries", "VARCHAR"),
                stat("wsrep_sst_donor_rejects_queries", "VARCHAR"),
                stat("pxc_maint_mode", "VARCHAR"),
                stat_null("error", "VARCHAR"),
            ],
            KEY,
            "Checks of Galera nodes",
        ),
        rows: |monitor| each(monitor, CheckKind::Galera, galera),
    },
    Table {
        table: monitor(
            "mysql_server_aws_aurora_log",
            &[
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("time_start_us", "INT"),
                stat_null("success_time_us", "INT"),
                stat_null("error", "VARCHAR"),
                stat("SERVER_ID", "VARCHAR"),
                stat_null("SESSION_ID", "VARCHAR"),
                stat_null("LAST_UPDATE_TIMESTAMP", "VARCHAR"),
                stat("replica_lag_in_milliseconds", "INT"),
                stat("estimated_lag_ms", "INT"),
                stat("CPU", "INT"),
            ],
            &["hostname", "port", "time_start_us", "SERVER_ID"],
            "Cluster status reported by Aurora instances",
        ),
        rows: aurora,
    },
    Table {
        table: monitor(
            "mysql_server_aws_aurora_check_status",
            &[
                stat("writer_hostgroup", "INT"),
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat_null("last_checked_at", "VARCHAR"),
                stat("checks_tot", "INT"),
                stat("checks_ok", "INT"),
                stat_null("last_error", "VARCHAR"),
            ],
            &["writer_hostgroup", "hostname", "port"],
            "Results of the checks of Aurora instances",
        ),
        rows: aurora_status,
    },
    Table {
        table: monitor(
            "mysql_server_aws_aurora_failovers",
            &[stat("writer_hostgroup", "INT"), stat("hostname", "VARCHAR"), stat("inserted_at", "VARCHAR")],
            &[],
            "New writers of Aurora clusters",
        ),
        rows: failovers,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_events",
            columns: &[
                stat("sequence", "INTEGER"),
                stat("time", "VARCHAR"),
                stat("time_ms", "INTEGER"),
                stat_null("cluster", "INT"),
                stat("kind", "VARCHAR"),
                stat_null("hostname", "VARCHAR"),
                stat_null("port", "INT"),
                stat("from_state", "VARCHAR"),
                stat("to_state", "VARCHAR"),
                stat("seen", "VARCHAR"),
                stat("seen_by", "VARCHAR"),
                stat("why", "VARCHAR"),
            ],
            primary_key: &["sequence"],
            has_reset: false,
            help: "Changes of roles, statuses and members, oldest first, with observation, source, decision and reason. time is UTC. The \
                   newest 1,000 outlast a restart",
        },
        rows: events,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_servers",
            columns: &[
                stat("hostgroup", "INT"),
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat_null("cluster", "INT"),
                stat("role", "VARCHAR"),
                stat("status", "VARCHAR"),
                stat("since_ms", "INTEGER"),
                stat("reason", "VARCHAR"),
                stat_null("repl_lag", "INT"),
                stat("lag_note", "VARCHAR"),
                stat("is_stray", "INT"),
            ],
            primary_key: &["hostgroup", "hostname", "port"],
            has_reset: false,
            help: "Role, status, its duration in ms, reason, and lag in s of each server. is_stray: it has no replication source and does not write",
        },
        rows: super::servers::rows,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_holds",
            columns: &[stat("hostgroup", "INT"), stat("reason", "VARCHAR"), stat("since_ms", "INTEGER")],
            primary_key: &["hostgroup", "reason"],
            has_reset: false,
            help: "Hostgroups that start no new work, with reason (pause, switchover) and duration in ms",
        },
        rows: |monitor| lock(&monitor.holds).rows(),
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_channels",
            columns: &[
                stat("writer_hostgroup", "INT"),
                stat("channel_name", "VARCHAR"),
                stat_null("hostname", "VARCHAR"),
                stat_null("port", "INT"),
                stat("state", "VARCHAR"),
                stat("since_ms", "INTEGER"),
                stat("reason", "VARCHAR"),
            ],
            primary_key: &["writer_hostgroup", "channel_name"],
            has_reset: false,
            help: "Channels of mysql_replication_channels, with current or intended server, state, duration in ms and reason",
        },
        rows: |monitor| lock(&monitor.channels).rows(),
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_healing",
            columns: &[
                stat("writer_hostgroup", "INT"),
                stat("mode", "VARCHAR"),
                stat("verdict", "VARCHAR"),
                stat("since_ms", "INTEGER"),
                stat_null("writer", "VARCHAR"),
                stat("ready", "INT"),
                stat_null("would_promote", "VARCHAR"),
                stat("because", "VARCHAR"),
                stat_null("about_ms", "INTEGER"),
                stat_null("would_lose", "INTEGER"),
                stat("lost_gtids", "VARCHAR"),
                stat("blocked_by", "VARCHAR"),
                stat("advice", "VARCHAR"),
                stat("next_step", "VARCHAR"),
                stat_null("next_step_in_ms", "INTEGER"),
                stat("last_plan", "VARCHAR"),
                stat_null("healer", "VARCHAR"),
                stat_null("epoch", "INTEGER"),
                stat_null("semi_sync", "VARCHAR"),
            ],
            primary_key: &["writer_hostgroup"],
            has_reset: false,
            help: "Clusters of mysql_healing: what is known of the writer, who should take over if it died now, and what became of the last promotion",
        },
        rows: |monitor| monitor.healing.clusters(),
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_healing_servers",
            columns: &[
                stat("writer_hostgroup", "INT"),
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("role", "VARCHAR"),
                stat_null("hears_source_ms", "INTEGER"),
                stat_null("received_behind", "INTEGER"),
                stat_null("applied_behind", "INTEGER"),
                stat_null("io_state", "VARCHAR"),
                stat_null("io_errno", "INT"),
                stat_null("sql_state", "VARCHAR"),
                stat_null("sql_errno", "INT"),
                stat_null("delay_s", "INTEGER"),
                stat("acker", "INT"),
                stat("errant", "VARCHAR"),
                stat("promotion", "VARCHAR"),
                stat("eligible", "INT"),
                stat("why_not", "VARCHAR"),
                stat("site", "VARCHAR"),
                stat("version", "VARCHAR"),
                stat("notes", "VARCHAR"),
                stat_null("rejoin", "VARCHAR"),
                stat("rejoin_why", "VARCHAR"),
            ],
            primary_key: &["writer_hostgroup", "hostname", "port"],
            has_reset: false,
            help: "Servers of clusters in mysql_healing: replication, transactions behind, why a server could not take over, and what keeps it \
                   from following the writer",
        },
        rows: |monitor| monitor.healing.servers(),
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_errant",
            columns: &[
                stat("writer_hostgroup", "INT"),
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("gtid", "VARCHAR"),
                stat_null("time", "VARCHAR"),
                stat_null("tables", "VARCHAR"),
                stat_null("rows", "INTEGER"),
                stat_null("statement_head", "VARCHAR"),
                stat_null("bytes", "INTEGER"),
                stat("acknowledged", "VARCHAR"),
                stat("note", "VARCHAR"),
            ],
            primary_key: &["writer_hostgroup", "hostname", "port", "gtid"],
            has_reset: false,
            help: "Transactions that servers of clusters in mysql_healing (mode rejoin) have and the writer lacks",
        },
        rows: |monitor| monitor.healing.errant(),
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_identities",
            columns: &[
                stat("writer_hostgroup", "INT"),
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("state", "VARCHAR"),
                stat_null("identity", "VARCHAR"),
                stat_null("cluster_identity", "VARCHAR"),
                stat("is_settled", "INT"),
            ],
            primary_key: &["writer_hostgroup", "hostname", "port"],
            has_reset: false,
            help: "Cluster identity by server: state is member, stranger (another cluster's server, which serves nothing) or unknown",
        },
        rows: identities,
    },
];

fn identities(monitor: &Monitor) -> Rows {
    let state = |one: &MemberIdentity| match one.identity {
        None => "unknown",
        Some(_) if one.is_stranger() => "stranger",
        Some(_) => "member",
    };
    let text = |identity: &Option<Identity>| identity.as_ref().map(ToString::to_string).into();
    let row = |one: &MemberIdentity| {
        let place = [one.writer.0.into(), (&*one.server.host).into(), one.server.port.into(), state(one).into()];
        [&place[..], &[text(&one.identity), text(&one.cluster), u32::from(one.is_settled).into()]].concat()
    };
    monitor.identities().iter().map(row).collect()
}

/// Stands for every expression: the log has one place for them.
const ANY_READ_ONLY: CheckKind = CheckKind::ReadOnly(model::snapshot::ReadOnlyCheck::ReadOnly);

fn each(monitor: &Monitor, kind: CheckKind, rest: impl Fn(&Checked) -> Vec<Value>) -> Rows {
    lock(&monitor.log).results(kind).map(|checked| row(checked, rest(checked))).collect()
}

fn row(checked: &Checked, rest: Vec<Value>) -> Vec<Value> {
    let mut row = vec![(&*checked.addr.host).into(), checked.addr.port.into(), checked.started_us.into()];
    row.extend(rest);
    row
}

/// As ProxySQL has it: 0 when there was an error.
fn took(checked: &Checked) -> Value {
    if checked.outcome.is_ok() { checked.took_us.into() } else { Value::Integer(0) }
}

fn error(checked: &Checked) -> Value {
    checked.outcome.as_ref().err().map(|error| error_text(error, checked.timeout_ms)).into()
}

fn yes_no(is_so: bool) -> Value {
    if is_so { "YES" } else { "NO" }.into()
}

fn ping(checked: &Checked) -> Vec<Value> {
    match &checked.outcome {
        Ok(Found::Ping(us)) => vec![(*us).into(), Value::Null],
        _ => vec![Value::Integer(0), error(checked)],
    }
}

fn read_only(checked: &Checked) -> Vec<Value> {
    let value = match &checked.outcome {
        Ok(Found::ReadOnly(is_set)) => Value::Integer(i64::from(*is_set)),
        _ => Value::Null,
    };
    vec![took(checked), value, error(checked)]
}

fn gtids(checked: &Checked) -> Vec<Value> {
    let value = match &checked.outcome {
        Ok(Found::Gtids(_, text)) => text.as_str().into(),
        _ => Value::Null,
    };
    vec![took(checked), value, error(checked)]
}

fn lag(checked: &Checked) -> Vec<Value> {
    let value = match &checked.outcome {
        Ok(Found::Lag(Lag::Behind(ms))) => (ms / 1_000).into(),
        _ => Value::Null,
    };
    vec![took(checked), value, error(checked)]
}

fn group(checked: &Checked) -> Vec<Value> {
    let rest = match &checked.outcome {
        Ok(Found::Group(group)) => {
            let view = group_view(group, &Default::default());
            [yes_no(view.viable), yes_no(view.read_only), view.transactions_behind.into()]
        }
        _ => [yes_no(false), yes_no(true), Value::Null],
    };
    [vec![took(checked)], rest.to_vec(), vec![error(checked)]].concat()
}

fn galera(checked: &Checked) -> Vec<Value> {
    let rest = match &checked.outcome {
        Ok(Found::Galera(view)) => [
            yes_no(view.primary_partition),
            yes_no(view.read_only),
            view.recv_queue.into(),
            view.local_state.into(),
            yes_no(view.desync),
            yes_no(view.reject_queries),
            yes_no(view.sst_donor_rejects_queries),
            yes_no(view.maintenance),
        ],
        _ => [yes_no(false), yes_no(true), Value::Null, Value::Null, yes_no(false), yes_no(false), yes_no(false), yes_no(false)],
    };
    [vec![took(checked)], rest.to_vec(), vec![error(checked)]].concat()
}

fn aurora(monitor: &Monitor) -> Rows {
    let snapshot = monitor.snapshot();
    let settings = snapshot.roles.iter().find_map(|group| match &group.kind {
        RoleKind::Aurora(aurora) => Some((u64::from(aurora.add_lag_ms), u64::from(aurora.min_lag_ms))),
        _ => None,
    });
    let (add_ms, min_ms) = settings.unwrap_or_default();
    let estimate = |lag_ms: u64| if lag_ms == 0 { 0 } else { (lag_ms + add_ms).max(min_ms) };
    lock(&monitor.log).results(CheckKind::Aurora).flat_map(|checked| aurora_rows(checked, estimate)).collect()
}

/// One for each instance that was seen; one for a check that failed.
fn aurora_rows(checked: &Checked, estimate: impl Fn(u64) -> u64) -> Rows {
    let Ok(Found::Aurora(instances)) = &checked.outcome else {
        let none = [Value::from(""), Value::Null, Value::Null, Value::Integer(0), Value::Integer(0), Value::Integer(0)];
        return vec![row(checked, [vec![took(checked), error(checked)], none.to_vec()].concat())];
    };
    let of = |found: &crate::probe::AuroraRow| {
        let instance = &found.instance;
        let rest = vec![
            took(checked),
            Value::Null,
            instance.server_id.as_str().into(),
            found.session_id.as_str().into(),
            found.updated.as_str().into(),
            instance.lag_ms.into(),
            estimate(instance.lag_ms).into(),
            instance.cpu.into(),
        ];
        row(checked, rest)
    };
    // A lag that is not known is no number, and the column may not be NULL.
    instances.iter().filter(|found| found.instance.lag_ms < AuroraInstance::LAG_UNKNOWN_MS).map(of).collect()
}

fn aurora_status(monitor: &Monitor) -> Rows {
    let (snapshot, layout) = (monitor.snapshot(), monitor.layout());
    let cluster_of = |addr: &ServerAddr| {
        let groups = snapshot.roles.iter().filter(|group| matches!(group.kind, RoleKind::Aurora(_)));
        let serves = |id| layout.hostgroups.get(&id).is_some_and(|placed| placed.iter().any(|p| p.server.key.addr() == *addr));
        groups.filter(|group| group.hostgroups().any(serves)).map(|group| group.writer).next()
    };
    let log = lock(&monitor.log);
    let known = log.aurora().iter().filter_map(|(addr, status)| Some((cluster_of(addr)?, addr, status)));
    let row = |(writer, addr, status): (model::HostgroupId, &ServerAddr, &super::checks::CheckStatus)| {
        vec![
            writer.0.into(),
            (&*addr.host).into(),
            addr.port.into(),
            date_time(status.last_us).into(),
            status.total.into(),
            status.ok.into(),
            status.last_error.clone().into(),
        ]
    };
    known.map(row).collect()
}

fn failovers(monitor: &Monitor) -> Rows {
    let history = lock(&monitor.history);
    let row = |failover: &super::history::Failover| {
        vec![failover.writer.0.into(), (&*failover.host).into(), date_time(failover.at_unix_ms * 1_000).into()]
    };
    history.failovers().map(row).collect()
}

fn events(monitor: &Monitor) -> Rows {
    let history = lock(&monitor.history);
    let row = |noted: &super::history::Noted| {
        vec![
            noted.sequence.into(),
            format!("{}.{:03}", date_time(noted.at_unix_ms * 1_000), noted.at_unix_ms % 1_000).into(),
            noted.at_unix_ms.into(),
            noted.cluster.into(),
            (&*noted.kind).into(),
            noted.host.as_deref().map(str::to_owned).into(),
            noted.port.into(),
            noted.from.as_str().into(),
            noted.to.as_str().into(),
            noted.seen.as_str().into(),
            (&*noted.by).into(),
            noted.why.as_str().into(),
        ]
    };
    history.events().map(row).collect()
}
