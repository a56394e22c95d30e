//! Groups that come up, change their primary, lose members and take them back.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::fs;
use std::time::{Duration, Instant};

use lab::topology::{Topology, WRITER, layout};
use lab::{Group, Network, Options, Tidegate, wait};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn comes_up_switches_crashes_and_takes_back() {
    let group = Group::start(3, &Options::new()).unwrap();
    assert_eq!(group.primary(), Some(0));
    group.members[0].sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    group.switch_to(1).unwrap();
    group.members[1].sql("INSERT INTO test.t VALUES(1)").unwrap();

    group.members[1].kill9();
    let next = group.wait_primary_among(&[0, 2]).unwrap();
    group.members[next].sql("INSERT INTO test.t VALUES(2)").unwrap();
    group.bring_back(1).unwrap();
    let rows = || group.members[1].scalar("SELECT COUNT(*) FROM test.t").unwrap().filter(|count| count == "2");
    wait::until("what happened meanwhile", LIMIT, rows).unwrap();

    group.leave(1).unwrap();
    group.wait_seen_online(next, 2).unwrap();
    group.join(1).unwrap();
    group.wait_online().unwrap();
}

#[test]
fn a_cut_primary_is_replaced() {
    if !Network::possible() {
        eprintln!("not tested: networks need root and the program ip");
        return;
    }
    let group = Group::start_apart(3, &Options::new()).unwrap();
    let site = &group.network().unwrap().sites[0];
    site.cut_from_group(true).unwrap();
    group.wait_primary_among(&[1, 2]).unwrap();
}

fn writes(proxy: &Tidegate, group: &Group, index: usize) -> bool {
    let port = group.members[index].port().to_string();
    layout(proxy).unwrap().iter().any(|p| p.hostgroup == WRITER && p.status == "ONLINE" && p.server.ends_with(&port))
}

/// The primary is killed, started at once, and founds a group before the others have expelled it: no member writes until they have elected.
#[test]
fn a_primary_that_founds_another_group_gets_no_writes() {
    let topology = Topology::Group(Group::start(3, &Options::new()).unwrap());
    let Topology::Group(group) = &topology else { unreachable!("a group was started") };
    group.members[0].sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    // However slow the machine is, the other members are not taken for silent: otherwise this one would be the only one left.
    let patient = topology.proxied().variable("monitor_groupreplication_healthcheck_timeout", 5000);
    let patient = patient.variable("monitor_groupreplication_healthcheck_max_timeout_count", 10);
    let proxy = patient.variable("monitor_groupreplication_healthcheck_interval", 200).start().unwrap();
    wait::until("the writer", LIMIT, || writes(&proxy, group, 0).then_some(())).unwrap();
    let mut client = proxy.connect_app().unwrap();
    client.run("INSERT INTO t VALUES(1)").unwrap();
    group.members[0].kill9();
    group.members[0].restart().unwrap();
    group.found(0).unwrap();
    // The other members may name it for ever, and elect no one.
    let founded = Instant::now();
    wait::until("others to elect, or seconds to pass", LIMIT, || {
        assert!(!writes(&proxy, group, 0), "it has become the writer again");
        (founded.elapsed() > Duration::from_secs(5) || (1..3).any(|index| writes(&proxy, group, index))).then_some(())
    })
    .unwrap();
    group.members[0].sql("STOP GROUP_REPLICATION").unwrap();
    let next = wait::until("another writer", LIMIT, || [1, 2].into_iter().find(|index| writes(&proxy, group, *index))).unwrap();
    proxy.connect_app().unwrap().run("INSERT INTO t VALUES(2)").unwrap();
    assert_eq!(group.members[next].scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("2"));
    let port = group.members[0].port();
    let events = format!("SELECT COUNT(*) FROM stats_tidegate_events WHERE kind='role' AND to_state='writer' AND port={port}");
    assert_eq!(proxy.admin().unwrap().scalar(events).unwrap().as_deref(), Some("0"), "it has become the writer again");
}

/// Several members may write: the one chosen by SWITCHOVER does so again when the proxy is started again, though it answers last.
#[test]
fn the_choice_of_a_writer_in_a_group_outlasts_the_proxy() {
    let several = ["--loose-group-replication-single-primary-mode=OFF", "--loose-group-replication-enforce-update-everywhere-checks=ON"];
    let topology = Topology::Group(Group::start(3, &Options::new().args(several)).unwrap());
    let Topology::Group(group) = &topology else { unreachable!("a group was started") };
    let mut proxy = topology.proxied().variable("monitor_groupreplication_healthcheck_max_timeout_count", 9).start().unwrap();
    let chosen = &group.members[2];
    let order = format!("SWITCHOVER HOSTGROUP {WRITER} TO '{}:{}'", chosen.host(), chosen.port());
    wait::until("all members to be seen", LIMIT, || proxy.admin().unwrap().run(&order).ok()).unwrap();
    let file = proxy.dir().join("tidegate_writers.json");
    wait::until("the choice to be kept", LIMIT, || fs::read_to_string(&file).ok().filter(|text| text.contains("\"is_preferred\": true")))
        .unwrap();
    for _ in 0..2 {
        proxy.stop().unwrap();
        chosen.sigstop();
        proxy.start_again(&[]).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let early = (0..3).find(|index| writes(&proxy, group, *index));
        chosen.sigcont();
        assert_eq!(early, None, "it was not seen yet");
        wait::until("the writer", LIMIT, || (0..3).find(|index| writes(&proxy, group, *index)).filter(|index| *index == 2)).unwrap();
    }
}
