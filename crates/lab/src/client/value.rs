//! Values of the text and the binary protocol: parameters out, columns in.
//!
//! Source: "Binary Protocol Resultset" and "COM_STMT_EXECUTE" in MySQL's protocol pages.

use wire::codec::{Reader, put_lenenc_bytes};

use super::reply::Column;
use crate::error::LabError;

/// Column and parameter types, as far as their binary form differs.
mod kind {
    pub(super) const TINY: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const DOUBLE: u8 = 5;
    pub(super) const NULL: u8 = 6;
    pub(super) const TIMESTAMP: u8 = 7;
    pub(super) const LONGLONG: u8 = 8;
    pub(super) const INT24: u8 = 9;
    pub(super) const DATE: u8 = 10;
    pub(super) const TIME: u8 = 11;
    pub(super) const DATETIME: u8 = 12;
    pub(super) const YEAR: u8 = 13;
    pub(super) const VAR_STRING: u8 = 253;
    /// UNSIGNED_FLAG of a column definition.
    pub(super) const UNSIGNED: u16 = 32;
}

/// A parameter of a prepared statement, or a query attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// NULL.
    Null,
    /// BIGINT.
    Int(i64),
    /// BIGINT UNSIGNED.
    UInt(u64),
    /// DOUBLE.
    Double(f64),
    /// A string in the connection's character set.
    Text(String),
    /// Nothing here: the value was sent with COM_STMT_SEND_LONG_DATA.
    Long,
}

impl Param {
    /// Type byte and flag byte (0x80: unsigned).
    pub(super) fn type_code(&self) -> [u8; 2] {
        match self {
            Param::Null => [kind::NULL, 0],
            Param::Int(_) => [kind::LONGLONG, 0],
            Param::UInt(_) => [kind::LONGLONG, 0x80],
            Param::Double(_) => [kind::DOUBLE, 0],
            Param::Text(_) | Param::Long => [kind::VAR_STRING, 0],
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Param::Null | Param::Long => {}
            Param::Int(v) => out.extend_from_slice(&v.to_le_bytes()),
            Param::UInt(v) => out.extend_from_slice(&v.to_le_bytes()),
            Param::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
            Param::Text(v) => put_lenenc_bytes(out, v.as_bytes()),
        }
    }
}

/// The NULL bitmap of a parameter list.
pub(super) fn null_bitmap(params: &[&Param]) -> Vec<u8> {
    let mut bits = vec![0_u8; params.len().div_ceil(8)];
    for (i, param) in params.iter().enumerate() {
        if **param == Param::Null {
            bits[i / 8] |= 1 << (i % 8);
        }
    }
    bits
}

/// One field of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// All of the text protocol; strings, decimals and the like of the binary protocol.
    Bytes(Vec<u8>),
    /// Signed integers of the binary protocol.
    Int(i64),
    /// Unsigned integers of the binary protocol.
    UInt(u64),
    /// FLOAT of the binary protocol.
    Float(f32),
    /// DOUBLE of the binary protocol.
    Double(f64),
    /// DATE, DATETIME or TIMESTAMP of the binary protocol: its bytes without the length.
    Date(Vec<u8>),
    /// TIME of the binary protocol: its bytes without the length.
    Time(Vec<u8>),
}

impl Value {
    /// As text, where that is obvious; dates and times of the binary protocol in hexadecimal. `None` is NULL.
    pub fn text(&self) -> Option<String> {
        match self {
            Value::Null => None,
            Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Value::Int(v) => Some(v.to_string()),
            Value::UInt(v) => Some(v.to_string()),
            Value::Float(v) => Some(v.to_string()),
            Value::Double(v) => Some(v.to_string()),
            Value::Date(bytes) | Value::Time(bytes) => Some(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        }
    }
}

/// Decodes a text row of `count` fields.
pub(super) fn text_row(payload: &[u8], count: usize) -> Result<Vec<Value>, LabError> {
    let mut reader = Reader::new(payload);
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        if reader.peek() == Some(0xfb) {
            reader.u8().map_err(malformed)?;
            values.push(Value::Null);
        } else {
            values.push(Value::Bytes(reader.lenenc_bytes().map_err(malformed)?.to_vec()));
        }
    }
    finish(&reader, values)
}

/// Decodes a binary row.
pub(super) fn binary_row(payload: &[u8], columns: &[Column]) -> Result<Vec<Value>, LabError> {
    let mut reader = Reader::new(payload);
    reader.u8().map_err(malformed)?;
    // Two bits of the bitmap are reserved in rows.
    let nulls = reader.bytes((columns.len() + 9) / 8).map_err(malformed)?.to_vec();
    let mut values = Vec::with_capacity(columns.len());
    for (i, column) in columns.iter().enumerate() {
        let bit = i + 2;
        let null = nulls[bit / 8] & (1 << (bit % 8)) != 0;
        values.push(if null { Value::Null } else { binary_value(&mut reader, column).map_err(malformed)? });
    }
    finish(&reader, values)
}

fn binary_value(reader: &mut Reader<'_>, column: &Column) -> wire::error::Result<Value> {
    let unsigned = column.flags & kind::UNSIGNED != 0;
    Ok(match column.kind {
        kind::TINY => {
            let [byte] = reader.array()?;
            if unsigned { Value::UInt(byte.into()) } else { Value::Int(i8::from_le_bytes([byte]).into()) }
        }
        kind::SHORT | kind::YEAR => {
            let bytes = reader.array()?;
            if unsigned { Value::UInt(u16::from_le_bytes(bytes).into()) } else { Value::Int(i16::from_le_bytes(bytes).into()) }
        }
        kind::LONG | kind::INT24 => {
            let bytes = reader.array()?;
            if unsigned { Value::UInt(u32::from_le_bytes(bytes).into()) } else { Value::Int(i32::from_le_bytes(bytes).into()) }
        }
        kind::LONGLONG => {
            let bytes = reader.array()?;
            if unsigned { Value::UInt(u64::from_le_bytes(bytes)) } else { Value::Int(i64::from_le_bytes(bytes)) }
        }
        kind::FLOAT => Value::Float(f32::from_le_bytes(reader.array()?)),
        kind::DOUBLE => Value::Double(f64::from_le_bytes(reader.array()?)),
        kind::DATE | kind::DATETIME | kind::TIMESTAMP => Value::Date(length_prefixed(reader)?),
        kind::TIME => Value::Time(length_prefixed(reader)?),
        kind::NULL => Value::Null,
        _ => Value::Bytes(reader.lenenc_bytes()?.to_vec()),
    })
}

fn length_prefixed(reader: &mut Reader<'_>) -> wire::error::Result<Vec<u8>> {
    let len = reader.u8()?;
    Ok(reader.bytes(usize::from(len))?.to_vec())
}

fn finish(reader: &Reader<'_>, values: Vec<Value>) -> Result<Vec<Value>, LabError> {
    if reader.is_empty() { Ok(values) } else { Err(LabError::Protocol("bytes left over in a row".to_owned())) }
}

pub(super) fn malformed(error: wire::WireError) -> LabError {
    LabError::Protocol(error.to_string())
}
