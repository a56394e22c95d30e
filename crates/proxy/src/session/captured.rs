//! A session that is captured: each of its commands that was answered becomes a record of the capture's file.
//!
//! The command is read where it lies in the client's buffer, after its answer was sent. The answer is what the session's listener heard
//! ([`Beside`](super::beside::Beside)).

use super::Session;
use super::command::Incoming;
use super::pipeline::{Form, Statement};
use super::route::TextCommand;
use crate::captures::Run;
use crate::limits::overload::Step;
use crate::workers::worker::is_long;
use ::capture::{Gap, GapReason, Params, Record, SessionStart, Timing, What, Withheld};
use rehearsal::Answer;
use session_state::pins::{self, PinReason, PinSet};
use session_state::state::{self, Diff, State, Variables};
use sql::{Kind, LexMode};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::codec::Reader;
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::packet::HEADER;

/// Longest text, parameters or long data of a command, bytes.
pub(super) const MAX_TEXT: usize = 16 << 20;
/// Bytes of a long text that are read for its record.
const HEAD: usize = 1024;
/// Digests of which a session remembers whether they carry a password.
const MAX_SHAPES: usize = 1024;

/// Commands that are short, and of which the file has more than their name.
pub(super) const SHORT: [u8; 4] = [Command::InitDb as u8, Command::StmtClose as u8, Command::StmtReset as u8, Command::SetOption as u8];
/// Commands that a replay does without. A bulk execution is withheld as a statement.
const QUIET: [Command; 8] = [
    Command::Ping,
    Command::Statistics,
    Command::ProcessInfo,
    Command::StmtFetch,
    Command::FieldList,
    Command::StmtBulkExecute,
    Command::StmtClose,
    Command::StmtReset,
];

/// Pins that leave nothing on the connection which a replay or a copy would miss. Transactions are looked at apart.
pub(super) const HARMLESS: PinSet = PinSet::of(&[PinReason::Cursor, PinReason::UserLock, PinReason::ReplicationGtid]);

/// Words in statements of data whose strings may carry a password: the digest does not tell.
const LOOKED_INTO: [&[u8]; 4] = [b"set", b"prepare", b"execute", b"comment"];

/// The packet of the long data at hand. Its bytes count in the capture until it is dropped.
struct LongData {
    run: Arc<Run>,
    bytes: Vec<u8>,
}

impl Drop for LongData {
    fn drop(&mut self) {
        self.run.let_go(self.bytes.len());
    }
}

/// What a session has to do with captures.
#[derive(Default)]
pub(super) struct SessionCapture {
    /// The number of the capture that was looked at.
    number: u64,
    /// That capture, if it wants the session.
    run: Option<Arc<Run>>,
    /// The file has the session's state.
    has_begun: bool,
    /// Prepared statements of which the file has the text.
    known: HashSet<u32>,
    /// Digests that carry a password, and others that do not.
    secrets: HashMap<u64, bool>,
    /// Commands that had ended when this one began.
    after: u64,
    /// The number of this one's end; 0 until then.
    seq: u64,
    stage: Stage,
    /// The payload of a command that is no statement, and the client's prepared statement that it names.
    said: Vec<u8>,
    named: Option<u32>,
    /// The packet of the long data at hand.
    long_data: Option<LongData>,
}

/// How far the statement at hand came.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing was sent for it: the proxy answers.
    #[default]
    Begun,
    /// It was refused or answered by a rule, and no server shall see it.
    Stopped,
    /// It was sent, and its answer is heard.
    Heard,
    /// It was sent, and its answer cannot be read, as that of a cursor.
    Unheard,
}

impl SessionCapture {
    /// The last byte of an answer is here. The number is taken before the client has it: whatever begins later comes behind it.
    pub(super) fn reply_ends(&mut self) {
        if let Some(run) = self.run.as_ref().filter(|_| self.seq == 0) {
            self.seq = run.count_end();
        }
    }

    /// A rule has answered or refused the statement at hand.
    pub(super) fn stops(&mut self) {
        self.stage = Stage::Stopped;
    }

    fn is_active(&self) -> bool {
        self.has_begun && self.run.is_some()
    }
}

impl Session {
    /// A command has come.
    pub(super) fn capture_begins(&mut self, command: Incoming) {
        let number = self.worker.shared.captures.running();
        if number == 0 {
            // The last one has ended.
            if let Some(beside) = self.beside.as_mut().filter(|beside| beside.captured.number != 0) {
                beside.captured = SessionCapture::default();
            }
            return;
        }
        if self.beside.as_ref().is_none_or(|beside| beside.captured.number != number) {
            let run = self.worker.shared.captures.current();
            let run = run.filter(|run| run.wants(self.handle.id, &self.at.user.name));
            self.beside.get_or_insert_default().captured = SessionCapture { number, run, ..SessionCapture::default() };
        }
        let Some(captured) = self.beside.as_mut().map(|beside| &mut beside.captured) else { return };
        let Some(run) = captured.run.as_ref() else { return };
        (captured.after, captured.seq, captured.stage) = (run.ends_so_far(), 0, Stage::Begun);
        if !captured.has_begun && self.may_begin_capture() {
            self.begin_capture();
        }
        self.count_unless_begun();
        if SHORT.contains(&command.byte) {
            self.keep_command(command);
        }
    }

    /// A command of a session that waits for its transaction to end, among others, is missing in the file.
    fn count_unless_begun(&self) {
        let captured = self.beside.as_ref().map(|beside| &beside.captured).filter(|captured| !captured.has_begun);
        if let Some(run) = captured.and_then(|captured| captured.run.as_ref()) {
            run.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The buffer of a short command has another one, or a server's number of a statement, when it was answered.
    fn keep_command(&mut self, command: Incoming) {
        let (said, named) = (self.client.payload(command).to_vec(), self.statements.named_statement(&self.at, &self.client, command));
        if let Some(beside) = self.beside.as_mut() {
            (beside.captured.said, beside.captured.named) = (said, named);
        }
    }

    /// Nothing of the session is on its connection that the file could not say.
    fn may_begin_capture(&self) -> bool {
        if self.at.user.fast_forward {
            return false;
        }
        let pins = self.at.pins.set().without(pins::TRANSACTION).without(pins::WISHES).without(HARMLESS);
        let is_in_transaction = self.client.current_status().contains(StatusFlags::IN_TRANS);
        pins.is_empty() && !is_in_transaction && !self.statements.any_long_data()
    }

    /// Puts the session's state into the file.
    fn begin_capture(&mut self) {
        let setup = self.capture_setup();
        let schema = self.wants.state.schema.clone();
        let start = SessionStart {
            session: self.handle.id,
            user: self.at.user.name.as_bytes(),
            schema: schema.as_deref().unwrap_or_default(),
            capabilities: self.client.caps.bits(),
            setup: setup.iter().map(Vec::as_slice).collect(),
        };
        let Some(captured) = self.beside.as_mut().map(|beside| &mut beside.captured) else { return };
        let Some(run) = captured.run.as_ref() else { return };
        captured.has_begun = run.push(self.worker.index, &Record::Session(start));
        captured.known.clear();
    }

    /// Statements that bring a new connection into the session's state, without its schema. Collations that the client left to the server
    /// are left to that of the replay.
    fn capture_setup(&self) -> Vec<Vec<u8>> {
        let mut want = self.wants.without_user_variables(|name, literal| assigns_password(name, literal, self.wants.lex));
        let Some(info) = self.worker.shared.info.get() else { return Vec::new() };
        self.chosen_in(&mut want).leave_to(&info, &mut want);
        match state::diff(&want, &State::default(), &Variables::default(), &info) {
            Diff::Steps { set: Some(set), .. } => vec![set.into_bytes()],
            _ => Vec::new(),
        }
    }

    fn set_stage(&mut self, stage: Stage) {
        if let Some(beside) = self.beside.as_mut() {
            beside.captured.stage = stage;
        }
    }

    /// The statement is about to be sent: how rows of its answer come, if it is captured and they can be read.
    pub(super) fn capture_wants(&mut self, statement: &Statement) -> Option<rehearsal::Form> {
        self.beside.as_ref().filter(|beside| beside.captured.is_active())?;
        let form = match statement.form {
            Form::Text { .. } => Some(rehearsal::Form::Text),
            Form::Execution { phase: TextCommand::Execution, .. } => Some(rehearsal::Form::Binary),
            Form::Execution { .. } | Form::Bulk { .. } => None,
        };
        self.set_stage(if form.is_some() { Stage::Heard } else { Stage::Unheard });
        form
    }

    /// Bytes of long data for this statement are about to be passed on.
    pub(super) fn capture_data(&mut self, id: u32, count: usize) {
        let Some(captured) = self.beside.as_mut().map(|beside| &mut beside.captured).filter(|captured| captured.is_active()) else {
            return;
        };
        captured.named = Some(id);
        let Some(run) = captured.run.as_ref() else { return };
        let data = captured.long_data.get_or_insert_with(|| LongData { run: Arc::clone(run), bytes: Vec::new() });
        let bytes = self.client.input.filled().get(..count).unwrap_or_default();
        // One byte more says that it is too long.
        let room = (MAX_TEXT + 1).saturating_sub(data.bytes.len());
        let bytes = bytes.get(..room).unwrap_or(bytes);
        if self.worker.shared.memory.step() >= Step::LargeCommands || !data.run.hold(bytes.len()) {
            return self.leave_gap(GapReason::Memory);
        }
        data.bytes.extend_from_slice(bytes);
    }

    /// The statement was answered.
    pub(super) fn capture_statement(&mut self, statement: &Statement) {
        let Some(beside) = self.beside.as_mut().filter(|beside| beside.captured.is_active()) else { return };
        let (stage, answer) = (beside.captured.stage, beside.answer().cloned());
        if stage == Stage::Stopped {
            return;
        }
        let Some((text, id)) = self.copied_text(statement) else { return };
        if text.len() > MAX_TEXT {
            return self.leave_gap(GapReason::TooLong);
        }
        if is_long(text) {
            let head = digest_of_head(text, self.wants.lex);
            return self.withhold_from_capture(Withheld::Long, &head);
        }
        let (text, lex) = (Arc::<[u8]>::from(text), self.wants.lex);
        let analysis = statement.analysis;
        let why = match () {
            () if analysis.kind == Kind::Kill => Some(Withheld::Administrative),
            () if stage == Stage::Heard && answer.is_none() => Some(Withheld::NoAnswer),
            () if matches!(statement.form, Form::Bulk { .. }) => Some(Withheld::Form),
            () if self.is_secret(&text, analysis.kind, analysis.digest) => Some(Withheld::Password),
            () => None,
        };
        if let Some(why) = why {
            // It has no password that stands as a name either.
            return self.withhold_from_capture(why, &sql::without_literals(&text, lex));
        }
        let reply = answer.filter(|_| stage == Stage::Heard);
        match id {
            None => self.capture_record(What::Query(&text), reply),
            Some(id) => self.record_execution(statement, id, &text, reply),
        }
    }

    /// Whether a text that is not long carries a password. A shape that is plain data is read once.
    fn is_secret(&mut self, text: &[u8], kind: Kind, digest: u64) -> bool {
        let lex = self.wants.lex;
        let is_data = matches!(kind, Kind::Select | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete);
        let is_shape = is_data && digest != 0 && !has_word_of_statements(text);
        let Some(captured) = self.beside.as_mut().map(|beside| &mut beside.captured).filter(|_| is_shape) else {
            return sql::carries_password(text, lex);
        };
        if captured.secrets.len() >= MAX_SHAPES {
            captured.secrets.clear();
        }
        *captured.secrets.entry(digest).or_insert_with(|| sql::carries_password(text, lex))
    }

    fn withhold_from_capture(&mut self, why: Withheld, digest: &[u8]) {
        if let Some(run) = self.beside.as_ref().and_then(|beside| beside.captured.run.as_ref()) {
            run.count_withheld(why);
        }
        self.capture_record(What::Withheld { why, digest }, None);
    }

    fn record_execution(&mut self, statement: &Statement, id: u32, text: &[u8], reply: Option<(Answer, u64)>) {
        let Some(prepared) = self.statements.get(id) else { return };
        if self.client.payload(statement.command).len() > MAX_TEXT {
            return self.leave_gap(GapReason::TooLong);
        }
        // The buffer is left to the client's next command.
        let payload = self.client.payload(statement.command).to_vec();
        let (count, types, caps) = (prepared.params, prepared.types.clone(), self.client.caps);
        match Params::of_execution(&payload, count, &types, caps) {
            Ok(Some(params)) if self.capture_can_prepare(id) => {
                self.record_preparation(id, text);
                self.capture_record(What::Execute { statement: id, params }, reply);
            }
            Ok(_) | Err(_) => {
                self.withhold_from_capture(Withheld::Form, &sql::without_literals(text, self.wants.lex));
            }
        }
    }

    /// Whether the file has a prepared statement, or a replay would read its text as at the PREPARE.
    fn capture_can_prepare(&self, id: u32) -> bool {
        let is_known = self.beside.as_ref().is_some_and(|beside| beside.captured.known.contains(&id));
        is_known || self.statements.reads_as_prepared(&self.client, &self.wants, &self.worker, id)
    }

    /// Puts the text of a prepared statement into the file, if that does not have it. It is prepared in the schema of its PREPARE.
    fn record_preparation(&mut self, id: u32, text: &[u8]) {
        let Some(captured) = self.beside.as_mut().map(|beside| &mut beside.captured) else { return };
        if !captured.known.insert(id) {
            return;
        }
        // It ends before the command at hand does.
        let seq = captured.seq;
        let now = self.wants.state.schema.clone();
        let then = self.statements.get(id).and_then(|prepared| prepared.key.schema.clone()).filter(|then| Some(then) != now.as_ref());
        if let Some(then) = &then {
            self.record_beside(What::InitDb(then));
        }
        self.record_beside(What::Prepare { statement: id, text });
        if let Some(now) = now.filter(|_| then.is_some()) {
            self.record_beside(What::InitDb(&now));
        }
        if let Some(beside) = self.beside.as_mut() {
            beside.captured.seq = seq;
        }
    }

    /// Puts a command into the file that is not the one at hand.
    fn record_beside(&mut self, what: What<'_>) {
        if let Some(beside) = self.beside.as_mut() {
            beside.captured.seq = 0;
        }
        self.capture_record(what, None);
    }

    /// A command other than a statement was answered.
    pub(super) fn capture_command(&mut self, kind: Command) {
        let Some(captured) = self.beside.as_mut().map(|beside| &mut beside.captured).filter(|captured| captured.is_active()) else {
            return;
        };
        let (said, named) = (std::mem::take(&mut captured.said), captured.named.take());
        let said = said.get(1..).unwrap_or_default();
        let known = named.filter(|id| captured.known.contains(id));
        match (kind, known) {
            (Command::InitDb, _) => self.capture_record(What::InitDb(said), None),
            (Command::StmtPrepare, _) => self.capture_preparation(),
            (Command::StmtClose, Some(id)) => {
                captured.known.remove(&id);
                self.capture_record(What::CloseStatement(id), None);
            }
            (Command::StmtReset, Some(id)) => self.capture_record(What::ResetStatement(id), None),
            (Command::StmtSendLongData, _) => self.record_long_data(named),
            (Command::SetOption, _) => {
                let option = said.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
                self.capture_record(What::SetOption(option), None);
            }
            (Command::ResetConnection, _) => {
                captured.known.clear();
                let setup = self.capture_setup();
                self.capture_record(What::Reset(setup.iter().map(Vec::as_slice).collect()), None);
            }
            (Command::ChangeUser, _) => self.capture_user_change(),
            (kind, _) if QUIET.contains(&kind) => {}
            (kind, _) => self.withhold_from_capture(Withheld::Administrative, kind.name().as_bytes()),
        }
    }

    /// A PREPARE that succeeded has the newest statement.
    fn capture_preparation(&mut self) {
        let id = self.statements.last_prepared();
        let Some((text, analysis)) = self.statements.get(id).map(|new| (Arc::clone(&new.key.text), new.analysis)) else { return };
        if !is_long(&text) && !self.is_secret(&text, analysis.kind, analysis.digest) {
            self.record_preparation(id, &text);
        }
    }

    /// Header, command, statement, parameter, bytes.
    fn record_long_data(&mut self, named: Option<u32>) {
        let Some(captured) = self.beside.as_mut().map(|beside| &mut beside.captured) else { return };
        let Some(packet) = captured.long_data.take() else { return };
        if packet.bytes.len() > MAX_TEXT {
            return self.leave_gap(GapReason::TooLong);
        }
        let mut fields = Reader::new(packet.bytes.get(HEADER + 1..).unwrap_or_default());
        let (Ok(_), Ok(parameter)) = (fields.u32(), fields.u16()) else { return };
        let Some((id, prepared)) = named.and_then(|id| Some((id, self.statements.get(id)?))) else { return };
        let (text, analysis) = (Arc::clone(&prepared.key.text), prepared.analysis);
        if is_long(&text) {
            return self.withhold_from_capture(Withheld::Long, &digest_of_head(&text, self.wants.lex));
        }
        if self.is_secret(&text, analysis.kind, analysis.digest) {
            return self.withhold_from_capture(Withheld::Password, &sql::without_literals(&text, self.wants.lex));
        }
        if !self.capture_can_prepare(id) {
            // Its execution is withheld.
            return;
        }
        self.record_preparation(id, &text);
        self.capture_record(What::LongData { statement: id, parameter, bytes: fields.rest() }, None);
    }

    /// Another user may not be wanted; its state begins again in any case.
    fn capture_user_change(&mut self) {
        let user = Arc::clone(&self.at.user);
        self.capture_record(What::ChangeUser { user: user.name.as_bytes() }, None);
        self.capture_ends();
        if let Some(beside) = self.beside.as_mut() {
            beside.captured = SessionCapture::default();
        }
    }

    /// Puts a command into the file. `reply`: what the server answered, and how long it took, us.
    fn capture_record(&mut self, what: What<'_>, reply: Option<(Answer, u64)>) {
        let (now_us, begin_us) = (self.worker.shared.clock.now_us(), self.hand.began_us);
        let is_short = self.worker.shared.memory.step() >= Step::LargeCommands;
        let is_long = match &what {
            What::Query(text) | What::Prepare { text, .. } => text.len() > MAX_TEXT,
            What::Execute { params, .. } => params.values.len() > MAX_TEXT,
            _ => false,
        };
        let Some(captured) = self.beside.as_mut().map(|beside| &mut beside.captured) else { return };
        captured.reply_ends();
        let (Some(run), true) = (captured.run.as_ref(), captured.has_begun) else { return };
        let time_us = reply.as_ref().map_or(now_us.saturating_sub(begin_us), |(_, time_us)| *time_us);
        let timing = Timing { after: captured.after, seq: captured.seq, begin_us, time_us };
        let reply = reply.map(|(answer, _)| answer);
        let record = Record::Command(::capture::Command { session: self.handle.id, timing, what, reply });
        let why = match () {
            () if is_long => GapReason::TooLong,
            () if is_short => GapReason::Memory,
            () if run.push(self.worker.index, &record) => return,
            () => GapReason::QueueFull,
        };
        self.leave_gap(why);
    }

    /// Commands of the session are missing from here on, until it begins again.
    fn leave_gap(&mut self, why: GapReason) {
        let Some(captured) = self.beside.as_mut().map(|beside| &mut beside.captured) else { return };
        let Some(run) = captured.run.as_ref().filter(|run| run.stopped().is_none()) else { return };
        (captured.has_begun, captured.long_data) = (false, None);
        run.count_gap(why);
        run.push(self.worker.index, &Record::Gap(Gap { session: self.handle.id, why }));
    }

    /// The session is over.
    pub(super) fn capture_ends(&mut self) {
        let Some(captured) = self.beside.as_ref().map(|beside| &beside.captured).filter(|captured| captured.is_active()) else { return };
        if let Some(run) = &captured.run {
            run.push(self.worker.index, &Record::End { session: self.handle.id });
        }
    }
}

/// The digest's text of what stands before the first quote of a long text.
fn digest_of_head(text: &[u8], lex: LexMode) -> Vec<u8> {
    let head = text.get(..HEAD).unwrap_or(text);
    let end = head.iter().position(|byte| matches!(byte, b'\'' | b'"' | b'`')).unwrap_or(head.len());
    sql::without_literals(head.get(..end).unwrap_or_default(), lex)
}

fn has_word_of_statements(text: &[u8]) -> bool {
    LOOKED_INTO.iter().any(|word| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
}

/// Whether a user variable has a password, by its name or its value.
fn assigns_password(name: &str, value: &[u8], lex: LexMode) -> bool {
    let set = |name: &str| [b"SET @", name.as_bytes(), b"=", value].concat();
    let quoted = format!("`{}`", name.replace('`', "``"));
    is_long(value) || sql::carries_password(&set(name), lex) || sql::carries_password(&set(&quoted), lex)
}

#[cfg(test)]
#[path = "captured_tests.rs"]
mod tests;
