//! Who waits longest, over all workers: each says since when its own first waiter waits. Those who want a server that is not far
//! behind are told apart: what is given back may be of no use to them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// No one waits.
pub(crate) const NOBODY: u64 = u64::MAX;

/// One who waits for a server that is not far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choosy {
    /// Since when it waits (process clock, us).
    pub since_us: u64,
    /// The lag that its server may have at most, ms.
    pub max_lag_ms: u32,
}

/// See the module.
pub(crate) struct Queue {
    /// Per worker: since when (process clock, us) its first waiter waits who takes any server, or [`NOBODY`].
    oldest_us: Vec<AtomicU64>,
    waiting_workers: AtomicU32,
    /// The others, with their workers.
    choosy: Mutex<Vec<(usize, Choosy)>>,
    has_choosy: AtomicBool,
}

impl Queue {
    /// Nobody waits.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            oldest_us: (0..workers).map(|_| AtomicU64::new(NOBODY)).collect(),
            waiting_workers: AtomicU32::new(0),
            choosy: Mutex::default(),
            has_choosy: AtomicBool::new(false),
        }
    }

    /// Whether nobody waits, on any worker.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting_workers.load(Ordering::Relaxed) == 0 && !self.has_choosy.load(Ordering::Relaxed)
    }

    /// Whether one waits on this worker, as far as is known without looking closely.
    pub(crate) fn may_have(&self, worker: usize) -> bool {
        let oldest = self.oldest_us.get(worker).map_or(NOBODY, |cell| cell.load(Ordering::Relaxed));
        oldest != NOBODY || self.has_choosy.load(Ordering::Relaxed)
    }

    /// Notes since when `worker`'s first waiter waits.
    pub(crate) fn set_oldest(&self, worker: usize, since_us: u64) {
        let Some(cell) = self.oldest_us.get(worker) else { return };
        let before = cell.swap(since_us, Ordering::AcqRel);
        match (before == NOBODY, since_us == NOBODY) {
            (true, false) => self.waiting_workers.fetch_add(1, Ordering::AcqRel),
            (false, true) => self.waiting_workers.fetch_sub(1, Ordering::AcqRel),
            _ => 0,
        };
    }

    /// Notes who of `worker` waits for a server that is not far behind, in order.
    pub(crate) fn set_choosy(&self, worker: usize, waiting: impl Iterator<Item = Choosy>) {
        let mut all = self.choosy.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(of, _)| *of != worker);
        let mut loosest = None;
        for one in waiting {
            // Who asks for less lag than somebody before has no turn before that one.
            if loosest.is_none_or(|loosest| one.max_lag_ms > loosest) {
                loosest = Some(one.max_lag_ms);
                all.push((worker, one));
            }
        }
        self.has_choosy.store(!all.is_empty(), Ordering::Release);
    }

    /// The worker, other than `me`, whose first waiter for a server that is so far behind waits longest, with the time (us) it
    /// waits since.
    pub(crate) fn longest_waiting_other(&self, me: usize, lag_ms: Option<u64>) -> Option<(usize, u64)> {
        let others = self.oldest_us.iter().enumerate().filter(|(w, _)| *w != me);
        let oldest = others.map(|(w, since)| (w, since.load(Ordering::Acquire))).min_by_key(|(_, since)| *since);
        let oldest = oldest.filter(|(_, since)| *since != NOBODY);
        if !self.has_choosy.load(Ordering::Acquire) {
            return oldest;
        }
        let all = self.choosy.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |one: &Choosy| lag_ms.is_none_or(|lag| lag <= u64::from(one.max_lag_ms));
        let choosy = all.iter().filter(|(w, one)| *w != me && fits(one)).map(|(w, one)| (*w, one.since_us));
        choosy.chain(oldest).min_by_key(|(_, since)| *since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choosy(since_us: u64, max_lag_ms: u32) -> Choosy {
        Choosy { since_us, max_lag_ms }
    }

    #[test]
    fn the_longest_wait_of_others_counts() {
        let queue = Queue::new(3);
        assert!(queue.is_empty());
        queue.set_oldest(0, 10);
        queue.set_oldest(2, 20);
        assert!(!queue.is_empty());
        assert_eq!(queue.longest_waiting_other(1, None), Some((0, 10)));
        assert_eq!(queue.longest_waiting_other(0, None), Some((2, 20)));
        queue.set_oldest(2, NOBODY);
        assert_eq!(queue.longest_waiting_other(0, None), None);
        queue.set_oldest(0, NOBODY);
        assert!(queue.is_empty());
    }

    #[test]
    fn who_wants_little_lag_waits_for_no_server_that_is_further_behind() {
        let queue = Queue::new(3);
        queue.set_choosy(1, [choosy(5, 100), choosy(6, 50), choosy(7, 2_000)].into_iter());
        queue.set_oldest(2, 30);
        let longest = |lag| queue.longest_waiting_other(0, lag);
        assert_eq!(longest(Some(40)), Some((1, 5)));
        assert_eq!(longest(None), Some((1, 5)), "what is not known is no reason");
        assert_eq!(longest(Some(1_000)), Some((1, 7)));
        assert_eq!(longest(Some(3_000)), Some((2, 30)));
        assert_eq!(queue.longest_waiting_other(1, Some(0)), Some((2, 30)));
        queue.set_oldest(2, NOBODY);
        assert!(!queue.is_empty());
        queue.set_choosy(1, [].into_iter());
        assert!(queue.is_empty());
    }
}
