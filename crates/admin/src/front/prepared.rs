//! Prepared statements: their text is kept, and executed with the parameters written into it as SQLite's literals.
//!
//! One [`Statements`] a connection, bounded in number and in long data.

use std::collections::HashMap;

use wire::codec::Reader;
use wire::prepared::ExecuteParams;
use wire::{Capabilities, WireError};

use super::literal::{self, ParamType};
use super::split;
use wire::codes;

/// Most prepared statements of a connection.
const MAX_STATEMENTS: usize = 1_024;
/// Most bytes of long data that a statement keeps.
const MAX_LONG_DATA: usize = 16 << 20;

/// Why a statement cannot be prepared or executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// There are too many already.
    TooMany,
    /// It has more parameters than the protocol can number.
    TooManyParams,
    /// No statement has this id.
    Unknown,
    /// Long data beyond the limit was sent.
    TooLong,
    Malformed(WireError),
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}

impl Fault {
    /// MySQL's number, SQLSTATE and text.
    pub(crate) fn describe(self) -> (u16, &'static str, String) {
        match self {
            Self::TooMany => (
                codes::MAX_PREPARED_STMT_COUNT_REACHED,
                "42000",
                format!("Can't create more than {MAX_STATEMENTS} prepared statements on this connection"),
            ),
            Self::TooManyParams => (codes::PS_MANY_PARAM, "HY000", "Prepared statement contains too many placeholders".to_owned()),
            Self::Unknown => (codes::UNKNOWN_STMT_HANDLER, "HY000", "Unknown prepared statement handler".to_owned()),
            Self::TooLong => (codes::NET_PACKET_TOO_LARGE, "08S01", format!("Long data beyond {MAX_LONG_DATA} bytes")),
            Self::Malformed(error) => (codes::MALFORMED_PACKET, "HY000", format!("Malformed communication packet: {error}")),
        }
    }
}

#[derive(Debug, Default)]
struct Statement {
    sql: Vec<u8>,
    /// The offsets of its `?` in the text.
    params: Vec<usize>,
    /// As last sent.
    types: Vec<ParamType>,
    /// Sent ahead, by parameter.
    long_data: HashMap<u16, Vec<u8>>,
    /// Bytes of `long_data`; stays above the limit when it was passed.
    long_bytes: usize,
}

/// A connection's prepared statements.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    by_id: HashMap<u32, Statement>,
    last_id: u32,
}

impl Statements {
    /// Keeps a text; its id and number of parameters.
    pub(crate) fn prepare(&mut self, sql: &[u8]) -> Result<(u32, u16), Fault> {
        if self.by_id.len() >= MAX_STATEMENTS {
            return Err(Fault::TooMany);
        }
        let params = split::placeholders(sql);
        let count = u16::try_from(params.len()).map_err(|_| Fault::TooManyParams)?;
        self.last_id += 1;
        self.by_id.insert(self.last_id, Statement { sql: sql.to_vec(), params, ..Statement::default() });
        Ok((self.last_id, count))
    }

    /// The SQL that an execute asks for.
    pub(crate) fn execute(&mut self, payload: &[u8], caps: Capabilities) -> Result<Vec<u8>, Fault> {
        let id = wire::prepared::stmt_id(payload)?;
        let id = if id == wire::prepared::LAST_PREPARED { self.last_id } else { id };
        let statement = self.by_id.get_mut(&id).ok_or(Fault::Unknown)?;
        let result = statement.fill_in(payload, caps);
        statement.forget_long_data();
        result
    }

    /// Takes a piece of a parameter. It has no answer: a fault shows when the statement is executed.
    pub(crate) fn long_data(&mut self, payload: &[u8]) {
        let mut reader = Reader::new(payload.get(1..).unwrap_or_default());
        let (Ok(id), Ok(param)) = (reader.u32(), reader.u16()) else { return };
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        let piece = reader.rest();
        statement.long_bytes = statement.long_bytes.saturating_add(piece.len());
        if statement.long_bytes <= MAX_LONG_DATA {
            statement.long_data.entry(param).or_default().extend_from_slice(piece);
        }
    }

    /// Forgets a statement's long data.
    pub(crate) fn reset(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let statement = self.by_id.get_mut(&wire::prepared::stmt_id(payload)?).ok_or(Fault::Unknown)?;
        statement.forget_long_data();
        Ok(())
    }

    /// Forgets a statement.
    pub(crate) fn close(&mut self, payload: &[u8]) {
        if let Ok(id) = wire::prepared::stmt_id(payload) {
            self.by_id.remove(&id);
        }
    }
}

impl Statement {
    fn forget_long_data(&mut self) {
        self.long_data.clear();
        self.long_bytes = 0;
    }

    fn fill_in(&mut self, payload: &[u8], caps: Capabilities) -> Result<Vec<u8>, Fault> {
        if self.long_bytes > MAX_LONG_DATA {
            return Err(Fault::TooLong);
        }
        let count = u16::try_from(self.params.len()).map_err(|_| Fault::TooManyParams)?;
        let Some(places) = ExecuteParams::parse(payload, count, caps)? else { return Ok(self.sql.clone()) };
        if places.new_types {
            let mut reader = Reader::new(&payload[places.types]);
            self.types =
                (0..places.count).map(|_| Ok(ParamType { code: reader.u8()?, flags: reader.u8()? })).collect::<Result<_, WireError>>()?;
        }
        let (nulls, mut values) = (&payload[places.null_bitmap], Reader::new(&payload[places.values]));
        let mut literals = Vec::with_capacity(self.params.len());
        for index in 0..count {
            let is_null = nulls.get(usize::from(index / 8)).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
            let given = self.types.get(usize::from(index)).ok_or(WireError::Malformed("parameters without types"))?;
            literals.push(match self.long_data.get(&index) {
                Some(bytes) => literal::text(bytes),
                None if is_null => literal::NULL.to_vec(),
                None => literal::read(*given, &mut values)?,
            });
        }
        Ok(self.with(&literals))
    }

    fn with(&self, literals: &[Vec<u8>]) -> Vec<u8> {
        let (mut sql, mut done) = (Vec::with_capacity(self.sql.len()), 0);
        for (at, literal) in self.params.iter().zip(literals) {
            sql.extend_from_slice(&self.sql[done..*at]);
            let next = self.sql.get(at + 1);
            put_apart(&mut sql, literal, next.copied());
            done = at + 1;
        }
        sql.extend_from_slice(&self.sql[done..]);
        sql
    }
}

/// Appends a literal, with a blank if it would join its neighbour: `-?` with -1 must not begin a comment. `'a'?` with a text must not
/// continue the first text.
fn put_apart(sql: &mut Vec<u8>, literal: &[u8], next: Option<u8>) {
    let joins = |byte: u8| !(byte.is_ascii_whitespace() || matches!(byte, b'(' | b')' | b',' | b'=' | b';'));
    if sql.last().copied().is_some_and(joins) {
        sql.push(b' ');
    }
    sql.extend_from_slice(literal);
    if next.is_some_and(joins) {
        sql.push(b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statement with one LONG parameter.
    fn with_long(sql: &str, value: i32) -> String {
        let mut statements = Statements::default();
        let (id, _) = statements.prepare(sql.as_bytes()).unwrap();
        let payload = [&[0x17][..], &id.to_le_bytes(), &[0, 1, 0, 0, 0, 0, 1, 3, 0], &value.to_le_bytes()].concat();
        String::from_utf8(statements.execute(&payload, Capabilities::PROTOCOL_41).unwrap()).unwrap()
    }

    #[test]
    fn literals_do_not_join_their_neighbours() {
        for (sql, filled) in [
            ("SELECT a FROM t WHERE b=? AND c", "SELECT a FROM t WHERE b=-1 AND c"),
            ("SELECT 5 -?, 2", "SELECT 5 - -1, 2"),
            ("SELECT f(?)", "SELECT f(-1)"),
            ("SELECT 'a'?'b'", "SELECT 'a' -1 'b'"),
        ] {
            assert_eq!(with_long(sql, -1), filled);
        }
    }
}
