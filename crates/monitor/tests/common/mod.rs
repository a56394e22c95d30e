//! Shared by the tests: a data plane that only records its orders, and configurations.

#![allow(dead_code)]

pub(crate) mod healing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lab::server::Server;
use model::fleet::{Bound, Fleet, HostgroupLoad, Layout, Measured, RoleKeeper};
use model::snapshot::{ServerStatus, Snapshot};
use model::stats::{Reading, StatsSource, Value};
use model::{HostgroupId, ServerAddr};
use monitor::{Monitor, MonitorThread};

/// Writers of the tests' cluster.
pub(crate) const WRITERS: HostgroupId = HostgroupId(10);
/// Its readers.
pub(crate) const READERS: HostgroupId = HostgroupId(20);
/// The nodes of a Galera cluster that may become its writer.
pub(crate) const BACKUP_WRITERS: HostgroupId = HostgroupId(11);
/// For what happens within milliseconds on a machine with nothing else to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A row of a table, each value as text.
pub(crate) type Row = BTreeMap<&'static str, String>;

/// The orders that the data plane got.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub layout: Layout,
    /// When each layout came, with the writers in it.
    pub writers: Vec<(Instant, Vec<ServerAddr>)>,
    pub measured: BTreeMap<ServerAddr, Measured>,
    pub held: BTreeSet<HostgroupId>,
    /// Every hold and release, in order.
    pub holds: Vec<(HostgroupId, bool)>,
    /// The load that it reports.
    pub load: HostgroupLoad,
    pub bound: Vec<Bound>,
    pub in_use: u32,
    pub received: u64,
    /// GTIDs for which clients got OK.
    pub acknowledged: Vec<String>,
}

/// Done when a server was looked at, on the monitor's thread.
type OnLook = Box<dyn FnMut(&ServerAddr) + Send>;

/// See the module.
#[derive(Default)]
pub(crate) struct Plane {
    told: Mutex<Told>,
    changed: Condvar,
    on_look: Mutex<Option<OnLook>>,
    on_release: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Plane {
    /// Has something done whenever a server was looked at.
    pub(crate) fn on_look(&self, act: impl FnMut(&ServerAddr) + Send + 'static) {
        *self.on_look.lock().unwrap() = Some(Box::new(act));
    }

    /// Has something done when the next hold ends, before anything else is.
    pub(crate) fn on_release(&self, act: impl FnOnce() + Send + 'static) {
        *self.on_release.lock().unwrap() = Some(Box::new(act));
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.told.lock().unwrap());
        self.changed.notify_all();
    }

    /// Waits until the recorded orders satisfy `is_so`. Returns the time.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&Told) -> bool) -> Instant {
        self.wait_within(what, LIMIT, is_so)
    }

    pub(crate) fn wait_within(&self, what: &str, limit: Duration, is_so: impl Fn(&Told) -> bool) -> Instant {
        let told = self.told.lock().unwrap();
        let (told, timeout) = self.changed.wait_timeout_while(told, limit, |told| !is_so(told)).unwrap();
        if timeout.timed_out() {
            let seen = format!("{told:#?}");
            drop(told);
            panic!("waited in vain: {what}; {seen}");
        }
        Instant::now()
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&Told) -> R) -> R {
        look(&self.told.lock().unwrap())
    }
}

impl Fleet for Plane {
    fn arrange(&self, layout: Layout) {
        self.change(|told| {
            if layout.revision > told.layout.revision {
                told.writers.push((Instant::now(), online(&layout, WRITERS)));
                told.layout = layout;
            }
        });
    }

    fn measured(&self, server: &ServerAddr, measured: Measured) {
        self.change(|told| {
            told.measured.insert(server.clone(), measured);
        });
    }

    fn looked_at(&self, server: &ServerAddr) {
        // The mutex must be free: the hook may call the data plane again.
        let act = self.on_look.lock().unwrap().take();
        if let Some(mut act) = act {
            act(server);
            *self.on_look.lock().unwrap() = Some(act);
        }
    }

    fn moved(&self, _host: &str, _gone: &[std::net::IpAddr]) {}

    fn hold(&self, hostgroup: HostgroupId, is_held: bool) {
        if !is_held && let Some(act) = self.on_release.lock().unwrap().take() {
            act();
        }
        self.change(|told| {
            told.holds.push((hostgroup, is_held));
            if is_held {
                told.held.insert(hostgroup)
            } else {
                told.held.remove(&hostgroup)
            };
        });
    }

    fn load(&self, _hostgroup: HostgroupId) -> HostgroupLoad {
        self.look(|told| told.load)
    }

    fn bound(&self, _hostgroup: HostgroupId) -> Vec<Bound> {
        self.look(|told| told.bound.clone())
    }

    fn in_use(&self, _server: &ServerAddr, _hostgroup: Option<HostgroupId>) -> u32 {
        self.look(|told| told.in_use)
    }

    fn received(&self, _server: &ServerAddr) -> Option<u64> {
        self.look(|told| Some(told.received))
    }

    fn acknowledged(&self, gtids: &[String]) -> Vec<bool> {
        self.look(|told| gtids.iter().map(|gtid| told.acknowledged.contains(gtid)).collect())
    }

    fn acknowledged_lately(&self) -> Vec<String> {
        self.look(|told| told.acknowledged.clone())
    }
}

/// Servers of a hostgroup that are used.
pub(crate) fn online(layout: &Layout, hostgroup: HostgroupId) -> Vec<ServerAddr> {
    let placements = layout.hostgroups.get(&hostgroup).map(Vec::as_slice).unwrap_or_default();
    placements.iter().filter(|p| p.status == ServerStatus::Online).map(|p| p.server.key.addr()).collect()
}

pub(crate) fn addr(server: &Server) -> ServerAddr {
    ServerAddr { host: server.host().into(), port: server.port() }
}

pub(crate) fn snapshot(text: &str) -> Arc<Snapshot> {
    let (config, _) = model::parse(text, "test.cnf").unwrap();
    Arc::new(Snapshot::compile(&config).unwrap())
}

/// Replication hostgroups with these servers as readers; `variables` such as `monitor_ping_interval=1000`.
pub(crate) fn replication<'a>(servers: impl IntoIterator<Item = &'a Server>, variables: &str, columns: &str) -> Arc<Snapshot> {
    let rows =
        servers.into_iter().map(|server| format!("{{ address=\"{}\", port={}, hostgroup=20{columns} }}", server.host(), server.port()));
    snapshot(&format!(
        "mysql_variables = {{ {variables} }}\n\
         mysql_servers = ( {} )\n\
         mysql_replication_hostgroups = ( {{ writer_hostgroup=10, reader_hostgroup=20 }} )",
        rows.collect::<Vec<_>>().join(", ")
    ))
}

/// A monitor that runs.
pub(crate) struct Running {
    pub monitor: Arc<Monitor>,
    pub plane: Arc<Plane>,
    thread: Option<MonitorThread>,
}

impl Running {
    pub(crate) fn start(snapshot: &Arc<Snapshot>) -> Self {
        Self::begin(snapshot, Monitor::new())
    }

    /// The same with what an earlier process left in this directory.
    pub(crate) fn start_in(snapshot: &Arc<Snapshot>, datadir: &std::path::Path) -> Self {
        let monitor = Monitor::new();
        monitor.keep_in(datadir, true);
        Self::begin(snapshot, monitor)
    }

    fn begin(snapshot: &Arc<Snapshot>, monitor: Arc<Monitor>) -> Self {
        let plane = Arc::new(Plane::default());
        let layout = monitor.configure(snapshot);
        plane.arrange(layout);
        let thread = monitor.start(plane.clone()).unwrap();
        Self { monitor, plane, thread: Some(thread) }
    }

    /// Waits until this server, and no other, writes.
    pub(crate) fn wait_writer(&self, server: &Server) -> Instant {
        let wanted = addr(server);
        self.plane.wait("the writer", |told| online(&told.layout, WRITERS) == [wanted.clone()])
    }

    /// Puts another configuration in force.
    pub(crate) fn configure(&self, snapshot: &Arc<Snapshot>) {
        self.plane.arrange(self.monitor.configure(snapshot));
    }

    pub(crate) fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.stop();
        }
    }

    /// Waits until a table has a row that is as it should be.
    pub(crate) fn wait_row(&self, table: &str, is_so: impl Fn(&Row) -> bool) {
        let found = lab::wait::until(table, LIMIT, || self.table(table).iter().any(&is_so).then_some(()));
        assert!(found.is_ok(), "no such row: {:#?}", self.table(table));
    }

    /// The rows of a table, each as text.
    pub(crate) fn table(&self, name: &str) -> Vec<Row> {
        let table = self.monitor.tables().into_iter().find(|table| table.name == name).unwrap();
        let text = |value: Value| match value {
            Value::Null => "NULL".to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Text(text) => text,
        };
        let rows = self.monitor.rows(table, Reading::Keep);
        rows.into_iter().map(|row| table.columns.iter().map(|c| c.name).zip(row.into_iter().map(text)).collect()).collect()
    }
}
