//! Clusters that know their own roles: Galera, Group Replication, and the stand-in for Aurora.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{READERS, Running, WRITERS, addr, online, snapshot};
use lab::aurora::AuroraStandIn;
use lab::galera::Galera;
use lab::group::Group;
use lab::{Options, Server, wait};
use model::ServerAddr;
use model::fleet::{HostgroupLoad, Operator};
use model::snapshot::Snapshot;

/// The first server is the heaviest.
fn cluster<'a>(table: &str, servers: impl IntoIterator<Item = &'a Server>, variables: &str) -> Arc<Snapshot> {
    cluster_of_writers(table, servers, variables, 1)
}

fn cluster_of_writers<'a>(
    table: &str,
    servers: impl IntoIterator<Item = &'a Server>,
    variables: &str,
    max_writers: usize,
) -> Arc<Snapshot> {
    let row = |(index, server): (usize, &Server)| {
        let (host, port, weight) = (server.host(), server.port(), if index == 0 { 1_000 } else { 1 });
        format!("{{ address=\"{host}\", port={port}, hostgroup=10, weight={weight} }}")
    };
    let rows: Vec<String> = servers.into_iter().enumerate().map(row).collect();
    snapshot(&format!(
        "mysql_variables = {{ {variables} }}\n\
         mysql_servers = ( {} )\n\
         {table} = ( {{ writer_hostgroup=10, backup_writer_hostgroup=11, reader_hostgroup=20, offline_hostgroup=12, \
         max_writers={max_writers}, writer_is_also_reader=0, max_transactions_behind=100 }} )",
        rows.join(", ")
    ))
}

#[test]
fn galera() {
    let galera = Galera::start(3, &Options::new()).unwrap();
    let servers = || galera.nodes.iter().map(|node| &node.server);
    let variables = "monitor_galera_healthcheck_interval=200";
    let running = Running::start(&cluster("mysql_galera_hostgroups", servers(), variables));
    running.wait_writer(galera.server(0));
    running.plane.wait("readers", |told| online(&told.layout, READERS).len() == 2);
    running.wait_row("mysql_server_galera_log", |row| {
        row["primary_partition"] == "YES" && row["wsrep_local_state"] == "4" && row["read_only"] == "NO"
    });

    // By preference, and back when the preferred one cannot.
    println!("{}", running.monitor.switchover(WRITERS, &addr(galera.server(1)), None).unwrap().text);
    running.wait_writer(galera.server(1));
    running.plane.look(|told| assert_eq!(told.holds, [(WRITERS, true), (WRITERS, false)]));
    galera.nodes[1].desync(true).unwrap();
    running.plane.wait("another writer", |told| {
        let writers = online(&told.layout, WRITERS);
        writers.len() == 1 && writers != [addr(galera.server(1))]
    });
    galera.nodes[1].desync(false).unwrap();

    // A node that is cut off from the group says so, or refuses to say anything.
    let writer = running.plane.look(|told| online(&told.layout, WRITERS)[0].clone());
    let index = galera.nodes.iter().position(|node| addr(&node.server) == writer).unwrap();
    galera.nodes[index].isolate(true).unwrap();
    running.plane.wait("a writer of the majority", |told| {
        let writers = online(&told.layout, WRITERS);
        writers.len() == 1 && writers != [writer.clone()]
    });
    let is_out = |row: &std::collections::BTreeMap<_, String>| {
        row["port"] == writer.port.to_string() && row["primary_partition"] == "NO" && row["error"] == "NULL"
    };
    wait::until("its own word", Duration::from_secs(20), || running.table("mysql_server_galera_log").iter().any(is_out).then_some(()))
        .unwrap();
}

/// Refused before anybody waits, or undone as soon as it is known.
#[test]
fn galera_nodes_that_cannot_become_the_writer() {
    let galera = Galera::start(2, &Options::new()).unwrap();
    let servers = || galera.nodes.iter().map(|node| &node.server);
    // The order has to look for itself.
    let running = Running::start(&cluster("mysql_galera_hostgroups", servers(), "monitor_galera_healthcheck_interval=2000"));
    running.wait_writer(galera.server(0));
    running.plane.wait("readers", |told| online(&told.layout, READERS).len() == 1);
    let switch = || {
        let begun = std::time::Instant::now();
        let outcome = running.monitor.switchover(WRITERS, &addr(galera.server(1)), Some(30_000));
        println!("{outcome:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{outcome:?}");
        outcome
    };
    galera.nodes[1].desync(true).unwrap();
    let refused = switch().unwrap_err();
    assert!(refused.contains("would not become the writer even if preferred") || refused.contains("is not healthy"), "{refused}");
    galera.nodes[1].desync(false).unwrap();
    running.plane.wait("it reads again", |told| online(&told.layout, READERS) == [addr(galera.server(1))]);
    running.plane.look(|told| assert!(told.holds.is_empty()));

    // While sessions wait.
    running.plane.change(|told| told.load = HostgroupLoad { waiting: 0, in_use: 1, in_transaction: 0 });
    std::thread::scope(|scope| {
        let asked = scope.spawn(switch);
        running.plane.wait("the hold", |told| told.held.contains(&WRITERS));
        galera.nodes[1].desync(true).unwrap();
        running.plane.change(|told| told.load = HostgroupLoad::default());
        let failed = asked.join().unwrap().unwrap_err();
        assert!(failed.contains("not healthy") || failed.contains("is a donor"), "{failed}");
    });
    running.wait_writer(galera.server(0));
    running.plane.look(|told| assert_eq!(told.holds, [(WRITERS, true), (WRITERS, false)]));
    galera.nodes[1].desync(false).unwrap();

    // A donor, which keeps its role for a moment only.
    galera.wait_synced().unwrap();
    running.plane.wait("it reads again", |told| online(&told.layout, READERS) == [addr(galera.server(1))]);
    let mut donor = galera.server(1).root().unwrap();
    donor.query("FLUSH TABLES WITH READ LOCK").unwrap();
    assert_eq!(galera.nodes[1].state().unwrap().local_state, lab::galera::NodeState::DONOR);
    let refused = switch().unwrap_err();
    assert!(refused.contains("wait until it is synced"), "{refused}");
    donor.query("UNLOCK TABLES").unwrap();
    galera.wait_synced().unwrap();
    running.plane.wait("it reads again", |told| online(&told.layout, READERS) == [addr(galera.server(1))]);

    // It is frozen as soon as it writes: no server is preferred then, as before.
    let (plane, process, mut is_frozen) = (Arc::clone(&running.plane), galera.server(1).pid().to_string(), false);
    let new = addr(galera.server(1));
    running.plane.on_look(move |_| {
        if !is_frozen && plane.look(|told| online(&told.layout, WRITERS) == [new.clone()]) {
            is_frozen = true;
            std::process::Command::new("kill").args(["-STOP", &process]).status().unwrap();
        }
    });
    let failed = switch().unwrap_err();
    galera.server(1).sigcont();
    assert!(failed.contains("everything is as it was") && !failed.contains("is not the writer"), "{failed}");
    let preferred = |table: &[std::collections::BTreeMap<&'static str, String>]| {
        table.iter().rev().find(|row| row["why"].contains("preferred as before")).map(|row| row["to_state"].clone())
    };
    assert_eq!(preferred(&running.table("stats_tidegate_events")).as_deref(), Some("none"));
    running.wait_writer(galera.server(0));

    // Both write, so there is no server to switch from.
    galera.wait_synced().unwrap();
    let both = Running::start(&cluster_of_writers("mysql_galera_hostgroups", servers(), "", 2));
    both.plane.wait("two writers", |told| online(&told.layout, WRITERS).len() == 2);
    let refused = both.monitor.switchover(WRITERS, &addr(galera.server(1)), Some(30_000)).unwrap_err();
    assert!(refused.contains("is a writer of hostgroup 10 already"), "{refused}");
    both.plane.look(|told| assert!(told.holds.is_empty()));
}

#[test]
fn group_replication() {
    let group = Group::start(3, &Options::new()).unwrap();
    let primary = group.wait_primary_among(&[0, 1, 2]).unwrap();
    let variables = "monitor_groupreplication_healthcheck_interval=200, switchover_timeout_ms=30000";
    let running = Running::start(&cluster("mysql_group_replication_hostgroups", &group.members, variables));
    running.wait_writer(&group.members[primary]);
    running.plane.wait("readers", |told| online(&told.layout, READERS).len() == 2);
    running.wait_row("mysql_server_group_replication_log", |row| row["viable_candidate"] == "YES" && row["read_only"] == "NO");
    running.wait_row("mysql_server_group_replication_log", |row| row["viable_candidate"] == "YES" && row["read_only"] == "YES");

    let other = (primary + 1) % 3;
    let to = addr(&group.members[other]);
    let refused = running.monitor.switchover(WRITERS, &to, None).unwrap_err();
    println!("{refused}");
    assert!(refused.contains("GROUP_REPLICATION_ADMIN"), "{refused}");
    running.plane.look(|told| assert!(told.holds.is_empty()));
    running.wait_writer(&group.members[primary]);
    group.members[primary].sql("GRANT GROUP_REPLICATION_ADMIN ON *.* TO monitor@'%'").unwrap();
    let grants = "SELECT COUNT(*) FROM mysql.global_grants WHERE USER='monitor' AND PRIV='GROUP_REPLICATION_ADMIN'";
    let granted = || (group.members[other].scalar(grants).ok().flatten().as_deref() == Some("1")).then_some(());
    wait::until("the grant", Duration::from_secs(20), granted).unwrap();
    println!("{}", running.monitor.switchover(WRITERS, &to, None).unwrap().text);
    running.wait_writer(&group.members[other]);
    running.plane.look(|told| assert!(told.held.is_empty()));

    // A transaction beside the proxy keeps the election waiting, and KILL does not end it.
    let mut beside = group.members[other].root().unwrap();
    beside.query("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    for sql in ["BEGIN", "INSERT INTO test.t VALUES (1)"] {
        beside.query(sql).unwrap();
    }
    let failed = running.monitor.switchover(WRITERS, &addr(&group.members[primary]), Some(2_000)).unwrap_err();
    println!("{failed}");
    let goes_on = format!("NOT EVERYTHING COULD BE UNDONE: an election of {} is under way", addr(&group.members[primary]));
    assert!(failed.contains(&goes_on), "{failed}");
    beside.query("COMMIT").unwrap();
    let asking = "SELECT COUNT(*) FROM performance_schema.processlist WHERE user='monitor' AND info LIKE '%set_as_primary%'";
    let is_over = || (group.members[primary].scalar(asking).ok().flatten().as_deref() == Some("0")).then_some(());
    wait::until("the end of the election", Duration::from_secs(20), is_over).unwrap();
    let other = group.wait_primary_among(&[0, 1, 2]).unwrap();
    let to = addr(&group.members[other]);
    running.wait_writer(&group.members[other]);

    group.members[other].kill9();
    running.plane.wait("another primary", |told| {
        let writers = online(&told.layout, WRITERS);
        writers.len() == 1 && writers != [to.clone()]
    });
}

/// Two proxies are told to make another member the primary, at once: what one of them answers is so, and the other undoes nothing.
#[test]
fn of_two_switchovers_of_a_group_that_meet_one_holds() {
    let group = Group::start(3, &Options::new()).unwrap();
    let mut primary = group.wait_primary_among(&[0, 1, 2]).unwrap();
    group.members[primary].sql("GRANT GROUP_REPLICATION_ADMIN ON *.* TO monitor@'%'").unwrap();
    let grants = "SELECT COUNT(*) FROM mysql.global_grants WHERE USER='monitor' AND PRIV='GROUP_REPLICATION_ADMIN'";
    let is_granted = |server: &Server| server.scalar(grants).ok().flatten().as_deref() == Some("1");
    wait::until("the grant", common::LIMIT, || group.members.iter().all(is_granted).then_some(())).unwrap();
    let variables = "monitor_groupreplication_healthcheck_interval=200, switchover_timeout_ms=10000";
    let proxies = [(); 2].map(|()| Running::start(&cluster("mysql_group_replication_hostgroups", &group.members, variables)));
    for round in 0..8 {
        for proxy in &proxies {
            proxy.wait_writer(&group.members[primary]);
        }
        let targets = [(primary + 1) % 3, (primary + 2) % 3];
        let answers: Vec<_> = std::thread::scope(|scope| {
            let ask = |(proxy, target): (&Running, usize)| {
                let (monitor, to) = (Arc::clone(&proxy.monitor), addr(&group.members[target]));
                scope.spawn(move || monitor.switchover(WRITERS, &to, None).map(|told| told.text))
            };
            let asked: Vec<_> = proxies.iter().zip(targets).map(ask).collect();
            asked.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        println!("{round}: {answers:#?}");
        let now = group.wait_primary_among(&[0, 1, 2]).unwrap();
        let made: Vec<usize> = targets.into_iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).map(|(target, _)| target).collect();
        assert!(made.is_empty() || made.contains(&now), "the primary is {now}, and was {primary}: {answers:#?}");
        primary = now;
    }
}

/// Every member writes, and the proxy chooses one of them: so it does with the one that it is told to.
#[test]
fn switchover_of_a_group_in_multi_primary_mode() {
    let group = Group::start(3, &Options::new()).unwrap();
    group.members[0].sql("SELECT group_replication_switch_to_multi_primary_mode()").unwrap();
    let variables = "monitor_groupreplication_healthcheck_interval=200, failback=\"never\"";
    let running = Running::start(&cluster("mysql_group_replication_hostgroups", &group.members, variables));
    running.plane.wait("a writer", |told| online(&told.layout, WRITERS).len() == 1);
    running.plane.wait("readers", |told| online(&told.layout, READERS).len() == 2);
    // The first one, unless it was slow to answer.
    let is_writer = |server: &Server| running.plane.look(|told| online(&told.layout, WRITERS) == [addr(server)]);
    let from = (0..3).find(|index| is_writer(&group.members[*index])).unwrap();
    let to = (from + 2) % 3;
    // Refused, with nothing done, while members are still being seen for the first time in the new mode.
    let ordered = || running.monitor.switchover(WRITERS, &addr(&group.members[to]), None).ok();
    println!("{}", wait::until("the roles to be settled", common::LIMIT, ordered).unwrap().text);
    running.wait_writer(&group.members[to]);
    running.plane.look(|told| assert!(told.held.is_empty()));
    running.monitor.failback(WRITERS).unwrap();
    running.wait_writer(&group.members[from]);
}

#[test]
fn aurora() {
    let aurora = AuroraStandIn::start(2, &Options::new()).unwrap();
    let row = |index: usize| format!("{{ address=\"{}\", port={}, hostgroup=20 }}", aurora.host(index), aurora.port());
    let running = Running::start(&snapshot(&format!(
        "mysql_servers = ( {}, {} )\n\
         mysql_aws_aurora_hostgroups = ( {{ writer_hostgroup=10, reader_hostgroup=20, aurora_port={}, domain_name=\"{}\", \
         check_interval_ms=200, writer_is_also_reader=1 }} )",
        row(0),
        row(1),
        aurora.port(),
        lab::aurora::DOMAIN
    )));
    let instance = |index: usize| ServerAddr { host: aurora.host(index).into(), port: aurora.port() };
    running.plane.wait("the writer", |told| online(&told.layout, WRITERS) == [instance(0)]);
    // The third one was never configured.
    running.plane.wait("all readers", |told| online(&told.layout, READERS).contains(&instance(2)));
    aurora.fail_over(1).unwrap();
    running.plane.wait("the new writer", |told| online(&told.layout, WRITERS) == [instance(1)]);

    running.wait_row("mysql_server_aws_aurora_failovers", |row| row["writer_hostgroup"] == "10" && *row["hostname"] == *aurora.host(1));
    running.wait_row("mysql_server_aws_aurora_log", |row| {
        row["SESSION_ID"] == "MASTER_SESSION_ID" && row["SERVER_ID"] == aurora.instances[1].id
    });
    running.wait_row("mysql_server_aws_aurora_check_status", |row| row["checks_ok"] != "0" && row["writer_hostgroup"] == "10");
    let refused = running.monitor.switchover(WRITERS, &instance(0), None).unwrap_err();
    assert!(refused.contains("Aurora chooses the writer"), "{refused}");
}
