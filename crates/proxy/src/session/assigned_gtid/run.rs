//! Running what has an assigned GTID: a single write in a transaction of the proxy's, or a statement of the client's own transaction.
//!
//! A single write takes two round trips: the assigned GTID, BEGIN and the statement in one write, then COMMIT. Its answer is held
//! until the COMMIT is answered, and is told as that of a statement outside of any transaction. INVARIANT: the client has an OK
//! only for what was committed, and what may have been committed is InDoubt before anything else is done.

use crate::backends::backend::put_query;
use crate::session::Session;
use crate::session::assigned_gtid::{AUTOMATIC, Assignment, GtidStanding, HeldReply, LEAVING_GROUP, Scope, commit_plan, is_plain};
use crate::session::backends::Backends;
use crate::session::causal::Causality;
use crate::session::command::Incoming;
use crate::session::connection::Connection;
use crate::session::door::{ServerDoor, door};
use crate::session::fault::{Certainty, Fault};
use crate::session::frontend::Frontend;
use crate::session::guard::guarded;
use crate::session::hand::AtHand;
use crate::session::plan::Plan;
use crate::session::recovery::Recovery;
use crate::session::relay::{Outgoing, tells_client_gtids};
use crate::session::sync::Ahead;
use crate::workers::worker::Worker;
use session_state::causal::Writing;
use session_state::certainty;
use session_state::collected::ServerError;
use session_state::pins::PinReason;
use session_state::question::Question;
use sql::{Analysis, Facts, Kind};
use std::io;
use wire::codec::Reader;
use wire::codes;
use wire::flags::StatusFlags;
use wire::reframe::{ReplyError, ReplyFacts, with_changes};
use wire::reply::ReplyKind;
use wire::session_state::{Change, put_change};

/// Errors of a server that goes (1053) or has closed the session (3169, 4031): they say nothing of what it was doing.
const LEAVING: [u16; 3] = [codes::SERVER_SHUTDOWN, codes::SESSION_WAS_KILLED, codes::CLIENT_INTERACTION_TIMEOUT];

/// A transaction that reads more tables than these, of which nothing is known, counts as one that writes.
const MOST_READS: usize = 64;

impl Session {
    /// Sends a statement for which the session has an assigned GTID, with what goes ahead of it.
    pub(in crate::session) async fn run_with_gtid(
        &mut self,
        ahead: Ahead,
        outgoing: Outgoing<'_>,
        command: Incoming,
        plan: &Plan,
    ) -> Result<ReplyFacts, Fault> {
        match self.recovery.assigned_gtid.as_ref().map(|assignment| assignment.scope) {
            Some(Scope::Statement) => {
                let result = self.write_with_gtid(ahead, outgoing, plan).await;
                let was_sent = matches!(result, Err(Fault::Lost { certainty: Certainty::Unknown, .. }));
                if was_sent && matches!(self.recovery.standing(), Some(GtidStanding::Set | GtidStanding::Claimed)) {
                    self.recovery.set_standing(GtidStanding::InDoubt);
                }
                result
            }
            _ => self.run_in_assigned(ahead, outgoing, command, plan).await,
        }
    }

    /// A single write: the statement, then its COMMIT, then the answer.
    async fn write_with_gtid(&mut self, mut ahead: Ahead, outgoing: Outgoing<'_>, plan: &Plan) -> Result<ReplyFacts, Fault> {
        if let Some(assignment) = self.recovery.assigned_gtid.as_mut() {
            assignment.answer = None;
        }
        match self.recovery.standing() {
            Some(GtidStanding::Claimed) => {}
            Some(GtidStanding::Refused) => ahead.put_query("BEGIN", self.at.backend.caps()),
            _ => {
                self.recovery.renew_gtid(&self.at);
                self.recovery.gtid_ahead(&mut self.at, &mut ahead);
            }
        }
        let answer = self.exchange_held(&ahead, outgoing, plan).await?;
        if answer.facts.error.is_some_and(|code| LEAVING.contains(&code)) {
            return Err(self.at.lost(&io::Error::other("the server is shutting down"), Certainty::Unknown));
        }
        self.at.backend.note_answered(self.handle.id, &mut self.facts, &answer.facts);
        self.door().will_commit().await?;
        match answer.facts.error {
            Some(_) => {
                self.causal.note_gtids(&self.at, &self.hand, &plan.analysis, &answer.facts);
                self.recovery.close_failed(&mut door!(self)).await;
            }
            None => {
                let facts = answer.facts.clone();
                if let Some(assignment) = self.recovery.assigned_gtid.as_mut() {
                    assignment.answer = Some(HeldReply { packets: answer.packets.clone(), facts });
                }
                if let Some(refused) = self.commit_write(plan).await? {
                    self.client.write_front(&self.at, &refused.packets).await?;
                    return Ok(refused.facts);
                }
            }
        }
        self.tell(answer).await
    }

    /// Gives the client the answer that was held.
    pub(in crate::session) async fn tell(&mut self, mut answer: HeldReply) -> Result<ReplyFacts, Fault> {
        if answer.facts.error.is_none()
            && let Some(told) = self.recovery.reported_gtid(&self.client, &self.worker)
            && let Some(packet) = with_changes(&answer.packets, self.client.caps, &told)
        {
            answer.packets = packet;
        }
        self.client.write_front(&self.at, &answer.packets).await?;
        if self.at.lane.causal().writes == Writing::Remembered && answer.facts.error.is_none() {
            answer.facts.gtids = self.recovery.assigned_gtid.as_ref().map(|assignment| assignment.gtid.to_string().into_bytes().into());
            self.causal.note_written(&self.at, &self.hand, &commit_plan(0).analysis, &answer.facts);
        }
        Ok(answer.facts)
    }

    /// Sends a statement and keeps its answer back.
    async fn exchange_held(&mut self, ahead: &Ahead, outgoing: Outgoing<'_>, plan: &Plan) -> Result<HeldReply, Fault> {
        self.send_statement(ahead, outgoing).await?;
        if let Some(assignment) = self.recovery.assigned_gtid.as_mut() {
            assignment.held = Some(Vec::with_capacity(64));
        }
        let result = self.relay(plan).await;
        let packets = self.recovery.assigned_gtid.as_mut().and_then(|assignment| assignment.held.take()).unwrap_or_default();
        result.map(|facts| HeldReply { packets, facts })
    }

    /// Commits the write; returns the error if that was refused.
    async fn commit_write(&mut self, plan: &Plan) -> Result<Option<HeldReply>, Fault> {
        let has_assigned_gtid = self.at.backend.as_ref().is_some_and(|backend| backend.core.has_assigned_gtid);
        let mut bytes = Vec::with_capacity(96);
        put_query(&mut bytes, b"COMMIT", self.at.backend.caps());
        if has_assigned_gtid {
            put_query(&mut bytes, AUTOMATIC.as_bytes(), self.at.backend.caps());
        }
        let heard = self.beside.as_mut().and_then(|beside| beside.set_aside());
        let commit = self.exchange_held(&Ahead::default(), Outgoing::Bytes(&bytes), &commit_plan(plan.analysis.digest)).await;
        if let (Some(beside), Ok(HeldReply { facts: ReplyFacts { error: None, .. }, .. })) = (self.beside.as_mut(), &commit) {
            beside.put_back(heard);
        }
        let commit = match commit {
            Ok(commit) => commit,
            Err(Fault::Lost { text, pins, .. }) => return Err(Fault::Lost { certainty: Certainty::Unknown, text, pins }),
            Err(other) => return Err(other),
        };
        match commit.facts.error {
            None => {
                if has_assigned_gtid {
                    self.door().hear_automatic().await;
                }
                Ok(None)
            }
            Some(code) if LEAVING.contains(&code) => {
                Err(self.at.lost(&io::Error::other("the server is shutting down"), Certainty::Unknown))
            }
            Some(code) if has_assigned_gtid && LEAVING_GROUP.contains(&code) => {
                let told = ReplyError::at_front(&commit.packets, self.client.caps);
                let sqlstate = told.map_or(*b"HY000", |(error, _)| error.sqlstate);
                Err(self.recovery.refused_by_member(&mut self.at, ServerError { code, sqlstate, message: commit.facts.message.to_vec() }))
            }
            // What is left of the transaction goes with the connection.
            Some(_) => {
                self.at.backend = None;
                Ok(Some(commit))
            }
        }
    }

    /// A statement of the client's transaction.
    async fn run_in_assigned(
        &mut self,
        mut ahead: Ahead,
        outgoing: Outgoing<'_>,
        command: Incoming,
        plan: &Plan,
    ) -> Result<ReplyFacts, Fault> {
        let is_alone = !plan.analysis.facts.contains(Facts::MULTI);
        match plan.analysis.kind {
            Kind::Begin if !self.recovery.is_in_assigned(&self.at) => {
                self.recovery.renew_gtid(&self.at);
                self.recovery.gtid_ahead(&mut self.at, &mut ahead);
            }
            Kind::Begin if is_alone => return self.begin_anew(&ahead, outgoing, plan).await,
            Kind::Commit | Kind::Rollback if is_alone && self.recovery.is_in_assigned(&self.at) => {
                return self.end_assigned(&ahead, outgoing, command, plan).await;
            }
            _ => self.note_in_assigned(command, plan),
        }
        self.send_statement(&ahead, outgoing).await?;
        let reply = self.relay(plan).await?;
        self.causal.note_gtids(&self.at, &self.hand, &plan.analysis, &reply);
        Ok(reply)
    }

    /// The client ends its transaction; the assigned GTID goes in the same write. One that only read is rolled back: an empty
    /// transaction with a GTID would be written to the binary log.
    async fn end_assigned(&mut self, ahead: &Ahead, outgoing: Outgoing<'_>, command: Incoming, plan: &Plan) -> Result<ReplyFacts, Fault> {
        let commits = plan.analysis.kind == Kind::Commit;
        let only_read = commits
            && self.recovery.assigned_gtid.as_ref().is_some_and(|assignment| !assignment.wrote && !assignment.is_spent)
            && is_plain(&self.statements.words_of(&self.client, command, plan), &["COMMIT", "COMMIT WORK"])
            && self.recovery.has_only_read(&mut door!(self)).await?;
        let mut bytes = Vec::with_capacity(128);
        if only_read {
            put_query(&mut bytes, b"ROLLBACK", self.at.backend.caps())
        } else {
            bytes.extend_from_slice(outgoing.bytes(&self.client.input))
        }
        put_query(&mut bytes, AUTOMATIC.as_bytes(), self.at.backend.caps());
        self.send_statement(ahead, Outgoing::Bytes(&bytes)).await?;
        let reply = match self.relay(plan).await {
            Ok(reply) => reply,
            Err(fault) => {
                let is_unknown = matches!(fault, Fault::Lost { certainty: Certainty::Unknown, .. });
                if is_unknown && commits && !only_read {
                    self.recovery.set_standing(GtidStanding::InDoubt);
                }
                return Err(fault);
            }
        };
        self.causal.note_gtids(&self.at, &self.hand, &plan.analysis, &reply);
        if !self.door().hear_automatic().await && reply.status.is_some_and(|status| status.contains(StatusFlags::IN_TRANS)) {
            // AND CHAIN: the next one has begun, and is empty.
            self.door().clear_gtid_chained(b"").await;
        }
        if self.at.backend.as_ref().is_none_or(|backend| !backend.core.has_assigned_gtid) {
            let is_unused = reply.error.is_none() && (only_read || !commits && self.recovery.is_unused(&mut door!(self)).await);
            self.recovery.drop_gtid(&self.at, is_unused);
        }
        Ok(reply)
    }

    /// A statement runs in the transaction, which writes or reads something.
    fn note_in_assigned(&mut self, command: Incoming, plan: &Plan) {
        if self.recovery.assigned_gtid.as_ref().is_none_or(|assignment| assignment.wrote) {
            return;
        }
        let is_read = certainty::is_plain_read(&plan.analysis);
        let tables = if is_read { self.statements.tables_of(&self.client, &self.wants, &self.worker, command, plan) } else { None };
        let unproven = tables.map(|tables| self.door().unproven(tables));
        let Some(assignment) = self.recovery.assigned_gtid.as_mut() else { return };
        let Some(Ok(unproven)) = unproven else {
            assignment.wrote = true;
            return;
        };
        for table in unproven {
            if !assignment.reads.contains(&table) {
                assignment.reads.push(table);
            }
        }
        assignment.wrote = assignment.reads.len() > MOST_READS;
    }

    /// BEGIN in a transaction commits that one, and its assigned GTID is used up: the new one is begun once more without.
    async fn begin_anew(&mut self, ahead: &Ahead, outgoing: Outgoing<'_>, plan: &Plan) -> Result<ReplyFacts, Fault> {
        let begin = outgoing.bytes(&self.client.input).to_vec();
        self.send_statement(ahead, outgoing).await?;
        let reply = self.relay(plan).await?;
        self.causal.note_gtids(&self.at, &self.hand, &plan.analysis, &reply);
        if reply.error.is_none() {
            self.door().clear_gtid_chained(&begin).await;
            self.recovery.drop_gtid(&self.at, false);
        }
        Ok(reply)
    }
}

impl Causality {
    fn note_gtids(&mut self, at: &Backends, hand: &AtHand, analysis: &Analysis, reply: &ReplyFacts) {
        if at.lane.causal().writes == Writing::Remembered {
            self.note_written(at, hand, analysis, reply);
        }
    }

    /// The transaction of the assigned GTID is committed on the backend at hand, and no reply to the client's COMMIT says so.
    pub(in crate::session) fn note_assigned(&mut self, at: &Backends, hand: &AtHand, assignment: Option<&Assignment>) {
        let gtids = assignment.map(|assignment| assignment.gtid.to_string().into_bytes().into());
        self.note_gtids(at, hand, &commit_plan(0).analysis, &ReplyFacts { gtids, ..ReplyFacts::default() });
    }
}

impl Recovery {
    /// The statement failed. An assigned GTID that was in doubt before is used up by an empty transaction, so that what was lost under it
    /// cannot turn up later.
    async fn close_failed(&mut self, door: &mut ServerDoor<'_>) {
        let is_spent = self.assigned_gtid.as_ref().is_some_and(|assignment| assignment.is_spent);
        door.clear_gtid(Some(if is_spent { "COMMIT" } else { "ROLLBACK" })).await;
        let is_unused = !is_spent && self.is_unused(door).await;
        self.drop_gtid(door.at, is_unused);
    }

    /// A member's word that the commit failed: the group is asked what became of it.
    pub(in crate::session) fn refused_by_member(&mut self, at: &mut Backends, error: ServerError) -> Fault {
        let fault = at.lost(&io::Error::other(error.to_string()), Certainty::Unknown);
        if let Some(assignment) = self.assigned_gtid.as_mut() {
            assignment.refused = Some(error);
        }
        fault
    }

    /// Whether the assigned GTID that was rolled back on the backend at hand is certainly free: what writes to tables without transactions
    /// uses it up at once.
    async fn is_unused(&self, door: &mut ServerDoor<'_>) -> bool {
        let Some(assignment) = self.assigned_gtid.as_ref() else { return false };
        match door.ask(Question::IsApplied(&assignment.gtid.to_string())).await {
            Ok(reply) => reply.error.is_none() && reply.rows.first().is_some_and(|row| Reader::new(row).lenenc_bytes() == Ok(b"0")),
            Err(_) => {
                door.at.backend = None;
                false
            }
        }
    }

    /// The assigned GTID was on a connection that is gone, which may still own it: the transaction gets another one.
    pub(in crate::session) fn renew_gtid(&mut self, at: &Backends) {
        let Some(assignment) = self.assigned_gtid.as_mut().filter(|assignment| assignment.standing != GtidStanding::Fresh) else { return };
        if let Some(gtid) = at.pool.shared.gtid_source.take() {
            (assignment.gtid, assignment.standing, assignment.is_spent) = (gtid, GtidStanding::Fresh, false);
        }
    }

    /// The GTID of what was committed as an handle of the session tracker, for a client that asked for it. The server tells it
    /// with the COMMIT, which the client knows nothing of.
    pub(in crate::session) fn reported_gtid(&self, client: &Frontend, worker: &Worker) -> Option<Vec<u8>> {
        let assignment = self.assigned_gtid.as_ref().filter(|_| tells_client_gtids(worker, client.filter.as_deref()))?;
        let mut told = Vec::new();
        put_change(&mut told, &Change::Gtids(assignment.gtid.to_string().as_bytes()));
        Some(told)
    }

    /// A statement that commits implicitly was refused because of the assigned GTID: its transaction is committed, as it would have
    /// been, and then it is sent again.
    pub(in crate::session) async fn commit_for_implicit(
        &mut self,
        door: &mut ServerDoor<'_>,
        causal: &mut Causality,
        hand: &AtHand,
    ) -> Result<(), Fault> {
        if !door.facts.insert_id.is_known() {
            door.read_insert_id().await?;
        }
        if door.at.backend.is_none() {
            return Err(door.at.pinned_backend_lost("no backend"));
        }
        match door.ask(Question::Transaction("COMMIT")).await {
            Err(e) => Err(door.at.lost(&e, Certainty::Unknown)),
            Ok(reply) => match reply.error {
                Some(error) => Err(Fault::server(error)),
                None => {
                    causal.note_assigned(door.at, hand, self.assigned_gtid.as_deref());
                    door.clear_gtid(None).await;
                    self.forget_transaction(door);
                    Ok(())
                }
            },
        }
    }

    /// Whether nothing that the transaction read may have written.
    async fn has_only_read(&mut self, door: &mut ServerDoor<'_>) -> Result<bool, Fault> {
        let reads = self.assigned_gtid.as_ref().map(|assignment| assignment.reads.clone()).unwrap_or_default();
        if reads.is_empty() {
            return Ok(true);
        }
        let only_read = Box::pin(door.are_harmless(reads)).await?;
        if let Some(assignment) = self.assigned_gtid.as_mut() {
            assignment.wrote |= !only_read;
        }
        Ok(only_read)
    }
}

impl ServerDoor<'_> {
    /// Ends the empty transaction that has begun on the backend at hand, and begins it again without an assigned GTID.
    async fn clear_gtid_chained(&mut self, begin: &[u8]) {
        if !self.clear_gtid(Some("ROLLBACK")).await {
            return;
        }
        let Backends { backend, worker, handle, .. } = &mut *self.at;
        let Some(backend) = backend.as_mut() else { return };
        let exchange = async {
            let mut out = begin.to_vec();
            if out.is_empty() {
                put_query(&mut out, b"BEGIN", backend.core.caps);
            }
            backend.start_exchange()?;
            backend.link.write_all(&out).await?;
            backend.collect(ReplyKind::Results, false, &worker.buffers).await
        };
        let is_open = guarded(worker, handle, exchange).await.is_ok_and(|reply| reply.error.is_none());
        if !is_open {
            self.at.discard_backend();
        }
    }

    /// The COMMIT goes out otherwise than by the door, since a refusal is the client's answer.
    async fn will_commit(&mut self) -> Result<(), Fault> {
        if let Err(e) = self.will_ask(&[Question::Transaction("COMMIT")]).await {
            return Err(self.at.lost(&e, Certainty::Unknown));
        }
        // That a transaction is open is not the client's matter.
        self.at.pins.end(PinReason::Transaction);
        self.status.remove(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY);
        Ok(())
    }
}

impl ServerDoor<'_> {
    /// The reply to the SET that follows the end of a transaction: whether the assigned GTID is gone. What was answered before stays so,
    /// whatever becomes of the connection.
    async fn hear_automatic(&mut self) -> bool {
        let Backends { backend, worker, handle, .. } = &mut *self.at;
        let Some(held) = backend.as_mut() else { return false };
        match guarded(worker, handle, held.collect(ReplyKind::Results, false, &worker.buffers)).await {
            Ok(reply) => {
                held.core.has_assigned_gtid = reply.error.is_some();
                reply.error.is_none()
            }
            Err(_) => {
                *backend = None;
                false
            }
        }
    }
}
