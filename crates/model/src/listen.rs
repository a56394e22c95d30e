//! Listening addresses, as `mysql-interfaces` and `admin-mysql_ifaces` write them: `0.0.0.0:6033;[::1]:6033;/run/proxy.sock`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// One listening address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Listen {
    /// An IP address and port. Port 0 lets the system choose.
    Tcp(SocketAddr),
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
}

/// Why a list of listeners cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// An entry is neither `ip:port` nor a path.
    #[error("'{0}' is neither ip:port, [ipv6]:port nor /path")]
    Entry(String),
    /// There is no entry at all.
    #[error("at least one listener is needed")]
    Empty,
}

impl Listen {
    /// Reads a list separated by `;`. Blank entries are skipped, but at least one entry must remain.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ListenError> {
        let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
        let listeners = entries.map(Self::parse).collect::<Result<Vec<_>, _>>()?;
        if listeners.is_empty() { Err(ListenError::Empty) } else { Ok(listeners) }
    }

    /// Whether one of these, which will be closed first, may stand in its way: that is no reason to fear for it.
    pub fn comes_after(&self, ours: &[Self]) -> bool {
        let port = |listen: &Self| match listen {
            Self::Tcp(address) => Some(address.port()),
            Self::Unix(_) => None,
        };
        ours.iter().any(|open| open == self || port(open).is_some() && port(open) == port(self))
    }

    /// The path of the only Unix socket among these; none when there are several: a client does not say which it came to.
    pub fn only_path(listeners: &[Self]) -> Option<&Path> {
        let mut paths = listeners.iter().filter_map(|listen| match listen {
            Self::Unix(path) => Some(path.as_path()),
            Self::Tcp(_) => None,
        });
        paths.next().filter(|_| paths.next().is_none())
    }

    fn parse(entry: &str) -> Result<Self, ListenError> {
        if entry.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(entry)));
        }
        entry.parse().map(Self::Tcp).map_err(|_| ListenError::Entry(entry.to_owned()))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Removes a Unix socket at `path` on which no process listens.
///
/// # Errors
/// The path is no socket, and stays; or the system's words.
pub fn clear_path(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file of this name exists and is not a socket"))
        }
        // One that is in use makes the bind fail.
        Ok(_) if UnixStream::connect(path).is_ok() => Ok(()),
        Ok(_) => std::fs::remove_file(path),
    }
}

/// Removes a Unix socket; whatever else has its name stays.
///
/// # Errors
/// The system's words.
pub fn remove_socket(path: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.file_type().is_socket() { std::fs::remove_file(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form() {
        let list = Listen::parse_list(" 0.0.0.0:6033; [::1]:0;/tmp/p.sock ;").unwrap();
        let shown: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["0.0.0.0:6033", "[::1]:0", "/tmp/p.sock"]);
    }

    #[test]
    fn refuses_the_rest() {
        assert_eq!(Listen::parse_list(" ;"), Err(ListenError::Empty));
        for bad in ["db1:3306", "127.0.0.1", "127.0.0.1:70000", "sock"] {
            assert_eq!(Listen::parse_list(bad), Err(ListenError::Entry(bad.to_owned())));
        }
    }

    #[test]
    fn only_a_socket_that_nobody_uses_is_cleared() {
        let dir = std::env::temp_dir().join(format!("tidegate-listen-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (file, socket) = (dir.join("file"), dir.join("socket"));
        std::fs::write(&file, "kept").unwrap();
        assert_eq!(clear_path(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        remove_socket(&file).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        clear_path(&socket).unwrap();
        assert!(socket.exists(), "somebody listens");
        drop(listener);
        clear_path(&socket).unwrap();
        assert!(!socket.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
