//! Large results and slow readers: the proxy's memory does not grow with either.

use std::io::Read;

use lab::client::{Encoding, Execution};
use lab::{Client, wait};

use crate::bed::{APP_THREADS, Bed, LIMIT, wait_log, wait_sessions};

/// Most that the proxy may grow by while it passes a result on, bytes.
const GROWTH: u64 = 8 << 20;

/// Rows of `size` bytes, `count` of them, made by MariaDB's sequence engine.
fn rows(size: usize, count: usize) -> String {
    format!("SELECT REPEAT('x', {size}) FROM seq_1_to_{count}")
}

fn send(client: &mut Client, encoding: Encoding, sql: &str) {
    match encoding {
        Encoding::Text => client.send_query(sql).unwrap(),
        Encoding::Binary => {
            let statement = client.prepare(sql).unwrap();
            client.send_execute(statement.id, &[], Execution::default()).unwrap();
        }
    }
}

/// Reads packets until `bytes` more were read or the reply is over; gives the bytes, and whether it is over.
fn read_some(client: &mut Client, bytes: usize) -> (usize, bool) {
    let mut read = 0;
    while read < bytes {
        let packet = client.recv_packet().unwrap();
        assert_ne!(packet.first(), Some(&0xff), "{}", String::from_utf8_lossy(&packet));
        if packet.first() == Some(&0xfe) && packet.len() < 100 {
            return (read, true);
        }
        read += packet.len();
    }
    (read, false)
}

/// Waits until the proxy is idle, because its buffers are full.
fn wait_still(bed: &Bed) {
    let mut last = bed.proxy.cpu_ticks().unwrap();
    let mut same = 0;
    wait::until("the proxy to be still", LIMIT, || {
        let now = bed.proxy.cpu_ticks().unwrap();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        // 40 looks, 5 ms each.
        (same >= 40).then_some(())
    })
    .unwrap();
}

/// Warms the proxy up, so that memory which it allocates once is allocated.
fn warm(bed: &Bed, encoding: Encoding) -> Client {
    let mut client = bed.client();
    send(&mut client, encoding, &rows(10_000, 1000));
    while !read_some(&mut client, 1 << 20).1 {}
    client
}

fn slow_reader(encoding: Encoding, size: usize, count: usize) {
    let bed = Bed::mariadb(2, |b| b);
    let mut client = warm(&bed, encoding);
    let before = bed.proxy.rss_bytes().unwrap();
    send(&mut client, encoding, &rows(size, count));
    let (mut total, mut most) = (0, 0);
    loop {
        let (read, over) = read_some(&mut client, 10 << 20);
        total += read;
        wait_still(&bed);
        most = most.max(bed.proxy.rss_bytes().unwrap());
        if over {
            break;
        }
    }
    println!("{total} bytes, {} KiB before, {} KiB at most", before >> 10, most >> 10);
    assert!(total >= size * count);
    assert!(most <= before + GROWTH, "{} KiB before, {} KiB at most", before >> 10, most >> 10);
    assert_eq!(client.scalar("SELECT 'after'").unwrap().as_deref(), Some("after"));
}

#[test]
fn slow_reader_of_300_mb_text() {
    slow_reader(Encoding::Text, 10_000, 30_000);
}

#[test]
fn slow_reader_of_300_mb_prepared() {
    slow_reader(Encoding::Binary, 10_000, 30_000);
}

/// Rows larger than the window.
#[test]
fn slow_reader_of_long_rows() {
    slow_reader(Encoding::Text, 1_000_000, 100);
    slow_reader(Encoding::Binary, 1_000_000, 100);
}

/// Many clients at a time, none of which reads: each costs its window, not its result.
#[test]
fn clients_that_stop_reading_and_go_on() {
    const CLIENTS: u64 = 20;
    let bed = Bed::mariadb(30, |b| b);
    warm(&bed, Encoding::Text);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| bed.client()).collect();
    let before = bed.proxy.rss_bytes().unwrap();
    for client in &mut clients {
        send(client, Encoding::Text, &rows(10_000, 20_000));
    }
    wait_still(&bed);
    let growth = bed.proxy.rss_bytes().unwrap().saturating_sub(before);
    println!("{CLIENTS} silent clients: {} KiB", growth >> 10);
    assert!(growth <= CLIENTS * (256 << 10) + GROWTH, "{} KiB", growth >> 10);
    let mut first = clients.remove(0);
    while !read_some(&mut first, 1 << 20).1 {}
    assert_eq!(first.scalar("SELECT 'after'").unwrap().as_deref(), Some("after"));
    // The others never read again, and go: their statements end.
    drop(clients);
    bed.wait_count("SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '%REPEAT%'", 0);
    wait_sessions(&bed.proxy, 1);
}

/// A client that stops reading for good is closed, with the reason in the log, and its statement ends.
#[test]
fn client_that_never_reads_again_is_closed() {
    let bed = Bed::mariadb(2, |b| b);
    let mut client = warm(&bed, Encoding::Text);
    send(&mut client, Encoding::Text, &rows(10_000, 20_000));
    wait_log(&bed.proxy, "the client stopped reading");
    wait_sessions(&bed.proxy, 0);
    bed.wait_count("SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '%REPEAT%'", 0);
    assert!(bed.count(APP_THREADS) <= 2);
}

/// KILL ends a session that waits for its client to read; also after the statement's time limit has passed.
#[test]
fn kill_reaches_a_session_whose_client_does_not_read() {
    let bed = Bed::mariadb(3, |b| b.variable("default_query_timeout", 1000));
    let mut killer = bed.client();
    let mut client = warm(&bed, Encoding::Text);
    send(&mut client, Encoding::Text, &rows(10_000, 20_000));
    wait_still(&bed);
    // Longer than the time limit of statements.
    let start = std::time::Instant::now();
    wait::until("the time limit", LIMIT, || (start.elapsed().as_millis() > 2000).then_some(())).unwrap();
    let killed = std::time::Instant::now();
    killer.run(format!("KILL {}", client.connection_id())).unwrap();
    wait_sessions(&bed.proxy, 1);
    assert!(killed.elapsed().as_secs() < 20, "it took {:?}", killed.elapsed());
}

/// A client that has a part of a result when its server's connection dies gets nothing more that could be taken for the rest.
#[test]
fn an_error_is_no_part_of_a_row() {
    let bed = Bed::mariadb(2, |b| b);
    let mut client = bed.client();
    send(&mut client, Encoding::Text, &rows(6_400, 1_000_000));
    read_some(&mut client, 1 << 20);
    let running = "SELECT id FROM information_schema.processlist WHERE user='app' AND command='Query'";
    let thread = bed.server.scalar(running).unwrap().unwrap();
    bed.root(&[&format!("KILL {thread}")]);
    let mut socket = client.try_clone_tcp().unwrap();
    let (mut part, mut last) = (vec![0; 1 << 16], Vec::new());
    while let Ok(n @ 1..) = socket.read(&mut part) {
        last = [&last[last.len().saturating_sub(200)..], &part[..n]].concat();
    }
    let end = &last[last.len().saturating_sub(200)..];
    assert!(!end.windows(5).any(|bytes| bytes == b"HY000"), "{}", String::from_utf8_lossy(end));
    assert_eq!(bed.client().scalar("SELECT 'after'").unwrap().as_deref(), Some("after"));
}
