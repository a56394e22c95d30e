//! No session sees another's state, though all share one backend.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;
#[path = "isolation/names.rs"]
mod names;
#[path = "isolation/values.rs"]
mod values;

use std::sync::mpsc::{TryRecvError, channel};
use std::thread;

use common::{LIMIT, Peer, World};
use lab::client::{Client, Encoding, Param};
use lab::wait;
use names::schemas_with_accents;
use values::*;
use wire::Capabilities;
each_flavor!(
    current_schema,
    no_schema,
    schema_that_is_gone,
    schemas_that_are_entered,
    schemas_with_accents,
    login_collation,
    every_login_collation,
    set_names,
    wide_connection_charset,
    wide_results,
    autocommit,
    session_variables,
    less_common_variables,
    settings_beside_the_clients_tracking,
    values_that_are_none,
    variables_with_two_names,
    variables_that_change_others,
    character_sets_of_servers_and_schemas,
    collations_that_no_variable_shows,
    flags_of_a_switch,
    utf8_under_another_old_mode,
    statements_prepared_under_another_old_mode,
    rows_as_of_a_time,
    user_variables_with_accents,
    texts_with_introducers,
    a_set_that_fails_in_the_midst,
    a_set_keeps_a_savepoint,
    what_a_set_has_read_is_not_locked,
    what_a_role_may_set,
    what_is_no_statement_keeps_nothing,
    what_a_failed_set_leaves,
    isolation_level,
    next_transaction_only,
    user_variables,
    user_variables_set_with_settings,
    several_statements_from_another_character_set,
    computed_user_variables,
    computed_user_variables_keep_their_types,
    nulls_keep_their_types,
    user_variables_that_cannot_be_carried,
    assignments_within_values,
    computed_decimals,
    temporary_tables,
    temporary_tables_with_other_names,
    characters_that_end_in_a_backslash,
    oracle_blocks,
    names_in_brackets,
    dumps_and_looks_at_tables,
    analyzed_inserts,
    named_locks,
    locked_tables,
    handlers,
    transactions,
    transaction_of_a_lost_client,
    transaction_that_a_conflict_ends,
    reads_that_do_not_wait_for_locks,
    locks_of_a_lost_client,
    prepared_statements,
    text_prepared_statements,
    reset_connection,
    wait_timeout_of_an_interactive_client,
    change_user,
    rows_stay_with_their_session,
    waiting_ends_with_an_error,
);

/// Both sessions show their own value again and again while they take turns.
fn each_keeps(a: &mut Peer, b: &mut Peer, query: &str, in_a: &str, in_b: &str) {
    for _ in 0..3 {
        assert_eq!(a.row(query), in_a, "first session: {query}");
        assert_eq!(b.row(query), in_b, "second session: {query}");
    }
}

/// `first` holds the only backend after `begin`; `second` waits until `end` and then gets its answer.
fn holds_until(world: &World, begin: &[&str], during: &str, end: &[&str]) {
    let (mut first, mut second) = world.pair();
    first.exec_all(begin);
    let (sender, answers) = channel();
    let asking = thread::spawn(move || {
        sender.send(second.get("SELECT 'answered'")).unwrap();
        second
    });
    for _ in 0..10 {
        first.exec(during);
        if world.proxy.is_some() {
            assert_eq!(answers.try_recv(), Err(TryRecvError::Empty), "the other session did not wait: {begin:?}");
        }
    }
    first.exec_all(end);
    assert_eq!(answers.recv_timeout(LIMIT).unwrap(), "answered", "after {end:?}");
    let mut second = asking.join().unwrap();
    for _ in 0..3 {
        first.disturb();
        second.disturb();
    }
}

fn current_schema(world: &World) {
    let other = format!("{}_other", world.schema);
    let (mut a, mut b) = world.pair();
    a.exec_all(&[
        &format!("DROP DATABASE IF EXISTS {other}"),
        &format!("CREATE DATABASE {other}"),
        "CREATE TABLE t(s VARCHAR(10))",
        "INSERT INTO t VALUES('first')",
    ]);
    b.exec(&format!("USE {other}"));
    b.exec_all(&["CREATE TABLE t(s VARCHAR(10))", "INSERT INTO t VALUES('second')"]);
    each_keeps(&mut a, &mut b, "SELECT DATABASE()", &world.schema, &other);
    each_keeps(&mut a, &mut b, "SELECT s FROM t", "first", "second");
    b.init_db(&world.schema).unwrap().ok().unwrap();
    a.init_db(&other).unwrap().ok().unwrap();
    each_keeps(&mut a, &mut b, "SELECT DATABASE(), s FROM t", &format!("{other} second"), &format!("{} first", world.schema));
    let mut options = world.options();
    options.database = None;
    let mut c = world.connect_with(&options);
    for _ in 0..2 {
        assert_eq!(c.get("SELECT DATABASE()"), "NULL");
        assert_eq!(c.fails("SELECT s FROM t"), 1046);
        assert_eq!(a.get("SELECT DATABASE()"), other);
    }
    a.exec(&format!("DROP DATABASE {other}"));
    each_keeps(&mut a, &mut b, "SELECT DATABASE()", "NULL", &world.schema);
}

/// Sessions with and without a schema take turns on one connection, which is not opened again for that.
fn no_schema(world: &World) {
    let mut a = world.connect();
    let mut b = world.connect_with(&world.options_for("app", "app-pass"));
    let length = b.get("SELECT @@group_concat_max_len");
    a.exec_all(&["SET SESSION group_concat_max_len = 2222", "CREATE TABLE t(n INT)", "INSERT INTO t VALUES(1)"]);
    let one = a.prepare("SELECT n FROM t").unwrap();
    b.exec("SET @mine = 'b'");
    for _ in 0..3 {
        assert_eq!(a.row("SELECT DATABASE(), @@group_concat_max_len, @mine"), format!("{} 2222 NULL", world.schema));
        assert_eq!(a.execute(&one, &[]).unwrap().scalar().unwrap().as_deref(), Some("1"));
        assert_eq!(b.row("SELECT DATABASE(), @@group_concat_max_len, @mine"), format!("NULL {length} b"));
        assert_eq!(b.fails("SELECT n FROM t"), 1046);
    }
    if let Some(proxy) = &world.proxy {
        let sql = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Server_Connections_created'";
        assert_eq!(proxy.admin().unwrap().scalar(sql).unwrap().as_deref(), Some("1"));
    }
}

/// A session whose schema is dropped behind its back keeps the name, and runs what needs none.
/// Schemas whose character set no client can have, and USE as a prepared statement: the session is where its client went.
fn schemas_that_are_entered(world: &World) {
    let (mut a, mut b) = world.pair();
    let home = world.schema.clone();
    let mut root = world.server.root().unwrap();
    for charset in ["ucs2", "utf16", "utf32", "latin1"] {
        let odd = format!("{home}_{charset}");
        root.run(format!("CREATE DATABASE {odd} CHARACTER SET {charset}")).unwrap();
        a.exec(&format!("USE {odd}"));
        each_keeps(&mut a, &mut b, "SELECT DATABASE(), @@character_set_database", &format!("{odd} {charset}"), &format!("{home} utf8mb4"));
        a.init_db(&home).unwrap().ok().unwrap();
        each_keeps(&mut a, &mut b, "SELECT DATABASE()", &home, &home);
        a.init_db(&odd).unwrap().ok().unwrap();
        each_keeps(&mut a, &mut b, "SELECT DATABASE()", &odd, &home);
        if world.is_mysql() {
            // It prepares no USE.
            root.run(format!("DROP DATABASE {odd}")).unwrap();
            a.exec(&format!("USE {home}"));
            continue;
        }
        // A prepared USE runs in the schema in which it was prepared; MariaDB goes back if the session has entered another schema since.
        a.exec(&format!("USE {home}"));
        let go = a.prepare(format!("USE {odd}")).unwrap();
        for _ in 0..3 {
            b.exec("USE information_schema");
            assert_eq!(b.get("SELECT DATABASE()"), "information_schema");
            a.execute(&go, &[]).unwrap().ok().unwrap();
            each_keeps(&mut a, &mut b, "SELECT DATABASE()", &odd, "information_schema");
            a.execute(&go, &[]).unwrap().ok().unwrap();
            each_keeps(&mut a, &mut b, "SELECT DATABASE()", &odd, "information_schema");
            a.init_db(&home).unwrap().ok().unwrap();
        }
        a.exec(&format!("USE {odd}"));
        b.exec(&format!("USE {home}"));
        a.exec("CREATE PROCEDURE goes() SELECT DATABASE()");
        a.exec(&format!("USE {home}"));
        assert_eq!(a.get(&format!("CALL {odd}.goes()")), odd);
        each_keeps(&mut a, &mut b, "SELECT DATABASE()", &home, &home);
        root.run(format!("DROP DATABASE {odd}")).unwrap();
    }
}

fn schema_that_is_gone(world: &World) {
    let gone = format!("{}_gone", world.schema);
    let (mut a, mut b) = world.pair();
    let mut root = world.server.root().unwrap();
    let statement = {
        a.exec(&format!("CREATE DATABASE {gone}"));
        a.exec(&format!("USE {gone}"));
        a.prepare("SELECT 'prepared'").unwrap()
    };
    let mut lose = |a: &mut Peer, b: &mut Peer| {
        a.exec(&format!("CREATE DATABASE IF NOT EXISTS {gone}"));
        a.exec(&format!("USE {gone}"));
        // The backend goes to another schema before the drop.
        assert_eq!(b.get("SELECT DATABASE()"), world.schema);
        root.run(format!("DROP DATABASE {gone}")).unwrap();
    };
    lose(&mut a, &mut b);
    for _ in 0..2 {
        assert_eq!(a.get("SELECT 1"), "1");
        let code = a.fails("SELECT * FROM missing");
        assert!([1046, 1049, 1146].contains(&code), "{code}");
        a.query("SHOW WARNINGS").unwrap().table().unwrap();
        assert_eq!(a.execute(&statement, &[]).unwrap().scalar().unwrap().as_deref(), Some("prepared"));
        a.exec("SET @kept = 5, SESSION group_concat_max_len = 2222");
        a.exec("BEGIN");
        assert_eq!(a.get("SELECT 2"), "2");
        assert_eq!(a.fails("SELECT missing_column"), 1054);
        let warnings = a.query("SHOW WARNINGS").unwrap().table().unwrap();
        assert!(warnings.len() == 1 && warnings[0][1].as_deref() == Some("1054"), "{warnings:?}");
        a.exec("COMMIT");
        assert_eq!(b.get("SELECT DATABASE()"), world.schema);
        assert_eq!(a.row("SELECT @kept, @@group_concat_max_len"), "5 2222");
        b.disturb();
    }
    a.exec(&format!("USE {}", world.schema));
    each_keeps(&mut a, &mut b, "SELECT DATABASE()", &world.schema, &world.schema);
    lose(&mut a, &mut b);
    a.init_db(&world.schema).unwrap().ok().unwrap();
    each_keeps(&mut a, &mut b, "SELECT DATABASE()", &world.schema, &world.schema);
    lose(&mut a, &mut b);
    assert_eq!(a.fails("USE test_never_there"), 1049);
    a.reset_connection().unwrap().ok().unwrap();
    assert_eq!(a.get("SELECT 1"), "1");
    a.exec(&format!("CREATE DATABASE {gone}"));
    a.exec(&format!("USE {gone}"));
    each_keeps(&mut a, &mut b, "SELECT DATABASE()", &gone, &world.schema);
    a.exec(&format!("DROP DATABASE {gone}"));
}

/// A connection of its own to the server that logged in with `utf8mb4_general_ci`. MariaDB takes that for
/// `utf8mb4_uca1400_ai_ci` since 11.5.
fn on_its_own(world: &World) -> Peer {
    let direct = World::direct(world.flavor());
    direct.connect_with(&direct.options_for("app", "app-pass").charset(45))
}

/// Every collation that a login can name, those that the server does not know too.
fn every_login_collation(world: &World) {
    const STATE: &str = "SELECT @@character_set_client, @@character_set_results, @@collation_connection, 'a' = 'a '";
    let direct = World::direct(world.flavor());
    let mut other = world.connect();
    let mut refused = 0;
    for collation in 1..=255 {
        // Servers refuse logins with ucs2, utf16, utf32 or filename.
        let Ok(mut own) = Client::connect(&direct.options_for("app", "app-pass").charset(collation)) else {
            refused += 1;
            continue;
        };
        let mut shared = world.connect_with(&world.options().charset(collation));
        other.exec("SELECT 1");
        let own = own.query(STATE).unwrap().table().unwrap();
        assert_eq!(shared.query(STATE).unwrap().table().unwrap(), own, "{collation}");
    }
    assert!((1..120).contains(&refused), "{refused}");
}

fn login_collation(world: &World) {
    const STATE: &str = "SELECT @@character_set_client, @@character_set_connection, @@character_set_results, @@collation_connection";
    let mut latin = world.connect_with(&world.options().charset(8));
    let mut wide = world.connect_with(&world.options().charset(45));
    let mut bin = world.connect_with(&world.options().charset(46));
    let mut own = on_its_own(world);
    let utf8mb4 = own.row(STATE);
    each_keeps(&mut latin, &mut wide, STATE, "latin1 latin1 latin1 latin1_swedish_ci", &utf8mb4);
    each_keeps(&mut bin, &mut latin, STATE, "utf8mb4 utf8mb4 utf8mb4 utf8mb4_bin", "latin1 latin1 latin1 latin1_swedish_ci");
    each_keeps(&mut wide, &mut bin, "SELECT 'a' = 'A'", "1", "0");
    each_keeps(&mut latin, &mut wide, "SELECT CHAR_LENGTH('ä')", "2", "1");
    // The bytes of a result are in the session's character set.
    let reply = latin.exec("SELECT CONVERT(_utf8mb4 x'c3a4' USING utf8mb4)");
    assert_eq!(reply.rows().unwrap().rows[0].values[0], lab::client::Value::Bytes(vec![0xe4]));
    assert_eq!(wide.get("SELECT _utf8mb4 x'c3a4'"), "ä");
    for peer in [&mut own, &mut wide] {
        peer.reset_connection().unwrap().ok().unwrap();
    }
    each_keeps(&mut latin, &mut wide, STATE, "latin1 latin1 latin1 latin1_swedish_ci", &own.row(STATE));
}

fn set_names(world: &World) {
    const STATE: &str = "SELECT @@character_set_client, @@character_set_results, @@collation_connection";
    let (mut a, mut b) = world.pair();
    a.exec("SET NAMES latin1");
    each_keeps(&mut a, &mut b, STATE, "latin1 latin1 latin1_swedish_ci", &on_its_own(world).row(STATE));
    b.exec("SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin'");
    each_keeps(&mut a, &mut b, STATE, "latin1 latin1 latin1_swedish_ci", "utf8mb4 utf8mb4 utf8mb4_bin");
    a.exec_all(&["SET NAMES utf8mb4", "SET character_set_results = NULL"]);
    each_keeps(&mut a, &mut b, "SELECT @@character_set_results", "NULL", "utf8mb4");
    a.exec("SET collation_connection = utf8mb4_unicode_ci");
    each_keeps(&mut a, &mut b, "SELECT @@collation_connection", "utf8mb4_unicode_ci", "utf8mb4_bin");
}

fn autocommit(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec("SET autocommit = 0");
    each_keeps(&mut a, &mut b, "SELECT @@autocommit", "0", "1");
    a.exec("SET autocommit = 1");
    b.exec("SET SESSION autocommit = OFF");
    each_keeps(&mut a, &mut b, "SELECT @@autocommit", "1", "0");
    let status = |peer: &mut Peer| peer.exec("DO 1").status().unwrap().status;
    assert!(status(&mut a).contains(wire::StatusFlags::AUTOCOMMIT));
    assert!(!status(&mut b).contains(wire::StatusFlags::AUTOCOMMIT));
}

/// Sets each variable in one session only; the other session keeps its values.
fn keeps_variables(world: &World, variables: &[(&str, &str, &str)]) {
    let (mut a, mut b) = world.pair();
    for (name, assigned, shown) in variables {
        let query = format!("SELECT @@{name}");
        let before = b.get(&query);
        a.exec(&format!("SET SESSION {name} = {assigned}"));
        each_keeps(&mut a, &mut b, &query, shown, &before);
    }
    // All of them together, for a third session that comes later.
    let mut c = world.connect();
    for (name, _, shown) in variables {
        assert_eq!(a.get(&format!("SELECT @@{name}")), *shown);
        let query = format!("SELECT @@{name}");
        let fresh = c.get(&query);
        assert_eq!(b.get(&query), fresh, "{name}");
    }
}

fn session_variables(world: &World) {
    keeps_variables(
        world,
        &[
            ("sql_mode", "'ANSI_QUOTES'", "ANSI_QUOTES"),
            ("time_zone", "'+05:30'", "+05:30"),
            ("foreign_key_checks", "0", "0"),
            ("unique_checks", "OFF", "0"),
            ("sql_select_limit", "3", "3"),
            ("sql_safe_updates", "1", "1"),
            ("group_concat_max_len", "77", "77"),
            ("wait_timeout", "1234", "1234"),
            ("lock_wait_timeout", "12", "12"),
            ("innodb_lock_wait_timeout", "13", "13"),
        ],
    );
}

fn less_common_variables(world: &World) {
    keeps_variables(
        world,
        &[
            ("lc_time_names", "'de_DE'", "de_DE"),
            ("div_precision_increment", "2", "2"),
            ("sql_notes", "0", "0"),
            ("auto_increment_increment", "7", "7"),
            ("default_week_format", "3", "3"),
            ("sort_buffer_size", "65536", "65536"),
            ("net_write_timeout", "61", "61"),
        ],
    );
    let (mut a, mut b) = world.pair();
    a.exec("SET timestamp = 1700000000");
    let now = a.get("SELECT UNIX_TIMESTAMP(NOW())");
    assert_eq!(now, "1700000000");
    assert_ne!(b.get("SELECT UNIX_TIMESTAMP(NOW())"), now);
    assert_eq!(a.get("SELECT UNIX_TIMESTAMP(NOW())"), now);
}

/// A statement that names a tracking setting runs under the client's own, or changes them: the server reports less than it does.
fn settings_beside_the_clients_tracking(world: &World) {
    const CHARSETS: &str = "SELECT @@character_set_client, @@character_set_results, @@collation_connection";
    const LENGTH: &str = "SELECT @@group_concat_max_len, @a";
    let isolation = if world.is_mysql() { "SELECT @@transaction_isolation" } else { "SELECT @@tx_isolation" };
    world.connect().exec("CREATE TABLE t(i INT)");
    let mut root = world.server.root().unwrap();
    for sql in [
        &format!("USE {}", world.schema),
        "CREATE TRIGGER ti BEFORE INSERT ON t FOR EACH ROW SET group_concat_max_len = 5555, @a = 7",
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN SET group_concat_max_len = 5555, @a = 7; RETURN 70000; END",
    ] {
        root.run(sql).unwrap();
    }
    let check = |text: &str, query: &str, expected: &str, shares: bool| {
        // Connections are lent to those with the same flags.
        let connect = || world.connect_with(&world.options().with(Capabilities::MULTI_STATEMENTS));
        let fresh = connect().row(query);
        assert_ne!(fresh, expected, "{query}");
        let mut a = connect();
        if text.contains("; ") {
            assert!(a.query(text).unwrap().err().is_none(), "{text}")
        } else {
            drop(a.exec(text))
        }
        assert_eq!(a.row(query), expected, "after {text}");
        if shares {
            each_keeps(&mut a, &mut connect(), query, expected, &fresh);
        }
        drop(a);
        assert_eq!(connect().row(query), fresh, "another session, after {text}");
    };
    for (text, query, expected) in [
        ("SET NAMES latin1, session_track_system_variables = 'time_zone'", CHARSETS, "latin1 latin1 latin1_swedish_ci"),
        ("SET session_track_system_variables = 'time_zone', NAMES latin1 COLLATE latin1_bin", CHARSETS, "latin1 latin1 latin1_bin"),
        ("SET session_track_schema = OFF, @@session.character_set_results = latin1", "SELECT @@character_set_results", "latin1"),
        ("SET CHARACTER SET latin1, session_track_state_change = ON", "SELECT @@character_set_client", "latin1"),
        ("SET session_track_system_variables = ''; SET NAMES latin1", CHARSETS, "latin1 latin1 latin1_swedish_ci"),
        ("SET session_track_system_variables = '', sql_mode = 'ANSI_QUOTES'", "SELECT @@sql_mode", "ANSI_QUOTES"),
        ("SET session_track_system_variables = ''; SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", isolation, "SERIALIZABLE"),
    ] {
        check(text, query, expected, true);
    }
    for text in [
        "SET session_track_system_variables = '', sort_buffer_size = f()",
        "DO @@session_track_schema + f()",
        "INSERT INTO t VALUES(@@session_track_schema)",
        "INSERT INTO t VALUES(1); SELECT @@session_track_schema",
    ] {
        check(text, LENGTH, "5555 7", false);
    }
    let other = format!("{}_other", world.schema);
    world.connect().exec(&format!("CREATE DATABASE IF NOT EXISTS {other}"));
    check(&format!("SET session_track_schema = OFF; USE {other}"), "SELECT DATABASE()", &other, true);
    world.connect().exec(&format!("DROP DATABASE {other}"));
}

fn isolation_level(world: &World) {
    let name = if world.is_mysql() { "transaction_isolation" } else { "tx_isolation" };
    let (mut a, mut b) = world.pair();
    let query = format!("SELECT @@{name}");
    a.exec("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    each_keeps(&mut a, &mut b, &query, "READ-COMMITTED", "REPEATABLE-READ");
    b.exec("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE");
    each_keeps(&mut a, &mut b, &query, "READ-COMMITTED", "SERIALIZABLE");
    b.exec(&format!("SET {name} = 'REPEATABLE-READ'"));
    b.exec("SET SESSION TRANSACTION READ ONLY");
    a.exec("CREATE TABLE t(i INT)");
    a.exec("INSERT INTO t VALUES(1)");
    assert_eq!(b.fails("INSERT INTO t VALUES(2)"), 1792);
    a.exec("INSERT INTO t VALUES(3)");
}

fn next_transaction_only(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec("CREATE TABLE t(i INT)");
    a.exec("SET TRANSACTION READ ONLY");
    a.exec("BEGIN");
    assert_eq!(a.fails("INSERT INTO t VALUES(1)"), 1792);
    a.exec("COMMIT");
    b.exec("INSERT INTO t VALUES(2)");
    a.exec("INSERT INTO t VALUES(3)");
    if world.encoding == Encoding::Text {
        let read_only = if world.is_mysql() { "transaction_read_only" } else { "tx_read_only" };
        let without_scope = format!("SET @@{read_only} = 1");
        for set in ["SET TRANSACTION READ ONLY", &without_scope] {
            holds_until(world, &[set], "SET @x = 1", &["BEGIN", "COMMIT"]);
        }
        a.exec_all(&["CREATE TABLE m(i INT) ENGINE = MyISAM", "CREATE PROCEDURE pe() BEGIN END"]);
        for goes_on in [
            "SELECT * FROM (SELECT 1) d",
            "WITH c AS (SELECT 1) SELECT * FROM c",
            "SELECT * FROM m",
            "SELECT COUNT(*) FROM information_schema.schemata",
            "CALL pe()",
        ] {
            holds_until(world, &["SET TRANSACTION READ ONLY"], goes_on, &["COMMIT"]);
            b.exec("INSERT INTO t VALUES(2)");
        }
        for goes_on in ["INSERT INTO m VALUES(1)", "UPDATE m SET i = i + 1", "DELETE FROM t WHERE i = 77"] {
            holds_until(world, &["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"], goes_on, &["ROLLBACK"]);
        }
        a.exec(&without_scope);
        assert_eq!(a.fails("INSERT INTO t VALUES(1)"), 1792, "it is the session's");
        a.exec_all(&["BEGIN", "COMMIT"]);
        b.exec("INSERT INTO t VALUES(2)");
    }
}

fn user_variables(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec("SET @v = 'mine', @n = 5");
    each_keeps(&mut a, &mut b, "SELECT @v, @n", "mine 5", "NULL NULL");
    b.exec("SET @v := 2.50");
    each_keeps(&mut a, &mut b, "SELECT @v", "mine", "2.50");
    a.exec("SET @V = NULL");
    each_keeps(&mut a, &mut b, "SELECT @v", "NULL", "2.50");
    // No server has such a version.
    a.exec("SET @n = 1");
    a.exec("/*!999999 SET @n = 2 */");
    each_keeps(&mut a, &mut b, "SELECT @n", "1", "NULL");
    a.exec("/*!50003 SET @n = 3 */");
    each_keeps(&mut a, &mut b, "SELECT @n", "3", "NULL");
    a.exec("SET @`odd name` = x'4142'");
    each_keeps(&mut a, &mut b, "SELECT @`odd name`", "AB", "NULL");
}

/// Text that is assigned where settings change by which it is read: as on a connection of its own.
fn user_variables_set_with_settings(world: &World) {
    let scripts: [&[&str]; 14] = [
        &["SET NAMES latin1, @s = 'ab'", "SET @n = 5"],
        &["SET @s = 'ab', NAMES latin1", "SET NAMES utf8mb4"],
        &["SET CHARACTER SET latin1, @s = 'ab'"],
        &["SET character_set_connection = latin1, @s = 'ab'"],
        &["SET character_set_client = latin1, @s = '\u{e9}'"],
        &["SET @@character_set_client = latin1, @s = '\u{e9}'"],
        &["SET collation_connection = latin1_bin, @s = 'ab'"],
        &["SET collation_connection = utf8mb4_bin, @s = 'ab'"],
        &["SET character_set_connection = latin1; SET @s = 'ab'"],
        &["SET NAMES utf8mb4 COLLATE utf8mb4_bin; SET @s = 'ab'; SELECT 1"],
        &["SET sql_mode = 'NO_BACKSLASH_ESCAPES', @s = 'a\\\\b'"],
        &["SET @@sql_mode = 'NO_BACKSLASH_ESCAPES', @s = 'a\\nb'"],
        &["SET sql_mode = 'NO_BACKSLASH_ESCAPES'", "SET sql_mode = '', @s = 'c:\\\\new'"],
        &["SET sql_mode = 'NO_BACKSLASH_ESCAPES'", "SET sql_mode = '', @s = '\\', @t = ', @u = '"],
    ];
    let prepared = [
        ("SET NAMES latin1", "SET @s = '\u{e9}'", "SET NAMES utf8mb4"),
        ("DO 1", "SET @s = 'a\\\\b'", "SET sql_mode = 'NO_BACKSLASH_ESCAPES'"),
        ("SET sql_mode = 'NO_BACKSLASH_ESCAPES'", "SET @s = 'a\\\\b'", "SET sql_mode = ''"),
    ];
    let seen = |world: &World| {
        // Connections are lent to those with the same flags.
        let options = world.options().with(Capabilities::MULTI_STATEMENTS);
        let shown = |act: &dyn Fn(&mut Peer, &mut Peer)| {
            let (mut a, mut b) = (world.connect_with(&options), world.connect_with(&options));
            act(&mut a, &mut b);
            b.exec("SET NAMES latin2, @s = 1");
            a.row("SELECT HEX(@s), CHARSET(@s), COLLATION(@s), @s = 'AB', HEX(@t), @n")
        };
        let run = |a: &mut Peer, sql: &str| {
            if sql.contains("; ") { assert!(a.query(sql).unwrap().err().is_none(), "{sql}") } else { drop(a.exec(sql)) }
        };
        let in_text = scripts.iter().map(|script| {
            let act = |a: &mut Peer, b: &mut Peer| {
                script.iter().for_each(|sql| {
                    run(a, sql);
                    b.exec("SET NAMES latin2, @s = 1");
                });
            };
            (format!("{script:?}"), shown(&act))
        });
        let later = prepared.iter().map(|(before, sql, after)| {
            let act = |a: &mut Peer, _: &mut Peer| {
                a.exec(before);
                let statement = a.prepare(sql).unwrap();
                a.exec(after);
                a.execute(&statement, &[]).unwrap().ok().unwrap();
            };
            (format!("{before}, {sql}, {after}"), shown(&act))
        });
        in_text.chain(later).collect::<Vec<_>>()
    };
    let mut own = World::direct(world.flavor());
    own.encoding = world.encoding;
    assert_eq!(seen(world), seen(&own));
}

/// If all character sets read a text alike, a statement in it that changes the character set does not matter.
fn several_statements_from_another_character_set(world: &World) {
    let latin = world.options().with(Capabilities::MULTI_STATEMENTS).charset(8);
    for text in ["SET NAMES utf8mb4; SELECT 1", "SET @@character_set_client = utf8mb4; SELECT 1"] {
        let (mut a, mut b) = (world.connect_with(&latin), world.connect_with(&latin));
        assert!(a.query(text).unwrap().err().is_none(), "{text}");
        b.disturb();
        assert_eq!(a.row("SELECT @@character_set_client"), "utf8mb4", "{text}");
        b.disturb();
    }
}

/// Character sets in which ASCII has other bytes: the proxy's own statements and answers are still understood.
fn wide_connection_charset(world: &World) {
    let (mut a, mut b) = world.pair();
    let mut c = world.connect();
    let (zone, mode) = (c.get("SELECT @@time_zone"), c.get("SELECT @@sql_mode"));
    for wide in ["utf16", "utf32", "ucs2"] {
        a.exec(&format!("SET character_set_connection = {wide}"));
        a.table("SHOW VARIABLES LIKE 'x'");
        b.exec("SET time_zone = CONCAT('+03', ':00')");
        b.exec("SET sql_mode = CONCAT('ANSI', '')");
        for _ in 0..2 {
            assert_eq!(c.row("SELECT @@time_zone, @@sql_mode, @@character_set_connection"), format!("{zone} {mode} utf8mb4"));
            assert_eq!(a.row("SELECT @@time_zone, @@character_set_connection"), format!("{zone} {wide}"));
            assert_eq!(b.row("SELECT @@time_zone, @@sql_mode LIKE '%ANSI_QUOTES%'"), "+03:00 1");
        }
        c.exec("SET collation_connection = DEFAULT");
        assert_ne!(c.get("SELECT @@character_set_connection"), wide);
        c.exec("SET NAMES utf8mb4");
        b.exec("SET time_zone = DEFAULT, sql_mode = DEFAULT");
        a.exec("SET NAMES utf8mb4");
    }
}

fn wide_results(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec("CREATE TABLE t(i INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(9))");
    for (wide, id) in [("utf16", "1"), ("ucs2", "2")] {
        a.exec(&format!("SET character_set_results = {wide}"));
        a.exec("SET @v = (SELECT CONCAT('t', 'ext')), @n = 1 + 1");
        b.disturb();
        a.exec("SET @@time_zone = '+05:00'");
        a.exec("INSERT INTO t(s) SELECT @v");
        b.disturb();
        a.exec("SET NAMES utf8mb4");
        assert_eq!(a.row("SELECT @v, @n, @@time_zone, LAST_INSERT_ID()"), format!("text 2 +05:00 {id}"));
        assert_eq!(b.row("SELECT @v, @n"), "NULL NULL");
        a.exec("SET @v = NULL, @@time_zone = DEFAULT");
    }
}

fn computed_user_variables(world: &World) {
    let (mut a, mut b) = world.pair();
    b.exec("SELECT 1");
    a.exec("CREATE TABLE t(i INT)");
    a.exec("INSERT INTO t VALUES(7), (8)");
    a.exec("SELECT MAX(i) INTO @m FROM t");
    a.exec("SET @s = CONCAT('x', (SELECT COUNT(*) FROM t))");
    each_keeps(&mut a, &mut b, "SELECT @m, @s", "8 x2", "NULL NULL");
    a.exec("SET @r = 0");
    for round in 1..4 {
        assert_eq!(a.table("SELECT @r := @r + 1, i FROM t ORDER BY i").len(), 2);
        each_keeps(&mut a, &mut b, "SELECT @r", &format!("{}", 2 * round), "NULL");
    }
    // Within a transaction its value is asked for when that is over.
    a.exec_all(&["BEGIN", "UPDATE t SET i = (@last := i) + 10 ORDER BY i", "COMMIT"]);
    each_keeps(&mut a, &mut b, "SELECT @last", "8", "NULL");
    b.exec("SELECT @m := 'b''s'");
    each_keeps(&mut a, &mut b, "SELECT @m", "8", "b's");
    // The statement's own diagnostics stay, though another query came after it.
    if world.encoding == Encoding::Text {
        a.exec("SELECT CONCAT(i, 'x') + 0 INTO @w FROM t LIMIT 1");
        b.disturb();
        assert_eq!(a.table("SHOW WARNINGS").iter().filter(|row| row.get(1).is_some_and(|code| code == "1292")).count(), 1);
    }
    a.exec("UPDATE t SET i = (@last := i) + 1");
    b.disturb();
    assert_eq!(a.row("SELECT ROW_COUNT()"), "2");
    a.exec("SELECT @r := i FROM t");
    b.disturb();
    assert_eq!(a.row("SELECT FOUND_ROWS()"), "2");
    assert_eq!(a.fails("SELECT @r := 5 FROM no_such_table"), 1146);
    a.reset_connection().unwrap().ok().unwrap();
    assert_eq!(b.row("SELECT @m, @s"), "b's NULL");
    assert_eq!(a.row("SELECT @m, @s"), "NULL NULL");
}

/// A table created from the variables shows their types; the other statements show their values.
fn computed_user_variables_keep_their_types(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec_all(&[
        "SET @i = (SELECT -5), @big = -9223372036854775807 - 1, @u = CAST(7 AS UNSIGNED), @d = 1.50 + 0, @whole = CAST(6 AS DECIMAL(10)) * 1",
        "SET @e = 1e0 / 3, @huge = 1e0 * 1e300, @zero = 0e0 * -1, @n = NULLIF(1, 1), @ne = NULL + 0e0, @nd = NULL + 0.0, @t = TIMESTAMP('2020-01-02 03:04:05')",
        "SET @s = CONCAT('it''s \u{fc}', CHAR(10 USING utf8mb4)), @l = CONVERT('\u{e4}' USING latin1), @none = CONCAT('', '')",
        "SET @b = UNHEX('00FF275C'), @c = CONCAT('a', 'b') COLLATE utf8mb4_bin",
    ]);
    let names = ["i", "big", "u", "d", "whole", "e", "huge", "zero", "n", "ne", "nd", "t", "s", "l", "none", "b", "c"];
    let columns: Vec<String> = names.iter().map(|name| format!("@{name} AS {name}")).collect();
    let values: Vec<String> =
        names.iter().map(|name| format!("HEX(@{name}), CHARSET(@{name}), COLLATION(@{name}), @{name} + 0e0")).collect();
    let shape = |a: &mut Peer| {
        a.exec("DROP TABLE IF EXISTS made");
        a.exec(&format!("CREATE TABLE made AS SELECT {}", columns.join(", ")));
        (a.table("SHOW CREATE TABLE made"), a.table("SELECT * FROM made"), a.table(&format!("SELECT {}", values.join(", "))))
    };
    let before = shape(&mut a);
    for _ in 0..2 {
        b.disturb();
        assert_eq!(shape(&mut a), before);
    }
}

/// A NULL has the type of the session's own variable, or none, whatever type other sessions gave it meanwhile.
fn nulls_keep_their_types(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec("CREATE TABLE words(w VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci)");
    let long = format!("SET @p = '{}'", "x".repeat(500));
    let cases: [(&[&str], &str); 9] = [
        (&[], "longblob"),
        (&["SET @p = 5"], "bigint"),
        (&["SET @p = 1.25"], "decimal(65,"),
        (&["SET @p = 1e0"], "double"),
        (&["SET @p = x'41'"], "longblob"),
        (&["SET @p = 'x' COLLATE utf8mb4_bin"], "utf8mb4_bin"),
        (&["SET @p = CAST(7 AS UNSIGNED) + 0"], "unsigned"),
        (&["SET NAMES utf8mb4 COLLATE utf8mb4_bin", &long], "utf8mb4_bin"),
        (&["SET @p = CONCAT('a', 'b') COLLATE utf8mb4_spanish_ci", "SET @p = NULL", "SELECT @p := NULL"], "utf8mb4_spanish_ci"),
    ];
    for (before, expected) in cases {
        a.reset_connection().unwrap().ok().unwrap();
        a.exec_all(before);
        a.exec("SET @p = NULL");
        for noise in ["SET @p = 'zz' COLLATE utf8mb4_unicode_ci", "SET @p = 1.25", "SET @p = 5", "SET @p = x'41'"] {
            b.exec(noise);
            b.disturb();
            a.exec("DROP TABLE IF EXISTS made");
            a.exec("CREATE TABLE made AS SELECT @p AS p");
            let made = a.row("SHOW CREATE TABLE made");
            assert!(made.contains(expected), "{before:?}, then {noise}: {made}");
            b.disturb();
            assert_eq!(a.get("SELECT @p"), "NULL");
            if !expected.ends_with("_ci") {
                assert_eq!(a.table("SELECT w FROM words WHERE w = @p").len(), 0, "{before:?}, then {noise}");
            }
        }
    }
}

/// More of them than are carried, and one that is too long: the session keeps its backend, and loses nothing.
fn user_variables_that_cannot_be_carried(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec("SET @long = REPEAT('x', 5000)");
    assert_eq!(a.row("SELECT LENGTH(@long), @long = REPEAT('x', 5000)"), "5000 1");
    a.reset_connection().unwrap().ok().unwrap();
    assert_eq!(b.row("SELECT @long"), "NULL");
    // Bytes that no server takes for text in its character set, though it made it.
    a.exec("SET @broken = CONVERT(UNHEX('FF') USING utf8mb4), @half = CONCAT(_ucs2 X'D83D', ''), @raw = UNHEX('FF')");
    a.exec("SET @text = CONVERT(UNHEX('FF') USING latin1)");
    let seen = a.row("SELECT HEX(@broken), HEX(@half), HEX(@raw), HEX(@text), CHARSET(@text)");
    for _ in 0..2 {
        a.exec("DO 1");
        assert_eq!(a.row("SELECT HEX(@broken), HEX(@half), HEX(@raw), HEX(@text), CHARSET(@text)"), seen);
    }
    a.reset_connection().unwrap().ok().unwrap();
    assert_eq!(b.row("SELECT @broken"), "NULL");
    for number in 0..70 {
        a.exec(&format!("SET @v{number} = {number}"));
    }
    assert_eq!(a.row("SELECT @v0, @v63, @v69"), "0 63 69");
    a.reset_connection().unwrap().ok().unwrap();
    assert_eq!(b.row("SELECT @v0"), "NULL");
}

/// `:=` within the value of a SET.
fn assignments_within_values(world: &World) {
    let (mut a, mut b) = world.pair();
    b.exec("SET @b = 1, @a = 2");
    a.exec("SET @b = 1");
    a.exec("SET @a = (@b := 77) * 0 + 2");
    each_keeps(&mut a, &mut b, "SELECT @a, @b", "2 77", "2 1");
    a.exec("SET @b = 1");
    a.exec("SET @a = (@b := @b + 1)");
    each_keeps(&mut a, &mut b, "SELECT @a, @b", "2 2", "2 1");
    let zone = b.get("SELECT @@time_zone");
    a.exec("SET time_zone = (SELECT @z := '+03:00')");
    each_keeps(&mut a, &mut b, "SELECT @a, @z, @@time_zone", "2 +03:00 +03:00", &format!("2 NULL {zone}"));
}

fn temporary_tables(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec_all(&["CREATE TEMPORARY TABLE tmp(i INT)", "INSERT INTO tmp VALUES(1)"]);
    assert_eq!(a.get("SELECT i FROM tmp"), "1");
    a.exec("DROP TEMPORARY TABLE tmp");
    assert_eq!(b.fails("SELECT i FROM tmp"), 1146);
    holds_until(world, &["CREATE TEMPORARY TABLE tmp(i INT)"], "INSERT INTO tmp VALUES(1)", &["DROP TABLE tmp"]);
    // The table of a session that ends is gone.
    a.exec("CREATE TEMPORARY TABLE tmp(i INT)");
    a.into_client().quit().unwrap();
    assert_eq!(b.fails("SELECT i FROM tmp"), 1146);
}

/// A decimal number keeps its own decimals.
fn computed_decimals(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec("SELECT 1.50, 2.5 + 1 INTO @c, @d");
    a.exec("SET @e = @d * 1.00, @w = CAST(6 AS DECIMAL(10)) * 1");
    let seen = a.row("SELECT @c, @d, @e, @w");
    assert!(seen.starts_with("1.50 3.5 "), "{seen}");
    for _ in 0..2 {
        b.disturb();
        assert_eq!(a.row("SELECT @c, @d, @e, @w"), seen);
    }
}

/// DROP does not always drop the temporary table.
fn temporary_tables_with_other_names(world: &World) {
    for leave in [
        &["CREATE TEMPORARY TABLE a1 AS SELECT 5 AS i", "ALTER TABLE a1 RENAME a2", "DROP TABLE IF EXISTS a1"][..],
        &["CREATE TEMPORARY TABLE a2 AS SELECT 5 AS i", "DROP TABLE IF EXISTS no_such_schema.a2"],
        &["CREATE TEMPORARY TABLE A2 AS SELECT 5 AS i", "DROP TEMPORARY TABLE IF EXISTS a2"],
        &["CREATE TEMPORARY TABLE a2 AS SELECT 5 AS i", "USE information_schema", "DROP TEMPORARY TABLE IF EXISTS a2"],
    ] {
        let mut a = world.connect();
        for sql in leave {
            // Some of these statements fail, because the schema does not exist.
            a.ask(sql);
        }
        a.exec(&format!("USE {}", world.schema));
        let name = if leave[0].contains("A2") { "A2" } else { "a2" };
        assert_eq!(a.get(&format!("SELECT i FROM {name}")), "5", "{leave:?}");
        if world.proxy.is_some() {
            drop(a);
            assert_eq!(world.connect().fails(&format!("SELECT i FROM {name}")), 1146, "{leave:?}");
        }
    }
    holds_until(world, &["CREATE TEMPORARY TABLE b1(i INT)"], "INSERT INTO b1 VALUES(1)", &[&format!("DROP TABLE {}.b1", world.schema)]);
}

/// In gbk the second character of this text ends in a backslash.
fn characters_that_end_in_a_backslash(world: &World) {
    let name = &world.schema;
    let lock = format!("SELECT '\u{4e2d}\\', GET_LOCK('{name}', 0)");
    holds_until(world, &["SET NAMES gbk", &lock], "DO 1", &[&format!("SELECT RELEASE_LOCK('{name}')")]);
    let mut a = world.connect();
    a.exec_all(&["SET NAMES gbk", "SELECT 5, '\u{4e2d}\\' INTO @y, @n", "SET NAMES utf8mb4"]);
    assert_eq!(a.get("SELECT @y"), "5");
    drop(a);
    assert_eq!(world.connect().get("SELECT @y"), "NULL");
}

/// MariaDB's sql_mode ORACLE: BEGIN begins a block.
fn oracle_blocks(world: &World) {
    if world.is_mysql() {
        return;
    }
    for block in ["BEGIN SET @x = 2; END", "DECLARE y INT; BEGIN SET @x = 2; END"] {
        let mut a = world.connect();
        a.exec_all(&["SET sql_mode = ORACLE", block]);
        assert_eq!(a.get("SELECT @x"), "2");
        drop(a);
        assert_eq!(world.connect().get("SELECT @x"), "NULL", "after {block}");
    }
}

/// MariaDB reads `[x]` as a name under MSSQL: a quote, comment or end inside it is none, and statements after it run.
fn names_in_brackets(world: &World) {
    if world.is_mysql() {
        return;
    }
    for text in ["SELECT 1 AS ['], @x := 2", "SELECT 1 AS [x]]`], @x := 2 -- `", "SELECT 1 AS [/*], @x := 2, 3 AS [*/]"] {
        let mut a = world.connect();
        a.exec_all(&["SET sql_mode = MSSQL", text]);
        assert_eq!(a.get("SELECT @x"), "2", "after {text}");
        drop(a);
        assert_eq!(world.connect().get("SELECT @x"), "NULL", "after {text}");
    }
    let lock = format!("{}_lock", world.schema);
    let mut a = world.connect();
    a.exec_all(&["SET sql_mode = MSSQL", &format!("SELECT 1 AS ['], GET_LOCK('{lock}', 0)")]);
    drop(a);
    let mut b = world.connect();
    let free = format!("SELECT IS_FREE_LOCK('{lock}')");
    wait::until("the lock to be free", LIMIT, || (b.get(&free) == "1").then_some(())).unwrap();
}

/// The statements of dump tools, and looks at tables, leave the connection free for other sessions.
///
/// A look at tables opens views, and definitions have parts that servers skip. With one connection, a session that kept it would block the
/// other.
fn dumps_and_looks_at_tables(world: &World) {
    let other = format!("{}_views", world.schema);
    let (mut a, mut b) = world.pair();
    a.exec_all(&[&format!("CREATE DATABASE {other}"), "CREATE TABLE t(i INT)"]);
    a.exec(&format!("CREATE VIEW {other}.v AS SELECT i FROM {}.t", world.schema));
    let definition = format!("CREATE DATABASE {other}2 /*!40100 DEFAULT CHARACTER SET utf8mb4 */ /*!80016 DEFAULT ENCRYPTION='N' */");
    let drop = format!("DROP DATABASE {other}2");
    let looks = [
        "SELECT COUNT(*) FROM information_schema.COLUMNS".to_owned(),
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_TYPE <> ''".to_owned(),
        format!("SHOW TABLE STATUS FROM {other}"),
        format!("SHOW FULL COLUMNS FROM {other}.v"),
        format!("DESCRIBE {other}.v"),
        "SHOW TABLE STATUS FROM mysql".to_owned(),
        definition,
        drop,
        "CREATE TABLE p(i INT, g POINT NOT NULL /*!80003 SRID 4326 */)".to_owned(),
        "CREATE TABLE n(i INT, j INT /*!80023 INVISIBLE */)".to_owned(),
        "/*!80000 SET SESSION information_schema_stats_expiry=0 */".to_owned(),
    ];
    for text in &looks {
        let refused = a.query(text).unwrap().err().map(|error| error.code);
        // This user has no rights there.
        assert!(refused.is_none() || refused == Some(1044) && text.ends_with("mysql"), "{text}: {refused:?}");
        b.exec("SELECT 1");
        a.exec("SELECT 1");
    }
    a.exec(&format!("DROP DATABASE {other}"));
}

/// MariaDB's ANALYZE of an INSERT runs it, and tells no insert id.
fn analyzed_inserts(world: &World) {
    if world.is_mysql() {
        return;
    }
    let (mut a, mut b) = world.pair();
    a.exec_all(&["CREATE TABLE t(i INT AUTO_INCREMENT PRIMARY KEY, j INT)", "ALTER TABLE t AUTO_INCREMENT = 70"]);
    for (analyze, id) in [("ANALYZE", "70"), ("ANALYZE FORMAT=JSON", "71")] {
        b.exec("SELECT LAST_INSERT_ID(5)");
        a.exec(&format!("{analyze} INSERT INTO t(j) VALUES(1)"));
        b.disturb();
        assert_eq!(b.get("SELECT LAST_INSERT_ID()"), "5");
        assert_eq!(a.get("SELECT LAST_INSERT_ID()"), id);
    }
}

fn named_locks(world: &World) {
    let name = &world.schema;
    holds_until(
        world,
        &[&format!("SELECT GET_LOCK('{name}', 0)")],
        &format!("SELECT IS_USED_LOCK('{name}')"),
        &[&format!("SELECT RELEASE_LOCK('{name}')")],
    );
    let mut c = world.connect();
    assert_eq!(c.get(&format!("SELECT IS_FREE_LOCK('{name}')")), "1");
    holds_until(world, &[&format!("DO GET_LOCK('{name}', 0), GET_LOCK('{name}2', 0)")], "DO 1", &["SELECT RELEASE_ALL_LOCKS()"]);
    c.exec_all(&["CREATE TABLE t(i INT)", "INSERT INTO t VALUES(1), (2), (3)"]);
    for keeps in [
        &format!("SELECT IF(0, RELEASE_LOCK('{name}'), 1)")[..],
        &format!("SELECT RELEASE_LOCK('{name}') FROM t WHERE 0"),
        "EXPLAIN SELECT RELEASE_ALL_LOCKS()",
        &format!("CREATE OR REPLACE VIEW v AS SELECT RELEASE_LOCK('{name}')"),
    ] {
        holds_until(world, &[&format!("SELECT GET_LOCK('{name}', 0)")], keeps, &["SELECT RELEASE_ALL_LOCKS()"]);
    }
    let often = format!("SELECT GET_LOCK('{name}', 0) FROM t");
    holds_until(world, &[&often, &format!("DO RELEASE_LOCK('{name}')")], "DO 1", &["SELECT RELEASE_ALL_LOCKS()"]);
    // MySQL then runs nothing of a DO either.
    for limited in ["SELECT", "DO"] {
        let release = format!("{limited} RELEASE_LOCK('{name}')");
        let end = ["SET sql_select_limit = DEFAULT", "DO RELEASE_ALL_LOCKS()"];
        holds_until(world, &[&format!("DO GET_LOCK('{name}', 0)"), "SET sql_select_limit = 0"], &release, &end);
    }
}

fn locked_tables(world: &World) {
    world.connect().exec("CREATE TABLE t(i INT)");
    holds_until(world, &["LOCK TABLES t WRITE"], "INSERT INTO t VALUES(1)", &["UNLOCK TABLES"]);
    world.connect().exec("INSERT INTO t VALUES(1)");
}

fn handlers(world: &World) {
    if world.encoding != Encoding::Text {
        return;
    }
    world.connect().exec("CREATE TABLE t(i INT)");
    holds_until(world, &["/* READ */ HANDLER t OPEN"], "/* CLOSE */ HANDLER t READ FIRST", &["HANDLER t CLOSE"]);
    let qualified = format!("HANDLER {}.t OPEN AS close", world.schema);
    holds_until(world, &[&qualified], "HANDLER close READ FIRST", &["/* OPEN */ HANDLER close CLOSE"]);
}

fn transactions(world: &World) {
    world.connect().exec("CREATE TABLE t(i INT)");
    for (begin, end) in [("BEGIN", "COMMIT"), ("START TRANSACTION", "ROLLBACK"), ("SET autocommit = 0", "SET autocommit = 1")] {
        holds_until(world, &[begin, "INSERT INTO t VALUES(1)"], "SELECT COUNT(*) FROM t", &[end]);
    }
    // An implicit commit ends it too.
    holds_until(world, &["BEGIN", "INSERT INTO t VALUES(1)"], "SELECT COUNT(*) FROM t", &["CREATE TABLE u(i INT)"]);
    assert_eq!(world.connect().get("SELECT COUNT(*) FROM t"), "3");
}

fn no_open_transaction(world: &World) {
    let mut root = world.server.root().unwrap();
    wait::until_transactions("the transaction to end", LIMIT, || {
        let count = root.scalar(format!(
            "SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id \
             WHERE p.db = '{}'",
            world.schema
        ));
        (count.unwrap().as_deref() == Some("0")).then_some(())
    })
    .unwrap();
}

fn transaction_of_a_lost_client(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec("CREATE TABLE t(i INT PRIMARY KEY, n INT)");
    a.exec("INSERT INTO t VALUES(1, 0)");
    a.exec_all(&["BEGIN", "UPDATE t SET n = 1 WHERE i = 1"]);
    a.cut();
    // Its lock is gone and its change undone.
    wait::until("the row to be free", LIMIT, || b.ask("UPDATE t SET n = n + 10 WHERE i = 1").err().is_none().then_some(())).unwrap();
    assert_eq!(b.get("SELECT n FROM t"), "10");
    no_open_transaction(world);
    let mut c = world.connect();
    c.exec_all(&["BEGIN", "UPDATE t SET n = 5 WHERE i = 1"]);
    c.into_client().quit().unwrap();
    assert_eq!(b.get("SELECT n FROM t"), "10");
    let status = b.exec("DO 1").status().unwrap().status;
    assert!(!status.contains(wire::StatusFlags::IN_TRANS));
}

/// With `innodb_snapshot_isolation` (on since MariaDB 11.6) a change of a row that changed after the snapshot ends the transaction.
///
/// The backend is free then, though the error does not tell so.
fn transaction_that_a_conflict_ends(world: &World) {
    let is_on = "SELECT VARIABLE_VALUE FROM information_schema.global_variables WHERE VARIABLE_NAME = 'innodb_snapshot_isolation'";
    if world.server.scalar(is_on).ok().flatten().as_deref() != Some("ON") {
        return;
    }
    let (mut a, mut b) = world.pair();
    a.exec_all(&["CREATE TABLE t (i INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 0)", "BEGIN"]);
    assert_eq!(a.get("SELECT n FROM t"), "0");
    world.server.sql(&format!("UPDATE {}.t SET n = 5", world.schema)).unwrap();
    assert_eq!(a.fails("UPDATE t SET n = n + 1 WHERE i = 1"), 1020);
    assert_eq!(b.get("SELECT n FROM t"), "5");
    assert_eq!(a.get("SELECT @@in_transaction"), "0");
}

/// MariaDB sets timeouts for such a statement alone, and reports them as changes: they pin no backend, and reach no other session.
fn reads_that_do_not_wait_for_locks(world: &World) {
    let (mut a, mut b) = world.pair();
    a.exec_all(&["CREATE TABLE t(i INT PRIMARY KEY)", "INSERT INTO t VALUES(1), (2)", "SET lock_wait_timeout = 7"]);
    let timeouts = "SELECT @@lock_wait_timeout, @@innodb_lock_wait_timeout";
    let theirs = b.row(timeouts);
    let own = format!("7 {}", theirs.split_once(' ').unwrap().1);
    let ends: &[&str] = if world.is_mysql() {
        &["FOR UPDATE NOWAIT", "FOR SHARE NOWAIT", "FOR UPDATE SKIP LOCKED"]
    } else {
        &["FOR UPDATE NOWAIT", "FOR UPDATE WAIT 3", "LOCK IN SHARE MODE NOWAIT", "LOCK IN SHARE MODE WAIT 3 /* x */;"]
    };
    for end in ends {
        for _ in 0..2 {
            a.exec(&format!("SELECT i FROM t WHERE i = 1 {end}"));
            each_keeps(&mut a, &mut b, timeouts, &own, &theirs);
        }
        a.exec_all(&["BEGIN", &format!("SELECT i FROM t WHERE i = 1 {end}"), "COMMIT"]);
        each_keeps(&mut a, &mut b, timeouts, &own, &theirs);
    }
    if !world.is_mysql() {
        a.exec("ALTER TABLE t NOWAIT COMMENT 'changed'");
        each_keeps(&mut a, &mut b, timeouts, &own, &theirs);
    }
}

fn locks_of_a_lost_client(world: &World) {
    let (mut a, mut b) = world.pair();
    let name = &world.schema;
    a.exec(&format!("DO GET_LOCK('{name}', 0)"));
    a.exec("SET @left = 'behind'");
    a.exec("CREATE TEMPORARY TABLE tmp(i INT)");
    a.cut();
    let free = format!("SELECT IS_FREE_LOCK('{name}')");
    wait::until("the lock to be free", LIMIT, || (b.get(&free) == "1").then_some(())).unwrap();
    assert_eq!(b.get("SELECT @left"), "NULL");
    assert_eq!(b.fails("SELECT * FROM tmp"), 1146);
}

fn prepared_statements(world: &World) {
    let (mut a, mut b) = world.pair();
    let mine = a.prepare("SELECT 'a', ? AS x").unwrap();
    let theirs = b.prepare("SELECT 'b', ? AS x, 2 AS y").unwrap();
    for i in 0..3 {
        let row = |reply: lab::client::Reply| reply.table().unwrap()[0].iter().flatten().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(row(a.execute(&mine, &[Param::Int(i)]).unwrap()), format!("a {i}"));
        assert_eq!(row(b.execute(&theirs, &[Param::Int(i)]).unwrap()), format!("b {i} 2"));
    }
    a.close_statement(&mine).unwrap();
    assert_eq!(a.execute(&mine, &[Param::Int(1)]).unwrap().err().unwrap().code, 1243);
    assert!(b.execute(&theirs, &[Param::Int(1)]).unwrap().err().is_none());
    // The state of the session counts at execution, not that of the session that prepared the same text.
    let other = format!("{}_p", world.schema);
    a.exec_all(&[&format!("CREATE DATABASE {other}"), "CREATE TABLE t(i INT)", "INSERT INTO t VALUES(1)"]);
    b.exec(&format!("USE {other}"));
    b.exec_all(&["CREATE TABLE t(i INT, j INT)", "INSERT INTO t VALUES(2, 3)"]);
    let (first, second) = (a.prepare("SELECT * FROM t").unwrap(), b.prepare("SELECT * FROM t").unwrap());
    assert_eq!((first.columns.len(), second.columns.len()), (1, 2));
    for _ in 0..2 {
        assert_eq!(a.execute(&first, &[]).unwrap().scalar().unwrap().as_deref(), Some("1"));
        assert_eq!(b.execute(&second, &[]).unwrap().scalar().unwrap().as_deref(), Some("2"));
    }
    b.exec(&format!("DROP DATABASE {other}"));
}

fn text_prepared_statements(world: &World) {
    if world.encoding == Encoding::Binary {
        return; // PREPARE cannot be prepared
    }
    let mut b = world.connect();
    holds_until(world, &["PREPARE p FROM 'SELECT 5'"], "EXECUTE p", &["DEALLOCATE PREPARE p"]);
    assert_eq!(b.fails("EXECUTE p"), 1243);
}

const CHANGED: &[&str] = &[
    "SET time_zone = '+07:00'",
    "SET NAMES latin1",
    "SET @v = 1",
    "SET autocommit = 0",
    "SET sql_mode = ''",
    "CREATE TEMPORARY TABLE tmp(i INT)",
];
const SHOWN: &str = "SELECT @@time_zone, @@character_set_client, @v, @@autocommit, LAST_INSERT_ID(), DATABASE()";

fn reset_connection(world: &World) {
    let (mut a, mut b) = world.pair();
    let fresh = b.row(SHOWN);
    a.exec_all(CHANGED);
    a.reset_connection().unwrap().ok().unwrap();
    assert_eq!(a.row(SHOWN), fresh);
    assert_eq!(a.fails("SELECT * FROM tmp"), 1146);
    assert_eq!(b.row(SHOWN), fresh);
}

/// `interactive_timeout` applies to a client with CLIENT_INTERACTIVE, whichever session used the connection before.
fn wait_timeout_of_an_interactive_client(world: &World) {
    let options = world.options().with(Capabilities::INTERACTIVE);
    world.server.sql("SET GLOBAL interactive_timeout = 4321").unwrap();
    let mut first = world.connect_with(&options);
    first.exec("CREATE TEMPORARY TABLE tmp(n INT)");
    assert_eq!(first.get("SELECT @@wait_timeout"), "4321");
    drop(first);
    let mut second = world.connect_with(&options);
    assert_eq!(second.get("SELECT @@wait_timeout"), "4321");
    assert_eq!(second.fails("SELECT * FROM tmp"), 1146);
    assert_ne!(world.connect().get("SELECT @@wait_timeout"), "4321");
}

fn change_user(world: &World) {
    let (mut a, mut b) = world.pair();
    let fresh = b.row(SHOWN);
    a.exec_all(CHANGED);
    let statement = a.prepare("SELECT 1").unwrap();
    a.change_user(&world.options()).unwrap();
    assert_eq!(a.row(SHOWN), fresh);
    assert_eq!(a.fails("SELECT * FROM tmp"), 1146);
    assert_eq!(a.execute(&statement, &[]).unwrap().err().unwrap().code, 1243);
    assert_eq!(b.row(SHOWN), fresh);
    let wrong = world.options_for("app", "wrong");
    assert_eq!(a.change_user(&wrong).unwrap_err().code(), Some(1045));
}

/// Many sessions at a time, each with values of its own.
fn rows_stay_with_their_session(world: &World) {
    thread::scope(|scope| {
        for n in 0..8 {
            let mut peer = world.connect();
            scope.spawn(move || {
                peer.exec(&format!("SET @me = {n}"));
                peer.exec(&format!("SET SESSION group_concat_max_len = {}", 1000 + n));
                for i in 0..40 {
                    let row = peer.row(&format!("SELECT {n}, {i}, @me, @@group_concat_max_len"));
                    assert_eq!(row, format!("{n} {i} {n} {}", 1000 + n));
                }
            });
        }
    });
}

fn waiting_ends_with_an_error(world: &World) {
    let flavor = world.flavor();
    if world.proxy.is_none() || world.encoding == Encoding::Binary {
        return;
    }
    let world = World::proxied(flavor, 1, |builder| builder.variable("connect_timeout_server_max", 200));
    let (mut a, mut b) = world.pair();
    a.exec("BEGIN");
    a.exec("SELECT 1");
    assert_eq!(b.fails("SELECT 1"), 9001);
    a.exec("COMMIT");
    b.exec("SELECT 1");
}
