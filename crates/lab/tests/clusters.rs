//! Effects of cluster events on clients that work through the proxy: writers that are cut off, and conflicts.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::thread;
use std::time::{Duration, Instant};

use lab::client::{Encoding, Reply};
use lab::topology::{OFFLINE, Topology, WRITER, layout};
use lab::{Client, Galera, Group, Network, Options, Server, Tidegate, wait};

const LIMIT: Duration = Duration::from_secs(60);
const GRACE_MS: i64 = 1_000;
/// An answer that comes so long after the role was taken waited for the server, not for the grace.
const LATE: Duration = Duration::from_secs(6);

/// A cluster whose first server writes, and a proxy before it.
struct Bed {
    // Dropped first, so that it does not complain of lost servers.
    proxy: Tidegate,
    topology: Topology,
}

impl Bed {
    /// None where networks cannot be made.
    fn start(cluster: fn() -> Topology) -> Option<Bed> {
        if !Network::possible() {
            eprintln!("not tested: networks need root and the program ip");
            return None;
        }
        let topology = cluster();
        topology.servers()[0].sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
        let proxy = topology.proxied().variable("demotion_grace_ms", GRACE_MS).variable("failback", "never").start().unwrap();
        let bed = Bed { proxy, topology };
        bed.wait_place(0, WRITER);
        Some(bed)
    }

    fn server(&self, index: usize) -> &Server {
        self.topology.servers()[index]
    }

    fn connect(&self) -> Client {
        Client::connect(&self.proxy.options("app", "app-pass").database("test").timeout(LIMIT)).unwrap()
    }

    /// Waits until a server is in a hostgroup.
    fn wait_place(&self, index: usize, hostgroup: i64) {
        let port = self.server(index).port().to_string();
        let is_there = || layout(&self.proxy).unwrap().iter().any(|p| p.hostgroup == hostgroup && p.server.ends_with(&port));
        wait::until("the server's place", LIMIT, || is_there().then_some(())).unwrap();
    }

    /// Waits until the first server runs so many statements of `app` that look so.
    fn wait_running(&self, like: &str, count: usize) {
        let sql = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '{like}'");
        let root = || self.server(0).scalar(&sql).unwrap().filter(|n| *n == count.to_string());
        wait::until(like, LIMIT, root).unwrap();
    }

    /// Waits until one of the other servers runs such a statement.
    fn wait_running_elsewhere(&self, like: &str) {
        let sql = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '{like}'");
        let runs = |index: &usize| self.server(*index).scalar(&sql).unwrap().as_deref() == Some("1");
        wait::until(like, LIMIT, || [1, 2].iter().find(|index| runs(index)).map(drop)).unwrap();
    }

    fn rows(&self, index: usize) -> String {
        self.server(index).scalar("SELECT GROUP_CONCAT(i ORDER BY i) FROM test.t").unwrap().unwrap_or_default()
    }
}

fn answer(client: &mut Client) -> Reply {
    client.recv_reply(Encoding::Text).unwrap()
}

/// The primary loses contact to all members. It reports no error to clients that commit.
#[test]
fn a_member_without_a_majority() {
    let start = || Topology::Group(Group::start_apart(3, &Options::new()).unwrap());
    let Some(bed) = Bed::start(start) else { return };
    let Topology::Group(group) = &bed.topology else { return };
    let [mut write, mut commit, mut read, mut open, mut fresh] = std::array::from_fn(|_| bed.connect());
    for (client, n) in [(&mut commit, 10), (&mut open, 20)] {
        client.run("BEGIN").unwrap();
        client.run(format!("INSERT INTO t VALUES({n})")).unwrap();
    }
    let began = Instant::now();
    group.network().unwrap().sites[0].cut_from_group(true).unwrap();
    write.send_query("INSERT INTO t VALUES(1)").unwrap();
    commit.send_query("COMMIT").unwrap();
    read.send_query("SELECT @@port + SLEEP(12)").unwrap();
    for (like, count) in [("INSERT INTO t%", 1), ("COMMIT", 1), ("SELECT @@port%", 1)] {
        bed.wait_running(like, count);
    }
    bed.wait_place(0, OFFLINE);
    let taken = Instant::now();
    // A statement that begins now is held until there is a new primary.
    fresh.run("INSERT INTO t VALUES(2)").unwrap();
    let flowed = began.elapsed();

    let told = answer(&mut write).err().cloned().unwrap();
    println!(
        "role taken {:?} after the cut; the write was answered {:?} after that; new writes after {flowed:?}",
        taken - began,
        taken.elapsed()
    );
    assert!(told.code == lab::SERVER_LOST && told.message.contains("cut off"), "{told:?}");
    let told = answer(&mut commit).err().cloned().unwrap();
    assert_eq!(told.code, lab::SERVER_LOST, "{told:?}");
    assert!(taken.elapsed() < LATE, "{:?}", taken.elapsed());
    write.run("INSERT INTO t VALUES(3)").unwrap();
    let told = open.query("COMMIT").unwrap().err().cloned().unwrap();
    assert!(told.code == 9004 && told.message.contains("rolled back"), "{told:?}");
    let port = answer(&mut read).scalar().unwrap().unwrap();
    assert_ne!(port, bed.server(0).port().to_string(), "the read was done again elsewhere");

    let new = group.wait_primary_among(&[1, 2]).unwrap();
    assert_eq!(bed.rows(new), "2,3");
}

/// The primary is cut off from the other members and from the proxy.
#[test]
fn a_member_that_nobody_reaches() {
    let start = || Topology::Group(Group::start_apart(3, &Options::new()).unwrap());
    let Some(bed) = Bed::start(start) else { return };
    let Topology::Group(group) = &bed.topology else { return };
    let [mut write, mut read] = std::array::from_fn(|_| bed.connect());
    read.send_query("SELECT @@port + SLEEP(12)").unwrap();
    bed.wait_running("SELECT @@port%", 1);
    let began = Instant::now();
    let site = &group.network().unwrap().sites[0];
    site.cut_from_group(true).unwrap();
    write.send_query("INSERT INTO t VALUES(1)").unwrap();
    bed.wait_running("INSERT INTO t%", 1);
    site.cut_from_clients(true).unwrap();
    bed.wait_place(0, OFFLINE);
    let taken = Instant::now();
    let told = answer(&mut write).err().cloned().unwrap();
    println!("role taken {:?} after the cut; the write was answered {:?} after that: {}", taken - began, taken.elapsed(), told.message);
    assert_eq!(told.code, lab::SERVER_LOST);
    bed.wait_running_elsewhere("SELECT @@port%");
    assert!(taken.elapsed() < LATE, "{:?}", taken.elapsed());
    assert_ne!(answer(&mut read).scalar().unwrap().unwrap(), bed.server(0).port().to_string());
}

/// A transaction that certification refuses is sent again if the setting asks for that, and is applied once.
#[test]
fn conflicts_in_a_group_are_not_the_clients() {
    const CLIENTS: usize = 4;
    const UPDATES: usize = 100;
    let several = ["--loose-group-replication-single-primary-mode=OFF", "--loose-group-replication-enforce-update-everywhere-checks=ON"];
    let topology = Topology::Group(Group::start(3, &Options::new().args(several)).unwrap());
    topology.servers()[0].sql("CREATE TABLE test.t(i INT PRIMARY KEY, n INT)").unwrap();
    topology.servers()[0].sql("INSERT INTO test.t VALUES(1, 0)").unwrap();
    // Routing does not matter here: two members, and no roles.
    let builder = Tidegate::builder().backend(WRITER, topology.servers()[0]).backend(WRITER, topology.servers()[1]).app_user();
    let proxy = builder.variable("transaction_replay", true).variable("transaction_replay_conflicts", true).start().unwrap();
    let work = || -> (usize, usize) {
        let mut client = Client::connect(&proxy.options("app", "app-pass").database("test").timeout(LIMIT)).unwrap();
        let told = (0..UPDATES).map(|_| client.query("UPDATE t SET n = n + 1").unwrap().err().map(|e| e.code));
        told.fold((0, 0), |(applied, undecided), code| match code {
            None => (applied + 1, undecided),
            // It was in the way of another member's transaction while it committed: what became of it is not told.
            Some(1180) => (applied, undecided + 1),
            Some(code) => panic!("{code}"),
        })
    };
    let mut admin = proxy.admin().unwrap();
    let mut hidden = || {
        let sql = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='tidegate_refusals_hidden'";
        admin.scalar(sql).unwrap().unwrap().parse::<u64>().unwrap()
    };
    let (mut applied, mut undecided) = (0, 0);
    // Now and then one member serves nearly all of them for a while.
    for _ in 0..10 {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                let (one, other) = worker.join().unwrap();
                (applied, undecided) = (applied + one, undecided + other);
            }
        });
        if hidden() > 0 {
            break;
        }
    }
    let possible = applied..=applied + undecided;
    for server in topology.servers() {
        let count = || server.scalar("SELECT n FROM test.t").ok().flatten().filter(|n| n.parse().is_ok_and(|n| possible.contains(&n)));
        wait::until("all updates", LIMIT, count).unwrap();
    }
    println!("{applied} applied, {undecided} undecided, {} conflicts were hidden", hidden());
    assert_ne!(hidden(), 0, "nothing was refused: the test shows nothing");
}

/// The writer leaves the primary component. It reports that to sessions that write, and lets sessions that read go on.
#[test]
fn a_node_outside_of_the_primary_component() {
    let start = || Topology::Galera(Galera::start_apart(3, &Options::new()).unwrap());
    let Some(bed) = Bed::start(start) else { return };
    let Topology::Galera(cluster) = &bed.topology else { return };
    let [mut write, mut read, mut fresh] = std::array::from_fn(|_| bed.connect());
    read.send_query("SELECT @@port + SLEEP(12)").unwrap();
    bed.wait_running("SELECT @@port%", 1);
    let began = Instant::now();
    cluster.network().unwrap().sites[0].cut_from_group(true).unwrap();
    write.send_query("INSERT INTO t VALUES(1)").unwrap();
    let told = answer(&mut write).err().cloned().unwrap();
    println!("{} after {:?}: {}", told.code, began.elapsed(), told.message);
    assert_eq!(told.code, 1180, "whether the others had it is not known, and it is not sent again");
    // Only that error can have been seen.
    let mut admin = bed.proxy.admin().unwrap();
    let events = "SELECT COUNT(*) FROM stats_tidegate_events WHERE kind='suspicion' AND to_state='not_ready'";
    wait::until("the monitor to be told", LIMIT, || admin.scalar(events).unwrap().filter(|n| n == "1")).unwrap();
    fresh.run("INSERT INTO t VALUES(2)").unwrap();
    println!("new writes after {:?}", began.elapsed());
    bed.wait_place(0, OFFLINE);
    let taken = Instant::now();
    bed.wait_running_elsewhere("SELECT @@port%");
    println!("the read was begun again {:?} after the role was taken", taken.elapsed());
    assert!(taken.elapsed() < LATE, "{:?}", taken.elapsed());
    let port = answer(&mut read).scalar().unwrap().unwrap();
    assert_ne!(port, bed.server(0).port().to_string(), "the read was done again elsewhere");
    assert_eq!(bed.rows(1), "2");
}
