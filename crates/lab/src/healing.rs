//! Replication clusters that the proxy heals by itself (`mysql_healing`, mode `full`).

use crate::error::LabError;
use crate::failover::Clients;
use crate::flavor::Flavor;
use crate::replication::{Replication, switchover_rights};
use crate::server::Options;
use crate::tidegate::{Builder, Setting, Tidegate};
use crate::topology::{READER, WRITER};

/// The clients' table is there, and the monitor's user may promote. Replicas notice a frozen writer within seconds.
pub fn cluster(flavor: Flavor, replicas: usize, is_semi_sync: bool) -> Result<Replication, LabError> {
    let timeout = match flavor {
        Flavor::Mariadb => "--slave-net-timeout=2",
        Flavor::Mysql => "--replica-net-timeout=2",
    };
    let options = Options::new().durable().arg(timeout);
    let start = if is_semi_sync { Replication::start_semi_sync } else { Replication::start };
    let servers = start(flavor, replicas, &options)?;
    let more = match flavor {
        Flavor::Mariadb => "GRANT CONNECTION ADMIN, PROCESS, BINLOG MONITOR ON *.* TO monitor@'%'",
        Flavor::Mysql => "GRANT SYSTEM_USER, PROCESS, SELECT ON *.* TO monitor@'%'",
    };
    let first = ["INSERT INTO test.writes(n, id) VALUES(1, 0)", "DELETE FROM test.writes"];
    for sql in [switchover_rights(flavor), more, Clients::TABLE].into_iter().chain(first) {
        servers.primary.sql(sql)?;
    }
    servers.wait_caught_up()?;
    Ok(servers)
}

/// A proxy that promotes a second after a death. `healing` are more columns of its row.
pub fn promoting(healing: &[(&str, Setting)]) -> Builder {
    let pairs = [("writer_hostgroup", WRITER.into()), ("reader_hostgroup", READER.into())];
    let row = [&[("writer_hostgroup", WRITER.into()), ("mode", "full".into()), ("dead_ms", 1_000.into())][..], healing].concat();
    let builder = Tidegate::builder().app_user().user("empty", "", READER);
    let builder = builder.variable("monitor_read_only_interval", 200).variable("monitor_read_only_timeout", 500);
    let builder = builder.variable("connect_timeout_server_max", 60_000).variable("causal_reads", "session");
    let builder = builder.variable("replication_username", "repl").variable("replication_password", "repl-pass");
    builder.row("mysql_replication_hostgroups", &pairs).row("mysql_healing", &row)
}

/// The number of lost transactions that a plan reports; None of a text that reports none.
pub fn reported(plan: &str) -> Option<u64> {
    match plan.split_once("at least ") {
        Some((_, rest)) => rest.split(' ').next()?.parse().ok(),
        None => ["nothing known to be lost", "nothing lost"].iter().any(|words| plan.contains(words)).then_some(0),
    }
}
