//! How far a replay came: a file beside its report, from which `--resume` goes on.
//!
//! A record is written before each command that may commit and after each command, with one write each. So no record is lost when the
//! process is killed. A session goes on behind its last command after which no transaction was open; the server has rolled back what
//! followed. INVARIANT: a command that may have committed without a record of its end is never run again: its session is given up.

use super::plan::FilePlan;
use super::report::Report;
use anyhow::{Context, Result, bail};
use rehearsal::Answer;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use wire::codec::{Reader, put_lenenc, put_lenenc_bytes, put_u32};

const MAGIC: &[u8] = b"tidegate replay progress 2\n";
/// Longest record, bytes.
const MAX_RECORD: usize = 4096;

/// A place in a replay: file, session, number of the command's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub file: usize,
    pub session: u64,
    pub seq: u64,
}

/// How far a session came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReachedBySession {
    /// Its last command that does not run again.
    pub done: Option<u64>,
    /// It is not known whether a command that may have committed did so.
    pub is_unknown: bool,
    /// No boundary since it was lost.
    is_lost: bool,
    /// It was given up: its commands from there on are of data that was there then.
    pub is_given_up: bool,
}

/// Where a session that is resumed can go on, after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// Where it could before the command.
    Same = 0,
    /// At the command itself: it committed what was open before, and nothing else.
    Before = 1,
    /// Behind the command: nothing is open.
    Behind = 2,
    /// Nowhere: the command may have committed, and something is open behind it.
    Lost = 3,
}

impl Boundary {
    const ALL: [Self; 4] = [Self::Same, Self::Before, Self::Behind, Self::Lost];
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Where its session can go on.
    pub boundary: Boundary,
    /// It did not wait for its turn to the end.
    pub is_out_of_order: bool,
}

/// How far an interrupted replay came.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    sessions: HashMap<(usize, u64), ReachedBySession>,
    /// Commands that started out of order: file, number of the end.
    out_of_order: HashSet<(usize, u64)>,
    /// Commands that need not run again.
    pub commands: u64,
}

impl Reached {
    /// How far a session came; None if nothing of it ran.
    pub(crate) fn session(&self, file: usize, session: u64) -> Option<ReachedBySession> {
        self.sessions.get(&(file, session)).copied()
    }

    /// Whether a command started out of order.
    pub(crate) fn was_out_of_order(&self, file: usize, seq: u64) -> bool {
        self.out_of_order.contains(&(file, seq))
    }

    /// Commands that started out of order.
    pub(crate) fn out_of_order(&self) -> u64 {
        self.out_of_order.len() as u64
    }

    fn begins(&mut self, at: At) {
        self.sessions.entry((at.file, at.session)).or_default().is_unknown = true;
    }

    fn ends(&mut self, at: At, ended: Ended) {
        if ended.is_out_of_order {
            self.out_of_order.insert((at.file, at.seq));
        }
        let session = self.sessions.entry((at.file, at.session)).or_default();
        match ended.boundary {
            Boundary::Same => {}
            Boundary::Before => (session.is_lost, session.done) = (false, Some(at.seq.saturating_sub(1))),
            Boundary::Behind => (session.is_lost, session.done) = (false, Some(at.seq)),
            Boundary::Lost => session.is_lost = true,
        }
        session.is_unknown = session.is_lost;
    }
}

/// See the module.
pub(crate) struct Progress {
    /// Locked while the replay runs. None once a write has failed: what followed a torn record could not be read.
    file: Mutex<Option<File>>,
    path: PathBuf,
}

impl Progress {
    /// Begins a file beside a report.
    ///
    /// # Errors
    /// It exists, or cannot be written.
    pub(crate) fn create(report: &Path, terms: &str) -> Result<Self> {
        let path = path_of(report);
        let named = || path.display().to_string();
        let mut file = match OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                bail!("{} is of a replay that was interrupted: add --resume to go on, or remove it", named())
            }
            Err(e) => return Err(e).with_context(named),
        };
        lock(&file).with_context(named)?;
        let mut head = MAGIC.to_vec();
        put_lenenc_bytes(&mut head, terms.as_bytes());
        file.write_all(&head).with_context(named)?;
        Ok(Self { file: Mutex::new(Some(file)), path })
    }

    /// Goes on with the file beside a report. Answers of before are put into a new report.
    ///
    /// # Errors
    /// There is none, another replay uses it, it is of a replay on other terms, it is damaged, or the report cannot be written.
    pub(crate) fn resume(report: &Path, terms: &str, files: &[FilePlan]) -> Result<(Self, Reached, Report)> {
        let path = path_of(report);
        let named = || path.display().to_string();
        let is_absent = || format!("{} does not exist: no replay with this report was interrupted", named());
        let mut file = match OpenOptions::new().read(true).append(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => bail!(is_absent()),
            Err(e) => return Err(e).with_context(named),
        };
        lock(&file).with_context(named)?;
        if file.metadata().with_context(named)?.nlink() == 0 {
            // The replay that had it came to its end meanwhile.
            bail!(is_absent());
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(named)?;
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC).with_context(|| format!("{} has no progress of a replay", named()))?);
        let before = reader.lenenc_bytes().map(String::from_utf8_lossy).with_context(named)?;
        if let Some((was, is)) = before.lines().zip(terms.lines()).find(|(was, is)| was != is) {
            bail!("{} is of a replay with other options ({was}, and now {is}): resume with the same", named());
        }
        match std::fs::remove_file(report) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e).with_context(|| report.display().to_string()),
            _ => {}
        }
        let (mut reached, mut answers) = (Reached::default(), Report::create(report, files)?);
        let mut whole = bytes.len() - reader.remaining();
        while let Some(record) = next(&mut reader).with_context(named)? {
            whole = bytes.len() - reader.remaining();
            read(record, &mut reached, &mut answers).with_context(named)?;
        }
        answers.write()?;
        // A record that was cut would hide those behind it.
        file.set_len(whole as u64).with_context(named)?;
        Ok((Self { file: Mutex::new(Some(file)), path }, reached, answers))
    }

    /// A command that may commit is about to be sent.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn begins(&self, at: At) -> Result<()> {
        self.put(|out| put_at(b'b', at, out))
    }

    /// A command has ended.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn ended(&self, at: At, answer: Option<(&Answer, u64)>, ended: Ended) -> Result<()> {
        self.put(|out| {
            put_at(b'e', at, out);
            out.push(ended.boundary as u8 | u8::from(ended.is_out_of_order) << 2);
            put_lenenc(out, answer.map_or(0, |(_, time_us)| time_us));
            capture::put_reply(answer.map(|(answer, _)| answer), out);
        })
    }

    /// A session is given up.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn gives_up(&self, file: usize, session: u64) -> Result<()> {
        self.put(|out| put_at(b'g', At { file, session, seq: 0 }, out))
    }

    fn put(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut body = Vec::with_capacity(64);
        fill(&mut body);
        let mut record = Vec::with_capacity(body.len() + 4);
        put_u32(&mut record, u32::try_from(body.len()).unwrap_or(u32::MAX));
        record.extend_from_slice(&body);
        let mut kept = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = kept.take().with_context(|| format!("{} could not be written before", self.path.display()))?;
        file.write_all(&record).with_context(|| self.path.display().to_string())?;
        *kept = Some(file);
        Ok(())
    }

    /// The replay came to its end: there is nothing to resume.
    pub(crate) fn finish(self) -> Result<()> {
        std::fs::remove_file(&self.path).with_context(|| self.path.display().to_string())
    }
}

/// The file beside a report.
fn path_of(report: &Path) -> PathBuf {
    let mut name = report.as_os_str().to_owned();
    name.push(".progress");
    name.into()
}

fn put_at(kind: u8, at: At, out: &mut Vec<u8>) {
    out.push(kind);
    [at.file as u64, at.session, at.seq].into_iter().for_each(|number| put_lenenc(out, number));
}

/// Two replays with one file would run each write twice.
fn lock(file: &File) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => bail!("another replay uses this file: wait for its end, or name another report"),
        Err(TryLockError::Error(e)) => Err(e.into()),
    }
}

/// The next whole record; None at the end of the file, and where the last record was cut.
///
/// # Errors
/// The file is damaged.
fn next<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>> {
    let mut ahead = *reader;
    let Ok(len) = ahead.u32() else { return Ok(None) };
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_RECORD).context("it is damaged: a record is too long")?;
    let Ok(record) = ahead.bytes(len) else { return Ok(None) };
    *reader = ahead;
    Ok(Some(record))
}

fn read(record: &[u8], reached: &mut Reached, report: &mut Report) -> Result<()> {
    let mut body = Reader::new(record);
    let kind = body.u8()?;
    let file = usize::try_from(body.lenenc()?)?;
    let at = At { file, session: body.lenenc()?, seq: body.lenenc()? };
    match kind {
        b'b' => reached.begins(at),
        b'e' => {
            let (flags, time_us) = (body.u8()?, body.lenenc()?);
            reached.ends(at, Ended { boundary: Boundary::ALL[usize::from(flags & 3)], is_out_of_order: flags & 4 != 0 });
            reached.commands += 1;
            if let Some(answer) = capture::reply(&mut body)? {
                report.answer(at.file, at.seq, &answer, time_us)?;
            }
        }
        b'g' => reached.sessions.entry((at.file, at.session)).or_default().is_given_up = true,
        _ => bail!("it is damaged: a record cannot be read"),
    }
    if body.remaining() > 0 {
        bail!("it is damaged: a record has a rest");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(session: u64, seq: u64) -> At {
        At { file: 0, session, seq }
    }

    const BOUNDARY: Ended = Ended { boundary: Boundary::Behind, is_out_of_order: false };

    #[test]
    fn a_killed_replay_knows_what_ended_and_what_may_have() {
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("report");
        let progress = Progress::create(&report, "to a\n").unwrap();
        let answer = Answer { rows: 7, ..Answer::default() };
        // The first session is whole, the second one was in a transaction, and of the third one a write may have run.
        progress.ended(at(1, 5), Some((&answer, 9)), BOUNDARY).unwrap();
        progress.begins(at(1, 8)).unwrap();
        progress.ended(at(1, 8), None, BOUNDARY).unwrap();
        progress.ended(at(2, 6), None, BOUNDARY).unwrap();
        progress.ended(at(2, 7), None, Ended { boundary: Boundary::Same, is_out_of_order: true }).unwrap();
        progress.begins(at(3, 9)).unwrap();
        progress.gives_up(0, 4).unwrap();
        assert!(Progress::resume(&report, "to a\n", &[]).is_err_and(|e| format!("{e:#}").contains("another replay uses this file")));
        drop(progress);
        assert!(Progress::create(&report, "to a\n").is_err_and(|e| e.to_string().contains("add --resume")));
        // The last record was cut.
        let path = path_of(&report);
        let len = std::fs::metadata(&path).unwrap().len();
        for cut in [0, 3] {
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(&[9, 0, 0, 0, b'e', 0, 3][..cut + 3]).unwrap();
            let (progress, reached, report) = Progress::resume(&report, "to a\n", &[]).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), len);
            assert_eq!(report.stored(0, 5).unwrap().map(|(answer, us)| (answer.rows, us)), Some((7, 9)));
            assert_eq!([1, 2, 3, 4].map(|session| reached.session(0, session).and_then(|it| it.done)), [Some(8), Some(6), None, None]);
            assert_eq!([1, 2, 3].map(|session| reached.session(0, session).unwrap().is_unknown), [false, false, true]);
            assert_eq!([1, 4].map(|session| reached.session(0, session).unwrap().is_given_up), [false, true]);
            assert_eq!(([6, 7].map(|seq| reached.was_out_of_order(0, seq)), reached.out_of_order()), ([false, true], 1));
            drop(progress);
        }
        assert!(Progress::resume(&report, "to b\n", &[]).is_err_and(|e| e.to_string().contains("(to a, and now to b)")));
        let (progress, ..) = Progress::resume(&report, "to a\n", &[]).unwrap();
        progress.finish().unwrap();
        assert!(Progress::resume(&report, "to a\n", &[]).is_err_and(|e| e.to_string().contains("was interrupted")));
    }
    #[test]
    fn what_was_committed_while_something_is_open_does_not_run_again() {
        for (boundary, done, is_unknown) in [
            (Boundary::Same, Some(3), false),
            (Boundary::Before, Some(6), false),
            (Boundary::Behind, Some(7), false),
            (Boundary::Lost, Some(3), true),
        ] {
            let mut reached = Reached::default();
            let ended = |boundary| Ended { boundary, is_out_of_order: false };
            reached.ends(at(1, 3), ended(Boundary::Behind));
            reached.begins(at(1, 7));
            reached.ends(at(1, 7), ended(boundary));
            reached.ends(at(1, 8), ended(Boundary::Same));
            assert_eq!(reached.session(0, 1).map(|it| (it.done, it.is_unknown)), Some((done, is_unknown)), "{boundary:?}");
            reached.ends(at(1, 9), ended(Boundary::Behind));
            assert_eq!(reached.session(0, 1).map(|it| (it.done, it.is_unknown)), Some((Some(9), false)));
        }
    }

    #[test]
    fn nothing_is_written_behind_a_torn_record() {
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("report");
        let progress = Progress::create(&report, "to a\n").unwrap();
        let file = progress.file.lock().unwrap().replace(File::open("/dev/null").unwrap());
        assert!(progress.begins(at(1, 5)).is_err(), "it is not open for writing");
        assert!(progress.begins(at(1, 6)).is_err_and(|e| e.to_string().contains("could not be written before")));
        drop(file);
        // Damage before the end is no cut.
        for damage in [&[255; 8][..], &[1, 0, 0, 0, b'x'], &[5, 0, 0, 0, b'b', 0, 3, 4, 5]] {
            let whole = std::fs::read(path_of(&report)).unwrap();
            let mut file = OpenOptions::new().append(true).open(path_of(&report)).unwrap();
            file.write_all(damage).unwrap();
            assert!(Progress::resume(&report, "to a\n", &[]).is_err(), "{damage:?}");
            std::fs::write(path_of(&report), whole).unwrap();
        }
    }
}
