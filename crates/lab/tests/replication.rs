//! Replicas that follow, refuse writes, and can take over.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use lab::replication::{fail_over, follow, promote, switch_over, wait_for};
use lab::{Flavor, Options, Replication, Server};

fn follows_and_fails_over(flavor: Flavor) {
    let topology = Replication::start(flavor, 1, &Options::new()).unwrap();
    let (primary, replica) = (&topology.primary, &topology.replicas[0]);
    primary.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    topology.wait_caught_up().unwrap();
    assert_eq!(replica.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("0"));
    assert_eq!(replica.scalar("SELECT @@read_only").unwrap().as_deref(), Some("1"));
    primary.kill9();
    promote(replica).unwrap();
    replica.sql("INSERT INTO test.t VALUES(1)").unwrap();
    primary.restart().unwrap();
    follow(primary, replica).unwrap();
}

/// Back and forth in good order, then the crash of the primary.
fn changes_roles(flavor: Flavor) {
    let servers = Replication::start_semi_sync(flavor, 2, &Options::new()).unwrap().into_servers();
    let [a, b, c] = &servers[..] else { panic!("three servers") };
    a.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    a.sql("INSERT INTO test.t VALUES(1)").unwrap();
    switch_over(a, b, &[c]).unwrap();
    b.sql("INSERT INTO test.t VALUES(2)").unwrap();
    switch_over(b, a, &[c]).unwrap();
    a.sql("INSERT INTO test.t VALUES(3)").unwrap();
    wait_for(b, &lab::replication::position(a).unwrap()).unwrap();
    a.kill9();
    let alive = [b, c];
    let next: &Server = alive[fail_over(&alive).unwrap().place];
    next.sql("INSERT INTO test.t VALUES(4)").unwrap();
    assert_eq!(next.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("4"));
}

#[test]
fn mariadb() {
    follows_and_fails_over(Flavor::Mariadb);
}

#[test]
fn mysql() {
    follows_and_fails_over(Flavor::Mysql);
}

#[test]
fn mariadb_changes_roles() {
    changes_roles(Flavor::Mariadb);
}

#[test]
fn mysql_changes_roles() {
    changes_roles(Flavor::Mysql);
}
