//! The pool of one hostgroup on one worker: idle backends, waiters in order, growth within limits.
//!
//! INVARIANTS: a connection exists only under a [`crate::shared::Slot`], so `max_connections` holds over all workers;
//! a backend given back goes to the waiter that waits longest, on this worker, or on another one whose waiter is older
//! by more than [`FAIRNESS_BOUND_US`]; connects in progress never outnumber the waiters.

use crate::backend::{Backend, ServerError};
use crate::connect::{self, ConnectError};
use crate::lane::{Lane, LaneKey};
use crate::mailbox::Mail;
use crate::shared::{HostgroupShared, NOBODY, ServerShared};
use crate::state::State;
use crate::worker::Worker;
use model::HostgroupId;
use model::snapshot::ServerStatus;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How much longer (us) a waiter of another worker must have waited to be served before this worker's own.
pub const FAIRNESS_BOUND_US: u64 = 1000;

/// At most one more connect in progress for each so many connections that exist.
const GROWTH_STEP: usize = 8;

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
    collation: u8,
    since_us: u64,
    deadline_us: u64,
    outcome: RefCell<Outcome>,
    waker: RefCell<Option<Waker>>,
}

impl Waiter {
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
    lanes: RefCell<Vec<Rc<Lane>>>,
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
    connecting: Cell<usize>,
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
    pub fn new(shared: Arc<HostgroupShared>) -> Rc<Self> {
        Rc::new(Self { shared, lanes: RefCell::default(), waiters: RefCell::default(), connecting: Cell::new(0) })
    }

    /// The lane for these sessions.
    pub fn lane(&self, key: &LaneKey) -> Rc<Lane> {
        let mut lanes = self.lanes.borrow_mut();
        if let Some(lane) = lanes.iter().find(|l| l.key == *key) {
            return Rc::clone(lane);
        }
        let lane = Lane::new(key.clone(), self.shared.servers.len());
        lanes.push(Rc::clone(&lane));
        lane
    }

    /// An idle backend, if the caller may have one at once.
    pub fn try_acquire(&self, worker: &Rc<Worker>, lane: &Lane, want: &State) -> Option<Backend> {
        if !self.waiters.borrow().is_empty() {
            return None;
        }
        self.take_idle(worker, lane, want)
    }

    /// Queues for a backend until `deadline_us` (process clock).
    pub fn enqueue(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>, collation: u8, deadline_us: u64) -> Acquire {
        let waiter = Rc::new(Waiter {
            lane: Rc::clone(lane),
            collation,
            since_us: worker.shared.clock.now_us(),
            deadline_us,
            outcome: RefCell::new(Outcome::Waiting),
            waker: RefCell::new(None),
        });
        self.waiters.borrow_mut().push_back(Rc::clone(&waiter));
        worker.counters.waits.set(worker.counters.waits.get() + 1);
        self.publish_oldest(worker);
        self.grow(worker);
        worker.pool_wakeup.notify_one();
        Acquire { worker: Rc::clone(worker), pool: Rc::clone(self), waiter }
    }

    /// Takes back a backend that is clean: to the longest waiter, else to the idle ones.
    pub fn release(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend) {
        let lane = self.lane(&backend.core.lane);
        self.release_to(worker, &lane, backend);
    }

    /// [`HostgroupPool::release`] for a caller that knows the backend's lane.
    pub fn release_to(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Lane, mut backend: Backend) {
        backend.core.idle_since_ms = worker.clock.now_ms();
        if !self.is_welcome(worker, &backend) {
            drop(backend);
            return self.grow(worker);
        }
        if self.shared.waiting_workers.load(Ordering::Relaxed) == 0 {
            return lane.put(backend);
        }
        let own_since = self.waiters.borrow().front().map_or(NOBODY, |w| w.since_us);
        let other = self.shared.longest_waiting_other(worker.index);
        if let Some((other, _)) = other.filter(|(_, since)| since.saturating_add(FAIRNESS_BOUND_US) < own_since) {
            return self.hand_over(worker, backend, other);
        }
        self.give_to_waiter(worker, backend);
    }

    fn give_to_waiter(self: &Rc<Self>, worker: &Rc<Worker>, backend: Backend) {
        let position = self.waiters.borrow().iter().position(|w| w.lane.key == backend.core.lane);
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
        self.lane(&backend.core.lane).put(backend);
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
        for index in 0..self.shared.servers.len() {
            let lanes = self.lanes.borrow().clone();
            if let Some(backend) = lanes.iter().find(|l| l.key == *lane).and_then(|l| l.take_oldest(index)) {
                return self.hand_over(worker, backend, from);
            }
            let full = self.shared.servers.get(index).is_some_and(|s| s.is_full());
            if full && lanes.iter().find_map(|l| l.take_oldest(index)).is_some() {
                return;
            }
        }
    }

    fn leave_queue(&self, worker: &Worker, waiter: &Rc<Waiter>) {
        self.waiters.borrow_mut().retain(|w| !Rc::ptr_eq(w, waiter));
        self.publish_oldest(worker);
    }

    fn publish_oldest(&self, worker: &Worker) {
        let since = self.waiters.borrow().front().map_or(NOBODY, |w| w.since_us);
        self.shared.set_oldest(worker.index, since);
    }

    /// True while someone waits.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.borrow().is_empty()
    }

    /// Chooses a server by weight and takes its nearest idle backend; another server's rather than none.
    fn take_idle(&self, worker: &Rc<Worker>, lane: &Lane, want: &State) -> Option<Backend> {
        let servers = &self.shared.servers;
        let first = self.choose(worker, |_| true)?;
        for step in 0..servers.len() {
            let index = (first + step) % servers.len();
            let usable = servers.get(index).is_some_and(|s| is_usable(s));
            while let Some(mut backend) = if usable { lane.take(index, want) } else { None } {
                if is_alive(&mut backend) {
                    return Some(backend);
                }
            }
        }
        None
    }

    /// A usable server with room, and the right to one connection to it.
    pub fn reserve_any(&self, worker: &Worker) -> Option<(Arc<ServerShared>, crate::shared::Slot)> {
        let now_ms = worker.shared.clock.now_ms();
        let index = self.choose(worker, |s| !s.is_backing_off(now_ms) && !s.is_full())?;
        let server = Arc::clone(self.shared.servers.get(index)?);
        let slot = server.reserve()?;
        Some((server, slot))
    }

    /// A usable server, by weight, among those that `fits`.
    fn choose(&self, worker: &Worker, fits: impl Fn(&Arc<ServerShared>) -> bool) -> Option<usize> {
        let servers = &self.shared.servers;
        let weight = |s: &Arc<ServerShared>| if is_usable(s) && fits(s) { u64::from(s.server.weight) } else { 0 };
        if let [only] = servers.as_slice() {
            return (weight(only) > 0).then_some(0);
        }
        let total = servers.iter().map(weight).sum();
        let mut ticket = worker.random.below(total);
        for (i, server) in servers.iter().enumerate() {
            let w = weight(server);
            if ticket < w {
                return Some(i);
            }
            ticket -= w;
        }
        None
    }

    /// May this backend stay in the pool?
    fn is_welcome(&self, worker: &Worker, backend: &Backend) -> bool {
        let max_age = worker.snapshot.vars.connection_max_age_ms;
        let too_old = max_age > 0 && worker.clock.now_ms().saturating_sub(backend.core.opened_ms) > max_age;
        is_usable(&backend.core.server) && !backend.core.killed && !too_old && backend.input.is_empty()
    }

    /// Opens connections for waiters as far as the limits allow.
    pub fn grow(self: &Rc<Self>, worker: &Rc<Worker>) {
        loop {
            let waiting = self.waiters.borrow().len();
            // A pool that has backends grows by steps: a stall of the server must not become a burst of connects.
            let have = self.connections() as usize;
            let step = if have == 0 { waiting } else { 1 + have / GROWTH_STEP };
            if self.connecting.get() >= waiting.min(step) {
                return;
            }
            let next = self.waiters.borrow().get(self.connecting.get()).cloned();
            let Some(waiter) = next else { return };
            if !self.start_connect(worker, &waiter) {
                return;
            }
        }
    }

    /// Connections of the whole process to the hostgroup's servers.
    fn connections(&self) -> u32 {
        self.shared.servers.iter().map(|s| s.connections()).sum()
    }

    /// Starts one connect for the waiter; false when that is not allowed now.
    fn start_connect(self: &Rc<Self>, worker: &Rc<Worker>, waiter: &Waiter) -> bool {
        let now_us = worker.shared.clock.now_us();
        let now_ms = now_us / 1000;
        let Some(index) = self.choose(worker, |s| !s.is_backing_off(now_ms) && !s.is_full()) else {
            self.make_room(worker, waiter, now_ms);
            return false;
        };
        let Some(server) = self.shared.servers.get(index).map(Arc::clone) else { return false };
        // Many who wait for few mean load that more connections serve better; a single one can wait for a moment.
        let have = self.connections() as usize;
        let crowded = self.waiters.borrow().len() * 2 > have;
        let delay = worker.snapshot.vars.connection_growth_delay_us;
        if have > 0 && !crowded && now_us.saturating_sub(waiter.since_us) < delay {
            return false;
        }
        let Some(permit) = server.begin_connect(worker.connect_concurrency()) else { return false };
        let Some(slot) = server.reserve() else { return false };
        if !self.shared.take_connect_rate(now_us) {
            return false;
        }
        self.connecting.set(self.connecting.get() + 1);
        let (pool, worker, lane, collation) = (Rc::clone(self), Rc::clone(worker), Rc::clone(&waiter.lane), waiter.collation);
        tokio::task::spawn_local(async move {
            let limit = Duration::from_millis(worker.snapshot.vars.connect_timeout_server);
            let result = match tokio::time::timeout(limit, connect::open(&worker, &server, &lane.key, collation, slot)).await {
                Ok(result) => result,
                Err(_) => Err(ConnectError::Server(format!("no connection within {} ms", limit.as_millis()))),
            };
            drop(permit);
            pool.connecting.set(pool.connecting.get() - 1);
            pool.connected(&worker, &server, &lane, result);
        });
        true
    }

    fn connected(self: &Rc<Self>, worker: &Rc<Worker>, server: &ServerShared, lane: &Lane, result: Result<Backend, ConnectError>) {
        let counters = &worker.counters;
        match result {
            Ok(backend) => {
                server.connect_succeeded();
                counters.backends_opened.set(counters.backends_opened.get() + 1);
                self.release(worker, backend);
            }
            Err(ConnectError::Login(e)) => {
                tracing::warn!("login to {} as '{}' was refused: {e}", server.server.key, lane.key.user.name);
                self.fail_lane(worker, lane, || AcquireError::Refused(e.clone()));
            }
            Err(ConnectError::Impossible(text)) => {
                tracing::warn!("cannot log in to {} as '{}': {text}", server.server.key, lane.key.user.name);
                self.fail_lane(worker, lane, || AcquireError::Impossible(text.clone()));
            }
            Err(ConnectError::Server(text)) => {
                counters.connect_errors.set(counters.connect_errors.get() + 1);
                tracing::warn!("connect to {} failed: {text}", server.server.key);
                server.connect_failed(&text, worker.shared.clock.now_ms());
            }
        }
        self.grow(worker);
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
        let full = self.shared.servers.iter().filter(|s| is_usable(s) && s.is_full() && !s.is_backing_off(now_ms));
        for server in full {
            let lanes = self.lanes.borrow().clone();
            let others = lanes.iter().filter(|l| l.key != waiter.lane.key);
            if let Some(evicted) = others.filter_map(|l| l.take_oldest(server.index)).next() {
                drop(evicted);
                worker.pool_wakeup.notify_one();
                return;
            }
        }
        // This worker's own backends come back within a moment, as long as it has any at work.
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
            waiter.finish(Outcome::Failed(AcquireError::Timeout { hostgroup: self.shared.id, waited_ms, reason: self.why() }));
        }
        self.publish_oldest(worker);
        self.grow(worker);
    }

    /// Why nobody gets a backend here.
    fn why(&self) -> String {
        let usable: Vec<_> = self.shared.servers.iter().filter(|s| is_usable(s)).collect();
        if self.shared.servers.is_empty() {
            return "the hostgroup has no server".into();
        }
        if usable.is_empty() {
            return "no server of the hostgroup is ONLINE with a weight above 0".into();
        }
        if let Some((server, error)) = usable.iter().find_map(|s| s.last_error().map(|e| (s, e))) {
            return format!("connects to {}:{} fail: {error}", server.server.key.host, server.server.key.port);
        }
        if usable.iter().all(|s| s.is_full()) {
            let max: u32 = usable.iter().map(|s| s.server.max_connections).sum();
            return format!("all {max} connections (max_connections) are in use");
        }
        "connects are slower than the wait allows".into()
    }

    /// Once a second: closes what is too old, too many or gone, and answers those that should be pinged.
    pub fn maintain(&self, worker: &Worker) -> Vec<Backend> {
        let vars = &worker.snapshot.vars;
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
        let workers = worker.shared.mailboxes.len().max(1);
        for server in &self.shared.servers {
            let pct = self.shared.free_connections_pct as usize;
            let max = (server.server.max_connections as usize * pct / 100 / workers).max(1);
            while lane.idle(server.index) > max {
                drop(lane.take_oldest(server.index));
            }
        }
    }
}

/// May new work go to this server?
fn is_usable(server: &ServerShared) -> bool {
    server.server.status == ServerStatus::Online
}

/// An idle backend should be silent: readable means closed (or out of step). Costs no system call.
fn is_alive(backend: &mut Backend) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    backend.link.poll_readable(&mut cx).is_pending()
}
