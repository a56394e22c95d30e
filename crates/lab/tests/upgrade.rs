//! A new process takes the proxy's place while clients are connected: PROXYSQL UPGRADE.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, proxy_with, server};
use lab::client::{Compression, Execution, Param, Prepared};
use lab::tidegate::SOCKET;
use lab::{Client, ConnectOptions, Flavor, Tidegate};

/// Upgrades of one proxy, one after the other.
const TIMES: usize = 5;

fn scalar(client: &mut Client, sql: &str) -> String {
    client.scalar(sql).unwrap().unwrap_or_else(|| "NULL".to_owned())
}

/// How clients connect.
fn kinds(proxy: &Tidegate, flavor: Flavor) -> Vec<(&'static str, ConnectOptions)> {
    let tcp = || proxy.options("app", "app-pass").database("test").timeout(LIMIT);
    let unix = ConnectOptions::unix(proxy.dir().join(SOCKET), "app", "app-pass").database("test").timeout(LIMIT);
    let mut kinds = vec![("tcp", tcp()), ("unix", unix), ("zlib", tcp().compression(Compression::Zlib))];
    if flavor == Flavor::Mysql {
        kinds.push(("zstd", tcp().compression(Compression::Zstd(3))));
    }
    kinds
}

/// Looks whether a client has what it had; the number is that of the upgrade.
type Look = Box<dyn FnMut(&mut Client, usize)>;

/// A client with one kind of state.
struct Kept {
    name: String,
    client: Client,
    id: String,
    look: Look,
}

fn query(sql: impl Into<String>, wanted: &str) -> Look {
    let (sql, wanted) = (sql.into(), wanted.to_owned());
    Box::new(move |client, _| assert_eq!(scalar(client, &sql), wanted, "{sql}"))
}

fn shown_warnings(client: &mut Client) -> String {
    format!("{:?}", client.run("SHOW WARNINGS").unwrap().table().unwrap())
}

/// Brings a client into a state; the text is the client's own.
type Begin = fn(&mut Client, &str) -> Look;

/// Every kind of state that a session may have.
const STATES: &[(&str, Begin)] = &[
    ("user variable", |client, own| {
        client.run(format!("SET @mine = '{own}'")).unwrap();
        query("SELECT @mine", own)
    }),
    ("set", |client, _| {
        client.run("SET sql_mode = 'ANSI_QUOTES', SESSION group_concat_max_len = 4321").unwrap();
        query("SELECT @@group_concat_max_len + \"n\" FROM (SELECT 1 AS \"n\") AS t", "4322")
    }),
    ("schema", |client, _| {
        client.run("USE information_schema").unwrap();
        query("SELECT DATABASE()", "information_schema")
    }),
    ("temporary table", |client, own| {
        client.run("CREATE TEMPORARY TABLE own (id VARCHAR(40))").unwrap();
        client.run(format!("INSERT INTO own VALUES ('{own}')")).unwrap();
        query("SELECT id FROM own", own)
    }),
    ("transaction", |client, own| {
        client.run("BEGIN").unwrap();
        client.run(format!("INSERT INTO kept VALUES ('{own}', 0)")).unwrap();
        let own = own.to_owned();
        Box::new(move |client, turn| {
            client.run(format!("UPDATE kept SET turn = turn + 1 WHERE own = '{own}'")).unwrap();
            assert_eq!(scalar(client, &format!("SELECT turn FROM kept WHERE own = '{own}'")), (turn + 1).to_string());
        })
    }),
    ("lock", |client, own| {
        let name = own.replace(' ', "_");
        assert_eq!(scalar(client, &format!("SELECT GET_LOCK('{name}', 0)")), "1");
        query(format!("SELECT IS_USED_LOCK('{name}') IS NOT NULL"), "1")
    }),
    ("insert id", |client, _| {
        client.run("INSERT INTO numbered VALUES ()").unwrap();
        let id = scalar(client, "SELECT LAST_INSERT_ID()");
        query("SELECT LAST_INSERT_ID()", &id)
    }),
    ("prepared statement", |client, own| {
        let statement = client.prepare("SELECT CONCAT(?, '-', CONNECTION_ID() > 0)").unwrap();
        let own = own.to_owned();
        Box::new(move |client, _| {
            let reply = client.execute(&statement, &[Param::Text(own.clone())]).unwrap();
            assert_eq!(reply.scalar().unwrap().unwrap(), format!("{own}-1"));
        })
    }),
    ("prepared in text", |client, own| {
        client.run(format!("PREPARE own FROM 'SELECT ''{own}'' AS own'")).unwrap();
        query("EXECUTE own", own)
    }),
    ("warnings", |client, _| {
        client.run("SELECT CAST('abc' AS SIGNED)").unwrap();
        let shown = shown_warnings(client);
        assert!(shown.contains("abc"), "{shown}");
        Box::new(move |client, _| assert_eq!(shown_warnings(client), shown))
    }),
    ("cursor", |client, _| {
        let statement = client.prepare("SELECT own FROM cursor_rows ORDER BY own").unwrap();
        let opened = client.execute_with(&statement, &[], Execution { cursor: true, ..Execution::default() }).unwrap();
        let columns = opened.rows().unwrap().columns.clone();
        Box::new(move |client, turn| {
            let row = client.fetch(&statement, &columns, 1).unwrap();
            assert_eq!(row.field(0, "own"), Some(format!("{turn:03}")));
        })
    }),
    ("long data", |client, own| {
        let statement = client.prepare("SELECT CONCAT(?, '')").unwrap();
        client.send_long_data(&statement, 0, own.as_bytes()).unwrap();
        let (mut statement, own): (Option<Prepared>, _) = (Some(statement), own.to_owned());
        Box::new(move |client, _| {
            let Some(statement) = statement.take() else { return };
            let reply = client.execute_with(&statement, &[Param::Long], Execution::default()).unwrap();
            assert_eq!(reply.scalar().unwrap().unwrap(), own);
        })
    }),
];

fn sessions_go_on(flavor: Flavor) {
    let server = server(flavor);
    server.sql("DROP TABLE IF EXISTS test.kept, test.numbered, test.cursor_rows").unwrap();
    server.sql("CREATE TABLE test.kept (own VARCHAR(60) PRIMARY KEY, turn INT)").unwrap();
    server.sql("CREATE TABLE test.numbered (id INT AUTO_INCREMENT PRIMARY KEY)").unwrap();
    server.sql("CREATE TABLE test.cursor_rows (own CHAR(3) PRIMARY KEY)").unwrap();
    let rows: Vec<String> = (0..50).map(|n| format!("('{n:03}')")).collect();
    server.sql(&format!("INSERT INTO test.cursor_rows VALUES {}", rows.join(","))).unwrap();
    let mut proxy = proxy_with(server, 200, |builder| builder.socket());
    let mut kept = Vec::new();
    for (kind, options) in kinds(&proxy, flavor) {
        for (state, begin) in STATES {
            let name = format!("{kind} {state}");
            let mut client = Client::connect(&options).unwrap();
            let id = scalar(&mut client, "SELECT CONNECTION_ID()");
            let look = begin(&mut client, &name);
            kept.push(Kept { name, client, id, look });
        }
    }
    for turn in 0..TIMES {
        proxy.upgrade(None).unwrap();
        for Kept { name, client, look, .. } in &mut kept {
            eprintln!("upgrade {turn}: {name}");
            look(client, turn);
        }
    }
    for Kept { name, client, id, .. } in &mut kept {
        assert_eq!(scalar(client, "SELECT CONNECTION_ID()"), *id, "{name}");
        if name.contains("transaction") {
            client.run("COMMIT").unwrap();
            assert_eq!(scalar(client, &format!("SELECT turn FROM kept WHERE own = '{name}'")), TIMES.to_string());
        }
    }
}

#[test]
fn sessions_go_on_mariadb() {
    sessions_go_on(Flavor::Mariadb);
}

#[test]
fn sessions_go_on_mysql() {
    sessions_go_on(Flavor::Mysql);
}
