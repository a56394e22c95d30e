//! Replication lag: from the heartbeat table if there is one, else from the replica's own status.
//!
//! A server may have channels from other clusters. The channel that the settings name counts, else channels from members of the
//! server's own cluster. Without either, a member of Galera, a group or Aurora has no lag. Otherwise all channels count except those of
//! `mysql_replication_channels`, because sources may have other names.

use model::ServerAddr;
use topology::{Lag, ServerId, Source, SourcesView};

use super::ProbeSettings;
use crate::client::{Connection, Fault, Row, Rows, Version, is_on};

/// The channels of Group Replication itself: they are no asynchronous replication, and report no lag.
const GROUP_CHANNELS: &str = "group_replication_";
/// How far a heartbeat may be ahead of the server's clock, ms.
const AHEAD_MAX_MS: i64 = 2_000;
/// Variables by which members of Galera, a group or Aurora are known.
const MEMBER: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                      ('wsrep_on', 'wsrep_provider', 'group_replication_group_name', 'aurora_version')";

/// The same, with the ids by which replicas know the server.
const WHO: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                   ('server_id', 'server_uuid', 'wsrep_on', 'wsrep_provider', 'group_replication_group_name', 'aurora_version')";

/// How far it is behind.
pub(super) async fn look(connection: &mut Connection, settings: &ProbeSettings) -> Result<Lag, Fault> {
    if settings.heartbeat_table.is_empty() {
        status(connection, settings).await
    } else {
        heartbeat(connection, &settings.heartbeat_table).await
    }
}

/// The newest heartbeat counts: a table that was replicated keeps the rows of former sources, which age for ever.
async fn heartbeat(connection: &mut Connection, table: &str) -> Result<Lag, Fault> {
    let sql = format!("SELECT MIN(TIMESTAMPDIFF(MICROSECOND, ts, SYSDATE(6))) DIV 1000 AS lag_ms FROM {table}");
    let rows = connection.query(&sql).await.map_err(|fault| fault.with_hint(&format!("SELECT ON {table}")))?;
    let lag_ms = rows.first().and_then(|row| row.text("lag_ms")?.trim().parse().ok());
    age(lag_ms, table)
}

/// The lag by the newest heartbeat, ms. A heartbeat may be ahead by a small difference of clocks; if it is more, the lag is unknown.
fn age(lag_ms: Option<i64>, table: &str) -> Result<Lag, Fault> {
    match lag_ms {
        None => Ok(Lag::Unknown),
        Some(ms) if ms < -AHEAD_MAX_MS => Err(Fault::Unfit(format!(
            "the newest ts of {table} is ahead of this server's clock (in its time zone, @@time_zone): the lag is unknown"
        ))),
        Some(ms) => Ok(Lag::Behind(u64::try_from(ms).unwrap_or_default())),
    }
}

/// The sources of channels whose receiver runs, without the channels of `mysql_replication_channels`, and the server's own id.
pub(super) async fn sources(connection: &mut Connection, settings: &ProbeSettings) -> Result<SourcesView, Fault> {
    let sources = running(&channels(connection).await?, settings);
    let variables = connection.query(WHO).await?;
    let number = variables.named("server_id").and_then(|number| number.parse().ok());
    Ok(SourcesView { id: ServerId::new(number, variables.named("server_uuid")), sources, is_member: is_member(&variables) })
}

fn running(rows: &Rows, settings: &ProbeSettings) -> Vec<Source> {
    unlisted(rows, settings)
        .into_iter()
        .filter(receives)
        .filter_map(|row| Some(Source { addr: source(&row)?, id: source_id(&row) }))
        .collect()
}

/// Whether a channel's receiver runs. One that connects again and again runs too.
fn receives(row: &Row<'_>) -> bool {
    let receiver = row.text("replica_io_running").or_else(|| row.text("slave_io_running"));
    receiver.is_none_or(|state| !state.eq_ignore_ascii_case("no"))
}

/// The sources of all channels whose receiver runs. A promoted server may still have a stopped channel.
pub(crate) fn receiving(rows: &Rows) -> Vec<ServerAddr> {
    asynchronous(rows).filter(receives).filter_map(|row| source(&row)).collect()
}

/// Whether the server receives changes of others: by any channel whose receiver runs, or as a member of a cluster.
pub(crate) async fn replicates(connection: &mut Connection) -> Result<bool, Fault> {
    Ok(!receiving(&channels(connection).await?).is_empty() || is_member(&connection.query(MEMBER).await?))
}

async fn status(connection: &mut Connection, settings: &ProbeSettings) -> Result<Lag, Fault> {
    let rows = channels(connection).await?;
    let own = own(&rows, settings);
    if !own.is_empty() {
        return Ok(worst(&own));
    }
    if is_member(&connection.query(MEMBER).await?) { Ok(Lag::Member) } else { Ok(worst(&unlisted(&rows, settings))) }
}

/// The replica's status, a row for each channel.
pub(crate) async fn channels(connection: &mut Connection) -> Result<Rows, Fault> {
    let version = connection.version().clone();
    connection.query(statement(&version)).await.map_err(|fault| fault.with_hint(privilege(&version)))
}

/// The rows that are not of a group's own channels.
fn asynchronous(rows: &Rows) -> impl Iterator<Item = Row<'_>> {
    rows.iter().filter(|row| !name(row).starts_with(GROUP_CHANNELS))
}

/// How a channel is called; empty for the one without a name.
pub(crate) fn name<'a>(row: &Row<'a>) -> &'a str {
    // MariaDB calls it a connection.
    row.text("channel_name").or_else(|| row.text("connection_name")).unwrap_or_default()
}

/// The channel that the settings name, else those from members of its own cluster.
fn own<'a>(rows: &'a Rows, settings: &ProbeSettings) -> Vec<Row<'a>> {
    let wanted = &*settings.channel;
    let named: Vec<Row<'_>> = asynchronous(rows).filter(|row| !wanted.is_empty() && name(row).eq_ignore_ascii_case(wanted)).collect();
    if !named.is_empty() {
        named
    } else {
        asynchronous(rows).filter(|row| source(row).is_some_and(|source| settings.is_peer(&source))).collect()
    }
}

/// All channels but those that are known to be from other clusters.
fn unlisted<'a>(rows: &'a Rows, settings: &ProbeSettings) -> Vec<Row<'a>> {
    let is_foreign = |row: &Row<'_>| settings.foreign.iter().any(|foreign| foreign.eq_ignore_ascii_case(name(row)));
    asynchronous(rows).filter(|row| !is_foreign(row)).collect()
}

/// The source that a channel is configured with.
pub(crate) fn source(row: &Row<'_>) -> Option<ServerAddr> {
    let host = row.text("source_host").or_else(|| row.text("master_host"))?;
    let port = row.number("source_port").or_else(|| row.number("master_port"))?;
    Some(ServerAddr { host: host.into(), port: u16::try_from(port).ok()? })
}

/// The source's own id at the channel's last connect.
fn source_id(row: &Row<'_>) -> ServerId {
    let number = row.number("source_server_id").or_else(|| row.number("master_server_id"));
    ServerId::new(number, row.text("source_uuid").or_else(|| row.text("master_uuid")))
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

/// The privilege to read the status.
fn privilege(version: &Version) -> &'static str {
    if version.is_mariadb && version.number >= (10, 5, 0) {
        "REPLICA MONITOR (or SLAVE MONITOR) ON *.*"
    } else {
        "REPLICATION CLIENT ON *.*"
    }
}

/// The channel that is farthest behind; one that does not know makes the whole unknown.
fn worst(channels: &[Row<'_>]) -> Lag {
    channels.iter().map(of_channel).fold(Lag::NotReplica, |worst, lag| match (worst, lag) {
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

    const COLUMNS: &[&str] = &["Channel_Name", "Source_Host", "Source_Port", "Seconds_Behind_Source"];

    /// The lag by these channels; None if the kind of the server decides.
    fn of_own(rows: &[&[Option<&str>]], peers: &[(&str, u16)], channel: &str) -> Option<Lag> {
        let peer = |(host, port): &(&str, u16)| ServerAddr { host: (*host).into(), port: *port };
        let settings = ProbeSettings { peers: peers.iter().map(peer).collect(), channel: channel.into(), ..ProbeSettings::default() };
        let rows = Rows::of(COLUMNS, rows);
        let own = own(&rows, &settings);
        (!own.is_empty()).then(|| worst(&own))
    }

    fn all(rows: &[&[Option<&str>]]) -> Lag {
        worst(&asynchronous(&Rows::of(COLUMNS, rows)).collect::<Vec<_>>())
    }

    #[test]
    fn where_sources_are_unknown_the_slowest_channel_counts() {
        let channel = |name, lag| [Some(name), Some("x"), Some("3306"), lag];
        assert_eq!(all(&[]), Lag::NotReplica);
        assert_eq!(all(&[&channel("", Some("3")), &channel("b", Some("7"))]), Lag::Behind(7_000));
        assert_eq!(all(&[&channel("", Some("3")), &channel("b", None)]), Lag::Unknown);
        assert_eq!(all(&[&channel("group_replication_applier", None)]), Lag::NotReplica);
    }

    #[test]
    fn channels_from_elsewhere_do_not_count() {
        let own = [Some("own"), Some("DB1"), Some("3306"), Some("1")];
        let foreign = [Some("foreign"), Some("elsewhere"), Some("3306"), None];
        let other_port = [Some("other"), Some("db1"), Some("3307"), Some("90")];
        let group = [Some("group_replication_recovery"), Some("db1"), Some("3306"), None];
        let rows: &[&[Option<&str>]] = &[&own, &foreign, &other_port, &group];
        assert_eq!(of_own(rows, &[("db1", 3306), ("db2", 3306)], ""), Some(Lag::Behind(1_000)));
        assert_eq!(of_own(rows, &[("db1", 3306), ("db1", 3307)], ""), Some(Lag::Behind(90_000)));
        assert_eq!(of_own(rows, &[("10.0.0.1", 3306)], ""), None, "names differ");
        assert_eq!(of_own(rows, &[("db1", 3306)], "Foreign"), Some(Lag::Unknown), "it is named");
        assert_eq!(of_own(rows, &[("db1", 3306)], "gone"), Some(Lag::Behind(1_000)), "nobody has that channel");
        assert_eq!(of_own(&[&foreign], &[("db1", 3306)], ""), None);
    }

    #[test]
    fn channels_that_are_listed_as_foreign_do_not_count() {
        let rows = Rows::of(COLUMNS, &[&[Some("East"), Some("far"), Some("3306"), Some("900")]]);
        let settings = ProbeSettings { foreign: ["east".into()].into(), ..ProbeSettings::default() };
        assert_eq!(worst(&unlisted(&rows, &settings)), Lag::NotReplica);
        assert_eq!(worst(&unlisted(&rows, &ProbeSettings::default())), Lag::Behind(900_000));
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
    fn a_server_replicates_from_those_whose_channels_run() {
        let columns = &["Channel_Name", "Source_Host", "Source_Port", "Replica_IO_Running"];
        let row = |name, host, running| [Some(name), Some(host), Some("3306"), Some(running)];
        let [one, two, stopped] = [row("", "a", "Yes"), row("x", "b", "Connecting"), row("y", "c", "No")];
        let group = row("group_replication_applier", "d", "Yes");
        let settings = ProbeSettings { foreign: ["far".into()].into(), ..ProbeSettings::default() };
        let hosts = |rows: &[&[Option<&str>]]| {
            running(&Rows::of(columns, rows), &settings).iter().map(|s| s.addr.host.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(running(&Rows::of(columns, &[&one]), &ProbeSettings::default()).len(), 1, "nothing is listed for its cluster");
        let far = row("Far", "e", "Yes");
        assert_eq!(hosts(&[&one, &two, &stopped, &group, &far]), ["a", "b"]);
        assert_eq!(hosts(&[]), [] as [&str; 0]);
        let columns = &["Connection_name", "Master_Host", "Master_Port", "Slave_IO_Running", "Master_Server_Id"];
        let old = |id| [Some(""), Some("a"), Some("3306"), Some("Yes"), Some(id)];
        let ids = running(&Rows::of(columns, &[&old("7"), &old("0")]), &settings);
        assert_eq!((ids[0].id.number, ids[1].id.number), (Some(7), None), "one that never connected does not know");
        let columns = &["Channel_Name", "Source_Host", "Source_Port", "Source_Server_Id", "Source_UUID"];
        let new = [Some(""), Some("a"), Some("3306"), Some("7"), Some("AA-1")];
        let id = running(&Rows::of(columns, &[&new]), &settings)[0].id.clone();
        assert!(id.is_same(&ServerId::new(Some(9), Some("aa-1"))), "{id:?}");
    }

    #[test]
    fn old_words_are_read_too() {
        let rows = Rows::of(&["Connection_name", "Seconds_Behind_Master"], &[&[Some(""), Some("0")]]);
        assert_eq!(worst(&asynchronous(&rows).collect::<Vec<_>>()), Lag::Behind(0));
        let rows = Rows::of(&["Connection_name", "Master_Host", "Master_Port"], &[&[Some("c"), Some("h"), Some("7")]]);
        let row = rows.first().unwrap();
        assert_eq!((name(&row), source(&row)), ("c", Some(ServerAddr { host: "h".into(), port: 7 })));
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
