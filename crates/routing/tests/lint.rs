//! What is remarked on rules, and what is not.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

mod common;

use common::{rules, snapshot};
use routing::lint;

/// `rule column: text` of each remark.
fn remarks(text: &str) -> Vec<String> {
    lint(&snapshot(text)).iter().map(|lint| format!("{} {}: {}", lint.rule_id, lint.column, lint.text)).collect()
}

const USER: &str = "mysql_users = ( { username=\"app\" default_hostgroup=1 } )\n";

#[test]
fn columns_without_effect() {
    let text = "has no effect, as in ProxySQL";
    assert_eq!(
        remarks(&rules("rule_id=1 cache_timeout=0 sticky_conn=0 reconnect=1")),
        [format!("1 cache_timeout: {text}"), format!("1 reconnect: {text}"), format!("1 sticky_conn: {text}")]
    );
}

#[test]
fn flags_that_nobody_sets() {
    let cases: [(&str, &[&str]); 6] = [
        ("rule_id=1 flagOUT=3\nrule_id=2 flagIN=3", &[]),
        ("rule_id=1 next_query_flagIN=3\nrule_id=2 flagIN=3", &[]),
        ("rule_id=1 mirror_flagOUT=3\nrule_id=2 flagIN=3", &[]),
        ("rule_id=1 flagIN=3", &["1 flagIN: never tried: no rule that is reached sets flag 3"]),
        (
            "rule_id=1 flagIN=3\nrule_id=2 flagOUT=3",
            &[
                "1 flagIN: never tried: flag 3 is first set by rule 2, and evaluation goes on with higher rules only (mysql-query_processor_iterations is 0)",
            ],
        ),
        ("rule_id=1 flagOUT=3 apply=1\nrule_id=2 flagIN=3", &["2 flagIN: never tried: no rule that is reached sets flag 3"]),
    ];
    for (rows, expected) in cases {
        assert_eq!(remarks(&rules(rows)), expected, "{rows}");
    }
    let again = format!("mysql_variables = {{ query_processor_iterations=1 }} {}", rules("rule_id=1 flagIN=3\nrule_id=2 flagOUT=3"));
    assert_eq!(remarks(&again), Vec::<String>::new());
}

#[test]
fn rules_in_the_shadow() {
    let shadow = |rule: u32, by: u32| vec![format!("{rule} apply: never reached: rule {by} applies to everything that this rule matches")];
    let cases = [
        ("rule_id=1 apply=1\nrule_id=2 username=\"a\"", shadow(2, 1)),
        ("rule_id=1 match_digest=\".*\" apply=1\nrule_id=2 username=\"a\"", shadow(2, 1)),
        ("rule_id=1 username=\"a\" apply=1\nrule_id=2 username=\"a\" match_digest=\"x\"", shadow(2, 1)),
        ("rule_id=1 match_digest=\"x\" apply=1\nrule_id=2 match_digest=\"x\"", shadow(2, 1)),
        ("rule_id=1 match_digest=\"x\" apply=1\nrule_id=2 match_digest=\"x\" re_modifiers=\"\"", vec![]),
        ("rule_id=1 match_digest=\"x\" apply=1\nrule_id=2 match_digest=\"x\" negate_match_pattern=1", vec![]),
        ("rule_id=1 username=\"a\" apply=1\nrule_id=2 username=\"b\"", vec![]),
        ("rule_id=1 username=\"a\"\nrule_id=2 username=\"a\"", vec![]),
        ("rule_id=1 username=\"a\" apply=1\nrule_id=2", vec![]),
        ("rule_id=1 flagIN=3 apply=1\nrule_id=2 flagOUT=3\nrule_id=3 flagIN=3", vec!["1 flagIN: never tried: flag 3 is first set by rule 2, and evaluation goes on with higher rules only (mysql-query_processor_iterations is 0)".to_owned()]),
    ];
    for (rows, expected) in cases {
        assert_eq!(remarks(&rules(rows)), expected, "{rows}");
    }
}

#[test]
fn the_split_everybody_begins_with() {
    let rows = r#"rule_id=1 match_pattern="^SELECT.*FOR UPDATE$" destination_hostgroup=1 apply=1
                  rule_id=2 match_pattern="^SELECT" destination_hostgroup=2 apply=1"#;
    let told = remarks(&format!("{USER}{}", rules(rows)));
    for part in [
        "FOR UPDATE;'",
        "\\nFOR UPDATE'",
        "SKIP LOCKED'",
        "NOWAIT'",
        "FOR SHARE'",
        "LOCK IN SHARE MODE'",
        "GET_LOCK",
        "f(1)",
        "parenthesis",
        "a comment before",
        "autocommit=0",
    ] {
        assert!(told.iter().any(|line| line.contains(part)), "{part}: {told:#?}");
    }
    assert!(!told.iter().any(|line| line.contains("b = 1 FOR UPDATE'")), "{told:#?}");
    assert!(!told.iter().any(|line| line.contains("transaction_persistent")), "{told:#?}");
    let impersistent = USER.replace("default_hostgroup=1", "default_hostgroup=1 transaction_persistent=0");
    let told = remarks(&format!("{impersistent}{}", rules(rows)));
    assert!(told.iter().any(|line| line.starts_with("2 destination_hostgroup: user 'app' has transaction_persistent=0")), "{told:#?}");
}

#[test]
fn no_split_no_remark() {
    for rows in [
        "rule_id=1 match_digest=\"^SELECT\" destination_hostgroup=1 apply=1",
        "rule_id=1 username=\"app\" destination_hostgroup=2",
        "rule_id=1 match_digest=\"^SELECT a FROM big$\" destination_hostgroup=2",
    ] {
        assert_eq!(remarks(&format!("{USER}{}", rules(rows))), Vec::<String>::new(), "{rows}");
    }
}
