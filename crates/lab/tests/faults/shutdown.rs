//! SIGTERM: running statements may finish, idle sessions end, and the process exits in time with code 0.

use std::thread;
use std::time::{Duration, Instant};

use lab::wait;
use rustix::process::Signal;

use crate::bed::{Bed, LIMIT, Seen, attempt, wait_log};

fn wait_exit(bed: &Bed, limit: Duration) {
    let status = wait::until("the proxy to end", limit, || bed.proxy.exit_status()).unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn transactions_may_finish() {
    const CLIENTS: usize = 50;
    const FINISH: usize = 40;
    let bed = Bed::mariadb(60, |b| b.variable("drain_timeout", 8000));
    bed.root(&["CREATE TABLE test.t (a INT)"]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| bed.client()).collect();
    let mut idle: Vec<_> = (0..10).map(|_| bed.client()).collect();
    for client in &mut clients {
        client.run("BEGIN").unwrap();
        client.run("INSERT INTO t VALUES (1)").unwrap();
    }
    bed.proxy.signal(Signal::TERM);
    wait_log(&bed.proxy, "stopping");
    let start = Instant::now();
    thread::scope(|scope| {
        for client in clients.iter_mut().take(FINISH) {
            scope.spawn(|| {
                assert_eq!(attempt(client, "INSERT INTO t VALUES (2)"), Seen::Done);
                assert_eq!(attempt(client, "COMMIT"), Seen::Done);
            });
        }
    });
    for client in &mut idle {
        assert!(matches!(attempt(client, "SELECT 1"), Seen::Error(1053) | Seen::Closed));
    }
    wait_exit(&bed, Duration::from_secs(8) + LIMIT);
    println!("ended after {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(20), "drain_timeout is 8 s, it took {:?}", start.elapsed());
    bed.wait_transactions(0);
    assert_eq!(bed.count("SELECT COUNT(*) FROM test.t"), 2 * FINISH as u64);
    for client in clients.iter_mut().skip(FINISH) {
        let seen = attempt(client, "COMMIT");
        assert!(matches!(seen, Seen::Error(1053) | Seen::Error(1927) | Seen::Closed), "{seen:?}");
    }
}

/// SIGHUP, which a closing terminal sends, ends no session.
#[test]
fn a_hangup_is_no_end() {
    let bed = Bed::mariadb(2, |b| b);
    let mut client = bed.client();
    bed.proxy.signal(Signal::HUP);
    wait_log(&bed.proxy, "SIGHUP");
    assert_eq!(attempt(&mut client, "SELECT 1"), Seen::Done);
    assert_eq!(bed.proxy.exit_status(), None);
}

/// With nothing open the end does not wait for the deadline, whatever statements still run.
#[test]
fn ends_when_the_last_statement_has_ended() {
    let bed = Bed::mariadb(5, |b| b.variable("drain_timeout", 600_000));
    let mut idle = bed.client();
    thread::scope(|scope| {
        let running = scope.spawn(|| bed.client().scalar("SELECT SLEEP(1.5)"));
        bed.wait_count(crate::bed::SLEEPERS, 1);
        bed.proxy.signal(Signal::TERM);
        assert_eq!(running.join().unwrap().unwrap().as_deref(), Some("0"));
    });
    wait_exit(&bed, LIMIT);
    assert_ne!(attempt(&mut idle, "SELECT 1"), Seen::Done);
}

/// Clients in a queue, in a login, and with a reply that they do not read do not keep the process.
#[test]
fn nobody_keeps_the_process_over_the_deadline() {
    let bed = Bed::mariadb(2, |b| b.variable("drain_timeout", 1000).variable("connect_timeout_server_max", 600_000));
    let mut unread = bed.client();
    unread.send_query("SELECT REPEAT('x', 10000) FROM seq_1_to_20000").unwrap();
    let mut sleeping = bed.client();
    sleeping.send_query("SELECT SLEEP(100)").unwrap();
    bed.wait_count(crate::bed::SLEEPERS, 1);
    let mut waiting = bed.client();
    waiting.send_query("SELECT 1").unwrap();
    let _login = std::net::TcpStream::connect(bed.proxy.address()).unwrap();
    let start = Instant::now();
    bed.proxy.signal(Signal::TERM);
    wait_exit(&bed, LIMIT);
    assert!(start.elapsed() < Duration::from_secs(15), "drain_timeout is 1 s, it took {:?}", start.elapsed());
}
