//! The monitor's clock: ms since it was made, for everything that is decided, and the wall clock's time of the same moment,
//! for people.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Never goes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        whole(self.origin.elapsed().as_millis())
    }

    /// The moment of a time on this clock.
    pub(crate) fn instant(&self, at_ms: u64) -> Instant {
        self.origin + Duration::from_millis(at_ms)
    }

    /// Unix time of a time on this clock, ms, by the wall clock as it is now.
    pub(crate) fn unix_ms(&self, at_ms: u64) -> u64 {
        (unix_us() / 1_000).saturating_sub(self.now_ms().saturating_sub(at_ms))
    }
}

/// Unix time now, us.
pub(crate) fn unix_us() -> u64 {
    whole(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros())
}

/// Times fit 64 bits for half a million years.
pub(crate) fn whole(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
