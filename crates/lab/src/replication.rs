//! A primary with replicas, following by GTID, ready to be read and written.

use std::time::Duration;

use crate::error::LabError;
use crate::flavor::Flavor;
use crate::server::{Options, Server};
use crate::wait;

/// Time for a replica to connect and catch up with a few statements.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(30);

const MARIADB_ARGS: &[&str] =
    &["--log-bin=bin", "--log-slave-updates=1", "--binlog-format=ROW", "--gtid-strict-mode=1", "--relay-log=relay"];

const MYSQL_ARGS: &[&str] = &["--log-bin=bin", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--relay-log=relay"];

/// Asynchronous replication: one primary, some replicas with `read_only`.
#[derive(Debug)]
pub struct Replication {
    /// Takes writes.
    pub primary: Server,
    /// Follow it; `read_only=1`, on MySQL `super_read_only=1`.
    pub replicas: Vec<Server>,
}

impl Replication {
    /// Starts all servers at the same time and waits until every replica follows.
    pub fn start(flavor: Flavor, replicas: usize, options: &Options) -> Result<Replication, LabError> {
        let args = match flavor {
            Flavor::Mariadb => MARIADB_ARGS,
            Flavor::Mysql => MYSQL_ARGS,
        };
        let options = options.clone().args(args.iter().copied());
        let primary = Server::launch(flavor, &options)?;
        let replicas: Vec<Server> = (0..replicas).map(|_| Server::launch(flavor, &options)).collect::<Result<_, _>>()?;
        for server in std::iter::once(&primary).chain(&replicas) {
            server.wait_ready()?;
        }
        let topology = Replication { primary, replicas };
        for replica in &topology.replicas {
            follow(replica, &topology.primary)?;
            set_read_only(replica, true)?;
        }
        topology.wait_caught_up()?;
        Ok(topology)
    }

    /// Waits until every replica has all that the primary has now.
    pub fn wait_caught_up(&self) -> Result<(), LabError> {
        let position = position(&self.primary)?;
        self.replicas.iter().try_for_each(|replica| wait_for(replica, &position))
    }
}

/// Makes `replica` follow `primary` by GTID.
pub fn follow(replica: &Server, primary: &Server) -> Result<(), LabError> {
    let (host, port) = (primary.host(), primary.port());
    let statements = match replica.flavor() {
        Flavor::Mariadb => [
            "STOP SLAVE".to_owned(),
            format!(
                "CHANGE MASTER TO MASTER_HOST='{host}', MASTER_PORT={port}, MASTER_USER='repl', \
                 MASTER_PASSWORD='repl-pass', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos"
            ),
            "START SLAVE".to_owned(),
        ],
        Flavor::Mysql => [
            "STOP REPLICA".to_owned(),
            format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST='{host}', SOURCE_PORT={port}, SOURCE_USER='repl', \
                 SOURCE_PASSWORD='repl-pass', SOURCE_AUTO_POSITION=1, SOURCE_CONNECT_RETRY=1, \
                 SOURCE_RETRY_COUNT=86400, GET_SOURCE_PUBLIC_KEY=1"
            ),
            "START REPLICA".to_owned(),
        ],
    };
    statements.iter().try_for_each(|statement| replica.sql(statement).map(drop))
}

/// Makes a server refuse or take writes (on MySQL also those of privileged users).
pub fn set_read_only(server: &Server, on: bool) -> Result<(), LabError> {
    let value = u8::from(on);
    match (server.flavor(), on) {
        (Flavor::Mysql, true) => server.sql("SET GLOBAL super_read_only=1"),
        _ => server.sql(&format!("SET GLOBAL read_only={value}")),
    }
    .map(drop)
}

/// Stops following, for good, and takes writes.
pub fn promote(server: &Server) -> Result<(), LabError> {
    let statements: &[&str] = match server.flavor() {
        Flavor::Mariadb => &["STOP SLAVE", "RESET SLAVE ALL"],
        Flavor::Mysql => &["STOP REPLICA", "RESET REPLICA ALL"],
    };
    statements.iter().try_for_each(|statement| server.sql(statement).map(drop))?;
    set_read_only(server, false)
}

/// The GTID position of a server: all that it has.
pub fn position(server: &Server) -> Result<String, LabError> {
    let query = match server.flavor() {
        Flavor::Mariadb => "SELECT @@gtid_current_pos",
        Flavor::Mysql => "SELECT @@gtid_executed",
    };
    Ok(server.scalar(query)?.unwrap_or_default())
}

/// Waits until `server` has everything up to `position`.
pub fn wait_for(server: &Server, position: &str) -> Result<(), LabError> {
    let query = match server.flavor() {
        Flavor::Mariadb => format!("SELECT MASTER_GTID_WAIT('{position}', 1)"),
        Flavor::Mysql => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{position}', 1)"),
    };
    let what = format!("port {} to reach {position}", server.port());
    wait::try_until(&what, CATCH_UP_LIMIT, || Ok((server.scalar(&query)?.as_deref() == Some("0")).then_some(())))
}
