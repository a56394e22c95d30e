//! The clients' work: the commands, encoded beforehand, and the check of each reply. No IO.

use wire::Command;
use wire::packet::put_packet;

use super::reply::Reply;
use crate::error::LabError;

/// Keys in the table: five digits, so that a key is written over the last one without moving anything.
pub const KEYS: std::ops::Range<u32> = 10_000..100_000;
/// The few keys of work that a cache could answer.
const HOT_KEYS: std::ops::Range<u32> = 10_000..10_100;
/// Length of the column that is selected, in bytes.
const COLUMN: u8 = 120;

/// Statements that make the table; run as root in schema `test`.
pub const TABLE: &[&str] = &[
    "CREATE TABLE test.sbtest1(id INT NOT NULL PRIMARY KEY, k INT NOT NULL DEFAULT 0, c CHAR(120) NOT NULL, \
     pad CHAR(60) NOT NULL DEFAULT '', KEY k_1(k)) ENGINE=InnoDB",
    "INSERT INTO test.sbtest1(id, k, c, pad) WITH RECURSIVE digit AS (SELECT 0 n UNION ALL SELECT n + 1 FROM digit WHERE n < 9), \
     key_of AS (SELECT a.n * 10000 + b.n * 1000 + c.n * 100 + d.n * 10 + e.n AS seq \
     FROM digit a, digit b, digit c, digit d, digit e WHERE a.n > 0) \
     SELECT seq, seq * 7 % 50000, RPAD(CONCAT(seq, '-'), 120, SHA2(seq, 256)), REPEAT('p', 60) FROM key_of ORDER BY seq",
];

/// Text of the point select, up to its key.
const POINT: &str = "SELECT c FROM sbtest1 WHERE id=";

/// The command that every client of a run repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A point select as text.
    PointText,
    /// The same with a prepared statement, prepared once.
    PointPrepared,
    /// As [`Work::PointText`], but of few keys, so that a cache could answer.
    PointHot,
    /// As [`Work::PointPrepared`], but of those few keys.
    PointHotPrepared,
    /// A result of this many rows of 1,000 bytes each.
    Large {
        /// Number of rows.
        rows: u64,
    },
    /// A new connection, one point select as text, and the end of the connection.
    Connect,
}

impl Work {
    /// The statement to prepare before anything else.
    pub fn to_prepare(&self) -> Option<Vec<u8>> {
        let text = format!("{POINT}?");
        matches!(self, Work::PointPrepared | Work::PointHotPrepared).then(|| command(Command::StmtPrepare, text.as_bytes()))
    }

    /// Payload bytes of all rows of one reply.
    pub fn reply_bytes(&self) -> u64 {
        match self {
            Work::Large { rows } => rows * LARGE_ROW,
            _ => u64::from(COLUMN) + 1,
        }
    }
}

/// Payload bytes of one row of a large result: a thousand, and three that say so.
const LARGE_ROW: u64 = 1_003;

/// COM_QUIT as a packet.
pub const QUIT: [u8; 5] = [1, 0, 0, 0, 1];

/// One client's command, and what its reply must look like.
#[derive(Debug)]
pub struct Request {
    bytes: Vec<u8>,
    kind: Kind,
    keys: std::ops::Range<u32>,
    random: u64,
}

#[derive(Debug)]
enum Kind {
    /// The key's digits end the packet; the row begins with them too.
    Text {
        key: [u8; 5],
    },
    Prepared {
        key: [u8; 5],
        types_sent: bool,
    },
    Large {
        rows: u64,
    },
}

impl Request {
    /// The request of client number `index`; `statement` is the id that its preparation gave, if there was one.
    pub fn new(work: &Work, index: usize, statement: u32) -> Request {
        let key = [b'0'; 5];
        let (bytes, kind) = match work {
            Work::PointText | Work::PointHot | Work::Connect => {
                (command(Command::Query, format!("{POINT}00000").as_bytes()), Kind::Text { key })
            }
            Work::PointPrepared | Work::PointHotPrepared => (execute(statement, true), Kind::Prepared { key, types_sent: false }),
            Work::Large { rows } => {
                let text = format!("SELECT REPEAT('x', 1000) FROM seq_1_to_{rows}");
                (command(Command::Query, text.as_bytes()), Kind::Large { rows: *rows })
            }
        };
        // An odd multiplier: clients differ, and none begins with 0, which xorshift would never leave.
        let random = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let keys = match work {
            Work::PointHot | Work::PointHotPrepared => HOT_KEYS,
            _ => KEYS,
        };
        Request { bytes, kind, keys, random }
    }

    /// The packet to send now: a new key each time.
    pub fn next_packet(&mut self) -> &[u8] {
        let number = self.next_key();
        match &mut self.kind {
            Kind::Text { key } => {
                *key = digits(number);
                let at = self.bytes.len() - key.len();
                self.bytes[at..].copy_from_slice(key);
            }
            Kind::Prepared { key, .. } => {
                *key = digits(number);
                let at = self.bytes.len() - 4;
                self.bytes[at..].copy_from_slice(&number.to_le_bytes());
            }
            Kind::Large { .. } => {}
        }
        &self.bytes
    }

    /// Whether this is the reply to the last command.
    pub fn check(&mut self, reply: &Reply) -> Result<(), LabError> {
        let right = match &mut self.kind {
            Kind::Text { key } => reply.rows == 1 && reply.lead[0] == COLUMN && reply.lead[1..6] == *key,
            Kind::Prepared { key, types_sent } => {
                if !std::mem::replace(types_sent, true) {
                    // As libmysql does: types with the first execution only.
                    let statement = u32::from_le_bytes([self.bytes[5], self.bytes[6], self.bytes[7], self.bytes[8]]);
                    self.bytes = execute(statement, false);
                }
                reply.rows == 1 && reply.lead[..3] == [0, 0, COLUMN] && reply.lead[3..8] == *key
            }
            Kind::Large { rows } => reply.rows == *rows && reply.row_bytes == *rows * LARGE_ROW,
        };
        if right { Ok(()) } else { Err(LabError::Protocol(format!("a wrong reply: {reply:?} to {:?}", self.kind))) }
    }

    /// One of its keys, by xorshift.
    fn next_key(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let span = u64::from(self.keys.end - self.keys.start);
        self.keys.start + u32::try_from((self.random >> 20) % span).unwrap_or(0)
    }
}

fn digits(mut number: u32) -> [u8; 5] {
    let mut text = [b'0'; 5];
    for digit in text.iter_mut().rev() {
        *digit += u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
    text
}

fn command(command: Command, body: &[u8]) -> Vec<u8> {
    let mut payload = vec![command as u8];
    payload.extend_from_slice(body);
    let mut out = Vec::new();
    put_packet(&mut out, &mut 0, &payload);
    out
}

/// COM_STMT_EXECUTE with one parameter of type LONG, which ends the packet.
fn execute(statement: u32, with_types: bool) -> Vec<u8> {
    let mut body = statement.to_le_bytes().to_vec();
    body.extend_from_slice(&[0, 1, 0, 0, 0, 0, u8::from(with_types)]);
    if with_types {
        body.extend_from_slice(&[3, 0]);
    }
    body.extend_from_slice(&[0; 4]);
    command(Command::StmtExecute, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_select_and_its_row() {
        let mut request = Request::new(&Work::PointText, 0, 0);
        let sent = request.next_packet().to_vec();
        let (text, key) = sent[5..].split_at(POINT.len());
        assert_eq!(text, POINT.as_bytes());
        let number: u32 = std::str::from_utf8(key).unwrap().parse().unwrap();
        assert!(KEYS.contains(&number));
        let mut reply = Reply { rows: 1, row_bytes: 121, lead: [b'-'; 16] };
        reply.lead[0] = COLUMN;
        reply.lead[1..6].copy_from_slice(key);
        request.check(&reply).unwrap();
        reply.lead[5] ^= 1;
        request.check(&reply).unwrap_err();
    }

    #[test]
    fn types_go_with_the_first_execution_only() {
        let mut request = Request::new(&Work::PointPrepared, 3, 9);
        let first = request.next_packet().len();
        let _ = request.check(&Reply::default());
        let second = request.next_packet();
        assert_eq!((first, second.len(), second[5]), (4 + 18, 4 + 16, 9));
    }

    #[test]
    fn keys_spread() {
        let mut request = Request::new(&Work::PointText, 7, 0);
        let keys: std::collections::HashSet<u32> = (0..1000).map(|_| request.next_key()).collect();
        assert!(keys.len() > 980 && keys.iter().all(|key| KEYS.contains(key)));
    }
}
