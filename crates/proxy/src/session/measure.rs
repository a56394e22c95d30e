//! What is measured of a session's commands: one call when a command begins and ends, one when a statement has ended.
//!
//! Latency is from the command's last byte read to the answer's last byte written, by the process clock.

use super::Session;
use super::acquire::Fault;
use super::command::Incoming;
use super::end::End;
use crate::counters::{add, count};
use crate::logs::audit::AuditEvent;
use crate::logs::event::{LoggedCommand, QueryEvent};
use crate::reframe::ReplyFacts;
use crate::shared::ServerShared;
use crate::stats::digest::shown;
use crate::stats::digest_table::Sums;
use crate::stats::meter::{Ended, error_key};
use crate::stats::view::Held;
use model::HostgroupId;
use sql::{Analysis, Facts, Kind};
use std::net::IpAddr;
use std::sync::Arc;
use wire::command::Command;
use wire::flags::StatusFlags;

/// CR_SERVER_LOST.
const SERVER_LOST: u16 = 2013;

/// How a statement came, and its text.
#[derive(Clone, Copy)]
pub enum Statement<'a> {
    /// COM_QUERY.
    Text(&'a [u8]),
    /// An execution of the client's prepared statement with this id.
    Execution(u32, &'a [u8]),
    /// COM_STMT_PREPARE, answered with this id (0: refused): logged, not counted.
    Preparation(u32, &'a [u8]),
}

impl<'a> Statement<'a> {
    fn text(self) -> &'a [u8] {
        match self {
            Self::Text(text) | Self::Execution(_, text) | Self::Preparation(_, text) => text,
        }
    }

    fn logged(self) -> LoggedCommand {
        match self {
            Self::Text(_) => LoggedCommand::Query,
            Self::Execution(id, _) => LoggedCommand::Execute(id),
            Self::Preparation(id, _) => LoggedCommand::Prepare(id),
        }
    }
}

impl Session {
    /// A command has come.
    pub(super) fn command_begins(&mut self, command: Incoming) {
        let counters = &self.worker.counters;
        count(&counters.questions);
        self.began_us = self.worker.shared.clock.now_us();
        self.entry.begin_command(self.began_us / 1000);
        let shown: &[u8] = match Command::from_u8(command.byte) {
            Some(Command::Query) => self.body(command),
            Some(Command::StmtPrepare) => {
                count(&counters.prepares);
                self.body(command)
            }
            Some(Command::StmtExecute) => {
                count(&counters.executes);
                let id = wire::prepared::stmt_id(self.payload(command)).map_or(0, |id| self.statements.resolve(id));
                self.statements.get(id).map_or(&[], |s| &*s.key.text)
            }
            Some(Command::StmtClose) => {
                count(&counters.closes);
                &[]
            }
            Some(Command::InitDb) => {
                count(&counters.init_dbs);
                self.body(command)
            }
            _ => &[],
        };
        self.entry.view.begin(command.byte, shown);
    }

    /// A command was dealt with: others see the session as it is now.
    pub(super) fn command_ended(&mut self) {
        let (to_client, from_client) = self.front.take_traffic();
        add(&self.worker.counters.bytes_to_clients, to_client);
        add(&self.worker.counters.bytes_from_clients, from_client);
        self.replaying = None;
        self.publish();
    }

    /// Shows others the session's pins, schema and connection.
    pub(super) fn publish(&mut self) {
        let entry = &self.entry;
        let new = self.all_pins().without(entry.all_pins());
        if !new.is_empty() {
            self.worker.meter.pins_began(new);
        }
        entry.pins.set(self.pins.set());
        self.publish_places();
        entry.pinned_since.set(self.pins.since());
        entry.view.held.set(self.backend.as_ref().map(Held::of));
        entry.view.status.set(self.status.bits());
        entry.view.set_schema(self.state.schema.as_ref());
    }

    /// Bytes that passed on the held connection are the server's.
    pub(super) fn note_traffic(&mut self) {
        if let Some(backend) = self.backend.as_mut() {
            let traffic = backend.link.take_traffic();
            self.worker.meter.count_traffic((backend.core.server.key.hostgroup, backend.core.server.index), traffic);
        }
    }

    /// A COM_QUERY has ended; None: the proxy answered it.
    pub(super) fn query_ended(&mut self, command: Incoming, start: usize, analysis: &Analysis, result: Option<&Result<ReplyFacts, Fault>>) {
        self.note_traffic();
        self.statement_ended(Statement::Text(self.sql_text(command, start)), analysis, result);
    }

    /// An execution of a prepared statement has ended; None: the proxy answered it.
    pub(super) fn execution_ended(&mut self, id: u32, analysis: &Analysis, result: Option<&Result<ReplyFacts, Fault>>) {
        self.note_traffic();
        if self.backend.is_some() {
            count(&self.worker.counters.backend_executes);
        }
        let Some(statement) = self.statements.get(id) else { return };
        self.statement_ended(Statement::Execution(id, &statement.key.text), analysis, result);
    }

    /// A PREPARE was answered with the client's statement `id`.
    pub(super) fn preparation_ended(&self, id: u32) {
        let Some(statement) = self.statements.get(id) else { return };
        let logged = Statement::Preparation(id, &statement.key.text);
        let time_us = self.worker.shared.clock.now_us().saturating_sub(self.began_us);
        self.log(logged, &statement.analysis, None, Sums::one(time_us, 0, 0, 0));
    }

    /// A PREPARE of this text was refused: there is no statement.
    pub(super) fn preparation_refused(&self, text: &[u8], analysis: &Analysis) {
        let time_us = self.worker.shared.clock.now_us().saturating_sub(self.began_us);
        self.log(Statement::Preparation(0, text), analysis, None, Sums::one(time_us, 0, 0, 0));
    }

    fn statement_ended(&self, statement: Statement<'_>, analysis: &Analysis, result: Option<&Result<ReplyFacts, Fault>>) {
        let time_us = self.worker.shared.clock.now_us().saturating_sub(self.began_us);
        let reply = result.and_then(|r| r.as_ref().ok());
        let (affected, sent) = reply.map_or((0, 0), |r| (r.all_affected, r.all_rows));
        let sums = Sums::one(time_us, affected, sent, self.now_ms());
        let held = self.backend.as_ref().map(Held::of).or(self.entry.view.held.get());
        self.worker.meter.count(&Ended {
            analysis,
            sql: statement.text(),
            lex: self.lex,
            hostgroup: result.and(Some(self.hostgroup())),
            server: result.and(held).map(|held| held.server),
            schema: self.state.schema.as_deref().unwrap_or_default(),
            user: &self.user.name,
            client: self.client_ip(),
            sums,
        });
        self.count_kind(analysis, statement.text(), time_us);
        if let Some(result) = result {
            self.count_fault(result, statement, analysis);
        }
        self.log(statement, analysis, result, sums);
    }

    /// Where the session's statements go now.
    fn hostgroup(&self) -> HostgroupId {
        self.backend.as_ref().map_or(self.pool.shared.id, |b| b.core.lane.hostgroup)
    }

    pub(super) fn client_ip(&self) -> Option<IpAddr> {
        self.peer.map(|peer| peer.ip())
    }

    fn count_kind(&self, analysis: &Analysis, sql: &[u8], time_us: u64) {
        let counters = &self.worker.counters;
        if time_us > self.worker.meter.rules().slow_us {
            count(&counters.slow_queries);
        }
        match analysis.kind {
            Kind::Commit => count(&counters.commits),
            Kind::Rollback => count(&counters.rollbacks),
            Kind::Use => count(&counters.use_dbs),
            Kind::Set if begins_with_any(sql, &["SET NAMES", "SET CHARACTER SET", "SET CHARSET"]) => count(&counters.set_names),
            Kind::Set if names_autocommit(sql) => count(&counters.set_autocommits),
            Kind::Select if analysis.facts.contains(Facts::LOCKING_READ) && !self.status.contains(StatusFlags::AUTOCOMMIT) => {
                count(&counters.locking_reads_without_autocommit);
            }
            _ => {}
        }
    }

    /// Counts what went wrong, with the server where it did.
    fn count_fault(&self, result: &Result<ReplyFacts, Fault>, statement: Statement<'_>, analysis: &Analysis) {
        let lost = |text: &str| Some((SERVER_LOST, text.as_bytes().to_vec()));
        let (is_lost, error) = match result {
            Ok(ReplyFacts { error: None, .. }) => return,
            Ok(reply) => (false, reply.error.map(|code| (code, reply.message.to_vec()))),
            Err(Fault::Error { code, text, .. } | Fault::Refused { code, text, .. }) => {
                (false, (*code < 9000).then(|| (*code, text.clone())))
            }
            Err(Fault::Lost { text, .. }) | Err(Fault::End(End::BackendLost(text))) => (true, lost(text)),
            Err(Fault::End(_)) => return,
        };
        if is_lost {
            count(&self.worker.counters.backends_lost);
        }
        if let (Some((code, text)), Some(server)) = (error, self.server()) {
            let schema = self.state.schema.as_deref().unwrap_or_default();
            if self.worker.meter.rules().logs_errors {
                let what = self.described(statement, analysis);
                tracing::warn!("error on {}: {code}: {}; {what}", server.key, String::from_utf8_lossy(&text));
            }
            let key = error_key(&server, &self.user.name, schema, code);
            self.worker.meter.count_error(key, self.client_ip(), &text, self.now_ms());
        }
    }

    /// A statement as the program's log names it: who sent it, and its digest without values.
    fn described(&self, statement: Statement<'_>, analysis: &Analysis) -> String {
        let schema = self.state.schema.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let client = self.peer.map_or_else(|| "unix socket".to_owned(), |peer| peer.to_string());
        let digest = self.worker.meter.digest(analysis, statement.text(), self.lex);
        let text = String::from_utf8_lossy(&digest.text);
        format!(
            "session {}, user '{}' from {client}, schema '{schema}', digest {}: {text}",
            self.entry.id,
            self.user.name,
            shown(digest.hash)
        )
    }

    /// Writes the warnings of the statement that just ran to the program's log. They are read for it also where a pin keeps the
    /// backend, and are the session's from then on.
    pub(super) async fn log_warnings(&mut self, analysis: &Analysis) {
        if !self.facts.warnings_read {
            self.facts.warnings_read = self.read_warnings().await.is_ok();
        }
        let Some(diagnostics) = self.facts.diagnostics.as_ref().filter(|_| self.facts.warnings_read) else { return };
        let digest = shown(analysis.digest);
        let server = self.server().map(|server| server.key.to_string()).unwrap_or_default();
        for warning in diagnostics.lines() {
            tracing::warn!("warning on {server}: {warning}; session {}, user '{}', statement {digest}", self.entry.id, self.user.name);
        }
    }

    /// The server that has, or had, the statement.
    fn server(&self) -> Option<Arc<ServerShared>> {
        if let Some(backend) = &self.backend {
            return Some(Arc::clone(&backend.core.server));
        }
        let (hostgroup, index) = self.entry.view.held.get()?.server;
        self.worker.pool(hostgroup).servers().get(index).cloned()
    }

    /// Gives the statement to the query log, if that is on and wants it.
    fn log(&self, statement: Statement<'_>, analysis: &Analysis, result: Option<&Result<ReplyFacts, Fault>>, sums: Sums) {
        let log = &self.worker.shared.logs.events;
        if !log.is_on() || !self.directions.log.unwrap_or(self.worker.meter.rules().logs_by_default) {
            return;
        }
        let reply = result.and_then(|r| r.as_ref().ok());
        let event = QueryEvent {
            thread_id: self.entry.id,
            command: statement.logged(),
            user: self.user.name.clone(),
            schema: self.state.schema.clone(),
            client: self.peer,
            hostgroup: result.and(Some(self.hostgroup())),
            server: result.and_then(|_| self.server()).map(|server| server.key.clone()),
            ended_us: crate::logs::unix_us(),
            duration_us: sums.sum_us,
            rows_affected: reply.filter(|r| r.error.is_none() && (r.rows.is_none() || r.all_affected > 0)).map(|r| r.all_affected),
            last_insert_id: reply.map_or(0, |r| r.last_insert_id),
            rows_sent: sums.rows_sent,
            digest: self.worker.meter.digest(analysis, statement.text(), self.lex).hash,
            query: statement.text().into(),
        };
        log.write_query(event);
    }

    /// The client is logged in.
    pub(super) fn logged_in(&mut self) {
        self.entry.view.is_tls.set(self.front.stream().tls().is_some());
        self.entry.view.passes_through.set(self.user.fast_forward);
        self.entry.view.client.set(self.peer);
        self.publish();
        self.worker.shared.logs.audit(AuditEvent::ConnectOk, &self.entry, None);
    }

    /// The session is over.
    pub(super) fn session_ended(&mut self, end: &End) {
        self.note_traffic();
        self.command_ended();
        let counters = &self.worker.counters;
        match end {
            End::ClientGone => count(&counters.unexpected_quits),
            End::Protocol { .. } => count(&counters.unexpected_packets),
            _ => {}
        }
        if !matches!(end, End::Quit | End::StreamEnded | End::Shutdown) {
            count(&counters.clients_aborted);
        }
        let logs = &self.worker.shared.logs;
        if matches!(end, End::Quit) {
            logs.audit(AuditEvent::Quit, &self.entry, None);
        }
        logs.audit(AuditEvent::Close, &self.entry, None);
    }
}

fn begins_with_any(sql: &[u8], starts: &[&str]) -> bool {
    let sql = sql.trim_ascii_start();
    starts.iter().any(|start| sql.get(..start.len()).is_some_and(|s| s.eq_ignore_ascii_case(start.as_bytes())))
}

/// Bytes of a SET that are looked at.
const LOOKED_AT: usize = 64;

fn names_autocommit(sql: &[u8]) -> bool {
    const NAME: &[u8] = b"autocommit";
    sql.get(..LOOKED_AT).unwrap_or(sql).windows(NAME.len()).any(|w| w.eq_ignore_ascii_case(NAME))
}
