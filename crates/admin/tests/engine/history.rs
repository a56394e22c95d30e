//! Samples of statistics, references at LOAD, and what scripts say.

use std::time::{Duration, Instant};

use admin::{Reply, Role};

use crate::bed::{Bed, FILE};

/// Until a query has rows.
fn wait_for(bed: &Bed, sql: &str) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let rows = bed.rows(sql);
        if !rows.is_empty() {
            return rows;
        }
        assert!(Instant::now() < deadline, "{sql}: never a row");
        std::thread::yield_now();
    }
}

#[test]
fn samples_are_taken_as_the_settings_say() {
    let bed = Bed::new();
    for name in ["connections", "connection_pool", "query_cache"] {
        bed.ok(&format!("SET admin-stats_mysql_{name}=1"));
    }
    bed.ok("SET admin-stats_system_cpu=1");
    bed.ok("SET admin-stats_system_memory=1");
    bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    assert_eq!(wait_for(&bed, "SELECT DISTINCT Questions, Slow_queries FROM stats_history.mysql_connections"), ["7|0"]);
    let pool = "SELECT COUNT(*), MAX(Queries), MAX(ConnUsed) FROM stats_history.history_stats_mysql_connection_pool GROUP BY timestamp";
    assert_eq!(wait_for(&bed, pool)[0], "100|3|NULL");
    for table in ["myhgm_connections", "mysql_query_cache", "system_cpu"] {
        wait_for(&bed, &format!("SELECT * FROM stats_history.{table}"));
    }
    wait_for(&bed, "SELECT 1 FROM stats_history.system_memory WHERE resident > 1000000 AND mapped > resident LIMIT 1");
    let status = "SELECT DISTINCT variable_name, variable_value FROM stats_history.history_mysql_status_variables \
                  JOIN stats_history.history_mysql_status_variables_lookup USING (variable_id) WHERE variable_name = 'Questions'";
    assert_eq!(wait_for(&bed, status), ["Questions|7"]);
    let read = *bed.plane.reads.lock().unwrap();
    assert_eq!(bed.rows("SELECT 1"), ["1"]);
    for name in ["connections", "connection_pool", "query_cache"] {
        bed.ok(&format!("SET admin-stats_mysql_{name}=0"));
    }
    bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    assert!(*bed.plane.reads.lock().unwrap() >= read);
}

#[test]
fn the_engine_counts_for_itself() {
    let bed = Bed::new();
    let version = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Servers_table_version'";
    let before: u64 = bed.rows(version)[0].parse().unwrap();
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    bed.ok("LOAD MYSQL USERS TO RUNTIME");
    assert_eq!(bed.rows(version)[0].parse::<u64>().unwrap(), before + 1);
    let memory = bed.rows("SELECT Variable_Value FROM stats.stats_mysql_global WHERE Variable_Name = 'SQLite3_memory_bytes'");
    assert!(memory[0].parse::<u64>().unwrap() > 10_000, "{memory:?}");
    let metrics = bed.rows("SHOW PROMETHEUS METRICS").join("\n");
    for line in ["proxysql_version_info{version=\"", "proxysql_sqlite3_memory_bytes ", "proxysql_servers_table_version_total "] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn a_hostgroup_of_two_clusters_is_refused() {
    let bed = Bed::new();
    bed.ok("INSERT INTO mysql_replication_hostgroups (writer_hostgroup, reader_hostgroup) VALUES (1, 2), (2, 3)");
    let text = bed.refused("LOAD MYSQL SERVERS TO RUNTIME");
    assert!(
        text.contains("mysql_replication_hostgroups, writer_hostgroup=2, column writer_hostgroup: hostgroup 2 is reader_hostgroup"),
        "{text}"
    );
    assert_eq!(bed.applied(), 0);
    bed.refused("SAVE MYSQL SERVERS TO DISK");
    bed.ok("DELETE FROM mysql_replication_hostgroups WHERE writer_hostgroup = 2");
    bed.ok("INSERT INTO mysql_galera_hostgroups (writer_hostgroup, backup_writer_hostgroup, reader_hostgroup, offline_hostgroup, active, \
         max_writers, writer_is_also_reader, max_transactions_behind) VALUES (10, 11, 2, 13, 1, 1, 0, 100)");
    let text = bed.refused("LOAD MYSQL SERVERS TO RUNTIME");
    assert!(text.contains("mysql_galera_hostgroups, writer_hostgroup=10, column reader_hostgroup: "), "{text}");
    bed.ok("UPDATE mysql_galera_hostgroups SET active = 0");
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
}

const LOST: &str = "mysql_users, username=lost, column default_hostgroup: hostgroup 77 has no servers: statements that no rule sends \
     elsewhere wait for one, then fail with error 9001; add one to mysql_servers, or name another hostgroup";

#[test]
fn users_without_servers_are_named() {
    let bed = Bed::new();
    assert!(FILE.contains("default_hostgroup=1"));
    assert_eq!(bed.ok("LOAD MYSQL USERS TO RUNTIME"), "");
    bed.ok("INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('lost', 'x', 77)");
    assert_eq!(bed.ok("LOAD MYSQL USERS TO RUNTIME"), LOST);
    assert_eq!(bed.ok("LOAD MYSQL SERVERS TO RUNTIME"), LOST);
    assert_eq!(bed.ok("LOAD MYSQL VARIABLES TO RUNTIME"), "");
}

/// The first few in the OK, all of them for SHOW WARNINGS.
#[test]
fn a_load_tells_what_leads_nowhere() {
    let bed = Bed::new();
    bed.ok(
        "INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('u1','x',77), ('u2','x',77), ('u3','x',77), ('u4','x',77)",
    );
    let Reply::Ok { info, warnings, .. } = bed.reply(Role::Admin, "LOAD MYSQL USERS TO RUNTIME") else { panic!() };
    assert_eq!(warnings.len(), 4);
    assert!(info.starts_with(&format!("{}; ", warnings[0])) && info.ends_with("; 1 more: SHOW WARNINGS"), "{info}");
    bed.ok("INSERT INTO scheduler (id, interval_ms, filename) VALUES (3, 1000, 'x.sh')");
    bed.ok("INSERT INTO mysql_query_rules (rule_id, active, username, destination_hostgroup) VALUES (7, 1, 'ghost', 78)");
    for (sql, rows) in [
        ("LOAD SCHEDULER TO RUNTIME", vec!["scheduler, id=3, column filename"]),
        (
            "LOAD MYSQL QUERY RULES TO RUNTIME",
            vec!["mysql_query_rules, rule_id=7, column destination_hostgroup", "mysql_query_rules, rule_id=7, column username"],
        ),
        ("LOAD MYSQL VARIABLES TO RUNTIME", vec![]),
        ("DELETE FROM mysql_users WHERE username LIKE 'u_'", vec![]),
        ("LOAD MYSQL USERS TO RUNTIME", vec!["mysql_query_rules, rule_id=7, column username"]),
    ] {
        let Reply::Ok { warnings, .. } = bed.reply(Role::Admin, sql) else { panic!("{sql}") };
        let places: Vec<&str> = warnings.iter().map(|line| line.split_once(": ").unwrap().0).collect();
        assert_eq!(places, rows, "{sql}");
    }
    assert_eq!(bed.columns("CONFIG CHECK"), ["severity", "table", "row", "column", "text"]);
    let rows = bed.rows("CONFIG CHECK");
    let places: Vec<&str> = rows.iter().map(|row| row.rsplit_once('|').unwrap().0).collect();
    let expected = [
        "warning|mysql_query_rules|rule_id=7|destination_hostgroup",
        "warning|mysql_query_rules|rule_id=7|username",
        "warning|scheduler|id=3|filename",
        "note|global_variables|variable_name=admin-admin_credentials|variable_value",
    ];
    assert_eq!(places, expected);
}

#[test]
fn what_scripts_say() {
    let bed = Bed::new();
    for sql in [
        "REPLACE INTO mysql_servers (hostgroup_id, hostname, port, weight) VALUES (1, 'db1', 3306, 7), (1, 'db3', 3306, 1)",
        "INSERT OR REPLACE INTO mysql_users (username, password, default_hostgroup) VALUES ('app', 'secret2', 1)",
        "INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (2, 'db2', 3306) ON CONFLICT DO UPDATE SET weight = 9",
        "UPDATE global_variables SET variable_value='250' WHERE variable_name='mysql-max_connections'",
        "UPDATE mysql_servers SET max_replication_lag = 30 WHERE hostgroup_id IN (SELECT 2)",
        "DELETE FROM mysql_servers WHERE hostname = 'db3'",
        "INSERT INTO mysql_servers (hostgroup_id, hostname, port) SELECT hostgroup_id + 10, hostname, port FROM mysql_servers",
        "BEGIN",
        "DELETE FROM mysql_query_rules",
        "INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES (1, 1, '^SELECT', 2, 1)",
        "COMMIT",
        "LOAD MYSQL SERVERS TO RUNTIME; ",
        "LOAD MYSQL QUERY RULES TO RUNTIME",
        "LOAD MYSQL VARIABLES TO RUNTIME",
        "SAVE MYSQL SERVERS TO DISK",
    ] {
        bed.ok(sql);
    }
    let servers = "SELECT hostgroup_id, hostname, weight FROM runtime_mysql_servers ORDER BY 1, 2";
    assert_eq!(bed.rows(servers), ["1|db1|7", "2|db2|9", "11|db1|1", "12|db2|1"]);
    assert_eq!(
        bed.rows("SELECT FROM_UNIXTIME(first_seen), UNIX_TIMESTAMP() > 0 FROM (SELECT 60 AS first_seen)"),
        ["1970-01-01 00:01:00|1"]
    );
    assert!(bed.ok("ROLLBACK").contains("the admin port has no transactions"));
}

/// Settings without effect are named by the LOAD that puts them in force, and by CONFIG CHECK.
#[test]
fn what_has_no_effect_is_told() {
    let bed = Bed::new();
    let told = |sql: &str| {
        let Reply::Ok { warnings, .. } = bed.reply(Role::Admin, sql) else { panic!("{sql}") };
        warnings
    };
    bed.ok("SET mysql-automatic_detect_sqli='true'");
    bed.ok("SET admin-cluster_mysql_servers_sync_algorithm=2");
    bed.ok("UPDATE mysql_servers SET gtid_port=3307 WHERE hostname='db1'");
    bed.ok("INSERT INTO mysql_hostgroup_attributes (hostgroup_id, autocommit, connection_warming) SELECT hostgroup_id, 1, 1 FROM mysql_servers WHERE hostname='db1'");
    bed.ok("SET mysql-auto_increment_delay_multiplex=5");
    let checked = bed.rows("CONFIG CHECK");
    let split = |row: &String| row.splitn(5, '|').map(str::to_owned).collect::<Vec<_>>();
    let check: Vec<String> =
        checked.iter().map(split).map(|row| format!("{}, {}, column {}: {}", row[1], row[2], row[3], row[4])).collect();
    let wanted = [
        (
            "LOAD MYSQL VARIABLES TO RUNTIME",
            "global_variables, variable_name=mysql-automatic_detect_sqli, column variable_value: kept, but has no effect yet",
        ),
        (
            "LOAD ADMIN VARIABLES TO RUNTIME",
            "global_variables, variable_name=admin-cluster_mysql_servers_sync_algorithm, column variable_value: has no effect: servers are copied \
             as configured, never as observed",
        ),
    ];
    for (sql, text) in wanted {
        assert_eq!(told(sql), [text]);
        assert!(check.iter().any(|line| line == text), "{text}: {check:#?}");
    }
    let servers = told("LOAD MYSQL SERVERS TO RUNTIME");
    for (column, text) in [("gtid_port", "no effect yet"), ("autocommit", "no effect yet")] {
        let is_it = |line: &&String| line.contains(&format!("column {column}: ")) && line.contains(text);
        assert_eq!((servers.iter().filter(is_it).count(), check.iter().filter(is_it).count()), (1, 1), "{column}: {servers:#?} {check:#?}");
    }
    assert_eq!(servers.len(), 2, "{servers:#?}");
    assert!(check.iter().any(|line| line.contains("mysql-auto_increment_delay_multiplex") && line.contains("ProxySQL's default")));
}
