//! Servers and configurations for unit tests.

use crate::server_info::{Family, ServerInfo};
use model::Config;
use model::snapshot::Snapshot;
use std::sync::Arc;
use wire::charset::Flavor;
use wire::flags::{Capabilities, StatusFlags};

/// What a server of this version says of itself.
pub(crate) fn info(flavor: Flavor, version: &str) -> ServerInfo {
    ServerInfo {
        version: version.into(),
        flavor,
        family: Family::of(flavor, version),
        capabilities: Capabilities::default(),
        collation: 45,
        status: StatusFlags::default(),
        tracking: Arc::default(),
    }
}

/// A configuration in which each of these (hostgroup, host) is a server with port 3306.
pub(crate) fn snapshot(servers: &[(u32, &str)], more: &str) -> Arc<Snapshot> {
    let rows: Vec<String> = servers.iter().map(|(hostgroup, host)| format!("{{ hostgroup={hostgroup}, address=\"{host}\" }}")).collect();
    let text = format!("mysql_servers = ( {} )\n{more}", rows.join(", "));
    let (config, _): (Config, _) = model::parse(&text, "test.cnf").unwrap();
    Arc::new(Snapshot::compile(&config).unwrap())
}
