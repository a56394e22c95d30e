//! Replication: the GTIDs of a promoted server before its first write are kept, and transactions beyond them are reported.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{Fleet, REPLICATION, addr, read_only, unreachable};
use model::HostgroupId;
use topology::{Fork, GtidSet, Observation, ServerId};

/// A flavor's GTIDs: what `a` had, what `b` had of that, and what `b` has after its first writes.
struct Words {
    ids: [ServerId; 2],
    all: &'static str,
    part: &'static str,
    after: &'static str,
    lost: u64,
}

fn flavors() -> [Words; 2] {
    let mysql = ["aa", "bb"].map(|uuid| ServerId::new(Some(1), Some(uuid)));
    let mariadb = [1, 2].map(|number| ServerId::new(Some(number), None));
    [
        Words { ids: mariadb, all: "0-1-7", part: "0-1-5", after: "0-1-5,0-2-8", lost: 2 },
        Words { ids: mysql, all: "aa:1-7", part: "aa:1-5", after: "aa:1-5,bb:1-3", lost: 2 },
    ]
}

fn gtids(set: &str) -> Observation {
    Observation::Gtids(Ok(GtidSet::parse(set).unwrap()))
}

/// `a` writes, and `b` has a part of it.
fn settled(words: &Words) -> Fleet {
    let mut fleet = Fleet::new(REPLICATION);
    fleet.ids = ["a", "b"].map(str::to_owned).into_iter().zip(words.ids.clone()).collect();
    fleet.follow("b", &["a"]).follow("c", &["a"]).see_both("a", false).see_both("b", true).see_both("c", true).follow("b", &[]);
    fleet.see("a", gtids(words.all)).see("b", gtids(words.part));
    fleet.events();
    fleet
}

fn dies(fleet: &mut Fleet, server: &str) {
    for _ in 0..3 {
        fleet.pass(20).see(server, Observation::ReadOnly(Err(unreachable())));
    }
}

#[test]
fn a_promotion_leaves_a_fork_and_names_what_is_lost() {
    for words in flavors() {
        let mut fleet = settled(&words);
        dies(&mut fleet, "a");
        fleet.pass(20).see("b", read_only(false));
        assert_eq!(fleet.hostgroup(1), "b");
        assert_eq!(fleet.interval_ms("b", "Gtids"), 20, "it is asked at once");
        let promoted_ms = fleet.now_ms;
        // It writes before anybody asks: more numbers than the old one ever had.
        fleet.pass(20).see("b", gtids(words.after));
        let events = fleet.topology.take_events();
        let lost = events.iter().find(|event| event.to == "lacks transactions").unwrap();
        assert_eq!(lost.seen, format!("{} transactions of a:3306", words.lost));
        let forks = fleet.topology.forks();
        assert_eq!(forks.len(), 1);
        assert_eq!((&forks[0].heir, forks[0].at_ms, &forks[0].from), (&addr("b"), promoted_ms, &vec![addr("a")]));
        assert_eq!(forks[0].had, GtidSet::parse(words.part).unwrap(), "its own writes came later");
        assert!(forks[0].is_exact);
        assert_eq!(GtidSet::parse(words.all).unwrap().missing_in(&forks[0].had), words.lost);
        let told = events.iter().find(|event| event.to == "fork").unwrap();
        assert_eq!((&told.server, &told.seen), (&Some(addr("b")), &format!("had={}", words.part)));
        assert_eq!(fleet.interval_ms("b", "Gtids"), 10_000, "and then all is calm");
    }
}

/// The old primary returns. A tool that compares only numbers accepts it, and it is promoted again. Its transactions beyond the first fork
/// are still reported.
#[test]
fn a_flip_back_does_not_hide_the_first_fork() {
    let words = &flavors()[0];
    let mut fleet = settled(words);
    dies(&mut fleet, "a");
    fleet.pass(20).see("b", read_only(false)).pass(20).see("b", gtids(words.after));
    let returned = "0-1-7,0-2-8";
    fleet.pass(1_000).see("a", read_only(true)).see("a", gtids(returned));
    fleet.pass(1_000).see("b", read_only(true)).see("a", read_only(false)).pass(20).see("a", gtids("0-1-9,0-2-8"));
    let forks = fleet.topology.forks();
    let words: Vec<String> = forks.iter().map(|fork| format!("{} {}", fork.heir, fork.had)).collect();
    assert_eq!(words, ["b:3306 0-1-5", "a:3306 0-1-7,0-2-8"]);
    assert_eq!(GtidSet::parse(returned).unwrap().missing_in(&GtidSet::parse("0-1-5,0-2-8").unwrap()), 2, "0-1-6 and 0-1-7");
}

#[test]
fn what_was_not_seen_before_is_no_exact_fork() {
    let words = &flavors()[1];
    let mut fleet = Fleet::new(REPLICATION);
    fleet.ids.insert("b".to_owned(), words.ids[1].clone());
    fleet.see_both("a", false).see("b", read_only(true)).see("c", read_only(true));
    dies(&mut fleet, "a");
    fleet.pass(20).see("b", read_only(false)).pass(20).see("b", gtids(words.after));
    let forks = fleet.topology.forks();
    assert_eq!(forks.len(), 1);
    assert!(!forks[0].is_exact && forks[0].had == GtidSet::parse(words.part).unwrap(), "{forks:?}");
    // The first writer that is seen was not promoted, as far as is known.
    let mut fleet = Fleet::new(REPLICATION);
    fleet.see("a", read_only(false)).pass(20).see("a", gtids(words.all));
    assert!(fleet.topology.forks().is_empty());
    // Nor does a set that cannot be had make a fork.
    let mut fleet = settled(words);
    dies(&mut fleet, "a");
    fleet.pass(20).see("b", read_only(false)).pass(20).see("b", Observation::Gtids(Err(topology::ProbeError::Failed("1193".to_owned()))));
    assert_eq!(fleet.interval_ms("b", "Gtids"), 10_000, "nor is it asked in haste for ever");
    assert!(fleet.topology.forks().is_empty());
}

/// The proxy promotes: what it noted before the first write counts, not what a later check shows, and it is noted once.
#[test]
fn what_the_proxy_notes_before_it_promotes_counts() {
    for words in flavors() {
        let fork = |heir: &str| Fork {
            writer: HostgroupId(1),
            heir: addr(heir),
            at_ms: 0,
            from: vec![addr("a")],
            had: GtidSet::parse(words.part).unwrap(),
            is_exact: true,
            is_noted: true,
        };
        let mut fleet = settled(&words);
        dies(&mut fleet, "a");
        fleet.topology.note_fork(fleet.now_ms, &fork("b"));
        assert_eq!(fleet.topology.forks().len(), 1);
        // The plan fails, and the next one promotes the same server.
        fleet.topology.forget_fork(fleet.now_ms, HostgroupId(1), &addr("c"));
        assert_eq!(fleet.topology.forks().len(), 1, "another server's");
        fleet.topology.forget_fork(fleet.now_ms, HostgroupId(1), &addr("b"));
        assert!(fleet.topology.forks().is_empty());
        fleet.topology.note_fork(fleet.now_ms, &fork("b"));
        fleet.pass(20).see("b", read_only(false)).pass(20).see("b", gtids(words.after));
        let forks = fleet.topology.forks();
        assert_eq!(forks.len(), 1);
        assert!(forks[0].is_noted && forks[0].had == GtidSet::parse(words.part).unwrap() && forks[0].from == [addr("a")], "{forks:?}");
        // A promotion by another tool, much later, is seen as always.
        fleet
            .pass(100_000)
            .see("a", read_only(true))
            .pass(20)
            .see("b", read_only(true))
            .see("a", read_only(false))
            .pass(20)
            .see("a", gtids(words.after));
        fleet.pass(100_000).see("a", read_only(true)).see("b", read_only(false)).pass(20).see("b", gtids(words.after));
        assert_eq!(fleet.topology.forks().iter().filter(|fork| fork.is_noted).count(), 1);
        assert!(!fleet.topology.forks().last().unwrap().is_noted);
    }
}

/// The proxy promoted `b`, which took writes and restarted with `read_only=1` of its file. `a` has come back meanwhile, lacks those writes,
/// and gets none: neither at once nor when healing has judged it.
#[test]
fn a_promoted_server_that_restarts_read_only_does_not_bring_the_old_writer_back() {
    let words = &flavors()[0];
    let had = GtidSet::parse(words.part).unwrap();
    let fork = Fork { writer: HostgroupId(1), heir: addr("b"), at_ms: 0, from: vec![addr("a")], had, is_exact: true, is_noted: true };
    let outcasts = BTreeMap::from([(addr("a"), "outcast".to_owned())]);
    for is_judged in [false, true] {
        let mut fleet = settled(words);
        dies(&mut fleet, "a");
        if !is_judged {
            fleet.topology.note_fork(fleet.now_ms, &fork);
        }
        fleet.pass(20).see("b", read_only(false)).pass(1_000).see("a", read_only(false));
        assert_eq!(fleet.layout(), "1: b; 2: a(SHUNNED) b c", "{is_judged}");
        if is_judged {
            fleet.topology.cast_out(fleet.now_ms, HostgroupId(1), &outcasts);
        }
        dies(&mut fleet, "b");
        fleet.pass(1_000).see_both("b", true).see("a", read_only(false)).pass(1_000).see("a", read_only(false));
        assert_eq!(fleet.hostgroup(1), "", "{is_judged}: {}", fleet.layout());
        // What another tool does by hand: the operator says so.
        let order = topology::Order::Prefer { writer: HostgroupId(1), server: Some(addr("a")) };
        fleet.topology.order(fleet.now_ms, &order).unwrap();
        fleet.pass(1_000).see("a", read_only(false)).pass(1_000).see("a", read_only(false));
        assert_eq!(fleet.hostgroup(1), "a", "{is_judged}: {}", fleet.layout());
    }
}

/// It was closed, and restarts with `read_only=0` of its file while the writer is down.
#[test]
fn an_outcast_that_restarts_open_is_no_writer() {
    let mut fleet = settled(&flavors()[0]);
    dies(&mut fleet, "a");
    fleet.pass(20).see("b", read_only(false)).pass(1_000).see("a", read_only(true));
    fleet.topology.cast_out(fleet.now_ms, HostgroupId(1), &BTreeMap::from([(addr("a"), "outcast".to_owned())]));
    dies(&mut fleet, "b");
    fleet.pass(1_000).see("a", read_only(false)).pass(1_000).see("a", read_only(false)).pass(1_000).see("a", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b(SHUNNED,sever)", "{}", fleet.layout());
    fleet.topology.cast_out(fleet.now_ms, HostgroupId(1), &BTreeMap::new());
    fleet.pass(1_000).see("a", read_only(false)).pass(1_000).see("a", read_only(false));
    assert_eq!(fleet.hostgroup(1), "a", "{}", fleet.layout());
}
