//! All servers: replication, and the operator that promotes.
//!
//! A commit is acknowledged when one replica has it. The operator promotes only when all but one of the servers answer. It chooses the
//! server with the latest write, not the most writes: a server that was left out may have a long tail of unacknowledged writes. So the
//! servers themselves never lose an acknowledged write.

use crate::net::{Network, Node};
use crate::oracle::Oracle;
use crate::random::Random;
use crate::server::Server;
use crate::trace::Trace;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// See the module.
pub(crate) struct Fleet {
    /// The servers by number.
    pub servers: Vec<Rc<Server>>,
    pub network: Arc<Network>,
    /// The writer, as the operator has it; None while there is none.
    pub primary: Cell<Option<usize>>,
    /// Wakes waiting tasks after a change of logs, roles or running servers.
    pub moved: Rc<Notify>,
    /// How often a writer was chosen.
    term: Cell<u64>,
    /// The operator takes no action of its own.
    pub operator_is_away: Cell<bool>,
    oracle: Rc<Oracle>,
    trace: Trace,
    random: RefCell<Random>,
}

/// How often the operator looks.
const OPERATOR_LOOKS: Duration = Duration::from_millis(100);

impl Fleet {
    /// A fleet whose server 0 writes.
    pub(crate) fn new(
        servers: Vec<Rc<Server>>,
        network: Arc<Network>,
        moved: Rc<Notify>,
        oracle: Rc<Oracle>,
        trace: Trace,
        random: Random,
    ) -> Rc<Self> {
        let fleet = Rc::new(Self {
            servers,
            network,
            primary: Cell::new(None),
            moved,
            term: Cell::new(0),
            operator_is_away: Cell::new(false),
            oracle,
            trace,
            random: RefCell::new(random),
        });
        fleet.servers.iter().for_each(Server::start);
        fleet.promote(0);
        for id in 0..fleet.servers.len() {
            tokio::task::spawn_local(Rc::clone(&fleet).fetch(id));
            tokio::task::spawn_local(Rc::clone(&fleet).take_effect(id));
        }
        tokio::task::spawn_local(Rc::clone(&fleet).operate());
        fleet
    }

    /// A replica fetches its source's log.
    async fn fetch(self: Rc<Self>, id: usize) {
        let me = &self.servers[id];
        loop {
            let moved = self.moved.notified();
            let Some((source, life)) = self.can_fetch(id) else {
                moved.await;
                continue;
            };
            let upto = self.servers[source].state().relay.len();
            tokio::time::sleep(self.network.delay()).await;
            if self.can_fetch(id) != Some((source, life)) {
                continue;
            }
            let theirs = self.servers[source].state().relay.clone();
            {
                let mut state = me.state();
                let from = state.relay.len();
                state.relay.extend(theirs.get(from..upto.min(theirs.len())).unwrap_or_default().iter().cloned());
            }
            // The source learns that a replica has it: transactions that waited for it take effect.
            if self.primary.get() == Some(source) {
                let reached = me.state().relay.len();
                self.servers[source].apply(reached);
            }
            me.tell();
        }
    }

    /// The source of a replica that has more, and the replica's life.
    fn can_fetch(&self, id: usize) -> Option<(usize, u64)> {
        let (source, life, have) = {
            let state = self.servers[id].state();
            (state.source.filter(|_| state.is_up)?, state.life, state.relay.len())
        };
        let theirs = self.servers[source].state();
        let fits = theirs.is_up && theirs.relay.len() > have;
        (fits && self.network.hears(Node::Server(id), Node::Server(source))).then_some((source, life))
    }

    /// A replica applies fetched transactions, with its lag.
    async fn take_effect(self: Rc<Self>, id: usize) {
        let me = &self.servers[id];
        loop {
            let moved = self.moved.notified();
            let (due, lag) = {
                let state = me.state();
                (state.is_up && state.source.is_some() && state.applied < state.relay.len(), state.lag_ms)
            };
            if !due {
                moved.await;
                continue;
            }
            let upto = me.state().relay.len();
            tokio::time::sleep(Duration::from_millis(lag)).await;
            if me.state().source.is_some() {
                me.apply(upto);
            }
        }
    }

    fn is_reachable(&self, id: usize) -> bool {
        self.servers[id].state().is_up && self.network.hears(Node::Operator, Node::Server(id))
    }

    /// The operator: promotes when the writer is gone, brings servers back as replicas.
    async fn operate(self: Rc<Self>) {
        let patience = Duration::from_millis(self.random.borrow_mut().within(200..=3000));
        let mut missed = Duration::ZERO;
        loop {
            tokio::time::sleep(OPERATOR_LOOKS).await;
            if self.operator_is_away.get() {
                continue;
            }
            match self.primary.get() {
                Some(primary) if self.is_reachable(primary) => {
                    missed = Duration::ZERO;
                    // A writer that was restarted begins read-only.
                    if self.servers[primary].state().read_only {
                        self.promote(primary);
                    }
                    self.bring_back(primary);
                }
                _ if missed < patience => missed += OPERATOR_LOOKS,
                _ => self.fail_over(),
            }
        }
    }

    /// How current a server's log is, to compare: whose write is its last, and how many came before.
    fn reach(&self, id: usize) -> (u64, usize) {
        let state = self.servers[id].state();
        (state.relay.last().map_or(0, |last| last.term), state.relay.len())
    }

    /// Promotes the reachable server with the latest log, if so many answer that it must have every acknowledged write.
    fn fail_over(&self) {
        let reachable: Vec<usize> = (0..self.servers.len()).filter(|id| self.is_reachable(*id)).collect();
        if reachable.len() + 1 < self.servers.len() {
            return;
        }
        let old = self.primary.take();
        let others = reachable.iter().copied().filter(|id| Some(*id) != old);
        if let Some(best) = others.max_by_key(|id| (self.reach(*id), usize::MAX - id)) {
            self.promote(best);
        }
    }

    /// A planned change of writers: the old one is read-only first, and its running work has ended. If there was a promotion meanwhile, it
    /// gives up: both of its servers may lack writes acknowledged since then.
    pub(crate) async fn switch_over(&self) {
        let Some(old) = self.primary.get().filter(|p| self.is_reachable(*p)) else { return };
        let fit: Vec<usize> = (0..self.servers.len()).filter(|id| *id != old && self.is_reachable(*id)).collect();
        if fit.is_empty() || fit.len() + 1 < self.servers.len() {
            return;
        }
        let new = *self.random.borrow_mut().pick(&fit);
        self.trace.note(|| format!("switchover from db{old} to db{new} begins"));
        let term = self.term.get();
        let is_overtaken = || self.term.get() != term;
        self.operator_is_away.set(true);
        self.servers[old].state().read_only = true;
        self.servers[old].tell();
        for _ in 0..100 {
            let caught_up = self.reach(old) == self.reach(new);
            if is_overtaken() || caught_up || !self.is_reachable(old) || !self.is_reachable(new) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if is_overtaken() {
            self.trace.note(|| format!("switchover from db{old} to db{new} is overtaken"));
            return;
        }
        let same = self.reach(old) == self.reach(new);
        let choice = if same && self.is_reachable(new) { Some(new) } else { Some(old).filter(|old| self.is_reachable(*old)) };
        if let Some(choice) = choice {
            self.promote(choice);
        }
        self.operator_is_away.set(false);
    }

    /// Makes a server the writer, and the other servers that answer its replicas.
    fn promote(&self, id: usize) {
        let new = &self.servers[id];
        self.primary.set(Some(id));
        self.term.set(self.term.get() + 1);
        // Transactions that wait there for a replica have none yet, and must not be reported as safe.
        let someone_waits = {
            let state = new.state();
            state.applied < state.relay.len()
        };
        if someone_waits {
            new.end_sessions();
            self.network.reset_all(id);
        }
        new.state().source = None;
        new.state().term = self.term.get();
        new.apply_all();
        self.trace.note(|| format!("db{id} is the writer"));
        self.oracle.primary_is(Some(id));
        self.bring_back(id);
        new.state().read_only = false;
        new.tell();
    }

    /// Servers that answer follow the writer. They lose transactions that the writer lacks.
    fn bring_back(&self, primary: usize) {
        for id in (0..self.servers.len()).filter(|id| *id != primary && self.is_reachable(*id)) {
            let server = &self.servers[id];
            if server.state().source == Some(primary) {
                continue;
            }
            server.state().read_only = true;
            let diverged = {
                let (theirs, own) = (self.servers[primary].state(), server.state());
                own.relay.len() > theirs.relay.len() || own.relay.iter().zip(&theirs.relay).any(|(a, b)| a.id != b.id)
            };
            if diverged {
                self.trace.note(|| format!("db{id} is rebuilt from db{primary}"));
                server.rebuild_from(&self.servers[primary]);
            }
            server.state().source = Some(primary);
            self.trace.note(|| format!("db{id} follows db{primary}"));
            server.tell();
        }
    }

    /// Is a healthy writer visible to everybody, with a replica that lets it commit?
    pub(crate) fn is_calm(&self) -> bool {
        let Some(primary) = self.primary.get() else { return false };
        let hears = |a: Node, b: Node| self.network.hears(a, b);
        let node = Node::Server(primary);
        let healthy = {
            let state = self.servers[primary].state();
            state.is_up && !state.read_only && state.slow_ms < 50 && state.probe_slow_ms < 50
        };
        let honest = self.servers.iter().all(|s| s.state().claims_read_only.is_none());
        let replica = (0..self.servers.len()).any(|id| {
            let state = self.servers[id].state();
            state.is_up && state.source == Some(primary) && hears(Node::Server(id), node)
        });
        // A server that only pretends to be the writer would be written to.
        let alone =
            (0..self.servers.len()).all(|id| id == primary || self.servers[id].state().read_only || !self.servers[id].state().is_up);
        healthy && honest && replica && alone && hears(Node::Proxy, node) && hears(Node::Monitor, node)
    }
}
