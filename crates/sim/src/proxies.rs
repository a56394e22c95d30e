//! The proxy's processes: one, and two during an upgrade.

use crate::oracle::Oracle;
use crate::random::Random;
use crate::trace::Trace;
use model::fleet::{Fleet as _, Layout, RoleKeeper};
use model::snapshot::Snapshot;
use proxy::sim::{Network, Pipe, Simulated};
use proxy::{ForSuccessor, Offer};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often the new process gets the old one's counts, as in an upgrade.
const COUNT_AGAIN: Duration = Duration::from_millis(200);
/// When every session must have gone: each of its statements ends long before.
const GONE_WITHIN: Duration = Duration::from_secs(120);
/// How long idle connections may still follow once the last session has gone.
const IDLE_FOLLOW: Duration = Duration::from_secs(2);
/// Longest way of a session from one process to the other, and of the answer, ms.
const WAY_MS: u64 = 3;

/// See the module.
pub(crate) struct Proxies {
    /// The last one is in charge.
    living: RefCell<Vec<Rc<Simulated>>>,
    keeper: Arc<dyn RoleKeeper>,
    network: Arc<dyn Network>,
    oracle: Rc<Oracle>,
    trace: Trace,
}

impl Proxies {
    /// Starts the first one.
    ///
    /// # Errors
    /// Why it does not start.
    pub(crate) fn start(
        snapshot: Arc<Snapshot>,
        keeper: Arc<dyn RoleKeeper>,
        network: Arc<dyn Network>,
        seed: u64,
        oracle: Rc<Oracle>,
        trace: Trace,
    ) -> Result<Rc<Self>, String> {
        let first = Simulated::start(snapshot, Arc::clone(&keeper), Arc::clone(&network), seed).map_err(|e| e.to_string())?;
        Ok(Rc::new(Self { living: RefCell::new(vec![Rc::new(first)]), keeper, network, oracle, trace }))
    }

    /// A client has connected.
    pub(crate) fn accept(&self, pipe: Box<dyn Pipe>, peer: SocketAddr) {
        if let Some(proxy) = self.living.borrow().last() {
            proxy.accept(pipe, peer);
        }
    }

    /// Tells all of them which server has which role. Real ones have a monitor each; here both learn it at the same time.
    pub(crate) fn arrange(&self, layout: &Layout) {
        for proxy in self.living.borrow().iter() {
            proxy.control().arrange(layout.clone());
        }
    }

    /// Clients that are connected to any of them.
    pub(crate) fn frontends(&self) -> usize {
        self.living.borrow().iter().map(|proxy| proxy.frontends()).sum()
    }

    /// Another process takes over, as in PROXYSQL UPGRADE.
    ///
    /// # Errors
    /// Why it does not start.
    pub(crate) async fn upgrade(&self, mut random: Random) -> Result<(), String> {
        let Some(old) = self.living.borrow().last().cloned() else { return Ok(()) };
        let seed = random.below(u64::MAX);
        let new = Simulated::take_over(&old, Arc::clone(&self.keeper), Arc::clone(&self.network), seed).map_err(|e| e.to_string())?;
        let new = Rc::new(new);
        let (before, after) = (old.control(), new.control());
        let killer = Arc::clone(&before);
        after.count_elsewhere(before.holdings(), Some(Box::new(move |session, is_query| killer.kill_here(session, is_query))));
        self.living.borrow_mut().push(Rc::clone(&new));
        self.trace.note(|| format!("upgrade: {} sessions are to go", old.frontends()));
        self.oracle.count("upgrades");
        let mut queue = old.hand_over();
        let (began, mut last_session) = (Instant::now(), None);
        let mut count = tokio::time::interval(COUNT_AGAIN);
        while last_session.is_none_or(|at: Instant| at.elapsed() < IDLE_FOLLOW) {
            tokio::select! {
                biased;
                Some(next) = queue.recv() => match next {
                    ForSuccessor::Offer(offer) => self.carry(offer, &after, &mut random),
                    ForSuccessor::Kill { session, is_query } => after.kill_here(session, is_query),
                },
                _ = count.tick() => {
                    after.count_elsewhere(before.holdings(), None);
                    before.count_connections_elsewhere(&after.own_connections());
                    before.learn_changes(after.changes());
                }
            }
            if old.frontends() == 0 {
                last_session.get_or_insert_with(Instant::now);
            } else if began.elapsed() > GONE_WITHIN {
                self.oracle.violation(format!("upgrade: {} sessions stay in the old process", old.frontends()));
                break;
            }
        }
        old.stop();
        after.count_elsewhere(Default::default(), None);
        self.living.borrow_mut().retain(|proxy| !Rc::ptr_eq(proxy, &old));
        self.trace.note(|| format!("upgrade: done after {} ms", began.elapsed().as_millis()));
        Ok(())
    }

    /// Carries an offer to the other process, and its answer back. Both take a moment, and simultaneous offers may overtake each other.
    fn carry(&self, offer: Offer, after: &Arc<proxy::Control>, random: &mut Random) {
        let Offer { record, sockets, answer } = offer;
        let way = |random: &mut Random| Duration::from_millis(random.below(WAY_MS + 1));
        let (there, back) = (way(random), way(random));
        let (after, oracle, trace) = (Arc::clone(after), Rc::clone(&self.oracle), self.trace.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(there).await;
            let (decided, decision) = tokio::sync::oneshot::channel();
            let decide = move |taken: Result<(), String>| {
                let _ = decided.send(taken);
            };
            after.take_in(&record, sockets, Box::new(decide));
            let taken = decision.await.unwrap_or_else(|_| Err("it is gone".to_owned()));
            tokio::time::sleep(back).await;
            match &taken {
                Ok(()) => oracle.count("handed over"),
                Err(why) => {
                    oracle.count("refused");
                    trace.note(|| format!("upgrade: refused: {why}"));
                }
            }
            let _ = answer.send(taken);
        });
    }
}
