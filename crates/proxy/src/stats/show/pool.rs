//! Tables about servers: connections, latencies, who waits.

use super::{Rows, Table, text};
use crate::backends::backend::Backend;
use crate::hostgroups::pool::{Batches, HostgroupPool};
use crate::servers::server::ServerShared;
use crate::stats::source::Baseline;
use crate::stats::{ProxyStats, collect};
use crate::workers::ask::{ask, ask_all};
use crate::workers::shared::Shared;
use meter::server_counts::{ServerId, ServerMeter};
use model::HostgroupId;
use model::stats::{Reading, StatsSchema, StatsTable, Value, stat, stat_null};
use serde_json::json;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module.
pub(super) const TABLES: &[Table] = &[
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_connection_pool",
            columns: &[
                stat_null("hostgroup", "INT"),
                stat_null("srv_host", "VARCHAR"),
                stat_null("srv_port", "INT"),
                stat_null("status", "VARCHAR"),
                stat_null("ConnUsed", "INT"),
                stat_null("ConnFree", "INT"),
                stat_null("ConnOK", "INT"),
                stat_null("ConnERR", "INT"),
                stat_null("MaxConnUsed", "INT"),
                stat_null("Queries", "INT"),
                stat_null("Queries_GTID_sync", "INT"),
                stat_null("Bytes_data_sent", "INT"),
                stat_null("Bytes_data_recv", "INT"),
                stat_null("Latency_us", "INT"),
                stat_null("reason", "VARCHAR"),
            ],
            primary_key: &[],
            has_reset: true,
            help: "Servers with their connections, statements and traffic. reason says why the status is not as configured",
        },
        rows: connection_pool,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_free_connections",
            columns: &[
                stat("fd", "INT"),
                stat("hostgroup", "INT"),
                stat("srv_host", "VARCHAR"),
                stat("srv_port", "INT"),
                stat("user", "VARCHAR"),
                stat_null("schema", "VARCHAR"),
                stat_null("init_connect", "VARCHAR"),
                stat_null("time_zone", "VARCHAR"),
                stat_null("sql_mode", "VARCHAR"),
                stat_null("autocommit", "VARCHAR"),
                stat_null("idle_ms", "INT"),
                stat_null("statistics", "VARCHAR"),
                stat_null("mysql_info", "VARCHAR"),
            ],
            primary_key: &[],
            has_reset: false,
            help: "Idle connections to servers. Variables with the server's default are NULL",
        },
        rows: free_connections,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_gtid_executed",
            columns: &[stat("hostname", "VARCHAR"), stat("port", "INT"), stat_null("gtid_executed", "VARCHAR"), stat("events", "INT")],
            primary_key: &[],
            has_reset: false,
            help: "GTIDs by server; always empty",
        },
        rows: |_, _| Rows::new(),
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_latency",
            columns: &[
                stat("hostgroup", "INT"),
                stat("srv_host", "VARCHAR"),
                stat("srv_port", "INT"),
                stat("kind", "VARCHAR"),
                stat("count", "INTEGER"),
                stat("sum_us", "INTEGER"),
                stat("p50_us", "INTEGER"),
                stat("p95_us", "INTEGER"),
                stat("p99_us", "INTEGER"),
                stat("max_us", "INTEGER"),
            ],
            primary_key: &["hostgroup", "srv_host", "srv_port", "kind"],
            has_reset: true,
            help: "Duration of statements by server and kind; quantiles are exact to 1/16",
        },
        rows: latency,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_waits",
            columns: &[
                stat("hostgroup", "INT"),
                stat("waiters", "INT"),
                stat("oldest_ms", "INT"),
                stat("pipeline_depth", "INT"),
                stat("pipelined", "INT"),
                stat("pipelined_again", "INT"),
                stat("pipelined_dropped", "INT"),
            ],
            primary_key: &["hostgroup"],
            has_reset: false,
            help: "Sessions that wait for a connection, with the longest wait in ms; reads that shared a connection with others (mysql-pipeline_depth)",
        },
        rows: waits,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_pool_sizing",
            columns: &[
                stat("hostgroup", "INT"),
                stat("srv_host", "VARCHAR"),
                stat("srv_port", "INT"),
                stat("connections", "INT"),
                stat("busy", "INT"),
                stat("turns_per_second", "INT"),
                stat("verdict", "VARCHAR"),
            ],
            primary_key: &["hostgroup", "srv_host", "srv_port"],
            has_reset: false,
            help: "Useful number of connections by server (mysql-adaptive_connections), with the measurements behind it",
        },
        rows: sizing,
    },
];

/// One server with all that is known of it.
pub(super) struct Pooled {
    /// The server.
    pub server: Arc<ServerShared>,
    /// Connections in use, and idle ones.
    pub used: u32,
    /// See `used`.
    pub free: u32,
    /// Counted since the start.
    pub totals: Baseline,
    /// Latencies, among others.
    pub meter: ServerMeter,
}

impl Pooled {
    fn id(&self) -> ServerId {
        (self.server.key.hostgroup, self.server.index)
    }

    /// Whether it serves the hostgroup, or still has connections there.
    pub(super) fn is_listed(&self) -> bool {
        self.used + self.free > 0 || !self.server.is_removed()
    }
}

/// Servers that serve a hostgroup, or still have connections there.
fn pooled(shared: &Shared) -> Vec<Pooled> {
    let mut all = every(shared);
    all.retain(Pooled::is_listed);
    all
}

/// Every server that there was since the start.
pub(super) fn every(shared: &Shared) -> Vec<Pooled> {
    let (idle, mut meters) = (collect::idle(shared), collect::servers(shared));
    let mut all = Vec::new();
    for hostgroup in shared.hostgroups() {
        for server in hostgroup.servers().iter() {
            let connections = server.connections();
            let id = (hostgroup.id, server.index);
            let free = idle.get(&id).copied().unwrap_or(0).min(connections);
            let meter = meters.remove(&id).unwrap_or_default();
            let totals = Baseline {
                connects_ok: server.counts.connects_ok.load(Ordering::Relaxed),
                connects_failed: server.counts.connects_failed.load(Ordering::Relaxed),
                queries: meter.queries,
                bytes_sent: meter.bytes_sent,
                bytes_received: meter.bytes_received,
            };
            all.push(Pooled { server: Arc::clone(server), used: connections - free, free, totals, meter });
        }
    }
    all
}

fn connection_pool(stats: &ProxyStats, reading: Reading) -> Rows {
    let servers = pooled(&stats.shared);
    let mut baselines = stats.baselines();
    let mut rows = Rows::new();
    for one in &servers {
        let base = baselines.get(&one.id()).copied().unwrap_or_default();
        let since = |now: u64, then: u64| Value::from(now.saturating_sub(then));
        let (key, now) = (&one.server.key, &one.totals);
        rows.push(vec![
            key.hostgroup.0.into(),
            (*key.host).into(),
            key.port.into(),
            one.server.status().as_str().into(),
            one.used.into(),
            one.free.into(),
            since(now.connects_ok, base.connects_ok),
            since(now.connects_failed, base.connects_failed),
            one.server.counts.most_used(one.used).into(),
            since(now.queries, base.queries),
            0_u64.into(),
            since(now.bytes_sent, base.bytes_sent),
            since(now.bytes_received, base.bytes_received),
            one.server.latency_us().into(),
            Some(one.server.placement().why.to_string()).filter(|why| !why.is_empty()).into(),
        ]);
    }
    if reading == Reading::Reset {
        for one in &servers {
            baselines.insert(one.id(), one.totals);
            one.server.counts.reset_most();
        }
    }
    rows
}

fn latency(stats: &ProxyStats, reading: Reading) -> Rows {
    let mut rows = Rows::new();
    for one in pooled(&stats.shared) {
        let key = &one.server.key;
        for (class, histogram) in one.meter.latency() {
            let quantile = |per_mille| histogram.quantile(per_mille).into();
            rows.push(vec![
                key.hostgroup.0.into(),
                (*key.host).into(),
                key.port.into(),
                class.name().into(),
                histogram.count().into(),
                histogram.sum().into(),
                quantile(500),
                quantile(950),
                quantile(990),
                histogram.max().into(),
            ]);
        }
    }
    if reading == Reading::Reset {
        collect::reset_latency(&stats.shared);
    }
    rows
}

/// Waiters and the longest wait (ms) by hostgroup; every hostgroup that was used is there.
pub(super) fn waiting(shared: &Shared) -> BTreeMap<HostgroupId, Waiting> {
    let now_us = shared.clock.now_us();
    let answers = ask_all(shared, move |worker| {
        let seen = |pool: &Rc<HostgroupPool>| (pool.shared.id, pool.waiting(), pool.batches(now_us / 1000));
        worker.pools().iter().map(seen).collect::<Vec<_>>()
    });
    let mut all: BTreeMap<HostgroupId, Waiting> = BTreeMap::new();
    for (hostgroup, (waiters, since_us), batches) in answers.into_iter().flatten() {
        let sum = all.entry(hostgroup).or_default();
        sum.waiters += waiters as u64;
        sum.oldest_ms = sum.oldest_ms.max(since_us.map_or(0, |since| now_us.saturating_sub(since) / 1000));
        let together = &mut sum.batches;
        together.depth = together.depth.max(batches.depth);
        together.sent += batches.sent;
        together.again += batches.again;
        together.dropped += batches.dropped;
    }
    all
}

/// Who waits in a hostgroup, and what was sent together.
#[derive(Default)]
pub(super) struct Waiting {
    /// Sessions.
    pub waiters: u64,
    /// The longest current wait, ms.
    pub oldest_ms: u64,
    /// Of all workers; the depth is the largest.
    pub batches: Batches,
}

fn sizing(stats: &ProxyStats, _: Reading) -> Rows {
    let hostgroups = stats.shared.hostgroups();
    let servers = hostgroups.iter().flat_map(|hostgroup| hostgroup.servers().to_vec()).filter(|server| server.is_online());
    let row = |server: Arc<ServerShared>| {
        let (seen, verdict) = server.sizing.verdict();
        let settings = stats.shared.in_force.load().snapshot.effective_in(server.key.hostgroup);
        let verdict = if settings.adaptive_connections { verdict } else { "off".to_owned() };
        vec![
            server.key.hostgroup.0.into(),
            (*server.key.host).into(),
            server.key.port.into(),
            server.connections().into(),
            (seen.connections.round() as i64).into(),
            (seen.rate.round() as i64).into(),
            verdict.into(),
        ]
    };
    servers.map(row).collect()
}

fn waits(stats: &ProxyStats, _: Reading) -> Rows {
    let row = |(hostgroup, waiting): (HostgroupId, Waiting)| {
        let Waiting { waiters, oldest_ms, batches } = waiting;
        let numbers = [waiters, oldest_ms, batches.depth, batches.sent, batches.again, batches.dropped];
        std::iter::once(hostgroup.0.into()).chain(numbers.into_iter().map(Value::from)).collect()
    };
    waiting(&stats.shared).into_iter().map(row).collect()
}

/// Rows of one answer of a worker.
const SLICE: usize = 128;

fn free_connections(stats: &ProxyStats, _: Reading) -> Rows {
    let shared = &stats.shared;
    let now_ms = shared.clock.now_ms();
    let mut rows = Rows::new();
    for worker in 0..shared.mailboxes.len() {
        let pools = ask(shared, worker, |worker| worker.pools().iter().map(|pool| pool.shared.id).collect::<Vec<_>>());
        for hostgroup in pools.unwrap_or_default() {
            let mut skip = 0;
            loop {
                let slice = move |worker: &Rc<crate::workers::worker::Worker>| {
                    let (pool, snapshot) = (worker.pool(hostgroup), worker.snapshot());
                    let init_connect = snapshot.hostgroup(hostgroup).map_or("", |h| &h.attributes.init_connect).to_owned();
                    pool.map_idle(skip, SLICE, |backend| idle_row(backend, &init_connect, now_ms))
                };
                let made = ask(shared, worker, slice).unwrap_or_default();
                skip += SLICE;
                let is_last = made.len() < SLICE;
                rows.extend(made);
                if is_last {
                    break;
                }
            }
        }
    }
    rows
}

fn idle_row(backend: &Backend, init_connect: &str, now_ms: u64) -> Vec<Value> {
    let core = &backend.core;
    let key = &core.server.key;
    let variable = |name: &str| core.held.state().variables.get(name).map_or(Value::Null, |value| text(value));
    let age_ms = |at_ms: u64| now_ms.saturating_sub(at_ms);
    let statistics = json!({ "age_ms": age_ms(core.opened_ms), "prepared_statements": core.statements.len() });
    let info = json!({
        "thread_id": core.thread_id,
        "server_version": core.info.version,
        "capabilities": core.caps.bits(),
        "status": core.held.status().bits(),
        "has_warnings": core.held.has_warnings(),
    });
    vec![
        i64::from(backend.link.stream().descriptor()).into(),
        key.hostgroup.0.into(),
        (*key.host).into(),
        key.port.into(),
        (*core.lane.user.name).into(),
        core.held.state().schema.as_deref().map_or(Value::Null, text),
        (!init_connect.is_empty()).then(|| init_connect.to_owned()).into(),
        variable("time_zone"),
        variable("sql_mode"),
        variable("autocommit"),
        age_ms(core.idle_since_ms).into(),
        statistics.to_string().into(),
        info.to_string().into(),
    ]
}
