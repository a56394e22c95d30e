//! A session: one client's life, from its socket to its end, on one worker.
//!
//! [`serve`](Session::serve) reads as the list of phases: wait for a command, do it, settle. Each phase has a file of
//! its name. A session holds a backend only while a command runs or a pin says so. INVARIANT: between commands an
//! unpinned session owns no backend and no buffer.

mod acquire;
mod assigned_gtid;
mod assigned_gtid_run;
mod attachments;
mod begin;
mod cached;
mod causal;
mod causal_token;
pub mod certainty;
mod change_user;
mod charsets;
mod command;
mod command_sql;
mod commands;
mod cursors;
mod definition;
mod effects;
mod end;
mod execute;
mod facts;
mod failed;
mod fault;
mod fetch;
pub mod flavors;
mod frontend;
mod group_barrier;
mod guard;
mod hand_over;
mod infile;
mod insert_id;
pub mod kill;
mod leave;
mod local;
mod login;
mod long_data;
mod lost_write;
mod measure;
mod mirrored;
mod overdue;
mod pace;
mod passthrough;
mod pipeline;
mod prepare;
mod prepare_settings;
mod query;
mod recovery;
mod relay;
mod replay;
mod respond;
mod retry;
mod route;
mod run;
mod setting;
mod settle;
mod statements;
mod stored;
mod sync;
mod tableless;
mod tracked;
mod transcribe;
mod transcript;
mod untracked;
mod variables;
mod views;

use crate::backend::Backend;
use crate::causal::Writes;
use crate::counters::count;
use crate::entry::{Activity, Entry};
use crate::lane::{Lane, LaneKey};
use crate::link::Link;
use crate::logs::audit::AuditEvent;
use crate::pins::Pins;
use crate::pool::HostgroupPool;
use crate::prefetch::{Extent, Warm};
use crate::server_info::Family;
use crate::state::State;
use crate::stream::{DetachedSocket, Stream};
use crate::worker::{FIRST_SESSION_ID, Worker};
use end::End;
use facts::SessionFacts;
use frontend::Frontend;
pub use hand_over::{Offered, hand_over};
pub use leave::WISHES;
use model::HostgroupId;
use model::snapshot::User;
pub use prepare::prepare_ok;
use recovery::Recovery;
pub use settle::{abandon, is_kept, reset};
use sql::LexMode;
use statements::Statements;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

/// See the module.
pub struct Session {
    worker: Rc<Worker>,
    entry: Rc<Entry>,
    client: Frontend,
    user: Arc<User>,
    backend: Option<Backend>,
    /// Looks whether the statement at hand runs, on a server that is to be left.
    watch: Option<Rc<overdue::Watch>>,
    pool: Rc<HostgroupPool>,
    lane: Rc<Lane>,
    pins: Pins,
    /// What it left in other hostgroups.
    places: Option<Box<attachments::Places>>,
    /// The hostgroup used before this one: sessions go back and forth between two.
    before: Option<Box<(Rc<HostgroupPool>, Rc<Lane>)>>,
    /// Where rules begin with the next statement: a rule's `next_query_flagIN`.
    flag_in: u32,
    /// How the statement at hand is run.
    directions: route::Directions,
    /// When the command came (process clock, us).
    began_us: u64,
    /// GTIDs that the server of the statement at hand must have: its comment says so.
    min_gtid: Option<Arc<str>>,
    /// What it wrote last, where causal reads are on, and which GTIDs it was told of.
    writes: Option<Box<Writes>>,
    /// The copies of its statements, once there was one.
    strand: Option<Rc<crate::mirror::Strand>>,
    /// Takes the reply at hand into the query cache.
    fill: Option<Box<crate::cache::Fill>>,
    /// What the session wants of a backend.
    state: State,
    /// Which servers know its collations, and what stands in for those that they do not.
    family: Family,
    stand_ins: Option<Box<flavors::StandIns>>,
    lex: LexMode,
    facts: SessionFacts,
    statements: Statements,
    recovery: Recovery,
}

/// Serves a client on this worker until it leaves.
pub fn start(worker: &Rc<Worker>, socket: DetachedSocket, peer: Option<SocketAddr>, local: Option<SocketAddr>) {
    let workers = worker.shared.mailboxes.len().max(1) as u64;
    // The id names its worker, so that KILL finds the session without a table of all.
    let number = worker.shared.sessions_begun.fetch_add(1, Ordering::Relaxed) % ((1 << 31) / workers / 2);
    let base = FIRST_SESSION_ID - FIRST_SESSION_ID % workers;
    let id = base + number * workers + worker.index as u64;
    let entry = Rc::new(Entry::new(id, worker.clock.now_ms()));
    entry.view.came(peer, local);
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
            Err(end) => {
                worker.shared.logs.audit(AuditEvent::ConnectErr, &entry, end.refusal());
                return end.log_refused(&entry, entry.view.client.get(), &worker);
            }
        };
        session.logged_in();
        let end = match session.user.fast_forward {
            true => Box::pin(session.pass_through()).await,
            false => session.serve().await,
        };
        // As rare as the login, and as long.
        Box::pin(session.finish(end)).await;
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
        entry.key.set(key);
        worker.wake(key);
        Self { worker: Rc::clone(worker), key }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let entry = self.worker.entries.borrow_mut().remove(self.key);
        self.worker.shared.note_session(entry.id, None);
        self.worker.shared.frontends.fetch_sub(1, Ordering::AcqRel);
        if let Some(user) = entry.user.borrow().as_ref() {
            self.worker.shared.user(&user.name).connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Session {
    /// Serves the client until it leaves or is told to. What a command needs while it runs is many times what a session
    /// needs while it waits: it is allocated when the client becomes busy, and freed when it has been idle for a while.
    async fn serve(&mut self) -> End {
        loop {
            if self.client.input.is_empty() {
                self.park().await;
                self.worker.wake(self.entry.key.get());
            }
            let extents = [Extent::of(self), Extent::of(&*self.entry)];
            if let Err(end) = Warm::new(self.serve_busy(), extents).await {
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
        self.client.input.release(&self.worker.buffers);
        self.entry.set_parked();
        self.state.variables = self.worker.memory.borrow_mut().intern(std::mem::take(&mut self.state.variables));
        let Self { client: Frontend { link: front, .. }, entry, .. } = self;
        poll_fn(|cx| match front.poll_readable(cx).is_ready() || entry.poll_signal(cx).is_some() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Ends the session: the client learns why, the backend is cleaned or closed.
    async fn finish(mut self, end: End) {
        if matches!(end, End::HandedOver) {
            // Its sockets are closed here, and stay open where it goes on.
            return self.note_traffic();
        }
        if let Some((code, state, text)) = end.message().filter(|_| !self.client.is_half_told) {
            let _ = self.send_error(code, state, text).await;
        }
        self.client.link.stream_mut().close_notify();
        end.log(&self.entry, self.client.peer, self.worker.snapshot().vars.log_unhealthy_connections);
        self.session_ended(&end);
        self.entry.set_activity(Activity::Idle, self.worker.clock.now_ms());
        self.abandon_places();
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
        self.lane = self.lane_in(&self.pool);
        self.before = None;
    }

    fn lane_in(&self, pool: &HostgroupPool) -> Rc<Lane> {
        let class = crate::class::Class::of(self.client.caps);
        pool.lane(&self.worker, &LaneKey { hostgroup: pool.shared.id, user: Arc::clone(&self.user), class })
    }

    /// The next statement goes to `hostgroup`, unless a pin keeps the session where it is.
    fn go_to(&mut self, hostgroup: HostgroupId) {
        if self.pool.shared.id == hostgroup || !self.pins.set().is_empty() {
            return;
        }
        // It may be held for a moment more (connection_delay_multiplex_ms).
        self.give_back();
        if let Some(before) = self.before.as_mut().filter(|b| b.0.shared.id == hostgroup) {
            std::mem::swap(&mut self.pool, &mut before.0);
            std::mem::swap(&mut self.lane, &mut before.1);
        } else {
            let pool = self.worker.pool(hostgroup);
            let lane = self.lane_in(&pool);
            let before = (std::mem::replace(&mut self.pool, pool), std::mem::replace(&mut self.lane, lane));
            self.before = Some(Box::new(before));
        }
        if self.places.is_some() {
            self.come_back();
        }
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
        assert!(size <= 824, "{size} bytes");
    }

    /// What a busy session writes to lies in here, and is cold each time that it is woken among hundreds.
    #[test]
    fn a_busy_session_is_small() {
        fn size_of_made<'a, F>(_: impl Fn(&'a mut Session) -> F) -> usize {
            std::mem::size_of::<F>()
        }
        let size = size_of_made(Session::serve_busy);
        assert!(size <= 1408, "{size} bytes");
    }
}
