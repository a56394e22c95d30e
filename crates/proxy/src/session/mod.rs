//! A session: one client's life, from its socket to its end, on one worker.
//!
//! [`serve`](Session::serve) reads as the list of phases: wait for a command, do it, settle. Each phase has a file of
//! its name. A session holds a backend only while a command runs or a pin says so. INVARIANT: between commands an
//! unpinned session owns no backend and no buffer.

mod acquire;
mod command;
mod commands;
mod effects;
mod end;
mod execute;
mod facts;
mod guard;
mod infile;
mod local;
mod login;
mod passthrough;
mod prepare;
mod query;
mod relay;
mod respond;
mod settle;
mod statements;
mod sync;

use crate::backend::Backend;
use crate::buffer::Buffer;
use crate::counters::count;
use crate::entry::{Activity, Entry};
use crate::lane::{Lane, LaneKey};
use crate::link::Link;
use crate::pins::Pins;
use crate::pool::HostgroupPool;
use crate::reframe::TrackFilter;
use crate::state::State;
use crate::stream::{DetachedSocket, Stream};
use crate::worker::{FIRST_SESSION_ID, Worker};
use end::End;
use facts::SessionFacts;
use model::snapshot::User;
use sql::LexMode;
use statements::Statements;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use wire::flags::{Capabilities, StatusFlags};

/// See the module.
pub struct Session {
    worker: Rc<Worker>,
    entry: Rc<Entry>,
    front: Link,
    input: Buffer,
    backend: Option<Backend>,
    pool: Rc<HostgroupPool>,
    lane: Rc<Lane>,
    user: Arc<User>,
    /// Negotiated with the client.
    caps: Capabilities,
    /// Collation id of the client's handshake.
    collation: u16,
    /// What the session wants of a backend.
    state: State,
    /// Status flags as the client last saw them.
    status: StatusFlags,
    lex: LexMode,
    /// False where a setting switches multiplexing off.
    multiplexes: bool,
    pins: Pins,
    facts: SessionFacts,
    statements: Statements,
    /// For clients with CLIENT_SESSION_TRACK.
    filter: Option<Box<TrackFilter>>,
    /// The client's own `session_track_...` settings, once it changed them.
    tracking_wish: Option<Box<TrackFilter>>,
    /// Multi-frame commands, joined.
    joined: Vec<u8>,
    /// The command was taken from the input piece by piece: what is left there is not its own.
    streamed_input: bool,
    /// Sequence id that follows the command's last frame.
    command_seq: u8,
    /// Where a streamed command stands.
    streamed: execute::Streamed,
    /// Of the greeting; COM_CHANGE_USER proves against it again.
    scramble: [u8; login::SCRAMBLE],
    /// Sequence id of the next packet of a login under way.
    login_seq: u8,
    zstd_level: u8,
    peer: Option<SocketAddr>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// Serves a client on this worker until it leaves.
pub fn start(worker: &Rc<Worker>, socket: DetachedSocket, peer: Option<SocketAddr>, local: Option<SocketAddr>) {
    let workers = worker.shared.mailboxes.len().max(1) as u64;
    // The id names its worker, so that KILL finds the session without a table of all.
    let number = NEXT_ID.fetch_add(1, Ordering::Relaxed) % ((1 << 31) / workers / 2);
    let base = FIRST_SESSION_ID - FIRST_SESSION_ID % workers;
    let id = base + number * workers + worker.index as u64;
    let entry = Rc::new(Entry::new(id, worker.clock.now_ms()));
    let socket = match socket.attach() {
        Ok(socket) => socket,
        Err(e) => {
            tracing::warn!("a client's socket could not be registered: {e}");
            worker.shared.frontends.fetch_sub(1, Ordering::AcqRel);
            return;
        }
    };
    count(&worker.counters.clients);
    let slot = Registration::new(worker, &entry);
    let link = Link::new(Stream::new(socket));
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        let _slot = slot;
        // The login is long and rare: boxed, so that idle sessions do not carry its size.
        let login = Box::pin(login::log_in(Rc::clone(&worker), Rc::clone(&entry), link, peer, local));
        let mut session = match login.await {
            Ok(session) => session,
            Err(end) => return end.log(&entry, peer),
        };
        let end = match session.user.fast_forward {
            true => Box::pin(session.pass_through()).await,
            false => session.serve().await,
        };
        session.finish(end).await;
    });
}

/// The session's entry in its worker's table and in the process's count; leaves both when dropped.
struct Registration {
    worker: Rc<Worker>,
    key: usize,
}

impl Registration {
    fn new(worker: &Rc<Worker>, entry: &Rc<Entry>) -> Self {
        let key = worker.entries.borrow_mut().insert(Rc::clone(entry));
        Self { worker: Rc::clone(worker), key }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let entry = self.worker.entries.borrow_mut().remove(self.key);
        self.worker.shared.note_session(entry.id, None);
        self.worker.shared.frontends.fetch_sub(1, Ordering::AcqRel);
        if let Some(user) = entry.user.borrow().as_ref().and_then(|u| self.worker.shared.users.get(u.name.as_bytes())) {
            user.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Session {
    /// Serves the client until it leaves or is told to. What a command needs while it runs is many times what a session
    /// needs while it waits: it is allocated when the client becomes busy, and freed when it has been idle for a while.
    async fn serve(&mut self) -> End {
        loop {
            if self.input.is_empty() {
                self.park().await;
            }
            if let Err(end) = Box::pin(self.serve_busy()).await {
                return end;
            }
        }
    }

    /// Serves commands until the client has been idle for a while.
    async fn serve_busy(&mut self) -> Result<(), End> {
        while let Some(command) = self.next_command().await? {
            self.run(command).await?;
        }
        Ok(())
    }

    /// Waits until there is anything to do.
    async fn park(&mut self) {
        self.input.release(&self.worker.buffers);
        self.entry.set_parked();
        let Self { front, entry, .. } = self;
        poll_fn(|cx| match front.poll_readable(cx).is_ready() || entry.poll_signal(cx).is_some() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Ends the session: the client learns why, the backend is cleaned or closed.
    async fn finish(mut self, end: End) {
        if let Some((code, state, text)) = end.message() {
            let _ = self.send_error(code, state, text).await;
        }
        self.front.stream_mut().close_notify();
        end.log(&self.entry, self.peer);
        self.entry.set_activity(Activity::Idle, self.worker.clock.now_ms());
        if let Some(backend) = self.backend.take() {
            // The client's socket closes now; the backend may take a moment.
            let (worker, pool, pins) = (Rc::clone(&self.worker), Rc::clone(&self.pool), self.pins.set());
            let running = end.leaves_statement_running();
            drop(self);
            settle::abandon(worker, pool, backend, pins, running).await;
        }
    }

    /// The lane this session's backends come from; changes with the user and with COM_SET_OPTION.
    fn choose_lane(&mut self) {
        let class = crate::class::Class::of(self.caps);
        let key = LaneKey { hostgroup: self.user.default_hostgroup, user: Arc::clone(&self.user), class };
        self.lane = self.pool.lane(&key);
    }

    fn now_ms(&self) -> u64 {
        self.worker.clock.now_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle session is its task: this bounds most of what an idle client costs.
    #[test]
    fn a_session_is_small() {
        let size = std::mem::size_of::<Session>();
        assert!(size <= 800, "{size} bytes");
    }
}
