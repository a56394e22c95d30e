//! Rounds added up, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::round::Round;
use crate::failover::{Audit, SLOT_MS, Tally, median};
use crate::plot::{Chart, Line, Shape};
use crate::tidegate::SERVER_LOST;

/// How sure a client can be of a statement that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The connection was lost during a single write or a COMMIT, or the server was cut off from its cluster: the result is unknown.
    Unknown,
    /// A transaction was open on a server that was lost or lost its role; only replay can hide that.
    OpenTransaction,
    /// Anything else: could have been held or done again.
    Avoidable,
}

impl Class {
    /// By MySQL's error number and the client's act.
    pub fn of(code: u16, during: &str) -> Class {
        match (code, during) {
            // 1180 (Galera) and 3100 (MySQL) come from a node that was cut off while it waited for the others' decision.
            (2013 | SERVER_LOST | 1180 | 3100, "write" | "COMMIT") => Class::Unknown,
            // Also one that its server refused to go on with: it was rolled back, and could only be done again whole.
            (_, "write in a transaction" | "COMMIT") => Class::OpenTransaction,
            _ => Class::Avoidable,
        }
    }
}

/// All rounds of one peer.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The peer's name.
    pub name: String,
    /// Its rounds.
    pub rounds: Vec<Round>,
}

/// Heading of [`Series::line`], two lines.
pub fn heading() -> String {
    format!(
        "{:<26}{:>16}{:>16}{:>11}{:>29}{:>22}\n{:<22}{:>4}{:>8}{:>8}{:>8}{:>8}{:>11}{:>9}{:>13}{:>7}{:>7}{:>9}{:>6}",
        "",
        "first write, ms",
        "downtime, ms",
        "stall, ms",
        "errors a run",
        "rows",
        "",
        "runs",
        "median",
        "max",
        "median",
        "max",
        "max",
        "unknown",
        "transaction",
        "other",
        "lost",
        "doubled",
        "torn"
    )
}

impl Series {
    /// Errors of all rounds in a class.
    pub fn errors(&self, class: Class) -> u64 {
        let all = self.rounds.iter().flat_map(|round| &round.tally.errors);
        all.filter(|((code, during), _)| Class::of(*code, during) == class).map(|(_, (count, _))| count).sum()
    }

    /// Rows of all rounds.
    pub fn audit(&self) -> Audit {
        self.rounds.iter().map(|round| round.audit).fold(Audit::default(), Audit::plus)
    }

    /// Times from the new writer's first moment to the first write, us, of those rounds that had one.
    pub fn first_writes_us(&self) -> Vec<u64> {
        self.rounds.iter().filter_map(|round| round.tally.first_write_us).collect()
    }

    /// Times without a write, us.
    pub fn downtimes_us(&self) -> Vec<u64> {
        self.rounds.iter().map(|round| round.tally.downtime_us).collect()
    }

    /// The longest that a work took, us.
    pub fn longest_stall_us(&self) -> u64 {
        self.rounds.iter().map(|round| round.tally.longest_stall_us).max().unwrap_or(0)
    }

    /// Rounds after which writes did not flow again.
    pub fn stuck(&self) -> usize {
        self.rounds.iter().filter(|round| !round.is_flowing).count()
    }

    /// One line of the table.
    pub fn line(&self) -> String {
        let (first, down, audit) = (self.first_writes_us(), self.downtimes_us(), self.audit());
        let a_run = |class| {
            let runs = u32::try_from(self.rounds.len().max(1)).unwrap_or(u32::MAX);
            f64::from(u32::try_from(self.errors(class)).unwrap_or(u32::MAX)) / f64::from(runs)
        };
        let mut line = format!(
            "{:<22}{:>4}{:>8}{:>8}{:>8}{:>8}{:>11}{:>9.1}{:>13.1}{:>7.1}{:>7}{:>9}{:>6}",
            self.name,
            self.rounds.len(),
            ms(median(&first)),
            ms(first.iter().max().copied()),
            ms(median(&down)),
            ms(down.iter().max().copied()),
            ms(Some(self.longest_stall_us())),
            a_run(Class::Unknown),
            a_run(Class::OpenTransaction),
            a_run(Class::Avoidable),
            audit.lost,
            audit.doubled + audit.foreign,
            audit.torn
        );
        if self.stuck() > 0 {
            let _ = write!(line, "  ({} without a write in the end)", self.stuck());
        }
        line
    }

    /// The round whose time without a write is the median.
    fn usual_round(&self) -> Option<&Round> {
        let mut rounds: Vec<&Round> = self.rounds.iter().collect();
        rounds.sort_by_key(|round| round.tally.downtime_us);
        rounds.get(rounds.len() / 2).copied()
    }

    /// Errors by number and place, with their count and an example, most first.
    pub fn error_lines(&self) -> Vec<String> {
        let mut sums: BTreeMap<(u16, &str), (u64, &str)> = BTreeMap::new();
        for ((code, during), (count, text)) in self.rounds.iter().flat_map(|round| &round.tally.errors) {
            sums.entry((*code, *during)).or_insert((0, text)).0 += count;
        }
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        all.iter().map(|((code, during), (count, text))| format!("{}: {count} x {code} at {during}: {text}", self.name)).collect()
    }

    /// Everything, for machines.
    pub fn json(&self) -> Value {
        json!({ "name": self.name, "rounds": self.rounds.iter().map(round_json).collect::<Vec<_>>() })
    }
}

/// One round, for machines. Times in us.
pub fn round_json(round: &Round) -> Value {
    let error = |((code, during), (count, text)): (&(u16, &str), &(u64, String))| json!({ "code": code, "during": during, "count": count, "text": text });
    json!({
        "first_write_us": round.tally.first_write_us,
        "downtime_us": round.tally.downtime_us,
        "longest_stall_us": round.tally.longest_stall_us,
        "is_flowing": round.is_flowing,
        "successes": round.tally.successes,
        "errors": round.tally.errors.iter().map(error).collect::<Vec<_>>(),
        "rows": round.audit.rows,
        "acknowledged": round.audit.acknowledged,
        "lost": round.audit.lost,
        "doubled": round.audit.doubled,
        "torn": round.audit.torn,
        "foreign": round.audit.foreign,
    })
}

/// How much of a time line is drawn, ms from the change on.
const DRAWN_MS: std::ops::Range<i64> = -500..1_300;

/// Works that went well and works that failed, a second, as two lines over seconds.
pub fn lines(tally: &Tally, drawn: &std::ops::Range<i64>) -> [Vec<(f64, f64)>; 2] {
    let a_second = 1000.0 / SLOT_MS as f64;
    // The last part of a second was not whole when clients ended.
    let slots = &tally.timeline[..tally.timeline.len().saturating_sub(1)];
    let of = |count: fn(&crate::failover::Slot) -> u32| {
        let drawn = slots.iter().filter(|slot| drawn.contains(&slot.at_ms));
        drawn.map(|slot| (slot.at_ms as f64 / 1000.0, f64::from(count(slot)) * a_second)).collect()
    };
    [of(|slot| slot.done), of(|slot| slot.failed)]
}

/// Charts of series: works and errors over time in each one's usual round, and the times without a write. `event` is what happens at 0.
pub fn charts(series: &[Series], event: &str) -> Vec<Chart> {
    let over_time = |title: &str, y: &str, which: usize| {
        let line = |one: &Series| -> Option<Line> { Some((one.name.clone(), lines(&one.usual_round()?.tally, &DRAWN_MS)[which].clone())) };
        let shape = Shape::Lines(series.iter().filter_map(line).collect());
        Chart { title: format!("{title}: {event} at 0"), x: "seconds".to_owned(), y: y.to_owned(), shape }
    };
    let as_ms = |us: Option<u64>| us.map_or(f64::NAN, |us| us as f64 / 1000.0);
    let times = |one: &Series| {
        let (down, first) = (one.downtimes_us(), one.first_writes_us());
        let values = [median(&first), median(&down), down.iter().max().copied(), Some(one.longest_stall_us())];
        (one.name.clone(), values.map(as_ms).to_vec())
    };
    let names = ["first write, median", "downtime, median", "downtime, longest", "longest task"].map(str::to_owned).to_vec();
    vec![
        over_time("Tasks that succeed", "tasks a second", 0),
        over_time("Errors that clients see", "errors a second", 1),
        Chart {
            title: "How long it takes".to_owned(),
            x: String::new(),
            y: "ms".to_owned(),
            shape: Shape::Bars { names, groups: series.iter().map(times).collect() },
        },
    ]
}

/// Microseconds as milliseconds with one decimal; `-` for None.
pub fn ms(us: Option<u64>) -> String {
    us.map_or("-".to_owned(), |us| format!("{}.{}", us / 1000, us % 1000 / 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_under_way_are_unknown() {
        assert_eq!(Class::of(2013, "write"), Class::Unknown);
        assert_eq!(Class::of(2013, "COMMIT"), Class::Unknown);
        assert_eq!(Class::of(SERVER_LOST, "write"), Class::Unknown);
        assert_eq!(Class::of(2013, "write in a transaction"), Class::OpenTransaction);
        assert_eq!(Class::of(1290, "COMMIT"), Class::OpenTransaction);
        assert_eq!(Class::of(2013, "write in a transaction"), Class::OpenTransaction);
        for (code, during) in [(2013, "read"), (2013, "BEGIN"), (1290, "write"), (2003, "connect"), (9001, "write")] {
            assert_eq!(Class::of(code, during), Class::Avoidable);
        }
    }

    #[test]
    fn milliseconds() {
        assert_eq!(ms(Some(12_345)), "12.3");
        assert_eq!(ms(None), "-");
    }
}
