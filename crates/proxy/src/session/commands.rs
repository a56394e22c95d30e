//! One command: which file serves it, and the short ones themselves.

use super::Session;
use super::command::Incoming;
use super::command_sql::{self, sql_of};
use super::door::door;
use super::end::End;
use super::execute::phase_of;
use super::fault::Fault;
use super::pipeline::{Form, Statement};
use super::plan::Plan;
use crate::backends::cleaning::{self, outlives_reset};
use crate::logs::audit::AuditEvent;
use crate::workers::mailbox::KillKind;
use session_state::class::Class;
use session_state::pins::PinReason;
use sql::{Analysis, Facts, Kind};
use wire::codes;
use wire::command::Command;
use wire::flags::Capabilities;
use wire::prepared::{BulkHeader, stmt_id};
use wire::reframe::ReplyFacts;
use wire::reply::ReplyKind;

impl Session {
    /// Serves one command.
    pub(super) async fn serve_command(&mut self, command: Incoming) -> Result<(), End> {
        // Of the command before: this one is in the input.
        self.client.streamed_input = false;
        self.command_begins(command);
        self.beside_begins(command);
        self.client.is_half_told = false;
        let result = match Command::from_u8(command.byte) {
            Some(kind) if self.client.is_long_text(kind, command) => Box::pin(self.serve_long_text(kind, command)).await,
            Some(kind @ (Command::Query | Command::StmtExecute)) => match self.statement(kind, command) {
                Some(mut statement) => {
                    let result = self.serve_statement(&mut statement).await;
                    self.beside_ran(&statement);
                    result
                }
                None => Box::pin(self.serve_odd(kind, command)).await,
            },
            Some(Command::Quit) => Err(End::Quit),
            Some(other) => {
                let result = Box::pin(self.run_rare(other, command)).await;
                self.beside_served(other);
                result
            }
            None => self.client.send_error(&mut self.at, codes::UNKNOWN_COM, "08S01", "Unknown command").await,
        };
        if !self.client.streamed_input {
            self.client.command_done(&self.at, command);
        } else {
            self.client.joined = Vec::new();
            if self.client.input.is_empty() {
                self.client.input.release(&self.worker.buffers);
            }
        }
        self.command_ended();
        if let Some(beside) = self.beside.as_mut() {
            beside.command_ended(&self.worker).await;
        }
        result
    }

    /// Serves a text of which the reading alone takes long.
    async fn serve_long_text(&mut self, kind: Command, command: Incoming) -> Result<(), End> {
        match self.client.read_long_text(&self.at, &mut self.hand, &self.wants, command).await {
            Some(mut statement) => {
                let result = self.serve_statement(&mut statement).await;
                self.beside_ran(&statement);
                result
            }
            None => self.serve_odd(kind, command).await,
        }
    }

    /// The statement that a command is; None for one that needs a closer look.
    fn statement(&mut self, kind: Command, command: Incoming) -> Option<Statement> {
        if kind == Command::Query {
            self.client.read_text(&self.at, &mut self.hand, &self.wants, command)
        } else {
            self.statements.execution_at_hand(&self.at, &self.client, command)
        }
    }

    /// Serves a statement that is malformed, or unknown, or has a cursor that ends first.
    async fn serve_odd(&mut self, kind: Command, command: Incoming) -> Result<(), End> {
        if kind == Command::Query { self.client.malformed(&mut self.at).await } else { self.execute_odd(command).await }
    }

    /// Commands that are not on the hot path.
    async fn run_rare(&mut self, kind: Command, command: Incoming) -> Result<(), End> {
        self.hand.direct_home(&mut self.at);
        if !self.may_run(kind, command).await? {
            return Ok(());
        }
        match kind {
            Command::Ping if self.at.backend.is_some() => self.send_on(command, ReplyKind::Simple).await,
            Command::Ping => self.ping().await,
            Command::InitDb => self.serve_init_db(command).await,
            Command::StmtPrepare => self.prepare(command).await,
            Command::StmtClose => self.close_statement(command).await,
            Command::StmtReset => self.reset_statement(command).await,
            Command::StmtFetch => self.fetch_rows(command).await,
            Command::StmtSendLongData => self.long_data(command).await,
            Command::StmtBulkExecute => self.bulk_execute(command).await,
            Command::SetOption => self.set_option(command).await,
            Command::ResetConnection => self.reset_connection().await,
            Command::ChangeUser => self.change_user(command).await,
            Command::ProcessKill => self.process_kill(command).await,
            Command::Statistics => self.send_on(command, ReplyKind::Text).await,
            Command::FieldList => self.send_on(command, ReplyKind::FieldList).await,
            Command::ProcessInfo => self.send_on(command, ReplyKind::Results).await,
            Command::DropDb => {
                let result = self.send_on(command, ReplyKind::Simple).await;
                self.worker.shared.anything_was_defined();
                result
            }
            Command::Refresh => {
                let renews_rights = self.client.body(command).first().is_some_and(|bits| bits & command_sql::PRIVILEGES != 0);
                let result = self.send_on(command, ReplyKind::Simple).await;
                // Not before: what is opened or remembered while it waits for its server has the old rights.
                if renews_rights {
                    self.worker.rights_changed();
                }
                result
            }
            Command::CreateDb | Command::Debug | Command::Shutdown => self.send_on(command, ReplyKind::Simple).await,
            Command::RegisterSlave | Command::BinlogDump | Command::BinlogDumpGtid => self.replicate(command).await,
            _ => self.client.send_error(&mut self.at, codes::UNKNOWN_COM, "08S01", "Unknown command").await,
        }
    }

    /// Asks settings, rules and the firewall whether a command may run, and answers the client if it may not.
    async fn may_run(&mut self, kind: Command, command: Incoming) -> Result<bool, End> {
        let needs = match kind {
            Command::Shutdown | Command::Debug if !self.worker.snapshot().vars.forward_administrative_commands => {
                "mysql-forward_administrative_commands=true"
            }
            Command::RegisterSlave | Command::BinlogDump | Command::BinlogDumpGtid if !self.at.user.attributes.replication => {
                "'{\"replication\": true}' in mysql_users.attributes"
            }
            _ => {
                let Some(sql) = sql_of(kind, self.client.body(command)) else { return Ok(true) };
                return self.direct_command(&sql).await;
            }
        };
        let text = format!("Access denied: the proxy forwards {} only with {needs}", kind.name());
        self.client.send_error(&mut self.at, codes::SPECIFIC_ACCESS_DENIED, "42000", &text).await?;
        Ok(false)
    }

    /// COM_PING without a backend: the session is there. (A pinned backend is asked, for its loss is the session's.)
    async fn ping(&mut self) -> Result<(), End> {
        self.facts.answered_here(0);
        self.client.send_ok(&mut self.at).await
    }

    /// A command that goes to any backend as it is.
    async fn send_on(&mut self, command: Incoming, reply: ReplyKind) -> Result<(), End> {
        let analysis = Analysis::of_command(command.byte);
        let plan = Plan { reply, ..Plan::new(analysis) };
        let mut reply = ReplyFacts::default();
        match self.run_plan(command, &plan, &mut reply).await {
            Ok(()) => {
                if plan.reply == ReplyKind::Text {
                    reply.status = None;
                }
                self.facts.leave_warnings(self.worker.shared.flavor());
                self.effects().note_status(&analysis, &reply);
                let row_count = self.facts.row_count();
                self.settle(&analysis, &reply, |_, _| false).await?;
                if plan.reply == ReplyKind::Text {
                    self.facts.answered_here(row_count);
                }
                Ok(())
            }
            Err(fault) => self.report(fault).await,
        }
    }

    /// COM_INIT_DB: the server decides whether the schema may be used.
    async fn serve_init_db(&mut self, command: Incoming) -> Result<(), End> {
        let schema = self.wants.in_utf8(self.worker.shared.info.get().as_deref(), self.client.collation, self.client.body(command));
        self.direct_for_schema(&schema).await;
        let analysis = Analysis { kind: Kind::Use, facts: Facts::NONE, digest: u64::from(command.byte) };
        let plan = Plan { reply: ReplyKind::Simple, ..Plan::new(analysis) };
        let mut reply = ReplyFacts::default();
        match self.run_plan(command, &plan, &mut reply).await {
            Ok(()) => {
                if reply.error.is_none() {
                    self.recovery.note_schema_command();
                    self.wants.enter_schema(&mut self.at, Some(reply.schema.take().map_or(schema, |told| (*told).into())));
                    // The log tells of the schema that was entered.
                    self.handle.row.set_schema(self.wants.state.schema.as_ref());
                    self.worker.shared.logs.audit(AuditEvent::InitDb, &self.handle, None);
                }
                self.facts.leave_warnings(self.worker.shared.flavor());
                self.effects().note_status(&analysis, &reply);
                self.settle(&analysis, &reply, |_, _| false).await
            }
            Err(fault) => self.report(fault).await,
        }
    }

    /// COM_SET_OPTION: multi statements on or off, for this session.
    async fn set_option(&mut self, command: Incoming) -> Result<(), End> {
        if self.client.is_short(&self.at, command, 2) {
            return self.client.malformed(&mut self.at).await;
        }
        let on = match self.client.body(command).first_chunk::<2>().map(|b| u16::from_le_bytes(*b)) {
            Some(0) => true,
            Some(1) => false,
            _ => return self.client.send_error(&mut self.at, codes::UNKNOWN_COM, "08S01", "Unknown command").await,
        };
        self.facts.answered_here(-1);
        if self.client.caps.contains(Capabilities::MULTI_STATEMENTS) == on {
            return self.client.send_eof(&mut self.at).await;
        }
        if let Some(places) = self.at.places.as_deref_mut() {
            let mut caps = self.client.caps;
            caps.set(Capabilities::MULTI_STATEMENTS, on);
            places.become_of(Class::of(caps), &self.worker).await;
        }
        if self.at.backend.is_some() {
            // The pinned backend follows; it changes its class with the session.
            let analysis = Analysis::of_command(command.byte);
            let plan = Plan { reply: ReplyKind::Simple, ..Plan::new(analysis) };
            if let Err(fault) = self.run_plan(command, &plan, &mut ReplyFacts::default()).await {
                return self.report(fault).await;
            }
            self.client.caps.set(Capabilities::MULTI_STATEMENTS, on);
            self.at.choose_lane(self.client.caps);
            if let Some(backend) = self.at.backend.as_mut() {
                backend.core.lane = self.at.lane.key.clone();
            }
            return Ok(());
        }
        self.client.caps.set(Capabilities::MULTI_STATEMENTS, on);
        self.at.choose_lane(self.client.caps);
        self.client.send_eof(&mut self.at).await
    }

    /// COM_RESET_CONNECTION: as after the login, but for the schema.
    async fn reset_connection(&mut self) -> Result<(), End> {
        let (pins, now) = (self.at.pins.set(), self.worker.clock.now_ms());
        if let Some(places) = self.at.places.take() {
            places.clean(&self.worker).await;
        }
        self.drop_session_state();
        // A role, which no server takes back with a reset, keeps its connection.
        let keeps_role = pins.contains(PinReason::Role) && !pins.contains(PinReason::Xa);
        if let Some(backend) = self.at.backend.take()
            && (keeps_role || !outlives_reset(&backend, pins))
            && let Some(backend) = cleaning::cleaned(&self.worker, &self.at.pool, backend, pins).await
        {
            if keeps_role {
                self.at.pins.begin(PinReason::Role, now, 0);
                self.at.backend = Some(backend);
            } else {
                self.at.pool.release_to(&self.worker, &self.at.lane, backend);
            }
        }
        self.client.forget_ignore_space(&mut self.at, &mut self.wants);
        self.client.send_ok(&mut self.at).await
    }

    /// COM_PROCESS_KILL, the binary form of KILL CONNECTION.
    async fn process_kill(&mut self, command: Incoming) -> Result<(), End> {
        let Some(id) = self.client.body(command).first_chunk::<4>().map(|b| u32::from_le_bytes(*b)) else {
            return self.client.malformed(&mut self.at).await;
        };
        let id = u64::from(id);
        if self.worker.shared.user_of(id).is_some() {
            return self.client.kill_session(&mut self.at, &mut self.facts, id, KillKind::Connection).await;
        }
        self.send_on(command, ReplyKind::Simple).await
    }

    /// Serves a COM_STMT_EXECUTE that `execution_at_hand` left: it is malformed, of an unknown statement, or of one with a
    /// cursor that ends first.
    pub(super) async fn execute_odd(&mut self, command: Incoming) -> Result<(), End> {
        let raw_id = stmt_id(self.client.payload(command)).unwrap_or(0);
        let Some(id) = self.statements.named_statement(&self.at, &self.client, command) else {
            if self.client.is_short(&self.at, command, 9) {
                return self.client.malformed(&mut self.at).await;
            }
            return self.report(Fault::unknown_statement(&self.worker, raw_id, "mysqld_stmt_execute")).await;
        };
        let phase = phase_of(self.client.payload(command));
        self.serve_execution(command, id, Form::Execution { id, phase }).await
    }

    /// Serves an execution or a bulk execution, after the end of the statement's cursor.
    pub(super) async fn serve_execution(&mut self, command: Incoming, id: u32, form: Form) -> Result<(), End> {
        if self.statements.has_cursor(id) {
            self.statements.end_cursor_ahead(&mut door!(self), id).await?;
        }
        let Some(analysis) = self.statements.get(id).map(|statement| statement.analysis) else { return Ok(()) };
        let mut statement = Statement { command, analysis, form };
        let result = self.serve_statement(&mut statement).await;
        self.beside_ran(&statement);
        result
    }

    /// COM_STMT_BULK_EXECUTE (MariaDB): many rows of parameters at once.
    pub(super) async fn bulk_execute(&mut self, command: Incoming) -> Result<(), End> {
        let raw_id = stmt_id(self.client.payload(command)).unwrap_or(0);
        let header = BulkHeader::parse(self.client.payload(command));
        let (Some(id), Ok(_)) = (self.statements.named_statement(&self.at, &self.client, command), header) else {
            return self.report(Fault::unknown_statement(&self.worker, raw_id, "mysqld_stmt_bulk_execute")).await;
        };
        self.serve_execution(command, id, Form::Bulk { id }).await
    }
}

#[cfg(test)]
#[path = "commands_tests.rs"]
mod tests;
