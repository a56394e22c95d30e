//! What one user may have in one hostgroup: a count of connections for all workers, and who waits for one of them.
//!
//! INVARIANT: each connection of the user in the hostgroup is counted here, whether there is a limit or not, so that one that
//! is set later holds at once.

use crate::class::Class;
use crate::queue::Queue;
use crate::safety::Safety;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module.
pub struct Quota {
    connections: AtomicU32,
    /// Sessions of the user that wait in the hostgroup, where the user is limited there.
    pub queue: Queue,
    workers: usize,
    lanes: Mutex<Vec<(Class, Arc<Queue>)>>,
}

impl Quota {
    /// Nothing is used of it.
    pub fn new(workers: usize) -> Self {
        Self { connections: AtomicU32::new(0), queue: Queue::new(workers), workers, lanes: Mutex::default() }
    }

    /// Who waits for the user's connections with these client flags, limited or not.
    pub fn line(&self, class: Class) -> Arc<Queue> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, line)) = lanes.iter().find(|(of, _)| *of == class) {
            return Arc::clone(line);
        }
        let line = Arc::new(Queue::new(self.workers));
        lanes.push((class, Arc::clone(&line)));
        line
    }

    /// Connections that exist or are being made.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Acquire)
    }

    /// Whether there are as many as `limit` allows; 0 is no limit.
    pub fn is_used_up(&self, limit: u64) -> bool {
        limit > 0 && u64::from(self.connections()) >= limit && !Safety::ConnectionLimit.is_off()
    }

    /// Counts one more, if `limit` allows; 0 is no limit.
    pub fn take(&self, limit: u64) -> bool {
        let max = if limit == 0 || Safety::ConnectionLimit.is_off() { u64::from(u32::MAX) } else { limit };
        let taken = self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (u64::from(n) < max).then_some(n + 1));
        taken.is_ok()
    }

    /// One of them is gone.
    pub fn give_back(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_passed_and_may_come_later() {
        let quota = Quota::new(1);
        assert!(quota.take(0) && quota.take(0) && quota.take(0));
        assert!(quota.is_used_up(2) && !quota.is_used_up(0) && !quota.is_used_up(4));
        assert!(!quota.take(2));
        assert!(!quota.take(3) && quota.take(4));
        quota.give_back();
        assert_eq!(quota.connections(), 3);
    }
}
