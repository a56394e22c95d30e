//! Semi-synchronous replication changes sides with the roles: the source side is on at the writer, the replica side at its replicas.
//!
//! Nothing is done unless the source side is on at the old writer and off at the new one. If it is on at both, it is on everywhere.

use super::super::control::Control;
use crate::client::{Rows, is_on};
use wire::codes;

/// New words of MySQL 8.0.26 and later, and old ones, which MariaDB has too. A server has one pair of them, or none.
const SHOW: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_source_enabled', 'rpl_semi_sync_master_enabled', \
                    'rpl_semi_sync_replica_enabled', 'rpl_semi_sync_slave_enabled')";

const CONNECTED: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_source_clients', 'Rpl_semi_sync_master_clients')";
const WANTED: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_source_wait_for_replica_count', \
                      'rpl_semi_sync_master_wait_for_slave_count')";

/// A server's two sides, by the names of their settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::operator) struct SemiSync {
    source: &'static str,
    replica: &'static str,
    is_source: bool,
    is_replica: bool,
}

impl SemiSync {
    /// As a server shows it; None for one that has no semi-synchronous replication.
    pub(in crate::operator) async fn of(server: &mut Control) -> Result<Option<Self>, String> {
        Ok(read(&server.ask(SHOW).await?))
    }

    /// Whether it waits for acknowledgements.
    pub(in crate::operator) fn is_source(self) -> bool {
        self.is_source
    }

    /// Whether the new writer's source side is to be switched on.
    pub(super) fn moves(old: Option<Self>, new: Option<Self>) -> bool {
        old.is_some_and(|old| old.is_source) && new.is_some_and(|new| !new.is_source)
    }

    /// Whether a server that becomes a replica of `writer` must stop to wait for acknowledgements: not where both sides are on everywhere.
    pub(in crate::operator) fn must_follow(self, writer: Option<Self>) -> bool {
        self.is_source && !writer.is_some_and(|writer| writer.is_source && writer.is_replica)
    }

    /// An error where the monitor's user may not switch the source side. It asks for what cannot be.
    pub(in crate::operator) async fn may_set(self, server: &mut Control, user: &str) -> Result<(), String> {
        let sql = format!("SET GLOBAL {}='whether this user may'", self.source);
        match server.try_ask(&sql).await {
            Err(fault) if fault.code() == Some(codes::SPECIFIC_ACCESS_DENIED) => {
                let needed = if server.version().is_mariadb { "REPLICATION MASTER ADMIN" } else { "SYSTEM_VARIABLES_ADMIN" };
                Err(format!("{}: {fault}; GRANT {needed} ON *.* TO the monitor's user ({user})", server.addr))
            }
            _ => Ok(()),
        }
    }

    /// Switches the source side.
    pub(in crate::operator) async fn set_source(self, server: &mut Control, is_on: bool) -> Result<(), String> {
        server.tell_setting(&format!("SET GLOBAL {}={}", self.source, u8::from(is_on))).await
    }

    /// Makes it a follower, as it was a source; before its receiver starts. The applier would wait for acknowledgements otherwise.
    pub(super) async fn set_follower(self, server: &mut Control) -> Result<(), String> {
        server.tell_setting(&format!("SET GLOBAL {}=0", self.source)).await?;
        if self.is_replica { Ok(()) } else { server.tell_setting(&format!("SET GLOBAL {}=1", self.replica)).await }
    }
}

/// Acknowledgements of a server's commits. It counts replicas also while its source side is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::operator) struct Acks {
    /// Replicas that are connected to give them.
    connected: u64,
    /// So many a commit waits for, at least one.
    wanted: u64,
}

impl Acks {
    pub(in crate::operator) async fn of(server: &mut Control) -> Result<Self, String> {
        let status = server.ask(CONNECTED).await?;
        Ok(read_acks(&status, &server.ask(WANTED).await?))
    }

    /// Whether commits would not wait for replicas that are not there.
    pub(in crate::operator) fn are_enough(self) -> bool {
        self.connected >= self.wanted
    }
}

impl std::fmt::Display for Acks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} replicas are connected to acknowledge, and a commit waits for {}", self.connected, self.wanted)
    }
}

fn read_acks(status: &Rows, variables: &Rows) -> Acks {
    let number = |rows: &Rows, new, old| rows.named(new).or_else(|| rows.named(old)).and_then(|value| value.parse().ok());
    let connected = number(status, "rpl_semi_sync_source_clients", "rpl_semi_sync_master_clients").unwrap_or(0);
    // MariaDB has no such setting: one.
    let wanted = number(variables, "rpl_semi_sync_source_wait_for_replica_count", "rpl_semi_sync_master_wait_for_slave_count");
    Acks { connected, wanted: wanted.unwrap_or(1).max(1) }
}

fn read(rows: &Rows) -> Option<SemiSync> {
    let pairs = [
        ("rpl_semi_sync_source_enabled", "rpl_semi_sync_replica_enabled"),
        ("rpl_semi_sync_master_enabled", "rpl_semi_sync_slave_enabled"),
    ];
    pairs.into_iter().find_map(|(source, replica)| {
        let (is_source, is_replica) = (rows.named(source)?, rows.named(replica)?);
        Some(SemiSync { source, replica, is_source: is_on(is_source), is_replica: is_on(is_replica) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: [&str; 2], values: [&str; 2]) -> Option<SemiSync> {
        let rows = [0, 1].map(|i| [Some(words[i]), Some(values[i])]);
        read(&Rows::of(&["Variable_name", "Value"], &[&rows[0], &rows[1]]))
    }

    #[test]
    fn commits_wait_only_where_enough_replicas_acknowledge() {
        let rows = |name: &str, value: &str| Rows::of(&["Variable_name", "Value"], &[&[Some(name), Some(value)]]);
        let mysql = |connected, wanted| {
            let status = rows("Rpl_semi_sync_source_clients", connected);
            read_acks(&status, &rows("rpl_semi_sync_source_wait_for_replica_count", wanted)).are_enough()
        };
        assert!(mysql("2", "2") && mysql("1", "1"));
        assert!(!mysql("1", "2") && !mysql("0", "1"));
        let none = Rows::of(&["Variable_name", "Value"], &[]);
        let mariadb = |connected| read_acks(&rows("Rpl_semi_sync_master_clients", connected), &none).are_enough();
        assert!(mariadb("1") && !mariadb("0"), "MariaDB waits for one");
        assert!(!read_acks(&none, &none).are_enough());
    }

    #[test]
    fn it_moves_where_only_the_old_writer_is_a_source() {
        let old = ["rpl_semi_sync_master_enabled", "rpl_semi_sync_slave_enabled"];
        let new = ["rpl_semi_sync_source_enabled", "rpl_semi_sync_replica_enabled"];
        let [source, replica, both] = [["ON", "OFF"], ["OFF", "ON"], ["ON", "ON"]].map(|values| [shown(old, values), shown(new, values)]);
        for flavor in [0, 1] {
            assert!(SemiSync::moves(source[flavor], replica[flavor]));
            assert!(SemiSync::moves(both[flavor], replica[flavor]));
            assert!(!SemiSync::moves(both[flavor], both[flavor]), "on everywhere");
            assert!(!SemiSync::moves(replica[flavor], replica[flavor]), "asynchronous");
            assert!(!SemiSync::moves(source[flavor], None), "the new one has no plugin");
        }
        assert_eq!(read(&Rows::of(&["Variable_name", "Value"], &[])), None);
        assert_eq!(source[1].map(|found| (found.source, found.is_source, found.is_replica)), Some((new[0], true, false)));
    }
}
