//! Rehearsals through the real proxy: reads run on a shadow server too, each seeded difference is found, and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

#[path = "rehearsal/collations.rs"]
mod collations;
mod common;
#[path = "rehearsal/exact.rs"]
mod exact;
#[path = "rehearsal/plans.rs"]
mod plans;
#[path = "rehearsal/all.rs"]
mod whole;

use common::{LIMIT, Peer};
use lab::client::{Encoding, Param};
use lab::replication::Replication;
use lab::tidegate::{Setting, find_program};
use lab::{Client, Flavor, Options, Server, Tidegate, wait};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Two servers of a flavor, the second one read-only.
fn servers(flavor: Flavor) -> [Server; 2] {
    let [original, shadow] = [1, 2].map(|_| Server::start(flavor, &Options::new()).unwrap());
    shadow.sql("SET GLOBAL read_only=1").unwrap();
    [original, shadow]
}

/// A proxy whose users are at home in hostgroup 0, with the rehearsal `new` of hostgroup 0 in hostgroup 9.
fn proxy(original: &Server, shadow: &Server, more: &[(&str, Setting)]) -> Tidegate {
    let mut row: Vec<(&str, Setting)> = vec![
        ("name", "new".into()),
        ("source_hostgroup", 0.into()),
        ("shadow_hostgroup", 9.into()),
        ("percent", "100".into()),
        ("warmup_s", 0.into()),
    ];
    row.extend(more.iter().cloned());
    let builder = Tidegate::builder().backend(0, original).backend(9, shadow).app_user();
    builder.variable("threads", 2).row("mysql_rehearsals", &row).start().unwrap()
}

/// The rehearsal, as an administrator sees it.
struct Rehearsal(Client);

impl Rehearsal {
    fn start(proxy: &Tidegate) -> Self {
        let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
        admin.run("START REHEARSAL 'new'").unwrap();
        Self(admin)
    }

    fn get(&mut self, column: &str) -> String {
        self.0.scalar(format!("SELECT {column} FROM stats_tidegate_rehearsals WHERE name='new'")).unwrap().unwrap_or_default()
    }

    fn number(&mut self, column: &str) -> u64 {
        self.get(column).parse().unwrap()
    }

    /// Waits until all that was queued has been judged.
    fn settled(&mut self) {
        wait::until("the shadow", Duration::from_secs(240), || (self.get("queued_bytes") == "0").then_some(())).unwrap();
    }

    /// Comparisons by class of digests like this, without classes of which there was none.
    fn classes(&mut self, like: &str) -> String {
        const CLASSES: &str = "same,same_unordered,timing,error_new,rows,count,affected,error_gone,error_other,timed_out,reordered,limited,float,\
                               columns,insert_id,warnings,out_of_order,noise,unchecked,ignored";
        let sums: Vec<String> = CLASSES.split(',').map(|class| format!("IFNULL(SUM({class}),0)")).collect();
        let sql = format!("SELECT {} FROM stats_tidegate_rehearsal_digests WHERE digest_text LIKE '{like}'", sums.join(","));
        let row = self.0.run(sql).unwrap().table().unwrap().remove(0);
        let counts =
            CLASSES.split(',').zip(row).filter_map(|(class, count)| count.filter(|count| count != "0").map(|n| format!("{class} {n}")));
        counts.collect::<Vec<_>>().join(", ")
    }

    fn samples(&mut self) -> Vec<Vec<Option<String>>> {
        self.0.run("SELECT * FROM stats_tidegate_rehearsal_samples").unwrap().table().unwrap()
    }

    fn page(&mut self) -> String {
        let rows = self.0.run("SHOW REHEARSAL 'new'").unwrap().table().unwrap();
        rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(": ")).collect::<Vec<_>>().join("\n")
    }
}

/// A table with a value of each type, the same on all servers.
fn tables(servers: &[Server; 2]) {
    for server in servers {
        fill(server);
    }
}

fn fill(server: &Server) {
    let mut root = server.root().unwrap();
    for sql in [
        "USE test",
        "CREATE TABLE test.t (id INT PRIMARY KEY, tiny TINYINT, big BIGINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(12,4), y YEAR, \
         day DATE, clock TIME(3), at DATETIME(6), name VARCHAR(40), body TEXT, raw VARBINARY(20), e ENUM('x','y'), b BIT(9))",
        "INSERT INTO test.t SELECT seq, seq - 50, 18446744073709551615 - seq, seq / 3, seq / 7, seq / 11, 2000 + seq, \
         DATE '2026-01-01' + INTERVAL seq DAY, SEC_TO_TIME(seq * 1000.125), TIMESTAMP '2026-01-01 00:00:00' + INTERVAL seq * 1234567 MICROSECOND, \
         IF(seq % 10 = 0, NULL, CONCAT('name ', seq)), REPEAT('ä', seq), LEFT(UNHEX(SHA2(seq, 256)), 20), IF(seq % 2, 'x', 'y'), seq \
         FROM (SELECT a.n * 10 + b.n + 1 AS seq FROM (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION \
         SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8) AS a, (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION \
         SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) AS b) AS numbers",
        "CREATE TABLE test.counters (id INT PRIMARY KEY, n INT)",
        "INSERT INTO test.counters VALUES (1, 0), (2, 0)",
    ] {
        root.run(sql).unwrap();
    }
}

/// Reads of many kinds, with a number in each.
fn reads(n: i64) -> [String; 8] {
    [
        format!("SELECT * FROM t WHERE id = {}", n % 90 + 1),
        format!("SELECT id, name FROM t WHERE id > {} ORDER BY name, id LIMIT 5", n % 80),
        format!("SELECT COUNT(*), SUM(d), AVG(n), MAX(at) FROM t WHERE tiny < {}", n % 40),
        format!("SELECT a.id, b.name FROM t AS a LEFT JOIN t AS b ON b.id = a.id + {}", n % 7),
        format!("SELECT e, COUNT(*) FROM t WHERE id < {} GROUP BY e", n % 90 + 1),
        format!("SELECT 'text {n}', {n} + 1, {n}.5e0 * 3, NULL, DATE '2026-02-03', UPPER('straße')"),
        format!("SELECT no_such_column FROM t WHERE id = {n}"),
        format!("SELECT n FROM counters WHERE id = {}", n % 2 + 1),
    ]
}

/// Each asks reads as text and prepared, in changing state; a writer changes what some of them read.
fn self_rehearsal(flavor: Flavor) {
    const SESSIONS: i64 = 6;
    const ROUNDS: i64 = 300;
    let servers = Replication::start(flavor, 1, &Options::new()).unwrap();
    fill(&servers.primary);
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers.primary, &servers.replicas[0], &[("rechecks_per_s", 100.into())]);
    let (mut rehearsal, proxy) = (Rehearsal::start(&proxy), &proxy);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut peer = Peer::through(proxy, Encoding::Text);
            while !is_over.load(Ordering::Relaxed) {
                peer.exec("UPDATE counters SET n = n + 1 WHERE id = 1");
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        let sessions: Vec<_> = (0..SESSIONS).map(|session| scope.spawn(move || reader(proxy, session, ROUNDS))).collect();
        sessions.into_iter().for_each(|session| session.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    rehearsal.settled();
    let page = rehearsal.page();
    println!("{page}");
    assert_eq!((rehearsal.number("bad"), rehearsal.number("look"), rehearsal.get("error").as_str()), (0, 0, ""), "{page}");
    // A statement that cannot be prepared is never executed.
    let answered: u64 = ["compared", "noise", "unchecked"].iter().map(|column| rehearsal.number(column)).sum();
    assert!(answered >= (SESSIONS * ROUNDS * 15 / 2) as u64, "{page}");
    // A server of a busy machine does not answer each second question in time.
    let verdict = rehearsal.get("verdict");
    assert!(verdict == "SAFE" || verdict == "NOT ENOUGH" && rehearsal.number("unchecked") > 0, "{page}");
}

fn reader(proxy: &Tidegate, session: i64, rounds: i64) {
    let encoding = if session % 2 == 0 { Encoding::Text } else { Encoding::Binary };
    let mut peer = Peer::through(proxy, encoding);
    for round in 0..rounds {
        match round % 20 {
            3 => drop(peer.exec("SET time_zone='+03:00'")),
            5 => drop(peer.exec("SET sql_mode='ANSI'")),
            9 => peer.exec_text("SET NAMES latin1"),
            11 => drop(peer.exec("SET sql_mode=DEFAULT, time_zone=DEFAULT")),
            12 => peer.exec_text("SET NAMES utf8mb4"),
            _ => {}
        }
        for sql in reads(session * 1000 + round) {
            peer.ask(&sql);
        }
    }
}

fn seeded_differences(flavor: Flavor) {
    let both = servers(flavor);
    tables(&both);
    let [original, shadow] = &both;
    let seed = |server: &Server, statements: &[&str]| statements.iter().for_each(|sql| drop(server.sql(sql).unwrap()));
    for (server, collation, order) in
        [(original, "utf8mb4_bin", "(1,'b'),(2,'a'),(3,'c')"), (shadow, "utf8mb4_general_ci", "(3,'c'),(2,'a'),(1,'b')")]
    {
        seed(
            server,
            &[
                &format!("CREATE TABLE test.words (w VARCHAR(9) COLLATE {collation} PRIMARY KEY)"),
                "INSERT INTO test.words VALUES ('B'), ('a'), ('C')",
                "CREATE TABLE test.heap (n INT, g VARCHAR(9)) COLLATE utf8mb4_bin",
                &format!("INSERT INTO test.heap VALUES {order}"),
                "CREATE TABLE test.dropped (a INT PRIMARY KEY, b INT)",
                "INSERT INTO test.dropped VALUES (1, 1)",
                "CREATE TABLE test.wide (v INT)",
                "INSERT INTO test.wide VALUES (7)",
            ],
        );
    }
    seed(original, &["SET GLOBAL sql_mode=''"]);
    seed(
        shadow,
        &[
            "SET GLOBAL sql_mode='ONLY_FULL_GROUP_BY'",
            "ALTER TABLE test.dropped DROP COLUMN b",
            "ALTER TABLE test.wide MODIFY v BIGINT",
            "UPDATE test.t SET name = 'Name 7' WHERE id = 7",
            "UPDATE test.t SET d = d + 1e-14 WHERE id = 9",
            "DELETE FROM test.t WHERE id = 90",
        ],
    );
    let proxy = proxy(original, shadow, &[("rechecks_per_s", 1000.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut peer = Peer::through(&proxy, encoding);
        for sql in [
            "SELECT id, name FROM t WHERE id = 7",
            "SELECT id, name FROM t WHERE id IN (8, 10)",
            "SELECT d FROM t WHERE id = 9",
            "SELECT id FROM t WHERE id > 85",
            "SELECT b FROM dropped",
            "SELECT a FROM dropped",
            "SELECT v FROM wide",
            "SELECT w FROM words ORDER BY w",
            "SELECT w FROM words WHERE w = 'A'",
            "SELECT n FROM heap",
            "SELECT g, n FROM heap GROUP BY g",
            "SELECT UUID()",
            "SELECT n FROM heap LIMIT 1",
        ] {
            peer.exec(sql);
        }
    }
    rehearsal.settled();
    let page = rehearsal.page();
    println!("{page}");
    for (like, expected) in [
        ("SELECT id,name FROM t WHERE id = ?", "rows 2"),
        ("SELECT id,name FROM t WHERE id IN%", "same 2"),
        ("SELECT d FROM t%", "float 2"),
        ("SELECT id FROM t%", "count 2"),
        ("SELECT b FROM dropped", "error_new 2"),
        ("SELECT a FROM dropped", "same 2"),
        ("SELECT v FROM wide", "columns 2"),
        ("SELECT w FROM words ORDER%", "reordered 2"),
        ("SELECT w FROM words WHERE%", "count 2"),
        ("SELECT n FROM heap", "same_unordered 2"),
        ("SELECT g,n FROM heap GROUP%", "error_new 2"),
        ("SELECT UUID%", "noise 2"),
        ("SELECT n FROM heap LIMIT%", "limited 2"),
    ] {
        assert_eq!(rehearsal.classes(like), expected, "{like}\n{page}");
    }
    assert_eq!((rehearsal.number("compared"), rehearsal.get("verdict").as_str()), (24, "NOT SAFE"), "{page}");
    for expected in ["reason: error_new: 2 digests, 4 times", "reason: rows: 1 digest, 2 times", "reason: count: 2 digests, 4 times"] {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
    let samples = rehearsal.0.run("SELECT statement, original, shadow FROM stats_tidegate_rehearsal_samples").unwrap();
    let samples = format!("{:?}", samples.table().unwrap());
    assert!(samples.contains("error 1054") && samples.contains("error 1055") && samples.contains("other columns: types"), "{samples}");
    assert!(!samples.contains("(8, 10)") && !samples.contains("id = 7"), "literals are not shown: {samples}");
    assert_eq!(check(&proxy), 1);
}

/// What an operator ignores does not count, and the page says so with the operator's words.
fn ignored_differences(flavor: Flavor) {
    let both = servers(flavor);
    tables(&both);
    let [original, shadow] = &both;
    for sql in [
        "UPDATE test.t SET name = 'other', tiny = 1 WHERE id = 7",
        "UPDATE test.t SET name = 'other' WHERE id = 8",
        "DROP TABLE test.counters",
    ] {
        shadow.sql(sql).unwrap();
    }
    let proxy = proxy(original, shadow, &[("rechecks_per_s", 1000.into())]);
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec("SELECT n FROM counters");
    let digest = admin.scalar("SELECT digest FROM stats_mysql_query_digest WHERE digest_text = 'SELECT n FROM counters'").unwrap().unwrap();
    for row in [
        format!("'{digest}', '', '', 'error_new', 'the table is gone'"),
        "'', 'test', 'NAME', '', 'names differ'".to_owned(),
        "'', 'other', 'tiny', '', 'not this schema'".to_owned(),
    ] {
        admin.run(format!("INSERT INTO mysql_rehearsal_ignores (digest, schemaname, column_name, class, comment) VALUES ({row})")).unwrap();
    }
    admin.run("LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
    let mut rehearsal = Rehearsal::start(&proxy);
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut peer = Peer::through(&proxy, encoding);
        for sql in ["SELECT n FROM counters", "SELECT tiny, name, id FROM t WHERE id IN (8, 9)", "SELECT tiny, name FROM t WHERE id = 7"] {
            peer.exec(sql);
        }
    }
    rehearsal.settled();
    let page = rehearsal.page();
    println!("{page}");
    for (like, expected) in
        [("SELECT n FROM counters", "ignored 2"), ("SELECT tiny,name,id FROM t%", "ignored 2"), ("SELECT tiny,name FROM t%", "rows 2")]
    {
        assert_eq!(rehearsal.classes(like), expected, "{like}\n{page}");
    }
    assert!(
        page.contains(&format!(
            "ignored: 2 times in {digest} SELECT n FROM counters: the table is gone (digest {digest}, class error_new)"
        ))
    );
    assert!(page.contains("names differ (schemaname test, column_name NAME)") && !page.contains("reason: error_new"), "{page}");
    let why = "SELECT COUNT(*) FROM stats_tidegate_rehearsal_digests WHERE ignored > 0 AND ignored_by LIKE 'names differ%'";
    assert_eq!(rehearsal.0.scalar(why).unwrap().as_deref(), Some("1"));
}

/// Rows of `mysql_rehearsal_ignores` go by the schema in which a statement looks up its names: of a prepared one, that of its PREPARE.
fn ignores_go_by_schema(flavor: Flavor) {
    let both = servers(flavor);
    for (server, changed) in [(&both[0], 1), (&both[1], 2)] {
        for schema in ["test", "test_other"] {
            server.sql(&format!("CREATE DATABASE IF NOT EXISTS {schema}")).unwrap();
            server.sql(&format!("CREATE TABLE {schema}.versions (id INT PRIMARY KEY, changed INT)")).unwrap();
            server.sql(&format!("INSERT INTO {schema}.versions VALUES (1, {changed})")).unwrap();
        }
    }
    let proxy = proxy(&both[0], &both[1], &[("rechecks_per_s", 1000.into())]);
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
    for sql in [
        "INSERT INTO mysql_rehearsal_ignores (schemaname, column_name, comment) VALUES ('test_other', 'changed', 'known')",
        "LOAD MYSQL QUERY RULES TO RUNTIME",
    ] {
        admin.run(sql).unwrap();
    }
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let of_test = peer.prepare("SELECT id, changed FROM versions WHERE id = ?").unwrap();
    peer.exec("USE test_other");
    peer.exec("SELECT changed FROM versions");
    peer.execute(&of_test, &[Param::Int(1)]).unwrap().check().unwrap();
    // An execution outside its schema pins its session, and what follows is not repeated.
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec("USE test_other");
    let of_other = peer.prepare("SELECT id, id, changed FROM versions WHERE id = ?").unwrap();
    peer.exec("USE test");
    peer.execute(&of_other, &[Param::Int(1)]).unwrap().check().unwrap();
    rehearsal.settled();
    for (like, expected) in [
        ("SELECT changed FROM versions", "ignored 1"),
        ("SELECT id,changed FROM versions%", "rows 1"),
        ("SELECT id,id,changed FROM versions%", "ignored 1"),
    ] {
        assert_eq!(rehearsal.classes(like), expected, "{like}\n{}", rehearsal.page());
    }
}

/// The exit code of `tidegate rehearsal check new`.
fn check(proxy: &Tidegate) -> i32 {
    let target = format!("{}:{}", proxy.host(), proxy.admin_port());
    let mut command = Command::new(find_program().unwrap());
    command.args(["rehearsal", "check", "new", &target, "--user", "admin", "--password", "admin"]);
    let output = command.output().unwrap();
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output.status.code().unwrap()
}

/// What is compared, and what is left out with its reason.
fn what_is_repeated(flavor: Flavor) {
    let both = servers(flavor);
    tables(&both);
    both.iter().for_each(|server| drop(server.sql("CREATE DATABASE test_elsewhere").unwrap()));
    let proxy = proxy(&both[0], &both[1], &[("schemas", "test".into()), ("show_literals", 1.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    // A prepared statement runs with its parameters, and user variables have their values.
    let statement = peer.prepare("SELECT id, ? FROM t WHERE name = ? AND at > ?").unwrap();
    let params = [Param::Int(5), Param::Text("name 5".into()), Param::Text("2020-01-01".into())];
    (0..3).for_each(|_| drop(peer.execute(&statement, &params).unwrap().check().unwrap()));
    peer.exec("SET @wanted = 12");
    peer.exec("SELECT name FROM t WHERE id = @wanted");
    peer.exec_all(&["START TRANSACTION READ ONLY", "SELECT MAX(id) FROM t", "COMMIT"]);
    rehearsal.settled();
    assert_eq!((rehearsal.classes("%"), rehearsal.number("skipped")), ("same 5".to_owned(), 0));
    // These are no reads, or of no other connection.
    peer.exec_all(&[
        "UPDATE counters SET n = 1",
        "SELECT n FROM counters WHERE id = 1 FOR UPDATE",
        "SELECT id FROM t WHERE id = LAST_INSERT_ID()",
    ]);
    peer.exec_all(&["BEGIN", "SELECT n FROM counters", "COMMIT", "USE test_elsewhere", "SELECT 1 + 1", "USE test"]);
    peer.exec_all(&["CREATE TEMPORARY TABLE own (a INT)", "SELECT a FROM own", "DROP TEMPORARY TABLE own"]);
    rehearsal.settled();
    assert_eq!((rehearsal.number("compared"), rehearsal.number("skipped")), (5, 3), "{}", rehearsal.page());
    let page = rehearsal.page();
    assert!(page.contains("skipped: 1 in a transaction, 1 pinned state, 1 session facts"), "{page}");
    peer.exec_all(&["PREPARE s FROM 'SELECT n FROM counters'", "EXECUTE s", "DEALLOCATE PREPARE s"]);
    let page = rehearsal.page();
    assert!(page.contains("1 session facts, 1 EXECUTE or CALL") && page.contains(" EXECUTE s"), "{page}");
    let metrics = format!("{:?}", rehearsal.0.run("SHOW PROMETHEUS METRICS").unwrap().table().unwrap());
    assert!(metrics.contains("tidegate_rehearsal_compared_total"), "{metrics}");
    // Differences are found in the values that parameters had.
    both[1].sql("UPDATE test.t SET at = '2019-01-01' WHERE id = 5").unwrap();
    peer.execute(&statement, &params).unwrap().check().unwrap();
    peer.exec("SELECT name FROM t WHERE name = 'name 6'");
    rehearsal.settled();
    both[1].sql("UPDATE test.t SET name = 'x' WHERE id = 6").unwrap();
    peer.exec("SELECT name FROM t WHERE name = 'name 6'");
    rehearsal.settled();
    assert_eq!(rehearsal.number("bad"), 2, "{}", rehearsal.page());
    let samples = rehearsal.0.run("SELECT statement FROM stats_tidegate_rehearsal_samples").unwrap();
    assert!(format!("{:?}", samples.table().unwrap()).contains("name = 'name 6'"), "the operator asked for literals");
    rehearsal.0.run("STOP REHEARSAL 'new'").unwrap();
    peer.exec("SELECT 5 + 5");
    assert_eq!((rehearsal.get("state").as_str(), rehearsal.number("statements")), ("ended", 8));
}

/// A view calls a function that inserts. Its definer has SUPER, whom read_only does not stop.
fn writes_behind_views_are_refused(flavor: Flavor) {
    let both = servers(flavor);
    for server in &both {
        let mut root = server.root().unwrap();
        for sql in [
            "SET GLOBAL log_bin_trust_function_creators = 1",
            "CREATE TABLE test.log (n INT)",
            "CREATE FUNCTION test.note() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN INSERT INTO test.log VALUES (1); RETURN 1; END",
            "CREATE VIEW test.noted AS SELECT test.note() AS n",
            "CREATE FUNCTION test.locks() RETURNS INT DETERMINISTIC RETURN GET_LOCK('behind a view', 0)",
            "CREATE VIEW test.locked AS SELECT test.locks() AS n",
        ] {
            root.run(sql).unwrap();
        }
    }
    both[1].sql("ALTER VIEW test.locked AS SELECT test.locks() + 1 AS n").unwrap();
    let proxy = proxy(&both[0], &both[1], &[("rechecks_per_s", 100.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut peer = Peer::through(&proxy, encoding);
        (0..5).for_each(|_| assert_eq!(peer.get("SELECT n FROM noted"), "1"));
    }
    wait::until("all to be refused", LIMIT, || rehearsal.page().contains("skipped: 10 writes;").then_some(())).unwrap();
    let rows = |server: &Server| server.root().unwrap().scalar("SELECT COUNT(*) FROM test.log").unwrap().unwrap();
    assert_eq!((rows(&both[0]).as_str(), rows(&both[1]).as_str()), ("10", "0"), "{}", rehearsal.page());
    // The answers of the other view differ, so it is asked again on both servers. No lock stays on a connection.
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec("SELECT n FROM locked");
    drop(peer);
    // A copy is queued after its client has the answer.
    wait::until("a recheck", LIMIT, || (rehearsal.number("rechecks") > 0).then_some(())).unwrap();
    rehearsal.settled();
    let free = "SELECT IS_FREE_LOCK('behind a view')";
    wait::until("a free lock", LIMIT, || (both[1].root().unwrap().scalar(free).unwrap().as_deref() == Some("1")).then_some(())).unwrap();
    // Clients may write on the connections that rechecks had.
    let mut peer = Peer::through(&proxy, Encoding::Text);
    (0..4).for_each(|_| drop(peer.exec("INSERT INTO log VALUES (2)")));
    assert_eq!(rows(&both[0]), "14");
}

#[test]
fn what_cannot_be_rehearsed_is_refused_with_a_reason() {
    let both = servers(Flavor::Mariadb);
    tables(&both);
    let [original, shadow] = &both;
    let proxy = proxy(original, shadow, &[]);
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
    let fails = |admin: &mut Client, sql: &str, named: &str| {
        let error = admin.run(sql).unwrap_err().to_string();
        assert!(error.contains(named), "{sql}: {error}");
    };
    fails(&mut admin, "SHOW REHEARSAL 'new'", "was never started");
    fails(&mut admin, "START REHEARSAL 'old'", "there is no rehearsal 'old' at runtime");
    fails(&mut admin, "STOP REHEARSAL 'new'", "does not run");
    shadow.sql("SET GLOBAL read_only=0").unwrap();
    fails(&mut admin, "START REHEARSAL 'new'", "has read_only=0");
    shadow.sql("SET GLOBAL read_only=1").unwrap();
    for sql in [
        "INSERT INTO mysql_servers (hostgroup_id, hostname, port) SELECT 8, hostname, port FROM mysql_servers WHERE hostgroup_id=0",
        "LOAD MYSQL SERVERS TO RUNTIME",
        "UPDATE mysql_rehearsals SET shadow_hostgroup=8",
        "LOAD MYSQL QUERY RULES TO RUNTIME",
    ] {
        admin.run(sql).unwrap();
    }
    fails(&mut admin, "START REHEARSAL 'new'", "is in source_hostgroup 0 too");
    admin.run("UPDATE mysql_rehearsals SET shadow_hostgroup=9, mode='all', percent='50'").unwrap();
    fails(&mut admin, "LOAD MYSQL QUERY RULES TO RUNTIME", "must be 100 with mode 'all'");
    admin.run("UPDATE mysql_rehearsals SET mode='reads', percent='100', on_full='wait'").unwrap();
    fails(&mut admin, "CONFIG CHECK", "must be 'drop' with mode 'reads'");
    admin.run("UPDATE mysql_rehearsals SET on_full='drop', active=0").unwrap();
    admin.run("LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
    fails(&mut admin, "START REHEARSAL 'new'", "is not active");
    admin.run("UPDATE mysql_rehearsals SET active=1").unwrap();
    admin.run("LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
    admin.run("SAVE MYSQL QUERY RULES TO DISK").unwrap();
    // Users whom the shadow does not know: clients notice nothing.
    original.sql("CREATE USER other IDENTIFIED BY 'other-pass'").unwrap();
    original.sql("GRANT ALL ON test.* TO other").unwrap();
    admin.run("INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('other', 'other-pass', 0)").unwrap();
    admin.run("LOAD MYSQL USERS TO RUNTIME").unwrap();
    admin.run("START REHEARSAL 'new' FOR 600 SECONDS").unwrap();
    fails(&mut admin, "START REHEARSAL 'new'", "already runs");
    let mut rehearsal = Rehearsal(admin);
    let options = proxy.options("other", "other-pass").database("test").timeout(LIMIT);
    let mut stranger = Peer::with(&options, Encoding::Text);
    assert_eq!(stranger.get("SELECT 1 + 1"), "2");
    rehearsal.settled();
    assert!(rehearsal.get("error").contains("user 'other' cannot log in to the shadow: "), "{}", rehearsal.get("error"));
    assert_eq!((rehearsal.number("given_up"), rehearsal.number("compared")), (1, 0));
    let mut known = Peer::through(&proxy, Encoding::Text);
    assert_eq!(known.get("SELECT 1 + 1"), "2");
    rehearsal.settled();
    assert_eq!((rehearsal.number("compared"), rehearsal.get("verdict").as_str()), (1, "NOT ENOUGH"));
    assert_eq!(check(&proxy), 2);
    // A row that is gone ends it.
    rehearsal.0.run("DELETE FROM mysql_rehearsals").unwrap();
    rehearsal.0.run("LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
    assert_eq!(rehearsal.0.scalar("SELECT COUNT(*) FROM stats_tidegate_rehearsals").unwrap().as_deref(), Some("0"));
}

#[test]
fn a_shadow_that_hangs_costs_clients_nothing() {
    let both = servers(Flavor::Mariadb);
    tables(&both);
    let proxy = proxy(&both[0], &both[1], &[("queue_mb", 1.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec("SELECT 1");
    rehearsal.settled();
    both[1].sigstop();
    let (filler, began) = ("x".repeat(10_000), Instant::now());
    for n in 0..200 {
        assert_eq!(peer.get(&format!("SELECT {n} + LENGTH('{filler}') * 0")), n.to_string());
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(rehearsal.number("given_up"), 1);
    assert!(rehearsal.page().contains("given up: 1 queue full"), "{}", rehearsal.page());
    assert!(rehearsal.number("queued_bytes") < 20_000, "what waited is forgotten");
    both[1].sigcont();
    // Another session is repeated still.
    let mut other = Peer::through(&proxy, Encoding::Text);
    other.exec("SELECT 2");
    rehearsal.settled();
    assert_eq!(rehearsal.classes("SELECT ?"), "same 2");
}

/// The upgrade that operators ask about: the versions that scripts/setup brings.
#[test]
fn mariadb_10_11_against_11_8() {
    let original = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    let shadow = Server::start(Flavor::Mariadb, &Options::new().mariadb("11.8")).unwrap();
    let both = [original, shadow];
    tables(&both);
    both[1].sql("SET GLOBAL read_only=1").unwrap();
    let proxy = proxy(&both[0], &both[1], &[]);
    let mut rehearsal = Rehearsal::start(&proxy);
    std::thread::scope(|scope| {
        let proxy = &proxy;
        (0..4).for_each(|session| drop(scope.spawn(move || reader(proxy, session, 50))));
    });
    rehearsal.settled();
    let page = rehearsal.page();
    println!("{page}");
    assert!(page.contains("(10.11.") && page.contains("(11.8."), "{page}");
    assert_eq!((rehearsal.number("bad"), rehearsal.get("verdict").as_str()), (0, "SAFE"), "{page}");
    assert_eq!(check(&proxy), 0);
    // Without statistics of the reads nobody knows how much was compared.
    rehearsal.0.run("SELECT COUNT(*) FROM stats_mysql_query_digest_reset").unwrap();
    assert_eq!((rehearsal.get("verdict").as_str(), check(&proxy)), ("NOT ENOUGH", 2), "{}", rehearsal.page());
    assert!(rehearsal.page().contains("stats_mysql_query_digest was reset since the rehearsal began"), "{}", rehearsal.page());
    // The new version lost a table: found at once.
    both[1].sql("DROP TABLE test.counters").unwrap();
    Peer::through(&proxy, Encoding::Text).exec("SELECT n FROM counters WHERE id = 1");
    rehearsal.settled();
    assert_eq!((rehearsal.classes("SELECT n FROM counters%").contains("error_new 1"), check(&proxy)), (true, 1));
}

lab::each!(
    self_rehearsal,
    seeded_differences,
    ignored_differences,
    ignores_go_by_schema,
    what_is_repeated,
    writes_behind_views_are_refused
);
