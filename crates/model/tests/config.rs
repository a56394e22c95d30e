//! The results of loading files: values, notices, errors.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

use model::config::Cell;
use model::{Config, load, parse};

const STOCK: &str = r#"threads=2 max_connections=2048 default_query_delay=0 default_query_timeout=36000000 have_compress=true poll_timeout=2000 interfaces="0.0.0.0:6033" default_schema="information_schema" stacksize=1048576 server_version="5.5.30" connect_timeout_server=3000 monitor_username="monitor" monitor_password="monitor" monitor_history=600000 monitor_connect_interval=60000 monitor_ping_interval=10000 monitor_read_only_interval=1500 monitor_read_only_timeout=500 ping_interval_server_msec=120000 ping_timeout_server=500 commands_stats=true sessions_sort=true connect_retries_on_failure=10"#;

fn loaded(text: &str) -> (Config, Vec<String>) {
    let (config, notices) = parse(text, "proxysql.cnf").unwrap_or_else(|errors| panic!("{errors:#?}"));
    (config, notices.iter().map(ToString::to_string).collect())
}

fn refused(text: &str) -> Vec<String> {
    parse(text, "p.cnf").unwrap_err().iter().map(ToString::to_string).collect()
}

fn assert_stock(config: &Config) {
    let vars = &config.mysql;
    assert_eq!((vars.threads, vars.max_connections, vars.default_query_timeout), (2, 2048, 36_000_000));
    assert_eq!((vars.server_version.as_str(), vars.connect_timeout_server), ("5.5.30", 3000));
    assert_eq!((vars.monitor_password.expose(), vars.ping_timeout_server), (&b"monitor"[..], 500));
    assert_eq!((vars.commands_stats, vars.sessions_sort, vars.connect_retries_on_failure), (true, true, 10));
    assert_eq!(config.rows("mysql_servers").len(), 2);
    assert_eq!(config.rows("mysql_users").len(), 1);
}

#[test]
fn the_stock_file_loads_with_every_separator() {
    for separator in ["\n", ";\n", ",\n", " "] {
        for equals in ["=", " : "] {
            let variables = STOCK.replace(' ', separator).replace('=', equals);
            let text = format!(
                r#"
                datadir="/var/lib/proxysql"
                admin_variables= {{ admin_credentials="admin:admin" ; mysql_ifaces="0.0.0.0:6032" }}
                mysql_variables= {{ {variables} }}
                mysql_servers = (
                    {{ address="127.0.0.1" , port=3306 , hostgroup=0 , max_connections=200 }},
                    {{ hostname = "/run/my.sock"; port = 0; hostgroup_id = 1; weight = 0x10L }},
                )
                mysql_users: ( {{ username = "root" , password = "" , default_hostgroup = 0 , active = 1 }} )
                mysql_query_rules: ( )
                scheduler= ( )
                mysql_replication_hostgroups= ( )
                "#
            );
            let (config, notices) = loaded(&text);
            assert_stock(&config);
            assert!(notices.iter().any(|n| n.contains("mysql_variables.poll_timeout: has no effect: workers")));
            assert!(!notices.iter().any(|n| n.contains("mysql_variables.monitor_")), "{notices:#?}");
            assert!(!notices.iter().any(|n| n.contains("threads") || n.contains("mysql_query_rules")), "{notices:#?}");
        }
    }
}

#[test]
fn refusals_name_the_file_line_column_and_range() {
    let cases = [
        (
            "admin_variables={ stats_credentials=\"foo\" }",
            "p.cnf:1:19: admin_variables.stats_credentials: '***': must be user:password, separated by ';'",
        ),
        ("\nmysql_variables={\n    threads=0\n}", "p.cnf:3:5: mysql_variables.threads: 0 is out of range 1..255"),
        ("mysql_variables={threads=(1)}", "p.cnf:1:26: mysql_variables.threads: must be a single value, not a list ( )"),
        ("mysql_variables={threads=1;threads=2}", "p.cnf:1:28: mysql_variables.threads: given twice; first at line 1"),
        ("mysql_variables={threads=true}", "p.cnf:1:18: mysql_variables.threads: 'true' is not an integer; allowed is 1..255"),
        ("mysql_variables={threads=false}", "p.cnf:1:18: mysql_variables.threads: 0 is out of range 1..255"),
        ("mysql_variables=1", "p.cnf:1:17: mysql_variables: must be a group { }, not an integer"),
        ("mysql_variables={}\nmysql_variables={}", "p.cnf:2:1: mysql_variables: given twice; first at line 1"),
        ("mysql_variables={default_schema=\"\\xff\"}", "p.cnf:1:33: mysql_variables.default_schema: string is not UTF-8"),
        ("mysql_servers=({address=\"\\xff\"})", "p.cnf:1:17: mysql_servers.address: string is not UTF-8"),
        ("mysql_servers=(1)", "p.cnf:1:16: mysql_servers: must be a row, which is a group { }, not an integer"),
        ("mysql_servers=({})", "p.cnf:1:16: mysql_servers.hostname: must be given"),
        ("mysql_servers=({address=\"\"})", "p.cnf:1:17: mysql_servers.hostname: must not be empty"),
        ("mysql_servers=({address=\"a\" port=70000})", "p.cnf:1:29: mysql_servers.port: 70000 is out of range 0..65535"),
        ("mysql_servers=({address=\"a\" port=\"x\"})", "p.cnf:1:29: mysql_servers.port: must be an integer, not 'x'"),
        ("mysql_servers=({hostname=\"a\" hostname=\"b\"})", "p.cnf:1:30: mysql_servers.hostname: given twice; first at line 1"),
        ("mysql_servers=({address=\"a\" port=true})", "p.cnf:1:29: mysql_servers.port: must be an integer, not a boolean"),
        (
            "mysql_servers=({address=\"a\" status=\"UP\"})",
            "p.cnf:1:29: mysql_servers.status: 'UP' is not allowed; allowed are ONLINE, SHUNNED, OFFLINE_SOFT, OFFLINE_HARD",
        ),
        ("mysql_servers=({address=\"a\" gtid_port=3306})", "p.cnf:1:29: mysql_servers.gtid_port: must differ from port, or be 0"),
        ("mysql_users=({username=\"u\" attributes=\"[1]\"})", "p.cnf:1:28: mysql_users.attributes: bad JSON: must be an object"),
        (
            "mysql_users=({username=\"u\" attributes=\"{\\\"spiffe_id\\\":1}\"})",
            "p.cnf:1:28: mysql_users.attributes: bad JSON: 'spiffe_id' is not supported yet",
        ),
        (
            "mysql_users=({username=\"u\" attributes=\"{\\\"default-transaction_isolation\\\":\\\"BANANA\\\"}\"})",
            "p.cnf:1:28: mysql_users.attributes: bad JSON: 'default-transaction_isolation' is 'BANANA'; it must be one of READ-UNCOMMITTED, READ-COMMITTED, REPEATABLE-READ, SERIALIZABLE",
        ),
        ("mysql_users=({username=\"u\" password=[\"a\"]})", "p.cnf:1:28: mysql_users.password: must be a string, not an array [ ]"),
        ("mysql_query_rules=({rule_id=1 replace_pattern=\"x\"})", "p.cnf:1:31: mysql_query_rules.replace_pattern: needs match_pattern"),
        (
            "mysql_replication_hostgroups=({writer_hostgroup=1 reader_hostgroup=1})",
            "p.cnf:1:51: mysql_replication_hostgroups.reader_hostgroup: must differ from writer_hostgroup",
        ),
        ("admin_variables={web_port=0}", "p.cnf:1:18: admin_variables.web_port: 0 is out of range 1..65534"),
        ("datadir=(1)", "p.cnf:1:9: datadir: must be a single value, not a list ( )"),
        (
            "mysql_variables={interfaces=\"db:3306\"}",
            "p.cnf:1:18: mysql_variables.interfaces: 'db:3306': 'db:3306' is neither ip:port, [ipv6]:port nor /path",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refused(text), [message], "{text}");
    }
}

/// Files with which ProxySQL starts: the notice, and the error under `strict`.
const TOLERATED: &[(&str, &str, &str)] = &[
    ("mysql_variables={thread=1}", "p.cnf:1:18: mysql_variables.thread: unknown variable", ", ignored; did you mean 'threads'?"),
    ("mysql_variables={threads=1 mysql-x=2}", "p.cnf:1:28: mysql_variables.mysql-x: unknown variable", ", ignored"),
    ("admin_variables={refresh=1}", "p.cnf:1:18: admin_variables.refresh: unknown variable", ", ignored"),
    (
        "mysql_variables={threads=1;THREADS=2}",
        "p.cnf:1:28: mysql_variables.THREADS: given by another name too, at line 1",
        "; the later value holds",
    ),
    (
        "mysql_variables={set_query_lock_on_hostgroup=false}",
        "p.cnf:1:18: mysql_variables.set_query_lock_on_hostgroup: must be a number, not false",
        "; read as 0",
    ),
    ("restart_on_missing_heartbeats=false", "p.cnf:1:1: restart_on_missing_heartbeats: must be a number, not false", "; read as 0"),
    (
        "mysql_users=({username=\"u\"} {username=\"u\"})",
        "p.cnf:1:29: mysql_users: same username, backend as the row at line 1",
        "; the later value holds",
    ),
    ("mysql_user=()", "p.cnf:1:1: mysql_user: unknown group, table or setting", ", ignored; did you mean 'mysql_users'?"),
    ("our_name=\"x\"", "p.cnf:1:1: our_name: unknown group, table or setting", ", ignored"),
    ("restapi=() restapi_routes=()", "p.cnf:1:12: restapi_routes: given by another name too, at line 1", "; the later value holds"),
    ("mysql_servers={}", "p.cnf:1:15: mysql_servers: must be a list ( ) of groups { }, not a group { }", "; read as one"),
    ("mysql_servers={address=\"a\"}", "p.cnf:1:15: mysql_servers: must be a list ( ) of groups { }, not a group { }", "; read as one"),
    (
        "mysql_servers=({address=\"a\" hostname=\"b\"})",
        "p.cnf:1:29: mysql_servers.hostname: given by another name too, at line 1",
        "; the later value holds",
    ),
    ("mysql_servers=({address=\"a\" wieght=1})", "p.cnf:1:29: mysql_servers.wieght: unknown column", ", ignored; did you mean 'weight'?"),
    (
        "mysql_servers=({address=\"a\" max_replication_lag=false})",
        "p.cnf:1:29: mysql_servers.max_replication_lag: must be a number, not false",
        "; read as 0",
    ),
    (
        "mysql_servers=({address=\"a\"}\n{address=\"a\" hostgroup=0})",
        "p.cnf:2:1: mysql_servers: same hostgroup_id, hostname, port as the row at line 1",
        "; the later value holds",
    ),
    (
        "mysql_users=({username=\"u\"}{username=\"u\" backend=0})",
        "p.cnf:1:28: mysql_users: same username, frontend as the row at line 1",
        "; the later value holds",
    ),
    ("scheduler=({rule_id=1 filename=\"/x\" interval_ms=1000})", "p.cnf:1:13: scheduler.rule_id: unknown column", ", ignored"),
    (
        "mysql_replication_hostgroups=({rule_id=1 writer_hostgroup=1 reader_hostgroup=2})",
        "p.cnf:1:32: mysql_replication_hostgroups.rule_id: unknown column",
        ", ignored",
    ),
];

#[test]
fn what_proxysql_starts_with_starts_with_a_warning() {
    for (text, fault, done) in TOLERATED {
        let (_, notices) = parse(text, "p.cnf").unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
        let told: Vec<String> = notices.iter().filter(|notice| notice.is_fault).map(ToString::to_string).collect();
        assert_eq!(told, [format!("{fault}{done}")], "{text}");
    }
}

#[test]
fn strict_refuses_what_proxysql_starts_with() {
    for (text, fault, done) in TOLERATED {
        let hint = done.split_once("; did").map_or(String::new(), |(_, hint)| format!("; did{hint}"));
        assert_eq!(refused(&format!("{text}\nstrict=true")), [format!("{fault}{hint}")], "{text}");
        loaded(&format!("{text}\nstrict=false"));
    }
    loaded("strict=true mysql_variables={ threads=2 }");
}

#[test]
fn what_is_passed_over_leaves_the_rest_as_it_was_meant() {
    let (config, _) = loaded(
        r#"mysql_users = ( { username="u" password="old" } { username="v" } { username="u" default_hostgroup=3 },
                           { username="w" backend=0 } { username="w" frontend=0 } )
           mysql_servers = { one = { address="a" wieght=5 } two = { address="b" hostname="c" max_replication_lag=false } }
           mysql_variables = { threads=3 THREADS=5 threds=7 set_query_lock_on_hostgroup=false }
           scheduler = ( { rule_id=1 id=4 filename="/x" interval_ms=1000 } )"#,
    );
    let users: Vec<_> =
        config.rows("mysql_users").iter().map(|row| (row.text("username").unwrap(), row.integer("default_hostgroup"))).collect();
    assert_eq!(users, [("v", Some(0)), ("u", Some(3)), ("w", Some(0)), ("w", Some(0))]);
    let names: Vec<_> = config.rows("mysql_servers").iter().map(|row| (row.text("hostname").unwrap(), row.integer("weight"))).collect();
    assert_eq!(names, [("a", Some(1)), ("c", Some(1))]);
    assert_eq!((config.mysql.threads, config.mysql.set_query_lock_on_hostgroup), (5, 0));
    assert_eq!(config.rows("scheduler")[0].integer("id"), Some(4));
}

#[test]
fn an_unknown_character_set_is_refused_with_those_that_are_known() {
    let charset = refused("mysql_variables={ default_charset=\"klingon\" }");
    assert!(charset[0].starts_with("p.cnf:1:19: mysql_variables.default_charset: 'klingon': must be one of armscii8, "), "{charset:?}");
}

#[test]
fn json_faults_are_the_columns() {
    let errors = refused("mysql_users=({username=\"u\" attributes=\"{\"})");
    assert!(errors[0].starts_with("p.cnf:1:28: mysql_users.attributes: bad JSON: "), "{errors:?}");
}

#[test]
fn all_faults_come_together() {
    let text = "mysql_variables={threads=0\nwait_timeout=-1}\nmysql_servers=({port=1}\n{address=\"a\" port=-1 weight=-1})\nfoo=1";
    let lines: Vec<u32> = parse(text, "p").unwrap_err().iter().map(|e| e.at.as_ref().unwrap().position().unwrap().line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 4, 5]);
}

#[test]
fn tables_without_effect_are_told_once() {
    let (config, notices) = loaded(
        r#"proxysql_servers = ( { hostname="a" weight=1 }
                                { hostname="b" }, { hostname="c" port=6033 } )
           mysql_servers = ( { address="a" gtid_port=5 } { address="b" gtid_port=6 } )
           pgsql_variables = { threads = 2 }
           mysql_variables = { forward_autocommit = true }
           admin_variables = { pgsql_ifaces = "0.0.0.0:6132", cluster_pgsql_users_diffs_before_sync = 3 }"#,
    );
    assert_eq!(
        notices,
        [
            "proxysql.cnf:3:44: mysql_servers.gtid_port: kept, but has no effect yet",
            "proxysql.cnf:4:12: pgsql_variables: not part of this proxy, skipped",
            "proxysql.cnf:5:32: mysql_variables.forward_autocommit: retired, ignored: deprecated in ProxySQL; autocommit is tracked per session",
            "proxysql.cnf:6:32: admin_variables.pgsql_ifaces: not part of this proxy, skipped",
            "proxysql.cnf:6:63: admin_variables.cluster_pgsql_users_diffs_before_sync: not part of this proxy, skipped",
        ]
    );
    assert_eq!(config.rows("proxysql_servers")[2].integer("port"), Some(6033));
}

#[test]
fn rules_have_their_defaults() {
    let (config, _) = loaded(
        r#"mysql_query_rules = ( { rule_id=1 match_digest="^SELECT \d+" active=1 apply=true }
                                 { rule_id=2 match_pattern="x" }, { rule_id=3 OK_msg="" active=0 } )"#,
    );
    let rules = config.rows("mysql_query_rules");
    assert_eq!(rules[0].text("match_digest"), Some("^SELECT \\d+"));
    let is_active = |index: usize| rules[index].flag("active");
    assert_eq!((is_active(0), rules[0].flag("apply"), is_active(2)), (true, true, false));
    // In a table it would not be.
    assert!(is_active(1));
    assert_eq!(rules[2].cell("match_pattern"), Some(&Cell::Null));
    assert_eq!(rules[2].text("re_modifiers"), Some("CASELESS"));
}

#[test]
fn every_table_can_be_given_empty() {
    for table in model::config::TABLES {
        loaded(&format!("{} = ( )", table.file_name));
        loaded(&format!("{} = [ ]", table.name));
    }
}

#[test]
fn a_missing_file_is_an_error_without_a_place() {
    let errors = load(std::path::Path::new("/nonexistent/x.cnf")).unwrap_err();
    assert!(errors[0].to_string().starts_with("cannot read '/nonexistent/x.cnf': "), "{}", errors[0]);
}

#[test]
fn files_on_disk_include_beside_themselves() {
    let directory = std::env::temp_dir().join(format!("model-include-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("conf.d")).unwrap();
    std::fs::write(directory.join("main.cnf"), "@include \"conf.d/servers.cnf\"\n").unwrap();
    std::fs::write(directory.join("conf.d/servers.cnf"), "mysql_servers = (\n@include \"rows.cnf\"\n)").unwrap();
    std::fs::write(directory.join("conf.d/rows.cnf"), "{ address = \"a\" }\n{ address = \"b\", port = 99999 }").unwrap();
    let errors = load(&directory.join("main.cnf")).unwrap_err();
    std::fs::remove_dir_all(&directory).unwrap();
    let place = directory.join("conf.d/rows.cnf");
    assert_eq!(errors[0].to_string(), format!("{}:2:18: mysql_servers.port: 99999 is out of range 0..65535", place.display()));
}
