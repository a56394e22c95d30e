//! A session that a rehearsal copies whole (mode `all`): each of its commands goes to the shadow once it was answered.
//!
//! The session decides here what the shadow runs. It never waits for the shadow, unless the queue is full and `on_full` is `wait`.
//! INVARIANT: a session is copied whole or counted as incomplete. An incomplete session begins again where nothing of it is open.

use super::Session;
use super::beside::Beside;
use super::captured::{HARMLESS, MAX_TEXT, SHORT};
use super::command::Incoming;
use super::copy_rules::{
    Ending, assigned_to, is_left_out, is_of_session, is_with_cursor, may_end, may_have_run, may_roll_back, names_autocommit,
};
use super::frontend::Frontend;
use super::pipeline::{Form, Statement};
use super::route::TextCommand;
use super::route::is_plain_read;
use crate::copying::{Act, Beginning, CopiedCommand, CopiedState, CopyStrand, Copying, Job, OrderTicket, PinnedValues};
use crate::limits::overload::Step;
use crate::workers::clock::unix_us;
use crate::workers::worker::Worker;
use ::capture::{Locks, Params};
use model::snapshot::Rehearsal;
use rehearsal::{Answer, GaveUp, Repeat, Skip};
use session_state::class::{Class, LaneKey};
use session_state::pins;
use session_state::state::Text;
use session_state::statement_key::StatementKey;
use sql::{Analysis, Facts, Kind};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::codec::Reader;
use wire::codes;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};
use wire::packet::HEADER;

/// Commands that change nothing.
const QUIET: [Command; 9] = [
    Command::Ping,
    Command::Statistics,
    Command::ProcessInfo,
    Command::ProcessKill,
    Command::StmtFetch,
    Command::FieldList,
    Command::StmtBulkExecute,
    Command::Debug,
    Command::Refresh,
];

/// What the shadow does where the original's server rolled a transaction back.
const ROLLBACK: &[u8] = b"ROLLBACK";
/// The same where a statement that the shadow does not run ended it.
const COMMIT: &[u8] = b"COMMIT";

/// Facts of statements whose answer a SET before them would change.
const OF_THE_LAST: Facts = Facts::ROW_COUNT.union(Facts::FOUND_ROWS).union(Facts::DIAGNOSTICS);

/// A session's end of its strand. Dropped, the session is over.
struct StrandHandle(Arc<CopyStrand>);

impl Drop for StrandHandle {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// How far the statement at hand came.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum CopyStage {
    /// Nothing was sent for it: the proxy answers.
    #[default]
    Begun,
    /// A rule refused or answered it.
    Stopped,
    /// It was sent in the rehearsal's hostgroup.
    Sent,
    /// It was sent elsewhere.
    Elsewhere,
}

/// What a session has to do with a rehearsal in mode `all`.
#[derive(Default)]
pub(super) struct SessionCopy {
    /// What ran when the session was looked at.
    epoch: u64,
    copying: Option<Arc<Copying>>,
    strand: Option<StrandHandle>,
    /// The shadow has the session's state, and all that followed.
    has_begun: bool,
    /// It was counted that the copy cannot begin.
    is_counted: bool,
    /// Prepared statements that the shadow has.
    known: HashSet<u32>,
    stage: CopyStage,
    /// Whether the answer of the statement at hand is listened to.
    is_heard: bool,
    /// The statement at hand, if its answer is listened to and the shadow does not have it yet.
    at_hand: Option<Statement>,
    /// The shadow has the statement at hand: its answer is complete, and the client may still be reading it.
    is_handed_over: bool,
    /// A transaction was open when the command at hand came.
    was_open: bool,
    /// The session's schema then.
    schema: Option<Text>,
    beginning: Option<Beginning>,
    ticket: Option<OrderTicket>,
    last_insert_id: Option<u64>,
    /// The payload of a short command, and the client's prepared statement that it names.
    payload: Vec<u8>,
    named: Option<u32>,
    /// The packet of the long data at hand.
    long_data: Vec<u8>,
    /// The queue was full when a command was handed over.
    awaits_room: bool,
}

impl SessionCopy {
    /// The last byte of an answer is here; the client does not have it yet.
    pub(super) fn reply_ends(&mut self, error: Option<u16>) {
        if let Some(beginning) = self.beginning.take() {
            // If the transaction is over, its locks are free: whoever waited for them comes behind.
            let may_be_over = |statement: &Statement| self.was_open && may_roll_back(&statement.analysis, error);
            let is_victim = error == Some(codes::LOCK_DEADLOCK) || self.at_hand.as_ref().is_some_and(may_be_over);
            self.ticket = if is_victim { beginning.end_victim() } else { beginning.end() };
        }
    }

    fn copying(&self) -> Option<Arc<Copying>> {
        self.copying.as_ref().filter(|_| self.has_begun).map(Arc::clone)
    }

    /// What the operator configured, if the session is copied.
    pub(super) fn plan(&self) -> Option<&Arc<Rehearsal>> {
        self.copying.as_ref().filter(|_| self.has_begun).map(|copying| &copying.run.plan)
    }

    /// The client's prepared statement that a statement executes, if the shadow has it: what is not run there takes its long data all the same.
    fn executed(&self, statement: &Statement) -> Option<u32> {
        let Form::Execution { id, .. } = statement.form else { return None };
        self.known.contains(&id).then_some(id)
    }

    /// A rule has answered or refused the statement at hand.
    pub(super) fn stops(&mut self) {
        self.stage = CopyStage::Stopped;
    }

    /// Whether the client is to wait until the shadow has room.
    pub(super) fn waits(&self) -> bool {
        self.awaits_room
    }

    /// Waits for room, for as long as the rehearsal's `wait_ms` says; then sessions are given up.
    pub(super) async fn wait_for_room(&mut self, worker: &Worker) {
        self.awaits_room = false;
        let (Some(copying), Some(strand)) = (self.copying.clone(), self.strand.as_ref().map(|strand| Arc::clone(&strand.0))) else {
            return;
        };
        let began_us = worker.shared.clock.now_us();
        let limit_us = copying.run.plan.wait_ms.unwrap_or(0).saturating_mul(1000);
        loop {
            let mut room = std::pin::pin!(copying.has_room());
            room.as_mut().enable();
            if !copying.is_full() || strand.is_gone() {
                break;
            }
            let waited_us = worker.shared.clock.now_us().saturating_sub(began_us);
            if waited_us >= limit_us {
                copying.make_room();
                break;
            }
            // Room or not, the clock is looked at.
            let _ = tokio::time::timeout(Duration::from_micros(limit_us - waited_us), room).await;
        }
        let waited_us = worker.shared.clock.now_us().saturating_sub(began_us);
        copying.run.waited_us.fetch_add(waited_us, Ordering::Relaxed);
    }
}

impl Beside {
    /// What is known of the statement at hand; None where the session is not copied.
    #[allow(clippy::type_complexity)]
    fn take_copied(&mut self) -> Option<(CopyStage, bool, Option<(Answer, u64)>, OrderTicket, Arc<Copying>)> {
        let Some(copying) = self.copied.copying() else {
            if let Some(copying) = &self.copied.copying {
                copying.run.skip(Skip::Incomplete);
            }
            return None;
        };
        let answer = self.answer().cloned();
        let copied = &mut self.copied;
        copied.at_hand = None;
        copied.reply_ends(answer.as_ref().and_then(|(answer, _)| answer.error));
        let stage = std::mem::take(&mut copied.stage);
        let ticket = copied.ticket.take().or_else(|| Beginning::new(&copying, Locks::None).end())?;
        Some((stage, copied.is_heard, answer, ticket, copying))
    }
}

impl Session {
    /// A command has come.
    pub(super) fn copy_begins(&mut self, command: Incoming) {
        if !self.finds_copying() {
            return;
        }
        let was_open = is_open(&self.client);
        if let Some(beside) = self.beside.as_mut() {
            (beside.copied.was_open, beside.copied.schema) = (was_open, self.wants.state.schema.clone());
        }
        if SHORT.contains(&command.byte) {
            let (payload, named) =
                (self.client.payload(command).to_vec(), self.statements.named_statement(&self.at, &self.client, command));
            if let Some(copied) = self.beside.as_mut().map(|beside| &mut beside.copied) {
                (copied.payload, copied.named) = (payload, named);
            }
        }
    }

    /// Whether the session takes part now; begins its copy where that is due and nothing of the session is open.
    pub(super) fn finds_copying(&mut self) -> bool {
        let epoch = self.worker.shared.rehearsals.epoch();
        if epoch == 0 {
            return false;
        }
        if self.beside.as_ref().is_none_or(|beside| beside.copied.epoch != epoch) {
            self.choose_copying(epoch);
        }
        let Some(copied) = self.beside.as_ref().map(|beside| &beside.copied) else { return false };
        let Some(copying) = copied.copying.clone() else { return false };
        let now_ms = self.worker.shared.clock.now_ms();
        if copying.run.ended_ms(now_ms).is_some() {
            self.worker.shared.rehearsals.expire(now_ms);
            copying.close();
            return false;
        }
        let strand = copied.strand.as_ref().map(|strand| Arc::clone(&strand.0));
        if strand.as_ref().is_some_and(|strand| strand.is_gone()) {
            return false;
        }
        let is_due = !copied.has_begun || strand.is_some_and(|strand| strand.is_broken());
        if is_due && self.may_begin_copy() {
            self.begin_copy(&copying);
        } else if is_due && !copied.has_begun && !copied.is_counted {
            copying.run.give_up(GaveUp::PinnedState);
            if let Some(beside) = self.beside.as_mut() {
                beside.copied.is_counted = true;
            }
        }
        self.beside.as_ref().is_some_and(|beside| beside.copied.has_begun)
    }

    /// Another set of rehearsals runs: is one in mode `all` among them that wants this session?
    fn choose_copying(&mut self, epoch: u64) {
        let now_ms = self.worker.shared.clock.now_ms();
        let user = &self.at.user.name;
        let is_wanted = |copying: &Arc<Copying>| copying.run.ended_ms(now_ms).is_none() && copying.run.plan.is_for_user(user);
        let copying = self.worker.shared.copying.load_full().filter(is_wanted);
        let known = self.beside.as_ref().and_then(|beside| beside.copied.copying.as_ref());
        let is_same = match (&copying, known) {
            (Some(now), Some(before)) => Arc::ptr_eq(now, before),
            (None, None) => true,
            _ => false,
        };
        let copied = &mut self.beside.get_or_insert_default().copied;
        if is_same {
            copied.epoch = epoch;
        } else {
            *copied = SessionCopy { epoch, copying, ..SessionCopy::default() };
        }
    }

    /// The session has logged in again: its copy begins again, or ends if its user is not meant.
    pub(super) fn log_in_copy(&mut self) {
        if self.beside.as_ref().is_some_and(|beside| beside.copied.has_begun) {
            // What was open is rolled back now, whenever the copy begins again.
            self.copy_job(Job::Cut);
        }
        let Some(copied) = self.beside.as_mut().map(|beside| &mut beside.copied) else { return };
        if copied.copying.as_ref().is_some_and(|copying| copying.run.plan.is_for_user(&self.at.user.name)) {
            copied.has_begun = false;
        } else {
            *copied = SessionCopy::default();
        }
    }

    /// Nothing of the session is on its connection that the shadow could not be given.
    fn may_begin_copy(&self) -> bool {
        if self.at.user.fast_forward {
            return false;
        }
        let pins = self.at.pins.set().without(pins::TRANSACTION).without(pins::WISHES).without(HARMLESS);
        pins.is_empty() && !is_open(&self.client) && !self.statements.any_long_data()
    }

    fn begin_copy(&mut self, copying: &Arc<Copying>) {
        // Bytes of a connection without query attributes say the same, and need no names.
        let caps = self.client.caps.difference(Capabilities::QUERY_ATTRIBUTES);
        let lane = LaneKey { hostgroup: copying.run.plan.shadow, user: Arc::clone(&self.at.user), class: Class::of(caps) };
        let mut state = self.wants.state.clone();
        let state = CopiedState {
            chosen: self.chosen_in(&mut state),
            state,
            lane,
            collation: u8::try_from(self.client.collation).unwrap_or(0),
            lex: self.wants.lex,
            last_insert_id: self.facts.insert_id.known(),
            client: self.client.ip(),
        };
        let copied = &mut self.beside.get_or_insert_default().copied;
        let strand = copied.strand.get_or_insert_with(|| StrandHandle(crate::shadow::play(&self.worker, copying)));
        strand.0.set_broken(false);
        copied.known.clear();
        (copied.has_begun, copied.is_counted) = (true, false);
        self.copy_job(Job::Begin(Box::new(state)));
    }

    /// Hands a job over.
    fn copy_job(&mut self, job: Job) {
        let is_short = self.worker.shared.memory.step() >= Step::LargeCommands;
        let Some(copied) = self.beside.as_mut().map(|beside| &mut beside.copied) else { return };
        let (Some(copying), Some(strand)) = (&copied.copying, &copied.strand) else { return };
        if is_short {
            return copying.give_up(&strand.0, GaveUp::Memory);
        }
        if copying.run.plan.wait_ms.is_none() {
            return copying.admit(&strand.0, job);
        }
        copied.awaits_room = copying.admit_beyond(&strand.0, job, is_open(&self.client));
    }

    /// A statement is about to be sent, or sent again after it has waited: how rows of its answer come, if it is copied.
    pub(super) fn copy_wants(&mut self, statement: &Statement) -> Option<rehearsal::Form> {
        if !self.finds_copying() {
            return None;
        }
        let copying = self.beside.as_ref().and_then(|beside| beside.copied.copying())?;
        let is_here = self.at.hostgroup() == copying.run.plan.source;
        let locks = if is_here { self.locks_of(statement) } else { Locks::None };
        let last_insert_id = self.facts.insert_id.known().filter(|_| statement.analysis.facts.contains(Facts::LAST_INSERT_ID));
        let form = match statement.form {
            Form::Text { .. } => Some(rehearsal::Form::Text),
            Form::Execution { phase: TextCommand::Execution, .. } => Some(rehearsal::Form::Binary),
            Form::Execution { .. } | Form::Bulk { .. } => None,
        };
        let copied = &mut self.beside.as_mut()?.copied;
        copied.schema.clone_from(&self.wants.state.schema);
        copied.stage = if is_here { CopyStage::Sent } else { CopyStage::Elsewhere };
        copied.is_heard = form.is_some();
        copied.at_hand = form.filter(|_| is_here).map(|_| *statement);
        copied.is_handed_over = false;
        copied.last_insert_id = last_insert_id;
        copied.ticket = None;
        copied.beginning = Some(Beginning::new(&copying, locks));
        form
    }

    /// What a statement does with locks.
    fn locks_of(&self, statement: &Statement) -> Locks {
        let analysis = &statement.analysis;
        if analysis.facts.contains(Facts::MULTI) {
            return Locks::Takes;
        }
        match analysis.kind {
            Kind::Commit | Kind::Rollback | Kind::UnlockTables | Kind::Xa => Locks::Releases,
            // The shadow commits in their place.
            Kind::Grant | Kind::SetPassword | Kind::Flush | Kind::FlushReadLock => Locks::Releases,
            // It commits what is open.
            Kind::Begin if is_open(&self.client) => Locks::Releases,
            Kind::Begin | Kind::Savepoint | Kind::RollbackTo | Kind::ReleaseSavepoint | Kind::Use | Kind::SetTransaction => Locks::None,
            Kind::Show | Kind::Explain | Kind::Empty | Kind::Prepare | Kind::Deallocate | Kind::GetDiagnostics => Locks::None,
            Kind::ShowWarnings | Kind::ShowErrors | Kind::ShowCountWarnings | Kind::ShowCountErrors => Locks::None,
            Kind::Set if !analysis.facts.contains(Facts::UNKNOWN_FUNCTION) => {
                let text = self.copied_text(statement).map_or(&[][..], |(text, _)| text);
                if is_open(&self.client) && names_autocommit(text) { Locks::Releases } else { Locks::None }
            }
            Kind::Select => {
                let text = self.copied_text(statement).map_or(&[][..], |(text, _)| text);
                let may_take = analysis.facts.intersects(Facts::LOCKING_READ | Facts::UNKNOWN_FUNCTION);
                let is_of_the_last = analysis.facts.intersects(OF_THE_LAST | Facts::LAST_INSERT_ID);
                if !may_take && (is_of_the_last || is_plain_read(&self.wants, &self.at, text, analysis)) {
                    Locks::None
                } else {
                    Locks::Takes
                }
            }
            _ => Locks::Takes,
        }
    }

    /// The statement was answered.
    pub(super) fn copy_statement(&mut self, statement: &Statement) {
        if self.beside.as_mut().is_some_and(|beside| std::mem::take(&mut beside.copied.is_handed_over)) {
            return;
        }
        let Some((stage, is_heard, answer, ticket, copying)) = self.beside.as_mut().and_then(|beside| beside.take_copied()) else { return };
        let forgets = self.beside.as_ref().and_then(|beside| beside.copied.executed(statement));
        if stage == CopyStage::Stopped {
            return forgets.into_iter().for_each(|id| self.copy_act(Act::Reset(id), Command::StmtReset));
        }
        let is_sent = stage == CopyStage::Sent;
        let error = answer.as_ref().and_then(|(answer, _)| answer.error);
        let was_open = is_sent && self.beside.as_ref().is_some_and(|beside| beside.copied.was_open);
        let is_open = is_open(&self.client);
        let what = match () {
            () if stage == CopyStage::Elsewhere && !is_of_session(statement.analysis.kind) => Err(Some(Skip::Elsewhere)),
            () if is_sent && is_heard && may_have_run(statement, answer.as_ref()) => return self.copy_is_cut(GaveUp::Original),
            () if was_open && !is_open && may_roll_back(&statement.analysis, error) => Ok(Act::Query(ROLLBACK.into())),
            () => self.act_of(statement, error),
        };
        let act = match what {
            Ok(act) => act,
            Err(why) => {
                forgets.into_iter().for_each(|id| self.copy_act(Act::Reset(id), Command::StmtReset));
                let ending = Ending::of(&statement.analysis, error, was_open, is_open);
                if ending == Ending::Commit {
                    self.copy_job(commit(ticket, self.worker.shared.clock.now_us()));
                }
                return match why {
                    Some(why) if ending != Ending::Unknown => copying.run.skip(why),
                    _ => self.copy_is_cut(GaveUp::Form),
                };
            }
        };
        let is_rollback = matches!(&act, Act::Query(text) if **text == *ROLLBACK);
        if is_rollback {
            forgets.into_iter().for_each(|id| self.copy_act(Act::Reset(id), Command::StmtReset));
        }
        let original = answer.filter(|_| is_sent && !is_rollback);
        let pins = self.pins_of(statement, &copying, original.as_ref());
        if let Act::Execute { id, .. } = act {
            self.copy_preparation(id);
        }
        let text = self.copied_text(statement).map_or(&[][..], |(text, _)| text);
        let digest = Some(self.worker.digest(text, self.wants.lex, &statement.analysis));
        let ended_us = self.worker.shared.clock.now_us();
        let schema = self.copied_schema();
        let command = CopiedCommand { ticket: Some(ticket), act, analysis: statement.analysis, schema, digest, original, pins, ended_us };
        self.copy_job(Job::Run(Box::new(command)));
    }

    /// The session's schema when the command at hand came.
    fn copied_schema(&self) -> Option<Text> {
        self.beside.as_ref().and_then(|beside| beside.copied.schema.clone())
    }

    /// A statement's text, and the client's prepared statement of which it is.
    pub(super) fn copied_text(&self, statement: &Statement) -> Option<(&[u8], Option<u32>)> {
        Some(match statement.form {
            Form::Text { start } => (self.client.sql_text(statement.command, start), None),
            Form::Execution { id, .. } | Form::Bulk { id } => (&self.statements.get(id)?.key.text, Some(id)),
        })
    }

    /// What the shadow does for a statement. An error is why it does nothing; without a reason, the session is not whole any more.
    fn act_of(&self, statement: &Statement, error: Option<u16>) -> Result<Act, Option<Skip>> {
        let (analysis, Some((text, id))) = (&statement.analysis, self.copied_text(statement)) else { return Err(None) };
        let payload = self.client.payload(statement.command);
        let repeat = Repeat::of(analysis, error);
        match () {
            () if is_left_out(analysis, text, self.wants.lex) => {
                // The other statements or assignments of the text are missing then.
                let sets_session = analysis.kind == Kind::Set && assigned_to(text, self.wants.lex).session;
                let is_all = !analysis.facts.contains(Facts::MULTI) && !sets_session;
                Err(is_all.then_some(Skip::LeftOut))
            }
            () if analysis.kind == Kind::LoadData || matches!(statement.form, Form::Bulk { .. }) => Err(None),
            // What a write with a cursor answers is not heard, so its ids are not known.
            () if is_with_cursor(statement) && analysis.kind != Kind::Select => Err(None),
            () if text.len() > MAX_TEXT || payload.len() > MAX_TEXT => Err(None),
            // The server has rolled the transaction back, or the statement alone.
            () if repeat == Repeat::RollBack => Ok(Act::Query(ROLLBACK.into())),
            () if repeat != Repeat::Run => Err(Some(Skip::Original)),
            () if error.is_some() && analysis.kind == Kind::Commit => Err(None),
            () => match id {
                None => Ok(Act::Query(text.into())),
                Some(id) if !self.can_prepare(id) => Err(None),
                Some(id) => self.execution_of(id, payload).map(|payload| Act::Execute { id, payload }).ok_or(None),
            },
        }
    }

    /// Whether the shadow has a prepared statement, or would read its text as at the PREPARE.
    fn can_prepare(&self, id: u32) -> bool {
        let is_known = self.beside.as_ref().is_some_and(|beside| beside.copied.known.contains(&id));
        is_known || self.statements.reads_as_prepared(&self.client, &self.wants, &self.worker, id)
    }

    /// An execution with its types and without a cursor. None: it has query attributes, or cannot be read.
    fn execution_of(&self, id: u32, payload: &[u8]) -> Option<Vec<u8>> {
        let prepared = self.statements.get(id)?;
        let params = Params::of_execution(payload, prepared.params, &prepared.types, self.client.caps).ok()??;
        Some(params.payload(0))
    }

    /// Values of the original for a statement: an answer to the SET that gives them must change nothing that the statement asks for.
    fn pins_of(&self, statement: &Statement, copying: &Copying, original: Option<&(Answer, u64)>) -> PinnedValues {
        let (analysis, facts) = (&statement.analysis, statement.analysis.facts);
        let (Some((answer, time_us)), true) = (original, copying.run.plan.pins && !facts.intersects(OF_THE_LAST)) else {
            return PinnedValues::default();
        };
        let text = self.copied_text(statement).map_or(&[][..], |(text, _)| text);
        let is_insert = matches!(analysis.kind, Kind::Insert | Kind::Replace | Kind::Execute);
        let sets_clock = self.wants.state.variables.get("timestamp").is_some();
        let writes = self.locks_of(statement) == Locks::Takes;
        let reads_clock = (writes || rehearsal::traits(text, self.wants.lex).reads_clock) && !sets_clock;
        let sent_us = self.beside.as_ref().and_then(|beside| beside.sent_us());
        let now_us = self.worker.shared.clock.now_us();
        let time_us = reads_clock.then(|| unix_us().saturating_sub(sent_us.map_or(*time_us, |sent_us| now_us.saturating_sub(sent_us))));
        let insert_id = (is_insert && answer.error.is_none() && answer.insert_id > 0).then_some(answer.insert_id);
        let last_insert_id = self.beside.as_ref().and_then(|beside| beside.copied.last_insert_id);
        PinnedValues { time_us, insert_id, last_insert_id }
    }

    /// The session's copy ends here, and may begin again where nothing of the session is open.
    fn copy_is_cut(&mut self, why: GaveUp) {
        let Some(copying) = self.beside.as_ref().and_then(|beside| beside.copied.copying()) else { return };
        copying.run.give_up(why);
        self.copy_job(Job::Cut);
        if let Some(beside) = self.beside.as_mut() {
            // Counted once for each time.
            (beside.copied.has_begun, beside.copied.is_counted) = (false, true);
            beside.copied.long_data = Vec::new();
        }
    }

    /// Tells the shadow a prepared statement's text, if it does not have it.
    fn copy_preparation(&mut self, id: u32) {
        let Some(key) = self.statements.get(id).map(|prepared| Arc::clone(&prepared.key)) else { return };
        let Some(copied) = self.beside.as_mut().map(|beside| &mut beside.copied) else { return };
        if copied.known.insert(id) {
            self.copy_act(Act::Prepare { id, text: Arc::clone(&key.text), schema: key.schema.clone() }, Command::StmtPrepare);
        }
    }

    /// A statement was prepared, or refused with this error (`id` 0): the shadow prepares it in its turn, and what it says to that is compared.
    fn copy_prepare(&mut self, id: u32, key: &StatementKey, analysis: &Analysis, error: Option<u16>) {
        let Some(beside) = self.beside.as_mut().filter(|beside| beside.copied.has_begun) else { return };
        let Some(copying) = beside.copied.copying() else { return };
        let is_left_out = key.text.len() > MAX_TEXT || is_left_out(analysis, &key.text, self.wants.lex);
        if is_left_out || id > 0 && !beside.copied.known.insert(id) {
            return;
        }
        let ticket = Beginning::new(&copying, Locks::None).end();
        let is_here = self.at.hostgroup() == copying.run.plan.source;
        let act = Act::Prepare { id, text: Arc::clone(&key.text), schema: key.schema.clone() };
        let digest = Some(self.worker.digest(&key.text, self.wants.lex, analysis));
        let original = is_here.then(|| (error.map_or(Answer::default(), Answer::of_error), 0));
        let (analysis, ended_us) = (Analysis::of_command(Command::StmtPrepare as u8), self.worker.shared.clock.now_us());
        let (schema, pins) = (self.copied_schema(), PinnedValues::default());
        self.copy_job(Job::Run(Box::new(CopiedCommand { ticket, act, analysis, schema, digest, original, pins, ended_us })));
    }

    /// A server has refused to prepare a statement.
    pub(super) fn copy_refused_prepare(&mut self, key: &StatementKey, analysis: &Analysis, error: u16) {
        if Repeat::of(analysis, Some(error)) == Repeat::Run {
            self.copy_prepare(0, key, analysis, Some(error));
        }
    }

    /// Has the shadow run a command that is no statement. Only those that name what other sessions may have made have a turn.
    fn copy_act(&mut self, act: Act, kind: Command) {
        let Some(copying) = self.beside.as_ref().and_then(|beside| beside.copied.copying()) else { return };
        let has_turn = matches!(act, Act::InitDb(_));
        let ticket = has_turn.then(|| Beginning::new(&copying, Locks::None).end()).flatten();
        let (analysis, ended_us) = (Analysis::of_command(kind as u8), self.worker.shared.clock.now_us());
        let (schema, pins) = (self.copied_schema(), PinnedValues::default());
        self.copy_job(Job::Run(Box::new(CopiedCommand { ticket, act, analysis, schema, digest: None, original: None, pins, ended_us })));
    }

    /// Bytes of long data for this statement are about to be passed on.
    pub(super) fn copy_data(&mut self, id: u32, count: usize) {
        let bytes = self.client.input.filled().get(..count).unwrap_or_default();
        let Some(copied) = self.beside.as_mut().map(|beside| &mut beside.copied).filter(|copied| copied.has_begun) else { return };
        copied.named = Some(id);
        // One byte more says that it is too long.
        let room = (MAX_TEXT + 1).saturating_sub(copied.long_data.len());
        copied.long_data.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// A command other than a statement was answered.
    pub(super) fn copy_command(&mut self, kind: Command) {
        let Some(copied) = self.beside.as_mut().map(|beside| &mut beside.copied).filter(|copied| copied.has_begun) else { return };
        let (payload, named) = (std::mem::take(&mut copied.payload), copied.named.take());
        let body = payload.get(1..).unwrap_or_default();
        let known = named.filter(|id| copied.known.contains(id));
        match (kind, known) {
            (Command::InitDb, _) => self.copy_act(Act::InitDb(body.into()), kind),
            (Command::StmtPrepare, _) => {
                let id = self.statements.last_prepared();
                let prepared = self.statements.get(id).map(|prepared| (Arc::clone(&prepared.key), prepared.analysis));
                if let Some((key, analysis)) = prepared {
                    self.copy_prepare(id, &key, &analysis, None);
                }
            }
            (Command::StmtClose, Some(id)) => {
                copied.known.remove(&id);
                self.copy_act(Act::Close(id), kind);
            }
            (Command::StmtReset, Some(id)) => self.copy_act(Act::Reset(id), kind),
            (Command::StmtClose | Command::StmtReset, None) => {}
            (Command::StmtSendLongData, _) => self.copy_long_data(named),
            (Command::SetOption, _) => {
                self.copy_act(Act::SetOption(body.first_chunk().copied().unwrap_or_default()), kind);
            }
            // What was open is rolled back. The copy begins again at once, in the state that is left.
            (Command::ResetConnection | Command::ChangeUser, _) => {
                copied.has_begun = false;
                self.finds_copying();
            }
            // COM_REFRESH commits.
            (kind, _) if QUIET.contains(&kind) => {
                let has_ended = copied.was_open && !is_open(&self.client);
                let ticket = copied.copying().filter(|_| has_ended).and_then(|copying| Beginning::new(&copying, Locks::Releases).end());
                if let Some(ticket) = ticket {
                    self.copy_job(commit(ticket, self.worker.shared.clock.now_us()));
                }
            }
            _ => self.copy_is_cut(GaveUp::Form),
        }
    }

    /// Header, command, statement, parameter, bytes.
    fn copy_long_data(&mut self, named: Option<u32>) {
        let Some(copied) = self.beside.as_mut().map(|beside| &mut beside.copied) else { return };
        let packet = std::mem::take(&mut copied.long_data);
        if packet.len() > MAX_TEXT {
            return self.copy_is_cut(GaveUp::Form);
        }
        let mut fields = Reader::new(packet.get(HEADER + 1..).unwrap_or_default());
        let (Ok(_), Some(id)) = (fields.u32(), named) else { return };
        if self.statements.get(id).is_none_or(|statement| statement.failed.is_some()) {
            // The original has a part of it at most. The next execution fails before it is sent, and its long data is forgotten.
            return;
        }
        if !self.can_prepare(id) {
            return self.copy_is_cut(GaveUp::Form);
        }
        self.copy_preparation(id);
        self.copy_act(Act::LongData { id, body: fields.rest().to_vec() }, Command::StmtSendLongData);
    }
}

/// The last byte of the answer to the statement at hand is here, and the answer is the client's. The shadow gets the statement now: if it
/// waited until a slow client has read the answer, all statements behind it would wait too.
pub(super) fn answer_ended(session: &mut Session) {
    let Some(beside) = session.beside.as_mut() else { return };
    let Some(statement) = beside.copied.at_hand.take() else { return };
    let error = beside.answer().and_then(|(answer, _)| answer.error);
    // A transaction that is open may have been ended by an error, or by a statement that the shadow does not run: what follows says so.
    let is_told_later = may_roll_back(&statement.analysis, error);
    if !beside.copied.was_open || !is_told_later && session.act_of(&statement, error).is_ok() {
        session.copy_statement(&statement);
        if let Some(beside) = session.beside.as_mut() {
            beside.copied.is_handed_over = true;
        }
    } else if !may_end(&statement.analysis, error)
        && let Some(beside) = session.beside.as_mut()
    {
        // The shadow does nothing for it, so nobody waits until the client has read the rest.
        beside.copied.ticket = None;
    }
}

fn is_open(client: &Frontend) -> bool {
    client.current_status().contains(StatusFlags::IN_TRANS)
}

/// The shadow commits, as the original did before or after a statement that the shadow does not run.
fn commit(ticket: OrderTicket, ended_us: u64) -> Job {
    let (act, analysis, pins) = (Act::Query(COMMIT.into()), Analysis::NONE, PinnedValues::default());
    let ticket = Some(ticket);
    Job::Run(Box::new(CopiedCommand { ticket, act, analysis, schema: None, digest: None, original: None, pins, ended_us }))
}

#[cfg(test)]
#[path = "copied_tests.rs"]
mod tests;
