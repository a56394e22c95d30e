//! Where to listen, as `mysql-interfaces` and `admin-mysql_ifaces` write it:
//! `0.0.0.0:6033;[::1]:6033;/run/proxy.sock`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

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
        match listeners.is_empty() {
            true => Err(ListenError::Empty),
            false => Ok(listeners),
        }
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
}
