//! Replication: servers that may not write by the record that several proxies share (`mysql_healing`), whatever they say of themselves.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{Fleet, REPLICATION, addr, read_only, unreachable};
use model::HostgroupId;
use topology::{Fork, GtidSet, Observation, ProbeError};

fn bar(fleet: &mut Fleet, servers: &[&str]) {
    let all: BTreeMap<_, _> = servers.iter().map(|server| (addr(server), "by the record".to_owned())).collect();
    fleet.topology.bar(fleet.now_ms, HostgroupId(1), &all);
}

/// `a` writes, `b` and `c` replicate from it, and were seen so.
fn settled() -> Fleet {
    let mut fleet = Fleet::new(REPLICATION);
    fleet.follow("b", &["a"]).follow("c", &["a"]);
    fleet.see_both("a", false).see_both("b", true).see_both("c", true);
    fleet.events();
    fleet
}

#[test]
fn an_outcast_takes_no_writes_whatever_it_says() {
    let mut fleet = settled();
    bar(&mut fleet, &["a"]);
    assert_eq!(fleet.layout(), "2: a(SHUNNED,sever) b c", "its transactions would be lost");
    assert!(fleet.whys().iter().any(|why| why.contains("by the record")));
    for _ in 0..9 {
        fleet.pass(1_000).see_both("a", false);
    }
    assert_eq!(fleet.hostgroup(1), "");
    // Another server takes over, whether the outcast answers or not.
    fleet.follow("b", &[]).see_both("b", false).pass(1_000).see_both("b", false);
    assert_eq!(fleet.hostgroup(1), "b");
    fleet.pass(1_000).see("a", Observation::ReadOnly(Err(unreachable())));
    fleet.pass(1_000).see_both("a", false).pass(1_000).see_both("a", false).see_both("b", false);
    assert_eq!(fleet.hostgroup(1), "b");
    // It is read-only and follows: it reads.
    fleet.follow("a", &["b"]).follow("c", &["b"]);
    for _ in 0..3 {
        fleet.pass(1_000).see_both("a", true).see_both("b", false).see_both("c", true);
    }
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
    bar(&mut fleet, &[]);
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
}

#[test]
fn while_one_is_promoted_no_other_takes_writes() {
    let mut fleet = settled();
    fleet.see("a", Observation::ReadOnly(Err(ProbeError::Unreachable("refused".to_owned()))));
    bar(&mut fleet, &["a", "c"]);
    // A server that nobody named becomes writable first.
    fleet.follow("c", &[]);
    for _ in 0..3 {
        fleet.pass(1_000).see_both("c", false).see_both("b", true);
    }
    assert_eq!(fleet.hostgroup(1), "");
    fleet.follow("b", &[]).see_both("b", false).pass(1_000).see_both("b", false).see_both("c", false);
    assert_eq!(fleet.hostgroup(1), "b");
    assert!(fleet.hostgroup(2).contains("c(SHUNNED,sever)"), "{}", fleet.layout());
    // The plan is over. The other one still says that it is writable, and is the second.
    bar(&mut fleet, &["a"]);
    fleet.pass(1_000).see_both("b", false).see_both("c", false);
    assert_eq!(fleet.hostgroup(1), "b");
}

/// This proxy promotes `b`: what `a` would take meanwhile, nobody could report.
#[test]
fn the_writer_that_is_replaced_takes_no_writes_meanwhile() {
    for is_undone in [false, true] {
        let mut fleet = settled();
        for _ in 0..3 {
            fleet.pass(20).see("a", Observation::ReadOnly(Err(unreachable())));
        }
        let (writer, heir) = (HostgroupId(1), addr("b"));
        let fork =
            Fork { writer, heir: heir.clone(), at_ms: 0, from: vec![addr("a")], had: GtidSet::default(), is_exact: true, is_noted: true };
        fleet.topology.note_fork(fleet.now_ms, &fork);
        // It is back, and writable by its files.
        fleet.pass(1_000).see_both("a", false).pass(1_000).see_both("a", false).see_both("b", true);
        assert_eq!(fleet.hostgroup(1), "");
        assert!(fleet.whys().iter().any(|why| why.contains("this proxy promotes b:3306 in its place")));
        if is_undone {
            fleet.topology.forget_fork(fleet.now_ms, writer, &heir);
            fleet.pass(1_000).see_both("a", false);
            assert_eq!(fleet.hostgroup(1), "a");
            continue;
        }
        let mut late = fleet.upgraded(REPLICATION);
        late.pass(60_000).see_both("a", false).see_both("b", true).pass(1_000).see_both("a", false);
        assert_eq!(late.hostgroup(1), "a", "not for ever");
        fleet.follow("b", &[]).see_both("b", false).pass(1_000).see_both("b", false).see_both("a", false);
        assert_eq!(fleet.hostgroup(1), "b");
    }
}

#[test]
fn a_replica_that_is_barred_reads_on() {
    let mut fleet = settled();
    let before = fleet.layout();
    bar(&mut fleet, &["b", "c"]);
    fleet.pass(1_000).see_both("a", false).see_both("b", true).see("c", read_only(true));
    assert_eq!(fleet.layout(), before);
}

/// Until etcd is read again, the next process goes on with what the record said last.
#[test]
fn an_outcast_stays_one_after_a_restart() {
    let mut old = settled();
    bar(&mut old, &["a"]);
    for mut fleet in [old.restarted(REPLICATION), old.upgraded(REPLICATION)] {
        for _ in 0..3 {
            fleet.pass(1_000).see_both("a", false).see_both("b", true).see_both("c", true);
        }
        assert_eq!(fleet.hostgroup(1), "", "{}", fleet.layout());
        bar(&mut fleet, &[]);
        fleet.pass(1_000).see_both("a", false);
        assert_eq!(fleet.hostgroup(1), "a");
    }
}
