//! The steps of a script: commands as data, so that they can be printed, replayed and left out.

use std::fmt;

use wire::Capabilities;

use crate::client::{ConnectOptions, Param};

/// How a session logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Wanted capabilities.
    pub capabilities: Capabilities,
    /// Collation id of the handshake.
    pub charset: u8,
    /// Schema of the session.
    pub schema: String,
    /// Whether the schema is named at login, else nothing is.
    pub with_schema: bool,
}

impl Login {
    /// The same towards the address and user of `base`.
    pub fn options(&self, base: &ConnectOptions) -> ConnectOptions {
        let mut options = base.clone().capabilities(self.capabilities).charset(self.charset);
        options.database = self.with_schema.then(|| self.schema.clone());
        options
    }
}

/// One command of a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// COM_QUERY.
    Query(String),
    /// COM_STMT_PREPARE, kept under a number of the script's own.
    Prepare(u8, String),
    /// COM_STMT_EXECUTE.
    Execute(u8, Vec<Param>),
    /// COM_STMT_EXECUTE with a cursor, then fetches of this many rows until the end.
    Cursor(u8, Vec<Param>, u32),
    /// COM_STMT_SEND_LONG_DATA to a parameter.
    LongData(u8, u16, String),
    /// COM_STMT_RESET.
    ResetStatement(u8),
    /// COM_STMT_CLOSE.
    CloseStatement(u8),
    /// COM_INIT_DB.
    InitDb(String),
    /// COM_PING.
    Ping,
    /// COM_SET_OPTION.
    SetOption(u16),
    /// COM_FIELD_LIST of a table.
    FieldList(String),
    /// COM_RESET_CONNECTION.
    ResetConnection,
    /// COM_CHANGE_USER to the same user.
    ChangeUser(Login),
}

impl Step {
    /// The prepared statement that it uses.
    pub fn slot(&self) -> Option<u8> {
        match self {
            Step::Execute(slot, _) | Step::Cursor(slot, ..) | Step::LongData(slot, ..) => Some(*slot),
            Step::ResetStatement(slot) | Step::CloseStatement(slot) => Some(*slot),
            _ => None,
        }
    }
}

/// Steps that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Whether the session may need to keep its backend between the steps. It needs none when the block is over.
    pub pins: bool,
    /// In order.
    pub steps: Vec<Step>,
}

/// One session's script.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The login before the first block.
    pub login: Login,
    /// In order.
    pub blocks: Vec<Block>,
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = if self.with_schema { self.schema.as_str() } else { "no schema" };
        write!(f, "{schema}, collation {}, capabilities {:#x}", self.charset, self.capabilities.bits())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Query(sql) => write!(f, "{sql}"),
            Step::Prepare(slot, sql) => write!(f, "<prepare {slot}> {sql}"),
            Step::Execute(slot, params) => write!(f, "<execute {slot}> {params:?}"),
            Step::Cursor(slot, params, rows) => write!(f, "<execute {slot} with cursor, {rows} rows a fetch> {params:?}"),
            Step::LongData(slot, param, data) => write!(f, "<long data {slot}.{param}> {data:?}"),
            Step::ResetStatement(slot) => write!(f, "<reset {slot}>"),
            Step::CloseStatement(slot) => write!(f, "<close {slot}>"),
            Step::InitDb(schema) => write!(f, "<init db> {schema}"),
            Step::Ping => write!(f, "<ping>"),
            Step::SetOption(option) => write!(f, "<set option> {option}"),
            Step::FieldList(table) => write!(f, "<field list> {table}"),
            Step::ResetConnection => write!(f, "<reset connection>"),
            Step::ChangeUser(login) => write!(f, "<change user> {login}"),
        }
    }
}
