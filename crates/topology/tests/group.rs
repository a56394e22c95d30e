//! Group Replication: members elect, the proxy follows.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fleet, addr, group, group_replication, unreachable};
use model::HostgroupId;
use model::snapshot::Address;
use topology::{GroupView, Observation, Order, ProbeError};

fn settled_with(text: &str) -> Fleet {
    let mut fleet = Fleet::new(text);
    fleet.see("a", group(|view| view.read_only = false)).see("b", group(|_| {})).see("c", group(|_| {}));
    fleet.events();
    fleet
}

fn settled() -> Fleet {
    settled_with(&group_replication(1, 0))
}

fn primary_is(name: &str, read_only: bool) -> Observation {
    group(|view| (view.primary, view.read_only) = (Some(addr(name)), read_only))
}

#[test]
fn the_primary_writes() {
    for (reads, expected) in [(0, "1: a; 3: b c"), (1, "1: a; 3: a b c"), (2, "1: a; 3: a b c")] {
        assert_eq!(settled_with(&group_replication(1, reads)).layout(), expected, "writer_is_also_reader={reads}");
    }
}

#[test]
fn a_switch_is_followed() {
    let mut fleet = settled();
    fleet.pass(5_000).see("a", primary_is("b", true));
    assert_eq!(fleet.layout(), "3: a b c", "who is not primary any more does not write");
    fleet.pass(20).see("b", primary_is("b", false));
    assert_eq!(fleet.layout(), "1: b; 3: a c");
}

#[test]
fn the_primary_crashes() {
    let mut fleet = settled();
    fleet.pass(1_000).see("a", Observation::Group(Err(unreachable()))).pass(20).see("a", Observation::Group(Err(unreachable())));
    assert_eq!(fleet.layout(), "3: b c; 4: a(SHUNNED,cut off)");
    // c is asked first, and still names a.
    fleet.pass(20).see("c", group(|_| {})).see("b", primary_is("b", false));
    assert_eq!(fleet.layout(), "1: b; 3: c; 4: a(SHUNNED,cut off)");
    fleet.pass(5_000).see("a", primary_is("b", true));
    assert_eq!(fleet.layout(), "1: b; 3: a c");
}

#[test]
fn one_odd_view_makes_no_primary() {
    let mut fleet = settled();
    fleet.pass(5_000).see("b", primary_is("b", false));
    assert_eq!(fleet.hostgroup(1), "a", "two name a, one names b");
    assert_eq!(fleet.interval_ms("c", "Group"), 20);
    fleet.pass(20).see("c", primary_is("b", true));
    assert_eq!(fleet.hostgroup(1), "b", "two name b");
}

#[test]
fn who_sees_no_majority_is_out() {
    let mut fleet = settled();
    let states = |states: [&str; 3]| ["a", "b", "c"].map(addr).into_iter().zip(states.map(str::to_owned)).collect();
    fleet.pass(5_000).see(
        "a",
        group(|view| {
            (view.viable, view.read_only) = (false, false);
            view.members = states(["ONLINE", "UNREACHABLE", "UNREACHABLE"]);
        }),
    );
    assert_eq!(fleet.layout(), "3: b c; 4: a(SHUNNED,cut off)", "what commits there waits, for ever if nobody helps");
    fleet.pass(5_000).see(
        "a",
        group(|view| {
            view.viable = false;
            view.members = vec![(addr("a"), "ERROR".to_owned())];
        }),
    );
    assert_eq!(fleet.layout(), "3: b c; 4: a(SHUNNED)", "it has left the group, and says so to whoever waits");
    fleet.see("a", group(|view| view.read_only = false));
    assert_eq!(fleet.layout(), "1: a; 3: b c");
}

#[test]
fn the_multi_primary_mode_has_backup_writers() {
    for (reads, expected) in [(0, "1: a; 2: b c; 3: b c"), (1, "1: a; 2: b c; 3: a b c"), (2, "1: a; 2: b c; 3: b c")] {
        let mut fleet = Fleet::new(&group_replication(1, reads));
        for member in ["c", "b", "a"] {
            fleet.see(member, group(|view| (view.read_only, view.primary) = (false, None)));
        }
        assert_eq!(fleet.layout(), expected, "writer_is_also_reader={reads}");
    }
    let mut fleet = Fleet::new(&group_replication(2, 0));
    for member in ["a", "b", "c"] {
        fleet.see(member, group(|view| (view.read_only, view.primary) = (false, None)));
    }
    assert_eq!(fleet.layout(), "1: a c; 2: b; 3: b");
}

/// Every member may write. If the writer is drained or dies, another one writes.
#[test]
fn in_multi_primary_mode_another_member_writes_at_once() {
    let writable = || group(|view| (view.read_only, view.primary) = (false, None));
    let settled = || {
        let mut fleet = Fleet::new(&group_replication(1, 0));
        fleet.see("a", writable()).see("b", writable()).see("c", writable()).pass(1_000);
        fleet
    };
    let mut fleet = settled();
    fleet.topology.order(1_000, &Order::Drain { server: addr("a"), is_drained: true }).unwrap();
    assert_eq!(fleet.layout(), "1: a(OFFLINE_SOFT) c; 2: b; 3: b");
    let mut fleet = settled();
    fleet.see("a", Observation::Group(Err(unreachable()))).pass(20).see("a", Observation::Group(Err(unreachable())));
    assert_eq!(fleet.layout(), "1: c; 2: b; 3: b; 4: a(SHUNNED,cut off)");
}

#[test]
fn members_that_are_behind_are_not_read_from() {
    let behind = |count| group(move |view: &mut GroupView| view.transactions_behind = count);
    let mut fleet = settled();
    for expected in ["b c", "b c", "b(SHUNNED_REPLICATION_LAG) c"] {
        fleet.pass(5_000).see("b", behind(101));
        assert_eq!(fleet.hostgroup(3), expected);
    }
    fleet.pass(5_000).see("b", behind(100));
    assert_eq!(fleet.hostgroup(3), "b c");
    // Both lag: one stays.
    for count in 0..3 {
        fleet.pass(5_000).see("b", behind(200 + count)).see("c", behind(300));
    }
    assert_eq!(fleet.hostgroup(3), "b c(SHUNNED_REPLICATION_LAG)");
}

#[test]
fn errors_count_as_the_settings_say() {
    let failed = || ProbeError::Failed("nonsense".to_owned());
    let denied = || ProbeError::Denied("1045".to_owned());
    type Make = fn() -> ProbeError;
    let cases: [(Make, Option<u32>); 4] = [(unreachable, Some(2)), (failed, Some(2)), (|| ProbeError::Timeout, Some(3)), (denied, None)];
    for (error, after) in cases {
        let mut fleet = settled();
        for count in 1..=10 {
            fleet.pass(20).see("b", Observation::Group(Err(error())));
            let is_out = after.is_some_and(|after| count >= after);
            assert_eq!(fleet.hostgroup(3), if is_out { "c" } else { "b c" }, "{:?} {count} times", error());
        }
        fleet.pass(5_000).see("b", group(|_| {}));
        assert_eq!(fleet.hostgroup(3), "b c");
    }
}

#[test]
fn members_are_found_and_leave() {
    let mut fleet = settled();
    let with_d = |view: &mut GroupView| view.members.push((addr("d"), "ONLINE".to_owned()));
    fleet.pass(5_000).see("b", group(with_d));
    assert_eq!(fleet.events(), ["discovery d unknown>found"]);
    assert_eq!(fleet.layout(), "1: a; 3: b c", "its name may be one that cannot be reached");
    assert_eq!(fleet.interval_ms("d", "Group"), 5_000);
    fleet.pass(20).see("d", group(with_d));
    assert_eq!(fleet.layout(), "1: a; 3: b c d");
    fleet.configure(&group_replication(1, 0));
    assert_eq!(fleet.layout(), "1: a; 3: b c d", "a new configuration does not forget it");
    // It stops, then the other members no longer name it.
    fleet.pass(20).see("d", Observation::Group(Err(unreachable()))).pass(20).see("d", Observation::Group(Err(unreachable())));
    assert_eq!(fleet.layout(), "1: a; 3: b c; 4: d(SHUNNED,cut off)");
    for member in ["b", "c", "b"] {
        assert!(fleet.checks().contains_key("d:3306"));
        fleet.pass(5_000).see(member, group(|_| {}));
    }
    assert_eq!(fleet.layout(), "1: a; 3: b c");
    assert!(!fleet.checks().contains_key("d:3306"));
    assert_eq!(fleet.events().last().unwrap(), "discovery d found>left");
}

/// A socket has no TLS: a member that is found is reached like one with a port.
#[test]
fn members_that_are_found_are_reached_like_those_with_a_port() {
    let text = "mysql_servers = ( { hostgroup=1, address=\"/run/a\", port=0 }, { hostgroup=3, address=\"b\", port=3306, use_ssl=1 } )
      mysql_group_replication_hostgroups = ( { writer_hostgroup=1, backup_writer_hostgroup=2, reader_hostgroup=3, offline_hostgroup=4,
        active=1 } )";
    let mut fleet = Fleet::new(text);
    fleet.see("/run/a:0", Observation::Group(Err(unreachable())));
    fleet.see("b", group(|view| view.members.push((addr("d"), "ONLINE".to_owned()))));
    let checks = fleet.topology.checks();
    let found = checks.iter().find(|check| check.addr == addr("d")).unwrap();
    assert!(found.server.use_ssl);
    assert_eq!(found.server.address, Address::Tcp { host: "d".into(), port: 3306 });
}

#[test]
fn members_with_other_names_in_the_group_are_not_found_twice() {
    let mut fleet = settled();
    let named = |view: &mut GroupView| view.members = ["n1", "n2", "n3"].map(|name| (addr(name), "ONLINE".to_owned())).to_vec();
    fleet.pass(5_000).see("b", group(named));
    assert_eq!(fleet.checks().len(), 3);
    let in_capitals = |view: &mut GroupView| view.members = ["A", "B", "C"].map(|name| (addr(name), "ONLINE".to_owned())).to_vec();
    let mut fleet = settled();
    fleet.pass(5_000).see("b", group(in_capitals));
    assert_eq!(fleet.checks().len(), 3, "letter case counts for nothing");
}

/// The answer of the member with this UUID, which knows the others under these names.
fn knows(uuid: &str, names: [&str; 3]) -> Observation {
    group(|view| {
        view.members = names.map(|name| (addr(name), "ONLINE".to_owned())).to_vec();
        view.uuids = ["u1", "u2", "u3"].map(str::to_owned).into_iter().zip(names.map(addr)).collect();
        view.uuid = uuid.to_owned();
    })
}

/// The monitor learns a member's address here when the member is first asked.
#[test]
fn members_with_other_names_are_not_found_while_the_proxy_starts() {
    for order in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
        let mut fleet = Fleet::new(&group_replication(1, 0));
        let mut names = ["n1", "n2", "n3"];
        for member in order {
            let index = ["a", "b", "c"].iter().position(|name| *name == member).unwrap();
            names[index] = member;
            fleet.see(member, knows(["u1", "u2", "u3"][index], names));
            assert_eq!(fleet.checks().len(), 3, "{order:?} {member}");
        }
        let mut upgraded = fleet.upgraded(&group_replication(1, 0));
        upgraded.see("b", knows("u2", ["n1", "b", "n3"]));
        assert_eq!(upgraded.checks().len(), 3, "{order:?}: the new process learns the addresses again");
    }
}

#[test]
fn a_member_that_was_found_under_another_name_leaves_once_its_own_address_answers() {
    let mut fleet = Fleet::new(&group_replication(1, 0));
    fleet.see("c", Observation::Group(Err(ProbeError::Timeout)));
    fleet.see("a", knows("u1", ["a", "n2", "n3"])).see("b", knows("u2", ["a", "b", "n3"]));
    assert!(fleet.checks().contains_key("n3:3306"), "nobody knows who it is");
    fleet.pass(100).see("n3", knows("u3", ["a", "b", "n3"])).see("c", knows("u3", ["a", "b", "c"]));
    for (member, uuid) in [("a", "u1"), ("b", "u2"), ("n3", "u3"), ("c", "u3")] {
        fleet.pass(5_000).see(member, knows(uuid, ["a", "b", "c"]));
    }
    assert!(!fleet.checks().contains_key("n3:3306"), "{:?}", fleet.checks());
    assert_eq!(fleet.checks().len(), 3);
}

#[test]
fn a_configured_writer_that_nobody_has_seen_is_left_for_the_primary() {
    let mut fleet = Fleet::new(&group_replication(1, 0));
    fleet.see("b", primary_is("b", false));
    let events = fleet.topology.take_events();
    let told: Vec<_> = events.iter().map(|e| (e.to.as_str(), e.seen.split(' ').next().unwrap(), e.why.as_str())).collect();
    assert_eq!(
        told,
        [
            ("a:3306", "", "the cluster has a writer"),
            ("reader", "nothing", "b:3306 writes (writable member of the majority), and this server was not probed yet"),
            ("writer", "viable=1", "the only server that may write: writable member of the majority"),
        ]
    );
}

/// The answer of a member that sees these members as well.
fn sees(names: &[&str], view_id: &str) -> Observation {
    group(|view| {
        view.members = names.iter().map(|name| (addr(name), "ONLINE".to_owned())).collect();
        view.view_id = view_id.to_owned();
    })
}

fn primary_sees(names: &[&str], view_id: &str) -> Observation {
    let mut seen = sees(names, view_id);
    if let Observation::Group(Ok(view)) = &mut seen {
        (view.read_only, view.primary) = (false, Some(addr(names[0])));
    }
    seen
}

/// A reader was frozen and expelled. When it wakes up, it reports its old group until it notices.
#[test]
fn who_was_expelled_and_has_not_noticed_serves_nothing() {
    for timeouts in [1, 3] {
        let mut fleet = settled();
        fleet.pass(5_000);
        for _ in 0..timeouts {
            fleet.see("c", Observation::Group(Err(ProbeError::Timeout))).pass(800);
        }
        fleet.see("a", primary_sees(&["a", "b"], "2")).see("b", sees(&["a", "b"], "2")).pass(20);
        let mut seen = Vec::new();
        for _ in 0..100 {
            fleet.see("c", group(|_| {})).see("a", primary_sees(&["a", "b"], "2")).see("b", sees(&["a", "b"], "2")).pass(20);
            seen.push(fleet.layout());
        }
        let out = "1: a; 3: b; 4: c(SHUNNED,cut off)";
        assert!(timeouts < 3 || seen[0] == out, "who was out stays so: {}", seen[0]);
        assert_eq!(seen[1..].iter().find(|layout| *layout != out), None, "{timeouts}");
        // It has noticed, and joins again.
        fleet.see("c", group(|view| view.viable = false)).pass(500).see("c", sees(&["a", "b", "c"], "3"));
        fleet.see("a", primary_sees(&["a", "b", "c"], "3")).see("b", sees(&["a", "b", "c"], "3"));
        assert_eq!(fleet.layout(), "1: a; 3: b c");
    }
}

/// The same for the primary: it would take writes that no other member has.
#[test]
fn a_member_with_a_group_of_its_own_serves_nothing() {
    for (alone, rest, read_only) in [("c", ["a", "b"], true), ("c", ["a", "b"], false), ("a", ["b", "c"], false)] {
        let mut fleet = settled();
        let mut layouts = Vec::new();
        fleet.pass(5_000);
        for _ in 0..2_000 {
            let founded = || if read_only { sees(&[alone], "7:1") } else { primary_sees(&[alone], "7:1") };
            fleet.see(alone, founded()).see(rest[0], primary_sees(&rest, "2")).see(rest[1], sees(&rest, "2")).pass(20);
            layouts.push(fleet.layout());
        }
        let out = format!("1: {}; 3: {}; 4: {alone}(SHUNNED,cut off)", rest[0], rest[1]);
        assert_eq!(layouts[2..].iter().find(|layout| **layout != out), None, "{alone}");
        assert!(fleet.whys().iter().any(|why| why.contains("the group, as more of its members see it, does not contain it")));
        assert_eq!(fleet.interval_ms("a", "Group"), 5_000, "that may last for ever");
        for node in ["a", "b", "c"] {
            let all = ["a", "b", "c"];
            fleet.see(node, if node == "a" { primary_sees(&all, "9") } else { sees(&all, "9") });
        }
        fleet.see("b", group(|view| (view.view_id, view.primary) = ("9".to_owned(), Some(addr("a")))));
        assert_eq!(fleet.layout(), "1: a; 3: b c", "{alone}");
    }
}

/// The primary is killed and founds a group before the other members notice. They name it until they expel it.
#[test]
fn a_member_that_founds_another_group_writes_in_none() {
    let all = ["a", "b", "c"];
    for misses in [0, 2] {
        let mut fleet = settled();
        fleet.see("a", primary_sees(&all, "6:5")).see("b", sees(&all, "6:5")).see("c", sees(&all, "6:5")).pass(5_000);
        for _ in 0..misses {
            fleet.see("a", Observation::Group(Err(unreachable()))).pass(20);
        }
        for round in 0..1_000 {
            fleet.see("a", primary_sees(&["a"], "7:1"));
            assert_eq!(fleet.layout(), "3: b c; 4: a(SHUNNED,cut off)", "{misses}, {round}");
            fleet.pass(20).see("b", sees(&all, "6:5")).see("c", sees(&all, "6:5"));
        }
        fleet.see("b", primary_sees(&["b", "c"], "6:6"));
        assert_eq!(fleet.layout(), "1: b; 3: c; 4: a(SHUNNED,cut off)", "{misses}");
        fleet.pass(20).see("a", group(|view| view.viable = false)).see("c", sees(&["b", "c"], "6:6"));
        fleet.pass(500).see("a", sees(&["b", "c", "a"], "6:7"));
        assert_eq!(fleet.layout(), "1: b; 3: a c", "{misses}: the others have not seen it yet");
    }
    // Checks without an answer change no member's group.
    for silent in [&["a"][..], &["b", "c"], &["a", "a", "a", "a"]] {
        let mut fleet = settled();
        fleet.see("a", primary_sees(&all, "6:5")).see("b", sees(&all, "6:5")).see("c", sees(&all, "6:5")).pass(5_000);
        fleet.see("a", primary_sees(&["a"], "7:1")).pass(20).see("b", sees(&all, "6:5")).see("c", sees(&all, "6:5"));
        for node in silent {
            fleet.pass(20).see(node, Observation::Group(Err(ProbeError::Timeout)));
        }
        assert_eq!(fleet.hostgroup(1), "", "{silent:?}");
    }
    // All checks were paused meanwhile, so the last answers are asked for again at once.
    let mut fleet = settled();
    fleet.pass(5_000).see("a", primary_sees(&["a"], "7:1"));
    assert_eq!(fleet.interval_ms("b", "Group"), 20);
    for node in ["b", "c"] {
        fleet.pass(20).see(node, group(|view| (view.viable, view.view_id) = (false, String::new())));
    }
    assert_eq!(fleet.hostgroup(1), "a");
}

#[test]
fn views_that_change_put_nobody_out() {
    let well = "1: a; 3: b c";
    // Members that join and leave are seen at different times. A member that joins is ONLINE before the others were asked again.
    let mut fleet = settled();
    let all = ["a", "b", "c"];
    for (id, members) in [("2", &["a", "b", "c", "d"][..]), ("3", &all[..]), ("4", &["a", "c", "b", "e"][..]), ("5", &all[..])] {
        fleet.pass(1_600).see("c", sees(members, id)).pass(1_600).see("a", primary_sees(members, id));
        assert_eq!(fleet.layout(), well);
        fleet.pass(1_600).see("b", sees(members, id));
        assert_eq!(fleet.layout(), well);
    }
    // One odd view of each.
    for odd in [sees(&["b"], "6"), sees(&["a", "b"], "6")] {
        fleet.pass(5_000).see("b", odd);
        assert_eq!(fleet.layout(), well);
        fleet.pass(20).see("b", sees(&all, "5"));
        assert_eq!(fleet.layout(), well);
    }
    // It restarted and is back before the other members were asked again.
    fleet.see("c", Observation::Group(Err(unreachable()))).pass(20).see("c", Observation::Group(Err(unreachable())));
    fleet.see("a", primary_sees(&["a", "b"], "6")).see("b", sees(&["a", "b"], "6")).pass(20_000);
    fleet.see("c", sees(&all, "7"));
    assert_eq!(fleet.interval_ms("a", "Group"), 20);
    fleet.pass(20).see("a", primary_sees(&all, "7")).see("b", sees(&all, "7"));
    assert_eq!(fleet.layout(), well);
}

fn writable() -> Observation {
    group(|view| (view.read_only, view.primary) = (false, None))
}

/// In multi-primary mode, in whatever order the members are seen.
#[test]
fn a_restart_of_the_proxy_moves_no_writer_of_a_group() {
    for (policy, is_preferred) in [("never", true), ("command", true), ("delayed", true), ("immediate", true), ("never", false)] {
        let text = format!("mysql_variables = {{ failback=\"{policy}\" }}\n{}", group_replication(1, 0));
        let mut before = Fleet::new(&text);
        before.see("a", writable()).see("b", writable()).see("c", writable()).pass(1_000);
        let orders = if is_preferred {
            vec![Order::Prefer { writer: HostgroupId(1), server: Some(addr("c")) }]
        } else {
            [true, false].map(|is_drained| Order::Drain { server: addr("a"), is_drained }).to_vec()
        };
        orders.iter().for_each(|order| before.topology.order(1_000, order).unwrap());
        assert_eq!(before.hostgroup(1), "c");
        for order in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
            let mut fleet = before.restarted(&text);
            for node in order {
                let writer = fleet.pass(20).hostgroup(1);
                assert!(["", "c"].contains(&&*writer), "{policy}, before {node} was seen: {writer}");
                fleet.see(node, writable());
            }
            assert_eq!(fleet.pass(60_000).hostgroup(1), "c", "{policy}");
            assert_eq!(fleet.topology.standings(), before.topology.standings(), "{policy}: for the next time");
        }
        // If it is lost, or the group elects by now, the proxy does not wait for it. A member that refuses the monitor keeps its role.
        let mut fleet = before.restarted(&text);
        fleet.see("a", writable()).see("b", writable());
        let mut refused = fleet.clone();
        fleet.see("c", Observation::Group(Err(unreachable()))).pass(20).see("c", Observation::Group(Err(unreachable())));
        assert_eq!(fleet.hostgroup(1), "a", "{policy}");
        refused.see("c", Observation::Group(Err(ProbeError::Denied("1045".to_owned()))));
        assert_eq!(refused.hostgroup(1), "c", "{policy}");
        let mut fleet = before.restarted(&text);
        fleet.see("b", primary_is("b", false));
        assert_eq!(fleet.hostgroup(1), "b", "{policy}");
    }
}

/// The heaviest member writes, even if it answers last.
#[test]
fn the_first_choice_is_by_weight() {
    let text = group_replication(1, 0).replace("hostgroup=1, address=\"a\"", "hostgroup=3, weight=9, address=\"a\"");
    let mut fleet = Fleet::new(&text);
    fleet.see("b", writable()).see("c", writable()).pass(20).see("a", writable());
    assert_eq!(fleet.hostgroup(1), "a");
    fleet.pass(20).see("a", writable());
    assert_eq!(fleet.pass(60_000).hostgroup(1), "a");
}
