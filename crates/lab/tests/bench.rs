//! The load generator against a real server: every kind of work runs and its replies are checked. And the symbols that a profile needs.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::Flavor;
use lab::bench::fleet::{Fleet, Load};
use lab::bench::peer::{Kind, Peer, start_server};
use lab::bench::work::Work;

#[test]
fn every_kind_of_work_runs() {
    let server = start_server(Flavor::Mariadb).unwrap();
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
    let server = start_server(Flavor::Mariadb).unwrap();
    server.sql("UPDATE test.sbtest1 SET c = 'not what its key says'").unwrap();
    let peer = Peer::start(Kind::Direct, &server).unwrap();
    let load = Load { address: peer.address(), clients: 1, work: Work::PointText, pace: None };
    let error = Fleet::open(&load).unwrap().run(Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().contains("wrong reply"), "{error}");
}

/// The output of `scripts/rustc-named` for the `-C metadata` that cargo gives to a crate in `dir` of this version.
fn metadata(dir: &Path, version: [&str; 3], arguments: &[&str]) -> String {
    let mut command = Command::new(root().join("scripts/rustc-named"));
    command.args(["echo", "-C", "metadata=0123456789abcdef"]).args(arguments);
    command.env("CARGO_PKG_NAME", "wire").env("CARGO_MANIFEST_DIR", dir);
    let names = ["CARGO_PKG_VERSION_MAJOR", "CARGO_PKG_VERSION_MINOR", "CARGO_PKG_VERSION_PATCH"];
    let output = command.envs(names.into_iter().zip(version)).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn symbols_do_not_depend_on_dependencies() {
    let target = ["--target", "x86_64-unknown-linux-gnu"];
    let value = |dir: &Path, version| metadata(dir, version, &target).split(' ').nth(1).unwrap().to_owned();
    let (own, other) = (root().join("crates/wire"), Path::new("/registry/wire"));
    assert_eq!(value(&own, ["0", "2", "0"]), "metadata=wire");
    assert_eq!(value(other, ["1", "54", "1"]), "metadata=wire-1");
    assert_eq!(value(other, ["0", "4", "2"]), "metadata=wire-0.4");
    assert_eq!(value(other, ["0", "0", "7"]), "metadata=wire-0.0.7");
    // Build scripts and macros keep it.
    assert_eq!(metadata(&own, ["0", "2", "0"], &[]), "-C metadata=0123456789abcdef");
}
