//! The report as text: one line for each peer under each load.

use super::compare::{Compared, Row};
use super::digests::DigestSpeed;
use super::idle::Idle;
use super::load_times::LoadTimes;
use super::peer::Kind;
use super::runner::{Outcome, PointOutcome};
use super::summary::{Figures, Ratio};
use crate::plot::{Chart, Shape};

/// The heading of the lines that [`point`] makes.
pub const HEADING: &str = "load                            clients  peer      CPU us/unit  (user)  x HAProxy  switches     units/s     p50 ms     p99 ms  slowest/mean";

/// Charts: for each load, the proxies' processor time for a unit, and how long clients wait for one, by the number of clients.
pub fn charts(outcome: &Outcome) -> Vec<Chart> {
    let mut loads: Vec<(&str, &str)> = outcome.points.iter().map(|point| (point.point.name, point.point.unit.name())).collect();
    loads.dedup();
    let chart = |name: &str, what: &str, y: String, kinds: &[Kind], value: fn(&Figures) -> f64| {
        let points = outcome.points.iter().filter(|point| point.point.name == name);
        let of = |point: &PointOutcome, kind: &Kind| point.figures(*kind).map_or(f64::NAN, value);
        let group = |point: &PointOutcome| (point.point.clients.to_string(), kinds.iter().map(|kind| of(point, kind)).collect());
        let shape = Shape::Bars { names: kinds.iter().map(|kind| kind.name().to_owned()).collect(), groups: points.map(group).collect() };
        Chart { title: format!("{name}: {what}"), x: "clients".to_owned(), y, shape }
    };
    let of_load = |(name, unit): &(&str, &str)| {
        let proxies = [Kind::Haproxy, Kind::Tidegate];
        let cost = chart(name, "processor time of the proxy", format!("us a {unit}"), &proxies, |figures| figures.cpu_us);
        let wait = chart(name, "how long a client waits, median", format!("ms a {unit}"), &Kind::ALL, |figures| figures.p50_us / 1000.0);
        [cost, wait]
    };
    loads.iter().flat_map(of_load).collect()
}

/// One load: a line a peer.
pub fn point(outcome: &PointOutcome) -> String {
    let lines = outcome.peers.iter().map(|(kind, result)| {
        let unit = outcome.point.unit.name();
        let start = format!("{:<31} {:>7}  {:<9}", format!("{} [{unit}]", outcome.point.name), outcome.point.clients, kind.name());
        match result {
            Ok(figures) => format!("{start} {}", figures_text(*kind, figures, outcome)),
            Err(_) => format!("{start} FAILED: see below"),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn figures_text(kind: Kind, figures: &Figures, outcome: &PointOutcome) -> String {
    let cost = if kind == Kind::Direct {
        format!("{:>11}  {:>6}  {:>9}  {:>8}", "-", "-", "-", "-")
    } else {
        let ratio = match outcome.ratio {
            Some(ratio) if kind == Kind::Tidegate => format!("{:.2}", ratio.median),
            _ => "-".to_owned(),
        };
        format!("{:>11.1}  {:>6.1}  {ratio:>9}  {:>8.2}", figures.cpu_us, figures.user_us, figures.switches)
    };
    let (p50, p99) = (figures.p50_us / 1000.0, figures.p99_us / 1000.0);
    // Among one, the slowest is the mean.
    let fairness = if outcome.point.clients > 1 { format!("{:.2}", figures.fairness) } else { "-".to_owned() };
    format!("{cost}  {:>10.0}  {p50:>9.3}  {p99:>9.3}  {fairness:>12}", figures.per_second)
}

/// One comparison: a line an arrangement, with costs as multiples of the first one's.
pub fn compared(compared: &Compared) -> String {
    let (point, first) = (&compared.comparison.point, compared.rows.first().map_or("", |row| &row.name));
    let heading = format!(
        "{}, {} clients: CPU us/query, as a multiple of '{first}' (least to most), queries/s, p50 ms, p99 ms",
        point.name, point.clients
    );
    let lines = compared.rows.iter().map(|row| format!("  {:<28} {}", row.name, row_text(row)));
    std::iter::once(heading).chain(lines).collect::<Vec<_>>().join("\n")
}

fn row_text(row: &Row) -> String {
    let Ok(figures) = &row.figures else { return "FAILED: see below".to_owned() };
    let ratio = row.ratio.map_or_else(|| "-".to_owned(), |r| format!("{:.2} ({:.2} to {:.2})", r.median, r.least, r.most));
    let share = |of: &str, share: Option<f64>| share.map_or_else(String::new, |share| format!("  {of} {:.1} %", share * 100.0));
    let shares = share("cache hits", row.cache_hits) + &share("copies", row.copies);
    let (p50, p99) = (figures.p50_us / 1000.0, figures.p99_us / 1000.0);
    format!("{:>9.1}  {ratio:>21}  {:>9.0}  {p50:>8.3}  {p99:>8.3}{shares}", figures.cpu_us, figures.per_second)
}

/// One table's LOAD.
pub fn load_times(times: &LoadTimes) -> String {
    let steps: Vec<String> = times.steps.iter().map(|(name, seconds)| format!("{name} {seconds:.2} s")).collect();
    format!("{} {}: {} (once)", times.rows, times.what, steps.join("; "))
}

/// One statement's rates.
pub fn digest(speed: &DigestSpeed) -> String {
    format!("{} ({} bytes): analysis {:.0} MB/s, digest and hash {:.0} MB/s", speed.name, speed.bytes, speed.analyze_mb, speed.digest_mb)
}

/// One measurement of memory.
pub fn idle(idle: &Idle) -> String {
    format!(
        "{} idle clients, {} x {}: {:.1} KB each after login, {:.1} KB after a query; {:.0} us CPU to log in",
        idle.kind.name(),
        idle.clients,
        idle.security.name(),
        idle.bytes / 1000.0,
        idle.bytes_after_query / 1000.0,
        idle.login_us
    )
}

/// The facts known at the end: ratios, skipped measurements, the machine's load.
pub fn ending(outcome: &Outcome) -> String {
    let mut lines =
        vec![String::new(), "CPU time of Tidegate as a multiple of HAProxy's, median of the repeats (least to most):".to_owned()];
    for point in &outcome.points {
        if let Some(Ratio { median, least, most }) = point.ratio {
            let (name, clients) = (point.point.name, point.point.clients);
            lines.push(format!("  {median:>5.2}  ({least:.2} to {most:.2})  {name}, {clients} clients"));
        }
    }
    lines.push("not measured:".to_owned());
    lines.extend(outcome.not_measured.iter().map(|note| format!("  {}", note.replace('\n', "\n    "))));
    lines.push(format!("versions: {}", outcome.versions.join("; ")));
    lines.push(format!(
        "load average before {}, after {}; medians of {}; {:.0} s in all",
        outcome.load_before, outcome.load_after, outcome.repeats, outcome.seconds
    ));
    lines.join("\n")
}
