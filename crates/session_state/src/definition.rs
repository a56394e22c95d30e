//! Column definitions in replies to the proxy's own questions: what a value's text alone does not tell
//! ([Column Definition](https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response_text_resultset_column_definition.html)).

use crate::collected::packets;
use wire::codec::Reader;

/// The fixed end of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// Id of the collation.
    pub collation: u16,
    /// The type's code.
    pub kind: u8,
    /// Flags, of which UNSIGNED is one.
    pub flags: u16,
}

/// The definitions in the packets of a reply; none where there is no result.
pub fn all(raw: &[u8]) -> impl Iterator<Item = Definition> {
    let mut packets = packets(raw);
    let count = packets.next().and_then(|first| Reader::new(first).lenenc().ok()).unwrap_or(0);
    packets.take(usize::try_from(count).unwrap_or(0)).map_while(read)
}

/// It ends: collation (2), length (4), type (1), flags (2), decimals (1), filler (2).
fn read(definition: &[u8]) -> Option<Definition> {
    let mut end = Reader::new(definition.get(definition.len().checked_sub(12)?..)?);
    let collation = end.u16().ok()?;
    let _length = end.u32().ok()?;
    Some(Definition { collation, kind: end.u8().ok()?, flags: end.u16().ok()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn definitions_are_found() {
        let mut raw = vec![1, 0, 0, 1, 1];
        let definition = [&b"\x03def\0\0\0\x01c\0\x0c"[..], &[46, 0, 28, 0, 0, 0, 253, 0, 0, 39, 0, 0]].concat();
        raw.extend_from_slice(&[u8::try_from(definition.len()).unwrap(), 0, 0, 2]);
        raw.extend_from_slice(&definition);
        assert_eq!(all(&raw).collect::<Vec<_>>(), [Definition { collation: 46, kind: 253, flags: 0 }]);
        assert_eq!(all(&raw[..7]).count(), 0);
    }
}
