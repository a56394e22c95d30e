//! Follows one reply through a stream of bytes: frames, counts, checks sequence numbers, decodes nothing.
//!
//! Pure: bytes in, a summary out. Only the first bytes of a packet are looked at ("COM_QUERY Response" and
//! "COM_STMT_PREPARE Response" in MySQL's protocol pages).

use wire::message::{EOF, ERR, OK};
use wire::packet::{HEADER, MAX_PAYLOAD};

use crate::error::LabError;

/// Bytes kept of each packet's beginning: enough for an error's code and for the key in a point select's row.
pub const LEAD: usize = 16;

/// First byte of a request for a local file.
const LOCAL_INFILE: u8 = 0xfb;

/// The kind of the expected reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// To COM_QUERY or COM_STMT_EXECUTE.
    Result,
    /// To COM_STMT_PREPARE.
    Prepared,
}

/// A reply that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Number of rows.
    pub rows: u64,
    /// Payload bytes of all rows.
    pub row_bytes: u64,
    /// The first bytes of the last row, or of the only packet when there are no rows.
    pub lead: [u8; LEAD],
}

impl Reply {
    /// The statement's id, for a reply to COM_STMT_PREPARE.
    pub fn statement_id(&self) -> u32 {
        u32::from_le_bytes([self.lead[1], self.lead[2], self.lead[3], self.lead[4]])
    }
}

/// The place of the next packet in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    First,
    /// This many packets of no interest, then rows or the end.
    Skip {
        left: u64,
        then_rows: bool,
    },
    Rows,
}

/// The reader of one connection's replies.
#[derive(Debug)]
pub struct ReplyReader {
    expect: Expect,
    /// Whether definitions end with an EOF packet (CLIENT_DEPRECATE_EOF is not in use).
    eof_packets: bool,
    stage: Stage,
    header: [u8; HEADER],
    header_len: usize,
    length: usize,
    left: usize,
    next_seq: u8,
    /// The packet before was as long as packets get, so this one continues it.
    continued: bool,
    lead: [u8; LEAD],
    lead_len: usize,
    reply: Reply,
}

impl ReplyReader {
    /// A reader that expects no reply yet: see [`ReplyReader::begin`].
    pub fn new(eof_packets: bool) -> ReplyReader {
        ReplyReader {
            expect: Expect::Result,
            eof_packets,
            stage: Stage::First,
            header: [0; HEADER],
            header_len: 0,
            length: 0,
            left: 0,
            next_seq: 1,
            continued: false,
            lead: [0; LEAD],
            lead_len: 0,
            reply: Reply::default(),
        }
    }

    /// A command was sent: its reply comes next.
    pub fn begin(&mut self, expect: Expect) {
        self.expect = expect;
        self.stage = Stage::First;
        self.next_seq = 1;
        self.continued = false;
        self.reply = Reply::default();
    }

    /// Takes bytes from the peer. Returns the reply once it is complete. An error packet, a wrong sequence number and bytes behind the end
    /// are errors.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Option<Reply>, LabError> {
        loop {
            bytes = self.take_header(bytes)?;
            if self.header_len < HEADER {
                return Ok(None);
            }
            bytes = self.take_payload(bytes);
            if self.left > 0 {
                return Ok(None);
            }
            self.header_len = 0;
            if self.end_packet()? {
                return if bytes.is_empty() { Ok(Some(self.reply)) } else { Err(violation("bytes behind the end of a reply")) };
            }
        }
    }

    fn take_header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], LabError> {
        if self.header_len == HEADER {
            return Ok(bytes);
        }
        let (taken, rest) = bytes.split_at(bytes.len().min(HEADER - self.header_len));
        self.header[self.header_len..self.header_len + taken.len()].copy_from_slice(taken);
        self.header_len += taken.len();
        if self.header_len == HEADER {
            self.begin_packet()?;
        }
        Ok(rest)
    }

    fn begin_packet(&mut self) -> Result<(), LabError> {
        let [a, b, c, seq] = self.header;
        if seq != self.next_seq {
            return Err(violation(&format!("sequence number {seq} where {} was due", self.next_seq)));
        }
        self.next_seq = seq.wrapping_add(1);
        self.length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
        self.left = self.length;
        self.lead_len = 0;
        Ok(())
    }

    fn take_payload<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(bytes.len().min(self.left));
        if self.lead_len < LEAD {
            let wanted = taken.len().min(LEAD - self.lead_len);
            self.lead[self.lead_len..self.lead_len + wanted].copy_from_slice(&taken[..wanted]);
            self.lead_len += wanted;
        }
        self.left -= taken.len();
        rest
    }

    /// A packet is complete; whether the reply is.
    fn end_packet(&mut self) -> Result<bool, LabError> {
        if std::mem::replace(&mut self.continued, self.length == MAX_PAYLOAD) {
            self.reply.row_bytes += self.length as u64;
            return Ok(false);
        }
        let first = if self.lead_len == 0 { return Err(violation("an empty packet")) } else { self.lead[0] };
        if first == ERR && !matches!(self.stage, Stage::Skip { .. }) {
            return Err(self.server_error());
        }
        match self.stage {
            Stage::First => self.first_packet(first),
            Stage::Skip { left, then_rows } => Ok(self.skip(left - 1, then_rows)),
            Stage::Rows => Ok(self.row(first)),
        }
    }

    fn first_packet(&mut self, first: u8) -> Result<bool, LabError> {
        if first == OK {
            self.reply.lead = self.lead;
            let definitions = if self.expect == Expect::Prepared { self.definitions() } else { 0 };
            return Ok(self.skip(definitions, false));
        }
        if self.expect == Expect::Prepared || first >= LOCAL_INFILE {
            return Err(violation(&format!("a reply that begins with {first:#x}")));
        }
        let end = u64::from(self.eof_packets);
        Ok(self.skip(u64::from(first) + end, true))
    }

    /// Packets behind the first one of a reply to COM_STMT_PREPARE: parameters and columns, each list with its EOF packet.
    fn definitions(&self) -> u64 {
        let columns = u64::from(u16::from_le_bytes([self.lead[5], self.lead[6]]));
        let parameters = u64::from(u16::from_le_bytes([self.lead[7], self.lead[8]]));
        let ends = if self.eof_packets { columns.min(1) + parameters.min(1) } else { 0 };
        columns + parameters + ends
    }

    fn skip(&mut self, left: u64, then_rows: bool) -> bool {
        if left > 0 {
            self.stage = Stage::Skip { left, then_rows };
        } else if then_rows {
            self.stage = Stage::Rows;
        }
        left == 0 && !then_rows
    }

    fn row(&mut self, first: u8) -> bool {
        if first == EOF && self.length < MAX_PAYLOAD {
            return true;
        }
        self.reply.rows += 1;
        self.reply.row_bytes += self.length as u64;
        self.reply.lead = self.lead;
        false
    }

    fn server_error(&self) -> LabError {
        let code = u16::from_le_bytes([self.lead[1], self.lead[2]]);
        let message = String::from_utf8_lossy(&self.lead[3..self.lead_len.max(3)]).into_owned();
        LabError::Server { code, sqlstate: String::new(), message: format!("{message}...") }
    }
}

fn violation(what: &str) -> LabError {
    LabError::Protocol(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut seq = 1;
        payloads.iter().for_each(|payload| wire::packet::put_packet(&mut out, &mut seq, payload));
        out
    }

    /// Feeds in pieces of every size; the summary must not depend on it.
    fn read(bytes: &[u8], expect: Expect, eof_packets: bool) -> Reply {
        let mut replies = (1..=bytes.len()).map(|size| {
            let mut reader = ReplyReader::new(eof_packets);
            reader.begin(expect);
            let mut pieces = bytes.chunks(size).peekable();
            let mut ended = None;
            while let Some(piece) = pieces.next() {
                ended = reader.feed(piece).unwrap();
                assert!(ended.is_none() || pieces.peek().is_none());
            }
            ended.unwrap()
        });
        let first = replies.next().unwrap();
        assert!(replies.all(|reply| reply == first));
        first
    }

    #[test]
    fn result_sets() {
        let modern = packets(&[b"\x01", b"column", b"\x05hello", b"\x05world", b"\xfe\0\0\x02\0\0\0"]);
        let reply = read(&modern, Expect::Result, false);
        assert_eq!((reply.rows, reply.row_bytes, &reply.lead[..6]), (2, 12, &b"\x05world"[..]));
        let classic = packets(&[b"\x01", b"column", b"\xfe\0\0\x02\0", b"\x05hello", b"\xfe\0\0\x02\0"]);
        assert_eq!(read(&classic, Expect::Result, true).rows, 1);
        assert_eq!(read(&packets(&[b"\0\0\0\x02\0\0\0"]), Expect::Result, false).rows, 0);
    }

    #[test]
    fn prepared() {
        let ok = b"\0\x07\0\0\0\x01\0\x01\0\0\0\0";
        assert_eq!(read(&packets(&[ok, b"p", b"c"]), Expect::Prepared, false).statement_id(), 7);
        let eof = b"\xfe\0\0\x02\0";
        assert_eq!(read(&packets(&[ok, b"p", eof, b"c", eof]), Expect::Prepared, true).statement_id(), 7);
    }

    #[test]
    fn a_row_longer_than_a_packet() {
        let row = vec![b'x'; MAX_PAYLOAD + 10];
        let bytes = packets(&[b"\x01", b"column", &row, b"\xfe\0\0\x02\0\0\0"]);
        let mut reader = ReplyReader::new(false);
        reader.begin(Expect::Result);
        let reply = reader.feed(&bytes).unwrap().unwrap();
        assert_eq!((reply.rows, reply.row_bytes), (1, row.len() as u64));
    }

    #[test]
    fn refuses_what_is_wrong() {
        let wrong = |bytes: &[u8]| {
            let mut reader = ReplyReader::new(false);
            reader.begin(Expect::Result);
            reader.feed(bytes).unwrap_err()
        };
        assert_eq!(wrong(&packets(&[b"\xff\x7a\x04#42S02no"])).code(), Some(1146));
        assert_eq!(wrong(&packets(&[b"\x01", b"c", b"\xff\x7a\x04#42S02no"])).code(), Some(1146));
        wrong(b"\x01\0\0\x02\x01");
        let mut late = packets(&[b"\0\0\0\x02\0\0\0"]);
        late.push(0);
        wrong(&late);
    }
}
