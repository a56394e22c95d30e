//! Durations in buckets of a quarter of a power of two, from 1 us to about an hour.

/// Buckets for each power of two.
const STEPS: u32 = 4;
/// Powers of two.
const POWERS: u32 = 32;
const BUCKETS: usize = (STEPS * POWERS) as usize;

/// Durations by size.
#[derive(Clone, Debug)]
pub struct Spread {
    counts: [u32; BUCKETS],
    count: u64,
    sum_us: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], count: 0, sum_us: 0 }
    }
}

impl Spread {
    /// Counts a duration, us.
    pub fn add(&mut self, us: u64) {
        if let Some(bucket) = self.counts.get_mut(bucket_of(us)) {
            *bucket = bucket.saturating_add(1);
        }
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// Adds the durations of another spread.
    pub fn merge(&mut self, other: &Self) {
        for (here, there) in self.counts.iter_mut().zip(&other.counts) {
            *here = here.saturating_add(*there);
        }
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    /// Durations so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, us.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The duration (us) that `percent` of all do not exceed, exact to a quarter of a power of two; 0 without durations.
    pub fn percentile_us(&self, percent: u64) -> u64 {
        let wanted = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if *count > 0 && seen >= wanted {
                return middle_of(bucket);
            }
        }
        0
    }
}

fn bucket_of(us: u64) -> usize {
    let us = us.max(1);
    let power = 63 - us.leading_zeros();
    // The two bits behind the highest one.
    let step = if power >= 2 { (us >> (power - 2)) & 3 } else { (us << (2 - power)) & 3 };
    let bucket = u64::from(power * STEPS) + step;
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

fn middle_of(bucket: usize) -> u64 {
    let (power, step) = (bucket / STEPS as usize, (bucket % STEPS as usize) as u64);
    let quarters = (4 + step) << power;
    // From `quarters / 4` to a quarter power more.
    (2 * quarters + (1 << power)) / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_a_quarter_of_a_power() {
        for us in [1, 2, 3, 7, 100, 999, 12_345, 3_000_000] {
            let mut spread = Spread::default();
            spread.add(us);
            let found = spread.percentile_us(50);
            assert!(found * 4 <= us * 5 && found * 5 >= us * 3, "{us}: {found}");
        }
    }

    #[test]
    fn the_middle_and_the_tail() {
        let mut spread = Spread::default();
        assert_eq!(spread.percentile_us(50), 0);
        (0..99).for_each(|_| spread.add(100));
        spread.add(100_000);
        assert!(spread.percentile_us(50) < 150 && spread.percentile_us(99) < 150 && spread.percentile_us(100) > 80_000);
        let mut both = spread.clone();
        both.merge(&spread);
        assert_eq!((both.count(), both.sum_us()), (200, 2 * (9_900 + 100_000)));
        spread.add(u64::MAX);
        assert!(spread.percentile_us(100) > 1 << 30, "the last bucket holds all that is longer");
    }
}
