//! Metrics for Prometheus: the numbers of `stats_mysql_global` under ProxySQL's names, servers, errors, and what only
//! Tidegate has: pins, waits, latencies.

use super::global::{GLOBAL, MEMORY, Number, is_paused};
use super::pins::by_reason;
use super::pool::{Pooled, Waiting, waiting};
use super::totals::Totals;
use crate::stats::{ProxyStats, collect};
use meter::histogram::Histogram;
use model::ServerStatus;
use model::stats::MetricKind::{Counter, Gauge};
use model::stats::{Metric, MetricKind, Reading, Sample};

type Labels = Vec<(&'static str, String)>;

/// Families in the order of their first sample.
#[derive(Default)]
struct Families(Vec<Metric>);

impl Families {
    fn add(&mut self, (name, kind, help): (&'static str, MetricKind, &'static str), suffix: &'static str, labels: Labels, value: f64) {
        let sample = Sample { suffix, labels, value };
        match self.0.iter_mut().find(|metric| metric.name == name) {
            Some(metric) => metric.samples.push(sample),
            None => self.0.push(Metric { name, help, kind, samples: vec![sample] }),
        }
    }
}

/// Exact for any number that a process can count to.
fn float(number: u64) -> f64 {
    number as f64
}

pub(crate) fn metrics(stats: &ProxyStats) -> Vec<Metric> {
    let totals = Totals::read(stats);
    let mut families = Families::default();
    numbers(&mut families, &totals, GLOBAL);
    numbers(&mut families, &totals, MEMORY);
    process(&mut families, stats, &totals);
    settings(&mut families, &totals);
    totals.listed().for_each(|server| of_server(&mut families, server));
    errors(&mut families, stats);
    cache(&mut families, stats);
    pins(&mut families, stats, &totals);
    waits(&mut families, stats);
    totals.listed().for_each(|server| latencies(&mut families, server));
    families.0.extend(super::rehearsals::metrics(stats));
    families.0.extend(super::captures::metrics(stats));
    families.0
}

fn numbers(families: &mut Families, totals: &Totals, numbers: &[Number]) {
    for number in numbers {
        let Some(metric) = &number.metric else { continue };
        let labels = metric.label.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        families.add((metric.name, metric.kind, metric.help), "", labels, float((number.value)(totals)));
    }
}

/// What is no plain number of `stats_mysql_global`.
fn process(families: &mut Families, stats: &ProxyStats, totals: &Totals) {
    let counted = &totals.census.counted;
    let paused = ("proxysql_mysql_listener_paused", Gauge, "1 while clients are not accepted");
    families.add(paused, "", Vec::new(), float(u64::from(is_paused(stats))));
    let rules = ("proxysql_query_processor_time_seconds_total", Counter, "Time in rules, if mysql-stats_time_query_processor is on");
    families.add(rules, "", Vec::new(), float(counted.rules_ns) / 1e9);
    let servers = ("proxysql_backend_query_time_seconds_total", Counter, "Time of servers, if mysql-stats_time_backend_query is on");
    families.add(servers, "", Vec::new(), float(counted.backend_ns) / 1e9);
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        families.add(("proxysql_fds_in_use", Gauge, "Open descriptors"), "", Vec::new(), float(open.count() as u64));
    }
}

fn settings(families: &mut Families, totals: &Totals) {
    let vars = &totals.snapshot.vars;
    for (name, help, value) in [
        ("proxysql_mysql_wait_timeout", "mysql-wait_timeout, ms", vars.wait_timeout),
        ("proxysql_mysql_max_connections", "mysql-max_connections", vars.max_connections),
    ] {
        families.add((name, Gauge, help), "", Vec::new(), float(value));
    }
}

fn server_labels(server: &Pooled) -> Labels {
    let key = &server.server.key;
    vec![("endpoint", format!("{}:{}", key.host, key.port)), ("hostgroup", key.hostgroup.to_string())]
}

/// ProxySQL's numbers for a status.
fn status_number(status: ServerStatus) -> u64 {
    match status {
        ServerStatus::Online => 1,
        ServerStatus::Shunned => 2,
        ServerStatus::OfflineSoft => 3,
        ServerStatus::OfflineHard => 4,
        ServerStatus::ShunnedReplicationLag => 5,
    }
}

const BYTES: (&str, MetricKind, &str) = ("proxysql_connpool_data_bytes_total", Counter, "Bytes of packets by server");
const CONNECTS: (&str, MetricKind, &str) = ("proxysql_connpool_conns_total", Counter, "Connects by server");
const QUERIES: (&str, MetricKind, &str) = ("proxysql_connpool_conns_queries_total", Counter, "Statements by server");
const CONNECTIONS: (&str, MetricKind, &str) = ("proxysql_connpool_conns", Gauge, "Connections by server");
const LATENCY_US: (&str, MetricKind, &str) = ("proxysql_connpool_conns_latency_us", Gauge, "Average ping by server, us");
const STATUS: (&str, MetricKind, &str) =
    ("proxysql_connpool_conns_status", Gauge, "1 ONLINE, 2 SHUNNED, 3 OFFLINE_SOFT, 4 OFFLINE_HARD, 5 shunned for lag");

fn of_server(families: &mut Families, server: &Pooled) {
    let totals = &server.totals;
    let samples = [
        (BYTES, Some(("traffic_flow", "recv")), totals.bytes_received),
        (BYTES, Some(("traffic_flow", "sent")), totals.bytes_sent),
        (CONNECTS, Some(("status", "ok")), totals.connects_ok),
        (CONNECTS, Some(("status", "err")), totals.connects_failed),
        (QUERIES, None, totals.queries),
        (CONNECTIONS, Some(("status", "free")), u64::from(server.free)),
        (CONNECTIONS, Some(("status", "used")), u64::from(server.used)),
        (LATENCY_US, None, server.server.latency_us()),
        (STATUS, None, status_number(server.server.status())),
    ];
    for (family, label, value) in samples {
        let mut labels = server_labels(server);
        labels.extend(label.map(|(name, value)| (name, value.to_owned())));
        families.add(family, "", labels, float(value));
    }
}

fn cache(families: &mut Families, stats: &ProxyStats) {
    let values = stats.shared.cache.values();
    let of = |name: &str| values.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
    let (asked, answered) = (of("Query_Cache_count_GET"), of("Query_Cache_count_GET_OK"));
    let lookups = ("proxysql_query_cache_count_get_total", Counter, "Lookups in the query cache, by result");
    let bytes = ("proxysql_query_cache_bytes_total", Counter, "Bytes written to and read from the query cache");
    let stored = ("proxysql_query_cache_count_set_total", Counter, "Results stored in the query cache");
    let purged = ("proxysql_query_cache_purged_total", Counter, "Results purged from the query cache");
    let entries = ("proxysql_query_cache_entries_total", Counter, "Results in the query cache");
    let memory = ("proxysql_query_cache_memory_bytes", Gauge, "Memory of the query cache");
    for (family, label, value) in [
        (lookups, Some(("status", "ok")), answered),
        (lookups, Some(("status", "err")), asked.saturating_sub(answered)),
        (stored, None, of("Query_Cache_count_SET")),
        (bytes, Some(("op", "written")), of("Query_Cache_bytes_IN")),
        (bytes, Some(("op", "read")), of("Query_Cache_bytes_OUT")),
        (purged, None, of("Query_Cache_Purged")),
        (entries, None, of("Query_Cache_Entries")),
        (memory, None, of("Query_Cache_Memory_bytes")),
    ] {
        let labels = label.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        families.add(family, "", labels, float(value));
    }
}

fn errors(families: &mut Families, stats: &ProxyStats) {
    let table = collect::errors(&stats.shared, Reading::Keep);
    let mut by_code = std::collections::BTreeMap::new();
    for (key, sums) in table.rows() {
        *by_code.entry((key.hostgroup, &key.host, key.port, key.code)).or_insert(0) += sums.count;
    }
    for ((hostgroup, host, port, code), count) in by_code {
        let labels = vec![
            ("hostgroup", hostgroup.to_string()),
            ("address", host.to_string()),
            ("port", port.to_string()),
            ("code", code.to_string()),
        ];
        for name in ["mysql_error_total", "proxysql_mysql_error_total"] {
            families.add((name, Counter, "Errors by number; without an address: the proxy's own"), "", labels.clone(), float(count));
        }
    }
    let unlisted = ("tidegate_errors_unlisted_total", Counter, "Errors missing from stats_mysql_errors because it was full");
    families.add(unlisted, "", Vec::new(), float(table.unlisted()));
}

fn pins(families: &mut Families, stats: &ProxyStats, totals: &Totals) {
    for ((reason, sessions, longest_ms), began) in by_reason(&stats.shared).into_iter().zip(totals.census.pins_began) {
        let labels = || vec![("reason", reason.name().to_owned())];
        families.add(("tidegate_pinned_sessions", Gauge, "Sessions that must keep their connection"), "", labels(), float(sessions));
        families.add(("tidegate_pins_total", Counter, "Pins that began"), "", labels(), float(began));
        let longest = ("tidegate_pin_longest_seconds", Gauge, "Age of the oldest current pin");
        families.add(longest, "", labels(), float(longest_ms) / 1e3);
    }
}

fn waits(families: &mut Families, stats: &ProxyStats) {
    for (hostgroup, Waiting { waiters, oldest_ms, batches }) in waiting(&stats.shared) {
        let labels = || vec![("hostgroup", hostgroup.to_string())];
        families.add(("tidegate_waiters", Gauge, "Sessions that wait for a connection"), "", labels(), float(waiters));
        let depth = ("tidegate_pipeline_depth", Gauge, "Reads that may be under way on one connection at a time");
        families.add(depth, "", labels(), float(batches.depth));
        let oldest = ("tidegate_waiter_oldest_seconds", Gauge, "Longest current wait for a connection");
        families.add(oldest, "", labels(), float(oldest_ms) / 1e3);
    }
}

/// Bounds of the latency metric: 64 us, then four times as much each, to 67 s.
const EXPONENTS: [u32; 11] = [6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26];
const LATENCY: (&str, MetricKind, &str) =
    ("tidegate_statement_seconds", MetricKind::Histogram, "From the command's receipt to the answer's last byte");

fn latencies(families: &mut Families, server: &Pooled) {
    for (class, histogram) in server.meter.latency() {
        let mut labels = server_labels(server);
        labels.push(("kind", class.name().to_owned()));
        latency(families, labels, histogram);
    }
}

fn latency(families: &mut Families, labels: Labels, histogram: &Histogram) {
    for exponent in EXPONENTS {
        let mut labels = labels.clone();
        labels.push(("le", (float(1 << exponent) / 1e6).to_string()));
        families.add(LATENCY, "_bucket", labels, float(histogram.below_power(exponent)));
    }
    let mut all = labels.clone();
    all.push(("le", "+Inf".to_owned()));
    families.add(LATENCY, "_bucket", all, float(histogram.count()));
    families.add(LATENCY, "_sum", labels.clone(), float(histogram.sum()) / 1e6);
    families.add(LATENCY, "_count", labels, float(histogram.count()));
}
