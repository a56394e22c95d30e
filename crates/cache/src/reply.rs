//! A server's whole reply, cut down to what a cache keeps: column count, column definitions and rows.
//!
//! [`Captured::read`] takes the bytes as the server sent them and refuses ([`NotCached`]) what must not be given to another
//! client. EOF packets are taken out, and the end is made anew for each answer. Definitions of columns stay as the server made
//! them: [`Captured::caps`] says how that was. Pure.

use wire::flags::{Capabilities, StatusFlags};
use wire::message::{ErrPacket, OkPacket};
use wire::packet::{self, HEADER, MAX_PAYLOAD};
use wire::reply::{Frame, ReplyKind, Step, Tracker};
use wire::session_state::{Change, changes};

/// The framing of what a cache keeps and answers, whatever the server had agreed to.
const FRAMING: Capabilities = Capabilities::PROTOCOL_41.union(Capabilities::TRANSACTIONS).union(Capabilities::DEPRECATE_EOF);

/// What decides, of what was agreed with the server, how definitions of columns and rows look. `CLIENT_DEPRECATE_EOF` and session
/// tracking are dealt with by [`Captured::read`]. `CLIENT_OPTIONAL_RESULTSET_METADATA` and `MARIADB_CLIENT_CACHE_METADATA` are agreed
/// with no server.
const SHAPE: Capabilities = Capabilities::MARIADB_CLIENT_EXTENDED_METADATA;

/// Why a reply is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCached {
    /// It is an error.
    Error(u16),
    /// It is no result set: an OK, or a wish for a file.
    NoResultSet,
    /// More results follow it.
    MoreResults,
    /// Its rows are behind a cursor, or it holds OUT parameters.
    Cursor,
    /// It was given inside a transaction.
    InTransaction,
    /// The statement changed the session.
    ChangesSession,
    /// It has warnings, and `query_cache_handle_warnings` is 0.
    Warnings,
    /// It has no rows, and those are not to be kept.
    Empty,
    /// It is larger than `query_cache_max_entry_bytes`.
    TooLarge,
    /// There is no memory left in the cache's budget.
    NoRoom,
    /// The cache was flushed, or switched off, while it was fetched.
    Flushed,
    /// It is not complete, or not understood.
    Malformed,
}

/// A result set that may be kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    /// Packets with headers.
    pub packets: Vec<u8>,
    /// Where the first row begins.
    pub rows_at: usize,
    /// How many rows.
    pub rows: u64,
    /// Warnings.
    pub warnings: u16,
    /// Status flags of the end.
    pub status: StatusFlags,
    /// As if agreed with a server that sent these packets.
    pub caps: Capabilities,
}

impl Captured {
    /// Reads a whole reply; `from` is what was agreed with its server.
    ///
    /// # Errors
    /// [`NotCached`]
    pub(crate) fn read(mut bytes: Vec<u8>, from: Capabilities) -> Result<Self, NotCached> {
        let marks = ReplyMarks::find(&bytes, from)?;
        bytes.truncate(marks.rows_end);
        bytes.drain(marks.definitions_end..marks.rows_at);
        let rows_at = marks.definitions_end;
        let caps = FRAMING | (from & SHAPE);
        Ok(Self { packets: bytes, rows_at, rows: marks.rows, warnings: marks.warnings, status: marks.status, caps })
    }
}

/// Where the parts of a reply are.
struct ReplyMarks {
    definitions_end: usize,
    rows_at: usize,
    rows_end: usize,
    rows: u64,
    warnings: u16,
    status: StatusFlags,
}

impl ReplyMarks {
    fn find(bytes: &[u8], from: Capabilities) -> Result<Self, NotCached> {
        let mut tracker = Tracker::new(ReplyKind::Results, from);
        let (mut at, mut definitions_end, mut rows_at) = (0, 0, 0);
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let (len, _) = packet::header(rest).ok_or(NotCached::Malformed)?;
            let payload = rest.get(HEADER..HEADER + len).ok_or(NotCached::Malformed)?;
            if len == MAX_PAYLOAD {
                return Err(NotCached::TooLarge);
            }
            let Ok(Step::Frame(frame)) = tracker.frame(len, payload) else { return Err(NotCached::Malformed) };
            let start = at;
            at += HEADER + len;
            match frame {
                Frame::ColumnCount(_) | Frame::Row => {}
                Frame::Definition => (definitions_end, rows_at) = (at, at),
                Frame::DefinitionsEnd => rows_at = at,
                Frame::ResultEnd if at == bytes.len() => {
                    check_end(&tracker, payload, from)?;
                    let (rows, warnings, status) = (tracker.rows(), tracker.warnings(), tracker.status());
                    return Ok(Self { definitions_end, rows_at, rows_end: start, rows, warnings, status });
                }
                Frame::ResultEnd if tracker.status().contains(StatusFlags::MORE_RESULTS) => return Err(NotCached::MoreResults),
                Frame::Err => return Err(NotCached::Error(ErrPacket::parse(payload, from).map_or(0, |error| error.code))),
                Frame::Ok | Frame::LocalInfile => return Err(NotCached::NoResultSet),
                _ => return Err(NotCached::Malformed),
            }
        }
    }
}

fn check_end(tracker: &Tracker, payload: &[u8], from: Capabilities) -> Result<(), NotCached> {
    const REFUSED: [(StatusFlags, NotCached); 4] = [
        (StatusFlags::MORE_RESULTS, NotCached::MoreResults),
        (StatusFlags::CURSOR_EXISTS.union(StatusFlags::LAST_ROW_SENT), NotCached::Cursor),
        (StatusFlags::PS_OUT_PARAMS, NotCached::Cursor),
        (StatusFlags::IN_TRANS.union(StatusFlags::IN_TRANS_READONLY), NotCached::InTransaction),
    ];
    let refused = REFUSED.iter().find(|(flags, _)| tracker.status().intersects(*flags));
    if let Some((_, refusal)) = refused {
        return Err(*refusal);
    }
    if from.contains(Capabilities::DEPRECATE_EOF) {
        let ok = OkPacket::parse(payload, from).map_err(|_| NotCached::Malformed)?;
        if changes(ok.session_state).any(|change| change.as_ref().is_ok_and(alters_session) || change.is_err()) {
            return Err(NotCached::ChangesSession);
        }
    }
    Ok(())
}

fn alters_session(change: &Change<'_>) -> bool {
    matches!(change, Change::SystemVariable { .. } | Change::Schema(_) | Change::StateChange(true))
}
