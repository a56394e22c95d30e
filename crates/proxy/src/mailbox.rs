//! Messages to a worker: new clients, backends that change hands, kills. Off the hot path.

use crate::backend::DetachedBackend;
use crate::lane::LaneKey;
use crate::stream::DetachedSocket;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// What KILL does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillKind {
    /// End the statement that runs.
    Query,
    /// End the session.
    Connection,
}

/// A message to a worker.
pub enum Mail {
    /// A client to serve.
    Accept {
        /// Its socket.
        socket: DetachedSocket,
        /// Its address as the kernel sees it; None on Unix sockets.
        peer: Option<SocketAddr>,
        /// The listener's address.
        local: Option<SocketAddr>,
    },
    /// A backend for this worker's waiters, from a worker that did not need it.
    Backend(Box<DetachedBackend>),
    /// Worker `from` has waiters for this lane and no way to connect: please hand over an idle backend.
    Wanted {
        /// What it needs.
        lane: LaneKey,
        /// Who asks.
        from: usize,
    },
    /// KILL of a session of this worker.
    Kill {
        /// The session's id.
        id: u64,
        /// Statement or session.
        kind: KillKind,
    },
    /// Ask the servers what they are, before the first client comes.
    Probe,
    /// Write to the log what this worker does and knows.
    Report,
    /// The process stops: end idle sessions now, busy ones when they are idle.
    Drain,
    /// The process stops now: end every session.
    Stop,
}

/// One worker's mail. INVARIANT: bounded by what sends it (one accept thread with a connection limit, as many
/// backends as `max_connections` allow, one `Wanted` a worker, lane and tick).
#[derive(Default)]
pub struct Mailbox {
    queue: Mutex<VecDeque<Mail>>,
    notify: Notify,
}

impl Mailbox {
    /// Puts a message in and wakes the worker.
    pub fn send(&self, mail: Mail) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(mail);
        self.notify.notify_one();
    }

    /// Waits for the next message.
    pub async fn receive(&self) -> Mail {
        loop {
            if let Some(mail) = self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
                return mail;
            }
            self.notify.notified().await;
        }
    }
}
