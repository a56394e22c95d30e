//! Finds the servers of a cluster and their settings for `tidegate init`: a single look from outside, with an administrator's account.
//!
//! Starts at one server, follows it to its primary, and visits every replica, Galera node or group member that a visited server names.
//! Changes nothing. Limited to [`SERVERS_MAX`] servers, [`VISIT_LIMIT`] each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use model::snapshot::Server;
use model::{Secret, ServerAddr};

use crate::client::{self, Access, Connection, Connector, Fault, Rows, is_on};
use crate::probe;

/// Most servers that are visited.
const SERVERS_MAX: usize = 64;
/// Limit for one server: connect, log in, and all questions.
const VISIT_LIMIT: Duration = Duration::from_secs(10);

/// How to log in to every server.
#[derive(Debug, Clone)]
pub struct Account {
    /// The administrator's name on the servers.
    pub user: String,
    /// Its password; empty for accounts that the socket proves.
    pub password: Secret,
    /// Whether TLS is required. The certificate is not verified.
    pub use_ssl: bool,
}

/// A visited server with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visited {
    /// The address under which it was reached.
    pub addr: ServerAddr,
    /// Its version as the server reports it.
    pub version: String,
    /// MariaDB, not MySQL or Percona Server.
    pub is_mariadb: bool,
    /// Major, minor, patch.
    pub number: (u32, u32, u32),
    /// `read_only`, or `super_read_only` where the server has it.
    pub read_only: bool,
    /// `max_connections`, for the limits of the generated configuration.
    pub max_connections: u64,
    /// Its replication sources outside of its own group.
    pub sources: Vec<ServerAddr>,
    /// `server_uuid` (MySQL), or `server_id` (MariaDB), by which one server with two addresses is seen once.
    pub identity: String,
    /// Which cluster it belongs to by its own word.
    pub membership: Membership,
}

/// The kind of cluster that a server belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// Neither Galera nor a group nor Aurora: alone, or asynchronous replication.
    Asynchronous,
    /// A node of Galera or Percona XtraDB Cluster.
    Galera {
        /// The nodes of `wsrep_incoming_addresses`, else the hosts of `wsrep_cluster_address`.
        nodes: Vec<ServerAddr>,
        /// How many it sees, with itself.
        size: usize,
    },
    /// A member of a replication group, the members that it sees, and whether it is a primary.
    Group {
        /// The members that its view names.
        members: Vec<ServerAddr>,
        /// Whether this member is a primary.
        is_primary: bool,
    },
    /// An instance of an Aurora cluster.
    Aurora,
}

/// The servers found, and the reasons for missing ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// The servers, in the order in which they were found; the first one is the one that was asked for.
    pub servers: Vec<Visited>,
    /// Servers that are named and could not be visited, with the reason.
    pub unseen: Vec<(ServerAddr, String)>,
}

/// Visits `first` and every server that belongs to it.
///
/// # Errors
/// The reason why `first` itself cannot be visited, as text for a person.
pub fn survey(first: &ServerAddr, account: &Account) -> Result<Survey, String> {
    runtime()?.block_on(async {
        let connector = Connector::new();
        let (mut found, mut todo) = (Survey::default(), VecDeque::from([first.clone()]));
        let mut known = vec![first.clone()];
        while let Some(addr) = todo.pop_front() {
            match tokio::time::timeout(VISIT_LIMIT, visit(&connector, &addr, account)).await {
                Ok(Ok((server, named))) => {
                    if found.servers.iter().any(|other| other.identity == server.identity) {
                        continue;
                    }
                    found.servers.push(server);
                    for next in named {
                        if known.len() < SERVERS_MAX && !known.contains(&next) {
                            known.push(next.clone());
                            todo.push_back(next);
                        }
                    }
                }
                Ok(Err(fault)) if found.servers.is_empty() => return Err(fault.to_string()),
                Err(_) if found.servers.is_empty() => return Err(format!("no answer within {} s", VISIT_LIMIT.as_secs())),
                Ok(Err(fault)) => found.unseen.push((addr, fault.to_string())),
                Err(_) => found.unseen.push((addr, format!("no answer within {} s", VISIT_LIMIT.as_secs()))),
            }
        }
        Ok(found)
    })
}

/// Which of the accounts `users`@'%' the server has.
///
/// # Errors
/// The server cannot be asked, or the account may not read `mysql.user`.
pub fn existing_accounts(addr: &ServerAddr, account: &Account, users: &[&str]) -> Result<Vec<String>, String> {
    let rows = ask(addr, account, &["SELECT user FROM mysql.user WHERE host = '%'".to_owned()])?;
    let found = rows.iter().filter_map(|row| row.at(0)).filter(|user| users.contains(user));
    Ok(found.map(str::to_owned).collect())
}

/// Runs `statements` on the server, in order, until one fails.
///
/// # Errors
/// The server's answer to the first statement that failed. The statement is not part of the text, since it may hold a password.
pub fn execute(addr: &ServerAddr, account: &Account, statements: &[String]) -> Result<(), String> {
    ask(addr, account, statements).map(drop)
}

/// Runs `statements`; the rows of the last one.
fn ask(addr: &ServerAddr, account: &Account, statements: &[String]) -> Result<Rows, String> {
    runtime()?.block_on(async {
        let connector = Connector::new();
        let work = async {
            let mut connection = client::open(&connector, &access(addr, account)).await?;
            let mut rows = Rows::default();
            for sql in statements {
                rows = connection.query(sql).await?;
            }
            connection.quit().await;
            Ok::<Rows, Fault>(rows)
        };
        match tokio::time::timeout(VISIT_LIMIT, work).await {
            Ok(done) => done.map_err(|fault| fault.to_string()),
            Err(_) => Err(format!("no answer within {} s", VISIT_LIMIT.as_secs())),
        }
    })
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("no runtime: {e}"))
}

pub(crate) fn access(addr: &ServerAddr, account: &Account) -> Access {
    let server = Server { use_ssl: account.use_ssl, ..Server::at(addr) };
    Access { server: Arc::new(server), user: account.user.as_str().into(), password: account.password.clone(), wait_timeout_s: None }
}

/// The server, and the servers that it names.
async fn visit(connector: &Connector, addr: &ServerAddr, account: &Account) -> Result<(Visited, Vec<ServerAddr>), Fault> {
    let mut connection = client::open(connector, &access(addr, account)).await?;
    let variables = connection.query(VARIABLES).await?;
    let (is_mariadb, number) = (connection.version().is_mariadb, connection.version().number);
    let value = |name: &str| variables.named(name).unwrap_or_default();
    let membership = membership(&mut connection, &variables).await?;
    let sources = match membership {
        Membership::Aurora => Vec::new(),
        _ => probe::receiving(&probe::channels(&mut connection).await?),
    };
    let mut named = sources.clone();
    match &membership {
        Membership::Galera { nodes, .. } => named.extend_from_slice(nodes),
        Membership::Group { members, .. } => named.extend_from_slice(members),
        Membership::Aurora => {}
        Membership::Asynchronous => named.extend(replicas(&mut connection, addr).await?),
    }
    let port = value("port").parse().unwrap_or(addr.port);
    let identity = match value("server_uuid") {
        "" => format!("{}@{}:{port}", value("server_id"), value("hostname")),
        uuid => uuid.to_owned(),
    };
    let server = Visited {
        addr: addr.clone(),
        version: value("version").to_owned(),
        is_mariadb,
        number,
        read_only: is_on(value("read_only")) || is_on(value("super_read_only")),
        max_connections: value("max_connections").parse().unwrap_or_default(),
        sources,
        identity,
        membership,
    };
    connection.quit().await;
    Ok((server, named))
}

/// One statement of names and values: a variable that the server lacks is a missing row.
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'read_only', 'super_read_only', 'max_connections', \
     'server_uuid', 'server_id', 'hostname', 'port', 'wsrep_on', 'wsrep_provider', 'wsrep_cluster_address', 'group_replication_group_name', 'aurora_version')";

async fn membership(connection: &mut Connection, variables: &Rows) -> Result<Membership, Fault> {
    let is_named = |name: &str| variables.named(name).is_some_and(|value| !value.is_empty() && !value.eq_ignore_ascii_case("none"));
    if is_named("aurora_version") {
        return Ok(Membership::Aurora);
    }
    if variables.named("wsrep_on").is_some_and(is_on) && is_named("wsrep_provider") {
        let rows = connection.query("SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_incoming_addresses', 'wsrep_cluster_size')").await?;
        let size = rows.named("wsrep_cluster_size").and_then(|size| size.parse().ok()).unwrap_or_default();
        return Ok(Membership::Galera { nodes: galera_nodes(&rows, variables), size });
    }
    if is_named("group_replication_group_name") {
        let group = probe::group(connection).await?;
        let is_primary = group.members.iter().any(|member| member.id == group.me && member.is_primary);
        if !group.me.is_empty() {
            return Ok(Membership::Group { members: group.members.into_iter().map(|member| member.addr).collect(), is_primary });
        }
    }
    Ok(Membership::Asynchronous)
}

/// MariaDB often reports `AUTO` for its nodes. Then the hosts of `wsrep_cluster_address` are tried, at the port of the node that was asked.
fn galera_nodes(status: &Rows, variables: &Rows) -> Vec<ServerAddr> {
    let incoming = status.named("wsrep_incoming_addresses").unwrap_or_default();
    let nodes: Vec<ServerAddr> = incoming.split(',').filter_map(address).collect();
    if incoming.split(',').all(|node| address(node).is_some()) {
        return nodes;
    }
    let port = variables.named("port").and_then(|port| port.parse().ok()).unwrap_or(3306);
    let gcomm = variables.named("wsrep_cluster_address").unwrap_or_default().trim_start_matches("gcomm://");
    let hosts = gcomm.split('?').next().unwrap_or_default().split(',').filter_map(address);
    nodes.into_iter().chain(hosts.map(|addr| ServerAddr { port, ..addr })).collect()
}

/// `10.0.0.1:3306`, `[fe80::1]:3306`, `db1` (port 3306); None for what names no server, like `AUTO`.
fn address(text: &str) -> Option<ServerAddr> {
    let text = text.trim();
    if text.is_empty() || text.eq_ignore_ascii_case("auto") || text.eq_ignore_ascii_case("undefined") {
        return None;
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, port.parse().ok()?),
        _ => (text, 3306),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (port != 0).then(|| ServerAddr { host: host.into(), port })
}

/// The replicas that are connected: by `report_host` where they set it, else by where their dump thread's client is.
async fn replicas(connection: &mut Connection, source: &ServerAddr) -> Result<Vec<ServerAddr>, Fault> {
    let version = connection.version();
    let sql = if version.is_mysql_since((8, 0, 22)) { "SHOW REPLICAS" } else { "SHOW SLAVE HOSTS" };
    // Missing privileges do not end the survey: it lists the servers that it found.
    let registered = connection.query(sql).await.unwrap_or_default();
    let dumps = connection.query(DUMPS).await.unwrap_or_default();
    Ok(replicas_of(&registered, &dumps, source))
}

const DUMPS: &str = "SELECT host FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";

/// Replicas register with their port, and with a host only if `report_host` is set. For the others, every client host is combined with
/// every registered port. A combination without a server is not reached.
fn replicas_of(registered: &Rows, dumps: &Rows, source: &ServerAddr) -> Vec<ServerAddr> {
    let mut clients: Vec<&str> = dumps.iter().filter_map(|row| row.at(0)).map(host_of).collect();
    // A server that sees its replica on a socket or on loopback shares the machine with it.
    clients.iter_mut().filter(|host| host.is_empty() || **host == "localhost").for_each(|host| *host = &source.host);
    clients.sort_unstable();
    clients.dedup();
    let mut found = Vec::new();
    for row in registered.iter() {
        let Some(port) = row.number("port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0) else { continue };
        match row.text("host").filter(|host| !host.is_empty()) {
            Some(host) => found.push(ServerAddr { host: host.into(), port }),
            None => found.extend(clients.iter().map(|host| ServerAddr { host: (*host).into(), port })),
        }
    }
    found
}

/// `10.0.0.2:51234` is 10.0.0.2.
fn host_of(client: &str) -> &str {
    client.rsplit_once(':').map_or(client, |(host, _)| host).trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(host: &str, port: u16) -> ServerAddr {
        ServerAddr { host: host.into(), port }
    }

    #[test]
    fn addresses_of_nodes() {
        assert_eq!(address(" 10.0.0.1:4307"), Some(addr("10.0.0.1", 4307)));
        assert_eq!(address("db1"), Some(addr("db1", 3306)));
        assert_eq!(address("[fe80::1]:3307"), Some(addr("fe80::1", 3307)));
        assert_eq!(address("fe80::1"), Some(addr("fe80::1", 3306)));
        for none in ["", "AUTO", "undefined", "db1:0", "db1:x"] {
            assert_eq!(address(none), None, "{none}");
        }
    }

    #[test]
    fn nodes_without_an_address_are_looked_for_where_the_cluster_is_joined() {
        let status = |nodes| Rows::of(&["Variable_name", "Value"], &[&[Some("wsrep_incoming_addresses"), Some(nodes)]]);
        let gcomm = Rows::of(
            &["Variable_name", "Value"],
            &[&[Some("port"), Some("3307")], &[Some("wsrep_cluster_address"), Some("gcomm://db1,db2:4567?pc.wait_prim=no")]],
        );
        assert_eq!(galera_nodes(&status("db1:3306,db2:3306"), &gcomm), [addr("db1", 3306), addr("db2", 3306)]);
        assert_eq!(galera_nodes(&status("AUTO,AUTO"), &gcomm), [addr("db1", 3307), addr("db2", 3307)]);
    }

    #[test]
    fn replicas_without_report_host_are_looked_for_where_their_dumps_come_from() {
        let registered =
            Rows::of(&["Server_id", "Host", "Port"], &[&[Some("2"), Some("db2"), Some("3307")], &[Some("3"), Some(""), Some("3308")]]);
        let dumps = Rows::of(&["host"], &[&[Some("10.0.0.2:50000")], &[Some("10.0.0.3:50001")], &[Some("10.0.0.3:50002")]]);
        let found = replicas_of(&registered, &dumps, &addr("db1", 3306));
        assert_eq!(found, [addr("db2", 3307), addr("10.0.0.2", 3308), addr("10.0.0.3", 3308)]);
        let local = Rows::of(&["host"], &[&[Some("localhost")]]);
        let found = replicas_of(&registered, &local, &addr("127.0.0.1", 3306));
        assert_eq!(found, [addr("db2", 3307), addr("127.0.0.1", 3308)]);
        assert_eq!(replicas_of(&Rows::default(), &dumps, &addr("db1", 3306)), []);
    }
}
