//! A deterministic world for healing: model servers, a network, clients, and a healer that judges by the product's own functions
//! (`topology::healing`, `Topology`). A seed is a run. Time is virtual.
//!
//! Modelled after crate `monitor`, where I/O is mixed in: the order of steps, their limits and the undo (`promotion`, `rejoin`), and what is
//! remembered from look to look (`mind`, `watch`, `tending`, `promoting`). What is changed there is changed here. `checks` says what must
//! hold, and marks as "Known" what does not yet; `sabotage` says what must be noticed. There is one healer, and room for several.
//!
//! `HEALING_SEED=17 cargo test -p topology --test healing_world one_seed -- --nocapture` shows one run, `HEALING_SEEDS=0..100000` runs
//! others than the usual ones. With `HEALING_STRICT=1` what is "Known" counts too.

#![allow(clippy::unwrap_used, clippy::panic)] // tests may panic

mod chaos;
mod checks;
mod clients;
mod clock;
mod look;
mod mind;
mod network;
mod numbers;
mod promoting;
mod promotion;
mod proxy;
mod random;
mod rejoin;
mod replication;
mod sabotage;
mod server;
mod tending;
mod watch;
mod world;

use std::collections::BTreeMap;
use std::ops::Range;

use sabotage::Sabotage;
use world::run;

/// Worlds of an ordinary run of the tests.
const SEEDS: u64 = 600;
/// Failed seeds that are named.
const SHOWN: usize = 20;
/// Each sabotage is noticed by a seed among so many.
const NOTICED_WITHIN: u64 = 1_500;

fn seeds() -> Range<u64> {
    let told = std::env::var("HEALING_SEEDS").ok();
    let ends = told.as_deref().and_then(|told| told.split_once(".."));
    ends.map_or(0..SEEDS, |(from, to)| from.parse().unwrap()..to.parse().unwrap())
}

fn all_is_well(seeds: Range<u64>) {
    let (mut counts, mut failed) = (BTreeMap::<&str, u64>::new(), Vec::new());
    for seed in seeds.clone() {
        let outcome = run(seed, None, false);
        failed.extend(outcome.violations.into_iter().map(|what| format!("seed {seed}: {what}")).take(1));
        for (what, count) in outcome.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{seeds:?}: {counts:?}");
    failed.truncate(SHOWN);
    assert!(failed.is_empty(), "HEALING_SEED=n shows a seed: {failed:#?}");
}

// Two tests, so that two processors share the work.

#[test]
fn the_first_half_of_the_seeds_is_well() {
    let seeds = seeds();
    all_is_well(seeds.start..seeds.start.midpoint(seeds.end));
}

#[test]
fn the_second_half_of_the_seeds_is_well() {
    let seeds = seeds();
    all_is_well(seeds.start.midpoint(seeds.end)..seeds.end);
}

/// A world that cannot fail proves nothing.
#[test]
fn every_sabotage_is_noticed() {
    let is_noticed = |sabotage: Sabotage| (0..NOTICED_WITHIN).find(|seed| !run(*seed, Some(sabotage), false).violations.is_empty());
    let found: Vec<(Sabotage, Option<u64>)> = Sabotage::ALL.into_iter().map(|sabotage| (sabotage, is_noticed(sabotage))).collect();
    println!("{found:?}");
    let unnoticed: Vec<Sabotage> = found.into_iter().filter(|(_, seed)| seed.is_none()).map(|(sabotage, _)| sabotage).collect();
    assert!(unnoticed.is_empty(), "nothing fails with {unnoticed:?}");
}

/// A printed seed reproduces its run, line by line.
#[test]
fn a_seed_is_a_run() {
    for seed in 0..20 {
        let (first, second) = (run(seed, None, true).trace, run(seed, None, true).trace);
        assert!(first.len() > 5, "seed {seed} has a trace");
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Prints the run of `HEALING_SEED`, with `HEALING_SABOTAGE` if it is set.
#[test]
fn one_seed() {
    let Some(seed) = std::env::var("HEALING_SEED").ok().and_then(|seed| seed.parse().ok()) else { return };
    let named = std::env::var("HEALING_SABOTAGE").ok();
    let sabotage = named.map(|name| Sabotage::ALL.into_iter().find(|one| format!("{one:?}") == name).unwrap());
    let outcome = run(seed, sabotage, true);
    println!("{}", outcome.trace.join("\n"));
    assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
}
