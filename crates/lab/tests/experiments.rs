//! The experiments in short: each works, and its promises hold once. `make experiments` runs them in full.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::Flavor;
use lab::experiments::report::Class;
use lab::experiments::scene::Seen;
use lab::experiments::{Extent, aurora, failover, galera, group, mirror, stale, switchover};

/// One at a time: clusters notice a lost member by the clock, and clients and servers share few processors.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes flow again, nothing is lost or doubled, and of what failed nothing could have been done again.
#[track_caller]
fn fails_over(flavor: Flavor) {
    let _alone = alone();
    let series = failover::Plan::new(flavor, Extent::Short).run(|_, _| {}).unwrap();
    for one in &series {
        println!("{}\n{}", one.line(), one.error_lines().join("\n"));
        assert_eq!(one.stuck(), 0);
        assert!(one.audit().is_clean(), "{:?}", one.audit());
        let mut errors = one.rounds.iter().flat_map(|round| round.tally.errors.keys());
        let avoidable = errors.find(|(code, during)| Class::of(*code, during) == Class::Avoidable);
        assert_eq!(avoidable, None, "{:?}", one.error_lines());
    }
}

lab::each!(fails_over);

#[test]
fn switchover_without_an_error() {
    let _alone = alone();
    let series = switchover::run(Flavor::Mariadb, switchover::runs(Extent::Short), |_, _| {}).unwrap();
    println!("{}\n{}", series.line(), series.error_lines().join("\n"));
    assert_eq!(series.rounds.iter().map(|round| round.tally.error_count()).sum::<u64>(), 0, "{:?}", series.error_lines());
    assert!(series.audit().is_clean());
}

#[track_caller]
fn holds(seen: &Result<Seen, lab::LabError>) {
    let seen = seen.as_ref().unwrap();
    println!("{}\n{}", seen.line(), seen.error_lines().join("\n"));
    assert_eq!(seen.broken(&["BEGIN"]), Vec::<String>::new());
}

#[test]
fn galera_nodes() {
    let _alone = alone();
    galera::run(Extent::Short, None, |_, seen| holds(seen)).unwrap();
}

#[test]
fn group_members() {
    let _alone = alone();
    group::run(Extent::Short, None, |_, seen| seen.into_iter().for_each(holds)).unwrap();
}

#[test]
fn aurora_stand_in() {
    let _alone = alone();
    aurora::run(Extent::Short, None, holds).unwrap();
}

fn reads_own_writes(flavor: Flavor) {
    let _alone = alone();
    let measured = stale::run(flavor, Extent::Short, |one| println!("{}", one.line())).unwrap();
    assert!(measured.iter().all(stale::Measured::is_kept));
    // The experiment shows something: without causal reads a replica that is a second behind gives the past.
    assert!(measured.iter().any(|one| one.mode == "off" && one.stale > 0));
}

lab::each!(reads_own_writes);

fn mirrored_writes(flavor: Flavor) {
    let _alone = alone();
    let measured = mirror::run(flavor, Extent::Short, |one| println!("{}", one.line())).unwrap();
    assert!(measured.iter().all(mirror::Measured::is_kept));
    let copies = |way| measured.iter().find(|one| one.way == way).unwrap().copies.unwrap();
    // In order, nothing stands in the way of the copies; behind a mirror that stands still there is no room for all.
    assert_eq!((copies(mirror::Way::Mirrored).arrived, copies(mirror::Way::Mirrored).lost), (400, 0));
    assert!(copies(mirror::Way::Frozen).lost > 0);
}

lab::each!(mirrored_writes);
