//! The faults of bytes from a peer, and of a login: the only error type of this crate.

/// Why bytes could not be read, or why a login cannot go on. Always the peer's doing or a setting's, never a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes do not follow the protocol; the text names the field.
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    /// The greeting's first byte is not protocol version 10.
    #[error("unsupported handshake protocol version {0}")]
    ProtocolVersion(u8),
    /// The client has no CLIENT_PROTOCOL_41: a client from before MySQL 4.1.
    #[error("client speaks the protocol from before MySQL 4.1, which is not supported")]
    OldClient,
    /// The server sent an ERR packet where a greeting or an authentication packet was due; the caller parses it.
    #[error("server refused the connection with error {0}")]
    ServerRefused(u16),
    /// The authentication plugin is not one we can speak.
    #[error("authentication plugin '{0}' is not supported")]
    UnknownPlugin(PluginName),
    /// The plugin would send the password in clear text and the channel is neither TLS nor a Unix socket.
    #[error("refused to send a clear text password over a channel that is not secure")]
    InsecureChannel,
    /// The plugin needs the clear text password and only a hash of it is known.
    #[error("this authentication plugin needs the clear text password, which the proxy does not know")]
    ClearTextNeeded,
    /// An authentication packet that the current step does not allow.
    #[error("unexpected authentication packet: {0}")]
    UnexpectedAuth(&'static str),
    /// An RSA key that cannot be read, or that cannot encrypt or decrypt this password.
    #[error("RSA key: {0}")]
    Rsa(&'static str),
    /// A compressed frame that cannot be unpacked, or is longer than it declared.
    #[error("compressed packet: {0}")]
    Compression(&'static str),
    /// Sequence ids of (compressed) packets are out of order.
    #[error("packets out of order: expected {expected}, got {got}")]
    OutOfOrder {
        /// The sequence id that was due, 0..=255.
        expected: u8,
        /// The sequence id that came, 0..=255.
        got: u8,
    },
}

/// A plugin's name from a server, cut to a length worth showing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PluginName {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl PluginName {
    /// Bytes that are kept.
    const MAX: usize = 48;

    /// The name; bytes that are no printable ASCII are shown as `?`.
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; Self::MAX];
        for (kept, byte) in bytes.iter_mut().zip(name) {
            *kept = if byte.is_ascii_graphic() { *byte } else { b'?' };
        }
        Self { bytes, len: name.len().min(Self::MAX) }
    }
}

impl std::fmt::Display for PluginName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.bytes.get(..self.len).unwrap_or_default();
        f.write_str(std::str::from_utf8(shown).unwrap_or_default())
    }
}

impl std::fmt::Debug for PluginName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Shorthand for results of this crate.
pub type Result<T, E = WireError> = std::result::Result<T, E>;
