//! The load generator against a real server: every kind of work runs and its replies are checked.

use std::time::Duration;

use lab::bench::fleet::{Fleet, Load};
use lab::bench::peer::{Kind, Peer, start_server};
use lab::bench::work::Work;

#[test]
fn every_kind_of_work_runs() {
    let server = start_server().unwrap();
    let peer = Peer::start(Kind::Direct, &server).unwrap();
    let run = |work: Work, clients, pace| {
        let load = Load { address: peer.address(), clients, work, pace };
        let run = Fleet::open(&load).unwrap().run(Duration::from_millis(200)).unwrap();
        assert!(run.completed >= 1 && run.latency.count() == run.completed);
        assert!(run.in_window.iter().sum::<u64>() <= run.completed);
        run
    };
    run(Work::PointText, 3, None);
    run(Work::PointPrepared, 100, None);
    run(Work::Large { rows: 20_000 }, 2, None);
    run(Work::Connect, 2, None);
    // Paced loads send no more than asked: 500 a second for a fifth of a second.
    assert!(run(Work::PointText, 4, Some(500)).completed <= 101);
}

#[test]
fn a_wrong_reply_is_an_error() {
    let server = start_server().unwrap();
    server.sql("UPDATE test.sbtest1 SET c = 'not what its key says'").unwrap();
    let peer = Peer::start(Kind::Direct, &server).unwrap();
    let load = Load { address: peer.address(), clients: 1, work: Work::PointText, pace: None };
    let error = Fleet::open(&load).unwrap().run(Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().contains("wrong reply"), "{error}");
}
