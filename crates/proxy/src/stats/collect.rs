//! Reading what the workers counted: copies, in slices, added up on the reader's thread.
//!
//! INVARIANT: a slice is small enough that a worker's sessions wait a millisecond at most.

use crate::clients::session_handle::{Activity, SessionHandle};
use crate::workers::ask::{ask, ask_all};
use crate::workers::counters::Counted;
use crate::workers::shared::Shared;
use crate::workers::worker::Worker;
use meter::commands::CommandTable;
use meter::digest_table::{DigestTotals, Others};
use meter::errors::ErrorTable;
use meter::prepared::Listed;
use meter::server_counts::{ServerId, ServerMeter};
use meter::{Meter, digest_bounds};
use model::stats::Reading;
use session_state::pins::PinReason;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// Entries of a slice.
const SLICE: usize = 512;
/// Histograms are large: meters of a slice.
const METERS: usize = 16;

/// Asks each worker for slices until it has no more. `slice` is given where to begin.
fn in_slices<T: Send + 'static>(
    shared: &Shared,
    slice: impl Fn(&Rc<Worker>, usize) -> (Vec<T>, Option<usize>) + Clone + Send + 'static,
    mut each: impl FnMut(T),
) {
    for worker in 0..shared.mailboxes.len() {
        let mut from = Some(0);
        while let Some(at) = from {
            let slice = slice.clone();
            let Some((taken, next)) = ask(shared, worker, move |worker| slice(worker, at)) else { break };
            taken.into_iter().for_each(&mut each);
            from = next;
        }
    }
}

/// Something of every session, in no order.
pub(crate) fn sessions<T: Send + 'static>(
    shared: &Shared,
    make: impl Fn(&Worker, &SessionHandle) -> Option<T> + Clone + Send + 'static,
) -> Vec<T> {
    let slice = move |worker: &Rc<Worker>, from: usize| {
        let entries = worker.entries.borrow();
        let end = from.saturating_add(SLICE).min(entries.capacity());
        let made = (from..end).filter_map(|i| entries.get(i)).filter_map(|handle| make(worker, handle)).collect();
        (made, (end < entries.capacity()).then_some(end))
    };
    let mut all = Vec::new();
    in_slices(shared, slice, |one| all.push(one));
    all
}

/// Moves what the workers counted by digest to the reader's totals.
pub(crate) fn drain_digests(shared: &Shared, totals: &mut DigestTotals) {
    let bounds = digest_bounds(&shared.in_force.load().snapshot.vars, shared.mailboxes.len());
    let slice = |worker: &Rc<Worker>, from: usize| worker.meter.digests.borrow_mut().take(from, SLICE);
    in_slices(shared, slice, |counted| totals.add(counted, bounds));
    let others = ask_all(shared, |worker| worker.meter.digests.borrow_mut().take_others());
    others.into_iter().for_each(|others: Others| totals.add_others(others));
}

/// Every server's meter, over all workers.
pub(crate) fn servers(shared: &Shared) -> HashMap<ServerId, ServerMeter> {
    let mut all: HashMap<ServerId, ServerMeter> = HashMap::new();
    let slice = |worker: &Rc<Worker>, from: usize| worker.meter.servers.borrow().slice(from, METERS);
    in_slices(shared, slice, |(id, meter)| all.entry(id).or_default().add(&meter));
    all
}

/// Latencies begin anew.
pub(crate) fn reset_latency(shared: &Shared) {
    ask_all(shared, |worker| worker.meter.servers.borrow_mut().reset_latency());
}

/// Errors of servers.
pub(crate) fn errors(shared: &Shared, reading: Reading) -> ErrorTable {
    let question = move |worker: &Rc<Worker>| {
        let mut errors = worker.meter.errors.borrow_mut();
        match reading {
            Reading::Keep => errors.clone(),
            Reading::Reset => std::mem::take(&mut *errors),
        }
    };
    let mut sum = ErrorTable::default();
    ask_all(shared, question).into_iter().for_each(|errors| sum.add(errors));
    sum
}

/// Statements by command.
pub(crate) fn commands(shared: &Shared) -> CommandTable {
    let mut sum = CommandTable::default();
    let tables = ask_all(shared, |worker| worker.meter.commands.borrow().clone());
    tables.iter().for_each(|table| sum.add(table));
    sum
}

/// Idle connections of every server.
pub(crate) fn idle(shared: &Shared) -> BTreeMap<ServerId, u32> {
    let question = |worker: &Rc<Worker>| {
        let mut idle = Vec::new();
        for pool in worker.pools() {
            for server in pool.servers().iter() {
                idle.push(((server.key.hostgroup, server.index), pool.idle(server.index)));
            }
        }
        idle
    };
    let mut all = BTreeMap::new();
    for (id, n) in ask_all(shared, question).into_iter().flatten() {
        *all.entry(id).or_insert(0) += n;
    }
    all
}

/// Prepared statements that anyone holds; workers list the same statement each for itself.
pub(crate) fn prepared(shared: &Shared) -> Vec<Arc<Listed>> {
    let mut all = Vec::new();
    in_slices(shared, |worker: &Rc<Worker>, from| worker.meter.prepared.borrow().held(from, SLICE), |listed| all.push(listed));
    all.sort_unstable_by_key(|listed: &Arc<Listed>| listed.id);
    all.dedup_by_key(|listed| listed.id);
    all
}

/// What one worker says of itself in one answer, and the sum of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    /// Its counters.
    pub counted: Counted,
    /// Sessions.
    pub sessions: u64,
    /// Sessions with a command under way.
    pub busy: u64,
    /// Sessions with an open transaction.
    pub transactions: u64,
    /// Mirrored statements that run.
    pub mirrors_running: u64,
    /// Mirrored statements that wait.
    pub mirrors_waiting: u64,
    /// Pins that began, by reason.
    pub pins_began: [u64; PinReason::ALL.len()],
    /// Bytes that its digests take.
    pub digest_bytes: u64,
    /// Bytes of buffers that wait for use.
    pub buffer_bytes: u64,
}

impl Census {
    /// Adds another worker's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counted.add(&other.counted);
        self.sessions += other.sessions;
        self.busy += other.busy;
        self.transactions += other.transactions;
        self.mirrors_running += other.mirrors_running;
        self.mirrors_waiting += other.mirrors_waiting;
        self.digest_bytes += other.digest_bytes;
        self.buffer_bytes += other.buffer_bytes;
        for (mine, theirs) in self.pins_began.iter_mut().zip(other.pins_began) {
            *mine += theirs;
        }
    }
}

pub(crate) fn counters(shared: &Shared) -> Census {
    let of_meter = |meter: &Meter| (meter.pins_begun(), meter.digest_bytes() as u64);
    let question = move |worker: &Rc<Worker>| {
        let (pins_began, digest_bytes) = of_meter(&worker.meter);
        let buffer_bytes = worker.buffers.free_bytes() as u64;
        let (mirrors_running, mirrors_waiting) = (worker.mirrors.running.get(), worker.mirrors.waiting.get());
        let counted = worker.counters.copy();
        Census { counted, mirrors_running, mirrors_waiting, pins_began, digest_bytes, buffer_bytes, ..Census::default() }
    };
    let mut sum = Census::default();
    ask_all(shared, question).iter().for_each(|one| sum.add(one));
    sum
}

/// Counters of all workers, and what their sessions do now.
pub(crate) fn census(shared: &Shared) -> Census {
    let mut sum = counters(shared);
    let doing = |_: &Worker, handle: &SessionHandle| {
        let busy = matches!(handle.activity().0, Activity::Running | Activity::Delayed | Activity::Waiting);
        Some((busy, handle.is_in_transaction()))
    };
    for (busy, in_transaction) in sessions(shared, doing) {
        sum.sessions += 1;
        sum.busy += u64::from(busy);
        sum.transactions += u64::from(in_transaction);
    }
    sum
}
