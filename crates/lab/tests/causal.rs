//! Causal reads: a session reads its own writes, whether replicas follow, lag or stand still, and on whichever server it reads.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, Peer};
use lab::client::Encoding;
use lab::replication::{self, Replication};
use lab::topology::{READER, Topology, WRITER};
use lab::{Flavor, Options, Server, Tidegate};
use wire::command::Command;

lab::each!(
    reads_see_what_the_session_wrote,
    definitions_are_seen,
    without_causal_reads_they_do_not,
    a_commit_is_a_write_and_a_transaction_reads_too,
    what_was_committed_by_what_failed_is_read_too,
    a_replica_is_asked_once_for_each_write,
    clients_are_told_of_gtids_only_if_they_asked,
    off_for_a_user_is_off,
    sessions_without_multiplexing_too,
    a_replica_that_freezes_while_it_is_waited_for,
    a_comment_waits_for_what_another_session_wrote,
    a_token_carries_writes_to_another_session,
    a_rule_waits_for_what_the_session_wrote,
    a_replica_that_comes_back_with_less_is_asked_again,
    a_writer_that_comes_back_with_less_is_asked_too,
    who_wrote_it_has_it_at_once,
);

/// Pairs of a write and a read.
const PAIRS: u32 = 50;

/// A primary and its replica behind a proxy that splits reads from writes.
struct Bed {
    // Dropped first, so that it does not complain of lost servers.
    proxy: Tidegate,
    topology: Topology,
}

impl Bed {
    fn new(flavor: Flavor, mode: &str, timeout_ms: i64) -> Bed {
        let topology = Topology::Replication(Replication::start(flavor, 1, &Options::new()).unwrap().into_servers());
        let split = r#"{"read_write_split": {"writer": 0, "reader": 1}, "comment_directives": true}"#;
        let builder = topology.describe(Tidegate::builder()).user_with("app", "app-pass", WRITER, &[("attributes", split.into())]);
        let builder = builder.variable("causal_reads", mode).variable("causal_reads_timeout_ms", timeout_ms);
        let proxy = builder.variable("monitor_writer_is_also_reader", false).start().unwrap();
        let bed = Bed { proxy, topology };
        bed.primary().sql("CREATE TABLE test.seen(i INT PRIMARY KEY)").unwrap();
        bed.catch_up();
        bed
    }

    fn primary(&self) -> &Server {
        self.topology.servers()[0]
    }

    fn replica(&self) -> &Server {
        self.topology.servers()[1]
    }

    fn catch_up(&self) {
        replication::wait_for(self.replica(), &replication::position(self.primary()).unwrap()).unwrap();
    }

    /// The replica receives, and applies nothing until [`Bed::go_on`].
    fn stand_still(&self) {
        self.replica().sql(&format!("STOP {}", self.applier())).unwrap();
    }

    fn go_on(&self) {
        self.replica().sql(&format!("START {}", self.applier())).unwrap();
        self.catch_up();
    }

    fn applier(&self) -> &'static str {
        match self.replica().flavor() {
            Flavor::Mariadb => "SLAVE SQL_THREAD",
            Flavor::Mysql => "REPLICA SQL_THREAD",
        }
    }

    fn set_timeout(&self, ms: u32) {
        let mut admin = self.proxy.admin().unwrap();
        admin.run(format!("SET mysql-causal_reads_timeout_ms={ms}")).unwrap();
        admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    }

    /// Has the admin port do this.
    fn order(&self, statements: &[&str]) {
        let mut admin = self.proxy.admin().unwrap();
        for sql in statements {
            admin.run(sql).unwrap();
        }
    }

    fn peer(&self, encoding: Encoding) -> Peer {
        Peer::through(&self.proxy, encoding)
    }

    fn counter(&self, name: &str) -> u64 {
        let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='{name}'");
        self.proxy.admin().unwrap().scalar(sql).unwrap().unwrap_or_else(|| panic!("{name} is not there")).parse().unwrap()
    }

    /// Waits until the servers of the hostgroup that are used are this one.
    fn wait_used(&self, hostgroup: i64, server: &Server) {
        let sql = format!("SELECT GROUP_CONCAT(port) FROM runtime_mysql_servers WHERE hostgroup_id={hostgroup} AND status='ONLINE'");
        let (mut admin, wanted) = (self.proxy.admin().unwrap(), server.port().to_string());
        let is_it = || (admin.scalar(&sql).unwrap().as_deref() == Some(&wanted)).then_some(());
        lab::wait::until(&sql, LIMIT, is_it).unwrap();
    }

    /// Reads that this hostgroup served.
    fn reads(&self, hostgroup: i64) -> u64 {
        let sql = format!(
            "SELECT IFNULL(SUM(count_star), 0) FROM stats_mysql_query_digest \
             WHERE hostgroup={hostgroup} AND digest_text LIKE 'SELECT COUNT(*) FROM test.seen%'"
        );
        self.proxy.admin().unwrap().scalar(sql).unwrap().unwrap().parse().unwrap()
    }
}

/// Writes and reads it back, so many times: how often the read did not see it.
fn stale(peer: &mut Peer, from: u32, pairs: u32) -> u32 {
    let missed = |i: &u32| {
        peer.exec(&format!("INSERT INTO test.seen VALUES({i})"));
        peer.get(&format!("SELECT COUNT(*) FROM test.seen WHERE i={i}")) != "1"
    };
    u32::try_from((from..from + pairs).filter(missed).count()).unwrap()
}

fn reads_see_what_the_session_wrote(flavor: Flavor) {
    let bed = Bed::new(flavor, "session", 10_000);
    for (at, encoding) in [Encoding::Text, Encoding::Binary].into_iter().enumerate() {
        let from = u32::try_from(at).unwrap() * 1_000;
        let mut peer = bed.peer(encoding);
        assert_eq!(stale(&mut peer, from, PAIRS), 0, "{encoding:?}, it follows");
    }
    assert_eq!((bed.reads(WRITER), bed.reads(READER)), (0, u64::from(2 * PAIRS)), "the replica served");
    assert_eq!((bed.counter("tidegate_causal_waits"), bed.counter("tidegate_causal_timeouts")), (u64::from(2 * PAIRS), 0));
    bed.set_timeout(20);
    bed.stand_still();
    for (at, encoding) in [Encoding::Text, Encoding::Binary].into_iter().enumerate() {
        let from = 5_000 + u32::try_from(at).unwrap() * 1_000;
        let mut peer = bed.peer(encoding);
        assert_eq!(stale(&mut peer, from, PAIRS), 0, "{encoding:?}, it stands still");
    }
    assert_eq!((bed.reads(WRITER), bed.reads(READER)), (u64::from(2 * PAIRS), u64::from(2 * PAIRS)), "the writer served");
    assert_eq!(bed.counter("tidegate_causal_timeouts"), u64::from(2 * PAIRS));
    bed.go_on();
    bed.set_timeout(10_000);
    assert_eq!(stale(&mut bed.peer(Encoding::Text), 9_000, 1), 0);
    assert_eq!(bed.reads(READER), u64::from(2 * PAIRS) + 1, "the replica serves again");
}

/// A table or schema that the session made is there at once: for PREPARE, SHOW, COM_FIELD_LIST, USE and COM_INIT_DB, too.
fn definitions_are_seen(flavor: Flavor) {
    let bed = Bed::new(flavor, "session", 20);
    // With a rule of their own these go to the reader, which the split alone would not do with all of them.
    let rule = format!(
        "INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) \
         VALUES (100, 1, '^(SHOW|USE|SELECT)', {READER}, 1)"
    );
    bed.order(&[&rule, "LOAD MYSQL QUERY RULES TO RUNTIME"]);
    bed.stand_still();
    for (at, encoding) in [Encoding::Text, Encoding::Binary].into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        let schema = format!("test_new_{at}");
        peer.exec(&format!("CREATE TABLE test.{schema}(made INT)"));
        let prepared = peer.prepare(format!("SELECT COUNT(made) FROM test.{schema}")).unwrap();
        assert_eq!(peer.execute(&prepared, &[]).unwrap().scalar().unwrap().as_deref(), Some("0"));
        assert_eq!(peer.get(&format!("SHOW TABLES FROM test LIKE '{schema}'")), schema);
        assert_eq!(peer.command(Command::FieldList, b"missing\0").unwrap().err().unwrap().code, 1146);
        peer.exec(&format!("CREATE DATABASE {schema}"));
        match encoding {
            Encoding::Text => drop(peer.exec(&format!("USE {schema}"))),
            Encoding::Binary => {
                peer.init_db(&schema).unwrap().ok().unwrap();
            }
        }
        assert_eq!(peer.get("SELECT DATABASE()"), schema);
        peer.exec("CREATE TABLE t(i INT)");
        assert_eq!(peer.get("SELECT COUNT(*) FROM t"), "0");
    }
    assert_eq!(bed.reads(READER), 0);
    bed.go_on();
}

fn without_causal_reads_they_do_not(flavor: Flavor) {
    let bed = Bed::new(flavor, "off", 20);
    bed.stand_still();
    for (at, encoding) in [Encoding::Text, Encoding::Binary].into_iter().enumerate() {
        let from = u32::try_from(at).unwrap() * 1_000;
        assert_eq!(stale(&mut bed.peer(encoding), from, 5), 5, "{encoding:?}");
    }
    assert_eq!(bed.counter("tidegate_causal_waits"), 0);
}

fn a_commit_is_a_write_and_a_transaction_reads_too(flavor: Flavor) {
    let bed = Bed::new(flavor, "token", 20);
    bed.stand_still();
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut peer = bed.peer(encoding);
        let i = if encoding == Encoding::Text { 1 } else { 2 };
        peer.exec_all(&["BEGIN", &format!("INSERT INTO test.seen VALUES({i})"), "COMMIT"]);
        let read = format!("SELECT COUNT(*) FROM test.seen WHERE i={i}");
        assert_eq!(peer.get(&read), "1", "{encoding:?}");
        peer.exec("START TRANSACTION READ ONLY");
        assert_eq!(peer.get(&read), "1", "{encoding:?}");
        peer.exec("COMMIT");
    }
    // A session that wrote nothing may read from the replica that lags.
    assert_eq!(bed.peer(Encoding::Text).get("SELECT COUNT(*) FROM test.seen"), "0");
}

fn what_was_committed_by_what_failed_is_read_too(flavor: Flavor) {
    let bed = Bed::new(flavor, "session", 20);
    bed.primary().sql("CREATE TABLE test.m(i INT PRIMARY KEY) ENGINE=MyISAM").unwrap();
    bed.catch_up();
    bed.stand_still();
    let commits = [
        "CREATE TABLE test.seen(i INT)",
        "TRUNCATE test.missing",
        "LOCK TABLES test.missing READ",
        "ALTER TABLE test.missing ADD x INT",
        "DROP TABLE test.missing",
    ];
    let mut i = 0;
    for encoding in [Encoding::Text, Encoding::Binary] {
        for sql in commits {
            i += 1;
            let mut peer = bed.peer(encoding);
            peer.exec_all(&["BEGIN", &format!("INSERT INTO test.seen VALUES({i})")]);
            peer.fails(sql);
            assert_eq!(peer.get(&format!("SELECT COUNT(*) FROM test.seen WHERE i={i}")), "1", "{sql} {encoding:?}");
        }
        let mut peer = bed.peer(encoding);
        let i = 10 * i;
        assert_eq!(peer.fails(&format!("INSERT INTO test.m VALUES({i}), ({i})")), 1062);
        assert_eq!(peer.get(&format!("SELECT COUNT(*) FROM test.m WHERE i={i}")), "1", "{encoding:?}");
    }
    // What replicas can be asked for they are asked for.
    bed.go_on();
    bed.set_timeout(10_000);
    let before = bed.reads(READER);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec_all(&["BEGIN", "INSERT INTO test.seen VALUES(1000)"]);
    peer.fails(commits[0]);
    assert_eq!(peer.get("SELECT COUNT(*) FROM test.seen WHERE i=1000"), "1");
    assert_eq!(bed.reads(READER), before + 1);
}

fn a_replica_is_asked_once_for_each_write(flavor: Flavor) {
    let bed = Bed::new(flavor, "session", 10_000);
    let mut peer = bed.peer(Encoding::Text);
    for i in 0..5 {
        peer.exec(&format!("INSERT INTO test.seen VALUES({i})"));
        for _ in 0..5 {
            assert_eq!(peer.get(&format!("SELECT COUNT(*) FROM test.seen WHERE i={i}")), "1");
        }
    }
    assert_eq!(bed.counter("tidegate_causal_waits"), 5);
    assert_eq!(bed.reads(READER), 25);
}

fn clients_are_told_of_gtids_only_if_they_asked(flavor: Flavor) {
    let bed = Bed::new(flavor, "session", 20);
    bed.stand_still();
    let mut peer = bed.peer(Encoding::Text);
    assert_eq!(stale(&mut peer, 0, 2), 0);
    if flavor == Flavor::Mysql {
        assert_eq!(peer.get("SELECT @@session_track_gtids"), "OFF");
        peer.exec("INSERT INTO test.seen VALUES(100)");
        assert_eq!(peer.get("SELECT COUNT(*) FROM test.seen WHERE i=100"), "1", "it is told again");
        for setting in ["OWN_GTID", "OFF"] {
            peer.exec(&format!("SET SESSION session_track_gtids={setting}"));
            assert_eq!(peer.get("SELECT @@session_track_gtids"), setting);
            assert_eq!(stale(&mut peer, if setting == "OFF" { 200 } else { 300 }, 2), 0, "{setting}");
            assert_eq!(stale(&mut bed.peer(Encoding::Text), if setting == "OFF" { 400 } else { 500 }, 2), 0, "{setting}");
        }
    }
}

/// A connection that the session keeps for no state of its own is asked as any other.
fn sessions_without_multiplexing_too(flavor: Flavor) {
    let bed = Bed::new(flavor, "session", 20);
    bed.order(&["SET mysql-multiplexing='false'", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    bed.stand_still();
    for (from, encoding) in [(0, Encoding::Text), (100, Encoding::Binary)] {
        let mut peer = bed.peer(encoding);
        peer.exec("SELECT COUNT(*) FROM test.seen");
        assert_eq!(stale(&mut peer, from, 5), 0, "{encoding:?}");
    }
    assert_eq!(bed.counter("tidegate_causal_timeouts"), 10);
    bed.go_on();
}

fn off_for_a_user_is_off(flavor: Flavor) {
    let bed = Bed::new(flavor, "session", 20);
    let split = r#"{"read_write_split": {"writer": 0, "reader": 1}, "causal_reads": "off"}"#;
    let mut admin = bed.proxy.admin().unwrap();
    admin.run(format!("UPDATE mysql_users SET attributes='{split}'")).unwrap();
    admin.run("LOAD MYSQL USERS TO RUNTIME").unwrap();
    bed.stand_still();
    assert_eq!(stale(&mut bed.peer(Encoding::Text), 0, 3), 3);
    assert_eq!(bed.counter("tidegate_causal_waits"), 0);
}

/// A GTID that servers of this kind do not have.
/// It does not have it in time, like one that says so.
fn a_replica_that_freezes_while_it_is_waited_for(flavor: Flavor) {
    let bed = Bed::new(flavor, "session", 500);
    let mut peer = bed.peer(Encoding::Text);
    bed.stand_still();
    peer.exec("INSERT INTO test.seen VALUES(1)");
    let seen = std::thread::scope(|scope| {
        let read = scope.spawn(|| peer.get(COUNT));
        let is_asked = || (bed.counter("tidegate_causal_waits") > 0).then_some(());
        lab::wait::until("the replica to be asked", std::time::Duration::from_secs(10), is_asked).unwrap();
        bed.replica().sigstop();
        let seen = read.join();
        bed.replica().sigcont();
        seen.unwrap()
    });
    assert_eq!((seen.as_str(), bed.counter("tidegate_causal_timeouts"), bed.reads(WRITER)), ("1", 1, 1));
}

fn other_kind(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Mariadb => "3e11fa47-71ca-11e1-9e33-c80aa9429562:23",
        Flavor::Mysql => "0-1-57",
    }
}

/// A later one of the same domain or source.
fn never(gtid: &str) -> String {
    let at = gtid.rfind([':', '-']).unwrap();
    format!("{}999999", &gtid[..=at])
}

const COUNT: &str = "SELECT COUNT(*) FROM test.seen";

/// The scope is off: the statement alone asks.
fn a_comment_waits_for_what_another_session_wrote(flavor: Flavor) {
    let bed = Bed::new(flavor, "off", 20);
    bed.stand_still();
    bed.peer(Encoding::Text).exec("INSERT INTO test.seen VALUES(1)");
    let gtid = replication::position(bed.primary()).unwrap();
    let read = format!("/* min_gtid={gtid} */ {COUNT}");
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut peer = bed.peer(encoding);
        assert_eq!((peer.get(COUNT), peer.get(&read), peer.get(COUNT)), ("0".into(), "1".into(), "0".into()), "{encoding:?}");
        for junk in ["nonsense", "", other_kind(flavor)] {
            assert_eq!(peer.fails(&format!("/* min_gtid={junk} */ {COUNT}")), 1231, "{encoding:?} {junk}");
        }
        peer.exec("START TRANSACTION READ ONLY");
        assert_eq!((peer.get(COUNT), peer.get(&read)), ("0".into(), "0".into()), "{encoding:?}, a transaction stays where it began");
        peer.exec("COMMIT");
    }
    assert_eq!(bed.counter("tidegate_causal_timeouts"), 2, "the writer served");
    bed.order(&["SET mysql-ignore_min_gtid_annotations='true'", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut peer = bed.peer(encoding);
        let junk = format!("/* min_gtid=nonsense */ {COUNT}");
        assert_eq!((peer.get(&read), peer.get(&junk)), ("0".into(), "0".into()), "{encoding:?}: what comments name is not waited for");
    }
    bed.order(&["SET mysql-ignore_min_gtid_annotations='false'", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    let (waits, reads) = (bed.counter("tidegate_causal_waits"), bed.reads(READER));
    bed.set_timeout(10_000);
    let late = std::thread::scope(|scope| {
        let late = scope.spawn(|| bed.peer(Encoding::Text).get(&read));
        lab::wait::until("the replica to be asked", std::time::Duration::from_secs(10), || {
            (bed.counter("tidegate_causal_waits") > waits).then_some(())
        })
        .unwrap();
        bed.go_on();
        late.join().unwrap()
    });
    assert_eq!(late, "1");
    assert_eq!((bed.counter("tidegate_causal_timeouts"), bed.reads(READER)), (2, reads + 1), "the replica served when it had it");
    let mut peer = bed.peer(Encoding::Text);
    (0..5).for_each(|_| assert_eq!(peer.get(&read), "1"));
    assert_eq!(bed.counter("tidegate_causal_waits"), waits + 2, "who has it is asked once");
    // Hostgroup 5 belongs to no cluster, so no server is known to have the write for certain.
    bed.order(&[
        &format!("INSERT INTO mysql_servers(hostgroup_id, hostname, port) VALUES(5, '{}', {})", bed.replica().host(), bed.replica().port()),
        "LOAD MYSQL SERVERS TO RUNTIME",
    ]);
    bed.set_timeout(20);
    let elsewhere = format!("/* hostgroup=5; min_gtid={gtid} */ {COUNT}");
    assert_eq!(peer.get(&elsewhere), "1");
    bed.stand_still();
    peer.exec("INSERT INTO test.seen VALUES(2)");
    let later = elsewhere.replace(&gtid, &replication::position(bed.primary()).unwrap());
    assert_eq!(peer.fails(&later), 9001);
    assert_eq!(peer.get(&elsewhere), "1", "the session goes on");
}

fn a_token_carries_writes_to_another_session(flavor: Flavor) {
    let bed = Bed::new(flavor, "token", 20);
    bed.stand_still();
    let mut writer = bed.peer(Encoding::Text);
    assert_eq!(writer.table("SHOW TIDEGATE GTID").len(), 0, "it wrote nothing");
    writer.exec("INSERT INTO test.seen VALUES(1)");
    let rows = writer.table("SHOW TIDEGATE GTID");
    let [hostgroup, token] = rows.first().unwrap().as_slice() else { panic!("{rows:?}") };
    assert_eq!((rows.len(), hostgroup.as_str()), (1, "0"));
    let order = format!("SET TIDEGATE GTID = '{token}'");
    let mut reader = bed.peer(Encoding::Text);
    assert_eq!(reader.get(COUNT), "0");
    reader.exec(&order);
    assert_eq!(reader.get(COUNT), "1", "the writer served");
    assert_eq!(reader.table("SHOW TIDEGATE GTID"), rows, "it can be handed on");
    assert_eq!(reader.fails("SET TIDEGATE GTID = '0-1-1) OR (1'"), 1231);
    let refused = reader.ask(&format!("SET TIDEGATE GTID = '{}'", other_kind(flavor))).err().cloned().unwrap();
    assert!(refused.code == 1231 && refused.message.contains("but the servers use"), "{refused:?}");
    assert_eq!(reader.get(COUNT), "1", "what is no token changes nothing");
    // No replica will ever have the write, so the writer serves the read when the time is up.
    let timeouts = bed.counter("tidegate_causal_timeouts");
    reader.exec(&format!("SET TIDEGATE GTID = '{}'", never(token)));
    assert_eq!((reader.get(COUNT), bed.counter("tidegate_causal_timeouts")), ("1".into(), timeouts + 1));
    reader.exec("SET TIDEGATE GTID = ''");
    assert_eq!(reader.get(COUNT), "0", "it waits no more");
    reader.exec(&format!("{order} FOR HOSTGROUP 1"));
    assert_eq!(reader.get(COUNT), "1");
    assert_eq!(bed.peer(Encoding::Text).get(COUNT), "0", "another session was told nothing");
    reader.reset_connection().unwrap();
    assert_eq!(reader.get(COUNT), "0", "a reset forgets it");
    reader.exec(&order);
    bed.go_on();
    let reads = bed.reads(READER);
    assert_eq!((reader.get(COUNT), bed.reads(READER)), ("1".into(), reads + 1), "the replica has it");
    bed.order(&["SET mysql-causal_reads='session'", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    assert_eq!(reader.fails(&order), 1235);
    assert_eq!(reader.fails(&format!("{order} FOR HOSTGROUP 7")), 1235);
}

/// The scope is off: the rule alone asks.
fn a_rule_waits_for_what_the_session_wrote(flavor: Flavor) {
    let bed = Bed::new(flavor, "off", 20);
    bed.order(&[
        "INSERT INTO mysql_query_rules(rule_id, active, match_digest, destination_hostgroup, gtid_from_hostgroup, apply) \
         VALUES(1, 1, '^SELECT COUNT.*test.seen', 1, 0, 1)",
        "LOAD MYSQL QUERY RULES TO RUNTIME",
    ]);
    bed.stand_still();
    for (at, encoding) in [Encoding::Text, Encoding::Binary].into_iter().enumerate() {
        assert_eq!(stale(&mut bed.peer(encoding), u32::try_from(at).unwrap() * 100, 5), 0, "{encoding:?}");
    }
    assert_eq!(bed.peer(Encoding::Text).get(COUNT), "0", "another session wrote nothing");
    assert_eq!(bed.counter("tidegate_causal_timeouts"), 10, "hostgroup 0 served");
    bed.set_timeout(10_000);
    bed.go_on();
    let reads = bed.reads(READER);
    assert_eq!((stale(&mut bed.peer(Encoding::Text), 300, 5), bed.reads(READER)), (0, reads + 5), "the replica served");
}

/// Kills the server and starts it again as a reader without a source, as after a restore from a backup.
///
/// It has the transactions up to `position`, and no row of `test.seen`.
fn goes_back(server: &Server, position: &str) {
    server.kill9();
    let (skip, forget) = match server.flavor() {
        Flavor::Mariadb => ("--skip-slave-start", ["RESET MASTER".to_owned(), format!("SET GLOBAL gtid_slave_pos='{position}'")]),
        Flavor::Mysql => {
            ("--skip-replica-start", ["RESET BINARY LOGS AND GTIDS".to_owned(), format!("SET GLOBAL gtid_purged='{position}'")])
        }
    };
    server.restart_with(&["--read-only=1", skip]).unwrap();
    let mut root = server.root().unwrap();
    for sql in ["SET sql_log_bin=0", "DELETE FROM test.seen"].into_iter().chain(forget.iter().map(String::as_str)) {
        root.run(sql).unwrap();
    }
}

/// The position that was known belonged to the process before the restart.
fn a_replica_that_comes_back_with_less_is_asked_again(flavor: Flavor) {
    let bed = Bed::new(flavor, "token", 200);
    let before = replication::position(bed.replica()).unwrap();
    let (mut writer, mut other) = (bed.peer(Encoding::Text), bed.peer(Encoding::Text));
    writer.exec("INSERT INTO test.seen VALUES(1)");
    bed.catch_up();
    let token = writer.table("SHOW TIDEGATE GTID")[0][1].clone();
    other.exec(&format!("SET TIDEGATE GTID = '{token}'"));
    assert_eq!((writer.get(COUNT), other.get(COUNT), bed.reads(READER)), ("1".into(), "1".into(), 2));
    goes_back(bed.replica(), &before);
    bed.wait_used(READER, bed.replica());
    for peer in [&mut writer, &mut other] {
        assert_eq!((peer.get(COUNT), peer.get(COUNT)), ("1".to_owned(), "1".to_owned()));
    }
    assert_eq!(bed.reads(WRITER), 4, "the writer served");
}

/// It was the one that wrote it.
fn a_writer_that_comes_back_with_less_is_asked_too(flavor: Flavor) {
    let bed = Bed::new(flavor, "session", 200);
    let before = replication::position(bed.primary()).unwrap();
    let mut peer = bed.peer(Encoding::Text);
    peer.exec("INSERT INTO test.seen VALUES(1)");
    bed.catch_up();
    bed.primary().kill9();
    replication::promote(bed.replica()).unwrap();
    bed.wait_used(WRITER, bed.replica());
    goes_back(bed.primary(), &before);
    bed.wait_used(READER, bed.primary());
    assert_eq!((peer.get(COUNT), peer.get(COUNT)), ("1".to_owned(), "1".to_owned()));
    assert_eq!((bed.reads(WRITER), bed.reads(READER)), (2, 0), "the writer served");
}

/// The write never reached this server by replication. Hostgroup 5 belongs to no cluster: no other server would take the read.
fn who_wrote_it_has_it_at_once(flavor: Flavor) {
    let bed = Bed::new(flavor, "off", 60_000);
    bed.order(&[
        &format!("INSERT INTO mysql_servers(hostgroup_id, hostname, port) VALUES(5, '{}', {})", bed.primary().host(), bed.primary().port()),
        "LOAD MYSQL SERVERS TO RUNTIME",
    ]);
    let mut root = bed.primary().root().unwrap();
    if flavor == Flavor::Mariadb {
        root.run("SET gtid_domain_id=7").unwrap();
    }
    root.run("INSERT INTO test.seen VALUES(1)").unwrap();
    bed.catch_up();
    let gtid = replication::position(bed.primary()).unwrap();
    let (mut peer, begun) = (bed.peer(Encoding::Text), std::time::Instant::now());
    assert_eq!(peer.get(&format!("/* hostgroup=5; min_gtid={gtid} */ {COUNT}")), "1");
    assert_eq!(peer.get(&format!("/* hostgroup=1; min_gtid={gtid} */ {COUNT}")), "1", "the replica has it too");
    assert!(begun.elapsed() < LIMIT, "it waited");
    bed.set_timeout(20);
    assert_eq!(peer.fails(&format!("/* hostgroup=5; min_gtid={} */ {COUNT}", never(&gtid))), 9001);
}
