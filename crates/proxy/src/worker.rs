//! A worker: one thread, one single-threaded runtime, and all that lives on it.
//!
//! Sessions, pools, buffers, memories of statements and counters belong to one worker and are never shared.

use crate::backend::Backend;
use crate::buffer::BufferPool;
use crate::clock::{CoarseClock, Random};
use crate::connect;
use crate::counters::Counters;
use crate::entry::{Entry, Signal};
use crate::mailbox::{KillKind, Mail};
use crate::memory::Memory;
use crate::pool::HostgroupPool;
use crate::session;
use crate::shared::Shared;
use model::HostgroupId;
use model::snapshot::Snapshot;
use slab::Slab;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use wire::command::Command;
use wire::reply::ReplyKind;

/// See the module.
pub struct Worker {
    /// Its number, from 0.
    pub index: usize,
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// Buffers.
    pub buffers: BufferPool,
    /// The coarse clock, moved by the sweep.
    pub clock: CoarseClock,
    /// For weighted choices.
    pub random: Random,
    /// What it counts.
    pub counters: Counters,
    /// What it remembers of statements.
    pub memory: RefCell<Memory>,
    /// The sessions, as others may see and signal them.
    pub entries: RefCell<Slab<Rc<Entry>>>,
    /// Wakes the task that serves waiters.
    pub pool_wakeup: Notify,
    pools: HashMap<HostgroupId, Rc<HostgroupPool>>,
}

/// How often waiters' deadlines and growth are looked at while someone waits.
const POOL_TICK: Duration = Duration::from_millis(1);
/// How often sessions are swept for timeouts.
const SWEEP: Duration = Duration::from_millis(100);
/// Sweeps between two rounds of pool maintenance.
const SWEEPS_PER_MAINTENANCE: u32 = 10;
/// Ids of sessions begin here, so that they are never mistaken for a server's own connection ids.
pub const FIRST_SESSION_ID: u64 = 1 << 30;

/// Pinned sessions listed one by one in a report.
const REPORTED_PINS: usize = 50;

impl Worker {
    fn new(index: usize, shared: Arc<Shared>) -> Rc<Self> {
        let pools = shared.hostgroups.iter().map(|(id, h)| (*id, HostgroupPool::new(Arc::clone(h)))).collect();
        let clock = CoarseClock::default();
        clock.set(shared.clock.now_ms());
        let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1) ^ shared.clock.now_us();
        Rc::new(Self {
            index,
            snapshot: Arc::clone(&shared.snapshot),
            shared,
            buffers: BufferPool::default(),
            clock,
            random: Random::new(seed),
            counters: Counters::default(),
            memory: RefCell::default(),
            entries: RefCell::default(),
            pool_wakeup: Notify::new(),
            pools,
        })
    }

    /// Runs a worker until it is told to stop; the caller's thread becomes it.
    pub fn run(index: usize, shared: Arc<Shared>) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .event_interval(31)
            .global_queue_interval(127)
            .max_blocking_threads(2)
            .build_local(tokio::runtime::LocalOptions::default())?;
        runtime.block_on(Self::new(index, shared).serve());
        // A name lookup that hangs in a helper thread must not hold up the stop.
        runtime.shutdown_background();
        Ok(())
    }

    async fn serve(self: Rc<Self>) {
        tokio::task::spawn_local(Rc::clone(&self).serve_waiters());
        tokio::task::spawn_local(Rc::clone(&self).sweep());
        loop {
            let mail = self.mailbox().receive().await;
            match mail {
                Mail::Accept { socket, peer, local } => session::start(&self, socket, peer, local),
                Mail::Backend(detached) => self.adopt(*detached),
                Mail::Wanted { lane, from } => {
                    if let Some(pool) = self.pool(lane.hostgroup) {
                        pool.wanted(&self, &lane, from);
                    }
                }
                Mail::Probe => {
                    tokio::task::spawn_local(Rc::clone(&self).probe());
                }
                Mail::Report => self.report(),
                Mail::Kill { id, kind } => self.kill(id, kind),
                Mail::Drain => self.signal_all(Signal::Drain),
                Mail::Stop => {
                    self.signal_all(Signal::Stop);
                    return self.finish().await;
                }
            }
        }
    }

    /// Lets sessions that were told to stop run to their end, for a moment.
    async fn finish(&self) {
        for _ in 0..200 {
            if self.entries.borrow().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn mailbox(&self) -> &crate::mailbox::Mailbox {
        // INVARIANT: `Shared` is built with one mailbox for each worker.
        &self.shared.mailboxes[self.index]
    }

    /// The pool of a hostgroup; None when no such hostgroup is configured.
    pub fn pool(&self, hostgroup: HostgroupId) -> Option<&Rc<HostgroupPool>> {
        self.pools.get(&hostgroup)
    }

    /// Connects in progress to one server, at most.
    pub fn connect_concurrency(&self) -> u32 {
        u32::try_from(self.snapshot.vars.connect_concurrency).unwrap_or(u32::MAX)
    }

    fn adopt(self: &Rc<Self>, detached: crate::backend::DetachedBackend) {
        match detached.attach() {
            Ok(backend) => {
                if let Some(pool) = self.pool(backend.core.lane.hostgroup) {
                    pool.received(self, backend);
                }
            }
            Err(e) => tracing::warn!("a backend from another worker was lost: {e}"),
        }
    }

    /// Asks the servers, one after the other, what they are; the first answer is what clients are told.
    async fn probe(self: Rc<Self>) {
        let limit = Duration::from_millis(self.snapshot.vars.connect_timeout_server);
        for server in self.shared.hostgroups.values().flat_map(|h| &h.servers) {
            if let Ok(Ok(info)) = tokio::time::timeout(limit, connect::probe(&self, server)).await {
                tracing::info!("{} is {}", server.server.key, info.version);
                let _ = self.shared.info.set(info);
                return;
            }
        }
        self.shared.probe_failed.store(true, std::sync::atomic::Ordering::Release);
    }

    /// Writes sessions, pins, counters and the most expensive digests to the log.
    fn report(&self) {
        let entries = self.entries.borrow();
        let pinned = entries.iter().filter(|(_, e)| !e.pins.get().is_empty());
        let mut by_reason: Vec<(&str, usize)> = Vec::new();
        for reason in pinned.flat_map(|(_, e)| e.pins.get().iter().collect::<Vec<_>>()) {
            match by_reason.iter_mut().find(|(name, _)| *name == reason.name()) {
                Some((_, n)) => *n += 1,
                None => by_reason.push((reason.name(), 1)),
            }
        }
        tracing::info!(
            "worker {}: {} sessions, pinned by reason {by_reason:?}, counters {:?}",
            self.index,
            entries.len(),
            self.counters.values()
        );
        for (_, entry) in entries.iter().filter(|(_, e)| !e.pins.get().is_empty()).take(REPORTED_PINS) {
            let (since_ms, digest) = entry.pinned_since.get().unwrap_or_default();
            let age_ms = self.clock.now_ms().saturating_sub(since_ms);
            let user = entry.user.borrow().as_ref().map(|u| u.name.to_string()).unwrap_or_default();
            tracing::info!(
                "worker {}: session {} of '{user}' pinned for {age_ms} ms: {:?}, digest {digest:#018x}",
                self.index,
                entry.id,
                entry.pins.get()
            );
        }
        for (digest, stats) in self.memory.borrow().top_digests(10) {
            let text = String::from_utf8_lossy(&stats.text);
            tracing::info!(
                "worker {}: digest {digest:#018x} count {} total {} us min {} us max {} us: {text}",
                self.index,
                stats.count,
                stats.sum_us,
                stats.min_us,
                stats.max_us
            );
        }
    }

    /// The worker that owns a session id.
    pub fn owner_of(id: u64, workers: usize) -> usize {
        usize::try_from(id).unwrap_or(0) % workers.max(1)
    }

    fn kill(&self, id: u64, kind: KillKind) {
        let entries = self.entries.borrow();
        if let Some((_, entry)) = entries.iter().find(|(_, e)| e.id == id) {
            entry.signal(match kind {
                KillKind::Query => Signal::KillQuery,
                KillKind::Connection => Signal::KillConnection,
            });
        }
    }

    fn signal_all(&self, signal: Signal) {
        for (_, entry) in self.entries.borrow().iter() {
            entry.signal(signal);
        }
    }

    /// Serves deadlines and growth while anyone waits.
    async fn serve_waiters(self: Rc<Self>) {
        loop {
            if self.pools.values().any(|p| p.has_waiters()) {
                tokio::time::sleep(POOL_TICK).await;
            } else {
                self.pool_wakeup.notified().await;
            }
            for pool in self.pools.values() {
                if pool.has_waiters() {
                    pool.tick(&self);
                }
            }
        }
    }

    /// Moves the coarse clock, ends what is overdue, maintains the pools.
    async fn sweep(self: Rc<Self>) {
        let mut interval = tokio::time::interval(SWEEP);
        let mut round = 0_u32;
        loop {
            interval.tick().await;
            let now_ms = self.shared.clock.now_ms();
            self.clock.set(now_ms);
            for (_, entry) in self.entries.borrow().iter() {
                entry.check_deadlines(now_ms);
            }
            round = round.wrapping_add(1);
            if round.is_multiple_of(SWEEPS_PER_MAINTENANCE) {
                self.maintain();
            }
        }
    }

    fn maintain(self: &Rc<Self>) {
        self.buffers.trim();
        for pool in self.pools.values() {
            for backend in pool.maintain(self) {
                tokio::task::spawn_local(ping(Rc::clone(self), Rc::clone(pool), backend));
            }
        }
    }
}

/// Pings an idle backend and puts it back, or closes it.
async fn ping(worker: Rc<Worker>, pool: Rc<HostgroupPool>, mut backend: Backend) {
    let limit = Duration::from_millis(worker.snapshot.vars.ping_timeout_server);
    let alive = tokio::time::timeout(limit, async {
        backend.send(Command::Ping, &[]).await?;
        backend.collect(ReplyKind::Simple, false, &worker.buffers).await
    });
    match alive.await {
        Ok(Ok(reply)) if reply.error.is_none() => pool.release(&worker, backend),
        _ => tracing::info!("an idle connection to {} did not answer a ping and was closed", backend.core.server.server.key),
    }
}
