//! The operator's interface to the data plane. The admin interface knows the data plane by this trait alone.

use std::sync::Arc;

use crate::error::ConfigError;
use crate::fleet::{Placement, ShadowOrder, ShadowState};
use crate::ids::HostgroupId;
use crate::remark::{Remark, Scope};
use crate::snapshot::Snapshot;
use crate::stats::{StatsSource, Value};

/// Caches that can be cleared, and logs that can be reopened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Every cached result.
    QueryCache,
    /// Query, audit and error log, and the log of TLS keys: their files are reopened.
    Logs,
    /// Addresses that failed to log in.
    ClientHosts,
}

/// A question to the router: `EXPLAIN ROUTE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteQuestion {
    /// It is routed, not executed.
    pub sql: String,
    /// The user that sends it; None is the first user.
    pub user: Option<String>,
    /// For rules with a schema.
    pub schema: Option<String>,
    /// For rules with a client address.
    pub client_addr: Option<String>,
    /// The listener that the client connects to, as it is configured; the first one if none is named.
    pub listener: Option<String>,
}

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteStep {
    /// The subject: `digest`, `rule 7`, `default_hostgroup`, `server 10/db1:3306`, ...
    pub step: String,
    /// The result: `matched`, `no match`, `candidate`, ...
    pub outcome: String,
    /// The reason, in words.
    pub detail: String,
}

/// What an operator orders about a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RehearsalOrder {
    /// START REHEARSAL: for as many seconds, or until it is stopped.
    Start {
        /// The row's name.
        name: String,
        /// FOR s SECONDS.
        seconds: Option<u64>,
    },
    /// STOP REHEARSAL.
    Stop {
        /// The row's name.
        name: String,
    },
}

/// What became of an order about a rehearsal.
#[derive(Debug)]
pub enum Rehearsed {
    /// It was carried out; what was done.
    Done(String),
    /// The order depends on whether the shadow replicates ([`crate::fleet::Operator::shadow_state`]).
    Look(ShadowLook),
    /// The shadow must leave replication first ([`crate::fleet::Operator::detach_shadow`]); the rest of the order is in it.
    Detach(ShadowOrder),
}

/// A rehearsal is to begin, and goes on when it is known whether its shadow replicates.
pub struct ShadowLook {
    /// The hostgroup of the shadow.
    pub shadow: HostgroupId,
    /// Goes on with the order.
    pub then: Box<dyn FnOnce(ShadowState) -> Result<Rehearsed, String> + Send>,
}

impl std::fmt::Debug for ShadowLook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShadowLook").field("shadow", &self.shadow).finish_non_exhaustive()
    }
}

/// What an operator orders about a capture.
#[derive(Debug, Clone, PartialEq)]
pub enum CaptureOrder {
    /// CAPTURE START.
    Start(CaptureStart),
    /// CAPTURE STOP.
    Stop {
        /// The capture's name.
        name: String,
    },
}

/// CAPTURE START: what is captured, and its limits.
#[derive(Debug, Clone, PartialEq)]
pub struct CaptureStart {
    /// The capture's name, of which files have theirs: 1 to 64 letters, digits, `_`, `-` and `.`, not a dot first.
    pub name: String,
    /// FOR s SECONDS.
    pub seconds: u64,
    /// MAX m MB.
    pub max_mb: u64,
    /// PERCENT p of the sessions, above 0.
    pub percent: f64,
    /// USERS 'a,b'; empty: all.
    pub users: Vec<String>,
    /// TO PUBLIC KEY 'file', relative to the data directory; None: PLAIN.
    pub public_key: Option<String>,
}

/// An event of a session of the admin port, for the audit log.
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
    /// The event's kind.
    pub action: AdminAction,
    /// The session's number on the admin port.
    pub session_id: u64,
    /// The user that logged in or tried to; empty if no name was sent.
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

    /// Remarks on a configuration's rules, as far as `scope` goes.
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

    /// Starts or stops a rehearsal (`mysql_rehearsals`); answers what was done. Takes as long as logins to both servers.
    ///
    /// # Errors
    /// Why it cannot be started or stopped.
    fn rehearse(&self, order: &RehearsalOrder) -> Result<Rehearsed, String> {
        let _ = order;
        Err("this data plane has no rehearsals".to_owned())
    }

    /// The page of SHOW REHEARSAL, line by line: what a line is about, and its text.
    ///
    /// # Errors
    /// The rehearsal was never started.
    fn rehearsal_page(&self, name: &str) -> Result<Vec<(&'static str, String)>, String> {
        Err(format!("rehearsal '{name}' was never started"))
    }

    /// Starts or stops a capture; answers what was done. Creates and writes a file.
    ///
    /// # Errors
    /// Why it cannot be started or stopped.
    fn capture(&self, order: &CaptureOrder) -> Result<String, String> {
        let _ = order;
        Err("this data plane has no captures".to_owned())
    }

    /// Ends a session; false when there is none with this id.
    fn kill_session(&self, id: u64) -> bool;

    /// Forgets the server from which replicas with this `server_id` read by file and position, so that they may continue at another one.
    /// Returns the number of forgotten entries.
    fn forget_replica(&self, server_id: u32) -> usize {
        let _ = server_id;
        0
    }

    /// Clears a cache or reopens the logs.
    fn flush(&self, what: Flush) -> Result<(), String>;

    /// Writes the keys of TLS sessions to this file of the data directory from now on; empty writes none. On an error nothing has
    /// changed.
    fn log_tls_keys(&self, file: &str) -> Result<(), String> {
        let _ = file;
        Ok(())
    }

    /// All digests, as rows of `stats_mysql_query_digest`. They leave the statistics, and are kept aside until [`Self::settle_digests`].
    fn take_digests(&self) -> Vec<Vec<Value>> {
        Vec::new()
    }

    /// The digests of [`Self::take_digests`] are saved and can go, or count again. Does nothing if none were taken.
    fn settle_digests(&self, are_saved: bool) {
        let _ = are_saved;
    }

    /// Up to `limit` logged queries behind number `after`, in order, as rows of `stats_mysql_query_events`. The first column is the number.
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

    /// Reads the certificate files for clients again. Returns a text for the operator.
    fn reload_tls(&self) -> Result<String, String>;
}
