//! A test's wishes for a connection.

use std::path::PathBuf;
use std::time::Duration;

use wire::Capabilities;

use crate::server::Server;

/// The address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `host:port`.
    Tcp(String),
    /// A unix socket's path.
    Unix(PathBuf),
}

/// The compressed protocol's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// CLIENT_COMPRESS.
    Zlib,
    /// CLIENT_ZSTD_COMPRESSION_ALGORITHM with a level from 1 to 22.
    Zstd(i32),
}

/// The content of a login. The flags are the test's wishes; those in use are the common ones with the server
/// ([`super::Client::capabilities`]).
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The address of the server or the proxy.
    pub target: Target,
    /// User name.
    pub user: String,
    /// Password; empty for none.
    pub password: Vec<u8>,
    /// Schema at login (sets CONNECT_WITH_DB).
    pub database: Option<String>,
    /// Wanted capabilities, besides those that other fields imply.
    pub capabilities: Capabilities,
    /// Collation id sent at login; 45 is utf8mb4_general_ci.
    pub charset: u8,
    /// Whether to switch to TLS. The certificate is not checked.
    pub tls: bool,
    /// Whether that is to be TLS 1.2.
    pub tls12: bool,
    /// Compressed protocol.
    pub compression: Option<Compression>,
    /// Connection attributes; sent when not empty.
    pub attributes: Vec<(String, String)>,
    /// The authentication plugin to claim, when it should not be the server's default.
    pub plugin: Option<String>,
    /// Limit for connecting and for each read and write.
    pub timeout: Duration,
}

impl ConnectOptions {
    /// The wishes of a present-day client.
    pub const MODERN: Capabilities = Capabilities::LOGIN
        .union(Capabilities::MULTI_RESULTS)
        .union(Capabilities::PS_MULTI_RESULTS)
        .union(Capabilities::SESSION_TRACK)
        .union(Capabilities::DEPRECATE_EOF);

    /// The wishes of a client from the days of MySQL 5.5: EOF packets, no session tracking.
    pub const CLASSIC: Capabilities = Self::MODERN
        .difference(Capabilities::SESSION_TRACK)
        .difference(Capabilities::DEPRECATE_EOF)
        .difference(Capabilities::PLUGIN_AUTH_LENENC);

    fn to(target: Target, user: &str, password: &str) -> ConnectOptions {
        ConnectOptions {
            target,
            user: user.to_owned(),
            password: password.as_bytes().to_vec(),
            database: None,
            capabilities: Self::MODERN,
            charset: 45,
            tls: false,
            tls12: false,
            compression: None,
            attributes: Vec::new(),
            plugin: None,
            timeout: Duration::from_secs(30),
        }
    }

    /// Over TCP to `address` (`host:port`).
    pub fn tcp(address: impl Into<String>, user: &str, password: &str) -> ConnectOptions {
        Self::to(Target::Tcp(address.into()), user, password)
    }

    /// Over a unix socket.
    pub fn unix(path: impl Into<PathBuf>, user: &str, password: &str) -> ConnectOptions {
        Self::to(Target::Unix(path.into()), user, password)
    }

    /// As `app` over TCP to a lab server, in its schema `test`.
    pub fn app(server: &Server) -> ConnectOptions {
        Self::tcp(server.address(), "app", "app-pass").database("test")
    }

    /// Names the schema at login.
    pub fn database(mut self, name: &str) -> ConnectOptions {
        self.database = Some(name.to_owned());
        self
    }

    /// Asks for more capabilities.
    pub fn with(mut self, capabilities: Capabilities) -> ConnectOptions {
        self.capabilities.insert(capabilities);
        self
    }

    /// Asks for fewer capabilities.
    pub fn without(mut self, capabilities: Capabilities) -> ConnectOptions {
        self.capabilities.remove(capabilities);
        self
    }

    /// Exactly these capabilities, and those that other fields imply.
    pub fn capabilities(mut self, capabilities: Capabilities) -> ConnectOptions {
        self.capabilities = capabilities;
        self
    }

    /// Sets the collation id.
    pub fn charset(mut self, id: u8) -> ConnectOptions {
        self.charset = id;
        self
    }

    /// Switches to TLS 1.2.
    pub fn tls12(mut self) -> ConnectOptions {
        (self.tls, self.tls12) = (true, true);
        self
    }

    /// Switches to TLS.
    pub fn tls(mut self) -> ConnectOptions {
        self.tls = true;
        self
    }

    /// Asks for the compressed protocol.
    pub fn compression(mut self, algorithm: Compression) -> ConnectOptions {
        self.compression = Some(algorithm);
        self
    }

    /// Adds a connection attribute.
    pub fn attribute(mut self, name: &str, value: &str) -> ConnectOptions {
        self.attributes.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Claims an authentication plugin, whatever the server's default is.
    pub fn plugin(mut self, name: &str) -> ConnectOptions {
        self.plugin = Some(name.to_owned());
        self
    }

    /// Sets the limit for connecting and for each read and write.
    pub fn timeout(mut self, limit: Duration) -> ConnectOptions {
        self.timeout = limit;
        self
    }

    /// Every flag this client will ask for.
    pub(super) fn wanted(&self) -> Capabilities {
        let mut wanted = self.capabilities;
        wanted.set(Capabilities::CONNECT_WITH_DB, self.database.is_some());
        wanted.set(Capabilities::SSL, self.tls);
        wanted.set(Capabilities::COMPRESS, self.compression == Some(Compression::Zlib));
        wanted.set(Capabilities::ZSTD_COMPRESSION, matches!(self.compression, Some(Compression::Zstd(_))));
        wanted.set(Capabilities::CONNECT_ATTRS, !self.attributes.is_empty());
        wanted
    }
}
