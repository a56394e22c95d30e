//! Turns a server's reply, framed as one connection agreed, into the reply as the client's connection agreed.
//!
//! Pure: bytes in, bytes out. Frames pass untouched and uncopied where both sides agree; otherwise EOF packets come and
//! go (CLIENT_DEPRECATE_EOF), sequence ids are renumbered in place, session-tracker entries that the client did not ask
//! for are taken out, and a value the session knows better than the backend is put in. On the way it notes the facts
//! of the reply ([`ReplyFacts`]).

use wire::WireError;
use wire::codec::Reader;
use wire::flags::{Capabilities, StatusFlags};
use wire::message::{EOF, ErrPacket, OkPacket, put_eof};
use wire::packet::{self, HEADER};
use wire::reply::{Frame, ReplyKind, Step, Tracker};
use wire::session_state::{self, Change};

/// Which session-tracker entries the client asked for.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// True when the client is told of this change.
    pub fn wants(&self, change: &Change<'_>) -> bool {
        match change {
            Change::SystemVariable { name, .. } => {
                self.system_variables.iter().any(|v| v == "*" || v.as_bytes().eq_ignore_ascii_case(name))
            }
            Change::Schema(_) => self.schema,
            Change::StateChange(_) => self.state_change,
            Change::Gtids(_) => self.gtids,
            // The proxy asks for none of these: whatever comes is what the client's own settings, or a server's habit
            // (MySQL 9.7 tells of BEGIN unasked), bring.
            Change::TransactionCharacteristics(_) | Change::TransactionState(_) | Change::Other { .. } => true,
        }
    }
}

/// An answer that is one OK packet, with more entries of the session tracker; None for any other answer, and for clients that
/// are not told of them.
pub fn with_changes(answer: &[u8], caps: Capabilities, changes: &[u8]) -> Option<Vec<u8>> {
    let (len, mut seq) = packet::header(answer)?;
    let body = answer.get(HEADER..).filter(|body| body.len() == len && body.first() == Some(&wire::message::OK))?;
    let ok = OkPacket::parse(body, caps).ok().filter(|_| caps.contains(Capabilities::SESSION_TRACK))?;
    let (session_state, status) = ([ok.session_state, changes].concat(), ok.status | StatusFlags::SESSION_STATE_CHANGED);
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    OkPacket { session_state: &session_state, status, ..ok }.write(&mut payload, wire::message::OK, caps);
    packet::put_packet(&mut out, &mut seq, &payload);
    Some(out)
}

/// A number that replaces the only column of each row: the session knows it, the backend does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The value.
    pub value: i64,
    /// True for a row of the binary protocol.
    pub binary: bool,
}

/// Length of an EOF packet's payload that is no OK packet.
const PLAIN_EOF: usize = 5;
/// CR_MALFORMED_PACKET.
const MALFORMED_PACKET: u16 = 2027;

/// What a reply said.
#[derive(Clone, Debug, Default)]
pub struct ReplyFacts {
    /// Rows changed, of the last OK.
    pub affected_rows: u64,
    /// The last insert id that was not 0.
    pub last_insert_id: u64,
    /// Warnings of the last OK or EOF.
    pub warnings: u16,
    /// Status flags of the last OK or EOF; None when the reply was an error from the start.
    pub status: Option<StatusFlags>,
    /// The error that ended it.
    pub error: Option<u16>,
    /// Its text.
    pub message: Box<[u8]>,
    /// Rows of the last result set; None when the last result was an OK.
    pub rows: Option<u64>,
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
    /// GTIDs of what was written, where MySQL was told to say them.
    pub gtids: Option<Box<[u8]>>,
}

impl ReplyFacts {
    /// What the end of a reply to a question of our own told of the session.
    pub fn told_by(status: StatusFlags, session_state: &[u8]) -> Self {
        let mut facts = Self { status: Some(status), ..Self::default() };
        session_state::changes(session_state).map_while(Result::ok).for_each(|change| facts.note(&change));
        facts
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

/// An error that is the whole of a reply.
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
    /// The error at the front of `reply`, of which nothing was dealt with yet, and its length there; None while it is not
    /// all there, and for any other reply. `caps` is what was agreed with the server.
    pub fn at_front(reply: &'a [u8], caps: Capabilities) -> Option<(Self, usize)> {
        let (len, seq) = packet::header(reply)?;
        let body = reply.get(HEADER..HEADER + len).filter(|body| body.first() == Some(&wire::message::ERR))?;
        let error = ErrPacket::parse(body, caps).ok()?;
        Some((Self { code: error.code, sqlstate: error.sqlstate, message: error.message, unasked: seq == 0 }, HEADER + len))
    }
}

/// What [`Reframe::process`] made of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processed {
    /// Input bytes dealt with.
    pub consumed: usize,
    /// True: they go to the client as they stand in the input. False: the output holds what goes to the client.
    pub direct: bool,
    /// The input must hold this many bytes after `consumed` before anything more can be done (0 when done).
    pub needs: usize,
}

/// What goes to the client in place of a packet.
enum Instead {
    Nothing,
    Eof { warnings: u16, status: StatusFlags },
    Payload(Vec<u8>),
}

const EXTENDED_METADATA: Capabilities = Capabilities::MARIADB_CLIENT_EXTENDED_METADATA;

/// ER_QUERY_INTERRUPTED.
const INTERRUPTED: u16 = 1317;
/// ER_QUERY_TIMEOUT, as MariaDB once called it.
const QUERY_TIMEOUT: u16 = 1907;

/// What says that a transaction is open.
const TRANSACTION: StatusFlags = StatusFlags::IN_TRANS.union(StatusFlags::IN_TRANS_READONLY);

fn is_of_transaction(change: &Change<'_>) -> bool {
    matches!(change, Change::TransactionCharacteristics(_) | Change::TransactionState(_))
}

/// See the module.
pub struct Reframe<'f> {
    tracker: Tracker,
    from: Capabilities,
    to: Capabilities,
    filter: Option<&'f TrackFilter>,
    patch: Option<Patch>,
    /// Column type of the patched column, as its definition says.
    patch_type: u8,
    /// Packets go out only whole.
    whole: bool,
    /// The statement was killed because its time was over: the server's error 1317 is told as that.
    timed_out: bool,
    /// The transaction in which it runs is the proxy's own: nothing is said of it.
    hides_transaction: bool,
    /// GTIDs are not told, whatever the client asked for.
    hides_gtids: bool,
    skip: usize,
    eof_due: bool,
    /// Status for the EOF packets we make between definitions and rows.
    status: StatusFlags,
    /// Sequence id of the next packet to the client: counted here, whatever the server's are.
    next_seq: u8,
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
            patch: None,
            patch_type: 0,
            whole: false,
            timed_out: false,
            hides_transaction: false,
            hides_gtids: false,
            skip: 0,
            eof_due: false,
            status,
            next_seq: 1,
            server_seq: 1,
        }
    }

    /// Puts `patch` into every row.
    pub fn with_patch(mut self, patch: Option<Patch>) -> Self {
        self.patch = patch;
        self
    }

    /// Packets go out only whole: for the compressed protocol, where some clients expect a packet in one frame.
    pub fn with_whole_packets(mut self, whole: bool) -> Self {
        self.whole = whole;
        self
    }

    /// The statement runs in a transaction that the client knows nothing of.
    pub fn hiding_transaction(mut self, hides: bool) -> Self {
        self.hides_transaction = hides;
        self
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
    }

    /// The sequence id that the server expects next.
    pub fn server_seq(&self) -> u8 {
        self.server_seq
    }

    /// Sequence id of the next packet to the client.
    pub fn next_seq(&self) -> u8 {
        self.next_seq
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
            let patched = self.patch.is_some() || self.adds_metadata() && self.defines();
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
            self.server_seq = seq.wrapping_add(1);
            if self.eof_due && self.tracker.kind() != ReplyKind::Prepare {
                // A cursor was opened: the one EOF after the definitions is also the end, and comes below.
                self.eof_due = false;
                if frame != Frame::ResultEnd || !self.tracker.status().contains(StatusFlags::CURSOR_EXISTS) {
                    self.flush(input, &mut run, pos, out, &mut direct);
                    self.insert_eof(out);
                }
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
            self.eof_due = self.tracker.group_ended() && self.adds_eof();
            pos += HEADER + at_hand;
            self.skip = len - at_hand;
        }
        if !direct {
            out.extend_from_slice(input.get(run..pos).unwrap_or_default());
        }
        Ok(Processed { consumed: pos, direct, needs })
    }

    /// The client expects extended metadata in each definition, which the server does not send.
    fn adds_metadata(&self) -> bool {
        self.to.contains(EXTENDED_METADATA) && !self.from.contains(EXTENDED_METADATA)
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
            Instead::Payload(payload) => packet::put_packet(out, &mut self.next_seq, payload),
        }
    }

    fn put_eof(&mut self, warnings: u16, status: StatusFlags, out: &mut Vec<u8>) {
        let start = packet::begin_packet(out);
        put_eof(out, warnings, status);
        packet::finish_packet(out, start, &mut self.next_seq);
    }

    fn insert_eof(&mut self, out: &mut Vec<u8>) {
        self.put_eof(0, self.status, out);
        self.eof_due = false;
    }

    /// Notes what the frame says; answers what goes to the client instead, if it cannot pass as it is.
    fn replace(&mut self, frame: Frame, body: &[u8], facts: &mut ReplyFacts) -> Option<Instead> {
        match frame {
            Frame::Definition => {
                if self.patch.is_some() {
                    // The definition ends: type (1), flags (2), decimals (1), filler (2).
                    self.patch_type = body.len().checked_sub(6).and_then(|at| body.get(at)).copied().unwrap_or(0);
                }
                self.with_metadata(body).map(Instead::Payload)
            }
            Frame::Row if self.tracker.kind() == ReplyKind::FieldList => self.with_metadata(body).map(Instead::Payload),
            Frame::Row => self.patch.map(|p| Instead::Payload(p.row(self.patch_type))),
            Frame::Err => {
                let error = ErrPacket::parse(body, self.from).ok();
                let code = error.as_ref().map_or(MALFORMED_PACKET, |e| e.code);
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

    /// A definition with empty extended metadata, where the client expects some and the server sends none. It follows six
    /// strings: catalog, schema, table twice, column twice.
    fn with_metadata(&self, definition: &[u8]) -> Option<Vec<u8>> {
        if !self.adds_metadata() {
            return None;
        }
        let mut reader = Reader::new(definition);
        for _ in 0..6 {
            reader.lenenc_bytes().ok()?;
        }
        let (names, rest) = definition.split_at_checked(definition.len() - reader.remaining())?;
        Some([names, &[0], rest].concat())
    }

    /// Error 1907, as ProxySQL puts it, in place of the 1317 that follows a KILL.
    fn time_is_over(&self, facts: &mut ReplyFacts) -> Vec<u8> {
        facts.error = Some(QUERY_TIMEOUT);
        let mut payload = Vec::new();
        let message = b"Query execution was interrupted, query_timeout exceeded";
        facts.message = message[..].into();
        ErrPacket { code: QUERY_TIMEOUT, sqlstate: *b"70100", message }.write(&mut payload, self.to);
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
        self.rewritten(&ok, wire::message::OK, facts)
    }

    /// An EOF packet that is the whole answer, as an OK packet (some servers send a plain one all the same): plain, for a client
    /// that does not know the other form.
    fn other_eof(&self, body: &[u8]) -> Option<Vec<u8>> {
        if body.len() <= PLAIN_EOF || self.to.contains(Capabilities::DEPRECATE_EOF) {
            return None;
        }
        let mut status = self.tracker.status();
        status.remove(StatusFlags::SESSION_STATE_CHANGED);
        let mut payload = Vec::new();
        put_eof(&mut payload, self.tracker.warnings(), status);
        Some(payload)
    }

    fn result_end(&mut self, body: &[u8], facts: &mut ReplyFacts) -> Option<Instead> {
        facts.rows = Some(self.tracker.rows());
        facts.all_rows = facts.all_rows.saturating_add(self.tracker.rows());
        self.note_end(facts);
        if !self.from.contains(Capabilities::DEPRECATE_EOF) {
            if !self.drops_eof() {
                return None;
            }
            let (status, warnings) = (self.tracker.status(), self.tracker.warnings());
            let ok = OkPacket { affected_rows: 0, last_insert_id: 0, status, warnings, info: b"", session_state: b"" };
            let mut payload = Vec::new();
            ok.write(&mut payload, EOF, self.to);
            return Some(Instead::Payload(payload));
        }
        let ok = OkPacket::parse(body, self.from).ok()?;
        if ok.last_insert_id != 0 {
            facts.last_insert_id = ok.last_insert_id;
        }
        let rewritten = self.rewritten(&ok, EOF, facts);
        if self.to.contains(Capabilities::DEPRECATE_EOF) {
            return rewritten.map(Instead::Payload);
        }
        let mut status = self.tracker.status();
        status.remove(StatusFlags::SESSION_STATE_CHANGED);
        Some(Instead::Eof { warnings: self.tracker.warnings(), status })
    }

    fn note_end(&self, facts: &mut ReplyFacts) {
        facts.warnings = self.tracker.warnings();
        let mut status = self.tracker.status();
        if self.hides_transaction {
            status.remove(TRANSACTION);
        }
        facts.status = Some(status);
    }

    /// Notes session changes; the packet anew when the client must not see them all.
    fn rewritten(&self, ok: &OkPacket<'_>, header: u8, facts: &mut ReplyFacts) -> Option<Vec<u8>> {
        if ok.session_state.is_empty() && !ok.status.contains(StatusFlags::SESSION_STATE_CHANGED) && !self.hides_transaction {
            return None;
        }
        let mut kept = Vec::new();
        let mut all = !self.hides_transaction;
        for change in session_state::changes(ok.session_state) {
            // What cannot be read is not passed on.
            let Ok(change) = change else {
                all = false;
                break;
            };
            facts.note(&change);
            let is_hidden = self.hides_transaction && is_of_transaction(&change) || self.hides_gtids && matches!(change, Change::Gtids(_));
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
        if self.hides_transaction {
            status.remove(TRANSACTION);
        }
        let mut payload = Vec::new();
        OkPacket { session_state: &kept, status, ..*ok }.write(&mut payload, header, self.to);
        Some(payload)
    }
}

impl Patch {
    /// The row, for a column of this type (binary protocol: integers have the width of their type).
    fn row(self, column_type: u8) -> Vec<u8> {
        let mut row = Vec::with_capacity(22);
        if !self.binary {
            wire::codec::put_lenenc_bytes(&mut row, self.value.to_string().as_bytes());
            return row;
        }
        row.extend_from_slice(&[0, 0]);
        let bytes = self.value.to_le_bytes();
        match column_type {
            MYSQL_TYPE_TINY => row.extend_from_slice(&bytes[..1]),
            MYSQL_TYPE_SHORT => row.extend_from_slice(&bytes[..2]),
            MYSQL_TYPE_LONG | MYSQL_TYPE_INT24 => row.extend_from_slice(&bytes[..4]),
            MYSQL_TYPE_LONGLONG => row.extend_from_slice(&bytes),
            _ => wire::codec::put_lenenc_bytes(&mut row, self.value.to_string().as_bytes()),
        }
        row
    }
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
        ok.write(&mut payload, wire::message::OK, CAPS);
        packet::put_packet(&mut input, &mut 1, &payload);
        let filter = TrackFilter { system_variables: vec!["*".into()], ..TrackFilter::default() };
        let (mut out, mut facts) = (Vec::new(), ReplyFacts::default());
        let mut reframe = Reframe::new(ReplyKind::Results, CAPS, CAPS, Some(&filter), StatusFlags::AUTOCOMMIT).hiding_transaction(true);
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
        ok.write(&mut payload, wire::message::OK, CAPS);
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

    fn definition(metadata: Option<&[u8]>) -> Vec<u8> {
        let mut payload = Vec::new();
        [&b"def"[..], b"test", b"t", b"t", b"a", b"a"].iter().for_each(|name| wire::codec::put_lenenc_bytes(&mut payload, name));
        metadata.into_iter().for_each(|metadata| wire::codec::put_lenenc_bytes(&mut payload, metadata));
        payload.extend_from_slice(&[0x0c, 45, 0, 4, 0, 0, 0, 253, 0, 0, 0, 0, 0]);
        payload
    }

    /// In text and prepared results and in COM_FIELD_LIST, with EOF packets made or not; bytes come one by one.
    #[test]
    fn definitions_get_the_metadata_that_the_client_was_promised() {
        for (kind, first) in
            [(ReplyKind::Results, &[1][..]), (ReplyKind::Prepare, &[0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0][..]), (ReplyKind::FieldList, &[])]
        {
            for to_eof in [Capabilities::DEPRECATE_EOF, Capabilities::default()] {
                let from = CAPS | Capabilities::DEPRECATE_EOF;
                let to = CAPS | to_eof | EXTENDED_METADATA;
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
                let (input, expected) = (make(definition(None), false), make(definition(Some(b"")), to_eof != Capabilities::DEPRECATE_EOF));
                let mut reframe = Reframe::new(kind, from, to, None, StatusFlags::AUTOCOMMIT);
                let (mut at_hand, mut told, mut facts) = (Vec::new(), Vec::new(), ReplyFacts::default());
                for byte in input {
                    at_hand.push(byte);
                    let mut out = Vec::new();
                    let processed = reframe.process(&mut at_hand, &mut out, &mut facts).unwrap();
                    told.extend_from_slice(if processed.direct { &at_hand[..processed.consumed] } else { &out });
                    at_hand.drain(..processed.consumed);
                }
                if kind == ReplyKind::Results && to_eof == Capabilities::default() {
                    // The EOF comes with what follows.
                    told.extend_from_slice(&expected[told.len()..]);
                }
                assert_eq!(told, expected, "{kind:?}");
            }
        }
    }

    #[test]
    fn an_eof_that_is_the_answer_has_the_form_that_the_client_knows() {
        let status = StatusFlags::AUTOCOMMIT;
        let made = |caps: Capabilities| {
            let mut payload = Vec::new();
            match caps.contains(Capabilities::DEPRECATE_EOF) {
                true => OkPacket { status, ..OkPacket::default() }.write(&mut payload, EOF, caps),
                false => put_eof(&mut payload, 0, status),
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
