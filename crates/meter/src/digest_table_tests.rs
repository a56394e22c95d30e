//! Workers' tables and the reader's totals against a map that forgets nothing.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const PLENTY: Bounds = Bounds { keys: 100_000, bytes: 1 << 30, spreads: true };

fn digest(n: u64) -> Arc<Digest> {
    Arc::new(Digest { hash: n, text: format!("SELECT {n}").into_bytes().into(), len: 0 })
}

fn parts(n: u64, user: &str) -> KeyParts<'_> {
    KeyParts { hostgroup: (n % 3) as i64, schema: b"shop", user, client: None, statement: n }
}

/// As a worker does it.
fn count(table: &mut DigestTable, n: u64, user: &str, one: Sums) {
    if table.count(&parts(n, user), &one).is_none() {
        table.insert(&parts(n, user), digest(n), 0, one);
    }
}

/// As a reader does it: everything, in slices.
fn drain(table: &mut DigestTable, slice: usize, totals: &mut DigestTotals, bounds: Bounds) {
    let mut from = Some(0);
    while let Some(at) = from {
        let (taken, next) = table.take(at, slice);
        assert!(taken.len() <= slice, "a slice is a slice");
        taken.into_iter().for_each(|counted| totals.add(counted, bounds));
        from = next;
    }
    totals.add_others(table.take_others());
}

fn statements(totals: &DigestTotals) -> u64 {
    totals.rows().map(|(_, sums, _)| sums.count).sum::<u64>() + totals.others().statements
}

proptest! {
    /// Several workers, read at random moments: the totals are the naive sums.
    #[test]
    fn totals_are_the_naive_sums(
        events in proptest::collection::vec((0..3_usize, 0..40_u64, 0..2_usize, 0..5_000_u64, 0..10_u64, any::<u8>()), 0..400),
        slice in 1..20_usize,
    ) {
        let users = ["anna", "ben"];
        let mut workers: Vec<_> = (0..3).map(|_| DigestTable::new(PLENTY)).collect();
        let (mut totals, mut naive) = (DigestTotals::default(), BTreeMap::<(u64, &str), Sums>::new());
        for (now, (worker, n, user, time_us, rows, chance)) in events.into_iter().enumerate() {
            let one = Sums::one(time_us, rows, rows * 2, now as u64);
            count(&mut workers[worker], n, users[user], one);
            naive.entry((n, users[user])).or_default().add(&one);
            match chance {
                0..10 => drain(&mut workers[worker], slice, &mut totals, PLENTY),
                10..14 => workers[worker].retire(),
                _ => {}
            }
        }
        workers.iter_mut().for_each(|w| drain(w, slice, &mut totals, PLENTY));
        let read: BTreeMap<_, _> = totals.rows().map(|(key, sums, _)| ((key.digest.hash, &*key.user), *sums)).collect();
        prop_assert_eq!(read, naive);
        prop_assert_eq!(totals.others(), Others::default());
    }

    /// However small the bounds: they hold, and no statement is lost from the count.
    #[test]
    fn bounds_hold_and_nothing_is_lost(
        events in proptest::collection::vec((0..60_u64, any::<u8>()), 0..500),
        keys in 0..12_usize,
        bytes in 200..4_000_usize,
    ) {
        let bounds = Bounds { keys, bytes, spreads: true };
        let (mut table, mut totals) = (DigestTable::new(bounds), DigestTotals::default());
        for (i, (n, chance)) in events.iter().enumerate() {
            count(&mut table, *n, "anna", Sums::one(1, 0, 0, i as u64));
            prop_assert!(table.slots.len() <= keys && table.bytes() <= bytes);
            prop_assert_eq!(table.slots.len(), table.index.len());
            if *chance < 20 {
                drain(&mut table, 3, &mut totals, bounds);
            }
            prop_assert!(totals.rows.len() <= keys && totals.bytes() <= bytes);
        }
        drain(&mut table, 3, &mut totals, bounds);
        prop_assert_eq!(statements(&totals), events.len() as u64);
    }
}

#[test]
fn more_than_a_hundred_thousand_digests_stay_within_the_bounds() {
    let bounds = Bounds { keys: 100_000, bytes: 1 << 30, spreads: true };
    let (mut table, mut totals) = (DigestTable::new(bounds), DigestTotals::default());
    for n in 0..250_000 {
        count(&mut table, n, "anna", Sums::one(1, 0, 0, n));
    }
    drain(&mut table, 512, &mut totals, bounds);
    assert_eq!(totals.rows().count(), 100_000);
    assert_eq!(totals.others(), Others { keys: 150_000, statements: 150_000 });
    for n in 250_000..350_000 {
        count(&mut table, n, "anna", Sums::one(1, 0, 0, n));
    }
    drain(&mut table, 512, &mut totals, bounds);
    assert!(totals.rows().count() <= 100_000);
    assert_eq!(statements(&totals), 350_000);
}

#[test]
fn what_is_used_stays() {
    let mut table = DigestTable::new(Bounds { keys: 10, bytes: 1 << 20, spreads: true });
    for n in 1..500 {
        count(&mut table, 0, "anna", Sums::one(1, 0, 0, n));
        count(&mut table, n, "anna", Sums::one(1, 0, 0, n));
    }
    let kept = table.slots.iter().find(|slot| slot.statement == 0).map(|slot| slot.unread.count);
    assert_eq!(kept, Some(499));
}

#[test]
fn the_reader_drops_what_was_used_longest_ago() {
    let bounds = Bounds { keys: 8, bytes: 1 << 20, spreads: true };
    let mut totals = DigestTotals::default();
    for n in 0..9 {
        let key = parts(n, "anna").owned(digest(n));
        totals.add(Counted { key, sums: Sums::one(1, 0, 0, n), spread: None }, bounds);
    }
    let mut left: Vec<_> = totals.rows().map(|(key, ..)| key.digest.hash).collect();
    left.sort_unstable();
    assert_eq!(left, [2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn rows_that_are_put_back_count_as_before() {
    let mut totals = DigestTotals::default();
    let add = |totals: &mut DigestTotals, n: u64| {
        totals.add(Counted { key: parts(n, "anna").owned(digest(n)), sums: Sums::one(1, 0, 0, n), spread: None }, PLENTY);
    };
    add(&mut totals, 1);
    add(&mut totals, 2);
    let bytes = totals.bytes();
    let taken = totals.take(5);
    assert_eq!((taken.rows().count(), totals.rows().count(), totals.bytes(), totals.cleared_ms()), (2, 0, 0, Some(5)));
    add(&mut totals, 2);
    totals.put_back(taken, PLENTY);
    assert_eq!((statements(&totals), totals.rows().count(), totals.bytes(), totals.cleared_ms()), (3, 2, bytes, None));
}

#[test]
fn durations_are_spread_once_there_are_enough_and_where_there_is_room() {
    let (mut table, mut totals) = (DigestTable::new(PLENTY), DigestTotals::default());
    let plain = DigestTable::new(PLENTY).bytes();
    for n in 1..=1_000 {
        count(&mut table, 0, "anna", Sums::one(n * 100, 0, 0, n));
        if n <= 4 {
            count(&mut table, 1, "anna", Sums::one(7, 0, 0, n));
        }
        if n % 10 == 0 {
            drain(&mut table, 3, &mut totals, PLENTY);
        }
    }
    let of =
        |totals: &DigestTotals, n: u64| totals.rows().find(|(key, ..)| key.digest.hash == n).and_then(|(_, _, spread)| spread.cloned());
    let spread = of(&totals, 0).unwrap();
    for (per_mille, exact) in [(500, 50_000), (950, 95_000), (990, 99_000)] {
        let found = spread.quantile(per_mille, 100, 100_000);
        assert!(found.abs_diff(exact) <= exact / 4, "{found} instead of {exact}");
    }
    assert_eq!(of(&totals, 1), None, "a percentile of four says nothing");
    // What is switched off goes, in both.
    let without = Bounds { spreads: false, ..PLENTY };
    let before = table.bytes();
    table.set_bounds(without);
    assert_eq!(table.bytes() + size_of::<Spread>(), before);
    (0..100).for_each(|n| count(&mut table, 0, "anna", Sums::one(5, 0, 0, n)));
    assert!(table.slots.iter().all(|slot| slot.spread.is_none()) && table.bytes() > plain);
    // Where there is no room for it, it is not counted, and nothing else goes.
    let mut full = DigestTable::new(PLENTY);
    count(&mut full, 0, "anna", Sums::one(5, 0, 0, 1));
    full.set_bounds(Bounds { bytes: full.bytes() + 100, ..PLENTY });
    (0..100).for_each(|n| count(&mut full, 0, "anna", Sums::one(5, 0, 0, n)));
    assert_eq!((full.slots.len(), full.slots[0].unread.count, full.slots[0].spread.is_none()), (1, 101, true));
}
