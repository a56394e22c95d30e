//! Shared parts of the end-to-end tests: servers, a world to run a test body in, and clients that speak either protocol.
//!
//! A body runs four times a flavor: directly on the server, which shows that the test is right, and through the proxy, which shows that the
//! proxy is. Each run is made in the text and in the binary protocol. `LAB_DIRECT_ONLY=1` leaves the proxy out.

#![allow(dead_code)] // every test program uses a part of this
#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

pub(crate) mod healing;
pub(crate) mod pipelining;

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lab::client::{Encoding, Reply, ServerError};
use lab::tidegate::Builder;
use lab::{Client, ConnectOptions, Flavor, LabError, Options, Server, Tidegate};

/// Longest that anything in a test may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(15);

/// One server a flavor for all tests of a program; it dies with the process.
pub(crate) fn server(flavor: Flavor) -> &'static Server {
    static MARIADB: OnceLock<Server> = OnceLock::new();
    static MYSQL: OnceLock<Server> = OnceLock::new();
    let cell = match flavor {
        Flavor::Mariadb => &MARIADB,
        Flavor::Mysql => &MYSQL,
    };
    cell.get_or_init(|| {
        let server = Server::start(flavor, &Options::new().tls()).unwrap();
        server.sql("SET GLOBAL max_allowed_packet=134217728").unwrap();
        server
    })
}

/// A proxy before the server, with this many backends at most.
pub(crate) fn proxy_with(server: &Server, backends: i64, more: impl FnOnce(Builder) -> Builder) -> Tidegate {
    let builder = Tidegate::builder()
        .server_with(0, server.host(), server.port(), &[("max_connections", backends.into())])
        .app_user()
        .variable("threads", 2);
    more(builder).start().unwrap()
}

/// The server or proxy, and the protocol, with which a test body runs.
pub(crate) struct World {
    /// The database server.
    pub server: &'static Server,
    /// The proxy, unless the body runs against the server itself.
    pub proxy: Option<Tidegate>,
    /// How SQL is sent.
    pub encoding: Encoding,
    /// A schema of this world's own.
    pub schema: String,
}

impl World {
    /// A world on the server itself.
    pub(crate) fn direct(flavor: Flavor) -> World {
        World::new(flavor, None)
    }

    /// A world behind a proxy with so many backends at most.
    pub(crate) fn proxied(flavor: Flavor, backends: i64, more: impl FnOnce(Builder) -> Builder) -> World {
        World::new(flavor, Some(proxy_with(server(flavor), backends, more)))
    }

    fn new(flavor: Flavor, proxy: Option<Tidegate>) -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let schema = format!("test_e{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut root = server(flavor).root().unwrap();
        root.run(format!("CREATE DATABASE {schema} CHARACTER SET utf8mb4")).unwrap();
        World { server: server(flavor), proxy, encoding: Encoding::Text, schema }
    }

    pub(crate) fn flavor(&self) -> Flavor {
        self.server.flavor()
    }

    pub(crate) fn is_mysql(&self) -> bool {
        self.flavor() == Flavor::Mysql
    }

    /// Options of `app` in the world's schema.
    pub(crate) fn options(&self) -> ConnectOptions {
        self.options_for("app", "app-pass").database(&self.schema)
    }

    /// Options of any user, without a schema.
    pub(crate) fn options_for(&self, user: &str, password: &str) -> ConnectOptions {
        let address = self.proxy.as_ref().map_or(self.server.address(), Tidegate::address);
        ConnectOptions::tcp(address, user, password).timeout(LIMIT)
    }

    /// A new session of `app`.
    pub(crate) fn connect(&self) -> Peer {
        self.connect_with(&self.options())
    }

    /// A new session with these options.
    pub(crate) fn connect_with(&self, options: &ConnectOptions) -> Peer {
        Peer { client: Client::connect(options).unwrap(), encoding: self.encoding }
    }

    /// Two sessions. They share the one backend when the world is proxied with one.
    pub(crate) fn pair(&self) -> (Peer, Peer) {
        (self.connect(), self.connect())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Ok(mut root) = self.server.root() {
            let _ = root.query("SET SESSION lock_wait_timeout=1");
            let _ = root.query(format!("DROP DATABASE IF EXISTS {}", self.schema));
        }
    }
}

/// A client that sends SQL in the world's encoding.
pub(crate) struct Peer {
    client: Client,
    pub encoding: Encoding,
}

impl Deref for Peer {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Peer {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Peer {
    /// A session of `app` through this proxy.
    pub(crate) fn through(proxy: &Tidegate, encoding: Encoding) -> Peer {
        Peer::with(&proxy.options("app", "app-pass").database("test").timeout(LIMIT), encoding)
    }

    /// A session with these options.
    pub(crate) fn with(options: &ConnectOptions, encoding: Encoding) -> Peer {
        Peer { client: Client::connect(options).unwrap(), encoding }
    }

    /// Runs SQL as text, or prepares, executes and closes it; a statement that a server cannot prepare (error 1295) goes as text.
    pub(crate) fn ask(&mut self, sql: &str) -> Reply {
        self.try_ask(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn try_ask(&mut self, sql: &str) -> Result<Reply, LabError> {
        if self.encoding == Encoding::Text {
            return self.client.query(sql);
        }
        match self.client.prepare(sql) {
            Ok(statement) => {
                let reply = self.client.execute(&statement, &[]);
                self.client.close_statement(&statement)?;
                reply
            }
            Err(LabError::Server { code: 1295, .. }) => self.client.query(sql),
            Err(LabError::Server { code, sqlstate, message }) => {
                let error = ServerError { raw: Vec::new(), code, sqlstate, message };
                Ok(Reply { results: vec![lab::client::Outcome::Err(error)] })
            }
            Err(error) => Err(error),
        }
    }

    /// Must succeed.
    pub(crate) fn exec(&mut self, sql: &str) -> Reply {
        let reply = self.ask(sql);
        assert!(reply.err().is_none(), "{sql}: {:?}", reply.err());
        reply
    }

    /// Must succeed, as text: what some server cannot prepare.
    pub(crate) fn exec_text(&mut self, sql: &str) {
        self.client.run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// All of these must succeed.
    pub(crate) fn exec_all(&mut self, statements: &[&str]) {
        for sql in statements {
            self.exec(sql);
        }
    }

    /// First field of the first row; "NULL" for NULL, "" when there is no row.
    pub(crate) fn get(&mut self, sql: &str) -> String {
        let rows = self.table(sql);
        rows.into_iter().next().and_then(|row| row.into_iter().next()).unwrap_or_default()
    }

    /// All rows as text.
    pub(crate) fn table(&mut self, sql: &str) -> Vec<Vec<String>> {
        let reply = self.exec(sql);
        let rows = reply.table().unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.into_iter().map(|row| row.into_iter().map(|v| v.unwrap_or("NULL".to_owned())).collect()).collect()
    }

    /// The first row as one string.
    pub(crate) fn row(&mut self, sql: &str) -> String {
        self.table(sql).into_iter().next().unwrap_or_default().join(" ")
    }

    /// Must fail; the error's number.
    pub(crate) fn fails(&mut self, sql: &str) -> u16 {
        self.ask(sql).err().unwrap_or_else(|| panic!("{sql} succeeded")).code
    }

    /// Puts another statement between: makes the shared backend change hands.
    pub(crate) fn disturb(&mut self) {
        self.exec("SELECT 1");
    }

    pub(crate) fn into_client(self) -> Client {
        self.client
    }
}

/// Runs a body directly and through a proxy with one backend, in both encodings.
pub(crate) fn run(flavor: Flavor, body: impl Fn(&World)) {
    run_with(flavor, 1, |builder| builder, body);
}

/// As [`run`] with this many backends and more configuration.
pub(crate) fn run_with(flavor: Flavor, backends: i64, more: impl FnOnce(Builder) -> Builder, body: impl Fn(&World)) {
    in_both_encodings(World::direct(flavor), &body);
    if std::env::var_os("LAB_DIRECT_ONLY").is_none() {
        in_both_encodings(World::proxied(flavor, backends, more), &body);
    }
}

fn in_both_encodings(mut world: World, body: impl Fn(&World)) {
    for encoding in [Encoding::Text, Encoding::Binary] {
        world.encoding = encoding;
        let path = if world.proxy.is_some() { "through the proxy" } else { "direct" };
        println!("-- {} {path}, {encoding:?}", world.flavor().name());
        let mut root = world.server.root().unwrap();
        root.run(format!("DROP DATABASE {}", world.schema)).unwrap();
        root.run(format!("CREATE DATABASE {} CHARACTER SET utf8mb4", world.schema)).unwrap();
        body(&world);
    }
}

/// Each named body becomes two tests, one a flavor. Attributes before the name are for both, `mariadb(#[..])` or
/// `mysql(#[..])` behind it for one.
#[macro_export]
macro_rules! each_flavor {
    ($($(#[$both:meta])* $name:ident $(mariadb(#[$mariadb:meta]))? $(mysql(#[$mysql:meta]))?),* $(,)?) => {$(
        mod $name {
            $(#[$both])*
            $(#[$mariadb])?
            #[test]
            fn mariadb() {
                super::common::run(lab::Flavor::Mariadb, super::$name);
            }
            $(#[$both])*
            $(#[$mysql])?
            #[test]
            fn mysql() {
                super::common::run(lab::Flavor::Mysql, super::$name);
            }
        }
    )*};
}
