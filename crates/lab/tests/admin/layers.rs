//! LOAD and SAVE: the session that write-ups show, every form of the commands, and the refusals.

use lab::Tidegate;

use crate::bed::{Operator, alone, get, insert_server, servers};

/// As in public write-ups on read/write split, word by word.
const WRITE_UP: &[&str] = &[
    "INSERT INTO mysql_query_rules (rule_id, active, match_pattern, destination_hostgroup, apply) VALUES(1,1,'^SELECT.*FOR UPDATE$', 1, 1);",
    "INSERT INTO mysql_query_rules (rule_id, active, match_pattern, destination_hostgroup, apply) VALUES(2,1,'^SELECT', 2, 1);",
    "LOAD MYSQL QUERY RULES TO RUNTIME;",
    "SAVE MYSQL QUERY RULES TO DISK;",
];

/// The answer to each statement, before and after the rules are loaded.
const ROUTES: &[(&str, &str, &str)] = &[
    ("SELECT name FROM who", "a", "c"),
    ("SELECT name FROM who FOR UPDATE", "a", "b"),
    ("select name from who for update", "a", "b"),
    ("(SELECT name FROM who)", "a", "a"),
];

#[test]
fn the_session_of_the_write_ups() {
    let [a, b, c] = servers();
    let builder = Tidegate::builder().backend(0, a).backend(1, b).backend(2, c).app_user();
    let mut proxy = builder.start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut client = proxy.connect_app().unwrap();
    let mut route = |wanted: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
        for line in ROUTES {
            assert_eq!(get(&mut client, line.0), wanted(line), "{}", line.0);
        }
    };
    route(|line| line.1);
    operator.all(&WRITE_UP[..2]);
    route(|line| line.1);
    operator.all(&WRITE_UP[2..3]);
    route(|line| line.2);
    operator.all(&WRITE_UP[3..]);
    assert_eq!(operator.rows("SELECT rule_id, match_pattern FROM runtime_mysql_query_rules"), ["1|^SELECT.*FOR UPDATE$", "2|^SELECT"]);
    assert_eq!(operator.rows("SELECT rule_id, hits FROM stats_mysql_query_rules"), ["1|2", "2|1"]);

    proxy.start_again(&[]).unwrap();
    let mut client = proxy.connect_app().unwrap();
    for (sql, _, wanted) in ROUTES {
        assert_eq!(get(&mut client, sql), *wanted, "{sql}, after a restart");
    }
}

const MODULES: &[&str] = &[
    "MYSQL USERS",
    "MYSQL SERVERS",
    "MYSQL QUERY RULES",
    "MYSQL VARIABLES",
    "ADMIN VARIABLES",
    "MYSQL FIREWALL",
    "SCHEDULER",
    "RESTAPI",
    "PROXYSQL SERVERS",
    "COREDUMP",
];

const FORMS: &[&str] = &[
    "SAVE {} TO DISK",
    "SAVE {} FROM MEMORY",
    "SAVE {} FROM MEM",
    "LOAD {} FROM DISK",
    "LOAD {} TO MEMORY",
    "LOAD {} TO MEM",
    "LOAD {} TO RUNTIME",
    "LOAD {} TO RUN",
    "LOAD {} FROM MEMORY",
    "LOAD {} FROM MEM",
    "SAVE {} TO MEMORY",
    "SAVE {} TO MEM",
    "SAVE {} FROM RUNTIME",
    "SAVE {} FROM RUN",
    "LOAD {} FROM CONFIG",
];

#[test]
fn every_form_of_every_module() {
    let proxy = alone().server(1, "127.0.0.1", 1).user("one", "x", 1).start().unwrap();
    let mut operator = Operator::of(&proxy);
    for module in MODULES {
        for form in FORMS {
            let command = form.replace("{}", module);
            operator.ok(&command);
            operator.ok(&format!("{};", command.to_lowercase()));
        }
        operator.refused(&format!("LOAD {module} TO NOWHERE"));
    }
    operator.all(&["LOAD MYSQL USER one TO RUNTIME", "LOAD MYSQL USER one FROM MEMORY"]);
    operator.ok(&format!("SAVE CONFIG TO FILE {}", proxy.dir().join("saved.cnf").display()));
    assert_eq!(operator.rows("CONFIG DIFF"), Vec::<String>::new());
    assert_eq!(operator.rows("CONFIG DIFF DISK"), Vec::<String>::new());
    for table in ["mysql_servers", "disk.mysql_servers", "runtime_mysql_servers", "mysql_users", "disk.mysql_users"] {
        assert_eq!(operator.row(&format!("SELECT COUNT(*) FROM {table}")), "1", "{table}");
    }
}

/// A statement that makes memory invalid, the command that loads it, and the words that the error contains.
const FAULTS: &[(&str, &str, &[&str])] = &[
    ("UPDATE mysql_servers SET hostname=''", "MYSQL SERVERS", &["mysql_servers, hostgroup_id=0, hostname=, port=", "column hostname"]),
    ("UPDATE mysql_servers SET max_connections=99999999999", "MYSQL SERVERS", &["column max_connections", "out of range"]),
    ("UPDATE mysql_servers SET max_latency_ms='slow'", "MYSQL SERVERS", &["column max_latency_ms"]),
    (
        "INSERT INTO mysql_hostgroup_attributes (hostgroup_id, hostgroup_settings) VALUES (0, '{\"wait_timeout\":\"long\"}')",
        "MYSQL SERVERS",
        &["mysql_hostgroup_attributes, hostgroup_id=0", "column hostgroup_settings", "wait_timeout"],
    ),
    ("UPDATE mysql_users SET default_hostgroup='x'", "MYSQL USERS", &["mysql_users, username=app", "column default_hostgroup", "'x'"]),
    (
        "UPDATE mysql_users SET attributes='{\"multiplexing\":\"maybe\"}'",
        "MYSQL USERS",
        &["mysql_users, username=app", "column attributes"],
    ),
    (
        "INSERT INTO mysql_query_rules (rule_id, active, match_pattern) VALUES (7, 1, '(')",
        "MYSQL QUERY RULES",
        &["mysql_query_rules.match_pattern of rule 7"],
    ),
    (
        "INSERT INTO mysql_query_rules (rule_id, active, match_pattern, replace_pattern) VALUES (8, 1, 'x', '\\9')",
        "MYSQL QUERY RULES",
        &["mysql_query_rules.replace_pattern of rule 8"],
    ),
    (
        "INSERT INTO mysql_query_rules (rule_id, active, client_addr) VALUES (9, 1, '10.%.1')",
        "MYSQL QUERY RULES",
        &["mysql_query_rules, rule_id=9, column client_addr"],
    ),
    (
        "UPDATE global_variables SET variable_value='0' WHERE variable_name='mysql-threads'",
        "MYSQL VARIABLES",
        &["global_variables, variable_name=mysql-threads: 0 is out of range"],
    ),
    ("INSERT INTO global_variables VALUES ('mysql-thread', '1')", "MYSQL VARIABLES", &["variable_name=mysql-thread: unknown variable"]),
    (
        "UPDATE global_variables SET variable_value='nonsense' WHERE variable_name='admin-admin_credentials'",
        "ADMIN VARIABLES",
        &["variable_name=admin-admin_credentials"],
    ),
];

#[test]
fn what_is_refused_names_row_and_column_and_changes_nothing() {
    let [a, b, _] = servers();
    let proxy = Tidegate::builder().backend(0, a).app_user().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut client = proxy.connect_app().unwrap();
    for (fault, module, words) in FAULTS {
        let state = |operator: &mut Operator| {
            let runtime = operator.rows("CONFIG DIFF RUNTIME DISK");
            (runtime, operator.rows("SELECT * FROM runtime_checksums_values"), operator.rows("SELECT * FROM runtime_mysql_query_rules"))
        };
        let before = state(&mut operator);
        operator.all(&[&insert_server(0, b), fault]);
        for command in ["LOAD {} TO RUNTIME", "SAVE {} TO DISK", "CONFIG CHECK", "CONFIG APPLY"] {
            let text = operator.refused(&command.replace("{}", module));
            for word in *words {
                assert!(text.contains(word), "{fault}: {command}: {text}");
            }
        }
        assert_eq!(state(&mut operator), before, "{fault}");
        assert_eq!(get(&mut client, crate::bed::WHO), "a");
        for module in MODULES {
            operator.ok(&format!("SAVE {module} FROM RUNTIME"));
        }
        operator.ok("DELETE FROM global_variables WHERE variable_name='mysql-thread'");
        assert_eq!(operator.rows("CONFIG DIFF"), Vec::<String>::new(), "{fault}");
    }
}

/// SQL that the schema itself refuses, SET and commands with faults.
const REFUSED: &[(&str, &str)] = &[
    ("SELECT * FROM stats_mysql_process_list", "no such table: stats_mysql_process_list; did you mean stats_mysql_processlist?"),
    ("DESCRIBE mysql_server", "no such table: mysql_server; did you mean mysql_servers?"),
    ("INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (1, 'x', 70000)", "port"),
    ("INSERT INTO mysql_servers (hostgroup_id, hostname, status) VALUES (1, 'x', 'AWAY')", "status"),
    ("INSERT INTO mysql_servers (hostgroup_id) VALUES (1)", "mysql_servers.hostname"),
    ("UPDATE mysql_users SET attributes='{'", "attributes"),
    ("INSERT INTO mysql_servers (hostname, heft) VALUES ('x', 1)", "heft"),
    ("INSERT INTO mysql_users (username, password, active) VALUES ('app', 'y', 2)", "active"),
    ("SELECT * FROM mysql_server", "mysql_server"),
    ("SELEC 1", "did you mean SELECT?"),
    ("SET mysql-threadz=1", "mysql-threads"),
    ("SET mysql-threads=0", "out of range"),
    ("DROP TABLE mysql_servers", "not authorized"),
    ("ATTACH '/tmp/x' AS x", "not authorized"),
    ("LOAD MYSQL USER nobody TO RUNTIME", "nobody"),
    ("CONFIG DIFF MOON", "MOON"),
    ("CONFIG ROLLBACK 99", "99"),
    ("KILL CONNECTION 12", "12"),
    ("LOAD MYSQL SERVERS", "did you mean LOAD MYSQL SERVERS TO RUNTIME?"),
];

#[test]
fn peers_that_are_not_asked_are_told() {
    let proxy = alone().start().unwrap();
    let mut operator = Operator::of(&proxy);
    operator.ok("INSERT INTO proxysql_servers VALUES ('127.0.0.1', 1, 0, '')");
    let info = operator.ok("LOAD PROXYSQL SERVERS TO RUNTIME").info;
    assert!(info.contains("the proxy polls none of the listed peers (1) because admin-cluster_username is empty"), "{info}");
    operator.ok("SET admin-cluster_username='cluster'");
    let info = operator.ok("LOAD ADMIN VARIABLES TO RUNTIME").info;
    assert!(!info.contains("polls none of the"), "{info}");
}

#[test]
fn bad_statements_are_errors() {
    let proxy = alone().user("app", "x", 1).start().unwrap();
    let mut operator = Operator::of(&proxy);
    let before = operator.row("SELECT GLOBAL_CHECKSUM()");
    for (sql, word) in REFUSED {
        let text = operator.refused(sql);
        assert!(text.contains(word), "{sql}: {text}");
    }
    assert_eq!(operator.rows("CONFIG DIFF"), Vec::<String>::new());
    assert_eq!(operator.row("SELECT GLOBAL_CHECKSUM()"), before);
}

/// A session that uses `disk` means its tables, and not memory's of the same names.
#[test]
fn a_schema_that_is_used_is_meant() {
    let proxy = alone().start().unwrap();
    let mut operator = Operator::of(&proxy);
    operator.all(&[
        "INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'memory')",
        "INSERT INTO disk.mysql_servers (hostgroup_id, hostname) VALUES (1, 'disk')",
        "USE disk",
    ]);
    assert_eq!(operator.row("SELECT DATABASE()"), "disk");
    assert_eq!(operator.row("SELECT /*!40001 SQL_NO_CACHE */ hostname FROM `mysql_servers`"), "disk");
    assert_eq!(operator.row("SELECT mysql_servers.hostname FROM main.mysql_servers"), "memory");
    operator.ok("UPDATE mysql_servers SET weight = 7 WHERE hostname = 'disk'");
    operator.ok("DELETE FROM mysql_servers WHERE weight = 1");
    assert_eq!(operator.row("SELECT COUNT(*) FROM main.mysql_servers"), "1");
    operator.ok("DELETE FROM mysql_servers");
    operator.client().init_db("MAIN").unwrap().ok().unwrap();
    assert_eq!(operator.row("SELECT hostname FROM mysql_servers"), "memory");
    assert_eq!(operator.row("SELECT COUNT(*) FROM disk.mysql_servers"), "0");
    operator.all(&["USE stats", "USE stats_history", "USE `monitor`"]);
    for refused in [operator.ask("USE nosuch"), operator.client().init_db("nosuch").unwrap()] {
        let error = refused.err().unwrap();
        assert_eq!((error.code, &*error.message), (1049, "Unknown database 'nosuch'"));
    }
    assert_eq!(operator.row("SELECT DATABASE()"), "monitor");
    // The count of affected rows does not include rows of an earlier statement.
    assert_eq!(operator.ok("DELETE FROM main.mysql_servers").affected_rows, 1);
    assert_eq!(operator.ok("CREATE TABLE own (a INT)").affected_rows, 0);
}
