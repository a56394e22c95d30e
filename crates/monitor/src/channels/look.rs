//! Reads the servers' answers about channels. It changes nothing.

use topology::GtidSet;

use super::judge::{Kind, Link, Sight, Source, Thread, ThreadState};
use super::position::Position;
use crate::client::{Connection, Fault, Row, Rows, is_on};
use crate::probe::{self, channel_name, channel_source};

/// Settings and status of a member. A variable that a version lacks is a missing row.
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('gtid_mode', 'log_bin', 'log_slave_updates', 'log_replica_updates', \
     'wsrep_gtid_mode', 'gtid_domain_id', 'wsrep_gtid_domain_id', 'gtid_ignore_duplicates', 'gtid_slave_pos', 'gtid_binlog_pos')";
const NODES: &str = "SHOW GLOBAL STATUS LIKE 'wsrep_incoming_addresses'";

/// A member of a receiving cluster. With `after_all` a node of Galera answers when it has applied all that the cluster has.
pub(super) async fn member(connection: &mut Connection, kind: Kind, after_all: bool) -> Result<Sight, Fault> {
    let is_mariadb = connection.version().is_mariadb;
    if kind == Kind::Galera && after_all {
        // A transaction begins when all that was committed in the cluster before is there.
        for sql in ["SET SESSION wsrep_sync_wait=1", "BEGIN", "COMMIT", "SET SESSION wsrep_sync_wait=0"] {
            connection.query(sql).await?;
        }
    }
    let links: Vec<Link> = probe::channels(connection).await?.iter().map(|row| link(&row)).filter(|link| !is_of_group(link)).collect();
    let variables = connection.query(VARIABLES).await?;
    let nodes = match kind {
        Kind::Galera => connection.query(NODES).await?.named("wsrep_incoming_addresses").map(nodes),
        Kind::Replication | Kind::Group => None,
    };
    let executed = if is_mariadb { GtidSet::default() } else { gtids(&connection.query("SELECT @@global.gtid_executed").await?, 0)? };
    let position = |name: &str| position(variables.named(name).unwrap_or_default());
    Ok(Sight {
        is_mariadb,
        links,
        has_gtids: variables.named("gtid_mode").is_some_and(is_on),
        lacks: lacks(&variables, kind, is_mariadb),
        executed,
        replicated: position("gtid_slave_pos")?,
        logged: position("gtid_binlog_pos")?,
        own_domains: own_domains(&variables, kind),
        ignores_duplicates: variables.named("gtid_ignore_duplicates").is_some_and(is_on),
        nodes,
    })
}

/// The source, asked as the channel's user.
pub(super) async fn source(connection: &mut Connection) -> Result<Source, Fault> {
    if connection.version().is_mariadb {
        let rows = connection.query("SELECT @@global.gtid_binlog_state AS logged, @@global.gtid_domain_id AS domain").await?;
        let row = rows.first();
        let logged = position(row.and_then(|row| row.text("logged")).unwrap_or_default())?;
        let domain = row.and_then(|row| row.text("domain")?.parse().ok()).ok_or_else(|| unknown("gtid_domain_id"))?;
        Ok(Source::Mariadb { logged, domain })
    } else {
        let sql = "SELECT @@global.gtid_purged, @@global.gtid_executed, @@global.gtid_mode AS mode, @@server_uuid AS uuid";
        let rows = connection.query(sql).await?;
        let text = |column| rows.first().and_then(|row| row.text(column)).unwrap_or_default();
        let (purged, executed) = (gtids(&rows, 0)?, gtids(&rows, 1)?);
        Ok(Source::Mysql { has_gtids: is_on(text("mode")), purged, executed, uuid: text("uuid").to_owned() })
    }
}

fn unknown(what: &str) -> Fault {
    Fault::Protocol(format!("{what} is not a known value"))
}

fn position(text: &str) -> Result<Position, Fault> {
    Position::parse(text).ok_or_else(|| unknown("a position of GTIDs"))
}

fn gtids(rows: &Rows, column: usize) -> Result<GtidSet, Fault> {
    let text = rows.first().and_then(|row| row.at(column)).unwrap_or_default();
    GtidSet::parse(text).ok_or_else(|| unknown("a set of GTIDs"))
}

/// Whether it is one of a group's own.
pub(crate) fn is_of_group(link: &Link) -> bool {
    link.name.starts_with("group_replication_")
}

/// An arbitrator has no address.
fn nodes(addresses: &str) -> usize {
    addresses.split(',').filter(|address| !address.trim().is_empty()).count()
}

fn lacks(variables: &Rows, kind: Kind, is_mariadb: bool) -> Vec<&'static str> {
    let has = |name: &str| variables.named(name).is_some_and(is_on);
    let mut lacks = Vec::new();
    if !has("log_bin") {
        lacks.push("log_bin");
    }
    if !has("log_slave_updates") && !has("log_replica_updates") {
        lacks.push("log_slave_updates=ON");
    }
    if kind == Kind::Galera && is_mariadb && !has("wsrep_gtid_mode") {
        lacks.push("wsrep_gtid_mode=ON");
    }
    lacks
}

fn own_domains(variables: &Rows, kind: Kind) -> Vec<u32> {
    let names: &[&str] = if kind == Kind::Galera { &["gtid_domain_id", "wsrep_gtid_domain_id"] } else { &["gtid_domain_id"] };
    names.iter().filter_map(|name| variables.named(name)?.parse().ok()).collect()
}

/// A channel as a row of the server's status shows it.
pub(crate) fn link(row: &Row<'_>) -> Link {
    let text = |new: &str, old: &str| row.text(new).or_else(|| row.text(old)).unwrap_or_default();
    let thread = |new: &str, old: &str, kind: &str| {
        let state = match text(new, old) {
            state if state.eq_ignore_ascii_case("no") => ThreadState::Stopped,
            state if state.eq_ignore_ascii_case("yes") => ThreadState::Runs,
            _ => ThreadState::Connecting,
        };
        let code = row.number(&format!("last_{kind}_errno")).unwrap_or_default();
        let error = row.text(&format!("last_{kind}_error")).unwrap_or_default();
        Thread { state, error: (code != 0).then(|| (code, error.to_owned())) }
    };
    let is_set = |column: &str| row.text(column).is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("slave_pos"));
    let [taken, ignored] = ["replicate_do_domain_ids", "replicate_ignore_domain_ids"].map(|column| row.text(column).unwrap_or_default());
    Link {
        name: channel_name(row).to_owned(),
        source: channel_source(row),
        receiver: thread("replica_io_running", "slave_io_running", "io"),
        applier: thread("replica_sql_running", "slave_sql_running", "sql"),
        is_by_gtid: is_set("auto_position") || is_set("using_gtid"),
        chosen_domains: format!("{taken}{ignored}"),
        ignored_domains: ignored.split([',', ' ']).filter_map(|domain| domain.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_read_in_new_words_and_old_ones() {
        let new = Rows::of(
            &["Channel_Name", "Source_Host", "Source_Port", "Replica_IO_Running", "Replica_SQL_Running", "Auto_Position", "Last_IO_Errno"],
            &[&[Some("east"), Some("h"), Some("3306"), Some("Connecting"), Some("Yes"), Some("1"), Some("2003")]],
        );
        let found = link(&new.first().unwrap());
        assert_eq!((found.name.as_str(), found.is_by_gtid), ("east", true));
        assert_eq!((found.receiver.state, found.applier.state), (ThreadState::Connecting, ThreadState::Runs));
        assert_eq!(found.receiver.error.map(|(code, _)| code), Some(2003));
        let columns = &[
            "Connection_name",
            "Master_Host",
            "Master_Port",
            "Slave_IO_Running",
            "Slave_SQL_Running",
            "Using_Gtid",
            "Replicate_Ignore_Domain_Ids",
        ];
        let old = Rows::of(columns, &[&[Some(""), Some("h"), Some("1"), Some("No"), Some("No"), Some("Current_Pos"), Some("1, 7")]]);
        let found = link(&old.first().unwrap());
        assert_eq!((found.receiver.state, found.is_by_gtid, found.ignored_domains), (ThreadState::Stopped, false, vec![1, 7]));
    }

    #[test]
    fn what_galera_needs_is_named() {
        let rows = |rows: &[&[Option<&str>]]| Rows::of(&["Variable_name", "Value"], rows);
        let all =
            rows(&[&[Some("log_bin"), Some("ON")], &[Some("log_slave_updates"), Some("ON")], &[Some("wsrep_gtid_mode"), Some("OFF")]]);
        assert_eq!(lacks(&all, Kind::Galera, true), ["wsrep_gtid_mode=ON"]);
        assert!(lacks(&all, Kind::Replication, true).is_empty());
        assert_eq!(nodes("127.0.0.1:3306,,127.0.0.1:3307"), 2, "one is an arbitrator");
        let domains = rows(&[&[Some("gtid_domain_id"), Some("1")], &[Some("wsrep_gtid_domain_id"), Some("7")]]);
        assert_eq!((own_domains(&domains, Kind::Galera), own_domains(&domains, Kind::Replication)), (vec![1, 7], vec![1]));
    }
}
