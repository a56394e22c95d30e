//! Decides which waiting sessions share a backend, and how many. Sessions are taken in the order in which they began to wait.
//!
//! A backend that is given back serves one waiting session, or the first few at once. INVARIANT: no session is overtaken. If the first
//! session in line is no [`Rider`], or wants another state, the backend is its alone, and the sessions behind it wait.

use super::batch::Batch;
use super::lines::FRONT;
use super::waiting::{Outcome, Waiter};
use super::{HostgroupPool, Kind};
use crate::backends::backend::{Backend, BackendState};
use crate::clients::session_handle::{Activity, SessionHandle};
use crate::hostgroups::lane::Lane;
use crate::servers::sizing::Turns;
use crate::statements::execution::Execution;
use crate::statements::habits::Habit;
use crate::statements::stmt_cache::StatementCache;
use crate::workers::counters::{add, count};
use crate::workers::worker::Worker;
use session_state::held::Tracking;
use session_state::state::State;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::flags::{Capabilities, StatusFlags};
use wire::packet::HEADER;

/// Bytes of statements that are sent together: they fit the kernel's buffer.
const MOST_BYTES: usize = 16 * 1024;

/// What a session leaves with its place in the queue, where its statement may be sent together with others'.
pub(crate) struct Rider {
    /// The statement's packet, as its client sent it.
    pub packet: Vec<u8>,
    /// Where it is an execution: of what.
    pub execution: Option<Execution>,
    /// What the session wants of a backend.
    pub state: State,
    /// What is known of the statement.
    pub habit: Rc<Habit>,
    /// The session, for others.
    pub handle: Rc<SessionHandle>,
    /// It left an idle connection to those who come in the same turn of the loop.
    pub gathers: bool,
}

impl Rider {
    /// Bytes that it sends at most.
    fn len(&self) -> usize {
        self.packet.len() + self.execution.as_ref().map_or(0, |execution| execution.types.len())
    }

    /// Whether the statement can run on this backend as it is: an execution needs its statement prepared there.
    fn fits(&self, core: &mut BackendState) -> bool {
        self.state == *core.held.state() && self.execution.as_ref().is_none_or(|execution| execution.is_ready(&mut core.statements))
    }

    /// Appends what a backend with these statements is sent. None where it lacks the statement.
    pub(super) fn put(&self, statements: &mut StatementCache, out: &mut Vec<u8>) -> Option<()> {
        match &self.execution {
            None => out.extend_from_slice(&self.packet),
            Some(execution) => execution.put(self.packet.get(HEADER..)?, statements, out)?,
        }
        Some(())
    }
}

/// What became of a statement that was sent together with others'.
pub(crate) enum Ridden {
    /// This is its whole reply, without an error and without warnings.
    Answered(Answer),
    /// Its reply is not to be had here, or says something that only a backend of its own explains: it runs alone.
    Alone,
    /// It changed the state of its session, which is not kept; it must not run again.
    Changed,
    /// The connection was lost while it was under way.
    Lost(String),
}

/// A whole reply.
pub(crate) struct Answer {
    /// Its packets.
    pub bytes: Vec<u8>,
    /// What was agreed with the server.
    pub caps: Capabilities,
    /// When (process clock, us) the statements were sent.
    pub sent_us: u64,
}

/// What one who waited got.
pub(crate) enum Got {
    /// A connection.
    Backend(Backend),
    /// No connection: the statement was sent together with others'.
    Ridden(Ridden),
}

/// How many statements may be under way on a backend of one hostgroup, on one worker; and what became of them.
#[derive(Default)]
pub(super) struct Depth {
    budget: Cell<Budget>,
    sent: Cell<u64>,
    again: Cell<u64>,
    dropped: Cell<u64>,
}

/// What is known of a hostgroup's batches on one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batches {
    /// Statements that may be under way on one backend; 1 where none are sent together.
    pub depth: u64,
    /// Statements that were sent together with others.
    pub sent: u64,
    /// Those of them that were sent again, alone.
    pub again: u64,
    /// Replies that nobody waited for any more.
    pub dropped: u64,
}

/// Of all that is sent together, one in so many may be sent again.
const ONE_AGAIN_IN: u64 = 50;
/// Of so many at least it is asked how many were sent again.
const FEWEST_COUNTED: u64 = 200;
/// Beyond so many, both counts are halved.
const MOST_COUNTED: u64 = 2_000;
/// How long a smaller depth stands before it is doubled, ms.
const SHRUNK_MS: u64 = 1_000;

/// Keeps what is sent again within [`ONE_AGAIN_IN`], by a smaller depth.
#[derive(Clone, Copy, Default)]
struct Budget {
    /// The depth, where it is smaller than the setting; 0 elsewhere.
    shrunk: u64,
    grows_at_ms: u64,
    sent: u64,
    again: u64,
}

impl Budget {
    fn depth(&mut self, limit: u64, now_ms: u64) -> u64 {
        if self.shrunk > 0 && self.grows_at_ms <= now_ms {
            self.shrunk *= 2;
            self.grows_at_ms = now_ms + SHRUNK_MS;
        }
        if self.shrunk >= limit {
            self.shrunk = 0;
        }
        if self.shrunk > 0 { self.shrunk } else { limit }
    }

    fn note(&mut self, limit: u64, sent: u64, again: u64, now_ms: u64) {
        self.sent += sent;
        self.again += again;
        if self.again * ONE_AGAIN_IN > self.sent.max(FEWEST_COUNTED) {
            let shrunk = (self.depth(limit, now_ms) / 2).max(1);
            *self = Self { shrunk, grows_at_ms: now_ms + SHRUNK_MS, sent: 0, again: 0 };
        } else if self.sent >= MOST_COUNTED {
            (self.sent, self.again) = (self.sent / 2, self.again / 2);
        }
    }
}

impl Depth {
    fn within(&self, limit: u64, now_ms: u64) -> u64 {
        let mut budget = self.budget.get();
        let depth = budget.depth(limit, now_ms);
        self.budget.set(budget);
        depth
    }
}

/// How many of `waiting` a backend that comes free serves at once: half of a long line is left to the next one.
fn share(waiting: usize, depth: u64) -> usize {
    let depth = usize::try_from(depth).unwrap_or(usize::MAX);
    waiting.div_ceil(2).clamp(depth / 2, depth).min(waiting)
}

impl HostgroupPool {
    /// So many statements go to a backend together.
    pub(super) fn count_sent(&self, worker: &Worker, sent: u64) {
        add(&self.depth.sent, sent);
        add(&worker.counters.pipelined, sent);
        self.note_budget(worker, sent, 0);
    }

    /// One of them is sent again.
    pub(super) fn count_again(&self, worker: &Worker) {
        count(&self.depth.again);
        count(&worker.counters.pipelined_again);
        self.note_budget(worker, 0, 1);
    }

    /// Nobody waits for the reply to one of them.
    pub(super) fn count_dropped(&self, worker: &Worker) {
        count(&self.depth.dropped);
        count(&worker.counters.pipelined_dropped);
    }

    fn note_budget(&self, worker: &Worker, sent: u64, again: u64) {
        let mut budget = self.depth.budget.get();
        budget.note(self.settings.borrow().pipeline_depth, sent, again, worker.shared.clock.now_ms());
        self.depth.budget.set(budget);
    }

    /// What its batches are like.
    pub(crate) fn batches(&self, now_ms: u64) -> Batches {
        let depth = &self.depth;
        let now = depth.within(self.settings.borrow().pipeline_depth, now_ms);
        Batches { depth: now, sent: depth.sent.get(), again: depth.again.get(), dropped: depth.dropped.get() }
    }

    /// Whether a quick read of this lane is to wait for others of the same turn of the loop, though a backend is idle.
    pub(crate) fn gathers(&self, worker: &Worker, lane: &Lane) -> bool {
        let now_us = worker.shared.clock.now_us();
        lane.gathers(now_us) && self.depth.within(self.settings.borrow().pipeline_depth, now_us / 1000) > 1
    }

    /// Gives the backend to `first`, whose turn it is, and to those behind it who can have it at the same time; None where they
    /// cannot, with the backend.
    pub(super) fn give_to_several(self: &Rc<Self>, worker: &Rc<Worker>, first: &Rc<Waiter>, mut backend: Backend) -> Option<Backend> {
        let limit = self.settings.borrow().pipeline_depth;
        if limit < 2 || first.wish.rider.is_none() || !takes_several(&backend) {
            return Some(backend);
        }
        let now_ms = worker.shared.clock.now_ms();
        let riders = self.riders(worker, first, &mut backend, now_ms);
        if riders.len() < 2 {
            return Some(backend);
        }
        let shown = backend.shown();
        for (waiter, rider) in riders.iter().filter_map(|waiter| Some((waiter, waiter.wish.rider.as_deref()?))) {
            self.waiters.borrow_mut().remove(&waiter.kind(), waiter.ticket);
            *waiter.outcome.borrow_mut() = Outcome::Riding;
            backend.core.held.found_equal_to(&rider.state.variables);
            rider.handle.row.held.set(Some(shown));
            rider.handle.set_activity(Activity::Running, now_ms);
        }
        let (now_us, more) = (worker.shared.clock.now_us(), riders.len() as u64 - 1);
        first.lane.turned(now_us);
        // Where it was idle, the first of them has not been counted.
        let was_idle = backend.core.taken_us == 0;
        if was_idle {
            backend.core.taken_us = now_us;
        }
        self.count_turns(&backend, Turns { count: more + u64::from(was_idle), together: more, held_us: 0 });
        self.publish(worker, &first.lane);
        let batch = Batch::new(worker, self, &first.lane, backend, riders);
        tokio::task::spawn_local(batch.run());
        None
    }

    /// Those at the front of the line that this backend can serve at the same time.
    fn riders(&self, worker: &Worker, first: &Rc<Waiter>, backend: &mut Backend, now_ms: u64) -> Vec<Rc<Waiter>> {
        let (server, settings) = (Arc::clone(&backend.core.server), self.settings.borrow());
        if !server.takes_work(now_ms) || self.shared.replays.may_be_due(settings.transaction_replay_head_start_ms) {
            return Vec::new();
        }
        let is_in_line = |kind: &Kind| kind.takes_of(&first.lane);
        let (waiters, epoch) = (self.waiters.borrow(), worker.shared.ddl_epoch.load(Ordering::Acquire));
        let most = share(waiters.count(is_in_line), self.depth.within(settings.pipeline_depth, now_ms));
        let longest_us = worker.snapshot().vars.pipeline_max_statement_us;
        let (mut bytes, mut work_us) = (0, 0);
        let may_ride = |waiter: &&Rc<Waiter>| {
            let Some(rider) = waiter.wish.rider.as_deref() else { return false };
            bytes += rider.len();
            // The last of them waits for all others.
            let waits_us = work_us;
            work_us += rider.habit.beside_us();
            bytes <= MOST_BYTES
                && waits_us <= longest_us
                && rider.habit.is_proven(epoch, now_ms)
                && waiter.wish.needs.accept(&server)
                && rider.fits(&mut backend.core)
        };
        let in_order = waiters.in_order(FRONT, is_in_line).map(|(_, waiter)| waiter);
        let riders: Vec<_> = in_order.take(most).take_while(may_ride).cloned().collect();
        // Where another one stands in front that this server will not do for, its turn is not to be missed.
        if riders.first().is_some_and(|rider| Rc::ptr_eq(rider, first)) { riders } else { Vec::new() }
    }
}

/// Whether a backend may answer statements of several sessions: nothing is left on it of the one before, and its server tells what they
/// change. A compressed connection numbers its frames by command.
fn takes_several(backend: &Backend) -> bool {
    let (core, held) = (&backend.core, &backend.core.held);
    let is_clean = !held.has_warnings() && !held.must_reset() && !held.outlives_reset() && !core.has_assigned_gtid && !core.killed;
    is_clean
        && held.tracking() == Tracking::Ours
        && !held.status().intersects(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY)
        && backend.link.frame_seq().is_none()
        && backend.is_even()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_long_line_is_left_to_the_next_backend() {
        for (waiting, depth, expected) in
            [(1, 8, 1), (2, 8, 2), (4, 8, 4), (7, 8, 4), (11, 8, 6), (15, 8, 8), (100, 8, 8), (100, 1, 1), (3, 2, 2)]
        {
            assert_eq!(share(waiting, depth), expected, "{waiting} {depth}");
        }
    }

    #[test]
    fn the_depth_shrinks_while_too_much_is_sent_again_and_grows_back() {
        let mut budget = Budget::default();
        assert_eq!(budget.depth(8, 0), 8);
        budget.note(8, 8, 4, 0);
        assert_eq!(budget.depth(8, 0), 8, "2 % of the fewest that count");
        budget.note(8, 8, 1, 0);
        assert_eq!(budget.depth(8, 0), 4);
        (0..3).for_each(|_| budget.note(8, 8, 8, 10));
        assert_eq!(budget.depth(8, 10), 1, "nothing is sent together any more");
        assert_eq!(budget.depth(8, 10 + SHRUNK_MS), 2);
        assert_eq!((budget.depth(8, 10 + 2 * SHRUNK_MS), budget.depth(8, 10 + 3 * SHRUNK_MS)), (4, 8));
        assert_eq!(budget.depth(3, 10 + 3 * SHRUNK_MS), 3, "the setting limits it at once");
        for _ in 0..100 {
            budget.note(8, 1000, 20, 0);
        }
        assert_eq!(budget.depth(8, 0), 8, "2 % may be");
    }
}
