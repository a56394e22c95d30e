//! A digest of a reply's content for the client. Two replies with the same content have the same [`ReplyDigest`].
//!
//! [`ReplyHasher`] is fed the server's bytes as they pass. The digest covers the columns' number and types, the rows' bytes, changed rows,
//! insert ids and warnings. It also covers the numbers in an OK's text, an error's code and the key that it names, and whether a
//! transaction is open. It does not cover framing, column names or the words of texts: these differ between connections, versions and
//! languages. Pure.

use crate::codes;
use crate::flags::{Capabilities, StatusFlags};
use crate::message::{EOF, ErrPacket, OkPacket};
use crate::packet::{self, HEADER};
use crate::reply::{Frame, ReplyKind, Step, Tracker};
use aws_lc_rs::digest::{Context, SHA256};

/// Bytes at the end of a column definition: type (1), flags (2), decimals (1), filler (2).
const DEFINITION_TAIL: usize = 6;

/// UNSIGNED_FLAG of a column: the same bytes are another number.
const UNSIGNED: u64 = 32;

/// Errors of a value that a key has already: the text names the key.
const DUPLICATE: [u16; 2] = [codes::DUP_ENTRY, codes::DUP_ENTRY_WITH_KEY_NAME];

/// Bytes kept: half of a SHA-256, enough against accidental collisions.
const KEPT: usize = 16;

/// The digest of one complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyDigest {
    digest: [u8; KEPT],
    /// The insert id of the last OK that had one; 0 for none.
    pub insert_id: u64,
    /// The error that ended the reply.
    pub error: Option<u16>,
    /// Whether a transaction is open after it, where the reply says so.
    pub in_transaction: Option<bool>,
    /// Whether the content of rows counts.
    pub rows: Rows,
}

/// How many of the given bytes a [`ReplyHasher`] used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes dealt with.
    pub consumed: usize,
    /// Bytes that must be there after those before it can go on; 0 when the reply is complete.
    pub needs: usize,
}

/// Whether the content of rows counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// The rows count.
    Counted,
    /// The rows do not count: the client gets other values than the server's.
    Replaced,
}

/// Hashes one reply as its bytes arrive.
pub struct ReplyHasher {
    tracker: Tracker,
    caps: Capabilities,
    rows: Rows,
    digest: Context,
    /// Bytes of the frame at hand that are still to come.
    left: usize,
    in_row: bool,
    /// The last bytes of the column definition at hand, which have its type.
    definition: Option<[u8; DEFINITION_TAIL]>,
    insert_id: u64,
    error: Option<u16>,
    in_transaction: Option<bool>,
    /// The reply cannot be read, or cannot be repeated.
    is_confused: bool,
}

impl ReplyHasher {
    /// For the reply to one command, on a connection with these capabilities.
    pub fn new(kind: ReplyKind, caps: Capabilities, rows: Rows) -> Self {
        Self {
            tracker: Tracker::new(kind, caps),
            caps,
            rows,
            digest: Context::new(&SHA256),
            left: 0,
            in_row: false,
            definition: None,
            insert_id: 0,
            error: None,
            in_transaction: None,
            is_confused: false,
        }
    }

    /// The reply is complete.
    pub fn is_done(&self) -> bool {
        self.tracker.is_done() && self.left == 0
    }

    /// True after a packet that cannot be read, or a reply that cannot be repeated (a client's file).
    pub fn is_confused(&self) -> bool {
        self.is_confused
    }

    /// Hashes the front of `bytes` as far as it can be read: whole frames, and parts of rows.
    pub fn feed(&mut self, bytes: &[u8]) -> Fed {
        let mut at = 0;
        while !self.is_done() && !self.is_confused {
            let rest = bytes.get(at..).unwrap_or_default();
            if self.left > 0 {
                let part = rest.get(..self.left).unwrap_or(rest);
                self.update(part);
                self.left -= part.len();
                at += part.len();
                if self.left > 0 {
                    return Fed { consumed: at, needs: 1 };
                }
                self.note_definition();
                continue;
            }
            match self.frame(rest) {
                Ok(len) => at += len,
                Err(needs) => return Fed { consumed: at, needs },
            }
        }
        Fed { consumed: at, needs: 0 }
    }

    /// The digest; None when the reply is not complete or cannot be repeated.
    pub fn finish(self) -> Option<ReplyDigest> {
        if !self.is_done() || self.is_confused {
            return None;
        }
        let digest = *self.digest.finish().as_ref().first_chunk()?;
        Some(ReplyDigest { digest, insert_id: self.insert_id, error: self.error, in_transaction: self.in_transaction, rows: self.rows })
    }

    /// Takes the frame at the front, or the available part of a row. Returns its length, or else the number of bytes needed.
    fn frame(&mut self, bytes: &[u8]) -> Result<usize, usize> {
        let (len, _) = packet::header(bytes).ok_or(HEADER)?;
        let rest = bytes.get(HEADER..).unwrap_or_default();
        let body = rest.get(..len).unwrap_or(rest);
        match self.tracker.frame(len, body) {
            Ok(Step::Frame(frame)) => self.note(frame, len, body),
            Ok(Step::Need(n)) => return Err(HEADER + n),
            Err(_) => self.is_confused = true,
        }
        self.left = len - body.len();
        if self.left == 0 {
            self.note_definition();
        }
        Ok(HEADER + body.len())
    }

    fn note(&mut self, frame: Frame, len: usize, body: &[u8]) {
        match frame {
            Frame::ColumnCount(columns) => self.count(b'C', &[columns]),
            Frame::Definition => {
                self.in_row = false;
                self.definition = Some([0; DEFINITION_TAIL]);
                self.update(body);
            }
            Frame::Row => {
                self.in_row = self.rows == Rows::Counted;
                if self.in_row {
                    self.count(b'R', &[len as u64]);
                }
                self.update(body);
            }
            Frame::Continuation => self.update(body),
            Frame::ResultEnd => {
                self.in_row = false;
                self.count(b'E', &[self.tracker.rows(), u64::from(self.tracker.warnings())]);
                self.note_status();
            }
            Frame::Ok => self.note_ok(body),
            Frame::Err => {
                let error = ErrPacket::parse(body, self.caps);
                let (code, message) = error.as_ref().map_or((0, &b""[..]), |e| (e.code, e.message));
                self.error = Some(code);
                self.count(b'X', &[u64::from(code)]);
                if DUPLICATE.contains(&code) {
                    let key = named_last(message);
                    self.count(b'K', &[key.len() as u64]);
                    self.digest.update(key);
                }
            }
            Frame::LocalInfile => self.is_confused = true,
            _ => self.in_row = false,
        }
    }

    fn note_ok(&mut self, body: &[u8]) {
        self.in_row = false;
        match OkPacket::parse(body, self.caps) {
            Ok(ok) if body.first() != Some(&EOF) => {
                if ok.last_insert_id != 0 {
                    self.insert_id = ok.last_insert_id;
                }
                self.count(b'O', &[ok.affected_rows, ok.last_insert_id, u64::from(ok.warnings)]);
                for number in ok.info.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
                    self.count(b'I', &[number.len() as u64]);
                    self.digest.update(number);
                }
                self.note_status();
            }
            _ => self.is_confused = true,
        }
    }

    fn note_status(&mut self) {
        let open = self.tracker.status().intersects(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY);
        self.in_transaction = Some(open);
    }

    fn update(&mut self, part: &[u8]) {
        if self.in_row {
            self.digest.update(part);
        }
        if let Some(tail) = self.definition.as_mut() {
            for byte in part.iter().skip(part.len().saturating_sub(DEFINITION_TAIL)) {
                tail.rotate_left(1);
                tail[DEFINITION_TAIL - 1] = *byte;
            }
        }
    }

    /// A column definition is complete, if one was at hand.
    fn note_definition(&mut self) {
        if let Some([kind, low, high, ..]) = self.definition.take() {
            let flags = u64::from(u16::from_le_bytes([low, high]));
            self.count(b'T', &[u64::from(kind), flags & UNSIGNED]);
        }
    }

    fn count(&mut self, what: u8, numbers: &[u64]) {
        self.digest.update(&[what]);
        for number in numbers {
            self.digest.update(&number.to_le_bytes());
        }
    }
}

/// The last quoted name in a text, without the part before a dot (a table, in some versions).
fn named_last(text: &[u8]) -> &[u8] {
    let quoted = text.rsplit(|byte| *byte == b'\'').nth(1).unwrap_or_default();
    quoted.rsplit(|byte| *byte == b'.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packets(payloads: &[Vec<u8>]) -> Vec<u8> {
        let (mut out, mut seq) = (Vec::new(), 1);
        for payload in payloads {
            packet::put_packet(&mut out, &mut seq, payload);
        }
        out
    }

    /// A result set of one column; `caps` decides on its framing.
    fn result(rows: &[&[u8]], caps: Capabilities) -> Vec<u8> {
        let deprecated = caps.contains(Capabilities::DEPRECATE_EOF);
        let mut all = vec![vec![1], b"\x03def".to_vec()];
        if !deprecated {
            all.push(vec![0xfe, 0, 0, 2, 0]);
        }
        for row in rows {
            let mut payload = vec![u8::try_from(row.len()).unwrap()];
            payload.extend_from_slice(row);
            all.push(payload);
        }
        all.push(if deprecated { vec![0xfe, 0, 0, 2, 0, 0, 0] } else { vec![0xfe, 0, 0, 2, 0] });
        packets(&all)
    }

    fn digest_of(bytes: &[u8], caps: Capabilities, rows: Rows) -> Option<ReplyDigest> {
        let mut hasher = ReplyHasher::new(ReplyKind::Results, caps, rows);
        hasher.feed(bytes);
        hasher.finish()
    }

    const PLAIN: Capabilities = Capabilities::PROTOCOL_41;

    #[test]
    fn the_same_rows_say_the_same_however_they_are_framed() {
        let new = PLAIN | Capabilities::DEPRECATE_EOF;
        let a = digest_of(&result(&[b"a", b"bc"], PLAIN), PLAIN, Rows::Counted).unwrap();
        assert_eq!(a, digest_of(&result(&[b"a", b"bc"], new), new, Rows::Counted).unwrap());
        for other in [&[&b"ab"[..], b"c"][..], &[b"a"], &[b"bc", b"a"], &[]] {
            assert_ne!(a, digest_of(&result(other, PLAIN), PLAIN, Rows::Counted).unwrap());
        }
        assert_eq!(
            digest_of(&result(&[b"a"], PLAIN), PLAIN, Rows::Replaced),
            digest_of(&result(&[b"b"], PLAIN), PLAIN, Rows::Replaced),
            "rows that the client does not see do not count"
        );
    }

    #[test]
    fn numbers_of_an_ok_count() {
        let ok = |affected, id, warnings| digest_of(&packets(&[vec![0, affected, id, 3, 0, warnings, 0]]), PLAIN, Rows::Counted).unwrap();
        let base = ok(1, 5, 0);
        assert_eq!((base.insert_id, base.in_transaction), (5, Some(true)));
        assert_eq!(base, ok(1, 5, 0));
        assert!(base != ok(2, 5, 0) && base != ok(1, 6, 0) && base != ok(1, 5, 1));
        let error = digest_of(&packets(&[b"\xff\x26\x04#23000Duplicate".to_vec()]), PLAIN, Rows::Counted).unwrap();
        assert_eq!((error.error, error.in_transaction), (Some(1062), None));
    }

    #[test]
    fn what_an_ok_or_an_error_says_counts_and_its_words_do_not() {
        let ok = |info: &str| digest_of(&packets(&[[&[0, 0, 0, 2, 0, 0, 0][..], info.as_bytes()].concat()]), PLAIN, Rows::Counted).unwrap();
        assert_eq!(ok("Rows matched: 1  Changed: 0  Warnings: 0"), ok("Passende: 1  Ge\u{e4}ndert: 0  Warnungen: 0"));
        assert_ne!(ok("Rows matched: 1  Changed: 0  Warnings: 0"), ok("Rows matched: 0  Changed: 0  Warnings: 0"));
        assert_ne!(ok("Rows matched: 11  Changed: 1"), ok("Rows matched: 1  Changed: 11"));
        let error = |code: u16, text: &str| {
            let packet = [&[0xff][..], &code.to_le_bytes(), b"#23000", text.as_bytes()].concat();
            digest_of(&packets(&[packet]), PLAIN, Rows::Counted).unwrap()
        };
        let primary = error(1062, "Duplicate entry '1' for key 'PRIMARY'");
        assert_eq!(primary, error(1062, "Duplicate entry '1' for key 't.PRIMARY'"));
        assert_ne!(primary, error(1062, "Duplicate entry '1' for key 't.u'"));
        assert_eq!(error(1064, "near 'a'"), error(1064, "near 'b'"));
        assert_eq!([named_last(b"it's"), named_last(b""), named_last(b"'a.b.c'")], [&b"it"[..], b"", b"c"]);
    }

    #[test]
    fn types_of_columns_count_and_names_do_not() {
        let column = |name: &str, kind: u8, flags: u8| {
            let definition = [b"\x03def".as_slice(), name.as_bytes(), &[12, 63, 0, 11, 0, 0, 0, kind, flags, 0, 0, 0, 0]].concat();
            let end = vec![0xfe, 0, 0, 2, 0];
            let bytes = packets(&[vec![1], definition, end.clone(), b"\x015".to_vec(), end]);
            let whole = digest_of(&bytes, PLAIN, Rows::Counted).unwrap();
            let mut hasher = ReplyHasher::new(ReplyKind::Results, PLAIN, Rows::Counted);
            let (mut at, mut end) = (0, 0);
            while end < bytes.len() {
                end += 1;
                at += hasher.feed(&bytes[at..end]).consumed;
            }
            assert_eq!(hasher.finish(), Some(whole));
            whole
        };
        assert_eq!(column("v", 3, 1), column("value", 3, 0));
        assert_ne!(column("v", 3, 0), column("v", 253, 0));
        assert_ne!(column("v", 3, 0), column("v", 3, 32));
    }

    #[test]
    fn half_a_reply_says_nothing() {
        let whole = result(&[b"abc"], PLAIN);
        assert_eq!(digest_of(&whole[..whole.len() - 9], PLAIN, Rows::Counted), None);
        assert_eq!(digest_of(&packets(&[b"\xfbfile".to_vec()]), PLAIN, Rows::Counted), None, "a file of the client's is not kept");
    }

    proptest! {
        /// However the bytes arrive, as long as each part is what can be dealt with.
        #[test]
        fn parts_do_not_matter(rows in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..8), cuts in proptest::collection::vec(1_usize..40, 0..60)) {
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            let bytes = result(&rows, PLAIN);
            let mut hasher = ReplyHasher::new(ReplyKind::Results, PLAIN, Rows::Counted);
            let (mut at, mut end) = (0, 0);
            let mut cuts = cuts.into_iter();
            while end < bytes.len() {
                end = (end + cuts.next().unwrap_or(7)).min(bytes.len());
                at += hasher.feed(&bytes[at..end]).consumed;
            }
            prop_assert_eq!(at, bytes.len());
            prop_assert_eq!(hasher.finish(), digest_of(&bytes, PLAIN, Rows::Counted));
        }
    }
}
