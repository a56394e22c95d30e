//! Advice on promotion through the real program: switched on by SQL, shown in tables, metrics and EXPLAIN, while clients write.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::LIMIT;
use lab::replication::{Replication, promote};
use lab::{Flavor, Options, Tidegate, wait};

fn started(servers: &Replication) -> Tidegate {
    let builder = Tidegate::builder().app_user().variable("monitor_read_only_interval", 200);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    servers.replicas.iter().fold(builder.backend(0, &servers.primary), |builder, replica| builder.backend(0, replica)).start().unwrap()
}

/// Waits until a query of the admin port has this answer.
fn wait_for(proxy: &Tidegate, sql: &str, wanted: &str) {
    let ask = || proxy.admin().ok()?.scalar(sql).ok()?;
    let found = wait::until(sql, 2 * LIMIT, || ask().filter(|said| said == wanted).map(drop));
    assert!(found.is_ok(), "{sql}: {:?}, not {wanted}", ask());
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
