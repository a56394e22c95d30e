//! An operator at the admin port, and stand-ins for database servers that answer with their own name.

#![allow(dead_code)] // every test program uses a part of this

use std::sync::OnceLock;
use std::time::Duration;

use lab::client::{Reply, Status};
use lab::tidegate::Builder;
use lab::{Client, ConnectOptions, Flavor, LabError, Options, Server, Tidegate, wait};

/// Longest that anything may take on a machine that does other work too.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The table in which a server has its own name.
pub(crate) const WHO: &str = "SELECT name FROM who";

/// Three servers, named `a`, `b` and `c`; all tests of a program share them.
pub(crate) fn servers() -> &'static [Server; 3] {
    static SERVERS: OnceLock<[Server; 3]> = OnceLock::new();
    SERVERS.get_or_init(|| {
        ["a", "b", "c"].map(|name| {
            let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
            for sql in ["CREATE TABLE test.who (name VARCHAR(9))".to_owned(), format!("INSERT INTO test.who VALUES ('{name}')")] {
                server.sql(&sql).unwrap();
            }
            server
        })
    })
}

/// A server of this test's own.
pub(crate) fn new_server() -> Server {
    Server::start(Flavor::Mariadb, &Options::new()).unwrap()
}

/// Server `a` is hostgroup 0, that of the user `app`.
pub(crate) fn before_a() -> Builder {
    Tidegate::builder().backend(0, &servers()[0]).app_user().variable("threads", 2)
}

/// No server and no user.
pub(crate) fn alone() -> Builder {
    Tidegate::builder().variable("threads", 1)
}

/// A session at the admin port.
pub(crate) struct Operator(Client);

impl Operator {
    /// As `admin`. The port opens a moment after the one for applications.
    pub(crate) fn of(proxy: &Tidegate) -> Self {
        Self::login(proxy, "admin", "admin").unwrap()
    }

    pub(crate) fn login(proxy: &Tidegate, user: &str, password: &str) -> Result<Self, LabError> {
        let options = ConnectOptions::tcp(format!("127.0.0.1:{}", proxy.admin_port()), user, password);
        let connected = wait::until("the admin port", LIMIT, || match Client::connect(&options) {
            Err(LabError::Io { .. }) if proxy.exit_status().is_none() => None,
            outcome => Some(outcome),
        });
        connected?.map(Self)
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.0
    }

    pub(crate) fn ask(&mut self, sql: &str) -> Reply {
        self.0.query(sql).unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// Must be answered OK.
    #[track_caller]
    pub(crate) fn ok(&mut self, sql: &str) -> Status {
        match self.ask(sql).ok() {
            Ok(status) => status.clone(),
            Err(e) => panic!("{sql}: {e}"),
        }
    }

    #[track_caller]
    pub(crate) fn all(&mut self, statements: &[&str]) {
        for sql in statements {
            self.ok(sql);
        }
    }

    /// Rows as text, NULL as `NULL`, values separated by `|`.
    #[track_caller]
    pub(crate) fn rows(&mut self, sql: &str) -> Vec<String> {
        let table = self.ask(sql).table().unwrap_or_else(|e| panic!("{sql}: {e}"));
        table.into_iter().map(|row| row.into_iter().map(|v| v.unwrap_or("NULL".to_owned())).collect::<Vec<_>>().join("|")).collect()
    }

    /// The only row.
    #[track_caller]
    pub(crate) fn row(&mut self, sql: &str) -> String {
        let rows = self.rows(sql);
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows.into_iter().next().unwrap()
    }

    /// Must fail; the error's text.
    #[track_caller]
    pub(crate) fn refused(&mut self, sql: &str) -> String {
        match self.ask(sql).err() {
            Some(error) => error.message.clone(),
            None => panic!("{sql}: was not refused"),
        }
    }

    /// Waits until a query has this answer.
    #[track_caller]
    pub(crate) fn until(&mut self, sql: &str, wanted: &[&str]) {
        let mut last = Vec::new();
        let waited = wait::until(sql, LIMIT, || {
            last = self.rows(sql);
            (last == wanted).then_some(())
        });
        waited.unwrap_or_else(|e| panic!("{e}: {last:?} instead of {wanted:?}"));
    }
}

/// Runs a query that must succeed and gives its first field.
#[track_caller]
pub(crate) fn get(client: &mut Client, sql: &str) -> String {
    client.scalar(sql).unwrap_or_else(|e| panic!("{sql}: {e}")).unwrap_or_default()
}

/// The number of the error that a login or a statement ends with; 0 for none.
pub(crate) fn code<T>(outcome: &Result<T, LabError>) -> u16 {
    match outcome {
        Ok(_) => 0,
        Err(LabError::Server { code, .. }) => *code,
        Err(e) => panic!("{e}"),
    }
}

/// Waits until a server has this many connections of `app`.
pub(crate) fn wait_connections(server: &Server, wanted: u64) {
    let mut root = server.root().unwrap();
    let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app'";
    let mut last = String::new();
    let waited = wait::until("connections to a server", LIMIT, || {
        last = get(&mut root, sql);
        (last == wanted.to_string()).then_some(())
    });
    waited.unwrap_or_else(|e| panic!("{e}: {last} instead of {wanted}"));
}

/// Waits until the log has a line with this text.
#[track_caller]
pub(crate) fn wait_log(proxy: &Tidegate, text: &str) {
    wait::until(text, LIMIT, || proxy.log().contains(text).then_some(())).unwrap_or_else(|e| panic!("{e}\n{}", proxy.log()));
}

/// `INSERT` of a server into memory.
pub(crate) fn insert_server(hostgroup: u32, server: &Server) -> String {
    format!("INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES ({hostgroup}, '127.0.0.1', {})", server.port())
}
