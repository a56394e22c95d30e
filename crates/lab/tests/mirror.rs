//! Mirroring through the real proxy: copies on a second server, in order, in the session's state, never in the way.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, Peer};
use lab::client::{Encoding, Execution, Param};
use lab::tidegate::{Builder, Setting};
use lab::{Client, Flavor, Options, Server, Tidegate, wait};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Hostgroup 1, the users' own, and hostgroup 2, the mirror.
fn servers() -> &'static [Server; 2] {
    static SERVERS: OnceLock<[Server; 2]> = OnceLock::new();
    SERVERS.get_or_init(|| [1, 2].map(|_| Server::start(Flavor::Mariadb, &Options::new()).unwrap()))
}

fn mirror() -> &'static Server {
    &servers()[1]
}

/// A proxy with these rules.
fn builder(rules: &[&[(&str, Setting)]]) -> Builder {
    let [one, two] = servers();
    Tidegate::builder().backend(1, one).backend(2, two).user("app", "app-pass", 1).variable("threads", 1).rules(rules)
}

/// The same table, empty, on both servers.
fn table(name: &str, columns: &str) {
    for server in servers() {
        server.sql(&format!("CREATE OR REPLACE TABLE test.{name} (id INT AUTO_INCREMENT PRIMARY KEY, {columns})")).unwrap();
    }
}

/// Statements whose digest matches are mirrored in hostgroup 2.
fn mirrors(digest: &str) -> [(&'static str, Setting); 3] {
    [("match_digest", digest.into()), ("mirror_hostgroup", 2.into()), ("apply", 1.into())]
}

/// The whole table, row by row, in the order of insertion.
fn contents(server: &Server, name: &str, column: &str) -> String {
    server.scalar(&format!("SELECT GROUP_CONCAT({column} ORDER BY id SEPARATOR '|') FROM test.{name}")).unwrap().unwrap_or_default()
}

/// The contents of the mirror's table, once it has so many rows.
fn mirrored(name: &str, column: &str, rows: usize) -> String {
    let count = || mirror().scalar(&format!("SELECT COUNT(*) FROM test.{name}")).unwrap().unwrap();
    wait::until("the copies", LIMIT, || (count() == rows.to_string()).then_some(())).unwrap();
    contents(mirror(), name, column)
}

struct Numbers(Client);

impl Numbers {
    fn of(proxy: &Tidegate) -> Self {
        Self(wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap())
    }

    fn get(&mut self, name: &str) -> u64 {
        let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='Mirror_{name}'");
        self.0.scalar(sql).unwrap().unwrap().parse().unwrap()
    }

    fn wait(&mut self, name: &str, value: u64) {
        wait::until(&format!("Mirror_{name} = {value}"), LIMIT, || (self.get(name) == value).then_some(())).unwrap();
    }
}

#[test]
fn copies_of_a_session_keep_their_order() {
    table("ordered", "who INT, n INT");
    mirror().sql("SET GLOBAL group_concat_max_len=1000000").unwrap();
    let proxy = builder(&[&mirrors("INTO ordered")]).variable("mirror_max_concurrency", 4).variable("threads", 2).start().unwrap();
    let mut peers: Vec<Peer> = (0..6).map(|_| Peer::through(&proxy, Encoding::Text)).collect();
    for n in 0..50 {
        for (who, peer) in peers.iter_mut().enumerate() {
            peer.exec(&format!("INSERT INTO ordered (who, n) VALUES ({who}, {n})"));
        }
    }
    // Sessions that ended owe their copies still.
    drop(peers);
    let all = mirrored("ordered", "CONCAT(who, '-', n)", 300);
    for who in 0..6 {
        let prefix = format!("{who}-");
        let own: Vec<usize> = all.split('|').filter_map(|row| row.strip_prefix(&prefix)?.parse().ok()).collect();
        assert_eq!(own, (0..50).collect::<Vec<_>>(), "session {who}");
    }
    let mut numbers = Numbers::of(&proxy);
    numbers.wait("done", 300);
    assert_eq!(["dropped", "failed", "errors", "queue_length", "concurrency"].map(|name| numbers.get(name)), [0; 5]);
    let counted = "SELECT SUM(count_star) FROM stats_mysql_query_digest WHERE hostgroup=2 AND digest_text LIKE 'INSERT INTO ordered%'";
    assert_eq!(numbers.0.scalar(counted).unwrap().as_deref(), Some("300"));
}

#[test]
fn the_copy_runs_in_the_sessions_state() {
    table("stated", "v VARCHAR(200) CHARACTER SET utf8mb4");
    for server in servers() {
        server.sql("CREATE DATABASE IF NOT EXISTS test_other").unwrap();
    }
    let proxy = builder(&[&mirrors("^INSERT")]).start().unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let state = "CONCAT_WS(',', DATABASE(), @@time_zone, @@sql_mode, @@character_set_client, @@collation_connection, @a, 'é')";
    let insert = format!("INSERT INTO test.stated (v) VALUES ({state})");
    peer.exec(&insert);
    peer.exec_all(&["SET time_zone='+05:00', sql_mode='ANSI'", "SET NAMES latin1 COLLATE latin1_bin", "SET @a='x'", "USE test_other"]);
    peer.exec(&insert);
    peer.exec_all(&["SET NAMES utf8mb4", "SET sql_mode=DEFAULT", "USE test"]);
    peer.exec(&insert);
    let copies = mirrored("stated", "v", 3);
    assert_eq!(copies, contents(&servers()[0], "stated", "v"));
    assert!(copies.contains("test_other,+05:00,"), "{copies}");
}

#[test]
fn each_copy_is_a_transaction_of_its_own_and_leaves_nothing() {
    table("alone", "n INT");
    let proxy = builder(&[&mirrors("alone|LOCK")]).start().unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec_all(&["SET autocommit=0", "INSERT INTO alone (n) VALUES (1)", "ROLLBACK"]);
    peer.exec_all(&["SET autocommit=1", "BEGIN", "INSERT INTO alone (n) VALUES (2)", "ROLLBACK"]);
    assert_eq!(mirrored("alone", "n", 2), "1|2");
    assert_eq!(contents(&servers()[0], "alone", "n"), "");
    // State that a copy leaves on its connection is removed when the connection goes back to the pool.
    assert_eq!(peer.get("SELECT GET_LOCK('mirror', 0)"), "1");
    peer.exec("DO RELEASE_LOCK('no such lock')");
    let mut numbers = Numbers::of(&proxy);
    numbers.wait("done", 4);
    wait::until("the mirror's lock to be free", LIMIT, || {
        (mirror().scalar("SELECT IS_FREE_LOCK('mirror')").unwrap().as_deref() == Some("1")).then_some(())
    })
    .unwrap();
    let open = "SELECT COUNT(*) FROM information_schema.innodb_trx";
    let is_none = || (mirror().scalar(open).unwrap()? == "0").then_some(());
    wait::until_transactions("no transaction on the mirror", LIMIT, is_none).unwrap();
}

#[test]
fn what_is_not_copied() {
    table("skipped", "n INT");
    let proxy = builder(&[&[("match_pattern", ".".into()), ("mirror_hostgroup", 2.into())]]).start().unwrap();
    let mut text = Peer::through(&proxy, Encoding::Text);
    text.exec_all(&[
        "SET @a=1",
        "USE test",
        "BEGIN",
        "SAVEPOINT a",
        "COMMIT",
        "SHOW WARNINGS",
        "LOCK TABLES skipped READ",
        "UNLOCK TABLES",
    ]);
    let id = text.get("SELECT CONNECTION_ID()");
    text.fails(&format!("KILL QUERY {id}"));
    text.exec("INSERT INTO skipped (n) VALUES (2)");
    assert_eq!(mirrored("skipped", "n", 1), "2");
    let mut numbers = Numbers::of(&proxy);
    numbers.wait("done", 2);
    assert_eq!(["dropped", "failed", "errors"].map(|name| numbers.get(name)), [0; 3]);
    // Parameters that came as long data are not at hand for a copy.
    let mut client = text.into_client();
    let statement = client.prepare("INSERT INTO skipped (n) VALUES (?)").unwrap();
    client.send_long_data(&statement, 0, b"3").unwrap();
    client.execute(&statement, &[Param::Long]).unwrap().check().unwrap();
    numbers.wait("dropped", 1);
    assert_eq!(contents(&servers()[0], "skipped", "n"), "2|3");
}

#[test]
fn executions_are_copied_with_their_parameters() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let [one, two] = [1, 2].map(|_| Server::start(flavor, &Options::new()).unwrap());
        for server in [&one, &two] {
            server.sql("CREATE TABLE test.executed (id INT AUTO_INCREMENT PRIMARY KEY, a BIGINT, b DOUBLE, c VARCHAR(50) CHARACTER SET utf8mb4)").unwrap();
            server.sql("CREATE DATABASE test_elsewhere").unwrap();
        }
        let mut rule = vec![("rule_id", 1.into()), ("active", 1.into())];
        rule.extend(mirrors("executed"));
        let proxy = Tidegate::builder().backend(1, &one).backend(2, &two).user("app", "app-pass", 1).row("mysql_query_rules", &rule);
        let proxy = proxy.start().unwrap();
        let options = proxy.options("app", "app-pass").timeout(LIMIT);
        let with_attributes = options.clone().with(wire::Capabilities::QUERY_ATTRIBUTES);
        let mut numbers = Numbers::of(&proxy);
        for (done, options) in [(4, &options), (8, &with_attributes)] {
            let mut client = Client::connect(options).unwrap();
            client.run("USE test").unwrap();
            let statement = client.prepare("INSERT INTO executed (a, b, c) VALUES (?, ?, ?)").unwrap();
            client.run("USE test_elsewhere").unwrap();
            let text = |text: &str| Param::Text(text.to_owned());
            client.execute(&statement, &[Param::Int(-1), Param::Double(1.5), text("it's \\ é")]).unwrap().check().unwrap();
            let again = Execution { reuse_types: true, ..Execution::default() };
            client.execute_with(&statement, &[Param::Int(7), Param::Double(0.1), text("")], again).unwrap().check().unwrap();
            client.execute(&statement, &[Param::UInt(8), Param::Null, Param::Null]).unwrap().check().unwrap();
            let read = client.prepare("SELECT a, c FROM test.executed WHERE a > ?").unwrap();
            let cursor = Execution { cursor: true, ..Execution::default() };
            client.execute_with(&read, &[Param::Int(0)], cursor).unwrap().check().unwrap();
            client.prepare("SELECT a FROM executed").unwrap_err();
            // Copies of two sessions are in no order.
            numbers.wait("done", done);
        }
        assert_eq!(["dropped", "failed", "errors"].map(|name| numbers.get(name)), [0; 3], "{flavor:?}");
        let all = "CONCAT_WS(',', a, b, c)";
        assert_eq!(contents(&two, "executed", all), contents(&one, "executed", all), "{flavor:?}");
        assert_eq!(contents(&two, "executed", "a"), "-1|7|8|-1|7|8");
        let left = "SELECT VARIABLE_VALUE FROM {}.global_status WHERE VARIABLE_NAME='Prepared_stmt_count'";
        let schema = if flavor == Flavor::Mariadb { "information_schema" } else { "performance_schema" };
        let left = left.replace("{}", schema);
        wait::until("the mirror to have no statements", LIMIT, || (two.scalar(&left).unwrap()? == "0").then_some(())).unwrap();
    }
}

/// A rule for copies sees the statement, and may replace it.
#[test]
fn rules_see_the_copies_of_executions() {
    table("ruled", "v VARCHAR(20)");
    let proxy = builder(&[
        &[("match_digest", "^INSERT INTO ruled".into()), ("mirror_flagOUT", 50.into()), ("apply", 1.into())],
        &[
            ("flagIN", 50.into()),
            ("match_pattern", r"VALUES \((.*)\)".into()),
            ("replace_pattern", r"VALUES (CONCAT('copy of ', \1))".into()),
            ("destination_hostgroup", 2.into()),
            ("apply", 1.into()),
        ],
    ])
    .start()
    .unwrap();
    let mut client = Peer::through(&proxy, Encoding::Binary).into_client();
    let statement = client.prepare("INSERT INTO ruled (v) VALUES (?)").unwrap();
    client.execute(&statement, &[Param::Text("a".into())]).unwrap().check().unwrap();
    assert_eq!(mirrored("ruled", "v", 1), "copy of a");
    assert_eq!(contents(&servers()[0], "ruled", "v"), "a");
}

/// Executions that are not copied.
///
/// A statement prepared under other settings than at its execution would be another statement on the mirror. One that a rule replaced by a
/// text with other parameters cannot be executed.
#[test]
fn what_an_execution_is_not_copied_for() {
    table("unlike", "v VARCHAR(20)");
    let drops_one: [(&str, Setting); 5] = [
        ("flagIN", 50.into()),
        ("match_pattern", r"[(][?], [?][)]".into()),
        ("replace_pattern", "(?)".into()),
        ("destination_hostgroup", 2.into()),
        ("apply", 1.into()),
    ];
    let proxy = builder(&[
        &[("match_digest", "CONCAT".into()), ("mirror_flagOUT", 50.into()), ("apply", 1.into())],
        &drops_one,
        &mirrors("unlike"),
    ])
    .start()
    .unwrap();
    let mut client = Peer::through(&proxy, Encoding::Binary).into_client();
    let mut numbers = Numbers::of(&proxy);
    client.run("SET sql_mode='ANSI_QUOTES'").unwrap();
    let quoted = client.prepare("INSERT INTO unlike (v) VALUES (?)").unwrap();
    client.run("SET sql_mode=''").unwrap();
    client.execute(&quoted, &[Param::Text("a".into())]).unwrap().check().unwrap();
    numbers.wait("dropped", 1);
    let two = client.prepare("INSERT INTO unlike (v) SELECT CONCAT(?, ?)").unwrap();
    client.execute(&two, &[Param::Int(11), Param::Text("b".into())]).unwrap().check().unwrap();
    numbers.wait("errors", 1);
    assert_eq!(contents(mirror(), "unlike", "v"), "");
    assert_eq!(contents(&servers()[0], "unlike", "v"), "a|11b");
}

/// MariaDB keeps roles over a reset.
#[test]
fn a_copy_that_sets_a_role_leaves_it_to_nobody() {
    for server in servers() {
        let mut root = server.root().unwrap();
        root.init_db("test").unwrap();
        for sql in [
            "CREATE ROLE IF NOT EXISTS mirrored_role",
            "GRANT mirrored_role TO app",
            "CREATE OR REPLACE PROCEDURE test.takes_role() SQL SECURITY INVOKER SET ROLE mirrored_role",
        ] {
            root.run(sql).unwrap();
        }
    }
    let reads: [(&str, Setting); 3] = [("match_digest", "CURRENT_ROLE".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = builder(&[&mirrors("takes_role"), &reads]).start().unwrap();
    let mut numbers = Numbers::of(&proxy);
    for (n, sql) in (1..).zip(["CALL takes_role()", "SELECT 1 takes_role; SET ROLE mirrored_role"]) {
        let options = proxy.options("app", "app-pass").with(wire::Capabilities::MULTI_STATEMENTS);
        let mut client = Client::connect(&options).unwrap();
        client.init_db("test").unwrap();
        client.query(sql).unwrap().check().unwrap();
        numbers.wait("done", n);
        for _ in 0..3 {
            let mut reader = Client::connect(&options).unwrap();
            assert_eq!(reader.scalar("SELECT CURRENT_ROLE()").unwrap(), None, "{sql}");
        }
    }
}

#[test]
fn rules_for_copies_begin_at_their_flag() {
    table("flagged", "v VARCHAR(20)");
    let proxy = builder(&[
        &[("match_digest", "^INSERT INTO flagged".into()), ("mirror_flagOUT", 50.into()), ("apply", 1.into())],
        &[("flagIN", 50.into()), ("match_pattern", "'secret'".into()), ("error_msg", "not this one".into()), ("apply", 1.into())],
        &[
            ("flagIN", 50.into()),
            ("match_pattern", "'(.*)'".into()),
            ("replace_pattern", r"'copy of \1'".into()),
            ("destination_hostgroup", 2.into()),
            ("apply", 1.into()),
        ],
    ])
    .start()
    .unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    for v in ["a", "secret", "b"] {
        peer.exec(&format!("INSERT INTO flagged (v) VALUES ('{v}')"));
    }
    assert_eq!(mirrored("flagged", "v", 2), "copy of a|copy of b");
    assert_eq!(contents(&servers()[0], "flagged", "v"), "a|secret|b");
}

#[test]
fn comments_mirror_only_where_they_are_obeyed() {
    table("wished", "n INT");
    for (attributes, copies) in [("", 0), (r#"{"comment_directives": true}"#, 1)] {
        let [one, two] = servers();
        let proxy = Tidegate::builder()
            .backend(1, one)
            .backend(2, two)
            .user_with("app", "app-pass", 1, &[("attributes", attributes.into())])
            .start()
            .unwrap();
        Peer::through(&proxy, Encoding::Text).exec("INSERT /* mirror=2 */ INTO wished (n) VALUES (1)");
        let mut numbers = Numbers::of(&proxy);
        numbers.wait("done", copies);
        mirrored("wished", "n", copies as usize);
    }
}

/// A rule that makes `SELECT 1` something slow on the mirror.
fn slow(seconds: &str, timeout_ms: i64) -> Builder {
    let sleep = format!("SELECT SLEEP({seconds})");
    builder(&[
        &[("match_digest", r"^SELECT \?$".into()), ("mirror_hostgroup", 2.into()), ("mirror_flagOUT", 9.into()), ("apply", 1.into())],
        &[
            ("flagIN", 9.into()),
            ("match_pattern", "^SELECT 1$".into()),
            ("replace_pattern", sleep.as_str().into()),
            ("timeout", timeout_ms.into()),
            ("apply", 1.into()),
        ],
    ])
}

#[test]
fn too_many_are_dropped_and_counted_and_nobody_waits() {
    let proxy = slow("30", 0).variable("mirror_max_concurrency", 2).variable("mirror_max_queue_length", 3).start().unwrap();
    let mut peers = [0, 1, 2].map(|_| Peer::through(&proxy, Encoding::Text));
    let began = Instant::now();
    for _ in 0..10 {
        for peer in &mut peers {
            assert_eq!(peer.get("SELECT 1"), "1");
        }
    }
    assert!(began.elapsed() < Duration::from_secs(10));
    let mut numbers = Numbers::of(&proxy);
    assert_eq!(["concurrency", "queue_length", "dropped", "done"].map(|name| numbers.get(name)), [2, 3, 25, 0]);
    // A larger limit holds at once.
    numbers.0.run("SET mysql-mirror_max_queue_length=4").unwrap();
    numbers.0.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    peers[0].get("SELECT 1");
    assert_eq!(["queue_length", "dropped"].map(|name| numbers.get(name)), [4, 25]);
    let metrics = proxy.log();
    assert!(metrics.contains("mirrored statements dropped"), "the log tells of the first");
}

#[test]
fn a_copy_that_takes_too_long_is_killed() {
    let proxy = slow("29", 300).variable("mirror_max_concurrency", 1).start().unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    assert_eq!([peer.get("SELECT 1"), peer.get("SELECT 2")], ["1", "2"]);
    let mut numbers = Numbers::of(&proxy);
    numbers.wait("failed", 1);
    numbers.wait("done", 1);
    let running = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(29)%'";
    wait::until("the statement to end", LIMIT, || (mirror().scalar(running).unwrap().as_deref() == Some("0")).then_some(())).unwrap();
}

#[test]
fn failures_of_the_mirror_are_only_counted() {
    let nowhere: [(&str, Setting); 3] = [("match_digest", "AS nowhere".into()), ("mirror_hostgroup", 77.into()), ("apply", 1.into())];
    let proxy = builder(&[&mirrors("FROM here"), &nowhere]).start().unwrap();
    servers()[0].sql("CREATE OR REPLACE TABLE test.here (n INT)").unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    assert_eq!(peer.get("SELECT COUNT(*) FROM here"), "0");
    assert_eq!(peer.get("SELECT 5 AS nowhere"), "5");
    let mut numbers = Numbers::of(&proxy);
    numbers.wait("errors", 1);
    numbers.wait("failed", 1);
    assert_eq!(peer.get("SELECT COUNT(*) FROM here"), "0");
    numbers.wait("errors", 2);
}

#[test]
fn large_results_are_forgotten_as_they_come() {
    let proxy = builder(&[
        &[("match_digest", r"^SELECT \?$".into()), ("mirror_hostgroup", 2.into()), ("mirror_flagOUT", 9.into()), ("apply", 1.into())],
        &[
            ("flagIN", 9.into()),
            ("match_pattern", "^.*$".into()),
            ("replace_pattern", "SELECT REPEAT('x', 100000) FROM seq_1_to_3000 UNION ALL SELECT REPEAT('y', 9000000)".into()),
            ("apply", 1.into()),
        ],
    ])
    .start()
    .unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let mut numbers = Numbers::of(&proxy);
    let before = proxy.rss_bytes().unwrap();
    for done in 1..=2 {
        assert_eq!(peer.get("SELECT 1"), "1");
        numbers.wait("done", done);
    }
    let grown = proxy.rss_bytes().unwrap().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more after results of 300 MB");
}
