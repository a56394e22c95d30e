//! What a reply says, in a form of fixed size, however many rows it has.
//!
//! The hash of a row is taken of its canonical bytes ([`crate::value`]) and *added* to the sum, so the sum does not depend on the order of
//! rows. A second number depends on it. INVARIANT: at most one row is held, of at most [`MAX_ROW`] bytes.

use crate::value::{Canonical, ColumnType};
use wire::codec::Reader;
use wire::flags::{Capabilities, StatusFlags};
use wire::message::ErrPacket;
use wire::packet::{self, HEADER};
use wire::reply::{Frame, ReplyKind, Step, Tracker};

/// Longest row (bytes) that is read. The answer with a longer one is not [whole](Answer::is_whole).
pub const MAX_ROW: usize = 1 << 20;
/// Bytes of a longer packet that are looked at.
const PEEK: usize = 64;
/// Bytes at the end of a column definition: 0x0c, character set (2), length (4), type (1), flags (2), decimals (1), filler (2).
const DEFINITION_TAIL: usize = 13;

/// The protocol that rows come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Answers to COM_QUERY.
    Text,
    /// Answers to COM_STMT_EXECUTE.
    Binary,
}

/// Hashes of the column definitions, one for each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Columns of all results.
    pub count: u64,
    /// Their names.
    pub names: u64,
    /// Their types.
    pub types: u64,
    /// Lengths and decimals.
    pub lengths: u64,
    /// Flags.
    pub flags: u64,
    /// Character sets.
    pub charsets: u64,
}

/// Parts of column definitions, in words.
pub const COLUMN_PARTS: [&str; 6] = ["number of columns", "names", "types", "lengths", "flags", "character sets"];

impl Columns {
    /// Which parts differ, in the order of [`COLUMN_PARTS`].
    pub fn differ(&self, other: &Self) -> [bool; COLUMN_PARTS.len()] {
        let parts = |of: &Self| [of.count, of.names, of.types, of.lengths, of.flags, of.charsets];
        let mut differ = [false; COLUMN_PARTS.len()];
        for (differs, (one, other)) in differ.iter_mut().zip(parts(self).into_iter().zip(parts(other))) {
            *differs = one != other;
        }
        differ
    }

    /// The parts that differ, in words; empty for equal definitions.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        COLUMN_PARTS.into_iter().zip(self.differ(other)).filter(|(_, differs)| *differs).map(|(part, _)| part).collect()
    }
}

/// Hashes of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowHashes {
    /// Sum of the rows' hashes, floats rounded.
    pub sum: u128,
    /// The same with all digits of floats.
    pub exact: u128,
    /// A hash of the rows in their order.
    pub sequence: u64,
}

impl RowHashes {
    fn add(&mut self, row: &Canonical, has_floats: bool) {
        let hash = hash(&row.rounded);
        self.sum = self.sum.wrapping_add(hash);
        self.exact = self.exact.wrapping_add(if has_floats { self::hash(&row.exact) } else { hash });
        self.sequence = mix(self.sequence, &hash.to_le_bytes());
    }
}

/// What a complete reply said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The error that ended it.
    pub error: Option<u16>,
    /// Its column definitions.
    pub columns: Columns,
    /// Its rows.
    pub rows: u64,
    /// Rows that its statements changed, as OK packets say.
    pub affected: u64,
    /// The last insert id that an OK packet said; 0 for none.
    pub insert_id: u64,
    /// Its warnings.
    pub warnings: u16,
    /// Sum of the rows' hashes, floats rounded.
    pub sum: u128,
    /// The same with all digits of floats.
    pub exact: u128,
    /// A hash of the rows in their order.
    pub sequence: u64,
    /// Hashes of the rows without the columns that are [left out](AnswerReader::leaving_out); None where there is no such column.
    pub without: Option<RowHashes>,
    /// Every row was read. A row beyond [`MAX_ROW`] was not.
    pub is_whole: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            error: None,
            columns: Columns::default(),
            rows: 0,
            affected: 0,
            insert_id: 0,
            warnings: 0,
            sum: 0,
            exact: 0,
            sequence: 0,
            without: None,
            is_whole: true,
        }
    }
}

impl Answer {
    /// An error without anything before it.
    pub fn of_error(code: u16) -> Self {
        Self { error: Some(code), ..Self::default() }
    }

    /// Hashes of all values.
    pub fn hashes(&self) -> RowHashes {
        RowHashes { sum: self.sum, exact: self.exact, sequence: self.sequence }
    }

    fn add_row(&mut self, row: &Canonical, has_floats: bool) {
        let mut hashes = self.hashes();
        hashes.add(row, has_floats);
        (self.sum, self.exact, self.sequence) = (hashes.sum, hashes.exact, hashes.sequence);
    }
}

/// 128 bits of the bytes.
fn hash(bytes: &[u8]) -> u128 {
    u128::from(sql::spooky_hash64(bytes, 1)) | (u128::from(sql::spooky_hash64(bytes, 2)) << 64)
}

/// A hash of what was hashed so far and of these bytes.
fn mix(before: u64, bytes: &[u8]) -> u64 {
    sql::spooky_hash64(bytes, before)
}

/// Reads a reply as its bytes arrive, in pieces of any size.
#[derive(Debug)]
pub struct AnswerReader {
    tracker: Tracker,
    caps: Capabilities,
    form: Form,
    answer: Answer,
    columns: Vec<ColumnType>,
    has_floats: bool,
    row: Canonical,
    /// Names of columns whose values are left out, in lower case.
    left_out: Vec<Box<[u8]>>,
    /// Which columns these are in the result at hand; empty if it has none.
    is_left_out: Vec<bool>,
    /// The row without them.
    rest: Canonical,
    without: RowHashes,
    has_left_out: bool,
    /// The frame at hand, as far as it is there.
    pending: Vec<u8>,
    /// Bytes of a long frame that are still to come.
    skipping: usize,
    /// The reply cannot be read.
    is_confused: bool,
}

impl AnswerReader {
    /// For the reply to a COM_QUERY or COM_STMT_EXECUTE without a cursor, on a connection with these capabilities.
    pub fn new(form: Form, caps: Capabilities) -> Self {
        Self {
            tracker: Tracker::new(ReplyKind::Results, caps),
            caps,
            form,
            answer: Answer::default(),
            columns: Vec::new(),
            has_floats: false,
            row: Canonical::default(),
            left_out: Vec::new(),
            is_left_out: Vec::new(),
            rest: Canonical::default(),
            without: RowHashes::default(),
            has_left_out: false,
            pending: Vec::new(),
            skipping: 0,
            is_confused: false,
        }
    }

    /// Hashes rows without these columns too. Names are compared without regard to the case of ASCII letters.
    pub fn leaving_out(self, columns: &[Box<str>]) -> Self {
        Self { left_out: columns.iter().map(|name| name.to_ascii_lowercase().into_bytes().into()).collect(), ..self }
    }

    /// The error that was read so far.
    pub fn error(&self) -> Option<u16> {
        self.answer.error
    }

    /// The server's status, as the last packet that has one says.
    pub fn status(&self) -> StatusFlags {
        self.tracker.status()
    }

    /// The reply is complete.
    pub fn is_done(&self) -> bool {
        self.tracker.is_done() && self.skipping == 0
    }

    /// The reply cannot be read, and what follows of it cannot either.
    pub fn is_confused(&self) -> bool {
        self.is_confused
    }

    /// The answer; None when the reply is not complete or cannot be read.
    pub fn finish(self) -> Option<Answer> {
        let without = self.has_left_out.then_some(self.without);
        (self.is_done() && !self.is_confused).then_some(Answer { without, ..self.answer })
    }

    /// Takes the next bytes of the reply.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_done() && !self.is_confused {
            let here = self.skipping.min(bytes.len());
            if here > 0 {
                self.skipping -= here;
                bytes = bytes.get(here..).unwrap_or_default();
                continue;
            }
            let whole = wanted(bytes);
            if self.pending.is_empty() && whole > HEADER && bytes.len() >= whole {
                let (frame, rest) = bytes.split_at(whole);
                self.frame(frame);
                bytes = rest;
            } else {
                bytes = self.keep(bytes);
            }
        }
    }

    /// Adds bytes to the frame at hand; returns the rest.
    fn keep<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let missing = wanted(&self.pending).saturating_sub(self.pending.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.pending.extend_from_slice(taken);
        if self.pending.len() >= HEADER && self.pending.len() == wanted(&self.pending) {
            let mut frame = std::mem::take(&mut self.pending);
            self.frame(&frame);
            frame.clear();
            self.pending = frame;
        }
        rest
    }

    /// Takes a frame: whole, or the first bytes of a long one.
    fn frame(&mut self, frame: &[u8]) {
        let Some((len, _)) = packet::header(frame) else { return };
        let body = frame.get(HEADER..).unwrap_or_default();
        self.skipping = len.saturating_sub(body.len());
        match self.tracker.frame(len, body) {
            Ok(Step::Frame(kind)) => self.note(kind, body),
            Ok(Step::Need(_)) | Err(_) => self.is_confused = true,
        }
    }

    fn note(&mut self, frame: Frame, body: &[u8]) {
        match frame {
            Frame::ColumnCount(columns) => {
                self.columns.clear();
                self.is_left_out.clear();
                self.has_floats = false;
                self.answer.columns.count += columns;
            }
            Frame::Definition => self.is_confused |= self.define(body).is_none(),
            Frame::Row if self.skipping > 0 => {
                self.answer.rows += 1;
                self.answer.is_whole = false;
            }
            Frame::Row => self.is_confused |= self.read_row(body).is_none(),
            Frame::Continuation => self.answer.is_whole = false,
            Frame::Ok => {
                self.answer.warnings = self.tracker.warnings();
                self.is_confused |= self.count(body).is_none();
            }
            Frame::ResultEnd => self.answer.warnings = self.tracker.warnings(),
            Frame::Err => self.answer.error = Some(ErrPacket::parse(body, self.caps).map_or(0, |error| error.code)),
            Frame::LocalInfile => self.is_confused = true,
            _ => {}
        }
    }

    /// Takes the numbers of an OK packet.
    fn count(&mut self, body: &[u8]) -> Option<()> {
        let mut numbers = Reader::new(body.get(1..)?);
        let (affected, insert_id) = (numbers.lenenc().ok()?, numbers.lenenc().ok()?);
        self.answer.affected = self.answer.affected.wrapping_add(affected);
        if insert_id != 0 {
            self.answer.insert_id = insert_id;
        }
        Some(())
    }

    fn define(&mut self, body: &[u8]) -> Option<()> {
        let mut names = Reader::new(body);
        // Catalog, schema, table, original table, and the name.
        let mut name = &[][..];
        for _ in 0..5 {
            name = names.lenenc_bytes().ok()?;
        }
        let tail = body.get(body.len().checked_sub(DEFINITION_TAIL)?..)?;
        let [_, charset @ .., _, _] = tail else { return None };
        let [c1, c2, length @ .., kind, f1, f2, decimals] = charset else { return None };
        let flags = u16::from_le_bytes([*f1, *f2]);
        let columns = &mut self.answer.columns;
        columns.names = mix(columns.names, name);
        columns.types = mix(columns.types, &[*kind]);
        columns.lengths = mix(mix(columns.lengths, length), &[*decimals]);
        columns.flags = mix(columns.flags, &flags.to_le_bytes());
        columns.charsets = mix(columns.charsets, &[*c1, *c2]);
        let column = ColumnType { kind: *kind, flags };
        self.has_floats |= column.is_float();
        if self.left_out.iter().any(|left_out| name.eq_ignore_ascii_case(left_out)) {
            self.is_left_out.resize(self.columns.len(), false);
            self.is_left_out.push(true);
        }
        self.columns.push(column);
        Some(())
    }

    fn read_row(&mut self, body: &[u8]) -> Option<()> {
        self.row.begin(self.has_floats);
        self.rest.begin(self.has_floats);
        match self.form {
            Form::Text => self.read_text_row(body)?,
            Form::Binary => self.read_binary_row(body)?,
        }
        self.answer.rows += 1;
        self.answer.add_row(&self.row, self.has_floats);
        if !self.left_out.is_empty() {
            // A result without such a column counts in both.
            let row = if self.is_left_out.is_empty() { &self.row } else { &self.rest };
            self.without.add(row, self.has_floats);
            self.has_left_out |= !self.is_left_out.is_empty();
        }
        Some(())
    }

    /// Whether the column at this place belongs to the rows that are hashed without some columns.
    fn is_of_rest(&self, place: usize) -> bool {
        !self.is_left_out.is_empty() && !self.is_left_out.get(place).copied().unwrap_or(false)
    }

    fn put_null(&mut self, place: usize) {
        self.row.put_null();
        if self.is_of_rest(place) {
            self.rest.put_null();
        }
    }

    fn read_text_row(&mut self, body: &[u8]) -> Option<()> {
        let mut values = Reader::new(body);
        for place in 0..self.columns.len() {
            let column = *self.columns.get(place)?;
            match values.lenenc_opt().ok()? {
                None => self.put_null(place),
                Some(len) => {
                    let value = values.bytes(usize::try_from(len).ok()?).ok()?;
                    self.row.put_text(column, value);
                    if self.is_of_rest(place) {
                        self.rest.put_text(column, value);
                    }
                }
            }
        }
        values.is_empty().then_some(())
    }

    fn read_binary_row(&mut self, body: &[u8]) -> Option<()> {
        let mut values = Reader::new(body);
        values.u8().ok()?;
        // The map of NULLs has two unused bits at its front.
        let nulls = values.bytes((self.columns.len() + 9) / 8).ok()?;
        for place in 0..self.columns.len() {
            let (column, bit) = (*self.columns.get(place)?, place + 2);
            if nulls.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0) {
                self.put_null(place);
            } else {
                let mut same = values;
                self.row.put_binary(column, &mut values).ok()?;
                if self.is_of_rest(place) {
                    self.rest.put_binary(column, &mut same).ok()?;
                }
            }
        }
        values.is_empty().then_some(())
    }
}

/// Bytes of the frame at the front that must be there; the header's as long as that is not there.
fn wanted(front: &[u8]) -> usize {
    packet::header(front).map_or(HEADER, |(len, _)| HEADER + if len > MAX_ROW { PEEK } else { len })
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
