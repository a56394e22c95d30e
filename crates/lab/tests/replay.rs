//! With `transaction_replay` a transaction survives the loss of its server, if every answer is the same again.
//!
//! Nothing is lost or done twice, and a client whose answers differ gets an error.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, Peer};
use lab::client::{Encoding, Execution, Param};
use lab::fault::{Lost, Relay};
use lab::replication::{self, Replication, set_read_only};
use lab::tidegate::{Builder, Setting};
use lab::{Client, ConnectOptions, Flavor, Options, Server, Tidegate, wait};

lab::each!(
    a_transaction_goes_on_when_its_connection_is_lost,
    executions_are_replayed_with_their_parameters,
    replayed_executions_settle_no_types_for_others,
    a_statement_prepared_under_other_settings_is_not_repeated,
    what_the_last_statement_left_is_there_after_a_replay,
    rows_behind_a_cursor_are_not_repeated,
    a_statement_that_waits_is_sent_again,
    other_answers_end_the_transaction,
    answers_that_say_something_else_end_the_transaction,
    what_was_killed_is_not_replayed,
    a_commit_that_is_refused_happens_elsewhere,
    a_commit_without_an_answer_is_never_sent_twice,
    what_is_too_large_is_not_kept,
    generated_ids_stay,
    ids_that_rows_had_of_their_own_are_left_to_nobody,
    generated_ids_are_not_taken_meanwhile,
    an_idle_clients_transaction_is_replayed_at_once,
    an_idle_clients_replay_that_fails_is_told_of,
    a_writer_that_lost_its_role_and_lives_keeps_no_transaction,
    a_deadlock_is_made_good_where_that_is_wanted,
    without_autocommit_too,
    settings_may_come_between_without_autocommit,
    settings_of_one_statement_are_replayed,
    a_savepoint_may_come_first,
    a_snapshot_is_not_taken_anew,
    what_cannot_be_repeated_is_not,
    chained_transactions_are_transactions,
    transactions_that_follow_another_one_are_replayed,
    a_refused_commit_that_cannot_be_repeated_is_told_as_a_loss,
    at_a_promotion_replays_go_first,
    a_lost_connection_keeps_no_locks,
    nothing_is_killed_on_a_server_that_was_started_since,
    a_replay_that_is_given_up_is_ended_on_the_server,
);

const BOTH: [Encoding; 2] = [Encoding::Text, Encoding::Binary];

struct Bed {
    // Dropped first, so that it does not complain of lost servers.
    proxy: Tidegate,
    relay: Relay,
    servers: Vec<Server>,
}

impl Bed {
    fn new(flavor: Flavor, servers: usize, settings: &[(&str, Setting)]) -> Bed {
        let servers: Vec<Server> = (0..servers).map(|_| Server::start(flavor, &Options::new()).unwrap()).collect();
        for server in &servers {
            server.sql("CREATE TABLE test.t(i INT PRIMARY KEY, v INT DEFAULT 0) ENGINE=InnoDB").unwrap();
            server.sql("CREATE TABLE test.a(id INT PRIMARY KEY AUTO_INCREMENT, v INT) ENGINE=InnoDB").unwrap();
        }
        // The first server is behind a network that can fail.
        let relay = Relay::to(&servers[0].address()).unwrap();
        let builder = Tidegate::builder()
            .app_user()
            .variable("threads", 1)
            .variable("monitor_enabled", false)
            .variable("transaction_replay", true)
            .row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())])
            .server_with(0, "127.0.0.1", relay.port(), &[("weight", 10_000_000.into())]);
        let with = |builder: Builder, server: &Server| builder.server(0, "127.0.0.1", server.port());
        let builder = servers.iter().skip(1).fold(builder, with);
        let set = |builder: Builder, (name, value): &(&str, Setting)| builder.variable(name, value.clone());
        Bed { proxy: settings.iter().fold(builder, set).start().unwrap(), relay, servers }
    }

    fn peer(&self, encoding: Encoding) -> Peer {
        Peer::through(&self.proxy, encoding)
    }

    fn root(&self) -> Client {
        self.servers[0].root().unwrap()
    }

    fn value(&self, server: usize, sql: &str) -> String {
        self.servers[server].scalar(sql).unwrap().unwrap()
    }

    fn counter(&self, name: &str) -> u64 {
        let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='{name}'");
        self.proxy.admin().unwrap().scalar(sql).unwrap().unwrap_or_else(|| panic!("{name} is not there")).parse().unwrap()
    }

    fn replays(&self) -> (u64, u64) {
        (self.counter("tidegate_transaction_replays_ok"), self.counter("tidegate_transaction_replays_failed"))
    }

    /// Waits until the server has certainly run for longer than connections that are opened from now on: it counts whole seconds.
    fn wait_uptime(&self) {
        let uptime = || self.servers[0].sql("SHOW GLOBAL STATUS LIKE 'Uptime'").unwrap().rows().unwrap().field(0, "Value").unwrap();
        wait::until("the server to have run for a while", LIMIT, || (uptime().parse::<u64>().unwrap() >= 3).then_some(())).unwrap();
    }

    /// Cuts the connections, and waits until the server has rolled back their transactions.
    fn cut(&self) {
        self.relay.cut();
        let gone = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'";
        let mut root = self.root();
        wait::until("the connections to end", LIMIT, || (root.scalar(gone).unwrap().as_deref() == Some("0")).then_some(())).unwrap();
    }
}

fn a_transaction_goes_on_when_its_connection_is_lost(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        let n = turn * 100;
        peer.exec("SET @base = 7");
        peer.exec("START TRANSACTION");
        peer.exec(&format!("INSERT INTO t VALUES({n}, @base)"));
        peer.exec("SET @base = 8");
        peer.exec("SAVEPOINT a");
        bed.cut();
        peer.exec(&format!("INSERT INTO t VALUES({n} + 1, @base)"));
        assert_eq!(peer.fails(&format!("INSERT INTO t VALUES({n}, 1)")), 1062, "errors of statements are answers too");
        bed.cut();
        peer.exec("ROLLBACK TO a");
        bed.cut();
        assert_eq!(peer.row(&format!("SELECT COUNT(*), SUM(v), @base FROM t WHERE i >= {n}")), "1 7 8");
        bed.cut();
        peer.exec("COMMIT");
        assert_eq!(bed.value(0, "SELECT CONCAT(COUNT(*), ' ', SUM(v)) FROM test.t"), format!("{} {}", turn + 1, (turn + 1) * 7));
        bed.cut();
        assert_eq!(peer.get("SELECT 1"), "1");
    }
    assert_eq!(bed.replays(), (8, 0));
}

fn executions_are_replayed_with_their_parameters(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    let mut client = bed.peer(Encoding::Binary).into_client();
    let insert = client.prepare("INSERT INTO t VALUES(?, ?)").unwrap();
    let select = client.prepare("SELECT v FROM t WHERE i = ?").unwrap();
    client.run("BEGIN").unwrap();
    for n in 0..5_i64 {
        client.execute(&insert, &[Param::Int(n), Param::Int(n * n)]).unwrap().check().unwrap();
        assert_eq!(client.execute(&select, &[Param::Int(n)]).unwrap().scalar().unwrap(), Some((n * n).to_string()));
        bed.cut();
    }
    client.run("COMMIT").unwrap();
    assert_eq!(bed.value(0, "SELECT CONCAT(COUNT(*), ' ', SUM(v)) FROM test.t"), "5 30");
    assert_eq!(bed.replays(), (5, 0));
}

/// MySQL keeps the types of a statement's first execution, and converts parameters of other types.
fn replayed_executions_settle_no_types_for_others(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    bed.servers[0].sql("CREATE TABLE test.words(s VARCHAR(20))").unwrap();
    bed.servers[0].sql("INSERT INTO test.words VALUES ('abc'), ('7')").unwrap();
    let text = "SELECT s FROM words WHERE s = ?";
    let mut client = bed.peer(Encoding::Binary).into_client();
    let statement = client.prepare(text).unwrap();
    client.run("BEGIN").unwrap();
    assert_eq!(client.execute(&statement, &[Param::Int(7)]).unwrap().scalar().unwrap().as_deref(), Some("7"));
    client.run("INSERT INTO t VALUES(1, 1)").unwrap();
    bed.cut();
    client.run("ROLLBACK").unwrap();
    client.run("BEGIN").unwrap();
    assert_eq!(client.execute(&statement, &[Param::Int(7)]).unwrap().scalar().unwrap().as_deref(), Some("7"));
    client.run("INSERT INTO t VALUES(1, 1)").unwrap();
    bed.cut();
    client.run("INSERT INTO t VALUES(2, 2)").unwrap();
    client.run("ROLLBACK").unwrap();
    let mut other = bed.peer(Encoding::Binary).into_client();
    let statement = other.prepare(text).unwrap();
    for _ in 0..2 {
        // As a number it would be nought, and so would 'abc'.
        let found = other.execute(&statement, &[Param::Text("xyz".into())]).unwrap();
        assert_eq!(found.table().unwrap().concat(), [None::<String>; 0]);
    }
}

/// Under the settings of now its text would mean something else.
fn a_statement_prepared_under_other_settings_is_not_repeated(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    bed.servers[0].sql("INSERT INTO test.t VALUES (1, 5)").unwrap();
    let text = r#"UPDATE t SET v = v + "1" || 0 WHERE i = ?"#;
    for (then, now) in [("PIPES_AS_CONCAT", ""), ("", "PIPES_AS_CONCAT")] {
        let mut client = bed.peer(Encoding::Binary).into_client();
        client.run(format!("SET sql_mode = '{then}'")).unwrap();
        let statement = client.prepare(text).unwrap();
        client.run(format!("SET sql_mode = '{now}'")).unwrap();
        client.run("BEGIN").unwrap();
        client.execute(&statement, &[Param::Int(1)]).unwrap().check().unwrap();
        bed.cut();
        assert_eq!(client.run("COMMIT").unwrap_err().code(), Some(lab::SERVER_LOST), "'{then}' then, '{now}' now");
    }
    assert_eq!(bed.value(0, "SELECT v FROM test.t"), "5");
}

/// FOUND_ROWS() is of the session's last statement, whatever the replay asks of ids.
fn what_the_last_statement_left_is_there_after_a_replay(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    bed.servers[0].sql("INSERT INTO test.t VALUES (1, 1), (2, 2), (3, 3)").unwrap();
    for encoding in BOTH {
        let mut peer = bed.peer(encoding);
        peer.exec_all(&["BEGIN", "INSERT INTO a(v) VALUES(1)", "SELECT SQL_CALC_FOUND_ROWS i FROM t LIMIT 1"]);
        bed.cut();
        assert_eq!(peer.get("SELECT FOUND_ROWS()"), "3", "{encoding:?}");
        peer.exec_all(&["ROLLBACK", "SET sql_mode = ''", "BEGIN", "INSERT INTO a(v) VALUES(1)", "UPDATE t SET v = '7 pieces' WHERE i = 1"]);
        bed.cut();
        assert_eq!(peer.table("SHOW WARNINGS").len(), 1, "{encoding:?}");
        peer.exec("ROLLBACK");
    }
}

/// They come with FETCH, which is not compared.
fn rows_behind_a_cursor_are_not_repeated(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    bed.servers[0].sql("INSERT INTO test.t VALUES (10, 1)").unwrap();
    let mut client = bed.peer(Encoding::Binary).into_client();
    let statement = client.prepare("SELECT v FROM t WHERE i = 10").unwrap();
    client.run("BEGIN").unwrap();
    client.execute_with(&statement, &[], Execution { cursor: true, reuse_types: false }).unwrap().check().unwrap();
    assert_eq!(client.fetch(&statement, &statement.columns, 9).unwrap().field(0, "v").as_deref(), Some("1"));
    client.run("INSERT INTO t VALUES(1, 1)").unwrap();
    bed.cut();
    bed.servers[0].sql("UPDATE test.t SET v = 2 WHERE i = 10").unwrap();
    assert_eq!(client.query("INSERT INTO t VALUES(2, 2)").unwrap().err().map(|error| error.code), Some(lab::SERVER_LOST));
    assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.t"), "1");
}

fn a_statement_that_waits_is_sent_again(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    bed.wait_uptime();
    bed.servers[0].sql("INSERT INTO test.t VALUES(1, 0)").unwrap();
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        peer.exec_all(&["BEGIN", &format!("INSERT INTO t VALUES({turn} + 10, 0)")]);
        let mut root = bed.root();
        root.run("BEGIN").unwrap();
        root.run("UPDATE test.t SET v = v + 1 WHERE i = 1").unwrap();
        let waiting = thread::spawn(move || {
            peer.exec("UPDATE t SET v = v + 10 WHERE i = 1");
            peer.exec("COMMIT");
        });
        let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND (info LIKE 'UPDATE t%' OR command='Execute')";
        let mut other = bed.root();
        wait::until("the statement to wait", LIMIT, || (other.scalar(waits).unwrap().as_deref() == Some("1")).then_some(())).unwrap();
        bed.relay.cut();
        // It is sent again: only then the lock is free.
        wait::until("the replay", LIMIT, || (bed.replays().0 == turn as u64 + 1).then_some(())).unwrap();
        root.run("COMMIT").unwrap();
        waiting.join().unwrap();
        assert_eq!(bed.value(0, "SELECT v FROM test.t WHERE i = 1"), ((turn + 1) * 11).to_string());
    }
}

fn other_answers_end_the_transaction(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    for encoding in BOTH {
        let mut peer = bed.peer(encoding);
        peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1, 1)"]);
        let before = peer.get("SELECT COUNT(*) FROM a");
        bed.servers[0].sql("INSERT INTO test.a(v) VALUES(1)").unwrap();
        assert_eq!(peer.get("SELECT COUNT(*) FROM a"), before, "the snapshot of the transaction");
        bed.cut();
        assert_eq!(peer.fails("INSERT INTO t VALUES(2, 2)"), lab::SERVER_LOST);
        assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.t"), "0");
    }
    assert_eq!(bed.replays(), (0, 2));
}

/// Differences that the numbers of changed rows and of errors do not show.
fn answers_that_say_something_else_end_the_transaction(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    bed.servers[0].sql("CREATE TABLE test.u(i INT PRIMARY KEY, n INT UNIQUE, v INT) ENGINE=InnoDB").unwrap();
    let cases = [
        ("UPDATE u SET v = 5 WHERE i = 1", vec!["DELETE FROM test.u"]),
        ("INSERT INTO u VALUES(1, 2, 0)", vec!["DELETE FROM test.u", "INSERT INTO test.u VALUES(7, 2, 0)"]),
        ("SELECT v FROM u WHERE i = 1", vec!["ALTER TABLE test.u MODIFY v VARCHAR(10)"]),
    ];
    for encoding in BOTH {
        for (sql, changes) in &cases {
            for sql in ["ALTER TABLE test.u MODIFY v INT", "REPLACE INTO test.u VALUES(1, 1, 5)"] {
                bed.servers[0].sql(sql).unwrap();
            }
            let mut peer = bed.peer(encoding);
            peer.exec("BEGIN");
            peer.ask(sql);
            bed.cut();
            for change in changes {
                bed.servers[0].sql(change).unwrap();
            }
            assert_eq!(peer.fails("INSERT INTO t VALUES(1, 1)"), lab::SERVER_LOST, "{sql} {encoding:?}");
            bed.servers[0].sql("DELETE FROM test.u").unwrap();
        }
    }
    assert_eq!(bed.replays(), (0, 6));
}

fn what_was_killed_is_not_replayed(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    let [mut peer, mut other] = [(); 2].map(|()| bed.peer(Encoding::Text));
    peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1, 0)"]);
    bed.relay.trap("SET v = 1", Lost::Command);
    peer.send_query("UPDATE t SET v = 1 WHERE i = 1").unwrap();
    wait::until("it to be lost", LIMIT, || (bed.relay.sprung() == 1).then_some(())).unwrap();
    other.exec(&format!("KILL QUERY {}", peer.connection_id()));
    let reply = peer.recv_reply(Encoding::Text).unwrap();
    assert_eq!(reply.err().map(|e| e.code), Some(1317), "{reply:?}");
    // The server hears now that the connection is gone.
    bed.cut();
    peer.exec("COMMIT");
    assert_eq!(bed.value(0, "SELECT GROUP_CONCAT(v) FROM test.t"), "0", "the rest of the transaction lives");
}

fn a_commit_that_is_refused_happens_elsewhere(flavor: Flavor) {
    let bed = Bed::new(flavor, 2, &[]);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1, 1)", "UPDATE t SET v = 2"]);
    assert_eq!(
        bed.value(0, "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'"),
        "1",
        "the first server is asked first"
    );
    set_read_only(&bed.servers[0], true).unwrap();
    peer.exec("COMMIT");
    assert_eq!((bed.value(0, "SELECT COUNT(*) FROM test.t").as_str(), bed.value(1, "SELECT v FROM test.t").as_str()), ("0", "2"));
    assert_eq!(bed.replays(), (1, 0));
}

fn a_commit_without_an_answer_is_never_sent_twice(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec_all(&["BEGIN", "INSERT INTO a(v) VALUES(1)"]);
    // The answer is kept back: the commit takes a while, in which the network fails.
    let mut root = bed.root();
    root.run("FLUSH TABLES WITH READ LOCK").unwrap();
    let committing = thread::spawn(move || peer.fails("COMMIT"));
    let mut other = bed.root();
    let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info='COMMIT'";
    wait::until("the commit to wait", LIMIT, || (other.scalar(waits).unwrap().as_deref() == Some("1")).then_some(())).unwrap();
    bed.relay.cut();
    assert_eq!(committing.join().unwrap(), lab::SERVER_LOST);
    root.run("UNLOCK TABLES").unwrap();
    let gone = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'";
    wait::until("the connection to end", LIMIT, || (other.scalar(gone).unwrap().as_deref() == Some("0")).then_some(())).unwrap();
    assert!(bed.value(0, "SELECT COUNT(*) FROM test.a").parse::<u64>().unwrap() <= 1);
    assert_eq!(bed.replays(), (0, 0));
}

fn what_is_too_large_is_not_kept(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[("transaction_replay_max_bytes", 1000.into())]);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec("BEGIN");
    for n in 0..20 {
        peer.exec(&format!("INSERT INTO t VALUES({n}, 0)"));
    }
    assert_eq!(bed.counter("tidegate_transaction_replays_too_large"), 1);
    bed.cut();
    let told = peer.ask("COMMIT").err().cloned().unwrap();
    assert!(told.code == lab::SERVER_LOST && told.message.contains("transaction_replay_max_bytes"), "{told:?}");
    assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.t"), "0");
}

/// Only the server knows LAST_INSERT_ID() after a row that came with its id, and no statement ends the connection's use.
fn transactions_that_follow_another_one_are_replayed(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    let mut replays = 0;
    for (n, follows) in ["BEGIN", "COMMIT AND CHAIN", "START TRANSACTION"].into_iter().enumerate() {
        for encoding in BOTH {
            let mut peer = bed.peer(encoding);
            let id = peer.exec("INSERT INTO a(v) VALUES(1000)").ok().unwrap().last_insert_id;
            peer.exec("BEGIN");
            peer.exec(&format!("INSERT INTO a(id, v) VALUES({}, 1)", 1_000_000 * (replays + 1)));
            peer.exec(follows);
            assert_eq!(peer.get("SELECT LAST_INSERT_ID()"), id.to_string());
            peer.exec(&format!("UPDATE a SET v = {n} WHERE id = {id}"));
            bed.cut();
            assert_eq!(peer.get("SELECT LAST_INSERT_ID()"), id.to_string(), "{follows}");
            peer.exec("COMMIT");
            replays += 1;
            assert_eq!(bed.replays(), (replays, 0), "{follows}");
            assert_eq!(bed.value(0, &format!("SELECT v FROM test.a WHERE id={id}")), n.to_string());
        }
    }
}

/// The new server would give the next free ids; the client has seen other ids.
fn generated_ids_stay(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec("BEGIN");
    let id = peer.exec("INSERT INTO a(v) VALUES(1)").ok().unwrap().last_insert_id;
    bed.servers[0].sql("INSERT INTO test.a(v) VALUES(2)").unwrap();
    bed.cut();
    assert_eq!(peer.get("SELECT LAST_INSERT_ID()"), id.to_string());
    peer.exec("COMMIT");
    let result = bed.replays();
    println!("{}: {result:?}", flavor.name());
    assert_eq!(result, (1, 0));
    assert_eq!(bed.value(0, &format!("SELECT v FROM test.a WHERE id={id}")), "1");
}

/// Rows that came with their ids use up none that a replay wants for them: it goes to no later row, of whatever session.
fn ids_that_rows_had_of_their_own_are_left_to_nobody(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    bed.servers[0].sql("ALTER TABLE test.a ADD UNIQUE(v)").unwrap();
    let cases: [&[&str]; 6] = [
        &["INSERT INTO a(id, v) VALUES(5, 1)"],
        &["INSERT INTO a(id, v) VALUES(5, 1), (6, 2)", "REPLACE INTO a(id, v) VALUES(7, 3)"],
        &["INSERT INTO a(id, v) VALUES(5, 1)", "INSERT INTO a(v) VALUES(1) ON DUPLICATE KEY UPDATE v = 2", "INSERT INTO a(v) VALUES(3)"],
        &["INSERT INTO a(v) VALUES(1)", "INSERT INTO a(id, v) VALUES(50, 2)", "SELECT 1", "UPDATE a SET v = v + 1 WHERE v = 2"],
        &["INSERT INTO a(id, v) VALUES(5, 1) ON DUPLICATE KEY UPDATE v = 9", "SAVEPOINT b", "INSERT INTO a(id, v) SELECT 8, 2"],
        &["INSERT INTO a(id, v) VALUES(1, 1)", "DELETE FROM a", "INSERT INTO a(id, v) VALUES(1, 1)", "INSERT INTO a(v) VALUES(2)"],
    ];
    let mut replays = 0;
    for said in cases {
        for encoding in BOTH {
            bed.servers[0].sql("TRUNCATE test.a").unwrap();
            let mut peer = bed.peer(encoding);
            peer.exec("BEGIN");
            peer.exec_all(said);
            let seen = "SELECT GROUP_CONCAT(id, ':', v ORDER BY id) FROM a";
            let before = peer.get(seen);
            bed.cut();
            assert_eq!(peer.get(seen), before, "{said:?}");
            let mine = peer.exec("INSERT INTO a(v) VALUES(100)").ok().unwrap().last_insert_id;
            peer.exec("COMMIT");
            let mut others = [bed.peer(Encoding::Text), bed.peer(Encoding::Binary)];
            for (n, other) in others.iter_mut().enumerate() {
                let id = other.exec(&format!("INSERT INTO a(v) VALUES({})", 200 + n)).ok().unwrap().last_insert_id;
                assert!(id > mine, "{said:?}: {id} after {mine}");
            }
            replays += 1;
            assert_eq!(bed.replays(), (replays, 0), "{said:?}");
        }
    }
}

/// Sets the flag when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sessions that replay on an empty server need their old ids; writers at work take any free id.
fn generated_ids_are_not_taken_meanwhile(flavor: Flavor) {
    const TRANSACTIONS: usize = 8;
    // A long head start, because the speed of the machine is not tested.
    let bed = Bed::new(flavor, 2, &[("transaction_replay_head_start_ms", 10_000.into())]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Ends the writers also when the body panics: they would go on for ever.
        let _ends = Ends(&done);
        for _ in 0..4 {
            let mut writer = bed.peer(Encoding::Text).into_client();
            let done = &done;
            // A writer whose INSERT is lost gets an error, which is not tested here.
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    if let Err(error) = writer.run("INSERT INTO a(v) VALUES(0)") {
                        assert_eq!(error.code(), Some(lab::SERVER_LOST));
                    }
                }
            });
        }
        let mut peers = Vec::new();
        let mut ids = Vec::new();
        for n in 0..TRANSACTIONS {
            let mut peer = bed.peer(BOTH[n % 2]);
            peer.exec("BEGIN");
            ids.push(peer.exec(&format!("INSERT INTO a(v) VALUES({n} + 1)")).ok().unwrap().last_insert_id);
            peer.exec("INSERT INTO a(v) VALUES(100)");
            peers.push(peer);
        }
        let waiting: Vec<_> = peers
            .into_iter()
            .map(|mut peer| {
                scope.spawn(move || {
                    peer.exec("SELECT SLEEP(3)");
                    // The row is new, and takes no other row's id.
                    peer.exec("INSERT INTO a(v) VALUES(200)");
                    peer.exec("COMMIT");
                })
            })
            .collect();
        let asleep = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND state='User sleep'";
        let mut root = bed.root();
        let all = TRANSACTIONS.to_string();
        wait::until("all to be asleep", LIMIT, || (root.scalar(asleep).unwrap() == Some(all.clone())).then_some(())).unwrap();
        bed.servers[0].kill9();
        let results: Vec<_> = waiting.into_iter().map(|one| one.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(bed.value(1, &format!("SELECT v FROM test.a WHERE id={id}")), (n + 1).to_string());
        }
    });
    assert_eq!(bed.replays(), (TRANSACTIONS as u64, 0));
    assert!(bed.counter("tidegate_transaction_replay_waits") > 0);
}

/// The client says nothing while its server is taken away; its transaction is on the other one when it speaks again.
fn an_idle_clients_transaction_is_replayed_at_once(flavor: Flavor) {
    let bed = Bed::new(flavor, 2, &[]);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec("BEGIN");
    let id = peer.exec("INSERT INTO a(v) VALUES(1)").ok().unwrap().last_insert_id;
    let mut admin = bed.proxy.admin().unwrap();
    admin.run(format!("UPDATE mysql_servers SET status='OFFLINE_HARD' WHERE port={}", bed.relay.port())).unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap().check().unwrap();
    wait::until("the replay", LIMIT, || (bed.replays().0 == 1).then_some(())).unwrap();
    bed.servers[1].sql("INSERT INTO test.a(v) VALUES(2)").unwrap();
    peer.exec("COMMIT");
    assert_eq!(bed.replays(), (1, 0));
    assert_eq!(bed.value(1, &format!("SELECT v FROM test.a WHERE id={id}")), "1");
}

/// It was told something else the second time: the next statement is told so, and the session goes on.
fn an_idle_clients_replay_that_fails_is_told_of(flavor: Flavor) {
    let bed = Bed::new(flavor, 2, &[]);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec("BEGIN");
    assert_eq!(peer.get("SELECT COUNT(*) FROM a"), "0");
    peer.exec("INSERT INTO a(v) VALUES(1)");
    bed.servers[1].sql("INSERT INTO test.a(v) VALUES(2)").unwrap();
    let mut admin = bed.proxy.admin().unwrap();
    admin.run(format!("UPDATE mysql_servers SET status='OFFLINE_HARD' WHERE port={}", bed.relay.port())).unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap().check().unwrap();
    wait::until("the replay", LIMIT, || (bed.replays().1 == 1).then_some(())).unwrap();
    let told = peer.ask("COMMIT").err().cloned().unwrap();
    assert!(told.code == 9004 && told.message.contains("could not be replayed: a statement had another result than before"), "{told:?}");
    assert_eq!(peer.get("SELECT COUNT(*) FROM a"), "1");
}

/// An idle one moves when the new writer is there, long before the time to finish is over; one that only reads may stay.
fn a_writer_that_lost_its_role_and_lives_keeps_no_transaction(flavor: Flavor) {
    let servers = Replication::start(flavor, 1, &Options::new()).unwrap();
    for sql in ["CREATE TABLE test.a(id INT PRIMARY KEY AUTO_INCREMENT, v INT)", "INSERT INTO test.a(v) VALUES(1)"] {
        servers.primary.sql(sql).unwrap();
    }
    servers.wait_caught_up().unwrap();
    let builder = Tidegate::builder().app_user().variable("transaction_replay", true).variable("demotion_grace_ms", 60_000);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.backend(0, &servers.primary).backend(1, &servers.replicas[0]).start().unwrap();
    let [mut idle, mut at_work, mut reads, mut other] = [0, 1, 0, 1].map(|n| Peer::through(&proxy, BOTH[n]));
    let insert = |peer: &mut Peer, v: u32| {
        peer.exec("BEGIN");
        peer.exec(&format!("INSERT INTO a(v) VALUES({v})")).ok().unwrap().last_insert_id
    };
    let ids = [insert(&mut idle, 10), insert(&mut at_work, 20)];
    reads.exec("BEGIN");
    let old = reads.get("SELECT @@port");
    set_read_only(&servers.primary, true).unwrap();
    replication::promote(&servers.replicas[0]).unwrap();
    let counter = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='tidegate_transaction_replays_ok'";
    let mut admin = proxy.admin().unwrap();
    wait::until("the replays", LIMIT, || (admin.scalar(counter).unwrap().as_deref() == Some("2")).then_some(())).unwrap();
    other.exec("INSERT INTO a(v) VALUES(30)");
    assert_eq!(reads.get("SELECT @@port"), old, "what only reads stays");
    reads.exec("COMMIT");
    idle.exec("COMMIT");
    at_work.exec_all(&["UPDATE a SET v = v + 1 WHERE v = 20", "COMMIT"]);
    for (id, v) in ids.into_iter().zip(["10", "21"]) {
        assert_eq!(servers.replicas[0].scalar(&format!("SELECT v FROM test.a WHERE id={id}")).unwrap().as_deref(), Some(v));
    }
    assert_eq!(servers.primary.scalar("SELECT COUNT(*) FROM test.a").unwrap().as_deref(), Some("1"));
}

fn a_deadlock_is_made_good_where_that_is_wanted(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[("transaction_replay_conflicts", true.into())]);
    bed.servers[0].sql("INSERT INTO test.t VALUES(1, 0), (2, 0)").unwrap();
    for round in 0..10 {
        let both: Vec<_> = [(1, 2), (2, 1)]
            .into_iter()
            .map(|(first, second)| {
                let mut peer = bed.peer(BOTH[round % 2]);
                thread::spawn(move || {
                    peer.exec("BEGIN");
                    peer.exec(&format!("UPDATE t SET v = v + 1 WHERE i = {first}"));
                    peer.exec("SELECT SLEEP(0.02)");
                    peer.exec(&format!("UPDATE t SET v = v + 1 WHERE i = {second}"));
                    peer.exec("COMMIT");
                })
            })
            .collect();
        both.into_iter().for_each(|one| one.join().unwrap());
    }
    assert_eq!(bed.value(0, "SELECT GROUP_CONCAT(v) FROM test.t"), "20,20");
    assert!(bed.replays().0 > 0, "there was no deadlock");
}

fn without_autocommit_too(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        peer.exec("SET autocommit=0");
        for n in 0..2 {
            let n = turn * 10 + n;
            peer.exec(&format!("INSERT INTO t VALUES({n}, 1)"));
            bed.cut();
            peer.exec(&format!("UPDATE t SET v = v + 1 WHERE i = {n}"));
            bed.cut();
            peer.exec("COMMIT");
        }
    }
    assert_eq!(bed.value(0, "SELECT CONCAT(COUNT(*), ' ', SUM(v)) FROM test.t"), "4 8");
    assert_eq!(bed.replays(), (8, 0));
}

fn settings_may_come_between_without_autocommit(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    bed.servers[0].sql("CREATE TABLE test.words(i INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(9))").unwrap();
    let insert = "INSERT INTO words(s) VALUES(@a)";
    for encoding in BOTH {
        for before in [&["SET autocommit=0", "SET @a='y'"][..], &["SET @a='y'", "SET autocommit=0"], &["SET autocommit=0, @a='y'"]] {
            let mut peer = bed.peer(encoding);
            peer.exec_all(before);
            peer.exec_all(&[insert, "SET @a='z'", insert]);
            bed.cut();
            peer.exec("SET @a='x'");
            bed.cut();
            peer.exec(insert);
            bed.cut();
            assert_eq!(peer.get("SELECT GROUP_CONCAT(s ORDER BY i) FROM words"), "y,z,x");
            peer.exec("ROLLBACK");
        }
    }
    assert_eq!(bed.replays(), (18, 0));
}

fn settings_of_one_statement_are_replayed(flavor: Flavor) {
    if flavor != Flavor::Mariadb {
        return;
    }
    let bed = Bed::new(flavor, 1, &[]);
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        let n = turn * 10;
        let begun = ["BEGIN", "INSERT INTO a(v) VALUES(1)", "SET STATEMENT max_statement_time=100 FOR INSERT INTO a(v) VALUES(1)"];
        peer.exec_all(&begun);
        let generated = peer.get("SELECT LAST_INSERT_ID()");
        bed.cut();
        peer.exec(&format!("INSERT INTO t VALUES({n}, 1)"));
        bed.cut();
        assert_eq!(peer.get("SELECT MAX(id) FROM a"), generated);
        peer.exec("COMMIT");
    }
    assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.a"), "4");
    assert_eq!(bed.replays(), (4, 0));
}

fn what_cannot_be_repeated_is_not(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    for statement in ["CREATE TEMPORARY TABLE x(i INT)", "SELECT GET_LOCK('a', 1)", "SELECT COUNT(*) INTO @n FROM t", "DO 1; DO 2"] {
        let mut peer = bed.peer(Encoding::Text);
        peer.set_option(0).unwrap();
        peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1, 1)", statement]);
        bed.cut();
        assert_eq!(peer.fails("INSERT INTO t VALUES(2, 2)"), lab::SERVER_LOST, "{statement}");
        assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.t"), "0", "{statement}");
    }
    assert_eq!(bed.replays(), (0, 0));
}

fn chained_transactions_are_transactions(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        let n = turn * 100;
        let insert = |i: usize| format!("INSERT INTO t VALUES({}, 1)", n + i);
        peer.exec_all(&["SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "BEGIN", &insert(1), "COMMIT AND CHAIN", &insert(2)]);
        bed.cut();
        peer.exec_all(&[&insert(3), "ROLLBACK AND CHAIN", &insert(4)]);
        bed.cut();
        peer.exec_all(&["SET completion_type=1", "COMMIT", &insert(5)]);
        bed.cut();
        peer.exec_all(&["COMMIT", "SET completion_type=0", &insert(6)]);
        bed.cut();
        peer.exec_all(&["COMMIT", &insert(7)]);
        assert_eq!(bed.value(0, &format!("SELECT GROUP_CONCAT(i - {n} ORDER BY i) FROM test.t WHERE i > {n}")), "1,4,5,6,7");
    }
    let (ok, failed) = bed.replays();
    assert!(ok >= 6 && failed == 0, "{ok} {failed}");
}

fn a_refused_commit_that_cannot_be_repeated_is_told_as_a_loss(flavor: Flavor) {
    let bed = Bed::new(flavor, 2, &[]);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1, 1)", "USE test"]);
    set_read_only(&bed.servers[0], true).unwrap();
    let told = peer.ask("COMMIT").err().cloned().unwrap();
    assert!(told.code == 9004 && told.message.contains("The transaction was rolled back") && told.message.contains("read"), "{told:?}");
    assert_eq!(bed.replays(), (0, 1));
    peer.exec("INSERT INTO t VALUES(3, 3)");
    assert_eq!((bed.value(0, "SELECT COUNT(*) FROM test.t").as_str(), bed.value(1, "SELECT i FROM test.t").as_str()), ("0", "3"));
}

/// Writers wait while both servers are read-only, in and out of transactions. A transaction with an id to keep goes first.
fn at_a_promotion_replays_go_first(flavor: Flavor) {
    const TRANSACTIONS: usize = 4;
    let servers = Replication::start(flavor, 1, &Options::new()).unwrap();
    servers.primary.sql("CREATE TABLE test.a(id INT PRIMARY KEY AUTO_INCREMENT, v INT)").unwrap();
    servers.wait_caught_up().unwrap();
    let builder = Tidegate::builder().app_user().variable("transaction_replay", true).variable("demotion_grace_ms", 60_000);
    // The speed of the machine is not tested.
    let builder = builder.variable("transaction_replay_head_start_ms", 20_000).variable("connect_timeout_server_max", 60_000);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.backend(0, &servers.primary).backend(1, &servers.replicas[0]).start().unwrap();
    let mut peers: Vec<Peer> = (0..TRANSACTIONS).map(|n| Peer::through(&proxy, BOTH[n % 2])).collect();
    let insert = |peer: &mut Peer, v: usize| peer.exec(&format!("INSERT INTO a(v) VALUES({v})")).ok().unwrap().last_insert_id;
    let ids: Vec<u64> = peers
        .iter_mut()
        .enumerate()
        .map(|(n, peer)| {
            peer.exec("BEGIN");
            insert(peer, n + 1)
        })
        .collect();
    let mut others: Vec<Peer> = (0..TRANSACTIONS).map(|n| Peer::through(&proxy, BOTH[n % 2])).collect();
    others.iter_mut().for_each(|peer| drop(peer.exec("DO 1")));
    set_read_only(&servers.primary, true).unwrap();
    thread::scope(|scope| {
        // Half of the transactions notice it by a statement of their own; the others are silent.
        let (at_work, silent) = peers.split_at_mut(TRANSACTIONS / 2);
        for peer in at_work {
            scope.spawn(|| peer.exec_all(&["INSERT INTO a(v) VALUES(50)", "COMMIT"]));
        }
        for peer in &mut others {
            scope.spawn(|| insert(peer, 100));
        }
        let waiting = "SELECT COUNT(*) FROM stats_mysql_processlist WHERE command='Connect'";
        let mut admin = proxy.admin().unwrap();
        let all = (TRANSACTIONS / 2 + TRANSACTIONS).to_string();
        wait::until("all to wait", LIMIT, || (admin.scalar(waiting).unwrap() == Some(all.clone())).then_some(())).unwrap();
        replication::promote(&servers.replicas[0]).unwrap();
        for peer in silent {
            scope.spawn(|| peer.exec("COMMIT"));
        }
    });
    for (n, id) in ids.iter().enumerate() {
        let v = servers.replicas[0].scalar(&format!("SELECT v FROM test.a WHERE id={id}")).unwrap();
        assert_eq!(v, Some((n + 1).to_string()), "{id}");
    }
    let counter = |name| format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='tidegate_transaction_{name}'");
    let mut admin = proxy.admin().unwrap();
    assert_eq!(admin.scalar(counter("replays_ok")).unwrap(), Some(TRANSACTIONS.to_string()));
    assert_eq!(admin.scalar(counter("replays_failed")).unwrap().as_deref(), Some("0"));
}

/// With autocommit off a transaction may begin with a SAVEPOINT, of which no server tells.
fn a_savepoint_may_come_first(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    bed.wait_uptime();
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        peer.exec_all(&["SET autocommit = 0", "SAVEPOINT a", &format!("INSERT INTO t VALUES({turn}, 0)"), "SAVEPOINT b"]);
        bed.relay.cut_near();
        peer.exec_all(&["ROLLBACK TO b", "ROLLBACK TO a", "COMMIT"]);
        assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.t"), "0");
        // A SET does not move the savepoint.
        peer.exec_all(&["SAVEPOINT a", "SET @v = 'x'", &format!("INSERT INTO t VALUES({turn}, 0)")]);
        bed.relay.cut_near();
        peer.exec_all(&["ROLLBACK TO a", "COMMIT"]);
        assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.t"), "0");
    }
}

/// A snapshot shows data of its time, so a later snapshot is no replacement.
fn a_snapshot_is_not_taken_anew(flavor: Flavor) {
    for replays in [true, false] {
        let bed = Bed::new(flavor, 1, &[("transaction_replay", replays.into())]);
        for (turn, encoding) in BOTH.into_iter().enumerate() {
            let mut peer = bed.peer(encoding);
            peer.exec("START TRANSACTION WITH CONSISTENT SNAPSHOT");
            bed.servers[0].sql(&format!("INSERT INTO test.t VALUES({turn}, 0)")).unwrap();
            bed.relay.cut_near();
            assert_eq!(peer.fails("SELECT COUNT(*) FROM t"), lab::SERVER_LOST);
        }
    }
}

/// The network loses a connection, and only the proxy notices.
///
/// The connection's statement and transaction are ended, and neither a replay nor other sessions wait for them.
fn a_lost_connection_keeps_no_locks(flavor: Flavor) {
    for replays in [true, false] {
        let bed = Bed::new(flavor, 1, &[("transaction_replay", replays.into())]);
        bed.servers[0].sql("INSERT INTO test.t VALUES(1, 0), (2, 0)").unwrap();
        bed.wait_uptime();
        for (turn, encoding) in BOTH.into_iter().enumerate() {
            let mut peer = bed.peer(encoding);
            peer.exec_all(&["BEGIN", "UPDATE t SET v = v + 1 WHERE i = 1"]);
            bed.relay.cut_near();
            let start = Instant::now();
            if replays {
                peer.exec_all(&["UPDATE t SET v = v + 1 WHERE i = 2", "COMMIT"]);
                assert_eq!(bed.value(0, "SELECT GROUP_CONCAT(v) FROM test.t"), format!("{0},{0}", turn + 1));
            } else {
                assert_eq!(peer.fails("SELECT 1"), lab::SERVER_LOST);
                let mut root = bed.root();
                root.run("SET innodb_lock_wait_timeout=8").unwrap();
                root.run("UPDATE test.t SET v = 7 WHERE i = 1").unwrap();
            }
            assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
            // A statement that runs, and no transaction.
            let writing = thread::spawn({
                let mut peer = bed.peer(encoding);
                move || peer.fails("INSERT INTO a(v) SELECT SLEEP(100)")
            });
            // Not while it is only prepared: that goes on elsewhere.
            let runs = "SELECT COUNT(*) FROM information_schema.processlist \
                        WHERE user='app' AND command IN ('Query', 'Execute') AND info LIKE 'INSERT INTO a(v)%'";
            let wait_for = |wanted| wait::until("it", LIMIT, || (bed.value(0, runs) == wanted).then_some(())).unwrap();
            wait_for("1");
            bed.relay.cut_near();
            assert_eq!(writing.join().unwrap(), lab::SERVER_LOST);
            wait_for("0");
        }
        bed.relay.cut();
    }
}

/// Its connections have the numbers of those that were lost with it.
fn nothing_is_killed_on_a_server_that_was_started_since(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[]);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1, 1)"]);
    let id: u32 = bed.value(0, "SELECT MAX(id) FROM information_schema.processlist WHERE user='app'").parse().unwrap();
    bed.servers[0].kill9();
    bed.servers[0].restart().unwrap();
    let direct = || Client::connect(&ConnectOptions::tcp(bed.servers[0].address(), "app", "app-pass")).unwrap();
    let mut others = vec![direct()];
    while others.last().unwrap().connection_id() <= id {
        others.push(direct());
    }
    assert!(others.iter().any(|other| other.connection_id() == id), "{id}");
    peer.exec("INSERT INTO t VALUES(2, 2)");
    peer.exec("COMMIT");
    for other in &mut others {
        assert_eq!(other.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
    }
    assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.t"), "2");
}

fn a_replay_that_is_given_up_is_ended_on_the_server(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, &[("transaction_replay_timeout_ms", 1500.into())]);
    bed.servers[0].sql("INSERT INTO test.t VALUES(1, 0)").unwrap();
    bed.wait_uptime();
    for encoding in BOTH {
        let mut peer = bed.peer(encoding);
        peer.exec_all(&["BEGIN", "UPDATE t SET v = 1 WHERE i = 1"]);
        bed.cut();
        let mut root = bed.root();
        root.run("BEGIN").unwrap();
        root.run("UPDATE test.t SET v = 2 WHERE i = 1").unwrap();
        assert_eq!(peer.fails("SELECT 1"), lab::SERVER_LOST, "{encoding:?}");
        let running = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND command<>'Sleep'";
        // Long before it has waited for too long.
        wait::until("the server to end it", LIMIT, || (bed.value(0, running) == "0").then_some(())).unwrap();
        root.run("ROLLBACK").unwrap();
    }
}
