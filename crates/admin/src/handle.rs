//! The way to the engine from any thread: a bounded queue of statements, each with its place for an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::Config;
use model::control::{AdminEvent, DataPlane};
use model::stats::StatsSource;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot, watch};

use crate::attempts::Attempts;
use crate::numbers::Numbers;
use crate::reply::{Reply, Role, SessionInfo};
use crate::sharing::Sharing;
use crate::take_over::Frozen;

/// Statements that may wait for the engine; one more waits in front of the queue.
const QUEUE: usize = 64;

/// One statement on its way.
#[derive(Debug)]
pub struct Job {
    /// Decides which statements the engine accepts.
    pub who: Role,
    /// The session that asks, for hints, history and audit.
    pub session: SessionInfo,
    /// The statement, without its packet.
    pub sql: Vec<u8>,
    /// Takes the engine's one answer to this statement.
    pub answer: oneshot::Sender<Reply>,
}

/// Why the engine wakes.
#[derive(Debug)]
pub(crate) enum Wake {
    Statement(Job),
    /// None has, for as long as it was to wait.
    Time,
    /// Every handle is gone.
    End,
}

/// The engine's end of the queue.
#[derive(Debug)]
pub struct Jobs {
    queue: mpsc::Receiver<Job>,
    runtime: watch::Sender<Arc<Config>>,
    /// Administrators' statements that are on their way.
    pub(crate) administrators: Arc<AtomicUsize>,
}

/// Blocks until the next statement comes, and ends when every handle is gone: for a thread that is not a runtime's.
impl Iterator for Jobs {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        self.queue.blocking_recv()
    }
}

impl Jobs {
    /// The next statement, if one comes within `limit`. Blocks: for a thread that is not a runtime's; `clock` is its own.
    pub(crate) fn next_within(&mut self, clock: &Runtime, limit: Duration) -> Wake {
        match clock.block_on(async { tokio::time::timeout(limit, self.queue.recv()).await }) {
            Ok(Some(job)) => Wake::Statement(job),
            Ok(None) => Wake::End,
            Err(_) => Wake::Time,
        }
    }

    /// Tells every handle of the configuration that is now in force.
    pub fn publish(&self, runtime: Arc<Config>) {
        self.runtime.send_replace(runtime);
    }
}

/// Sends statements to the engine's thread. The engine ends when all handles are gone.
#[derive(Clone)]
pub struct EngineHandle {
    queue: mpsc::Sender<Job>,
    runtime: watch::Receiver<Arc<Config>>,
    administrators: Arc<AtomicUsize>,
    plane: Option<Arc<dyn DataPlane>>,
    numbers: Option<Arc<Numbers>>,
    attempts: Arc<Attempts>,
    frozen: Frozen,
    sharing: Option<Arc<Sharing>>,
}

/// Counts as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EngineHandle({} places in the queue)", self.queue.capacity())
    }
}

impl EngineHandle {
    /// Executes one statement. Never fails otherwise than by a [`Reply::Err`].
    pub async fn execute(&self, who: Role, session: &SessionInfo, sql: Vec<u8>) -> Reply {
        let (answer, reply) = oneshot::channel();
        let _on_its_way = (who == Role::Admin).then(|| Counted::new(&self.administrators));
        let job = Job { who, session: session.clone(), sql, answer };
        if self.queue.send(job).await.is_err() {
            return Reply::refused("the admin engine has stopped");
        }
        reply.await.unwrap_or_else(|_| Reply::refused("the admin engine has stopped"))
    }

    /// The same, whose events go to the audit log of `plane`.
    pub fn with_audit(self, plane: Arc<dyn DataPlane>) -> Self {
        Self { plane: Some(plane), ..self }
    }

    /// Adds the engine's counters.
    pub(crate) fn with_numbers(self, numbers: Arc<Numbers>) -> Self {
        Self { attempts: Arc::clone(&numbers.attempts), numbers: Some(numbers), ..self }
    }

    /// Logins that were tried.
    pub(crate) fn attempts(&self) -> &Arc<Attempts> {
        &self.attempts
    }

    /// The same, which knows whether another process takes over.
    pub(crate) fn with_frozen(self, frozen: Frozen) -> Self {
        Self { frozen, ..self }
    }

    /// Whether another process is about to take over, or has. False again if that has failed, and this one serves on.
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_set()
    }

    /// The same, with its part in a shared configuration.
    pub(crate) fn with_sharing(self, sharing: Arc<Sharing>) -> Self {
        Self { sharing: Some(sharing), ..self }
    }

    /// This proxy's part in a shared configuration.
    pub(crate) fn sharing(&self) -> Option<&Arc<Sharing>> {
        self.sharing.as_ref()
    }

    /// Whether this proxy has its configuration; true if it shares none.
    ///
    /// # Errors
    /// The event that it waits for.
    pub fn has_configuration(&self) -> Result<(), String> {
        self.sharing.as_ref().map_or(Ok(()), |sharing| sharing.is_ready())
    }

    /// The engine's counters, for metrics.
    pub(crate) fn numbers(&self) -> Option<Arc<dyn StatsSource>> {
        self.numbers.clone().map(|numbers| numbers as Arc<dyn StatsSource>)
    }

    /// Sends a session's event to the audit log, if there is one. Does not block.
    pub(crate) fn audit(&self, event: AdminEvent) {
        if let Some(plane) = &self.plane {
            plane.audit(event);
        }
    }

    /// A way to the engine that does not keep it alive.
    pub(crate) fn weak(&self) -> WeakHandle {
        WeakHandle(self.queue.downgrade())
    }

    /// The configuration in force: admin variables, jobs of the scheduler, REST routes. Changes are announced.
    pub fn runtime(&self) -> watch::Receiver<Arc<Config>> {
        self.runtime.clone()
    }
}

/// A handle that does not keep the engine alive.
#[derive(Debug)]
pub(crate) struct WeakHandle(mpsc::WeakSender<Job>);

impl WeakHandle {
    /// Executes one statement; `None` when every handle is gone. Blocks: for a thread that is not a runtime's.
    pub(crate) fn execute(&self, who: Role, session: &SessionInfo, sql: &str) -> Option<Reply> {
        let (answer, reply) = oneshot::channel();
        let job = Job { who, session: session.clone(), sql: sql.as_bytes().to_vec(), answer };
        self.0.upgrade()?.blocking_send(job).ok()?;
        reply.blocking_recv().ok()
    }

    /// The same on a runtime.
    pub(crate) async fn execute_async(&self, who: Role, session: &SessionInfo, sql: &str) -> Option<Reply> {
        let (answer, reply) = oneshot::channel();
        let job = Job { who, session: session.clone(), sql: sql.as_bytes().to_vec(), answer };
        let queue = self.0.upgrade()?;
        queue.send(job).await.ok()?;
        drop(queue);
        reply.await.ok()
    }

    /// Whether any handle still keeps the engine alive.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.upgrade().is_some()
    }
}

/// A handle and the receiving end, for the engine and for tests that replace it.
pub fn channel(runtime: Arc<Config>) -> (EngineHandle, Jobs) {
    let (queue_in, queue_out) = mpsc::channel(QUEUE);
    let (runtime_in, runtime_out) = watch::channel(runtime);
    let administrators = Arc::<AtomicUsize>::default();
    let handle = EngineHandle {
        queue: queue_in,
        runtime: runtime_out,
        administrators: administrators.clone(),
        plane: None,
        numbers: None,
        attempts: Arc::default(),
        frozen: Frozen::default(),
        sharing: None,
    };
    (handle, Jobs { queue: queue_out, runtime: runtime_in, administrators })
}
