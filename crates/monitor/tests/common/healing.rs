//! Replication clusters that the proxy heals.

use std::sync::Arc;
use std::time::Duration;

use lab::replication::{Replication, switchover_rights};
use lab::{Flavor, Options, Server};
use model::ServerAddr;
use model::snapshot::Snapshot;

use super::{Row, Running, addr, snapshot};

/// The statement of this server's flavor.
pub(crate) fn words<'a>(server: &Server, mariadb: &'a str, mysql: &'a str) -> &'a str {
    match server.flavor() {
        Flavor::Mariadb => mariadb,
        Flavor::Mysql => mysql,
    }
}

/// A primary and replicas, with the table `test.t`. The monitor's user has all rights for healing.
pub(crate) fn start_servers(flavor: Flavor, replicas: usize, args: &[&str]) -> Vec<Server> {
    let servers = Replication::start(flavor, replicas, &Options::new().durable().args(args.iter().copied())).unwrap();
    let more = match flavor {
        Flavor::Mariadb => "GRANT CONNECTION ADMIN, PROCESS ON *.* TO monitor@'%'",
        Flavor::Mysql => "GRANT SYSTEM_USER, PROCESS, SELECT ON *.* TO monitor@'%'",
    };
    for sql in [switchover_rights(flavor), more, "CREATE TABLE test.t (id INT PRIMARY KEY, by_whom VARCHAR(20))"] {
        servers.primary.sql(sql).unwrap();
    }
    servers.wait_caught_up().unwrap();
    servers.into_servers()
}

/// A cluster with these servers; `variables` are of `mysql_variables`, `healing` are columns of its row in `mysql_healing`, and `more` are
/// other tables.
pub(crate) fn healed(addrs: &[ServerAddr], variables: &str, healing: &str, more: &str) -> Arc<Snapshot> {
    let row = |addr: &ServerAddr| format!("{{ address=\"{}\", port={}, hostgroup=10 }}", addr.host, addr.port);
    let rows: Vec<String> = addrs.iter().map(row).collect();
    snapshot(&format!(
        "mysql_variables = {{ {variables} }}\n\
         mysql_servers = ( {} )\n\
         mysql_replication_hostgroups = ( {{ writer_hostgroup=10, reader_hostgroup=20 }} )\n\
         mysql_healing = ( {{ writer_hostgroup=10{healing} }} )\n\
         {more}",
        rows.join(", ")
    ))
}

/// Variables of a proxy that looks every 200 ms, waits this long (ms) for a server, and may replicate.
pub(crate) fn looking(timeout_ms: u32) -> String {
    format!(
        "monitor_read_only_interval=200, monitor_read_only_timeout={timeout_ms}, replication_username=\"repl\", \
         replication_password=\"repl-pass\""
    )
}

/// The word of the operator that there is no other proxy.
pub(crate) const ALONE: &str = "admin_variables = { healing_alone=true }";

pub(crate) fn addrs<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Vec<ServerAddr> {
    servers.into_iter().map(addr).collect()
}

impl Running {
    /// The row of the only cluster; empty before the first look.
    pub(crate) fn cluster(&self) -> Row {
        self.table("stats_tidegate_healing").pop().unwrap_or_default()
    }

    /// Waits until the row of the only cluster is so.
    pub(crate) fn wait_cluster(&self, limit: Duration, what: &str, is_so: impl Fn(&Row) -> bool) -> Row {
        let found = lab::wait::until(what, limit, || Some(self.cluster()).filter(|row| !row.is_empty() && is_so(row)));
        let servers = || self.table("stats_tidegate_healing_servers");
        found.unwrap_or_else(|_| panic!("{what}: {:#?}\n{:#?}\n{:#?}", self.cluster(), servers(), self.healing_events()))
    }

    /// What healing knows of a server; empty before the first look.
    pub(crate) fn healing_server(&self, server: &Server) -> Row {
        let is_it = |row: &Row| row["port"] == server.port().to_string();
        self.table("stats_tidegate_healing_servers").into_iter().find(is_it).unwrap_or_default()
    }

    /// Events of healing: the server's port, what became what, and why.
    pub(crate) fn healing_events(&self) -> Vec<String> {
        let events = self.table("stats_tidegate_events");
        let text = |row: &Row| format!("{}: {} -> {}: {}", row["port"], row["from_state"], row["to_state"], row["why"]);
        events.iter().filter(|row| row["kind"] == "healing").map(text).collect()
    }
}
