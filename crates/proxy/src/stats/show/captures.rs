//! Table and metrics of captures.

use super::{Rows, Table};
use crate::captures::Run;
use crate::stats::ProxyStats;
use model::stats::MetricKind::{Counter, Gauge};
use model::stats::{Metric, MetricKind, Reading, Sample, StatsSchema, StatsTable, Value, stat};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module.
pub(super) const TABLES: &[Table] = &[Table {
    table: StatsTable {
        schema: StatsSchema::Stats,
        name: "stats_tidegate_captures",
        columns: &[
            stat("number", "INTEGER"),
            stat("name", "VARCHAR"),
            stat("state", "VARCHAR"),
            stat("reason", "VARCHAR"),
            stat("file", "VARCHAR"),
            stat("sealed", "INTEGER"),
            stat("started_at", "INTEGER"),
            stat("seconds", "INTEGER"),
            stat("bytes", "INTEGER"),
            stat("queued_bytes", "INTEGER"),
            stat("sessions", "INTEGER"),
            stat("commands", "INTEGER"),
            stat("gaps", "INTEGER"),
            stat("gap_reasons", "VARCHAR"),
            stat("withheld", "INTEGER"),
            stat("withheld_reasons", "VARCHAR"),
            stat("missed", "INTEGER"),
        ],
        primary_key: &["number"],
        has_reset: false,
        help: "The last 20 captures of traffic since the start of the process, with the reason why each ended",
    },
    rows: captures,
}];

fn captures(stats: &ProxyStats, _: Reading) -> Rows {
    let now_us = stats.shared.clock.now_us();
    stats.shared.captures.runs().iter().map(|run| row(run, now_us)).collect()
}

fn row(run: &Run, now_us: u64) -> Vec<Value> {
    let state = match (run.stopped(), run.is_written()) {
        (None, _) => "running",
        (Some(_), false) => "writing",
        (Some(_), true) => "ended",
    };
    let number = |count: &std::sync::atomic::AtomicU64| Value::from(count.load(Ordering::Relaxed));
    vec![
        run.number.into(),
        (*run.plan.name).into(),
        state.into(),
        run.reason().into(),
        run.file().into(),
        i64::from(run.plan.key.is_some()).into(),
        run.started_at.into(),
        run.seconds(now_us).into(),
        number(&run.bytes),
        run.queued_bytes().into(),
        number(&run.sessions),
        number(&run.commands),
        run.gaps().map(|(_, count)| count).sum::<u64>().into(),
        listed(run.gaps().map(|(why, count)| (why.name(), count))).into(),
        run.withheld().map(|(_, count)| count).sum::<u64>().into(),
        listed(run.withheld().map(|(why, count)| (why.name(), count))).into(),
        number(&run.missed),
    ]
}

fn listed<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let some: Vec<String> = counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
    some.join(", ")
}

/// Values of a capture, by reason where there is one.
type ByReason = Vec<(Option<&'static str>, u64)>;

/// What is counted, of the newest capture of each name.
pub(super) fn metrics(stats: &ProxyStats) -> Vec<Metric> {
    let runs = newest(stats.shared.captures.runs());
    let family = |name: &'static str, kind: MetricKind, help: &'static str, value: &dyn Fn(&Run) -> ByReason| {
        let samples = runs.iter().flat_map(|run| {
            let of_run = value(run).into_iter().map(|(reason, value)| {
                let mut labels = vec![("capture", run.plan.name.to_string())];
                labels.extend(reason.map(|reason| ("reason", reason.to_owned())));
                Sample { suffix: "", labels, value: value as f64 }
            });
            of_run.collect::<Vec<_>>()
        });
        Metric { name, help, kind, samples: samples.collect() }
    };
    let one = |value: u64| vec![(None, value)];
    vec![
        family("tidegate_capture_running", Gauge, "1 while the capture runs", &|run| one(u64::from(run.stopped().is_none()))),
        family("tidegate_capture_bytes", Gauge, "Bytes of the capture's file", &|run| one(run.bytes.load(Ordering::Relaxed))),
        family(
            "tidegate_capture_queued_bytes",
            Gauge,
            "Bytes that wait to be written, of mysql-capture_queue_max_mb for each thread",
            &|run| one(run.queued_bytes()),
        ),
        family("tidegate_capture_commands_total", Counter, "Commands in the capture", &|run| one(run.commands.load(Ordering::Relaxed))),
        family("tidegate_capture_gaps_total", Counter, "Gaps in captured sessions, by reason", &|run| {
            run.gaps().map(|(why, count)| (Some(why.name()), count)).collect()
        }),
        family("tidegate_capture_missed_total", Counter, "Commands of wanted sessions that the capture could not begin with yet", &|run| {
            one(run.missed.load(Ordering::Relaxed))
        }),
        family("tidegate_capture_withheld_total", Counter, "Commands that were not captured, by reason", &|run| {
            run.withheld().map(|(why, count)| (Some(why.name()), count)).collect()
        }),
    ]
}

fn newest(runs: Vec<Arc<Run>>) -> Vec<Arc<Run>> {
    let mut newest: Vec<Arc<Run>> = Vec::new();
    for run in runs {
        newest.retain(|before| before.plan.name != run.plan.name);
        newest.push(run);
    }
    newest
}
