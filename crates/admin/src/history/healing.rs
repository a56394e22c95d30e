//! Steps of promotions, returns and switchovers: one row for each, moved here from the monitor's memory.

use model::fleet::Operator;
use model::settings::AdminVariables;
use rusqlite::{Connection, params};

use super::roll::{Keep, prune};
use crate::error::AdminError;
use crate::store::rows::transaction;

/// Its table in `stats_history`.
pub(crate) const TABLE: &str = "history_tidegate_healing";
/// Its columns. `plan_id` is the same for all steps of a plan; `took_ms` is the server's time for the statement.
pub(crate) const COLUMNS: &str = "timestamp INT NOT NULL, time_us INT NOT NULL, plan VARCHAR NOT NULL, plan_id INT, epoch INT, \
    proxy VARCHAR NOT NULL, writer_hostgroup INT, hostname VARCHAR NOT NULL, port INT NOT NULL, step VARCHAR NOT NULL, statement VARCHAR, \
    result VARCHAR NOT NULL, took_ms INT NOT NULL";

/// Moves the steps that wait. Steps that cannot be kept are dropped: they are events and lines of the log too.
pub(crate) fn save(db: &Connection, operator: &dyn Operator, settings: &AdminVariables) -> Result<(), AdminError> {
    let steps = operator.healed_steps();
    let Some((last, newest)) = steps.last() else { return Ok(()) };
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let kept = transaction(db, || {
        let mut put = db.prepare(&format!("INSERT INTO stats_history.{TABLE} VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)"))?;
        for (_, step) in &steps {
            put.execute(params![
                whole(step.at_unix_us / 1_000_000),
                whole(step.at_unix_us),
                step.plan,
                step.number.map(whole),
                step.epoch,
                step.by,
                step.writer.map(|writer| writer.0),
                &*step.server.host,
                step.server.port,
                step.step,
                Some(&step.statement).filter(|statement| !statement.is_empty()),
                step.result,
                whole(step.took_ms),
            ])?;
        }
        prune(db, TABLE, "timestamp", &Keep::days(settings.stats_history_day_days, settings, whole(newest.at_unix_us / 1_000_000)))
    });
    operator.forget_healed_steps(*last);
    kept
}
