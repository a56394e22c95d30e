//! Values of session variables that a server does not take back as it tells them, that depend on other variables, or that two
//! names show.

use std::thread;

use super::common::{Peer, World};
use lab::client::{Encoding, Param};
use wire::Capabilities;

/// The backend changes hands, and is reset for that.
fn move_on(other: &mut Peer) {
    other.exec("SET @other = 1");
    assert_eq!(other.get("SELECT @other"), "1");
}

pub(super) fn values_that_are_none(world: &World) {
    let (mut a, mut b) = world.pair();
    let own: &[&str] = if world.is_mysql() { &["external_table_storage_engine"] } else { &["default_tmp_storage_engine"] };
    for name in ["innodb_tmpdir", "innodb_ft_user_stopword_table"].iter().chain(own) {
        // NULL needs a privilege there, its default does not.
        let nones: &[&str] = if *name == "innodb_tmpdir" { &["DEFAULT"] } else { &["DEFAULT", "NULL"] };
        for none in nones {
            for target in [(*name).to_owned(), format!("@@{name}")] {
                a.exec(&format!("SET {target} = {none}"));
                for _ in 0..2 {
                    move_on(&mut b);
                    assert_eq!(a.get(&format!("SELECT @@{name}")), "NULL", "{target} = {none}");
                }
            }
        }
    }
    a.exec("SET default_tmp_storage_engine = 'MyISAM'");
    move_on(&mut b);
    assert_eq!(a.get("SELECT @@default_tmp_storage_engine"), "MyISAM");
    if !world.is_mysql() {
        a.exec("SET default_master_connection = '123'");
        move_on(&mut b);
        assert_eq!(a.get("SELECT @@default_master_connection"), "123");
    }
}

/// One session sets a variable by one of its two names, the other session by the other: each keeps its own value.
pub(super) fn variables_with_two_names(world: &World) {
    let mariadb = [
        ("default_storage_engine", "storage_engine", ["'MyISAM'", "'MEMORY'"]),
        ("long_query_time", "log_slow_query_time", ["5", "9"]),
        ("tmp_table_size", "tmp_memory_table_size", ["196608", "294912"]),
        ("min_examined_row_limit", "log_slow_min_examined_row_limit", ["5", "9"]),
        ("alter_algorithm", "old_alter_table", ["'COPY'", "'INPLACE'"]),
    ];
    // Late MariaDB has one name only.
    let has = |name: &str| world.server.scalar(&format!("SELECT @@global.{name}")).is_ok();
    for (one, other, values) in mariadb.iter().filter(|(one, other, _)| !world.is_mysql() && has(one) && has(other)) {
        let (mut a, mut b) = world.pair();
        let has = |peer: &mut Peer, name: &str, value: &str| {
            let seen = peer.row(&format!("SELECT @@{name} = {value}, @@{name}"));
            assert!(seen.starts_with("1 "), "{name} is {seen}, not {value}");
        };
        for (first, second) in [(one, other), (other, one)] {
            a.exec(&format!("SET {first} = {}", values[0]));
            b.exec(&format!("SET {second} = {}", values[1]));
            for name in [first, second, first] {
                has(&mut b, name, values[1]);
                has(&mut a, name, values[0]);
            }
            // The last word counts, whatever the name.
            a.exec_all(&[&format!("SET {second} = {}", values[1]), &format!("SET {first} = {}", values[0])]);
            move_on(&mut b);
            has(&mut a, second, values[0]);
            a.exec(&format!("SET {second} = {}", values[1]));
            move_on(&mut b);
            has(&mut a, first, values[1]);
            b.exec(&format!("SET {first} = DEFAULT"));
            has(&mut b, second, &format!("@@global.{second}"));
        }
    }
}

/// Variables whose assignment changes further variables, in every order: the values are those of a private connection.
pub(super) fn variables_that_change_others(world: &World) {
    let has = |name: &&&str| world.server.scalar(&format!("SELECT @@session.{name}")).is_ok();
    let families: &[(&[&str], &[&str])] = &[
        (
            &["max_join_size", "sql_big_selects"],
            &["SET max_join_size=1000", "SET sql_big_selects=1", "SET @@max_join_size=DEFAULT", "SET sql_big_selects=0"],
        ),
        (
            &["log_slow_filter", "log_queries_not_using_indexes"],
            &["SET log_slow_filter='full_join'", "SET log_queries_not_using_indexes=1", "SET @@log_queries_not_using_indexes=0"],
        ),
        (
            &["log_slow_disabled_statements", "log_slow_admin_statements", "log_slow_slave_statements"],
            &["SET log_slow_slave_statements=0", "SET @@log_slow_admin_statements=0", "SET log_slow_disabled_statements='admin'"],
        ),
        (&["old_mode", "old"], &["SET old=1", "SET old_mode='NO_PROGRESS_INFO'", "SET old=0"]),
        (&["wsrep_sync_wait", "wsrep_causal_reads"], &["SET wsrep_causal_reads=1", "SET wsrep_sync_wait=6", "SET wsrep_causal_reads=0"]),
        (&["max_insert_delayed_threads", "max_delayed_threads"], &["SET max_insert_delayed_threads=0", "SET max_delayed_threads=20"]),
    ];
    let direct = World::direct(world.flavor());
    for (names, settings) in families {
        let names: Vec<_> = names.iter().filter(|name| has(name)).collect();
        let settings: Vec<_> = settings.iter().filter(|sql| names.iter().any(|name| sql.contains(&format!("{name}=")))).collect();
        let values = names.iter().map(|name| format!("@@{name}")).collect::<Vec<_>>().join(", ");
        if names.is_empty() {
            continue;
        }
        let values = format!("SELECT {values}");
        for first in &settings {
            let (mut own, mut between) = (direct.connect(), world.connect());
            let fresh = own.row(&values);
            let mut peer = world.connect();
            own.exec(first);
            peer.exec(first);
            for second in &settings {
                own.exec(second);
                peer.exec(second);
                assert_eq!(between.row(&values), fresh, "others, after {first}; {second}");
                assert_eq!(peer.row(&values), own.row(&values), "{first}; {second}");
                between.exec(first);
                assert_eq!(peer.row(&values), own.row(&values), "{first}; {second}; another's {first}");
                between.reset_connection().unwrap();
            }
        }
    }
}

/// Parameters of prepared statements, and results, have a collation that no variable shows.
///
/// It comes from a login, from SET NAMES, or from a variable that was assigned alone.
pub(super) fn collations_that_no_variable_shows(world: &World) {
    let uca1400: &[&[&str]] = match world.server.scalar("SHOW COLLATION LIKE 'uca1400_ai_ci'").unwrap() {
        None => &[],
        Some(_) => &[&["SET NAMES utf8mb4 COLLATE utf8mb4_uca1400_as_cs"], &["SET NAMES utf8mb4 COLLATE uca1400_ai_ci"]],
    };
    let ways: &[&[&str]] = &[
        &[],
        &["SET NAMES utf8mb4"],
        &["SET NAMES utf8mb4 COLLATE utf8mb4_bin"],
        &["SET NAMES utf8mb4 COLLATE utf8mb4_unicode_ci", "SET character_set_client = utf8mb4"],
        &["SET NAMES utf8mb4 COLLATE utf8mb4_bin", "SET @@character_set_results = utf8mb4"],
        &["SET NAMES utf8mb4, collation_connection = utf8mb4_unicode_ci"],
        &["SET CHARACTER SET utf8mb4"],
        &["SET character_set_client = utf8mb4, character_set_results = NULL"],
        &["SET NAMES DEFAULT"],
    ];
    let direct = World::direct(world.flavor());
    let other = world.options_for("app", "app-pass").charset(8);
    // 255 is of MySQL and of late MariaDB.
    for charset in [45, 46, 224, 255] {
        for way in ways.iter().chain(uca1400) {
            let [mut own, mut peer] =
                [&direct, world].map(|world| world.connect_with(&world.options_for("app", "app-pass").charset(charset)));
            let mut between = world.connect_with(&other);
            own.exec_all(way);
            // Twice, because the second time the proxy may know the effect of the statements.
            for _ in 0..2 {
                peer.exec_all(way);
                between.exec("SET NAMES latin1");
                for (sql, values) in [
                    ("SELECT COLLATION(?)", &["a"][..]),
                    ("SELECT ? = 'é'", &["É"]),
                    ("SELECT ? IN ('é', ?)", &["É", "o"]),
                    ("SELECT COUNT(DISTINCT s) FROM (SELECT ? s UNION ALL SELECT ?) t", &["é", "É"]),
                    ("SELECT 'a' = 'a '", &[]),
                ] {
                    let asked = |peer: &mut Peer| {
                        let statement = peer.prepare(sql).unwrap();
                        let values: Vec<Param> = values.iter().map(|value| Param::Text((*value).to_owned())).collect();
                        let reply = peer.execute(&statement, &values).unwrap();
                        peer.close_statement(&statement).unwrap();
                        let collation = reply.rows().ok().map(|rows| rows.columns[0].charset);
                        (reply.err().map(|error| error.code), reply.table().ok(), collation)
                    };
                    assert_eq!(asked(&mut peer), asked(&mut own), "{sql} after login with {charset} and {way:?}");
                }
            }
        }
    }
}

/// A character set brings its collation, and a collation its character set.
pub(super) fn character_sets_of_servers_and_schemas(world: &World) {
    for of in ["server", "database"] {
        let (mut a, mut b) = world.pair();
        let both = format!("SELECT @@character_set_{of}, @@collation_{of}");
        let default = b.row(&both);
        a.exec(&format!("SET collation_{of} = utf8mb4_bin"));
        b.exec(&format!("SET character_set_{of} = cp1250"));
        for _ in 0..3 {
            assert_eq!(a.row(&both), "utf8mb4 utf8mb4_bin");
            assert_eq!(b.row(&both), "cp1250 cp1250_general_ci");
        }
        a.exec(&format!("SET collation_{of} = latin1_bin"));
        for _ in 0..2 {
            // The second is known.
            a.exec(&format!("SET character_set_{of} = latin1"));
            move_on(&mut b);
            assert_eq!(a.row(&both), "latin1 latin1_swedish_ci");
            a.exec(&format!("SET collation_{of} = utf8mb4_bin"));
            b.disturb();
            assert_eq!(a.row(&both), "utf8mb4 utf8mb4_bin");
        }
        for _ in 0..2 {
            a.exec(&format!("SET character_set_{of} = latin1, collation_{of} = utf8mb4_bin"));
            move_on(&mut b);
            assert_eq!(a.row(&both), "utf8mb4 utf8mb4_bin");
            a.exec(&format!("SET collation_{of} = utf8mb4_bin, character_set_{of} = latin1"));
            move_on(&mut b);
            assert_eq!(a.row(&both), "latin1 latin1_swedish_ci");
        }
        let mut c = world.connect();
        assert_eq!(c.row(&both), default);
    }
}

/// Only the flags that it names change, whatever another session had when it said the same.
pub(super) fn flags_of_a_switch(world: &World) {
    // One of them is served by the same worker.
    let (mut a, mut others) = (world.connect(), [world.connect(), world.connect()]);
    let shown = "SELECT @@optimizer_switch LIKE '%index_merge=off%', @@optimizer_switch LIKE '%mrr=on%'";
    for b in &mut others {
        b.exec("SET optimizer_switch = 'mrr=on'");
        b.disturb();
        a.exec("SET optimizer_switch = 'default'");
        a.exec("SET optimizer_switch = 'index_merge=off'");
        b.disturb();
        a.exec("SET optimizer_switch = 'mrr=on'");
        b.disturb();
        assert_eq!(a.row(shown), "1 1");
        b.disturb();
    }
    for b in others.iter_mut().filter(|_| world.is_mysql()) {
        b.exec("SET optimizer_trace = 'enabled=on'");
        b.disturb();
        a.exec("SET optimizer_trace = 'enabled=off,one_line=on'");
        b.disturb();
        a.exec("SET optimizer_trace = 'enabled=on'");
        b.disturb();
        assert_eq!(a.get("SELECT @@optimizer_trace"), "enabled=on,one_line=on");
        assert_eq!(b.get("SELECT @@optimizer_trace"), "enabled=on,one_line=off");
    }
}

/// On MariaDB `old_mode` says what utf8 is.
pub(super) fn utf8_under_another_old_mode(world: &World) {
    if world.is_mysql() {
        return;
    }
    let (mut a, mut others) = (world.connect(), [world.connect(), world.connect()]);
    for b in &mut others {
        a.exec("SET NAMES utf8");
        a.disturb();
        b.exec("SET old_mode = ''");
        a.disturb();
        b.exec("SET NAMES utf8");
        a.disturb();
        assert_eq!(b.get("SELECT @@character_set_client"), "utf8mb4");
        assert_eq!(a.get("SELECT @@character_set_client"), "utf8mb3");
    }
}

/// A prepared statement keeps the `old_mode` of its PREPARE, also after another session prepares the same text.
pub(super) fn statements_prepared_under_another_old_mode(world: &World) {
    if world.is_mysql() {
        return;
    }
    let (mut a, mut b) = world.pair();
    let text = "SELECT HEX(CONVERT(_utf8mb4 0xF09F9880 USING utf8))";
    let of_a = a.prepare(text).unwrap();
    let run = |peer: &mut Peer, statement| peer.execute(statement, &[]).unwrap().scalar().unwrap().unwrap();
    assert_eq!(run(&mut a, &of_a), "3F");
    b.exec("SET old_mode = ''");
    let of_b = b.prepare(text).unwrap();
    for _ in 0..2 {
        assert_eq!(run(&mut b, &of_b), "F09F9880");
        assert_eq!(run(&mut a, &of_a), "3F");
    }
    a.exec("SET old_mode = ''");
    b.disturb();
    assert_eq!(run(&mut a, &of_a), "3F");
}

/// MariaDB reads the time by the session's time zone of then.
pub(super) fn rows_as_of_a_time(world: &World) {
    if world.is_mysql() {
        return;
    }
    let (mut a, mut b) = world.pair();
    let shown = "SELECT @@system_versioning_asof";
    for target in ["system_versioning_asof", "@@system_versioning_asof"] {
        a.exec(&format!("SET {target} = DEFAULT"));
        move_on(&mut b);
        assert_eq!(a.get(shown), "DEFAULT");
    }
    a.exec_all(&["SET time_zone = '+05:00'", "SET system_versioning_asof = '2020-09-13 18:00:00'", "SET time_zone = '+00:00'"]);
    let seen = a.get(shown);
    a.exec("SET system_versioning_asof = DEFAULT");
    assert_eq!(seen, "2020-09-13 13:00:00.000000");
    assert_eq!(a.get(shown), "DEFAULT");
    a.reset_connection().unwrap().ok().unwrap();
    b.disturb();
    a.exec("SET system_versioning_asof = DEFAULT");
    move_on(&mut b);
    assert_eq!(a.get(shown), "DEFAULT");
}

/// MySQL has one variable where names differ by an accent only.
pub(super) fn user_variables_with_accents(world: &World) {
    let (mut a, mut b) = world.pair();
    let names = "SELECT @é, @É, @e";
    a.exec("SET @e = 3");
    move_on(&mut b);
    a.exec("SET @é = 2");
    let asking = thread::spawn(move || {
        move_on(&mut b);
        b
    });
    for value in 4..10 {
        a.exec(&format!("SET @e = {value}"));
        assert_eq!(a.row(names), if world.is_mysql() { format!("{value} {value} {value}") } else { format!("2 2 {value}") });
    }
    a.exec("SET @É = 1");
    assert_eq!(a.row(names), if world.is_mysql() { "1 1 1" } else { "1 1 9" });
    a.exec("SELECT 8 INTO @e");
    assert_eq!(a.row(names), if world.is_mysql() { "8 8 8" } else { "1 1 8" });
    a.reset_connection().unwrap().ok().unwrap();
    let mut b = asking.join().unwrap();
    assert_eq!(a.row(names), "NULL NULL NULL");
    assert_eq!(b.row(names), "NULL NULL NULL");
}

/// A text with introducers is read again on another connection, and under another session's settings.
pub(super) fn texts_with_introducers(world: &World) {
    let multi = world.options().with(Capabilities::MULTI_STATEMENTS);
    let (mut a, mut b) = (world.connect_with(&multi), world.connect_with(&multi));
    a.exec("CREATE TABLE victim (i INT)");
    for mode in ["", "NO_BACKSLASH_ESCAPES"] {
        b.exec(&format!("SET sql_mode='{mode}'"));
        let own = if mode.is_empty() { "NO_BACKSLASH_ESCAPES" } else { "" };
        a.exec(&format!("SET sql_mode='{own}'"));
        let texts = match own {
            "" => [
                r"_utf8mb4'\'; drop table victim -- '",
                r"_latin1'a\nb'",
                r"N'a\nb'",
                r"_binary'a\'b'",
                r#"_utf8mb4"\"c\"""#,
                r"N'\', @b=1 -- '",
            ],
            _ => [r"_utf8mb4'C:\'", r"_latin1'a\nb'", r"N'a\nb'", r"_binary'\'", r#"_utf8mb4"\""#, r"_latin1'a''\'"],
        };
        for text in texts {
            let said = a.get(&format!("SELECT HEX({text})"));
            a.exec(&format!("SET @b = NULL, @name = {text}"));
            for _ in 0..2 {
                b.exec("SELECT 1");
                assert_eq!(a.row("SELECT HEX(@name), @b"), format!("{said} NULL"), "{text} under '{own}'");
            }
            a.reset_connection().unwrap().check().unwrap();
            a.exec(&format!("SET sql_mode='{own}'"));
        }
    }
    assert_eq!(a.get("SELECT COUNT(*) FROM victim"), "0");
}

/// Settings that took effect before a SET failed stay in their session only.
pub(super) fn a_set_that_fails_in_the_midst(world: &World) {
    let fails = if world.is_mysql() { "gtid_next = 'nope'" } else { "default_master_connection = 'nobody', max_relay_log_size = 4096" };
    let sets = [
        format!("SET sql_mode = 'ANSI', @left = 77, {fails}"),
        format!("SET autocommit = 0, {fails}"),
        format!("SET time_zone = '+05:00', {fails}"),
        "SET @left = (@left := 77), @more = (SELECT 1 UNION SELECT 2)".to_owned(),
        "SET sql_mode = (@left := 'bogus')".to_owned(),
    ];
    const STATE: &str = "SELECT @@sql_mode, @@autocommit, @@time_zone, @left";
    let fresh = world.connect().row(STATE);
    for set in sets {
        let mut a = world.connect();
        assert!(a.ask(&set).err().is_some(), "{set}");
        let own = a.row(STATE);
        let mut b = world.connect();
        let waits = thread::spawn(move || {
            let state = b.row(STATE);
            (b, state)
        });
        assert_eq!(a.row(STATE), own, "{set}");
        drop(a);
        let (mut b, state) = waits.join().unwrap();
        assert_eq!(state, fresh, "{set}");
        assert_eq!(b.row(STATE), fresh, "{set}");
    }
}

/// With autocommit off a SAVEPOINT may begin a transaction without a status flag.
///
/// A SET ends that transaction only if it switches autocommit on.
pub(super) fn a_set_keeps_a_savepoint(world: &World) {
    world.server.sql(&format!("CREATE TABLE {}.s (i INT)", world.schema)).unwrap();
    for (n, set) in ["SET @a = 1", "SET NAMES latin1", "SET sql_mode = 'ANSI'", "SET @a = (SELECT 5)"].into_iter().enumerate() {
        let (mut a, mut b) = (world.connect(), world.connect());
        a.exec_all(&["SET autocommit = 0", "SAVEPOINT first", set]);
        let waits = thread::spawn(move || b.get("SELECT COUNT(*) FROM s"));
        a.exec_all(&["INSERT INTO s VALUES (1)", "ROLLBACK TO first", "INSERT INTO s VALUES (2)", "COMMIT"]);
        assert_eq!(a.get("SELECT COUNT(*) FROM s WHERE i = 1"), "0", "{set}");
        a.exec_all(&["SAVEPOINT second", "SET autocommit = 1"]);
        let seen = waits.join().unwrap();
        assert!(world.proxy.is_none() || seen == (n + 1).to_string(), "{set}");
        assert_eq!(world.connect().get("SELECT COUNT(*) FROM s"), (n + 1).to_string(), "the connection is free");
    }
}

/// No status tells that a SET has read tables when it has switched autocommit off (MariaDB).
pub(super) fn what_a_set_has_read_is_not_locked(world: &World) {
    if world.is_mysql() {
        return;
    }
    let mut root = world.server.root().unwrap();
    root.run(format!("CREATE TABLE {}.r (i INT)", world.schema)).unwrap();
    root.run("SET lock_wait_timeout=5").unwrap();
    let mut a = world.connect();
    a.exec("SET @a = (SELECT MAX(i) FROM r), autocommit = 0");
    drop(a);
    let alter = format!("ALTER TABLE {}.r COMMENT = 'free'", world.schema);
    lab::wait::until("the table to be free", super::common::LIMIT, || root.run(&alter).ok()).unwrap();
}

/// Variables that the role of one session may set are refused to a session without that role.
pub(super) fn what_a_role_may_set(world: &World) {
    if world.is_mysql() {
        // The lab's user may by itself.
        return;
    }
    let role = format!("may_{}", world.schema);
    for sql in [format!("CREATE ROLE {role}"), format!("GRANT BINLOG ADMIN ON *.* TO {role}"), format!("GRANT {role} TO app")] {
        world.server.sql(&sql).unwrap();
    }
    // On each worker.
    let mut others: Vec<Peer> = (0..4).map(|_| world.connect()).collect();
    let mut a = world.connect();
    a.exec(&format!("SET ROLE {role}"));
    for _ in 0..2 {
        a.exec("SET sql_log_bin = 0");
    }
    drop(a);
    for b in &mut others {
        assert_eq!(b.fails("SET sql_log_bin = 0"), 1227);
        assert_eq!(b.get("SELECT 1"), "1");
    }
    world.server.sql(&format!("DROP ROLE {role}")).unwrap();
}

/// A statement that the server cannot read keeps no connection, though it looks like a call.
pub(super) fn what_is_no_statement_keeps_nothing(world: &World) {
    let (mut a, mut b) = world.pair();
    for _ in 0..2 {
        // A blank before the bracket: no function to MySQL either, unless one has it so.
        assert!([1064, 1630].contains(&a.fails("SELECT COUNT (*) FROM nothing")));
        assert_eq!(b.get("SELECT 1"), "1");
    }
}

/// A SET that failed keeps no connection: what of it is in force is known.
pub(super) fn what_a_failed_set_leaves(world: &World) {
    let (mut a, mut b) = world.pair();
    let group = b.get("SELECT @@group_concat_max_len");
    let refused = [
        ("SET unique_checks = 0, sql_mode = 'nonsense'", 1231),
        ("SET sql_mode = 'nonsense', group_concat_max_len = 50", 1231),
        ("SET sql_mode = CONCAT('non', 'sense'), @@session.unique_checks = 0", 1231),
        ("SET NAMES latin1, sql_mode = 'nonsense'", 1231),
        ("SET unique_checks = 0, max_connections = 5", 1229),
        ("SET @a = 5, sql_mode = 'nonsense'", 1231),
        ("SET @a = 1 + 1, @b = 'x', unique_checks = 0, sql_mode = 'nonsense'", 1231),
    ];
    a.exec("SET @a = 4");
    for (sql, code) in refused {
        assert_eq!(a.fails(sql), code, "{sql}");
        if !(world.is_mysql() && world.encoding == Encoding::Binary) {
            // MySQL does not prepare it.
            assert_eq!(a.row("SHOW WARNINGS").split(' ').nth(1), Some(code.to_string().as_str()), "{sql}");
        }
        move_on(&mut b);
        assert_eq!(a.row("SELECT @@unique_checks, @@group_concat_max_len, @a, @b"), format!("1 {group} 4 NULL"), "{sql}");
        assert_eq!(a.get("SELECT @@character_set_client"), "utf8mb4", "{sql}");
        assert_eq!(b.row("SELECT @@unique_checks, @@group_concat_max_len, @a"), format!("1 {group} NULL"), "{sql}");
    }
    // Values that the session has set before stay.
    a.exec("SET group_concat_max_len = 77, sql_mode = 'ANSI_QUOTES'");
    assert_eq!(a.fails("SET group_concat_max_len = 88, sql_mode = 'nonsense'"), 1231);
    move_on(&mut b);
    assert_eq!(a.row("SELECT @@group_concat_max_len, @@sql_mode"), "77 ANSI_QUOTES");
    assert_eq!(b.get("SELECT @@group_concat_max_len"), group);
}
