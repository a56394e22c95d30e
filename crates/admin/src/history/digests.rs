//! Digests that are moved from memory to `history_mysql_query_digest`: `SAVE MYSQL DIGEST TO DISK`, and periodically.

use model::settings::AdminVariables;
use model::stats::{Reading, Value};
use rusqlite::{Connection, params_from_iter, types};

use super::roll::{Keep, prune};
use crate::error::AdminError;
use crate::live::Live;

/// Columns of the table, less the time.
const COLUMNS: usize = 14;

/// Moves the digests. Returns how many. The caller holds a transaction; `now` is in Unix seconds.
pub(crate) fn save(db: &Connection, live: &Live, settings: &AdminVariables, now: i64) -> Result<usize, AdminError> {
    let table = live.read_stats("stats_mysql_query_digest", Reading::Reset).unwrap_or_default();
    let marks = vec!["?"; COLUMNS + 1].join(",");
    let mut put = db.prepare(&format!("INSERT INTO stats_history.history_mysql_query_digest VALUES ({marks})"))?;
    for row in &table {
        let values = std::iter::once(&Value::Integer(now)).chain(row.iter().take(COLUMNS)).map(stored).collect::<Vec<_>>();
        put.execute(params_from_iter(values))?;
    }
    prune(db, "history_mysql_query_digest", "dump_time", &Keep::days(settings.stats_history_days, settings, now))?;
    Ok(table.len())
}

/// A value as SQLite keeps it.
pub(super) fn stored(value: &Value) -> types::Value {
    match value {
        Value::Null => types::Value::Null,
        Value::Integer(number) => types::Value::Integer(*number),
        Value::Text(text) => types::Value::Text(text.clone()),
    }
}
