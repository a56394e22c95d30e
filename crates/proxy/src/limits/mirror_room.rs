//! Room for mirrored statements: how many run at a time, over all workers (`mysql-mirror_max_concurrency`), and how much of them a
//! worker holds.
//!
//! The limit is one for the process. Turns are given in the order in which they were asked for. INVARIANT: there are as many turns,
//! free and taken, as `total` says; those that a smaller limit takes away go when they are free.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most bytes of copies that wait or run on one worker.
const MAX_BYTES: usize = 64 << 20;

/// See the module.
pub(crate) struct Limit {
    free: Arc<Semaphore>,
    size: Mutex<Size>,
}

/// How many turns there are, and should be.
struct Size {
    total: usize,
    wanted: usize,
}

/// The right to run one mirrored statement; ends when dropped.
pub(crate) struct MirrorPermit {
    limit: Arc<Limit>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Limit {
    /// This many turns, one at least.
    pub(crate) fn new(wanted: u64) -> Arc<Self> {
        let wanted = size(wanted);
        Arc::new(Self { free: Arc::new(Semaphore::new(wanted)), size: Mutex::new(Size { total: wanted, wanted }) })
    }

    /// From now on this many turns, one at least.
    pub(crate) fn resize(&self, wanted: u64) {
        let mut size = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        size.wanted = self::size(wanted);
        if size.wanted > size.total {
            self.free.add_permits(size.wanted - size.total);
            size.total = size.wanted;
        } else {
            size.total -= self.free.forget_permits(size.total - size.wanted);
        }
    }

    /// A turn, if one is free.
    pub(crate) fn try_begin(self: &Arc<Self>) -> Option<MirrorPermit> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(MirrorPermit { limit: Arc::clone(self), permit: Some(permit) })
    }

    /// A turn, as soon as one is free.
    pub(crate) async fn begin(self: &Arc<Self>) -> MirrorPermit {
        // Fails only when the semaphore was closed, which nobody does.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        MirrorPermit { limit: Arc::clone(self), permit }
    }
}

impl Drop for MirrorPermit {
    fn drop(&mut self) {
        let mut size = self.limit.size.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permit) = self.permit.take()
            && size.total > size.wanted
        {
            permit.forget();
            size.total -= 1;
        }
    }
}

/// As a number of permits; the setting's range is 1..=8192.
fn size(wanted: u64) -> usize {
    usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, 8192)
}

/// What a worker holds of copies.
#[derive(Default)]
pub(crate) struct Mirrors {
    bytes: Cell<usize>,
    /// Copies that run now.
    pub running: Cell<u64>,
    /// Copies that wait now.
    pub waiting: Cell<u64>,
}

impl Mirrors {
    /// Takes room for one more copy of this length.
    pub(crate) fn take_room(&self, bytes: usize) -> bool {
        let held = self.bytes.get() + bytes;
        let fits = held <= MAX_BYTES;
        if fits {
            self.bytes.set(held);
        }
        fits
    }

    /// One is gone.
    pub(crate) fn give_room(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all turns that are free.
    fn take(limit: &Arc<Limit>) -> Vec<MirrorPermit> {
        std::iter::from_fn(|| limit.try_begin()).collect()
    }

    #[test]
    fn a_changed_limit_holds_at_once_for_new_turns() {
        let limit = Limit::new(3);
        let mut turns = take(&limit);
        assert_eq!(turns.len(), 3);
        limit.resize(1);
        turns.truncate(1);
        assert_eq!(take(&limit).len(), 0, "one is taken, and one is all there is");
        turns.clear();
        assert_eq!(take(&limit).len(), 1);
        limit.resize(4);
        limit.resize(4);
        assert_eq!(take(&limit).len(), 4);
    }

    #[test]
    fn shrunk_and_grown_while_all_are_taken() {
        let limit = Limit::new(4);
        let turns = take(&limit);
        limit.resize(2);
        limit.resize(5);
        assert_eq!(take(&limit).len(), 1);
        drop(turns);
        assert_eq!(take(&limit).len(), 5);
    }

    #[test]
    fn copies_have_so_many_bytes_at_most() {
        let mirrors = Mirrors::default();
        assert!(mirrors.take_room(MAX_BYTES - 1));
        assert!(!mirrors.take_room(2));
        assert!(mirrors.take_room(1));
        mirrors.give_room(1);
        assert!(mirrors.take_room(1) && !mirrors.take_room(1));
    }
}
