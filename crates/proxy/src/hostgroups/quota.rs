//! What one user may have in one hostgroup: a count of connections for all workers, and who waits for one of them. A server may
//! have a limit of its own for the user: once it was met, none more is asked of that server for a while, and then one is tried. Where
//! all servers have refused one more, the user has as many as it may.
//!
//! INVARIANT: each connection of the user in the hostgroup is counted here, whether there is a limit or not, so that one that
//! is set later holds at once.

use crate::hostgroups::queue::Queue;
use crate::servers::refusals::Refusals;
use crate::servers::server::ServerShared;
use crate::workers::safety::Safety;
use session_state::class::Class;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module.
pub(crate) struct Quota {
    connections: AtomicU32,
    /// Sessions of the user that wait in the hostgroup, where the user is limited there.
    pub queue: Queue,
    refusals: Mutex<Refusals>,
    /// Whether there are refusals.
    is_refused_somewhere: AtomicBool,
    /// Whether no server is to be asked for one more now.
    is_refused: AtomicBool,
    workers: usize,
    lanes: Mutex<Vec<(Class, Arc<Queue>)>>,
}

impl Quota {
    /// Nothing is used of it.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            connections: AtomicU32::new(0),
            queue: Queue::new(workers),
            refusals: Mutex::default(),
            is_refused_somewhere: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            workers,
            lanes: Mutex::default(),
        }
    }

    /// Who waits for the user's connections with these client flags, limited or not.
    pub(crate) fn line(&self, class: Class) -> Arc<Queue> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, line)) = lanes.iter().find(|(of, _)| *of == class) {
            return Arc::clone(line);
        }
        let line = Arc::new(Queue::new(self.workers));
        lanes.push((class, Arc::clone(&line)));
        line
    }

    /// Connections that exist or are being made.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::Acquire)
    }

    /// Whether there are as many as `limit` allows (0 is no limit), or as the servers do.
    pub(crate) fn is_used_up(&self, limit: u64) -> bool {
        let is_at_limit = limit > 0 && u64::from(self.connections()) >= limit && !Safety::ConnectionLimit.is_off();
        is_at_limit || self.is_refused()
    }

    /// Whether every server refused one more, until [`Quota::look`] finds that one may be tried again.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    /// Whether some server refused one more, and has let none in since.
    pub(crate) fn is_refused_somewhere(&self) -> bool {
        self.is_refused_somewhere.load(Ordering::Acquire)
    }

    pub(crate) fn may_ask(&self, server: &ServerShared) -> bool {
        !self.is_refused_somewhere() || !self.refusals().rests(server, 0)
    }

    /// Ends pauses whose time is over; `servers` are the hostgroup's.
    pub(crate) fn look(&self, servers: &[Arc<ServerShared>], now_ms: u64) {
        let mut refusals = self.refusals();
        refusals.look(servers, now_ms);
        self.reckon(&refusals, servers);
    }

    /// One more is tried: after a refusal nobody else tries meanwhile. Returns how many refusals there were.
    pub(crate) fn tries(&self, server: &ServerShared, servers: &[Arc<ServerShared>], now_ms: u64) -> u32 {
        if !self.is_refused_somewhere() {
            return 0;
        }
        let mut refusals = self.refusals();
        let count = refusals.tries(server, now_ms);
        self.reckon(&refusals, servers);
        count
    }

    pub(crate) fn let_in(&self, server: &ServerShared) {
        if self.is_refused_somewhere() {
            let mut refusals = self.refusals();
            refusals.let_in(server);
            self.reckon(&refusals, &[]);
        }
    }

    /// A server refused one more, for the user has as many there as it lets it have; `before` is how many refusals there were when
    /// it was tried.
    pub(crate) fn refuse(&self, server: &ServerShared, servers: &[Arc<ServerShared>], error: String, before: u32, now_ms: u64) {
        let mut refusals = self.refusals();
        refusals.refused(server, error, before, now_ms);
        self.reckon(&refusals, servers);
    }

    /// What a server said that refused one more, while none lets one in.
    pub(crate) fn refusal(&self, servers: &[Arc<ServerShared>]) -> Option<String> {
        self.refusals().said(servers)
    }

    /// Counts one more, if `limit` allows; 0 is no limit.
    pub(crate) fn take(&self, limit: u64) -> bool {
        let max = if limit == 0 || Safety::ConnectionLimit.is_off() { u64::from(u32::MAX) } else { limit };
        let taken = self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (u64::from(n) < max).then_some(n + 1));
        taken.is_ok()
    }

    /// One that was counted is not made.
    pub(crate) fn give_back(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// One of them is gone: a server that has refused one more may let one in now, or in a moment.
    pub(crate) fn closed(&self, server: &ServerShared) {
        self.give_back();
        if self.is_refused_somewhere() {
            self.refusals().eased(server);
        }
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the refusals come to.
    fn reckon(&self, refusals: &Refusals, servers: &[Arc<ServerShared>]) {
        self.is_refused_somewhere.store(!refusals.is_empty(), Ordering::Release);
        self.is_refused.store(refusals.all_rest(servers, 0), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::server;

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
        let (quota, servers) = (Quota::new(1), [server("a", 1)]);
        let one = &servers[0];
        assert_eq!(quota.tries(one, &servers, 1000), 0);
        assert!(!quota.is_used_up(0) && quota.refusal(&servers).is_none());
        quota.refuse(one, &servers, "1226".into(), 0, 1000);
        quota.look(&servers, 1009);
        assert!(quota.is_used_up(0));
        quota.look(&servers, 1010);
        assert!(!quota.is_used_up(0) && quota.refusal(&servers).as_deref() == Some("a:3306: 1226"));
        assert_eq!(quota.tries(one, &servers, 1010), 1);
        assert!(quota.is_used_up(0), "another one is not tried beside");
        quota.refuse(one, &servers, "1226".into(), 1, 1011);
        quota.look(&servers, 1030);
        assert!(quota.is_used_up(0));
        assert!(quota.take(0));
        quota.closed(one);
        quota.look(&servers, 1030);
        assert!(!quota.is_used_up(0), "one that is closed makes room");
        quota.refuse(one, &servers, "1226".into(), 100, 2000);
        quota.look(&servers, 2999);
        assert!(quota.is_used_up(0));
        quota.look(&servers, 3000);
        assert!(!quota.is_used_up(0), "a second at most");
        quota.tries(one, &servers, 3000);
        quota.let_in(one);
        assert!(!quota.is_used_up(0) && quota.refusal(&servers).is_none());
    }

    #[test]
    fn what_one_server_refuses_another_may_give() {
        let (quota, servers) = (Quota::new(1), [server("a", 1), server("b", 1), server("no weight", 0)]);
        let [a, b, _] = &servers;
        quota.refuse(a, &servers, "1226".into(), 0, 1000);
        assert!(!quota.may_ask(a) && quota.may_ask(b));
        assert!(!quota.is_used_up(0) && quota.refusal(&servers).is_none());
        quota.refuse(b, &servers, "1203".into(), 0, 1005);
        assert!(quota.is_used_up(0) && quota.refusal(&servers).is_some());
        quota.look(&servers, 1010);
        assert!(!quota.is_used_up(0) && quota.may_ask(a) && !quota.may_ask(b));
        quota.look(&servers[..1], 1010);
        assert!(quota.may_ask(b), "what is not there any more refuses nothing");
    }
}
