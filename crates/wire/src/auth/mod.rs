//! Authentication, both ways, as state machines without IO: [`server`] checks a client's login, [`client`] logs in to a server.
//!
//! Owns the plugins' arithmetic and the order of their messages. Accounts, sockets, randomness and the cache of fast keys belong to the
//! caller: they come in as arguments and go out as values.
//!
//! INVARIANT: a clear text password never leaves over a channel that is not secure (TLS or a Unix socket), and secrets are compared in
//! constant time.

pub mod client;
pub mod crypt;
pub mod ed25519;
pub mod hash;
pub mod rsa;
pub mod server;

/// The authentication plugins that both sides know by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Plugin {
    /// `mysql_native_password`: SHA-1, 20-byte scramble.
    Native,
    /// `caching_sha2_password`: SHA-256 fast path, else the password over TLS or RSA.
    CachingSha2,
    /// `sha256_password`: the password over TLS or RSA.
    Sha256,
    /// `mysql_clear_password`: the password as it is; secure channels only.
    Clear,
    /// MariaDB's `client_ed25519`: a signature over a 32-byte nonce.
    Ed25519,
}

impl Plugin {
    /// Every plugin.
    pub const ALL: [Self; 5] = [Self::Native, Self::CachingSha2, Self::Sha256, Self::Clear, Self::Ed25519];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "mysql_native_password",
            Self::CachingSha2 => "caching_sha2_password",
            Self::Sha256 => "sha256_password",
            Self::Clear => "mysql_clear_password",
            Self::Ed25519 => "client_ed25519",
        }
    }

    /// The plugin of this name; `None` when we do not speak it.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name().as_bytes() == name)
    }
}

/// How well the channel under the protocol keeps a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// TLS: clear text passwords may pass.
    Secure,
    /// A Unix socket without TLS: the same, but for `sha256_password`, whose clients and servers trust nothing but TLS.
    Local,
    /// TCP without TLS.
    Plain,
}

impl Channel {
    /// Whether this plugin's password passes in clear.
    #[must_use]
    pub fn is_secure_for(self, plugin: Plugin) -> bool {
        match self {
            Self::Secure => true,
            Self::Local => plugin != Plugin::Sha256,
            Self::Plain => false,
        }
    }
}

/// AuthMoreData of caching_sha2_password: "your scramble was right".
const FAST_OK: u8 = 3;
/// AuthMoreData of caching_sha2_password: "send the password".
const FULL_NEEDED: u8 = 4;
/// The client asks for the RSA key, in caching_sha2_password.
const ASK_KEY_CACHING: u8 = 2;
/// The client asks for the RSA key, in sha256_password.
const ASK_KEY_SHA256: u8 = 1;

#[cfg(test)]
mod tests;
