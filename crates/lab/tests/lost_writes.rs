//! With `settle_lost_writes` a write whose answer was lost with its server is looked up on the new one.
//!
//! The client gets the answer, or the write is sent again, and its row is there once. Without a proof the error says that the outcome is
//! unknown, as without the setting.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{LIMIT, Peer};
use lab::client::{Encoding, Reply};
use lab::fault::{Lost, Relay};
use lab::replication::{self, Replication};
use lab::tidegate::{Builder, Setting};
use lab::{Client, Flavor, Options, Server, Tidegate, wait};
use wire::session_state::Change;

const BOTH: [Encoding; 2] = [Encoding::Text, Encoding::Binary];

/// The setting that the proxy sends with every COMMIT of a transaction that has a GTID of its choice.
const WITH_COMMIT: &str = "gtid_next='AUTOMATIC'";

/// A primary, behind a network that can fail, and a replica.
struct Bed {
    // Dropped first, so that it does not complain of lost servers.
    proxy: Tidegate,
    relay: Relay,
    servers: Vec<Server>,
}

impl Bed {
    fn new(settings: &[(&str, Setting)]) -> Bed {
        Bed::with(settings, &[])
    }

    /// `before` is done on the primary before the proxy starts.
    fn with(settings: &[(&str, Setting)], before: &[&str]) -> Bed {
        let topology = Replication::start(Flavor::Mysql, 1, &Options::new().durable()).unwrap();
        let tables = ["CREATE TABLE test.t(i INT PRIMARY KEY, v INT)", "CREATE TABLE test.a(id INT PRIMARY KEY AUTO_INCREMENT, v INT)"];
        for sql in tables.iter().chain(before) {
            topology.primary.sql(sql).unwrap();
        }
        topology.wait_caught_up().unwrap();
        let relay = Relay::to(&topology.primary.address()).unwrap();
        let builder = Tidegate::builder()
            .app_user()
            .variable("threads", 1)
            .variable("settle_lost_writes", true)
            .row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())])
            .server(0, "127.0.0.1", relay.port())
            .server(1, "127.0.0.1", topology.replicas[0].port());
        let set = |builder: Builder, (name, value): &(&str, Setting)| builder.variable(name, value.clone());
        let proxy = settings.iter().fold(builder, set).start().unwrap();
        Bed { proxy, relay, servers: topology.into_servers() }
    }

    fn peer(&self, encoding: Encoding) -> Peer {
        Peer::through(&self.proxy, encoding)
    }

    fn counter(&self, name: &str) -> u64 {
        let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='{name}'");
        self.proxy.admin().unwrap().scalar(sql).unwrap().unwrap_or_else(|| panic!("{name} is not there")).parse().unwrap()
    }

    /// Applied, not applied, undecided.
    fn settled(&self) -> (u64, u64, u64) {
        let of = |outcome| self.counter(&format!("tidegate_lost_writes_{outcome}"));
        (of("applied"), of("not_applied"), of("undecided"))
    }

    fn value(&self, server: usize, sql: &str) -> String {
        self.servers[server].scalar(sql).unwrap().unwrap()
    }

    /// Does something that loses its COMMIT or the answer to it.
    fn lose<T: Send + 'static>(&self, lost: Lost, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let before = self.relay.sprung();
        self.relay.trap(WITH_COMMIT, lost);
        let working = thread::spawn(work);
        wait::until("the COMMIT", LIMIT, || (self.relay.sprung() > before).then_some(())).unwrap();
        working
    }

    /// The primary dies, and the replica takes over with the transactions that it has.
    fn fail_over(&self) {
        self.servers[0].kill9();
        self.relay.cut();
        replication::promote(&self.servers[1]).unwrap();
    }

    /// Waits until the replica has the row.
    fn wait_replicated(&self, sql: &str) {
        wait::until("the row on the replica", LIMIT, || (self.value(1, sql) == "1").then_some(())).unwrap();
    }

    /// The values of `gtid_next` on the connections of the proxy.
    fn gtid_next(&self, server: usize) -> Vec<String> {
        let sql = "SELECT VARIABLE_VALUE FROM performance_schema.variables_by_thread JOIN performance_schema.threads USING(THREAD_ID) \
                   WHERE VARIABLE_NAME='gtid_next' AND PROCESSLIST_USER='app'";
        let rows = self.servers[server].sql(sql).unwrap().table().unwrap();
        rows.into_iter().flatten().flatten().collect()
    }
}

/// The insert and its answer: changed rows, insert id, whether a transaction is open.
fn insert(peer: &mut Peer, v: usize) -> (u64, u64, bool) {
    let reply = peer.exec(&format!("INSERT INTO a(v) VALUES({v})"));
    let ok = reply.ok().unwrap();
    (ok.affected_rows, ok.last_insert_id, ok.in_transaction())
}

/// The first warning. MySQL does not prepare the question.
fn warning(peer: &mut Peer) -> String {
    let row = peer.query("SHOW WARNINGS").unwrap().table().unwrap().into_iter().next().unwrap_or_default();
    row.into_iter().flatten().take(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_write_that_was_applied_is_answered() {
    for encoding in BOTH {
        let bed = Bed::new(&[]);
        let mut peer = bed.peer(encoding);
        insert(&mut peer, 1);
        let writing = bed.lose(Lost::Answer, move || {
            let answer = insert(&mut peer, 2);
            (answer, peer.get("SELECT LAST_INSERT_ID()"), peer.get("SELECT ROW_COUNT()"))
        });
        bed.wait_replicated("SELECT COUNT(*) FROM test.a WHERE v=2");
        bed.fail_over();
        let (answer, id, _) = writing.join().unwrap();
        assert_eq!((answer, id.as_str()), ((1, 2, false), "2"), "{encoding:?}");
        assert_eq!(bed.value(1, "SELECT GROUP_CONCAT(v) FROM test.a"), "1,2");
        assert_eq!(bed.settled(), (1, 0, 0));
    }
}

/// The GTID that a reply tells.
fn gtid(reply: &Reply) -> Option<String> {
    let changes = reply.ok().unwrap().changes().unwrap();
    changes.into_iter().find_map(|change| match change {
        Change::Gtids(gtids) => Some(String::from_utf8_lossy(gtids).into_owned()),
        _ => None,
    })
}

#[test]
fn a_client_that_asks_is_told_the_gtid() {
    for encoding in BOTH {
        let bed = Bed::new(&[]);
        let [mut peer, mut silent] = [(); 2].map(|()| bed.peer(encoding));
        peer.exec("SET SESSION session_track_gtids=OWN_GTID");
        let told = gtid(&peer.exec("INSERT INTO a(v) VALUES(1)")).unwrap();
        assert_eq!(bed.value(0, &format!("SELECT GTID_SUBSET('{told}', @@GLOBAL.gtid_executed)")), "1", "{encoding:?}");
        assert_eq!(gtid(&silent.exec("INSERT INTO a(v) VALUES(2)")), None, "{encoding:?}");
        // Of a transaction, with the COMMIT that the client sees.
        peer.exec("BEGIN");
        assert_eq!(gtid(&peer.exec("INSERT INTO a(v) VALUES(3)")), None, "{encoding:?}");
        assert!(gtid(&peer.exec("COMMIT")).is_some_and(|next| next != told), "{encoding:?}");
        // And of one whose answer was lost with the server.
        let opens = encoding == Encoding::Text;
        let writing = bed.lose(Lost::Answer, move || {
            if opens {
                peer.exec_all(&["BEGIN", "INSERT INTO a(v) VALUES(4)"]);
                gtid(&peer.exec("COMMIT"))
            } else {
                gtid(&peer.exec("INSERT INTO a(v) VALUES(4)"))
            }
        });
        bed.wait_replicated("SELECT COUNT(*) FROM test.a WHERE v=4");
        bed.fail_over();
        let told = writing.join().unwrap().unwrap();
        assert_eq!(bed.value(1, &format!("SELECT GTID_SUBSET('{told}', @@GLOBAL.gtid_executed)")), "1", "{encoding:?}");
        assert_eq!(bed.settled(), (1, 0, 0), "{encoding:?}");
    }
}

#[test]
fn a_write_that_never_arrived_is_sent_again() {
    for encoding in BOTH {
        let bed = Bed::new(&[]);
        let mut peer = bed.peer(encoding);
        insert(&mut peer, 1);
        bed.wait_replicated("SELECT COUNT(*) FROM test.a WHERE v=1");
        let writing = bed.lose(Lost::Command, move || (insert(&mut peer, 2), peer.get("SELECT COUNT(*) FROM a")));
        bed.fail_over();
        let (answer, count) = writing.join().unwrap();
        assert_eq!((answer.0, answer.2, count.as_str()), (1, false, "2"), "{encoding:?}");
        assert_eq!(bed.value(1, "SELECT GROUP_CONCAT(v) FROM test.a"), "1,2");
        assert_eq!(bed.settled(), (0, 1, 0));
        wait::until("AUTOMATIC", LIMIT, || bed.gtid_next(1).iter().all(|value| value == "AUTOMATIC").then_some(())).unwrap();
    }
}

/// The network fails, the server does not: it is asked itself, and waits for the COMMIT that runs.
#[test]
fn the_server_that_was_lost_may_be_the_one_that_knows() {
    let bed = Bed::new(&[]);
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        for (lost, v) in [(Lost::Answer, 1 + turn * 10), (Lost::Command, 2 + turn * 10)] {
            let mut peer = bed.peer(encoding);
            let writing = bed.lose(lost, move || insert(&mut peer, v));
            bed.relay.cut();
            let answer = writing.join().unwrap();
            assert_eq!((answer.0, answer.2), (1, false), "{lost:?}");
            assert_eq!(bed.value(0, &format!("SELECT COUNT(*) FROM test.a WHERE v={v}")), "1", "{lost:?}");
        }
    }
    assert_eq!(bed.settled(), (2, 2, 0));
}

/// The same on a server that does not notice the loss: the proxy has its connection ended, and with it the session that owns the GTID.
#[test]
fn what_a_lost_connection_has_is_decided_by_its_end() {
    for (encoding, replay) in [(Encoding::Text, false), (Encoding::Binary, true)] {
        let bed = Bed::new(&[("transaction_replay", replay.into())]);
        let uptime = || bed.servers[0].sql("SHOW GLOBAL STATUS LIKE 'Uptime'").unwrap().rows().unwrap().field(0, "Value").unwrap();
        wait::until("the server to have run for a while", LIMIT, || (uptime().parse::<u64>().unwrap() >= 3).then_some(())).unwrap();
        let mut peer = bed.peer(encoding);
        let writing = bed.lose(Lost::Command, move || {
            peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1, 1)"]);
            peer.ask("COMMIT").err().map(|error| error.code)
        });
        let start = Instant::now();
        bed.relay.cut_near();
        assert_eq!(writing.join().unwrap(), if replay { None } else { Some(9004) }, "{encoding:?}");
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.t"), if replay { "1" } else { "0" });
        assert_eq!(bed.settled(), (0, 1, 0));
        bed.relay.cut();
    }
}

#[test]
fn a_transaction_that_was_committed_is_answered() {
    for (encoding, replay) in [(Encoding::Text, false), (Encoding::Binary, true)] {
        let bed = Bed::new(&[("transaction_replay", replay.into())]);
        let mut peer = bed.peer(encoding);
        let writing = bed.lose(Lost::Answer, move || {
            peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1, 1)", "UPDATE t SET v = 2"]);
            let is_open = peer.exec("COMMIT").status().unwrap().in_transaction();
            (is_open, peer.row("SELECT COUNT(*), SUM(v) FROM t"))
        });
        bed.wait_replicated("SELECT COUNT(*) FROM test.t");
        bed.fail_over();
        assert_eq!(writing.join().unwrap(), (false, "1 2".to_owned()), "{encoding:?}");
        assert_eq!(bed.value(1, "SELECT CONCAT(COUNT(*), ' ', SUM(v)) FROM test.t"), "1 2");
        assert_eq!(bed.settled(), (1, 0, 0));
    }
}

#[test]
fn a_transaction_that_never_arrived_is_replayed() {
    for encoding in BOTH {
        let bed = Bed::new(&[("transaction_replay", true.into())]);
        let mut peer = bed.peer(encoding);
        let writing = bed.lose(Lost::Command, move || {
            peer.exec_all(&["START TRANSACTION", "INSERT INTO t VALUES(1, 1)", "UPDATE t SET v = 2", "COMMIT"]);
            peer.row("SELECT COUNT(*), SUM(v) FROM t")
        });
        bed.fail_over();
        assert_eq!(writing.join().unwrap(), "1 2", "{encoding:?}");
        assert_eq!(bed.settled(), (0, 1, 0));
        assert_eq!(bed.counter("tidegate_transaction_replays_ok"), 1);
    }
}

#[test]
fn a_transaction_that_never_arrived_and_is_not_replayed_is_told() {
    for encoding in BOTH {
        let bed = Bed::new(&[]);
        let mut peer = bed.peer(encoding);
        let writing = bed.lose(Lost::Command, move || {
            peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1, 1)"]);
            let code = peer.fails("COMMIT");
            peer.exec("INSERT INTO t VALUES(7, 7)");
            (code, peer.get("SELECT GROUP_CONCAT(i) FROM t"))
        });
        bed.fail_over();
        assert_eq!(writing.join().unwrap(), (9004, "7".to_owned()), "{encoding:?}: the session goes on");
        assert_eq!(bed.settled(), (0, 1, 0));
    }
}

/// A new writer that still has a source may get the write from there: it is asked again until replication stops.
#[test]
fn what_may_still_come_is_waited_for() {
    let bed = Bed::new(&[]);
    let mut peer = bed.peer(Encoding::Text);
    let writing = bed.lose(Lost::Command, move || insert(&mut peer, 1));
    bed.servers[0].kill9();
    bed.relay.cut();
    // The question begins with BEGIN.
    let asked = || -> u64 {
        let status = bed.servers[1].sql("SHOW GLOBAL STATUS LIKE 'Com_begin'").unwrap();
        status.rows().unwrap().field(0, "Value").unwrap().parse().unwrap()
    };
    let before = asked();
    bed.servers[1].sql("SET GLOBAL read_only=0").unwrap();
    wait::until("the questions", LIMIT, || (asked() >= before + 3).then_some(())).unwrap();
    assert!(!writing.is_finished() && bed.settled() == (0, 0, 0));
    assert_eq!(bed.value(1, "SELECT COUNT(*) FROM test.a"), "0");
    bed.servers[1].sql("STOP REPLICA").unwrap();
    assert_eq!(writing.join().unwrap().0, 1);
    assert_eq!((bed.settled(), bed.value(1, "SELECT COUNT(*) FROM test.a").as_str()), ((0, 1, 0), "1"));
}

/// A transaction that was moved before has a GTID on the connection that it came to.
#[test]
fn a_transaction_that_was_moved_is_settled_too() {
    let bed = Bed::new(&[("transaction_replay", true.into())]);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec("BEGIN");
    bed.relay.cut();
    peer.exec("INSERT INTO t VALUES(1, 1)");
    bed.relay.cut();
    peer.exec("INSERT INTO t VALUES(2, 2)");
    let writing = bed.lose(Lost::Answer, move || {
        peer.exec("COMMIT");
        peer.get("SELECT GROUP_CONCAT(i) FROM t")
    });
    wait::until("the rows on the replica", LIMIT, || (bed.value(1, "SELECT COUNT(*) FROM test.t") == "2").then_some(())).unwrap();
    bed.fail_over();
    assert_eq!((writing.join().unwrap().as_str(), bed.settled()), ("1,2", (1, 0, 0)));
}

/// The replay gives other answers: the client learns that nothing was applied, and its session goes on.
#[test]
fn a_commit_that_cannot_be_replayed_is_told_as_not_applied() {
    let bed = Bed::new(&[("transaction_replay", true.into())]);
    let mut peer = bed.peer(Encoding::Text);
    let writing = bed.lose(Lost::Command, move || {
        peer.exec_all(&["BEGIN", "SELECT COUNT(*) FROM t", "INSERT INTO t VALUES(1, 1)"]);
        (peer.fails("COMMIT"), peer.get("SELECT GROUP_CONCAT(i) FROM t"))
    });
    bed.servers[0].kill9();
    bed.servers[1].sql("SET GLOBAL super_read_only=0").unwrap();
    bed.servers[1].sql("INSERT INTO test.t VALUES(9, 9)").unwrap();
    bed.fail_over();
    assert_eq!(writing.join().unwrap(), (9004, "9".to_owned()));
    assert_eq!(bed.settled(), (0, 1, 0));
}

/// Without the right to see the received transactions, only the applied ones are certain.
#[test]
fn what_cannot_be_proven_is_unknown() {
    let revoke = "REVOKE SELECT ON performance_schema.replication_connection_status FROM app@'%'";
    for (lost, expected) in [(Lost::Answer, (1, 0, 0)), (Lost::Command, (0, 0, 1))] {
        let bed = Bed::with(&[], &[revoke]);
        let mut peer = bed.peer(Encoding::Text);
        let writing = bed.lose(lost, move || peer.ask("INSERT INTO t VALUES(1, 1)").err().map(|error| error.code));
        if lost == Lost::Answer {
            bed.wait_replicated("SELECT COUNT(*) FROM test.t");
        }
        bed.fail_over();
        let error = writing.join().unwrap();
        assert_eq!((error, bed.settled()), ((lost == Lost::Command).then_some(lab::SERVER_LOST), expected));
        assert_eq!(bed.value(1, "SELECT COUNT(*) FROM test.t"), if lost == Lost::Answer { "1" } else { "0" });
    }
}

#[test]
fn who_may_not_choose_a_gtid_works_as_without() {
    let bed = Bed::with(&[], &["REVOKE SESSION_VARIABLES_ADMIN ON *.* FROM app@'%'"]);
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        assert_eq!(insert(&mut peer, 1).0, 1);
        peer.exec_all(&["BEGIN", &format!("INSERT INTO t VALUES({turn}, 1)"), "COMMIT"]);
    }
    assert_eq!(bed.counter("tidegate_gtids_refused"), 1, "it is not tried all the time");
    assert!(bed.proxy.log().contains("settle_lost_writes has no effect for user app"), "{}", bed.proxy.log());
    assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.a JOIN test.t"), "4");
    let mut peer = bed.peer(Encoding::Text);
    bed.servers[0].sql("GRANT SESSION_VARIABLES_ADMIN ON *.* TO app@'%'").unwrap();
    let mut admin = bed.proxy.admin().unwrap();
    admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    let refused = bed.counter("tidegate_gtids_refused");
    insert(&mut peer, 2);
    assert!(bed.counter("tidegate_gtids_refused") - refused <= 1, "connections that are open learn of it late");
}

/// Everything that ends a transaction, and the client notices nothing of GTIDs.
#[test]
fn sessions_are_as_without_and_backends_go_back_clean() {
    let bed = Bed::new(&[]);
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        let mut i = turn * 100;
        let mut next = || {
            i += 1;
            format!("INSERT INTO t VALUES({i}, 1)")
        };
        peer.exec(&next());
        assert_eq!(peer.fails(&format!("INSERT INTO t VALUES({}, 1)", turn * 100 + 1)), 1062);
        assert_eq!(warning(&mut peer), "Error 1062");
        assert_eq!(peer.exec(&format!("INSERT IGNORE INTO t VALUES({}, 1)", turn * 100 + 1)).ok().unwrap().affected_rows, 0);
        assert_eq!(warning(&mut peer), "Warning 1062");
        assert_eq!(peer.get("SELECT @@gtid_next"), "AUTOMATIC");
        peer.exec_all(&["BEGIN", "SELECT COUNT(*) FROM t", "COMMIT"]);
        peer.exec_all(&["BEGIN", &next(), "ROLLBACK", &next()]);
        // Statements that commit implicitly.
        peer.exec_all(&["BEGIN", &next(), "CREATE TABLE x(i INT)", "ROLLBACK", &next(), "DROP TABLE x"]);
        peer.exec_all(&["BEGIN", &next(), "BEGIN", &next(), "ROLLBACK", &next()]);
        peer.exec_all(&["BEGIN", &next(), "COMMIT AND CHAIN", &next()]);
        assert!(peer.exec("DO 1").status().unwrap().in_transaction());
        peer.exec_all(&["ROLLBACK", &next()]);
        peer.exec_all(&["BEGIN", &next(), "LOCK TABLES t WRITE", &next(), "UNLOCK TABLES", &next()]);
        peer.exec_all(&["BEGIN", &next(), "SET autocommit=0", &next(), "COMMIT", "SET autocommit=1", &next()]);
        peer.exec_all(&["BEGIN", &next()]);
        peer.reset_connection().unwrap();
        peer.exec(&next());
        // Of the 19 two ROLLBACKs, that of CHAIN and the reset took one each.
        let there = bed.value(0, &format!("SELECT COUNT(*) FROM test.t WHERE i > {} AND i <= {}", turn * 100, turn * 100 + 99));
        assert_eq!(there, (i - turn * 100 - 4).to_string(), "{encoding:?}");
        drop(peer);
    }
    wait::until("AUTOMATIC", LIMIT, || bed.gtid_next(0).iter().all(|value| value == "AUTOMATIC").then_some(())).unwrap();
    assert_eq!(bed.settled(), (0, 0, 0));
}

/// Numbers that are not used come back: the servers' set of GTIDs stays short.
#[test]
fn numbers_have_no_gaps() {
    let bed = Bed::new(&[]);
    let own = bed.value(0, "SELECT @@server_uuid");
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        for n in 0..10 {
            let n = turn * 100 + n;
            peer.exec(&format!("INSERT INTO t VALUES({n}, 1)"));
            peer.fails(&format!("INSERT INTO t VALUES({n}, 1)"));
            peer.exec_all(&["BEGIN", "SELECT COUNT(*) FROM t", "COMMIT"]);
            peer.exec_all(&["BEGIN", "UPDATE t SET v=2", "ROLLBACK"]);
        }
    }
    let executed = bed.value(0, "SELECT REPLACE(@@gtid_executed, '\\n', '')");
    let others: Vec<&str> = executed.split(',').filter(|part| !part.starts_with(&own)).collect();
    assert!(others.len() == 1 && others[0].ends_with(":1-20"), "{executed}");
}

/// A transaction that only reads is rolled back instead of committed; a view may hide a write.
#[test]
fn what_a_view_wrote_is_committed() {
    let bed = Bed::with(
        &[],
        &[
            "CREATE FUNCTION test.g() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN INSERT INTO test.a(v) VALUES(7); RETURN 1; END",
            "CREATE VIEW test.gv AS SELECT test.g() AS x",
            "CREATE VIEW test.tv AS SELECT i, v FROM test.t",
        ],
    );
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        let mut peer = bed.peer(encoding);
        peer.exec_all(&["BEGIN", "SELECT x FROM gv", "COMMIT"]);
        assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.a"), (turn * 2 + 1).to_string(), "{encoding:?}");
        peer.exec_all(&["BEGIN", "SELECT i FROM tv", "SELECT x FROM gv", "COMMIT"]);
        assert_eq!(bed.value(0, "SELECT COUNT(*) FROM test.a"), (turn * 2 + 2).to_string(), "{encoding:?}");
        let before = bed.value(0, "SELECT @@gtid_executed");
        peer.exec_all(&["BEGIN", "SELECT SQL_CALC_FOUND_ROWS i FROM tv", "COMMIT"]);
        assert_eq!(peer.get("SELECT FOUND_ROWS()"), "0", "{encoding:?}");
        peer.exec_all(&["BEGIN", "SELECT COUNT(*) FROM t", "SELECT COUNT(*) FROM a", "SHOW TABLES", "SELECT 1", "COMMIT"]);
        assert_eq!(bed.value(0, "SELECT @@gtid_executed"), before, "{encoding:?}");
    }
}

/// MariaDB has no such GTIDs: nothing changes.
#[test]
fn mariadb_is_left_alone() {
    let topology = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    topology.primary.sql("CREATE TABLE test.a(id INT PRIMARY KEY AUTO_INCREMENT, v INT)").unwrap();
    let builder = Tidegate::builder().app_user().variable("settle_lost_writes", true);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.backend(0, &topology.primary).backend(1, &topology.replicas[0]).start().unwrap();
    for encoding in BOTH {
        assert_eq!(insert(&mut Peer::through(&proxy, encoding), 1).0, 1);
    }
    let sql = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='tidegate_gtids_refused'";
    let mut admin: Client = proxy.admin().unwrap();
    assert_eq!(admin.scalar(sql).unwrap().as_deref(), Some("0"));
}
