//! Queries of a session about itself and its last statement, on a backend that other sessions used in between.
//!
//! Each script runs on a private connection and through the proxy, where a second session uses the one backend between any two statements.
//! The client must see the same.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;
#[path = "session_facts/questions.rs"]
mod questions;

use std::thread;

use common::{LIMIT, Peer, World};
use lab::client::{Encoding, Outcome, Param};
use lab::{ConnectOptions, Flavor, LabError, wait};
use wire::flags::Capabilities;

each_flavor!(
    connection_id,
    connection_id_among_rows,
    kill_query,
    kill_connection,
    other_sessions_warnings,
    other_sessions_warnings_in_a_pin,
    warnings_of_the_proxys_own_set,
    diagnostics_before_several,
    numbers_in_wide_results,
    failed_texts_leave_nothing,
    names_that_no_variable_has,
    returning,
    found_rows_behind_an_offset,
);

/// The statements of the other session in between: they leave ids, counts and warnings behind.
const DISTURBANCES: &[&str] = &[
    "INSERT INTO other(s) VALUES('disturbing'), ('much')",
    "SELECT * FROM other LIMIT 3",
    "SELECT 1 + 'other warning', 2 + 'second'",
    "SELECT * FROM other_missing",
    "UPDATE other SET s = 'u' WHERE id < 4",
    "SELECT LAST_INSERT_ID(4242)",
    "SELECT 'plain'",
];

const TABLES: &[&str] = &[
    "CREATE TABLE t(id INT AUTO_INCREMENT PRIMARY KEY, k INT UNIQUE, s VARCHAR(20))",
    "CREATE TABLE other(id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(20)) AUTO_INCREMENT = 500",
    "INSERT INTO other(s) VALUES('a'), ('b'), ('c'), ('d'), ('e')",
];

/// The result of one statement: numbers, text and messages. The differential tests compare column definitions.
fn shown(peer: &mut Peer, sql: &str) -> String {
    let mut text = Vec::new();
    for outcome in &peer.ask(sql).results {
        text.push(match outcome {
            Outcome::Ok(ok) => format!(
                "ok {} id {} warnings {} {:?} status {}",
                ok.affected_rows,
                ok.last_insert_id,
                ok.warnings,
                ok.info,
                ok.status.0 & 3
            ),
            Outcome::Err(error) => format!("error {} {} {}", error.code, error.sqlstate, error.message),
            Outcome::Rows(set) => {
                let names: Vec<&str> = set.columns.iter().map(|column| column.name.as_str()).collect();
                let rows: Vec<Vec<Option<String>>> = set.rows.iter().map(lab::client::Row::text).collect();
                let warnings = set.end.as_ref().map_or(0, |end| end.warnings);
                format!("rows {names:?} {rows:?} warnings {warnings}")
            }
        });
    }
    text.join("; ")
}

/// Runs the script; the statements' replies with the statements.
fn played(world: &World, script: &[&str]) -> Vec<(String, String)> {
    let (mut a, mut b) = (world.connect_with(&world.options().with(Capabilities::MULTI_STATEMENTS)), world.connect());
    a.encoding = if script.iter().any(|sql| sql.contains(';') && !sql.ends_with(';')) { Encoding::Text } else { world.encoding };
    a.exec_all(TABLES);
    script
        .iter()
        .enumerate()
        .map(|(i, sql)| {
            let line = shown(&mut a, sql);
            b.ask(DISTURBANCES[i % DISTURBANCES.len()]);
            (format!("{sql} (after {})", script.get(i.wrapping_sub(1)).unwrap_or(&"nothing")), line)
        })
        .collect()
}

/// SQL_CALC_FOUND_ROWS keeps its backend until the next result.
///
/// Texts that change how the next text is read keep it for good: the other session then needs a backend of its own.
fn backends_for(script: &[&str]) -> i64 {
    if script.iter().any(|sql| sql.contains("SQL_CALC_FOUND_ROWS") || sql.contains("SET NAMES")) { 2 } else { 1 }
}

fn same_as_private(flavor: Flavor, script: &[&str]) {
    let proxied = std::env::var_os("LAB_DIRECT_ONLY").is_none();
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut direct = World::direct(flavor);
        direct.encoding = encoding;
        let expected = played(&direct, script);
        let mut world = if proxied {
            World::proxied(flavor, backends_for(script), |builder| builder.variable("connect_timeout_server_max", 2000))
        } else {
            World::direct(flavor)
        };
        world.encoding = encoding;
        let seen = played(&world, script);
        let differences: Vec<String> = expected
            .iter()
            .zip(&seen)
            .map(|((sql, a), (_, b))| (sql, a.replace(&direct.schema, "schema"), b.replace(&world.schema, "schema")))
            .filter(|(_, a, b)| a != b)
            .map(|(sql, a, b)| format!("{sql}\n  direct : {a}\n  proxied: {b}"))
            .collect();
        assert!(differences.is_empty(), "{} {encoding:?}:\n{}", flavor.name(), differences.join("\n"));
    }
}

/// Each named script becomes two tests.
macro_rules! scripts {
    ($($(#[$both:meta])* $name:ident $(mariadb(#[$mariadb:meta]))? $(mysql(#[$mysql:meta]))? = $script:expr;)*) => {$(
        mod $name {
            $(#[$both])*
            $(#[$mariadb])?
            #[test]
            fn mariadb() {
                super::same_as_private(lab::Flavor::Mariadb, $script);
            }
            $(#[$both])*
            $(#[$mysql])?
            #[test]
            fn mysql() {
                super::same_as_private(lab::Flavor::Mysql, $script);
            }
        }
    )*};
}

scripts! {
    last_insert_id_forms = &[
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(s) VALUES('a')",
        "SELECT LAST_INSERT_ID()",
        "SELECT LAST_INSERT_ID();",
        "select last_insert_id()",
        "SELECT LAST_INSERT_ID( ) AS id",
        "SELECT LAST_INSERT_ID() id FROM DUAL",
        "SELECT LAST_INSERT_ID() + 1, CONCAT('x', LAST_INSERT_ID())",
        "SELECT @@identity",
        "SELECT @@last_insert_id",
        "SELECT @@session.identity AS i LIMIT 1",
        "SELECT 1 FROM t WHERE id = LAST_INSERT_ID()",
        "SELECT (SELECT LAST_INSERT_ID()) AS sub",
        "/* comment */ SELECT /*! LAST_INSERT_ID() */",
        "SELECT IF(LAST_INSERT_ID() > 0, 'yes', 'no')",
        "SELECT 'LAST_INSERT_ID()'",
    ];
    last_insert_id_after_inserts = &[
        "INSERT INTO t(s) VALUES('a'), ('b'), ('c')",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(id, s) VALUES(50, 'explicit')",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(id, s) VALUES(60, 'explicit'), (NULL, 'generated')",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(k, s) VALUES(7, 'first')",
        "INSERT INTO t(k, s) VALUES(7, 'second') ON DUPLICATE KEY UPDATE s = 'updated'",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(k, s) VALUES(7, 'third') ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), s = 'expr'",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(k, s) VALUES(8, 'fresh') ON DUPLICATE KEY UPDATE s = 'no'",
        "SELECT LAST_INSERT_ID()",
        "INSERT IGNORE INTO t(k) VALUES(8)",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(k) VALUES(8)",
        "SELECT LAST_INSERT_ID()",
        "REPLACE INTO t(k, s) VALUES(8, 'replaced')",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(s) SELECT s FROM t WHERE id < 3",
        "SELECT LAST_INSERT_ID()",
        "DELETE FROM t WHERE id = 1",
        "SELECT LAST_INSERT_ID()",
    ];
    last_insert_id_within_statements = &[
        "INSERT INTO t(s) VALUES('parent')",
        "INSERT INTO t(k) VALUES(LAST_INSERT_ID())",
        "SELECT id, k FROM t ORDER BY id",
        "INSERT INTO t(k) SELECT LAST_INSERT_ID() + 10",
        "SELECT id, k FROM t ORDER BY id",
        "UPDATE t SET s = 'found' WHERE id = LAST_INSERT_ID()",
        "SELECT id FROM t WHERE s = 'found'",
        "DELETE FROM t WHERE id = LAST_INSERT_ID()",
        "SELECT COUNT(*) FROM t",
        "SELECT LAST_INSERT_ID(77)",
        "SELECT LAST_INSERT_ID()",
        "UPDATE t SET k = LAST_INSERT_ID(k + 100) WHERE id = 2",
        "SELECT LAST_INSERT_ID()",
        "DO LAST_INSERT_ID(5)",
        "SELECT @@identity",
        "SET LAST_INSERT_ID = 9",
        "SELECT LAST_INSERT_ID()",
        "SET INSERT_ID = 300",
        "INSERT INTO t(s) VALUES('chosen')",
        "SELECT LAST_INSERT_ID(), MAX(id) FROM t",
        "SELECT LAST_INSERT_ID(id) FROM t ORDER BY id LIMIT 2",
        "SELECT LAST_INSERT_ID()",
    ];
    // MySQL has no RETURNING: there these fail.
    last_insert_id_of_inserts_with_rows = &[
        "INSERT INTO t(s) VALUES('a'), ('b') RETURNING id, s",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(s) VALUES('c') RETURNING 'text'",
        "SELECT 'plain'",
        "SELECT LAST_INSERT_ID()",
        "REPLACE INTO t(id, s) VALUES(2, 'd'), (NULL, 'e') RETURNING s",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO t(id, s) VALUES(70, 'explicit') RETURNING id",
        "SELECT LAST_INSERT_ID(), @@identity",
        "BEGIN",
        "INSERT INTO t(s) VALUES('f') RETURNING id",
        "COMMIT",
        "SELECT LAST_INSERT_ID()",
    ];
    last_insert_id_in_transactions_and_procedures = &[
        "CREATE PROCEDURE p() BEGIN INSERT INTO t(s) VALUES('in p'); SELECT LAST_INSERT_ID() AS inside; END",
        "BEGIN",
        "INSERT INTO t(s) VALUES('a')",
        "SELECT LAST_INSERT_ID()",
        "COMMIT",
        "SELECT LAST_INSERT_ID()",
        "BEGIN",
        "INSERT INTO t(s) VALUES('b')",
        "ROLLBACK",
        "SELECT LAST_INSERT_ID()",
        "CALL p()",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO nowhere VALUES(1)",
        "SELECT LAST_INSERT_ID()",
    ];
    found_rows = &[
        "INSERT INTO t(s) VALUES('a'), ('b'), ('c'), ('d'), ('e')",
        "SELECT * FROM t",
        "SELECT FOUND_ROWS()",
        "SELECT id FROM t ORDER BY id LIMIT 2",
        "SELECT FOUND_ROWS() AS n",
        "SELECT * FROM t WHERE id < 0",
        "SELECT FOUND_ROWS()",
        "SELECT id INTO @x FROM t WHERE id = 3",
        "SELECT FOUND_ROWS()",
        "SELECT * FROM t LIMIT 4",
        "SELECT @x, FOUND_ROWS()",
        "SELECT 1",
        "SELECT found_rows() + 0 AS x, 'y' AS y;",
    ];
    calculated_found_rows = &[
        "INSERT INTO t(s) VALUES('a'), ('b'), ('c'), ('d'), ('e')",
        "SELECT SQL_CALC_FOUND_ROWS id FROM t ORDER BY id LIMIT 2",
        "SELECT FOUND_ROWS()",
        "SELECT SQL_CALC_FOUND_ROWS id FROM t WHERE id > 1 ORDER BY id LIMIT 1, 2",
        "SELECT found_rows() + 0 AS x, 'y' AS y;",
        "SELECT 1",
        "SELECT FOUND_ROWS()",
        "SELECT SQL_CALC_FOUND_ROWS id FROM t ORDER BY id LIMIT 2",
        "SHOW WARNINGS",
        "SELECT FOUND_ROWS()",
        "SELECT SQL_CALC_FOUND_ROWS id FROM t ORDER BY id LIMIT 3",
        "INSERT INTO t(s) VALUES('f')",
        "SET @x = 1",
        "SELECT * FROM missing",
        "SELECT FOUND_ROWS()",
        "SELECT id FROM t ORDER BY id LIMIT 2",
        "SELECT @@warning_count",
        "SELECT FOUND_ROWS()",
        "SELECT id FROM t ORDER BY id LIMIT 2",
        "SHOW COUNT(*) WARNINGS",
        "SELECT FOUND_ROWS()",
    ];
    found_rows_of_stored_code = &[
        "INSERT INTO t(s) VALUES('a'), ('b'), ('c'), ('d'), ('e')",
        "CREATE PROCEDURE three() SELECT * FROM t LIMIT 3",
        "CREATE PROCEDURE page() SELECT SQL_CALC_FOUND_ROWS * FROM t LIMIT 2",
        "SELECT 'x'",
        "CALL three()",
        "SELECT FOUND_ROWS()",
        "SELECT 'x'",
        "CALL page()",
        "SELECT FOUND_ROWS()",
    ];
    errors_before_a_transaction = &[
        "CREATE TABLE u(i INT PRIMARY KEY)",
        "INSERT INTO u VALUES(1)",
        "SET autocommit = 0",
        "INSERT INTO u VALUES(1)",
        "SHOW WARNINGS",
        "ROLLBACK",
        "INSERT INTO u VALUES(1)",
        "SELECT @@error_count",
        "ROLLBACK",
        "INSERT INTO u VALUES(1)",
        "GET DIAGNOSTICS CONDITION 1 @m = MESSAGE_TEXT",
        "SELECT @m",
        "ROLLBACK",
        "SELECT * FROM nowhere",
        "SHOW ERRORS",
        "SET autocommit = 1",
        "INSERT INTO u VALUES(1)",
        "SHOW ERRORS",
    ];
    row_count = &[
        "INSERT INTO t(s) VALUES('a'), ('b'), ('c')",
        "SELECT ROW_COUNT()",
        "UPDATE t SET s = 'a'",
        "SELECT ROW_COUNT()",
        "UPDATE t SET s = 'a'",
        "SELECT row_count() AS n;",
        "DELETE FROM t WHERE id = 3",
        "SELECT ROW_COUNT() + 1",
        "SELECT * FROM t",
        "SELECT ROW_COUNT()",
        "SET @x = 1",
        "SELECT ROW_COUNT()",
        "SELECT * FROM missing",
        "SELECT ROW_COUNT()",
        "CREATE TABLE u(i INT)",
        "SELECT ROW_COUNT()",
    ];
    row_count_after_diagnostics = &[
        "INSERT INTO t(s) VALUES('a'), ('b')",
        "GET DIAGNOSTICS @n = NUMBER",
        "SELECT ROW_COUNT()",
        "UPDATE t SET s = 'x'",
        "GET DIAGNOSTICS @n = ROW_COUNT",
        "SELECT ROW_COUNT() + 0",
    ];
    facts_in_new_tables = &[
        "INSERT INTO t(s) VALUES('a'), ('b'), ('c')",
        "SELECT id FROM t LIMIT 2",
        "CREATE TABLE u AS SELECT ROW_COUNT(), @@warning_count AS w, LAST_INSERT_ID() AS l",
        "SELECT * FROM u",
        "SHOW CREATE TABLE u",
        "SELECT id FROM t LIMIT 2",
        "CREATE TABLE g AS SELECT FOUND_ROWS() AS f",
        "SELECT * FROM g",
        "SHOW CREATE TABLE g",
        "UPDATE t SET s = 'x' WHERE id < 3",
        "CREATE TEMPORARY TABLE v SELECT ROW_COUNT() AS r, 1 + @@error_count",
        "SELECT * FROM v",
        "SHOW CREATE TABLE v",
        "DROP TABLE v",
        "DELETE FROM t WHERE id < 3",
        "CREATE TABLE w (r BIGINT DEFAULT 5, s VARCHAR(20)) (SELECT ROW_COUNT() AS r, s FROM t)",
        "SELECT * FROM w",
        "SHOW CREATE TABLE w",
        "CREATE TABLE x WITH c AS (SELECT @@warning_count) SELECT * FROM c",
        "SELECT * FROM x",
        "SELECT CONNECTION_ID() INTO @c",
        "CREATE TABLE y AS SELECT CONNECTION_ID()",
        "SHOW CREATE TABLE y",
        "SELECT `CONNECTION_ID()` > 0 AS known FROM y",
    ];
    ends_of_nothing = &[
        "SELECT 1 + 'a'",
        "COMMIT",
        "SHOW WARNINGS",
        "SELECT @@warning_count",
        "INSERT INTO t(s) VALUES('a'), ('b'), ('c')",
        "ROLLBACK WORK",
        "SELECT ROW_COUNT()",
        "SELECT LAST_INSERT_ID()",
        "SELECT id FROM t LIMIT 2",
        "/* a pool's */ rollback",
        "SELECT FOUND_ROWS()",
        "SELECT * FROM missing",
        "ROLLBACK",
        "SHOW WARNINGS",
        "SET autocommit = 0",
        "INSERT INTO t(s) VALUES('d')",
        "ROLLBACK",
        "SELECT COUNT(*) FROM t",
        "COMMIT",
        "SET autocommit = 1",
        "SET completion_type = 1",
        "COMMIT",
        "INSERT INTO t(s) VALUES('e')",
        "ROLLBACK",
        "SET completion_type = 0",
        "ROLLBACK",
        "COMMIT AND CHAIN",
        "INSERT INTO t(s) VALUES('f')",
        "ROLLBACK",
        "SELECT COUNT(*) FROM t",
        "START TRANSACTION READ ONLY",
        "COMMIT",
        "BEGIN",
        "COMMIT",
        "COMMIT",
    ];
    names_of_columns = &[
        "INSERT INTO t(s) VALUES('a'), ('b'), ('c')",
        "SELECT x.`ROW_COUNT()` FROM (SELECT ROW_COUNT()) x",
        "SELECT `CONNECTION_ID()` > 0 FROM (SELECT CONNECTION_ID()) x",
        "SELECT id FROM t LIMIT 2",
        "WITH c AS (SELECT FOUND_ROWS()) SELECT `FOUND_ROWS()` FROM c",
        "SELECT `@@warning_count` FROM (SELECT @@warning_count) q",
        "(SELECT CONNECTION_ID() * 0) UNION ALL (SELECT 1) ORDER BY `CONNECTION_ID() * 0`",
        "(SELECT ROW_COUNT())",
        "((SELECT ROW_COUNT()) UNION SELECT 9)",
        "SELECT CASE WHEN ROW_COUNT() > 0 THEN 'y' ELSE 'n' END",
        "SELECT CASE FOUND_ROWS() WHEN 1 THEN 'y' END, ROW_COUNT() IS NULL, 'x'",
        "SELECT @@warning_count IS NOT TRUE, 2 + `k` + ROW_COUNT() FROM t LIMIT 1",
        "SELECT * FROM (SELECT ROW_COUNT(), 1 + FOUND_ROWS()) x, (SELECT @@error_count) y",
        "WITH c AS (SELECT * FROM (SELECT ROW_COUNT()) d) SELECT `ROW_COUNT()` FROM c WHERE `ROW_COUNT()` IN (SELECT ROW_COUNT())",
        "SELECT (SELECT ROW_COUNT()), EXISTS(SELECT ROW_COUNT() FROM t), TRIM(LEADING 'x' FROM ROW_COUNT())",
        "INSERT INTO t(k) SELECT `ROW_COUNT()` FROM (SELECT ROW_COUNT()) z",
        "INSERT INTO t(k) (SELECT 10 + ROW_COUNT())",
        "SELECT k FROM t WHERE k = ANY (SELECT 10 + ROW_COUNT()) OR k = -1",
        "SELECT DISTINCT x.n FROM (SELECT CAST(FOUND_ROWS() AS CHAR) n FROM t UNION SELECT ROW_COUNT()) x",
        "SELECT `connection_id`() * 0",
    ];
    show_warnings = &[
        "SHOW WARNINGS",
        "SELECT 1 + 'a', 2 + 'b', 3 + 'c'",
        "SHOW WARNINGS",
        "SELECT 1 + 'a', 2 + 'b', 3 + 'c'",
        "SHOW WARNINGS LIMIT 1",
        "SHOW WARNINGS LIMIT 1, 1",
        "SHOW WARNINGS LIMIT 5 OFFSET 2",
        "SHOW COUNT(*) WARNINGS",
        "SELECT 1 + 'a'",
        "SELECT @@warning_count",
        "SELECT 1 + 'a', 1 + 'b'",
        "SELECT @@session.warning_count AS w, @@error_count AS e",
        "DROP TABLE IF EXISTS missing",
        "SHOW WARNINGS;",
        "/* c */ show /* d */ warnings",
        "SELECT 1",
        "SHOW WARNINGS",
        "INSERT INTO t(id, s) VALUES(1, 'x')",
        "INSERT IGNORE INTO t(id, s) VALUES(1, 'x'), (2, 'too long a text for this column')",
        "SHOW WARNINGS",
    ];
    show_errors = &[
        "SELECT * FROM missing",
        "SHOW ERRORS",
        "SELECT * FROM missing",
        "SHOW WARNINGS",
        "SHOW COUNT(*) ERRORS",
        "SELEC 1",
        "SHOW ERRORS LIMIT 1",
        "INSERT INTO t(id) VALUES(1)",
        "INSERT INTO t(id) VALUES(1)",
        "SELECT @@error_count",
        "SELECT * FROM missing",
        "SELECT @@error_count, @@warning_count",
        "SELECT 1 + 'a'",
        "SHOW ERRORS",
        "SHOW WARNINGS",
    ];
}

/// Several statements in one text: the first one asks about the statement before, and the rest run.
mod several {
    use super::same_as_private;
    use lab::Flavor;

    macro_rules! in_one_text {
        ($($name:ident = $script:expr;)*) => {
            mod mariadb {
                $(#[test]
                fn $name() {
                    super::same_as_private(super::Flavor::Mariadb, $script);
                })*
            }
            mod mysql {
                $(#[test]
                fn $name() {
                    super::same_as_private(super::Flavor::Mysql, $script);
                })*
            }
        };
    }

    in_one_text! {
        what_follows_warnings_runs = &[
            "SELECT 1 + 'a', 2 + 'b'",
            "SHOW WARNINGS; INSERT INTO t(s) VALUES('one')",
            "SHOW WARNINGS",
            "SELECT id, s FROM t",
            "SELECT 1 + 'a', 2 + 'b', 3 + 'c'",
            "show /* x */ warnings limit 1, 1; INSERT INTO t(s) VALUES('two'); SELECT id, s FROM t",
            "SELECT * FROM missing",
            "SHOW ERRORS; UPDATE t SET s = 'three' WHERE id = 2; SHOW WARNINGS",
            "SELECT 1 + 'a', 2 + 'b'",
            "SHOW ERRORS; SHOW WARNINGS LIMIT 1; SHOW COUNT(*) WARNINGS; SHOW WARNINGS; SELECT id, s FROM t; SHOW WARNINGS",
            "SELECT 1 + 'a', 2 + 'b'",
            "SHOW WARNINGS; SELECT 3 + 'c'; SHOW WARNINGS",
            "SHOW WARNINGS",
            "SELECT 1 + 'a', 2 + 'b'",
            "SHOW WARNINGS; SHOW ERRORS",
            "SHOW WARNINGS",
            "SELECT 1 + 'a', 2 + 'b'",
            "SHOW WARNINGS; SELECT 1 FROM t; SELECT * FROM missing; INSERT INTO t(s) VALUES('never')",
            "SHOW WARNINGS",
            "SELECT 1 + 'a', 2 + 'b'",
            "SHOW WARNINGS; nonsense",
            "SHOW WARNINGS",
            "SELECT id, s FROM t",
        ];
        what_follows_counts_keeps_its_rows = &[
            "INSERT INTO t(s) VALUES('a'), ('b'), ('c')",
            "SHOW COUNT(*) WARNINGS; SELECT id, s FROM t",
            "SELECT 1 + 'a', 2 + 'b'",
            "SHOW COUNT(*) WARNINGS; SELECT id FROM t; SELECT 'x'",
            "SELECT * FROM missing",
            "/* c */ SHOW COUNT(*) ERRORS; SHOW COUNT(*) WARNINGS; SELECT COUNT(*) FROM t",
            "SELECT 1 + 'a', 2 + 'b'",
            "SELECT @@warning_count; SHOW COUNT(*) WARNINGS; SELECT s FROM t; SHOW COUNT(*) WARNINGS",
            "SELECT 1 + 'a', 2 + 'b'",
            "SELECT @@warning_count, @@error_count; SELECT 1",
            "SELECT * FROM missing",
            "SELECT @@error_count; SELECT 1 FROM t; SELECT @@error_count",
            "SELECT 1 + 'a', 2 + 'b'",
            "SHOW COUNT(*) WARNINGS; SELECT @@warning_count AS w; SELECT s FROM t",
            "SELECT 1 + 'a', 2 + 'b'",
            "INSERT INTO t(s) VALUES('d'); SHOW WARNINGS; SELECT @@warning_count",
            "SHOW WARNINGS",
            "INSERT IGNORE INTO t(id) VALUES(1); SHOW WARNINGS; SELECT 1",
            "SHOW WARNINGS",
            "INSERT IGNORE INTO t(id) VALUES(1); SELECT 1",
            "SELECT @@warning_count",
            "INSERT IGNORE INTO t(id) VALUES(1); SELECT 1; SELECT s FROM t",
            "SHOW WARNINGS",
        ];
        row_counts = &[
            "INSERT INTO t(s) VALUES('a'), ('b'), ('c')",
            "SELECT ROW_COUNT(); SELECT 1",
            "UPDATE t SET s = 'x' WHERE id < 3",
            "INSERT INTO t(k, s) VALUES(ROW_COUNT(), 'first'); SELECT ROW_COUNT()",
            "SELECT k FROM t WHERE s = 'first'",
            "UPDATE t SET s = 'y' WHERE id < 3",
            "SET @r = ROW_COUNT(); SELECT @r, ROW_COUNT()",
            "UPDATE t SET s = 'z' WHERE id < 3",
            "UPDATE t SET k = 100 + ROW_COUNT() WHERE id = 3; SELECT k FROM t WHERE id = 3",
            "UPDATE t SET s = 'w' WHERE id < 3",
            "SELECT ROW_COUNT() AS n, CONNECTION_ID() > 0; UPDATE t SET s = 'v'; SELECT ROW_COUNT(), 'x'",
            "SELECT * FROM missing",
            "SELECT ROW_COUNT(); SELECT ROW_COUNT()",
        "UPDATE t SET s = 'u' WHERE id < 3",
        "GET DIAGNOSTICS @n = NUMBER; SELECT ROW_COUNT(), 'x'",
        ];
        found_rows = &[
            "INSERT INTO t(s) VALUES('a'), ('b'), ('c')",
            "SELECT id FROM t",
            "SELECT FOUND_ROWS(); SELECT FOUND_ROWS()",
            "SELECT id FROM t",
            "SET @x = 1; SELECT FOUND_ROWS(), @x",
            "SELECT id FROM t",
            "INSERT INTO t(s) VALUES('d'); SELECT FOUND_ROWS() AS f",
            "SELECT id FROM t",
            "INSERT INTO t(s) VALUES('e'); SET @x = 2",
            "SELECT FOUND_ROWS()",
            "SELECT id FROM t WHERE id < 3",
            "SHOW WARNINGS; INSERT INTO t(s) VALUES('f')",
            "SELECT FOUND_ROWS()",
            "SELECT id FROM t; SELECT id FROM t WHERE id < 3; SELECT FOUND_ROWS()",
            "SELECT id FROM t WHERE id < 4; SET @x = 3",
            "SELECT FOUND_ROWS()",
            "SELECT SQL_CALC_FOUND_ROWS id FROM t ORDER BY id LIMIT 1; SELECT FOUND_ROWS()",
        ];
        settings_leave_counts = &[
            "INSERT INTO t(s) VALUES('a'), ('b'), ('c'), ('d')",
            "CREATE PROCEDURE three() UPDATE t SET s = CONCAT(s, 'z') WHERE id < 4",
            "SELECT id FROM t WHERE id < 3",
            "SET NAMES latin1; UPDATE t SET s = 'x' WHERE id < 4",
            "SELECT ROW_COUNT()",
            "SELECT id FROM t WHERE id < 3",
            "SET NAMES utf8mb4; INSERT INTO t(s) VALUES('e'), ('f')",
            "SELECT FOUND_ROWS()",
            "SET NAMES latin1; CALL three()",
            "SELECT ROW_COUNT()",
            "SET NAMES utf8mb4; SELECT 1 UNION SELECT 2",
            "SELECT FOUND_ROWS()",
            "SET NAMES latin1; SELECT 1 + 'a' UNION SELECT 2",
            "SHOW WARNINGS",
            "SELECT FOUND_ROWS()",
            "BEGIN",
            "SELECT 1 UNION SELECT 2 UNION SELECT 3; SET @a = UUID()",
            "SET NAMES utf8mb4",
            "SELECT FOUND_ROWS()",
            "COMMIT",
            "SET @@sql_mode = 'ANSI_QUOTES'; UPDATE t SET s = 'y' WHERE id < 4",
            "SELECT ROW_COUNT()",
        ];
        connection_ids = &[
            "SELECT CONNECTION_ID() INTO @c",
            "SELECT 1; SELECT CONNECTION_ID() = @c AS same",
            "BEGIN",
            "INSERT INTO t(k) VALUES(CONNECTION_ID())",
            "SELECT COUNT(*) FROM information_schema.processlist p JOIN t ON p.id = t.k",
            "SELECT 1; SELECT COUNT(*) FROM information_schema.processlist WHERE id = CONNECTION_ID()",
            "ROLLBACK",
            "SELECT 1; CREATE PROCEDURE told() SELECT CONNECTION_ID() AS c",
            "SELECT LOCATE('CONNECTION_ID', ROUTINE_DEFINITION) > 0 AS l FROM information_schema.ROUTINES WHERE ROUTINE_NAME = 'told' AND ROUTINE_SCHEMA = DATABASE()",
        ];
    }
}

/// The id of the greeting is the session's for its whole life, whatever backend serves it.
fn connection_id(world: &World) {
    let (mut a, mut b) = world.pair();
    for _ in 0..3 {
        for peer in [&mut a, &mut b] {
            let id = peer.connection_id().to_string();
            assert_eq!(peer.get("SELECT CONNECTION_ID()"), id);
            assert_eq!(peer.get("select connection_id() as x;"), id);
            assert_eq!(peer.row("SELECT CONNECTION_ID() + 0, 'y'"), format!("{id} y"));
            peer.exec("SET @id = (SELECT CONNECTION_ID())");
            assert_eq!(peer.get("SELECT @id = CONNECTION_ID()"), "1");
            assert_eq!(peer.get("SELECT @@pseudo_thread_id"), id);
            assert_eq!(peer.row("SELECT @@session.pseudo_thread_id + 0, 'y'"), format!("{id} y"));
        }
    }
}

/// Server tables about connections are searched with the number that the server itself uses.
fn connection_id_among_rows(world: &World) {
    let (mut a, mut b) = world.pair();
    for _ in 0..2 {
        for peer in [&mut a, &mut b] {
            for id in ["CONNECTION_ID()", "@@pseudo_thread_id", "(SELECT CONNECTION_ID())"] {
                let sql = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
                assert_eq!(peer.get(&sql), "1", "{sql}");
            }
        }
    }
    a.exec_all(&["CREATE TABLE t(i INT) ENGINE=InnoDB", "BEGIN", "INSERT INTO t VALUES(1)"]);
    assert_eq!(a.get("SELECT COUNT(*) FROM t JOIN information_schema.processlist p ON p.id = CONNECTION_ID()"), "1");
    a.exec("ROLLBACK");
}

/// Starts a statement that takes long in a thread of its own.
fn long_running(world: &World) -> (u32, thread::JoinHandle<(u16, Peer)>) {
    let mut victim = world.connect();
    let id = victim.connection_id();
    victim.exec("SET @before = 1");
    let text = format!("SELECT SLEEP(60), '{}'", world.schema);
    let running = thread::spawn(move || {
        let reply = victim.ask(&text);
        let code = reply.err().map_or_else(|| if reply.scalar().unwrap().as_deref() == Some("1") { 1317 } else { 0 }, |error| error.code);
        (code, victim)
    });
    let mut root = world.server.root().unwrap();
    let count = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(60), ''{}''%'", world.schema);
    wait::until("the statement to run", LIMIT, || (root.scalar(&count).unwrap().as_deref() == Some("1")).then_some(())).unwrap();
    (id, running)
}

fn kill_query(world: &World) {
    let world = &two_backends(world);
    let (id, running) = long_running(world);
    let mut killer = world.connect();
    killer.exec(&format!("KILL QUERY {id}"));
    let (code, mut victim) = running.join().unwrap();
    assert_eq!(code, 1317);
    assert_eq!(victim.get("SELECT CONNECTION_ID()"), id.to_string());
    assert_eq!(victim.get("SELECT @before"), "1");
    killer.disturb();
}

fn kill_connection(world: &World) {
    let world = &two_backends(world);
    let mut killer = world.connect();
    // One that is idle, then one that is busy.
    let mut idle = world.connect();
    killer.exec(&format!("KILL {}", idle.connection_id()));
    let ended =
        wait::until("the idle session to end", LIMIT, || idle.ping().map_or_else(|e| Some(Err(e)), |r| r.err().map(|e| Ok(e.code))));
    assert_closed(&ended.unwrap());
    let mut busy = world.connect();
    let id = busy.connection_id();
    let sleeping = thread::spawn(move || busy.query("SELECT SLEEP(60), 'kill me'"));
    killer.exec("SELECT 1");
    wait::until("the busy session to end", LIMIT, || {
        killer.ask(&format!("KILL CONNECTION {id}"));
        sleeping.is_finished().then_some(())
    })
    .unwrap();
    assert_closed(&sleeping.join().unwrap());
    assert_eq!(killer.fails("KILL 4294967000"), 1094);
    killer.disturb();
}

/// Libraries that reconnect by themselves do so when the connection is gone, and not when its last answer was an error.
fn assert_closed<T: std::fmt::Debug>(ended: &Result<T, LabError>) {
    assert!(matches!(ended, Err(LabError::Io { .. })), "{ended:?}");
}

/// A statement that runs and one that kills it need a backend each.
fn two_backends(world: &World) -> World {
    let mut other = match &world.proxy {
        None => World::direct(world.flavor()),
        Some(_) => World::proxied(world.flavor(), 2, |builder| builder),
    };
    other.encoding = world.encoding;
    other
}

fn other_sessions_warnings(world: &World) {
    let (mut a, mut b) = world.pair();
    // SHOW WARNINGS goes as text: a refused preparation would itself be the warning that it shows.
    let warnings = |peer: &mut Peer| peer.query("SHOW WARNINGS").unwrap().table().unwrap();
    a.exec("SELECT 1 + 'warning of the first'");
    b.exec("SELECT 1");
    assert!(warnings(&mut b).is_empty());
    a.exec("SELECT 1 + 'warning of the first'");
    b.exec("SELECT 2 + 'warning of the second'");
    let texts = warnings(&mut b);
    assert!(texts.len() == 1 && texts[0][2].as_deref().unwrap().contains("second"), "{texts:?}");
    let statement = a.prepare("SELECT 1 + ?").unwrap();
    a.execute(&statement, &[Param::Text("prepared".to_owned())]).unwrap();
    b.disturb();
    assert_eq!(warnings(&mut a).len(), 1);
}

/// A SET that warns (of a deprecated name) is repeated for each connection of the session: the client must not see these warnings.
fn warnings_of_the_proxys_own_set(world: &World) {
    let setups: &[&str] = if world.is_mysql() {
        &["SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET NAMES utf8mb3", "SET max_delayed_threads = 0"]
    } else {
        &["SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET SESSION TRANSACTION READ ONLY", "SET big_tables = 1"]
    };
    world.connect().exec("CREATE TABLE t(i INT)");
    for setup in setups {
        let (mut a, mut b) = world.pair();
        a.exec_all(&[setup, "SELECT * FROM t"]);
        // The first time the server is asked; later the SET is sent together with the next statement.
        for act in ["SELECT 1", "BEGIN", "DO 1", "SAVEPOINT s", "BEGIN", "SET autocommit = 0"] {
            b.exec("SELECT * FROM t");
            assert!(a.query(act).unwrap().err().is_none(), "{act}");
            let seen = a.query("SHOW WARNINGS").unwrap().table().unwrap();
            assert!(seen.is_empty(), "{setup}, {act}: {seen:?}");
            a.exec_all(&["ROLLBACK", "SET autocommit = 1"]);
        }
    }
}

/// MariaDB keeps old warnings over a statement that reads no table: one that pins must not take another session's along.
fn other_sessions_warnings_in_a_pin(world: &World) {
    let mut c = world.connect();
    c.exec_all(&["CREATE TABLE t(s VARCHAR(20) PRIMARY KEY)", "INSERT INTO t VALUES('secret')"]);
    c.exec("CREATE PROCEDURE p() BEGIN DECLARE a INT; SET a = 5; END");
    let mut root = world.server.root().unwrap();
    root.run(format!("CREATE FUNCTION {}.f() RETURNS INT DETERMINISTIC RETURN 3", world.schema)).unwrap();
    let mut acts = vec![
        "BEGIN",
        "START TRANSACTION READ ONLY",
        "PREPARE s FROM 'SELECT 1'",
        "SELECT GET_LOCK('w', 0)",
        "XA START 'w'",
        "SET TRANSACTION READ ONLY",
        "SET ROLE NONE",
        "SET @q = f()",
        "SELECT f() INTO @q",
        "SET autocommit = 0",
        "CALL p()",
    ];
    if !world.is_mysql() {
        acts.extend(["EXECUTE IMMEDIATE 'DO 1'", "BEGIN NOT ATOMIC SET @q = 1; END"]);
    }
    for act in acts {
        let (mut a, mut b) = world.pair();
        a.get("SELECT 1");
        assert_eq!(b.fails("INSERT INTO t VALUES('secret')"), 1062);
        let failed = a.query(act).unwrap().err().map(|error| error.message.clone());
        assert_eq!(failed, None, "{act}");
        let seen = a.query("SHOW WARNINGS").unwrap().table().unwrap();
        assert!(seen.is_empty(), "{act}: {seen:?}");
        assert_eq!(
            a.query("SELECT @@warning_count, @@error_count").unwrap().table().unwrap(),
            [[Some("0".into()), Some("0".into())]],
            "{act}"
        );
    }
}

/// Before a text that may change LAST_INSERT_ID() the session's own value is set, but the text shows the diagnostics of its backend.
fn diagnostics_before_several(world: &World) {
    let options = world.options().with(Capabilities::MULTI_STATEMENTS);
    let mut b = world.connect_with(&options);
    for (text, expected) in [("SHOW WARNINGS; SELECT 1", "Warning"), ("SELECT @@warning_count, LAST_INSERT_ID(); SELECT 1", "1")] {
        let mut a = world.connect_with(&options);
        b.exec("DO LAST_INSERT_ID(5)");
        a.exec_all(&["BEGIN", "SELECT CAST('1a' AS SIGNED)"]);
        assert_eq!(a.query(text).unwrap().scalar().unwrap().as_deref(), Some(expected), "{text}");
        a.exec("COMMIT");
    }
}

/// MariaDB writes numbers too in the character set of the results.
fn numbers_in_wide_results(world: &World) {
    let (mut a, mut b) = world.pair();
    a.encoding = Encoding::Text;
    for wide in ["utf16", "utf32", "ucs2", "utf16le"] {
        a.exec(&format!("SET character_set_results = {wide}"));
        for (sql, number) in [
            ("SELECT FOUND_ROWS()", "2"),
            ("SELECT ROW_COUNT()", "-1"),
            ("SELECT @@warning_count", "0"),
            ("SELECT @@error_count AS e", "0"),
            ("SHOW COUNT(*) WARNINGS", "0"),
            ("SHOW COUNT(*) ERRORS", "0"),
        ] {
            a.exec("SELECT 1 UNION SELECT 2");
            b.exec("SELECT 1 + 'a'");
            let told = a.get(sql);
            assert_eq!(told, a.get(&format!("SELECT {number}")), "{wide}: {sql}");
        }
    }
}

/// Several statements of which one fails, or all are refused, keep no backend when none of them leaves anything.
fn failed_texts_leave_nothing(world: &World) {
    let mut b = world.connect();
    for capabilities in [Capabilities::MULTI_STATEMENTS, Capabilities::empty()] {
        let mut a = world.connect_with(&world.options().with(capabilities));
        for first in ["SHOW WARNINGS", "SHOW ERRORS LIMIT 1", "SHOW COUNT(*) WARNINGS", "SHOW COUNT(*) ERRORS", "SELECT ROW_COUNT()"] {
            assert!(a.query(format!("{first}; SELECT * FROM missing")).unwrap().err().is_some(), "{first}");
            assert_eq!(b.get("SELECT 'served'"), "served", "{first}");
        }
    }
}

/// FOUND_ROWS() does not count the rows that RETURNING gives.
fn returning(world: &World) {
    if world.is_mysql() {
        return;
    }
    let (mut a, mut b) = world.pair();
    a.exec_all(&["CREATE TABLE t(id INT AUTO_INCREMENT PRIMARY KEY)", "INSERT INTO t VALUES(1), (2), (3)", "SELECT * FROM t LIMIT 2"]);
    for sql in ["INSERT INTO t VALUES(4) RETURNING id", "REPLACE INTO t VALUES(4) RETURNING id", "DELETE FROM t WHERE id = 1 RETURNING id"]
    {
        a.exec(sql);
        b.disturb();
        assert_eq!(a.get("SELECT FOUND_ROWS() + 1"), "3", "{sql}");
        a.exec("SELECT * FROM t LIMIT 2");
    }
}

/// Servers refuse user variables without a name, and MySQL those whose name is too long (3061).
fn names_that_no_variable_has(world: &World) {
    let long = "v".repeat(65);
    for name in ["", &*long] {
        for sql in [format!("SELECT @`{name}` := 1"), format!("SET @`{name}` = 1"), format!("SELECT 1 INTO @`{name}`")] {
            let (mut a, mut b) = world.pair();
            let refused = a.query(&sql).unwrap().err().map(|error| error.code);
            let expected = match (world.is_mysql(), name.is_empty()) {
                (true, _) => Some(3061),
                (false, true) => Some(1064),
                (false, false) => None,
            };
            assert_eq!(refused, expected, "{sql}");
            b.disturb();
            assert_eq!(a.get("SELECT 'served'"), "served", "{sql}");
            if expected.is_none() {
                b.disturb();
                assert_eq!(a.get(&format!("SELECT @`{name}` + 1")), "2", "{sql}");
            }
        }
    }
}

/// FOUND_ROWS() is the server's own, whatever a LIMIT leaves out at the front.
fn found_rows_behind_an_offset(world: &World) {
    let mut peer = world.connect();
    peer.exec_all(&["CREATE TABLE five(a INT, `offset` INT)", "INSERT INTO five VALUES (1,1),(2,2),(3,3),(4,4),(5,5)"]);
    let options = ConnectOptions::app(world.server).database(&world.schema).timeout(LIMIT);
    let mut direct = Peer::with(&options, world.encoding);
    let mut other = world.connect();
    let mut compare = |text: &str, run: &dyn Fn(&mut Peer) -> usize| {
        let seen = [&mut direct, &mut peer].map(|peer| {
            peer.exec("SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7");
            let rows = run(peer);
            other.disturb();
            (rows, peer.get("SELECT FOUND_ROWS()"))
        });
        assert_eq!(seen[0], seen[1], "{text}: direct, and here");
    };
    for sql in [
        "SELECT a FROM five LIMIT 2",
        "SELECT a FROM five LIMIT 2 OFFSET 1",
        "SELECT a FROM five LIMIT 2 OFFSET 4",
        "SELECT a FROM five LIMIT 2 OFFSET 5",
        "SELECT a FROM five LIMIT 2 OFFSET 9",
        "SELECT a FROM five LIMIT 0, 2",
        "SELECT a FROM five LIMIT 1, 0",
        "SELECT a FROM five LIMIT 0 OFFSET 3",
        "SELECT a FROM five LIMIT 3, 100",
        "SELECT a FROM five ORDER BY a DESC LIMIT 2 OFFSET 7",
        "SELECT a FROM five GROUP BY a LIMIT 2 OFFSET 1",
        "SELECT DISTINCT a FROM five LIMIT 2 OFFSET 5",
        "SELECT COUNT(*) FROM five LIMIT 1 OFFSET 1",
        "SELECT 1 LIMIT 1 OFFSET 1",
        "SELECT a FROM five WHERE 0 LIMIT 0, 2",
        "SELECT a FROM five WHERE a > 9 LIMIT 2 OFFSET 1",
        "SELECT a FROM five UNION SELECT a + 1 FROM five LIMIT 2 OFFSET 1",
        "SELECT a FROM five UNION ALL SELECT a FROM five LIMIT 2 OFFSET 50",
        "(SELECT a FROM five LIMIT 2 OFFSET 1) LIMIT 1",
        "(SELECT a FROM five LIMIT 2 OFFSET 1) UNION ALL (SELECT a FROM five LIMIT 1 OFFSET 3)",
        "SELECT a FROM (SELECT a FROM five LIMIT 3 OFFSET 1) d",
        "SELECT a FROM (SELECT a FROM five LIMIT 3 OFFSET 1) d LIMIT 1 OFFSET 1",
        "WITH c AS (SELECT a FROM five) SELECT a FROM c LIMIT 2 OFFSET 1",
        "SELECT `offset` FROM five WHERE `offset` > 2 LIMIT 2",
        "SELECT a FROM five LIMIT 2 OFFSET 1 FOR UPDATE",
    ] {
        compare(sql, &|peer| peer.table(sql).len());
    }
    for (skipped, wanted) in [(0, 2), (1, 2), (4, 2), (5, 2), (9, 1), (2, 0)] {
        let sql = "SELECT a FROM five WHERE a > ? LIMIT ?, ?";
        compare(&format!("{sql}: {skipped}, {wanted}"), &|peer| {
            let statement = peer.prepare(sql).unwrap();
            let params = [Param::Int(0), Param::Int(skipped), Param::Int(wanted)];
            peer.execute(&statement, &params).unwrap().table().unwrap().len()
        });
    }
}
