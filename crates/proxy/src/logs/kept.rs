//! Logged queries that are kept in memory: a buffer of the newest, and the table that a dump moves them to.
//!
//! INVARIANT: both are bounded by settings; where one is full the oldest queries make room. Numbers only grow, so that whoever copies
//! the buffer in parts finds the next part, whatever comes meanwhile.

use super::event::QueryEvent;
use model::MysqlVariables;
use model::stats::Value;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A query with its number.
type Numbered = (u64, QueryEvent);

#[derive(Default)]
struct Rings {
    buffer: VecDeque<Numbered>,
    buffer_max: usize,
    table: VecDeque<Numbered>,
    table_max: usize,
    query_max: usize,
    last: u64,
}

impl Rings {
    fn trim(&mut self) -> u64 {
        let excess = |ring: &VecDeque<Numbered>, max: usize| ring.len().saturating_sub(max);
        let made_room = excess(&self.buffer, self.buffer_max);
        self.buffer.drain(..made_room);
        self.table.drain(..excess(&self.table, self.table_max));
        made_room as u64
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct KeptRecords {
    rings: Mutex<Rings>,
    on: AtomicBool,
    /// Queries that made room before anybody dumped them.
    pub overwritten: AtomicU64,
}

impl KeptRecords {
    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The variables may have changed.
    pub(crate) fn configure(&self, vars: &MysqlVariables) {
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let mut rings = self.rings();
        rings.buffer_max = number(vars.eventslog_buffer_history_size);
        rings.table_max = number(vars.eventslog_table_memory_size);
        rings.query_max = number(vars.eventslog_buffer_max_query_length);
        rings.trim();
        self.on.store(rings.buffer_max > 0, Ordering::Relaxed);
    }

    /// Whether any are kept.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Keeps one more, its text cut to the length that is set.
    pub(crate) fn keep(&self, event: QueryEvent) {
        let max_text = self.rings().query_max;
        let event = event.into_kept(max_text);
        let mut rings = self.rings();
        rings.last += 1;
        let number = rings.last;
        rings.buffer.push_back((number, event));
        self.overwritten.fetch_add(rings.trim(), Ordering::Relaxed);
    }

    /// The next `limit` queries of the buffer behind number `after`, as rows of `stats_mysql_query_events`.
    pub(crate) fn buffered(&self, after: u64, limit: usize) -> Vec<Vec<Value>> {
        let part: Vec<Numbered> = {
            let rings = self.rings();
            let from = rings.buffer.partition_point(|(number, _)| *number <= after);
            rings.buffer.range(from..).take(limit).cloned().collect()
        };
        part.iter().map(|(number, event)| event.row(*number)).collect()
    }

    /// Queries up to this number were dumped: they leave the buffer, into the table if that is wanted. Returns how many.
    pub(crate) fn dumped(&self, up_to: u64, into_table: bool) -> usize {
        let mut rings = self.rings();
        let count = rings.buffer.partition_point(|(number, _)| *number <= up_to);
        let gone: Vec<Numbered> = rings.buffer.drain(..count).collect();
        if into_table {
            rings.table.extend(gone);
            rings.trim();
        }
        count
    }

    /// Rows of `stats_mysql_query_events`.
    pub(crate) fn table(&self) -> Vec<Vec<Value>> {
        let rows = self.rings().table.clone();
        rows.iter().map(|(number, event)| event.row(*number)).collect()
    }

    /// Gives back all memory.
    pub(crate) fn clear(&self) {
        let mut rings = self.rings();
        (rings.buffer, rings.table) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::tests::event;
    use super::*;

    fn kept(buffer: u64, table: u64) -> KeptRecords {
        let kept = KeptRecords::default();
        kept.configure(&MysqlVariables {
            eventslog_buffer_history_size: buffer,
            eventslog_table_memory_size: table,
            eventslog_buffer_max_query_length: 4,
            ..MysqlVariables::default()
        });
        kept
    }

    fn numbers(rows: &[Vec<Value>]) -> Vec<Value> {
        rows.iter().map(|row| row[0].clone()).collect()
    }

    #[test]
    fn the_oldest_make_room_and_numbers_go_on() {
        let kept = kept(3, 2);
        for _ in 0..5 {
            kept.keep(event());
        }
        assert_eq!((numbers(&kept.buffered(0, 2)), numbers(&kept.buffered(4, 2))), (vec![3_i64.into(), 4_i64.into()], vec![5_i64.into()]));
        assert_eq!(kept.overwritten.load(Ordering::Relaxed), 2);
        kept.keep(event());
        assert_eq!(kept.dumped(5, true), 2, "4 and 5: 3 made room");
        assert_eq!((numbers(&kept.table()), numbers(&kept.buffered(0, 9))), (vec![4_i64.into(), 5_i64.into()], vec![6_i64.into()]));
        assert_eq!(kept.dumped(u64::MAX, true), 1);
        assert_eq!(numbers(&kept.table()), [5_i64.into(), 6_i64.into()], "the table has room for two");
        kept.keep(event());
        assert_eq!((kept.dumped(u64::MAX, false), kept.table().len(), kept.buffered(0, 9).len()), (1, 2, 0));
        kept.clear();
        assert!(kept.table().is_empty());
    }

    #[test]
    fn a_row_has_the_statement_as_the_log_would_write_it() {
        let kept = kept(1, 1);
        kept.keep(QueryEvent { query: b"SET PASSWORD = 'S3cret'"[..].into(), ..event() });
        let row = &kept.buffered(0, 1)[0];
        assert_eq!(row.len(), 20);
        assert!(!format!("{row:?}").contains("S3cret"), "{row:?}");
        kept.keep(event());
        let row = &kept.buffered(0, 1)[0];
        assert_eq!((&row[2], &row[7], &row[8]), (&"anna".into(), &"SELE".into(), &"db1:3306".into()), "cut to four bytes");
        assert_eq!((&row[4], &row[5], &row[10], &row[18]), (&1_000_000_i64.into(), &1_000_250_i64.into(), &0_i64.into(), &1146_i64.into()));
    }

    #[test]
    fn nothing_is_kept_by_default() {
        let kept = KeptRecords::default();
        kept.configure(&MysqlVariables::default());
        assert!(!kept.is_on());
    }
}
