//! Logged-in clients that misbehave, or use commands that are rarely seen: other sessions must not notice, and no state of these clients
//! may stay.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, proxy_with, server};
use lab::client::{Encoding, Param};
use lab::{Client, ConnectOptions, Flavor, LabError, Tidegate, wait};
use rustix::process::Signal;
use wire::Capabilities;
use wire::command::Command;

fn app(proxy: &Tidegate) -> ConnectOptions {
    proxy.options("app", "app-pass").timeout(LIMIT)
}

fn connect(proxy: &Tidegate) -> Client {
    Client::connect(&app(proxy)).unwrap()
}

/// Long data for a parameter that does not exist: the server's statement is bad until it is reset, and sessions share it.
fn long_data_for_no_parameter(flavor: Flavor) {
    let proxy = proxy_with(server(flavor), 1, |builder| builder);
    let (mut a, mut b) = (connect(&proxy), connect(&proxy));
    let sql = "SELECT LENGTH(?), ?";
    let (spoiled, other) = (a.prepare(sql).unwrap(), b.prepare(sql).unwrap());
    let params = [Param::Text("abc".to_owned()), Param::Int(5)];
    b.execute(&other, &params).unwrap().rows().unwrap();
    a.send_long_data(&spoiled, 7, b"of none").unwrap();
    assert_eq!(a.execute(&spoiled, &params).unwrap().err().unwrap().code, 1210);
    let reply = b.execute(&other, &params).unwrap();
    assert_eq!(reply.table().unwrap(), [[Some("3".to_owned()), Some("5".to_owned())]]);
}

lab::each!(long_data_for_no_parameter);

/// MySQL sends an error for long data without a parameter number, though that command has no answer.
///
/// A session that shares the server's connection must not read this error.
#[test]
fn long_data_without_a_parameter() {
    let proxy = proxy_with(server(Flavor::Mysql), 1, |builder| builder);
    let (mut a, mut b) = (connect(&proxy), connect(&proxy));
    let statement = a.prepare("SELECT ?").unwrap();
    for round in 0..20 {
        a.send_long_data(&statement, 0, b"x").unwrap();
        a.send_payload(&[&[Command::StmtSendLongData as u8][..], &statement.id.to_le_bytes()].concat(), false).unwrap();
        a.command(Command::StmtReset, &statement.id.to_le_bytes()).unwrap().ok().unwrap();
        assert_eq!(b.scalar(format!("SELECT {round}")).unwrap().unwrap(), round.to_string());
        assert_eq!(a.scalar(format!("SELECT {round}")).unwrap().unwrap(), round.to_string());
    }
}

/// Query attributes that the proxy reads in another way than the server would show it another text.
#[test]
fn attributes_that_cannot_be_read() {
    let proxy = proxy_with(server(Flavor::Mysql), 1, |builder| builder);
    let mut client = Client::connect(&app(&proxy).with(Capabilities::QUERY_ATTRIBUTES)).unwrap();
    let lock = b"SELECT GET_LOCK('attributes', 0)";
    // One attribute of this type, which is not NULL, with a value of five bytes, or of none.
    for (types, kind) in [(1, 6), (1, 9), (1, 13), (1, 99), (1, 241), (1, 244), (2, 253)] {
        for value in [&b"\x05 -- x"[..], b""] {
            let attribute = [3, 1, 1, 0, types, kind, 0, 2, b'/', b'*'];
            client.send_payload(&[&attribute, value, lock].concat(), true).unwrap();
            let reply = client.recv_reply(Encoding::Text).unwrap();
            assert_eq!(reply.err().map(|e| e.code), Some(1835), "type {kind}");
        }
    }
    let mut other = connect(&proxy);
    assert_eq!(other.scalar("SELECT IS_FREE_LOCK('attributes')").unwrap().as_deref(), Some("1"));
    assert_eq!(client.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
}

/// A session is counted with the user that it has, whatever becomes of a COM_CHANGE_USER.
#[test]
fn a_changed_user_is_counted() {
    let proxy = proxy_with(server(Flavor::Mariadb), 2, |builder| builder.user_with("empty", "", 0, &[("max_connections", 1.into())]));
    let empty = proxy.options("empty", "").timeout(LIMIT);
    let nowhere = proxy.options("app", "app-pass").database("not_for_app");
    for _ in 0..2 {
        let mut leaves = wait::until("the session's end", LIMIT, || Client::connect(&empty).ok()).unwrap();
        assert_eq!(leaves.change_user(&nowhere).unwrap_err().code(), Some(1044));
        wait::until("the session's end", LIMIT, || Client::connect(&empty).ok()).unwrap();
    }
    let held = wait::until("the session's end", LIMIT, || Client::connect(&empty).ok()).unwrap();
    let mut other = connect(&proxy);
    assert_eq!(other.change_user(&empty).unwrap_err().code(), Some(1226), "one more than may be");
    drop(held);
    wait::until("the session's end", LIMIT, || Client::connect(&empty).ok()).unwrap();
    let mut same = wait::until("the session's end", LIMIT, || Client::connect(&empty).ok()).unwrap();
    same.change_user(&empty).unwrap();
    same.change_user(&app(&proxy)).unwrap();
    Client::connect(&empty).unwrap();
}

/// A user for whom TLS is required cannot be reached by COM_CHANGE_USER without it.
#[test]
fn a_changed_user_needs_tls_too() {
    let proxy = proxy_with(server(Flavor::Mariadb), 2, |builder| builder.user_with("empty", "", 0, &[("use_ssl", 1.into())]));
    let empty = proxy.options("empty", "").timeout(LIMIT);
    assert_eq!(connect(&proxy).change_user(&empty).unwrap_err().code(), Some(1045));
    let mut secure = Client::connect(&app(&proxy).tls()).unwrap();
    secure.change_user(&empty).unwrap();
}

/// Begins something that only the client can go on with.
type Begin = fn(&mut Client);

fn half_of_long_data(client: &mut Client) {
    let statement = client.prepare("SELECT LENGTH(?)").unwrap();
    let mut packet = [&200_007_u32.to_le_bytes()[..3], &[0, Command::StmtSendLongData as u8]].concat();
    packet.extend_from_slice(&statement.id.to_le_bytes());
    packet.extend_from_slice(&[0; 100_000]);
    client.send_bytes(&packet).unwrap();
}

fn half_of_a_new_login(client: &mut Client) {
    let named = b"app\0\0\0\x2d\0unknown_plugin\0";
    client.send_command(Command::ChangeUser, named).unwrap();
    // Asked to use another plugin, it says nothing.
    assert_eq!(client.recv_packet().unwrap().first(), Some(&0xfe));
}

fn half_of_a_command(client: &mut Client) {
    client.send_bytes(b"\x20\0\0\0\x03SELECT").unwrap();
}

const HALVES: [(&str, Begin); 3] =
    [("long data", half_of_long_data), ("a new login", half_of_a_new_login), ("a command", half_of_a_command)];

/// Reads what there still is. False when the connection is silent instead of closed.
fn is_closed(client: &mut Client) -> bool {
    loop {
        if let Err(LabError::Io { source, .. }) = client.recv_packet() {
            return !matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        }
    }
}

/// KILL ends a session that waits for the rest of its client's packet, and its backend serves other sessions.
#[test]
fn kill_ends_what_was_half_sent() {
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| builder);
    let mut other = connect(&proxy);
    for (name, begin) in HALVES {
        let mut client = connect(&proxy);
        begin(&mut client);
        other.command(Command::ProcessKill, &client.connection_id().to_le_bytes()).unwrap().ok().unwrap();
        assert!(is_closed(&mut client), "{name}");
        assert_eq!(other.scalar("SELECT 1").unwrap().as_deref(), Some("1"), "{name}");
    }
}

/// A login has its time, and so has one that COM_CHANGE_USER began.
#[test]
fn a_new_login_that_is_never_finished() {
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| builder.variable("connect_timeout_client", 500));
    let mut client = connect(&proxy);
    half_of_a_new_login(&mut client);
    assert!(is_closed(&mut client));
    wait::until("the reason", LIMIT, || proxy.log().contains("login not finished").then_some(())).unwrap();
}

/// ROW_COUNT() after commands that are no statements, as the servers have it.
fn row_counts(flavor: Flavor) {
    let server = server(flavor);
    let proxy = proxy_with(server, 1, |builder| builder);
    for options in [ConnectOptions::app(server), app(&proxy)] {
        let mut client = Client::connect(&options).unwrap();
        let row_count = |client: &mut Client| client.scalar("SELECT ROW_COUNT()").unwrap().unwrap();
        let statement = client.prepare("SELECT 1").unwrap();
        client.run("SELECT 1").unwrap();
        client.reset_statement(&statement).unwrap();
        assert_eq!(row_count(&mut client), "0", "COM_STMT_RESET");
        client.run("DO 1").unwrap();
        client.set_option(0).unwrap();
        assert_eq!(row_count(&mut client), "-1", "COM_SET_OPTION");
        client.run("SELECT 1").unwrap();
        client.statistics().unwrap();
        assert_eq!(row_count(&mut client), "-1", "COM_STATISTICS leaves it as it was");
    }
}

lab::each!(row_counts);

/// A command in many frames, none of which is its last, is refused as soon as it is longer than a command may be.
#[test]
fn a_command_without_end() {
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| builder.variable("max_allowed_packet", 20_000_000));
    let mut client = connect(&proxy);
    let frame = |seq: u8| [&[0xff, 0xff, 0xff, seq], &vec![b'x'; 0xff_ffff][..]].concat();
    let mut first = frame(0);
    first[4] = Command::Query as u8;
    client.send_bytes(&first).unwrap();
    // The next header is enough.
    client.send_bytes(&frame(1)[..4]).unwrap();
    let mut answer = Vec::new();
    client.try_clone_tcp().unwrap().read_to_end(&mut answer).unwrap();
    assert_eq!(answer.get(3..7), Some(&[2, 0xff, 0x81, 0x04][..]), "error 1153");
    let longest = format!("SELECT LENGTH('{}')", "x".repeat(19_000_000));
    assert_eq!(connect(&proxy).scalar(&longest).unwrap().as_deref(), Some("19000000"));
}

/// A number of bytes that the system counts for the proxy: `VmRSS`, `VmHWM`.
fn memory_of(proxy: &Tidegate, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Clients that announce much, and send little of it, before they have logged in.
#[test]
fn logins_that_announce_much_take_little() {
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| builder);
    connect(&proxy);
    let before = memory_of(&proxy, "VmRSS");
    let strangers: Vec<TcpStream> = (0..500)
        .map(|_| {
            let mut stranger = TcpStream::connect(proxy.address()).unwrap();
            stranger.read_exact(&mut [0; 60]).unwrap();
            stranger.write_all(&[0xff, 0xff, 1, 1, 0x85, 0xa6, 0xff]).unwrap();
            stranger
        })
        .collect();
    let mut one = strangers[499].try_clone().unwrap();
    one.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    let _ = one.read(&mut [0; 100]);
    let grown = memory_of(&proxy, "VmRSS").saturating_sub(before);
    assert!(grown < 500 * 40_000, "{grown} bytes for 500 strangers");
}

/// Bodies of requests to the web page, before any login: only a login's body is read, and only up to a small size.
#[test]
fn bodies_of_strangers_take_no_memory() {
    const STRANGERS: usize = 400;
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| builder.web_port(26_080));
    let address = format!("127.0.0.1:{}", proxy.web_port().unwrap());
    // It is opened a moment after the proxy is ready.
    wait::until("the web page", LIMIT, || TcpStream::connect(&address).ok()).unwrap();
    let body = vec![b'x'; 1_000_000];
    let stranger = |path: &str| {
        let mut stranger = TcpStream::connect(&address).unwrap();
        stranger.set_write_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len() + 1
        );
        stranger.write_all(head.as_bytes()).unwrap();
        // The end of the body never comes.
        let _ = stranger.write_all(&body);
        stranger
    };
    drop(stranger("/api/sql"));
    let before = memory_of(&proxy, "VmRSS");
    let paths = ["/api/sql", "/api/login", "/", "/api/view/now"];
    let strangers: Vec<TcpStream> = paths.iter().cycle().take(STRANGERS).map(|path| stranger(path)).collect();
    let grown = memory_of(&proxy, "VmHWM").saturating_sub(before);
    assert!(grown < STRANGERS as u64 * 64_000, "{grown} bytes for {STRANGERS} strangers");
    drop(strangers);
    let login = "{\"user\":\"admin\",\"password\":\"admin\"}";
    let mut operator = TcpStream::connect(&address).unwrap();
    let request = format!(
        "POST /api/login HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{login}",
        login.len()
    );
    operator.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    operator.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Wrong passwords at the admin port are answered at one a second; a login with the right one succeeds meanwhile.
#[test]
fn guesses_at_the_admin_port_are_slow() {
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| builder);
    let address = format!("127.0.0.1:{}", proxy.admin_port());
    let options = |password: &str| ConnectOptions::tcp(address.clone(), "admin", password).timeout(LIMIT);
    let (began, told) = (std::time::Instant::now(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while began.elapsed().as_secs() < 3 {
                    match Client::connect(&options("wrong")) {
                        Err(LabError::Server { code: 1045, .. }) => told.fetch_add(1, Ordering::Relaxed),
                        outcome => panic!("{outcome:?}"),
                    };
                }
            });
        }
        while told.load(Ordering::Relaxed) < 12 {
            thread::yield_now();
        }
        Client::connect(&options("admin")).unwrap();
    });
    let (told, seconds) = (told.into_inner(), usize::try_from(began.elapsed().as_secs()).unwrap());
    assert!(told <= 10 + seconds + 2, "{told} guesses in {seconds} s");
    let metrics = Client::connect(&options("admin")).unwrap().run("SHOW PROMETHEUS METRICS").unwrap().scalar().unwrap().unwrap().clone();
    let failed = metrics.lines().find_map(|line| line.strip_prefix("tidegate_admin_logins_failed_total ")).unwrap();
    assert_eq!(failed.parse::<usize>().unwrap(), told, "{metrics}");
}

/// Many commands that are never finished: they are refused before the proxy exceeds its memory budget, and no other client notices.
#[test]
fn commands_that_are_never_finished_stay_within_the_budget() {
    const MIB: u64 = 1 << 20;
    let proxy = proxy_with(server(Flavor::Mariadb), 2, |builder| builder.variable("memory_budget", 300 * (1 << 20)));
    let mut other = connect(&proxy);
    let long = format!("SELECT LENGTH('{}')", "x".repeat(1_000_000));
    assert_eq!(other.scalar(&long).unwrap().as_deref(), Some("1000000"));
    let mut hogs = Vec::new();
    let unfinished = [&[0xff, 0xff, 0xff, 0, Command::Query as u8][..], &vec![b'x'; 15_000_000]].concat();
    for _ in 0..40 {
        let Ok(mut hog) = Client::connect(&app(&proxy)) else { break };
        let is_refused = hog.send_bytes(&unfinished).is_err();
        hogs.push(hog);
        assert_eq!(other.scalar("SELECT 5").unwrap().as_deref(), Some("5"), "{}", hogs.len());
        if is_refused {
            break;
        }
    }
    assert!(hogs.len() < 40, "nobody was refused");
    wait::until("the log to tell", LIMIT, || proxy.log().contains("mysql-memory_budget is 300 MiB").then_some(())).unwrap();
    assert!(proxy.log().contains("refuses commands longer than 64 KiB (1041)"), "{}", proxy.log());
    let most = memory_of(&proxy, "VmHWM") / MIB;
    assert!(most < 330, "{most} MiB");
    drop(hogs);
    let works = || connect(&proxy).scalar(&long).ok().flatten().filter(|len| len == "1000000").map(drop);
    wait::until("long commands to be taken again", LIMIT, works).unwrap();
    let metrics = proxy.admin().unwrap().run("SHOW PROMETHEUS METRICS").unwrap().scalar().unwrap().unwrap().clone();
    let refused = metrics.lines().find_map(|line| line.strip_prefix("tidegate_memory_refusals_total{what=\"command\"} ")).unwrap();
    assert!(refused.parse::<u64>().unwrap() > 0, "{metrics}");
}

/// The prepared statements of one client are bounded in bytes; a single statement is always allowed.
#[test]
fn prepared_statements_are_bounded_in_bytes() {
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| builder.variable("max_stmts_bytes_per_client", 100_000));
    let mut client = connect(&proxy);
    let text = |len: usize| format!("SELECT 7 /* {} */", "x".repeat(len));
    let long = client.prepare(text(200_000)).unwrap();
    assert_eq!(client.prepare("SELECT 8").unwrap_err().code(), Some(1461));
    client.execute(&long, &[]).unwrap().rows().unwrap();
    client.close_statement(&long).unwrap();
    let held: Vec<_> = (0..9).map(|_| client.prepare(text(10_000)).unwrap()).collect();
    assert_eq!(client.prepare(text(10_000)).unwrap_err().code(), Some(1461));
    assert_eq!(client.prepare("SELECT 8").unwrap().params.len(), 0);
    client.reset_connection().unwrap();
    drop(held);
    client.prepare(text(90_000)).unwrap();
    assert_eq!(connect(&proxy).prepare(text(90_000)).unwrap().params.len(), 0, "each client has its own");
}

/// A greeting, an OK to whatever logs in, then rows without content for ever; answers how many bytes of them were taken.
fn endless_rows(mut client: TcpStream) -> std::io::Result<usize> {
    const MOST: usize = 64 << 20;
    let packet = |seq: u8, payload: &[u8]| [&u32::try_from(payload.len()).unwrap().to_le_bytes()[..3], &[seq], payload].concat();
    let mut greeting = b"\x0a5.5.5-10.11.6-MariaDB\0\x07\0\0\0abcdefgh\0".to_vec();
    // No TLS, no compression, CLIENT_PROTOCOL_41 and the like; utf8mb4; 21 bytes of scramble.
    greeting.extend_from_slice(b"\xdf\xf7\x2d\x02\0\xff\x00\x15");
    greeting.extend_from_slice(b"\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0mysql_native_password\0");
    client.write_all(&packet(0, &greeting))?;
    let mut heard = vec![0; 1 << 16];
    if client.read(&mut heard)? == 0 {
        return Ok(0);
    }
    client.write_all(&packet(2, b"\0\0\0\x02\0\0\0"))?;
    if client.read(&mut heard)? == 0 {
        return Ok(0);
    }
    let definition = b"\x03def\0\0\0\x01a\0\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0";
    client.write_all(&[packet(1, b"\x01"), packet(2, definition), packet(3, b"\xfe\0\0\x02\0")].concat())?;
    let rows = packet(4, b"").repeat(1 << 14);
    let mut sent = 0;
    while sent < MOST && client.write_all(&rows).is_ok() {
        sent += rows.len();
    }
    assert!(sent < MOST, "the proxy reads on");
    Ok(sent)
}

/// A server whose answers have no end costs no more memory than an answer may.
#[test]
fn endless_rows_without_content() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let taken = thread::spawn(|| endless_rows(client.unwrap())).join();
            let _ = tell.send(taken);
        }
    });
    let proxy = Tidegate::builder()
        .server_with(0, "127.0.0.1", port, &[])
        .variable("monitor_enabled", false)
        .variable("connect_timeout_server_max", 2_000)
        .app_user()
        .start()
        .unwrap();
    let asked = app(&proxy);
    let client = thread::spawn(move || Client::connect(&asked).and_then(|mut client| client.run("SELECT 1").map(drop)));
    let sent = wait::until("rows that were not read", LIMIT, || match told.try_recv().ok()? {
        Ok(Ok(sent)) => (sent > 0).then_some(sent),
        Ok(Err(_)) => None,
        Err(_) => panic!("the proxy reads on"),
    });
    sent.unwrap();
    assert!(client.join().unwrap().is_err());
}

/// A directory, and a program in it that starts the proxy as the shell's `script` says: PROXY stands for its command line.
fn wrapped(script: &str) -> (PathBuf, PathBuf) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("tidegate-wrapped-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let program = dir.join("tidegate");
    let proxy = format!("'{}' \"$@\"", lab::tidegate::find_program().unwrap().display());
    std::fs::write(&program, format!("#!/bin/sh\n{}\n", script.replace("PROXY", &proxy))).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (dir, program)
}

/// Clients that take all descriptors they can get leave some to servers and administrators, and learn why they are refused.
#[test]
fn few_descriptors() {
    let (dir, program) = wrapped("ulimit -n 96; exec PROXY");
    let proxy = proxy_with(server(Flavor::Mariadb), 4, |builder| builder.program(&program));
    wait::until("the log to say so", LIMIT, || proxy.log().contains("limit of open files").then_some(())).unwrap();
    let mut clients = Vec::new();
    let refused = (0..100).find_map(|_| match Client::connect(&app(&proxy)) {
        Ok(client) => {
            clients.push(client);
            None
        }
        Err(error) => error.code(),
    });
    assert_eq!(refused, Some(1040), "after {} clients", clients.len());
    assert!(clients.len() >= 8, "{} clients", clients.len());
    for client in clients.iter_mut().take(3) {
        client.run("BEGIN").unwrap();
        assert_eq!(client.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
    }
    assert_eq!(proxy.admin().unwrap().scalar("SELECT 1").unwrap().as_deref(), Some("1"));
    assert!(!proxy.log().contains("accept failed"));
    std::fs::remove_dir_all(dir).unwrap();
}

/// A stop that arrives while the proxy drains before a restart ends the process. A client without a finished login does not delay it.
#[test]
fn a_restart_is_stopped() {
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| builder.variable("drain_timeout", 600_000));
    let mut client = connect(&proxy);
    client.run("BEGIN").unwrap();
    let mut silent = TcpStream::connect(proxy.address()).unwrap();
    silent.set_read_timeout(Some(LIMIT)).unwrap();
    silent.read_exact(&mut [0; 4]).unwrap();
    proxy.admin().unwrap().run("PROXYSQL RESTART").unwrap();
    wait::until("the drain to begin", LIMIT, || proxy.log().contains("stopping").then_some(())).unwrap();
    proxy.signal(Signal::TERM);
    wait::until("the word to be heard", LIMIT, || proxy.log().contains("stop signal: the proxy does not start again").then_some(()))
        .unwrap();
    client.run("COMMIT").unwrap();
    assert!(proxy.wait_exit().unwrap().success());
    assert!(TcpStream::connect(proxy.address()).is_err());
}

/// Logins that cannot be read are answered as servers do.
#[test]
fn logins_that_cannot_be_read() {
    let proxy = proxy_with(server(Flavor::Mysql), 1, |builder| builder);
    let caps = Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION;
    let start = [&caps.mysql_bits().to_le_bytes()[..], &[0, 0, 0, 1, 45], &[0; 23]].concat();
    let packet = |seq: u8, payload: &[u8]| {
        let mut out = Vec::new();
        wire::packet::put_packet(&mut out, &mut { seq }, payload);
        out
    };
    let cases = [
        (packet(1, &start[..9]), 1043),
        (packet(1, &[&start[..], b"app"].concat()), 1043),
        (packet(1, &[&start[..], b"app\0\x20short"].concat()), 1043),
        (packet(1, &[0x05, 0x00, 0, 0, 0]), 1251),
        (packet(7, &[&start[..], b"app\0\0"].concat()), 1156),
        (vec![0xff, 0xff, 0xfe, 1], 1043),
    ];
    for (bytes, code) in cases {
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        let mut receive = || {
            let mut header = [0; 4];
            client.read_exact(&mut header).unwrap();
            let mut payload = vec![0; usize::from(header[0]) | usize::from(header[1]) << 8];
            client.read_exact(&mut payload).unwrap();
            payload
        };
        assert_eq!(receive()[0], 10);
        (&client).write_all(&bytes).unwrap();
        let mut header = [0; 7];
        client.read_exact(&mut header).unwrap();
        assert_eq!((header[4], u16::from_le_bytes([header[5], header[6]])), (0xff, code), "{bytes:?}");
    }
    assert_eq!(connect(&proxy).scalar("SELECT 1").unwrap().as_deref(), Some("1"));
}

/// The questions of a login do not reveal whether a user exists, however passwords are stored.
#[test]
fn users_who_are_not_there_are_asked_as_others_are() {
    let sha2 = wire::auth::crypt::generate(b"secret", b"abcdefghijklmnopqrst");
    let native = "*6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9";
    let (mut kinds, plugins) = (Vec::new(), [&b"mysql_native_password"[..], b"caching_sha2_password"]);
    for password in ["clear", native, sha2.as_str()] {
        let server = server(Flavor::Mysql);
        let proxy = Tidegate::builder().server(0, server.host(), server.port()).user("known", password, 0).start().unwrap();
        for plugin in plugins {
            let known = asked(&proxy.address(), "known", plugin);
            for name in ["nobody", "root", "a"] {
                assert_eq!(asked(&proxy.address(), name, plugin), known, "{password} {name}");
            }
            kinds.push(known);
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert!(kinds.len() > 1, "there is something to be told apart: {kinds:?}");
}

/// MySQL 9.7 asks for sha256_password for about half of the unknown users, though no user has it.
#[test]
fn mysql_asks_unknown_users_for_either_plugin() {
    let address = server(Flavor::Mysql).address();
    let plugin =
        |nth: usize| asked(&address, &format!("nobody{nth}"), b"mysql_native_password").iter().find(|said| said[0] == 0xfe).copied();
    let asked: Vec<_> = (0..24).map(|nth| plugin(nth).unwrap()[1]).collect();
    let of_sha256 = asked.iter().filter(|letter| **letter == b's').count();
    assert!((1..24).contains(&of_sha256) && asked.iter().all(|letter| b"sc".contains(letter)), "{asked:?}");
}

/// The beginnings of a server's packets in a login with wrong answers.
fn asked(address: &str, user: &str, plugin: &[u8]) -> Vec<[u8; 2]> {
    let caps = Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION | Capabilities::PLUGIN_AUTH;
    let start = [&caps.mysql_bits().to_le_bytes()[..], &[0, 0, 0, 1, 45], &[0; 23], user.as_bytes(), &[0, 20], &[7; 20]].concat();
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let mut said = Vec::new();
    let mut answer = [&start[..], plugin, &[0]].concat();
    loop {
        let mut header = [0; 4];
        (&client).read_exact(&mut header).unwrap();
        let mut payload = vec![0; usize::from(header[0]) | usize::from(header[1]) << 8];
        (&client).read_exact(&mut payload).unwrap();
        let beginning = [payload[0], payload[1]];
        said.push(beginning);
        answer = match beginning {
            [0xff, _] => return said,
            [10, _] => answer,
            [0xfe, _] => vec![7; 32],
            // The password is to come under the server's key, which is asked for.
            [1, 4] => vec![2],
            _ => vec![7; 256],
        };
        let mut out = Vec::new();
        wire::packet::put_packet(&mut out, &mut header[3].wrapping_add(1), &answer);
        (&client).write_all(&out).unwrap();
    }
}

/// A server that asks for a file without need gets none, and the client gets an error.
///
/// Either no statement loads a file, or the client has none to give.
#[test]
fn a_server_that_steals_files() {
    let real = server(Flavor::Mariadb);
    let (host, port) = (real.host(), real.port());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let thief = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for proxy in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect((host, port)).unwrap();
            let (mut back, mut to) = (server.try_clone().unwrap(), proxy.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut back, &mut to));
            thread::spawn(move || steal(proxy, server));
        }
    });
    let proxy = Tidegate::builder().server_with(0, "127.0.0.1", thief, &[]).variable("monitor_enabled", false).app_user().start().unwrap();
    let asked = app(&proxy).database("test").with(Capabilities::MULTI_STATEMENTS);
    for (has_files, sql, is_asked) in [
        (true, "SELECT 'steal'", false),
        (true, "SELECT 1; SELECT 'steal'", false),
        (true, "CALL steal()", false),
        (false, "LOAD DATA LOCAL INFILE 'steal' INTO TABLE t", false),
        (true, "LOAD DATA LOCAL INFILE 'steal' INTO TABLE t", true),
        (true, "SET STATEMENT max_statement_time=9 FOR LOAD DATA LOCAL INFILE 'steal' INTO TABLE t", true),
        (true, "/*!50000 LOAD */ DATA LOCAL INFILE 'steal' INTO TABLE t", true),
        (true, "SELECT 1; load data LOCAL INFILE 'steal' INTO TABLE t", true),
        (true, "EXECUTE IMMEDIATE 'LOAD DATA LOCAL INFILE \'steal\' INTO TABLE t'", true),
    ] {
        let options = if has_files { asked.clone().with(Capabilities::LOCAL_FILES) } else { asked.clone() };
        let mut client = Client::connect(&options).unwrap();
        let (tell, told) = mpsc::channel();
        client.set_infile_handler(Box::new(move |name| {
            tell.send(name.to_owned()).ok()?;
            None
        }));
        let outcome = client.run(sql);
        assert_eq!(told.try_recv().is_ok(), is_asked, "{has_files} {sql}: {outcome:?}");
        if !is_asked {
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains(&lab::SERVER_LOST.to_string()) && text.contains("file"), "{sql}: {text}");
        }
    }
}

/// Passes on what comes, but asks for a file when it reads the word.
fn steal(mut proxy: TcpStream, mut server: TcpStream) -> std::io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let n = proxy.read(&mut bytes)?;
        match bytes.get(..n) {
            None | Some([]) => return Ok(()),
            Some(read) if read.windows(5).any(|word| word == b"steal") => proxy.write_all(b"\x0c\0\0\x01\xfb/etc/passwd")?,
            Some(read) => server.write_all(read)?,
        }
    }
}

/// A client that reaches the port may send any user name, any number of times.
///
/// The logs write each name within their own lines, and limit the number of lines.
#[test]
fn logins_that_are_to_fill_the_log() {
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| builder.variable("auditlog_filename", "audit"));
    let before = proxy.log().len();
    let forged = "x\n2026-11-22T18:00:00.000000Z ERROR proxysql.db is damaged\u{1b}[2J";
    let refused = |user: &str| match Client::connect(&proxy.options(user, "wrong").timeout(LIMIT)) {
        Err(LabError::Server { code, .. }) => assert_eq!(code, 1045),
        outcome => panic!("{outcome:?}"),
    };
    refused(forged);
    (0..300).for_each(|_| refused(&"u".repeat(60_000)));
    let left_out = "more clients that did not log in were not logged";
    wait::until("the line on those that were left out", LIMIT, || proxy.log().contains(left_out).then_some(())).unwrap();
    let log = proxy.log_since(before as u64).0;
    assert!(log.len() < 10_000, "{} bytes", log.len());
    assert!(log.lines().all(|line| !line.starts_with("2026-11-22T18:00:00")), "{log}");
    assert!(log.contains(r"'x\n2026-11-22T18:00:00.000000Z ERROR proxysql.db is damaged\u{1b}[2J'@"), "{log}");
    // The look of the test's bed, whether the port is open, is no login.
    let logged = proxy.log().matches(" refused: ").count();
    assert!(log.contains(&format!("{} {left_out}", 301 - logged)), "{log}");
    refused("another");
    wait::until("it to be logged", LIMIT, || proxy.log().contains("user 'another'@").then_some(())).unwrap();
    proxy.stop().unwrap();
    let audit = std::fs::read_to_string(proxy.dir().join("audit.00000001")).unwrap();
    assert_eq!(audit.lines().filter(|line| line.contains("\"uuuu") && line.contains("Connect_ERR")).count(), 300);
    assert!(audit.lines().all(|line| line.len() < 1_000), "{audit}");
}

/// A limit of file sizes acts as a full disk: records are lost and counted, and no session ends.
#[test]
fn a_limit_of_file_sizes() {
    let proxy = proxy_with(server(Flavor::Mariadb), 1, |builder| {
        builder.variable("eventslog_filename", "queries").variable("eventslog_format", 2).variable("eventslog_default_log", 1)
    });
    let mut client = connect(&proxy);
    let pid = rustix::process::Pid::from_raw(i32::try_from(proxy.pid()).unwrap());
    let limit = rustix::process::Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
    let sql = format!("SELECT /* {} */ 1", "x".repeat(100_000));
    let mut admin = proxy.admin().unwrap();
    wait::until("records to be lost", LIMIT, || {
        client.run(&sql).unwrap();
        proxy.log().contains("cannot write: File too large").then_some(())
    })
    .unwrap();
    assert_eq!(admin.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
    assert_eq!(connect(&proxy).scalar("SELECT 1").unwrap().as_deref(), Some("1"));
}

/// The reader of the proxy's log stands still: neither clients nor administrators wait for it, and lost lines are reported.
#[test]
fn a_log_that_nobody_reads() {
    let (dir, program) = wrapped("exec PROXY 2>\"${0%/*}/pipe\"");
    let pipe = dir.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut log = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let proxy = proxy_with(server(Flavor::Mariadb), 2, |builder| {
        let builder = builder.program(&program).variable("verbose_query_error", true).variable("log_queue_max_mb", 1);
        builder.variable("log_lines_per_second", 0)
    });
    let (mut client, mut bystander, mut admin) = (connect(&proxy), connect(&proxy), proxy.admin().unwrap());
    let sql = format!("SELECT {} FROM test.nowhere", vec!["col_of_a_long_name"; 50].join(", "));
    for _ in 0..2_500 {
        assert_eq!(client.query(&sql).unwrap().err().unwrap().code, 1146);
    }
    assert_eq!(bystander.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
    assert_eq!(admin.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
    let (seen, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(n @ 1..) = log.read(&mut bytes) {
            let _ = seen.send(String::from_utf8_lossy(&bytes[..n]).into_owned());
        }
    });
    let mut text = String::new();
    wait::until("the log to tell what is missing", LIMIT, || {
        text.extend(lines.try_iter());
        text.contains("lines are missing here").then_some(())
    })
    .unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A text of megabytes is read in turns: the only worker serves other sessions in between, whether the text is valid or not.
#[test]
fn long_texts_are_read_in_turns() {
    const ROWS: usize = 500_000;
    let proxy = proxy_with(server(Flavor::Mariadb), 2, |builder| builder.variable("threads", 1));
    let mut writer = Client::connect(&app(&proxy).database("test").timeout(LIMIT * 4)).unwrap();
    let mut bystander = connect(&proxy);
    writer.run("CREATE OR REPLACE TABLE long_texts(id INT AUTO_INCREMENT PRIMARY KEY, a INT, b INT)").unwrap();
    let good = format!("INSERT INTO long_texts(a,b) VALUES{}", vec!["(1,2)"; ROWS].join(","));
    let texts = [format!("{good},(1)"), good.clone(), good];
    let (sent, answers) = mpsc::channel();
    let writing = thread::spawn(move || {
        for (text, error) in texts.iter().zip([Some(1136), None, None]) {
            let begun = Instant::now();
            let reply = writer.query(text).unwrap();
            sent.send(begun.elapsed()).unwrap();
            assert_eq!(reply.err().map(|error| error.code), error);
        }
    });
    let (mut longest, mut took) = (Duration::ZERO, Vec::new());
    while took.len() < 3 {
        let begun = Instant::now();
        bystander.run("DO 0").unwrap();
        longest = longest.max(begun.elapsed());
        if let Ok(one) = answers.try_recv() {
            println!("{longest:?} of {one:?}");
            assert!(longest < one / 4, "{longest:?} of {one:?}");
            longest = Duration::ZERO;
            took.push(one);
        }
    }
    writing.join().unwrap();
}
