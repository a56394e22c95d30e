//! Replicas that follow, refuse writes, and can take over.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use lab::replication::{follow, promote};
use lab::{Flavor, Options, Replication};

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

#[test]
fn mariadb() {
    follows_and_fails_over(Flavor::Mariadb);
}

#[test]
fn mysql() {
    follows_and_fails_over(Flavor::Mysql);
}
