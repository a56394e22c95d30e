//! `fast_forward` users: each session gets a connection of its own, although idle connections of other users fill the server. Bytes move
//! both ways at once.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use lab::client::{Compression, Param};
use lab::tidegate::Builder;
use lab::{Client, ConnectOptions, Flavor, LabError, Options, Server, Tidegate, wait};
use rustix::process::Signal;

use crate::bed::{Bed, LIMIT, Seen, attempt};

/// `empty` passes through.
fn with_passage(builder: Builder) -> Builder {
    builder.user_with("empty", "", 0, &[("fast_forward", 1.into())]).user("root", "", 0)
}

fn options(bed: &Bed) -> ConnectOptions {
    bed.proxy.options("empty", "").database("test").timeout(LIMIT)
}

fn passenger(bed: &Bed) -> Client {
    Client::connect(&options(bed)).unwrap()
}

/// If idle connections of other users fill the server, one is closed to make room, whichever worker has it.
#[test]
fn gets_room_from_idle_connections() {
    let bed = Bed::mariadb(2, |b| with_passage(b).variable("connect_timeout_server_max", 5000));
    for round in 0..8 {
        for (user, password) in [("app", "app-pass"), ("root", "")] {
            let mut client = Client::connect(&bed.proxy.options(user, password).timeout(LIMIT)).unwrap();
            client.run("SELECT 1").unwrap();
        }
        let mut passenger = passenger(&bed);
        assert_eq!(passenger.scalar("SELECT SUBSTRING_INDEX(USER(), '@', 1)").unwrap().as_deref(), Some("empty"), "round {round}");
        passenger.quit().unwrap();
    }
}

/// Sessions that keep the server busy without a pause do not keep one that passes through from its turn.
#[test]
fn gets_its_turn_on_a_busy_server() {
    let bed = Bed::mariadb(2, |b| with_passage(b).variable("connect_timeout_server_max", 10_000));
    let end = Instant::now() + Duration::from_secs(4);
    thread::scope(|scope| {
        for _ in 0..6 {
            let mut client = bed.client();
            scope.spawn(move || {
                while Instant::now() < end {
                    assert_eq!(attempt(&mut client, "SELECT SLEEP(0.05)"), Seen::Done);
                }
            });
        }
        for _ in 0..4 {
            let start = Instant::now();
            passenger(&bed).quit().unwrap();
            assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        }
    });
}

/// Without room the error says why, and a client that goes away leaves the queue.
#[test]
fn is_told_why_there_is_none() {
    let bed = Bed::mariadb(2, |b| with_passage(b).variable("connect_timeout_server_max", 1000));
    let mut holders = [bed.client(), bed.client()];
    for holder in &mut holders {
        holder.run("BEGIN").unwrap();
        holder.run("SELECT 1").unwrap();
    }
    match Client::connect(&options(&bed)) {
        Err(LabError::Server { code: 9001, message, .. }) => {
            assert!(message.ends_with("all 2 connections (max_connections) are in use"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    drop(holders);
    assert_eq!(attempt(&mut passenger(&bed), "SELECT 1"), Seen::Done);
}

/// A client that sends much before it reads, and reads much while it sends.
fn both_ways_at_once(flavor: Flavor) {
    const QUERIES: usize = 300;
    const ANSWER: usize = 300_000;
    let bed = Bed::new(flavor, 5, with_passage);
    let mut client = passenger(&bed);
    let mut receiving = client.try_clone_tcp().unwrap();
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let query = format!("\x03SELECT REPEAT('a', {ANSWER}) /*{}*/", "x".repeat(100_000));
            let mut packet = u32::try_from(query.len()).unwrap().to_le_bytes().to_vec();
            packet.extend_from_slice(query.as_bytes());
            for _ in 0..QUERIES {
                client.send_bytes(&packet).unwrap();
            }
            client
        });
        let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
        while got < QUERIES * ANSWER {
            let n = receiving.read(&mut buffer).unwrap();
            assert_ne!(n, 0, "closed after {got} bytes");
            got += n;
        }
        drop(sending.join().unwrap());
    });
}

lab::each!(both_ways_at_once);

/// TLS and compression are each side's own; frame numbers start again with each command.
#[test]
fn in_any_wrapping() {
    let server = Server::start(Flavor::Mariadb, &Options::new().tls()).unwrap();
    for column in ["compression", "use_ssl"] {
        let row = [("max_connections", 5.into()), (column, 1.into())];
        let builder = Tidegate::builder().server_with(0, server.host(), server.port(), &row).variable("monitor_enabled", false);
        let proxy = builder.user_with("empty", "", 0, &[("fast_forward", 1.into())]).start().unwrap();
        let plain = proxy.options("empty", "").database("test").timeout(LIMIT);
        for options in
            [plain.clone(), plain.clone().tls(), plain.clone().compression(Compression::Zlib), plain.tls().compression(Compression::Zlib)]
        {
            let mut client = Client::connect(&options).unwrap();
            for round in 0..3 {
                let word = "x".repeat(1 << 20);
                let repeated = client.scalar(format!("SELECT REPEAT('{word}', 3)")).unwrap().unwrap();
                assert_eq!(repeated.len(), 3 << 20);
                assert_eq!(client.scalar("SELECT 1").unwrap().as_deref(), Some("1"), "round {round}");
                let statement = client.prepare("SELECT ? + 1").unwrap();
                let sum = client.execute(&statement, &[Param::Int(round)]).unwrap().scalar().unwrap();
                assert_eq!(sum, Some((round + 1).to_string()));
                client.close_statement(&statement).unwrap();
                // Answered by the proxy.
                let own = client.connection_id();
                assert_eq!(attempt(&mut client, &format!("KILL QUERY {own}")), Seen::Error(1317));
            }
            client.quit().unwrap();
        }
    }
}

/// The server's own refusal of a login is the client's, as on a direct connection.
fn refused_by_the_server(flavor: Flavor) {
    let bed = Bed::new(flavor, 5, with_passage);
    for schema in ["mysql", "test_nobody", "nobody"] {
        let error = |address: String| {
            let options = ConnectOptions::tcp(address, "empty", "").database(schema).timeout(LIMIT);
            match Client::connect(&options) {
                Err(LabError::Server { code, sqlstate, message }) => (code, sqlstate, message),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(error(bed.proxy.address()), error(bed.server.address()));
    }
}

lab::each!(refused_by_the_server);

/// The collation of the login is left to the server: none, one that the server has, and one that it does not know.
fn collation_as_the_client_says(flavor: Flavor) {
    let bed = Bed::new(flavor, 5, with_passage);
    for id in [0, 8, 33, 45, 200, 254, 255] {
        let settings = |address: String| {
            let options = ConnectOptions::tcp(address, "empty", "").database("test").charset(id).timeout(LIMIT);
            let mut client = Client::connect(&options).unwrap();
            let sql = "SELECT @@character_set_client, @@character_set_results, @@character_set_connection, @@collation_connection";
            client.query(sql).unwrap().table().unwrap()
        };
        assert_eq!(settings(bed.proxy.address()), settings(bed.server.address()), "{flavor:?} collation {id}");
    }
}

lab::each!(collation_as_the_client_says);

/// A running statement may finish when the process stops; an idle session ends.
#[test]
fn statements_may_finish_at_the_stop() {
    let bed = Bed::mariadb(5, |b| with_passage(b).variable("drain_timeout", 600_000));
    let mut idle = passenger(&bed);
    idle.run("SELECT 1").unwrap();
    let mut busy = passenger(&bed);
    thread::scope(|scope| {
        let running = scope.spawn(move || busy.scalar("SELECT SLEEP(1.5)"));
        bed.wait_count("SELECT COUNT(*) FROM information_schema.processlist WHERE user='empty' AND info LIKE '%SLEEP(1%'", 1);
        bed.proxy.signal(Signal::TERM);
        assert_eq!(running.join().unwrap().unwrap().as_deref(), Some("0"));
    });
    let status = wait::until("the proxy to end", LIMIT, || bed.proxy.exit_status()).unwrap();
    assert!(status.success(), "{status}");
    assert_ne!(attempt(&mut idle, "SELECT 1"), Seen::Done);
}

/// A KILL names the session by the id of its greeting, as clients' own Ctrl-C does, or by the server's.
fn killed_by_its_user(flavor: Flavor) {
    let bed = Bed::new(flavor, 5, with_passage);
    let mut victim = passenger(&bed);
    let ids = [u64::from(victim.connection_id()), victim.scalar("SELECT CONNECTION_ID()").unwrap().unwrap().parse().unwrap()];
    for id in ids {
        thread::scope(|scope| {
            let running = scope.spawn(|| attempt(&mut victim, "SELECT SLEEP(100)"));
            let sleeps = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='empty' AND info LIKE '%SLEEP(1%'";
            bed.wait_count(sleeps, 1);
            let mut killer = passenger(&bed);
            assert_eq!(attempt(&mut killer, &format!("KILL QUERY {id}")), Seen::Done, "{id}");
            // MySQL's SLEEP() answers.
            assert!(matches!(running.join().unwrap(), Seen::Error(1317) | Seen::Done), "it slept to its end");
            assert_eq!(attempt(&mut killer, "SELECT 1"), Seen::Done);
        });
        assert_eq!(attempt(&mut victim, "SELECT 1"), Seen::Done);
    }
    assert_eq!(attempt(&mut passenger(&bed), &format!("KILL {}", ids[0])), Seen::Done);
    assert!(matches!(attempt(&mut victim, "SELECT 1"), Seen::Closed | Seen::Error(1927)));
}

lab::each!(killed_by_its_user);

/// As any other session; a statement that runs for longer is not idleness.
#[test]
fn wait_timeout_ends_it() {
    let bed = Bed::mariadb(5, |b| with_passage(b).variable("wait_timeout", 1500));
    let mut idle = passenger(&bed);
    idle.run("SELECT 1").unwrap();
    let silent = passenger(&bed);
    let mut busy = passenger(&bed);
    assert_eq!(attempt(&mut busy, "SELECT SLEEP(4)"), Seen::Done);
    assert!(matches!(attempt(&mut idle, "SELECT 1"), Seen::Error(4031) | Seen::Closed));
    drop((silent, idle));
    assert_eq!(attempt(&mut busy, "SELECT 1"), Seen::Done);
}

#[test]
fn is_shown_as_what_it_is() {
    let bed = Bed::mariadb(5, with_passage);
    let mut admin = bed.proxy.admin().unwrap();
    let client = passenger(&bed);
    let mut wait = |sql: &str, wanted: &str| {
        let mut last = None;
        let waited = wait::until(sql, LIMIT, || {
            last = admin.scalar(sql).unwrap();
            (last.as_deref() == Some(wanted)).then_some(())
        });
        waited.unwrap_or_else(|e| panic!("{e}: {last:?}"));
    };
    wait("SELECT command FROM stats_mysql_processlist WHERE user='empty'", "Fast forward");
    wait("SELECT reason FROM stats_tidegate_pins WHERE user='empty'", "replication");
    let summary = "SELECT sessions || ' ' || began_total FROM stats_tidegate_pins_summary WHERE reason='replication'";
    wait(summary, "1 1");
    client.quit().unwrap();
    wait(summary, "0 1");
}

/// Its server is gone, not the proxy.
#[test]
fn is_told_that_its_server_was_taken_out() {
    let bed = Bed::mariadb(5, with_passage);
    let mut client = passenger(&bed);
    client.run("SELECT 1").unwrap();
    let mut admin = bed.proxy.admin().unwrap();
    admin.run("UPDATE mysql_servers SET status='OFFLINE_HARD'").unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
    let mut told = Vec::new();
    client.try_clone_tcp().unwrap().read_to_end(&mut told).unwrap();
    let text = String::from_utf8_lossy(&told);
    assert_eq!(told.get(5..7), Some(&lab::SERVER_LOST.to_le_bytes()[..]), "{text}");
    assert!(text.contains("the server was taken out of service (OFFLINE_HARD)"), "{text}");
}
