//! Long histories: what holds after every one of them, whatever the order in which simultaneous sightings come in.
#![allow(clippy::unwrap_used)]

mod common;

use common::histories::{History, KINDS, Kind, NODES, Word};
use common::{Fleet, galera, unreachable};
use proptest::prelude::*;
use topology::{Observation, ProbeError};

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(KINDS.to_vec())
}

/// Nodes and letters of the alphabet.
fn tellings(longest: usize) -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0..3_usize, 0..12_usize), 0..longest)
}

fn letter(kind: Kind, index: usize) -> Word {
    kind.alphabet()[index % kind.alphabet().len()]
}

fn told(kind: Kind, tellings: &[(usize, usize)]) -> History {
    let mut history = History::new(kind);
    for (node, index) in tellings {
        history.tell(*node, letter(kind, *index));
        history.check();
    }
    history
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn long_histories_hold_and_end_well(kind in kinds(), tellings in tellings(60)) {
        told(kind, &tellings).recover();
    }

    #[test]
    fn the_same_input_gives_the_same_output(kind in kinds(), tellings in tellings(30)) {
        let (mut one, mut two) = (told(kind, &tellings), told(kind, &tellings));
        prop_assert_eq!(one.fleet.topology.layout(), two.fleet.topology.layout());
        prop_assert_eq!(one.fleet.topology.checks(), two.fleet.topology.checks());
        prop_assert_eq!(one.fleet.topology.take_events(), two.fleet.topology.take_events());
    }

    #[test]
    fn a_monitor_that_is_off_moves_nobody(kind in kinds(), tellings in tellings(30), away_ms in 0..4_000_000_u64, odd in 0..12_usize) {
        let mut fleet = told(kind, &tellings).fleet;
        let frozen = fleet.topology.layout().hostgroups.clone();
        fleet.configure(&kind.config().replace("mysql_variables = {", "mysql_variables = { monitor_enabled=false,"));
        prop_assert_eq!(&fleet.topology.layout().hostgroups, &frozen);
        fleet.pass(away_ms).see(NODES[odd % 3], kind.seen(NODES[odd % 3], letter(kind, odd)));
        prop_assert_eq!(&fleet.topology.layout().hostgroups, &frozen);
        fleet.configure(&kind.config());
        prop_assert_eq!(&fleet.topology.layout().hostgroups, &frozen);
    }

    #[test]
    fn whoever_goes_on_with_what_was_known_decides_the_same(
        kind in kinds(),
        before in tellings(20),
        after in prop::collection::vec((0..3_usize, 0..12_usize, any::<bool>(), 1..3_000_u64), 0..20),
    ) {
        let mut old = told(kind, &before).fleet;
        let mut new = old.upgraded(&kind.config());
        prop_assert_eq!(&new.topology.layout().hostgroups, &old.topology.layout().hostgroups);
        for (node, index, is_ping, pause_ms) in after {
            let seen = kind.seen(NODES[node], letter(kind, index));
            let seen = if is_ping { Observation::Ping(seen.error().cloned().map_or(Ok(1), Err)) } else { seen };
            old.pass(pause_ms).see(NODES[node], seen.clone());
            new.pass(pause_ms).see(NODES[node], seen);
            prop_assert_eq!(&new.topology.layout().hostgroups, &old.topology.layout().hostgroups);
            prop_assert_eq!(new.topology.checks(), old.topology.checks());
        }
    }

    #[test]
    fn a_monitor_that_is_off_moves_nobody_at_a_restart(kind in kinds(), tellings in tellings(30)) {
        let off = kind.config().replace("mysql_variables = {", "mysql_variables = { monitor_enabled=false,");
        let mut fleet = told(kind, &tellings).fleet;
        fleet.configure(&off);
        let frozen = fleet.topology.layout().hostgroups.clone();
        let restarted = fleet.restarted(&off);
        prop_assert_eq!(&restarted.topology.layout().hostgroups, &frozen);
        prop_assert_eq!(restarted.topology.knowledge_to_keep(), fleet.topology.knowledge_to_keep(), "for the next time");
        prop_assert_eq!(fleet.upgraded(&off).topology.layout().hostgroups.clone(), frozen);
    }

    #[test]
    fn who_is_kept_out_is_so_after_a_restart(tellings in tellings(30)) {
        let kind = Kind::Replication;
        let mut old = told(kind, &tellings);
        let mut fleet = old.fleet.restarted(&kind.config());
        let names = |fleet: &Fleet| fleet.hostgroup(1).split(' ').filter(|name| !name.contains('(')).map(str::to_owned).collect::<Vec<_>>();
        prop_assert_eq!(names(&fleet), names(&old.fleet));
        // A server that repeats its answer has the same role as without a restart.
        let words: Vec<_> = old.last_words().filter(|(_, word)| matches!(word, Word::Writes | Word::Reads)).collect();
        for (node, word) in words {
            fleet.pass(1_000).see(node, kind.seen(node, word));
            old.fleet.pass(1_000).see(node, kind.seen(node, word));
            prop_assert!(names(&fleet).iter().all(|name| names(&old.fleet).contains(name)), "{} {:?}", fleet.layout(), old);
        }
    }

    #[test]
    fn the_order_of_simultaneous_sightings_does_not_matter(
        kind in kinds(),
        tellings in tellings(12),
        rounds in prop::collection::vec((0..12_usize, 0..12_usize, 0..12_usize, 0..6_usize), 1..6),
    ) {
        let before = told(kind, &tellings);
        let (mut one, mut two) = (before.fleet.clone(), before.fleet);
        for (a, b, c, order) in rounds {
            let words = [a, b, c].map(|index| letter(kind, index));
            one.pass(1_000);
            two.pass(1_000);
            for node in ORDERS[0] {
                one.see(NODES[node], kind.seen(NODES[node], words[node]));
            }
            for node in ORDERS[order] {
                two.see(NODES[node], kind.seen(NODES[node], words[node]));
            }
            prop_assert_eq!(&one.topology.layout().hostgroups, &two.topology.layout().hostgroups);
        }
    }

    #[test]
    fn sightings_that_come_together_are_as_good_as_one_by_one(
        kind in kinds(),
        tellings in tellings(12),
        rounds in prop::collection::vec(prop::collection::vec((0..3_usize, 0..12_usize, any::<bool>()), 1..8), 1..6),
    ) {
        let before = told(kind, &tellings);
        let (mut one, mut all) = (before.fleet.clone(), before.fleet);
        for round in rounds {
            one.pass(1_000);
            all.pass(1_000);
            let ping = |is_ping: bool, seen: Observation| if is_ping { Observation::Ping(seen.error().cloned().map_or(Ok(1), Err)) } else { seen };
            let seen = round.iter().map(|(node, index, is_ping)| {
                (common::addr(NODES[*node]), ping(*is_ping, kind.seen(NODES[*node], letter(kind, *index))))
            });
            let seen: Vec<_> = seen.collect();
            for (server, seen) in &seen {
                one.topology.observe(one.now_ms, server, seen.clone());
            }
            let revision = all.topology.layout().revision;
            all.topology.observe_all(all.now_ms, seen);
            prop_assert_eq!(&one.topology.layout().hostgroups, &all.topology.layout().hostgroups);
            prop_assert_eq!(one.topology.checks(), all.topology.checks());
            prop_assert!(all.topology.layout().revision <= revision + 1, "one cluster, one change");
        }
    }
}

/// From health, any one sighting that is no statement of the server itself that it must not write.
#[test]
fn one_odd_sighting_moves_no_role() {
    for kind in KINDS {
        let failed = || ProbeError::Failed("nonsense".to_owned());
        let broken = match kind {
            Kind::Replication => Observation::ReadOnly(Err(failed())),
            Kind::Galera => Observation::Galera(Err(failed())),
            Kind::Group => Observation::Group(Err(failed())),
        };
        for node in NODES {
            let errors = [Word::Unreachable, Word::Timeout, Word::Denied].map(|word| kind.seen(node, word));
            let pings = [ProbeError::Timeout, common::unreachable()].map(|error| Observation::Ping(Err(error)));
            let claims = if node == "a" { Vec::new() } else { vec![kind.seen(node, Word::Writes), kind.seen(node, Word::Claims)] };
            let odd = errors.into_iter().chain(pings).chain(claims).chain([broken.clone()]);
            // A Galera node that says nothing but that it reads takes itself out of the writers: not odd, a statement.
            for seen in odd.filter(|seen| kind != Kind::Galera || seen.error().is_some()) {
                let mut fleet = kind.settled();
                fleet.see(node, seen.clone());
                assert_eq!(fleet.layout(), kind.healthy_layout(), "{kind:?} {node} {seen:?}");
                fleet.pass(20).see(node, kind.seen(node, kind.healthy(node))).pass(1_000);
                assert_eq!(fleet.layout(), kind.healthy_layout(), "{kind:?} {node} {seen:?}, then well");
            }
        }
    }
}

/// One node in a component of its own, which calls itself primary.
#[test]
fn the_smaller_of_two_primary_components_is_out() {
    let settled = || Kind::Galera.settled();
    let mut fleet = settled();
    let alone = || galera(|view| view.cluster_size = 1);
    let both = || galera(|view| view.cluster_size = 2);
    let round = |fleet: &mut Fleet| {
        fleet.see("a", alone()).see("b", both()).see("c", both()).pass(20);
    };
    round(&mut fleet);
    assert_eq!(fleet.hostgroup(1), "a", "views change at slightly different times");
    (0..100).for_each(|_| round(&mut fleet));
    assert_eq!(fleet.layout(), "1: c; 2: b; 3: b; 4: a(SHUNNED,cut off)");
    // A node that joins is seen at different times, and excludes no node.
    let mut fleet = settled();
    for size in [2, 3, 2, 3] {
        for node in NODES {
            fleet.pass(1_600).see(node, galera(|view| view.cluster_size = size));
            assert_eq!(fleet.layout(), Kind::Galera.healthy_layout(), "size {size}");
        }
    }
    // Nor do those that come back to a cluster that was smaller for long.
    for node in ["b", "c"] {
        fleet.see(node, Observation::Galera(Err(unreachable())));
    }
    for _ in 0..10 {
        fleet.pass(500).see("a", alone());
    }
    for (node, size) in [("b", 2), ("c", 3)] {
        fleet.see(node, galera(|view| view.cluster_size = size)).pass(20);
        assert_eq!(fleet.hostgroup(1), "a", "{node} is back");
        for node in NODES {
            fleet.see(node, galera(|view| view.cluster_size = size));
        }
        for _ in 0..10 {
            fleet.pass(500).see("a", galera(|view| view.cluster_size = size));
        }
    }
}

/// Answers from before a loss belong to a run that is over. While the monitor is refused, nothing is known of the server.
#[test]
fn a_lost_server_that_refuses_the_monitor_stays_out() {
    let refused = || ProbeError::Denied("1045".to_owned());
    for kind in KINDS {
        for node in NODES {
            let role = |error: ProbeError| match kind {
                Kind::Replication => Observation::ReadOnly(Err(error)),
                Kind::Galera => Observation::Galera(Err(error)),
                Kind::Group => Observation::Group(Err(error)),
            };
            let serves = |fleet: &Fleet| (1..=3).any(|id| fleet.hostgroup(id).split(' ').any(|name| name == node));
            let others = |fleet: &mut Fleet, is_elected: bool| {
                for other in NODES.into_iter().filter(|other| *other != node) {
                    let is_elected = is_elected && kind == Kind::Group && (node, other) == ("a", "b");
                    let word = if is_elected { Word::Claims } else { kind.healthy(other) };
                    fleet.see(other, Observation::Ping(Ok(1))).see(other, kind.seen(other, word));
                }
            };
            // Found by the check itself, by pings alone, or by timeouts.
            let losses: [&dyn Fn(&mut Fleet); 3] = [
                &|fleet| _ = fleet.see(node, role(unreachable())),
                &|fleet| _ = fleet.see(node, Observation::Ping(Err(unreachable()))),
                &|fleet| _ = fleet.see(node, role(ProbeError::Timeout)).see(node, Observation::Ping(Err(ProbeError::Timeout))),
            ];
            for (way, lose) in losses.into_iter().enumerate() {
                let mut fleet = kind.settled();
                for _ in 0..5 {
                    others(&mut fleet, true);
                    lose(&mut fleet);
                    fleet.pass(1_000);
                }
                assert!(!serves(&fleet), "{kind:?} {node} {way}: {}", fleet.layout());
                for _ in 0..30 {
                    others(&mut fleet, true);
                    fleet.see(node, role(refused())).see(node, Observation::Ping(Err(refused()))).pass(1_000);
                    assert!(!serves(&fleet), "{kind:?} {node} {way}: {}", fleet.layout());
                }
                for _ in 0..30 {
                    others(&mut fleet, false);
                    fleet.see(node, Observation::Ping(Ok(1))).see(node, kind.seen(node, kind.healthy(node))).pass(1_000);
                }
                assert_eq!(fleet.layout(), kind.healthy_layout(), "{kind:?} {node} {way}: it is as it says");
            }
            // One that was there all along is as it was, and one of which nothing was ever known is as configured.
            let mut fleet = kind.settled();
            let mut new = Fleet::new(&kind.config());
            let as_configured = new.layout();
            NODES.into_iter().for_each(|node| _ = new.see(node, role(unreachable())).pass(10));
            for _ in 0..30 {
                for node in NODES {
                    fleet.see(node, role(refused())).see(node, Observation::Ping(Err(refused()))).pass(300);
                    new.see(node, role(refused())).see(node, Observation::Ping(Err(refused()))).pass(300);
                }
            }
            assert_eq!(fleet.layout(), kind.healthy_layout());
            assert_eq!(new.layout(), as_configured);
        }
    }
}
