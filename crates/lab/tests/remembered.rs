//! Answers that the proxy gives from memory: each client gets the answer that its server would give, whichever session asked before.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

mod common;

use std::process::Command as Program;

use common::{LIMIT, Peer, server};
use lab::client::{Column, Encoding, Param};
use lab::tidegate::Setting;
use lab::{ConnectOptions, Flavor, Tidegate};
use wire::flags::Capabilities;

lab::each!(
    columns_are_those_of_the_client,
    the_command_line_client_reads_cached_columns,
    rights_of_a_role_are_not_remembered,
    rights_that_were_taken_away,
);

const EXTENDED: Capabilities = Capabilities::MARIADB_CLIENT_EXTENDED_METADATA;

/// A client: its flags, the collation of its handshake, its first statement.
#[derive(Clone, Copy, Debug)]
struct Asker {
    caps: Capabilities,
    collation: u8,
    first: &'static str,
}

const UTF8: Asker = Asker { caps: ConnectOptions::MODERN, collation: 45, first: "SET time_zone='+00:00'" };

const ASKERS: [Asker; 10] = [
    UTF8,
    Asker { caps: ConnectOptions::CLASSIC, ..UTF8 },
    Asker { caps: ConnectOptions::MODERN.union(EXTENDED), ..UTF8 },
    Asker { caps: ConnectOptions::CLASSIC.union(EXTENDED), ..UTF8 },
    Asker { caps: ConnectOptions::MODERN.union(Capabilities::FOUND_ROWS), ..UTF8 },
    Asker { collation: 8, ..UTF8 },
    Asker { first: "SET NAMES latin1", ..UTF8 },
    Asker { first: "SET div_precision_increment=10", ..UTF8 },
    Asker { first: "SET group_concat_max_len=4", ..UTF8 },
    Asker { caps: ConnectOptions::MODERN.union(EXTENDED), first: "SET sql_mode='PAD_CHAR_TO_FULL_LENGTH'", ..UTF8 },
];

/// Makes the table of the tests; returns the columns that have types of their own.
fn table(flavor: Flavor) -> &'static str {
    let (types, values, columns) = match flavor {
        Flavor::Mariadb => {
            let values = "'123e4567-e89b-12d3-a456-426655440000', '::1', '{\"a\": 1}', 'c', ST_GeomFromText('POINT(1 2)')";
            ("u UUID, i INET6, j JSON, c CHAR(3), p POINT", values, "u, i, j, c, p")
        }
        Flavor::Mysql => ("j JSON, c CHAR(3), p POINT", "'{\"a\": 1}', 'c', ST_GeomFromText('POINT(1 2)')", "j, c, p"),
    };
    let mut root = server(flavor).root().unwrap();
    for sql in [
        "DROP TABLE IF EXISTS test.remembered".to_owned(),
        format!("CREATE TABLE test.remembered (n INT, s VARCHAR(20), {types}) CHARACTER SET utf8mb4"),
        format!("INSERT INTO test.remembered VALUES (7, 'sieben', {values})"),
    ] {
        root.run(sql).unwrap();
    }
    columns
}

fn proxy(flavor: Flavor) -> Tidegate {
    let rule: [(&str, Setting); 4] =
        [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "cached".into()), ("cache_ttl", 3_600_000.into())];
    let builder = Tidegate::builder().backend(0, server(flavor)).app_user().user("root", "", 0).variable("threads", 1);
    builder.variable("prepared_metadata_max_age", 3_600_000).row("mysql_query_rules", &rule).start().unwrap()
}

/// Columns as they are told: types, names, lengths, character sets and MariaDB's extended metadata.
fn raw(columns: &[Column]) -> Vec<Vec<u8>> {
    columns.iter().map(|column| column.raw.clone()).collect()
}

/// The column definitions that this client gets for a text: as text, at PREPARE, at EXECUTE.
fn told(options: &ConnectOptions, asker: &Asker, sql: &str, in_text: bool) -> Vec<Vec<Vec<u8>>> {
    let mut peer = Peer::with(&options.clone().capabilities(asker.caps).charset(asker.collation), Encoding::Text);
    peer.exec(asker.first);
    let mut all = Vec::new();
    if in_text {
        let reply = peer.exec(sql);
        assert_eq!(reply.table().unwrap().len(), 1);
        all.push(raw(&reply.rows().unwrap().columns));
    } else {
        let statement = peer.prepare(sql).unwrap();
        all.push(raw(&statement.columns));
        all.push(raw(&statement.params));
        let params = vec![Param::Int(1); statement.params.len()];
        let reply = peer.execute(&statement, &params).unwrap().check().unwrap();
        assert_eq!(reply.table().unwrap().len(), 1);
        all.push(raw(&reply.rows().unwrap().columns));
    }
    assert_eq!(peer.get("SELECT 'in step'"), "in step");
    all
}

/// One asks, then another with other flags, character sets or settings, in each order.
fn columns_are_those_of_the_client(flavor: Flavor) {
    let columns = table(flavor);
    let proxy = proxy(flavor);
    let direct = ConnectOptions::app(server(flavor)).database("test").timeout(LIMIT);
    let through = proxy.options("app", "app-pass").database("test").timeout(LIMIT);
    let selects = [
        (format!("SELECT n, s, n/3, {columns} AS cached FROM remembered"), true),
        (format!("SELECT n, s, n/3, {columns}, MONTHNAME('2026-01-01') AS cached FROM remembered"), false),
        ("SELECT GROUP_CONCAT(s) AS cached FROM remembered".to_owned(), true),
        ("SELECT GROUP_CONCAT(s, n) FROM remembered".to_owned(), false),
        (format!("SELECT s, n/3, {columns}, ? AS given FROM remembered"), false),
    ];
    for (at, first) in ASKERS.iter().enumerate() {
        for (sql, in_text) in &selects {
            // A text of its own for each client that asks first.
            let sql = format!("{sql} WHERE n > -{at}");
            for asker in std::iter::once(first).chain(&ASKERS).chain([first]) {
                let expected = told(&direct, asker, &sql, *in_text);
                assert_eq!(told(&through, asker, &sql, *in_text), expected, "{sql}: {asker:?} after {first:?}");
            }
        }
    }
    if flavor == Flavor::Mariadb {
        let options = through.capabilities(ConnectOptions::MODERN.union(EXTENDED));
        let names = told(&options, &ASKERS[2], &selects[0].0, true)[0]
            .iter()
            .map(|raw| String::from_utf8_lossy(raw).into_owned())
            .collect::<String>();
        for name in ["uuid", "inet6", "json"] {
            assert!(names.contains(name), "{name}: {names}");
        }
    }
    let mut admin = proxy.admin().unwrap();
    let of = |name: &str, admin: &mut lab::Client| {
        let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='{name}'");
        admin.scalar(sql).unwrap().unwrap().parse::<u64>().unwrap()
    };
    assert!(of("Query_Cache_count_GET_OK", &mut admin) >= 20, "the cache answered");
}

/// `mariadb --column-type-info` shows the same for a cached result as for the first one.
fn the_command_line_client_reads_cached_columns(flavor: Flavor) {
    let columns = table(flavor);
    let proxy = proxy(flavor);
    let sql = format!("SELECT n, s, n/3, {columns} AS cached FROM remembered");
    let run = || {
        let mut program = Program::new("mariadb");
        program.args(["--no-defaults", "-h127.0.0.1", "-t", "-vvv", "--column-type-info", "-uapp", "-papp-pass", "test"]);
        program.arg(format!("-P{}", proxy.port())).args(["-e", &sql]).output()
    };
    let shown = |output: std::process::Output| {
        let all = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_time = |line: &&str| !line.contains(" sec)");
        (output.status.success(), all.lines().filter(is_time).map(str::to_owned).collect::<Vec<_>>().join("\n"))
    };
    let first = match run() {
        Ok(output) => shown(output),
        Err(error) => return println!("skipped: mariadb: {error}"),
    };
    assert!(first.0 && first.1.contains("Type:"), "{}", first.1);
    for _ in 0..2 {
        assert_eq!(shown(run().unwrap()), first);
    }
}

/// A statement that a session with a role may prepare is refused to a session without it.
fn rights_of_a_role_are_not_remembered(flavor: Flavor) {
    let proxy = proxy(flavor);
    let mut root = server(flavor).root().unwrap();
    for sql in [
        "CREATE DATABASE IF NOT EXISTS kept_out",
        "DROP TABLE IF EXISTS kept_out.t",
        "CREATE TABLE kept_out.t (secret INT)",
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader",
        "GRANT SELECT ON kept_out.* TO reader",
        "GRANT reader TO app",
    ] {
        root.run(sql).unwrap();
    }
    let sql = "SELECT secret FROM kept_out.t";
    let mut with = Peer::through(&proxy, Encoding::Text);
    with.exec("SET ROLE reader");
    with.prepare(sql).unwrap();
    let mut without = Peer::through(&proxy, Encoding::Text);
    let expected = Peer::with(&ConnectOptions::app(server(flavor)), Encoding::Text).prepare(sql).err().map(|error| error.to_string());
    assert_eq!(without.prepare(sql).err().map(|error| error.to_string()), expected);
}

/// A result that was cached, a statement that was prepared and a schema that was entered under rights that are gone.
fn rights_that_were_taken_away(flavor: Flavor) {
    let proxy = proxy(flavor);
    let mut root = Peer::with(&proxy.options("root", "").timeout(LIMIT), Encoding::Text);
    root.exec_all(&[
        "CREATE DATABASE IF NOT EXISTS taken_away",
        "CREATE TABLE IF NOT EXISTS taken_away.t (cached INT)",
        "INSERT INTO taken_away.t VALUES (1)",
        "GRANT SELECT ON taken_away.* TO app",
    ]);
    let sql = "SELECT MIN(cached) AS cached FROM taken_away.t";
    let mut app = Peer::through(&proxy, Encoding::Text);
    for _ in 0..2 {
        assert_eq!(app.get(sql), "1");
        app.prepare(sql).unwrap();
    }
    let inside = proxy.options("app", "app-pass").database("taken_away").timeout(LIMIT);
    Peer::with(&inside, Encoding::Text);
    root.exec("REVOKE SELECT ON taken_away.* FROM app");
    assert_eq!(app.fails(sql), 1142);
    assert!(app.prepare(sql).is_err());
    assert!(matches!(lab::Client::connect(&inside), Err(lab::LabError::Server { code: 1044, .. })));
    root.exec("DROP DATABASE taken_away");
}
