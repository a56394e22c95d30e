//! A log's files: `<base>.00000001`, `<base>.00000002`, ...; a new one is one above the highest that exists.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where a log is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogTarget {
    /// Path of the files without their number.
    pub base: PathBuf,
    /// Size at which a new file begins.
    pub max_bytes: u64,
    /// How records are written there.
    pub form: LogFormat,
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// The binary form of `docs/reference/query-log.md`.
    Binary,
    /// A JSON object a line.
    Json,
    /// As MySQL's slow query log, which pt-query-digest reads.
    Slow,
}

/// The file that is being written.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
}

/// Statements have literals: others than the owner's group do not read them.
const MODE: u32 = 0o640;

/// Numbers tried beyond the highest one: another process may write beside us.
const TRIES: u64 = 100;

impl LogFile {
    /// Creates the next file.
    pub(super) fn create(target: &LogTarget) -> io::Result<Self> {
        let first = next_number(&target.base)?;
        for number in first..first + TRIES {
            let path = numbered(&target.base, number);
            match OpenOptions::new().create_new(true).append(true).mode(MODE).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result.map(|file| Self { path, file, size: 0 }),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "other processes write files of this name"))
    }

    /// Appends whole records: all of these or none.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while let Some(left) = bytes.get(written..).filter(|left| !left.is_empty()) {
            match self.file.write(left) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => return Err(self.take_back(written, io::ErrorKind::WriteZero.into())),
                Ok(n) => written += n,
                Err(e) => return Err(self.take_back(written, e)),
            }
        }
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// A part of a record would spoil what comes after it.
    fn take_back(&self, written: usize, error: io::Error) -> io::Error {
        if let Ok(known) = self.file.metadata()
            && written > 0
        {
            let _ = self.file.set_len(known.len().saturating_sub(written as u64));
        }
        error
    }

    /// A file that is there.
    #[cfg(test)]
    pub(super) fn at(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Self { path, file, size: 0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether somebody has deleted it: its room is free when it is closed.
    pub(super) fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|known| known.nlink() == 0)
    }

    /// Bytes written so far.
    pub(super) fn size(&self) -> u64 {
        self.size
    }
}

fn numbered(base: &Path, number: u64) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(format!(".{number:08}"));
    path.into()
}

/// One above the highest number there is.
fn next_number(base: &Path) -> io::Result<u64> {
    let name = base.file_name().and_then(|n| n.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
    let directory = base.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut highest = 0;
    for handle in std::fs::read_dir(directory)? {
        let file = handle?.file_name();
        let number = file.to_str().and_then(|f| f.strip_prefix(name)?.strip_prefix('.'));
        let digits = number.filter(|n| n.len() >= 8 && n.bytes().all(|b| b.is_ascii_digit()));
        highest = highest.max(digits.and_then(|n| n.parse().ok()).unwrap_or(0));
    }
    Ok(highest + 1)
}
