use super::*;
use crate::doubt::Doubt;
use crate::plan::Likeness;
use crate::tally::{Compared, PlanPair};

const LIMITS: Limits = Limits { slow_factor: 1.5, total_growth: 1.2 };

/// Comparisons of one digest: class, how many, time of both sides.
fn add(tally: &mut Tally, digest: u64, class: Class, count: u64, times_us: [u64; 2]) {
    let text = format!("SELECT {digest} FROM t GROUP BY a");
    for _ in 0..count {
        tally.add(&Compared { digest, text: text.as_bytes(), class, ignored: None, is_rechecked: false, times_us });
    }
}

fn ran(digest: u64, count: u64, sum_us: u64) -> Ran {
    Ran { digest, text: format!("SELECT {digest}"), count, sum_us }
}

fn word(tally: &Tally, ran: Vec<Ran>) -> Word {
    verdict(tally, &coverage(tally, ran), LIMITS).word
}

#[test]
fn safe_needs_coverage_and_no_difference() {
    let mut tally = Tally::default();
    assert_eq!(word(&tally, vec![]), Word::NotEnough, "nothing was compared");
    add(&mut tally, 1, Class::Same, 30, [100, 100]);
    assert_eq!(word(&tally, vec![ran(1, 1000, 96)]), Word::Safe);
    assert_eq!(word(&tally, vec![ran(1, 1000, 96), ran(2, 1, 4)]), Word::Safe, "96 % is enough");
    assert_eq!(word(&tally, vec![ran(1, 1000, 94), ran(2, 1, 6)]), Word::NotEnough);
    add(&mut tally, 2, Class::Noise, 1, [100, 100]);
    assert_eq!(word(&tally, vec![ran(1, 1000, 94), ran(2, 1, 6)]), Word::NotEnough, "noise says nothing");
    add(&mut tally, 2, Class::Same, 1, [100, 100]);
    assert_eq!(word(&tally, vec![ran(1, 1000, 94), ran(2, 1, 6)]), Word::Safe, "it was seen whenever it ran");
    assert_eq!(word(&tally, vec![ran(1, 1000, 94), ran(2, 2, 6)]), Word::NotEnough);
    for class in [Class::Timing, Class::SameUnordered, Class::Float, Class::Columns, Class::Warnings, Class::Reordered, Class::Limited] {
        add(&mut tally, 1, class, 1, [100, 100]);
        assert_eq!(word(&tally, vec![ran(1, 1000, 96)]), Word::Safe, "{class:?}");
    }
}

#[test]
fn one_bad_comparison_is_enough_against_it() {
    for class in [Class::ErrorNew, Class::Rows, Class::Count, Class::TimedOut] {
        let mut tally = Tally::default();
        add(&mut tally, 1, Class::Same, 1000, [100, 100]);
        add(&mut tally, 2, class, 1, [100, 100]);
        let verdict = verdict(&tally, &coverage(&tally, vec![ran(1, 1000, 100)]), LIMITS);
        assert_eq!(verdict.word, Word::NotSafe);
        assert_eq!(verdict.reasons, [format!("{}: 1 digest, once", class.name())]);
    }
}

#[test]
fn what_was_not_checked_covers_nothing() {
    let mut tally = Tally::default();
    add(&mut tally, 1, Class::Unchecked, 50, [100, 100]);
    assert_eq!(word(&tally, vec![ran(1, 50, 100)]), Word::NotEnough);
}

#[test]
fn differences_that_were_not_checked_leave_a_doubt() {
    let mut tally = Tally::default();
    add(&mut tally, 1, Class::Same, 990, [100, 100]);
    add(&mut tally, 1, Class::Unchecked, 10, [100, 100]);
    assert_eq!(word(&tally, vec![ran(1, 1000, 100)]), Word::Safe, "1 % is bearable");
    add(&mut tally, 2, Class::Same, 98, [100, 100]);
    add(&mut tally, 2, Class::Unchecked, 2, [100, 100]);
    let found = verdict(&tally, &coverage(&tally, vec![ran(1, 1000, 100)]), LIMITS);
    assert_eq!(
        (found.word, found.reasons),
        (Word::NotEnough, vec!["2 of 12 unchecked differences are more than 1 % of their digest's comparisons".to_owned()])
    );
    tally.add(&Compared { digest: 2, text: b"", class: Class::Columns, ignored: None, is_rechecked: true, times_us: [100, 100] });
    assert_eq!(word(&tally, vec![ran(1, 1000, 100)]), Word::NotEnough, "a confirmed difference says nothing of the others");
}

#[test]
fn the_page_says_why_differences_were_not_checked() {
    let mut tally = Tally::default();
    add(&mut tally, 1, Class::Same, 7, [100, 100]);
    for digest in 1..8 {
        add(&mut tally, digest, Class::Unchecked, 10 - digest, [100, 100]);
    }
    (0..2).for_each(|_| tally.note_doubt(1, Doubt::Busy));
    (0..7).for_each(|_| tally.note_doubt(1, Doubt::UsedUp));
    let lines = page(&About::default(), &tally, &Coverage::default(), LIMITS);
    let lines: Vec<&str> = lines.iter().filter(|(what, _)| *what == "unchecked").map(|(_, line)| line.as_str()).collect();
    assert_eq!(
        [lines[0], lines[1], lines[5]],
        [
            "9 times in 0x0000000000000001 SELECT 1 FROM t GROUP BY a: 7 rechecks_per_s used up, 2 two rechecks running, of 16 comparisons",
            "8 times in 0x0000000000000002 SELECT 2 FROM t GROUP BY a: of 8 comparisons",
            "2 digests more, 7 times",
        ]
    );
}

#[test]
fn the_page_says_which_parts_of_columns_differ() {
    let mut tally = Tally::default();
    add(&mut tally, 1, Class::Columns, 3, [100, 100]);
    tally.note_columns(1, [false, false, true, false, true, false]);
    (0..2).for_each(|_| tally.note_columns(1, [false, false, false, false, true, false]));
    let lines = page(&About::default(), &tally, &Coverage::default(), LIMITS);
    let expected = "columns: 3 times in 0x0000000000000001 SELECT 1 FROM t GROUP BY a; other columns: 3 flags, 1 types";
    assert!(lines.contains(&("look", expected.to_owned())), "{lines:#?}");
}

#[test]
fn digests_that_are_not_told_apart_count_against_it() {
    let mut tally = Tally::default();
    (0..MAX_DIGESTS as u64).for_each(|digest| add(&mut tally, digest, Class::Same, 1, [100, 100]));
    assert_eq!(word(&tally, vec![ran(1, 1, 100)]), Word::Safe);
    add(&mut tally, u64::MAX, Class::Rows, 2, [100, 100]);
    let found = verdict(&tally, &coverage(&tally, vec![ran(1, 1, 100)]), LIMITS);
    assert_eq!((found.word, found.reasons), (Word::NotSafe, vec!["rows: digests beyond the first 4096, 2 times".to_owned()]));
}

#[test]
fn a_share_that_is_not_known_is_not_enough() {
    let mut tally = Tally::default();
    add(&mut tally, 1, Class::Same, 30, [100, 100]);
    assert_eq!(coverage(&tally, vec![]).percent, 0.0);
    assert_eq!(word(&tally, vec![]), Word::NotEnough, "the statistics know of no read");
    let forgotten = Coverage { unknown: Some("the statistics were reset"), ..coverage(&tally, vec![ran(1, 30, 100)]) };
    let found = verdict(&tally, &forgotten, LIMITS);
    assert_eq!((found.word, found.reasons), (Word::NotEnough, vec!["coverage: the statistics were reset".to_owned()]));
}

#[test]
fn a_slower_digest_counts_by_what_it_costs() {
    let mut tally = Tally::default();
    add(&mut tally, 1, Class::Same, 10_000, [1000, 1000]);
    add(&mut tally, 2, Class::Same, 30, [1000, 9000]);
    let found = changed(&tally, 1.5, true);
    assert_eq!(found.iter().map(|changed| changed.digest).collect::<Vec<_>>(), [2]);
    assert_eq!(word(&tally, vec![ran(1, 1, 100)]), Word::Safe, "it hardly matters among all");
    add(&mut tally, 2, Class::Same, 1000, [1000, 9000]);
    assert_eq!(word(&tally, vec![ran(1, 1, 100)]), Word::NotSafe);
    assert_eq!(changed(&tally, 1.5, false), []);
}

#[test]
fn few_runs_and_less_than_a_millisecond_are_no_slowdown() {
    let mut tally = Tally::default();
    add(&mut tally, 1, Class::Same, 29, [1000, 90_000]);
    add(&mut tally, 2, Class::Same, 100, [100, 900]);
    assert_eq!(changed(&tally, 1.5, true), []);
    add(&mut tally, 1, Class::Same, 1, [1000, 90_000]);
    assert_eq!(changed(&tally, 1.5, true).len(), 1);
}

#[test]
fn the_page_says_it_all() {
    let mut tally = Tally::default();
    add(&mut tally, 1, Class::Same, 40, [400, 400]);
    add(&mut tally, 2, Class::ErrorNew, 3, [400, 400]);
    add(&mut tally, 3, Class::SameUnordered, 1, [400, 400]);
    (10..17).for_each(|digest| add(&mut tally, digest, Class::Columns, digest, [400, 400]));
    let coverage = coverage(&tally, vec![ran(1, 40, 90), ran(9, 7, 10)]);
    let about = About { headline: "upgrade: a against b".into(), notes: vec![("sessions", "3 sessions".into())] };
    let lines = page(&about, &tally, &coverage, LIMITS);
    let text: Vec<String> = lines.iter().map(|(what, line)| format!("{what}: {line}")).collect();
    assert_eq!(text[0..3], ["rehearsal: upgrade: a against b", "verdict: NOT SAFE", "reason: error_new: 1 digest, 3 times"]);
    for expected in [
        "coverage: 90.0 % of the statement time ran as digests that were compared (1 of 2); 1 unseen or too rare",
        "unseen: 0x0000000000000009 SELECT 9",
        "sessions: 3 sessions",
        "differs: error_new: 3 times in 0x0000000000000002 SELECT 2 FROM t GROUP BY a",
        "look: columns: 16 times in 0x0000000000000010 SELECT 16 FROM t GROUP BY a",
        "look: columns: 2 digests more",
    ] {
        assert!(text.iter().any(|line| line == expected), "{expected}\n{text:#?}");
    }
    assert!(text.iter().any(|line| line.contains("did a client rely on the order?")), "{text:#?}");
    assert!(text.last().unwrap().starts_with("all: p50 0.4"), "{text:#?}");
}

#[test]
fn the_page_names_what_is_other_in_a_plan() {
    let mut tally = Tally::default();
    for (digest, class, times_us) in [
        (1, Class::Same, [1000, 9000]),
        (2, Class::Same, [1000, 9000]),
        (3, Class::Rows, [1, 1]),
        (4, Class::Columns, [1, 1]),
        (5, Class::Rows, [1, 1]),
    ] {
        add(&mut tally, digest, class, 40, times_us);
    }
    for (digest, change, likeness) in [
        (1, "index ix_c lost: full scan of t", Likeness::Whole),
        (2, "", Likeness::Whole),
        (3, "sorts now", Likeness::AsFarAsTold),
        (4, "sorts now", Likeness::Whole),
        (5, "", Likeness::AsFarAsTold),
    ] {
        tally.keep_plans(digest, PlanPair { change: change.to_owned(), likeness, ..PlanPair::default() });
    }
    let lines = page(&About::default(), &tally, &Coverage::default(), LIMITS);
    let text: Vec<String> = lines.iter().map(|(what, line)| format!("{what}: {line}")).collect();
    for (begin, plan) in [
        ("slower: 0x0000000000000001", Some("index ix_c lost: full scan of t")),
        ("slower: 0x0000000000000002", Some("the same")),
        ("differs: rows: 40 times in 0x0000000000000003", Some("sorts now")),
        ("look: columns: 40 times in 0x0000000000000004", None),
        ("differs: rows: 40 times in 0x0000000000000005", Some("no difference in what both servers tell")),
    ] {
        let line = text.iter().find(|line| line.starts_with(begin)).unwrap();
        assert_eq!(line.split_once("; plan: ").map(|(_, plan)| plan), plan, "{line}");
    }
}
