//! Logs of servers and proxies as captures: slow logs of MySQL and MariaDB, events logs of Tidegate and ProxySQL (JSON and binary).
//!
//! A log has texts and times, and no answers. It is read twice: first when its statements ended, then its statements, as records of a
//! capture. The order of ends is that of the file. INVARIANT: at most one statement of at most [`MAX_TEXT`] bytes is held, and 8 bytes for
//! each statement.

mod events;
mod slow;

use anyhow::{Context, Result, bail};
use capture::{Command, Header, Record, Step, Timing, Trailer, What, Withheld};
use events::{BinaryEvents, JsonEvents};
use slow::SlowLog;
use sql::{Kind, LexMode};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

/// Longest statement, and longest line or record, bytes.
const MAX_TEXT: u64 = 64 << 20;
/// Records of about so many bytes make a frame.
const FRAME: usize = 256 << 10;
/// Numbers of ends for each entry: of what is made of it, and its own.
const STRIDE: u64 = 4;
/// Bytes at the front of a file that say what it is.
const FRONT: usize = 4096;

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entered {
    /// A statement as text.
    Query(Vec<u8>),
    /// An execution, or a text with its values left out: it cannot be sent.
    Incomplete(Vec<u8>),
    /// The session has ended.
    Quit,
    /// Something else.
    Other,
}

/// An entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// The session, as the log names it.
    thread: u64,
    user: Vec<u8>,
    /// None: the log does not say.
    schema: Option<Vec<u8>>,
    /// Unix us.
    begin_us: u64,
    time_us: u64,
    /// The first AUTO_INCREMENT value.
    insert_id: Option<u64>,
    what: Entered,
}

/// Reads entries of one format.
trait Entries {
    /// The next entry, None at the end.
    fn next(&mut self, from: &mut BufReader<File>) -> Result<Option<Entry>>;
}

/// Every entry of an events log in JSON has it.
const EVENT: &[u8] = b"\"event\":\"COM_";

/// A format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogForm {
    Slow,
    Json,
    Binary,
}

impl LogForm {
    /// What a file with this front is; None for no log.
    fn of(front: &[u8]) -> Option<Self> {
        match front {
            // This stands before the query, which may be longer than the front.
            [b'{', ..] if front.windows(EVENT.len()).any(|part| part == EVENT) => Some(Self::Json),
            _ if slow::is_front(front) => Some(Self::Slow),
            _ if events::is_front(front) => Some(Self::Binary),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow log",
            Self::Json => "events log (JSON)",
            Self::Binary => "events log (binary)",
        }
    }

    fn entries(self) -> Box<dyn Entries> {
        match self {
            Self::Slow => Box::<SlowLog>::default(),
            Self::Json => Box::new(JsonEvents),
            Self::Binary => Box::new(BinaryEvents),
        }
    }
}

/// A session of a log, as far as it was read.
struct LogSession {
    /// Its schema as records have it.
    schema: Vec<u8>,
    /// The place of its last entry.
    last: u64,
    has_begun: bool,
}

/// A log that is read as a capture.
pub(crate) struct LogReader {
    form: LogForm,
    header: Header,
    from: BufReader<File>,
    entries: Box<dyn Entries>,
    /// When each entry and all before it had ended, Unix us.
    ended_us: Vec<u64>,
    sessions: HashMap<u64, LogSession>,
    /// Entries that were read.
    place: u64,
    commands: u64,
}

impl LogReader {
    /// Opens a file; None if it is no log.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        let mut file = File::open(path)?;
        let mut front = Vec::new();
        Read::by_ref(&mut file).take(FRONT as u64).read_to_end(&mut front)?;
        let Some(form) = LogForm::of(&front) else { return Ok(None) };
        file.rewind()?;
        let (mut from, mut entries) = (BufReader::new(file), form.entries());
        let (mut ended_us, mut sessions) = (Vec::new(), HashMap::<u64, LogSession>::new());
        let (mut first_us, mut end_us) = (u64::MAX, 0);
        while let Some(entry) = entries.next(&mut from)? {
            first_us = first_us.min(entry.begin_us);
            end_us = entry.begin_us.saturating_add(entry.time_us).max(end_us);
            let last = ended_us.len() as u64;
            sessions.entry(entry.thread).and_modify(|session| session.last = last).or_insert_with(|| LogSession {
                schema: Vec::new(),
                last,
                has_begun: false,
            });
            ended_us.push(end_us);
        }
        if ended_us.is_empty() {
            bail!("the {} has no entry", form.name());
        }
        from.rewind()?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let header = Header {
            name,
            program: form.name().to_owned(),
            started_unix_us: first_us,
            started_us: first_us,
            options: "texts and times, without answers".to_owned(),
            ..Header::default()
        };
        let entries = form.entries();
        Ok(Some(Self { form, header, from, entries, ended_us, sessions, place: 0, commands: 0 }))
    }

    /// What it says of itself.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// What a replay of it lacks.
    pub(crate) fn losses(&self) -> String {
        format!("a {} has texts and times only: no answers, no settings of sessions, no parameters of executions", self.form.name())
    }

    /// The next records.
    ///
    /// # Errors
    /// The file cannot be read, or is no log from some place on.
    pub(crate) fn step(&mut self) -> Result<Step> {
        let mut frame = Vec::new();
        while frame.len() < FRAME {
            let Some(entry) = self.entries.next(&mut self.from)? else { break };
            self.put(&entry, &mut frame);
        }
        if frame.is_empty() {
            let ended_us = self.ended_us.last().copied().unwrap_or(0);
            let (commands, sessions) = (self.commands, self.sessions.len() as u64);
            return Ok(Step::End(Trailer { reason: "the log ends".to_owned(), ended_us, commands, sessions, gaps: 0 }));
        }
        Ok(Step::Frame(frame))
    }

    /// Appends the records of an entry.
    fn put(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        let Entry { thread, begin_us, time_us, .. } = *entry;
        let (place, number) = (self.place, self.place.saturating_mul(STRIDE));
        self.place += 1;
        // Those before it in the file that had ended before it began.
        let ended = self.ended_us.partition_point(|ended_us| *ended_us < begin_us) as u64;
        let after = ended.min(place).saturating_mul(STRIDE);
        let Some(session) = self.sessions.get_mut(&thread) else { return };
        if !session.has_begun {
            session.has_begun = true;
            session.schema = entry.schema.clone().unwrap_or_default();
            let start =
                capture::SessionStart { session: thread, user: &entry.user, schema: &session.schema, capabilities: 0, setup: Vec::new() };
            Record::Session(start).encode(out);
        }
        let mut commands = self.commands;
        let mut put = |seq: u64, time_us: u64, what: What<'_>| {
            let timing = Timing { after, seq, begin_us, time_us };
            Record::Command(Command { session: thread, timing, what, reply: None }).encode(out);
            commands += 1;
        };
        if let Some(schema) = entry.schema.as_ref().filter(|schema| **schema != session.schema && !schema.is_empty()) {
            session.schema.clone_from(schema);
            put(number + 1, 0, What::InitDb(schema));
        }
        match &entry.what {
            Entered::Query(text) => {
                let set = entry.insert_id.filter(|_| is_insert(text)).map(|id| format!("SET insert_id={id}"));
                if let Some(set) = &set {
                    put(number + 2, 0, What::Query(set.as_bytes()));
                }
                let lex = LexMode::default();
                match withheld(text) {
                    Some(why) => put(number + 3, time_us, What::Withheld { why, digest: &sql::without_literals(text, lex) }),
                    None => put(number + 3, time_us, What::Query(text)),
                }
                if let Some(entered) = sql::parse_use(text, lex) {
                    session.schema = entered;
                }
            }
            Entered::Incomplete(text) => put(number + 3, time_us, What::Withheld { why: Withheld::Form, digest: text }),
            Entered::Quit | Entered::Other => {}
        }
        self.commands = commands;
        if entry.what == Entered::Quit || session.last == place {
            Record::End { session: thread }.encode(out);
            session.has_begun = false;
        }
    }
}

fn is_insert(text: &[u8]) -> bool {
    matches!(sql::analyze(text, LexMode::default()).kind, Kind::Insert | Kind::Replace)
}

/// Why a statement is not sent.
fn withheld(text: &[u8]) -> Option<Withheld> {
    let lex = LexMode::default();
    match sql::analyze(text, lex).kind {
        Kind::Kill => Some(Withheld::Administrative),
        Kind::LoadData => Some(Withheld::LocalFile),
        _ => sql::carries_password(text, lex).then_some(Withheld::Password),
    }
}

/// Reads a line without its end; false at the end of the file.
///
/// # Errors
/// It is longer than [`MAX_TEXT`].
fn read_line(from: &mut BufReader<File>, line: &mut Vec<u8>) -> Result<bool> {
    line.clear();
    Read::by_ref(from).take(MAX_TEXT).read_until(b'\n', line).context("cannot read")?;
    if line.is_empty() {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() as u64 >= MAX_TEXT {
        bail!("a line is longer than {MAX_TEXT} bytes");
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
