//! Clients that vanish, babble, or come in thousands.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use lab::client::Encoding;
use lab::{Client, Flavor, wait};

use crate::bed::{APP_THREADS, Bed, LIMIT, Report, SLEEPERS, Seen, attempt, connect, wait_log, wait_sessions};

/// A bare socket to the proxy with the greeting read.
fn greeted(bed: &Bed) -> TcpStream {
    let mut stream = TcpStream::connect(bed.proxy.address()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut header = [0; 4];
    stream.read_exact(&mut header).unwrap();
    let len = usize::from(header[0]) | usize::from(header[1]) << 8;
    stream.read_exact(&mut vec![0; len]).unwrap();
    stream
}

/// Reads until the peer closes; a reset is a close too.
fn read_to_close(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(e) => assert!(matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "not closed: {e}"),
    }
    bytes
}

/// Parts of a login, after each of which a client stops.
const HALF_LOGINS: [&[u8]; 5] = [
    b"",
    b"\x20",
    b"\x20\x00\x00\x01\x05",
    // An SSL request, and then nothing of the TLS handshake; and its first bytes.
    b"\x20\x00\x00\x01\x85\xae\xff\x00\x00\x00\x00\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x20\x00\x00\x01\x85\xae\xff\x00\x00\x00\x00\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x16\x03\x01\x02\x00",
];

#[test]
fn login_that_is_never_finished() {
    let bed = Bed::mariadb(2, |b| b.variable("connect_timeout_client", 500));
    let mut streams: Vec<_> = HALF_LOGINS
        .iter()
        .map(|bytes| {
            let mut stream = greeted(&bed);
            stream.write_all(bytes).unwrap();
            stream
        })
        .collect();
    for stream in &mut streams {
        read_to_close(stream);
    }
    wait_sessions(&bed.proxy, 0);
    let closed = bed.proxy.log().matches("login not finished within connect_timeout_client").count();
    assert_eq!(closed, HALF_LOGINS.len());
    assert_eq!(attempt(&mut bed.client(), "SELECT 1"), Seen::Done);
}

/// Numbers without a pattern, the same in every run (xorshift).
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Garbage as it is, and as the payload of a well-formed packet with this number.
fn garbage(seed: u64, packet_number: u8) -> Vec<u8> {
    let noise = noise(seed, 1 + (seed as usize * 37) % 400);
    if seed.is_multiple_of(2) {
        return noise;
    }
    let mut packet = (noise.len() as u32).to_le_bytes()[..3].to_vec();
    packet.push(packet_number);
    packet.extend_from_slice(&noise);
    packet
}

#[test]
fn garbage_before_the_login() {
    let bed = Bed::mariadb(2, |b| b.variable("connect_timeout_client", 1000));
    let mut streams: Vec<_> = (0..200)
        .map(|seed| {
            let mut stream = greeted(&bed);
            let _ = stream.write_all(&garbage(seed, 1));
            stream
        })
        .collect();
    for stream in &mut streams {
        read_to_close(stream);
    }
    wait_sessions(&bed.proxy, 0);
    assert_eq!(attempt(&mut bed.client(), "SELECT 1"), Seen::Done);
    assert!(!bed.proxy.log().contains("panicked"));
}

#[test]
fn garbage_after_the_login() {
    let bed = Bed::mariadb(2, |b| b);
    let mut witness = bed.client();
    for seed in 0..200 {
        let mut client = bed.client();
        // The garbage may itself be a statement that never ends, such as half a packet: then the client goes.
        let _ = client.send_bytes(&garbage(seed, 0));
        client.cut();
        drop(client);
        assert_eq!(witness.scalar("SELECT 1").unwrap().as_deref(), Some("1"), "seed {seed}");
    }
    drop(witness);
    wait_sessions(&bed.proxy, 0);
    assert!(!bed.proxy.log().contains("panicked"));
    assert!(bed.app_threads() <= 2);
}

/// 5,000 connects at once: each gets a greeting or an error, and nothing of them stays.
#[test]
fn five_thousand_connects() {
    const ROUNDS: u64 = 8;
    const SESSIONS: u64 = 5000;
    const ALLOCATED: &str = "SELECT Variable_Value FROM stats_memory_metrics WHERE Variable_Name='jemalloc_allocated'";
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let bed = Bed::mariadb(2, |b| b.variable("connect_timeout_client", 60_000));
    let mut allocated = Vec::new();
    for _ in 0..ROUNDS {
        let mut streams: Vec<_> = (0..SESSIONS).map(|_| TcpStream::connect(bed.proxy.address()).unwrap()).collect();
        let (mut greetings, mut errors) = (0, 0);
        for stream in &mut streams {
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let mut start = [0; 5];
            stream.read_exact(&mut start).unwrap();
            match start[4] {
                10 => greetings += 1,
                0xff => errors += 1,
                other => panic!("neither greeting nor error: {other}"),
            }
        }
        println!("{greetings} greetings, {errors} errors, before that {allocated:?} bytes");
        drop(streams);
        wait_sessions(&bed.proxy, 0);
        assert_eq!(attempt(&mut bed.client(), "SELECT 1"), Seen::Done);
        wait_sessions(&bed.proxy, 0);
        let bytes = bed.proxy.admin().unwrap().scalar(ALLOCATED).unwrap().unwrap();
        allocated.push(bytes.parse::<u64>().unwrap());
    }
    // Tables keep the size that the first rounds gave them.
    let left = allocated[ROUNDS as usize - 1].saturating_sub(allocated[1]);
    assert!(allocated[0] > 0);
    assert!(left < (ROUNDS - 2) * SESSIONS * 64, "sessions leave memory behind, bytes allocated after each round: {allocated:?}");
}

/// The memory of a peak is returned to the system within seconds, in the tested build as in the shipped one.
///
/// A budget for memory is compared with the memory of the process.
#[test]
fn memory_of_a_peak_is_given_back() {
    const SESSIONS: usize = 200;
    const VALUES: usize = 50;
    const BYTES: usize = 4_000;
    let bed = Bed::mariadb(2, |b| b.variable("max_connections", 2_000));
    bed.client().run("SELECT 1").unwrap();
    let before = bed.proxy.rss_bytes().unwrap();
    let value = "v".repeat(BYTES);
    let values: Vec<_> = (0..VALUES).map(|nth| format!("@v{nth}='{value}'")).collect();
    let mut clients: Vec<_> = (0..SESSIONS).map(|_| bed.client()).collect();
    for client in &mut clients {
        client.run(format!("SET {}", values.join(", "))).unwrap();
    }
    let mut peak = 0;
    wait::until("the peak", LIMIT, || {
        peak = bed.proxy.rss_bytes().unwrap();
        (peak > before + (SESSIONS * VALUES * BYTES / 2) as u64).then_some(())
    })
    .unwrap();
    // Every 20th session stays open; the others end.
    let kept: Vec<_> = clients.into_iter().enumerate().filter_map(|(nth, client)| (nth % 20 == 0).then_some(client)).collect();
    wait::until("memory to be given back", LIMIT, || {
        let now = bed.proxy.rss_bytes().unwrap();
        (now < before + (peak - before) / 2).then_some(())
    })
    .unwrap();
    assert_eq!(kept.len(), SESSIONS / 20);
}

/// A client that goes away while its statement runs: the statement ends on the server, the place is free again.
fn client_leaves_a_running_statement(flavor: Flavor) {
    let bed = Bed::new(flavor, 3, |b| b);
    bed.client().run("SELECT 1").unwrap();
    for _ in 0..3 {
        let mut client = bed.client();
        client.send_query("SELECT SLEEP(100)").unwrap();
        bed.wait_count(SLEEPERS, 1);
        client.cut();
        bed.wait_count(SLEEPERS, 0);
    }
    wait_sessions(&bed.proxy, 0);
    wait::until("connections to settle", LIMIT, || (bed.app_threads() as usize == bed.backends()).then_some(())).unwrap();
    assert!(bed.backends() <= 3);
    // All three places can be used at the same time.
    let mut holders: Vec<Client> = (0..3).map(|_| bed.client()).collect();
    for holder in &mut holders {
        holder.run("BEGIN").unwrap();
        holder.run("SELECT COUNT(*) FROM information_schema.tables").unwrap();
    }
}

lab::each!(client_leaves_a_running_statement);

/// A client that goes away while it waits for a lock inside a transaction: nothing of the transaction stays.
fn client_leaves_a_lock_wait(flavor: Flavor) {
    let bed = Bed::new(flavor, 4, |b| b);
    bed.root(&["CREATE TABLE test.t (a INT PRIMARY KEY, b INT)", "INSERT INTO test.t VALUES (1, 0), (2, 0)"]);
    let mut holder = bed.client();
    holder.run("BEGIN").unwrap();
    holder.run("UPDATE t SET b = 1 WHERE a = 1").unwrap();
    let mut client = bed.client();
    client.run("BEGIN").unwrap();
    client.run("UPDATE t SET b = 2 WHERE a = 2").unwrap();
    client.send_query("UPDATE t SET b = 2 WHERE a = 1").unwrap();
    bed.wait_count("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE t SET b = 2 WHERE a = 1%'", 1);
    client.cut();
    bed.wait_transactions(1);
    holder.run("UPDATE t SET b = 3 WHERE a = 2").unwrap();
    holder.run("COMMIT").unwrap();
    bed.wait_transactions(0);
    assert_eq!(bed.count("SELECT SUM(b) FROM test.t"), 4);
    drop(holder);
    wait_sessions(&bed.proxy, 0);
}

lab::each!(client_leaves_a_lock_wait);

/// A client that goes away while it waits for a backend leaves the queue; the next one is served.
#[test]
fn client_leaves_the_queue() {
    let bed = Bed::mariadb(1, |b| b.variable("connect_timeout_server_max", 60_000));
    let mut holder = bed.client();
    let mut clients = [bed.client(), bed.client()];
    holder.run("SELECT GET_LOCK('mine', 1)").unwrap();
    for (position, client) in clients.iter_mut().enumerate() {
        let waits = Report::of(&bed.proxy).counter("waits");
        client.send_query(format!("SELECT {position}")).unwrap();
        wait::until("the client to wait", LIMIT, || (Report::of(&bed.proxy).counter("waits") > waits).then_some(())).unwrap();
    }
    let [mut first, mut second] = clients;
    first.cut();
    wait_sessions(&bed.proxy, 2);
    holder.run("SELECT RELEASE_LOCK('mine')").unwrap();
    let reply = second.recv_reply(lab::client::Encoding::Text).unwrap();
    assert_eq!(reply.scalar().unwrap().as_deref(), Some("1"));
    assert_eq!(bed.count(APP_THREADS), 1);
}

/// Commands sent ahead are answered in order, and a client that goes away after sending many is forgotten.
#[test]
fn client_pipelines_and_leaves() {
    let bed = Bed::mariadb(2, |b| b);
    for _ in 0..20 {
        let mut client = connect(&bed.proxy);
        for number in 0..200 {
            client.send_query(format!("SELECT {number}")).unwrap();
        }
        for number in 0..20 {
            let reply = client.recv_reply(lab::client::Encoding::Text).unwrap();
            assert_eq!(reply.scalar().unwrap(), Some(number.to_string()));
        }
        client.cut();
    }
    wait_sessions(&bed.proxy, 0);
    assert_eq!(attempt(&mut bed.client(), "SELECT 1"), Seen::Done);
    assert!(bed.backends() <= 2);
}

/// A client in a transaction on a server without word of it: closed, with the reason in the log.
#[test]
fn a_vanished_client_is_in_the_log() {
    let bed = Bed::mariadb(2, |b| b);
    let mut client = bed.client();
    client.send_query("SELECT SLEEP(100)").unwrap();
    bed.wait_count(SLEEPERS, 1);
    client.cut();
    wait_log(&bed.proxy, "the client went away while its statement ran");
}

/// A client that does not read keeps nothing on a server that is taken out of service.
#[test]
fn offline_hard_cuts_a_session_whose_client_does_not_read() {
    let bed = Bed::mariadb(2, |b| b);
    let mut client = bed.client();
    client.send_query("SELECT 'large', REPEAT('x', 1000000) FROM information_schema.collations LIMIT 100").unwrap();
    let sending = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '%large%'";
    bed.wait_count(&format!("{sending} AND time_ms > 1000"), 1);
    let mut admin = bed.proxy.admin().unwrap();
    admin.run("UPDATE mysql_servers SET status='OFFLINE_HARD'").unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
    // Well before the time after which a client that does not read is given up.
    wait::until("the end", LIMIT / 4, || (bed.count(sending) == 0).then_some(())).unwrap();
    client.cut();
    wait_sessions(&bed.proxy, 0);
}

/// A statement that runs on a server that is taken out of service ends there, with its locks.
fn offline_hard_ends_what_runs(flavor: Flavor) {
    const RUNS: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '%SLEEP(0.001)%'";
    let bed = Bed::new(flavor, 2, |b| b);
    bed.root(&["CREATE TABLE test.t (n INT)"]);
    let mut client = bed.client();
    let slow = "SELECT COUNT(*) FROM information_schema.collations a, information_schema.collations b WHERE SLEEP(0.001)=0";
    client.send_query(format!("INSERT INTO t {slow}")).unwrap();
    bed.wait_count(RUNS, 1);
    let mut admin = bed.proxy.admin().unwrap();
    admin.run("UPDATE mysql_servers SET status='OFFLINE_HARD'").unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
    assert_eq!(client.recv_reply(Encoding::Text).unwrap().err().unwrap().code, lab::SERVER_LOST);
    wait::until("the end", LIMIT / 4, || (bed.count(RUNS) == 0).then_some(())).unwrap();
    wait::until("the connection's end", LIMIT / 4, || (bed.app_threads() == 0).then_some(())).unwrap();
    assert_eq!(bed.count("SELECT COUNT(*) FROM test.t"), 0);
}

lab::each!(offline_hard_ends_what_runs);
