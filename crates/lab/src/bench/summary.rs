//! From measurements to the figures that are told: costs for each unit, medians over repeats. Pure.

use super::fleet::Run;
use super::plan::{Point, Unit};
use super::usage::Usage;

/// The figures of one measurement, or the medians of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Processor time of the proxy for each unit, in microseconds; 0 without a proxy.
    pub cpu_us: f64,
    /// The user part of that.
    pub user_us: f64,
    /// Context switches of the proxy for each unit.
    pub switches: f64,
    /// Processor time of the server for each unit, in microseconds.
    pub server_us: f64,
    /// Units a second.
    pub per_second: f64,
    /// Median time of a command (or of a whole connection), in microseconds.
    pub p50_us: f64,
    /// The time that one in a hundred exceeded, in microseconds.
    pub p99_us: f64,
    /// The slowest client's rate as a share of the mean rate, 0 to 1.
    pub fairness: f64,
}

impl Figures {
    /// The figures of one run that cost the proxy `usage`, and the server `server`.
    pub fn of(point: &Point, run: &Run, usage: &Usage, server: &Usage) -> Figures {
        let units = |count: u64| match point.unit {
            Unit::Megabyte => count as f64 * point.work.reply_bytes() as f64 / 1e6,
            Unit::Query | Unit::Connection => count as f64,
        };
        let all = units(run.completed).max(f64::MIN_POSITIVE);
        let (total, user) = usage.split_us();
        let in_window: u64 = run.in_window.iter().sum();
        let per_second = match point.unit {
            // A few long commands: those cut by the window's end count with the time they took.
            Unit::Megabyte => all / run.elapsed.as_secs_f64(),
            Unit::Query | Unit::Connection => units(in_window) / run.window.as_secs_f64(),
        };
        Figures {
            cpu_us: total / all,
            user_us: user / all,
            switches: usage.switches as f64 / all,
            server_us: server.split_us().0 / all,
            per_second,
            p50_us: run.latency.quantile_us(0.5),
            p99_us: run.latency.quantile_us(0.99),
            fairness: fairness(&run.in_window),
        }
    }

    /// The median of each figure on its own.
    pub fn median(all: &[Figures]) -> Figures {
        let of = |pick: fn(&Figures) -> f64| median(all.iter().map(pick).collect());
        Figures {
            cpu_us: of(|f| f.cpu_us),
            user_us: of(|f| f.user_us),
            switches: of(|f| f.switches),
            server_us: of(|f| f.server_us),
            per_second: of(|f| f.per_second),
            p50_us: of(|f| f.p50_us),
            p99_us: of(|f| f.p99_us),
            fairness: of(|f| f.fairness),
        }
    }
}

/// One peer's cost as a multiple of another's, over the repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// The lowest of a repeat.
    pub least: f64,
    /// The highest of a repeat.
    pub most: f64,
}

impl Ratio {
    /// That of the proxy's processor time; `None` when the floor cost nothing.
    pub fn of_costs(ours: &[Figures], floor: &[Figures]) -> Option<Ratio> {
        Ratio::of(ours, floor, |figures| figures.cpu_us)
    }

    /// That of `cost`, repeat by repeat; `None` when the floor cost nothing.
    pub fn of(ours: &[Figures], floor: &[Figures], cost: fn(&Figures) -> f64) -> Option<Ratio> {
        let pairs = ours.iter().map(cost).zip(floor.iter().map(cost)).filter(|(_, floor)| *floor > 0.0);
        let ratios: Vec<f64> = pairs.map(|(ours, floor)| ours / floor).collect();
        let least = ratios.iter().copied().min_by(f64::total_cmp)?;
        let most = ratios.iter().copied().max_by(f64::total_cmp)?;
        Some(Ratio { median: median(ratios), least, most })
    }
}

/// The middle value; the mean of the two middle ones of an even number; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The slowest client's count as a share of the mean.
fn fairness(counts: &[u64]) -> f64 {
    let sum: u64 = counts.iter().sum();
    let least = counts.iter().min().copied().unwrap_or(0);
    if sum == 0 { 0.0 } else { least as f64 * counts.len() as f64 / sum as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
    }

    #[test]
    fn ratios_pair_the_repeats() {
        let costs = |all: &[f64]| all.iter().map(|cpu_us| Figures { cpu_us: *cpu_us, ..Figures::default() }).collect::<Vec<_>>();
        let ratio = Ratio::of_costs(&costs(&[10.0, 40.0, 10.0]), &costs(&[10.0, 20.0, 5.0])).unwrap();
        assert_eq!((ratio.least, ratio.median, ratio.most), (1.0, 2.0, 2.0));
        assert_eq!(Ratio::of_costs(&costs(&[1.0]), &costs(&[0.0])), None);
    }

    #[test]
    fn fairness_of_clients() {
        assert_eq!(fairness(&[2, 2, 2]), 1.0);
        assert_eq!(fairness(&[1, 3]), 0.5);
        assert_eq!(fairness(&[]), 0.0);
    }
}
