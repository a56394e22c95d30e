//! Servers that do not follow the writer: which of them may come back, and what is proved of them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use model::{HostgroupId, ServerAddr};
use topology::healing::{
    Channel, Facts, Holding, LinkState, LinkThread, Primary, Proof, Replica, ServerVersion, Standing, Tended, Trail, next, prove, tend,
};
use topology::{Fork, GtidSet, ServerId};

fn addr(name: &str) -> ServerAddr {
    ServerAddr { host: name.into(), port: 3306 }
}

fn set(text: &str) -> GtidSet {
    GtidSet::parse(text).unwrap()
}

const MARIADB: ServerVersion = ServerVersion { is_mariadb: true, number: (10, 11, 6) };
const MYSQL: ServerVersion = ServerVersion { is_mariadb: false, number: (9, 7, 0) };

fn mariadb(id: u64, has: &str) -> Holding {
    Holding { id: ServerId::new(Some(id), None), version: MARIADB, executed: set(has), tells: true, is_strict: true, ..Holding::default() }
}

fn mysql(uuid: &str, has: &str) -> Holding {
    Holding { id: ServerId::new(Some(1), Some(uuid)), version: MYSQL, executed: set(has), tells: true, ..Holding::default() }
}

fn fork(heir: &str, had: &str) -> Fork {
    Fork { writer: HostgroupId(0), heir: addr(heir), at_ms: 0, from: vec![addr("a")], had: set(had), is_exact: true, is_noted: false }
}

fn word(proof: &Proof) -> String {
    match proof {
        Proof::Clean => "clean".into(),
        Proof::Extra(extra) => format!("extra {extra}"),
        Proof::Purged(purged) => format!("purged {purged}"),
        Proof::Unknown(why) => format!("unknown {why}"),
    }
}

#[test]
fn mysql_compares_sets() {
    let table = [
        ("aa:1-5", "aa:1-5,bb:1-3", "", "clean"),
        ("aa:1-7", "aa:1-5,bb:1-3", "", "extra aa:6-7"),
        ("aa:1-4:6", "aa:1-5,bb:1-3", "", "extra aa:6"),
        ("aa:1-5,bb:1-3,cc:1", "aa:1-5,bb:1-3", "", "extra cc:1"),
        ("aa:1-5", "aa:1-5,bb:1-3", "aa:1-5,bb:1", "purged bb:1"),
        ("aa:1-5", "aa:1-5,bb:1-3", "aa:1-5", "clean"),
        ("aa:1-7", "aa:1-5,bb:1-3", "bb:1", "extra aa:6-7"),
        ("", "bb:1-3", "", "clean"),
        ("", "bb:1-3", "bb:1", "purged bb:1"),
    ];
    for (old, new, purged, wanted) in table {
        let writer = Holding { purged: set(purged), ..mysql("bb", new) };
        assert_eq!(word(&prove(&mysql("aa", old), &writer, None, &[], true)), wanted, "{old} against {new} without {purged}");
    }
}

/// Server 1 wrote, 2 took over. `had` is what 2 had then; empty if nobody saw it.
#[test]
fn mariadb_compares_by_who_wrote_and_by_the_fork() {
    let table = [
        // The old one's last numbers are those that the new one had.
        ("0-1-5", "0-1-5,0-2-8", "0-1-5", true, "clean"),
        ("0-1-5,0-2-3", "0-1-5,0-2-8", "0-1-5,0-2-3", true, "clean"),
        // 6 and 7 are nowhere else, though the new one has 8.
        ("0-1-7", "0-1-5,0-2-8", "0-1-5", true, "extra 0-1-7"),
        ("0-1-7", "0-1-5,0-2-8", "", true, "extra 0-1-7"),
        // Flips: the old one's numbers came back later by another way. Only the fork knows.
        ("0-1-7,0-3-9", "0-1-10,0-2-12,0-3-9", "0-1-5,0-3-9", true, "extra 0-1-7"),
        ("0-1-7,0-3-9", "0-1-10,0-2-12,0-3-9", "0-1-7,0-3-9", true, "clean"),
        // It wrote for the first time, and nobody got it.
        ("0-1-6,0-2-5", "0-2-8", "0-2-5", true, "extra 0-1-6"),
        ("0-1-6,0-2-5", "0-2-8", "0-2-5", false, "unknown the writer names no transaction of these servers"),
        // What another former writer wrote.
        ("0-1-5,0-3-9", "0-1-5,0-3-10,0-2-12", "0-1-5,0-3-8", true, "extra 0-3-9"),
        ("0-1-5,7-9-4", "0-1-5,0-2-8,7-9-4", "0-1-5", true, "clean"),
        ("0-1-5,7-9-5", "0-1-5,0-2-8,7-9-4", "0-1-5", true, "extra 7-9-5"),
    ];
    for (old, new, had, is_former, wanted) in table {
        let fork = (!had.is_empty()).then(|| fork("b", had));
        let third = [ServerId::new(Some(3), None)];
        let said = word(&prove(&mariadb(1, old), &mariadb(2, new), fork.as_ref(), &third, is_former));
        assert!(said.starts_with(wanted), "{old} against {new}, fork {had}: {said}");
    }
}

#[test]
fn what_cannot_be_told_is_not_clean() {
    let (old, new) = (mariadb(1, "0-1-5"), mariadb(2, "0-1-5,0-2-8"));
    let loose = Holding { is_strict: false, ..new.clone() };
    let said = |old: &Holding, new: &Holding| word(&prove(old, new, None, &[], true));
    assert_eq!(said(&old, &new), "clean", "a strict writer would refuse it");
    assert!(said(&old, &loose).contains("gtid_strict_mode of the writer is OFF"));
    assert_eq!(word(&prove(&old, &loose, Some(&fork("b", "0-1-5")), &[], true)), "clean", "the fork proves it");
    assert!(said(&Holding { tells: false, ..old.clone() }, &new).contains("no binary log"));
    assert!(said(&old, &Holding { tells: false, ..new.clone() }).contains("the writer writes no GTIDs"));
    assert!(said(&mysql("aa", ""), &new).contains("another kind"));
    assert!(said(&mariadb(2, "0-1-5"), &new).contains("the writer's own"), "the present writer is never taken back");
    assert!(said(&mysql("BB", "bb:1"), &mysql("bb", "bb:1")).contains("the writer's own"));
    assert!(said(&Holding { id: ServerId::default(), ..old }, &new).contains("does not tell"));
}

fn thread(state: LinkState, error: Option<u64>) -> LinkThread {
    LinkThread { state, error }
}

fn from(source: &str) -> Channel {
    Channel {
        name: String::new(),
        source: addr(source),
        is_from_primary: source == "b",
        is_by_gtid: true,
        position: String::new(),
        receiver: thread(LinkState::Runs, None),
        applier: thread(LinkState::Runs, None),
        delay_s: 0,
        has_filters: false,
        lag_ms: Some(0),
        heard_ms: None,
        heartbeat_ms: None,
    }
}

fn server(name: &str, number: u64, channel: Option<Channel>) -> Replica {
    Replica {
        silence: None,
        id: ServerId::new(Some(number), None),
        version: MARIADB,
        executed: set("0-1-5,0-2-6"),
        received: set("0-1-5,0-2-6"),
        has_gtids: true,
        logs: true,
        channels: usize::from(channel.is_some()),
        channel,
        ..Replica::silent(addr(name), "")
    }
}

/// `b` writes.
fn cluster(replicas: Vec<Replica>) -> Facts {
    let primary = Primary {
        addr: addr("b"),
        id: ServerId::new(Some(2), None),
        version: MARIADB,
        executed: Some(set("0-1-5,0-2-8")),
        latest: None,
        purged: GtidSet::default(),
        acknowledged: GtidSet::default(),
        is_strict: true,
        semi_sync: None,
        age_ms: 0,
        site: "".into(),
    };
    Facts { primary: Some(primary), is_alive: true, replicas }
}

fn seasoned() -> Trail {
    Trail { astray_ms: 60_000, ..Trail::default() }
}

fn judged(replicas: Vec<Replica>, name: &str, trail: Trail) -> Tended {
    let facts = cluster(replicas);
    let all = tend(&facts, &BTreeMap::from([(addr(name), trail)]), Some(&fork("b", "0-1-5")), None);
    all.into_iter().find(|one| &*one.addr.host == name).unwrap()
}

fn alone(replica: Replica, trail: Trail) -> (Standing, bool, bool, String) {
    let name = replica.addr.host.to_string();
    let one = judged(vec![replica], &name, trail);
    (one.standing, one.is_out, one.is_due, one.why)
}

#[test]
fn a_former_writer_is_closed_and_ended_before_it_is_believed() {
    let former = || Trail { is_former: true, ..seasoned() };
    let ahead = |replica: Replica| Replica { received: set("0-1-7"), executed: set("0-1-7"), ..replica };
    for is_open in [true, false] {
        let old = Replica { is_open, ..ahead(server("a", 1, None)) };
        let found = judged(vec![old.clone()], "a", former());
        assert_eq!((found.standing, found.is_due, found.is_out), (Standing::Outcast, true, true), "{}", found.why);
        let (standing, is_out, is_due, why) = alone(old, Trail { is_settled: true, ..former() });
        assert_eq!((standing, is_out, is_due), (Standing::Errant, true, false), "{why}");
        assert!(why.ends_with("0-1-7"), "{why}");
    }
    let clean = server("a", 1, None);
    assert_eq!(alone(clean.clone(), Trail { is_settled: true, ..former() }).0, Standing::Outcast);
    let stopped = Channel { receiver: thread(LinkState::Stopped, None), applier: thread(LinkState::Stopped, None), ..from("b") };
    let left = Trail { is_left: true, ..former() };
    let (standing, is_out, is_due, why) = alone(server("a", 1, Some(stopped.clone())), left.clone());
    assert_eq!((standing, is_out, is_due), (Standing::Outcast, true, false), "somebody may have stopped it: {why}");
    assert!(why.starts_with("somebody stopped its replication"), "{why}");
    assert!(alone(server("a", 1, Some(stopped.clone())), former()).2, "nobody did");
    let elsewhere = Channel { is_from_primary: false, source: addr("c"), ..stopped.clone() };
    let old_times = judged(vec![server("a", 1, Some(elsewhere)), server("c", 3, Some(from("b")))], "a", left.clone());
    assert!(old_times.is_due, "it wrote, so its channel is of old times: {}", old_times.why);
    assert_eq!(alone(server("a", 1, Some(stopped)), Trail { is_former: false, ..left }).0, Standing::Left);
    let open = Replica { is_open: true, ..clean };
    let (standing, is_out, is_due, why) = alone(open.clone(), seasoned());
    assert_eq!((standing, is_out, is_due), (Standing::Left, false, false), "it wrote, but nobody saw it write for the cluster: {why}");
    for (state, wanted) in [(LinkState::Runs, false), (LinkState::Stopped, true)] {
        let follower = server("c", 3, Some(Channel { receiver: thread(state, None), ..from("a") }));
        let held = judged(vec![open.clone(), follower], "a", former());
        assert_eq!((held.standing, held.is_out, held.is_due), (Standing::Outcast, true, wanted), "{}", held.why);
        assert_eq!(held.why.contains("c:3306 replicates from it"), !wanted, "{}", held.why);
    }
    let silent_follower = Replica { channel: Some(from("a")), ..Replica::silent(addr("c"), "dead") };
    assert!(judged(vec![open, silent_follower], "a", former()).is_due, "nobody knows whether it still does");
    let silent = Replica::silent(addr("a"), "refused");
    assert_eq!(alone(silent.clone(), former()).0, Standing::Silent);
    assert!(alone(silent, former()).1, "when it comes back it serves nothing before it is proved");
}

/// Its channel runs, started by itself or by an operator: it follows only if it has nothing else.
#[test]
fn a_former_writer_that_replicates_is_proved_too() {
    let table = [
        ("0-1-5,0-2-8", Standing::Follows, ""),
        ("0-1-7,0-2-8", Standing::Errant, "it has transactions that b:3306 lacks: 0-1-7"),
        ("0-1-5,0-2-8,0-9-6", Standing::Unknown, "the writer names no transaction of these servers"),
    ];
    let former = Trail { is_former: true, ..seasoned() };
    for (has, wanted, starts) in table {
        let one = Replica { received: set(has), executed: set(has), ..server("a", 1, Some(from("b"))) };
        let (standing, is_out, is_due, why) = alone(one.clone(), former.clone());
        assert_eq!((standing, is_out, is_due), (wanted, wanted != Standing::Follows, false), "{has}: {why}");
        assert!(why.starts_with(starts), "{has}: {why}");
        assert_eq!(alone(one, seasoned()).0, Standing::Follows, "a replica that never wrote");
    }
}

#[test]
fn what_a_server_without_a_binary_log_wrote_is_not_known() {
    let is_mysql = |replica: Replica| Replica { version: MYSQL, logs: false, ..replica };
    let mut facts = cluster(vec![is_mysql(server("c", 3, Some(from("c"))))]);
    let told = |facts: &Facts, is_former| {
        let trail = Trail { is_former, is_settled: true, ..seasoned() };
        tend(facts, &BTreeMap::from([(addr("c"), trail)]), None, None).remove(0)
    };
    if let Some(primary) = &mut facts.primary {
        (primary.version, primary.executed) = (MYSQL, Some(set("aa:1-5")));
    }
    facts.replicas[0].received = set("aa:1-5");
    assert_eq!(told(&facts, false).standing, Standing::Stray, "a closed replica has what it received");
    let former = told(&facts, true);
    assert_eq!((former.standing, former.is_out, former.is_due), (Standing::Unknown, true, false), "{}", former.why);
    assert!(former.why.contains("has no binary log"), "{}", former.why);
    facts.replicas[0].logs = true;
    assert_eq!(told(&facts, true).standing, Standing::Outcast);
}

#[test]
fn two_servers_with_one_id_prove_nothing() {
    let twin = |id: ServerId| word(&prove(&mariadb(1, "0-1-5"), &mariadb(2, "0-1-5,0-2-8"), None, &[id], true));
    assert_eq!(twin(ServerId::new(Some(3), None)), "clean");
    assert!(twin(ServerId::new(Some(1), None)).contains("another server has the same server_uuid or server_id"));
    let (old, new) = (mysql("aa", "aa:1"), mysql("bb", "aa:1"));
    assert!(word(&prove(&old, &new, None, &[ServerId::new(Some(9), Some("AA"))], true)).contains("another server has the same"));
    assert_eq!(word(&prove(&old, &new, None, &[ServerId::new(Some(1), Some("cc"))], true)), "clean", "a uuid tells more");
}

#[test]
fn strays_and_others() {
    let with = |change: &dyn Fn(&mut Channel), source: &str| {
        let mut channel = from(source);
        change(&mut channel);
        alone(server("c", 3, Some(channel)), seasoned())
    };
    let is = |found: (Standing, bool, bool, String), standing: Standing, is_due: bool| {
        assert_eq!((found.0, found.1, found.2), (standing, false, is_due), "{}", found.3);
    };
    is(with(&|_| {}, "b"), Standing::Follows, false);
    is(with(&|_| {}, "far"), Standing::Left, false);
    let broken = |channel: &mut Channel| channel.applier = thread(LinkState::Stopped, Some(1_062));
    is(with(&broken, "b"), Standing::Left, false);
    is(with(&broken, "c"), Standing::Left, false);
    is(with(&|channel| channel.is_by_gtid = false, "c"), Standing::Left, false);
    is(with(&|channel| channel.is_by_gtid = false, "b"), Standing::Follows, false);
    let by_file = with(&|channel| (channel.is_by_gtid, channel.receiver) = (false, thread(LinkState::Stopped, None)), "b");
    assert!(by_file.3.contains("switch it to GTIDs"), "{}", by_file.3);
    is(by_file, Standing::Left, false);
    let lost = |channel: &mut Channel| channel.receiver = thread(LinkState::Connecting, Some(2_003));
    is(with(&lost, "c"), Standing::Stray, true);
    is(with(&|channel| channel.receiver = thread(LinkState::Stopped, Some(1_236)), "b"), Standing::Left, false);
    is(with(&|channel| channel.receiver = thread(LinkState::Stopped, None), "b"), Standing::Stray, true);
    is(alone(server("c", 3, None), seasoned()), Standing::Stray, true);
    is(alone(server("c", 3, None), Trail { is_left: true, ..seasoned() }), Standing::Left, false);
    let mut stopped = from("a");
    stopped.receiver = thread(LinkState::Stopped, None);
    let a = || server("a", 1, Some(from("b")));
    let left = judged(vec![a(), server("c", 3, Some(stopped.clone()))], "c", Trail { is_left: true, ..seasoned() });
    is((left.standing, left.is_out, left.is_due, left.why), Standing::Left, false);
    let chain = judged(vec![a(), server("c", 3, Some(from("a")))], "c", seasoned());
    is((chain.standing, chain.is_out, chain.is_due, chain.why), Standing::Follows, false);
    let dead = judged(vec![Replica::silent(addr("a"), "refused"), server("c", 3, Some(from("a")))], "c", seasoned());
    is((dead.standing, dead.is_out, dead.is_due, dead.why), Standing::Stray, true);
    let ring = judged(vec![server("a", 1, Some(from("c"))), server("c", 3, Some(from("a")))], "c", seasoned());
    is((ring.standing, ring.is_out, ring.is_due, ring.why), Standing::Stray, true);
    let ahead = Replica { received: set("0-1-7"), ..server("c", 3, Some(from("c"))) };
    is(alone(ahead, seasoned()), Standing::Errant, false);
    is(alone(Replica { is_open: true, ..server("c", 3, Some(from("c"))) }, seasoned()), Standing::Left, false);
    is(alone(Replica { channels: 2, ..server("c", 3, Some(from("c"))) }, seasoned()), Standing::Left, false);
}

#[test]
fn brakes() {
    let stray = |trail: Trail| {
        let (standing, _, is_due, why) = alone(server("c", 3, Some(from("c"))), trail);
        (standing, is_due, why)
    };
    let tried = |failures, tried_ms| Trail { failures, tried_ms: Some(tried_ms), failed: "no".into(), ..seasoned() };
    assert!(!stray(Trail { astray_ms: 9_999, ..Trail::default() }).1 && stray(Trail { astray_ms: 10_000, ..Trail::default() }).1);
    // Once a minute each; later after failures.
    for (failures, tried_ms, is_due) in
        [(0, 59_999, false), (0, 60_000, true), (1, 59_999, false), (1, 60_000, true), (2, 59_999, false), (2, 60_000, true)]
    {
        assert_eq!(stray(tried(failures, tried_ms)).1, is_due, "{failures} {tried_ms}");
    }
    let given_up = stray(tried(3, 1_000_000));
    assert_eq!((given_up.0, given_up.1), (Standing::Failed, false));
    assert!(given_up.2.contains("ADOPT SERVER") && given_up.2.ends_with("The last attempt failed: no"), "{}", given_up.2);
    let former = |failures, tried_ms| alone(server("a", 1, None), Trail { is_former: true, ..tried(failures, tried_ms) }).2;
    for (failures, tried_ms, is_due) in
        [(0, 4_999, false), (0, 5_000, true), (1, 29_999, false), (1, 30_000, true), (2, 59_999, false), (2, 60_000, true)]
    {
        assert_eq!(former(failures, tried_ms), is_due, "{failures} {tried_ms}");
    }
    let facts = cluster(vec![server("a", 1, None), server("c", 3, Some(from("c")))]);
    let trails = BTreeMap::from([(addr("a"), Trail { is_former: true, ..seasoned() }), (addr("c"), seasoned())]);
    let paused = tend(&facts, &trails, Some(&fork("b", "0-1-5")), Some("a switchover is under way"));
    assert!(next(&facts, &paused).is_none() && paused.iter().all(|one| one.why.ends_with("a switchover is under way")), "{paused:?}");
    assert!(paused[0].is_out, "it serves nothing all the same");
}

#[test]
fn former_writers_come_first_and_ackers_last() {
    let acker = |name: &str, number| Replica { is_acker: true, ..server(name, number, Some(from("z"))) };
    let stray = |name: &str, number| server(name, number, Some(from("z")));
    let z = || Replica::silent(addr("z"), "dead");
    let mut servers = vec![acker("c", 3), stray("d", 4), server("e", 1, None), z()];
    for wanted in ["e", "d", "c"] {
        let facts = cluster(servers.clone());
        let trails = |one: &Replica| (one.addr.clone(), Trail { is_former: &*one.addr.host == "e", ..seasoned() });
        let all = tend(&facts, &facts.replicas.iter().map(trails).collect(), Some(&fork("b", "0-1-5")), None);
        assert_eq!(next(&facts, &all).map(|one| &*one.addr.host), Some(wanted));
        servers.retain(|one| &*one.addr.host != wanted);
    }
}

/// Every state of a channel, what was seen of the server, and what it has: nothing is due that is not clean, and the writer is no candidate.
#[test]
fn nothing_is_done_without_a_proof() {
    use LinkState::{Connecting, Runs, Stopped};
    const STATES: [LinkState; 3] = [Stopped, Connecting, Runs];
    let mut due = 0;
    for number in 0..3 * 3 * 3 * 3 * 2 * 2 * 2 * 2 * 3 {
        let digit = |base: usize, place: usize| number / place % base;
        let error = [None, Some(2_003), Some(1_062)][digit(3, 1)];
        let (receiver, applier) = (STATES[digit(3, 3)], STATES[digit(3, 9)]);
        let source = ["b", "a", "far"][digit(3, 27)];
        let flag = |place: usize| digit(2, place) == 1;
        let (is_former, is_left, is_settled, is_open) = (flag(81), flag(162), flag(324), flag(648));
        let has = ["0-1-5", "0-1-7", "0-1-5,0-9-6"][digit(3, 1_296)];
        let channel = Channel { receiver: thread(receiver, error), applier: thread(applier, error), ..from(source) };
        let one = Replica { received: set(has), executed: set(has), is_open, ..server("c", 1, Some(channel)) };
        let trail = Trail { is_former, is_left, is_settled, ..seasoned() };
        let found = judged(vec![Replica::silent(addr("a"), "dead"), one], "c", trail);
        let what = format!("{source} {receiver:?} {applier:?} {error:?} {has} former={is_former} left={is_left}: {found:?}");
        if !found.is_due {
            continue;
        }
        due += 1;
        assert!(matches!(found.standing, Standing::Outcast | Standing::Stray), "{what}");
        assert!(found.standing == Standing::Outcast || (has == "0-1-5" && !is_open), "{what}");
        assert!(has == "0-1-5" || !is_settled, "{what}");
        assert!(!(source == "b" && receiver != Stopped && applier != Stopped), "{what}");
        assert!(!(applier == Stopped && error.is_some()), "a broken applier is never touched: {what}");
        assert!(!is_left || is_former || (receiver != Stopped && applier != Stopped), "{what}");
        assert!(source != "far" || is_former, "{what}");
    }
    assert!(due > 100, "{due}");
}
