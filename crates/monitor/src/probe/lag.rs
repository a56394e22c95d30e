//! Replication lag: from the heartbeat table if there is one, else from the replica's own status, over all its channels.

use topology::Lag;

use crate::client::{Connection, Fault, Row, Rows, Version, is_on};

/// The channels of Group Replication itself: they are no asynchronous replication, and report no lag.
const GROUP_CHANNELS: &str = "group_replication_";
/// How far a heartbeat may be ahead of the server's clock, ms.
const AHEAD_MAX_MS: i64 = 2_000;
/// What tells the members of clusters that get what is written in another way.
const MEMBER: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                      ('wsrep_on', 'wsrep_provider', 'group_replication_group_name', 'aurora_version')";

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
    let lag_ms = rows.first().and_then(|row| row.text("lag_ms")?.trim().parse().ok());
    age(lag_ms, table)
}

/// What the age of the newest heartbeat says, ms. Clocks differ a little; more than that tells nothing of how far behind it is.
fn age(lag_ms: Option<i64>, table: &str) -> Result<Lag, Fault> {
    match lag_ms {
        None => Ok(Lag::Unknown),
        Some(ms) if ms < -AHEAD_MAX_MS => Err(Fault::Unfit(format!(
            "the newest ts of {table} is ahead of this server's clock (in its time zone, @@time_zone): how far behind it is cannot be told"
        ))),
        Some(ms) => Ok(Lag::Behind(u64::try_from(ms).unwrap_or_default())),
    }
}

async fn status(connection: &mut Connection) -> Result<Lag, Fault> {
    let version = connection.version().clone();
    let rows = connection.query(statement(&version)).await.map_err(|fault| fault.with_hint(privilege(&version)))?;
    match worst(&rows) {
        Lag::NotReplica if is_member(&connection.query(MEMBER).await?) => Ok(Lag::Member),
        lag => Ok(lag),
    }
}

/// Of Galera, of a group, or of Aurora.
fn is_member(variables: &Rows) -> bool {
    let has = |name| variables.named(name).is_some_and(|value| !value.is_empty() && !value.eq_ignore_ascii_case("none"));
    let is_galera = variables.named("wsrep_on").is_some_and(is_on) && has("wsrep_provider");
    is_galera || has("group_replication_group_name") || has("aurora_version")
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
    let (groups, channels): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.text("channel_name").unwrap_or_default().starts_with(GROUP_CHANNELS));
    let none = if groups.is_empty() { Lag::NotReplica } else { Lag::Member };
    channels.iter().map(of_channel).fold(none, |worst, lag| match (worst, lag) {
        (Lag::Unknown, _) | (_, Lag::Unknown) => Lag::Unknown,
        (Lag::Behind(a), Lag::Behind(b)) => Lag::Behind(a.max(b)),
        (Lag::NotReplica | Lag::Member, lag) | (lag, Lag::NotReplica | Lag::Member) => lag,
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
        assert_eq!(mysql(&[&[Some("group_replication_applier"), None]]), Lag::Member);
    }

    #[test]
    fn members_of_clusters_need_no_channel() {
        let is_member = |rows: &[&[Option<&str>]]| is_member(&Rows::of(&["Variable_name", "Value"], rows));
        assert!(!is_member(&[]));
        assert!(!is_member(&[&[Some("wsrep_on"), Some("OFF")], &[Some("wsrep_provider"), Some("none")]]));
        assert!(!is_member(&[&[Some("wsrep_on"), Some("ON")], &[Some("wsrep_provider"), Some("none")]]));
        assert!(is_member(&[&[Some("wsrep_on"), Some("ON")], &[Some("wsrep_provider"), Some("/usr/lib/libgalera_smm.so")]]));
        assert!(!is_member(&[&[Some("group_replication_group_name"), Some("")]]));
        assert!(is_member(&[&[Some("group_replication_group_name"), Some("aa")]]));
        assert!(is_member(&[&[Some("aurora_version"), Some("3.05.2")]]));
    }

    #[test]
    fn heartbeats_from_the_future_tell_nothing() {
        let age = |ms| age(ms, "t.h").map_err(|fault| fault.to_string());
        assert_eq!((age(None), age(Some(5)), age(Some(-2_000))), (Ok(Lag::Unknown), Ok(Lag::Behind(5)), Ok(Lag::Behind(0))));
        assert!(age(Some(-2_001)).unwrap_err().contains("ahead of this server's clock"));
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
