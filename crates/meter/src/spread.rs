//! How the durations of one digest are spread: two buckets to each power of two, so that a quantile is known to within a quarter.
//!
//! Small, since there may be hundreds of thousands: 192 bytes. [`Histogram`](crate::histogram::Histogram) is finer, and eleven times as
//! large. INVARIANT: every duration has exactly one bucket, and buckets are in the order of their durations.

use serde::{Deserialize, Serialize};

/// Durations below 2^3 us have no buckets of their own: the first bucket ends at 12 us.
const FIRST: u32 = 3;
/// The last bucket begins at 100 s.
const BUCKETS: usize = 48;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread([u32; BUCKETS]);

impl Default for Spread {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

/// Up to the last bucket that is not empty.
impl Serialize for Spread {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let len = self.0.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        self.0.get(..len).unwrap_or_default().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Spread {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut spread = Self::default();
        spread.0.iter_mut().zip(Vec::<u32>::deserialize(deserializer)?).for_each(|(to, from)| *to = from);
        Ok(spread)
    }
}

fn bucket(time_us: u64) -> usize {
    let exponent = time_us.max(1).ilog2();
    match exponent.checked_sub(FIRST) {
        None => 0,
        Some(octave) => ((octave << 1) as usize | (time_us >> (exponent - 1)) as usize & 1).min(BUCKETS - 1),
    }
}

/// The least duration of a bucket.
fn least(bucket: usize) -> u64 {
    if bucket == 0 { 0 } else { (2 + (bucket as u64 & 1)) << (bucket as u32 / 2 + FIRST - 1) }
}

impl Spread {
    /// Counts a duration. Where a count would overflow, all that was counted weighs half.
    pub fn record(&mut self, time_us: u64) {
        if let Some(count) = self.0.get_mut(bucket(time_us)) {
            *count += 1;
            if *count == u32::MAX {
                self.halve();
            }
        }
    }

    fn halve(&mut self) {
        self.0.iter_mut().for_each(|count| *count /= 2);
    }

    /// Counts all that `other` has counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.0.iter().zip(other.0).any(|(mine, theirs)| mine.checked_add(theirs).is_none_or(|sum| sum == u32::MAX)) {
            self.halve();
        }
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine = mine.saturating_add(theirs).min(u32::MAX - 1));
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        since.0.iter_mut().zip(earlier.0).for_each(|(mine, theirs)| *mine = mine.saturating_sub(theirs));
        since
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// The duration that `per_mille` thousandths of all do not exceed, to within a quarter: the middle of a bucket, as far as it is
    /// within the shortest and the longest of all.
    pub fn quantile(&self, per_mille: u64, min_us: u64, max_us: u64) -> u64 {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let rank = (u128::from(all) * u128::from(per_mille)).div_ceil(1000).max(1);
        let mut seen = 0_u128;
        for (at, count) in self.0.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                let end = if at + 1 < BUCKETS { least(at + 1) } else { max_us };
                return least(at).midpoint(end).max(min_us).min(max_us);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_are_in_order_without_gaps() {
        for at in 1..BUCKETS {
            assert_eq!((bucket(least(at)), bucket(least(at) - 1)), (at, at - 1));
        }
        assert_eq!((bucket(0), bucket(u64::MAX), size_of::<Spread>()), (0, BUCKETS - 1, 192));
    }

    #[test]
    fn counts_do_not_overflow() {
        let mut spread = Spread::default();
        spread.0[10] = u32::MAX - 1;
        spread.0[11] = 10;
        spread.record(least(10));
        assert_eq!((spread.0[10], spread.0[11]), (u32::MAX / 2, 5));
        let twice = spread.clone();
        spread.merge(&twice);
        spread.merge(&twice);
        assert!(spread.0[10] < u32::MAX && spread.quantile(500, 0, 1 << 40) >= least(10));
    }

    proptest! {
        #[test]
        fn quantiles_are_right_to_within_a_quarter(mut values in proptest::collection::vec(12..90_000_000_u64, 1..300), per_mille in 0..=1000_u64) {
            let (mut one, mut other) = (Spread::default(), Spread::default());
            for (at, value) in values.iter().enumerate() {
                if at % 3 == 0 { &mut one } else { &mut other }.record(*value);
            }
            one.merge(&other);
            values.sort_unstable();
            let rank = (values.len() as u64 * per_mille).div_ceil(1000).max(1) as usize;
            let exact = values[rank - 1];
            let found = one.quantile(per_mille, values[0], values[values.len() - 1]);
            prop_assert!(found.abs_diff(exact) <= exact / 4, "{found} instead of {exact}");
            let text = serde_json::to_string(&one).unwrap();
            prop_assert_eq!(serde_json::from_str::<Spread>(&text).unwrap(), one);
        }
    }
}
