//! Clients that prepare the same texts share the server's statements: nothing of one client's is in what another is told or stores.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use common::{Peer, World};
use lab::client::{Execution, Outcome, Param};
use wire::Command;

each_flavor!(
    long_data_under_other_settings,
    a_preparation_that_fails_in_a_transaction,
    long_data_after_anothers_numbers,
    warnings_of_a_preparation,
    diagnostics_before_a_preparation,
    facts_through_a_cursor,
    counts_after_a_fetch,
    an_execution_without_types,
);

/// More statements than a connection keeps: those of before are prepared anew when they are executed.
fn evict(peer: &mut Peer) {
    for n in 0..25 {
        let statement = peer.prepare(format!("SELECT {n} + ?")).unwrap();
        peer.execute(&statement, &[Param::Int(1)]).unwrap().check().unwrap();
        peer.close_statement(&statement).unwrap();
    }
}

/// What brings the settings of now back behind a PREPARE under those of then is sent, whatever follows.
fn long_data_under_other_settings(world: &World) {
    world.connect().exec("CREATE TABLE umlaut(s VARCHAR(20) CHARACTER SET utf8mb4)");
    for round in 0..3 {
        let mut peer = world.connect();
        peer.exec("SET NAMES latin1");
        let statement = peer.prepare("SELECT ? AS s").unwrap();
        peer.exec("SET NAMES utf8mb4");
        evict(&mut peer);
        peer.send_long_data(&statement, 0, b"abc").unwrap();
        assert_eq!(peer.execute(&statement, &[Param::Long]).unwrap().scalar().unwrap().as_deref(), Some("abc"));
        assert_eq!(peer.get("SELECT @@character_set_client"), "utf8mb4", "round {round}");
        drop(peer);
        let mut other = world.connect();
        other.exec("INSERT INTO umlaut VALUES ('é')");
        assert_eq!(other.get("SELECT HEX(s) FROM umlaut"), "C3A9", "round {round}");
        other.exec("DELETE FROM umlaut");
    }
}

fn a_preparation_that_fails_in_a_transaction(world: &World) {
    let mut other = world.connect();
    for round in 0..4 {
        let mut peer = world.connect();
        other.exec("CREATE TABLE gone(a INT)");
        peer.exec("SET sql_mode='ANSI_QUOTES'");
        let statement = peer.prepare(format!("SELECT a, ? FROM gone WHERE a <> {round}")).unwrap();
        peer.exec("SET sql_mode=''");
        evict(&mut peer);
        other.exec("DROP TABLE gone");
        peer.exec("BEGIN");
        peer.get("SELECT 1");
        assert_eq!(peer.execute(&statement, &[Param::Int(1)]).unwrap().err().unwrap().code, 1146);
        assert_eq!(peer.get("SELECT \"x\""), "x", "round {round}");
        peer.exec("COMMIT");
        assert_eq!((peer.get("SELECT \"y\""), other.get("SELECT \"z\"")), ("y".into(), "z".into()), "round {round}");
    }
}

/// MariaDB itself reads long data as a number where the same statement had one before.
fn long_data_after_anothers_numbers(world: &World) {
    let (mut one, mut other) = (world.connect(), world.connect());
    one.exec("CREATE TABLE long_data(a LONGTEXT, b VARCHAR(20))");
    let text = "INSERT INTO long_data(a, b) VALUES (?, ?)";
    let (of_one, of_other) = (one.prepare(text).unwrap(), other.prepare(text).unwrap());
    for (at, number) in [Param::Int(5), Param::Double(3.5), Param::Null].into_iter().enumerate() {
        one.execute(&of_one, &[number, Param::Text("one".into())]).unwrap().check().unwrap();
        other.send_long_data(&of_other, 0, b"hello").unwrap();
        other.execute(&of_other, &[Param::Long, Param::Text(at.to_string())]).unwrap().check().unwrap();
        assert_eq!(other.get(&format!("SELECT a FROM long_data WHERE b = '{at}'")), "hello");
    }
}

/// How many SHOW WARNINGS shows, as text whatever the encoding.
fn warnings(peer: &mut Peer) -> usize {
    peer.query("SHOW WARNINGS").unwrap().table().unwrap().len()
}

fn warnings_of_a_preparation(world: &World) {
    let (mut one, mut other) = (world.connect(), world.connect());
    one.exec("CREATE TABLE dated(d DATE)");
    for literal in ["2020/01/02", "2020/01/03"] {
        other.disturb();
        let statement = one.prepare(format!("SELECT ? FROM dated WHERE d = '{literal}'")).unwrap();
        assert_eq!(statement.warnings, u16::from(world.is_mysql()));
        assert_eq!(warnings(&mut other), 0);
        assert_eq!(warnings(&mut one), usize::from(world.is_mysql()));
        // Known by now.
        let again = one.prepare(format!("SELECT ? FROM dated WHERE d = '{literal}'")).unwrap();
        assert_eq!(warnings(&mut one), usize::from(again.warnings));
    }
}

/// A PREPARE is a statement for what an earlier one left, also where its answer is known.
fn diagnostics_before_a_preparation(world: &World) {
    let mut peer = world.connect();
    peer.exec("CREATE TABLE known(a INT)");
    for _ in 0..3 {
        assert_eq!(peer.fails("SELEC"), 1064);
        peer.prepare("SELECT a, ? FROM known").unwrap();
        assert_eq!(warnings(&mut peer), 0);
    }
}

/// The one value that a statement with a cursor, or without one, gives.
fn fact(peer: &mut Peer, sql: &str, cursor: bool) -> String {
    let statement = peer.prepare(sql).unwrap();
    let reply = peer.execute_with(&statement, &[], Execution { cursor, reuse_types: false }).unwrap();
    let set = reply.rows().unwrap();
    let name = set.columns[0].name.clone();
    let value = match set.rows.is_empty() {
        true => peer.fetch(&statement, &set.columns, 1).unwrap().field(0, &name),
        false => set.field(0, &name),
    };
    peer.close_statement(&statement).unwrap();
    value.unwrap()
}

fn facts_through_a_cursor(world: &World) {
    let (mut peer, mut other) = (world.connect(), world.connect());
    peer.exec("CREATE TABLE facts(i INT AUTO_INCREMENT PRIMARY KEY, n INT)");
    for cursor in [false, true] {
        peer.exec("INSERT INTO facts(n) VALUES (1), (2), (3)");
        other.disturb();
        assert_eq!(fact(&mut peer, "SELECT ROW_COUNT()", cursor), "3");
        peer.table("SELECT n FROM facts LIMIT 3");
        other.table("SELECT 1 UNION SELECT 2");
        assert_eq!(fact(&mut peer, "SELECT FOUND_ROWS()", cursor), "3");
        let id = peer.connection_id().to_string();
        assert_eq!(fact(&mut peer, "SELECT CONNECTION_ID()", cursor), id);
        let last = peer.get("SELECT LAST_INSERT_ID()");
        other.exec("INSERT INTO facts(n) VALUES (4)");
        assert_eq!(fact(&mut peer, "SELECT LAST_INSERT_ID()", cursor), last);
    }
}

fn counts_after_a_fetch(world: &World) {
    let mut peer = world.connect();
    let statement = peer.prepare("SELECT 1 AS n UNION SELECT 2 UNION SELECT 3").unwrap();
    let set = peer.execute_with(&statement, &[], Execution { cursor: true, reuse_types: false }).unwrap();
    let columns = set.rows().unwrap().columns.clone();
    assert_eq!(peer.get("SELECT FOUND_ROWS()"), "3");
    peer.fetch(&statement, &columns, 1).unwrap().end.unwrap();
    assert_eq!(peer.get("SELECT FOUND_ROWS()"), "1");
    peer.execute_with(&statement, &[], Execution { cursor: true, reuse_types: false }).unwrap();
    peer.fetch(&statement, &columns, 1).unwrap().end.unwrap();
    assert_eq!(peer.get("SELECT FOUND_ROWS()"), "3");
    peer.exec("CREATE TABLE counted(a INT)");
    peer.exec("INSERT INTO counted VALUES (1), (2)");
    peer.fetch(&statement, &columns, 1).unwrap().end.unwrap();
    assert_eq!(peer.get("SELECT ROW_COUNT()"), "-1");
}

fn an_execution_without_types(world: &World) {
    let (mut one, mut other) = (world.connect(), world.connect());
    let (of_one, of_other) = (one.prepare("SELECT ? AS v, ?").unwrap(), other.prepare("SELECT ? AS v, ?").unwrap());
    one.execute(&of_one, &[Param::Int(7), Param::Int(7)]).unwrap().check().unwrap();
    let refused = other.execute_with(&of_other, &[Param::Int(8), Param::Int(8)], Execution { cursor: false, reuse_types: true }).unwrap();
    let refused = refused.err().unwrap();
    assert_eq!((refused.code, refused.message.as_str()), (1210, "Incorrect arguments to mysqld_stmt_execute"));
    assert_eq!(other.execute(&of_other, &[Param::Int(9), Param::Null]).unwrap().scalar().unwrap().as_deref(), Some("9"));
    assert!(matches!(other.reset_statement(&of_other).unwrap(), Outcome::Ok(_)));
    assert!(other.command(Command::Ping, b"").unwrap().ok().is_ok());
}
