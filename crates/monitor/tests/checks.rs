//! Checks go on whatever single servers do, and end when they are switched off.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{READERS, Running, WRITERS, addr, online, replication};
use lab::replication::Replication;
use lab::{Flavor, Options, wait};
use model::fleet::{RoleKeeper, Signal, SignalKind};

type Row = BTreeMap<&'static str, String>;

fn of_port(rows: Vec<Row>, port: u16) -> Vec<Row> {
    rows.into_iter().filter(|row| row["port"] == port.to_string()).collect()
}

#[test]
fn a_hung_server_delays_nobody() {
    let cluster = Replication::start(Flavor::Mariadb, 2, &Options::new()).unwrap();
    let servers = std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let running = Running::start(&replication(servers, "monitor_ping_interval=100, monitor_read_only_interval=100", ""));
    running.wait_writer(&cluster.primary);
    cluster.replicas[0].sigstop();
    let hung = cluster.replicas[0].port();
    let timeouts =
        || of_port(running.table("mysql_server_ping_log"), hung).iter().filter(|row| row["ping_error"].starts_with("timeout")).count();
    wait::until("timeouts", Duration::from_secs(20), || (timeouts() >= 3).then_some(())).unwrap();
    cluster.replicas[0].sigcont();
    let starts: Vec<u64> = of_port(running.table("mysql_server_read_only_log"), cluster.primary.port())
        .iter()
        .map(|row| row["time_start_us"].parse().unwrap())
        .collect();
    let longest_us = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    // A timeout is 800 ms: had anybody waited for the hung server, there would be such a gap.
    assert!(longest_us < 600_000, "{longest_us}");
    running.plane.wait("it serves again", |told| online(&told.layout, READERS).contains(&addr(&cluster.replicas[0])));
}

#[test]
fn nothing_is_probed_when_the_monitor_is_off() {
    let cluster = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let servers = || std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let running = Running::start(&replication(servers(), "monitor_read_only_interval=100", ""));
    running.wait_writer(&cluster.primary);
    let connections = || cluster.primary.scalar("SELECT COUNT(*) FROM information_schema.processlist WHERE user='monitor'").unwrap();
    assert_ne!(connections().as_deref(), Some("0"));
    let layout = running.monitor.configure(&replication(servers(), "monitor_enabled=false", ""));
    assert_eq!(online(&layout, WRITERS), [addr(&cluster.primary)], "roles are frozen");
    assert_eq!(online(&layout, READERS).len(), 2);
    wait::until("no connection", Duration::from_secs(10), || (connections().as_deref() == Some("0")).then_some(())).unwrap();
    let before = running.table("mysql_server_read_only_log").len();
    running.monitor.configure(&replication(servers(), "monitor_read_only_interval=100", ""));
    let more = || running.table("mysql_server_read_only_log").len() > before;
    wait::until("probes", Duration::from_secs(10), || more().then_some(())).unwrap();
}

#[test]
fn a_refused_user_changes_nothing_and_is_said_to_be_refused() {
    let cluster = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let servers = || std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let running = Running::start(&replication(servers(), "", ", max_replication_lag=10"));
    running.wait_writer(&cluster.primary);
    let lag = |port| of_port(running.table("mysql_server_replication_lag_log"), port);
    let replica = cluster.replicas[0].port();
    wait::until("a lag", Duration::from_secs(20), || lag(replica).iter().any(|row| row["repl_lag"] == "0").then_some(())).unwrap();
    wait::until("none", Duration::from_secs(20), || (!lag(cluster.primary.port()).is_empty()).then_some(())).unwrap();
    running.monitor.configure(&replication(
        servers(),
        "monitor_password=\"no\", monitor_read_only_interval=100",
        ", max_replication_lag=10",
    ));
    let port = cluster.primary.port();
    let denied = || {
        of_port(running.table("mysql_server_read_only_log"), port)
            .iter()
            .filter(|row| row["error"].starts_with("Access denied for user"))
            .count()
    };
    wait::until("refusals", Duration::from_secs(20), || (denied() >= 3).then_some(())).unwrap();
    running.wait_writer(&cluster.primary);
    assert!(lag(port).iter().any(|row| row["repl_lag"] == "NULL" && row["error"] == "NULL"), "it is no replica");
    let events = running.table("stats_tidegate_events");
    assert!(
        events.iter().any(|event| event["kind"] == "suspicion"
            && event["why"].contains("cannot log in")
            && event["seen"].starts_with("Access denied")),
        "{events:#?}"
    );
}

/// A lag that is measured for display is in the table, and the data plane does not get it.
#[test]
fn lag_is_measured_without_a_limit() {
    let cluster = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let servers = || std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let running = Running::start(&replication(servers(), "monitor_read_only_interval=100, monitor_replication_lag_interval=100", ""));
    running.wait_writer(&cluster.primary);
    let replica = addr(&cluster.replicas[0]);
    let is_at = |row: &Row, server: &model::ServerAddr| row["port"] == server.port.to_string();
    running.wait_row("stats_tidegate_servers", |row| is_at(row, &replica) && row["repl_lag"] == "0" && row["lag_note"].is_empty());
    let primary = addr(&cluster.primary);
    running.wait_row("stats_tidegate_servers", |row| {
        is_at(row, &primary) && row["role"] == "writer" && row["lag_note"] == "replicates from no server" && row["is_stray"] == "0"
    });
    let told = || running.plane.look(|told| told.measured.get(&replica).copied());
    wait::until("a measurement", common::LIMIT, || told().map(drop)).unwrap();
    assert_eq!(told().unwrap().lag_ms, None);
    running.configure(&replication(servers(), "monitor_replication_lag_interval=100", ", max_replication_lag=10"));
    running.plane.wait("the lag that routes", |told| told.measured.get(&replica).is_some_and(|measured| measured.lag_ms == Some(0)));
}

/// A former primary is a stray from the first check on, before it is SHUNNED, and with the setting off it stays one.
#[test]
fn a_former_primary_without_a_source_is_shown_as_stray() {
    let cluster = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let servers = || std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let variables = "monitor_read_only_interval=100, monitor_replication_lag_interval=100, shun_stray_replicas=false";
    let running = Running::start(&replication(servers(), variables, ""));
    running.wait_writer(&cluster.primary);
    let (former, heir) = (&cluster.primary, &cluster.replicas[0]);
    lab::replication::set_read_only(former, true).unwrap();
    heir.sql("STOP SLAVE").unwrap();
    heir.sql("RESET SLAVE ALL").unwrap();
    lab::replication::set_read_only(heir, false).unwrap();
    running.wait_writer(heir);
    running.wait_row("stats_tidegate_servers", |row| {
        row["port"] == former.port().to_string() && row["role"] == "reader" && row["status"] == "ONLINE" && row["is_stray"] == "1"
    });
}

#[test]
fn a_signal_is_looked_into_at_once() {
    let cluster = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let servers = || std::iter::once(&cluster.primary).chain(&cluster.replicas);
    // So seldom that only a signal can make it in time.
    let running = Running::start(&replication(servers(), "monitor_read_only_interval=600000, monitor_ping_interval=600000", ""));
    running.wait_writer(&cluster.primary);
    wait::until("calm", Duration::from_secs(20), || (running.table("mysql_server_read_only_log").len() >= 2).then_some(())).unwrap();
    lab::replication::set_read_only(&cluster.primary, true).unwrap();
    let signalled = std::time::Instant::now();
    running.monitor.signal(Signal { server: addr(&cluster.primary), hostgroup: WRITERS, kind: SignalKind::ReadOnly });
    let told = running.plane.wait("no writer", |told| online(&told.layout, WRITERS).is_empty());
    println!("told {:?} after the signal", told - signalled);
    assert!(told - signalled < Duration::from_millis(500));
}

/// A replica's answers from before it was killed do not count.
fn a_replica_that_comes_back_and_refuses_the_monitor_is_not_read_from(flavor: Flavor) {
    let cluster = Replication::start(flavor, 1, &Options::new().durable()).unwrap();
    let servers = std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let running = Running::start(&replication(servers, "monitor_ping_interval=100, monitor_read_only_interval=100", ""));
    running.wait_writer(&cluster.primary);
    let replica = &cluster.replicas[0];
    let serves = |is_wanted: bool| {
        running.plane.wait("the replica", |told| online(&told.layout, READERS).contains(&addr(replica)) == is_wanted);
    };
    serves(true);
    let rows = || of_port(running.table("mysql_server_read_only_log"), replica.port());
    // A server that never answered serves as its rows say.
    wait::until("an answer", common::LIMIT, || rows().iter().any(|row| row["read_only"] != "NULL").then_some(())).unwrap();
    let lock = |how: &str| {
        let mut root = replica.root().unwrap();
        let alter = format!("ALTER USER monitor@'%' ACCOUNT {how}");
        let sql: &[&str] = match flavor {
            Flavor::Mariadb => &["SET sql_log_bin=0", &alter],
            Flavor::Mysql => &[
                "SET sql_log_bin=0",
                "SET @was=@@global.super_read_only",
                "SET GLOBAL super_read_only=0",
                &alter,
                "SET GLOBAL super_read_only=@was",
            ],
        };
        sql.iter().for_each(|sql| _ = root.query(*sql).unwrap().ok().unwrap());
    };
    lock("LOCK");
    replica.kill9();
    serves(false);
    replica.restart_with(&[if flavor == Flavor::Mariadb { "--skip-slave-start" } else { "--skip-replica-start" }]).unwrap();
    let are_refused = || rows().iter().rev().take(3).all(|row| row["error"].contains("locked"));
    let refused = wait::until("refusals", Duration::from_secs(20), || are_refused().then_some(()));
    assert!(refused.is_ok(), "{:?}", rows().last());
    running.plane.look(|told| assert!(!online(&told.layout, READERS).contains(&addr(replica)), "nothing is known of it"));
    lock("UNLOCK");
    serves(true);
}

#[test]
fn a_replica_that_comes_back_and_refuses_the_monitor_is_not_read_from_mariadb() {
    a_replica_that_comes_back_and_refuses_the_monitor_is_not_read_from(Flavor::Mariadb);
}

#[test]
fn a_replica_that_comes_back_and_refuses_the_monitor_is_not_read_from_mysql() {
    a_replica_that_comes_back_and_refuses_the_monitor_is_not_read_from(Flavor::Mysql);
}

/// A connection keeps the privileges of its login, so a check that fails for lack of them must log in again.
fn rights_that_are_granted_later_are_seen(flavor: Flavor) {
    let cluster = Replication::start(flavor, 1, &Options::new()).unwrap();
    let servers = std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let variables = "monitor_ping_interval=100, monitor_read_only_interval=100, monitor_replication_lag_interval=100, \
                     monitor_replication_lag_use_percona_heartbeat=\"beat.heartbeat\"";
    let mut root = cluster.primary.root().unwrap();
    for sql in ["CREATE DATABASE beat", "CREATE TABLE beat.heartbeat (ts DATETIME(6))", "INSERT INTO beat.heartbeat VALUES (SYSDATE(6))"] {
        root.query(sql).unwrap().ok().unwrap();
    }
    let running = Running::start(&replication(servers, variables, ", max_replication_lag=600"));
    let rows = || of_port(running.table("mysql_server_replication_lag_log"), cluster.replicas[0].port());
    let is_refused = || rows().last().is_some_and(|row| row["error"].contains("denied")).then_some(());
    wait::until("a refusal", common::LIMIT, is_refused).unwrap();
    root.query("GRANT SELECT ON beat.* TO monitor@'%'").unwrap().ok().unwrap();
    let is_told = || rows().last().is_some_and(|row| row["error"] == "NULL").then_some(());
    let told = wait::until("a lag", common::LIMIT, is_told);
    assert!(told.is_ok(), "{:?}", rows().last());
}

#[test]
fn rights_that_are_granted_later_are_seen_mariadb() {
    rights_that_are_granted_later_are_seen(Flavor::Mariadb);
}

#[test]
fn rights_that_are_granted_later_are_seen_mysql() {
    rights_that_are_granted_later_are_seen(Flavor::Mysql);
}
