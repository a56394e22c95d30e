//! State that keeps a session on its backend: transactions, temporary tables, locks.

use super::super::generate::Maker;
use crate::flavor::Flavor;

const WITHIN: &[&str] = &[
    "INSERT INTO t(s) VALUES('in transaction')",
    "UPDATE t SET n = n + 1 WHERE id = 1",
    "SELECT COUNT(*), MAX(id) FROM t",
    "SELECT id, n FROM t WHERE id < 4 ORDER BY id FOR UPDATE",
    "SAVEPOINT one",
    "DELETE FROM t WHERE id > 3",
    "ROLLBACK TO SAVEPOINT one",
    "RELEASE SAVEPOINT one",
    "SELECT LAST_INSERT_ID()",
    "INSERT INTO t(id) VALUES(1)",
    "SELECT * FROM nowhere",
    "SELECT 1 + 'x'",
    "SHOW WARNINGS",
    "SET @a = 5",
    "SET time_zone = '+03:00'",
    "SELECT @@in_transaction",
];

pub(super) fn plain(maker: &mut Maker) {
    maker.pins();
    maker.one_of(&[
        "BEGIN",
        "START TRANSACTION",
        "START TRANSACTION READ ONLY",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        "BEGIN WORK",
        "start transaction read write",
    ]);
    maker.some_of(WITHIN);
    maker.one_of(&[
        "COMMIT",
        "ROLLBACK",
        "COMMIT WORK",
        "COMMIT AND NO CHAIN",
        "CREATE TABLE IF NOT EXISTS implicit_commit(i INT)",
        "BEGIN",
        "COMMIT AND CHAIN",
        "ROLLBACK AND CHAIN",
    ]);
    maker.sql("ROLLBACK");
    maker.sql("SELECT COUNT(*) FROM t");
}

pub(super) fn autocommit_off(maker: &mut Maker) {
    maker.pins();
    maker.one_of(&["SET autocommit = 0", "SET @@session.autocommit = OFF", "SET SESSION AUTOCOMMIT = 0"]);
    maker.some_of(&[
        "SELECT @@autocommit",
        "SELECT COUNT(*) FROM t",
        "INSERT INTO t(s) VALUES('autocommit off')",
        "COMMIT",
        "SELECT MAX(id) FROM t",
        "UPDATE t SET n = 1 WHERE id = 3",
        "ROLLBACK",
        "SELECT 1",
    ]);
    maker.one_of(&["COMMIT", "ROLLBACK"]);
    maker.sql("SET autocommit = 1");
    maker.sql("SELECT @@autocommit + 0, COUNT(*) FROM t");
}

pub(super) fn characteristics(maker: &mut Maker) {
    maker.pins();
    maker.one_of(&[
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET TRANSACTION READ ONLY",
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY",
    ]);
    maker.some_of(&["SELECT 1", "BEGIN", "SELECT COUNT(*) FROM t", "INSERT INTO t(s) VALUES('read only?')"]);
    maker.sql("COMMIT");
    maker.sql("BEGIN");
    maker.sql("COMMIT");
}

pub(super) fn xa(maker: &mut Maker) {
    maker.pins();
    let id = format!("'{}'", maker.login.schema);
    maker.sql(format!("XA START {id}"));
    maker.some_of(&["INSERT INTO t(s) VALUES('xa')", "SELECT MAX(id) FROM t", "COMMIT"]);
    maker.sql(format!("XA END {id}"));
    match maker.rng.below(3) {
        0 => maker.sql(format!("XA COMMIT {id} ONE PHASE")),
        1 => maker.sql(format!("XA ROLLBACK {id}")),
        _ => {
            maker.sql(format!("XA PREPARE {id}"));
            maker.sql("SELECT 1");
            maker.sql(format!("XA COMMIT {id}"));
        }
    }
    maker.sql("SELECT COUNT(*) FROM t");
}

pub(super) fn temporary_tables(maker: &mut Maker) {
    maker.pins();
    maker.sql("CREATE TEMPORARY TABLE tmp(i INT AUTO_INCREMENT PRIMARY KEY, s TEXT)");
    maker.some_of(&[
        "INSERT INTO tmp(s) VALUES('a'), ('b')",
        "SELECT LAST_INSERT_ID()",
        "SELECT * FROM tmp ORDER BY i",
        "CREATE TEMPORARY TABLE tmp2 SELECT * FROM t WHERE id < 3",
        "SELECT * FROM tmp2 ORDER BY id",
        "CREATE TEMPORARY TABLE t(shadow INT)",
        "SELECT * FROM t ORDER BY 1",
        "ALTER TABLE tmp ADD COLUMN c INT",
        "SHOW CREATE TABLE tmp",
        "CREATE TEMPORARY TABLE IF NOT EXISTS tmp(i INT)",
    ]);
    maker.sql("DROP TEMPORARY TABLE IF EXISTS t");
    maker.sql("DROP TABLE IF EXISTS tmp2");
    maker.one_of(&["DROP TEMPORARY TABLE tmp", "DROP TABLE tmp", "DROP TABLE IF EXISTS tmp"]);
    maker.sql("SELECT COUNT(*) FROM t");
}

pub(super) fn locks(maker: &mut Maker) {
    maker.pins();
    let name = maker.login.schema.clone();
    match maker.rng.below(3) {
        0 => {
            maker.sql(format!("SELECT GET_LOCK('{name}', 0)"));
            maker.sql(format!("SELECT IS_FREE_LOCK('{name}')"));
            maker.either_protocol(&format!("SELECT GET_LOCK('{name}_2', 1) AS second"));
            maker.sql(format!("SELECT RELEASE_LOCK('{name}_2')"));
            maker.sql(format!("SELECT RELEASE_LOCK('{name}'), RELEASE_LOCK('{name}')"));
            maker.sql("SELECT RELEASE_ALL_LOCKS()");
        }
        1 => {
            maker.one_of(&["LOCK TABLES t WRITE, parent READ", "LOCK TABLE t READ", "LOCK TABLES t WRITE"]);
            maker.some_of(&[
                "SELECT COUNT(*) FROM t",
                "UPDATE t SET n = 9 WHERE id = 1",
                "SELECT * FROM child",
                "SELECT * FROM parent ORDER BY id",
            ]);
            maker.sql("UNLOCK TABLES");
        }
        _ => {
            maker.sql("HANDLER t OPEN AS h");
            maker.sql("HANDLER h READ `PRIMARY` FIRST");
            maker.sql("HANDLER h READ `PRIMARY` NEXT LIMIT 2");
            maker.sql("HANDLER h CLOSE");
        }
    }
    if maker.flavor == Flavor::Mariadb && maker.rng.one_in(4) {
        maker.sql("SET STATEMENT sql_mode = '' FOR SELECT @@sql_mode");
    }
    maker.sql("SELECT COUNT(*) FROM t");
}
