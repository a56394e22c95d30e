//! Whole sessions on the shadow (mode `all`): one task and one connection for each, which run what its strand brings.
//!
//! A statement starts in its turn ([`crate::copying`]) and gets the original's clock and ids. INVARIANT: a connection serves one session and
//! is closed afterwards. Whatever goes wrong ends the session's transaction there: the session is incomplete until it begins again.

use super::judge::{Difference, Heard, record, text_of};
use super::listener::Listener;
use crate::backends::backend::{Backend, ServerError, prepare_ok, put_command, put_query};
use crate::backends::cleaning::abandon;
use crate::copying::{Act, CopiedCommand, CopiedState, CopyStrand, Copying, Job, OrderTicket, PinnedValues};
use crate::mirror::{self, Failure, Mirrored};
use crate::net::stream::invalid;
use crate::session_state::pins::PinSet;
use crate::workers::worker::Worker;
use rehearsal::{Answer, Class, Excuses, Form, GaveUp, Opinion, Skip};
use sql::{Analysis, Facts, Kind};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::prepared::put_stmt_id;
use wire::reply::ReplyKind;

/// Time between looks at whether the rehearsal has ended, while nothing comes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a statement may take on the shadow, ms, beside waits for locks and ten times the original's time.
const MAX_RUN_MS: u64 = 60_000;
/// Time between two attempts to get a connection.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
/// Attempts of a statement that ended by a lock before it had a transaction.
const ATTEMPTS: u32 = 3;

/// A prepared statement on the shadow.
struct ShadowStatement {
    /// None until it was used.
    server_id: Option<u32>,
    text: Arc<[u8]>,
}

/// See the module.
pub(crate) struct Player {
    worker: Rc<Worker>,
    copying: Arc<Copying>,
    strand: Arc<CopyStrand>,
    /// The session as it began, with an empty statement.
    session: Option<Mirrored>,
    backend: Option<Backend>,
    prepared: HashMap<u32, ShadowStatement>,
    /// A write of another session ran beside a statement of the open transaction.
    is_raced: bool,
    /// It is to be brought to the session's state before its next command; with LAST_INSERT_ID(), where that is known.
    opens: Option<Option<u64>>,
    /// The session may have set a role, which outlives a reset.
    has_role: bool,
}

/// A session takes part from now on.
pub(crate) fn play(worker: &Rc<Worker>, copying: &Arc<Copying>) -> Arc<CopyStrand> {
    copying.run.sessions.fetch_add(1, Ordering::Relaxed);
    let strand = copying.strand();
    let (worker, copying) = (Rc::clone(worker), Arc::clone(copying));
    let player = Player {
        worker,
        copying,
        strand: Arc::clone(&strand),
        session: None,
        backend: None,
        prepared: HashMap::new(),
        is_raced: false,
        opens: None,
        has_role: false,
    };
    tokio::task::spawn_local(player.play());
    strand
}

impl Player {
    async fn play(mut self) {
        loop {
            let next = timeout(LOOK_AGAIN, self.strand.next()).await;
            if self.strand.is_gone() || self.copying.run.ended_ms(self.worker.shared.clock.now_ms()).is_some() {
                break;
            }
            match next {
                Ok(Some((job, bytes))) => {
                    self.take(job).await;
                    self.copying.give_room(bytes);
                }
                Ok(None) => break,
                Err(_) => {}
            }
        }
        self.leave();
        self.copying.forget(&self.strand);
    }

    async fn take(&mut self, job: Job) {
        match job {
            Job::Begin(state) => self.begin(*state).await,
            Job::Run(command) => self.run(*command).await,
            Job::Cut => self.leave(),
        }
    }

    /// Closes the connection: the server rolls back what is open.
    fn leave(&mut self) {
        self.opens = None;
        self.prepared.clear();
        if let (Some(backend), Some(session)) = (self.backend.take(), &self.session)
            && backend.is_owed()
        {
            let pool = self.worker.pool(session.lane.hostgroup);
            tokio::task::spawn_local(abandon(Rc::clone(&self.worker), pool, backend, PinSet::default(), true));
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

    /// The connection that the session has, without anything on it, or another one.
    async fn connect(&mut self, session: &Mirrored) -> Result<Backend, Failure> {
        let kept = self.backend.take().filter(|backend| backend.is_even() && !self.has_role);
        if let Some(mut backend) = kept
            && mirror::ready_again(&self.worker, &mut backend, session).await
        {
            return Ok(backend);
        }
        self.has_role = false;
        let clock = self.worker.shared.clock;
        let until_ms = clock.now_ms() + MAX_RUN_MS;
        loop {
            match mirror::ready(&self.worker, session).await {
                // A server that is slow to accept connections has time; what waits is bounded.
                Err(Failure::NoBackend(_) | Failure::Lost(_)) if clock.now_ms() < until_ms && !self.strand.is_gone() => {
                    tokio::time::sleep(BETWEEN_ATTEMPTS).await;
                }
                other => return other,
            }
        }
    }

    /// The session begins, or begins again. A connection that it has is reset at once, for what is open there ends now. Another one is opened
    /// in the turn of the first command: so there are no more connections than the original had at a time, however far the shadow is behind.
    async fn begin(&mut self, begun: CopiedState) {
        let CopiedState { state, lane, collation, lex, last_insert_id, client } = begun;
        let is_same_user = self.session.as_ref().is_some_and(|before| before.lane == lane);
        if !is_same_user {
            self.leave();
        }
        let (body, analysis) = (Vec::new(), Analysis::NONE);
        self.session = Some(Mirrored {
            body,
            start: 0,
            execution: None,
            analysis,
            lex,
            state,
            lane,
            collation,
            timeout_ms: None,
            client,
            is_guarded: false,
        });
        self.prepared.clear();
        self.opens = Some(last_insert_id);
        if self.backend.is_some() {
            self.open().await;
        }
    }

    /// Gets the session a connection in its state, if it has none; false where there is none to be had.
    async fn open(&mut self) -> bool {
        let Some(last_insert_id) = self.opens.take() else { return self.backend.is_some() };
        let Some(session) = self.session.take() else { return false };
        let backend = self.connect(&session).await;
        let user = session.lane.user.name.clone();
        self.session = Some(session);
        match backend {
            Ok(backend) => self.backend = Some(backend),
            Err(Failure::Login(text)) => {
                let mut findings = self.copying.run.findings();
                findings.error = format!("user '{user}' cannot log in to the shadow: {text}");
                findings.refused.insert(user, text);
                drop(findings);
                self.copying.give_up(&self.strand, GaveUp::Login);
                return false;
            }
            Err(failure) => {
                self.break_off(GaveUp::Failed, &failure.to_string());
                return false;
            }
        }
        let seconds = self.copying.run.plan.order_wait_ms.div_ceil(1000);
        let pins =
            PinnedValues { last_insert_id, ..PinnedValues::default() }.text().map_or(String::new(), |set| set.replacen("SET ", ", ", 1));
        let set = format!("SET innodb_lock_wait_timeout={seconds}, lock_wait_timeout={seconds}{pins}");
        let Some(backend) = self.backend.as_mut() else { return false };
        let error = match timeout(Duration::from_millis(MAX_RUN_MS), backend.query(&set, &self.worker.buffers)).await {
            Ok(Ok(reply)) => reply.error.map(|error| error.to_string()),
            Ok(Err(e)) => Some(e.to_string()),
            Err(_) => Some("the shadow does not answer".to_owned()),
        };
        if let Some(error) = &error {
            self.break_off(GaveUp::Failed, error);
        }
        error.is_none()
    }

    async fn run(&mut self, command: CopiedCommand) {
        if let Act::Prepare { id, text } = &command.act {
            self.prepared.insert(*id, ShadowStatement { server_id: None, text: Arc::clone(text) });
            return;
        }
        if self.backend.is_none() && self.opens.is_none() {
            return self.copying.run.skip(Skip::Incomplete);
        }
        if let Some(ticket) = &command.ticket {
            ticket.turn().await;
        }
        if self.strand.is_gone() || !self.open().await {
            return;
        }
        let original_us = command.original.as_ref().map_or(0, |(_, time_us)| *time_us);
        let limit_ms = self.copying.run.plan.order_wait_ms + MAX_RUN_MS + original_us / 100;
        let was_open = self.is_in_transaction();
        self.has_role |= mirror::may_set_role(&command.analysis);
        self.is_raced = command.ticket.as_ref().is_some_and(OrderTicket::is_raced) || was_open && self.is_raced;
        for attempt in 1.. {
            match timeout(Duration::from_millis(limit_ms), self.act(&command)).await {
                Ok(Ok(Some(heard))) => {
                    let is_by_lock = heard.answer.error.is_some_and(rehearsal::is_of_locks);
                    if is_by_lock && !was_open && attempt < ATTEMPTS {
                        continue;
                    }
                    return self.judge(&command, &heard);
                }
                Ok(Ok(None)) => return,
                Ok(Err(e)) => return self.break_off(GaveUp::Failed, &format!("connection lost: {e}")),
                Err(_) => return self.break_off(GaveUp::Failed, &format!("a statement still ran after {limit_ms} ms")),
            }
        }
    }

    fn is_in_transaction(&self) -> bool {
        self.backend.as_ref().is_some_and(|backend| backend.core.held.status().contains(StatusFlags::IN_TRANS))
    }

    /// The server's number of a prepared statement, which is prepared where it was not; the error where that is refused.
    async fn server_id(&mut self, id: u32) -> io::Result<Result<u32, ServerError>> {
        let (Some(prepared), Some(backend)) = (self.prepared.get_mut(&id), self.backend.as_mut()) else {
            return Err(invalid("a prepared statement is not known on the shadow"));
        };
        if let Some(server_id) = prepared.server_id {
            return Ok(Ok(server_id));
        }
        backend.send(Command::StmtPrepare, &prepared.text).await?;
        let reply = backend.collect(ReplyKind::Prepare, true, &self.worker.buffers).await?;
        if let Some(error) = reply.error {
            return Ok(Err(error));
        }
        let ok = prepare_ok(&reply.raw).ok_or_else(|| invalid("malformed answer to COM_STMT_PREPARE"))?;
        prepared.server_id = Some(ok.stmt_id);
        Ok(Ok(ok.stmt_id))
    }

    /// Runs the command; what was answered to a statement.
    async fn act(&mut self, command: &CopiedCommand) -> io::Result<Option<Heard>> {
        let mut out = Vec::new();
        let form = match &command.act {
            Act::Query(text) => {
                let Some(backend) = self.backend.as_ref() else { return Ok(None) };
                put_query(&mut out, text, backend.core.caps);
                Form::Text
            }
            Act::Execute { id, payload } => {
                let server_id = match self.server_id(*id).await? {
                    Ok(server_id) => server_id,
                    Err(error) => {
                        return Ok(Some(Heard { answer: Answer::of_error(error.code), time_us: 0, error: text_of(&error) }));
                    }
                };
                let mut payload = payload.clone();
                put_stmt_id(&mut payload, server_id).map_err(invalid)?;
                put_command(&mut out, Command::StmtExecute, payload.get(1..).unwrap_or_default());
                Form::Binary
            }
            other => return self.simple(other).await.map(|()| None),
        };
        let Some(backend) = self.backend.as_mut() else { return Ok(None) };
        let pool = &self.worker.buffers;
        let pins = command.pins.text();
        if let Some(pins) = &pins {
            // In one flight with the statement.
            let mut both = Vec::with_capacity(out.len() + pins.len() + 8);
            put_query(&mut both, pins.as_bytes(), backend.core.caps);
            both.append(&mut out);
            out = both;
        }
        backend.start_exchange()?;
        backend.link.write_all(&out).await?;
        if pins.is_some() {
            backend.collect(ReplyKind::Results, false, pool).await?;
        }
        let mut listener = Listener::new(form, self.worker.shared.clock);
        let reply = mirror::hear(backend, pool, &mut listener).await?;
        backend.settled();
        let error = reply.error.as_ref().map(text_of).unwrap_or_default();
        let (answer, time_us) = listener.finish().ok_or_else(|| invalid("an answer cannot be read"))?;
        Ok(Some(Heard { answer, time_us, error }))
    }

    /// A command that is no statement.
    async fn simple(&mut self, act: &Act) -> io::Result<()> {
        let (kind, body) = match act {
            Act::InitDb(schema) => (Command::InitDb, schema.to_vec()),
            Act::SetOption(option) => (Command::SetOption, option.to_vec()),
            Act::Reset(id) => match self.prepared.get(id).and_then(|prepared| prepared.server_id) {
                Some(id) => (Command::StmtReset, id.to_le_bytes().to_vec()),
                None => return Ok(()),
            },
            Act::LongData { id, body } => {
                // Where it cannot be prepared, the execution says so.
                let Ok(server_id) = self.server_id(*id).await? else { return Ok(()) };
                let Some(backend) = self.backend.as_mut() else { return Ok(()) };
                let mut out = Vec::new();
                put_command(&mut out, Command::StmtSendLongData, &[&server_id.to_le_bytes()[..], body].concat());
                backend.link.start_command();
                return backend.link.write_all(&out).await;
            }
            Act::Close(id) => {
                let closed = self.prepared.remove(id).and_then(|prepared| prepared.server_id);
                let Some(backend) = self.backend.as_mut() else { return Ok(()) };
                return backend.close_statements(&self.worker.counters, closed.as_slice()).await;
            }
            Act::Query(_) | Act::Execute { .. } | Act::Prepare { .. } => return Ok(()),
        };
        let Some(backend) = self.backend.as_mut() else { return Ok(()) };
        backend.send(kind, &body).await?;
        backend.collect(ReplyKind::Simple, false, &self.worker.buffers).await.map(drop)
    }

    /// Counts what came of a statement.
    fn judge(&mut self, command: &CopiedCommand, heard: &Heard) {
        let run = Arc::clone(&self.copying.run);
        let (Some((original, original_us)), Some(digest)) = (&command.original, &command.digest) else { return };
        let is_lost = heard.answer.error.is_some_and(rehearsal::is_of_locks) && original.error != heard.answer.error;
        run.statements.fetch_add(1, Ordering::Relaxed);
        if run.is_warming(self.worker.shared.clock.now_ms()) {
            run.warming.fetch_add(1, Ordering::Relaxed);
        } else if let Some(session) = &self.session {
            let text = self.text(&command.act);
            let traits = rehearsal::traits(text, session.lex).with_rows(original.rows.max(heard.answer.rows));
            let traits = if is_of_server(&command.analysis) {
                rehearsal::Traits { noise: traits.noise.or(Some("it shows the server's own state")), ..traits }
            } else {
                traits
            };
            let first = rehearsal::compare(original, &heard.answer, traits.is_ordered).after([*original_us, heard.time_us]);
            let opinion = run.findings().tally.opinion(digest.hash, first, traits);
            let is_pinned = command.pins.time_us.is_some();
            let class = match opinion {
                _ if is_lost => Class::OutOfOrder,
                _ if !original.is_whole || !heard.answer.is_whole => Class::Unchecked,
                Opinion::Take(class) => class,
                Opinion::Ask => {
                    let excuses =
                        Excuses { is_raced: self.is_raced || run.is_incomplete(), reads_other_clock: traits.reads_clock && !is_pinned };
                    rehearsal::judge_once(first, [original, &heard.answer], traits, excuses)
                }
            };
            let (user, schema) = (&*session.lane.user.name, session.state.schema.as_deref().unwrap_or_default());
            let difference = Difference { digest, text, lex: session.lex, user, schema, original: (original, *original_us), heard };
            record(&run, &difference, class, false);
        }
        if is_lost {
            self.break_off(GaveUp::Order, "");
        }
    }

    fn text<'a>(&'a self, act: &'a Act) -> &'a [u8] {
        match act {
            Act::Query(text) => text,
            Act::Execute { id, .. } => self.prepared.get(id).map_or(&[], |prepared| &prepared.text),
            _ => &[],
        }
    }
}

/// Whether servers need not agree because the statement shows what is theirs.
fn is_of_server(analysis: &Analysis) -> bool {
    matches!(analysis.kind, Kind::Show | Kind::Explain) || analysis.facts.intersects(Facts::VARIABLES | Facts::SYSTEM_VARIABLE)
}
