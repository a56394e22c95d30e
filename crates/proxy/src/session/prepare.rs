//! COM_STMT_PREPARE, and having a statement prepared on whatever backend serves its execution.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::end::End;
use super::fault::{Certainty, Fault};
use super::guard::{paused, unless_killed};
use super::leave::Overdue;
use super::query::asks_now;
use super::recovery::Recovery;
use super::relay::Outgoing;
use super::route::TextCommand;
use super::statements::{ClientStatement, Marks, Original, Statements};
use super::sync::{Ahead, is_about_diagnostics, is_schema_refused};
use crate::backends::backend::{Backend, Collected, ServerError, prepare_ok};
use crate::backends::cleaning::ping;
use crate::session_state::pins::{PinReason, PinSet};
use crate::session_state::state::Text;
use crate::statements::memory::PrepareReply;
use crate::statements::prepared::Side;
use crate::statements::stmt_cache::{Meaning, StatementKey};
use crate::workers::counters::count;
use crate::workers::worker::is_long;
use sql::{Analysis, Facts, Kind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::codes;
use wire::command::Command;
use wire::flags::Capabilities;
use wire::packet::HEADER;
use wire::prepared::PrepareOk;
use wire::reframe::{INTERRUPTED, QUERY_TIMEOUT, Reframe, ReplyFacts, TIME_IS_OVER};
use wire::reply::ReplyKind;

/// Most statements a client may have prepared at once (a server's default `max_prepared_stmt_count`).
const MAX_STATEMENTS: usize = 16382;
/// With these, a statement may be described otherwise than to other sessions with the same known state.
const APART: PinSet = PinSet::of(&[PinReason::TemporaryTable, PinReason::SessionState, PinReason::StoredCode, PinReason::Role]);
/// Bytes of statement text kept prepared on one backend.
const MAX_STATEMENT_BYTES: usize = 4 << 20;

impl Session {
    /// Serves COM_STMT_PREPARE.
    pub(super) async fn prepare(&mut self, command: Incoming) -> Result<(), End> {
        self.statements.forget_latest();
        if self.statements.len() >= MAX_STATEMENTS {
            let text = format!("Can't create more than max_prepared_stmt_count statements (current value: {MAX_STATEMENTS})");
            return self.client.send_error(&mut self.at, codes::MAX_PREPARED_STMT_COUNT_REACHED, "42000", &text).await;
        }
        let (held, longest) = (self.statements.bytes(), self.worker.snapshot().vars.max_stmts_bytes_per_client);
        if held > 0 && (held + self.client.body(command).len()) as u64 > longest {
            let text = format!(
                "Can't create more than {longest} bytes of prepared statements (mysql-max_stmts_bytes_per_client): close some first"
            );
            return self.client.send_error(&mut self.at, codes::MAX_PREPARED_STMT_COUNT_REACHED, "42000", &text).await;
        }
        let (command, parent) = self.lift_trace(command, 0);
        let text = self.client.body(command);
        let analysis = if is_long(text) {
            Box::pin(self.worker.analyze_in_turns(text, self.wants.lex)).await
        } else {
            self.worker.analyze(text, self.wants.lex)
        };
        let said = analysis;
        let (command, analysis, original) = if self.goes_home_undirected() {
            (command, analysis, None)
        } else {
            match self.direct(command, 0, &analysis, TextCommand::Prepare).await? {
                Some(directed) => directed,
                None => {
                    self.preparation_refused(self.client.body(command), &analysis, None);
                    return Ok(());
                }
            }
        };
        let text = self.prepared_text(command, &analysis);
        let original = original.or_else(|| (*text != *self.client.body(command)).then(|| self.client.body(command).into()));
        let fact = sql::single_fact_select(self.client.body(command), self.wants.lex);
        let user_variables = self.named_variables(&text, &analysis);
        let key = Meaning { schema: self.wants.state.schema.clone(), mode: self.mode(), user_variables, text, types: None };
        let key = self.worker.memory.borrow_mut().intern_statement(key.into());
        let statement = ClientStatement {
            on_backend: Arc::clone(&key),
            key,
            analysis,
            lex: self.wants.lex,
            original: original.map(|text| Arc::new(Original { text, analysis: said })),
            params: 0,
            types: Vec::new(),
            settled_types: None,
            fact,
            marks: Marks::default(),
            apart: None,
            failed: None,
            parent,
            holder: None,
        };
        if self.at.pins.set().is_empty()
            && let Some((packets, caps, params)) = self.remembered(&statement.key)
        {
            if self.facts.has_diagnostics() {
                // It is a statement for them.
                return self.answer_prepare(statement, Collected { raw: packets, ..Collected::default() }, caps).await;
            }
            return self.answer_prepared(statement, packets, caps, params).await;
        }
        match self.prepare_afresh(&statement).await {
            Ok(reply) => {
                let caps = self.at.backend.as_ref().map_or(Capabilities::default(), |b| b.core.caps);
                self.answer_prepare(statement, reply, caps).await
            }
            Err(fault) => {
                self.preparation_refused(&statement.key.text, &statement.analysis, Some(&fault));
                self.report(fault).await
            }
        }
    }

    /// The text as servers get it: what is constant for the session is put in.
    fn prepared_text(&self, command: Incoming, analysis: &Analysis) -> Text {
        let text = self.client.body(command);
        let constant = analysis.facts.contains(Facts::CONNECTION_ID)
            && !analysis.facts.intersects(Facts::FOUND_ROWS | Facts::ROW_COUNT | Facts::DIAGNOSTICS);
        if constant && asks_now(analysis.kind) && sql::single_fact_select(text, self.wants.lex).is_none() {
            return self.substituted(text, analysis).into();
        }
        text.into()
    }

    /// A server's fresh answer to the same PREPARE.
    fn remembered(&self, key: &Arc<StatementKey>) -> Option<(Vec<u8>, Capabilities, u16)> {
        if key.user_variables.is_some() {
            // Whatever they are later, the server settles their types now.
            return None;
        }
        let epoch = self.worker.shared.ddl_epoch.load(Ordering::Acquire);
        let info = self.at.pool.one_version()?;
        let settings = self.column_settings();
        let memory = self.worker.memory.borrow();
        let max_age = self.worker.snapshot().vars.prepared_metadata_max_age;
        let known = memory.prepared(&self.place(&info), (key, &settings), epoch, self.now_ms(), max_age)?;
        Some((known.packets.clone(), known.caps, known.params))
    }

    /// Asks a backend, whatever is remembered.
    async fn prepare_afresh(&mut self, statement: &ClientStatement) -> Result<Collected, Fault> {
        // Preparing has no effect: it may be done again anywhere.
        let harmless = Analysis { kind: Kind::Show, facts: Facts::NONE, digest: statement.analysis.digest };
        self.recovery.forget_retries();
        let mut patience = self.hand.patience(&self.at);
        loop {
            let fault = match self.try_prepare(statement).await {
                Ok(reply) => match self.refused_to_prepare(&reply, &harmless) {
                    Some(fault) => fault,
                    None => return Ok(reply),
                },
                Err(fault) => fault,
            };
            Box::pin(self.once_more(&mut patience, fault, &harmless)).await?;
        }
    }

    async fn try_prepare(&mut self, statement: &ClientStatement) -> Result<Collected, Fault> {
        self.obtain().await?;
        let plain = Analysis::NONE;
        let ahead = if self.has_defined() { self.sync_causally(&plain).await? } else { self.sync(&plain).await? };
        self.send_statement(&ahead, Outgoing::Bytes(&[])).await?;
        if let Some(old) = self.at.backend.as_mut().and_then(|b| b.core.statements.remove(&statement.key)) {
            self.at.close_on_backend(&[old]).await?;
        }
        self.prepare_on_backend(&statement.key).await
    }

    /// Prepares on the held backend, in the state it is in.
    async fn prepare_on_backend(&mut self, key: &Arc<StatementKey>) -> Result<Collected, Fault> {
        let epoch = self.worker.shared.ddl_epoch.load(Ordering::Acquire);
        let mut reply = self.send_prepare(key).await?;
        if reply.error.as_ref().is_some_and(|error| error.code == codes::MAX_PREPARED_STMT_COUNT_REACHED)
            && Box::pin(self.at.close_unheld()).await?
        {
            reply = self.send_prepare(key).await?;
        }
        if let Some(error) = &reply.error {
            self.tell_of_error(error.code, &error.message);
            return Ok(reply);
        }
        let Some(ok) = prepare_ok(&reply.raw) else {
            return Err(self.at.lost_before(&std::io::Error::other("malformed answer to COM_STMT_PREPARE")));
        };
        self.keep_prepared(key, &ok, &reply, epoch);
        self.at.shrink_statements().await?;
        Ok(reply)
    }

    /// Has the held backend prepare it. A server may wait for a lock with that, as with a statement, so it is waited for, killed
    /// and given up as one.
    async fn send_prepare(&mut self, key: &Arc<StatementKey>) -> Result<Collected, Fault> {
        let sent = match self.at.backend.as_mut() {
            Some(backend) => unless_killed(&self.handle, backend.send(Command::StmtPrepare, &key.text)).await,
            None => Err(std::io::ErrorKind::NotConnected.into()),
        };
        sent.map_err(|e| self.at.lost_before(&e))?;
        let mut reply = self.hear_prepared().await?;
        self.at.statement_is_over().await;
        if self.handle.is_timed_out()
            && let Some(error) = reply.error.as_mut().filter(|error| error.code == INTERRUPTED)
        {
            *error = ServerError { code: QUERY_TIMEOUT, sqlstate: *b"70100", message: TIME_IS_OVER.to_vec() };
        }
        Ok(reply)
    }

    async fn hear_prepared(&mut self) -> Result<Collected, Fault> {
        let overdue = if self.is_movable() { Overdue::Moves } else { Overdue::MayNeverEnd };
        let Some(backend) = self.at.backend.as_mut() else { return Err(self.at.pinned_backend_lost("no backend")) };
        let mut reply = backend.begin_collecting(ReplyKind::Prepare, true);
        loop {
            let Some(backend) = self.at.backend.as_mut() else { return Err(self.at.pinned_backend_lost("no backend")) };
            match backend.collect_more(&mut reply) {
                Ok(None) => {
                    backend.input.release(&self.worker.buffers);
                    return Ok(reply.reply);
                }
                Ok(Some(wanted)) => self.read_backend(wanted, overdue).await?,
                Err(e) => return Err(self.at.lost(&e, Certainty::Unknown)),
            }
        }
    }

    fn keep_prepared(&mut self, key: &Arc<StatementKey>, ok: &PrepareOk, reply: &Collected, ddl_epoch: u64) {
        let Some(backend) = self.at.backend.as_mut() else { return };
        count(&self.worker.counters.backend_prepares);
        let prepared = key.as_prepared();
        let listed = self.worker.meter.list_prepared(&self.user.name, &prepared, self.wants.lex, (ok.columns, ok.params));
        backend.core.statements.insert(Arc::clone(key), ok.stmt_id, listed.hold(Side::Server));
        // The next one's warnings are its own.
        if self.at.pins.set().intersects(APART) || key.user_variables.is_some() || ok.warnings > 0 {
            return;
        }
        let caps = backend.core.caps;
        let reply = PrepareReply {
            packets: reply.raw.clone(),
            caps,
            settings: self.column_settings(),
            params: ok.params,
            ddl_epoch,
            at_ms: self.worker.clock.now_ms(),
        };
        let max = usize::try_from(self.worker.snapshot().vars.max_stmts_cache).unwrap_or(usize::MAX);
        if let Some(info) = self.at.pool.one_version() {
            self.worker.memory.borrow_mut().learn_prepared(&self.place(&info), prepared, reply, max);
        }
    }

    /// Passes a backend's answer to PREPARE on.
    async fn answer_prepare(&mut self, statement: ClientStatement, reply: Collected, caps: Capabilities) -> Result<(), End> {
        // Preparing SHOW WARNINGS leaves the warnings standing.
        let keeps = is_about_diagnostics(&statement.analysis) && reply.error.is_none();
        let kind = if keeps { Kind::ShowWarnings } else { Kind::Other };
        let analysis = Analysis { kind, facts: Facts::NONE, digest: statement.analysis.digest };
        if self.facts.has_diagnostics() {
            self.facts.keep_warnings(self.facts.leaves_warnings(&self.at, &statement.analysis, &statement.key.text));
        }
        let mut facts = ReplyFacts { error: reply.error.as_ref().map(|e| e.code), ..ReplyFacts::default() };
        match (&reply.error, prepare_ok(&reply.raw)) {
            (Some(error @ ServerError { code, sqlstate, message }), _) => {
                self.preparation_refused(&statement.key.text, &statement.analysis, Some(&Fault::server(error.clone())));
                let state = String::from_utf8_lossy(sqlstate).into_owned();
                self.client.send_error_at(&mut self.at, self.client.answer_seq(), *code, &state, message).await?;
            }
            (None, Some(ok)) => {
                (facts.warnings, facts.warned) = (ok.warnings, ok.warnings > 0);
                self.answer_prepared(statement, reply.raw, caps, ok.params).await?;
            }
            (None, None) => return Err(End::BackendLost("malformed answer to COM_STMT_PREPARE".into())),
        }
        match reply.error {
            None => self.settle_uncounted(&analysis, &facts).await,
            Some(_) => self.settle(&analysis, &facts, |_, _| true).await,
        }
    }

    /// Settles after a command that is no statement of which rows are counted.
    pub(super) async fn settle_uncounted(&mut self, analysis: &Analysis, facts: &ReplyFacts) -> Result<(), End> {
        self.facts.keep_counts();
        self.settle(analysis, facts, |_, _| true).await
    }

    /// Sends a server's answer to PREPARE under the session's own statement id.
    async fn answer_prepared(
        &mut self,
        mut statement: ClientStatement,
        mut packets: Vec<u8>,
        caps: Capabilities,
        params: u16,
    ) -> Result<(), End> {
        statement.params = params;
        let columns = prepare_ok(&packets).map_or(0, |ok| ok.columns);
        let listed = self.worker.meter.list_prepared(&self.user.name, &statement.key, self.wants.lex, (columns, params));
        statement.holder = Some(listed.hold(Side::Client));
        let id = self.statements.insert(statement);
        self.preparation_ended(id);
        if let Some(slot) = packets.get_mut(HEADER + 1..HEADER + 5) {
            slot.copy_from_slice(&id.to_le_bytes());
        }
        let mut out = Vec::new();
        let mut facts = ReplyFacts::default();
        let mut reframe = Reframe::new(ReplyKind::Prepare, caps, self.client.caps, None, self.client.current_status());
        reframe.set_next_seq(self.client.answer_seq());
        match reframe.process(&mut packets, &mut out, &mut facts) {
            Ok(p) => {
                let bytes = if p.direct { packets } else { out };
                self.client.write_front(&self.at, &bytes).await
            }
            Err(e) => Err(End::BackendLost(e.to_string())),
        }
    }

    /// Has the statement prepared on the held backend, after what goes `ahead` where it is not yet; returns the server's
    /// id.
    pub(super) async fn prepared_on_backend(&mut self, id: u32, ahead: &mut Ahead) -> Result<u32, Fault> {
        let Some(statement) = self.statements.get(id) else { return Err(self.unknown_statement(id, "mysqld_stmt_execute")) };
        // The held backend has it.
        let stays = statement.apart.is_some();
        if !stays && knows_better(&statement.analysis, statement.fact) {
            // The numbers are put into the text, which is then another statement.
            let text = self.substituted(&statement.key.text, &statement.analysis).into();
            let meaning = Meaning { text, types: statement.settled_types.clone(), ..(**statement.key).clone() };
            self.statements.execute_as(id, meaning.into());
        } else if !stays {
            self.statements.execute_as_bound(id);
        }
        if let Some(found) = self.statements.found_on_backend(&mut self.at, id) {
            return Ok(found);
        }
        if stays {
            let text = "The connection with the statement's cursor or long data is gone: prepare the statement again";
            return Err(Fault::error(codes::UNKNOWN_ERROR, b"HY000", text));
        }
        let Some(key) = self.statements.get(id).map(|statement| Arc::clone(&statement.on_backend)) else {
            return Err(self.unknown_statement(id, "mysqld_stmt_execute"));
        };
        // Prepared before the state is in force, it would be another statement.
        self.send_statement(&std::mem::take(ahead), Outgoing::Bytes(&[])).await?;
        let reply = self.prepare_as_then(&key, ahead).await.map_err(|fault| self.recovery.lost_unexecuted(&self.at, fault))?;
        if let Some(by) = self.handle.killed_by().filter(|_| reply.error.is_none()) {
            // The KILL QUERY came too late for this, and is not sent again.
            return Err(Fault::interrupted(by));
        }
        match (reply.error.clone(), prepare_ok(&reply.raw)) {
            (Some(e), _) => {
                if let Some(backend) = self.at.backend.as_mut() {
                    backend.core.held.failed();
                }
                Err(Fault::server(e))
            }
            (None, Some(ok)) => Ok(ok.stmt_id),
            (None, None) => Err(self.unknown_statement(id, "mysqld_stmt_execute")),
        }
    }

    /// What was to go ahead of a statement that was not sent after all: the backend is noted to have it.
    pub(super) async fn send_unless_lost(&mut self, ahead: &Ahead) {
        if ahead.replies == 0 {
            return;
        }
        let is_even = self.at.backend.as_ref().is_some_and(Backend::is_even);
        let is_sent = is_even && self.recovery.assigned_gtid.is_none() && self.send_statement(ahead, Outgoing::Bytes(&[])).await.is_ok();
        if !is_sent && self.at.pins.set().is_empty() {
            self.at.backend = None;
        }
    }

    /// Error 1243, as the servers put it. MariaDB names its function for the command, MySQL (since 8.0) one for all.
    pub(super) fn unknown_statement(&self, id: u32, function: &str) -> Fault {
        let mysql = self.worker.shared.serves_mysql();
        let function = if mysql { "mysql_stmt_precheck" } else { function };
        Fault::error(codes::UNKNOWN_STMT_HANDLER, b"HY000", format!("Unknown prepared statement handler ({id}) given to {function}"))
    }

    /// A statement keeps the settings it was prepared under, whatever the session has set since. What brings the session's own
    /// back goes `ahead` of the execution.
    async fn prepare_as_then(&mut self, key: &Arc<StatementKey>, ahead: &mut Ahead) -> Result<Collected, Fault> {
        if *key.mode == *self.mode() {
            return self.prepare_with_values(key).await;
        }
        let then = self.variables_then(&key.mode);
        let now = std::mem::replace(&mut self.wants.state.variables, then);
        let reply = self.prepare_in_state(key, ahead).await;
        self.wants.state.variables = now;
        let reply = reply?;
        self.sync_state(ahead).await?;
        Ok(reply)
    }

    /// Prepares with the backend in the session's state; what that takes is sent first.
    async fn prepare_in_state(&mut self, key: &Arc<StatementKey>, ahead: &mut Ahead) -> Result<Collected, Fault> {
        self.sync_state(ahead).await?;
        self.send_statement(&std::mem::take(ahead), Outgoing::Bytes(&[])).await?;
        self.prepare_with_values(key).await
    }

    /// A statement keeps the schema it was prepared in, whatever the session uses since.
    pub(super) async fn prepare_in_schema(&mut self, key: &Arc<StatementKey>) -> Result<Collected, Fault> {
        let now = self.at.backend.as_ref().and_then(|b| b.core.held.state().schema.clone());
        if now == key.schema {
            return self.prepare_on_backend(key).await;
        }
        if let Some(schema) = &key.schema {
            match self.door().sync_schema(schema).await {
                // What needs no schema can still be prepared.
                Err(fault) if now.is_none() && is_schema_refused(&fault) => {}
                entered => entered?,
            }
        }
        let reply = self.prepare_on_backend(key).await?;
        if let Some(schema) = now {
            self.door().sync_schema(&schema).await?;
        }
        Ok(reply)
    }
}

impl Recovery {
    /// Preparing a statement has no effect: what was lost with that may be executed elsewhere.
    fn lost_unexecuted(&mut self, at: &Backends, fault: Fault) -> Fault {
        match fault {
            Fault::Lost { certainty: Certainty::Unknown, text, pins } => {
                self.lost_at_us.get_or_insert(at.worker.shared.clock.now_us());
                Fault::Lost { certainty: Certainty::NeverSent, text, pins }
            }
            other => other,
        }
    }
}

impl Statements {
    /// From now on the statement is for backends what the client has, with the types that it binds.
    pub(super) fn execute_as_bound(&mut self, id: u32) {
        let Some(statement) = self.get(id).filter(|statement| !statement.is_on_backend_as_bound()) else { return };
        let meaning = Meaning { types: statement.settled_types.clone(), ..(**statement.key).clone() };
        self.execute_as(id, meaning.into());
    }

    /// From now on the statement is this one for backends.
    fn execute_as(&mut self, id: u32, key: StatementKey) {
        if let Some(statement) = self.get_mut(id).filter(|statement| *statement.on_backend != key) {
            statement.on_backend = Arc::new(key);
        }
    }

    /// The server's id of the statement, where the held backend has it prepared as it is to be executed.
    pub(super) fn found_on_backend_as_bound(&self, at: &mut Backends, id: u32) -> Option<u32> {
        let statement = self.get(id)?;
        let is_as_bound = || !knows_better(&statement.analysis, statement.fact) && statement.is_on_backend_as_bound();
        if statement.apart.is_some() || is_as_bound() { self.found_on_backend(at, id) } else { None }
    }

    /// The server's id of the statement, where the held backend has it prepared.
    fn found_on_backend(&self, at: &mut Backends, id: u32) -> Option<u32> {
        let statement = self.get(id)?;
        let prepared = &mut at.backend.as_mut()?.core.statements;
        let found = match statement.apart {
            Some(apart) => prepared.get_apart(apart),
            None => prepared.find(&statement.on_backend),
        };
        found.map(|found| found.id)
    }
}

impl Backends {
    pub(super) async fn shrink_statements(&mut self) -> Result<(), Fault> {
        let max = usize::try_from(self.worker.snapshot().vars.max_stmts_per_connection).unwrap_or(usize::MAX).max(1);
        let Some(backend) = self.backend.as_mut() else { return Ok(()) };
        let closed = backend.core.statements.shrink(max, MAX_STATEMENT_BYTES);
        self.close_on_backend(&closed).await
    }

    pub(super) async fn close_on_backend(&mut self, ids: &[u32]) -> Result<(), Fault> {
        let Some(backend) = self.backend.as_mut() else { return Ok(()) };
        let result = backend.close_statements(&self.worker.counters, ids).await;
        result.map_err(|e| self.lost_before(&e))
    }

    /// The server has as many statements as it may: those that no client has are closed, on the held backend and on idle ones of
    /// this worker. False when there were none.
    async fn close_unheld(&mut self) -> Result<bool, Fault> {
        let Some(backend) = self.backend.as_mut() else { return Ok(false) };
        let server = backend.core.server.index;
        let own = backend.core.statements.take_unheld();
        self.close_on_backend(&own).await?;
        let mut closing = Vec::new();
        for mut idle in self.pool.take_with_unheld(server) {
            let ids = idle.core.statements.take_unheld();
            closing.push(tokio::task::spawn_local(ping(Rc::clone(&self.worker), Rc::clone(&self.pool), idle, ids)));
        }
        let is_any = !own.is_empty() || !closing.is_empty();
        for one in closing {
            _ = paused(&self.handle, one).await?;
        }
        Ok(is_any)
    }
}

/// Does the statement ask for several facts that the session knows and a backend does not?
fn knows_better(analysis: &Analysis, fact: Option<sql::Fact>) -> bool {
    let own = Facts::FOUND_ROWS | Facts::ROW_COUNT | Facts::DIAGNOSTICS;
    fact.is_none() && asks_now(analysis.kind) && analysis.facts.intersects(own)
}
