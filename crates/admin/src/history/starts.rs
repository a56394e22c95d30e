//! When the process was started or replaced: one row for each, so that charts can mark it after a restart too.

use model::settings::AdminVariables;
use rusqlite::{Connection, params};

use super::roll::{Keep, prune};
use crate::error::AdminError;

/// Its table in `stats_history`.
pub(crate) const TABLE: &str = "history_tidegate_starts";

/// Records the begin of this process at `now` (Unix s). A process that takes over from another one is an upgrade.
pub(crate) fn note(db: &Connection, settings: &AdminVariables, version: &str, is_upgrade: bool, now: i64) -> Result<(), AdminError> {
    let kind = if is_upgrade { "upgrade" } else { "start" };
    db.execute(&format!("INSERT INTO stats_history.{TABLE} VALUES (?1, ?2, ?3)"), params![now, kind, version])?;
    prune(db, TABLE, "timestamp", &Keep::days(settings.stats_history_days, settings, now))
}
