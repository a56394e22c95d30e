//! What is measured of a session's commands: one call when a command begins and ends, one when a statement has ended.
//!
//! Latency is from the command's last byte read to the answer's last byte written, by the process clock.

use super::Session;
use super::backends::{Backends, Places};
use super::command::Incoming;
use super::door::ServerDoor;
use super::dump::STREAMS;
use super::end::{End, SERVER_LOST};
use super::fault::Fault;
use super::frontend::Frontend;
use super::hand::AtHand;
use super::pipeline::{Form, Statement};
use crate::backends::backend::Backend;
use crate::logs::audit::AuditEvent;
use crate::logs::event::{LoggedCommand, QueryEvent};
use crate::servers::server::ServerShared;
use crate::workers::counters::{add, count};
use crate::workers::worker::shown_error;
use meter::digest::shown;
use meter::digest_table::Sums;
use meter::errors::ErrorKey;
use meter::{Ended, error_key};
use model::HostgroupId;
use session_state::facts::Unread;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind};
use std::borrow::Cow;
use std::sync::Arc;
use wire::codes;
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;

/// How a statement came, and its text.
#[derive(Clone, Copy)]
pub(super) enum Measured<'a> {
    /// COM_QUERY.
    Text(&'a [u8]),
    /// An execution of the client's prepared statement with this id.
    Execution(u32, &'a [u8]),
    /// COM_STMT_PREPARE, answered with this id (0: refused): logged, not counted.
    Preparation(u32, &'a [u8]),
}

impl<'a> Measured<'a> {
    pub(super) fn text(self) -> &'a [u8] {
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

/// Errors that the proxy makes although a server has the session: KILL QUERY, a time limit, statements and cursors that are not
/// there. Those above 9000 are its own too.
const OWN_CODES: [u16; 4] =
    [codes::UNKNOWN_STMT_HANDLER, codes::QUERY_INTERRUPTED, codes::STMT_HAS_NO_OPEN_CURSOR, codes::PROXY_QUERY_TIMEOUT];

impl Session {
    /// A command has come.
    pub(super) fn command_begins(&mut self, command: Incoming) {
        if self.worker.shared.traces.is_on() {
            self.hand.trail.get_or_insert_default().begins();
        } else {
            self.hand.trail = None;
        }
        let counters = &self.worker.counters;
        count(&counters.questions);
        self.hand.began_us = self.worker.shared.clock.now_us();
        self.recovery.again_until_us = None;
        self.handle.begin_command(self.hand.began_us / 1000);
        let shown: &[u8] = match Command::from_u8(command.byte) {
            Some(Command::Query) => self.client.body(command),
            Some(Command::StmtPrepare) => {
                count(&counters.prepares);
                self.client.body(command)
            }
            Some(Command::StmtExecute) => {
                count(&counters.executes);
                let id =
                    wire::prepared::stmt_id(self.client.payload(command)).map_or(0, |id| self.statements.meant_statement(&self.at, id));
                self.statements.get(id).map_or(&[], |s| &*s.key.text)
            }
            Some(Command::StmtClose) => {
                count(&counters.closes);
                &[]
            }
            Some(Command::InitDb) => {
                count(&counters.init_dbs);
                self.client.body(command)
            }
            _ => &[],
        };
        self.handle.row.begin(command.byte, shown);
    }

    /// A command was dealt with: others see the session as it is now.
    pub(super) fn command_ended(&mut self) {
        let (to_client, from_client) = self.client.link.take_traffic();
        add(&self.worker.counters.bytes_to_clients, to_client);
        add(&self.worker.counters.bytes_from_clients, from_client);
        self.at.replaying = None;
        let is_counted = self.handle.error_is_counted.take();
        if let Some((code, text)) = self.handle.take_own_error().filter(|_| !is_counted) {
            self.account().count_own_error(code, &text, None);
        }
        self.at.publish_session(&self.client, &self.wants);
    }

    /// A statement has ended; None: the proxy answered it.
    pub(super) fn measure(&mut self, statement: &Statement, result: Option<Result<&ReplyFacts, &Fault>>) {
        self.at.note_traffic();
        self.hand.traced(|trail| trail.find_parent(&self.client, &self.statements, statement));
        match statement.form {
            Form::Text { start } => {
                let text = self.client.sql_text(statement.command, start);
                self.account().statement_ended(Measured::Text(text), &statement.analysis, result);
            }
            Form::Execution { id, .. } | Form::Bulk { id } => {
                if self.at.backend.is_some() {
                    count(&self.worker.counters.backend_executes);
                }
                let Some(prepared) = self.statements.get(id) else { return };
                self.account().statement_ended(Measured::Execution(id, &prepared.key.text), &statement.analysis, result);
            }
        }
    }

    /// A PREPARE was answered with the client's statement `id`.
    pub(super) fn preparation_ended(&self, id: u32) {
        let Some(statement) = self.statements.get(id) else { return };
        let logged = Measured::Preparation(id, &statement.key.text);
        let time_us = self.worker.shared.clock.now_us().saturating_sub(self.hand.began_us);
        self.account().log(logged, &statement.analysis, None, Sums::one(time_us, 0, 0, 0));
    }

    /// The session is over.
    pub(super) fn session_ended(&mut self, end: &End) {
        self.at.note_traffic();
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
            logs.audit(AuditEvent::Quit, &self.handle, None);
        }
        logs.audit(AuditEvent::Close, &self.handle, None);
    }
}

/// What counts a session's statements and errors, and logs them. It changes nothing of the session.
pub(super) struct Account<'a> {
    pub at: &'a Backends,
    pub client: &'a Frontend,
    pub hand: &'a AtHand,
    pub wants: &'a Wants,
}

impl Session {
    /// The account of what runs.
    pub(super) fn account(&self) -> Account<'_> {
        Account { at: &self.at, client: &self.client, hand: &self.hand, wants: &self.wants }
    }
}

impl Account<'_> {
    fn statement_ended(&self, statement: Measured<'_>, analysis: &Analysis, result: Option<Result<&ReplyFacts, &Fault>>) {
        let time_us = self.at.worker.shared.clock.now_us().saturating_sub(self.hand.began_us);
        let reply = result.and_then(Result::ok);
        let (affected, sent) = reply.map_or((0, 0), |r| (r.all_affected, r.all_rows));
        let sums = Sums::one(time_us, affected, sent, self.at.worker.clock.now_ms());
        if let Some(trail) = self.hand.trail.as_deref() {
            self.trace(trail, statement, analysis, result, &sums);
        }
        let held = self.at.backend.as_ref().map(Backend::shown).or(self.at.handle.row.held.get());
        self.at.worker.meter.count(&Ended {
            analysis,
            sql: statement.text(),
            lex: self.wants.lex,
            hostgroup: result.and(Some(self.at.hostgroup())),
            server: result.and(held).map(|held| held.server),
            schema: self.wants.state.schema.as_deref().unwrap_or_default(),
            user: &self.at.user.name,
            client: self.client.ip(),
            sums,
        });
        self.at.handle.row.digest.set(analysis.digest);
        self.count_kind(analysis, statement.text(), time_us);
        match result {
            Some(result) => self.count_fault(result, Some((statement, analysis))),
            None => self.count_answer(statement, analysis),
        }
        self.log(statement, analysis, result, sums);
    }

    fn count_kind(&self, analysis: &Analysis, sql: &[u8], time_us: u64) {
        let counters = &self.at.worker.counters;
        if time_us > self.at.worker.meter.rules().slow_us {
            count(&counters.slow_queries);
        }
        match analysis.kind {
            Kind::Commit => count(&counters.commits),
            Kind::Rollback => count(&counters.rollbacks),
            Kind::Use => count(&counters.use_dbs),
            Kind::Set if begins_with_any(sql, &["SET NAMES", "SET CHARACTER SET", "SET CHARSET"]) => count(&counters.set_names),
            Kind::Set if names_autocommit(sql) => count(&counters.set_autocommits),
            Kind::Select if analysis.facts.contains(Facts::LOCKING_READ) && !self.client.status.contains(StatusFlags::AUTOCOMMIT) => {
                count(&counters.locking_reads_without_autocommit);
            }
            _ => {}
        }
    }

    /// Counts what went wrong, with the server where it did.
    fn count_fault(&self, result: Result<&ReplyFacts, &Fault>, what: Option<(Measured<'_>, &Analysis)>) {
        let Some((code, text)) = error_of(result) else { return };
        if matches!(result, Err(Fault::Lost { .. } | Fault::End(End::BackendLost(_)))) {
            count(&self.at.worker.counters.backends_lost);
        }
        self.at.handle.error_is_counted.set(true);
        let is_own = matches!(result, Err(Fault::Error { .. })) && (code >= 9000 || OWN_CODES.contains(&code));
        match self.at.server().filter(|_| !is_own) {
            Some(server) => self.count_server_error(&server, code, text, what),
            None => self.count_own_error(code, text, what),
        }
    }

    /// Counts the error that the proxy answered a statement with, if it was one.
    fn count_answer(&self, statement: Measured<'_>, analysis: &Analysis) {
        let Some((code, text)) = self.at.handle.take_own_error() else { return };
        if !self.at.handle.error_is_counted.replace(true) {
            self.count_own_error(code, &text, Some((statement, analysis)));
        }
        self.at.handle.set_own_error(Some((code, text)));
    }

    /// Counts an error that the held server gave to what is no statement.
    pub(super) fn held_server_erred(&self, code: u16, text: &[u8]) {
        if let Some(server) = self.at.server() {
            self.at.handle.error_is_counted.set(true);
            self.count_server_error(&server, code, text, None);
        }
    }

    /// An error's text as it may be written down; see [`shown_error`].
    fn shown_error<'a>(&self, text: &'a [u8], what: Option<(Measured<'_>, &Analysis)>) -> Cow<'a, [u8]> {
        match what {
            Some((statement, _)) => shown_error(text, statement.text(), self.wants.lex),
            None if self.at.handle.row.error_may_carry_password() => Cow::Owned(sql::without_quoted(text)),
            None => Cow::Borrowed(text),
        }
    }

    fn count_server_error(&self, server: &ServerShared, code: u16, text: &[u8], what: Option<(Measured<'_>, &Analysis)>) {
        let text = &*self.shown_error(text, what);
        if self.at.worker.meter.rules().logs_errors {
            tracing::warn!("error on {}: {code}: {}; {}", server.key, String::from_utf8_lossy(text), self.described(what));
        }
        let schema = self.wants.state.schema.as_deref().unwrap_or_default();
        let key = error_key(&server.key, &self.at.user.name, schema, code);
        self.at.worker.meter.count_error(key, self.client.ip(), text, self.at.worker.clock.now_ms());
    }

    /// Counts an error that no server gave.
    fn count_own_error(&self, code: u16, text: &[u8], what: Option<(Measured<'_>, &Analysis)>) {
        let (hostgroup, text) = (self.at.hostgroup(), &*self.shown_error(text, what));
        if self.at.worker.meter.rules().logs_errors {
            let text = String::from_utf8_lossy(text);
            tracing::warn!("error of the proxy in hostgroup {hostgroup}: {code}: {text}; {}", self.described(what));
        }
        let schema = self.wants.state.schema.as_deref().unwrap_or_default();
        let key =
            ErrorKey { hostgroup: hostgroup.0, host: "".into(), port: 0, user: self.at.user.name.clone(), schema: schema.into(), code };
        self.at.worker.meter.count_error(key, self.client.ip(), text, self.at.worker.clock.now_ms());
    }

    /// A session as the program's log names it, and its statement's digest without values.
    fn described(&self, what: Option<(Measured<'_>, &Analysis)>) -> String {
        let schema = self.wants.state.schema.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let client = self.client.peer.map_or_else(|| "unix socket".to_owned(), |peer| peer.to_string());
        let mut described = format!("session {}, user '{}' from {client}, schema '{schema}'", self.at.handle.id, self.at.user.name);
        if let Some((statement, analysis)) = what {
            let digest = self.at.worker.meter.digest(analysis, statement.text(), self.wants.lex);
            described += &format!(", digest {}: {}", shown(digest.hash), String::from_utf8_lossy(&digest.text));
        }
        if let Some(trace_id) = self.hand.trace_id() {
            described += &format!(", trace {}", traces::shown(&trace_id));
        }
        described
    }

    /// Gives the statement to the query log, if that is on and wants it.
    fn log(&self, statement: Measured<'_>, analysis: &Analysis, result: Option<Result<&ReplyFacts, &Fault>>, sums: Sums) {
        let logs = &self.at.worker.shared.logs;
        let is_slow = logs.wants_slow(sums.sum_us);
        let is_wanted = logs.wants_queries() && self.hand.directions.log.unwrap_or(self.at.worker.meter.rules().logs_by_default);
        if !is_slow && !is_wanted {
            return;
        }
        let reply = result.and_then(Result::ok);
        let error = match result {
            Some(result) => error_of(result).map(|(code, text)| (code, text.into())),
            None => self.at.handle.take_own_error(),
        };
        let event = QueryEvent {
            thread_id: self.at.handle.id,
            command: statement.logged(),
            user: self.at.user.name.clone(),
            schema: self.wants.state.schema.clone(),
            client: self.client.peer,
            hostgroup: result.and(Some(self.at.hostgroup())),
            server: result.and_then(|_| self.at.server()).map(|server| server.key.clone()),
            ended_us: crate::workers::clock::unix_us(),
            duration_us: sums.sum_us,
            rows_affected: reply.filter(|r| r.error.is_none() && (r.rows.is_none() || r.all_affected > 0)).map(|r| r.all_affected),
            last_insert_id: reply.map_or(0, |r| r.last_insert_id),
            rows_sent: sums.rows_sent,
            digest: self.at.worker.meter.digest(analysis, statement.text(), self.wants.lex).hash,
            query: statement.text().into(),
            lex: self.wants.lex,
            hides_literals: self.at.worker.snapshot().vars.eventslog_hide_literals,
            error,
            trace_id: self.hand.trace_id(),
        };
        if is_slow {
            logs.slow.write(event.clone());
        }
        if is_wanted {
            logs.write_query(event);
        }
    }

    /// A PREPARE of this text was refused, or failed: there is no statement. None: by the proxy.
    pub(super) fn preparation_refused(&self, text: &[u8], analysis: &Analysis, fault: Option<&Fault>) {
        let time_us = self.at.worker.shared.clock.now_us().saturating_sub(self.hand.began_us);
        let statement = Measured::Preparation(0, text);
        match fault {
            Some(fault) => self.count_fault(Err(fault), Some((statement, analysis))),
            None => self.count_answer(statement, analysis),
        }
        self.log(statement, analysis, fault.map(Err), Sums::one(time_us, 0, 0, 0));
    }

    /// The client is told of a fault.
    pub(super) fn fault_reported(&self, fault: &Fault) {
        if !self.at.handle.error_is_counted.get() {
            self.count_fault(Err(fault), None);
        }
    }
}

impl Frontend {
    /// The client is logged in.
    pub(super) fn note_login(&self, at: &Backends, wants: &Wants) {
        at.handle.row.is_tls.set(self.link.stream().is_tls());
        at.handle.row.passes_through.set(at.user.fast_forward);
        at.publish_session(self, wants);
        at.worker.shared.logs.audit(AuditEvent::ConnectOk, &at.handle, None);
    }
}

impl ServerDoor<'_> {
    /// Writes the warnings of the statement that just ran to the program's log. They are read for it also where a pin keeps the
    /// backend, and are the session's from then on.
    pub(super) async fn log_warnings(&mut self, analysis: &Analysis) {
        if self.facts.warnings_read().is_none() {
            // The next statement finds a connection that fails closed.
            let _ = self.read(Unread { warnings: true, ..Unread::default() }).await;
        }
        let Some(diagnostics) = self.facts.warnings_read() else { return };
        let digest = shown(analysis.digest);
        let server = self.at.server().map(|server| server.key.to_string()).unwrap_or_default();
        let is_secret = self.at.handle.row.error_may_carry_password();
        for warning in diagnostics.lines() {
            let warning = if is_secret { String::from_utf8_lossy(&sql::without_quoted(warning.as_bytes())).into_owned() } else { warning };
            tracing::warn!(
                "warning on {server}: {warning}; session {}, user '{}', statement {digest}",
                self.at.handle.id,
                self.at.user.name
            );
        }
    }
}

impl Backends {
    /// Bytes that passed on the held connection are the server's.
    pub(super) fn note_traffic(&mut self) {
        if let Some(backend) = self.backend.as_mut() {
            let traffic = backend.link.take_traffic();
            if self.pins.set().intersects(STREAMS) {
                self.handle.count_replicated(traffic.1);
            }
            self.worker.meter.count_traffic((backend.core.server.key.hostgroup, backend.core.server.index), traffic);
        }
    }

    /// Where the session's statements go now.
    pub(super) fn hostgroup(&self) -> HostgroupId {
        self.backend.as_ref().map_or(self.pool.shared.id, |b| b.core.lane.hostgroup)
    }

    /// The server that has, or had, the statement.
    pub(super) fn server(&self) -> Option<Arc<ServerShared>> {
        if let Some(backend) = &self.backend {
            return Some(Arc::clone(&backend.core.server));
        }
        let (hostgroup, index) = self.handle.row.held.get()?.server;
        self.worker.pool(hostgroup).servers().get(index).cloned()
    }

    /// Shows others the session's pins, schema and connection.
    pub(super) fn publish_session(&self, client: &Frontend, wants: &Wants) {
        let handle = &self.handle;
        let new = self.all_pins().without(handle.all_pins());
        if !new.is_empty() {
            self.worker.meter.pins_began(new);
        }
        handle.publish_pins(&self.pins);
        Places::publish(self.places.as_deref(), &self.handle);
        handle.row.held.set(self.backend.as_ref().map(Backend::shown));
        handle.row.status.set(client.status.bits());
        handle.row.set_schema(wants.state.schema.as_ref());
    }
}

/// The error that a statement ended with: its number and text.
pub(super) fn error_of<'a>(result: Result<&'a ReplyFacts, &'a Fault>) -> Option<(u16, &'a [u8])> {
    match result {
        Ok(reply) => reply.error.map(|code| (code, &*reply.message)),
        Err(Fault::Error { code, text, .. } | Fault::Refused { code, text, .. }) => Some((*code, text)),
        Err(Fault::Lost { text, .. }) | Err(Fault::End(End::BackendLost(text))) => Some((SERVER_LOST, text.as_bytes())),
        Err(Fault::End(_)) => None,
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

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
