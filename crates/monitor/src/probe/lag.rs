//! Replication lag: from the heartbeat table if there is one, else from the replica's own status, over all its channels.

use topology::Lag;

use crate::client::{Connection, Fault, Row, Rows, Version};

/// The channels of Group Replication itself: they are no asynchronous replication, and report no lag.
const GROUP_CHANNELS: &str = "group_replication_";

/// How far it is behind.
pub(super) async fn look(connection: &mut Connection, heartbeat_table: &str) -> Result<Lag, Fault> {
    match heartbeat_table.is_empty() {
        true => status(connection).await,
        false => heartbeat(connection, heartbeat_table).await,
    }
}

/// The newest heartbeat counts: a table that was replicated keeps the rows of former sources, which age for ever.
async fn heartbeat(connection: &mut Connection, table: &str) -> Result<Lag, Fault> {
    let sql = format!("SELECT MIN(TIMESTAMPDIFF(MICROSECOND, ts, SYSDATE(6))) DIV 1000 AS lag_ms FROM {table}");
    let rows = connection.query(&sql).await.map_err(|fault| fault.with_hint(&format!("SELECT ON {table}")))?;
    Ok(rows.first().and_then(|row| row.number("lag_ms")).map_or(Lag::Unknown, Lag::Behind))
}

async fn status(connection: &mut Connection) -> Result<Lag, Fault> {
    let version = connection.version().clone();
    let rows = connection.query(statement(&version)).await.map_err(|fault| fault.with_hint(privilege(&version)))?;
    Ok(worst(&rows))
}

/// The statement that shows all channels.
fn statement(version: &Version) -> &'static str {
    match version.is_mariadb {
        true => "SHOW ALL SLAVES STATUS",
        false if version.is_mysql_since((8, 0, 22)) => "SHOW REPLICA STATUS",
        false => "SHOW SLAVE STATUS",
    }
}

/// What it takes to ask.
fn privilege(version: &Version) -> &'static str {
    match version.is_mariadb && version.number >= (10, 5, 0) {
        true => "REPLICA MONITOR (or SLAVE MONITOR) ON *.*",
        false => "REPLICATION CLIENT ON *.*",
    }
}

/// The channel that is farthest behind; one that does not know makes the whole unknown.
fn worst(rows: &Rows) -> Lag {
    let channels = rows.iter().filter(|row| !row.text("channel_name").unwrap_or_default().starts_with(GROUP_CHANNELS));
    channels.map(|row| of_channel(&row)).fold(Lag::NotReplica, |worst, lag| match (worst, lag) {
        (Lag::Unknown, _) | (_, Lag::Unknown) => Lag::Unknown,
        (Lag::Behind(a), Lag::Behind(b)) => Lag::Behind(a.max(b)),
        (Lag::NotReplica, lag) | (lag, Lag::NotReplica) => lag,
    })
}

fn of_channel(row: &Row<'_>) -> Lag {
    let seconds = row.number("seconds_behind_source").or_else(|| row.number("seconds_behind_master"));
    seconds.map_or(Lag::Unknown, |seconds| Lag::Behind(seconds.saturating_mul(1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mysql(rows: &[&[Option<&str>]]) -> Lag {
        worst(&Rows::of(&["Channel_Name", "Seconds_Behind_Source"], rows))
    }

    #[test]
    fn the_slowest_channel_counts() {
        assert_eq!(mysql(&[]), Lag::NotReplica);
        assert_eq!(mysql(&[&[Some(""), Some("3")], &[Some("b"), Some("7")]]), Lag::Behind(7_000));
        assert_eq!(mysql(&[&[Some(""), Some("3")], &[Some("b"), None]]), Lag::Unknown);
        assert_eq!(mysql(&[&[Some("group_replication_applier"), None]]), Lag::NotReplica);
    }

    #[test]
    fn old_words_are_read_too() {
        let rows = Rows::of(&["Connection_name", "Seconds_Behind_Master"], &[&[Some(""), Some("0")]]);
        assert_eq!(worst(&rows), Lag::Behind(0));
    }

    #[test]
    fn each_server_is_asked_in_its_own_words() {
        let version = |is_mariadb, number| Version { is_mariadb, number };
        assert_eq!(statement(&version(false, (9, 7, 0))), "SHOW REPLICA STATUS");
        assert_eq!(statement(&version(false, (8, 0, 21))), "SHOW SLAVE STATUS");
        assert_eq!(statement(&version(false, (5, 7, 44))), "SHOW SLAVE STATUS");
        assert_eq!(statement(&version(true, (11, 8, 1))), "SHOW ALL SLAVES STATUS");
    }
}
