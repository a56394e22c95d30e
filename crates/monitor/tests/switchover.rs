//! SWITCHOVER on real servers: done without a failure, or undone whole.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{Running, WRITERS, addr, replication};
use lab::replication::Replication;
use lab::{Flavor, Options, Server};
use model::ServerAddr;
use model::fleet::{Bound, HostgroupLoad, Operator, RoleKeeper, Told};
use model::stats::StatsSource;

const MANAGED: &str = "switchover_manages_read_only=true, switchover_repoints=false, switchover_timeout_ms=5000";
/// All settings that change replication sources.
const REPOINTED: &str = "switchover_manages_read_only=true, switchover_timeout_ms=5000, replication_username=\"repl\", \
                         replication_password=\"repl-pass\"";

/// Lets the monitor's user set `read_only` and change replication on one server, and on no other.
fn allow(server: &Server) {
    let privileges = match server.flavor() {
        Flavor::Mariadb => "READ_ONLY ADMIN, REPLICATION SLAVE ADMIN, RELOAD",
        Flavor::Mysql => "SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN, REPLICATION_SLAVE_ADMIN, RELOAD",
    };
    let mut root = server.root().unwrap();
    let read_only: &[&str] = match server.flavor() {
        Flavor::Mariadb => &["SET sql_log_bin=0"],
        Flavor::Mysql => &["SET sql_log_bin=0", "SET @was=@@global.super_read_only", "SET GLOBAL super_read_only=0"],
    };
    for sql in read_only {
        root.query(sql).unwrap();
    }
    root.query(format!("GRANT {privileges} ON *.* TO monitor@'%'")).unwrap();
    if server.flavor() == Flavor::Mysql {
        root.query("SET GLOBAL super_read_only=@was").unwrap();
    }
}

fn is_read_only(server: &Server) -> bool {
    server.scalar("SELECT @@global.read_only").unwrap().as_deref() == Some("1")
}

struct Cluster {
    servers: Replication,
    running: Running,
}

impl Cluster {
    fn start(flavor: Flavor, allowed: impl Fn(&Replication) -> Vec<&Server>, variables: &str) -> Self {
        let servers = Replication::start(flavor, 2, &Options::new()).unwrap();
        allowed(&servers).into_iter().for_each(allow);
        let running = Running::start(&replication(std::iter::once(&servers.primary).chain(&servers.replicas), variables, ""));
        running.wait_writer(&servers.primary);
        Self { servers, running }
    }

    fn replica(&self) -> ServerAddr {
        addr(&self.servers.replicas[0])
    }

    fn switch(&self, timeout_ms: Option<u64>) -> Result<String, String> {
        self.ordered(timeout_ms).map(|told| told.text)
    }

    fn ordered(&self, timeout_ms: Option<u64>) -> Result<Told, String> {
        self.running.monitor.switchover(WRITERS, &self.replica(), timeout_ms)
    }

    /// Held once, and let go.
    fn assert_let_go(&self) {
        assert_eq!(self.breaths(), 1);
    }

    /// How often sessions waited and went on.
    fn breaths(&self) -> usize {
        self.running.plane.look(|told| {
            assert!(told.holds.chunks(2).all(|pair| pair == [(WRITERS, true), (WRITERS, false)]), "{:?}", told.holds);
            told.holds.len() / 2
        })
    }

    fn assert_as_before(&self) {
        assert!(!is_read_only(&self.servers.primary) && is_read_only(&self.servers.replicas[0]));
        self.running.wait_writer(&self.servers.primary);
    }
}

fn both(servers: &Replication) -> Vec<&Server> {
    vec![&servers.primary, &servers.replicas[0]]
}

fn all(servers: &Replication) -> Vec<&Server> {
    std::iter::once(&servers.primary).chain(&servers.replicas).collect()
}

fn it_is_done(flavor: Flavor) {
    let cluster = Cluster::start(flavor, both, MANAGED);
    cluster.servers.primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    cluster.servers.primary.sql("INSERT INTO test.t VALUES (7)").unwrap();
    let told = cluster.ordered(None).unwrap();
    println!("{}", told.text);
    cluster.running.wait_writer(&cluster.servers.replicas[0]);
    // The old writer has no source, and the other replica still follows the old one.
    let new = cluster.replica();
    let strays =
        [&cluster.servers.primary, &cluster.servers.replicas[1]].map(|server| format!("{} is not a replica of {new}", addr(server)));
    assert_eq!(told.warnings, strays);
    assert!(told.text.contains(&strays.join(", ")), "{}", told.text);
    cluster.assert_let_go();
    assert!(is_read_only(&cluster.servers.primary) && !is_read_only(&cluster.servers.replicas[0]));
    assert_eq!(cluster.servers.replicas[0].scalar("SELECT id FROM test.t").unwrap().as_deref(), Some("7"));
    assert!(cluster.switch(None).unwrap_err().contains("already"));
    for (state, seen) in [("switched over", "is the writer"), ("not switched over", "already")] {
        cluster.running.wait_row("stats_tidegate_events", |row| {
            row["kind"] == "order" && row["to_state"] == state && row["port"] == new.port.to_string() && row["seen"].contains(seen)
        });
    }
}

#[test]
fn it_is_done_mariadb() {
    it_is_done(Flavor::Mariadb);
}

#[test]
fn it_is_done_mysql() {
    it_is_done(Flavor::Mysql);
}

fn without_privileges_nothing_is_touched(flavor: Flavor) {
    let cluster = Cluster::start(flavor, |servers| vec![&servers.primary], MANAGED);
    let answer = cluster.switch(None).unwrap_err();
    assert!(answer.contains("the monitor's user may not set read_only: GRANT "), "{answer}");
    cluster.running.plane.look(|told| assert!(told.holds.is_empty()));
    cluster.assert_as_before();
}

#[test]
fn without_privileges_nothing_is_touched_mariadb() {
    without_privileges_nothing_is_touched(Flavor::Mariadb);
}

#[test]
fn without_privileges_nothing_is_touched_mysql() {
    without_privileges_nothing_is_touched(Flavor::Mysql);
}

/// Has something happen once the hostgroup is held and everything was checked; the answer.
fn meanwhile(cluster: &Cluster, timeout_ms: u64, happens: impl FnOnce()) -> Result<String, String> {
    cluster.running.plane.change(|told| told.load = HostgroupLoad { waiting: 0, in_use: 1, in_transaction: 0 });
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| cluster.switch(Some(timeout_ms)));
        cluster.running.plane.wait("the hold", |told| told.held.contains(&WRITERS));
        happens();
        cluster.running.plane.change(|told| told.load = HostgroupLoad::default());
        let answer = asked.join().unwrap();
        println!("{answer:?}");
        answer
    })
}

/// Stops or starts a replica's applier.
fn apply(replica: &Server, does: bool) {
    let verb = if does { "START" } else { "STOP" };
    let what = if replica.flavor() == Flavor::Mariadb { "SLAVE" } else { "REPLICA" };
    replica.sql(&format!("{verb} {what} SQL_THREAD")).unwrap();
}

/// Sessions do not wait for it at a stretch.
fn a_replica_that_is_behind(flavor: Flavor) {
    let cluster = Cluster::start(flavor, both, MANAGED);
    let behind = || {
        apply(&cluster.servers.replicas[0], false);
        cluster.servers.primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    };
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| meanwhile(&cluster, 60_000, behind));
        cluster.running.plane.wait("sessions to go on", |told| told.holds.contains(&(WRITERS, false)));
        cluster.running.plane.wait("the next breath", |told| told.held.contains(&WRITERS));
        apply(&cluster.servers.replicas[0], true);
        asked.join().unwrap()
    });
    assert!(answer.unwrap().contains("the new writer is behind"));
    assert!(cluster.breaths() > 1);
    cluster.running.wait_writer(&cluster.servers.replicas[0]);
}

#[test]
fn a_replica_that_is_behind_mariadb() {
    a_replica_that_is_behind(Flavor::Mariadb);
}

#[test]
fn a_replica_that_is_behind_mysql() {
    a_replica_that_is_behind(Flavor::Mysql);
}

fn a_replica_that_stays_behind(flavor: Flavor) {
    let cluster = Cluster::start(flavor, both, MANAGED);
    let answer = meanwhile(&cluster, 1_500, || {
        apply(&cluster.servers.replicas[0], false);
        cluster.servers.primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    })
    .unwrap_err();
    assert!(answer.contains("everything is as it was") && answer.contains("may write again"), "{answer}");
    assert!(cluster.breaths() > 0);
    cluster.assert_as_before();
    cluster.servers.primary.sql("INSERT INTO test.t VALUES (1)").unwrap();
}

#[test]
fn a_replica_that_stays_behind_mariadb() {
    a_replica_that_stays_behind(Flavor::Mariadb);
}

#[test]
fn a_replica_that_stays_behind_mysql() {
    a_replica_that_stays_behind(Flavor::Mysql);
}

/// Every step was taken, and the new writer is taken out of the configuration before it is believed.
fn everything_is_undone(flavor: Flavor) {
    let cluster = Cluster::start(flavor, all, REPOINTED);
    let without = replication([&cluster.servers.primary, &cluster.servers.replicas[1]], REPOINTED, "");
    let mut root = cluster.servers.replicas[0].root().unwrap();
    let (monitor, replica) = (cluster.running.monitor.clone(), cluster.replica());
    let mut is_loaded = false;
    cluster.running.plane.on_look(move |server| {
        let mut is_open = || root.scalar("SELECT @@global.read_only").unwrap().as_deref() == Some("0");
        if !is_loaded && *server == replica && is_open() {
            is_loaded = true;
            monitor.configure(&without);
        }
    });
    let begun = Instant::now();
    let answer = cluster.switch(Some(20_000)).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10), "{answer}");
    assert!(answer.contains("not a server of the cluster") && answer.contains("everything is as it was"), "{answer}");
    assert!(answer.contains("is read-only again") && answer.contains("may write again"), "{answer}");
    let follows = [format!("{} follows nobody", cluster.replica()), format!("undone: {} follows", cluster.replica())];
    assert!(follows.iter().all(|said| answer.contains(said)), "{answer}");
    cluster.assert_let_go();
    cluster.assert_as_before();
    cluster.servers.primary.sql("CREATE TABLE test.undone (id INT PRIMARY KEY)").unwrap();
    cluster.servers.wait_caught_up().unwrap();
    if flavor == Flavor::Mysql {
        let value = cluster.servers.replicas[0].scalar("SELECT @@global.super_read_only").unwrap();
        assert_eq!(value.as_deref(), Some("1"));
    }
}

#[test]
fn everything_is_undone_mariadb() {
    everything_is_undone(Flavor::Mariadb);
}

#[test]
fn everything_is_undone_mysql() {
    everything_is_undone(Flavor::Mysql);
}

#[test]
fn open_transactions_end_it() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    cluster.running.plane.change(|told| told.load = HostgroupLoad { waiting: 0, in_use: 1, in_transaction: 1 });
    let begun = Instant::now();
    let answer = cluster.switch(Some(1_000)).unwrap_err();
    assert!(answer.contains("1 of them in a transaction"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    cluster.assert_let_go();
    cluster.assert_as_before();
}

/// No session waits for sessions that keep their connections; a session that keeps one for a moment is no obstacle. Waiting sessions would
/// get an error, however long the order may take.
#[test]
fn sessions_are_held_for_less_than_they_wait() {
    let cluster = Cluster::start(Flavor::Mariadb, both, &format!("connect_timeout_server_max=1200, {MANAGED}"));
    cluster.running.plane.change(|told| told.load = HostgroupLoad { waiting: 0, in_use: 1, in_transaction: 1 });
    let answer = cluster.switch(Some(60_000)).unwrap_err();
    assert!(answer.contains("after 600 ms 1 sessions still use"), "{answer}");
    cluster.assert_let_go();
    cluster.running.plane.change(|told| told.load = HostgroupLoad::default());
    // The hold does not end in time, because the old writer cannot be closed.
    let mut writing = cluster.servers.primary.root().unwrap();
    writing.run("CREATE TABLE test.held(i INT)").unwrap();
    writing.run("LOCK TABLES test.held WRITE").unwrap();
    let begun = Instant::now();
    let answer = cluster.switch(Some(60_000)).unwrap_err();
    assert!(answer.contains("connect_timeout_server_max would expire"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{answer}");
    writing.run("UNLOCK TABLES").unwrap();
    cluster.assert_as_before();
}

#[test]
fn sessions_that_keep_their_connections_end_it_before_anybody_waits() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    let bound = |session| Bound { session, why: "temporary_table".to_owned() };
    cluster.running.plane.change(|told| told.bound = (1..=7).map(bound).collect());
    let answer = cluster.switch(Some(60_000)).unwrap_err();
    println!("{answer}");
    assert!(answer.contains("7 sessions") && answer.contains("session 5: temporary_table, ...") && answer.contains("nothing was changed"));
    assert_eq!(cluster.breaths(), 0);
    cluster.assert_as_before();
    // Different ones each time.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| cluster.switch(Some(60_000)));
        for session in 10.. {
            cluster.running.plane.change(|told| told.bound = if asked.is_finished() { Vec::new() } else { vec![bound(session)] });
            if asked.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        asked.join().unwrap().unwrap();
    });
}

#[test]
fn a_write_that_does_not_end_is_no_reason_to_stay_read_only() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    let primary = &cluster.servers.primary;
    primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    cluster.servers.wait_caught_up().unwrap();
    let mut writer = primary.root().unwrap();
    writer.query("LOCK TABLES test.t WRITE").unwrap();
    let answer = cluster.switch(Some(600)).unwrap_err();
    assert!(answer.contains("everything is as it was"), "{answer}");
    writer.query("UNLOCK TABLES").unwrap();
    primary.sql("INSERT INTO test.t VALUES (1)").unwrap();
    cluster.assert_let_go();
    cluster.assert_as_before();
}

#[test]
fn somebody_else_may_set_read_only() {
    let cluster = Cluster::start(Flavor::Mariadb, |_| Vec::new(), "switchover_timeout_ms=10000");
    let refused = cluster.switch(None).unwrap_err();
    assert!(refused.contains("mysql-switchover_manages_read_only is false"), "{refused}");
    assert_eq!(cluster.breaths(), 0, "nobody waits for what nobody does");
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| cluster.running.monitor.switchover_by_hand(WRITERS, &cluster.replica(), None));
        cluster.running.plane.wait("the hold", |told| told.held.contains(&WRITERS));
        lab::replication::set_read_only(&cluster.servers.primary, true).unwrap();
        cluster.servers.wait_caught_up().unwrap();
        lab::replication::promote(&cluster.servers.replicas[0]).unwrap();
        println!("{}", asked.join().unwrap().unwrap().text);
    });
    cluster.running.wait_writer(&cluster.servers.replicas[0]);
    cluster.assert_let_go();
}

#[test]
fn a_replica_that_does_not_follow_is_refused() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    cluster.servers.replicas[0].sql("STOP SLAVE SQL_THREAD").unwrap();
    let answer = cluster.switch(None).unwrap_err();
    assert!(answer.contains("replica_sql_running is No"), "{answer}");
    cluster.running.plane.look(|told| assert!(told.holds.is_empty()));
    cluster.assert_as_before();
}

#[test]
fn a_writer_that_hangs_ends_it_in_time() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    cluster.servers.replicas[0].sigstop();
    let begun = Instant::now();
    let answer = cluster.switch(Some(500)).unwrap_err();
    cluster.servers.replicas[0].sigcont();
    assert!(answer.contains("nothing was changed") || answer.contains("not healthy"), "{answer}");
    assert!(answer.contains(&cluster.replica().to_string()), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(3));
    cluster.assert_as_before();
}

#[test]
fn a_pause_outlives_a_switchover() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    let monitor = &cluster.running.monitor;
    monitor.pause(WRITERS, true).unwrap();
    assert!(monitor.pause(WRITERS, true).unwrap_err().contains("already"));
    cluster.switch(None).unwrap();
    cluster.running.plane.look(|told| assert_eq!(told.holds, [(WRITERS, true)], "still paused"));
    cluster.running.wait_row("stats_tidegate_holds", |row| row["hostgroup"] == WRITERS.to_string() && row["reason"] == "pause");
    monitor.pause(WRITERS, false).unwrap();
    for (from, to) in [("in use", "paused"), ("paused", "in use")] {
        let is_told = |row: &std::collections::BTreeMap<&'static str, String>| {
            row["kind"] == "order" && row["from_state"] == from && row["to_state"] == to && row["seen"] == format!("hostgroup {WRITERS}")
        };
        cluster.running.wait_row("stats_tidegate_events", is_told);
    }
    cluster.assert_let_go();
    assert!(monitor.pause(model::HostgroupId(99), true).unwrap_err().contains("no hostgroup 99"));
}

#[test]
fn a_drain_ends_when_nothing_runs() {
    let cluster = Cluster::start(Flavor::Mariadb, |_| Vec::new(), "");
    let (running, replica) = (&cluster.running, cluster.replica());
    running.plane.change(|told| told.in_use = 2);
    let answer = running.monitor.drain(&replica, Some(50)).unwrap_err();
    assert!(answer.contains("2 of its connections are still in use"), "{answer}");
    assert!(answer.ends_with(&format!("It stays drained until UNDRAIN SERVER '{replica}'")), "another one reads: {answer}");
    let writer = addr(&cluster.servers.primary);
    let answer = running.monitor.drain(&writer, Some(0)).unwrap_err();
    assert!(answer.ends_with("No other server is ONLINE in hostgroup 10: statements there wait, then fail with error 9001"), "{answer}");
    running.monitor.undrain(&writer).unwrap();
    let reads = |told: &common::Told| common::online(&told.layout, common::READERS).contains(&replica);
    running.plane.look(|told| assert!(!reads(told)));
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| running.monitor.drain(&replica, Some(10_000)));
        running.plane.change(|told| told.in_use = 0);
        asked.join().unwrap().unwrap();
    });
    running.monitor.undrain(&replica).unwrap();
    assert!(running.monitor.undrain(&replica).unwrap_err().contains("is not drained"));
    running.plane.wait("it reads again", reads);
    for to in ["draining", "not drained in time", "drained", "undrained"] {
        running.wait_row("stats_tidegate_events", |row| {
            row["kind"] == "order" && row["to_state"] == to && row["port"] == replica.port.to_string()
        });
    }
}

/// Its hostgroup may be gone by then.
#[test]
fn a_pause_can_always_be_ended() {
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    let running = Running::start(&replication([&server], "", ""));
    let gauge = || {
        let metrics = running.monitor.metrics();
        let held = metrics.into_iter().find(|metric| metric.name == "tidegate_hostgroup_held").unwrap();
        held.samples.into_iter().map(|sample| sample.labels).collect::<Vec<_>>()
    };
    let told = running.monitor.pause(WRITERS, true).unwrap();
    let wanted = "hostgroup 10 is paused until RESUME HOSTGROUP 10: nothing new begins there, open transactions go on. Statements that wait \
                  longer than mysql-connect_timeout_server_max (10000 ms) fail with error 9001";
    assert_eq!(told, wanted);
    assert_eq!(gauge(), [[("hostgroup", WRITERS.to_string()), ("reason", "pause".to_owned())]]);
    running.monitor.configure(&common::snapshot(""));
    let holds = running.table("stats_tidegate_holds");
    assert_eq!(holds.len(), 1);
    let held_ms: u64 = holds[0]["since_ms"].parse().unwrap();
    assert!(held_ms < 3_600_000, "as in stats_tidegate_pins, not a time of day: {held_ms}");
    running.monitor.pause(WRITERS, false).unwrap();
    assert!(gauge().is_empty() && running.table("stats_tidegate_holds").is_empty());
    running.plane.look(|told| assert!(told.held.is_empty()));
    assert!(running.monitor.pause(WRITERS, true).unwrap_err().contains("no hostgroup"));
}

/// Two clusters of the same servers.
#[test]
fn hostgroups_that_share_the_writer_are_held_together() {
    let servers = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let [primary, replica] = [&servers.primary, &servers.replicas[0]];
    [primary, replica].into_iter().for_each(allow);
    let row = |server: &Server, id| format!("{{ address=\"{}\", port={}, hostgroup={id} }}", server.host(), server.port());
    let running = Running::start(&common::snapshot(&format!(
        "mysql_variables = {{ {MANAGED} }}\n\
         mysql_servers = ( {}, {}, {}, {} )\n\
         mysql_replication_hostgroups = ( {{ writer_hostgroup=10, reader_hostgroup=20 }}, {{ writer_hostgroup=30, reader_hostgroup=40 }} )",
        row(primary, 20),
        row(replica, 20),
        row(primary, 40),
        row(replica, 40)
    )));
    running.wait_writer(primary);
    let also = model::HostgroupId(30);
    running.plane.wait("the other writer", |told| common::online(&told.layout, also) == [addr(primary)]);
    running.plane.change(|told| told.load = HostgroupLoad { waiting: 0, in_use: 1, in_transaction: 0 });
    let switch = |id| running.monitor.switchover(id, &addr(replica), Some(10_000));
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| switch(WRITERS));
        running.plane.wait("both holds", |told| [WRITERS, also].iter().all(|id| told.held.contains(id)));
        let refused = switch(also).unwrap_err();
        assert!(refused.contains("a switchover of hostgroup 10, which also has"), "{refused}");
        running.plane.change(|told| told.load = HostgroupLoad::default());
        let answer = asked.join().unwrap().unwrap().text;
        assert!(answer.contains("writes in hostgroups 10, 30"), "{answer}");
    });
    running.plane.look(|told| {
        assert!(told.held.is_empty());
        assert_eq!([WRITERS, also].map(|id| common::online(&told.layout, id)), [[addr(replica)], [addr(replica)]]);
    });
}

/// A LOAD takes the new writer away while sessions wait.
#[test]
fn nobody_waits_for_a_target_that_is_gone() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    cluster.running.plane.change(|told| told.load = HostgroupLoad { waiting: 0, in_use: 1, in_transaction: 0 });
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| cluster.switch(Some(60_000)));
        cluster.running.plane.wait("the hold", |told| told.held.contains(&WRITERS));
        cluster.running.monitor.configure(&replication([&cluster.servers.primary], MANAGED, ""));
        let since = Instant::now();
        let answer = asked.join().unwrap().unwrap_err();
        assert!(since.elapsed() < Duration::from_secs(5) && answer.contains("not a server of the cluster"), "{answer}");
    });
    cluster.assert_let_go();
    cluster.assert_as_before();
}

/// Records all statements that a server gets from now on.
fn record(server: &Server) {
    for sql in ["SET GLOBAL log_output='TABLE'", "SET GLOBAL general_log=1"] {
        server.sql(sql).unwrap();
    }
}

/// How often `read_only` was set there.
fn times_set(server: &Server) -> String {
    let sql = "SELECT COUNT(*) FROM mysql.general_log WHERE argument REGEXP '^SET GLOBAL (super_)?read_only ?= ?[01]$'";
    server.scalar(sql).unwrap().unwrap()
}

fn checks_write_nothing(flavor: Flavor) {
    let cluster = Cluster::start(flavor, both, MANAGED);
    let servers = [&cluster.servers.primary, &cluster.servers.replicas[0]];
    servers.iter().for_each(|server| record(server));
    cluster.running.plane.change(|told| told.bound = vec![Bound { session: 1, why: "temporary_table".to_owned() }]);
    let answer = cluster.switch(None).unwrap_err();
    assert!(answer.contains("1 session keeps its connection") && answer.contains("session 1: temporary_table"), "{answer}");
    assert_eq!(servers.map(times_set), ["0", "0"]);
    cluster.assert_as_before();
}

#[test]
fn checks_write_nothing_mariadb() {
    checks_write_nothing(Flavor::Mariadb);
}

#[test]
fn checks_write_nothing_mysql() {
    checks_write_nothing(Flavor::Mysql);
}

/// A second one is refused before it touches anything.
#[test]
fn one_at_a_time() {
    let cluster = Cluster::start(Flavor::Mariadb, |servers| vec![&servers.primary, &servers.replicas[0], &servers.replicas[1]], MANAGED);
    record(&cluster.servers.primary);
    meanwhile(&cluster, 20_000, || {
        let other = addr(&cluster.servers.replicas[1]);
        let refused = cluster.running.monitor.switchover(WRITERS, &other, None).unwrap_err();
        assert!(refused.contains("a switchover of hostgroup 10 is under way"), "{refused}");
        assert_eq!(times_set(&cluster.servers.primary), "0");
    })
    .unwrap();
    assert!(is_read_only(&cluster.servers.primary) && is_read_only(&cluster.servers.replicas[1]));
    assert!(!is_read_only(&cluster.servers.replicas[0]));
}

/// Another proxy has begun a switchover.
fn so_it_is_over_two_proxies(flavor: Flavor) {
    let cluster = Cluster::start(flavor, both, MANAGED);
    let mut other = cluster.servers.primary.root().unwrap();
    other.query("DO GET_LOCK('tidegate.switchover', 1)").unwrap();
    let refused = cluster.switch(None).unwrap_err();
    assert!(refused.contains("another proxy"), "{refused}");
    assert_eq!(cluster.breaths(), 0);
    drop(other);
    cluster.switch(None).unwrap();
}

#[test]
fn so_it_is_over_two_proxies_mariadb() {
    so_it_is_over_two_proxies(Flavor::Mariadb);
}

#[test]
fn so_it_is_over_two_proxies_mysql() {
    so_it_is_over_two_proxies(Flavor::Mysql);
}

/// Ordered within milliseconds, to different servers.
#[test]
fn two_at_once_leave_one_writer() {
    let servers = Replication::start(Flavor::Mariadb, 2, &Options::new()).unwrap();
    let all = [&servers.primary, &servers.replicas[0], &servers.replicas[1]];
    all.iter().for_each(|server| allow(server));
    for later_ms in [0, 1, 2, 3, 4, 5, 6, 10] {
        let running = Running::start(&replication(all, MANAGED, ""));
        running.wait_writer(&servers.primary);
        std::thread::scope(|scope| {
            let asked = servers.replicas.iter().zip([0, later_ms]).map(|(replica, wait_ms)| {
                let running = &running;
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(wait_ms));
                    running.monitor.switchover(WRITERS, &addr(replica), Some(3_000))
                })
            });
            let asked: Vec<_> = asked.collect();
            for asked in asked {
                println!("{later_ms}: {:?}", asked.join().unwrap());
            }
        });
        let writable = all.iter().filter(|server| !is_read_only(server)).count();
        assert_eq!(writable, 1, "{later_ms} ms");
        for (server, is_read_only) in all.into_iter().zip([false, true, true]) {
            lab::replication::set_read_only(server, is_read_only).unwrap();
        }
    }
}

/// Another program makes the writer read-only while sessions wait.
fn a_fence_is_not_undone(flavor: Flavor) {
    let cluster = Cluster::start(flavor, both, MANAGED);
    let answer = meanwhile(&cluster, 5_000, || lab::replication::set_read_only(&cluster.servers.primary, true).unwrap()).unwrap_err();
    assert!(answer.contains("read-only") && answer.contains("nothing had been changed"), "{answer}");
    assert!(is_read_only(&cluster.servers.primary) && is_read_only(&cluster.servers.replicas[0]));
    cluster.assert_let_go();
}

#[test]
fn a_fence_is_not_undone_mariadb() {
    a_fence_is_not_undone(Flavor::Mariadb);
}

#[test]
fn a_fence_is_not_undone_mysql() {
    a_fence_is_not_undone(Flavor::Mysql);
}

/// Another program makes a third server writable after the old writer was closed, while the new one lags.
fn nobody_is_opened_beside_another_writer(flavor: Flavor) {
    let cluster = Cluster::start(flavor, both, MANAGED);
    let [primary, other] = [&cluster.servers.primary, &cluster.servers.replicas[1]];
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            meanwhile(&cluster, 3_000, || {
                apply(&cluster.servers.replicas[0], false);
                primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
            })
        });
        lab::wait::until("the old writer is closed", common::LIMIT, || is_read_only(primary).then_some(())).unwrap();
        lab::replication::set_read_only(other, false).unwrap();
        let answer = asked.join().unwrap().unwrap_err();
        assert!(answer.contains("NOT EVERYTHING COULD BE UNDONE") && answer.contains(&addr(other).to_string()), "{answer}");
    });
    assert!(is_read_only(primary) && is_read_only(&cluster.servers.replicas[0]) && !is_read_only(other));
}

/// Another program has made a third server writable, which does not make it a writer.
#[test]
fn nobody_waits_beside_another_writer() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    let other = &cluster.servers.replicas[1];
    lab::replication::set_read_only(other, false).unwrap();
    let answer = cluster.switch(None).unwrap_err();
    assert!(answer.contains(&format!("{} is still writable", addr(other))) || answer.contains("has 2 writers"), "{answer}");
    assert_eq!(cluster.breaths(), 0);
    assert!(!is_read_only(&cluster.servers.primary) && is_read_only(&cluster.servers.replicas[0]));
}

#[test]
fn nobody_is_opened_beside_another_writer_mariadb() {
    nobody_is_opened_beside_another_writer(Flavor::Mariadb);
}

#[test]
fn nobody_is_opened_beside_another_writer_mysql() {
    nobody_is_opened_beside_another_writer(Flavor::Mysql);
}

/// Whether each thread of a process is stopped.
fn is_stopped(process: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    stats.into_iter().all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
}

/// The new writer answers no more once it writes: the order is over all the same.
#[test]
fn an_answer_waits_for_nobody() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    let process = cluster.servers.replicas[0].pid().to_string();
    cluster.running.plane.on_release(move || {
        std::process::Command::new("kill").args(["-STOP", &process]).status().unwrap();
        // Its threads stop one after the other, and one may answer until then.
        lab::wait::until("the stop", common::LIMIT, || is_stopped(&process).then_some(())).unwrap();
    });
    let begun = Instant::now();
    let told = std::thread::scope(|scope| {
        let asked = scope.spawn(|| cluster.ordered(None));
        let ended = lab::wait::until("the answer", common::LIMIT, || asked.is_finished().then_some(()));
        cluster.servers.replicas[0].sigcont();
        ended.unwrap();
        asked.join().unwrap().unwrap()
    });
    println!("{} after {:?}", told.text, begun.elapsed());
    assert!(told.warnings.iter().any(|why| why.contains("has not answered in 500 ms")), "{:?}", told.warnings);
}

/// Longer than probes' connections may be idle.
#[test]
fn a_switchover_outlasts_the_wait_timeout_of_probes() {
    let cluster = Cluster::start(Flavor::Mariadb, both, &format!("{MANAGED}, monitor_ping_interval=100"));
    let idle = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='monitor' AND command='Sleep' AND time >= 3";
    let is_idle = |server: &Server| (server.scalar(idle).unwrap().as_deref() != Some("0")).then_some(());
    let answer = meanwhile(&cluster, 30_000, || {
        for server in [&cluster.servers.primary, &cluster.servers.replicas[0], &cluster.servers.replicas[1]] {
            lab::wait::until("a connection that is idle", Duration::from_secs(8), || is_idle(server)).unwrap();
        }
    });
    answer.unwrap();
}

/// Its connection is ended while sessions wait, and it is asked all the same.
#[test]
fn who_has_lost_a_connection_is_asked_over_another() {
    let cluster = Cluster::start(Flavor::Mariadb, both, MANAGED);
    let other = &cluster.servers.replicas[1];
    let answer = meanwhile(&cluster, 10_000, || {
        lab::replication::set_read_only(other, false).unwrap();
        let theirs = "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE user='monitor'";
        for id in other.scalar(theirs).unwrap().unwrap_or_default().split(',') {
            // A probe's may be gone.
            let _ = other.sql(&format!("KILL {id}"));
        }
    })
    .unwrap_err();
    assert!(answer.contains("is still writable") || answer.contains("has 2 writers"), "{answer}");
    assert!(is_read_only(&cluster.servers.replicas[0]) && !is_read_only(other));
}

/// A refused order leaves an event. Letter case does not matter in host names.
#[test]
fn orders_that_are_refused_are_told() {
    let text = "mysql_servers = ( { address=\"LocalHost\", port=1, hostgroup=10 } )
        mysql_replication_hostgroups = ( { writer_hostgroup=10, reader_hostgroup=20 } )";
    let running = Running::start(&common::snapshot(text));
    let (monitor, server) = (&running.monitor, ServerAddr { host: "localhost".into(), port: 1 });
    monitor.failback(WRITERS).unwrap_err();
    monitor.pause(WRITERS, false).unwrap_err();
    monitor.pause(WRITERS, true).unwrap();
    monitor.pause(WRITERS, true).unwrap_err();
    monitor.undrain(&server).unwrap_err();
    monitor.drain(&ServerAddr { host: "other".into(), port: 1 }, Some(0)).unwrap_err();
    let refused = |events: Vec<std::collections::BTreeMap<&'static str, String>>| {
        let to = events.into_iter().filter(|event| event["kind"] == "order" && event["to_state"].ends_with(" refused"));
        to.map(|event| (event["to_state"].replace(" refused", ""), event["cluster"].clone())).collect::<Vec<_>>()
    };
    let wanted = [("failback", "10"), ("resume", "10"), ("pause", "10"), ("undrain", "NULL"), ("drain", "NULL")];
    let told = refused(running.table("stats_tidegate_events"));
    assert_eq!(told, wanted.map(|(order, cluster)| (order.to_owned(), cluster.to_owned())));
    assert!(monitor.drain(&server, Some(0)).unwrap().starts_with("LocalHost:1 is drained"));
    monitor.undrain(&server).unwrap();
}
