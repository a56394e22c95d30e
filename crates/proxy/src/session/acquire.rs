//! Getting a backend for a statement: the one the session is pinned to, an idle one, or a place in the queue.

use super::Session;
use super::certainty::Refusal;
use super::end::End;
use super::leave::Kept;
use crate::backend::Backend;
use crate::counters::count;
use crate::entry::{Activity, Entry, Signal};
use crate::pins::PinSet;
use crate::pool::{Acquire, AcquireError};
use crate::safety::Safety;
use crate::stats::view::Held;
use std::future::poll_fn;
use std::task::{Context, Poll};

/// Why a statement did not run; the session may go on.
#[derive(Debug)]
pub enum Fault {
    /// The session ends.
    End(End),
    /// The client gets this error.
    Error {
        /// MySQL error number.
        code: u16,
        /// SQLSTATE.
        sqlstate: [u8; 5],
        /// Text.
        text: Vec<u8>,
    },
    /// The connection to the server failed while (or before) the statement ran.
    Lost {
        /// What is known of the statement's effect.
        certainty: Certainty,
        /// For the client and the log.
        text: String,
        /// What pinned the session to it. Unless the session moves ([`Session::reopen`]), it ends.
        pins: PinSet,
    },
    /// The server refused the statement, certainly without applying it, and nothing was sent to the client. Only where
    /// another server may take it.
    Refused {
        /// How.
        refusal: Refusal,
        /// MySQL error number.
        code: u16,
        /// SQLSTATE.
        sqlstate: [u8; 5],
        /// Text.
        text: Vec<u8>,
    },
}

/// What is known of a statement whose connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It never reached the server.
    NeverSent,
    /// It was sent, and nothing of the answer was seen.
    Unknown,
    /// Part of the answer is with the client already.
    Answering,
}

impl From<End> for Fault {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

impl Fault {
    /// An error of our own making.
    pub fn error(code: u16, sqlstate: &[u8; 5], text: impl Into<Vec<u8>>) -> Self {
        Self::Error { code, sqlstate: *sqlstate, text: text.into() }
    }

    /// A server's error, passed on.
    pub fn server(e: crate::backend::ServerError) -> Self {
        Self::Error { code: e.code, sqlstate: e.sqlstate, text: e.message }
    }
}

impl Session {
    /// Makes sure that the session holds a backend.
    pub(super) async fn obtain(&mut self) -> Result<(), Fault> {
        match self.keeps_backend()? {
            Kept::AtHand => Ok(()),
            Kept::None => self.obtain_fresh().await,
            // Rare, and long.
            Kept::Moves => Box::pin(self.reopen()).await,
        }
    }

    /// Gets a backend for a session that has none.
    async fn obtain_fresh(&mut self) -> Result<(), Fault> {
        count(&self.worker.counters.wants);
        let backend = match self.pool.try_acquire(&self.worker, &self.lane, &self.state, self.directions.needs) {
            Some(backend) => backend,
            None => self.wait_for_backend().await?,
        };
        self.entry.view.held.set(Some(Held::of(&backend)));
        self.came_to_a_server();
        self.backend = Some(backend);
        Ok(())
    }

    /// The backend is gone, and with it what pinned the session to it.
    pub(super) fn pinned_backend_lost(&mut self, why: &str) -> Fault {
        self.tell_of_loss();
        self.backend = None;
        Fault::Lost { certainty: Certainty::NeverSent, text: why.to_owned(), pins: self.pins.set() }
    }

    /// Waits in the queue.
    async fn wait_for_backend(&mut self) -> Result<Backend, Fault> {
        let worker = &self.worker;
        let limit_ms = self.lane.settings().connect_timeout_server_max;
        let deadline_us = match (self.again_until_us, limit_ms) {
            _ if Safety::Hold.is_off() => worker.shared.clock.now_us() + 100_000,
            (Some(until), _) => until,
            (None, 0) => u64::MAX,
            (None, ms) => worker.shared.clock.now_us() + ms * 1000,
        };
        let collation = u8::try_from(self.collation).unwrap_or(0);
        let since_us = self.entry.transaction_since_us();
        let acquire = self.pool.enqueue(worker, &self.lane, self.directions.needs, collation, since_us, deadline_us);
        self.entry.set_activity(Activity::Waiting, worker.clock.now_ms());
        let result = self.wait(acquire).await;
        self.entry.set_activity(Activity::Running, self.now_ms());
        match result? {
            Ok(backend) => Ok(backend),
            Err(AcquireError::Refused(e)) => Err(Fault::server(e)),
            Err(AcquireError::Impossible(text)) => {
                let text = format!("Tidegate: login to the server is not possible: {text}");
                Err(Fault::error(1045, b"28000", text))
            }
            Err(AcquireError::Timeout { hostgroup, waited_ms, reason }) => {
                let text = format!("Max connect timeout reached while reaching hostgroup {hostgroup} after {waited_ms}ms: {reason}");
                Err(Fault::error(9001, b"HY000", text))
            }
        }
    }

    /// Waits for the queue; notices a client that leaves and a kill.
    async fn wait(&mut self, mut acquire: Acquire) -> Result<Result<Backend, AcquireError>, Fault> {
        let Self { front, input, worker, entry, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(result) = acquire.poll(cx) {
                return Poll::Ready(Ok(result));
            }
            if let Some(fault) = interruption(entry, cx) {
                return Poll::Ready(Err(fault));
            }
            if !input.is_full() && front.poll_readable(cx).is_ready() {
                match front.poll_read(cx, input, &worker.buffers) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(End::ClientGone.into())),
                    Poll::Ready(Ok(_)) => cx.waker().wake_by_ref(),
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(End::ClientError(e).into())),
                    Poll::Pending => {}
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The session ends with its backend.
pub fn end_of_pinned(why: &str, pins: PinSet) -> End {
    End::BackendLost(format!("Lost connection to server during query: {why} (the session was pinned: {pins:?})"))
}

/// A signal that ends the wait for a backend.
pub(super) fn interruption(entry: &Entry, cx: &Context<'_>) -> Option<Fault> {
    match entry.poll_signal(cx)? {
        Signal::KillQuery | Signal::QueryTimeout | Signal::GiveUp => {
            entry.clear_signal();
            Some(Fault::error(1317, b"70100", "Query execution was interrupted"))
        }
        Signal::KillConnection => Some(End::Killed.into()),
        Signal::TransactionTimeout => Some(End::TransactionTimeout.into()),
        Signal::Stop => Some(End::Shutdown.into()),
        Signal::Cut | Signal::Demoted | Signal::Drain | Signal::IdleTimeout | Signal::Park | Signal::GiveBack => {
            entry.clear_signal();
            None
        }
    }
}
