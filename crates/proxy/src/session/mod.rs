//! A session: one client's life, from its socket to its end, on one worker.
//!
//! [`serve_busy`](Session::serve_busy) waits for a command (`command.rs`) and serves it (`commands.rs`); `pipeline.rs` lists the
//! steps of a statement. A session holds a backend only while a command runs or a pin says so. INVARIANT: between commands an
//! unpinned session owns no backend and no buffer.

mod acquire;
mod assigned_gtid;
mod backends;
mod begin;
mod beside;
mod cached;
mod captured;
mod causal;
mod change_user;
mod command;
mod command_sql;
mod commands;
mod connection;
mod copied;
mod copy_rules;
mod cursors;
mod door;
mod dump;
mod effects;
mod end;
mod execute;
mod failed;
mod fault;
mod fetch;
mod frontend;
mod guard;
mod hand;
mod hand_over;
mod infile;
mod kill;
mod leave;
mod listening;
mod local;
mod login;
mod long_data;
mod loss;
mod measure;
mod mirrored;
mod overdue;
mod pace;
mod passthrough;
mod pipeline;
mod plan;
mod prepare;
mod prepare_settings;
mod prepared;
mod query;
mod recovery;
mod rehearsed;
mod relay;
mod replay;
mod respond;
mod retry;
mod ride;
mod route;
mod run;
mod setting;
mod settle;
mod statements;
mod stored;
mod substituted;
mod sync;
mod take_up;
mod tracked;
mod trail;
mod untracked;
mod user_variables;
mod views;

use crate::backends::cleaning;
use crate::clients::session_handle::{Activity, SessionHandle};
use crate::logs::audit::AuditEvent;
use crate::net::link::Link;
use crate::net::stream::{DetachedSocket, Stream};
use crate::workers::counters::count;
use crate::workers::prefetch::{Extent, Warm};
use crate::workers::worker::{FIRST_SESSION_ID, Worker};
use backends::Backends;
use beside::Beside;
use causal::Causality;
use end::End;
use frontend::Frontend;
use hand::AtHand;
pub(crate) use hand_over::{Offered, hand_over};
use model::snapshot::User;
use recovery::Recovery;
use session_state::facts::SessionFacts;
use session_state::wants::Wants;
use statements::Statements;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

/// See the module.
pub(crate) struct Session {
    worker: Rc<Worker>,
    handle: Rc<SessionHandle>,
    client: Frontend,
    /// Its user, the backend that it holds, what keeps it, and what it left elsewhere.
    at: Backends,
    /// What it wants of a backend.
    wants: Wants,
    /// The statement at hand.
    hand: AtHand,
    causal: Causality,
    /// What runs beside it, once something did.
    beside: Option<Box<Beside>>,
    facts: SessionFacts,
    statements: Statements,
    recovery: Recovery,
}

/// Serves a client on this worker until it leaves.
pub(crate) fn start(worker: &Rc<Worker>, socket: DetachedSocket, peer: Option<SocketAddr>, local: Option<SocketAddr>) {
    let workers = worker.shared.mailboxes.len().max(1) as u64;
    // The id names its worker, so that KILL finds the session without a table of all.
    let number = worker.shared.sessions_begun.fetch_add(1, Ordering::Relaxed) % ((1 << 31) / workers / 2);
    let base = FIRST_SESSION_ID - FIRST_SESSION_ID % workers;
    let id = base + number * workers + worker.index as u64;
    let handle = Rc::new(SessionHandle::new(id, worker.clock.now_ms()));
    handle.row.came(peer, local);
    let socket = match socket.attach() {
        Ok(socket) => socket,
        Err(e) => {
            tracing::warn!("cannot register a new client's socket: {e}");
            worker.shared.frontends.fetch_sub(1, Ordering::AcqRel);
            return;
        }
    };
    count(&worker.counters.clients);
    let slot = Registration::new(worker, &handle);
    let link = Link::new(Stream::new(socket));
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        let _slot = slot;
        // The login is long and rare: boxed, so that idle sessions do not carry its size.
        let login = Box::pin(login::log_in(Rc::clone(&worker), Rc::clone(&handle), link, peer, local));
        let mut session = match login.await {
            Ok(session) => session,
            Err(end) => {
                worker.shared.logs.audit(AuditEvent::ConnectErr, &handle, end.refusal());
                return end.log_refused(&handle, handle.row.client.get(), &worker);
            }
        };
        session.client.note_login(&session.at, &session.wants);
        let end = if session.at.user.fast_forward { Box::pin(session.pass_through()).await } else { session.serve().await };
        // As rare as the login, and as long.
        Box::pin(session.end_session(end)).await;
    });
}

/// The session's handle in its worker's table and in the process's count; leaves both when dropped.
struct Registration {
    worker: Rc<Worker>,
    key: usize,
}

impl Registration {
    fn new(worker: &Rc<Worker>, handle: &Rc<SessionHandle>) -> Self {
        Self { worker: Rc::clone(worker), key: worker.register(handle) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let handle = self.worker.unregister(self.key);
        self.worker.shared.note_session(handle.id, None);
        self.worker.shared.frontends.fetch_sub(1, Ordering::AcqRel);
        if let Some(user) = handle.user.borrow().as_ref() {
            self.worker.shared.user(&user.name).disconnected();
        }
    }
}

impl Session {
    /// A session that has just begun, in its user's own hostgroup.
    fn new(worker: Rc<Worker>, handle: Rc<SessionHandle>, client: Frontend, user: Arc<User>) -> Self {
        let home = user.default_hostgroup;
        Self {
            at: Backends::new(&worker, &handle, user, home, client.caps),
            worker,
            handle,
            client,
            wants: Wants::default(),
            hand: AtHand::default(),
            causal: Causality::default(),
            beside: None,
            facts: SessionFacts::default(),
            statements: Statements::default(),
            recovery: Recovery::default(),
        }
    }

    /// Serves the client until it leaves or is told to. What a command needs while it runs is many times what a session
    /// needs while it waits: it is allocated when the client becomes busy, and freed when it has been idle for a while.
    async fn serve(&mut self) -> End {
        loop {
            if self.client.input.is_empty() {
                self.park().await;
                self.worker.wake(self.handle.key.get());
            }
            let extents = [Extent::of(self), Extent::of(&*self.handle)];
            if let Err(end) = Warm::new(self.serve_busy(), extents).await {
                return end;
            }
        }
    }

    /// Serves commands until the client has been idle for a while.
    async fn serve_busy(&mut self) -> Result<(), End> {
        while let Some(command) = self.next_command().await? {
            self.serve_command(command).await?;
        }
        Ok(())
    }

    /// Waits until there is anything to do. A session does not rest like that while another process takes over: it goes there first.
    async fn park(&mut self) {
        if self.worker.shared.has_successor() {
            return;
        }
        self.client.input.release(&self.worker.buffers);
        self.hand.trail = None;
        self.handle.set_parked();
        self.wants.state.variables = self.worker.memory.borrow_mut().intern(std::mem::take(&mut self.wants.state.variables));
        let Self { client: Frontend { link: front, .. }, handle, .. } = self;
        poll_fn(|cx| if front.poll_readable(cx).is_ready() || handle.poll_signal(cx).is_some() { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }

    /// Ends the session: the client learns why, the backend is cleaned or closed.
    async fn end_session(mut self, end: End) {
        if matches!(end, End::HandedOver) {
            // Its sockets are closed here, and stay open where it goes on.
            return self.at.note_traffic();
        }
        if let Some((code, state, text)) = end.message().filter(|_| self.client.may_be_told()) {
            if self.handle.is_idle() && self.client.input.is_empty() {
                // The client reads it as the answer to what it says next.
                self.client.link.begin_answer();
            }
            let _ = self.client.send_error(&mut self.at, code, state, text).await;
        }
        self.client.link.stream_mut().close_notify();
        end.log(&self.handle, self.client.peer, self.worker.snapshot().vars.log_unhealthy_connections);
        self.capture_ends();
        self.session_ended(&end);
        self.handle.set_activity(Activity::Idle, self.worker.clock.now_ms());
        if let Some(places) = self.at.places.take() {
            places.abandon(&self.at.worker);
        }
        if let Some(backend) = self.at.backend.take() {
            // The client's socket closes now; the backend may take a moment.
            let (worker, pool, pins) = (Rc::clone(&self.worker), Rc::clone(&self.at.pool), self.at.pins.set());
            drop(self);
            if matches!(end, End::Killed) {
                return cleaning::abandon_killed(worker, pool, backend, pins).await;
            }
            cleaning::abandon(worker, pool, backend, pins, end.leaves_statement_running()).await;
        }
    }
}

#[cfg(test)]
mod bed;

/// What servers answer, for tests of other modules.
#[cfg(test)]
pub(crate) mod answers {
    pub(crate) use super::bed::{error, numbered, packet_of, result_of};
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle session is its task: this bounds most of what an idle client costs.
    #[test]
    fn a_session_is_small() {
        let size = std::mem::size_of::<Session>();
        assert!(size <= 856, "{size} bytes");
    }

    /// What a busy session writes to lies in here, and is cold each time that it is woken among hundreds.
    #[test]
    fn a_busy_session_is_small() {
        fn size_of_made<'a, F>(_: impl Fn(&'a mut Session) -> F) -> usize {
            std::mem::size_of::<F>()
        }
        let size = size_of_made(Session::serve_busy);
        assert!(size <= 1432, "{size} bytes");
    }
}
