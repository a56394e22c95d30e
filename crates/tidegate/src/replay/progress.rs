//! How far a replay came: a file beside its report, from which `--resume` goes on.
//!
//! A record is written before each command that may commit and after each command, with one write each. So no record is lost when the
//! process is killed. A session goes on behind its last command after which no transaction was open; the server has rolled back what
//! followed. INVARIANT: a command that may have committed without a record of its end is never run again: its session is given up.

use super::plan::FilePlan;
use super::report::Report;
use anyhow::{Context, Result, bail};
use rehearsal::Answer;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use wire::codec::{Reader, put_lenenc, put_lenenc_bytes, put_u32};

const MAGIC: &[u8] = b"tidegate replay progress 1\n";
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
    /// Its last command after which nothing was open.
    pub done: Option<u64>,
    /// It is not known whether a command that may have committed did so.
    pub is_unknown: bool,
}

/// How far an interrupted replay came.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    sessions: HashMap<(usize, u64), ReachedBySession>,
    /// Commands that need not run again.
    pub commands: u64,
}

impl Reached {
    /// How far a session came; None if nothing of it ran.
    pub(crate) fn session(&self, file: usize, session: u64) -> Option<ReachedBySession> {
        self.sessions.get(&(file, session)).copied()
    }

    fn begins(&mut self, at: At) {
        self.sessions.entry((at.file, at.session)).or_default().is_unknown = true;
    }

    fn ends(&mut self, at: At, is_boundary: bool) {
        let session = self.sessions.entry((at.file, at.session)).or_default();
        session.is_unknown = false;
        if is_boundary {
            session.done = Some(at.seq);
        }
    }
}

/// See the module.
pub(crate) struct Progress {
    file: Mutex<File>,
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
        let mut head = MAGIC.to_vec();
        put_lenenc_bytes(&mut head, terms.as_bytes());
        file.write_all(&head).with_context(named)?;
        Ok(Self { file: Mutex::new(file), path })
    }

    /// Goes on with the file beside a report. Answers of before are put into a new report.
    ///
    /// # Errors
    /// There is none, it is of a replay on other terms, or the report cannot be written.
    pub(crate) fn resume(report: &Path, terms: &str, files: &[FilePlan]) -> Result<(Self, Reached, Report)> {
        let path = path_of(report);
        let named = || path.display().to_string();
        let mut bytes = Vec::new();
        match OpenOptions::new().read(true).open(&path) {
            Ok(mut file) => drop(file.read_to_end(&mut bytes).with_context(named)?),
            Err(e) if e.kind() == ErrorKind::NotFound => bail!("{} does not exist: no replay with this report was interrupted", named()),
            Err(e) => return Err(e).with_context(named),
        }
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
        while let Some(record) = next(&mut reader) {
            whole = bytes.len() - reader.remaining();
            read(record, &mut reached, &mut answers).with_context(named)?;
        }
        answers.write()?;
        let file = OpenOptions::new().append(true).open(&path).with_context(named)?;
        // A record that was cut would hide those behind it.
        file.set_len(whole as u64).with_context(named)?;
        Ok((Self { file: Mutex::new(file), path }, reached, answers))
    }

    /// A command that may commit is about to be sent.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn begins(&self, at: At) -> Result<()> {
        self.put(|out| put_at(b'b', at, out))
    }

    /// A command has ended. `is_boundary`: nothing of its session is open.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn ended(&self, at: At, answer: Option<(&Answer, u64)>, is_boundary: bool) -> Result<()> {
        self.put(|out| {
            put_at(b'e', at, out);
            out.push(u8::from(is_boundary));
            put_lenenc(out, answer.map_or(0, |(_, time_us)| time_us));
            capture::put_reply(answer.map(|(answer, _)| answer), out);
        })
    }

    fn put(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut body = Vec::with_capacity(64);
        fill(&mut body);
        let mut record = Vec::with_capacity(body.len() + 4);
        put_u32(&mut record, u32::try_from(body.len()).unwrap_or(u32::MAX));
        record.extend_from_slice(&body);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&record).with_context(|| self.path.display().to_string())
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

/// The next whole record.
fn next<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let mut ahead = *reader;
    let len = usize::try_from(ahead.u32().ok()?).ok().filter(|len| *len <= MAX_RECORD)?;
    let record = ahead.bytes(len).ok()?;
    *reader = ahead;
    Some(record)
}

fn read(record: &[u8], reached: &mut Reached, report: &mut Report) -> Result<()> {
    let mut body = Reader::new(record);
    let kind = body.u8()?;
    let file = usize::try_from(body.lenenc()?)?;
    let at = At { file, session: body.lenenc()?, seq: body.lenenc()? };
    match kind {
        b'b' => reached.begins(at),
        b'e' => {
            let (is_boundary, time_us) = (body.u8()? != 0, body.lenenc()?);
            reached.ends(at, is_boundary);
            reached.commands += 1;
            if let Some(answer) = capture::reply(&mut body)? {
                report.answer(at.file, at.seq, &answer, time_us)?;
            }
        }
        _ => bail!("a record cannot be read"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(session: u64, seq: u64) -> At {
        At { file: 0, session, seq }
    }

    #[test]
    fn a_killed_replay_knows_what_ended_and_what_may_have() {
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("report");
        let progress = Progress::create(&report, "to a\n").unwrap();
        let answer = Answer { rows: 7, ..Answer::default() };
        // The first session is whole, the second one was in a transaction, and of the third one a write may have run.
        progress.ended(at(1, 5), Some((&answer, 9)), true).unwrap();
        progress.begins(at(1, 8)).unwrap();
        progress.ended(at(1, 8), None, true).unwrap();
        progress.ended(at(2, 6), None, true).unwrap();
        progress.ended(at(2, 7), None, false).unwrap();
        progress.begins(at(3, 9)).unwrap();
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
            drop(progress);
        }
        assert!(Progress::resume(&report, "to b\n", &[]).is_err_and(|e| e.to_string().contains("(to a, and now to b)")));
        let (progress, ..) = Progress::resume(&report, "to a\n", &[]).unwrap();
        progress.finish().unwrap();
        assert!(Progress::resume(&report, "to a\n", &[]).is_err_and(|e| e.to_string().contains("was interrupted")));
    }
}
