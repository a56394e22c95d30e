//! What is known of a replica, or of a client that reads the binlog, which replicates through the proxy.
//!
//! Sources: COM_BINLOG_DUMP and COM_BINLOG_DUMP_GTID of the protocol pages; MariaDB KB "COM_BINLOG_DUMP" (`@slave_connect_state`).

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use wire::command::Command;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replica {
    /// Its `server_id`.
    pub server_id: u32,
    /// Its `server_uuid`, where it told it.
    pub uuid: Option<Box<str>>,
    /// Where its stream began: a file and a position, or a GTID set.
    pub from: Box<str>,
    /// When it asked for it (process clock, ms).
    pub since_ms: u64,
    /// Bytes that it was sent so far.
    pub bytes: u64,
}

/// Longest GTID set that is shown, bytes.
const MAX_SHOWN: usize = 4096;

/// Where a file's first event begins, behind its magic number.
const FIRST_EVENT: u32 = 4;

/// Takes whole numbers and bytes off the front.
struct Taken<'a>(&'a [u8]);

impl<'a> Taken<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, n: usize) -> Option<u64> {
        Some(self.bytes(n)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

impl Replica {
    /// Of a dump command's payload behind the command byte; `connect_state` is MariaDB's GTID position, `uuid` what the replica told of
    /// itself, both as SQL literals.
    pub(crate) fn asking(command: u8, body: &[u8], connect_state: Option<&[u8]>, uuid: Option<&[u8]>, now_ms: u64) -> Option<Self> {
        let mut taken = Taken(body);
        let (server_id, from) = if command == Command::BinlogDumpGtid as u8 {
            taken.bytes(2)?;
            let server_id = taken.number(4)?;
            let name = usize::try_from(taken.number(4)?).ok()?;
            taken.bytes(name)?;
            taken.bytes(8)?;
            let len = usize::try_from(taken.number(4)?).ok()?;
            (server_id, gtid_set(taken.bytes(len)?).unwrap_or_else(|| "a GTID set".to_owned()))
        } else {
            let position = taken.number(4)?;
            taken.bytes(2)?;
            let server_id = taken.number(4)?;
            let from = match connect_state {
                Some(gtids) => bare(gtids),
                None => format!("{}:{position}", String::from_utf8_lossy(taken.0)),
            };
            (server_id, from)
        };
        let from: String = from.chars().take(MAX_SHOWN).collect();
        let uuid = uuid.map(|uuid| bare(uuid).into());
        Some(Self { server_id: u32::try_from(server_id).ok()?, uuid, from: from.into(), since_ms: now_ms, bytes: 0 })
    }
}

/// Whether a dump by file and position asks for the first file that there is, from its first event: COM_BINLOG_DUMP's payload behind the
/// command byte is 4, flags, `server_id`, and no name.
pub(crate) fn begins_anew(body: &[u8]) -> bool {
    body.len() == 10 && body.starts_with(&FIRST_EVENT.to_le_bytes())
}

/// The text of a literal: between quotes as it is or in hexadecimal digits, whatever introducer and collation it has.
fn bare(literal: &[u8]) -> String {
    let text = String::from_utf8_lossy(literal);
    let mut parts = text.splitn(3, '\'');
    let (Some(head), Some(inner)) = (parts.next(), parts.next()) else { return text.into_owned() };
    if !head.ends_with(['x', 'X']) {
        return inner.to_owned();
    }
    let digits = inner.as_bytes().chunks_exact(2).filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8_lossy(&digits.collect::<Vec<u8>>()).into_owned()
}

/// A GTID set as MySQL sends it: for each UUID its intervals, of which the end is not included. None for the form with tags.
fn gtid_set(bytes: &[u8]) -> Option<String> {
    let mut taken = Taken(bytes);
    let mut text = String::new();
    for n in 0..taken.number(8)? {
        if n > 0 {
            text.push(',');
        }
        for (at, byte) in taken.bytes(16)?.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
            let _ = write!(text, "{dash}{byte:02x}");
        }
        for _ in 0..taken.number(8)? {
            let (first, end) = (taken.number(8)?, taken.number(8)?);
            let _ = match end.checked_sub(1)? {
                last if last == first => write!(text, ":{first}"),
                last => write!(text, ":{first}-{last}"),
            };
            if text.len() > MAX_SHOWN {
                return Some(text);
            }
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_says_who_asks_and_from_where() {
        let mut body = Vec::new();
        body.extend(4_u32.to_le_bytes());
        body.extend([0, 0]);
        body.extend(77_u32.to_le_bytes());
        body.extend(b"bin.000003");
        let dump = Command::BinlogDump as u8;
        let replica = Replica::asking(dump, &body, None, None, 5).unwrap();
        assert_eq!((replica.server_id, &*replica.from, replica.uuid, replica.since_ms), (77, "bin.000003:4", None, 5));
        assert!(begins_anew(&body[..10]) && !begins_anew(&body), "a file by its name is one of a server");
        body[0] = 5;
        assert!(!begins_anew(&body[..10]), "and so is a position");
        body[0] = 4;
        let uuid = b"_utf8mb4 x'75' COLLATE `utf8mb4_0900_ai_ci`";
        let replica = Replica::asking(dump, &body, Some(b"'0-1-100'"), Some(uuid), 5).unwrap();
        assert_eq!((&*replica.from, replica.uuid.as_deref()), ("0-1-100", Some("u")));
        assert!(Replica::asking(dump, &body[..7], None, None, 5).is_none());
    }

    #[test]
    fn a_gtid_set_is_shown_as_mysql_writes_it() {
        let mut set = Vec::new();
        set.extend(1_u64.to_le_bytes());
        set.extend((0..16).map(|n| n * 16 + n));
        set.extend(2_u64.to_le_bytes());
        for number in [1, 6, 9, 10_u64] {
            set.extend(number.to_le_bytes());
        }
        let mut body = vec![0, 0];
        body.extend(3_u32.to_le_bytes());
        body.extend(0_u32.to_le_bytes());
        body.extend(4_u64.to_le_bytes());
        body.extend((set.len() as u32).to_le_bytes());
        body.extend(&set);
        let gtid = Command::BinlogDumpGtid as u8;
        let replica = Replica::asking(gtid, &body, None, None, 0).unwrap();
        assert_eq!((replica.server_id, &*replica.from), (3, "00112233-4455-6677-8899-aabbccddeeff:1-5:9"));
        for len in 0..set.len() {
            assert!(gtid_set(&set[..len]).is_none(), "{len}");
        }
        // Counts that nothing follows.
        assert!(gtid_set(&[255; 8]).is_none());
    }
}
