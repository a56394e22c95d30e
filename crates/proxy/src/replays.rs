//! The sessions of one hostgroup that lost an open transaction and say it again, and how long others let them go first.
//!
//! What such a session was told before, such as AUTO_INCREMENT values, stays true only as long as nobody else takes it. So
//! others begin nothing in the hostgroup until all of them have said again what they had said, but for
//! `transaction_replay_head_start_ms` at most, which counts from when the first of them has a server.

use crate::hostgroup::HostgroupShared;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The replays of a hostgroup, for all workers.
#[derive(Default)]
pub struct Replays {
    under_way: AtomicU32,
    /// When (process clock, us) the first of those under way got a server; 0 while none has.
    first_served_us: AtomicU64,
    changed: Notify,
}

/// A session that has a transaction to say again; ends when dropped.
pub struct Replaying(Arc<HostgroupShared>);

impl Replays {
    /// Whether there are any.
    pub fn are_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// Until when (process clock, us) others wait; None when they need not. The far future while no replay has a server.
    pub fn head_start_ends_us(&self, head_start_ms: u64) -> Option<u64> {
        match self.first_served_us.load(Ordering::Acquire) {
            _ if head_start_ms == 0 || !self.are_under_way() => None,
            0 => Some(u64::MAX),
            since_us => Some(since_us.saturating_add(head_start_ms * 1000)),
        }
    }

    /// Ready when there may be another answer to the question above; to be had before it is asked.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// One of them has a server.
    pub fn served(&self, now_us: u64) {
        if self.first_served_us.compare_exchange(0, now_us.max(1), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.changed.notify_waiters();
        }
    }
}

impl Replaying {
    /// One more in this hostgroup.
    pub fn begin(hostgroup: &Arc<HostgroupShared>) -> Self {
        if hostgroup.replays.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            hostgroup.replays.first_served_us.store(0, Ordering::Release);
        }
        Self(Arc::clone(hostgroup))
    }
}

impl Drop for Replaying {
    fn drop(&mut self) {
        if self.0.replays.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.replays.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostgroup::Terms;
    use model::HostgroupId;
    use model::snapshot::HostgroupAttributes;

    #[test]
    fn the_head_start_counts_from_the_first_that_is_served() {
        let attributes = HostgroupAttributes::from_variables(&model::snapshot::Snapshot::default().vars);
        let hostgroup = Arc::new(HostgroupShared::new(HostgroupId(0), &attributes, Terms::default(), 1));
        let replays = &hostgroup.replays;
        assert_eq!(replays.head_start_ends_us(10), None);
        let (first, second) = (Replaying::begin(&hostgroup), Replaying::begin(&hostgroup));
        assert_eq!(replays.head_start_ends_us(10), Some(u64::MAX));
        assert_eq!(replays.head_start_ends_us(0), None, "switched off");
        replays.served(5_000);
        replays.served(6_000);
        assert_eq!(replays.head_start_ends_us(10), Some(15_000));
        drop(first);
        assert_eq!(replays.head_start_ends_us(10), Some(15_000));
        drop(second);
        assert_eq!(replays.head_start_ends_us(10), None);
        let _next = Replaying::begin(&hostgroup);
        assert_eq!(replays.head_start_ends_us(10), Some(u64::MAX), "another loss, another head start");
    }
}
