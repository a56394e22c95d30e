//! Statements of several sessions on one backend: sent in one write, answered in order, each reply to its session.
//!
//! Each batch is a task. It runs until the server has answered all statements, then gives the backend back to the pool, where the backend
//! may serve the next batch. INVARIANTS: the replies come in the order in which the statements were written. The reply to a session that
//! left is dropped. All statements are reads that may run twice (see the session's `ride`).
//!
//! If the reply at the head is late, the statements behind it run alone on other backends, and their replies here are dropped. A reply
//! with an error or a warning, or a long reply, is dropped too. Its statement runs alone, and the client gets that reply.

use super::HostgroupPool;
use super::riders::{Answer, Ridden};
use super::waiting::{Outcome, Waiter};
use crate::backends::backend::Backend;
use crate::backends::side_connection::{Loss, Watch, end_lost_connection};
use crate::hostgroups::lane::Lane;
use crate::net::stream::invalid;
use crate::statements::habits::{Habit, QuickLimits};
use crate::workers::counters::add;
use crate::workers::safety::Safety;
use crate::workers::worker::Worker;
use model::fleet::SignalKind;
use session_state::certainty::is_killed;
use session_state::collected::ServerError;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use wire::codes;
use wire::flags::StatusFlags;
use wire::packet::{HEADER, header};
use wire::reframe::ReplyFacts;
use wire::split::{Ended, Splitter};

/// A reply that says one of these was left in the session is not like others.
const LEFT_STATE: StatusFlags = StatusFlags::SESSION_STATE_CHANGED.union(StatusFlags::IN_TRANS).union(StatusFlags::IN_TRANS_READONLY);

/// See the module.
pub(super) struct Batch {
    worker: Rc<Worker>,
    pool: Rc<HostgroupPool>,
    lane: Rc<Lane>,
    backend: Backend,
    /// Whose replies are outstanding, in order.
    riders: VecDeque<Rc<Waiter>>,
    /// The statements; those from `written` on are still to be sent.
    out: Vec<u8>,
    written: usize,
    splitter: Splitter,
    /// The reply at the head as far as it came, unless it is longer than may be.
    reply: Vec<u8>,
    /// How long it is so far.
    reply_len: usize,
    sent_us: u64,
    /// Since when (process clock, us) the server has worked at the statement at the head.
    head_since_us: u64,
    is_late: bool,
    /// When (process clock, us) it is next looked whether a late head is still wanted: bytes that arrive do not put it off.
    next_look_us: u64,
    /// Status flags of the last reply.
    status: Option<StatusFlags>,
    left: Left,
    /// Looks whether a late head runs, on a server that is to be left.
    watch: Option<Rc<Watch>>,
}

/// What the statements left on the connection.
#[derive(Default)]
struct Left {
    warnings: bool,
    state: bool,
}

/// Why a batch ends before all was answered.
enum Ends {
    /// The connection is of no use any more.
    Lost(io::Error),
    /// Its server takes long over what nobody waits for.
    GivenUp,
}

enum Event {
    Read(usize),
    Late,
}

impl Batch {
    /// Of these sessions, in this order.
    pub(super) fn new(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, lane: &Rc<Lane>, backend: Backend, riders: Vec<Rc<Waiter>>) -> Self {
        let now_us = worker.shared.clock.now_us();
        Self {
            worker: Rc::clone(worker),
            pool: Rc::clone(pool),
            lane: Rc::clone(lane),
            splitter: Splitter::new(backend.core.caps),
            backend,
            riders: riders.into(),
            out: Vec::new(),
            written: 0,
            reply: Vec::new(),
            reply_len: 0,
            sent_us: now_us,
            head_since_us: now_us,
            is_late: false,
            next_look_us: 0,
            status: None,
            left: Left::default(),
            watch: None,
        }
    }

    /// To its end.
    pub(super) async fn run(mut self) {
        let served = self.serve().await;
        let core = &self.backend.core;
        let traffic = self.backend.link.take_traffic();
        self.worker.meter.count_traffic((core.server.key.hostgroup, core.server.index), traffic);
        match served {
            Ok(()) => self.give_back(),
            Err(ends) => self.lose(ends),
        }
    }

    async fn serve(&mut self) -> Result<(), Ends> {
        self.send().map_err(Ends::Lost)?;
        while !self.riders.is_empty() {
            if self.deal().map_err(Ends::Lost)? {
                continue;
            }
            match self.next_event().await.map_err(Ends::Lost)? {
                Event::Read(0) => return Err(Ends::Lost(io::ErrorKind::UnexpectedEof.into())),
                Event::Read(_) if self.is_late && self.worker.shared.clock.now_us() >= self.next_look_us => self.head_is_late()?,
                Event::Read(_) => {}
                Event::Late => self.head_is_late()?,
            }
        }
        Ok(())
    }

    /// Sends what is still wanted, as far as that goes without waiting.
    fn send(&mut self) -> io::Result<()> {
        self.riders.retain(|waiter| is_riding(waiter));
        if !self.backend.core.server.standing.is_usable(self.worker.shared.clock.now_ms()) && !Safety::LastLook.is_off() {
            // Its role went since its turn came: nothing begins there.
            self.send_away(0);
            self.riders.clear();
            return Ok(());
        }
        self.put_statements();
        if self.out.is_empty() {
            return Ok(());
        }
        self.pool.count_sent(&self.worker, self.riders.len() as u64);
        self.sent_us = self.worker.shared.clock.now_us();
        self.head_since_us = self.sent_us;
        self.backend.link.start_command();
        self.written = self.backend.link.send_at_once(&self.out)?.taken;
        Ok(())
    }

    /// The statements as this backend gets them. One that the backend lacks after all runs alone.
    fn put_statements(&mut self) {
        let Self { riders, backend, out, worker, pool, .. } = self;
        riders.retain(|waiter| {
            let from = out.len();
            let rider = waiter.wish.rider.as_deref();
            let is_put = rider.is_some_and(|rider| rider.put(&mut backend.core.statements, out).is_some());
            if !is_put {
                pool.count_again(worker);
                waiter.finish(Outcome::Ridden(Ridden::Alone));
            } else if Safety::SentOnce.is_off() {
                out.extend_from_within(from..);
            }
            is_put
        });
    }

    /// Deals with what is at hand of the reply at the head. False where more must come first.
    fn deal(&mut self) -> io::Result<bool> {
        let taken = self.splitter.take(self.backend.input.filled()).map_err(invalid)?;
        self.reply_len += taken.consumed;
        if self.reply_len <= self.longest_reply() {
            self.reply.extend_from_slice(self.backend.input.filled().get(..taken.consumed).unwrap_or_default());
        }
        self.backend.input.consume(taken.consumed);
        let Some(ended) = taken.ended else {
            if self.reply_len > self.longest_reply() && !self.is_late {
                // Its session need not wait until all of it has come, and those behind it neither.
                if let Some(habit) = self.head_habit() {
                    habit.rests(self.worker.shared.clock.now_ms());
                }
                self.is_late = true;
                // The rest of it is read in peace for as long as a late head has.
                self.next_look_us = self.worker.shared.clock.now_us() + self.late_us();
                self.send_away(0);
            }
            self.backend.input.reserve(taken.needs, &self.worker.buffers);
            return Ok(false);
        };
        if ended.unasked {
            // The server ended the connection before it read any of them.
            self.send_away(0);
            return Err(io::Error::other(self.error().to_string()));
        }
        self.head_ended(ended);
        Ok(true)
    }

    fn longest_reply(&self) -> usize {
        usize::try_from(self.worker.snapshot().vars.pipeline_max_reply_bytes).unwrap_or(usize::MAX)
    }

    /// How long the server may work at one statement before those behind it go elsewhere, us.
    fn late_us(&self) -> u64 {
        self.worker.snapshot().vars.pipeline_late_ms * 1000
    }

    /// More of the replies, while the rest of the statements is sent; or the head's time is over.
    async fn next_event(&mut self) -> io::Result<Event> {
        let past_us = self.worker.shared.clock.now_us().saturating_sub(self.head_since_us);
        let left_us = if self.is_late { self.late_us() } else { self.late_us().saturating_sub(past_us) };
        let Self { backend, worker, out, written, .. } = self;
        let read = poll_fn(|cx| {
            while let Some(rest) = out.get(*written..).filter(|rest| !rest.is_empty()) {
                match backend.link.poll_send(cx, rest) {
                    Poll::Ready(taken) => *written += taken?,
                    Poll::Pending => break,
                }
            }
            // What TLS holds back; without room it goes with the next look.
            if let Poll::Ready(flushed) = backend.link.poll_flush(cx) {
                flushed?;
            }
            backend.link.poll_read(cx, &mut backend.input, &worker.buffers)
        });
        match tokio::time::timeout(Duration::from_micros(left_us), read).await {
            Ok(read) => read.map(Event::Read),
            Err(_) => Ok(Event::Late),
        }
    }

    /// Those behind the head go elsewhere; the head is waited for as long as its session waits.
    fn head_is_late(&mut self) -> Result<(), Ends> {
        let now_ms = self.worker.shared.clock.now_ms();
        self.next_look_us = now_ms * 1000 + self.late_us();
        let is_first_look = !std::mem::replace(&mut self.is_late, true);
        if let Some(habit) = self.head_habit() {
            // Later on, one that was sent away may be at the head.
            if is_first_look {
                habit.was_late(now_ms);
            } else if self.riders.front().is_some_and(|head| is_riding(head)) {
                habit.is_late_still(now_ms);
            }
        }
        if is_first_look {
            self.send_away(1);
        }
        let is_awaited = self.riders.iter().any(|waiter| is_riding(waiter));
        let server = &self.backend.core.server;
        let is_left = server.standing.is_cut_off() && server.standing.leave_at_ms() <= now_ms;
        if !is_awaited {
            return Err(Ends::GivenUp);
        }
        if server.is_cut() || is_left {
            return Err(Ends::Lost(io::Error::other("the proxy stopped using the server")));
        }
        if server.standing.leave_at_ms() <= now_ms { self.watch_overdue(now_ms) } else { Ok(()) }
    }

    /// The time to finish on the server is over: the head may go on as long as it runs there.
    fn watch_overdue(&mut self, now_ms: u64) -> Result<(), Ends> {
        let watch = self.watch.get_or_insert_with(|| Watch::new(now_ms));
        if watch.is_over() {
            let why = "the proxy stopped using the server, and the statement or its reply was lost";
            return Err(Ends::Lost(io::Error::other(why)));
        }
        watch.look_if_due(&self.worker, &self.pool, &self.backend.core, now_ms);
        Ok(())
    }

    /// What is known of the statement at the head.
    fn head_habit(&self) -> Option<&Habit> {
        self.riders.front()?.wish.rider.as_deref().map(|rider| &*rider.habit)
    }

    /// Those from this place on run alone; their replies are dropped.
    fn send_away(&mut self, from: usize) {
        for waiter in self.riders.iter().skip(from).filter(|waiter| is_riding(waiter)) {
            self.pool.count_again(&self.worker);
            waiter.finish(Outcome::Ridden(Ridden::Alone));
        }
    }

    /// The reply at the head is complete.
    fn head_ended(&mut self, ended: Ended) {
        let to = if Safety::OwnReply.is_off() { self.riders.pop_back() } else { self.riders.pop_front() };
        let Some(waiter) = to else { return };
        let (now_us, vars) = (self.worker.shared.clock.now_us(), &self.worker.snapshot().vars);
        let since_us = std::mem::replace(&mut self.head_since_us, now_us);
        let (took_us, is_first) = (now_us.saturating_sub(since_us), since_us == self.sent_us);
        let is_short = self.reply_len <= self.longest_reply();
        let is_clean = is_short && ended.error.is_none() && !ended.warned && ended.results == 1 && ended.had_rows;
        let has_left_state = ended.status.intersects(LEFT_STATE);
        if let Some(rider) = waiter.wish.rider.as_deref() {
            if is_clean && !has_left_state {
                self.lane.habits.ran_beside(&rider.habit, took_us, is_first, QuickLimits::of(vars));
            } else {
                rider.habit.rests(now_us / 1000);
            }
        }
        if self.worker.meter.rules().times_backends {
            add(&self.worker.counters.backend_ns, took_us * 1000);
        }
        self.note_left(&ended);
        self.note_unknown(&ended, &waiter);
        let bytes = std::mem::take(&mut self.reply);
        self.reply_len = 0;
        if !is_riding(&waiter) || Safety::EveryReply.is_off() {
            self.pool.count_dropped(&self.worker);
        } else if has_left_state && !is_clean {
            waiter.finish(Outcome::Ridden(Ridden::Changed));
        } else if ended.error.is_some_and(is_killed) {
            // As any statement that was lost with its connection: how often it may run again is limited.
            waiter.finish(Outcome::Ridden(Ridden::Lost("Connection was killed".to_owned())));
        } else if is_clean {
            let answer = Answer { bytes, caps: self.backend.core.caps, sent_us: self.sent_us };
            waiter.finish(Outcome::Ridden(Ridden::Answered(answer)));
        } else {
            self.pool.count_again(&self.worker);
            waiter.finish(Outcome::Ridden(Ridden::Alone));
        }
        if has_left_state {
            // What follows runs in another state than its sessions want.
            self.send_away(0);
        }
    }

    fn note_left(&mut self, ended: &Ended) {
        self.left.warnings |= ended.error.is_some() || ended.warned;
        self.left.state |= ended.status.intersects(LEFT_STATE);
        match ended.error {
            Some(code) => {
                let error = self.error();
                self.worker.shared.server_erred(&self.backend.core.server, code, &error.message, false);
            }
            None => self.status = Some(ended.status),
        }
    }

    /// The server no longer knows a statement that was prepared there. The next execution prepares it again.
    fn note_unknown(&mut self, ended: &Ended, waiter: &Waiter) {
        let execution = waiter.wish.rider.as_deref().and_then(|rider| rider.execution.as_ref());
        if let Some(execution) = execution.filter(|_| ended.error == Some(codes::UNKNOWN_STMT_HANDLER)) {
            self.backend.core.statements.remove(&execution.key);
        }
    }

    /// The error at the end of the reply at hand.
    fn error(&self) -> ServerError {
        let mut at = 0;
        while let Some(next) = self.reply.get(at..).and_then(header).map(|(len, _)| at + HEADER + len) {
            if next >= self.reply.len() {
                break;
            }
            at = next;
        }
        ServerError::read(self.reply.get(at + HEADER..).unwrap_or_default(), self.backend.core.caps)
    }

    /// All is answered.
    fn give_back(self) {
        let Self { worker, pool, lane, mut backend, left, status, .. } = self;
        let is_out_of_step = !backend.input.is_empty();
        if is_out_of_step {
            tracing::warn!("{} sent more replies than statements, connection closed", backend.core.server.key);
        }
        if is_out_of_step || left.state {
            drop(backend);
            return pool.grow(&worker);
        }
        backend.input.release(&worker.buffers);
        let held = &mut backend.core.held;
        held.ran_for_several();
        if let Some(status) = status {
            held.has_status(status);
        }
        if left.warnings {
            held.failed();
        } else {
            held.answered(&ReplyFacts::default(), backend.core.info.flavor);
        }
        pool.release_to(&worker, &lane, backend);
    }

    /// The connection is closed, and what runs there ended.
    fn lose(self, ends: Ends) {
        let Self { worker, pool, backend, riders, .. } = self;
        let server = &backend.core.server;
        let loss = match ends {
            Ends::GivenUp => Loss::GivenUp,
            Ends::Lost(e) => {
                let text = e.to_string();
                riders.iter().filter(|waiter| is_riding(waiter)).for_each(|waiter| {
                    waiter.finish(Outcome::Ridden(Ridden::Lost(text.clone())));
                });
                if !server.is_cut() && !server.standing.is_cut_off() {
                    worker.shared.signal(server, SignalKind::ConnectionLost);
                }
                Loss::Closed
            }
        };
        if server.is_severed() {
            drop(backend);
            return pool.grow(&worker);
        }
        tokio::task::spawn_local(end_lost_connection(worker, pool, backend, loss));
    }
}

/// Whether its session still waits for the reply.
fn is_riding(waiter: &Waiter) -> bool {
    matches!(*waiter.outcome.borrow(), Outcome::Riding)
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
