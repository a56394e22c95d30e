//! RDS Multi-AZ DB clusters: replication whose instances name each other.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fleet, addr, aurora, read_only, snapshot, unreachable};
use model::HostgroupId;
use topology::{Observation, Order, ProbeError, RdsView};

const ONE: &str = "c-instance-1.x.rds.amazonaws.com";
const TWO: &str = "c-instance-2.x.rds.amazonaws.com";
const THREE: &str = "c-instance-3.x.rds.amazonaws.com";

/// The first instance is written, to hostgroup 1; hostgroup 2 reads. Tables are read every four seconds.
fn text(more: &str) -> String {
    format!(
        "mysql_variables = {{ monitor_aws_rds_topology_discovery_interval=4 }}
         mysql_servers = ( {{ hostgroup=1, address=\"{ONE}\", port=3306, max_connections=77 }} {more} )
         mysql_replication_hostgroups = ( {{ writer_hostgroup=1, reader_hostgroup=2 }} )"
    )
}

fn view(names: [&str; 3]) -> Observation {
    Observation::Rds(Ok(RdsView::of(names.map(|name| (name, 3306))).unwrap()))
}

fn all() -> Observation {
    view([ONE, TWO, THREE])
}

/// The cluster has another name, so none of the old instances is in it.
fn renamed() -> Observation {
    view(["d-instance-1.x.rds.amazonaws.com", "d-instance-2.x.rds.amazonaws.com", "d-instance-3.x.rds.amazonaws.com"])
}

fn short(text: &str) -> String {
    text.replace("c-instance-", "").replace(".x.rds.amazonaws.com", "")
}

fn layout(fleet: &Fleet) -> String {
    short(&fleet.layout())
}

fn events(fleet: &mut Fleet) -> Vec<String> {
    fleet.events().iter().map(|event| short(event)).collect()
}

/// One writer, two found readers, all seen.
fn found() -> Fleet {
    let mut fleet = Fleet::new(&text(""));
    fleet.see(ONE, read_only(false)).see(ONE, all()).pass(20).see(TWO, read_only(true)).see(THREE, read_only(true));
    assert_eq!(layout(&fleet), "1: 1; 2: 1 2 3");
    fleet.events();
    fleet
}

#[test]
fn instances_are_found_and_serve_when_they_have_been_seen() {
    let mut fleet = Fleet::new(&text(""));
    fleet.see(ONE, read_only(false));
    assert_eq!(fleet.interval_ms(ONE, "RdsTopology"), 4_000);
    fleet.events();
    fleet.see(ONE, all());
    assert_eq!(layout(&fleet), "1: 1; 2: 1");
    assert_eq!(events(&mut fleet), ["discovery 2 unknown>found", "discovery 3 unknown>found"]);
    assert_eq!(fleet.interval_ms(TWO, "ReadOnly"), 1_000);
    fleet.pass(20).see(TWO, read_only(true));
    assert_eq!(layout(&fleet), "1: 1; 2: 1 2");
    let placed = fleet.topology.layout().hostgroups[&HostgroupId(2)].iter().find(|p| p.server.key.addr() == addr(TWO)).unwrap();
    assert_eq!((placed.server.max_connections, placed.server.weight, &*placed.server.comment), (77, 1, "found by the monitor"));
    // Named again and again.
    for _ in 0..5 {
        fleet.pass(4_000).see(ONE, all()).see(TWO, all());
    }
    assert_eq!(layout(&fleet), "1: 1; 2: 1 2", "the third was not seen yet");
}

#[test]
fn a_found_instance_becomes_the_writer_as_any_other_member() {
    let mut fleet = found();
    fleet.pass(1_000).see(ONE, read_only(true)).pass(20).see(TWO, read_only(false));
    assert_eq!(layout(&fleet), "1: 2; 2: 1 2 3");
    let order = Order::Drain { server: addr(THREE), is_drained: true };
    fleet.topology.order(fleet.now_ms, &order).unwrap();
    assert_eq!(layout(&fleet), "1: 2; 2: 1 2 3(OFFLINE_SOFT)");
}

#[test]
fn who_is_named_no_more_leaves_and_whom_the_operator_wrote_stays() {
    let mut fleet = Fleet::new(&text(&format!(", {{ hostgroup=2, address=\"{TWO}\", port=3306 }}")));
    fleet.see(ONE, read_only(false)).see(TWO, read_only(true)).see(ONE, all()).see(THREE, read_only(true));
    assert_eq!(layout(&fleet), "1: 1; 2: 1 2 3");
    fleet.events();
    // One of two says otherwise, for long: no reason to go.
    for _ in 0..5 {
        fleet.pass(4_000).see(ONE, renamed()).see(TWO, all());
    }
    assert!(layout(&fleet).starts_with("1: 1; 2: 1 2 3"));
    fleet.events();
    // Both do, in several samples. A found server's own view is no proof.
    for round in 0..3 {
        assert!(layout(&fleet).contains('3'), "{round}");
        fleet.pass(4_000).see(THREE, all()).see(TWO, renamed()).see(THREE, all());
    }
    assert_eq!(events(&mut fleet), ["discovery 3 found>left"]);
    assert_eq!(layout(&fleet), "1: 1; 2: 1 2");
}

/// A view that fails, or is not renewed for long, does not count.
#[test]
fn views_that_are_not_fresh_do_not_count() {
    for (is_failing, rounds) in [(true, 3), (false, 6)] {
        let mut fleet = Fleet::new(&text(&format!(", {{ hostgroup=2, address=\"{TWO}\", port=3306 }}")));
        fleet.see(ONE, read_only(false)).see(TWO, read_only(true)).see(ONE, all()).see(THREE, read_only(true));
        for round in 0..rounds {
            assert_eq!(layout(&fleet), "1: 1; 2: 1 2 3", "{is_failing} {round}");
            fleet.pass(4_000);
            if is_failing {
                fleet.see(ONE, Observation::Rds(Err(ProbeError::Timeout)));
            }
            fleet.see(TWO, renamed());
        }
        assert_eq!(layout(&fleet), "1: 1; 2: 1 2", "{is_failing}");
    }
}

#[test]
fn what_other_tables_say_is_no_sample_of_this_one() {
    let also = ", { hostgroup=5, address=\"c-instance-1.x.rds.amazonaws.com\", port=3306 }";
    let aurora_row = "mysql_aws_aurora_hostgroups = ( { writer_hostgroup=5, reader_hostgroup=6, domain_name=\".x.rds.amazonaws.com\" } )";
    let mut fleet = Fleet::new(&format!("{}\n{aurora_row}", text(also)));
    fleet.see(ONE, read_only(false)).see(ONE, all()).see(TWO, read_only(true)).see(ONE, renamed());
    for _ in 0..5 {
        fleet.see(ONE, aurora(&[("c-instance-1", 0)], 50));
    }
    assert!(fleet.hostgroup(2).contains(TWO));
}

/// No configured server can list the members.
#[test]
fn found_instances_tell_when_nobody_else_can() {
    let mut fleet = found();
    let lost = || Observation::Rds(Err(ProbeError::Denied("SELECT command denied (error 1142)".into())));
    for _ in 0..5 {
        fleet.pass(4_000).see(ONE, lost()).see(TWO, all()).see(THREE, all());
    }
    assert_eq!((layout(&fleet).as_str(), fleet.events()), ("1: 1; 2: 1 2 3", Vec::new()));
    for _ in 0..3 {
        fleet.pass(4_000).see(ONE, lost()).see(TWO, renamed()).see(THREE, renamed());
    }
    assert_eq!(layout(&fleet), "1: 1; 2: 1");
}

#[test]
fn a_failed_look_changes_nothing() {
    let denied = || ProbeError::Denied("SELECT command denied (error 1142)".into());
    let missing = || ProbeError::Failed("Table 'mysql.rds_topology' doesn't exist (error 1146)".into());
    let mut fleet = found();
    let before = fleet.topology.layout().clone();
    let checks = fleet.checks();
    for error in [denied, missing, unreachable, || ProbeError::Timeout] {
        for _ in 0..50 {
            for name in [ONE, TWO, THREE] {
                fleet.pass(100).see(name, Observation::Rds(Err(error())));
            }
        }
    }
    assert_eq!(fleet.topology.layout(), &before);
    assert_eq!(fleet.events(), [""; 0]);
    assert_eq!(fleet.checks(), checks);
    // An outdated view counts neither for nor against a server.
    fleet.pass(3_600_000).see(TWO, all());
    assert_eq!(fleet.topology.layout(), &before);
}

#[test]
fn those_whom_the_operator_wrote_elsewhere_or_in_other_letters_are_not_found() {
    let two = TWO.replace('x', "X");
    let more = format!(", {{ hostgroup=2, address=\"{two}\", port=3306 }}, {{ hostgroup=9, address=\"{THREE}\", port=3306 }}");
    let mut fleet = Fleet::new(&text(&more));
    fleet.see(ONE, read_only(false)).see(&two, read_only(true)).events();
    for _ in 0..5 {
        fleet.pass(4_000).see(ONE, all());
    }
    assert_eq!(fleet.events(), [""; 0]);
    // Written after it was found.
    let mut fleet = found();
    fleet.configure(&text(&more));
    fleet.see(&two, read_only(true));
    assert_eq!(layout(&fleet), "1: 1; 2: 1 2.X.rds.amazonaws.com; 9: 3");
}

#[test]
fn a_new_configuration_keeps_what_was_found_until_it_is_off() {
    let mut fleet = found();
    fleet.configure(&text(", { hostgroup=2, address=\"other\", port=3306 }"));
    fleet.see("other", read_only(true));
    assert_eq!(layout(&fleet), "1: 1; 2: 1 2 3 other");
    fleet.configure(&text("").replace("interval=4", "interval=0"));
    assert_eq!(layout(&fleet), "1: 1; 2: 1");
}

#[test]
fn nothing_is_looked_at_or_found_where_it_is_off_or_the_name_is_not_of_rds() {
    let off = text("").replace("interval=4", "interval=0");
    let unset = text("").replace("mysql_variables = { monitor_aws_rds_topology_discovery_interval=4 }", "");
    for text in [off, unset] {
        let mut fleet = Fleet::new(&text);
        fleet.see(ONE, read_only(false)).see(ONE, all());
        assert_eq!(layout(&fleet), "1: 1; 2: 1");
        assert!(!format!("{:?}", fleet.checks()).contains("Rds"));
    }
    let named = text(", { hostgroup=2, address=\"10.0.0.2\", port=3306 }, { hostgroup=3, address=\"z.x.rds.amazonaws.com\", port=3306 }");
    let checks = Fleet::new(&named).checks();
    let asked: Vec<&String> = checks.iter().filter(|(_, kinds)| kinds.iter().any(|kind| kind == "RdsTopology")).map(|(a, _)| a).collect();
    assert_eq!(asked, [&format!("{ONE}:3306")], "hostgroup 3 is in no cluster");
    // Other kinds of clusters have other tables.
    let galera = named
        .replace("mysql_replication_hostgroups = ( {", "mysql_galera_hostgroups = ( { backup_writer_hostgroup=4, offline_hostgroup=5,");
    assert!(!format!("{:?}", Fleet::new(&galera).checks()).contains("Rds"));
}

/// Their limit is that of the operator's reader rows.
#[test]
fn found_readers_that_lag_are_out() {
    let reader = format!(", {{ hostgroup=2, address=\"{TWO}\", port=3306, max_replication_lag=5, use_ssl=1 }}");
    let mut fleet = Fleet::new(&text(&reader));
    fleet.see(ONE, read_only(false)).see(TWO, read_only(true)).see(ONE, all()).see(THREE, read_only(true));
    assert_eq!(layout(&fleet), "1: 1; 2: 1 2 3");
    let checks = fleet.checks();
    assert!(checks[&format!("{THREE}:3306")].contains(&"Lag".to_owned()), "{checks:?}");
    assert!(fleet.topology.checks().iter().filter(|check| check.addr == addr(THREE)).all(|check| check.server.use_ssl));
    fleet.pass(1_000).see(THREE, Observation::Lag(Ok(topology::Lag::Behind(60_000))));
    assert_eq!(layout(&fleet), "1: 1; 2: 1 2 3(SHUNNED_REPLICATION_LAG)");
}

/// The largest interval, as it is asked for.
#[test]
fn the_rarest_look() {
    let text = text("").replace("interval=4", "interval=100000, monitor_read_only_interval=604800000");
    let snapshot = snapshot(&text);
    let mut topology = topology::Topology::new();
    topology.configure(&snapshot, 0);
    assert!(topology.checks().iter().any(|check| check.interval_ms == 60_480_000_000_000));
}
