//! Logged queries that are moved from memory to `history_mysql_query_events`: `DUMP EVENTSLOG`, and periodically.

use model::control::DataPlane;
use model::settings::AdminVariables;
use model::stats::Value;
use rusqlite::{Connection, params_from_iter, types};

use super::digests::stored;
use super::roll::{Keep, prune};
use crate::error::AdminError;

const COLUMNS: usize = 20;
/// Queries that are copied at a time.
const PART: usize = 1_000;

/// Copies the buffer's queries into the table. Returns the number of the last one: after its commit the caller has the plane forget all up
/// to it. The caller holds a transaction; `now` is in Unix seconds.
pub(crate) fn save(db: &Connection, plane: &dyn DataPlane, settings: &AdminVariables, now: i64) -> Result<u64, AdminError> {
    let marks = vec!["?"; COLUMNS].join(",");
    let mut put = db.prepare(&format!("INSERT INTO stats_history.history_mysql_query_events VALUES ({marks})"))?;
    let (mut last, mut left) = (0, settings.stats_history_rows);
    loop {
        let part = plane.logged_queries(last, PART);
        for row in &part {
            // The table has its own numbers: those in memory begin again with each process.
            let values = std::iter::once(types::Value::Null).chain(row.iter().skip(1).take(COLUMNS - 1).map(stored));
            put.execute(params_from_iter(values))?;
        }
        if let Some(Value::Integer(number)) = part.last().and_then(|row| row.first()) {
            last = u64::try_from(*number).unwrap_or(last);
        }
        left = left.saturating_sub(part.len() as u64);
        if part.len() < PART || left == 0 {
            break;
        }
    }
    prune(db, "history_mysql_query_events", "start_time / 1000000", &Keep::days(settings.stats_history_days, settings, now))?;
    Ok(last)
}
