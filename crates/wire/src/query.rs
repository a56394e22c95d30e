//! COM_QUERY: where the query attributes end and the SQL begins.
//!
//! Source: "COM_QUERY". Attributes are there under CLIENT_QUERY_ATTRIBUTES only, empty or not.

use std::ops::Range;

use crate::binary::{Layout, bitmap_len, is_null, type_codes};
use crate::codec::{Reader, put_lenenc};
use crate::command::Command;
use crate::error::{Result, WireError};
use crate::flags::Capabilities;

/// The parts of a COM_QUERY payload, as ranges of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryParts {
    /// The attributes with their counts; empty without CLIENT_QUERY_ATTRIBUTES. Goes to a server unchanged.
    pub attributes: Range<usize>,
    /// 0 without CLIENT_QUERY_ATTRIBUTES.
    pub attribute_count: usize,
    /// The range of the SQL text in the payload.
    pub sql: Range<usize>,
}

/// Splits a payload that begins with the command byte. `caps` are those agreed with the sender.
pub fn split_query(payload: &[u8], caps: Capabilities) -> Result<QueryParts> {
    let mut reader = Reader::new(payload);
    if reader.u8()? != Command::Query as u8 {
        return Err(WireError::Malformed("not COM_QUERY"));
    }
    let mut attribute_count = 0;
    if caps.contains(Capabilities::QUERY_ATTRIBUTES) {
        attribute_count = skip_attributes(&mut reader)?;
    }
    let start = payload.len() - reader.remaining();
    Ok(QueryParts { attributes: 1..start, attribute_count, sql: start..payload.len() })
}

/// The value of the query attribute of this name, where a COM_QUERY has one that is text. `caps` are those agreed with the sender.
#[must_use]
pub fn query_attribute<'a>(payload: &'a [u8], caps: Capabilities, name: &[u8]) -> Option<&'a [u8]> {
    let parts = split_query(payload, caps).ok().filter(|parts| parts.attribute_count > 0)?;
    let mut reader = Reader::new(payload.get(parts.attributes)?);
    let count = usize::try_from(reader.lenenc().ok()?).ok()?;
    reader.lenenc().ok()?;
    let nulls = reader.bytes(bitmap_len(count)).ok()?;
    reader.u8().ok()?;
    let mut values = reader;
    for _ in 0..count {
        crate::binary::type_code(&mut values, true).ok()?;
    }
    let types = reader.bytes(reader.remaining() - values.remaining()).ok()?;
    crate::binary::named_value(types, nulls, values.bytes(values.remaining()).ok()?, name)
}

/// Appends a COM_QUERY payload without attributes.
pub fn put_query(out: &mut Vec<u8>, sql: &[u8], caps: Capabilities) {
    out.push(Command::Query as u8);
    if caps.contains(Capabilities::QUERY_ATTRIBUTES) {
        put_lenenc(out, 0); // attributes
        put_lenenc(out, 1); // sets of attributes
    }
    out.extend_from_slice(sql);
}

/// Moves past the attributes; gives their number.
fn skip_attributes(reader: &mut Reader<'_>) -> Result<usize> {
    let count = usize::try_from(reader.lenenc()?).map_err(|_| WireError::Malformed("too many query attributes"))?;
    if reader.lenenc()? != 1 {
        return Err(WireError::Malformed("more than one set of query attributes"));
    }
    if count == 0 {
        return Ok(0);
    }
    let nulls = reader.bytes(bitmap_len(count))?;
    if reader.u8()? != 1 {
        return Err(WireError::Malformed("query attributes without types"));
    }
    let mut values = *reader;
    for _ in 0..count {
        crate::binary::type_code(&mut values, true)?;
    }
    let types = *reader;
    let types_len = types.remaining() - values.remaining();
    let types = reader.bytes(types_len)?;
    for (index, code) in type_codes(types, true).enumerate() {
        if !is_null(nulls, index) {
            Layout::of(code?)?.read(reader)?;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ATTRIBUTES: Capabilities = Capabilities::QUERY_ATTRIBUTES;

    #[test]
    fn plain_and_empty() {
        let parts = split_query(b"\x03SELECT 1", Capabilities::empty()).unwrap();
        assert_eq!((parts.attributes, parts.sql), (1..1, 1..9));
        let mut out = Vec::new();
        put_query(&mut out, b"SELECT 1", ATTRIBUTES);
        assert_eq!(out, b"\x03\0\x01SELECT 1");
        assert_eq!(split_query(&out, ATTRIBUTES).unwrap().sql, 3..11);
    }

    #[test]
    fn a_string_a_number_and_a_null() {
        let payload = b"\x03\x03\x01\x04\x01\xfe\0\x01a\x08\x80\x01b\xfe\0\x01c\x02hi\x01\0\0\0\0\0\0\0SELECT 1";
        let parts = split_query(payload, ATTRIBUTES).unwrap();
        assert_eq!(parts.attribute_count, 3);
        assert_eq!(&payload[parts.sql], b"SELECT 1");
        let value = |name: &[u8]| query_attribute(payload, ATTRIBUTES, name);
        assert_eq!((value(b"a"), value(b"b"), value(b"c"), value(b"d")), (Some(&b"hi"[..]), None, None, None));
        assert_eq!(query_attribute(b"\x03\0\x01SELECT 1", ATTRIBUTES, b"a"), None);
        assert_eq!(query_attribute(b"\x03SELECT 1", Capabilities::empty(), b"a"), None);
    }

    #[test]
    fn malformed() {
        for payload in [
            &b""[..],
            b"\x0e",
            b"\x03",
            b"\x03\x01\x01\0\x01\xfe\0\x01a\x09hi",
            b"\x03\0\x02SELECT 1",
            // Types that servers read in another way, or that no client sends.
            b"\x03\x01\x01\0\x01\x06\0\x01aSELECT 1",
            b"\x03\x01\x01\0\x01\x0d\0\x01a\x01\0SELECT 1",
            b"\x03\x01\x01\0\x01\x63\0\x01a\x01xSELECT 1",
            b"\x03\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(split_query(payload, ATTRIBUTES).is_err(), "{payload:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>) {
            bytes.insert(0, 3);
            if let Ok(parts) = split_query(&bytes, ATTRIBUTES) {
                prop_assert_eq!(parts.attributes.end, parts.sql.start);
                let _ = query_attribute(&bytes, ATTRIBUTES, b"a");
            }
        }
    }
}
