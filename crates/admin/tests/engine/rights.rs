//! The rights of the roles.

use std::process::Command;
use std::time::{Duration, Instant};

use admin::{Reply, Role, SessionInfo};

use crate::bed::Bed;

#[test]
fn readers_change_nothing_and_see_no_password() {
    let bed = Bed::new();
    for sql in [
        "LOAD MYSQL USERS TO RUNTIME",
        "SAVE MYSQL USERS TO DISK",
        "PROXYSQL SHUTDOWN",
        "KILL CONNECTION 5",
        "CONFIG APPLY",
        "CONFIG HISTORY",
        "SELECT CONFIG FILE",
        "SELECT CONFIG INTO OUTFILE /tmp/never-written",
        "SET mysql-threads=3",
        "SHOW MYSQL USERS",
        "SHOW MYSQL VARIABLES",
        "SELECT * FROM mysql_users",
        "SELECT * FROM main.global_variables",
        "SELECT * FROM disk.mysql_users",
        "SELECT * FROM runtime_mysql_users",
        "SELECT @@mysql-monitor_password",
        "DELETE FROM stats_mysql_global",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "INSERT INTO stats_history.system_cpu VALUES (1,2,3)",
        "DROP TABLE stats_mysql_global",
        "ATTACH 'x.db' AS x",
        "PRAGMA query_only=0",
        "PRAGMA writable_schema=1",
        "VACUUM",
        "TRUNCATE stats_mysql_query_digest",
        "SELECT load_extension('x')",
        "LOGENTRY x",
    ] {
        bed.refused_as(Role::Stats, sql);
    }
    for sql in ["SHOW CREATE TABLE disk.mysql_users", "SHOW CREATE TABLE mysql_users", "DESCRIBE mysql_users"] {
        let reply = bed.reply(Role::Stats, sql);
        assert!(matches!(&reply, Reply::Err { code: 1146, text, .. } if text.contains("no such table")), "{sql}: {reply:?}");
    }
    assert!(!bed.rows_as(Role::Stats, "SHOW VARIABLES").iter().any(|row| row.contains("credentials")));
    assert_eq!(bed.plane.calls.lock().unwrap().len() + bed.process.0.lock().unwrap().len(), 0);
}

/// The values that an administrator's statement reads are gone afterwards, and were never a reader's.
#[test]
fn readers_see_no_variable_of_an_administrator() {
    let bed = Bed::new();
    let called = "SELECT mysql_variable('admin-admin_credentials')";
    assert_eq!(bed.rows("SELECT @@version_comment, @@admin-admin_credentials <> ''").len(), 1);
    for who in [Role::Stats, Role::Admin] {
        let reply = bed.reply(who, called);
        assert!(matches!(&reply, Reply::Err { text, .. } if text.contains("Unknown system variable")), "{reply:?}");
    }
    assert_eq!(bed.rows_as(Role::Stats, "SELECT @@version_comment"), ["(ProxySQL Admin Module)"]);
    bed.refused_as(Role::Stats, "SELECT @@version_comment, mysql_variable('admin-admin_credentials')");
}

#[test]
fn administrators_stay_inside() {
    let bed = Bed::new();
    for sql in [
        "ATTACH DATABASE '/tmp/x.db' AS x",
        "DETACH DATABASE disk",
        "SELECT load_extension('x')",
        "PRAGMA writable_schema=1",
        "PRAGMA disk.journal_mode=OFF",
        "PRAGMA disk.synchronous=0",
        "CREATE VIRTUAL TABLE z USING live(1)",
        "DROP TABLE mysql_servers",
        "DROP TABLE disk.mysql_servers",
        "DROP TABLE runtime_mysql_servers",
        "ALTER TABLE mysql_users ADD COLUMN x",
        "VACUUM main INTO '/tmp/x.db'",
        "END",
        "SELECT 1; SELECT 2",
        "SELECT * FROM nowhere",
        "LOAD DATA INFILE '/etc/passwd' INTO TABLE t",
    ] {
        bed.refused(sql);
    }
    bed.ok("CREATE TABLE notes (a); ");
    bed.ok("DROP TABLE notes");
    assert_eq!(bed.rows("PRAGMA integrity_check"), ["ok"]);
    bed.ok("VACUUM disk");
}

#[test]
fn read_only() {
    let bed = Bed::new();
    bed.ok("SET admin-read_only=true");
    bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    assert!(bed.refused("DELETE FROM mysql_servers").contains("readonly"));
    assert!(bed.refused("SET mysql-threads=3").contains("readonly"));
    assert_eq!(bed.rows("SELECT @@global.read_only"), ["1"]);
    bed.ok("PROXYSQL READWRITE");
    bed.ok("DELETE FROM mysql_servers");
    bed.ok("PROXYSQL READONLY");
    assert!(bed.refused("DELETE FROM mysql_users").contains("readonly"));
    bed.ok("SET admin-read_only=false");
    bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    bed.ok("DELETE FROM mysql_users");
}

/// What is in memory can still be loaded. Nothing else changes a layer.
#[test]
fn read_only_layers_stay_as_they_are() {
    let bed = Bed::new();
    bed.ok("UPDATE mysql_servers SET weight=5");
    bed.ok("PROXYSQL READONLY");
    let file = bed.datadir.path().join("proxysql.cnf");
    let apply_file = format!("CONFIG APPLY FILE '{}'", file.display());
    for sql in [
        "LOAD MYSQL SERVERS FROM DISK",
        "SAVE MYSQL SERVERS TO DISK",
        "SAVE MYSQL SERVERS FROM RUNTIME",
        "LOAD MYSQL SERVERS FROM CONFIG",
        "CONFIG ROLLBACK 1",
        "CONFIG ROLLBACK SHARED 1",
        "CONFIG REBASE",
        &apply_file,
    ] {
        assert!(bed.refused(sql).contains("readonly"), "{sql}");
    }
    let weights = ["main.mysql_servers", "disk.mysql_servers"].map(|table| bed.rows(&format!("SELECT MAX(weight) FROM {table}")).concat());
    assert_eq!(weights, ["5", "1"]);
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    assert_eq!(bed.rows("SELECT MAX(weight) FROM runtime_mysql_servers"), ["5"]);
    // A declarative proxy follows its file: its own session has no address.
    let own = SessionInfo { user: "declarative".to_owned(), ..SessionInfo::default() };
    let reply = bed.runtime.block_on(bed.handle.execute(Role::Admin, &own, "CONFIG APPLY FILE".into()));
    assert!(matches!(reply, Reply::Ok { .. }), "{reply:?}");
    assert_eq!(bed.rows("SELECT MAX(weight) FROM runtime_mysql_servers"), ["1"]);
}

#[test]
fn odd_statements() {
    let bed = Bed::new();
    assert!(matches!(bed.reply(Role::Admin, " ;; "), Reply::Err { code: 1065, .. }));
    bed.ok("/*!40101 SET NAMES utf8 */;");
    assert_eq!(bed.rows("/* hello */ SELECT 1 -- there\n;"), ["1"]);
    assert_eq!(bed.rows("SELECT 'a;b', NULL, 1.5, 2.0, x'41'"), ["a;b|NULL|1.5|2.0|A"]);
    assert!(bed.refused("SELECT").contains("incomplete input"));
}

#[test]
fn who_reads_statistics_makes_way_for_administrators() {
    let bed = Bed::new();
    let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT COUNT(*) FROM c";
    let handle = bed.handle.clone();
    let reader = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(handle.execute(Role::Stats, &SessionInfo::default(), endless.into()))
    });
    let begin = Instant::now();
    while !reader.is_finished() {
        bed.rows("SELECT 1");
        assert!(begin.elapsed() < Duration::from_secs(20), "it runs to its own limit");
    }
    match reader.join().unwrap() {
        Reply::Err { text, .. } => assert!(text.contains("an administrator's statement was waiting"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// One call of a function cannot be interrupted, so that none of a reader's takes long; and nothing goes to a file.
#[test]
fn readers_calculate_nothing_long() {
    let bed = Bed::new();
    let long = "hex(zeroblob(120000))";
    for sql in [
        "SELECT instr(hex(zeroblob(20000000)), hex(zeroblob(10000000)) || '1')".to_owned(),
        "SELECT length(replace(hex(zeroblob(20000000)), '00', '000'))".to_owned(),
        format!("SELECT length({long} || {long})"),
        format!("SELECT 'a' LIKE '{}'", "%a".repeat(1_000)),
    ] {
        let reply = bed.reply(Role::Stats, &sql);
        assert!(matches!(&reply, Reply::Err { text, .. } if text.contains("too big") || text.contains("too complex")), "{sql}: {reply:?}");
    }
    assert_eq!(bed.rows_as(Role::Stats, &format!("SELECT instr({long}, {long} || '1')")), ["0"]);
}

/// SQLite's memory is limited for the whole process, so that the statement that takes all of it has a process of its own.
#[test]
fn readers_take_no_more_memory_than_there_is() {
    let test = ["--exact", "rights::takes_all_memory", "--ignored"];
    assert!(Command::new(std::env::current_exe().unwrap()).args(test).status().unwrap().success());
}

#[test]
#[ignore = "readers_take_no_more_memory_than_there_is runs it"]
fn takes_all_memory() {
    let bed = Bed::new();
    let heavy = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) \
                 SELECT COUNT(*) FROM (SELECT DISTINCT zeroblob(100000) || i FROM n)";
    let reply = bed.reply(Role::Stats, heavy);
    assert!(matches!(&reply, Reply::Err { text, .. } if text.contains("memory")), "{reply:?}");
}

#[test]
fn readers_get_answers_of_a_bounded_size() {
    let bed = Bed::new();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000) SELECT hex(zeroblob(20000)) FROM n";
    let reply = bed.reply(Role::Stats, rows);
    assert!(matches!(&reply, Reply::Err { text, .. } if text.contains("larger than 32 MiB")), "{reply:?}");
    assert_eq!(bed.rows_as(Role::Admin, rows).len(), 2_000);
}
