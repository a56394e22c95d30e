//! Sessions that wait because the servers are full, and what is published of them to other workers.
//!
//! INVARIANT: what is told holds for this worker's waiters as they stand: it is told again with each one that comes or goes.

use super::lines::FRONT;
use super::waiting::{Kind, Waiter, Waiters, may_connect};
use super::{HostgroupPool, LANES_BOUND_US};
use crate::hostgroups::choice::Needs;
use crate::hostgroups::lane::Lane;
use crate::hostgroups::queue::{Choosy, NOBODY};
use crate::servers::server::ServerShared;
use crate::workers::worker::Worker;
use std::rc::Rc;

impl HostgroupPool {
    /// Whether one who waits could have a connection, now or when a server is full no more: not where every server that is used
    /// is further behind than it wants, nor where each has refused its lane.
    pub(super) fn has_hope(&self, waiter: &Waiter, now_ms: u64) -> bool {
        let accepts_one = || self.servers.borrow().iter().any(|s| s.takes_work(now_ms) && waiter.wish.needs.accept(s));
        self.is_let_in(&waiter.lane, now_ms) && (!waiter.is_choosy() || accepts_one())
    }

    /// The first part of that, for a whole lane.
    pub(super) fn is_let_in(&self, lane: &Lane, now_ms: u64) -> bool {
        !self.has_refused.get() || !lane.is_refused(&self.servers.borrow(), now_ms)
    }

    /// Whether connections may be opened for a line, as far as its lane goes.
    pub(super) fn may_grow_in(&self, kind: &Kind, now_ms: u64) -> bool {
        !(self.has_limits.get() && kind.lane.is_used_up()) && self.is_let_in(&kind.lane, now_ms)
    }

    /// Those who wait because the servers that they could connect to are full, in order, without those for whom connections are
    /// being opened; with `on` only those who could connect to that server.
    pub(super) fn without_room<'a>(
        &'a self,
        waiters: &'a Waiters,
        on: Option<&'a ServerShared>,
        now_ms: u64,
    ) -> impl Iterator<Item = &'a Rc<Waiter>> {
        let wants = move |kind: &Kind| kind.takes_used && self.may_grow_in(kind, now_ms);
        let lacks_room = move |lane: &Lane, needs: Needs| self.lacks_room(lane, needs, on, now_ms);
        let may_lack = move |kind: &Kind| wants(kind) && (kind.is_choosy || lacks_room(&kind.lane, Needs::default()));
        let has_hope = move |w: &Rc<Waiter>| !w.is_choosy() || self.has_hope(w, now_ms);
        let from = waiters.fronts().any(|(_, kind, _)| may_lack(kind)).then(|| {
            let mut all = waiters.in_order(FRONT, wants).filter(|(_, w)| has_hope(w));
            all.nth(self.connecting_for_all()).map(|(place, _)| place)
        });
        let lacking = from.flatten().map(|from| waiters.in_order(from, may_lack).map(|(_, w)| w));
        let still = move |w: &&Rc<Waiter>| !w.is_choosy() || has_hope(w) && lacks_room(&w.lane, w.wish.needs);
        lacking.into_iter().flatten().filter(still)
    }

    /// The first of them that `suits`.
    pub(super) fn first_without_room<'a>(
        &'a self,
        waiters: &'a Waiters,
        on: Option<&'a ServerShared>,
        now_ms: u64,
        suits: impl Fn(&Rc<Waiter>) -> bool,
    ) -> Option<&'a Rc<Waiter>> {
        if self.choosy.get() > 0 || self.connecting_for_all() > 0 {
            return self.without_room(waiters, on, now_ms).find(|waiter| suits(waiter));
        }
        // Asked with each statement that waits. If nobody is choosy and nothing is being opened, a line's first one speaks for all.
        let may_lack =
            |kind: &Kind| kind.takes_used && self.may_grow_in(kind, now_ms) && self.lacks_room(&kind.lane, Needs::default(), on, now_ms);
        waiters.first(may_lack)
    }

    /// Whether all servers are full that a lane could connect to; with `on` only if that server is one of them.
    fn lacks_room(&self, lane: &Lane, needs: Needs, on: Option<&ServerShared>, now_ms: u64) -> bool {
        let servers = self.servers.borrow();
        let may_connect = |s: &ServerShared| needs.accept(s) && may_connect(lane, s, now_ms);
        let mut open = servers.iter().filter(|s| may_connect(s) && !s.connects.are_stalling()).peekable();
        open.peek().is_some() && open.all(|s| s.room.is_full()) && on.is_none_or(may_connect)
    }

    /// Whether other workers are told of this waiter: it is the first of its line, or its line is told of one by one.
    pub(super) fn is_told_of(&self, waiter: &Rc<Waiter>) -> bool {
        if waiter.is_choosy() || waiter.is_loner() {
            return true;
        }
        let (waiters, kind) = (self.waiters.borrow(), waiter.kind());
        waiters.first(|other| *other == kind).is_some_and(|first| Rc::ptr_eq(first, waiter))
    }

    /// Tells all workers who waits here for backends of a lane.
    pub(super) fn publish_lane(&self, worker: &Worker, lane: &Lane) {
        let waiters = self.waiters.borrow();
        let first = waiters.first(|kind| kind.takes_of(lane) && !kind.is_choosy);
        lane.line.set_oldest(worker.index, first.map_or(NOBODY, |w| w.turn_us));
        lane.note_first(first.map(|w| w.since_us));
        if self.choosy.get() > 0 {
            let of_lane = waiters.in_order(FRONT, |kind| kind.takes_of(lane) && kind.is_choosy);
            lane.line.set_choosy(worker.index, of_lane.filter_map(|(_, w)| choosy(w)));
        }
        if lane.is_limited() || lane.quota.queue.may_have(worker.index) {
            let now_ms = worker.shared.clock.now_ms();
            let is_own = |kind: &Kind| kind.takes_used && kind.lane.key.user.name == lane.key.user.name;
            let is_awaited = |kind: &Kind| lane.is_limited() && is_own(kind) && self.is_let_in(&kind.lane, now_ms);
            let first = waiters.in_order(FRONT, is_awaited).map(|(_, w)| w).find(|w| self.has_hope(w, now_ms));
            lane.quota.queue.set_oldest(worker.index, first.map_or(NOBODY, |w| w.turn_us));
        }
    }

    /// Tells all workers for whom a backend would be closed here.
    pub(super) fn publish_room(&self, worker: &Worker) {
        let waiters = self.waiters.borrow();
        if waiters.is_empty() || !self.servers.borrow().iter().any(|s| s.room.is_full()) {
            self.shared.queue.set_oldest(worker.index, NOBODY);
            if self.choosy.get() > 0 {
                self.shared.queue.set_choosy(worker.index, std::iter::empty());
            }
            return;
        }
        let now_ms = worker.shared.clock.now_ms();
        let first = self.first_without_room(&waiters, None, now_ms, |w| !w.is_choosy());
        let mut since = first.map_or(NOBODY, |w| w.turn_us);
        if self.loners.get() > 0 {
            let servers = self.servers.borrow();
            let mut loners = waiters.in_order(FRONT, |kind| !kind.takes_used).map(|(_, w)| w);
            let own = loners.find(|w| servers.iter().any(|s| w.wants_room_on(s, now_ms)));
            since = since.min(own.map_or(NOBODY, |w| w.turn_us.saturating_sub(LANES_BOUND_US)));
        }
        self.shared.queue.set_oldest(worker.index, since);
        if self.choosy.get() > 0 {
            self.shared.queue.set_choosy(worker.index, self.without_room(&waiters, None, now_ms).filter_map(choosy));
        }
    }

    pub(super) fn publish(&self, worker: &Worker, lane: &Lane) {
        self.publish_lane(worker, lane);
        self.publish_room(worker);
    }
}

/// What one says of itself who wants a server that is not far behind.
fn choosy(waiter: &Rc<Waiter>) -> Option<Choosy> {
    waiter.wish.needs.max_lag_ms.map(|max_lag_ms| Choosy { since_us: waiter.turn_us, max_lag_ms })
}
