//! Makes hours and days of samples, and deletes old or surplus rows. Both work in slices: one turn's rest is left for the next turn.

use model::settings::AdminVariables;
use rusqlite::{Connection, params};

use super::series::{Kind, SampleTable};
use crate::error::AdminError;

/// Seconds.
const HOUR: i64 = 3_600;
/// Seconds.
const DAY: i64 = 24 * HOUR;
/// Samples of this many seconds are added up to hours in one turn.
const HOURS_SLICE: i64 = DAY;
/// Hours of this many seconds are added up to days in one turn.
const DAYS_SLICE: i64 = 100 * DAY;
/// A turn reads, and may delete, this many rows of each table. Must be more than the rows of a sample.
const PRUNE_ROWS: i64 = 20_000;

/// The limits of a table.
pub(super) struct Keep {
    /// Rows of this Unix time, in seconds, and later ones.
    since: i64,
    /// Most rows.
    rows: i64,
}

impl Keep {
    /// The last `days` before `now`.
    pub(super) fn days(days: u64, settings: &AdminVariables, now: i64) -> Self {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Self { since: now.saturating_sub(whole(days).saturating_mul(DAY)), rows: whole(settings.stats_history_rows) }
    }
}

/// Deletes the oldest rows beyond the limits.
pub(super) fn prune(db: &Connection, table: &str, time: &str, keep: &Keep) -> Result<(), AdminError> {
    // Rows are in the order of their insertion. Only the first ones are looked at: a table of a million is never read whole.
    let sql = format!(
        "DELETE FROM stats_history.{table} WHERE rowid IN (SELECT rowid FROM \
         (SELECT rowid, {time} AS time FROM stats_history.{table} ORDER BY rowid LIMIT {PRUNE_ROWS}) \
         WHERE time < ?1 OR rowid <= (SELECT MAX(rowid) FROM stats_history.{table}) - ?2)"
    );
    db.prepare(&sql)?.execute(params![keep.since, keep.rows])?;
    Ok(())
}

/// Makes the hours and days that have ended by `now`, and deletes old rows.
pub(super) fn roll(db: &Connection, table: &SampleTable, settings: &AdminVariables, now: i64) -> Result<(), AdminError> {
    let name = table.name;
    let (by_hour, by_day) = (format!("{name}_hour"), format!("{name}_day"));
    let hours_end = fold(db, table, (name, &by_hour), (HOUR, HOURS_SLICE), now - now.rem_euclid(HOUR))?;
    let days_end = fold(db, table, (&by_hour, &by_day), (DAY, DAYS_SLICE), hours_end - hours_end.rem_euclid(DAY))?;
    for (name, days, folded) in [
        (name, settings.stats_history_days, hours_end),
        (by_hour.as_str(), settings.stats_history_hour_days, days_end),
        (by_day.as_str(), settings.stats_history_day_days, now),
    ] {
        let mut keep = Keep::days(days, settings, now);
        keep.since = keep.since.min(folded);
        prune(db, name, "timestamp", &keep)?;
    }
    Ok(())
}

/// Makes one row of `to` of all rows of `from` within `step` seconds, for each step that is over at `bound`. Answers up to where
/// that was done: `bound`, unless `slice` seconds of rows were not enough.
fn fold(db: &Connection, table: &SampleTable, (from, to): (&str, &str), (step, slice): (i64, i64), bound: i64) -> Result<i64, AdminError> {
    // Rows of a time to come are there when the clock was set back: they count when their time has come.
    let last: Option<i64> =
        db.prepare(&format!("SELECT MAX(timestamp) FROM stats_history.{to} WHERE timestamp < ?1"))?.query_row([bound], |row| row.get(0))?;
    let since = last.map_or(i64::MIN, |last| last.saturating_add(step));
    let first: Option<i64> = db
        .prepare(&format!("SELECT MIN(timestamp) FROM stats_history.{from} WHERE timestamp >= ?1 AND timestamp < ?2"))?
        .query_row([since, bound], |row| row.get(0))?;
    let Some(first) = first else {
        return Ok(bound);
    };
    let start = first - first.rem_euclid(step);
    let end = bound.min(start.saturating_add(slice));
    // Columns beside MAX() are those of its row: https://sqlite.org/lang_select.html#bareagg
    let folded = |kind: Kind, name: &str| match kind {
        Kind::Counter => name.to_owned(),
        Kind::Gauge => format!("CAST(ROUND(AVG({name})) AS INTEGER)"),
    };
    let columns: Vec<String> = table.columns.iter().map(|column| folded(column.kind, column.name)).collect();
    let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    let sql = format!(
        "INSERT OR REPLACE INTO stats_history.{to} (timestamp, {}) SELECT MAX(timestamp) / {step} * {step}, {} \
         FROM stats_history.{from} WHERE timestamp >= ?1 AND timestamp < ?2 GROUP BY timestamp / {step} ORDER BY 1",
        names.join(", "),
        columns.join(", ")
    );
    db.prepare(&sql)?.execute([start, end])?;
    Ok(end)
}
