//! `tidegate errant dump`: the transactions that a server has and the writer lacks, as a binary log file. Changes nothing on any server.
//!
//! The file begins as every binary log does: four bytes, then the event that describes the format. Each transaction follows as the server
//! wrote it. Events about other logs, and of other transactions, are left out.

use std::io::Write;
use std::time::Duration;

use model::ServerAddr;
use topology::ServerId;

use super::{Longest, Wanted, events, is_wanted, stream};
use crate::client::{Connection, Connector, Fault, is_on, open};
use crate::healing::executed;
use crate::survey::{Account, access, runtime};

/// A binary log begins with this.
const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// Longest for logging in and all questions to one server.
const ASKED: Duration = Duration::from_secs(10);
/// STOP, ROTATE, FORMAT_DESCRIPTION, HEARTBEAT, PREVIOUS_GTIDS, HEARTBEAT_V2, and MariaDB's BINLOG_CHECKPOINT, GTID_LIST, START_ENCRYPTION:
/// about logs, not about transactions.
const ABOUT_LOGS: [u8; 9] = [3, 4, 15, 27, 35, 41, 161, 163, 164];
const FORMAT: u8 = 15;

/// What is dumped.
#[derive(Debug, Clone)]
pub struct ErrantDump {
    /// The server that has more than the writer.
    pub server: ServerAddr,
    /// The writer.
    pub writer: ServerAddr,
    /// Logs in on both. On the server it needs REPLICATION SLAVE.
    pub account: Account,
    /// Most bytes of the file.
    pub limit: u64,
}

/// What was dumped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dumped {
    /// How many transactions.
    pub transactions: u64,
    /// Length of the file.
    pub bytes: u64,
    /// The first GTID and the last one.
    pub gtids: Option<(String, String)>,
    /// MariaDB, not MySQL.
    pub is_mariadb: bool,
}

/// Writes them to `file`. Blocks for as long as that takes.
///
/// # Errors
/// Why not, as text for a person. What was written by then is of no use.
pub fn dump_errant(dump: &ErrantDump, file: &mut impl Write) -> Result<Dumped, String> {
    runtime()?.block_on(async {
        let connector = Connector::new();
        let (wanted, is_mariadb) = compare(&connector, dump).await?;
        let mut log = Log { file, wanted: &wanted, limit: dump.limit, takes: false, fault: None, told: Dumped::default() };
        let read = stream(&connector, &wanted, Longest::Any, |event| log.take(event)).await;
        let Log { fault, told, .. } = log;
        if let Some(why) = fault {
            return Err(why);
        }
        read.map_err(|fault| format!("{}: {}", dump.server, fault.with_hint("REPLICATION SLAVE")))?;
        if told.transactions == 0 {
            return Err(format!("the transactions are in no binary log of {} any more", dump.server));
        }
        Ok(Dumped { is_mariadb, ..told })
    })
}

/// What is read of the server. It is asked first, so that what the writer has by then counts.
async fn compare(connector: &Connector, dump: &ErrantDump) -> Result<(Wanted, bool), String> {
    let (has, id, is_mariadb) = within(&dump.server, async {
        let mut server = open(connector, &access(&dump.server, &dump.account)).await?;
        let is_mariadb = server.version().is_mariadb;
        if !is_closed(&mut server).await? {
            let close = if is_mariadb { "SET GLOBAL read_only=1" } else { "SET GLOBAL super_read_only=1" };
            return Err(Fault::Unfit(format!("it takes writes, so more could come after the dump: {close}, and end its clients")));
        }
        Ok((executed(&mut server).await?, identity(&mut server).await?, is_mariadb))
    })
    .await?;
    let new = within(&dump.writer, async {
        let mut writer = open(connector, &access(&dump.writer, &dump.account)).await?;
        if identity(&mut writer).await?.is_same(&id) {
            return Err(Fault::Unfit(format!("it is the same server as {}", dump.server)));
        }
        if writer.version().is_mariadb != is_mariadb {
            return Err(Fault::Unfit("it is of another kind than the other server".to_owned()));
        }
        executed(&mut writer).await
    })
    .await?;
    let extra = has.beyond(&new, &id);
    if extra.is_empty() {
        return Err(format!("{} has no transaction that {} lacks", dump.server, dump.writer));
    }
    let but = has.but_for(&extra, &new);
    let access = access(&dump.server, &dump.account);
    Ok((Wanted { server: access.server, user: access.user, password: access.password, id, but }, is_mariadb))
}

async fn within<T>(addr: &ServerAddr, work: impl Future<Output = Result<T, Fault>>) -> Result<T, String> {
    match tokio::time::timeout(ASKED, work).await {
        Ok(done) => done.map_err(|fault| format!("{addr}: {fault}")),
        Err(_) => Err(format!("{addr}: no answer within {} s", ASKED.as_secs())),
    }
}

/// On MySQL, clients with privileges write until `super_read_only` is set.
async fn is_closed(server: &mut Connection) -> Result<bool, Fault> {
    let rows = server.query("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only')").await?;
    let value = rows.named("super_read_only").filter(|_| !server.version().is_mariadb).or_else(|| rows.named("read_only"));
    // MariaDB has more words than ON for it from 12 on.
    Ok(value.is_some_and(|value| is_on(value) || !matches!(value, "OFF" | "0")))
}

async fn identity(server: &mut Connection) -> Result<ServerId, Fault> {
    let rows = server.query("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_id', 'server_uuid')").await?;
    Ok(ServerId::new(rows.named("server_id").and_then(|id| id.parse().ok()), rows.named("server_uuid")))
}

/// The file that is written.
struct Log<'a, W: Write> {
    file: &'a mut W,
    wanted: &'a Wanted,
    limit: u64,
    /// The events at hand are of a transaction that is wanted.
    takes: bool,
    /// Why no more is written.
    fault: Option<String>,
    told: Dumped,
}

impl<W: Write> Log<'_, W> {
    /// False if no more is wanted.
    fn take(&mut self, event: &[u8]) -> bool {
        let Some(kind) = event.get(4).copied() else { return true };
        if kind == FORMAT {
            // Later logs of one server have the same format.
            return self.told.bytes > 0 || (self.put(&MAGIC) && self.put(event));
        }
        if let Some(gtid) = events::gtid(event) {
            self.takes = is_wanted(self.wanted, &gtid);
            if self.takes {
                self.told.transactions += 1;
                let first = self.told.gtids.take().map_or_else(|| gtid.clone(), |(first, _)| first);
                self.told.gtids = Some((first, gtid));
            }
        }
        !self.takes || ABOUT_LOGS.contains(&kind) || self.put(event)
    }

    fn put(&mut self, bytes: &[u8]) -> bool {
        self.told.bytes = self.told.bytes.saturating_add(bytes.len() as u64);
        if self.told.bytes > self.limit {
            self.fault = Some(format!("the transactions take more than {} bytes: allow more with --limit-mib", self.limit));
        } else if let Err(e) = self.file.write_all(bytes) {
            self.fault = Some(format!("the file: {e}"));
        }
        self.fault.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server;
    use topology::GtidSet;

    fn event(kind: u8, server: u32, body: &[u8]) -> Vec<u8> {
        [&[0; 4][..], &[kind], &server.to_le_bytes(), &[0; 10], body].concat()
    }

    fn gtid(server: u32, number: u64) -> Vec<u8> {
        event(162, server, &[&number.to_le_bytes()[..], &0_u32.to_le_bytes(), &[0; 6]].concat())
    }

    #[test]
    fn only_transactions_that_the_writer_lacks_are_written() {
        let wanted = Wanted {
            server: server("a", 1),
            user: "".into(),
            password: model::Secret::from(""),
            id: ServerId::new(Some(1), None),
            but: GtidSet::parse("0-1-5").unwrap(),
        };
        let log = [
            event(4, 1, b"rotate"),
            event(FORMAT, 1, b"format"),
            event(163, 1, b"list"),
            gtid(1, 5),
            event(2, 1, b"old"),
            gtid(1, 6),
            event(2, 1, b"new"),
            event(16, 1, b"xid"),
            event(3, 1, b"stop"),
            event(FORMAT, 1, b"format"),
            gtid(1, 7),
            event(2, 1, b"newer"),
        ];
        let dumped = |limit: u64| {
            let mut file = Vec::new();
            let mut dump = Log { file: &mut file, wanted: &wanted, limit, takes: false, fault: None, told: Dumped::default() };
            let is_all = log.iter().all(|event| dump.take(event));
            let Log { fault, told, .. } = dump;
            (is_all, fault, told, file)
        };
        let (is_all, fault, told, file) = dumped(1 << 20);
        assert!(is_all && fault.is_none());
        assert_eq!(file, [&MAGIC[..], &log[1], &log[5], &log[6], &log[7], &log[10], &log[11]].concat());
        let gtids = Some(("0-1-6".to_owned(), "0-1-7".to_owned()));
        assert_eq!(told, Dumped { transactions: 2, bytes: file.len() as u64, gtids, is_mariadb: false });
        let (is_all, fault, ..) = dumped(60);
        assert!(!is_all && fault.unwrap().contains("more than 60 bytes"));
    }
}
