//! What had run on the original when a rehearsal began: its coverage is of what ran since then.

use crate::verdict::Ran;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Most digests that are remembered, those with the longest time: as many as the statistics have by default.
const MAX_DIGESTS: usize = 100_000;

/// Runs and time (us) by digest.
#[derive(Debug, Default)]
pub struct Before(HashMap<u64, [u64; 2]>);

impl Before {
    /// What the statistics have when the rehearsal begins.
    pub fn of(mut ran: Vec<Ran>) -> Self {
        ran.sort_unstable_by_key(|ran| Reverse(ran.sum_us));
        Self(ran.into_iter().take(MAX_DIGESTS).map(|ran| (ran.digest, [ran.count, ran.sum_us])).collect())
    }

    /// What of it ran since then. A digest with fewer runs than before was evicted from the statistics, and counts from 0 again.
    pub fn since(&self, ran: Vec<Ran>) -> Vec<Ran> {
        let rest = |mut ran: Ran| {
            if let Some([count, sum_us]) = self.0.get(&ran.digest).filter(|[count, _]| *count <= ran.count) {
                ran.count -= count;
                ran.sum_us = ran.sum_us.saturating_sub(*sum_us);
            }
            (ran.count > 0).then_some(ran)
        };
        ran.into_iter().filter_map(rest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(digest: u64, count: u64, sum_us: u64) -> Ran {
        Ran { digest, text: String::new(), count, sum_us }
    }

    #[test]
    fn only_what_ran_since_then_is_left() {
        let before = Before::of(vec![ran(1, 10, 1000), ran(2, 5, 500_000), ran(3, 7, 70)]);
        let now = vec![ran(1, 12, 1100), ran(2, 5, 500_000), ran(3, 2, 20), ran(4, 1, 9)];
        assert_eq!(before.since(now.clone()), [ran(1, 2, 100), ran(3, 2, 20), ran(4, 1, 9)]);
        assert_eq!(Before::default().since(now.clone()), now);
    }

    #[test]
    fn digests_are_bounded_and_the_longest_are_remembered() {
        let all: Vec<Ran> = (0..MAX_DIGESTS as u64 + 5).map(|digest| ran(digest, 1, digest)).collect();
        let left = Before::of(all.clone()).since(all);
        assert_eq!(left.iter().map(|ran| ran.digest).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
