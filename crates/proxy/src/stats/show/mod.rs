//! The tables: each one's description beside the function that makes its rows.

mod captures;
mod certificates;
mod global;
mod metrics;
mod pins;
mod pool;
mod rehearsals;
mod replicas;
mod rules;
mod sessions;
mod statements;
mod totals;

use super::ProxyStats;
pub(super) use metrics::metrics;
use model::stats::{Reading, StatsTable, Value};
pub(crate) use rehearsals::{ran_before, rehearsal_page, settle_rehearsal};

pub(super) type Rows = Vec<Vec<Value>>;

/// A table and how its rows are made.
pub(super) struct Table {
    /// Its description.
    pub table: StatsTable,
    /// Its rows now.
    pub rows: fn(&ProxyStats, Reading) -> Rows,
}

/// Every table.
pub(super) const TABLES: &[&[Table]] = &[
    statements::TABLES,
    pool::TABLES,
    sessions::TABLES,
    pins::TABLES,
    replicas::TABLES,
    rules::TABLES,
    global::TABLES,
    certificates::TABLES,
    rehearsals::TABLES,
    captures::TABLES,
];

fn text(bytes: &[u8]) -> Value {
    Value::Text(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
