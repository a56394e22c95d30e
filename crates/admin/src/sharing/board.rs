//! `stats_tidegate_proxies`, and metrics of the shared configuration.

use std::sync::atomic::{AtomicU64, Ordering};

use model::stats::{Metric, MetricKind, Reading, Sample, StatsColumn, StatsSchema, StatsSource, StatsTable, Value, stat};
use shared_config::Link;

use super::Sharing;

const COLUMNS: &[StatsColumn] = &[
    stat("name", "VARCHAR"),
    stat("uuid", "VARCHAR"),
    stat("address", "VARCHAR"),
    stat("version", "VARCHAR"),
    stat("applied", "INT"),
    stat("wanted", "INT"),
    stat("since", "INT"),
    stat("error", "VARCHAR"),
    stat("is_this", "INT"),
];

/// One row for each live proxy.
pub(super) static TABLE: StatsTable = StatsTable {
    schema: StatsSchema::Stats,
    name: "stats_tidegate_proxies",
    columns: COLUMNS,
    primary_key: &["uuid"],
    has_reset: false,
    help: "Proxies that share a configuration, with the revision in force, the wanted revision, since when, and any error",
};

/// Among peers too.
pub(super) fn conflict(is_there: bool) -> Metric {
    Metric {
        name: "tidegate_config_conflict",
        help: "1 if the shared configuration does not derive from the one in force here. An operator must decide",
        kind: MetricKind::Gauge,
        samples: vec![Sample { suffix: "", labels: Vec::new(), value: f64::from(u8::from(is_there)) }],
    }
}

/// Among peers too.
pub(super) fn too_large(count: u64) -> Metric {
    Metric {
        name: "tidegate_config_too_large_total",
        help: "Revisions and replies of etcd or peers refused because of their size",
        kind: MetricKind::Counter,
        samples: vec![Sample { suffix: "", labels: Vec::new(), value: count as f64 }],
    }
}

impl StatsSource for Sharing {
    fn tables(&self) -> Vec<&'static StatsTable> {
        vec![&TABLE]
    }

    fn rows(&self, table: &'static StatsTable, _: Reading) -> Vec<Vec<Value>> {
        let seen = self.seen();
        if table.name != TABLE.name || seen.link == Link::Off {
            return Vec::new();
        }
        let me = self.me();
        // Of this one it knows better than etcd does.
        let others = seen.proxies.iter().filter(|proxy| proxy.uuid != me.uuid);
        let mut all: Vec<_> = others.cloned().chain([me.clone()]).collect();
        all.sort_by(|one, other| (&one.name, &one.uuid).cmp(&(&other.name, &other.uuid)));
        let row = |proxy: shared_config::ProxyLine| {
            let wanted = seen.head.as_ref().map_or(proxy.wanted, |head| Self::wanted(head, &proxy.uuid).number);
            let error = match &seen.link {
                Link::Down(_, why) if proxy.uuid == me.uuid && proxy.error.is_empty() => why.clone(),
                _ if proxy.error.is_empty() => proxy.remark,
                _ => proxy.error,
            };
            let is_this = Value::Integer(i64::from(proxy.uuid == me.uuid));
            let (name, uuid, address, version) = (proxy.name.into(), proxy.uuid.into(), proxy.address.into(), proxy.version.into());
            vec![name, uuid, address, version, proxy.applied.into(), wanted.into(), proxy.since.into(), error.into(), is_this]
        };
        all.into_iter().map(row).collect()
    }

    fn metrics(&self) -> Vec<Metric> {
        let seen = self.seen();
        if seen.link == Link::Off {
            return Vec::new();
        }
        let me = self.me();
        let wanted = seen.head.as_ref().map_or(me.wanted, |head| Self::wanted(head, &me.uuid).number);
        let behind = seen.proxies.iter().filter(|proxy| {
            let wanted = seen.head.as_ref().map_or(proxy.wanted, |head| Self::wanted(head, &proxy.uuid).number);
            proxy.applied != wanted || !proxy.error.is_empty()
        });
        let sample = |labels: Vec<(&'static str, String)>, value: u64| Sample { suffix: "", labels, value: value as f64 };
        let kind = |kind: &str, value| sample(vec![("kind", kind.to_owned())], value);
        let one = |name, help, metric_kind, value| Metric { name, help, kind: metric_kind, samples: vec![sample(Vec::new(), value)] };
        let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let counts = &self.shared().counts;
        vec![
            Metric {
                name: "tidegate_config_revision",
                help: "Revision of the shared configuration in force here, and the wanted revision",
                kind: MetricKind::Gauge,
                samples: vec![kind("applied", me.applied), kind("wanted", wanted)],
            },
            one("tidegate_config_proxies", "Proxies that share the configuration", MetricKind::Gauge, count(seen.proxies.len())),
            one("tidegate_config_proxies_behind", "Proxies without their wanted revision", MetricKind::Gauge, count(behind.count())),
            conflict(seen.head.as_ref().is_some_and(|head| self.conflict(head).is_some())),
            too_large(counted(&counts.too_large)),
            one("tidegate_config_store_up", "1 while etcd is connected", MetricKind::Gauge, u64::from(seen.link == Link::Up)),
            one("tidegate_config_store_lost_total", "Lost connections to etcd", MetricKind::Counter, counted(&counts.lost)),
            one("tidegate_config_watches_total", "Watches of etcd that were started", MetricKind::Counter, counted(&counts.watches)),
            one("tidegate_config_published_total", "Revisions that this proxy published", MetricKind::Counter, counted(&counts.published)),
            one(
                "tidegate_config_races_lost_total",
                "Changes that lost a race against another proxy",
                MetricKind::Counter,
                counted(&counts.races_lost),
            ),
        ]
    }
}
