//! Why a connection could not be opened, and whom that concerns.

use session_state::collected::ServerError;
use std::fmt;
use std::io;
use wire::codes;

/// Why a connection could not be opened.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// The server or the way to it: a reason to try later, or elsewhere.
    Server(String),
    /// The same, in the server's own words: it is full, going, or lets nobody in from here.
    Closed(ServerError),
    /// The server took the login, and refused what each connection is to begin with, whoever's it is.
    Unfit(String),
    /// The server lacks what the clients of this lane were promised, or one `fast_forward` client. It serves others.
    Lacks(String),
    /// It answered `init_connect` with an error: another user may be allowed what this one is not.
    InitConnect(ServerError),
    /// TLS was refused, on either side, or its files cannot be used. For a user with TLS parameters of its own, it concerns that user only.
    Tls(String),
    /// The server refused this user.
    Login(ServerError),
    /// The user has as many connections there as the server lets it have.
    UsedUp(ServerError),
    /// The user's login to this server cannot be made. Another server may want another plugin, or have another key.
    Impossible(String),
    /// The proxy does not know the user's password, so the user cannot log in to any server.
    NoSecret(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(text)
            | Self::Unfit(text)
            | Self::Lacks(text)
            | Self::Tls(text)
            | Self::Impossible(text)
            | Self::NoSecret(text) => f.write_str(text),
            Self::InitConnect(error) => write!(f, "init_connect failed: {error}"),
            Self::Closed(error) | Self::Login(error) | Self::UsedUp(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for ConnectError {
    fn from(e: io::Error) -> Self {
        // A server may refuse a certificate after its handshake, too.
        if e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
            Self::Tls(format!("TLS: {e}"))
        } else {
            Self::Server(e.to_string())
        }
    }
}

impl From<wire::WireError> for ConnectError {
    fn from(e: wire::WireError) -> Self {
        match e {
            wire::WireError::ClearTextNeeded
            | wire::WireError::InsecureChannel
            | wire::WireError::UnknownPlugin(_)
            // A password that is too long for the key, mostly.
            | wire::WireError::Rsa(_) => Self::Impossible(e.to_string()),
            e => Self::Server(e.to_string()),
        }
    }
}

/// Whom an error of a login concerns: the server as a whole, or the user; and whether it passes.
pub(super) fn refusal(error: ServerError) -> ConnectError {
    // Too many connections or errors, not from here, going, and MySQL's offline_mode.
    const WHOLE: [u16; 6] = [
        codes::CON_COUNT,
        codes::BAD_HOST,
        codes::HOST_IS_BLOCKED,
        codes::HOST_NOT_PRIVILEGED,
        codes::SERVER_SHUTDOWN,
        codes::SERVER_OFFLINE_MODE,
    ];
    // The limit of all users, and the account's own: the latter's code is also that of limits by the hour.
    let names_connections = || error.message.windows(USER_CONNECTIONS.len()).any(|part| part == USER_CONNECTIONS);
    match error.code {
        code if WHOLE.contains(&code) => ConnectError::Closed(error),
        codes::TOO_MANY_USER_CONNECTIONS => ConnectError::UsedUp(error),
        codes::USER_LIMIT_REACHED if names_connections() => ConnectError::UsedUp(error),
        _ => ConnectError::Login(error),
    }
}

/// As servers name the limit of an account's connections at a time, in whatever language.
const USER_CONNECTIONS: &[u8] = b"'max_user_connections'";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::stream::invalid;

    #[test]
    fn a_limit_of_connections_passes_and_one_by_the_hour_does_not() {
        let of = |code, message: &str| refusal(ServerError { code, sqlstate: *b"42000", message: message.into() });
        let exceeded = |what: &str| format!("User 'app' has exceeded the '{what}' resource (current value: 2)");
        assert!(matches!(of(1226, &exceeded("max_user_connections")), ConnectError::UsedUp(_)));
        assert!(matches!(of(1203, "User app already has more than 'max_user_connections' active connections"), ConnectError::UsedUp(_)));
        for by_the_hour in ["max_questions", "max_updates", "max_connections_per_hour"] {
            assert!(matches!(of(1226, &exceeded(by_the_hour)), ConnectError::Login(_)), "{by_the_hour}");
        }
        assert!(matches!(of(1040, "Too many connections"), ConnectError::Closed(_)));
        assert!(matches!(of(1045, "Access denied for user 'max_user_connections'@'%'"), ConnectError::Login(_)));
    }

    #[test]
    fn what_concerns_one_user_is_told_from_what_concerns_the_server() {
        assert!(matches!(wire::WireError::Rsa("password is too long for the server's key").into(), ConnectError::Impossible(_)));
        assert!(matches!(wire::WireError::Malformed("greeting").into(), ConnectError::Server(_)));
        assert!(matches!(invalid(rustls::Error::DecryptError).into(), ConnectError::Tls(_)));
        assert!(matches!(invalid("login packet is too long").into(), ConnectError::Server(_)));
    }
}
