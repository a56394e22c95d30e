//! Healing through the real program: advice on promotion while clients write, and promotion by the proxy itself (mode `full`) when the
//! writer is killed, freezes, or only seems to be dead.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::LIMIT;
use common::healing::{cluster, events, full, healing, promoted, ready, reported, wait_for, wait_standing, with_servers};
use lab::failover::{Audit, Clients, Clock, Load, Peer};
use lab::fault::Relay;
use lab::replication::{Replication, position, promote, wait_for as wait_position};
use lab::{Flavor, Options, Tidegate, wait};

fn started(servers: &Replication) -> Tidegate {
    let builder = Tidegate::builder().app_user().variable("monitor_read_only_interval", 200);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    servers.replicas.iter().fold(builder.backend(0, &servers.primary), |builder, replica| builder.backend(0, replica)).start().unwrap()
}

/// Under load: advice is there, costs no client an error, and names who takes over when the primary dies.
#[test]
fn advice_while_clients_write() {
    let servers = Replication::start(Flavor::Mariadb, 2, &Options::new()).unwrap();
    servers.primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = started(&servers);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = proxy.connect_app().unwrap();
            let mut rows = 0;
            while !is_over.load(Ordering::Relaxed) {
                client.query("INSERT INTO test.t () VALUES ()").unwrap();
                rows += 1;
            }
            rows
        });
        let mut admin = proxy.admin().unwrap();
        admin.run("INSERT INTO mysql_healing (writer_hostgroup, dead_ms) VALUES (0, 1000)").unwrap();
        let reply = admin.query("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
        println!("{}", reply.status().unwrap().info);
        wait_for(&proxy, "SELECT verdict || ready FROM stats_tidegate_healing", "alive1");
        // The two replicas are equals: the choice is a matter of which was a little ahead, and is no news each time.
        std::thread::sleep(Duration::from_secs(3));
        let news = admin.scalar("SELECT COUNT(*) FROM stats_tidegate_events WHERE kind = 'healing'").unwrap().unwrap();
        assert!(news.parse::<u32>().unwrap() <= 4, "{news} events");
        is_over.store(true, Ordering::Relaxed);
        println!("{} rows", writer.join().unwrap());
    });
    let mut admin = proxy.admin().unwrap();
    let rows = admin.run("EXPLAIN HEALING HOSTGROUP 0").unwrap().table().unwrap();
    rows.iter().for_each(|row| println!("{row:?}"));
    assert!(rows.iter().any(|row| row[0].as_deref() == Some("open")), "{rows:?}");
    let metrics = admin.scalar("SHOW PROMETHEUS METRICS").unwrap().unwrap();
    assert!(metrics.contains("tidegate_healing_ready{cluster=\"0\"} 1"), "{metrics}");
    assert!(metrics.contains("tidegate_healing_verdict{cluster=\"0\",verdict=\"alive\"} 1"), "{metrics}");

    servers.primary.kill9();
    wait_for(&proxy, "SELECT verdict || ready FROM stats_tidegate_healing", "dead1");
    let chosen = admin.scalar("SELECT would_promote FROM stats_tidegate_healing").unwrap().unwrap();
    let advice = admin.scalar("SELECT advice FROM stats_tidegate_healing").unwrap().unwrap();
    println!("{advice}");
    let heir = servers.replicas.iter().find(|replica| replica.address() == chosen).unwrap();
    promote(heir).unwrap();
    wait_for(&proxy, "SELECT verdict || writer FROM stats_tidegate_healing", &format!("alive{chosen}"));
    proxy.connect_app().unwrap().query("INSERT INTO test.t () VALUES ()").unwrap();
}

/// kill -9 under load: a replica writes within seconds, no acknowledged row is lost that was not reported, and the dead one comes back.
fn the_writer_is_killed_under_load(flavor: Flavor) {
    let servers = cluster(flavor, 2);
    let peer = Peer::tidegate(with_servers(full(&[]), &servers).start().unwrap());
    let proxy = peer.as_tidegate().unwrap();
    ready(proxy);
    let clock = Clock::start();
    let clients = Clients::start(Load::LIGHT, peer.route(), clock);
    wait::until("clients to write", LIMIT, || (clients.last_write_us() > 1_000_000).then_some(())).unwrap();
    servers.primary.kill9();
    let killed_us = clock.now_us();
    let heir = promoted(proxy, &servers);
    let flows = wait::until("writes", LIMIT, || Some(clients.last_write_us()).filter(|last| *last > killed_us + 2_000_000));
    println!("writes again after {:?} ms", flows.map(|last| (last - killed_us) / 1_000));
    let other = servers.replicas.iter().find(|replica| replica.port() != heir.port()).unwrap();
    wait_standing(proxy, other, &["follows"]);
    let recording = clients.stop();
    let audit = Audit::of(&recording, heir).unwrap();
    println!("{audit:?}, reported {}\n{:#?}", reported(proxy), events(proxy));
    assert!(audit.lost <= reported(proxy) && audit.doubled + audit.torn + audit.foreign == 0, "{audit:?}");
    assert!(audit.rows > 0 && heir.scalar("SELECT @@global.read_only").unwrap().as_deref() == Some("0"));
    wait_position(other, &position(heir).unwrap()).unwrap();
    assert_eq!(position(other).unwrap(), position(heir).unwrap());

    // A second death within block_ms waits for an operator. The dead one comes back first: it follows, or has what nobody else has.
    servers.primary.restart().unwrap();
    let standing = wait_standing(proxy, &servers.primary, &["follows", "errant"]);
    println!("{standing}: {}", healing(proxy, "blocked_by"));
    assert!(healing(proxy, "blocked_by").contains("ACKNOWLEDGE HEALING HOSTGROUP n"), "{}", healing(proxy, "blocked_by"));
    let closed = servers.primary.sql("INSERT INTO test.writes(id) VALUES(77)");
    assert!(standing == "errant" || flavor == Flavor::Mariadb || closed.is_err(), "it takes no writes");
    proxy.admin().unwrap().run("ACKNOWLEDGE HEALING HOSTGROUP 0").unwrap();
    wait_for(proxy, "SELECT blocked_by LIKE '%block_ms%' FROM stats_tidegate_healing", "0");
}

lab::each!(the_writer_is_killed_under_load);

/// The writer freezes for 30 s. When it wakes up it takes no writes, is closed, and follows.
fn the_writer_freezes(flavor: Flavor) {
    let servers = cluster(flavor, 1);
    let proxy = with_servers(full(&[]), &servers).start().unwrap();
    ready(&proxy);
    servers.primary.sigstop();
    let frozen = std::time::Instant::now();
    let heir = promoted(&proxy, &servers);
    let mut client = proxy.connect_app().unwrap();
    let mut rows = 0;
    let mut write = || {
        client.run(format!("INSERT INTO test.writes(id) VALUES({})", 1_000 + rows)).unwrap();
        rows += 1;
        rows
    };
    while frozen.elapsed() < Duration::from_secs(30) {
        write();
        std::thread::sleep(Duration::from_millis(20));
    }
    servers.primary.sigcont();
    let is_back = || healing(&proxy, "(SELECT rejoin FROM stats_tidegate_healing_servers WHERE rejoin IS NOT NULL)") == "follows";
    let wrote = wait::until("its return", 4 * LIMIT, || {
        let wrote = write();
        is_back().then_some(wrote)
    });
    let wrote = wrote.unwrap_or_else(|_| panic!("{:#?}", events(&proxy)));
    wait_position(&servers.primary, &position(heir).unwrap()).unwrap();
    println!("{wrote} rows\n{:#?}", events(&proxy));
    for server in [heir, &servers.primary] {
        assert_eq!(server.scalar("SELECT COUNT(*) FROM test.writes WHERE id >= 1000").unwrap(), Some(wrote.to_string()));
    }
    let closed = if flavor == Flavor::Mysql { "SELECT @@global.super_read_only" } else { "SELECT @@global.read_only" };
    assert_eq!(servers.primary.scalar(closed).unwrap().as_deref(), Some("1"));
}

lab::each!(the_writer_freezes);

/// Only this proxy is cut off from the writer; or an operator suspended healing; or the only replica cannot be chosen: nobody is promoted.
#[test]
fn nobody_is_promoted_for_less_than_a_death() {
    let servers = cluster(Flavor::Mariadb, 1);
    let replica = &servers.replicas[0];
    let relay = Relay::to(&servers.primary.address()).unwrap();
    let proxy = full(&[]).server(0, "127.0.0.1", relay.port()).backend(0, replica).start().unwrap();
    ready(&proxy);
    let is_closed = || replica.scalar("SELECT @@global.read_only").unwrap().as_deref() == Some("1");
    relay.silence_all(true);
    wait_for(&proxy, "SELECT verdict FROM stats_tidegate_healing", "unreachable");
    std::thread::sleep(Duration::from_secs(4));
    assert!(is_closed() && healing(&proxy, "verdict || last_plan") == "unreachable", "{:#?}", events(&proxy));
    relay.resume();
    wait_for(&proxy, "SELECT verdict FROM stats_tidegate_healing", "alive");

    drop(proxy);

    let mut proxy = with_servers(full(&[]), &servers).start().unwrap();
    ready(&proxy);
    proxy.admin().unwrap().run("SUSPEND HEALING HOSTGROUP 0 FOR 3600 SECONDS").unwrap();
    proxy.stop().unwrap();
    proxy.wait_exit().unwrap();
    proxy.start_again(&[]).unwrap();
    wait_for(&proxy, "SELECT verdict FROM stats_tidegate_healing", "alive");
    replica.sql("STOP SLAVE SQL_THREAD").unwrap();
    servers.primary.kill9();
    wait_for(&proxy, "SELECT verdict FROM stats_tidegate_healing", "dead");
    std::thread::sleep(Duration::from_secs(4));
    assert!(is_closed() && healing(&proxy, "ready") == "0" && healing(&proxy, "last_plan").is_empty(), "{:#?}", events(&proxy));

    let resumed = proxy.admin().unwrap().query("RESUME HEALING HOSTGROUP 0").unwrap().status().unwrap().info.clone();
    assert!(resumed.starts_with("healing goes on"), "{resumed}");
    std::thread::sleep(Duration::from_secs(4));
    let blocked = healing(&proxy, "blocked_by");
    assert!(is_closed() && blocked.contains("somebody stopped its applier"), "{blocked}");

    // The last obstacle is gone.
    replica.sql("START SLAVE SQL_THREAD").unwrap();
    promoted(&proxy, &servers);
}

/// The word of the operator is needed where no etcd decides.
#[test]
fn who_may_not_be_alone_does_not_promote() {
    let servers = cluster(Flavor::Mariadb, 1);
    let proxy = started(&servers);
    let mut admin = proxy.admin().unwrap();
    admin.run("INSERT INTO mysql_healing (writer_hostgroup, mode) VALUES (0, 'full')").unwrap();
    let mut refused = |sql: &str| admin.query(sql).unwrap().err().unwrap().message.clone();
    let told = refused("LOAD MYSQL SERVERS TO RUNTIME");
    assert!(
        told.contains("SET admin-healing_alone='true'") && told.contains("Several proxies need a shared configuration in etcd"),
        "{told}"
    );
    // A right that is missing is named before it is needed.
    servers.primary.sql("REVOKE READ_ONLY ADMIN ON *.* FROM monitor@'%'").unwrap();
    for sql in ["SET admin-healing_alone='true'", "LOAD ADMIN VARIABLES TO RUNTIME", "LOAD MYSQL SERVERS TO RUNTIME"] {
        admin.run(sql).unwrap();
    }
    wait_for(&proxy, "SELECT blocked_by LIKE '%READ_ONLY ADMIN%' FROM stats_tidegate_healing", "1");
    servers.replicas[0].sql("SET GLOBAL gtid_strict_mode=0").unwrap();
    wait_for(&proxy, "SELECT blocked_by LIKE '%gtid_strict_mode is OFF%' FROM stats_tidegate_healing", "1");
}
