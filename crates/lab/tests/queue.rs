//! A queue of jobs in a table, taken with `SELECT ... FOR UPDATE SKIP LOCKED` by many workers behind a read/write split.
//!
//! There are fewer backends than sessions: no job is lost, none is done twice.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, Peer};
use lab::client::Encoding;
use lab::tidegate::Setting;
use lab::{Flavor, Options, Server, Tidegate};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

const PRODUCERS: usize = 3;
const CONSUMERS: usize = 6;
const JOBS_EACH: usize = 150;
/// Error of a server that does not know a word.
const SYNTAX: u16 = 1064;

lab::each!(nothing_is_lost_or_doubled);

/// The reader's table stays empty: a job that is looked for there is never found.
fn nothing_is_lost_or_doubled(flavor: Flavor) {
    let [writer, reader] = [0, 1].map(|_| Server::start(flavor, &Options::new()).unwrap());
    for server in [&writer, &reader] {
        server.sql("CREATE TABLE test.jobs (id BIGINT PRIMARY KEY AUTO_INCREMENT, payload VARCHAR(40) NOT NULL)").unwrap();
        server.sql("CREATE TABLE test.done (id BIGINT, payload VARCHAR(40) NOT NULL, worker INT)").unwrap();
    }
    if writer.sql("SELECT id FROM test.jobs FOR UPDATE SKIP LOCKED").is_err_and(|error| error.code() == Some(SYNTAX)) {
        eprintln!("not tested: MariaDB has SKIP LOCKED since 10.6");
        return;
    }
    let few: [(&str, Setting); 1] = [("max_connections", 5.into())];
    let split = r#"{"read_write_split": {"writer": 1, "reader": 2}}"#;
    let proxy = Tidegate::builder()
        .server_with(1, writer.host(), writer.port(), &few)
        .server_with(2, reader.host(), reader.port(), &few)
        .user_with("app", "app-pass", 1, &[("attributes", split.into())])
        .variable("threads", 2)
        .start()
        .unwrap();
    let produced = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..CONSUMERS {
            let (proxy, produced) = (&proxy, &produced);
            let encoding = [Encoding::Text, Encoding::Binary][worker % 2];
            scope.spawn(move || consume(&mut Peer::through(proxy, encoding), worker, produced));
        }
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let proxy = &proxy;
                scope.spawn(move || produce(&mut Peer::through(proxy, Encoding::Text), producer))
            })
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        produced.store(true, Ordering::Release);
    });
    let mut root = writer.root().unwrap();
    let mut count = |sql: &str| root.scalar(sql).unwrap().unwrap();
    let all = (PRODUCERS * JOBS_EACH).to_string();
    assert_eq!(count("SELECT COUNT(*) FROM test.done"), all, "every job is done once");
    assert_eq!(count("SELECT COUNT(DISTINCT payload) FROM test.done"), all, "no job is done twice");
    assert_eq!(count("SELECT COUNT(*) FROM test.jobs"), "0");
    assert!(count("SELECT COUNT(DISTINCT worker) FROM test.done").parse::<usize>().unwrap() > 1, "the work was shared");
}

fn produce(peer: &mut Peer, producer: usize) {
    for job in 0..JOBS_EACH {
        peer.exec(&format!("INSERT INTO jobs (payload) VALUES ('{producer}-{job}')"));
    }
}

/// Takes jobs until the producers have ended and nothing is left.
fn consume(peer: &mut Peer, worker: usize, produced: &AtomicBool) {
    let deadline = Instant::now() + LIMIT * 4;
    loop {
        let was_produced = produced.load(Ordering::Acquire);
        peer.exec("START TRANSACTION");
        let job = peer.row("SELECT id, payload FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED");
        if let Some((id, payload)) = job.split_once(' ') {
            peer.exec(&format!("DELETE FROM jobs WHERE id = {id}"));
            peer.exec(&format!("INSERT INTO done VALUES ({id}, '{payload}', {worker})"));
        }
        peer.exec("COMMIT");
        // A job that another worker holds locked is skipped, and comes back only if that worker fails.
        if job.is_empty() && was_produced {
            return;
        }
        assert!(Instant::now() < deadline, "the queue does not end");
    }
}
