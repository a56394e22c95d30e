//! Every short history of a small alphabet of sightings, for each kind of cluster.

mod common;

use common::histories::{History, KINDS, Kind};

/// Sightings after the cluster was seen healthy.
const DEPTH: usize = 4;

fn explore(history: &History, depth: usize, visit: &mut impl FnMut(&History)) {
    visit(history);
    if depth == 0 {
        return;
    }
    for node in 0..3 {
        for word in history.kind.alphabet() {
            let mut next = history.clone();
            next.tell(node, *word);
            explore(&next, depth - 1, visit);
        }
    }
}

fn every_history_holds(kind: Kind) {
    let mut count = 0;
    explore(&History::new(kind), DEPTH, &mut |history| {
        history.check();
        count += 1;
    });
    let letters = 3 * kind.alphabet().len();
    assert_eq!(count, (0..=DEPTH).map(|depth| letters.pow(u32::try_from(depth).unwrap_or(0))).sum::<usize>());
}

#[test]
fn replication() {
    every_history_holds(Kind::Replication);
}

#[test]
fn galera() {
    every_history_holds(Kind::Galera);
}

#[test]
fn group_replication() {
    every_history_holds(Kind::Group);
}

#[test]
fn every_state_ends_when_all_is_well() {
    for kind in KINDS {
        explore(&History::new(kind), 3, &mut |history| history.clone().recover());
    }
}
