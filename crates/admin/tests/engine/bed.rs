//! An engine over a data plane that records its orders.

use std::path::Path;
use std::sync::{Arc, Mutex};

use admin::{Bootstrap, EngineHandle, EngineOptions, Precedence, Process, Reply, Role, SessionInfo, Stop, bootstrap};
use model::control::{AdminEvent, DataPlane, Flush, RouteQuestion, RouteStep};
use model::fleet::{Layout, Placement, UnderWay};
use model::snapshot::{Server, ServerStatus};
use model::stats::{Metric, Reading, StatsColumn, StatsSchema, StatsSource, StatsTable, Value, stat};
use model::{Config, ConfigError, HostgroupId, ServerKey, Snapshot};
use tempfile::TempDir;

const NAMED_NUMBERS: &[StatsColumn] = &[stat("Variable_Name", "VARCHAR"), stat("Variable_Value", "VARCHAR")];
pub(crate) static GLOBAL: StatsTable =
    StatsTable { primary_key: &["Variable_Name"], ..empty(StatsSchema::Stats, "stats_mysql_global", NAMED_NUMBERS, false) };
pub(crate) static MEMORY: StatsTable = empty(StatsSchema::Stats, "stats_memory_metrics", NAMED_NUMBERS, false);

pub(crate) static POOL: StatsTable = StatsTable {
    schema: StatsSchema::Stats,
    name: "stats_mysql_connection_pool",
    columns: &[stat("hostgroup", "INT"), stat("srv_host", "VARCHAR"), stat("Queries", "INT")],
    primary_key: &[],
    has_reset: true,
    help: "",
};

/// A table that is described, with its rows elsewhere or none.
const fn empty(schema: StatsSchema, name: &'static str, columns: &'static [StatsColumn], has_reset: bool) -> StatsTable {
    StatsTable { schema, name, columns, primary_key: &[], has_reset, help: "" }
}

/// Tables without rows that commands name.
pub(crate) static EMPTY: [StatsTable; 3] = [
    empty(StatsSchema::Monitor, "mysql_server_ping_log", &[stat("hostname", "VARCHAR"), stat("port", "INT")], false),
    empty(StatsSchema::Stats, "stats_mysql_query_digest", &[stat("digest", "VARCHAR"), stat("count_star", "INTEGER")], true),
    empty(
        StatsSchema::Stats,
        "stats_mysql_processlist",
        &[
            stat("ThreadID", "INT"),
            stat("SessionID", "INTEGER"),
            stat("user", "VARCHAR"),
            stat("db", "VARCHAR"),
            stat("hostgroup", "INT"),
            stat("command", "VARCHAR"),
            stat("time_ms", "INT"),
            stat("info", "VARCHAR"),
            stat("pins", "VARCHAR"),
            stat("last_digest_text", "VARCHAR"),
        ],
        false,
    ),
];

/// The orders that the plane got, and its answers.
#[derive(Default)]
pub(crate) struct Plane {
    pub snapshot: Mutex<Arc<Snapshot>>,
    pub applied: Mutex<usize>,
    pub refusal: Mutex<Option<ConfigError>>,
    pub queries: Mutex<i64>,
    pub reads: Mutex<usize>,
    pub calls: Mutex<Vec<String>>,
    pub placements: Mutex<Option<Vec<Placement>>>,
    pub audits: Mutex<Vec<AdminEvent>>,
    /// Whole rows of digests, of which the table has the first columns.
    pub digests: Mutex<Vec<Vec<Value>>>,
    pub taken_digests: Mutex<Vec<Vec<Value>>>,
}

impl Plane {
    fn call(&self, what: impl Into<String>) {
        self.calls.lock().unwrap().push(what.into());
    }
}

impl StatsSource for Plane {
    fn tables(&self) -> Vec<&'static StatsTable> {
        [&GLOBAL, &MEMORY, &POOL].into_iter().chain(&EMPTY).collect()
    }

    fn rows(&self, table: &'static StatsTable, reading: Reading) -> Vec<Vec<Value>> {
        *self.reads.lock().unwrap() += 1;
        if table.name == GLOBAL.name {
            return vec![vec!["Questions".into(), "7".into()]];
        }
        if table.name == MEMORY.name {
            return vec![vec!["jemalloc_resident".into(), "2000000".into()], vec!["jemalloc_mapped".into(), "3000000".into()]];
        }
        if table.name == "stats_mysql_query_digest" {
            return self.digests.lock().unwrap().iter().map(|row| row.iter().take(table.columns.len()).cloned().collect()).collect();
        }
        if EMPTY.iter().any(|empty| empty.name == table.name) {
            return Vec::new();
        }
        let mut queries = self.queries.lock().unwrap();
        let rows = (0..100_i64).map(|n| vec![n.into(), format!("db{n}").into(), (*queries).into()]).collect();
        if reading == Reading::Reset {
            *queries = 0;
        }
        rows
    }

    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }
}

impl DataPlane for Plane {
    fn check(&self, _: &Snapshot) -> Result<(), Vec<ConfigError>> {
        match &*self.refusal.lock().unwrap() {
            Some(error) => Err(vec![error.clone()]),
            None => Ok(()),
        }
    }

    fn apply(&self, snapshot: Arc<Snapshot>) -> Result<Vec<String>, Vec<ConfigError>> {
        let is_restart = self.snapshot.lock().unwrap().vars.threads != snapshot.vars.threads;
        *self.snapshot.lock().unwrap() = snapshot;
        *self.applied.lock().unwrap() += 1;
        Ok(if is_restart { vec!["mysql-threads takes effect after a restart".to_owned()] } else { Vec::new() })
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.lock().unwrap().clone()
    }

    /// As configured, or as a test says.
    fn placements(&self) -> Vec<Placement> {
        let placed = self.placements.lock().unwrap().clone();
        placed.unwrap_or_else(|| Layout::as_configured(&self.snapshot()).hostgroups.into_values().flatten().collect())
    }

    fn explain_route(&self, question: &RouteQuestion) -> Result<Vec<RouteStep>, String> {
        Ok(vec![RouteStep { step: "asked".to_owned(), outcome: "seen".to_owned(), detail: format!("{question:?}") }])
    }

    fn effective_settings(&self, user: &str, hostgroup: u32) -> Result<Vec<[Value; 3]>, String> {
        Ok(vec![["multiplexing".into(), "true".into(), format!("{user}/{hostgroup}").into()]])
    }

    fn pause(&self) -> Result<(), String> {
        self.call("pause");
        Ok(())
    }

    fn resume(&self) -> Result<(), String> {
        Err("not paused".to_owned())
    }

    fn audit(&self, event: AdminEvent) {
        self.audits.lock().unwrap().push(event);
    }

    fn kill_session(&self, id: u64) -> bool {
        id == 5
    }

    fn forget_replica(&self, server_id: u32) -> usize {
        usize::from(server_id == 77)
    }

    fn take_digests(&self) -> Vec<Vec<Value>> {
        let rows = std::mem::take(&mut *self.digests.lock().unwrap());
        self.taken_digests.lock().unwrap().clone_from(&rows);
        rows
    }

    fn settle_digests(&self, are_saved: bool) {
        let taken = std::mem::take(&mut *self.taken_digests.lock().unwrap());
        if !are_saved {
            self.digests.lock().unwrap().extend(taken);
        }
    }

    fn flush(&self, what: Flush) -> Result<(), String> {
        self.call(format!("flush {what:?}"));
        Ok(())
    }

    fn reload_tls(&self) -> Result<String, String> {
        Ok("reloaded".to_owned())
    }
}

/// A process that only remembers.
#[derive(Default)]
pub(crate) struct Calls(pub Mutex<Vec<String>>);

impl Process for Calls {
    fn could_restart(&self, _: &Config) -> Result<(), String> {
        self.0.lock().unwrap().push("could_restart".to_owned());
        Ok(())
    }

    fn reopen_log(&self) {
        self.0.lock().unwrap().push("reopen_log".to_owned());
    }

    fn shutdown(&self, how: Stop) {
        self.0.lock().unwrap().push(format!("shutdown {how:?}"));
    }

    fn restart(&self) -> Result<(), String> {
        self.0.lock().unwrap().push("restart".to_owned());
        Ok(())
    }

    fn start(&self) -> Result<(), String> {
        Err("ProxySQL already started".to_owned())
    }

    fn stop(&self) -> Result<(), String> {
        self.0.lock().unwrap().push("stop".to_owned());
        Ok(())
    }
}

/// A running engine.
pub(crate) struct Bed {
    pub handle: EngineHandle,
    pub plane: Arc<Plane>,
    pub process: Arc<Calls>,
    pub notices: Vec<String>,
    pub datadir: Arc<TempDir>,
    pub(crate) runtime: tokio::runtime::Runtime,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub(crate) const FILE: &str = r#"
mysql_variables = { threads=2 }
mysql_servers = ( { hostgroup=1, address="db1", port=3306 }, { hostgroup=2, address="db2" } )
mysql_users = ( { username="app", password="secret", default_hostgroup=1 } )
"#;

pub(crate) fn options(datadir: &Path, file: &str, precedence: Precedence) -> EngineOptions {
    let path = datadir.join("proxysql.cnf");
    std::fs::write(&path, file).unwrap();
    let (config, _) = model::load(&path).unwrap();
    EngineOptions { datadir: datadir.to_owned(), config_file: Some(path), file: config, precedence, faults: None }
}

impl Bed {
    pub(crate) fn new() -> Self {
        let datadir = Arc::new(tempfile::tempdir().unwrap());
        Self::open(datadir, FILE, Precedence::Database)
    }

    pub(crate) fn open(datadir: Arc<TempDir>, file: &str, precedence: Precedence) -> Self {
        Self::start(bootstrap(options(datadir.path(), file, precedence)).unwrap(), datadir)
    }

    pub(crate) fn start(boot: Bootstrap, datadir: Arc<TempDir>) -> Self {
        let (plane, process) = (Arc::new(Plane::default()), Arc::new(Calls::default()));
        *plane.snapshot.lock().unwrap() = boot.snapshot.clone();
        *plane.queries.lock().unwrap() = 3;
        let notices = boot.notices.clone();
        let (handle, thread) = boot.start(plane.clone(), Vec::new(), process.clone()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { handle, plane, process, notices, datadir, runtime, thread: Some(thread) }
    }

    /// Stops the engine, as a crash would: nothing is saved. Answers the directory.
    pub(crate) fn stop(mut self) -> Arc<TempDir> {
        let thread = self.thread.take();
        let datadir = self.datadir.clone();
        drop(self);
        thread.unwrap().join().unwrap();
        datadir
    }

    pub(crate) fn reply(&self, who: Role, sql: &str) -> Reply {
        let session = SessionInfo { user: "admin".to_owned(), peer: "127.0.0.1".to_owned(), connection_id: 9, ..SessionInfo::default() };
        self.runtime.block_on(self.handle.execute(who, &session, sql.as_bytes().to_vec()))
    }

    /// Rows as text, NULL as `NULL`, values separated by `|`.
    #[track_caller]
    pub(crate) fn rows(&self, sql: &str) -> Vec<String> {
        self.rows_as(Role::Admin, sql)
    }

    #[track_caller]
    pub(crate) fn rows_as(&self, who: Role, sql: &str) -> Vec<String> {
        match self.reply(who, sql) {
            Reply::Rows { rows, .. } => rows.iter().map(|row| row.iter().map(shown).collect::<Vec<_>>().join("|")).collect(),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn columns(&self, sql: &str) -> Vec<String> {
        match self.reply(Role::Admin, sql) {
            Reply::Rows { columns, .. } => columns,
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// The info text of an OK.
    #[track_caller]
    pub(crate) fn ok(&self, sql: &str) -> String {
        match self.reply(Role::Admin, sql) {
            Reply::Ok { info, .. } => info,
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// The text of an error.
    #[track_caller]
    pub(crate) fn refused(&self, sql: &str) -> String {
        self.refused_as(Role::Admin, sql)
    }

    #[track_caller]
    pub(crate) fn refused_as(&self, who: Role, sql: &str) -> String {
        match self.reply(who, sql) {
            Reply::Err { code: 1045, sqlstate: "28000", text } => text,
            other => panic!("{sql}: {other:?}"),
        }
    }

    pub(crate) fn runtime(&self) -> Arc<Config> {
        self.handle.runtime().borrow().clone()
    }

    pub(crate) fn applied(&self) -> usize {
        *self.plane.applied.lock().unwrap()
    }
}

fn shown(value: &Option<Vec<u8>>) -> String {
    value.as_ref().map_or("NULL".to_owned(), |value| String::from_utf8_lossy(value).into_owned())
}

impl Plane {
    /// A server that is in force, in a hostgroup and a status that were observed.
    pub(crate) fn placed(&self, host: &str, hostgroup: u32, status: ServerStatus) -> Placement {
        let snapshot = self.snapshot();
        let known = snapshot.hostgroups.values().flat_map(|h| &h.servers).find(|s| &*s.key.host == host).unwrap();
        let key = ServerKey { hostgroup: HostgroupId(hostgroup), ..known.key.clone() };
        let server = Arc::new(Server { key, ..Server::clone(known) });
        Placement { server, status, under_way: UnderWay::MayFinish, why: "observed".into() }
    }
}
