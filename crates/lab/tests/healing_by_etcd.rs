//! Several proxies with mode `full` of `mysql_healing`: etcd says which one promotes, and every proxy follows its record.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::time::Duration;

use common::LIMIT;
use common::healing::{cluster, events, full_at, full_by, healing, promoted, ready, reported, wait_for, wait_standing, with_servers};
use lab::etcd::{Etcd, Options};
use lab::failover::{Audit, Clients, Clock, Load, Peer};
use lab::fault::{Lost, Relay};
use lab::replication::{Replication, position};
use lab::tidegate::Builder;
use lab::{Flavor, Server, Tidegate, wait};
use rustix::process::Signal;

fn etcd() -> Etcd {
    Etcd::start(Options::default()).unwrap()
}

/// Two proxies that agree on the healer: it comes first.
fn proxies(etcd: &Etcd, servers: &Replication) -> [Tidegate; 2] {
    started(|| with_servers(full_by(etcd), servers))
}

fn started(builder: impl Fn() -> Builder) -> [Tidegate; 2] {
    let start = || builder().start().unwrap();
    let (one, other) = (start(), start());
    let agree = || Some(healing(&one, "healer")).filter(|healer| !healer.is_empty() && healing(&other, "healer") == *healer);
    let healer = wait::until("a healer", 2 * LIMIT, agree).unwrap();
    ready(&one);
    ready(&other);
    if is_named(&one, &healer) { [one, other] } else { [other, one] }
}

fn is_named(proxy: &Tidegate, healer: &str) -> bool {
    let name = "SELECT name FROM stats_tidegate_proxies WHERE is_this";
    proxy.admin().unwrap().scalar(name).unwrap().as_deref() == Some(healer)
}

/// The record of the cluster as etcd has it.
fn record(etcd: &Etcd) -> String {
    etcd.ctl(0, &["get", "/tidegate/main/live/heal/0/state", "--print-value-only"]).unwrap()
}

fn is_open(server: &Server) -> bool {
    server.scalar("SELECT @@global.read_only").unwrap().as_deref() == Some("0")
}

/// A row that is written through each proxy is on the new writer.
fn all_write_to(proxies: &[Tidegate; 2], heir: &Server, id: u32) {
    for (place, proxy) in (0..).zip(proxies) {
        wait_for(proxy, "SELECT verdict || writer FROM stats_tidegate_healing", &format!("alive{}", heir.address()));
        let row = id + place;
        proxy.connect_app().unwrap().run(format!("INSERT INTO test.writes(id) VALUES({row})")).unwrap();
        assert_eq!(heir.scalar(&format!("SELECT COUNT(*) FROM test.writes WHERE id = {row}")).unwrap().as_deref(), Some("1"));
    }
}

/// The writer is killed under load: the healer promotes and the other proxy follows; brakes hold for both.
fn one_of_two_promotes(flavor: Flavor) {
    let (etcd, servers) = (etcd(), cluster(flavor, 2));
    let proxies = proxies(&etcd, &servers);
    let explained = proxies[1].admin().unwrap().run("EXPLAIN HEALING HOSTGROUP 0").unwrap().table().unwrap();
    assert!(explained[0][2].as_ref().unwrap().contains("promotes, and no other proxy"), "{explained:?}");
    let clock = Clock::start();
    let [healer, other] = proxies;
    let (peer, other) = (Peer::tidegate(healer), other);
    let clients = Clients::start(Load::LIGHT, peer.route(), clock);
    wait::until("clients to write", LIMIT, || (clients.last_write_us() > 1_000_000).then_some(())).unwrap();
    servers.primary.kill9();
    let killed_us = clock.now_us();
    let healer = peer.as_tidegate().unwrap();
    let heir = promoted(healer, &servers);
    let flows = wait::until("writes", LIMIT, || Some(clients.last_write_us()).filter(|last| *last > killed_us + 1_000_000));
    println!("writes again after {:?} ms", flows.map(|last| (last - killed_us) / 1_000));
    let recording = clients.stop();
    let audit = Audit::of(&recording, heir).unwrap();
    println!("{audit:?}, reported {}\n{:#?}\n{:#?}", reported(healer), events(healer), events(&other));
    assert!(audit.rows > 0 && audit.lost <= reported(healer) && audit.doubled + audit.torn + audit.foreign == 0, "{audit:?}");
    assert!(healing(&other, "last_plan").is_empty() && !events(&other).iter().any(|event| event.contains("plan begins")));
    let third = servers.replicas.iter().find(|replica| replica.port() != heir.port()).unwrap();
    assert!(is_open(heir) && !is_open(third));
    wait_standing(&other, third, &["follows"]);
    wait::until("the other proxy's sessions", LIMIT, || other.connect_app().ok()?.run("INSERT INTO test.writes(id) VALUES(9001)").ok())
        .unwrap();
    assert_eq!(heir.scalar("SELECT COUNT(*) FROM test.writes WHERE id = 9001").unwrap().as_deref(), Some("1"));
    println!("{}", record(&etcd));
    let epoch = healing(healer, "epoch");
    wait_for(&other, "SELECT epoch FROM stats_tidegate_healing", &epoch);

    // The block after a promotion, its end, and a suspension hold for both, whichever proxy is told.
    for proxy in [healer, &other] {
        wait_for(proxy, "SELECT blocked_by LIKE '%ACKNOWLEDGE HEALING HOSTGROUP n%' FROM stats_tidegate_healing", "1");
    }
    servers.primary.restart().unwrap();
    let standing = wait_standing(healer, &servers.primary, &["follows", "errant"]);
    println!("{standing}");
    if standing == "follows" {
        wait::until("no outcast", 2 * LIMIT, || record(&etcd).contains("\"outcasts\":[]").then_some(())).unwrap();
    }
    other.admin().unwrap().run("ACKNOWLEDGE HEALING HOSTGROUP 0").unwrap();
    for proxy in [healer, &other] {
        wait_for(proxy, "SELECT blocked_by LIKE '%block_ms%' FROM stats_tidegate_healing", "0");
    }
    other.admin().unwrap().run("SUSPEND HEALING HOSTGROUP 0").unwrap();
    wait_for(healer, "SELECT ready || blocked_by LIKE '%suspended healing%' FROM stats_tidegate_healing", "1");
    wait_for(healer, "SELECT ready FROM stats_tidegate_healing", "0");
    healer.admin().unwrap().run("RESUME HEALING").unwrap();
    for proxy in [healer, &other] {
        wait_for(proxy, "SELECT blocked_by LIKE '%suspended%' FROM stats_tidegate_healing", "0");
    }
}

#[test]
fn one_of_two_promotes_mariadb() {
    one_of_two_promotes(Flavor::Mariadb);
}

#[test]
fn one_of_two_promotes_mysql() {
    one_of_two_promotes(Flavor::Mysql);
}

/// The healer freezes in the middle of its plan: the other proxy undoes what it did, promotes, and the frozen one opens nothing when it
/// wakes up.
#[test]
fn a_healer_that_freezes_is_replaced() {
    let (etcd, servers) = (etcd(), cluster(Flavor::Mariadb, 2));
    let proxies = proxies(&etcd, &servers);
    let [healer, other] = &proxies;
    // The plan waits for appliers.
    let mut holders: Vec<_> = servers.replicas.iter().map(|replica| replica.root().unwrap()).collect();
    holders.iter_mut().for_each(|holder| drop(holder.run("LOCK TABLES test.writes READ").unwrap()));
    servers.primary.sql("INSERT INTO test.writes(n, id) VALUES(1, 7)").unwrap();
    let last = position(&servers.primary).unwrap();
    let received = |replica: &Server| {
        let reply = replica.sql("SHOW ALL SLAVES STATUS").unwrap();
        reply.rows().unwrap().field(0, "Gtid_IO_Pos") == Some(last.clone())
    };
    wait::until("the row", LIMIT, || servers.replicas.iter().all(received).then_some(())).unwrap();
    servers.primary.kill9();
    let is_chosen = || events(healer).iter().any(|event| event.contains("|chosen|")).then_some(());
    wait::until("a plan", 3 * LIMIT, is_chosen).unwrap_or_else(|_| panic!("{:#?} {}", events(healer), healing(healer, "blocked_by")));
    healer.signal(Signal::STOP);
    drop(holders);
    let heir = promoted(other, &servers);
    println!("{:#?}\n{}", events(other), record(&etcd));
    let third = servers.replicas.iter().find(|replica| replica.port() != heir.port()).unwrap();
    wait_standing(other, third, &["follows"]);
    healer.signal(Signal::CONT);
    wait_for(healer, "SELECT last_plan LIKE '%was promoted by this proxy%' FROM stats_tidegate_healing", "1");
    println!("{}\n{:#?}", healing(healer, "last_plan"), events(healer));
    assert!(is_open(heir) && !is_open(third));
    all_write_to(&proxies, heir, 7_000);
    assert!(!events(healer).iter().any(|event| event.contains("|opened|")), "{:#?}", events(healer));
    assert_eq!(heir.scalar("SELECT COUNT(*) FROM test.writes WHERE id = 7").unwrap().as_deref(), Some("1"), "what was received is there");
    wait_standing(other, third, &["follows"]);
}

/// The healer freezes past the point of no return, while the statement that opens a server is on its way. The other proxy finds that server
/// closed, and promotes it by a plan of its own. Neither the late statement nor the healer that wakes up changes anything.
fn an_opening_that_is_late_opens_nothing(flavor: Flavor) {
    let (etcd, servers) = (etcd(), cluster(flavor, 1));
    let heir = &servers.replicas[0];
    let relay = Relay::to(&heir.address()).unwrap();
    let proxies = started(|| full_by(&etcd).backend(0, &servers.primary).server(0, "127.0.0.1", relay.port()));
    let [healer, other] = &proxies;
    relay.trap("SET GLOBAL read_only = IF", Lost::Command);
    servers.primary.kill9();
    let sprung = wait::until("the opening", 3 * LIMIT, || (relay.sprung() == 1).then(|| healer.signal(Signal::STOP)));
    sprung.unwrap_or_else(|_| panic!("{:#?}", events(healer)));
    assert!(record(&etcd).contains("\"phase\":\"fork\"") && !is_open(heir), "{}", record(&etcd));
    let told = || Some(healing(other, "last_plan")).filter(|told| told.contains("was promoted in place of"));
    let told = wait::until("a promotion", 4 * LIMIT, told);
    let told = told.unwrap_or_else(|_| panic!("{} {} {:#?}", record(&etcd), healing(other, "blocked_by"), events(other)));
    println!("{told}\n{:#?}", events(other));
    heir.sql("SET GLOBAL read_only=1").unwrap();
    relay.resume();
    healer.signal(Signal::CONT);
    wait_for(healer, "SELECT last_plan LIKE '%another proxy%' OR last_plan LIKE '%by this proxy%' FROM stats_tidegate_healing", "1");
    println!("{}\n{:#?}", healing(healer, "last_plan"), events(healer));
    std::thread::sleep(Duration::from_secs(2));
    assert!(!is_open(heir), "the late statement opened it");
    assert!(!events(healer).iter().any(|event| event.contains("|opened|")), "{:#?}", events(healer));
    heir.sql("SET GLOBAL read_only=0").unwrap();
    for (id, proxy) in (7_000..).zip(&proxies) {
        let writes = || proxy.connect_app().ok()?.run(format!("INSERT INTO test.writes(id) VALUES({id})")).ok();
        wait::until("writes", 2 * LIMIT, writes).unwrap();
    }
}

#[test]
fn an_opening_that_is_late_opens_nothing_mariadb() {
    an_opening_that_is_late_opens_nothing(Flavor::Mariadb);
}

#[test]
fn an_opening_that_is_late_opens_nothing_mysql() {
    an_opening_that_is_late_opens_nothing(Flavor::Mysql);
}

/// Somebody else holds the lock of healers on a replica: a proxy without etcd, or one of another prefix. Nobody ends that connection, and
/// nothing is changed until it is gone.
fn a_lock_of_others_is_left_to_them(flavor: Flavor) {
    let (etcd, servers) = (etcd(), cluster(flavor, 1));
    let proxies = proxies(&etcd, &servers);
    let healer = &proxies[0];
    let mut holder = servers.replicas[0].root().unwrap();
    assert_eq!(holder.scalar("SELECT GET_LOCK('tidegate.heal', 0)").unwrap().as_deref(), Some("1"));
    servers.primary.kill9();
    let refused = "SELECT last_plan LIKE '%holds the lock %tidegate.heal%nothing was changed' FROM stats_tidegate_healing";
    wait_for(healer, refused, "1");
    println!("{}", healing(healer, "last_plan"));
    assert_eq!(holder.scalar("SELECT IS_USED_LOCK('tidegate.heal') = CONNECTION_ID()").unwrap().as_deref(), Some("1"));
    assert!(!events(healer).iter().any(|event| event.contains("|frozen|")), "{:#?}", events(healer));
    drop(holder);
    healer.admin().unwrap().run("ACKNOWLEDGE HEALING HOSTGROUP 0").unwrap();
    let heir = promoted(healer, &servers);
    all_write_to(&proxies, heir, 7_000);
}

#[test]
fn a_lock_of_others_is_left_to_them_mariadb() {
    a_lock_of_others_is_left_to_them(Flavor::Mariadb);
}

#[test]
fn a_lock_of_others_is_left_to_them_mysql() {
    a_lock_of_others_is_left_to_them(Flavor::Mysql);
}

/// The key of the healer as etcd has it, with the revision that made it; empty while there is none.
fn leader(etcd: &Etcd) -> String {
    let key = "/tidegate/main/live/heal/0/leader";
    let told = etcd.ctl(0, &["get", key, "--write-out=fields"]).unwrap();
    told.lines().filter(|line| line.contains("CreateRevision") || line.contains("\"Value\"")).collect::<Vec<_>>().join(" ")
}

/// etcd takes 1.7 s for each answer: the healer keeps its lease, and its plan ends under it.
fn a_slow_etcd_takes_no_lease_away(flavor: Flavor) {
    let (etcd, servers) = (etcd(), cluster(flavor, 2));
    let relay = Relay::to(etcd.endpoint(0).trim_start_matches("http://")).unwrap();
    let endpoint = format!("http://127.0.0.1:{}", relay.port());
    let proxies = started(|| with_servers(full_at(&endpoint).admin_variable("shared_config_timeout", 4_000), &servers));
    let before = leader(&etcd);
    assert!(!before.is_empty());
    relay.delay(1_700);
    for _ in 0..60 {
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(healing(&proxies[0], "blocked_by"), "");
    }
    servers.primary.kill9();
    let heir = promoted(&proxies[0], &servers);
    println!("{:#?}", events(&proxies[0]));
    assert_eq!(leader(&etcd), before);
    all_write_to(&proxies, heir, 7_000);
}

#[test]
fn a_slow_etcd_takes_no_lease_away_mariadb() {
    a_slow_etcd_takes_no_lease_away(Flavor::Mariadb);
}

#[test]
fn a_slow_etcd_takes_no_lease_away_mysql() {
    a_slow_etcd_takes_no_lease_away(Flavor::Mysql);
}

/// etcd loses everything in the middle of a plan, and another proxy may become the healer at once: it begins nothing until the first one has
/// stopped, and one server is opened.
fn a_wiped_etcd_makes_no_two_healers(flavor: Flavor) {
    let (mut etcd, servers) = (etcd(), cluster(flavor, 2));
    let proxies = proxies(&etcd, &servers);
    let mut holders: Vec<_> = servers.replicas.iter().map(|replica| replica.root().unwrap()).collect();
    holders.iter_mut().for_each(|holder| drop(holder.run("LOCK TABLES test.writes READ").unwrap()));
    servers.primary.sql("INSERT INTO test.writes(n, id) VALUES(1, 7)").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    servers.primary.kill9();
    let all = |what: &str| proxies.iter().flat_map(events).filter(|event| event.contains(what)).count();
    wait::until("a plan", 3 * LIMIT, || (all("|chosen|") > 0).then_some(())).unwrap();
    etcd.start_again(0, true).unwrap();
    wait::until("a healer", 2 * LIMIT, || (!leader(&etcd).is_empty()).then_some(())).unwrap();
    wait::until("the end of the plan", LIMIT, || (all("|plan left|") > 0).then_some(())).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(all("|plan begins|"), 1, "{:#?} {:#?}", events(&proxies[0]), events(&proxies[1]));
    drop(holders);
    let is_done = |proxy: &&Tidegate| healing(proxy, "last_plan").contains("was promoted in place of");
    let done = wait::until("a promotion", 4 * LIMIT, || proxies.iter().find(is_done));
    let heir = promoted(done.unwrap_or_else(|_| panic!("{:#?} {:#?}", events(&proxies[0]), events(&proxies[1]))), &servers);
    assert_eq!((all("|opened|"), servers.replicas.iter().filter(|replica| is_open(replica)).count()), (1, 1));
    all_write_to(&proxies, heir, 7_000);
}

#[test]
fn a_wiped_etcd_makes_no_two_healers_mariadb() {
    a_wiped_etcd_makes_no_two_healers(Flavor::Mariadb);
}

#[test]
fn a_wiped_etcd_makes_no_two_healers_mysql() {
    a_wiped_etcd_makes_no_two_healers(Flavor::Mysql);
}

/// In mode `advise` no proxy holds the lease before the operator orders a promotion.
#[test]
fn an_operator_orders_a_promotion_in_mode_advise() {
    let (etcd, servers) = (etcd(), cluster(Flavor::Mariadb, 1));
    let proxies = proxies(&etcd, &servers);
    let mut admin = proxies[1].admin().unwrap();
    for sql in ["UPDATE mysql_healing SET mode='advise'", "LOAD MYSQL SERVERS TO RUNTIME"] {
        admin.run(sql).unwrap();
    }
    wait_for(&proxies[0], "SELECT mode FROM runtime_mysql_healing", "advise");
    servers.primary.kill9();
    wait_for(&proxies[1], "SELECT verdict FROM stats_tidegate_healing", "dead");
    let told = admin.run("HEAL HOSTGROUP 0");
    assert!(told.is_ok(), "{told:?} {:#?}", events(&proxies[1]));
    all_write_to(&proxies, &servers.replicas[0], 8_100);
}

/// Without etcd nobody promotes, and the tables say why; with it again, one does.
#[test]
fn nobody_promotes_without_etcd() {
    let (mut etcd, servers) = (etcd(), cluster(Flavor::Mariadb, 1));
    let proxies = proxies(&etcd, &servers);
    etcd.kill9(0);
    for proxy in &proxies {
        wait_for(proxy, "SELECT blocked_by LIKE '%without etcd no proxy promotes%' FROM stats_tidegate_healing", "1");
        proxy.connect_app().unwrap().run("INSERT INTO test.writes(id) VALUES(5)").unwrap();
    }
    servers.primary.kill9();
    for proxy in &proxies {
        wait_for(proxy, "SELECT verdict || ready FROM stats_tidegate_healing", "dead0");
    }
    std::thread::sleep(Duration::from_secs(8));
    for proxy in &proxies {
        assert_eq!(healing(proxy, "last_plan"), "", "{:#?}", events(proxy));
        println!("{}", healing(proxy, "blocked_by"));
    }
    assert!(!is_open(&servers.replicas[0]));
    etcd.start_again(0, false).unwrap();
    let told = || proxies.iter().any(|proxy| healing(proxy, "last_plan").contains("was promoted in place of")).then_some(());
    wait::until("a promotion", 4 * LIMIT, told).unwrap_or_else(|_| panic!("{:#?} {:#?}", events(&proxies[0]), events(&proxies[1])));
    all_write_to(&proxies, &servers.replicas[0], 8_000);
    let plans = proxies.iter().flat_map(events).filter(|event| event.contains("|opened|")).count();
    assert_eq!(plans, 1);
}
