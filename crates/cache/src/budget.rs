//! The memory that cached results may take: one [`CacheBudget`] for the process, a [`Permit`] with whatever takes a part.
//!
//! INVARIANT: the sum of all permits never exceeds the limit they were asked under. A permit lives as long as the bytes it
//! stands for, so a result that was evicted while a session still writes it to its client counts until that is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module. Sizes are in bytes.
#[derive(Debug, Default)]
pub(crate) struct CacheBudget {
    limit: AtomicUsize,
    used: AtomicUsize,
}

impl CacheBudget {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: AtomicUsize::new(limit), used: AtomicUsize::new(0) }
    }

    /// Another limit. Permits that are out stay out.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Release);
    }

    /// The limit, bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Acquire)
    }

    /// Bytes that are taken.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Bytes by which `wanted` more would exceed the limit; 0 when they fit.
    pub(crate) fn lacks(&self, wanted: usize) -> usize {
        self.used().saturating_add(wanted).saturating_sub(self.limit())
    }

    /// An empty permit.
    pub(crate) fn permit(self: &Arc<Self>) -> Permit {
        Permit { budget: Arc::clone(self), bytes: 0 }
    }

    fn take(&self, bytes: usize) -> bool {
        let limit = self.limit();
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }
}

/// Some bytes of a budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<CacheBudget>,
    bytes: usize,
}

impl Permit {
    /// Bytes it stands for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `more` bytes; false, and nothing changed, when they do not fit.
    #[must_use]
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        let fits = self.budget.take(more);
        if fits {
            self.bytes += more;
        }
        fits
    }

    /// Gives back all but `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.budget.used.fetch_sub(surplus, Ordering::AcqRel);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_never_exceed_the_limit_and_come_back() {
        let budget = Arc::new(CacheBudget::new(100));
        let mut a = budget.permit();
        assert!(a.grow(60));
        let mut b = budget.permit();
        assert!(!b.grow(41));
        assert!(b.grow(40));
        assert_eq!((budget.used(), budget.lacks(7)), (100, 7));
        a.shrink_to(10);
        assert_eq!((budget.used(), a.bytes()), (50, 10));
        drop(a);
        drop(b);
        assert_eq!(budget.used(), 0);
    }
}
