//! A model MySQL server: a store, a log that replicas follow, sessions that speak the real protocol.
//!
//! A transaction is in the log first (`relay`), and takes effect (`applied`) when a replica has it: semi-synchronous, without loss. A
//! server that crashes keeps its log and loses its sessions. INVARIANT: `rows` is the result of the first `applied` transactions of the
//! log.

mod login;
mod prepared;
mod reply;
mod session;
mod sql;
mod state;

pub(crate) use login::{PASSWORD, Packets};
pub(crate) use state::{Flavor, SCHEMAS};

use crate::net::Network;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::trace::Trace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// Its own number, in the whole world.
    pub id: u64,
    /// Which of the operator's promotions its writer had.
    pub term: u64,
    /// Which rows it wrote: their ops, in order.
    pub ops: Vec<i64>,
}

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process dies: its connections are reset.
    Process,
    /// The machine dies: its connections fall silent.
    Machine,
}

/// A session's handle for other tasks.
pub(crate) struct Handle {
    /// KILL QUERY came.
    killed: Cell<bool>,
    interrupted: Notify,
    task: RefCell<Option<AbortHandle>>,
    /// A transaction is open.
    in_transaction: Cell<bool>,
    /// A command runs.
    is_busy: Cell<bool>,
}

/// The part of a server that changes.
pub(crate) struct State {
    /// The process runs.
    pub is_up: bool,
    /// When it was started last.
    pub started: Instant,
    /// Writes are refused.
    pub read_only: bool,
    /// The value of `read_only` for probes, if it differs from the real one.
    pub claims_read_only: Option<bool>,
    /// Longest that a statement takes, ms.
    pub slow_ms: u64,
    /// Longest that a probe's answer takes, ms.
    pub probe_slow_ms: u64,
    /// How long a replica takes to apply a transaction, ms.
    pub lag_ms: u64,
    /// Which of the operator's promotions made it the writer; 0 before any.
    pub term: u64,
    /// Commits wait until a replica has them.
    pub waits_for_replica: bool,
    /// The server that it replicates from.
    pub source: Option<usize>,
    /// Its log.
    pub relay: Vec<Transaction>,
    /// How much of the log has taken effect.
    pub applied: usize,
    /// How often each op was written.
    pub rows: BTreeMap<i64, u32>,
    /// GET_LOCK: name and connection.
    locks: BTreeMap<String, u32>,
    sessions: BTreeMap<u32, Rc<Handle>>,
    next_connection: u32,
    random: Random,
    /// Grows with each start.
    pub life: u64,
}

/// See the module.
pub(crate) struct Server {
    pub id: usize,
    /// Which product it plays.
    pub flavor: Flavor,
    network: Arc<Network>,
    oracle: Rc<Oracle>,
    trace: Trace,
    state: RefCell<State>,
    /// Wakes waiting tasks after a change of logs, roles or running servers.
    moved: Rc<Notify>,
}

impl Server {
    /// A server that does not run yet.
    pub(crate) fn new(
        id: usize,
        flavor: Flavor,
        network: Arc<Network>,
        oracle: Rc<Oracle>,
        trace: Trace,
        moved: Rc<Notify>,
        random: Random,
    ) -> Rc<Self> {
        let state = State {
            is_up: false,
            started: Instant::now(),
            read_only: true,
            claims_read_only: None,
            slow_ms: 3,
            probe_slow_ms: 2,
            lag_ms: 5,
            term: 0,
            waits_for_replica: true,
            source: None,
            relay: Vec::new(),
            applied: 0,
            rows: BTreeMap::new(),
            locks: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_connection: 10,
            random,
            life: 0,
        };
        Rc::new(Self { id, flavor, network, oracle, trace, state: RefCell::new(state), moved })
    }

    /// The changing part, to read or to change. After a change, call [`Server::tell`].
    pub(crate) fn state(&self) -> std::cell::RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Something changed.
    pub(crate) fn tell(&self) {
        self.moved.notify_waiters();
    }

    /// Starts the process. It begins read-only, as a careful operator configures it. Everything in its log has happened.
    pub(crate) fn start(self: &Rc<Self>) {
        {
            let mut state = self.state();
            if state.is_up {
                return;
            }
            state.is_up = true;
            state.started = Instant::now();
            state.read_only = true;
            state.life += 1;
        }
        self.apply_all();
        self.network.reset_all(self.id);
        let mut accepted = self.network.listen(self.id);
        let server = Rc::clone(self);
        let life = self.state().life;
        tokio::task::spawn_local(async move {
            while let Some(end) = accepted.recv().await {
                if server.state().life == life {
                    server.serve(end);
                }
            }
        });
        self.trace.note(|| format!("db{} starts", self.id));
        self.tell();
    }

    fn serve(self: &Rc<Self>, end: crate::net::End) {
        let handle = Rc::new(Handle {
            killed: Cell::new(false),
            interrupted: Notify::new(),
            task: RefCell::new(None),
            in_transaction: Cell::new(false),
            is_busy: Cell::new(false),
        });
        let id = {
            let mut state = self.state();
            state.next_connection += 1;
            let id = state.next_connection;
            state.sessions.insert(id, Rc::clone(&handle));
            id
        };
        let (server, own) = (Rc::clone(self), Rc::clone(&handle));
        let task = tokio::task::spawn_local(async move {
            session::run(&server, end, id, own).await;
            server.forget(id);
        });
        *handle.task.borrow_mut() = Some(task.abort_handle());
    }

    /// A session is over.
    fn forget(&self, id: u32) {
        let mut state = self.state();
        state.sessions.remove(&id);
        state.locks.retain(|_, owner| *owner != id);
    }

    /// The server is gone, and with it all uncommitted work.
    pub(crate) fn crash(&self, how: Crash) {
        self.trace.note(|| format!("db{} crashes: {how:?}", self.id));
        match how {
            Crash::Process => self.network.refuse(self.id),
            Crash::Machine => self.network.silence(self.id),
        }
        self.end_sessions();
        self.state().is_up = false;
        self.tell();
    }

    /// Ends every session at once.
    pub(crate) fn end_sessions(&self) {
        let sessions = std::mem::take(&mut self.state().sessions);
        self.state().locks.clear();
        for handle in sessions.into_values() {
            if let Some(task) = handle.task.borrow_mut().take() {
                task.abort();
            }
        }
    }

    /// Whether a session runs a command; None when there is no such session.
    fn is_busy(&self, id: u32) -> Option<bool> {
        self.state().sessions.get(&id).map(|handle| handle.is_busy.get())
    }

    /// KILL; false when there is no such session.
    fn kill(&self, id: u32, is_query: bool) -> bool {
        let Some(handle) = self.state().sessions.get(&id).cloned() else { return false };
        if is_query {
            handle.killed.set(true);
            handle.interrupted.notify_waiters();
        } else {
            if let Some(task) = handle.task.borrow_mut().take() {
                task.abort();
            }
            self.forget(id);
        }
        true
    }

    /// Sessions with an open transaction.
    pub(crate) fn open_transactions(&self) -> usize {
        self.state().sessions.values().filter(|s| s.in_transaction.get()).count()
    }

    /// How long something takes.
    fn some_time(&self) -> Duration {
        let mut state = self.state();
        let slow = state.slow_ms;
        Duration::from_millis(state.random.below(slow + 1))
    }

    /// Lets the log take effect up to (not with) this transaction.
    pub(crate) fn apply(&self, upto: usize) {
        let mut state = self.state();
        let upto = upto.min(state.relay.len());
        while state.applied < upto {
            let ops = state.relay.get(state.applied).map(|t| t.ops.clone()).unwrap_or_default();
            for op in ops {
                *state.rows.entry(op).or_default() += 1;
            }
            state.applied += 1;
        }
        drop(state);
        self.tell();
    }

    /// Lets all of the log take effect.
    pub(crate) fn apply_all(&self) {
        self.apply(usize::MAX);
    }

    /// Becomes a faithful copy of another server's log: transactions beyond it are lost.
    pub(crate) fn rebuild_from(&self, other: &Self) {
        self.end_sessions();
        self.network.reset_all(self.id);
        let theirs = other.state().relay.clone();
        let mut state = self.state();
        let common = state.relay.iter().zip(&theirs).take_while(|(a, b)| a.id == b.id).count();
        state.relay.truncate(common);
        let applied = state.applied.min(common);
        state.applied = 0;
        state.rows.clear();
        drop(state);
        self.apply(applied);
    }
}
