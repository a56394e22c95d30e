//! Everything that can go wrong in the lab, as one enum.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A failure of the lab itself or of something that it drives.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// An operating system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The act that failed, with its path or address.
        what: String,
        /// The system's word on it.
        source: io::Error,
    },
    /// A program that the lab needs is not on this machine.
    #[error("{program} not found; run `{remedy}`")]
    Missing {
        /// The program or file looked for.
        program: String,
        /// The command that brings it here.
        remedy: &'static str,
    },
    /// A condition did not come true within its deadline.
    #[error("gave up after {limit:?} waiting for {what}{detail}")]
    Deadline {
        /// The condition.
        what: String,
        /// How long it was waited for.
        limit: Duration,
        /// The last known facts, usually the end of a log; may be empty.
        detail: String,
    },
    /// A child process ended when it should have lived, or ended badly.
    #[error("{name} ended with {status}\n{log_tail}")]
    Exited {
        /// The lab's name for the process.
        name: String,
        /// Exit status as the system prints it.
        status: String,
        /// The last lines it wrote.
        log_tail: String,
    },
    /// Every port tried was taken.
    #[error("no free port between {first} and {last}")]
    NoPort {
        /// First port tried.
        first: u16,
        /// Last port tried.
        last: u16,
    },
    /// A certificate could not be made.
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS failed on a client connection.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The peer sent something that is not the MySQL protocol.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The server answered with an error where the caller asked for success.
    #[error("server error {code} ({sqlstate}): {message}")]
    Server {
        /// MySQL error number.
        code: u16,
        /// Five characters; empty before authentication.
        sqlstate: String,
        /// The server's text.
        message: String,
    },
    /// A file that should have been there is not.
    #[error("{0} does not exist")]
    NoFile(PathBuf),
}

impl LabError {
    /// Names the act during which `source` happened.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        LabError::Io { what: what.into(), source }
    }

    /// The MySQL error number, when it was the server that refused.
    pub fn code(&self) -> Option<u16> {
        match self {
            LabError::Server { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Adds the act to an `io::Result`.
pub(crate) trait IoContext<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, LabError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|source| LabError::io(what(), source))
    }
}
