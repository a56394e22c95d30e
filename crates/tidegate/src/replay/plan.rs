//! The first pass over a file: what it has, which numbers of ends, and which commands write. It is read to its end, or to where it is cut.

use super::logs::LogReader;
use super::said::{Follower, Known, Said, turn_of};
use anyhow::{Context, Result};
use capture::seal::PrivateKey;
use capture::{Command, GapReason, Header, Races, Reader, Record, Seqs, Step, Trailer, Turn, What, Withheld, records};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// How a file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As it should.
    Whole(Trailer),
    /// It has no trailer: it is whole up to a byte.
    CutOff(u64),
    /// It is damaged, in words.
    Damaged(String),
}

impl Ending {
    /// Why the file at `path` does not have all, if so.
    pub(crate) fn fault(&self, path: &Path) -> Option<String> {
        let name = path.display();
        match self {
            Self::Whole(_) => None,
            Self::CutOff(at) => Some(format!("{name} is cut off: it is whole up to byte {at}, and has no trailer")),
            Self::Damaged(why) => Some(format!("{name}: {why}; what stands before is used")),
        }
    }
}

/// What a file has.
pub(crate) struct FilePlan {
    /// Its path.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its header.
    pub header: Header,
    /// What it lacks, if it is a log.
    pub losses: Option<String>,
    /// How it ends.
    pub ending: Ending,
    /// Numbers of ends of its commands.
    pub seqs: Seqs,
    /// Its writes.
    pub races: Races,
    /// Their turns.
    pub turns: Vec<Turn>,
    /// Commands.
    pub commands: u64,
    /// Commands that write.
    pub writes: u64,
    /// Sessions by user.
    pub users: BTreeMap<String, u64>,
    /// Sessions by schema.
    pub schemas: BTreeMap<String, u64>,
    /// Gaps by reason.
    pub gaps: BTreeMap<GapReason, u64>,
    /// Commands that were not captured, by reason.
    pub withheld: BTreeMap<Withheld, u64>,
    /// When the first command began and the last one ended, us of its clock.
    pub span_us: (u64, u64),
}

impl FilePlan {
    /// See [`rehearsal::Excuses::refuses_stale_writes`].
    pub(crate) fn refuses_stale_writes(&self) -> bool {
        // Any of them may have answered. Of a server that was not asked yet, the version is not known.
        let mut known = self.header.servers.iter().filter(|server| !server.version.is_empty()).peekable();
        known.peek().is_some() && known.all(|server| rehearsal::refuses_stale_writes(&server.version))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be opened, is of another kind, or sealed to another key.
    pub(crate) fn read(path: &Path, key: Option<&PrivateKey>, known: &Known) -> Result<Self> {
        let named = || path.display().to_string();
        let mut reader = open(path, key).with_context(named)?;
        let mut plan = Self::new(path, reader.header().clone());
        plan.losses = reader.losses();
        plan.bytes = std::fs::metadata(path).with_context(named)?.len();
        let mut follower = Follower::default();
        plan.ending = read_records(&mut reader, |record| plan.note(record, &mut follower, known));
        plan.races.sort();
        Ok(plan)
    }

    fn new(path: &Path, header: Header) -> Self {
        Self {
            path: path.to_owned(),
            bytes: 0,
            header,
            losses: None,
            ending: Ending::CutOff(0),
            seqs: Seqs::default(),
            races: Races::default(),
            turns: Vec::new(),
            commands: 0,
            writes: 0,
            users: BTreeMap::new(),
            schemas: BTreeMap::new(),
            gaps: BTreeMap::new(),
            withheld: BTreeMap::new(),
            span_us: (u64::MAX, 0),
        }
    }

    fn note(&mut self, record: &Record<'_>, follower: &mut Follower, known: &Known) {
        match record {
            Record::Session(start) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                *self.users.entry(text(start.user)).or_default() += 1;
                *self.schemas.entry(text(start.schema)).or_default() += 1;
            }
            Record::Command(command) => {
                let said = follower.said(command, known);
                self.note_command(command, said.as_deref());
            }
            Record::Gap(gap) => *self.gaps.entry(gap.why).or_default() += 1,
            Record::End { session } => follower.forget(*session),
        }
    }

    fn note_command(&mut self, command: &Command<'_>, said: Option<&Said>) {
        let timing = command.timing;
        self.commands += 1;
        self.seqs.insert(timing.seq);
        self.span_us.0 = self.span_us.0.min(timing.begin_us);
        self.span_us.1 = self.span_us.1.max(timing.begin_us.saturating_add(timing.time_us));
        if let What::Withheld { why, .. } = &command.what {
            *self.withheld.entry(*why).or_default() += 1;
        }
        if let Some(turn) = turn_of(command, said) {
            self.writes += 1;
            self.races.add(timing.after, timing.seq);
            self.turns.push(turn);
        }
    }

    /// Sessions.
    pub(crate) fn sessions(&self) -> u64 {
        self.users.values().sum()
    }

    /// How long it took at the original, s.
    pub(crate) fn seconds(&self) -> f64 {
        self.span_us.1.saturating_sub(self.span_us.0) as f64 / 1e6
    }

    /// What a log lacks.
    pub(crate) fn loss(&self) -> Option<String> {
        self.losses.as_ref().map(|losses| format!("{}: {losses}", self.path.display()))
    }

    /// Why the file does not have all, if so.
    pub(crate) fn fault(&self) -> Option<String> {
        self.ending.fault(&self.path)
    }
}

/// Hands all records of a file to `note`. Returns how the file ends.
pub(crate) fn read_records(reader: &mut Source, mut note: impl FnMut(&Record<'_>)) -> Ending {
    let mut damage = None;
    loop {
        match reader.step() {
            Ok(Step::Frame(frame)) => {
                for record in records(&frame) {
                    match record {
                        Ok(record) => note(&record),
                        Err(e) => drop(damage.get_or_insert_with(|| format!("a record cannot be read: {e}"))),
                    }
                }
            }
            Ok(Step::End(trailer)) => return damage.map_or(Ending::Whole(trailer), Ending::Damaged),
            Ok(Step::CutOff { at }) => return Ending::CutOff(at),
            Err(e) => return Ending::Damaged(e.to_string()),
        }
    }
}

/// A file that is read as a capture.
pub(crate) enum Source {
    Capture(Box<Reader<BufReader<File>>>),
    Log(Box<LogReader>),
}

/// Opens a file.
///
/// # Errors
/// As for [`FilePlan::read`].
pub(crate) fn open(path: &Path, key: Option<&PrivateKey>) -> Result<Source> {
    if let Some(log) = LogReader::open(path)? {
        return Ok(Source::Log(Box::new(log)));
    }
    Ok(Source::Capture(Box::new(Reader::open(BufReader::new(File::open(path)?), key)?)))
}

impl Source {
    fn header(&self) -> &Header {
        match self {
            Self::Capture(reader) => reader.header(),
            Self::Log(log) => log.header(),
        }
    }

    fn losses(&self) -> Option<String> {
        match self {
            Self::Capture(_) => None,
            Self::Log(log) => Some(log.losses()),
        }
    }

    /// The next records.
    ///
    /// # Errors
    /// The file is damaged.
    pub(crate) fn step(&mut self) -> Result<Step> {
        match self {
            Self::Capture(reader) => Ok(reader.step()?),
            Self::Log(log) => log.step(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::Writer;

    #[test]
    fn a_file_with_a_record_that_cannot_be_read_is_damaged() {
        // A gap without its session.
        for (records, is_damaged) in [(&[3, 0][..], true), (&[], false)] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let (mut writer, mut bytes) = Writer::new(&Header::default(), None).unwrap();
            writer.feed(records, &mut bytes).unwrap();
            bytes.extend(writer.finish(&Trailer::default()).unwrap());
            std::fs::write(file.path(), bytes).unwrap();
            let plan = FilePlan::read(file.path(), None, &Known::default()).unwrap();
            assert_eq!(matches!(plan.ending, Ending::Damaged(_)), is_damaged, "{:?}", plan.ending);
        }
    }
}
