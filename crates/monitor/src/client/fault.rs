//! Why a server did not answer, and what the error says about its health.

use std::io;

use topology::ProbeError;
use wire::codes;
use wire::message::ErrPacket;
use wire::{Capabilities, WireError};

/// Why a command has no result.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The connection could not be made, or broke.
    Io(io::Error),
    /// The server answered with an error.
    Server {
        /// Its number.
        code: u16,
        /// Its text.
        text: String,
    },
    /// The server said something that is not understood, or too much.
    Protocol(String),
    /// This login cannot be, whatever the server says: TLS, plugin.
    Login(String),
    /// It lacks the variable, table or plugin that was asked for.
    Unfit(String),
}

/// Errors that a server gives while it shuts down, even to users that may log in.
const GOING: [u16; 6] = [
    codes::SERVER_SHUTDOWN,
    codes::NORMAL_SHUTDOWN,
    codes::SHUTDOWN_COMPLETE,
    codes::CONNECTION_KILLED,
    codes::SERVER_OFFLINE_MODE,
    codes::CLIENT_INTERACTION_TIMEOUT,
];

/// Errors of a server that lives, but refuses the monitor's account. Login: wrong password, host not allowed or blocked, expired, locked,
/// TLS required, too many connections. Query: privileges.
const DENIED: [u16; 21] = [
    codes::CON_COUNT,
    codes::DBACCESS_DENIED,
    codes::ACCESS_DENIED,
    codes::HOST_IS_BLOCKED,
    codes::HOST_NOT_PRIVILEGED,
    codes::TABLEACCESS_DENIED,
    codes::COLUMNACCESS_DENIED,
    codes::TOO_MANY_USER_CONNECTIONS,
    codes::USER_LIMIT_REACHED,
    codes::SPECIFIC_ACCESS_DENIED,
    codes::NOT_SUPPORTED_AUTH_MODE,
    codes::SERVER_IS_IN_SECURE_AUTH_MODE,
    codes::PROCACCESS_DENIED,
    codes::PLUGIN_IS_NOT_LOADED,
    codes::ACCESS_DENIED_NO_PASSWORD,
    codes::MUST_CHANGE_PASSWORD,
    codes::MUST_CHANGE_PASSWORD_LOGIN,
    codes::ACCOUNT_HAS_BEEN_LOCKED,
    codes::SECURE_TRANSPORT_REQUIRED,
    codes::ACCOUNT_BLOCKED_BY_PASSWORD_LOCK,
    codes::ACCOUNT_IS_LOCKED,
];

/// "Unknown system variable", "Unknown table", "No such table", "Unknown database", no Group Replication, ...
const UNFIT: [u16; 7] = [
    codes::BAD_DB,
    codes::BAD_TABLE,
    codes::PARSE,
    codes::UNKNOWN_TABLE,
    codes::NO_SUCH_TABLE,
    codes::UNKNOWN_SYSTEM_VARIABLE,
    codes::SP_DOES_NOT_EXIST,
];

impl Fault {
    pub(crate) fn of_packet(payload: &[u8], caps: Capabilities) -> Self {
        match ErrPacket::parse(payload, caps) {
            Ok(error) => Self::Server { code: error.code, text: String::from_utf8_lossy(error.message).into_owned() },
            Err(e) => e.into(),
        }
    }

    /// Whether the connection is of no use any more.
    pub(crate) fn breaks_connection(&self) -> bool {
        match self {
            Self::Io(_) | Self::Protocol(_) | Self::Login(_) => true,
            Self::Server { code, .. } => GOING.contains(code),
            Self::Unfit(_) => false,
        }
    }

    /// The server's error number.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Server { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The same error, with what would mend it if the monitor's user lacks a privilege.
    pub(crate) fn with_hint(self, privilege: &str) -> Self {
        match self {
            Self::Server {
                code:
                    code @ (codes::TABLEACCESS_DENIED
                    | codes::COLUMNACCESS_DENIED
                    | codes::SPECIFIC_ACCESS_DENIED
                    | codes::PROCACCESS_DENIED
                    | codes::DBACCESS_DENIED),
                text,
            } => Self::Server { code, text: format!("{text} (the monitor's user needs {privilege})") },
            other => other,
        }
    }

    /// The error as a finding about the server.
    pub(crate) fn into_probe_error(self) -> ProbeError {
        let class = match &self {
            Self::Io(_) => ProbeError::Unreachable,
            Self::Login(_) => ProbeError::Denied,
            Self::Protocol(_) | Self::Unfit(_) => ProbeError::Failed,
            Self::Server { code, .. } if GOING.contains(code) => ProbeError::Closed,
            Self::Server { code, .. } if DENIED.contains(code) => ProbeError::Denied,
            Self::Server { .. } => ProbeError::Failed,
        };
        class(self.to_string())
    }

    /// Whether the server lacks the variable, table or plugin that was asked for.
    pub(crate) fn is_unfit(&self) -> bool {
        matches!(self, Self::Unfit(_)) || self.code().is_some_and(|code| UNFIT.contains(&code))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(e) => e.fmt(f),
            // Access errors are found in ProxySQL's logs by how they begin.
            Self::Server { code: codes::DBACCESS_DENIED | codes::ACCESS_DENIED, text } => f.write_str(text),
            Self::Server { code, text } => write!(f, "{text} (error {code})"),
            Self::Protocol(why) | Self::Login(why) | Self::Unfit(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<WireError> for Fault {
    fn from(e: WireError) -> Self {
        match e {
            WireError::ClearTextNeeded | WireError::InsecureChannel | WireError::UnknownPlugin(_) | WireError::UnexpectedAuth(_) => {
                Self::Login(e.to_string())
            }
            e => Self::Protocol(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart() {
        let server = |code| Fault::Server { code, text: "x".into() }.into_probe_error();
        assert!(matches!(server(1045), ProbeError::Denied(_)));
        assert!(matches!(server(1227), ProbeError::Denied(_)));
        assert!(matches!((server(1053), server(3032)), (ProbeError::Closed(_), ProbeError::Closed(_))));
        // A server that is full is alive: its transactions must not be ended because it has no room for the monitor.
        assert!(matches!(server(1040), ProbeError::Denied(_)));
        let refused = Fault::Io(io::ErrorKind::ConnectionRefused.into());
        assert!(matches!(refused.into_probe_error(), ProbeError::Unreachable(_)));
    }

    #[test]
    fn a_missing_privilege_is_named() {
        let fault = Fault::Server { code: 1227, text: "Access denied".into() }.with_hint("REPLICATION CLIENT");
        assert_eq!(fault.to_string(), "Access denied (the monitor's user needs REPLICATION CLIENT) (error 1227)");
        let other = Fault::Server { code: 1193, text: "Unknown".into() }.with_hint("REPLICATION CLIENT");
        assert_eq!(other.to_string(), "Unknown (error 1193)");
    }
}
