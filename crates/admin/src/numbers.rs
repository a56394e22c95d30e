//! The engine's own counters: lines of `stats_mysql_global` and `stats_memory_metrics`, and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::attempts::Attempts;
use model::stats::{Metric, MetricKind, Reading, Sample, StatsSource, StatsTable, Value};

/// Lines of other sources' `stats_mysql_global` that are metrics of ProxySQL's too.
const LISTED: &[(&str, &str, MetricKind, &str)] = &[
    ("MySQL_Monitor_Workers", "proxysql_mysql_monitor_workers", MetricKind::Gauge, "Threads of the monitor"),
    ("MySQL_Monitor_Workers_Aux", "proxysql_mysql_monitor_workers_aux", MetricKind::Gauge, "Always 0: the monitor has no such threads"),
    (
        "MySQL_Monitor_Workers_Started",
        "proxysql_mysql_monitor_workers_started_total",
        MetricKind::Counter,
        "Always 0: the monitor has no such threads",
    ),
];

/// See the module. One a process.
pub(crate) struct Numbers {
    sources: Vec<Arc<dyn StatsSource>>,
    version: String,
    memory_bytes: AtomicU64,
    servers_version: AtomicU64,
    secret_files: AtomicUsize,
    unreadable: AtomicUsize,
    /// Logins to the admin port and to the web page.
    pub attempts: Arc<Attempts>,
}

impl Numbers {
    pub(crate) fn new(sources: Vec<Arc<dyn StatsSource>>, version: String) -> Self {
        Self {
            sources,
            version,
            memory_bytes: AtomicU64::new(0),
            servers_version: AtomicU64::new(0),
            secret_files: AtomicUsize::new(0),
            unreadable: AtomicUsize::new(0),
            attempts: Arc::default(),
        }
    }

    /// How much memory the databases take, bytes, and how often servers were loaded.
    pub(crate) fn note(&self, memory_bytes: u64, servers_version: u64) {
        self.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        self.servers_version.store(servers_version, Ordering::Relaxed);
    }

    /// How many files with secrets are named, and how many of them cannot be read.
    pub(crate) fn note_secrets(&self, (count, unreadable): (usize, usize)) {
        self.secret_files.store(count, Ordering::Relaxed);
        self.unreadable.store(unreadable, Ordering::Relaxed);
    }

    /// Its lines for the table of this name.
    pub(crate) fn lines(&self, table: &str) -> Vec<Vec<Value>> {
        let line = |name: &str, number: &AtomicU64| vec![name.into(), number.load(Ordering::Relaxed).to_string().into()];
        let memory = || line("SQLite3_memory_bytes", &self.memory_bytes);
        match table {
            "stats_mysql_global" => vec![memory(), line("Servers_table_version", &self.servers_version)],
            "stats_memory_metrics" => vec![memory()],
            _ => Vec::new(),
        }
    }

    fn listed(&self) -> Vec<Metric> {
        let tables = self.sources.iter().filter_map(|source| {
            let table = source.tables().into_iter().find(|table| table.name == "stats_mysql_global")?;
            Some(source.rows(table, Reading::Keep))
        });
        let lines: Vec<Vec<Value>> = tables.flatten().collect();
        let value = |name: &str| {
            let is_it = |line: &&Vec<Value>| line.first() == Some(&Value::from(name));
            match lines.iter().find(is_it)?.get(1)? {
                Value::Text(text) => text.parse::<u32>().ok(),
                _ => None,
            }
        };
        let metric = |(line, name, kind, help): &(&str, &'static str, MetricKind, &'static str)| {
            Some(single(name, *kind, help, Vec::new(), f64::from(value(line)?)))
        };
        LISTED.iter().filter_map(metric).collect()
    }
}

fn single(name: &'static str, kind: MetricKind, help: &'static str, labels: Vec<(&'static str, String)>, value: f64) -> Metric {
    Metric { name, help, kind, samples: vec![Sample { suffix: "", labels, value }] }
}

impl StatsSource for Numbers {
    /// None of its own: see [`Numbers::lines`].
    fn tables(&self) -> Vec<&'static StatsTable> {
        Vec::new()
    }

    fn rows(&self, _: &'static StatsTable, _: Reading) -> Vec<Vec<Value>> {
        Vec::new()
    }

    fn metrics(&self) -> Vec<Metric> {
        let number = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        let version = vec![("version", self.version.clone()), ("version_comment", "Tidegate".to_owned())];
        let mut metrics = vec![
            single("proxysql_version_info", MetricKind::Gauge, "The version, always 1", version, 1.0),
            single(
                "proxysql_sqlite3_memory_bytes",
                MetricKind::Gauge,
                "Memory of the admin interface's databases",
                Vec::new(),
                number(&self.memory_bytes),
            ),
            single(
                "proxysql_servers_table_version_total",
                MetricKind::Counter,
                "Loads of the servers' configuration",
                Vec::new(),
                number(&self.servers_version),
            ),
        ];
        for (name, help, number) in [
            ("tidegate_secret_files", "Files that passwords are read from", &self.secret_files),
            (
                "tidegate_secret_files_unreadable",
                "Password files that cannot be read now. Their previous content stays in force",
                &self.unreadable,
            ),
        ] {
            metrics.push(single(name, MetricKind::Gauge, help, Vec::new(), number.load(Ordering::Relaxed) as f64));
        }
        let (failed, refused) = self.attempts.counts();
        for (name, help, number) in [
            ("tidegate_admin_logins_failed_total", "Admin logins (port and web page) with a wrong name or password", failed),
            (
                "tidegate_admin_logins_refused_total",
                "Admin logins refused without a check: too many failed or waited (admin-login_failures)",
                refused,
            ),
        ] {
            metrics.push(single(name, MetricKind::Counter, help, Vec::new(), number as f64));
        }
        metrics.extend(self.listed());
        metrics
    }
}
