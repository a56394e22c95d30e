//! Reads of several sessions under way on one connection (`mysql-pipeline_depth`): each gets its own reply, whatever happens to the
//! connection, and nobody waits for what others read.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

mod common;

use common::pipelining::{AGAIN, BOTH, Line, PIPELINED, admin, eager, number, run_short};
use common::{LIMIT, proxy_with, server};
use lab::client::{Encoding, Reply};
use lab::differential::Readers;
use lab::{Client, ConnectOptions, Flavor, Server, Tidegate, wait};
use std::time::Duration;

/// A table of `keys` rows, in which each key stands beside itself.
fn keys(server: &Server, table: &str, keys: usize) {
    let rows: Vec<String> = (0..keys).map(|key| format!("({key}, 'v{key}')")).collect();
    server.sql(&format!("CREATE TABLE test.{table} (id INT PRIMARY KEY, v VARCHAR(20))")).unwrap();
    server.sql(&format!("INSERT INTO test.{table} VALUES {}", rows.join(","))).unwrap();
}

fn session(proxy: &Tidegate) -> Client {
    Client::connect(&proxy.options("app", "app-pass").database("test").timeout(LIMIT)).unwrap()
}

/// The statement runs until it is known: one run in seven is watched where nobody waits.
fn learn(proxy: &Tidegate, sql: &str) {
    run_short(proxy);
    let mut session = session(proxy);
    (0..300).for_each(|_| drop(session.run(sql).unwrap()));
}

/// Sessions of which each reads its own row again and again. They have done so often enough to share connections.
fn readers(server: &Server, proxy: &Tidegate, table: &str, count: usize) -> Readers {
    let root = ConnectOptions::unix(server.socket(), "root", "");
    let readers = Readers::start(&root, &proxy.options("app", "app-pass").database("test").timeout(LIMIT), table, count).unwrap();
    are_shared(proxy, 500);
    readers
}

/// Waits until this process has sent so many statements together.
fn are_shared(proxy: &Tidegate, count: u64) {
    let mut admin = admin(proxy);
    wait::until("statements are under way together", LIMIT, || (number(&mut admin, PIPELINED) > count).then_some(())).unwrap();
}

fn answer(session: &mut Client) -> Reply {
    session.recv_reply(Encoding::Text).unwrap()
}

#[test]
fn each_of_many_sessions_gets_its_own_answers_though_connections_are_killed() {
    for flavor in BOTH {
        let server = server(flavor);
        let proxy = proxy_with(server, 2, |builder| eager(builder, 1_000));
        let readers = readers(server, &proxy, "own", 64);
        let (mut root, mut admin) = (server.root().unwrap(), admin(&proxy));
        for _ in 0..3 {
            let id = root.scalar("SELECT id FROM information_schema.processlist WHERE user = 'app' LIMIT 1").unwrap().unwrap();
            // It may have gone meanwhile.
            root.query(format!("KILL {id}")).unwrap();
            let most = number(&mut admin, PIPELINED);
            are_shared(&proxy, most + 500);
        }
        let (together, all) = (number(&mut admin, PIPELINED), readers.stop().unwrap());
        assert!(together > all / 4, "{flavor:?}: {together} of {all} only");
        server.sql("DROP TABLE test.own").unwrap();
    }
}

#[test]
fn an_upgrade_moves_sessions_whose_reads_share_connections() {
    let server = server(Flavor::Mariadb);
    let mut proxy = proxy_with(server, 2, |builder| eager(builder, 1_000));
    let readers = readers(server, &proxy, "moved", 16);
    proxy.upgrade(None).unwrap();
    are_shared(&proxy, 500);
    readers.stop().unwrap();
    server.sql("DROP TABLE test.moved").unwrap();
}

#[test]
fn nobody_waits_behind_a_statement_that_is_slow_for_once() {
    for flavor in BOTH {
        let server = server(flavor);
        keys(server, "beside", 8);
        let proxy = proxy_with(server, 2, |builder| eager(builder, 10).variable("threads", 1));
        learn(&proxy, "SELECT SLEEP(0)");
        learn(&proxy, "SELECT v FROM beside WHERE id = 0");
        let mut line = Line::new(&proxy, [(); 2].map(|()| session(&proxy)));
        let (mut sleeper, mut others) = (session(&proxy), (0..5).map(|_| session(&proxy)).collect::<Vec<_>>());
        line.asks(|| sleeper.send_query("SELECT SLEEP(6)").unwrap());
        for (key, other) in others.iter_mut().enumerate() {
            line.asks(|| other.send_query(format!("SELECT v FROM beside WHERE id = {key}")).unwrap());
        }
        let began = line.moves();
        for (key, other) in others.iter_mut().enumerate() {
            assert_eq!(answer(other).scalar().unwrap().unwrap(), format!("v{key}"), "{flavor:?}");
        }
        let longest = began.elapsed();
        assert!(longest < Duration::from_secs(2), "{flavor:?}: {longest:?}");
        assert_eq!(number(&mut line.admin, AGAIN), 3, "{flavor:?}: half of the depth went with the one that sleeps");
        // What sleeps can be killed, and does not go on.
        let mut killer = session(&proxy);
        killer.run(format!("KILL QUERY {}", sleeper.connection_id())).unwrap();
        assert_eq!(answer(&mut sleeper).err().unwrap().code, 1317, "{flavor:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "{flavor:?}");
        let mut root = server.root().unwrap();
        let sleeping = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app' AND info LIKE 'SELECT SLEEP%'";
        wait::until("it ends", Duration::from_secs(3), || (root.scalar(sleeping).unwrap()? == "0").then_some(())).unwrap();
        assert_eq!(sleeper.scalar("SELECT 'on'").unwrap().unwrap(), "on", "{flavor:?}");
        server.sql("DROP TABLE test.beside").unwrap();
    }
}

#[test]
fn warnings_errors_and_long_replies_are_as_ever() {
    for flavor in BOTH {
        let proxy = proxy_with(server(flavor), 2, |builder| eager(builder, 1_000).variable("threads", 1));
        // For the end of a long reply, the two behind it do not wait.
        for (quick, odd, is_error, sent_again) in [
            ("SELECT CAST('5' AS UNSIGNED)", "SELECT CAST('x' AS UNSIGNED)", false, 1),
            ("SELECT JSON_EXTRACT('{}', '$.a')", "SELECT JSON_EXTRACT('{}', '$$$')", flavor == Flavor::Mysql, 1),
            ("SELECT REPEAT('a', 3)", "SELECT REPEAT('a', 100000)", false, 3),
        ] {
            learn(&proxy, quick);
            let mut line = Line::new(&proxy, [(); 2].map(|()| session(&proxy)));
            let mut sessions: Vec<Client> = (0..4).map(|_| session(&proxy)).collect();
            for (n, session) in sessions.iter_mut().enumerate() {
                line.asks(|| session.send_query(if n == 1 { odd } else { quick }).unwrap());
            }
            let (again, _) = (number(&mut line.admin, AGAIN), line.moves());
            let expected = Client::connect(&ConnectOptions::app(server(flavor)).timeout(LIMIT)).map(|mut direct| {
                let reply = direct.query(odd).unwrap();
                (format!("{:?}", reply.table().ok()), direct.run("SHOW WARNINGS").unwrap().table().unwrap(), reply.err().map(|e| e.code))
            });
            let (rows, warnings, error) = expected.unwrap();
            for (n, session) in sessions.iter_mut().enumerate() {
                let reply = answer(session);
                if n == 1 {
                    assert_eq!(
                        (format!("{:?}", reply.table().ok()), reply.err().map(|e| e.code)),
                        (rows.clone(), error),
                        "{flavor:?} {odd}"
                    );
                    assert_eq!(error.is_some(), is_error, "{flavor:?} {odd}");
                } else {
                    assert!(reply.err().is_none(), "{flavor:?} {quick}");
                }
            }
            assert_eq!(sessions[1].run("SHOW WARNINGS").unwrap().table().unwrap(), warnings, "{flavor:?} {odd}");
            assert!(sessions[0].run("SHOW WARNINGS").unwrap().table().unwrap().is_empty(), "{flavor:?} {odd}");
            assert_eq!(number(&mut line.admin, AGAIN), again + sent_again, "{flavor:?} {odd}");
        }
    }
}
