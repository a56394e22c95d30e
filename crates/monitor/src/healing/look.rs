//! What a server says that has to do with a promotion. Everything here only reads.

use topology::healing::{Channel, LinkState, LinkThread, ReplicaSide, SemiSync, ServerVersion, Sides, SourceSide};
use topology::{GtidSet, ServerId};

use crate::channels::{Link, ThreadState, is_of_group, link};
use crate::client::{Connection, Fault, Row, Rows, is_on};
use crate::probe;

/// What a version lacks is a missing row. Sets of GTIDs are not among them: SHOW cuts long values.
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_id', 'server_uuid', 'read_only', 'super_read_only', 'gtid_mode', 'log_bin', \
     'log_slave_updates', 'log_replica_updates', 'gtid_strict_mode', 'slave_net_timeout', 'replica_net_timeout', \
     'slave_preserve_commit_order', 'replica_preserve_commit_order', 'slave_parallel_workers', 'replica_parallel_workers', \
     'rpl_semi_sync_source_enabled', 'rpl_semi_sync_replica_enabled', 'rpl_semi_sync_source_wait_point', 'rpl_semi_sync_source_timeout', \
     'rpl_semi_sync_source_wait_for_replica_count', 'rpl_semi_sync_source_wait_no_replica', 'rpl_semi_sync_master_enabled', \
     'rpl_semi_sync_slave_enabled', 'rpl_semi_sync_master_wait_point', 'rpl_semi_sync_master_timeout', \
     'rpl_semi_sync_master_wait_for_slave_count', 'rpl_semi_sync_master_wait_no_slave')";
/// Asked only where there is semi-synchronous replication.
const SEMI_SYNC: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_source_status', 'Rpl_semi_sync_source_clients', \
     'Rpl_semi_sync_source_wait_sessions', 'Rpl_semi_sync_master_status', 'Rpl_semi_sync_master_clients', \
     'Rpl_semi_sync_master_wait_sessions', 'Rpl_semi_sync_replica_status', 'Rpl_semi_sync_slave_status')";
/// MySQL shows heartbeats nowhere else.
const HEARTBEATS: &str = "SELECT status.CHANNEL_NAME AS channel_name, status.COUNT_RECEIVED_HEARTBEATS AS slave_received_heartbeats, \
     settings.HEARTBEAT_INTERVAL AS slave_heartbeat_period FROM performance_schema.replication_connection_status status \
     JOIN performance_schema.replication_connection_configuration settings USING (CHANNEL_NAME)";
/// What [`HEARTBEATS`] needs.
pub(super) const HEARTBEATS_GRANT: &str = "SELECT ON performance_schema.*";

const PURGED: &str = "SELECT @@global.gtid_purged";
const MYSQL_SET: &str = "SELECT @@global.gtid_executed";
const MARIADB_SET: &str = "SELECT CONCAT_WS(',', @@global.gtid_binlog_state, @@global.gtid_slave_pos)";

/// A server's answers.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    pub(crate) version: ServerVersion,
    pub(crate) id: ServerId,
    pub(crate) executed: GtidSet,
    /// What its binary logs no longer hold; empty on MariaDB, which does not say so.
    pub(crate) purged: GtidSet,
    pub(crate) is_read_only: bool,
    /// No client can write: MySQL's `super_read_only`, MariaDB's `read_only`.
    pub(super) is_closed: bool,
    pub(crate) has_gtids: bool,
    pub(crate) logs: bool,
    pub(super) logs_updates: bool,
    pub(super) is_acker: bool,
    pub(super) semi_sync: Option<SemiSync>,
    /// Both sides of it by their settings, whether they are on or not.
    pub(super) sides: Sides,
    /// In the order that the server shows them, but for a group's own.
    pub(crate) channels: Vec<Line>,
    /// MariaDB: `gtid_strict_mode`.
    pub(crate) is_strict: bool,
    /// `replica_net_timeout`, s.
    pub(super) net_timeout_s: Option<u64>,
    /// Several appliers commit in another order than the source did.
    pub(super) reorders: bool,
    /// The monitor's user may not see the heartbeats.
    pub(super) hides_heartbeats: bool,
}

impl Sight {
    /// The source side of semi-synchronous replication; None where it is not installed.
    pub(crate) fn source_side(&self) -> Option<SourceSide> {
        self.sides.source
    }
}

/// A channel.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) channel: Channel,
    /// What its source called itself when it connected last.
    pub(super) source_id: ServerId,
    /// What it has received.
    pub(crate) received: GtidSet,
    /// How many heartbeats it has received; None where that is not known.
    pub(super) heartbeats: Option<u64>,
}

/// All of it, by one look.
pub(crate) async fn look(connection: &mut Connection) -> Result<Sight, Fault> {
    let is_mariadb = connection.version().is_mariadb;
    let version = ServerVersion { is_mariadb, number: connection.version().number };
    // In this order: what was applied was received before.
    let status = probe::channels(connection).await?;
    let executed = executed(connection).await?;
    let purged = if is_mariadb { GtidSet::default() } else { gtids(connection, PURGED).await? };
    let variables = connection.query(VARIABLES).await?;
    let mut channels = Vec::new();
    for row in status.iter() {
        let known = link(&row);
        if !is_of_group(&known) {
            channels.push(line(&row, known)?);
        }
    }
    let hides_heartbeats = !is_mariadb && !channels.is_empty() && !add_heartbeats(connection, &mut channels).await?;
    let has = |names: [&str; 2]| names.iter().any(|name| variables.named(name).is_some_and(is_on));
    let number = |names: [&str; 2]| names.iter().find_map(|name| variables.named(name)?.parse::<u64>().ok());
    let has_semi_sync = has(["rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled"])
        || has(["rpl_semi_sync_replica_enabled", "rpl_semi_sync_slave_enabled"]);
    let acks = if has_semi_sync { connection.query(SEMI_SYNC).await? } else { Rows::default() };
    let is_parallel = number(["replica_parallel_workers", "slave_parallel_workers"]).is_some_and(|workers| workers > 1);
    let keeps_order = has(["replica_preserve_commit_order", "slave_preserve_commit_order"]);
    // `read_only` has more values than two from MariaDB 11.8 on.
    let is_read_only = variables.named("read_only").is_some_and(|value| !matches!(value, "OFF" | "0"));
    Ok(Sight {
        version,
        id: ServerId::new(variables.named("server_id").and_then(|id| id.parse().ok()), variables.named("server_uuid")),
        executed,
        purged,
        is_read_only,
        is_closed: is_read_only && (is_mariadb || has(["super_read_only", "super_read_only"])),
        has_gtids: is_mariadb || variables.named("gtid_mode").is_some_and(is_on),
        logs: has(["log_bin", "log_bin"]),
        logs_updates: has(["log_replica_updates", "log_slave_updates"]),
        is_acker: ["rpl_semi_sync_replica_status", "rpl_semi_sync_slave_status"].iter().any(|name| acks.named(name).is_some_and(is_on)),
        semi_sync: semi_sync(&variables, &acks),
        sides: sides(&variables, &acks),
        channels,
        is_strict: variables.named("gtid_strict_mode").is_some_and(is_on),
        net_timeout_s: number(["replica_net_timeout", "slave_net_timeout"]),
        reorders: !is_mariadb && is_parallel && !keeps_order,
        hides_heartbeats,
    })
}

/// What it has applied or written.
pub(crate) async fn executed(connection: &mut Connection) -> Result<GtidSet, Fault> {
    let sql = if connection.version().is_mariadb { MARIADB_SET } else { MYSQL_SET };
    gtids(connection, sql).await
}

async fn gtids(connection: &mut Connection, sql: &str) -> Result<GtidSet, Fault> {
    match connection.query(sql).await {
        Ok(rows) => set(rows.scalar().unwrap_or_default()),
        // A version without GTIDs.
        Err(fault) if fault.is_unfit() => Ok(GtidSet::default()),
        Err(fault) => Err(fault),
    }
}

fn set(text: &str) -> Result<GtidSet, Fault> {
    GtidSet::parse(text).ok_or_else(|| Fault::Protocol("a set of GTIDs has an unknown form".to_owned()))
}

/// False where the monitor's user may not see them.
async fn add_heartbeats(connection: &mut Connection, channels: &mut [Line]) -> Result<bool, Fault> {
    let rows = match connection.query(HEARTBEATS).await {
        Ok(rows) => rows,
        Err(fault) if fault.breaks_connection() => return Err(fault),
        // The right is missing, or the table: 5.6, performance_schema=OFF.
        Err(_) => return Ok(false),
    };
    for row in rows.iter() {
        let name = row.text("channel_name").unwrap_or_default();
        if let Some(line) = channels.iter_mut().find(|line| line.channel.name == name) {
            line.heartbeats = row.number("slave_received_heartbeats");
            line.channel.heartbeat_ms = period_ms(&row);
        }
    }
    Ok(true)
}

/// 0 is none.
fn period_ms(row: &Row<'_>) -> Option<u64> {
    let seconds: f64 = row.text("slave_heartbeat_period")?.parse().ok()?;
    let ms = std::time::Duration::try_from_secs_f64(seconds).ok()?.as_millis();
    u64::try_from(ms).ok().filter(|ms| *ms > 0)
}

fn line(row: &Row<'_>, known: Link) -> Result<Line, Fault> {
    let position = row.text("retrieved_gtid_set").or_else(|| row.text("gtid_io_pos")).unwrap_or_default().replace('\n', "");
    let is_by_gtid = row.text("auto_position") == Some("1") || row.text("using_gtid").is_some_and(|kind| !kind.eq_ignore_ascii_case("no"));
    let number = |new: &str, old: &str| row.number(new).or_else(|| row.number(old));
    let source_id = number("source_server_id", "master_server_id");
    let lag_ms = number("seconds_behind_source", "seconds_behind_master").map(|seconds| seconds.saturating_mul(1_000));
    let channel = Channel {
        name: known.name,
        source: known.source.unwrap_or_else(|| model::ServerAddr { host: "".into(), port: 0 }),
        is_from_primary: false,
        is_by_gtid,
        receiver: thread(known.receiver),
        applier: thread(known.applier),
        delay_s: row.number("sql_delay").unwrap_or_default(),
        has_filters: has_filters(row),
        lag_ms,
        heard_ms: None,
        heartbeat_ms: period_ms(row),
        position: position.clone(),
    };
    let source_id = ServerId::new(source_id, row.text("source_uuid").or_else(|| row.text("master_uuid")));
    Ok(Line { channel, source_id, received: set(&position)?, heartbeats: row.number("slave_received_heartbeats") })
}

fn thread(thread: crate::channels::Thread) -> LinkThread {
    let state = match thread.state {
        ThreadState::Stopped => LinkState::Stopped,
        ThreadState::Connecting => LinkState::Connecting,
        ThreadState::Runs => LinkState::Runs,
    };
    LinkThread { state, error: thread.error.map(|(code, _)| code) }
}

fn has_filters(row: &Row<'_>) -> bool {
    const FILTERS: [&str; 9] = [
        "replicate_do_db",
        "replicate_ignore_db",
        "replicate_do_table",
        "replicate_ignore_table",
        "replicate_wild_do_table",
        "replicate_wild_ignore_table",
        "replicate_do_domain_ids",
        "replicate_ignore_domain_ids",
        "replicate_rewrite_db",
    ];
    FILTERS.iter().any(|column| row.text(column).is_some_and(|value| !value.is_empty()))
}

/// The source side, where it is switched on.
fn semi_sync(variables: &Rows, status: &Rows) -> Option<SemiSync> {
    let either = |rows: &Rows, new: &str, old: &str| rows.named(new).or_else(|| rows.named(old)).map(str::to_owned);
    let variable = |new: &str, old: &str| either(variables, &format!("rpl_semi_sync_source_{new}"), &format!("rpl_semi_sync_master_{old}"));
    let shown = |name: &str| either(status, &format!("rpl_semi_sync_source_{name}"), &format!("rpl_semi_sync_master_{name}"));
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    if !variable("enabled", "enabled").is_some_and(|value| is_on(&value)) {
        return None;
    }
    Some(SemiSync {
        is_on: shown("status").is_some_and(|value| is_on(&value)),
        is_after_sync: variable("wait_point", "wait_point").is_some_and(|point| point.eq_ignore_ascii_case("after_sync")),
        timeout_ms: number(variable("timeout", "timeout")).unwrap_or_default(),
        keeps_waiting: variable("wait_no_replica", "wait_no_slave").is_some_and(|value| is_on(&value)),
        // MariaDB has no such setting: one.
        acks: number(variable("wait_for_replica_count", "wait_for_slave_count")).unwrap_or(1),
        ackers: number(shown("clients")).unwrap_or_default(),
        waits: number(shown("wait_sessions")).unwrap_or_default(),
    })
}

/// As far as they are installed.
fn sides(variables: &Rows, status: &Rows) -> Sides {
    let shown = |new: &str, old: &str| {
        variables.named(&format!("rpl_semi_sync_{new}")).or_else(|| variables.named(&format!("rpl_semi_sync_{old}")))
    };
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    let source = shown("source_enabled", "master_enabled").map(|enabled| SourceSide {
        is_enabled: is_on(enabled),
        is_after_sync: shown("source_wait_point", "master_wait_point").is_some_and(|point| point.eq_ignore_ascii_case("after_sync")),
        timeout_ms: number(shown("source_timeout", "master_timeout")).unwrap_or_default(),
        keeps_waiting: shown("source_wait_no_replica", "master_wait_no_slave").is_some_and(is_on),
        acks: number(shown("source_wait_for_replica_count", "master_wait_for_slave_count")),
    });
    let is_acking = ["rpl_semi_sync_replica_status", "rpl_semi_sync_slave_status"].iter().any(|name| status.named(name).is_some_and(is_on));
    let replica = shown("replica_enabled", "slave_enabled")
        .map(|enabled| ReplicaSide { is_enabled: is_on(enabled), acknowledges: is_on(enabled) && is_acking });
    Sides { source, replica }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_both_flavors() {
        let columns = &[
            "Channel_Name",
            "Source_Host",
            "Source_Port",
            "Source_UUID",
            "Retrieved_Gtid_Set",
            "Auto_Position",
            "SQL_Delay",
            "Replica_IO_Running",
            "Replica_SQL_Running",
            "Last_SQL_Errno",
            "Replicate_Ignore_DB",
        ];
        let values: Vec<Option<&str>> =
            ["", "h", "1", "AA", "aa:3-5,\nbb:1", "1", "60", "Yes", "No", "1062", "x"].into_iter().map(Some).collect();
        let rows = Rows::of(columns, &[&values]);
        let row = rows.first().unwrap();
        let found = line(&row, link(&row)).unwrap();
        assert_eq!((found.channel.position.as_str(), found.channel.delay_s), ("aa:3-5,bb:1", 60));
        assert!(found.channel.has_filters && found.channel.is_by_gtid && found.heartbeats.is_none());
        assert_eq!((found.channel.receiver.state, found.channel.applier.error.unwrap()), (LinkState::Runs, 1_062));
        assert_eq!(found.received.to_string(), "aa:3-5,bb:1");
        for (column, wanted) in [("Replicate_Rewrite_DB", true), ("Replicate_Do_DB", true), ("Replicate_Other", false)] {
            assert_eq!(has_filters(&Rows::of(&[column], &[&[Some("x")]]).first().unwrap()), wanted, "{column}");
        }

        let columns = &["Connection_name", "Master_Host", "Master_Port", "Master_Server_Id", "Gtid_IO_Pos", "Using_Gtid"];
        let columns = [&columns[..], &["Slave_received_heartbeats", "Slave_heartbeat_period", "Seconds_Behind_Master"]].concat();
        let values: Vec<Option<&str>> = ["", "h", "1", "7", "0-7-9", "Slave_Pos", "12", "1.500", "3"].into_iter().map(Some).collect();
        let rows = Rows::of(&columns, &[&values]);
        let row = rows.first().unwrap();
        let found = line(&row, link(&row)).unwrap();
        assert_eq!((found.heartbeats, found.channel.heartbeat_ms, found.channel.lag_ms), (Some(12), Some(1_500), Some(3_000)));
        assert_eq!((found.source_id.number, found.channel.position.as_str()), (Some(7), "0-7-9"));
    }

    #[test]
    fn semi_synchronous_replication_in_both_words() {
        let rows = |all: &[(&str, &str)]| {
            let rows: Vec<[Option<&str>; 2]> = all.iter().map(|(name, value)| [Some(*name), Some(*value)]).collect();
            Rows::of(&["Variable_name", "Value"], &rows.iter().map(|row| &row[..]).collect::<Vec<_>>())
        };
        let new = semi_sync(
            &rows(&[
                ("rpl_semi_sync_source_enabled", "ON"),
                ("rpl_semi_sync_source_wait_point", "AFTER_SYNC"),
                ("rpl_semi_sync_source_timeout", "1000000"),
                ("rpl_semi_sync_source_wait_for_replica_count", "2"),
                ("rpl_semi_sync_source_wait_no_replica", "ON"),
            ]),
            &rows(&[
                ("Rpl_semi_sync_source_status", "ON"),
                ("Rpl_semi_sync_source_clients", "3"),
                ("Rpl_semi_sync_source_wait_sessions", "1"),
            ]),
        );
        let wanted =
            SemiSync { is_on: true, is_after_sync: true, timeout_ms: 1_000_000, keeps_waiting: true, acks: 2, ackers: 3, waits: 1 };
        assert_eq!(new, Some(wanted));
        let old = semi_sync(&rows(&[("rpl_semi_sync_master_enabled", "ON"), ("rpl_semi_sync_master_timeout", "10000")]), &rows(&[]));
        assert_eq!(old, Some(SemiSync { timeout_ms: 10_000, acks: 1, ..SemiSync::default() }));
        for (value, keeps_waiting) in [("ON", true), ("OFF", false)] {
            let old =
                semi_sync(&rows(&[("rpl_semi_sync_master_enabled", "ON"), ("rpl_semi_sync_master_wait_no_slave", value)]), &rows(&[]));
            assert_eq!(old.unwrap().keeps_waiting, keeps_waiting, "{value}");
        }
        assert_eq!(semi_sync(&rows(&[("rpl_semi_sync_master_enabled", "OFF")]), &rows(&[])), None);
    }
}
