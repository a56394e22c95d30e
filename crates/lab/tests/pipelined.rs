//! Reads of several sessions under way on one connection (`mysql-pipeline_depth`): each gets its own reply, whatever happens to the
//! connection, and nobody waits for what others read.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

mod common;

use common::pipelining::{AGAIN, BOTH, Line, PIPELINED, admin, eager, number};
use common::{LIMIT, proxy_with, server};
use lab::client::{Encoding, Reply};
use lab::{Client, Flavor, LabError, Server, Tidegate, wait};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
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

/// The statement runs until it is known.
fn learn(proxy: &Tidegate, sql: &str) {
    let mut session = session(proxy);
    (0..40).for_each(|_| drop(session.run(sql).unwrap()));
}

/// A session reads the row of its own key, and gets that.
fn reads_own(session: &mut Client, table: &str, key: usize) {
    let row = session.run(format!("SELECT id, v FROM {table} WHERE id = {key}")).unwrap().table().unwrap();
    assert_eq!(row, [[Some(key.to_string()), Some(format!("v{key}"))]]);
}

/// Waits until this process has sent many statements together.
fn are_shared(proxy: &Tidegate) -> Result<(), LabError> {
    let mut admin = admin(proxy);
    wait::until("statements are under way together", LIMIT, || (number(&mut admin, PIPELINED) > 500).then_some(()))
}

fn answer(session: &mut Client) -> Reply {
    session.recv_reply(Encoding::Text).unwrap()
}

#[test]
fn each_of_many_sessions_gets_its_own_answers_though_connections_are_killed() {
    const SESSIONS: usize = 64;
    for flavor in BOTH {
        let server = server(flavor);
        keys(server, "own", SESSIONS);
        let proxy = proxy_with(server, 2, |builder| eager(builder, 1_000));
        learn(&proxy, "SELECT id, v FROM own WHERE id = 1");
        let (done, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut root, mut admin) = (server.root().unwrap(), admin(&proxy));
        thread::scope(|scope| {
            for key in 0..SESSIONS {
                let (mut session, done, answers) = (session(&proxy), &done, &answers);
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        reads_own(&mut session, "own", key);
                        answers.fetch_add(1, Ordering::AcqRel);
                    }
                });
            }
            let shown = |admin: &mut Client, most: u64| (number(admin, PIPELINED) > most).then_some(());
            let seen = (0..3).try_for_each(|_| {
                let most = number(&mut admin, PIPELINED);
                wait::until("statements are under way together", LIMIT, || shown(&mut admin, most + 500))?;
                let id = root.scalar("SELECT id FROM information_schema.processlist WHERE user = 'app' LIMIT 1")?.unwrap();
                // It may have gone meanwhile.
                root.query(format!("KILL {id}")).map(drop)
            });
            let most = number(&mut admin, PIPELINED);
            let after = wait::until("it goes on", LIMIT, || shown(&mut admin, most + 500));
            done.store(true, Ordering::Release);
            seen.and(after).unwrap();
        });
        let (together, all) = (number(&mut admin, PIPELINED), answers.into_inner());
        assert!(together > all / 4, "{flavor:?}: {together} of {all} only");
        server.sql("DROP TABLE test.own").unwrap();
    }
}

#[test]
fn an_upgrade_moves_sessions_whose_reads_share_connections() {
    const SESSIONS: usize = 16;
    let server = server(Flavor::Mariadb);
    keys(server, "moved", SESSIONS);
    let mut proxy = proxy_with(server, 2, |builder| eager(builder, 1_000));
    learn(&proxy, "SELECT id, v FROM moved WHERE id = 1");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for key in 0..SESSIONS {
            let (mut session, done) = (session(&proxy), &done);
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    reads_own(&mut session, "moved", key);
                }
            });
        }
        let before = are_shared(&proxy);
        let upgraded = proxy.upgrade(None);
        let after = are_shared(&proxy);
        done.store(true, Ordering::Release);
        upgraded.unwrap();
        before.and(after).unwrap();
    });
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
        assert_eq!(number(&mut line.admin, AGAIN), 2, "{flavor:?}: half of the line went with the one that sleeps");
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
        for (quick, odd, is_error) in [
            ("SELECT CAST('5' AS UNSIGNED)", "SELECT CAST('x' AS UNSIGNED)", false),
            ("SELECT JSON_EXTRACT('{}', '$.a')", "SELECT JSON_EXTRACT('{}', '$$$')", flavor == Flavor::Mysql),
            ("SELECT REPEAT('a', 3)", "SELECT REPEAT('a', 100000)", false),
        ] {
            learn(&proxy, quick);
            let mut line = Line::new(&proxy, [(); 2].map(|()| session(&proxy)));
            let mut sessions: Vec<Client> = (0..4).map(|_| session(&proxy)).collect();
            for (n, session) in sessions.iter_mut().enumerate() {
                line.asks(|| session.send_query(if n == 1 { odd } else { quick }).unwrap());
            }
            let (again, _) = (number(&mut line.admin, AGAIN), line.moves());
            let expected = Client::connect(&lab::ConnectOptions::app(server(flavor)).timeout(LIMIT)).map(|mut direct| {
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
            assert_eq!(number(&mut line.admin, AGAIN), again + 1, "{flavor:?} {odd}");
        }
    }
}
