//! What was compared so far, by digest: how often each class, how long each side took, and a few samples.
//!
//! INVARIANT: at most [`MAX_DIGESTS`] digests and [`MAX_SAMPLES`] samples are held; comparisons of further digests are counted together.

use crate::answer::COLUMN_PARTS;
use crate::doubt::{DOUBTS, Doubt};
use crate::judge::{CLASSES, Class, Weight};
use crate::plan::{Likeness, QueryPlan};
use crate::spread::Spread;
use crate::statement::Traits;
use crate::verdict;
use model::snapshot::RehearsalIgnore;
use std::collections::HashMap;

/// Most digests that are told apart, about 1.5 KB each.
pub const MAX_DIGESTS: usize = 4096;
/// Most samples of a rehearsal, about 4 KB each at most.
const MAX_SAMPLES: usize = 1024;
/// Most digests of a rehearsal whose plans are kept, about 4 KB each at most.
pub const MAX_PLANS: usize = 512;
/// Questions for the plans of a digest in [`PLANS_WITHIN_MS`].
const PLANS_OF_DIGEST: usize = 2;
/// See [`PLANS_OF_DIGEST`].
const PLANS_WITHIN_MS: u64 = 15 * 60_000;
/// Characters of a plan that are kept.
const PLAN_SHOWN: usize = 1024;

/// Differences of a digest that a second question confirmed; further ones are believed.
const CONFIRMED: u32 = 3;
/// Unchecked differences of a digest leave a doubt if they are more than one in as many comparisons.
const UNCHECKED_ONE_OF: u64 = 100;

/// A comparison.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    /// Hash of the digest's text.
    pub digest: u64,
    /// The digest's text.
    pub text: &'a [u8],
    /// What was found.
    pub class: Class,
    /// The row of `mysql_rehearsal_ignores` because of which it counts as [`Class::Ignored`].
    pub ignored: Option<&'a RehearsalIgnore>,
    /// A second question led to that.
    pub is_rechecked: bool,
    /// Time on the original's server and on the shadow's, us.
    pub times_us: [u64; 2],
}

/// One difference, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Hash of the digest's text.
    pub digest: u64,
    /// The class of the difference.
    pub class: Class,
    /// When it was seen, Unix s.
    pub seen_at: u64,
    /// The session's user.
    pub user: String,
    /// The session's schema.
    pub schema: String,
    /// The statement, or its digest's text.
    pub text: String,
    /// What the original answered.
    pub original: String,
    /// What the shadow answered.
    pub shadow: String,
}

/// How both servers run a statement of a digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanPair {
    /// Why they were asked: a class, or `slower`.
    pub reason: &'static str,
    /// When they were asked, Unix s.
    pub seen_at: u64,
    /// The original's plan.
    pub original: String,
    /// The shadow's plan.
    pub shadow: String,
    /// What is other on the shadow; empty if nothing is.
    pub change: String,
    /// What an empty change says.
    pub likeness: Likeness,
}

impl PlanPair {
    /// Both plans in text.
    pub fn new(reason: &'static str, seen_at: u64, [original, shadow]: [&QueryPlan; 2]) -> Self {
        let cut = |text: String| text.chars().take(PLAN_SHOWN).collect();
        let change = cut(original.changes(shadow));
        let likeness = original.likeness(shadow);
        Self { reason, seen_at, original: cut(original.to_string()), shadow: cut(shadow.to_string()), change, likeness }
    }

    /// What is other on the shadow, for people.
    pub fn words(&self) -> &str {
        match (&*self.change, self.likeness) {
            ("", Likeness::Whole) => "the same",
            ("", Likeness::AsFarAsTold) => "no difference in what both servers tell",
            (change, _) => change,
        }
    }
}

/// What was compared of one digest.
#[derive(Clone, Debug, Default)]
pub struct OfDigest {
    /// The digest's text.
    pub text: Box<str>,
    /// Comparisons by class, in the order of [`CLASSES`].
    pub counts: [u64; CLASSES.len()],
    /// Time on the servers where both sides succeeded.
    pub times: [Spread; 2],
    /// The row of `mysql_rehearsal_ignores` that named its last ignored difference.
    pub ignored_by: Option<Box<str>>,
    /// Unchecked differences by their reason, in the order of [`DOUBTS`], as far as it is known.
    pub doubts: [u64; DOUBTS.len()],
    /// Comparisons of [`Class::Columns`] in which each part differed, in the order of [`COLUMN_PARTS`].
    pub column_parts: [u64; COLUMN_PARTS.len()],
    /// How both servers run it, if they were asked.
    pub plans: Option<Box<PlanPair>>,
    /// When they were asked last, the latest first: process clock, ms.
    planned_ms: [Option<u64>; PLANS_OF_DIGEST],
    confirmed: u32,
    noisy: u32,
}

impl OfDigest {
    /// Comparisons of this class.
    pub fn count(&self, class: Class) -> u64 {
        self.counts.get(class as usize).copied().unwrap_or(0)
    }

    /// Comparisons of classes that count as `weight`.
    pub fn weighing(&self, weight: Weight) -> u64 {
        CLASSES.iter().filter(|class| class.weight() == weight).map(|class| self.count(*class)).sum()
    }

    /// Differences of which nothing is known, where they are more than 1 % of the comparisons. Confirmed ones say nothing of them.
    pub fn in_doubt(&self) -> u64 {
        let unchecked = self.count(Class::Unchecked);
        let is_many = unchecked * UNCHECKED_ONE_OF > self.counts.iter().sum();
        if is_many { unchecked } else { 0 }
    }

    /// Comparisons that say something.
    pub fn compared(&self) -> u64 {
        telling(&self.counts)
    }
}

/// Comparisons that say something, of counts by class.
fn telling(counts: &[u64; CLASSES.len()]) -> u64 {
    CLASSES.iter().zip(counts).filter(|(class, _)| class.weight() != Weight::Nothing).map(|(_, count)| *count).sum()
}

/// What is done about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// It is of this class.
    Take(Class),
    /// Both servers are asked again.
    Ask,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    digests: HashMap<u64, OfDigest>,
    /// Comparisons of digests beyond [`MAX_DIGESTS`], by class.
    others: [u64; CLASSES.len()],
    samples: Vec<Sample>,
    /// Digests whose plans are kept.
    planned: usize,
}

impl Tally {
    /// What is done about a comparison that found `class` at first.
    pub fn opinion(&self, digest: u64, class: Class, traits: Traits) -> Opinion {
        let is_of_rows = matches!(class, Class::Rows | Class::Count | Class::Reordered | Class::Float);
        if is_of_rows && class != Class::Count && traits.noise.is_some() {
            return Opinion::Take(Class::Noise);
        }
        if !class.may_be_timing() {
            return Opinion::Take(class);
        }
        match self.digests.get(&digest) {
            Some(known) if known.confirmed >= CONFIRMED => Opinion::Take(class.under(traits)),
            Some(known) if is_of_rows && known.confirmed == 0 && known.noisy >= CONFIRMED => Opinion::Take(Class::Noise),
            _ => Opinion::Ask,
        }
    }

    /// Counts a comparison.
    pub fn add(&mut self, compared: &Compared<'_>) {
        let class = if compared.ignored.is_some() { Class::Ignored } else { compared.class };
        if self.digests.len() >= MAX_DIGESTS && !self.digests.contains_key(&compared.digest) {
            if let Some(count) = self.others.get_mut(class as usize) {
                *count += 1;
            }
            return;
        }
        let digest = self
            .digests
            .entry(compared.digest)
            .or_insert_with(|| OfDigest { text: String::from_utf8_lossy(compared.text).into(), ..OfDigest::default() });
        if let Some(count) = digest.counts.get_mut(class as usize) {
            *count += 1;
        }
        if let Some(row) = compared.ignored {
            let text = row.text();
            if digest.ignored_by.as_deref() != Some(&*text) {
                digest.ignored_by = Some(text.into());
            }
        }
        if compared.is_rechecked {
            match class {
                Class::Noise => digest.noisy += 1,
                Class::Timing | Class::Unchecked | Class::Ignored => {}
                _ => digest.confirmed += 1,
            }
        }
        let has_failed = matches!(compared.class, Class::ErrorNew | Class::ErrorGone | Class::ErrorOther | Class::TimedOut);
        if !has_failed {
            digest.times.iter_mut().zip(compared.times_us).for_each(|(spread, us)| spread.add(us));
        }
    }

    /// A comparison of a digest was counted as unchecked for this reason.
    pub fn note_doubt(&mut self, digest: u64, doubt: Doubt) {
        if let Some(count) = self.digests.get_mut(&digest).and_then(|digest| digest.doubts.get_mut(doubt as usize)) {
            *count += 1;
        }
    }

    /// These parts of the column definitions differed in a comparison of a digest that was counted as [`Class::Columns`].
    pub fn note_columns(&mut self, digest: u64, differ: [bool; COLUMN_PARTS.len()]) {
        if let Some(digest) = self.digests.get_mut(&digest) {
            digest.column_parts.iter_mut().zip(differ).for_each(|(count, differs)| *count += u64::from(differs));
        }
    }

    /// Whether a sample of this class is wanted of the digest, where `most` are kept.
    pub fn wants_sample(&self, digest: u64, class: Class, most: usize) -> bool {
        // It is why a session is incomplete.
        let is_told = matches!(class.weight(), Weight::Bad | Weight::Look) || class == Class::OutOfOrder;
        is_told
            && self.samples.len() < MAX_SAMPLES
            && self.samples.iter().filter(|sample| sample.digest == digest && sample.class == class).count() < most
    }

    /// Keeps a sample.
    pub fn keep(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// The samples, oldest first.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Why the plans of a statement are of interest, whose comparison was counted as `class` just now and took so long (us).
    pub fn plan_reason(&self, digest: u64, class: Class, times_us: [u64; 2], slow_factor: f64) -> Option<&'static str> {
        if class.may_be_of_plan() {
            return Some(class.name());
        }
        // A digest has slow and fast statements: one that was slow itself shows more.
        let is_slow = class.weight() != Weight::Nothing && verdict::took_longer(times_us, slow_factor);
        let is_slower = is_slow && self.get(digest).is_some_and(|digest| verdict::is_slower(digest, slow_factor));
        is_slower.then_some("slower")
    }

    /// Whether a digest's plans may be asked for at this time (process clock, ms): twice in 15 minutes.
    pub fn may_plan(&self, digest: u64, now_ms: u64) -> bool {
        let Some(digest) = self.digests.get(&digest) else { return false };
        let is_free = |asked: &Option<u64>| asked.is_none_or(|asked_ms| now_ms >= asked_ms.saturating_add(PLANS_WITHIN_MS));
        digest.planned_ms.iter().any(is_free) && (digest.plans.is_some() || self.planned < MAX_PLANS)
    }

    /// They are asked for now.
    pub fn note_plan(&mut self, digest: u64, now_ms: u64) {
        let Some(digest) = self.digests.get_mut(&digest) else { return };
        digest.planned_ms.rotate_right(1);
        digest.planned_ms[0] = Some(now_ms);
    }

    /// Keeps a pair of plans in the place of the digest's last one.
    pub fn keep_plans(&mut self, digest: u64, pair: PlanPair) {
        let Some(digest) = self.digests.get_mut(&digest) else { return };
        if digest.plans.is_none() {
            if self.planned >= MAX_PLANS {
                return;
            }
            self.planned += 1;
        }
        digest.plans = Some(Box::new(pair));
    }

    /// One digest.
    pub fn get(&self, digest: u64) -> Option<&OfDigest> {
        self.digests.get(&digest)
    }

    /// Every digest with its hash, those that took the originals longest first.
    pub fn digests(&self) -> Vec<(u64, &OfDigest)> {
        let mut all: Vec<(u64, &OfDigest)> = self.digests.iter().map(|(hash, digest)| (*hash, digest)).collect();
        all.sort_by_key(|(hash, digest)| (std::cmp::Reverse(digest.times[0].sum_us()), *hash));
        all
    }

    /// Comparisons of this class.
    pub fn count(&self, class: Class) -> u64 {
        self.digests.values().map(|digest| digest.count(class)).sum::<u64>() + self.of_others(class)
    }

    /// Comparisons that say something.
    pub fn compared(&self) -> u64 {
        self.digests.values().map(OfDigest::compared).sum::<u64>() + telling(&self.others)
    }

    /// Comparisons of this class of digests beyond [`MAX_DIGESTS`].
    pub fn of_others(&self, class: Class) -> u64 {
        self.others.get(class as usize).copied().unwrap_or(0)
    }

    /// Comparisons of digests beyond [`MAX_DIGESTS`].
    pub fn others(&self) -> u64 {
        self.others.iter().sum()
    }

    /// Differences of which nothing is known, of digests where they leave a doubt.
    pub fn in_doubt(&self) -> u64 {
        let unchecked = self.of_others(Class::Unchecked);
        let of_others = if unchecked * UNCHECKED_ONE_OF > self.others() { unchecked } else { 0 };
        self.digests.values().map(OfDigest::in_doubt).sum::<u64>() + of_others
    }
}

impl Class {
    /// The class of a confirmed difference of a statement with these traits.
    pub fn under(self, traits: Traits) -> Self {
        match self {
            Self::Rows if traits.is_limited => Self::Limited,
            Self::Count if traits.is_limited_inside => Self::Limited,
            class => class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(digest: u64, class: Class, is_rechecked: bool) -> Compared<'static> {
        Compared { digest, text: b"SELECT ?", class, ignored: None, is_rechecked, times_us: [10, 20] }
    }

    #[test]
    fn a_difference_that_was_confirmed_often_is_believed() {
        let (mut tally, plain) = (Tally::default(), Traits::default());
        for _ in 0..3 {
            assert_eq!(tally.opinion(1, Class::Rows, plain), Opinion::Ask);
            tally.add(&compared(1, Class::Rows, true));
        }
        assert_eq!(tally.opinion(1, Class::Rows, plain), Opinion::Take(Class::Rows));
        assert_eq!(tally.opinion(1, Class::Rows, Traits { is_limited: true, ..plain }), Opinion::Take(Class::Limited));
        assert_eq!(tally.opinion(2, Class::Rows, plain), Opinion::Ask, "of another digest nothing is known");
    }

    #[test]
    fn a_limit_at_the_top_does_not_hide_how_many_rows_there_are() {
        let top = Traits { is_limited: true, ..Traits::default() };
        let inside = Traits { is_limited_inside: true, ..top };
        assert_eq!(
            [Class::Rows, Class::Count, Class::ErrorNew].map(|class| class.under(top)),
            [Class::Limited, Class::Count, Class::ErrorNew]
        );
        assert_eq!([Class::Rows, Class::Count].map(|class| class.under(inside)), [Class::Limited; 2]);
    }

    #[test]
    fn doubts_are_counted_by_digest() {
        let mut tally = Tally::default();
        tally.note_doubt(1, Doubt::Lag);
        tally.add(&compared(1, Class::Unchecked, true));
        tally.note_doubt(1, Doubt::Lag);
        tally.note_doubt(1, Doubt::TooLong);
        assert_eq!(tally.get(1).unwrap().doubts, [0, 0, 1, 0, 0, 0, 0, 1]);
        DOUBTS.iter().enumerate().for_each(|(place, doubt)| assert_eq!(*doubt as usize, place));
    }

    #[test]
    fn what_is_noise_each_time_is_not_asked_for_ever() {
        let (mut tally, plain) = (Tally::default(), Traits::default());
        (0..3).for_each(|_| tally.add(&compared(1, Class::Noise, true)));
        assert_eq!(tally.opinion(1, Class::Rows, plain), Opinion::Take(Class::Noise));
        assert_eq!(tally.opinion(1, Class::ErrorNew, plain), Opinion::Ask, "noise does not hide errors");
        tally.add(&compared(1, Class::Rows, true));
        assert_eq!(tally.opinion(1, Class::Rows, plain), Opinion::Ask, "a real difference was seen once");
    }

    #[test]
    fn noise_of_the_text_hides_rows_and_no_error() {
        let (tally, noisy) = (Tally::default(), Traits { noise: Some("it draws lots"), ..Traits::default() });
        assert_eq!(tally.opinion(1, Class::Rows, noisy), Opinion::Take(Class::Noise));
        assert_eq!(tally.opinion(1, Class::ErrorNew, noisy), Opinion::Ask);
        assert_eq!(tally.opinion(1, Class::Count, noisy), Opinion::Ask, "a server may choose values, and not how many");
        assert_eq!(tally.opinion(1, Class::Columns, noisy), Opinion::Take(Class::Columns));
    }

    #[test]
    fn digests_and_samples_are_bounded() {
        let mut tally = Tally::default();
        (0..MAX_DIGESTS as u64 + 5).for_each(|digest| tally.add(&compared(digest, Class::Same, false)));
        assert_eq!((tally.digests().len(), tally.others(), tally.compared()), (MAX_DIGESTS, 5, MAX_DIGESTS as u64 + 5));
        tally.add(&compared(u64::MAX, Class::ErrorNew, true));
        assert_eq!((tally.of_others(Class::Same), tally.of_others(Class::ErrorNew), tally.count(Class::ErrorNew)), (5, 1, 1));
        let sample = Sample {
            digest: 1,
            class: Class::Rows,
            seen_at: 0,
            user: String::new(),
            schema: String::new(),
            text: String::new(),
            original: String::new(),
            shadow: String::new(),
        };
        assert!(!tally.wants_sample(1, Class::Same, 3) && !tally.wants_sample(1, Class::Noise, 3));
        assert!(tally.wants_sample(1, Class::OutOfOrder, 3));
        (0..2).for_each(|_| tally.keep(sample.clone()));
        assert!(tally.wants_sample(1, Class::Rows, 3) && !tally.wants_sample(1, Class::Rows, 2));
        (0..MAX_SAMPLES).for_each(|_| tally.keep(sample.clone()));
        assert!(!tally.wants_sample(2, Class::Rows, 3));
    }

    #[test]
    fn what_is_ignored_is_compared_and_says_why() {
        let row = RehearsalIgnore { digest: Some(1), schema: None, column: None, class: None, comment: "known".into() };
        let mut tally = Tally::default();
        tally.add(&Compared { ignored: Some(&row), ..compared(1, Class::ErrorNew, true) });
        let digest = tally.get(1).unwrap();
        assert_eq!((digest.count(Class::Ignored), digest.weighing(Weight::Bad), digest.compared()), (1, 0, 1));
        assert_eq!(digest.ignored_by.as_deref(), Some("known (digest 0x0000000000000001)"));
    }

    #[test]
    fn plans_are_asked_for_twice_in_a_quarter_of_an_hour() {
        let mut tally = Tally::default();
        assert!(!tally.may_plan(1, 0), "nothing was compared");
        (0..MAX_PLANS as u64 + 2).for_each(|digest| tally.add(&compared(digest, Class::Same, false)));
        let ask = |tally: &mut Tally, digest, now_ms| {
            let may = tally.may_plan(digest, now_ms);
            if may {
                tally.note_plan(digest, now_ms);
            }
            may
        };
        let asked = [0, 1_000, 2_000, 899_999, 900_000, 900_001, 901_000, 902_000].map(|now_ms| ask(&mut tally, 1, now_ms));
        assert_eq!(asked, [true, true, false, false, true, false, true, false]);
        assert!(ask(&mut tally, 2, 902_000), "another digest has questions of its own");
        (3..MAX_PLANS as u64 + 2).for_each(|digest| assert!(ask(&mut tally, digest, 902_000), "questions without plans take no room"));
        (0..MAX_PLANS as u64 + 2).for_each(|digest| tally.keep_plans(digest, PlanPair::default()));
        let kept = tally.digests().iter().filter(|(_, digest)| digest.plans.is_some()).count();
        assert_eq!((kept, tally.planned), (MAX_PLANS, MAX_PLANS));
        assert!(!ask(&mut tally, MAX_PLANS as u64 + 1, 903_000), "plans of so many digests are kept");
        assert!(ask(&mut tally, 3, 903_000), "known digests go on");
    }

    #[test]
    fn plans_are_of_interest_for_other_rows_and_slower_digests() {
        let (mut tally, slow) = (Tally::default(), [1_000, 9_000]);
        for (class, reason) in [(Class::Rows, Some("rows")), (Class::Count, Some("count")), (Class::Same, None), (Class::Columns, None)] {
            assert_eq!(tally.plan_reason(1, class, [1, 1], 1.5), reason);
        }
        let add = |tally: &mut Tally, times_us| tally.add(&Compared { times_us, ..compared(1, Class::Same, false) });
        (0..29).for_each(|_| add(&mut tally, slow));
        assert_eq!(tally.plan_reason(1, Class::Same, slow, 1.5), None, "29 comparisons are no slower digest");
        add(&mut tally, slow);
        assert_eq!(tally.plan_reason(1, Class::Same, slow, 1.5), Some("slower"));
        assert_eq!(tally.plan_reason(1, Class::Same, [1_000, 1_100], 1.5), None, "this statement was not slower");
        assert_eq!([Class::Noise, Class::Unchecked].map(|class| tally.plan_reason(1, class, slow, 1.5)), [None; 2]);
        (0..100).for_each(|_| add(&mut tally, [1_000, 1_000]));
        assert_eq!(tally.plan_reason(1, Class::Same, slow, 1.5), None, "the digest is not slower");
    }

    #[test]
    fn the_latest_plans_are_kept_also_equal_ones() {
        let mut tally = Tally::default();
        tally.add(&compared(1, Class::Same, false));
        let pair = |change: &str, seen_at| PlanPair { change: change.to_owned(), seen_at, ..PlanPair::default() };
        for (change, at) in [("", 1), ("index a lost", 2), ("", 3), ("index b lost", 4)] {
            tally.keep_plans(1, pair(change, at));
            assert_eq!(tally.get(1).unwrap().plans.as_deref(), Some(&pair(change, at)));
        }
        tally.keep_plans(2, pair("", 5));
        assert!(tally.get(2).is_none());
    }

    #[test]
    fn times_of_errors_do_not_count() {
        let mut tally = Tally::default();
        tally.add(&compared(1, Class::Same, false));
        tally.add(&compared(1, Class::ErrorNew, true));
        let digest = tally.get(1).unwrap();
        assert_eq!((digest.compared(), digest.times[1].count(), digest.weighing(Weight::Bad)), (2, 1, 1));
    }
}
