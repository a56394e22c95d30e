//! A session on its way to another process: what is written down of it, and how it goes on from there.
//!
//! A session goes when its client is silent, with what it keeps on servers. What belongs to the statement at hand has no place in the
//! record. INVARIANT: every field of a session is named here, so that a new one does not compile until somebody has decided whether it
//! goes, is made anew, or keeps the session where it is.

use super::backends::{Backends, PlaceRecord, Places};
use super::causal::Causality;
use super::connection::Connection;
use super::end::End;
use super::frontend::Frontend;
use super::hand::AtHand;
use super::passthrough::Passage;
use super::recovery::Recovery;
use super::replay::transcript::{Gap, Progress, Transcript};
use super::statements::StatementsRecord;
use super::take_up::{take_up, take_up_any};
use super::{Registration, Session, login::SCRAMBLE};
use crate::backends::backend::{self, Backend, BackendRecord, Numbers};
use crate::clients::replica::Replica;
use crate::clients::session_handle::{Activity, Limits, SessionHandle, Signal};
use crate::clients::users::LearntSecrets;
use crate::net::buffer::Buffer;
use crate::net::link::LinkRecord;
use crate::net::stream::DetachedSocket;
use crate::takeover::hand_over_queue::HandOverQueue;
use crate::takeover::other_process::Changes;
use crate::workers::worker::Worker;
use model::HostgroupId;
use serde::{Deserialize, Serialize};
use session_state::causal::Writes;
use session_state::chosen::Chosen;
use session_state::facts::SessionFacts;
use session_state::pins::{PinReason, Pins};
use session_state::server_info::Family;
use session_state::state::State;
use session_state::wants::Wants;
use sql::LexMode;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::flags::{Capabilities, StatusFlags};
use wire::reframe::TrackFilter;

/// What another process needs to know of a session, besides its sockets.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionRecord {
    id: u64,
    user: Box<str>,
    client: ClientRecord,
    hostgroup: HostgroupId,
    backend: Option<BackendRecord>,
    pins: Pins,
    places: Vec<PlaceRecord>,
    flag_in: u32,
    writes: Option<Box<Writes>>,
    state: State,
    /// Who chose its collations. Older versions do not send it.
    #[serde(default)]
    chosen: Chosen,
    family: Family,
    lex: LexMode,
    facts: SessionFacts,
    statements: StatementsRecord,
    /// What was said in the open transaction is not known there.
    has_transcript: bool,
    /// When the open transaction began (process clock, ms), in one.
    transaction_since_ms: u64,
    own_idle_ms: u64,
    connected_at_ms: u64,
    /// Definitions of routines that were known where the pins began.
    routines_defined: u32,
    /// Its bytes pass unread.
    passage: Option<Passage>,
    replica: Option<Replica>,
    /// What logins taught of its user's passwords. Older versions do not send it.
    #[serde(default)]
    secrets: LearntSecrets,
    /// Definitions and rights as known where it comes from. Older versions do not send them.
    #[serde(default)]
    changes: Option<Changes>,
}

/// The client's side of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientRecord {
    link: LinkRecord,
    caps: Capabilities,
    collation: u16,
    zstd_level: u8,
    scramble: [u8; SCRAMBLE],
    peer: Option<SocketAddr>,
    addr: Option<Box<str>>,
    /// The address it came to.
    local: Option<SocketAddr>,
    is_counted: bool,
    is_tls: bool,
    status: StatusFlags,
    filter: Option<Box<TrackFilter>>,
    tracking_wish: Option<Box<TrackFilter>>,
    command_seq: u8,
    login_seq: u8,
}

/// A session that was refused is offered again after so long, ms: it may have left the server that is unknown there.
const ASK_AGAIN_MS: u64 = 1_000;

impl Session {
    /// Hands the session over to the process that takes this one's place, if there is one, and it can go now. Returns where it stays.
    /// A session whose bytes pass unread says so: it can go whenever none of them is here.
    ///
    /// # Errors
    /// It is over here, for it goes on there.
    pub(super) async fn hand_over(&mut self, passage: Option<&Passage>) -> Result<(), End> {
        let refused_ms = self.handle.refused_ms.get();
        let is_due = refused_ms == 0 || self.worker.clock.now_ms() >= refused_ms + ASK_AGAIN_MS;
        let Some(successor) = self.worker.shared.successor().filter(|_| is_due) else { return Ok(()) };
        let _turn = successor.turn().await;
        match self.handle.pending() {
            // It is to end, and does so here.
            Some(Signal::TransactionTimeout | Signal::IdleTimeout | Signal::KillConnection | Signal::Stop) => return Ok(()),
            // Where bytes pass unread, a statement may run that this is to end. Elsewhere none does.
            Some(Signal::KillQuery) if passage.is_some() => return Ok(()),
            Some(Signal::KillQuery) => self.handle.clear_signal(),
            _ => {}
        }
        // Where bytes pass unread, the proxy may say nothing of its own between them. What the client says meanwhile stays in its
        // socket until it is read.
        let can_go = (passage.is_some() || self.at.forget_shared_statements().await) && self.client.carry(&mut self.at);
        match can_go.then(|| self.record(passage)).flatten() {
            Some((record, sockets)) => record.offer_to(&successor, sockets, &mut self.at).await,
            None => Ok(()),
        }
    }

    /// What is written down of it, and copies of its sockets: the client's, and those of its servers as they are written down. None where
    /// it cannot go now.
    fn record(&self, passage: Option<&Passage>) -> Option<(SessionRecord, Vec<DetachedSocket>)> {
        let Self {
            worker,
            handle,
            client,
            at: Backends { worker: _, handle: _, user, backend, pool, lane: _, pins, places, replaying, before: _ },
            wants: Wants { state, chosen, lex, family, stand_ins },
            // What is of a statement that has ended stays here.
            hand: AtHand { began_us: _, directions: _, flag_in, min_gtid: _, watch, fill, trail: _ },
            causal: Causality { writes },
            beside: _,
            facts,
            statements,
            recovery,
        } = self;
        let Recovery { again_until_us: _, lost_at_us: _, transcript, reply_hasher: _, replay_until_us: _, assigned_gtid } = recovery;
        let is_at_work = watch.is_some() || fill.is_some() || replaying.is_some() || assigned_gtid.is_some();
        // A transaction that was lost with its server is said again here: what was said in it does not go along.
        let is_to_replay = backend.is_none() && recovery.has_more_to_say(&self.at, facts);
        if is_at_work || is_to_replay || stand_ins.is_some() {
            return None;
        }
        let (client, socket) = client_record(client, handle)?;
        let mut sockets = vec![socket];
        let backend = backend::record(backend.as_ref(), &mut sockets)?;
        let places = match places {
            None => Vec::new(),
            Some(places) => places.records(&mut sockets)?,
        };
        let record = SessionRecord {
            id: handle.id,
            user: user.name.as_ref().into(),
            client,
            hostgroup: pool.shared.id,
            backend,
            pins: pins.clone(),
            places,
            flag_in: *flag_in,
            writes: writes.clone(),
            state: state.clone(),
            chosen: *chosen,
            family: *family,
            lex: *lex,
            facts: facts.clone(),
            statements: statements.record(),
            has_transcript: transcript.is_some(),
            transaction_since_ms: handle.transaction_since_ms(),
            own_idle_ms: handle.own_idle_ms(),
            connected_at_ms: handle.row.connected_at_ms.get(),
            routines_defined: worker.shared.routines_defined.count(),
            passage: passage.cloned(),
            replica: handle.replica(),
            secrets: worker.shared.user(&user.name).secrets(),
            changes: Some(worker.shared.changes()),
        };
        Some((record, sockets))
    }
}

impl Frontend {
    /// Makes its connections such that another process can go on with them; false while one is not at rest.
    fn carry(&mut self, at: &mut Backends) -> bool {
        self.link.stream_mut().carry() && at.backends_mut().all(|backend| backend.link.stream_mut().carry())
    }
}

impl Backends {
    /// All that it has, here and elsewhere.
    fn backends_mut(&mut self) -> impl Iterator<Item = &mut Backend> {
        let elsewhere = self.places.iter_mut().flat_map(|places| places.backends_mut());
        self.backend.iter_mut().chain(elsewhere)
    }

    /// Closes what its servers have prepared for whoever asks: the other process does not know of it. False where one was lost.
    async fn forget_shared_statements(&mut self) -> bool {
        let worker = Rc::clone(&self.worker);
        for backend in self.backends_mut() {
            let ids = backend.core.statements.take_shared();
            if backend.close_statements(&worker.counters, &ids).await.is_err() {
                // The next statement finds it lost.
                return false;
            }
        }
        true
    }
}

fn client_record(client: &Frontend, handle: &SessionHandle) -> Option<(ClientRecord, DetachedSocket)> {
    let Frontend {
        link,
        input,
        caps,
        collation,
        zstd_level,
        scramble,
        peer,
        addr,
        proxy_addr: _,
        status,
        filter,
        tracking_wish,
        joined: _,
        streamed_input: _,
        streamed: _,
        is_half_told,
        command_seq,
        login_seq,
    } = client;
    if !input.is_empty() || *is_half_told {
        return None;
    }
    let record = ClientRecord {
        link: link.record()?,
        caps: *caps,
        collation: *collation,
        zstd_level: *zstd_level,
        scramble: *scramble,
        peer: *peer,
        addr: addr.clone(),
        local: handle.row.proxy.get(),
        is_counted: handle.place.borrow().is_some(),
        is_tls: handle.row.is_tls.get(),
        status: *status,
        filter: filter.clone(),
        tracking_wish: tracking_wish.clone(),
        command_seq: *command_seq,
        login_seq: *login_seq,
    };
    Some((record, link.stream().copy().ok()?))
}

/// A session that came with a backend gives it back, and leaves its server, when it would have there.
fn keep_deadlines(at: &mut Backends, facts: &SessionFacts) {
    let delay_ms = at.lane.settings().connection_delay_multiplex_ms;
    if at.pins.set().contains(PinReason::AutoIncrementDelay) {
        at.handle.hold_backend_until(facts.auto_increment_until_ms);
    } else if at.backend.is_some() && at.pins.set().is_empty() && delay_ms > 0 {
        at.handle.hold_backend_until(at.worker.clock.now_ms() + delay_ms);
    }
    at.leave_idle();
}

impl SessionRecord {
    /// Offers the session to the other process; an error where it has taken it.
    async fn offer_to(self, successor: &HandOverQueue, sockets: Vec<DetachedSocket>, at: &mut Backends) -> Result<(), End> {
        let offered = match ::handover::encode(&Offered::Session(Box::new(self))) {
            Ok(record) => successor.offer(record, sockets).await,
            Err(e) => Err(e.to_string()),
        };
        match offered {
            Ok(()) => {
                at.backends_mut().for_each(Backend::count_elsewhere);
                // The session was on its way when this came.
                match at.handle.pending() {
                    Some(Signal::KillConnection) => successor.kill(at.handle.id, false),
                    Some(Signal::KillQuery) => successor.kill(at.handle.id, true),
                    _ => {}
                }
                Err(End::HandedOver)
            }
            Err(why) => {
                let is_first = at.handle.refused_ms.replace(at.worker.clock.now_ms().max(1)) == 0;
                if is_first {
                    tracing::info!("session {} stays in this process for now: {why}", at.handle.id);
                }
                Ok(())
            }
        }
    }

    /// Its id.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Goes on with the session on this worker.
    ///
    /// # Errors
    /// Why not: nothing was sent to its client or its servers.
    pub(crate) fn resume(self, worker: &Rc<Worker>, sockets: Vec<DetachedSocket>) -> Result<(), String> {
        let mut sockets = sockets.into_iter();
        let mut next = || sockets.next().ok_or_else(|| "a socket is missing".to_owned());
        let shared = &worker.shared;
        if shared.has_session(self.id) {
            return Err(format!("another session has the id {}", self.id));
        }
        let user = worker.snapshot().users.get(&self.user).cloned().ok_or_else(|| format!("user '{}' no longer exists", self.user))?;
        shared.learn_secrets([(self.user, self.secrets)]);
        if let Some(changes) = self.changes {
            shared.learn_changes(changes);
        }
        let ClientRecord {
            link,
            caps,
            collation,
            zstd_level,
            scramble,
            peer,
            addr,
            local,
            is_counted,
            is_tls,
            status,
            filter,
            tracking_wish,
            command_seq,
            login_seq,
        } = self.client;
        let link = link.attach(next()?).map_err(|e| e.to_string())?;
        let mut numbers = Numbers::new();
        let backend = take_up_any(self.backend, worker, &user, &mut next, &mut numbers)?;
        let mut places = Vec::new();
        for place in self.places {
            places.push(place.attach(worker, &user, &mut next, &mut numbers)?);
        }
        let proxy_addr = worker.memory.borrow_mut().proxy_addr(local, &worker.snapshot().listen);
        let client = Frontend {
            link,
            input: Buffer::default(),
            caps,
            collation,
            zstd_level,
            scramble,
            peer,
            addr,
            proxy_addr,
            status,
            filter,
            tracking_wish,
            joined: Vec::new(),
            streamed_input: false,
            streamed: Default::default(),
            is_half_told: false,
            command_seq,
            login_seq,
        };
        let handle = Rc::new(SessionHandle::new(self.id, worker.clock.now_ms()));
        handle.row.is_between(peer, local);
        handle.row.connected_at_ms.set(self.connected_at_ms);
        handle.row.is_tls.set(is_tls);
        handle.row.passes_through.set(user.fast_forward);
        let mut session = Session {
            worker: Rc::clone(worker),
            handle: Rc::clone(&handle),
            client,
            at: Backends { backend, pins: self.pins, ..Backends::new(worker, &handle, Arc::clone(&user), self.hostgroup, caps) },
            wants: Wants { state: self.state, chosen: self.chosen, lex: self.lex, family: self.family, stand_ins: None },
            hand: AtHand { flag_in: self.flag_in, ..AtHand::default() },
            causal: Causality { writes: self.writes },
            beside: None,
            facts: self.facts,
            statements: Default::default(),
            recovery: Recovery::default(),
        };
        session.statements = self.statements.statements(worker, &user, session.wants.lex, &numbers)?;
        // Definitions of routines are counted anew here.
        let (then, now) = (self.routines_defined, worker.shared.routines_defined.count());
        session.at.pins.count_definitions_anew(then, now);
        session.at.places = Places::of(places, |pins| pins.count_definitions_anew(then, now));
        session.worker.memory.borrow_mut().share(&mut session.wants.state);
        session.at.backend.ran_for(handle.id);
        if self.has_transcript {
            let mut transcript = Transcript::new(session.wants.state.clone(), session.facts.insert_id.known());
            transcript.progress = Progress::Lost(Gap::HandedOver);
            session.recovery.transcript = Some(Box::new(transcript));
        }
        session.at.keep_unseen();
        handle.set_limits(Limits::from_settings(&session.at.lane.settings()));
        handle.set_own_idle_limit(self.own_idle_ms);
        handle.set_transaction(self.transaction_since_ms > 0, self.transaction_since_ms);
        handle.set_activity(Activity::Idle, worker.clock.now_ms());
        self.replica.into_iter().for_each(|replica| handle.set_replica(replica));
        // From here on it counts.
        if is_counted && let Some(peer) = peer {
            handle.place.replace(shared.addresses.place(peer.ip(), 0));
        }
        if !shared.elsewhere.has_come(handle.id) {
            shared.frontends.fetch_add(1, Ordering::AcqRel);
            shared.user(&user.name).connections.fetch_add(1, Ordering::AcqRel);
        }
        *handle.user.borrow_mut() = Some(Arc::clone(&user));
        shared.note_session(handle.id, Some(&user.name));
        let slot = Registration::new(worker, &handle);
        // Its pins are none that begin now.
        handle.publish_pins(&session.at.pins);
        session.at.publish_session(&session.client, &session.wants);
        keep_deadlines(&mut session.at, &session.facts);
        tokio::task::spawn_local(async move {
            let _slot = slot;
            let end = match self.passage {
                Some(passage) => Box::pin(session.pump(passage)).await,
                None => session.serve().await,
            };
            Box::pin(session.end_session(end)).await;
        });
        Ok(())
    }
}

/// What is offered: the kinds of records.
#[derive(Serialize, Deserialize)]
pub(crate) enum Offered {
    /// A client's session.
    Session(Box<SessionRecord>),
    /// A connection to a server that nobody uses: the user, and what it is.
    Idle(Box<str>, Box<BackendRecord>),
}

impl Offered {
    /// Takes it in on a worker.
    ///
    /// # Errors
    /// Why not: its sockets are closed here, and nothing was sent over them.
    pub(crate) fn take_in(self, worker: &Rc<Worker>, sockets: Vec<DetachedSocket>) -> Result<(), String> {
        match self {
            Self::Session(record) => record.resume(worker, sockets),
            Self::Idle(user, record) => {
                let user = worker.snapshot().users.get(&user).cloned().ok_or_else(|| format!("user '{user}' does not exist"))?;
                let socket = sockets.into_iter().next().ok_or("the connection has no socket")?;
                let pool = worker.pool(record.hostgroup());
                let (backend, _) = take_up(*record, worker, &user, socket)?;
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

/// How long the search for idle connections pauses.
const PAUSE: Duration = Duration::from_millis(50);

/// Sessions at rest and idle connections of this worker go to the process that takes this one's place.
pub(crate) fn hand_over(worker: &Rc<Worker>) {
    worker.signal_all(Signal::HandOver);
    let acknowledged = worker.acknowledged.borrow().all();
    worker.shared.elsewhere.acknowledge(acknowledged.iter().map(String::as_bytes));
    tokio::task::spawn_local(hand_over_idle(Rc::clone(worker)));
}

/// Hands idle connections over, also those that sessions give back later, until there is nobody any more who takes them.
async fn hand_over_idle(worker: Rc<Worker>) {
    while let Some(successor) = worker.shared.successor() {
        for pool in worker.pools() {
            while let Some(backend) = pool.take_any_idle() {
                if let Err(why) = offer_idle(&worker, &successor, backend).await {
                    tracing::debug!("an idle connection is closed: the other process refused it: {why}");
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn offer_idle(worker: &Worker, successor: &HandOverQueue, mut backend: Backend) -> Result<(), String> {
    let _turn = successor.turn().await;
    let ids = backend.core.statements.take_shared();
    backend.close_statements(&worker.counters, &ids).await.map_err(|e| e.to_string())?;
    if !backend.link.stream_mut().carry() {
        return Err("the connection's TLS session is busy".to_owned());
    }
    let (record, socket) = backend.record().ok_or("the connection is busy")?;
    let user = backend.core.lane.user.name.as_ref().into();
    let record = ::handover::encode(&Offered::Idle(user, Box::new(record))).map_err(|e| e.to_string())?;
    successor.offer(record, vec![socket]).await?;
    backend.count_elsewhere();
    Ok(())
}

#[cfg(test)]
#[path = "hand_over_tests.rs"]
mod tests;
