//! Time since the process started, and the worker's coarse copy of it.

use std::cell::Cell;
#[cfg(not(feature = "sim"))]
use std::time::Instant;
use std::time::{SystemTime, UNIX_EPOCH};
// The simulator's runtime moves this one.
#[cfg(feature = "sim")]
use tokio::time::Instant;

/// The process clock; copies share the same origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Nanoseconds since the start.
    pub fn now_ns(&self) -> u64 {
        let elapsed = self.origin.elapsed();
        elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }

    /// Microseconds since the start.
    pub fn now_us(&self) -> u64 {
        self.now_ns() / 1000
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }
}

/// Milliseconds since the start, as of the last sweep: free to read on the hot path.
#[derive(Default)]
pub struct CoarseClock(Cell<u64>);

impl CoarseClock {
    /// The last value set, ms.
    pub fn now_ms(&self) -> u64 {
        self.0.get()
    }

    /// Moves the clock.
    pub fn set(&self, now_ms: u64) {
        self.0.set(now_ms);
    }
}

/// A small fast generator (xorshift64*) for weighted choices; nothing secret comes from it.
pub struct Random(Cell<u64>);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed | 1))
    }

    /// A number in `0..limit`; 0 when `limit` is 0.
    pub fn below(&self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }

    /// Any number.
    pub fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Microseconds since 1970.
pub fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
