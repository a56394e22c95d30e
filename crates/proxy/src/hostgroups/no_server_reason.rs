//! Why a hostgroup has nobody that is used, in words: for those who wait for a server there, and for `EXPLAIN ROUTE`.

use crate::servers::server::ServerShared;
use crate::workers::shared::Shared;
use model::HostgroupId;
use model::snapshot::ServerStatus;
use std::sync::Arc;

/// Servers that an error names.
const MAX_NAMED: usize = 5;

/// Why none of a hostgroup's servers is used.
pub(crate) fn out_of_use(servers: &[Arc<ServerShared>]) -> String {
    let listed = servers.iter().filter(|server| !server.is_removed()).map(|server| standing(server, ""));
    listed_behind("no server of the hostgroup is ONLINE with a weight above 0", listed)
}

/// Where the servers are of a hostgroup that has none, as far as they are its cluster's. Those that are not ONLINE come first: the
/// writer that is missed is one of them.
pub(crate) fn no_server(shared: &Shared, id: HostgroupId) -> String {
    let snapshot = Arc::clone(&shared.in_force.load().snapshot);
    let group = snapshot.roles.iter().find(|group| group.hostgroups().any(|other| other == id));
    let others = group.into_iter().flat_map(|group| group.hostgroups()).filter(|other| *other != id);
    let mut servers: Vec<Arc<ServerShared>> = others.flat_map(|other| shared.hostgroup(other).servers().to_vec()).collect();
    servers.retain(|server| !server.is_removed());
    servers.sort_by_key(|server| (server.is_online(), server.key.host.clone(), server.key.port, server.key.hostgroup));
    servers.dedup_by_key(|server| server.key.addr());
    let listed = servers.iter().map(|server| standing(server, &format!(" in hostgroup {}", server.key.hostgroup)));
    listed_behind("the hostgroup has no server", listed)
}

fn listed_behind(text: &str, all: impl Iterator<Item = String>) -> String {
    let named: Vec<String> = all.take(MAX_NAMED).collect();
    if named.is_empty() { text.to_owned() } else { format!("{text}: {}", named.join(", ")) }
}

/// A server, its status there, and why.
fn standing(server: &ServerShared, place: &str) -> String {
    let placement = server.placement();
    let mut why = match &*placement.why {
        "" if placement.server.status != ServerStatus::Online => " (set in mysql_servers)".to_owned(),
        "" => String::new(),
        why => format!(" ({why})"),
    };
    if let Some(error) = server.connects.last_error().filter(|error| !placement.why.contains(&**error)) {
        why += &format!(", the last connect failed: {error}");
    }
    let weight = if server.share.weight() == 0 { ", weight 0" } else { "" };
    format!("{}:{} {}{weight}{place}{why}", server.key.host, server.key.port, server.status().as_str())
}
