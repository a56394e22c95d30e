//! SWITCHOVER and sessions that would not let go of the old writer: it refuses before anybody waits, and names them. So it does
//! with servers that do not replicate from the new one.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::time::{Duration, Instant};

use common::Peer;
use lab::client::Encoding;
use lab::replication::Replication;
use lab::{Flavor, Options, Tidegate};

#[test]
fn sessions_with_temporary_tables_or_locks_are_named_and_nobody_waits() {
    let servers = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    servers.primary.sql("GRANT READ_ONLY ADMIN ON *.* TO monitor@'%'").unwrap();
    servers.wait_caught_up().unwrap();
    let replica = &servers.replicas[0];
    let builder = Tidegate::builder().app_user().variable("switchover_manages_read_only", true);
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
    // The old writer follows nobody.
    let warnings = admin.run("SHOW WARNINGS").unwrap().table().unwrap();
    let stray = format!("{} is no replica of 127.0.0.1:{}", servers.primary.address(), replica.port());
    assert!(warnings.len() == 1 && warnings[0][2].as_ref().is_some_and(|said| *said == stray), "{warnings:?}");
    assert_eq!(at_work.get("SELECT @@port"), replica.port().to_string());
}
