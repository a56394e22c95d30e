//! Settings that change what the proxy keeps, reads or writes, one by one, before real servers.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

#[path = "settings/clients.rs"]
mod clients;
mod common;
#[path = "settings/gtids.rs"]
mod gtids;
#[path = "settings/keys.rs"]
mod keys;

use common::{LIMIT, Peer, proxy_with, server};
use lab::client::Encoding;
use lab::tidegate::Setting;
use lab::{Client, Flavor, Options, Server, Tidegate, wait};
use std::time::{Duration, Instant};

const BOTH: [Flavor; 2] = [Flavor::Mariadb, Flavor::Mysql];
/// A statement with one warning (1292) that reads no table.
const WARNS: &str = "SELECT CAST('x' AS SIGNED)";

fn proxy(flavor: Flavor, variables: &[(&str, Setting)]) -> Tidegate {
    proxy_with(server(flavor), 20, |mut builder| {
        for (name, value) in variables {
            builder = builder.variable(name, value.clone());
        }
        builder
    })
}

fn admin(proxy: &Tidegate) -> Client {
    wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap()
}

/// Changes a variable of the group `mysql` while the proxy runs.
fn set(admin: &mut Client, name: &str, value: &str) {
    admin.run(format!("SET mysql-{name}='{value}'")).unwrap();
    admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
}

fn pins(admin: &mut Client, reason: &str) -> String {
    admin.scalar(format!("SELECT COUNT(*) FROM stats_tidegate_pins WHERE reason='{reason}'")).unwrap().unwrap()
}

fn pinned(admin: &mut Client) -> String {
    pins(admin, "auto_increment_delay")
}

#[test]
fn an_insert_id_keeps_a_backend_for_so_long_at_most() {
    for flavor in BOTH {
        let delay: [(&str, Setting); 2] =
            [("auto_increment_delay_multiplex", 1_000_000.into()), ("auto_increment_delay_multiplex_timeout_ms", 400.into())];
        let proxy = proxy(flavor, &delay);
        let (mut admin, mut client) = (admin(&proxy), proxy.connect_app().unwrap());
        client.run("CREATE TABLE IF NOT EXISTS test.delayed (id INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
        let began = Instant::now();
        let inserted = client.run("INSERT INTO test.delayed () VALUES ()").unwrap().ok().unwrap().last_insert_id;
        let held = pinned(&mut admin);
        assert!(held == "1" || began.elapsed().as_millis() >= 400, "{flavor:?}: {held}");
        wait::until("a silent session lets go", LIMIT, || (pinned(&mut admin) == "0").then_some(())).unwrap();
        assert!(began.elapsed().as_millis() >= 400, "{flavor:?}: too early");
        assert_eq!(client.scalar("SELECT LAST_INSERT_ID()").unwrap().unwrap(), inserted.to_string());
        // One that is never silent lets go too, when its statement ends.
        client.run("INSERT INTO test.delayed () VALUES ()").unwrap();
        wait::until("a busy session lets go", LIMIT, || {
            client.run("SELECT 1").unwrap();
            (pinned(&mut admin) == "0").then_some(())
        })
        .unwrap();
        client.run("DROP TABLE test.delayed").unwrap();
    }
}

#[test]
fn warnings_are_read_only_where_they_are_handled() {
    for flavor in BOTH {
        let server = Server::start(flavor, &Options::new()).unwrap();
        let read = || server.root().unwrap().query("SHOW GLOBAL STATUS LIKE 'Com_show_warnings'").unwrap().table().unwrap();
        let proxy = proxy_with(&server, 20, |builder| builder.variable("handle_warnings", 0));
        let (mut admin, mut client) = (admin(&proxy), proxy.connect_app().unwrap());
        let before = read();
        client.run(WARNS).unwrap();
        client.run("SELECT 1").unwrap();
        assert_eq!(read(), before, "{flavor:?}: no round trip for it");
        let mut warnings = |open: bool| {
            if open {
                client.run("BEGIN").unwrap();
            }
            let count = client.run(WARNS).unwrap().status().unwrap().warnings;
            let shown = client.query("SHOW WARNINGS").unwrap().table().unwrap().len();
            client.run("COMMIT").unwrap();
            (count, shown)
        };
        assert_eq!(warnings(false), (1, 0), "{flavor:?}: the client is told of it, and then it is forgotten");
        assert_eq!(warnings(true), (1, 1), "{flavor:?}: a transaction has its connection");
        for sql in [
            "INSERT INTO mysql_hostgroup_attributes (hostgroup_id, hostgroup_settings) VALUES (0, '{\"handle_warnings\": 1}')",
            "LOAD MYSQL SERVERS TO RUNTIME",
        ] {
            admin.run(sql).unwrap();
        }
        assert_eq!(warnings(false), (1, 1), "{flavor:?}: the hostgroup's own");
    }
}

#[test]
fn warnings_and_errors_are_written_to_the_log_if_wanted() {
    for flavor in BOTH {
        let quiet = proxy(flavor, &[]);
        let loud = proxy(flavor, &[("log_mysql_warnings_enabled", true.into()), ("verbose_query_error", true.into())]);
        for proxy in [&quiet, &loud] {
            let mut client = proxy.connect_app().unwrap();
            for open in [false, true] {
                client.run(if open { "BEGIN" } else { "COMMIT" }).unwrap();
                client.run(WARNS).unwrap();
                assert_eq!(client.query("SHOW WARNINGS").unwrap().table().unwrap().len(), 1, "{flavor:?}: the client has it too");
            }
            assert_eq!(client.query("SELECT * FROM test.nowhere WHERE id = 987654321").unwrap().err().unwrap().code, 1146);
        }
        let said = |proxy: &Tidegate, what: &str| proxy.log().lines().filter(|line| line.contains(what)).count();
        // The answer is with the client a moment before the line is in the log.
        wait::until("the error is in the log", LIMIT, || (said(&loud, ": 1146: ") > 0).then_some(())).unwrap();
        assert_eq!(said(&loud, ": Warning 1292: "), 2, "{flavor:?}: {}", loud.log());
        let log = loud.log();
        let error = log.lines().find(|line| line.contains("error on") && line.contains(": 1146: ")).unwrap_or_else(|| panic!("{log}"));
        for part in ["user 'app'", "schema 'test'", "127.0.0.1", "SELECT * FROM test.nowhere WHERE id = ?"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("987654321"), "values stay out of the log: {error}");
        assert_eq!((said(&quiet, " 1292: "), said(&quiet, " 1146: ")), (0, 0), "{flavor:?}: {}", quiet.log());
    }
}

#[test]
fn the_slow_log_has_what_took_long_whatever_the_query_log_has() {
    let settings = [("slowlog_filename", "slow".into()), ("slowlog_threshold_ms", 100.into())];
    let proxy = proxy(Flavor::Mariadb, &settings);
    let mut client = proxy.connect_app().unwrap();
    for sql in ["SELECT 'quick'", "SELECT SLEEP(0.15)", "SELECT 'quick'"] {
        client.run(sql).unwrap();
    }
    assert_eq!(client.query("SELECT SLEEP(0.15), x FROM test.nowhere").unwrap().err().unwrap().code, 1146);
    proxy.stop().unwrap();
    let text = std::fs::read_to_string(proxy.dir().join("slow.00000001")).unwrap();
    assert_eq!(text.matches("# Query_time: ").count(), 1, "{text}");
    for part in
        ["# User@Host: app[app] @  [127.0.0.1]  Id: ", "# Schema: test  Last_errno: 0\n", "# Query_time: 0.1", "SELECT SLEEP(0.15);\n"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn aborted(admin: &mut Client) -> u64 {
    let sql = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='Client_Connections_aborted'";
    admin.scalar(sql).unwrap().unwrap().parse().unwrap()
}

#[test]
fn clients_that_break_off_are_logged_if_wanted() {
    for (is_wanted, lines) in [(true, 1), (false, 0)] {
        let proxy = proxy(Flavor::Mariadb, &[("log_unhealthy_connections", is_wanted.into())]);
        let (mut admin, mut client) = (admin(&proxy), proxy.connect_app().unwrap());
        client.send_query("SELECT SLEEP(100)").unwrap();
        let running = "SELECT COUNT(*) FROM stats_mysql_processlist WHERE info LIKE 'SELECT SLEEP%' AND command='Query'";
        wait::until("it runs", LIMIT, || (admin.scalar(running).unwrap().unwrap() == "1").then_some(())).unwrap();
        let before = aborted(&mut admin);
        client.cut();
        wait::until("it is over", LIMIT, || (aborted(&mut admin) > before).then_some(())).unwrap();
        let log = proxy.log();
        let said = log.lines().filter(|line| line.contains("went away") || line.contains("connection to the client failed")).count();
        assert_eq!(said, lines, "{log}");
    }
}

#[test]
fn a_pool_is_filled_ahead_of_need() {
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    let start = |attributes: &[(&str, Setting)]| {
        let few: [(&str, Setting); 1] = [("max_connections", 20.into())];
        let builder = Tidegate::builder().server_with(0, server.host(), server.port(), &few).app_user().variable("threads", 2);
        let builder = builder.variable("free_connections_pct", 40);
        let builder = if attributes.is_empty() { builder } else { builder.row("mysql_hostgroup_attributes", attributes) };
        builder.start().unwrap()
    };
    let opened = || {
        let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'";
        server.root().unwrap().scalar(sql).unwrap().unwrap().parse::<u32>().unwrap()
    };
    let warm: [(&str, Setting); 3] = [("hostgroup_id", 0.into()), ("connection_warming", 1.into()), ("free_connections_pct", 40.into())];
    let proxy = start(&warm);
    // One session on each of the two workers: each has its share of the eight.
    let mut clients = [(); 2].map(|()| proxy.connect_app().unwrap());
    wait::until("eight connections", LIMIT, || {
        for client in &mut clients {
            client.run("SELECT 1").unwrap();
        }
        (opened() == 8).then_some(())
    })
    .unwrap();
    for _ in 0..200 {
        for client in &mut clients {
            client.run("SELECT 1").unwrap();
        }
    }
    assert_eq!(opened(), 8, "and no more");
    drop(clients);
    proxy.stop().unwrap();
    let cold = start(&[]);
    let mut client = cold.connect_app().unwrap();
    for _ in 0..200 {
        client.run("SELECT 1").unwrap();
    }
    let live = || cold.admin().ok()?.scalar("SELECT SUM(ConnUsed + ConnFree) FROM stats_mysql_connection_pool").ok()?;
    assert_eq!(wait::until("the pool", LIMIT, live).unwrap(), "1", "one session needs one");
    let mut admin = cold.admin().unwrap();
    admin.query("SET mysql-free_connections_pct=0").unwrap();
    admin.query("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    wait::until("none", LIMIT, || (opened() == 0).then_some(())).unwrap();
}

#[test]
fn time_is_measured_if_wanted() {
    let [slow, idle] = [true, false].map(|is_wanted| {
        let rule: [(&str, Setting); 4] =
            [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "nothing".into()), ("apply", 1.into())];
        let proxy = proxy_with(server(Flavor::Mariadb), 5, |builder| {
            let builder = builder.variable("stats_time_backend_query", is_wanted).row("mysql_query_rules", &rule);
            builder.variable("stats_time_query_processor", is_wanted)
        });
        let (mut admin, mut client) = (admin(&proxy), proxy.connect_app().unwrap());
        client.run("SELECT SLEEP(0.1)").unwrap();
        ["Backend_query_time_nsec", "Query_Processor_time_nsec"].map(|name| {
            let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='{name}'");
            admin.scalar(sql).unwrap().unwrap().parse::<u64>().unwrap()
        })
    });
    assert!(slow[0] >= 90_000_000 && slow[1] > 0 && slow[1] < slow[0], "{slow:?}");
    assert_eq!(idle, [0, 0]);
}

#[test]
fn autocommit_off_is_a_transaction_if_wanted() {
    for flavor in BOTH {
        let proxy = proxy(flavor, &[("autocommit_false_is_transaction", true.into())]);
        let mut admin = admin(&proxy);
        let mut held = || pins(&mut admin, "autocommit_off");
        for encoding in [Encoding::Text, Encoding::Binary] {
            let mut peer = Peer::through(&proxy, encoding);
            // The second time the proxy knows the effect of the SET.
            for _ in 0..2 {
                peer.exec("SET autocommit=0");
                assert_eq!(held(), "1", "{flavor:?} {encoding:?}");
                for sql in ["SELECT 1", "CREATE TABLE IF NOT EXISTS test.off (i INT)", "INSERT INTO test.off VALUES (1)", "ROLLBACK"] {
                    peer.exec(sql);
                    assert_eq!(held(), "1", "{flavor:?} {encoding:?}, after {sql}");
                }
                peer.exec("SET autocommit=1");
                assert_eq!(held(), "0", "{flavor:?} {encoding:?}");
            }
            peer.exec("SET autocommit=0");
            peer.reset_connection().unwrap();
            assert_eq!(held(), "0", "{flavor:?} {encoding:?}, after a reset");
        }
        let mut peer = Peer::through(&proxy, Encoding::Text);
        peer.exec("SET autocommit=0");
        set(&mut admin, "autocommit_false_is_transaction", "false");
        peer.exec("SELECT 1");
        assert_eq!(pins(&mut admin, "autocommit_off"), "0", "{flavor:?}: not wanted any more");
        assert_eq!(peer.get("SELECT @@autocommit"), "0");
    }
}

#[test]
fn autocommit_off_moves_with_its_session_while_no_transaction_is_open() {
    let servers = [(); 2].map(|()| Server::start(Flavor::Mariadb, &Options::new()).unwrap());
    let builder = servers.iter().fold(Tidegate::builder(), |builder, server| builder.backend(0, server)).app_user();
    let proxy = builder.variable("autocommit_false_is_transaction", true).start().unwrap();
    let (mut admin, mut client) = (admin(&proxy), proxy.connect_app().unwrap());
    client.run("SET autocommit=0").unwrap();
    let mut facts = || client.query("SELECT @@port, @@autocommit").unwrap().table().unwrap().remove(0);
    let before = facts();
    assert_eq!(facts(), before, "it keeps its backend");
    let port = before[0].clone().unwrap();
    admin.run(format!("UPDATE mysql_servers SET status='OFFLINE_SOFT' WHERE port={port}")).unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
    let after = facts();
    assert!(after[0] != before[0] && after[1].as_deref() == Some("0"), "{before:?} {after:?}");
    assert_eq!((facts(), pins(&mut admin, "autocommit_off")), (after, "1".to_owned()));
}

#[test]
fn autocommit_off_has_a_transactions_time() {
    for (is_wanted, ends) in [(true, true), (false, false)] {
        let limits: [(&str, Setting); 2] =
            [("autocommit_false_is_transaction", is_wanted.into()), ("max_transaction_idle_time", 1_000.into())];
        let proxy = proxy(Flavor::Mariadb, &limits);
        let mut client = proxy.connect_app().unwrap();
        client.run("SET autocommit=0").unwrap();
        client.run("SELECT 1").unwrap();
        std::thread::sleep(Duration::from_millis(2_500));
        assert_eq!(client.ping().is_err_and(|_| true) || client.run("SELECT 1").is_err(), ends, "{}", proxy.log());
    }
}

#[test]
fn a_session_that_lost_its_own_backend_has_nothing_of_anothers() {
    for flavor in BOTH {
        let server = Server::start(flavor, &Options::new()).unwrap();
        let proxy = proxy_with(&server, 2, |builder| builder.variable("threads", 1));
        let backends = || {
            let sql = "SELECT id FROM information_schema.processlist WHERE user='app'";
            server.root().unwrap().query(sql).unwrap().table().unwrap().into_iter().flatten().flatten().collect::<Vec<_>>()
        };
        let (mut admin, mut own, mut other) = (admin(&proxy), proxy.connect_app().unwrap(), proxy.connect_app().unwrap());
        own.run("BEGIN").unwrap();
        other.run("SET @mine='secret'").unwrap();
        // From here on the setting alone keeps the session's backend, which is nothing to end the session for.
        set(&mut admin, "multiplexing", "false");
        own.run("COMMIT").unwrap();
        assert_eq!(pins(&mut admin, "multiplexing_off"), "1");
        set(&mut admin, "multiplexing", "true");
        own.run("DO 1").unwrap();
        assert_eq!(pins(&mut admin, "multiplexing_off"), "0", "it is on again");
        set(&mut admin, "multiplexing", "false");
        own.run("DO 1").unwrap();
        let held = own.scalar("SELECT /* held */ id FROM information_schema.processlist WHERE info LIKE '%held%'").unwrap().unwrap();
        server.sql(&format!("KILL {held}")).unwrap();
        wait::until("it is gone", LIMIT, || (!backends().contains(&held)).then_some(())).unwrap();
        assert_eq!(own.scalar("SELECT @mine").unwrap(), None, "{flavor:?}");
        assert_eq!(other.scalar("SELECT @mine").unwrap().as_deref(), Some("secret"), "{flavor:?}");
    }
}
