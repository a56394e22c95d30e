//! Keeping the [`Transcript`] of an open transaction: what the client says in it and hears, as it happens.

use crate::hostgroups::replays::Stake;
use crate::session::Session;
use crate::session::assigned_gtid::lost_write::numbers;
use crate::session::backends::Backends;
use crate::session::command::Incoming;
use crate::session::door::ServerDoor;
use crate::session::frontend::Frontend;
use crate::session::plan::Plan;
use crate::session::recovery::Recovery;
use crate::session::replay::transcript::{self, Gap, How, Ids, MAX_OPENING, Progress, Transcript};
use crate::session::statements::Statements;
use crate::workers::counters::count;
use session_state::certainty;
use session_state::facts::SessionFacts;
use session_state::pins::{PinReason, TRANSACTION, WISHES};
use session_state::question::Question;
use session_state::statement_key::Meaning;
use session_state::wants::Wants;
use session_state::words::contains;
use sql::{Analysis, Facts, Kind};
use std::sync::Arc;
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;
use wire::reply_digest::ReplyDigest;

/// What writes a transcript down: it sees the session, and changes nothing but what a replay needs.
pub(in crate::session) struct Scribe<'a> {
    pub recovery: &'a mut Recovery,
    pub at: &'a Backends,
    pub client: &'a Frontend,
    pub facts: &'a SessionFacts,
    pub wants: &'a Wants,
    pub statements: &'a Statements,
}

impl Session {
    /// What writes down what the open transaction says and hears.
    pub(in crate::session) fn scribe(&mut self) -> Scribe<'_> {
        Scribe {
            recovery: &mut self.recovery,
            at: &self.at,
            client: &self.client,
            facts: &self.facts,
            wants: &self.wants,
            statements: &self.statements,
        }
    }
}

impl Scribe<'_> {
    fn new_transcript(&self) -> Box<Transcript> {
        Box::new(Transcript::new(self.wants.state.clone(), self.facts.insert_id.known()))
    }

    /// Whether a transcript is at hand, and goes on, after a statement of this kind. One that ended goes.
    fn is_in_transcript(&mut self, kind: Kind) -> bool {
        let opens = matches!(kind, Kind::Begin | Kind::SetTransaction);
        let pins = self.at.pins.set();
        // With autocommit off a SAVEPOINT is the first of a transaction that no server tells of yet.
        let is_open = pins.contains(PinReason::Transaction) || pins.contains(PinReason::Savepoint);
        let implicit = is_open && !self.client.status.contains(StatusFlags::AUTOCOMMIT);
        if !opens && self.recovery.transcript.is_none() && !implicit {
            return false;
        }
        if !is_open && !pins.contains(PinReason::NextTransaction) {
            self.recovery.transcript = None;
            return false;
        }
        let is_of_its_own = !opens && !is_open;
        if is_of_its_own && !matches!(kind, Kind::Set | Kind::Use | Kind::Select | Kind::Show) {
            // It stays done whatever becomes of the transaction that SET TRANSACTION may still be for.
            self.lose_transcript(Gap::Unrepeatable);
            return false;
        }
        true
    }

    /// BEGIN ends the transaction that is open, and what was said before it goes; but not `SET TRANSACTION` ahead of it.
    fn note_opening(&mut self, kind: Kind, body: &[u8], digest: Option<ReplyDigest>) {
        let before = self.recovery.transcript.take().filter(|t| !t.is_open);
        let has_gap =
            self.at.pins.set().contains(PinReason::NextTransaction) && before.as_ref().is_some_and(|t| t.progress != Progress::Opening);
        let mut transcript = before.filter(|t| t.progress == Progress::Opening).unwrap_or_else(|| self.new_transcript());
        if has_gap {
            // What SET TRANSACTION said is not at hand any more.
            transcript.lose(Gap::Unrepeatable);
        } else if body.len() > MAX_OPENING {
            transcript.lose(Gap::TooLarge);
        } else {
            transcript.keep(How::Text, digest, Ids::default(), usize::MAX, |bytes| bytes.extend_from_slice(body));
            transcript.opening += 1;
        }
        if kind == Kind::Begin && contains(body, b"snapshot") {
            // WITH CONSISTENT SNAPSHOT: what it sees is as old as that.
            transcript.lose(Gap::Unrepeatable);
        }
        transcript.is_open = kind == Kind::Begin;
        self.recovery.transcript = Some(transcript);
    }

    /// AND CHAIN, or `completion_type=1`: another transaction is open, of the same isolation level and access mode. So it is
    /// opened as the one before was.
    fn note_chained(&mut self) {
        let before = self.recovery.transcript.take();
        let mut transcript = self.new_transcript();
        let begins_by_itself = !self.client.status.contains(StatusFlags::AUTOCOMMIT);
        match before.map(|before| (before.progress, before)) {
            Some((Progress::Lost(gap), _)) => _ = transcript.lose(gap),
            Some((_, before)) if before.is_open || begins_by_itself => transcript.open_as(&before),
            _ => _ = transcript.lose(Gap::Unrepeatable),
        }
        self.recovery.transcript = Some(transcript);
    }

    /// Something ran in the transaction that cannot be said again.
    pub(in crate::session) fn lose_transcript(&mut self, gap: Gap) {
        let mut transcript = self.recovery.transcript.take().unwrap_or_else(|| self.new_transcript());
        transcript.lose(gap);
        self.recovery.transcript = Some(transcript);
    }

    /// A statement ran in a transaction: whether it is to be kept. What cannot be is a gap.
    fn needs_place(&mut self, command: Incoming, plan: &Plan, reply: &ReplyFacts, digest: Option<ReplyDigest>) -> bool {
        let analysis = &plan.analysis;
        let is_repeatable = match analysis.kind {
            Kind::SetStatement => {
                let lex = plan.statement.and_then(|id| self.statements.get(id)).map_or(self.wants.lex, |statement| statement.lex);
                transcript::is_set_statement_repeatable(analysis, self.statements.text_of(self.client, command, plan), lex)
            }
            _ => transcript::is_repeatable(analysis),
        };
        if self.recovery.transcript.is_none() {
            // autocommit=0: the statement has opened the transaction. What else it did would not be undone with it.
            let mut transcript = self.new_transcript();
            if !reply.variables.is_empty() || reply.schema.is_some() || !self.at.pins.set().without(WISHES).without(TRANSACTION).is_empty()
            {
                transcript.lose(Gap::Unrepeatable);
            }
            self.recovery.transcript = Some(transcript);
        }
        let Some(transcript) = self.recovery.transcript.as_mut() else { return false };
        let is_setting = matches!(analysis.kind, Kind::Set | Kind::Use) && reply.error.is_none() && !analysis.facts.contains(Facts::MULTI);
        if is_setting && transcript.progress == Progress::Opening && digest.is_none() {
            transcript.carried = true;
            return false;
        }
        if matches!(transcript.progress, Progress::Lost(_)) {
            return false;
        }
        let gap = match digest {
            None => Some(Gap::Off),
            Some(_) if !is_repeatable || transcript.carried => Some(Gap::Unrepeatable),
            Some(told) if told.error.is_some_and(|code| !transcript::leaves_transaction(code)) => Some(Gap::Unrepeatable),
            Some(_) => None,
        };
        match gap {
            Some(gap) => _ = transcript.lose(gap),
            None if is_setting => {}
            None => {
                transcript.progress = Progress::Kept;
                transcript.wrote |= !certainty::is_plain_read(analysis);
            }
        }
        gap.is_none()
    }

    /// Notes what a COM_QUERY said, if it opens a transaction or is part of one.
    pub(in crate::session) fn transcribe_text(&mut self, command: Incoming, plan: &Plan, reply: &ReplyFacts) {
        let digest = self.recovery.reply_hasher.take().and_then(|w| w.finish());
        if !self.is_in_transcript(plan.analysis.kind) {
            return;
        }
        let is_alone = reply.error.is_none() && !plan.analysis.facts.contains(Facts::MULTI);
        match plan.analysis.kind {
            Kind::Begin | Kind::SetTransaction if is_alone => {
                let body = plan.sent_body().unwrap_or_else(|| self.client.body(command)).to_vec();
                self.note_opening(plan.analysis.kind, &body, digest);
            }
            Kind::Commit | Kind::Rollback if is_alone && self.at.pins.set().contains(PinReason::Transaction) => self.note_chained(),
            _ if self.needs_place(command, plan, reply, digest) => {
                let ids = ids_of(&plan.analysis, digest);
                let max = limit_of(self.at);
                let Some(mut transcript) = self.recovery.transcript.take() else { return };
                if plan.rewritten.is_some() && plan.sent_body().is_none() {
                    _ = transcript.lose(Gap::TooLarge);
                } else {
                    let body = plan.sent_body().unwrap_or_else(|| self.client.body(command));
                    transcript.keep(How::Text, digest, ids, max, |bytes| bytes.extend_from_slice(body));
                }
                self.recovery.transcript = Some(transcript);
                self.count_too_large();
            }
            _ => {}
        }
        self.recovery.note_stake(self.at, self.facts);
    }

    /// The same for an execution of the prepared statement `id`.
    pub(in crate::session) fn transcribe_execution(&mut self, command: Incoming, id: u32, plan: &Plan, reply: &ReplyFacts) {
        let digest = self.recovery.reply_hasher.take().and_then(|w| w.finish());
        if !self.is_in_transcript(plan.analysis.kind) {
            return;
        }
        let is_new = self.recovery.transcript.as_ref().is_none_or(|t| t.statements().next().is_none());
        let Some(statement) = self.statements.get(id) else { return self.lose_transcript(Gap::Unrepeatable) };
        let numbers = Facts::FOUND_ROWS | Facts::ROW_COUNT | Facts::DIAGNOSTICS;
        // The numbers of the session were in the text that ran.
        let was_substituted = is_new && statement.fact.is_none() && plan.analysis.facts.intersects(numbers);
        // What comes with FETCH is not heard.
        let is_heard = !reply.is_behind_cursor();
        let is_plain = command.byte == Command::StmtExecute as u8 && !statement.is_bound() && !was_substituted && is_heard;
        if matches!(plan.analysis.kind, Kind::Begin | Kind::SetTransaction) && reply.error.is_none() && statement.params == 0 {
            // MariaDB prepares these too; said as text they are the same.
            let mut payload = Vec::with_capacity(statement.key.text.len() + 3);
            wire::query::put_query(&mut payload, &statement.key.text, self.client.caps);
            return self.note_opening(plan.analysis.kind, payload.get(1..).unwrap_or_default(), digest);
        }
        let ends = matches!(plan.analysis.kind, Kind::Commit | Kind::Rollback) && reply.error.is_none();
        if ends && self.at.pins.set().contains(PinReason::Transaction) {
            return self.note_chained();
        }
        // A replay prepares it under the settings of then, and would make something else of its text.
        let reads_as_then = *statement.key.mode == *self.client.mode(self.wants, &self.at.worker);
        if !is_plain || !reads_as_then {
            return self.lose_transcript(Gap::Unrepeatable);
        }
        if !self.needs_place(command, plan, reply, digest) {
            return;
        }
        let ids = ids_of(&plan.analysis, digest);
        let max = limit_of(self.at);
        let (Some(mut transcript), Some(statement)) = (self.recovery.transcript.take(), self.statements.get(id)) else { return };
        let payload = self.client.payload(command);
        let key = match &statement.settled_types {
            // Where types are settled by executions it is another statement with others.
            Some(_) if statement.is_on_backend_as_bound() => Arc::clone(&statement.on_backend),
            Some(types) => Arc::new(Meaning { types: Some(Arc::clone(types)), ..(**statement.key).clone() }.into()),
            None => Arc::clone(&statement.key),
        };
        let mut kept = Ok(());
        transcript.keep(How::Execution(key), digest, ids, max, |bytes| kept = statement.put_whole(payload, self.client.caps, bytes));
        if kept.is_err() {
            transcript.lose(Gap::Unrepeatable);
        }
        self.recovery.transcript = Some(transcript);
        self.count_too_large();
        self.recovery.note_stake(self.at, self.facts);
    }

    fn count_too_large(&self) {
        if self.recovery.transcript.as_ref().is_some_and(|t| t.progress == Progress::Lost(Gap::TooLarge)) {
            count(&self.at.worker.counters.replays_too_large);
        }
    }
}

impl Recovery {
    /// The schema was changed by a command of its own.
    pub(in crate::session) fn note_schema_command(&mut self) {
        match self.transcript.as_mut() {
            Some(t) if t.progress == Progress::Opening => t.carried = true,
            Some(t) => _ = t.lose(Gap::Unrepeatable),
            None => {}
        }
    }

    /// Whether [`Self::learn_first_insert_id`] is called for.
    pub(in crate::session) fn lacks_first_insert_id(&self, at: &Backends, facts: &SessionFacts) -> bool {
        let lacks = |t: &Transcript| t.progress == Progress::Opening && t.last_insert_id.is_none();
        // The question would be counted by FOUND_ROWS(), where only the backend knows that.
        self.transcript.as_deref().is_some_and(lacks) && at.lane.settings().transaction_replay && !facts.found_rows_are_with_backend()
    }

    /// A transaction begins where another one ended, and only the backend knows the LAST_INSERT_ID() that it begins with: it is asked,
    /// else the transaction could never be said again.
    pub(in crate::session) async fn learn_first_insert_id(&mut self, door: &mut ServerDoor<'_>) {
        let door = &mut door.0;
        // The next statement finds a connection that fails closed.
        let Ok(reply) = door.ask(Question::InsertId).await else { return };
        let (Some(id), Some(backend)) = (numbers(&reply).first().copied(), door.at.backend.as_mut()) else { return };
        door.facts.insert_id.read(id, backend.core.held.has_insert_id(id));
        if let Some(transcript) = self.transcript.as_mut() {
            transcript.last_insert_id = door.facts.insert_id.known();
        }
    }

    /// Counts the open transaction with the server at hand, if it wrote and can be said again: others let it go first as soon as
    /// that server is lost, whenever the session notices.
    pub(in crate::session) fn note_stake(&mut self, at: &Backends, facts: &SessionFacts) {
        let is_at_stake = self.transcript.as_ref().is_some_and(|t| t.wrote) && self.has_more_to_say(at, facts);
        let (hostgroup, backend) = (&at.pool.shared, at.backend.as_ref().filter(|_| is_at_stake));
        let Some(transcript) = self.transcript.as_mut() else { return };
        match backend.map(|backend| &backend.core.server) {
            Some(server) if transcript.stake.as_ref().is_some_and(|stake| stake.is_on(server)) => {}
            Some(server) => transcript.stake = Some(Stake::new(hostgroup, server)),
            None => transcript.stake = None,
        }
    }
}

/// The longest that a transcript may be, bytes.
fn limit_of(at: &Backends) -> usize {
    usize::try_from(at.lane.settings().transaction_replay_max_bytes).unwrap_or(usize::MAX)
}

/// The id that a statement was answered, and whether it may take one.
fn ids_of(analysis: &Analysis, digest: Option<ReplyDigest>) -> Ids {
    let generated = match analysis.kind {
        Kind::Insert | Kind::Replace | Kind::SetStatement => digest.map_or(0, |t| t.insert_id),
        _ => 0,
    };
    Ids { generated, may_insert: !certainty::is_plain_read(analysis) }
}

#[cfg(test)]
#[path = "transcribe_tests.rs"]
mod tests;
