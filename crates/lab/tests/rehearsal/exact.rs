//! Rehearsals in mode `all`: what the shadow must do although it does not run the statement, and long data that several attempts need.

use super::Rehearsal;
use super::common::{LIMIT, Peer};
use super::whole::{proxy, servers};
use lab::client::{Encoding, Execution, Param};
use lab::{Flavor, Server, wait};
use std::time::Duration;
use wire::command::Command;

/// Waits until a query has the same answer on both servers; the answer.
fn equal(servers: [&Server; 2], rehearsal: &mut Rehearsal, sql: &str) -> String {
    let all = |server: &Server| {
        let rows = server.root().unwrap().run(sql).unwrap().table().unwrap();
        rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("\n")
    };
    rehearsal.settled();
    let is_equal = || Some(all(servers[0])).filter(|rows| *rows == all(servers[1]));
    let found = wait::until("equal rows", Duration::from_secs(10), is_equal);
    found.unwrap_or_else(|_| panic!("{}\n--\n{}\n{}", all(servers[0]), all(servers[1]), rehearsal.page()))
}

/// Statements that are left out end the transaction at the original: the shadow commits too, and nowhere else.
fn what_is_left_out_commits_all_the_same(flavor: Flavor) {
    let servers = servers(flavor);
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    primary.sql("CREATE TABLE test.t (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(100))").unwrap();
    primary.sql("GRANT ALL ON *.* TO app@'%' WITH GRANT OPTION").unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let texts = [
        ("CREATE USER someone IDENTIFIED BY ''", true),
        ("CREATE USER someone IDENTIFIED BY ''", true),
        ("GRANT SELECT ON test.* TO someone", true),
        ("GRANT SELECT ON test.* TO nobody_there", true),
        ("GRANT SELECT ON TO someone", false),
        ("REVOKE SELECT ON test.* FROM someone", true),
        ("DROP USER someone", true),
        ("DROP USER someone", true),
        ("FLUSH STATUS", true),
        ("FLUSH PRIVILEGES", true),
        ("FLUSH TABLES", true),
        ("KILL 4000000000", false),
        ("SET GLOBAL max_connect_errors = 77", false),
        ("SET GLOBAL no_such_variable = 77", false),
        ("SELECT GET_LOCK('a', 1)", false),
        ("DO RELEASE_LOCK('a')", false),
        ("SHOW TABLES", false),
    ];
    for (number, (text, _)) in texts.iter().enumerate() {
        peer.exec_all(&["BEGIN", &format!("INSERT INTO t (what) VALUES ('{number} {}')", text.replace('\'', ""))]);
        peer.ask(text);
        peer.exec("ROLLBACK");
    }
    // The same as a command.
    peer.exec_all(&["BEGIN", "INSERT INTO t (what) VALUES ('99 COM_REFRESH')"]);
    let refreshed = peer.command(Command::Refresh, &[4]).unwrap();
    peer.exec("ROLLBACK");
    let found = equal([primary, shadow], &mut rehearsal, "SELECT what FROM test.t ORDER BY id");
    println!("{found}\n{refreshed:?}\n{}", rehearsal.page());
    for (number, (text, commits)) in texts.iter().enumerate() {
        assert_eq!(found.lines().any(|line| line.starts_with(&format!("{number} "))), *commits, "{text}");
    }
    assert_eq!(rehearsal.number("given_up"), 0, "{}", rehearsal.page());
    peer.exec("INSERT INTO t (what) VALUES ('behind them')");
    assert!(equal([primary, shadow], &mut rehearsal, "SELECT what FROM test.t ORDER BY id").contains("behind them"));
}

/// Long data is of one execution: each attempt of it on the shadow has it, and no other execution.
fn long_data_belongs_to_one_execution(flavor: Flavor) {
    let servers = servers(flavor);
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY, body LONGTEXT)").unwrap();
    primary.sql("INSERT INTO test.t VALUES (1, ''), (2, ''), (3, '')").unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[("order_wait_ms", 1_000.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let statement = peer.prepare("UPDATE t SET body = ? WHERE id = ?").unwrap();
    // The shadow gets the row's lock at its second attempt.
    let mut holder = shadow.root().unwrap();
    let waits = || -> u64 {
        let rows = shadow.root().unwrap().run("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'").unwrap().table().unwrap();
        rows[0][1].as_ref().unwrap().parse().unwrap()
    };
    holder.run("BEGIN").unwrap();
    holder.run("UPDATE test.t SET body = 'held' WHERE id = 1").unwrap();
    let before = waits();
    peer.send_long_data(&statement, 0, b"sent in ").unwrap();
    peer.send_long_data(&statement, 0, b"two parts").unwrap();
    peer.execute(&statement, &[Param::Long, Param::Int(1)]).unwrap().check().unwrap();
    wait::until("the second attempt", LIMIT, || (waits() >= before + 2).then_some(())).unwrap();
    holder.run("ROLLBACK").unwrap();
    const ALL: &str = "SELECT id, body FROM test.t ORDER BY id";
    let found = equal([primary, shadow], &mut rehearsal, ALL);
    assert!(found.contains("1 sent in two parts"), "{found}\n{}", rehearsal.page());
    // The original gets no lock: the shadow does not run the execution.
    let mut other = primary.root().unwrap();
    other.run("BEGIN").unwrap();
    other.run("SELECT * FROM test.t WHERE id = 2 FOR UPDATE").unwrap();
    peer.exec("SET innodb_lock_wait_timeout = 1");
    peer.send_long_data(&statement, 0, b"never used").unwrap();
    let refused = peer.execute(&statement, &[Param::Long, Param::Int(2)]).unwrap();
    assert_eq!(refused.err().map(|error| error.code), Some(1205));
    other.run("ROLLBACK").unwrap();
    peer.execute(&statement, &[Param::Text("short".into()), Param::Int(2)]).unwrap().check().unwrap();
    let found = equal([primary, shadow], &mut rehearsal, ALL);
    assert_eq!(found, "1 sent in two parts\n2 short\n3 ");
    assert_eq!(rehearsal.number("given_up"), 0, "{}", rehearsal.page());
    // Long data that is never used leaves the queue with its session.
    peer.send_long_data(&statement, 0, &[b'x'; 100_000]).unwrap();
    drop(peer);
    rehearsal.settled();
}

/// What a statement answered, in short.
fn said(reply: &lab::client::Reply) -> String {
    match reply.err() {
        Some(error) => format!("error {}", error.code),
        None => format!("{} changed", reply.ok().map_or(0, |ok| ok.affected_rows)),
    }
}

/// COM_STMT_RESET between long data and the next execution: with types and a value, with a value alone, and as if the long data were there still.
fn reset_amid_long_data(peer: &mut Peer) -> Vec<String> {
    let mut answers = Vec::new();
    for (first, reuse_types) in [(true, false), (true, true), (false, false)] {
        let statement = peer.prepare("UPDATE t SET body = ? WHERE id = ?").unwrap();
        if first {
            peer.execute(&statement, &[Param::Text("first".into()), Param::Int(1)]).unwrap().check().unwrap();
        }
        for (id, value) in [(1, Param::Text("behind a reset".into())), (2, Param::Long), (3, Param::Text("in the end".into()))] {
            peer.send_long_data(&statement, 0, b"never used").unwrap();
            peer.reset_statement(&statement).unwrap();
            let how = Execution { reuse_types, cursor: false };
            answers.push(said(&peer.execute_with(&statement, &[value, Param::Int(id)], how).unwrap()));
        }
        peer.close_statement(&statement).unwrap();
        answers.push(peer.table("SELECT id, body FROM t ORDER BY id").concat().join(" "));
        peer.exec("UPDATE t SET body = ''");
    }
    answers
}

fn a_reset_forgets_long_data(flavor: Flavor) {
    let servers = servers(flavor);
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY, body LONGTEXT)").unwrap();
    primary.sql("INSERT INTO test.t VALUES (1, ''), (2, ''), (3, '')").unwrap();
    servers.wait_caught_up().unwrap();
    let direct = reset_amid_long_data(&mut Peer::with(&lab::ConnectOptions::app(primary).database("test"), Encoding::Text));
    println!("{direct:#?}");
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    assert_eq!(reset_amid_long_data(&mut peer), direct);
    peer.exec("UPDATE t SET body = 'done'");
    equal([primary, shadow], &mut rehearsal, "SELECT id, body FROM test.t ORDER BY id");
    let page = rehearsal.page();
    println!("{page}");
    assert_eq!((rehearsal.number("given_up"), rehearsal.number("bad")), (0, 0), "{page}");
}

/// Statements that commit before they run, and that a server refuses: what became of the transaction.
fn refused_statements_on_servers(flavor: Flavor) {
    let server = Server::start(flavor, &lab::Options::new()).unwrap();
    server.sql("CREATE TABLE test.t (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(100))").unwrap();
    server.sql("CREATE USER plain IDENTIFIED BY 'plain'").unwrap();
    server.sql("GRANT ALL ON test.* TO plain").unwrap();
    server.sql("GRANT CREATE USER, RELOAD ON *.* TO plain WITH GRANT OPTION").unwrap();
    // The error; a transaction is open; the row is there after ROLLBACK.
    let (open, committed, rolled_back) = ((true, "0"), (false, "1"), (false, "0"));
    for (text, in_xa, in_read_only_session, under_read_only) in [
        ("CREATE USER someone IDENTIFIED BY ''", (1399, open), (1792, committed), (1290, rolled_back)),
        ("GRANT SELECT ON test.* TO plain", (1399, open), (1792, committed), (1290, rolled_back)),
        ("FLUSH TABLES", (1399, open), (0, committed), (1290, rolled_back)),
        ("LOCK TABLES t WRITE", (1399, open), (1792, committed), (1290, rolled_back)),
        ("BEGIN", (1399, open), (0, (true, "1")), (1290, rolled_back)),
        ("CREATE TABLE other (a INT)", (1399, open), (1792, committed), (1290, open)),
        ("TRUNCATE t", (1399, open), (1792, committed), (1290, open)),
    ] {
        for (before, begin, of_server, expected) in [
            ("", "XA START 'a'", "", in_xa),
            ("SET SESSION TRANSACTION READ ONLY", "START TRANSACTION READ WRITE", "", in_read_only_session),
            ("", "BEGIN", "SET GLOBAL read_only=1", under_read_only),
        ] {
            let mut peer = Peer::with(&lab::ConnectOptions::tcp(server.address(), "plain", "plain").database("test"), Encoding::Text);
            for sql in [before, begin, "INSERT INTO t (what) VALUES ('x')"].iter().filter(|sql| !sql.is_empty()) {
                peer.exec(sql);
            }
            if !of_server.is_empty() {
                server.sql(of_server).unwrap();
            }
            let error = peer.ask(text).err().map_or(0, |error| error.code);
            let is_open = peer.ping().unwrap().status().unwrap().in_transaction();
            server.sql("SET GLOBAL read_only=0").unwrap();
            let ends: &[&str] = if begin.starts_with("XA") { &["XA END 'a'", "XA ROLLBACK 'a'"] } else { &["ROLLBACK"] };
            ends.iter().for_each(|end| drop(peer.ask(end)));
            drop(peer);
            let rows = server.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap();
            assert_eq!((error, (is_open, rows.as_str())), expected, "{text} after {begin}, {before} {of_server}");
            server.sql("DELETE FROM test.t").unwrap();
        }
    }
}

/// Rows of `mysql_rehearsal_ignores` go by the schema in which a statement looks up its names.
fn ignores_go_by_the_schema_of_each_statement(flavor: Flavor) {
    let servers = servers(flavor);
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    for schema in ["test", "test_other"] {
        primary.sql(&format!("CREATE DATABASE IF NOT EXISTS {schema}")).unwrap();
        primary.sql(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, changed INT, own VARCHAR(20))")).unwrap();
        primary.sql(&format!("INSERT INTO {schema}.t VALUES (1, 1, '{schema}'), (2, 2, '{schema}')")).unwrap();
    }
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[]);
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
    for sql in [
        "INSERT INTO mysql_rehearsal_ignores (schemaname, column_name, comment) VALUES ('test_other', 'changed', 'known')",
        "LOAD MYSQL QUERY RULES TO RUNTIME",
    ] {
        admin.run(sql).unwrap();
    }
    let mut rehearsal = Rehearsal::start(&proxy);
    for schema in ["test", "test_other"] {
        shadow.sql(&format!("UPDATE {schema}.t SET changed = changed + 5")).unwrap();
    }
    let mut peer = Peer::through(&proxy, Encoding::Text);
    // Text columns of servers with other default collations would differ.
    peer.exec_text("SET NAMES utf8mb4 COLLATE utf8mb4_bin");
    peer.exec("SELECT 1, changed FROM t");
    peer.exec("USE test_other");
    peer.exec("SELECT 2, changed, id FROM t");
    // Names of a prepared statement are those of its schema at PREPARE, wherever it is executed.
    let statement = peer.prepare("SELECT 3, changed, own, id FROM t WHERE id = ?").unwrap();
    peer.init_db("test").unwrap().check().unwrap();
    peer.exec("SELECT changed, 4, id, 4 FROM t");
    let rows = peer.execute(&statement, &[Param::Int(1)]).unwrap().table().unwrap();
    assert_eq!(rows[0][2].as_deref(), Some("test_other"));
    // One that is first executed elsewhere.
    let statement = peer.prepare("SELECT own, id, id, id, id FROM t WHERE id = ?").unwrap();
    peer.init_db("test_other").unwrap().check().unwrap();
    peer.execute(&statement, &[Param::Int(1)]).unwrap().check().unwrap();
    peer.exec("SELECT changed, 6, 6, 6, 6, 6 FROM t");
    rehearsal.settled();
    let page = rehearsal.page();
    println!("{page}");
    for (like, expected) in [
        ("SELECT ?,changed FROM t", "rows 1"),
        ("SELECT ?,changed,id FROM t", "ignored 1"),
        ("SELECT ?,changed,own,id FROM t WHERE id = ?", "ignored 1"),
        ("SELECT changed,?,id,? FROM t", "rows 1"),
        ("SELECT own,id,id,id,id FROM t WHERE id = ?", "same 1"),
        ("SELECT changed,?,?,?,%FROM t", "ignored 1"),
    ] {
        assert_eq!(rehearsal.classes(like), expected, "{like}\n{page}");
    }
    let samples = "SELECT GROUP_CONCAT(DISTINCT schemaname) FROM stats_tidegate_rehearsal_samples WHERE class = 'rows'";
    assert_eq!(rehearsal.0.scalar(samples).unwrap().as_deref(), Some("test"));
}

/// A PREPARE that only one of the servers refuses is a difference, though nothing is executed.
fn what_one_server_refuses_to_prepare(flavor: Flavor) {
    let servers = servers(flavor);
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY, gone INT)").unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[]);
    let mut rehearsal = Rehearsal::start(&proxy);
    shadow.sql("ALTER TABLE test.t DROP COLUMN gone, ADD COLUMN new INT").unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.prepare("SELECT gone FROM t").unwrap();
    assert_eq!(peer.prepare("SELECT new FROM t").unwrap_err().code(), Some(1054));
    assert_eq!(peer.prepare("SELECT nowhere FROM t").unwrap_err().code(), Some(1054));
    let statement = peer.prepare("SELECT id FROM t").unwrap();
    peer.execute(&statement, &[]).unwrap().check().unwrap();
    rehearsal.settled();
    let page = rehearsal.page();
    println!("{page}");
    for (like, expected) in [
        ("SELECT gone FROM t", "error_new 1"),
        ("SELECT new FROM t", "error_gone 1"),
        ("SELECT nowhere FROM t", "same 1"),
        ("SELECT id FROM t", "same 1"),
    ] {
        assert_eq!(rehearsal.classes(like), expected, "{like}\n{page}");
    }
    assert_eq!((rehearsal.number("given_up"), rehearsal.get("verdict").as_str()), (0, "NOT SAFE"), "{page}");
}

/// A user whom the shadow does not let in: the page says so with the server's words, and the next session begins once it does.
fn users_whom_the_shadow_refuses(flavor: Flavor) {
    let servers = servers(flavor);
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let is_mysql = flavor == Flavor::Mysql;
    for (number, (change, error)) in [
        ("ALTER USER app@'%' ACCOUNT LOCK", if is_mysql { "is locked" } else { "locked" }),
        ("ALTER USER app@'%' IDENTIFIED BY 'other' ACCOUNT UNLOCK", "Access denied"),
    ]
    .into_iter()
    .enumerate()
    {
        shadow.sql(change).unwrap();
        // A connection that START left in the pool needs no login.
        let idle = shadow.root().unwrap().run("SELECT id FROM information_schema.processlist WHERE user = 'app'").unwrap().table().unwrap();
        idle.iter().flatten().flatten().for_each(|id| drop(shadow.sql(&format!("KILL {id}"))));
        let mut peer = Peer::through(&proxy, Encoding::Text);
        peer.exec(&format!("INSERT INTO t VALUES ({number})"));
        let given_up = number as u64 + 1;
        wait::until("the refusal", LIMIT, || (rehearsal.number("given_up") == given_up).then_some(())).unwrap();
        // The client goes on.
        peer.exec("SELECT COUNT(*) FROM t");
        let page = rehearsal.page();
        println!("{page}");
        assert!(page.contains(&format!("{given_up} login refused")) && page.contains("user 'app' cannot log in to the shadow: "), "{page}");
        assert!(page.contains(error), "{error}\n{page}");
        assert_ne!(rehearsal.get("verdict"), "SAFE");
    }
    shadow.sql("ALTER USER app@'%' IDENTIFIED BY 'app-pass'").unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec("INSERT INTO t VALUES (5)");
    wait::until("the copy", LIMIT, || {
        (shadow.scalar("SELECT GROUP_CONCAT(id) FROM test.t").unwrap().as_deref() == Some("5")).then_some(())
    })
    .unwrap();
}

/// The proxy chooses GTIDs of writes: what it says for that is no part of the session.
#[test]
fn statements_of_the_proxy_are_not_copied() {
    let servers = servers(Flavor::Mysql);
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    primary.sql("CREATE TABLE test.t (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20))").unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[]);
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
    admin.run("SET mysql-settle_lost_writes = 'true'").unwrap();
    admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    let mut rehearsal = Rehearsal::start(&proxy);
    for server in [primary, shadow] {
        server.sql("SET GLOBAL log_output = 'TABLE'").unwrap();
        server.sql("SET GLOBAL general_log = ON").unwrap();
    }
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let insert = peer.prepare("INSERT INTO t (what) VALUES (?)").unwrap();
    for round in 0..10 {
        peer.exec_all(&["BEGIN", "INSERT INTO t (what) VALUES ('in a transaction')"]);
        peer.execute(&insert, &[Param::Text(format!("prepared {round}"))]).unwrap().check().unwrap();
        peer.exec(if round % 4 == 3 { "ROLLBACK" } else { "COMMIT" });
        peer.exec("INSERT INTO t (what) VALUES ('alone')");
        peer.execute(&insert, &[Param::Text("alone".into())]).unwrap().check().unwrap();
    }
    equal([primary, shadow], &mut rehearsal, "SELECT id, what FROM test.t ORDER BY id");
    let chosen =
        "SELECT COUNT(*) FROM mysql.general_log WHERE CONVERT(argument USING utf8mb4) LIKE '%gtid_next=%' AND user_host LIKE 'app%'";
    let counts = [primary, shadow].map(|server| server.scalar(chosen).unwrap().unwrap().parse::<u64>().unwrap());
    println!("{counts:?}");
    let page = rehearsal.page();
    assert!(counts[0] >= 20 && counts[1] == 0, "{counts:?}\n{page}");
    assert_eq!((rehearsal.number("given_up"), rehearsal.number("bad"), rehearsal.number("look")), (0, 0, 0), "{page}");
}

lab::each!(
    what_one_server_refuses_to_prepare,
    users_whom_the_shadow_refuses,
    what_is_left_out_commits_all_the_same,
    long_data_belongs_to_one_execution,
    a_reset_forgets_long_data,
    refused_statements_on_servers,
    ignores_go_by_the_schema_of_each_statement
);
