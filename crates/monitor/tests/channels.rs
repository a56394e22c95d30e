//! Channels from other clusters stay with the writer of the receiving one, on real servers. Two monitors keep each.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{BACKUP_WRITERS, LIMIT, READERS, Running, WRITERS, addr, online, snapshot};
use lab::flavor::Flavor;
use lab::galera::Galera;
use lab::group::Group;
use lab::replication::{Replication, binlog_end, position, promote, wait_for};
use lab::{Options, Server, wait};
use model::ServerAddr;
use model::fleet::Operator;
use model::snapshot::Snapshot;

type Row = BTreeMap<&'static str, String>;

/// A configuration of a receiving cluster, with a channel `east` from `source`.
fn receiving<'a>(table: &str, servers: impl IntoIterator<Item = &'a Server>, source: &Server, is_active: bool) -> Arc<Snapshot> {
    let row = |(index, server): (usize, &Server)| {
        let weight = if index == 0 { 1_000 } else { 1 };
        format!("{{ address=\"{}\", port={}, hostgroup=20, weight={weight}, max_replication_lag=5 }}", server.host(), server.port())
    };
    let rows: Vec<String> = servers.into_iter().enumerate().map(row).collect();
    let hostgroups = match table {
        "mysql_replication_hostgroups" => "",
        _ => ", backup_writer_hostgroup=11, offline_hostgroup=12, writer_is_also_reader=0",
    };
    snapshot(&format!(
        "mysql_variables = {{ replication_channel_username=\"repl\", replication_channel_password=\"repl-pass\", \
         replication_channel_check_interval=200, monitor_galera_healthcheck_interval=200, \
         monitor_groupreplication_healthcheck_interval=200, monitor_replication_lag_interval=200 }}\n\
         mysql_servers = ( {} )\n\
         {table} = ( {{ writer_hostgroup=10, reader_hostgroup=20{hostgroups} }} )\n\
         mysql_replication_channels = ( {{ writer_hostgroup=10, channel_name=\"east\", source_hostname=\"{}\", source_port={}, active={} }} )",
        rows.join(", "),
        source.host(),
        source.port(),
        u8::from(is_active),
    ))
}

fn channel(running: &Running) -> Option<Row> {
    running.table("stats_tidegate_channels").pop()
}

/// Waits until all say that the channel is so, on this server.
fn wait_state(all: &[Running], state: &str, server: &Server) {
    for running in all {
        let is_so = |row: &Row| row["state"] == state && row["port"] == server.port().to_string();
        let found = wait::until(state, 2 * LIMIT, || channel(running).filter(is_so).map(drop));
        let events = || running.table("stats_tidegate_events");
        assert!(found.is_ok(), "{state} on {}: {:?} {:#?}", server.port(), channel(running), events());
    }
}

/// The monitors' steps for the channel.
fn deeds(running: &Running) -> Vec<(String, String, String)> {
    let events = running.table("stats_tidegate_events").into_iter().filter(|row| row["kind"] == "channel");
    events.map(|row| (row["port"].clone(), row["to_state"].clone(), row["why"].clone())).collect()
}

/// Writes on a server until it is told to stop.
fn while_written<R>(source: &Server, body: impl FnOnce() -> R) -> R {
    source.sql("CREATE TABLE IF NOT EXISTS test.east (id INT PRIMARY KEY AUTO_INCREMENT, at TIMESTAMP(6) DEFAULT NOW(6))").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = source.root().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                client.query("INSERT INTO test.east () VALUES ()").unwrap();
                // Slower than any receiver.
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        is_over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn rows(server: &Server) -> u64 {
    server.scalar("SELECT COUNT(*) FROM test.east").ok().flatten().and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Waits until rows arrive there.
fn wait_flow(server: &Server) {
    let before = rows(server);
    wait::until("rows to arrive", LIMIT, || (rows(server) > before + 20).then_some(())).unwrap();
}

/// Nothing is missing there, and nothing is there twice.
fn same(source: &Server, receiver: &Server) {
    let sum = |server: &Server| server.sql("CHECKSUM TABLE test.east").unwrap().rows().unwrap().field(0, "Checksum");
    let wanted = sum(source);
    println!("{} rows, checksum {wanted:?}", rows(source));
    let found = wait::until("all rows", LIMIT, || (sum(receiver) == wanted).then_some(()));
    assert!(found.is_ok(), "{} of {} rows", rows(receiver), rows(source));
}

fn link(server: &Server, column: &str) -> Option<String> {
    let sql = match server.flavor() {
        Flavor::Mariadb => "SHOW SLAVE 'east' STATUS",
        Flavor::Mysql => "SHOW REPLICA STATUS FOR CHANNEL 'east'",
    };
    server.sql(sql).unwrap().rows().unwrap().field(0, column)
}

/// A pair of MariaDB servers replicates from a third one. Its primary is killed; then the channel is stopped, broken, and given up.
#[test]
fn a_pair_of_mariadb() {
    let source = Server::start(Flavor::Mariadb, &Options::new().args(["--log-bin=bin", "--gtid-domain-id=7"])).unwrap();
    let pair = Replication::start(Flavor::Mariadb, 1, &Options::new().arg("--gtid-domain-id=1")).unwrap();
    pair.primary.sql("GRANT REPLICATION SLAVE ADMIN ON *.* TO monitor@'%'").unwrap();
    pair.wait_caught_up().unwrap();
    let servers = || [&pair.primary, &pair.replicas[0]];
    let configured = |is_active| receiving("mysql_replication_hostgroups", servers(), &source, is_active);
    let all = [(); 2].map(|()| Running::start(&configured(true)));
    let (old, new) = (&pair.primary, &pair.replicas[0]);

    while_written(&source, || {
        wait_state(&all, "running", old);
        wait_flow(new);
        old.kill9();
        promote(new).unwrap();
        wait_state(&all, "running", new);
        wait_flow(new);
    });
    wait_for(new, &position(&source).unwrap()).unwrap();
    same(&source, new);
    let port = new.port().to_string();
    let did: Vec<_> = all.iter().flat_map(deeds).collect();
    println!("{did:#?}");
    assert!(did.iter().any(|(at, what, why)| *at == port && what == "started" && why.contains("is the writer now")), "{did:#?}");
    assert!(!format!("{did:?}").contains("repl-pass"));

    // Stopped by hand, without an error: active means that it runs.
    new.sql("STOP SLAVE 'east'").unwrap();
    wait::until("it runs again", LIMIT, || (link(new, "Slave_SQL_Running").as_deref() == Some("Yes")).then_some(())).unwrap();
    wait_state(&all, "running", new);

    // A channel that an error stopped is left alone, and reported once.
    new.sql("INSERT INTO test.east (id) VALUES (1000000)").unwrap();
    source.sql("INSERT INTO test.east (id) VALUES (1000000)").unwrap();
    wait_state(&all, "failed", new);
    let is_old = |row: Row| row["since_ms"].parse::<u64>().unwrap() > 1_500;
    wait::until("some more rounds", LIMIT, || channel(&all[0]).filter(|row| row["state"] == "failed").is_some_and(is_old).then_some(()))
        .unwrap();
    assert_eq!(link(new, "Slave_SQL_Running").as_deref(), Some("No"));
    let told = deeds(&all[0]).into_iter().filter(|(_, to, _)| to == "failed").collect::<Vec<_>>();
    assert!(told.len() == 1 && told[0].2.contains("1062"), "{told:?}");
    new.sql("DELETE FROM test.east WHERE id=1000000").unwrap();
    new.sql("START SLAVE 'east'").unwrap();
    wait_state(&all, "running", new);

    // Not active any more: stopped once, and not again.
    for running in &all {
        running.configure(&configured(false));
    }
    wait::until("it is stopped", LIMIT, || (link(new, "Slave_IO_Running").as_deref() == Some("No")).then_some(())).unwrap();
    for running in &all {
        running.wait_row("stats_tidegate_channels", |row| row["state"] == "inactive" && row["port"] == "NULL");
    }
    new.sql("START SLAVE 'east'").unwrap();
    for running in &all {
        running.wait_row("stats_tidegate_channels", |row| row["reason"].contains("leaves the channel alone"));
    }
    assert_eq!(link(new, "Slave_SQL_Running").as_deref(), Some("Yes"));
}

/// Holds the channel's table on a server until its changes are some seconds late. Asserts that no server is shunned for that.
fn lag_shuns_nobody(running: &Running, writer: &Server, readers: usize) {
    let mut holder = writer.root().unwrap();
    holder.query("LOCK TABLES test.east READ").unwrap();
    let column = if writer.flavor() == Flavor::Mariadb { "Seconds_Behind_Master" } else { "Seconds_Behind_Source" };
    let is_late = || link(writer, column).and_then(|lag| lag.parse::<u64>().ok()).is_some_and(|lag| lag > 6);
    wait::until("the channel to be late", LIMIT, || is_late().then_some(())).unwrap();
    let looks = || running.table("mysql_server_replication_lag_log").len();
    let before = looks();
    wait::until("looks at lag", LIMIT, || (looks() >= before + 9).then_some(())).unwrap();
    running.plane.look(|told| {
        assert_eq!(online(&told.layout, WRITERS), [addr(writer)]);
        assert_eq!(online(&told.layout, READERS).len(), readers);
    });
    holder.query("UNLOCK TABLES").unwrap();
}

/// A replication group replicates from a MySQL server beside it. Its primary is killed.
#[test]
fn a_replication_group() {
    let source = Server::start(Flavor::Mysql, &Options::new().args(MYSQL_SOURCE)).unwrap();
    let group = Group::start(3, &Options::new()).unwrap();
    let primary = group.wait_primary_among(&[0, 1, 2]).unwrap();
    group.members[primary].sql("GRANT REPLICATION_SLAVE_ADMIN, GROUP_REPLICATION_ADMIN ON *.* TO monitor@'%'").unwrap();
    let configured = receiving("mysql_group_replication_hostgroups", &group.members, &source, true);
    let all = [(); 2].map(|()| Running::start(&configured));
    let old = &group.members[primary];
    let others: Vec<usize> = (0..3).filter(|index| *index != primary).collect();

    let next = while_written(&source, || {
        wait_state(&all, "running", old);
        for member in &group.members {
            wait_flow(member);
        }
        lag_shuns_nobody(&all[0], old, 2);
        // MySQL refuses an election while the primary runs a channel, so the channel is stopped. The other monitor may have started it
        // again.
        let to = &group.members[others[0]];
        let switched = || all[0].monitor.switchover(WRITERS, &addr(to), Some(20_000)).map_err(|why| println!("{why}")).ok();
        println!("{}", wait::until("the switchover", LIMIT, switched).unwrap().text);
        wait_state(&all, "running", to);
        wait_flow(to);
        to.kill9();
        let others = [primary, others[1]];
        let next = group.wait_primary_among(&others).unwrap();
        wait_state(&all, "running", &group.members[next]);
        wait_flow(&group.members[next]);
        next
    });
    for index in [primary, others[1]] {
        wait_for(&group.members[index], &position(&source).unwrap()).unwrap();
        same(&source, &group.members[index]);
    }
    println!("{:#?}", deeds(&all[0]));
    assert_eq!(link(&group.members[next], "Auto_Position").as_deref(), Some("1"));
}

const MYSQL_SOURCE: [&str; 3] = ["--log-bin=bin", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"];

/// A pair of MySQL servers to which a channel can be added.
fn pair_of_mysql() -> Replication {
    let pair = Replication::start(Flavor::Mysql, 1, &Options::new()).unwrap();
    pair.primary.sql("GRANT REPLICATION_SLAVE_ADMIN ON *.* TO monitor@'%'").unwrap();
    pair.wait_caught_up().unwrap();
    pair
}

/// Waits until the channel is not started for this reason, and looks that the server has none.
fn wait_blocked(running: &Running, writer: &Server, reason: &str) {
    running.wait_row("stats_tidegate_channels", |row| row["state"] == "blocked" && row["reason"].contains(reason));
    println!("{}", channel(running).unwrap()["reason"]);
    let channels = "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration WHERE CHANNEL_NAME='east'";
    assert_eq!(writer.scalar(channels).unwrap().as_deref(), Some("0"));
}

/// The source purged transactions that the receiving cluster never had. The channel does not begin with a gap, until the data is copied.
#[test]
fn a_source_that_has_purged_transactions() {
    let source = Server::start(Flavor::Mysql, &Options::new().args(MYSQL_SOURCE)).unwrap();
    for sql in ["CREATE TABLE test.early (i INT)", "DROP TABLE test.early", "FLUSH BINARY LOGS"] {
        source.sql(sql).unwrap();
    }
    source.sql(&format!("PURGE BINARY LOGS TO '{}'", binlog_end(&source).unwrap().0)).unwrap();
    let purged = source.scalar("SELECT @@gtid_purged").unwrap().unwrap().replace('\n', "");
    let pair = pair_of_mysql();
    let servers = [&pair.primary, &pair.replicas[0]];
    let running = Running::start(&receiving("mysql_replication_hostgroups", servers, &source, true));
    wait_blocked(&running, &pair.primary, "transactions from its binlogs that");
    // As a dump of the source brings it.
    for server in servers {
        server.sql(&format!("SET GLOBAL gtid_purged='+{purged}'")).unwrap();
    }
    while_written(&source, || {
        wait_state(std::slice::from_ref(&running), "running", &pair.primary);
        wait_flow(&pair.replicas[0]);
    });
    same(&source, &pair.replicas[0]);
}

/// The source lost transactions that the receiving cluster has, and would give their GTIDs to new ones. The channel does not continue at
/// the new writer until the source has them.
#[test]
fn a_source_that_has_lost_transactions() {
    let source = Server::start(Flavor::Mysql, &Options::new().args(MYSQL_SOURCE)).unwrap();
    let pair = pair_of_mysql();
    let (old, new) = (&pair.primary, &pair.replicas[0]);
    let running = Running::start(&receiving("mysql_replication_hostgroups", [old, new], &source, true));
    while_written(&source, || {
        wait_state(std::slice::from_ref(&running), "running", old);
        wait_flow(new);
    });
    same(&source, new);
    old.kill9();
    // As a source that was restored from a backup, or failed over to a replica that was behind.
    let uuid = source.scalar("SELECT @@server_uuid").unwrap().unwrap();
    let all = position(&source).unwrap();
    let own = all.split(',').map(str::trim).find_map(|set| set.strip_prefix(&*uuid)).unwrap();
    let last: u64 = own.rsplit(['-', ':']).next().unwrap().parse().unwrap();
    source.sql("RESET BINARY LOGS AND GTIDS").unwrap();
    source.sql(&format!("SET GLOBAL gtid_purged='{uuid}:1-{}'", last - 2)).unwrap();
    promote(new).unwrap();
    wait_blocked(&running, new, "has 2 transactions of the source");
    source.sql(&format!("SET GLOBAL gtid_purged='+{uuid}:{}-{last}'", last - 1)).unwrap();
    while_written(&source, || {
        wait_state(std::slice::from_ref(&running), "running", new);
        wait_flow(new);
    });
    same(&source, new);
}

/// A Galera cluster replicates from a MariaDB server beside it. Its writer changes while all live, and is killed.
#[test]
fn a_galera_cluster() {
    let source = Server::start(Flavor::Mariadb, &Options::new().args(["--log-bin=bin", "--gtid-domain-id=7"])).unwrap();
    let args = ["--wsrep-gtid-mode=ON", "--wsrep-gtid-domain-id=3", "--gtid-domain-id=1"];
    let galera = Galera::start(3, &Options::new().args(args)).unwrap();
    galera.server(0).sql("GRANT REPLICATION SLAVE ADMIN ON *.* TO monitor@'%'").unwrap();
    let servers = || galera.nodes.iter().map(|node| &node.server);
    let configured = receiving("mysql_galera_hostgroups", servers(), &source, true);
    let all = [(); 2].map(|()| Running::start(&configured));
    let writer = || all[0].plane.look(|told| online(&told.layout, WRITERS).first().cloned());
    let index_of = |addr: &ServerAddr| servers().position(|server| common::addr(server) == *addr);
    // Proxies that see different nodes choose different writers, so the right place of the channel is unknown.
    let is_settled = |writes: usize| {
        let writer = common::addr(galera.server(writes));
        let sees_all = |one: &Running| {
            one.plane.look(|told| online(&told.layout, WRITERS) == [writer.clone()] && online(&told.layout, BACKUP_WRITERS).len() == 2)
        };
        all.iter().all(sees_all).then_some(())
    };

    let last = while_written(&source, || {
        wait_state(&all, "running", galera.server(0));
        for server in servers() {
            wait_flow(server);
        }
        lag_shuns_nobody(&all[0], galera.server(0), 2);
        // Both ways, so that a node has an older position of its own.
        let mut writes = 0;
        for _ in 0..4 {
            wait::until("both proxies to see all nodes in their roles", LIMIT, || is_settled(writes)).unwrap();
            galera.nodes[writes].desync(true).unwrap();
            let next = || writer().and_then(|addr| index_of(&addr)).filter(|index| *index != writes);
            let next = wait::until("another writer", LIMIT, next).unwrap();
            wait_state(&all, "running", galera.server(next));
            wait_flow(galera.server(next));
            galera.nodes[writes].desync(false).unwrap();
            galera.wait_synced().unwrap();
            writes = wait::until("a settled writer", LIMIT, || writer().and_then(|addr| index_of(&addr))).unwrap();
            wait_state(&all, "running", galera.server(writes));
            println!(
                "runs on {writes}: {:?} {:?}",
                galera.server(writes).scalar("SELECT @@gtid_slave_pos"),
                galera.server(writes).scalar("SELECT @@gtid_binlog_pos")
            );
        }
        wait::until("both proxies to see all nodes in their roles", LIMIT, || is_settled(writes)).unwrap();
        galera.server(writes).kill9();
        let next = || writer().and_then(|addr| index_of(&addr)).filter(|index| *index != writes);
        let next = wait::until("another writer", LIMIT, next).unwrap();
        wait_state(&all, "running", galera.server(next));
        wait_flow(galera.server(next));
        writes
    });
    for (index, server) in servers().enumerate().filter(|(index, _)| *index != last) {
        println!("{index}: {:?} {:?}", server.scalar("SELECT @@gtid_slave_pos"), server.scalar("SELECT @@gtid_binlog_pos"));
        same(&source, server);
    }
    println!("{:#?}", deeds(&all[0]));
}

/// Without `wsrep_gtid_mode` MariaDB's GTIDs may differ between nodes: a channel stays on the node where it was started.
#[test]
fn galera_nodes_that_do_not_hand_gtids_on() {
    let source = Server::start(Flavor::Mariadb, &Options::new().args(["--log-bin=bin", "--gtid-domain-id=7"])).unwrap();
    let galera = Galera::start(2, &Options::new().arg("--gtid-domain-id=1")).unwrap();
    galera.server(0).sql("GRANT REPLICATION SLAVE ADMIN ON *.* TO monitor@'%'").unwrap();
    let servers = || galera.nodes.iter().map(|node| &node.server);
    let running = Running::start(&receiving("mysql_galera_hostgroups", servers(), &source, true));
    let is_blocked = |row: &Row| row["state"] == "blocked" && row["reason"].contains("wsrep_gtid_mode=ON");
    running.wait_row("stats_tidegate_channels", is_blocked);
    let statements = [
        format!(
            "CHANGE MASTER 'east' TO MASTER_HOST='{}', MASTER_PORT={}, MASTER_USER='repl', MASTER_PASSWORD='repl-pass', \
             MASTER_USE_GTID=slave_pos",
            source.host(),
            source.port()
        ),
        "START SLAVE 'east'".to_owned(),
    ];
    for sql in &statements {
        galera.server(0).sql(sql).unwrap();
    }
    while_written(&source, || {
        let warned = |row: &Row| row["state"] == "running" && row["reason"].contains("wsrep_gtid_mode=ON");
        running.wait_row("stats_tidegate_channels", warned);
        wait_flow(galera.server(1));
        for server in servers() {
            println!("{:?} {:?}", server.scalar("SELECT @@gtid_slave_pos"), server.scalar("SELECT @@gtid_binlog_pos"));
        }
        galera.nodes[0].desync(true).unwrap();
        running.wait_writer(galera.server(1));
        let stays = |row: &Row| is_blocked(row) && row["port"] == galera.server(0).port().to_string();
        running.wait_row("stats_tidegate_channels", stays);
        wait_flow(galera.server(1));
    });
}
