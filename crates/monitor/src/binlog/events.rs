//! Events of a binary log: whose transaction they belong to, which tables they change, and how many rows. Pure.
//!
//! Values are passed over, not decoded. <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html>,
//! <https://mariadb.com/kb/en/2-binlog-event-header/>. Whether events end with a checksum is said at the head of each log.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::{self, Layout};

/// Before each event: time, type, server, size, position, flags.
const HEADER: usize = 19;
/// Most tables that a transaction's row names.
const TABLES_MAX: usize = 20;
/// Most tables of one transaction whose columns are remembered. Rows of further ones are not counted.
const LAYOUTS_MAX: usize = 1_000;
/// Longest head of a statement, characters.
const HEAD_MAX: usize = 200;

/// CRC32.
const CHECKSUM: usize = 4;

const QUERY: u8 = 2;
const FORMAT: u8 = 15;
const XID: u8 = 16;
const TABLE_MAP: u8 = 19;
const ROWS_QUERY: u8 = 29;
const GTID_MYSQL: u8 = 33;
/// Of a GTID with a tag.
const GTID_TAGGED: u8 = 42;
const ANNOTATE_MARIADB: u8 = 160;
const GTID_MARIADB: u8 = 162;
/// Events that change no rows: STOP, ROTATE, INTVAR, RAND, USER_VAR, HEARTBEAT, IGNORABLE, PREVIOUS_GTIDS, TRANSACTION_CONTEXT,
/// VIEW_CHANGE, XA_PREPARE, HEARTBEAT_V2, and MariaDB's BINLOG_CHECKPOINT, GTID_LIST, START_ENCRYPTION.
const HARMLESS: [u8; 15] = [3, 4, 5, 13, 14, 27, 28, 35, 36, 37, 38, 41, 161, 163, 164];
/// In place of a GTID that is not read.
pub(super) const NOT_READ: &str = "not read";

/// A transaction of a binary log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) gtid: String,
    /// When it was written, by the server's clock, s.
    pub(crate) time_s: u32,
    pub(crate) tables: BTreeSet<String>,
    /// Rows that it changes; None where their form is not known, or where a statement is logged instead.
    pub(crate) rows: Option<u64>,
    /// How its first statement without a backslash begins, without values.
    pub(crate) head: String,
    /// It has events of kinds that are not read, so tables may be missing.
    pub(crate) is_partial: bool,
    /// Of all its events.
    pub(crate) bytes: u64,
}

/// What was read of a binary log so far.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Bytes at the end of each event.
    checksum: usize,
    open: Option<Transaction>,
    tables: BTreeMap<u64, (String, Option<Layout>)>,
}

impl Events {
    /// Takes an event. Returns the transaction that it begins after, if that is complete now.
    pub(crate) fn take(&mut self, event: &[u8]) -> Option<Transaction> {
        let kind = *event.get(4)?;
        if kind == FORMAT {
            // The algorithm, then the checksum of this event.
            let algorithm = *event.get(event.len().checked_sub(CHECKSUM + 1)?)?;
            self.checksum = if algorithm == 0 { 0 } else { CHECKSUM };
            return None;
        }
        let body = event.get(HEADER..event.len().checked_sub(self.checksum)?)?;
        if let Some(gtid) = gtid(event) {
            let begun = Transaction { gtid, time_s: u32_at(event, 0)?, rows: Some(0), bytes: event.len() as u64, ..Transaction::default() };
            self.tables.clear();
            return self.open.replace(begun);
        }
        let open = self.open.as_mut()?;
        open.bytes += event.len() as u64;
        match kind {
            TABLE_MAP => {
                let (id, name, layout) = table(body)?;
                if open.tables.len() < TABLES_MAX {
                    open.tables.insert(name.clone());
                }
                if self.tables.len() < LAYOUTS_MAX {
                    self.tables.insert(id, (name, layout));
                }
            }
            QUERY => open.see_query(body),
            ROWS_QUERY => open.see_statement(body.get(1..)?),
            ANNOTATE_MARIADB => open.see_statement(body),
            kind if rows::is_rows(kind) => {
                let layout = id(body).and_then(|id| self.tables.get(&id)).and_then(|(_, layout)| layout.as_ref());
                let count = layout.and_then(|layout| rows::count(kind, body, layout));
                open.rows = open.rows.zip(count).map(|(all, more)| all + more);
            }
            XID => return self.open.take(),
            kind if HARMLESS.contains(&kind) => {}
            // Compressed events, LOAD DATA, and whatever servers get yet.
            _ => (open.rows, open.is_partial) = (None, true),
        }
        None
    }

    /// The last transaction, once there are no more events.
    pub(crate) fn finish(mut self) -> Option<Transaction> {
        self.open.take()
    }
}

impl Transaction {
    fn see_query(&mut self, body: &[u8]) {
        let Some(sql) = query(body) else { return };
        let is_frame = ["BEGIN", "COMMIT", "ROLLBACK", "XA "].iter().any(|word| sql.starts_with(word.as_bytes()));
        if !is_frame {
            // A statement is logged in place of rows.
            self.rows = None;
            self.see_statement(sql);
        }
    }

    /// Whether a backslash escapes a quote depends on the session's `sql_mode`, and a value must not be taken for the statement's words.
    fn see_statement(&mut self, sql: &[u8]) {
        if self.head.is_empty() && !sql.contains(&b'\\') {
            let options = sql::DigestOptions { max_query_length: HEAD_MAX, ..sql::DigestOptions::default() };
            let mut text = Vec::new();
            sql::digest_text(sql, &options, &mut text);
            self.head = String::from_utf8_lossy(&text).chars().take(HEAD_MAX).collect();
        }
    }
}

/// The GTID that an event gives to what follows; [`NOT_READ`] for one with a tag.
pub(super) fn gtid(event: &[u8]) -> Option<String> {
    let body = event.get(HEADER..)?;
    match *event.get(4)? {
        GTID_MYSQL => {
            let (uuid, number) = (body.get(1..17)?, u64_at(body, 17)?);
            let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
            let parts = [hex.get(..8)?, hex.get(8..12)?, hex.get(12..16)?, hex.get(16..20)?, hex.get(20..)?];
            Some(format!("{}:{number}", parts.join("-")))
        }
        GTID_TAGGED => Some(NOT_READ.to_owned()),
        GTID_MARIADB => Some(format!("{}-{}-{}", u32_at(body, 8)?, u32_at(event, 5)?, u64_at(body, 0)?)),
        _ => None,
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The table's number in this part of the log: six bytes.
fn id(body: &[u8]) -> Option<u64> {
    let mut id = [0; 8];
    id[..6].copy_from_slice(body.get(..6)?);
    Some(u64::from_le_bytes(id))
}

fn table(body: &[u8]) -> Option<(u64, String, Option<Layout>)> {
    let schema_len = usize::from(*body.get(8)?);
    let schema = body.get(9..9 + schema_len)?;
    let name_at = 9 + schema_len + 1;
    let name_len = usize::from(*body.get(name_at)?);
    let name = body.get(name_at + 1..name_at + 1 + name_len)?;
    let text = format!("{}.{}", String::from_utf8_lossy(schema), String::from_utf8_lossy(name));
    Some((id(body)?, text, Layout::parse(body.get(name_at + 1 + name_len + 1..)?)))
}

/// The statement of a query event: behind thread, time, length of the schema, error and status variables.
fn query(body: &[u8]) -> Option<&[u8]> {
    let schema_len = usize::from(*body.get(8)?);
    let status_len = usize::from(u16::from_le_bytes(body.get(11..13)?.try_into().ok()?));
    body.get(13 + status_len + schema_len + 1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u8, server: u32, body: &[u8]) -> Vec<u8> {
        let mut event = 1_700_000_000_u32.to_le_bytes().to_vec();
        event.push(kind);
        event.extend(server.to_le_bytes());
        event.extend(((HEADER + body.len()) as u32).to_le_bytes());
        event.extend([0; 6]);
        event.extend(body);
        event
    }

    fn mariadb(number: u64) -> Vec<u8> {
        event(GTID_MARIADB, 7, &[&number.to_le_bytes()[..], &3_u32.to_le_bytes(), &[0; 6]].concat())
    }

    fn query(sql: &str) -> Vec<u8> {
        event(QUERY, 7, &[&[0; 8][..], &[4, 0, 0, 2, 0, 9, 9], b"test\0", sql.as_bytes()].concat())
    }

    #[test]
    fn transactions_are_put_together() {
        let mut events = Events::default();
        assert_eq!(events.take(&query("CREATE TABLE before_any_gtid(i INT)")), None);
        assert_eq!(events.take(&mariadb(5)), None);
        assert_eq!(events.take(&query("INSERT INTO t VALUES (1, 'secret')")), None);
        let first = events.take(&event(XID, 7, &[0; 8])).unwrap();
        assert_eq!((first.gtid.as_str(), first.rows, first.time_s), ("3-7-5", None, 1_700_000_000));
        assert_eq!(first.head, "INSERT INTO t VALUES (?,?)");
        events.take(&mariadb(6));
        events.take(&event(ANNOTATE_MARIADB, 7, b"UPDATE t SET a = 'x'"));
        // Table 9: an INT and a VARCHAR(20).
        let map = [&[9, 0, 0, 0, 0, 0, 0, 0, 4][..], b"test\0", &[1], b"t\0", &[2, 3, 15, 2, 20, 0, 2]].concat();
        events.take(&event(TABLE_MAP, 7, &map));
        let row = [0xfc, 1, 0, 0, 0, 2, b'a', b'b'];
        let rows = [&[9, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff][..], &row, &row].concat();
        events.take(&event(30, 7, &rows));
        let second = events.take(&mariadb(7)).unwrap();
        assert_eq!((second.rows, second.head.as_str()), (Some(2), "UPDATE t SET a = ?"));
        assert_eq!(second.tables, BTreeSet::from(["test.t".to_owned()]));
        assert_eq!(events.finish().unwrap().gtid, "3-7-7");
        let uuid = [0x3e; 16];
        let mysql = event(GTID_MYSQL, 1, &[&[0][..], &uuid, &9_u64.to_le_bytes()].concat());
        assert_eq!(gtid(&mysql).unwrap(), "3e3e3e3e-3e3e-3e3e-3e3e-3e3e3e3e3e3e:9");
    }

    #[test]
    fn events_that_are_not_known_make_the_rows_unknown() {
        let rows_after = |kind: u8| {
            let mut events = Events::default();
            events.take(&mariadb(5));
            events.take(&event(kind, 7, &[0; 30]));
            events.finish().unwrap().rows
        };
        for kind in HARMLESS {
            assert_eq!(rows_after(kind), Some(0), "{kind}");
        }
        for kind in [17, 18, 40, 165, 166, 200] {
            assert_eq!(rows_after(kind), None, "{kind}");
        }
    }

    #[test]
    fn a_gtid_with_a_tag_ends_the_transaction_before_it() {
        let mut events = Events::default();
        events.take(&mariadb(5));
        assert_eq!(events.take(&event(GTID_TAGGED, 7, &[9; 40])).unwrap().gtid, "3-7-5");
        assert_eq!(events.take(&event(XID, 7, &[0; 8])).unwrap().gtid, NOT_READ);
    }

    #[test]
    fn a_statement_with_a_backslash_has_no_head() {
        let mut events = Events::default();
        events.take(&mariadb(5));
        events.take(&query(r"INSERT INTO t VALUES ('\', 'secret')"));
        events.take(&event(ANNOTATE_MARIADB, 7, br"UPDATE t SET a = '\'"));
        assert_eq!(events.finish().unwrap().head, "");
    }

    #[test]
    fn tables_that_are_remembered_have_a_limit() {
        let mut events = Events::default();
        events.take(&mariadb(5));
        for id in 0..2 * LAYOUTS_MAX as u64 {
            let map = [&id.to_le_bytes()[..6], &[0, 0, 4], b"test\0", &[1], b"t\0", &[1, 3, 0, 0]].concat();
            events.take(&event(TABLE_MAP, 7, &map));
        }
        assert_eq!(events.tables.len(), LAYOUTS_MAX);
    }

    #[test]
    fn checksums_are_no_rows() {
        let mut events = Events::default();
        events.take(&event(FORMAT, 7, &[4, 0, 1, 9, 9, 9, 9]));
        let sealed = |event: Vec<u8>| [event, vec![9; 4]].concat();
        events.take(&sealed(mariadb(5)));
        events.take(&sealed(event(ANNOTATE_MARIADB, 7, b"DELETE FROM t")));
        assert_eq!(events.take(&sealed(event(XID, 7, &[0; 8]))).unwrap().head, "DELETE FROM t");
        events.take(&event(FORMAT, 7, &[4, 0, 0, 9, 9, 9, 9]));
        events.take(&mariadb(6));
        events.take(&event(ANNOTATE_MARIADB, 7, b"DELETE FROM t"));
        assert_eq!(events.finish().unwrap().head, "DELETE FROM t");
    }

    #[test]
    fn pieces_of_events_are_no_events() {
        let whole = [mariadb(5), query("INSERT INTO t VALUES (1)"), event(XID, 7, &[0; 8])];
        for event in &whole {
            for end in 0..event.len() {
                let mut events = Events::default();
                events.take(&whole[0]);
                events.take(&event[..end]);
            }
        }
    }
}
