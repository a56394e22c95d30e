//! What the data plane lets its operator do. The admin interface knows the data plane by this trait alone.

use std::sync::Arc;

use crate::error::ConfigError;
use crate::fleet::Placement;
use crate::remark::{Remark, Scope};
use crate::snapshot::Snapshot;
use crate::stats::{StatsSource, Value};

/// What can be thrown away or opened anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Every cached result.
    QueryCache,
    /// Query, audit and error log, and that of TLS keys: files are opened anew.
    Logs,
    /// Addresses that failed to log in.
    ClientHosts,
}

/// What an operator asks of the router: `EXPLAIN ROUTE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteQuestion {
    /// The statement.
    pub sql: String,
    /// Who sends it; the first user if none is named.
    pub user: Option<String>,
    /// The session's schema.
    pub schema: Option<String>,
    /// The client's address.
    pub client_addr: Option<String>,
    /// The listener that the client connects to, as it is configured; the first one if none is named.
    pub listener: Option<String>,
}

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteStep {
    /// What was looked at: `digest`, `rule 7`, `default_hostgroup`, `server 10/db1:3306`, ...
    pub step: String,
    /// What came of it: `matched`, `no match`, `candidate`, ...
    pub outcome: String,
    /// Why.
    pub detail: String,
}

/// What a session of the admin port did, for the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminAction {
    /// An operator logged in.
    ConnectOk,
    /// A client was refused.
    ConnectErr,
    /// An operator said goodbye.
    Quit,
    /// A session is over.
    Close,
    /// An operator's statement, from the web page, that may change something.
    Statement,
}

/// A line of the audit log about the admin port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminEvent {
    /// What happened.
    pub action: AdminAction,
    /// The session's number on the admin port.
    pub session_id: u64,
    /// Who it was, or claimed to be; empty when that was never said.
    pub user: String,
    /// The session's schema; empty for none.
    pub schema: String,
    /// The client's address and port; empty for a Unix socket.
    pub client: String,
    /// When the client came, in Unix ms.
    pub connected_at_ms: u64,
    /// Whether TLS is spoken.
    pub is_tls: bool,
    /// Why, for a refusal.
    pub extra: Option<String>,
}

/// The data plane, as its operator sees it. Every call may be made from any thread but a worker's.
pub trait DataPlane: StatsSource {
    /// Finds what only the data plane can find wrong with a configuration: patterns that do not compile, files of
    /// certificates that cannot be read. Changes nothing.
    fn check(&self, snapshot: &Snapshot) -> Result<(), Vec<ConfigError>>;

    /// Puts a configuration in force, whole; on an error nothing has changed. Answers what takes effect only after a
    /// restart, one line each.
    fn apply(&self, snapshot: Arc<Snapshot>) -> Result<Vec<String>, Vec<ConfigError>>;

    /// The configuration in force.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Whether the process is so close to its budget of memory (`mysql-memory_budget`) that nothing large may begin.
    fn is_short_of_memory(&self) -> bool {
        false
    }

    /// What is suspicious about the rules of a configuration, as far as `scope` goes.
    fn remarks(&self, _snapshot: &Snapshot, _scope: Scope) -> Vec<Remark> {
        Vec::new()
    }

    /// Every server of every hostgroup as it is used now; those that serve no more and still have connections are
    /// OFFLINE_HARD.
    fn placements(&self) -> Vec<Placement>;

    /// How a statement would be routed.
    fn explain_route(&self, question: &RouteQuestion) -> Result<Vec<RouteStep>, String>;

    /// Settings that hold for a user in a hostgroup: name, value, and where the value is from.
    fn effective_settings(&self, user: &str, hostgroup: u32) -> Result<Vec<[Value; 3]>, String>;

    /// Stops accepting clients; those that are connected stay. An error when it is so already.
    fn pause(&self) -> Result<(), String>;

    /// Accepts clients again. An error when it does already.
    fn resume(&self) -> Result<(), String>;

    /// Notes what happened on the admin port in the audit log, if there is one. Does not block.
    fn audit(&self, event: AdminEvent) {
        drop(event);
    }

    /// Ends a session; false when there is none with this id.
    fn kill_session(&self, id: u64) -> bool;

    /// Forgets on which server replicas with this `server_id` read by file and position: they may go on at another one. Returns how many
    /// there were.
    fn forget_replica(&self, server_id: u32) -> usize {
        let _ = server_id;
        0
    }

    /// Throws away or opens anew.
    fn flush(&self, what: Flush) -> Result<(), String>;

    /// Writes the keys of TLS sessions to this file of the data directory from now on; empty writes none. On an error nothing has
    /// changed.
    fn log_tls_keys(&self, file: &str) -> Result<(), String> {
        let _ = file;
        Ok(())
    }

    /// The next `limit` logged queries that are kept in memory, behind number `after` and in order, as rows of
    /// `stats_mysql_query_events`: the first column is the number.
    fn logged_queries(&self, after: u64, limit: usize) -> Vec<Vec<Value>> {
        let _ = (after, limit);
        Vec::new()
    }

    /// Logged queries up to this number were dumped: they leave the buffer, into `stats_mysql_query_events` if `into_table`. Answers
    /// how many.
    fn forget_logged_queries(&self, up_to: u64, into_table: bool) -> usize {
        let _ = (up_to, into_table);
        0
    }

    /// Reads the certificate files for clients anew.
    fn reload_tls(&self) -> Result<String, String>;
}
