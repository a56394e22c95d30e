//! Hostgroups: their servers, and attributes that stand in for global variables.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::effective::{Overrides, Place, Source};
use super::server::{self, Server};
use super::split::{self, Pairs};
use crate::config::{Config, Row};
use crate::error::{ConfigError, ErrorKind};
use crate::ids::HostgroupId;
use crate::settings::MysqlVariables;

/// A numbered set of servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Hostgroup {
    /// As rules and users name it.
    pub id: HostgroupId,
    /// Its servers in the order of the file, whatever their status.
    pub servers: Vec<Arc<Server>>,
    /// How connections in it are kept.
    pub attributes: HostgroupAttributes,
}

/// The limits and settings of one hostgroup: its row of `mysql_hostgroup_attributes`, else the global variables.
///
/// As in ProxySQL, the numbers of a row replace the variables, even where they are the column's default. `multiplex` can only forbid, and
/// an empty `init_connect` leaves the variable's.
#[derive(Debug, Clone, PartialEq)]
pub struct HostgroupAttributes {
    /// With more servers ONLINE than this, nothing new begins.
    pub max_num_online_servers: u32,
    /// Share of a server's `max_connections` that is kept idle, 0..=100.
    pub free_connections_pct: u8,
    /// SQL run once on every new backend connection; empty for none.
    pub init_connect: Box<str>,
    /// Whether backend connections may be shared between sessions.
    pub multiplex: bool,
    /// Whether connections are opened ahead of need, up to `free_connections_pct`.
    pub connection_warming: bool,
    /// New backend connections a second, from 1.
    pub throttle_connections_per_sec: u32,
    /// Settings of its own, from `hostgroup_settings`.
    pub settings: Overrides,
    /// Takes the plain reads of statements that would go to this hostgroup: `read_write_split` of `hostgroup_settings`.
    pub split_reader: Option<HostgroupId>,
    /// For servers that the monitor finds: `servers_defaults`.
    pub servers_defaults: ServerDefaults,
    /// The origin of its numbers: the variables, unless there is a row.
    pub source: Source,
}

/// The attributes of servers that the monitor finds: `servers_defaults`. Missing ones are copied from a server that is configured for the
/// same cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerDefaults {
    /// Share of the work.
    pub weight: Option<u32>,
    /// Most connections to one server, from all workers together.
    pub max_connections: Option<u32>,
    /// Whether to use TLS.
    pub use_ssl: Option<bool>,
}

impl ServerDefaults {
    fn read(text: &str) -> Result<Self, ErrorKind> {
        let object = json_object(text)?;
        let one = |key: &str, max: u32| match object.get(key) {
            None => Ok(None),
            Some(value) => match value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= max) {
                Some(n) => Ok(Some(n)),
                None => Err(ErrorKind::BadJson(format!("'{key}' must be a number from 0 to {max}"))),
            },
        };
        if let Some(key) = object.keys().find(|key| !matches!(key.as_str(), "weight" | "max_connections" | "use_ssl")) {
            return Err(ErrorKind::BadJson(format!("'{key}' is unknown: use weight, max_connections or use_ssl")));
        }
        let max_connections = one("max_connections", i32::MAX as u32)?;
        Ok(Self { weight: one("weight", 10_000_000)?, max_connections, use_ssl: one("use_ssl", 1)?.map(|n| n == 1) })
    }
}

impl HostgroupAttributes {
    /// The attributes of a hostgroup without a row.
    pub fn from_variables(vars: &MysqlVariables) -> Self {
        Self {
            max_num_online_servers: MOST_ONLINE,
            free_connections_pct: u8::try_from(vars.free_connections_pct).unwrap_or(100),
            init_connect: vars.init_connect.as_str().into(),
            multiplex: true,
            connection_warming: vars.connection_warming,
            throttle_connections_per_sec: u32::try_from(vars.throttle_connections_per_sec_to_hostgroup).unwrap_or(u32::MAX),
            settings: Overrides::default(),
            split_reader: None,
            servers_defaults: ServerDefaults::default(),
            source: Source::Global,
        }
    }

    /// An error names the column.
    fn from_row(row: &Row, id: HostgroupId, vars: &MysqlVariables, pairs: &Pairs) -> Result<Self, (&'static str, ErrorKind)> {
        let of_settings = |kind| (SETTINGS, kind);
        let settings = json_object(row.text(SETTINGS).unwrap_or_default()).map_err(of_settings)?;
        let defaults = ServerDefaults::read(row.text(DEFAULTS).unwrap_or_default()).map_err(|kind| (DEFAULTS, kind))?;
        let global = Self::from_variables(vars);
        let init_connect = row.text("init_connect").filter(|sql| !sql.is_empty());
        Ok(Self {
            max_num_online_servers: number(row, "max_num_online_servers"),
            free_connections_pct: number(row, "free_connections_pct"),
            init_connect: init_connect.map_or(global.init_connect, Box::from),
            multiplex: row.flag("multiplex"),
            connection_warming: row.flag("connection_warming"),
            throttle_connections_per_sec: number(row, "throttle_connections_per_sec"),
            settings: Overrides::read(&settings, Place::Hostgroup, &OWN_KEYS).map_err(of_settings)?,
            split_reader: split::of_hostgroup(settings.get(split::KEY), id, pairs).map_err(of_settings)?,
            servers_defaults: defaults,
            source: Source::Hostgroup,
        })
    }
}

/// Every hostgroup that a server or an attributes row names.
pub(super) fn compile(config: &Config, pairs: &Pairs, errors: &mut Vec<ConfigError>) -> BTreeMap<HostgroupId, Arc<Hostgroup>> {
    let mut groups: BTreeMap<HostgroupId, Hostgroup> = BTreeMap::new();
    for row in config.rows("mysql_hostgroup_attributes") {
        let id = HostgroupId(number(row, "hostgroup_id"));
        let attributes = HostgroupAttributes::from_row(row, id, &config.mysql, pairs).unwrap_or_else(|(column, kind)| {
            errors.push(ConfigError::new(row.position(column).clone(), format!("mysql_hostgroup_attributes.{column}"), kind));
            HostgroupAttributes::from_variables(&config.mysql)
        });
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

/// The column's default, which no hostgroup reaches.
const MOST_ONLINE: u32 = 1_000_000;

/// Keys of `hostgroup_settings` that stand in for no variable.
const OWN_KEYS: [&str; 1] = [split::KEY];

const SETTINGS: &str = "hostgroup_settings";
const DEFAULTS: &str = "servers_defaults";

/// The object of a JSON column; empty when the column is.
pub(super) fn json_object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, ErrorKind> {
    if text.is_empty() {
        return Ok(serde_json::Map::new());
    }
    match serde_json::from_str(text).map_err(|e| ErrorKind::BadJson(e.to_string()))? {
        serde_json::Value::Object(object) => Ok(object),
        _ => Err(ErrorKind::BadJson("must be an object".to_owned())),
    }
}

/// A number of a checked row. The table's ranges fit `T`; a row made by hand that breaks them counts as 0.
pub(super) fn number<T: TryFrom<i64> + Default>(row: &Row, column: &str) -> T {
    row.integer(column).and_then(|value| T::try_from(value).ok()).unwrap_or_default()
}
