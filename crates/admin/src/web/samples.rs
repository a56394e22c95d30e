//! Numbers of the last hour, one row a second, taken from the metrics while the page is enabled: one sampler for all viewers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handover::Sockets;
use hyper::body::Bytes;
use model::stats::{Metric, Sample, StatsSource};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::clock::now_ms;

/// Time between samples.
const EVERY: Duration = Duration::from_secs(1);
/// Samples that are kept: an hour.
const KEPT: usize = 3_600;

/// How a number is made from a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    /// Growth a second.
    Rate,
    Sum,
}

/// Column, metric, the label's value that its samples must have (empty: any), and how.
type Source = (&'static str, &'static str, &'static str, As);

const SOURCES: [Source; 12] = [
    ("queries", "proxysql_questions_total", "", As::Rate),
    ("errors", "proxysql_mysql_error_total", "", As::Rate),
    ("denied", "proxysql_access_denied_wrong_password_total", "", As::Rate),
    ("slow", "proxysql_slow_queries_total", "", As::Rate),
    ("clients", "proxysql_client_connections_connected", "", As::Sum),
    ("backends_used", "proxysql_connpool_conns", "used", As::Sum),
    ("backends_free", "proxysql_connpool_conns", "free", As::Sum),
    ("waiters", "tidegate_waiters", "", As::Sum),
    ("held", "tidegate_hostgroup_held", "", As::Sum),
    ("rss", "tidegate_memory_used_bytes", "", As::Sum),
    ("bytes_in", "proxysql_queries_frontends_bytes_total", "received", As::Rate),
    ("bytes_out", "proxysql_queries_frontends_bytes_total", "sent", As::Rate),
];
/// Columns that the time of statements makes, and the quantile of each.
const QUANTILES: [(&str, f64); 3] = [("p50_us", 0.5), ("p95_us", 0.95), ("p99_us", 0.99)];
const TIMES: &str = "tidegate_statement_seconds";

/// Statements by the upper bound of their time, in µs; each bound has those of the smaller ones too.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Times(pub(super) BTreeMap<u64, f64>);

impl Times {
    /// Adds a bucket of a histogram of seconds.
    pub(super) fn add(&mut self, bucket: &Sample) {
        let bound = bucket.labels.iter().find(|(name, _)| *name == "le").and_then(|(_, le)| le.parse::<f64>().ok());
        if let Some(seconds) = bound {
            // INVARIANT: bounds are seconds, 67 at most, or infinite: a cast that saturates is right for both.
            *self.0.entry((seconds * 1e6).round() as u64).or_insert(0.0) += bucket.value;
        }
    }

    /// Statements of any time.
    pub(super) fn all(&self) -> f64 {
        self.0.last_key_value().map_or(0.0, |(_, count)| *count)
    }
}

/// The time, µs, that so many of the statements since `before` stayed under. Between two bounds the times are taken as even, on a scale of
/// powers. None when there was no statement.
pub(super) fn quantile(now: &Times, before: &Times, quantile: f64) -> Option<f64> {
    let since = |bound: &u64, count: &f64| count - before.0.get(bound).copied().unwrap_or(0.0);
    let all = now.0.iter().next_back().map(|(bound, count)| since(bound, count)).filter(|all| *all > 0.0)?;
    let (mut lower, mut below) = (16.0_f64, 0.0);
    for (bound, count) in &now.0 {
        let (upper, within) = (*bound as f64, since(bound, count));
        if within >= all * quantile {
            let part = (all * quantile - below) / (within - below).max(f64::MIN_POSITIVE);
            return Some(if *bound == u64::MAX { lower } else { lower * (upper / lower).powf(part) });
        }
        (lower, below) = (upper, within);
    }
    None
}

/// The metrics at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
struct Moment {
    at_ms: u64,
    sums: [f64; SOURCES.len()],
    times: Times,
}

impl Moment {
    fn of(at_ms: u64, metrics: &[Metric]) -> Self {
        let sum = |(_, name, label, _): &Source| {
            let samples = metrics.iter().filter(|metric| metric.name == *name).flat_map(|metric| &metric.samples);
            let has_it = |labels: &[(&'static str, String)]| label.is_empty() || labels.iter().any(|(_, value)| value == label);
            samples.filter(|sample| has_it(&sample.labels)).map(|sample| sample.value).fold(0.0, |sum, value| sum + value)
        };
        let mut times = Times::default();
        let buckets = metrics.iter().filter(|metric| metric.name == TIMES).flat_map(|metric| &metric.samples);
        buckets.filter(|sample| sample.suffix == "_bucket").for_each(|sample| times.add(sample));
        Self { at_ms, sums: SOURCES.each_ref().map(sum), times }
    }

    /// A row of the page: what happened since `before`.
    fn row(&self, before: &Self) -> Vec<Value> {
        let seconds = (self.at_ms.saturating_sub(before.at_ms).max(1)) as f64 / 1e3;
        let number = |(index, (_, _, _, how)): (usize, &Source)| match how {
            As::Sum => json!(self.sums[index]),
            As::Rate => json!(((self.sums[index] - before.sums[index]).max(0.0) / seconds * 10.0).round() / 10.0),
        };
        let time = |part| quantile(&self.times, &before.times, part).map_or(Value::Null, |us| json!(us.round()));
        let quantiles = QUANTILES.iter().map(|(_, part)| time(*part));
        std::iter::once(json!(self.at_ms)).chain(SOURCES.iter().enumerate().map(number)).chain(quantiles).collect()
    }
}

/// One row a second for the last hour.
pub(super) struct Samples {
    sources: Arc<Vec<Arc<dyn StatsSource>>>,
    rows: Mutex<VecDeque<Vec<Value>>>,
}

impl Samples {
    /// None yet.
    pub(super) fn new(sources: Arc<Vec<Arc<dyn StatsSource>>>) -> Self {
        Self { sources, rows: Mutex::default() }
    }

    /// Takes one a second, while this process is in charge.
    pub(super) async fn keep_sampling(&self, sockets: &Sockets) {
        let (mut clock, mut before) = (interval(EVERY), None::<Moment>);
        // Never two at once after a stall: a rate over a few milliseconds would be a peak that never was.
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            if !sockets.is_in_charge() {
                before = None;
                continue;
            }
            let sources = Arc::clone(&self.sources);
            // Sources may block for a moment.
            let gather = move || Moment::of(now_ms(), &sources.iter().flat_map(|source| source.metrics()).collect::<Vec<_>>());
            let Ok(moment) = tokio::task::spawn_blocking(gather).await else { continue };
            if let Some(before) = &before {
                let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
                if rows.len() >= KEPT {
                    rows.pop_front();
                }
                rows.push_back(moment.row(before));
            }
            before = Some(moment);
        }
    }

    /// The samples after a time (`since=<Unix ms>` in the query), as JSON.
    pub(super) fn since(&self, query: &str) -> Bytes {
        let since = query.split('&').find_map(|pair| pair.strip_prefix("since=")?.parse::<u64>().ok()).unwrap_or(0);
        let names = std::iter::once("at").chain(SOURCES.iter().map(|(name, ..)| *name)).chain(QUANTILES.iter().map(|(name, _)| *name));
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = rows.iter().filter(|row| row.first().and_then(Value::as_u64).is_some_and(|at| at > since));
        json!({ "columns": names.collect::<Vec<_>>(), "rows": wanted.collect::<Vec<_>>() }).to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_happened_since() {
        let times = |counts: [f64; 3]| Times([1_000, 4_000, u64::MAX].into_iter().zip(counts).collect());
        let (before, after) = (times([1_000.0, 1_000.0, 1_000.0]), times([1_000.0, 1_100.0, 1_100.0]));
        let half = quantile(&after, &before, 0.5).unwrap();
        assert!((1_900.0..2_100.0).contains(&half), "{half}");
        assert_eq!(quantile(&before, &before, 0.5), None, "no statement has no time");
        let endless = times([1_000.0, 1_000.0, 1_010.0]);
        assert_eq!(quantile(&endless, &before, 0.99), Some(4_000.0), "at least that");
    }
}
