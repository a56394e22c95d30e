//! Moving a session that lost its backend: what the open transaction has said so far is said again on another one.
//!
//! A [`Transcript`] is kept from the statement that opens a transaction to its end. While only its opening was said (BEGIN,
//! SET TRANSACTION) the transaction moves whenever its backend is lost; with `transaction_replay` one in which more was said
//! moves too, if every answer is the same again. INVARIANT: a session whose pins hold more than can be said again never
//! moves, and a COMMIT that may have arrived is never sent twice without proof that it did not happen ([`super::assigned_gtid::lost_write`]).

mod transcribe;
pub(super) mod transcript;

use super::Session;
use super::assigned_gtid::lost_write::numbers;
use super::backends::Backends;
use super::connection::Connection;
use super::door::{self, ServerDoor, door};
use super::end::End;
use super::fault::{Certainty, Fault};
use super::frontend::Frontend;
use super::guard::{guarded, guarded_on, left};
use super::hand::AtHand;
use super::leave::BackendAtStart;
use super::recovery::Recovery;
use super::relay::Outgoing;
use super::trail::Trail;
use crate::backends::backend::put_command;
use crate::hostgroups::replays::Replaying;
use crate::workers::counters::count;
use crate::workers::safety::Safety;
use model::HostgroupId;
use session_state::certainty::{self, Refusal};
use session_state::collected::ServerError;
use session_state::facts::SessionFacts;
use session_state::insert_id::LastInsertId;
use session_state::pins::{PinReason, PinSet, TRANSACTION, WISHES};
use session_state::question::Question;
use session_state::statement_key::StatementKey;
use sql::{Analysis, Facts, Kind};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use transcript::{Gap, How, Progress, Said, Transcript};
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::packet::MAX_PAYLOAD;
use wire::prepared::put_stmt_id;
use wire::reframe::ReplyError;
use wire::reply::ReplyKind;
use wire::reply_digest::{ReplyDigest, ReplyHasher, Rows};

/// Pins of a transaction that was only opened.
const OPENING: PinSet = PinSet::of(&[PinReason::Transaction, PinReason::NextTransaction]);

/// Longest that a replay takes, or is waited for, at a time, where nothing limits it.
pub(super) const NO_LIMIT: Duration = Duration::from_secs(3600);

impl Session {
    /// The client is silent, and the server of its transaction is lost, or has lost its role to another one: the transaction is
    /// said again at once, before others take what it was told. If there is no server in time the next statement tries again; if
    /// it fails, that is told of it.
    pub(super) async fn replay_idle(&mut self) -> Result<(), End> {
        let is_lost = self.at.backend.as_ref().is_none_or(|b| b.core.server.is_cut()) || self.recovery.is_overtaken(&self.at);
        if !is_lost || !self.recovery.has_more_to_say(&self.at, &self.facts) {
            return Ok(());
        }
        self.at.leave_transaction();
        self.recovery.replay_is_due(&mut self.at, &self.facts);
        self.handle.end_command();
        self.hand.began_us = self.worker.shared.clock.now_us();
        self.recovery.forget_retries();
        let mut patience = self.hand.patience(&self.at);
        let nothing = Analysis::NONE;
        let result = loop {
            match Box::pin(self.reopen()).await {
                Ok(()) => break Ok(()),
                Err(fault) => match Box::pin(self.once_more(&mut patience, fault, &nothing)).await {
                    Ok(()) => {}
                    Err(fault) => break Err(fault),
                },
            }
        };
        self.at.replaying = None;
        match result {
            Ok(()) => Ok(()),
            Err(Fault::End(End::BackendLost(why))) => {
                tracing::debug!("session {}: replay of an idle client's transaction failed: {why}", self.handle.id);
                let is_late = self.recovery.replay_until_us.is_some_and(|until_us| until_us <= self.worker.shared.clock.now_us());
                if !is_late {
                    self.scribe().lose_transcript(Gap::Unrepeatable);
                    if let Some(transcript) = self.recovery.transcript.as_mut() {
                        let why = why.strip_prefix(LOST).and_then(|why| why.strip_prefix(": ")).unwrap_or(&why);
                        transcript.failed = Some(why.into());
                    }
                }
                Ok(())
            }
            Err(Fault::End(end)) => Err(end),
            Err(_) => {
                self.at.backend = None;
                Ok(())
            }
        }
    }

    /// Gets a backend for a session whose pins outlive the one that it had.
    pub(super) async fn reopen(&mut self) -> Result<(), Fault> {
        if !self.recovery.is_movable(&self.at, &self.facts) {
            return Err(self.at.pinned_backend_lost("the connection is gone"));
        }
        let Some(mut transcript) = self.recovery.transcript.take() else {
            let pins = std::mem::take(&mut self.at.pins);
            let result = self.obtain().await;
            self.at.pins = pins;
            return self.hand.reopened(&mut self.at, result, Progress::Opening);
        };
        // While its state is brought over the session is as one that nothing pins, and wants what it wanted then.
        let pins = std::mem::take(&mut self.at.pins);
        let wanted = std::mem::replace(&mut self.wants.state, transcript.state.clone());
        let first = LastInsertId::of(transcript.last_insert_id.unwrap_or_default());
        let mut insert_id = std::mem::replace(&mut self.facts.insert_id, first);
        let result =
            match tokio::time::timeout(self.recovery.time_to_replay(&self.at, transcript.progress), self.say(&mut transcript)).await {
                Ok(result) => result,
                Err(_) => Err(differs("the replay took longer than transaction_replay_timeout_ms")),
            };
        // The backend was told what the lost one had at first, and then everything that could change it.
        insert_id.moved();
        (self.at.pins, self.wants.state, self.facts.insert_id) = (pins, wanted, insert_id);
        if let Some(backend) = self.at.backend.as_mut().filter(|_| result.is_ok() && !transcript.carried) {
            backend.core.held.was_brought_to(&self.wants.state);
        }
        if result.is_ok() {
            self.at.backend.ran_for(self.handle.id);
        }
        let progress = transcript.progress;
        self.recovery.transcript = Some(transcript);
        self.hand.reopened(&mut self.at, result, progress)?;
        self.recovery.note_stake(&self.at, &self.facts);
        if self.at.replaying.take().is_some() {
            // What comes next is new, and takes nothing from those who are not as far.
            self.client.let_replays_go_first(&self.at, &mut self.hand, u64::MAX).await?;
            // Meanwhile this server may have lost the role, too.
            if self.recovery.keeps_backend(&mut door!(self), self.hand.directions.needs)? == BackendAtStart::Moves {
                let text = "the server lost its role before the proxy could send the statement".to_owned();
                return Err(Fault::Lost { certainty: Certainty::NeverSent, text, pins: self.at.pins.set() });
            }
        }
        Ok(())
    }

    async fn say(&mut self, transcript: &mut Transcript) -> Result<(), Fault> {
        // Everything may follow LAST_INSERT_ID().
        let any = Analysis { kind: Kind::Other, facts: Facts::LAST_INSERT_ID, digest: 0 };
        loop {
            self.obtain().await?;
            let mut ahead = self.sync(&any).await?;
            // While the transaction is open nobody could ask for them.
            door!(self).have_gtids_told(&self.wants, &any, &mut ahead).await?;
            self.send_statement(&ahead, Outgoing::Bytes(&[])).await?;
            // What goes ahead takes round trips, in which the server may lose its role.
            if !self.recovery.may_begin(&mut self.at, &mut self.facts) {
                continue;
            }
            if self.recovery.assigned_gtid.is_some() {
                self.gtid_of_replay().await?;
            }
            let mut wants = WantedIds::default();
            let said = match self.say_all(transcript, &mut wants).await {
                // Any answer may have come of it.
                Err(Fault::End(End::BackendLost(_)) | Fault::Refused { .. }) if wants.is_spoilt => Ok(ReplayOutcome::Another),
                said => said,
            };
            transcript.forget_ids(&wants.unused);
            match said? {
                ReplayOutcome::Done => return Ok(()),
                ReplayOutcome::Another if wants.is_spoilt => self.door().close_transaction().await,
                ReplayOutcome::Another => {}
            }
        }
    }

    async fn say_all(&mut self, transcript: &Transcript, wants: &mut WantedIds) -> Result<ReplayOutcome, Fault> {
        for (place, (said, bytes)) in transcript.statements().enumerate() {
            if said.generated != 0 || wants.open.is_some() && said.may_insert {
                wants.want(&mut self.at, place, said.generated).await?;
            } else if wants.open.is_some() {
                // Asked behind this statement, it would change what that leaves: FOUND_ROWS() and warnings.
                wants.look(&mut self.at).await?;
            }
            let packets = self.packets_of(said, bytes).await?;
            if place == 0 && !self.recovery.may_begin(&mut self.at, &mut self.facts) {
                return Ok(ReplayOutcome::Another);
            }
            if self.at.backend.must_leave(self.worker.shared.clock.now_ms()) {
                return Err(self.at.lost_before(&left()));
            }
            said.say_again(&mut self.at, &packets).await?;
        }
        if wants.open.is_some() {
            // What the session's last statement left is there now, and the question would change it.
            self.at.backend.ran_for(self.handle.id);
            let question = Question::Values { expressions: &[], as_bytes: false };
            let rescued = self.door().will_ask(&[question]).await;
            rescued.map_err(|e| self.at.lost_before(&e))?;
            wants.want(&mut self.at, usize::MAX, 0).await?;
        }
        Ok(if wants.is_spoilt { ReplayOutcome::Another } else { ReplayOutcome::Done })
    }

    /// What says it on the backend at hand, which is made ready for it.
    async fn packets_of(&mut self, said: &Said, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::with_capacity(bytes.len() + 8);
        match &said.how {
            How::Text => put_command(&mut out, Command::Query, bytes),
            How::Execution(key) => {
                let mut payload = bytes.to_vec();
                let id = self.prepared_again(key).await?;
                let _ = put_stmt_id(&mut payload, id);
                wire::packet::put_packet(&mut out, &mut 0, &payload);
            }
        }
        Ok(out)
    }

    async fn prepared_again(&mut self, key: &Arc<StatementKey>) -> Result<u32, Fault> {
        if let Some(found) = self.at.backend.as_mut().and_then(|b| b.core.statements.get(key)) {
            // The types of the next execution are said again, whatever was bound.
            found.bound_types.clear();
            return Ok(found.id);
        }
        if *key.mode != *self.client.mode(&self.wants, &self.worker)
            && let Some(backend) = self.at.backend.as_mut()
        {
            // Prepared under the settings of now, it is for nobody else.
            backend.core.held.ran_unseen();
        }
        let reply = self.prepare_with_values(key).await?;
        if let Some(by) = self.handle.killed_by() {
            // It was meant for the statement that waits for the replay.
            return Err(Fault::interrupted(by));
        }
        if let Some(error) = reply.error {
            return Err(refused_again(error));
        }
        let found = self.at.backend.as_mut().and_then(|b| b.core.statements.get(key)).map(|found| found.id);
        found.ok_or_else(|| differs("a statement cannot be prepared again"))
    }
}

impl AtHand {
    fn reopened(&mut self, at: &mut Backends, result: Result<(), Fault>, progress: Progress) -> Result<(), Fault> {
        let counters = &at.worker.counters;
        match (result, progress) {
            (Ok(()), Progress::Kept) => {
                count(&counters.replays_ok);
                self.traced(Trail::replayed);
                tracing::debug!("session {}: transaction replayed", at.handle.id);
                Ok(())
            }
            (Ok(()), _) => {
                count(&counters.moves);
                Ok(())
            }
            (Err(Fault::Lost { text, .. }), _) => {
                at.discard_backend();
                Err(Fault::Lost { certainty: Certainty::NeverSent, text, pins: at.pins.set() })
            }
            (Err(Fault::End(End::BackendLost(text))), _) => {
                count(&counters.replays_failed);
                at.discard_backend();
                Err(Fault::End(End::BackendLost(text)))
            }
            (Err(other), _) => {
                at.discard_backend();
                Err(other)
            }
        }
    }
}

impl Recovery {
    /// What was written in the open transaction can never be committed where it is: that server lost its role, and another one
    /// has it. A Galera node would still commit it.
    pub(super) fn is_overtaken(&self, at: &Backends) -> bool {
        let (Some(backend), Some(transcript)) = (&at.backend, &self.transcript) else { return false };
        transcript.wrote && at.pool.is_overtaken(&backend.core.server, at.worker.shared.clock.now_ms())
    }

    /// What is left of `transaction_replay_timeout_ms`, which begins with the first loss.
    fn time_to_replay(&mut self, at: &Backends, progress: Progress) -> Duration {
        let limit_ms = at.lane.settings().transaction_replay_timeout_ms;
        if progress != Progress::Kept || limit_ms == 0 {
            return NO_LIMIT;
        }
        let now_us = at.worker.shared.clock.now_us();
        let until_us = *self.replay_until_us.get_or_insert(now_us.saturating_add(limit_ms * 1000));
        Duration::from_micros(until_us.saturating_sub(now_us))
    }

    /// A BEGIN goes to `hostgroup`: a transaction elsewhere that has only read is committed ahead of it, so that it does not keep what
    /// may write.
    pub(super) async fn commit_what_was_read(&mut self, door: &mut ServerDoor<'_>, hostgroup: HostgroupId) {
        if door.at.pool.shared.id == hostgroup {
            return;
        }
        door.read_before_leaving().await;
        if door.at.backend.is_some() {
            // Whatever completion_type says.
            let commit = door.ask(Question::Transaction("COMMIT AND NO CHAIN NO RELEASE")).await;
            if !commit.is_ok_and(|reply| reply.error.is_none()) {
                door.at.backend = None;
            }
        }
        self.forget_transaction(door);
    }

    /// The backend may be replaced by another one without the client's noticing.
    pub(super) fn is_movable(&self, at: &Backends, facts: &SessionFacts) -> bool {
        let pins = at.pins.set();
        if pins.is_empty() || Safety::Movability.is_off() {
            return true;
        }
        let held = pins.without(WISHES);
        if held.is_empty() {
            return facts.insert_id.is_known();
        }
        let Some(transcript) = self.transcript.as_ref().filter(|t| t.last_insert_id.is_some()) else { return false };
        match transcript.progress {
            Progress::Opening => held.without(OPENING).is_empty(),
            Progress::Kept => held.without(TRANSACTION).is_empty() && at.lane.settings().transaction_replay,
            Progress::Lost(_) => false,
        }
    }

    /// More than its opening was said in the transaction, and it can be said again.
    pub(super) fn has_more_to_say(&self, at: &Backends, facts: &SessionFacts) -> bool {
        self.transcript.as_ref().is_some_and(|t| t.progress == Progress::Kept) && self.is_movable(at, facts)
    }

    /// The server is lost: what the open transaction has said is to be said again, and others let it go first.
    pub(super) fn replay_is_due(&mut self, at: &mut Backends, facts: &SessionFacts) {
        if at.replaying.is_none() && self.has_more_to_say(at, facts) {
            at.replaying = Some(Replaying::begin(&at.pool.shared));
        }
    }

    /// The statement at hand goes with its transaction when the connection is lost, and both can be said again.
    pub(super) fn is_undone_with_backend(&self, at: &Backends, client: &Frontend, facts: &SessionFacts, analysis: &Analysis) -> bool {
        let in_transaction = at.pins.set().contains(PinReason::Transaction) || !client.status.contains(StatusFlags::AUTOCOMMIT);
        in_transaction
            && at.lane.settings().transaction_replay
            && transcript::is_undone_with_its_transaction(analysis)
            && self.is_movable(at, facts)
    }

    /// The transaction is over without the client's having ended it.
    pub(super) fn forget_transaction(&mut self, door: &mut ServerDoor<'_>) {
        for reason in TRANSACTION.iter() {
            door.at.pins.end(reason);
        }
        self.transcript = None;
        self.drop_gtid(door.at, false);
        door.status.remove(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY);
        let now = door.at.worker.clock.now_ms();
        door.at.handle.set_transaction(false, now);
        door.facts.insert_id.forget_backend();
    }
}

impl Said {
    async fn say_again(&self, at: &mut Backends, packets: &[u8]) -> Result<(), Fault> {
        let rows = self.digest.map_or(Rows::Counted, |t| t.rows);
        let Some(backend) = at.backend.as_mut() else { return Err(at.pinned_backend_lost("no backend")) };
        let server = Arc::clone(&backend.core.server);
        let exchange = exchange(backend, packets, rows, &at.worker.buffers);
        let (told, error) = match guarded_on(&at.worker, &at.handle, &server, exchange).await {
            Ok(answer) => answer,
            Err(e) => return Err(at.lost_before(&e)),
        };
        // It may have got another LAST_INSERT_ID() than it was last told.
        if let Some(backend) = at.backend.as_mut() {
            backend.core.held.insert_id_changed_unseen();
        }
        match (self.digest, told, error) {
            (Some(was), Some(is), _) if was == is => Ok(()),
            (None, Some(_), None) => Ok(()),
            (_, _, Some(error)) => Err(refused_again(error)),
            (..) => Err(differs("a statement had another result than before")),
        }
    }
}

impl WantedIds {
    /// Whether the id that was wanted last is used up; what comes next takes none.
    async fn look(&mut self, at: &mut Backends) -> Result<(), Fault> {
        let Some(backend) = at.backend.as_mut() else { return Err(at.pinned_backend_lost("no backend")) };
        let server = Arc::clone(&backend.core.server);
        let question = Question::Values { expressions: &[INSERT_ID.to_owned()], as_bytes: false };
        match guarded_on(&at.worker, &at.handle, &server, door::exchange(backend, &[question], &at.worker.buffers)).await {
            Ok(replies) if replies.first().is_some_and(|left| numbers(left) == [0]) => self.open = None,
            Ok(_) => {}
            Err(e) => return Err(at.lost_before(&e)),
        }
        Ok(())
    }

    /// The next row gets this id (0: any), as it had; where the server allows that. A statement whose rows had ids of their own
    /// does not use up what was wanted for it: nothing takes that away but another one, so who would get it gets another backend.
    async fn want(&mut self, at: &mut Backends, place: usize, id: u64) -> Result<(), Fault> {
        let Some(backend) = at.backend.as_mut() else { return Err(at.pinned_backend_lost("no backend")) };
        let (left, set) = ([INSERT_ID.to_owned()], format!("SET {INSERT_ID}={id}"));
        let ask = self.open.map(|_| Question::Values { expressions: &left, as_bytes: false });
        let questions: Vec<Question<'_>> = ask.into_iter().chain((id != 0).then_some(Question::Set(&set))).collect();
        let server = Arc::clone(&backend.core.server);
        // The backend is the replay's: it knows nothing of the session's last statement.
        let exchange = door::exchange(backend, &questions, &at.worker.buffers);
        let replies = match guarded_on(&at.worker, &at.handle, &server, exchange).await {
            Ok(replies) => replies,
            Err(e) => return Err(at.lost_before(&e)),
        };
        if let (Some(before), Some(left)) = (self.open.take(), replies.first())
            && numbers(left) != [0]
        {
            self.unused.push(before);
            self.is_spoilt |= id == 0;
        }
        // One that the server refused is wanted of nobody.
        self.open = replies.last().filter(|reply| id != 0 && reply.error.is_none()).map(|_| place);
        Ok(())
    }
}

impl ServerDoor<'_> {
    /// Ends what is open on the backend at hand, which serves nobody any more.
    async fn close_transaction(&mut self) {
        if let Some(mut backend) = self.at.backend.take() {
            let Backends { worker, handle, .. } = &*self.at;
            // Its locks are gone before another connection asks for them; one that does not answer is closed all the same.
            let rollback = door::exchange(&mut backend, &[Question::Transaction("ROLLBACK")], &worker.buffers);
            let _ = guarded(worker, handle, rollback).await;
            self.at.backend = Some(backend);
            self.at.discard_backend();
        }
    }
}

/// What became of a transaction that was said on one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayOutcome {
    /// It is open there.
    Done,
    /// It has to be said on another one.
    Another,
}

/// The id that the next row gets.
const INSERT_ID: &str = "@@session.insert_id";

/// The ids that were wanted of a backend.
#[derive(Default)]
struct WantedIds {
    /// The statement for which one was wanted last, and it is not known whether it used it up.
    open: Option<usize>,
    /// Statements that did not.
    unused: Vec<usize>,
    /// One of those was followed by what may have taken it, or take it.
    is_spoilt: bool,
}

/// Sends a command, and listens to all of its answer: what it said, and its error.
async fn exchange(
    backend: &mut crate::backends::backend::Backend,
    command: &[u8],
    rows: Rows,
    pool: &crate::net::buffer::BufferPool,
) -> io::Result<(Option<ReplyDigest>, Option<ServerError>)> {
    backend.start_exchange()?;
    backend.link.write_all(command).await?;
    let mut hasher = ReplyHasher::new(ReplyKind::Results, backend.core.caps, rows);
    let mut error = None;
    loop {
        if error.is_none() {
            let front = ReplyError::at_front(backend.input.filled(), backend.core.caps);
            error = front.map(|(e, _)| ServerError { code: e.code, sqlstate: e.sqlstate, message: e.message.to_vec() });
        }
        let fed = hasher.feed(backend.input.filled());
        backend.input.consume(fed.consumed);
        if hasher.is_done() || hasher.is_confused() {
            break;
        }
        backend.input.reserve(fed.needs.min(MAX_PAYLOAD), pool);
        if backend.link.read(&mut backend.input, pool).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    backend.input.release(pool);
    if hasher.is_done() {
        backend.settled();
    }
    Ok((hasher.finish(), error))
}

/// What a client is told whose connection ends with its backend's.
const LOST: &str = "Lost connection to server during query";

/// The replay has ended, and the transaction with it.
fn differs(why: &str) -> Fault {
    Fault::End(End::BackendLost(format!("{LOST}: the transaction could not be replayed: {why}")))
}

/// A statement that was answered before is an error now: elsewhere, or a moment later, it may not be.
fn refused_again(e: ServerError) -> Fault {
    let error = ReplyError { code: e.code, sqlstate: e.sqlstate, message: &e.message, unasked: false };
    match certainty::refusal(&error) {
        Some(refusal) if refusal != Refusal::ReadOnlyTransaction => {
            Fault::Refused { refusal, code: e.code, sqlstate: e.sqlstate, text: e.message }
        }
        _ => differs(&format!("a statement fails now: {e}")),
    }
}

#[cfg(test)]
mod tests;
