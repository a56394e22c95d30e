//! Prepared statements: the answer to a prepare, and the layout of an execute.
//!
//! An execute may omit the parameters' types if they were sent before. A server that has not seen them needs them, so [`rewrite_execute`]
//! can insert them. Source: "COM_STMT_PREPARE Response", "COM_STMT_EXECUTE"; MariaDB KB "COM_STMT_BULK_EXECUTE".

use std::ops::Range;

use crate::binary::{Layout, bitmap_len, is_null, type_code, type_codes};
use crate::codec::{Reader, put_u16, put_u32};
use crate::command::Command;
use crate::error::{Result, WireError};
use crate::flags::Capabilities;

/// MariaDB: "the statement that was prepared last on this connection", instead of an id.
pub const LAST_PREPARED: u32 = u32::MAX;
/// Offset of the statement id in every COM_STMT_* payload, in bytes.
const ID_AT: usize = 1;
/// Length of an execute's fixed part, in bytes: command, id, flags, iterations.
const EXECUTE_FIXED: usize = 10;

/// The first packet of the answer to COM_STMT_PREPARE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrepareOk {
    /// The server's number for the statement; good on its connection only.
    pub stmt_id: u32,
    /// Columns of the result set; 0 for none. Their definitions follow the parameters'.
    pub columns: u16,
    /// Parameters. Their definitions follow.
    pub params: u16,
    /// Of the prepare; SHOW WARNINGS lists them.
    pub warnings: u16,
    /// Whether definitions follow; `None` unless CLIENT_OPTIONAL_RESULTSET_METADATA.
    pub metadata: Option<u8>,
}

impl PrepareOk {
    /// Reads a payload that begins with 0x00.
    pub fn parse(payload: &[u8], caps: Capabilities) -> Result<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != crate::message::OK {
            return Err(WireError::Malformed("not a prepare OK"));
        }
        let mut ok = Self { stmt_id: reader.u32()?, columns: reader.u16()?, params: reader.u16()?, ..Self::default() };
        if reader.remaining() >= 3 {
            reader.u8()?; // filler
            ok.warnings = reader.u16()?;
        }
        if caps.contains(Capabilities::OPTIONAL_RESULTSET_METADATA) && !reader.is_empty() {
            ok.metadata = Some(reader.u8()?);
        }
        Ok(ok)
    }

    /// Appends the payload; the metadata byte only under CLIENT_OPTIONAL_RESULTSET_METADATA (1, full, if unknown).
    pub fn write(&self, out: &mut Vec<u8>, caps: Capabilities) {
        out.push(crate::message::OK);
        put_u32(out, self.stmt_id);
        put_u16(out, self.columns);
        put_u16(out, self.params);
        out.push(0);
        put_u16(out, self.warnings);
        if caps.contains(Capabilities::OPTIONAL_RESULTSET_METADATA) {
            out.push(self.metadata.unwrap_or(1));
        }
    }
}

/// The fixed part of COM_STMT_EXECUTE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecuteHeader {
    /// The statement, or [`LAST_PREPARED`].
    pub stmt_id: u32,
    /// Cursor type and more: [`Self::CURSOR_READ_ONLY`] and its kin.
    pub flags: u8,
    /// The protocol allows only 1.
    pub iterations: u32,
}

impl ExecuteHeader {
    /// Flag: open a read-only cursor.
    pub const CURSOR_READ_ONLY: u8 = 1;
    /// Flag: a cursor for update; servers do not have it.
    pub const CURSOR_FOR_UPDATE: u8 = 2;
    /// Flag: a scrollable cursor; servers do not have it.
    pub const CURSOR_SCROLLABLE: u8 = 4;
    const CURSORS: u8 = Self::CURSOR_READ_ONLY | Self::CURSOR_FOR_UPDATE | Self::CURSOR_SCROLLABLE;
    /// Flag: a parameter count is there (CLIENT_QUERY_ATTRIBUTES).
    pub const PARAMETER_COUNT_AVAILABLE: u8 = 8;

    /// Reads a payload that begins with the command byte.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != Command::StmtExecute as u8 {
            return Err(WireError::Malformed("not COM_STMT_EXECUTE"));
        }
        Ok(Self { stmt_id: reader.u32()?, flags: reader.u8()?, iterations: reader.u32()? })
    }

    /// True when the client asks for a cursor.
    #[must_use]
    pub const fn opens_cursor(&self) -> bool {
        self.flags & Self::CURSORS != 0
    }
}

/// The parameters of an execute, as ranges of its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteParams {
    /// How many parameters, query attributes among them.
    pub count: usize,
    /// One bit per parameter.
    pub null_bitmap: Range<usize>,
    /// The types block, 2 bytes a parameter and a name each when [`Self::named`]; empty when types were not sent.
    pub types: Range<usize>,
    /// True when the types were sent (the flag before them is 1).
    pub new_types: bool,
    /// The values; those sent ahead as long data are not among them.
    pub values: Range<usize>,
    /// True when each type is followed by a name (CLIENT_QUERY_ATTRIBUTES).
    pub named: bool,
}

impl ExecuteParams {
    /// Finds the parameters of a statement that has `stmt_params`; `None` when there are none. `caps` are those agreed with
    /// the sender.
    pub fn parse(payload: &[u8], stmt_params: u16, caps: Capabilities) -> Result<Option<Self>> {
        let header = ExecuteHeader::parse(payload)?;
        let named = caps.contains(Capabilities::QUERY_ATTRIBUTES);
        let counted = named && header.flags & ExecuteHeader::PARAMETER_COUNT_AVAILABLE != 0;
        let mut reader = Reader::new(payload);
        reader.bytes(EXECUTE_FIXED)?;
        let count = match (named, counted || stmt_params > 0) {
            (_, false) => return Ok(None),
            (true, true) => usize::try_from(reader.lenenc()?).map_err(|_| WireError::Malformed("too many parameters"))?,
            (false, true) => usize::from(stmt_params),
        };
        if count == 0 {
            return Ok(None);
        }
        let at = |reader: &Reader<'_>| payload.len() - reader.remaining();
        let bitmap_at = at(&reader);
        reader.bytes(bitmap_len(count))?;
        let null_bitmap = bitmap_at..at(&reader);
        let new_types = reader.u8()? == 1;
        let types_at = at(&reader);
        for _ in 0..if new_types { count } else { 0 } {
            type_code(&mut reader, named)?;
        }
        let values_at = at(&reader);
        Ok(Some(Self { count, null_bitmap, types: types_at..values_at, new_types, values: values_at..payload.len(), named }))
    }
}

/// The value of the query attribute of this name, where an execute has one that is text and sends its types. `caps` are those agreed
/// with the sender.
#[must_use]
pub fn execute_attribute<'a>(payload: &'a [u8], stmt_params: u16, caps: Capabilities, name: &[u8]) -> Option<&'a [u8]> {
    let params = ExecuteParams::parse(payload, stmt_params, caps).ok()??;
    if !params.named || !params.new_types || params.count <= usize::from(stmt_params) {
        return None;
    }
    let [types, nulls, values] = [params.types, params.null_bitmap, params.values].map(|range| payload.get(range));
    crate::binary::named_value(types?, nulls?, values?, name)
}

/// Appends an execute for another statement id. `types` are inserted if `params` lacks them. They must be a block that
/// [`ExecuteParams::types`] gave for the same statement and capabilities.
pub fn rewrite_execute(
    payload: &[u8],
    new_stmt_id: u32,
    params: Option<&ExecuteParams>,
    types: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    let missing = params.filter(|params| !params.new_types).zip(types);
    match missing {
        None => out.extend_from_slice(payload),
        Some((params, types)) => {
            let head = payload.get(..params.null_bitmap.end).ok_or(WireError::Malformed("execute is too short"))?;
            let values = payload.get(params.values.clone()).ok_or(WireError::Malformed("execute is too short"))?;
            out.extend_from_slice(head);
            out.push(1);
            out.extend_from_slice(types);
            out.extend_from_slice(values);
        }
    }
    put_stmt_id(&mut out[start..], new_stmt_id)
}

/// Changes the statement id in a COM_STMT_* payload (execute, bulk execute, close, reset, fetch, long data).
pub fn put_stmt_id(payload: &mut [u8], stmt_id: u32) -> Result<()> {
    let slot = payload.get_mut(ID_AT..ID_AT + 4).ok_or(WireError::Malformed("no statement id"))?;
    slot.copy_from_slice(&stmt_id.to_le_bytes());
    Ok(())
}

/// Has an execute open no cursor, whatever it asks for.
pub fn put_no_cursor(payload: &mut [u8]) -> Result<()> {
    let flags = payload.get_mut(ID_AT + 4).ok_or(WireError::Malformed("execute is too short"))?;
    *flags &= !ExecuteHeader::CURSORS;
    Ok(())
}

/// The statement id in a COM_STMT_* payload.
pub fn stmt_id(payload: &[u8]) -> Result<u32> {
    let mut reader = Reader::new(payload);
    reader.bytes(ID_AT)?;
    reader.u32()
}

/// The fixed part of MariaDB's COM_STMT_BULK_EXECUTE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkHeader {
    /// The statement, or [`LAST_PREPARED`].
    pub stmt_id: u32,
    /// [`Self::SEND_TYPES`] and [`Self::UNIT_RESULTS`].
    pub flags: u16,
}

impl BulkHeader {
    /// Flag: the types block is there.
    pub const SEND_TYPES: u16 = 128;
    /// Flag: one result a row.
    pub const UNIT_RESULTS: u16 = 64;

    /// Reads a payload that begins with the command byte.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != Command::StmtBulkExecute as u8 {
            return Err(WireError::Malformed("not COM_STMT_BULK_EXECUTE"));
        }
        Ok(Self { stmt_id: reader.u32()?, flags: reader.u16()? })
    }

    /// The range of the types in the payload, if they were sent: two bytes per parameter of the statement.
    pub fn types(&self, params: u16) -> Option<Range<usize>> {
        let sent = self.flags & Self::SEND_TYPES != 0;
        sent.then(|| Self::LEN..Self::LEN + 2 * usize::from(params))
    }

    const LEN: usize = 7;
}

/// Appends a bulk execute, which came without types, with these.
pub fn rewrite_bulk(payload: &[u8], types: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let flags = BulkHeader::parse(payload)?.flags | BulkHeader::SEND_TYPES;
    let (head, rows) = payload.split_at_checked(BulkHeader::LEN).ok_or(WireError::Malformed("bulk execute is too short"))?;
    out.extend_from_slice(&head[..head.len() - 2]);
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(types);
    out.extend_from_slice(rows);
    Ok(())
}

/// False when no parameter can be equal to `id`, as SQL compares; true when one is, may be, or cannot be read. `types` is a
/// types block (with names when `named`). Values sent as long data are not in `values`: take true for those statements.
#[must_use]
pub fn binary_values_may_equal(types: &[u8], named: bool, values: &[u8], null_bitmap: &[u8], id: u64) -> bool {
    let mut reader = Reader::new(values);
    for (index, code) in type_codes(types, named).enumerate() {
        let Ok(layout) = code.and_then(Layout::of) else { return true };
        if is_null(null_bitmap, index) {
            continue;
        }
        match layout.read(&mut reader) {
            Ok(value) if !may_equal(layout, value, id) => {}
            _ => return true,
        }
    }
    !reader.is_empty()
}

/// True unless the number is surely another than `id` when it is rounded, up or down; large ids are no exact numbers here.
fn rounds_to(number: f64, id: u64) -> bool {
    let id = id as f64;
    let is_far = (number - id).abs() >= f64::max(1.0, 2.0 * id * f64::EPSILON);
    !(number >= 0.0 && is_far)
}

/// True unless the value is surely another than `id`, also once a column has rounded it. A negative value comes back as its two's
/// complement.
fn may_equal(layout: Layout, value: &[u8], id: u64) -> bool {
    match layout {
        Layout::Integer(len) => {
            let bytes = id.to_le_bytes();
            let (low, high) = bytes.split_at(len);
            value == low && (high.iter().all(|byte| *byte == 0) || high.iter().all(|byte| *byte == u8::MAX))
        }
        Layout::Float => value.first_chunk().is_none_or(|bytes| rounds_to(f32::from_le_bytes(*bytes).into(), id)),
        Layout::Double => value.first_chunk().is_none_or(|bytes| rounds_to(f64::from_le_bytes(*bytes), id)),
        Layout::Text => {
            id == 0 || value.trim_ascii_start().first().is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | 0x0b))
        }
        Layout::Temporal | Layout::Bytes => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMED: Capabilities = Capabilities::QUERY_ATTRIBUTES;

    #[test]
    fn types_are_put_into_a_bulk_execute() {
        let without = [0xfa, 9, 0, 0, 0, 64, 0, 0, 5];
        let mut with = Vec::new();
        rewrite_bulk(&without, &[8, 0], &mut with).unwrap();
        assert_eq!(with, [0xfa, 9, 0, 0, 0, 192, 0, 8, 0, 0, 5]);
        let header = BulkHeader::parse(&with).unwrap();
        assert_eq!((header.stmt_id, header.types(1), BulkHeader::parse(&without).unwrap().types(1)), (9, Some(7..9), None));
        assert!(rewrite_bulk(&without[..6], &[], &mut with).is_err());
    }

    #[test]
    fn prepare_ok_round_trips() {
        let ok = PrepareOk { stmt_id: 7, columns: 2, params: 3, warnings: 1, metadata: None };
        let mut out = Vec::new();
        ok.write(&mut out, Capabilities::empty());
        assert_eq!(out, [0, 7, 0, 0, 0, 2, 0, 3, 0, 0, 1, 0]);
        assert_eq!(PrepareOk::parse(&out, Capabilities::empty()), Ok(ok));
        assert_eq!(PrepareOk::parse(&out[..9], NAMED).unwrap().params, 3);
        let caps = Capabilities::OPTIONAL_RESULTSET_METADATA;
        out.clear();
        ok.write(&mut out, caps);
        assert_eq!(PrepareOk::parse(&out, caps).unwrap().metadata, Some(1));
    }

    /// Two parameters, the first NULL, the second the BIGINT 9.
    const WITH_TYPES: &[u8] = b"\x17\x01\0\0\0\0\x01\0\0\0\x01\x01\xfd\0\x08\0\x09\0\0\0\0\0\0\0";
    const WITHOUT_TYPES: &[u8] = b"\x17\x01\0\0\0\0\x01\0\0\0\x01\0\x09\0\0\0\0\0\0\0";

    #[test]
    fn execute_with_and_without_types() {
        let with = ExecuteParams::parse(WITH_TYPES, 2, Capabilities::empty()).unwrap().unwrap();
        assert_eq!(&WITH_TYPES[with.types.clone()], b"\xfd\0\x08\0");
        assert_eq!(with.values.len(), 8);
        let without = ExecuteParams::parse(WITHOUT_TYPES, 2, Capabilities::empty()).unwrap().unwrap();
        assert!(!without.new_types);
        let mut out = vec![0xee];
        rewrite_execute(WITHOUT_TYPES, 1, Some(&without), Some(&WITH_TYPES[with.types.clone()]), &mut out).unwrap();
        assert_eq!(&out[1..], WITH_TYPES);
        out.clear();
        rewrite_execute(WITH_TYPES, 5, Some(&with), Some(b"ignored"), &mut out).unwrap();
        assert_eq!((stmt_id(&out), out.len()), (Ok(5), WITH_TYPES.len()));
        assert!(rewrite_execute(b"\x17", 5, None, None, &mut Vec::new()).is_err());
    }

    #[test]
    fn execute_with_query_attributes() {
        let payload = b"\x17\x01\0\0\0\x08\x01\0\0\0\x02\0\x01\x01\0\0\xfe\0\x03key\x05\x03val";
        let params = ExecuteParams::parse(payload, 1, NAMED).unwrap().unwrap();
        assert_eq!((params.count, params.named), (2, true));
        assert_eq!(&payload[params.types.clone()], b"\x01\0\0\xfe\0\x03key");
        assert_eq!(&payload[params.values.clone()], b"\x05\x03val");
        assert_eq!(execute_attribute(payload, 1, NAMED, b"key"), Some(&b"val"[..]));
        assert_eq!((execute_attribute(payload, 1, NAMED, b""), execute_attribute(payload, 2, NAMED, b"key")), (None, None));
        assert!(binary_values_may_equal(
            &payload[params.types.clone()],
            true,
            &payload[params.values.clone()],
            &payload[params.null_bitmap.clone()],
            5
        ));
        assert!(!binary_values_may_equal(&payload[params.types], true, &payload[params.values], &payload[params.null_bitmap], 6));
        assert_eq!(ExecuteParams::parse(b"\x17\x01\0\0\0\x08\x01\0\0\0\0", 0, NAMED), Ok(None));
        assert_eq!(ExecuteParams::parse(b"\x17\x01\0\0\0\0\x01\0\0\0", 0, NAMED), Ok(None));
    }

    #[test]
    fn values_against_an_id() {
        let cases: [(&[u8], &[u8], u64, bool); 21] = [
            (b"\x08\0", b"\x09\0\0\0\0\0\0\0", 9, true),
            (b"\x08\0", b"\x09\0\0\0\0\0\0\0", 8, false),
            (b"\x01\0", b"\x09", 9, true),
            (b"\x01\0", b"\x09", 0x109, false),
            (b"\x05\0", b"\0\0\0\0\0\0\x22\x40", 9, true),
            (b"\x05\0", b"\0\0\0\0\0\0\x23\x40", 9, true),
            (b"\x05\0", b"\0\0\0\0\0\0\x24\x40", 9, false),
            (b"\x05\0", b"\0\0\0\0\0\0\x22\xc0", 9, true),
            (b"\x05\0", b"\0\0\0\0\0\0\xf8\x7f", 9, true),
            (b"\x04\0", b"\0\0\x18\x41", 9, true),
            (b"\x04\0", b"\0\0\x20\x41", 9, false),
            (b"\x01\0", b"\xf7", u64::MAX - 8, true),
            (b"\x01\0", b"\xf7", 0xf7, true),
            (b"\xfd\0", b"\x02-9", u64::MAX - 8, true),
            (b"\xfd\0", b"\x01x", 9, false),
            (b"\xfd\0", b"\x029x", 9, true),
            (b"\xfd\0", b"\x01x", 0, true),
            (b"\x0c\0", b"\0", 9, true),
            (b"\xfc\0", b"\x01x", 9, true),
            (b"\x63\0", b"", 9, true),
            (b"\x03\0", b"\x01", 9, true),
        ];
        for (types, values, id, expected) in cases {
            assert_eq!(binary_values_may_equal(types, false, values, &[0], id), expected, "{types:?} {values:?} {id}");
        }
        assert!(!binary_values_may_equal(b"\x08\0", false, b"", &[1], 9));
    }

    #[test]
    fn bulk() {
        assert_eq!(BulkHeader::parse(b"\xfa\x02\0\0\0\x80\0"), Ok(BulkHeader { stmt_id: 2, flags: BulkHeader::SEND_TYPES }));
        assert!(BulkHeader::parse(b"\xfa\x02").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>, params: u16, caps: u64, id: u64) {
            let _ = PrepareOk::parse(&bytes, Capabilities(caps));
            let _ = binary_values_may_equal(&bytes, caps & 1 == 1, &bytes, &bytes, id);
            bytes.insert(0, 0x17);
            if let Ok(Some(found)) = ExecuteParams::parse(&bytes, params % 32, Capabilities(caps)) {
                rewrite_execute(&bytes, 1, Some(&found), Some(b"t"), &mut Vec::new()).unwrap();
            }
            let _ = BulkHeader::parse(&bytes);
        }
    }
}
