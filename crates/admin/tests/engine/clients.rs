//! Statements that drivers and tools send on their own.

use admin::{Reply, Role};

use crate::bed::Bed;

/// Statements that are answered OK.
const OK: &[&str] = &[
    "BEGIN",
    "START TRANSACTION",
    "COMMIT",
    "ROLLBACK",
    "SET NAMES utf8mb4",
    "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci'",
    "SET AUTOCOMMIT=0",
    "set autocommit = 1",
    "SET character_set_results = NULL",
    "SET SESSION character_set_results='utf8'",
    "SET SQL_AUTO_IS_NULL = 0",
    "SET SQL_SAFE_UPDATES=1,SQL_SELECT_LIMIT=500",
    "SET SQL_QUOTE_SHOW_CREATE=1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET @@session.sql_mode = 'STRICT_TRANS_TABLES'",
    "SET @OLD=@@SQL_MODE, SQL_MODE=''",
    "SET net_write_timeout=600",
    "USE main",
    "USE `stats`",
    "LOCK TABLES `mysql_users` READ",
    "UNLOCK TABLES",
    "/*!40101 SET NAMES utf8 */",
    "/*!40103 SET TIME_ZONE='+00:00' */;",
    "/*!50717 SELECT COUNT(*) INTO @x FROM performance_schema.session_variables */",
    "/*!40000 ALTER TABLE `x` DISABLE KEYS */",
    "SAVEPOINT sp",
    "RELEASE SAVEPOINT sp",
];

/// Statements with one row, and that row.
const ROW: &[(&str, &str)] = &[
    // Before anything asks for a variable.
    ("SELECT VERSION()", concat!("8.4.0-Tidegate-", env!("CARGO_PKG_VERSION"))),
    ("select @@version_comment limit 1", "(ProxySQL Admin Module)"),
    ("SELECT DATABASE()", "main"),
    ("select DATABASE(), USER() limit 1", "main|admin@127.0.0.1"),
    ("SELECT current_user()", "admin@127.0.0.1"),
    ("SELECT CONNECTION_ID()", "9"),
    ("SELECT @@sql_mode", ""),
    ("SELECT TIMEDIFF(NOW(), UTC_TIMESTAMP())", "00:00:00"),
    ("SELECT @@max_allowed_packet,@@wait_timeout", "67108864|28800"),
    ("SELECT @@lower_case_table_names", "0"),
    ("SELECT @@transaction_isolation", "SERIALIZABLE"),
    ("SELECT @@global.read_only", "0"),
    ("SELECT CAST('test plain returns' AS CHAR(60)) AS anon_1", "test plain returns"),
    ("select @@character_set_client, @@collation_database limit 1", "utf8mb4|utf8mb4_general_ci"),
    (
        "/* mysql-connector-j-9.0.0 (Revision: x) */SELECT  @@session.auto_increment_increment AS auto_increment_increment, \
         @@character_set_client AS character_set_client, @@init_connect AS init_connect, @@net_write_timeout AS net_write_timeout, \
         @@performance_schema AS performance_schema",
        "1|utf8mb4||60|0",
    ),
    ("SHOW VARIABLES LIKE 'lower_case_table_names'", "lower_case_table_names|0"),
    ("SHOW SESSION VARIABLES LIKE 'sql_mode'", "sql_mode|"),
    ("SHOW GLOBAL VARIABLES LIKE 'read_only'", "read_only|0"),
    ("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'main' AND table_name = 'MYSQL_USERS'", "1"),
    (
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_NAME='mysql_users' AND TABLE_SCHEMA='disk' AND ORDINAL_POSITION=2",
        "password",
    ),
    ("SELECT SCHEMA_NAME FROM INFORMATION_SCHEMA.SCHEMATA WHERE SCHEMA_NAME = 'stats'", "stats"),
    ("SELECT COUNT(*) FROM performance_schema.session_variables", "0"),
    ("SELECT 1 FROM DUAL", "1"),
    ("SELECT FROM_UNIXTIME(0)", "1970-01-01 00:00:00"),
    ("SELECT CONCAT(@@version, ' ', @@version_comment) = CONCAT(VERSION(), ' (ProxySQL Admin Module)')", "1"),
];

/// Statements with no row.
const EMPTY: &[&str] = &[
    "SHOW WARNINGS",
    "SHOW PLUGINS",
    "SHOW INDEX FROM mysql_users",
    "SHOW VARIABLES LIKE 'aurora\\_version'",
    "SHOW STATUS LIKE 'binlog_snapshot_gtid_executed'",
    "SHOW VARIABLES LIKE 'ndbinfo\\_version'",
    "SHOW FUNCTION STATUS WHERE Db='main'",
    "SELECT * FROM information_schema.routines WHERE routine_schema='main'",
    "SELECT * FROM information_schema.COLUMN_STATISTICS WHERE SCHEMA_NAME='main'",
];

#[test]
fn the_schema_tells_what_can_be_read() {
    let bed = Bed::new();
    let known = |who, sql: &str| bed.rows_as(who, sql);
    let names = "SELECT TABLE_SCHEMA || '.' || TABLE_NAME FROM information_schema.TABLES";
    let all = known(Role::Admin, names);
    for name in [
        "main.global_variables",
        "main.mysql_users",
        "main.runtime_mysql_users",
        "disk.global_variables",
        "disk.global_settings",
        "disk.tidegate_config_history",
        "stats_history.history_mysql_query_digest",
        "stats_history.history_stats_mysql_connection_pool",
        "stats.stats_mysql_global",
    ] {
        assert_eq!(all.iter().filter(|known| *known == name).count(), 1, "{name}: {all:#?}");
    }
    bed.ok("CREATE TABLE disk.mine (id INT PRIMARY KEY, name VARCHAR NOT NULL)");
    let columns = "SELECT COLUMN_NAME, DATA_TYPE, IS_NULLABLE, COLUMN_KEY FROM Information_Schema.columns WHERE TABLE_NAME='mine'";
    assert_eq!(known(Role::Admin, columns), ["id|bigint|NO|PRI", "name|varchar|NO|"]);
    // A listed table can be read.
    for who in [Role::Admin, Role::Stats] {
        let told = known(who, names);
        assert!(told.len() > 50, "{told:?}");
        for name in told {
            known(who, &format!("SELECT * FROM {name} LIMIT 1"));
        }
        let tables = known(who, "SELECT COUNT(*) FROM information_schema.TABLES");
        let described = "SELECT COUNT(DISTINCT TABLE_SCHEMA || '.' || TABLE_NAME) FROM information_schema.COLUMNS";
        assert_eq!(known(who, described), tables, "{who:?}");
    }
    let schemas = known(Role::Stats, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA");
    assert_eq!(schemas, ["main", "stats", "monitor", "stats_history", "information_schema", "performance_schema"]);
}

#[test]
fn they_go_on() {
    let bed = Bed::new();
    for sql in OK {
        bed.ok(sql);
    }
    for (sql, row) in ROW {
        assert_eq!(bed.rows(sql), [*row], "{sql}");
    }
    for sql in EMPTY {
        assert!(bed.rows(sql).is_empty(), "{sql}");
    }
    assert!(bed.rows("SHOW COLLATION").len() > 200);
    assert_eq!(bed.rows("SHOW COLLATION LIKE 'utf8mb4_0900_ai_ci'"), ["utf8mb4_0900_ai_ci|utf8mb4|255|Yes|Yes|1"]);
    assert_eq!(bed.rows("SHOW COLLATION WHERE Charset = 'utf8mb4' AND `Default` = 'Yes'"), ["utf8mb4_0900_ai_ci|utf8mb4|255|Yes|Yes|1"]);
    assert_eq!(bed.rows("SHOW COLLATION WHERE Id IN (8, 33) AND Collation LIKE 'latin1%'"), ["latin1_swedish_ci|latin1|8|Yes|Yes|1"]);
    assert_eq!(bed.rows("SHOW CHARSET WHERE Maxlen > 3"), ["utf8mb4|utf8mb4_0900_ai_ci||4"]);
    assert!(bed.rows("SHOW CHARSET").len() > 30);
    assert!(bed.rows("SHOW CHARACTER SET LIKE 'utf8%'").len() >= 2);
    assert!(bed.rows("SHOW FULL TABLES FROM `main` LIKE 'mysql_users'") == ["mysql_users|BASE TABLE"]);
    assert_eq!(bed.columns("SELECT @@session.sql_mode, @@version_comment AS c"), ["@@session.sql_mode", "c"]);
    assert!(bed.refused("SELECT @@nonsense").contains("Unknown system variable 'nonsense'"));
    let insert_id = |sql| match bed.reply(Role::Admin, sql) {
        Reply::Ok { insert_id, .. } => insert_id,
        other => panic!("{sql}: {other:?}"),
    };
    assert_eq!(insert_id("INSERT INTO mysql_query_rules (rule_id, active) VALUES (41, 1)"), 41);
    assert_eq!(insert_id("INSERT INTO mysql_query_rules (active) VALUES (1)"), 42);
    assert_eq!(insert_id("INSERT IGNORE INTO mysql_query_rules (rule_id) VALUES (42)"), 0);
    assert_eq!(insert_id("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (3, 'x')"), 0);
    assert_eq!(bed.rows("SELECT rule_id FROM mysql_query_rules WHERE rule_id > 41 FOR UPDATE"), ["42"]);
    for sql in ["BEGIN", "SET NAMES utf8", "USE stats"] {
        assert!(matches!(bed.reply(Role::Stats, sql), admin::Reply::Ok { .. }), "{sql}");
    }
    assert_eq!(bed.rows_as(Role::Stats, "select @@version_comment limit 1"), ["(ProxySQL Admin Module)"]);
}

/// Hashes for `mysql_users.password`, as statements of ProxySQL's users make them.
#[test]
fn passwords_are_hashed() {
    let bed = Bed::new();
    let secret = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";
    assert_eq!(bed.rows("SELECT MYSQL_NATIVE_PASSWORD('secret'), mysql_native_password(x'736563726574')"), [format!("{secret}|{secret}")]);
    let salted = "SELECT CACHING_SHA2_PASSWORD('secret', 'abcdefghijklmnopqrst')";
    assert_eq!(bed.rows(salted), [wire::auth::crypt::generate(b"secret", b"abcdefghijklmnopqrst")]);
    let own = || bed.rows("SELECT CACHING_SHA2_PASSWORD('secret')").remove(0);
    let (first, second) = (own(), own());
    assert_ne!(first, second);
    assert_eq!(wire::auth::crypt::verify(&first, b"secret"), Ok(true));
    for none in ["MYSQL_NATIVE_PASSWORD('')", "CACHING_SHA2_PASSWORD('')", "CACHING_SHA2_PASSWORD('', 'abcdefghijklmnopqrst')"] {
        assert_eq!(bed.rows(&format!("SELECT {none}")), [""], "{none}");
    }
    for function in ["MYSQL_NATIVE_PASSWORD", "CACHING_SHA2_PASSWORD"] {
        assert_eq!(bed.rows(&format!("SELECT {function}(NULL) IS NULL")), ["1"]);
        assert!(bed.refused(&format!("SELECT {function}(12)")).contains("it belongs in quotes"));
        assert!(bed.refused(&format!("SELECT {function}(hex(zeroblob(129)))")).contains("256 bytes at most"));
        bed.refused(&format!("SELECT {function}()"));
    }
    let short = ["NULL", "7", "''", "'abcdefghijklmnopqrs'", "'abcdefghijklmnopqrstu'"];
    for salt in short.into_iter().chain(["'abcdefghijklmnopqrs$'", "'abcdefghijklmnopqré'", "zeroblob(20)"]) {
        let error = bed.refused(&format!("SELECT CACHING_SHA2_PASSWORD('secret', {salt})"));
        assert!(error.contains("a salt has 20 ASCII characters") && !error.contains("secret"), "{salt}: {error}");
    }
    bed.ok(
        "INSERT INTO mysql_users(username, password) VALUES ('u', CACHING_SHA2_PASSWORD('secret')), ('v', MYSQL_NATIVE_PASSWORD('secret'))",
    );
    assert_eq!(
        bed.rows("SELECT username, substr(password, 1, 7) FROM mysql_users WHERE username<>'app' ORDER BY 1"),
        ["u|$A$005$", "v|*14E655"]
    );
}
