//! A worker's own statistics: what it counts of statements, servers, errors, pins and prepared statements.
//!
//! Plain memory of one thread. A statement whose digest is known costs two lookups and a few adds, no lock and no
//! allocation. Readers ask the worker for copies, in slices (`collect`).

pub mod commands;
pub mod digest;
pub mod digest_table;
pub mod errors;
pub mod histogram;
pub mod prepared;
pub mod server_counts;
pub mod spread;

use crate::digest::{Digest, DigestRules, KnownDigests};
use crate::prepared::{Listed, PreparedList};
use crate::server_counts::{LatencyClass, ServerId, ServerTable};
use commands::CommandTable;
use digest_table::{Bounds, DigestTable, KeyParts, NO_HOSTGROUP, Sums};
use errors::{ErrorKey, ErrorTable};
use model::{HostgroupId, MysqlVariables, ServerKey};
use session_state::pins::{PinReason, PinSet};
use session_state::statement_key::StatementKey;
use sql::{Analysis, Facts, LexMode};
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;

/// The variables that say what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterRules {
    digests: bool,
    commands: bool,
    track_client: bool,
    /// Statements that take longer are slow, us.
    pub slow_us: u64,
    /// Whether warnings of statements are written to the log (`log_mysql_warnings_enabled`).
    pub logs_warnings: bool,
    /// Whether errors of statements are (`verbose_query_error`).
    pub logs_errors: bool,
    /// Whether time spent on backends is measured (`stats_time_backend_query`).
    pub times_backends: bool,
    /// Whether time spent on rules is (`stats_time_query_processor`).
    pub times_rules: bool,
    /// What of the query log is not decided by rules.
    pub logs_by_default: bool,
    digest: DigestRules,
    bounds: Bounds,
}

impl MeterRules {
    /// As the variables say. Each of `workers` tables, and the reader's, has its share of the memory.
    pub fn from_variables(vars: &MysqlVariables, workers: usize) -> Self {
        Self {
            digests: vars.query_digests,
            commands: vars.commands_stats,
            track_client: vars.query_digests_track_hostname,
            slow_us: vars.long_query_time.saturating_mul(1000),
            logs_warnings: vars.log_mysql_warnings_enabled,
            logs_errors: vars.verbose_query_error,
            times_backends: vars.stats_time_backend_query,
            times_rules: vars.stats_time_query_processor,
            logs_by_default: vars.eventslog_default_log == 1,
            digest: DigestRules::from_variables(vars),
            bounds: digest_bounds(vars, workers),
        }
    }
}

/// How much each worker's table of digests, and the reader's, may hold.
pub fn digest_bounds(vars: &MysqlVariables, workers: usize) -> Bounds {
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (keys, bytes) = (size(vars.query_digests_max_entries), size(vars.query_digests_memory_max_mb << 20) / (workers + 1));
    Bounds { keys, bytes, spreads: vars.query_digests_percentiles }
}

/// A statement that has ended.
pub struct Ended<'a> {
    /// What it is.
    pub analysis: &'a Analysis,
    /// Its text.
    pub sql: &'a [u8],
    /// How that is read.
    pub lex: LexMode,
    /// Where it was routed; None when the proxy answered itself.
    pub hostgroup: Option<HostgroupId>,
    /// Who answered it.
    pub server: Option<ServerId>,
    /// The session's schema; empty for none.
    pub schema: &'a [u8],
    /// The user.
    pub user: &'a str,
    /// The client.
    pub client: Option<IpAddr>,
    /// How long it took, numbers of rows, when it ended.
    pub sums: Sums,
}

/// See the module.
pub struct Meter {
    rules: Cell<MeterRules>,
    known: RefCell<KnownDigests>,
    /// Statistics by digest.
    pub digests: RefCell<DigestTable>,
    /// Statistics by command.
    pub commands: RefCell<CommandTable>,
    /// Statistics by server.
    pub servers: RefCell<ServerTable>,
    /// Errors of servers.
    pub errors: RefCell<ErrorTable>,
    /// Prepared statements.
    pub prepared: RefCell<PreparedList>,
    pins_began: [Cell<u64>; PinReason::ALL.len()],
}

impl Meter {
    /// A meter that has counted nothing.
    pub fn new(rules: MeterRules) -> Self {
        Self {
            rules: Cell::new(rules),
            known: RefCell::default(),
            digests: RefCell::new(DigestTable::new(rules.bounds)),
            commands: RefCell::default(),
            servers: RefCell::default(),
            errors: RefCell::default(),
            prepared: RefCell::default(),
            pins_began: Default::default(),
        }
    }

    /// What is counted.
    pub fn rules(&self) -> MeterRules {
        self.rules.get()
    }

    /// List limits that statements must be analysed with.
    pub fn grouping(&self) -> sql::Grouping {
        self.rules.get().digest.grouping()
    }

    /// The variables have changed.
    pub fn configure(&self, rules: MeterRules) {
        let old = self.rules.replace(rules);
        if old.digest != rules.digest {
            self.known.borrow_mut().clear();
            self.digests.borrow_mut().retire();
        }
        if old.bounds != rules.bounds {
            self.digests.borrow_mut().set_bounds(rules.bounds);
        }
    }

    /// A statement has ended.
    pub fn count(&self, ended: &Ended<'_>) {
        let rules = self.rules.get();
        let command = if rules.digests {
            self.count_digest(&rules, ended)
        } else {
            // Pins still name the statement that began them.
            self.digest(ended.analysis, ended.sql, ended.lex);
            commands::classify(ended.analysis.kind, ended.analysis.facts, ended.sql, ended.lex)
        };
        if rules.commands {
            self.commands.borrow_mut().count(command, ended.sums.sum_us);
        }
        if let Some(server) = ended.server {
            self.servers.borrow_mut().meter(server).count(LatencyClass::of(ended.analysis.kind), ended.sums.sum_us);
        }
    }

    fn count_digest(&self, rules: &MeterRules, ended: &Ended<'_>) -> commands::Command {
        let mut parts = KeyParts {
            hostgroup: ended.hostgroup.map_or(NO_HOSTGROUP, |h| i64::from(h.0)),
            schema: ended.schema,
            user: ended.user,
            client: ended.client.filter(|_| rules.track_client),
            statement: ended.analysis.digest,
        };
        let mut made = None;
        if rules.has_own_text(ended.analysis) {
            let digest = rules.digest.digest(ended.sql, ended.lex);
            parts.statement = digest.hash;
            made = Some(Arc::new(digest));
        }
        if let Some(command) = self.digests.borrow_mut().count(&parts, &ended.sums) {
            return command;
        }
        let command = commands::classify(ended.analysis.kind, ended.analysis.facts, ended.sql, ended.lex);
        let digest = made.unwrap_or_else(|| self.digest(ended.analysis, ended.sql, ended.lex));
        self.digests.borrow_mut().insert(&parts, digest, command, ended.sums);
        command
    }

    /// The digest of a statement; its text is made when it is first met.
    pub fn digest(&self, analysis: &Analysis, sql: &[u8], lex: LexMode) -> Arc<Digest> {
        let rules = self.rules.get();
        if rules.has_own_text(analysis) {
            return Arc::new(rules.digest.digest(sql, lex));
        }
        self.known.borrow_mut().get_or_make(analysis.digest, || rules.digest.digest(sql, lex))
    }

    /// How the digest of this statement is made, where it was not met and would be kept.
    pub fn lacks_digest(&self, analysis: &Analysis) -> Option<DigestRules> {
        let rules = self.rules.get();
        let is_met = rules.has_own_text(analysis) || self.known.borrow().get(analysis.digest).is_some();
        (!is_met).then_some(rules.digest)
    }

    /// Keeps a digest that was made elsewhere, unless digests are made by other rules by now.
    pub fn learn_digest(&self, analysis: &Analysis, made_by: DigestRules, digest: Digest) {
        if self.rules.get().digest == made_by {
            self.known.borrow_mut().get_or_make(analysis.digest, || digest);
        }
    }

    /// The digest that an analysis' key stands for, if it was met.
    pub fn known_digest(&self, key: u64) -> Option<Arc<Digest>> {
        self.known.borrow().get(key).cloned()
    }

    /// The entry of a prepared statement in the list.
    pub fn list_prepared(&self, user: &str, key: &Arc<StatementKey>, lex: LexMode, shape: (u16, u16)) -> Arc<Listed> {
        let digest = || Arc::new(self.rules.get().digest.digest(&key.text, lex));
        self.prepared.borrow_mut().list(user, key, digest, shape)
    }

    /// Counts an error that a server gave.
    pub fn count_error(&self, key: ErrorKey, client: Option<IpAddr>, text: &[u8], now_ms: u64) {
        self.errors.borrow_mut().count(key, client, text, now_ms);
    }

    /// Adds bytes sent to and received from a server.
    pub fn count_traffic(&self, server: ServerId, (sent, received): (u64, u64)) {
        let mut servers = self.servers.borrow_mut();
        let meter = servers.meter(server);
        meter.bytes_sent += sent;
        meter.bytes_received += received;
    }

    /// A session is pinned for reasons that did not hold before.
    pub fn pins_began(&self, new: PinSet) {
        for reason in new.iter() {
            if let Some(began) = self.pins_began.get(reason as usize) {
                began.set(began.get() + 1);
            }
        }
    }

    /// How many pins began, by reason.
    pub fn pins_begun(&self) -> [u64; PinReason::ALL.len()] {
        self.pins_began.each_ref().map(Cell::get)
    }

    /// Bytes that digests take, counted and known ones.
    pub fn digest_bytes(&self) -> usize {
        self.digests.borrow().bytes() + self.known.borrow().bytes()
    }
}

impl MeterRules {
    /// Comments are kept, and this statement has one: its key does not stand for its text.
    fn has_own_text(&self, analysis: &Analysis) -> bool {
        self.digest.keeps_comments() && analysis.facts.contains(Facts::COMMENT)
    }
}

/// The key of an error that `server` gave.
pub fn error_key(server: &ServerKey, user: &str, schema: &[u8], code: u16) -> ErrorKey {
    let ServerKey { hostgroup, host, port } = server;
    ErrorKey { hostgroup: hostgroup.0, host: Arc::clone(host), port: *port, user: user.into(), schema: schema.into(), code }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(set: impl Fn(&mut MysqlVariables)) -> Meter {
        let mut vars = MysqlVariables::default();
        set(&mut vars);
        Meter::new(MeterRules::from_variables(&vars, 1))
    }

    fn run(meter: &Meter, sql: &str, client: u8) {
        let analysis = sql::analyze_with(sql.as_bytes(), LexMode::default(), meter.grouping());
        meter.count(&Ended {
            analysis: &analysis,
            sql: sql.as_bytes(),
            lex: LexMode::default(),
            hostgroup: Some(HostgroupId(3)),
            server: Some((HostgroupId(3), 0)),
            schema: b"shop",
            user: "anna",
            client: Some(IpAddr::from([10, 0, 0, client])),
            sums: Sums::one(250, 0, 1, 7),
        });
    }

    fn rows(meter: &Meter) -> Vec<(String, String, u64)> {
        let (counted, end) = meter.digests.borrow_mut().take(0, 100);
        assert_eq!(end, None);
        let client = |ip: Option<IpAddr>| ip.map(|ip| ip.to_string()).unwrap_or_default();
        let row = |digest_table::Counted { key, sums, .. }| {
            (String::from_utf8_lossy(&key.digest.text).into_owned(), client(key.client), sums.count)
        };
        let mut rows: Vec<_> = counted.into_iter().map(row).collect();
        rows.sort();
        rows
    }

    #[test]
    fn literals_share_a_digest_and_hosts_are_told_apart_on_demand() {
        let plain = meter(|_| {});
        run(&plain, "SELECT 1", 1);
        run(&plain, "SELECT 2", 2);
        assert_eq!(rows(&plain), [("SELECT ?".to_owned(), String::new(), 2)]);
        let tracking = meter(|v| v.query_digests_track_hostname = true);
        run(&tracking, "SELECT 1", 1);
        run(&tracking, "SELECT 2", 2);
        assert_eq!(rows(&tracking).len(), 2);
        assert_eq!(rows(&tracking), [], "what was read is not read again");
    }

    #[test]
    fn comments_are_kept_where_asked_for() {
        let keeping = meter(|v| v.query_digests_keep_comment = true);
        run(&keeping, "SELECT /* a */ 1", 1);
        run(&keeping, "SELECT /* b */ 1", 1);
        assert_eq!(rows(&keeping).len(), 2);
        let dropping = meter(|_| {});
        run(&dropping, "SELECT /* a */ 1", 1);
        run(&dropping, "SELECT /* b */ 1", 1);
        assert_eq!(rows(&dropping).len(), 1);
    }

    #[test]
    fn new_rules_make_new_texts_and_lose_no_count() {
        let meter = meter(|_| {});
        run(&meter, "SELECT A1", 1);
        let vars = MysqlVariables { query_digests_lowercase: true, ..Default::default() };
        meter.configure(MeterRules::from_variables(&vars, 1));
        run(&meter, "SELECT A1", 1);
        let (old, next) = meter.digests.borrow_mut().take(0, 10);
        let (new, end) = meter.digests.borrow_mut().take(next.unwrap(), 10);
        let texts = [&*old[0].key.digest.text, &*new[0].key.digest.text];
        assert_eq!((texts, end), ([&b"SELECT A1"[..], b"select a1"], None));
    }

    #[test]
    fn switched_off_counts_neither_digests_nor_commands() {
        let off = meter(|v| (v.query_digests, v.commands_stats) = (false, false));
        run(&off, "SELECT 1", 1);
        assert_eq!(rows(&off), []);
        assert!(off.commands.borrow().rows().all(|(_, sums)| sums.count == 0));
        assert_eq!(off.servers.borrow_mut().meter((HostgroupId(3), 0)).queries, 1, "servers are counted in any case");
    }
}
