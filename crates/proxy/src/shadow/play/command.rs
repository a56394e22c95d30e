//! One command on the shadow: in its turn, with the original's values, again where a lock ended it, and judged.

use super::{MAX_RUN_MS, Player, ShadowStatement};
use crate::backends::backend::{prepare_ok, put_command, put_query};
use crate::copying::{Act, CopiedCommand, OrderTicket};
use crate::mirror;
use crate::net::stream::invalid;
use crate::shadow::judge::{Difference, Heard, record, text_of};
use crate::shadow::listener::Listener;
use rehearsal::{Answer, Class, Doubt, Excuses, Form, GaveUp, Opinion, Skip};
use session_state::collected::ServerError;
use session_state::state::Text;
use sql::{Analysis, Facts, Kind};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use wire::codes;
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::prepared::put_stmt_id;
use wire::reply::ReplyKind;

/// Attempts of a statement that ended by a lock, and left nothing of itself.
const ATTEMPTS: u32 = 6;
/// How long a write may run on the shadow, beside four times the original's time, until the others pass it; and so long again, until
/// statements of transactions with locks no longer keep the order.
const PATIENCE: Duration = Duration::from_millis(500);

impl Player {
    /// Runs a command in its turn, and judges what came of it.
    pub(super) async fn run(&mut self, mut command: CopiedCommand) {
        if !self.has_session() {
            return self.copying.run.skip(Skip::Incomplete);
        }
        if let Act::Prepare { id, text, schema } = &command.act {
            self.prepared.insert(*id, ShadowStatement::new(Arc::clone(text), schema.clone()));
            if command.ticket.is_none() {
                return;
            }
        }
        let mut ticket = command.ticket.take();
        if let Some(ticket) = &mut ticket {
            self.turn(ticket).await;
        }
        if self.strand.is_gone() || !self.open().await {
            return;
        }
        // It is used from now on.
        self.early = None;
        let limit_ms = self.copying.run.plan.order_wait_ms + MAX_RUN_MS + original_us(&command) / 100;
        let was_open = self.is_in_transaction();
        self.has_role |= mirror::may_set_role(&command.analysis);
        self.is_raced = ticket.as_ref().is_some_and(OrderTicket::is_raced) || was_open && self.is_raced;
        let Analysis { kind, facts, .. } = command.analysis;
        // Data definitions wait for no row, and those behind them need what they define.
        let defines = matches!(kind, Kind::Ddl | Kind::CreateTemporaryTable | Kind::DropTable | Kind::LockTables | Kind::FlushReadLock);
        // Of others than these, a part may be committed.
        let is_rows = matches!(kind, Kind::Select | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete);
        let is_whole = is_rows && !facts.contains(Facts::MULTI);
        for attempt in 1.. {
            let heard = self.heard(&command, ticket.as_mut().filter(|_| !defines), is_whole, limit_ms).await;
            self.is_raced |= ticket.as_ref().is_some_and(OrderTicket::is_raced);
            self.has_locks = self.is_in_transaction() && (was_open && self.has_locks || ticket.as_ref().is_some_and(OrderTicket::is_write));
            match heard {
                Ok(Ok(Some(heard))) => {
                    let is_by_lock = heard.answer.error.is_some_and(rehearsal::is_of_locks);
                    if is_by_lock && is_whole && attempt < ATTEMPTS && (!was_open || self.is_still_open().await) {
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

    /// What the shadow answers within `limit_ms`. If that takes long, the others pass a statement that leaves nothing half done (`is_whole`),
    /// and then leave the order for any; without a ticket they wait.
    async fn heard(
        &mut self,
        command: &CopiedCommand,
        ticket: Option<&mut OrderTicket>,
        is_whole: bool,
        limit_ms: u64,
    ) -> Result<io::Result<Option<Heard>>, Elapsed> {
        let patience = self.patience(original_us(command));
        let mut act = pin!(timeout(Duration::from_millis(limit_ms), self.act(command)));
        let Some(ticket) = ticket else { return act.await };
        if let Ok(heard) = timeout(patience, &mut act).await {
            return heard;
        }
        if is_whole {
            ticket.pass();
        }
        if let Ok(heard) = timeout(patience, &mut act).await {
            return heard;
        }
        ticket.stick();
        act.await
    }

    /// How long a statement may run until the others pass it. Always longer than at the original: a shadow as fast as that keeps the order.
    fn patience(&self, original_us: u64) -> Duration {
        let original = Duration::from_micros(original_us);
        let longest = original + Duration::from_millis(self.copying.run.plan.order_wait_ms / 2);
        (PATIENCE + original.saturating_mul(4)).min(longest)
    }

    /// Whether a transaction outlived the error of a statement. A lock wait ends the statement alone, unless the shadow has
    /// `innodb_rollback_on_timeout`; a deadlock ends it.
    async fn is_still_open(&mut self) -> bool {
        let Some(backend) = self.backend.as_mut() else { return false };
        let asked = async {
            backend.send(Command::Ping, &[]).await?;
            backend.collect(ReplyKind::Simple, false, &self.worker.buffers).await
        };
        let told = timeout(Duration::from_millis(MAX_RUN_MS), asked).await;
        matches!(told, Ok(Ok(reply)) if reply.error.is_none() && reply.ok.status.contains(StatusFlags::IN_TRANS))
    }

    /// The server's number of a prepared statement, which is prepared where it was not; the error where that is refused. `now`: the
    /// session's schema.
    async fn server_id(&mut self, id: u32, now: Option<&Text>) -> io::Result<Result<u32, ServerError>> {
        let (Some(prepared), Some(backend)) = (self.prepared.get_mut(&id), self.backend.as_mut()) else {
            return Err(invalid("a prepared statement is not known on the shadow"));
        };
        if let Some(server_id) = prepared.server_id {
            return Ok(Ok(server_id));
        }
        let pool = &self.worker.buffers;
        let elsewhere = prepared.schema.as_ref().filter(|schema| Some(*schema) != now);
        if let Some(schema) = elsewhere
            && let Some(error) = backend.init_db(schema, pool).await?.error
        {
            return Ok(Err(error));
        }
        backend.send(Command::StmtPrepare, &prepared.text).await?;
        let reply = backend.collect(ReplyKind::Prepare, true, pool).await?;
        if elsewhere.is_some() {
            // No command leaves a schema.
            let schema = now.ok_or_else(|| invalid("the session has no schema any more"))?;
            if backend.init_db(schema, pool).await?.error.is_some() {
                return Err(invalid("the session's schema is not on the shadow any more"));
            }
        }
        match reply.error {
            // That is the shadow's room, not its version: it has a connection for each session.
            Some(error) if error.code == codes::MAX_PREPARED_STMT_COUNT_REACHED => {
                return Err(invalid("the shadow has no room for prepared statements (max_prepared_stmt_count)"));
            }
            Some(error) => return Ok(Err(error)),
            None => {}
        }
        let ok = prepare_ok(&reply.raw).ok_or_else(|| invalid("malformed answer to COM_STMT_PREPARE"))?;
        prepared.server_id = Some(ok.stmt_id);
        Ok(Ok(ok.stmt_id))
    }

    /// Prepares a statement; what was answered, unless both servers have prepared it.
    async fn prepare(&mut self, id: u32, command: &CopiedCommand) -> io::Result<Option<Heard>> {
        let error = self.server_id(id, command.schema.as_ref()).await?.err();
        if id == 0 {
            self.close_statement(id).await?;
        }
        let is_refused = command.original.as_ref().is_some_and(|(answer, _)| answer.error.is_some());
        Ok(match error {
            Some(error) => Some(Heard { answer: Answer::of_error(error.code), time_us: 0, error: text_of(&error) }),
            None if is_refused => Some(Heard { answer: Answer::default(), time_us: 0, error: String::new() }),
            None => None,
        })
    }

    async fn close_statement(&mut self, id: u32) -> io::Result<()> {
        self.forget_long_data(id);
        let closed = self.prepared.remove(&id).and_then(|prepared| prepared.server_id);
        let Some(backend) = self.backend.as_mut() else { return Ok(()) };
        backend.close_statements(&self.worker.counters, closed.as_slice()).await
    }

    /// Runs the command; what was answered to a statement.
    async fn act(&mut self, command: &CopiedCommand) -> io::Result<Option<Heard>> {
        let mut out = Vec::new();
        let digest = command.digest.as_ref().map_or(0, |digest| digest.hash);
        let left_out = rehearsal::left_out(&self.copying.run.plan.ignores, digest, self.schema_of(command));
        let form = match &command.act {
            Act::Query(text) => {
                let Some(backend) = self.backend.as_ref() else { return Ok(None) };
                put_query(&mut out, text, backend.core.caps);
                Form::Text
            }
            Act::Execute { id, payload } => {
                let server_id = match self.server_id(*id, command.schema.as_ref()).await? {
                    Ok(server_id) => server_id,
                    Err(error) => {
                        return Ok(Some(Heard { answer: Answer::of_error(error.code), time_us: 0, error: text_of(&error) }));
                    }
                };
                self.send_long_data(*id, server_id).await?;
                let mut payload = payload.clone();
                put_stmt_id(&mut payload, server_id).map_err(invalid)?;
                put_command(&mut out, Command::StmtExecute, payload.get(1..).unwrap_or_default());
                Form::Binary
            }
            Act::Prepare { id, .. } => return self.prepare(*id, command).await,
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
        let mut listener = Listener::new(form, self.worker.shared.clock, left_out);
        let reply = mirror::hear(backend, pool, &mut listener).await?;
        backend.settled();
        let error = reply.error.as_ref().map(text_of).unwrap_or_default();
        let (answer, time_us) = listener.finish().ok_or_else(|| invalid("an answer cannot be read"))?;
        Ok(Some(Heard { answer, time_us, error }))
    }

    /// Sends the long data of an execution ahead of it. It has no answer: what is wrong with it is said at the execution.
    async fn send_long_data(&mut self, id: u32, server_id: u32) -> io::Result<()> {
        let (Some(prepared), Some(backend)) = (self.prepared.get(&id), self.backend.as_mut()) else { return Ok(()) };
        for body in &prepared.long_data {
            let mut out = Vec::with_capacity(body.len() + 16);
            put_command(&mut out, Command::StmtSendLongData, &[&server_id.to_le_bytes()[..], body].concat());
            backend.link.start_command();
            backend.link.write_all(&out).await?;
        }
        Ok(())
    }

    /// A command that is no statement.
    async fn simple(&mut self, act: &Act) -> io::Result<()> {
        let (kind, body) = match act {
            Act::InitDb(schema) => (Command::InitDb, schema.to_vec()),
            Act::SetOption(option) => (Command::SetOption, option.to_vec()),
            Act::Close(id) => return self.close_statement(*id).await,
            // Long data is the execution's, and nothing of it is on the server before.
            Act::Query(_) | Act::Execute { .. } | Act::Prepare { .. } | Act::LongData { .. } | Act::Reset(_) => return Ok(()),
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
            let (user, schema) = (&*session.lane.user.name, self.schema_of(command));
            let class = match opinion {
                _ if is_lost => Class::OutOfOrder,
                _ if rehearsal::ignored(&run.plan.ignores, first, digest.hash, schema).is_some() => first,
                _ if !original.is_whole || !heard.answer.is_whole => Class::Unchecked,
                Opinion::Take(class) => class,
                Opinion::Ask => {
                    let excuses = Excuses {
                        is_raced: self.is_raced || run.may_lack_writes(),
                        reads_other_clock: traits.reads_clock && !is_pinned,
                        refuses_stale_writes: rehearsal::refuses_stale_writes(&run.original.version),
                    };
                    rehearsal::judge_once(first, [original, &heard.answer], traits, excuses)
                }
            };
            let doubt = (class == Class::Unchecked).then(|| doubt(first, original, &heard.answer));
            let difference = Difference { digest, text, lex: session.lex, user, schema, original: (original, *original_us), heard, doubt };
            let ignored = rehearsal::ignored(&run.plan.ignores, class, digest.hash, schema);
            record(&run, &difference, class, ignored, false);
        }
        if is_lost {
            self.break_off(GaveUp::Order, "");
        }
    }

    /// The schema in which a statement looks up its names.
    fn schema_of<'a>(&'a self, command: &'a CopiedCommand) -> &'a [u8] {
        let schema = match &command.act {
            Act::Execute { id, .. } => self.prepared.get(id).and_then(|prepared| prepared.schema.as_deref()),
            Act::Prepare { schema, .. } => schema.as_deref(),
            _ => command.schema.as_deref(),
        };
        schema.unwrap_or_default()
    }

    fn text<'a>(&'a self, act: &'a Act) -> &'a [u8] {
        match act {
            Act::Query(text) => text,
            Act::Prepare { text, .. } => text,
            Act::Execute { id, .. } => self.prepared.get(id).map_or(&[], |prepared| &prepared.text),
            _ => &[],
        }
    }
}

/// Why a difference is unchecked whose first class was this.
fn doubt(first: Class, original: &Answer, shadow: &Answer) -> Doubt {
    match () {
        () if !original.is_whole || !shadow.is_whole => Doubt::TooLong,
        () if first == Class::Unchecked => Doubt::TimeLimit,
        () if [original.error, shadow.error].into_iter().flatten().any(rehearsal::is_of_locks) => Doubt::Locks,
        () => Doubt::Overlap,
    }
}

/// How long the original's server took, us; 0 for what is not compared.
fn original_us(command: &CopiedCommand) -> u64 {
    command.original.as_ref().map_or(0, |(_, time_us)| *time_us)
}

/// Whether servers need not agree because the statement shows what is theirs.
fn is_of_server(analysis: &Analysis) -> bool {
    matches!(analysis.kind, Kind::Show | Kind::Explain) || analysis.facts.intersects(Facts::VARIABLES | Facts::SYSTEM_VARIABLE)
}
