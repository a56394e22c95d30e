//! Ending what runs on a server, and what else is said to it beside its work: always on another connection than the one it is
//! about.
//!
//! INVARIANT: the number of a connection means something on its own server only, so nothing is said about it at another address
//! than its own (a name may stand for another server by now). A KILL QUERY goes out only while its statement runs, and the
//! session sends nothing else on that connection while one is on its way.

use super::Session;
use super::guard::paused;
use crate::backend::{Backend, Collected, Core};
use crate::connect;
use crate::counters::count;
use crate::lane::Lane;
use crate::pool::HostgroupPool;
use crate::server::ServerShared;
use crate::shared::Slot;
use crate::worker::Worker;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How long a KILL may take, connection included.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// How long an idle connection may take to answer until a new one is asked: it may be half-open.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// How long the next statement on a connection waits for a KILL QUERY that is on its way to end the one before.
const LATE_KILL_WAIT: Duration = Duration::from_secs(2);

/// ER_NO_SUCH_THREAD.
const NO_SUCH_THREAD: u16 = 1094;

/// A connection, for those who say something about it on another one.
pub(super) struct Target {
    lane: Rc<Lane>,
    server: Arc<ServerShared>,
    /// The server's end; None on Unix sockets.
    peer: Option<IpAddr>,
    /// The server's number of it.
    pub thread_id: u32,
}

impl Target {
    pub fn of(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, core: &Core) -> Self {
        let lane = pool.lane(worker, &core.lane);
        Self { lane, server: Arc::clone(&core.server), peer: core.peer, thread_id: core.thread_id }
    }
}

/// The KILL QUERYs for one statement.
#[derive(Default)]
pub struct Kill {
    /// The statement is over.
    is_withdrawn: AtomicBool,
    /// Those that were sent and not answered.
    out: AtomicU32,
    changed: Notify,
}

/// One that is on its way, as far as anybody knows.
struct Out<'a>(&'a Kill);

impl Drop for Out<'_> {
    fn drop(&mut self) {
        self.0.out.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.notify_waiters();
    }
}

impl Kill {
    /// The caller sends one; None when the statement is over.
    fn begin(&self) -> Option<Out<'_>> {
        if self.is_withdrawn.load(Ordering::Acquire) {
            return None;
        }
        self.out.fetch_add(1, Ordering::AcqRel);
        Some(Out(self))
    }

    /// None is sent from here on. True when one is on its way.
    fn withdraw(&self) -> bool {
        self.is_withdrawn.store(true, Ordering::Release);
        self.out.load(Ordering::Acquire) > 0
    }

    /// None is on its way any more.
    async fn over(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.out.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// Why a server did not answer what it was asked beside its work.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// Not within this time, opening a connection included.
    Late(Duration),
    /// It refused, or could not be asked.
    Failed(String),
    /// There was no need any more to ask.
    Withdrawn,
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late(within) => write!(f, "no answer within {} s", within.as_secs()),
            Self::Failed(why) => f.write_str(why),
            Self::Withdrawn => f.write_str("the statement was over"),
        }
    }
}

impl Session {
    /// The statement is over: no KILL QUERY goes out for it any more, and one that is on its way is not to end the next one.
    pub(super) async fn withdraw_kill(&mut self) {
        let Some(kill) = self.backend.as_mut().and_then(|backend| backend.core.kill.take()) else { return };
        if kill.withdraw() {
            let _ = paused(&self.entry, tokio::time::timeout(LATE_KILL_WAIT, kill.over())).await;
        }
    }
}

/// Ends the statement that runs on `backend`, from another connection, in the background.
pub fn kill_statement(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, backend: &mut Backend) {
    count(&worker.counters.killed_queries);
    let kill = Arc::clone(backend.core.kill.get_or_insert_default());
    let (worker, pool, target) = (Rc::clone(worker), Rc::clone(pool), Target::of(worker, pool, &backend.core));
    let sql = format!("KILL QUERY {}", target.thread_id);
    tokio::task::spawn_local(async move { send_kill(&worker, &pool, &target, &sql, Some(&kill)).await });
}

/// Closes a connection whose statement still runs, and tells the server to end it: a server notices a closed socket only
/// when it writes. The connection counts until the server has been told.
pub(super) async fn end_connection(worker: Rc<Worker>, pool: Rc<HostgroupPool>, backend: Backend) {
    count(&worker.counters.killed_connections);
    let target = Target::of(&worker, &pool, &backend.core);
    let sql = format!("KILL {}", target.thread_id);
    let Backend { link, core, .. } = backend;
    drop(link);
    send_kill(&worker, &pool, &target, &sql, None).await;
    drop(core);
    pool.grow(&worker);
}

async fn send_kill(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, target: &Target, sql: &str, kill: Option<&Kill>) {
    match ask(worker, pool, target, sql, KILL_WAIT, kill).await {
        Ok(_) => {}
        Err(Unanswered::Withdrawn) => tracing::debug!("{sql} was not sent: the statement was over"),
        Err(why) => tracing::warn!("{sql} was not done: {why}"),
    }
}

/// Says something to a server beside the connections that are at work there: on an idle connection to the target's address if
/// there is one that answers soon; else on one more than `max_connections` allows, of which each server has at most one at a
/// time. A KILL of what has ended by itself is done. Answers also the number of the connection that asked.
pub(super) async fn ask_aside(
    worker: &Rc<Worker>,
    pool: &Rc<HostgroupPool>,
    target: &Target,
    sql: &str,
    within: Duration,
) -> Result<(Collected, u32), Unanswered> {
    ask(worker, pool, target, sql, within, None).await
}

async fn ask(
    worker: &Rc<Worker>,
    pool: &Rc<HostgroupPool>,
    target: &Target,
    sql: &str,
    within: Duration,
    kill: Option<&Kill>,
) -> Result<(Collected, u32), Unanswered> {
    let begin = || kill.map_or(Ok(None), |kill| kill.begin().map(Some).ok_or(Unanswered::Withdrawn));
    let asked = async {
        if let Some(mut backend) = target.lane.take_to(target.server.index, target.peer) {
            let Ok(_out) = begin() else {
                pool.release(worker, backend);
                return Err(Unanswered::Withdrawn);
            };
            if let Ok(Ok(reply)) = tokio::time::timeout(IDLE_WAIT, ask_on(worker, &mut backend, sql)).await {
                let id = backend.core.thread_id;
                pool.release(worker, backend);
                return answer(reply).map(|reply| (reply, id));
            }
            // What it may still hold is not to arrive later.
            backend.link.stream().forget_unsent();
            drop(backend);
            pool.grow(worker);
        }
        let _turn = target.server.kills.acquire().await.map_err(|e| Unanswered::Failed(e.to_string()))?;
        let opened = connect::open_at(worker, &target.server, target.peer, &target.lane.key, 0, Slot::extra()).await;
        let mut backend = opened.map_err(|e| Unanswered::Failed(format!("{e:?}")))?;
        let _out = begin()?;
        let reply = ask_on(worker, &mut backend, sql).await.map_err(|e| Unanswered::Failed(e.to_string()))?;
        answer(reply).map(|reply| (reply, backend.core.thread_id))
    };
    tokio::time::timeout(within, asked).await.unwrap_or(Err(Unanswered::Late(within)))
}

async fn ask_on(worker: &Worker, backend: &mut Backend, sql: &str) -> io::Result<Collected> {
    let reply = backend.query(sql, &worker.buffers).await?;
    backend.core.has_warnings |= reply.error.is_some() || reply.ok.warnings > 0;
    Ok(reply)
}

fn answer(reply: Collected) -> Result<Collected, Unanswered> {
    match reply.error.as_ref().filter(|e| e.code != NO_SUCH_THREAD) {
        Some(error) => Err(Unanswered::Failed(error.to_string())),
        None => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_withdrawn_is_not_sent_and_what_is_out_is_waited_for() {
        let kill = Kill::default();
        assert!(kill.begin().is_some(), "it is answered at once");
        let out = kill.begin().unwrap();
        assert!(kill.withdraw());
        assert!(kill.begin().is_none());
        assert!(tokio::time::timeout(Duration::from_millis(1), kill.over()).await.is_err());
        drop(out);
        kill.over().await;
        assert!(!kill.withdraw());
    }
}
