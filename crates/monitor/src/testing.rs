//! Helpers of several unit tests.

use std::sync::Arc;

use model::snapshot::{Server, Snapshot};

/// A compiled configuration.
pub(crate) fn snapshot(text: &str) -> Arc<Snapshot> {
    let (config, _) = model::parse(text, "test.cnf").unwrap();
    Arc::new(Snapshot::compile(&config).unwrap())
}

/// A server as `mysql_servers` describes it.
pub(crate) fn server(host: &str, port: u16) -> Arc<Server> {
    let snapshot = snapshot(&format!("mysql_servers = ( {{ address=\"{host}\", port={port}, hostgroup=1 }} )"));
    Arc::clone(&snapshot.hostgroups.values().next().unwrap().servers[0])
}
