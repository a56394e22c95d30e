//! Why a session ends, and what the client is told of it.

use crate::clients::session_handle::SessionHandle;
use crate::workers::worker::Worker;
use model::refusals::{Told, WINDOW};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::codes;

/// What a client is told of a lost connection to a server: MariaDB's ER_CONNECTION_KILLED. Not 2013, which libraries make themselves:
/// libmariadb takes an error packet with a client's number (2000 to 2999) for malformed. Drivers and pools know this number, or
/// [`SERVER_LOST_STATE`], as one of a connection that is gone.
pub(super) const SERVER_LOST: u16 = codes::CONNECTION_KILLED;
/// SQLSTATE "communication link failure".
pub(super) const SERVER_LOST_STATE: &str = "08S01";

/// See the module.
#[derive(Debug)]
pub(super) enum End {
    /// COM_QUIT, or the socket closed between commands.
    Quit,
    /// The client went away while its statement ran.
    ClientGone,
    /// The client's socket failed.
    ClientError(std::io::Error),
    /// The client broke the protocol.
    Protocol {
        /// MySQL error number.
        code: u16,
        /// SQLSTATE.
        sqlstate: &'static str,
        /// Text for the client.
        text: String,
    },
    /// The login was refused; the client has its error already.
    Refused(String),
    /// The client took too long to log in.
    LoginTimeout,
    /// The client stopped reading.
    WriteTimeout,
    /// `wait_timeout`.
    Idle,
    /// KILL CONNECTION.
    Killed,
    /// `max_transaction_time` or `max_transaction_idle_time`.
    TransactionTimeout,
    /// The process stops.
    Shutdown,
    /// It goes on in another process.
    HandedOver,
    /// The backend was lost together with state that only it had.
    BackendLost(String),
    /// The server was taken out of service while the client did not read: it has a part of a packet, and can be told nothing.
    ServerCut,
    /// A `fast_forward` or replication stream ended.
    StreamEnded,
}

impl End {
    /// What the client is told last, if anything: error number, SQLSTATE, text. One that is killed is told nothing, as servers do: a
    /// library takes an error for the statement's, and does not connect anew.
    pub(super) fn message(&self) -> Option<(u16, &'static str, &str)> {
        match self {
            Self::Protocol { code, sqlstate, text } => Some((*code, sqlstate, text)),
            Self::Idle => {
                Some((codes::CLIENT_INTERACTION_TIMEOUT, "HY000", "The client was disconnected because of inactivity (wait_timeout)."))
            }
            Self::TransactionTimeout => Some((
                codes::CONNECTION_KILLED,
                "70100",
                "Connection was killed: max_transaction_time or max_transaction_idle_time exceeded",
            )),
            Self::Shutdown => Some((codes::SERVER_SHUTDOWN, "08S01", "Server shutdown in progress")),
            Self::BackendLost(text) => Some((SERVER_LOST, SERVER_LOST_STATE, text)),
            _ => None,
        }
    }

    /// Why the login was refused.
    pub(super) fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused(why) => Some(why),
            _ => None,
        }
    }

    /// A statement of this session may still run on the server.
    pub(super) fn leaves_statement_running(&self) -> bool {
        !matches!(self, Self::Quit | Self::Idle | Self::BackendLost(_))
    }

    /// The client broke off, did not read, or did not speak the protocol.
    fn is_unhealthy_client(&self) -> bool {
        matches!(self, Self::ClientGone | Self::ClientError(_) | Self::Protocol { .. } | Self::LoginTimeout | Self::WriteTimeout)
    }

    /// Is there nothing to log of a login that ends so?
    fn is_silent(&self, tells_unhealthy: bool) -> bool {
        matches!(self, Self::Quit | Self::StreamEnded | Self::Shutdown) || !tells_unhealthy && self.is_unhealthy_client()
    }

    /// [`End::log`] of a login that ends so. Of many in a short time some are logged, and how many were not.
    pub(super) fn log_refused(&self, handle: &SessionHandle, peer: Option<SocketAddr>, worker: &Worker) {
        let tells_unhealthy = worker.snapshot().vars.log_unhealthy_connections;
        if self.is_silent(tells_unhealthy) {
            return;
        }
        match worker.shared.refusals.next(peer.map(|peer| peer.ip()), worker.shared.clock.now_ms()) {
            Told::Logged => self.log(handle, peer, tells_unhealthy),
            Told::LeftOut => {}
            Told::FirstLeftOut => {
                let shared = Arc::clone(&worker.shared);
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(WINDOW).await;
                    tracing::warn!("{}", shared.refusals.summary());
                });
            }
        }
    }

    /// One line in the log; silence for what is normal, and for clients that fail unless `tells_unhealthy`
    /// (`log_unhealthy_connections`).
    pub(super) fn log(&self, handle: &SessionHandle, peer: Option<SocketAddr>, tells_unhealthy: bool) {
        if !tells_unhealthy && self.is_unhealthy_client() {
            return;
        }
        let id = handle.id;
        let peer = peer.map_or_else(|| "unix socket".to_owned(), |p| p.to_string());
        match self {
            Self::Quit | Self::StreamEnded => tracing::debug!("session {id} from {peer} ended"),
            Self::ClientGone => tracing::info!("session {id} from {peer}: the client went away while its statement ran"),
            Self::ClientError(e) => tracing::info!("session {id} from {peer}: connection to the client failed: {e}"),
            Self::Protocol { code, text, .. } => tracing::warn!("session {id} from {peer} closed: {text} ({code})"),
            Self::Refused(why) => tracing::warn!("session {id} from {peer} refused: {why}"),
            Self::LoginTimeout => tracing::warn!("session {id} from {peer} closed: login not finished within connect_timeout_client"),
            Self::WriteTimeout => tracing::warn!("session {id} from {peer} closed: the client stopped reading"),
            Self::Idle => tracing::info!("session {id} from {peer} closed: wait_timeout"),
            Self::Killed => tracing::info!("session {id} from {peer} closed: killed"),
            Self::TransactionTimeout => tracing::warn!("session {id} from {peer} closed: transaction too long or idle for too long"),
            Self::HandedOver => tracing::debug!("session {id} from {peer} continues in another process"),
            Self::Shutdown => tracing::debug!("session {id} from {peer} closed: shutdown"),
            Self::BackendLost(why) => tracing::warn!("session {id} from {peer} closed: {why}"),
            Self::ServerCut => {
                tracing::warn!("session {id} from {peer} closed: the server was taken out of service while the client was not reading");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_why_it_is_left_unless_it_left_itself() {
        let told = |end: End| end.message().map(|(code, state, _)| (code, state.to_owned()));
        for (end, expected) in [
            (End::Quit, None),
            (End::ClientGone, None),
            // A library would take an error for the statement's.
            (End::Killed, None),
            (End::HandedOver, None),
            (End::ServerCut, None),
            (End::Idle, Some((4031, "HY000"))),
            (End::TransactionTimeout, Some((1927, "70100"))),
            (End::Shutdown, Some((1053, "08S01"))),
            (End::BackendLost("gone".into()), Some((1927, "08S01"))),
        ] {
            let shown = format!("{end:?}");
            assert_eq!(told(end), expected.map(|(code, state)| (code, state.to_owned())), "{shown}");
        }
        assert_eq!(End::Refused("no".into()).refusal(), Some("no"));
    }

    #[test]
    fn a_statement_may_run_on_after_a_session_that_broke_off() {
        for (end, runs, is_silent) in [
            (End::Quit, false, true),
            (End::Idle, false, false),
            (End::BackendLost(String::new()), false, false),
            (End::ClientGone, true, true),
            (End::Killed, true, false),
            (End::TransactionTimeout, true, false),
            (End::Shutdown, true, true),
        ] {
            assert_eq!((end.leaves_statement_running(), end.is_silent(false)), (runs, is_silent), "{end:?}");
        }
        assert!(!End::ClientGone.is_silent(true), "log_unhealthy_connections");
    }
}
