//! Modes `rejoin` and `full` on real servers: a plan that fails is undone; a former writer that comes back follows if it has nothing else,
//! and stays out if it has; strays are pointed at the writer, and what somebody stopped is left alone.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::healing::{ALONE, addrs, healed, looking, start_servers, words};
use common::{LIMIT, READERS, Row, Running, addr, online};
use lab::fault::{Lost, Relay};
use lab::replication::{fail_over, follow_at, position, promote, wait_for};
use lab::{Flavor, Server, wait};
use model::ServerAddr;
use model::fleet::Operator;
use model::snapshot::Snapshot;

/// A server is watched for 10 s before it counts as taken back, and a stray waits for 10 s before.
const TAKES: Duration = Duration::from_secs(60);

/// A cluster whose servers the proxy takes back.
struct Bed {
    servers: Vec<Server>,
    running: Running,
}

impl Bed {
    fn start(flavor: Flavor, replicas: usize) -> Self {
        Self::with(flavor, replicas, "rejoin")
    }

    fn with(flavor: Flavor, replicas: usize, mode: &str) -> Self {
        let servers = start_servers(flavor, replicas, &[]);
        servers[0].sql("INSERT INTO test.t VALUES (1, 'first')").unwrap();
        let written = position(&servers[0]).unwrap();
        servers[1..].iter().for_each(|replica| wait_for(replica, &written).unwrap());
        let running = Running::start(&rejoined(&servers, mode));
        let bed = Self { servers, running };
        bed.running.wait_writer(&bed.servers[0]);
        wait::until("a first look", LIMIT, || (bed.of(&bed.servers[1])["rejoin"] == "follows").then_some(())).unwrap();
        bed
    }

    fn of(&self, server: &Server) -> Row {
        let empty = Row::from([("rejoin", String::new()), ("rejoin_why", String::new())]);
        Some(self.running.healing_server(server)).filter(|row| !row.is_empty()).unwrap_or(empty)
    }

    fn reads(&self, server: &Server) -> bool {
        self.running.plane.look(|told| online(&told.layout, READERS).contains(&addr(server)))
    }

    /// Waits until a server is so, and serves no reads before it `follows`.
    fn wait_standing(&self, server: &Server, standing: &str, why: &str) -> Row {
        let found = wait::until(standing, TAKES, || {
            let row = self.of(server);
            Some(row).filter(|row| row["rejoin"] == standing && row["rejoin_why"].contains(why))
        });
        found.unwrap_or_else(|_| panic!("{standing} {why}: {:#?}\n{:#?}", self.of(server), self.running.healing_events()))
    }

    fn errant(&self, server: &Server) -> Vec<String> {
        let rows = self.running.table("stats_tidegate_errant");
        rows.iter().filter(|row| row["port"] == server.port().to_string()).map(|row| row["gtid"].clone()).collect()
    }
}

fn rejoined(servers: &[Server], mode: &str) -> Arc<Snapshot> {
    rejoined_at(&addrs(servers), mode)
}

fn rejoined_at(addrs: &[ServerAddr], mode: &str) -> Arc<Snapshot> {
    healed(addrs, &looking(800), &format!(", mode=\"{mode}\", dead_ms=1000, apply_ms=3000"), ALONE)
}

fn is_closed(server: &Server) -> bool {
    let sql = words(server, "SELECT @@global.read_only", "SELECT @@global.super_read_only");
    server.scalar(sql).unwrap().as_deref() == Some("1")
}

/// The port of its source, and whether both threads run.
fn source(server: &Server) -> Option<(String, bool)> {
    let reply = server.sql(words(server, "SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS")).unwrap();
    let rows = reply.rows().unwrap();
    let [port, io, sql] = match server.flavor() {
        Flavor::Mariadb => ["Master_Port", "Slave_IO_Running", "Slave_SQL_Running"],
        Flavor::Mysql => ["Source_Port", "Replica_IO_Running", "Replica_SQL_Running"],
    };
    let runs = [io, sql].iter().all(|column| rows.field(0, column).as_deref() == Some("Yes"));
    rows.field(0, port).map(|port| (port, runs))
}

/// The writer dies, a script promotes another one, and the old one comes back as it was.
fn dies_and_comes_back(bed: &Bed, old: usize, heir: usize) {
    let servers = &bed.servers;
    servers[old].kill9();
    let alive: Vec<&Server> = servers.iter().filter(|server| server.port() != servers[old].port()).collect();
    if alive.len() == 1 {
        promote(alive[0]).unwrap();
    } else {
        let place = fail_over(&alive).unwrap().place;
        assert_eq!(alive[place].port(), servers[heir].port());
    }
    bed.running.wait_writer(&servers[heir]);
    servers[heir].sql(&format!("INSERT INTO test.t VALUES ({}, 'heir')", 100 + heir)).unwrap();
    servers[old].restart().unwrap();
}

/// Flips back and forth: each time the old one is closed, proved, and follows.
fn a_clean_former_writer_follows(flavor: Flavor) {
    let bed = Bed::start(flavor, 1);
    for (old, heir) in [(0, 1), (1, 0)] {
        dies_and_comes_back(&bed, old, heir);
        let (old, heir) = (&bed.servers[old], &bed.servers[heir]);
        let follows = wait::until("follows", TAKES, || {
            let row = bed.of(old);
            // The table follows the roles by a moment.
            let told = || (bed.of(old)["rejoin"] == "follows").then_some(());
            assert!(!bed.reads(old) || wait::until("the table", Duration::from_secs(1), told).is_ok(), "reads too early: {row:#?}");
            (row["rejoin"] == "follows").then_some(())
        });
        follows.unwrap_or_else(|_| panic!("{:#?}\n{:#?}", bed.of(old), bed.running.healing_events()));
        assert!(is_closed(old));
        assert_eq!(source(old), Some((heir.port().to_string(), true)));
        wait_for(old, &position(heir).unwrap()).unwrap();
        assert_eq!(old.scalar("SELECT COUNT(*) FROM test.t").unwrap(), heir.scalar("SELECT COUNT(*) FROM test.t").unwrap());
        wait::until("its reads", LIMIT, || bed.reads(old).then_some(())).unwrap();
        assert!(bed.errant(old).is_empty());
        wait::until("an event", LIMIT, || {
            let events = bed.running.healing_events();
            let told = |what: &str| events.iter().any(|event| event.contains(what));
            (told("-> closed") && told("-> follows the writer")).then_some(())
        })
        .unwrap();
    }
    println!("{:#?}", bed.running.healing_events());
}

#[test]
fn a_clean_former_writer_follows_mariadb() {
    a_clean_former_writer_follows(Flavor::Mariadb);
}

#[test]
fn a_clean_former_writer_follows_mysql() {
    a_clean_former_writer_follows(Flavor::Mysql);
}

/// The GTIDs of the last two transactions at this position: `0-1-7`, or `uuid:1-7`.
fn last_two(flavor: Flavor, position: &str) -> [String; 2] {
    let (before, number) = position.rsplit_once('-').unwrap();
    let number: u64 = number.parse().unwrap();
    let gtid = |number: u64| match flavor {
        Flavor::Mariadb => format!("{before}-{number}"),
        Flavor::Mysql => format!("{}:{number}", before.split(':').next().unwrap()),
    };
    [gtid(number - 1), gtid(number)]
}

/// Two transactions are on the old writer alone. It is closed, serves nothing, follows nobody, and the table names them.
fn extra_transactions_stay_out(flavor: Flavor) {
    let bed = Bed::start(flavor, 1);
    let [old, heir] = &bed.servers[..] else { panic!("two") };
    heir.sql(words(heir, "STOP SLAVE IO_THREAD", "STOP REPLICA IO_THREAD")).unwrap();
    let before = position(old).unwrap();
    old.sql("INSERT INTO test.t VALUES (2, 'lost')").unwrap();
    old.sql("INSERT INTO test.t VALUES (3, 'lost')").unwrap();
    let after = position(old).unwrap();
    println!("{before} -> {after}");
    let numbers = last_two(flavor, &after);
    // A client got OK for the second one.
    let acknowledged = numbers[1].clone();
    bed.running.plane.change(|told| told.acknowledged.push(acknowledged.clone()));
    dies_and_comes_back(&bed, 0, 1);
    let row = bed.wait_standing(old, "errant", "it has transactions that");
    println!("{}", row["rejoin_why"]);
    let read = || {
        let rows = bed.running.table("stats_tidegate_errant");
        rows.iter().all(|row| row["note"].is_empty()).then_some(rows).filter(|rows| !rows.is_empty())
    };
    let rows = wait::until("the binary log", LIMIT, read).unwrap_or_else(|_| panic!("{:#?}", bed.running.table("stats_tidegate_errant")));
    println!("{rows:#?}");
    assert_eq!(bed.errant(old), numbers, "exactly these");
    for row in &rows {
        let wanted = if row["gtid"] == acknowledged { "yes" } else { "unknown" };
        assert_eq!((row["tables"].as_str(), row["rows"].as_str(), row["acknowledged"].as_str()), ("test.t", "1", wanted), "{row:#?}");
        assert!(!row["statement_head"].contains("lost") && row["bytes"].parse::<u64>().unwrap() > 100, "{row:#?}");
        assert!(row["statement_head"].starts_with("INSERT INTO test.t VALUES") || flavor == Flavor::Mysql, "{row:#?}");
    }
    assert!(is_closed(old) && source(old).is_none(), "{:?}", source(old));
    let until = std::time::Instant::now() + Duration::from_secs(8);
    while std::time::Instant::now() < until {
        assert!(!bed.reads(old) && is_closed(old) && source(old).is_none());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(old.scalar("SELECT COUNT(*) FROM test.t WHERE by_whom = 'lost'").unwrap().as_deref(), Some("2"), "they are still there");
    let metrics = model::stats::StatsSource::metrics(&*bed.running.monitor);
    let value = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap().samples[0].value;
    assert_eq!((value("tidegate_healing_outcasts"), value("tidegate_healing_errant_transactions")), (1.0, 2.0));
    // It is a server like any other once the operator does not want this.
    bed.running.configure(&rejoined(&bed.servers, "advise"));
    assert!(
        bed.running.table("stats_tidegate_errant").is_empty()
            || wait::until("advice", LIMIT, || bed.errant(old).is_empty().then_some(())).is_ok()
    );
}

#[test]
fn extra_transactions_stay_out_mariadb() {
    extra_transactions_stay_out(Flavor::Mariadb);
}

#[test]
fn extra_transactions_stay_out_mysql() {
    extra_transactions_stay_out(Flavor::Mysql);
}

/// The writer dies, and nobody tells its replicas: one follows on, one whose applier broke long ago and one that somebody stopped do not.
fn strays(flavor: Flavor) {
    let bed = Bed::start(flavor, 4);
    let [old, heir, stray, broken, stopped] = &bed.servers[..] else { panic!("five") };
    stopped.sql(words(stopped, "STOP SLAVE", "STOP REPLICA")).unwrap();
    bed.wait_standing(stopped, "left", "somebody stopped its replication");
    let mut root = broken.root().unwrap();
    let (open, close) = (
        words(broken, "SET GLOBAL read_only=0", "SET GLOBAL super_read_only=0"),
        words(broken, "SET GLOBAL read_only=1", "SET GLOBAL super_read_only=1"),
    );
    for sql in ["SET sql_log_bin=0", open, "INSERT INTO test.t VALUES (7, 'nobody')", close] {
        root.query(sql).unwrap();
    }
    old.sql("INSERT INTO test.t VALUES (7, 'primary')").unwrap();
    let has_seven = |server: &Server| server.scalar("SELECT COUNT(*) FROM test.t WHERE id = 7").unwrap().as_deref() == Some("1");
    wait::until("the row", LIMIT, || (has_seven(heir) && has_seven(stray)).then_some(())).unwrap();
    bed.wait_standing(broken, "left", "its applier has stopped with error 1062");
    let before = (source(broken), source(stopped));
    old.kill9();
    promote(heir).unwrap();
    bed.running.wait_writer(heir);
    heir.sql("INSERT INTO test.t VALUES (8, 'heir')").unwrap();
    bed.wait_standing(stray, "follows", "");
    wait_for(stray, &position(heir).unwrap()).unwrap();
    assert_eq!(source(stray), Some((heir.port().to_string(), true)));
    wait::until("its reads", LIMIT, || bed.reads(stray).then_some(())).unwrap();
    bed.wait_standing(broken, "left", "1062");
    bed.wait_standing(stopped, "left", "somebody stopped");
    assert_eq!((source(broken), source(stopped)), before, "nobody touched them");
    let told = bed.running.monitor.explain_healing(model::HostgroupId(10), None).unwrap();
    let rows: Vec<_> = told.iter().filter(|row| row.step == "rejoin").map(|row| (row.server.clone(), row.statement.clone())).collect();
    println!("{rows:#?}");
    assert!(rows.contains(&(addr(broken).to_string(), "-- its applier has stopped with error 1062: repair it and start it".to_owned())));
    assert!(bed.running.monitor.adopt(&addr(heir)).unwrap_err().contains("is not beside the writer"));
    bed.running.monitor.adopt(&addr(stopped)).unwrap();
    bed.wait_standing(stopped, "follows", "");
    assert_eq!(source(stopped), Some((heir.port().to_string(), true)));
    println!("{:#?}", bed.running.healing_events());
}

#[test]
fn strays_mariadb() {
    strays(Flavor::Mariadb);
}

#[test]
fn strays_mysql() {
    strays(Flavor::Mysql);
}

/// The writer freezes, another one takes over, and it wakes up with a client that holds a lock: closing does not wait for it.
fn a_writer_that_wakes_up_is_closed_though_clients_hold_it(flavor: Flavor) {
    let bed = Bed::start(flavor, 1);
    let [old, heir] = &bed.servers[..] else { panic!("two") };
    let mut holder = old.root().unwrap();
    holder.run("LOCK TABLES test.t WRITE").unwrap();
    old.sigstop();
    promote(heir).unwrap();
    bed.running.wait_writer(heir);
    heir.sql("INSERT INTO test.t VALUES (100, 'heir')").unwrap();
    old.sigcont();
    bed.wait_standing(old, "follows", "");
    assert!(is_closed(old) && holder.run("SELECT 1").is_err(), "its session was ended");
    assert_eq!(source(old), Some((heir.port().to_string(), true)));
}

#[test]
fn a_writer_that_wakes_up_is_closed_though_clients_hold_it_mariadb() {
    a_writer_that_wakes_up_is_closed_though_clients_hold_it(Flavor::Mariadb);
}

#[test]
fn a_writer_that_wakes_up_is_closed_though_clients_hold_it_mysql() {
    a_writer_that_wakes_up_is_closed_though_clients_hold_it(Flavor::Mysql);
}

/// Two proxies see the same; one of them works, and the other one finds it done.
#[test]
fn two_proxies_work_on_a_server_once() {
    let bed = Bed::start(Flavor::Mariadb, 1);
    let other = Running::start(&rejoined(&bed.servers, "rejoin"));
    other.wait_writer(&bed.servers[0]);
    dies_and_comes_back(&bed, 0, 1);
    other.wait_writer(&bed.servers[1]);
    let old = &bed.servers[0];
    bed.wait_standing(old, "follows", "");
    let is_done = |running: &Running| {
        let rows = running.table("stats_tidegate_healing_servers");
        rows.iter().any(|row| row["port"] == old.port().to_string() && row["rejoin"] == "follows").then_some(())
    };
    wait::until("the other proxy", TAKES, || is_done(&other)).unwrap();
    let closed = |running: &Running| running.table("stats_tidegate_events").iter().filter(|row| row["to_state"] == "closed").count();
    let failed =
        |running: &Running| running.table("stats_tidegate_events").iter().filter(|row| row["to_state"] == "not taken back").count();
    assert_eq!((closed(&bed.running) + closed(&other), failed(&bed.running) + failed(&other)), (1, 0));
}

/// Without a right nothing is touched, and the right is named.
#[test]
fn a_missing_right_is_named() {
    let bed = Bed::start(Flavor::Mariadb, 1);
    dies_and_comes_back(&bed, 0, 1);
    let old = &bed.servers[0];
    let mut root = old.root().unwrap();
    for sql in ["SET sql_log_bin=0", "REVOKE REPLICATION SLAVE ADMIN ON *.* FROM monitor@'%'"] {
        root.query(sql).unwrap();
    }
    let row = bed.wait_standing(old, "outcast", "GRANT REPLICATION SLAVE ADMIN ON *.* TO the monitor's user (monitor)");
    println!("{}", row["rejoin_why"]);
    assert!(!is_closed(old) && source(old).is_none() && !bed.reads(old));
}

fn last_plan(bed: &Bed) -> String {
    bed.running.table("stats_tidegate_healing").pop().map(|row| row["last_plan"].clone()).unwrap_or_default()
}

/// Mode `full`: a replica that cannot apply what it received is not opened, everything is as it was, and the next plan comes later.
fn a_plan_that_fails_is_undone(flavor: Flavor) {
    let bed = Bed::with(flavor, 2, "full");
    let [old, one, other] = &bed.servers[..] else { panic!("three") };
    std::thread::sleep(Duration::from_secs(3));
    let mut holders = [one.root().unwrap(), other.root().unwrap()];
    holders.iter_mut().for_each(|holder| drop(holder.run("LOCK TABLES test.t READ").unwrap()));
    old.sql("INSERT INTO test.t VALUES (2, 'last')").unwrap();
    let received = |server: &Server| {
        let column = words(server, "Gtid_IO_Pos", "Retrieved_Gtid_Set");
        let reply = server.sql(words(server, "SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS")).unwrap();
        reply.rows().unwrap().field(0, column).unwrap_or_default()
    };
    let last = position(old).unwrap();
    let number = last.rsplit(['-', ':']).next().unwrap();
    wait::until("the row", LIMIT, || [one, other].iter().all(|server| received(server).ends_with(number)).then_some(())).unwrap();
    old.kill9();
    wait::until("a plan", 2 * LIMIT, || last_plan(&bed).contains("no server was promoted").then_some(()))
        .unwrap_or_else(|_| panic!("{:#?}\n{:#?}", bed.running.table("stats_tidegate_healing"), bed.running.healing_events()));
    let told = last_plan(&bed);
    println!("{told}\n{:#?}", bed.running.healing_events());
    assert!(
        told.contains("has not applied its received transactions within 3000 ms") && told.ends_with("everything is as it was"),
        "{told}"
    );
    for server in [one, other] {
        assert!(is_closed(server));
        assert_eq!(source(server).unwrap().0, old.port().to_string());
        let reply = server.sql(words(server, "SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS")).unwrap();
        let io = reply.rows().unwrap().field(0, words(server, "Slave_IO_Running", "Replica_IO_Running"));
        assert_eq!(io.as_deref(), Some("Connecting"), "its receiver tries again");
    }
    assert!(bed.running.healing_events().iter().any(|event| event.contains("-> plan failed")));
    let row = bed.running.table("stats_tidegate_healing").pop().unwrap();
    assert!(row["blocked_by"].contains("the last plan failed") && row["next_step_in_ms"] != "NULL", "{row:#?}");
    drop(holders);
    wait::until("the next plan", TAKES, || last_plan(&bed).contains("was promoted in place of").then_some(()))
        .unwrap_or_else(|_| panic!("{:#?}\n{:#?}", bed.running.table("stats_tidegate_healing"), bed.running.healing_events()));
    println!("{}\n{:#?}", last_plan(&bed), bed.running.healing_events());
    let heir = if is_closed(one) { other } else { one };
    bed.running.wait_writer(heir);
    assert_eq!(heir.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("2"), "what was received is there");
    assert!(source(heir).is_none(), "{:?}", source(heir));
}

#[test]
fn a_plan_that_fails_is_undone_mariadb() {
    a_plan_that_fails_is_undone(Flavor::Mariadb);
}

#[test]
fn a_plan_that_fails_is_undone_mysql() {
    a_plan_that_fails_is_undone(Flavor::Mysql);
}

/// The writer comes back while a plan is under way: nobody is promoted, and its replicas follow it as before.
#[test]
fn a_writer_that_comes_back_stays() {
    let bed = Bed::with(Flavor::Mariadb, 1, "full");
    let [old, replica] = &bed.servers[..] else { panic!("two") };
    std::thread::sleep(Duration::from_secs(3));
    let mut holder = replica.root().unwrap();
    holder.run("LOCK TABLES test.t READ").unwrap();
    old.sql("INSERT INTO test.t VALUES (2, 'last')").unwrap();
    wait::until("the row", LIMIT, || {
        let reply = replica.sql("SHOW ALL SLAVES STATUS").unwrap();
        (reply.rows().unwrap().field(0, "Gtid_IO_Pos") == Some(position(old).unwrap())).then_some(())
    })
    .unwrap();
    old.kill9();
    wait::until("a plan", 2 * LIMIT, || bed.running.healing_events().iter().any(|event| event.contains("-> frozen")).then_some(()))
        .unwrap();
    old.restart().unwrap();
    let told = wait::until("its end", 2 * LIMIT, || Some(last_plan(&bed)).filter(|told| !told.is_empty())).unwrap();
    println!("{told}\n{:#?}", bed.running.healing_events());
    assert!(told.starts_with("no server was promoted") && told.ends_with("everything is as it was"), "{told}");
    drop(holder);
    bed.running.wait_writer(old);
    old.sql("INSERT INTO test.t VALUES (3, 'old')").unwrap();
    wait_for(replica, &position(old).unwrap()).unwrap();
    assert!(is_closed(replica) && source(replica) == Some((old.port().to_string(), true)));
}

/// Another session holds the lock of healers on a replica: nothing is changed.
#[test]
fn another_healer_is_left_to_its_work() {
    let bed = Bed::with(Flavor::Mariadb, 1, "full");
    let [old, replica] = &bed.servers[..] else { panic!("two") };
    std::thread::sleep(Duration::from_secs(3));
    let mut other = replica.root().unwrap();
    assert_eq!(other.scalar("SELECT GET_LOCK('tidegate.heal', 0)").unwrap().as_deref(), Some("1"));
    old.kill9();
    let told = wait::until("a plan", 2 * LIMIT, || Some(last_plan(&bed)).filter(|told| !told.is_empty())).unwrap();
    assert!(told.contains("holds the lock 'tidegate.heal'") && told.ends_with("nothing was changed"), "{told}");
    assert!(
        is_closed(replica) && !bed.running.healing_events().iter().any(|event| event.contains("-> frozen")),
        "{:#?}",
        bed.running.healing_events()
    );
}

/// The replica is cut off from the writer, which commits three more transactions and dies: they are reported, and the old writer stays out
/// when it comes back.
fn what_is_lost_is_reported(flavor: Flavor) {
    let bed = Bed::with(flavor, 1, "full");
    let [old, heir] = &bed.servers[..] else { panic!("two") };
    let relay = Relay::to(&old.address()).unwrap();
    follow_at(heir, "127.0.0.1", relay.port()).unwrap();
    wait::until("its channel", LIMIT, || (source(heir) == Some((relay.port().to_string(), true))).then_some(())).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    old.sql("INSERT INTO test.t VALUES (9, 'first')").unwrap();
    wait_for(heir, &position(old).unwrap()).unwrap();
    wait::until("a look", LIMIT, || (bed.of(heir)["hears_source_ms"] != "NULL").then_some(())).unwrap();
    relay.silence_all(true);
    for id in [2, 3, 4] {
        old.sql(&format!("INSERT INTO test.t VALUES ({id}, 'lost')")).unwrap();
    }
    // The monitor sees two looks of it; a client got OK for the last one only through the proxy.
    std::thread::sleep(Duration::from_secs(1));
    old.sql("INSERT INTO test.t VALUES (5, 'lost')").unwrap();
    let last = position(old).unwrap();
    let acknowledged = match flavor {
        Flavor::Mysql => format!("{}:{}", last.split(':').next().unwrap(), last.rsplit('-').next().unwrap()),
        Flavor::Mariadb => last,
    };
    bed.running.plane.change(|told| told.acknowledged.push(acknowledged));
    old.kill9();
    relay.silence_all(false);
    relay.cut();
    let told = wait::until("a promotion", TAKES, || Some(last_plan(&bed)).filter(|told| told.contains("was promoted in place of")));
    let told = told.unwrap_or_else(|_| panic!("{:#?}\n{:#?}", bed.running.table("stats_tidegate_healing"), bed.running.healing_events()));
    println!("{told}");
    assert!(told.contains("at least 4 transactions lost: "), "{told}");
    bed.running.wait_writer(heir);
    heir.sql("INSERT INTO test.t VALUES (2, 'heir')").unwrap();
    old.restart().unwrap();
    bed.wait_standing(old, "errant", "it has transactions that");
    assert!(is_closed(old) && source(old).is_none());
}

#[test]
fn what_is_lost_is_reported_mariadb() {
    what_is_lost_is_reported(Flavor::Mariadb);
}

#[test]
fn what_is_lost_is_reported_mysql() {
    what_is_lost_is_reported(Flavor::Mysql);
}

/// A process ended in the middle of a plan: the next one starts the receivers that were stopped.
#[test]
fn receivers_that_a_plan_stopped_are_started_by_the_next_process() {
    let mut bed = Bed::with(Flavor::Mariadb, 1, "full");
    bed.running.stop();
    let [old, replica] = &bed.servers[..] else { panic!("two") };
    replica.sql("STOP SLAVE IO_THREAD").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let frozen = format!(
        "{{\"clusters\": {{\"10\": {{\"frozen\": [[{{\"host\": \"{}\", \"port\": {}}}, \"\"]]}}}}}}",
        replica.host(),
        replica.port()
    );
    std::fs::write(dir.path().join("tidegate_healing.json"), frozen).unwrap();
    bed.running = Running::start_in(&rejoined(&bed.servers, "full"), dir.path());
    wait::until("its receiver", LIMIT, || (source(replica) == Some((old.port().to_string(), true))).then_some(())).unwrap();
    let is_forgotten = || !std::fs::read_to_string(dir.path().join("tidegate_healing.json")).unwrap().contains("frozen\": [\n");
    wait::until("the file", LIMIT, || is_forgotten().then_some(())).unwrap();
}

/// A process ended just before it opened a server, while another one still fetched from that: the next process points back what fetched,
/// and starts both threads of what was taken off. Mode `advise` takes no server back by itself.
fn what_a_plan_did_to_channels_is_undone_by_the_next_process(flavor: Flavor) {
    let mut bed = Bed::with(flavor, 2, "full");
    bed.running.stop();
    let [old, taken, fetches] = &bed.servers[..] else { panic!("three") };
    taken.sql(words(taken, "STOP SLAVE", "STOP REPLICA")).unwrap();
    follow_at(fetches, taken.host(), taken.port()).unwrap();
    let at = |server: &Server| format!("{{\"host\": \"{}\", \"port\": {}}}", server.host(), server.port());
    let stopped = |server, more: &str| format!("{{\"server\": {}, \"channel\": \"\", \"before\": {}, {more}}}", at(server), at(old));
    let fetching = format!("\"fetches_from\": {}", at(taken));
    let all = [stopped(taken, "\"is_applier\": true"), stopped(fetches, &fetching)].join(", ");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate_healing.json");
    std::fs::write(&file, format!("{{\"clusters\": {{\"10\": {{\"stopped\": [{all}]}}}}}}")).unwrap();
    bed.running = Running::start_in(&rejoined(&bed.servers, "advise"), dir.path());
    for server in [taken, fetches] {
        let is_back = || (source(server) == Some((old.port().to_string(), true))).then_some(());
        wait::until("its channel", LIMIT, is_back).unwrap_or_else(|_| panic!("{:?}", source(server)));
    }
    old.sql("INSERT INTO test.t VALUES (2, 'old')").unwrap();
    for server in [taken, fetches] {
        wait_for(server, &position(old).unwrap()).unwrap();
    }
    wait::until("the file", LIMIT, || (!std::fs::read_to_string(&file).unwrap().contains("is_applier")).then_some(())).unwrap();
}

#[test]
fn what_a_plan_did_to_channels_is_undone_by_the_next_process_mariadb() {
    what_a_plan_did_to_channels_is_undone_by_the_next_process(Flavor::Mariadb);
}

#[test]
fn what_a_plan_did_to_channels_is_undone_by_the_next_process_mysql() {
    what_a_plan_did_to_channels_is_undone_by_the_next_process(Flavor::Mysql);
}

/// The statement that opens a server, or its answer, is lost: the proxy finds out over another connection.
fn an_opening_without_an_answer(lost: Lost) {
    let mut bed = Bed::with(Flavor::Mariadb, 1, "full");
    bed.running.stop();
    let [old, heir] = &bed.servers[..] else { panic!("two") };
    let relay = Relay::to(&heir.address()).unwrap();
    let at_relay = ServerAddr { host: "127.0.0.1".into(), port: relay.port() };
    bed.running = Running::start(&rejoined_at(&[addr(old), at_relay.clone()], "full"));
    bed.running.wait_writer(old);
    std::thread::sleep(Duration::from_secs(4));
    relay.trap("SET GLOBAL read_only = IF", lost);
    old.kill9();
    let told = wait::until("a plan", TAKES, || Some(last_plan(&bed)).filter(|told| !told.is_empty()));
    let told = told.unwrap_or_else(|_| panic!("{:#?}\n{:#?}", bed.running.table("stats_tidegate_healing"), bed.running.healing_events()));
    println!("{told}\n{:#?}", bed.running.healing_events());
    assert_eq!(relay.sprung(), 1);
    match lost {
        Lost::Answer => {
            assert!(told.contains("was promoted in place of") && !is_closed(heir) && source(heir).is_none(), "{told}");
            bed.running.plane.wait("the writer", |told| online(&told.layout, common::WRITERS) == [at_relay.clone()]);
        }
        Lost::Command => {
            assert!(told.contains("was not opened") && told.ends_with("everything is as it was") && is_closed(heir), "{told}");
            assert_eq!(source(heir).unwrap().0, old.port().to_string());
        }
    }
}

#[test]
fn an_opening_whose_answer_is_lost_is_found() {
    an_opening_without_an_answer(Lost::Answer);
}

#[test]
fn an_opening_that_is_lost_is_undone() {
    an_opening_without_an_answer(Lost::Command);
}
