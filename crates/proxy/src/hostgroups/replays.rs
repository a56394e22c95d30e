//! The sessions of one hostgroup that lost an open transaction and say it again, and how long others let them go first.
//!
//! What such a session was told before, such as AUTO_INCREMENT values, stays true only as long as nobody else takes it. So
//! others begin nothing in the hostgroup until all of them have said again what they had said, but for
//! `transaction_replay_head_start_ms` at most, which counts from when the first of them has a server.
//!
//! A session notices only after a while that its server is lost, and others are faster. So each transaction that would have to be
//! said again is counted with its server ([`Stake`]): when another server takes the place of one that has such transactions, they
//! have the same head start from that moment on.
//!
//! A writer that changes again and again would renew it again and again. So who has given way as long as a head start without a break
//! gives way to nobody for as long.

use crate::hostgroups::hostgroup::HostgroupShared;
use crate::servers::server::{NEVER, ServerShared};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The replays of a hostgroup, for all workers.
#[derive(Default)]
pub(crate) struct Replays {
    under_way: AtomicU32,
    /// When (process clock, us) the first of those under way got a server; 0 while none has.
    first_served_us: AtomicU64,
    /// When (process clock, us) a server last took the place of others; 0 when the head start since then is over.
    replaced_us: AtomicU64,
    /// Since when (process clock, us) others give way without a break, until all have said what they had to; 0 when they do not.
    gives_way_us: AtomicU64,
    changed: Notify,
}

/// A transaction that would have to be said again if its server were lost; ends when dropped.
pub(crate) struct Stake {
    hostgroup: Arc<HostgroupShared>,
    server: Arc<ServerShared>,
}

/// A session that has a transaction to say again; ends when dropped.
pub(crate) struct Replaying(Arc<HostgroupShared>);

impl Replays {
    /// Whether there are any.
    fn are_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// Whether there may be any, or a server was replaced a moment ago, and they are given a head start. For each statement, so it
    /// reads no clock.
    pub(crate) fn may_be_due(&self, head_start_ms: u64) -> bool {
        head_start_ms > 0 && (self.are_under_way() || self.replaced_us.load(Ordering::Acquire) > 0)
    }

    /// Until when (process clock, us) others wait; None when they need not. The far future while no replay has a server.
    /// `servers` are those of the hostgroup.
    pub(crate) fn head_start_ends_us(&self, head_start_ms: u64, servers: &[Arc<ServerShared>], now_us: u64) -> Option<u64> {
        if !self.may_be_due(head_start_ms) {
            return None;
        }
        let ends_us = self.is_due_until_us(head_start_ms, servers, now_us)?;
        // Until one of them has a server, others wait for one too.
        if ends_us == u64::MAX { Some(ends_us) } else { self.in_turns(head_start_ms * 1000, ends_us, now_us) }
    }

    /// A head start that ends then, unless others have given way for as long as one lasts: then it is their turn, for as long.
    fn in_turns(&self, head_start_us: u64, ends_us: u64, now_us: u64) -> Option<u64> {
        let since_us = match self.gives_way_us.load(Ordering::Acquire) {
            since_us if since_us > 0 && now_us < since_us.saturating_add(2 * head_start_us) => since_us,
            over_us => {
                let now_us = now_us.max(1);
                let begun = self.gives_way_us.compare_exchange(over_us, now_us, Ordering::AcqRel, Ordering::Acquire);
                begun.map_or_else(|other_us| other_us, |_| now_us)
            }
        };
        let turn_us = since_us.saturating_add(head_start_us);
        (now_us < turn_us).then(|| ends_us.min(turn_us))
    }

    /// Until when a head start would last that is given for the first time.
    fn is_due_until_us(&self, head_start_ms: u64, servers: &[Arc<ServerShared>], now_us: u64) -> Option<u64> {
        let from = |since_us: u64| since_us.saturating_add(head_start_ms * 1000);
        let of_replays = match self.first_served_us.load(Ordering::Acquire) {
            _ if !self.are_under_way() => None,
            0 => Some(u64::MAX),
            since_us => Some(from(since_us)),
        };
        let is_stranded = |server: &Arc<ServerShared>| server.stakes() > 0 && is_lost(server);
        let of_stranded = match self.replaced_us.load(Ordering::Acquire) {
            0 => None,
            replaced_us if now_us < from(replaced_us) => servers.iter().any(is_stranded).then(|| from(replaced_us)),
            replaced_us => {
                // It is over: the next statements need not ask.
                _ = self.replaced_us.compare_exchange(replaced_us, 0, Ordering::AcqRel, Ordering::Relaxed);
                None
            }
        };
        of_replays.max(of_stranded)
    }

    /// A server is about to take the place of those that were lost.
    pub(crate) fn replaced(&self, now_us: u64) {
        self.replaced_us.store(now_us.max(1), Ordering::Release);
    }

    /// Ready when there may be another answer to the question above; to be had before it is asked.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// One of them has a server.
    pub(crate) fn served(&self, now_us: u64) {
        if self.first_served_us.compare_exchange(0, now_us.max(1), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.changed.notify_waiters();
        }
    }
}

impl Replaying {
    /// One more in this hostgroup.
    pub(crate) fn begin(hostgroup: &Arc<HostgroupShared>) -> Self {
        if hostgroup.replays.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            hostgroup.replays.first_served_us.store(0, Ordering::Release);
        }
        Self(Arc::clone(hostgroup))
    }
}

/// Whether a transaction cannot stay on the server for long.
fn is_lost(server: &ServerShared) -> bool {
    !server.is_online() && server.standing.leave_at_ms() != NEVER
}

impl Stake {
    /// A transaction on a server of this hostgroup.
    pub(crate) fn new(hostgroup: &Arc<HostgroupShared>, server: &Arc<ServerShared>) -> Self {
        server.begin_stake();
        Self { hostgroup: Arc::clone(hostgroup), server: Arc::clone(server) }
    }

    pub(crate) fn is_on(&self, server: &Arc<ServerShared>) -> bool {
        Arc::ptr_eq(&self.server, server)
    }

    /// Whether the server of the transaction is lost.
    pub(crate) fn is_stranded(&self) -> bool {
        is_lost(&self.server)
    }
}

impl Drop for Stake {
    fn drop(&mut self) {
        if self.server.end_stake() && is_lost(&self.server) {
            self.hostgroup.replays.changed.notify_waiters();
        }
    }
}

impl Drop for Replaying {
    fn drop(&mut self) {
        if self.0.replays.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.replays.gives_way_us.store(0, Ordering::Release);
            self.0.replays.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed;
    use crate::servers::server::PlacedBy;
    use crate::servers::terms::{HostgroupRole, Terms};
    use model::HostgroupId;
    use model::fleet::Placement;
    use model::snapshot::{HostgroupAttributes, ServerStatus};
    use std::collections::HashMap;

    /// The writers of a cluster, of whom there are none yet.
    fn writers() -> Arc<HostgroupShared> {
        let attributes = HostgroupAttributes::from_variables(&model::snapshot::Snapshot::default().vars);
        let terms = Terms { grace_ms: 60_000, role: HostgroupRole::Writer, ..Terms::default() };
        Arc::new(HostgroupShared::new(HostgroupId(0), &attributes, terms, 1))
    }

    #[test]
    fn the_head_start_counts_from_the_first_that_is_served() {
        let hostgroup = writers();
        let replays = &hostgroup.replays;
        let ends_us = |head_start_ms| replays.head_start_ends_us(head_start_ms, &[], 6_000);
        assert_eq!(ends_us(10), None);
        let (first, second) = (Replaying::begin(&hostgroup), Replaying::begin(&hostgroup));
        assert_eq!(ends_us(10), Some(u64::MAX));
        assert_eq!(ends_us(0), None, "switched off");
        replays.served(5_000);
        replays.served(6_000);
        assert_eq!(ends_us(10), Some(15_000));
        drop(first);
        assert_eq!(ends_us(10), Some(15_000));
        drop(second);
        assert_eq!(ends_us(10), None);
        let _next = Replaying::begin(&hostgroup);
        assert_eq!(ends_us(10), Some(u64::MAX), "another loss, another head start");
    }

    /// Simulator seed 1832: a writer that changed several times a second, and writes that waited for seconds.
    #[test]
    fn a_writer_that_changes_all_the_time_holds_nobody_for_ever() {
        let hostgroup = writers();
        let [a, b] = ["a", "b"].map(|host| [bed::placement(host, 1, ServerStatus::Online)]);
        let place = |placements: &[Placement], now_ms| hostgroup.place(placements, &HashMap::new(), PlacedBy::Observation, now_ms);
        let ends_us = |now_us| hostgroup.replays.head_start_ends_us(10, &hostgroup.servers(), now_us);
        let on_the_writer = || Stake::new(&hostgroup, hostgroup.servers().iter().find(|server| server.is_online()).unwrap());
        place(&a, 1);
        let _on_a = on_the_writer();
        place(&b, 5);
        let _on_b = on_the_writer();
        assert_eq!(ends_us(5_000), Some(15_000));
        place(&a, 10);
        assert_eq!(ends_us(14_000), Some(15_000), "no longer for a second change");
        place(&b, 15);
        assert_eq!([ends_us(15_000), ends_us(24_000)], [None, None], "the turn of the others");
        place(&a, 24);
        assert_eq!(ends_us(25_000), Some(34_000), "and another head start");
        assert_eq!(ends_us(35_000), None);
    }

    #[test]
    fn who_was_on_a_server_that_was_replaced_has_a_head_start_before_anybody_moves() {
        let hostgroup = writers();
        let [a, b] = ["a", "b"].map(|host| [bed::placement(host, 1, ServerStatus::Online)]);
        let place = |placements: &[Placement], now_ms| hostgroup.place(placements, &HashMap::new(), PlacedBy::Observation, now_ms);
        let ends_us = |now_us| hostgroup.replays.head_start_ends_us(10, &hostgroup.servers(), now_us);
        place(&a, 1);
        let stakes = [(); 2].map(|()| Stake::new(&hostgroup, &hostgroup.servers()[0]));
        assert_eq!(ends_us(1_000), None);
        place(&b, 5);
        assert!(hostgroup.replays.may_be_due(10) && stakes[0].is_stranded());
        assert_eq!(ends_us(5_000), Some(15_000));
        let [one, other] = stakes;
        drop(one);
        assert_eq!(ends_us(6_000), Some(15_000));
        let replaying = Replaying::begin(&hostgroup);
        assert_eq!(ends_us(6_000), Some(u64::MAX));
        drop(replaying);
        assert_eq!(ends_us(6_000), Some(15_000));
        assert_eq!(ends_us(15_000), None, "it may stay there and finish, but nobody waits any more");
        assert!(!hostgroup.replays.may_be_due(10), "nor asks");
        drop(other);
    }
}
