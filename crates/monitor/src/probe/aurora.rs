//! `information_schema.replica_host_status`: an Aurora instance's view of its cluster.

use topology::{AuroraInstance, AuroraView};

use crate::client::{Connection, Fault, Row, whole_number};

/// Rows that were last written longer ago are of instances that are gone, s.
const FRESH_S: u64 = 180;
/// `SESSION_ID` of the writer's row.
const WRITER_SESSION: &str = "MASTER_SESSION_ID";

/// Ages are by the server's own clock.
const SQL: &str = "SELECT SERVER_ID, SESSION_ID, LAST_UPDATE_TIMESTAMP, REPLICA_LAG_IN_MILLISECONDS, CPU, \
                   TIMESTAMPDIFF(MICROSECOND, LAST_UPDATE_TIMESTAMP, NOW(6)) AS AGE_US \
                   FROM information_schema.replica_host_status ORDER BY SERVER_ID";

/// One row, with the values that only the log shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuroraRow {
    /// The values that decide.
    pub(crate) instance: AuroraInstance,
    /// `SESSION_ID`.
    pub(crate) session_id: String,
    /// `LAST_UPDATE_TIMESTAMP`, as the server writes it.
    pub(crate) updated: String,
}

/// All rows; of several writers' rows only the youngest.
pub(super) async fn look(connection: &mut Connection) -> Result<Vec<AuroraRow>, Fault> {
    match connection.query(SQL).await {
        Ok(rows) => Ok(one_writer(rows.iter().filter_map(|row| instance(&row)).collect())),
        Err(fault) if fault.is_unfit() => Err(Fault::Unfit(format!("this server is not an Aurora instance: {fault}"))),
        Err(fault) => Err(fault),
    }
}

fn instance(row: &Row<'_>) -> Option<AuroraRow> {
    let session_id = row.text("session_id").unwrap_or_default().to_owned();
    let is_writer = session_id == WRITER_SESSION;
    let lag = || row.text("replica_lag_in_milliseconds").and_then(rounded_up);
    // A listed instance is there, however far behind.
    let lag_ms = if is_writer { 0 } else { lag().map_or(AuroraInstance::LAG_UNKNOWN_MS, |ms| ms.min(AuroraInstance::LAG_UNKNOWN_MS)) };
    let instance = AuroraInstance {
        server_id: row.text("server_id")?.to_owned(),
        is_writer,
        lag_ms,
        age_ms: row.number("age_us").unwrap_or_default() / 1_000,
        cpu: u32::try_from(row.number("cpu").unwrap_or_default()).unwrap_or(u32::MAX),
    };
    Some(AuroraRow { instance, session_id, updated: row.text("last_update_timestamp").unwrap_or_default().to_owned() })
}

fn rounded_up(text: &str) -> Option<u64> {
    let number: f64 = text.trim().parse().ok()?;
    whole_number(&number.ceil().to_string())
}

/// After a failover the old writer's row may stay for a while. Of two writers' rows the younger one counts.
fn one_writer(mut rows: Vec<AuroraRow>) -> Vec<AuroraRow> {
    let youngest = rows.iter().filter(|row| row.instance.is_writer).map(|row| row.instance.age_ms).min();
    let mut is_found = false;
    for row in &mut rows {
        row.instance.is_writer &= Some(row.instance.age_ms) == youngest && !is_found;
        is_found |= row.instance.is_writer;
    }
    rows
}

/// The rows that are young enough ([`FRESH_S`]), without the log's values.
pub(super) fn view(rows: &[AuroraRow]) -> AuroraView {
    let instances = rows.iter().map(|row| row.instance.clone());
    AuroraView { instances: instances.filter(|i| i.age_ms < FRESH_S * 1_000).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Rows;

    const COLUMNS: &[&str] = &["SERVER_ID", "SESSION_ID", "LAST_UPDATE_TIMESTAMP", "REPLICA_LAG_IN_MILLISECONDS", "CPU", "AGE_US"];

    fn read(rows: &[[&str; 6]]) -> Vec<AuroraRow> {
        let cells: Vec<Vec<Option<&str>>> = rows.iter().map(|row| row.iter().map(|v| Some(*v)).collect()).collect();
        let rows = Rows::of(COLUMNS, &cells.iter().map(Vec::as_slice).collect::<Vec<_>>());
        one_writer(rows.iter().filter_map(|row| instance(&row)).collect())
    }

    #[test]
    fn a_writer_and_a_replica() {
        let rows = read(&[
            ["db-1", "MASTER_SESSION_ID", "2026-01-01 00:00:00.1", "3.5", "12.7", "900000"],
            ["db-2", "b1f-2", "2026-01-01 00:00:00.2", "18.2999", "3", "-5"],
        ]);
        let seen: Vec<_> =
            rows.iter().map(|r| (&*r.instance.server_id, r.instance.is_writer, r.instance.lag_ms, r.instance.age_ms)).collect();
        assert_eq!(seen, [("db-1", true, 0, 900), ("db-2", false, 19, 0)]);
        assert_eq!((rows[0].instance.cpu, &*rows[1].session_id), (12, "b1f-2"));
    }

    #[test]
    fn of_two_writers_the_younger_row_is_it() {
        let rows = read(&[["old", WRITER_SESSION, "", "0", "1", "40000000"], ["new", WRITER_SESSION, "", "0", "1", "1000"]]);
        assert_eq!(rows.iter().map(|r| r.instance.is_writer).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn rows_of_the_gone_are_no_part_of_the_view() {
        let rows =
            read(&[["a", WRITER_SESSION, "", "0", "1", "1000"], ["b", "s", "", "5", "1", "180000001"], ["c", "s", "", "700000", "1", "1"]]);
        assert_eq!(view(&rows).instances.iter().map(|i| &*i.server_id).collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn who_is_listed_is_there_though_its_lag_is_unknown_or_huge() {
        let row = |lag| [Some("a"), Some("s"), Some(""), lag, Some("1"), Some("1")];
        for (lag, expected) in [(None, AuroraInstance::LAG_UNKNOWN_MS), (Some("?"), AuroraInstance::LAG_UNKNOWN_MS), (Some("7e5"), 700_000)]
        {
            let rows = Rows::of(COLUMNS, &[&row(lag)]);
            assert_eq!(rows.iter().filter_map(|row| instance(&row)).map(|row| row.instance.lag_ms).collect::<Vec<_>>(), [expected]);
        }
    }
}
