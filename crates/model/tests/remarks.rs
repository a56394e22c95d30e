//! References that lead nowhere are remarked on, and those that lead somewhere are not.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

use model::config::remarks::references;
use model::remark::{Places, by_kind};
use model::{About, Config, Remark, RowName, Snapshot};

fn read(text: &str) -> Config {
    model::parse(text, "proxysql.cnf").unwrap_or_else(|errors| panic!("{text}: {errors:?}")).0
}

/// `table, row, column c` of each remark.
fn places(text: &str) -> Vec<String> {
    let config = read(text);
    let found = references(&config, &Snapshot::compile(&config).unwrap());
    found.iter().map(|remark| remark.to_string().split_once(": ").unwrap().0.to_owned()).collect()
}

const SERVERS: &str =
    "mysql_servers = ({ hostgroup=1, address=\"a\" }) mysql_replication_hostgroups = ({ writer_hostgroup=1, reader_hostgroup=2 })";

fn rules(columns: &str) -> String {
    format!("mysql_query_rules = ({{ rule_id=7, active=1, {columns} }})")
}

#[test]
fn each_reference() {
    let rule = |column: &str| vec![format!("mysql_query_rules, rule_id=7, column {column}")];
    let user = |name: &str, column: &str| vec![format!("mysql_users, username={name}, column {column}")];
    let route = |column: &str| vec![format!("mysql_query_rules_fast_routing, username=app, schemaname=s, flagIN=0, column {column}")];
    let attributes = |id: u32, column: &str| vec![format!("mysql_hostgroup_attributes, hostgroup_id={id}, column {column}")];
    let users = "mysql_users = ({ username=\"app\", default_hostgroup=1 })";
    let fast = |user: &str, hostgroup: u32| {
        format!(
            "mysql_query_rules_fast_routing = ({{ username=\"{user}\", schemaname=\"s\", flagIN=0, destination_hostgroup={hostgroup} }})"
        )
    };
    let cases: Vec<(String, Vec<String>)> = vec![
        // A server, or one in another hostgroup of the cluster, is enough.
        (rules("destination_hostgroup=1"), vec![]),
        (rules("destination_hostgroup=2"), vec![]),
        (rules("destination_hostgroup=3"), rule("destination_hostgroup")),
        (rules("destination_hostgroup=3, error_msg=\"no\""), vec![]),
        (rules("destination_hostgroup=3, OK_msg=\"yes\""), vec![]),
        (rules("destination_hostgroup=3, flagOUT=5 }, { rule_id=8, active=1, flagIN=5"), rule("destination_hostgroup")),
        (rules("destination_hostgroup=3, flagOUT=5 }, { rule_id=8, active=1, flagIN=5, destination_hostgroup=1"), vec![]),
        (
            rules(
                "destination_hostgroup=3, flagOUT=5 }, { rule_id=8, active=1, flagIN=5, flagOUT=6 }, \
                 { rule_id=9, active=1, flagIN=6, destination_hostgroup=1",
            ),
            vec![],
        ),
        (rules("mirror_hostgroup=3"), rule("mirror_hostgroup")),
        // Copies of writes that go where the original goes.
        (rules("destination_hostgroup=1, mirror_hostgroup=1"), rule("mirror_hostgroup")),
        (rules("destination_hostgroup=1, mirror_hostgroup=2, match_digest=\"^UPDATE t SET k=k\\\\+\""), rule("mirror_hostgroup")),
        (rules("destination_hostgroup=1, mirror_hostgroup=1, match_digest=\"^SELECT\""), vec![]),
        (rules("destination_hostgroup=1, mirror_hostgroup=1, match_digest=\"^SELECT\", negate_match_pattern=1"), rule("mirror_hostgroup")),
        (rules("destination_hostgroup=1, mirror_hostgroup=1, error_msg=\"no\""), vec![]),
        (format!("{users} {}", rules("mirror_hostgroup=1")), rule("mirror_hostgroup")),
        (rules("mirror_hostgroup=1"), vec![]),
        (rules("gtid_from_hostgroup=3"), rule("gtid_from_hostgroup")),
        ("mysql_query_rules = ({ rule_id=7, active=0, destination_hostgroup=3 })".to_owned(), vec![]),
        (format!("{users} {}", rules("username=\"app\"")), vec![]),
        (rules("username=\"app\""), rule("username")),
        (format!("mysql_users = ({{ username=\"app\", default_hostgroup=1, active=0 }}) {}", rules("username=\"app\"")), rule("username")),
        (format!("{users} {}", rules("username=\"App\"")), rule("username")),
        (format!("{users} {}", fast("app", 1)), vec![]),
        (fast("", 1), vec![]),
        (fast("app", 1), route("username")),
        (format!("{users} {}", fast("app", 3)), route("destination_hostgroup")),
        ("mysql_users = ({ username=\"lost\", default_hostgroup=3 })".to_owned(), user("lost", "default_hostgroup")),
        ("mysql_users = ({ username=\"lost\", default_hostgroup=3, frontend=0 })".to_owned(), vec![]),
        (
            "mysql_users = ({ username=\"s\", default_hostgroup=1, attributes=\"{\\\"read_write_split\\\":{\\\"writer\\\":1,\\\"reader\\\":3}}\" })".to_owned(),
            user("s", "attributes"),
        ),
        ("mysql_users = ({ username=\"s\", default_hostgroup=1, attributes=\"{\\\"read_write_split\\\":true}\" })".to_owned(), vec![]),
        ("mysql_users = ({ username=\"tls\", default_hostgroup=1, use_ssl=1 })".to_owned(), vec![]),
        (
            "mysql_variables = { have_ssl=false } mysql_users = ({ username=\"tls\", default_hostgroup=1, use_ssl=1 })".to_owned(),
            user("tls", "use_ssl"),
        ),
        (
            "mysql_servers = ({ hostgroup=1, address=\"a\" }, { hostgroup=1, address=\"b\", max_connections=0 })".to_owned(),
            vec!["mysql_servers, hostgroup_id=1, hostname=b, port=3306, column max_connections".to_owned()],
        ),
        ("mysql_hostgroup_attributes = ({ hostgroup_id=2 })".to_owned(), vec![]),
        ("mysql_hostgroup_attributes = ({ hostgroup_id=3 })".to_owned(), attributes(3, "hostgroup_id")),
        (
            "mysql_hostgroup_attributes = ({ hostgroup_id=1, hostgroup_settings=\"{\\\"read_write_split\\\":{\\\"reader_hostgroup\\\":3}}\" })".to_owned(),
            attributes(1, "hostgroup_settings"),
        ),
        (
            "mysql_galera_hostgroups = ({ writer_hostgroup=10, backup_writer_hostgroup=11, reader_hostgroup=12, offline_hostgroup=13 })".to_owned(),
            vec!["mysql_galera_hostgroups, writer_hostgroup=10, column writer_hostgroup".to_owned()],
        ),
        (
            "mysql_galera_hostgroups = ({ writer_hostgroup=10, backup_writer_hostgroup=11, reader_hostgroup=12, offline_hostgroup=13, active=0 })".to_owned(),
            vec![],
        ),
    ];
    for (text, expected) in cases {
        let servers = if text.starts_with("mysql_servers") { "" } else { SERVERS };
        assert_eq!(places(&format!("{servers} {text}")), expected, "{text}");
    }
}

#[test]
fn a_remark_says_what_will_happen_and_where_it_is_written() {
    let config = read(&format!("{SERVERS}\nmysql_users = (\n  {{ username=\"lost\",\n    default_hostgroup=3 }})"));
    let found = references(&config, &Snapshot::compile(&config).unwrap());
    assert_eq!(
        found[0].to_string(),
        "mysql_users, username=lost, column default_hostgroup: hostgroup 3 has no servers: statements that no rule sends elsewhere wait for \
         one, then fail with error 9001; add one to mysql_servers, or name another hostgroup"
    );
    assert_eq!(Places::of(&config).find(&found[0]).unwrap().to_string(), "proxysql.cnf:4:5");
    assert!(found[0].follows_from(&["mysql_servers"]) && found[0].follows_from(&["mysql_users"]));
    assert!(!found[0].follows_from(&["mysql_query_rules"]));
}

#[test]
fn clusters_where_nobody_can_be_written_to() {
    let galera = |servers: &str, max_writers: u32| {
        places(&format!(
            "mysql_servers = ({servers}) mysql_galera_hostgroups = ({{ writer_hostgroup=1, backup_writer_hostgroup=2, reader_hostgroup=3,
             offline_hostgroup=4, max_writers={max_writers} }})"
        ))
    };
    let here = |column: &str| vec![format!("mysql_galera_hostgroups, writer_hostgroup=1, column {column}")];
    let (none, some) = ("{ hostgroup=1, address=\"a\", weight=0 }", "{ hostgroup=3, address=\"b\", weight=0 }");
    assert_eq!(galera(some, 0), here("max_writers"));
    assert_eq!(galera(none, 1), here("writer_hostgroup"));
    assert_eq!(galera(&format!("{none}, {{ hostgroup=3, address=\"a\" }}"), 1), here("writer_hostgroup"), "the same server reads");
    assert!(galera(&format!("{none}, {some}"), 1).is_empty(), "b writes");
    assert_eq!(galera(&format!("{none}, {{ hostgroup=3, address=\"b\", status=\"OFFLINE_SOFT\" }}"), 1), here("writer_hostgroup"));
    assert!(galera(&format!("{none}, {{ hostgroup=1, address=\"b\" }}"), 1).is_empty());
    let replication = "mysql_replication_hostgroups = ({ writer_hostgroup=1, reader_hostgroup=3 })";
    assert_eq!(places(&format!("mysql_servers = ({none}, {some}) {replication}")).len(), 1, "who writes is the servers' choice");
    assert!(places(&format!("mysql_servers = ({some}) {replication}")).is_empty());
}

#[test]
fn one_remark_for_each_kind() {
    let of = |id: u32, about: About, text: &str| Remark {
        table: "mysql_query_rules",
        row: RowName::numbered("rule_id", id),
        column: "match_digest",
        about,
        text: text.to_owned(),
    };
    let missing = About::Missing("mysql_servers");
    let mut given = vec![
        of(1, About::Advice, "go to reader hostgroup 2"),
        of(1, About::Advice, "go to reader hostgroup 3"),
        of(2, missing, "hostgroup 5 has no servers"),
        of(3, About::Advice, "go to reader hostgroup 12"),
        of(4, missing, "hostgroup 6 has no servers"),
        of(5, missing, "hostgroup 5 has no servers"),
    ];
    given.extend((10..30).map(|id| of(id, About::Dead, "never reached")));
    let told: Vec<String> = by_kind(given).iter().map(|remark| remark.to_string().replace("mysql_query_rules, rule_id=", "")).collect();
    let more: Vec<String> = (11..21).map(|id| format!("(rule_id={id})")).collect();
    assert_eq!(
        told,
        [
            "1, column match_digest: go to reader hostgroup 2; the same of 1 more row(s): (rule_id=3)".to_owned(),
            "2, column match_digest: hostgroup 5 has no servers; the same of 1 more row(s): (rule_id=5)".to_owned(),
            "4, column match_digest: hostgroup 6 has no servers".to_owned(),
            format!("10, column match_digest: never reached; the same of 19 more row(s): {}, ...", more.join(", ")),
        ]
    );
}
