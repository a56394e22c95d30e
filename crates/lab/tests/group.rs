//! Groups that come up, change their primary, lose members and take them back.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::time::Duration;

use lab::{Group, Network, Options, wait};

const LIMIT: Duration = Duration::from_secs(30);

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
