//! The pool of one hostgroup on one worker: idle backends, waiters in order, growth within limits.
//!
//! INVARIANTS: a connection exists only under a [`crate::shared::Slot`], so `max_connections` holds over all workers;
//! a backend given back goes to the waiter that waits longest, on this worker, or on another one whose waiter is older
//! by more than [`FAIRNESS_BOUND_US`]; connects in progress never outnumber the waiters. Who wants a connection of its own
//! stands in nobody's way: it is passed over by backends that others have used. Only a `fast_forward` session, which lends
//! none to others, has its turn also where the server is full: a backend is closed for it.

mod growth;
mod upkeep;

use crate::backend::{Backend, ServerError};
use crate::choice::{self, Connections, Needs, Rules};
use crate::connect::Raw;
use crate::counters::count;
use crate::hostgroup::HostgroupRole;
use crate::lane::{Lane, LaneKey};
use crate::mailbox::Mail;
use crate::queue::NOBODY;
use crate::server::NEVER;
use crate::shared::{HostgroupShared, ServerInfo, ServerShared};
use crate::state::State;
use crate::worker::Worker;
use model::HostgroupId;
use model::snapshot::{Effective, Snapshot};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// How much longer (us) a waiter of another worker must have waited to be served before this worker's own.
pub const FAIRNESS_BOUND_US: u64 = 1000;

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

/// What one who waits wants.
#[derive(Default)]
pub struct Wish {
    /// Which server and connection will do.
    pub needs: Needs,
    /// The session's collation, for a login.
    pub collation: u8,
    /// It wants a connection that is opened as its client logged in.
    pub raw: Option<Raw>,
}

impl Wish {
    /// A `fast_forward` session's own connection.
    pub fn own(collation: u8, raw: Raw) -> Self {
        Self { needs: Needs { connections: Connections::New, ..Needs::default() }, collation, raw: Some(raw) }
    }
}

/// One session's place in the queue.
struct Waiter {
    lane: Rc<Lane>,
    wish: Wish,
    /// A connection of its own is being opened for it.
    is_opening: Cell<bool>,
    /// The connection that it would have had next was put off: the hostgroup may have only so many a second.
    is_throttled: Cell<bool>,
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
        self.wish.needs.takes_used() && self.lane.key == backend.core.lane && self.wish.needs.accept(&backend.core.server)
    }

    /// Whether it takes no connection that others have used.
    fn is_loner(&self) -> bool {
        !self.wish.needs.takes_used()
    }

    /// Whether closing a connection to this server lets one be opened for it, which nobody else would lend it.
    fn wants_room_on(&self, server: &ServerShared, now_ms: u64) -> bool {
        self.wish.raw.is_some()
            && !self.is_opening.get()
            && !self.waits_for_its_own()
            && server.is_full()
            && server.is_usable(now_ms)
            && !server.is_backing_off(now_ms)
            && self.wish.needs.accept(server)
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
    /// When (process clock, us) a connection was last put off because the hostgroup may have only so many a second, and how many.
    throttled: Cell<(u64, u64)>,
    /// Requests for connections that nobody else has used: what concerns only them is looked for only while there are any.
    loners: Cell<usize>,
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
        self.pool.loners.set(self.pool.loners.get() - usize::from(self.waiter.is_loner()));
        match self.waiter.outcome.replace(Outcome::Taken) {
            Outcome::Waiting => self.pool.leave_queue(&self.worker, &self.waiter),
            Outcome::Ready(backend) if self.waiter.wish.raw.is_some() => {
                drop(backend);
                self.pool.grow(&self.worker);
            }
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
            throttled: Cell::default(),
            loners: Cell::new(0),
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
        if !waiter.wish.needs.takes_used() {
            return false;
        }
        let Some(backend) = self.take_idle(worker, &waiter.lane, &State::default(), waiter.wish.needs) else { return false };
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

    /// What the servers that are used say of themselves, where they are all of one version; those that nobody has logged in to
    /// yet do not count.
    pub fn one_version(&self) -> Option<Arc<ServerInfo>> {
        let servers = self.servers.borrow();
        let mut known = servers.iter().filter(|server| server.is_online()).filter_map(|server| server.info.load_full());
        let first = known.next()?;
        known.all(|info| info.version == first.version).then_some(first)
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
    pub fn enqueue(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>, wish: Wish, turn_us: u64, deadline_us: u64) -> Acquire {
        let since_us = worker.shared.clock.now_us();
        let waiter = Rc::new(Waiter {
            lane: Rc::clone(lane),
            wish,
            is_opening: Cell::new(false),
            is_throttled: Cell::new(false),
            since_us,
            turn_us,
            deadline_us,
            outcome: RefCell::new(Outcome::Waiting),
            waker: RefCell::new(None),
        });
        self.loners.set(self.loners.get() + usize::from(waiter.is_loner()));
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
        let own_since = self.oldest_us(worker, is_limited.then_some(lane));
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
        let (server, now_ms) = (&backend.core.server, worker.shared.clock.now_ms());
        let position = self.waiters.borrow().iter().position(|w| w.takes(&backend) || w.wants_room_on(server, now_ms));
        if position.is_some_and(|i| self.waiters.borrow().get(i).is_some_and(|w| w.wish.raw.is_some())) {
            drop(backend);
            return self.grow(worker);
        }
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
        let is_in_line = |w: &Waiter| w.wish.needs.takes_used() && (!self.has_limits.get() || !w.waits_for_its_own() || is_own(w));
        self.waiters.borrow().iter().find(|w| is_in_line(w)).cloned()
    }

    /// Since when the first one is in line whom a backend given back would serve: [`HostgroupPool::first_in_line`], or one
    /// for whom it would be closed.
    fn oldest_us(&self, worker: &Worker, lane: Option<&Lane>) -> u64 {
        let in_line = self.first_in_line(lane).map_or(NOBODY, |w| w.turn_us);
        if self.loners.get() == 0 {
            return in_line;
        }
        let (now_ms, servers, waiters) = (worker.shared.clock.now_ms(), self.servers.borrow(), self.waiters.borrow());
        let wants_room = |w: &&Rc<Waiter>| w.wish.raw.is_some() && servers.iter().any(|s| w.wants_room_on(s, now_ms));
        in_line.min(waiters.iter().find(wants_room).map_or(NOBODY, |w| w.turn_us))
    }

    fn publish_oldest(&self, worker: &Worker) {
        let since = self.oldest_us(worker, None);
        self.shared.queue.set_oldest(worker.index, since);
        if !self.has_limits.get() {
            return;
        }
        for lane in self.lanes.borrow().iter().filter(|lane| lane.limit() > 0) {
            let is_own = |w: &&Rc<Waiter>| w.wish.needs.takes_used() && w.lane.key.user.name == lane.key.user.name;
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
                if is_alive(worker, &mut backend) {
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
        server.is_online() && fits && !backend.core.killed && !too_old && !backend.core.is_astray() && backend.is_even()
    }

    /// After a LOAD a user may have more than it is allowed.
    fn fits_its_user(&self, backend: &Backend) -> bool {
        let lanes = self.lanes.borrow();
        let mut of_user = lanes.iter().filter(|lane| lane.key.user.name == backend.core.lane.user.name);
        let fits = |lane: &Rc<Lane>| lane.limit() == 0 || u64::from(lane.quota.connections()) <= lane.limit();
        !self.has_limits.get() || of_user.all(fits)
    }
}

/// An idle backend should be silent: readable means closed (or out of step). Costs no system call.
fn is_alive(worker: &Worker, backend: &mut Backend) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    let is_silent = backend.link.poll_readable(&mut cx).is_pending();
    if !is_silent {
        count(&worker.counters.found_closed);
    }
    is_silent
}
