//! A stand-in for an Amazon Aurora cluster. Nothing here is Aurora; figures measured with it say nothing about Amazon's.
//!
//! MariaDB servers with semi-synchronous replication replace Aurora's shared storage. Before each server is a small front ([`Front`]) at
//! the address that Aurora's naming gives it: instance `127.0.1` with the domain `.9` is host `127.0.1.9`. The front passes everything on,
//! except a query for `information_schema.replica_host_status`. It is turned to a table of the same columns, whose rows this module keeps
//! as Aurora would: the writer, the replicas' lag, and the time of each row's update. A test can make that view lie, grow old or be slow.

mod front;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::LabError;
use crate::flavor::Flavor;
use crate::port::Port;
use crate::replication::{self, Replication};
use crate::server::{Options, Server};

pub use front::Front;

/// `SESSION_ID` of the writer.
const WRITER_SESSION: &str = "MASTER_SESSION_ID";
/// The part of an instance's host name behind its id.
pub const DOMAIN: &str = ".9";

/// Made on every server by itself, not replicated. `FROZEN_AT` makes a row's time stand still.
const TABLES: &[&str] = &[
    "SET sql_log_bin=0",
    "CREATE DATABASE aurora",
    "CREATE TABLE aurora.status (SERVER_ID VARCHAR(100) PRIMARY KEY, SESSION_ID VARCHAR(100), \
     REPLICA_LAG_IN_MILLISECONDS DOUBLE, CPU DOUBLE, FROZEN_AT DATETIME(6) NULL)",
    "CREATE SQL SECURITY DEFINER VIEW aurora.replica_host_status AS SELECT SERVER_ID, SESSION_ID, \
     IFNULL(FROZEN_AT, NOW(6)) AS LAST_UPDATE_TIMESTAMP, REPLICA_LAG_IN_MILLISECONDS, CPU FROM aurora.status",
    "GRANT SELECT ON aurora.replica_host_status TO monitor@'%'",
    "GRANT SELECT ON aurora.replica_host_status TO app@'%'",
];

/// One instance: a real server behind a front.
#[derive(Debug)]
pub struct Instance {
    /// `SERVER_ID`.
    pub id: String,
    /// The server that does the work; not to be connected to but by root.
    pub server: Server,
    /// The address for clients.
    pub front: Front,
}

/// The row of an instance in the topology table.
#[derive(Clone, Debug)]
struct Said {
    lag_ms: f64,
    /// Whether the table has a row for it.
    listed: bool,
}

#[derive(Debug)]
struct State {
    writer: usize,
    said: Vec<Said>,
}

/// The stand-in cluster. Instances keep their places.
#[derive(Debug)]
pub struct AuroraStandIn {
    /// The writer first, at the beginning.
    pub instances: Vec<Instance>,
    state: Mutex<State>,
    port: Port,
}

impl AuroraStandIn {
    /// Starts a writer and `replicas` replicas.
    pub fn start(replicas: usize, options: &Options) -> Result<AuroraStandIn, LabError> {
        let servers = Replication::start_semi_sync(Flavor::Mariadb, replicas, options)?.into_servers();
        let port = Port::reserve()?;
        let said = vec![Said { lag_ms: 0.0, listed: true }; servers.len()];
        let instance = |(index, server): (usize, Server)| {
            let id = format!("127.0.{}", index + 1);
            let front = Front::start(&format!("{id}{DOMAIN}:{}", port.number()), &server.address())?;
            Ok(Instance { id, server, front })
        };
        let instances = servers.into_iter().enumerate().map(instance).collect::<Result<Vec<_>, LabError>>()?;
        let cluster = AuroraStandIn { instances, state: Mutex::new(State { writer: 0, said }), port };
        for instance in &cluster.instances {
            let mut root = instance.server.root()?;
            TABLES.iter().try_for_each(|statement| root.run(statement).map(drop))?;
        }
        cluster.publish()?;
        Ok(cluster)
    }

    /// Port of every instance: `aurora_port`.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Host of an instance: its id and the domain.
    pub fn host(&self, index: usize) -> String {
        format!("{}{DOMAIN}", self.instances[index].id)
    }

    /// `host:port` of an instance.
    pub fn address(&self, index: usize) -> String {
        format!("{}:{}", self.host(index), self.port())
    }

    /// Place of the writer.
    pub fn writer(&self) -> usize {
        self.state().writer
    }

    /// Makes another instance the writer as Aurora does: connections to both end, then the other one takes writes. Nothing
    /// that was acknowledged is lost.
    /// Returns when the new writer takes writes and the table says so.
    pub fn fail_over(&self, to: usize) -> Result<(), LabError> {
        let from = self.writer();
        let (old, new) = (&self.instances[from], &self.instances[to]);
        replication::set_read_only(&old.server, true)?;
        old.front.cut();
        new.front.cut();
        let is_other = |index: &usize| *index != from && *index != to && self.is_up(*index);
        let others: Vec<&Server> = (0..self.instances.len()).filter(is_other).map(|index| &self.instances[index].server).collect();
        replication::switch_over(&old.server, &new.server, &others)?;
        self.state().writer = to;
        self.publish()
    }

    /// Kills the writer, makes the replica that has most the writer, and gives its place. The dead one is not listed.
    pub fn crash_writer(&self) -> Result<usize, LabError> {
        let dead = self.writer();
        self.instances[dead].server.kill9();
        self.instances[dead].front.cut();
        let alive: Vec<usize> = (0..self.instances.len()).filter(|index| *index != dead && self.is_up(*index)).collect();
        let servers: Vec<&Server> = alive.iter().map(|index| &self.instances[*index].server).collect();
        let to = alive[replication::fail_over(&servers)?.place];
        let mut state = self.state();
        state.writer = to;
        state.said[dead].listed = false;
        drop(state);
        self.publish()?;
        Ok(to)
    }

    /// Starts a server again that was killed; it follows the writer and is listed as a replica.
    pub fn bring_back(&self, index: usize) -> Result<(), LabError> {
        let server = &self.instances[index].server;
        server.restart_with(&["--read-only=1"])?;
        replication::rejoin(server, &self.instances[self.writer()].server)?;
        self.set_listed(index, true)
    }

    /// Sets the lag of an instance in the table. Data do not lag.
    pub fn say_lag_ms(&self, index: usize, lag_ms: f64) -> Result<(), LabError> {
        self.state().said[index].lag_ms = lag_ms;
        self.publish()
    }

    /// Auto scaling takes an instance away (its address refuses connects, and the table has no row for it) or brings it.
    pub fn scale(&self, index: usize, there: bool) -> Result<(), LabError> {
        self.instances[index].front.refuse(!there);
        self.set_listed(index, there)
    }

    /// Whether the table has a row for an instance.
    pub fn set_listed(&self, index: usize, listed: bool) -> Result<(), LabError> {
        self.state().said[index].listed = listed;
        self.publish()
    }

    /// One instance's table stands still, its rows as old as this, and later changes do not reach it; or it goes on.
    pub fn freeze_table(&self, index: usize, age: Option<Duration>) -> Result<(), LabError> {
        let value = age.map_or("NULL".to_owned(), |age| format!("NOW(6) - INTERVAL {} SECOND", age.as_secs()));
        let mut root = self.instances[index].server.root()?;
        root.run("SET sql_log_bin=0")?;
        root.run(format!("UPDATE aurora.status SET FROZEN_AT={value}"))?;
        self.publish()
    }

    /// Every answer about the topology takes this much longer.
    pub fn slow_topology(&self, delay: Duration) {
        self.instances.iter().for_each(|instance| instance.front.slow_topology(delay));
    }

    fn is_up(&self, index: usize) -> bool {
        self.instances[index].server.exit_status().is_none()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the table of every server that runs, all at the same time.
    fn publish(&self) -> Result<(), LabError> {
        let rows = self.rows();
        let up = self.instances.iter().enumerate().filter(|(index, _)| self.is_up(*index)).map(|(_, instance)| &instance.server);
        let rows = rows.as_str();
        thread::scope(|scope| {
            let writes: Vec<_> = up.map(|server| scope.spawn(move || write_table(server, rows))).collect();
            writes.into_iter().try_for_each(|write| write.join().unwrap_or(Ok(())))
        })
    }

    fn rows(&self) -> String {
        let state = self.state();
        let listed = self.instances.iter().zip(&state.said).enumerate().filter(|(_, (_, said))| said.listed);
        let row = |(index, (instance, said)): (usize, (&Instance, &Said))| {
            let session = if index == state.writer { WRITER_SESSION.to_owned() } else { format!("session-{index}") };
            format!("('{}','{session}',{},10.0)", instance.id, said.lag_ms)
        };
        listed.map(row).collect::<Vec<_>>().join(",")
    }
}

/// Replaces the rows of a table that does not stand still.
fn write_table(server: &Server, rows: &str) -> Result<(), LabError> {
    let mut root = server.root()?;
    if root.scalar("SELECT COUNT(*) FROM aurora.status WHERE FROZEN_AT IS NOT NULL")?.as_deref() != Some("0") {
        return Ok(());
    }
    for statement in ["SET sql_log_bin=0", "BEGIN", "DELETE FROM aurora.status"] {
        root.run(statement)?;
    }
    root.run(format!("INSERT INTO aurora.status (SERVER_ID, SESSION_ID, REPLICA_LAG_IN_MILLISECONDS, CPU) VALUES {rows}"))?;
    root.run("COMMIT").map(drop)
}
