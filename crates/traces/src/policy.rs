//! Decides which statements are traced. The decision comes after the statement has ended, so that failures are always included.
//!
//! A client's sampling flag goes before the ratio. Failures, slowness, and retries that clients cannot see go before both. INVARIANT: at
//! most a fixed number per second is kept, whatever clients ask for.

use crate::context::Parent;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why a statement is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was answered with an error.
    Failed,
    /// It was sent more than once.
    Retried,
    /// The transaction before it was replayed.
    Replayed,
    /// It had to wait for a server to become usable, or for a role to change.
    Held,
    /// It took long.
    Slow,
    /// Its client traces it.
    Parent,
    /// Chosen by the ratio.
    Ratio,
}

impl Why {
    /// As spans say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Replayed => "replayed",
            Self::Held => "held",
            Self::Slow => "slow",
            Self::Parent => "parent",
            Self::Ratio => "ratio",
        }
    }
}

/// How a statement ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// How long it took, us.
    pub duration_us: u64,
    /// It was answered with an error.
    pub failed: bool,
    /// It was sent more than once.
    pub is_retried: bool,
    /// The transaction before it was replayed.
    pub is_replayed: bool,
    /// It waited for a server to become usable.
    pub is_held: bool,
}

/// See the module. Workers read it while it may change.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    is_on: AtomicBool,
    /// A random number below this is a hit.
    below: AtomicU64,
    /// 0: slowness is no reason.
    slow_us: AtomicU64,
    per_second: AtomicU64,
    /// Statements that a client marks as not sampled are traced all the same.
    takes_unsampled: AtomicBool,
    /// The second at hand (upper half) and how many were kept in it.
    kept: AtomicU64,
}

impl Policy {
    /// Whether anything is traced.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn switch_off(&self) {
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// `ratio` is from 0 to 1.
    pub(crate) fn switch_on(&self, ratio: f64, slow_us: u64, per_second: u64, takes_unsampled: bool) {
        // A cast saturates: 1.0 is as good as always.
        self.below.store((ratio * u64::MAX as f64) as u64, Ordering::Relaxed);
        self.slow_us.store(slow_us, Ordering::Relaxed);
        self.per_second.store(per_second, Ordering::Relaxed);
        self.takes_unsampled.store(takes_unsampled, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Whether this statement is traced, and why, as far as the limit of a second allows.
    pub(crate) fn wants(&self, parent: Option<&Parent>, outcome: Outcome, random: impl FnOnce() -> u64) -> Option<Why> {
        let slow_us = self.slow_us.load(Ordering::Relaxed);
        match () {
            () if outcome.failed => Some(Why::Failed),
            () if outcome.is_retried => Some(Why::Retried),
            () if outcome.is_replayed => Some(Why::Replayed),
            () if outcome.is_held => Some(Why::Held),
            () if slow_us > 0 && outcome.duration_us >= slow_us => Some(Why::Slow),
            () => match (parent, self.below.load(Ordering::Relaxed)) {
                (Some(parent), _) => (parent.is_sampled || self.takes_unsampled.load(Ordering::Relaxed)).then_some(Why::Parent),
                (None, 0) => None,
                (None, below) => (random() <= below).then_some(Why::Ratio),
            },
        }
    }

    /// Whether one more may be kept in the second at hand, which it counts as kept then.
    pub(crate) fn is_within_limit(&self, now_us: u64) -> bool {
        let second = (now_us / 1_000_000) & 0xffff_ffff;
        let per_second = self.per_second.load(Ordering::Relaxed);
        let took = self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |kept| match (kept >> 32, kept & 0xffff_ffff) {
            (of, count) if of == second => (count < per_second).then_some(kept + 1),
            _ => Some(second << 32 | 1),
        });
        took.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: Parent = Parent { trace_id: [1; 16], span_id: [2; 8], is_sampled: true };
    const UNSAMPLED: Parent = Parent { is_sampled: false, ..SAMPLED };

    fn policy(ratio: f64) -> Policy {
        let policy = Policy::default();
        policy.switch_on(ratio, 1_000, 2, false);
        policy
    }

    #[test]
    fn a_parent_goes_before_the_ratio() {
        let (all, none, quick) = (policy(1.0), policy(0.0), Outcome::default());
        assert_eq!(none.wants(Some(&SAMPLED), quick, || 0), Some(Why::Parent));
        assert_eq!(all.wants(Some(&UNSAMPLED), quick, || 0), None);
        assert_eq!(all.wants(None, quick, || u64::MAX), Some(Why::Ratio));
        assert_eq!(none.wants(None, quick, || panic!("nothing is drawn at 0")), None);
        none.switch_on(0.0, 1_000, 2, true);
        assert_eq!(none.wants(Some(&UNSAMPLED), quick, || 0), Some(Why::Parent), "a connector that never says that it samples");
        let half = policy(0.5);
        assert_eq!(half.wants(None, quick, || u64::MAX / 4), Some(Why::Ratio));
        assert_eq!(half.wants(None, quick, || u64::MAX / 4 * 3), None);
    }

    #[test]
    fn what_went_wrong_is_wanted_whatever_a_parent_says() {
        let policy = policy(0.0);
        for (outcome, why) in [
            (Outcome { failed: true, ..Outcome::default() }, Why::Failed),
            (Outcome { is_retried: true, ..Outcome::default() }, Why::Retried),
            (Outcome { is_replayed: true, ..Outcome::default() }, Why::Replayed),
            (Outcome { is_held: true, ..Outcome::default() }, Why::Held),
            (Outcome { duration_us: 1_000, ..Outcome::default() }, Why::Slow),
        ] {
            assert_eq!(policy.wants(Some(&UNSAMPLED), outcome, || 0), Some(why));
            assert_eq!(policy.wants(None, outcome, || 0), Some(why));
        }
        policy.switch_on(0.0, 0, 2, false);
        assert_eq!(policy.wants(None, Outcome { duration_us: u64::MAX, ..Outcome::default() }, || 0), None);
    }

    #[test]
    fn a_second_has_so_many_and_the_next_one_again() {
        let policy = policy(1.0);
        let taken = |now_us| policy.is_within_limit(now_us);
        assert_eq!([taken(5_000_000), taken(5_400_000), taken(5_999_999)], [true, true, false]);
        assert_eq!([taken(6_000_000), taken(6_000_000), taken(6_000_000)], [true, true, false]);
    }
}
