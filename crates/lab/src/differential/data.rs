//! The tables, procedures and values that scripts work with.

use super::step::Step;
use crate::flavor::Flavor;

/// Creates everything in the session's schema.
pub(super) fn setup(flavor: Flavor, schema: &str) -> Vec<Step> {
    let mut steps = vec![Step::InitDb(schema.to_owned())];
    let mut sql = |text: &str| steps.push(Step::Query(text.to_owned()));
    sql("CREATE TABLE t(id INT AUTO_INCREMENT PRIMARY KEY, k INT NULL UNIQUE, s VARCHAR(40), n INT NOT NULL DEFAULT 0, KEY(s)) \
         DEFAULT CHARSET=utf8mb4");
    sql("CREATE TABLE big(id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)");
    sql("CREATE TABLE parent(id INT PRIMARY KEY)");
    sql("CREATE TABLE child(id INT PRIMARY KEY, p INT, CONSTRAINT fk FOREIGN KEY(p) REFERENCES parent(id))");
    sql("CREATE TABLE digits(d INT PRIMARY KEY)");
    sql("INSERT INTO digits VALUES(0),(1),(2),(3),(4),(5),(6),(7),(8),(9)");
    sql("INSERT INTO t(k, s, n) VALUES(1,'one',10),(2,'two',20),(3,'three',30),(NULL,NULL,40),(5,'fünf',50)");
    sql("INSERT INTO parent VALUES(1),(2)");
    sql("INSERT INTO child VALUES(10,1)");
    sql(types_table(flavor));
    sql(TYPES_ROWS);
    sql("CREATE VIEW v AS SELECT id, UPPER(s) AS u FROM t WHERE n > 10");
    for procedure in PROCEDURES {
        sql(procedure);
    }
    steps
}

fn types_table(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Mariadb => concat!("CREATE TABLE ty(", types!(), ", own INET6) DEFAULT CHARSET=utf8mb4"),
        Flavor::Mysql => concat!("CREATE TABLE ty(", types!(), ", own VECTOR(2)) DEFAULT CHARSET=utf8mb4"),
    }
}

/// Columns of every type that both products have.
macro_rules! types {
    () => {
        "id INT PRIMARY KEY, ti TINYINT, tu TINYINT UNSIGNED, bo BOOL, si SMALLINT, mi MEDIUMINT UNSIGNED, i INT(8) UNSIGNED ZEROFILL, \
         bi BIGINT, bu BIGINT UNSIGNED, f FLOAT, d DOUBLE, de DECIMAL(20,6), b1 BIT(1), b9 BIT(9), da DATE, dt DATETIME(3), ts TIMESTAMP NULL, \
         tm TIME(6), y YEAR, c CHAR(10), vc VARCHAR(100), cb VARCHAR(20) COLLATE utf8mb4_bin, l1 VARCHAR(20) CHARACTER SET latin1, \
         bn BINARY(4), vb VARBINARY(20), tt TINYTEXT, tx TEXT, mt MEDIUMTEXT, lt LONGTEXT, tb TINYBLOB, bl BLOB, mb MEDIUMBLOB, lb LONGBLOB, \
         en ENUM('a','b','c'), se SET('x','y','z'), js JSON, g POINT"
    };
}
use types;

const TYPES_ROWS: &str = "INSERT INTO ty(id,ti,tu,bo,si,mi,i,bi,bu,f,d,de,b1,b9,da,dt,ts,tm,y,c,vc,cb,l1,bn,vb,tt,tx,mt,lt,tb,bl,mb,lb,en,se,js,g) VALUES\
    (1,-128,255,TRUE,-32768,16777215,42,-9223372036854775808,18446744073709551615,1.5,-2.25e100,12345678901234.567890,b'1',b'101010101',\
    '2024-02-29','2024-02-29 23:59:59.123','2024-06-01 12:00:00','-838:59:58.000001',2024,'char','varchar','Bin','latin','ab','vb',\
    'tt','tx','mt','lt','tb','bl','mb','lb','b','x,z','{\"a\": [1, null, \"s\"]}',ST_GeomFromText('POINT(1 2)')),\
    (2,0,0,FALSE,0,0,0,0,0,0,0,0,b'0',b'0','1000-01-01','1000-01-01 00:00:00','1970-01-02 00:00:01','00:00:00',1901,'','','','','','',\
    '','','','','','','','','a','','[]',ST_GeomFromText('POINT(0 0)')),\
    (3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,\
    NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)";

/// Each uses a table, but for one that warns: MariaDB keeps older warnings over a procedure that uses none, which no reply
/// tells.
const PROCEDURES: &[&str] = &[
    "CREATE PROCEDURE p_many() BEGIN SELECT 1 AS one, 'x' AS x; SELECT id, s FROM t ORDER BY id; UPDATE t SET n = n + 1 WHERE id = 1; SELECT ROW_COUNT() AS r; END",
    "CREATE PROCEDURE p_none() BEGIN UPDATE t SET n = n + 1 WHERE id < 3; END",
    "CREATE PROCEDURE p_out(IN a INT, OUT b INT, INOUT c VARCHAR(20)) BEGIN SET b = a * 2; SET c = CONCAT(c, '!'); SELECT a FROM digits WHERE d = 0; END",
    "CREATE PROCEDURE p_fail() BEGIN SELECT 1; SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'on purpose', MYSQL_ERRNO = 31001; END",
    "CREATE PROCEDURE p_warn() BEGIN SIGNAL SQLSTATE '01000' SET MESSAGE_TEXT = 'a warning', MYSQL_ERRNO = 31002; END",
    "CREATE PROCEDURE p_insert() BEGIN INSERT INTO t(s) VALUES('from procedure'); SELECT LAST_INSERT_ID() AS id; END",
];

/// Statements that show a session's state.
pub(super) const STATE: &[&str] = &[
    "SELECT DATABASE(), @@autocommit, @@sql_mode, @@time_zone",
    "SELECT @@character_set_client, @@character_set_connection, @@character_set_results, @@collation_connection",
    "SELECT @@foreign_key_checks, @@unique_checks, @@sql_select_limit, @@sql_safe_updates, @@group_concat_max_len",
    "SELECT @@sql_notes, @@sql_warnings, @@max_error_count, @@lc_time_names, @@div_precision_increment, @@default_week_format",
    "SELECT @@auto_increment_increment, @@auto_increment_offset, @@wait_timeout, @@lock_wait_timeout, @@sql_auto_is_null",
    "SELECT @a, @b, @nothing",
    "SELECT LAST_INSERT_ID(), @@last_insert_id, @@identity",
    "SHOW VARIABLES LIKE 'sql\\_mode'",
    "SHOW SESSION VARIABLES LIKE 'character\\_set\\_c%'",
];
