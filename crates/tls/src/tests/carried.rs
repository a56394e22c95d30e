//! Sessions that go on in another process, against rustls on the other side.

use std::io::{self, Read};
use std::sync::Arc;

use model::settings::BackendSslVerify::Off;
use model::snapshot::TlsParams;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::params;
use super::pki::{Ca, Dir, named, row, server_of_files};
use crate::{ClientConfigs, KeyFile, Session, client, server};

/// One side each: a session of ours, and one that rustls drives alone.
struct Pair {
    ours: Session,
    peer: Session,
}

/// Carries waiting bytes from one session to the other, in pieces of at most this size.
fn pass(from: &mut Session, to: &mut Session, piece: usize) -> io::Result<()> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes)?;
    }
    for mut part in bytes.chunks(piece) {
        while !part.is_empty() {
            to.read_tls(&mut part)?;
            to.process_new_packets()?;
        }
    }
    Ok(())
}

fn say(from: &mut Session, to: &mut Session, text: &[u8], piece: usize) {
    let (mut left, mut heard) = (text, Vec::new());
    let mut space = [0; 1000];
    while !left.is_empty() || heard.len() < text.len() {
        // rustls takes no more than some records before they are read.
        left = &left[from.write(&left[..left.len().min(20_000)]).unwrap()..];
        pass(from, to, piece).unwrap();
        while let Ok(n) = to.read(&mut space) {
            heard.extend_from_slice(&space[..n]);
        }
    }
    assert!(heard == text, "other bytes");
}

fn talk(pair: &mut Pair, piece: usize) {
    for len in [1, 100, 16_384, 16_385, 100_000] {
        let text: Vec<u8> = (0..len).map(|n| n as u8).collect();
        say(&mut pair.ours, &mut pair.peer, &text, piece);
        say(&mut pair.peer, &mut pair.ours, &text, piece);
    }
}

/// A session of each version and cipher, from either side.
fn pairs() -> Vec<(String, Pair)> {
    let dir = Dir::new();
    let certificate = Ca::new("ca").sign(&named("db"));
    let files = (dir.write("proxysql-cert.pem", &certificate.0), dir.write("proxysql-key.pem", &certificate.1));
    dir.write("proxysql-ca.pem", &certificate.0);
    let listens = server(&dir.0, &Arc::new(KeyFile::default())).unwrap().config.clone();
    let theirs = server_of_files(&files.0, &files.1);
    let suites = [
        ("TLSv1.3", "TLS_AES_128_GCM_SHA256"),
        ("TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        ("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"),
        ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ];
    let mut pairs = Vec::new();
    for (version, cipher) in suites {
        let params = TlsParams { tls_version: Some(version.into()), cipher: Some(cipher.into()), ..params(Off, None) };
        let with = |config: &Arc<ServerConfig>| {
            let begins: ClientConnection = client(&ClientConfigs::default(), &row("db", &params), "app").unwrap();
            let mut near = Session::new(Connection::Client(begins));
            let mut far = Session::new(Connection::Server(ServerConnection::new(Arc::clone(config)).unwrap()));
            while near.is_handshaking() || far.is_handshaking() || near.wants_write() || far.wants_write() {
                pass(&mut near, &mut far, 7).unwrap();
                pass(&mut far, &mut near, 7).unwrap();
            }
            (near, far)
        };
        let (ours, peer) = with(&theirs);
        pairs.push((format!("{cipher}, to a server"), Pair { ours, peer }));
        let (peer, ours) = with(&listens);
        pairs.push((format!("{cipher}, to a client"), Pair { ours, peer }));
    }
    pairs
}

fn refresh(session: &mut Session) -> bool {
    match session {
        Session::Begun(begun) => begun.refresh_keys(),
        Session::Carried(_) | Session::Lost => false,
    }
}

fn again(pair: &mut Pair) {
    let record = pair.ours.record().unwrap();
    pair.ours = Session::resume(record).unwrap();
}

#[test]
fn a_session_goes_on_with_every_cipher() {
    for (name, mut pair) in pairs() {
        talk(&mut pair, 100_000);
        assert!(pair.ours.carry(), "{name}");
        assert!(matches!(pair.ours, Session::Carried(_)));
        talk(&mut pair, 1_000);
        again(&mut pair);
        talk(&mut pair, 100_000);
        pair.peer.send_close_notify();
        pass(&mut pair.peer, &mut pair.ours, 1).unwrap();
        assert_eq!(pair.ours.read(&mut [0; 10]).unwrap(), 0, "{name}: the peer's goodbye");
        assert!(pair.ours.record().is_none());
        pair.ours.send_close_notify();
        pass(&mut pair.ours, &mut pair.peer, 1).unwrap();
        assert_eq!(pair.peer.read(&mut [0; 10]).unwrap(), 0, "{name}: ours");
    }
}

#[test]
fn keys_are_updated_before_and_after() {
    for (name, mut pair) in pairs().into_iter().filter(|(name, _)| name.starts_with("TLS_")) {
        // Old generations are known by the first secrets alone.
        for _ in 0..3 {
            assert!(refresh(&mut pair.peer));
            talk(&mut pair, 100_000);
            assert!(refresh(&mut pair.ours));
            talk(&mut pair, 100_000);
        }
        assert!(pair.ours.carry(), "{name}");
        for _ in 0..3 {
            // The peer asks that ours are updated too.
            assert!(refresh(&mut pair.peer));
            talk(&mut pair, 100);
            again(&mut pair);
            talk(&mut pair, 100_000);
        }
    }
}

/// A peer that sends key updates again and again, and reads nothing, is answered once.
#[test]
fn wishes_of_the_peer_are_answered_once_at_a_time() {
    // Only if both sides are our own.
    for (name, mut pair) in pairs().into_iter().filter(|(name, _)| name.ends_with("to a client")) {
        assert!(pair.ours.carry() && pair.peer.carry(), "{name}");
        let Session::Carried(peer) = &mut pair.peer else { panic!("{name}") };
        for _ in 0..1_000 {
            if name.starts_with("TLS_") { peer.ask_for_update().unwrap() } else { peer.seal(22, &[0; 4]).unwrap() }
        }
        pass(&mut pair.peer, &mut pair.ours, 100).unwrap();
        let mut answers = Vec::new();
        while pair.ours.wants_write() {
            pair.ours.write_tls(&mut answers).unwrap();
        }
        assert!(!answers.is_empty() && answers.len() < 100, "{name}: {}", answers.len());
        let mut answers = &answers[..];
        while !answers.is_empty() {
            pair.peer.read_tls(&mut answers).unwrap();
            pair.peer.process_new_packets().unwrap();
        }
        talk(&mut pair, 1_000);
    }
}

#[test]
fn a_session_stays_where_a_record_is_not_whole() {
    for (name, mut pair) in pairs() {
        pair.peer.write(b"half").unwrap();
        let mut bytes = Vec::new();
        while pair.peer.wants_write() {
            pair.peer.write_tls(&mut bytes).unwrap();
        }
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        let hear = |session: &mut Session, mut part: &[u8]| {
            while !part.is_empty() {
                session.read_tls(&mut part).unwrap();
                session.process_new_packets().unwrap();
            }
        };
        hear(&mut pair.ours, first);
        assert!(!pair.ours.carry(), "{name}");
        hear(&mut pair.ours, rest);
        assert!(!pair.ours.carry(), "{name}: something is to be read");
        let mut space = [0; 10];
        assert_eq!(pair.ours.read(&mut space).unwrap(), 4);
        assert!(pair.ours.carry(), "{name}");
        // Half of a record is carried over too.
        pair.peer.write(b"more").unwrap();
        bytes.clear();
        while pair.peer.wants_write() {
            pair.peer.write_tls(&mut bytes).unwrap();
        }
        hear(&mut pair.ours, &bytes[..3]);
        again(&mut pair);
        hear(&mut pair.ours, &bytes[3..10]);
        again(&mut pair);
        hear(&mut pair.ours, &bytes[10..]);
        assert_eq!((pair.ours.read(&mut space).unwrap(), &space[..4]), (4, &b"more"[..]), "{name}");
    }
}

#[test]
fn what_is_not_the_peers_ends_it() {
    for (name, mut pair) in pairs() {
        assert!(pair.ours.carry());
        pair.peer.write(b"text").unwrap();
        let mut bytes = Vec::new();
        while pair.peer.wants_write() {
            pair.peer.write_tls(&mut bytes).unwrap();
        }
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let mut part = &bytes[..];
        pair.ours.read_tls(&mut part).unwrap();
        pair.ours.process_new_packets().unwrap_err();
        assert_eq!(pair.ours.read(&mut [0; 10]).unwrap_err().kind(), io::ErrorKind::WouldBlock, "{name}");
        // The peer learns why.
        assert!(pass(&mut pair.ours, &mut pair.peer, 1000).unwrap_err().to_string().contains("BadRecordMac"), "{name}");
    }
    for garbage in [&b"\x17\x03\x03\xff\xff"[..], b"GET / HTTP/1.1\r\n", b"\x17\x03\x03\0\0", b"\x17\x03\x03\0\x08aaaaaaaa"] {
        let mut pair = pairs().remove(0).1;
        assert!(pair.ours.carry());
        let mut part = garbage;
        pair.ours.read_tls(&mut part).unwrap();
        assert!(pair.ours.process_new_packets().is_err(), "{garbage:?}");
    }
    let mut pair = pairs().remove(0).1;
    assert!(pair.ours.carry());
    assert_eq!(pair.ours.read_tls(&mut io::empty().take(0)).unwrap(), 0);
    assert_eq!(pair.ours.read(&mut [0; 10]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "it closed without a goodbye");
}
