//! Semi-synchronous replication that the proxy sets up, on real servers: under load, through the death of the writer and of replicas that
//! acknowledge, and with an acknowledgement that is lost.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::healing::{ALONE, addrs, healed, looking, start_servers, words};
use common::{LIMIT, Row, Running};
use lab::client::{Client, ConnectOptions};
use lab::{Flavor, Server, wait};
use model::fleet::Operator;

/// A server is watched for 10 s before it counts as taken back.
const TAKES: Duration = Duration::from_secs(120);

/// A cluster of three whose semi-synchronous replication the proxy sets up. It replicates asynchronously at first.
struct Bed {
    servers: Vec<Server>,
    running: Running,
}

impl Bed {
    fn start(flavor: Flavor, row: &str) -> Self {
        let bed = Self::prepare(flavor, row, true);
        bed.wait_acks("2 replicas acknowledge, and 2 must");
        bed
    }

    fn prepare(flavor: Flavor, row: &str, has_plugins: bool) -> Self {
        let args: &[&str] = match flavor {
            Flavor::Mariadb => &["--slave-net-timeout=2"],
            Flavor::Mysql if has_plugins => {
                &["--replica-net-timeout=2", "--plugin-load-add=semisync_source.so", "--plugin-load-add=semisync_replica.so"]
            }
            Flavor::Mysql => &["--replica-net-timeout=2"],
        };
        let servers = start_servers(flavor, 2, args);
        let healing = format!(", mode=\"full\", dead_ms=1000, apply_ms=60000, block_ms=0, semi_sync=\"managed\", {row}");
        let running = Running::start(&healed(&addrs(&servers), &looking(4_000), &healing, ALONE));
        running.wait_writer(&servers[0]);
        Self { servers, running }
    }

    fn wait_cluster(&self, what: &str, is_so: impl Fn(&Row) -> bool) -> Row {
        self.running.wait_cluster(TAKES, what, is_so)
    }

    /// Waits until so many acknowledge, and nothing is amiss.
    fn wait_acks(&self, told: &str) {
        self.wait_cluster(told, |row| row["semi_sync"] == told);
    }

    fn metric(&self, name: &str) -> f64 {
        let all = model::stats::StatsSource::metrics(&*self.running.monitor);
        all.iter().find(|metric| metric.name == name).unwrap().samples[0].value
    }

    fn standing(&self, server: &Server) -> String {
        let row = self.running.healing_server(server);
        if row.is_empty() { String::new() } else { format!("{}: {}", row["rejoin"], row["rejoin_why"]) }
    }
}

/// A setting of the source side: its name behind `rpl_semi_sync_source_`, or its name on MariaDB.
fn source_side(server: &Server, name: &str) -> String {
    let name = match (server.flavor(), name) {
        (Flavor::Mysql, name) => format!("rpl_semi_sync_source_{name}"),
        (Flavor::Mariadb, "wait_no_replica") => "rpl_semi_sync_master_wait_no_slave".to_owned(),
        (Flavor::Mariadb, name) => format!("rpl_semi_sync_master_{name}"),
    };
    server.scalar(&format!("SELECT @@global.{name}")).unwrap().unwrap()
}

fn acknowledges(server: &Server) -> bool {
    let name = words(server, "rpl_semi_sync_slave_enabled", "rpl_semi_sync_replica_enabled");
    server.scalar(&format!("SELECT @@global.{name}")).unwrap().as_deref() == Some("1")
}

/// Clients that write rows one after the other to the server that writes, and note each row for which they got OK.
struct Clients {
    done: Arc<AtomicBool>,
    target: Arc<AtomicUsize>,
    last: Arc<AtomicU64>,
    slowest_ms: Arc<AtomicU64>,
    noted: Arc<Mutex<Vec<u64>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    fn start(bed: &Bed, threads: usize) -> Self {
        let (done, target, last): (Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicU64>) = Default::default();
        let (slowest_ms, noted): (Arc<AtomicU64>, Arc<Mutex<Vec<u64>>>) = Default::default();
        let threads = (0..threads).map(|_| {
            let (done, target, last) = (Arc::clone(&done), Arc::clone(&target), Arc::clone(&last));
            let (slowest_ms, noted) = (Arc::clone(&slowest_ms), Arc::clone(&noted));
            let sockets: Vec<_> = bed.servers.iter().map(Server::socket).collect();
            std::thread::spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let place = target.load(Ordering::Acquire);
                    let Ok(mut client) = Client::connect(&ConnectOptions::unix(&sockets[place], "app", "app-pass")) else {
                        std::thread::sleep(Duration::from_millis(20));
                        continue;
                    };
                    while !done.load(Ordering::Acquire) && target.load(Ordering::Acquire) == place {
                        let (id, begun) = (last.fetch_add(1, Ordering::AcqRel) + 1, Instant::now());
                        if client.run(format!("INSERT INTO test.t VALUES ({id}, 'client')")).is_err() {
                            break;
                        }
                        noted.lock().unwrap().push(id);
                        // Replicas keep up on a busy machine.
                        std::thread::sleep(Duration::from_millis(5));
                        slowest_ms.fetch_max(u64::try_from(begun.elapsed().as_millis()).unwrap(), Ordering::AcqRel);
                    }
                }
            })
        });
        let threads = threads.collect();
        Self { done, target, last, slowest_ms, noted, threads }
    }
}

impl Clients {
    /// They go to this server from now on, and write there.
    fn turn_to(&self, bed: &Bed, place: usize) {
        self.target.store(place, Ordering::Release);
        self.wait_writes(bed, "writes on the new writer");
    }

    /// Waits for a row that is begun from now on.
    fn wait_writes(&self, bed: &Bed, what: &str) {
        let begun = self.last.load(Ordering::Acquire);
        let is_newer = || self.noted.lock().unwrap().iter().any(|id| *id > begun).then_some(());
        wait::until(what, LIMIT, is_newer)
            .unwrap_or_else(|_| panic!("{what}: {:#?}\n{:#?}", bed.running.cluster(), bed.running.healing_events()));
    }

    /// Ends them; the rows that they noted.
    fn stop(self) -> Vec<u64> {
        self.done.store(true, Ordering::Release);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        let noted = self.noted.lock().unwrap();
        noted.clone()
    }
}

/// Rows that are noted and not on this server.
fn lost(noted: &[u64], server: &Server) -> Vec<u64> {
    let mut root = server.root().unwrap();
    root.query("SET SESSION group_concat_max_len=100000000").unwrap();
    let text = root.scalar("SELECT GROUP_CONCAT(id) FROM test.t").unwrap().unwrap_or_default();
    let there: std::collections::BTreeSet<u64> = text.split(',').filter_map(|id| id.parse().ok()).collect();
    noted.iter().filter(|id| !there.contains(*id)).copied().collect()
}

/// A cluster becomes semi-synchronous under load, and no commit waits for long. The writer is killed: every row that was acknowledged is on
/// the new writer, which waits for its replica. The old one comes back as a replica that acknowledges, if it has nothing else.
fn nothing_acknowledged_is_lost(flavor: Flavor) {
    let acks = if flavor == Flavor::Mysql { "acks=2" } else { "acks=1" };
    let bed = Bed::prepare(flavor, &format!("loss=\"none\", {acks}"), true);
    let clients = Clients::start(&bed, 3);
    clients.wait_writes(&bed, "writes");
    let needed = if flavor == Flavor::Mysql { 2 } else { 1 };
    bed.wait_acks(&format!("2 replicas acknowledge, and {needed} must"));
    bed.wait_cluster("a cluster that is ready", |row| row["ready"] == "1" && row["advice"].ends_with("nothing lost"));
    clients.wait_writes(&bed, "writes that wait for acknowledgements");
    let slowest_ms = clients.slowest_ms.load(Ordering::Acquire);
    println!("slowest commit {slowest_ms} ms, {} rows\n{:#?}", clients.noted.lock().unwrap().len(), bed.running.healing_events());
    let old = &bed.servers[0];
    let of_old = ["enabled", "wait_point", "timeout", "wait_no_replica"].map(|name| source_side(old, name));
    assert_eq!(of_old, ["1", "AFTER_SYNC", "4294967295", "1"].map(str::to_owned));
    assert!(bed.metric("tidegate_healing_acks_missing") == 0.0);
    // A proxy that has just begun to look promotes nobody.
    std::thread::sleep(Duration::from_secs(3));

    old.kill9();
    let row = bed.wait_cluster("a promotion", |row| row["last_plan"].contains("was promoted in place of"));
    println!("{}\n{:#?}", row["last_plan"], bed.running.healing_events());
    assert!(row["last_plan"].contains("nothing lost") && !row["last_plan"].contains("WARNING"), "{}", row["last_plan"]);
    let place = bed.servers.iter().position(|server| row["last_plan"].starts_with(&server.address())).unwrap();
    let (heir, other) = (&bed.servers[place], &bed.servers[3 - place]);
    let so_far = clients.noted.lock().unwrap().clone();
    assert_eq!(lost(&so_far, heir), Vec::<u64>::new(), "of {}", so_far.len());
    clients.turn_to(&bed, place);
    assert_eq!((source_side(heir, "enabled"), acknowledges(other)), ("1".to_owned(), true));
    if flavor == Flavor::Mysql {
        assert_eq!(source_side(heir, "wait_for_replica_count"), "1", "one replica follows");
    }

    old.restart().unwrap();
    let is_back = || Some(bed.standing(old)).filter(|one| one.starts_with("follows") || one.starts_with("errant"));
    let standing = wait::until("the old writer", TAKES, is_back)
        .unwrap_or_else(|_| panic!("{} {:#?}", bed.standing(old), bed.running.healing_events()));
    println!("{standing}");
    clients.wait_writes(&bed, "writes with the old writer back");
    if standing.starts_with("follows") {
        bed.wait_acks(&format!("2 replicas acknowledge, and {needed} must"));
        assert!(acknowledges(old) && source_side(old, "enabled") == "0");
    }
    let noted = clients.stop();
    assert_eq!(lost(&noted, heir), Vec::<u64>::new(), "of {}", noted.len());
    println!("{} rows, none is lost\n{:#?}", noted.len(), bed.running.healing_events());
}

#[test]
fn nothing_acknowledged_is_lost_mariadb() {
    nothing_acknowledged_is_lost(Flavor::Mariadb);
}

#[test]
fn nothing_acknowledged_is_lost_mysql() {
    nothing_acknowledged_is_lost(Flavor::Mysql);
}

/// A replica that acknowledges dies. With `loss` `none` commits wait until it is back, and everybody is told.
#[test]
fn commits_wait_for_a_replica_that_dies_where_nothing_may_be_lost() {
    let bed = Bed::start(Flavor::Mysql, "loss=\"none\", acks=2");
    let [writer, replica, _] = &bed.servers[..] else { panic!("three") };
    writer.sql("INSERT INTO test.t VALUES (1, 'before')").unwrap();
    replica.kill9();
    bed.wait_cluster("a warning", |row| row["semi_sync"].contains("WAIT: 1 of 2 replicas acknowledge, and loss is none"));
    std::thread::scope(|scope| {
        // It may wait longer than the client does.
        let write = scope.spawn(|| drop(writer.sql("INSERT INTO test.t VALUES (2, 'waits')")));
        wait::until("a session that waits", LIMIT, || (bed.metric("tidegate_healing_commits_waiting") == 1.0).then_some(())).unwrap();
        assert_eq!(bed.metric("tidegate_healing_acks_missing"), 1.0);
        let remarks = bed.running.monitor.healing_remarks();
        assert!(remarks.iter().any(|(_, text)| text.contains("COMMITS OF") && text.contains("loss is none")), "{remarks:#?}");
        std::thread::sleep(Duration::from_secs(4));
        assert!(bed.metric("tidegate_healing_commits_waiting") == 1.0 && !write.is_finished());
        assert_eq!(source_side(writer, "wait_for_replica_count"), "2", "it never waits for fewer");
        replica.restart_with(&["--super-read-only=1"]).unwrap();
    });
    bed.wait_acks("2 replicas acknowledge, and 2 must");
    let is_told = |text: &str| bed.running.healing_events().iter().any(|event| event.contains(text));
    assert!(is_told("-> commits wait:") && is_told("-> commits go on:"), "{:#?}", bed.running.healing_events());
}

/// With another `loss` commits wait for fewer after 3 s, and for all again when it is back.
#[test]
fn fewer_acknowledgements_are_enough_where_loss_is_reported() {
    let bed = Bed::start(Flavor::Mysql, "loss=\"reported\", acks=2");
    let [writer, replica, _] = &bed.servers[..] else { panic!("three") };
    assert_eq!((source_side(writer, "wait_for_replica_count"), source_side(writer, "timeout")), ("2".to_owned(), "10000".to_owned()));
    writer.sql("SET GLOBAL rpl_semi_sync_source_timeout=100000").unwrap();
    replica.kill9();
    let begun = Instant::now();
    writer.sql("INSERT INTO test.t VALUES (1, 'one is enough')").unwrap();
    println!("it took {:?}\n{:#?}", begun.elapsed(), bed.running.healing_events());
    assert_eq!(source_side(writer, "wait_for_replica_count"), "1");
    bed.wait_cluster("a warning", |row| row["semi_sync"].contains("wait for 1, and acks is 2"));
    replica.restart_with(&["--super-read-only=1"]).unwrap();
    bed.wait_acks("2 replicas acknowledge, and 2 must");
    assert_eq!(source_side(writer, "wait_for_replica_count"), "2");
}

/// A replica has a commit and did not acknowledge it. When it connects to acknowledge, the source hears nothing of that commit until the next
/// write. The proxy makes one that touches no table.
fn a_lost_acknowledgement(flavor: Flavor) {
    let bed = Bed::prepare(flavor, "loss=\"none\", acks=1", true);
    bed.wait_acks("2 replicas acknowledge, and 1 must");
    let [writer, replica, other] = &bed.servers[..] else { panic!("three") };
    let stop = words(writer, "STOP SLAVE IO_THREAD", "STOP REPLICA IO_THREAD");
    let start = words(writer, "START SLAVE IO_THREAD", "START REPLICA IO_THREAD");
    other.sql(stop).unwrap();
    bed.running.monitor.suspend_healing(None, None, "the test").unwrap();
    let name = words(replica, "rpl_semi_sync_slave_enabled", "rpl_semi_sync_replica_enabled");
    for sql in [&format!("SET GLOBAL {name}=0"), stop, start] {
        replica.sql(sql).unwrap();
    }
    std::thread::scope(|scope| {
        let write = scope.spawn(|| drop(writer.sql("INSERT INTO test.t VALUES (1, 'waits')")));
        let has = || replica.scalar("SELECT COUNT(*) FROM test.t").unwrap().filter(|count| count == "1").map(drop);
        wait::until("the row on the replica", LIMIT, has).unwrap();
        assert!(!write.is_finished());
        for sql in [&format!("SET GLOBAL {name}=1"), stop, start] {
            replica.sql(sql).unwrap();
        }
        bed.wait_cluster("a lost acknowledgement", |row| row["semi_sync"].contains("an acknowledgement may be lost"));
        assert_eq!(bed.metric("tidegate_healing_commits_waiting"), 1.0, "the receiver that connects again brings nothing");
        bed.running.monitor.resume_healing(None).unwrap();
        let row = bed.wait_cluster("the commit", |_| bed.metric("tidegate_healing_commits_waiting") == 0.0);
        println!("{}\n{:#?}", row["semi_sync"], bed.running.healing_events());
    });
    let is_told = || bed.running.healing_events().iter().any(|event| event.contains("FLUSH ERROR LOGS was logged")).then_some(());
    wait::until("an event", LIMIT, is_told).unwrap_or_else(|_| panic!("{:#?}", bed.running.healing_events()));
}

#[test]
fn a_lost_acknowledgement_mariadb() {
    a_lost_acknowledgement(Flavor::Mariadb);
}

#[test]
fn a_lost_acknowledgement_mysql() {
    a_lost_acknowledgement(Flavor::Mysql);
}

/// A frozen writer whose commits wait for ever wakes up beside its heir: its clients are ended first, then nothing waits any more.
fn a_writer_with_waiting_commits_is_closed(flavor: Flavor) {
    let bed = Bed::prepare(flavor, "loss=\"none\", acks=1", true);
    bed.wait_acks("2 replicas acknowledge, and 1 must");
    let old = &bed.servers[0];
    std::thread::sleep(Duration::from_secs(3));
    let clients = Clients::start(&bed, 3);
    clients.wait_writes(&bed, "writes");
    old.sigstop();
    let row = bed.wait_cluster("a promotion", |row| row["last_plan"].contains("was promoted in place of"));
    println!("{}", row["last_plan"]);
    let place = bed.servers.iter().position(|server| row["last_plan"].starts_with(&server.address())).unwrap();
    old.sigcont();
    let is_closed = || Some(bed.standing(old)).filter(|one| one.starts_with("follows") || one.starts_with("errant"));
    let standing = wait::until("the old writer", TAKES, is_closed)
        .unwrap_or_else(|_| panic!("{} {:#?}", bed.standing(old), bed.running.healing_events()));
    println!("{standing}\n{:#?}", bed.running.healing_events());
    clients.turn_to(&bed, place);
    assert_eq!(old.scalar("SELECT @@global.read_only").unwrap().as_deref(), Some("1"));
    let noted = clients.stop();
    assert_eq!(lost(&noted, &bed.servers[place]), Vec::<u64>::new(), "of {}", noted.len());
}

#[test]
fn a_writer_with_waiting_commits_is_closed_mariadb() {
    a_writer_with_waiting_commits_is_closed(Flavor::Mariadb);
}

#[test]
fn a_writer_with_waiting_commits_is_closed_mysql() {
    a_writer_with_waiting_commits_is_closed(Flavor::Mysql);
}

/// What is not installed, and a right that is missing, are named; nothing is changed.
#[test]
fn what_is_missing_is_named() {
    let bed = Bed::prepare(Flavor::Mysql, "acks=1", false);
    let row =
        bed.wait_cluster("a plugin", |row| row["semi_sync"].contains("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'"));
    assert!(row["semi_sync"].contains("INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'"), "{row:#?}");
    assert!(row["ready"] == "1", "a replica can be promoted: {row:#?}");
    drop(bed);
    let bed = Bed::prepare(Flavor::Mariadb, "acks=1", true);
    bed.wait_acks("2 replicas acknowledge, and 1 must");
    let old = bed.running.cluster();
    assert_eq!(old["ready"], "1");
}
