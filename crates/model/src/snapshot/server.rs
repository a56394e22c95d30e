//! Servers: their addresses, their limits, and the TLS parameters for connections to them.

use std::path::PathBuf;
use std::sync::Arc;

use super::hostgroup::number;
use crate::config::{Config, Row};
use crate::ids::{HostgroupId, ServerAddr, ServerKey};
use crate::settings::{BackendSslVerify, MysqlVariables};

/// One row of `mysql_servers`.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Hostgroup, host and port.
    pub key: ServerKey,
    /// The address for connections.
    pub address: Address,
    /// The operator's status, not the observed one.
    pub status: ServerStatus,
    /// Its share of the work, 0..=10000000; 0 gets none.
    pub weight: u32,
    /// Most backend connections to it, from all workers together.
    pub max_connections: u32,
    /// Whether to compress.
    pub compression: bool,
    /// Whether to use TLS. Sockets never do.
    pub use_ssl: bool,
    /// TLS parameters for users without their own. See [`Server::tls_for`].
    pub tls: Arc<TlsParams>,
    /// TLS parameters of certain users.
    pub tls_by_user: Vec<(Box<str>, Arc<TlsParams>)>,
    /// Replication lag in seconds beyond which it gets no reads; 0 is no limit.
    pub max_replication_lag: u32,
    /// Ping time in ms beyond which it is not chosen; 0 means `mysql-default_max_latency_ms`.
    pub max_latency_ms: u32,
    /// Port of its GTID reader; 0 is none.
    pub gtid_port: u16,
    /// The operator's remark.
    pub comment: Box<str>,
}

impl Server {
    /// A server that no row describes: in hostgroup 0, without TLS, for one connection. Port 0 means that the host is the path of a
    /// socket.
    pub fn at(addr: &ServerAddr) -> Self {
        let (host, port) = (Arc::clone(&addr.host), addr.port);
        Self {
            key: ServerKey { hostgroup: HostgroupId(0), host: Arc::clone(&host), port },
            address: if port == 0 { Address::Unix(host.as_ref().into()) } else { Address::Tcp { host, port } },
            status: ServerStatus::Online,
            weight: 1,
            max_connections: 1,
            compression: false,
            use_ssl: false,
            tls: Arc::default(),
            tls_by_user: Vec::new(),
            max_replication_lag: 0,
            max_latency_ms: 0,
            gtid_port: 0,
            comment: "".into(),
        }
    }

    /// The TLS parameters for connections of `username`.
    pub fn tls_for(&self, username: &str) -> &Arc<TlsParams> {
        let own = self.tls_by_user.iter().find(|(user, _)| &**user == username);
        own.map_or(&self.tls, |(_, params)| params)
    }

    /// Whether the user has parameters of its own, so that their faults concern no other user.
    pub fn has_own_tls(&self, username: &str) -> bool {
        self.tls_by_user.iter().any(|(user, _)| &**user == username)
    }
}

/// The listening address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A name or IP address, and a port.
    Tcp {
        /// Name or IP address.
        host: Arc<str>,
        /// The TCP port, 1..=65535.
        port: u16,
    },
    /// A Unix socket: rows with port 0.
    Unix(PathBuf),
}

/// Whether a server is used: as the operator says, or as was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerStatus {
    /// It takes new work, if it is healthy.
    Online,
    /// Do not use it. One that was observed ends when the server is well; one that is configured holds until the row says otherwise.
    Shunned,
    /// Give it nothing new; what runs may finish.
    OfflineSoft,
    /// Do not use it, and close its connections.
    OfflineHard,
    /// Too far behind to be read from. Only observed, never configured.
    ShunnedReplicationLag,
}

impl ServerStatus {
    /// Reads the word of the `status` column.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Online, Self::Shunned, Self::OfflineSoft, Self::OfflineHard];
        all.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(name))
    }

    /// The word of the `status` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Online => "ONLINE",
            Self::Shunned => "SHUNNED",
            Self::OfflineSoft => "OFFLINE_SOFT",
            Self::OfflineHard => "OFFLINE_HARD",
            Self::ShunnedReplicationLag => "SHUNNED_REPLICATION_LAG",
        }
    }
}

/// How TLS to a server is set up. Paths are as written: relative to the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TlsParams {
    /// File of CAs.
    pub ca: Option<PathBuf>,
    /// Directory of CAs.
    pub capath: Option<PathBuf>,
    /// Client certificate.
    pub cert: Option<PathBuf>,
    /// The private key's file.
    pub key: Option<PathBuf>,
    /// File of revoked certificates.
    pub crl: Option<PathBuf>,
    /// Directory of such files.
    pub crlpath: Option<PathBuf>,
    /// Ciphers, separated by `:`.
    pub cipher: Option<Box<str>>,
    /// Allowed versions, separated by commas: `TLSv1.2,TLSv1.3`.
    pub tls_version: Option<Box<str>>,
    /// How far the server's certificate is checked.
    pub verify: BackendSslVerify,
}

impl TlsParams {
    /// The global `mysql-ssl_p2s_*` parameters.
    pub fn from_variables(vars: &MysqlVariables) -> Self {
        Self {
            ca: path(&vars.ssl_p2s_ca),
            capath: path(&vars.ssl_p2s_capath),
            cert: path(&vars.ssl_p2s_cert),
            key: path(&vars.ssl_p2s_key),
            crl: path(&vars.ssl_p2s_crl),
            crlpath: path(&vars.ssl_p2s_crlpath),
            cipher: text(&vars.ssl_p2s_cipher),
            tls_version: None,
            verify: vars.backend_ssl_verify,
        }
    }

    /// A row of `mysql_servers_ssl_params`, which replaces the global parameters whole. Checking the certificate
    /// stays a global choice, as ProxySQL's table has no column for it.
    fn from_row(row: &Row, verify: BackendSslVerify) -> Self {
        let column = |name: &str| row.text(name).unwrap_or_default();
        Self {
            ca: path(column("ssl_ca")),
            capath: path(column("ssl_capath")),
            cert: path(column("ssl_cert")),
            key: path(column("ssl_key")),
            crl: path(column("ssl_crl")),
            crlpath: path(column("ssl_crlpath")),
            cipher: text(column("ssl_cipher")),
            tls_version: text(column("tls_version")),
            verify,
        }
    }
}

/// Every server, in the order of the file.
pub(super) fn compile(config: &Config) -> Vec<Server> {
    let global = Arc::new(TlsParams::from_variables(&config.mysql));
    config.rows("mysql_servers").iter().map(|row| server(row, config, &global)).collect()
}

fn server(row: &Row, config: &Config, global: &Arc<TlsParams>) -> Server {
    let host: Arc<str> = row.text("hostname").unwrap_or_default().into();
    let port = number(row, "port");
    let address = match port {
        0 => Address::Unix(PathBuf::from(&*host)),
        port => Address::Tcp { host: host.clone(), port },
    };
    let mut tls_by_user = own_tls(config, &host, port);
    let for_all = tls_by_user.iter().position(|(user, _)| user.is_empty());
    let tls = for_all.map_or_else(|| global.clone(), |index| tls_by_user.remove(index).1);
    Server {
        use_ssl: row.flag("use_ssl") && port != 0,
        key: ServerKey { hostgroup: HostgroupId(number(row, "hostgroup_id")), host, port },
        address,
        status: row.text("status").and_then(ServerStatus::from_name).unwrap_or(ServerStatus::Online),
        weight: number(row, "weight"),
        max_connections: number(row, "max_connections"),
        compression: row.flag("compression") && port != 0,
        tls,
        tls_by_user,
        max_replication_lag: number(row, "max_replication_lag"),
        max_latency_ms: number(row, "max_latency_ms"),
        gtid_port: number(row, "gtid_port"),
        comment: row.text("comment").unwrap_or_default().into(),
    }
}

/// The rows of `mysql_servers_ssl_params` for this server, by user. The empty name stands for all other users.
fn own_tls(config: &Config, host: &str, port: u16) -> Vec<(Box<str>, Arc<TlsParams>)> {
    let rows = config.rows("mysql_servers_ssl_params").iter();
    let ours = rows.filter(|row| row.text("hostname") == Some(host) && row.integer("port") == Some(i64::from(port)));
    let params = |row: &Row| Arc::new(TlsParams::from_row(row, config.mysql.backend_ssl_verify));
    ours.map(|row| (row.text("username").unwrap_or_default().into(), params(row))).collect()
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn text(text: &str) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}
