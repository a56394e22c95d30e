//! Servers for unit tests.

use crate::server::ServerShared;
use crate::server_info::{Family, ServerInfo};
use crate::terms::Terms;
use model::fleet::{Placement, UnderWay};
use model::snapshot::{Server, ServerStatus, Snapshot};
use model::{Config, HostgroupId};
use std::sync::Arc;
use wire::charset::Flavor;
use wire::flags::{Capabilities, StatusFlags};

/// A configuration in which each of these (hostgroup, host) is a server with port 3306.
pub fn snapshot(servers: &[(u32, &str)], more: &str) -> Arc<Snapshot> {
    let rows: Vec<String> = servers.iter().map(|(hostgroup, host)| format!("{{ hostgroup={hostgroup}, address=\"{host}\" }}")).collect();
    let text = format!("mysql_servers = ( {} )\n{more}", rows.join(", "));
    let (config, _): (Config, _) = model::parse(&text, "test.cnf").unwrap();
    Arc::new(Snapshot::compile(&config).unwrap())
}

/// A server of hostgroup 0 that is placed so.
pub fn placement(host: &str, weight: u32, status: ServerStatus) -> Placement {
    placement_in(0, host, weight, status)
}

/// The same in any hostgroup.
pub fn placement_in(hostgroup: u32, host: &str, weight: u32, status: ServerStatus) -> Placement {
    let snapshot = snapshot(&[(hostgroup, host)], "");
    let server = &snapshot.hostgroup(HostgroupId(hostgroup)).unwrap().servers[0];
    Placement { server: Arc::new(Server { weight, ..Server::clone(server) }), status, under_way: UnderWay::MayFinish, why: "".into() }
}

/// What a server of this version says of itself.
pub fn info(flavor: Flavor, version: &str) -> ServerInfo {
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

/// A server that is ONLINE.
pub fn server(host: &str, weight: u32) -> Arc<ServerShared> {
    let terms = Terms { default_max_latency_ms: 1000, ..Terms::default() };
    Arc::new(ServerShared::new(&placement(host, weight, ServerStatus::Online), 0, &terms, 0))
}
