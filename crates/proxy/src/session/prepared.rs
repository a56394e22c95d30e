//! Having a statement prepared on whatever backend serves its execution, as it was at the client's PREPARE.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::door::ServerDoor;
use super::fault::{Certainty, Fault};
use super::frontend::Frontend;
use super::guard::{paused, unless_killed};
use super::leave::Overdue;
use super::prepare_settings::settles_at_prepare;
use super::query::asks_now;
use super::recovery::Recovery;
use super::relay::Outgoing;
use super::statements::Statements;
use super::substituted::substituted;
use super::sync::{Ahead, is_schema_refused};
use crate::backends::backend::{Backend, prepare_ok};
use crate::backends::cleaning::ping;
use crate::statements::memory::PrepareReply;
use crate::workers::counters::count;
use meter::prepared::Side;
use session_state::collected::{Collected, ServerError};
use session_state::pins::{PinReason, PinSet};
use session_state::statement_key::{Meaning, StatementKey};
use session_state::wants::Wants;
use sql::{Analysis, Facts};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::command::Command;
use wire::packet::{HEADER, MAX_PAYLOAD};
use wire::prepared::{BulkHeader, ExecuteParams, PrepareOk, put_stmt_id, rewrite_bulk, rewrite_execute};
use wire::reframe::{INTERRUPTED, QUERY_TIMEOUT, TIME_IS_OVER};
use wire::reply::ReplyKind;
use wire::{codes, packet};

/// With these, a statement may be described otherwise than to other sessions with the same known state.
pub(super) const APART: PinSet = PinSet::of(&[PinReason::TemporaryTable, PinReason::SessionState, PinReason::StoredCode, PinReason::Role]);

/// Bytes of statement text kept prepared on one backend.
pub(super) const MAX_STATEMENT_BYTES: usize = 4 << 20;

impl Session {
    /// Has the statement prepared on the held backend, after what goes `ahead` where it is not yet; returns the server's
    /// id.
    pub(super) async fn prepared_on_backend(&mut self, id: u32, ahead: &mut Ahead) -> Result<u32, Fault> {
        let Some(statement) = self.statements.get(id) else {
            return Err(Fault::unknown_statement(&self.worker, id, "mysqld_stmt_execute"));
        };
        // The held backend has it.
        let stays = statement.apart.is_some();
        if !stays && knows_better(&statement.analysis, statement.fact) {
            // The numbers are put into the text, which is then another statement.
            let text = substituted(&self.facts, &self.at, &self.wants, &statement.key.text, &statement.analysis).into();
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
            return Err(Fault::unknown_statement(&self.worker, id, "mysqld_stmt_execute"));
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
            (None, None) => Err(Fault::unknown_statement(&self.worker, id, "mysqld_stmt_execute")),
        }
    }

    /// A statement keeps the settings it was prepared under, whatever the session has set since. What brings the session's own
    /// back goes `ahead` of the execution.
    pub(super) async fn prepare_as_then(&mut self, key: &Arc<StatementKey>, ahead: &mut Ahead) -> Result<Collected, Fault> {
        if *key.mode == *self.client.mode(&self.wants, &self.worker) {
            return self.prepare_with_values(key).await;
        }
        let then = self.wants.variables_then(settles_at_prepare(&self.worker), &key.mode);
        let now = std::mem::replace(&mut self.wants.state.variables, then);
        let reply = self.prepare_in_state(key, ahead).await;
        self.wants.state.variables = now;
        let reply = reply?;
        self.sync_state(ahead).await?;
        Ok(reply)
    }

    /// Prepares with the backend in the session's state; what that takes is sent first.
    pub(super) async fn prepare_in_state(&mut self, key: &Arc<StatementKey>, ahead: &mut Ahead) -> Result<Collected, Fault> {
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

    /// Prepares on the held backend, in the state it is in.
    pub(super) async fn prepare_on_backend(&mut self, key: &Arc<StatementKey>) -> Result<Collected, Fault> {
        let epoch = self.worker.shared.ddl_epoch.load(Ordering::Acquire);
        let mut reply = self.send_prepare(key).await?;
        if reply.error.as_ref().is_some_and(|error| error.code == codes::MAX_PREPARED_STMT_COUNT_REACHED)
            && Box::pin(self.door().close_unheld()).await?
        {
            reply = self.send_prepare(key).await?;
        }
        if let Some(error) = &reply.error {
            self.client.tell_of_error(&self.at, error.code, &error.message);
            return Ok(reply);
        }
        let Some(ok) = prepare_ok(&reply.raw) else {
            return Err(self.at.lost_before(&std::io::Error::other("malformed answer to COM_STMT_PREPARE")));
        };
        let made = NewlyPrepared { key, ok, packets: &reply.raw, ddl_epoch: epoch };
        self.client.keep_prepared(&mut self.at, &self.wants, &made);
        self.at.shrink_statements().await?;
        Ok(reply)
    }

    /// Has the held backend prepare it. A server may wait for a lock with that, as with a statement, so it is waited for, killed
    /// and given up as one.
    pub(super) async fn send_prepare(&mut self, key: &Arc<StatementKey>) -> Result<Collected, Fault> {
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

    pub(super) async fn hear_prepared(&mut self) -> Result<Collected, Fault> {
        let overdue = if self.recovery.is_movable(&self.at, &self.facts) { Overdue::Moves } else { Overdue::MayNeverEnd };
        let Some(backend) = self.at.backend.as_mut() else { return Err(self.at.pinned_backend_lost("no backend")) };
        let mut reply = backend.begin_collecting(ReplyKind::Prepare, true);
        loop {
            let Some(backend) = self.at.backend.as_mut() else { return Err(self.at.pinned_backend_lost("no backend")) };
            match backend.collect_more(&mut reply) {
                Ok(None) => {
                    backend.input.release(&self.worker.buffers);
                    return Ok(reply.reply);
                }
                Ok(Some(wanted)) => self.client.read_backend(&mut self.at, &mut self.hand, wanted, overdue).await?,
                Err(e) => return Err(self.at.lost(&e, Certainty::Unknown)),
            }
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

    /// Puts the held backend's id of the statement into the client's packet. Where its server has not seen the types, returns a new
    /// packet that has them.
    pub(super) async fn ready_execution(&mut self, command: Incoming, id: u32, ahead: &mut Ahead) -> Result<Option<Vec<u8>>, Fault> {
        let server_id = self.prepared_on_backend(id, ahead).await?;
        Ok(self.statements.with_server_id(&mut self.at, &mut self.client, command, id, server_id))
    }
}

/// A statement that a server has just prepared.
struct NewlyPrepared<'a> {
    key: &'a Arc<StatementKey>,
    ok: PrepareOk,
    /// The whole reply.
    packets: &'a [u8],
    /// How often definitions had changed before it was asked for.
    ddl_epoch: u64,
}

impl Frontend {
    fn keep_prepared(&self, at: &mut Backends, wants: &Wants, made: &NewlyPrepared<'_>) {
        let NewlyPrepared { key, ok, packets, ddl_epoch } = made;
        let Some(backend) = at.backend.as_mut() else { return };
        count(&at.worker.counters.backend_prepares);
        let prepared = key.as_prepared();
        let listed = at.worker.meter.list_prepared(&at.user.name, &prepared, wants.lex, (ok.columns, ok.params));
        backend.core.statements.insert(Arc::clone(key), ok.stmt_id, listed.hold(Side::Server));
        // The next one's warnings are its own.
        if at.pins.set().intersects(APART) || key.user_variables.is_some() || ok.warnings > 0 {
            return;
        }
        let caps = backend.core.caps;
        let reply = PrepareReply {
            packets: packets.to_vec(),
            caps,
            settings: self.column_settings(wants, &at.worker),
            params: ok.params,
            ddl_epoch: *ddl_epoch,
            at_ms: at.worker.clock.now_ms(),
        };
        let max = usize::try_from(at.worker.snapshot().vars.max_stmts_cache).unwrap_or(usize::MAX);
        if let Some(info) = at.pool.one_version() {
            at.worker.memory.borrow_mut().learn_prepared(&at.place(&info), prepared, reply, max);
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
    pub(super) fn execute_as(&mut self, id: u32, key: StatementKey) {
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
    pub(super) fn found_on_backend(&self, at: &mut Backends, id: u32) -> Option<u32> {
        let statement = self.get(id)?;
        let prepared = &mut at.backend.as_mut()?.core.statements;
        let found = match statement.apart {
            Some(apart) => prepared.get_apart(apart),
            None => prepared.find(&statement.on_backend),
        };
        found.map(|found| found.id)
    }

    /// The execution with its types, when the server needs them and the client did not send them.
    pub(super) fn with_types(
        &mut self,
        at: &mut Backends,
        client: &Frontend,
        command: Incoming,
        id: u32,
        server_id: u32,
    ) -> Option<Vec<u8>> {
        let statement = self.get(id)?;
        let is_execution = [Command::StmtExecute as u8, Command::StmtBulkExecute as u8].contains(&command.byte);
        if statement.params == 0 || statement.types.is_empty() || !is_execution {
            return None;
        }
        let prepared = statement.of(&mut at.backend.as_mut()?.core.statements)?;
        if prepared.bound_types == statement.types {
            return None;
        }
        let payload = if command.joined { &client.joined[..] } else { client.input.filled().get(HEADER..command.wire_len)? };
        let mut rewritten = Vec::new();
        if command.byte == Command::StmtBulkExecute as u8 {
            let header = BulkHeader::parse(payload).ok()?;
            prepared.bound_types.clone_from(&statement.types);
            if header.types(statement.params).is_some() {
                return None;
            }
            rewritten.reserve_exact(payload.len() + statement.types.len());
            rewrite_bulk(payload, &statement.types, &mut rewritten).ok()?;
            put_stmt_id(&mut rewritten, server_id).ok()?;
        } else {
            let params = ExecuteParams::parse(payload, statement.params, client.caps).ok()??;
            prepared.bound_types.clone_from(&statement.types);
            if params.new_types {
                return None;
            }
            rewritten.reserve_exact(payload.len() + statement.types.len() + 1);
            rewrite_execute(payload, server_id, Some(&params), Some(&statement.types), &mut rewritten).ok()?;
        }
        let mut out = Vec::with_capacity(rewritten.len() + 8);
        packet::put_packet(&mut out, &mut 0, &rewritten);
        Some(out)
    }

    /// The same for a statement that the held backend has prepared under this id.
    pub(super) fn with_server_id(
        &mut self,
        at: &mut Backends,
        client: &mut Frontend,
        command: Incoming,
        id: u32,
        server_id: u32,
    ) -> Option<Vec<u8>> {
        if let Some(packet) = self.with_types(at, client, command, id, server_id) {
            return Some(packet);
        }
        let len = command.wire_len.min(HEADER + MAX_PAYLOAD);
        if let Some(payload) = client.input.filled_mut().get_mut(HEADER..len) {
            let _ = put_stmt_id(payload, server_id);
        }
        None
    }
}

impl Recovery {
    /// Preparing a statement has no effect: what was lost with that may be executed elsewhere.
    pub(super) fn lost_unexecuted(&mut self, at: &Backends, fault: Fault) -> Fault {
        match fault {
            Fault::Lost { certainty: Certainty::Unknown, text, pins } => {
                self.lost_at_us.get_or_insert(at.worker.shared.clock.now_us());
                Fault::Lost { certainty: Certainty::NeverSent, text, pins }
            }
            other => other,
        }
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
}

impl ServerDoor<'_> {
    /// The server has as many statements as it may: those that no client has are closed, on the held backend and on idle ones of
    /// this worker. False when there were none.
    pub(super) async fn close_unheld(&mut self) -> Result<bool, Fault> {
        let Some(backend) = self.at.backend.as_mut() else { return Ok(false) };
        let server = backend.core.server.index;
        let own = backend.core.statements.take_unheld();
        self.at.close_on_backend(&own).await?;
        let Backends { worker, pool, handle, .. } = &*self.at;
        let mut closing = Vec::new();
        for mut idle in pool.take_with_unheld(server) {
            let ids = idle.core.statements.take_unheld();
            closing.push(tokio::task::spawn_local(ping(Rc::clone(worker), Rc::clone(pool), idle, ids)));
        }
        let is_any = !own.is_empty() || !closing.is_empty();
        for one in closing {
            _ = paused(handle, one).await?;
        }
        Ok(is_any)
    }
}

/// Does the statement ask for several facts that the session knows and a backend does not?
pub(super) fn knows_better(analysis: &Analysis, fact: Option<sql::Fact>) -> bool {
    let own = Facts::FOUND_ROWS | Facts::ROW_COUNT | Facts::DIAGNOSTICS;
    fact.is_none() && asks_now(analysis.kind) && analysis.facts.intersects(own)
}
