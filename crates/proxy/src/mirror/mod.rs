//! Mirroring: a copy of a statement runs in another hostgroup too, and its results are thrown away.
//!
//! A session's copies run one after the other, in the order of its statements ([`Strand`]); copies of different sessions
//! run side by side, as many as `mysql-mirror_max_concurrency` says for the whole process ([`crate::limits::mirror_room`]). What has to wait is
//! bounded for each worker, in number and in bytes; what does not fit is dropped and counted. INVARIANT: the client's own
//! statement never waits for a copy, and nothing that happens to a copy reaches the client.

mod discard;
mod plan;
mod run;

pub(crate) use discard::{Ear, discard as hear};
pub(crate) use plan::{MAX_TEXT, MirrorWish, is_copied, may_set_role};
pub(crate) use run::{Failure, ask, attempt, explain, ready, ready_again};

use crate::limits::mirror_room::MirrorPermit;
use crate::workers::counters::count;
use crate::workers::worker::Worker;
use model::HostgroupId;
use session_state::chosen::Chosen;
use session_state::class::LaneKey;
use session_state::state::State;
use sql::{Analysis, LexMode};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;

/// A statement's copy, with all that it needs of the session: the session goes on, or ends.
pub(crate) struct Mirrored {
    /// What follows the byte of COM_QUERY: attributes, if the client sends any, and the text.
    pub body: Vec<u8>,
    /// Where the text begins.
    pub start: usize,
    /// How it is executed, where the text was prepared.
    pub execution: Option<MirroredExecution>,
    /// What it is.
    pub analysis: Analysis,
    /// How its text is read.
    pub lex: LexMode,
    /// The state that it runs in.
    pub state: State,
    /// Where it runs, and as whom.
    pub lane: LaneKey,
    /// Collation of new connections.
    pub collation: u8,
    /// Servers of this hostgroup choose the collations that the client left to its server. On others, and without it, all are the state's.
    pub chosen_in: Option<(HostgroupId, Chosen)>,
    /// How long it may run (ms), where a rule says so.
    pub timeout_ms: Option<u32>,
    /// Whose statement it copies.
    pub client: Option<IpAddr>,
    /// The server must refuse whatever it writes, and its connection is reset or closed afterwards: a view may call functions that
    /// write or take locks.
    pub is_guarded: bool,
}

/// An execution of a prepared statement.
pub(crate) struct MirroredExecution {
    /// COM_STMT_EXECUTE with the parameters' types: whatever statement id and cursor it asks for.
    pub payload: Vec<u8>,
    /// Parameters of the statement.
    pub params: u16,
}

impl Mirrored {
    /// The statement's text.
    pub(crate) fn text(&self) -> &[u8] {
        self.body.get(self.start..).unwrap_or_default()
    }

    /// How much room it takes, with the state that it runs in.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len() + self.execution.as_ref().map_or(0, |execution| execution.payload.len()) + self.state.bytes()
    }
}

/// The copies of one session: one runs, the others wait for it.
#[derive(Default)]
pub(crate) struct Strand {
    waiting: RefCell<VecDeque<Mirrored>>,
    is_served: Cell<bool>,
}

/// Takes a copy: it runs at once, or waits, or is dropped.
pub(crate) fn admit(worker: &Rc<Worker>, strand: &Rc<Strand>, copy: Mirrored) {
    let bytes = copy.bytes();
    if !worker.mirrors.take_room(bytes) {
        return drop_copy(worker, "the waiting statements use too much memory");
    }
    let turn = if strand.is_served.get() { None } else { worker.shared.mirrors.try_begin() };
    if let Some(turn) = turn {
        return serve(worker, strand, Some((turn, copy)));
    }
    if worker.mirrors.waiting.get() >= worker.snapshot().vars.mirror_max_queue_length {
        worker.mirrors.give_room(bytes);
        return drop_copy(worker, "mysql-mirror_max_queue_length is reached");
    }
    count(&worker.mirrors.waiting);
    strand.waiting.borrow_mut().push_back(copy);
    if !strand.is_served.get() {
        serve(worker, strand, None);
    }
}

/// Counts a copy that is not made.
pub(crate) fn drop_copy(worker: &Worker, why: &str) {
    let dropped = &worker.counters.mirrors_dropped;
    count(dropped);
    // Each time that the number has doubled: a flood must not become one in the log.
    if dropped.get().is_power_of_two() {
        tracing::warn!("worker {}: {} mirrored statements dropped so far; latest reason: {why}", worker.index, dropped.get());
    }
}

/// Runs a strand's copies until none waits.
fn serve(worker: &Rc<Worker>, strand: &Rc<Strand>, first: Option<(MirrorPermit, Mirrored)>) {
    strand.is_served.set(true);
    let (worker, strand) = (Rc::clone(worker), Rc::clone(strand));
    tokio::task::spawn_local(async move {
        if let Some((turn, copy)) = first {
            run_one(&worker, copy, turn).await;
        }
        while !strand.waiting.borrow().is_empty() {
            // A turn is for one copy: strands take turns when there are more of them than turns.
            let turn = worker.shared.mirrors.begin().await;
            let Some(copy) = strand.waiting.borrow_mut().pop_front() else { break };
            worker.mirrors.waiting.set(worker.mirrors.waiting.get().saturating_sub(1));
            run_one(&worker, copy, turn).await;
        }
        strand.is_served.set(false);
    });
}

async fn run_one(worker: &Rc<Worker>, copy: Mirrored, turn: MirrorPermit) {
    let bytes = copy.bytes();
    let running = &worker.mirrors.running;
    count(running);
    run::run(worker, copy).await;
    running.set(running.get().saturating_sub(1));
    worker.mirrors.give_room(bytes);
    drop(turn);
}
