//! COM_STMT_EXECUTE and its kin: bulk execute, reset, close.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::door::door;
use super::end::End;
use super::fault::Fault;
use super::frontend::Frontend;
use super::pipeline::{Form, Statement};
use super::plan::Plan;
use super::route::TextCommand;
use super::statements::{ClientStatement, Marks, Statements, lex_at};
use crate::statements::stmt_cache::asked;
use crate::workers::worker::is_long;
use cache::AskedExecution;
use session_state::facts::leaves_out_rows;
use session_state::routines::has_word;
use session_state::setting::teaches;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind, LexMode, Offset};
use std::sync::Arc;
use wire::codec::Reader;
use wire::codes;
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::packet::HEADER;
use wire::prepared::{BulkHeader, ExecuteHeader, ExecuteParams, binary_values_may_equal, put_no_cursor, stmt_id};
use wire::reframe::{Patch, ReplyFacts};
use wire::reply::ReplyKind;

/// Whether a COM_STMT_EXECUTE opens a cursor.
pub(super) fn phase_of(payload: &[u8]) -> TextCommand {
    match ExecuteHeader::parse(payload) {
        Ok(header) if header.opens_cursor() => TextCommand::Cursor,
        _ => TextCommand::Execution,
    }
}

impl Session {
    /// What is sent for an execution; false where it was answered.
    pub(super) async fn plan_execution(&mut self, command: Incoming, id: u32, plan: &mut Plan) -> Result<bool, End> {
        let is_whole = self.statements.read_execution(&self.at, &self.client, command, id, plan).is_some();
        if !is_whole || self.statements.lacks_types(&self.at, &self.client, command, id) {
            Box::pin(self.refuse_execution(id, is_whole)).await?;
            return Ok(false);
        }
        if let Some(fact) = self.statements.fact_asked_by(id).filter(|fact| self.facts.knows(self.at.pins.set(), *fact)) {
            plan.patches = vec![Some(Patch::Number { value: self.facts.of(fact, self.handle.id), binary: true })];
        }
        if !plan.patches.is_empty() {
            // What the session knows better is put into rows, which would come with FETCH.
            self.client.open_no_cursor(command);
            plan.reply = ReplyKind::Results;
        }
        if let Some(why) = self.statements.get_mut(id).and_then(|s| s.failed.take()) {
            Box::pin(self.report(Fault::server(why))).await?;
            self.forget_long_data(id).await?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Answers an execution that cannot be read, or lacks types.
    async fn refuse_execution(&mut self, id: u32, is_whole: bool) -> Result<(), End> {
        if is_whole {
            self.report(Fault::error(codes::WRONG_ARGUMENTS, b"HY000", "Incorrect arguments to mysqld_stmt_execute")).await?
        } else {
            self.client.malformed(&mut self.at).await?
        }
        self.settle_without(id).await
    }

    /// Notes what an execution did, by its reply.
    pub(super) async fn note_execution(&mut self, command: Incoming, id: u32, plan: &Plan, reply: &ReplyFacts) -> Result<(), End> {
        let read_by = self.wants.lex;
        self.effects().note_status(&plan.analysis, reply);
        self.note_effects_of(id, reply, read_by);
        self.scribe().transcribe_execution(command, id, plan, reply);
        self.statements.note_counts_of(&mut self.facts, &plan.analysis, reply);
        if leaves_out_rows(&plan.analysis, reply) {
            let offset = self.statements.executed_offset(&self.at, &self.client, &self.wants, command, id);
            self.facts.skipped_rows(offset);
        }
        if command.byte == Command::StmtBulkExecute as u8 {
            Box::pin(self.door().note_bulk_count(&plan.analysis, reply)).await;
        }
        if self.recovery.lacks_first_insert_id(&self.at, &self.facts) {
            Box::pin(self.recovery.learn_first_insert_id(&mut door!(self))).await;
        }
        let status = reply.status.unwrap_or_default();
        if status.contains(StatusFlags::METADATA_CHANGED)
            && let Some((statement, info)) = self.statements.get(id).zip(self.at.pool.one_version())
        {
            self.worker.memory.borrow_mut().forget_prepared(&self.at.place(&info), &statement.key);
        }
        let here = self.at.hostgroup();
        let opened = reply.is_behind_cursor() && reply.error.is_none();
        let now = Marks { long_data: false, cursor: opened.then_some(here) };
        let before = self.statements.mark(id, |marks| std::mem::replace(marks, now)).unwrap_or_default();
        if !before.is_none() || opened {
            Box::pin(self.statements.executed_apart(&mut self.at, &mut self.facts, id, reply)).await?;
        }
        self.statements.note_cursors(&mut self.at, plan.analysis.digest);
        if teaches(&plan.analysis, reply)
            && let Some(text) = self.statements.get(id).map(|s| s.key.text.clone())
        {
            // The effect is not remembered: as text the same statement may also warn.
            Box::pin(self.effects().learn_set(&text, &plan.analysis, reply)).await;
        }
        if self.facts.has_diagnostics()
            && let Some(text) = self.statements.get(id).map(|s| s.key.text.clone())
        {
            self.facts.keep_warnings(self.facts.leaves_warnings(self.worker.shared.flavor(), &plan.analysis, &text));
        }
        Ok(())
    }

    fn note_effects_of(&mut self, id: u32, reply: &ReplyFacts, read_by: LexMode) {
        let Some(analysis) = self.statements.get(id).map(|statement| statement.analysis) else { return };
        if !self.effects().needs_notes(&analysis, reply) {
            return;
        }
        let Some(key) = self.statements.get(id).map(|statement| Arc::clone(&statement.key)) else { return };
        // What counts for its text is what was in force at the PREPARE.
        let is_anew = analysis.facts.contains(Facts::USER_VARIABLE_ASSIGN) && key.mode != self.client.mode(&self.wants, &self.worker)
            || self.wants.changes_its_text(&key.text, &analysis, reply, read_by);
        self.effects().note_all(&key.text, &analysis, reply, is_anew.then_some(read_by));
        self.effects().note_stored_code(&key.text, key.schema.as_ref(), &analysis, reply);
    }

    /// COM_STMT_RESET: forgets long data and closes the cursor.
    pub(super) async fn reset_statement(&mut self, command: Incoming) -> Result<(), End> {
        if self.client.is_short(&self.at, command, 4) {
            return self.client.malformed(&mut self.at).await;
        }
        let raw_id = stmt_id(self.client.payload(command)).unwrap_or(0);
        let Some(id) = self.statements.named_statement(&self.at, &self.client, command) else {
            return self.report(Fault::unknown_statement(&self.worker, raw_id, "mysqld_stmt_reset")).await;
        };
        self.statements.travel_to_cursor_or_end(&mut door!(self), id).await;
        if let Some(statement) = self.statements.get_mut(id) {
            statement.failed = None;
        }
        let marked = self.statements.mark(id, std::mem::take).is_some_and(|marks| !marks.is_none());
        if !marked || self.at.backend.is_none() {
            self.statements.share(&mut self.at, id).await?;
            self.facts.answered_here(0);
            return self.client.send_ok(&mut self.at).await;
        }
        let analysis = Analysis::of_command(command.byte);
        let plan = Plan { statement: Some(id), reply: ReplyKind::Simple, ..Plan::new(analysis) };
        let mut reply = ReplyFacts::default();
        match self.run_plan(command, &plan, &mut reply).await {
            Ok(()) => {
                self.effects().note_status(&analysis, &reply);
                self.statements.share(&mut self.at, id).await?;
                self.statements.note_cursors(&mut self.at, analysis.digest);
                self.facts.keep_warnings(reply.warnings == 0);
                self.settle(&analysis, &reply, |_, _| true).await
            }
            Err(fault) => {
                self.statements.forget_on_backend(&mut self.at, id).await?;
                self.report(fault).await
            }
        }
    }

    /// COM_STMT_CLOSE: no answer. The statement stays prepared on backends for others.
    pub(super) async fn close_statement(&mut self, command: Incoming) -> Result<(), End> {
        if self.client.is_short(&self.at, command, 4) {
            return self.client.malformed(&mut self.at).await;
        }
        let Some(id) = self.statements.named_statement(&self.at, &self.client, command) else { return Ok(()) };
        self.statements.travel_to_cursor_or_end(&mut door!(self), id).await;
        let is_bound = self.statements.get(id).is_some_and(ClientStatement::is_bound);
        if is_bound {
            self.statements.forget_on_backend(&mut self.at, id).await?;
        }
        let Some(gone) = self.statements.remove(id).filter(|_| is_bound) else { return Ok(()) };
        self.statements.note_cursors(&mut self.at, gone.analysis.digest);
        self.settle_silent(&gone.analysis).await
    }
}

impl Frontend {
    /// Is the command's body shorter than MySQL reads it?
    pub(super) fn is_short(&self, at: &Backends, command: Incoming, len: usize) -> bool {
        self.body(command).len() < len && at.worker.shared.serves_mysql()
    }

    fn open_no_cursor(&mut self, command: Incoming) {
        let payload = if command.joined {
            self.joined.as_mut_slice()
        } else {
            self.input.filled_mut().get_mut(HEADER..command.wire_len).unwrap_or_default()
        };
        let _ = put_no_cursor(payload);
    }
}

impl Statements {
    /// The client binds other types than before.
    fn bind_types(&mut self, at: &Backends, id: u32, types: Vec<u8>, named: bool) {
        let settles = at.worker.shared.serves_mysql();
        let Some(statement) = self.get_mut(id) else { return };
        if settles && let Some(bare) = bare_types(&types, named, usize::from(statement.params)) {
            let before = statement.settled_types.as_deref().unwrap_or_default();
            let settled = settled_types(before, bare);
            if *before != *settled {
                statement.settled_types = Some(settled.into());
            }
        }
        statement.types = types;
    }

    /// The statement of a COM_STMT_EXECUTE; None where it is not known, or has a cursor that ends first.
    pub(super) fn execution_at_hand(&self, at: &Backends, client: &Frontend, command: Incoming) -> Option<Statement> {
        let id = self.named_statement(at, client, command).filter(|id| !self.has_cursor(*id))?;
        let (analysis, phase) = (self.get(id)?.analysis, phase_of(client.payload(command)));
        Some(Statement { command, analysis, form: Form::Execution { id, phase } })
    }

    /// Whether the execution says no types, and none before has.
    fn lacks_types(&self, at: &Backends, client: &Frontend, command: Incoming, id: u32) -> bool {
        let Some(statement) = self.get(id).filter(|statement| statement.params > 0 && statement.types.is_empty()) else {
            return false;
        };
        let payload = client.payload(command);
        let Ok(Some(params)) = ExecuteParams::parse(payload, statement.params, client.caps) else { return false };
        let nulls = payload.get(params.null_bitmap.clone()).unwrap_or_default();
        let has_value = (0..usize::from(statement.params)).any(|at| nulls.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 0));
        // Long data has its type by itself on MariaDB.
        let needs_them = has_value && (at.worker.shared.serves_mysql() || !statement.marks.long_data);
        !params.new_types && needs_them
    }

    /// What is sent for rows of parameters.
    pub(super) fn plan_bulk(&mut self, client: &Frontend, command: Incoming, id: u32, plan: &mut Plan) {
        let types = self.get(id).and_then(|statement| {
            let payload = client.payload(command);
            let header = BulkHeader::parse(payload).ok()?;
            payload.get(header.types(statement.params)?).map(<[u8]>::to_vec)
        });
        if let (Some(statement), Some(types)) = (self.get_mut(id), types) {
            statement.types = types;
        }
        plan.statement = Some(id);
        // Servers run INSERT and REPLACE of values as one statement for all rows.
        let is_one = matches!(plan.analysis.kind, Kind::Insert | Kind::Replace)
            && self.get(id).is_some_and(|statement| !has_word(&statement.key.text, "SELECT"));
        if !is_one {
            plan.analysis.facts |= Facts::ROW_BY_ROW;
        }
    }

    /// The fact that the statement's rows are, where the session may know it better than its backend.
    fn fact_asked_by(&self, id: u32) -> Option<sql::Fact> {
        let statement = self.get(id)?;
        match statement.analysis.kind {
            Kind::ShowCountWarnings => Some(sql::Fact::WarningCount),
            Kind::ShowCountErrors => Some(sql::Fact::ErrorCount),
            _ => statement.fact,
        }
    }

    /// Reads the packet into the plan: the statement, a cursor or none. Keeps the types that it binds. None when it is malformed.
    fn read_execution(&mut self, at: &Backends, client: &Frontend, command: Incoming, id: u32, plan: &mut Plan) -> Option<()> {
        let caps = client.caps;
        let statement = self.get(id)?;
        let payload = client.payload(command);
        ExecuteHeader::parse(payload).ok()?;
        let params = ExecuteParams::parse(payload, statement.params, caps).ok()?;
        plan.statement = Some(id);
        if phase_of(payload) == TextCommand::Cursor {
            plan.reply = ReplyKind::Cursor;
        }
        if let Some(params) = params.filter(|p| p.new_types) {
            let types = client.payload(command).get(params.types)?;
            if statement.types != types {
                let types = types.to_vec();
                self.bind_types(at, id, types, params.named);
            }
        }
        Some(())
    }

    /// The offset of a LIMIT, perhaps a parameter.
    pub(super) fn executed_offset(&self, at: &Backends, client: &Frontend, wants: &Wants, command: Incoming, id: u32) -> Offset {
        let Some(statement) = self.get(id) else { return Offset::Unclear };
        let (text, lex) = (&*statement.key.text, wants.lex);
        if is_long(text) || is_long(client.payload(command)) {
            // It would be read in one turn: the server is asked instead.
            return Offset::Unclear;
        }
        if !statement.analysis.facts.contains(Facts::PLACEHOLDER) {
            return sql::offset(text, lex);
        }
        let mode = client.mode(wants, &at.worker);
        let execution = AskedExecution {
            statement: asked(&statement.key),
            mode: &mode,
            lex,
            params: statement.params,
            types: &statement.types,
            payload: client.payload(command),
            caps: client.caps,
        };
        execution.with_literals().map_or(Offset::Unclear, |text| sql::offset(&text, lex))
    }

    /// Does nothing in the statement or its parameters look like the id that came back?
    pub(super) fn execution_insert_id_is_certain(
        &self,
        client: &Frontend,
        wants: &Wants,
        command: Incoming,
        id: u32,
        insert_id: u64,
    ) -> bool {
        let Some(statement) = self.get(id) else { return false };
        if command.byte != Command::StmtExecute as u8 || statement.marks.long_data {
            return false;
        }
        if !sql::prepared_insert_id_is_certain(&statement.key.text, lex_at(&statement.key.mode, wants.lex), insert_id) {
            return false;
        }
        let payload = client.payload(command);
        match ExecuteParams::parse(payload, statement.params, client.caps) {
            Ok(None) => true,
            Ok(Some(p)) => {
                let values = payload.get(p.values).unwrap_or_default();
                let nulls = payload.get(p.null_bitmap).unwrap_or_default();
                !binary_values_may_equal(&statement.types, p.named, values, nulls, insert_id)
            }
            Err(_) => false,
        }
    }
}

/// MYSQL_TYPE_NULL: the value is NULL and says nothing of a type.
const TYPE_NULL: u8 = 6;

/// The first `count` types of a types block, without the names of query attributes.
fn bare_types(types: &[u8], named: bool, count: usize) -> Option<Vec<u8>> {
    let mut reader = Reader::new(types);
    let mut bare = Vec::with_capacity(count * 2);
    for _ in 0..count {
        bare.extend_from_slice(reader.bytes(2).ok()?);
        if named {
            reader.lenenc_bytes().ok()?;
        }
    }
    Some(bare)
}

/// The types that a server goes by after an execution with the types `now`.
fn settled_types(before: &[u8], mut now: Vec<u8>) -> Vec<u8> {
    for (now, before) in now.chunks_exact_mut(2).zip(before.chunks_exact(2)) {
        if now.first() == Some(&TYPE_NULL) {
            now.copy_from_slice(before);
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_leaves_a_type_as_it_was() {
        assert_eq!(settled_types(&[], vec![6, 0, 8, 0]), [6, 0, 8, 0]);
        assert_eq!(settled_types(&[6, 0, 8, 0], vec![253, 0, 6, 0]), [253, 0, 8, 0]);
        assert_eq!(settled_types(&[8, 0x80, 8, 0], vec![6, 0, 5, 0]), [8, 0x80, 5, 0]);
    }

    #[test]
    fn types_without_names() {
        assert_eq!(bare_types(&[8, 0, 253, 0], false, 2).unwrap(), [8, 0, 253, 0]);
        assert_eq!(bare_types(&[8, 0, 1, b'a', 253, 0, 0], true, 1).unwrap(), [8, 0]);
        assert_eq!(bare_types(&[8, 0, 1, b'a', 253, 0, 0], true, 2).unwrap(), [8, 0, 253, 0]);
        assert_eq!(bare_types(&[8], false, 1), None);
    }
}
