//! The rows on the writer against what clients were told.

use std::collections::{HashMap, HashSet};

use super::record::Recording;
use crate::error::LabError;
use crate::server::Server;

/// The result of an audit. All zero but `rows` if every promise was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Rows in the table.
    pub rows: u64,
    /// Acknowledged ids.
    pub acknowledged: u64,
    /// Acknowledged ids without their rows.
    pub lost: u64,
    /// Ids with more rows than their work writes.
    pub doubled: u64,
    /// Transactions of which a part is there.
    pub torn: u64,
    /// Ids that no client tried.
    pub foreign: u64,
}

impl Audit {
    /// Compares the table on `writer` with what clients noted.
    pub fn of(recording: &Recording, writer: &Server) -> Result<Audit, LabError> {
        let table = writer.sql("SELECT id, COUNT(*) FROM test.writes GROUP BY id")?.table()?;
        let number = |row: &[Option<String>], place: usize| row.get(place)?.as_deref()?.parse::<i64>().ok();
        let found = table.iter().filter_map(|row| Some((number(row, 0)?, number(row, 1)?.unsigned_abs())));
        Ok(Audit::compare(recording, &found.collect(), expected_rows(recording)))
    }

    fn compare(recording: &Recording, found: &HashMap<i64, u64>, expected: impl Fn(i64) -> u64) -> Audit {
        let acknowledged: HashSet<i64> = recording.acknowledged.iter().map(|(id, _)| *id).collect();
        let mut audit = Audit { rows: found.values().sum(), acknowledged: acknowledged.len() as u64, ..Audit::default() };
        audit.lost = acknowledged.iter().filter(|id| !found.contains_key(id)).count() as u64;
        for (id, rows) in found {
            audit.foreign += u64::from(!recording.tried.contains(id));
            audit.doubled += u64::from(*rows > expected(*id));
            audit.torn += u64::from(*rows < expected(*id));
        }
        audit
    }

    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.torn + self.foreign == 0
    }

    /// Both together.
    pub fn plus(self, other: Audit) -> Audit {
        Audit {
            rows: self.rows + other.rows,
            acknowledged: self.acknowledged + other.acknowledged,
            lost: self.lost + other.lost,
            doubled: self.doubled + other.doubled,
            torn: self.torn + other.torn,
            foreign: self.foreign + other.foreign,
        }
    }
}

/// How many rows the work of an id writes: all ids of one client have the same number.
fn expected_rows(recording: &Recording) -> impl Fn(i64) -> u64 {
    let by_client: HashMap<i64, u64> = recording.acknowledged.iter().map(|(id, rows)| (id >> 32, *rows)).collect();
    // A client without an acknowledged write is not known by its ids: its works write 2 rows at most.
    move |id| by_client.get(&(id >> 32)).copied().unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let (single, double) = (1 << 32, 2 << 32);
        Recording {
            acknowledged: vec![(single + 1, 1), (double + 1, 2)],
            tried: [single + 1, single + 2, double + 1, double + 2].into(),
            ..Recording::default()
        }
    }

    fn compared(found: &[(i64, u64)]) -> Audit {
        let recording = recording();
        Audit::compare(&recording, &found.iter().copied().collect(), expected_rows(&recording))
    }

    #[test]
    fn all_there_once_is_clean_whatever_became_of_the_rest() {
        let (single, double) = (1 << 32, 2 << 32);
        assert!(compared(&[(single + 1, 1), (double + 1, 2)]).is_clean());
        assert!(compared(&[(single + 1, 1), (double + 1, 2), (single + 2, 1), (double + 2, 2)]).is_clean());
    }

    #[test]
    fn each_fault_is_counted() {
        let (single, double) = (1 << 32, 2 << 32);
        assert_eq!(compared(&[(single + 1, 1)]).lost, 1);
        assert_eq!(compared(&[(single + 1, 2), (double + 1, 2)]).doubled, 1);
        assert_eq!(compared(&[(single + 1, 1), (single + 2, 2), (double + 1, 2)]).doubled, 1);
        assert_eq!(compared(&[(single + 1, 1), (double + 1, 1)]).torn, 1);
        assert_eq!(compared(&[(single + 1, 1), (double + 1, 2), (9 << 32, 1)]).foreign, 1);
    }
}
