//! Whole sessions on the shadow (mode `all`): one task and one connection for each, which run what its strand brings.
//!
//! A statement starts in its turn ([`crate::copying`]) and gets the original's clock and ids. INVARIANT: a connection serves one session and
//! is closed afterwards. Whatever goes wrong ends the session's transaction there: the session is incomplete until it begins again.

mod command;

use super::count_busy;
use super::judge::told;
use crate::backends::backend::Backend;
use crate::backends::cleaning::abandon;
use crate::copying::{Act, CopiedCommand, CopiedState, CopyStrand, Copying, Job, OrderTicket, PinnedValues};
use crate::mirror::{self, Failure, Mirrored};
use crate::workers::worker::Worker;
use rehearsal::GaveUp;
use session_state::pins::PinSet;
use session_state::state::Text;
use sql::Analysis;
use std::collections::HashMap;
use std::future::pending;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use wire::flags::StatusFlags;

/// Time between looks at whether the rehearsal has ended, while nothing comes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a statement may take on the shadow, ms, beside waits for locks and ten times the original's time.
const MAX_RUN_MS: u64 = 60_000;
/// Time between two attempts to get a connection.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
/// How long a session whose turn it is waits for a connection, until connections of sessions whose turn it is not are closed for it.
const BEFORE_PRESSING: Duration = Duration::from_millis(100);

/// A prepared statement on the shadow.
struct ShadowStatement {
    /// None until it was used.
    server_id: Option<u32>,
    text: Arc<[u8]>,
    /// The schema of its PREPARE.
    schema: Option<Text>,
    /// Long data for the next execution: each what follows the statement's number. The server gets it with each attempt of the execution, so
    /// an attempt that ended by a lock takes nothing from the next one.
    long_data: Vec<Vec<u8>>,
    /// Its bytes in the queue.
    held: u64,
}

impl ShadowStatement {
    fn new(text: Arc<[u8]>, schema: Option<Text>) -> Self {
        Self { server_id: None, text, schema, long_data: Vec::new(), held: 0 }
    }
}

/// A connection that was made before the session's turn.
struct EarlyConnection {
    /// See [`Copying::early`].
    _permit: OwnedSemaphorePermit,
    /// As [`Player::opens`] had it.
    last_insert_id: Option<u64>,
}

/// A connection that is being made before the session's turn. Dropped, it is not.
struct Opening {
    permit: OwnedSemaphorePermit,
    made: Pin<Box<dyn Future<Output = Result<Backend, Failure>>>>,
}

/// What comes of the connection that is being made; never, where none is.
async fn made(opening: &mut Option<Opening>) -> Result<Backend, Failure> {
    match opening {
        Some(opening) => opening.made.as_mut().await,
        None => pending().await,
    }
}

/// See the module.
pub(crate) struct Player {
    worker: Rc<Worker>,
    copying: Arc<Copying>,
    strand: Arc<CopyStrand>,
    /// The session as it began, with an empty statement.
    session: Option<Rc<Mirrored>>,
    backend: Option<Backend>,
    prepared: HashMap<u32, ShadowStatement>,
    /// A write of another session ran beside a statement of the open transaction.
    is_raced: bool,
    /// A statement of the open transaction may have taken locks.
    has_locks: bool,
    /// It is to be brought to the session's state before its next command; with LAST_INSERT_ID(), where that is known.
    opens: Option<Option<u64>>,
    opening: Option<Opening>,
    /// Its turn has not come since it has its connection.
    early: Option<EarlyConnection>,
    /// The session may have set a role, which outlives a reset.
    has_role: bool,
}

/// A session takes part from now on.
pub(crate) fn play(worker: &Rc<Worker>, copying: &Arc<Copying>) -> Arc<CopyStrand> {
    copying.run.sessions.fetch_add(1, Ordering::Relaxed);
    let player = Player::new(worker, copying);
    let strand = Arc::clone(&player.strand);
    tokio::task::spawn_local(count_busy(Arc::clone(&copying.run), worker.shared.clock, player.play()));
    strand
}

impl Player {
    fn new(worker: &Rc<Worker>, copying: &Arc<Copying>) -> Self {
        Self {
            worker: Rc::clone(worker),
            copying: Arc::clone(copying),
            strand: copying.strand(),
            session: None,
            backend: None,
            prepared: HashMap::new(),
            is_raced: false,
            has_locks: false,
            opens: None,
            opening: None,
            early: None,
            has_role: false,
        }
    }

    async fn play(mut self) {
        loop {
            let next = tokio::select! {
                biased;
                next = timeout(LOOK_AGAIN, self.strand.next()) => next,
                () = self.copying.pressed(), if self.is_early() => {
                    self.give_back_early();
                    continue;
                }
                made = made(&mut self.opening), if self.opening.is_some() => {
                    self.take_early(made);
                    continue;
                }
            };
            if self.strand.is_gone() || self.copying.run.ended_ms(self.worker.shared.clock.now_ms()).is_some() {
                if let Ok(Some((_, bytes))) = &next {
                    self.copying.give_room(*bytes);
                }
                break;
            }
            match next {
                Ok(Some((job, bytes))) => {
                    if !self.take(job, bytes).await {
                        self.copying.give_room(bytes);
                    }
                }
                Ok(None) => break,
                // A session that pauses keeps its connection, and others may have theirs early.
                Err(_) => self.early = None,
            }
        }
        self.leave();
        self.copying.forget(&self.strand);
    }

    /// Does a job of so many bytes; true: they are kept, and given back with what they are of.
    async fn take(&mut self, job: Job, bytes: u64) -> bool {
        match job {
            Job::Begin(state) => self.begin(*state).await,
            Job::Run(command) => match command.act {
                Act::LongData { id, body } => return self.keep_long_data(id, body, bytes),
                _ => self.run_and_forget(*command).await,
            },
            Job::Cut => self.leave(),
        }
        false
    }

    /// Keeps long data for the execution; true: so do its bytes of the queue.
    fn keep_long_data(&mut self, id: u32, body: Vec<u8>, bytes: u64) -> bool {
        let Some(prepared) = self.prepared.get_mut(&id) else { return false };
        prepared.long_data.push(body);
        prepared.held += bytes;
        self.strand.hold(bytes);
        true
    }

    /// It has a connection, or will have one.
    fn has_session(&self) -> bool {
        self.backend.is_some() || self.opens.is_some()
    }

    async fn run_and_forget(&mut self, command: CopiedCommand) {
        let used = match command.act {
            Act::Execute { id, .. } | Act::Reset(id) => Some(id),
            _ => None,
        };
        self.run(command).await;
        if let Some(id) = used {
            self.forget_long_data(id);
        }
    }

    fn forget_long_data(&mut self, id: u32) {
        let Some(prepared) = self.prepared.get_mut(&id) else { return };
        prepared.long_data = Vec::new();
        let held = std::mem::take(&mut prepared.held);
        self.copying.give_room(self.strand.let_go(held));
    }

    fn forget_prepared(&mut self) {
        let held = self.prepared.drain().map(|(_, prepared)| prepared.held).sum();
        self.copying.give_room(self.strand.let_go(held));
    }

    /// Closes the connection: the server rolls back what is open.
    fn leave(&mut self) {
        self.opens = None;
        self.forget_prepared();
        self.close_connection();
    }

    fn close_connection(&mut self) {
        (self.opening, self.early) = (None, None);
        if let (Some(backend), Some(session)) = (self.backend.take(), &self.session)
            && backend.is_owed()
        {
            let pool = self.worker.pool(session.lane.hostgroup);
            tokio::task::spawn_local(abandon(Rc::clone(&self.worker), pool, backend, PinSet::default(), true));
        }
    }

    /// It has a connection, or one is being made, before its turn.
    fn is_early(&self) -> bool {
        self.opening.is_some() || self.early.is_some()
    }

    /// Another session needs a connection for its turn, and this one's has not come.
    fn give_back_early(&mut self) {
        self.opening = None;
        if let Some(early) = self.early.take() {
            self.close_connection();
            self.opens = Some(early.last_insert_id);
        }
    }

    /// The session is incomplete until it begins again.
    fn break_off(&mut self, why: GaveUp, error: &str) {
        if !error.is_empty() {
            self.copying.run.findings().error = error.to_owned();
        }
        self.copying.run.give_up(why);
        self.strand.set_broken(true);
        self.leave();
    }

    /// The session gets no connection in its state.
    fn fail(&mut self, failure: &Failure) {
        let error = told(failure, self.copying.run.plan.shows_literals);
        self.break_off(GaveUp::Failed, &error);
    }

    /// A connection for the session in its turn. Others give theirs back for it.
    async fn connect(&self, session: &Rc<Mirrored>, last_insert_id: Option<u64>) -> Result<Backend, Failure> {
        let clock = self.worker.shared.clock;
        let until_ms = clock.now_ms() + MAX_RUN_MS;
        loop {
            let mut ready = std::pin::pin!(ready(Rc::clone(&self.worker), Rc::clone(session), self.set_up_text(last_insert_id)));
            let found = match timeout(BEFORE_PRESSING, ready.as_mut()).await {
                Ok(found) => found,
                Err(_) => {
                    self.copying.press();
                    ready.await
                }
            };
            match found {
                // A server that is slow to accept connections has time; what waits is bounded.
                Err(Failure::NoBackend(_) | Failure::Lost(_)) if clock.now_ms() < until_ms && !self.strand.is_gone() => {
                    tokio::time::sleep(BETWEEN_ATTEMPTS).await;
                }
                other => return other,
            }
        }
    }

    /// The session begins, or begins again. A connection that it has is reset at once, for what is open there ends now. Another one is made
    /// from now on, while the original's statement runs, unless many sessions have theirs early: then it is made in the turn.
    async fn begin(&mut self, begun: CopiedState) {
        let CopiedState { state, chosen, lane, collation, lex, last_insert_id, client } = begun;
        let is_same_user = self.session.as_ref().is_some_and(|before| before.lane == lane);
        if !is_same_user {
            self.leave();
        }
        let (body, analysis) = (Vec::new(), Analysis::NONE);
        let chosen_in = Some((lane.hostgroup, chosen));
        let session = Rc::new(Mirrored {
            body,
            start: 0,
            execution: None,
            analysis,
            lex,
            state,
            lane,
            collation,
            chosen_in,
            timeout_ms: None,
            client,
            is_guarded: false,
        });
        self.session = Some(Rc::clone(&session));
        self.forget_prepared();
        (self.opens, self.opening, self.early) = (Some(last_insert_id), None, None);
        if !self.is_reset(&session, last_insert_id).await {
            self.close_connection();
            if let Ok(permit) = Arc::clone(&self.copying.early).try_acquire_owned() {
                self.open_early(permit);
            }
        }
    }

    /// Brings the connection that the session has to its state, without anything on it. False: there is none, or it is of no use.
    async fn is_reset(&mut self, session: &Mirrored, last_insert_id: Option<u64>) -> bool {
        let set_up = self.set_up_text(last_insert_id);
        let Some(backend) = self.backend.as_mut().filter(|backend| backend.is_even() && !self.has_role) else { return false };
        let is_ready =
            mirror::ready_again(&self.worker, backend, session).await && set_up_session(&self.worker, backend, &set_up).await.is_ok();
        if is_ready {
            self.opens = None;
        }
        is_ready
    }

    /// Begins to make a connection before the turn. Where none is to be had, the session tries again in its turn.
    fn open_early(&mut self, permit: OwnedSemaphorePermit) {
        let (Some(session), Some(last_insert_id)) = (&self.session, self.opens) else { return };
        let made = Box::pin(ready(Rc::clone(&self.worker), Rc::clone(session), self.set_up_text(last_insert_id)));
        self.opening = Some(Opening { permit, made });
    }

    /// What came of the connection that was made before the turn.
    fn take_early(&mut self, made: Result<Backend, Failure>) {
        let permit = self.opening.take().map(|opening| opening.permit);
        if let (Ok(backend), Some(permit), Some(last_insert_id)) = (made, permit, self.opens) {
            (self.backend, self.opens, self.has_role) = (Some(backend), None, false);
            self.early = Some(EarlyConnection { _permit: permit, last_insert_id });
        }
    }

    /// Waits for the turn of a statement. A connection is made before, so that no other session waits while it is made.
    async fn turn(&mut self, ticket: &mut OrderTicket) {
        let copying = Arc::clone(&self.copying);
        if self.opens.is_some() && self.opening.is_none() {
            let permit = tokio::select! {
                biased;
                () = ticket.turn() => return,
                permit = Arc::clone(&copying.early).acquire_owned() => permit,
            };
            if let Ok(permit) = permit {
                self.open_early(permit);
            }
        }
        // A transaction without locks holds nobody up, and keeps the order.
        let may_hold_up = self.has_locks && self.is_in_transaction();
        loop {
            tokio::select! {
                biased;
                () = ticket.turn() => break,
                () = copying.is_stuck(), if may_hold_up => {
                    ticket.overtake();
                    break;
                }
                () = copying.pressed(), if self.is_early() => self.give_back_early(),
                made = made(&mut self.opening), if self.opening.is_some() => self.take_early(made),
            }
        }
        self.early = None;
    }

    /// Gets the session a connection in its state in its turn, if it has none; false where there is none to be had.
    async fn open(&mut self) -> bool {
        if self.opening.is_some() {
            let early = match timeout(BEFORE_PRESSING, made(&mut self.opening)).await {
                Ok(early) => early,
                Err(_) => {
                    self.copying.press();
                    made(&mut self.opening).await
                }
            };
            self.take_early(early);
            self.early = None;
        }
        let Some(last_insert_id) = self.opens else { return self.backend.is_some() };
        let Some(session) = self.session.as_ref().map(Rc::clone) else { return false };
        match self.connect(&session, last_insert_id).await {
            Ok(backend) => {
                (self.backend, self.opens, self.has_role) = (Some(backend), None, false);
                return true;
            }
            Err(Failure::Login(text)) => {
                let user = session.lane.user.name.clone();
                let mut findings = self.copying.run.findings();
                findings.error = format!("user '{user}' cannot log in to the shadow: {text}");
                findings.refused.insert(user, text);
                drop(findings);
                self.copying.give_up(&self.strand, GaveUp::Login);
            }
            Err(failure) => self.fail(&failure),
        }
        false
    }

    /// What a connection of a session gets beside the session's state.
    fn set_up_text(&self, last_insert_id: Option<u64>) -> String {
        let seconds = self.copying.run.plan.order_wait_ms.div_ceil(1000);
        let pins =
            PinnedValues { last_insert_id, ..PinnedValues::default() }.text().map_or(String::new(), |set| set.replacen("SET ", ", ", 1));
        format!("SET innodb_lock_wait_timeout={seconds}, lock_wait_timeout={seconds}{pins}")
    }

    fn is_in_transaction(&self) -> bool {
        self.backend.as_ref().is_some_and(|backend| backend.core.held.status().contains(StatusFlags::IN_TRANS))
    }
}

/// A connection in this session's state.
async fn ready(worker: Rc<Worker>, session: Rc<Mirrored>, set_up: String) -> Result<Backend, Failure> {
    let mut backend = mirror::ready(&worker, &session).await?;
    set_up_session(&worker, &mut backend, &set_up).await.map(|()| backend)
}

async fn set_up_session(worker: &Worker, backend: &mut Backend, set_up: &str) -> Result<(), Failure> {
    match timeout(Duration::from_millis(MAX_RUN_MS), backend.query(set_up, &worker.buffers)).await {
        Ok(reply) => reply?.error.map_or(Ok(()), |error| Err(Failure::State(error))),
        Err(_) => Err(Failure::TimedOut(MAX_RUN_MS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed;
    use rehearsal::{Run, ServerName};
    use session_state::collected::ServerError;

    /// A session under a rehearsal with these settings. Nobody runs it.
    fn player(more: &str) -> Player {
        player_for(more, None)
    }

    /// The same of a rehearsal that runs for so long.
    fn player_for(more: &str, seconds: Option<u64>) -> Player {
        let row =
            format!("mysql_rehearsals = ( {{ name=\"new\", mode=\"all\", source_hostgroup=1, shadow_hostgroup=2, percent=100{more} }} )");
        let worker = bed::worker(bed::snapshot(&[(1, "a"), (2, "b")], &row));
        let plan = Arc::clone(&worker.snapshot().rehearsals[0]);
        let run = Run::new(plan, [ServerName::default(), ServerName::default()], (0, 0), seconds);
        Player::new(&worker, &Copying::new(Arc::new(run)))
    }

    #[tokio::test]
    async fn a_refused_state_shows_no_literals() {
        for (more, is_shown) in [("", false), (", show_literals=1", true)] {
            let mut player = player(more);
            let message = b"Variable 'sql_mode' can't be set to the value of 'secret'".to_vec();
            player.fail(&Failure::State(ServerError { code: 1231, sqlstate: *b"42000", message }));
            let run = Arc::clone(&player.copying.run);
            assert_eq!((run.findings().error.contains("secret"), run.given_up(GaveUp::Failed)), (is_shown, 1));
            assert!(player.strand.is_broken());
        }
    }

    #[tokio::test]
    async fn the_end_of_a_rehearsal_gives_all_room_back() {
        let player = player_for("", Some(0));
        let (copying, strand) = (Arc::clone(&player.copying), Arc::clone(&player.strand));
        copying.admit(&strand, Job::Cut);
        assert!(copying.run.queued_bytes() > 0);
        player.play().await;
        assert_eq!(copying.run.queued_bytes(), 0);
    }
}
