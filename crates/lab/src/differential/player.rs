//! One session: a client, the prepared statements it holds, and the steps it is told to take.

use std::collections::{HashMap, HashSet};

use wire::Command;

use super::seen::{prepared_lines, put_set, reply_lines, status_line};
use super::step::{Login, Step};
use crate::client::{Client, ConnectOptions, Execution, Param, Prepared};
use crate::error::LabError;

/// A fetch loop ends here, whatever the server says.
const MOST_FETCHES: usize = 1000;

/// A logged-in client that takes steps.
#[derive(Debug)]
pub struct Player {
    client: Client,
    options: ConnectOptions,
    statements: HashMap<u8, Prepared>,
    /// Slots whose statement was refused: nothing more is done with them, as no application would.
    refused: HashSet<u8>,
    /// The connection is lost: what follows shows that much, at once.
    lost: bool,
}

impl Player {
    /// Logs in. Returns the player, and the lines of the login.
    pub fn login(base: &ConnectOptions, login: &Login) -> Result<(Player, Vec<String>), LabError> {
        let client = Client::connect(&login.options(base))?;
        // Whether the first OK packet reports the schema depends on the server: only later packets are compared.
        let lines = vec![format!("logged in, {} warnings", client.login_status().warnings)];
        Ok((Player { client, options: base.clone(), statements: HashMap::new(), refused: HashSet::new(), lost: false }, lines))
    }

    /// Takes a step. Returns the lines that it showed. A lost connection or a broken protocol is a line too: the other run must show the
    /// same.
    pub fn take(&mut self, step: &Step) -> Vec<String> {
        if self.lost {
            return vec!["broken: the connection was lost before".to_owned()];
        }
        if step.slot().is_some_and(|slot| self.refused.contains(&slot)) {
            return vec!["not prepared".to_owned()];
        }
        match self.try_take(step) {
            Ok(lines) => lines,
            Err(LabError::Server { code, sqlstate, message }) => vec![format!("error {code} ({sqlstate}) {message}")],
            Err(error) => {
                self.lost = true;
                vec![format!("broken: {error}")]
            }
        }
    }

    fn try_take(&mut self, step: &Step) -> Result<Vec<String>, LabError> {
        match step {
            Step::Query(sql) => self.client.query(sql).map(|reply| reply_lines(&reply)),
            Step::Prepare(slot, sql) => self.prepare(*slot, sql),
            Step::Execute(slot, params) => self.execute(*slot, params),
            Step::Cursor(slot, params, rows) => self.cursor(*slot, params, *rows),
            Step::LongData(slot, param, data) => {
                let statement = self.statement(*slot);
                self.client.send_long_data(&statement, *param, data.as_bytes())?;
                Ok(Vec::new())
            }
            Step::ResetStatement(slot) => self.command(Command::StmtReset, &self.statement(*slot).id.to_le_bytes()),
            Step::CloseStatement(slot) => {
                let statement = self.statement(*slot);
                self.client.close_statement(&statement)?;
                Ok(Vec::new())
            }
            Step::InitDb(schema) => self.command(Command::InitDb, schema.as_bytes()),
            Step::Ping => self.command(Command::Ping, b""),
            Step::SetOption(option) => self.command(Command::SetOption, &option.to_le_bytes()),
            Step::FieldList(table) => self.field_list(table),
            Step::ResetConnection => self.command(Command::ResetConnection, b""),
            Step::ChangeUser(login) => self.change_user(login),
        }
    }

    fn command(&mut self, command: Command, body: &[u8]) -> Result<Vec<String>, LabError> {
        self.client.command(command, body).map(|reply| reply_lines(&reply))
    }

    fn prepare(&mut self, slot: u8, sql: &str) -> Result<Vec<String>, LabError> {
        self.refused.insert(slot);
        self.statements.remove(&slot);
        let prepared = self.client.prepare(sql)?;
        let lines = prepared_lines(&prepared);
        self.refused.remove(&slot);
        self.statements.insert(slot, prepared);
        Ok(lines)
    }

    /// The statement in a slot; for an empty slot one that no server has.
    fn statement(&self, slot: u8) -> Prepared {
        let unknown = || Prepared { id: 0x7fff_0000, raw: Vec::new(), warnings: 0, params: Vec::new(), columns: Vec::new() };
        self.statements.get(&slot).cloned().unwrap_or_else(unknown)
    }

    fn execute(&mut self, slot: u8, params: &[Param]) -> Result<Vec<String>, LabError> {
        let statement = self.statement(slot);
        self.client.execute(&statement, params).map(|reply| reply_lines(&reply))
    }

    fn cursor(&mut self, slot: u8, params: &[Param], rows: u32) -> Result<Vec<String>, LabError> {
        let statement = self.statement(slot);
        let how = Execution { cursor: true, reuse_types: false };
        let opened = self.client.execute_with(&statement, params, how)?;
        let mut lines = reply_lines(&opened);
        let Ok(set) = opened.rows() else { return Ok(lines) };
        let open = |set: &crate::client::ResultSet| {
            set.end.as_ref().is_ok_and(|end| {
                end.status.contains(wire::StatusFlags::CURSOR_EXISTS) && !end.status.contains(wire::StatusFlags::LAST_ROW_SENT)
            })
        };
        let mut more = open(set);
        for _ in 0..MOST_FETCHES {
            if !more {
                break;
            }
            let part = self.client.fetch(&statement, &set.columns, rows)?;
            more = open(&part);
            put_set(&mut lines, &crate::client::ResultSet { columns: Vec::new(), ..part });
        }
        Ok(lines)
    }

    /// COM_FIELD_LIST: definitions, then an EOF (or OK) without a column count before them.
    fn field_list(&mut self, table: &str) -> Result<Vec<String>, LabError> {
        let mut body = table.as_bytes().to_vec();
        body.push(0);
        self.client.send_command(Command::FieldList, &body)?;
        let mut lines = Vec::new();
        loop {
            let packet = self.client.recv_packet()?;
            let last = matches!(packet.first(), Some(0xfe | 0xff));
            lines.push(format!("field {packet:02x?}"));
            if last {
                return Ok(lines);
            }
        }
    }

    fn change_user(&mut self, login: &Login) -> Result<Vec<String>, LabError> {
        self.statements.clear();
        let status = self.client.change_user(&login.options(&self.options))?;
        Ok(vec![status_line("changed user", &status)])
    }

    /// The client, for acts that are no step.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }
}
