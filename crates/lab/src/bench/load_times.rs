//! How long an operator waits: large configurations written and loaded through the real admin port.
//!
//! Wall-clock times of a proxy without traffic: the clients of this machine's other work wait as much. Nothing is asserted but
//! that every row arrived.

use std::time::{Duration, Instant};

use super::arrangement::other_pattern;
use super::peer::Peer;
use crate::client::{Client, ConnectOptions};
use crate::error::LabError;
use crate::server::Server;
use crate::wait;

/// Rows written by one INSERT.
const BATCH: u32 = 1_000;
const START_LIMIT: Duration = Duration::from_secs(20);
/// For one statement: far more than anything that still works needs.
const LIMIT: Duration = Duration::from_secs(300);

/// How much is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Query rules.
    pub rules: u32,
    /// Servers.
    pub servers: u32,
}

/// One table's times.
#[derive(Clone, Debug)]
pub struct LoadTimes {
    /// The rows in words.
    pub what: &'static str,
    /// How many.
    pub rows: u32,
    /// Each step's name and time in seconds, in order.
    pub steps: Vec<(&'static str, f64)>,
}

/// One table to fill and load.
struct Subject {
    what: &'static str,
    table: &'static str,
    columns: &'static str,
    /// The values of a row, in their parentheses.
    row: fn(u32) -> String,
    /// The module's name in LOAD and SAVE.
    module: &'static str,
}

const SUBJECTS: [Subject; 3] = [
    Subject {
        what: "rules, match_digest",
        table: "mysql_query_rules",
        columns: "rule_id, active, match_digest, destination_hostgroup, apply",
        row: |id| format!("({id}, 1, '{}', {}, 1)", other_pattern(id), id % 7),
        module: "MYSQL QUERY RULES",
    },
    Subject {
        what: "rules, digest",
        table: "mysql_query_rules",
        columns: "rule_id, active, digest, destination_hostgroup, apply",
        row: |id| format!("({id}, 1, '0x{:016X}', {}, 1)", u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15), id % 7),
        module: "MYSQL QUERY RULES",
    },
    Subject {
        what: "servers",
        table: "mysql_servers",
        columns: "hostgroup_id, hostname, port, status",
        // Put out of use, so that nothing looks for the names.
        row: |id| format!("({}, 'server-{id}.invalid', 3306, 'OFFLINE_HARD')", 1_000 + id % 100),
        module: "MYSQL SERVERS",
    },
];

/// Fills and loads each table on a proxy of its own.
pub fn measure(sizes: Sizes, server: &Server) -> Result<Vec<LoadTimes>, LabError> {
    SUBJECTS
        .iter()
        .map(|subject| subject.measure(if subject.table == "mysql_servers" { sizes.servers } else { sizes.rules }, server))
        .collect()
}

impl Subject {
    fn measure(&self, rows: u32, server: &Server) -> Result<LoadTimes, LabError> {
        let peer = Peer::tidegate(server, |builder| builder.variable("monitor_enabled", false))?;
        let tidegate = peer.as_tidegate().ok_or_else(|| LabError::Protocol("only Tidegate has an admin port".to_owned()))?;
        let address = format!("127.0.0.1:{}", tidegate.admin_port());
        let options = ConnectOptions::tcp(address, "admin", "admin").timeout(LIMIT);
        // The admin port is opened after the one for applications.
        let mut admin = wait::until("the admin port", START_LIMIT, || Client::connect(&options).ok())?;
        let (table, module) = (self.table, self.module);
        admin.run(format!("DELETE FROM {table}"))?;
        let steps = vec![
            ("INSERT", timed(|| self.insert(rows, &mut admin))?),
            ("LOAD TO RUNTIME", timed(|| admin.run(format!("LOAD {module} TO RUNTIME")).map(drop))?),
            ("LOAD again, one row changed", timed(|| again(&mut admin, table, module))?),
            ("SAVE TO DISK", timed(|| admin.run(format!("SAVE {module} TO DISK")).map(drop))?),
            ("SELECT COUNT(*) of runtime", timed(|| arrived(&mut admin, table, rows))?),
        ];
        Ok(LoadTimes { what: self.what, rows, steps })
    }

    fn insert(&self, rows: u32, admin: &mut Client) -> Result<(), LabError> {
        for first in (1..=rows).step_by(BATCH as usize) {
            let values: Vec<String> = (first..=rows.min(first + BATCH - 1)).map(self.row).collect();
            admin.run(format!("INSERT INTO {} ({}) VALUES {}", self.table, self.columns, values.join(",")))?;
        }
        Ok(())
    }
}

fn again(admin: &mut Client, table: &str, module: &str) -> Result<(), LabError> {
    admin.run(format!("UPDATE {table} SET comment='changed' WHERE rowid=(SELECT MIN(rowid) FROM {table})"))?;
    admin.run(format!("LOAD {module} TO RUNTIME")).map(drop)
}

fn arrived(admin: &mut Client, table: &str, rows: u32) -> Result<(), LabError> {
    let count = admin.scalar(format!("SELECT COUNT(*) FROM runtime_{table}"))?;
    if count.as_deref() == Some(&rows.to_string()) {
        return Ok(());
    }
    Err(LabError::Protocol(format!("{count:?} rows of {rows} arrived in runtime_{table}")))
}

/// Seconds that `work` takes.
fn timed(work: impl FnOnce() -> Result<(), LabError>) -> Result<f64, LabError> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64())
}
