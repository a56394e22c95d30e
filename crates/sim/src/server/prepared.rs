//! Prepared statements on a model server.

use super::reply::definition;
use super::sql::{self, Expr, Statement};
use std::collections::BTreeMap;
use wire::flags::{Capabilities, StatusFlags};
use wire::message::put_eof;
use wire::packet::put_packet;
use wire::prepared::{ExecuteParams, PrepareOk};

/// A statement and the types last sent for its parameter.
struct Prepared {
    statement: Statement,
    types: Vec<u8>,
}

/// Prepared statements of one session.
#[derive(Default)]
pub(super) struct Statements {
    by_id: BTreeMap<u32, Prepared>,
    last: u32,
}

/// How many parameters a statement has, one at most, and how many columns.
fn shape(statement: &Statement) -> (u16, u16) {
    match statement {
        Statement::Insert { op: None, .. } => (1, 0),
        Statement::Select { list, op, .. } => {
            let has_parameter = *op == Some(None) || list.contains(&Expr::Parameter);
            (u16::from(has_parameter), u16::try_from(list.len()).unwrap_or(0))
        }
        _ => (0, 0),
    }
}

impl Statements {
    /// COM_STMT_PREPARE: the answer's packets, or an error's text.
    pub(super) fn prepare(&mut self, text: &str, caps: Capabilities, status: StatusFlags) -> Result<Vec<u8>, String> {
        let statement = sql::parse(text)?;
        self.last += 1;
        let (params, columns) = shape(&statement);
        self.by_id.insert(self.last, Prepared { statement, types: Vec::new() });
        let (mut out, mut seq, mut payload) = (Vec::new(), 1, Vec::new());
        PrepareOk { stmt_id: self.last, columns, params, warnings: 0, metadata: None }.write(&mut payload, caps);
        put_packet(&mut out, &mut seq, &payload);
        for count in [params, columns] {
            for _ in 0..count {
                put_packet(&mut out, &mut seq, &definition("?"));
            }
            if count > 0 && !caps.contains(Capabilities::DEPRECATE_EOF) {
                let mut payload = Vec::new();
                put_eof(&mut payload, 0, status);
                put_packet(&mut out, &mut seq, &payload);
            }
        }
        Ok(out)
    }

    /// COM_STMT_EXECUTE: the statement with its parameter in place; None when there is none of this id, or its parameter
    /// cannot be read.
    pub(super) fn bind(&mut self, payload: &[u8], caps: Capabilities) -> Option<Statement> {
        let id = wire::prepared::stmt_id(payload).ok()?;
        let prepared = self.by_id.get_mut(&id)?;
        let (params, _) = shape(&prepared.statement);
        let Some(places) = ExecuteParams::parse(payload, params, caps).ok()? else { return Some(prepared.statement.clone()) };
        if places.new_types {
            prepared.types = payload.get(places.types)?.to_vec();
        }
        // Model clients send BIGINT only.
        if prepared.types.first() != Some(&8) {
            return None;
        }
        let value = i64::from_le_bytes(*payload.get(places.values)?.first_chunk()?);
        let mut bound = prepared.statement.clone();
        match &mut bound {
            Statement::Insert { op, .. } => *op = Some(value),
            Statement::Select { list, op, .. } => match list.iter_mut().find(|expr| **expr == Expr::Parameter) {
                Some(parameter) => *parameter = Expr::Number(value),
                None => *op = Some(Some(value)),
            },
            _ => {}
        }
        Some(bound)
    }

    /// COM_STMT_CLOSE.
    pub(super) fn close(&mut self, payload: &[u8]) {
        if let Ok(id) = wire::prepared::stmt_id(payload) {
            self.by_id.remove(&id);
        }
    }

    /// COM_RESET_CONNECTION.
    pub(super) fn clear(&mut self) {
        self.by_id.clear();
    }
}
