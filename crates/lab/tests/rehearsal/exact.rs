//! Rehearsals in mode `all`: what the shadow must do although it does not run the statement, and long data that several attempts need.

use super::Rehearsal;
use super::common::{LIMIT, Peer};
use super::whole::{proxy, servers};
use lab::client::{Encoding, Param};
use lab::{Flavor, Server, wait};
use std::time::Duration;
use wire::command::Command;

/// Waits until a query has the same answer on both servers; the answer.
fn equal(servers: [&Server; 2], rehearsal: &mut Rehearsal, sql: &str) -> String {
    let all = |server: &Server| {
        let rows = server.root().unwrap().run(sql).unwrap().table().unwrap();
        rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("\n")
    };
    rehearsal.settled();
    let is_equal = || Some(all(servers[0])).filter(|rows| *rows == all(servers[1]));
    let found = wait::until("equal rows", Duration::from_secs(10), is_equal);
    found.unwrap_or_else(|_| panic!("{}\n--\n{}\n{}", all(servers[0]), all(servers[1]), rehearsal.page()))
}

/// Statements that are left out end the transaction at the original: the shadow commits too, and nowhere else.
fn what_is_left_out_commits_all_the_same(flavor: Flavor) {
    let servers = servers(flavor);
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    primary.sql("CREATE TABLE test.t (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(100))").unwrap();
    primary.sql("GRANT ALL ON *.* TO app@'%' WITH GRANT OPTION").unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let texts = [
        ("CREATE USER someone IDENTIFIED BY ''", true),
        ("CREATE USER someone IDENTIFIED BY ''", true),
        ("GRANT SELECT ON test.* TO someone", true),
        ("GRANT SELECT ON test.* TO nobody_there", true),
        ("GRANT SELECT ON TO someone", false),
        ("REVOKE SELECT ON test.* FROM someone", true),
        ("DROP USER someone", true),
        ("DROP USER someone", true),
        ("FLUSH STATUS", true),
        ("FLUSH PRIVILEGES", true),
        ("FLUSH TABLES", true),
        ("KILL 4000000000", false),
        ("SET GLOBAL max_connect_errors = 77", false),
        ("SET GLOBAL no_such_variable = 77", false),
        ("SELECT GET_LOCK('a', 1)", false),
        ("DO RELEASE_LOCK('a')", false),
        ("SHOW TABLES", false),
    ];
    for (number, (text, _)) in texts.iter().enumerate() {
        peer.exec_all(&["BEGIN", &format!("INSERT INTO t (what) VALUES ('{number} {}')", text.replace('\'', ""))]);
        peer.ask(text);
        peer.exec("ROLLBACK");
    }
    // The same as a command.
    peer.exec_all(&["BEGIN", "INSERT INTO t (what) VALUES ('99 COM_REFRESH')"]);
    let refreshed = peer.command(Command::Refresh, &[4]).unwrap();
    peer.exec("ROLLBACK");
    let found = equal([primary, shadow], &mut rehearsal, "SELECT what FROM test.t ORDER BY id");
    println!("{found}\n{refreshed:?}\n{}", rehearsal.page());
    for (number, (text, commits)) in texts.iter().enumerate() {
        assert_eq!(found.lines().any(|line| line.starts_with(&format!("{number} "))), *commits, "{text}");
    }
    assert_eq!(rehearsal.number("given_up"), 0, "{}", rehearsal.page());
    peer.exec("INSERT INTO t (what) VALUES ('behind them')");
    assert!(equal([primary, shadow], &mut rehearsal, "SELECT what FROM test.t ORDER BY id").contains("behind them"));
}

/// Long data is of one execution: each attempt of it on the shadow has it, and no other execution.
fn long_data_belongs_to_one_execution(flavor: Flavor) {
    let servers = servers(flavor);
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY, body LONGTEXT)").unwrap();
    primary.sql("INSERT INTO test.t VALUES (1, ''), (2, ''), (3, '')").unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[("order_wait_ms", 1_000.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let statement = peer.prepare("UPDATE t SET body = ? WHERE id = ?").unwrap();
    // The shadow gets the row's lock at its second attempt.
    let mut holder = shadow.root().unwrap();
    let waits = || -> u64 {
        let rows = shadow.root().unwrap().run("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'").unwrap().table().unwrap();
        rows[0][1].as_ref().unwrap().parse().unwrap()
    };
    holder.run("BEGIN").unwrap();
    holder.run("UPDATE test.t SET body = 'held' WHERE id = 1").unwrap();
    let before = waits();
    peer.send_long_data(&statement, 0, b"sent in ").unwrap();
    peer.send_long_data(&statement, 0, b"two parts").unwrap();
    peer.execute(&statement, &[Param::Long, Param::Int(1)]).unwrap().check().unwrap();
    wait::until("the second attempt", LIMIT, || (waits() >= before + 2).then_some(())).unwrap();
    holder.run("ROLLBACK").unwrap();
    const ALL: &str = "SELECT id, body FROM test.t ORDER BY id";
    let found = equal([primary, shadow], &mut rehearsal, ALL);
    assert!(found.contains("1 sent in two parts"), "{found}\n{}", rehearsal.page());
    // The original gets no lock: the shadow does not run the execution.
    let mut other = primary.root().unwrap();
    other.run("BEGIN").unwrap();
    other.run("SELECT * FROM test.t WHERE id = 2 FOR UPDATE").unwrap();
    peer.exec("SET innodb_lock_wait_timeout = 1");
    peer.send_long_data(&statement, 0, b"never used").unwrap();
    let refused = peer.execute(&statement, &[Param::Long, Param::Int(2)]).unwrap();
    assert_eq!(refused.err().map(|error| error.code), Some(1205));
    other.run("ROLLBACK").unwrap();
    peer.execute(&statement, &[Param::Text("short".into()), Param::Int(2)]).unwrap().check().unwrap();
    let found = equal([primary, shadow], &mut rehearsal, ALL);
    assert_eq!(found, "1 sent in two parts\n2 short\n3 ");
    assert_eq!(rehearsal.number("given_up"), 0, "{}", rehearsal.page());
    // Long data that is never used leaves the queue with its session.
    peer.send_long_data(&statement, 0, &[b'x'; 100_000]).unwrap();
    drop(peer);
    rehearsal.settled();
}

lab::each!(what_is_left_out_commits_all_the_same, long_data_belongs_to_one_execution);
