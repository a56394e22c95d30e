//! Hostgroups: their servers, and attributes that stand in for global variables.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::server::{self, Server};
use crate::config::{Config, Row};
use crate::ids::HostgroupId;
use crate::settings::MysqlVariables;

/// A numbered set of servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Hostgroup {
    /// Its number.
    pub id: HostgroupId,
    /// Its servers in the order of the file, whatever their status.
    pub servers: Vec<Arc<Server>>,
    /// How connections in it are kept.
    pub attributes: HostgroupAttributes,
}

/// What holds in one hostgroup: its row of `mysql_hostgroup_attributes`, else the global variables.
///
/// As in ProxySQL, once a row exists its numbers replace the variables even where they are the column's default;
/// `multiplex` can only forbid, and an empty `init_connect` leaves the variable's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostgroupAttributes {
    /// Share of a server's `max_connections` that is kept idle, 0..=100.
    pub free_connections_pct: u8,
    /// SQL run once on every new backend connection; empty for none.
    pub init_connect: Box<str>,
    /// Whether backend connections are shared between sessions.
    pub multiplex: bool,
    /// New backend connections a second, from 1.
    pub throttle_connections_per_sec: u32,
}

impl HostgroupAttributes {
    /// What holds in a hostgroup without a row.
    pub fn from_variables(vars: &MysqlVariables) -> Self {
        Self {
            free_connections_pct: u8::try_from(vars.free_connections_pct).unwrap_or(100),
            init_connect: vars.init_connect.as_str().into(),
            multiplex: vars.multiplexing,
            throttle_connections_per_sec: u32::try_from(vars.throttle_connections_per_sec_to_hostgroup).unwrap_or(u32::MAX),
        }
    }

    fn from_row(row: &Row, vars: &MysqlVariables) -> Self {
        let global = Self::from_variables(vars);
        let init_connect = row.text("init_connect").filter(|sql| !sql.is_empty());
        Self {
            free_connections_pct: number(row, "free_connections_pct"),
            init_connect: init_connect.map_or(global.init_connect, Box::from),
            multiplex: global.multiplex && row.flag("multiplex"),
            throttle_connections_per_sec: number(row, "throttle_connections_per_sec"),
        }
    }
}

/// Every hostgroup that a server or an attributes row names.
pub(super) fn compile(config: &Config) -> BTreeMap<HostgroupId, Arc<Hostgroup>> {
    let mut groups: BTreeMap<HostgroupId, Hostgroup> = BTreeMap::new();
    for row in config.rows("mysql_hostgroup_attributes") {
        let id = HostgroupId(number(row, "hostgroup_id"));
        let attributes = HostgroupAttributes::from_row(row, &config.mysql);
        groups.insert(id, Hostgroup { id, servers: Vec::new(), attributes });
    }
    for server in server::compile(config) {
        let id = server.key.hostgroup;
        let attributes = || HostgroupAttributes::from_variables(&config.mysql);
        let empty = || Hostgroup { id, servers: Vec::new(), attributes: attributes() };
        groups.entry(id).or_insert_with(empty).servers.push(Arc::new(server));
    }
    groups.into_iter().map(|(id, group)| (id, Arc::new(group))).collect()
}

/// A number of a checked row. The table's ranges fit `T`; a row made by hand that breaks them counts as 0.
pub(super) fn number<T: TryFrom<i64> + Default>(row: &Row, column: &str) -> T {
    row.integer(column).and_then(|value| T::try_from(value).ok()).unwrap_or_default()
}
