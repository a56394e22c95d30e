//! A few hundred worlds; that the same seed gives the same run; and that nothing could be left out unnoticed.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use sim::{Lack, Outcome, Settings, run};

/// Worlds in the ordinary run of tests; `make sim` runs more.
const SEEDS: u64 = 240;
/// Without a check some seed among so many fails.
const FOUND_WITHIN: u64 = 200;

fn all_is_well(seeds: std::ops::Range<u64>) {
    seeds.for_each(|seed| is_well(seed, false));
}

fn is_well(seed: u64, is_never_upgraded: bool) {
    let Outcome { violations, .. } = run(seed, &Settings { is_never_upgraded, ..Settings::default() });
    assert!(violations.is_empty(), "seed {seed} (`sim --seed {seed} --trace` shows it): {violations:#?}");
}

// Two tests, so that two processors share the work.

#[test]
fn promises_hold_in_the_first_half() {
    all_is_well(0..SEEDS / 2);
}

#[test]
fn promises_hold_in_the_second_half() {
    all_is_well(SEEDS / 2..SEEDS);
}

/// Seeds that found a bug once, of sessions or of the simulator itself, when no world was upgraded.
#[test]
fn found_before() {
    for seed in [971, 1084, 1675, 1832, 2077, 2902, 3238, 3359, 5363, 6159, 9607, 21638] {
        is_well(seed, true);
    }
}

/// The whole trace is the same, line by line: a printed seed reproduces its run.
#[test]
fn a_seed_is_a_run() {
    let settings = Settings { is_traced: true, ..Settings::default() };
    for seed in 0..12 {
        let (first, second) = (run(seed, &settings), run(seed, &settings));
        assert!(first.trace.len() > 20, "seed {seed} has a trace");
        let differs = first.trace.iter().zip(&second.trace).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.trace.len(), second.trace.len(), "seed {seed}");
    }
}

/// A simulator that cannot fail proves nothing: without any one check some seed fails.
#[test]
fn every_check_is_needed() {
    let unnoticed: Vec<&str> = Lack::all().into_iter().filter(|lack| !is_noticed(*lack)).map(Lack::name).collect();
    assert!(unnoticed.is_empty(), "nothing fails without {unnoticed:?}");
}

fn is_noticed(lack: Lack) -> bool {
    let settings = Settings { without: vec![lack], ..Settings::default() };
    (0..FOUND_WITHIN).any(|seed| !run(seed, &settings).violations.is_empty())
}
