//! A server and a proxy of a test's own, and what both say of themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::fault::sockets;
use lab::tidegate::Builder;
use lab::{Client, Flavor, LabError, Options, Server, Tidegate, wait};
use rustix::process::Signal;

/// Longest that anything may take on a machine that does other work too.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Worker threads of a proxy here, if the test does not say.
const THREADS: i64 = 2;

pub(crate) struct Bed {
    // Dropped first, so that it does not complain of a lost server.
    pub proxy: Tidegate,
    pub server: Server,
}

impl Bed {
    /// A proxy with at most so many backends on a new server.
    pub(crate) fn new(flavor: Flavor, backends: i64, more: impl FnOnce(Builder) -> Builder) -> Bed {
        Bed::with(Server::start(flavor, &Options::new()).unwrap(), backends, more)
    }

    pub(crate) fn mariadb(backends: i64, more: impl FnOnce(Builder) -> Builder) -> Bed {
        Bed::new(Flavor::Mariadb, backends, more)
    }

    pub(crate) fn with(server: Server, backends: i64, more: impl FnOnce(Builder) -> Builder) -> Bed {
        let proxy = proxy(server.port(), backends, more);
        Bed { proxy, server }
    }

    pub(crate) fn client(&self) -> Client {
        connect(&self.proxy)
    }

    /// Runs statements as root, past the proxy.
    pub(crate) fn root(&self, statements: &[&str]) {
        let mut root = self.server.root().unwrap();
        for sql in statements {
            root.run(sql).unwrap();
        }
    }

    /// A number that the server answers with, past the proxy.
    pub(crate) fn count(&self, sql: &str) -> u64 {
        self.server.scalar(sql).unwrap().unwrap().parse().unwrap()
    }

    /// Waits until the server answers `sql` with `wanted`.
    pub(crate) fn wait_count(&self, sql: &str, wanted: u64) {
        let mut root = self.server.root().unwrap();
        let mut last = String::new();
        let waited = wait::until(sql, LIMIT, || {
            last = root.scalar(sql).unwrap().unwrap_or_default();
            (last == wanted.to_string()).then_some(())
        });
        waited.unwrap_or_else(|e| panic!("{e}: {last} instead of {wanted}"));
    }

    /// Waits until the server has this many transactions open.
    pub(crate) fn wait_transactions(&self, wanted: u64) {
        let mut root = self.server.root().unwrap();
        let mut count = || root.scalar("SELECT COUNT(*) FROM information_schema.innodb_trx").unwrap().unwrap();
        let is_wanted = || (count() == wanted.to_string()).then_some(());
        wait::until_transactions(&format!("{wanted} transactions"), LIMIT, is_wanted).unwrap();
    }

    /// Connections of the proxy's users on the server.
    pub(crate) fn app_threads(&self) -> u64 {
        self.count(APP_THREADS)
    }

    /// The proxy's sockets to the server.
    pub(crate) fn backends(&self) -> usize {
        sockets::towards(self.server.port()).unwrap().len()
    }
}

pub(crate) const APP_THREADS: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'";
/// Statements that sleep, as the server sees them.
pub(crate) const SLEEPERS: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '%SLEEP(1%'";

pub(crate) fn proxy(port: u16, backends: i64, more: impl FnOnce(Builder) -> Builder) -> Tidegate {
    let builder = Tidegate::builder()
        .server_with(0, "127.0.0.1", port, &[("max_connections", backends.into())])
        // The sockets that tests count are the sessions' alone.
        .variable("monitor_enabled", false)
        .app_user()
        .variable("threads", THREADS);
    more(builder).start().unwrap()
}

pub(crate) fn connect(proxy: &Tidegate) -> Client {
    try_connect(proxy).unwrap()
}

pub(crate) fn try_connect(proxy: &Tidegate) -> Result<Client, LabError> {
    Client::connect(&proxy.options("app", "app-pass").database("test").timeout(LIMIT))
}

/// The sums over the workers' report on SIGUSR1: sessions and counters.
pub(crate) struct Report {
    pub sessions: u64,
    counters: BTreeMap<String, u64>,
}

impl Report {
    pub(crate) fn of(proxy: &Tidegate) -> Report {
        let threads = threads_of(proxy);
        let start = proxy.log().len() as u64;
        proxy.signal(Signal::USR1);
        let lines = wait::until("the report", LIMIT, || {
            let text = proxy.log_since(start).0;
            let lines: Vec<String> = text.lines().filter(|l| l.contains(" sessions, ") && l.ends_with(']')).map(str::to_owned).collect();
            (lines.len() >= threads).then_some(lines)
        });
        let mut report = Report { sessions: 0, counters: BTreeMap::new() };
        for line in lines.unwrap() {
            report.add(&line);
        }
        report
    }

    /// `... worker 0: 3 sessions, pinned by reason [...], counters [("clients", 3), ...]`
    fn add(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|w| *w == "sessions,").unwrap();
        self.sessions += words[at - 1].parse::<u64>().unwrap();
        let list = line.split("counters [").nth(1).unwrap();
        for pair in list.split("(\"").skip(1) {
            let (name, value) = pair.split_once("\", ").unwrap();
            let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
            *self.counters.entry(name.to_owned()).or_default() += digits.parse::<u64>().unwrap();
        }
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters[name]
    }
}

/// Worker threads, by the proxy's configuration.
fn threads_of(proxy: &Tidegate) -> usize {
    let text = std::fs::read_to_string(proxy.dir().join("proxysql.cnf")).unwrap();
    text.lines().find_map(|line| line.trim().strip_prefix("threads=")).unwrap().parse().unwrap()
}

/// Waits until the proxy has exactly so many sessions.
pub(crate) fn wait_sessions(proxy: &Tidegate, wanted: u64) {
    let mut last = 0;
    let waited = wait::until("sessions", LIMIT, || {
        last = Report::of(proxy).sessions;
        (last == wanted).then_some(())
    });
    waited.unwrap_or_else(|e| panic!("{e}: {last} instead of {wanted}"));
}

/// Waits until the proxy's log says this.
pub(crate) fn wait_log(proxy: &Tidegate, text: &str) {
    wait::until(&format!("'{text}' in the log"), LIMIT * 2, || proxy.log().contains(text).then_some(())).unwrap();
}

/// How a statement ended, as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    Done,
    Error(u16),
    /// The connection was closed.
    Closed,
}

/// Runs a statement; a timeout of the client is a hang, and fails the test.
pub(crate) fn attempt(client: &mut Client, sql: &str) -> Seen {
    match client.query(sql) {
        Ok(reply) => reply.err().map_or(Seen::Done, |e| Seen::Error(e.code)),
        Err(error) => seen(&error),
    }
}

pub(crate) fn seen(error: &LabError) -> Seen {
    match error {
        LabError::Server { code, .. } => Seen::Error(*code),
        LabError::Io { source, what } => {
            let hang = matches!(source.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            assert!(!hang, "no answer within {LIMIT:?}: {what}: {source}");
            Seen::Closed
        }
        other => panic!("{other}"),
    }
}
