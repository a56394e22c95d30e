//! Causal reads: a session that wrote reads what it wrote, from whatever replica.
//!
//! On a cluster's writers the GTID of each write is remembered; MySQL must be told to say it. A statement for the cluster's
//! readers first asks the server at hand to wait for that GTID, and goes to the writers when it does not have it in time.
//! The same is done for what a token names, for a rule's `gtid_from_hostgroup` and for a comment's `min_gtid`.
//! A pinned session stays where it is: a transaction that began on a reader sees what was there when it began.

use super::Session;
use super::acquire::interruption;
use super::charsets;
use super::failed::REFUSED;
use super::fault::Fault;
use super::guard::{guarded, unless_killed};
use super::relay::Outgoing;
use super::sync::{Ahead, is_about_diagnostics};
use crate::backend::{Backend, Tracking};
use crate::causal::{CausalRole, Origin, Writing};
use crate::counters::count;
use model::HostgroupId;
use model::settings::CausalReads;
use sql::{Analysis, Facts, Kind};
use std::io;
use std::task::{Context, Waker};
use std::time::Duration;
use wire::charset::Flavor;
use wire::codec::Reader;
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;

/// A server that waits for a GTID answers within the time it was given; this is for the way there and back, ms.
const ANSWER_MS: u64 = 1_000;

/// GTIDs that a server is to have before a statement runs there.
#[derive(Clone, Copy)]
struct Wanted {
    /// Where the session has them from.
    origin: Origin,
    /// The hostgroup through which they were written, or which they are asked of.
    hostgroup: HostgroupId,
    /// Who serves the statement when they do not come in time.
    fallback: Option<HostgroupId>,
    /// How long they are waited for, ms.
    timeout_ms: u64,
}

impl Session {
    /// Whether the statement at hand is run as if there were no causal reads.
    pub(super) fn is_not_causal(&self) -> bool {
        self.lane.causal().is_none() && self.directions.gtid_from.is_none() && self.min_gtid.is_none()
    }

    /// Whether causal reads are on, and the session made or changed a table or its like: a server may lack it when it prepares.
    pub(super) fn has_defined(&self) -> bool {
        !self.is_not_causal() && self.writes.as_ref().is_some_and(|writes| writes.has_definitions)
    }

    /// As [`Session::sync`], where causal reads are on or the statement asks for them.
    pub(super) async fn sync_causally(&mut self, analysis: &Analysis) -> Result<Ahead, Fault> {
        let enters = self.backend.as_ref().is_some_and(|backend| backend.core.state.schema != self.state.schema);
        if enters
            && waits(analysis)
            && let Some(lacked) = self.what_is_lacked().await?
        {
            // The schema may be as new as the rows.
            self.leave_for_writer(lacked).await?;
        }
        let mut ahead = self.sync(analysis).await?;
        if waits(analysis)
            && let Some(lacked) = self.what_is_lacked().await?
        {
            // The backend is taken to have what goes ahead; there is none when it did not answer.
            if self.backend.is_some() {
                self.send_statement(&ahead, Outgoing::Bytes(&[])).await?;
            }
            self.leave_for_writer(lacked).await?;
            ahead = self.sync(analysis).await?;
        }
        if self.lane.causal().writes == Writing::Remembered {
            self.have_gtids_told(analysis, &mut ahead);
        }
        Ok(ahead)
    }

    /// Gets a backend of the writers, since the server at hand does not have in time what the statement is to see.
    async fn leave_for_writer(&mut self, lacked: Wanted) -> Result<(), Fault> {
        count(&self.worker.counters.causal_timeouts);
        let Some(writer) = lacked.fallback else { return Err(self.nobody_has(lacked)) };
        self.directions.needs.max_lag_ms = None;
        self.go_to(writer);
        self.obtain().await
    }

    /// Remembers what a statement wrote on a cluster's writers. An error tells no GTID, though what was open before it may be
    /// committed (CREATE TABLE of what is there), or a part of it (rows of a table without transactions).
    pub(super) fn note_written(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        let told = || reply.variables.iter().rev().find(|(name, _)| **name == *"last_gtid").map(|(_, value)| value);
        let gtids = reply.gtids.as_ref().or_else(told);
        let fails = reply.error.is_some_and(|code| may_have_committed(analysis, code));
        let Some(core) = self.backend.as_ref().map(|backend| &backend.core).filter(|_| fails || gtids.is_some()) else { return };
        let (writes, began_ms) = (self.writes.get_or_insert_default(), self.began_us / 1000);
        writes.has_definitions |= may_define(analysis);
        if let Some(gtids) = gtids {
            writes.note(&core.end(), began_ms, core.info.flavor, gtids);
        }
        if fails {
            writes.doubt(&core.end(), began_ms, core.info.flavor);
        }
    }

    /// Whether the backend at hand is to be asked what the session wrote.
    pub(super) fn lacks_gtids(&self) -> bool {
        let is_open = |backend: &Backend| self.writes.as_ref().is_some_and(|writes| writes.is_open(&backend.core.server.key));
        self.writes.is_some() && self.backend.as_ref().is_some_and(is_open)
    }

    /// Asks for the GTIDs of what the session wrote, or may have written, on the backend at hand, which nothing pins. MySQL knows
    /// only what the whole server has. Without an answer the session's reads stay with the writers.
    pub(super) async fn ask_for_gtids(&mut self) {
        let Some(backend) = self.backend.as_mut() else { return };
        let flavor = backend.core.info.flavor;
        let question = match flavor {
            Flavor::MariaDb => "SELECT @@last_gtid",
            Flavor::MySql => "SELECT @@GLOBAL.gtid_executed",
        };
        let asked_ms = self.worker.shared.clock.now_ms();
        let Ok(reply) = guarded(&self.worker, &self.entry, backend.query(question, &self.worker.buffers)).await else {
            self.backend = None;
            return;
        };
        backend.core.has_warnings |= reply.error.is_some() || reply.ok.warnings > 0;
        let told = reply.rows.first().and_then(|row| charsets::narrow(Reader::new(row).lenenc_bytes().ok()?));
        if let (Some(told), Some(writes)) = (told, self.writes.as_mut()) {
            writes.answered(&backend.core.end(), asked_ms, flavor, &told);
        }
    }

    /// What the server at hand does not have in time, of all that the statement at hand is to see.
    async fn what_is_lacked(&mut self) -> Result<Option<Wanted>, Fault> {
        if !self.pins.set().is_empty() {
            return Ok(None);
        }
        for wanted in self.gtids_wanted().into_iter().flatten() {
            if !self.has(wanted).await? {
                return Ok(Some(wanted));
            }
        }
        Ok(None)
    }

    /// What the statement at hand is to see: by the scope of causal reads, by its rule, by its comment.
    fn gtids_wanted(&mut self) -> [Option<Wanted>; 4] {
        let here = self.pool.shared.id;
        let part = self.lane.causal();
        let writer = match part.role {
            CausalRole::Readers { writer } => Some(writer),
            CausalRole::Writers | CausalRole::Others => None,
        };
        let wanted = |origin, hostgroup, fallback| Wanted { origin, hostgroup, fallback, timeout_ms: part.timeout_ms };
        let own = writer.filter(|_| part.scope != CausalReads::Off);
        let token = writer.filter(|_| part.scope == CausalReads::Token);
        let rule = self.directions.gtid_from.filter(|id| *id != here && own != Some(*id));
        // A cluster's writer has whatever was acknowledged.
        let comment = self.min_gtid.clone().filter(|_| part.role != CausalRole::Writers);
        let asked = writer.unwrap_or(here);
        if let Some(gtids) = &comment {
            self.writes.get_or_insert_default().told(Origin::Comment, asked, gtids);
        }
        [
            own.map(|id| wanted(Origin::Own, id, writer)),
            token.map(|id| wanted(Origin::Token, id, writer)),
            rule.map(|id| wanted(Origin::Own, id, Some(id))),
            comment.map(|_| wanted(Origin::Comment, asked, writer)),
        ]
    }

    /// Nobody is known who would have it for certain.
    fn nobody_has(&self, wanted: Wanted) -> Fault {
        let (id, ms) = (self.pool.shared.id, wanted.timeout_ms);
        let text = format!("Max connect timeout reached while reaching hostgroup {id} after {ms}ms: its server does not have min_gtid yet");
        Fault::error(9001, b"HY000", text)
    }

    /// Whether the server at hand has what is wanted; waits for it.
    async fn has(&mut self, wanted: Wanted) -> Result<bool, Fault> {
        let Wanted { origin, hostgroup, timeout_ms, .. } = wanted;
        let Some(written) = self.writes.as_ref().and_then(|writes| writes.known(origin, hostgroup)) else { return Ok(true) };
        let Some(backend) = self.backend.as_mut() else { return Ok(true) };
        if written.is_on(&backend.core.end()) {
            return Ok(true);
        }
        if !written.can_be_asked_for() {
            return Ok(false);
        }
        count(&self.worker.counters.causal_waits);
        let question = written.question(timeout_ms);
        let limit = Duration::from_millis(timeout_ms + ANSWER_MS);
        let asked_ms = self.worker.shared.clock.now_ms();
        let exchange = async {
            let answer = tokio::time::timeout(limit, backend.query(&question, &self.worker.buffers)).await;
            answer.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to the question for a GTID")))
        };
        let reply = match unless_killed(&self.entry, exchange).await {
            Ok(reply) => reply,
            Err(e) => {
                let fault = self.wait_failed(&e);
                // Nothing pins the session: as good as an answer that it has not got it.
                let is_lost = matches!(fault, Fault::Lost { .. });
                return if is_lost && wanted.fallback.is_some() { Ok(false) } else { Err(fault) };
            }
        };
        backend.core.has_warnings |= reply.error.is_some() || reply.ok.warnings > 0;
        let has_it = reply.error.is_none() && reply.rows.first().is_some_and(|row| Reader::new(row).lenenc_bytes() == Ok(b"0"));
        if has_it && let Some(writes) = self.writes.as_mut() {
            writes.arrived(origin, hostgroup, &backend.core.end(), asked_ms);
        }
        Ok(has_it)
    }

    /// The question was not answered: the session was killed, or the connection is of no use any more.
    fn wait_failed(&mut self, e: &io::Error) -> Fault {
        let killed =
            (e.kind() == io::ErrorKind::Interrupted).then(|| interruption(&self.entry, &Context::from_waker(Waker::noop()))).flatten();
        match killed {
            Some(fault) => {
                self.discard_backend();
                fault
            }
            None => self.lost_before(e),
        }
    }

    /// MySQL says the GTIDs of writes only to those who asked for it. What is pinned has facts on the backend that a SET
    /// would wipe out; it asked when it began.
    fn have_gtids_told(&mut self, analysis: &Analysis, ahead: &mut Ahead) {
        let is_told = self.state.variables.get("session_track_gtids").is_some_and(|value| !value.eq_ignore_ascii_case(b"OFF"));
        if is_told || !self.pins.set().is_empty() || is_about_diagnostics(analysis) {
            return;
        }
        let Some(core) = self.backend.as_mut().map(|backend| &mut backend.core) else { return };
        let asks = core.info.flavor == Flavor::MySql && core.tracking == Tracking::Ours && !core.tells_gtids;
        if asks && !core.status.contains(StatusFlags::IN_TRANS) {
            ahead.push("SET SESSION session_track_gtids=OWN_GTID", core.caps);
            core.tells_gtids = true;
        }
    }
}

/// Whether a statement that failed with this error may have committed anything.
fn may_have_committed(analysis: &Analysis, code: u16) -> bool {
    let hides = analysis.facts.intersects(Facts::UNKNOWN_CODE | Facts::MULTI);
    match analysis.kind {
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Replace | Kind::LoadData => hides || !REFUSED.contains(&code),
        Kind::Select | Kind::Show | Kind::Explain | Kind::Use | Kind::Set | Kind::Savepoint | Kind::RollbackTo | Kind::ReleaseSavepoint => {
            hides
        }
        _ => hides || !is_about_diagnostics(analysis),
    }
}

/// Whether the statement may make or change a table or its like.
fn may_define(analysis: &Analysis) -> bool {
    let defines = matches!(
        analysis.kind,
        Kind::Ddl | Kind::DropTable | Kind::Call | Kind::Compound | Kind::Execute | Kind::SetStatement | Kind::Other
    );
    defines || analysis.facts.intersects(Facts::UNKNOWN_CODE | Facts::MULTI)
}

/// Whether the statement may read rows or definitions: USE reads whether there is the schema.
fn waits(analysis: &Analysis) -> bool {
    let only_writes = matches!(
        analysis.kind,
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Replace | Kind::LoadData | Kind::Ddl | Kind::DropTable | Kind::Set
    );
    !only_writes && !is_about_diagnostics(analysis)
}
