//! COM_QUERY with query attributes.

use wire::Capabilities;
use wire::query::{put_query, split_query};

/// The input: a byte (bit 0: CLIENT_QUERY_ATTRIBUTES), then a COM_QUERY payload less its command byte.
pub fn check(data: &[u8]) {
    let Some((flags, rest)) = data.split_first() else { return };
    let caps = if flags & 1 == 1 { Capabilities::QUERY_ATTRIBUTES } else { Capabilities::default() };
    let payload = [b"\x03", rest].concat();
    let Ok(parts) = split_query(&payload, caps) else { return };
    assert_eq!((parts.attributes.start, parts.attributes.end, parts.sql.end), (1, parts.sql.start, payload.len()));
    let mut out = Vec::new();
    put_query(&mut out, &payload[parts.sql.clone()], caps);
    let again = split_query(&out, caps).expect("a query that we wrote");
    assert_eq!((&out[again.sql], again.attribute_count), (&payload[parts.sql], 0));
}
