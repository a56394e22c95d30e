//! How many statements a second are let through: each takes the next place in time, and waits for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Statements of so long (us) may come at once after a pause.
const BURST_US: u64 = 100_000;

/// A limit of acts per second, shared by all that take places in time.
#[derive(Debug, Default)]
pub struct Pace {
    /// When the next place is, us of the caller's clock.
    next_us: AtomicU64,
}

impl Pace {
    /// Takes a place at `now_us`, where `per_second` are let through. Answers how long to wait for it, us; None takes none, because the
    /// wait would be longer than `longest_us`.
    pub fn take(&self, now_us: u64, per_second: u64, longest_us: u64) -> Option<u64> {
        let interval_us = 1_000_000 / per_second.max(1);
        let place = |next_us: u64| next_us.max(now_us.saturating_sub(BURST_US.saturating_sub(interval_us)));
        let take = |next_us: u64| {
            let place_us = place(next_us);
            (place_us.saturating_sub(now_us) <= longest_us).then_some(place_us + interval_us)
        };
        let before_us = self.next_us.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(place(before_us).saturating_sub(now_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_through_and_the_rest_takes_turns() {
        let (pace, now_us) = (Pace::default(), 10_000_000);
        let waits: Vec<_> = (0..14).map(|_| pace.take(now_us, 100, 30_000)).collect();
        assert!(waits[..10].iter().all(|wait| *wait == Some(0)), "{waits:?}");
        assert_eq!(waits[10..], [Some(10_000), Some(20_000), Some(30_000), None]);
        assert_eq!(pace.take(now_us + 10_000, 100, 30_000), Some(30_000), "who was refused took no place");
        assert_eq!(pace.take(now_us + 1_000_000, 100, 0), Some(0));
    }

    #[test]
    fn a_slow_pace_lets_one_through_at_a_time() {
        let pace = Pace::default();
        assert_eq!(pace.take(5_000_000, 1, 0), Some(0));
        assert_eq!(pace.take(5_500_000, 1, 0), None);
        assert_eq!(pace.take(5_500_000, 1, 1_000_000), Some(500_000));
    }
}
