//! Follows a server's reply packet by packet without decoding rows.
//!
//! A [`Tracker`] first gets the command that was sent. Then it gets each frame's length and the first bytes of its payload. It returns the
//! frame's kind ([`Frame`]) and knows when the reply is over. It holds a few words of state and never buffers.
//!
//! Sources: MySQL protocol pages "COM_QUERY Response", "COM_STMT_PREPARE Response", "COM_STMT_EXECUTE Response".

use crate::WireError;
use crate::codec::Reader;
use crate::flags::{Capabilities, StatusFlags};
use crate::packet::MAX_PAYLOAD;

/// Which command the reply answers: decides the shape of the first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// COM_QUERY, COM_STMT_EXECUTE, COM_PROCESS_INFO, bulk execute: OK, ERR, LOCAL INFILE or result sets.
    Results,
    /// A COM_STMT_EXECUTE that asked for a cursor: as [`ReplyKind::Results`], but a result may have its rows behind the cursor. Only
    /// such a reply has one: servers leave SERVER_STATUS_CURSOR_EXISTS set for cursors of stored code, too.
    Cursor,
    /// COM_STMT_PREPARE.
    Prepare,
    /// COM_STMT_FETCH: rows, then EOF.
    Fetch,
    /// COM_FIELD_LIST: column definitions, then EOF.
    FieldList,
    /// COM_PING, COM_INIT_DB, COM_RESET_CONNECTION, COM_SET_OPTION, ...: one OK, EOF or ERR.
    Simple,
    /// COM_STATISTICS: one packet of text (or ERR).
    Text,
}

/// The kind of a frame, as far as a proxy must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A further frame of a packet over 16 MiB: belongs to the frame before it.
    Continuation,
    /// The column count of a result set.
    ColumnCount(u64),
    /// COM_STMT_PREPARE_OK; read it with `prepared::PrepareOk`.
    Prepared,
    /// A column or parameter definition.
    Definition,
    /// The EOF between definitions and rows (or between parameters and columns).
    DefinitionsEnd,
    /// A row, text or binary.
    Row,
    /// OK: a statement without a result set (or the reply to a simple command).
    Ok,
    /// The OK or EOF packet that ends a result set.
    ResultEnd,
    /// The server asks for the client's file.
    LocalInfile,
    /// ERR: ends the whole reply.
    Err,
    /// Text of COM_STATISTICS.
    Text,
}

/// Answer of [`Tracker::frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The frame is understood; its header and payload may be passed on.
    Frame(Frame),
    /// This many payload bytes must be at hand before the frame can be understood.
    Need(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    First,
    Definitions { left: u64 },
    DefinitionsEof,
    Rows,
    Params { left: u64, columns: u64 },
    ParamsEof { columns: u64 },
    PrepareColumns { left: u64 },
    PrepareColumnsEof,
    Infile,
    Done,
}

/// The state of one reply.
#[derive(Clone, Debug)]
pub struct Tracker {
    kind: ReplyKind,
    phase: Phase,
    deprecate_eof: bool,
    continuing: bool,
    status: StatusFlags,
    warnings: u16,
    rows: u64,
    group_ended: bool,
}

/// Length of a whole EOF packet's payload.
const EOF_LEN: usize = 5;
/// An EOF packet is shorter than this; a row that begins with 0xfe is longer.
const EOF_LIMIT: usize = 9;

impl Tracker {
    /// A tracker for the reply to one command on a connection with these (negotiated) capabilities.
    #[must_use]
    pub fn new(kind: ReplyKind, caps: Capabilities) -> Self {
        let phase = match kind {
            ReplyKind::Fetch | ReplyKind::FieldList => Phase::Rows,
            _ => Phase::First,
        };
        Self {
            kind,
            phase,
            deprecate_eof: caps.contains(Capabilities::DEPRECATE_EOF),
            continuing: false,
            status: StatusFlags::default(),
            warnings: 0,
            rows: 0,
            group_ended: false,
        }
    }

    /// True when the last packet of the reply has been seen.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done && !self.continuing
    }

    /// True while the first packet of a result is expected.
    #[cfg(test)]
    pub(crate) fn is_at_start(&self) -> bool {
        self.phase == Phase::First && !self.continuing
    }

    /// True while definitions of columns or parameters are expected.
    #[must_use]
    pub fn in_definitions(&self) -> bool {
        matches!(self.phase, Phase::Definitions { .. } | Phase::Params { .. } | Phase::PrepareColumns { .. })
    }

    /// True after [`Frame::LocalInfile`], until [`Tracker::infile_sent`].
    #[must_use]
    pub fn wants_infile(&self) -> bool {
        self.phase == Phase::Infile
    }

    /// The client's file has been sent; an OK or ERR follows.
    pub fn infile_sent(&mut self) {
        self.phase = Phase::First;
    }

    /// Status flags of the last OK or EOF packet.
    #[must_use]
    pub fn status(&self) -> StatusFlags {
        self.status
    }

    /// Warning count of the last OK or EOF packet.
    #[must_use]
    pub fn warnings(&self) -> u16 {
        self.warnings
    }

    /// The last result's rows are behind a cursor that the command asked for.
    #[must_use]
    pub fn opened_cursor(&self) -> bool {
        self.kind == ReplyKind::Cursor && self.status.contains(StatusFlags::CURSOR_EXISTS)
    }

    /// True right after the last definition of a group (columns, or a prepared statement's parameters): the place where
    /// connections without CLIENT_DEPRECATE_EOF have an EOF packet.
    #[must_use]
    pub fn group_ended(&self) -> bool {
        self.group_ended
    }

    /// The kind of reply that the command leads to.
    #[must_use]
    pub fn kind(&self) -> ReplyKind {
        self.kind
    }

    /// Rows of the last (or current) result set.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes the next frame: `len` from its header, `body` the part of its payload that is at hand.
    ///
    /// # Errors
    /// [`WireError`] when the server's packet cannot belong to this reply.
    pub fn frame(&mut self, len: usize, body: &[u8]) -> Result<Step, WireError> {
        if self.continuing {
            self.continuing = len == MAX_PAYLOAD;
            return Ok(Step::Frame(Frame::Continuation));
        }
        self.group_ended = false;
        let step = match self.phase {
            Phase::Rows => self.row(len, body)?,
            Phase::First => self.first(len, body)?,
            Phase::Definitions { .. } | Phase::Params { .. } | Phase::PrepareColumns { .. } => self.definition(),
            Phase::DefinitionsEof | Phase::ParamsEof { .. } | Phase::PrepareColumnsEof => self.definitions_end(len, body)?,
            Phase::Infile | Phase::Done => return Err(WireError::Malformed("packet after the end of a reply")),
        };
        if let Step::Frame(_) = step {
            self.continuing = len == MAX_PAYLOAD;
        }
        Ok(step)
    }

    fn row(&mut self, len: usize, body: &[u8]) -> Result<Step, WireError> {
        let Some(&first) = body.first() else {
            return if len == 0 { Ok(self.count_row()) } else { Ok(Step::Need(1)) };
        };
        match first {
            0xff => Ok(self.error(len, body)),
            0xfe if self.ends_rows(len) => {
                if body.len() < len {
                    return Ok(Step::Need(len));
                }
                let before_rows = self.status;
                self.read_end(body)?;
                if !self.deprecate_eof && before_rows.contains(StatusFlags::PS_OUT_PARAMS) {
                    // MySQL says only before the rows that they are OUT parameters, and that an OK follows.
                    self.status |= before_rows & (StatusFlags::PS_OUT_PARAMS | StatusFlags::MORE_RESULTS);
                }
                self.finish_set();
                Ok(Step::Frame(Frame::ResultEnd))
            }
            _ => Ok(self.count_row()),
        }
    }

    fn count_row(&mut self) -> Step {
        self.rows += 1;
        Step::Frame(Frame::Row)
    }

    /// A row whose first column is longer than 16 MiB also begins with 0xfe, but then fills its frame.
    fn ends_rows(&self, len: usize) -> bool {
        if self.deprecate_eof { len < MAX_PAYLOAD } else { len < EOF_LIMIT }
    }

    fn first(&mut self, len: usize, body: &[u8]) -> Result<Step, WireError> {
        let Some(&first) = body.first() else {
            return if len == 0 { Err(WireError::Malformed("empty packet at the start of a reply")) } else { Ok(Step::Need(1)) };
        };
        if first == 0xff {
            return Ok(self.error(len, body));
        }
        if self.kind == ReplyKind::Text {
            self.phase = Phase::Done;
            return Ok(Step::Frame(Frame::Text));
        }
        if body.len() < len {
            return Ok(Step::Need(len));
        }
        match (self.kind, first) {
            (ReplyKind::Prepare, 0x00) => self.prepared(body),
            (_, 0x00) => {
                self.read_ok(body)?;
                self.finish_set();
                Ok(Step::Frame(Frame::Ok))
            }
            (ReplyKind::Simple, 0xfe) => {
                self.read_end(body)?;
                self.phase = Phase::Done;
                Ok(Step::Frame(Frame::Ok))
            }
            (ReplyKind::Results | ReplyKind::Cursor, 0xfb) => {
                self.phase = Phase::Infile;
                Ok(Step::Frame(Frame::LocalInfile))
            }
            (ReplyKind::Results | ReplyKind::Cursor, _) => {
                let columns = Reader::new(body).lenenc()?;
                self.rows = 0;
                self.phase = Phase::Definitions { left: columns };
                Ok(Step::Frame(Frame::ColumnCount(columns)))
            }
            _ => Err(WireError::Malformed("unexpected first packet of a reply")),
        }
    }

    fn prepared(&mut self, body: &[u8]) -> Result<Step, WireError> {
        let mut r = Reader::new(body);
        let (_, _, columns, params) = (r.u8()?, r.u32()?, u64::from(r.u16()?), u64::from(r.u16()?));
        self.phase = if params > 0 { Phase::Params { left: params, columns } } else { Self::prepare_columns(columns) };
        Ok(Step::Frame(Frame::Prepared))
    }

    fn prepare_columns(columns: u64) -> Phase {
        if columns > 0 { Phase::PrepareColumns { left: columns } } else { Phase::Done }
    }

    fn definition(&mut self) -> Step {
        self.group_ended = matches!(
            self.phase,
            Phase::Definitions { left: 0 | 1 } | Phase::Params { left: 0 | 1, .. } | Phase::PrepareColumns { left: 0 | 1 }
        );
        self.phase = match self.phase {
            Phase::Definitions { left } if left > 1 => Phase::Definitions { left: left - 1 },
            Phase::Definitions { .. } if self.deprecate_eof => Phase::Rows,
            Phase::Definitions { .. } => Phase::DefinitionsEof,
            Phase::Params { left, columns } if left > 1 => Phase::Params { left: left - 1, columns },
            Phase::Params { columns, .. } if self.deprecate_eof => Self::prepare_columns(columns),
            Phase::Params { columns, .. } => Phase::ParamsEof { columns },
            Phase::PrepareColumns { left } if left > 1 => Phase::PrepareColumns { left: left - 1 },
            Phase::PrepareColumns { .. } if self.deprecate_eof => Phase::Done,
            _ => Phase::PrepareColumnsEof,
        };
        Step::Frame(Frame::Definition)
    }

    fn definitions_end(&mut self, len: usize, body: &[u8]) -> Result<Step, WireError> {
        let Some(&first) = body.first() else {
            return if len == 0 { Err(WireError::Malformed("empty packet where EOF is due")) } else { Ok(Step::Need(1)) };
        };
        if first == 0xff {
            return Ok(self.error(len, body));
        }
        if first != 0xfe {
            return Err(WireError::Malformed("EOF expected after column definitions"));
        }
        if body.len() < len {
            return Ok(Step::Need(len));
        }
        self.read_end(body)?;
        self.phase = match self.phase {
            // A cursor was opened: the rows come with COM_STMT_FETCH.
            Phase::DefinitionsEof if self.opened_cursor() => {
                self.finish_set();
                return Ok(Step::Frame(Frame::ResultEnd));
            }
            Phase::DefinitionsEof => Phase::Rows,
            Phase::ParamsEof { columns } => Self::prepare_columns(columns),
            _ => Phase::Done,
        };
        Ok(Step::Frame(Frame::DefinitionsEnd))
    }

    /// ERR is asked for whole: its code matters.
    fn error(&mut self, len: usize, body: &[u8]) -> Step {
        if body.len() < len {
            return Step::Need(len);
        }
        self.phase = Phase::Done;
        Step::Frame(Frame::Err)
    }

    fn finish_set(&mut self) {
        let more = matches!(self.kind, ReplyKind::Results | ReplyKind::Cursor) && self.status.contains(StatusFlags::MORE_RESULTS);
        self.phase = if more { Phase::First } else { Phase::Done };
    }

    /// EOF packet, or (with CLIENT_DEPRECATE_EOF) an OK packet with header 0xfe.
    fn read_end(&mut self, body: &[u8]) -> Result<(), WireError> {
        if body.len() == EOF_LEN && !self.deprecate_eof {
            let mut r = Reader::new(body.get(1..).unwrap_or_default());
            self.warnings = r.u16()?;
            self.status = StatusFlags::from_bits(r.u16()?);
            return Ok(());
        }
        if body.len() < EOF_LIMIT && !self.deprecate_eof {
            return Err(WireError::Malformed("EOF packet of a wrong length"));
        }
        // COM_SET_OPTION answers with a plain EOF even on connections with CLIENT_DEPRECATE_EOF on some servers.
        if body.len() == EOF_LEN && self.kind == ReplyKind::Simple {
            let mut r = Reader::new(body.get(1..).unwrap_or_default());
            self.warnings = r.u16()?;
            self.status = StatusFlags::from_bits(r.u16()?);
            return Ok(());
        }
        self.read_ok(body)
    }

    fn read_ok(&mut self, body: &[u8]) -> Result<(), WireError> {
        let mut r = Reader::new(body.get(1..).unwrap_or_default());
        r.lenenc()?;
        r.lenenc()?;
        self.status = StatusFlags::from_bits(r.u16()?);
        self.warnings = r.u16()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(t: &mut Tracker, body: &[u8]) -> Frame {
        match t.frame(body.len(), body).unwrap() {
            Step::Frame(f) => f,
            Step::Need(n) => panic!("needs {n}"),
        }
    }

    const OK: &[u8] = &[0, 1, 0, 2, 0, 0, 0];
    const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
    const END: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
    const END_MORE: &[u8] = &[0xfe, 0, 0, 0x0a, 0, 0, 0];

    #[test]
    fn result_set_with_eof_packets() {
        let mut t = Tracker::new(ReplyKind::Results, Capabilities::default());
        assert_eq!(feed(&mut t, &[1]), Frame::ColumnCount(1));
        assert_eq!(feed(&mut t, b"\x03def"), Frame::Definition);
        assert_eq!(feed(&mut t, EOF), Frame::DefinitionsEnd);
        assert_eq!(feed(&mut t, b"\x011"), Frame::Row);
        assert_eq!(feed(&mut t, &[0xfb]), Frame::Row);
        assert_eq!(feed(&mut t, EOF), Frame::ResultEnd);
        assert!(t.is_done());
        assert_eq!(t.rows(), 2);
    }

    /// MySQL without CLIENT_DEPRECATE_EOF takes both flags back behind the rows, and MariaDB does not. Both send an OK.
    #[test]
    fn an_ok_follows_out_parameters_whatever_the_last_eof_says() {
        let out_params: &[u8] = &[0xfe, 0, 0, 0x0a, 0x10];
        for last in [EOF, out_params] {
            let mut t = Tracker::new(ReplyKind::Results, Capabilities::default());
            feed(&mut t, &[1]);
            feed(&mut t, b"\x03def");
            assert_eq!(feed(&mut t, out_params), Frame::DefinitionsEnd);
            feed(&mut t, &[0, 0, 1]);
            assert_eq!(feed(&mut t, last), Frame::ResultEnd);
            assert!(!t.is_done() && t.status().contains(StatusFlags::PS_OUT_PARAMS));
            assert_eq!(feed(&mut t, OK), Frame::Ok);
            assert!(t.is_done() && !t.status().contains(StatusFlags::PS_OUT_PARAMS));
        }
    }

    #[test]
    fn several_result_sets_without_eof_packets() {
        let mut t = Tracker::new(ReplyKind::Results, Capabilities::DEPRECATE_EOF);
        assert_eq!(feed(&mut t, &[1]), Frame::ColumnCount(1));
        assert_eq!(feed(&mut t, b"\x03def"), Frame::Definition);
        assert_eq!(feed(&mut t, b"\x011"), Frame::Row);
        assert_eq!(feed(&mut t, END_MORE), Frame::ResultEnd);
        assert!(!t.is_done());
        assert_eq!(feed(&mut t, OK), Frame::Ok);
        assert!(t.is_done());
    }

    #[test]
    fn cursor_reply_has_no_rows() {
        let cursor = &[0xfe, 0, 0, 0x42, 0];
        let mut t = Tracker::new(ReplyKind::Cursor, Capabilities::default());
        feed(&mut t, &[1]);
        feed(&mut t, b"\x03def");
        assert_eq!(feed(&mut t, cursor), Frame::ResultEnd);
        assert!(t.is_done());
        // Stored code opened one: the flag says nothing of this result.
        let mut t = Tracker::new(ReplyKind::Results, Capabilities::default());
        feed(&mut t, &[1]);
        feed(&mut t, b"\x03def");
        assert_eq!(feed(&mut t, cursor), Frame::DefinitionsEnd);
        assert_eq!(feed(&mut t, cursor), Frame::ResultEnd);
        assert!(t.is_done());
    }

    #[test]
    fn prepare_reply_with_and_without_eof() {
        let ok = &[0, 1, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0];
        for (caps, eof) in [(Capabilities::default(), true), (Capabilities::DEPRECATE_EOF, false)] {
            let mut t = Tracker::new(ReplyKind::Prepare, caps);
            assert_eq!(feed(&mut t, ok), Frame::Prepared);
            assert_eq!(feed(&mut t, b"\x03def"), Frame::Definition);
            if eof {
                assert_eq!(feed(&mut t, EOF), Frame::DefinitionsEnd);
            }
            feed(&mut t, b"\x03def");
            feed(&mut t, b"\x03def");
            assert_eq!(t.is_done(), !eof);
            if eof {
                assert_eq!(feed(&mut t, EOF), Frame::DefinitionsEnd);
            }
            assert!(t.is_done());
        }
    }

    #[test]
    fn long_row_continues_in_further_frames() {
        let mut t = Tracker::new(ReplyKind::Fetch, Capabilities::DEPRECATE_EOF);
        assert_eq!(t.frame(MAX_PAYLOAD, &[0xfe]).unwrap(), Step::Frame(Frame::Row));
        assert_eq!(t.frame(5, &[0xff]).unwrap(), Step::Frame(Frame::Continuation));
        assert_eq!(feed(&mut t, END), Frame::ResultEnd);
        assert_eq!(t.rows(), 1);
    }

    #[test]
    fn asks_for_more_bytes_when_it_must_read_a_packet() {
        let mut t = Tracker::new(ReplyKind::Results, Capabilities::default());
        assert_eq!(t.frame(7, &[]).unwrap(), Step::Need(1));
        assert_eq!(t.frame(7, &[0]).unwrap(), Step::Need(7));
        assert_eq!(feed(&mut t, OK), Frame::Ok);
    }

    #[test]
    fn an_error_is_asked_for_whole() {
        let err = b"\xff\x0a\x05#HY000no";
        for kind in [ReplyKind::Results, ReplyKind::Fetch, ReplyKind::Prepare] {
            let mut t = Tracker::new(kind, Capabilities::default());
            assert_eq!(t.frame(err.len(), &err[..1]).unwrap(), Step::Need(err.len()));
            assert_eq!(feed(&mut t, err), Frame::Err);
        }
    }

    #[test]
    fn an_empty_packet_instead_of_eof_is_an_error() {
        let mut t = Tracker::new(ReplyKind::Results, Capabilities::default());
        feed(&mut t, &[1]);
        feed(&mut t, b"\x03def");
        assert!(t.frame(0, &[]).is_err());
    }

    #[test]
    fn infile_request_then_ok() {
        let mut t = Tracker::new(ReplyKind::Results, Capabilities::default());
        assert_eq!(feed(&mut t, b"\xfbfile"), Frame::LocalInfile);
        assert!(t.wants_infile());
        t.infile_sent();
        assert_eq!(feed(&mut t, OK), Frame::Ok);
        assert!(t.is_done());
    }

    #[test]
    fn packets_after_the_end_are_refused() {
        let mut t = Tracker::new(ReplyKind::Simple, Capabilities::default());
        feed(&mut t, OK);
        assert!(t.frame(OK.len(), OK).is_err());
    }
}
