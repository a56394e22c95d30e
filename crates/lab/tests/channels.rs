//! A cluster replicates from a second one through proxies, and both lose their primaries: the channel follows both.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::LIMIT;
use lab::replication::{Replication, position, promote, wait_for};
use lab::{Flavor, Options, Server, Tidegate, wait};

const ROLES: &[(&str, i64)] = &[("writer_hostgroup", 0), ("reader_hostgroup", 1)];

/// A pair that writes in a GTID domain of its own, where there are such.
fn pair(flavor: Flavor, domain: u32) -> Replication {
    let options = match flavor {
        Flavor::Mariadb => Options::new().arg(format!("--gtid-domain-id={domain}")),
        Flavor::Mysql => Options::new(),
    };
    // Every commit that was acknowledged to a client is on the replica too.
    Replication::start_semi_sync(flavor, 1, &options).unwrap()
}

fn proxied(pair: &Replication) -> lab::tidegate::Builder {
    let roles: Vec<(&str, lab::tidegate::Setting)> = ROLES.iter().map(|(column, id)| (*column, (*id).into())).collect();
    let builder = Tidegate::builder().app_user().row("mysql_replication_hostgroups", &roles);
    builder.backend(0, &pair.primary).backend(1, &pair.replicas[0])
}

fn both_sides_fail_over(flavor: Flavor) {
    let (east, west) = (pair(flavor, 7), pair(flavor, 1));
    let grant = match flavor {
        Flavor::Mariadb => "GRANT REPLICATION SLAVE ADMIN ON *.* TO monitor@'%'",
        Flavor::Mysql => "GRANT REPLICATION_SLAVE_ADMIN ON *.* TO monitor@'%'",
    };
    west.primary.sql(grant).unwrap();
    west.wait_caught_up().unwrap();
    let replicates = [("attributes", r#"{"replication": true}"#.into())];
    let source = proxied(&east).user_with("repl", "repl-pass", 0, &replicates).start().unwrap();
    let channel = [
        ("writer_hostgroup", 0.into()),
        ("channel_name", "east".into()),
        ("source_hostname", source.host().into()),
        ("source_port", i64::from(source.port()).into()),
    ];
    let receiver = proxied(&west).row("mysql_replication_channels", &channel);
    let receiver = receiver.variable("replication_channel_username", "repl").variable("replication_channel_password", "repl-pass");
    let receiver = receiver.start().unwrap();
    let mut admin = receiver.admin().unwrap();
    let mut runs_on = |server: &Server| {
        let sql = "SELECT CONCAT(port, ' ', state) FROM stats_tidegate_channels";
        let wanted = format!("{} running", server.port());
        let is_so = || (admin.scalar(sql).ok()?? == wanted).then_some(());
        let found = wait::until("the channel", LIMIT, is_so);
        assert!(found.is_ok(), "{wanted}: {:?}", admin.run("SELECT * FROM stats_tidegate_channels").unwrap().table());
    };
    let rows = |server: &Server| server.scalar("SELECT COUNT(*) FROM test.east").ok().flatten().and_then(|rows| rows.parse::<u64>().ok());
    let flows = |server: &Server| {
        let before = rows(server).unwrap_or_default();
        wait::until("rows to arrive", LIMIT, || rows(server).filter(|rows| *rows > before + 10).map(drop)).unwrap();
    };

    runs_on(&west.primary);
    source.connect_app().unwrap().run("CREATE TABLE test.east (id INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let Ok(mut app) = source.connect_app() else { continue };
                while !is_over.load(Ordering::Relaxed) && app.run("INSERT INTO test.east VALUES (NULL)").is_ok() {
                    // Slower than any receiver.
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        });
        let body = || {
            flows(&west.replicas[0]);
            west.primary.kill9();
            promote(&west.replicas[0]).unwrap();
            runs_on(&west.replicas[0]);
            flows(&west.replicas[0]);
            east.primary.kill9();
            promote(&east.replicas[0]).unwrap();
            flows(&west.replicas[0]);
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        is_over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    wait_for(&west.replicas[0], &position(&east.replicas[0]).unwrap()).unwrap();
    let sum = |server: &Server| server.sql("CHECKSUM TABLE test.east").unwrap().rows().unwrap().field(0, "Checksum");
    assert_eq!(sum(&west.replicas[0]), sum(&east.replicas[0]));
    assert!(rows(&west.replicas[0]) > Some(20));
    runs_on(&west.replicas[0]);
    let log = receiver.log();
    assert!(log.contains("channel 'east'") && !log.contains("repl-pass"), "{log}");
}

lab::each!(both_sides_fail_over);
