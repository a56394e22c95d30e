//! Queries to a running proxy, and the rights to ask them and to change settings.

use crate::bed::{Operator, WHO, before_a, get, insert_server, servers};

#[test]
fn a_login_for_statistics_changes_nothing() {
    let proxy = before_a().start().unwrap();
    get(&mut proxy.connect_app().unwrap(), WHO);
    let mut stats = Operator::login(&proxy, "stats", "stats").unwrap();
    for sql in [
        "INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'x')",
        "DELETE FROM mysql_users",
        "SELECT * FROM mysql_users",
        "SELECT * FROM main.runtime_mysql_users",
        "SELECT * FROM disk.mysql_users",
        "SET mysql-threads=2",
        "LOAD MYSQL SERVERS TO RUNTIME",
        "SAVE MYSQL SERVERS TO DISK",
        "PROXYSQL PAUSE",
        "PROXYSQL SHUTDOWN",
        "PROXYSQL KILL",
        "KILL CONNECTION 1",
        "CONFIG HISTORY",
        "CONFIG APPLY",
        "SELECT CONFIG FILE",
    ] {
        stats.refused(sql);
    }
    for sql in [
        "SHOW TABLES",
        "SELECT * FROM stats_mysql_connection_pool",
        "SELECT * FROM stats.stats_mysql_query_digest",
        "SELECT * FROM stats_mysql_global",
        "SHOW PROCESSLIST",
        "SELECT @@version",
    ] {
        assert!(!stats.rows(sql).is_empty() || sql.contains("PROCESSLIST"), "{sql}");
    }
    assert!(Operator::login(&proxy, "stats", "admin").is_err());
    assert!(Operator::login(&proxy, "app", "app-pass").is_err());
    let mut operator = Operator::of(&proxy);
    assert_eq!(operator.rows("CONFIG DIFF DISK"), Vec::<String>::new());
    assert_eq!(get(&mut proxy.connect_app().unwrap(), WHO), "a");
}

/// A changed login holds for the next one.
#[test]
fn logins_are_changed() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    operator.all(&["SET admin-admin_credentials='admin:admin;root:secret'", "LOAD ADMIN VARIABLES TO RUNTIME"]);
    Operator::login(&proxy, "root", "secret").unwrap().ok("SAVE ADMIN VARIABLES TO DISK");
    assert!(Operator::login(&proxy, "root", "admin").is_err());
    operator.all(&["SET admin-admin_credentials='admin:other'", "LOAD ADMIN VARIABLES TO RUNTIME"]);
    assert!(Operator::login(&proxy, "admin", "admin").is_err());
    assert!(Operator::login(&proxy, "root", "secret").is_err());
    Operator::login(&proxy, "admin", "other").unwrap().rows("CONFIG CHECK");
}

#[test]
fn a_route_is_explained_as_it_is_taken() {
    let [_, b, c] = servers();
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    operator.all(&[
        &insert_server(1, b),
        &insert_server(2, c),
        "INSERT INTO mysql_query_rules (rule_id, active, match_pattern, destination_hostgroup, apply) VALUES (1, 1, 'FOR UPDATE$', 1, 1)",
        "INSERT INTO mysql_query_rules (rule_id, active, match_pattern, destination_hostgroup, apply) VALUES (2, 1, '^SELECT', 2, 1)",
        "LOAD MYSQL SERVERS TO RUNTIME",
        "LOAD MYSQL QUERY RULES TO RUNTIME",
    ]);
    let mut client = proxy.connect_app().unwrap();
    for (sql, name, lines) in [
        (WHO, "c", ["rule 1|no match", "rule 2|matched", "hostgroup|2"]),
        ("SELECT name FROM who FOR UPDATE", "b", ["rule 1|matched", "rule 1|matched", "hostgroup|1"]),
        ("(SELECT name FROM who)", "a", ["rule 1|no match", "rule 2|no match", "hostgroup|0"]),
    ] {
        assert_eq!(get(&mut client, sql), name);
        for ask in [format!("EXPLAIN ROUTE '{sql}'"), format!("EXPLAIN ROUTE '{sql}' USER app SCHEMA test FROM '127.0.0.1'")] {
            let told = operator.rows(&ask);
            for line in lines {
                assert!(told.iter().any(|row| row.starts_with(line)), "{ask}: {line}: {told:#?}");
            }
            let hostgroup = lines[2].replace("hostgroup|", "");
            assert!(told.iter().any(|row| row.starts_with(&format!("server {hostgroup}/127.0.0.1:"))), "{told:#?}");
        }
    }
    assert!(operator.rows("EXPLAIN ROUTE 'SELECT GET_LOCK(1, 1)'").iter().any(|row| row.starts_with("pin|user_lock")));
    assert!(operator.refused("EXPLAIN ROUTE 'SELECT 1' USER nobody").contains("nobody"));
}

#[test]
fn the_caches_and_the_mirrors_part_of_a_route_is_explained() {
    let [_, b, _] = servers();
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    operator.all(&[
        &insert_server(1, b),
        "INSERT INTO mysql_query_rules (rule_id, active, match_pattern, cache_ttl, delay, apply) VALUES (1, 1, '^SELECT name', 5000, 7, 1)",
        "INSERT INTO mysql_query_rules (rule_id, active, match_pattern, mirror_hostgroup, apply) VALUES (2, 1, 'mirrored', 1, 1)",
        "INSERT INTO mysql_query_rules (rule_id, active, match_pattern, mirror_flagOUT, apply) VALUES (3, 1, 'flagged', 9, 1)",
        "INSERT INTO mysql_query_rules (rule_id, active, flagIN, destination_hostgroup, apply) VALUES (4, 1, 9, 1, 1)",
        "LOAD MYSQL SERVERS TO RUNTIME",
        "LOAD MYSQL QUERY RULES TO RUNTIME",
    ]);
    let copy = format!("mirror server 1/127.0.0.1:{}|candidate", b.port());
    for (sql, lines) in [
        (WHO, &["delay|7 ms", "cache|asked first|a result is kept for 5000 ms"][..]),
        ("SELECT name FROM who FOR UPDATE", &["cache|not asked"]),
        ("SELECT 1 /* mirrored */", &["mirror|1|a copy goes there as well (mirror_hostgroup)", &copy]),
        (
            "SELECT 1 /* flagged */",
            &["mirror rule 4|matched", "mirror|1|a copy goes there as well (destination_hostgroup of a rule", &copy],
        ),
        ("SET @x = 'mirrored'", &["mirror|no copy"]),
    ] {
        let told = operator.rows(&format!("EXPLAIN ROUTE '{}'", sql.replace('\'', "''")));
        for line in lines {
            assert!(told.iter().any(|row| row.starts_with(line)), "{sql}: {line}: {told:#?}");
        }
    }
    operator.all(&["SET mysql-query_cache_size_MB=0", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    let told = operator.rows(&format!("EXPLAIN ROUTE '{WHO}'"));
    assert!(told.iter().any(|row| row.starts_with("cache|off|")) && !told.iter().any(|row| row.starts_with("mirror")), "{told:#?}");
}

#[test]
fn settings_in_force_and_where_they_are_from() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let ask = "SHOW EFFECTIVE SETTINGS FOR USER app HOSTGROUP 0";
    let line = |rows: Vec<String>| rows.into_iter().find(|row| row.starts_with("mysql-auto_increment_delay_multiplex|")).unwrap();
    let global = line(operator.rows(ask));
    assert!(global.starts_with("mysql-auto_increment_delay_multiplex|0|"), "{global}");
    operator.all(&[
        "INSERT INTO mysql_hostgroup_attributes (hostgroup_id, hostgroup_settings) VALUES (0, '{\"auto_increment_delay_multiplex\":3}')",
        "LOAD MYSQL SERVERS TO RUNTIME",
    ]);
    let hostgroup = line(operator.rows(ask));
    assert!(hostgroup.contains("|3|") && hostgroup != global, "{hostgroup}");
    operator.all(&["UPDATE mysql_users SET attributes='{\"auto_increment_delay_multiplex\":9}'", "LOAD MYSQL USERS TO RUNTIME"]);
    let user = line(operator.rows(ask));
    assert!(user.contains("|9|"), "{user}");
    assert!(operator.refused("SHOW EFFECTIVE SETTINGS FOR USER nobody HOSTGROUP 0").contains("nobody"));
    assert!(operator.refused("SHOW EFFECTIVE SETTINGS FOR USER app HOSTGROUP x").contains("x"));
}
