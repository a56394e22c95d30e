//! Causal reads: a session that wrote reads what it wrote, from whatever replica.
//!
//! On a cluster's writers the GTID of each write is remembered; MySQL must be told to say it. A statement for the cluster's
//! readers first asks the server at hand to wait for that GTID, and goes to the writers when it does not have it in time.
//! The same is done for what a token names, for a rule's `gtid_from_hostgroup` and for a comment's `min_gtid`.
//! A transaction that began on a reader stays there, and sees what was there when it began. So does a statement that names what
//! a pin keeps on the reader, and is not waited for.

pub(super) mod token;

use super::Session;
use super::acquire::interruption;
use super::backends::{BOUND, Backends};
use super::command::Incoming;
use super::door::{ServerDoor, door};
use super::failed::REFUSED;
use super::fault::{Certainty, Fault};
use super::hand::AtHand;
use super::plan::Plan;
use super::relay::Outgoing;
use super::route::{Router, StatementText, TextCommand};
use super::statements::Statements;
use super::sync::Ahead;
use crate::backends::backend::{Backend, BackendState};
use crate::workers::counters::count;
use model::HostgroupId;
use model::settings::CausalReads;
use session_state::causal::{CausalRole, ConnectedServer, Origin, Writes, Writing};
use session_state::charsets::narrow;
use session_state::facts::is_about_diagnostics;
use session_state::held::{TRACK_GTIDS, Tracking};
use session_state::pins::{PinReason, PinSet, WISHES};
use session_state::question::Question;
use session_state::state::Variables;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind};
use std::io;
use std::task::{Context, Waker};
use std::time::Duration;
use wire::charset::Flavor;
use wire::codec::Reader;
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;

/// It is read before the server is asked anything.
const FOUND_ROWS: PinSet = PinSet::of(&[PinReason::FoundRows]);

/// A server that waits for a GTID answers within the time it was given; this is for the way there and back, ms.
const ANSWER_MS: u64 = 1_000;

/// What a session wrote last, where causal reads are on, and which GTIDs it was told of.
#[derive(Default)]
pub(super) struct Causality {
    pub writes: Option<Box<Writes>>,
}

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
    /// As [`Session::sync`], where causal reads are on or the statement asks for them. With `must_stay` only the backend at hand can
    /// serve the statement.
    pub(super) async fn sync_causally(&mut self, analysis: &Analysis, must_stay: bool) -> Result<Ahead, Fault> {
        let waits = waits(analysis) && !must_stay;
        let enters = self.at.backend.as_ref().is_some_and(|backend| backend.core.held.state().schema != self.wants.state.schema);
        if enters
            && waits
            && let Some(lacked) = self.causal.what_is_lacked(&mut door!(self), &self.hand).await?
        {
            // The schema may be as new as the rows.
            self.leave_for_writer(lacked).await?;
        }
        let mut ahead = self.sync(analysis).await?;
        if waits && let Some(lacked) = self.causal.what_is_lacked(&mut door!(self), &self.hand).await? {
            // The backend is taken to have what goes ahead; there is none when it did not answer.
            if self.at.backend.is_some() {
                self.send_statement(&ahead, Outgoing::Bytes(&[])).await?;
            }
            self.leave_for_writer(lacked).await?;
            ahead = self.sync(analysis).await?;
        }
        door!(self).have_gtids_told(&self.wants, analysis, &mut ahead).await?;
        Ok(ahead)
    }

    /// Gets a backend of the writers, since the server at hand does not have in time what the statement is to see.
    async fn leave_for_writer(&mut self, lacked: Wanted) -> Result<(), Fault> {
        count(&self.worker.counters.causal_timeouts);
        let Some(writer) = lacked.fallback else { return Err(lacked.timed_out(&self.at)) };
        self.hand.directions.needs.max_lag_ms = None;
        self.door().travel(writer).await;
        self.obtain().await
    }
}

impl Causality {
    /// Whether the backend at hand is to be asked what the session wrote.
    pub(super) fn lacks_gtids(&self, at: &Backends) -> bool {
        let is_open = |backend: &Backend| self.writes.as_ref().is_some_and(|writes| writes.is_open(&backend.core.server.key));
        at.backend.as_ref().is_some_and(is_open)
    }

    /// Whether causal reads are on, and the session made or changed a table or its like: a server may lack it when it prepares.
    pub(super) fn has_defined(&self, at: &Backends, hand: &AtHand) -> bool {
        !hand.is_not_causal(at) && self.writes.as_ref().is_some_and(|writes| writes.has_definitions)
    }

    /// Remembers what a statement wrote on a cluster's writers. An error tells no GTID, though what was open before it may be
    /// committed (CREATE TABLE of what is there), or a part of it (rows of a table without transactions). Nor does a connection of
    /// MySQL that was not asked to.
    pub(super) fn note_written(&mut self, at: &Backends, hand: &AtHand, analysis: &Analysis, reply: &ReplyFacts) {
        let told = || reply.variables.iter().rev().find(|(name, _)| **name == *"last_gtid").map(|(_, value)| value);
        let gtids = reply.gtids.as_ref().or_else(told);
        let Some(core) = at.backend.as_ref().map(|backend| &backend.core) else { return };
        let may_be_untold = match reply.error {
            Some(code) => may_have_committed(analysis, code),
            None => gtids.is_none() && ends_outside_transaction(reply) && !tells_of_writes(core) && may_have_committed(analysis, 0),
        };
        if !may_be_untold && gtids.is_none() {
            return;
        }
        let (writes, began_ms) = (self.writes.get_or_insert_default(), hand.began_us / 1000);
        writes.has_definitions |= may_define(analysis);
        if let Some(gtids) = gtids {
            writes.note(&core.end(), began_ms, core.info.flavor, gtids);
            at.worker.acknowledged.borrow_mut().add(gtids);
            if at.worker.shared.has_successor() {
                at.worker.shared.elsewhere.acknowledge([&**gtids]);
            }
        }
        if may_be_untold {
            writes.doubt(&core.end(), began_ms, core.info.flavor);
        }
    }

    /// A statement was lost for good that may have written: reads go to the writer until a write is noted, or the server is there again
    /// and says what it has.
    pub(super) fn note_lost(&mut self, at: &Backends, hand: &AtHand, analysis: &Analysis, fault: &Fault) {
        let is_unknown = matches!(fault, Fault::Lost { certainty: Certainty::Unknown | Certainty::Answering, .. });
        if !is_unknown || at.lane.causal().writes != Writing::Remembered || !may_have_committed(analysis, 0) {
            return;
        }
        let Some(server) = at.server() else { return };
        let end = ConnectedServer { server: &server.key, ip: None, since_ms: 0 };
        let writes = self.writes.get_or_insert_default();
        writes.has_definitions |= may_define(analysis);
        writes.doubt(&end, hand.began_us / 1000, at.worker.shared.flavor());
    }

    /// Asks for the GTIDs of what the session wrote, or may have written, on the backend at hand, which nothing pins. MySQL knows
    /// only what the whole server has. Without an answer the session's reads stay with the writers.
    pub(super) async fn ask_for_gtids(&mut self, door: &mut ServerDoor<'_>) {
        let Some(flavor) = door.at.backend.as_ref().map(|backend| backend.core.info.flavor) else { return };
        let asked_ms = door.at.worker.shared.clock.now_ms();
        let Ok(reply) = door.ask(Question::Gtids(flavor)).await else {
            door.at.backend = None;
            return;
        };
        let told = reply.rows.first().and_then(|row| narrow(Reader::new(row).lenenc_bytes().ok()?));
        if let (Some(told), Some(writes), Some(backend)) = (told, self.writes.as_mut(), door.at.backend.as_ref()) {
            writes.answered(&backend.core.end(), asked_ms, flavor, &told);
        }
    }

    /// Whether the server at hand has what is wanted; waits for it.
    async fn has_arrived(&mut self, door: &mut ServerDoor<'_>, wanted: Wanted) -> Result<bool, Fault> {
        let Wanted { origin, hostgroup, timeout_ms, .. } = wanted;
        let Some(written) = self.writes.as_ref().and_then(|writes| writes.known(origin, hostgroup)) else { return Ok(true) };
        let Some(backend) = door.at.backend.as_ref() else { return Ok(true) };
        if written.is_on(&backend.core.end()) {
            return Ok(true);
        }
        if !written.can_be_asked_for() {
            return Ok(false);
        }
        count(&door.at.worker.counters.causal_waits);
        let question = written.question(timeout_ms);
        let limit = Duration::from_millis(timeout_ms + ANSWER_MS);
        let asked_ms = door.at.worker.shared.clock.now_ms();
        let reply = match door.wait(&question, limit).await {
            Ok(reply) => reply,
            Err(e) => {
                let fault = door.wait_failed(&e);
                // Where nothing pins the session it is as good as an answer that it has not got it.
                let is_free = door.at.pins.set().without(WISHES).without(FOUND_ROWS).is_empty();
                let is_lost = is_free && matches!(fault, Fault::Lost { .. });
                return if is_lost && wanted.fallback.is_some() { Ok(false) } else { Err(fault) };
            }
        };
        let has_it = reply.error.is_none() && reply.rows.first().is_some_and(|row| Reader::new(row).lenenc_bytes() == Ok(b"0"));
        if has_it && let (Some(writes), Some(backend)) = (self.writes.as_mut(), door.at.backend.as_ref()) {
            writes.arrived(origin, hostgroup, &backend.core.end(), asked_ms);
        }
        Ok(has_it)
    }

    /// What the server at hand does not have in time, of all that the statement at hand is to see.
    async fn what_is_lacked(&mut self, door: &mut ServerDoor<'_>, hand: &AtHand) -> Result<Option<Wanted>, Fault> {
        if door.at.pins.set().intersects(BOUND) {
            return Ok(None);
        }
        for wanted in self.gtids_wanted(door.at, hand).into_iter().flatten() {
            if !self.has_arrived(door, wanted).await? {
                return Ok(Some(wanted));
            }
        }
        Ok(None)
    }

    /// What the statement at hand is to see: by the scope of causal reads, by its rule, by its comment.
    fn gtids_wanted(&mut self, at: &Backends, hand: &AtHand) -> [Option<Wanted>; 4] {
        let here = at.pool.shared.id;
        let part = at.lane.causal();
        let writer = match part.role {
            CausalRole::Readers { writer } => Some(writer),
            CausalRole::Writers | CausalRole::Others => None,
        };
        let wanted = |origin, hostgroup, fallback| Wanted { origin, hostgroup, fallback, timeout_ms: part.timeout_ms };
        let own = writer.filter(|_| part.scope != CausalReads::Off);
        let token = writer.filter(|_| part.scope == CausalReads::Token);
        let rule = hand.directions.gtid_from.filter(|id| *id != here && own != Some(*id));
        // A cluster's writer has whatever was acknowledged.
        let comment = hand.min_gtid.clone().filter(|_| part.role != CausalRole::Writers);
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
}

impl Router<'_> {
    /// Whether only the backend at hand can serve the statement: it names what a pin keeps there, or goes on with what is open there.
    pub(super) fn must_stay(&self, statements: &Statements, command: Incoming, plan: &Plan) -> bool {
        if self.at.pins.set().without(WISHES).is_empty() {
            return false;
        }
        let is_statement = command.byte == Command::Query as u8 || command.byte == Command::StmtExecute as u8;
        let text = statements.text_of(self.client, command, plan);
        !is_statement
            || plan.statement.is_some_and(|id| statements.has_cursor(id))
            || self.names_what_is_kept(StatementText { text, analysis: &plan.analysis, phase: TextCommand::Query })
    }
}

impl Wanted {
    /// Nobody is known who would have it for certain.
    fn timed_out(self, at: &Backends) -> Fault {
        let (id, ms) = (at.pool.shared.id, self.timeout_ms);
        let text = format!(
            "Max connect timeout reached while reaching hostgroup {id} after {ms}ms: the hostgroup's server has not applied min_gtid yet"
        );
        Fault::error(9001, b"HY000", text)
    }
}

/// Has MySQL tell the GTIDs of writes.
const TELLS_GTIDS: &str = "SET SESSION session_track_gtids=OWN_GTID";

/// Whether the server reports the GTIDs of writes, because the proxy or the client asked for them, or by itself.
fn tells_of_writes(core: &BackendState) -> bool {
    core.info.flavor != Flavor::MySql || core.held.tells_gtids() || tracks_gtids(&core.held.state().variables)
}

/// The variable that has MySQL report GTIDs.
fn tracks_gtids(variables: &Variables) -> bool {
    variables.get(TRACK_GTIDS).is_some_and(|value| !value.eq_ignore_ascii_case(b"OFF"))
}

/// Whether no transaction is open behind the statement.
fn ends_outside_transaction(reply: &ReplyFacts) -> bool {
    reply.status.is_some_and(|status| !status.contains(StatusFlags::IN_TRANS))
}

/// Whether the server at hand is still to be asked to tell the GTIDs of writes. What is pinned by state asked when it began.
fn lacks_telling(wants: &Wants, at: &Backends, analysis: &Analysis) -> bool {
    if tracks_gtids(&wants.state.variables) || !at.pins.set().without(WISHES).is_empty() || is_about_diagnostics(analysis) {
        return false;
    }
    let Some(core) = at.backend.as_ref().map(|backend| &backend.core) else { return false };
    let asks = core.info.flavor == Flavor::MySql && core.held.tracking() == Tracking::Ours && !core.held.tells_gtids();
    asks && !core.held.status().contains(StatusFlags::IN_TRANS)
}

impl ServerDoor<'_> {
    /// Has MySQL tell the GTIDs of writes from this statement on, where they are remembered.
    pub(super) async fn have_gtids_told(&mut self, wants: &Wants, analysis: &Analysis, ahead: &mut Ahead) -> Result<(), Fault> {
        if self.at.lane.causal().writes != Writing::Remembered || !lacks_telling(wants, self.at, analysis) {
            return Ok(());
        }
        let rescued = self.will_ask(&[Question::Set(TELLS_GTIDS)]).await;
        rescued.map_err(|e| self.at.lost_before(&e))?;
        if let Some(core) = self.at.backend.as_mut().map(|backend| &mut backend.core) {
            ahead.put_query(TELLS_GTIDS, core.caps);
            core.held.asked_for_gtids();
        }
        Ok(())
    }

    /// A wait was not answered: the session was killed, or the connection is of no use any more.
    fn wait_failed(&mut self, e: &io::Error) -> Fault {
        let is_killed = e.kind() == io::ErrorKind::Interrupted;
        match is_killed.then(|| interruption(&self.at.handle, &Context::from_waker(Waker::noop()))).flatten() {
            Some(fault) => {
                self.at.discard_backend();
                fault
            }
            None => self.at.lost_before(e),
        }
    }
}

/// Whether a statement that failed with this error, or succeeded (0), may have committed anything.
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
    let only_writes = match analysis.kind {
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Replace | Kind::LoadData | Kind::Ddl | Kind::DropTable => true,
        // What `SET @a = (SELECT ...)` read may be written by a later statement.
        Kind::Set => !analysis.facts.intersects(Facts::USER_VARIABLE | Facts::USER_VARIABLE_ASSIGN | Facts::UNKNOWN_CODE),
        _ => false,
    };
    !only_writes && !is_about_diagnostics(analysis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::bed::{Bed, HOME, OTHER, error, ok, ok_open, packet_of, result_of};
    use sql::LexMode;
    use wire::codes;

    fn all(texts: &[&str], holds: impl Fn(&Analysis) -> bool) -> Vec<bool> {
        texts.iter().map(|text| holds(&sql::analyze(text.as_bytes(), LexMode::default()))).collect()
    }

    #[test]
    fn a_write_that_a_server_refused_whole_committed_nothing() {
        let writes = ["INSERT INTO t VALUES (1)", "UPDATE t SET a=1", "DELETE FROM t", "REPLACE INTO t VALUES (1)"];
        assert_eq!(all(&writes, |a| may_have_committed(a, codes::PARSE)), [false; 4]);
        assert_eq!(all(&writes, |a| may_have_committed(a, codes::LOCK_WAIT_TIMEOUT)), [true; 4], "MyISAM keeps the rows of before");
    }

    #[test]
    fn a_failed_statement_that_may_run_code_may_have_committed() {
        let hides = [
            "SELECT f()",
            "INSERT INTO t VALUES (f())",
            "SELECT 1; INSERT INTO t VALUES (1)",
            "CALL p()",
            "COMMIT",
            "CREATE TABLE t (a INT)",
        ];
        assert_eq!(all(&hides, |a| may_have_committed(a, codes::PARSE)), [true; 6]);
        let shows = ["SELECT 1", "SHOW TABLES", "USE s", "SET @a = 1", "SAVEPOINT a", "SHOW WARNINGS"];
        assert_eq!(all(&shows, |a| may_have_committed(a, codes::LOCK_WAIT_TIMEOUT)), [false; 6]);
    }

    #[test]
    fn what_may_define_a_table_does_it_by_name_or_in_code() {
        let defines =
            ["CREATE TABLE t (a INT)", "DROP TABLE t", "CALL p()", "EXECUTE s", "SELECT f()", "INSERT INTO t VALUES (1); DROP TABLE u"];
        assert_eq!(all(&defines, may_define), [true; 6]);
        assert_eq!(all(&["SELECT 1", "INSERT INTO t VALUES (1)", "COMMIT", "SET @a = 1"], may_define), [false; 4]);
    }

    #[test]
    fn reads_wait_for_writes_and_writes_do_not() {
        let reads = ["SELECT a FROM t", "SHOW TABLES", "USE s", "BEGIN", "CALL p()", "SET @a = (SELECT MAX(a) FROM t)"];
        assert_eq!(all(&reads, waits), [true; 6]);
        let others = ["INSERT INTO t VALUES (1)", "DROP TABLE t", "SET NAMES latin1", "SHOW WARNINGS", "GET DIAGNOSTICS @a = NUMBER"];
        assert_eq!(all(&others, waits), [false; 5]);
    }
    const CAUSAL: &str = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )\nmysql_variables = ";

    /// Where each of what is wanted comes from, of which hostgroup it is, and who serves instead.
    async fn wanted(config: &str, place: HostgroupId, change: impl FnOnce(&mut Bed)) -> Vec<(Origin, u32, Option<u32>)> {
        let mut bed = Bed::new(&format!("{CAUSAL}{{ {config} }}"));
        bed.door().travel(place).await;
        change(&mut bed);
        let session = &mut *bed;
        let all = session.causal.gtids_wanted(&session.at, &session.hand);
        all.into_iter().flatten().map(|wanted| (wanted.origin, wanted.hostgroup.0, wanted.fallback.map(|id| id.0))).collect()
    }

    #[tokio::test]
    async fn a_read_waits_for_what_settings_rules_and_comments_name() {
        let (session, token) = ("causal_reads = \"session\"", "causal_reads = \"token\"");
        let own = (Origin::Own, 1, Some(1));
        assert_eq!(wanted("", OTHER, |_| {}).await, []);
        assert_eq!(wanted(session, OTHER, |_| {}).await, [own]);
        assert_eq!(wanted(token, OTHER, |_| {}).await, [own, (Origin::Token, 1, Some(1))]);
        // A writer has what it wrote.
        assert_eq!(wanted(session, HOME, |_| {}).await, []);
        let rule = |bed: &mut Bed| bed.hand.directions.gtid_from = Some(HOME);
        assert_eq!(wanted("", OTHER, rule).await, [own]);
        assert_eq!(wanted(session, OTHER, rule).await, [own], "once is enough");
        assert_eq!(wanted("", HOME, rule).await, [], "here it was written");
        let comment = |bed: &mut Bed| bed.hand.min_gtid = Some("0-1-7".into());
        assert_eq!(wanted("", OTHER, comment).await, [(Origin::Comment, 1, Some(1))]);
        assert_eq!(wanted("", HOME, comment).await, [], "a writer has whatever was acknowledged");
    }

    #[tokio::test]
    async fn a_statement_is_causal_by_its_hostgroup_its_rule_or_its_comment() {
        let mut bed = Bed::new("");
        assert!(bed.hand.is_not_causal(&bed.at));
        bed.hand.min_gtid = Some("0-1-7".into());
        assert!(!bed.hand.is_not_causal(&bed.at));
        let bed = Bed::new(&format!("{CAUSAL}{{ causal_reads = \"session\" }}"));
        assert!(!bed.hand.is_not_causal(&bed.at), "what is written here is remembered");
    }

    #[tokio::test]
    async fn what_is_written_on_a_writer_is_remembered() {
        let gtids = |gtids: &str| ReplyFacts { gtids: Some(gtids.as_bytes().into()), ..ok() };
        let (uuid, failed) = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", error(codes::LOCK_WAIT_TIMEOUT));
        for (text, reply, knows, asks, defines) in [
            ("INSERT INTO t VALUES (1)", gtids(&format!("{uuid}:7")), true, false, false),
            ("CREATE TABLE t (a INT)", gtids(&format!("{uuid}:7")), true, false, true),
            ("INSERT INTO t VALUES (1)", ok(), false, false, false),
            // Rows of a table without transactions stand.
            ("INSERT INTO t VALUES (1)", failed.clone(), true, true, false),
            ("INSERT INTO t VALUES (1)", error(codes::PARSE), false, false, false),
            ("SELECT a FROM t", failed, false, false, false),
        ] {
            let mut bed = Bed::new(&format!("{CAUSAL}{{ causal_reads = \"session\" }}")).on(Flavor::MySql);
            bed.at.backend.as_mut().unwrap().core.held.asked_for_gtids();
            let analysis = bed.analysis(text);
            let session = &mut *bed;
            session.causal.note_written(&session.at, &session.hand, &analysis, &reply);
            let known = bed.causal.writes.as_ref().is_some_and(|writes| writes.known(Origin::Own, HOME).is_some());
            assert_eq!(
                (known, bed.causal.lacks_gtids(&bed.at), bed.causal.has_defined(&bed.at, &bed.hand)),
                (knows, asks, defines),
                "{text} {reply:?}"
            );
        }
    }

    #[tokio::test]
    async fn only_a_write_that_may_have_happened_is_in_doubt_when_it_is_lost() {
        for (text, certainty, expected) in [
            ("INSERT INTO t VALUES (1)", Certainty::Unknown, true),
            ("CALL p()", Certainty::Answering, true),
            ("INSERT INTO t VALUES (1)", Certainty::NeverSent, false),
            ("SELECT a FROM t", Certainty::Unknown, false),
        ] {
            let mut bed = Bed::new(&format!("{CAUSAL}{{ causal_reads = \"session\" }}")).on(Flavor::MySql);
            let (analysis, fault) = (bed.analysis(text), Fault::Lost { certainty, text: "gone".into(), pins: PinSet::default() });
            let session = &mut *bed;
            session.causal.note_lost(&session.at, &session.hand, &analysis, &fault);
            assert_eq!(bed.causal.lacks_gtids(&bed.at), expected, "{text} {certainty:?}");
        }
    }

    #[tokio::test]
    async fn a_write_of_which_a_connection_cannot_tell_is_asked_for() {
        let nothing: fn(&mut Bed) = |_| {};
        let asked: fn(&mut Bed) = |bed| bed.at.backend.as_mut().unwrap().core.held.asked_for_gtids();
        let by_client: fn(&mut Bed) = |bed| {
            let mut wanted = bed.wants.state.variables.clone();
            wanted.set(TRACK_GTIDS, Some(b"ALL_GTIDS"));
            bed.at.backend.as_mut().unwrap().core.held.variable_changed(TRACK_GTIDS, Some(b"ALL_GTIDS"), &wanted);
        };
        for (flavor, change, text, reply, expected) in [
            (Flavor::MySql, nothing, "INSERT INTO t VALUES (1)", ok(), true),
            (Flavor::MySql, nothing, "COMMIT", ok(), true),
            (Flavor::MySql, nothing, "INSERT INTO t VALUES (1)", ok_open(), false),
            (Flavor::MySql, nothing, "SELECT a FROM t", ok(), false),
            (Flavor::MySql, asked, "INSERT INTO t VALUES (1)", ok(), false),
            (Flavor::MySql, by_client, "INSERT INTO t VALUES (1)", ok(), false),
            (Flavor::MariaDb, nothing, "INSERT INTO t VALUES (1)", ok(), false),
        ] {
            let mut bed = Bed::new(&format!("{CAUSAL}{{ causal_reads = \"session\" }}")).on(flavor);
            change(&mut bed);
            let analysis = bed.analysis(text);
            let session = &mut *bed;
            session.causal.note_written(&session.at, &session.hand, &analysis, &reply);
            assert_eq!(bed.causal.lacks_gtids(&bed.at), expected, "{flavor:?} {text} {reply:?}");
        }
    }

    #[tokio::test]
    async fn mysql_is_told_to_say_gtids_where_it_does_not() {
        let asked = |flavor, change: fn(&mut Bed), text: &str| {
            let mut bed = Bed::new("").on(flavor);
            change(&mut bed);
            lacks_telling(&bed.wants, &bed.at, &bed.analysis(text))
        };
        let nothing: fn(&mut Bed) = |_| {};
        assert!(asked(Flavor::MySql, nothing, "INSERT INTO t VALUES (1)"));
        assert!(!asked(Flavor::MariaDb, nothing, "INSERT INTO t VALUES (1)"), "it tells of last_gtid by itself");
        assert!(!asked(Flavor::MySql, nothing, "SHOW WARNINGS"), "a SET would clear them");
        assert!(!asked(Flavor::MySql, |bed| bed.pin(&[PinReason::UserLock]), "INSERT INTO t VALUES (1)"));
        assert!(asked(Flavor::MySql, |bed| bed.pin(&[PinReason::MultiplexingOff]), "INSERT INTO t VALUES (1)"));
        let clients: fn(&mut Bed) = |bed| bed.wants.state.variables.set("session_track_gtids", Some(b"ALL_GTIDS"));
        assert!(!asked(Flavor::MySql, clients, "INSERT INTO t VALUES (1)"), "the client has them told");
        assert!(!asked(Flavor::MySql, |bed| bed.at.backend.as_mut().unwrap().core.held.asked_for_gtids(), "INSERT INTO t VALUES (1)"));
    }
    /// What the server at hand lacks.
    async fn lacked(bed: &mut Bed) -> Result<Option<Wanted>, Fault> {
        let session = &mut **bed;
        let mut door = door!(session);
        session.causal.what_is_lacked(&mut door, &session.hand).await
    }

    #[tokio::test]
    async fn a_reader_is_asked_once_whether_it_has_what_was_written() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        for (answer, has_it) in [(result_of(&[&["0"]]), true), (result_of(&[&["1"]]), false), (packet_of(&error(1227)), false)] {
            let mut bed = Bed::new(&format!("{CAUSAL}{{ causal_reads = \"session\" }}")).on(Flavor::MySql);
            let insert = bed.analysis("INSERT INTO t VALUES (1)");
            let session = &mut *bed;
            let written = ReplyFacts { gtids: Some(format!("{uuid}:7").as_bytes().into()), ..ok() };
            session.causal.note_written(&session.at, &session.hand, &insert, &written);
            bed.door().travel(OTHER).await;
            bed.connect(Flavor::MySql);
            bed.answers(&[answer]);
            assert_eq!(lacked(&mut bed).await.unwrap().is_none(), has_it);
            let asked = bed.sent();
            assert!(asked.len() == 1 && asked[0].contains(&format!("{uuid}:7")), "{asked:?}");
            if has_it {
                assert!(lacked(&mut bed).await.unwrap().is_none() && bed.sent().is_empty(), "it is known now");
            }
            bed.pin(&[PinReason::Transaction]);
            assert!(lacked(&mut bed).await.unwrap().is_none(), "a transaction sees what was there when it began");
        }
    }

    #[tokio::test]
    async fn a_reader_that_a_pin_keeps_is_asked_too() {
        for reason in [PinReason::UserLock, PinReason::Cursor, PinReason::SessionState] {
            let mut bed = Bed::new(&format!("{CAUSAL}{{ causal_reads = \"session\" }}")).on(Flavor::MySql);
            let insert = bed.analysis("INSERT INTO t VALUES (1)");
            let session = &mut *bed;
            let written = ReplyFacts { gtids: Some(b"3e11fa47-71ca-11e1-9e33-c80aa9429562:7".as_slice().into()), ..ok() };
            session.causal.note_written(&session.at, &session.hand, &insert, &written);
            bed.door().travel(OTHER).await;
            bed.connect(Flavor::MySql);
            bed.pin(&[reason]);
            bed.answers(&[result_of(&[&["0"]])]);
            assert!(lacked(&mut bed).await.unwrap().is_none());
            assert_eq!(bed.sent().len(), 1, "{reason:?}");
        }
    }

    #[tokio::test]
    async fn what_names_what_a_pin_keeps_stays() {
        let must_stay = |bed: &mut Bed, text: &str| {
            let (plan, command) = (Plan::new(bed.analysis(text)), bed.says(text));
            bed.router().must_stay(&bed.statements, command, &plan)
        };
        for (reason, text, expected) in [
            (PinReason::UserLock, "SELECT a FROM t", false),
            (PinReason::UserLock, "SELECT RELEASE_LOCK('a')", true),
            (PinReason::Handler, "HANDLER t READ FIRST", true),
            (PinReason::SessionState, "SELECT a FROM t", false),
            (PinReason::SessionState, "SELECT a FROM t WHERE a = @a", true),
            (PinReason::Rule, "SELECT RELEASE_LOCK('a')", false),
        ] {
            let mut bed = Bed::new("").on(Flavor::MySql);
            bed.pin(&[reason]);
            assert_eq!(must_stay(&mut bed, text), expected, "{reason:?} {text}");
        }
        let mut bed = Bed::new("").on(Flavor::MySql);
        bed.ran("CREATE TEMPORARY TABLE own (a INT)", &ok());
        assert!(must_stay(&mut bed, "SELECT a FROM own") && !must_stay(&mut bed, "SELECT a FROM t"));
        let (plan, command) = (Plan::new(bed.analysis("SELECT a FROM t")), bed.says("SELECT a FROM t"));
        let fetch = Incoming { byte: Command::StmtFetch as u8, ..command };
        assert!(bed.router().must_stay(&bed.statements, fetch, &plan), "its rows are there");
    }
}
