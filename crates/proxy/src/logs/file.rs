//! A log's files: `<base>.00000001`, `<base>.00000002`, ...; a new one is one above the highest that exists.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where a log is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Path of the files without their number.
    pub base: PathBuf,
    /// Size at which a new file begins.
    pub max_bytes: u64,
    /// JSON lines; else the binary form.
    pub is_json: bool,
}

/// The file that is being written.
pub struct LogFile {
    file: File,
    size: u64,
}

/// Statements have literals: others than the owner's group do not read them.
const MODE: u32 = 0o640;

/// Numbers tried beyond the highest one: another process may write beside us.
const TRIES: u64 = 100;

impl LogFile {
    /// Creates the next file.
    pub fn create(target: &Target) -> io::Result<Self> {
        let first = next_number(&target.base)?;
        for number in first..first + TRIES {
            match OpenOptions::new().create_new(true).append(true).mode(MODE).open(numbered(&target.base, number)) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result.map(|file| Self { file, size: 0 }),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "other processes write files of this name"))
    }

    /// Appends whole records.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.size += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Bytes written so far.
    pub fn size(&self) -> u64 {
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
    for entry in std::fs::read_dir(directory)? {
        let file = entry?.file_name();
        let number = file.to_str().and_then(|f| f.strip_prefix(name)?.strip_prefix('.'));
        let digits = number.filter(|n| n.len() >= 8 && n.bytes().all(|b| b.is_ascii_digit()));
        highest = highest.max(digits.and_then(|n| n.parse().ok()).unwrap_or(0));
    }
    Ok(highest + 1)
}
