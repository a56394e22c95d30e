//! The state of a session: variables, character sets, the schema.

use super::super::data;
use super::super::generate::Maker;
use super::super::step::{Login, Step};

const COMMON: &[&str] = &[
    "SET sql_mode = ''",
    "SET sql_mode = 'ANSI_QUOTES'",
    "SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')",
    "SET sql_mode = DEFAULT",
    "SET @@session.sql_mode = 'STRICT_ALL_TABLES,PIPES_AS_CONCAT'",
    "SET time_zone = '+05:30'",
    "SET time_zone = '-08:00'",
    "SET time_zone = SYSTEM",
    "SET @@time_zone := DEFAULT",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION TRANSACTION READ WRITE",
    "SET foreign_key_checks = 0",
    "SET foreign_key_checks = ON, unique_checks = OFF",
    "SET unique_checks = 1",
    "SET group_concat_max_len = 7",
    "SET group_concat_max_len = 1024",
    "SET sql_select_limit = 2",
    "SET sql_select_limit = DEFAULT",
    "SET sql_safe_updates = 1",
    "SET sql_safe_updates = 0",
    "SET autocommit = 1",
    "SET AUTOCOMMIT = ON, time_zone = '+01:00'",
    "SET wait_timeout = 1000",
    "SET lock_wait_timeout = 17, innodb_lock_wait_timeout = 11",
];

const RARE: &[&str] = &[
    "SET timestamp = 1700000000",
    "SET timestamp = DEFAULT",
    "SET lc_time_names = 'de_DE'",
    "SET div_precision_increment = 2",
    "SET max_error_count = 1",
    "SET max_error_count = DEFAULT",
    "SET sql_notes = 0",
    "SET sql_notes = 1",
    "SET sql_warnings = 1",
    "SET sql_auto_is_null = 1",
    "SET sql_auto_is_null = 0",
    "SET auto_increment_increment = 3",
    "SET auto_increment_increment = 1, auto_increment_offset = 1",
    "SET default_week_format = 3",
    "SET optimizer_switch = 'index_merge=off'",
    "SET sort_buffer_size = 65536",
    "SET SESSION max_sort_length = 8",
    "SET @@local.net_write_timeout = 33, @@session.net_read_timeout = 34",
    "SET big_tables = 1",
    "SET low_priority_updates = 1",
    "SET @a = 1, time_zone = '+02:00', @b = 'x'",
    "SET SESSION sql_mode = '', nosuchvariable = 3",
    "SET tmp_table_size = 2097152",
    "SET default_storage_engine = MyISAM",
    "SET default_storage_engine = InnoDB",
];

pub(super) fn variables(maker: &mut Maker) {
    for _ in 0..=maker.rng.below(2) {
        if maker.rng.one_in(4) {
            maker.one_of(RARE);
        } else {
            maker.one_of(COMMON);
        }
        if maker.rng.one_in(2) {
            maker.one_of(data::STATE);
        }
    }
    maker.one_of(&[
        "SELECT \"t\", 'a\\\\b'",
        "SELECT GROUP_CONCAT(s ORDER BY id) FROM t",
        "SELECT id FROM t ORDER BY id",
        "SELECT 'a' || 'b', 1 || 0",
        "SELECT ts FROM ty ORDER BY id",
        "SELECT FROM_UNIXTIME(0), UNIX_TIMESTAMP('2024-01-01 00:00:00')",
        "INSERT INTO ty(id, ti, vc) VALUES(50, 300, 'x') ON DUPLICATE KEY UPDATE ti = 300",
        "UPDATE t SET n = 3 WHERE n = 4",
        "INSERT INTO child VALUES(77, 99) ON DUPLICATE KEY UPDATE p = 99",
        "SELECT DATE_FORMAT('2024-05-01', '%M'), 1 / 3",
        "SHOW VARIABLES WHERE variable_name IN ('time_zone', 'sql_mode', 'unique_checks', 'wait_timeout')",
    ]);
}

pub(super) fn charsets(maker: &mut Maker) {
    maker.one_of(&[
        "SET NAMES utf8mb4",
        "SET NAMES latin1",
        "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin'",
        "SET NAMES utf8mb3",
        "SET NAMES DEFAULT",
        "SET NAMES binary",
        "SET CHARACTER SET latin1",
        "SET CHARSET utf8mb4",
        "SET character_set_results = NULL",
        "SET character_set_results = utf8mb4",
        "SET collation_connection = utf8mb4_unicode_ci",
        "SET character_set_client = latin1, character_set_connection = utf8mb4",
        "SET character_set_database = latin1",
        "SET collation_server = latin1_bin",
        "SET NAMES nonsense",
    ]);
    maker.some_of(&[
        "SELECT @@character_set_client, @@character_set_connection, @@character_set_results, @@collation_connection",
        "SELECT 'ä', HEX('ä'), LENGTH('ä'), CHARSET('ä'), COLLATION('x')",
        "SELECT s FROM t WHERE s = 'fünf'",
        "SELECT 'a' = 'A'",
        "INSERT INTO t(s) VALUES('größe')",
    ]);
}

pub(super) fn schemas(maker: &mut Maker) {
    let own = maker.login.schema.clone();
    match maker.rng.below(5) {
        0 => maker.sql("USE test"),
        1 => maker.init_db("information_schema"),
        2 => maker.sql("USE `information_schema`;"),
        3 => maker.init_db("test_nobody"),
        _ => {
            maker.sql(format!("DROP DATABASE IF EXISTS {own}_x"));
            maker.sql(format!("CREATE DATABASE {own}_x"));
            maker.sql(format!("USE {own}_x"));
            maker.sql("CREATE TABLE only_here(i INT)");
            maker.sql("SELECT DATABASE(), COUNT(*) FROM only_here");
            maker.sql(format!("DROP DATABASE {own}_x"));
            maker.sql("SELECT DATABASE(), @@character_set_database");
        }
    }
    maker.one_of(&["SELECT DATABASE()", "SELECT COUNT(*) FROM t", "SHOW TABLES LIKE 't'", "SELECT SCHEMA(), @@collation_database"]);
    maker.sql(format!("USE {own}"));
    maker.one_of(&["SELECT DATABASE()", "SELECT COUNT(*) FROM t"]);
    if maker.rng.one_in(2) {
        maker.step(Step::FieldList("parent".to_owned()));
    }
}

/// Values that are written out can be carried, and those that a server computed, once it was asked for them.
pub(super) fn user_variables(maker: &mut Maker) {
    if maker.rng.one_in(2) {
        maker.some_of(&[
            "SET @a = 1",
            "SET @b = 'text', @c = NULL",
            "SET @a := 2.50",
            "SELECT @a, @b, @c",
            "SELECT @a + 1, CONCAT(@b, '!')",
            "SET @`quoted name` = x'4142'",
            "SELECT @`quoted name`, @A",
            "SELECT n FROM t WHERE id = @a",
        ]);
        return;
    }
    maker.pins();
    maker.some_of(&[
        "SET INSERT_ID = 9000",
        "INSERT INTO t(s) VALUES('chosen id')",
        "SET @a = @a + 1",
        "SELECT @b := COUNT(*) FROM t",
        "SELECT id, s INTO @x, @y FROM t ORDER BY id LIMIT 1",
        "SET @z = (SELECT MAX(id) FROM t)",
        "SELECT @a, @b, @x, @y, @z",
        "SELECT @row := @row + 1, id FROM t, (SELECT @row := 0) init ORDER BY id",
        "CALL p_out(4, @x, @y)",
        "SELECT @x, @y",
    ]);
    if maker.rng.one_in(3) {
        // Its subject is on the backend that the session is pinned to.
        maker.sql("BEGIN");
        maker.sql("SELECT * FROM nowhere");
        maker.sql("GET DIAGNOSTICS @x = NUMBER");
        maker.sql("COMMIT");
        maker.sql("SELECT @x");
    }
    if maker.rng.one_in(3) {
        maker.sql("SET rand_seed1 = 5, rand_seed2 = 9");
        maker.sql("SELECT RAND()");
    }
    maker.reset_connection();
}

pub(super) fn resets(maker: &mut Maker) {
    maker.some_of(&["SET @a = 'before'", "SET time_zone = '+09:00'", "SET NAMES latin1", "INSERT INTO t(s) VALUES('before')"]);
    if maker.rng.one_in(2) {
        maker.reset_connection();
    } else {
        let charset = *maker.rng.pick(&[45, 8, 33]);
        let login = Login { charset, with_schema: true, ..maker.login.clone() };
        maker.step(Step::ChangeUser(login));
        maker.prepared.clear();
    }
    show_state(maker);
    maker.sql("SELECT COUNT(*) FROM t WHERE s = 'before'");
}

/// A role keeps its backend until another login, also none: it may differ from those that a login gives.
pub(super) fn roles(maker: &mut Maker) {
    maker.pins();
    maker.sql("SET ROLE NONE");
    maker.one_of(&["SELECT CURRENT_ROLE()", "SELECT COUNT(*) FROM t", "SET ROLE nobody"]);
    maker.step(Step::ChangeUser(Login { with_schema: true, ..maker.login.clone() }));
    maker.prepared.clear();
}

pub(super) fn show_state(maker: &mut Maker) {
    for _ in 0..=maker.rng.below(3) {
        maker.one_of(data::STATE);
    }
    maker.step(Step::Ping);
}
