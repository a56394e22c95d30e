//! Commands that are neither LOAD nor SAVE.

use admin::{Reply, Role};
use model::stats::Value;

use crate::bed::Bed;

#[test]
fn the_process() {
    let bed = Bed::new();
    for sql in ["PROXYSQL SHUTDOWN", "PROXYSQL SHUTDOWN SLOW", "PROXYSQL KILL", "PROXYSQL RESTART", "PROXYSQL STOP"] {
        bed.ok(sql);
    }
    bed.rows("SELECT 1");
    let calls = bed.process.0.lock().unwrap().clone();
    assert_eq!(calls, ["shutdown Drain", "shutdown Slow", "shutdown Now", "could_restart", "restart", "stop"]);
    assert_eq!(bed.refused("PROXYSQL START"), "ProxySQL already started");
}

#[test]
fn the_data_plane() {
    let bed = Bed::new();
    bed.ok("proxysql pause");
    assert_eq!(bed.refused("PROXYSQL RESUME"), "not paused");
    for sql in ["PROXYSQL FLUSH LOGS", "PROXYSQL FLUSH QUERY CACHE", "PROXYSQL FLUSH MYSQL CLIENT HOSTS"] {
        bed.ok(sql);
    }
    assert_eq!(*bed.plane.calls.lock().unwrap(), ["pause", "flush Logs", "flush QueryCache", "flush ClientHosts"]);
    assert_eq!(*bed.process.0.lock().unwrap(), ["reopen_log"]);
    assert_eq!(bed.ok("PROXYSQL RELOAD TLS"), "reloaded");
    bed.ok("KILL CONNECTION 5");
    assert_eq!(bed.refused("KILL CONNECTION 6"), "Unknown thread id: 6");
    assert_eq!(bed.refused("KILL CONNECTION six"), "Unknown thread id: six");
    bed.ok("FORGET REPLICA 77");
    for id in ["78", "x", "-1"] {
        assert!(bed.refused(&format!("FORGET REPLICA {id}")).contains(&format!("no replica with server_id {id} has read")), "{id}");
    }
    bed.ok("PROXYSQL FLUSH CONFIGDB");
    bed.ok("SIGNAL MYSQL THREADS");
    bed.ok("LOGENTRY it's 5 o'clock");
    assert_eq!(bed.rows("PULL VERSION MYSQL SERVERS 0 100"), ["1"]);
    let route = bed.rows("EXPLAIN ROUTE 'SELECT ''x''' USER app SCHEMA \"s\" FROM '10.0.0.1' ON '[::1]:6034'");
    for word in ["SELECT 'x'", "app", "\"s\"", "10.0.0.1", "[::1]:6034"] {
        assert!(route[0].contains(word), "{route:?}");
    }
    assert!(bed.refused("EXPLAIN ROUTE SELECT 1").contains("EXPLAIN ROUTE 'statement'"));
    assert_eq!(bed.rows("SHOW EFFECTIVE SETTINGS FOR USER app HOSTGROUP 3"), ["multiplexing|true|app/3"]);
    bed.refused("PROXYSQL NONSENSE");
}

#[test]
fn checksums() {
    let bed = Bed::new();
    for subject in [
        "SERVERS",
        "USERS",
        "QUERY RULES",
        "VARIABLES",
        "REPLICATION HOSTGROUPS",
        "GROUP REPLICATION HOSTGROUPS",
        "GALERA HOSTGROUPS",
        "AURORA HOSTGROUPS",
        "HOSTGROUP ATTRIBUTES",
        "SERVERS SSL PARAMS",
    ] {
        let memory = bed.rows(&format!("CHECKSUM MYSQL {subject}"));
        assert!(memory[0].starts_with(&format!("MYSQL {subject}|0x")), "{memory:?}");
        for layer in ["MEMORY", "mem", "DISK"] {
            assert_eq!(bed.rows(&format!("CHECKSUM {layer} MYSQL {subject}")), memory);
        }
    }
    let before = bed.rows("SELECT GLOBAL_CHECKSUM()");
    bed.ok("UPDATE mysql_servers SET weight=3");
    assert_ne!(bed.rows("CHECKSUM MYSQL SERVERS"), bed.rows("CHECKSUM DISK MYSQL SERVERS"));
    assert_eq!(bed.rows("select global_checksum( )"), before);
    bed.ok("CONFIG APPLY");
    assert_ne!(bed.rows("SELECT GLOBAL_CHECKSUM()"), before);
}

#[test]
fn differences_history_and_rollback() {
    let bed = Bed::new();
    assert!(bed.rows("CONFIG DIFF").is_empty() && bed.rows("CONFIG DIFF DISK").is_empty());
    assert!(bed.rows("CONFIG DIFF FILE").is_empty());
    bed.ok("UPDATE mysql_servers SET weight=9 WHERE hostgroup_id=1");
    bed.ok("DELETE FROM mysql_servers WHERE hostgroup_id=2");
    bed.ok(r#"UPDATE mysql_users SET password='other', attributes='{"additional_password":"secret2","multiplexing":false}'"#);
    bed.ok("SET mysql-threads=3");
    let found = bed.rows("CONFIG DIFF");
    let expected = [
        "mysql_servers|hostgroup_id=1, hostname=db1, port=3306|weight|9|1",
        "mysql_servers|hostgroup_id=2, hostname=db2, port=3306|NULL|NULL|all columns are as their defaults",
        "mysql_users|username=app, backend=1|password|***|***",
        r#"mysql_users|username=app, backend=1|attributes|{"additional_password":"***","multiplexing":false}|"#,
        "global_variables|variable_name=mysql-threads|variable_value|3|2",
    ];
    assert_eq!(found, expected);
    assert_eq!(bed.rows("CONFIG DIFF MEMORY RUNTIME"), expected);
    assert_eq!(bed.rows("CONFIG DIFF RUNTIME"), expected);
    assert_eq!(bed.columns("CONFIG DIFF"), ["table", "key", "column", "memory", "runtime"]);
    assert_eq!(bed.columns("CONFIG DIFF RUNTIME DISK")[3..], ["runtime", "disk"]);
    assert_eq!(bed.columns("CONFIG DIFF HISTORY 1 FILE")[3..], ["history 1", "file"]);
    assert!(bed.refused("CONFIG DIFF MOON").contains("MOON"));

    bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    bed.ok("CONFIG APPLY");
    assert!(bed.rows("CONFIG DIFF").is_empty());
    let history = bed.rows("SELECT id, user, command FROM disk.tidegate_config_history ORDER BY id");
    assert_eq!(history, ["1||start", "2|admin|CONFIG APPLY"]);
    assert_eq!(bed.rows("CONFIG HISTORY").len(), 2);
    assert_eq!(bed.rows("CONFIG DIFF HISTORY 1"), expected);
    let changes = |id: u32| bed.rows(&format!("SELECT changes FROM disk.tidegate_config_history WHERE id={id}")).join("");
    assert_eq!(changes(1), "NULL");
    let expected = "server db1:3306 in hostgroup 1 weight 1 -> 9; -server db2:3306 in hostgroup 2; user app password changed; \
                    user app attributes '' -> {\"additional_password\":\"***\",\"multiplexing\":false}; threads 2 -> 3";
    assert_eq!(changes(2), expected);
    assert_eq!(bed.columns("CONFIG HISTORY")[5], "changes");
    let restart = "mysql-threads takes effect after a restart";
    assert_eq!(bed.ok("CONFIG ROLLBACK 1"), restart, "the disk has this one");
    assert!(bed.rows("CONFIG DIFF").is_empty());
    bed.ok("SAVE MYSQL SERVERS TO DISK");
    bed.ok("UPDATE mysql_servers SET weight=5 WHERE hostname='db1'");
    let Reply::Ok { info, warnings, .. } = bed.reply(Role::Admin, "CONFIG ROLLBACK 2") else { panic!() };
    assert_eq!(info, warnings.join("; "));
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert_eq!(warnings[0], "edits in memory that were not loaded are gone: server db1:3306 in hostgroup 1 weight 1 -> 5");
    assert_eq!(warnings[2], restart);
    assert_eq!(
        warnings[1],
        "the disk still has another configuration, which the next start would use; to keep this one: SAVE MYSQL USERS TO DISK; \
         SAVE MYSQL SERVERS TO DISK; SAVE MYSQL VARIABLES TO DISK"
    );
    assert!(changes(4).contains("-server db2:3306"), "{}", changes(4));
    bed.ok("CONFIG ROLLBACK 1");
    assert!(changes(5).contains("+server db2:3306"), "{}", changes(5));
    assert_eq!(bed.rows("SELECT hostgroup_id, weight FROM runtime_mysql_servers ORDER BY 1"), ["1|1", "2|1"]);
    assert_eq!(bed.rows("SELECT password FROM mysql_users"), ["secret"]);
    assert!(bed.refused("CONFIG ROLLBACK 77").contains("77"));
    assert!(bed.refused("CONFIG ROLLBACK x").contains("x"));
}

#[test]
fn the_history_is_bounded() {
    let bed = Bed::new();
    bed.ok("SET admin-config_history_size=3");
    bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    for weight in 2..8 {
        bed.ok(&format!("UPDATE mysql_servers SET weight={weight}"));
        // The second changes nothing, and pushes nothing out.
        bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
        bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    }
    let ids: Vec<String> = bed.rows("CONFIG HISTORY").iter().map(|line| line.split('|').next().unwrap().to_owned()).collect();
    assert_eq!(ids, ["8", "7", "6"]);
    bed.ok("SET admin-config_history_size=0");
    bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    assert!(bed.rows("CONFIG HISTORY").is_empty());
}

#[test]
fn show() {
    let bed = Bed::new();
    let tables = bed.rows("SHOW TABLES");
    for name in ["mysql_servers", "runtime_mysql_servers", "global_variables", "runtime_global_variables", "runtime_checksums_values"] {
        assert!(tables.iter().any(|table| table == name), "{name}");
    }
    assert!(!tables.iter().any(|table| table.starts_with("sqlite_") || table.starts_with("stats_")));
    assert!(bed.rows("SHOW TABLES FROM stats").contains(&"stats_mysql_global".to_owned()));
    assert!(bed.rows("SHOW TABLES IN `monitor`").contains(&"mysql_server_ping_log".to_owned()));
    assert_eq!(bed.rows("SHOW TABLES LIKE 'mysql\\_serv%'"), ["mysql_servers", "mysql_servers_ssl_params"]);
    assert!(bed.refused("SHOW TABLES FROM moon").contains("Unknown database 'moon'"));
    let ddl = bed.rows("SHOW CREATE TABLE mysql_servers")[0].clone();
    for part in [
        "mysql_servers|CREATE TABLE mysql_servers (",
        "hostgroup_id INT CHECK (hostgroup_id >= 0) NOT NULL DEFAULT 0",
        "PRIMARY KEY (hostgroup_id, hostname, port)",
        "CHECK (UPPER(status) IN ('ONLINE','SHUNNED','OFFLINE_SOFT','OFFLINE_HARD'))",
    ] {
        assert!(ddl.contains(part), "{ddl}");
    }
    assert!(bed.rows("show create table `disk`.`mysql_query_rules`")[0].contains("rule_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL"));
    assert!(bed.rows("SHOW CREATE TABLE stats.stats_mysql_global")[0].contains("Variable_Name VARCHAR NOT NULL"));
    assert!(bed.rows("SHOW CREATE TABLE runtime_mysql_users")[0].contains("CREATE TABLE runtime_mysql_users"));
    assert!(bed.rows("SHOW FIELDS FROM mysql_servers").contains(&"status|varchar(255)|NO||ONLINE|".to_owned()));
    assert_eq!(bed.rows("DESCRIBE `mysql_servers`"), bed.rows("SHOW COLUMNS FROM mysql_servers FROM main"));
    assert_eq!(bed.rows("SHOW FULL COLUMNS FROM stats.stats_mysql_global").len(), 2);
    assert_eq!(bed.rows("SHOW TABLE STATUS LIKE 'mysql_users'")[0].split('|').count(), 18);
    let schemas = bed.rows("SHOW DATABASES");
    assert!(schemas[0].starts_with("0|main|") && schemas.iter().any(|line| line.contains("proxysql.db")));
    let columns = ["SessionID", "user", "db", "hostgroup", "command", "time_ms", "info", "pins", "last_digest_text"];
    assert_eq!(bed.columns("SHOW PROCESSLIST"), columns);
    assert_eq!(bed.columns("SHOW FULL PROCESSLIST").len(), 10, "all columns of the table");
    assert_eq!(bed.rows("SHOW MYSQL STATUS")[0], "Questions|7");
    assert_eq!(bed.rows("SHOW GLOBAL STATUS LIKE 'quest%'"), ["Questions|7"]);
    assert_eq!(bed.rows("SHOW MYSQL SERVERS").len(), 2);
    assert_eq!(bed.rows("SHOW MYSQL USERS").len(), 1);
    assert_eq!(bed.columns("SHOW PROMETHEUS METRICS"), ["Data"]);
    let count = |sql: &str| bed.rows(sql).len();
    assert_eq!(count("SHOW VARIABLES"), count("SHOW MYSQL VARIABLES") + count("SHOW ADMIN VARIABLES"));
    assert_eq!(bed.rows("SHOW VARIABLES LIKE 'mysql-threads'"), ["mysql-threads|2"]);
    for name in ["value", "VALUE", "variable_value", "Variable_Value"] {
        let named = format!("WHERE VARIABLE_NAME = 'mysql-threads' AND {name} = '2'");
        assert_eq!(bed.rows(&format!("SHOW VARIABLES {named}")), ["mysql-threads|2"]);
        assert_eq!(bed.rows(&format!("SHOW MYSQL VARIABLES {named}")), ["mysql-threads|2"]);
        assert!(bed.rows(&format!("SHOW GLOBAL STATUS {named}")).is_empty());
    }
    assert_eq!(bed.rows("SHOW VARIABLES WHERE Variable_name IN ('mysql-threads', 'time_zone')"), ["mysql-threads|2", "time_zone|SYSTEM"]);
    assert!(bed.refused("SHOW NONSENSE").contains("HELP SHOW"));
}

#[test]
fn digests_to_disk() {
    let bed = Bed::new();
    bed.ok("SAVE MYSQL DIGEST TO DISK");
    bed.ok("TRUNCATE TABLE stats.stats_mysql_query_digest");
    bed.ok("TRUNCATE stats_mysql_query_digest_reset");
    bed.refused_as(Role::Stats, "SAVE MYSQL DIGEST TO DISK");
}

/// What cannot be saved counts as before.
#[test]
fn digests_that_cannot_be_saved_stay() {
    let bed = Bed::new();
    let count = || bed.plane.digests.lock().unwrap().push((1..15_i64).map(Value::from).collect());
    let shown = "SELECT * FROM stats_mysql_query_digest";
    count();
    assert_eq!(bed.rows(shown), ["1|2"]);
    bed.ok("SAVE MYSQL DIGEST TO DISK");
    assert_eq!(bed.rows("SELECT COUNT(*) FROM stats_history.history_mysql_query_digest"), ["1"]);
    assert!(bed.rows(shown).is_empty());
    count();
    bed.ok("DROP TABLE stats_history.history_mysql_query_digest");
    assert!(bed.refused("SAVE MYSQL DIGEST TO DISK").contains("history_mysql_query_digest"));
    assert_eq!(bed.rows(shown), ["1|2"]);
}

/// Values that LOAD spells differently.
#[test]
fn what_was_applied_does_not_differ() {
    let bed = Bed::new();
    bed.ok("INSERT INTO mysql_query_rules (rule_id, active, match_digest, re_modifiers) VALUES (1, 1, 'x', NULL), (2, 0, 'y', 'CASELESS')");
    bed.ok("INSERT INTO restapi_routes (timeout_ms, method, uri, script) VALUES (200, 'get', 'u', '/bin/true')");
    for (name, value) in [("mysql-have_ssl", "True"), ("mysql-threads", " 02"), ("mysql-default_session_track_gtids", "own_gtid")] {
        bed.ok(&format!("UPDATE global_variables SET variable_value='{value}' WHERE variable_name='{name}'"));
    }
    bed.ok("CONFIG APPLY");
    assert_eq!(bed.rows("CONFIG DIFF"), Vec::<String>::new());
    bed.ok("UPDATE global_variables SET variable_value='False' WHERE variable_name='mysql-have_ssl'");
    assert_eq!(bed.rows("CONFIG DIFF"), ["global_variables|variable_name=mysql-have_ssl|variable_value|false|true"]);
    bed.ok("UPDATE global_variables SET variable_value='TRUE' WHERE variable_name='mysql-have_ssl'");
    bed.ok("UPDATE mysql_query_rules SET re_modifiers='GLOBAL' WHERE rule_id=1");
    assert_eq!(bed.rows("CONFIG DIFF"), ["mysql_query_rules|rule_id=1|re_modifiers|GLOBAL|"]);
}

#[test]
fn a_file_is_written_that_can_be_read() {
    let bed = Bed::new();
    let file = bed.datadir.path().join("written.cnf");
    bed.ok("INSERT INTO mysql_query_rules (rule_id, active, gtid_from_hostgroup, destination_hostgroup) VALUES (1, 0, 4294967295, 1)");
    bed.ok("INSERT INTO mysql_query_rules (rule_id, active, attributes) VALUES (2, 1, '{\"flagouts\": []}')");
    for sql in ["SELECT CONFIG INTO OUTFILE", "SAVE CONFIG TO FILE"] {
        bed.refused(&format!("{sql} {}", file.display()));
        assert!(!file.exists(), "{sql}");
    }
    assert!(bed.refused("CONFIG CHECK").contains("gtid_from_hostgroup"));
    bed.ok("UPDATE mysql_query_rules SET gtid_from_hostgroup=NULL");
    let error = bed.refused(&format!("SELECT CONFIG INTO OUTFILE {}", file.display()));
    assert!(error.contains("unknown key 'flagouts'"), "{error}");
    bed.ok("UPDATE mysql_query_rules SET attributes=''");
    bed.ok(&format!("SELECT CONFIG INTO OUTFILE {}", file.display()));
    model::load(&file).unwrap();
}

#[test]
fn help_lists_commands_and_prints_one() {
    let bed = Bed::new();
    let all = bed.rows("SHOW COMMANDS");
    assert!(all.len() > 100 && all.iter().any(|row| row.starts_with("LOAD MYSQL USERS TO RUNTIME|")), "{} commands", all.len());
    assert!(bed.rows("SHOW COMMANDS LIKE '%USERS TO RUN%'").iter().all(|row| row.contains("USERS TO RUNTIME")));
    for example in all.iter().filter_map(|row| row.rsplit('|').next()).filter(|example| example.contains(" LIKE '")) {
        assert!(!bed.rows(example).is_empty(), "{example}");
    }
    let of_load = bed.rows("HELP LOAD");
    assert!(of_load.len() > 10 && of_load.iter().all(|row| row.starts_with("LOAD|LOAD ")), "{of_load:?}");
    let one = bed.rows("help 'switchover'");
    assert_eq!(one.len(), 1);
    assert!(one[0].starts_with("SWITCHOVER HOSTGROUP n TO 'host:port'"), "{one:?}");
    assert!(bed.refused("HELP SWICHOVER").contains("did you mean SWITCHOVER"));
    assert!(bed.refused("LOAD MYSQL RULES TO RUN").contains("did you mean LOAD MYSQL QUERY RULES TO RUNTIME?"));
}
