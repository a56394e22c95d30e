//! 1:1 connections: `fast_forward` users, and replicas that ask for the binlog.
//!
//! Bytes pass unread, each way by itself and with a bounded buffer of its own: neither side can hold the other up. Only the
//! first packet after an answer is looked at, for a KILL of a session's id and for what has no answer.

use super::command::Incoming;
use super::end::End;
use super::fault::{Fault, end_of_pinned};
use super::frontend::Frontend;
use super::leave::Overdue;
use super::relay::Outgoing;
use super::run::Plan;
use super::{Session, kill};
use crate::buffer::{Buffer, WINDOW};
use crate::entry::{Activity, Signal};
use crate::link::Link;
use crate::mailbox::KillKind;
use crate::pins::{PinReason, PinSet};
use crate::replica::Replica;
use crate::view::Held;
use crate::worker::{FIRST_SESSION_ID, Worker};
use serde::{Deserialize, Serialize};
use sql::{Analysis, Kill, KillTarget};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use wire::command::Command;
use wire::packet::{self, HEADER};
use wire::reframe::ReplyFacts;
use wire::reply::ReplyKind;

/// How long the server must have been silent after an answer, us, until it is taken for a whole one.
const ANSWERED_AFTER_US: u64 = 1_000_000;
/// How long a client may refuse to take bytes, us.
const WRITE_TIMEOUT_US: u64 = 60_000_000;
/// At most so many bytes at a time go to a client that is sent so many a second.
const MIN_PIECE: usize = 512;
/// First byte of an error packet.
const ERROR: u8 = 0xff;

/// Where a 1:1 connection stands.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Passage {
    /// The client has said something since the server last spoke.
    awaits_answer: bool,
    /// When (process clock, us) the server last spoke.
    answered_us: u64,
    /// It goes on for ever: a dump of the binlog.
    is_endless: bool,
    /// The client has said COM_QUIT.
    has_quit: bool,
    client_closed: bool,
    server_closed: bool,
    /// Since when (process clock, us) the client takes nothing.
    stalled_since_us: Option<u64>,
    /// The process stops: the end comes with the answer that is awaited.
    drains: bool,
}

enum Event {
    /// Bytes went on.
    Moved,
    /// A signal came, or it is time to look again.
    Disturbed,
    /// The client speaks after an answer.
    Command,
}

impl Session {
    /// Serves a `fast_forward` user: a connection of its own, packets as they come. The login is answered by the server.
    pub(super) async fn pass_through(&mut self) -> End {
        self.client.command_seq = self.client.login_seq;
        let backend = match self.obtain_own().await {
            Ok(backend) => backend,
            Err(Fault::Error { code, sqlstate, text }) => {
                let state = String::from_utf8_lossy(&sqlstate).into_owned();
                return match self.send_error_at(self.client.login_seq, code, &state, &text).await {
                    Ok(()) => End::Refused(String::from_utf8_lossy(&text).into_owned()),
                    Err(end) => end,
                };
            }
            Err(Fault::End(end)) => return end,
            Err(Fault::Lost { text, .. }) => return End::BackendLost(text),
            Err(Fault::Refused { .. }) => return End::StreamEnded,
        };
        self.entry.view.held.set(Some(Held::of(&backend)));
        self.backend = Some(backend);
        let now = self.now_ms();
        self.pins.begin(PinReason::Replication, now, 0);
        self.publish();
        if let Err(end) = self.welcome().await {
            return end;
        }
        self.client.command_seq = 1;
        self.pump(Passage { drains: self.worker.shared.is_draining(), ..Passage::default() }).await
    }

    /// COM_REGISTER_SLAVE, COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID: from here the connection is the replica's.
    pub(super) async fn replicate(&mut self, command: Incoming) -> Result<(), End> {
        let now = self.now_ms();
        let analysis = Analysis::of_command(command.byte);
        let plan = Plan { reply: ReplyKind::Simple, ..Plan::new(analysis) };
        let was_replicas = self.pins.set().contains(PinReason::Replication);
        let mut reply = ReplyFacts::default();
        let result = match command.byte == Command::RegisterSlave as u8 {
            true => {
                self.pins.begin(PinReason::Replication, now, analysis.digest);
                self.run_plan(command, &plan, &mut reply).await
            }
            false => match self.begin_dump(command, &analysis).await {
                // Servers close the connection when a dump has ended: bytes pass until a side closes.
                Ok(true) => {
                    self.client.input.consume(command.wire_len);
                    return Err(Box::pin(self.pump(Passage { is_endless: true, ..Passage::default() })).await);
                }
                Ok(false) => self.relay_to(&plan, &mut reply).await,
                Err(fault) => Err(fault),
            },
        };
        if !was_replicas && (result.is_err() || reply.error.is_some()) {
            self.pins.end(PinReason::Replication);
        }
        match result {
            Ok(()) => {
                self.leave_warnings();
                self.note_status(&analysis, &reply);
                self.settle(&analysis, &reply, |_, _| false).await
            }
            Err(fault) => self.report(fault).await,
        }
    }

    /// Whether a dump begins where GTIDs say: MySQL's has a command of its own, MariaDB's a user variable.
    fn streams_by_gtid(&self, command: Incoming) -> bool {
        command.byte == Command::BinlogDumpGtid as u8
            || self.state.user_variables.get("slave_connect_state").is_some_and(|text| is_set(text))
    }

    /// Asks the server for its binlog, and waits for the beginning of its answer: false when that is an error, which is still to be
    /// passed on and leaves the session what it was.
    async fn begin_dump(&mut self, command: Incoming, analysis: &Analysis) -> Result<bool, Fault> {
        let ahead = loop {
            self.obtain().await?;
            let ahead = self.sync(analysis).await?;
            if self.may_begin() {
                break ahead;
            }
        };
        self.pins.begin(PinReason::Replication, self.now_ms(), analysis.digest);
        self.send_statement(&ahead, Outgoing::AsItCame(command.wire_len)).await?;
        let first = loop {
            if let Some(first) = self.backend.as_ref().and_then(|backend| backend.input.filled().get(HEADER)) {
                break *first;
            }
            self.read_backend(HEADER + 1, Overdue::MayNeverEnd).await?;
        };
        let has_begun = first != ERROR;
        if has_begun {
            let literal = |names: [&str; 2]| names.iter().find_map(|name| self.state.user_variables.get(name)).cloned();
            let (connect_state, uuid) = (literal(["slave_connect_state"; 2]), literal(["replica_uuid", "slave_uuid"]));
            let replica = Replica::asking(
                command.byte,
                self.client.body(command),
                connect_state.as_deref().filter(|text| is_set(text)),
                uuid.as_deref(),
                self.now_ms(),
            );
            replica.into_iter().for_each(|replica| self.entry.set_replica(replica));
        }
        if has_begun && self.streams_by_gtid(command) {
            self.pins.end(PinReason::Replication);
            self.pins.begin(PinReason::ReplicationGtid, self.now_ms(), analysis.digest);
            self.publish();
        }
        Ok(has_begun)
    }

    /// Passes bytes both ways until a side closes or the session is told to end.
    pub(super) async fn pump(&mut self, mut passage: Passage) -> End {
        self.note_activity(&passage);
        loop {
            match self.next_passed(&mut passage).await {
                Ok(Event::Moved) => self.note_activity(&passage),
                Ok(Event::Command) => match self.hear(&mut passage).await {
                    Ok(()) => self.note_activity(&passage),
                    Err(end) => return end,
                },
                Ok(Event::Disturbed) => {}
                Err(_) => return End::StreamEnded,
            }
            self.note_traffic();
            if self.worker.shared.has_heir()
                && let Err(end) = Box::pin(self.hand_over(Some(&passage))).await
            {
                return end;
            }
            let disturbed = self.entry.pending().and_then(|signal| self.disturbed_in(&mut passage, signal));
            if let Some(end) = disturbed.or_else(|| self.ended(&passage)) {
                return end;
            }
        }
    }

    /// Bytes have moved. A connection at rest is idle, as far as can be told from outside; a dump of the binlog never is.
    fn note_activity(&self, passage: &Passage) {
        if self.user.fast_forward {
            let is_idle = self.is_at_rest(passage) && !passage.is_endless;
            self.entry.set_activity(if is_idle { Activity::Idle } else { Activity::Running }, self.now_ms());
        }
    }

    /// Whether it is over, and how.
    fn ended(&self, passage: &Passage) -> Option<End> {
        let now_us = self.worker.shared.clock.now_us();
        let is_read = self.client.input.is_empty();
        let is_told = self.backend.as_ref().is_none_or(|backend| backend.input.is_empty());
        if passage.client_closed && is_read {
            return Some(if passage.has_quit || self.is_at_rest(passage) { End::Quit } else { End::StreamEnded });
        }
        if passage.server_closed && is_told {
            return Some(if passage.has_quit { End::Quit } else { End::StreamEnded });
        }
        if passage.stalled_since_us.is_some_and(|since_us| since_us + WRITE_TIMEOUT_US <= now_us) {
            return Some(End::WriteTimeout);
        }
        (passage.drains && (passage.is_endless || self.is_answered(passage))).then(|| self.told_at_rest(passage, End::Shutdown))
    }

    /// It is at rest, and has been for so long that what the server said was a whole answer.
    fn is_answered(&self, passage: &Passage) -> bool {
        self.is_at_rest(passage) && passage.answered_us + ANSWERED_AFTER_US <= self.worker.shared.clock.now_us()
    }

    /// Nothing is under way, as far as can be told from outside.
    fn is_at_rest(&self, passage: &Passage) -> bool {
        !passage.awaits_answer && self.client.input.is_empty() && self.backend.as_ref().is_none_or(|backend| backend.input.is_empty())
    }

    /// An error packet has no place within an answer.
    fn told_at_rest(&self, passage: &Passage, end: End) -> End {
        if self.is_at_rest(passage) && !passage.is_endless { end } else { End::StreamEnded }
    }

    fn disturbed_in(&mut self, passage: &mut Passage, signal: Signal) -> Option<End> {
        self.entry.clear_signal();
        match signal {
            Signal::KillConnection => return Some(self.told_at_rest(passage, End::Killed)),
            Signal::Stop => return Some(self.told_at_rest(passage, End::Shutdown)),
            Signal::Cut | Signal::Demoted => return Some(self.told_at_rest(passage, self.server_taken())),
            Signal::IdleTimeout if self.is_at_rest(passage) => return Some(self.told_at_rest(passage, End::Idle)),
            Signal::Park if self.entry.is_idle() => self.entry.set_parked(),
            Signal::Drain => passage.drains = true,
            Signal::KillQuery if !self.is_answered(passage) => {
                if let Some(backend) = self.backend.as_mut() {
                    kill::kill_statement(&self.worker, &self.pool, backend);
                }
            }
            _ => {}
        }
        None
    }

    /// The server of this connection is not to be used any more.
    fn server_taken(&self) -> End {
        let why = self.backend.as_ref().and_then(|backend| backend.core.server.why_cut());
        end_of_pinned(why.unwrap_or("the server is not used any more"), self.pins.set())
    }

    /// The client begins to speak: what is asked of the proxy is answered by it, the rest goes to the server.
    async fn hear(&mut self, passage: &mut Passage) -> Result<(), End> {
        let at = before_answered(self.client.input.filled());
        let bytes = self.client.input.filled().get(at..).unwrap_or_default();
        let whole = packet::header(bytes).filter(|(len, seq)| *seq == 0 && bytes.len() == HEADER + len).is_some();
        let payload = if whole { bytes.get(HEADER..).unwrap_or_default() } else { &[] };
        passage.awaits_answer = true;
        let is_answer_told = self.backend.as_ref().is_none_or(|backend| backend.input.is_empty());
        if let Some(backend) = self.backend.as_mut() {
            backend.link.start_command();
        }
        match payload.first().copied().and_then(Command::from_u8) {
            Some(Command::Query | Command::ProcessKill) => {
                if let Some((id, kind)) = self.killed_by(payload).filter(|_| is_answer_told) {
                    self.client.input.consume_behind(at, HEADER + payload.len());
                    self.client.command_seq = 1;
                    passage.awaits_answer = false;
                    return self.kill_session(id, kind).await;
                }
            }
            Some(Command::Quit) => passage.has_quit = true,
            Some(Command::StmtClose | Command::StmtSendLongData) => passage.awaits_answer = false,
            Some(Command::BinlogDump | Command::BinlogDumpGtid) => passage.is_endless = true,
            _ => {}
        }
        Ok(())
    }

    /// Whom this command kills, if that is a session of the proxy's: clients know such ids from their greetings.
    fn killed_by(&self, payload: &[u8]) -> Option<(u64, KillKind)> {
        let (id, kind) = if payload.first() == Some(&(Command::ProcessKill as u8)) {
            (u64::from(u32::from_le_bytes(*payload.get(1..)?.first_chunk()?)), KillKind::Connection)
        } else {
            let sql = wire::query::split_query(payload, self.client.caps).ok()?.sql;
            match sql::parse_kill(payload.get(sql)?, self.lex, self.entry.id)? {
                Kill { target: KillTarget::Connection(id), .. } => (id, KillKind::Connection),
                Kill { target: KillTarget::Query(id), .. } => (id, KillKind::Query),
            }
        };
        (id >= FIRST_SESSION_ID / 2 && self.worker.shared.user_of(id).is_some()).then_some((id, kind))
    }

    /// When (process clock, us) it is to be looked at again, whatever happens.
    fn looked_at_us(&self, passage: &Passage, pays: bool) -> Option<u64> {
        let stalled = passage.stalled_since_us.map(|since_us| since_us + WRITE_TIMEOUT_US);
        let answered = (passage.drains && self.is_at_rest(passage)).then_some(passage.answered_us + ANSWERED_AFTER_US);
        let paid = pays.then(|| self.entry.paid_until_us.get());
        [stalled, answered, paid].into_iter().flatten().min()
    }

    /// Waits until bytes have moved, either way, or something else has happened.
    async fn next_passed(&mut self, passage: &mut Passage) -> io::Result<Event> {
        let rate = self.worker.snapshot().vars.throttle_max_bytes_per_second_to_client;
        let now_us = self.worker.shared.clock.now_us();
        let pays = rate > 0 && self.entry.paid_until_us.get() > now_us && self.backend.as_ref().is_some_and(|b| !b.input.is_empty());
        let at_us = self.looked_at_us(passage, pays);
        let mut timer = pin!(tokio::time::sleep(Duration::from_micros(at_us.unwrap_or(now_us).saturating_sub(now_us))));
        let Self { client: Frontend { link: front, input, .. }, backend, worker, entry, .. } = self;
        let Some(backend) = backend.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
        let budget = match rate {
            0 => usize::MAX,
            _ if pays => 0,
            rate => usize::try_from(rate / 20).unwrap_or(usize::MAX).max(MIN_PIECE),
        };
        poll_fn(|cx| {
            let mut moved = pass_on(&mut backend.link, input, usize::MAX, cx)?.unwrap_or(0) > 0;
            if !passage.server_closed
                && let Poll::Ready(n) = fill(&mut backend.link, &mut backend.input, worker, cx)?
            {
                passage.server_closed = n == 0;
                passage.answered_us = worker.shared.clock.now_us();
                passage.awaits_answer = false;
                moved = true;
            }
            if budget > 0 {
                let taken = pass_on(front, &mut backend.input, budget, cx)?;
                if rate > 0
                    && let Some(n) = taken.filter(|n| *n > 0)
                {
                    let cost_us = u64::try_from(n).unwrap_or(u64::MAX).saturating_mul(1_000_000) / rate;
                    entry.paid_until_us.set(worker.shared.clock.now_us().saturating_add(cost_us));
                }
                moved |= taken.is_some_and(|n| n > 0);
                // A stall that begins moves the timer.
                moved |= taken.is_none() && passage.stalled_since_us.is_none();
                passage.stalled_since_us = match taken {
                    None => passage.stalled_since_us.or_else(|| Some(worker.shared.clock.now_us())),
                    Some(_) => None,
                };
            }
            let begins = !passage.awaits_answer && input.is_empty();
            if !passage.client_closed
                && let Poll::Ready(n) = fill(front, input, worker, cx)?
            {
                passage.client_closed = n == 0;
                if n > 0 && begins {
                    return Poll::Ready(Ok(Event::Command));
                }
                passage.awaits_answer |= n > 0;
                moved = true;
            }
            if moved {
                return Poll::Ready(Ok(Event::Moved));
            }
            input.release(&worker.buffers);
            backend.input.release(&worker.buffers);
            if entry.poll_signal(cx).is_some() || at_us.is_some() && timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(Event::Disturbed));
            }
            Poll::Pending
        })
        .await
    }
}

/// Pins of a session that streams the binlog.
pub(super) const STREAMS: PinSet = PinSet::of(&[PinReason::Replication, PinReason::ReplicationGtid]);

/// Whether a user variable's literal is not NULL.
fn is_set(literal: &[u8]) -> bool {
    !literal.eq_ignore_ascii_case(b"NULL")
}

/// Length of the whole commands at the front that have no answer, where another one follows.
fn before_answered(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..)
        && let Some((len, 0)) = packet::header(rest)
        && rest.get(HEADER) == Some(&(Command::StmtClose as u8))
        && rest.len() > HEADER + len
    {
        at += HEADER + len;
    }
    at
}

/// Sends what the buffer holds, `budget` bytes at most, as far as there is room: how many bytes, None when the peer takes none.
fn pass_on(link: &mut Link, buffer: &mut Buffer, budget: usize, cx: &mut Context<'_>) -> io::Result<Option<usize>> {
    let mut sent = 0;
    while !buffer.is_empty() && sent < budget {
        let piece = buffer.filled().get(..buffer.len().min(budget - sent)).unwrap_or_default();
        match link.poll_send(cx, piece)? {
            Poll::Ready(n) => {
                buffer.consume(n);
                sent += n;
            }
            Poll::Pending => return Ok((sent > 0).then_some(sent)),
        }
    }
    let flushed = link.poll_flush(cx)?;
    Ok(if flushed.is_ready() || sent > 0 { Some(sent) } else { None })
}

/// Reads what there is, as far as the buffer has room; 0 is the end of the stream.
fn fill(link: &mut Link, buffer: &mut Buffer, worker: &Worker, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    if buffer.len() >= WINDOW || link.poll_readable(cx).is_pending() {
        return Poll::Pending;
    }
    if buffer.is_full() {
        buffer.reserve(WINDOW, &worker.buffers);
    }
    link.poll_read(cx, buffer, &worker.buffers)
}
