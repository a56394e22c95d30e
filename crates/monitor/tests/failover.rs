//! Replication on real servers: the writer is recognised and reported.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{READERS, Running, addr, online, replication};
use lab::flavor::Flavor;
use lab::replication::{Replication, promote};
use lab::server::Options;

/// From the moment that a server takes writes to the layout that says so. The promise is 100 ms; a machine that compiles at
/// the same time is given more.
const TOLD_WITHIN: Duration = Duration::from_millis(250);

fn a_replica_takes_over(flavor: Flavor) {
    let cluster = Replication::start(flavor, 2, &Options::new()).unwrap();
    let servers = || std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let mut running = Running::start(&replication(servers(), "", ""));
    running.wait_writer(&cluster.primary);
    running.plane.wait("all read", |told| online(&told.layout, READERS).len() == 3);

    let killed = Instant::now();
    cluster.primary.kill9();
    promote(&cluster.replicas[0]).unwrap();
    let writable = Instant::now();
    let told = running.wait_writer(&cluster.replicas[0]);
    let (since_killed, since_writable) = (told - killed, told.saturating_duration_since(writable));
    println!("{flavor:?}: told {since_writable:?} after it was writable, {since_killed:?} after the kill");
    if since_writable >= TOLD_WITHIN {
        running.plane.look(|t| {
            for (at, w) in &t.writers {
                println!("{:?} {w:?}", at.saturating_duration_since(killed));
            }
        });
        for e in running.table("stats_tidegate_events") {
            println!("{e:?}");
        }
        for t in ["mysql_server_ping_log", "mysql_server_read_only_log"] {
            for e in running.table(t) {
                println!("{e:?}");
            }
        }
    }
    assert!(since_writable < TOLD_WITHIN, "{since_writable:?}");

    let events = running.table("stats_tidegate_events");
    let port = cluster.replicas[0].port().to_string();
    assert!(events.iter().any(|e| e["port"] == port && e["to_state"].contains("writer")), "{events:#?}");
    let log = running.table("mysql_server_read_only_log");
    assert!(log.iter().any(|row| row["port"] == port && row["read_only"] == "1"), "as a replica");
    assert!(log.iter().any(|row| row["port"] == port && row["read_only"] == "0"), "as the writer");
    let failed = |row: &std::collections::BTreeMap<_, String>| row["port"] == cluster.primary.port().to_string() && row["error"] != "NULL";
    assert!(log.iter().any(failed), "{log:#?}");
    running.plane.wait("pings", |told| told.measured.get(&addr(&cluster.replicas[1])).is_some_and(|m| m.latency_us > 0));
    running.stop();
}

#[test]
fn a_replica_takes_over_mariadb() {
    a_replica_takes_over(Flavor::Mariadb);
}

#[test]
fn a_replica_takes_over_mysql() {
    a_replica_takes_over(Flavor::Mysql);
}

/// The replica's SQL thread is stopped while the writer goes on: it is found to lack the writes, and serves again when it has them.
fn a_replica_that_lacks_transactions_is_not_read_from(flavor: Flavor) {
    let cluster = Replication::start(flavor, 2, &Options::new()).unwrap();
    let servers = || std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let variables = "max_transactions_behind=3, monitor_replication_lag_interval=100, monitor_replication_lag_count=2";
    let mut running = Running::start(&replication(servers(), variables, ""));
    running.wait_writer(&cluster.primary);
    let readers = |count: usize| move |told: &common::Told| online(&told.layout, READERS).len() == count;
    running.plane.wait("all read", readers(3));
    let stopped = &cluster.replicas[1];
    let (stop, start) = match flavor {
        Flavor::Mariadb => ("STOP SLAVE SQL_THREAD", "START SLAVE SQL_THREAD"),
        Flavor::Mysql => ("STOP REPLICA SQL_THREAD", "START REPLICA SQL_THREAD"),
    };
    stopped.sql(stop).unwrap();
    cluster.primary.sql("CREATE TABLE test.counted (id INT PRIMARY KEY)").unwrap();
    for id in 1..=2 {
        cluster.primary.sql(&format!("INSERT INTO test.counted VALUES ({id})")).unwrap();
    }
    // Three are not too many: looked at often enough to be found out if they were.
    let looks =
        |running: &Running| running.table("mysql_server_gtids_log").iter().filter(|row| row["port"] == stopped.port().to_string()).count();
    let before = looks(&running);
    lab::wait::until("five looks", common::LIMIT, || (looks(&running) >= before + 5).then_some(())).unwrap();
    running.plane.look(|told| assert_eq!(online(&told.layout, READERS).len(), 3));
    cluster.primary.sql("INSERT INTO test.counted VALUES (3)").unwrap();
    let gone = addr(stopped);
    running.plane.wait("it is not read from", |told| {
        let readers = online(&told.layout, READERS);
        readers.len() == 2 && !readers.contains(&gone)
    });
    stopped.sql(start).unwrap();
    running.plane.wait("it caught up", readers(3));
    running.stop();
}

#[test]
fn a_replica_that_lacks_transactions_is_not_read_from_mariadb() {
    a_replica_that_lacks_transactions_is_not_read_from(Flavor::Mariadb);
}

#[test]
fn a_replica_that_lacks_transactions_is_not_read_from_mysql() {
    a_replica_that_lacks_transactions_is_not_read_from(Flavor::Mysql);
}
