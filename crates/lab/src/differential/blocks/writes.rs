//! Statements that change rows and tables.

use super::super::generate::Maker;

pub(super) fn inserts(maker: &mut Maker) {
    let n = maker.rng.below(100);
    for _ in 0..=maker.rng.below(2) {
        let sql = match maker.rng.below(9) {
            0 => format!("INSERT INTO t(s, n) VALUES('single', {n})"),
            1 => format!("INSERT INTO t(s, n) VALUES('several', {n}), (NULL, 1), ('more', 2)"),
            2 => format!("INSERT INTO t(k, s) VALUES({n}, 'first') ON DUPLICATE KEY UPDATE n = n + 1, s = 'again'"),
            3 => format!("INSERT INTO t(k, s) VALUES({n}, 'first') ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), n = n + 1"),
            4 => "INSERT INTO t(s, n) SELECT s, n + 100 FROM t WHERE id < 3 ORDER BY id".to_owned(),
            5 => format!("REPLACE INTO t(k, s) VALUES({n}, 'replaced')"),
            6 => format!("INSERT INTO t(id, s) VALUES({}, 'explicit') ON DUPLICATE KEY UPDATE n = 7", 1000 + n),
            7 => format!("INSERT IGNORE INTO t(k, s) VALUES({n}, 'ignored'), ({n}, 'twice')"),
            _ => "INSERT INTO t SET s = 'set form'".to_owned(),
        };
        maker.either_protocol(&sql);
    }
    if maker.rng.one_in(2) {
        maker.either_protocol("SELECT LAST_INSERT_ID()");
    }
}

pub(super) fn changes(maker: &mut Maker) {
    maker.one_of(&[
        "UPDATE t SET n = n + 1 WHERE id <= 3",
        "UPDATE t SET n = n WHERE id <= 3",
        "UPDATE t SET s = 'same' WHERE id = 1",
        "UPDATE t SET n = LAST_INSERT_ID(n + 5) WHERE id = 2",
        "UPDATE t SET n = 0",
        "UPDATE t JOIN parent ON parent.id = t.id SET t.n = 5",
        "DELETE FROM t WHERE id > 1010",
        "DELETE FROM t WHERE id = -1",
        "DELETE t FROM t JOIN parent ON parent.id = t.id WHERE t.id = 2",
        "UPDATE child SET p = 2 WHERE id = 10",
        "INSERT INTO big(b) VALUES(REPEAT('b', 70000))",
        "UPDATE ty SET vc = CONCAT(vc, '+'), ti = 1 WHERE id = 1",
    ]);
    if maker.rng.one_in(2) {
        maker.either_protocol("SELECT ROW_COUNT()");
    }
}

pub(super) fn schema(maker: &mut Maker) {
    maker.some_of(&[
        "CREATE TABLE x(a INT, b VARCHAR(10)) COMMENT 'ünïcode'",
        "CREATE TABLE IF NOT EXISTS x(a INT)",
        "INSERT INTO x VALUES(1, 'a')",
        "ALTER TABLE x ADD COLUMN c INT DEFAULT 3",
        "SELECT * FROM x",
        "RENAME TABLE x TO y",
        "TRUNCATE TABLE y",
        "ALTER TABLE y ADD INDEX(a), DROP COLUMN b",
        "CREATE OR REPLACE VIEW w AS SELECT 1 AS one",
        "SELECT * FROM w",
        "CREATE TABLE z LIKE t",
        "CREATE TABLE zz SELECT id, s FROM t WHERE id < 3",
    ]);
    maker.sql("DROP TABLE IF EXISTS x, y, z, zz");
    maker.sql("DROP VIEW IF EXISTS w");
}

pub(super) fn insert_ids(maker: &mut Maker) {
    maker.one_of(&[
        "INSERT INTO t(s) VALUES('a')",
        "INSERT INTO t(s) VALUES('a'), ('b'), ('c')",
        "INSERT INTO t(id, s) VALUES(NULL, 'a')",
        "INSERT INTO t(id, s) VALUES(5000, 'a') ON DUPLICATE KEY UPDATE n = n + 1",
        "INSERT INTO t(s, n) VALUES('from id', LAST_INSERT_ID())",
        "INSERT INTO t(s, n) SELECT 'from id', LAST_INSERT_ID() + 1",
        "SELECT LAST_INSERT_ID(77)",
        "SELECT LAST_INSERT_ID(id) FROM t ORDER BY id LIMIT 1",
        "DO LAST_INSERT_ID(3)",
        "SET LAST_INSERT_ID = 12",
        "INSERT INTO t(nothing) VALUES(1)",
        "CALL p_insert()",
        "INSERT INTO big(b) VALUES('x')",
    ]);
    for _ in 0..=maker.rng.below(2) {
        maker.one_of(&[
            "SELECT LAST_INSERT_ID()",
            "SELECT LAST_INSERT_ID();",
            "select last_insert_id() as id",
            "SELECT LAST_INSERT_ID() FROM DUAL",
            "SELECT LAST_INSERT_ID() + 0 AS x, 'y' AS y",
            "SELECT @@last_insert_id",
            "SELECT @@identity",
            "SELECT @@session.identity LIMIT 1",
            "SELECT * FROM t WHERE id = LAST_INSERT_ID()",
            "SELECT IFNULL(LAST_INSERT_ID(), 5), ROW_COUNT()",
            "UPDATE t SET n = n + 1 WHERE id = LAST_INSERT_ID()",
            "INSERT INTO t(s, n) VALUES('again', LAST_INSERT_ID())",
            "SELECT (SELECT LAST_INSERT_ID()) x",
            "SELECT s FROM t WHERE id IS NULL",
        ]);
    }
}
