//! Sending a statement and passing its reply on, with a small fixed window.
//!
//! One task does both directions: while the client is slow the server is not read. INVARIANT: at most
//! [`WINDOW`] bytes of a reply are held, but for a single packet that must be understood whole.

use super::Session;
use super::backends::Backends;
use super::connection::Connection;
use super::copied;
use super::end::End;
use super::fault::{Certainty, Fault};
use super::frontend::Frontend;
use super::guard::{guarded, unless_killed};
use super::hand::AtHand;
use super::leave::Overdue;
use super::plan::Plan;
use super::recovery::Recovery;
use super::sync::Ahead;
use crate::backends::backend::OUTSTANDING;
use crate::backends::side_connection::{self, KilledBy};
use crate::clients::session_handle::Signal;
use crate::net::buffer::{Buffer, WINDOW};
use crate::net::link::Sent;
use crate::workers::counters::add;
use crate::workers::prefetch::Extent;
use crate::workers::worker::Worker;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;
use wire::reframe::{Processed, Reframe, ReplyFacts, TrackFilter};
use wire::reply::ReplyKind;

/// How long a server may take to answer a statement that was killed, ms.
const GIVE_UP_AFTER_MS: u64 = 5000;

/// How long nothing is heard of a client of which no more can be read, until it is looked at whether it is still there.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How far passing on bytes has come.
enum Forwarded {
    /// All that was there; so many bytes must be there to go on.
    All { needs: usize },
    /// The client does not take all of it now.
    Part(Box<Part>),
}

/// Bytes on their way to the client.
struct Part {
    input: Buffer,
    out: Vec<u8>,
    processed: Processed,
    /// How many of them it has.
    taken: usize,
}

enum RelayEvent {
    Backend(usize),
    Signal(Signal),
    ClientGone,
    /// No more of what the client pipelines can be read.
    ClientIsAhead,
}

impl Session {
    /// Sends the statement (`what` picks its bytes), with what goes ahead of it.
    pub(super) async fn send_statement(&mut self, ahead: &Ahead, what: Outgoing<'_>) -> Result<(), Fault> {
        match self.client.send_outgoing_at_once(&mut self.at, ahead, what)? {
            Sent { is_all: true, .. } => Ok(()),
            // A state change goes ahead, or the server does not read.
            Sent { taken, .. } => Box::pin(self.send_waiting(ahead, what, taken)).await,
        }
    }

    /// Sends what [`Frontend::send_outgoing_at_once`] left, and hears the answers to what went ahead.
    async fn send_waiting(&mut self, ahead: &Ahead, what: Outgoing<'_>, taken: usize) -> Result<(), Fault> {
        let Some(backend) = self.at.backend.as_mut() else { return Err(self.at.pinned_backend_lost("no backend")) };
        let statement = what.bytes(&self.client.input);
        let result = if ahead.packets.is_empty() {
            unless_killed(&self.handle, backend.link.write_all(statement.get(taken..).unwrap_or_default())).await
        } else {
            let mut all = Vec::with_capacity(ahead.packets.len() + statement.len());
            all.extend_from_slice(&ahead.packets);
            all.extend_from_slice(statement);
            unless_killed(&self.handle, backend.link.write_all(&all)).await
        };
        let certainty = if taken > 0 { Certainty::Unknown } else { if_it_failed(statement.len() + ahead.packets.len()) };
        result.map_err(|e| self.at.lost(&e, certainty))?;
        self.recovery.collect_ahead(&mut self.at, ahead).await
    }

    /// Passes the reply on to the client; returns what it said.
    pub(super) async fn relay(&mut self, plan: &Plan) -> Result<ReplyFacts, Fault> {
        let mut facts = ReplyFacts::default();
        self.relay_to(plan, &mut facts).await.map(|()| facts)
    }

    /// The same, which writes down what it said in `facts`.
    pub(super) async fn relay_to(&mut self, plan: &Plan, facts: &mut ReplyFacts) -> Result<(), Fault> {
        *facts = ReplyFacts::default();
        self.client.is_half_told = false;
        let mut began = false;
        if let Some(fill) = self.hand.fill.as_mut() {
            fill.restart();
        }
        let began_ns = self.worker.meter.rules().times_backends.then(|| self.worker.shared.clock.now_ns());
        let filter = self.client.filter.take();
        let result = self.relay_with(plan, filter.as_deref(), facts, &mut began).await;
        self.client.filter = filter;
        if let Some(began_ns) = began_ns {
            add(&self.worker.counters.backend_ns, self.worker.shared.clock.now_ns().saturating_sub(began_ns));
        }
        match result {
            Err(Fault::Lost { text, pins, .. }) if began => Err(Fault::Lost { certainty: Certainty::Answering, text, pins }),
            result => result,
        }
    }

    async fn relay_with(
        &mut self,
        plan: &Plan,
        filter: Option<&TrackFilter>,
        facts: &mut ReplyFacts,
        began: &mut bool,
    ) -> Result<(), Fault> {
        let from = match self.at.backend.as_ref() {
            Some(backend) => backend.core.caps,
            None => return Err(self.at.pinned_backend_lost("no backend")),
        };
        let mut reframe = Reframe::new(plan.reply, from, self.client.caps, filter, self.client.current_status())
            .with_patches(&plan.patches)
            .with_whole_packets(self.client.link.frame_seq().is_some())
            .with_file(self.client.may_send_file(plan))
            .hiding(self.recovery.hidden(&self.hand))
            .hiding_gtids(!tells_client_gtids(&self.worker, filter));
        reframe.set_next_seq(self.client.answer_seq());
        self.recovery.reply_hasher = self.recovery.reply_hasher_for(&self.at, &self.client, plan, from);
        if let Some(beside) = self.beside.as_mut() {
            beside.reply_begins(from);
        }
        loop {
            // One byte tells: what is no error is not looked at.
            if !*began
                && self.at.backend.begins_with(wire::message::ERR)
                && let Some(fault) = self.withhold(&plan.analysis)
            {
                self.at.statement_is_over().await;
                return Err(fault);
            }
            let forwarded = match self.forward(&mut reframe, facts, began) {
                Ok(Forwarded::Part(part)) => self.client.forward_rest(&mut self.at, part).await,
                Ok(Forwarded::All { needs }) => Ok(needs),
                Err(fault) => Err(fault),
            };
            let needs = forwarded.map_err(|fault| self.client.cut_short(&reframe, fault))?;
            if reframe.is_done() {
                break;
            }
            if reframe.wants_infile() {
                // Rare, and long.
                Box::pin(self.client.send_clients_file(&mut self.at, &mut self.hand, &mut reframe)).await?;
                continue;
            }
            if let Some(signal @ (Signal::KillQuery | Signal::QueryTimeout)) = self.handle.pending() {
                // A server that sends faster than the client takes always has more at hand.
                self.hand.interrupt(&mut self.at, signal)?;
            }
            let overdue = self.recovery.when_overdue(&self.at, &self.client, &self.facts, *began, &plan.analysis);
            self.client
                .read_backend(&mut self.at, &mut self.hand, needs, overdue)
                .await
                .map_err(|fault| self.client.cut_short(&reframe, fault))?;
            if self.handle.is_timed_out() {
                reframe.set_timed_out();
            }
        }
        self.at.statement_is_over().await;
        if matches!(self.handle.pending(), Some(Signal::KillQuery | Signal::QueryTimeout)) {
            // It came too late, and is not for the next statement.
            self.handle.clear_signal();
        }
        if let Some(code) = facts.error {
            self.client.tell_of_error(&self.at, code, &facts.message);
        }
        if let Some(backend) = self.at.backend.as_mut() {
            backend.input.release(&self.worker.buffers);
            if let Some(status) = facts.status {
                backend.core.held.has_status(status);
            }
        }
        Ok(())
    }

    /// Passes on what the backend's input holds, as far as that goes without waiting for the client.
    fn forward(&mut self, reframe: &mut Reframe<'_>, facts: &mut ReplyFacts, began: &mut bool) -> Result<Forwarded, Fault> {
        let Some(mut input) = self.at.backend.as_mut().map(|b| std::mem::take(&mut b.input)) else {
            return Ok(Forwarded::All { needs: 0 });
        };
        // Only while bytes are passed on: a session that waits for its server leaves it to the others.
        let mut out = self.worker.scratch.take();
        let processed = match reframe.process(input.filled_mut(), &mut out, facts) {
            Ok(processed) => processed,
            Err(e) => {
                let fault = self.at.lost(&io::Error::new(io::ErrorKind::InvalidData, e), Certainty::Unknown);
                self.at.forwarded(input, out, 0);
                return Err(fault);
            }
        };
        let direct = input.filled().get(..processed.consumed).unwrap_or_default();
        let bytes: &[u8] = if processed.direct { direct } else { &out };
        let held = self.recovery.assigned_gtid.as_mut().and_then(|assignment| assignment.holds());
        *began |= !bytes.is_empty() && held.is_none();
        if let Some(fill) = self.hand.fill.as_mut() {
            fill.feed(direct);
        }
        if let Some(hasher) = self.recovery.reply_hasher.as_mut() {
            hasher.feed(direct);
        }
        let is_last = self.beside.as_mut().is_some_and(|beside| beside.hears(direct));
        let sent = match held {
            Some(held) => {
                held.extend_from_slice(bytes);
                Ok(Sent::ALL)
            }
            None if bytes.is_empty() => Ok(Sent::ALL),
            None => self.client.write_front_at_once(&self.at, bytes),
        };
        if is_last && *began {
            copied::answer_ended(self);
        }
        match sent {
            Ok(Sent { is_all: false, taken }) => Ok(Forwarded::Part(Box::new(Part { input, out, processed, taken }))),
            sent => {
                self.at.forwarded(input, out, processed.consumed);
                sent.map(|_| Forwarded::All { needs: processed.needs }).map_err(Fault::End)
            }
        }
    }
}

impl Frontend {
    /// The answer ends here. A client that has a part of it can be told nothing more: it would take that for a row, or the rest of one.
    /// Compressed, it has whole packets only, unless the write of them ended early: see [`Frontend::may_be_told`].
    fn cut_short(&mut self, reframe: &Reframe<'_>, fault: Fault) -> Fault {
        self.is_half_told = self.link.numbers_packets() && reframe.has_begun();
        fault
    }

    /// Waits until the client has taken the rest; returns how many bytes must be there to go on.
    async fn forward_rest(&mut self, at: &mut Backends, part: Box<Part>) -> Result<usize, Fault> {
        let Part { input, out, processed, taken } = *part;
        let bytes: &[u8] = if processed.direct { input.filled().get(..processed.consumed).unwrap_or_default() } else { &out };
        let written = self.write_front_rest(at, bytes.get(taken..).unwrap_or_default()).await;
        at.forwarded(input, out, processed.consumed);
        written.map(|()| processed.needs).map_err(Fault::End)
    }

    /// The next event while the client's buffer is full: what waits behind it hides the client's end.
    async fn next_event_behind_client(&mut self, at: &mut Backends) -> io::Result<RelayEvent> {
        match tokio::time::timeout(LOOK_AGAIN, poll_fn(|cx| self.poll_event(at, cx))).await {
            Ok(event) => event,
            Err(_) if self.link.stream().is_read_closed() => Ok(RelayEvent::ClientGone),
            Err(_) => Ok(RelayEvent::ClientIsAhead),
        }
    }

    fn poll_event(&mut self, at: &mut Backends, cx: &mut Context<'_>) -> Poll<io::Result<RelayEvent>> {
        let Self { link: front, input, .. } = self;
        let Backends { backend, worker, handle, .. } = at;
        let Some(backend) = backend.as_mut() else { return Poll::Ready(Ok(RelayEvent::Backend(0))) };
        // What the kernel does meanwhile takes longer than it takes to come.
        Extent::of(&*backend.core).fetch();
        if let Poll::Ready(result) = backend.link.poll_read(cx, &mut backend.input, &worker.buffers) {
            return Poll::Ready(result.map(RelayEvent::Backend));
        }
        if let Some(signal) = handle.poll_signal(cx) {
            return Poll::Ready(Ok(RelayEvent::Signal(signal)));
        }
        // A client that pipelines is read as far as its buffer goes; then the kernel holds the rest.
        while !input.is_full() && front.poll_readable(cx).is_ready() {
            match front.poll_read(cx, input, &worker.buffers) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Ok(RelayEvent::ClientGone)),
                Poll::Ready(Ok(_)) if input.is_full() => return Poll::Ready(Ok(RelayEvent::ClientIsAhead)),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => break,
            }
        }
        Poll::Pending
    }

    /// Waits for more of the reply; meanwhile a client that leaves and a kill are noticed.
    pub(super) async fn read_backend(&mut self, at: &mut Backends, hand: &mut AtHand, needs: usize, overdue: Overdue) -> Result<(), Fault> {
        if let Some(backend) = at.backend.as_mut() {
            backend.input.reserve(needs, &at.worker.buffers);
        }
        loop {
            let event = if self.input.is_full() {
                Box::pin(self.next_event_behind_client(at)).await
            } else {
                poll_fn(|cx| self.poll_event(at, cx)).await
            };
            match event {
                Ok(RelayEvent::Backend(0)) => return Err(at.lost(&io::ErrorKind::UnexpectedEof.into(), Certainty::Unknown)),
                Ok(RelayEvent::Backend(n)) => {
                    let window = usize::try_from(at.worker.snapshot().vars.frontend_window).unwrap_or(WINDOW);
                    if let Some(backend) = at.backend.as_mut().filter(|b| b.input.is_full() && b.input.len() < window && n > window / 8) {
                        // A large reply: a larger window costs fewer system calls.
                        backend.input.reserve(window, &at.worker.buffers);
                    }
                    return Ok(());
                }
                Ok(RelayEvent::ClientGone) => return Err(End::ClientGone.into()),
                Ok(RelayEvent::ClientIsAhead) => {}
                Ok(RelayEvent::Signal(signal)) => {
                    if signal == Signal::Demoted
                        && let Some(fault) = overdue.give_up_if_due(at)
                    {
                        at.handle.clear_signal();
                        return Err(fault);
                    }
                    hand.interrupt(at, signal)?
                }
                Err(e) => return Err(at.lost(&e, Certainty::Unknown)),
            }
        }
    }

    /// The same as far as that goes without waiting, where nothing goes ahead.
    fn send_outgoing_at_once(&mut self, at: &mut Backends, ahead: &Ahead, what: Outgoing<'_>) -> Result<Sent, Fault> {
        let Some(backend) = at.backend.as_mut() else {
            return Err(at.pinned_backend_lost("no backend"));
        };
        if !backend.is_even() {
            return Err(at.lost(&io::Error::other(OUTSTANDING), Certainty::NeverSent));
        }
        backend.link.start_command();
        if !ahead.packets.is_empty() {
            return Ok(Sent::NONE);
        }
        let statement = what.bytes(&self.input);
        let certainty = if_it_failed(statement.len());
        backend.link.send_at_once(statement).map_err(|e| at.lost(&e, certainty))
    }
}

impl Recovery {
    /// The replies to what was sent ahead.
    async fn collect_ahead(&mut self, at: &mut Backends, ahead: &Ahead) -> Result<(), Fault> {
        for _ in 0..ahead.replies {
            let Some(backend) = at.backend.as_mut() else { break };
            match guarded(&at.worker, &at.handle, backend.collect(ReplyKind::Results, false, &at.worker.buffers)).await {
                Ok(reply) if reply.error.is_none() => {}
                // The server was closing the connection already: it read nothing of this.
                Ok(reply) if reply.unasked => {
                    let error = reply.error.map(|e| e.to_string()).unwrap_or_default();
                    return Err(at.lost(&io::Error::other(error), Certainty::NeverSent));
                }
                Ok(reply) => {
                    // A value that was accepted before is refused now, and the statement runs without it.
                    let error = reply.error.map(|e| e.to_string()).unwrap_or_default();
                    tracing::error!("session {}: the server refused a state change: {error}; connection closed", at.handle.id);
                    return Err(at.lost(&io::Error::other(error), Certainty::Unknown));
                }
                Err(e) => return Err(at.lost(&e, Certainty::Unknown)),
            }
        }
        match ahead.gtid_replies {
            0 => Ok(()),
            replies => Box::pin(self.hear_gtid(at, replies)).await,
        }
    }
}

impl AtHand {
    /// A signal while the statement runs.
    pub(super) fn interrupt(&mut self, at: &mut Backends, signal: Signal) -> Result<(), Fault> {
        at.handle.clear_signal();
        match signal {
            Signal::KillQuery | Signal::QueryTimeout => {
                at.handle.kill_statement(signal);
                if let Some(backend) = at.backend.as_mut() {
                    backend.core.killed = true;
                    // The server then answers the statement with its own error.
                    let by = if signal == Signal::KillQuery { KilledBy::Client } else { KilledBy::Proxy };
                    side_connection::kill_statement(&at.worker, &at.pool, backend, by);
                }
                at.handle.give_up_at(at.worker.shared.clock.now_ms() + GIVE_UP_AFTER_MS);
                Ok(())
            }
            Signal::GiveUp => {
                Err(at.lost(&io::Error::new(io::ErrorKind::TimedOut, "the server did not answer a KILL"), Certainty::Unknown))
            }
            Signal::Demoted => {
                if let Some(places) = &mut at.places {
                    places.look_after(&at.handle, at.worker.shared.clock.now_ms());
                }
                self.hurry_up(at)
            }
            Signal::Cut if !at.backend.as_ref().is_some_and(|b| b.core.server.is_cut()) => Ok(()),
            Signal::Cut => Err(at.lost(&io::Error::other("the server was taken out of service"), Certainty::Unknown)),
            Signal::KillConnection => Err(End::Killed.into()),
            Signal::TransactionTimeout => Err(End::TransactionTimeout.into()),
            Signal::Stop => Err(End::Shutdown.into()),
            // Looked at again when the session is idle.
            Signal::Drain | Signal::IdleTimeout | Signal::Park | Signal::HandOver | Signal::GiveBack => Ok(()),
        }
    }
}

impl Backends {
    /// What was taken to pass bytes on goes back to where it was.
    fn forwarded(&mut self, mut input: Buffer, out: Vec<u8>, consumed: usize) {
        input.consume(consumed);
        self.worker.scratch.put(out);
        if let Some(backend) = self.backend.as_mut() {
            backend.input = input;
        }
    }
}

/// What is known of bytes that were to be sent, and were not: few go out in one system call, and if that failed, nothing was sent.
fn if_it_failed(len: usize) -> Certainty {
    if len <= WINDOW { Certainty::NeverSent } else { Certainty::Unknown }
}

/// The bytes of a statement.
#[derive(Clone, Copy)]
pub(super) enum Outgoing<'a> {
    /// The first bytes of the session's input, as they came.
    AsItCame(usize),
    /// Rewritten.
    Bytes(&'a [u8]),
}

impl<'a> Outgoing<'a> {
    /// They themselves, with `input` the session's.
    pub(super) fn bytes(self, input: &'a Buffer) -> &'a [u8] {
        match self {
            Outgoing::AsItCame(len) => input.filled().get(..len).unwrap_or_default(),
            Outgoing::Bytes(bytes) => bytes,
        }
    }
}

/// Whether a client with this filter is told GTIDs.
pub(super) fn tells_client_gtids(worker: &Worker, filter: Option<&TrackFilter>) -> bool {
    filter.is_some_and(|filter| filter.gtids) && worker.snapshot().vars.client_session_track_gtid
}
