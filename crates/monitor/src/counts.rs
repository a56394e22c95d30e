//! The monitor's counters, for metrics and `stats_mysql_global`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use model::fleet::SignalKind;
use model::stats::{Metric, MetricKind, Sample, Value};
use topology::{CheckKind, Event, ProbeError};

use crate::dns::DnsCounts;
use crate::inbox::Taken;
use crate::lane::Checked;
use crate::log::kind_name;
use crate::monitor::lock;

/// Counts by two labels.
type Pairs = Mutex<BTreeMap<(String, &'static str), u64>>;

/// See the module. One a process.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    checks: Pairs,
    changes: Pairs,
    signals: Pairs,
    lanes: AtomicU64,
}

impl Counts {
    /// Counts a finished check by kind and result.
    pub(crate) fn checked(&self, checked: &Checked) {
        add(&self.checks, kind_name(checked.kind), result(checked));
    }

    /// Something was decided.
    pub(crate) fn changed(&self, event: &Event) {
        let cluster = event.cluster.map(|id| id.to_string()).unwrap_or_default();
        add(&self.changes, &cluster, event.kind.as_str());
    }

    /// Traffic saw something.
    pub(crate) fn signalled(&self, kind: SignalKind, taken: Taken) {
        let outcome = match taken {
            Taken::New => "taken",
            Taken::Merged => "merged",
            Taken::Dropped => "dropped",
        };
        add(&self.signals, kind.as_str(), outcome);
    }

    /// Sets the gauge of running lanes.
    pub(crate) fn set_lanes(&self, count: usize) {
        self.lanes.store(count as u64, Ordering::Relaxed);
    }

    /// Checks of a kind that had an answer, and those that had none.
    fn ok_and_err(&self, kind: CheckKind) -> (u64, u64) {
        let checks = lock(&self.checks);
        let of_kind = checks.iter().filter(|((name, _), _)| name == kind_name(kind));
        of_kind.fold((0, 0), |(ok, err), ((_, result), count)| if *result == "ok" { (ok + count, err) } else { (ok, err + count) })
    }

    /// The monitor's lines of `stats_mysql_global`, under ProxySQL's names.
    pub(crate) fn global(&self, dns: &DnsCounts) -> Vec<Vec<Value>> {
        let mut rows: Vec<(String, u64)> = vec![("MySQL_Monitor_Workers".into(), 1)];
        rows.extend(["MySQL_Monitor_Workers_Aux", "MySQL_Monitor_Workers_Started"].map(|name| (name.to_owned(), 0)));
        for (kind, name) in PROXYSQL_CHECKS {
            let (ok, err) = self.ok_and_err(*kind);
            rows.extend([(format!("MySQL_Monitor_{name}_OK"), ok), (format!("MySQL_Monitor_{name}_ERR"), err)]);
        }
        let dns = [("queried", &dns.queried), ("lookup_success", &dns.hits), ("record_updated", &dns.updated)];
        rows.extend(dns.map(|(name, count)| (format!("MySQL_Monitor_dns_cache_{name}"), count.load(Ordering::Relaxed))));
        rows.into_iter().map(|(name, count)| vec![name.into(), count.to_string().into()]).collect()
    }

    pub(crate) fn metrics(&self, dns: &DnsCounts) -> Vec<Metric> {
        let mut metrics = vec![
            pairs("tidegate_role_changes_total", "Changes of roles, statuses and members, by cluster", ["cluster", "kind"], &self.changes),
            pairs("tidegate_monitor_checks_total", "Checks of servers", ["kind", "result"], &self.checks),
            pairs("tidegate_monitor_signals_total", "Reports of traffic about servers", ["kind", "outcome"], &self.signals),
            single(
                "tidegate_monitor_lanes",
                "Connections' worth of checks that run",
                MetricKind::Gauge,
                self.lanes.load(Ordering::Relaxed),
            ),
        ];
        metrics.extend(PROXYSQL_METRICS.iter().map(|(kind, name, help)| self.proxysql_check(*kind, name, help)));
        let count = |name, help, count: &AtomicU64| single(name, help, MetricKind::Counter, count.load(Ordering::Relaxed));
        metrics.push(count("proxysql_mysql_monitor_dns_cache_queried", "Names that were asked for", &dns.queried));
        metrics.push(count("proxysql_mysql_monitor_dns_cache_lookup_success", "Names that were known", &dns.hits));
        metrics.push(count(
            "proxysql_mysql_monitor_dns_cache_record_updated",
            "Names whose addresses were new or have changed",
            &dns.updated,
        ));
        metrics
    }

    fn proxysql_check(&self, kind: CheckKind, name: &'static str, help: &'static str) -> Metric {
        let (ok, err) = self.ok_and_err(kind);
        let sample = |status: &str, count| Sample { suffix: "", labels: vec![("status", status.to_owned())], value: as_float(count) };
        Metric { name, help, kind: MetricKind::Counter, samples: vec![sample("ok", ok), sample("err", err)] }
    }
}

const READ_ONLY: CheckKind = CheckKind::ReadOnly(model::snapshot::ReadOnlyCheck::ReadOnly);

/// Checks as `stats_mysql_global` names them.
const PROXYSQL_CHECKS: &[(CheckKind, &str)] = &[
    (CheckKind::Connect, "connect_check"),
    (CheckKind::Ping, "ping_check"),
    (READ_ONLY, "read_only_check"),
    (CheckKind::Lag, "replication_lag_check"),
];

/// Checks as ProxySQL's metrics name them.
const PROXYSQL_METRICS: &[(CheckKind, &str, &str)] = &[
    (CheckKind::Connect, "proxysql_mysql_monitor_connect_check_total", "Logins that were tried"),
    (CheckKind::Ping, "proxysql_mysql_monitor_ping_check_total", "Pings"),
    (READ_ONLY, "proxysql_mysql_monitor_read_only_check_total", "Checks of read_only"),
    (CheckKind::Lag, "proxysql_mysql_monitor_replication_lag_check_total", "Checks of replication lag"),
];

fn result(checked: &Checked) -> &'static str {
    match &checked.outcome {
        Ok(_) => "ok",
        Err(ProbeError::Timeout | ProbeError::Unresolved(_)) => "timeout",
        Err(ProbeError::Unreachable(_) | ProbeError::Closed(_)) => "unreachable",
        Err(ProbeError::Denied(_)) => "denied",
        Err(ProbeError::Failed(_)) => "failed",
    }
}

fn add(pairs: &Pairs, first: &str, second: &'static str) {
    *lock(pairs).entry((first.to_owned(), second)).or_default() += 1;
}

fn pairs(name: &'static str, help: &'static str, labels: [&'static str; 2], counts: &Pairs) -> Metric {
    let sample = |((first, second), count): (&(String, &'static str), &u64)| Sample {
        suffix: "",
        labels: vec![(labels[0], first.clone()), (labels[1], (*second).to_owned())],
        value: as_float(*count),
    };
    Metric { name, help, kind: MetricKind::Counter, samples: lock(counts).iter().map(sample).collect() }
}

fn single(name: &'static str, help: &'static str, kind: MetricKind, count: u64) -> Metric {
    Metric { name, help, kind, samples: vec![Sample { suffix: "", labels: Vec::new(), value: as_float(count) }] }
}

/// Counts are exact up to 2^53.
#[allow(clippy::cast_precision_loss)]
fn as_float(count: u64) -> f64 {
    count as f64
}
