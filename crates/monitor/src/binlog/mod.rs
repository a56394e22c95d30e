//! Reads transactions of a server's binary logs as a replica would, up to their end.
//!
//! Owns a connection of its own. It only reads: the server keeps no trace of it when it ends.

mod dump;
mod events;
mod rows;

use std::sync::Arc;

use model::Secret;
use model::snapshot::Server;
use topology::{GtidSet, ServerId};
use wire::command::Command;

use crate::client::{Access, Connector, Fault, Longest, open};

pub use dump::{Dumped, ErrantDump, dump_errant};
use events::Events;
pub(crate) use events::Transaction;

/// Most transactions that are kept of one server.
pub(crate) const TRANSACTIONS_MAX: usize = 1_000;
/// The server ends the reply at the end of its last log instead of waiting for more.
const NON_BLOCK: u16 = 1;
/// MariaDB sends the statements of rows too, where they are logged.
const ANNOTATED: u16 = 2;
/// Logs begin with four bytes that are no event.
const START: u32 = 4;

/// What is read.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) server: Arc<Server>,
    /// An account with REPLICATION SLAVE.
    pub(crate) user: Arc<str>,
    pub(crate) password: Secret,
    /// What the server calls itself.
    pub(crate) id: ServerId,
    /// What it has, but for the transactions that are wanted.
    pub(crate) but: GtidSet,
}

/// The transactions in their order, at most [`TRANSACTIONS_MAX`].
pub(crate) async fn read(connector: &Connector, wanted: &Wanted) -> Result<Vec<Transaction>, String> {
    let mut found = Vec::new();
    let mut events = Events::default();
    let mut keep = |done: Option<Transaction>| {
        found.extend(done.filter(|done| is_wanted(wanted, &done.gtid)));
        found.len() < TRANSACTIONS_MAX
    };
    stream(connector, wanted, Longest::InOnePacket, |event| keep(events.take(event)))
        .await
        .map_err(|fault| fault.with_hint("REPLICATION SLAVE").to_string())?;
    keep(events.finish());
    found.truncate(TRANSACTIONS_MAX);
    Ok(found)
}

/// MariaDB sends everything from a position on. MySQL sends only the transactions that are asked for, also those whose GTID is not read.
fn is_wanted(wanted: &Wanted, gtid: &str) -> bool {
    gtid == events::NOT_READ || GtidSet::parse(gtid).is_some_and(|one| !one.beyond(&wanted.but, &wanted.id).is_empty())
}

/// Hands each event over, until that returns false or the log ends.
async fn stream(connector: &Connector, wanted: &Wanted, longest: Longest, mut take: impl FnMut(&[u8]) -> bool) -> Result<(), Fault> {
    let access = Access {
        server: Arc::clone(&wanted.server),
        user: Arc::clone(&wanted.user),
        password: wanted.password.clone(),
        wait_timeout_s: None,
    };
    let mut connection = open(connector, &access).await?;
    let is_mariadb = connection.version().is_mariadb;
    // Checksums are understood: without this the server refuses to send them. A file keeps those that the log has.
    let sum = if longest == Longest::Any { "@@global.binlog_checksum" } else { "'NONE'" };
    connection.query(&format!("SET @master_binlog_checksum={sum}, @source_binlog_checksum={sum}")).await?;
    let request = if is_mariadb {
        // 4: GTIDs are understood. Strict mode would refuse a position that another server of the domain has passed.
        let position = wanted.but.position();
        connection.query("SET @mariadb_slave_capability=4, @slave_gtid_strict_mode=0, @slave_gtid_ignore_duplicates=0").await?;
        connection.query(&format!("SET @slave_connect_state='{position}'")).await?;
        dump()
    } else {
        dump_by_gtid(&wanted.but).ok_or_else(|| Fault::Unfit("its GTIDs have tags, which the proxy does not read".to_owned()))?
    };
    connection.begin_events(&request, longest).await?;
    while let Some(event) = connection.event().await? {
        if !take(&event) {
            break;
        }
    }
    Ok(())
}

/// COM_BINLOG_DUMP: position, flags, no server id, no file.
fn dump() -> Vec<u8> {
    let mut request = vec![Command::BinlogDump as u8];
    request.extend(START.to_le_bytes());
    request.extend((NON_BLOCK | ANNOTATED).to_le_bytes());
    request.extend(0_u32.to_le_bytes());
    request
}

/// COM_BINLOG_DUMP_GTID: flags, no server id, no file, position, and the set that is not wanted.
fn dump_by_gtid(but: &GtidSet) -> Option<Vec<u8>> {
    let set = but.encoded()?;
    let mut request = vec![Command::BinlogDumpGtid as u8];
    request.extend(NON_BLOCK.to_le_bytes());
    request.extend(0_u32.to_le_bytes());
    request.extend(0_u32.to_le_bytes());
    request.extend(u64::from(START).to_le_bytes());
    request.extend(u32::try_from(set.len()).ok()?.to_le_bytes());
    request.extend(set);
    Some(request)
}
