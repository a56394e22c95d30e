//! Converts a server's reply, in the framing of its connection, to the framing of the client's connection.
//!
//! Pure: bytes in, bytes out. Frames pass unchanged and uncopied if both sides agree. Otherwise EOF packets (CLIENT_DEPRECATE_EOF) and
//! extended metadata of columns (MARIADB_CLIENT_EXTENDED_METADATA) are added or removed. Sequence ids are renumbered in place. Entries of
//! the session tracker that the client did not ask for are removed. A value that the session knows better than the backend is put in. The
//! facts of the reply are collected on the way ([`ReplyFacts`]).

use crate::WireError;
use crate::codec::Reader;
use crate::codes;
use crate::flags::{Capabilities, StatusFlags};
use crate::message::{EOF, ErrPacket, OkPacket, put_eof};
use crate::packet::{self, HEADER};
use crate::reply::{Frame, ReplyKind, Step, Tracker};
use crate::session_state::{self, Change};

/// Which session-tracker entries the client asked for.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrackFilter {
    /// `session_track_system_variables`, lower case: `*`, or names.
    pub system_variables: Vec<String>,
    /// `session_track_schema`.
    pub schema: bool,
    /// `session_track_state_change`.
    pub state_change: bool,
    /// `session_track_gtids` is not OFF.
    pub gtids: bool,
}

impl TrackFilter {
    /// Whether the client gets this change.
    pub fn wants(&self, change: &Change<'_>) -> bool {
        match change {
            Change::SystemVariable { name, .. } => {
                self.system_variables.iter().any(|v| v == "*" || v.as_bytes().eq_ignore_ascii_case(name))
            }
            Change::Schema(_) => self.schema,
            Change::StateChange(_) => self.state_change,
            Change::Gtids(_) => self.gtids,
            // The proxy asks for none of these. They come from the client's own settings or from a server's habit: MySQL 9.7 reports BEGIN
            // unasked.
            Change::TransactionCharacteristics(_) | Change::TransactionState(_) | Change::Other { .. } => true,
        }
    }
}

/// An answer of one OK packet, with more entries of the session tracker. None for any other answer, and for clients that get no such
/// entries.
pub fn with_changes(answer: &[u8], caps: Capabilities, changes: &[u8]) -> Option<Vec<u8>> {
    let (len, mut seq) = packet::header(answer)?;
    let body = answer.get(HEADER..).filter(|body| body.len() == len && body.first() == Some(&crate::message::OK))?;
    let ok = OkPacket::parse(body, caps).ok().filter(|_| caps.contains(Capabilities::SESSION_TRACK))?;
    let (session_state, status) = ([ok.session_state, changes].concat(), ok.status | StatusFlags::SESSION_STATE_CHANGED);
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    OkPacket { session_state: &session_state, status, ..ok }.write(&mut payload, crate::message::OK, caps);
    packet::put_packet(&mut out, &mut seq, &payload);
    Some(out)
}

/// Rows of one result that the session knows and the backend does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// A number in place of the only column of each row.
    Number {
        /// The number in the column's place.
        value: i64,
        /// True for a row of the binary protocol.
        binary: bool,
    },
    /// These in place of all.
    Rows {
        /// The same as the number of column definitions.
        columns: u64,
        /// Whole packets with their headers.
        packets: Vec<u8>,
    },
}

/// Status flags that stand from one reply to the next.
pub const LASTING: StatusFlags = StatusFlags::IN_TRANS
    .union(StatusFlags::AUTOCOMMIT)
    .union(StatusFlags::IN_TRANS_READONLY)
    .union(StatusFlags::NO_BACKSLASH_ESCAPES)
    .union(StatusFlags::ANSI_QUOTES);

/// Length of an EOF packet's payload that is no OK packet.
const PLAIN_EOF: usize = 5;

/// The facts of a reply that the session needs.
#[derive(Clone, Debug, Default)]
pub struct ReplyFacts {
    /// Rows changed, of the last OK.
    pub affected_rows: u64,
    /// The last insert id of the reply that was not 0.
    pub last_insert_id: u64,
    /// Warnings of the last OK or EOF.
    pub warnings: u16,
    /// Status flags of the last OK or EOF; None when the reply was an error from the start.
    pub status: Option<StatusFlags>,
    /// See [`ReplyFacts::is_behind_cursor`].
    pub behind_cursor: bool,
    /// The number of the error that ended it.
    pub error: Option<u16>,
    /// The error's text; empty without one.
    pub message: Box<[u8]>,
    /// Rows of the last result set; None when the last result was an OK.
    pub rows: Option<u64>,
    /// Some result was a result set.
    pub had_rows: bool,
    /// Some result had warnings.
    pub warned: bool,
    /// Rows changed, of all results together.
    pub all_affected: u64,
    /// Rows of all result sets together.
    pub all_rows: u64,
    /// Session variables that changed.
    pub variables: Vec<(Box<str>, Box<[u8]>)>,
    /// The schema, when it changed; empty is none.
    pub schema: Option<Box<[u8]>>,
    /// The server said that some session state changed.
    pub state_change: bool,
    /// The GTIDs of writes, if MySQL was told to report them.
    pub gtids: Option<Box<[u8]>>,
    /// It said more of the session, which cannot be read.
    pub is_garbled: bool,
}

impl ReplyFacts {
    /// Its rows are behind a cursor, and come with COM_STMT_FETCH.
    pub fn is_behind_cursor(&self) -> bool {
        self.behind_cursor
    }

    /// The session's changes that end the reply to one of the proxy's own commands.
    pub fn told_by(status: StatusFlags, session_state: &[u8]) -> Self {
        let mut facts = Self { status: Some(status), ..Self::default() };
        for change in session_state::changes(session_state) {
            match change {
                Ok(change) => facts.note(&change),
                Err(_) => facts.note_garbled(),
            }
        }
        facts
    }

    fn note_garbled(&mut self) {
        (self.state_change, self.is_garbled) = (true, true);
    }

    fn note(&mut self, change: &Change<'_>) {
        match change {
            Change::SystemVariable { name, value } => {
                self.variables.push((String::from_utf8_lossy(name).to_ascii_lowercase().into(), (*value).into()));
            }
            Change::Schema(name) => self.schema = Some((*name).into()),
            Change::StateChange(changed) => self.state_change |= *changed,
            Change::Gtids(gtids) => self.gtids = Some((*gtids).into()),
            _ => {}
        }
    }
}

/// A reply that is a single error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyError<'a> {
    /// MySQL error number.
    pub code: u16,
    /// SQLSTATE.
    pub sqlstate: [u8; 5],
    /// Text.
    pub message: &'a [u8],
    /// The server said it of its own accord, before it had read the command.
    pub unasked: bool,
}

impl<'a> ReplyError<'a> {
    /// The error at the front of `reply`, from its first byte, and its length there. None if it is incomplete, or for any other reply.
    /// `caps` was agreed with the server.
    pub fn at_front(reply: &'a [u8], caps: Capabilities) -> Option<(Self, usize)> {
        let (len, seq) = packet::header(reply)?;
        let body = reply.get(HEADER..HEADER + len).filter(|body| body.first() == Some(&crate::message::ERR))?;
        let error = ErrPacket::parse(body, caps).ok()?;
        Some((Self { code: error.code, sqlstate: error.sqlstate, message: error.message, unasked: seq == 0 }, HEADER + len))
    }
}

/// The result of [`Reframe::process`] on its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processed {
    /// Input bytes dealt with.
    pub consumed: usize,
    /// True: they go to the client as they stand in the input. False: the output holds what goes to the client.
    pub direct: bool,
    /// The input must hold this many bytes after `consumed` before anything more can be done (0 when done).
    pub needs: usize,
}

/// The replacement of a packet for the client.
enum Instead {
    Nothing,
    Eof { warnings: u16, status: StatusFlags },
    Payload(Vec<u8>),
}

const EXTENDED_METADATA: Capabilities = Capabilities::MARIADB_CLIENT_EXTENDED_METADATA;

/// ER_QUERY_INTERRUPTED: a KILL QUERY ended the statement.
pub const INTERRUPTED: u16 = codes::QUERY_INTERRUPTED;
/// ER_QUERY_TIMEOUT, as MariaDB once called it.
pub const QUERY_TIMEOUT: u16 = codes::PROXY_QUERY_TIMEOUT;
/// The text of [`QUERY_TIMEOUT`].
pub const TIME_IS_OVER: &[u8] = b"Query execution was interrupted, query_timeout exceeded";

/// The flags of an open transaction.
pub const TRANSACTION: StatusFlags = StatusFlags::IN_TRANS.union(StatusFlags::IN_TRANS_READONLY);

/// See the module.
pub struct Reframe<'f> {
    tracker: Tracker,
    from: Capabilities,
    to: Capabilities,
    filter: Option<&'f TrackFilter>,
    /// In the order of the results.
    patches: &'f [Option<Patch>],
    /// Column type of the patched column, as its definition says.
    patch_type: u8,
    /// Results that have ended.
    results: usize,
    /// The result at hand is not the one that its patch was made for.
    misfits: bool,
    /// Packets go out only whole.
    whole: bool,
    /// The server may ask for a file of the client's.
    may_ask_for_file: bool,
    /// The statement was killed because its time was over: the server's error 1317 is told as that.
    timed_out: bool,
    /// The proxy's own state, which the client must not see: the transaction in which the proxy runs, or autocommit being on.
    hides: StatusFlags,
    /// GTIDs are not told, whatever the client asked for.
    hides_gtids: bool,
    skip: usize,
    eof_due: bool,
    /// Status for the EOF packets we make between definitions and rows.
    status: StatusFlags,
    /// Sequence id of the next packet to the client: counted here, whatever the server's are.
    next_seq: u8,
    /// See [`Reframe::has_begun`].
    has_begun: bool,
    /// The server's sequence id that follows its last packet.
    server_seq: u8,
}

impl<'f> Reframe<'f> {
    /// For one reply. `filter` is None for clients without CLIENT_SESSION_TRACK.
    pub fn new(kind: ReplyKind, from: Capabilities, to: Capabilities, filter: Option<&'f TrackFilter>, status: StatusFlags) -> Self {
        Self {
            tracker: Tracker::new(kind, from),
            from,
            to,
            filter,
            patches: &[],
            patch_type: 0,
            results: 0,
            misfits: false,
            whole: false,
            may_ask_for_file: false,
            timed_out: false,
            hides: StatusFlags::empty(),
            hides_gtids: false,
            skip: 0,
            eof_due: false,
            status,
            next_seq: 1,
            has_begun: false,
            server_seq: 1,
        }
    }

    /// Puts a patch into each result that has one.
    pub fn with_patches(mut self, patches: &'f [Option<Patch>]) -> Self {
        self.patches = patches;
        self
    }

    /// The patch of the result at hand.
    fn patch(&self) -> Option<&'f Patch> {
        self.patches.get(self.results)?.as_ref().filter(|_| !self.misfits)
    }

    /// Packets go out only whole: for the compressed protocol, where some clients expect a packet in one frame.
    pub fn with_whole_packets(mut self, whole: bool) -> Self {
        self.whole = whole;
        self
    }

    /// The statement may load a file of the client's; otherwise a server that asks for one breaks the protocol.
    pub fn with_file(mut self, may_ask: bool) -> Self {
        self.may_ask_for_file = may_ask;
        self
    }

    /// The client is not told that these are on: [`TRANSACTION`] or [`StatusFlags::AUTOCOMMIT`].
    pub fn hiding(mut self, hides: StatusFlags) -> Self {
        self.hides = hides;
        self
    }

    fn hides_something(&self) -> bool {
        self.hides != StatusFlags::empty()
    }

    /// The server's status flags, as far as they are the client's.
    fn shown_status(&self) -> StatusFlags {
        let mut status = self.tracker.status();
        status.remove(self.hides);
        status
    }

    /// The client is told no GTIDs, whatever it asked for.
    pub fn hiding_gtids(mut self, hides: bool) -> Self {
        self.hides_gtids = hides;
        self
    }

    /// The statement was killed because its time was over.
    pub fn set_timed_out(&mut self) {
        self.timed_out = true;
    }

    /// The reply is complete.
    pub fn is_done(&self) -> bool {
        self.tracker.is_done() && self.skip == 0
    }

    /// The server waits for the client's file.
    pub fn wants_infile(&self) -> bool {
        self.tracker.wants_infile() && self.skip == 0
    }

    /// The client's file was sent; the client's next packet from us has this sequence id.
    pub fn infile_sent(&mut self, next_seq: u8) {
        self.tracker.infile_sent();
        self.next_seq = next_seq;
        self.has_begun = false;
    }

    /// The sequence id that the server expects next.
    pub fn server_seq(&self) -> u8 {
        self.server_seq
    }

    /// Sequence id of the next packet to the client.
    pub fn next_seq(&self) -> u8 {
        self.next_seq
    }

    /// Whether a packet, or the first part of one, was made for the client: since the client's file, if it sent one. Sequence ids
    /// cannot tell, because they repeat after 256 packets.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The answer begins with this sequence id.
    pub fn set_next_seq(&mut self, seq: u8) {
        self.next_seq = seq;
    }

    /// Deals with as many whole frames (and parts of rows) of `input` as it can.
    ///
    /// # Errors
    /// [`WireError`] when the server breaks the protocol.
    pub fn process(&mut self, input: &mut [u8], out: &mut Vec<u8>, facts: &mut ReplyFacts) -> Result<Processed, WireError> {
        let mut pos = 0;
        let mut run = 0;
        let mut direct = true;
        let mut needs = 0;
        loop {
            if self.skip > 0 {
                let n = self.skip.min(input.len() - pos);
                pos += n;
                self.skip -= n;
                if self.skip > 0 {
                    needs = 1;
                    break;
                }
            }
            if self.eof_due && self.tracker.kind() == ReplyKind::Prepare {
                self.flush(input, &mut run, pos, out, &mut direct);
                self.insert_eof(out);
            }
            if self.tracker.is_done() || self.tracker.wants_infile() {
                break;
            }
            let rest = input.get(pos..).unwrap_or_default();
            let Some((len, seq)) = packet::header(rest) else {
                needs = HEADER;
                break;
            };
            let body = rest.get(HEADER..(HEADER + len).min(rest.len())).unwrap_or_default();
            let at_hand = body.len();
            let patched = self.patch().is_some() || self.changes_metadata() && self.defines();
            if (patched || self.whole) && at_hand < len {
                needs = HEADER + len;
                break;
            }
            let frame = match self.tracker.frame(len, body)? {
                Step::Need(n) => {
                    needs = HEADER + n;
                    break;
                }
                Step::Frame(frame) => frame,
            };
            if frame == Frame::LocalInfile && !self.may_ask_for_file {
                return Err(WireError::Malformed("a request for a client's file without a LOAD DATA LOCAL statement"));
            }
            self.server_seq = seq.wrapping_add(1);
            if self.eof_due && self.tracker.kind() != ReplyKind::Prepare {
                self.eof_due = false;
                let has_own_end = match frame {
                    // A cursor was opened: the one EOF after the definitions is also the end, and comes below.
                    Frame::ResultEnd => self.tracker.opened_cursor(),
                    // It could not be filled: servers end so before any EOF.
                    Frame::Err => self.tracker.kind() == ReplyKind::Cursor,
                    _ => false,
                };
                if !has_own_end {
                    self.flush(input, &mut run, pos, out, &mut direct);
                    self.insert_eof(out);
                }
            }
            if frame == Frame::ResultEnd
                && let Some(Patch::Rows { packets, .. }) = self.patch()
            {
                self.flush(input, &mut run, pos, out, &mut direct);
                self.put_packets(packets, out);
            }
            let body = input.get(pos + HEADER..pos + HEADER + at_hand).unwrap_or_default();
            let replaced = self.replace(frame, body, facts);
            if let Some(instead) = replaced {
                self.flush(input, &mut run, pos, out, &mut direct);
                self.put(&instead, out);
                self.eof_due = self.tracker.group_ended() && self.adds_eof();
                pos += HEADER + len;
                run = pos;
                continue;
            }
            if self.next_seq != seq
                && let Some(byte) = input.get_mut(pos + 3)
            {
                *byte = self.next_seq;
            }
            self.next_seq = self.next_seq.wrapping_add(1);
            self.has_begun = true;
            self.eof_due = self.tracker.group_ended() && self.adds_eof();
            pos += HEADER + at_hand;
            self.skip = len - at_hand;
        }
        if !direct {
            out.extend_from_slice(input.get(run..pos).unwrap_or_default());
        }
        Ok(Processed { consumed: pos, direct, needs })
    }

    /// One side has extended metadata in each definition, and the other side has none.
    fn changes_metadata(&self) -> bool {
        self.to.contains(EXTENDED_METADATA) != self.from.contains(EXTENDED_METADATA)
    }

    /// The next packet may be a definition.
    fn defines(&self) -> bool {
        self.tracker.in_definitions() || self.tracker.kind() == ReplyKind::FieldList
    }

    fn adds_eof(&self) -> bool {
        self.from.contains(Capabilities::DEPRECATE_EOF) && !self.to.contains(Capabilities::DEPRECATE_EOF)
    }

    fn drops_eof(&self) -> bool {
        !self.from.contains(Capabilities::DEPRECATE_EOF) && self.to.contains(Capabilities::DEPRECATE_EOF)
    }

    fn flush(&self, input: &[u8], run: &mut usize, pos: usize, out: &mut Vec<u8>, direct: &mut bool) {
        out.extend_from_slice(input.get(*run..pos).unwrap_or_default());
        *run = pos;
        *direct = false;
    }

    /// Writes what takes the place of the packet at hand.
    fn put(&mut self, instead: &Instead, out: &mut Vec<u8>) {
        match instead {
            Instead::Nothing => {}
            Instead::Eof { warnings, status } => self.put_eof(*warnings, *status, out),
            Instead::Payload(payload) => self.put_packet(payload, out),
        }
    }

    fn put_packets(&mut self, mut packets: &[u8], out: &mut Vec<u8>) {
        while let Some((len, _)) = packet::header(packets) {
            let Some(payload) = packets.get(HEADER..HEADER + len) else { break };
            self.put_packet(payload, out);
            packets = packets.get(HEADER + len..).unwrap_or_default();
        }
    }

    fn put_packet(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        packet::put_packet(out, &mut self.next_seq, payload);
        self.has_begun = true;
    }

    fn put_eof(&mut self, warnings: u16, status: StatusFlags, out: &mut Vec<u8>) {
        let start = packet::begin_packet(out);
        put_eof(out, warnings, status);
        packet::finish_packet(out, start, &mut self.next_seq);
        self.has_begun = true;
    }

    fn insert_eof(&mut self, out: &mut Vec<u8>) {
        self.put_eof(0, self.status, out);
        self.eof_due = false;
    }

    /// Collects the frame's facts. Returns the client's replacement if the frame cannot pass as it is.
    fn replace(&mut self, frame: Frame, body: &[u8], facts: &mut ReplyFacts) -> Option<Instead> {
        match frame {
            Frame::ColumnCount(columns) => {
                let expected = self.patch().map(|patch| if let Patch::Rows { columns, .. } = patch { *columns } else { 1 });
                self.misfits = expected.is_some_and(|expected| expected != columns);
                None
            }
            Frame::Definition => {
                if self.patch().is_some() {
                    // The definition ends: type (1), flags (2), decimals (1), filler (2).
                    self.patch_type = body.len().checked_sub(6).and_then(|at| body.get(at)).copied().unwrap_or(0);
                }
                self.with_metadata(body).map(Instead::Payload)
            }
            Frame::Row if self.tracker.kind() == ReplyKind::FieldList => self.with_metadata(body).map(Instead::Payload),
            Frame::Row => self.patch().map(|patch| match patch {
                Patch::Number { value, binary } => Instead::Payload(number_row(*value, *binary, self.patch_type)),
                Patch::Rows { .. } => Instead::Nothing,
            }),
            Frame::Err => {
                let error = ErrPacket::parse(body, self.from).ok();
                let code = error.as_ref().map_or(codes::CLIENT_MALFORMED_PACKET, |e| e.code);
                facts.error = Some(code);
                facts.message = error.map(|e| e.message.into()).unwrap_or_default();
                (self.timed_out && code == INTERRUPTED).then(|| Instead::Payload(self.time_is_over(facts)))
            }
            Frame::DefinitionsEnd if self.drops_eof() => Some(Instead::Nothing),
            Frame::Ok => self.ok(body, facts).map(Instead::Payload),
            Frame::ResultEnd => self.result_end(body, facts),
            _ => None,
        }
    }

    /// The definition with empty extended metadata where only the client has this field, without it where only the server has
    /// it. The field follows six strings: catalog, schema, table twice, column twice.
    fn with_metadata(&self, definition: &[u8]) -> Option<Vec<u8>> {
        if !self.changes_metadata() {
            return None;
        }
        let mut reader = Reader::new(definition);
        for _ in 0..6 {
            reader.lenenc_bytes().ok()?;
        }
        let (names, rest) = definition.split_at_checked(definition.len() - reader.remaining())?;
        if self.to.contains(EXTENDED_METADATA) {
            return Some([names, &[0], rest].concat());
        }
        reader.lenenc_bytes().ok()?;
        let rest = rest.get(rest.len() - reader.remaining()..)?;
        Some([names, rest].concat())
    }

    /// Error 1907, as ProxySQL puts it, in place of the 1317 that follows a KILL.
    fn time_is_over(&self, facts: &mut ReplyFacts) -> Vec<u8> {
        facts.error = Some(QUERY_TIMEOUT);
        let mut payload = Vec::new();
        facts.message = TIME_IS_OVER.into();
        ErrPacket { code: QUERY_TIMEOUT, sqlstate: *b"70100", message: TIME_IS_OVER }.write(&mut payload, self.to);
        payload
    }

    fn ok(&mut self, body: &[u8], facts: &mut ReplyFacts) -> Option<Vec<u8>> {
        facts.rows = None;
        self.note_end(facts);
        if body.first() == Some(&EOF) {
            return self.other_eof(body);
        }
        let ok = OkPacket::parse(body, self.from).ok()?;
        facts.affected_rows = ok.affected_rows;
        facts.all_affected = facts.all_affected.saturating_add(ok.affected_rows);
        if ok.last_insert_id != 0 {
            facts.last_insert_id = ok.last_insert_id;
        }
        self.rewritten(&ok, (body, crate::message::OK), facts)
    }

    /// An EOF packet that is the whole answer, converted to OK. Some servers send a plain one anyway. It is plain for a client that does
    /// not know the other form.
    fn other_eof(&self, body: &[u8]) -> Option<Vec<u8>> {
        if body.len() <= PLAIN_EOF || self.to.contains(Capabilities::DEPRECATE_EOF) {
            return None;
        }
        let mut status = self.shown_status();
        status.remove(StatusFlags::SESSION_STATE_CHANGED);
        let mut payload = Vec::new();
        put_eof(&mut payload, self.tracker.warnings(), status);
        Some(payload)
    }

    fn result_end(&mut self, body: &[u8], facts: &mut ReplyFacts) -> Option<Instead> {
        facts.rows = Some(self.tracker.rows());
        facts.had_rows = true;
        facts.all_rows = facts.all_rows.saturating_add(self.tracker.rows());
        self.note_end(facts);
        let (mut status, warnings) = (self.shown_status(), self.tracker.warnings());
        if !self.from.contains(Capabilities::DEPRECATE_EOF) {
            if !self.drops_eof() {
                return self.hides_something().then_some(Instead::Eof { warnings, status });
            }
            let ok = OkPacket { affected_rows: 0, last_insert_id: 0, status, warnings, info: b"", session_state: b"" };
            let mut payload = Vec::new();
            ok.write(&mut payload, EOF, self.to);
            return Some(Instead::Payload(payload));
        }
        let ok = OkPacket::parse(body, self.from).ok()?;
        if ok.last_insert_id != 0 {
            facts.last_insert_id = ok.last_insert_id;
        }
        let rewritten = self.rewritten(&ok, (body, EOF), facts);
        if self.to.contains(Capabilities::DEPRECATE_EOF) {
            return rewritten.map(Instead::Payload);
        }
        status.remove(StatusFlags::SESSION_STATE_CHANGED);
        Some(Instead::Eof { warnings, status })
    }

    fn note_end(&mut self, facts: &mut ReplyFacts) {
        facts.warnings = self.tracker.warnings();
        facts.warned |= facts.warnings > 0;
        self.results += 1;
        self.misfits = false;
        let status = self.shown_status();
        facts.status = Some(status);
        facts.behind_cursor = self.tracker.kind() != ReplyKind::Results && status.contains(StatusFlags::CURSOR_EXISTS);
        self.status = status & LASTING;
    }

    /// Collects session changes. Returns a new packet if the client must not see all of them.
    fn rewritten(&self, ok: &OkPacket<'_>, (body, header): (&[u8], u8), facts: &mut ReplyFacts) -> Option<Vec<u8>> {
        if ok.session_state.is_empty() && !ok.status.contains(StatusFlags::SESSION_STATE_CHANGED) && !self.hides_something() {
            return None;
        }
        let mut kept = Vec::new();
        let mut all = !self.hides_something() && is_well_framed(ok, body);
        for change in session_state::changes(ok.session_state) {
            // Unreadable entries are not passed on.
            let Ok(change) = change else {
                facts.note_garbled();
                all = false;
                break;
            };
            facts.note(&change);
            let is_hidden = match change {
                Change::TransactionCharacteristics(_) | Change::TransactionState(_) => self.hides.contains(TRANSACTION),
                Change::SystemVariable { name: b"autocommit", .. } => self.hides.contains(StatusFlags::AUTOCOMMIT),
                Change::Gtids(_) => self.hides_gtids,
                _ => false,
            };
            if !is_hidden && self.filter.is_some_and(|f| f.wants(&change)) {
                session_state::put_change(&mut kept, &change);
            } else {
                all = false;
            }
        }
        if all && self.filter.is_some() {
            return None;
        }
        let mut status = ok.status;
        status.set(StatusFlags::SESSION_STATE_CHANGED, !kept.is_empty());
        status.remove(self.hides);
        let mut payload = Vec::new();
        OkPacket { session_state: &kept, status, ..*ok }.write(&mut payload, header, self.to);
        Some(payload)
    }
}

/// Does the packet's end say how long its session state is? That of MariaDB 10.2 says two bytes too many.
fn is_well_framed(ok: &OkPacket<'_>, body: &[u8]) -> bool {
    let Some(length) = ok.session_state.len().checked_add(2).and_then(|claimed| u16::try_from(claimed).ok()) else { return true };
    let [low, high] = length.to_le_bytes();
    let end = body.len().saturating_sub(ok.session_state.len());
    ok.session_state.len() <= 250 || body.get(..end).is_none_or(|head| !head.ends_with(&[0xfc, low, high]))
}

/// A row with a number, for a column of this type (binary protocol: integers have the width of their type).
fn number_row(value: i64, binary: bool, column_type: u8) -> Vec<u8> {
    let mut row = Vec::with_capacity(22);
    if !binary {
        crate::codec::put_lenenc_bytes(&mut row, value.to_string().as_bytes());
        return row;
    }
    row.extend_from_slice(&[0, 0]);
    let bytes = value.to_le_bytes();
    match column_type {
        MYSQL_TYPE_TINY => row.extend_from_slice(&bytes[..1]),
        MYSQL_TYPE_SHORT => row.extend_from_slice(&bytes[..2]),
        MYSQL_TYPE_LONG | MYSQL_TYPE_INT24 => row.extend_from_slice(&bytes[..4]),
        MYSQL_TYPE_LONGLONG => row.extend_from_slice(&bytes),
        _ => crate::codec::put_lenenc_bytes(&mut row, value.to_string().as_bytes()),
    }
    row
}

const MYSQL_TYPE_TINY: u8 = 1;
const MYSQL_TYPE_SHORT: u8 = 2;
const MYSQL_TYPE_LONG: u8 = 3;
const MYSQL_TYPE_LONGLONG: u8 = 8;
const MYSQL_TYPE_INT24: u8 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Capabilities = Capabilities::PROTOCOL_41.union(Capabilities::SESSION_TRACK);

    /// An OK in a transaction that is told as one outside of any, numbers and text untouched.
    #[test]
    fn a_transaction_of_the_proxys_own_is_not_told() {
        let mut state = Vec::new();
        session_state::put_change(&mut state, &Change::TransactionState(b"T___W___"));
        session_state::put_change(&mut state, &Change::SystemVariable { name: b"autocommit", value: b"ON" });
        let status = StatusFlags::IN_TRANS | StatusFlags::AUTOCOMMIT | StatusFlags::SESSION_STATE_CHANGED;
        let ok = OkPacket { affected_rows: 3, last_insert_id: 7, status, warnings: 1, info: b"Records: 3", session_state: &state };
        let (mut payload, mut input) = (Vec::new(), Vec::new());
        ok.write(&mut payload, crate::message::OK, CAPS);
        packet::put_packet(&mut input, &mut 1, &payload);
        let filter = TrackFilter { system_variables: vec!["*".into()], ..TrackFilter::default() };
        let (mut out, mut facts) = (Vec::new(), ReplyFacts::default());
        let mut reframe = Reframe::new(ReplyKind::Results, CAPS, CAPS, Some(&filter), StatusFlags::AUTOCOMMIT).hiding(TRANSACTION);
        reframe.process(&mut input, &mut out, &mut facts).unwrap();
        let told = OkPacket::parse(&out[HEADER..], CAPS).unwrap();
        assert_eq!((told.affected_rows, told.last_insert_id, told.warnings, told.info), (3, 7, 1, &b"Records: 3"[..]));
        assert_eq!(told.status, StatusFlags::AUTOCOMMIT | StatusFlags::SESSION_STATE_CHANGED);
        let changes: Vec<_> = session_state::changes(told.session_state).map(Result::unwrap).collect();
        assert!(matches!(changes.as_slice(), [Change::SystemVariable { .. }]), "{changes:?}");
        assert!(facts.status.is_some_and(|status| !status.intersects(TRANSACTION) && status.contains(StatusFlags::AUTOCOMMIT)));
    }

    fn ok_with(changes: &[Change<'_>]) -> Vec<u8> {
        let mut state = Vec::new();
        changes.iter().for_each(|change| session_state::put_change(&mut state, change));
        let status = StatusFlags::AUTOCOMMIT | StatusFlags::SESSION_STATE_CHANGED;
        let ok = OkPacket { affected_rows: 1, status, session_state: &state, ..OkPacket::default() };
        let (mut payload, mut out) = (Vec::new(), Vec::new());
        ok.write(&mut payload, crate::message::OK, CAPS);
        packet::put_packet(&mut out, &mut 1, &payload);
        out
    }

    #[test]
    fn gtids_are_told_only_to_who_asked_and_may_know() {
        let reply = ok_with(&[Change::Gtids(b"aa:1")]);
        for (gtids, hides, told) in [(true, false, true), (true, true, false), (false, false, false), (false, true, false)] {
            let filter = TrackFilter { gtids, ..TrackFilter::default() };
            let (mut out, mut facts, mut input) = (Vec::new(), ReplyFacts::default(), reply.clone());
            let reframe = Reframe::new(ReplyKind::Results, CAPS, CAPS, Some(&filter), StatusFlags::AUTOCOMMIT);
            let processed = reframe.hiding_gtids(hides).process(&mut input, &mut out, &mut facts).unwrap();
            let answer = if processed.direct { &input } else { &out };
            let ok = OkPacket::parse(&answer[HEADER..], CAPS).unwrap();
            assert_eq!(!ok.session_state.is_empty(), told, "{gtids} {hides}");
            assert_eq!(ok.status.contains(StatusFlags::SESSION_STATE_CHANGED), told, "{gtids} {hides}");
            assert_eq!(facts.gtids.as_deref(), Some(&b"aa:1"[..]), "the session itself knows");
        }
    }

    /// MariaDB 10.2 says that a session state over 250 bytes is two bytes longer than it is; clients take that for a broken packet.
    #[test]
    fn a_session_state_that_says_too_much_is_put_right() {
        let value = vec![b'x'; 300];
        let right = ok_with(&[Change::SystemVariable { name: b"optimizer_switch", value: &value }, Change::Schema(b"d")]);
        let at = right.windows(3).position(|bytes| bytes[0] == 0xfc).unwrap();
        let mut wrong = right.clone();
        wrong[at + 1] += 2;
        let all = TrackFilter { system_variables: vec!["*".into()], schema: true, ..TrackFilter::default() };
        let schema = TrackFilter { schema: true, ..TrackFilter::default() };
        for (filter, expected) in [(&all, right.clone()), (&schema, ok_with(&[Change::Schema(b"d")]))] {
            for reply in [&right, &wrong] {
                let (mut out, mut facts, mut input) = (Vec::new(), ReplyFacts::default(), reply.clone());
                let mut reframe = Reframe::new(ReplyKind::Results, CAPS, CAPS, Some(filter), StatusFlags::AUTOCOMMIT);
                let processed = reframe.process(&mut input, &mut out, &mut facts).unwrap();
                assert_eq!(if processed.direct { input } else { out }, expected);
                assert!(facts.variables.len() == 1 && facts.schema.as_deref() == Some(b"d") && !facts.is_garbled);
            }
        }
        // By any other number it is broken.
        wrong[at + 1] += 1;
        assert!(OkPacket::parse(&wrong[HEADER..], CAPS).is_err());
    }

    /// The results of a text with several statements, each of one column, as a server with CLIENT_DEPRECATE_EOF sends them.
    fn results(rows: &[(&[&str], StatusFlags)]) -> Vec<u8> {
        let (mut seq, mut out, mut payload) = (1, Vec::new(), Vec::new());
        for (rows, status) in rows {
            packet::put_packet(&mut out, &mut seq, &[1]);
            packet::put_packet(&mut out, &mut seq, &definition(None));
            for row in *rows {
                payload.clear();
                crate::codec::put_lenenc_bytes(&mut payload, row.as_bytes());
                packet::put_packet(&mut out, &mut seq, &payload);
            }
            payload.clear();
            OkPacket { status: *status, ..OkPacket::default() }.write(&mut payload, EOF, CAPS | Capabilities::DEPRECATE_EOF);
            packet::put_packet(&mut out, &mut seq, &payload);
        }
        out
    }

    #[test]
    fn a_patch_is_for_one_result() {
        let more = StatusFlags::AUTOCOMMIT | StatusFlags::MORE_RESULTS;
        let input = results(&[(&["3"], more), (&[], more), (&["x"], more), (&["7", "8"], StatusFlags::AUTOCOMMIT)]);
        let patches = [
            Some(Patch::Number { value: 5, binary: false }),
            Some(Patch::Rows { columns: 1, packets: [&[2, 0, 0, 9][..], b"\x01a", &[2, 0, 0, 0], b"\x01b"].concat() }),
            // It was made for another result.
            Some(Patch::Rows { columns: 3, packets: vec![1, 0, 0, 0, 0] }),
        ];
        let expected = results(&[(&["5"], more), (&["a", "b"], more), (&["x"], more), (&["7", "8"], StatusFlags::AUTOCOMMIT)]);
        let caps = CAPS | Capabilities::DEPRECATE_EOF;
        for cut in 1..input.len() {
            let mut reframe = Reframe::new(ReplyKind::Results, caps, caps, None, StatusFlags::AUTOCOMMIT).with_patches(&patches);
            let (mut told, mut facts, mut at_hand) = (Vec::new(), ReplyFacts::default(), Vec::new());
            for part in [&input[..cut], &input[cut..]] {
                at_hand.extend_from_slice(part);
                let mut out = Vec::new();
                let processed = reframe.process(&mut at_hand, &mut out, &mut facts).unwrap();
                told.extend_from_slice(if processed.direct { &at_hand[..processed.consumed] } else { &out });
                at_hand.drain(..processed.consumed);
            }
            assert!(reframe.is_done());
            assert_eq!(told, expected, "cut at {cut}");
            assert!(facts.had_rows && !facts.warned);
        }
    }

    /// Sequence ids are those of the beginning again after 256 packets, also with EOF packets that only the client has.
    #[test]
    fn an_answer_has_begun_whatever_its_sequence_ids() {
        let from = CAPS | Capabilities::DEPRECATE_EOF;
        // Beside the rows: the column count, the definition, and for one client the EOF behind them.
        for (to, rows) in [(from, 254), (CAPS, 253)] {
            let all = results(&[(vec!["x"; rows + 1].as_slice(), StatusFlags::AUTOCOMMIT)]);
            let (mut head, mut at) = (0, all.as_slice());
            for _ in 0..2 + rows {
                let (len, _) = packet::header(at).unwrap();
                head += HEADER + len;
                at = &at[HEADER + len..];
            }
            let (mut out, mut facts) = (Vec::new(), ReplyFacts::default());
            let mut reframe = Reframe::new(ReplyKind::Results, from, to, None, StatusFlags::AUTOCOMMIT);
            assert!(!reframe.has_begun());
            reframe.process(&mut all[..head].to_vec(), &mut out, &mut facts).unwrap();
            assert!(!reframe.is_done());
            assert_eq!((reframe.next_seq(), reframe.has_begun()), (1, true), "{to:?}");
        }
    }

    #[test]
    fn an_answer_begins_anew_behind_a_clients_file() {
        let (mut out, mut facts) = (Vec::new(), ReplyFacts::default());
        let mut reframe = Reframe::new(ReplyKind::Results, CAPS, CAPS, None, StatusFlags::AUTOCOMMIT).with_file(true);
        reframe.process(&mut [2, 0, 0, 1, 0xfb, b'f'], &mut out, &mut facts).unwrap();
        assert!(reframe.wants_infile() && reframe.has_begun());
        reframe.infile_sent(4);
        assert!(!reframe.has_begun());
        reframe.process(&mut ok_with(&[]), &mut out, &mut facts).unwrap();
        assert!(reframe.is_done() && reframe.has_begun());
    }

    /// A client without CLIENT_DEPRECATE_EOF gets, before the rows, the flags of the statements before.
    #[test]
    fn flags_before_rows_are_those_of_the_statement() {
        let more = StatusFlags::MORE_RESULTS;
        let lasting = [StatusFlags::NO_BACKSLASH_ESCAPES, StatusFlags::AUTOCOMMIT, StatusFlags::AUTOCOMMIT];
        let mut input = results(&[(&[], lasting[0] | more), (&[], lasting[1] | more), (&["1"], lasting[2])]);
        let (mut out, mut facts) = (Vec::new(), ReplyFacts::default());
        let from = CAPS | Capabilities::DEPRECATE_EOF;
        let mut reframe = Reframe::new(ReplyKind::Results, from, CAPS, None, StatusFlags::IN_TRANS);
        reframe.process(&mut input, &mut out, &mut facts).unwrap();
        let (mut told, mut rest) = (Vec::new(), out.as_slice());
        while let Some((len, _)) = packet::header(rest) {
            let body = &rest[HEADER..HEADER + len];
            if body[0] == EOF {
                told.push(StatusFlags::from_bits(u16::from_le_bytes([body[3], body[4]])));
            }
            rest = &rest[HEADER + len..];
        }
        assert_eq!(told, [StatusFlags::IN_TRANS, lasting[0] | more, lasting[0], lasting[1] | more, lasting[1], lasting[2]]);
    }

    /// A cursor that could not be filled ends without an EOF, as servers end it; a result that has begun has had one.
    #[test]
    fn an_error_behind_definitions_ends_a_cursor_at_once() {
        for (kind, eofs) in [(ReplyKind::Cursor, 0), (ReplyKind::Results, 1)] {
            let (mut input, mut out, mut facts, mut seq) = (Vec::new(), Vec::new(), ReplyFacts::default(), 1);
            for payload in [&[1][..], &definition(None), b"\xff\xc6\x0f#HY000Syntax error"] {
                packet::put_packet(&mut input, &mut seq, payload);
            }
            let from = CAPS | Capabilities::DEPRECATE_EOF;
            let mut reframe = Reframe::new(kind, from, CAPS, None, StatusFlags::AUTOCOMMIT);
            reframe.process(&mut input, &mut out, &mut facts).unwrap();
            assert!(reframe.is_done() && facts.error == Some(4038), "{kind:?}");
            let (mut found, mut rest) = (0, out.as_slice());
            while let Some((len, _)) = packet::header(rest) {
                found += usize::from(rest[HEADER] == EOF);
                rest = &rest[HEADER + len..];
            }
            assert_eq!(found, eofs, "{kind:?}");
        }
    }

    /// No name that would be more than a name in a statement is taken for one.
    #[test]
    fn what_cannot_be_read_is_known_to_be_there() {
        let variable = |name| Change::SystemVariable { name, value: b"1" };
        for name in [&b"sql_mode='';DROP TABLE t;SET @q"[..], b"", b"a b", b"a`b", b"\xc3\xa4"] {
            let filter = TrackFilter { system_variables: vec!["*".into()], ..TrackFilter::default() };
            let (mut out, mut facts, mut input) = (Vec::new(), ReplyFacts::default(), ok_with(&[variable(b"autocommit"), variable(name)]));
            let mut reframe = Reframe::new(ReplyKind::Results, CAPS, CAPS, Some(&filter), StatusFlags::AUTOCOMMIT);
            reframe.process(&mut input, &mut out, &mut facts).unwrap();
            assert!(facts.is_garbled && facts.state_change, "{name:?}");
            assert_eq!(facts.variables.len(), 1, "{name:?}");
            let told = OkPacket::parse(&out[HEADER..], CAPS).unwrap();
            assert!(session_state::changes(told.session_state).all(|change| change == Ok(variable(b"autocommit"))));
        }
    }

    fn definition(metadata: Option<&[u8]>) -> Vec<u8> {
        let mut payload = Vec::new();
        [&b"def"[..], b"test", b"t", b"t", b"a", b"a"].iter().for_each(|name| crate::codec::put_lenenc_bytes(&mut payload, name));
        metadata.into_iter().for_each(|metadata| crate::codec::put_lenenc_bytes(&mut payload, metadata));
        payload.extend_from_slice(&[0x0c, 45, 0, 4, 0, 0, 0, 253, 0, 0, 0, 0, 0]);
        payload
    }

    /// In text and prepared results and in COM_FIELD_LIST, with EOF packets made or not; bytes come one by one.
    #[test]
    fn definitions_have_the_metadata_that_the_client_was_promised() {
        for (kind, first) in
            [(ReplyKind::Results, &[1][..]), (ReplyKind::Prepare, &[0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0][..]), (ReplyKind::FieldList, &[])]
        {
            let (none, plain, uuid) = (None, Some(&b""[..]), Some(&b"\x00\x04uuid"[..]));
            for (sent, told) in [(none, none), (none, plain), (plain, plain), (uuid, uuid), (plain, none), (uuid, none)] {
                for to_eof in [Capabilities::DEPRECATE_EOF, Capabilities::default()] {
                    let with = |metadata: Option<&[u8]>| if metadata.is_some() { EXTENDED_METADATA } else { Capabilities::default() };
                    let (from, to) = (CAPS | Capabilities::DEPRECATE_EOF | with(sent), CAPS | to_eof | with(told));
                    let make = |definition: Vec<u8>, eof: bool| {
                        let (mut seq, mut out) = (1, Vec::new());
                        if !first.is_empty() {
                            packet::put_packet(&mut out, &mut seq, first);
                        }
                        packet::put_packet(&mut out, &mut seq, &definition);
                        if eof && kind != ReplyKind::FieldList {
                            let start = packet::begin_packet(&mut out);
                            put_eof(&mut out, 0, StatusFlags::AUTOCOMMIT);
                            packet::finish_packet(&mut out, start, &mut seq);
                        }
                        out
                    };
                    let (input, expected) = (make(definition(sent), false), make(definition(told), to_eof != Capabilities::DEPRECATE_EOF));
                    let mut reframe = Reframe::new(kind, from, to, None, StatusFlags::AUTOCOMMIT);
                    let (mut at_hand, mut seen, mut facts) = (Vec::new(), Vec::new(), ReplyFacts::default());
                    for byte in input {
                        at_hand.push(byte);
                        let mut out = Vec::new();
                        let processed = reframe.process(&mut at_hand, &mut out, &mut facts).unwrap();
                        seen.extend_from_slice(if processed.direct { &at_hand[..processed.consumed] } else { &out });
                        at_hand.drain(..processed.consumed);
                    }
                    if kind == ReplyKind::Results && to_eof == Capabilities::default() {
                        // The EOF comes with what follows.
                        seen.extend_from_slice(&expected[seen.len()..]);
                    }
                    assert_eq!(seen, expected, "{kind:?} {sent:?} {told:?}");
                }
            }
        }
    }

    #[test]
    fn an_eof_that_is_the_answer_has_the_form_that_the_client_knows() {
        let status = StatusFlags::AUTOCOMMIT;
        let made = |caps: Capabilities| {
            let mut payload = Vec::new();
            if caps.contains(Capabilities::DEPRECATE_EOF) {
                OkPacket { status, ..OkPacket::default() }.write(&mut payload, EOF, caps)
            } else {
                put_eof(&mut payload, 0, status)
            }
            let mut out = Vec::new();
            packet::put_packet(&mut out, &mut 1, &payload);
            out
        };
        let plain = CAPS & !(Capabilities::SESSION_TRACK | Capabilities::DEPRECATE_EOF);
        let deprecated = plain | Capabilities::DEPRECATE_EOF;
        for (from, to) in [(plain, plain), (deprecated, plain), (deprecated, deprecated)] {
            let (mut out, mut facts, mut input) = (Vec::new(), ReplyFacts::default(), made(from));
            let mut reframe = Reframe::new(ReplyKind::Simple, from, to, None, status);
            let processed = reframe.process(&mut input, &mut out, &mut facts).unwrap();
            assert_eq!(if processed.direct { input } else { out }, made(to), "{from:?} {to:?}");
            assert_eq!(facts.status, Some(status));
        }
    }

    #[test]
    fn an_answer_is_told_more() {
        let mut more = Vec::new();
        session_state::put_change(&mut more, &Change::Gtids(b"aa:2"));
        let changed = with_changes(&ok_with(&[Change::Schema(b"x")]), CAPS, &more).unwrap();
        let ok = OkPacket::parse(&changed[HEADER..], CAPS).unwrap();
        let changes: Vec<_> = session_state::changes(ok.session_state).map(Result::unwrap).collect();
        assert_eq!((ok.affected_rows, changes), (1, vec![Change::Schema(&b"x"[..]), Change::Gtids(b"aa:2")]));
        assert_eq!(packet::header(&changed), Some((changed.len() - HEADER, 1)));
        // Rows, two packets, and a client without CLIENT_SESSION_TRACK.
        assert_eq!(with_changes(&[1, 0, 0, 1, 1], CAPS, &more), None);
        assert_eq!(with_changes(&[changed.clone(), changed.clone()].concat(), CAPS, &more), None);
        assert_eq!(with_changes(&changed, Capabilities::PROTOCOL_41, &more), None);
    }
}
