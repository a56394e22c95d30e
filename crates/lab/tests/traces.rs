//! State that a session leaves on a connection without a trace in a statement's text, and that no other session may see.
//!
//! Examples are roles, XA transactions, dynamic SQL, stored code behind triggers and views, and settings in force at PREPARE.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::io::{Read, Write};
use std::process::{Command as Program, Stdio};

use common::{LIMIT, Peer, World, proxy_with, server};
use lab::client::{Encoding, Execution, Prepared};
use lab::{ConnectOptions, Flavor, wait};
use wire::Capabilities;
use wire::command::Command;

each_flavor!(
    roles,
    prepared_xa_transaction,
    dynamic_sql,
    stored_code,
    stored_code_that_servers_do_not_tell_of,
    set_transaction_in_stored_code,
    stored_code_that_leaves_nothing,
    code_of_another_schema,
    variables_that_are_only_read,
    tables_made_of_loud_views,
    locks_in_stored_code,
    last_insert_id_in_triggers,
    settings_at_prepare,
    user_variables_at_prepare,
    other_settings_at_prepare,
    the_statement_prepared_last,
    learnt_settings_and_metadata_are_a_users_own,
    quoted_functions,
    what_fails,
    what_fails_in_several,
    set_statement,
    hidden_by_a_version_comment,
    refused_replicas,
    xa_behind_comments,
    stored_code_that_blinds_the_tracker,
    routines_that_are_others_by_now,
    routines_with_other_names,
    what_is_not_there_leaves_nothing,
    after_a_definition,
    functions_with_names_of_others,
    blanks_of_latin1,
    variables_set_by_hints,
);

/// Runs statements as root in the world's schema.
fn as_root(world: &World, statements: &[&str]) {
    let mut root = world.server.root().unwrap();
    root.init_db(&world.schema).unwrap();
    for sql in statements {
        root.run(sql).unwrap();
    }
}

fn pins(world: &World) -> Option<String> {
    let proxy = world.proxy.as_ref()?;
    proxy.admin().unwrap().scalar("SELECT GROUP_CONCAT(reason) FROM stats_tidegate_pins").unwrap()
}

fn roles(world: &World) {
    let role = format!("role_{}", world.schema);
    as_root(
        world,
        &[&format!("CREATE ROLE {role}"), &format!("GRANT SELECT ON {}.* TO {role}", world.schema), &format!("GRANT {role} TO app")],
    );
    let at_login = world.connect().get("SELECT CURRENT_ROLE()");
    let mut first = world.connect();
    first.exec(&format!("SET ROLE {role}"));
    assert!(first.get("SELECT CURRENT_ROLE()").contains(&role));
    first.reset_connection().unwrap().ok().unwrap();
    assert!(first.get("SELECT CURRENT_ROLE()").contains(&role), "no server takes it back");
    drop(first);
    for _ in 0..3 {
        assert_eq!(world.connect().get("SELECT CURRENT_ROLE()"), at_login);
    }
    let mut second = world.connect();
    second.exec(&format!("SET ROLE {role}"));
    second.change_user(&world.options()).unwrap();
    // MariaDB itself leaves the role to the next login on the connection.
    if world.is_mysql() || world.proxy.is_some() {
        assert_eq!(second.get("SELECT CURRENT_ROLE()"), at_login);
    }
    drop(second);
    assert_eq!(world.connect().get("SELECT CURRENT_ROLE()"), at_login);
    as_root(
        world,
        &[
            &format!("CREATE DEFINER = app PROCEDURE takes_role() SQL SECURITY INVOKER SET ROLE {role}"),
            "CREATE DEFINER = app PROCEDURE takes_it_within() SQL SECURITY INVOKER CALL takes_role()",
        ],
    );
    for sql in ["CALL takes_role()", "CALL takes_it_within()"] {
        let mut first = world.connect();
        first.exec(sql);
        assert!(first.get("SELECT CURRENT_ROLE()").contains(&role), "{sql}");
        drop(first);
        assert_eq!(world.connect().get("SELECT CURRENT_ROLE()"), at_login, "{sql}");
    }
    if world.encoding == Encoding::Text {
        let set = format!("SET ROLE {role}");
        let mut ways = vec![vec![format!("PREPARE s FROM '{set}'"), "EXECUTE s".to_owned()]];
        ways.push(vec![
            format!("SET @s = '{set}'"),
            "PREPARE s FROM @s".to_owned(),
            "EXECUTE s".to_owned(),
            "DEALLOCATE PREPARE s".to_owned(),
        ]);
        if !world.is_mysql() {
            ways.push(vec![format!("EXECUTE IMMEDIATE '{set}'")]);
            ways.push(vec![format!("BEGIN NOT ATOMIC {set}; END")]);
        }
        for way in ways {
            let mut first = world.connect();
            way.iter().for_each(|sql| drop(first.exec(sql)));
            assert!(first.get("SELECT CURRENT_ROLE()").contains(&role), "{way:?}");
            drop(first);
            assert_eq!(world.connect().get("SELECT CURRENT_ROLE()"), at_login, "{way:?}");
        }
    }
    as_root(world, &[&format!("DROP ROLE {role}")]);
}

fn prepared_xa_transaction(world: &World) {
    let xid = &world.schema;
    world.connect().exec("CREATE TABLE kept(n INT PRIMARY KEY)");
    for (n, leave) in [Peer::reset as fn(&mut Peer), Peer::cut_off].into_iter().enumerate() {
        let mut first = world.connect();
        first.exec_all(&[&format!("XA START '{xid}{n}'"), &format!("INSERT INTO kept VALUES({n})")]);
        first.exec_all(&[&format!("XA END '{xid}{n}'"), &format!("XA PREPARE '{xid}{n}'")]);
        if world.proxy.is_none() && n == 0 {
            // MariaDB itself loses it with a reset.
            first.cut_off();
        } else {
            leave(&mut first);
        }
        drop(first);
        let mut second = world.connect();
        wait::until("the transaction to be there", LIMIT, || second.ask(&format!("XA COMMIT '{xid}{n}'")).err().is_none().then_some(()))
            .unwrap();
        for _ in 0..4 {
            assert_eq!(world.connect().get(&format!("SELECT COUNT(*) FROM kept WHERE n = {n}")), "1");
        }
    }
}

/// Ways for a session to leave.
trait Leaving {
    fn reset(&mut self);
    fn cut_off(&mut self);
}

impl Leaving for Peer {
    fn reset(&mut self) {
        self.reset_connection().unwrap().ok().unwrap();
    }

    fn cut_off(&mut self) {
        self.cut();
    }
}

fn dynamic_sql(world: &World) {
    let mut first = world.connect();
    first.exec_all(&["PREPARE s FROM 'SELECT 1'", "EXECUTE s", "DEALLOCATE PREPARE s", "SELECT 1"]);
    assert_eq!(pins(world), None, "a statement that is known to leave nothing keeps nothing");
    let mut made = vec!["PREPARE s FROM 'CREATE TEMPORARY TABLE secret AS SELECT 42 x'", "EXECUTE s", "DEALLOCATE PREPARE s"];
    made.extend(["SET @t = 'SET @dynamic = 7'", "PREPARE s FROM @t", "EXECUTE s", "DEALLOCATE PREPARE s"]);
    if !world.is_mysql() {
        made.extend(["EXECUTE IMMEDIATE 'CREATE TEMPORARY TABLE secret2 AS SELECT 42 x'", "CREATE TEMPORARY SEQUENCE secret3"]);
    }
    for sql in made {
        first.exec(sql);
    }
    assert_eq!(first.get("SELECT x FROM secret"), "42");
    drop(first);
    let mut second = world.connect();
    for table in ["secret", "secret2", "secret3"] {
        assert_eq!(second.fails(&format!("SELECT * FROM {table}")), 1146);
    }
    assert_eq!(second.get("SELECT @dynamic"), "NULL");
}

fn stored_code(world: &World) {
    as_root(
        world,
        &[
            "CREATE TABLE t(v INT)",
            "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET @by_trigger = NEW.v",
            "CREATE FUNCTION f() RETURNS INT NO SQL BEGIN SET @by_view = 7; RETURN 1; END",
            "CREATE VIEW w AS SELECT f() AS x",
            "CREATE PROCEDURE p() BEGIN CREATE TEMPORARY TABLE by_call(n INT); SET @by_call = 5, time_zone = '+01:00'; END",
        ],
    );
    for statement in ["INSERT INTO t VALUES(3)", "SELECT x FROM w", "CALL p()"] {
        let mut first = world.connect();
        first.exec(statement);
        drop(first);
        let mut second = world.connect();
        assert_eq!(second.row("SELECT @by_trigger, @by_view, @by_call"), "NULL NULL NULL", "after {statement}");
        assert_eq!(second.fails("SELECT * FROM by_call"), 1146);
    }
    let mut plain = world.connect();
    plain.exec_all(&["CREATE TABLE u(v INT)", "INSERT INTO u VALUES(1)", "UPDATE u SET v = 2", "DELETE FROM u"]);
    assert_eq!(pins(world), None);
}

/// State that stored code leaves stays in the session itself, and reaches no other.
fn stored_code_that_servers_do_not_tell_of(world: &World) {
    let schema = &world.schema;
    as_root(
        world,
        &[
            "CREATE TABLE t(a INT)",
            "INSERT INTO t VALUES(5)",
            "CREATE PROCEDURE into_variable() SELECT a INTO @left FROM t LIMIT 1",
            "CREATE PROCEDURE sets(OUT x INT) SET x = 5",
            "CREATE PROCEDURE calls() CALL sets(@left)",
            "CREATE PROCEDURE handles() BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION \
             GET DIAGNOSTICS @left = NUMBER; INSERT INTO missing VALUES(1); END",
            "CREATE PROCEDURE fails() BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION \
             BEGIN GET DIAGNOSTICS @left = NUMBER; RESIGNAL; END; INSERT INTO missing VALUES(1); END",
            "CREATE PROCEDURE assigns() BEGIN DECLARE y INT; SET y = (@left := 5); END",
            "CREATE PROCEDURE does() DO @left := 5",
            "CREATE PROCEDURE asks() BEGIN IF (@left := 5) THEN DO 1; END IF; END",
            "CREATE PROCEDURE updates() UPDATE t SET a = (@left := a)",
            "CREATE FUNCTION returns_it() RETURNS INT DETERMINISTIC RETURN (@left := 5)",
            "CREATE FUNCTION reads_it() RETURNS INT READS SQL DATA BEGIN SELECT a INTO @left FROM t LIMIT 1; RETURN 1; END",
        ],
    );
    let mut ways = vec!["CALL into_variable()", "CALL calls()", "CALL assigns()", "CALL does()", "CALL asks()"];
    ways.extend(["CALL updates()", "SELECT returns_it()", "SELECT reads_it()", "DO returns_it()", "SET @n = reads_it()"]);
    if !world.is_mysql() {
        as_root(world, &["CREATE PROCEDURE at_once() EXECUTE IMMEDIATE 'SELECT 5 INTO @left'"]);
        ways.extend(["CALL at_once()", "EXECUTE IMMEDIATE 'CALL into_variable()'", "BEGIN NOT ATOMIC CALL into_variable(); END"]);
        ways.push("SET STATEMENT max_statement_time=10 FOR SELECT reads_it()");
    }
    if world.encoding == Encoding::Text {
        ways.extend(["CALL into_variable(); SELECT 1", "SELECT 1; SELECT returns_it()"]);
    }
    let qualified = format!("CALL {schema}.into_variable()");
    ways.push(&qualified);
    for (way, before) in ways.iter().flat_map(|way| [(way, "SELECT 1"), (way, "SET @left = 'mine'")]) {
        // Connections are lent to those with the same flags.
        let options = world.options().with(Capabilities::MULTI_STATEMENTS);
        let mut first = world.connect_with(&options);
        first.exec_all(&[before, way]);
        assert_eq!(first.get("SELECT @left"), "5", "{way}");
        drop(first);
        assert_eq!(world.connect_with(&options).get("SELECT @left"), "NULL", "after {way}");
    }
    for way in ["CALL handles()", "CALL fails()"] {
        let mut first = world.connect();
        first.ask(way);
        assert_eq!(first.get("SELECT @left"), "1", "{way}");
        drop(first);
        assert_eq!(world.connect().get("SELECT @left"), "NULL", "after {way}");
    }
}

/// Stored code that the user can read keeps no connection unless it may leave something.
fn stored_code_that_leaves_nothing(world: &World) {
    as_root(
        world,
        &[
            "CREATE TABLE t(id INT AUTO_INCREMENT PRIMARY KEY, a INT)",
            "CREATE DEFINER = app PROCEDURE adds(IN n INT) INSERT INTO t(a) VALUES(n)",
            "CREATE DEFINER = app PROCEDURE shows(IN n INT) BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION ROLLBACK; \
             START TRANSACTION; CALL adds(n); COMMIT; SELECT a FROM t ORDER BY id DESC LIMIT 1; END",
            "CREATE DEFINER = app FUNCTION twice(n INT) RETURNS INT DETERMINISTIC RETURN n * 2",
            "CREATE DEFINER = app FUNCTION four_times(n INT) RETURNS INT DETERMINISTIC RETURN twice(twice(n))",
            "CREATE PROCEDURE hidden() INSERT INTO t(a) VALUES(7)",
        ],
    );
    let mut first = world.connect();
    for round in 0..3 {
        assert_eq!(first.get("CALL shows(5)"), "5");
        assert_eq!(first.get("SELECT FOUND_ROWS()"), "1");
        assert_eq!(pins(world), None, "round {round}");
        assert_eq!(first.get("SELECT four_times(2)"), "8");
        // It is served when all is done that the one before left to do.
        first.exec("SELECT 1");
        assert_eq!(pins(world), None, "round {round}");
        first.exec_all(&["BEGIN", "SELECT twice(1)", "COMMIT", "CALL adds(twice(3))", "DO four_times(1)", "SELECT 1"]);
        assert_eq!(pins(world), None, "round {round}");
        first.exec("INSERT INTO t(a) VALUES(four_times(1))");
        assert_eq!(first.get("SELECT LAST_INSERT_ID() = MAX(id) FROM t"), "1");
        first.exec("SELECT CAST('x' AS SIGNED), twice(1)");
        assert_eq!(first.table("SHOW WARNINGS").len(), 1, "round {round}");
        assert_eq!(pins(world), None, "round {round}");
    }
    let reason = |reason: &str| world.proxy.is_some().then(|| reason.to_owned());
    first.exec_all(&["CALL hidden()", "SELECT 1"]);
    assert_eq!(pins(world), reason("session_state"), "its body is not for everybody");
    first.reset_connection().unwrap().ok().unwrap();
    assert_eq!(pins(world), None);
    first.exec_all(&["BEGIN", "CALL hidden()"]);
    assert!(world.proxy.is_none() || pins(world).unwrap().starts_with("transaction,"), "nothing is asked in a transaction");
    first.exec_all(&["COMMIT", "SELECT 1"]);
    assert_eq!(pins(world), reason("session_state"));
    first.reset_connection().unwrap().ok().unwrap();
    // Definitions that other sessions change meanwhile, in another schema.
    let schema = &world.schema;
    let elsewhere = format!("DROP DATABASE IF EXISTS {schema}_x");
    first.exec_all(&[&elsewhere, "BEGIN", "CALL adds(1)", &elsewhere, "COMMIT", "SELECT 1"]);
    assert_eq!(pins(world), None, "none of its business");
    let here = format!("DROP FUNCTION IF EXISTS {schema}.adds");
    first.exec_all(&[&here, "BEGIN", "CALL adds(1)", &here, "COMMIT", "SELECT 1"]);
    assert_eq!(pins(world), reason("session_state"), "it is named");
    first.reset_connection().unwrap().ok().unwrap();
    // A data definition that comes through the proxy.
    first.exec("DROP PROCEDURE adds");
    as_root(world, &["CREATE DEFINER = app PROCEDURE adds(IN n INT) SELECT n INTO @left"]);
    first.exec_all(&["CALL shows(5)", "SELECT 1"]);
    assert_eq!(pins(world), reason("session_state"), "what it calls is another one now");
    assert_eq!(first.get("SELECT @left"), "5");
}

/// Servers report a schema that was entered and left as any other change. It pins no connection if nothing else can have happened.
fn code_of_another_schema(world: &World) {
    let other = format!("{}_code", world.schema);
    as_root(
        world,
        &[
            &format!("DROP DATABASE IF EXISTS {other}"),
            &format!("CREATE DATABASE {other}"),
            &format!("CREATE DEFINER = app FUNCTION {other}.single() RETURNS INT NO SQL RETURN 1"),
            &format!("CREATE DEFINER = app FUNCTION {other}.couple() RETURNS INT NO SQL RETURN single() + single()"),
            &format!("CREATE DEFINER = app PROCEDURE {other}.says() SELECT 3"),
            &format!("CREATE DEFINER = app FUNCTION {other}.sets() RETURNS INT NO SQL BEGIN SET @left = 5; RETURN 1; END"),
            &format!("CREATE DEFINER = app FUNCTION {other}.who() RETURNS VARCHAR(20) NO SQL RETURN @left"),
            &format!("CREATE TABLE {other}.t(a INT)"),
            &format!("CREATE TRIGGER {other}.tr BEFORE INSERT ON {other}.t FOR EACH ROW SET @left = NEW.a"),
            &format!("CREATE DEFINER = app PROCEDURE {other}.adds() INSERT INTO t VALUES(5)"),
            &format!("CREATE VIEW {other}.w AS SELECT {other}.sets() AS x"),
        ],
    );
    let mut without = world.options();
    without.database = None;
    for options in [world.options(), without] {
        let mut first = world.connect_with(&options);
        let mut second = world.connect();
        let own = first.row("SELECT DATABASE(), @@collation_database");
        for _ in 0..2 {
            assert_eq!(first.get(&format!("SELECT {other}.couple()")), "2");
            assert_eq!(first.get(&format!("CALL {other}.says()")), "3");
            first.exec(&format!("DO {other}.single()"));
            first.exec("SELECT 1");
            assert_eq!(pins(world), None);
            second.disturb();
            assert_eq!(first.row("SELECT DATABASE(), @@collation_database"), own);
        }
        drop((first, second));
        for loud in [
            format!("SELECT {other}.sets()"),
            format!("SELECT {other}.who()"),
            format!("INSERT INTO {other}.t VALUES(5)"),
            format!("CALL {other}.adds()"),
            format!("SELECT x FROM {other}.w"),
            format!("SELECT {other}.single() FROM {other}.w"),
        ] {
            let mut first = world.connect_with(&options);
            first.exec_all(&[&loud, "SELECT 1"]);
            world.proxy.as_ref().inspect(|_| assert_eq!(pins(world).as_deref(), Some("session_state"), "{loud}"));
            drop(first);
            assert_eq!(world.connect().get("SELECT @left"), "NULL", "{loud}");
        }
    }
    let mut first = world.connect();
    let statement = first.prepare("SELECT ? + 1").unwrap();
    first.exec(&format!("USE {other}"));
    first.execute(&statement, &[lab::client::Param::Int(1)]).unwrap().rows().unwrap();
    assert_eq!(first.get("SELECT DATABASE()"), other);
    assert_eq!(pins(world), None);
    as_root(world, &[&format!("DROP DATABASE {other}")]);
}

/// A function that reads a user variable leaves nothing.
fn variables_that_are_only_read(world: &World) {
    as_root(world, &["CREATE DEFINER = app FUNCTION who() RETURNS VARCHAR(20) NO SQL RETURN IFNULL(@app_user, 'nobody')"]);
    let mut first = world.connect();
    for user in ["ann", "bob"] {
        first.exec(&format!("SET @app_user = '{user}'"));
        assert_eq!(first.get("SELECT who()"), user);
        first.exec("SELECT 1");
        assert_eq!(pins(world), None);
    }
    let mut second = world.connect();
    assert_eq!(second.get("SELECT who()"), "nobody");
    second.exec("SELECT 1");
    // MySQL makes the variable a NULL, and reports that as any other change.
    let reason = (world.proxy.is_some() && world.is_mysql()).then(|| "session_state".to_owned());
    assert_eq!(pins(world), reason);
}

/// Functions that a view calls change the session that makes a table of its rows, and no other session.
fn tables_made_of_loud_views(world: &World) {
    as_root(world, &["CREATE FUNCTION f() RETURNS INT NO SQL BEGIN SET @by_view = 7; RETURN 1; END", "CREATE VIEW w AS SELECT f() AS x"]);
    let mut first = world.connect();
    first.exec("CREATE TABLE made AS SELECT x FROM w");
    assert_eq!(first.get("SELECT @by_view"), "7");
    drop(first);
    let mut second = world.connect();
    assert_eq!(second.get("SELECT @by_view"), "NULL");
    second.exec_all(&[
        "CREATE TABLE plain(i INT)",
        "ALTER TABLE plain ADD j INT",
        "DROP TABLE plain",
        "CREATE TEMPORARY TABLE mine(i INT)",
    ]);
    second.exec_all(&["ALTER TABLE mine ADD j INT", "CREATE INDEX x ON mine(i)", "TRUNCATE mine", "DROP TEMPORARY TABLE mine", "SELECT 1"]);
    assert_eq!(pins(world), None);
    // On MySQL a variable that was never set is NULL then, which has another type.
    second.exec("CREATE TABLE never1 AS SELECT @never AS v");
    drop(second);
    let mut third = world.connect();
    third.exec("CREATE TABLE never2 AS SELECT @never AS v");
    let shape = |peer: &mut Peer, table: &str| peer.row(&format!("SHOW CREATE TABLE {table}")).replace(table, "");
    assert_eq!(shape(&mut third, "never1"), shape(&mut third, "never2"));
}

/// SET TRANSACTION in stored code acts on the next transaction of its session.
fn set_transaction_in_stored_code(world: &World) {
    as_root(
        world,
        &[
            "CREATE TABLE t(a INT)",
            "CREATE PROCEDURE read_only() SET TRANSACTION READ ONLY",
            "CREATE PROCEDURE plain() INSERT INTO t VALUES(1)",
        ],
    );
    let mut first = world.connect();
    first.exec("CALL read_only()");
    assert_eq!(first.fails("INSERT INTO t VALUES(1)"), 1792);
    drop(first);
    let mut second = world.connect();
    second.exec_all(&["INSERT INTO t VALUES(1)", "CALL plain()"]);
    drop(second);
    assert_eq!(world.connect().get("SELECT COUNT(*) FROM t"), "2");
}

/// A lock that stored code took is gone with its session.
fn locks_in_stored_code(world: &World) {
    as_root(
        world,
        &[
            "CREATE TABLE t(a INT)",
            "CREATE PROCEDURE locks() FLUSH TABLES WITH READ LOCK",
            "CREATE PROCEDURE locks_one() FLUSH TABLES t WITH READ LOCK",
            "CREATE PROCEDURE names_one() DO GET_LOCK('stored', 0)",
        ],
    );
    let mut ways = vec!["CALL locks()", "CALL locks_one()", "CALL names_one()"];
    if world.is_mysql() {
        as_root(world, &["CREATE PROCEDURE instance() LOCK INSTANCE FOR BACKUP"]);
        ways.push("CALL instance()");
    } else {
        as_root(world, &["GRANT RELOAD ON *.* TO app"]);
        ways.push("BEGIN NOT ATOMIC FLUSH TABLES WITH READ LOCK; END");
    }
    for way in ways {
        let mut first = world.connect();
        first.exec(way);
        drop(first);
        let mut second = world.connect();
        second.exec_all(&["SET SESSION lock_wait_timeout = 10", "INSERT INTO t VALUES(1)", "ALTER TABLE t COMMENT = 'free'"]);
        wait::until("the lock to be free", LIMIT, || (second.get("SELECT IS_FREE_LOCK('stored')") == "1").then_some(())).unwrap();
    }
}

/// The state that a session can leave, as one row. Locks belong to the whole server, so each test has its own.
fn left(lock: &str) -> String {
    format!("SELECT @left, @@time_zone, @@autocommit, @@foreign_key_checks, IS_FREE_LOCK('{lock}')")
}

/// Runs statements that fail or hide their effect. After each, the session itself has the state that it left, and the next session has none
/// of it.
fn leaves_nothing_to_others(world: &World, lock: &str, ways: &[(&[&str], &str)]) {
    // Connections are lent to those with the same flags.
    let options = world.options().with(Capabilities::MULTI_STATEMENTS);
    let fresh = world.connect_with(&options).row(&left(lock));
    for (way, own) in ways {
        let mut first = world.connect_with(&options);
        let replies: Vec<_> = way.iter().map(|sql| first.ask(sql)).collect();
        let may_succeed = way[0].starts_with("SET STATEMENT") || way[0].contains("/*");
        assert!(may_succeed || replies.iter().any(|reply| reply.err().is_some()), "{way:?}");
        if !own.is_empty() {
            assert_eq!(first.row(&left(lock)), *own, "{way:?}");
        }
        drop(first);
        let mut second = world.connect_with(&options);
        wait::until("the lock to be free", LIMIT, || (second.get(&format!("SELECT IS_FREE_LOCK('{lock}')")) == "1").then_some(())).unwrap();
        assert_eq!(second.row(&left(lock)), fresh, "after {way:?}");
        assert_eq!(second.fails("SELECT * FROM tmp"), 1146, "after {way:?}");
        assert_eq!(second.fails("EXECUTE p"), 1243, "after {way:?}");
        second.exec("INSERT INTO free VALUES(1)");
        assert_eq!(world.connect_with(&options).get("SELECT COUNT(*) > 0 FROM free"), "1", "it is committed, after {way:?}");
        second.exec("DELETE FROM free");
    }
}

const TABLES: [&str; 3] = ["CREATE TABLE free(n INT)", "CREATE TABLE once(n INT PRIMARY KEY)", "INSERT INTO once VALUES(1)"];

/// An error does not report a change that came before it.
fn what_fails(world: &World) {
    as_root(world, &TABLES);
    as_root(
        world,
        &[
            "CREATE PROCEDURE bad() BEGIN SET autocommit = 0, time_zone = '+09:00', @left = 'by call'; SIGNAL SQLSTATE '45000'; END",
            "CREATE PROCEDURE makes() BEGIN CREATE TEMPORARY TABLE tmp(n INT); SIGNAL SQLSTATE '45000'; END",
            "CREATE FUNCTION bad_f() RETURNS INT NO SQL BEGIN SET @left = 'by function'; SIGNAL SQLSTATE '45000'; RETURN 1; END",
            "CREATE TABLE checked(n INT PRIMARY KEY)",
            "CREATE TRIGGER tc BEFORE INSERT ON checked FOR EACH ROW BEGIN SET @left = 'by trigger'; \
             IF NEW.n = 1 THEN SIGNAL SQLSTATE '45000'; END IF; END",
            "INSERT INTO checked VALUES(2)",
            "CREATE TABLE denied(n INT)",
            "CREATE TRIGGER td BEFORE INSERT ON denied FOR EACH ROW BEGIN SET @left = 'by trigger', time_zone = '+09:00'; \
             SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1142; END",
        ],
    );
    // A trigger that never failed is known from then on.
    world.connect().exec("INSERT INTO checked VALUES(3)");
    let bad = "by call +09:00 0 1 1";
    leaves_nothing_to_others(
        world,
        "failed",
        &[
            (&["CALL bad()"], bad),
            (&["BEGIN", "CALL bad()", "ROLLBACK"], bad),
            (&["CALL makes()"], ""),
            (&["SELECT bad_f()"], "by function SYSTEM 1 1 1"),
            (&["INSERT INTO checked VALUES(1)"], ""),
            (&["INSERT INTO checked VALUES(2)"], ""),
            (&["BEGIN", "INSERT INTO checked VALUES(1)", "ROLLBACK"], ""),
            (&["INSERT INTO denied VALUES(1)"], ""),
            (&["INSERT INTO once VALUES(GET_LOCK('failed', 0))"], "NULL SYSTEM 1 1 0"),
            (&["SET @x = GET_LOCK('failed', 0), time_zone = CONCAT('no', 'where')"], "NULL SYSTEM 1 1 0"),
        ],
    );
    let mut plain = world.connect();
    for _ in 0..2 {
        assert_eq!(plain.fails("INSERT INTO once VALUES(1)"), 1062);
        assert_eq!(plain.get("SHOW COUNT(*) ERRORS"), "1");
        assert_eq!(plain.fails("SELECT nope"), 1054);
    }
    assert_eq!(pins(world), None);
}

fn what_fails_in_several(world: &World) {
    if world.encoding != Encoding::Text {
        return;
    }
    as_root(world, &TABLES);
    leaves_nothing_to_others(
        world,
        "several",
        &[
            (&["SET @left = 5; SELECT nope"], "5 SYSTEM 1 1 1"),
            (&["SET foreign_key_checks = 0; INSERT INTO once VALUES(1)"], "NULL SYSTEM 1 0 1"),
            (&["SET NAMES latin1; SELECT nope"], "NULL SYSTEM 1 1 1"),
            (&["LOCK TABLES once WRITE; SELECT nope"], ""),
            (&["FLUSH TABLES WITH READ LOCK; SELECT nope"], ""),
            (&["SELECT GET_LOCK('several', 0); SELECT nope"], "NULL SYSTEM 1 1 0"),
            (&["PREPARE p FROM 'SELECT 1'; SELECT nope"], ""),
            (&["CREATE TEMPORARY TABLE tmp(n INT); SELECT nope"], ""),
            (&["SET TRANSACTION READ ONLY; SELECT nope"], ""),
            (&["SET @left = 5; SELECT FROM"], ""),
        ],
    );
}

/// The proxy's own right to replicate; the server has the last word.
const MAY_REPLICATE: &str = r#"UPDATE mysql_users SET attributes='{"replication": true}'"#;

/// A proxy that lets the user of replicas replicate.
fn proxy_of_replicas(server: &lab::Server) -> lab::Tidegate {
    let proxy = proxy_with(server, 2, |builder| builder.user("repl", "repl-pass", 0));
    let mut admin = proxy.admin().unwrap();
    for sql in [MAY_REPLICATE, "LOAD MYSQL USERS TO RUNTIME"] {
        admin.run(sql).unwrap();
    }
    proxy
}

/// A user without the right to replicate is refused, and has an ordinary session as before.
fn refused_replicas(world: &World) {
    if let Some(proxy) = &world.proxy {
        let mut admin = proxy.admin().unwrap();
        for sql in [
            "DELETE FROM mysql_query_rules",
            "INSERT INTO mysql_query_rules(rule_id, active, match_pattern, error_msg, apply) VALUES(1, 1, 'forbidden', 'no', 1)",
            "LOAD MYSQL QUERY RULES TO RUNTIME",
            MAY_REPLICATE,
            "LOAD MYSQL USERS TO RUNTIME",
        ] {
            admin.run(sql).unwrap();
        }
    }
    let dump = [&4_u32.to_le_bytes()[..], &0_u16.to_le_bytes(), &99_u32.to_le_bytes()].concat();
    let gtid = [&0_u16.to_le_bytes()[..], &99_u32.to_le_bytes(), &[0; 4], &4_u64.to_le_bytes(), &[0; 4]].concat();
    let register = [&99_u32.to_le_bytes()[..], &[0; 3], &3306_u16.to_le_bytes(), &[0; 8]].concat();
    for (command, body) in [(Command::RegisterSlave, register), (Command::BinlogDump, dump), (Command::BinlogDumpGtid, gtid)] {
        let mut first = world.connect();
        let refused = first.command(command, &body).unwrap().err().map(|e| e.code);
        let expected = match command {
            Command::RegisterSlave => 1045,
            // MariaDB has no such command.
            Command::BinlogDumpGtid if !world.is_mysql() => 1047,
            _ => 1227,
        };
        assert_eq!(refused, Some(expected), "{command:?}");
        first.exec("SET time_zone = '+05:00'");
        if world.proxy.is_some() {
            assert_eq!(first.fails("SELECT 'forbidden'"), 1148, "{command:?}");
        }
        assert_eq!(pins(world), None, "{command:?}");
        assert_eq!(world.connect().get("SELECT @@time_zone"), "SYSTEM", "{command:?}");
        first.exec_all(&["BEGIN", "SELECT 1"]);
        assert_eq!(first.command(command, &body).unwrap().err().map(|e| e.code), refused);
        assert!(world.proxy.is_none() || pins(world).as_deref() == Some("transaction"));
        first.exec("ROLLBACK");
        assert_eq!(first.get("SELECT @@time_zone"), "+05:00");
    }
}

/// A client that has registered as a replica stays one for its connection's life, also when the server refuses the next registration.
#[test]
fn a_replica_stays_registered() {
    let server = lab::Server::start(Flavor::Mariadb, &lab::Options::new().arg("--log-bin=bin").arg("--server-id=1")).unwrap();
    let proxy = proxy_of_replicas(&server);
    let mut replica = Peer::with(&ConnectOptions::tcp(proxy.address(), "repl", "repl-pass").timeout(LIMIT), Encoding::Text);
    let register = [&99_u32.to_le_bytes()[..], &[0; 3], &3306_u16.to_le_bytes(), &[0; 8]].concat();
    assert_eq!(replica.command(Command::RegisterSlave, &register).unwrap().err().map(|e| e.code), None);
    let too_long = [&99_u32.to_le_bytes()[..], b"\xf0host"].concat();
    assert_eq!(replica.command(Command::RegisterSlave, &too_long).unwrap().err().map(|e| e.code), Some(1105));
    let kept = "SELECT COUNT(*) FROM stats_tidegate_pins WHERE reason='replication'";
    assert_eq!(proxy.admin().unwrap().scalar(kept).unwrap().as_deref(), Some("1"));
    // A stream by GTID that does not begin.
    replica.exec("SET @slave_connect_state = 'nonsense'");
    let dump = [&4_u32.to_le_bytes()[..], &0_u16.to_le_bytes(), &99_u32.to_le_bytes()].concat();
    assert!(replica.command(Command::BinlogDump, &dump).unwrap().err().is_some());
    assert_eq!(proxy.admin().unwrap().scalar(kept).unwrap().as_deref(), Some("1"));
}

/// A dump of the binlog that has an end: no statement runs after it. Settings made by the replica before end with its session.
#[test]
fn nothing_runs_behind_a_dump() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = lab::Server::start(flavor, &lab::Options::new().arg("--log-bin=bin").arg("--server-id=1")).unwrap();
        let proxy = proxy_of_replicas(&server);
        for address in [server.address(), proxy.address()] {
            let options = ConnectOptions::tcp(address, "repl", "repl-pass").timeout(LIMIT);
            let mut replica = Peer::with(&options, Encoding::Text);
            replica.exec("SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'");
            let body = [&4_u32.to_le_bytes()[..], &1_u16.to_le_bytes(), &99_u32.to_le_bytes(), b"bin.000001"].concat();
            replica.send_command(Command::BinlogDump, &body).unwrap();
            let mut events = 0;
            loop {
                let packet = replica.recv_packet().unwrap();
                match packet.first() {
                    Some(0) => events += 1,
                    Some(0xfe) => break,
                    _ => panic!("{flavor:?}: {}", String::from_utf8_lossy(&packet)),
                }
            }
            assert!(events > 1, "{flavor:?}");
            assert!(replica.query("SELECT 'forbidden'").is_err(), "{flavor:?}");
        }
    }
}

fn xa_behind_comments(world: &World) {
    let xid = format!("{}_{:?}", world.schema, world.encoding);
    let has_xa = || world.proxy.is_none() || pins(world).is_some_and(|pins| pins.contains("xa"));
    let mut first = world.connect();
    first.exec("CREATE TABLE kept(n INT)");
    first.exec(&format!("/* RECOVER */ XA START '{xid}'"));
    assert!(has_xa());
    first.exec_all(&["INSERT INTO kept VALUES(1)", &format!("XA END '{xid}'"), &format!("/* commit phase 1 */ XA PREPARE '{xid}'")]);
    assert!(has_xa(), "it is prepared");
    first.exec(&format!("/* PREPARE */ XA COMMIT '{xid}'"));
    assert_eq!(pins(world), None);
    assert_eq!(world.connect().get("SELECT COUNT(*) FROM kept"), "1");
}

/// Stored code that has the server tell less.
fn stored_code_that_blinds_the_tracker(world: &World) {
    as_root(
        world,
        &[
            "CREATE DEFINER = app PROCEDURE blinds() BEGIN SET session_track_state_change = 0; SET session_track_system_variables = ''; END",
            "CREATE TABLE u(n INT)",
            "CREATE TRIGGER tu BEFORE INSERT ON u FOR EACH ROW SET @@session.session_track_state_change = 0",
            "CREATE TABLE v(n INT)",
            "CREATE TRIGGER tv BEFORE INSERT ON v FOR EACH ROW SET session_track_system_variables = ''",
            "CREATE TABLE w(n INT)",
            "CREATE TRIGGER tw BEFORE INSERT ON w FOR EACH ROW SET session_track_system_variables = '', session_track_state_change = 0",
            "CREATE TABLE t(n INT)",
            "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET @left = 5, time_zone = '+05:00'",
        ],
    );
    for way in ["CALL blinds()", "INSERT INTO u VALUES(1)", "INSERT INTO v VALUES(1)", "INSERT INTO w VALUES(1)"] {
        world.connect().exec(way);
        let mut second = world.connect();
        second.exec("INSERT INTO t VALUES(1)");
        assert_eq!(second.row("SELECT @left, @@time_zone"), "5 +05:00", "{way}");
        drop(second);
        assert_eq!(world.connect().row("SELECT @left, @@time_zone"), "NULL SYSTEM", "{way}");
    }
}

/// A body that is read after it was replaced says nothing of what ran.
fn routines_that_are_others_by_now(world: &World) {
    let ways: [&[&str]; 3] = [
        &["BEGIN", "SELECT fb()", "DROP FUNCTION fb"],
        &["BEGIN", "CALL pl()", "DROP PROCEDURE pl", "CREATE PROCEDURE pl() SELECT 1"],
        &["CREATE TEMPORARY TABLE tm(n INT)", "CALL pl()", "DROP PROCEDURE pl", "CREATE PROCEDURE pl() SELECT 1", "DROP TABLE tm"],
    ];
    for way in ways {
        as_root(
            world,
            &[
                "DROP FUNCTION IF EXISTS fb",
                "DROP PROCEDURE IF EXISTS pl",
                "CREATE DEFINER = app FUNCTION fb() RETURNS INT READS SQL DATA BEGIN SELECT 5 INTO @left; RETURN 1; END",
                "CREATE DEFINER = app PROCEDURE pl() SELECT 5 INTO @left",
            ],
        );
        let mut first = world.connect();
        first.exec_all(way);
        assert_eq!(first.get("SELECT @left"), "5", "{way:?}");
        drop(first);
        assert_eq!(world.connect().get("SELECT @left"), "NULL", "after {way:?}");
    }
}

/// Servers let a procedure be defined again while it runs.
#[test]
fn routines_defined_while_they_run() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let (server, schema) = (server(flavor), "test_defined_meanwhile");
        server.sql(&format!("CREATE DATABASE {schema}")).unwrap();
        let proxy = proxy_with(server, 2, |builder| builder);
        let [mut first, mut second] = [(); 2].map(|()| Peer::through(&proxy, Encoding::Text));
        let body = "BEGIN SELECT 7 INTO @left; DO SLEEP(1.5); END";
        second.exec_all(&[&format!("USE {schema}"), &format!("CREATE PROCEDURE running() {body}")]);
        first.exec(&format!("USE {schema}"));
        first.send_query("CALL running()").unwrap();
        let runs = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(1.5)%' AND info NOT LIKE '%processlist%'";
        wait::until("it to run", LIMIT, || (server.scalar(runs).unwrap()? != "0").then_some(())).unwrap();
        second.exec_all(&["DROP PROCEDURE running", "CREATE PROCEDURE running() SELECT 1"]);
        first.recv_reply(Encoding::Text).unwrap().check().unwrap();
        assert_eq!(first.get("SELECT @left"), "7", "{flavor:?}");
        drop(first);
        for _ in 0..4 {
            assert_eq!(second.get("SELECT @left"), "NULL", "{flavor:?}");
            assert_eq!(Peer::through(&proxy, Encoding::Text).get("SELECT @left"), "NULL", "{flavor:?}");
        }
        // A definition that has nothing to do with the call pins no connection.
        let mut calling = Peer::through(&proxy, Encoding::Text);
        second.exec("CREATE TABLE function_log(n INT)");
        let waits = format!("CREATE DEFINER = app FUNCTION {schema}.waits(n DOUBLE) RETURNS INT DETERMINISTIC NO SQL RETURN SLEEP(n)");
        server.sql(&waits).unwrap();
        calling.exec_all(&[&format!("USE {schema}"), "SELECT waits(0)", "SELECT 1"]);
        calling.send_query("SELECT waits(1.6)").unwrap();
        let runs = runs.replace("SLEEP(1.5)", "waits(1.6)");
        wait::until("it to run", LIMIT, || (server.scalar(&runs).unwrap()? != "0").then_some(())).unwrap();
        second.exec_all(&["TRUNCATE TABLE function_log", "PREPARE s FROM 'SET @k = 5'", "EXECUTE s", "DEALLOCATE PREPARE s"]);
        second.exec("CREATE PROCEDURE another() SELECT 1");
        second.reset_connection().unwrap().ok().unwrap();
        calling.recv_reply(Encoding::Text).unwrap().check().unwrap();
        calling.exec("SELECT 1");
        let pins = proxy.admin().unwrap().scalar("SELECT GROUP_CONCAT(reason) FROM stats_tidegate_pins").unwrap();
        assert_eq!(pins, None, "{flavor:?}");
        server.sql(&format!("DROP DATABASE {schema}")).unwrap();
    }
}

/// A name that the session's character set does not have.
fn routines_with_other_names(world: &World) {
    as_root(
        world,
        &[
            "CREATE DEFINER = app FUNCTION `f\u{436}`() RETURNS INT READS SQL DATA BEGIN SELECT 5 INTO @left; RETURN 1; END",
            "CREATE DEFINER = app PROCEDURE calls_it() DO f\u{436}()",
        ],
    );
    for charset in ["latin1", "ascii", "utf8mb4"] {
        let mut first = world.connect();
        first.exec_all(&[&format!("SET NAMES {charset}"), "CALL calls_it()"]);
        assert_eq!(first.get("SELECT @left"), "5", "{charset}");
        drop(first);
        assert_eq!(world.connect().get("SELECT @left"), "NULL", "after {charset}");
    }
}

/// A call that failed because its object is missing, or was not understood, pins no connection. A statement that ran before such a failure
/// does.
fn what_is_not_there_leaves_nothing(world: &World) {
    as_root(
        world,
        &[
            "CREATE DEFINER = app PROCEDURE goes_on() BEGIN SET @left = 5, time_zone = '+05:00'; CALL nosuch(); END",
            "CREATE DEFINER = app FUNCTION f_goes_on() RETURNS INT NO SQL BEGIN SET @left = 5, time_zone = '+05:00'; RETURN nosuchf(); END",
        ],
    );
    let mut first = world.connect();
    let mut ways = vec!["CALL nosuch()", "SELECT nosuchf()", "DO nosuchf()", "CALL nosuchdb.p()", "SELECT nosuchdb.f()"];
    if !world.is_mysql() {
        ways.push("SELECT NEXTVAL(nosuch)");
    }
    if world.encoding == Encoding::Text {
        ways.push("SET NAMES utf8mb4; SET @left = 5");
    }
    for way in ways {
        first.fails(way);
        first.exec("SELECT 1");
        assert_eq!(pins(world), None, "{way}");
    }
    for way in ["CALL goes_on()", "SELECT f_goes_on()", "SELECT f_goes_on(), nosuchf()"] {
        let mut first = world.connect();
        first.fails(way);
        if !way.contains(",") {
            assert_eq!(first.row("SELECT @left, @@time_zone"), "5 +05:00", "{way}");
        }
        drop(first);
        assert_eq!(world.connect().row("SELECT @left, @@time_zone"), "NULL SYSTEM", "after {way}");
    }
}

/// Statements that MariaDB runs after `SET STATEMENT x=1 FOR`.
fn set_statement(world: &World) {
    if world.is_mysql() {
        return;
    }
    as_root(world, &TABLES);
    const FOR: &str = "SET STATEMENT max_statement_time=10 FOR";
    let statements = [
        "SET @left = 1, time_zone = '+09:00'",
        "SET autocommit = 0",
        "CREATE TEMPORARY TABLE tmp AS SELECT 'secret' s",
        "LOCK TABLES once WRITE",
        "FLUSH TABLES WITH READ LOCK",
        "PREPARE p FROM 'SELECT 1'",
        "BEGIN NOT ATOMIC SET @left = 1; END",
        "EXECUTE IMMEDIATE 'CREATE TEMPORARY TABLE tmp(n INT)'",
        "SELECT GET_LOCK('set_statement', 0)",
    ];
    for statement in statements {
        leaves_nothing_to_others(world, "set_statement", &[(&[&format!("{FOR} {statement}")], "")]);
    }
    let mut plain = world.connect();
    plain.exec(&format!("{FOR} SELECT 1"));
    assert_eq!(pins(world), None);
}

/// The server skips the comment. For the server it ends where, for a plain reader, a string begins.
fn hidden_by_a_version_comment(world: &World) {
    if world.encoding != Encoding::Text {
        return;
    }
    as_root(world, &TABLES);
    leaves_nothing_to_others(
        world,
        "hidden",
        &[
            (&["SELECT 1 /*!999999 ' */, GET_LOCK('hidden', 0), @left := 'hidden' /* ' */"], "hidden SYSTEM 1 1 0"),
            (&["SELECT 1 /*!999999 ' */; SET autocommit = 0, @left = 'hidden' /* ' */"], "hidden SYSTEM 0 1 1"),
            (&["SELECT 1 /*!999999 ; ' */; CREATE TEMPORARY TABLE tmp(n INT) -- '"], ""),
            (&["/*M!999999\\- enable the sandbox mode */ SET @left = 'hidden'"], "hidden SYSTEM 1 1 1"),
            (&["/*M!999999\\- enable the sandbox mode */\nSET time_zone = '+05:00'"], ""),
            (&["/*!999999 a */ CREATE TEMPORARY TABLE tmp(n INT)"], ""),
            (&["/*!999999 a */ PREPARE p FROM 'SELECT 1'"], ""),
            (&["SET /*!999999 GLOBAL */ time_zone = '+05:00'"], ""),
        ],
    );
    let mut first = world.connect();
    first.exec("SELECT 1 /*!999999 ' */, GET_LOCK('hidden', 0) /* ' */");
    if world.proxy.is_some() {
        assert_eq!(pins(world).as_deref(), Some("session_state,role"));
    }
    drop(first);
    let mut plain = world.connect();
    plain.exec("/*!50003 SET @left = 1 */");
    plain.exec("/*!999999 SELECT nope */ /* ' */");
    assert_eq!(pins(world), None);
}

/// Statements after the definition of a stored program, in the same text, run.
fn after_a_definition(world: &World) {
    if world.encoding != Encoding::Text {
        return;
    }
    as_root(world, &TABLES);
    as_root(world, &["CREATE PROCEDURE leaves() SELECT 5 INTO @left", "CREATE EVENT e ON SCHEDULE EVERY 1 YEAR DO DO 1"]);
    world.connect().exec("CREATE PROCEDURE mine() SELECT 1");
    let after = "DROP PROCEDURE IF EXISTS one; DROP TRIGGER IF EXISTS tr; SELECT nope";
    for (head, tail, own) in [
        ("CREATE PROCEDURE one() SELECT 1", "LOCK TABLES free WRITE", ""),
        ("CREATE PROCEDURE one() SELECT 1", "FLUSH TABLES WITH READ LOCK", ""),
        ("CREATE PROCEDURE one() SELECT 1", "SET TRANSACTION READ ONLY", ""),
        ("CREATE PROCEDURE one() SELECT 1", "CREATE TEMPORARY TABLE tmp(n INT)", ""),
        ("CREATE PROCEDURE one() SELECT 1", "PREPARE p FROM 'SELECT 1'", ""),
        ("CREATE PROCEDURE one() BEGIN SELECT 1; END", "SET @left = 5", "5 SYSTEM 1 1 1"),
        ("CREATE PROCEDURE one() SELECT 1", "CALL leaves()", "5 SYSTEM 1 1 1"),
        ("CREATE TRIGGER tr BEFORE INSERT ON once FOR EACH ROW SET NEW.n = 1", "SET autocommit = 0", ""),
        ("ALTER PROCEDURE mine COMMENT 'x'", "DO GET_LOCK('definition', 0)", "NULL SYSTEM 1 1 0"),
        ("ALTER EVENT e COMMENT 'x'", "DO GET_LOCK('definition', 0)", ""),
        ("CREATE SCHEMA IF NOT EXISTS event", "LOCK TABLES free WRITE", ""),
    ] {
        let after =
            if tail.starts_with("LOCK") || tail.starts_with("FLUSH") || tail.starts_with("SET TRAN") { "SELECT nope" } else { after };
        leaves_nothing_to_others(world, "definition", &[(&[&format!("{head}; {tail}; {after}")], own)]);
        as_root(world, &["DROP PROCEDURE IF EXISTS one", "DROP TRIGGER IF EXISTS tr"]);
    }
    let mut plain = world.connect();
    plain.exec("CREATE PROCEDURE one() BEGIN DECLARE n INT DEFAULT 0; IF n = 0 THEN SET @left = 1; END IF; DELETE FROM free; END;");
    assert_eq!(pins(world), None);
}

/// A stored function may have the name of the other family's built-in function, or of a keyword.
///
/// It may also have the name of a built-in function, if its calls have a blank before the parenthesis.
fn functions_with_names_of_others(world: &World) {
    let others = if world.is_mysql() { ["to_char", "chr", "median", "statement"] } else { ["any_value", "is_uuid", "work", "until"] };
    let names = others.iter().copied().chain(["count", "now", "plain"]);
    let body = "(a INT) RETURNS INT DETERMINISTIC BEGIN SELECT 5 INTO @left; RETURN a; END";
    as_root(
        world,
        &names.map(|name| format!("CREATE FUNCTION `{name}`{body}")).collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let calls = others.map(|name| format!("SELECT {name}(1)"));
    let with_blanks = ["SELECT count (1)", "SELECT now\n(1)", "SELECT HIGH_PRIORITY plain(1)", "SELECT count/**/(1)"];
    for call in calls.iter().map(String::as_str).chain(with_blanks) {
        let mut first = world.connect();
        assert_eq!(first.get(call), "1", "{call}");
        assert_eq!(first.get("SELECT @left"), "5", "{call}");
        drop(first);
        assert_eq!(world.connect().get("SELECT @left"), "NULL", "after {call}");
    }
    let mut plain = world.connect();
    plain.exec("SELECT count(1), now(), max(1), abs (1)");
    plain.exec(if world.is_mysql() {
        "SELECT any_value(1), is_uuid('a'), rank () OVER ()"
    } else {
        "SELECT chr(65), to_char(now()), lengthb('a')"
    });
    assert_eq!(pins(world), None);
}

/// 0xa0 is a blank in latin1.
fn blanks_of_latin1(world: &World) {
    if world.encoding != Encoding::Text {
        return;
    }
    for (statement, left) in [
        (b"SELECT 5 INTO\xa0@left".as_slice(), "SELECT @left"),
        (b"SELECT\xa0GET_LOCK\xa0('latin1', 0)", "SELECT NULLIF(IS_FREE_LOCK('latin1'), 1)"),
        (b"SELECT 8--\xa0'\n, GET_LOCK('latin1', 0) -- '", "SELECT NULLIF(IS_FREE_LOCK('latin1'), 1)"),
        (b"SET\xa0@left=5", "SELECT @left"),
    ] {
        let mut first = world.connect();
        first.exec("SET NAMES latin1");
        first.query(statement).unwrap();
        assert_ne!(first.get(left), "NULL", "{}", statement.escape_ascii());
        drop(first);
        let mut second = world.connect();
        wait::until("nothing to be left", LIMIT, || (second.get(left) == "NULL").then_some(())).unwrap();
    }
}

/// A hint sets variables for its own statement only.
fn variables_set_by_hints(world: &World) {
    if !world.is_mysql() {
        return;
    }
    world.connect().exec_all(&["CREATE TABLE t(a INT)", "INSERT INTO t VALUES(1)"]);
    let values = "SELECT @@max_execution_time, @@sql_mode, @@optimizer_switch, @@time_zone, @@foreign_key_checks, @@sort_buffer_size";
    let fresh = world.connect().row(values);
    let mut first = world.connect();
    for statement in [
        "SELECT /*+ SET_VAR(max_execution_time=1000) */ a FROM t",
        "SELECT /*+ SET_VAR(sql_mode='ANSI_QUOTES') */ a FROM t",
        "INSERT /*+ SET_VAR(sql_mode='') SET_VAR(foreign_key_checks=0) */ INTO t VALUES(2)",
        "UPDATE /*+ SET_VAR(optimizer_switch='mrr=off') */ t SET a = 1",
        "SELECT /*+ SET_VAR(time_zone='+05:00') */ a FROM t",
        "DELETE /*+ SET_VAR(sort_buffer_size=65536) */ FROM t WHERE a = 7",
    ] {
        first.exec(statement);
        assert_eq!(pins(world), None, "{statement}");
        assert_eq!(world.connect().row(values), fresh, "others, after {statement}");
        assert_eq!(first.row(values), fresh, "{statement}");
    }
    first.exec("SET SESSION sort_buffer_size = 131072");
    first.exec("SELECT /*+ SET_VAR(sort_buffer_size=65536) */ a FROM t");
    assert_eq!(first.get("SELECT @@sort_buffer_size"), "131072");
    as_root(world, &["CREATE TABLE loud(a INT)", "CREATE TRIGGER tr BEFORE INSERT ON loud FOR EACH ROW SET @left = 5"]);
    first.exec("INSERT /*+ SET_VAR(max_execution_time=1000) */ INTO loud VALUES(1)");
    assert_eq!(world.connect().get("SELECT @left"), "NULL");
}

fn last_insert_id_in_triggers(world: &World) {
    as_root(
        world,
        &[
            "CREATE TABLE ordr(id INT AUTO_INCREMENT PRIMARY KEY, who INT)",
            "CREATE TABLE line(who INT, oid INT)",
            "CREATE TRIGGER tr BEFORE INSERT ON line FOR EACH ROW SET NEW.oid = LAST_INSERT_ID()",
            "CREATE TABLE moved(who INT, oid INT)",
            "INSERT INTO moved VALUES(0, 0), (1, 0)",
            "CREATE TRIGGER tu BEFORE UPDATE ON moved FOR EACH ROW SET NEW.oid = LAST_INSERT_ID()",
        ],
    );
    let mut sessions = [world.connect(), world.connect()];
    for _ in 0..3 {
        for (who, session) in sessions.iter_mut().enumerate() {
            session.exec(&format!("INSERT INTO ordr(who) VALUES({who})"));
        }
        for (who, session) in sessions.iter_mut().enumerate() {
            session.exec(&format!("INSERT INTO line(who) VALUES({who})"));
            session.exec(&format!("UPDATE moved SET oid = 1 WHERE who = {who}"));
        }
    }
    let mut fresh = world.connect();
    fresh.exec("INSERT INTO line(who) VALUES(9)");
    assert_eq!(fresh.get("SELECT oid FROM line WHERE who = 9"), "0");
    assert_eq!(fresh.get("SELECT COUNT(*) FROM line JOIN ordr ON ordr.id = line.oid AND ordr.who = line.who"), "6");
    assert_eq!(fresh.get("SELECT COUNT(*) FROM moved JOIN ordr ON ordr.id = moved.oid AND ordr.who = moved.who"), "2");
}

/// A statement keeps the meaning that it had when it was prepared, on whatever connection it is prepared again.
fn settings_at_prepare(world: &World) {
    world.connect().exec_all(&["CREATE TABLE t(n VARCHAR(10))", "INSERT INTO t VALUES('row')"]);
    let mut first = world.connect();
    first.exec("SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'");
    let quoted = first.prepare("SELECT \"n\", 'a\\b' FROM t").unwrap();
    first.exec("SET sql_mode = '', NAMES latin1");
    let plain = first.prepare("SELECT \"n\", 'a\\\\b' FROM t").unwrap();
    for round in 0..3 {
        // The meaning of the same text in another session does not count; nor does a connection that never saw it.
        let mut other = world.connect();
        let also = other.prepare("SELECT \"n\", 'a\\\\b' FROM t").unwrap();
        assert_eq!(other.execute(&also, &[]).unwrap().table().unwrap()[0][0].as_deref(), Some("n"));
        other.reset_connection().unwrap().ok().unwrap();
        other.exec_all(&["SET @@session.sql_mode = 'ANSI'", "CREATE TEMPORARY TABLE tmp(i INT)"]);
        drop(other);
        let row = first.execute(&quoted, &[]).unwrap().table().unwrap().remove(0);
        assert_eq!(row, [Some("row".to_owned()), Some("a\\b".to_owned())], "round {round}");
        let row = first.execute(&plain, &[]).unwrap().table().unwrap().remove(0);
        assert_eq!(row, [Some("n".to_owned()), Some("a\\b".to_owned())], "round {round}");
        assert_eq!(first.row("SELECT @@sql_mode, @@character_set_client"), " latin1");
    }
}

/// Changes the state of the connection, so that the next preparation is for a session with other settings.
fn shake(world: &World) {
    let mut other = world.connect();
    other.exec_all(&["SET @code = 5, lc_time_names = 'fr_FR'", "CREATE TEMPORARY TABLE tmp(i INT)"]);
}

/// MySQL compares with a user variable by the type that it had at PREPARE.
///
/// Types of other sessions do not count, nor do types that the variable has got since.
fn user_variables_at_prepare(world: &World) {
    let codes = "INSERT INTO coupon VALUES('17'), ('017'), ('17.0'), ('5')";
    world.connect().exec_all(&["CREATE TABLE coupon(code VARCHAR(20) COLLATE utf8mb4_general_ci)", codes]);
    let question = "SELECT COUNT(*) FROM coupon WHERE code = @code";
    let count = |peer: &mut Peer, statement: &Prepared| peer.execute(statement, &[]).unwrap().scalar().unwrap();
    let keeps = |kept: &str, now: &str| Some(if world.is_mysql() { kept } else { now }.to_owned());
    let mut unset = world.connect();
    let of_unset = unset.prepare(question).unwrap();
    assert_eq!(count(&mut unset, &of_unset).as_deref(), Some("0"));
    let (mut number, mut text) = world.pair();
    number.exec("SET @code = 99");
    let of_number = number.prepare(question).unwrap();
    assert_eq!(count(&mut number, &of_number).as_deref(), Some("0"));
    text.exec("SET @code = '17'");
    let of_text = text.prepare(question).unwrap();
    assert_eq!(count(&mut text, &of_text).as_deref(), Some("1"));
    text.exec("SET @code = 17");
    let again = text.prepare(question).unwrap();
    number.exec("SET @code = '17'");
    unset.exec("SET @code = 17");
    for round in 0..3 {
        assert_eq!(count(&mut text, &again).as_deref(), Some("3"), "round {round}");
        assert_eq!(count(&mut text, &of_text), keeps("1", "3"), "round {round}");
        assert_eq!(count(&mut number, &of_number), keeps("3", "1"), "round {round}");
        assert_eq!(count(&mut unset, &of_unset), keeps("1", "3"), "round {round}");
        shake(world);
        // The variables have their earlier values and types.
        assert_eq!(text.row("SELECT @code, CHARSET(@code)"), "17 binary");
        assert_eq!(number.row("SELECT @code, CHARSET(@code)"), "17 utf8mb4");
    }
    // A value that only the server knows.
    text.exec_all(&["BEGIN", "SET @code = (SELECT MAX(17) FROM coupon)"]);
    assert_eq!(count(&mut text, &of_text), keeps("1", "3"));
    let computed = text.prepare(question).unwrap();
    assert_eq!(count(&mut text, &computed).as_deref(), Some("3"));
    assert_eq!(text.row("SELECT @code, CHARSET(@code)"), "17 binary");
    text.exec("COMMIT");
    shake(world);
    assert_eq!(count(&mut text, &computed).as_deref(), Some("3"));
    assert_eq!(count(&mut text, &of_text), keeps("1", "3"));
}

/// Further settings that decide at PREPARE: sessions with other settings do not share such a statement, and it stays as it was prepared.
fn other_settings_at_prepare(world: &World) {
    world.connect().exec_all(&["CREATE TABLE t(v INT)", "INSERT INTO t VALUES(3), (4)"]);
    let cases = [
        ("lc_time_names", "'de_DE'", "SELECT MONTHNAME('2020-03-01'), DATE_FORMAT('2020-01-01', '%W')"),
        ("div_precision_increment", "10", "SELECT 1 / v FROM t ORDER BY v"),
        ("default_week_format", "3", "SELECT WEEK('2021-01-01')"),
        ("group_concat_max_len", "4", "SELECT GROUP_CONCAT(v, v, v) FROM t"),
        ("time_zone", "'+05:00'", "SELECT CAST('2020-01-01 10:00:00' AS DATETIME), UNIX_TIMESTAMP('2020-01-01 10:00:00')"),
        ("default_collation_for_utf8mb4", "utf8mb4_general_ci", "SELECT COLLATION(_utf8mb4'a')"),
        ("sql_select_limit", "1", "SELECT v FROM t ORDER BY v"),
    ];
    let table = |peer: &mut Peer, statement: &Prepared| peer.execute(statement, &[]).unwrap().table().unwrap();
    for (name, value, question) in cases.iter().filter(|(name, ..)| world.is_mysql() || *name != "default_collation_for_utf8mb4") {
        let set = format!("SET {name} = {value}");
        let text = |who: &str| format!("{question} /* {name} {who} */");
        for set_is_first in [true, false] {
            let (mut plain, mut other) = world.pair();
            other.exec(&set);
            let text = |who: &str| text(&format!("{who} {set_is_first}"));
            // No other session has these statements.
            let alone = [(&mut plain, "plain"), (&mut other, "other")].map(|(peer, who)| {
                let statement = peer.prepare(text(who)).unwrap();
                table(peer, &statement)
            });
            let shared = text("both");
            let (mut of_plain, mut of_other) = (None, None);
            for sets in [set_is_first, !set_is_first] {
                let (peer, of, expected) =
                    if sets { (&mut other, &mut of_other, &alone[1]) } else { (&mut plain, &mut of_plain, &alone[0]) };
                let statement = peer.prepare(&shared).unwrap();
                assert_eq!(table(peer, &statement), *expected, "{name}");
                *of = Some(statement);
            }
            let (of_plain, of_other) = (of_plain.unwrap(), of_other.unwrap());
            // The server's own result after the setting has changed.
            other.exec(&format!("SET {name} = DEFAULT"));
            let since = table(&mut other, &of_other);
            for _ in 0..2 {
                shake(world);
                assert_eq!(table(&mut other, &of_other), since, "{name}");
                assert_eq!(table(&mut plain, &of_plain), alone[0], "{name}");
            }
            let decides = world.is_mysql() && ["div_precision_increment", "default_week_format"].contains(name);
            assert!(!decides || since == alone[1], "{name} {since:?} {alone:?}");
        }
    }
}

/// MariaDB: -1 is the statement prepared last, and none after a PREPARE that failed. MySQL knows no such id.
fn the_statement_prepared_last(world: &World) {
    let mut peer = world.connect();
    peer.exec("CREATE TABLE t(n INT)");
    let (last, how) = (u32::MAX, Execution::default());
    let run = |peer: &mut Peer| {
        peer.send_execute(last, &[], how).unwrap();
        peer.recv_reply(Encoding::Binary).unwrap().err().map(|error| error.code)
    };
    let knows = |expected| if world.is_mysql() { Some(1243) } else { expected };
    assert_eq!(run(&mut peer), Some(1243));
    let one = peer.prepare("INSERT INTO t VALUES(1)").unwrap();
    assert_eq!(run(&mut peer), knows(None));
    let reset = |peer: &mut Peer| peer.command(Command::StmtReset, &last.to_le_bytes()).unwrap().err().map(|error| error.code);
    assert_eq!(reset(&mut peer), knows(None));
    assert_eq!(peer.prepare("INSERT INTO nowhere VALUES(2)").unwrap_err().code(), Some(1146));
    assert_eq!(run(&mut peer), Some(1243));
    assert_eq!(reset(&mut peer), Some(1243));
    assert!(peer.execute(&one, &[]).unwrap().err().is_none());
    assert_eq!(run(&mut peer), Some(1243));
    let two = peer.prepare("INSERT INTO t VALUES(3)").unwrap();
    assert_eq!(run(&mut peer), knows(None));
    peer.close_statement(&two).unwrap();
    assert_eq!(run(&mut peer), Some(1243));
    assert_eq!(peer.get("SELECT COUNT(*) FROM t"), if world.is_mysql() { "1" } else { "3" });
}

/// One user's right to a SET or a table says nothing of another's.
fn learnt_settings_and_metadata_are_a_users_own(world: &World) {
    let rooted = world.proxy.is_some().then(|| proxy_with(server(world.flavor()), 2, |builder| builder.user("root", "", 0)));
    let options = |user: &str, password: &str| match &rooted {
        Some(proxy) => proxy.options(user, password).timeout(LIMIT),
        None => ConnectOptions::tcp(world.server.address(), user, password).timeout(LIMIT),
    };
    let schema = format!("hidden_{}", world.schema);
    as_root(world, &[&format!("CREATE DATABASE {schema}"), &format!("CREATE TABLE {schema}.t(n INT)")]);
    let question = format!("SELECT n FROM {schema}.t");
    let mut root = Peer::with(&options("root", ""), world.encoding);
    root.exec("SELECT 1");
    root.prepare(&question).unwrap();
    for _ in 0..2 {
        let mut root = Peer::with(&options("root", ""), world.encoding);
        root.exec("SET SESSION sql_log_bin = 0");
        root.exec("SET SESSION sql_log_bin = 1");
    }
    let mut app = Peer::with(&options("app", "app-pass"), world.encoding);
    if !world.is_mysql() {
        assert_eq!(app.fails("SET SESSION sql_log_bin = 0"), 1227);
    }
    assert_eq!(app.get("SELECT 1"), "1");
    assert_eq!(app.prepare(&question).unwrap_err().code(), Some(1142));
    as_root(world, &[&format!("DROP DATABASE {schema}")]);
}

fn quoted_functions(world: &World) {
    let mut first = world.connect();
    assert_eq!(first.get("SELECT `get_lock`('quoted', 0)"), "1");
    assert_eq!(pins(world).is_some(), world.proxy.is_some());
    assert_eq!(first.get("SELECT `release_lock`('quoted')"), "1");
    assert_eq!(pins(world), None);
}

/// The client's file reaches a server over a compressed connection.
#[test]
fn local_infile_over_a_compressed_connection() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = server(flavor);
        let columns = [("compression", 1.into()), ("max_connections", 1.into())];
        let proxy = lab::Tidegate::builder().server_with(0, server.host(), server.port(), &columns).app_user().start().unwrap();
        let options = proxy.options("app", "app-pass").database("test").timeout(LIMIT);
        let mut peer = Peer::with(&options.clone().with(Capabilities::LOCAL_FILES), Encoding::Text);
        peer.exec("CREATE TABLE files(s VARCHAR(30))");
        for lines in [1, 50_000, 3] {
            let text: String = (0..lines).map(|i| format!("line {i} of {lines}\n")).collect();
            peer.set_infile_handler(Box::new(move |_| Some(text.clone().into_bytes())));
            let loaded = peer.exec("LOAD DATA LOCAL INFILE 'here.txt' INTO TABLE files");
            assert_eq!(loaded.ok().unwrap().affected_rows, lines, "{flavor:?}");
        }
        assert_eq!(peer.fails("LOAD DATA LOCAL INFILE 'here.txt' INTO TABLE missing"), 1146);
        assert_eq!(Peer::with(&options, Encoding::Text).get("SELECT COUNT(*) FROM files"), "50004");
        peer.exec("DROP TABLE files");
    }
}

/// A packet of the client's file that fills its frame goes on in the next one, which is empty: that is not the file's end.
#[test]
fn local_infile_with_a_full_frame() {
    const FULL: usize = 0xff_ffff;
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = server(flavor);
        let proxy = proxy_with(server, 1, |builder| builder);
        server.sql("CREATE TABLE test.full(s TEXT)").unwrap();
        for address in [server.address(), proxy.address()] {
            let options = ConnectOptions::tcp(address, "app", "app-pass").database("test").with(Capabilities::LOCAL_FILES).timeout(LIMIT);
            let mut peer = Peer::with(&options, Encoding::Text);
            peer.send_query("LOAD DATA LOCAL INFILE 'here' INTO TABLE full").unwrap();
            assert_eq!(peer.recv_packet().unwrap().first(), Some(&0xfb));
            let mut socket = peer.try_clone_tcp().unwrap();
            let lines = [vec![b'a'; 65_535], vec![b'\n']].concat().repeat(256);
            for (seq, data) in (2..).zip([&lines[..FULL], b"", b"\nlast\n", b""]) {
                let mut frame = u32::try_from(data.len()).unwrap().to_le_bytes();
                frame[3] = seq;
                socket.write_all(&[&frame, data].concat()).unwrap();
            }
            let mut header = [0; 5];
            socket.read_exact(&mut header).unwrap();
            assert_eq!((header[3], header[4]), (6, 0), "{flavor:?}");
            assert_eq!(server.root().unwrap().scalar("SELECT COUNT(*) FROM test.full").unwrap().as_deref(), Some("257"), "{flavor:?}");
            server.sql("DELETE FROM test.full").unwrap();
        }
        server.sql("DROP TABLE test.full").unwrap();
    }
}

/// Several commands that go out together reach a server over a compressed connection, one by one.
#[test]
fn several_commands_at_once_over_a_compressed_connection() {
    for (flavor, use_ssl) in [(Flavor::Mariadb, 0), (Flavor::Mariadb, 1), (Flavor::Mysql, 0), (Flavor::Mysql, 1)] {
        let server = server(flavor);
        let columns = [("compression", 1.into()), ("use_ssl", use_ssl.into()), ("max_connections", 1.into())];
        let proxy = lab::Tidegate::builder().server_with(0, server.host(), server.port(), &columns).app_user().start().unwrap();
        let options = proxy.options("app", "app-pass").database("test").timeout(LIMIT);
        let mut sessions = ["+01:00", "+02:00"].map(|zone| {
            let mut session = Peer::with(&options, Encoding::Text);
            session.exec(&format!("SET time_zone = '{zone}', SESSION group_concat_max_len = 4321"));
            (session, zone)
        });
        for _ in 0..4 {
            for (session, zone) in &mut sessions {
                assert_eq!(session.get("SELECT @@time_zone"), *zone);
                let statement = session.prepare("SELECT @@time_zone, REPEAT('x', 200000)").unwrap();
                assert_eq!(session.execute(&statement, &[]).unwrap().table().unwrap()[0][0].as_deref(), Some(*zone));
                session.close_statement(&statement).unwrap();
            }
            let mut other = Peer::with(&options, Encoding::Text);
            other.exec("SET @a = 1");
            assert_eq!(other.get("SELECT @a"), "1");
            other.reset_connection().unwrap().ok().unwrap();
            other.exec("CREATE TEMPORARY TABLE tmp(i INT)");
        }
    }
}

/// Files of mariadb-dump, which begin with a version comment of no version, are restored by one user from two places at once.
#[test]
fn two_restores_at_once() {
    let server = server(Flavor::Mariadb);
    let proxy = proxy_with(server, 2, |builder| builder);
    let mut root = server.root().unwrap();
    for sql in [
        "CREATE DATABASE test_dump_from",
        "USE test_dump_from",
        "CREATE TABLE t(id INT PRIMARY KEY, s VARCHAR(20) CHARACTER SET utf8mb4)",
        "INSERT INTO t SELECT seq, 'grün' FROM seq_1_to_300",
    ] {
        root.run(sql).unwrap();
    }
    let program = |name: &str| {
        let mut command = Program::new("timeout");
        let address = proxy.address();
        let (host, port) = address.rsplit_once(':').unwrap();
        command.args(["60", name, "--no-defaults", "-uapp", "-papp-pass", "-h", host, "-P", port]);
        command
    };
    let mut dump = program("mariadb-dump");
    let dump = dump.arg("test_dump_from").output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let text = String::from_utf8(dump.stdout).unwrap();
    assert!(text.contains("999999"), "the comment that this is about");
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for schema in ["test_dump_a", "test_dump_b"] {
                root.run(format!("CREATE OR REPLACE DATABASE {schema}")).unwrap();
                let mut restore = program("mariadb");
                let text = &text;
                scope.spawn(move || {
                    let mut child = restore.arg(schema).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
                    let ended = child.wait_with_output().unwrap();
                    assert!(ended.status.success(), "{schema}: {}", String::from_utf8_lossy(&ended.stderr));
                });
            }
        });
        for schema in ["test_dump_a", "test_dump_b"] {
            root.init_db(schema).unwrap();
            let found = root.query("SELECT COUNT(*), MIN(s), MAX(s) FROM t").unwrap().table().unwrap();
            let found: Vec<_> = found[0].iter().map(|value| value.as_deref().unwrap()).collect();
            assert_eq!(found, ["300", "grün", "grün"]);
        }
        let mut fresh = Peer::through(&proxy, Encoding::Text);
        assert_eq!(fresh.row("SELECT @OLD_SQL_MODE, @@foreign_key_checks, @@unique_checks"), "NULL 1 1");
    }
}
