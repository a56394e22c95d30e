//! Tables that are computed when they are read.

use admin::Role;

use model::snapshot::ServerStatus;

use crate::bed::Bed;

#[test]
fn any_way_of_naming_them() {
    let bed = Bed::new();
    bed.ok("CREATE VIEW v AS SELECT hostname, status FROM runtime_mysql_servers");
    for sql in [
        "SELECT hostname FROM runtime_mysql_servers ORDER BY 1",
        "SELECT HOSTNAME FROM RUNTIME_MySQL_Servers ORDER BY 1",
        "SELECT a.hostname FROM main.runtime_mysql_servers AS a ORDER BY 1",
        "SELECT hostname FROM v ORDER BY 1",
        "SELECT r.hostname FROM mysql_servers m JOIN runtime_mysql_servers r USING (hostgroup_id, hostname, port) ORDER BY 1",
        "WITH x AS (SELECT * FROM runtime_mysql_servers) SELECT hostname FROM x WHERE hostname IN (SELECT hostname FROM v) ORDER BY 1",
    ] {
        assert_eq!(bed.rows(sql), ["db1", "db2"], "{sql}");
    }
    assert_eq!(bed.rows("SELECT Variable_Value FROM STATS.Stats_MySQL_Global WHERE variable_name='Questions'"), ["7"]);
    assert!(bed.refused("DELETE FROM runtime_mysql_servers").contains("may not be modified"));
    assert!(bed.rows("SELECT * FROM stats_proxysql_servers_status").is_empty(), "known, and nobody publishes it");
    assert!(bed.rows("SELECT * FROM monitor.mysql_server_ping_log").is_empty());
    assert!(bed.rows("SELECT * FROM stats_history.mysql_connections_hour").is_empty());
}

/// SQLite's views see their own schema only: those that look further become TEMP views, unless they were put somewhere.
#[test]
fn views_over_every_schema() {
    let bed = Bed::new();
    for sql in [
        "CREATE VIEW busy AS SELECT srv_host FROM stats_mysql_connection_pool WHERE hostgroup = 7",
        "CREATE VIEW IF NOT EXISTS `both` AS SELECT s.srv_host FROM stats.stats_mysql_connection_pool s JOIN main.mysql_servers m ON 1 \
         WHERE s.hostgroup = 7 AND m.hostname = 'db1'",
        "CREATE VIEW saved (name) AS SELECT hostname FROM disk.mysql_servers WHERE hostgroup_id = 1",
        "CREATE VIEW own AS SELECT hostname FROM runtime_mysql_servers WHERE hostgroup_id = 1",
        "CREATE VIEW stats.of_stats AS SELECT srv_host FROM stats_mysql_connection_pool WHERE hostgroup = 7",
        "CREATE VIEW later AS SELECT a FROM not_there_yet",
    ] {
        assert_eq!(bed.ok(sql), "", "{sql}");
    }
    for (view, row) in [("busy", "db7"), ("both", "db7"), ("saved", "db1"), ("own", "db1"), ("of_stats", "db7"), ("main.own", "db1")] {
        assert_eq!(bed.rows(&format!("SELECT * FROM {view}")), [row], "{view}");
    }
    assert_eq!(bed.rows("SHOW FULL TABLES WHERE Table_type = 'VIEW'"), ["both|VIEW", "busy|VIEW", "later|VIEW", "own|VIEW", "saved|VIEW"]);
    assert_eq!(bed.columns("SELECT * FROM saved"), ["name"]);
    assert!(bed.rows("SHOW CREATE VIEW busy")[0].contains("srv_host FROM stats_mysql_connection_pool"));
    assert_eq!(bed.rows("SHOW FIELDS FROM busy")[0].split('|').next(), Some("srv_host"));
    bed.ok("CREATE TABLE not_there_yet (a)");
    assert!(bed.rows("SELECT * FROM later").is_empty());
    assert_eq!(bed.ok("CREATE VIEW IF NOT EXISTS own AS SELECT 1"), "");
    assert!(bed.refused("CREATE VIEW own AS SELECT 1").contains("already exists"));
    assert!(bed.refused("CREATE VIEW busy AS SELECT Queries FROM stats_mysql_connection_pool").contains("already exists"));
    for sql in [
        "CREATE VIEW main.m AS SELECT srv_host FROM stats_mysql_connection_pool",
        "CREATE VIEW main.m AS SELECT srv_host FROM stats.stats_mysql_connection_pool",
        "CREATE VIEW disk.m AS SELECT hostname FROM runtime_mysql_servers",
    ] {
        let text = bed.refused(sql);
        assert!(text.contains("CREATE TEMP VIEW m"), "{sql}: {text}");
    }
    assert!(bed.refused("SELECT * FROM m").contains("no such table: m"), "what was refused left nothing");
    assert!(bed.refused("CREATE VIEW nowhere.m AS SELECT 1").contains("nowhere"));
    assert!(bed.refused("CREATE VIEW m AS SELEC").contains("syntax error"));
    bed.ok("DROP VIEW busy");
    bed.refused_as(Role::Stats, "CREATE VIEW s AS SELECT 1");
}

#[test]
fn joins_use_each_side_once() {
    let bed = Bed::new();
    let before = *bed.plane.reads.lock().unwrap();
    let sql = "SELECT COUNT(*) FROM stats_mysql_connection_pool a JOIN stats_mysql_connection_pool b ON a.srv_host = b.srv_host AND a.hostgroup = b.hostgroup";
    assert_eq!(bed.rows(sql), ["100"]);
    assert_eq!(*bed.plane.reads.lock().unwrap() - before, 1, "computed once for the statement");
    let mixed = "SELECT COUNT(*) FROM stats_mysql_connection_pool WHERE hostgroup = '7' OR srv_host = 'db8' OR hostgroup = 9.0";
    assert_eq!(bed.rows(mixed), ["3"]);
    assert_eq!(bed.rows("SELECT COUNT(*) FROM stats_mysql_connection_pool WHERE hostgroup = '7'"), ["1"]);
    assert_eq!(bed.rows("SELECT COUNT(*) FROM stats_mysql_connection_pool WHERE hostgroup = 7.0"), ["1"]);
    assert_eq!(bed.rows("SELECT COUNT(*) FROM stats_mysql_connection_pool WHERE srv_host = 'DB8' COLLATE NOCASE"), ["1"]);
    assert_eq!(bed.rows("SELECT COUNT(*) FROM stats_mysql_connection_pool WHERE srv_host IN ('db1', 'db2', 'x')"), ["2"]);
}

#[test]
fn only_the_twin_resets() {
    let bed = Bed::new();
    let sum = |table: &str| bed.rows(&format!("SELECT SUM(Queries) FROM {table}"))[0].clone();
    assert_eq!([sum("stats_mysql_connection_pool"), sum("stats_mysql_connection_pool")], ["300", "300"]);
    bed.rows("EXPLAIN SELECT * FROM stats_mysql_connection_pool_reset");
    bed.rows("SHOW CREATE TABLE stats_mysql_connection_pool_reset");
    assert_eq!(sum("stats_mysql_connection_pool"), "300");
    let both = "SELECT SUM(a.Queries), SUM(b.Queries) FROM stats_mysql_connection_pool a JOIN stats_mysql_connection_pool_reset b USING (hostgroup)";
    assert_eq!(bed.rows(both), ["300|300"]);
    assert_eq!(sum("stats_mysql_connection_pool"), "0");
    *bed.plane.queries.lock().unwrap() = 2;
    bed.ok("TRUNCATE stats.stats_mysql_connection_pool");
    assert_eq!(sum("stats_mysql_connection_pool_reset"), "0");
    assert!(bed.refused("TRUNCATE mysql_servers").contains("DELETE"));
}

#[test]
fn observed_state_is_shown_and_never_saved() {
    let bed = Bed::new();
    let placed = |host, hostgroup, status| bed.plane.placed(host, hostgroup, status);
    let moved = placed("db1", 2, ServerStatus::ShunnedReplicationLag);
    *bed.plane.placements.lock().unwrap() = Some(vec![placed("db2", 2, ServerStatus::Shunned), moved]);
    let shown = bed.rows("SELECT hostname, hostgroup_id, status, max_connections FROM runtime_mysql_servers ORDER BY 1");
    assert_eq!(shown, ["db1|2|SHUNNED|1000", "db2|2|SHUNNED|1000"], "where they are, not where they were put");
    bed.ok("SAVE MYSQL SERVERS FROM RUNTIME");
    assert_eq!(bed.rows("SELECT hostname, hostgroup_id, status FROM mysql_servers ORDER BY 1"), ["db1|1|ONLINE", "db2|2|ONLINE"]);
    bed.ok("UPDATE mysql_servers SET status='shunned' WHERE hostname='db1'");
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    bed.ok("SAVE MYSQL SERVERS FROM RUNTIME");
    assert_eq!(
        bed.rows("SELECT hostname, UPPER(status) FROM mysql_servers ORDER BY 1"),
        ["db1|SHUNNED", "db2|ONLINE"],
        "that is configured"
    );
}

#[test]
fn users_are_two_halves_and_rules_are_active() {
    let bed = Bed::new();
    assert_eq!(bed.rows("SELECT username, backend, frontend FROM runtime_mysql_users ORDER BY 2"), ["app|0|1", "app|1|0"]);
    bed.ok("INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup) VALUES (1,1,'^SELECT',2),(2,0,'x',1)");
    bed.ok("LOAD MYSQL QUERY RULES TO RUNTIME");
    assert_eq!(bed.rows("SELECT rule_id, re_modifiers FROM runtime_mysql_query_rules"), ["1|CASELESS"]);
    bed.ok("DELETE FROM mysql_query_rules");
    bed.ok("SAVE MYSQL QUERY RULES TO MEMORY");
    assert_eq!(bed.rows("SELECT rule_id FROM mysql_query_rules"), ["1", "2"]);
}

#[test]
fn checksums_follow_loads() {
    let bed = Bed::new();
    let line = || bed.rows("SELECT version, checksum FROM runtime_checksums_values WHERE name='mysql_servers'")[0].clone();
    let first = line();
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    let second = line();
    assert_eq!((&first[..2], &second[..2], &first[2..]), ("1|", "2|", &second[2..]));
    bed.ok("UPDATE mysql_servers SET weight=5");
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    assert_ne!(line()[2..], second[2..]);
    let names = bed.rows("SELECT name FROM runtime_checksums_values");
    let expected =
        ["admin_variables", "mysql_query_rules", "mysql_servers", "mysql_servers_v2", "mysql_users", "mysql_variables", "proxysql_servers"];
    assert_eq!(names, expected);
}

#[test]
fn a_reader_sees_statistics_alone() {
    let bed = Bed::new();
    for name in ["stats_mysql_global", "main.stats_mysql_global", "stats.stats_mysql_global", "STATS_MYSQL_GLOBAL"] {
        assert_eq!(bed.rows_as(Role::Stats, &format!("SELECT Variable_Value FROM {name}"))[0], "7", "{name}");
    }
    assert!(bed.rows_as(Role::Stats, "SHOW TABLES").contains(&"stats_mysql_global".to_owned()));
    assert_eq!(bed.rows_as(Role::Stats, "SHOW MYSQL STATUS")[0], "Questions|7");
}

#[test]
fn what_nobody_publishes_is_there_and_empty() {
    let bed = Bed::new();
    for name in ["stats_proxysql_message_metrics", "stats_proxysql_message_metrics_reset", "stats_proxysql_servers_status"] {
        assert_eq!(bed.rows(&format!("SELECT COUNT(*) FROM {name}")), ["0"], "{name}");
    }
}
