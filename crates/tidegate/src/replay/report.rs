//! The report of a replay, a SQLite file: each answer, digests, samples and the page. An earlier report is the base of a comparison.

use super::plan::FilePlan;
use anyhow::{Context, Result, bail};
use rehearsal::{Answer, CLASSES, Tally};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use wire::codec::Reader;
use wire::codes;

/// Digests have the columns of `stats_tidegate_rehearsal_digests`.
const SCHEMA: &str = "
    CREATE TABLE files (file INTEGER PRIMARY KEY, name TEXT, host TEXT, started_unix_us INTEGER, path TEXT);
    CREATE TABLE answers (file INTEGER, seq INTEGER, error INTEGER, row_count INTEGER, affected INTEGER, insert_id INTEGER, warnings INTEGER,
        time_us INTEGER, answer BLOB, PRIMARY KEY (file, seq)) WITHOUT ROWID;
    CREATE TABLE samples (digest TEXT, class TEXT, seen_at INTEGER, username TEXT, schemaname TEXT, statement TEXT, original TEXT, shadow TEXT);
    CREATE TABLE page (line INTEGER PRIMARY KEY, part TEXT, text TEXT);
";

/// Answers that are written at once.
const BATCH: usize = 1000;

/// A report that is being written.
pub(crate) struct Report {
    db: Connection,
    /// Answers that are still to be written.
    waiting: Vec<(usize, u64, Answer, u64)>,
}

impl Report {
    /// Creates a report of a replay of these files.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub(crate) fn create(path: &Path, files: &[FilePlan]) -> Result<Self> {
        let named = || format!("report {}", path.display());
        // Only who replays reads it: it may have literals.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => bail!("{} exists: name a new file, or remove it", named()),
            Err(e) => return Err(e).with_context(named),
        }
        Self::filled(path, files).with_context(named)
    }

    fn filled(path: &Path, files: &[FilePlan]) -> Result<Self> {
        let db = Connection::open(path)?;
        let counts: Vec<String> = CLASSES.iter().map(|class| format!("\"{}\" INTEGER", class.name())).collect();
        let times = "original_p50_us INTEGER, shadow_p50_us INTEGER, original_p99_us INTEGER, shadow_p99_us INTEGER, original_sum_us INTEGER, \
                     shadow_sum_us INTEGER";
        // If the replay is killed, a new one makes a new report.
        db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")?;
        db.execute_batch(SCHEMA)?;
        db.execute_batch(&format!(
            "CREATE TABLE digests (digest TEXT PRIMARY KEY, digest_text TEXT, compared INTEGER, {}, {times})",
            counts.join(", ")
        ))?;
        for (number, file) in files.iter().enumerate() {
            let header = &file.header;
            db.execute(
                "INSERT INTO files VALUES (?, ?, ?, ?, ?)",
                params![
                    i64::try_from(number)?,
                    header.name,
                    header.host,
                    i64::try_from(header.started_unix_us)?,
                    file.path.display().to_string()
                ],
            )?;
        }
        Ok(Self { db, waiting: Vec::new() })
    }

    /// Keeps an answer. Of a session that is replayed several times, the last one stays.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn answer(&mut self, file: usize, seq: u64, answer: &Answer, time_us: u64) -> Result<()> {
        self.waiting.push((file, seq, answer.clone(), time_us));
        if self.waiting.len() >= BATCH { self.write() } else { Ok(()) }
    }

    /// What was answered before the replay was interrupted, and how long that took, us.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn stored(&self, file: usize, seq: u64) -> Result<Option<(Answer, u64)>> {
        stored(&self.db, i64::try_from(file)?, seq).context("report")
    }

    /// Writes the answers that wait.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&mut self) -> Result<()> {
        let mut insert = self.db.prepare("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        for (file, seq, answer, time_us) in self.waiting.drain(..) {
            let mut bytes = Vec::new();
            capture::put_reply(Some(&answer), &mut bytes);
            insert.execute(params![
                number(file as u64),
                number(seq),
                answer.error,
                number(answer.rows),
                number(answer.affected),
                number(answer.insert_id),
                answer.warnings,
                number(time_us),
                bytes
            ])?;
        }
        Ok(())
    }

    /// Writes what was found, and the page.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn finish(mut self, tally: &Tally, page: &[(&str, String)]) -> Result<()> {
        self.write()?;
        let number = |value: u64| rusqlite::types::Value::Integer(i64::try_from(value).unwrap_or(i64::MAX));
        let marks = vec!["?"; 3 + CLASSES.len() + 6];
        let mut insert = self.db.prepare(&format!("INSERT INTO digests VALUES ({})", marks.join(", ")))?;
        for (hash, digest) in tally.digests() {
            let mut row = vec![shown(hash).into(), digest.text.to_string().into(), number(digest.compared())];
            row.extend(CLASSES.iter().map(|class| number(digest.count(*class))));
            for percent in [50, 99] {
                row.extend(digest.times.iter().map(|times| number(times.percentile_us(percent))));
            }
            row.extend(digest.times.iter().map(|times| number(times.sum_us())));
            insert.execute(rusqlite::params_from_iter(row))?;
        }
        drop(insert);
        for sample in tally.samples() {
            self.db.execute(
                "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                params![
                    shown(sample.digest),
                    sample.class.name(),
                    i64::try_from(sample.seen_at)?,
                    sample.user,
                    sample.schema,
                    sample.text,
                    sample.original,
                    sample.shadow
                ],
            )?;
        }
        for (part, text) in page {
            self.db.execute("INSERT INTO page (part, text) VALUES (?, ?)", params![part, text])?;
        }
        Ok(self.db.execute_batch("COMMIT")?)
    }
}

fn shown(hash: u64) -> String {
    format!("0x{hash:016X}")
}

/// The answers of an earlier replay.
pub(crate) struct Base {
    db: Connection,
    /// Its number of each file.
    files: Vec<i64>,
    refuses_stale_writes: bool,
}

impl Base {
    /// Opens the report of an earlier replay of these files.
    ///
    /// # Errors
    /// It is no report, or one of other files.
    pub(crate) fn open(path: &Path, files: &[FilePlan]) -> Result<Self> {
        let named = || format!("base report {}", path.display());
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).with_context(named)?;
        let number = |file: &FilePlan| -> Result<i64> {
            let header = &file.header;
            let sql = "SELECT file FROM files WHERE name = ? AND host = ? AND started_unix_us = ?";
            let found = db.query_row(sql, params![header.name, header.host, i64::try_from(header.started_unix_us)?], |row| row.get(0));
            found.optional()?.with_context(|| format!("it has no answers of {}", file.path.display()))
        };
        let files = files.iter().map(number).collect::<Result<_>>().with_context(named)?;
        let sql = "SELECT EXISTS (SELECT 1 FROM answers WHERE error = ?)";
        let refuses_stale_writes = db.query_row(sql, [codes::CHECKREAD], |row| row.get(0)).with_context(named)?;
        Ok(Self { db, files, refuses_stale_writes })
    }

    /// See [`rehearsal::Excuses::refuses_stale_writes`].
    pub(crate) fn refuses_stale_writes(&self) -> bool {
        self.refuses_stale_writes
    }

    /// What was answered then, and how long that took, us.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn answer(&self, file: usize, seq: u64) -> Result<Option<(Answer, u64)>> {
        let Some(number) = self.files.get(file) else { return Ok(None) };
        stored(&self.db, *number, seq).context("base report")
    }
}

fn stored(db: &Connection, file: i64, seq: u64) -> Result<Option<(Answer, u64)>> {
    let mut select = db.prepare("SELECT answer, time_us FROM answers WHERE file = ? AND seq = ?")?;
    let row: Option<(Vec<u8>, i64)> =
        select.query_row(params![file, i64::try_from(seq)?], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((bytes, time_us)) = row else { return Ok(None) };
    let answer = capture::reply(&mut Reader::new(&bytes))?;
    Ok(answer.map(|answer| (answer, u64::try_from(time_us).unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_report_is_a_new_file_of_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        drop(Report::create(&path, &[]).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Report::create(&path, &[]).is_err_and(|e| e.to_string().contains("exists")));
    }
}
