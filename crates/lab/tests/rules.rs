//! Query rules through the real proxy: two hostgroups of one server each, statements in text and prepared. What
//! columns mean is in `rules/semantics.rs`, case by case.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

#[path = "rules/bed.rs"]
mod bed;
mod common;
#[path = "rules/places.rs"]
mod places;
#[path = "rules/semantics.rs"]
mod semantics;

use common::Peer;
use lab::client::Encoding;
use lab::tidegate::{Builder, Setting};
use lab::{Flavor, Options, Server, Tidegate};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Hostgroup 1, the users' own, and hostgroup 2.
fn servers() -> &'static [Server; 2] {
    static SERVERS: OnceLock<[Server; 2]> = OnceLock::new();
    SERVERS.get_or_init(|| [1, 2].map(|_| Server::start(Flavor::Mariadb, &Options::new()).unwrap()))
}

/// A proxy with these rules.
fn proxy(rules: &[&[(&str, Setting)]]) -> Builder {
    let [one, two] = servers();
    Tidegate::builder().backend(1, one).backend(2, two).user("app", "app-pass", 1).variable("threads", 1).rules(rules)
}

/// A session for each protocol.
fn sessions(proxy: &Tidegate) -> [Peer; 2] {
    [Encoding::Text, Encoding::Binary].map(|encoding| Peer::through(proxy, encoding))
}

/// The hostgroup that answers `sql`, which must have `@@port` in its first column.
fn hostgroup(peer: &mut Peer, sql: &str) -> usize {
    let port = peer.get(sql);
    let found = servers().iter().position(|server| server.port().to_string() == port);
    found.unwrap_or_else(|| panic!("{sql} answered {port}")) + 1
}

#[test]
fn the_rules_of_the_write_ups() {
    let proxy = proxy(&[
        &[("match_pattern", "^SELECT.*FOR UPDATE$".into()), ("destination_hostgroup", 1.into()), ("apply", 1.into())],
        &[("match_pattern", "^SELECT".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())],
    ])
    .start()
    .unwrap();
    for mut peer in sessions(&proxy) {
        assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2);
        assert_eq!(hostgroup(&mut peer, "select @@port from dual for update"), 1);
        assert_eq!(hostgroup(&mut peer, "(SELECT @@port)"), 1, "it does not begin with SELECT");
        peer.exec("BEGIN");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 1, "a transaction stays where it began");
        peer.exec("COMMIT");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2);
    }
}

#[test]
fn digest_chain_and_rewriting() {
    let proxy = proxy(&[
        &[("match_digest", "^SELECT @@port AS marked".into()), ("flagOUT", 7.into())],
        &[("match_digest", "^SELECT".into()), ("destination_hostgroup", 1.into()), ("apply", 1.into())],
        &[("flagIN", 7.into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())],
        &[("match_pattern", r"/\*old (\d+)\*/".into()), ("replace_pattern", r"+\1 /*new*/".into()), ("apply", 1.into())],
    ])
    .start()
    .unwrap();
    for mut peer in sessions(&proxy) {
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS marked"), 2);
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS other"), 1);
        assert_eq!(peer.get("VALUES (1 /*old 41*/)"), "42");
    }
}

#[test]
fn messages_are_answered_without_a_server() {
    let proxy = proxy(&[
        &[("match_digest", "^DELETE".into()), ("error_msg", "no deletes".into()), ("apply", 1.into())],
        &[("match_digest", "^INSERT".into()), ("OK_msg", "thank you".into()), ("apply", 1.into())],
    ])
    .start()
    .unwrap();
    for mut peer in sessions(&proxy) {
        let reply = peer.ask("DELETE FROM t");
        let error = reply.err().unwrap();
        assert_eq!((error.code, error.message.as_str()), (1148, "no deletes"));
    }
    for server in servers() {
        server.sql("CREATE OR REPLACE TABLE test.swallowed (n INT)").unwrap();
    }
    let [mut text, mut prepared] = sessions(&proxy);
    text.exec("INSERT INTO nowhere VALUES (1)");
    // A server prepares it, and none executes it.
    assert_eq!(prepared.fails("INSERT INTO nowhere VALUES (1)"), 1146);
    prepared.exec("INSERT INTO swallowed VALUES (1)");
    assert_eq!(prepared.get("SELECT COUNT(*) FROM swallowed"), "0");
}

#[test]
fn time_limits_and_delays() {
    let proxy = proxy(&[
        &[("match_digest", "SLEEP".into()), ("timeout", 300.into()), ("apply", 1.into())],
        &[("match_digest", "^SELECT @@port AS late".into()), ("delay", 200.into()), ("apply", 1.into())],
        &[("match_digest", "AS held_up".into()), ("delay", 1_500.into()), ("timeout", 500.into()), ("apply", 1.into())],
    ])
    .start()
    .unwrap();
    for mut peer in sessions(&proxy) {
        let mut admin = proxy.admin().unwrap();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| drop(peer.exec("SELECT 1 AS held_up")));
            let state = "SELECT command FROM stats_mysql_processlist WHERE user='app' AND command <> 'Sleep'";
            let delayed = || admin.scalar(state).unwrap().filter(|command| command == "Delay");
            lab::wait::until("a statement that is delayed", common::LIMIT, delayed).unwrap();
            let info = admin.scalar("SELECT info FROM stats_mysql_processlist WHERE command = 'Delay'").unwrap();
            assert_eq!(info.as_deref(), Some("SELECT 1 AS held_up"));
            run.join().expect("its time counts from when it may run");
        });
        let began = Instant::now();
        assert_eq!(peer.fails("SELECT SLEEP(20)"), 1907);
        assert!(began.elapsed() < Duration::from_secs(10));
        let began = Instant::now();
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS late"), 1);
        assert!(began.elapsed() >= Duration::from_millis(200));
    }
}

/// However short the limit is, and whenever the statement begins.
#[test]
fn no_statement_is_ended_before_its_time() {
    const LIMIT_MS: i64 = 130;
    let proxy = proxy(&[&[("match_digest", "SLEEP".into()), ("timeout", LIMIT_MS.into()), ("apply", 1.into())]]).start().unwrap();
    for mut peer in sessions(&proxy) {
        for round in 0..12 {
            let began = Instant::now();
            assert_eq!(peer.fails("SELECT SLEEP(20)"), 1907);
            assert!(began.elapsed() >= Duration::from_millis(LIMIT_MS as u64), "{:?} in round {round}", began.elapsed());
        }
    }
}

#[test]
fn multiplexing_off_and_on_again() {
    let proxy = proxy(&[
        &[("match_digest", "^SELECT @@port AS stay".into()), ("multiplex", 0.into()), ("apply", 1.into())],
        &[("match_digest", "^SELECT @@port AS go".into()), ("multiplex", 1.into()), ("apply", 1.into())],
        &[("match_digest", "^SELECT".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())],
    ])
    .start()
    .unwrap();
    let [mut peer, _] = sessions(&proxy);
    assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2);
    let pinned = |proxy: &Tidegate| proxy.admin().unwrap().scalar("SELECT COUNT(*) FROM stats_tidegate_pins").unwrap().unwrap();
    assert_eq!(hostgroup(&mut peer, "SELECT @@port AS stay"), 1);
    assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2, "the rule's pin keeps a connection, not statements");
    assert_eq!(pinned(&proxy), "1");
    assert_eq!(hostgroup(&mut peer, "SELECT @@port AS go"), 1);
    assert_eq!(pinned(&proxy), "0");
    assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2);
}

#[test]
fn the_split_needs_no_rules() {
    let [one, two] = servers();
    let proxy = Tidegate::builder()
        .backend(1, one)
        .backend(2, two)
        .user_with("app", "app-pass", 1, &[("attributes", r#"{"read_write_split": {"writer": 1, "reader": 2}}"#.into())])
        .start()
        .unwrap();
    for (hostgroup, server) in (1..).zip(servers()) {
        server.sql("CREATE OR REPLACE TABLE test.who (hg INT)").unwrap();
        server.sql(&format!("INSERT INTO test.who VALUES ({hostgroup})")).unwrap();
    }
    for mut peer in sessions(&proxy) {
        assert_eq!(peer.get("SELECT hg FROM who"), "2");
        assert_eq!(peer.get("SELECT hg FROM who FOR UPDATE"), "1");
        assert_eq!(peer.get("SELECT hg FROM who LOCK IN SHARE MODE"), "1");
        assert_eq!(peer.get("SELECT hg FROM who WHERE GET_LOCK('x', 0)"), "1");
        // How often it was taken is a matter of the rows.
        peer.exec("DO RELEASE_ALL_LOCKS()");
        peer.exec("BEGIN");
        assert_eq!(peer.get("SELECT hg FROM who"), "1");
        peer.exec("COMMIT");
        peer.exec("SET autocommit=0");
        assert_eq!(peer.get("SELECT hg FROM who"), "1");
        peer.exec("COMMIT");
        peer.exec("SET autocommit=1");
        peer.exec("START TRANSACTION READ ONLY");
        assert_eq!(peer.get("SELECT hg FROM who"), "2");
        peer.exec("COMMIT");
        assert_eq!(peer.get("SELECT hg FROM who"), "2");
    }
}

/// The effects of a view are not in the statement's text: if a reader refuses it, the writer runs it.
#[test]
fn a_view_that_writes_is_read_on_the_writer() {
    let [one, two] = [1, 2].map(|_| Server::start(Flavor::Mariadb, &Options::new()).unwrap());
    let split = r#"{"read_write_split": {"writer": 1, "reader": 2}}"#;
    let proxy = Tidegate::builder()
        .backend(1, &one)
        .backend(2, &two)
        .user_with("reader", "reader-pass", 1, &[("attributes", split.into())])
        .start()
        .unwrap();
    let port = one.port().to_string();
    for server in [&one, &two] {
        server.sql("CREATE SEQUENCE test.numbers").unwrap();
        server.sql("CREATE TABLE test.plain AS SELECT @@port p").unwrap();
        server.sql("CREATE VIEW test.takes_a_number AS SELECT NEXTVAL(test.numbers) n, p FROM test.plain").unwrap();
        server.sql("CREATE USER reader IDENTIFIED BY 'reader-pass'").unwrap();
        server.sql("GRANT SELECT, INSERT ON test.* TO reader").unwrap();
    }
    two.sql("SET GLOBAL read_only=1").unwrap();
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut peer = Peer::with(&proxy.options("reader", "reader-pass").database("test"), encoding);
        for _ in 0..2 {
            assert_eq!(peer.get("SELECT p FROM takes_a_number"), port);
            assert_eq!(peer.get("SELECT p FROM plain"), two.port().to_string());
        }
        peer.exec("START TRANSACTION READ ONLY");
        assert_eq!(peer.fails("SELECT p FROM takes_a_number"), 1792, "its transaction is on the reader");
        peer.exec("COMMIT");
        assert_eq!(peer.get("SELECT p FROM takes_a_number"), port);
    }
}

/// With the only reader switched off, shunned or gone, reads go to the writer: those that wait after a moment, later ones at once. With
/// a reader there, or where the setting is 0, they do not.
#[test]
fn reads_of_a_split_go_to_the_writer_while_there_is_no_reader() {
    let [one, two] = [1, 2].map(|_| Server::start(Flavor::Mariadb, &Options::new()).unwrap());
    for server in [&one, &two] {
        server.sql("CREATE TABLE test.plain AS SELECT @@port p").unwrap();
    }
    let proxy = Tidegate::builder()
        .backend(1, &one)
        .backend(2, &two)
        .user_with("app", "app-pass", 1, &[("attributes", r#"{"read_write_split": {"writer": 1, "reader": 2}}"#.into())])
        .start()
        .unwrap();
    let [writer, reader] = [&one, &two].map(|server| server.port().to_string());
    let mut admin = proxy.admin().unwrap();
    let mut peers = [Encoding::Text, Encoding::Binary].map(|encoding| Peer::through(&proxy, encoding));
    let insert = format!("INSERT INTO mysql_servers(hostgroup_id, hostname, port) VALUES(2, '{}', {})", two.host(), two.port());
    let ways = [
        "UPDATE mysql_servers SET status='OFFLINE_SOFT' WHERE hostgroup_id=2",
        "UPDATE mysql_servers SET status='SHUNNED' WHERE hostgroup_id=2",
        "UPDATE mysql_servers SET weight=0 WHERE hostgroup_id=2",
        "DELETE FROM mysql_servers WHERE hostgroup_id=2",
    ];
    let mut load = |sql: &str| {
        admin.run(sql).unwrap();
        admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap().check().unwrap();
    };
    for way in ways {
        peers.iter_mut().for_each(|peer| assert_eq!(peer.get("SELECT p FROM plain"), reader, "{way}"));
        load(way);
        let begun = Instant::now();
        peers.iter_mut().for_each(|peer| assert_eq!(peer.get("SELECT p FROM plain"), writer, "{way}"));
        assert!(begun.elapsed() < Duration::from_secs(5), "{way} {:?}", begun.elapsed());
        let begun = Instant::now();
        for peer in &mut peers {
            (0..20).for_each(|_| assert_eq!(peer.get("SELECT p FROM plain"), writer, "{way}"));
            peer.exec("START TRANSACTION READ ONLY");
            assert_eq!(peer.get("SELECT p FROM plain"), writer, "{way}");
            peer.exec("COMMIT");
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "only those that were first had to wait: {way} {:?}", begun.elapsed());
        load("DELETE FROM mysql_servers WHERE hostgroup_id=2");
        load(&insert);
    }
    peers.iter_mut().for_each(|peer| assert_eq!(peer.get("SELECT p FROM plain"), reader));
    let mut admin = proxy.admin().unwrap();
    let told = "SELECT GROUP_CONCAT(from_state || '>' || to_state) FROM stats_tidegate_events WHERE kind='reads'";
    let told = admin.scalar(told).unwrap().unwrap();
    assert_eq!(told, ["reads: 2>reads: 1,reads: 1>reads: 2"; 4].join(","));
    let metrics = admin.scalar("SHOW PROMETHEUS METRICS").unwrap().unwrap();
    assert!(!metrics.contains("tidegate_reads_to_writer_total 0"), "{metrics}");

    for sql in ["SET mysql-reads_to_writer_after_ms=0", "SET mysql-connect_timeout_server_max=1500", "LOAD MYSQL VARIABLES TO RUNTIME"] {
        admin.run(sql).unwrap();
    }
    admin.run(ways[0]).unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap().check().unwrap();
    peers.iter_mut().for_each(|peer| assert_eq!(peer.fails("SELECT p FROM plain"), 9001));
}

/// A SET or USE needs no writer, and what only needs a reader not either; all else waits.
#[test]
fn a_split_session_reads_while_there_is_no_writer() {
    let [one, two] = servers();
    let proxy = Tidegate::builder()
        .backend(1, one)
        .backend(2, two)
        .user_with("app", "app-pass", 1, &[("attributes", r#"{"read_write_split": {"writer": 1, "reader": 2}}"#.into())])
        .variable("connect_timeout_server_max", 1000)
        .variable("monitor_enabled", false)
        .start()
        .unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut set_writer = |status: &str| {
        admin.run(format!("UPDATE mysql_servers SET status='{status}' WHERE hostgroup_id=1")).unwrap();
        admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap().check().unwrap();
    };
    let begun = Instant::now();
    let mut old = sessions(&proxy);
    old.iter_mut().for_each(|peer| assert_eq!(peer.get("SELECT 1 FROM DUAL"), "1"));
    set_writer("OFFLINE_SOFT");
    let mut new = sessions(&proxy);
    for peer in old.iter_mut().chain(&mut new) {
        for _ in 0..2 {
            peer.exec_all(&["SET NAMES utf8mb4", "SET autocommit=0", "SET autocommit=1", "SET sql_mode=''", "SET time_zone='+01:00'"]);
            peer.exec_all(&["SET @x=1", "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"]);
        }
        peer.init_db("information_schema").unwrap().check().unwrap();
        assert_eq!(peer.get("SELECT DATABASE()"), "information_schema");
        peer.init_db("test").unwrap().check().unwrap();
        assert_eq!(peer.row("SELECT @x, DATABASE()"), "1 test");
    }
    Peer::through(&proxy, Encoding::Text).exec("USE test");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    for peer in &mut new {
        assert_eq!(peer.fails("DO 1"), 9001);
        assert_eq!(peer.fails("SET GLOBAL max_connections=100"), 9001, "that is no session's");
        assert_eq!(peer.fails("BEGIN"), 9001);
    }
    set_writer("ONLINE");
    for peer in old.iter_mut().chain(&mut new) {
        assert_eq!(hostgroup(peer, "SELECT @@port, @x"), 1);
        assert_eq!(peer.row("SELECT @@session.time_zone, @@session.sql_mode, @x"), "+01:00  1");
    }
}

/// `max_num_online_servers`: while one server too many is ONLINE, nothing new begins, whatever an operator resumes.
#[test]
fn too_many_servers_online_stop_a_hostgroup() {
    let [one, two] = servers();
    let more: [(&str, Setting); 2] = [("hostgroup_id", 1.into()), ("max_num_online_servers", 1.into())];
    let proxy = proxy(&[]).row("mysql_hostgroup_attributes", &more).variable("connect_timeout_server_max", 500).start().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut load = |sql: &str| {
        admin.run(sql).unwrap().check().unwrap();
        let told = admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
        told.ok().unwrap().info.clone()
    };
    let [mut open, mut peer] = sessions(&proxy);
    open.exec("BEGIN");
    assert_eq!((hostgroup(&mut open, "SELECT @@port"), hostgroup(&mut peer, "SELECT @@port")), (1, 1));
    let told = load(&format!("INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (1, '127.0.0.1', {})", two.port()));
    let why = "2 servers are ONLINE, more than max_num_online_servers=1";
    assert!(told.contains(&format!("statements for hostgroup 1 wait: {why}")), "{told}");
    let error = peer.ask("SELECT @@port").err().unwrap().clone();
    assert!(error.code == 9001 && error.message.contains(why), "{error:?}");
    let mut operator = proxy.admin().unwrap();
    let _ = operator.query("PAUSE HOSTGROUP 1").unwrap();
    let _ = operator.query("RESUME HOSTGROUP 1").unwrap();
    assert_eq!(peer.fails("SELECT @@port"), 9001, "that lifts no more than a pause");
    assert_eq!(hostgroup(&mut open, "SELECT @@port"), 1, "what has begun goes on");
    open.exec("COMMIT");
    assert_eq!(open.fails("SELECT @@port"), 9001);
    // One that waits is served as soon as there are not too many.
    load("SET mysql-connect_timeout_server_max=60000");
    operator.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap().check().unwrap();
    peer.send_query("SELECT @@port").unwrap();
    let waiting = "SELECT SUM(waiters) FROM stats_tidegate_waits";
    lab::wait::until("the session to wait", common::LIMIT, || (operator.scalar(waiting).unwrap().as_deref() == Some("1")).then_some(()))
        .unwrap();
    let told = load(&format!("UPDATE mysql_servers SET status='OFFLINE_SOFT' WHERE hostgroup_id=1 AND port={}", two.port()));
    assert!(!told.contains("statements for hostgroup"), "{told}");
    let reply = peer.recv_reply(Encoding::Text).unwrap().table().unwrap();
    assert_eq!(reply[0][0].as_deref(), Some(one.port().to_string().as_str()));
    let log = proxy.log();
    assert!(
        log.contains(&format!("hostgroup 1: {why}"))
            && log.contains("hostgroup 1: 1 servers are ONLINE (max_num_online_servers is 1): waiting statements continue"),
        "{log}"
    );
}
