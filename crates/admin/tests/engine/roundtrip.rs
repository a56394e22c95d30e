//! A saved configuration is the same after a load: through disk, runtime, and the file.

use model::config::diff::{Sheet, diff};
use model::config::text::to_text;
use proptest::prelude::*;
use std::time::Instant;

use crate::bed::Bed;

/// Any text that an operator may write, and more.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", "[ -~]{1,20}", "[\\\\\"'\n\r\té\u{1F600};#/*$^]{1,12}"]
}

fn maybe(of: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop_oneof![Just("NULL".to_owned()), of]
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Statements that fill memory with a configuration that can be loaded.
fn statements() -> impl Strategy<Value = Vec<String>> {
    let servers = prop::collection::btree_map((0..5_u32, "[a-z]{1,6}"), (0..100_u32, text(), 0..4_usize), 0..6).prop_map(|rows| {
        let status = ["ONLINE", "shunned", "Offline_Soft", "OFFLINE_HARD"];
        let row = |((hostgroup, host), (weight, comment, at)): ((u32, String), (u32, String, usize))| {
            format!(
                "INSERT INTO mysql_servers (hostgroup_id, hostname, weight, status, comment) VALUES ({hostgroup}, '{host}', {weight}, '{}', {})",
                status[at],
                quoted(&comment)
            )
        };
        rows.into_iter().map(row).collect::<Vec<_>>()
    });
    let users = prop::collection::btree_map(
        "[a-z]{1,6}",
        (maybe(text().prop_map(|t| quoted(&t))), maybe("[a-z]{1,5}".prop_map(|t| quoted(&t)))),
        0..5,
    )
    .prop_map(|rows| {
        let row = |(name, (password, schema)): (String, (String, String))| {
            format!("INSERT INTO mysql_users (username, password, default_schema) VALUES ('{name}', {password}, {schema})")
        };
        rows.into_iter().map(row).collect::<Vec<_>>()
    });
    let rules = prop::collection::btree_map(
        1..1000_u32,
        (maybe("[a-zA-Z ^$.]{1,9}".prop_map(|t| quoted(&t))), maybe(text().prop_map(|t| quoted(&t)))),
        0..6,
    )
    .prop_map(|rows| {
        let row = |(id, (pattern, comment)): (u32, (String, String))| {
            format!(
                "INSERT INTO mysql_query_rules (rule_id, active, match_digest, re_modifiers, comment, apply) \
                     VALUES ({id}, {}, {pattern}, {}, {comment}, {})",
                id % 2,
                if id % 3 == 0 { "NULL" } else { "'CASELESS,GLOBAL'" },
                id % 5 % 2
            )
        };
        rows.into_iter().map(row).collect::<Vec<_>>()
    });
    let others = (text(), 0..1000_u32, text()).prop_map(|(comment, number, word)| {
        vec![
            format!(
                "INSERT INTO mysql_hostgroup_attributes (hostgroup_id, comment, hostgroup_settings) VALUES ({number}, {}, '{{}}')",
                quoted(&comment)
            ),
            format!("INSERT INTO mysql_query_rules_fast_routing VALUES ('u', {}, 0, {number}, {})", quoted(&word), quoted(&comment)),
            format!("INSERT INTO mysql_firewall_whitelist_users VALUES (1, 'u', '', 'DETECTING', {})", quoted(&comment)),
            format!("INSERT INTO scheduler (interval_ms, filename, arg1) VALUES ({}, '/bin/true', {})", number + 100, quoted(&word)),
            format!("INSERT INTO restapi_routes (timeout_ms, method, uri, script) VALUES ({}, 'get', 'u', 's')", number + 100),
            format!("SET mysql-max_connections={}, mysql-default_schema={}", number + 1, quoted(&word)),
        ]
    });
    (servers, users, rules, others).prop_map(|(a, b, c, d)| [a, b, c, d].concat())
}

const TABLES: &[&str] = &["mysql_users", "mysql_servers", "mysql_query_rules"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn save_then_load_is_the_identity(statements in statements()) {
        let bed = Bed::new();
        for table in TABLES {
            bed.ok(&format!("DELETE FROM {table}"));
        }
        for statement in &statements {
            bed.ok(statement);
        }
        let modules = ["MYSQL USERS", "MYSQL SERVERS", "MYSQL QUERY RULES", "MYSQL VARIABLES", "ADMIN VARIABLES", "MYSQL FIREWALL", "SCHEDULER", "RESTAPI"];
        // memory -> disk -> memory
        for module in modules {
            bed.ok(&format!("SAVE {module} TO DISK"));
        }
        prop_assert!(bed.rows("CONFIG DIFF MEMORY DISK").is_empty());
        for table in TABLES {
            bed.ok(&format!("DELETE FROM {table}"));
        }
        for module in modules {
            bed.ok(&format!("LOAD {module} FROM DISK"));
        }
        prop_assert!(bed.rows("CONFIG DIFF MEMORY DISK").is_empty());
        // memory -> runtime -> memory
        bed.ok("CONFIG APPLY");
        for module in modules {
            bed.ok(&format!("SAVE {module} FROM RUNTIME"));
        }
        prop_assert!(bed.rows("CONFIG DIFF").is_empty());
        // runtime -> file -> configuration
        let config = bed.runtime();
        let (read, _) = model::parse(&to_text(&config), "written").unwrap();
        let found = diff(&Sheet::of(&config), &Sheet::of(&read));
        prop_assert!(found.is_empty(), "{found:?}");
        prop_assert_eq!(&read.mysql, &config.mysql);
        prop_assert_eq!(to_text(&read), to_text(&config));
        let file = bed.rows("SELECT CONFIG FILE").concat();
        let path = bed.datadir.path().join("out.cnf");
        bed.ok(&format!("SELECT CONFIG INTO OUTFILE {}", path.display()));
        prop_assert_eq!(std::fs::read_to_string(&path).unwrap(), file);
        let against_file = format!("CONFIG DIFF FILE '{}'", path.display());
        prop_assert!(bed.rows(&against_file).is_empty());
        // ... and the next start finds the same.
        let before = Sheet::of(&bed.runtime());
        let again = Bed::open(bed.stop(), crate::bed::FILE, admin::Precedence::Database);
        prop_assert!(diff(&before, &Sheet::of(&again.runtime())).is_empty());
    }
}

#[test]
fn a_password_that_is_not_utf8_stays_as_it_is() {
    let bed = Bed::new();
    let password = "SELECT HEX(password) FROM mysql_users";
    bed.ok("UPDATE mysql_users SET password = CAST(x'70e92277ff' AS TEXT)");
    bed.ok("LOAD MYSQL USERS TO RUNTIME");
    let file = bed.datadir.path().join("saved.cnf");
    bed.ok(&format!("SAVE CONFIG TO FILE {}", file.display()));
    let forget = || {
        bed.ok("UPDATE mysql_users SET password = 'other'");
        bed.ok("LOAD MYSQL USERS TO RUNTIME");
    };
    for back in [format!("CONFIG APPLY FILE '{}'", file.display()), "CONFIG ROLLBACK 2".to_owned()] {
        forget();
        bed.ok(&back);
        assert_eq!(bed.rows(password), ["70E92277FF"], "{back}");
        let config = bed.runtime();
        assert_eq!(config.rows("mysql_users")[0].secret("password").map(model::Secret::expose), Some(&b"\x70\xe9\x22\x77\xff"[..]));
    }
}

#[test]
fn many_rows_load_in_seconds() {
    let bed = Bed::new();
    let start = Instant::now();
    bed.ok("INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i, 1, '^SELECT ' || i, i % 10, 1 FROM n");
    let inserted = start.elapsed();
    bed.ok("LOAD MYSQL QUERY RULES TO RUNTIME");
    let loaded = start.elapsed();
    bed.ok("SAVE MYSQL QUERY RULES TO DISK");
    let saved = start.elapsed();
    bed.ok("INSERT INTO mysql_servers (hostgroup_id, hostname) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT i % 50, 'host' || i FROM n");
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    println!(
        "100000 rules: insert {inserted:?}, load {:?}, save {:?}; then 10000 servers, insert and load {:?}",
        loaded - inserted,
        saved - loaded,
        start.elapsed() - saved
    );
    let start = Instant::now();
    assert_eq!(bed.rows("SELECT COUNT(*) FROM mysql_query_rules a JOIN runtime_mysql_query_rules b USING (rule_id)"), ["100000"]);
    println!("join of both layers {:?}", start.elapsed());
    let start = Instant::now();
    bed.ok("CONFIG ROLLBACK 1");
    println!("rollback {:?}", start.elapsed());
}
