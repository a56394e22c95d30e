//! Galera: where every node is, in each state that the documentation names.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fleet, addr, galera, issue, unreachable};
use model::HostgroupId;
use model::fleet::SignalKind;
use topology::{Observation, Order, ProbeError};

fn settled(writer_is_also_reader: u8) -> Fleet {
    let mut fleet = Fleet::new(&issue(writer_is_also_reader));
    for node in ["23", "233", "22"] {
        fleet.see(node, galera(|_| {}));
    }
    fleet.events();
    fleet
}

#[test]
fn the_configuration_of_the_issue_puts_every_node_where_an_operator_expects() {
    assert_eq!(Fleet::new(&issue(0)).layout(), "100: 22; 101: 22 23 233");
    for (setting, expected) in
        [(0, "100: 22; 101: 23 233; 102: 23 233"), (1, "100: 22; 101: 22 23 233; 102: 23 233"), (2, "100: 22; 101: 23 233; 102: 23 233")]
    {
        assert_eq!(settled(setting).layout(), expected, "writer_is_also_reader={setting}");
    }
}

#[test]
fn a_dead_node_that_is_switched_off_is_where_it_was_as_the_configuration_says() {
    let mut fleet = settled(0);
    for _ in 0..9 {
        fleet.pass(1_000).see("22", Observation::Ping(Err(unreachable()))).see("22", Observation::Galera(Err(unreachable())));
    }
    fleet.topology.take_events();
    fleet.configure(&issue(0).replace("address=\"22\", port=3306,", "address=\"22\", port=3306, status=\"OFFLINE_SOFT\","));
    let told = fleet.topology.take_events();
    let role = told.iter().find(|event| event.from == "offline").unwrap();
    assert_eq!(role.why, "the configuration says OFFLINE_SOFT", "{told:?}");
}

/// The name decides between equals at first, and is no reason to move the writer later.
#[test]
fn an_equal_that_comes_back_takes_no_writer_away() {
    for policy in ["delayed", "immediate"] {
        let row = |node| format!("{{ hostgroup=100, address=\"{node}\", port=3306, weight=1000 }}");
        let groups = issue(0).split("mysql_galera_hostgroups").nth(1).unwrap().to_owned();
        let text = format!("mysql_servers = ( {} )\nmysql_galera_hostgroups{groups}", ["22", "23", "233"].map(row).join(", "));
        let mut fleet = Fleet::new(&format!("mysql_variables = {{ failback=\"{policy}\" }}\n{text}"));
        for node in ["23", "233", "22"] {
            fleet.see(node, galera(|_| {}));
        }
        let writer = fleet.hostgroup(100);
        fleet.pass(1_000).see(&writer, galera(|view| view.reject_queries = true));
        let next = fleet.hostgroup(100);
        assert_ne!(next, writer);
        for node in ["23", "233", "22", "23", "233", "22"] {
            fleet.pass(10_000).see(node, galera(|_| {}));
        }
        fleet.pass(60_000);
        assert_eq!(fleet.hostgroup(100), next, "{policy}");
        // A free place is for anybody.
        fleet.see(&next, galera(|view| view.reject_queries = true));
        assert_eq!(fleet.hostgroup(100), writer);
    }
}

#[test]
fn with_no_backup_left_the_writer_reads_if_it_may() {
    for (setting, expected) in [
        (0, "100: 22; 9101: 23(SHUNNED,cut off) 233(SHUNNED,cut off)"),
        (1, "100: 22; 101: 22; 9101: 23(SHUNNED,cut off) 233(SHUNNED,cut off)"),
        (2, "100: 22; 101: 22; 9101: 23(SHUNNED,cut off) 233(SHUNNED,cut off)"),
    ] {
        let mut fleet = settled(setting);
        for node in ["23", "233"] {
            fleet.see(node, galera(|view| view.primary_partition = false));
        }
        assert_eq!(fleet.layout(), expected, "writer_is_also_reader={setting}");
    }
}

/// Answers that act only after a second.
const GIVES: [&str; 2] = ["joined", "donor"];

/// For each answer of a node: its hostgroup as the writer and as a backup.
#[test]
fn states_of_a_node() {
    type Change = fn(&mut topology::GaleraView);
    let gone = ("100: 233; 101: 23; 102: 23; 9101: 22(SHUNNED)", "100: 22; 101: 233; 102: 233; 9101: 23(SHUNNED)");
    let cut_off = ("100: 233; 101: 23; 102: 23; 9101: 22(SHUNNED,cut off)", "100: 22; 101: 233; 102: 233; 9101: 23(SHUNNED,cut off)");
    let leaving = ("100: 22(OFFLINE_SOFT) 233; 101: 23; 102: 23", "100: 22; 101: 23(OFFLINE_SOFT) 233; 102: 23(OFFLINE_SOFT) 233");
    let reads = ("100: 233; 101: 22 23; 102: 23", "100: 22; 101: 23 233; 102: 233");
    let cases: &[(&str, Change, (&str, &str))] = &[
        ("not primary", |v| v.primary_partition = false, cut_off),
        ("joining", |v| v.local_state = 1, gone),
        ("rejects queries", |v| v.reject_queries = true, gone),
        ("desync", |v| v.desync = true, leaving),
        ("maintenance", |v| v.maintenance = true, leaving),
        ("joined", |v| v.local_state = 3, leaving),
        ("donor", |v| v.local_state = 2, reads),
        ("read-only", |v| v.read_only = true, reads),
        ("donor that rejects queries", |v| (v.local_state, v.sst_donor_rejects_queries) = (2, true), leaving),
    ];
    for (name, change, (as_writer, as_backup)) in cases {
        for (node, expected) in [("22", as_writer), ("23", as_backup)] {
            let mut fleet = settled(0);
            fleet.pass(5_000).see(node, galera(change));
            if GIVES.contains(name) {
                assert_eq!(fleet.layout(), "100: 22; 101: 23 233; 102: 23 233", "{name}: {node}, for a moment");
                fleet.pass(1_000).see(node, galera(change));
            }
            assert_eq!(fleet.layout(), *expected, "{name}: {node}");
            fleet.pass(5_000).see(node, galera(|_| {})).pass(10_000);
            assert_eq!(fleet.layout(), "100: 22; 101: 23 233; 102: 23 233", "{name}: {node} is well again");
        }
    }
}

/// During an incremental state transfer the donor reports for some milliseconds that it is a donor and catches up.
#[test]
fn a_donor_of_a_moment_keeps_its_role() {
    let well = "100: 22; 101: 23 233; 102: 23 233";
    let mut fleet = settled(0);
    for (state, ms) in [(2, 5_000), (2, 500), (3, 499), (4, 20), (2, 5_000), (4, 20)] {
        fleet.pass(ms).see("22", galera(|view| view.local_state = state));
        assert_eq!(fleet.layout(), well, "{state} after {ms} ms");
    }
    assert_eq!(fleet.events().len(), 0);
    fleet.pass(5_000).see("22", galera(|view| view.local_state = 3));
    assert_eq!(fleet.interval_ms("22", "Galera"), 20);
    fleet.pass(1_000).see("22", galera(|view| view.local_state = 3));
    assert_eq!(fleet.hostgroup(100), "22(OFFLINE_SOFT) 233");
    // One that has failed in between was not synced all along.
    let mut fleet = settled(0);
    fleet.pass(5_000).see("22", Observation::Galera(Err(unreachable())));
    fleet.pass(20).see("22", galera(|view| view.local_state = 2));
    assert_eq!(fleet.hostgroup(100), "233");
}

#[test]
fn the_last_node_writes_though_it_is_about_to_leave() {
    let mut fleet = settled(0);
    for node in ["23", "233"] {
        fleet.see(node, galera(|view| view.primary_partition = false));
    }
    fleet.see("22", galera(|view| view.desync = true));
    assert_eq!(fleet.hostgroup(100), "22");
    fleet.see("22", galera(|view| view.primary_partition = false));
    assert_eq!(fleet.hostgroup(100), "");
}

#[test]
fn errors_count_as_the_settings_say() {
    let failed = || ProbeError::Failed("nonsense".to_owned());
    let denied = || ProbeError::Denied("1045".to_owned());
    type Make = fn() -> ProbeError;
    let cases: [(&str, Make, Option<u32>); 4] = [
        ("unreachable", unreachable, Some(2)),
        ("failed", failed, Some(2)),
        ("timeout", || ProbeError::Timeout, Some(3)),
        ("denied", denied, None),
    ];
    for (name, error, after) in cases {
        let mut fleet = settled(0);
        for count in 1..=20 {
            fleet.pass(20).see("22", Observation::Galera(Err(error())));
            let expected = if after.is_some_and(|after| count >= after) { "233" } else { "22" };
            assert_eq!(fleet.hostgroup(100), expected, "{name} {count} times");
        }
    }
}

#[test]
fn one_refused_connect_is_enough_when_traffic_says_so_too() {
    let mut fleet = settled(0);
    fleet.signal("22", 100, SignalKind::ConnectionLost);
    assert_eq!(fleet.hostgroup(100), "22");
    assert_eq!(fleet.interval_ms("22", "Galera"), 20);
    fleet.see("22", Observation::Galera(Err(unreachable())));
    assert_eq!(fleet.hostgroup(100), "233");
}

fn with(variables: &str) -> Fleet {
    let mut fleet = Fleet::new(&format!("mysql_variables = {{ {variables} }}\n{}", issue(0)));
    for node in ["22", "23", "233"] {
        fleet.see(node, galera(|_| {}));
    }
    fleet
}

fn order(fleet: &mut Fleet, order: &Order) -> Result<(), String> {
    let now_ms = fleet.now_ms;
    fleet.topology.order(now_ms, order)
}

/// The writer is lost and returns. The table gives the writer at once, after 9 999 ms, after 10 s, and after a command.
#[test]
fn fail_back_is_a_policy() {
    let cases = [
        ("failback=\"never\"", ["233", "233", "233", "22"]),
        ("failback=\"immediate\"", ["22", "22", "22", "22"]),
        ("failback=\"delayed\"", ["233", "233", "22", "22"]),
        ("failback=\"command\"", ["233", "233", "233", "22"]),
    ];
    for (setting, expected) in cases {
        let mut fleet = with(setting);
        fleet.pass(5_000).see("22", galera(|view| view.primary_partition = false));
        assert_eq!(fleet.hostgroup(100), "233");
        fleet.pass(5_000).see("22", galera(|_| {}));
        let mut seen = vec![fleet.hostgroup(100)];
        seen.push(fleet.pass(9_999).hostgroup(100));
        seen.push(fleet.pass(1).hostgroup(100));
        let is_back = fleet.hostgroup(100) == "22";
        let ordered = order(&mut fleet, &Order::Failback { writer: HostgroupId(100) });
        assert_eq!(ordered.is_err(), is_back, "{setting}: {ordered:?}");
        seen.push(fleet.hostgroup(100));
        assert_eq!(seen, expected, "{setting}");
        // It stays when other nodes answer, too.
        fleet.pass(5_000).see("233", galera(|_| {})).pass(60_000);
        assert_eq!(fleet.hostgroup(100), "22", "{setting}");
    }
}

#[test]
fn fail_back_ends_what_an_operator_preferred() {
    let mut fleet = with("failback=\"never\"");
    let writer = HostgroupId(100);
    order(&mut fleet, &Order::Prefer { writer, server: Some(addr("233")) }).unwrap();
    assert_eq!(fleet.hostgroup(100), "233");
    order(&mut fleet, &Order::Failback { writer }).unwrap();
    assert_eq!(fleet.hostgroup(100), "22");
    assert!(order(&mut fleet, &Order::Failback { writer }).is_err());
}

#[test]
fn a_server_that_is_not_well_for_long_does_not_come_back() {
    let mut fleet = with("failback_delay_ms=10000");
    fleet.pass(5_000).see("22", galera(|view| view.primary_partition = false));
    for _ in 0..5 {
        fleet.pass(5_000).see("22", galera(|_| {})).pass(5_000).see("22", galera(|view| view.desync = true));
        assert_eq!(fleet.hostgroup(100), "233", "the delay begins anew");
    }
}

#[test]
fn an_operator_prefers_a_writer() {
    let mut fleet = settled(0);
    let prefer = |server: Option<&str>| Order::Prefer { writer: HostgroupId(100), server: server.map(addr) };
    order(&mut fleet, &prefer(Some("23"))).unwrap();
    assert_eq!(fleet.layout(), "100: 23; 101: 22 233; 102: 22 233");
    fleet.pass(60_000);
    assert_eq!(fleet.hostgroup(100), "23", "it holds");
    fleet.see("23", galera(|view| view.desync = true));
    assert_eq!(fleet.hostgroup(100), "22 23(OFFLINE_SOFT)", "as long as it can write");
    fleet.pass(1_000).see("23", galera(|_| {})).pass(9_999);
    assert_eq!(fleet.hostgroup(100), "22", "it comes back as the heaviest would");
    assert_eq!(fleet.pass(1).hostgroup(100), "23");
    order(&mut fleet, &prefer(None)).unwrap();
    assert_eq!(fleet.hostgroup(100), "22");
}

/// It stands in no fail-back's way.
#[test]
fn a_preference_is_put_back_as_it_was() {
    let writer = HostgroupId(100);
    let mut fleet = settled(0);
    fleet.pass(1_000).see("22", galera(|view| view.primary_partition = false));
    assert_eq!(fleet.hostgroup(100), "233");
    fleet.pass(1_000).see("22", galera(|_| {}));
    for server in ["23", "233"] {
        order(&mut fleet, &Order::Prefer { writer, server: Some(addr(server)) }).unwrap();
    }
    let now_ms = fleet.now_ms;
    fleet.topology.put_back_preferred(now_ms, writer, None);
    assert_eq!((fleet.topology.preferred(writer), &*fleet.hostgroup(100)), (None, "233"));
    assert_eq!(fleet.pass(10_000).hostgroup(100), "22", "the heaviest comes back in its time");
}

/// A light server that an operator switched to is lost and returns. The table gives the writer at once, after 9 999 ms, after 10 s.
#[test]
fn fail_back_is_a_policy_for_who_was_switched_to_as_well() {
    let cases = [
        ("failback=\"never\"", ["22", "22", "22"]),
        ("failback=\"immediate\"", ["23", "23", "23"]),
        ("failback=\"delayed\"", ["22", "22", "23"]),
        ("failback=\"command\"", ["22", "22", "22"]),
    ];
    for (setting, expected) in cases {
        let writer = HostgroupId(100);
        let mut fleet = with(setting);
        order(&mut fleet, &Order::Prefer { writer, server: Some(addr("23")) }).unwrap();
        fleet.pass(60_000).see("233", galera(|_| {}));
        assert_eq!(fleet.hostgroup(100), "23", "{setting}: the heaviest does not take it back");
        fleet.pass(5_000).see("23", galera(|view| view.primary_partition = false));
        assert_eq!(fleet.hostgroup(100), "22", "{setting}: who writes then is the heaviest");
        fleet.pass(5_000).see("23", galera(|_| {}));
        let mut seen = vec![fleet.hostgroup(100)];
        // An order about another server changes nothing.
        order(&mut fleet, &Order::Drain { server: addr("233"), is_drained: true }).unwrap();
        seen.push(fleet.pass(9_999).hostgroup(100));
        seen.push(fleet.pass(1).hostgroup(100));
        assert_eq!(seen, expected, "{setting}");
        order(&mut fleet, &Order::Failback { writer }).unwrap();
        fleet.pass(60_000).see("22", galera(|_| {}));
        assert_eq!(fleet.hostgroup(100), "22", "{setting}: FAILBACK ends it");
    }
}

#[test]
fn a_drained_writer_stays_until_its_work_is_done() {
    let mut fleet = settled(0);
    fleet.pass(1_000);
    order(&mut fleet, &Order::Drain { server: addr("22"), is_drained: true }).unwrap();
    assert_eq!(fleet.layout(), "100: 22(OFFLINE_SOFT) 233; 101: 23; 102: 23");
    fleet.pass(60_000).see("22", galera(|_| {}));
    assert_eq!(fleet.layout(), "100: 22(OFFLINE_SOFT) 233; 101: 23; 102: 23");
    order(&mut fleet, &Order::Drain { server: addr("22"), is_drained: false }).unwrap();
    fleet.pass(10_000);
    assert_eq!(fleet.layout(), "100: 22; 101: 23 233; 102: 23 233");
    assert!(order(&mut fleet, &Order::Drain { server: addr("nobody"), is_drained: true }).is_err());
    assert!(order(&mut fleet, &Order::Drain { server: addr("22"), is_drained: false }).unwrap_err().contains("not drained"));
}

#[test]
fn a_backup_writer_of_the_same_segment_is_preferred() {
    let mut fleet = Fleet::new(&issue(0));
    fleet.see("22", galera(|view| view.segment = 1)).see("23", galera(|view| view.segment = 1)).see("233", galera(|view| view.segment = 2));
    fleet.pass(5_000).see("22", galera(|view| (view.segment, view.primary_partition) = (1, false)));
    assert_eq!(fleet.hostgroup(100), "23", "though 233 comes first by name");
}

#[test]
fn readers_whose_queue_is_long_are_not_read_from() {
    let behind = |count| galera(move |view| view.recv_queue = count);
    let mut fleet = settled(0);
    for expected in ["23 233", "23(SHUNNED_REPLICATION_LAG) 233"] {
        fleet.pass(5_000).see("23", behind(11)).see("22", behind(1_000));
        assert_eq!(fleet.hostgroup(101), expected);
    }
    assert_eq!((fleet.hostgroup(100).as_str(), fleet.hostgroup(102).as_str()), ("22", "23 233"), "writers are not measured by it");
    fleet.see("23", behind(10));
    assert_eq!(fleet.hostgroup(101), "23 233");
    // 0 is no limit.
    let mut fleet = Fleet::new(&issue(0).replace("max_transactions_behind=10", "max_transactions_behind=0"));
    for _ in 0..3 {
        fleet.see("22", behind(0)).see("23", behind(9_999)).see("233", behind(9_999));
    }
    assert_eq!(fleet.hostgroup(101), "23 233");
}

#[test]
fn several_writers() {
    let text = issue(0).replace("max_writers=1", "max_writers=2");
    let mut fleet = Fleet::new(&text);
    fleet.see("22", galera(|_| {})).see("23", galera(|_| {})).see("233", galera(|_| {}));
    assert_eq!(fleet.layout(), "100: 22 233; 101: 23; 102: 23");
    fleet.pass(5_000).see("233", galera(|view| view.primary_partition = false));
    assert_eq!(fleet.layout(), "100: 22 23; 9101: 233(SHUNNED,cut off)");
}

/// Its own row for the hostgroup, else that of its writer hostgroup, else the reader's.
#[test]
fn rows_stand_in_for_each_other() {
    let text = issue(1).replace(
        "address=\"23\", port=3306, weight=10000, max_connections=2000",
        "address=\"23\", port=3306, weight=7, max_connections=70",
    );
    let mut fleet = Fleet::new(&text);
    fleet.see("22", galera(|_| {})).see("23", galera(|_| {})).see("233", galera(|_| {}));
    let row = |hostgroup: u32, host: &str| {
        let all = &fleet.topology.layout().hostgroups[&HostgroupId(hostgroup)];
        let server = &all.iter().find(|p| &*p.server.key.host == host).unwrap().server;
        assert_eq!(server.key.hostgroup, HostgroupId(hostgroup));
        (server.weight, server.max_connections)
    };
    assert_eq!(row(100, "22"), (10_000, 2_000));
    assert_eq!(row(101, "22"), (100, 2_000));
    assert_eq!(row(102, "23"), (7, 70));
}

/// An operator's status holds where the row is, and a server that is kept out of writing does not.
#[test]
fn operators_keep_servers_out() {
    let off = |row: &str, status: &str| issue(0).replace(row, &format!("{row}, status=\"{status}\""));
    for status in ["OFFLINE_SOFT", "SHUNNED", "OFFLINE_HARD"] {
        let mut fleet = Fleet::new(&off("hostgroup=100, address=\"22\", port=3306", status));
        fleet.see("22", galera(|_| {})).see("23", galera(|_| {})).see("233", galera(|_| {}));
        assert_eq!(fleet.layout(), format!("100: 22({status}) 233; 101: 22 23; 102: 23"));
        let mut fleet = Fleet::new(&off("hostgroup=101, address=\"23\", port=3306", status));
        fleet.see("22", galera(|_| {})).see("23", galera(|_| {})).see("233", galera(|_| {}));
        assert_eq!(fleet.layout(), format!("100: 22; 101: 23({status}) 233; 102: 233"));
    }
}

#[test]
fn a_node_that_takes_nobody_is_told_of_as_it_says() {
    let closed = || Observation::Galera(Err(ProbeError::Closed("Server shutdown in progress (error 1053)".to_owned())));
    let mut fleet = settled(0);
    fleet.pass(5_000).see("22", closed()).pass(20).see("22", closed());
    assert_eq!(fleet.whys()[0], "22 writer>offline: it takes no connections: Server shutdown in progress (error 1053)");
}

#[test]
fn events_say_what_was_seen_and_why() {
    let mut fleet = settled(0);
    fleet.pass(5_000).see("22", galera(|view| view.primary_partition = false));
    let events = fleet.topology.take_events();
    let role = events.iter().find(|event| event.server == Some(addr("22"))).unwrap();
    assert_eq!((role.at_ms, role.cluster, role.by), (5_000, Some(HostgroupId(100)), "probe"));
    assert_eq!((role.from.as_str(), role.to.as_str(), role.why.as_str()), ("writer", "offline", "not in the primary component"));
    assert!(role.seen.contains("wsrep_cluster_status=non-Primary"), "{role:?}");
    let taken = events.iter().find(|event| event.server == Some(addr("233"))).unwrap();
    assert_eq!((taken.from.as_str(), taken.to.as_str()), ("backup_writer,reader", "writer"));
}

/// Three nodes. One was frozen, and the others have formed a component of two.
fn frozen(node: &str, others: [&str; 2], variables: &str) -> Fleet {
    let mut fleet = with(variables);
    for _ in 0..8 {
        fleet.pass(500).see(node, Observation::Galera(Err(ProbeError::Timeout)));
        fleet.see(others[0], galera(|view| view.cluster_size = 2)).see(others[1], galera(|view| view.cluster_size = 2));
    }
    fleet.events();
    fleet
}

#[test]
fn a_frozen_node_that_wakes_up_takes_no_writer_away() {
    let old = || galera(|view| view.cluster_size = 3);
    let two = || galera(|view| view.cluster_size = 2);
    let mut fleet = frozen("23", ["22", "233"], "failback=\"never\"");
    let without = "100: 22; 101: 233; 102: 233; 9101: 23(SHUNNED,cut off)";
    assert_eq!(fleet.layout(), without);
    for _ in 0..14 {
        fleet.pass(500).see("23", old()).see("22", two()).see("233", two());
        assert_eq!(fleet.layout(), without, "it tells of the cluster that it saw before");
    }
    fleet.see("23", galera(|view| (view.primary_partition, view.cluster_size) = (false, 1)));
    assert_eq!(fleet.layout(), without, "it has noticed");
    fleet.pass(500).see("23", old());
    assert_eq!(fleet.layout(), without, "the others have not seen it join yet");
    assert_eq!(fleet.interval_ms("22", "Galera"), 20);
    fleet.pass(20).see("22", old());
    assert_eq!(fleet.hostgroup(100), "22");
    fleet.pass(20).see("233", old());
    assert_eq!(fleet.layout(), "100: 22; 101: 23 233; 102: 23 233");
}

#[test]
fn a_frozen_writer_that_wakes_up_does_not_take_over_at_once() {
    let mut fleet = frozen("22", ["23", "233"], "failback=\"immediate\"");
    assert_eq!(fleet.hostgroup(100), "233");
    for _ in 0..6 {
        fleet.pass(500).see("22", galera(|view| view.cluster_size = 3));
        fleet.see("23", galera(|view| view.cluster_size = 2)).see("233", galera(|view| view.cluster_size = 2));
        assert_eq!(fleet.layout(), "100: 233; 101: 23; 102: 23; 9101: 22(SHUNNED,cut off)");
    }
    for node in ["22", "23", "233"] {
        fleet.see(node, galera(|_| {}));
    }
    assert_eq!(fleet.hostgroup(100), "22");
}

/// The writer was away, is back and writes. Then another node leaves or joins. The views change, and the nodes are asked, at slightly
/// different times. In any order the writer stays.
#[test]
fn a_writer_that_came_back_stays_when_the_cluster_changes() {
    let of_size = |size| galera(move |view| view.cluster_size = size);
    for size in [2, 4] {
        for first in ["22", "23"] {
            for seconds in [1, 3, 8, 14] {
                let mut fleet = with("failback=\"immediate\"");
                for _ in 0..4 {
                    fleet.pass(500).see("22", Observation::Galera(Err(unreachable()))).see("23", of_size(2)).see("233", of_size(2));
                }
                assert_eq!(fleet.hostgroup(100), "233", "{}", fleet.layout());
                fleet.pass(500).see("23", of_size(3)).see("233", of_size(3)).pass(20).see("22", of_size(3));
                assert_eq!(fleet.hostgroup(100), "22", "{}", fleet.layout());
                for _ in 0..seconds * 2 {
                    fleet.pass(500);
                    fleet.see("22", of_size(3)).see("23", of_size(3)).see("233", of_size(3));
                }
                fleet.events();
                let second = if first == "22" { "23" } else { "22" };
                let dies = || Observation::Galera(Err(unreachable()));
                let third = || if size == 2 { dies() } else { of_size(4) };
                fleet.see("233", third()).pass(400).see(first, of_size(size)).pass(20).see(second, of_size(3)).see("233", third());
                assert_eq!(fleet.hostgroup(100), "22", "{size} {first} {seconds} {}", fleet.layout());
                fleet.pass(500).see(first, of_size(size)).see(second, of_size(size)).pass(20_000);
                assert_eq!(fleet.hostgroup(100), "22", "{size} {first} {seconds} {}", fleet.layout());
                let moved = fleet.whys().into_iter().find(|why| why.starts_with("22 "));
                assert_eq!(moved, None, "{size} {first} {seconds}");
            }
        }
    }
}

/// A node that reports another cluster is out until it is known to be back. A node that keeps reporting it stays out.
#[test]
fn a_node_that_lags_behind_the_others_is_out_in_the_end() {
    let of_size = |size| galera(move |view| view.cluster_size = size);
    let mut fleet = with("failback=\"immediate\"");
    for _ in 0..4 {
        fleet.pass(500).see("22", Observation::Galera(Err(ProbeError::Timeout))).see("23", of_size(2)).see("233", of_size(2));
    }
    fleet.pass(500).see("23", of_size(3)).see("233", of_size(3)).see("22", of_size(3));
    assert_eq!(fleet.hostgroup(100), "22", "{}", fleet.layout());
    // It is frozen again, too briefly to count, and the other nodes continue without it.
    fleet.pass(1_000).see("23", of_size(2)).see("233", of_size(2)).see("22", of_size(3));
    assert_eq!(fleet.hostgroup(100), "22");
    for _ in 0..4 {
        fleet.pass(500).see("22", of_size(3)).see("23", of_size(2)).see("233", of_size(2));
    }
    assert_eq!(fleet.hostgroup(100), "233", "{}", fleet.layout());
}

/// Two that were frozen say the same old thing; of those that were there all along only one answers just now.
#[test]
fn several_that_wake_up_do_not_outvote_who_was_there() {
    let mut fleet = frozen("23", ["22", "233"], "failback=\"never\"");
    fleet.see("233", Observation::Galera(Err(ProbeError::Timeout))).pass(20).see("233", galera(|_| {}));
    for _ in 0..10 {
        fleet.pass(500).see("23", galera(|_| {})).see("233", galera(|_| {})).see("22", galera(|view| view.cluster_size = 2));
        assert_eq!(fleet.hostgroup(100), "22");
    }
}

/// A node and an arbitrator that is never asked; the other node was frozen.
#[test]
fn one_claim_against_another_is_that_of_who_was_there() {
    let mut fleet = frozen("23", ["22", "22"], "failback=\"never\"");
    fleet.configure(&issue(0).replace("{ hostgroup=101, address=\"233\"", "{ hostgroup=7, address=\"233\""));
    for _ in 0..10 {
        fleet.pass(500).see("23", galera(|_| {})).see("22", galera(|view| view.cluster_size = 2));
        assert_eq!(fleet.hostgroup(100), "22");
    }
    // It says so for so long that it is no memory: they are two clusters, and the larger one serves.
    for _ in 0..22 {
        fleet.pass(500).see("23", galera(|_| {})).see("22", galera(|view| view.cluster_size = 2));
    }
    assert_eq!(fleet.hostgroup(100), "23");
}

/// Most of a cluster's nodes are not asked. The node that sees more of them is right even in a minority, once its view lasts.
#[test]
fn a_claim_that_lasts_is_believed() {
    let mut fleet = with("failback=\"never\"");
    let mut round = || {
        fleet.pass(500).see("23", galera(|view| view.cluster_size = 3));
        fleet.see("22", galera(|view| view.cluster_size = 2)).see("233", galera(|view| view.cluster_size = 2));
        fleet.hostgroup(100)
    };
    assert_eq!((0..10).map(|_| round()).collect::<std::collections::BTreeSet<_>>().len(), 1);
    assert_eq!((0..40).map(|_| round()).last().unwrap(), "23");
}

#[test]
fn events_say_why_a_node_was_chosen_and_why_another_was_left() {
    let away = || galera(|view| view.primary_partition = false);
    let mut fleet = Fleet::new(&issue(0));
    fleet.see("23", galera(|_| {})).see("233", galera(|_| {})).whys();
    fleet.see("22", galera(|_| {}));
    assert_eq!(fleet.whys(), ["22 writer,reader>writer: writers do not read here"]);
    fleet.pass(5_000).see("22", away());
    assert_eq!(fleet.whys(), ["22 writer>offline: not in the primary component", "233 backup_writer,reader>writer: as good as 23:3306"],);
    fleet.pass(5_000).see("22", galera(|_| {}));
    assert_eq!(fleet.whys(), ["22 offline>backup_writer,reader: synced"]);
    fleet.pass(10_000);
    assert_eq!(
        fleet.whys(),
        [
            "22 backup_writer,reader>writer: fail-back after 10 s of health: configured as writer (233:3306 is not)",
            "233 writer>backup_writer,reader: another server is preferred: 22:3306, \
             fail-back after 10 s of health: configured as writer (233:3306 is not)",
        ]
    );
    let prefer = |server: Option<&str>| Order::Prefer { writer: HostgroupId(100), server: server.map(addr) };
    order(&mut fleet, &prefer(Some("23"))).unwrap();
    assert_eq!(
        fleet.whys(),
        [
            "22 writer>backup_writer,reader: another server is preferred: 23:3306, an operator prefers it",
            "23 backup_writer,reader>writer: an operator prefers it",
        ]
    );
    let mut several = fleet.clone();
    several.configure(&issue(0).replace("max_writers=1", "max_writers=3"));
    assert_eq!(several.whys().len(), 2);
    several.configure(&issue(0));
    several.whys();
    several.configure(&issue(0).replace("max_writers=1", "max_writers=3"));
    for why in several.whys() {
        assert!(why.ends_with("backup_writer,reader>writer: max_writers has room for all writable servers: synced"), "{why}");
    }
    fleet.see("22", away()).see("233", away()).see("23", galera(|view| view.desync = true)).pass(1_000).see("22", galera(|_| {}));
    assert_eq!(
        fleet.whys()[2..],
        ["22 offline>writer: the only server that may write: synced", "23 ONLINE>OFFLINE_SOFT: wsrep_desync is on"]
    );
}

#[test]
fn events_tell_weights_and_what_the_operator_wrote() {
    let text = issue(0).replace("address=\"233\", port=3306, weight=10000", "address=\"233\", port=3306, weight=9");
    let mut fleet = Fleet::new(&text);
    for node in ["22", "23", "233"] {
        fleet.see(node, galera(|_| {}));
    }
    fleet.pass(60_000).events();
    let off = text.replace("hostgroup=100, address=\"22\", port=3306", "hostgroup=100, address=\"22\", port=3306, status=\"OFFLINE_SOFT\"");
    fleet.configure(&off);
    assert_eq!(
        fleet.whys(),
        [
            "22 writer>writer,reader: the configuration says OFFLINE_SOFT in hostgroup 100",
            "22 ONLINE>OFFLINE_SOFT: the configuration says OFFLINE_SOFT",
            "23 backup_writer,reader>writer: heaviest that may write (weight 10000; 233:3306 has 9)",
        ]
    );
    fleet.configure(&text);
    assert_eq!(
        fleet.whys(),
        ["22 writer,reader>backup_writer,reader: 23:3306 writes; this server becomes the writer again after 10 s of health"]
    );
}

/// The last node writes even while it is slow and busy: there is no better one.
#[test]
fn the_last_node_writes_though_it_is_slow_and_busy() {
    type Change = fn(&mut topology::GaleraView);
    let busy: [Change; 3] = [|_| {}, |v| v.desync = true, |v| v.local_state = 2];
    for (index, change) in busy.into_iter().enumerate() {
        let mut fleet = settled(0);
        for node in ["23", "233"] {
            fleet.see(node, galera(|view| view.primary_partition = false));
        }
        fleet.see("22", galera(change)).pass(1_000).see("22", galera(change));
        assert_eq!(fleet.hostgroup(100), "22", "case {index}");
        for _ in 0..3 {
            fleet.pass(20).see("22", Observation::Galera(Err(ProbeError::Timeout)));
        }
        assert_eq!(fleet.hostgroup(100), "22", "case {index}: its check times out");
        for _ in 0..3 {
            fleet.pass(20).see("22", Observation::Ping(Err(ProbeError::Timeout)));
        }
        assert_eq!(fleet.hostgroup(100), "22", "case {index}: its pings time out");
        fleet.see("23", galera(|_| {}));
        assert!(fleet.hostgroup(100).starts_with("23"), "case {index}: {}", fleet.layout());
    }
}

/// One node that is switched off is never asked, and is not waited for.
#[test]
fn who_is_switched_off_keeps_no_policy_from_holding() {
    let off = issue(0).replace("address=\"23\", port=3306", "address=\"23\", port=3306, status=\"OFFLINE_HARD\"");
    let mut fleet = Fleet::new(&format!("mysql_variables = {{ failback=\"never\" }}\n{off}"));
    fleet.see("22", galera(|_| {})).see("233", galera(|_| {})).pass(5_000);
    fleet.see("22", galera(|view| view.primary_partition = false));
    assert_eq!(fleet.hostgroup(100), "233");
    fleet.pass(5_000).see("22", galera(|_| {})).pass(60_000);
    assert_eq!(fleet.hostgroup(100), "233");
}

/// One failed check is no news of a donor.
#[test]
fn a_check_that_fails_does_not_end_a_donors_second() {
    for error in [ProbeError::Timeout, ProbeError::Failed("1205".to_owned())] {
        let mut fleet = settled(0);
        let gives = || galera(|view| view.local_state = 2);
        fleet.pass(5_000).see("22", gives()).pass(100).see("22", Observation::Galera(Err(error.clone())));
        assert_eq!(fleet.hostgroup(100), "22", "{error:?}");
        fleet.pass(100).see("22", gives());
        assert_eq!(fleet.hostgroup(100), "22", "{error:?}");
        fleet.pass(799).see("22", gives());
        assert_eq!(fleet.hostgroup(100), "22", "{error:?}");
        fleet.pass(1).see("22", gives());
        assert_eq!(fleet.hostgroup(100), "233", "{error:?}: the second began with the first answer");
    }
}

/// Frozen too briefly for the monitor, and long enough for its cluster.
#[test]
fn a_reader_that_was_evicted_while_it_missed_one_check_is_out() {
    let two = || galera(|view| view.cluster_size = 2);
    let well = "100: 22; 101: 23 233; 102: 23 233";
    let mut fleet = settled(0);
    fleet.pass(5_000).see("23", Observation::Galera(Err(ProbeError::Timeout)));
    fleet.see("22", two()).see("233", two()).pass(20).see("22", two()).see("233", two());
    for _ in 0..100 {
        fleet.pass(20).see("23", galera(|_| {})).see("22", two()).see("233", two());
        assert_eq!(fleet.layout(), "100: 22; 101: 233; 102: 233; 9101: 23(SHUNNED,cut off)");
    }
    fleet.pass(20).see("22", galera(|_| {})).see("233", galera(|_| {})).see("23", galera(|_| {}));
    assert_eq!(fleet.layout(), well);
    // The writer is slow for one check while nodes join and leave, seen at different times: no node is excluded.
    for slow in ["22", "23"] {
        let mut fleet = settled(0);
        fleet.pass(5_000).see(slow, Observation::Galera(Err(ProbeError::Timeout))).pass(20).see(slow, galera(|_| {}));
        for size in [4, 3, 2, 3] {
            let seen = || galera(|view| view.cluster_size = size);
            for node in ["22", "23", "233"] {
                fleet.pass(500).see(node, seen());
                assert_eq!(fleet.layout(), well, "{slow} {size}");
            }
        }
    }
    // The writer itself, at odds with both.
    let mut fleet = settled(0);
    fleet.pass(5_000).see("22", Observation::Galera(Err(ProbeError::Timeout))).pass(20);
    for _ in 0..10 {
        fleet.pass(20).see("22", galera(|_| {})).see("23", two()).see("233", two());
        assert_eq!(fleet.hostgroup(100), "22");
    }
}

/// While the monitor is off, the writer of a switchover stays, excluded servers stay excluded, and no server comes back.
#[test]
fn a_monitor_that_is_switched_off_freezes_roles() {
    let off = |text: &str| format!("mysql_variables = {{ monitor_enabled=false }}\n{text}");
    let mut fleet = settled(0);
    order(&mut fleet, &Order::Prefer { writer: HostgroupId(100), server: Some(addr("23")) }).unwrap();
    fleet.pass(1_000).see("233", galera(|view| view.primary_partition = false)).see("22", galera(|view| view.reject_queries = true));
    let frozen = "100: 23; 9101: 22(SHUNNED) 233(SHUNNED,cut off)";
    assert_eq!(fleet.layout(), frozen);
    fleet.configure(&off(&issue(0)));
    for node in ["22", "233"] {
        fleet.pass(3_600_000).see(node, galera(|_| {})).signal("23", 100, SignalKind::NotReady);
    }
    assert_eq!(fleet.layout(), frozen);
    fleet.configure(&issue(0));
    assert_eq!(fleet.layout(), frozen);
    for node in ["22", "233"] {
        fleet.see(node, galera(|_| {}));
    }
    assert_eq!(fleet.layout(), "100: 23; 101: 22 233; 102: 22 233");
    // The heaviest server was well only for a moment. An hour with the monitor off does not count, nor does weight.
    let mut fleet = settled(0);
    fleet.see("22", galera(|view| view.read_only = true)).pass(1_000).see("22", galera(|_| {}));
    assert_eq!(fleet.hostgroup(100), "233");
    fleet.configure(&off(&issue(0)));
    fleet.pass(3_600_000);
    fleet.configure(&off(
        &issue(0).replace("weight=10000, max_connections=2000, comment=\"DC1\" } )", "weight=9, max_connections=2000 } )")
    ));
    assert_eq!(fleet.hostgroup(100), "233");
    fleet.configure(&issue(0));
    assert_eq!(fleet.hostgroup(100), "233");
    let due = fleet.topology.next_tick().unwrap();
    assert!(due > fleet.now_ms && due <= fleet.now_ms + 300_000, "{due} after {}", fleet.now_ms);
    fleet.pass(3_600_000);
    assert_eq!(fleet.hostgroup(100), "22", "fail-back");
}

/// A writer of weight 0 is sent nothing.
#[test]
fn whose_weight_is_0_writes_only_if_nobody_else_can() {
    let rows = |a: u32, b: u32| {
        let groups = issue(0).split("mysql_galera_hostgroups").nth(1).unwrap().to_owned();
        format!(
            "mysql_servers = ( {{ hostgroup=100, address=\"a\", port=3306, weight={a} }}, {{ hostgroup=101, address=\"b\", port=3306, weight={b} }},
             {{ hostgroup=101, address=\"c\", port=3306, weight=0 }} )\nmysql_galera_hostgroups{groups}"
        )
    };
    let see = |fleet: &mut Fleet, nodes: &[&str]| nodes.iter().for_each(|node| _ = fleet.see(node, galera(|_| {})));
    let mut fleet = Fleet::new(&rows(1, 1));
    see(&mut fleet, &["a", "b", "c"]);
    fleet.pass(20_000).events();
    assert_eq!(fleet.hostgroup(100), "a");
    fleet.configure(&rows(0, 1));
    assert_eq!(fleet.layout(), "100: b; 101: a c; 102: c");
    assert!(fleet.whys().contains(&"a writer>reader: its weight is 0: b:3306 writes".to_owned()));
    fleet.pass(20_000);
    see(&mut fleet, &["a", "b", "c"]);
    let failback = Order::Failback { writer: HostgroupId(100) };
    assert!(fleet.topology.order(fleet.now_ms, &failback).unwrap_err().contains("no better server"));
    assert_eq!(fleet.hostgroup(100), "b", "neither comes back");
    // One that is not to be read from may write: its row in the writer hostgroup is none of the operator's.
    fleet.see("b", galera(|view| view.reject_queries = true));
    assert_eq!(fleet.hostgroup(100), "c");
    let weight = |fleet: &Fleet, id| fleet.topology.layout().hostgroups[&HostgroupId(id)][0].server.weight;
    assert_eq!(weight(&fleet, 100), 1);
    // A donor writes rather than a server of weight 0.
    fleet.see("c", galera(|view| view.local_state = 2)).pass(2_000).see("c", galera(|view| view.local_state = 2));
    assert_eq!(fleet.hostgroup(100), "c");
    fleet.see("c", galera(|view| view.reject_queries = true));
    assert_eq!(fleet.hostgroup(100), "a", "nobody else");
    fleet.pass(100);
    see(&mut fleet, &["b", "c"]);
    assert_eq!(fleet.hostgroup(100), "b", "at once");
    fleet.configure(&rows(1, 1));
    assert_eq!(fleet.hostgroup(100), "b");
    see(&mut fleet, &["a"]);
    fleet.pass(20_000);
    assert_eq!(fleet.hostgroup(100), "a", "after its fail-back");
}

/// `a`, `b` and `c` read, and those in `writers` have rows in the writer hostgroup.
fn with_writers(writers: &[&str], end: &str) -> String {
    let rows: Vec<String> = ["a", "b", "c", "d"]
        .into_iter()
        .filter(|node| *node != "d" || writers.contains(node))
        .map(|node| {
            let hostgroup = if writers.contains(&node) { 100 } else { 101 };
            format!("{{ hostgroup={hostgroup}, address=\"{node}\", port=3306 }}")
        })
        .collect();
    format!(
        "mysql_servers = ( {} ) mysql_galera_hostgroups = ( {{ writer_hostgroup=100, backup_writer_hostgroup=102, reader_hostgroup=101,
           offline_hostgroup=9101, max_transactions_behind=10, {end} }} )",
        rows.join(", ")
    )
}

#[test]
fn a_server_that_is_added_to_the_writers_waits_for_its_first_check() {
    let one = "max_writers=1, writer_is_also_reader=0";
    let mut fleet = Fleet::new(&with_writers(&["a"], one));
    ["a", "b", "c"].into_iter().for_each(|node| _ = fleet.see(node, galera(|_| {})));
    let before = fleet.layout();
    fleet.pass(1_000).configure(&with_writers(&["a", "d"], one));
    assert_eq!(fleet.layout(), format!("{before}; 9101: d(SHUNNED)"));
    fleet.see("d", Observation::Galera(Err(ProbeError::Failed("no wsrep".to_owned()))));
    assert_eq!(fleet.layout(), format!("{before}; 9101: d(SHUNNED)"), "it does not say what it is");
    let mut synced = fleet.clone();
    synced.see("d", galera(|_| {}));
    assert_eq!(synced.layout(), "100: a; 101: b c d; 102: b c d");
    // A server that refuses the monitor is used as configured. The same holds for a server that replaces all former writers.
    fleet.see("d", Observation::Galera(Err(ProbeError::Denied("1045".to_owned()))));
    assert_eq!(fleet.layout(), "100: a; 101: b c d; 102: b c d");
    fleet.configure(&with_writers(&["d"], one).replace("{ hostgroup=101, address=\"a\", port=3306 }, ", ""));
    assert_eq!(fleet.hostgroup(100), "d");
}

#[test]
fn writers_beside_backup_writers_that_were_moved_while_nobody_looked_do_not_read() {
    let backups = "max_writers=1, writer_is_also_reader=2";
    let off = |text: String| format!("mysql_variables = {{ monitor_enabled=false }}\n{text}");
    let mut fleet = Fleet::new(&with_writers(&["a"], backups));
    ["a", "b", "c"].into_iter().for_each(|node| _ = fleet.see(node, galera(|_| {})));
    let before = fleet.layout();
    fleet.pass(1_000).configure(&off(with_writers(&["a"], backups)));
    fleet.events();
    fleet.configure(&off(with_writers(&["a", "b", "c"], backups)));
    assert_eq!(fleet.layout(), before);
    assert_eq!(fleet.events(), Vec::<String>::new());
}

#[test]
fn what_a_load_does_to_writers_is_told() {
    let one = "max_writers=1, writer_is_also_reader=0";
    let text = with_writers(&["a"], one);
    let see = |fleet: &mut Fleet, nodes: &[&str]| nodes.iter().for_each(|node| _ = fleet.see(node, galera(|_| {})));
    let mut fleet = Fleet::new(&text);
    see(&mut fleet, &["a", "b", "c"]);
    fleet.pass(1_000);
    // Switched off, and back while another server writes.
    let mut away = fleet.clone();
    away.events();
    away.configure(&text.replace("address=\"a\",", "address=\"a\", status=\"OFFLINE_SOFT\","));
    assert!(away.events().contains(&"status a ONLINE>OFFLINE_SOFT".to_owned()));
    away.pass(1_000).configure(&text);
    let told = away.events();
    assert!(told.contains(&"role a writer>backup_writer,reader".to_owned()), "{told:?}");
    assert!(told.contains(&"status a OFFLINE_SOFT>ONLINE".to_owned()), "{told:?}");
    // Gone.
    let mut gone = fleet.clone();
    gone.events();
    gone.configure(&text.replace("{ hostgroup=100, address=\"a\", port=3306 }, ", ""));
    let told = gone.whys();
    assert!(told.contains(&"a writer>none: removed from the configuration".to_owned()), "{told:?}");
    // No server may write.
    fleet.events();
    fleet.configure(&text.replace("max_writers=1", "max_writers=0"));
    let told = fleet.topology.take_events();
    let why = |kind: &str| told.iter().find(|event| event.kind.as_str() == kind).map(|event| event.why.clone());
    assert_eq!(why("role").unwrap(), "max_writers is 0", "{told:?}");
    assert_eq!(why("writer").unwrap(), "max_writers is 0, so no server may write", "{told:?}");
}

#[test]
fn a_new_cluster_has_a_writer_and_not_again() {
    let mut fleet = Fleet::new(&with_writers(&[], "max_writers=1"));
    let whys = |fleet: &mut Fleet| {
        let told = fleet.topology.take_events();
        told.into_iter().filter(|event| event.kind.as_str() == "writer").map(|event| event.why).collect::<Vec<_>>()
    };
    assert!(whys(&mut fleet).is_empty());
    fleet.pass(100).see("a", galera(|_| {}));
    assert_eq!(whys(&mut fleet), ["the cluster has a writer"]);
    fleet.pass(100).see("a", galera(|view| view.reject_queries = true)).pass(100).see("a", galera(|_| {}));
    assert_eq!(whys(&mut fleet), ["no server may write", "the cluster has a writer again"]);
}

/// The writer after a restart of the proxy does not depend on the order in which the nodes answer.
#[test]
fn a_restart_of_the_proxy_moves_no_writer_that_stays() {
    let orders = [["22", "23", "233"], ["233", "23", "22"], ["23", "22", "233"]];
    for (policy, expected) in [("never", "233"), ("command", "233"), ("delayed", "22"), ("immediate", "22")] {
        let setting = format!("failback=\"{policy}\"");
        let text = format!("mysql_variables = {{ {setting} }}\n{}", issue(0));
        for order in orders {
            let mut before = with(&setting);
            before.see("22", galera(|view| view.primary_partition = false));
            assert_eq!(before.hostgroup(100), "233");
            let mut fleet = before.pass(1_000).see("22", galera(|_| {})).restarted(&text);
            for node in order {
                // Until it has answered, no other server writes.
                let writer = fleet.hostgroup(100);
                assert!(writer == expected || (writer.is_empty() && expected == "233"), "{policy}, before {node} was seen: {writer}");
                fleet.see(node, galera(|_| {}));
            }
            assert_eq!(fleet.pass(60_000).hostgroup(100), expected, "{policy}");
            let kept: Vec<String> = fleet.topology.standings().writers.iter().map(|standing| standing.server.host.to_string()).collect();
            assert_eq!(kept, ["233"].iter().filter(|_| expected == "233").copied().collect::<Vec<_>>(), "{policy}: for the next time");
        }
    }
}

#[test]
fn a_restart_of_the_proxy_keeps_whom_an_operator_prefers() {
    let mut before = with("failback=\"delayed\"");
    let writer = HostgroupId(100);
    order(&mut before, &Order::Prefer { writer, server: Some(addr("23")) }).unwrap();
    let mut fleet = before.restarted(&issue(0));
    for node in ["22", "233", "23"] {
        assert_eq!(fleet.hostgroup(100), "", "before {node} was seen");
        fleet.see(node, galera(|_| {}));
    }
    assert_eq!(fleet.pass(60_000).hostgroup(100), "23");
    assert_eq!(fleet.topology.preferred(writer), Some(&addr("23")));
    order(&mut fleet, &Order::Failback { writer }).unwrap();
    assert_eq!(fleet.topology.standings().writers, []);
    assert_eq!(fleet.restarted(&issue(0)).hostgroup(100), "22");
}

#[test]
fn who_wrote_before_a_restart_and_is_lost_holds_nobody_up() {
    let setting = "failback=\"never\"";
    let text = format!("mysql_variables = {{ {setting} }}\n{}", issue(0));
    let mut before = with(setting);
    before.see("22", galera(|view| view.primary_partition = false)).pass(1_000).see("22", galera(|_| {}));
    let mut fleet = before.restarted(&text);
    fleet.see("22", galera(|_| {})).see("23", galera(|_| {}));
    for _ in 0..9 {
        fleet.pass(1_000).see("233", Observation::Ping(Err(unreachable()))).see("233", Observation::Galera(Err(unreachable())));
    }
    assert_eq!(fleet.hostgroup(100), "22");
    fleet.pass(1_000).see("233", Observation::Ping(Ok(100))).see("233", galera(|_| {})).pass(60_000);
    assert_eq!(fleet.hostgroup(100), "22", "nobody takes its place now");
    // A server that left the configuration is not awaited.
    let gone = text.replace("address=\"233\"", "address=\"234\"");
    assert_eq!(before.restarted(&gone).hostgroup(100), "22");
}

/// A cluster that is not watched yet is not forgotten.
#[test]
fn what_was_kept_waits_for_the_monitor() {
    let text = |watched: bool| format!("mysql_variables = {{ failback=\"never\", monitor_enabled={watched} }}\n{}", issue(0));
    let mut before = with("failback=\"never\"");
    before.see("22", galera(|view| view.primary_partition = false)).pass(1_000).see("22", galera(|_| {}));
    let mut fleet = before.restarted(&text(false)).restarted(&text(false));
    fleet.configure(&text(true));
    for node in ["22", "23", "233"] {
        fleet.see(node, galera(|_| {}));
    }
    assert_eq!(fleet.hostgroup(100), "233");
}

/// A cluster that is configured no more is forgotten, while the proxy is up and when it is started again.
#[test]
fn what_was_kept_of_a_cluster_goes_with_its_row() {
    let without = issue(0).split_once("mysql_galera_hostgroups").unwrap().0.to_owned();
    let mut before = with("failback=\"delayed\"");
    order(&mut before, &Order::Prefer { writer: HostgroupId(100), server: Some(addr("23")) }).unwrap();
    for mut fleet in [before.clone(), before.restarted(&without)] {
        fleet.configure(&without);
        assert_eq!(fleet.topology.standings().writers, []);
        fleet.configure(&issue(0));
        for node in ["22", "23", "233"] {
            fleet.see(node, galera(|_| {}));
        }
        assert_eq!(fleet.pass(60_000).hostgroup(100), "22");
    }
}
