//! Clusters that come up, lose nodes, take them back, and survive the loss of all.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab::topology::{READER, Topology, WRITER, layout};
use lab::{Galera, Network, Options, Tidegate, wait};
use model::files;

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn comes_up_loses_a_node_and_takes_it_back() {
    let cluster = Galera::start(3, &Options::new()).unwrap();
    cluster.server(0).sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    wait::until("the table on another node", LIMIT, || cluster.server(1).sql("INSERT INTO test.t VALUES(1)").ok()).unwrap();
    cluster.server(2).kill9();
    cluster.wait_size(0, 2).unwrap();
    cluster.server(0).sql("INSERT INTO test.t VALUES(2)").unwrap();

    cluster.hold_donor(true).unwrap();
    cluster.bring_back(2).unwrap();
    let donor = cluster.wait_donor().unwrap();
    assert_ne!(donor, 2);
    cluster.hold_donor(false).unwrap();
    cluster.wait_synced().unwrap();
    assert_eq!(cluster.server(2).scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("2"));
}

#[test]
fn states_are_seen() {
    let cluster = Galera::start(3, &Options::new()).unwrap();
    let node = &cluster.nodes[1];
    node.desync(true).unwrap();
    assert_eq!(node.state().unwrap().local_state, lab::galera::NodeState::DONOR);
    node.desync(false).unwrap();
    node.wait_synced(Some(3)).unwrap();
    node.isolate(true).unwrap();
    cluster.wait_size(0, 2).unwrap();
    wait::until("a node alone", LIMIT, || node.state().ok().filter(|state| !state.is_primary())).unwrap();
    node.isolate(false).unwrap();
    cluster.wait_synced().unwrap();
    node.reject_queries(true).unwrap();
    assert_eq!(node.server.sql("SELECT 1 FROM mysql.user").unwrap_err().code(), Some(1047));
    node.reject_queries(false).unwrap();
}

/// The writer is desynced, and another node writes.
///
/// A session pinned by anything but a transaction stops writing to the old one, so a node with such sessions can be drained.
#[test]
fn pinned_sessions_leave_a_node_that_drains() {
    let topology = Topology::Galera(Galera::start(3, &Options::new()).unwrap());
    let Topology::Galera(cluster) = &topology else { unreachable!("a cluster was started") };
    cluster.server(0).sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    let proxy = topology
        .proxied()
        .variable("drain_grace_ms", 1_000)
        .variable("failback", "never")
        .variable("carry_user_variables_max_length", 0)
        .start()
        .unwrap();
    let writes_at = |index: usize| {
        let port = cluster.server(index).port().to_string();
        let placed = layout(&proxy).unwrap();
        placed.iter().any(|p| p.hostgroup == WRITER && p.status == "ONLINE" && p.server.ends_with(&port)).then_some(())
    };
    wait::until("the writer", LIMIT, || writes_at(0)).unwrap();
    let pinned = || {
        let mut client = proxy.connect_app().unwrap();
        client.run("SET @a = (SELECT CONNECTION_ID())").unwrap();
        assert_eq!(client.scalar("SELECT @a = CONNECTION_ID()").unwrap().as_deref(), Some("1"));
        client
    };
    let mut client = pinned();
    cluster.nodes[0].desync(true).unwrap();
    let mut writes = 0..;
    let told = wait::until("the session to end", LIMIT, || {
        let reply = client.query(format!("INSERT INTO t VALUES({})", writes.next()?)).unwrap();
        reply.err().map(|e| (e.code, e.message.clone()))
    });
    let (code, text) = told.unwrap();
    assert!(code == lab::SERVER_LOST && text.contains("user_variable"), "{code}: {text}");
    let new = wait::until("another writer", LIMIT, || [1, 2].into_iter().find(|index| writes_at(*index).is_some())).unwrap();
    let _pinned = pinned();
    let server = cluster.server(new);
    let drain = format!("DRAIN SERVER '{}:{}'", server.host(), server.port());
    proxy.admin().unwrap().run(drain).unwrap();
    assert_eq!(server.scalar("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app'").unwrap().as_deref(), Some("0"));
}

/// A reader is frozen for so long that the others go on without it.
///
/// When it wakes up it still reports the old, larger cluster, which is no reason to take the role from the writer.
#[test]
fn a_node_that_wakes_up_moves_no_writer() {
    let topology = Topology::Galera(Galera::start(3, &Options::new()).unwrap());
    let Topology::Galera(cluster) = &topology else { unreachable!("a cluster was started") };
    cluster.server(0).sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    let proxy = topology.proxied().variable("monitor_galera_healthcheck_interval", 500).variable("failback", "immediate").start().unwrap();
    let placed = |index: usize, hostgroup: i64| {
        let port = cluster.server(index).port().to_string();
        let is_there = |p: &lab::topology::Placed| p.hostgroup == hostgroup && p.status == "ONLINE" && p.server.ends_with(&port);
        layout(&proxy).unwrap().iter().any(is_there)
    };
    let all_well = || (placed(0, WRITER) && placed(1, READER) && placed(2, READER)).then_some(());
    wait::until("all nodes", LIMIT, all_well).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = proxy.connect_app().unwrap();
            let mut write = |i: usize| {
                std::thread::sleep(Duration::from_millis(5));
                client.run(format!("INSERT INTO t VALUES({i})")).map(drop)
            };
            (0..).take_while(|_| !is_over.load(Ordering::Relaxed)).try_for_each(&mut write)
        });
        cluster.server(1).sigstop();
        let out = wait::until("the reader to be out", LIMIT, || (!placed(1, READER)).then_some(()));
        std::thread::sleep(Duration::from_secs(8));
        cluster.server(1).sigcont();
        let mut has_moved = false;
        let back = wait::until("the reader to be back", LIMIT, || {
            has_moved |= !(placed(0, WRITER) && placed(2, READER));
            placed(1, READER).then_some(())
        });
        is_over.store(true, Ordering::Relaxed);
        let written = load.join().unwrap();
        assert!(out.is_ok() && back.is_ok(), "{out:?} {back:?}");
        let mut admin = proxy.admin().unwrap();
        let mut count = |of: String| admin.scalar(format!("SELECT COUNT(*) FROM stats_tidegate_events WHERE {of}")).unwrap().unwrap();
        assert_eq!(count("why LIKE '%smaller%'".to_owned()), "0");
        // On a very busy machine the other nodes may lose each other as well.
        let awake = count(format!("why LIKE 'not in the primary%' AND port <> {}", cluster.server(1).port()));
        if awake == "0" {
            assert!(!has_moved && written.is_ok(), "{written:?}");
        }
    });
}

/// The writer was away, is back and writes. Another node dies a few seconds later, which is no reason to take the role from the writer.
///
/// Its report of the cluster is current, though other nodes may see the change before it.
#[test]
fn a_writer_that_came_back_stays_when_another_node_dies() {
    let topology = Topology::Galera(Galera::start(3, &Options::new()).unwrap());
    let Topology::Galera(cluster) = &topology else { unreachable!("a cluster was started") };
    let proxy = topology.proxied().variable("monitor_galera_healthcheck_interval", 500).variable("failback", "immediate").start().unwrap();
    let port = cluster.server(0).port().to_string();
    let writes = || {
        let is_there = |p: &lab::topology::Placed| p.hostgroup == WRITER && p.status == "ONLINE" && p.server.ends_with(&port);
        layout(&proxy).unwrap().iter().any(is_there)
    };
    wait::until("the writer", LIMIT, || writes().then_some(())).unwrap();
    for after_ms in [2_000, 4_000, 7_000] {
        cluster.server(0).kill9();
        wait::until("another writer", LIMIT, || (!writes()).then_some(())).unwrap();
        cluster.restart(0).unwrap();
        wait::until("the writer to be back", LIMIT, || writes().then_some(())).unwrap();
        let mut admin = proxy.admin().unwrap();
        let told = admin.scalar("SELECT MAX(sequence) FROM stats_tidegate_events").unwrap().unwrap();
        // Its return is to be that long ago.
        std::thread::sleep(Duration::from_millis(after_ms));
        cluster.server(2).kill9();
        cluster.wait_size(0, 2).unwrap();
        cluster.wait_size(1, 2).unwrap();
        // The proxy has looked at both since.
        std::thread::sleep(Duration::from_millis(2_000));
        let moved = format!("SELECT COUNT(*) FROM stats_tidegate_events WHERE sequence > {told} AND port = {port} AND kind = 'role'");
        assert_eq!(admin.scalar(&moved).unwrap().as_deref(), Some("0"), "{after_ms}\n{}", proxy.log());
        assert!(writes());
        cluster.restart(2).unwrap();
    }
}

#[test]
fn is_founded_again_after_all_have_crashed() {
    let cluster = Galera::start(3, &Options::new()).unwrap();
    cluster.server(0).sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    cluster.crash_all();
    cluster.found_again().unwrap();
    for node in &cluster.nodes {
        node.server.sql("SELECT * FROM test.t").unwrap();
    }
}

#[test]
fn a_node_that_knows_nothing_is_given_everything() {
    let cluster = Galera::start(3, &Options::new()).unwrap();
    cluster.server(0).sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    cluster.server(0).sql("INSERT INTO test.t VALUES(1)").unwrap();
    let server = cluster.server(2);
    server.kill9();
    cluster.wait_size(0, 2).unwrap();
    fs::remove_file(server.datadir().join("grastate.dat")).unwrap();
    server.relaunch(&["--wsrep-start-position=00000000-0000-0000-0000-000000000000:-1"]).unwrap();
    cluster.wait_synced().unwrap();
    assert_eq!(server.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("1"));
    server.sql("INSERT INTO test.t VALUES(2)").unwrap();
    let has_both = || (cluster.server(0).scalar("SELECT COUNT(*) FROM test.t").unwrap()? == "2").then_some(());
    wait::until("what it wrote on another node", LIMIT, has_both).unwrap();
}

#[test]
fn a_cut_node_is_alone() {
    if !Network::possible() {
        eprintln!("not tested: networks need root and the program ip");
        return;
    }
    let cluster = Galera::start_apart(3, &Options::new()).unwrap();
    let site = &cluster.network().unwrap().sites[2];
    site.cut_from_group(true).unwrap();
    cluster.wait_size(0, 2).unwrap();
    site.cut_from_group(false).unwrap();
    cluster.wait_synced().unwrap();
}

fn writer(proxy: &Tidegate) -> Option<String> {
    let placed = layout(proxy).ok()?;
    placed.into_iter().find(|p| p.hostgroup == WRITER && p.status == "ONLINE").map(|p| p.server)
}

/// Waits until the file for a restart contains this text, or does not.
fn wait_kept(proxy: &Tidegate, text: &str, is_there: bool) {
    let file = proxy.dir().join("tidegate_writers.json");
    let is_so = || fs::read_to_string(&file).is_ok_and(|kept| kept.contains(text) == is_there).then_some(());
    wait::until(&format!("{text} to be kept: {is_there}"), LIMIT, is_so).unwrap();
}

/// The file for a restart follows settings and rows. If it cannot be written, it is written later, at the latest when the process ends.
#[test]
fn what_is_kept_for_a_restart_is_what_holds() {
    let topology = Topology::Galera(Galera::start(3, &Options::new()).unwrap());
    let proxy = topology.proxied().start().unwrap();
    let Topology::Galera(cluster) = &topology else { unreachable!("a cluster was started") };
    let names: Vec<String> = (0..3).map(|i| format!("{}:{}", cluster.server(i).host(), cluster.server(i).port())).collect();
    let first = wait::until("the writer", LIMIT, || writer(&proxy)).unwrap();
    let chosen = names.iter().find(|name| !name.ends_with(&first)).unwrap();
    let mut admin = proxy.admin().unwrap();
    let prefer = format!("SWITCHOVER HOSTGROUP {WRITER} TO '{chosen}'");
    wait::until("all nodes to be seen", LIMIT, || admin.run(&prefer).ok()).unwrap();
    wait_kept(&proxy, "\"is_preferred\": true", true);
    for active in [0, 1] {
        admin.run(format!("UPDATE mysql_galera_hostgroups SET active = {active}")).unwrap();
        admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
        wait_kept(&proxy, "\"is_preferred\": true", false);
    }
    wait::until("the first to write", LIMIT, || writer(&proxy).filter(|name| *name == first)).unwrap();
    for (policy, is_kept) in [("never", true), ("delayed", false), ("command", true)] {
        admin.run(format!("SET mysql-failback = '{policy}'")).unwrap();
        admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
        wait_kept(&proxy, "is_preferred", is_kept);
    }
    let in_the_way = files::scratch(&proxy.dir().join("tidegate_writers.json"));
    let mut refused = |order: &str| {
        fs::create_dir(&in_the_way).unwrap();
        wait::until(order, LIMIT, || admin.run(order).ok()).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        fs::remove_dir(&in_the_way).unwrap();
    };
    refused(&prefer);
    wait_kept(&proxy, "\"is_preferred\": true", true);
    refused(&format!("FAILBACK HOSTGROUP {WRITER}"));
    proxy.stop().unwrap();
    wait_kept(&proxy, "\"is_preferred\": true", false);
}

/// A writer chosen by SWITCHOVER keeps its role when the proxy is started again, though another node has more weight.
#[test]
fn the_choice_of_a_writer_outlasts_the_proxy() {
    let topology = Topology::Galera(Galera::start(3, &Options::new()).unwrap());
    let mut proxy = topology.proxied().start().unwrap();
    let first = wait::until("the writer", LIMIT, || writer(&proxy)).unwrap();
    let Topology::Galera(cluster) = &topology else { unreachable!("a cluster was started") };
    let names: Vec<String> = (0..3).map(|i| format!("{}:{}", cluster.server(i).host(), cluster.server(i).port())).collect();
    let chosen = names.iter().find(|name| **name != first).unwrap();
    wait::until("all nodes to be seen", LIMIT, || proxy.admin().unwrap().run(format!("SWITCHOVER HOSTGROUP {WRITER} TO '{chosen}'")).ok())
        .unwrap();
    assert_eq!(writer(&proxy).as_ref(), Some(chosen));
    let file = proxy.dir().join("tidegate_writers.json");
    wait::until("the choice to be kept", LIMIT, || fs::read_to_string(&file).ok().filter(|text| text.contains("\"is_preferred\": true")))
        .unwrap();
    for (end, expected) in [("killed", chosen), ("stopped", chosen), ("--initial", &first)] {
        if end == "killed" {
            proxy.kill9()
        } else {
            proxy.stop().unwrap()
        }
        proxy.start_again(if end == "--initial" { &["--initial"] } else { &[] }).unwrap();
        let seen = wait::until("the writer", LIMIT, || writer(&proxy)).unwrap();
        assert_eq!(seen, *expected, "{end}");
        let mut client = proxy.connect_app().unwrap();
        let port = client.scalar("SELECT @@port FOR UPDATE").unwrap().unwrap();
        assert!(expected.ends_with(&port), "{end}: {port}");
    }
}
