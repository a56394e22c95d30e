//! SWITCHOVER and replication: the old primary and the other replicas follow the new one; a server that cannot serves no reads.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::LIMIT;
use lab::replication::{Replication, follow};
use lab::tidegate::Builder;
use lab::{Client, Flavor, Options, Server, Tidegate, wait};

/// A row that was acknowledged so long ago is read on every server. A stray is out after 5 s, so a stale reader is caught within a round.
const LAG_LIMIT: Duration = Duration::from_secs(4);

fn cluster(flavor: Flavor, replicas: usize) -> Replication {
    let servers = Replication::start(flavor, replicas, &Options::new()).unwrap();
    servers.primary.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    servers.allow_switchover().unwrap();
    servers
}

/// Statements that begin with SELECT go to the readers, all of them.
fn proxied(servers: &Replication) -> Builder {
    let builder = Tidegate::builder().app_user().variable("switchover_manages_read_only", true);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let rule = [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "^SELECT".into())];
    let builder = builder.row("mysql_query_rules", &[&rule[..], &[("destination_hostgroup", 1.into()), ("apply", 1.into())]].concat());
    servers.replicas.iter().fold(builder.backend(0, &servers.primary), |builder, replica| builder.backend(1, replica))
}

fn with_account(builder: Builder) -> Builder {
    builder.variable("replication_username", "repl").variable("replication_password", "repl-pass")
}

/// The answer, or the refusal.
fn switch(proxy: &Tidegate, to: &Server) -> Result<String, String> {
    let mut admin = proxy.admin().unwrap();
    let reply = admin.query(format!("SWITCHOVER HOSTGROUP 0 TO '{}' TIMEOUT 20000", to.address())).unwrap();
    let said = reply.err().map(|refused| refused.message.clone());
    let said = said.map_or_else(|| Ok(reply.status().unwrap().info.clone()), Err);
    println!("{said:?}");
    said
}

/// Ports of the servers from which a server receives.
fn sources(server: &Server) -> Vec<String> {
    let (sql, column, running) = match server.flavor() {
        Flavor::Mariadb => ("SHOW ALL SLAVES STATUS", "Master_Port", "Slave_IO_Running"),
        Flavor::Mysql => ("SHOW REPLICA STATUS", "Source_Port", "Replica_IO_Running"),
    };
    let reply = server.sql(sql).unwrap();
    let rows = reply.rows().unwrap();
    (0..reply.table().unwrap().len())
        .map(|row| format!("{}:{}", rows.field(row, column).unwrap(), rows.field(row, running).unwrap()))
        .collect()
}

fn runs_from(server: &Server) -> Vec<String> {
    vec![format!("{}:Yes", server.port())]
}

fn status(proxy: &Tidegate, server: &Server, wanted: &str) {
    let sql = format!("SELECT status FROM runtime_mysql_servers WHERE hostgroup_id=1 AND port={}", server.port());
    let is_so = || (proxy.admin().ok()?.scalar(&sql).ok()?? == wanted).then_some(());
    wait::until("the status", LIMIT, is_so).unwrap();
}

/// Back and forth five times, while one client writes and others read from all servers.
///
/// There is no error, and no read that is older than the limit.
fn everybody_follows(flavor: Flavor) {
    let servers = cluster(flavor, 2);
    let (first, [second, leaf]) = (&servers.primary, &servers.replicas[..]) else { panic!("three servers") };
    let proxy = with_account(proxied(&servers)).start().unwrap();
    let load = Load::start(&proxy, 3);
    let mut roles = (first, second);
    for round in 0..5 {
        let (old, new) = roles;
        let said = switch(&proxy, new).unwrap();
        assert!(!said.contains("WARNING"), "{said}");
        assert_eq!(sources(new), [] as [&str; 0], "round {round}");
        assert_eq!((sources(old), sources(leaf)), (runs_from(new), runs_from(new)), "round {round}");
        // Longer than a stray would be read from.
        load.goes_on(Duration::from_secs(6));
        for server in [old, new, leaf] {
            status(&proxy, server, "ONLINE");
        }
        roles = (new, old);
    }
    let (rows, reads) = load.stop();
    let position = lab::replication::position(roles.0).unwrap();
    for server in [roles.1, leaf] {
        lab::replication::wait_for(server, &position).unwrap();
        assert_eq!(server.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap(), rows.to_string());
    }
    println!("{rows} rows, {reads} reads, none failed, none older than {LAG_LIMIT:?}");
}

lab::each!(everybody_follows);

/// A writer that records when each row was acknowledged, and readers that record rows which they find too old.
struct Load {
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    acknowledged: Arc<Mutex<Vec<Instant>>>,
    faults: Arc<Mutex<Vec<String>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(proxy: &Tidegate, readers: usize) -> Self {
        let load =
            Load { stop: Arc::default(), reads: Arc::default(), acknowledged: Arc::default(), faults: Arc::default(), threads: Vec::new() };
        let client = || Client::connect(&proxy.options("app", "app-pass").database("test")).unwrap();
        let mut threads = Vec::new();
        let (stop, acknowledged, faults, mut writer) =
            (Arc::clone(&load.stop), Arc::clone(&load.acknowledged), Arc::clone(&load.faults), client());
        threads.push(std::thread::spawn(move || {
            for row in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                match writer.run(format!("INSERT INTO t VALUES ({row})")) {
                    Ok(_) => acknowledged.lock().unwrap().push(Instant::now()),
                    Err(fault) => return faults.lock().unwrap().push(format!("write: {fault}")),
                }
            }
        }));
        for _ in 0..readers {
            let (stop, acknowledged, faults, reads, mut reader) =
                (Arc::clone(&load.stop), Arc::clone(&load.acknowledged), Arc::clone(&load.faults), Arc::clone(&load.reads), client());
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let due = acknowledged.lock().unwrap().partition_point(|when| *when + LAG_LIMIT < begun);
                    match reader.scalar("SELECT CONCAT(COUNT(*), ' ', @@port) FROM t") {
                        Ok(Some(found)) => {
                            let (rows, port) = found.split_once(' ').unwrap();
                            if rows.parse::<usize>().unwrap() < due {
                                faults.lock().unwrap().push(format!("stale: {rows} rows of {due} on port {port}"));
                            }
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                        fault => faults.lock().unwrap().push(format!("read: {fault:?}")),
                    }
                }
            }));
        }
        Load { threads, ..load }
    }

    /// Waits until rows have been written for so long.
    fn goes_on(&self, time: Duration) {
        let begun = Instant::now();
        let is_so = || self.acknowledged.lock().unwrap().last().filter(|last| **last > begun + time).map(drop);
        wait::until("rows to be written", LIMIT + time, is_so).unwrap();
        assert_eq!(*self.faults.lock().unwrap(), [] as [String; 0]);
    }

    /// How many rows and reads there were.
    fn stop(self) -> (usize, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*self.faults.lock().unwrap(), [] as [String; 0]);
        (self.acknowledged.lock().unwrap().len(), self.reads.load(Ordering::Relaxed))
    }
}

/// Before anything is touched: the GRANT that is missing, then the account; and the words that switch it off.
fn what_is_missing_is_named(flavor: Flavor) {
    let servers = cluster(flavor, 1);
    let new = &servers.replicas[0];
    let proxy = proxied(&servers).start().unwrap();
    let refused = switch(&proxy, new).unwrap_err();
    assert!(refused.contains("mysql-replication_username") && refused.contains("nothing was changed"), "{refused}");
    let mut admin = proxy.admin().unwrap();
    let mut set = |sql: &str| {
        for sql in [sql, "LOAD MYSQL VARIABLES TO RUNTIME"] {
            admin.run(sql).unwrap();
        }
    };
    set("SET mysql-replication_username='repl'");
    let privileges = match flavor {
        Flavor::Mariadb => ["REPLICATION SLAVE ADMIN", "RELOAD"],
        Flavor::Mysql => ["REPLICATION_SLAVE_ADMIN", "RELOAD"],
    };
    for privilege in privileges {
        servers.primary.sql(&format!("REVOKE {privilege} ON *.* FROM monitor@'%'")).unwrap();
        servers.wait_caught_up().unwrap();
        let refused = switch(&proxy, new).unwrap_err();
        for said in [&format!("GRANT {privilege} ON *.*"), "mysql-switchover_repoints='false'", "nothing was changed"] {
            assert!(refused.contains(said), "{said}: {refused}");
        }
    }
    assert_eq!(servers.primary.scalar("SELECT @@read_only").unwrap().as_deref(), Some("0"));
    assert_eq!(sources(new), runs_from(&servers.primary));
    set("SET mysql-switchover_repoints='false'");
    let said = switch(&proxy, new).unwrap();
    assert!(said.contains("WARNING: replication was not changed"), "{said}");
    assert_eq!((sources(new), sources(&servers.primary).len()), (runs_from(&servers.primary), 0));
}

lab::each!(what_is_missing_is_named);

/// With an account that the new primary refuses, the old one does not follow: it is named, left as it was, and not read from. Nothing
/// else suffers, and no password is told.
fn who_cannot_follow_serves_no_reads(flavor: Flavor) {
    let servers = cluster(flavor, 2);
    let (old, [new, leaf]) = (&servers.primary, &servers.replicas[..]) else { panic!("three servers") };
    let builder = proxied(&servers).variable("replication_username", "repl").variable("replication_password", "not-it");
    let proxy = builder.start().unwrap();
    let said = switch(&proxy, new).unwrap();
    let refused = format!("{} does not follow {}: ", old.address(), new.address());
    assert!(said.contains(&refused) && said.contains("(error 1045)") && said.contains("it replicates from nobody, as before"), "{said}");
    assert!(!said.contains("not-it") && said.contains("serves no reads"), "{said}");
    assert_eq!((sources(old), sources(leaf)), (Vec::new(), runs_from(new)));
    status(&proxy, old, "SHUNNED");
    status(&proxy, leaf, "ONLINE");
    let mut admin = proxy.admin().unwrap();
    for (server, outcome) in [(old, "does not follow"), (leaf, "follows")] {
        let sql = format!("SELECT COUNT(*) FROM stats_tidegate_events WHERE port={} AND to_state LIKE '{outcome} %'", server.port());
        assert_eq!(admin.scalar(&sql).unwrap().as_deref(), Some("1"), "{outcome}");
    }
    follow(old, new).unwrap();
    status(&proxy, old, "ONLINE");
    assert!(!proxy.log().contains("not-it"));
}

lab::each!(who_cannot_follow_serves_no_reads);

/// Each write is acknowledged by a replica, before and after. A server that follows another replica is not changed.
fn semi_sync_changes_sides(flavor: Flavor) {
    let servers = Replication::start_semi_sync(flavor, 3, &Options::new()).unwrap();
    servers.primary.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    servers.allow_switchover().unwrap();
    let (first, [second, leaf, chained]) = (&servers.primary, &servers.replicas[..]) else { panic!("four servers") };
    follow(chained, leaf).unwrap();
    let proxy = with_account(proxied(&servers)).start().unwrap();
    let mut app = proxy.connect_app().unwrap();
    let names = match flavor {
        Flavor::Mariadb => ["rpl_semi_sync_master_enabled", "rpl_semi_sync_slave_enabled", "Rpl_semi_sync_master_yes_tx"],
        Flavor::Mysql => ["rpl_semi_sync_source_enabled", "rpl_semi_sync_replica_enabled", "Rpl_semi_sync_source_yes_tx"],
    };
    let is_on = |server: &Server, name: &str| server.scalar(&format!("SELECT @@global.{name}")).unwrap().as_deref() == Some("1");
    for (old, new) in [(first, second), (second, first)] {
        let said = switch(&proxy, new).unwrap();
        assert!(!said.contains("WARNING"), "{said}");
        assert!(is_on(new, names[0]) && !is_on(old, names[0]) && is_on(old, names[1]));
        assert_eq!(sources(chained), runs_from(leaf));
        let acknowledged = || -> u64 {
            let reply = new.sql(&format!("SHOW GLOBAL STATUS LIKE '{}'", names[2])).unwrap();
            reply.rows().unwrap().field(0, "Value").unwrap().parse().unwrap()
        };
        let before = acknowledged();
        app.run(format!("INSERT INTO test.t VALUES ({})", new.port())).unwrap();
        assert_eq!(acknowledged(), before + 1);
    }
}

lab::each!(semi_sync_changes_sides);
