//! The keys of TLS sessions, written to a file for the analysis of recorded traffic (`admin-ssl_keylog_file`), in the NSS key log format.
//!
//! One per process, in the configurations of both sides; the monitor's connections are not in it. While no file is open nothing is written.
//! INVARIANT: only the file's owner may read it, because it decrypts every recorded session.

use super::session;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub struct KeyFile {
    is_open: AtomicBool,
    file: Mutex<Option<(PathBuf, File)>>,
}

impl KeyFile {
    /// Appends to this file from now on, and creates it if needed; None ends that.
    ///
    /// # Errors
    /// The file and its fault; nothing has changed then.
    pub fn open(&self, path: Option<&Path>) -> Result<(), String> {
        let file = match path {
            Some(path) => Some((path.to_owned(), append_to(path)?)),
            None => None,
        };
        self.is_open.store(file.is_some(), Ordering::Relaxed);
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }

    /// Reopens the file by its name, after it was moved away.
    ///
    /// # Errors
    /// As those of [`KeyFile::open`].
    pub fn reopen(&self) -> Result<(), String> {
        let path = self.file.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(path, _)| path.clone());
        self.open(path.as_deref())
    }
}

/// A pipe or a device could hold a handshake up.
fn append_to(path: &Path) -> Result<File, String> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(format!("{} is not a regular file", path.display()));
    }
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    opened.map_err(|e| format!("{}: {e}", path.display()))
}

impl rustls::KeyLog for KeyFile {
    fn will_log(&self, label: &str) -> bool {
        session::is_kept(label) || self.is_open.load(Ordering::Relaxed)
    }

    /// A line that cannot be written is lost: no handshake fails for it.
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if session::is_kept(label) {
            session::keep(label, secret);
        }
        if !self.is_open.load(Ordering::Relaxed) {
            return;
        }
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        if let Some((_, file)) = self.file.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
