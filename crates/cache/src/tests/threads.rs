//! Many threads at once: one fetch for each round, no stale answer, the size holds.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: usize = 8;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn all_who_ask_at_once_share_one_fetch() {
    let cache = cache(|settings| settings.wait_ms = 3_600_000);
    let barrier = Barrier::new(THREADS);
    let fetches = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let runtime = runtime();
                for round in 0..200u64 {
                    let name = format!("round {round}");
                    barrier.wait();
                    let entry = match look(&cache, &name, round) {
                        Look::Hit(entry) => entry,
                        Look::Follow(waiting) => runtime.block_on(waiting.wait()).expect("the leader finishes"),
                        found @ Look::Lead(_) => {
                            fetches.fetch_add(1, Ordering::Relaxed);
                            fill(found, &one(&name), round).unwrap()
                        }
                        Look::Off => panic!("the cache is on"),
                    };
                    assert_eq!(read_one(&entry), name);
                }
            });
        }
    });
    assert_eq!(fetches.load(Ordering::Relaxed), 200);
    assert_eq!(value(&cache, "GET_OK"), 200 * (THREADS as u64 - 1));
}

#[test]
fn a_small_cache_under_load_stays_small_and_answers_right() {
    const LIMIT: usize = 100_000;
    let cache = cache(|settings| {
        settings.size_bytes = LIMIT;
        settings.wait_ms = 3_600_000;
    });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || {
                let runtime = runtime();
                let mut random = 0x9e37_79b9_7f4a_7c15_u64 + thread as u64;
                for now in 0..5000u64 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let name = format!("{:0width$}", random >> 33 & 127, width = usize::try_from(random >> 50 & 1023).unwrap().max(3));
                    let entry = match look(cache, &name, now / 4) {
                        Look::Hit(entry) => Some(entry),
                        Look::Follow(waiting) => runtime.block_on(waiting.wait()),
                        Look::Lead(leader) if random & 15 == 0 => {
                            drop(leader);
                            None
                        }
                        found @ Look::Lead(_) => fill(found, &one(&name), now / 4).ok(),
                        Look::Off => None,
                    };
                    if let Some(entry) = entry {
                        assert_eq!(read_one(&entry), name);
                    }
                    if random & 1023 == 1 {
                        cache.flush();
                    }
                    assert!(cache.budget.used() <= LIMIT);
                }
            });
        }
    });
    cache.flush();
    assert_eq!((value(&cache, "Memory_bytes"), value(&cache, "Entries")), (0, 0));
}
