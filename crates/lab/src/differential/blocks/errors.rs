//! Failures, warnings, and what can be asked about the statement before.

use super::super::generate::Maker;
use crate::flavor::Flavor;

pub(super) fn failures(maker: &mut Maker) {
    for _ in 0..=maker.rng.below(2) {
        maker.one_of(&[
            "SELEC 1",
            "SELECT * FROM nowhere",
            "SELECT nothing FROM t",
            "SELECT * FROM test_nobody.t",
            "INSERT INTO t(id) VALUES(1)",
            "INSERT INTO t(k) VALUES(1), (1)",
            "INSERT INTO child VALUES(1, 99)",
            "DELETE FROM parent WHERE id = 1",
            "INSERT INTO t(n) VALUES(NULL)",
            "SELECT (SELECT id FROM t)",
            "DROP TABLE nowhere",
            "CREATE TABLE t(i INT)",
            "SELECT 1, 2 UNION SELECT 3",
            "INSERT INTO ty(id, ti) VALUES(99, 1000)",
            "SELECT 18446744073709551615 + 1",
            "SET nosuchvariable = 1",
            "SET time_zone = 'Nowhere/City'",
            "USE test_forbidden_schema",
            "KILL 4294967000",
            "SELECT * FROM mysql.user",
            "",
            "   ",
            "-- nothing",
            ";",
            "SELECT 'unterminated",
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'raised', MYSQL_ERRNO = 31000",
        ]);
        if maker.rng.one_in(2) {
            maker.one_of(&["SHOW ERRORS", "SHOW WARNINGS", "SELECT @@error_count, @@warning_count"]);
        }
    }
}

/// A procedure's effects before its failure are hidden from other sessions: on MariaDB by a pin.
pub(super) fn failing_calls(maker: &mut Maker) {
    maker.pins();
    maker.one_of(&["CALL p_fail()", "CALL p_missing()"]);
    if maker.rng.one_in(2) {
        maker.one_of(&["SHOW ERRORS", "SHOW WARNINGS", "SELECT @@error_count, @@warning_count"]);
    }
    maker.reset_connection();
}

pub(super) fn warnings(maker: &mut Maker) {
    maker.one_of(&[
        "SELECT 1 + 'abc'",
        "SELECT CAST('12x' AS SIGNED), CAST('y' AS SIGNED)",
        "SELECT 1 / 0",
        "DROP TABLE IF EXISTS nowhere, neither",
        "CREATE TABLE IF NOT EXISTS t(i INT)",
        "INSERT IGNORE INTO t(id, s) VALUES(1, 'dup'), (2, 'dup')",
        "INSERT IGNORE INTO ty(id, ti, tu, vc) VALUES(1, 1, 1, 'x')",
        "UPDATE IGNORE t SET k = 1 WHERE id IN (2, 3)",
        "CALL p_warn()",
        "SELECT * FROM nowhere",
        "SELECT STR_TO_DATE('junk', '%Y'), CAST('2024-13-45' AS DATE)",
        "SELECT CONVERT('x' USING utf8mb3)",
        "SELECT 1 + 'a', 1 + 'b', 1 + 'c', 1 + 'd'",
    ]);
    for _ in 0..=maker.rng.below(2) {
        maker.one_of(&[
            "SHOW WARNINGS",
            "SHOW WARNINGS;",
            "show warnings limit 1",
            "SHOW WARNINGS LIMIT 1, 2",
            "SHOW ERRORS",
            "SHOW ERRORS LIMIT 1",
            "SHOW COUNT(*) WARNINGS",
            "SHOW COUNT(*) ERRORS",
            "SELECT @@warning_count",
            "SELECT @@error_count",
            "SELECT @@session.warning_count AS w, @@error_count + 1",
            "/* c */ SHOW WARNINGS",
        ]);
    }
}

/// FOUND_ROWS() is asked only right after a SELECT: in MariaDB its value after other statements is chance.
pub(super) fn found_rows(maker: &mut Maker) {
    // With SQL_CALC_FOUND_ROWS the answer may need the backend until the statement after it.
    maker.pins();
    let mut counted = vec![
        "SELECT * FROM t ORDER BY id LIMIT 2",
        "SELECT SQL_CALC_FOUND_ROWS * FROM t ORDER BY id LIMIT 1",
        "SELECT SQL_CALC_FOUND_ROWS id FROM t WHERE id > 2 ORDER BY id LIMIT 1, 1",
        "SELECT * FROM t WHERE id < 0",
        "SELECT COUNT(*) FROM t",
    ];
    if maker.flavor == Flavor::Mysql {
        // With a LIMIT, which may be sql_select_limit, MariaDB counts all rows of a UNION, asked or not.
        counted.push("SELECT id FROM t UNION ALL SELECT d FROM digits");
    }
    maker.sql(*maker.rng.clone().pick(&counted));
    maker.sql(*maker.rng.clone().pick(&[
        "SELECT FOUND_ROWS()",
        "SELECT FOUND_ROWS() AS total, 1",
        "select found_rows();",
        "SELECT ROW_COUNT() + 1 AS r, FOUND_ROWS()",
        "SELECT FOUND_ROWS() FROM parent LIMIT 1",
    ]));
    maker.sql("SELECT 0");
    maker.sql("SELECT 1");
}

pub(super) fn row_count(maker: &mut Maker) {
    maker.one_of(&[
        "SELECT * FROM t WHERE id < 0",
        "UPDATE t SET n = n + 1",
        "INSERT INTO t(s) VALUES('r'), ('s')",
        "SET @b = 4",
        "SHOW TABLES",
        "SELECT * FROM nowhere",
        "CREATE TABLE IF NOT EXISTS t(i INT)",
    ]);
    for _ in 0..=maker.rng.below(2) {
        maker.one_of(&["SELECT ROW_COUNT()", "SELECT row_count() + 1 AS r", "SELECT ROW_COUNT() AS n FROM parent"]);
    }
}
