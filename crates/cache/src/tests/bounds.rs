//! The size is hard: whatever is stored, fetched, read or flushed, and in whatever order.

use super::*;
use proptest::prelude::*;

const LIMIT: usize = 64 << 10;

#[derive(Debug, Clone)]
enum Step {
    Begin { name: u16, bytes: usize },
    Feed { which: usize, bytes: usize },
    Finish { which: usize },
    Drop { which: usize },
    Hold { name: u16 },
    Release,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..500u16, 0..20_000usize).prop_map(|(name, bytes)| Step::Begin { name, bytes }),
        6 => (0..8usize, 0..20_000usize).prop_map(|(which, bytes)| Step::Feed { which, bytes }),
        5 => (0..8usize).prop_map(|which| Step::Finish { which }),
        1 => (0..8usize).prop_map(|which| Step::Drop { which }),
        2 => (0..500u16).prop_map(|name| Step::Hold { name }),
        1 => Just(Step::Release),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn memory_never_exceeds_the_limit(steps in proptest::collection::vec(step(), 1..200)) {
        let cache = cache(|settings| settings.size_bytes = LIMIT);
        let mut fills = Vec::new();
        let mut readers = Vec::new();
        for (now, step) in (0u64..).zip(steps) {
            match step {
                Step::Begin { name, bytes } => {
                    if let Look::Lead(fill) = look(&cache, &name.to_string(), now) {
                        fills.push((fill, one(&"x".repeat(bytes))));
                    }
                }
                Step::Feed { which, bytes } => {
                    if let Some((fill, left)) = fills.get_mut(which) {
                        let rest = left.split_off(bytes.min(left.len()));
                        fill.feed(&std::mem::replace(left, rest));
                    }
                }
                Step::Finish { which } if which < fills.len() => {
                    let (mut fill, left) = fills.swap_remove(which);
                    fill.feed(&left);
                    prop_assert!(cache.budget.used() <= LIMIT);
                    let _ = fill.finish(TEXT_CAPS, now);
                }
                Step::Drop { which } if which < fills.len() => drop(fills.swap_remove(which)),
                Step::Hold { name } => {
                    if let Look::Hit(entry) = look(&cache, &name.to_string(), now) {
                        readers.push(entry);
                    }
                }
                Step::Release => readers.clear(),
                Step::Flush => {
                    cache.flush();
                }
                Step::Finish { .. } | Step::Drop { .. } => {}
            }
            prop_assert!(cache.budget.used() <= LIMIT);
        }
        drop((fills, readers));
        cache.flush();
        prop_assert_eq!(cache.budget.used(), 0);
        prop_assert_eq!(value(&cache, "Entries"), 0);
    }
}

#[test]
fn what_is_used_stays_and_what_is_not_goes() {
    let cache = cache(|settings| settings.size_bytes = 256 << 10);
    let large = "x".repeat(1000);
    let store = |name: &str, now| {
        if let found @ Look::Lead(_) = look(&cache, name, now) {
            fill(found, &one(&large), now).unwrap();
        }
    };
    store("hot", 0);
    for n in 0..2000 {
        store(&n.to_string(), 1);
        assert!(matches!(look(&cache, "hot", 1), Look::Hit(_)), "evicted after {n}");
    }
    assert!(value(&cache, "Entries") > 100);
    assert!(value(&cache, "Purged") > 1000);
}

#[test]
fn results_of_readers_count_until_they_are_let_go() {
    let cache = cache(|settings| settings.size_bytes = 20_000);
    let entry = fill(look(&cache, "held", 0), &one(&"x".repeat(12_000)), 0).unwrap();
    cache.flush();
    assert_eq!(fill(look(&cache, "q", 0), &one(&"x".repeat(12_000)), 0).unwrap_err(), NotCached::NoRoom);
    drop(entry);
    fill(look(&cache, "q", 0), &one(&"x".repeat(12_000)), 0).unwrap();
}

#[test]
fn a_smaller_limit_holds_at_once() {
    let cache = cache(|_| {});
    for n in 0..200 {
        fill(look(&cache, &n.to_string(), 0), &one(&"x".repeat(1000)), 0).unwrap();
    }
    cache.configure(CacheSettings { size_bytes: 50_000, ..CacheSettings::default() }, 0);
    let (used, entries) = (value(&cache, "Memory_bytes"), value(&cache, "Entries"));
    assert!(used <= 50_000 && entries > 10, "{used} {entries}");
}
