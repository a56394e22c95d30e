//! The process that takes this one's place, as workers see it: the way on which sessions and idle connections go, one after the other.
//!
//! INVARIANT: a session is served by one of the two. The one that gives it keeps it, silent, until the other one has said that it has it;
//! when that one refuses it or is gone, it goes on where it is.

use crate::net::stream::DetachedSocket;
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};

/// Sessions that are on their way at a time. Descriptors under way are limited for each user (RLIMIT_NOFILE of the sender, unix(7)).
pub(crate) const UNDER_WAY: usize = 64;

/// What goes to the other process.
pub enum ForSuccessor {
    /// It is to take this.
    Offer(Offer),
    /// KILL of a session that it has taken.
    Kill {
        /// The session's id.
        session: u64,
        /// Of its statement only.
        is_query: bool,
    },
}

/// One thing on its way: a session, or an idle connection.
pub struct Offer {
    /// What it is, for the other process.
    pub record: Vec<u8>,
    /// Its sockets.
    pub sockets: Vec<DetachedSocket>,
    /// Whether the other process has it; else why not.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// The process that takes this one's place, as workers see it.
pub struct HandOverQueue {
    queue: mpsc::UnboundedSender<ForSuccessor>,
    turns: Semaphore,
}

impl HandOverQueue {
    /// A way to it, and where what goes there comes out. Bounded: each that offers waits for the answer, and some at a time do. KILLs are
    /// as many as clients send.
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<ForSuccessor>) {
        let (queue, out) = mpsc::unbounded_channel();
        (Arc::new(Self { queue, turns: Semaphore::new(UNDER_WAY) }), out)
    }

    /// Waits for a turn.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// Offers something. The caller has a turn.
    ///
    /// # Errors
    /// Why it stays here.
    pub async fn offer(&self, record: Vec<u8>, sockets: Vec<DetachedSocket>) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        let gone = || "the other process is gone".to_owned();
        self.queue.send(ForSuccessor::Offer(Offer { record, sockets, answer })).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Passes a KILL on: of a session that the other process has taken, or of its statement. Nothing if that process is gone.
    pub(crate) fn kill(&self, session: u64, is_query: bool) {
        let _ = self.queue.send(ForSuccessor::Kill { session, is_query });
    }
}

/// Where the answer to an offer of the other process goes.
pub(crate) type OfferReply = Box<dyn FnOnce(Result<(), String>) + Send>;
