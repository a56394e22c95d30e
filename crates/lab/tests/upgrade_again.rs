//! An upgrade during another upgrade, a script, or the order to stop.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, server};
use lab::client::Encoding;
use lab::port::Port;
use lab::tidegate::find_program;
use lab::{Client, ConnectOptions, Flavor, Tidegate, wait};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

fn upgrade(proxy: &Tidegate, program: Option<&PathBuf>) -> Result<String, String> {
    let sql = program.map_or("PROXYSQL UPGRADE".to_owned(), |program| format!("PROXYSQL UPGRADE '{}'", program.display()));
    let reply = proxy.admin().unwrap().run(sql).map_err(|e| e.to_string())?;
    reply.ok().map(|ok| ok.info.clone()).map_err(|e| e.to_string())
}

fn order(admin: &mut Client, sql: &[&str]) {
    for sql in sql {
        admin.run(*sql).unwrap().check().unwrap();
    }
}

fn script(proxy: &Tidegate, name: &str, text: &str) -> PathBuf {
    let path = proxy.dir().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn wait_in_charge(proxy: &Tidegate, times: usize) {
    let is_so = || (proxy.log().matches("has taken over as process").count() == times).then_some(());
    wait::until("the new process to be in charge", LIMIT, is_so).unwrap();
}

/// A third process would not count the connections of the first one: it is not started while the first has any.
#[test]
fn three_processes_never_share_a_server() {
    let server = server(Flavor::Mariadb);
    let builder = Tidegate::builder().app_user().server_with(0, server.host(), server.port(), &[("max_connections", 2.into())]);
    let builder = builder.variable("threads", 1).variable("drain_timeout", 60_000).variable("connect_timeout_server_max", 500);
    let mut proxy = builder.start().unwrap();
    let mut holder = Client::connect(&ConnectOptions::app(server)).unwrap();
    assert_eq!(holder.scalar("SELECT GET_LOCK('again', 0)").unwrap().as_deref(), Some("1"));
    let mut busy = [(); 2].map(|()| proxy.connect_app().unwrap());
    busy.iter_mut().for_each(|client| client.send_query("SELECT GET_LOCK('again', 60)").unwrap());
    let waits = || server.scalar("SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT GET_LOCK(''again'', 60)'");
    wait::until("both to wait", LIMIT, || (waits().ok()?.as_deref() == Some("2")).then_some(())).unwrap();
    let answer = upgrade(&proxy, None).unwrap();
    wait_in_charge(&proxy, 1);
    order(&mut proxy.admin().unwrap(), &["SET admin-upgrade_timeout=500", "LOAD ADMIN VARIABLES TO RUNTIME"]);
    let error = upgrade(&proxy, None).unwrap_err();
    assert!(error.contains("the previous process still has sessions or scripts"), "{error}");
    // The limit holds: there is no third connection.
    let error = proxy.connect_app().unwrap().run("SELECT 1").unwrap_err().to_string();
    assert!(error.contains("9001"), "{error}");
    order(&mut proxy.admin().unwrap(), &["SET admin-upgrade_timeout=60000", "LOAD ADMIN VARIABLES TO RUNTIME"]);
    holder.quit().unwrap();
    for client in &mut busy {
        client.recv_reply(Encoding::Text).unwrap();
        // A request that a client has sent meanwhile is answered by whichever process has the client.
        client.run("SELECT RELEASE_ALL_LOCKS()").unwrap().check().unwrap();
    }
    proxy.follow(&answer).unwrap();
    proxy.upgrade(None).unwrap();
    assert_eq!(busy[0].scalar("SELECT 1").unwrap().as_deref(), Some("1"));
}

/// A script that runs when an upgrade comes is finished, and is not begun again meanwhile.
#[test]
fn a_script_runs_once_over_an_upgrade() {
    let mut proxy = Tidegate::builder().app_user().backend(0, server(Flavor::Mariadb)).variable("drain_timeout", 60_000).start().unwrap();
    let dir = proxy.dir().display().to_string();
    let text = format!("echo begin >> {dir}/runs; while [ ! -e {dir}/go ]; do sleep 0.05; done; echo end >> {dir}/runs");
    let script = script(&proxy, "slow", &text);
    let runs = || std::fs::read_to_string(format!("{dir}/runs")).unwrap_or_default();
    let mut admin = proxy.admin().unwrap();
    let row = format!("INSERT INTO scheduler (id, active, interval_ms, filename) VALUES (1, 1, 100, '{}')", script.display());
    order(&mut admin, &[&row, "LOAD SCHEDULER TO RUNTIME"]);
    wait::until("it to run", LIMIT, || (runs() == "begin\n").then_some(())).unwrap();
    let answer = upgrade(&proxy, None).unwrap();
    wait_in_charge(&proxy, 1);
    // It would be due ten times.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(runs(), "begin\n");
    std::fs::write(format!("{dir}/go"), "").unwrap();
    proxy.follow(&answer).unwrap();
    wait::until("the new process to run it", LIMIT, || (runs().lines().count() >= 6).then_some(())).unwrap();
    proxy.stop().unwrap();
    let all = runs();
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines.chunks(2).all(|run| run[0] == "begin" && run.get(1).is_none_or(|end| *end == "end")), "{all}");
}

/// The order to stop arrives while the new process starts: no process takes over, and the answer does not claim it.
#[test]
fn who_is_told_to_stop_hands_nothing_over() {
    let proxy = Tidegate::builder().app_user().backend(0, server(Flavor::Mariadb)).variable("drain_timeout", 60_000).start().unwrap();
    let dir = proxy.dir().display().to_string();
    let text =
        format!("touch {dir}/started; while [ ! -e {dir}/go ]; do sleep 0.05; done; exec {} \"$@\"", find_program().unwrap().display());
    let slow = script(&proxy, "slow", &text);
    let mut client = proxy.connect_app().unwrap();
    client.run("BEGIN").unwrap().check().unwrap();
    client.run("CREATE TEMPORARY TABLE own (id INT)").unwrap().check().unwrap();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| upgrade(&proxy, Some(&slow)));
        wait::until("it to start", LIMIT, || std::fs::exists(format!("{dir}/started")).unwrap().then_some(())).unwrap();
        proxy.signal(Signal::TERM);
        wait::until("it to stop", LIMIT, || proxy.log().contains("stopping").then_some(())).unwrap();
        std::fs::write(format!("{dir}/go"), "").unwrap();
        let answer = answer.join().unwrap();
        assert!(answer.is_err(), "{answer:?}");
    });
    client.quit().unwrap();
    proxy.wait_exit().unwrap();
    assert!(!proxy.log().contains("has taken over"), "{}", proxy.log());
    assert!(TcpStream::connect(proxy.address()).is_err(), "nobody is left");
}

fn readiness(port: &Port) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port.number())).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// `/readyz` answers 503 while each new client is refused.
#[test]
fn who_refuses_everybody_is_not_ready() {
    let builder = Tidegate::builder().app_user().backend(0, server(Flavor::Mariadb)).variable("max_connections", 2);
    let port = Port::reserve().unwrap();
    let builder = builder.admin_variable("restapi_enabled", true).admin_variable("restapi_port", i64::from(port.number()));
    let proxy = builder.start().unwrap();
    wait::until("the port", LIMIT, || TcpStream::connect(("127.0.0.1", port.number())).ok()).unwrap();
    assert!(readiness(&port).starts_with("HTTP/1.1 200"), "{}", readiness(&port));
    let clients = [(); 2].map(|()| proxy.connect_app().unwrap());
    assert!(proxy.connect_app().unwrap_err().to_string().contains("1040"));
    let answer = readiness(&port);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("error 1040"), "{answer}");
    drop(clients);
    wait::until("room for others", LIMIT, || readiness(&port).starts_with("HTTP/1.1 200").then_some(())).unwrap();
}
