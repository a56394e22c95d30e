//! The connection that a session gets: an idle one, a new one, and never one that must not be used any more.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, Peer, proxy_with, server};
use lab::bench::fleet::{Fleet, Load};
use lab::bench::peer::{self, Peer as Measured};
use lab::bench::work::Work;
use lab::client::{Encoding, Param};
use lab::fault::Relay;
use lab::tidegate::Builder;
use lab::{Client, Flavor, Options, Server, Tidegate, wait};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PROCESSES: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'";
const CONNECTIONS: &str = "SELECT SUM(ConnUsed + ConnFree) FROM stats_mysql_connection_pool";
const WAITERS: &str = "SELECT SUM(waiters) FROM stats_tidegate_waits";

fn admin(proxy: &Tidegate) -> Client {
    wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap()
}

fn until(what: &str, client: &mut Client, sql: &str, value: &str) {
    wait::until(what, LIMIT, || (client.scalar(sql).unwrap()? == value).then_some(())).unwrap();
}

fn another(proxy: &Tidegate) -> Client {
    Client::connect(&proxy.options("empty", "").timeout(LIMIT)).unwrap()
}

/// So many idle connections of `app`, made by as many sessions of one worker.
fn warm(sessions: &mut [Client]) {
    for sql in ["BEGIN", "SELECT 1", "COMMIT"] {
        sessions.iter_mut().for_each(|session| drop(session.run(sql).unwrap()));
    }
}

fn sessions(proxy: &Tidegate, n: usize) -> Vec<Client> {
    (0..n).map(|_| Client::connect(&proxy.options("app", "app-pass").timeout(LIMIT)).unwrap()).collect()
}

#[test]
fn another_users_wait_for_a_new_connection_keeps_nobody_from_idle_ones() {
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    let relay = Relay::to(&server.address()).unwrap();
    let builder = Tidegate::builder().server_with(0, "127.0.0.1", relay.port(), &[("max_connections", 50.into())]).app_user();
    let builder = builder.user("empty", "", 0).variable("threads", 1).variable("free_connections_pct", 100);
    let proxy = builder.variable("connect_timeout_server", 60_000).variable("connect_timeout_server_max", 60_000).start().unwrap();
    let (mut admin, mut own, mut other) = (admin(&proxy), sessions(&proxy, 3), another(&proxy));
    warm(&mut own);
    relay.silence_new();
    other.send_query("SELECT 'other'").unwrap();
    until("it waits", &mut admin, WAITERS, "1");
    for session in &mut own {
        assert_eq!(session.scalar("SELECT 'own'").unwrap().unwrap(), "own");
    }
    assert_eq!(admin.scalar(WAITERS).unwrap().unwrap(), "1", "the other one still waits");
    relay.resume();
    assert_eq!(other.recv_reply(Encoding::Text).unwrap().scalar().unwrap().unwrap(), "other");
}

#[test]
fn a_user_that_never_pauses_leaves_room_for_another() {
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    for threads in [1, 3] {
        // Fewer connections than sessions: one of them always waits for the next one that comes back.
        let more = |builder: Builder| builder.user("empty", "", 0).variable("threads", threads);
        let proxy = proxy_with(&server, 2, more);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..6 {
                let (mut session, done) = (proxy.connect_app().unwrap(), &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        session.run("SELECT SLEEP(0.001)").unwrap();
                    }
                });
            }
            let asked = (0..5).map(|_| another(&proxy).query("SELECT 1").unwrap().scalar().is_ok()).collect::<Vec<_>>();
            done.store(true, Ordering::Release);
            assert_eq!(asked, [true; 5], "threads={threads}");
        });
    }
}

/// Some session always waits, though none as long as the delay: each gets a connection in the end.
#[test]
fn a_line_that_never_ends_gets_more_connections() {
    const SESSIONS: usize = 12;
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    let proxy = proxy_with(&server, 100, |b| b.variable("threads", 1).variable("connection_growth_delay_us", 1_000_000));
    let mut root = server.root().unwrap();
    let (done, longest) = (AtomicBool::new(false), Mutex::new(Duration::ZERO));
    thread::scope(|scope| {
        for n in 0..SESSIONS {
            let (mut session, done, longest) = (proxy.connect_app().unwrap(), &done, &longest);
            // Not in step: statements that end at once would end the line, too.
            let statement = format!("DO SLEEP(0.{:03})", 41 + 3 * n);
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let began = Instant::now();
                    session.run(statement.as_str()).unwrap();
                    let mut longest = longest.lock().unwrap();
                    *longest = began.elapsed().max(*longest);
                }
            });
        }
        let all = SESSIONS.to_string();
        let grown = wait::until("all have one", LIMIT, || (root.scalar(PROCESSES).unwrap()? == all).then_some(()));
        done.store(true, Ordering::Release);
        grown.unwrap();
    });
    let longest = longest.into_inner().unwrap();
    assert!(longest < Duration::from_millis(1_000), "one waited for {longest:?}: this shows nothing");
}

/// While a server stands still nearly all sessions wait, and a moment later none does. How many connections that opens depends on the
/// machine's speed, so the unit tests of `sizing.rs` judge it, in a time of their own.
#[test]
fn what_a_stall_opened_is_closed_again() {
    const CLIENTS: usize = 1_200;
    let server = peer::start_server(Flavor::Mariadb).unwrap();
    let proxy = Measured::tidegate(&server, |b| b.variable("free_connections_ms", 1_000)).unwrap();
    let mut admin = admin(proxy.as_tidegate().unwrap());
    let mut connections = || admin.scalar(CONNECTIONS).unwrap().unwrap().parse::<u32>().unwrap();
    let load = Load { address: proxy.address(), clients: CLIENTS, work: Work::PointText, pace: Some(2 * CLIENTS as u32) };
    let mut fleet = Fleet::open(&load).unwrap();
    thread::scope(|scope| {
        let load = scope.spawn(move || fleet.run(Duration::from_secs(4)).unwrap());
        for _ in 0..2 {
            wait::until("the load", LIMIT, || (connections() > 0).then_some(())).unwrap();
            server.sigstop();
            wait::until("sessions that wait for the server", LIMIT, || (connections() > 2).then_some(())).unwrap();
            server.sigcont();
        }
        assert!(load.join().unwrap().completed >= CLIENTS as u64, "this shows nothing");
    });
    wait::until("what is not needed to be closed", LIMIT, || (connections() <= 2).then_some(())).unwrap();
}

/// The share that one server cannot take at the moment goes to no other server: weights hold.
#[test]
fn a_server_of_little_weight_gets_little_of_a_crowd() {
    let servers = [1, 2].map(|_| Server::start(Flavor::Mariadb, &Options::new()).unwrap());
    let with_weight = |b: Builder, (server, weight): (&Server, i64)| {
        b.server_with(0, server.host(), server.port(), &[("max_connections", 200.into()), ("weight", weight.into())])
    };
    let builder = servers.iter().zip([10_000_000, 1]).fold(Tidegate::builder().app_user(), with_weight);
    let proxy = builder.variable("threads", 2).start().unwrap();
    thread::scope(|scope| {
        for session in sessions(&proxy, 40) {
            let mut session = session;
            scope.spawn(move || (0..40).for_each(|_| drop(session.run("DO SLEEP(0.02)").unwrap())));
        }
    });
    let open = servers.each_ref().map(|server| server.root().unwrap().scalar(PROCESSES).unwrap().unwrap().parse::<u32>().unwrap());
    assert!(open[0] >= 10 && open[1] <= 1, "{open:?}");
}

/// Shares of statements follow the weights, however many workers there are, at low and high rates, for short and long statements.
#[test]
fn statements_follow_the_weights() {
    let servers = [(); 2].map(|()| peer::start_server(Flavor::Mariadb).unwrap());
    for threads in [1, 4, 16] {
        let heavy = [("weight", 9.into()), ("max_connections", 200.into())];
        let arrange = |b: Builder| b.server_with(0, servers[1].host(), servers[1].port(), &heavy).variable("threads", threads);
        let proxy = Measured::tidegate(&servers[0], arrange).unwrap();
        let mut admin = admin(proxy.as_tidegate().unwrap());
        let light = format!("SELECT SUM(Queries * (srv_port = {})), SUM(Queries) FROM stats_mysql_connection_pool", servers[0].port());
        let mut share_of = |what: &str, load: &mut dyn FnMut()| {
            let mut served = || -> [f64; 2] {
                let row = admin.query(light.as_str()).unwrap().table().unwrap().remove(0);
                [0, 1].map(|n| row[n].as_deref().unwrap_or("0").parse().unwrap())
            };
            let before = served();
            load();
            let after = served();
            let (light, all) = (after[0] - before[0], after[1] - before[1]);
            let pct = 100.0 * light / all;
            // If all connections are always at work, the light server's share is that of its connections: one of few exceeds its weight.
            // Until its first connection is open, it gets nothing.
            assert!((7.5..=16.0).contains(&pct), "{threads} workers, {what}: {pct:.1} % of {all} statements for 10 %");
        };
        for (what, pace, secs) in [("all that go", None, 2), ("5,000 a second", Some(5_000), 2), ("200 a second", Some(200), 4)] {
            let load = Load { address: proxy.address(), clients: 100, work: Work::PointText, pace };
            let mut fleet = Fleet::open(&load).unwrap();
            share_of(what, &mut || drop(fleet.run(Duration::from_secs(secs)).unwrap()));
        }
        let mut clients = sessions(proxy.as_tidegate().unwrap(), 40);
        share_of("long statements", &mut || {
            thread::scope(|scope| {
                for session in &mut clients {
                    scope.spawn(move || (0..50).for_each(|_| drop(session.run("DO SLEEP(0.02)").unwrap())));
                }
            });
        });
    }
}

/// All ask again at once: the pool stops where more connections bring no more answers.
#[test]
fn busy_clients_get_as_many_connections_as_help() {
    let server = peer::start_server(Flavor::Mariadb).unwrap();
    let proxy = Measured::tidegate(&server, |builder| builder).unwrap();
    let mut admin = admin(proxy.as_tidegate().unwrap());
    let load = Load { address: proxy.address(), clients: 1_024, work: Work::PointText, pace: None };
    Fleet::open(&load).unwrap().run(Duration::from_secs(3)).unwrap();
    let connections: u32 = admin.scalar(CONNECTIONS).unwrap().unwrap().parse().unwrap();
    let turns = admin.scalar("SELECT turns_per_second FROM stats_tidegate_pool_sizing").unwrap().unwrap();
    assert!(connections <= 400, "{connections} connections for 1,024 clients on a machine of few cores");
    assert_ne!(turns, "0");
}

#[test]
fn a_server_with_weight_0_gets_nothing_new() {
    let servers = [(); 2].map(|()| Server::start(Flavor::Mariadb, &Options::new()).unwrap());
    let builder = servers.iter().fold(Tidegate::builder(), |builder, server| builder.backend(0, server)).app_user();
    let proxy = builder.variable("threads", 2).variable("free_connections_pct", 100).start().unwrap();
    let (mut admin, mut all) = (admin(&proxy), sessions(&proxy, 8));
    let ports = |all: &mut Vec<Client>| {
        all.iter_mut().for_each(|session| drop(session.run("BEGIN").unwrap()));
        let ports = all.iter_mut().map(|session| session.scalar("SELECT @@port").unwrap().unwrap()).collect::<BTreeSet<_>>();
        all.iter_mut().for_each(|session| drop(session.run("COMMIT").unwrap()));
        ports
    };
    wait::until("both serve", LIMIT, || (ports(&mut all).len() == 2).then_some(())).unwrap();
    // A transaction that is open there may finish.
    let out = servers[1].port().to_string();
    let mut inside = wait::until("one is there", LIMIT, || {
        let mut session = proxy.connect_app().unwrap();
        session.run("BEGIN").unwrap();
        (session.scalar("SELECT @@port").unwrap()? == out).then_some(session)
    })
    .unwrap();
    admin.run(format!("UPDATE mysql_servers SET weight=0 WHERE port={out}")).unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
    for _ in 0..5 {
        assert_eq!(ports(&mut all), BTreeSet::from([servers[0].port().to_string()]));
    }
    assert_eq!(inside.scalar("SELECT @@port").unwrap().unwrap(), out);
    let mut root = servers[1].root().unwrap();
    until("idle ones are closed", &mut root, PROCESSES, "1");
    inside.run("COMMIT").unwrap();
    until("the last one is closed", &mut root, PROCESSES, "0");
    assert_ne!(inside.scalar("SELECT @@port").unwrap().unwrap(), out);
}

#[test]
fn a_changed_transport_retires_connections() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let proxy = proxy_with(server(flavor), 5, |builder| builder.variable("free_connections_pct", 100).variable("threads", 1));
        let (mut admin, mut all) = (admin(&proxy), sessions(&proxy, 2));
        let shown = |session: &mut Client, name: &str| {
            let row = session.query(format!("SHOW SESSION STATUS LIKE '{name}'")).unwrap().table().unwrap().remove(0);
            row[1].clone().unwrap()
        };
        warm(&mut all);
        all[0].run("BEGIN").unwrap();
        assert_eq!(shown(&mut all[0], "Ssl_cipher"), "");
        for (change, name, is_so) in
            [("use_ssl=1", "Ssl_cipher", ""), ("compression=1", "Compression", "OFF"), ("use_ssl=0", "Ssl_cipher", "TLS")]
        {
            all[0].run("BEGIN").unwrap();
            let before = shown(&mut all[0], name);
            admin.run(format!("UPDATE mysql_servers SET {change}")).unwrap();
            admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
            let after = shown(&mut all[1], name);
            assert_ne!(before, after, "{flavor:?} {change}: it was {is_so}");
            assert_eq!(shown(&mut all[0], name), before, "a transaction stays where it is");
            all[0].run("COMMIT").unwrap();
            assert_eq!(shown(&mut all[0], name), after, "and the next one is elsewhere");
        }
    }
}

#[test]
fn what_no_setting_keeps_any_more_is_given_back_at_once() {
    let cases = [
        ("multiplexing", "false", "true", "SELECT 1"),
        ("connection_delay_multiplex_ms", "300000", "0", "SELECT 1"),
        ("auto_increment_delay_multiplex", "1000000", "0", "INSERT INTO test.kept () VALUES ()"),
    ];
    let server = server(Flavor::Mariadb);
    server.sql("CREATE TABLE IF NOT EXISTS test.kept (id INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
    for (name, keeps, lends, sql) in cases {
        let proxy = proxy_with(server, 1, |builder| builder.variable(name, keeps).variable("connect_timeout_server_max", 60_000));
        let (mut admin, mut keeper, mut other) = (admin(&proxy), proxy.connect_app().unwrap(), proxy.connect_app().unwrap());
        keeper.run(sql).unwrap();
        other.send_query("SELECT 'other'").unwrap();
        until("it waits", &mut admin, WAITERS, "1");
        admin.run(format!("SET mysql-{name}='{lends}'")).unwrap();
        admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
        let reply = other.recv_reply(Encoding::Text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(reply.scalar().unwrap().unwrap(), "other", "{name}");
        keeper.run("SELECT 1").unwrap();
    }
}

/// Statements that the proxy keeps prepared without a client do not use up the server's limit.
#[test]
fn statements_that_no_client_has_make_room_for_others() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = Server::start(flavor, &Options::new()).unwrap();
        server.sql("SET GLOBAL max_prepared_stmt_count=4").unwrap();
        let proxy = proxy_with(&server, 5, |builder| builder.variable("threads", 1).variable("free_connections_pct", 100));
        let mut all = sessions(&proxy, 2);
        for round in 0..5 {
            all.iter_mut().for_each(|session| drop(session.run("BEGIN").unwrap()));
            for (n, session) in all.iter_mut().enumerate() {
                for k in 0..2 {
                    let statement =
                        session.prepare(format!("SELECT ?, {round}, {n}, {k}")).unwrap_or_else(|e| panic!("{flavor:?} {round}: {e}"));
                    session.execute(&statement, &[Param::Int(1)]).unwrap().check().unwrap();
                    session.close_statement(&statement).unwrap();
                }
            }
            all.iter_mut().for_each(|session| drop(session.run("COMMIT").unwrap()));
        }
        all[0].run("BEGIN").unwrap();
        let held: Vec<_> = (0..4).map(|k| all[0].prepare(format!("SELECT ?, 'held', {k}")).unwrap()).collect();
        assert!(all[0].prepare("SELECT ?, 'one too many'").is_err_and(|e| e.code() == Some(1461)), "{flavor:?}");
        for statement in &held {
            all[0].execute(statement, &[Param::Int(1)]).unwrap().check().unwrap();
        }
    }
}

/// How long a statement that is sent again may wait is of no meaning to the next one.
#[test]
fn long_data_waits_for_a_connection_after_a_statement_that_was_sent_again() {
    let server = server(Flavor::Mariadb);
    let patience = Duration::from_secs(4);
    let more = |builder: Builder| {
        let roles = [("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())];
        let builder = builder.row("mysql_replication_hostgroups", &roles).variable("monitor_enabled", false);
        builder.variable("connect_timeout_server_max", patience.as_millis() as i64)
    };
    let proxy = proxy_with(server, 1, more);
    let (mut admin, mut session, mut holder) =
        (admin(&proxy), Peer::through(&proxy, Encoding::Text), Peer::through(&proxy, Encoding::Text));
    let statement = session.prepare("SELECT LENGTH(?)").unwrap();
    let began = Instant::now();
    session
        .send_query("SELECT COUNT(*) FROM information_schema.collations a, information_schema.collations b WHERE SLEEP(0.001)=0")
        .unwrap();
    let mut root = server.root().unwrap();
    let running = "SELECT id FROM information_schema.processlist WHERE user='app' AND info LIKE '%SLEEP(0.001)%'";
    let id = wait::until("it runs", LIMIT, || root.scalar(running).ok()?).unwrap();
    root.run(format!("KILL {id}")).unwrap();
    let again = wait::until("it runs again", LIMIT, || root.scalar(running).ok()?.filter(|again| *again != id)).unwrap();
    root.run(format!("KILL QUERY {again}")).unwrap();
    let _ = session.recv_reply(Encoding::Text).unwrap();
    // Until its time is over.
    thread::sleep((patience + Duration::from_millis(500)).saturating_sub(began.elapsed()));
    holder.exec("BEGIN");
    holder.get("SELECT 1");
    session.send_long_data(&statement, 0, b"hello").unwrap();
    until("it waits", &mut admin, WAITERS, "1");
    holder.exec("COMMIT");
    assert_eq!(session.execute(&statement, &[Param::Long]).unwrap().scalar().unwrap().unwrap(), "5");
}

/// A session on this worker.
fn on_worker(proxy: &Tidegate, worker: u32, workers: u32) -> Client {
    wait::until("a session there", LIMIT, || {
        let session = Client::connect(&proxy.options("app", "app-pass").timeout(LIMIT)).unwrap();
        (session.connection_id() % workers == worker).then_some(session)
    })
    .unwrap()
}

#[test]
fn a_connection_that_the_server_closed_is_handed_to_nobody() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = Server::start(flavor, &Options::new()).unwrap();
        server.sql("CREATE TABLE test.handed (id INT PRIMARY KEY)").unwrap();
        let proxy = proxy_with(&server, 1, |builder| builder);
        let (mut one, mut other) = (on_worker(&proxy, 0, 2), on_worker(&proxy, 1, 2));
        let mut root = server.root().unwrap();
        for round in 0..5 {
            one.run("SELECT 1").unwrap();
            let id = root.scalar("SELECT id FROM information_schema.processlist WHERE user='app'").unwrap().unwrap();
            root.run(format!("KILL {id}")).unwrap();
            until("it is gone", &mut root, PROCESSES, "0");
            other.run(format!("INSERT INTO test.handed VALUES ({round})")).unwrap_or_else(|e| panic!("{flavor:?}, round {round}: {e}"));
        }
    }
}

/// A session that can have no connection gets `code` each time, and other sessions get new connections meanwhile.
fn holds_up_nobody(proxy: &Tidegate, (user, password): (&str, &str), code: u16, words: &str) {
    let (done, refused) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            let (options, done, refused) = (proxy.options(user, password).timeout(LIMIT), &done, &refused);
            scope.spawn(move || {
                let mut session = Client::connect(&options).unwrap();
                while !done.load(Ordering::Acquire) {
                    let error = session.query("SELECT 1").unwrap().err().cloned().unwrap();
                    assert!(error.code == code && error.message.contains(words), "{error:?}");
                    refused.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        let is_refused = || (refused.load(Ordering::Acquire) > 8).then_some(());
        let refusals = wait::until("it is refused", LIMIT, is_refused);
        let served = refusals.and_then(|()| {
            // Each needs one of its own, within less than any pause or deadline would take.
            let mut sessions = Vec::new();
            for _ in 0..4 {
                let mut session = Client::connect(&proxy.options("app", "app-pass").timeout(Duration::from_secs(3)))?;
                session.run("BEGIN")?;
                session.run("SELECT 1")?;
                sessions.push(session);
            }
            Ok(())
        });
        done.store(true, Ordering::Release);
        served.unwrap_or_else(|e| panic!("{user}: {e}"));
    });
}

#[test]
fn a_user_who_may_not_run_init_connect_holds_up_nobody() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = Server::start(flavor, &Options::new()).unwrap();
        for sql in ["CREATE DATABASE audit", "CREATE TABLE audit.logins (n INT)", "GRANT INSERT ON audit.logins TO app@'%'"] {
            server.sql(sql).unwrap();
        }
        let more = |builder: Builder| {
            let builder = builder.user("empty", "", 0).variable("connect_timeout_server_max", 60_000);
            builder.variable("init_connect", "INSERT INTO audit.logins VALUES (1)")
        };
        let proxy = proxy_with(&server, 20, more);
        holds_up_nobody(&proxy, ("empty", ""), 1142, "init_connect failed: INSERT command denied");
        server.sql("GRANT INSERT ON audit.logins TO 'empty'@'%'").unwrap();
        let mut session = another(&proxy);
        wait::until("it is let in", LIMIT, || session.query("SELECT 1").unwrap().err().is_none().then_some(())).unwrap();
    }
}

/// The server's key encrypts no password that is longer than itself.
#[test]
fn a_user_whose_password_is_too_long_for_the_servers_key_holds_up_nobody() {
    let password = "x".repeat(220);
    let server = Server::start(Flavor::Mysql, &Options::new()).unwrap();
    server.sql(&format!("CREATE USER endless@'%' IDENTIFIED WITH caching_sha2_password BY '{password}'")).unwrap();
    let proxy = proxy_with(&server, 20, |b| b.user("endless", &password, 0).variable("connect_timeout_server_max", 60_000));
    holds_up_nobody(&proxy, ("endless", &password), 1045, "too long for the server's key");
}

#[test]
fn a_user_with_an_authority_of_its_own_that_did_not_sign_holds_up_nobody() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = server(flavor);
        let row = [("max_connections", 20.into()), ("use_ssl", 1.into())];
        let builder = Tidegate::builder().server_with(0, server.host(), server.port(), &row).app_user().user("empty", "", 0);
        let proxy = builder.variable("threads", 2).variable("connect_timeout_server_max", 60_000).start().unwrap();
        let (mut admin, host, port) = (admin(&proxy), server.host(), server.port());
        // Of the proxy itself.
        let ca = proxy.dir().join("proxysql-ca.pem");
        let columns = "hostname, port, username, ssl_ca";
        admin
            .run(format!("INSERT INTO mysql_servers_ssl_params ({columns}) VALUES ('{host}', {port}, 'empty', '{}')", ca.display()))
            .unwrap();
        admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
        holds_up_nobody(&proxy, ("empty", ""), 1045, "TLS");
    }
}

#[test]
fn a_server_that_refuses_init_connect_is_tried_ever_more_seldom() {
    const FAILED: u32 = 7;
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    let more = |builder: Builder| builder.variable("connect_timeout_server_max", 60_000).variable("init_connect", "BANANA");
    let proxy = proxy_with(&server, 5, |builder| more(builder).variable("threads", 1));
    let (mut admin, mut session) = (admin(&proxy), sessions(&proxy, 1).remove(0));
    let began = Instant::now();
    for _ in 0..FAILED {
        assert_eq!(session.query("SELECT 'served'").unwrap().err().unwrap().code, 1064);
    }
    let pauses_ms = (0..FAILED - 1).map(|n| 10 << n).sum();
    assert!(began.elapsed() >= Duration::from_millis(pauses_ms), "{FAILED} times within {:?}", began.elapsed());
    admin.run("SET mysql-init_connect='SET @well=1'").unwrap();
    admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    assert_eq!(session.scalar("SELECT 'served'").unwrap().unwrap(), "served");
}

/// A server that cannot run init_connect now (it is read-only) may do it later: the waiting session goes on.
#[test]
fn who_waits_for_a_server_that_cannot_run_init_connect_now_is_served_when_it_can() {
    const FAILED: u32 = 7;
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    server.sql("CREATE TABLE test.logins (n INT)").unwrap();
    let more = |builder: Builder| {
        let builder = builder.variable("connect_timeout_server_max", 60_000).variable("threads", 1);
        builder.variable("init_connect", "INSERT INTO test.logins VALUES (1)")
    };
    server.sql("SET GLOBAL read_only=1").unwrap();
    let proxy = proxy_with(&server, 5, more);
    let (mut admin, mut session) = (admin(&proxy), sessions(&proxy, 1).remove(0));
    let began = Instant::now();
    session.send_query("SELECT 'served'").unwrap();
    let errors = "SELECT SUM(ConnERR) FROM stats_mysql_connection_pool";
    wait::until("it failed often", LIMIT, || (admin.scalar(errors).unwrap()?.parse::<u32>().unwrap() >= FAILED).then_some(())).unwrap();
    let pauses_ms = (0..FAILED - 1).map(|n| 10 << n).sum();
    assert!(began.elapsed() >= Duration::from_millis(pauses_ms), "{FAILED} times within {:?}", began.elapsed());
    server.sql("SET GLOBAL read_only=0").unwrap();
    assert_eq!(session.recv_reply(Encoding::Text).unwrap().scalar().unwrap().unwrap(), "served");
}

/// A new session has the rights of a new connection, though idle connections of other sessions are used.
fn rights_of_new_sessions(flavor: Flavor) {
    let proxy = proxy_with(server(flavor), 4, |builder| {
        builder.user("root", "", 0).user("limited", "limited-pass", 0).variable("free_connections_pct", 100)
    });
    let login =
        |user: &str, password: &str, schema: &str| Client::connect(&proxy.options(user, password).database(schema).timeout(LIMIT)).unwrap();
    let mut root = login("root", "", "mysql");
    for sql in [
        "CREATE DATABASE rights",
        "CREATE TABLE rights.a(i INT)",
        "CREATE TABLE rights.b(i INT)",
        "CREATE USER limited@'%' IDENTIFIED BY 'limited-pass'",
        "GRANT SELECT ON rights.* TO limited@'%'",
    ] {
        root.run(sql).unwrap();
    }
    let codes = |writes: bool| {
        let mut session = login("limited", "limited-pass", "rights");
        let text = session.query("INSERT INTO a VALUES(1)").and_then(|reply| reply.check().map(drop));
        let prepared = session
            .prepare("INSERT INTO b VALUES(1)")
            .and_then(|statement| session.execute(&statement, &[]))
            .and_then(|reply| reply.check().map(drop));
        assert_eq!((text.is_ok(), prepared.is_ok()), (writes, writes), "{flavor:?}: {text:?} {prepared:?}");
    };
    codes(false);
    for (change, writes) in [
        ("GRANT INSERT ON rights.* TO limited@'%'", true),
        ("REVOKE INSERT ON rights.* FROM limited@'%'", false),
        ("GRANT INSERT ON *.* TO limited@'%'", true),
        ("REVOKE INSERT ON *.* FROM limited@'%'", false),
    ] {
        root.run(change).unwrap();
        codes(writes);
        codes(writes);
    }
    for sql in ["DROP USER limited@'%'", "DROP DATABASE rights"] {
        root.run(sql).unwrap();
    }
}

#[test]
fn new_sessions_have_new_rights() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        rights_of_new_sessions(flavor);
    }
}
