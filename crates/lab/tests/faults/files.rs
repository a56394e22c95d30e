//! LOAD DATA LOCAL and long data: a client that is silent in the middle of them, and a server that takes no more.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lab::Client;
use lab::client::Param;
use lab::tidegate::Builder;
use wire::flags::Capabilities;

use crate::bed::{Bed, LIMIT, Seen, attempt, wait_sessions};

const LOADS: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE 'LOAD%'";

fn bed(more: impl FnOnce(Builder) -> Builder) -> Bed {
    let bed = Bed::mariadb(5, more);
    bed.root(&["CREATE TABLE test.t (a VARCHAR(2000))"]);
    bed
}

/// A client whose file is asked for, and the socket that its packets go into.
fn loading(bed: &Bed) -> (Client, TcpStream) {
    let options = bed.proxy.options("app", "app-pass").database("test").with(Capabilities::LOCAL_FILES).timeout(LIMIT);
    let mut client = Client::connect(&options).unwrap();
    client.send_query("LOAD DATA LOCAL INFILE 'here' INTO TABLE t").unwrap();
    assert_eq!(client.recv_packet().unwrap().first(), Some(&0xfb));
    let socket = client.try_clone_tcp().unwrap();
    (client, socket)
}

/// The next packet of the file: `len` bytes. Their numbers matter to no one here.
fn packet(len: usize) -> Vec<u8> {
    let mut packet = u32::try_from(len).unwrap().to_le_bytes().to_vec();
    packet[3] = 2;
    packet.extend(std::iter::repeat_n(b"aaaaaaa\n", len / 8).flatten());
    packet
}

/// Sends until the receiver takes no more.
fn fill(socket: &mut TcpStream) {
    socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let packet = packet(64_000);
    for _ in 0..10_000 {
        match socket.write_all(&packet) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return,
            Err(e) => panic!("{e}"),
        }
    }
    panic!("a server that is stopped takes everything");
}

/// The error that ends the session.
fn told(socket: &mut TcpStream) -> u16 {
    let mut bytes = Vec::new();
    if let Err(e) = socket.read_to_end(&mut bytes) {
        assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    }
    bytes.get(5..7).map_or(0, |code| u16::from_le_bytes([code[0], code[1]]))
}

#[test]
fn a_silent_client_has_only_its_time() {
    let bed = bed(|b| b.variable("default_query_timeout", 1000));
    let (_client, mut socket) = loading(&bed);
    socket.write_all(&packet(64)).unwrap();
    assert_eq!(told(&mut socket), lab::SERVER_LOST);
    wait_sessions(&bed.proxy, 0);
    bed.wait_count(LOADS, 0);
    bed.wait_count("SELECT COUNT(*) FROM test.t", 0);
}

/// The client of a killed load gets the error after the file; a client that is silent is not waited for.
#[test]
fn kill_query_ends_it() {
    let bed = bed(|b| b);
    let (mut client, mut socket) = loading(&bed);
    socket.write_all(&packet(64)).unwrap();
    let id = client.connection_id();
    assert_eq!(attempt(&mut bed.client(), &format!("KILL QUERY {id}")), Seen::Done);
    assert_eq!(told(&mut socket), lab::SERVER_LOST);
    client.cut();
    bed.wait_count(LOADS, 0);
}

#[test]
fn a_server_that_ends_it_is_noticed() {
    let bed = bed(|b| b);
    let (_client, mut socket) = loading(&bed);
    socket.write_all(&packet(64)).unwrap();
    bed.wait_count(LOADS, 1);
    let id = bed.count("SELECT id FROM information_schema.processlist WHERE user='app' AND info LIKE 'LOAD%'");
    bed.root(&[&format!("KILL {id}")]);
    assert_eq!(told(&mut socket), lab::SERVER_LOST);
    wait_sessions(&bed.proxy, 0);
}

/// Also when it takes no more of the file.
#[test]
fn a_frozen_server_holds_nobody() {
    let bed = bed(|b| b);
    let mut killer = bed.client();
    let mut clients: Vec<_> = (0..2).map(|_| loading(&bed)).collect();
    bed.server.sigstop();
    for (_, socket) in &mut clients {
        fill(socket);
    }
    let id = clients[0].0.connection_id();
    assert_eq!(attempt(&mut killer, &format!("KILL {id}")), Seen::Done);
    wait_sessions(&bed.proxy, 2);
    let mut admin = bed.proxy.admin().unwrap();
    admin.run("UPDATE mysql_servers SET status='OFFLINE_HARD'").unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
    wait_sessions(&bed.proxy, 1);
    bed.server.sigcont();
}

#[test]
fn nor_one_that_sends_long_data() {
    let bed = bed(|b| b);
    let mut killer = bed.client();
    let mut client = bed.client();
    let statement = client.prepare("INSERT INTO t VALUES (?)").unwrap();
    client.execute(&statement, &[Param::Null]).unwrap();
    bed.server.sigstop();
    let mut socket = client.try_clone_tcp().unwrap();
    let len = 10_000_000_usize;
    let mut bytes = u32::try_from(len + 7).unwrap().to_le_bytes().to_vec();
    bytes.push(0x18);
    bytes.extend(statement.id.to_le_bytes());
    bytes.extend([0, 0]);
    bytes.resize(bytes.len() + len, b'a');
    socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // The kernel holds some of it, on both sides of the proxy.
    assert!((0..8).any(|_| socket.write_all(&bytes).is_err()), "a server that is stopped takes everything");
    assert_eq!(attempt(&mut killer, &format!("KILL {}", client.connection_id())), Seen::Done);
    wait_sessions(&bed.proxy, 1);
    bed.server.sigcont();
}

/// The bytes that the client has sent ahead fill the buffer, and hide that the client has left.
#[test]
fn a_client_that_was_ahead_and_leaves_is_noticed() {
    let bed = bed(|b| b);
    let mut client = bed.client();
    client.send_query("SELECT SLEEP(100)").unwrap();
    client.send_bytes(&packet(40_000)).unwrap();
    bed.wait_count(crate::bed::SLEEPERS, 1);
    client.cut();
    bed.wait_count(crate::bed::SLEEPERS, 0);
    wait_sessions(&bed.proxy, 0);
}
