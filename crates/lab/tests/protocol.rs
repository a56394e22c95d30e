//! Every command and every protocol option of a client, on the server itself and through the proxy.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;
#[path = "protocol/logins.rs"]
mod logins;
#[path = "protocol/prepared.rs"]
mod prepared;
#[path = "protocol/rare.rs"]
mod rare;

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use common::{LIMIT, World, proxy_with, server};
use lab::client::{Compression, Encoding, Execution, Outcome, Param, Reply, Value};
use lab::tidegate::Builder;
use lab::{Client, ConnectOptions, Flavor, Tidegate, wait};
use prepared::{
    cursors, cursors_of_one_text, long_data_and_cursors, long_data_of_one_text, more_than_a_connection_keeps, prepared_statements,
};
use rare::{bulk_counts, refresh};
use wire::handshake::ChangeUser;
use wire::session_state::Change;
use wire::{Capabilities, Command, StatusFlags};

/// Each named body becomes two tests, each of which runs it directly and through a proxy with two backends.
macro_rules! each_flavor_as_text {
    ($($(#[$both:meta])* $name:ident),* $(,)?) => {$(
        mod $name {
            $(#[$both])*
            #[test]
            fn mariadb() {
                super::run_text(lab::Flavor::Mariadb, super::$name);
            }
            $(#[$both])*
            #[test]
            fn mysql() {
                super::run_text(lab::Flavor::Mysql, super::$name);
            }
        }
    )*};
}

fn run_text(flavor: Flavor, body: impl Fn(&World)) {
    body(&World::direct(flavor));
    if std::env::var_os("LAB_DIRECT_ONLY").is_none() {
        println!("-- {} through the proxy", flavor.name());
        body(&World::proxied(flavor, 2, |builder| {
            builder.user("root", "", 0).variable("enable_load_data_local_infile", true).variable("max_allowed_packet", 134_217_728)
        }));
    }
}

each_flavor_as_text!(
    simple_commands,
    field_list,
    unknown_commands,
    short_commands,
    process_kill,
    own_kill,
    set_option,
    several_statements,
    procedures,
    local_infile,
    prepared_statements,
    cursors,
    long_data_of_one_text,
    cursors_of_one_text,
    long_data_and_cursors,
    more_than_a_connection_keeps,
    query_attributes,
    found_rows_flag,
    with_and_without_eof,
    session_tracking,
    login_tells_the_schema,
    connection_attributes,
    packets_over_16_mib,
    replies_of_every_length,
    cursors_of_stored_code,
    large_results_beside_small_ones,
    zlib,
    pipelining,
    wrong_password,
    unknown_database,
    refresh,
    bulk_counts,
);

fn proxied_only() -> bool {
    std::env::var_os("LAB_DIRECT_ONLY").is_none()
}

fn simple_commands(world: &World) {
    let mut peer = world.connect();
    for _ in 0..2 {
        assert!(!peer.ping().unwrap().ok().unwrap().in_transaction());
        assert!(peer.statistics().unwrap().contains("Uptime"));
        peer.init_db(&world.schema).unwrap().ok().unwrap();
        assert_eq!(peer.init_db("test_nobody").unwrap().err().unwrap().code, 1049);
        peer.reset_connection().unwrap().ok().unwrap();
        peer.change_user(&world.options()).unwrap();
        assert_eq!(peer.get("SELECT DATABASE()"), world.schema);
    }
    peer.into_client().quit().unwrap();
}

fn field_list(world: &World) {
    let mut peer = world.connect();
    peer.exec("CREATE TABLE t(first INT, second VARCHAR(10))");
    peer.send_command(Command::FieldList, b"t\0%").unwrap();
    let packets: Vec<Vec<u8>> = (0..3).map(|_| peer.recv_packet().unwrap()).collect();
    assert!(String::from_utf8_lossy(&packets[0]).contains("first"));
    assert!(String::from_utf8_lossy(&packets[1]).contains("second"));
    assert_eq!(packets[2][0], 0xfe);
    assert_eq!(peer.command(Command::FieldList, b"missing\0").unwrap().err().unwrap().code, 1146);
    peer.ping().unwrap().ok().unwrap();
}

fn unknown_commands(world: &World) {
    let mut peer = world.connect();
    for byte in [0x2f_u8, 0x7f, 0xee] {
        peer.send_payload(&[byte, 1, 2, 3], true).unwrap();
        let reply = peer.recv_reply(Encoding::Text).unwrap();
        let error = reply.err().unwrap();
        assert_eq!((error.code, error.sqlstate.as_str()), (1047, "08S01"), "{byte:#x}");
        assert_eq!(peer.get("SELECT 1"), "1");
    }
}

/// An empty packet is an unknown command too; MySQL looks at the length of those that it knows.
fn short_commands(world: &World) {
    let mut peer = world.connect();
    peer.send_payload(&[], true).unwrap();
    assert_eq!(peer.recv_reply(Encoding::Text).unwrap().err().map(|error| error.code), Some(1047));
    assert_eq!(peer.get("SELECT 1"), "1");
    for (command, body) in [
        (Command::StmtExecute, &[1, 0][..]),
        (Command::StmtReset, &[1]),
        (Command::StmtFetch, &[1, 0, 0, 0]),
        (Command::StmtClose, &[1]),
        (Command::SetOption, &[]),
        (Command::SetOption, &[0]),
    ] {
        if world.is_mysql() {
            let reply = peer.command(command, body).unwrap();
            assert_eq!(reply.err().map(|error| error.code), Some(1835), "{command:?} {body:?}");
            assert_eq!(peer.get("SELECT 1"), "1");
        }
    }
}

fn process_kill(world: &World) {
    let (mut killer, mut victim) = world.pair();
    victim.exec("SELECT 1");
    if world.is_mysql() {
        // MySQL 9 has no COM_PROCESS_KILL any more.
        let reply = killer.command(Command::ProcessKill, &victim.connection_id().to_le_bytes()).unwrap();
        if reply.err().is_some_and(|error| error.code == 1047) {
            return;
        }
    } else {
        killer.command(Command::ProcessKill, &victim.connection_id().to_le_bytes()).unwrap().ok().unwrap();
    }
    lab::wait::until("the victim to end", LIMIT, || victim.ping().map_or(Some(()), |reply| reply.err().map(|_| ()))).unwrap();
    assert_eq!(killer.get("SELECT 1"), "1");
}

fn own_kill(world: &World) {
    let mut peer = world.connect();
    assert_eq!(peer.fails("KILL QUERY CONNECTION_ID()"), 1317);
    assert_eq!(peer.get("SELECT 1"), "1");
    let code = if world.is_mysql() { 1317 } else { 1927 };
    assert_eq!(peer.fails("KILL CONNECTION_ID()"), code);
    assert!(peer.ping().is_err(), "the session has ended");
}

fn set_option(world: &World) {
    let mut peer = world.connect();
    assert_eq!(peer.fails("SELECT 1; SELECT 2"), 1064);
    peer.set_option(0).unwrap().check().unwrap();
    assert_eq!(peer.exec("SELECT 1; SELECT 2").results.len(), 2);
    peer.set_option(1).unwrap().check().unwrap();
    assert_eq!(peer.fails("SELECT 1; SELECT 2"), 1064);
    assert_eq!(peer.set_option(7).unwrap().err().unwrap().code, 1047);
}

fn several_statements(world: &World) {
    let mut peer = world.connect_with(&world.options().with(Capabilities::MULTI_STATEMENTS));
    peer.exec("CREATE TABLE t(id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(10))");
    let reply = peer.exec("INSERT INTO t(s) VALUES('a'); SELECT LAST_INSERT_ID(); UPDATE t SET s = 'b'; SELECT s FROM t");
    assert_eq!(reply.results.len(), 4);
    let Outcome::Ok(first) = &reply.results[0] else { panic!("{reply:?}") };
    assert!(first.more() && first.last_insert_id == 1);
    let Outcome::Rows(last) = &reply.results[3] else { panic!("{reply:?}") };
    assert_eq!(last.field(0, "s").as_deref(), Some("b"));
    let failing = peer.query("SELECT 1; SELECT * FROM missing; SELECT 3").unwrap();
    assert_eq!((failing.results.len(), failing.err().unwrap().code), (2, 1146));
    assert_eq!(peer.get("SELECT 5"), "5");
}

fn procedures(world: &World) {
    let mut peer = world.connect();
    peer.exec("CREATE PROCEDURE many() BEGIN SELECT 1 AS a; SELECT 2 AS b, 3 AS c; END");
    peer.exec("CREATE PROCEDURE outs(IN a INT, OUT b INT, INOUT c VARCHAR(20)) BEGIN SET b = a * 2; SET c = CONCAT(c, '!'); END");
    let reply = peer.exec("CALL many()");
    assert!(matches!(&reply.results[..], [Outcome::Rows(_), Outcome::Rows(two), Outcome::Ok(_)] if two.columns.len() == 2));
    let statement = peer.prepare("CALL outs(?, ?, ?)").unwrap();
    for i in 1..3 {
        let reply = peer.execute(&statement, &[Param::Int(i), Param::Null, Param::Text("hi".to_owned())]).unwrap();
        let Outcome::Rows(outs) = &reply.results[0] else { panic!("{reply:?}") };
        assert_eq!(outs.rows[0].text(), [Some((2 * i).to_string()), Some("hi!".to_owned())]);
        let end = outs.end.as_ref().unwrap();
        let marked = end.status.contains(StatusFlags::PS_OUT_PARAMS)
            || outs.columns_end.as_ref().is_some_and(|end| end.status.contains(StatusFlags::PS_OUT_PARAMS));
        assert!(marked, "{end:?}");
        peer.disturb();
    }
}

fn local_infile(world: &World) {
    let mut peer = world.connect_with(&world.options().with(Capabilities::LOCAL_FILES));
    peer.exec("CREATE TABLE t(s VARCHAR(20))");
    let lines: String = (0..50_000).map(|i| format!("line {i}\n")).collect();
    peer.set_infile_handler(Box::new(move |name| (name == "here.txt").then(|| lines.clone().into_bytes())));
    let loaded = peer.exec("LOAD DATA LOCAL INFILE 'here.txt' INTO TABLE t");
    assert_eq!(loaded.ok().unwrap().affected_rows, 50_000);
    assert_eq!(peer.get("SELECT COUNT(DISTINCT s) FROM t"), "50000");
    // The reply does not tell the first id that was generated.
    peer.exec("CREATE TABLE numbered(id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(20))");
    peer.exec("LOAD DATA LOCAL INFILE 'here.txt' INTO TABLE numbered(s)");
    peer.disturb();
    assert_eq!(peer.get("SELECT LAST_INSERT_ID()"), "1");
    // A client that sends an empty file.
    assert_eq!(peer.exec("LOAD DATA LOCAL INFILE 'none.txt' INTO TABLE t").ok().unwrap().affected_rows, 0);
    assert_eq!(peer.fails("LOAD DATA LOCAL INFILE 'here.txt' INTO TABLE missing"), 1146);
    peer.disturb();
}

fn query_attributes(world: &World) {
    let options = world.options().with(Capabilities::QUERY_ATTRIBUTES);
    let mut peer = world.connect_with(&options);
    let attributes = [("trace", Param::Text("abc-123".to_owned())), ("n", Param::Int(5))];
    let reply = peer.query_with_attributes("SELECT 'with attributes'", &attributes).unwrap();
    assert_eq!(reply.scalar().unwrap().as_deref(), Some("with attributes"));
    if world.is_mysql() {
        assert!(peer.capabilities().contains(Capabilities::QUERY_ATTRIBUTES));
    }
    let statement = peer.prepare("SELECT ? + 1").unwrap();
    assert_eq!(peer.execute(&statement, &[Param::Int(4)]).unwrap().scalar().unwrap().map(|v| v.starts_with('5')), Some(true));
    // A client without attributes on the same backends.
    assert_eq!(world.connect().get("SELECT 3"), "3");
}

fn found_rows_flag(world: &World) {
    let (mut changed, mut found) = (world.connect(), world.connect_with(&world.options().with(Capabilities::FOUND_ROWS)));
    changed.exec_all(&["CREATE TABLE t(i INT)", "INSERT INTO t VALUES(1), (1)"]);
    for _ in 0..3 {
        assert_eq!(changed.exec("UPDATE t SET i = 1").ok().unwrap().affected_rows, 0);
        assert_eq!(found.exec("UPDATE t SET i = 1").ok().unwrap().affected_rows, 2);
    }
}

fn with_and_without_eof(world: &World) {
    let mut modern = world.connect();
    let mut classic = world.connect_with(&world.options().capabilities(ConnectOptions::CLASSIC));
    for _ in 0..3 {
        for (peer, eof) in [(&mut modern, false), (&mut classic, true)] {
            let reply = peer.exec("SELECT 1 AS a UNION SELECT 2");
            let set = reply.rows().unwrap();
            assert_eq!((set.rows.len(), set.columns_end.is_some()), (2, eof));
            assert!(peer.exec("SELECT 1 FROM DUAL WHERE 1 = 0").rows().unwrap().rows.is_empty());
            let statement = peer.prepare("SELECT ?, 'x'").unwrap();
            assert_eq!(peer.execute(&statement, &[Param::Int(3)]).unwrap().scalar().unwrap().as_deref(), Some("3"));
        }
    }
}

fn session_tracking(world: &World) {
    let mut asks = world.connect();
    let mut asks_not = world.connect_with(&world.options().without(Capabilities::SESSION_TRACK));
    let reply = asks.exec("SET time_zone = '+02:00'");
    assert_eq!(reply.ok().unwrap().variable("time_zone").as_deref(), Some("+02:00"));
    assert!(asks_not.exec("SET time_zone = '+02:00'").ok().unwrap().session_state.is_empty());
    let tracked = format!("{:?}", asks.exec("USE test").ok().unwrap().changes().unwrap());
    assert!(tracked.contains("Schema([116, 101, 115, 116])"), "{tracked}");
    // A variable that is not tracked by default is not reported.
    assert_eq!(asks.exec("SET group_concat_max_len = 99").ok().unwrap().variable("group_concat_max_len"), None);
    // A client may track any variable; the server then no longer tracks its defaults.
    asks.exec("SET session_track_system_variables = 'group_concat_max_len', session_track_schema = OFF");
    assert_eq!(asks.exec("SET group_concat_max_len = 97").ok().unwrap().variable("group_concat_max_len").as_deref(), Some("97"));
    assert!(!format!("{:?}", asks.exec("USE test").ok().unwrap().changes().unwrap()).contains("Schema"));
    asks.exec("SET session_track_system_variables = '*'");
    let all = asks.exec("SET group_concat_max_len = 98");
    assert_eq!(all.ok().unwrap().variable("group_concat_max_len").as_deref(), Some("98"));
    // With `*` the report also names variables that the session did not set.
    asks.exec("SET session_track_state_change = 1");
    world.connect().exec("SET time_zone = '+03:00'");
    assert_eq!(asks.row("SELECT @@group_concat_max_len, @@session_track_state_change"), "98 1");
}

/// MariaDB and MySQL say at login which schema is current, and which character set.
fn login_tells_the_schema(world: &World) {
    let peer = world.connect();
    let expected = Client::connect(&ConnectOptions::tcp(world.server.address(), "app", "app-pass").database(&world.schema)).unwrap();
    assert_eq!(peer.login_status().status, expected.login_status().status);
    // MariaDB 11.8 also reports its tracked variables; the proxy does not.
    fn but_variables(client: &Client) -> Vec<Change<'_>> {
        let mut told = client.login_status().changes().unwrap();
        told.retain(|change| !matches!(change, Change::SystemVariable { .. }));
        told
    }
    assert_eq!(but_variables(&peer), but_variables(&expected));
}

fn connection_attributes(world: &World) {
    let options = world.options().attribute("_client_name", "lab").attribute("program_name", &"p".repeat(300));
    assert_eq!(world.connect_with(&options).get("SELECT 1"), "1");
}

fn packets_over_16_mib(world: &World) {
    let mut peer = world.connect();
    for mib in [17_usize, 33] {
        let long = "x".repeat(mib << 20);
        let reply = peer.query(format!("SELECT '{long}' AS s, 1 AS i")).unwrap().check().unwrap();
        let values = &reply.rows().unwrap().rows[0].values;
        assert!(values[0] == Value::Bytes(long.into_bytes()) && values[1] == Value::Bytes(b"1".to_vec()));
        let reply = peer.query(format!("SELECT REPEAT('r', {}), 2", mib << 20)).unwrap().check().unwrap();
        assert_eq!(reply.rows().unwrap().rows[0].values[1], Value::Bytes(b"2".to_vec()));
    }
    // Exactly one full packet, and one byte on either side.
    for length in [0x00ff_ffff_usize - 1, 0x00ff_ffff, 0x0100_0000] {
        let frame = "SELECT LENGTH('')".len() + 1;
        let reply = peer.query(format!("SELECT LENGTH('{}')", "y".repeat(length - frame))).unwrap();
        assert_eq!(reply.scalar().unwrap(), Some((length - frame).to_string()));
    }
    let statement = peer.prepare("SELECT LENGTH(?)").unwrap();
    let reply = peer.execute(&statement, &[Param::Text("z".repeat(17 << 20))]).unwrap();
    assert_eq!(reply.scalar().unwrap(), Some((17 << 20).to_string()));
}

/// Replies around the size of the buffer into which they are read, in a transaction, which pins.
fn replies_of_every_length(world: &World) {
    let mut peer = world.connect();
    peer.exec("BEGIN");
    let statement = peer.prepare("SELECT REPEAT('x', ?) AS a").unwrap();
    for length in (16_300_usize..16_350).chain(65_450..65_480) {
        assert_eq!(peer.get(&format!("SELECT REPEAT('x', {length}) AS a")).len(), length);
        let reply = peer.execute(&statement, &[Param::Int(i64::try_from(length).unwrap())]).unwrap();
        assert_eq!(reply.scalar().unwrap().map(|text| text.len()), Some(length));
    }
    peer.exec("COMMIT");
}

/// Stored code opened a cursor: servers say so of results that have none.
fn cursors_of_stored_code(world: &World) {
    // The lab's own client takes the flag for a cursor, too.
    if world.proxy.is_none() {
        return;
    }
    for capabilities in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
        let mut peer = world.connect_with(&world.options().capabilities(capabilities | Capabilities::MULTI_RESULTS));
        peer.exec("DROP PROCEDURE IF EXISTS p");
        peer.exec("CREATE PROCEDURE p() BEGIN DECLARE c CURSOR FOR SELECT 1; OPEN c; CLOSE c; SELECT 1 FROM dual WHERE 0; SELECT 2; END");
        let call = peer.prepare("CALL p()").unwrap();
        for _ in 0..2 {
            for reply in [peer.query("CALL p()").unwrap(), peer.execute(&call, &[]).unwrap()] {
                let rows: Vec<_> =
                    reply.results.iter().filter_map(|r| if let Outcome::Rows(set) = r { Some(set.rows.len()) } else { None }).collect();
                assert_eq!(rows, [0, 1]);
            }
            peer.disturb();
        }
    }
}

fn large_results_beside_small_ones(world: &World) {
    let (mut slow, mut quick) = world.pair();
    slow.exec_all(&["CREATE TABLE d(i INT)", "INSERT INTO d VALUES(0),(1),(2),(3),(4),(5),(6),(7),(8),(9)"]);
    // 32 MB that no client reads yet must not block other sessions.
    slow.send_query("SELECT REPEAT('x', 32000) FROM d a, d b, d c").unwrap();
    for _ in 0..20 {
        quick.disturb();
    }
    let reply = slow.recv_reply(Encoding::Text).unwrap().check().unwrap();
    assert_eq!(reply.rows().unwrap().rows.len(), 1000);
    slow.disturb();
}

fn compressed(world: &World, algorithm: Compression) {
    let mut peer = world.connect_with(&world.options().compression(algorithm));
    assert_eq!(peer.get("SELECT 1"), "1");
    let long = "compressible ".repeat(200_000);
    assert_eq!(peer.get(&format!("SELECT LENGTH('{long}')")), (13 * 200_000).to_string());
    assert_eq!(peer.get("SELECT REPEAT('x', 20000000)").len(), 20_000_000);
    let statement = peer.prepare("SELECT ?").unwrap();
    assert_eq!(peer.execute(&statement, &[Param::Text(long.clone())]).unwrap().scalar().unwrap(), Some(long));
    for i in 0..5 {
        peer.send_query(format!("SELECT {i}")).unwrap();
        assert_eq!(peer.recv_reply(Encoding::Text).unwrap().scalar().unwrap(), Some(i.to_string()));
    }
    peer.ping().unwrap().ok().unwrap();
}

fn zlib(world: &World) {
    compressed(world, Compression::Zlib);
    if world.is_mysql() {
        compressed(world, Compression::Zstd(3));
    }
}

fn pipelining(world: &World) {
    let mut peer = world.connect();
    peer.exec("CREATE TABLE t(i INT)");
    let statement = peer.prepare("SELECT ? + 0").unwrap();
    for i in 0..30 {
        peer.send_query(format!("SELECT {i}")).unwrap();
        peer.send_query(format!("INSERT INTO t VALUES({i})")).unwrap();
        peer.send_query("SELECT * FROM missing").unwrap();
        peer.send_command(Command::Ping, b"").unwrap();
        peer.send_execute(statement.id, &[Param::Int(i)], Execution::default()).unwrap();
        peer.send_query("SELECT COUNT(*) FROM t").unwrap();
    }
    for i in 0..30 {
        let mut next = |encoding| peer.recv_reply(encoding).unwrap();
        let text = |reply: Reply| reply.scalar().unwrap().unwrap();
        assert_eq!(text(next(Encoding::Text)), i.to_string());
        assert_eq!(next(Encoding::Text).ok().unwrap().affected_rows, 1);
        assert_eq!(next(Encoding::Text).err().unwrap().code, 1146);
        next(Encoding::Text).ok().unwrap();
        assert_eq!(text(next(Encoding::Binary)), i.to_string());
        assert_eq!(text(next(Encoding::Text)), (i + 1).to_string());
    }
}

fn wrong_password(world: &World) {
    for (user, password, using) in [("app", "wrong", "YES"), ("nobody", "", "NO"), ("nobody", "x", "YES"), ("app", "", "NO")] {
        match Client::connect(&world.options_for(user, password)) {
            Err(lab::LabError::Server { code, sqlstate, message }) => {
                assert_eq!((code, sqlstate.as_str()), (1045, "28000"));
                assert_eq!(message, format!("Access denied for user '{user}'@'127.0.0.1' (using password: {using})"));
            }
            other => panic!("{user}: {other:?}"),
        }
        match world.connect().change_user(&world.options_for(user, password)) {
            Err(lab::LabError::Server { code: 1045, message, .. }) => {
                assert!(message.ends_with(&format!("(using password: {using})")), "{message}");
            }
            other => panic!("{user}: {other:?}"),
        }
    }
}

fn unknown_database(world: &World) {
    let error = Client::connect(&world.options_for("app", "app-pass").database("test_nobody")).unwrap_err();
    assert_eq!(error.code(), Some(1049), "{error}");
}

fn configured(flavor: Flavor, more: impl FnOnce(Builder) -> Builder, body: impl Fn(&Tidegate)) {
    if proxied_only() {
        body(&proxy_with(server(flavor), 4, more));
    }
}

/// The exchange of a few statements, for configurations that change how they travel.
fn works(options: &ConnectOptions) -> Client {
    let mut client = Client::connect(options).unwrap();
    assert_eq!(client.scalar("SELECT 'works'").unwrap().as_deref(), Some("works"));
    let statement = client.prepare("SELECT ?, 'two' UNION SELECT 3, 'four'").unwrap();
    assert_eq!(client.execute(&statement, &[Param::Int(1)]).unwrap().rows().unwrap().rows.len(), 2);
    let long = client.scalar("SELECT REPEAT('long', 1000000)").unwrap();
    assert_eq!(long.map(|text| text.len()), Some(4_000_000));
    client
}

#[test]
fn backends_without_deprecate_eof() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        configured(
            flavor,
            |builder| builder.variable("enable_server_deprecate_eof", false),
            |proxy| {
                works(&proxy.options("app", "app-pass"));
                works(&proxy.options("app", "app-pass").capabilities(ConnectOptions::CLASSIC));
            },
        );
    }
}

#[test]
fn clients_without_deprecate_eof() {
    configured(
        Flavor::Mariadb,
        |builder| builder.variable("enable_client_deprecate_eof", false),
        |proxy| {
            let client = works(&proxy.options("app", "app-pass"));
            assert!(!client.capabilities().contains(Capabilities::DEPRECATE_EOF));
        },
    );
}

/// A proxy whose one server row has these columns.
fn with_server_columns(flavor: Flavor, columns: &[(&str, lab::tidegate::Setting)]) -> Tidegate {
    let server = server(flavor);
    Tidegate::builder().server_with(0, server.host(), server.port(), columns).app_user().start().unwrap()
}

#[test]
fn compressed_backends() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        if proxied_only() {
            let proxy = with_server_columns(flavor, &[("compression", 1.into())]);
            let mut client = works(&proxy.options("app", "app-pass"));
            let row = client.run("SHOW STATUS LIKE 'Compression'").unwrap().table().unwrap().remove(0);
            assert_eq!(row[1].as_deref(), Some("ON"), "{flavor:?}");
            works(&proxy.options("app", "app-pass").compression(Compression::Zlib));
        }
    }
}

#[test]
fn tls_to_the_backend() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        if proxied_only() {
            let proxy = with_server_columns(flavor, &[("use_ssl", 1.into())]);
            let mut client = works(&proxy.options("app", "app-pass"));
            let row = client.run("SHOW STATUS LIKE 'Ssl_cipher'").unwrap().table().unwrap().remove(0);
            assert!(row[1].as_deref().is_some_and(|cipher| !cipher.is_empty()), "{flavor:?} {row:?}");
            let plain = with_server_columns(flavor, &[]);
            let mut client = works(&plain.options("app", "app-pass"));
            let row = client.run("SHOW STATUS LIKE 'Ssl_cipher'").unwrap().table().unwrap().remove(0);
            assert_eq!(row[1].as_deref(), Some(""));
        }
    }
}

/// A connection is logged in again, by COM_CHANGE_USER, where only that makes it as new: with every way to prove a password.
#[test]
fn logging_in_again() {
    let users = [
        (Flavor::Mariadb, "app", "app-pass"),
        (Flavor::Mariadb, "ed", "ed-pass"),
        (Flavor::Mariadb, "empty", ""),
        (Flavor::Mysql, "app", "app-pass"),
        (Flavor::Mysql, "sha256", "sha256-pass"),
    ];
    for (flavor, user, password) in users {
        for (use_ssl, compression) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            if !proxied_only() {
                return;
            }
            let server = server(flavor);
            let columns = [("use_ssl", use_ssl.into()), ("compression", compression.into()), ("max_connections", 1.into())];
            let proxy = Tidegate::builder().server_with(0, server.host(), server.port(), &columns).user(user, password, 0).start().unwrap();
            let mut without = Client::connect(&proxy.options(user, password)).unwrap();
            let mut with = Client::connect(&proxy.options(user, password).database("test")).unwrap();
            for _ in 0..3 {
                assert_eq!(with.scalar("SELECT DATABASE()").unwrap().as_deref(), Some("test"));
                assert_eq!(without.scalar("SELECT DATABASE()").unwrap(), None);
            }
            assert_eq!(connections_opened(&proxy), 1, "{flavor:?} {user} use_ssl={use_ssl} compression={compression}");
        }
    }
}

#[test]
fn tls_from_the_client() {
    configured(
        Flavor::Mariadb,
        |builder| builder,
        |proxy| {
            works(&proxy.options("app", "app-pass").tls());
            works(&proxy.options("app", "app-pass").tls().compression(Compression::Zlib));
            works(&proxy.options("app", "app-pass").tls().plugin("mysql_clear_password"));
        },
    );
    configured(
        Flavor::Mariadb,
        |builder| builder.variable("have_ssl", false),
        |proxy| {
            works(&proxy.options("app", "app-pass"));
            Client::connect(&proxy.options("app", "app-pass").tls()).unwrap_err();
        },
    );
    configured(
        Flavor::Mariadb,
        |builder| builder.user_with("empty", "", 0, &[("use_ssl", 1.into())]),
        |proxy| {
            assert_eq!(Client::connect(&proxy.options("empty", "")).unwrap_err().code(), Some(1045));
            works(&proxy.options("empty", "").database("test").tls());
        },
    );
}

#[test]
fn every_authentication_plugin() {
    for default in ["mysql_native_password", "caching_sha2_password"] {
        configured(
            Flavor::Mysql,
            |builder| builder.variable("default_authentication_plugin", default),
            |proxy| {
                for plugin in ["mysql_native_password", "caching_sha2_password"] {
                    for _ in 0..2 {
                        works(&proxy.options("app", "app-pass").plugin(plugin));
                        works(&proxy.options("app", "app-pass").plugin(plugin).tls());
                    }
                    assert_eq!(Client::connect(&proxy.options("app", "wrong").plugin(plugin)).unwrap_err().code(), Some(1045));
                }
            },
        );
    }
}

#[test]
fn every_form_of_stored_password() {
    let stored: String = wire::auth::hash::native_stored(b"native-pass").iter().map(|byte| format!("{byte:02X}")).collect();
    configured(
        Flavor::Mariadb,
        |builder| builder.user("native", &format!("*{stored}"), 0).user("empty", "", 0).user("ed", "ed-pass", 0),
        |proxy| {
            works(&proxy.options("native", "native-pass"));
            assert_eq!(Client::connect(&proxy.options("native", "wrong")).unwrap_err().code(), Some(1045));
            works(&proxy.options("empty", ""));
            works(&proxy.options("ed", "ed-pass"));
        },
    );
    let hashed = wire::auth::crypt::generate(b"app-pass", b"0123456789abcdefghij");
    if proxied_only() {
        let server = server(Flavor::Mysql);
        let proxy = Tidegate::builder().backend(0, server).user("app", &hashed, 0).user("sha256", "sha256-pass", 0).start().unwrap();
        for _ in 0..2 {
            works(&proxy.options("app", "app-pass").plugin("caching_sha2_password"));
            works(&proxy.options("app", "app-pass").tls());
        }
        assert_eq!(Client::connect(&proxy.options("app", "wrong")).unwrap_err().code(), Some(1045));
        works(&proxy.options("sha256", "sha256-pass"));
    }
}

#[test]
fn limits_of_connections() {
    configured(
        Flavor::Mariadb,
        |builder| builder.variable("max_connections", 3),
        |proxy| {
            // The lab's own check that the port answers may not be over yet.
            let held: Vec<Client> = (0..3)
                .map(|_| lab::wait::until("room", LIMIT, || Client::connect(&proxy.options("app", "app-pass")).ok()).unwrap())
                .collect();
            assert_eq!(Client::connect(&proxy.options("app", "app-pass")).unwrap_err().code(), Some(1040));
            drop(held);
            lab::wait::until("room again", LIMIT, || Client::connect(&proxy.options("app", "app-pass")).ok()).unwrap();
        },
    );
    configured(
        Flavor::Mariadb,
        |builder| builder.user_with("empty", "", 0, &[("max_connections", 2.into())]),
        |proxy| {
            let held: Vec<Client> = (0..2).map(|_| Client::connect(&proxy.options("empty", "")).unwrap()).collect();
            assert_eq!(Client::connect(&proxy.options("empty", "")).unwrap_err().code(), Some(1226));
            works(&proxy.options("app", "app-pass"));
            drop(held);
            lab::wait::until("room again", LIMIT, || Client::connect(&proxy.options("empty", "")).ok()).unwrap();
        },
    );
}

#[test]
fn a_unix_socket_listener() {
    let path = lab::dirs::instance("listener").unwrap().join("sock");
    // The lab waits for its TCP port, so there is one beside the socket.
    let port = lab::port::Port::reserve().unwrap();
    let interfaces = format!("127.0.0.1:{};{}", port.number(), path.display());
    if !proxied_only() {
        return;
    }
    let server = server(Flavor::Mariadb);
    let proxy =
        Tidegate::builder().preferred_ports(port.number(), 0).backend(0, server).app_user().variable("interfaces", interfaces.as_str());
    drop(port);
    // The builder's own idea of the port is not used: only the socket is.
    let running = thread::spawn(move || proxy.start());
    lab::wait::until("the socket", LIMIT, || Client::connect(&ConnectOptions::unix(&path, "app", "app-pass")).ok()).unwrap();
    works(&ConnectOptions::unix(&path, "app", "app-pass").database("test"));
    drop(running);
}

/// Relays connections to `target`, each with these bytes before the client's own.
fn relay(target: String, header: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let mut proxy = TcpStream::connect(&target).unwrap();
            proxy.write_all(&header).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), proxy.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            let mut client = client;
            thread::spawn(move || {
                let _ = std::io::copy(&mut proxy, &mut client);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn proxy_protocol_headers() {
    let v1 = b"PROXY TCP4 203.0.113.7 127.0.0.1 40000 6033\r\n".to_vec();
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    v2.extend_from_slice(&[203, 0, 113, 8, 127, 0, 0, 1, 0x9c, 0x40, 0x17, 0x91]);
    configured(
        Flavor::Mariadb,
        |builder| builder.variable("proxy_protocol_networks", "127.0.0.0/8"),
        |proxy| {
            for (header, source) in [(v1.clone(), "203.0.113.7"), (v2.clone(), "203.0.113.8")] {
                let address = relay(proxy.address(), header);
                works(&ConnectOptions::tcp(address.clone(), "app", "app-pass"));
                // The client's own address is in the refusal.
                let error = Client::connect(&ConnectOptions::tcp(address, "app", "wrong")).unwrap_err().to_string();
                assert!(error.contains(source), "{error}");
            }
            works(&proxy.options("app", "app-pass"));
        },
    );
    configured(
        Flavor::Mariadb,
        |builder| builder,
        |proxy| {
            // From a network that is not trusted the header is refused, and the error says why the client cannot log in.
            for header in [&v1, &v2] {
                let address = relay(proxy.address(), header.clone());
                let error = Client::connect(&ConnectOptions::tcp(address, "app", "app-pass")).unwrap_err().to_string();
                assert!(error.contains("mysql-proxy_protocol_networks"), "{error}");
            }
        },
    );
}

/// An address that a trusted proxy before us names is counted, turned away and named in the log as one that connects itself.
#[test]
fn addresses_behind_a_proxy_are_turned_away() {
    let limits = |builder: Builder| {
        let builder = builder.variable("client_host_cache_size", 100).variable("client_host_error_counts", 2);
        builder.variable("proxy_protocol_networks", "127.0.0.0/8")
    };
    configured(Flavor::Mariadb, limits, |proxy| {
        let header = |host: &str| format!("PROXY TCP4 {host} 127.0.0.1 40000 6033\r\n").into_bytes();
        let [bad, good] = ["203.0.113.7", "203.0.113.8"].map(|host| relay(proxy.address(), header(host)));
        let connect = |address: &str, password: &str| Client::connect(&ConnectOptions::tcp(address, "app", password));
        connect(&bad, "wrong").unwrap_err();
        connect(&bad, "wrong").unwrap_err();
        connect(&bad, "app-pass").unwrap_err();
        connect(&good, "app-pass").unwrap();
        let line = "from 203.0.113.7:40000 refused: 203.0.113.7 failed to log in 2 times";
        wait::until("the log to name it", LIMIT, || proxy.log().contains(line).then_some(())).unwrap();
        works(&proxy.options("app", "app-pass"));
    });
}

/// One address has at most so many connections. Behind a trusted proxy the address in its header counts, not the proxy's own.
#[test]
fn connections_of_an_address_are_limited() {
    let limits = |builder: Builder| builder.variable("max_connections_per_address", 2).variable("proxy_protocol_networks", "127.0.0.2/32");
    configured(Flavor::Mariadb, limits, |proxy| {
        let connect = || Client::connect(&proxy.options("app", "app-pass"));
        // The look whether the proxy is ready was a connection, too.
        let held = [(); 2].map(|()| wait::until("a place", LIMIT, || connect().ok()).unwrap());
        let error = connect().unwrap_err();
        assert_eq!(error.code(), Some(1040), "{error}");
        assert!(error.to_string().contains("127.0.0.1 (mysql-max_connections_per_address)"), "{error}");
        drop(held);
        wait::until("a place", LIMIT, || connect().ok().map(drop)).unwrap();
    });
    let behind = |builder: Builder| builder.variable("max_connections_per_address", 2).variable("proxy_protocol_networks", "127.0.0.0/8");
    configured(Flavor::Mariadb, behind, |proxy| {
        let header = |host: &str| format!("PROXY TCP4 {host} 127.0.0.1 40000 6033\r\n").into_bytes();
        let [one, other] = ["203.0.113.7", "203.0.113.8"].map(|host| relay(proxy.address(), header(host)));
        let connect = |address: &str| Client::connect(&ConnectOptions::tcp(address, "app", "app-pass"));
        let _held: Vec<Client> = [&one, &one, &other, &other].map(|address| connect(address).unwrap()).into();
        let error = connect(&one).unwrap_err();
        assert_eq!(error.code(), Some(1040), "{error}");
        assert!(error.to_string().contains("203.0.113.7"), "{error}");
    });
}

#[test]
fn clients_without_tls_are_turned_away_where_it_is_required() {
    configured(
        Flavor::Mysql,
        |builder| builder.variable("require_secure_transport", true),
        |proxy| {
            let error = Client::connect(&proxy.options("app", "app-pass")).unwrap_err();
            assert_eq!(error.code(), Some(3159), "{error}");
            works(&proxy.options("app", "app-pass").tls());
        },
    );
    configured(
        Flavor::Mariadb,
        |builder| builder.variable("tls_min_version", "TLSv1.3"),
        |proxy| {
            works(&proxy.options("app", "app-pass").tls());
            let address = proxy.address();
            let (host, port) = address.rsplit_once(':').unwrap();
            let command_line = |version: &str| {
                let options = ["--ssl", "-uapp", "-papp-pass", "-eSELECT 5"];
                let version = format!("--tls-version={version}");
                std::process::Command::new("mariadb").args(["-h", host, "-P", port, &version]).args(options).output().unwrap()
            };
            let refused = command_line("TLSv1.2");
            let told = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && told.contains("3159"), "{told}");
            let served = command_line("TLSv1.3");
            assert!(served.status.success() && served.stdout.ends_with(b"5\n"), "{served:?}");
        },
    );
}

/// MariaDB 10 greets with `5.5.5-` before its version. Clients see that as an operator wants it, and operators do not see it.
#[test]
fn a_version_is_announced_as_the_server_does_or_without_its_prefix() {
    let announced = |proxy: &Tidegate| {
        // The first connection to the server tells the version.
        proxy.connect_app().unwrap().run("SELECT 1").unwrap();
        let client = proxy.connect_app().unwrap();
        String::from_utf8_lossy(&client.greeting().server_version).into_owned()
    };
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let version = common::server(flavor).root().unwrap().scalar("SELECT VERSION()").unwrap().unwrap();
        configured(
            flavor,
            |builder| builder.variable("mariadb_version_prefix", false),
            |proxy| {
                // A server's suffix (-log) is not in its greeting.
                assert!(version.starts_with(&announced(proxy)), "{version}, {}", announced(proxy));
                let stats = proxy.admin().unwrap().query("SELECT * FROM stats_proxysql_global").unwrap();
                assert!(!stats.table().unwrap().iter().flatten().flatten().any(|cell| cell.contains("5.5.5-")));
                assert!(!proxy.log().contains("5.5.5-"), "{}", proxy.log());
            },
        );
        let greeting = common::server(flavor).root().unwrap().greeting().server_version.clone();
        configured(
            flavor,
            |builder| builder,
            |proxy| {
                assert_eq!(announced(proxy).as_bytes(), greeting);
            },
        );
        // An operator's own version is announced.
        configured(
            flavor,
            |builder| builder.variable("server_version", "5.5.5-10.6.1-MariaDB"),
            |proxy| {
                assert_eq!(announced(proxy), "5.5.5-10.6.1-MariaDB");
            },
        );
    }
}

/// MariaDB's COM_STMT_BULK_EXECUTE: several rows in one command. Source: MariaDB KB, "COM_STMT_BULK_EXECUTE".
#[test]
fn bulk_execution() {
    let body = |world: &World| {
        let options = world.options().with(Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS);
        let mut peer = world.connect_with(&options);
        assert!(peer.capabilities().contains(Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS));
        peer.exec("CREATE TABLE t(id INT AUTO_INCREMENT PRIMARY KEY, i INT)");
        let statement = peer.prepare("INSERT INTO t(i) VALUES(?)").unwrap();
        let mut command = statement.id.to_le_bytes().to_vec();
        command.extend_from_slice(&128_u16.to_le_bytes()); // SEND_TYPES_TO_SERVER
        command.extend_from_slice(&[8, 0]); // BIGINT
        for value in [10_i64, 20, 30] {
            command.push(0); // no indicator: a value follows
            command.extend_from_slice(&value.to_le_bytes());
        }
        let reply = peer.command(Command::StmtBulkExecute, &command).unwrap();
        let ok = reply.ok().unwrap();
        assert_eq!((ok.affected_rows, ok.last_insert_id), (3, 1));
        world.connect().disturb();
        assert_eq!(peer.get("SELECT LAST_INSERT_ID()"), "1");
        assert_eq!(peer.get("SELECT SUM(i) FROM t"), "60");
    };
    run_text(Flavor::Mariadb, body);
}

/// Sessions that come and go leave no state behind that other sessions could see, while many are connected.
#[test]
fn many_sessions() {
    configured(
        Flavor::Mariadb,
        |builder| builder,
        |proxy| {
            let done = Arc::new(AtomicU64::new(0));
            thread::scope(|scope| {
                for n in 0..20 {
                    let (done, options) = (Arc::clone(&done), proxy.options("app", "app-pass"));
                    scope.spawn(move || {
                        for i in 0..10 {
                            let mut client = Client::connect(&options).unwrap();
                            assert_eq!(client.scalar("SELECT @seen").unwrap(), None);
                            client.run(format!("SET @seen = {n}")).unwrap();
                            assert_eq!(client.scalar("SELECT @seen").unwrap(), Some(n.to_string()));
                            if i % 2 == 0 {
                                client.quit().unwrap();
                            }
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(done.load(Ordering::Relaxed), 200);
        },
    );
}

/// An idle connection is used again, not taken for one that the server has closed: however it was made.
#[test]
fn idle_connections_are_used_again() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = server(flavor);
        let socket = server.socket().display().to_string();
        for (host, use_ssl, compression) in
            [(server.host(), 0, 0), (server.host(), 1, 0), (server.host(), 0, 1), (server.host(), 1, 1), (&*socket, 0, 0)]
        {
            if !proxied_only() {
                return;
            }
            let port = if host == socket { 0 } else { server.port() };
            let columns = [("use_ssl", use_ssl.into()), ("compression", compression.into())];
            let proxy = Tidegate::builder().server_with(0, host, port, &columns).app_user().variable("threads", 1).start().unwrap();
            let mut client = works(&proxy.options("app", "app-pass"));
            for _ in 0..20 {
                assert_eq!(client.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
            }
            assert_eq!(connections_opened(&proxy), 1, "{flavor:?} {host} use_ssl={use_ssl} compression={compression}");
        }
    }
}

/// How many connections to servers the proxy has opened so far.
fn connections_opened(proxy: &Tidegate) -> u64 {
    let sql = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Server_Connections_created'";
    proxy.admin().unwrap().scalar(sql).unwrap().unwrap().parse().unwrap()
}

/// MariaDB does so, and there are clients that answer under that, whatever they are asked (libmariadb 3.3.20).
#[test]
fn change_user_asks_under_the_greetings_scramble() {
    for world in [World::direct(Flavor::Mariadb), World::proxied(Flavor::Mariadb, 2, |builder| builder)] {
        let (mut peer, options) = (world.connect(), world.options());
        let mut payload = Vec::new();
        let (user, plugin) = (options.user.as_bytes(), Some(&peer.greeting().plugin[..]));
        ChangeUser { user, auth_response: b"", schema: b"", collation: Some(45), plugin, attributes: b"" }
            .write(&mut payload, peer.capabilities());
        peer.send_payload(&payload, false).unwrap();
        let asked = peer.recv_packet().unwrap();
        assert_eq!(asked[0], 0xfe);
        let scramble = &peer.greeting().scramble[..20];
        assert!(asked.windows(scramble.len()).any(|part| part == scramble), "{asked:?}");
    }
}
