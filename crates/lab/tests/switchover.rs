//! SWITCHOVER and sessions that would not let go of the old writer: it refuses before anybody waits, and names them. So it does
//! with servers that do not replicate from the new one.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{LIMIT, Peer};
use lab::client::Encoding;
use lab::replication::{Replication, follow, follow_at, follow_end_at, switch_over};
use lab::{Client, Flavor, Options, Server, Tidegate, wait};

#[test]
fn sessions_with_temporary_tables_or_locks_are_named_and_nobody_waits() {
    let servers = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    servers.primary.sql("GRANT READ_ONLY ADMIN ON *.* TO monitor@'%'").unwrap();
    servers.wait_caught_up().unwrap();
    let replica = &servers.replicas[0];
    let builder = Tidegate::builder().app_user().variable("switchover_manages_read_only", true).variable("switchover_repoints", false);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.backend(0, &servers.primary).backend(1, replica).start().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut switch = || admin.query(format!("SWITCHOVER HOSTGROUP 0 TO '127.0.0.1:{}' TIMEOUT 20000", replica.port())).unwrap();
    let [mut table, mut lock, mut at_work] = [(); 3].map(|()| Peer::through(&proxy, Encoding::Text));
    table.exec("CREATE TEMPORARY TABLE t(i INT)");
    lock.exec("SELECT GET_LOCK('a', 1)");
    at_work.exec_all(&["BEGIN", "SELECT 1"]);
    let ids = [&mut table, &mut lock].map(|peer| peer.get("SELECT CONNECTION_ID()"));

    let asked = Instant::now();
    let refused = switch().err().cloned().unwrap();
    println!("{}", refused.message);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    for said in
        ["2 sessions", &format!("session {}: temporary_table", ids[0]), &format!("session {}: user_lock", ids[1]), "nothing was changed"]
    {
        assert!(refused.message.contains(said), "{said} in {}", refused.message);
    }
    at_work.exec_all(&["CREATE TABLE test.w(i INT)", "COMMIT"]);
    table.exec("DROP TEMPORARY TABLE t");
    lock.exec("SELECT RELEASE_LOCK('a')");
    switch().check().unwrap();
    // The old writer has no source.
    let warnings = admin.run("SHOW WARNINGS").unwrap().table().unwrap();
    let stray = format!("{} is not a replica of 127.0.0.1:{}", servers.primary.address(), replica.port());
    assert!(warnings.len() == 1 && warnings[0][2].as_ref().is_some_and(|said| *said == stray), "{warnings:?}");
    assert_eq!(at_work.get("SELECT @@port"), replica.port().to_string());
}

/// After a SWITCHOVER the old primary replicates from no server, and the other replica from the old primary.
///
/// Though no limit of lag is set, neither is read from until it replicates from the new primary.
fn who_stands_still_after_a_switchover_serves_no_reads(flavor: Flavor) {
    let servers = Replication::start(flavor, 2, &Options::new()).unwrap();
    let (old, [new, leaf]) = (&servers.primary, &servers.replicas[..]) else { panic!("three servers") };
    old.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    match flavor {
        Flavor::Mariadb => old.sql("GRANT READ_ONLY ADMIN ON *.* TO monitor@'%'").unwrap(),
        Flavor::Mysql => old.sql("GRANT SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN ON *.* TO monitor@'%'").unwrap(),
    };
    servers.wait_caught_up().unwrap();
    let builder = Tidegate::builder().app_user().variable("switchover_manages_read_only", true).variable("switchover_repoints", false);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let rule = [("match_digest", "^SELECT".into()), ("destination_hostgroup", 1.into()), ("apply", 1.into())];
    let builder = builder.row("mysql_query_rules", &[&[("rule_id", 1.into()), ("active", 1.into())][..], &rule].concat());
    let proxy = builder.backend(0, old).backend(1, new).backend(1, leaf).start().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut status = |server: &Server| {
        let port = server.port();
        let sql = format!("SELECT status FROM runtime_mysql_servers WHERE hostgroup_id=1 AND port={port}");
        admin.scalar(&sql).unwrap().unwrap_or_default()
    };
    let mut until = |server: &Server, wanted: &str| {
        wait::until("the status", LIMIT, || (status(server) == wanted).then_some(())).unwrap();
    };
    until(old, "ONLINE");
    let mut orders = proxy.admin().unwrap();
    let answer = orders.query(format!("SWITCHOVER HOSTGROUP 0 TO '127.0.0.1:{}' TIMEOUT 20000", new.port())).unwrap().check().unwrap();
    println!("{answer:?}");
    assert!(format!("{answer:?}").contains("A replica serves no reads until it replicates from the new writer"), "{answer:?}");
    until(old, "SHUNNED");
    until(leaf, "SHUNNED");
    until(new, "ONLINE");
    let mut app = proxy.connect_app().unwrap();
    app.run("INSERT INTO test.t VALUES (1)").unwrap();
    for _ in 0..20 {
        assert_eq!(app.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("1"));
    }
    let event = format!("SELECT why FROM stats_tidegate_events WHERE port={} AND to_state='SHUNNED'", old.port());
    let why = orders.scalar(&event).unwrap().unwrap();
    let said = format!("replicates from no server, not from the writer 127.0.0.1:{}:", new.port());
    assert!(why.starts_with(&said), "{why}");
    let metrics = orders.scalar("SHOW PROMETHEUS METRICS").unwrap().unwrap();
    assert!(metrics.contains("tidegate_stray_replicas{cluster=\"0\"} 2"), "{metrics}");
    // Only the old primary is pointed at the new one; what follows it has everything by it.
    match flavor {
        Flavor::Mariadb => new.sql("STOP SLAVE").unwrap(),
        Flavor::Mysql => new.sql("STOP REPLICA").unwrap(),
    };
    follow(old, new).unwrap();
    until(old, "ONLINE");
    until(leaf, "ONLINE");
    let metrics = orders.scalar("SHOW PROMETHEUS METRICS").unwrap().unwrap();
    assert!(metrics.contains("tidegate_stray_replicas{cluster=\"0\"} 0"), "{metrics}");
}

lab::each!(who_stands_still_after_a_switchover_serves_no_reads);

/// MariaDB lets an old primary join although it has writes which the new one lacks: it compares numbers, not the servers that wrote.
///
/// SWITCHOVER compares the servers as well: the new writer has higher numbers, and lacks two transactions.
#[test]
fn a_server_that_lacks_transactions_under_higher_numbers_is_refused() {
    let servers = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let (old, new) = (&servers.primary, &servers.replicas[0]);
    old.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    old.sql("GRANT READ_ONLY ADMIN ON *.* TO monitor@'%'").unwrap();
    servers.wait_caught_up().unwrap();
    let parted = old.scalar("SELECT @@gtid_binlog_pos").unwrap().unwrap();
    for server in [old, new] {
        server.sql("SET GLOBAL gtid_strict_mode=0").unwrap();
    }
    // Two writes that are on the old one only, then three on the other one, which the old one gets.
    new.sql("STOP SLAVE").unwrap();
    (1..3).for_each(|row| drop(old.sql(&format!("INSERT INTO test.t VALUES({row})")).unwrap()));
    new.sql("SET GLOBAL read_only=0").unwrap();
    (11..14).for_each(|row| drop(new.sql(&format!("INSERT INTO test.t VALUES({row})")).unwrap()));
    old.sql(&format!("SET GLOBAL gtid_slave_pos='{parted}'")).unwrap();
    follow(old, new).unwrap();
    let count = |server: &Server| server.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap();
    wait::until("the old one to have all", LIMIT, || (count(old) == "5").then_some(())).unwrap();
    // And back.
    old.sql("STOP SLAVE").unwrap();
    old.sql("RESET SLAVE ALL").unwrap();
    new.sql("SET GLOBAL read_only=1").unwrap();
    new.sql("CHANGE MASTER TO MASTER_USE_GTID=current_pos").unwrap();
    new.sql("START SLAVE").unwrap();
    // Something that comes by replication, of another server, so that the number says nothing of the old one's.
    let mut root = old.root().unwrap();
    root.run("SET SESSION server_id=999").unwrap();
    root.run("INSERT INTO test.t VALUES(21)").unwrap();
    let builder = Tidegate::builder().app_user().variable("switchover_manages_read_only", true).variable("switchover_repoints", false);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.backend(0, old).backend(1, new).start().unwrap();
    let order = format!("SWITCHOVER HOSTGROUP 0 TO '127.0.0.1:{}' TIMEOUT 5000", new.port());
    let refused = proxy.admin().unwrap().query(order).unwrap().err().cloned().unwrap();
    println!("{}", refused.message);
    assert!(refused.message.contains("lacks 2 transactions but has higher numbers"), "{}", refused.message);
    assert!(refused.message.contains("nothing was changed"), "{}", refused.message);
    assert_eq!((old.scalar("SELECT @@read_only").unwrap().unwrap().as_str(), count(new).as_str()), ("0", "4"));
}

/// A replica that replicates by GTID through the proxy is cut when the writer changes, comes back, and goes on at the new one.
///
/// It forbids no SWITCHOVER, and misses no transaction.
fn a_replica_behind_the_proxy_follows_the_writer(flavor: Flavor) {
    let servers = Replication::start(flavor, 2, &Options::new()).unwrap();
    let (old, [new, leaf]) = (&servers.primary, &servers.replicas[..]) else { panic!("three servers") };
    old.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    if flavor == Flavor::Mariadb {
        old.sql("GRANT READ_ONLY ADMIN ON *.* TO monitor@'%'").unwrap();
    }
    servers.wait_caught_up().unwrap();
    let replicates = [("attributes", r#"{"replication": true}"#.into())];
    let builder = Tidegate::builder().app_user().user_with("repl", "repl-pass", 0, &replicates);
    let builder =
        builder.variable("switchover_manages_read_only", true).variable("switchover_repoints", false).variable("demotion_grace_ms", 60_000);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.backend(0, old).backend(1, new).start().unwrap();
    follow_at(leaf, proxy.host(), proxy.port()).unwrap();
    let mut admin = proxy.admin().unwrap();
    let pinned = "SELECT COUNT(*) FROM stats_tidegate_pins WHERE reason='replication_gtid'";
    wait::until("the stream", LIMIT, || (admin.scalar(pinned).ok()?? == "1").then_some(())).unwrap();
    let mut app = proxy.connect_app().unwrap();
    app.run("INSERT INTO test.t VALUES (1)").unwrap();
    let has = |rows: &str| {
        let is_there = || (leaf.scalar("SELECT COUNT(*) FROM test.t").ok()?? == rows).then_some(());
        wait::until("the replica to have it", LIMIT, is_there).unwrap();
    };
    has("1");
    match flavor {
        Flavor::Mariadb => {
            let order = format!("SWITCHOVER HOSTGROUP 0 TO '127.0.0.1:{}' TIMEOUT 20000", new.port());
            admin.query(order).unwrap().check().unwrap();
            // SWITCHOVER leaves the sources of replicas to the operator.
            new.sql("STOP SLAVE").unwrap();
            follow(old, new).unwrap();
        }
        Flavor::Mysql => drop(switch_over(old, new, &[]).unwrap()),
    }
    let began = Instant::now();
    app.run("INSERT INTO test.t VALUES (2)").unwrap();
    has("2");
    // Long before the end of the grace for sessions that are tied to a server.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(new.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("2"));
    let mut roles = (new, old);
    for row in 3..6 {
        switch_over(roles.0, roles.1, &[]).unwrap();
        roles = (roles.1, roles.0);
        app.run(format!("INSERT INTO test.t VALUES ({row})")).unwrap();
        has(&row.to_string());
    }
}

lab::each!(a_replica_behind_the_proxy_follows_the_writer);

/// A replica by file and position goes on at its own server only.
///
/// Any other server refuses it, also after an upgrade of the proxy, until an operator says that its position is one of that server.
fn a_position_is_good_at_its_server(flavor: Flavor) {
    let servers = Replication::start(flavor, 2, &Options::new()).unwrap();
    let (old, [new, leaf]) = (&servers.primary, &servers.replicas[..]) else { panic!("three servers") };
    old.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    servers.wait_caught_up().unwrap();
    let replicates = [("attributes", r#"{"replication": true}"#.into())];
    let builder = Tidegate::builder().app_user().user_with("repl", "repl-pass", 0, &replicates).variable("demotion_grace_ms", 100);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let mut proxy = builder.backend(0, old).backend(1, new).start().unwrap();
    let id = leaf.scalar("SELECT @@server_id").unwrap().unwrap();
    let known = format!("SELECT server, refused FROM stats_tidegate_positions WHERE user='repl' AND server_id={id}");
    let shows = |proxy: &Tidegate, server: &Server, refused: &str| {
        let wanted = [Some(server.address()), Some(refused.to_owned())];
        let is_so = || (proxy.admin().ok()?.run(&known).ok()?.table().ok()?.first()? == &wanted).then_some(());
        wait::until("where it read", LIMIT, is_so).unwrap();
    };
    let (status, io, start) = match flavor {
        Flavor::Mariadb => ("SHOW SLAVE STATUS", "Slave_IO_Running", "START SLAVE"),
        Flavor::Mysql => ("SHOW REPLICA STATUS", "Replica_IO_Running", "START REPLICA"),
    };
    let is_refused = || {
        let stops = || {
            let reply = leaf.sql(status).ok()?;
            let rows = reply.rows().ok()?;
            rows.field(0, "Last_IO_Error").filter(|said| rows.field(0, io).as_deref() == Some("No") && !said.is_empty())
        };
        let said = wait::until("the replica to be refused", LIMIT, stops).unwrap();
        for word in [&old.address(), &new.address(), &format!("FORGET REPLICA {id}")] {
            assert!(said.contains(word), "{word}: {said}");
        }
        println!("{said}");
    };
    let has = |rows: &str| {
        let is_there = || (leaf.scalar("SELECT COUNT(*) FROM test.t").ok()?? == rows).then_some(());
        wait::until("the replica to have it", LIMIT, is_there).unwrap();
    };
    follow_end_at(leaf, proxy.host(), proxy.port(), old).unwrap();
    let mut app = proxy.connect_app().unwrap();
    app.run("INSERT INTO test.t VALUES (1)").unwrap();
    has("1");
    shows(&proxy, old, "0");
    leaf.sql(&start.replace("START", "STOP")).unwrap();
    leaf.sql(start).unwrap();
    app.run("INSERT INTO test.t VALUES (2)").unwrap();
    has("2");
    switch_over(old, new, &[]).unwrap();
    is_refused();
    shows(&proxy, old, "1");
    proxy.upgrade(None).unwrap();
    shows(&proxy, old, "1");
    follow_end_at(leaf, proxy.host(), proxy.port(), new).unwrap();
    is_refused();
    shows(&proxy, old, "2");
    proxy.admin().unwrap().run(format!("FORGET REPLICA {id}")).unwrap().check().unwrap();
    leaf.sql(start).unwrap();
    proxy.connect_app().unwrap().run("INSERT INTO test.t VALUES (3)").unwrap();
    has("3");
    shows(&proxy, new, "0");
}

lab::each!(a_position_is_good_at_its_server);

/// A user whose hostgroup is one of readers reads the binlog there, whatever the rules say of statements.
fn a_replica_reads_from_a_reader(flavor: Flavor) {
    let servers = Replication::start(flavor, 2, &Options::new()).unwrap();
    let (writer, [reader, leaf]) = (&servers.primary, &servers.replicas[..]) else { panic!("three servers") };
    let replicates = [("attributes", r#"{"replication": true}"#.into())];
    let builder = Tidegate::builder().app_user().user_with("repl", "repl-pass", 1, &replicates).backend(0, writer).backend(1, reader);
    let rule = [("rule_id", 1.into()), ("active", 1.into()), ("match_pattern", "BINLOG|.".into()), ("destination_hostgroup", 0.into())];
    let proxy = builder.row("mysql_query_rules", &rule).start().unwrap();
    follow_at(leaf, proxy.host(), proxy.port()).unwrap();
    let mut admin = proxy.admin().unwrap();
    let shown = format!("SELECT COUNT(*) FROM stats_tidegate_replicas WHERE hostgroup=1 AND server='{}'", reader.address());
    wait::until("the stream", LIMIT, || (admin.scalar(&shown).ok()?? == "1").then_some(())).unwrap();
    proxy.connect_app().unwrap().run("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    wait::until("the replica to have it", LIMIT, || leaf.sql("SELECT * FROM test.t").ok().map(drop)).unwrap();
}

lab::each!(a_replica_reads_from_a_reader);

/// A replica that replicates by GTID while clients write, over as many role changes as LAB_ROLE_CHANGES says: nothing is missing, nothing is there twice. With
/// LAB_CDC="python3 scripts/change-data.py" (and mysql-replication from pip) a change-data client reads along.
fn a_replica_behind_the_proxy_misses_nothing(flavor: Flavor) {
    let servers = Replication::start(flavor, 2, &Options::new()).unwrap();
    let (old, [new, leaf]) = (&servers.primary, &servers.replicas[..]) else { panic!("three servers") };
    // Without a key, a row that arrives twice is there twice.
    old.sql("CREATE TABLE test.t(i INT)").unwrap();
    if flavor == Flavor::Mariadb {
        old.sql("GRANT READ_ONLY ADMIN ON *.* TO monitor@'%'").unwrap();
    }
    servers.wait_caught_up().unwrap();
    let replicates = [("attributes", r#"{"replication": true}"#.into())];
    let builder = Tidegate::builder().app_user().user_with("repl", "repl-pass", 0, &replicates);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.backend(0, old).backend(1, new).start().unwrap();
    follow_at(leaf, proxy.host(), proxy.port()).unwrap();
    let reader = std::env::var("LAB_CDC").ok().map(|command| {
        let start = match flavor {
            Flavor::Mariadb => old.scalar("SELECT @@gtid_binlog_pos"),
            Flavor::Mysql => old.scalar("SELECT @@gtid_executed"),
        };
        let out = proxy.dir().join("read");
        let mut words = command.split(' ');
        let mut command = std::process::Command::new(words.next().unwrap());
        command.args(words).arg(proxy.port().to_string()).arg(format!("{flavor:?}").to_lowercase());
        (command.arg(start.unwrap().unwrap().replace('\n', "")).arg(&out).spawn().unwrap(), out)
    });
    let stop = Arc::new(AtomicBool::new(false));
    let (options, stopped) = (proxy.options("app", "app-pass").database("test"), Arc::clone(&stop));
    let writer = std::thread::spawn(move || {
        // Rows that were acknowledged, and those whose answer was lost.
        let (mut known, mut client) = (Vec::new(), Client::connect(&options).unwrap());
        for row in 0.. {
            match client.run(format!("INSERT INTO t VALUES ({row})")) {
                Ok(_) => known.push(row),
                Err(_) => client = wait::until("a connection", LIMIT, || Client::connect(&options).ok()).unwrap(),
            }
            if stopped.load(Ordering::Relaxed) {
                break;
            }
        }
        known
    });
    let mut roles = (old, new);
    let changes: usize = std::env::var("LAB_ROLE_CHANGES").map_or(4, |text| text.parse().unwrap());
    for change in 0..changes {
        switch_over(roles.0, roles.1, &[]).unwrap();
        roles = (roles.1, roles.0);
        let before: u64 = leaf.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap().parse().unwrap();
        let grows = || (leaf.scalar("SELECT COUNT(*) FROM test.t").ok()??.parse::<u64>().ok()? > before + 20).then_some(());
        wait::until(&format!("the replica to go on after role change {change}"), LIMIT, grows).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let known: Vec<u64> = writer.join().unwrap();
    let rows = |server: &Server| {
        let text = server.sql("SELECT i FROM test.t ORDER BY i").unwrap().table().unwrap();
        text.into_iter().map(|row| row[0].clone().unwrap().parse().unwrap()).collect::<Vec<u64>>()
    };
    let there = rows(roles.0);
    wait::until("the replica to have all", LIMIT, || (rows(leaf) == there).then_some(())).unwrap();
    assert!(there.windows(2).all(|two| two[0] < two[1]), "a row is there twice");
    assert!(known.iter().all(|row| there.binary_search(row).is_ok()), "an acknowledged row is missing");
    if let Some((mut child, out)) = reader {
        let read = || std::fs::read_to_string(&out).unwrap().lines().filter_map(|line| line.parse().ok()).collect::<Vec<u64>>();
        let all = wait::until("the change-data client to have all", LIMIT, || (read() == there).then_some(()));
        child.kill().unwrap();
        child.wait().unwrap();
        all.unwrap();
    }
    eprintln!("{} role changes, {} rows, {} of them acknowledged", changes, there.len(), known.len());
}

lab::each!(a_replica_behind_the_proxy_misses_nothing);
