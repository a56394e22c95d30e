//! Getting a backend for a statement: the one the session is pinned to, an idle one, or a place in the queue.

use super::Session;
use super::backends::Backends;
use super::door::door;
use super::end::End;
use super::fault::Fault;
use super::frontend::Frontend;
use super::hand::AtHand;
use super::leave::BackendAtStart;
use super::recovery::Recovery;
use super::replay::NO_LIMIT;
use crate::backends::backend::Backend;
use crate::backends::connect::Raw;
use crate::clients::session_handle::{Activity, SessionHandle, Signal};
use crate::hostgroups::pool::{Acquire, AcquireError, Got, Rider, Wish};
use crate::workers::counters::count;
use crate::workers::safety::Safety;
use model::HostgroupId;
use session_state::wants::Wants;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use wire::codes;

/// A read waits for its readers for this long at least before it looks elsewhere.
const SHORTEST_HOLD: Duration = Duration::from_millis(10);

impl Session {
    /// Makes sure that the session holds a backend.
    pub(super) async fn obtain(&mut self) -> Result<(), Fault> {
        match self.obtain_at_once()? {
            BackendAtStart::AtHand => Ok(()),
            kept => self.obtain_later(kept).await,
        }
    }

    /// The same as far as that goes without waiting: with the one that it keeps, or an idle one.
    pub(super) fn obtain_at_once(&mut self) -> Result<BackendAtStart, Fault> {
        let kept = self.recovery.keeps_backend(&mut door!(self), self.hand.directions.needs)?;
        if kept != BackendAtStart::None {
            return Ok(kept);
        }
        count(&self.worker.counters.wants);
        if self.at.head_start_ends_us(u64::MAX).is_some() {
            return Ok(BackendAtStart::None);
        }
        let Some(backend) = self.hand.try_acquire_for(&self.at, &self.wants) else { return Ok(BackendAtStart::None) };
        self.at.take_on(&mut self.wants, backend);
        Ok(BackendAtStart::AtHand)
    }

    /// Gets one where [`Session::obtain_at_once`] had none.
    pub(super) async fn obtain_later(&mut self, kept: BackendAtStart) -> Result<(), Fault> {
        if kept == BackendAtStart::Moves {
            // Rare, and long.
            return Box::pin(self.reopen()).await;
        }
        let asked_us = self.worker.shared.clock.now_us();
        let others_go_first = self.at.head_start_ends_us(u64::MAX).is_some();
        self.obtain_since(others_go_first, asked_us, asked_us).await
    }

    /// Waits for one, in line since `asked_us` and for as long as one that asks at `from_us`. With `looks_first` a free one is taken before.
    pub(super) async fn obtain_since(&mut self, looks_first: bool, asked_us: u64, from_us: u64) -> Result<(), Fault> {
        let deadline_us = self.recovery.wait_deadline_us(&self.at, from_us);
        let backend = self.wait_for_backend(looks_first, asked_us, deadline_us).await?;
        self.at.take_on(&mut self.wants, backend);
        Ok(())
    }

    /// Takes one that a waiter was given, unless replays began while it waited.
    pub(super) async fn take_on_unless_late(&mut self, backend: Backend, asked_us: u64) -> Result<(), Fault> {
        if self.at.head_start_ends_us(u64::MAX).is_none() {
            self.at.take_on(&mut self.wants, backend);
            return Ok(());
        }
        self.at.pool.release_to(&self.worker, &self.at.lane, backend);
        self.obtain_since(true, asked_us, asked_us).await
    }

    /// Waits in the queue with a statement that may ride, where no replays go first. None when that is to be asked again.
    pub(super) async fn wait_to_ride(&mut self, rider: Box<Rider>, asked_us: u64) -> Result<Option<Got>, Fault> {
        if self.at.head_start_ends_us(u64::MAX).is_some() {
            return Ok(None);
        }
        let deadline_us = self.recovery.wait_deadline_us(&self.at, asked_us);
        self.wait_in_queue(asked_us, deadline_us, Some(rider)).await
    }

    /// Waits until those have gone first that say a lost transaction again, if there are any, then in the queue.
    async fn wait_for_backend(&mut self, mut others_go_first: bool, asked_us: u64, deadline_us: u64) -> Result<Backend, Fault> {
        loop {
            if others_go_first {
                // Rare, and long.
                Box::pin(self.client.let_replays_go_first(&self.at, &mut self.hand, deadline_us)).await?;
                if let Some(backend) = self.hand.try_acquire_for(&self.at, &self.wants) {
                    return Ok(backend);
                }
            }
            let Some(Got::Backend(backend)) = self.wait_in_queue(asked_us, deadline_us, None).await? else {
                // It waits elsewhere now.
                others_go_first = true;
                continue;
            };
            if self.at.head_start_ends_us(deadline_us).is_none() {
                return Ok(backend);
            }
            // Replays began while it waited.
            others_go_first = true;
            self.at.pool.release_to(&self.worker, &self.at.lane, backend);
        }
    }

    /// Waits in the queue, in line since `asked_us`, or since its transaction began. None when the statement left for another hostgroup.
    async fn wait_in_queue(&mut self, asked_us: u64, deadline_us: u64, rider: Option<Box<Rider>>) -> Result<Option<Got>, Fault> {
        let collation = u8::try_from(self.client.collation).unwrap_or(0);
        if self.at.replaying.is_some() && self.at.lane.is_used_up() {
            // It waits for its own user, and others not for it.
            self.at.pool.shared.replays.served(asked_us);
        }
        let since_us = self.handle.transaction_since_us().unwrap_or(asked_us);
        let wish = Wish { needs: self.hand.directions.needs, collation, raw: None, rider };
        self.handle.begin_wait(self.at.pool.shared.id, self.worker.clock.now_ms());
        self.hand.traced(|trail| trail.waits(&self.at, false));
        let mut acquire = self.at.pool.enqueue(&self.worker, &self.at.lane, wish, since_us, deadline_us);
        let result = match self.hand.directions.writer {
            Some(writer) => Box::pin(self.client.wait_among_readers(&self.at, &mut acquire, writer, deadline_us)).await,
            None => self.client.wait(&self.at, |cx| acquire.poll_any(cx)).await.map(Some),
        };
        drop(acquire);
        self.handle.set_activity(Activity::Running, self.worker.shared.clock.now_ms());
        match result? {
            Some(outcome) => self.recovery.acquired(&self.at, &self.hand, outcome, asked_us).map(Some),
            None => {
                self.hand.leave_readers(&mut self.at);
                Ok(None)
            }
        }
    }

    /// Waits until this client's own connection is there: opened as it logged in, for nobody else.
    pub(super) async fn obtain_own(&mut self) -> Result<Backend, Fault> {
        let raw = Raw { capabilities: self.client.caps, schema: self.wants.state.schema.clone() };
        let asked_us = self.worker.shared.clock.now_us();
        let deadline_us = self.recovery.wait_deadline_us(&self.at, asked_us);
        self.wait_for(Wish::own(u8::try_from(self.client.collation).unwrap_or(0), raw), asked_us, (asked_us, deadline_us)).await
    }

    /// Waits in the queue, in line since `since_us`, for what was asked for at one time, until another.
    async fn wait_for(&mut self, wish: Wish, since_us: u64, (asked_us, deadline_us): (u64, u64)) -> Result<Backend, Fault> {
        let mut acquire = self.at.pool.enqueue(&self.worker, &self.at.lane, wish, since_us, deadline_us);
        let outcome = self.client.wait(&self.at, |cx| acquire.poll(cx)).await?;
        self.recovery.acquired(&self.at, &self.hand, outcome, asked_us)
    }
}

impl Frontend {
    /// Waits for something of the proxy's; notices a client that leaves and a kill.
    pub(super) async fn wait<T>(&mut self, at: &Backends, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Result<T, Fault> {
        let Self { link: front, input, .. } = self;
        let Backends { worker, handle, .. } = at;
        poll_fn(|cx| {
            if let Poll::Ready(result) = poll(cx) {
                return Poll::Ready(Ok(result));
            }
            if let Some(fault) = interruption(handle, cx) {
                return Poll::Ready(Err(fault));
            }
            if !input.is_full() && front.poll_readable(cx).is_ready() {
                match front.poll_read(cx, input, &worker.buffers) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(End::ClientGone.into())),
                    Poll::Ready(Ok(_)) => cx.waker().wake_by_ref(),
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(End::ClientError(e).into())),
                    Poll::Pending => {}
                }
            }
            Poll::Pending
        })
        .await
    }

    /// A read of a read/write split waits for one of its readers. None when none takes work for a while, and the writer does.
    async fn wait_among_readers(
        &mut self,
        at: &Backends,
        acquire: &mut Acquire,
        writer: HostgroupId,
        deadline_us: u64,
    ) -> Result<Option<Result<Got, AcquireError>>, Fault> {
        let patience = match at.lane.settings().reads_to_writer_after_ms {
            0 => NO_LIMIT,
            ms => Duration::from_millis(ms),
        };
        loop {
            // Whoever waits for a short time only is to be served too.
            let left = Duration::from_micros(deadline_us.saturating_sub(at.worker.shared.clock.now_us()) / 2);
            let waited = tokio::time::timeout(patience.min(left.max(SHORTEST_HOLD)), self.wait(at, |cx| acquire.poll_any(cx))).await;
            let now_ms = at.worker.shared.clock.now_ms();
            match waited {
                Ok(outcome) => return outcome.map(Some),
                Err(_) if patience == NO_LIMIT || at.replaying.is_some() => {}
                Err(_) if !at.pool.shared.lacks_servers(now_ms) => {}
                Err(_) if at.worker.pool(writer).shared.takes_work(now_ms) => return Ok(None),
                Err(_) => {}
            }
        }
    }

    /// Waits until what others have to say again is said, or their head start is over.
    pub(super) async fn let_replays_go_first(&mut self, at: &Backends, hand: &mut AtHand, deadline_us: u64) -> Result<(), Fault> {
        let hostgroup = Arc::clone(&at.pool.shared);
        let mut is_first = true;
        loop {
            let mut changed = pin!(hostgroup.replays.changed());
            changed.as_mut().enable();
            let Some(until_us) = at.head_start_ends_us(deadline_us) else { break };
            if std::mem::take(&mut is_first) {
                count(&at.worker.counters.replay_waits);
                hand.traced(|trail| trail.waits(at, true));
                at.handle.begin_wait(at.pool.shared.id, at.worker.clock.now_ms());
            }
            let left = Duration::from_micros(until_us.saturating_sub(at.worker.shared.clock.now_us())).min(NO_LIMIT);
            let mut waited = pin!(tokio::time::timeout(left, changed));
            _ = self.wait(at, |cx| waited.as_mut().poll(cx)).await?;
        }
        if !is_first {
            at.handle.set_activity(Activity::Running, at.worker.shared.clock.now_ms());
        }
        Ok(())
    }
}

impl AtHand {
    fn try_acquire_for(&self, at: &Backends, wants: &Wants) -> Option<Backend> {
        at.pool.try_acquire(&at.worker, &at.lane, &wants.state, self.directions.needs)
    }

    /// The statement at hand goes to the writer, and new reads follow it until a reader takes work.
    fn leave_readers(&mut self, at: &mut Backends) {
        let Some(writer) = self.directions.writer.take() else { return };
        count(&at.worker.counters.reads_to_writer);
        at.pool.shared.leave();
        self.directions.needs.max_lag_ms = None;
        at.go_to(writer);
    }
}

impl Recovery {
    /// Until when (process clock, us) a session that asks at `now_us` waits for a backend.
    fn wait_deadline_us(&self, at: &Backends, now_us: u64) -> u64 {
        match (self.again_until_us, at.lane.settings().connect_timeout_server_max) {
            _ if Safety::Hold.is_off() => now_us + 100_000,
            (Some(until), _) => until,
            (None, 0) => u64::MAX,
            (None, ms) => now_us + ms * 1000,
        }
    }

    /// What one got that waited, or why not.
    fn acquired<T>(&self, at: &Backends, hand: &AtHand, outcome: Result<T, AcquireError>, asked_us: u64) -> Result<T, Fault> {
        match outcome {
            Ok(got) => Ok(got),
            Err(AcquireError::Refused(e)) => Err(Fault::server(e)),
            Err(AcquireError::Impossible(text)) => {
                let text = format!("Tidegate: cannot log in to the server: {text}");
                Err(Fault::error(codes::ACCESS_DENIED, b"28000", text))
            }
            Err(AcquireError::Timeout { hostgroup, reason, .. }) => {
                let waited_ms = at.worker.shared.clock.now_us().saturating_sub(self.waits_since_us(hand, asked_us)) / 1000;
                let text = format!("Max connect timeout reached while reaching hostgroup {hostgroup} after {waited_ms}ms: {reason}");
                let (user, now_ms) = (&at.user.name, at.worker.shared.clock.now_ms());
                let line = format!("error 9001: user '{user}' got no connection to hostgroup {hostgroup} within {waited_ms} ms: {reason}");
                if let Some(line) = at.pool.shared.told.due_about(user, &line, now_ms) {
                    tracing::warn!("{line}");
                }
                Err(Fault::error(codes::NO_CONNECTION, b"HY000", text))
            }
        }
    }

    /// Since when (process clock, us) a statement that asks at `asked_us` has had no server: one that is sent again asked before.
    fn waits_since_us(&self, hand: &AtHand, asked_us: u64) -> u64 {
        let first_us = self.again_until_us.map(|_| self.lost_at_us.unwrap_or(hand.began_us));
        first_us.map_or(asked_us, |first_us| first_us.min(asked_us))
    }
}

impl Backends {
    /// Until when (process clock, us) this session lets replays go first; None when it need not.
    fn head_start_ends_us(&self, deadline_us: u64) -> Option<u64> {
        if self.replaying.is_some() {
            return None;
        }
        let hostgroup = &self.pool.shared;
        let head_start_ms = self.lane.settings().transaction_replay_head_start_ms;
        if !hostgroup.replays.may_be_due(head_start_ms) {
            return None;
        }
        let now_us = self.worker.shared.clock.now_us();
        let ends_us = hostgroup.replays.head_start_ends_us(head_start_ms, &hostgroup.servers(), now_us)?;
        Some(ends_us.min(deadline_us)).filter(|until_us| now_us < *until_us)
    }

    /// The session holds this one from here on.
    fn take_on(&mut self, wants: &mut Wants, backend: Backend) {
        if self.replaying.is_some() {
            self.pool.shared.replays.served(self.worker.shared.clock.now_us());
        }
        self.handle.row.held.set(Some(backend.shown()));
        // What was to be said of the server before is over.
        self.handle.may_stay();
        if self.handle.pending() == Some(Signal::Cut) {
            self.handle.clear_signal();
        }
        let backend = self.backend.insert(backend);
        if wants.come_to(&backend.core.info) {
            backend.core.held.ran_unseen();
        }
    }
}

/// A signal that ends a wait: for a backend, or for the end of a delay.
pub(super) fn interruption(handle: &SessionHandle, cx: &Context<'_>) -> Option<Fault> {
    match handle.poll_signal(cx)? {
        signal @ (Signal::QueryTimeout | Signal::KillQuery | Signal::GiveUp) => {
            handle.clear_signal();
            Some(Fault::interrupted(signal))
        }
        Signal::KillConnection => Some(End::Killed.into()),
        Signal::TransactionTimeout => Some(End::TransactionTimeout.into()),
        Signal::Stop => Some(End::Shutdown.into()),
        Signal::Cut | Signal::Demoted | Signal::Drain | Signal::IdleTimeout | Signal::Park | Signal::HandOver | Signal::GiveBack => {
            handle.clear_signal();
            None
        }
    }
}
