//! Limits and order: connections, times, and the order in which waiting sessions are served.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use lab::client::{Compression, Encoding, Execution};
use lab::tidegate::Builder;
use lab::{Client, Flavor, wait};
use wire::command::Command;

use crate::bed::{APP_THREADS, Bed, LIMIT, Report, SLEEPERS, Seen, attempt, seen, try_connect, wait_log, wait_sessions};

/// One backend, twenty waiters on two workers: served in the order in which they came. They come further apart than the
/// bound of one millisecond that holds between workers.
#[test]
fn first_come_first_served() {
    const WAITERS: u64 = 20;
    let bed = Bed::mariadb(1, |b| b.variable("connect_timeout_server_max", 60_000));
    bed.root(&["CREATE TABLE test.t (place INT AUTO_INCREMENT PRIMARY KEY, who INT)"]);
    for round in 0..3 {
        bed.root(&["TRUNCATE test.t"]);
        let mut waiters: Vec<Client> = (0..WAITERS).map(|_| bed.client()).collect();
        let mut holder = bed.client();
        holder.run("SELECT GET_LOCK('all', 1)").unwrap();
        for (who, waiter) in waiters.iter_mut().enumerate() {
            let waits = Report::of(&bed.proxy).counter("waits");
            waiter.send_query(format!("INSERT INTO t (who) VALUES ({who})")).unwrap();
            wait::until("the next waiter", LIMIT, || (Report::of(&bed.proxy).counter("waits") > waits).then_some(())).unwrap();
            // The next one comes clearly later than the bound.
            let queued = Instant::now();
            wait::until("the bound to pass", LIMIT, || (queued.elapsed().as_millis() >= 3).then_some(())).unwrap();
        }
        holder.run("SELECT RELEASE_LOCK('all')").unwrap();
        for waiter in &mut waiters {
            waiter.recv_reply(lab::client::Encoding::Text).unwrap().check().unwrap();
        }
        let order = bed.server.sql("SELECT who FROM test.t ORDER BY place").unwrap().table().unwrap();
        let order: Vec<String> = order.into_iter().flatten().flatten().collect();
        let wanted: Vec<String> = (0..WAITERS).map(|who| who.to_string()).collect();
        assert_eq!(order, wanted, "round {round}");
    }
}

/// Samples the server's own list while `body` runs; gives the largest number of the proxy's connections seen.
/// Those that were killed and are on their way out do not count.
fn most_threads(bed: &Bed, body: impl FnOnce()) -> u64 {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampling = scope.spawn(|| {
            let mut root = bed.server.root().unwrap();
            let mut most = 0;
            while !over.load(Ordering::Acquire) {
                most = most.max(root.scalar(format!("{APP_THREADS} AND command <> 'Killed'")).unwrap().unwrap().parse().unwrap());
            }
            most
        });
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let over = Over(&over);
        body();
        drop(over);
        sampling.join().unwrap()
    })
}

/// Error 9001 of a hostgroup whose only server has no weight says just that.
#[test]
fn a_server_without_weight_is_named_as_such() {
    let server = lab::Server::start(Flavor::Mariadb, &lab::Options::new()).unwrap();
    let port = server.port();
    let bed = Bed::with(server, 2, |b| {
        let row = [("max_connections", 2.into()), ("weight", 0.into())];
        b.server_with(1, "127.0.0.1", port, &row).user("root", "", 1).variable("connect_timeout_server_max", 500)
    });
    let mut client = Client::connect(&bed.proxy.options("root", "").timeout(LIMIT)).unwrap();
    let error = client.query("SELECT 1").unwrap().err().unwrap().to_lab_error().to_string();
    assert!(error.contains(&format!("127.0.0.1:{port} ONLINE, weight 0")), "{error}");
}

/// Error 9001 names all causes: one server cannot be reached, and the other has no connection left.
#[test]
fn a_server_that_fails_hides_no_other_cause() {
    let dead = lab::port::Port::reserve().unwrap();
    let bed = Bed::mariadb(1, |b| b.server(0, "127.0.0.1", dead.number()).variable("connect_timeout_server_max", 1_000));
    let mut holder = bed.client();
    wait::until("it has the connection", LIMIT, || holder.run("BEGIN").ok().map(drop)).unwrap();
    let error = bed.client().query("SELECT 1").unwrap().err().unwrap().to_lab_error().to_string();
    for cause in [format!("connecting to 127.0.0.1:{} fails: ", dead.number()), "all 1 connections of the other servers".to_owned()] {
        assert!(error.contains(&cause), "{cause}: {error}");
    }
}

/// `max_connections` of a server holds over all workers, as the server counts.
fn max_connections_of_a_server(flavor: Flavor) {
    const MAX: u64 = 3;
    let bed = Bed::new(flavor, MAX as i64, |b| b.variable("connect_timeout_server_max", 60_000));
    let most = most_threads(&bed, || {
        thread::scope(|scope| {
            for client in 0..16 {
                let bed = &bed;
                scope.spawn(move || {
                    for round in 0..15 {
                        let mut session = try_connect(&bed.proxy).unwrap();
                        session.run(format!("SET @who = {client}")).unwrap();
                        session.run("BEGIN").unwrap();
                        assert_eq!(session.scalar("SELECT @who").unwrap(), Some(client.to_string()));
                        session.run("COMMIT").unwrap();
                        if round % 3 == 0 {
                            session.run("CREATE TEMPORARY TABLE mine (a INT)").unwrap();
                        }
                    }
                });
            }
        });
    });
    println!("at most {most} connections");
    assert!(most <= MAX, "{most} connections");
    wait_sessions(&bed.proxy, 0);
}

lab::each!(max_connections_of_a_server);

/// Also while clients vanish in the middle of statements, whose connections the server must be told to end.
///
/// That takes one more connection, when all others are busy.
#[test]
fn max_connections_while_clients_vanish() {
    const MAX: u64 = 3;
    let bed = Bed::mariadb(MAX as i64, |b| b.variable("connect_timeout_server_max", 60_000));
    let most = most_threads(&bed, || {
        for _ in 0..10 {
            let mut clients: Vec<_> = (0..MAX).map(|_| bed.client()).collect();
            for client in &mut clients {
                client.send_query("SELECT SLEEP(100)").unwrap();
            }
            bed.wait_count(SLEEPERS, MAX);
            for client in &mut clients {
                client.cut();
            }
            assert_eq!(attempt(&mut bed.client(), "SELECT 1"), Seen::Done);
            bed.wait_count(SLEEPERS, 0);
        }
    });
    println!("at most {most} connections");
    assert!(most <= MAX + 1, "{most} connections");
}

/// Users have connections of their own. Two of them on one permitted connection take turns: none starves, and the limit
/// holds.
#[test]
fn two_users_share_one_connection() {
    const ROUNDS: u64 = 60;
    let bed = Bed::mariadb(1, |b| b.user("native", "native-pass", 0).variable("connect_timeout_server_max", 60_000));
    let threads = "SELECT COUNT(*) FROM information_schema.processlist WHERE user IN ('app', 'native')";
    thread::scope(|scope| {
        for (user, password) in [("app", "app-pass"), ("native", "native-pass"), ("app", "app-pass"), ("native", "native-pass")] {
            let options = bed.proxy.options(user, password).database("test").timeout(LIMIT);
            scope.spawn(move || {
                let mut client = Client::connect(&options).unwrap();
                for round in 0..ROUNDS {
                    let seen = client.scalar("SELECT SUBSTRING_INDEX(USER(), '@', 1)").unwrap();
                    assert_eq!(seen.as_deref(), Some(user), "round {round}");
                }
            });
        }
    });
    wait_sessions(&bed.proxy, 0);
    bed.wait_count(threads, 1);
    assert!(bed.backends() <= 1);
}

/// The proxy's own limit of clients is an error that says so, and passes.
#[test]
fn max_connections_of_the_proxy() {
    let bed = Bed::mariadb(2, |b| b.variable("max_connections", 5));
    let clients: Vec<_> = (0..5).map(|_| bed.client()).collect();
    assert_eq!(try_connect(&bed.proxy).unwrap_err().code(), Some(1040));
    drop(clients);
    wait_sessions(&bed.proxy, 0);
    assert_eq!(attempt(&mut bed.client(), "SELECT 1"), Seen::Done);
}

#[test]
fn wait_timeout_closes_idle_clients_only() {
    let bed = Bed::mariadb(3, |b| b.variable("wait_timeout", 1500));
    let mut idle = bed.client();
    idle.run("SELECT 1").unwrap();
    let mut in_transaction = bed.client();
    in_transaction.run("BEGIN").unwrap();
    // A statement that runs longer than the limit is not idleness.
    let mut busy = bed.client();
    let start = Instant::now();
    assert_eq!(attempt(&mut busy, "SELECT SLEEP(4)"), Seen::Done);
    assert!(start.elapsed().as_secs() >= 4);
    wait_log(&bed.proxy, "wait_timeout");
    assert!(matches!(attempt(&mut idle, "SELECT 1"), Seen::Error(4031) | Seen::Closed));
    assert_eq!(attempt(&mut in_transaction, "COMMIT"), Seen::Done);
    wait_sessions(&bed.proxy, 0);
}

/// SET wait_timeout is obeyed by the proxy: no server sees that the client is idle.
#[test]
fn a_clients_own_wait_timeout() {
    let bed = Bed::mariadb(3, |b| b);
    let mut idle = bed.client();
    idle.run("SET wait_timeout=1").unwrap();
    let mut pinned = bed.client();
    pinned.run("SET wait_timeout=1").unwrap();
    pinned.run("SELECT GET_LOCK('own', 0)").unwrap();
    let mut reset = bed.client();
    reset.run("SET wait_timeout=1").unwrap();
    reset.reset_connection().unwrap().ok().unwrap();
    let options = bed.proxy.options("app", "app-pass").timeout(LIMIT).compression(Compression::Zlib);
    let mut compressed = Client::connect(&options).unwrap();
    compressed.run("SET wait_timeout=1").unwrap();
    // An answer of many packets: what comes unasked does not count on from it.
    compressed.run("SELECT seq FROM test.seq_1_to_100").unwrap();
    wait_sessions(&bed.proxy, 1);
    for client in [&mut idle, &mut pinned, &mut compressed] {
        assert!(matches!(attempt(client, "SELECT 1"), Seen::Error(4031) | Seen::Closed));
    }
    assert_eq!(attempt(&mut reset, "SELECT IS_FREE_LOCK('own')"), Seen::Done);
}

fn query_timeout(flavor: Flavor) {
    let bed = Bed::new(flavor, 3, |b| b.variable("default_query_timeout", 1500));
    bed.root(&["CREATE TABLE test.t (a INT PRIMARY KEY)", "INSERT INTO test.t VALUES (1)"]);
    let mut client = bed.client();
    let start = Instant::now();
    attempt(&mut client, "SELECT SLEEP(100)");
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
    // It has answered, and may not have cleared its list yet.
    bed.wait_count(SLEEPERS, 0);
    // A statement that waits for a lock.
    let mut holder = bed.server.root().unwrap();
    holder.run("BEGIN").unwrap();
    holder.run("UPDATE test.t SET a = 2").unwrap();
    client.run("BEGIN").unwrap();
    let start = Instant::now();
    assert_eq!(attempt(&mut client, "UPDATE t SET a = 3"), Seen::Error(1907));
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
    holder.run("ROLLBACK").unwrap();
    // The session and its transaction go on.
    assert_eq!(attempt(&mut client, "UPDATE t SET a = 4"), Seen::Done);
    assert_eq!(attempt(&mut client, "COMMIT"), Seen::Done);
    assert_eq!(bed.count("SELECT a FROM test.t"), 4);
    // Nothing that was meant for one statement hits a later one.
    for _ in 0..200 {
        assert_eq!(attempt(&mut client, "SELECT 1 FROM t"), Seen::Done);
    }
}

lab::each!(query_timeout);

#[test]
fn idle_transactions_are_rolled_back() {
    let bed = Bed::mariadb(3, |b| b.variable("max_transaction_idle_time", 1500));
    bed.root(&["CREATE TABLE test.t (a INT)"]);
    let mut idle = bed.client();
    let mut outside = bed.client();
    outside.run("SELECT 1").unwrap();
    idle.run("BEGIN").unwrap();
    idle.run("INSERT INTO t VALUES (1)").unwrap();
    bed.wait_transactions(0);
    wait_log(&bed.proxy, "transaction too long or idle for too long");
    assert!(matches!(attempt(&mut idle, "COMMIT"), Seen::Error(1927) | Seen::Closed));
    assert_eq!(outside.scalar("SELECT COUNT(*) FROM t").unwrap().as_deref(), Some("0"));
}

#[test]
fn long_transactions_are_ended_though_they_are_busy() {
    let bed = Bed::mariadb(3, |b| b.variable("max_transaction_time", 2000));
    bed.root(&["CREATE TABLE test.t (a INT)"]);
    let mut client = bed.client();
    client.run("BEGIN").unwrap();
    let start = Instant::now();
    let ended = loop {
        let seen = attempt(&mut client, "INSERT INTO t VALUES (1)");
        if seen != Seen::Done {
            break seen;
        }
        assert!(start.elapsed() < LIMIT, "the transaction goes on");
    };
    println!("{ended:?} after {:?}", start.elapsed());
    bed.wait_transactions(0);
    bed.wait_count("SELECT COUNT(*) FROM test.t", 0);
    wait_sessions(&bed.proxy, 0);
}

/// A KILL QUERY that comes when its statement is just over must not end what another session runs on that connection.
fn kill_query_hits_only_its_session(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, |b| b.variable("connect_timeout_server_max", 60_000));
    let over = AtomicBool::new(false);
    let (mut victim, mut killer) = (bed.client(), bed.client());
    let id = victim.connection_id();
    thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            // Some end before the KILL comes, some after it.
            for ms in (1..10).cycle().take_while(|_| !over.load(Ordering::Acquire)) {
                // Done, or interrupted: both are right.
                attempt(&mut victim, &format!("SELECT SLEEP(0.00{ms}), 'victim'"));
            }
        });
        let mut root = bed.server.root().unwrap();
        scope.spawn(move || {
            let running = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '%victim%'";
            while !over.load(Ordering::Acquire) {
                if root.scalar(running).unwrap().as_deref() != Some("1") {
                    continue;
                }
                // 1094 once the victim has left.
                let seen = attempt(&mut killer, &format!("KILL QUERY {id}"));
                assert!(matches!(seen, Seen::Done | Seen::Error(1094)), "{seen:?}");
            }
        });
        let innocent: Vec<_> = (0..2)
            .map(|_| {
                let mut client = bed.client();
                scope.spawn(move || {
                    let results: Vec<_> = (0..150).map(|_| client.query("SELECT SLEEP(0.01)").unwrap()).collect();
                    results.iter().filter(|r| r.err().is_some() || r.scalar().unwrap().as_deref() != Some("0")).count()
                })
            })
            .collect();
        let hit: usize = innocent.into_iter().map(|thread| thread.join().unwrap()).sum();
        over.store(true, Ordering::Release);
        assert_eq!(hit, 0, "statements of other sessions were interrupted");
    });
}

lab::each!(kill_query_hits_only_its_session);

/// Statements of clients that wait for the definition of a table.
const WAIT_FOR_TABLE: &str =
    "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND state='Waiting for table metadata lock'";

/// Runs `body` while an ALTER TABLE waits for a transaction: every later use of the table waits too.
fn while_altered(bed: &Bed, body: impl FnOnce()) {
    let mut holder = bed.server.root().unwrap();
    holder.run("BEGIN").unwrap();
    holder.run("SELECT * FROM test.m").unwrap();
    thread::scope(|scope| {
        let altering = scope.spawn(|| bed.root(&["ALTER TABLE test.m ADD COLUMN w INT"]));
        let waits = "SELECT COUNT(*) FROM information_schema.processlist \
                     WHERE info LIKE 'ALTER TABLE%' AND state='Waiting for table metadata lock'";
        bed.wait_count(waits, 1);
        body();
        holder.run("ROLLBACK").unwrap();
        altering.join().unwrap();
    });
    bed.root(&["ALTER TABLE test.m DROP COLUMN w"]);
}

/// Servers wait for locks with COM_STMT_PREPARE as with a statement; so it is waited for, killed and ended as one.
fn a_prepare_that_waits_is_a_statement(flavor: Flavor) {
    let bed = Bed::new(flavor, 2, |b| b.variable("connect_timeout_server_max", 1000).variable("threads", 1));
    bed.root(&["CREATE TABLE test.m (id INT PRIMARY KEY)", "INSERT INTO test.m VALUES (1)", "CREATE TABLE test.t (a INT)"]);
    let waits_long = &format!("{WAIT_FOR_TABLE} AND time >= 3");
    let mut killer = bed.client();
    let mut client = bed.client();
    // It is prepared on one connection, and executed on the other.
    let again = client.prepare("SELECT id + 0 FROM m").unwrap();
    let mut holds = bed.client();
    holds.run("BEGIN").unwrap();
    while_altered(&bed, || {
        client.send_command(Command::StmtPrepare, b"SELECT id FROM m").unwrap();
        bed.wait_count(waits_long, 1);
        killer.run(format!("KILL QUERY {}", client.connection_id())).unwrap();
        assert_eq!(seen(&client.recv_prepared().unwrap_err()), Seen::Error(1317));
        bed.wait_count(WAIT_FOR_TABLE, 0);
        assert_eq!(attempt(&mut client, "SELECT 1"), Seen::Done);
        // A transaction is not lost with it.
        client.run("BEGIN").unwrap();
        client.run("INSERT INTO t VALUES (1)").unwrap();
        client.send_command(Command::StmtPrepare, b"SELECT id FROM m").unwrap();
        bed.wait_count(WAIT_FOR_TABLE, 1);
        killer.run(format!("KILL QUERY {}", client.connection_id())).unwrap();
        assert_eq!(seen(&client.recv_prepared().unwrap_err()), Seen::Error(1317));
        client.run("COMMIT").unwrap();
        assert_eq!(bed.count("SELECT COUNT(*) FROM test.t"), 1);
        // The same on a connection on which the statement has to be prepared once more.
        client.send_execute(again.id, &[], Execution::default()).unwrap();
        bed.wait_count(waits_long, 1);
        killer.run(format!("KILL QUERY {}", client.connection_id())).unwrap();
        assert_eq!(client.recv_reply(Encoding::Binary).unwrap().err().unwrap().code, 1317);
        bed.wait_count(WAIT_FOR_TABLE, 0);
        // KILL, and a client that leaves.
        let mut killed = bed.client();
        killed.send_command(Command::StmtPrepare, b"SELECT id FROM m").unwrap();
        bed.wait_count(WAIT_FOR_TABLE, 1);
        killer.run(format!("KILL {}", killed.connection_id())).unwrap();
        bed.wait_count(WAIT_FOR_TABLE, 0);
        let mut leaves = bed.client();
        leaves.send_command(Command::StmtPrepare, b"SELECT id FROM m").unwrap();
        bed.wait_count(WAIT_FOR_TABLE, 1);
        leaves.cut();
        bed.wait_count(WAIT_FOR_TABLE, 0);
        // It has its time limit.
        let mut admin = bed.proxy.admin().unwrap();
        for sql in ["SET mysql-default_query_timeout=1500", "LOAD MYSQL VARIABLES TO RUNTIME"] {
            admin.run(sql).unwrap();
        }
        let mut limited = bed.client();
        for _ in 0..2 {
            assert_eq!(seen(&limited.prepare("SELECT id FROM m").unwrap_err()), Seen::Error(1907));
            bed.wait_count(WAIT_FOR_TABLE, 0);
        }
        client.send_execute(again.id, &[], Execution::default()).unwrap();
        assert_eq!(client.recv_reply(Encoding::Binary).unwrap().err().unwrap().code, 1907);
        for sql in ["SET mysql-default_query_timeout=86400000", "LOAD MYSQL VARIABLES TO RUNTIME"] {
            admin.run(sql).unwrap();
        }
    });
    assert!(client.execute(&again, &[]).unwrap().err().is_none());
    assert_eq!(attempt(&mut holds, "COMMIT"), Seen::Done);
}

lab::each!(a_prepare_that_waits_is_a_statement);

/// However many wait with a COM_STMT_PREPARE, and for however long, the server has no more connections than it may have.
fn prepares_that_wait_keep_to_max_connections(flavor: Flavor) {
    let bed = Bed::new(flavor, 2, |b| b.variable("connect_timeout_server_max", 500));
    bed.root(&["CREATE TABLE test.m (id INT PRIMARY KEY)"]);
    let mut clients: Vec<Client> = (0..6).map(|_| bed.client()).collect();
    while_altered(&bed, || {
        let most = most_threads(&bed, || {
            for client in &mut clients {
                client.send_command(Command::StmtPrepare, b"SELECT id FROM m").unwrap();
            }
            bed.wait_count(&format!("{WAIT_FOR_TABLE} AND time >= 3"), 2);
        });
        assert!(most <= 2, "{most} connections");
    });
    let prepared = clients.iter_mut().filter_map(|client| client.recv_prepared().ok()).count();
    assert_eq!(prepared, 2, "the others had no connection in time");
}

lab::each!(prepares_that_wait_keep_to_max_connections);

/// A connect is given up while its `init_connect` (the proxy's, or the server's own) waits for a lock: it is ended, and counts until then.
fn connects_that_are_given_up_keep_to_max_connections(flavor: Flavor) {
    const WAITING: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE 'UPDATE test.audit%'";
    const SQL: &str = "UPDATE test.audit SET n = n + 1";
    for (own, of_the_server) in [(SQL, ""), ("", SQL)] {
        let limits = |b: Builder| b.variable("connect_timeout_server", 300).variable("connect_timeout_server_max", 1500);
        let bed = Bed::new(flavor, 2, |b| limits(b).variable("init_connect", own));
        bed.root(&["CREATE TABLE test.audit (n INT)", "INSERT INTO test.audit VALUES (0)"]);
        let mut holder = bed.server.root().unwrap();
        holder.run("BEGIN").unwrap();
        holder.run("UPDATE test.audit SET n = 1").unwrap();
        bed.root(&[&format!("SET GLOBAL init_connect='{of_the_server}'")]);
        let mut client = bed.client();
        let most = most_threads(&bed, || {
            for _ in 0..3 {
                assert_eq!(attempt(&mut client, "SELECT 1"), Seen::Error(9001));
            }
        });
        // One more tells the server of them.
        assert!(most <= 3, "{most} connections");
        if !own.is_empty() {
            bed.wait_count(WAITING, 0);
        }
        holder.run("ROLLBACK").unwrap();
        if !own.is_empty() {
            assert_eq!(bed.count("SELECT n FROM test.audit"), 0);
        }
        wait::until("it is served", LIMIT, || (attempt(&mut client, "SELECT 1") == Seen::Done).then_some(())).unwrap();
    }
}

lab::each!(connects_that_are_given_up_keep_to_max_connections);
