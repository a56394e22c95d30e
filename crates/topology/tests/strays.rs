//! Replication: a server that does not replicate from the writer serves no reads (`mysql-shun_stray_replicas`).
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fleet, REPLICATION, addr, read_only, unreachable};
use topology::{Observation, ProbeError, ServerId, Source, SourcesView};

/// `a` writes, `b` and `c` replicate from it, and were seen so.
fn settled(text: &str) -> Fleet {
    let mut fleet = Fleet::new(text);
    fleet.follow("b", &["a"]).follow("c", &["a"]);
    fleet.see_both("a", false).see_both("b", true).see_both("c", true);
    fleet.events();
    fleet
}

/// One check of each per second; `b` writes and the others read.
fn look(fleet: &mut Fleet, seconds: u64) {
    for _ in 0..seconds {
        fleet.pass(1_000).see_both("b", false).see_both("a", true).see_both("c", true);
    }
}

/// A switchover from `a` to `b`; no replica follows `b` yet.
fn switched(text: &str) -> Fleet {
    let mut fleet = settled(text);
    fleet.pass(1_000).see_both("a", true).follow("b", &[]).see_both("b", false);
    fleet
}

#[test]
fn the_old_primary_serves_no_reads_until_it_follows_the_new_one() {
    let mut fleet = switched(REPLICATION);
    assert_eq!(fleet.layout(), "1: b; 2: a b c", "whoever points it at the new one has a moment for it");
    fleet.events();
    assert_eq!(fleet.interval_ms("a", "Sources"), 1_000, "it is looked at while it is doubted");
    look(&mut fleet, 4);
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
    look(&mut fleet, 1);
    assert_eq!(fleet.layout(), "1: b; 2: a(SHUNNED) b c(SHUNNED)", "what follows the old one stands still too");
    let whys = fleet.whys();
    assert!(whys[0].starts_with("a ONLINE>SHUNNED: replicates from no server, not from the writer b:3306"), "{whys:?}");
    assert!(whys[1].starts_with("c ONLINE>SHUNNED: replicates from a:3306, not from the writer b:3306"), "{whys:?}");
    assert_eq!(fleet.topology.strays(), [(model::HostgroupId(1), 2)]);
    // The old primary follows, and by it the replica that was never touched.
    fleet.follow("a", &["b"]);
    look(&mut fleet, 1);
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
    assert_eq!(fleet.topology.strays(), [(model::HostgroupId(1), 0)]);
    assert_eq!(fleet.interval_ms("a", "Sources"), 10_000, "and then all is calm");
}

#[test]
fn the_setting_lets_strays_serve() {
    let mut fleet = switched(&format!("mysql_variables = {{ shun_stray_replicas=false }}\n{REPLICATION}"));
    look(&mut fleet, 20);
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
    assert!(fleet.topology.strays().is_empty());
    // The same holds for servers without asynchronous replication.
    let check = REPLICATION.replace("reader_hostgroup=2 }", "reader_hostgroup=2, check_type=\"innodb_read_only\" }");
    let mut fleet = switched(&check);
    look(&mut fleet, 20);
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
    // If the setting is switched off while a server is out, the server serves again.
    let mut fleet = switched(REPLICATION);
    look(&mut fleet, 6);
    assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b c(SHUNNED)");
    fleet.configure(&format!("mysql_variables = {{ shun_stray_replicas=false }}\n{REPLICATION}"));
    look(&mut fleet, 1);
    assert_eq!(fleet.hostgroup(2), "a b c");
}

#[test]
fn a_receiver_that_is_restarted_is_no_stray() {
    let mut fleet = settled(REPLICATION);
    for seconds in [1, 2, 3, 4] {
        fleet.follow("c", &[]);
        for _ in 0..seconds {
            fleet.pass(1_000).see_both("a", false).see_both("b", true).see_both("c", true);
            assert_eq!(fleet.hostgroup(2), "a b c");
        }
        fleet.follow("c", &["a"]).pass(1_000).see_both("a", false).see_both("c", true);
        assert_eq!(fleet.hostgroup(2), "a b c");
    }
    // One that stays stopped is one.
    fleet.follow("c", &[]);
    for _ in 0..7 {
        fleet.pass(1_000).see_both("a", false).see_both("c", true);
    }
    assert_eq!(fleet.hostgroup(2), "a b c(SHUNNED)");
}

#[test]
fn what_is_not_known_makes_no_stray() {
    let denied = || Err(ProbeError::Denied("REPLICATION CLIENT is missing".into()));
    let mut fleet = switched(REPLICATION);
    fleet.sources.insert("a".into(), denied());
    fleet.follow("c", &["b"]);
    look(&mut fleet, 20);
    assert_eq!(fleet.hostgroup(2), "a b c", "it does not say, so the other rules hold");
    let told = fleet.topology.take_events().iter().filter(|event| event.to == "source unknown").count();
    assert_eq!(told, 1, "which is said once");
    assert_eq!(fleet.interval_ms("a", "Sources"), 10_000, "nor is it asked in haste");
    // The right is given: now it is known.
    fleet.follow("a", &[]);
    look(&mut fleet, 7);
    assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b c");
    fleet.sources.insert("a".into(), denied());
    look(&mut fleet, 1);
    assert_eq!(fleet.hostgroup(2), "a b c", "and not any more");

    // A source outside the cluster may have the writer's changes.
    let mut fleet = switched(REPLICATION);
    fleet.follow("a", &["relay"]).follow("c", &["a"]);
    look(&mut fleet, 20);
    assert_eq!(fleet.hostgroup(2), "a b c");
}

/// The writer is lost: no server becomes a stray, and strays stay strays.
#[test]
fn while_nobody_writes_nothing_changes() {
    let mut fleet = settled(REPLICATION);
    let down = |fleet: &mut Fleet| {
        for _ in 0..2 {
            fleet.pass(20).see("a", Observation::ReadOnly(Err(unreachable())));
        }
    };
    down(&mut fleet);
    fleet.follow("b", &[]).follow("c", &[]);
    for _ in 0..10 {
        fleet.pass(1_000).see_both("b", true).see_both("c", true);
    }
    assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b c");

    let mut fleet = settled(REPLICATION);
    fleet.follow("c", &[]);
    for _ in 0..7 {
        fleet.pass(1_000).see_both("a", false).see_both("b", true).see_both("c", true);
    }
    down(&mut fleet);
    fleet.pass(1_000).see_both("c", true).see_both("b", true);
    assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b c(SHUNNED)", "what it has is no newer than before");
    // It is promoted, and writes.
    fleet.pass(1_000).see("c", read_only(false)).pass(20).see("c", read_only(false));
    assert_eq!(fleet.hostgroup(1), "c", "{}", fleet.layout());
    for _ in 0..7 {
        fleet.pass(1_000).see_both("c", false).see_both("b", true);
    }
    assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b(SHUNNED) c", "it still follows the one that is dead");
    fleet.follow("b", &["c"]).pass(1_000).see_both("b", true);
    assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b c");
}

#[test]
fn chains_rings_and_other_names_are_followed() {
    // A replica of a replica.
    let mut fleet = switched(REPLICATION);
    fleet.follow("a", &["c"]).follow("c", &["b"]);
    look(&mut fleet, 20);
    assert_eq!(fleet.hostgroup(2), "a b c");
    // The writer replicates from the one that stands by, which replicates from it.
    fleet.follow("b", &["a"]).follow("a", &["b"]).follow("c", &["a"]);
    look(&mut fleet, 20);
    assert_eq!(fleet.hostgroup(2), "a b c");
    // Two servers that replicate only from each other are apart.
    fleet.follow("b", &[]).follow("a", &["c"]).follow("c", &["a"]);
    look(&mut fleet, 7);
    assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b c(SHUNNED)");

    // Replication uses other names than the configuration; the servers' own ids tell them apart.
    let uuid = |name: &str| ServerId::new(Some(1), Some(&format!("AA-{name}")));
    let view = |name: &str, source: Option<&str>| {
        let source = source.map(|source| Source { addr: addr(&format!("{source}.internal")), id: uuid(source) });
        Observation::Sources(Ok(SourcesView { id: uuid(name), sources: source.into_iter().collect(), is_member: false }))
    };
    let mut fleet = switched(REPLICATION);
    let see = |fleet: &mut Fleet, a: Option<&str>| {
        for _ in 0..7 {
            fleet.pass(1_000).see("b", read_only(false)).see("b", view("b", None));
            fleet.see("a", read_only(true)).see("a", view("a", a)).see("c", read_only(true)).see("c", view("c", Some("a")));
        }
    };
    see(&mut fleet, Some("b"));
    assert_eq!(fleet.hostgroup(2), "a b c");
    see(&mut fleet, None);
    assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b c(SHUNNED)", "the source of c is known by its own name");
}

/// A member of Galera or of a group that is listed in a replication cluster gets changes by other means.
#[test]
fn members_of_other_clusters_are_no_strays() {
    let mut fleet = switched(REPLICATION);
    let member = || Observation::Sources(Ok(SourcesView { is_member: true, ..SourcesView::default() }));
    for _ in 0..20 {
        fleet.pass(1_000).see_both("b", false).see("a", read_only(true)).see("a", member()).see("c", read_only(true)).see("c", member());
    }
    assert_eq!(fleet.hostgroup(2), "a b c");
}

/// It returns from a restart and has not reported its source yet.
#[test]
fn a_stray_that_was_restarted_is_one_until_it_says_otherwise() {
    let mut fleet = switched(REPLICATION);
    look(&mut fleet, 6);
    for _ in 0..3 {
        fleet.pass(1_000).see("a", Observation::ReadOnly(Err(unreachable()))).see("b", read_only(false));
    }
    fleet.pass(1_000).see("a", read_only(true)).see("b", read_only(false));
    assert!(fleet.hostgroup(2).starts_with("a(SHUNNED)"), "{}", fleet.layout());
    fleet.follow("a", &["b"]);
    look(&mut fleet, 1);
    assert_eq!(fleet.hostgroup(2), "a b c");
}
