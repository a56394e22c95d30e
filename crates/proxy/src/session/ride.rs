//! Statements that may be sent to a server together with those of other sessions: which, and what the session does with the reply.
//!
//! Only a session that would wait for a connection asks. The pool decides who goes together ([`crate::hostgroups::pool`]'s riders). A reply comes
//! whole, and without an error or warnings, or not at all: then the statement runs alone, as if nobody had tried. That it runs twice
//! does no harm is proved first, by the same look behind views as before a lost read is sent again ([`super::views`]). INVARIANT: while a
//! statement rides, its session holds no backend, and nothing that the session knows depends on one.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::copied;
use super::end::End;
use super::fault::{Certainty, Fault};
use super::frontend::Frontend;
use super::leave::BackendAtStart;
use super::plan::Plan;
use super::relay::tells_client_gtids;
use super::statements::Statements;
use crate::hostgroups::pool::{Answer, Got, Ridden, Rider};
use crate::statements::execution::Execution;
use crate::statements::habits::{Habit, QuickLimits};
use crate::workers::counters::count;
use model::snapshot::Effective;
use session_state::pins::PinSet;
use session_state::state::Text;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind, LexMode};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::reframe::{Reframe, ReplyFacts, TRANSACTION};
use wire::reply::ReplyKind;

/// Bytes of the longest statement that rides: many fit one write.
const LONGEST: usize = 4_096;

/// The same of its packet, which may have attributes.
const LONGEST_PACKET: usize = 2 * LONGEST;

/// Facts that change nothing, and ask for nothing that a session has of its own. An OFFSET is none: only the server knows FOUND_ROWS() then.
const HARMLESS: Facts = Facts::COMMENT;

/// The same of a prepared statement.
const HARMLESS_PREPARED: Facts = HARMLESS.union(Facts::PLACEHOLDER);

/// Why a statement runs alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alone {
    /// It is not a plain SELECT, or too long.
    Statement,
    /// It has a cursor, long data or many rows of parameters.
    Execution,
    /// The session is in a transaction, or autocommit is off.
    Transaction,
    /// The session is pinned, here or elsewhere, or replays what it lost.
    Pinned,
    /// The session's own backend knows what the next statement may ask for, or the session knows what the server is to forget.
    Owed,
    /// The read waits for writes, or its GTID is chosen.
    Causal,
    /// A rule or a comment says how it runs.
    Directed,
    /// Settings keep connections.
    Settings,
    /// It was sent already.
    Again,
}

/// How a statement came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Text,
    /// As an execution of a prepared statement that leaves nothing with a backend.
    Execution,
    /// As another command, or with something that is with one backend only.
    Otherwise,
}

/// How a session stands.
#[derive(Clone, Copy, Debug)]
struct Standing {
    came: Came,
    /// As the client last saw it.
    status: StatusFlags,
    pins: PinSet,
    /// It left something in other hostgroups, or keeps what it said for a replay.
    keeps_more: bool,
    /// A fact of the session is with a backend, or warnings stand.
    is_owed: bool,
    is_causal: bool,
    is_directed: bool,
    is_again: bool,
}

/// Why a statement runs alone; None where it may ride, as far as it and its session go.
fn why_alone(analysis: &Analysis, text: &[u8], standing: &Standing, settings: &Effective) -> Option<Alone> {
    let status = standing.status;
    let keeps_connections = !settings.multiplexing
        || settings.connection_delay_multiplex_ms > 0
        || settings.auto_increment_delay_multiplex > 0
        || settings.autocommit_false_is_transaction && !status.contains(StatusFlags::AUTOCOMMIT);
    let reasons = [
        (!is_plain(analysis, text, standing.came), Alone::Statement),
        (standing.came == Came::Otherwise, Alone::Execution),
        (!status.contains(StatusFlags::AUTOCOMMIT) || status.intersects(TRANSACTION), Alone::Transaction),
        (!standing.pins.is_empty() || standing.keeps_more, Alone::Pinned),
        (standing.is_owed, Alone::Owed),
        (standing.is_causal, Alone::Causal),
        (standing.is_directed, Alone::Directed),
        (keeps_connections, Alone::Settings),
        (standing.is_again, Alone::Again),
    ];
    reasons.into_iter().find(|(holds, _)| *holds).map(|(_, why)| why)
}

/// Whether a statement is a SELECT without side effects that asks for nothing but rows. An optimizer hint may set variables.
fn is_plain(analysis: &Analysis, text: &[u8], came: Came) -> bool {
    let harmless = if came == Came::Text { HARMLESS } else { HARMLESS_PREPARED };
    let has_hint = || analysis.facts.contains(Facts::COMMENT) && text.windows(3).any(|three| three == b"/*+");
    analysis.kind == Kind::Select && harmless.contains(analysis.facts) && text.len() <= LONGEST && !has_hint()
}

impl Session {
    /// The statement where it is to wait for those of other sessions that come in the same turn of the loop, though a backend is idle.
    pub(super) fn gathered(&mut self, command: Incoming, plan: &Plan) -> Option<Box<Rider>> {
        let at = &self.at;
        let gathers = at.lane.pipelines() && at.backend.is_none() && at.pool.gathers(&self.worker, &at.lane);
        let mut rider = if gathers { self.rider(command, plan)? } else { return None };
        rider.gathers = true;
        count(&self.worker.counters.wants);
        Some(rider)
    }

    /// Gets a backend where [`Session::obtain_at_once`] had none, or the reply without one: true, and it is with the client.
    pub(super) async fn obtain_or_ride(
        &mut self,
        kept: BackendAtStart,
        gathered: Option<Box<Rider>>,
        command: Incoming,
        plan: &Plan,
        reply: &mut ReplyFacts,
    ) -> Result<bool, Fault> {
        let rider = match gathered {
            None if kept == BackendAtStart::None => self.rider(command, plan),
            gathered => gathered,
        };
        match rider {
            None => self.obtain_later(kept).await.map(|()| false),
            Some(rider) => Box::pin(self.ride(rider, plan, reply)).await,
        }
    }

    async fn ride(&mut self, rider: Box<Rider>, plan: &Plan, reply: &mut ReplyFacts) -> Result<bool, Fault> {
        let asked_us = self.worker.shared.clock.now_us();
        match self.wait_to_ride(rider, asked_us).await? {
            // In another hostgroup, or behind replays, for the rest of its time.
            None => self.obtain_since(true, asked_us, asked_us).await.map(|()| false),
            Some(Got::Backend(backend)) => self.take_on_unless_late(backend, asked_us).await.map(|()| false),
            // It had its turn in time: its time to wait begins again, not its place in the line.
            Some(Got::Ridden(Ridden::Alone)) => {
                let now_us = self.worker.shared.clock.now_us();
                self.obtain_since(true, asked_us, now_us).await.map(|()| false)
            }
            Some(Got::Ridden(Ridden::Changed)) => Err(changed()),
            Some(Got::Ridden(Ridden::Lost(text))) => Err(Fault::Lost { certainty: Certainty::Unknown, text, pins: PinSet::default() }),
            Some(Got::Ridden(Ridden::Answered(answer))) => {
                self.hand.traced(|trail| trail.attempt_rode(&self.at, answer.sent_us));
                self.pass_on(answer, plan, reply).await.map(|()| true)
            }
        }
    }

    /// The statement as one that may ride; None where it runs alone.
    fn rider(&mut self, command: Incoming, plan: &Plan) -> Option<Box<Rider>> {
        if !self.may_ride(command, plan) {
            return None;
        }
        let habit = self.statements.habit(&self.at, &self.wants, plan)?;
        if !habit.is_proven(self.worker.shared.ddl_epoch.load(Ordering::Acquire), self.worker.shared.clock.now_ms()) {
            return None;
        }
        let execution = match plan.statement {
            Some(id) => Some(self.statements.ready_to_ride(&self.client, id)?),
            None => None,
        };
        let packet = match &plan.rewritten {
            Some(packet) => packet.as_slice(),
            None if command.joined => return None,
            None => self.client.input.filled().get(..command.wire_len)?,
        };
        if packet.len() > LONGEST_PACKET {
            return None;
        }
        let packet = packet.to_vec();
        Some(Box::new(Rider { packet, execution, state: self.wants.state.clone(), habit, handle: Rc::clone(&self.handle), gathers: false }))
    }

    /// Whether the statement may ride, as far as it, its session and the settings go.
    fn may_ride(&self, command: Incoming, plan: &Plan) -> bool {
        if !self.at.lane.pipelines() || !plan.patches.is_empty() || plan.analysis.kind != Kind::Select {
            return false;
        }
        let standing = self.standing(self.statements.have_come(command, plan));
        why_alone(&plan.analysis, self.statements.text_of(&self.client, command, plan), &standing, &self.at.lane.settings()).is_none()
    }

    fn standing(&self, came: Came) -> Standing {
        let (facts, hand, recovery) = (&self.facts, &self.hand, &self.recovery);
        Standing {
            came,
            status: self.client.status,
            pins: self.at.pins.set(),
            keeps_more: self.at.places.is_some()
                || self.at.replaying.is_some()
                || recovery.transcript.is_some()
                || self.client.tracking_wish.is_some(),
            is_owed: !facts.insert_id.is_known()
                || facts.is_with_backend(sql::Fact::FoundRows)
                || facts.is_with_backend(sql::Fact::RowCount)
                || facts.has_diagnostics()
                || facts.own_error().is_some()
                // `WHERE id IS NULL` reads the connection's LAST_INSERT_ID() then.
                || self.wants.state.variables.get("sql_auto_is_null").is_some(),
            is_causal: !hand.is_not_causal(&self.at) || recovery.assigned_gtid.is_some() || self.causal.writes.is_some(),
            is_directed: hand.directions.alone
                || hand.directions.multiplex.is_some()
                || hand.directions.retries == Some(0)
                || hand.fill.is_some()
                || !hand.directions.needs.takes_used(),
            is_again: recovery.lost_at_us.is_some() || recovery.again_until_us.is_some(),
        }
    }

    /// Passes a whole reply on; what it says of the session is noted by its facts, as ever.
    async fn pass_on(&mut self, answer: Answer, plan: &Plan, facts: &mut ReplyFacts) -> Result<(), Fault> {
        let Answer { mut bytes, caps, sent_us } = answer;
        *facts = ReplyFacts::default();
        self.client.is_half_told = false;
        let filter = self.client.filter.take();
        let mut reframe = Reframe::new(plan.reply, caps, self.client.caps, filter.as_deref(), self.client.current_status())
            .with_whole_packets(self.client.link.frame_seq().is_some())
            .hiding_gtids(!tells_client_gtids(&self.worker, filter.as_deref()));
        reframe.set_next_seq(self.client.answer_seq());
        let mut out = Vec::new();
        let processed = reframe.process(&mut bytes, &mut out, facts);
        let is_whole = reframe.is_done();
        self.client.filter = filter;
        let is_direct = match processed {
            Ok(processed) if is_whole && processed.consumed == bytes.len() => processed.direct,
            _ => return Err(Fault::Lost { certainty: Certainty::Unknown, text: "malformed reply".into(), pins: PinSet::default() }),
        };
        if has_left_state(facts) {
            return Err(changed());
        }
        if plan.statement.is_some() {
            count(&self.worker.counters.backend_executes);
        }
        if let Some(beside) = self.beside.as_mut() {
            beside.reply_began(caps, sent_us);
            beside.hears(&bytes);
        }
        copied::answer_ended(self);
        self.client.write_front(&self.at, if is_direct { &bytes } else { &out }).await.map_err(Fault::End)
    }

    /// Whether it is to be looked up what the statement reads, before it runs on the backend at hand.
    pub(super) fn is_proof_due(&self, command: Incoming, plan: &Plan) -> bool {
        // Where nothing that was looked up counts, nothing is proved.
        if !self.at.lane.watches(self.worker.clock.now_ms())
            || !self.may_ride(command, plan)
            || self.worker.snapshot().vars.prepared_metadata_max_age == 0
        {
            return false;
        }
        let habit = self.statements.habit(&self.at, &self.wants, plan);
        let epoch = self.worker.shared.ddl_epoch.load(Ordering::Acquire);
        habit.is_some_and(|habit| habit.is_proof_due(epoch, self.worker.shared.clock.now_ms()))
    }

    /// Looks up whether what the statement reads runs code. It holds for `prepared_metadata_max_age`.
    pub(super) async fn prove(&mut self, command: Incoming, plan: &Plan) -> Result<(), Fault> {
        let epoch = self.worker.shared.ddl_epoch.load(Ordering::Acquire);
        if plan.statement.is_some_and(|id| !self.statements.is_read_as_prepared(&self.client, &self.wants, &self.worker, id)) {
            // That it cannot be told here says nothing to others.
            return Ok(());
        }
        let (is_harmless, since_ms) = match self.statements.tables_of(&self.client, &self.wants, &self.worker, command, plan) {
            None => (false, self.worker.clock.now_ms()),
            Some(tables) => self.door().are_harmless_since(tables).await?,
        };
        let until_ms = since_ms + self.worker.snapshot().vars.prepared_metadata_max_age;
        self.statements.habit_from_now_on(&self.at, &self.wants, plan).proved(is_harmless, epoch, until_ms);
        Ok(())
    }

    /// When (process clock, us) a statement is sent from which is to be learnt whether it is quick; None where nothing is.
    pub(super) fn learns_since(&mut self, command: Incoming, plan: &Plan) -> Option<NonZeroU64> {
        let is_watched = self.at.lane.watches(self.worker.clock.now_ms());
        self.at.lane.note_watchable();
        if !is_watched || !self.may_ride(command, plan) {
            return None;
        }
        // What is received from here on is the reply.
        self.at.note_traffic();
        NonZeroU64::new(self.worker.shared.clock.now_us())
    }
}

impl Statements {
    /// An execution of the client's statement, for any backend that has it.
    fn ready_to_ride(&mut self, client: &Frontend, id: u32) -> Option<Execution> {
        self.execute_as_bound(id);
        let statement = self.get(id)?;
        let (key, types) = (Arc::clone(&statement.on_backend), statement.types.clone());
        Some(Execution { key, params: statement.params, types, caps: client.caps })
    }

    /// Where the statement at hand is known: a prepared one runs in the schema, and is read as, of its PREPARE.
    fn habit_key<'a>(&'a self, wants: &'a Wants, plan: &Plan) -> (Option<&'a Text>, LexMode) {
        match plan.statement.and_then(|id| self.get(id)) {
            Some(statement) => (statement.key.schema.as_ref(), statement.lex),
            None => (wants.state.schema.as_ref(), wants.lex),
        }
    }

    /// What is known of the statement at hand.
    fn habit(&self, at: &Backends, wants: &Wants, plan: &Plan) -> Option<Rc<Habit>> {
        let (schema, lex) = self.habit_key(wants, plan);
        at.lane.habits.get(plan.analysis.digest, schema, lex)
    }

    /// The same; it is known from now on.
    fn habit_from_now_on(&self, at: &Backends, wants: &Wants, plan: &Plan) -> Rc<Habit> {
        let (schema, lex) = self.habit_key(wants, plan);
        at.lane.habits.get_or_begin(plan.analysis.digest, schema, lex)
    }

    fn have_come(&self, command: Incoming, plan: &Plan) -> Came {
        let Some(statement) = plan.statement.map(|id| self.get(id)) else { return Came::Text };
        let is_execution = command.byte == Command::StmtExecute as u8 && plan.reply == ReplyKind::Results;
        let is_free = statement.is_some_and(|statement| statement.apart.is_none() && !statement.is_bound());
        if is_execution && is_free { Came::Execution } else { Came::Otherwise }
    }

    /// A statement that may ride ran alone.
    pub(super) fn learn_habit(&self, at: &Backends, wants: &Wants, plan: &Plan, reply: &ReplyFacts, since_us: NonZeroU64) {
        let (now_us, vars) = (at.worker.shared.clock.now_us(), &at.worker.snapshot().vars);
        let habit = self.habit_from_now_on(at, wants, plan);
        let received = at.backend.as_ref().map_or(0, |backend| backend.link.received());
        let is_loud = reply.error.is_some() || reply.warned || !reply.had_rows || has_left_state(reply);
        if is_loud || received > vars.pipeline_max_reply_bytes {
            habit.rests(now_us / 1000);
        } else {
            at.lane.habits.ran_alone(&habit, now_us.saturating_sub(since_us.get()), QuickLimits::of(vars));
        }
    }
}

/// What the statement reads was proved to run no code a moment ago, and yet it changed its session. The connection that has the change is
/// closed.
fn changed() -> Fault {
    End::BackendLost("The statement changed the state of its session, which was not kept".to_owned()).into()
}

/// Whether a reply says that the session is not what it was.
fn has_left_state(reply: &ReplyFacts) -> bool {
    let has_changed = reply.state_change || reply.is_garbled || !reply.variables.is_empty() || reply.schema.is_some();
    has_changed || reply.gtids.is_some() || reply.status.is_some_and(|status| status.intersects(TRANSACTION))
}

#[cfg(test)]
#[path = "ride_tests.rs"]
mod tests;
