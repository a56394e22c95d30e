//! How a server stands in its hostgroup: whether it gets work, and until when sessions may stay on it.
//!
//! The placement is written whole; a few atomics say the same to those who ask with each statement. INVARIANT: the status is stored
//! last, so that a server that is ONLINE has everything else of its placement.

use crate::servers::terms::Terms;
use crate::workers::safety::Safety;
use arc_swap::ArcSwap;
use model::fleet::{Placement, UnderWay};
use model::snapshot::{Server, ServerStatus};
use session_state::pins::{PASSING, PinReason, PinSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// In the place of a status: the server serves the hostgroup no more.
const REMOVED: u8 = u8::MAX;
/// In the place of a time: it never comes.
pub(crate) const NEVER: u64 = u64::MAX;
/// Time between looks at what is still done on a server that drains, ms.
const LOOK_AGAIN_MS: u64 = 100;

/// See the module.
pub(crate) struct ServerStanding {
    placement: ArcSwap<Placement>,
    status: AtomicU8,
    /// An [`UnderWay`].
    under_way: AtomicU8,
    /// Process clock (ms) from which pinned sessions must leave; [`NEVER`] while they may stay.
    leave_at_ms: AtomicU64,
    /// Process clock (ms) from which sessions must leave whose pin is no transaction, because it drains; [`NEVER`] while they
    /// may stay.
    drained_at_ms: AtomicU64,
    /// Process clock (ms) until which its role is in doubt; 0 when it is not.
    suspect_until_ms: AtomicU64,
    /// Process clock (ms) since when it is used without a break.
    used_since_ms: AtomicU64,
}

impl ServerStanding {
    /// Of a server that is about to be placed for the first time.
    pub(super) fn new(placement: &Placement) -> Self {
        Self {
            placement: ArcSwap::from_pointee(placement.clone()),
            status: AtomicU8::new(REMOVED),
            under_way: AtomicU8::new(UnderWay::MayFinish as u8),
            leave_at_ms: AtomicU64::new(NEVER),
            drained_at_ms: AtomicU64::new(NEVER),
            suspect_until_ms: AtomicU64::new(0),
            used_since_ms: AtomicU64::new(0),
        }
    }

    /// How the server is placed; when it serves the hostgroup no more, how it was.
    pub(crate) fn placement(&self) -> Arc<Placement> {
        self.placement.load_full()
    }

    /// Its row of the configuration, or the row that stands for it; the last one, when it serves no more.
    pub(crate) fn config(&self) -> Arc<Server> {
        Arc::clone(&self.placement.load().server)
    }

    /// Whether this placement brings it back into use.
    pub(super) fn returns_by(&self, placement: &Placement) -> bool {
        let is_used = placement.status == ServerStatus::Online && placement.under_way != UnderWay::Severed;
        is_used && !self.is_online()
    }

    /// It is placed anew. What else a placement says of the server is stored before.
    pub(super) fn place(&self, placement: &Placement, terms: &Terms, now_ms: u64) {
        if self.returns_by(placement) {
            self.used_since_ms.store(now_ms, Ordering::Release);
        }
        self.under_way.store(placement.under_way as u8, Ordering::Release);
        self.suspect_until_ms.store(0, Ordering::Release);
        let leave_at_ms = leave_at(placement, self.leave_at_ms.load(Ordering::Acquire), terms.grace_ms, now_ms);
        self.leave_at_ms.store(leave_at_ms, Ordering::Release);
        let drained_at_ms = drained_at(placement, self.drained_at_ms.load(Ordering::Acquire), terms.drain_ms, now_ms);
        self.drained_at_ms.store(drained_at_ms, Ordering::Release);
        self.placement.store(Arc::new(placement.clone()));
        let is_severed = placement.under_way == UnderWay::Severed && placement.status == ServerStatus::Online;
        let status = if is_severed { ServerStatus::Shunned } else { placement.status };
        self.status.store(status as u8, Ordering::Release);
    }

    /// It serves the hostgroup no more: nothing new goes to it, and what has begun may finish, for a while; not on a dead one.
    pub(super) fn remove(&self, under_way: UnderWay, terms: &Terms, now_ms: u64) {
        // Who had no time to notice that it was severed still will.
        if !self.is_severed() {
            self.under_way.store(under_way as u8, Ordering::Release);
        }
        if self.status.swap(REMOVED, Ordering::AcqRel) == REMOVED {
            return;
        }
        let before = self.leave_at_ms.load(Ordering::Acquire);
        self.leave_at_ms.store(before.min(now_ms.saturating_add(terms.grace_ms)), Ordering::Release);
    }

    /// Whether new work may go to it, as far as its placement says.
    pub(crate) fn is_online(&self) -> bool {
        Safety::RoleCheck.is_off() || self.status.load(Ordering::Acquire) == ServerStatus::Online as u8
    }

    /// Whether new work may go to it: it is ONLINE, and its role is not in doubt at `now_ms`.
    pub(crate) fn is_usable(&self, now_ms: u64) -> bool {
        self.is_online() && (Safety::RoleCheck.is_off() || !self.is_suspect(now_ms))
    }

    /// Whether traffic put its role in doubt, and nobody has looked since.
    pub(crate) fn is_suspect(&self, now_ms: u64) -> bool {
        self.suspect_until_ms.load(Ordering::Acquire) > now_ms
    }

    /// Its role is in doubt until `until_ms`, unless somebody looks before.
    pub(crate) fn suspect(&self, until_ms: u64) {
        self.suspect_until_ms.store(until_ms, Ordering::Release);
    }

    /// Its role is in doubt no more.
    pub(crate) fn looked_at(&self) {
        self.suspect_until_ms.store(0, Ordering::Release);
    }

    /// Whether it serves the hostgroup no more.
    pub(crate) fn is_removed(&self) -> bool {
        self.status.load(Ordering::Acquire) == REMOVED
    }

    /// Its status; one that serves no more is OFFLINE_HARD.
    pub(crate) fn status(&self) -> ServerStatus {
        let status = self.status.load(Ordering::Acquire);
        let all = [ServerStatus::Online, ServerStatus::Shunned, ServerStatus::OfflineSoft, ServerStatus::ShunnedReplicationLag];
        all.into_iter().find(|s| *s as u8 == status).unwrap_or(ServerStatus::OfflineHard)
    }

    /// Whether its connections are closed, also those at work: it is taken for dead, or OFFLINE_HARD.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_severed() || self.status.load(Ordering::Acquire) == ServerStatus::OfflineHard as u8
    }

    /// Why its connections are closed, for those who had something there; None where they are not.
    pub(crate) fn why_cut(&self) -> Option<&'static str> {
        if self.is_severed() {
            Some("the proxy considers the server dead")
        } else {
            self.is_cut().then_some("the server was taken out of service (OFFLINE_HARD)")
        }
    }

    /// Whether it is taken for dead.
    pub(crate) fn is_severed(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == UnderWay::Severed as u8
    }

    /// Whether statements that run there may never end: it is out, and cut off from its cluster or from the monitor.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == UnderWay::EndsAfterGrace as u8
    }

    /// Process clock (ms) from which pinned sessions must leave it; [`NEVER`] while they may stay.
    pub(crate) fn leave_at_ms(&self) -> u64 {
        if Safety::GraceEnd.is_off() {
            return NEVER;
        }
        self.leave_at_ms.load(Ordering::Acquire)
    }

    /// [`Self::leave_at_ms`] for a session with these pins: a transaction may finish on a server that drains, however long it
    /// takes, and what else binds a session may last for ever.
    pub(crate) fn leave_at_ms_with(&self, pins: PinSet) -> u64 {
        // The sooner such a client is cut, the sooner it follows the new writer.
        if pins.contains(PinReason::ReplicationGtid) && !self.is_online() {
            return 0;
        }
        let in_transaction = pins.contains(PinReason::Transaction) || pins.contains(PinReason::Xa);
        let is_bound = !in_transaction && !pins.without(PASSING).is_empty();
        let drained_at_ms = if is_bound { self.drained_at_ms.load(Ordering::Acquire) } else { NEVER };
        self.leave_at_ms().min(drained_at_ms)
    }

    /// When a session with these pins is to be disturbed: as it must leave, and time after time where it must once its
    /// transaction is over.
    pub(crate) fn disturb_at_ms(&self, pins: PinSet, now_ms: u64) -> u64 {
        match (self.leave_at_ms_with(pins), self.drained_at_ms.load(Ordering::Acquire)) {
            (NEVER, NEVER) => NEVER,
            (NEVER, drained_at_ms) if !pins.is_empty() => drained_at_ms.max(now_ms + LOOK_AGAIN_MS),
            (leave_at_ms, _) => leave_at_ms,
        }
    }

    /// Process clock (ms) since when it is used without a break: what was known of it before may not hold.
    pub(crate) fn used_since_ms(&self) -> u64 {
        self.used_since_ms.load(Ordering::Acquire)
    }
}

/// From when (process clock, ms) pinned sessions must leave a server that is placed so. `before` is what held so far: time
/// that has begun to run goes on.
fn leave_at(placement: &Placement, before: u64, grace_ms: u64, now_ms: u64) -> u64 {
    match (placement.under_way, placement.status) {
        (UnderWay::Severed, _) | (_, ServerStatus::OfflineHard) => before.min(now_ms),
        // A transaction that only reads old rows harms nobody.
        (_, ServerStatus::Online | ServerStatus::OfflineSoft | ServerStatus::ShunnedReplicationLag) => NEVER,
        (_, ServerStatus::Shunned) => before.min(now_ms.saturating_add(grace_ms)),
    }
}

/// From when (process clock, ms) sessions whose pin is no transaction must leave a server that drains. Where its row says
/// OFFLINE_SOFT they may stay: so the administrator was promised.
fn drained_at(placement: &Placement, before: u64, drain_ms: u64, now_ms: u64) -> u64 {
    let drains = placement.status == ServerStatus::OfflineSoft && placement.server.status != ServerStatus::OfflineSoft;
    if drains { before.min(now_ms.saturating_add(drain_ms)) } else { NEVER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::placement;
    use crate::servers::server::TERMS;

    const ALL: [ServerStatus; 5] = [
        ServerStatus::Online,
        ServerStatus::Shunned,
        ServerStatus::OfflineSoft,
        ServerStatus::OfflineHard,
        ServerStatus::ShunnedReplicationLag,
    ];

    /// Of a server that is ONLINE.
    fn standing() -> ServerStanding {
        let standing = ServerStanding::new(&placement("a", 16, ServerStatus::Online));
        observed(&standing, ServerStatus::Online, 0);
        standing
    }

    fn observed(standing: &ServerStanding, status: ServerStatus, now_ms: u64) {
        standing.place(&placement("a", 16, status), &TERMS, now_ms);
    }

    /// Every status after every other: who is used, who must leave when.
    #[test]
    fn a_status_says_who_may_stay() {
        for before in ALL {
            for after in ALL {
                let server = standing();
                observed(&server, before, 1000);
                observed(&server, after, 2000);
                assert_eq!(server.is_online(), after == ServerStatus::Online);
                assert_eq!(server.is_cut(), after == ServerStatus::OfflineHard);
                assert_eq!(server.status(), after);
                let expected = match (before, after) {
                    (_, ServerStatus::Online | ServerStatus::OfflineSoft | ServerStatus::ShunnedReplicationLag) => NEVER,
                    (ServerStatus::OfflineHard, ServerStatus::Shunned | ServerStatus::OfflineHard) => 1000,
                    (ServerStatus::Shunned, ServerStatus::Shunned) => 1500,
                    (ServerStatus::Shunned, ServerStatus::OfflineHard) => 1500,
                    (_, ServerStatus::OfflineHard) => 2000,
                    (_, ServerStatus::Shunned) => 2500,
                };
                assert_eq!(server.leave_at_ms(), expected, "{before:?} then {after:?}");
            }
        }
    }

    #[test]
    fn on_a_server_that_drains_transactions_may_finish_and_other_pins_have_a_limit() {
        let server = standing();
        let bound = PinSet::of(&[PinReason::UserVariable]);
        let others = [
            PinSet::default(),
            PinSet::of(&[PinReason::Transaction]),
            PinSet::of(&[PinReason::Transaction, PinReason::UserVariable]),
            PinSet::of(&[PinReason::Xa]),
            PinSet::of(&[PinReason::Cursor, PinReason::MultiplexingOff]),
        ];
        observed(&server, ServerStatus::OfflineSoft, 1000);
        observed(&server, ServerStatus::OfflineSoft, 1400);
        assert_eq!((server.leave_at_ms_with(bound), server.disturb_at_ms(bound, 1400)), (1800, 1800), "time that runs goes on");
        for pins in others {
            assert_eq!(server.leave_at_ms_with(pins), NEVER, "{pins:?}");
            let looks = if pins.is_empty() { (NEVER, NEVER) } else { (1800, 2100) };
            assert_eq!((server.disturb_at_ms(pins, 1400), server.disturb_at_ms(pins, 2000)), looks, "{pins:?}");
        }
        observed(&server, ServerStatus::Online, 1500);
        assert_eq!((server.leave_at_ms_with(bound), server.disturb_at_ms(bound, 1500)), (NEVER, NEVER));
        let mut by_row = placement("a", 16, ServerStatus::OfflineSoft);
        by_row.server = Arc::new(Server { status: ServerStatus::OfflineSoft, ..Server::clone(&by_row.server) });
        server.place(&by_row, &TERMS, 3000);
        assert_eq!((server.leave_at_ms_with(bound), server.disturb_at_ms(bound, 9000)), (NEVER, NEVER), "an administrator's");
    }

    #[test]
    fn a_stream_by_gtid_leaves_at_once() {
        let server = standing();
        let stream = PinSet::of(&[PinReason::ReplicationGtid]);
        assert_eq!((server.leave_at_ms_with(stream), server.disturb_at_ms(stream, 900)), (NEVER, NEVER));
        server.remove(UnderWay::MayFinish, &TERMS, 1000);
        assert_eq!((server.leave_at_ms_with(stream), server.disturb_at_ms(stream, 1000)), (0, 0));
    }

    #[test]
    fn a_removed_server_gives_a_grace_once() {
        let server = standing();
        server.remove(UnderWay::MayFinish, &TERMS, 1000);
        server.remove(UnderWay::MayFinish, &TERMS, 1400);
        assert!(server.is_removed() && !server.is_online() && !server.is_cut());
        assert_eq!((server.leave_at_ms(), server.status()), (1500, ServerStatus::OfflineHard));
        observed(&server, ServerStatus::Online, 1450);
        assert_eq!(server.leave_at_ms(), NEVER);
    }

    #[test]
    fn severed_is_not_used_and_cut() {
        let server = standing();
        let severed = Placement { under_way: UnderWay::Severed, ..placement("a", 16, ServerStatus::Online) };
        server.place(&severed, &TERMS, 1000);
        assert!(server.is_cut() && server.is_severed() && !server.is_online());
        assert!(server.leave_at_ms() <= 1000);
        server.remove(UnderWay::MayFinish, &TERMS, 2000);
        assert!(server.is_cut(), "who had no time to notice still will");
        observed(&server, ServerStatus::Online, 3000);
        assert!(!server.is_cut() && server.is_online());
    }

    #[test]
    fn who_is_cut_off_is_so_until_it_is_placed_otherwise() {
        let server = standing();
        let cut_off = Placement { under_way: UnderWay::EndsAfterGrace, ..placement("a", 16, ServerStatus::Shunned) };
        server.place(&cut_off, &TERMS, 1000);
        assert!(server.is_cut_off() && !server.is_cut() && !server.is_online());
        assert_eq!(server.leave_at_ms(), 1500);
        server.remove(UnderWay::EndsAfterGrace, &TERMS, 1200);
        assert!(server.is_cut_off() && !server.is_cut());
        assert_eq!(server.leave_at_ms(), 1500, "the grace is given once");
        server.remove(UnderWay::MayFinish, &TERMS, 1300);
        assert!(!server.is_cut_off(), "it is back with its cluster, in another role");
        server.remove(UnderWay::Severed, &TERMS, 1400);
        server.remove(UnderWay::EndsAfterGrace, &TERMS, 1400);
        assert!(server.is_cut(), "a dead one stays so");
        observed(&server, ServerStatus::Online, 2000);
        assert!(!server.is_cut_off() && !server.is_cut() && server.is_online());
    }

    #[test]
    fn every_break_begins_its_use_anew() {
        let server = standing();
        for (at, status) in [ServerStatus::Shunned, ServerStatus::OfflineSoft, ServerStatus::ShunnedReplicationLag].into_iter().enumerate()
        {
            let now_ms = 1000 * (at as u64 + 1);
            observed(&server, status, now_ms);
            observed(&server, ServerStatus::Online, now_ms + 100);
            observed(&server, ServerStatus::Online, now_ms + 200);
            assert_eq!(server.used_since_ms(), now_ms + 100, "{status:?}");
        }
        server.remove(UnderWay::MayFinish, &TERMS, 5000);
        observed(&server, ServerStatus::Online, 6000);
        assert_eq!(server.used_since_ms(), 6000, "it had another role");
    }

    #[test]
    fn suspicion_ends_by_time_by_a_placement_or_a_look() {
        let server = standing();
        server.suspect(1100);
        assert!(!server.is_usable(1099) && server.is_usable(1100) && server.is_online());
        server.suspect(1100);
        observed(&server, ServerStatus::Online, 1000);
        assert!(server.is_usable(1001));
        server.suspect(1100);
        server.looked_at();
        assert!(server.is_usable(1001));
    }

    #[test]
    fn who_loses_its_connections_is_told_why() {
        let server = standing();
        assert_eq!(server.why_cut(), None);
        for (status, why) in [(ServerStatus::Shunned, None), (ServerStatus::OfflineHard, Some("OFFLINE_HARD"))] {
            observed(&server, status, 1000);
            assert_eq!(server.why_cut().is_some(), why.is_some(), "{status:?}");
            assert!(why.is_none_or(|why| server.why_cut().unwrap().contains(why)), "{status:?}");
        }
        let severed = Placement { under_way: UnderWay::Severed, ..placement("a", 16, ServerStatus::OfflineHard) };
        server.place(&severed, &TERMS, 1000);
        assert!(server.why_cut().unwrap().contains("dead"), "that it is dead explains more");
    }
}
