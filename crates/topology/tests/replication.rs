//! Replication: the server that is not read-only writes, and an old primary that returns does not.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fleet, REPLICATION, addr, group_replication, read_only, unreachable};
use model::HostgroupId;
use model::fleet::SignalKind;
use topology::{Observation, Order, ProbeError};

/// `a` writes, `b` and `c` are read-only, and were seen so.
fn settled() -> Fleet {
    let mut fleet = Fleet::new(REPLICATION);
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
    fleet.events();
    fleet
}

fn down(fleet: &mut Fleet, server: &str) {
    fleet.see(server, Observation::ReadOnly(Err(unreachable()))).pass(20).see(server, Observation::ReadOnly(Err(unreachable())));
}

fn off(text: &str) -> String {
    format!("mysql_variables = {{ monitor_enabled=false }}\n{text}")
}

fn order(fleet: &mut Fleet, order: &Order) -> Result<(), String> {
    let now_ms = fleet.now_ms;
    fleet.topology.order(now_ms, order)
}

#[test]
fn read_only_decides() {
    let mut fleet = settled();
    assert_eq!(fleet.layout(), "1: a; 2: a b c");
    fleet.pass(1_000).see("a", read_only(true));
    assert_eq!(fleet.layout(), "2: a b c", "a server that says it is read-only is believed at once");
    assert_eq!(fleet.events(), ["role a writer,reader>reader", "writer - a:3306>none"]);
    fleet.pass(20).see("b", read_only(false));
    assert_eq!(fleet.layout(), "1: b; 2: a b c", "with no writer, a new one is believed at once");
    assert_eq!(fleet.events(), ["role b reader>writer,reader", "writer - none>b:3306"]);
}

#[test]
fn writers_read_only_if_the_setting_says_so() {
    let text = format!("mysql_variables = {{ monitor_writer_is_also_reader=false }}\n{REPLICATION}");
    let mut fleet = Fleet::new(&text);
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
    assert_eq!(fleet.layout(), "1: a; 2: b c");
}

#[test]
fn one_odd_answer_makes_no_second_writer() {
    let mut fleet = settled();
    fleet.pass(1_000).see("b", read_only(false));
    assert_eq!(fleet.layout(), "1: a; 2: a b c");
    assert_eq!(fleet.interval_ms("b", "ReadOnly"), 20, "it is asked again at once");
    fleet.pass(20).see("b", read_only(true));
    assert_eq!(fleet.interval_ms("b", "ReadOnly"), 1_000);
    fleet.pass(1_000).see("b", read_only(false)).pass(20).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1), "a", "nor do many");
    let mut fleet = Fleet::new(&format!("mysql_variables = {{ second_writers=\"any\" }}\n{REPLICATION}"));
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
    fleet.pass(1_000).see("b", read_only(false)).pass(20).see("b", read_only(false));
    assert_eq!(fleet.layout(), "1: a b; 2: a b c", "unless the setting lets them");
    let told = "writer - a:3306>a:3306,b:3306".to_owned();
    assert!(fleet.events().contains(&told));
    fleet.pass(1_000).see("a", read_only(false)).pass(1_000).see("b", read_only(false));
    assert_eq!(fleet.layout(), "1: a b; 2: a b c");
}

/// `a` is the writer by its row; no server's option file has `read_only`.
#[test]
fn after_a_power_cut_replicas_do_not_write() {
    const ORDERS: [[&str; 3]; 4] = [["a", "b", "c"], ["b", "a", "c"], ["c", "b", "a"], ["b", "c", "a"]];
    let as_writers = REPLICATION.replace("hostgroup=2, a", "hostgroup=1, a");
    for (text, was_watched) in [(REPLICATION, false), (REPLICATION, true), (&*as_writers, true)] {
        for order in ORDERS {
            let mut fleet = Fleet::new(text);
            if was_watched {
                fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true)).pass(1_000);
            }
            for server in order {
                down(&mut fleet, server);
            }
            fleet.follow("b", &["a"]).follow("c", &["b"]);
            for (index, server) in order.into_iter().enumerate() {
                fleet.pass(1_000).see(server, read_only(false)).pass(20).see(server, read_only(false));
                let is_back = order[..=index].contains(&"a");
                let writers: Vec<String> = fleet.hostgroup(1).split(' ').filter(|name| !name.contains('(')).map(str::to_owned).collect();
                assert_eq!(writers.join(" "), if is_back { "a" } else { "" }, "{order:?} {server} {was_watched}");
            }
            // The writer is away for a while, and no server was promoted.
            down(&mut fleet, "a");
            fleet.pass(20).see("b", read_only(false)).see("c", read_only(false)).pass(20).see("b", read_only(false));
            assert_eq!(fleet.hostgroup(1), "a(SHUNNED)", "{order:?}");
            // And now one is.
            fleet.follow("b", &[]).pass(20).see("b", read_only(false)).pass(20).see("b", read_only(false)).see("c", read_only(false));
            let writes = |fleet: &Fleet| fleet.hostgroup(1).split(' ').filter(|name| !name.contains('(')).collect::<Vec<_>>().join(" ");
            assert_eq!(writes(&fleet), "b", "{order:?} {was_watched} {}", fleet.layout());
            fleet.pass(1_000).see("a", read_only(false)).see("b", read_only(false)).see("c", read_only(false));
            assert_eq!(writes(&fleet), "b", "{order:?}");
        }
    }
}

/// A tool promotes `b` while `a` looks well: only one of them takes writes, and an event reports it.
#[test]
fn who_becomes_writable_beside_the_writer_is_kept_out() {
    for text in [REPLICATION.to_owned(), REPLICATION.replace("hostgroup=2, address=\"b\"", "hostgroup=1, address=\"b\"")] {
        for sources in [&[][..], &["a"], &["elsewhere"]] {
            let mut fleet = Fleet::new(&text);
            fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true)).follow("b", sources).events();
            for _ in 0..90 {
                fleet.pass(1_000).see("a", read_only(false)).see("b", read_only(false));
                assert_eq!(fleet.hostgroup(1), "a", "{sources:?}");
            }
            let status = if sources.is_empty() { "b(SHUNNED)" } else { "b" };
            assert_eq!(fleet.hostgroup(2), format!("a {status} c"), "{sources:?}");
            let told = fleet.whys();
            let change = if sources.is_empty() { "b ONLINE>SHUNNED: writable, but " } else { "b reader>kept out: writable, but " };
            assert!(told.len() == 1 && told[0].starts_with(change), "{told:?} {sources:?}");
            assert_eq!(fleet.interval_ms("b", "ReadOnly"), 1_000, "and then all is calm");
            assert_eq!(fleet.interval_ms("b", "Sources"), 1_000);
            // Once is chance; then it is over with the writer.
            fleet.pass(1_000).see("a", Observation::ReadOnly(Err(unreachable())));
            assert_eq!(fleet.hostgroup(1), "a", "{sources:?}");
            let mut switched = fleet.clone();
            switched.pass(20).see("a", read_only(true)).pass(20).see("b", read_only(false));
            assert_eq!(switched.hostgroup(1), "b", "a switchover {sources:?}");
            let mut ordered = fleet.clone();
            ordered.pass(20).see("a", read_only(false));
            order(&mut ordered, &Order::Prefer { writer: HostgroupId(1), server: Some(addr("b")) }).unwrap();
            ordered.pass(20).see("b", read_only(false)).see("a", read_only(false)).pass(1_000).see("a", read_only(false));
            assert!(ordered.hostgroup(1).contains('b') && !ordered.hostgroup(1).contains("b("), "{}", ordered.layout());
            fleet.pass(20).see("a", Observation::ReadOnly(Err(unreachable()))).follow("b", &[]).pass(20).see("b", read_only(false));
            assert!(fleet.hostgroup(1).ends_with(" b") || fleet.hostgroup(1) == "b", "{sources:?} {}", fleet.layout());
            fleet.pass(1_000).see("a", read_only(false)).see("b", read_only(false));
            assert_eq!(fleet.hostgroup(1), "b", "{sources:?}");
        }
    }
}

/// An active and a passive server replicate from each other. After a start of the proxy the active one writes, wherever its row is.
#[test]
fn the_active_one_of_a_ring_writes_after_a_start() {
    for order in [["a", "b"], ["b", "a"]] {
        let mut fleet = Fleet::new(REPLICATION);
        fleet.follow("a", &["b"]).follow("b", &["a"]);
        for _ in 0..3 {
            for server in order {
                fleet.pass(20).see(server, read_only(server == "a"));
            }
            fleet.answer_sources();
        }
        assert_eq!(fleet.hostgroup(1), "b", "{order:?}");
        // It goes on when the passive one is down.
        down(&mut fleet, "a");
        fleet.pass(20).see("b", read_only(false));
        assert!(fleet.hostgroup(1).ends_with('b'), "{}", fleet.layout());
    }
}

/// A replica of a replica says that it is writable, and the primary is not back.
#[test]
fn a_replica_of_a_replica_waits_for_the_primary() {
    let mut fleet = Fleet::new(REPLICATION);
    fleet.follow("b", &["a"]).follow("c", &["b"]);
    down(&mut fleet, "a");
    for _ in 0..5 {
        fleet.pass(20).see("b", read_only(true)).see("c", read_only(false)).answer_sources();
        assert_eq!(fleet.hostgroup(1), "a(SHUNNED)");
    }
    fleet.pass(20).see("a", read_only(false)).answer_sources().see("c", read_only(false));
    assert_eq!(fleet.hostgroup(1), "a");
}

/// Two that replicate from each other, and were written as writers, both write, whatever becomes of one of them.
#[test]
fn writers_in_a_ring_both_write() {
    let text = REPLICATION.replace("hostgroup=2, address=\"b\"", "hostgroup=1, address=\"b\"");
    let mut fleet = Fleet::new(&text);
    fleet.follow("a", &["b"]).follow("b", &["a"]);
    fleet.see("a", read_only(false)).see("b", read_only(false)).see("c", read_only(true)).pass(1_000);
    assert_eq!(fleet.hostgroup(1), "a b");
    fleet.see("b", read_only(true)).see("a", read_only(false)).pass(1_000);
    assert_eq!(fleet.hostgroup(1), "a");
    fleet.see("b", read_only(false)).pass(20).see("b", read_only(false));
    fleet.pass(1_000).see("a", read_only(false));
    assert_eq!(fleet.hostgroup(1), "a b", "its maintenance is over");
    fleet.pass(1_000);
    down(&mut fleet, "a");
    fleet.pass(1_000).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1), "a(SHUNNED) b");
    // One direction is stopped: writes on `b` no longer reach `a`.
    fleet.follow("a", &[]).pass(1_000).see("a", read_only(false)).see("b", read_only(false));
    fleet.pass(1_000).see("a", read_only(false)).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1), "a");
}

/// The monitor's user may not ask for the sources: it is decided without them.
#[test]
fn sources_that_are_not_told_hold_up_nobody() {
    let refusals = [(1, ProbeError::Denied("1227".to_owned())), (1, ProbeError::Failed("1064".to_owned())), (3, ProbeError::Timeout)];
    for (times, refusal) in refusals {
        let mut fleet = settled();
        fleet.sources.insert("b".to_owned(), Err(refusal.clone()));
        down(&mut fleet, "b");
        down(&mut fleet, "a");
        for _ in 0..times {
            assert_eq!(fleet.hostgroup(1), "a(SHUNNED)", "{refusal:?}");
            fleet.pass(20).see("b", read_only(false));
        }
        assert!(fleet.hostgroup(1).ends_with('b'), "{refusal:?} {}", fleet.layout());
    }
}

#[test]
fn errors_do_not_demote_but_timeouts_do() {
    let mut fleet = settled();
    for _ in 0..20 {
        fleet.pass(20).see("a", Observation::ReadOnly(Err(ProbeError::Failed("nonsense".to_owned()))));
        fleet.see("a", Observation::ReadOnly(Err(ProbeError::Denied("1045".to_owned()))));
        assert_eq!(fleet.hostgroup(1), "a");
    }
    fleet.see("a", read_only(false));
    for expected in ["a", "a", "", ""] {
        fleet.pass(800).see("a", Observation::ReadOnly(Err(ProbeError::Timeout)));
        assert_eq!(fleet.hostgroup(1), expected);
    }
    fleet.pass(800).see("a", read_only(false));
    assert_eq!(fleet.hostgroup(1), "a");
}

#[test]
fn a_dead_writer_is_shunned_and_comes_back() {
    let mut fleet = settled();
    fleet.pass(500).see("a", Observation::ReadOnly(Err(unreachable())));
    assert_eq!(fleet.layout(), "1: a; 2: a b c", "once may be chance");
    assert_eq!(fleet.interval_ms("a", "ReadOnly"), 20);
    fleet.pass(20).see("a", Observation::ReadOnly(Err(unreachable())));
    assert_eq!(fleet.layout(), "1: a(SHUNNED); 2: a(SHUNNED) b c");
    fleet.pass(20).see("a", Observation::ReadOnly(Err(unreachable())));
    assert_eq!(fleet.layout(), "1: a(SHUNNED,sever); 2: a(SHUNNED,sever) b c");
    assert_eq!(fleet.interval_ms("b", "ReadOnly"), 20, "everybody is asked often while there is no writer");
    fleet.pass(20).see("a", read_only(false));
    assert_eq!(fleet.layout(), "1: a; 2: a b c");
}

/// MySQL's offline_mode, and a shutdown, are told in the server's own words.
#[test]
fn a_writer_that_takes_nobody_is_told_of_as_it_says() {
    let offline = || ProbeError::Closed("The server is currently in offline mode (error 3032)".to_owned());
    let mut fleet = settled();
    fleet.pass(500).see("a", Observation::ReadOnly(Err(unreachable()))).pass(20).see("a", Observation::ReadOnly(Err(offline())));
    let why = "it takes no connections: The server is currently in offline mode (error 3032)";
    assert_eq!(fleet.whys(), [format!("a ONLINE>SHUNNED: {why}")]);
    for _ in 0..4 {
        fleet.pass(1_000).see("a", Observation::ReadOnly(Err(offline()))).see("a", Observation::Ping(Err(offline())));
    }
    assert_eq!(fleet.layout(), "1: a(SHUNNED,sever); 2: a(SHUNNED,sever) b c");
    assert!(fleet.topology.layout().hostgroups[&HostgroupId(1)].iter().all(|placement| &*placement.why == why));
}

#[test]
fn traffic_makes_one_refusal_enough() {
    let mut fleet = settled();
    fleet.pass(500).signal("a", 1, SignalKind::ConnectionLost).see("a", Observation::ReadOnly(Err(unreachable())));
    assert_eq!(fleet.hostgroup(1), "a(SHUNNED)");
}

#[test]
fn an_old_primary_that_returns_is_kept_out() {
    let mut fleet = settled();
    fleet.pass(500);
    down(&mut fleet, "a");
    fleet.pass(200).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b", "the new primary is believed at once");
    fleet.pass(3_000).see("a", read_only(false));
    assert_eq!(fleet.layout(), "1: b; 2: a(SHUNNED) b c");
    // However often it says so, and whatever becomes of the new primary.
    for _ in 0..100 {
        fleet.pass(1_000).see("a", read_only(false)).see("b", read_only(false));
        assert_eq!(fleet.hostgroup(1), "b");
    }
    down(&mut fleet, "b");
    fleet.pass(1_000).see("a", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b(SHUNNED)", "what b has, a has not");
    fleet.pass(1_000).see("b", read_only(false)).see("a", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b");
    // It becomes a replica: all is well.
    fleet.pass(1_000).see("a", read_only(true));
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
}

#[test]
fn an_old_primary_is_kept_out_though_it_was_back_before_anybody_looked() {
    let mut fleet = settled();
    // Its crash was seen once; it is back, and only then is the new primary seen.
    fleet.pass(500).see("a", Observation::ReadOnly(Err(unreachable()))).pass(20).see("a", read_only(false));
    fleet.pass(500).see("b", read_only(false)).pass(20).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b");
    // The new primary is seen first, then the crash.
    let mut fleet = settled();
    fleet.pass(500).see("b", read_only(false)).pass(20).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1), "a");
    fleet.pass(20).see("a", Observation::ReadOnly(Err(unreachable())));
    assert_eq!(fleet.hostgroup(1), "b");
    fleet.pass(3_000).see("a", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b");
}

#[test]
fn a_restarted_replica_that_says_it_is_writable_is_kept_out() {
    let mut fleet = settled();
    fleet.pass(500);
    down(&mut fleet, "b");
    for _ in 0..5 {
        fleet.pass(1_000).see("a", read_only(false)).see("b", read_only(false));
        assert_eq!(fleet.hostgroup(1), "a");
    }
    fleet.pass(1_000).see("a", read_only(true));
    assert_eq!(fleet.hostgroup(1), "b", "the writer has stopped writing");
}

#[test]
fn after_a_restart_of_the_proxy_the_old_primary_is_still_the_old_one() {
    let mut fleet = Fleet::new(REPLICATION);
    fleet.see("b", read_only(false)).see("c", read_only(true));
    down(&mut fleet, "a");
    fleet.pass(20).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1), "a(SHUNNED) b");
    fleet.pass(1_000).see("a", read_only(false)).pass(1_000).see("a", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b");
}

#[test]
fn several_writers_from_the_beginning_all_write() {
    let text = REPLICATION.replace("hostgroup=2, address=\"b\"", "hostgroup=1, address=\"b\"");
    let mut fleet = Fleet::new(&text);
    fleet.see("a", read_only(false)).see("b", read_only(false)).see("c", read_only(true));
    assert_eq!(fleet.layout(), "1: a b; 2: a b c");
    // Each of them may stop and come back.
    for server in ["a", "b"] {
        fleet.pass(1_000);
        down(&mut fleet, server);
        fleet.pass(1_000).see(server, read_only(false));
        assert_eq!(fleet.layout(), "1: a b; 2: a b c", "{server}");
    }
}

#[test]
fn what_was_said_before_a_server_was_lost_makes_no_writer_of_it() {
    let mut fleet = settled();
    fleet.pass(1_000).see("b", read_only(false)).pass(20);
    down(&mut fleet, "b");
    fleet.pass(20).see("a", read_only(true));
    assert_eq!(fleet.hostgroup(1), "", "b is down");
    fleet.pass(20).see("b", Observation::ReadOnly(Err(ProbeError::Denied("1045".to_owned()))));
    assert_eq!(fleet.hostgroup(1), "", "b answers, and says nothing of what it is");
    fleet.pass(20).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b");
}

#[test]
fn an_operator_ends_a_fence() {
    for failback in [true, false] {
        let mut fleet = settled();
        fleet.pass(500);
        down(&mut fleet, "a");
        fleet.pass(200).see("b", read_only(false)).pass(1_000);
        fleet.topology.take_events();
        fleet.see("a", read_only(false)).pass(20).see("a", read_only(false));
        let events = fleet.topology.take_events();
        let kept_out: Vec<&str> = events.iter().filter(|e| e.server == Some(addr("a"))).map(|e| &*e.why).collect();
        assert_eq!((kept_out.len(), kept_out[0].contains("came back writable")), (1, true), "{events:?}");
        assert_eq!(fleet.hostgroup(1), "b");
        let writer = HostgroupId(1);
        let the_order = if failback { Order::Failback { writer } } else { Order::Prefer { writer, server: Some(addr("a")) } };
        order(&mut fleet, &the_order).unwrap();
        assert_eq!(fleet.layout(), "1: a; 2: a b(SHUNNED) c");
        if failback {
            assert!(order(&mut fleet, &the_order).is_err(), "the order is given again");
            assert_eq!(fleet.layout(), "1: a; 2: a b(SHUNNED) c");
        }
        fleet.pass(1_000).see("b", read_only(true));
        assert_eq!(fleet.layout(), "1: a; 2: a b c");
    }
    assert!(order(&mut settled(), &Order::Failback { writer: HostgroupId(1) }).is_err());
    assert!(order(&mut settled(), &Order::Failback { writer: HostgroupId(7) }).is_err());
    assert!(order(&mut settled(), &Order::Prefer { writer: HostgroupId(1), server: Some(addr("z")) }).is_err());
}

#[test]
fn nobody_falls_back_to_a_dead_server() {
    let mut fleet = settled();
    fleet.pass(500);
    down(&mut fleet, "a");
    fleet.pass(200).see("b", read_only(false)).pass(1_000);
    let before = fleet.layout();
    let refused = order(&mut fleet, &Order::Failback { writer: HostgroupId(1) }).unwrap_err();
    assert!(refused.contains("a:3306, the preferred server"), "{refused}");
    assert_eq!((fleet.hostgroup(1), fleet.layout()), ("b".to_owned(), before));
}

#[test]
fn fences_follow_the_last_who_took_over() {
    let mut fleet = settled();
    down(&mut fleet, "a");
    fleet.pass(200).see("b", read_only(false)).pass(100);
    down(&mut fleet, "b");
    fleet.pass(200).see("c", read_only(false)).pass(1_000);
    fleet.see("a", read_only(false)).see("b", read_only(true));
    assert_eq!(fleet.layout(), "1: c; 2: a(SHUNNED) b c");
}

#[test]
fn a_cluster_that_never_writes_is_not_probed_hastily_for_ever() {
    let mut fleet = settled();
    fleet.see("a", read_only(true));
    assert_eq!(fleet.interval_ms("c", "ReadOnly"), 20);
    assert_eq!(fleet.interval_ms("c", "Ping"), 20);
    fleet.pass(60_000);
    assert_eq!(fleet.interval_ms("c", "ReadOnly"), 200);
}

#[test]
fn operators_keep_servers_out() {
    for status in ["OFFLINE_SOFT", "SHUNNED"] {
        let kept_out = REPLICATION.replace("address=\"b\", port=3306", &format!("address=\"b\", port=3306, status=\"{status}\""));
        let mut fleet = Fleet::new(&kept_out);
        fleet.see("a", read_only(false)).see("b", read_only(false)).see("c", read_only(true)).pass(20).see("b", read_only(false));
        assert_eq!(fleet.layout(), format!("1: a; 2: a b({status}) c"));
    }
    let mut fleet = settled();
    order(&mut fleet, &Order::Drain { server: addr("a"), is_drained: true }).unwrap();
    assert_eq!(fleet.layout(), "1: a(OFFLINE_SOFT); 2: a(OFFLINE_SOFT) b c");
    order(&mut fleet, &Order::Drain { server: addr("a"), is_drained: false }).unwrap();
    assert_eq!(fleet.layout(), "1: a; 2: a b c");
    let hard = REPLICATION.replace("address=\"a\", port=3306", "address=\"a\", port=3306, status=\"OFFLINE_HARD\"");
    fleet.configure(&hard);
    assert_eq!(fleet.layout(), "1: a(OFFLINE_HARD); 2: a(OFFLINE_HARD) b c");
    assert!(!fleet.checks().contains_key("a:3306"));
}

#[test]
fn a_drained_server_stays_drained_over_a_restart() {
    let drain = |is_drained| Order::Drain { server: addr("b"), is_drained };
    let plain = "mysql_servers = ( { hostgroup=2, address=\"b\", port=3306 }, { hostgroup=2, address=\"c\", port=3306 } )";
    for text in [REPLICATION.to_owned(), plain.to_owned(), off(plain)] {
        let mut before = Fleet::new(&text);
        let gist = before.topology.knowledge_to_keep().gist();
        order(&mut before, &drain(true)).unwrap();
        assert_ne!(before.topology.knowledge_to_keep().gist(), gist, "it is worth a new file");
        for mut fleet in [before.restarted(&text), before.upgraded(&text), before.restarted(&text).restarted(&text)] {
            assert!(fleet.hostgroup(2).contains("b(OFFLINE_SOFT)"), "{}: {text}", fleet.layout());
            order(&mut fleet, &drain(false)).unwrap();
            for fleet in [fleet.restarted(&text), fleet] {
                assert!(fleet.hostgroup(2).contains("b c"), "{}: {text}", fleet.layout());
            }
        }
        // Who is configured no more needs no draining.
        let alone = "mysql_servers = ( { hostgroup=2, address=\"c\", port=3306 } )";
        assert!(before.restarted(alone).topology.drained().is_empty());
    }
}

/// As public scripts cut over: the old writer is kept out by its row, and nothing but its row lets it in again.
#[test]
fn a_shun_that_an_operator_wrote_is_lifted_by_the_operator() {
    let mut fleet = settled();
    let shunned = REPLICATION.replace("address=\"a\", port=3306", "address=\"a\", port=3306, status=\"shunned\"");
    fleet.configure(&shunned);
    assert_eq!(fleet.layout(), "1: a(SHUNNED); 2: a(SHUNNED) b c");
    assert!(fleet.whys().contains(&"a ONLINE>SHUNNED: the configuration says SHUNNED".to_owned()));
    assert!(fleet.checks().contains_key("a:3306"), "it is looked at meanwhile");
    for _ in 0..3 {
        fleet.pass(3_600_000).see("a", read_only(false)).see("a", Observation::Ping(Ok(1)));
    }
    assert_eq!(fleet.layout(), "1: a(SHUNNED); 2: a(SHUNNED) b c");
    fleet.see("b", read_only(false)).pass(20).see("b", read_only(false)).see("a", read_only(false));
    assert_eq!(fleet.layout(), "1: a(SHUNNED) b; 2: a(SHUNNED) b c");
    fleet.configure(&off(&shunned));
    assert_eq!(fleet.layout(), "1: a(SHUNNED) b; 2: a(SHUNNED) b c");
    fleet.configure(&shunned);
    fleet.pass(20).see("a", read_only(true));
    fleet.configure(REPLICATION);
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
}

#[test]
fn what_was_seen_survives_a_new_configuration() {
    let mut fleet = settled();
    fleet.see("a", read_only(true)).see("b", read_only(false));
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
    fleet.configure(&REPLICATION.replace("hostgroup=2, address=\"c\"", "hostgroup=2, address=\"d\""));
    assert_eq!(fleet.layout(), "1: b; 2: a b d");
    fleet.configure(&off(REPLICATION));
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
    assert!(fleet.topology.checks().is_empty());
}

#[test]
fn a_start_with_the_monitor_off_is_as_configured() {
    let mut fleet = Fleet::new(&off(REPLICATION));
    assert_eq!(fleet.topology.layout().hostgroups, model::fleet::Layout::as_configured(&common::snapshot(&off(REPLICATION))).hostgroups);
    assert!(fleet.topology.checks().is_empty());
    fleet.see("a", read_only(true)).see("b", read_only(false)).signal("a", 1, SignalKind::ReadOnly);
    assert_eq!((fleet.layout().as_str(), fleet.topology.next_tick()), ("1: a; 2: b c", None));
    assert!(fleet.events().is_empty());
    fleet.pass(1_000).configure(REPLICATION);
    assert_eq!(fleet.events(), Vec::<String>::new(), "nothing was frozen");
    fleet.see("a", read_only(true)).see("b", read_only(false)).see("c", read_only(true));
    assert_eq!(fleet.hostgroup(1), "b");
}

#[test]
fn what_does_not_answer_is_no_reader() {
    for new_writer in [false, true] {
        let mut fleet = settled();
        for count in 1..=6 {
            fleet.pass(800).see("a", Observation::ReadOnly(Err(ProbeError::Timeout)));
            if count > 2 {
                fleet.see("a", Observation::Ping(Err(ProbeError::Timeout)));
            }
            if new_writer {
                fleet.see("b", read_only(false));
            }
            let expected = match (new_writer, count) {
                (true, 1) | (false, 1..=2) => "1: a; 2: a b c",
                (true, 2) => "1: b; 2: a(SHUNNED) b c",
                (true, 3..=4) => "1: b; 2: a(SHUNNED,cut off) b c",
                (true, _) => "1: b; 2: a(SHUNNED,sever) b c",
                (false, 3..=4) => "2: a(SHUNNED,cut off) b c",
                (false, _) => "2: a(SHUNNED,sever) b c",
            };
            assert_eq!(fleet.layout(), expected, "{count} timeouts, a new writer: {new_writer}");
        }
        fleet.pass(800).see("a", read_only(true));
        assert_eq!(fleet.hostgroup(2), "a b c");
    }
    // While pings are answered it is slow, and reads.
    let mut fleet = settled();
    for _ in 0..4 {
        fleet.pass(800).see("a", Observation::ReadOnly(Err(ProbeError::Timeout))).see("a", Observation::Ping(Ok(100)));
    }
    assert_eq!(fleet.layout(), "2: a b c");
}

#[test]
fn events_tell_what_the_check_and_what_the_pings_met() {
    let timeout = || ProbeError::Timeout;
    let mut fleet = settled();
    for _ in 0..2 {
        fleet.pass(800).see("a", Observation::Ping(Err(timeout()))).see("a", Observation::ReadOnly(Err(timeout())));
    }
    fleet.pass(800).see("a", Observation::Ping(Err(timeout())));
    assert_eq!(fleet.whys(), ["a ONLINE>SHUNNED: its pings time out"], "as a reader; nobody else writes");
    fleet.pass(800).see("a", Observation::ReadOnly(Err(timeout())));
    let events = fleet.topology.take_events();
    let told = (events[0].from.as_str(), events[0].to.as_str(), events[0].why.as_str(), events[0].seen.as_str());
    let why = "its check times out, so it counts as read-only";
    assert_eq!(told, ("writer,reader", "reader", why, "read_only=0 timeouts=3 pings: timeouts=3"));
    fleet.pass(800).see("a", Observation::ReadOnly(Ok(true)));
    assert_eq!(fleet.whys(), ["a SHUNNED>ONLINE: read_only is on; before: its pings time out"]);
}

#[test]
fn who_is_replaced_while_it_is_frozen_has_not_come_back() {
    let mut fleet = settled();
    let freeze = |fleet: &mut Fleet| {
        fleet.pass(800).see("a", Observation::ReadOnly(Err(ProbeError::Timeout))).see("b", read_only(false));
    };
    (0..2).for_each(|_| freeze(&mut fleet));
    let kept_out = |why: &str| format!("{why}: excluded until b:3306 stops writing or an operator orders a switchover");
    let replaced = kept_out("b:3306 took over while this server did not answer");
    assert_eq!(fleet.whys()[..2], [format!("a writer,reader>reader: {replaced}"), format!("a ONLINE>SHUNNED: {replaced}")]);
    (0..5).for_each(|_| freeze(&mut fleet));
    assert_eq!(fleet.whys(), [] as [&str; 0]);
    fleet.pass(800).see("a", read_only(false));
    let back = kept_out("this server came back writable after b:3306 had taken over");
    assert_eq!(fleet.whys(), [format!("a lost>kept out: {back}")], "its operator should know");
    freeze(&mut fleet);
    fleet.pass(800).see("a", read_only(false));
    assert_eq!(fleet.whys(), [] as [&str; 0], "once");
}

/// A server that is switched off where it reads, and writes elsewhere, is looked at all the same.
#[test]
fn one_row_that_is_switched_off_blinds_nobody() {
    let rows = "{ hostgroup=5, address=\"a\", port=3306 }, { hostgroup=2, address=\"a\", port=3306, status=\"OFFLINE_HARD\" }";
    let text = REPLICATION.replace("{ hostgroup=1, address=\"a\", port=3306 }", rows).replace("writer_hostgroup=1", "writer_hostgroup=5");
    let mut fleet = Fleet::new(&text);
    assert!(fleet.checks()["a:3306"].iter().any(|kind| kind.starts_with("ReadOnly")), "{:?}", fleet.checks());
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
    assert_eq!(fleet.layout(), "2: a(OFFLINE_HARD) b c; 5: a");
    fleet.see("a", read_only(true));
    assert_eq!(fleet.hostgroup(5), "");
}

/// Two failovers, and the first writer is back: an order leaves one writer.
#[test]
fn fail_back_after_two_failovers_leaves_one_writer() {
    let weights = ["b", "c"].map(|name| format!("{{ hostgroup=2, address=\"{name}\", port=3306"));
    for are_explicit in [false, true] {
        let as_writer = |text: String, row: &String| text.replace(row, &row.replace("hostgroup=2", "hostgroup=1, weight=0"));
        let text = weights.iter().fold(REPLICATION.to_owned(), |text, row| if are_explicit { as_writer(text, row) } else { text });
        let mut fleet = Fleet::new(&text);
        fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true)).pass(1_000);
        down(&mut fleet, "a");
        fleet.pass(20).see("b", read_only(false)).pass(20).see("b", read_only(false)).pass(1_000);
        down(&mut fleet, "b");
        fleet.pass(20).see("c", read_only(false)).pass(20).see("c", read_only(false)).pass(1_000);
        for _ in 0..2 {
            fleet.pass(1_000).see("a", read_only(false)).see("c", read_only(false));
        }
        let writers = |fleet: &Fleet| fleet.hostgroup(1).split(' ').filter(|name| !name.contains('(')).collect::<Vec<_>>().join(" ");
        assert_eq!(writers(&fleet), "c");
        order(&mut fleet, &Order::Failback { writer: HostgroupId(1) }).unwrap();
        fleet.pass(1_000).see("b", read_only(false)).see("a", read_only(false)).see("c", read_only(false)).pass(1_000);
        assert_eq!(writers(&fleet), "a");
        fleet.see("c", read_only(true)).see("b", read_only(true)).see("a", read_only(true)).see("c", read_only(false));
        fleet.pass(20).see("c", read_only(false));
        assert_eq!(writers(&fleet), "c", "nothing is left of it");
    }
}

/// `b` took over from `a`, which came back writable, and is kept out.
fn failed_over() -> Fleet {
    let mut fleet = settled();
    fleet.pass(1_000);
    down(&mut fleet, "a");
    fleet.pass(20).see("b", read_only(false)).pass(20).see("b", read_only(false));
    fleet.pass(1_000).see("a", read_only(false)).pass(20).see("a", read_only(false));
    assert_eq!(fleet.layout(), "1: b; 2: a(SHUNNED) b c");
    fleet.events();
    fleet
}

#[test]
fn a_monitor_that_is_switched_off_freezes_roles() {
    let mut fleet = failed_over();
    let kept_out = fleet.layout();
    fleet.configure(&off(REPLICATION));
    assert_eq!((fleet.layout(), fleet.events()), (kept_out.clone(), vec!["status - watched>frozen".to_owned()]));
    fleet.configure(&format!("mysql_variables = {{ monitor_enabled=false, max_connections=1000 }}\n{REPLICATION}"));
    fleet.pass(3_600_000).see("b", read_only(true)).signal("b", 1, SignalKind::ReadOnly);
    assert_eq!((fleet.layout(), fleet.events()), (kept_out.clone(), vec![]), "nothing is taken for seen");
    fleet.configure(REPLICATION);
    assert_eq!((fleet.layout(), fleet.events()), (kept_out.clone(), vec!["status - frozen>watched".to_owned()]));
    fleet.see("a", read_only(false)).see("b", read_only(false)).pass(1_000).see("a", read_only(false)).see("b", read_only(false));
    assert_eq!(fleet.layout(), kept_out);
    fleet.see("b", read_only(true)).see("a", read_only(true)).see("c", read_only(false)).pass(20).see("c", read_only(false));
    assert_eq!(fleet.hostgroup(1), "c", "roles are judged again");
}

#[test]
fn operators_change_rows_while_roles_are_frozen() {
    let mut fleet = failed_over();
    fleet.configure(&off(REPLICATION));
    // New rows count as configured, removed ones leave, and the operator's statuses of the others hold.
    fleet.configure(&off(&REPLICATION.replace("\"c\"", "\"d\"")));
    assert_eq!(fleet.layout(), "1: b; 2: a(SHUNNED) b d");
    let soft = REPLICATION.replace("\"b\", port=3306", "\"b\", port=3306, status=\"OFFLINE_SOFT\", weight=7");
    fleet.configure(&off(&soft));
    assert_eq!(fleet.layout(), "1: b(OFFLINE_SOFT); 2: a(SHUNNED) b(OFFLINE_SOFT) c");
    fleet.configure(&off(REPLICATION));
    assert_eq!(fleet.layout(), "1: b; 2: a(SHUNNED) b c");
    fleet.configure(&off(&REPLICATION.replace("hostgroup=2, address=\"c\"", "hostgroup=1, address=\"d\"")));
    assert_eq!(fleet.layout(), "1: b d; 2: a(SHUNNED) b");
    order(&mut fleet, &Order::Drain { server: addr("d"), is_drained: true }).unwrap();
    assert_eq!(fleet.hostgroup(1), "b d(OFFLINE_SOFT)");
    let refused = order(&mut fleet, &Order::Failback { writer: HostgroupId(1) }).unwrap_err();
    assert!(refused.contains("mysql-monitor_enabled"), "{refused}");
    // A cluster that is gone is forgotten.
    let none = REPLICATION.split("mysql_replication_hostgroups").next().unwrap();
    fleet.configure(&off(none));
    fleet.configure(&off(REPLICATION));
    assert_eq!(fleet.layout(), "1: a; 2: b c");
}

#[test]
fn who_refused_the_monitor_is_told_of_when_it_does_so_no_more() {
    let mut fleet = settled();
    let denied = || Observation::ReadOnly(Err(ProbeError::Denied("1045: no".to_owned())));
    fleet.pass(1_000).see("b", denied()).pass(1_000).see("b", denied());
    assert_eq!(fleet.events(), ["suspicion b >unknown"]);
    fleet.pass(1_000).see("b", read_only(true)).pass(1_000).see("b", read_only(true));
    assert_eq!(fleet.events(), ["suspicion b unknown>known"]);
}

/// A server that was full, and then crashed.
#[test]
fn who_refused_the_monitor_and_died_since_is_told_of_as_dead() {
    for refusals in [1, 3] {
        let mut fleet = settled();
        for _ in 0..refusals {
            let refused = || ProbeError::Denied("1040: too many connections".to_owned());
            fleet.pass(1_000).see("b", Observation::Ping(Err(refused()))).see("b", Observation::ReadOnly(Err(refused())));
        }
        fleet.pass(1_000);
        down(&mut fleet, "b");
        let whys = fleet.whys();
        assert!(whys.iter().any(|why| why.contains("cannot be reached")), "{whys:?}");
        assert!(!whys.iter().any(|why| why.contains("refuses")), "{whys:?}");
    }
}

#[test]
fn refusals_of_checks_that_are_made_no_more_do_not_count() {
    let refused = || ProbeError::Denied("1045: no".to_owned());
    let mut fleet = Fleet::new(&group_replication(1, 0));
    fleet.see("b", Observation::Group(Err(refused())));
    let told = "suspicion b >unknown".to_owned();
    assert!(fleet.events().contains(&told));
    fleet.configure(REPLICATION);
    fleet.events();
    fleet.pass(1_000).see("b", Observation::ReadOnly(Err(refused())));
    assert!(fleet.events().contains(&told));
}

/// A server that the operator moves meanwhile counts as new; the others keep their place.
#[test]
fn operators_move_writers_while_roles_are_frozen() {
    let to = |text: &str, server: &str, from: u32, to: u32| {
        text.replace(&format!("hostgroup={from}, address=\"{server}\""), &format!("hostgroup={to}, address=\"{server}\""))
    };
    let swapped = to(&to(REPLICATION, "a", 1, 2), "b", 2, 1);
    let mut fleet = settled();
    fleet.configure(&off(REPLICATION));
    fleet.configure(&off(&swapped));
    assert_eq!(fleet.layout(), "1: b; 2: a c");
    fleet.pass(1_000);
    // An unchanged row keeps its place, however often it is loaded.
    fleet.configure(&off(&swapped));
    assert_eq!(fleet.layout(), "1: b; 2: a c");
    fleet.configure(&swapped);
    assert_eq!(fleet.layout(), "1: b; 2: a c", "nobody was seen yet");
    fleet.pass(20).see("a", read_only(true)).see("b", read_only(false));
    assert_eq!(fleet.layout(), "1: b; 2: a b c", "and then it is as it is seen");

    // A second writer, and then without the first.
    let both = to(REPLICATION, "b", 2, 1);
    let mut fleet = settled();
    fleet.configure(&off(REPLICATION));
    fleet.configure(&off(&both));
    assert_eq!(fleet.layout(), "1: a b; 2: a c");
    fleet.configure(&off(&to(&both, "a", 1, 2)));
    assert_eq!(fleet.layout(), "1: b; 2: a c");

    // It was configured as a writer all along, and frozen as a reader.
    let mut fleet = Fleet::new(&both);
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
    fleet.configure(&off(&both));
    assert_eq!(fleet.layout(), "1: a; 2: a b c");
    fleet.configure(&off(&to(&both, "a", 1, 2)));
    assert_eq!(fleet.layout(), "1: b; 2: a c");

    // A writer of which only other things are changed.
    let mut fleet = failed_over();
    fleet.configure(&off(REPLICATION));
    fleet.configure(&off(&REPLICATION.replace("\"b\", port=3306", "\"b\", port=3306, weight=7")));
    assert_eq!(fleet.layout(), "1: b; 2: a(SHUNNED) b c");
}

/// Of servers that are equal to an operator's eyes, the one that is kept out comes back by order.
#[test]
fn fail_back_to_an_equal() {
    let text = REPLICATION.replace("hostgroup=1, address=\"a\"", "hostgroup=2, address=\"a\"");
    let mut fleet = Fleet::new(&text);
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true)).pass(1_000);
    assert_eq!(fleet.hostgroup(1), "a");
    down(&mut fleet, "a");
    fleet.pass(20).see("b", read_only(false)).pass(20).see("b", read_only(false));
    order(&mut fleet, &Order::Failback { writer: HostgroupId(1) }).unwrap_err();
    fleet.pass(1_000).see("a", read_only(false)).pass(20).see("a", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b");
    order(&mut fleet, &Order::Failback { writer: HostgroupId(1) }).unwrap();
    fleet.pass(1_000).see("a", read_only(false)).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1).replace("b(SHUNNED)", "").trim(), "a");
}

/// That a server is not to be read from does not stop the writes when it becomes the writer.
#[test]
fn a_readers_weight_of_0_is_not_that_of_a_writer() {
    let mut fleet = Fleet::new(&common::REPLICATION.replace("address=\"b\", port=3306", "address=\"b\", port=3306, weight=0"));
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true)).pass(1_000);
    fleet.see("a", read_only(true)).see("b", read_only(false)).pass(1_000).see("b", read_only(false));
    assert_eq!(fleet.hostgroup(1), "b");
    let weights =
        |id| fleet.topology.layout().hostgroups[&HostgroupId(id)].iter().filter(|p| &*p.server.key.host == "b").map(|p| p.server.weight);
    assert_eq!((weights(1).collect::<Vec<_>>(), weights(2).collect::<Vec<_>>()), (vec![1], vec![0]));
}
