//! Logins to real servers, with this crate's bytes alone. Skipped unless told where the servers are:
//! `TIDEGATE_TEST_MYSQL=127.0.0.1:3306 TIDEGATE_TEST_MARIADB=127.0.0.1:3307 cargo test -p wire --test live_login -- --ignored`.
//!
//! Accounts, all with the password `secret` but `nopw`: MySQL `app` (caching_sha2_password), `app256` (sha256_password), `nopw`;
//! MariaDB `app` (mysql_native_password), `ed` (ed25519), `nopw`.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::io::{Read, Write};
use std::net::TcpStream;

use wire::auth::Channel;
use wire::auth::client::{ClientAuth, ClientSecret, ClientStep};
use wire::compress::{Compressor, Decompressor, Method};
use wire::handshake::{ChangeUser, Greeting, HandshakeResponse};
use wire::message::{ErrPacket, OkPacket};
use wire::{Capabilities, StatusFlags, packet, query, session_state};

const CAPS: Capabilities = Capabilities::LONG_PASSWORD
    .union(Capabilities::PROTOCOL_41)
    .union(Capabilities::TRANSACTIONS)
    .union(Capabilities::SECURE_CONNECTION)
    .union(Capabilities::PLUGIN_AUTH)
    .union(Capabilities::PLUGIN_AUTH_LENENC)
    .union(Capabilities::SESSION_TRACK)
    .union(Capabilities::CONNECT_ATTRS)
    .union(Capabilities::DEPRECATE_EOF);

struct Link {
    socket: TcpStream,
    seq: u8,
    caps: Capabilities,
    compression: Option<(Compressor, Decompressor)>,
    input: Vec<u8>,
}

impl Link {
    fn read(&mut self) -> Vec<u8> {
        loop {
            if let Some((len, seq)) = packet::header(&self.input).filter(|(len, _)| self.input.len() >= packet::HEADER + len) {
                self.seq = seq.wrapping_add(1);
                let payload = self.input[packet::HEADER..packet::HEADER + len].to_vec();
                self.input.drain(..packet::HEADER + len);
                return payload;
            }
            let mut chunk = [0; 4096];
            let got = self.socket.read(&mut chunk).unwrap();
            assert!(got > 0, "server closed the connection");
            match &mut self.compression {
                Some((_, unpack)) => drop(unpack.feed(&chunk[..got], usize::MAX, &mut self.input).unwrap()),
                None => self.input.extend_from_slice(&chunk[..got]),
            }
        }
    }

    fn write(&mut self, payload: &[u8]) {
        let mut out = Vec::new();
        packet::put_packet(&mut out, &mut self.seq, payload);
        if let Some((pack, _)) = &mut self.compression {
            let packets = std::mem::take(&mut out);
            pack.compress(&packets, &mut out).unwrap();
        }
        self.socket.write_all(&out).unwrap();
    }

    fn command(&mut self, payload: &[u8]) -> Vec<u8> {
        self.seq = 0;
        if let Some((pack, unpack)) = &mut self.compression {
            pack.reset();
            unpack.reset();
        }
        self.write(payload);
        self.read()
    }

    /// OK's status, or the error's number and text.
    fn finish(&mut self, auth: &mut ClientAuth<'_>) -> Result<StatusFlags, (u16, String)> {
        loop {
            let payload = self.read();
            match auth.feed(&payload).map_err(|error| (0, error.to_string()))? {
                ClientStep::Send(answer) => self.write(&answer),
                ClientStep::Wait => {}
                ClientStep::Accepted => return Ok(OkPacket::parse(&payload, self.caps).unwrap().status),
                ClientStep::Refused => {
                    let err = ErrPacket::parse(&payload, self.caps).unwrap();
                    return Err((err.code, String::from_utf8_lossy(err.message).into_owned()));
                }
            }
        }
    }
}

fn login(address: &str, user: &str, secret: ClientSecret<'_>, more: Capabilities) -> Result<(Link, Greeting), (u16, String)> {
    let mut link = Link { socket: TcpStream::connect(address).unwrap(), seq: 0, caps: CAPS, compression: None, input: Vec::new() };
    let hello = link.read();
    let greeting = Greeting::parse(&hello).unwrap();
    let mut again = Vec::new();
    greeting.write(&mut again);
    assert_eq!(again, hello, "a greeting written is the greeting read");
    link.caps = (CAPS | more) & (greeting.capabilities | Capabilities::LONG_PASSWORD);
    if greeting.is_mariadb() {
        link.caps.remove(Capabilities::LONG_PASSWORD);
    }
    let mut auth = ClientAuth::new(secret, Channel::Plain);
    let first = auth.begin(&greeting.plugin, &greeting.scramble).unwrap();
    let mut attributes = Vec::new();
    wire::handshake::put_attribute(&mut attributes, b"program_name", b"live_login");
    let response = HandshakeResponse {
        capabilities: link.caps,
        max_packet: 1 << 24,
        collation: 45,
        user: user.as_bytes(),
        auth_response: &first.response,
        schema: None,
        plugin: Some(first.plugin.name().as_bytes()),
        attributes: &attributes,
        zstd_level: 3,
    };
    let mut payload = Vec::new();
    response.write(&mut payload);
    link.write(&payload);
    link.finish(&mut auth)?;
    Ok((link, greeting))
}

fn address(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("set {name} to host:port"))
}

const SECRET: ClientSecret<'static> = ClientSecret::Clear(b"secret");

fn everyone(address: &str, users: &[&str]) {
    for user in users {
        for _ in 0..2 {
            login(address, user, SECRET, Capabilities::empty()).map(drop).unwrap_or_else(|error| panic!("{user}: {error:?}"));
        }
        for wrong in [ClientSecret::Clear(b"wrong"), ClientSecret::Empty] {
            assert_eq!(login(address, user, wrong, Capabilities::empty()).map(drop).unwrap_err().0, 1045, "{user}");
        }
    }
    login(address, "nopw", ClientSecret::Empty, Capabilities::empty()).map(drop).unwrap();
    assert_eq!(login(address, "nopw", SECRET, Capabilities::empty()).map(drop).unwrap_err().0, 1045);
}

#[test]
#[ignore = "needs a MySQL server"]
fn mysql_accounts() {
    everyone(&address("TIDEGATE_TEST_MYSQL"), &["app", "app256"]);
}

#[test]
#[ignore = "needs a MariaDB server"]
fn mariadb_accounts() {
    let address = address("TIDEGATE_TEST_MARIADB");
    everyone(&address, &["app", "ed"]);
    let sha1 = wire::auth::hash::sha1(&[b"secret"]);
    login(&address, "app", ClientSecret::Sha1(sha1), Capabilities::empty()).map(drop).unwrap();
}

#[test]
#[ignore = "needs both servers"]
fn compressed_tracked_and_with_attributes() {
    let zlib = (Capabilities::COMPRESS, Method::Zlib { level: 6 });
    let zstd = (Capabilities::ZSTD_COMPRESSION, Method::Zstd { level: 3 });
    for (name, (bit, method)) in [("TIDEGATE_TEST_MYSQL", zlib), ("TIDEGATE_TEST_MYSQL", zstd), ("TIDEGATE_TEST_MARIADB", zlib)] {
        let (mut link, _) = login(&address(name), "app", SECRET, bit | Capabilities::QUERY_ATTRIBUTES).unwrap();
        assert!(link.caps.contains(bit));
        link.compression = Some((Compressor::new(method), Decompressor::new(method)));
        let mut payload = Vec::new();
        query::put_query(&mut payload, b"SET session_track_system_variables='*', autocommit=0                            ", link.caps);
        let answer = link.command(&payload);
        let ok = OkPacket::parse(&answer, link.caps).unwrap();
        assert!(!ok.status.contains(StatusFlags::AUTOCOMMIT));
        let changes: Result<Vec<_>, _> = session_state::changes(ok.session_state).collect();
        let autocommit = session_state::Change::SystemVariable { name: b"autocommit", value: b"OFF" };
        assert!(changes.unwrap().contains(&autocommit), "{name}");
        let mut again = Vec::new();
        ok.write(&mut again, answer[0], link.caps);
        assert_eq!(again, answer, "an OK written is the OK read");
    }
}

#[test]
#[ignore = "needs both servers"]
fn change_of_user() {
    for (name, user) in [("TIDEGATE_TEST_MYSQL", "nopw"), ("TIDEGATE_TEST_MARIADB", "app")] {
        let (mut link, greeting) = login(&address(name), "app", SECRET, Capabilities::empty()).unwrap();
        let secret = if user == "app" { SECRET } else { ClientSecret::Empty };
        let mut auth = ClientAuth::new(secret, Channel::Plain);
        let first = auth.begin(&greeting.plugin, &greeting.scramble).unwrap();
        let change = ChangeUser {
            user: user.as_bytes(),
            auth_response: &first.response,
            schema: b"",
            collation: Some(45),
            plugin: Some(first.plugin.name().as_bytes()),
            attributes: b"",
        };
        let mut payload = Vec::new();
        change.write(&mut payload, link.caps);
        link.seq = 0;
        link.write(&payload);
        link.finish(&mut auth).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
}
