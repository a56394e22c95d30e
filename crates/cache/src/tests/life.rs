//! From a miss to a hit to the end: lives, refreshes, single flight, refusals, flush.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::future::Future;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn is_hit(found: &Look) -> bool {
    matches!(found, Look::Hit(_))
}

#[test]
fn a_result_is_answered_for_its_ttl() {
    let cache = cache(|_| {});
    fill(look(&cache, "q", 0), &one("a"), 100).unwrap();
    let Look::Hit(entry) = look(&cache, "q", 1099) else { panic!() };
    assert_eq!((read_one(&entry).as_str(), entry.rows()), ("a", 1));
    assert!(matches!(look(&cache, "q", 1100), Look::Lead(_)));
    assert!(matches!(look(&cache, "other", 100), Look::Lead(_)));
    assert_eq!((value(&cache, "_GET"), value(&cache, "GET_OK"), value(&cache, "_SET")), (4, 1, 1));
    assert_eq!(value(&cache, "bytes_IN"), value(&cache, "bytes_OUT"));
}

#[test]
fn the_rules_present_ttl_counts_too() {
    let cache = cache(|_| {});
    fill(look(&cache, "q", 0), &one("a"), 0).unwrap();
    let with =
        |ttl_ms, now_ms| cache.look(key(&cache, "q"), ResultProtocol::Text, CachePolicy { ttl_ms, keeps_empty: None, since_ms: 0 }, now_ms);
    assert!(is_hit(&with(100, 99)));
    assert!(matches!(with(100, 100), Look::Lead(_)));
    assert!(is_hit(&with(5000, 999)));
    assert!(matches!(with(5000, 1000), Look::Lead(_)));
    assert!(matches!(with(0, 1), Look::Off));
}

/// What was asked for under other rights answers nobody, nor those who wait for it.
#[test]
fn results_of_before_a_change_of_rights_are_not_given() {
    let cache = cache(|_| {});
    let since = |since_ms, now_ms| cache.look(key(&cache, "q"), ResultProtocol::Text, CachePolicy { since_ms, ..TTL }, now_ms);
    let leader = since(0, 10);
    let Look::Follow(waiting) = since(11, 12) else { panic!() };
    fill(leader, &one("a"), 12).unwrap();
    assert!(run(waiting.wait()).is_none());
    assert!(is_hit(&since(10, 13)));
    fill(since(11, 13), &one("b"), 14).unwrap();
    let Look::Hit(entry) = since(11, 14) else { panic!() };
    assert_eq!(read_one(&entry), "b");
}

#[test]
fn after_the_soft_ttl_one_refreshes_and_the_others_read_on() {
    let cache = cache(|settings| settings.soft_ttl_pct = 50);
    fill(look(&cache, "q", 0), &one("old"), 0).unwrap();
    assert!(is_hit(&look(&cache, "q", 499)));
    let refresh = look(&cache, "q", 500);
    let Look::Hit(old) = look(&cache, "q", 501) else { panic!() };
    assert_eq!(read_one(&old), "old");
    fill(refresh, &one("new"), 600).unwrap();
    let Look::Hit(new) = look(&cache, "q", 601) else { panic!() };
    assert_eq!(read_one(&new), "new");
    assert_eq!((value(&cache, "Purged"), value(&cache, "Entries")), (1, 1));
}

#[test]
fn those_who_wait_get_the_leaders_result() {
    let cache = cache(|_| {});
    let leader = look(&cache, "q", 0);
    let Look::Follow(waiting) = look(&cache, "q", 0) else { panic!() };
    fill(leader, &one("a"), 0).unwrap();
    assert_eq!(read_one(&run(waiting.wait()).unwrap()), "a");
}

#[test]
fn a_leader_that_fails_releases_those_who_wait() {
    let cache = cache(|settings| settings.wait_ms = 3_600_000);
    let Look::Lead(leader) = look(&cache, "q", 0) else { panic!() };
    let Look::Follow(waiting) = look(&cache, "q", 0) else { panic!() };
    drop(leader);
    assert!(run(waiting.wait()).is_none());
    // The next one leads again.
    let leader = look(&cache, "q", 0);
    let Look::Follow(waiting) = look(&cache, "q", 0) else { panic!() };
    assert_eq!(fill(leader, b"\x09\0\0\x01\xff\x7a\x04#42S02", 0).unwrap_err(), NotCached::Error(1146));
    assert!(run(waiting.wait()).is_none());
    assert!(matches!(look(&cache, "q", 0), Look::Lead(_)));
}

#[test]
fn waiting_has_an_end() {
    let cache = cache(|settings| settings.wait_ms = 1);
    let _leader = look(&cache, "q", 0);
    let Look::Follow(waiting) = look(&cache, "q", 0) else { panic!() };
    assert!(run(waiting.wait()).is_none());
    cache.configure(CacheSettings { wait_ms: 0, ..CacheSettings::default() }, 0);
    assert!(matches!(look(&cache, "q", 0), Look::Off));
}

#[test]
fn a_result_that_is_too_large_releases_at_once_and_is_not_tried_again_soon() {
    let cache = cache(|settings| settings.max_entry_bytes = 100);
    let Look::Lead(mut leader) = look(&cache, "q", 0) else { panic!() };
    let Look::Follow(waiting) = look(&cache, "q", 0) else { panic!() };
    leader.feed(&[0; 50]);
    leader.feed(&vec![0; 10_000]);
    assert!(run(waiting.wait()).is_none());
    assert_eq!(leader.finish(TEXT_CAPS, 0).unwrap_err(), NotCached::TooLarge);
    assert!(matches!(look(&cache, "q", 999), Look::Off));
    assert!(matches!(look(&cache, "q", 1000), Look::Lead(_)));
}

#[test]
fn after_a_refusal_nobody_waits_in_vain() {
    let cache = cache(|settings| settings.keeps_empty = false);
    let empty = reply_empty();
    assert_eq!(fill(look(&cache, "q", 0), &empty, 0).unwrap_err(), NotCached::Empty);
    let (a, b) = (look(&cache, "q", 1), look(&cache, "q", 1));
    assert_eq!(fill(a, &empty, 1).unwrap_err(), NotCached::Empty);
    fill(b, &one("a"), 1).unwrap();
    assert!(is_hit(&look(&cache, "q", 2)));
}

fn reply_empty() -> Vec<u8> {
    reply(&[column(3)], &[], TEXT_CAPS)
}

#[test]
fn the_rule_outweighs_the_setting_about_empty_results() {
    let cache = cache(|settings| settings.keeps_empty = false);
    let ask = |keeps_empty| cache.look(key(&cache, "q"), ResultProtocol::Text, CachePolicy { ttl_ms: 1000, keeps_empty, since_ms: 0 }, 0);
    fill(ask(Some(true)), &reply_empty(), 0).unwrap();
    cache.flush();
    cache.configure(CacheSettings::default(), 0);
    assert_eq!(fill(ask(Some(false)), &reply_empty(), 0).unwrap_err(), NotCached::Empty);
    cache.flush();
    fill(ask(None), &reply_empty(), 0).unwrap();
}

#[test]
fn what_is_fetched_during_a_flush_is_not_kept() {
    let cache = cache(|_| {});
    fill(look(&cache, "kept", 0), &one("a"), 0).unwrap();
    let leader = look(&cache, "q", 0);
    let Look::Follow(waiting) = look(&cache, "q", 0) else { panic!() };
    assert_eq!(cache.flush(), 1);
    let second = look(&cache, "q", 0);
    assert_eq!(fill(leader, &one("stale"), 0).unwrap_err(), NotCached::Flushed);
    assert_eq!(read_one(&run(waiting.wait()).unwrap()), "stale");
    fill(second, &one("new"), 0).unwrap();
    let Look::Hit(entry) = look(&cache, "q", 0) else { panic!() };
    assert_eq!(read_one(&entry), "new");
    assert!(matches!(look(&cache, "kept", 0), Look::Lead(_)));
}

#[test]
fn a_sweep_takes_out_what_has_expired() {
    let cache = cache(|_| {});
    for n in 0..300 {
        fill(look(&cache, &n.to_string(), n), &one("a"), n).unwrap();
    }
    cache.sweep(1100);
    assert_eq!((value(&cache, "Entries"), value(&cache, "Purged")), (199, 101));
    cache.sweep(2000);
    assert_eq!((value(&cache, "Entries"), value(&cache, "Memory_bytes")), (0, 0));
}

#[test]
fn switched_off_it_is_empty() {
    let cache = cache(|_| {});
    fill(look(&cache, "q", 0), &one("a"), 0).unwrap();
    let under_way = look(&cache, "r", 0);
    cache.configure(CacheSettings { size_bytes: 0, ..CacheSettings::default() }, 0);
    assert!(!cache.is_on());
    assert!(matches!(look(&cache, "q", 0), Look::Off));
    assert!(fill(under_way, &one("a"), 0).is_err());
    assert_eq!((value(&cache, "Entries"), value(&cache, "Memory_bytes")), (0, 0));
}

#[test]
fn a_statement_that_is_sent_again_is_captured_anew() {
    let cache = cache(|_| {});
    let Look::Lead(mut leader) = look(&cache, "q", 0) else { panic!() };
    leader.feed(&one("lost")[..7]);
    leader.restart();
    leader.feed(&one("found"));
    assert_eq!(read_one(&leader.finish(TEXT_CAPS, 0).unwrap()), "found");
}

#[derive(Debug, Clone)]
enum Step {
    Ask { name: u8, ttl_ms: u64 },
    Pass { ms: u64 },
    Flush,
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6u8, 1..200u64).prop_map(|(name, ttl_ms)| Step::Ask { name, ttl_ms }),
        3 => (0..120u64).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Flush),
        1 => Just(Step::Sweep),
    ]
}

proptest! {
    /// With memory to spare, the cache is a map with times: what it answers, and when, is what the map says.
    #[test]
    fn it_answers_as_a_plain_map_would(steps in proptest::collection::vec(step(), 1..80)) {
        let cache = cache(|_| {});
        let mut model: HashMap<u8, (u64, u64, u64)> = HashMap::new();
        let (mut now, mut serial) = (0, 0);
        for step in steps {
            match step {
                Step::Pass { ms } => now += ms,
                Step::Sweep => cache.sweep(now),
                Step::Flush => {
                    cache.flush();
                    model.clear();
                }
                Step::Ask { name, ttl_ms } => {
                    let policy = CachePolicy { ttl_ms, keeps_empty: None, since_ms: 0 };
                    let found = cache.look(key(&cache, &name.to_string()), ResultProtocol::Text, policy, now);
                    let known = model.get(&name).filter(|(created, ttl, _)| now < created + ttl && now < created + ttl_ms);
                    match (found, known) {
                        (Look::Hit(entry), Some((_, _, serial))) => prop_assert_eq!(read_one(&entry), serial.to_string()),
                        (found @ Look::Lead(_), None) => {
                            serial += 1;
                            fill(found, &one(&serial.to_string()), now).unwrap();
                            model.insert(name, (now, ttl_ms, serial));
                        }
                        (found, known) => prop_assert!(false, "hit: {}, model: {:?}", is_hit(&found), known),
                    }
                }
            }
        }
        prop_assert_eq!(value(&cache, "_SET") - value(&cache, "Purged"), value(&cache, "Entries"));
    }
}
