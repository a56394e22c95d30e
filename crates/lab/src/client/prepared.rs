//! Prepared statements of the binary protocol.
//!
//! Source: COM_STMT_PREPARE, COM_STMT_EXECUTE, COM_STMT_FETCH and COM_QUERY (query attributes) in MySQL's protocol pages.

use wire::codec::{Reader, put_lenenc, put_lenenc_bytes, put_u16, put_u32};
use wire::message::ERR;
use wire::{Capabilities, Command};

use super::reply::{Column, Outcome, Reply, ResultSet, ServerError, Status};
use super::value::{Param, malformed, null_bitmap};
use super::{Client, Encoding};
use crate::error::LabError;

/// CURSOR_TYPE_READ_ONLY in COM_STMT_EXECUTE.
const CURSOR_READ_ONLY: u8 = 1;
/// PARAMETER_COUNT_AVAILABLE in COM_STMT_EXECUTE: query attributes may follow.
const PARAMETER_COUNT_AVAILABLE: u8 = 8;

/// The server's answer to a prepare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The server's id.
    pub id: u32,
    /// The first packet's payload.
    pub raw: Vec<u8>,
    /// Warnings of the preparation.
    pub warnings: u16,
    /// One definition a parameter.
    pub params: Vec<Column>,
    /// The result's columns, as far as known at this time.
    pub columns: Vec<Column>,
}

/// How to execute, beyond the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// Opens a read-only cursor: rows come by [`Client::fetch`].
    pub cursor: bool,
    /// Leaves the parameter types out, as a second execution may.
    pub reuse_types: bool,
}

impl Client {
    /// COM_STMT_PREPARE. The server's refusal is [`LabError::Server`].
    pub fn prepare(&mut self, sql: impl AsRef<[u8]>) -> Result<Prepared, LabError> {
        self.send_command(Command::StmtPrepare, sql.as_ref())?;
        self.recv_prepared()
    }

    /// Reads the reply to a COM_STMT_PREPARE that was sent with [`Client::send_command`].
    pub fn recv_prepared(&mut self) -> Result<Prepared, LabError> {
        let raw = self.recv_packet()?;
        if raw.first() == Some(&ERR) {
            return Err(ServerError::parse(&raw, self.capabilities)?.to_lab_error());
        }
        let head = Head::parse(&raw, self.capabilities).map_err(malformed)?;
        let (mut params, mut columns) = (Vec::new(), Vec::new());
        if head.described {
            params = self.recv_definitions(head.params)?;
            columns = self.recv_definitions(head.columns)?;
        }
        self.known.insert(head.id, columns.clone());
        Ok(Prepared { id: head.id, raw, warnings: head.warnings, params, columns })
    }

    fn recv_definitions(&mut self, count: u16) -> Result<Vec<Column>, LabError> {
        let definitions = self.recv_columns(usize::from(count))?;
        if count > 0 && !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            Status::parse(&self.recv_payload()?, self.capabilities)?;
        }
        Ok(definitions)
    }

    /// COM_STMT_EXECUTE with the whole result.
    pub fn execute(&mut self, statement: &Prepared, params: &[Param]) -> Result<Reply, LabError> {
        self.execute_with(statement, params, Execution::default())
    }

    /// COM_STMT_EXECUTE in the given manner.
    pub fn execute_with(&mut self, statement: &Prepared, params: &[Param], how: Execution) -> Result<Reply, LabError> {
        self.send_execute(statement.id, params, how)?;
        self.recv_reply(Encoding::Binary)
    }

    /// Sends COM_STMT_EXECUTE without reading the reply; read it with [`Client::recv_reply`].
    pub fn send_execute(&mut self, id: u32, params: &[Param], how: Execution) -> Result<(), LabError> {
        let attributes = self.capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
        let mut body = Vec::new();
        put_u32(&mut body, id);
        let cursor = if how.cursor { CURSOR_READ_ONLY } else { 0 };
        body.push(cursor | if attributes { PARAMETER_COUNT_AVAILABLE } else { 0 });
        put_u32(&mut body, 1);
        if attributes {
            put_lenenc(&mut body, params.len() as u64);
        }
        if !params.is_empty() {
            let named: Vec<(&str, &Param)> = params.iter().map(|param| ("", param)).collect();
            put_values(&mut body, &named, attributes, !how.reuse_types);
        }
        self.send_command(Command::StmtExecute, &body)
    }

    /// COM_STMT_SEND_LONG_DATA: appends to a parameter, which [`Param::Long`] then stands for. It has no reply.
    pub fn send_long_data(&mut self, statement: &Prepared, param: u16, data: &[u8]) -> Result<(), LabError> {
        let mut body = Vec::with_capacity(data.len() + 6);
        put_u32(&mut body, statement.id);
        put_u16(&mut body, param);
        body.extend_from_slice(data);
        self.send_command(Command::StmtSendLongData, &body)
    }

    /// COM_STMT_FETCH: the next `count` rows of an open cursor. `columns` are those of the execution's reply.
    pub fn fetch(&mut self, statement: &Prepared, columns: &[Column], count: u32) -> Result<ResultSet, LabError> {
        let mut body = Vec::new();
        put_u32(&mut body, statement.id);
        put_u32(&mut body, count);
        self.send_command(Command::StmtFetch, &body)?;
        self.expect_reply();
        let (rows, end) = self.recv_until_end(columns, Encoding::Binary)?;
        Ok(ResultSet { columns: columns.to_vec(), columns_end: None, rows, end })
    }

    /// COM_STMT_RESET: forgets long data and closes the cursor.
    pub fn reset_statement(&mut self, statement: &Prepared) -> Result<Outcome, LabError> {
        let reply = self.command(Command::StmtReset, &statement.id.to_le_bytes())?;
        reply.results.into_iter().next().ok_or_else(|| LabError::Protocol("empty reply".to_owned()))
    }

    /// COM_STMT_CLOSE. It has no reply.
    pub fn close_statement(&mut self, statement: &Prepared) -> Result<(), LabError> {
        self.known.remove(&statement.id);
        self.send_command(Command::StmtClose, &statement.id.to_le_bytes())
    }
}

/// COM_STMT_PREPARE_OK.
struct Head {
    id: u32,
    columns: u16,
    params: u16,
    warnings: u16,
    described: bool,
}

impl Head {
    fn parse(raw: &[u8], caps: Capabilities) -> wire::error::Result<Head> {
        let mut reader = Reader::new(raw);
        reader.u8()?;
        let (id, columns, params) = (reader.u32()?, reader.u16()?, reader.u16()?);
        reader.u8()?;
        let warnings = reader.u16()?;
        let optional = caps.contains(Capabilities::OPTIONAL_RESULTSET_METADATA) && !reader.is_empty();
        let described = if optional { reader.u8()? != 0 } else { true };
        Ok(Head { id, columns, params, warnings, described })
    }
}

/// The attributes that come before the text of a COM_QUERY.
pub(super) fn put_attributes(out: &mut Vec<u8>, attributes: &[(&str, Param)]) {
    put_lenenc(out, attributes.len() as u64);
    put_lenenc(out, 1);
    if !attributes.is_empty() {
        let named: Vec<(&str, &Param)> = attributes.iter().map(|(name, param)| (*name, param)).collect();
        put_values(out, &named, true, true);
    }
}

/// NULL bitmap, types (with names) and values.
fn put_values(out: &mut Vec<u8>, params: &[(&str, &Param)], names: bool, types: bool) {
    let values: Vec<&Param> = params.iter().map(|(_, param)| *param).collect();
    out.extend_from_slice(&null_bitmap(&values));
    out.push(u8::from(types));
    if types {
        for (name, param) in params {
            out.extend_from_slice(&param.type_code());
            if names {
                put_lenenc_bytes(out, name.as_bytes());
            }
        }
    }
    for param in values {
        param.put(out);
    }
}
