//! The meaning of each column of `mysql_query_rules`, case by case.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

mod common;

use common::{Sender, hostgroup, route, rule_set, rules, snapshot, with_request};
use routing::{Decider, Engine, Memo, Options, Route, RuleSet};

/// One statement under some rules, and where it must go.
struct Case {
    what: &'static str,
    rules: &'static str,
    sender: Sender,
    text: &'static str,
    expected: i64,
}

fn case(what: &'static str, rules: &'static str, text: &'static str, expected: i64) -> Case {
    Case { what, rules, sender: Sender::default(), text, expected }
}

fn from(sender: Sender, case: Case) -> Case {
    Case { sender, ..case }
}

fn run(cases: Vec<Case>) {
    for Case { what, rules: rows, sender, text, expected } in cases {
        let set = rule_set(&rules(rows));
        let decided = route(&set, &mut Memo::new(), &sender, text.as_bytes());
        assert_eq!(hostgroup(&decided), expected, "{what}: {decided:#?}");
    }
}

#[test]
fn conditions() {
    let user = |user| Sender { user, ..Sender::default() };
    let schema = |schema| Sender { schema, ..Sender::default() };
    let address = |client_addr| Sender { client_addr, ..Sender::default() };
    let listener = |proxy_addr, proxy_port| Sender { proxy_addr, proxy_port, ..Sender::default() };
    let any = "rule_id=1 destination_hostgroup=5";
    run(vec![
        case("no condition", any, "SELECT 1", 5),
        case("no rule", "rule_id=1 flagIN=3 destination_hostgroup=5", "SELECT 1", -1),
        from(user("App"), case("user: letter case", "rule_id=1 username=\"app\" destination_hostgroup=5", "SELECT 1", -1)),
        case("user", "rule_id=1 username=\"app\" destination_hostgroup=5", "SELECT 1", 5),
        case("empty user", "rule_id=1 username=\"\" destination_hostgroup=5", "SELECT 1", 5),
        from(schema("Shop"), case("schema: letter case", "rule_id=1 schemaname=\"shop\" destination_hostgroup=5", "SELECT 1", -1)),
        case("schema", "rule_id=1 schemaname=\"shop\" destination_hostgroup=5", "SELECT 1", 5),
        case("empty schema", "rule_id=1 schemaname=\"\" destination_hostgroup=5", "SELECT 1", 5),
        case("address", "rule_id=1 client_addr=\"10.1.2.3\" destination_hostgroup=5", "SELECT 1", 5),
        case("address: no prefix", "rule_id=1 client_addr=\"10.1.2\" destination_hostgroup=5", "SELECT 1", -1),
        case("address: prefix", "rule_id=1 client_addr=\"10.1.%\" destination_hostgroup=5", "SELECT 1", 5),
        case("address: other prefix", "rule_id=1 client_addr=\"10.2.%\" destination_hostgroup=5", "SELECT 1", -1),
        case("address: any", "rule_id=1 client_addr=\"%\" destination_hostgroup=5", "SELECT 1", 5),
        from(address(None), case("address unknown", "rule_id=1 client_addr=\"10.%\" destination_hostgroup=5", "SELECT 1", -1)),
        from(address(None), case("address unknown, any", "rule_id=1 client_addr=\"%\" destination_hostgroup=5", "SELECT 1", 5)),
        case("listener", "rule_id=1 proxy_addr=\"0.0.0.0\" proxy_port=6033 destination_hostgroup=5", "SELECT 1", 5),
        from(listener("0.0.0.0", 6034), case("port", "rule_id=1 proxy_port=6033 destination_hostgroup=5", "SELECT 1", -1)),
        from(listener("::1", 6033), case("listener's address", "rule_id=1 proxy_addr=\"0.0.0.0\" destination_hostgroup=5", "SELECT 1", -1)),
        case("inactive", "rule_id=1 destination_hostgroup=5 }, { rule_id=2 active=0 destination_hostgroup=6", "SELECT 1", 5),
    ]);
}

#[test]
fn digests() {
    let (text, hash) = common::digest(b"SELECT 1");
    assert_eq!(text, b"SELECT ?");
    for (digest, expected) in [(format!("0x{hash:X}"), 5), (format!("0x{hash:x}"), 5), (hash.to_string(), 5), ("0x1".to_owned(), -1)] {
        let set = rule_set(&rules(&format!("rule_id=1 digest=\"{digest}\" destination_hostgroup=5")));
        assert_eq!(hostgroup(&route(&set, &mut Memo::new(), &Sender::default(), b"SELECT  2")), expected, "{digest}");
    }
}

#[test]
fn patterns() {
    run(vec![
        case(
            "digest text",
            r#"rule_id=1 match_digest="^SELECT a FROM t WHERE b = \?$" destination_hostgroup=5"#,
            "SELECT a FROM t WHERE b = 7",
            5,
        ),
        case("digest text has no literals", r#"rule_id=1 match_digest="b = 7" destination_hostgroup=5"#, "SELECT a FROM t WHERE b = 7", -1),
        case("text has", r#"rule_id=1 match_pattern="b = 7" destination_hostgroup=5"#, "SELECT a FROM t WHERE b = 7", 5),
        case("partial", r#"rule_id=1 match_pattern="from" destination_hostgroup=5"#, "SELECT a FROM t", 5),
        case("case sensitive", r#"rule_id=1 match_pattern="from" re_modifiers="" destination_hostgroup=5"#, "SELECT a FROM t", -1),
        case("negated", r#"rule_id=1 match_pattern="^SELECT" negate_match_pattern=1 destination_hostgroup=5"#, "UPDATE t SET a = 1", 5),
        case("negated, matches", r#"rule_id=1 match_pattern="^SELECT" negate_match_pattern=1 destination_hostgroup=5"#, "SELECT 1", -1),
        case(
            "negation inverts both",
            r#"rule_id=1 match_digest="^SELECT" match_pattern="x" negate_match_pattern=1 destination_hostgroup=5"#,
            "INSERT 1",
            5,
        ),
        case(
            "each separately",
            r#"rule_id=1 match_digest="^SELECT" match_pattern="x" negate_match_pattern=1 destination_hostgroup=5"#,
            "INSERT x",
            -1,
        ),
        case("all are ANDed", r#"rule_id=1 match_digest="^SELECT" match_pattern="x" destination_hostgroup=5"#, "SELECT y", -1),
        case("look-ahead", r#"rule_id=1 match_pattern="^SELECT(?!.*secret)" destination_hostgroup=5"#, "SELECT secret", -1),
    ]);
}

#[test]
fn chains() {
    run(vec![
        case("later actions replace", "rule_id=1 destination_hostgroup=5\nrule_id=2 destination_hostgroup=6", "SELECT 1", 6),
        case("unset leaves", "rule_id=1 destination_hostgroup=5\nrule_id=2 timeout=6", "SELECT 1", 5),
        case("apply ends", "rule_id=1 destination_hostgroup=5 apply=1\nrule_id=2 destination_hostgroup=6", "SELECT 1", 5),
        case("order is the id's", "rule_id=9 destination_hostgroup=5\nrule_id=2 destination_hostgroup=6", "SELECT 1", 5),
        case(
            "flagOUT",
            "rule_id=1 flagOUT=3\nrule_id=2 destination_hostgroup=5\nrule_id=3 flagIN=3 destination_hostgroup=6",
            "SELECT 1",
            6,
        ),
        case(
            "flagOUT leaves the old flag",
            "rule_id=1 flagOUT=3 destination_hostgroup=1\nrule_id=2 destination_hostgroup=5",
            "SELECT 1",
            1,
        ),
        case("forward only", "rule_id=1 flagIN=3 destination_hostgroup=5\nrule_id=2 flagOUT=3 destination_hostgroup=6", "SELECT 1", 6),
        case(
            "flagOUT and apply",
            "rule_id=1 flagOUT=3 apply=1 destination_hostgroup=1\nrule_id=2 flagIN=3 destination_hostgroup=5",
            "SELECT 1",
            1,
        ),
        from(
            Sender { flag_in: 7, ..Sender::default() },
            case("flagIN of the session", "rule_id=1 destination_hostgroup=5\nrule_id=2 flagIN=7 destination_hostgroup=6", "SELECT 1", 6),
        ),
    ]);
}

#[test]
fn iterations() {
    let rows = "rule_id=1 flagIN=3 destination_hostgroup=5 apply=1\nrule_id=2 flagIN=0 flagOUT=3 destination_hostgroup=6";
    for (iterations, expected) in [(0, 6), (1, 5), (9, 5)] {
        let set = rule_set(&format!("mysql_variables = {{ query_processor_iterations = {iterations} }} {}", rules(rows)));
        assert_eq!(hostgroup(&route(&set, &mut Memo::new(), &Sender::default(), b"SELECT 1")), expected, "{iterations}");
    }
    // Two rules that send to each other end when no restart is left.
    let rows = "rule_id=1 flagOUT=3 delay=1\nrule_id=2 flagIN=3 flagOUT=0 delay=2";
    let set = rule_set(&format!("mysql_variables = {{ query_processor_iterations = 5 }} {}", rules(rows)));
    let decided = route(&set, &mut Memo::new(), &Sender::default(), b"SELECT 1");
    assert_eq!(&*decided.matched, [1, 2, 1, 2, 1, 2]);
}

#[test]
fn weighted_flags() {
    let row = |more: &str| {
        format!(
            r#"rule_id=1 {more} attributes="{{\"flagOUTs\":[{{\"id\":1,\"weight\":1}},{{\"id\":2,\"weight\":3}},{{\"id\":9,\"weight\":0}}]}}""#
        )
    };
    let set = rule_set(&rules(&row("")));
    let mut counts = [0_u32; 10];
    let mut memo = Memo::new();
    for random in 0..4000 {
        let decided = route(&set, &mut memo, &Sender { random, ..Sender::default() }, b"SELECT 1");
        counts[usize::try_from(decided.final_flag).unwrap()] += 1;
    }
    assert_eq!(counts[1] + counts[2], 4000, "{counts:?}");
    assert!((800..1200).contains(&counts[1]), "{counts:?}");
    let set = rule_set(&rules(&row("flagOUT=7")));
    assert_eq!(route(&set, &mut memo, &Sender::default(), b"SELECT 1").final_flag, 7, "a plain flagOUT wins");
}

#[test]
fn every_action_is_carried() {
    let set = rule_set(&rules(
        r#"rule_id=1 timeout=0 retries=1 delay=2 next_query_flagIN=3 mirror_flagOUT=4 mirror_hostgroup=5 error_msg="no" OK_msg="yes" cache_ttl=6 cache_empty_result=0 multiplex=2 gtid_from_hostgroup=7 log=1 destination_hostgroup=8"#,
    ));
    let decided = route(&set, &mut Memo::new(), &Sender::default(), b"SELECT 1");
    let expected = Route {
        destination_hostgroup: Some(model::HostgroupId(8)),
        decider: Decider::Rule(1),
        timeout_ms: Some(0),
        retries: Some(1),
        delay_ms: Some(2),
        next_query_flag_in: Some(3),
        mirror_flag_out: Some(4),
        mirror_hostgroup: Some(model::HostgroupId(5)),
        error_msg: Some("no".into()),
        ok_msg: Some("yes".into()),
        cache_ttl_ms: Some(6),
        cache_empty_result: Some(false),
        multiplex: Some(model::snapshot::RuleMultiplex::IgnoreVariables),
        gtid_from_hostgroup: Some(model::HostgroupId(7)),
        log: Some(true),
        matched: [1].into(),
        ..Route::default()
    };
    assert_eq!(decided, expected);
}

#[test]
fn rewriting() {
    let cases = [
        (r#"rule_id=1 match_pattern="FROM a" replace_pattern="FROM b""#, "SELECT 1 FROM a, a", "SELECT 1 FROM b, a"),
        (r#"rule_id=1 match_pattern="a" re_modifiers="CASELESS,GLOBAL" replace_pattern="b""#, "a A a", "b b b"),
        (r#"rule_id=1 match_pattern="a" re_modifiers="GLOBAL" replace_pattern="b""#, "a A a", "b A b"),
        (r#"rule_id=1 match_pattern="(\\w+) = (\\w+)" replace_pattern="[\\2|\\1|\\0|\\\\]""#, "x = y", r"[y|x|x = y|\]"),
        (r#"rule_id=1 match_pattern="(a)|(b)" replace_pattern="<\\1\\2>" re_modifiers="GLOBAL""#, "ab", "<a><b>"),
        ("rule_id=1 match_pattern=\"a\" replace_pattern=\"b\"\nrule_id=2 match_pattern=\"b\" replace_pattern=\"c\"", "a", "c"),
        ("rule_id=1 match_pattern=\"^\" replace_pattern=\"/* x */ \"", "SELECT 1", "/* x */ SELECT 1"),
    ];
    for (rows, text, expected) in cases {
        let set = rule_set(&rules(rows));
        let decided = route(&set, &mut Memo::new(), &Sender::default(), text.as_bytes());
        let rewritten = decided.rewritten.as_deref().map(|text| text.escape_ascii().to_string());
        assert_eq!(rewritten, Some(expected.as_bytes().escape_ascii().to_string()), "{rows}");
    }
    run(vec![
        case(
            "later rules see the new text",
            "rule_id=1 match_pattern=\"aaaa\" replace_pattern=\"bbbb\"\nrule_id=2 match_pattern=\"bbbb\" destination_hostgroup=5",
            "SELECT aaaa",
            5,
        ),
        case(
            "and not the old one",
            "rule_id=1 match_pattern=\"aaaa\" replace_pattern=\"bbbb\"\nrule_id=2 match_pattern=\"aaaa\" destination_hostgroup=5",
            "SELECT aaaa",
            -1,
        ),
        case(
            "the digest is the old one",
            "rule_id=1 match_pattern=\"aaaa\" replace_pattern=\"bbbb\"\nrule_id=2 match_digest=\"aaaa\" destination_hostgroup=5",
            "SELECT aaaa",
            5,
        ),
    ]);
}

#[test]
fn fast_routing() {
    let fast = r#"mysql_query_rules_fast_routing = (
        { username="app" schemaname="shop" flagIN=0 destination_hostgroup=20 }, { username="" schemaname="shop" flagIN=0 destination_hostgroup=21 },
        { username="app" schemaname="shop" flagIN=3 destination_hostgroup=22 } )"#;
    let other = Sender { user: "other", ..Sender::default() };
    let cases = [
        ("", Sender::default(), 20),
        ("", other.clone(), 21),
        ("", Sender { schema: "x", ..Sender::default() }, -1),
        ("rule_id=1 destination_hostgroup=5", Sender::default(), 20),
        ("rule_id=1 destination_hostgroup=5 apply=1", Sender::default(), 5),
        ("rule_id=1 flagOUT=3", Sender::default(), 22),
        ("rule_id=1 flagOUT=3 destination_hostgroup=5", other, 5),
        // In ProxySQL the last rule's apply=1 counts although it does not match.
        ("rule_id=1 destination_hostgroup=5\nrule_id=2 username=\"x\" apply=1", Sender::default(), 20),
    ];
    for (rows, sender, expected) in cases {
        let set = rule_set(&format!("{} {fast}", rules(rows)));
        let decided = route(&set, &mut Memo::new(), &sender, b"SELECT 1");
        assert_eq!(hostgroup(&decided), expected, "{rows}: {decided:#?}");
    }
}

#[test]
fn comments_override() {
    let set = rule_set(&rules("rule_id=1 destination_hostgroup=5 timeout=9 apply=1"));
    let sender = Sender { comment: Some("hostgroup=7"), ..Sender::default() };
    let decided = route(&set, &mut Memo::new(), &sender, b"/* hostgroup=7 */ SELECT 1");
    assert_eq!((hostgroup(&decided), decided.decider, decided.timeout_ms), (7, Decider::Comment, Some(9)));
    let decided = route(&set, &mut Memo::new(), &Sender::default(), b"/* hostgroup=7 */ SELECT 1");
    assert_eq!(hostgroup(&decided), 5, "only where the caller hands the comment over");
}

#[test]
fn two_rules_everybody_begins_with() {
    let set = rule_set(&rules(
        r#"rule_id=1 match_pattern="^SELECT.*FOR UPDATE$" destination_hostgroup=1 apply=1
           rule_id=2 match_pattern="^SELECT" destination_hostgroup=2 apply=1"#,
    ));
    let mut memo = Memo::new();
    let cases: [(&[u8], i64); 9] = [
        (b"SELECT a FROM t", 2),
        (b"select a from t", 2),
        (b"SELECT a FROM t FOR UPDATE", 1),
        (b"SELECT a FROM t for update\n", 1),
        (b"SELECT a FROM t FOR UPDATE;", 2),
        (b"SELECT a\nFROM t FOR UPDATE", 2),
        (b" SELECT a FROM t", -1),
        (b"INSERT INTO t SELECT 1", -1),
        (b"SELECT '\xff\xfe' FOR UPDATE", 1),
    ];
    for (text, expected) in cases {
        assert_eq!(hostgroup(&route(&set, &mut memo, &Sender::default(), text)), expected, "{}", text.escape_ascii());
    }
    // Every statement was routed twice by rules; explaining counts nothing.
    assert_eq!(set.hits().collect::<Vec<_>>(), [(1, 6), (2, 8)]);
    set.add_hits(&[(2, 100), (7, 1)]);
    assert_eq!(set.hits().collect::<Vec<_>>(), [(1, 6), (2, 108)], "what another process counted");
}

#[test]
fn what_cannot_be_compiled_names_rule_and_column() {
    let rows = r#"rule_id=7 match_digest="(" match_pattern="a" replace_pattern="\\3"
                  rule_id=8 match_pattern="[" "#;
    let config = snapshot(&rules(rows));
    let errors = RuleSet::compile(&config.rules, Options::default()).unwrap_err();
    let subjects: Vec<&str> = errors.iter().map(|error| error.subject.as_str()).collect();
    assert_eq!(
        subjects,
        [
            "mysql_query_rules.match_digest of rule 7",
            "mysql_query_rules.replace_pattern of rule 7",
            "mysql_query_rules.match_pattern of rule 8"
        ]
    );
    let config = snapshot(&rules(r#"rule_id=9 match_pattern="a++" "#));
    assert!(RuleSet::compile(&config.rules, Options::default()).is_ok());
    let errors = RuleSet::compile(&config.rules, Options { engine: Engine::Re2, iterations: 0 }).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "mysql_query_rules.match_pattern of rule 9: cannot be used: RE2 does not support possessive repetitions, or not here"
    );
}

#[test]
fn runaways_are_counted_and_match_nothing() {
    let set = rule_set(&rules(r#"rule_id=1 match_pattern="^(a+)+\\1?$" negate_match_pattern=1 destination_hostgroup=5"#));
    let text = format!("{}!", "a".repeat(60));
    assert_eq!(hostgroup(&route(&set, &mut Memo::new(), &Sender::default(), text.as_bytes())), -1);
    assert_eq!(set.limits_exceeded(), 1, "the second time it was remembered");
}

/// A statement that is made hard to search does not pass a rule that refuses it.
#[test]
fn runaways_do_not_pass_a_rule_that_refuses() {
    for pattern in ["match_pattern", "match_digest"] {
        let set = rule_set(&rules(&format!(r#"rule_id=1 {pattern}="^SELECT (a+)+\\1?$" error_msg="no""#)));
        let text = format!("SELECT {}!", "a".repeat(60));
        let refused = route(&set, &mut Memo::new(), &Sender::default(), text.as_bytes());
        assert_eq!(refused.error_msg.as_deref(), Some("no"), "{pattern}");
        assert_eq!(route(&set, &mut Memo::new(), &Sender::default(), b"SELECT b").error_msg, None, "{pattern}");
    }
}

/// A digest whose text is longer than may be read.
struct TooLong;

impl routing::Digest for TooLong {
    fn hash(&self) -> u64 {
        7
    }

    fn text(&self) -> Option<std::borrow::Cow<'_, [u8]>> {
        None
    }
}

#[test]
fn what_is_too_long_to_be_judged_by_its_digest_is_refused() {
    let judged = |rows: &str, sender: Sender| {
        let set = rule_set(&rules(rows));
        let routed = with_request(&sender, b"SELECT 1", |request| {
            let request = routing::Request { digest: &TooLong, ..*request };
            let first = set.route(&request, &mut Memo::new(), 0);
            assert_eq!(first, set.explain(&request, 0).route, "{rows}");
            first
        });
        (hostgroup(&routed), routed.error_msg.as_deref() == Some(routing::DIGEST_TOO_LONG))
    };
    let other = || Sender { user: "other", ..Sender::default() };
    let elsewhere = "rule_id=1 username=\"app\" match_digest=\"secret\" destination_hostgroup=3";
    assert_eq!(judged(elsewhere, Sender::default()), (-1, true));
    assert_eq!(judged(elsewhere, other()), (-1, false), "the rule is not about this user");
    let negated = "rule_id=1 match_digest=\"^SELECT a$\" negate_match_pattern=1 error_msg=\"no\"";
    assert_eq!(judged(negated, Sender::default()), (-1, true));
    let before = "rule_id=1 destination_hostgroup=4 apply=1\nrule_id=2 match_digest=\"secret\" error_msg=\"no\"";
    assert_eq!(judged(before, Sender::default()), (4, false), "a rule before it decides");
    assert_eq!(judged("rule_id=1 digest=\"0x7\" destination_hostgroup=5", Sender::default()), (5, false), "the hash is that of the whole");
    assert_eq!(judged("rule_id=1 match_pattern=\"SELECT\" destination_hostgroup=6", Sender::default()), (6, false));
}

#[test]
fn explained() {
    let set = rule_set(&rules(
        "rule_id=1 username=\"x\" destination_hostgroup=1\nrule_id=2 match_digest=\"^UPDATE\" destination_hostgroup=2\nrule_id=3 flagOUT=4 timeout=5\n\
         rule_id=4 flagIN=9\nrule_id=5 flagIN=4 destination_hostgroup=7 apply=1\nrule_id=6",
    ));
    let told = with_request(&Sender::default(), b"SELECT 1", |request| set.explain(request, 0));
    let lines: Vec<String> = told.rules.iter().map(|rule| format!("{} {} {}", rule.rule_id, rule.matched, rule.why)).collect();
    assert_eq!(
        lines,
        [
            "1 false username is another",
            "2 false match_digest does not match",
            "3 true flagOUT=4, timeout=5",
            "4 false flagIN 9 is not the flag reached, 4",
            "5 true destination_hostgroup=7, apply"
        ]
    );
    assert_eq!(hostgroup(&told.route), 7);
}
