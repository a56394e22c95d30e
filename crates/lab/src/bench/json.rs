//! The report as JSON, for comparing runs.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::compare::{Compared, Row};
use super::digests::DigestSpeed;
use super::idle::Idle;
use super::load_times::LoadTimes;
use super::runner::{Outcome, PointOutcome};
use super::summary::{Figures, Ratio};

/// All of an outcome. Times are in microseconds, memory in bytes.
pub fn document(outcome: &Outcome) -> Value {
    let when = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    json!({
        "unix_time": when,
        "plan": outcome.plan,
        "repeats": outcome.repeats,
        "seconds": outcome.seconds,
        "processors": std::thread::available_parallelism().map_or(0, |count| count.get()),
        "load_average_before": outcome.load_before,
        "load_average_after": outcome.load_after,
        "versions": outcome.versions,
        "points": outcome.points.iter().map(point).collect::<Vec<_>>(),
        "compared": outcome.compared.iter().map(compared).collect::<Vec<_>>(),
        "load_seconds": outcome.load_times.iter().map(load_times).collect::<Vec<_>>(),
        "digests": outcome.digests.iter().map(digest).collect::<Vec<_>>(),
        "idle": outcome.idle.iter().map(idle).collect::<Vec<_>>(),
        "not_measured": outcome.not_measured,
    })
}

fn point(outcome: &PointOutcome) -> Value {
    let peers = outcome.peers.iter().map(|(kind, result)| {
        let value = match result {
            Ok(measured) => figures(measured),
            Err(reason) => json!({ "failed": reason }),
        };
        (kind.name().to_owned(), value)
    });
    json!({
        "load": outcome.point.name,
        "clients": outcome.point.clients,
        "unit": outcome.point.unit.name(),
        "peers": peers.collect::<Map<_, _>>(),
        "cpu_tidegate_to_haproxy": outcome.ratio.map(ratio),
        "load_average": outcome.load_average,
    })
}

fn ratio(ratio: Ratio) -> Value {
    json!({ "median": ratio.median, "least": ratio.least, "most": ratio.most })
}

fn compared(compared: &Compared) -> Value {
    json!({
        "load": compared.comparison.point.name,
        "clients": compared.comparison.point.clients,
        "arrangements": compared.rows.iter().map(row).collect::<Vec<_>>(),
        "load_average": compared.load_average,
    })
}

fn row(row: &Row) -> Value {
    json!({
        "name": row.name,
        "figures": match &row.figures {
            Ok(measured) => figures(measured),
            Err(reason) => json!({ "failed": reason }),
        },
        "cpu_to_first": row.ratio.map(ratio),
        "cache_hits": row.cache_hits,
        "copies": row.copies,
    })
}

fn load_times(times: &LoadTimes) -> Value {
    let steps = times.steps.iter().map(|(name, seconds)| ((*name).to_owned(), json!(seconds)));
    json!({ "what": times.what, "rows": times.rows, "seconds": steps.collect::<Map<_, _>>() })
}

fn digest(speed: &DigestSpeed) -> Value {
    json!({ "statement": speed.name, "bytes": speed.bytes, "analyze_mb_per_second": speed.analyze_mb, "digest_mb_per_second": speed.digest_mb })
}

fn figures(figures: &Figures) -> Value {
    json!({
        "cpu_us": figures.cpu_us,
        "user_us": figures.user_us,
        "switches": figures.switches,
        "per_second": figures.per_second,
        "p50_us": figures.p50_us,
        "p99_us": figures.p99_us,
        "slowest_to_mean": figures.fairness,
    })
}

fn idle(idle: &Idle) -> Value {
    json!({
        "peer": idle.kind.name(),
        "security": idle.security.name(),
        "clients": idle.clients,
        "bytes": idle.bytes,
        "bytes_after_query": idle.bytes_after_query,
        "login_us": idle.login_us,
    })
}
