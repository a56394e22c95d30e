//! Clients that prepare the same texts share the server's statements: nothing of one client's is in what another is told or stores.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use common::{Peer, World};
use lab::client::{Execution, Outcome, Param, Prepared};
use wire::{Capabilities, Command};

each_flavor!(
    long_data_under_other_settings,
    a_preparation_that_fails_in_a_transaction,
    long_data_after_anothers_numbers,
    warnings_of_a_preparation,
    diagnostics_before_a_preparation,
    facts_through_a_cursor,
    counts_after_a_fetch,
    warnings_behind_a_cursor,
    an_execution_without_types,
    rows_of_parameters,
    what_is_refused_keeps_no_connection,
);

/// More statements than a connection keeps: earlier ones are prepared again when they are executed.
fn evict(peer: &mut Peer) {
    for n in 0..25 {
        let statement = peer.prepare(format!("SELECT {n} + ?")).unwrap();
        peer.execute(&statement, &[Param::Int(1)]).unwrap().check().unwrap();
        peer.close_statement(&statement).unwrap();
    }
}

/// The SET that restores the current settings after a PREPARE under earlier ones is sent, whatever command follows.
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

/// For the diagnostics of an earlier statement a PREPARE counts as a statement, also if its answer is known.
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
    let value = if set.rows.is_empty() { peer.fetch(&statement, &set.columns, 1).unwrap().field(0, &name) } else { set.field(0, &name) };
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
    // NULL needs none.
    let mut third = world.connect();
    let statement = third.prepare("SELECT ? AS v, ?").unwrap();
    let nulls = third.execute_with(&statement, &[Param::Null, Param::Null], Execution { cursor: false, reuse_types: true }).unwrap();
    assert_eq!(nulls.table().unwrap(), [[None::<String>, None]]);
}

/// They are those of the execution, whatever was fetched.
fn warnings_behind_a_cursor(world: &World) {
    let mut peer = world.connect();
    peer.exec("CREATE TABLE warned(n INT)");
    peer.exec("INSERT INTO warned VALUES (1), (2), (3)");
    let statement = peer.prepare("SELECT CAST('1x' AS SIGNED) AS v, n FROM warned").unwrap();
    for resets in [false, true] {
        peer.execute_with(&statement, &[], Execution { cursor: true, reuse_types: false }).unwrap();
        peer.fetch(&statement, &statement.columns, 1).unwrap().end.unwrap();
        if resets {
            assert!(matches!(peer.reset_statement(&statement).unwrap(), Outcome::Ok(_)))
        } else {
            assert!(peer.fetch(&statement, &statement.columns, 9).unwrap().end.is_ok())
        }
        world.connect().disturb();
        assert_eq!(warnings(&mut peer), 3);
    }
}

/// COM_STMT_BULK_EXECUTE of rows of a number and a text; without types those of before are meant.
fn bulk(peer: &mut Peer, statement: &Prepared, rows: &[(i32, &str)], types: bool) -> Option<u16> {
    let mut body = statement.id.to_le_bytes().to_vec();
    body.extend_from_slice(&(if types { 128_u16 } else { 0 }).to_le_bytes());
    body.extend_from_slice(if types { &[3, 0, 254, 0] } else { &[] });
    for (number, text) in rows {
        body.push(0);
        body.extend_from_slice(&number.to_le_bytes());
        body.extend_from_slice(&[0, text.len() as u8]);
        body.extend_from_slice(text.as_bytes());
    }
    peer.command(Command::StmtBulkExecute, &body).unwrap().err().map(|error| error.code)
}

fn rows_of_parameters(world: &World) {
    if world.is_mysql() {
        return;
    }
    let options = world.options().with(Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS);
    let mut one = world.connect_with(&options);
    let (mut other, mut third) = (world.connect(), world.connect_with(&options));
    one.exec("CREATE TABLE bulk_rows(a LONGTEXT, b VARCHAR(20))");
    let text = "INSERT INTO bulk_rows(a, b) VALUES (?, ?)";
    let statements = [&mut one, &mut other, &mut third].map(|peer| peer.prepare(text).unwrap());
    assert_eq!(bulk(&mut one, &statements[0], &[(1, "x"), (2, "x")], true), None);
    other.send_long_data(&statements[1], 0, b"hello").unwrap();
    other.execute(&statements[1], &[Param::Long, Param::Text("y".into())]).unwrap().check().unwrap();
    assert_eq!(other.get("SELECT a FROM bulk_rows WHERE b = 'y'"), "hello");
    // The types of the rows are those of what comes without.
    assert_eq!(bulk(&mut one, &statements[0], &[(3, "z"), (4, "z")], false), None);
    other.execute(&statements[1], &[Param::Double(1.5), Param::Double(2.5)]).unwrap().check().unwrap();
    assert_eq!(bulk(&mut third, &statements[2], &[(5, "w")], true), None);
    other.execute(&statements[1], &[Param::Double(1.5), Param::Double(2.5)]).unwrap().check().unwrap();
    assert_eq!(bulk(&mut third, &statements[2], &[(6, "w")], false), None);
    assert_eq!(one.table("SELECT a FROM bulk_rows WHERE b IN ('w', 'z') ORDER BY a").concat(), ["3", "4", "5", "6"]);
}

/// Executions that are refused before any server saw them, or by a preparation on the way.
fn what_is_refused_keeps_no_connection(world: &World) {
    let (mut peer, mut other) = (world.connect(), world.connect());
    other.exec("CREATE TABLE refused(a TEXT)");
    let statement = peer.prepare("INSERT INTO refused VALUES (?)").unwrap();
    other.exec("DROP TABLE refused");
    other.exec("CREATE TABLE refused(a TEXT, b INT)");
    evict(&mut peer);
    peer.send_long_data(&statement, 0, b"abc").unwrap();
    other.disturb();
    let refused = peer.execute(&statement, &[Param::Long]).unwrap().err().unwrap().code;
    assert_eq!(refused, 1136);
    other.disturb();
    let select = peer.prepare("SELECT 1 AS n, ? UNION SELECT 2, 3").unwrap();
    peer.execute_with(&select, &[Param::Int(1)], Execution { cursor: true, reuse_types: false }).unwrap();
    let mut short = select.id.to_le_bytes().to_vec();
    short.push(0);
    peer.command(Command::StmtExecute, &short).unwrap().err().unwrap();
    other.disturb();
}
