//! Aurora: every instance reports all of them, and some reports are late.
#![allow(clippy::unwrap_used)]

mod common;

use common::{AURORA, Fleet, addr, aurora, unreachable};
use topology::{AuroraInstance, AuroraView, Observation, ProbeError};

const ALL: [(&str, u64); 3] = [("a", 0), ("b", 5), ("c", 5)];
const B_WRITES: [(&str, u64); 3] = [("b", 0), ("a", 5), ("c", 5)];

fn settled() -> Fleet {
    let mut fleet = Fleet::new(AURORA);
    for instance in ["a.x", "b.x", "c.x"] {
        fleet.pass(100).see(instance, aurora(&ALL, 50));
    }
    fleet.events();
    fleet
}

#[test]
fn the_topology_decides() {
    assert_eq!(settled().layout(), "0: a.x; 1: a.x b.x c.x");
    let text = AURORA.replace("writer_is_also_reader=1", "writer_is_also_reader=0");
    let mut fleet = Fleet::new(&text);
    fleet.see("c.x", aurora(&B_WRITES, 50));
    assert_eq!(fleet.layout(), "0: b.x; 1: a.x c.x");
}

#[test]
fn a_new_writer_is_believed_when_it_says_so_itself() {
    let mut fleet = settled();
    fleet.pass(1_000).see("b.x", aurora(&B_WRITES, 50));
    assert_eq!(fleet.layout(), "0: b.x; 1: a.x b.x c.x");
    assert_eq!(fleet.events(), ["role a.x writer,reader>reader", "role b.x reader>writer,reader"]);
}

#[test]
fn a_new_writer_is_believed_when_two_views_agree() {
    let mut fleet = settled();
    fleet.pass(1_000).see("c.x", aurora(&B_WRITES, 50));
    assert_eq!(fleet.hostgroup(0), "a.x", "one view of another instance is not enough");
    assert_eq!(fleet.interval_ms("c.x", "Aurora"), 20);
    fleet.pass(20).see("a.x", aurora(&B_WRITES, 50));
    assert_eq!(fleet.hostgroup(0), "b.x");
    // One instance may also say it twice, if no other view contradicts.
    let mut fleet = settled();
    fleet.pass(1_000).see("c.x", aurora(&B_WRITES, 50)).pass(20).see("c.x", aurora(&B_WRITES, 50));
    assert_eq!(fleet.hostgroup(0), "b.x");
}

#[test]
fn one_instance_that_is_wrong_for_long_convinces_nobody() {
    let mut fleet = settled();
    for _ in 0..20 {
        fleet.pass(20).see("c.x", aurora(&B_WRITES, 50)).see("a.x", aurora(&ALL, 50)).see("b.x", aurora(&ALL, 50));
        assert_eq!(fleet.hostgroup(0), "a.x");
    }
}

#[test]
fn stale_views_are_ignored() {
    let mut fleet = settled();
    fleet.pass(1_000).see("b.x", aurora(&B_WRITES, 50)).see("c.x", aurora(&B_WRITES, 50));
    assert_eq!(fleet.hostgroup(0), "b.x");
    // The old writer still sees itself as it was.
    for age_ms in (1..50).map(|n| n * 1_000) {
        fleet.pass(1_000).see("a.x", aurora(&ALL, age_ms)).see("c.x", aurora(&B_WRITES, 50));
        assert_eq!(fleet.hostgroup(0), "b.x");
    }
}

#[test]
fn failed_checks_and_empty_views_change_no_role() {
    let mut fleet = settled();
    for _ in 0..300 {
        fleet.pass(1_000);
        for instance in ["a.x", "b.x", "c.x"] {
            fleet.see(instance, Observation::Aurora(Err(ProbeError::Timeout)));
        }
        assert_eq!(fleet.layout(), "0: a.x; 1: a.x b.x c.x");
    }
    fleet.see("b.x", Observation::Aurora(Ok(AuroraView { instances: Vec::new() })));
    assert_eq!(fleet.layout(), "0: a.x; 1: a.x b.x c.x");
    fleet.see("c.x", Observation::Aurora(Err(unreachable()))).see("c.x", Observation::Aurora(Err(unreachable())));
    assert_eq!(fleet.layout(), "0: a.x; 1: a.x b.x c.x(SHUNNED)");
}

#[test]
fn replicas_come_and_go() {
    let mut fleet = settled();
    let four = [("a", 0), ("b", 5), ("c", 5), ("d", 5)];
    fleet.pass(1_000).see("b.x", aurora(&four, 50));
    assert_eq!(fleet.events(), ["discovery d.x unknown>found"]);
    fleet.pass(20).see("d.x", aurora(&four, 50));
    assert_eq!(fleet.hostgroup(1), "a.x b.x c.x d.x");
    let weight = fleet.topology.layout().hostgroups[&model::HostgroupId(1)].iter().find(|p| &*p.server.key.host == "d.x").unwrap();
    assert_eq!((weight.server.weight, weight.server.key.port), (7, 3306));
    // It is switched off; the configured ones stay though one of them is gone too.
    let two = [("a", 0), ("b", 5)];
    fleet.see("d.x", Observation::Aurora(Err(unreachable()))).see("d.x", Observation::Aurora(Err(unreachable())));
    fleet.see("c.x", Observation::Aurora(Err(unreachable()))).see("c.x", Observation::Aurora(Err(unreachable())));
    fleet.events();
    for instance in ["a.x", "b.x", "a.x", "b.x", "a.x"] {
        fleet.pass(1_000).see(instance, aurora(&two, 50));
    }
    assert_eq!(fleet.layout(), "0: a.x; 1: a.x b.x c.x(SHUNNED)");
    assert_eq!(fleet.events(), ["discovery d.x found>left"]);
    fleet.pass(1_000).see("c.x", aurora(&ALL, 50));
    assert_eq!(fleet.layout(), "0: a.x; 1: a.x b.x c.x");
}

#[test]
fn lag_is_estimated() {
    let lagging = |ms| aurora(&[("a", 0), ("b", ms), ("c", 5)], 50);
    let mut fleet = settled();
    fleet.pass(1_000).see("a.x", lagging(971));
    assert_eq!(fleet.hostgroup(1), "a.x b.x(SHUNNED_REPLICATION_LAG) c.x", "30 ms are added");
    fleet.pass(1_000).see("a.x", lagging(970));
    assert_eq!(fleet.hostgroup(1), "a.x b.x c.x");
    let mut fleet = Fleet::new(&AURORA.replace("max_lag_ms=1000", "max_lag_ms=1000, lag_num_checks=3"));
    for (ms, expected) in
        [(2_000, "b.x(SHUNNED_REPLICATION_LAG)"), (5, "b.x(SHUNNED_REPLICATION_LAG)"), (5, "b.x(SHUNNED_REPLICATION_LAG)"), (5, "b.x")]
    {
        fleet.pass(1_000).see("a.x", lagging(ms));
        assert_eq!(fleet.hostgroup(1), format!("a.x {expected} c.x"));
    }
}

/// A listed replica is there. If all lag, or report no lag, the floor stays and its event says why.
#[test]
fn replicas_that_lag_without_measure_are_lagging() {
    let text = AURORA.replace("writer_is_also_reader=1", "writer_is_also_reader=0");
    for lag_ms in [700_000, AuroraInstance::LAG_UNKNOWN_MS] {
        let mut fleet = Fleet::new(&text);
        let all = [("a", 0), ("b", lag_ms), ("c", lag_ms)];
        for _ in 0..10 {
            for instance in ["a.x", "b.x", "c.x"] {
                fleet.pass(100).see(instance, aurora(&all, 50));
            }
        }
        assert_eq!(fleet.layout(), "0: a.x; 1: b.x c.x(SHUNNED_REPLICATION_LAG)");
        let unknown = if lag_ms == 700_000 { "700030 ms behind" } else { "lag unknown" };
        let events = fleet.topology.take_events();
        let told = events.iter().find(|event| event.to == "SHUNNED_REPLICATION_LAG").unwrap();
        assert!(format!("{told:?}").contains(&format!("{unknown}; max_lag_ms=1000")), "{told:?}");
    }
}

#[test]
fn an_instance_that_has_left_is_not_told_as_listed() {
    let mut fleet = settled();
    fleet.events();
    fleet.see("c.x", Observation::Aurora(Err(ProbeError::Timeout)));
    for instance in ["a.x", "b.x", "a.x", "b.x"] {
        fleet.pass(1_000).see(instance, aurora(&[("a", 0), ("b", 5)], 50));
    }
    let told = fleet.topology.take_events();
    let left = told.iter().find(|event| event.server == Some(addr("c.x"))).unwrap();
    assert_eq!((&*left.why, &*left.seen), ("no longer in the topology", "lag_ms=? listed=0 timeouts=1"));
}
