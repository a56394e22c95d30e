//! A proxy in front of a proxy in front of a server: each sees the other as it would see a client and a server.
//!
//! Both layers share few backends among many sessions, so that every statement of a test may travel by another pair of
//! connections. What clients see is compared with a direct connection.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

mod common;

use std::thread;
use std::time::Duration;

use lab::client::{Param, Reply};
use lab::{Client, ConnectOptions, Flavor, Options, Server, Tidegate, wait};

const LIMIT: Duration = Duration::from_secs(60);

/// Character sets of clients: name, collation id for the handshake, and a text in that encoding.
const CHARSETS: [(&str, u8, &[u8]); 4] = [
    ("latin1", 8, b"Gr\xfc\xdfe"),
    ("utf8mb4", 45, "Grüße, привет, 🌊".as_bytes()),
    ("cp1251", 51, b"\xef\xf0\xe8\xe2\xe5\xf2"),
    ("utf8mb4", 224, "naïve 海".as_bytes()),
];

struct Layers {
    outer: Tidegate,
    _inner: Tidegate,
    server: Server,
}

impl Layers {
    fn new(flavor: Flavor, outer_backends: i64, inner_backends: i64) -> Layers {
        let server = Server::start(flavor, &Options::new()).unwrap();
        let layer = |port: u16, backends: i64| {
            Tidegate::builder()
                .server_with(0, "127.0.0.1", port, &[("max_connections", backends.into())])
                .app_user()
                .variable("threads", 2)
                .variable("connect_timeout_server_max", 30_000)
                .start()
                .unwrap()
        };
        let inner = layer(server.port(), inner_backends);
        let outer = layer(inner.port(), outer_backends);
        Layers { outer, _inner: inner, server }
    }

    fn options(&self) -> ConnectOptions {
        self.outer.options("app", "app-pass").database("test").timeout(LIMIT)
    }

    fn client(&self) -> Client {
        Client::connect(&self.options()).unwrap()
    }

    fn direct(&self) -> ConnectOptions {
        ConnectOptions::app(&self.server).timeout(LIMIT)
    }
}

/// The first field of a reply, as the bytes that came.
fn bytes(reply: &Reply) -> Vec<u8> {
    match &reply.rows().unwrap().rows[0].values[0] {
        lab::client::Value::Bytes(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    }
}

fn quoted(text: &[u8]) -> Vec<u8> {
    [b"'", text, b"'"].concat()
}

/// Texts as a session of this character set reads them: its own text sent and read back, and texts stored by the server and by other
/// sessions.
fn read_back(client: &mut Client, row: usize, text: &[u8]) -> Vec<Vec<u8>> {
    let insert = [format!("REPLACE INTO words VALUES ({row}, ").as_bytes(), &quoted(text), b")"].concat();
    client.run(insert).unwrap();
    let mut seen = Vec::new();
    for sql in [
        format!("SELECT word FROM words WHERE id = {row}").into_bytes(),
        format!("SELECT HEX(word) FROM words WHERE id = {row}").into_bytes(),
        [b"SELECT ".as_slice(), &quoted(text)].concat(),
        [b"SELECT HEX(".as_slice(), &quoted(text), b")"].concat(),
        b"SELECT CONCAT(@@character_set_client, ' ', @@character_set_results, ' ', @@collation_connection)".to_vec(),
        b"SELECT word FROM words WHERE id = 1000".to_vec(),
    ] {
        seen.push(bytes(&client.run(&sql).unwrap()));
        let statement = client.prepare(&sql).unwrap();
        seen.push(bytes(&client.execute(&statement, &[]).unwrap().check().unwrap()));
        client.close_statement(&statement).unwrap();
    }
    seen
}

fn charsets(flavor: Flavor) {
    let layers = Layers::new(flavor, 3, 2);
    let mut root = layers.server.root().unwrap();
    root.run("CREATE TABLE test.words (id INT PRIMARY KEY, word VARCHAR(100)) CHARACTER SET utf8mb4").unwrap();
    root.run("SET NAMES utf8mb4").unwrap();
    root.run("INSERT INTO test.words VALUES (1000, 'ü я 🌊')").unwrap();
    // By the handshake, and by SET NAMES: every session stays open, so that all take turns on the shared backends.
    let connect = |options: ConnectOptions| -> Vec<Client> {
        let by_handshake = CHARSETS.iter().map(|(_, id, _)| Client::connect(&options.clone().charset(*id)).unwrap());
        let by_name = CHARSETS.iter().map(|(name, _, _)| {
            let mut client = Client::connect(&options).unwrap();
            client.run(format!("SET NAMES {name}")).unwrap();
            client
        });
        by_handshake.chain(by_name).collect()
    };
    let mut direct = connect(layers.direct());
    let mut layered = connect(layers.options());
    for round in 0..3 {
        for row in 0..direct.len() {
            let (name, id, text) = CHARSETS[row % CHARSETS.len()];
            let wanted = read_back(&mut direct[row], row, text);
            let got = read_back(&mut layered[row], row, text);
            assert_eq!(got, wanted, "{name} ({id}), session {row}, round {round}");
        }
    }
}

fn state(flavor: Flavor) {
    let layers = Layers::new(flavor, 2, 1);
    layers.server.sql("CREATE TABLE test.ids (id INT AUTO_INCREMENT PRIMARY KEY, who INT)").unwrap();
    layers.server.sql("CREATE DATABASE test_other").unwrap();
    let mut clients: Vec<Client> = (0..6).map(|_| layers.client()).collect();
    for (who, client) in clients.iter_mut().enumerate() {
        client.run(format!("SET @who = {who}, SESSION sort_buffer_size = {}", 65536 + 4096 * who)).unwrap();
        client.run(format!("SET SESSION sql_mode = '{}'", if who % 2 == 0 { "ANSI_QUOTES" } else { "" })).unwrap();
        if who % 3 == 0 {
            client.run("USE test_other").unwrap();
        }
    }
    for round in 0..5 {
        for (who, client) in clients.iter_mut().enumerate() {
            client.run(format!("INSERT INTO test.ids (who) VALUES ({who})")).unwrap();
        }
        for (who, client) in clients.iter_mut().enumerate() {
            let ids = format!("SELECT LAST_INSERT_ID() = (SELECT MAX(id) FROM test.ids WHERE who = {who})");
            assert_eq!(client.scalar(ids).unwrap().as_deref(), Some("1"), "insert id of {who}, round {round}");
            let state = client.run("SELECT @who, @@sort_buffer_size, @@sql_mode, DATABASE(), CONNECTION_ID()").unwrap();
            let row: Vec<String> = state.table().unwrap().remove(0).into_iter().map(Option::unwrap).collect();
            let mode = if who % 2 == 0 { "ANSI_QUOTES" } else { "" };
            let schema = if who % 3 == 0 { "test_other" } else { "test" };
            let id = client.connection_id().to_string();
            assert_eq!(row, [&who.to_string(), &(65536 + 4096 * who).to_string(), mode, schema, &id], "round {round}");
        }
    }
}

fn transactions_and_pins(flavor: Flavor) {
    let layers = Layers::new(flavor, 3, 3);
    layers.server.sql("CREATE TABLE test.t (a INT)").unwrap();
    let (mut a, mut b) = (layers.client(), layers.client());
    a.run("BEGIN").unwrap();
    a.run("INSERT INTO t VALUES (1)").unwrap();
    assert!(a.run("SELECT 1").unwrap().status().unwrap().in_transaction());
    assert_eq!(b.scalar("SELECT COUNT(*) FROM t").unwrap().as_deref(), Some("0"));
    b.run("SET autocommit = 0").unwrap();
    b.run("INSERT INTO t VALUES (2)").unwrap();
    a.run("ROLLBACK").unwrap();
    b.run("COMMIT").unwrap();
    assert_eq!(a.scalar("SELECT SUM(a) FROM t").unwrap().as_deref(), Some("2"));
    a.run("CREATE TEMPORARY TABLE mine (a INT)").unwrap();
    a.run("INSERT INTO mine VALUES (7)").unwrap();
    b.run("SELECT GET_LOCK('both', 1)").unwrap();
    for _ in 0..5 {
        assert_eq!(a.scalar("SELECT a FROM mine").unwrap().as_deref(), Some("7"));
        assert_eq!(b.query("SELECT a FROM mine").unwrap().err().unwrap().code, 1146);
        assert_eq!(a.scalar("SELECT IS_FREE_LOCK('both')").unwrap().as_deref(), Some("0"));
    }
    // A client that leaves takes its lock and its transaction with it, through both layers.
    b.run("INSERT INTO t VALUES (3)").unwrap();
    b.cut();
    wait::until("the lock to be free", LIMIT, || (a.scalar("SELECT IS_FREE_LOCK('both')").unwrap().as_deref() == Some("1")).then_some(()))
        .unwrap();
    wait::until("the row to be free", LIMIT, || {
        (a.scalar("SELECT COUNT(*) FROM t FOR UPDATE").unwrap().as_deref() == Some("1")).then_some(())
    })
    .unwrap();
}

fn prepared_statements(flavor: Flavor) {
    let layers = Layers::new(flavor, 2, 1);
    layers.server.sql("CREATE TABLE test.t (a INT PRIMARY KEY, b VARCHAR(50))").unwrap();
    thread::scope(|scope| {
        for who in 0..8_i64 {
            let layers = &layers;
            scope.spawn(move || {
                let mut client = layers.client();
                let insert = client.prepare("INSERT INTO t VALUES (?, ?)").unwrap();
                let select = client.prepare("SELECT b, ? FROM t WHERE a = ?").unwrap();
                for number in 0..20 {
                    let key = who * 1000 + number;
                    let text = format!("{who} wrote {number}");
                    client.execute(&insert, &[Param::Int(key), Param::Text(text.clone())]).unwrap().check().unwrap();
                    let reply = client.execute(&select, &[Param::Int(key), Param::Int(key)]).unwrap();
                    let row = reply.table().unwrap().remove(0);
                    assert_eq!(row, [Some(text), Some(key.to_string())]);
                }
                let again = client.execute(&insert, &[Param::Int(who * 1000), Param::Null]).unwrap();
                assert_eq!(again.err().unwrap().code, 1062);
                client.close_statement(&insert).unwrap();
                assert_eq!(client.execute(&insert, &[Param::Int(1), Param::Null]).unwrap().err().unwrap().code, 1243);
            });
        }
    });
    let rows = layers.server.scalar("SELECT COUNT(*) FROM test.t").unwrap();
    assert_eq!(rows.as_deref(), Some("160"));
    assert!(
        layers.server.scalar("SELECT COUNT(*) <= 1 FROM information_schema.processlist WHERE user='app'").unwrap().as_deref() == Some("1")
    );
}

fn kill(flavor: Flavor) {
    let layers = Layers::new(flavor, 4, 4);
    let sleeping = |wanted: &str| {
        let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '%SLEEP(1%'";
        wait::until("statements that sleep", LIMIT, || (layers.server.scalar(count).unwrap().as_deref() == Some(wanted)).then_some(()))
            .unwrap();
    };
    let mut killer = layers.client();
    // The statement of a session that goes on.
    let mut victim = layers.client();
    victim.run("SET @mine = 1").unwrap();
    victim.send_query("SELECT SLEEP(100)").unwrap();
    sleeping("1");
    killer.run(format!("KILL QUERY {}", victim.connection_id())).unwrap();
    let reply = victim.recv_reply(lab::client::Encoding::Text).unwrap();
    let interrupted = reply.err().map_or_else(|| reply.scalar().unwrap().as_deref() == Some("1"), |e| e.code == 1317);
    assert!(interrupted, "{reply:?}");
    assert_eq!(victim.scalar("SELECT @mine").unwrap().as_deref(), Some("1"));
    sleeping("0");
    // The session.
    victim.send_query("SELECT SLEEP(100)").unwrap();
    sleeping("1");
    killer.run(format!("KILL {}", victim.connection_id())).unwrap();
    sleeping("0");
    assert!(victim.recv_reply(lab::client::Encoding::Text).map_or(true, |reply| reply.err().is_some()));
    // A client that vanishes.
    let mut gone = layers.client();
    gone.send_query("SELECT SLEEP(100)").unwrap();
    sleeping("1");
    gone.cut();
    sleeping("0");
    assert_eq!(killer.query("KILL 4294967000").unwrap().err().unwrap().code, 1094);
    assert_eq!(killer.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
}

/// Errors, warnings and counts come through as the server gave them.
fn diagnostics(flavor: Flavor) {
    let layers = Layers::new(flavor, 2, 1);
    layers.server.sql("CREATE TABLE test.t (a INT PRIMARY KEY)").unwrap();
    let mut direct = Client::connect(&layers.direct()).unwrap();
    let (mut layered, mut other) = (layers.client(), layers.client());
    // The last statement but one leaves the table as it was found.
    let script = [
        "SELECT 1 + 'x'",
        "SHOW WARNINGS",
        "SHOW COUNT(*) WARNINGS",
        "INSERT IGNORE INTO t VALUES (1), (1)",
        "SHOW WARNINGS",
        "SELECT ROW_COUNT()",
        "SELECT * FROM no_such_table",
        "SHOW ERRORS",
        "DELETE FROM t",
        "SELECT FOUND_ROWS()",
    ];
    let wanted = script.map(|sql| shape(&direct.query(sql).unwrap()));
    let mut different = Vec::new();
    for (sql, wanted) in script.iter().zip(wanted) {
        let got = shape(&layered.query(sql).unwrap());
        if got != wanted {
            different.push(format!("{sql}: {got:?} instead of {wanted:?}"));
        }
        other.run("SELECT 1 FROM t").unwrap();
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// The part of a reply that must be the same on every path.
#[allow(clippy::type_complexity)] // named only here
fn shape(reply: &Reply) -> (Option<(u16, String)>, Option<Vec<Vec<Option<String>>>>, Option<(u64, u16)>) {
    let error = reply.err().map(|e| (e.code, e.message.clone()));
    (error, reply.table().ok(), reply.status().map(|s| (s.affected_rows, s.warnings)))
}

lab::each!(charsets, state, transactions_and_pins, prepared_statements, kill, diagnostics);
