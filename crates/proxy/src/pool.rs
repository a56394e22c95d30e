//! The pool of one hostgroup on one worker: idle backends, waiters in order, growth within limits.
//!
//! INVARIANTS: a connection exists only under a [`crate::shared::Slot`], so `max_connections` holds over all workers;
//! a backend given back goes to the waiter that waits longest, on this worker, or on another one whose waiter is older
//! by more than [`FAIRNESS_BOUND_US`]; connects in progress never outnumber the waiters. Who wants a connection of its own
//! stands in nobody's way: it is passed over by backends that others have used.

use crate::backend::{Backend, ServerError};
use crate::choice::{self, Needs, Rules};
use crate::connect::{self, ConnectError};
use crate::hostgroup::HostgroupRole;
use crate::lane::{Lane, LaneKey};
use crate::mailbox::Mail;
use crate::queue::NOBODY;
use crate::server::NEVER;
use crate::shared::{HostgroupShared, ServerShared};
use crate::state::State;
use crate::stats::meter;
use crate::worker::Worker;
use model::HostgroupId;
use model::fleet::SignalKind;
use model::snapshot::{Effective, Snapshot};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// How much longer (us) a waiter of another worker must have waited to be served before this worker's own.
pub const FAIRNESS_BOUND_US: u64 = 1000;

/// At most one more connect in progress for each so many connections that exist.
const GROWTH_STEP: usize = 8;

/// Servers that an error names.
const MAX_NAMED: usize = 5;

/// How long (us) a waiter waits for its own worker's backends before other workers are asked for one.
const ASK_OTHERS_US: u64 = 10_000;

/// Why no backend was had.
#[derive(Debug)]
pub enum AcquireError {
    /// None became free in time: error 9001.
    Timeout {
        /// Hostgroup that was asked.
        hostgroup: HostgroupId,
        /// How long it was waited for, ms.
        waited_ms: u64,
        /// Empty, full or failing.
        reason: String,
    },
    /// The server refused the login; its own error goes to the client.
    Refused(ServerError),
    /// The login cannot be made with what is known of the password, or similar: text for the client.
    Impossible(String),
}

enum Outcome {
    Waiting,
    Ready(Box<Backend>),
    Failed(AcquireError),
    Taken,
}

/// One session's place in the queue.
struct Waiter {
    lane: Rc<Lane>,
    needs: Needs,
    collation: u8,
    since_us: u64,
    /// Since when it is in line: waiters stand in this order.
    turn_us: u64,
    deadline_us: u64,
    outcome: RefCell<Outcome>,
    waker: RefCell<Option<Waker>>,
}

impl Waiter {
    /// Whether this backend will do, which others have used.
    fn takes(&self, backend: &Backend) -> bool {
        self.needs.takes_used() && self.lane.key == backend.core.lane && self.needs.accept(&backend.core.server)
    }

    /// Whether it waits for its user's own connections only: there may be no more of them.
    fn waits_for_its_own(&self) -> bool {
        self.lane.is_used_up()
    }

    fn finish(&self, outcome: Outcome) {
        *self.outcome.borrow_mut() = outcome;
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Who a connection is opened for.
enum Whose {
    /// Whoever waits longest.
    Anybodys,
    /// One who takes no connection that others have used.
    Only(Rc<Waiter>),
}

/// See the module.
pub struct HostgroupPool {
    /// What all workers share of the hostgroup.
    pub shared: Arc<HostgroupShared>,
    /// Its servers by number, as of the last configuration.
    servers: RefCell<Rc<Vec<Arc<ServerShared>>>>,
    settings: RefCell<Rc<Effective>>,
    rules: Cell<Rules>,
    lanes: RefCell<Vec<Rc<Lane>>>,
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
    /// Whether any lane's user is limited: what is rare is looked for only where it can be.
    has_limits: Cell<bool>,
    connecting: Cell<usize>,
    /// Told when servers were laid out anew: connects to those that are out are given up.
    laid_out: Notify,
}

/// A queued request; leaves the queue when dropped.
pub struct Acquire {
    worker: Rc<Worker>,
    pool: Rc<HostgroupPool>,
    waiter: Rc<Waiter>,
}

impl Acquire {
    /// Ready when a backend was assigned, or none will be.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Backend, AcquireError>> {
        let mut outcome = self.waiter.outcome.borrow_mut();
        match std::mem::replace(&mut *outcome, Outcome::Taken) {
            Outcome::Ready(backend) => Poll::Ready(Ok(*backend)),
            Outcome::Failed(e) => Poll::Ready(Err(e)),
            Outcome::Waiting | Outcome::Taken => {
                *outcome = Outcome::Waiting;
                *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        match self.waiter.outcome.replace(Outcome::Taken) {
            Outcome::Waiting => self.pool.leave_queue(&self.worker, &self.waiter),
            Outcome::Ready(backend) => self.pool.release(&self.worker, *backend),
            Outcome::Failed(_) | Outcome::Taken => {}
        }
    }
}

impl HostgroupPool {
    /// An empty pool.
    pub fn new(shared: Arc<HostgroupShared>, snapshot: &Snapshot) -> Rc<Self> {
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
            connecting: Cell::new(0),
            laid_out: Notify::new(),
        })
    }

    /// Takes over what changed in the configuration: idle backends that are not welcome any more go, waiters may have
    /// a server now.
    pub fn configure(self: &Rc<Self>, worker: &Rc<Worker>) {
        *self.settings.borrow_mut() = Rc::new(worker.snapshot().effective_in(self.shared.id));
        self.rules.set(Rules::of(&worker.snapshot().vars));
        for lane in self.lanes.borrow().iter() {
            lane.configure(&worker.snapshot());
            lane.quota.queue.set_oldest(worker.index, NOBODY);
        }
        self.has_limits.set(self.lanes.borrow().iter().any(|lane| lane.limit() > 0));
        self.arranged(worker);
    }

    /// Takes over how servers are placed now: idle backends that are not welcome any more go, connects to servers that are
    /// out are given up, waiters may have a server now.
    pub fn arranged(self: &Rc<Self>, worker: &Rc<Worker>) {
        *self.servers.borrow_mut() = Rc::new(self.shared.servers().to_vec());
        for lane in self.lanes.borrow().iter() {
            drop(lane.take_where(|b| !self.is_welcome(worker, b)));
        }
        self.laid_out.notify_waiters();
        self.serve_waiters(worker);
    }

    /// Gives idle backends to those who wait, in order; connects for the rest.
    fn serve_waiters(self: &Rc<Self>, worker: &Rc<Worker>) {
        let mut at = 0;
        while !self.shared.is_held() {
            let next = self.waiters.borrow().get(at).cloned();
            let Some(waiter) = next else { break };
            if !self.serve_from_idle(worker, &waiter) {
                at += 1;
            }
        }
        self.publish_oldest(worker);
        self.grow(worker);
    }

    /// Gives one who waits an idle backend, if there is one: backends can be idle while somebody waits when their server was
    /// out, or the hostgroup held.
    fn serve_from_idle(self: &Rc<Self>, worker: &Rc<Worker>, waiter: &Rc<Waiter>) -> bool {
        if !waiter.needs.takes_used() {
            return false;
        }
        let Some(backend) = self.take_idle(worker, &waiter.lane, &State::default(), waiter.needs) else { return false };
        self.waiters.borrow_mut().retain(|w| !Rc::ptr_eq(w, waiter));
        waiter.finish(Outcome::Ready(Box::new(backend)));
        true
    }

    /// What holds in the hostgroup.
    pub fn settings(&self) -> Rc<Effective> {
        Rc::clone(&self.settings.borrow())
    }

    /// Its servers by number, removed ones too.
    pub fn servers(&self) -> Rc<Vec<Arc<ServerShared>>> {
        Rc::clone(&self.servers.borrow())
    }

    /// Whether a server of a cluster's writers lost its role to another one, which is there, and will commit nothing any more.
    pub fn is_overtaken(&self, server: &ServerShared, now_ms: u64) -> bool {
        if server.is_online() || server.leave_at_ms() == NEVER {
            return false;
        }
        let terms = self.shared.terms();
        terms.role == HostgroupRole::Writer && !terms.is_galera && self.servers.borrow().iter().any(|other| other.is_usable(now_ms))
    }

    /// The lane for these sessions.
    pub fn lane(&self, worker: &Worker, key: &LaneKey) -> Rc<Lane> {
        let mut lanes = self.lanes.borrow_mut();
        if let Some(lane) = lanes.iter().find(|l| l.key == *key) {
            return Rc::clone(lane);
        }
        let lane = Lane::new(key.clone(), self.shared.quota(&key.user.name), &worker.snapshot());
        self.has_limits.set(self.has_limits.get() || lane.limit() > 0);
        lanes.push(Rc::clone(&lane));
        lane
    }

    /// Idle backends of one server.
    pub fn idle(&self, server: usize) -> u32 {
        let idle: usize = self.lanes.borrow().iter().map(|lane| lane.idle(server)).sum();
        u32::try_from(idle).unwrap_or(u32::MAX)
    }

    /// Something of up to `n` idle backends, without the first `skip`.
    pub fn map_idle<T>(&self, skip: usize, n: usize, make: impl Fn(&Backend) -> T) -> Vec<T> {
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
    pub fn waiting(&self) -> (usize, Option<u64>) {
        let waiters = self.waiters.borrow();
        (waiters.len(), waiters.front().map(|w| w.turn_us))
    }

    /// An idle backend, if the caller may have one at once.
    pub fn try_acquire(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>, want: &State, needs: Needs) -> Option<Backend> {
        if self.first_in_line(Some(lane)).is_some() || self.shared.is_held() || !needs.takes_used() {
            return None;
        }
        self.take_idle(worker, lane, want, needs)
    }

    /// Queues for a backend until `deadline_us` (process clock), in line since `turn_us`. Whoever has lost one in a transaction
    /// is in line since that began.
    pub fn enqueue(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        lane: &Rc<Lane>,
        needs: Needs,
        collation: u8,
        turn_us: u64,
        deadline_us: u64,
    ) -> Acquire {
        let since_us = worker.shared.clock.now_us();
        let waiter = Rc::new(Waiter {
            lane: Rc::clone(lane),
            needs,
            collation,
            since_us,
            turn_us,
            deadline_us,
            outcome: RefCell::new(Outcome::Waiting),
            waker: RefCell::new(None),
        });
        let place = self.waiters.borrow().partition_point(|other| other.turn_us <= turn_us);
        self.waiters.borrow_mut().insert(place, Rc::clone(&waiter));
        worker.counters.waits.set(worker.counters.waits.get() + 1);
        self.publish_oldest(worker);
        self.grow(worker);
        worker.pool_wakeup.notify_one();
        Acquire { worker: Rc::clone(worker), pool: Rc::clone(self), waiter }
    }

    /// Takes back a backend that is clean: to the longest waiter, else to the idle ones.
    pub fn release(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend) {
        let lane = self.lane(worker, &backend.core.lane);
        self.release_to(worker, &lane, backend);
    }

    /// [`HostgroupPool::release`] for a caller that knows the backend's lane.
    pub fn release_to(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Lane, mut backend: Backend) {
        backend.core.idle_since_ms = worker.clock.now_ms();
        if backend.core.is_labelled || !self.is_welcome(worker, &backend) {
            drop(backend);
            return self.grow(worker);
        }
        let is_limited = lane.limit() > 0;
        let own_queue = is_limited.then_some(&lane.quota.queue).filter(|queue| !queue.is_empty());
        if (self.shared.queue.is_empty() && own_queue.is_none()) || self.shared.is_held() {
            return lane.put(backend);
        }
        let own_since = self.first_in_line(is_limited.then_some(lane)).map_or(NOBODY, |w| w.turn_us);
        let queues = [Some(&self.shared.queue), own_queue].into_iter().flatten();
        let other = queues.filter_map(|queue| queue.longest_waiting_other(worker.index)).min_by_key(|(_, since)| *since);
        if let Some((other, _)) = other.filter(|(_, since)| since.saturating_add(FAIRNESS_BOUND_US) < own_since) {
            return self.hand_over(worker, backend, other);
        }
        self.give_to_waiter(worker, backend);
    }

    fn give_to_waiter(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend) {
        if self.shared.is_held() || !backend.core.server.is_usable(worker.clock.now_ms()) {
            // A backend from another worker: its server may be out by now. Idle, it goes with the next look.
            return self.lane(worker, &backend.core.lane).put(backend);
        }
        let position = self.waiters.borrow().iter().position(|w| w.takes(&backend));
        if let Some(waiter) = position.and_then(|i| self.waiters.borrow_mut().remove(i)) {
            self.publish_oldest(worker);
            return waiter.finish(Outcome::Ready(Box::new(backend)));
        }
        let someone_waits = !self.waiters.borrow().is_empty();
        if someone_waits && backend.core.server.is_full() {
            // Those who wait cannot use this backend, and it stands in the way of one that they can use.
            drop(backend);
            return self.grow(worker);
        }
        self.lane(worker, &backend.core.lane).put(backend);
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
            Err(e) => tracing::warn!("a backend could not change workers and was closed: {e}"),
        }
    }

    /// Another worker gave this one a backend.
    pub fn received(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend) {
        self.give_to_waiter(worker, backend);
    }

    /// Another worker waits for `lane` and cannot connect: give it an idle backend, or make room for a new one.
    pub fn wanted(self: &Rc<Self>, worker: &Rc<Worker>, lane: &LaneKey, from: usize) {
        let servers = self.servers();
        for (index, server) in servers.iter().enumerate() {
            let lanes = self.lanes.borrow().clone();
            if let Some(backend) = lanes.iter().find(|l| l.key == *lane).and_then(|l| l.take_oldest(index)) {
                return self.hand_over(worker, backend, from);
            }
            // Its user has as many as it may, and these are of no use to the one who asks.
            let own = |l: &&Rc<Lane>| l.key.user.name == lane.user.name && l.is_used_up();
            if lanes.iter().filter(own).find_map(|l| l.take_oldest(index)).is_some() {
                return;
            }
            if server.is_full() && lanes.iter().find_map(|l| l.take_oldest(index)).is_some() {
                return;
            }
        }
    }

    fn leave_queue(&self, worker: &Worker, waiter: &Rc<Waiter>) {
        self.waiters.borrow_mut().retain(|w| !Rc::ptr_eq(w, waiter));
        self.publish_oldest(worker);
    }

    /// Who waits longest for a backend that others have used: `lane`'s user's own sessions, and those that do not wait for
    /// their users' own connections.
    fn first_in_line(&self, lane: Option<&Lane>) -> Option<Rc<Waiter>> {
        let is_own = |w: &Waiter| lane.is_some_and(|lane| w.lane.key.user.name == lane.key.user.name);
        let is_in_line = |w: &Waiter| w.needs.takes_used() && (!self.has_limits.get() || !w.waits_for_its_own() || is_own(w));
        self.waiters.borrow().iter().find(|w| is_in_line(w)).cloned()
    }

    fn publish_oldest(&self, worker: &Worker) {
        let since = self.first_in_line(None).map_or(NOBODY, |w| w.turn_us);
        self.shared.queue.set_oldest(worker.index, since);
        if !self.has_limits.get() {
            return;
        }
        for lane in self.lanes.borrow().iter().filter(|lane| lane.limit() > 0) {
            let is_own = |w: &&Rc<Waiter>| w.needs.takes_used() && w.lane.key.user.name == lane.key.user.name;
            let since = self.waiters.borrow().iter().find(is_own).map_or(NOBODY, |w| w.turn_us);
            lane.quota.queue.set_oldest(worker.index, since);
        }
    }

    /// True while someone waits.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.borrow().is_empty()
    }

    /// Chooses a server by weight and takes its nearest idle backend; another server's rather than none.
    fn take_idle(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>, want: &State, needs: Needs) -> Option<Backend> {
        let servers = self.servers();
        let now_ms = worker.clock.now_ms();
        let first = self.choose(worker, needs, |_| true)?;
        for step in 0..servers.len() {
            let index = (first + step) % servers.len();
            let usable = servers.get(index).is_some_and(|s| s.is_usable(now_ms) && needs.accept(s));
            while let Some(mut backend) = if usable { lane.take(index, want) } else { None } {
                if is_alive(&mut backend) {
                    if step > 0 {
                        self.make_up_for(worker, lane, first);
                    } else if self.shared.is_warmed() {
                        self.warm(worker, lane);
                    }
                    return Some(backend);
                }
            }
        }
        None
    }

    /// Another server's backend serves because the chosen one has none: if the chosen one has less than its share of the
    /// connections, it is given one more beside. So a server that came back gets its share of a load that is steady.
    fn make_up_for(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>, chosen: usize) {
        let (now_us, servers) = (worker.shared.clock.now_us(), self.servers());
        let now_ms = now_us / 1000;
        let Some(server) = servers.get(chosen) else { return };
        if self.connecting.get() > 0 || server.is_backing_off(now_ms) || server.is_full() {
            return;
        }
        let used = || servers.iter().filter(|s| s.is_online());
        let weights: u64 = used().map(|s| s.weight(now_ms)).sum();
        let connections: u64 = used().map(|s| u64::from(s.connections())).sum();
        let has_its_share = u64::from(server.connections()) * weights >= server.weight(now_ms) * connections;
        if !has_its_share {
            self.spawn_connect(worker, server, lane, 0, Whose::Anybodys, now_us);
        }
    }

    /// Opens one connection more beside, where a server has fewer than `connection_warming` wants. So nobody waits for it, and
    /// the pool is full before it is needed.
    fn warm(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>) {
        let (now_us, servers) = (worker.shared.clock.now_us(), self.servers());
        let is_cold = |server: &&Arc<ServerShared>| {
            let is_wanted = server.is_usable(now_us / 1000) && !server.is_backing_off(now_us / 1000) && !server.is_full();
            // What this worker would give away again as too many idle ones is not opened.
            is_wanted && server.configured_weight() > 0 && lane.idle(server.index) < self.most_idle(worker, server)
        };
        let wants_more = |server: &&Arc<ServerShared>| {
            u64::from(server.connections()) * 100 < u64::from(server.max_connections()) * u64::from(self.shared.free_connections_pct())
        };
        if self.connecting.get() == 0
            && let Some(server) = servers.iter().filter(is_cold).find(wants_more)
        {
            self.spawn_connect(worker, server, lane, 0, Whose::Anybodys, now_us);
        }
    }

    /// Idle connections to a server that each lane may have on this worker: its share of `free_connections_pct`, at least one.
    fn most_idle(&self, worker: &Worker, server: &ServerShared) -> usize {
        let workers = worker.shared.mailboxes.len().max(1);
        let pct = self.shared.free_connections_pct() as usize;
        (server.max_connections() as usize * pct / 100 / workers).max(1)
    }

    /// A usable server with room, and the right to one connection to it.
    pub fn reserve_any(&self, worker: &Worker, lane: &Lane) -> Option<(Arc<ServerShared>, crate::shared::Slot)> {
        let now_ms = worker.shared.clock.now_ms();
        let index = self.choose(worker, Needs::default(), |s| !s.is_backing_off(now_ms) && !s.is_full())?;
        let server = Arc::clone(self.servers.borrow().get(index)?);
        let slot = server.reserve(&lane.quota, lane.limit())?;
        Some((server, slot))
    }

    /// A usable server, by weight, among those that `fits`.
    fn choose(&self, worker: &Worker, needs: Needs, fits: impl Fn(&Arc<ServerShared>) -> bool) -> Option<usize> {
        let draw = |below| worker.random.below(below);
        choice::choose(&self.servers(), fits, needs, self.rules.get(), worker.clock.now_ms(), draw)
    }

    /// May this backend stay in the pool?
    fn is_welcome(&self, worker: &Worker, backend: &Backend) -> bool {
        let max_age = self.settings().connection_max_age_ms;
        let too_old = max_age > 0 && worker.clock.now_ms().saturating_sub(backend.core.opened_ms) > max_age;
        let server = &backend.core.server;
        // After a LOAD there may be more than are allowed.
        let fits = server.connections() <= server.max_connections() && self.fits_its_user(backend);
        server.is_online() && fits && !backend.core.killed && !too_old && backend.input.is_empty()
    }

    /// After a LOAD a user may have more than it is allowed.
    fn fits_its_user(&self, backend: &Backend) -> bool {
        let lanes = self.lanes.borrow();
        let mut of_user = lanes.iter().filter(|lane| lane.key.user.name == backend.core.lane.user.name);
        let fits = |lane: &Rc<Lane>| lane.limit() == 0 || u64::from(lane.quota.connections()) <= lane.limit();
        !self.has_limits.get() || of_user.all(fits)
    }

    /// Opens connections for waiters as far as the limits allow.
    pub fn grow(self: &Rc<Self>, worker: &Rc<Worker>) {
        if self.shared.is_held() {
            return;
        }
        loop {
            let waiting = self.wanting();
            // A pool that has backends grows by steps: a stall of the server must not become a burst of connects.
            let have = self.connections() as usize;
            let step = if have == 0 { waiting } else { 1 + have / GROWTH_STEP };
            if self.connecting.get() >= waiting.min(step) {
                return;
            }
            let Some(waiter) = self.next_wanting(self.connecting.get()) else { return };
            if !self.start_connect(worker, &waiter) {
                return;
            }
        }
    }

    /// How many wait for whom a connection may be opened: not those whose users have as many as they may.
    fn wanting(&self) -> usize {
        let waiters = self.waiters.borrow();
        if self.has_limits.get() { waiters.iter().filter(|w| !w.waits_for_its_own()).count() } else { waiters.len() }
    }

    /// The one of them that stands behind `skip` others.
    fn next_wanting(&self, skip: usize) -> Option<Rc<Waiter>> {
        let waiters = self.waiters.borrow();
        match self.has_limits.get() {
            true => waiters.iter().filter(|w| !w.waits_for_its_own()).nth(skip).cloned(),
            false => waiters.get(skip).cloned(),
        }
    }

    /// Connections of the whole process to those of the hostgroup's servers that are used: what is left on others serves
    /// nobody who waits.
    fn connections(&self) -> u32 {
        self.servers.borrow().iter().filter(|s| s.is_online()).map(|s| s.connections()).sum()
    }

    /// Starts one connect for the waiter; false when that is not allowed now.
    fn start_connect(self: &Rc<Self>, worker: &Rc<Worker>, waiter: &Rc<Waiter>) -> bool {
        let now_us = worker.shared.clock.now_us();
        let now_ms = now_us / 1000;
        let Some(index) = self.choose(worker, waiter.needs, |s| !s.is_backing_off(now_ms) && !s.is_full()) else {
            self.make_room(worker, waiter, now_ms);
            return false;
        };
        let Some(server) = self.servers.borrow().get(index).map(Arc::clone) else { return false };
        // Many who wait for few mean load that more connections serve better; a single one can wait for a moment.
        let have = self.connections() as usize;
        let crowded = self.waiters.borrow().len() * 2 > have;
        let delay = self.settings().connection_growth_delay_us;
        if waiter.needs.takes_used() && have > 0 && !crowded && now_us.saturating_sub(waiter.since_us) < delay {
            return false;
        }
        let whose = if waiter.needs.takes_used() { Whose::Anybodys } else { Whose::Only(Rc::clone(waiter)) };
        self.spawn_connect(worker, &server, &waiter.lane, waiter.collation, whose, now_us)
    }

    /// Starts one connect as far as the limits allow; false when they do not.
    fn spawn_connect(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        server: &Arc<ServerShared>,
        lane: &Rc<Lane>,
        collation: u8,
        whose: Whose,
        now_us: u64,
    ) -> bool {
        let Some(permit) = server.begin_connect(u32::try_from(self.settings().connect_concurrency).unwrap_or(u32::MAX)) else {
            return false;
        };
        let Some(slot) = server.reserve(&lane.quota, lane.limit()) else { return false };
        if !self.shared.take_connect_rate(now_us) {
            return false;
        }
        self.connecting.set(self.connecting.get() + 1);
        let (pool, worker, lane, server) = (Rc::clone(self), Rc::clone(worker), Rc::clone(lane), Arc::clone(server));
        tokio::task::spawn_local(async move {
            let limit = Duration::from_millis(pool.settings().connect_timeout_server);
            let open = tokio::time::timeout(limit, connect::open(&worker, &server, &lane.key, collation, slot));
            let result = pool.while_used(&server, open).await;
            drop(permit);
            pool.connecting.set(pool.connecting.get() - 1);
            match result {
                Some(Ok(result)) => pool.connected(&worker, &server, &lane, &whose, result),
                Some(Err(_)) => {
                    let text = format!("no connection within {} ms", limit.as_millis());
                    pool.connected(&worker, &server, &lane, &whose, Err(ConnectError::Server(text)));
                }
                None => pool.grow(&worker),
            }
        });
        true
    }

    /// Does `work` with a server for as long as the server is used; None when that ends before.
    async fn while_used<T>(&self, server: &ServerShared, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let laid_out = self.laid_out.notified();
            if !server.is_online() {
                return None;
            }
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = laid_out => {}
            }
        }
    }

    fn connected(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        server: &ServerShared,
        lane: &Lane,
        whose: &Whose,
        result: Result<Backend, ConnectError>,
    ) {
        let counters = &worker.counters;
        meter::connected(worker, server, &lane.key, &result);
        match result {
            Ok(backend) => {
                if server.connect_succeeded() > 0 {
                    worker.shared.signal(server, SignalKind::Recovered);
                }
                counters.backends_opened.set(counters.backends_opened.get() + 1);
                self.release_new(worker, whose, backend);
            }
            Err(ConnectError::Login(e)) => {
                tracing::warn!("login to {} as '{}' was refused: {e}", server.key, lane.key.user.name);
                self.fail_lane(worker, lane, || AcquireError::Refused(e.clone()));
            }
            Err(ConnectError::Impossible(text)) => {
                tracing::warn!("cannot log in to {} as '{}': {text}", server.key, lane.key.user.name);
                self.fail_lane(worker, lane, || AcquireError::Impossible(text.clone()));
            }
            Err(ConnectError::Server(text)) => {
                counters.connect_errors.set(counters.connect_errors.get() + 1);
                tracing::warn!("connect to {} failed: {text}", server.key);
                server.connect_failed(&text, worker.shared.clock.now_ms());
                worker.shared.signal(server, SignalKind::ConnectFailed);
            }
        }
        self.grow(worker);
    }

    /// Gives a new backend to the one it was opened for; to anybody when that one waits no more.
    fn release_new(self: &Rc<Self>, worker: &Rc<Worker>, whose: &Whose, backend: Backend) {
        let may_have_it = !self.shared.is_held() && backend.core.server.is_usable(worker.clock.now_ms());
        let position = match whose {
            Whose::Only(waiter) if may_have_it => self.waiters.borrow().iter().position(|w| Rc::ptr_eq(w, waiter)),
            Whose::Only(_) | Whose::Anybodys => None,
        };
        match position.and_then(|i| self.waiters.borrow_mut().remove(i)) {
            Some(waiter) => waiter.finish(Outcome::Ready(Box::new(backend))),
            None => self.release(worker, backend),
        }
    }

    /// The login can never succeed for those who wait in this lane.
    fn fail_lane(&self, worker: &Worker, lane: &Lane, error: impl Fn() -> AcquireError) {
        let (failed, rest): (VecDeque<_>, VecDeque<_>) = self.waiters.take().into_iter().partition(|w| w.lane.key == lane.key);
        *self.waiters.borrow_mut() = rest;
        self.publish_oldest(worker);
        for waiter in failed {
            waiter.finish(Outcome::Failed(error()));
        }
    }

    /// Every server is full (or failing): close an idle backend of another lane, or ask other workers for one.
    fn make_room(&self, worker: &Worker, waiter: &Waiter, now_ms: u64) {
        let servers = self.servers();
        let full = servers.iter().filter(|s| s.is_usable(now_ms) && s.is_full() && !s.is_backing_off(now_ms));
        for server in full {
            let lanes = self.lanes.borrow().clone();
            // Its own lane's idle backends stand in the way of one that wants none of them.
            let others = lanes.iter().filter(|l| l.key != waiter.lane.key || !waiter.needs.takes_used());
            if let Some(evicted) = others.filter_map(|l| l.take_oldest(server.index)).next() {
                drop(evicted);
                worker.pool_wakeup.notify_one();
                return;
            }
        }
        self.ask_others(worker, waiter);
    }

    /// Asks other workers for a backend, or for room. This worker's own come back within a moment, as long as it has any at
    /// work.
    fn ask_others(&self, worker: &Worker, waiter: &Waiter) {
        let waited_us = worker.shared.clock.now_us().saturating_sub(waiter.since_us);
        let others = waited_us >= ASK_OTHERS_US;
        for (to, mailbox) in worker.shared.mailboxes.iter().enumerate() {
            if others && to != worker.index {
                mailbox.send(Mail::Wanted { lane: waiter.lane.key.clone(), from: worker.index });
            }
        }
    }

    /// Called every millisecond or so while someone waits: deadlines and growth.
    pub fn tick(self: &Rc<Self>, worker: &Rc<Worker>) {
        let now_us = worker.shared.clock.now_us();
        loop {
            let late = self.waiters.borrow().iter().position(|w| w.deadline_us <= now_us);
            let Some(waiter) = late.and_then(|i| self.waiters.borrow_mut().remove(i)) else { break };
            worker.counters.wait_timeouts.set(worker.counters.wait_timeouts.get() + 1);
            let waited_ms = now_us.saturating_sub(waiter.since_us) / 1000;
            waiter.finish(Outcome::Failed(AcquireError::Timeout {
                hostgroup: self.shared.id,
                waited_ms,
                reason: self.why(&waiter, now_us / 1000),
            }));
        }
        while !self.shared.is_held() {
            if !self.first_in_line(None).is_some_and(|waiter| self.serve_from_idle(worker, &waiter)) {
                break;
            }
        }
        self.help_the_limited(worker);
        self.publish_oldest(worker);
        self.grow(worker);
    }

    /// Those whose users have as many connections as they may wait for one of these: an idle one that will do, here or on
    /// another worker; one that will not do is closed to make room.
    fn help_the_limited(self: &Rc<Self>, worker: &Rc<Worker>) {
        if !self.has_limits.get() || self.shared.is_held() {
            return;
        }
        let mut helped: Vec<Rc<Waiter>> = Vec::new();
        for waiter in self.waiters.borrow().iter().filter(|w| w.waits_for_its_own()) {
            if !helped.iter().any(|other| other.lane.key.user.name == waiter.lane.key.user.name) {
                helped.push(Rc::clone(waiter));
            }
        }
        for waiter in helped {
            if self.serve_from_idle(worker, &waiter) {
                continue;
            }
            let lanes = self.lanes.borrow().clone();
            let own = lanes.iter().filter(|l| l.key.user.name == waiter.lane.key.user.name);
            let evicted = own.flat_map(|l| (0..self.servers().len()).filter_map(|server| l.take_oldest(server))).next();
            if evicted.is_none() {
                self.ask_others(worker, &waiter);
            }
        }
    }

    /// Why nobody gets a backend here.
    fn why(&self, waiter: &Waiter, now_ms: u64) -> String {
        if self.shared.is_held() {
            return "the hostgroup is paused (PAUSE HOSTGROUP or a switchover)".into();
        }
        let servers = self.servers();
        let usable: Vec<_> = servers.iter().filter(|s| s.is_online() && s.configured_weight() > 0).collect();
        if servers.iter().all(|s| s.is_removed()) {
            return "the hostgroup has no server".into();
        }
        if usable.is_empty() {
            return out_of_use(&servers);
        }
        if let Some(server) = usable.iter().find(|s| s.is_suspect(now_ms)) {
            return format!("{}:{} refuses writes and was not looked at since", server.key.host, server.key.port);
        }
        if !usable.iter().any(|s| waiter.needs.accept(s)) {
            return "every server of the hostgroup is further behind than the statement's max_lag_ms".into();
        }
        if waiter.waits_for_its_own() {
            let (limit, user) = (waiter.lane.limit(), &waiter.lane.key.user.name);
            return format!("all {limit} connections that user '{user}' may have here (max_backend_connections_per_user) are in use");
        }
        if let Some((server, error)) = usable.iter().find_map(|s| s.last_error().map(|e| (s, e))) {
            return format!("connects to {}:{} fail: {error}", server.key.host, server.key.port);
        }
        if usable.iter().all(|s| s.is_full()) {
            let max: u32 = usable.iter().map(|s| s.max_connections()).sum();
            return format!("all {max} connections (max_connections) are in use");
        }
        "connects are slower than the wait allows".into()
    }

    /// Once a second: closes what is too old, too many or gone, and answers those that should be pinged.
    pub fn maintain(&self, worker: &Worker) -> Vec<Backend> {
        let snapshot = worker.snapshot();
        let vars = &snapshot.vars;
        let now_ms = worker.clock.now_ms();
        let mut ping = Vec::new();
        for lane in self.lanes.borrow().iter() {
            drop(lane.take_where(|b| !self.is_welcome(worker, b) || !is_alive(b)));
            self.trim(worker, lane);
            ping.extend(lane.take_where(|b| now_ms.saturating_sub(b.core.idle_since_ms) >= vars.ping_interval_server_msec));
        }
        ping
    }

    /// Keeps at most `free_connections_pct` of `max_connections` idle (this worker's share of it, at least one).
    fn trim(&self, worker: &Worker, lane: &Lane) {
        for server in self.servers().iter() {
            let max = self.most_idle(worker, server);
            while lane.idle(server.index) > max {
                drop(lane.take_oldest(server.index));
            }
        }
    }
}

/// Why none of these servers is used.
fn out_of_use(servers: &[Arc<ServerShared>]) -> String {
    let mut text = "no server of the hostgroup is ONLINE with a weight above 0".to_owned();
    let mut mark = ": ";
    for server in servers.iter().filter(|s| !s.is_removed()).take(MAX_NAMED) {
        let placement = server.placement();
        let why = if placement.why.is_empty() { String::new() } else { format!(" ({})", placement.why) };
        text += &format!("{mark}{}:{} {}{why}", server.key.host, server.key.port, server.status().as_str());
        mark = ", ";
    }
    text
}

/// An idle backend should be silent: readable means closed (or out of step). Costs no system call.
fn is_alive(backend: &mut Backend) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    backend.link.poll_readable(&mut cx).is_pending()
}
