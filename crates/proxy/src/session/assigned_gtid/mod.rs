//! Which transactions get a GTID of the proxy's choice (`settle_lost_writes`), and how a backend is given it and rid of it.
//!
//! An assigned GTID is given to a single write outside of any transaction, which then runs in one that the client does not see
//! ([`run`]), and to a transaction that begins with a plain BEGIN. INVARIANT: a backend whose `gtid_next` may
//! still be one never goes back to its pool so: [`BackendState::has_assigned_gtid`](crate::backends::backend::BackendState::has_assigned_gtid)
//! marks it.
//!
//! How MySQL treats `gtid_next` (manual, "GTID_NEXT"; each seen on 9.7): it is set before a transaction and not in one (1766);
//! who owns a GTID cannot set another one before it has committed or rolled back (1790); after that it must be set again
//! before the next write (1837); statements that commit implicitly are refused in the transaction, untouched (1778).

mod group_barrier;
pub(super) mod lost_write;
mod run;

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::door::ServerDoor;
use super::fault::{Certainty, Fault};
use super::frontend::Frontend;
use super::guard::guarded;
use super::hand::AtHand;
use super::plan::Plan;
use super::recovery::Recovery;
use super::statements::Statements;
use super::sync::Ahead;
use crate::backends::backend::put_query;
use crate::hostgroups::gtid_source::AssignedGtid;
use crate::hostgroups::pool::HostgroupPool;
use crate::servers::server::ServerShared;
use crate::workers::counters::count;
use model::Snapshot;
use model::snapshot::RoleKind;
use session_state::certainty;
use session_state::collected::ServerError;
use session_state::pins::{PinReason, WISHES};
use session_state::question::Question;
use session_state::views::SchemaTable;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind};
use std::io;
use std::sync::Arc;
use wire::codec::Reader;
use wire::codes;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};
use wire::reframe::ReplyFacts;
use wire::reply::ReplyKind;

/// ER_CANT_DO_IMPLICIT_COMMIT_IN_TRX_WHEN_GTID_NEXT_IS_SET.
pub(super) const IMPLICIT_COMMIT: u16 = codes::CANT_DO_IMPLICIT_COMMIT_WITH_GTID_NEXT;

/// Errors at a COMMIT of a member that may be leaving its group: ER_RUN_HOOK_ERROR, ER_TRANSACTION_ROLLBACK_DURING_COMMIT.
pub(super) const LEAVING_GROUP: [u16; 2] = [codes::RUN_HOOK_ERROR, codes::TRANSACTION_ROLLBACK_DURING_COMMIT];

/// After a server refused an assigned GTID, none is tried for this long, ms.
const REFUSED_FOR_MS: u64 = 60_000;

/// Brings `gtid_next` back to what sessions have.
pub(super) const AUTOMATIC: &str = "SET SESSION gtid_next='AUTOMATIC'";

/// Variables whose effect on a transaction, or on what is told of it, the proxy does not imitate.
const OWN_WAYS: [&str; 2] = ["completion_type", "session_track_transaction_info"];

/// What an assigned GTID is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// One statement, in a transaction of the proxy's.
    Statement,
    /// The client's transaction.
    Transaction,
}

/// How things stand with an assigned GTID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GtidStanding {
    /// No server has it.
    Fresh,
    /// It is on the backend at hand, or was on one that is lost; no COMMIT was sent.
    Set,
    /// A server does not take it: the statement runs without.
    Refused,
    /// Its transaction may have happened.
    InDoubt,
    /// Its transaction did not happen. Nothing of it is on the backend at hand.
    Disproved,
    /// The same, and the backend at hand owns it, so that nobody else can bring it about.
    Claimed,
    /// Nobody can say whether its transaction happened.
    Undecided,
}

/// An answer that the client does not have yet.
#[derive(Debug)]
pub(super) struct HeldReply {
    /// Packets for the client.
    pub packets: Vec<u8>,
    /// What they say.
    pub facts: ReplyFacts,
}

/// An assigned GTID that the session uses.
pub(super) struct Assignment {
    /// The GTID.
    pub gtid: AssignedGtid,
    /// What for.
    pub scope: Scope,
    /// How things stand.
    pub standing: GtidStanding,
    /// Its number may have been used: it is not given back.
    pub is_spent: bool,
    /// Something ran in the transaction that may have written.
    pub wrote: bool,
    /// What its reads read: which of it may have written is asked at its end.
    pub reads: Vec<SchemaTable>,
    /// Where it was set last.
    pub server: Option<Arc<ServerShared>>,
    /// The same as the group knows it, where it is a member of one.
    pub member: Option<Arc<str>>,
    /// What a member of a group said to the COMMIT, which proves nothing where it is leaving.
    pub refused: Option<ServerError>,
    /// What the statement said; the client is told once it is committed.
    pub answer: Option<HeldReply>,
    /// Takes the packets of a reply that is held back.
    pub held: Option<Vec<u8>>,
}

impl Session {
    /// Gives the statement at hand an assigned GTID, if it is one that gets one.
    pub(super) fn assign_gtid(&mut self, command: Incoming, plan: &Plan) {
        if self.recovery.assigned_gtid.is_some()
            || !self.at.lane.settings().settle_lost_writes
            || !self.client.may_have_gtid(&self.at, &self.wants)
        {
            return;
        }
        let Some(scope) = self.hand.scope_of(&self.client, &self.statements, command, plan) else { return };
        let Some(gtid) = self.at.pool.shared.gtid_source.take() else { return };
        let (standing, is_spent, wrote, reads) = (GtidStanding::Fresh, false, false, Vec::new());
        let (server, member, refused, answer, held) = (None, None, None, None, None);
        self.recovery.assigned_gtid =
            Some(Box::new(Assignment { gtid, scope, standing, is_spent, wrote, reads, server, member, refused, answer, held }));
    }
}

impl Frontend {
    /// Nothing but the statement is part of its transaction, and one server takes the cluster's writes.
    fn may_have_gtid(&self, at: &Backends, wants: &Wants) -> bool {
        let in_transaction = StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY;
        let is_alone = at.pins.set().without(WISHES).is_empty()
            && self.status.contains(StatusFlags::AUTOCOMMIT)
            && !self.status.intersects(in_transaction);
        is_alone
            && at.worker.shared.serves_mysql()
            && at.lane.may_assign_gtids(at.worker.shared.clock.now_ms())
            && OWN_WAYS.iter().all(|name| wants.state.variables.get(name).is_none())
            && has_one_writer(&at.pool, &at.worker.snapshot())
    }
}

impl AtHand {
    /// What an assigned GTID for this statement would be for; None for one that gets none.
    fn scope_of(&self, client: &Frontend, statements: &Statements, command: Incoming, plan: &Plan) -> Option<Scope> {
        let analysis = &plan.analysis;
        let is_alone = command.byte == Command::Query as u8 || command.byte == Command::StmtExecute as u8;
        let unfit = analysis.facts.intersects(Facts::MULTI | Facts::SYSTEM_VARIABLE) || !certainty::fails_whole(analysis);
        if !is_alone || unfit || !plan.patches.is_empty() || self.directions.retries == Some(0) {
            return None;
        }
        match analysis.kind {
            Kind::Insert | Kind::Update | Kind::Delete | Kind::Replace => Some(Scope::Statement),
            Kind::Begin if is_plain(&statements.words_of(client, command, plan), &["BEGIN", "BEGIN WORK", "START TRANSACTION"]) => {
                Some(Scope::Transaction)
            }
            _ => None,
        }
    }
}

impl Statements {
    /// The statement's text.
    pub(super) fn text_of<'a>(&'a self, client: &'a Frontend, command: Incoming, plan: &Plan) -> &'a [u8] {
        match plan.statement {
            Some(id) => self.get(id).map(|statement| &*statement.key.text).unwrap_or_default(),
            None => {
                let payload = client.payload(command);
                let start = if client.caps.contains(Capabilities::QUERY_ATTRIBUTES) {
                    wire::query::split_query(payload, client.caps).map_or(0, |parts| parts.sql.start - 1)
                } else {
                    0
                };
                client.sql_text(command, start)
            }
        }
    }

    /// The statement's words in capitals, with one space between.
    pub(super) fn words_of(&self, client: &Frontend, command: Incoming, plan: &Plan) -> String {
        plain_words(self.text_of(client, command, plan))
    }
}

impl Recovery {
    /// Has the assigned GTID set ahead of the statement, for [`Scope::Statement`] with the BEGIN of its transaction.
    pub(super) fn gtid_ahead(&mut self, at: &mut Backends, ahead: &mut Ahead) {
        let Some(assignment) = self.assigned_gtid.as_mut() else { return };
        let Some(backend) = at.backend.as_mut() else { return };
        put_query(&mut ahead.packets, set_to(&assignment.gtid).as_bytes(), backend.core.caps);
        ahead.gtid_replies = 1;
        if assignment.scope == Scope::Statement {
            put_query(&mut ahead.packets, b"BEGIN", backend.core.caps);
            ahead.gtid_replies = 2;
        }
        backend.core.has_assigned_gtid = true;
        assignment.standing = GtidStanding::Set;
        assignment.server = Some(Arc::clone(&backend.core.server));
        assignment.member = backend.core.held.member().cloned();
    }

    /// The assigned GTID is done with. `is_unused` is proof that its number may be used for another transaction.
    pub(super) fn drop_gtid(&mut self, at: &Backends, is_unused: bool) {
        let Some(assignment) = self.assigned_gtid.take() else { return };
        let never_set = matches!(assignment.standing, GtidStanding::Fresh | GtidStanding::Refused);
        if !assignment.is_spent && (is_unused || never_set) {
            at.pool.shared.gtid_source.give_back(&assignment.gtid);
        }
    }

    /// The client's transaction has an assigned GTID, and the backend at hand has it.
    pub(super) fn is_in_assigned(&self, at: &Backends) -> bool {
        self.assigned_gtid.as_ref().is_some_and(|assignment| assignment.scope == Scope::Transaction)
            && at.backend.as_ref().is_some_and(|backend| backend.core.has_assigned_gtid)
    }

    /// After [`Session::run_plan`](Session::run_plan): only a transaction that is open keeps its assigned GTID.
    pub(super) async fn gtid_after(&mut self, door: &mut ServerDoor<'_>) {
        let goes_on = self.is_in_assigned(door.at) && self.standing() == Some(GtidStanding::Set);
        if goes_on || self.assigned_gtid.is_none() {
            return;
        }
        if door.at.backend.as_ref().is_some_and(|backend| backend.core.has_assigned_gtid) {
            door.clear_gtid(Some("ROLLBACK")).await;
        }
        self.drop_gtid(door.at, false);
    }

    /// The replies to [`Recovery::gtid_ahead`]. An assigned GTID that is refused is done without.
    pub(super) async fn hear_gtid(&mut self, at: &mut Backends, replies: u32) -> Result<(), Fault> {
        for place in 0..replies {
            let Some(backend) = at.backend.as_mut() else { break };
            let reply = guarded(&at.worker, &at.handle, backend.collect(ReplyKind::Results, false, &at.worker.buffers)).await;
            match reply {
                Ok(reply) => match reply.error {
                    None => {}
                    Some(error) if reply.unasked => return Err(at.lost(&io::Error::other(error.to_string()), Certainty::NeverSent)),
                    Some(error) if place == 0 => self.gtid_refused(at, &error.to_string()),
                    Some(error) => return Err(at.lost(&io::Error::other(error.to_string()), Certainty::Unknown)),
                },
                Err(e) => return Err(at.lost(&e, Certainty::Unknown)),
            }
        }
        Ok(())
    }

    /// The server does not let the user choose a GTID.
    pub(super) fn gtid_refused(&mut self, at: &mut Backends, why: &str) {
        let now_ms = at.worker.shared.clock.now_ms();
        count(&at.worker.counters.gtids_refused);
        at.lane.assign_none_until(now_ms + REFUSED_FOR_MS);
        if let Some(backend) = at.backend.as_mut() {
            backend.core.has_assigned_gtid = false;
            backend.core.held.failed();
            if at.pool.shared.gtid_source.may_tell(now_ms) {
                let (user, key) = (&at.user.name, &backend.core.server.key);
                tracing::warn!(
                    "settle_lost_writes has no effect for user {user} on {}:{}: {why} (tried again after {} s)",
                    key.host,
                    key.port,
                    REFUSED_FOR_MS / 1000
                );
            }
        }
        if let Some(assignment) = self.assigned_gtid.as_mut() {
            assignment.standing = GtidStanding::Refused;
        }
    }

    /// The client's transaction ended otherwise than by its own COMMIT or ROLLBACK: its assigned GTID goes.
    pub(super) async fn clear_gtid_ended(&mut self, door: &mut ServerDoor<'_>) {
        if self.assigned_gtid.is_none() || door.at.pins.set().contains(PinReason::Transaction) {
            return;
        }
        door.clear_gtid(None).await;
        self.drop_gtid(door.at, false);
    }
}

impl ServerDoor<'_> {
    /// Whether the hostgroup is that of the writers of a group (Group Replication).
    pub(super) fn is_of_group(&self) -> bool {
        self.at.worker.snapshot().writers_by(self.at.pool.shared.id).any(|kind| *kind == RoleKind::GroupReplication)
    }

    /// Asks the backend at hand, once, which member of the group it is on: if that one is lost it has to be out of the group
    /// before anything is certain.
    pub(super) async fn learn_member(&mut self) -> Result<(), Fault> {
        if self.is_of_group() { self.learn_server().await } else { Ok(()) }
    }

    /// Asks the backend at hand, once, what its server calls itself, which no other one of its cluster does.
    pub(super) async fn learn_server(&mut self) -> Result<(), Fault> {
        let unnamed = self.at.backend.as_ref().filter(|backend| backend.core.held.member().is_none());
        let Some(flavor) = unnamed.map(|backend| backend.core.info.flavor) else { return Ok(()) };
        match self.ask(Question::ServerName(flavor)).await {
            Ok(reply) => {
                let Some(backend) = self.at.backend.as_mut() else { return Ok(()) };
                let answer = reply.rows.first().and_then(|row| Reader::new(row).lenenc_bytes().ok());
                backend.core.held.named_itself(answer.and_then(|uuid| std::str::from_utf8(uuid).ok()).map(Arc::from));
                Ok(())
            }
            Err(e) => Err(self.at.lost_before(&e)),
        }
    }

    /// Has the backend at hand run `verb` (COMMIT, ROLLBACK, or nothing) and then forget its assigned GTID. A backend that cannot is
    /// closed. Returns whether all of it was done.
    pub(super) async fn clear_gtid(&mut self, verb: Option<&'static str>) -> bool {
        let Some(backend) = self.at.backend.as_ref() else { return false };
        let forgets = backend.core.has_assigned_gtid.then_some(Question::Set(AUTOMATIC));
        let questions: Vec<Question<'_>> = verb.map(Question::Transaction).into_iter().chain(forgets).collect();
        let replies = self.ask_all(&questions).await;
        let done = replies.is_ok_and(|replies| replies.iter().all(|reply| reply.error.is_none()));
        match self.at.backend.as_mut().filter(|_| done) {
            Some(backend) => backend.core.has_assigned_gtid = false,
            None => self.at.discard_backend(),
        }
        done
    }
}

/// With several writers at a time, what one of them has not says nothing of the others.
fn has_one_writer(pool: &HostgroupPool, snapshot: &Snapshot) -> bool {
    snapshot.writers_by(pool.shared.id).any(|kind| matches!(kind, RoleKind::Replication(_) | RoleKind::GroupReplication))
        && pool.servers().iter().filter(|server| server.is_online()).count() == 1
}

impl Assignment {
    /// The packets of a reply that is held back go here.
    pub(super) fn holds(&mut self) -> Option<&mut Vec<u8>> {
        self.held.as_mut()
    }
}

/// The SET for an assigned GTID.
pub(super) fn set_to(gtid: &AssignedGtid) -> String {
    format!("SET SESSION gtid_next='{gtid}'")
}

/// A text's words in capitals, with one space between.
pub(super) fn plain_words(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).to_ascii_uppercase();
    text.trim_end_matches([';', ' ', '\t', '\r', '\n']).split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the words are one of these statements.
pub(super) fn is_plain(words: &str, statements: &[&str]) -> bool {
    statements.contains(&words)
}

/// A statement of the proxy's own that ends a transaction.
pub(super) fn commit_plan(digest: u64) -> Plan {
    Plan::new(Analysis { kind: Kind::Commit, facts: Facts::NONE, digest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_statement_is_one_however_it_is_spaced_and_ended() {
        for (text, expected) in [
            ("commit", true),
            (" Commit\t;\r\n", true),
            ("COMMIT\n WORK;;", true),
            ("COMMIT AND CHAIN", false),
            ("/* c */ COMMIT", false),
            ("COMMIT; SELECT 1", false),
            ("", false),
        ] {
            assert_eq!(is_plain(&plain_words(text.as_bytes()), &["COMMIT", "COMMIT WORK"]), expected, "{text:?}");
        }
    }
}

#[cfg(test)]
mod assigned_gtid_tests;
