//! The stand-in for Aurora reports the roles that the test gave it, and serves statements as a real server does.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use lab::{AuroraStandIn, Client, ConnectOptions, Options};

const TOPOLOGY: &str = "SELECT SERVER_ID, SESSION_ID, LAST_UPDATE_TIMESTAMP > NOW() - INTERVAL 10 SECOND \
    FROM information_schema.replica_host_status ORDER BY 1";

fn seen(cluster: &AuroraStandIn, index: usize) -> Vec<(String, String, String)> {
    let options = ConnectOptions::tcp(cluster.address(index), "monitor", "monitor");
    let table = Client::connect(&options).unwrap().run(TOPOLOGY).unwrap().table().unwrap();
    let field = |row: &Vec<Option<String>>, place: usize| row[place].clone().unwrap();
    table.iter().map(|row| (field(row, 0), field(row, 1), field(row, 2))).collect()
}

fn writer(cluster: &AuroraStandIn, asked: usize) -> String {
    let rows = seen(cluster, asked).into_iter().filter(|row| row.1 == "MASTER_SESSION_ID").collect::<Vec<_>>();
    assert_eq!(rows.len(), 1);
    rows[0].0.clone()
}

#[test]
fn roles_change_and_replicas_come_and_go() {
    let cluster = AuroraStandIn::start(2, &Options::new()).unwrap();
    assert_eq!(writer(&cluster, 2), "127.0.1");
    let app = |index: usize| Client::connect(&ConnectOptions::tcp(cluster.address(index), "app", "app-pass").database("test"));
    app(0).unwrap().run("CREATE TABLE t(i INT PRIMARY KEY)").unwrap();
    assert_eq!(app(1).unwrap().run("INSERT INTO t VALUES(1)").unwrap_err().code(), Some(1290));

    cluster.fail_over(1).unwrap();
    assert_eq!(writer(&cluster, 0), "127.0.2");
    app(1).unwrap().run("INSERT INTO t VALUES(1)").unwrap();
    assert_eq!(app(0).unwrap().scalar("SELECT @@innodb_read_only").unwrap().as_deref(), Some("1"));

    cluster.scale(2, false).unwrap();
    assert_eq!(seen(&cluster, 0).len(), 2);
    app(2).unwrap_err();
    cluster.scale(2, true).unwrap();
    assert_eq!(seen(&cluster, 2).len(), 3);

    let next = cluster.crash_writer().unwrap();
    assert_eq!(writer(&cluster, next), cluster.instances[next].id);
    app(next).unwrap().run("INSERT INTO t VALUES(2)").unwrap();
    cluster.bring_back(1).unwrap();
    assert_eq!(seen(&cluster, 1).len(), 3);
}
