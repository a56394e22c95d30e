//! The lab's own promises about servers.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::path::Path;
use std::time::Duration;

use lab::{Client, ConnectOptions, Mariadb, Mysql, Options};

#[test]
fn mariadb_starts_restarts_and_goes() {
    let server = Mariadb::start(&Options::new().tls()).unwrap();
    let (pid, dir) = (server.pid(), server.datadir());
    server.restart().unwrap();
    assert_ne!(server.pid(), pid);
    server.kill9();
    server.restart().unwrap();
    let pid = server.pid();
    drop(server);
    assert!(!dir.exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn mysql_starts_and_goes() {
    let server = Mysql::start(&Options::new()).unwrap();
    server.stop().unwrap();
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let error = Mariadb::start(&Options::new().arg("--no-such-flag")).unwrap_err();
    assert!(error.to_string().contains("no-such-flag"), "{error}");
}

#[test]
fn a_stopped_server_is_silent_until_it_goes_on() {
    let server = Mariadb::start(&Options::new()).unwrap();
    let options = ConnectOptions::app(&server);
    server.sigstop();
    // The kernel still accepts connections, but no greeting is sent.
    Client::connect(&options.clone().timeout(Duration::from_millis(200))).unwrap_err();
    server.sigcont();
    Client::connect(&options).unwrap();
}
