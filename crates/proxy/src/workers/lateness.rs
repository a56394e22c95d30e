//! How late a worker itself is: what a peer takes does not include it.
//!
//! A worker with thousands of sessions to serve comes back to a connect late, though the server answered at once. Such a delay is
//! no failure of the server.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

/// A worker's lateness, as its sweep shows it.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    /// All of it until the last sweep, us.
    sum_us: Cell<u64>,
    /// When (process clock, us) the next sweep is due; 0 before the first one.
    due_us: Cell<u64>,
}

/// Less is not looked at, us.
const LEAST_US: u64 = 1_000;

impl Lateness {
    /// The sweep begins; the next one is due at `due_us`.
    pub(crate) fn swept(&self, now_us: u64, due_us: u64) {
        self.sum_us.set(self.total_us(now_us));
        self.due_us.set(due_us);
    }

    /// By how much the worker was late so far, us, what it is late now included.
    pub(crate) fn total_us(&self, now_us: u64) -> u64 {
        let late_us = match self.due_us.get() {
            0 => 0,
            due_us => now_us.saturating_sub(due_us),
        };
        self.sum_us.get() + late_us
    }
}

/// Waits `limit` for a peer's `work`, and as much longer as the worker was late meanwhile: `total_us` says by how much it was so far.
/// None where that was not enough.
pub(crate) async fn within<T>(total_us: impl Fn() -> u64, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut before_us = total_us();
    let mut left = limit;
    loop {
        if let Ok(done) = timeout(left, &mut work).await {
            return Some(done);
        }
        let late_us = total_us() - before_us;
        if late_us < LEAST_US {
            return None;
        }
        before_us += late_us;
        left = Duration::from_micros(late_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[test]
    fn a_sweep_that_comes_in_time_shows_none() {
        let lateness = Lateness::default();
        assert_eq!(lateness.total_us(5_000_000), 0, "no sweep yet");
        lateness.swept(1_000, 101_000);
        lateness.swept(101_000, 201_000);
        assert_eq!((lateness.total_us(200_000), lateness.total_us(231_000)), (0, 30_000));
        lateness.swept(251_000, 351_000);
        assert_eq!((lateness.total_us(260_000), lateness.total_us(352_000)), (50_000, 51_000));
    }

    /// What becomes of work that takes so long, with a limit of 20 ms, where the worker's lateness is first 0 and then as given, in all.
    async fn outcome(takes: Duration, late_ms: u64) -> (bool, Duration) {
        let (began, looks) = (Instant::now(), Cell::new(0));
        let total_us = || if looks.replace(looks.get() + 1) == 0 { 0 } else { late_ms * 1_000 };
        let done = within(total_us, Duration::from_millis(20), sleep(takes)).await;
        (done.is_some(), began.elapsed())
    }

    #[tokio::test]
    async fn a_workers_lateness_does_not_count_against_a_peer() {
        const LONG: Duration = Duration::from_secs(3_600);
        assert!(outcome(Duration::from_millis(100), 1_000_000).await.0);
        assert!(!outcome(LONG, 0).await.0);
        let (is_done, after) = outcome(LONG, 30).await;
        assert!(!is_done && after >= Duration::from_millis(50), "{after:?}");
    }
}
