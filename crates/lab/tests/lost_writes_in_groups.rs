//! With `settle_lost_writes` a write whose answer was lost with the primary of a group is looked up on the new one.
//!
//! Its row is there once, and on all members. The first test, without a proxy, shows what a group does with a GTID that is used twice.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::Peer;
use lab::client::Encoding;
use lab::tidegate::Setting;
use lab::topology::{OFFLINE, Topology, WRITER, layout};
use lab::{Client, ConnectOptions, Group, Network, Options, Tidegate, wait};

const LIMIT: Duration = Duration::from_secs(60);
const BOTH: [Encoding; 2] = [Encoding::Text, Encoding::Binary];
/// Rows of one id that are there twice can be told apart.
const TABLE: &str = "CREATE TABLE test.w(id INT, v INT DEFAULT 0, salt BINARY(16) DEFAULT (UUID_TO_BIN(UUID())), PRIMARY KEY(id, salt))";

/// One group at a time: members notice a lost one by the clock.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A group whose first member is primary, and a proxy before it.
struct Bed {
    // Dropped first, so that it does not complain of lost servers.
    proxy: Tidegate,
    topology: Topology,
}

impl Bed {
    fn new(group: Group, settings: &[(&str, Setting)]) -> Bed {
        group.members[0].sql(TABLE).unwrap();
        let topology = Topology::Group(group);
        let builder = topology.proxied().variable("settle_lost_writes", true).variable("connect_timeout_server_max", 60_000);
        let proxy = settings.iter().fold(builder, |builder, (name, value)| builder.variable(name, value.clone())).start().unwrap();
        let bed = Bed { proxy, topology };
        bed.wait_place(0, WRITER);
        bed
    }

    /// Members that can be cut off; None where networks cannot be made.
    fn apart(settings: &[(&str, Setting)]) -> Option<Bed> {
        if !Network::possible() {
            eprintln!("not tested: networks need root and the program ip");
            return None;
        }
        Some(Bed::new(Group::start_apart(3, &Options::new()).unwrap(), settings))
    }

    fn group(&self) -> &Group {
        let Topology::Group(group) = &self.topology else { unreachable!("a group was started") };
        group
    }

    fn peer(&self, encoding: Encoding) -> Peer {
        Peer::with(&self.proxy.options("app", "app-pass").database("test").timeout(LIMIT), encoding)
    }

    fn wait_place(&self, index: usize, hostgroup: i64) {
        let port = self.group().members[index].port().to_string();
        let is_there = || layout(&self.proxy).unwrap().iter().any(|p| p.hostgroup == hostgroup && p.server.ends_with(&port));
        wait::until("the member's place", LIMIT, || is_there().then_some(())).unwrap();
    }

    /// Waits until the member has so many statements of `app` that wait for the group.
    fn wait_committing(&self, index: usize, count: usize) {
        let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND state='waiting for handler commit'";
        let member = &self.group().members[index];
        let waiting = || member.scalar(sql).unwrap().filter(|n| *n == count.to_string());
        wait::until("commits that wait", LIMIT, waiting).unwrap();
    }

    /// Applied, not applied, undecided.
    fn settled(&self) -> [u64; 3] {
        let mut admin = self.proxy.admin().unwrap();
        ["applied", "not_applied", "undecided"].map(|outcome| {
            let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='tidegate_lost_writes_{outcome}'");
            admin.scalar(sql).unwrap().unwrap().parse().unwrap()
        })
    }

    /// The ids of the table on a member.
    fn ids(&self, index: usize) -> String {
        self.group().members[index].scalar("SELECT GROUP_CONCAT(id ORDER BY id) FROM test.w").unwrap().unwrap_or_default()
    }
}

/// A single write, and one in a transaction.
fn two_writers(bed: &Bed) -> Vec<JoinHandle<()>> {
    let [mut alone, mut in_transaction] = [(); 2].map(|()| bed.peer(Encoding::Text));
    in_transaction.exec_all(&["BEGIN", "INSERT INTO w(id) VALUES(2)"]);
    let alone = thread::spawn(move || {
        assert_eq!(alone.exec("INSERT INTO w(id) VALUES(1)").ok().unwrap().affected_rows, 1);
        alone.exec("INSERT INTO w(id) VALUES(11)");
    });
    let in_transaction = thread::spawn(move || in_transaction.exec_all(&["COMMIT", "INSERT INTO w(id) VALUES(12)"]));
    vec![alone, in_transaction]
}

/// A GTID in doubt is never used while a member may still have to apply it, and this test shows why: the group accepts it.
///
/// The member applies it, the other members refuse it, and their data differ from then on.
#[test]
fn a_group_does_not_refuse_a_gtid_that_its_member_has_still_to_apply() {
    let _alone = alone();
    const GTID: &str = "11111111-2222-4333-8444-555555555555:1";
    let several = ["--loose-group-replication-single-primary-mode=OFF", "--loose-group-replication-enforce-update-everywhere-checks=ON"];
    let group = Group::start(2, &Options::new().args(several)).unwrap();
    group.members[0].sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    group.members[0].sql("CREATE TABLE test.u(i INT PRIMARY KEY)").unwrap();
    let count = |index: usize, table: &str| group.members[index].scalar(&format!("SELECT COUNT(*) FROM test.{table}")).ok().flatten();
    wait::until("the tables", LIMIT, || count(1, "u")).unwrap();
    let session = |index: usize| Client::connect(&ConnectOptions::unix(group.members[index].socket(), "root", "").timeout(LIMIT)).unwrap();
    let under_it = |index: usize, sql: &str| {
        let mut client = session(index);
        let all = [format!("SET gtid_next='{GTID}'"), "BEGIN".into(), sql.into(), "COMMIT".into(), "SET gtid_next='AUTOMATIC'".into()];
        all.iter().for_each(|sql| _ = client.run(sql).unwrap());
    };
    // The second member cannot apply changes of t. The transaction depends on such a change, so no session owns its GTID.
    let mut lock = session(1);
    lock.run("LOCK TABLES test.t WRITE").unwrap();
    group.members[0].sql("INSERT INTO test.t VALUES(1)").unwrap();
    under_it(0, "UPDATE test.t SET i=2");
    let received =
        format!("SELECT SUM(GTID_SUBSET('{GTID}', RECEIVED_TRANSACTION_SET)) FROM performance_schema.replication_connection_status");
    let is_there = || group.members[1].scalar(&received).unwrap().filter(|n| n == "1");
    wait::until("it to be received", LIMIT, is_there).unwrap();
    under_it(1, "INSERT INTO test.u VALUES(1)");
    lock.run("UNLOCK TABLES").unwrap();
    let two = |index: usize| group.members[index].scalar("SELECT i FROM test.t").unwrap().unwrap_or_default();
    wait::until("the row", LIMIT, || (!two(1).is_empty()).then_some(())).unwrap();
    thread::sleep(Duration::from_millis(500));
    let seen = [0, 1].map(|index| (two(index), count(index, "u").unwrap()));
    println!("{seen:?}");
    assert_eq!(seen, [("2".into(), "0".into()), ("1".into(), "1".into())], "the members agree: look at session/fence.rs again");
}

/// Writers of all sorts, and the primary dies among them, several times.
#[test]
fn a_primary_that_dies_costs_nobody_an_error_and_no_row() {
    let _alone = alone();
    const EACH: usize = 4;
    let rounds = std::env::var("LAB_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let bed = Bed::new(Group::start(3, &Options::new()).unwrap(), &[("transaction_replay", true.into())]);
    let group = bed.group();
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        // Whether the new primary holds writes back until it has applied all received transactions.
        let consistency = ["BEFORE_ON_PRIMARY_FAILOVER", "EVENTUAL"][round % 2];
        for member in &group.members {
            member.sql(&format!("SET GLOBAL group_replication_consistency='{consistency}'")).unwrap();
        }
        let stop = AtomicBool::new(false);
        let work = |n: usize, encoding: Encoding, in_transaction: bool| {
            let mut peer = bed.peer(encoding);
            let mut done = Vec::new();
            for i in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return done;
                }
                let id = (round * 100 + n) * 10_000 + i;
                let insert = format!("INSERT INTO w(id) VALUES({id})");
                if in_transaction {
                    peer.exec_all(&["BEGIN", &insert, &format!("UPDATE w SET v = v + 1 WHERE id={id}"), "COMMIT"]);
                } else {
                    peer.exec(&insert);
                }
                done.push(id);
            }
            done
        };
        let primary = group.primary().unwrap();
        let done: Vec<usize> = thread::scope(|scope| {
            let sorts = (0..EACH * 4).map(|n| (n, BOTH[n % 2], n % 4 < 2));
            let writers: Vec<_> = sorts.map(|(n, encoding, transaction)| scope.spawn(move || work(n, encoding, transaction))).collect();
            thread::sleep(Duration::from_millis(300 + 70 * (round as u64 % 5)));
            group.members[primary].kill9();
            let others: Vec<usize> = (0..3).filter(|index| *index != primary).collect();
            let new = group.wait_primary_among(&others).unwrap();
            bed.wait_place(new, WRITER);
            thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        let settled = bed.settled();
        println!("round {round}, {consistency}: {} writes, settled so far (applied, not applied, undecided): {settled:?}", done.len());
        assert_eq!(settled[2], 0);
        acknowledged.extend(done);
        group.bring_back(primary).unwrap();
    }
    acknowledged.sort_unstable();
    for (index, member) in group.members.iter().enumerate() {
        let all = || member.scalar("SELECT COUNT(*) FROM test.w").unwrap().filter(|n| *n == acknowledged.len().to_string());
        wait::until(&format!("the rows on member {index}"), LIMIT, all).unwrap();
        let rows = member.sql("SELECT id FROM test.w ORDER BY id").unwrap().table().unwrap();
        let there: Vec<usize> = rows.into_iter().flatten().flatten().map(|id| id.parse().unwrap()).collect();
        assert!(there == acknowledged, "member {index}: every acknowledged row once, and no other");
        assert_eq!(member.scalar("SELECT COUNT(*) FROM test.w WHERE v > 1").unwrap().as_deref(), Some("0"));
    }
    assert!(bed.settled()[..2].iter().sum::<u64>() > 0, "no write was in flight: the test shows nothing");
}

/// The primary is cut off in both directions: its commits wait for ever. They are not applied, and done again.
#[test]
fn what_a_primary_that_is_cut_off_never_sent_is_done_by_the_next() {
    let _alone = alone();
    let Some(bed) = Bed::apart(&[("transaction_replay", true.into()), ("demotion_grace_ms", 500.into())]) else { return };
    let site = &bed.group().network().unwrap().sites[0];
    let writers = cut_and_write(&bed, || site.cut_from_group(true).unwrap());
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let new = bed.group().wait_primary_among(&[1, 2]).unwrap();
    assert_eq!((bed.ids(new).as_str(), bed.settled()), ("1,2,11,12", [0, 2, 0]));
}

/// Its last messages were heard: the group has committed what its primary never will.
#[test]
fn what_a_primary_that_is_cut_off_said_last_is_found() {
    let _alone = alone();
    let Some(bed) = Bed::apart(&[("demotion_grace_ms", 500.into())]) else { return };
    let sites = &bed.group().network().unwrap().sites;
    let writers = cut_and_write(&bed, || sites[0].deafen(sites, true).unwrap());
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let new = bed.group().wait_primary_among(&[1, 2]).unwrap();
    assert_eq!((bed.ids(new).as_str(), bed.settled()), ("1,2,11,12", [2, 0, 0]));
}

/// The same, and the member leaves by itself: error 3100 is no proof, and reaches no client.
#[test]
fn the_word_of_a_member_that_leaves_is_looked_up() {
    let _alone = alone();
    let Some(bed) = Bed::apart(&[("demotion_grace_ms", 30_000.into())]) else { return };
    let sites = &bed.group().network().unwrap().sites;
    bed.group().members[0].sql("SET GLOBAL group_replication_unreachable_majority_timeout=3").unwrap();
    let writers = cut_and_write(&bed, || sites[0].deafen(sites, true).unwrap());
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let new = bed.group().wait_primary_among(&[1, 2]).unwrap();
    assert_eq!((bed.ids(new).as_str(), bed.settled()), ("1,2,11,12", [2, 0, 0]));
    bed.wait_place(0, OFFLINE);
}

/// A transaction that no group accepts is refused as without the setting, and at once.
#[test]
fn what_is_too_large_for_the_group_is_told() {
    let _alone = alone();
    let bed = Bed::new(Group::start(1, &Options::new()).unwrap(), &[]);
    bed.group().members[0].sql("ALTER TABLE test.w ADD COLUMN t LONGTEXT").unwrap();
    bed.group().members[0].sql("SET GLOBAL group_replication_transaction_size_limit=10000").unwrap();
    let large = "INSERT INTO w(id, t) VALUES(1, REPEAT('x', 100000))";
    for encoding in BOTH {
        let mut peer = bed.peer(encoding);
        assert_eq!(peer.fails(large), 3100, "{encoding:?}");
        peer.exec_all(&["BEGIN", large]);
        assert_eq!(peer.fails("COMMIT"), 3100, "{encoding:?}");
        assert_eq!(peer.get("SELECT COUNT(*) FROM w"), "0", "{encoding:?}: the session goes on");
    }
    assert_eq!(bed.settled(), [0, 4, 0]);
}

/// Cuts the primary off, and has two writers wait for it.
fn cut_and_write(bed: &Bed, cut: impl FnOnce()) -> Vec<JoinHandle<()>> {
    // Connections that are open; a new one is asked which member it is on, which a member that is cut off still answers.
    let mut warm = bed.peer(Encoding::Text);
    warm.exec_all(&["BEGIN", "SELECT 1", "COMMIT"]);
    cut();
    let writers = two_writers(bed);
    bed.wait_committing(0, 2);
    writers
}

/// A member that leaves its group refuses every commit with 3100 until it has left, and its own check hangs meanwhile.
///
/// Statements under way there may fail, and no new ones go there.
#[test]
fn nobody_new_is_sent_to_a_primary_that_leaves_its_group() {
    const WRITERS: usize = 4;
    let _alone = alone();
    let bed = Bed::new(Group::start(3, &Options::new()).unwrap(), &[("settle_lost_writes", false.into())]);
    let is_over = AtomicBool::new(false);
    let write = |n: usize| {
        let mut client = bed.proxy.connect_app().unwrap();
        let (mut applied, mut errors) = (Vec::new(), Vec::new());
        for id in (n * 1_000_000..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
            match client.query(format!("INSERT INTO w(id) VALUES({id})")).unwrap().err() {
                None => applied.push(id),
                Some(error) => errors.push(error.code),
            }
            thread::sleep(Duration::from_millis(10));
        }
        (applied, errors)
    };
    let told: Vec<(Vec<usize>, Vec<u16>)> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || write(n))).collect();
        thread::sleep(Duration::from_secs(1));
        bed.group().leave(0).unwrap();
        bed.group().wait_primary_among(&[1, 2]).unwrap();
        thread::sleep(Duration::from_secs(2));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let errors: Vec<u16> = told.iter().flat_map(|(_, errors)| errors.clone()).collect();
    println!("errors: {errors:?}");
    assert!(errors.len() <= 2 * WRITERS, "{errors:?}");
    let new = bed.group().wait_primary_among(&[1, 2]).unwrap();
    let rows = bed.group().members[new].sql("SELECT id FROM test.w").unwrap().table().unwrap();
    let there: HashSet<String> = rows.into_iter().flatten().flatten().collect();
    assert!(told.iter().flat_map(|(applied, _)| applied).all(|id| there.contains(&id.to_string())), "acknowledged and lost");
}
