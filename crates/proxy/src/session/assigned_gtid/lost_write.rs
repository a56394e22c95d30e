//! A write whose answer was lost: was it applied? The writer that the cluster has now is asked for its GTID.
//!
//! That the GTID is there is proof at once. That it is not there is proof only if it cannot come any more: the server takes
//! writes, follows nobody (a member of a group is asked otherwise: [`crate::session::assigned_gtid::group_barrier`]), has received nothing of that GTID that it
//! has still to apply, and the backend at hand owns the GTID, for which it has waited if another session or an applier had it.
//! What is then sent again is sent under the same GTID, and what is not uses it up with an empty transaction; so if the lost
//! transaction should turn up after all, every server that has the GTID skips it. INVARIANT: without one of the two proofs the
//! client is told that the outcome is unknown.

use crate::backends::backend::Backend;
use crate::hostgroups::gtid_source::AssignedGtid;
use crate::net::buffer::BufferPool;
use crate::session::Session;
use crate::session::assigned_gtid::group_barrier::ask_member;
use crate::session::assigned_gtid::{GtidStanding, Scope, is_plain, set_to};
use crate::session::backends::Backends;
use crate::session::command::Incoming;
use crate::session::door::{ServerDoor, door, exchange};
use crate::session::end::End;
use crate::session::fault::{Certainty, Fault};
use crate::session::frontend::Frontend;
use crate::session::guard::{paused, unless_killed};
use crate::session::hand::AtHand;
use crate::session::plan::Plan;
use crate::session::recovery::Recovery;
use crate::session::relay::Outgoing;
use crate::session::retry::Patience;
use crate::session::statements::Statements;
use crate::session::sync::Ahead;
use crate::workers::counters::count;
use session_state::collected::{Collected, ServerError};
use session_state::effects::verb;
use session_state::pins::{TRANSACTION, WISHES};
use session_state::question::Question;
use session_state::wants::Wants;
use sql::Facts;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use wire::codec::Reader;
use wire::codes;
use wire::flags::StatusFlags;
use wire::message::{OK, OkPacket};
use wire::reframe::ReplyFacts;

/// The server was lost, and the transaction was not applied: as where a server had to be left.
const NOT_APPLIED: u16 = codes::SERVER_LEFT;

/// COMMIT in its forms that neither chain nor release, without WORK.
const PLAIN_COMMITS: [&str; 4] = ["COMMIT", "COMMIT AND NO CHAIN", "COMMIT NO RELEASE", "COMMIT AND NO CHAIN NO RELEASE"];

/// More words than any COMMIT has.
const MOST_WORDS: usize = 9;

/// The connection at hand only asked: the transaction that is to follow is not open on it.
const NOT_CHAINED: &str =
    "Lost connection to server during query: the transaction was committed, but AND CHAIN or RELEASE was not carried out";

/// Longest that a member of a group is asked at a time: one that is cut off from the others never answers.
const MEMBER_LIMIT: Duration = Duration::from_secs(2);

/// What a server says of a GTID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) enum Finding {
    /// Its transaction is applied.
    Applied,
    /// It is not, and will not be unless by the backend that asked.
    Ours,
    /// It is not, but may still come.
    NotYet(&'static str),
    /// The server does not let the user ask.
    Denied(String),
}

/// Whether the question is asked in a transaction, in which the write may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Opening {
    /// It is.
    Begin,
    /// It is not: a transaction follows that says its own BEGIN.
    None,
}

impl Session {
    /// Before a single write is sent once more: asks what became of the attempt before. Returns the reply if it was applied.
    pub(in crate::session) async fn settle_write(&mut self, ahead: &mut Ahead) -> Result<Option<ReplyFacts>, Fault> {
        let Some(standing) = self.recovery.standing() else { return Ok(None) };
        if !matches!(standing, GtidStanding::InDoubt | GtidStanding::Disproved | GtidStanding::Claimed)
            || !self.recovery.is_of(Scope::Statement)
        {
            return Ok(None);
        }
        // The backend is taken to have what goes ahead.
        self.send_statement(ahead, Outgoing::Bytes(&[])).await?;
        *ahead = Ahead::default();
        match self.claim(Opening::Begin).await? {
            Finding::Applied => {
                self.door().clear_gtid(Some("ROLLBACK")).await;
                match self.recovery.assigned_gtid.as_mut().and_then(|assignment| assignment.answer.take()) {
                    Some(answer) => {
                        self.recovery.found_applied(&self.at);
                        self.door().give_insert_id(answer.facts.last_insert_id).await;
                        self.tell(answer).await.map(Some)
                    }
                    // It was applied before it was committed: only tables without transactions do that.
                    None => Err(self.recovery.undecided(&mut self.at, "the statement was applied, but its reply is unknown")),
                }
            }
            Finding::Ours => {
                if standing == GtidStanding::InDoubt {
                    count(&self.worker.counters.lost_writes_not_applied);
                }
                if let Some(error) = self.recovery.refused_here() {
                    self.recovery.set_standing(GtidStanding::Disproved);
                    self.door().clear_gtid(Some("COMMIT")).await;
                    return Err(Fault::server(error));
                }
                self.recovery.set_standing(GtidStanding::Claimed);
                Ok(None)
            }
            Finding::NotYet(why) => Err(self.recovery.not_yet(&mut door!(self), why).await),
            Finding::Denied(why) => Err(self.recovery.undecided(&mut self.at, &why)),
        }
    }

    /// Before the COMMIT of a transaction is sent once more: asks what became of the one before. Returns the reply if it was
    /// applied; an error if it was not, and its transaction cannot be replayed, or if it was to do more than to commit.
    pub(in crate::session) async fn settle_commit(&mut self, command: Incoming, plan: &Plan) -> Result<Option<ReplyFacts>, Fault> {
        if self.recovery.standing() != Some(GtidStanding::InDoubt) || !self.recovery.is_of(Scope::Transaction) {
            return Ok(None);
        }
        // Asked on any backend of the writer: nothing of the session's is needed for it.
        let pins = std::mem::take(&mut self.at.pins);
        let result = self.obtain().await;
        self.at.pins = pins;
        result?;
        match self.claim(Opening::Begin).await? {
            Finding::Applied => {
                self.causal.note_assigned(&self.at, &self.hand, self.recovery.assigned_gtid.as_deref());
                self.door().clear_gtid(Some("ROLLBACK")).await;
                self.recovery.found_applied(&self.at);
                if !self.statements.only_commits(&self.client, &self.wants, command, plan) {
                    return Err(End::BackendLost(NOT_CHAINED.to_owned()).into());
                }
                self.answer_commit().await.map(Some)
            }
            Finding::Ours => {
                count(&self.worker.counters.lost_writes_not_applied);
                self.recovery.set_standing(GtidStanding::Disproved);
                let is_movable = self.recovery.is_movable(&self.at, &self.facts);
                let refused = self.recovery.refused_here();
                let is_movable = is_movable && refused.is_none();
                // Without a replay the GTID is used up, whatever the answer to that is: it cannot be applied otherwise.
                self.door().clear_gtid(Some(if is_movable { "ROLLBACK" } else { "COMMIT" })).await;
                self.at.give_up_backend();
                match (is_movable, refused) {
                    (true, _) => Ok(None),
                    (false, Some(error)) => Err(self.recovery.not_applied_after(&mut door!(self), Fault::server(error))),
                    (false, None) => Err(self.recovery.not_applied(&mut door!(self), "")),
                }
            }
            Finding::NotYet(why) => Err(self.recovery.not_yet(&mut door!(self), why).await),
            Finding::Denied(why) => Err(self.recovery.undecided(&mut self.at, &why)),
        }
    }

    /// Before a transaction with an assigned GTID is said again: the backend gets the same assigned GTID if its COMMIT was sent before, else
    /// another one.
    pub(in crate::session) async fn gtid_of_replay(&mut self) -> Result<(), Fault> {
        match self.recovery.standing() {
            Some(GtidStanding::Disproved | GtidStanding::Claimed | GtidStanding::InDoubt) => match self.claim(Opening::None).await? {
                Finding::Ours => {
                    self.recovery.set_standing(GtidStanding::Claimed);
                    Ok(())
                }
                _ => {
                    self.recovery.set_standing(GtidStanding::InDoubt);
                    Err(self.at.lost_before(&io::Error::other("the lost transaction was found on the server after all")))
                }
            },
            Some(_) => {
                self.door().learn_member().await?;
                self.recovery.renew_gtid(&self.at);
                let mut ahead = Ahead::default();
                self.recovery.gtid_ahead(&mut self.at, &mut ahead);
                self.send_statement(&ahead, Outgoing::Bytes(&[])).await?;
                if self.recovery.standing() == Some(GtidStanding::Refused) {
                    self.recovery.drop_gtid(&self.at, false);
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The backend at hand asks for the assigned GTID, and owns it if it is not applied.
    async fn claim(&mut self, opening: Opening) -> Result<Finding, Fault> {
        let mut left =
            Duration::from_micros(self.recovery.retry_deadline_us(&self.at, &self.hand).saturating_sub(self.worker.shared.clock.now_us()));
        let in_group = self.door().is_of_group();
        if in_group {
            self.door().learn_member().await?;
            left = left.min(MEMBER_LIMIT);
        }
        let Some(assignment) = self.recovery.assigned_gtid.as_mut() else { return Ok(Finding::NotYet("no assigned GTID")) };
        let Some(backend) = self.at.backend.as_mut() else { return Ok(Finding::NotYet("no backend")) };
        let before = assignment.server.as_ref().filter(|before| !Arc::ptr_eq(before, &backend.core.server));
        let is_elsewhere = before.is_some_and(|before| before.is_online());
        backend.core.has_assigned_gtid = true;
        let exchange = async {
            let (gtid, pool) = (&assignment.gtid, &self.worker.buffers);
            let asking = async {
                match (in_group, &assignment.member) {
                    (true, Some(lost_on)) => ask_member(backend, gtid, lost_on, opening, &self.at.pool.shared.gtid_source, pool).await,
                    (true, None) => Ok(Finding::NotYet("the id of the lost member is unknown")),
                    (false, _) => ask(backend, gtid, opening, pool).await,
                }
            };
            let answer = tokio::time::timeout(left, asking).await;
            answer.unwrap_or_else(|_| {
                Err(io::Error::new(io::ErrorKind::TimedOut, "another session uses the transaction's GTID, or the group does not answer"))
            })
        };
        match unless_killed(&self.handle, exchange).await {
            Ok(Finding::Ours) if is_elsewhere => Ok(Finding::NotYet("the server that was lost is in use")),
            Ok(finding) => {
                if finding == Finding::Ours {
                    assignment.server = Some(Arc::clone(&backend.core.server));
                    if assignment.member.as_ref() != backend.core.held.member() {
                        // What the member before said of the COMMIT says nothing of this one.
                        assignment.refused = None;
                    }
                    assignment.member = backend.core.held.member().cloned();
                }
                Ok(finding)
            }
            Err(e) => Err(self.at.lost(&e, Certainty::Unknown)),
        }
    }

    /// The client is told that its transaction is committed.
    async fn answer_commit(&mut self) -> Result<ReplyFacts, Fault> {
        let session_state = self.recovery.reported_gtid(&self.client, &self.worker).unwrap_or_default();
        self.facts.insert_id.lose_backend();
        self.recovery.forget_transaction(&mut door!(self));
        if !self.at.pins.set().without(WISHES).is_empty() {
            // What else it had there is gone: the next statement is told.
            self.at.give_up_backend();
        }
        let mut status = self.client.current_status();
        status.set(StatusFlags::SESSION_STATE_CHANGED, !session_state.is_empty());
        let ok = OkPacket { affected_rows: 0, last_insert_id: 0, status, warnings: 0, info: b"", session_state: &session_state };
        let mut payload = Vec::with_capacity(16 + session_state.len());
        ok.write(&mut payload, OK, self.client.caps);
        self.client.send_payload(&mut self.at, &payload).await?;
        Ok(ReplyFacts { status: Some(self.client.current_status()), ..ReplyFacts::default() })
    }

    /// Its replay has failed: its GTID is used up, so that it cannot turn up later, and the client is told.
    pub(in crate::session) async fn disproved_for_good(&mut self, why: &str) -> Fault {
        self.at.backend = None;
        let pins = std::mem::take(&mut self.at.pins);
        let result = self.obtain().await;
        self.at.pins = pins;
        if result.is_ok() {
            let is_ours = matches!(self.claim(Opening::Begin).await, Ok(Finding::Ours));
            self.door().clear_gtid(Some(if is_ours { "COMMIT" } else { "ROLLBACK" })).await;
            self.at.give_up_backend();
        }
        self.recovery.not_applied(&mut door!(self), why)
    }
}

impl Statements {
    /// Whether this COMMIT does no more than that: no transaction is to follow at once, and its connection is not to be closed.
    fn only_commits(&self, client: &Frontend, wants: &Wants, command: Incoming, plan: &Plan) -> bool {
        let text = self.text_of(client, command, plan);
        let words = (0..MOST_WORDS).map_while(|behind| verb(text, wants.lex, behind)).filter(|word| word != "WORK");
        let completion = wants.state.variables.get("completion_type");
        !plan.analysis.facts.contains(Facts::VERSIONED)
            && completion.is_none_or(|value| **value == *b"0" || value.eq_ignore_ascii_case(b"NO_CHAIN"))
            && is_plain(&words.collect::<Vec<_>>().join(" "), &PLAIN_COMMITS)
    }
}

impl Recovery {
    /// The error of the member at hand, which has not left its group: then it is true.
    fn refused_here(&mut self) -> Option<ServerError> {
        self.assigned_gtid.as_mut().and_then(|assignment| assignment.refused.take())
    }

    /// Nobody can say.
    fn undecided(&mut self, at: &mut Backends, why: &str) -> Fault {
        self.set_standing(GtidStanding::Undecided);
        at.backend = None;
        Fault::Lost { certainty: Certainty::Unknown, text: why.to_owned(), pins: at.pins.set() }
    }

    fn found_applied(&self, at: &Backends) {
        count(&at.worker.counters.lost_writes_applied);
        if let Some(assignment) = &self.assigned_gtid {
            tracing::info!("session {}: the reply to a write was lost, but the write was applied ({})", at.handle.id, assignment.gtid);
        }
    }

    /// What follows a fault while it is not known whether a write was applied: another look, or the end of it.
    pub(in crate::session) async fn doubt_again(
        &mut self,
        at: &mut Backends,
        hand: &AtHand,
        patience: &mut Patience,
        fault: Fault,
    ) -> Result<(), Fault> {
        let now_us = at.worker.shared.clock.now_us();
        self.lost_at_us.get_or_insert(now_us);
        let (text, pins, again) = match fault {
            Fault::End(end) => return Err(end.into()),
            Fault::Lost { text, pins, .. } => (text, pins, true),
            // It was refused to the question: the write itself had been sent before.
            Fault::Refused { text, .. } => (String::from_utf8_lossy(&text).into_owned(), at.pins.set(), true),
            Fault::Error { text, .. } => (String::from_utf8_lossy(&text).into_owned(), at.pins.set(), false),
        };
        let until_us = self.retry_deadline_us(at, hand);
        if again && self.standing() == Some(GtidStanding::InDoubt) && now_us < until_us {
            at.backend = None;
            self.again_until_us = Some(until_us);
            let pause_ms = patience.next_pause_ms();
            match paused(&at.handle, tokio::time::sleep(Duration::from_millis(pause_ms))).await {
                Ok(()) => return Ok(()),
                Err(Fault::End(end)) => return Err(end.into()),
                Err(_) => {}
            }
        }
        count(&at.worker.counters.lost_writes_undecided);
        tracing::warn!("session {}: a write was lost, and the proxy cannot find out whether it was applied: {text}", at.handle.id);
        Err(Fault::Lost { certainty: Certainty::Unknown, text, pins })
    }

    /// The client is told that its transaction is not.
    fn not_applied(&mut self, door: &mut ServerDoor<'_>, why: &str) -> Fault {
        let because = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let text = format!(
            "The server was lost during COMMIT (hostgroup {}): the transaction was not applied and can be run again{because}",
            door.at.pool.shared.id
        );
        self.not_applied_after(door, Fault::error(NOT_APPLIED, b"HY000", text))
    }

    /// The same with this error; what else the session had with the backend is gone.
    fn not_applied_after(&mut self, door: &mut ServerDoor<'_>, fault: Fault) -> Fault {
        door.facts.insert_id.lose_backend();
        let rest = door.at.pins.set().without(TRANSACTION).without(WISHES);
        self.forget_transaction(door);
        match fault {
            Fault::Error { text, .. } if !rest.is_empty() => End::BackendLost(String::from_utf8_lossy(&text).into_owned()).into(),
            fault => fault,
        }
    }

    /// The question is to be asked again in a moment.
    async fn not_yet(&mut self, door: &mut ServerDoor<'_>, why: &str) -> Fault {
        door.clear_gtid(Some("ROLLBACK")).await;
        door.at.give_up_backend();
        // What was proven before holds no longer.
        self.set_standing(GtidStanding::InDoubt);
        Fault::Lost { certainty: Certainty::Unknown, text: why.to_owned(), pins: door.at.pins.set() }
    }
}

impl ServerDoor<'_> {
    /// The backend that is to be asked for LAST_INSERT_ID() did not run the statement: its reply is the best word on it.
    async fn give_insert_id(&mut self, id: u64) {
        let Some(backend) = self.at.backend.as_mut().filter(|_| id != 0) else { return };
        backend.core.held.insert_id_changed_unseen();
        if self.ask(Question::GiveInsertId(id)).await.is_err() {
            self.at.backend = None;
        }
    }
}

/// Owns the GTID, waiting for who has it, and then asks: nobody but this session can bring it about from then on.
async fn ask(backend: &mut Backend, gtid: &AssignedGtid, opening: Opening, pool: &BufferPool) -> io::Result<Finding> {
    let mut statements = vec![set_to(gtid)];
    if opening == Opening::Begin {
        statements.push("BEGIN".to_owned());
    }
    statements.push(format!("SELECT GTID_SUBSET('{gtid}',@@GLOBAL.gtid_executed),@@GLOBAL.read_only"));
    statements.push(format!(
        "SELECT COUNT(*) FROM performance_schema.replication_connection_status \
         WHERE SERVICE_STATE<>'OFF' OR GTID_SUBSET('{gtid}',RECEIVED_TRANSACTION_SET)"
    ));
    Ok(found(&claim(backend, &statements, pool).await?))
}

/// Has a server answer these together; its diagnostics are theirs from then on.
pub(in crate::session) async fn claim(backend: &mut Backend, statements: &[String], pool: &BufferPool) -> io::Result<Vec<Collected>> {
    let questions: Vec<Question<'_>> = statements.iter().map(|text| Question::Claim(text)).collect();
    exchange(backend, &questions, pool).await
}

/// What the answers say: to the SET, perhaps a BEGIN, then what is there, then what may still come.
fn found(replies: &[Collected]) -> Finding {
    let [setting @ .., there, coming] = replies else { return Finding::NotYet("no answer") };
    if let Some(error) = setting.iter().chain([there]).find_map(|reply| reply.error.as_ref()) {
        return Finding::Denied(error.to_string());
    }
    match numbers(there).as_slice() {
        [1, _] => Finding::Applied,
        [0, 0] => match (&coming.error, numbers(coming).as_slice()) {
            (Some(error), _) => Finding::Denied(error.to_string()),
            (None, [0]) => Finding::Ours,
            (None, _) => Finding::NotYet("the new writer still replicates from a server, or has not applied all that it received"),
        },
        _ => Finding::NotYet("the server is read-only"),
    }
}

/// The first row, if it is all numbers.
pub(in crate::session) fn numbers(reply: &Collected) -> Vec<u64> {
    let Some(row) = reply.rows.first() else { return Vec::new() };
    let mut reader = Reader::new(row);
    let mut all = Vec::new();
    while let Ok(bytes) = reader.lenenc_bytes() {
        match std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()) {
            Some(number) => all.push(number),
            None => return Vec::new(),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::backend::made::{error, row};

    fn finding(there: Collected, coming: Collected) -> Finding {
        found(&[Collected::default(), Collected::default(), there, coming])
    }

    #[test]
    fn only_a_writer_that_can_get_it_from_nobody_proves_that_it_is_not_there() {
        assert_eq!(finding(row(&["0", "0"]), row(&["0"])), Finding::Ours);
        assert!(matches!(finding(row(&["0", "1"]), row(&["0"])), Finding::NotYet(_)), "read-only");
        assert!(matches!(finding(row(&["0", "0"]), row(&["1"])), Finding::NotYet(_)), "it follows, or has received it");
        assert!(matches!(finding(row(&["0", "0"]), error(1142)), Finding::Denied(_)), "no right to see what was received");
        assert!(matches!(finding(Collected::default(), row(&["0"])), Finding::NotYet(_)), "no row");
        assert!(matches!(found(&[error(1227), Collected::default(), row(&["0", "0"]), row(&["0"])]), Finding::Denied(_)));
    }

    #[test]
    fn what_is_there_is_applied_whatever_else() {
        assert_eq!(finding(row(&["1", "0"]), row(&["0"])), Finding::Applied);
        assert_eq!(finding(row(&["1", "1"]), error(1142)), Finding::Applied);
    }
}

#[cfg(test)]
#[path = "lost_write_tests.rs"]
mod settle_tests;
