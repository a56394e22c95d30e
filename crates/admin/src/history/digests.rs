//! Digests that are moved from memory to `history_mysql_query_digest`: `SAVE MYSQL DIGEST TO DISK`, and periodically.

use model::control::DataPlane;
use model::settings::AdminVariables;
use model::stats::Value;
use rusqlite::{Connection, params_from_iter, types};

use super::roll::{Keep, prune};
use crate::error::AdminError;

/// Columns of the table, less the time.
const COLUMNS: usize = 14;

/// Takes the digests and saves them. Returns how many. The caller holds a transaction and tells the plane whether it is committed
/// ([`DataPlane::settle_digests`]); `now` is in Unix seconds.
pub(crate) fn save(db: &Connection, plane: &dyn DataPlane, settings: &AdminVariables, now: i64) -> Result<usize, AdminError> {
    let table = plane.take_digests();
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
