//! A primary with replicas, following by GTID, ready to be read and written.

use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::flavor::Flavor;
use crate::server::{Options, Server};
use crate::wait;

/// Time for a replica to connect and catch up with a few statements.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(30);

const MARIADB_ARGS: &[&str] =
    &["--log-bin=bin", "--log-slave-updates=1", "--binlog-format=ROW", "--gtid-strict-mode=1", "--relay-log=relay"];

const MYSQL_SEMI_SYNC_ARGS: &[&str] =
    &["--plugin-load-add=semisync_source.so", "--plugin-load-add=semisync_replica.so", "--rpl-semi-sync-source-timeout=10000"];

const MARIADB_SEMI_SYNC_ARGS: &[&str] =
    &["--rpl-semi-sync-master-timeout=10000", "--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--slave-net-timeout=4"];

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
        Self::start_each(flavor, options, &vec![options.clone(); replicas])
    }

    /// The same, with options of their own for the replicas: a replica of a newer version, for example.
    pub fn start_each(flavor: Flavor, options: &Options, of_replicas: &[Options]) -> Result<Replication, LabError> {
        let args = match flavor {
            Flavor::Mariadb => MARIADB_ARGS,
            Flavor::Mysql => MYSQL_ARGS,
        };
        let launch = |options: &Options| Server::launch(flavor, &options.clone().args(args.iter().copied()));
        let primary = launch(options)?;
        let replicas: Vec<Server> = of_replicas.iter().map(launch).collect::<Result<_, _>>()?;
        for server in std::iter::once(&primary).chain(&replicas) {
            server.wait_ready()?;
        }
        let topology = Replication { primary, replicas };
        for replica in &topology.replicas {
            follow(replica, &topology.primary)?;
            if of_replicas.iter().any(|other| other.is_of_another_version(options)) {
                trust(replica)?;
            }
            set_read_only(replica, true)?;
        }
        topology.wait_caught_up()?;
        Ok(topology)
    }

    /// As [`Replication::start`], semi-synchronous and durable: acknowledged commits are on a replica too.
    pub fn start_semi_sync(flavor: Flavor, replicas: usize, options: &Options) -> Result<Replication, LabError> {
        let more = match flavor {
            Flavor::Mariadb => MARIADB_SEMI_SYNC_ARGS,
            Flavor::Mysql => MYSQL_SEMI_SYNC_ARGS,
        };
        let options = options.clone().durable().args(more.iter().copied());
        let topology = Replication::start(flavor, replicas, &options)?;
        for replica in &topology.replicas {
            semi_sync(replica, Role::Replica)?;
            follow(replica, &topology.primary)?;
        }
        // Only now: before a replica is there the first commit would wait for the timeout.
        topology.wait_caught_up()?;
        semi_sync(&topology.primary, Role::Primary)?;
        Ok(topology)
    }

    /// Lets the monitor's user do all that a SWITCHOVER does.
    pub fn allow_switchover(&self) -> Result<(), LabError> {
        self.primary.sql(switchover_rights(self.primary.flavor()))?;
        self.wait_caught_up()
    }

    /// The servers as equals, the primary first: for tests in which roles change.
    pub fn into_servers(self) -> Vec<Server> {
        std::iter::once(self.primary).chain(self.replicas).collect()
    }

    /// Waits until every replica has all that the primary has now.
    pub fn wait_caught_up(&self) -> Result<(), LabError> {
        let position = position(&self.primary)?;
        self.replicas.iter().try_for_each(|replica| wait_for(replica, &position))
    }
}

/// The privileges of the monitor's user to set `read_only` and to change replication sources.
pub fn switchover_rights(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Mariadb => "GRANT READ_ONLY ADMIN, REPLICATION SLAVE ADMIN, REPLICATION MASTER ADMIN, RELOAD ON *.* TO monitor@'%'",
        Flavor::Mysql => "GRANT SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN, REPLICATION_SLAVE_ADMIN, RELOAD ON *.* TO monitor@'%'",
    }
}

/// Which side of semi-synchronous replication a server is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Primary,
    Replica,
}

/// Turns semi-synchronous replication on for one role and off for the other; nothing happens on a server that was not
/// started for it.
fn semi_sync(server: &Server, role: Role) -> Result<(), LabError> {
    let (primary, replica) = (u8::from(role == Role::Primary), u8::from(role == Role::Replica));
    let names = match server.flavor() {
        Flavor::Mariadb => ["rpl_semi_sync_master_enabled", "rpl_semi_sync_slave_enabled"],
        Flavor::Mysql => ["rpl_semi_sync_source_enabled", "rpl_semi_sync_replica_enabled"],
    };
    server.sql(&format!("SET GLOBAL {}={primary}, GLOBAL {}={replica}", names[0], names[1])).map(drop)
}

/// Whether a server takes part in semi-synchronous replication, in either role.
fn is_semi_sync(server: &Server) -> Result<bool, LabError> {
    let query = match server.flavor() {
        Flavor::Mariadb => "SELECT @@rpl_semi_sync_master_enabled + @@rpl_semi_sync_slave_enabled",
        Flavor::Mysql => {
            "SELECT SUM(VARIABLE_VALUE = 'ON') FROM performance_schema.global_variables \
             WHERE VARIABLE_NAME IN ('rpl_semi_sync_source_enabled', 'rpl_semi_sync_replica_enabled')"
        }
    };
    Ok(server.scalar(query)?.is_some_and(|on| on != "0"))
}

/// Makes `replica` follow `primary` by GTID.
pub fn follow(replica: &Server, primary: &Server) -> Result<(), LabError> {
    follow_at(replica, primary.host(), primary.port())
}

/// MariaDB 11.4 and later would ask an older primary for a certificate that it can check.
fn trust(replica: &Server) -> Result<(), LabError> {
    let statements = ["STOP SLAVE", "CHANGE MASTER TO MASTER_SSL_VERIFY_SERVER_CERT=0", "START SLAVE"];
    statements.iter().try_for_each(|statement| replica.sql(statement).map(drop))
}

/// The same with any server at an address, such as a proxy.
pub fn follow_at(replica: &Server, host: &str, port: u16) -> Result<(), LabError> {
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

/// Makes `replica` follow the server at an address by file and position: those of `source`, whose end it has.
pub fn follow_end_at(replica: &Server, host: &str, port: u16, source: &Server) -> Result<(), LabError> {
    let (file, position) = binlog_end(source)?;
    follow_at(replica, host, port)?;
    let statements = match replica.flavor() {
        Flavor::Mariadb => [
            "STOP SLAVE".to_owned(),
            format!("CHANGE MASTER TO MASTER_USE_GTID=no, MASTER_LOG_FILE='{file}', MASTER_LOG_POS={position}"),
            "START SLAVE".to_owned(),
        ],
        Flavor::Mysql => [
            "STOP REPLICA".to_owned(),
            format!("CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=0, SOURCE_LOG_FILE='{file}', SOURCE_LOG_POS={position}"),
            "START REPLICA".to_owned(),
        ],
    };
    statements.iter().try_for_each(|statement| replica.sql(statement).map(drop))
}

/// File and position at which a server writes its binlog.
pub fn binlog_end(server: &Server) -> Result<(String, String), LabError> {
    let reply = server.sql(match server.flavor() {
        Flavor::Mariadb => "SHOW MASTER STATUS",
        Flavor::Mysql => "SHOW BINARY LOG STATUS",
    })?;
    let rows = reply.rows()?;
    Ok((rows.field(0, "File").unwrap_or_default(), rows.field(0, "Position").unwrap_or_default()))
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
    stop_following(server)?;
    set_read_only(server, false)
}

fn stop_following(server: &Server) -> Result<(), LabError> {
    let statements: &[&str] = match server.flavor() {
        Flavor::Mariadb => &["STOP SLAVE", "RESET SLAVE ALL"],
        Flavor::Mysql => &["STOP REPLICA", "RESET REPLICA ALL"],
    };
    statements.iter().try_for_each(|statement| server.sql(statement).map(drop))
}

/// Changes roles in good order: `old` refuses writes, `new` catches up and takes them, `others` and `old` follow it.
/// Gives the moment just before `new` was told to take writes.
pub fn switch_over(old: &Server, new: &Server, others: &[&Server]) -> Result<Instant, LabError> {
    set_read_only(old, true)?;
    wait_for(new, &position(old)?)?;
    let writable = take_over(new, others)?;
    rejoin(old, new)?;
    Ok(writable)
}

/// Promotes the server of `alive` with the most transactions after their primary was lost, and lets the others follow it.
pub fn fail_over(alive: &[&Server]) -> Result<TookOver, LabError> {
    for server in alive {
        apply_received(server)?;
    }
    let positions = alive.iter().map(|server| position(server)).collect::<Result<Vec<_>, _>>()?;
    let place = (0..alive.len()).rev().max_by_key(|index| transactions(&positions[*index])).unwrap_or(0);
    let others: Vec<&Server> = (0..alive.len()).filter(|index| *index != place).map(|index| alive[index]).collect();
    let writable = take_over(alive[place], &others)?;
    Ok(TookOver { place, writable })
}

/// The new primary, and when it could take writes.
#[derive(Clone, Copy, Debug)]
pub struct TookOver {
    /// Its place among the candidates.
    pub place: usize,
    /// Just before it was told to take writes.
    pub writable: Instant,
}

/// Makes a server that was primary follow, from where it stands.
pub fn rejoin(server: &Server, primary: &Server) -> Result<(), LabError> {
    set_read_only(server, true)?;
    if is_semi_sync(primary)? {
        semi_sync(server, Role::Replica)?;
    }
    if server.flavor() == Flavor::Mariadb {
        server.sql(&format!("SET GLOBAL gtid_slave_pos='{}'", position(server)?))?;
    }
    follow(server, primary)
}

/// The other servers follow first, so that a semi-synchronous primary need not wait for them at its first write.
fn take_over(new: &Server, others: &[&Server]) -> Result<Instant, LabError> {
    stop_following(new)?;
    others.iter().try_for_each(|other| follow(other, new))?;
    if is_semi_sync(new)? {
        semi_sync(new, Role::Primary)?;
        wait_for_acknowledgers(new, others.len())?;
    }
    let writable = Instant::now();
    set_read_only(new, false)?;
    Ok(writable)
}

/// Waits until a semi-synchronous primary has as many replicas that acknowledge.
fn wait_for_acknowledgers(primary: &Server, count: usize) -> Result<(), LabError> {
    let query = match primary.flavor() {
        Flavor::Mariadb => "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_clients'",
        Flavor::Mysql => "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_clients'",
    };
    let what = format!("port {} to have {count} replicas", primary.port());
    wait::try_until(&what, CATCH_UP_LIMIT, || {
        let clients = primary.sql(query)?.rows()?.field(0, "Value").and_then(|value| value.parse::<usize>().ok());
        Ok((clients >= Some(count)).then_some(()))
    })
}

/// Waits until a replica has applied all that it received from a primary that is gone.
fn apply_received(replica: &Server) -> Result<(), LabError> {
    let received = match replica.flavor() {
        Flavor::Mariadb => replica.sql("SHOW SLAVE STATUS")?.rows()?.field(0, "Gtid_IO_Pos"),
        Flavor::Mysql => replica.sql("SHOW REPLICA STATUS")?.rows()?.field(0, "Retrieved_Gtid_Set"),
    };
    match received.filter(|position| !position.is_empty()) {
        Some(position) => wait_for(replica, &position.replace('\n', "")),
        None => Ok(()),
    }
}

/// How many transactions a GTID position stands for: enough to compare servers of one topology.
fn transactions(position: &str) -> u64 {
    // MariaDB: domain-server-sequence. MySQL: uuid:first-last:first-last.
    let last = |part: &str| part.trim().rsplit(['-', ':']).next().and_then(|number| number.parse::<u64>().ok());
    position.split(',').filter_map(last).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_compare() {
        assert_eq!(transactions("0-1-17"), 17);
        assert_eq!(transactions("0-1-17,2-3-5"), 22);
        assert_eq!(transactions("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1-7"), 12);
        assert_eq!(transactions(""), 0);
    }
}
