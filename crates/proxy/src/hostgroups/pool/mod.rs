//! The pool of one hostgroup on one worker: idle backends, waiters in order, growth within limits.
//!
//! INVARIANTS: a connection exists only under a [`crate::servers::server::Slot`], so `max_connections` holds over all workers;
//! a backend given back goes to the waiter that waits longest of those who can take it, on this worker, or on another one whose
//! waiter is older by more than [`FAIRNESS_BOUND_US`] (while sessions wait here too, only one backend for it is on its way at a time);
//! connects in progress never outnumber the waiters. Who can take no idle
//! backend stands in the way of nobody who can. Where the servers are full, backends are closed for those who can take none, once
//! they have waited longer by [`LANES_BOUND_US`] than those who can. Who wants a connection of its own is passed over by backends
//! that others have used. Only a `fast_forward` session, which lends none to others, has its turn at once where the server is full.

mod batch;
mod growth;
mod lines;
mod riders;
mod room;
mod upkeep;
mod waiting;

pub(crate) use riders::{Answer, Batches, Got, Ridden, Rider};
pub(crate) use waiting::{Acquire, AcquireError, Wish};

use crate::backends::backend::Backend;
use crate::hostgroups::choice::{Choice, Needs, Rules};
use crate::hostgroups::hostgroup::HostgroupShared;
use crate::hostgroups::lane::Lane;
use crate::hostgroups::queue::NOBODY;
use crate::servers::server::{NEVER, ServerShared};
use crate::servers::sizing::Turns;
use crate::servers::terms::HostgroupRole;
use crate::workers::counters::count;
use crate::workers::mailbox::Mail;
use crate::workers::worker::Worker;
use lines::FRONT;
use model::snapshot::{Effective, Snapshot};
use riders::Depth;
use session_state::class::LaneKey;
use session_state::server_info::ServerInfo;
use session_state::state::State;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::Notify;
use waiting::{Kind, Outcome, Waiter, Waiters};

/// How much longer (us) a waiter of another worker must have waited to be served before this worker's own.
pub(crate) const FAIRNESS_BOUND_US: u64 = 1000;
/// How much longer (us) one must have waited for whom a backend has to be closed than one whom it would serve: where users share
/// a server that is full, connections change hands now and then, not with each statement.
pub(crate) const LANES_BOUND_US: u64 = 100_000;

/// A connection that was held for longer (us) counts so long only: it was no session's turn among many.
const MOST_HELD_US: u64 = 1_000_000;

/// Since when (process clock, us) those have waited who have a claim on a backend that is given back, or [`NOBODY`].
struct Claims {
    /// The first one whom it would serve.
    taker_us: u64,
    /// The first one for whom it would be closed. One that has its turn at once counts as waiting [`LANES_BOUND_US`] longer.
    room_us: u64,
}

impl Claims {
    /// Whether it is to be closed.
    fn is_room_due(&self) -> bool {
        self.room_us.saturating_add(LANES_BOUND_US) < self.taker_us
    }
}

/// One who waits on another worker: which, and since when.
type OtherWaiter = Option<(usize, u64)>;

/// See the module.
pub(crate) struct HostgroupPool {
    /// What all workers share of the hostgroup.
    pub shared: Arc<HostgroupShared>,
    /// Its servers by number, as of the last configuration.
    servers: RefCell<Rc<Vec<Arc<ServerShared>>>>,
    settings: RefCell<Rc<Effective>>,
    rules: Cell<Rules>,
    lanes: RefCell<Vec<Rc<Lane>>>,
    waiters: RefCell<Waiters>,
    /// Whether any lane's user is limited: what is rare is looked for only where it can be.
    has_limits: Cell<bool>,
    /// The same for lanes that a server has refused for a reason of their own.
    has_refused: Cell<bool>,
    connecting: Cell<usize>,
    /// When (process clock, us) a connection was last put off because the hostgroup may have only so many a second, and how many.
    throttled: Cell<(u64, u64)>,
    /// Requests for connections that nobody else has used: what concerns only them is looked for only while there are any.
    loners: Cell<usize>,
    /// The same for requests that want a server that is not far behind.
    choosy: Cell<usize>,
    /// By server: what those who waited got since the last look.
    turns: RefCell<Vec<Turns>>,
    /// How many statements go to a backend together.
    depth: Depth,
    /// Told when servers were laid out anew: connects to those that are out are given up.
    laid_out: Notify,
}

impl HostgroupPool {
    /// An empty pool.
    pub(crate) fn new(shared: Arc<HostgroupShared>, snapshot: &Snapshot) -> Rc<Self> {
        let servers = RefCell::new(Rc::new(shared.servers().to_vec()));
        let settings = RefCell::new(Rc::new(snapshot.effective_in(shared.id)));
        Rc::new(Self {
            shared,
            servers,
            settings,
            rules: Cell::new(Rules::of(&snapshot.vars)),
            lanes: RefCell::default(),
            waiters: RefCell::default(),
            has_limits: Cell::new(false),
            has_refused: Cell::new(false),
            connecting: Cell::new(0),
            throttled: Cell::default(),
            loners: Cell::new(0),
            choosy: Cell::new(0),
            turns: RefCell::default(),
            depth: Depth::default(),
            laid_out: Notify::new(),
        })
    }

    /// Takes over what changed in the configuration: idle backends that are not welcome any more go, waiters may have
    /// a server now.
    pub(crate) fn configure(self: &Rc<Self>, worker: &Rc<Worker>) {
        *self.settings.borrow_mut() = Rc::new(worker.snapshot().effective_in(self.shared.id));
        self.rules.set(Rules::of(&worker.snapshot().vars));
        for lane in self.lanes.borrow().iter() {
            lane.configure(&worker.snapshot());
            lane.quota.queue.set_oldest(worker.index, NOBODY);
        }
        self.part_with_former_users(worker);
        self.look_for_limits();
        self.arranged(worker);
    }

    /// Notes whether any user is limited, or refused.
    fn look_for_limits(&self) {
        let lanes = self.lanes.borrow();
        self.has_limits.set(lanes.iter().any(|lane| lane.is_limited()));
        self.has_refused.set(lanes.iter().any(|lane| lane.is_refused_somewhere()));
    }

    /// Takes over how servers are placed now: idle backends that are not welcome any more go, connects to servers that are
    /// out are given up, waiters may have a server now.
    pub(crate) fn arranged(self: &Rc<Self>, worker: &Rc<Worker>) {
        *self.servers.borrow_mut() = Rc::new(self.shared.servers().to_vec());
        for lane in self.lanes.borrow().iter() {
            lane.close_where(|b| !self.is_welcome(worker, b));
        }
        self.laid_out.notify_waiters();
        self.serve_waiters(worker);
    }

    /// Gives idle backends to those who wait, in order; connects for the rest.
    fn serve_waiters(self: &Rc<Self>, worker: &Rc<Worker>) {
        self.serve_all_from_idle(worker);
        for lane in self.lanes.borrow().iter() {
            self.publish_lane(worker, lane);
        }
        self.grow(worker);
    }

    /// Gives idle backends to those who wait, in order.
    fn serve_all_from_idle(self: &Rc<Self>, worker: &Rc<Worker>) {
        let is_due = |lane: &Rc<Lane>| lane.line.may_have(worker.index) && lane.has_idle();
        if !self.lanes.borrow().iter().any(is_due) {
            return;
        }
        let lanes = self.lanes.borrow().clone();
        for lane in lanes.iter().filter(|lane| is_due(lane)) {
            self.serve_lane_from_idle(worker, lane);
        }
    }

    /// The same in one lane.
    fn serve_lane_from_idle(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>) {
        // What was not there for one is not there for the next who wants as little lag.
        let mut lacking = None;
        while !self.shared.is_held() && lane.has_idle() {
            let lag = |w: &Rc<Waiter>| w.wish.needs.max_lag_ms.unwrap_or(u32::MAX);
            let next = {
                let waiters = self.waiters.borrow();
                let mut takers = waiters.in_order(FRONT, |kind| kind.takes_of(lane)).map(|(_, w)| w);
                takers.find(|w| lacking.is_none_or(|lacking| lag(w) > lacking)).cloned()
            };
            let Some(waiter) = next else { break };
            if !self.serve_from_idle(worker, &waiter) {
                lacking = Some(lag(&waiter));
            }
        }
    }

    /// Gives idle backends of a lane to the sessions that left them to each other, at the end of this turn of the loop.
    fn gather(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>) {
        if lane.begins_to_gather() {
            let (pool, worker, lane) = (Rc::clone(self), Rc::clone(worker), Rc::clone(lane));
            tokio::task::spawn_local(async move {
                lane.has_gathered();
                pool.serve_lane_from_idle(&worker, &lane);
                // There was none for these after all.
                pool.waiters.borrow().of(|kind| kind.takes_of(&lane)).filter(|waiter| waiter.gathers.take()).for_each(|_| {
                    count(&worker.counters.waits);
                });
                pool.publish_lane(&worker, &lane);
                pool.grow(&worker);
            });
        }
    }

    /// Gives one who waits an idle backend, if there is one: backends can be idle while somebody waits when their server was
    /// out, or the hostgroup held.
    fn serve_from_idle(self: &Rc<Self>, worker: &Rc<Worker>, waiter: &Rc<Waiter>) -> bool {
        if !waiter.wish.needs.takes_used() {
            return false;
        }
        let anything = State::default();
        let want = waiter.wish.rider.as_deref().map_or(&anything, |rider| &rider.state);
        let Some(backend) = self.take_idle(worker, &waiter.lane, want, waiter.wish.needs) else { return false };
        let Some(backend) = self.give_to_several(worker, waiter, backend) else { return true };
        self.leave_queue(worker, waiter);
        waiter.finish(Outcome::Ready(Box::new(backend)));
        true
    }

    /// What holds in the hostgroup.
    pub(crate) fn settings(&self) -> Rc<Effective> {
        Rc::clone(&self.settings.borrow())
    }

    /// Its servers by number, removed ones too.
    pub(crate) fn servers(&self) -> Rc<Vec<Arc<ServerShared>>> {
        Rc::clone(&self.servers.borrow())
    }

    /// What the servers that are used say of themselves, where they are all of one version; those that nobody has logged in to
    /// yet do not count.
    pub(crate) fn one_version(&self) -> Option<Arc<ServerInfo>> {
        let servers = self.servers.borrow();
        let mut known = servers.iter().filter(|server| server.is_online()).filter_map(|server| server.info.load_full());
        let first = known.next()?;
        known.all(|info| info.version == first.version).then_some(first)
    }

    /// Whether a server of a cluster's writers lost its role to another one, which is there, and will commit nothing any more.
    pub(crate) fn is_overtaken(&self, server: &ServerShared, now_ms: u64) -> bool {
        if server.is_online() || server.standing.leave_at_ms() == NEVER {
            return false;
        }
        let terms = self.shared.terms();
        terms.role == HostgroupRole::Writer
            && !terms.is_galera
            && self.servers.borrow().iter().any(|other| other.standing.is_usable(now_ms))
    }

    pub(crate) fn lane(&self, worker: &Worker, key: &LaneKey) -> Rc<Lane> {
        let mut lanes = self.lanes.borrow_mut();
        if let Some(lane) = lanes.iter().find(|l| l.key == *key) {
            return Rc::clone(lane);
        }
        let lane = Lane::new(key.clone(), self.shared.quota(&key.user.name), &worker.snapshot());
        self.has_limits.set(self.has_limits.get() || lane.is_limited());
        lanes.push(Rc::clone(&lane));
        lane
    }

    pub(crate) fn idle(&self, server: usize) -> u32 {
        let idle: usize = self.lanes.borrow().iter().map(|lane| lane.idle(server)).sum();
        u32::try_from(idle).unwrap_or(u32::MAX)
    }

    /// Something of up to `n` idle backends, without the first `skip`.
    pub(crate) fn map_idle<T>(&self, skip: usize, n: usize, make: impl Fn(&Backend) -> T) -> Vec<T> {
        let mut made = Vec::new();
        let mut seen = 0;
        for lane in self.lanes.borrow().iter() {
            lane.visit(|backend| {
                if seen >= skip && made.len() < n {
                    made.push(make(backend));
                }
                seen += 1;
            });
        }
        made
    }

    /// How many wait, and since when (process clock, us) the first one is in line.
    pub(crate) fn waiting(&self) -> (usize, Option<u64>) {
        let waiters = self.waiters.borrow();
        (waiters.len(), waiters.first(|_| true).map(|w| w.turn_us))
    }

    /// An idle backend, if the caller may have one at once.
    pub(crate) fn try_acquire(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>, want: &State, needs: Needs) -> Option<Backend> {
        // Where many wait there is none, mostly: that is seen without asking each of them.
        if !lane.has_idle() || lane.is_gathering() || self.shared.is_held() || !needs.takes_used() || self.is_promised(worker, lane) {
            return None;
        }
        self.take_idle(worker, lane, want, needs)
    }

    /// Whether one who waits could have an idle backend of this lane.
    fn is_promised(&self, worker: &Worker, lane: &Rc<Lane>) -> bool {
        if !lane.line.may_have(worker.index) {
            return false;
        }
        let (servers, now_ms) = (self.servers.borrow(), worker.clock.now_ms());
        let mut with_idle = servers.iter().filter(|s| lane.idle(s.index) > 0 && s.takes_work(now_ms)).peekable();
        if with_idle.peek().is_none() {
            return false;
        }
        let waiters = self.waiters.borrow();
        let accepts_one = |w: &Rc<Waiter>| with_idle.clone().any(|s| w.wish.needs.accept(s));
        waiters.of(|kind| kind.takes_of(lane) && !kind.is_choosy).next().is_some()
            || waiters.of(|kind| kind.takes_of(lane) && kind.is_choosy).any(accepts_one)
    }

    /// Queues for a backend until `deadline_us` (process clock), in line since `turn_us`. Whoever has lost one in a transaction
    /// is in line since that began.
    pub(crate) fn enqueue(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>, wish: Wish, turn_us: u64, deadline_us: u64) -> Acquire {
        let since_us = worker.shared.clock.now_us();
        let ticket = self.waiters.borrow_mut().ticket(turn_us, deadline_us);
        let waiter = Rc::new(Waiter {
            lane: Rc::clone(lane),
            gathers: Cell::new(wish.rider.as_deref().is_some_and(|rider| rider.gathers)),
            wish,
            is_opening: Cell::new(false),
            is_throttled: Cell::new(false),
            since_us,
            turn_us,
            ticket,
            outcome: RefCell::new(Outcome::Waiting),
            waker: RefCell::new(None),
        });
        self.loners.set(self.loners.get() + usize::from(waiter.is_loner()));
        self.choosy.set(self.choosy.get() + usize::from(waiter.is_choosy()));
        self.waiters.borrow_mut().insert(waiter.kind(), ticket, Rc::clone(&waiter));
        if waiter.gathers.get() {
            self.gather(worker, lane);
        } else {
            count(&worker.counters.waits);
            // Behind others of its line it changes nothing of what was told. What servers and connects change is told by the next tick.
            if self.is_told_of(&waiter) || self.may_grow() {
                self.publish_lane(worker, lane);
                self.grow(worker);
            }
        }
        if self.waiters.borrow().len() == 1 {
            worker.pool_wakeup.notify_one();
        }
        Acquire { worker: Rc::clone(worker), pool: Rc::clone(self), waiter }
    }

    /// Takes back a backend that is clean: to the longest waiter, else to the idle ones.
    pub(crate) fn release(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend) {
        let lane = self.lane(worker, &backend.core.lane);
        self.release_to(worker, &lane, backend);
    }

    /// [`HostgroupPool::release`] for a caller that knows the backend's lane.
    pub(crate) fn release_to(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Lane, mut backend: Backend) {
        backend.core.worked_ms = worker.clock.now_ms();
        self.put_back(worker, lane, backend);
    }

    /// [`HostgroupPool::release`] of one that did no work for a session.
    pub(crate) fn rest(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend) {
        let lane = self.lane(worker, &backend.core.lane);
        self.put_back(worker, &lane, backend);
    }

    fn put_back(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Lane, mut backend: Backend) {
        backend.core.idle_since_ms = worker.clock.now_ms();
        if backend.core.has_assigned_gtid || !self.is_welcome(worker, &backend) || backend.core.server.sizing.takes_surplus() {
            drop(backend);
            return self.grow(worker);
        }
        let may_serve = !self.shared.is_held() && backend.core.server.takes_work(worker.clock.now_ms());
        if !may_serve || !self.is_awaited(lane) {
            return lane.put(backend);
        }
        let own = self.claims(worker, lane, &backend);
        let (other_taker, other_room) = self.claims_of_others(worker, lane, &backend);
        let since = |other: OtherWaiter| other.map_or(NOBODY, |(_, since)| since);
        let all = Claims { taker_us: own.taker_us.min(since(other_taker)), room_us: own.room_us.min(since(other_room)) };
        let (other, own_us) = if all.is_room_due() { (other_room, own.room_us) } else { (other_taker, own.taker_us) };
        let is_older = |since: u64| since.saturating_add(FAIRNESS_BOUND_US) < own_us;
        // Where nobody waits here, it is of no use here.
        let may_go = |since: u64| own_us == NOBODY || lane.is_first_for(since, worker.shared.clock.now_us());
        match other.filter(|(_, since)| is_older(*since) && may_go(*since)) {
            Some((other, _)) => self.hand_over(worker, backend, other),
            None => self.give_or_close(worker, lane, backend, &own),
        }
    }

    /// Whether anybody may have a claim on a backend of this lane.
    fn is_awaited(&self, lane: &Lane) -> bool {
        !lane.line.is_empty() || !self.shared.queue.is_empty() || lane.is_limited() && !lane.quota.queue.is_empty()
    }

    /// Who waits longest of those who take this idle backend of a lane.
    fn taker<'a>(&self, waiters: &'a Waiters, lane: &Lane, server: &ServerShared) -> Option<&'a Rc<Waiter>> {
        match self.choosy.get() {
            0 => waiters.first(|kind| kind.takes_of(lane)),
            _ => waiters.in_order(FRONT, |kind| kind.takes_of(lane)).map(|(_, w)| w).find(|w| w.wish.needs.accept(server)),
        }
    }

    /// Who of this worker has a claim on a backend.
    fn claims(&self, worker: &Worker, lane: &Lane, backend: &Backend) -> Claims {
        let (server, waiters) = (&backend.core.server, self.waiters.borrow());
        let since = |one: Option<&Rc<Waiter>>| one.map_or(NOBODY, |w| w.turn_us);
        let taker_us = since(self.taker(&waiters, lane, server));
        let mut room_us = NOBODY;
        if server.room.is_full() {
            let now_ms = worker.shared.clock.now_ms();
            room_us = since(self.first_without_room(&waiters, Some(server), now_ms, |_| true));
            if self.loners.get() > 0 {
                let loners = waiters.in_order(FRONT, |kind| !kind.takes_used).map(|(_, w)| w);
                let own = loners.into_iter().find(|w| w.wants_room_on(server, now_ms));
                room_us = room_us.min(own.map_or(NOBODY, |w| w.turn_us.saturating_sub(LANES_BOUND_US)));
            }
        }
        if self.has_limits.get() {
            let (user, now_ms) = (&lane.key.user.name, worker.shared.clock.now_ms());
            let is_mate =
                |kind: &Kind| kind.takes_used && kind.lane.key.user.name == *user && !kind.takes_of(lane) && kind.lane.is_used_up();
            let mate = waiters.in_order(FRONT, |kind| is_mate(kind) && self.is_let_in(&kind.lane, now_ms)).map(|(_, w)| w);
            room_us = room_us.min(since(mate.into_iter().find(|w| self.has_hope(w, now_ms))));
        }
        Claims { taker_us, room_us }
    }

    /// Who of other workers would have this backend first, and for whom it would be closed first: workers, and since when.
    fn claims_of_others(&self, worker: &Worker, lane: &Lane, backend: &Backend) -> (OtherWaiter, OtherWaiter) {
        let (me, lag_ms) = (worker.index, backend.core.server.measurements.lag_ms());
        let taker = lane.line.longest_waiting_other(me, lag_ms);
        let room = Some(&self.shared.queue).filter(|_| backend.core.server.room.is_full());
        let mates = Some(&lane.quota.queue).filter(|_| lane.is_used_up());
        let room = [room, mates].into_iter().flatten().filter_map(|queue| queue.longest_waiting_other(me, lag_ms));
        (taker, room.min_by_key(|(_, since)| *since))
    }

    /// A backend that came from elsewhere, to one who waits here, or to the idle ones.
    fn give_to_waiter(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend) {
        let lane = self.lane(worker, &backend.core.lane);
        if self.shared.is_held() || !backend.core.server.takes_work(worker.clock.now_ms()) {
            // Its server may be out by now. Idle, it goes with the next look.
            return lane.put(backend);
        }
        let own = self.claims(worker, &lane, &backend);
        self.give_or_close(worker, &lane, backend, &own);
    }

    /// A backend on which these have claims, to the first of them who takes it, or to the idle ones; it is closed for whom only that
    /// helps and whose turn it is.
    fn give_or_close(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Lane, mut backend: Backend, own: &Claims) {
        if own.is_room_due() {
            drop(backend);
            return self.grow(worker);
        }
        let taker = self.taker(&self.waiters.borrow(), lane, &backend.core.server).cloned();
        let Some(waiter) = taker else { return lane.put(backend) };
        self.note_turn(worker, lane, &mut backend);
        let Some(backend) = self.give_to_several(worker, &waiter, backend) else { return };
        self.leave_queue(worker, &waiter);
        waiter.finish(Outcome::Ready(Box::new(backend)));
    }

    /// One who waited gets a backend.
    fn note_turn(&self, worker: &Worker, lane: &Lane, backend: &mut Backend) {
        let now_us = worker.shared.clock.now_us();
        let servers = self.servers();
        if servers.len() > 1
            && let Some(choice) = self.choice(&servers, Needs::default(), now_us / 1000, |_| true)
        {
            choice.give(backend.core.server.index);
        }
        let held_us = match std::mem::replace(&mut backend.core.taken_us, now_us) {
            0 => 0,
            taken_us => now_us.saturating_sub(taken_us).min(MOST_HELD_US),
        };
        lane.turned(now_us);
        self.count_turns(backend, Turns { count: 1, together: 0, held_us });
    }

    fn count_turns(&self, backend: &Backend, more: Turns) {
        let (mut turns, server) = (self.turns.borrow_mut(), backend.core.server.index);
        if turns.len() <= server {
            turns.resize(server + 1, Turns::default());
        }
        if let Some(turns) = turns.get_mut(server) {
            turns.add(more);
        }
    }

    /// Tells what connections have achieved while somebody waits.
    fn report_turns(&self, worker: &Worker) {
        if !self.settings.borrow().adaptive_connections {
            return;
        }
        let now_us = worker.shared.clock.now_us();
        for server in self.servers.borrow().iter().filter(|server| server.is_online()) {
            let turns = self.turns.borrow_mut().get_mut(server.index).map(std::mem::take).unwrap_or_default();
            server.sizing.report(now_us, turns, (server.connections(), server.connects.under_way()), &self.shared.helped);
        }
    }

    /// Sends a backend to another worker; keeps it when it cannot be moved.
    fn hand_over(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend, to: usize) {
        let Some(mailbox) = worker.shared.mailboxes.get(to) else {
            return self.give_to_waiter(worker, backend);
        };
        match backend.detach() {
            Ok(detached) => {
                worker.counters.handed_over.set(worker.counters.handed_over.get() + 1);
                mailbox.send(Mail::Backend(Box::new(detached)));
            }
            Err(e) => tracing::warn!("cannot move a backend to another worker, backend closed: {e}"),
        }
    }

    /// Another worker gave this one a backend. It may have been closed on its way, which this worker's runtime does not know yet. Rights
    /// and limits may have changed since it was put to rest.
    pub(crate) fn received(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend) {
        let is_silent = backend.link.stream().is_silent_to_kernel();
        if is_silent && self.is_welcome(worker, &backend) {
            return self.give_to_waiter(worker, backend);
        }
        if !is_silent {
            count(&worker.counters.found_closed);
        }
        drop(backend);
        self.grow(worker);
    }

    /// Takes out an idle backend; None when there is none left.
    pub(crate) fn take_any_idle(&self) -> Option<Backend> {
        let lanes = self.lanes.borrow().clone();
        let servers = self.servers().len();
        lanes.iter().find_map(|lane| (0..servers).find_map(|server| lane.take_oldest(server)))
    }

    /// Another worker waits for `lane` and cannot connect: give it an idle backend that will do, or (with `makes_room`) make room for a
    /// new one.
    pub(crate) fn wanted(self: &Rc<Self>, worker: &Rc<Worker>, lane: &LaneKey, needs: Needs, makes_room: bool, from: usize) {
        let same = self.lanes.borrow().iter().find(|l| l.key == *lane).cloned();
        if needs.takes_used() && same.as_ref().is_some_and(|same| !same.line.may_have(from)) {
            // Nobody waits there any more.
            return;
        }
        let (servers, now_ms) = (self.servers(), worker.shared.clock.now_ms());
        let mut in_turn: Vec<_> = servers.iter().enumerate().collect();
        if let Some(choice) = self.choice(&servers, needs, now_ms, |_| true) {
            in_turn.sort_by_cached_key(|(_, server)| choice.place(server));
        }
        // Where no server would do, none is to be made room on.
        let makes_room = makes_room && servers.iter().any(|server| server.takes_work(now_ms) && needs.accept(server));
        for (index, server) in in_turn {
            let lanes = self.lanes.borrow().clone();
            let will_do = server.takes_work(now_ms) && needs.accept(server);
            if let Some(same) = same.as_ref().filter(|_| will_do && needs.takes_used()) {
                while let Some(mut backend) = same.take_oldest(index) {
                    if self.is_welcome(worker, &backend) && is_alive(worker, &mut backend) {
                        return self.hand_over(worker, backend, from);
                    }
                }
            }
            if !makes_room {
                continue;
            }
            // Its user has as many as it may, and these are of no use to the one who asks.
            let own = |l: &&Rc<Lane>| l.key.user.name == lane.user.name && l.is_used_up();
            if lanes.iter().filter(own).find_map(|l| l.take_oldest(index)).is_some() {
                return;
            }
            if will_do && server.room.is_full() && lanes.iter().find_map(|l| l.take_oldest(index)).is_some() {
                return;
            }
        }
    }

    fn leave_queue(&self, worker: &Worker, waiter: &Rc<Waiter>) {
        self.waiters.borrow_mut().remove(&waiter.kind(), waiter.ticket);
        self.publish(worker, &waiter.lane);
    }

    /// True while someone waits.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.borrow().is_empty()
    }

    /// Takes the nearest idle backend of the server that is furthest behind its weight; another server's rather than none.
    fn take_idle(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>, want: &State, needs: Needs) -> Option<Backend> {
        let servers = self.servers();
        let now_ms = worker.clock.now_ms();
        let choice = self.choice(&servers, needs, now_ms, |_| true)?;
        let first = choice.furthest_behind(|s| s.standing.is_usable(now_ms) && needs.accept(s));
        loop {
            let index = choice.furthest_behind(|s| lane.idle(s.index) > 0 && s.takes_work(now_ms) && needs.accept(s))?;
            let mut backend = lane.take(index, want)?;
            if has_old_rights(worker, &backend) || !is_alive(worker, &mut backend) {
                continue;
            }
            choice.give(index);
            match first.filter(|first| *first != index) {
                Some(first) => self.make_up_for(worker, lane, first, choice.is_starved(first)),
                None if self.shared.is_warmed() => self.warm(worker, lane),
                None => {}
            }
            return Some(backend);
        }
    }

    /// A choice among the usable servers that `fits`.
    fn choice<'a>(
        &self,
        servers: &'a [Arc<ServerShared>],
        needs: Needs,
        now_ms: u64,
        fits: impl Fn(&Arc<ServerShared>) -> bool,
    ) -> Option<Choice<'a>> {
        Choice::among(servers, fits, needs, self.rules.get(), now_ms)
    }

    /// May this backend stay in the pool?
    fn is_welcome(&self, worker: &Worker, backend: &Backend) -> bool {
        let max_age = self.settings().connection_max_age_ms;
        let too_old = max_age > 0 && worker.clock.now_ms().saturating_sub(backend.core.opened_ms) > max_age;
        let server = &backend.core.server;
        // After a LOAD there may be more than are allowed.
        let fits = server.connections() <= server.room.max_connections() && self.fits_its_user(backend);
        let is_outdated = too_old || has_old_rights(worker, backend);
        server.keeps_idle() && fits && !backend.core.killed && !is_outdated && !backend.core.is_astray() && backend.is_even()
    }

    /// After a LOAD a user may have more than it is allowed.
    fn fits_its_user(&self, backend: &Backend) -> bool {
        let lanes = self.lanes.borrow();
        let mut of_user = lanes.iter().filter(|lane| lane.key.user.name == backend.core.lane.user.name);
        let fits = |lane: &Rc<Lane>| lane.limit() == 0 || u64::from(lane.quota.connections()) <= lane.limit();
        !self.has_limits.get() || of_user.all(fits)
    }
}

/// Whether the server may have given the backend's user other rights since it was opened.
fn has_old_rights(worker: &Worker, backend: &Backend) -> bool {
    let is_older = backend.core.opened_ms < worker.shared.rights_changed_ms.load(Ordering::Acquire);
    is_older && worker.snapshot().vars.reconnect_after_grants
}

/// An idle backend should be silent: else it was closed, or is out of step.
fn is_alive(worker: &Worker, backend: &mut Backend) -> bool {
    let is_silent = backend.link.is_silent();
    if !is_silent {
        count(&worker.counters.found_closed);
    }
    is_silent
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
