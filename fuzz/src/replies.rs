//! A small model of what servers answer: a reply is made from a fuzzer's bytes and written as either side agreed.

use wire::codec::put_lenenc;
use wire::message::{EOF, ErrPacket, OK, OkPacket, put_eof};
use wire::packet::put_packet;
use wire::prepared::PrepareOk;
use wire::reframe::TrackFilter;
use wire::reply::ReplyKind;
use wire::session_state::{Change, changes, put_change};
use wire::{Capabilities, StatusFlags};

use crate::input::Input;

/// The session's status, which EOF packets between definitions and rows carry.
pub const STATUS: StatusFlags = StatusFlags::AUTOCOMMIT;
/// More results than that are not made.
const MAX_RESULTS: usize = 4;

/// One reply.
#[derive(Debug)]
pub struct Reply<'a> {
    kind: ReplyKind,
    results: Vec<Answer<'a>>,
}

/// One answer of it.
#[derive(Debug)]
enum Answer<'a> {
    Ok { rows: u64, id: u64, info: &'a [u8], track: u8 },
    Err { text: &'a [u8] },
    Infile { name: &'a [u8] },
    Text { text: &'a [u8] },
    Prepared { params: u16, columns: u16 },
    Set { columns: usize, rows: Vec<&'a [u8]>, end: End },
}

/// How a result set ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Plain {
        warnings: u8,
        track: u8,
    },
    /// No rows: a cursor was opened.
    Cursor,
    Err,
}

impl<'a> Reply<'a> {
    /// Makes a reply of this kind out of whatever the input holds.
    pub fn read(kind: ReplyKind, input: &mut Input<'a>) -> Self {
        let mut results = Vec::new();
        loop {
            let answer = Answer::read(kind, input);
            let last = !has_results(kind) || answer.ends() || input.byte() & 1 == 0 || results.len() + 1 == MAX_RESULTS;
            let infile = matches!(answer, Answer::Infile { .. });
            results.push(answer);
            if infile {
                results.push(Answer::Ok { rows: 1, id: 0, info: b"", track: 0 });
            }
            if last {
                return Self { kind, results };
            }
        }
    }

    /// The reply's packets for a side that agreed to `caps`; `sent` are those of the server that says it: what it cannot say
    /// is not there. `filter` is what the client tracks; without it everything is kept.
    pub fn write(&self, caps: Capabilities, sent: Capabilities, filter: Option<&TrackFilter>) -> Vec<u8> {
        let mut writer = Writer { kind: self.kind, caps, sent, filter, out: Vec::new(), seq: 1 };
        for (index, answer) in self.results.iter().enumerate() {
            let more = index + 1 < self.results.len();
            writer.answer(answer, if more { STATUS | StatusFlags::MORE_RESULTS } else { STATUS });
        }
        writer.out
    }
}

impl<'a> Answer<'a> {
    fn read(kind: ReplyKind, input: &mut Input<'a>) -> Self {
        let shape = input.byte();
        match (kind, shape % 4) {
            (_, 3) => Self::Err { text: input.piece().unwrap_or_default() },
            (ReplyKind::Results | ReplyKind::Cursor, 2) if shape & 16 != 0 => Self::Infile { name: input.piece().unwrap_or_default() },
            (ReplyKind::Results | ReplyKind::Cursor, 1 | 2) | (ReplyKind::Fetch | ReplyKind::FieldList, _) => Self::set(kind, input),
            (ReplyKind::Results | ReplyKind::Cursor | ReplyKind::Simple, _) => Self::Ok {
                rows: u64::from(input.byte()),
                id: u64::from(input.byte()),
                info: input.piece().unwrap_or_default(),
                track: input.byte(),
            },
            (ReplyKind::Prepare, _) => Self::Prepared { params: u16::from(input.byte() % 3), columns: u16::from(input.byte() % 3) },
            (ReplyKind::Text, _) => {
                Self::Text { text: input.piece().filter(|text| !matches!(text, [] | [0xff, ..])).unwrap_or(b"Uptime: 1") }
            }
        }
    }

    fn set(kind: ReplyKind, input: &mut Input<'a>) -> Self {
        let (columns, ending) = (1 + usize::from(input.byte() % 3), input.byte());
        let end = match ending & 3 {
            1 if kind == ReplyKind::Cursor => End::Cursor,
            2 => End::Err,
            _ => End::Plain { warnings: ending >> 2, track: input.byte() },
        };
        let mut rows = Vec::new();
        for _ in 0..if end == End::Cursor { 0 } else { input.byte() % 8 } {
            // No short row begins like an EOF or ERR packet.
            rows.extend(input.piece().filter(|row| !matches!(row, [0xfe | 0xff, ..])));
        }
        Self::Set { columns, rows, end }
    }

    fn ends(&self) -> bool {
        matches!(self, Self::Err { .. } | Self::Set { end: End::Err, .. })
    }
}

/// Is this a reply to what may give several results?
fn has_results(kind: ReplyKind) -> bool {
    matches!(kind, ReplyKind::Results | ReplyKind::Cursor)
}

struct Writer<'f> {
    kind: ReplyKind,
    caps: Capabilities,
    sent: Capabilities,
    filter: Option<&'f TrackFilter>,
    out: Vec<u8>,
    seq: u8,
}

impl Writer<'_> {
    fn packet(&mut self, payload: &[u8]) {
        put_packet(&mut self.out, &mut self.seq, payload);
    }

    fn answer(&mut self, answer: &Answer<'_>, status: StatusFlags) {
        match answer {
            Answer::Ok { rows, id, info, track } => {
                self.ok(OK, OkPacket { affected_rows: *rows, last_insert_id: *id, status, info, ..OkPacket::default() }, *track)
            }
            Answer::Err { text } => self.err(text),
            Answer::Infile { name } => {
                self.packet(&[b"\xfb", *name].concat());
                self.seq = self.seq.wrapping_add(1); // the client's empty packet
            }
            Answer::Text { text } => self.packet(text),
            Answer::Prepared { params, columns } => {
                let mut payload = Vec::new();
                PrepareOk { stmt_id: 1, params: *params, columns: *columns, ..PrepareOk::default() }.write(&mut payload, self.caps);
                self.packet(&payload);
                self.definitions(usize::from(*params));
                self.definitions(usize::from(*columns));
            }
            Answer::Set { columns, rows, end } => self.set(*columns, rows, *end, status),
        }
    }

    fn set(&mut self, columns: usize, rows: &[&[u8]], end: End, status: StatusFlags) {
        if has_results(self.kind) {
            let mut count = Vec::new();
            put_lenenc(&mut count, columns as u64);
            self.packet(&count);
            (0..columns).for_each(|_| self.packet(b"\x03def"));
            if end != End::Cursor {
                self.middle();
            }
        }
        rows.iter().for_each(|row| self.packet(row));
        match end {
            End::Plain { warnings, track } => self.end(status, u16::from(warnings), track),
            End::Cursor => self.end(status | StatusFlags::CURSOR_EXISTS, 0, 0),
            End::Err => self.err(b"gone"),
        }
    }

    fn definitions(&mut self, count: usize) {
        (0..count).for_each(|_| self.packet(b"\x03def"));
        if count > 0 {
            self.middle();
        }
    }

    /// The EOF behind definitions.
    fn middle(&mut self) {
        if !self.caps.contains(Capabilities::DEPRECATE_EOF) {
            self.eof(STATUS, 0);
        }
    }

    /// The end of rows. A server without CLIENT_DEPRECATE_EOF cannot say what changed in the session there.
    fn end(&mut self, status: StatusFlags, warnings: u16, track: u8) {
        if !self.caps.contains(Capabilities::DEPRECATE_EOF) {
            return self.eof(status, warnings);
        }
        let track = if self.sent.contains(Capabilities::DEPRECATE_EOF) { track } else { 0 };
        self.ok(EOF, OkPacket { status, warnings, ..OkPacket::default() }, track);
    }

    fn eof(&mut self, status: StatusFlags, warnings: u16) {
        let mut payload = Vec::new();
        put_eof(&mut payload, warnings, status);
        self.packet(&payload);
    }

    fn ok(&mut self, header: u8, ok: OkPacket<'_>, track: u8) {
        let session_state = if self.sent.contains(Capabilities::SESSION_TRACK) { self.tracked(track) } else { Vec::new() };
        let mut payload = Vec::new();
        OkPacket { session_state: &session_state, ..ok }.write(&mut payload, header, self.caps);
        self.packet(&payload);
    }

    fn err(&mut self, text: &[u8]) {
        let mut payload = Vec::new();
        ErrPacket { code: 1290, sqlstate: ErrPacket::GENERAL, message: text }.write(&mut payload, self.caps);
        self.packet(&payload);
    }

    /// The session-track entries that the bits of `track` stand for, as far as they are wanted.
    fn tracked(&self, track: u8) -> Vec<u8> {
        let all = [
            Change::SystemVariable { name: b"autocommit", value: b"OFF" },
            Change::SystemVariable { name: b"sql_mode", value: b"" },
            Change::Schema(b"shop"),
            Change::StateChange(true),
            Change::Gtids(b"0-1-2"),
        ];
        let mut out = Vec::new();
        for (_, change) in all.iter().enumerate().filter(|(bit, _)| track >> bit & 1 == 1) {
            if self.filter.is_none_or(|filter| filter.wants(change)) {
                put_change(&mut out, change);
            }
        }
        assert!(changes(&out).all(|change| change.is_ok()));
        out
    }
}
