//! Identifiers shared by every crate. Newtypes, so a hostgroup cannot be passed where a port belongs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The number of a hostgroup, 0..=2147483647 (ProxySQL keeps it in a signed 32-bit integer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostgroupId(pub u32);

impl HostgroupId {
    /// The largest number that ProxySQL's tools can hold.
    pub const MAX: u32 = i32::MAX as u32;
}

impl fmt::Display for HostgroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names one row of `mysql_servers`: its primary key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKey {
    /// The hostgroup the server is listed in; a server in two hostgroups has two keys.
    pub hostgroup: HostgroupId,
    /// Host name, IP address, or a Unix socket's path when `port` is 0.
    pub host: Arc<str>,
    /// TCP port; 0 means that `host` is a path.
    pub port: u16,
}

impl ServerKey {
    /// The server, whatever hostgroup it is listed in.
    pub fn addr(&self) -> ServerAddr {
        ServerAddr { host: Arc::clone(&self.host), port: self.port }
    }
}

impl fmt::Display for ServerKey {
    /// `10/db1.example:3306`, or `10//run/mysqld.sock` for a socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            0 => write!(f, "{}/{}", self.hostgroup, self.host),
            port => write!(f, "{}/{}:{port}", self.hostgroup, self.host),
        }
    }
}

/// A server, whatever hostgroups it is listed in. Two ports of one host are two servers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerAddr {
    /// Host name, IP address, or a Unix socket's path when `port` is 0.
    pub host: Arc<str>,
    /// TCP port; 0 means that `host` is a path.
    pub port: u16,
}

impl ServerAddr {
    /// Whether two names are of one server: letter case counts for nothing in names of hosts.
    pub fn is_same(&self, other: &Self) -> bool {
        self.port == other.port && self.host.eq_ignore_ascii_case(&other.host)
    }
}

impl fmt::Display for ServerAddr {
    /// `db1.example:3306`, or `/run/mysqld.sock` for a socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            0 => f.write_str(&self.host),
            port => write!(f, "{}:{port}", self.host),
        }
    }
}
