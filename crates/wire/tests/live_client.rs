//! Command line clients log in to this crate's bytes. Skipped unless told which client to run:
//! `TIDEGATE_TEST_CLIENT='mysql --no-defaults --get-server-public-key' cargo test -p wire --test live_client -- --ignored`.
//! MariaDB's will not do (10.11, Debian): asked for the password over TCP it sends it in clear, which is refused here.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use wire::auth::rsa::RsaKey;
use wire::auth::server::{Account, ServerAuth, Step, Stored};
use wire::auth::{Channel, Plugin, crypt, hash};
use wire::handshake::{AuthSwitchRequest, Greeting, HandshakeResponse};
use wire::message::{ErrPacket, OK, OkPacket};
use wire::{Capabilities, StatusFlags, packet};

const CAPS: Capabilities = Capabilities::LONG_PASSWORD
    .union(Capabilities::PROTOCOL_41)
    .union(Capabilities::TRANSACTIONS)
    .union(Capabilities::SECURE_CONNECTION)
    .union(Capabilities::PLUGIN_AUTH)
    .union(Capabilities::PLUGIN_AUTH_LENENC)
    .union(Capabilities::CONNECT_ATTRS);
const SCRAMBLE: [u8; 20] = *b"abcdefghijABCDEFGHIJ";

fn read(socket: &mut TcpStream) -> Option<(Vec<u8>, u8)> {
    let mut head = [0; packet::HEADER];
    socket.read_exact(&mut head).ok()?;
    let (len, seq) = packet::header(&head)?;
    let mut payload = vec![0; len];
    socket.read_exact(&mut payload).ok()?;
    Some((payload, seq.wrapping_add(1)))
}

fn write(socket: &mut TcpStream, mut seq: u8, payload: &[u8]) {
    let mut out = Vec::new();
    packet::put_packet(&mut out, &mut seq, payload);
    let _ = socket.write_all(&out);
}

fn ok() -> Vec<u8> {
    let mut payload = Vec::new();
    OkPacket { status: StatusFlags::AUTOCOMMIT, ..OkPacket::default() }.write(&mut payload, OK, CAPS);
    payload
}

/// Serves one client; true when it got in.
fn serve(socket: &mut TcpStream, account: &Account<'_>, default: Plugin) -> bool {
    let greeting = Greeting {
        server_version: b"8.0.36".to_vec(),
        connection_id: 1,
        scramble: SCRAMBLE.to_vec(),
        capabilities: CAPS,
        collation: 45,
        status: StatusFlags::AUTOCOMMIT,
        plugin: default.name().as_bytes().to_vec(),
    };
    let mut payload = Vec::new();
    greeting.write(&mut payload);
    write(socket, 0, &payload);
    let (login, mut seq) = read(socket).unwrap();
    let login = HandshakeResponse::parse(&login).unwrap();
    let mut auth = ServerAuth::new(SCRAMBLE, default, Channel::Plain);
    let mut step = auth.start(account, login.plugin, login.auth_response).unwrap();
    loop {
        let mut payload = Vec::new();
        match step {
            Step::Done(verified) => {
                if let Some(more) = verified.before_ok {
                    write(socket, seq, &more);
                    seq += 1;
                }
                write(socket, seq, &ok());
                return true;
            }
            Step::Check(check) => {
                step = check.run();
                continue;
            }
            Step::Denied => {
                ErrPacket { code: 1045, sqlstate: *b"28000", message: b"Access denied" }.write(&mut payload, CAPS);
                write(socket, seq, &payload);
                return false;
            }
            Step::Send(more) => payload = more,
            Step::Switch(plugin) => AuthSwitchRequest { plugin: plugin.name().as_bytes(), data: auth.scramble() }.write(&mut payload),
        }
        write(socket, seq, &payload);
        let Some((answer, next)) = read(socket) else { return false };
        seq = next;
        step = auth.feed(account, &answer).unwrap();
    }
}

/// Runs the client with `password`; true when both sides say that it got in.
fn client_gets_in(account: &Account<'_>, default: Plugin, password: &str) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = std::env::var("TIDEGATE_TEST_CLIENT").unwrap();
    let mut words = client.split(' ');
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .args(["-h127.0.0.1", "-uapp", "-edo 1"])
        .arg(format!("-P{port}"))
        .arg(format!("-p{password}"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let served = serve(&mut socket, account, default);
    while let Some((_, seq)) = read(&mut socket).filter(|(command, _)| served && command != b"\x01") {
        write(&mut socket, seq, &ok());
    }
    drop(socket);
    assert_eq!(child.wait().unwrap().success(), served);
    served
}

#[test]
#[ignore = "needs a command line client"]
fn the_right_password_gets_in() {
    let key = RsaKey::generate().unwrap();
    let crypted = crypt::generate(b"secret", b"abcdefghijklmnopqrst");
    for stored in [Stored::Clear(b"secret"), Stored::NativeHash(hash::native_stored(b"secret")), Stored::CachingSha2(&crypted)] {
        for default in [Plugin::Native, Plugin::CachingSha2] {
            let account = Account { stored, fast: None, additional: None, key: Some(&key) };
            assert!(client_gets_in(&account, default, "secret"), "{stored:?} {default:?}");
            assert!(!client_gets_in(&account, default, "wrong"), "{stored:?} {default:?}");
        }
    }
}
