//! Remarks on rules, and rules without remarks.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

mod common;

use common::{rules, snapshot};
use model::Remark;
use routing::{dead, lint};

/// `rule column: text` of each remark.
fn remarks(text: &str) -> Vec<String> {
    let short = |remark: &Remark| remark.to_string().replacen("mysql_query_rules, rule_id=", "", 1).replacen(", column ", " ", 1);
    lint(&snapshot(text)).iter().map(short).collect()
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

const LATER: &str = "1 flagIN: never tried: flag 3 is first set by rule 2, and evaluation goes on with higher rules only \
     (mysql-query_processor_iterations is 0); give this rule a higher rule_id than that";

fn unset(rule: u32) -> String {
    format!("{rule} flagIN: never tried: no rule before it sets flag 3; set flagOUT=3 in one before it, or flagIN=0 here")
}

fn ends(rule: u32, column: &str) -> String {
    let text = "the chain ends here with this rule's result: give a following rule this flagIN, or set apply=1";
    format!("{rule} {column}: no higher rule has flagIN=3: {text}")
}

#[test]
fn flags_that_nobody_sets_or_reads() {
    let weighted = r#"attributes="{\"flagOUTs\":[{\"id\":3,\"weight\":1}]}""#;
    let nobody =
        |rule: u32, column: &str, whose: &str| format!("{rule} {column}: no rule has flagIN=3: {whose}: give following rules this flagIN");
    let further = "the session's further statements match no rule";
    let cases: Vec<(String, Vec<String>)> = vec![
        ("rule_id=1 flagOUT=3\nrule_id=2 flagIN=3".into(), vec![]),
        (format!("rule_id=1 {weighted}\nrule_id=2 flagIN=3"), vec![]),
        ("rule_id=1 next_query_flagIN=3\nrule_id=2 flagIN=3".into(), vec![]),
        ("rule_id=1 mirror_flagOUT=3\nrule_id=2 flagIN=3".into(), vec![]),
        ("rule_id=1 flagIN=3".into(), vec![unset(1)]),
        ("rule_id=1 flagIN=3\nrule_id=2 flagOUT=3".into(), vec![LATER.into(), ends(2, "flagOUT")]),
        ("rule_id=1 flagOUT=3 apply=1\nrule_id=2 flagIN=3".into(), vec![unset(2)]),
        ("rule_id=1 flagOUT=3".into(), vec![ends(1, "flagOUT")]),
        ("rule_id=1 flagOUT=3 apply=1".into(), vec![]),
        ("rule_id=1 flagOUT=0".into(), vec![]),
        (format!("rule_id=1 {weighted}"), vec![ends(1, "attributes")]),
        ("rule_id=1 next_query_flagIN=3".into(), vec![nobody(1, "next_query_flagIN", further)]),
        ("rule_id=1 next_query_flagIN=0".into(), vec![]),
        ("rule_id=1 mirror_flagOUT=3".into(), vec![nobody(1, "mirror_flagOUT", "the copy matches no rule")]),
    ];
    for (rows, expected) in cases {
        assert_eq!(remarks(&rules(&rows)), expected, "{rows}");
    }
    let again = format!("mysql_variables = {{ query_processor_iterations=1 }} {}", rules("rule_id=1 flagIN=3\nrule_id=2 flagOUT=3"));
    assert_eq!(remarks(&again), Vec::<String>::new());
    let fast = "mysql_query_rules_fast_routing = ({ username=\"\", schemaname=\"s\", flagIN=3, destination_hostgroup=1 })";
    assert_eq!(remarks(&format!("{} {fast}", rules("rule_id=1 flagOUT=3"))), Vec::<String>::new());
}

#[test]
fn rules_in_the_shadow() {
    let shadow = |rule: u32, by: u32| {
        let then = "give this rule a lower rule_id than that, or delete it";
        vec![format!("{rule} apply: never reached: rule {by} applies to everything that this rule matches; {then}")]
    };
    let cases = [
        ("rule_id=1 apply=1\nrule_id=2 username=\"a\"", shadow(2, 1)),
        ("rule_id=1 match_digest=\".*\" apply=1\nrule_id=2 username=\"a\"", shadow(2, 1)),
        ("rule_id=1 match_digest=\".\" apply=1\nrule_id=2 username=\"a\"", shadow(2, 1)),
        ("rule_id=1 username=\"a\" apply=1\nrule_id=2 username=\"a\" match_digest=\"x\"", shadow(2, 1)),
        ("rule_id=1 match_digest=\"x\" apply=1\nrule_id=2 match_digest=\"x\"", shadow(2, 1)),
        ("rule_id=1 match_digest=\"x\" apply=1\nrule_id=2 match_digest=\"x\" re_modifiers=\"\"", vec![]),
        ("rule_id=1 match_digest=\"x\" apply=1\nrule_id=2 match_digest=\"x\" negate_match_pattern=1", vec![]),
        ("rule_id=1 username=\"a\" apply=1\nrule_id=2 username=\"b\"", vec![]),
        ("rule_id=1 username=\"a\"\nrule_id=2 username=\"a\"", vec![]),
        ("rule_id=1 username=\"a\" apply=1\nrule_id=2", vec![]),
        ("rule_id=1 apply=1\nrule_id=2 flagIN=0 flagOUT=3\nrule_id=3 flagIN=3", shadow(2, 1)),
        ("rule_id=1 flagIN=3 apply=1\nrule_id=2 flagOUT=3\nrule_id=3 flagIN=3", vec![LATER.to_owned()]),
    ];
    for (rows, expected) in cases {
        assert_eq!(remarks(&rules(rows)), expected, "{rows}");
    }
}

/// A digest has `?` for literals. Certain faults are reported, uncertain ones are not.
#[test]
fn digests_without_their_literals() {
    let asked = [
        ("^SELECT a FROM t WHERE id=1", "=1"),
        ("WHERE id = 1$", "= 1"),
        ("WHERE id\\s*=\\s*[0-9]+", "=1"),
        ("WHERE id = \\d+ AND", "= 1"),
        ("^SELECT a FROM t LIMIT 10", "LIMIT 10"),
        ("IN \\(1", "(1"),
        ("name='bob'", "='b"),
        ("WHERE name = 'bob' LIMIT", "= 'b"),
        ("(id=1)", "=1"),
    ];
    for (pattern, piece) in asked {
        let escaped = pattern.replace('\\', "\\\\");
        let told = remarks(&rules(&format!("rule_id=1 match_digest=\"{escaped}\"")));
        let piece = piece.escape_debug();
        assert_eq!(told.len(), 1, "{pattern}: {told:?}");
        let wanted = format!("1 match_digest: matches '{piece}', but digests have ? in place of numbers and strings: it never matches;");
        assert!(told[0].starts_with(&wanted), "{pattern}: {told:?}");
    }
    let silent = [
        "WHERE id=\\?",
        "WHERE id=?",
        "FROM sbtest1",
        "FROM t1 WHERE a.b2=\\?",
        "FROM `t 1`",
        "FROM t(1|2)",
        "WHERE id=(1|\\?)",
        "WHERE (id=1)?",
        "/\\* id=1 \\*/",
        "^SELECT .{0,10} FROM",
        "1",
        "^1",
        "=1st",
        "don't",
    ];
    for pattern in silent {
        let escaped = pattern.replace('\\', "\\\\");
        let told = remarks(&rules(&format!("rule_id=1 match_digest=\"{escaped}\"")));
        assert_eq!(told, Vec::<String>::new(), "{pattern}");
    }
    let negated = remarks(&rules("rule_id=1 match_digest=\"id=1\" negate_match_pattern=1"));
    assert!(negated[0].contains("being negated always holds"), "{negated:?}");
    let kept = format!("mysql_variables = {{ query_digests_keep_comment=true }} {}", rules("rule_id=1 match_digest=\"id=1\""));
    assert_eq!(remarks(&kept), Vec::<String>::new());
    assert_eq!(remarks(&rules("rule_id=1 match_pattern=\"id=1\"")), Vec::<String>::new());
}

/// Every LOAD asks, so it must not take longer than the number of rules does.
#[test]
fn a_hundred_thousand_rules_are_looked_through() {
    let rows: String =
        (1..=100_000).map(|id| format!("rule_id={id} username=\"u{id}\" match_digest=\"^SELECT {id}\" flagOUT=3 apply=1\n")).collect();
    let snapshot = snapshot(&rules(&rows));
    assert_eq!(dead(&snapshot).len(), 100_000);
}

#[test]
fn the_split_everybody_begins_with() {
    let rows = r#"rule_id=1 match_pattern="^SELECT.*FOR UPDATE$" destination_hostgroup=1 apply=1
                  rule_id=2 match_pattern="^SELECT" destination_hostgroup=2 apply=1"#;
    let told = remarks(&format!("{USER}{}", rules(rows)));
    assert_eq!(
        told,
        [
            "2 match_pattern: 12 kinds of SELECT that lock or may write go to reader hostgroup 2: FOR UPDATE with a ';' after it, \
             FOR UPDATE after a line break, which '.' does not match, FOR UPDATE with a comment after it, FOR UPDATE SKIP LOCKED, \
             FOR UPDATE NOWAIT, FOR SHARE, LOCK IN SHARE MODE, GET_LOCK(), stored functions, NEXTVAL(), INTO OUTFILE, \
             assignments of user variables; the attribute read_write_split tells them from reads",
            "2 match_pattern: reads that begin with these go to hostgroup 1, not to reader hostgroup 2: a parenthesis, \
             blanks or a line break, a comment, WITH",
        ]
    );
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
