//! Rare requests: logins of before MySQL 4.1, COM_REFRESH, counts of bulk executions, long data over the server's limit.

use super::common::{LIMIT, World, proxy_with, server};
use super::proxied_only;
use lab::client::Param;
use lab::{Client, ConnectOptions, Flavor, Options, Server};
use std::io::{Read, Write};
use std::net::TcpStream;
use wire::{Capabilities, Command};

/// The server's answer to the login that HAProxy's `mysql-check user NAME pre-41` sends, with this command after it.
fn old_login(address: (&str, u16), user: &str, capabilities: u16, command: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut header = [0; 4];
    stream.read_exact(&mut header).unwrap();
    stream.read_exact(&mut vec![0; usize::from(header[0])]).unwrap();
    let login = [&capabilities.to_le_bytes()[..], &[0, 0, 1], user.as_bytes(), &[0, 0]].concat();
    let mut sent = vec![u8::try_from(login.len()).unwrap(), 0, 0, 1];
    sent.extend_from_slice(&login);
    sent.extend_from_slice(&[u8::try_from(command.len()).unwrap(), 0, 0, 0]);
    sent.extend_from_slice(command);
    stream.write_all(&sent).unwrap();
    let mut answer = Vec::new();
    // A server that has not read the COM_QUIT resets the connection.
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Each is answered as the server answers it.
#[test]
fn clients_of_before_4_1() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = server(flavor);
        let proxy = proxy_with(server, 2, |builder| builder.user("empty", "", 0));
        // The proxy has to have met its servers.
        Client::connect(&proxy.options("app", "app-pass").timeout(LIMIT)).unwrap().ping().unwrap();
        for user in ["empty", "app", "nobody"] {
            for capabilities in [0x8000, 0, 0x2000] {
                let of = |port| old_login(("127.0.0.1", port), user, capabilities, &[1]);
                let direct = of(server.port());
                assert_eq!(
                    String::from_utf8_lossy(&of(proxy.port())),
                    String::from_utf8_lossy(&direct),
                    "{flavor:?} {user} {capabilities:x}"
                );
                assert_eq!(direct.starts_with(&[3, 0, 0, 2, 0]), flavor == Flavor::Mariadb && user == "empty" && capabilities != 0x2000);
            }
        }
        let answer = old_login(("127.0.0.1", proxy.port()), "empty", 0, b"\x03SELECT 1");
        assert!(String::from_utf8_lossy(&answer).contains("upgrading MySQL client"), "nothing else is served so");
        assert!(!proxy.log().contains("session ended") && !proxy.log().contains("panicked"));
    }
}

/// COM_REFRESH is judged by the server, as FLUSH is.
pub(super) fn refresh(world: &World) {
    let mut peer = world.connect();
    let mut root = world.connect_with(&world.options_for("root", ""));
    for bits in [1, 2, 4, 8, 16, 32] {
        let refused = peer.command(Command::Refresh, &[bits]).unwrap().err().map(|error| error.code);
        // MySQL has not had it since 8.4.
        assert_eq!(refused, Some(if world.is_mysql() { 1047 } else { 1227 }), "{bits}");
        let refused = root.command(Command::Refresh, &[bits]).unwrap().err().map(|error| error.code);
        assert_eq!(refused, world.is_mysql().then_some(1047), "{bits}");
    }
    assert_eq!(peer.get("SELECT 1"), "1");
}

/// INSERT counts all rows, any other statement those that the last row of parameters changed.
pub(super) fn bulk_counts(world: &World) {
    if world.is_mysql() {
        return;
    }
    let options = world.options().with(Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS);
    for (in_transaction, begin) in [(false, "SET @x=1"), (true, "BEGIN")] {
        let mut peer = world.connect_with(&options);
        peer.exec("CREATE OR REPLACE TABLE counted(a INT PRIMARY KEY, n INT)");
        peer.exec(begin);
        for (sql, rows, counted) in [
            ("INSERT INTO counted VALUES (?, 1)", [1, 2, 3], "3"),
            ("UPDATE counted SET n = n + 1 WHERE a > ?", [0, 1, 2], "1"),
            ("UPDATE counted SET n = n + 1 WHERE a > ?", [9, 8, 7], "0"),
            ("INSERT IGNORE INTO counted VALUES (?, 1)", [7, 8, 1], "2"),
            ("DELETE FROM counted WHERE a = ?", [7, 8, 99], "0"),
            ("REPLACE INTO counted VALUES (?, 4)", [3, 50, 51], "4"),
            ("DELETE FROM counted WHERE a > ?", [60, 50, 2], "2"),
        ] {
            let statement = peer.prepare(sql).unwrap();
            let mut body = [&statement.id.to_le_bytes()[..], &[128, 0, 3, 0]].concat();
            for row in rows {
                body.push(0);
                body.extend_from_slice(&i32::to_le_bytes(row));
            }
            let reply = peer.command(Command::StmtBulkExecute, &body).unwrap();
            let warnings = reply.ok().unwrap().warnings;
            assert_eq!(peer.get("SELECT ROW_COUNT()"), counted, "{sql} {rows:?} in a transaction: {in_transaction}");
            peer.command(Command::StmtBulkExecute, &body).unwrap();
            let shown = peer.table("SHOW WARNINGS");
            assert!(warnings == 0 || !shown.is_empty(), "{sql}");
        }
        peer.exec("DROP TABLE counted");
    }
}

/// Longer than the server takes, and longer than the proxy does.
#[test]
fn long_data_over_the_limit() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = Server::start(flavor, &Options::new()).unwrap();
        server.sql("SET GLOBAL max_allowed_packet=1048576").unwrap();
        let strict = proxy_with(&server, 2, |builder| builder.variable("max_allowed_packet", 1_048_576));
        let lax = proxy_with(&server, 2, |builder| builder.variable("max_allowed_packet", 134_217_728));
        let direct = ConnectOptions::app(&server).timeout(LIMIT);
        let through = [&strict, &lax].map(|proxy| proxy.options("app", "app-pass").timeout(LIMIT));
        let all = [direct].into_iter().chain(through.into_iter().filter(|_| proxied_only()));
        for (at, options) in all.enumerate() {
            for length in [1_040_000, 1_048_577, 3_000_000, 20_000_000] {
                let mut client = Client::connect(&options).unwrap();
                let statement = client.prepare("SELECT LENGTH(?)").unwrap();
                let sent = client.send_long_data(&statement, 0, &vec![b'x'; length]);
                if length < 1_048_576 {
                    let reply = client.execute(&statement, &[Param::Long]).unwrap();
                    assert_eq!(reply.scalar().unwrap(), Some(length.to_string()));
                    continue;
                }
                // It answers in the middle of more than it reads, and closes the connection.
                let mut answers = 0;
                while let Ok(packet) = client.recv_packet() {
                    let answer = String::from_utf8_lossy(&packet).into_owned();
                    assert!(answer.contains("#08S01Got a packet bigger than 'max_allowed_packet'"), "{flavor:?} {at} {length}: {answer}");
                    answers += 1;
                }
                assert!(answers == 1 || sent.is_err(), "{flavor:?} {at} {length}: {answers} answers");
            }
        }
    }
}
