//! Who waits longest, over all workers: each says since when its own first waiter waits.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No one waits.
pub const NOBODY: u64 = u64::MAX;

/// See the module.
pub struct Queue {
    /// Per worker: since when (process clock, us) its first waiter waits, or [`NOBODY`].
    oldest_us: Vec<AtomicU64>,
    waiting_workers: AtomicU32,
}

impl Queue {
    /// Nobody waits.
    pub fn new(workers: usize) -> Self {
        Self { oldest_us: (0..workers).map(|_| AtomicU64::new(NOBODY)).collect(), waiting_workers: AtomicU32::new(0) }
    }

    /// Whether nobody waits, on any worker.
    pub fn is_empty(&self) -> bool {
        self.waiting_workers.load(Ordering::Relaxed) == 0
    }

    /// Notes since when `worker`'s first waiter waits.
    pub fn set_oldest(&self, worker: usize, since_us: u64) {
        let Some(cell) = self.oldest_us.get(worker) else { return };
        let before = cell.swap(since_us, Ordering::AcqRel);
        match (before == NOBODY, since_us == NOBODY) {
            (true, false) => self.waiting_workers.fetch_add(1, Ordering::AcqRel),
            (false, true) => self.waiting_workers.fetch_sub(1, Ordering::AcqRel),
            _ => 0,
        };
    }

    /// The worker, other than `me`, whose first waiter waits longest, with the time (us) it waits since.
    pub fn longest_waiting_other(&self, me: usize) -> Option<(usize, u64)> {
        let others = self.oldest_us.iter().enumerate().filter(|(w, _)| *w != me);
        let oldest = others.map(|(w, since)| (w, since.load(Ordering::Acquire))).min_by_key(|(_, since)| *since);
        oldest.filter(|(_, since)| *since != NOBODY)
    }
}
