//! Rows of rules, fast routing, firewall and read/write split, as the snapshot has them.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

use model::error::ErrorKind;
use model::snapshot::{AddressPattern, FirewallMode, Modifiers, RuleMultiplex, UserSplit, WeightedFlag, located, rule_subject};
use model::{ConfigError, HostgroupId, ReadWriteSplit, Snapshot, parse};

fn compiled(text: &str) -> Snapshot {
    let (config, _) = parse(text, "p.cnf").unwrap_or_else(|errors| panic!("{errors:#?}"));
    Snapshot::compile(&config).unwrap()
}

fn faults(text: &str) -> Vec<String> {
    parse(text, "p.cnf").unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn active_rules_by_id() {
    let snapshot = compiled(
        r#"mysql_query_rules = ( { rule_id=7 active=1 username="" schemaname="s" client_addr="10.%" digest="0xFf" re_modifiers="caseless, Global"
               multiplex=2 attributes="{\"flagOUTs\":[{\"id\":3,\"weight\":4}]}" destination_hostgroup=2 },
             { active=1 comment="numbered" }, { rule_id=2 active=1 re_modifiers="" client_addr="%" }, { rule_id=9 active=0 } )"#,
    );
    let rules = &snapshot.rules.rules;
    assert_eq!(rules.iter().map(|rule| rule.rule_id).collect::<Vec<_>>(), [2, 7, 10]);
    let rule = &rules[1];
    assert_eq!((&rule.username, rule.schemaname.as_deref(), rule.digest), (&None, Some("s"), Some(255)));
    assert_eq!(rule.client_addr, Some(AddressPattern::Prefix("10.".into())));
    assert_eq!(rule.modifiers, Modifiers { caseless: true, global: true });
    assert_eq!((rule.multiplex, &*rule.flag_outs), (Some(RuleMultiplex::IgnoreVariables), &[WeightedFlag { flag: 3, weight: 4 }][..]));
    assert_eq!((&rules[0].client_addr, rules[0].modifiers), (&Some(AddressPattern::Any), Modifiers::default()));
    assert_eq!(rules[2].comment.as_deref(), Some("numbered"));
}

#[test]
fn a_fault_that_is_found_later_is_located() {
    let (config, _) = parse("mysql_query_rules=(\n{ rule_id=5\n  match_pattern=\"(\" })", "p.cnf").unwrap();
    let fault = |id| ConfigError { at: None, subject: rule_subject(id, "match_pattern"), kind: ErrorKind::Pattern("x".into()) };
    assert_eq!(located(fault(5), &config).to_string(), format!("p.cnf:3:3: {}", fault(5)));
    assert_eq!(located(fault(6), &config), fault(6));
}

#[test]
fn faults_name_rule_and_column() {
    let cases = [
        (r#"client_addr="10.%.1""#, "p.cnf:1:42: mysql_query_rules.client_addr of rule 5: '%' may stand at the end only"),
        (r#"digest="FF""#, "p.cnf:1:42: mysql_query_rules.digest of rule 5: must be a digest of 64 bits, such as 0x1A2B3C4D5E6F7081"),
        (r#"digest="0x-1""#, "p.cnf:1:42: mysql_query_rules.digest of rule 5: must be a digest of 64 bits, such as 0x1A2B3C4D5E6F7081"),
        (r#"re_modifiers="X""#, "p.cnf:1:42: mysql_query_rules.re_modifiers of rule 5: 'X' is not allowed; allowed are CASELESS, GLOBAL"),
        (r#"attributes="[]""#, "p.cnf:1:42: mysql_query_rules.attributes of rule 5: bad JSON: must be an object"),
        (
            r#"attributes="{\"flagOUTs\":[{\"id\":-1,\"weight\":1}]}""#,
            r#"p.cnf:1:42: mysql_query_rules.attributes of rule 5: bad JSON: each of 'flagOUTs' must be {"id": number, "weight": number}"#,
        ),
        (
            r#"attributes="{\"flagOuts\":[]}""#,
            "p.cnf:1:42: mysql_query_rules.attributes of rule 5: bad JSON: unknown key 'flagOuts'; did you mean 'flagOUTs'?",
        ),
        ("mirror_hostgroup=4294967295", "p.cnf:1:42: mysql_query_rules.mirror_hostgroup: 4294967295 is out of range 0..2147483647"),
        ("gtid_from_hostgroup=4294967295", "p.cnf:1:42: mysql_query_rules.gtid_from_hostgroup: 4294967295 is out of range 0..2147483647"),
    ];
    for (column, expected) in cases {
        assert_eq!(faults(&format!("mysql_query_rules=({{rule_id=5, active=1, {column}}})")), [expected], "{column}");
    }
}

#[test]
fn fast_routing_and_firewall() {
    let snapshot = compiled(
        r#"mysql_query_rules_fast_routing = ( { username="a" schemaname="s" flagIN=1 destination_hostgroup=2 } )
           mysql_firewall_whitelist_users = ( { username="a" client_address="" mode="protecting" }, { username="b" client_address="" active=0 } )
           mysql_firewall_whitelist_rules = ( { username="a" client_address="" schemaname="s" digest="0x10" } )
           mysql_firewall_whitelist_sqli_fingerprints = ( { fingerprint="s&1" } )"#,
    );
    let rules = &snapshot.rules;
    assert_eq!((&*rules.fast_routes[0].username, rules.fast_routes[0].flag_in, rules.fast_routes[0].destination), ("a", 1, HostgroupId(2)));
    assert_eq!(rules.firewall.users.iter().map(|user| user.mode).collect::<Vec<_>>(), [FirewallMode::Protecting]);
    assert_eq!((rules.firewall.rules[0].digest, &*rules.firewall.sqli_fingerprints[0]), (16, "s&1"));
    assert_eq!(
        faults(r#"mysql_firewall_whitelist_rules = ( { username="a" client_address="" schemaname="s" digest="x" } )"#),
        ["p.cnf:1:84: mysql_firewall_whitelist_rules.digest: must be a digest of 64 bits, such as 0x1A2B3C4D5E6F7081"]
    );
}

#[test]
fn a_users_split() {
    let pairs = "mysql_replication_hostgroups = ( { writer_hostgroup=10 reader_hostgroup=20 } )";
    let on = |writer, reader| UserSplit::On(ReadWriteSplit { writer: HostgroupId(writer), reader: HostgroupId(reader) });
    let cases = [
        ("{}", UserSplit::Unset),
        (r#"{\"read_write_split\":true}"#, on(10, 20)),
        (r#"{\"read_write_split\":false}"#, UserSplit::Off),
        (r#"{\"read_write_split\":{\"reader\":5}}"#, on(10, 5)),
        (r#"{\"read_write_split\":{\"writer\":4,\"reader\":5}}"#, on(4, 5)),
        (r#"{\"read_write_split\":{}}"#, on(10, 20)),
    ];
    for (attributes, expected) in cases {
        let snapshot = compiled(&format!(r#"{pairs} mysql_users = ( {{ username="u" default_hostgroup=10 attributes="{attributes}" }} )"#));
        assert_eq!(snapshot.users["u"].attributes.read_write_split, expected, "{attributes}");
    }
    let cases = [
        (
            r#"{\"read_write_split\":true}"#,
            "'read_write_split': no hostgroups table names a reader for writer hostgroup 11: give the reader's number",
        ),
        (r#"{\"read_write_split\":1}"#, "'read_write_split' must be true, false or an object"),
        (r#"{\"read_write_split\":{\"reader\":-1}}"#, "'read_write_split': 'reader' must be the number of a hostgroup"),
        (r#"{\"safe_functions\":\"f\"}"#, "'safe_functions' must be an array of names"),
        (r#"{\"comment_directives\":1}"#, "'comment_directives' must be true or false"),
    ];
    for (attributes, expected) in cases {
        let text = format!(r#"{pairs} mysql_users = ( {{ username="u" default_hostgroup=11 attributes="{attributes}" }} )"#);
        assert!(faults(&text)[0].ends_with(&format!("mysql_users.attributes: bad JSON: {expected}")), "{:?}", faults(&text));
    }
    let snapshot =
        compiled(r#"mysql_users = ( { username="u" attributes="{\"safe_functions\":[\"F\",\"s.P\"],\"comment_directives\":true}" } )"#);
    let attributes = &snapshot.users["u"].attributes;
    assert_eq!(
        (attributes.comment_directives, attributes.safe_functions.iter().map(|name| &**name).collect::<Vec<_>>()),
        (true, vec!["f", "s.p"])
    );
}

#[test]
fn a_hostgroups_split() {
    let group =
        |table: &str| format!("{table} = ( {{ writer_hostgroup=1 backup_writer_hostgroup=2 reader_hostgroup=3 offline_hostgroup=4 }} )");
    let tables = [
        "mysql_replication_hostgroups = ( { writer_hostgroup=1 reader_hostgroup=3 } )".to_owned(),
        group("mysql_group_replication_hostgroups"),
        group("mysql_galera_hostgroups"),
        r#"mysql_aws_aurora_hostgroups = ( { writer_hostgroup=1 reader_hostgroup=3 domain_name=".x" } )"#.to_owned(),
    ];
    let row = |settings: &str| format!(r#"mysql_hostgroup_attributes = ( {{ hostgroup_id=1 hostgroup_settings="{settings}" }} )"#);
    let reader = |text: &str| compiled(text).hostgroup(HostgroupId(1)).unwrap().attributes.split_reader.map(|id| id.0);
    for table in &tables {
        assert_eq!(reader(&format!("{table} {}", row(r#"{\"read_write_split\":true}"#))), Some(3), "{table}");
    }
    assert_eq!(reader(&row(r#"{\"read_write_split\":{\"reader_hostgroup\":9}}"#)), Some(9));
    assert_eq!(reader(&row(r#"{\"read_write_split\":false,\"handle_warnings\":1}"#)), None);
    assert_eq!(reader(&row("")), None);
    assert_eq!(
        faults(&row(r#"{\"read_write_split\":true}"#)),
        ["p.cnf:1:49: mysql_hostgroup_attributes.hostgroup_settings: bad JSON: 'read_write_split': no hostgroups table names a reader \
             for writer hostgroup 1: give the reader's number"]
    );
}
