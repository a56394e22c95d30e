//! What operators see of a session: who, from where, on which server, doing what.
//!
//! Lives in the session's [`SessionHandle`](crate::clients::session_handle::SessionHandle) on its worker. The session writes it as it goes, without
//! allocating once the buffer for its statements is large enough; the buffer goes when the session parks.

use meter::server_counts::ServerId;
use session_state::state::Text;
use sql::LexMode;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

/// Bytes of a running statement that the process list can show.
pub(crate) const MAX_INFO: usize = 4096;

/// The connection that a session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldConnection {
    /// The server.
    pub server: ServerId,
    /// Our end of the connection; None on Unix sockets.
    pub local: Option<SocketAddr>,
    /// The server's id of the connection.
    pub thread_id: u32,
    /// When it was opened (process clock, ms).
    pub opened_ms: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ProcesslistRow {
    /// The client's address; None on Unix sockets.
    pub client: Cell<Option<SocketAddr>>,
    /// The address it came to.
    pub proxy: Cell<Option<SocketAddr>>,
    /// The name given at login, as long as nobody is logged in.
    pub claimed: RefCell<Box<str>>,
    /// Unix time of the connect, ms.
    pub connected_at_ms: Cell<u64>,
    /// The client's connection is under TLS.
    pub is_tls: Cell<bool>,
    /// Packets pass unread: a `fast_forward` user's or a replica's.
    pub passes_through: Cell<bool>,
    /// The connection that it holds.
    pub held: Cell<Option<HeldConnection>>,
    /// Status flags as the client last saw them.
    pub status: Cell<u16>,
    /// Its schema.
    pub schema: RefCell<Option<Text>>,
    /// The command byte that runs, or ran last.
    pub command: Cell<u8>,
    /// The analysis' digest of the last statement that has ended; 0 before the first.
    pub digest: Cell<u64>,
    info: RefCell<Vec<u8>>,
}

impl ProcesslistRow {
    /// The client came, over this connection.
    pub(crate) fn came(&self, client: Option<SocketAddr>, proxy: Option<SocketAddr>) {
        self.is_between(client, proxy);
        self.connected_at_ms.set(crate::workers::clock::unix_us() / 1000);
    }

    /// Whom it connects, as a proxy before us says.
    pub(crate) fn is_between(&self, client: Option<SocketAddr>, proxy: Option<SocketAddr>) {
        self.client.set(client);
        self.proxy.set(proxy);
    }

    pub(crate) fn begin(&self, command: u8, text: &[u8]) {
        self.command.set(command);
        let mut info = self.info.borrow_mut();
        info.clear();
        info.extend_from_slice(text.get(..MAX_INFO).unwrap_or(text));
    }

    /// The first bytes of the statement that runs, or ran last, as many as [`MAX_INFO`] and `limit` allow; without its values if it
    /// carries a password.
    pub(crate) fn info(&self, limit: usize) -> String {
        let info = self.info.borrow();
        String::from_utf8_lossy(&sql::shown_in_any_mode(info.get(..limit).unwrap_or(&info))).into_owned()
    }

    /// May what a server says of the statement that runs, or ran last, quote a password?
    pub(crate) fn error_may_carry_password(&self) -> bool {
        let info = self.info.borrow();
        matches!(sql::shown_in_any_mode(&info), Cow::Owned(_)) || sql::error_may_carry_password(&info, LexMode::default())
    }

    /// The session's schema, told after each command.
    pub(crate) fn set_schema(&self, schema: Option<&Text>) {
        let mut known = self.schema.borrow_mut();
        let same = match (known.as_ref(), schema) {
            (None, None) => true,
            (Some(a), Some(b)) => std::ptr::eq(&**a, &**b),
            _ => false,
        };
        if !same {
            *known = schema.cloned();
        }
    }

    /// The session has been idle for a while.
    pub(crate) fn park(&self) {
        *self.info.borrow_mut() = Vec::new();
    }
}
