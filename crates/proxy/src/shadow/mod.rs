//! Shadow sessions: reads of chosen sessions run on a server of another version too, and the answers are compared.
//!
//! A shadow repeats the reads of one session in their order, each in the session's state of then ([`Shadow`]). It runs beside the session
//! and has its own connections. What waits is bounded in bytes for each rehearsal; a session that does not fit is given up whole, and
//! counted. INVARIANT: a statement is queued after its answer was sent, the session never waits for its shadow, and nothing that happens
//! to the shadow reaches the client.

mod begin;
mod judge;
mod listener;
mod plans;
mod play;

pub(crate) use begin::begin;
pub(crate) use listener::Listener;
pub(crate) use play::play;

use crate::limits::overload::Step;
use crate::mirror::Mirrored;
use crate::workers::clock::Clock;
use crate::workers::worker::Worker;
use meter::digest::Digest;
use model::snapshot::RehearsalMode;
use rehearsal::{Answer, GaveUp, Run};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that a waiting statement takes beside its text.
const OVERHEAD: u64 = 1024;

/// A read that the original has answered.
pub(crate) struct Repeated {
    /// The statement, with all that it needs of the session.
    pub copy: Mirrored,
    /// Its digest.
    pub digest: Arc<Digest>,
    /// What the original answered.
    pub answer: Answer,
    /// How long its server took, us.
    pub time_us: u64,
}

/// Counts how long the thread works on this task of a run.
async fn count_busy(run: Arc<Run>, clock: Clock, task: impl Future<Output = ()>) {
    let mut task = pin!(task);
    poll_fn(|cx| {
        let began_ns = clock.now_ns();
        let polled = task.as_mut().poll(cx);
        run.busy_ns.fetch_add(clock.now_ns().saturating_sub(began_ns), Ordering::Relaxed);
        polled
    })
    .await;
}

impl Repeated {
    fn bytes(&self) -> u64 {
        OVERHEAD + self.copy.bytes() as u64
    }
}

/// The shadow of one session.
pub(crate) struct Shadow {
    /// The rehearsal that it belongs to.
    pub run: Arc<Run>,
    waiting: RefCell<VecDeque<Repeated>>,
    is_served: Cell<bool>,
    is_given_up: Cell<bool>,
}

impl Shadow {
    /// The shadow of a session, if one of the rehearsals that run wants it.
    pub(crate) fn of(worker: &Worker, session: u64, user: &str) -> Option<Rc<Self>> {
        let active = worker.shared.rehearsals.active();
        let is_wanted =
            |run: &&Arc<Run>| run.plan.mode == RehearsalMode::Reads && run.plan.is_for_user(user) && run.plan.is_for_session(session);
        let run = Arc::clone(active.iter().find(is_wanted)?);
        run.sessions.fetch_add(1, Ordering::Relaxed);
        let is_refused = run.findings().refused.contains_key(user);
        let shadow = Self { run, waiting: RefCell::default(), is_served: Cell::default(), is_given_up: Cell::default() };
        if is_refused {
            shadow.give_up(GaveUp::Login);
        }
        Some(Rc::new(shadow))
    }

    /// Whether the session is repeated still.
    pub(crate) fn is_active(&self, now_ms: u64) -> bool {
        !self.is_given_up.get() && self.run.ended_ms(now_ms).is_none()
    }

    /// Takes a read; the session goes on.
    pub(crate) fn admit(self: &Rc<Self>, worker: &Rc<Worker>, repeated: Repeated) {
        if self.is_given_up.get() {
            return;
        }
        if worker.shared.memory.step() >= Step::LargeCommands {
            return self.give_up(GaveUp::Memory);
        }
        if !self.run.take_room(repeated.bytes()) {
            return self.give_up(GaveUp::QueueFull);
        }
        self.run.statements.fetch_add(1, Ordering::Relaxed);
        self.waiting.borrow_mut().push_back(repeated);
        if !self.is_served.replace(true) {
            let (worker, shadow) = (Rc::clone(worker), Rc::clone(self));
            let (run, clock) = (Arc::clone(&self.run), worker.shared.clock);
            tokio::task::spawn_local(count_busy(run, clock, async move { shadow.serve(&worker).await }));
        }
    }

    /// Repeats what waits until nothing does.
    async fn serve(&self, worker: &Rc<Worker>) {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(repeated) = next else { break };
            let bytes = repeated.bytes();
            if self.run.ended_ms(worker.shared.clock.now_ms()).is_none() {
                judge::judge(self, worker, repeated).await;
            }
            self.run.give_room(bytes);
        }
        self.is_served.set(false);
    }

    /// Repeats nothing of the session any more.
    fn give_up(&self, why: GaveUp) {
        if !self.is_given_up.replace(true) {
            self.run.give_up(why);
        }
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.iter().for_each(|repeated| self.run.give_room(repeated.bytes()));
    }
}
