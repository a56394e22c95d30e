//! Sending a statement again: elsewhere, and only when it is certain that it was not applied.
//!
//! [`withhold`](Session::withhold) keeps an error from the client that another server of the hostgroup would not give;
//! [`once_more`](Session::once_more) decides what follows a fault, and [`run_again`](Session::run_again) looks behind the views of a
//! read that may have run. Where the servers of a hostgroup have roles the limit is time (`connect_timeout_server_max`, counted from
//! the command or from the first loss of it while it ran), elsewhere it is `query_retries_on_failure`.
//! INVARIANT: what was with a server when that was lost is sent again `query_retries_on_failure` times at most, wherever: it may be what
//! the server died of, or what somebody killed.

use super::Session;
use super::assigned_gtid::{GtidStanding, IMPLICIT_COMMIT, LEAVING_GROUP};
use super::backends::Backends;
use super::command::Incoming;
use super::door::door;
use super::end::End;
use super::fault::{Certainty, Fault};
use super::frontend::Frontend;
use super::guard::paused;
use super::hand::AtHand;
use super::plan::Plan;
use super::query::asks_for_facts;
use super::recovery::Recovery;
use crate::clients::processlist::HeldConnection;
use crate::clients::session_handle::Signal;
use crate::workers::counters::count;
use crate::workers::safety::Safety;
use meter::server_counts::ServerId;
use session_state::certainty::{self, ClusterPart, ReadOnlyBy, Refusal};
use session_state::collected::{Collected, ServerError};
use session_state::facts::SessionFacts;
use session_state::pins::{PinReason, TRANSACTION, WISHES};
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind};
use std::time::Duration;
use wire::codes;
use wire::flags::StatusFlags;
use wire::reframe::ReplyError;

/// First pause before a refused statement asks for a server again, ms; doubles.
const PAUSE_FIRST_MS: u64 = 1;
/// Longest such pause, ms. A server that is known not to take it is not asked in between.
const PAUSE_MAX_MS: u64 = 50;

/// For how long after a loss (us) other connections to that server, opened before it, break of the same.
const SAME_DEATH_US: u64 = 1_000_000;

/// What is left of the right to send a statement again.
pub(super) struct Patience {
    tries: u64,
    /// Of those that were with a server when it was lost; where roles are only these are counted.
    losses: u64,
    /// The server with which it was lost first.
    lost_with: Option<ServerId>,
    pause_ms: u64,
    refused: Option<String>,
    /// The conflict that ended the transaction, while it is replayed.
    conflict: Option<ServerError>,
    /// How a read was lost that may have run, while it is not known whether that did anything.
    lost_read: Option<String>,
}

impl Session {
    /// Takes the error at the front of the reply away, if another server may take the statement.
    pub(super) fn withhold(&mut self, analysis: &Analysis) -> Option<Fault> {
        let backend = self.at.backend.as_ref()?;
        let (mut error, len) = ReplyError::at_front(backend.input.filled(), backend.core.caps)?;
        error.unasked &= backend.link.numbers_packets();
        let refusal = if error.code == IMPLICIT_COMMIT && self.recovery.is_in_assigned(&self.at) {
            Refusal::AssignedGtid
        } else {
            match certainty::refusal(&error).filter(|refusal| self.may_move(*refusal, analysis)) {
                Some(refusal) => refusal,
                None if self.recovery.may_be_of_leaving_member(&self.at, error.code, analysis) => {
                    let error = ServerError { code: error.code, sqlstate: error.sqlstate, message: error.message.to_vec() };
                    self.client.tell_of_error(&self.at, error.code, &error.message);
                    return Some(self.recovery.refused_by_member(&mut self.at, error));
                }
                None if self.at.is_commit_refused_for_good(&error, analysis) => {
                    self.client.tell_of_error(&self.at, error.code, error.message);
                    let why = String::from_utf8_lossy(error.message).into_owned();
                    return Some(self.recovery.commit_refused_for_good(&mut door!(self), &why));
                }
                None => return None,
            }
        };
        let fault = Fault::Refused { refusal, code: error.code, sqlstate: error.sqlstate, text: error.message.to_vec() };
        self.client.tell_of_error(&self.at, error.code, error.message);
        if let Some(backend) = self.at.backend.as_mut() {
            backend.input.consume(len);
            backend.core.held.failed();
        }
        Some(fault)
    }

    /// The same for the answer to a PREPARE.
    pub(super) fn refused_to_prepare(&mut self, reply: &Collected, analysis: &Analysis) -> Option<Fault> {
        let e = reply.error.as_ref()?;
        let error = ReplyError { code: e.code, sqlstate: e.sqlstate, message: &e.message, unasked: reply.unasked };
        let refusal = certainty::refusal(&error).filter(|refusal| self.may_move(*refusal, analysis))?;
        if let Some(backend) = self.at.backend.as_mut() {
            backend.core.held.failed();
        }
        Some(Fault::Refused { refusal, code: e.code, sqlstate: e.sqlstate, text: e.message.clone() })
    }

    /// May the statement that was refused so go to another server, and is there time?
    fn may_move(&self, refusal: Refusal, analysis: &Analysis) -> bool {
        let by = if self.client.wants_read_only(&self.at, &self.wants) { ReadOnlyBy::Client } else { ReadOnlyBy::Server };
        let place = ClusterPart::of(self.at.pool.shared.id, &self.worker.snapshot());
        let settings = self.at.lane.settings();
        // Rows of parameters before the refused one go with their transaction, if that is replayed.
        let whole = Analysis { facts: analysis.facts.without(Facts::ROW_BY_ROW), ..*analysis };
        let analysis = if self.recovery.has_more_to_say(&self.at, &self.facts) { &whole } else { analysis };
        let is_wanted = refusal != Refusal::Conflict || settings.transaction_replay && settings.transaction_replay_conflicts;
        // What was refused in a transaction is gone with the rest of it, when the server goes.
        let is_undone =
            || refusal == Refusal::Leaving && self.recovery.is_undone_with_backend(&self.at, &self.client, &self.facts, analysis);
        is_wanted
            && self.handle.killed_by().is_none()
            && (certainty::moves(refusal, analysis, place, by) || is_undone() || self.hand.is_for_writer(&self.at, refusal, analysis))
            && self.recovery.is_movable(&self.at, &self.facts)
            && !asks_what_is_lost(&self.at, &self.facts, analysis)
            && self.hand.directions.retries != Some(0)
            && self.worker.shared.clock.now_us() < self.recovery.retry_deadline_us(&self.at, &self.hand)
    }

    /// A fault is no matter if the statement may be sent again (Ok); else it is told.
    pub(super) async fn once_more(&mut self, patience: &mut Patience, fault: Fault, analysis: &Analysis) -> Result<(), Fault> {
        if let Some(by) = self.handle.killed_by() {
            let may_retry = |certainty| self.recovery.may_retry(&self.at, &self.client, &self.facts, certainty, analysis);
            return Err(self.recovery.killed(&self.at, by, fault, may_retry));
        }
        if matches!(fault, Fault::Lost { certainty: Certainty::Unknown, .. }) {
            self.recovery.lost_at_us.get_or_insert(self.worker.shared.clock.now_us());
        }
        if matches!(fault, Fault::Lost { .. }) {
            self.recovery.replay_is_due(&mut self.at, &self.facts);
        }
        if matches!(self.recovery.standing(), Some(GtidStanding::InDoubt | GtidStanding::Undecided)) {
            return self.recovery.doubt_again(&mut self.at, &self.hand, patience, fault).await;
        }
        match fault {
            Fault::Lost { certainty, text, pins }
                if self.recovery.may_retry(&self.at, &self.client, &self.facts, certainty, analysis)
                    && self.recovery.has_patience(&self.at, &self.hand, patience) =>
            {
                if certainty == Certainty::Unknown
                    && !self.recovery.opens_without_ending(&self.at, analysis)
                    && !self.recovery.may_be_lost_again(&self.at, &self.hand, patience)
                {
                    return Err(Fault::Lost { certainty, text: worn_out(&text), pins });
                }
                count(&self.worker.counters.retries);
                tracing::debug!("session {}: statement retried: {text}", self.handle.id);
                self.recovery.again_until_us = self.hand.is_timed(&self.at).then(|| self.recovery.retry_deadline_us(&self.at, &self.hand));
                Ok(())
            }
            // It ran until its connection was ended.
            Fault::Refused { code, text, .. }
                if certainty::is_killed(code) && !self.recovery.may_be_lost_again(&self.at, &self.hand, patience) =>
            {
                self.at.backend = None;
                let text = worn_out(&String::from_utf8_lossy(&text));
                Err(Fault::Lost { certainty: Certainty::Unknown, text, pins: self.at.pins.set() })
            }
            Fault::Refused { refusal, code, sqlstate, text } => {
                let error = ServerError { code, sqlstate, message: text };
                self.go_elsewhere(patience, refusal, error).await
            }
            // Refused before the statement was sent, by what goes ahead of it.
            Fault::Error { code, sqlstate, text } => {
                let error = ReplyError { code, sqlstate, message: &text, unasked: false };
                match certainty::refusal(&error).filter(|r| *r == Refusal::NotReady && self.may_move(*r, analysis)) {
                    Some(refusal) => self.go_elsewhere(patience, refusal, ServerError { code, sqlstate, message: text }).await,
                    None => Err(patience.explained(Fault::Error { code, sqlstate, text })),
                }
            }
            Fault::End(End::BackendLost(why)) if self.recovery.is_commit_disproved() => Err(self.disproved_for_good(&why).await),
            // The client has rolled back already, as far as it knows.
            Fault::End(End::BackendLost(why)) if patience.conflict.is_some() => {
                tracing::debug!("session {}: {why}", self.handle.id);
                self.recovery.forget_transaction(&mut door!(self));
                Err(patience.conflict.take().map_or_else(|| End::BackendLost(why).into(), Fault::server))
            }
            other => Err(other),
        }
    }

    /// [`Session::once_more`] for a statement that a client runs: a read that may have run is looked into before it runs again, since
    /// code behind a view may write.
    pub(super) async fn run_again(&mut self, patience: &mut Patience, fault: Fault, command: Incoming, plan: &Plan) -> Result<(), Fault> {
        let mut fault = fault;
        loop {
            let why = self.recovery.lost_read(&self.at, &self.client, &self.facts, &fault, &plan.analysis);
            Box::pin(self.once_more(patience, fault, &plan.analysis)).await?;
            patience.lost_read = patience.lost_read.take().or(why);
            if patience.lost_read.is_none() {
                return Ok(());
            }
            match Box::pin(self.may_read_again(command, plan)).await {
                Ok(true) => {
                    patience.lost_read = None;
                    return Ok(());
                }
                Ok(false) => {
                    let text = format!(
                        "{}; the proxy does not retry the statement because code behind a view may write",
                        patience.lost_read.take().unwrap_or_default()
                    );
                    self.at.give_back();
                    return Err(Fault::Lost { certainty: Certainty::Unknown, text, pins: self.at.pins.set() });
                }
                Err(other) => fault = other,
            }
        }
    }

    /// Leaves the server that has refused the statement, and waits for a moment.
    async fn go_elsewhere(&mut self, patience: &mut Patience, refusal: Refusal, error: ServerError) -> Result<(), Fault> {
        if refusal == Refusal::AssignedGtid {
            return self.recovery.commit_for_implicit(&mut door!(self), &mut self.causal, &self.hand).await;
        }
        count(&self.worker.counters.refusals_hidden);
        tracing::debug!("session {}: statement sent to another server: {error}", self.handle.id);
        self.recovery.again_until_us = Some(self.recovery.retry_deadline_us(&self.at, &self.hand));
        if refusal != Refusal::Conflict {
            self.recovery.replay_is_due(&mut self.at, &self.facts);
        }
        self.recovery.leave_backend(&mut self.at, &self.client, &self.hand, refusal);
        patience.refused = Some(error.to_string());
        if let Some(writer) = self.hand.directions.writer.take_if(|_| refusal == Refusal::ReadOnly) {
            self.door().travel(writer).await;
            return Ok(());
        }
        if refusal == Refusal::Conflict {
            patience.conflict.get_or_insert(error);
        }
        let pause_ms = patience.next_pause_ms();
        paused(&self.handle, tokio::time::sleep(Duration::from_millis(pause_ms))).await
    }
}

impl Frontend {
    /// The client itself asked for read-only transactions.
    fn wants_read_only(&self, at: &Backends, wants: &Wants) -> bool {
        let says = |name| wants.state.variables.get(name).is_some_and(|v| v.eq_ignore_ascii_case(b"ON") || &**v == b"1");
        self.status.contains(StatusFlags::IN_TRANS_READONLY)
            || at.pins.set().contains(PinReason::NextTransaction)
            || says("transaction_read_only")
            || says("tx_read_only")
    }
}

impl Recovery {
    /// A member that leaves its group says so to a COMMIT, whatever became of it; the group can be asked.
    fn may_be_of_leaving_member(&self, at: &Backends, code: u16, analysis: &Analysis) -> bool {
        let is_commit = analysis.kind == Kind::Commit && !analysis.facts.contains(Facts::MULTI);
        is_commit && LEAVING_GROUP.contains(&code) && self.is_in_assigned(at)
    }

    /// BEGIN outside of a transaction: what it opened is gone with the connection, and it has ended none.
    fn opens_without_ending(&self, at: &Backends, analysis: &Analysis) -> bool {
        let is_alone = analysis.kind == Kind::Begin && !analysis.facts.contains(Facts::MULTI);
        is_alone && (at.pins.set().without(WISHES).is_empty() || self.is_only_opened())
    }

    /// A statement may be sent again only when it had no effect: it never arrived, or it is a plain read of which the
    /// client has seen nothing. What pinned the session must be carried over.
    fn may_retry(&self, at: &Backends, client: &Frontend, facts: &SessionFacts, certainty: Certainty, analysis: &Analysis) -> bool {
        let harmless = match certainty {
            Certainty::NeverSent => true,
            Certainty::Unknown => {
                Safety::RetryCertainty.is_off()
                    || certainty::is_plain_read(analysis)
                    || self.opens_without_ending(at, analysis)
                    || self.is_undone_with_backend(at, client, facts, analysis)
            }
            Certainty::Answering => false,
        };
        harmless && self.is_movable(at, facts) && !asks_what_is_lost(at, facts, analysis)
    }

    /// A statement that was killed is never sent again, whatever became of it.
    fn killed(&self, at: &Backends, by: Signal, fault: Fault, may_retry: impl Fn(Certainty) -> bool) -> Fault {
        let is_in_doubt = matches!(self.standing(), Some(GtidStanding::InDoubt | GtidStanding::Undecided));
        match fault {
            Fault::Lost { certainty, .. } if !is_in_doubt && may_retry(certainty) => Fault::interrupted(by),
            Fault::Refused { .. } => Fault::interrupted(by),
            fault => {
                if is_in_doubt && matches!(fault, Fault::Lost { .. }) {
                    count(&at.worker.counters.lost_writes_undecided);
                }
                fault
            }
        }
    }

    /// How a read was lost that may have run, and of which nothing but its text says that it did nothing.
    fn lost_read(&self, at: &Backends, client: &Frontend, facts: &SessionFacts, fault: &Fault, analysis: &Analysis) -> Option<String> {
        if !certainty::is_plain_read(analysis)
            || self.is_undone_with_backend(at, client, facts, analysis)
            || Safety::RetryCertainty.is_off()
        {
            return None;
        }
        match fault {
            Fault::Lost { certainty: Certainty::Unknown, text, .. } => Some(text.clone()),
            Fault::Refused { refusal: Refusal::Leaving, text, .. } => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    }

    /// The backend goes back to its pool, or is cleaned or closed.
    fn leave_backend(&mut self, at: &mut Backends, client: &Frontend, hand: &AtHand, refusal: Refusal) {
        let is_clean = at.pins.set().is_empty() && (client.status.contains(StatusFlags::AUTOCOMMIT) || hand.directions.alone);
        let Some(backend) = at.backend.take() else { return };
        if self.assigned_gtid.is_some() {
            // A transaction of the proxy's is open there, or a reply under way to what followed the statement.
            return drop(backend);
        }
        match refusal {
            Refusal::NeverRead | Refusal::Leaving => drop(backend),
            _ if is_clean => at.pool.release_to(&at.worker, &at.lane, backend),
            _ => {
                at.backend = Some(backend);
                at.leave_transaction();
            }
        }
    }

    /// Until when (process clock, us) the statement at hand may be sent again. The time that it ran before it was lost does not
    /// count.
    pub(super) fn retry_deadline_us(&self, at: &Backends, hand: &AtHand) -> u64 {
        match at.lane.settings().connect_timeout_server_max {
            0 => u64::MAX,
            ms => self.lost_at_us.unwrap_or(hand.began_us).saturating_add(ms * 1000),
        }
    }

    fn has_patience(&self, at: &Backends, hand: &AtHand, patience: &mut Patience) -> bool {
        if hand.is_timed(at) {
            return at.worker.shared.clock.now_us() < self.retry_deadline_us(at, hand);
        }
        let left = patience.tries > 0;
        patience.tries = patience.tries.saturating_sub(1);
        left
    }

    /// What was with a server that was lost is sent once more, where roles are, if the number of times allows it. Elsewhere that was
    /// counted already.
    fn may_be_lost_again(&self, at: &Backends, hand: &AtHand, patience: &mut Patience) -> bool {
        let (held, now_us) = (at.handle.row.held.get(), at.worker.shared.clock.now_us());
        if held.zip(self.lost_at_us).is_some_and(|(held, lost_at_us)| is_same_death(patience.lost_with, held, lost_at_us, now_us)) {
            return true;
        }
        patience.lost_with = patience.lost_with.or(held.map(|held| held.server));
        let left = !hand.is_timed(at) || patience.losses > 0;
        patience.losses = patience.losses.saturating_sub(1);
        left
    }
}

impl AtHand {
    /// For a statement that begins.
    pub(super) fn patience(&self, at: &Backends) -> Patience {
        let retries = self.directions.retries.map_or_else(|| at.lane.settings().query_retries_on_failure, u64::from);
        // A rule that says 0 means it; elsewhere an idle connection that the server had closed costs no try.
        let tries = if self.directions.retries == Some(0) { 0 } else { retries.saturating_add(1) };
        Patience { tries, losses: retries, lost_with: None, pause_ms: PAUSE_FIRST_MS, refused: None, conflict: None, lost_read: None }
    }

    /// What a read/write split took for a read, and a reader refused: a view can lock, take a number of a sequence, or call what writes.
    fn is_for_writer(&self, at: &Backends, refusal: Refusal, analysis: &Analysis) -> bool {
        let is_free = at.pins.set().without(WISHES).is_empty();
        refusal == Refusal::ReadOnly && self.directions.writer.is_some() && is_free && certainty::is_plain_read(analysis)
    }

    /// Whether time limits the retries of this statement, not their number.
    fn is_timed(&self, at: &Backends) -> bool {
        self.directions.retries != Some(0) && ClusterPart::of(at.pool.shared.id, &at.worker.snapshot()) != ClusterPart::Elsewhere
    }
}

impl Backends {
    /// Whether it is a COMMIT that a writer refused since it is read-only, of a transaction that was to be replayed and cannot be.
    fn is_commit_refused_for_good(&self, error: &ReplyError<'_>, analysis: &Analysis) -> bool {
        let is_commit = analysis.kind == Kind::Commit && !analysis.facts.contains(Facts::MULTI);
        let pins = self.pins.set();
        is_commit
            && certainty::refusal(error) == Some(Refusal::ReadOnly)
            && self.lane.settings().transaction_replay
            && pins.contains(PinReason::Transaction)
            && pins.without(TRANSACTION).without(WISHES).is_empty()
            && ClusterPart::of(self.pool.shared.id, &self.worker.snapshot()) == ClusterPart::Writer
    }
}

/// Whether a connection breaks of what a statement was lost by before, and says nothing new of that.
fn is_same_death(lost_with: Option<ServerId>, held: HeldConnection, lost_at_us: u64, now_us: u64) -> bool {
    let is_old = held.opened_ms * 1000 <= lost_at_us && now_us < lost_at_us.saturating_add(SAME_DEATH_US);
    lost_with == Some(held.server) && is_old
}

/// The statement asks for what only the backend knew that it was planned for: another one would answer with another session's.
fn asks_what_is_lost(at: &Backends, facts: &SessionFacts, analysis: &Analysis) -> bool {
    let pins = at.pins.set();
    let is_lost = || facts.unread().any() || facts.is_with_backend(sql::Fact::RowCount);
    let own = Analysis { facts: analysis.facts.without(Facts::CONNECTION_ID), ..*analysis };
    !pins.is_empty() && pins.without(WISHES).is_empty() && asks_for_facts(&own) && is_lost()
}

/// What the client is told of a statement that was lost as often as may be.
fn worn_out(why: &str) -> String {
    format!("{why}; the proxy retries a statement at most query_retries_on_failure times")
}

impl Patience {
    /// How long to wait before the next attempt, ms.
    pub(super) fn next_pause_ms(&mut self) -> u64 {
        let pause_ms = self.pause_ms;
        self.pause_ms = (pause_ms * 2).min(PAUSE_MAX_MS);
        pause_ms
    }

    /// Why no server was had in time: the last refusal is the better part of it.
    fn explained(&self, fault: Fault) -> Fault {
        match (fault, &self.refused) {
            (Fault::Error { code: codes::NO_CONNECTION, sqlstate, mut text }, Some(refused)) => {
                text.extend_from_slice(format!("; before that a server refused the statement: {refused}").as_bytes());
                Fault::Error { code: codes::NO_CONNECTION, sqlstate, text }
            }
            (fault, _) => fault,
        }
    }
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
