//! Servers that crash, stall and refuse.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::client::Param;
use lab::fault::sockets;
use lab::{Flavor, Options, Server, wait};

use crate::bed::{APP_THREADS, Bed, LIMIT, Report, Seen, attempt, seen, try_connect, wait_sessions};

/// Clients that write and read in a loop, and record each answer.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    done: AtomicU64,
    outcomes: Mutex<BTreeMap<Seen, u64>>,
    acknowledged: Mutex<Vec<(u64, u64)>>,
}

impl Load {
    fn note(&self, seen: Seen) {
        *self.outcomes.lock().unwrap().entry(seen).or_default() += 1;
        if seen == Seen::Done {
            self.done.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// One client; it connects again when it was closed.
    fn client(&self, bed: &Bed, id: u64) {
        let mut number = 0;
        while !self.over.load(Ordering::Acquire) {
            let mut client = match try_connect(&bed.proxy) {
                Ok(client) => client,
                Err(error) => {
                    self.note(seen(&error));
                    continue;
                }
            };
            while !self.over.load(Ordering::Acquire) {
                number += 1;
                let write = attempt(&mut client, &format!("INSERT INTO t VALUES ({id}, {number})"));
                self.note(write);
                if write == Seen::Done {
                    self.acknowledged.lock().unwrap().push((id, number));
                }
                let read = attempt(&mut client, "SELECT COUNT(*) FROM t WHERE client = 0");
                self.note(read);
                if write == Seen::Closed || read == Seen::Closed {
                    break;
                }
            }
        }
    }

    /// Waits until this many more statements were done.
    fn wait_more(&self, more: u64) {
        let wanted = self.done.load(Ordering::Acquire) + more;
        let waited = wait::until("statements to be done", LIMIT, || (self.done.load(Ordering::Acquire) >= wanted).then_some(()));
        waited.unwrap_or_else(|e| panic!("{e}; so far {:?}", self.outcomes.lock().unwrap()));
    }

    fn assert_outcomes(&self, allowed: &[Seen]) {
        let outcomes = self.outcomes.lock().unwrap();
        println!("outcomes: {outcomes:?}");
        assert!(outcomes.keys().all(|seen| allowed.contains(seen)), "{outcomes:?}");
    }
}

/// Runs `body` while `clients` clients work, then ends them.
fn under_load(bed: &Bed, clients: u64, body: impl FnOnce(&Load)) -> Load {
    bed.root(&["CREATE TABLE test.t (client INT, number INT)"]);
    let load = Load::default();
    thread::scope(|scope| {
        // Also when the body panics the clients must end, or the scope would wait for ever.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let over = Over(&load.over);
        for id in 1..=clients {
            let load = &load;
            scope.spawn(move || load.client(bed, id));
        }
        body(&load);
        drop(over);
    });
    load
}

fn crash_under_load(flavor: Flavor) {
    let bed = Bed::new(flavor, 5, |b| b);
    // A committed transaction must survive the crash of the process.
    bed.root(&["SET GLOBAL innodb_flush_log_at_trx_commit=2"]);
    let load = under_load(&bed, 12, |load| {
        load.wait_more(300);
        bed.server.kill9();
        bed.server.restart().unwrap();
        load.wait_more(300);
    });
    load.assert_outcomes(&[Seen::Done, Seen::Error(lab::SERVER_LOST), Seen::Error(9001), Seen::Closed]);
    if load.outcomes.lock().unwrap().contains_key(&Seen::Closed) {
        assert!(bed.proxy.log().contains("closed: Lost connection to server"), "closed without a reason in the log");
    }
    assert_eq!(bed.count("SELECT COUNT(*) - COUNT(DISTINCT client, number) FROM test.t"), 0, "a statement ran twice");
    let mut root = bed.server.root().unwrap();
    for (client, number) in load.acknowledged.lock().unwrap().iter() {
        let found = root.scalar(format!("SELECT COUNT(*) FROM test.t WHERE client={client} AND number={number}")).unwrap();
        assert_eq!(found.as_deref(), Some("1"), "acknowledged and lost: {client}, {number}");
    }
    wait_sessions(&bed.proxy, 0);
}

lab::each!(crash_under_load);

/// While the server is down new work waits, and goes on when the server is back: no client is refused.
#[test]
fn work_waits_for_a_server_that_comes_back() {
    let bed = Bed::mariadb(5, |b| b.variable("connect_timeout_server_max", 60_000));
    let mut client = bed.client();
    client.run("SELECT 1").unwrap();
    bed.server.kill9();
    thread::scope(|scope| {
        let answer = scope.spawn(move || client.scalar("SELECT 'back'"));
        let failed = || (Report::of(&bed.proxy).counter("connect_errors") > 2).then_some(());
        wait::until("connects to fail", LIMIT, failed).unwrap();
        bed.server.restart().unwrap();
        assert_eq!(answer.join().unwrap().unwrap().as_deref(), Some("back"));
    });
}

/// After too long a wait the error contains the fault of the server.
#[test]
fn a_server_that_stays_away_is_named_in_the_error() {
    let bed = Bed::mariadb(5, |b| b.variable("connect_timeout_server_max", 1500));
    let mut client = bed.client();
    bed.server.kill9();
    let reply = client.query("INSERT INTO t VALUES (1)").unwrap();
    let error = reply.err().unwrap();
    assert_eq!(error.code, 9001, "{error:?}");
    assert!(error.message.contains("refused"), "{error:?}");
    assert_eq!(attempt(&mut client, "SELECT 1"), Seen::Error(9001), "the session goes on");
}

/// One query shows that the old connections of a restarted server have ended: sessions do not open one each to ask.
#[test]
fn many_lost_transactions_ask_a_server_once() {
    const SESSIONS: u64 = 30;
    let bed = Bed::mariadb(SESSIONS as i64, |b| b);
    bed.root(&["CREATE TABLE test.t (id INT PRIMARY KEY)"]);
    let mut sessions: Vec<_> = (0..SESSIONS).map(|_| bed.client()).collect();
    for (id, session) in sessions.iter_mut().enumerate() {
        session.run("BEGIN").unwrap();
        session.run(format!("INSERT INTO t VALUES ({id})")).unwrap();
    }
    // A connection opened within the second before a start counts as opened after it, because servers count whole seconds.
    thread::sleep(Duration::from_millis(1_500));
    bed.server.kill9();
    bed.server.restart().unwrap();
    for session in &mut sessions {
        assert_ne!(attempt(session, "SELECT COUNT(*) FROM t"), Seen::Done, "its transaction is lost");
    }
    let mut admin = bed.proxy.admin().unwrap();
    let mut used = || admin.scalar("SELECT SUM(ConnUsed) FROM stats_mysql_connection_pool").unwrap();
    // A lost connection counts until its server has been asked.
    wait::until("the questions to be answered", LIMIT, || (used()? == "0").then_some(())).unwrap();
    let made = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME='Connections'";
    let made = bed.count(made);
    assert!(made < SESSIONS, "{made} connections since the start");
}

fn frozen_server(flavor: Flavor) {
    const BACKENDS: usize = 6;
    const CONCURRENCY: usize = 3;
    let bed = Bed::new(flavor, BACKENDS as i64, |b| {
        b.variable("connect_concurrency", CONCURRENCY as i64).variable("connect_timeout_server_max", 60_000)
    });
    // Two connections exist when the server freezes: all further ones are requested while it is frozen.
    let load = under_load(&bed, 2, |load| {
        load.wait_more(100);
        let before = sockets::towards(bed.server.port()).unwrap();
        bed.server.sigstop();
        thread::scope(|scope| {
            let late: Vec<_> = (0..12).map(|_| scope.spawn(|| late_client(&bed))).collect();
            let frozen = Instant::now();
            let mut seen_connecting = 0;
            while frozen.elapsed() < Duration::from_secs(4) {
                let now = sockets::towards(bed.server.port()).unwrap();
                let connecting = now.difference(&before).count();
                seen_connecting = seen_connecting.max(connecting);
                assert!(now.len() <= BACKENDS, "{} connections to a frozen server", now.len());
                assert!(connecting <= CONCURRENCY, "{connecting} connects in progress");
                thread::yield_now();
            }
            bed.server.sigcont();
            for client in late {
                assert_eq!(client.join().unwrap(), Seen::Done);
            }
            assert!(seen_connecting > 0, "nothing was tried");
        });
        load.wait_more(200);
    });
    load.assert_outcomes(&[Seen::Done]);
}

fn late_client(bed: &Bed) -> Seen {
    try_connect(&bed.proxy).map_or_else(|e| seen(&e), |mut client| attempt(&mut client, "SELECT 1"))
}

lab::each!(frozen_server);

/// A statement over its time limit on a frozen server costs one KILL, not a storm of connects that ask for it.
#[test]
fn query_timeout_on_a_frozen_server_is_no_connect_storm() {
    const CONCURRENCY: usize = 2;
    let bed = Bed::mariadb(100, |b| b.variable("default_query_timeout", 1000).variable("connect_concurrency", CONCURRENCY as i64));
    let mut client = bed.client();
    client.run("SELECT 1").unwrap();
    let before = sockets::towards(bed.server.port()).unwrap();
    bed.server.sigstop();
    let most = thread::scope(|scope| {
        let running = scope.spawn(move || attempt(&mut client, "SELECT 1"));
        let start = Instant::now();
        let mut most = 0;
        while start.elapsed() < Duration::from_secs(6) {
            most = most.max(sockets::towards(bed.server.port()).unwrap().difference(&before).count());
            thread::yield_now();
        }
        bed.server.sigcont();
        running.join().unwrap();
        most
    });
    assert!(most <= CONCURRENCY, "{most} connects in progress");
}

/// The server's own limit is lower than the proxy's: clients wait for a connection instead of seeing its error.
fn server_is_full(flavor: Flavor) {
    let server = Server::start(flavor, &Options::new().arg("--max-connections=4")).unwrap();
    let bed = Bed::with(server, 50, |b| b.variable("connect_timeout_server_max", 60_000));
    let load = under_load(&bed, 16, |load| load.wait_more(2000));
    load.assert_outcomes(&[Seen::Done]);
}

lab::each!(server_is_full);

/// Backends that the server closes while they are idle are replaced without a word.
#[test]
fn idle_backends_that_the_server_closed() {
    let bed = Bed::mariadb(4, |b| b);
    let mut clients: Vec<_> = (0..4).map(|_| bed.client()).collect();
    for round in 0..5 {
        for client in &mut clients {
            assert_eq!(attempt(client, "INSERT INTO mysql_free SELECT 1"), Seen::Error(1146), "round {round}");
            assert_eq!(attempt(client, "SELECT 1"), Seen::Done, "round {round}");
        }
        bed.root(&["KILL USER app"]);
        bed.wait_count(APP_THREADS, 0);
    }
}

/// Prepared statements belong to the session: they work on after the server they were prepared on has crashed.
fn prepared_statements_outlive_the_server(flavor: Flavor) {
    let bed = Bed::new(flavor, 2, |b| b.variable("connect_timeout_server_max", 60_000));
    let mut client = bed.client();
    let statement = client.prepare("SELECT ? + 1").unwrap();
    let mut plus_one = |number: i64| client.execute(&statement, &[Param::Int(number)]).unwrap().scalar().unwrap();
    assert_eq!(plus_one(1).as_deref(), Some("2"));
    bed.server.kill9();
    bed.server.restart().unwrap();
    assert_eq!(plus_one(2).as_deref(), Some("3"));
    assert_eq!(client.execute(&statement, &[Param::Int(3)]).unwrap().scalar().unwrap().as_deref(), Some("4"));
}

lab::each!(prepared_statements_outlive_the_server);

/// A transaction is lost with its server. The client is told so before anything else of its session runs.
#[test]
fn a_transaction_is_lost_with_its_server() {
    let bed = Bed::mariadb(2, |b| b.variable("connect_timeout_server_max", 60_000));
    bed.root(&["CREATE TABLE test.t (a INT)"]);
    for _ in 0..3 {
        let mut client = bed.client();
        client.run("BEGIN").unwrap();
        client.run("INSERT INTO t VALUES (1)").unwrap();
        bed.server.kill9();
        bed.server.restart().unwrap();
        let seen = attempt(&mut client, "COMMIT");
        assert!(matches!(seen, Seen::Error(lab::SERVER_LOST) | Seen::Closed), "{seen:?}");
        assert_eq!(bed.count("SELECT COUNT(*) FROM test.t"), 0);
    }
}
