//! 1:1 connections: `fast_forward` users, and replicas once their dump has begun.
//!
//! Bytes pass unread, each way by itself and with a bounded buffer of its own: neither side can hold the other up. While no answer is
//! awaited, the client's frames are looked at, for a KILL of a session's id and for what has no answer.

use super::Session;
use super::backends::Backends;
use super::end::End;
use super::fault::{Fault, end_of_pinned};
use super::frontend::Frontend;
use crate::backends::side_connection::{self, KilledBy};
use crate::clients::session_handle::{Activity, Signal};
use crate::net::buffer::{Buffer, WINDOW};
use crate::net::link::Link;
use crate::workers::mailbox::KillKind;
use crate::workers::worker::{FIRST_SESSION_ID, Worker};
use serde::{Deserialize, Serialize};
use session_state::facts::SessionFacts;
use session_state::pins::PinReason;
use session_state::wants::Wants;
use sql::{Kill, KillTarget};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use wire::command::Command;
use wire::packet::{self, HEADER, MAX_PAYLOAD};

/// How long the server must have been silent after an answer, us, until it is taken for a whole one.
const ANSWERED_AFTER_US: u64 = 1_000_000;
/// How long a client may refuse to take bytes, us.
const WRITE_TIMEOUT_US: u64 = 60_000_000;
/// At most so many bytes at a time go to a client that is sent so many a second.
const MIN_PIECE: usize = 512;

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
    /// Bytes to come of the client's frame, which is of a command that has no answer.
    #[serde(default)]
    unanswered: usize,
    /// That frame is full: the next one continues its command.
    #[serde(default)]
    is_continued: bool,
}

impl Passage {
    /// Of a dump of the binlog.
    pub(super) fn endless() -> Self {
        Self { is_endless: true, ..Self::default() }
    }

    /// The client has sent a part of a command that has no answer.
    fn is_within_command(&self) -> bool {
        self.unanswered > 0 || self.is_continued
    }

    /// The client has sent these bytes, and awaited no answer before. Returns where among them a command begins that has one. A frame of
    /// which less than its first byte of payload is there counts as such a command.
    fn hear(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if self.unanswered > 0 {
                let n = self.unanswered.min(rest.len());
                self.unanswered -= n;
                at += n;
                continue;
            }
            let continues = std::mem::take(&mut self.is_continued);
            let frame = packet::header(rest).filter(|(_, seq)| continues || *seq == 0 && has_no_answer(rest.get(HEADER)));
            let Some((len, _)) = frame else {
                self.awaits_answer = true;
                return Some(at);
            };
            (self.unanswered, self.is_continued) = (HEADER + len, len == MAX_PAYLOAD);
        }
        None
    }
}

/// Whether a command that begins with this byte has no answer.
fn has_no_answer(first: Option<&u8>) -> bool {
    matches!(first.copied().and_then(Command::from_u8), Some(Command::StmtClose | Command::StmtSendLongData))
}

enum PassthroughEvent {
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
                return match self.client.send_error_at(&mut self.at, self.client.login_seq, code, &state, &text).await {
                    Ok(()) => End::Refused(String::from_utf8_lossy(&text).into_owned()),
                    Err(end) => end,
                };
            }
            Err(Fault::End(end)) => return end,
            Err(Fault::Lost { text, .. }) => return End::BackendLost(text),
            Err(Fault::Refused { .. }) => return End::StreamEnded,
        };
        self.handle.row.held.set(Some(backend.shown()));
        self.at.backend = Some(backend);
        let now = self.worker.clock.now_ms();
        self.at.pins.begin(PinReason::Replication, now, 0);
        self.at.publish_session(&self.client, &self.wants);
        if let Err(end) = self.client.welcome(&mut self.at, &self.wants).await {
            return end;
        }
        self.client.command_seq = 1;
        self.pump(Passage { drains: self.worker.shared.is_draining(), ..Passage::default() }).await
    }

    /// Passes bytes both ways until a side closes or the session is told to end.
    pub(super) async fn pump(&mut self, mut passage: Passage) -> End {
        self.client.note_passed(&self.at, &passage);
        loop {
            match self.client.next_passed(&mut self.at, &mut passage).await {
                Ok(PassthroughEvent::Moved) => self.client.note_passed(&self.at, &passage),
                Ok(PassthroughEvent::Command) => {
                    match self.client.hear_client(&mut self.at, &mut self.facts, &self.wants, &mut passage).await {
                        Ok(()) => self.client.note_passed(&self.at, &passage),
                        Err(end) => return end,
                    }
                }
                Ok(PassthroughEvent::Disturbed) => {}
                Err(_) => return End::StreamEnded,
            }
            self.at.note_traffic();
            // Signals come first: a session that is to end does not go to another process.
            let disturbed = self.handle.pending().and_then(|signal| self.client.disturbed_in(&mut self.at, &mut passage, signal));
            if let Some(end) = disturbed {
                return end;
            }
            if self.worker.shared.has_successor()
                && let Err(end) = Box::pin(self.hand_over(Some(&passage))).await
            {
                return end;
            }
            if let Some(end) = self.client.has_ended(&self.at, &passage) {
                return end;
            }
        }
    }
}

impl Frontend {
    /// Whom this command kills, if that is a session of the proxy's: clients know such ids from their greetings.
    fn killed_in(&self, at: &Backends, wants: &Wants, payload: &[u8]) -> Option<(u64, KillKind)> {
        let (id, kind) = if payload.first() == Some(&(Command::ProcessKill as u8)) {
            (u64::from(u32::from_le_bytes(*payload.get(1..)?.first_chunk()?)), KillKind::Connection)
        } else {
            let sql = wire::query::split_query(payload, self.caps).ok()?.sql;
            match sql::parse_kill(payload.get(sql)?, wants.lex, at.handle.id)? {
                Kill { target: KillTarget::Connection(id), .. } => (id, KillKind::Connection),
                Kill { target: KillTarget::Query(id), .. } => (id, KillKind::Query),
            }
        };
        (id >= FIRST_SESSION_ID / 2 && at.worker.shared.user_of(id).is_some()).then_some((id, kind))
    }
}

impl Frontend {
    /// It is at rest, and has been for so long that what the server said was a whole answer.
    fn is_answered(&self, at: &Backends, passage: &Passage) -> bool {
        self.is_at_rest(at, passage) && passage.answered_us + ANSWERED_AFTER_US <= at.worker.shared.clock.now_us()
    }

    /// Nothing is under way, as far as can be told from outside.
    fn is_at_rest(&self, at: &Backends, passage: &Passage) -> bool {
        !passage.awaits_answer
            && !passage.is_within_command()
            && self.input.is_empty()
            && at.backend.as_ref().is_none_or(|backend| backend.input.is_empty())
    }

    /// An error packet has no place within an answer.
    fn told_at_rest(&self, at: &Backends, passage: &Passage, end: End) -> End {
        if self.is_at_rest(at, passage) && !passage.is_endless { end } else { End::StreamEnded }
    }

    /// Waits until bytes have moved, either way, or something else has happened.
    async fn next_passed(&mut self, at: &mut Backends, passage: &mut Passage) -> io::Result<PassthroughEvent> {
        let rate = at.worker.snapshot().vars.throttle_max_bytes_per_second_to_client;
        let now_us = at.worker.shared.clock.now_us();
        let pays = rate > 0 && at.handle.paid_until_us.get() > now_us && at.backend.as_ref().is_some_and(|b| !b.input.is_empty());
        let at_us = self.looked_at_us(at, passage, pays);
        let mut timer = pin!(tokio::time::sleep(Duration::from_micros(at_us.unwrap_or(now_us).saturating_sub(now_us))));
        let Self { link: front, input, .. } = self;
        let Backends { backend, worker, handle, .. } = at;
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
                    handle.paid_until_us.set(worker.shared.clock.now_us().saturating_add(cost_us));
                }
                moved |= taken.is_some_and(|n| n > 0);
                // A stall that begins moves the timer.
                moved |= taken.is_none() && passage.stalled_since_us.is_none();
                passage.stalled_since_us = match taken {
                    None => passage.stalled_since_us.or_else(|| Some(worker.shared.clock.now_us())),
                    Some(_) => None,
                };
            }
            let (begins, before) = (!passage.awaits_answer && input.is_empty(), input.len());
            if !passage.client_closed
                && let Poll::Ready(n) = fill(front, input, worker, cx)?
            {
                passage.client_closed = n == 0;
                if n > 0 && begins {
                    return Poll::Ready(Ok(PassthroughEvent::Command));
                }
                if !passage.awaits_answer {
                    passage.hear(input.filled().get(before..).unwrap_or_default());
                }
                moved = true;
            }
            if moved {
                return Poll::Ready(Ok(PassthroughEvent::Moved));
            }
            input.release(&worker.buffers);
            backend.input.release(&worker.buffers);
            if handle.poll_signal(cx).is_some() || at_us.is_some() && timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(PassthroughEvent::Disturbed));
            }
            Poll::Pending
        })
        .await
    }

    /// When (process clock, us) it is to be looked at again, whatever happens.
    fn looked_at_us(&self, at: &Backends, passage: &Passage, pays: bool) -> Option<u64> {
        let stalled = passage.stalled_since_us.map(|since_us| since_us + WRITE_TIMEOUT_US);
        let answered = (passage.drains && self.is_at_rest(at, passage)).then_some(passage.answered_us + ANSWERED_AFTER_US);
        let paid = pays.then(|| at.handle.paid_until_us.get());
        [stalled, answered, paid].into_iter().flatten().min()
    }

    /// Whether it is over, and how.
    fn has_ended(&self, at: &Backends, passage: &Passage) -> Option<End> {
        let now_us = at.worker.shared.clock.now_us();
        let is_read = self.input.is_empty();
        let is_told = at.backend.as_ref().is_none_or(|backend| backend.input.is_empty());
        if passage.client_closed && is_read {
            return Some(if passage.has_quit || self.is_at_rest(at, passage) { End::Quit } else { End::StreamEnded });
        }
        if passage.server_closed && is_told {
            return Some(if passage.has_quit { End::Quit } else { End::StreamEnded });
        }
        if passage.stalled_since_us.is_some_and(|since_us| since_us + WRITE_TIMEOUT_US <= now_us) {
            return Some(End::WriteTimeout);
        }
        (passage.drains && (passage.is_endless || self.is_answered(at, passage))).then(|| self.told_at_rest(at, passage, End::Shutdown))
    }

    fn disturbed_in(&mut self, at: &mut Backends, passage: &mut Passage, signal: Signal) -> Option<End> {
        at.handle.clear_signal();
        match signal {
            Signal::KillConnection => return Some(self.told_at_rest(at, passage, End::Killed)),
            Signal::Stop => return Some(self.told_at_rest(at, passage, End::Shutdown)),
            Signal::Cut | Signal::Demoted => {
                let why = at.backend.as_ref().and_then(|backend| backend.core.server.standing.why_cut());
                let end = end_of_pinned(why.unwrap_or("the proxy stopped using the server"), at.pins.set());
                return Some(self.told_at_rest(at, passage, end));
            }
            Signal::IdleTimeout if self.is_at_rest(at, passage) => {
                return Some(self.told_at_rest(at, passage, End::Idle));
            }
            Signal::Park if at.handle.is_idle() => at.handle.set_parked(),
            Signal::Drain => passage.drains = true,
            Signal::KillQuery if !self.is_answered(at, passage) => {
                if let Some(backend) = at.backend.as_mut() {
                    side_connection::kill_statement(&at.worker, &at.pool, backend, KilledBy::Client);
                }
            }
            _ => {}
        }
        None
    }

    /// Bytes have moved. A connection at rest is idle, as far as can be told from outside; a dump of the binlog never is.
    fn note_passed(&self, at: &Backends, passage: &Passage) {
        if at.user.fast_forward {
            let is_idle = self.is_at_rest(at, passage) && !passage.is_endless;
            at.handle.set_activity(if is_idle { Activity::Idle } else { Activity::Running }, at.worker.clock.now_ms());
        }
    }

    /// The client begins to speak: what is asked of the proxy is answered by it, the rest goes to the server.
    async fn hear_client(&mut self, at: &mut Backends, facts: &mut SessionFacts, wants: &Wants, passage: &mut Passage) -> Result<(), End> {
        // The rest of a command goes on in the numbering of its packets.
        if let Some(backend) = at.backend.as_mut().filter(|_| !passage.is_within_command()) {
            backend.link.start_command();
        }
        let Some(start) = passage.hear(self.input.filled()) else { return Ok(()) };
        let bytes = self.input.filled().get(start..).unwrap_or_default();
        let whole = packet::header(bytes).filter(|(len, seq)| *seq == 0 && bytes.len() == HEADER + len).is_some();
        let payload = if whole { bytes.get(HEADER..).unwrap_or_default() } else { &[] };
        let is_answer_told = at.backend.as_ref().is_none_or(|backend| backend.input.is_empty());
        match payload.first().copied().and_then(Command::from_u8) {
            Some(Command::Query | Command::ProcessKill) => {
                if let Some((id, kind)) = self.killed_in(at, wants, payload).filter(|_| is_answer_told) {
                    self.input.consume_behind(start, HEADER + payload.len());
                    self.command_seq = 1;
                    passage.awaits_answer = false;
                    return self.kill_session(at, facts, id, kind).await;
                }
            }
            Some(Command::Quit) => passage.has_quit = true,
            Some(Command::BinlogDump | Command::BinlogDumpGtid) => passage.is_endless = true,
            _ => {}
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::bed::Bed;
    use wire::charset::Flavor;
    use wire::packet::put_packet;

    /// Commands as a client sends them.
    fn commands(all: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        all.iter().for_each(|payload| put_packet(&mut bytes, &mut 0, payload));
        bytes
    }

    #[test]
    fn commands_without_an_answer_are_passed_over_up_to_one_that_has_one() {
        let (close, ping) = ([Command::StmtClose as u8, 1, 0, 0, 0], [Command::Ping as u8]);
        let data = [Command::StmtSendLongData as u8, 1, 0, 0, 0, 0, 0, b'x'];
        let one = HEADER + close.len();
        for (all, expected) in [
            (&[&ping[..]][..], Some(0)),
            (&[&close[..], &ping], Some(one)),
            (&[&close, &close, &ping], Some(2 * one)),
            (&[&close, &ping, &close], Some(one)),
            (&[&data, &close, &ping], Some(HEADER + data.len() + one)),
            (&[&close, &close], None),
            (&[&data, &data], None),
            (&[&close], None),
            (&[], None),
        ] {
            let mut passage = Passage::default();
            assert_eq!(passage.hear(&commands(all)), expected, "{all:?}");
            assert_eq!((passage.awaits_answer, passage.is_within_command()), (expected.is_some(), false), "{all:?}");
        }
    }

    #[test]
    fn part_of_a_command_is_left_for_later() {
        let bytes = commands(&[&[Command::StmtClose as u8, 1, 0, 0, 0], &[Command::Ping as u8]]);
        for (len, expected, is_within) in
            [(HEADER, Some(0), false), (HEADER + 4, None, true), (HEADER + 5, None, false), (HEADER + 6, Some(HEADER + 5), false)]
        {
            let mut passage = Passage::default();
            assert_eq!(passage.hear(&bytes[..len]), expected, "{len}");
            assert_eq!(passage.is_within_command(), is_within, "{len}");
        }
    }

    #[tokio::test]
    async fn long_data_in_pieces_awaits_no_answer() {
        let data = [&[Command::StmtSendLongData as u8, 1, 0, 0, 0, 0, 0][..], &[b'x'; 300]].concat();
        let bytes = commands(&[&data[..]]);
        let mut bed = Bed::new("").on(Flavor::MySql);
        let mut passage = Passage::default();
        for (piece, is_at_rest) in [(&bytes[..100], false), (&bytes[100..], true)] {
            bed.arrives(piece);
            let session = &mut *bed;
            session.client.hear_client(&mut session.at, &mut session.facts, &session.wants, &mut passage).await.unwrap();
            bed.client.input.consume(piece.len());
            assert_eq!((passage.awaits_answer, bed.client.is_at_rest(&bed.at, &passage)), (false, is_at_rest));
        }
        bed.arrives(&commands(&[&[Command::Ping as u8][..]]));
        let session = &mut *bed;
        session.client.hear_client(&mut session.at, &mut session.facts, &session.wants, &mut passage).await.unwrap();
        assert!(passage.awaits_answer);
    }

    #[test]
    fn long_data_over_several_frames_is_one_command() {
        let data = vec![Command::StmtSendLongData as u8; 2 * MAX_PAYLOAD];
        let mut passage = Passage::default();
        for piece in commands(&[&data]).chunks(MAX_PAYLOAD - 1) {
            assert!(passage.hear(piece).is_none() && !passage.awaits_answer);
        }
        assert!(!passage.is_within_command());
        assert_eq!(passage.hear(&commands(&[&[Command::Ping as u8]])), Some(0));
    }
}
