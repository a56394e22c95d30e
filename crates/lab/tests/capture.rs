//! Captures and replays through the real programs: a load that is captured gives the same answers on a copy, each seeded difference is
//! found, and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, Peer};
use lab::client::{Encoding, Param};
use lab::tidegate::find_program;
use lab::{Client, Flavor, Options, Server, Tidegate, wait};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SESSIONS: i64 = 6;
const ROUNDS: i64 = 40;

fn fill(server: &Server) {
    let mut root = server.root().unwrap();
    for sql in [
        "CREATE TABLE test.accounts (id INT PRIMARY KEY, owner INT, balance INT, note VARCHAR(40), KEY (owner))",
        "CREATE TABLE test.orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT, amount DECIMAL(10,2), at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)",
        "CREATE TABLE test.parts (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id BIGINT, body TEXT, FOREIGN KEY (order_id) REFERENCES orders (id))",
        "CREATE TABLE test.counter (id INT PRIMARY KEY, n INT)",
        "INSERT INTO test.counter VALUES (1, 0)",
    ] {
        root.run(sql).unwrap();
    }
    for session in 0..SESSIONS {
        let rows: Vec<String> = (0..20).map(|n| format!("({}, {session}, 100, 'note {n}')", session * 100 + n)).collect();
        root.run(format!("INSERT INTO test.accounts VALUES {}", rows.join(", "))).unwrap();
    }
}

/// A session: transactions with ids from AUTO_INCREMENT, prepared statements, long data, state, errors.
fn session(proxy: &Tidegate, session: i64) {
    let mut peer = Peer::through(proxy, Encoding::Text);
    let select = peer.prepare("SELECT balance, note FROM accounts WHERE owner = ? AND id > ? ORDER BY id").unwrap();
    let insert = peer.prepare("INSERT INTO orders (account, amount) VALUES (?, ?)").unwrap();
    let part = peer.prepare("INSERT INTO parts (order_id, body) VALUES (?, ?)").unwrap();
    peer.exec("SET @discount = 3, time_zone = '+01:00'");
    for round in 0..ROUNDS {
        let account = session * 100 + round % 20;
        peer.execute(&select, &[Param::Int(session), Param::Int(round)]).unwrap().check().unwrap();
        peer.exec("BEGIN");
        peer.exec(&format!("UPDATE accounts SET balance = balance - {round}, note = 'round {round}' WHERE id = {account}"));
        peer.execute(&insert, &[Param::Int(account), Param::Text(format!("{round}.25"))]).unwrap().check().unwrap();
        let order = peer.get("SELECT LAST_INSERT_ID()");
        peer.exec(&format!("INSERT INTO parts (order_id, body) VALUES ({order}, 'a'), ({order}, 'b')"));
        peer.exec("UPDATE counter SET n = n + 1 WHERE id = 1");
        if round % 10 == 3 {
            // Long data that is never used.
            peer.send_long_data(&part, 1, b"forgotten").unwrap();
            peer.reset_statement(&part).unwrap();
            peer.execute(&part, &[Param::Int(order.parse().unwrap()), Param::Text("c".into())]).unwrap().check().unwrap();
        }
        peer.exec(if round % 10 == 9 { "ROLLBACK" } else { "COMMIT" });
        peer.ask(&format!("SELECT SUM(balance) - @discount FROM accounts WHERE owner = {session}"));
        peer.fails("SELECT no_such_column FROM accounts");
        if round % 15 == 7 {
            peer.exec_text("SET NAMES latin1");
        }
    }
}

fn load(proxy: &Tidegate) {
    std::thread::scope(|scope| (0..SESSIONS).for_each(|number| drop(scope.spawn(move || session(proxy, number)))));
}

fn proxy(server: &Server) -> Tidegate {
    Tidegate::builder().backend(0, server).app_user().variable("threads", 2).start().unwrap()
}

fn admin(proxy: &Tidegate) -> Client {
    wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap()
}

/// Captures a load; the file, once it is complete.
fn capture(proxy: &Tidegate, to: &str, load: impl FnOnce()) -> PathBuf {
    let mut admin = admin(proxy);
    admin.run(format!("CAPTURE START 'load' FOR 600 SECONDS MAX 100 MB {to}")).unwrap();
    load();
    admin.run("CAPTURE STOP 'load'").unwrap();
    let is_written = "SELECT COUNT(*) FROM stats_tidegate_captures WHERE state <> 'ended'";
    wait::until("the file", LIMIT, || (admin.scalar(is_written).unwrap().as_deref() == Some("0")).then_some(())).unwrap();
    let row = admin
        .run("SELECT file, gaps, reason FROM stats_tidegate_captures ORDER BY number DESC LIMIT 1")
        .unwrap()
        .table()
        .unwrap()
        .remove(0);
    assert_eq!(row[1..], [Some("0".to_owned()), Some("CAPTURE STOP".to_owned())]);
    row[0].clone().unwrap().into()
}

/// Runs `tidegate replay`; its exit code and all that it said.
fn replay(file: &Path, to: Option<&Server>, more: &[&str]) -> (i32, String) {
    let mut command = Command::new(find_program().unwrap());
    command.arg("replay").arg(file).args(["--user", "app", "--speed", "0"]).args(more).env("TIDEGATE_REPLAY_PASSWORD", "app-pass");
    if let Some(server) = to {
        command.args(["--to", &server.address()]);
    }
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    (output.status.code().unwrap(), text)
}

/// What cannot be judged on a loaded machine: how much slower a server of tests is.
const NO_TIMES: [&str; 4] = ["--slow-factor", "1000000", "--total-growth", "1000000"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&NO_TIMES, more].concat()
}

/// What tables have. The original's timestamps are those of its server's clock, which no replay knows to the second.
fn checksums(server: &Server) -> Vec<Option<String>> {
    let tables = ["accounts", "parts", "counter", "(SELECT id, account, amount FROM test.orders)"];
    let columns = ["id, owner, balance, note", "id, order_id, body", "id, n", "id, account, amount"];
    let mut root = server.root().unwrap();
    let mut sum = |(table, columns): (&str, &str)| {
        let table = if table.starts_with('(') { table.to_owned() } else { format!("test.{table}") };
        root.scalar(format!("SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(CONCAT_WS('|', {columns})))) FROM {table} AS t")).unwrap()
    };
    tables.into_iter().zip(columns).map(&mut sum).collect()
}

/// Lines of a report's table.
fn rows(report: &Path, sql: &str) -> Vec<String> {
    let db = rusqlite::Connection::open(report).unwrap();
    let mut select = db.prepare(sql).unwrap();
    let rows = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn server(flavor: Flavor) -> Server {
    let server = Server::start(flavor, &Options::new()).unwrap();
    fill(&server);
    server
}

fn a_load_gives_the_same_answers_on_copies(flavor: Flavor) {
    let [original, first, second] = [1, 2, 3].map(|_| server(flavor));
    let proxy = proxy(&original);
    let file = capture(&proxy, "PLAIN", || load(&proxy));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, text) = replay(&file, None, &["--dry-run"]);
    assert_eq!(code, 0);
    assert!(text.contains(&format!("{SESSIONS} sessions")) && text.contains("gaps: none; not captured: none"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let [base, again] = ["base", "again"].map(|name| dir.path().join(name));
    let (code, text) = replay(&file, Some(&first), &with(&["--report", base.to_str().unwrap()]));
    assert!(code != 1 && !text.contains("differs"), "{code}: {text}");
    assert_eq!(checksums(&first), checksums(&original), "ids and rows are those of the original");
    let (code, text) = replay(&file, Some(&second), &with(&["--against", base.to_str().unwrap(), "--report", again.to_str().unwrap()]));
    assert!(code != 1 && !text.contains("differs") && text.contains("compared with a base run"), "{code}: {text}");
    assert_eq!(checksums(&second), checksums(&original));
    let count = "SELECT CAST(COUNT(*) AS TEXT) FROM answers";
    assert_eq!(rows(&base, count), rows(&again, count));
    let digests = "SELECT digest || ' ' || digest_text FROM digests ORDER BY 1";
    assert_eq!(rows(&base, digests), rows(&again, digests));
    assert!(rows(&again, "SELECT text FROM page WHERE part = 'verdict'")[0] != "NOT SAFE");
}

fn each_seeded_difference_is_found(flavor: Flavor) {
    let [original, other] = [1, 2].map(|_| server(flavor));
    let proxy = proxy(&original);
    let file = capture(&proxy, "PLAIN", || {
        let mut peer = Peer::through(&proxy, Encoding::Text);
        let select = peer.prepare("SELECT note FROM accounts WHERE id = ?").unwrap();
        for id in 0..10 {
            peer.execute(&select, &[Param::Int(id)]).unwrap().check().unwrap();
            peer.exec(&format!("SELECT balance FROM accounts WHERE id = {}", id + 100));
            peer.exec(&format!("UPDATE accounts SET balance = 1 WHERE owner = 2 AND id < 20{id}"));
        }
        peer.exec("SELECT n FROM counter");
    });
    for sql in [
        "UPDATE test.accounts SET note = 'other' WHERE id = 7",
        "DELETE FROM test.accounts WHERE id = 205",
        "ALTER TABLE test.counter RENAME COLUMN n TO m",
    ] {
        other.sql(sql).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report");
    let (code, text) = replay(&file, Some(&other), &with(&["--report", report.to_str().unwrap()]));
    assert_eq!(code, 1);
    let found = rows(
        &report,
        "SELECT digest_text || ': ' || rows || ' ' || count || ' ' || affected || ' ' || error_new FROM digests \
         WHERE rows + count + affected + error_new > 0 ORDER BY 1",
    );
    assert_eq!(
        found,
        [
            "SELECT n FROM counter: 0 0 0 1",
            "SELECT note FROM accounts WHERE id = ?: 1 0 0 0",
            "UPDATE accounts SET balance = ? WHERE owner = ? AND id < ?: 0 0 1 0"
        ],
        "{text}"
    );
    let samples = rows(&report, "SELECT statement || original || shadow FROM samples").join("\n");
    assert!(samples.contains("error 1054") && !samples.contains("id = 7"), "{samples}");
}

/// A sample's schema is that in which its statement looked up names: after USE and COM_INIT_DB, and of a prepared statement that of its PREPARE.
fn samples_name_the_schema_of_each_statement(flavor: Flavor) {
    let [original, other] = [1, 2].map(|_| server(flavor));
    for (server, n) in [(&original, 1), (&other, 2)] {
        for schema in ["test", "test_other"] {
            server.sql(&format!("CREATE DATABASE IF NOT EXISTS {schema}")).unwrap();
            server.sql(&format!("CREATE TABLE {schema}.versions (a INT, b INT, c INT)")).unwrap();
            server.sql(&format!("INSERT INTO {schema}.versions VALUES ({n}, {n}, {n})")).unwrap();
        }
    }
    let proxy = proxy(&original);
    let file = capture(&proxy, "PLAIN", || {
        let mut peer = Peer::through(&proxy, Encoding::Text);
        let of_test = peer.prepare("SELECT a FROM versions").unwrap();
        peer.exec("USE test_other");
        peer.exec("SELECT b FROM versions");
        peer.execute(&of_test, &[]).unwrap().check().unwrap();
        let of_other = peer.prepare("SELECT a, b FROM versions").unwrap();
        peer.init_db("test").unwrap().check().unwrap();
        peer.fails("USE no_such_schema");
        peer.exec("SELECT c FROM versions");
        peer.execute(&of_other, &[]).unwrap().check().unwrap();
    });
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report");
    let (code, text) = replay(&file, Some(&other), &with(&["--report", report.to_str().unwrap()]));
    assert_eq!(code, 1);
    let found = rows(&report, "SELECT statement || ': ' || schemaname FROM samples WHERE class = 'rows' ORDER BY 1");
    let expected = [
        "SELECT a FROM versions: test",
        "SELECT a,b FROM versions: test_other",
        "SELECT b FROM versions: test_other",
        "SELECT c FROM versions: test",
    ];
    assert_eq!(found, expected, "{text}");
}

fn reads_only_sends_no_write(flavor: Flavor) {
    let [original, other] = [1, 2].map(|_| server(flavor));
    let proxy = proxy(&original);
    let file = capture(&proxy, "PLAIN", || load(&proxy));
    let before = checksums(&other);
    let writes = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_insert', 'Com_update', 'Com_delete', 'Com_replace')";
    let counts = |server: &Server| server.root().unwrap().run(writes).unwrap().table().unwrap();
    let sent = counts(&other);
    let (code, text) = replay(&file, Some(&other), &with(&["--reads-only", "--times", "3"]));
    assert!(code != 1 && text.contains("may write"), "{code}: {text}");
    assert_eq!((checksums(&other), counts(&other)), (before, sent));
}

/// Replays, and ends the replay with a signal once it has come so far (bytes of its progress).
fn interrupt(file: &Path, to: &Server, report: &Path, signal: &str, after: u64) -> (Option<i32>, String) {
    let mut command = Command::new(find_program().unwrap());
    command.arg("replay").arg(file).args(with(&["--user", "app", "--speed", "0", "--to", &to.address()])).arg("--report").arg(report);
    let child = command.env("TIDEGATE_REPLAY_PASSWORD", "app-pass").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let progress = PathBuf::from(format!("{}.progress", report.display()));
    let has_come = || fs::metadata(&progress).is_ok_and(|meta| meta.len() > after).then_some(());
    wait::until("progress", LIMIT, has_come).unwrap();
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    (output.status.code(), text)
}

fn an_interrupted_replay_goes_on(flavor: Flavor) {
    let [original, whole, first, second] = [1, 2, 3, 4].map(|_| server(flavor));
    let proxy = proxy(&original);
    let file = capture(&proxy, "PLAIN", || load(&proxy));
    let dir = tempfile::tempdir().unwrap();
    let [base, stopped, killed] = ["base", "stopped", "killed"].map(|name| dir.path().join(name));
    replay(&file, Some(&whole), &with(&["--report", base.to_str().unwrap()]));
    let answers = |report: &Path| rows(report, "SELECT CAST(COUNT(*) AS TEXT) FROM answers").remove(0);
    let compared = |report: &Path| rows(report, "SELECT CAST(SUM(compared) AS TEXT) FROM digests").remove(0);
    // Ctrl-C: all that had begun has ended.
    let (code, text) = interrupt(&file, &first, &stopped, "-INT", 20_000);
    assert!(code == Some(2) && text.contains("the replay was interrupted") && text.contains("with --resume goes on"), "{code:?}: {text}");
    assert_ne!(checksums(&first), checksums(&original));
    let report = ["--report", stopped.to_str().unwrap()];
    let (code, text) = replay(&file, Some(&first), &with(&report));
    assert!(code == 1 && text.contains("add --resume to go on"), "{text}");
    let (code, text) = replay(&file, Some(&first), &with(&["--resume", "--no-pin", report[0], report[1]]));
    assert!(code == 1 && text.contains("(no-pin false, and now no-pin true)"), "{text}");
    let (code, text) = replay(&file, Some(&first), &with(&["--resume", report[0], report[1]]));
    assert!(code != 1 && !text.contains("differs") && text.contains("not replayed to their end: none"), "{code}: {text}");
    assert_eq!(checksums(&first), checksums(&original), "each write ran once");
    assert_eq!((answers(&stopped), compared(&stopped)), (answers(&base), compared(&base)));
    let (code, text) = replay(&file, Some(&first), &with(&["--resume", report[0], report[1]]));
    assert!(code == 1 && text.contains("no replay with this report was interrupted"), "{text}");
    // kill -9: of a write that was under way it may not be known whether it was committed. Then its session is not replayed any more.
    let report = ["--report", killed.to_str().unwrap()];
    let (code, _) = interrupt(&file, &second, &killed, "-KILL", 20_000);
    assert_eq!(code, None);
    let (code, text) = replay(&file, Some(&second), &with(&["--resume", report[0], report[1]]));
    if text.contains("cannot be resumed") {
        assert!(code != 0 && text.contains("whether its last write was committed is not known"), "{code}: {text}");
    } else {
        assert!(code != 1 && !text.contains("differs"), "{code}: {text}");
        assert_eq!(checksums(&second), checksums(&original));
    }
}

/// All of a report but times.
fn whole_report(report: &Path) -> Vec<String> {
    let mut found = rows(
        report,
        "SELECT seq || ' ' || IFNULL(error, 0) || ' ' || row_count || ' ' || affected || ' ' || insert_id || ' ' || warnings || ' ' || HEX(answer) \
         FROM answers ORDER BY seq",
    );
    let digests = "SELECT digest || ' ' || digest_text || ' ' || compared || ' ' || same || ' ' || unchecked || ' ' || noise || ' ' || rows \
                   || ' ' || error_new FROM digests ORDER BY 1";
    found.extend(rows(report, digests));
    found.extend(rows(
        report,
        "SELECT digest || class || username || schemaname || statement || original || shadow FROM samples ORDER BY 1",
    ));
    found.extend(rows(report, "SELECT part || ': ' || text FROM page WHERE part NOT IN ('replay', 'all', 'slower', 'faster')"));
    found
}

/// Runs until a statement waits for a row's lock, is killed there, and goes on: nothing of the report tells that.
fn a_replay_that_is_killed_amid_a_transaction_goes_on(flavor: Flavor) {
    const PLACES: i64 = 4;
    let [original, whole, killed] = [1, 2, 3].map(|_| {
        let server = server(flavor);
        server.sql("CREATE TABLE test.places (id INT PRIMARY KEY, n INT)").unwrap();
        server.sql("INSERT INTO test.places VALUES (0, 0), (1, 0), (2, 0), (3, 0)").unwrap();
        server
    });
    let proxy = proxy(&original);
    let file = capture(&proxy, "PLAIN", || {
        let mut peer = Peer::through(&proxy, Encoding::Text);
        let insert = peer.prepare("INSERT INTO orders (account, amount) VALUES (?, ?)").unwrap();
        let part = peer.prepare("INSERT INTO parts (order_id, body) VALUES (?, ?)").unwrap();
        for place in 0..PLACES {
            peer.exec(&format!("SET @place = {place}"));
            peer.exec("INSERT INTO orders (account, amount) VALUES (1, @place)");
            peer.exec("BEGIN");
            peer.execute(&insert, &[Param::Int(place), Param::Text("1.25".into())]).unwrap().check().unwrap();
            let order: i64 = peer.get("SELECT LAST_INSERT_ID()").parse().unwrap();
            peer.send_long_data(&part, 1, b"long").unwrap();
            peer.execute(&part, &[Param::Int(order), Param::Long]).unwrap().check().unwrap();
            peer.exec("SAVEPOINT before_it");
            peer.exec(&format!("UPDATE places SET n = n + 1 WHERE id = {place}"));
            peer.exec("UPDATE accounts SET balance = balance - @place WHERE owner = 2");
            peer.exec(if place == 1 { "ROLLBACK" } else { "COMMIT" });
            peer.fails("SELECT no_such_column FROM accounts");
            peer.exec("SELECT COUNT(*), SUM(amount) FROM orders");
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    replay(&file, Some(&whole), &with(&["--report", base.to_str().unwrap()]));
    let report = dir.path().join("killed");
    let mut command = Command::new(find_program().unwrap());
    command.arg("replay").arg(&file).args(with(&["--user", "app", "--speed", "0", "--to", &killed.address()])).arg("--report").arg(&report);
    command.env("TIDEGATE_REPLAY_PASSWORD", "app-pass").stdout(Stdio::null()).stderr(Stdio::null());
    for place in 0..PLACES {
        let mut holder = killed.root().unwrap();
        holder.run("BEGIN").unwrap();
        holder.run(format!("SELECT n FROM test.places WHERE id = {place} FOR UPDATE")).unwrap();
        let mut child = command.spawn().unwrap();
        let of_app = |what: &str| format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app'{what}");
        let waits = of_app(&format!(" AND info = 'UPDATE places SET n = n + 1 WHERE id = {place}'"));
        let count = |sql: &str| killed.scalar(sql).unwrap().unwrap();
        wait::until("the statement to wait", LIMIT, || (count(&waits) == "1").then_some(())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        holder.run("ROLLBACK").unwrap();
        wait::until("the server to roll back", LIMIT, || (count(&of_app("")) == "0").then_some(())).unwrap();
        if place == 0 {
            command.arg("--resume");
        }
    }
    let (code, text) = replay(&file, Some(&killed), &with(&["--resume", "--report", report.to_str().unwrap()]));
    assert!(code != 1 && !text.contains("cannot be resumed"), "{code}: {text}");
    assert_eq!(whole_report(&report), whole_report(&base));
    assert_eq!(checksums(&killed), checksums(&original));
    assert_eq!(checksums(&whole), checksums(&original));
}

/// What a slow log and the proxy's events log (JSON and binary) have is sent; its answers are not known.
fn logs_are_replayed(flavor: Flavor) {
    for (format, form) in [(2, "events log (JSON)"), (1, "events log (binary)")] {
        let [original, by_slow, by_events] = [1, 2, 3].map(|_| server(flavor));
        let slow = original.datadir().join("slow.log");
        for sql in [
            format!("SET GLOBAL slow_query_log_file = '{}'", slow.display()),
            "SET GLOBAL long_query_time = 0".to_owned(),
            "SET GLOBAL slow_query_log = ON".to_owned(),
        ] {
            original.sql(&sql).unwrap();
        }
        let builder = Tidegate::builder().backend(0, &original).app_user().variable("eventslog_filename", "queries");
        let proxy = builder.variable("eventslog_format", format).variable("eventslog_default_log", 1).start().unwrap();
        let mut peer = Peer::through(&proxy, Encoding::Text);
        for round in 0..5 {
            peer.exec_all(&[
                "BEGIN",
                &format!("INSERT INTO orders (account, amount) VALUES (1, {round}.5), (2, 2)"),
                "INSERT INTO parts (order_id, body) VALUES (LAST_INSERT_ID(), 'of it\n# Query: no')",
                "UPDATE accounts SET balance = balance + 1 WHERE id < 5",
                if round == 3 { "ROLLBACK" } else { "COMMIT" },
                "SELECT COUNT(*) FROM orders",
            ]);
        }
        drop(peer);
        original.sql("SET GLOBAL slow_query_log = OFF").unwrap();
        proxy.stop().unwrap();
        let events = proxy.dir().join("queries.00000001");
        for (log, to, named) in [(slow, &by_slow, "slow log"), (events, &by_events, form)] {
            let (code, text) = replay(&log, None, &["--dry-run"]);
            assert!(code == 0 && text.contains(&format!("a {named} has texts and times only")), "{text}");
            let (code, text) = replay(&log, Some(to), &with(&[]));
            assert!(code == 2 && text.contains("NOT ENOUGH") && text.contains("lossy"), "{code}: {text}");
            assert_eq!(checksums(to), checksums(&original), "{named}: {text}");
        }
    }
}

#[test]
fn a_sealed_file_opens_with_its_key_and_a_cut_one_says_where() {
    let [original, other] = [1, 2].map(|_| server(Flavor::Mariadb));
    let proxy = proxy(&original);
    let dir = tempfile::tempdir().unwrap();
    let keys = ["friday", "monday"].map(|name| dir.path().join(name).display().to_string());
    for name in &keys {
        assert!(Command::new(find_program().unwrap()).args(["replay", "--keygen", name]).status().unwrap().success());
    }
    let file = capture(&proxy, &format!("TO PUBLIC KEY '{}.pub.pem'", keys[0]), || {
        let mut peer = Peer::through(&proxy, Encoding::Text);
        (0..100).for_each(|n| drop(peer.exec(&format!("SELECT balance FROM accounts WHERE id = {n}"))));
    });
    let [right, wrong] = keys.map(|name| format!("{name}.key.pem"));
    let (code, text) = replay(&file, Some(&other), &[]);
    assert!(code == 1 && text.contains("name the private key with --key"), "{text}");
    let (code, text) = replay(&file, Some(&other), &["--key", &wrong]);
    assert!(code == 1 && text.contains("and the given private key opens files of key"), "{text}");
    let (code, text) = replay(&file, Some(&other), &with(&["--key", &right]));
    assert!(code == 0 && text.contains("SAFE"), "{code}: {text}");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 10]).unwrap();
    let (code, text) = replay(&file, Some(&other), &with(&["--key", &right]));
    assert!(code == 2 && text.contains("is cut off: it is whole up to byte ") && text.contains("NOT ENOUGH"), "{code}: {text}");
    fs::write(&file, "no capture").unwrap();
    let (code, text) = replay(&file, Some(&other), &[]);
    assert!(code == 1 && text.contains("this is not a capture file"), "{text}");
}

#[test]
fn orders_that_cannot_be_carried_out_say_why() {
    let original = server(Flavor::Mariadb);
    let proxy = proxy(&original);
    let mut admin = admin(&proxy);
    for (sql, named) in [
        ("CAPTURE START 'a' FOR 10 SECONDS MAX 1 MB", "TO PUBLIC KEY 'file' or PLAIN is missing"),
        ("CAPTURE START 'a' FOR 10 SECONDS MAX 1 MB USERS 'stranger' PLAIN", "user 'stranger' is not in mysql_users"),
        ("CAPTURE START 'a' FOR 10 SECONDS MAX 1 MB TO PUBLIC KEY 'none.pem'", "public key "),
        ("CAPTURE STOP 'a'", "does not run"),
    ] {
        let error = admin.run(sql).unwrap_err().to_string();
        assert!(error.contains(named), "{sql}: {error}");
    }
    admin.run("CAPTURE START 'a' FOR 600 SECONDS MAX 1 MB PLAIN").unwrap();
    let error = admin.run("CAPTURE START 'b' FOR 600 SECONDS MAX 1 MB PLAIN").unwrap_err().to_string();
    assert!(error.contains("capture 'a' runs"), "{error}");
    // MAX ends it.
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let mut seed = 1_u64;
    let mut letter = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'A' + u8::try_from(seed >> 33 & 31).unwrap())
    };
    for _ in 0..30 {
        let text: String = (0..100_000).map(|_| letter()).collect();
        peer.exec(&format!("SELECT LENGTH('{}')", text.replace('\\', "/")));
    }
    let reason = "SELECT reason FROM stats_tidegate_captures WHERE state = 'ended'";
    assert_eq!(wait::until("MAX", LIMIT, || admin.scalar(reason).unwrap()).unwrap(), "MAX was reached");
    let metrics = format!("{:?}", admin.run("SHOW PROMETHEUS METRICS").unwrap().table().unwrap());
    assert!(metrics.contains("tidegate_capture_commands_total"), "{metrics}");
}

/// The upgrade that operators ask about: the versions that scripts/setup brings.
#[test]
fn mariadb_10_11_against_11_8() {
    let original = server(Flavor::Mariadb);
    let other = Server::start(Flavor::Mariadb, &Options::new().mariadb("11.8")).unwrap();
    fill(&other);
    let proxy = proxy(&original);
    let file = capture(&proxy, "PLAIN", || load(&proxy));
    let (code, text) = replay(&file, Some(&other), &with(&[]));
    assert!(code != 1 && !text.contains("differs") && text.contains("(11.8."), "{code}: {text}");
    let rows = |server: &Server| server.root().unwrap().scalar("SELECT GROUP_CONCAT(id ORDER BY id) FROM test.orders").unwrap();
    assert_eq!(rows(&original), rows(&other));
}

lab::each!(
    a_load_gives_the_same_answers_on_copies,
    each_seeded_difference_is_found,
    samples_name_the_schema_of_each_statement,
    reads_only_sends_no_write,
    an_interrupted_replay_goes_on,
    a_replay_that_is_killed_amid_a_transaction_goes_on,
    logs_are_replayed
);
