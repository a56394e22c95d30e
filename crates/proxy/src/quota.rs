//! What one user may have in one hostgroup: a count of connections for all workers, and who waits for one of them. A server may
//! have a limit of its own for the user: once it was met, the user has as many as it may for a while, and then one more is tried.
//!
//! INVARIANT: each connection of the user in the hostgroup is counted here, whether there is a limit or not, so that one that
//! is set later holds at once.

use crate::class::Class;
use crate::queue::Queue;
use crate::safety::Safety;
use crate::server::pause_ms;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module.
pub struct Quota {
    connections: AtomicU32,
    /// Sessions of the user that wait in the hostgroup, where the user is limited there.
    pub queue: Queue,
    /// Process clock (ms) until which no server is asked for one more; 0 where none refused one lately.
    refused_until_ms: AtomicU64,
    refusals: AtomicU32,
    /// What the server said.
    refusal: Mutex<Option<String>>,
    workers: usize,
    lanes: Mutex<Vec<(Class, Arc<Queue>)>>,
}

impl Quota {
    /// Nothing is used of it.
    pub fn new(workers: usize) -> Self {
        Self {
            connections: AtomicU32::new(0),
            queue: Queue::new(workers),
            refused_until_ms: AtomicU64::new(0),
            refusals: AtomicU32::new(0),
            refusal: Mutex::default(),
            workers,
            lanes: Mutex::default(),
        }
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

    /// Whether there are as many as `limit` allows (0 is no limit), or as a server does.
    pub fn is_used_up(&self, limit: u64) -> bool {
        let is_at_limit = limit > 0 && u64::from(self.connections()) >= limit && !Safety::ConnectionLimit.is_off();
        is_at_limit || self.is_refused()
    }

    /// Whether a server refused one more, until [`Quota::look`] finds that one may be tried again.
    pub fn is_refused(&self) -> bool {
        self.refused_until_ms.load(Ordering::Acquire) > 0
    }

    /// Ends a pause whose time is over.
    pub fn look(&self, now_ms: u64) {
        let until_ms = self.refused_until_ms.load(Ordering::Acquire);
        if until_ms > 0 && until_ms <= now_ms {
            let _ = self.refused_until_ms.compare_exchange(until_ms, 0, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// One more is tried: after a refusal nobody else tries meanwhile. Answers how many refusals there were.
    pub fn tries(&self, now_ms: u64) -> u32 {
        let refusals = self.refusals.load(Ordering::Acquire);
        if refusals > 0 {
            self.refused_until_ms.store(now_ms + pause_ms(refusals), Ordering::Release);
        }
        refusals
    }

    /// A server let one more in.
    pub fn let_in(&self) {
        if self.refusals.swap(0, Ordering::AcqRel) > 0 {
            self.refused_until_ms.store(0, Ordering::Release);
        }
    }

    /// A server refused one more, for the user has as many there as it lets it have; `before` is how many refusals there were when
    /// it was tried.
    pub fn refuse(&self, error: &str, before: u32, now_ms: u64) {
        self.refusals.store(before.saturating_add(1), Ordering::Release);
        self.refused_until_ms.store(now_ms + pause_ms(before), Ordering::Release);
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_owned());
    }

    /// What a server said that refused one more, while none lets one in.
    pub fn refusal(&self) -> Option<String> {
        if self.refusals.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts one more, if `limit` allows; 0 is no limit.
    pub fn take(&self, limit: u64) -> bool {
        let max = if limit == 0 || Safety::ConnectionLimit.is_off() { u64::from(u32::MAX) } else { limit };
        let taken = self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (u64::from(n) < max).then_some(n + 1));
        taken.is_ok()
    }

    /// One of them is gone: a server that has refused one more may let one in now, or in a moment.
    pub fn give_back(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
        if self.is_refused() {
            self.refusals.store(1, Ordering::Release);
            self.refused_until_ms.store(1, Ordering::Release);
        }
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

    #[test]
    fn after_a_refusal_one_is_tried_at_a_time_and_ever_more_seldom() {
        let quota = Quota::new(1);
        assert_eq!(quota.tries(1000), 0);
        assert!(!quota.is_used_up(0) && quota.refusal().is_none());
        quota.refuse("1226", 0, 1000);
        quota.look(1009);
        assert!(quota.is_used_up(0));
        quota.look(1010);
        assert!(!quota.is_used_up(0) && quota.refusal().as_deref() == Some("1226"));
        assert_eq!(quota.tries(1010), 1);
        assert!(quota.is_used_up(0), "another one is not tried beside");
        quota.refuse("1226", 1, 1011);
        quota.look(1030);
        assert!(quota.is_used_up(0));
        assert!(quota.take(0));
        quota.give_back();
        quota.look(1030);
        assert!(!quota.is_used_up(0), "one that is closed makes room");
        quota.refuse("1226", 100, 2000);
        quota.look(2999);
        assert!(quota.is_used_up(0));
        quota.look(3000);
        assert!(!quota.is_used_up(0), "a second at most");
        quota.tries(3000);
        quota.let_in();
        assert!(!quota.is_used_up(0) && quota.refusal().is_none());
    }
}
