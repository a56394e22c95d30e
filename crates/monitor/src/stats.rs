//! The monitor's tables and metrics, as the admin interface asks for them.

use std::collections::BTreeMap;

use model::HostgroupId;
use model::stats::{Metric, MetricKind, Reading, Sample, StatsSchema, StatsSource, StatsTable, Value, stat};

use topology::MemberIdentity;

use crate::log;
use crate::monitor::{Monitor, lock};

/// Shared with the data plane, which has its own lines in it.
static GLOBAL: StatsTable = StatsTable {
    schema: StatsSchema::Stats,
    name: "stats_mysql_global",
    columns: &[stat("Variable_Name", "VARCHAR"), stat("Variable_Value", "VARCHAR")],
    primary_key: &["Variable_Name"],
    has_reset: false,
    help: "Counters and gauges of the whole process",
};

impl StatsSource for Monitor {
    fn tables(&self) -> Vec<&'static StatsTable> {
        log::all().chain([&GLOBAL]).collect()
    }

    fn rows(&self, table: &'static StatsTable, _reading: Reading) -> Vec<Vec<Value>> {
        if table.name == GLOBAL.name { self.counts.global(&self.connector.resolver.counts) } else { log::rows(self, table.name) }
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.counts.metrics(&self.connector.resolver.counts);
        metrics.push(lock(&self.holds).metric());
        metrics.push(lock(&self.channels).metric());
        metrics.extend(self.healing.metrics());
        metrics.push(strangers(&self.identities()));
        metrics.push(writable(self.writable()));
        metrics.push(strays(self.strays()));
        metrics.push(refused(lock(&self.log).refused()));
        metrics
    }
}

/// Servers that belong to another cluster, for each cluster whose servers tell.
fn strangers(identities: &[MemberIdentity]) -> Metric {
    let mut counts: BTreeMap<HostgroupId, u32> = BTreeMap::new();
    for one in identities {
        *counts.entry(one.writer).or_default() += u32::from(one.is_stranger());
    }
    let sample =
        |(writer, count): (HostgroupId, u32)| Sample { suffix: "", labels: vec![("cluster", writer.to_string())], value: count.into() };
    Metric {
        name: "tidegate_foreign_servers",
        help: "Servers excluded because they belong to another cluster, by writer hostgroup",
        kind: MetricKind::Gauge,
        samples: counts.into_iter().map(sample).collect(),
    }
}

/// Servers that say that they are writable, for each replication cluster.
fn writable(counts: Vec<(HostgroupId, usize)>) -> Metric {
    by_cluster(
        "tidegate_writable_servers",
        "Servers of a replication cluster that say read_only=0, by writer hostgroup, those that are kept out too",
        counts,
    )
}

/// Servers that do not replicate from the writer, for each replication cluster where that is judged.
fn strays(counts: Vec<(HostgroupId, usize)>) -> Metric {
    by_cluster(
        "tidegate_stray_replicas",
        "Servers of a replication cluster that serve no reads because they do not replicate from its writer, by writer hostgroup",
        counts,
    )
}

fn by_cluster(name: &'static str, help: &'static str, counts: Vec<(HostgroupId, usize)>) -> Metric {
    let sample =
        |(writer, count): (HostgroupId, usize)| Sample { suffix: "", labels: vec![("cluster", writer.to_string())], value: count as f64 };
    Metric { name, help, kind: MetricKind::Gauge, samples: counts.into_iter().map(sample).collect() }
}

/// Servers of which the monitor learns nothing, for each kind of check.
fn refused(counts: impl Iterator<Item = (&'static str, usize)>) -> Metric {
    let sample = |(check, count): (&str, usize)| Sample { suffix: "", labels: vec![("check", check.to_owned())], value: count as f64 };
    Metric {
        name: "tidegate_monitor_refused_servers",
        help: "Servers that refuse a check, by kind: the monitor cannot log in or lacks a privilege",
        kind: MetricKind::Gauge,
        samples: counts.map(sample).collect(),
    }
}

#[cfg(test)]
mod tests {
    use model::ServerAddr;
    use topology::Identity;

    use super::*;

    #[test]
    fn clusters_without_strangers_are_counted_too() {
        let one = |writer, identity: &str| MemberIdentity {
            writer: HostgroupId(writer),
            server: ServerAddr { host: "db".into(), port: 3306 },
            identity: Identity::new(identity),
            cluster: Identity::new("ours"),
            is_settled: true,
        };
        let metric = strangers(&[one(1, "ours"), one(1, ""), one(2, "ours"), one(2, "theirs")]);
        let counts: Vec<_> = metric.samples.iter().map(|sample| (&*sample.labels[0].1, sample.value)).collect();
        assert_eq!(counts, [("1", 0.0), ("2", 1.0)]);
    }
}
