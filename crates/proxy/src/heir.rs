//! Another process takes this one's place, or this one has taken another's: what goes with the process as a whole, and the way on
//! which sessions and idle connections go, one after the other.
//!
//! INVARIANT: a session is served by one of the two. The one that gives it keeps it, silent, until the other one has said that it has it;
//! when that one refuses it or is gone, it goes on where it is.

use crate::clock::Clock;
use crate::shared::{LearntSecrets, Shared};
use crate::worker::{FIRST_SESSION_ID, Worker};
use ::handover::Sockets;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};

/// Sessions that are on their way at a time. Descriptors under way are limited for each user (RLIMIT_NOFILE of the sender, unix(7)).
const UNDER_WAY: usize = 64;

/// What a start takes over from another process.
pub struct Before {
    /// The listening sockets.
    pub sockets: Arc<Sockets>,
    /// The rest.
    pub process: Option<ProcessRecord>,
}

impl Default for Before {
    /// Nothing.
    fn default() -> Self {
        Self { sockets: Sockets::fresh(), process: None }
    }
}

/// What goes with the process as a whole.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRecord {
    /// Where the process clock begins, ns of the system's monotonic clock.
    clock_origin_ns: u64,
    /// No session has this id or one above it.
    next_session_id: u64,
    secrets: Vec<(Box<str>, LearntSecrets)>,
    /// Clients are not accepted.
    pub is_paused: bool,
}

impl ProcessRecord {
    /// Of the process at hand.
    pub(crate) fn of(shared: &Shared, is_paused: bool) -> Self {
        let workers = shared.mailboxes.len().max(1) as u64;
        let begun = shared.sessions_begun.load(Ordering::Acquire);
        Self {
            clock_origin_ns: shared.clock.origin_ns(),
            next_session_id: FIRST_SESSION_ID + (begun + 1) * workers,
            secrets: shared.secrets(),
            is_paused,
        }
    }

    /// Before the first worker runs.
    pub(crate) fn take_over(&self, shared: &mut Shared) {
        shared.clock = Clock::since_ns(self.clock_origin_ns);
        let workers = shared.mailboxes.len().max(1) as u64;
        let begun = self.next_session_id.saturating_sub(FIRST_SESSION_ID) / workers + 1;
        shared.sessions_begun.store(begun, Ordering::Release);
        for (name, secrets) in &self.secrets {
            shared.user(name).learn(|learnt| learnt.clone_from(secrets));
        }
    }
}

/// One thing on its way: a session, or an idle connection.
pub struct Offer {
    /// What it is, for the other process.
    pub record: Vec<u8>,
    /// Its sockets.
    pub sockets: Vec<OwnedFd>,
    /// Whether the other process has it; else why not.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// The process that takes this one's place, as workers see it.
pub struct Heir {
    /// The how manyth one it is: one that refused a session is not asked again.
    pub number: u32,
    offers: mpsc::UnboundedSender<Offer>,
    turns: Semaphore,
}

impl Heir {
    /// A way to it, and where what goes there comes out. Bounded: each that offers waits for the answer, and some at a time do.
    pub fn new(number: u32) -> (Arc<Self>, mpsc::UnboundedReceiver<Offer>) {
        let (offers, out) = mpsc::unbounded_channel();
        (Arc::new(Self { number, offers, turns: Semaphore::new(UNDER_WAY) }), out)
    }

    /// Waits for a turn.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// Offers something. The caller has a turn.
    ///
    /// # Errors
    /// Why it stays here.
    pub async fn offer(&self, record: Vec<u8>, sockets: Vec<OwnedFd>) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        let gone = || "the other process is gone".to_owned();
        self.offers.send(Offer { record, sockets, answer }).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Where the answer to an offer of the other process goes.
pub type Answer = Box<dyn FnOnce(Result<(), String>) + Send>;

/// What is offered: the kinds of records.
#[derive(Serialize, Deserialize)]
pub enum Offered {
    /// A client's session.
    Session(Box<crate::session::SessionRecord>),
    /// A connection to a server that nobody uses: the user, and what it is.
    Idle(Box<str>, Box<crate::backend::BackendRecord>),
}

impl Offered {
    /// Takes it in on a worker.
    ///
    /// # Errors
    /// Why not: its sockets are closed here, and nothing was sent over them.
    pub(crate) fn take_in(self, worker: &std::rc::Rc<Worker>, sockets: Vec<OwnedFd>) -> Result<(), String> {
        match self {
            Self::Session(record) => record.resume(worker, sockets),
            Self::Idle(user, record) => {
                let user = worker.snapshot().users.get(&user).cloned().ok_or_else(|| format!("there is no user '{user}'"))?;
                let socket = sockets.into_iter().next().ok_or("it has no socket")?;
                let pool = worker.pool(record.hostgroup());
                let (backend, _) = record.attach(worker, &user, socket)?;
                pool.rest(worker, backend);
                Ok(())
            }
        }
    }

    /// The worker that is to have it, of so many.
    pub(crate) fn place(&self, workers: usize) -> Option<usize> {
        match self {
            Self::Session(record) => Some(Worker::owner_of(record.id(), workers)),
            Self::Idle(..) => None,
        }
    }
}
