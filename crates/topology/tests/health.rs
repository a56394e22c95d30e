//! Health apart from roles: pings, lag, warming up, and how often which check is made.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fleet, REPLICATION, read_only, unreachable};
use model::HostgroupId;
use model::fleet::SignalKind;
use topology::{GtidSet, Lag, Observation, ProbeError};

const PLAIN: &str = "mysql_servers = (
  { hostgroup=5, address=\"a\", port=3306, max_replication_lag=10 }, { hostgroup=5, address=\"b\", port=3306, max_replication_lag=10 },
  { hostgroup=6, address=\"a\", port=3306 } )";

fn ping(error: ProbeError) -> Observation {
    Observation::Ping(Err(error))
}

fn lag(seconds: u64) -> Observation {
    Observation::Lag(Ok(Lag::Behind(seconds * 1_000)))
}

#[test]
fn missed_pings_shun_and_sever_everywhere() {
    let mut fleet = Fleet::new(PLAIN);
    for expected in ["5: a b; 6: a", "5: a b; 6: a", "5: a(SHUNNED,sever) b; 6: a(SHUNNED,sever)"] {
        fleet.pass(8_000).see("a", ping(unreachable()));
        assert_eq!(fleet.layout(), expected);
    }
    let why = &fleet.topology.layout().hostgroups[&HostgroupId(5)][0].why;
    assert!(why.starts_with("it misses pings: ") && why.ends_with(unreachable().text().unwrap()), "{why}");
    assert_eq!(fleet.events(), ["status a ONLINE>SHUNNED", "status a ONLINE>SHUNNED"]);
    fleet.pass(8_000).see("a", Observation::Ping(Ok(100)));
    assert_eq!(fleet.layout(), "5: a b; 6: a");
}

#[test]
fn a_refused_login_is_no_missed_ping() {
    let mut fleet = Fleet::new(PLAIN);
    for _ in 0..10 {
        fleet.pass(8_000).see("a", ping(ProbeError::Denied("1045".to_owned())));
    }
    assert_eq!(fleet.layout(), "5: a b; 6: a");
    assert_eq!(fleet.events(), ["suspicion a >unknown"], "it is told once");
}

#[test]
fn a_lone_server_that_is_slow_is_not_severed_at_once() {
    let mut fleet = Fleet::new(PLAIN);
    for count in 1..=9 {
        fleet.pass(1_000).see("a", ping(ProbeError::Timeout));
        let expected = match count {
            1..=2 => "5: a b; 6: a",
            3..=8 => "5: a(SHUNNED,sever) b; 6: a",
            _ => "5: a(SHUNNED,sever) b; 6: a(SHUNNED,sever)",
        };
        assert_eq!(fleet.layout(), expected, "{count} timeouts");
    }
    fleet.see("a", Observation::Ping(Ok(100)));
    assert_eq!(fleet.layout(), "5: a b; 6: a");
}

#[test]
fn events_of_lag_say_how_much_and_what_the_limit_is() {
    let mut fleet = Fleet::new(PLAIN);
    fleet.see("a", lag(11)).see("b", lag(10));
    let seen = |fleet: &mut Fleet| {
        let events = fleet.topology.take_events();
        events.into_iter().map(|event| event.seen).collect::<Vec<_>>()
    };
    assert_eq!(seen(&mut fleet), ["11.0 s behind; max_replication_lag=10"]);
    fleet.see("a", lag(9));
    assert_eq!(seen(&mut fleet), ["9.0 s behind; max_replication_lag=10"], "it is used again");
    fleet.see("a", Observation::Lag(Ok(Lag::Unknown))).pass(5_000).see("a", Observation::Lag(Ok(Lag::Unknown)));
    assert_eq!(seen(&mut fleet), ["lag unknown, counted as 14 s; max_replication_lag=10"]);
}

/// A replica is no further behind than when it last knew, and the time since; the setting is the most that is counted.
#[test]
fn unknown_lag_grows_from_what_was_known() {
    let unknown = || Observation::Lag(Ok(Lag::Unknown));
    let shunned = |fleet: &Fleet| fleet.hostgroup(5) == "a(SHUNNED_REPLICATION_LAG) b";
    let mut fleet = Fleet::new(PLAIN);
    fleet.see("a", unknown()).see("b", lag(0));
    assert!(shunned(&fleet), "nothing was ever known");
    fleet.see("a", lag(4)).pass(10_000).see("a", unknown());
    for second in 1..=7 {
        assert!(!shunned(&fleet), "{second}");
        fleet.pass(1_000).see("a", unknown());
    }
    assert!(shunned(&fleet), "11 s");
    // A server that was away may have come back with other data.
    fleet.see("a", lag(0));
    for _ in 0..3 {
        fleet.pass(8_000).see("a", ping(unreachable()));
    }
    fleet.pass(1_000).see("a", Observation::Ping(Ok(100))).see("a", unknown());
    assert!(shunned(&fleet), "it was lost");
    // After failing for long, a value counts as unknown, as if it had never been reported.
    fleet.see("a", lag(0));
    for _ in 0..3 {
        fleet.see("a", Observation::Lag(Err(ProbeError::Failed("1146".to_owned()))));
    }
    fleet.see("a", unknown());
    assert!(shunned(&fleet), "forgotten");
    let mut fleet = Fleet::new(&format!("mysql_variables = {{ monitor_slave_lag_when_null=10 }}\n{PLAIN}"));
    fleet.see("b", lag(0)).see("a", lag(0)).see("a", unknown()).pass(3_600_000).see("a", unknown());
    assert_eq!(fleet.hostgroup(5), "a b", "the setting is the most that it counts as");
}

/// Without a writer no replica falls behind, though none of them knows its lag.
#[test]
fn replicas_of_a_dead_primary_are_read_from() {
    let text = ["b", "c"].iter().fold(REPLICATION.to_owned(), |text, name| {
        let row = format!("hostgroup=2, address=\"{name}\", port=3306");
        text.replace(&row, &format!("{row}, max_replication_lag=5"))
    });
    let unknown = || Observation::Lag(Ok(Lag::Unknown));
    let both = |fleet: &mut Fleet, seen: fn() -> Observation| {
        fleet.see("b", seen()).see("c", seen());
    };
    let gone = || Observation::ReadOnly(Err(unreachable()));
    let mut fleet = Fleet::new(&text);
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true)).see("b", lag(2)).see("c", lag(2));
    fleet.pass(10_000).see("a", read_only(false)).pass(500);
    both(&mut fleet, unknown);
    fleet.pass(500).see("a", gone()).pass(500).see("a", gone());
    for _ in 0..100 {
        assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b c");
        fleet.pass(10_000);
        both(&mut fleet, unknown);
    }
    // It is back: its replicas try again after a time of their own, in which they fall behind.
    fleet.see("a", read_only(false));
    for second in 0..4 {
        assert_eq!(fleet.hostgroup(2), "a b c", "{second}");
        fleet.pass(1_000);
        both(&mut fleet, unknown);
    }
    assert_eq!(fleet.hostgroup(2), "a b(SHUNNED_REPLICATION_LAG) c(SHUNNED_REPLICATION_LAG)");
    both(&mut fleet, || lag(0));
    // Another server takes over. A replica that does not follow it falls behind from then on.
    both(&mut fleet, unknown);
    fleet.pass(500).see("a", gone()).pass(500).see("a", gone()).pass(60_000);
    both(&mut fleet, unknown);
    fleet.see("b", read_only(false)).pass(100).see("b", read_only(false));
    assert_eq!(fleet.layout(), "1: b; 2: a(SHUNNED) b c");
    fleet.pass(10_000).see("c", unknown());
    assert_eq!(fleet.hostgroup(2), "a(SHUNNED) b c(SHUNNED_REPLICATION_LAG)");
}

#[test]
fn replicas_that_lag_are_not_read_from() {
    let mut fleet = Fleet::new(PLAIN);
    fleet.see("a", lag(11)).see("b", lag(10));
    assert_eq!(fleet.layout(), "5: a(SHUNNED_REPLICATION_LAG) b; 6: a");
    fleet.see("a", lag(10));
    assert_eq!(fleet.layout(), "5: a b; 6: a");
    fleet.see("a", Observation::Lag(Ok(Lag::Unknown))).see("b", lag(0)).pass(1_000).see("a", Observation::Lag(Ok(Lag::Unknown)));
    assert_eq!(fleet.layout(), "5: a(SHUNNED_REPLICATION_LAG) b; 6: a", "it may be 11 s behind");
    fleet.see("a", Observation::Lag(Err(ProbeError::Timeout)));
    assert_eq!(fleet.layout(), "5: a(SHUNNED_REPLICATION_LAG) b; 6: a", "an error changes nothing");
    fleet.see("a", Observation::Lag(Ok(Lag::NotReplica)));
    assert_eq!(fleet.layout(), "5: a b; 6: a");
}

#[test]
fn lag_that_is_not_told_any_more_is_forgotten() {
    let gone = |text: &str| ProbeError::Failed(format!("1146: {text}"));
    let mut fleet = Fleet::new(PLAIN);
    fleet.see("a", lag(11)).see("b", lag(0)).events();
    for expected in ["a(SHUNNED_REPLICATION_LAG) b", "a(SHUNNED_REPLICATION_LAG) b", "a b", "a b", "a b"] {
        fleet.pass(1_000).see("a", Observation::Lag(Err(gone("no heartbeat table"))));
        assert_eq!(fleet.hostgroup(5), expected);
    }
    let events = fleet.topology.take_events();
    let told: Vec<_> = events.iter().map(|e| (e.kind.as_str(), e.to.as_str(), e.seen.as_str())).collect();
    assert_eq!(told[0], ("suspicion", "lag unknown", "1146: no heartbeat table"));
    assert_eq!((told.len(), told[1].1), (2, "ONLINE"), "each once: {told:?}");
    // A refusal is an answer too, and told once.
    for _ in 0..10 {
        fleet.pass(1_000).see("b", Observation::Lag(Err(ProbeError::Denied("1142".to_owned()))));
    }
    assert_eq!(fleet.events(), ["suspicion b >lag unknown"]);
    // It is told again.
    fleet.see("a", lag(11));
    assert_eq!(fleet.hostgroup(5), "a(SHUNNED_REPLICATION_LAG) b");
    for _ in 0..10 {
        fleet.pass(1_000).see("a", Observation::Lag(Err(ProbeError::Timeout))).see("a", Observation::Lag(Err(unreachable())));
    }
    assert_eq!(fleet.hostgroup(5), "a(SHUNNED_REPLICATION_LAG) b", "no answer is no sign of health");
}

/// While a lag check hangs (as `SHOW REPLICA STATUS` does beside a STOP REPLICA that waits), nobody sees how far the replica falls behind.
#[test]
fn unanswered_lag_checks_count_from_the_last_lag() {
    let unanswered = || Observation::Lag(Err(ProbeError::Timeout));
    let shunned = "a(SHUNNED_REPLICATION_LAG) b";
    let mut fleet = Fleet::new(PLAIN);
    fleet.see("a", lag(0)).see("b", lag(0)).pass(60_000).see("a", unanswered());
    assert_eq!(fleet.hostgroup(5), "a b", "one answer may be lost");
    fleet.see("a", lag(0)).events();
    for second in 1..=30 {
        fleet.pass(1_000).see("a", Observation::Ping(Ok(100))).see("a", unanswered());
        assert_eq!(fleet.hostgroup(5), if second <= 10 { "a b" } else { shunned }, "{second}");
    }
    let events = fleet.topology.take_events();
    assert_eq!(events[0].seen, "lag check unanswered, counted as 11 s; max_replication_lag=10");
    fleet.see("a", lag(0));
    assert_eq!(fleet.hostgroup(5), "a b");
    // A replica that knew that it did not know.
    fleet.see("a", Observation::Lag(Ok(Lag::Unknown))).pass(5_000).see("a", unanswered()).pass(6_000).see("a", unanswered());
    assert_eq!(fleet.hostgroup(5), shunned);
    // A source in no cluster is no replica.
    fleet.see("a", Observation::Lag(Ok(Lag::NotReplica))).pass(60_000).see("a", unanswered()).see("a", unanswered());
    assert_eq!(fleet.hostgroup(5), "a b");
    // A server that was away could not answer.
    fleet.see("a", lag(0));
    for _ in 0..3 {
        fleet.pass(8_000).see("a", ping(unreachable())).see("a", unanswered());
    }
    fleet.pass(1_000).see("a", Observation::Ping(Ok(100)));
    assert_eq!(fleet.hostgroup(5), "a b");
    // Several samples are asked for.
    let mut fleet = Fleet::new(&format!("mysql_variables = {{ monitor_replication_lag_count=3 }}\n{PLAIN}"));
    fleet.see("a", lag(0)).see("a", lag(0)).see("a", lag(0)).see("b", lag(0));
    for second in 1..=13 {
        fleet.pass(1_000).see("a", unanswered());
        assert_eq!(fleet.hostgroup(5), if second <= 12 { "a b" } else { shunned }, "{second}");
    }
}

/// A replica whose replication was taken away does not know how far behind it is; nor does one that never had any.
#[test]
fn who_replicates_from_nobody_beside_a_writer_has_unknown_lag() {
    let limited =
        |text: &str| text.replace("hostgroup=2, address=\"b\", port=3306", "hostgroup=2, address=\"b\", port=3306, max_replication_lag=3");
    let alone = || Observation::Lag(Ok(Lag::NotReplica));
    let mut fleet = Fleet::new(&limited(REPLICATION));
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
    fleet.see("b", lag(0));
    assert_eq!(fleet.layout(), "1: a; 2: a b c");
    fleet.pass(1_000).see("b", Observation::Lag(Ok(Lag::Unknown))).pass(4_000).see("b", Observation::Lag(Ok(Lag::Unknown))).events();
    assert_eq!(fleet.hostgroup(2), "a b(SHUNNED_REPLICATION_LAG) c");
    fleet.see("b", alone());
    assert_eq!((fleet.hostgroup(2).as_str(), fleet.events()), ("a b(SHUNNED_REPLICATION_LAG) c", vec![]), "RESET SLAVE ALL");
    fleet.see("b", lag(0));
    assert_eq!(fleet.hostgroup(2), "a b c");
    fleet.topology.take_events();
    fleet.see("b", alone()).pass(5_000).see("b", alone());
    let seen = fleet.topology.take_events().remove(0).seen;
    assert!(seen.starts_with("no replication source, lag unknown, counted as 5 s; max_replication_lag=3"), "{seen}");
    // A member of a cluster of another kind needs no channel.
    fleet.see("b", Observation::Lag(Ok(Lag::Member)));
    assert_eq!(fleet.hostgroup(2), "a b c");
    // Without a writer, and on the writer itself, it says nothing.
    fleet.see("b", alone()).see("a", read_only(true));
    assert_eq!(fleet.layout(), "2: a b c");
    fleet.see("b", read_only(false)).pass(20).see("b", read_only(false));
    assert_eq!(fleet.layout(), "1: b; 2: a b c");
    // A writer that becomes a replica is asked first: its earlier answers do not count.
    fleet.pass(1_000).see("b", read_only(true)).see("a", read_only(false)).pass(20).see("a", read_only(false));
    assert_eq!(fleet.layout(), "1: a; 2: a b c");
    fleet.pass(4_000).see("b", alone());
    assert_eq!(fleet.hostgroup(2), "a b(SHUNNED_REPLICATION_LAG) c");
    fleet.see("b", lag(0));
    assert_eq!(fleet.hostgroup(2), "a b c");
    // Only Aurora's instances report `innodb_read_only`.
    let mut fleet = Fleet::new(&limited(&REPLICATION.replace("reader_hostgroup=2", "reader_hostgroup=2, check_type=\"innodb_read_only\"")));
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true)).pass(1_000).see("b", alone());
    assert_eq!(fleet.layout(), "1: a; 2: a b c");
}

/// Writes that go on being refused while the check fails are one line, until they have ceased for a minute.
#[test]
fn what_traffic_goes_on_reporting_is_told_once() {
    let mut fleet = Fleet::new(REPLICATION);
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true)).pass(1_000).events();
    for _ in 0..200 {
        fleet.pass(1_100).see("a", Observation::ReadOnly(Err(ProbeError::Failed("1193".to_owned())))).signal("a", 1, SignalKind::ReadOnly);
    }
    assert_eq!(fleet.events(), ["suspicion a >read_only"]);
    fleet.signal("a", 1, SignalKind::NotReady).pass(1_100).signal("a", 1, SignalKind::NotReady);
    assert_eq!(fleet.events(), ["suspicion a >not_ready"], "another one");
    fleet.pass(60_000).signal("a", 1, SignalKind::ReadOnly);
    assert_eq!(fleet.events(), ["suspicion a >read_only"], "again");
    fleet.see("a", read_only(true)).pass(1_100).see("a", read_only(false)).events();
    fleet.pass(1_100).signal("a", 1, SignalKind::ReadOnly);
    assert_eq!(fleet.events(), ["suspicion a >read_only"], "its role was another one meanwhile");
}

#[test]
fn several_samples_may_be_asked_for() {
    let mut fleet = Fleet::new(&format!("mysql_variables = {{ monitor_replication_lag_count=3 }}\n{PLAIN}"));
    for (seconds, expected) in [(11, "a b"), (11, "a b"), (5, "a b"), (11, "a b"), (11, "a b"), (11, "a(SHUNNED_REPLICATION_LAG) b")] {
        fleet.see("a", lag(seconds));
        assert_eq!(fleet.hostgroup(5), expected);
    }
}

/// An unknown lag counts the same for all. The server stopped last is the freshest, and was in use until then.
#[test]
fn of_equals_who_is_read_from_stays() {
    for stopped in [["b", "c"], ["c", "b"]] {
        let text =
            REPLICATION.replace("hostgroup=2, address=\"b\", port=3306", "hostgroup=2, address=\"b\", port=3306, max_replication_lag=3");
        let text = text.replace("hostgroup=2, address=\"c\", port=3306", "hostgroup=2, address=\"c\", port=3306, max_replication_lag=3");
        let mut fleet = Fleet::new(&format!("mysql_variables = {{ monitor_writer_is_also_reader=false }}\n{text}"));
        fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
        let unknown = || Observation::Lag(Ok(Lag::Unknown));
        fleet.pass(1_000).see(stopped[0], unknown()).pass(1_000).see(stopped[1], unknown());
        for _ in 0..3 {
            let out = format!("{}(SHUNNED_REPLICATION_LAG)", stopped[0]);
            let expected = if stopped[0] == "b" { format!("{out} c") } else { format!("b {out}") };
            assert_eq!(fleet.hostgroup(2), expected);
            fleet.pass(1_000).see(stopped[0], unknown()).see(stopped[1], unknown());
        }
    }
}

#[test]
fn the_least_lagging_readers_stay() {
    let mut fleet = Fleet::new(PLAIN);
    fleet.see("a", lag(100)).see("b", lag(200));
    assert_eq!(fleet.hostgroup(5), "a b(SHUNNED_REPLICATION_LAG)");
    fleet.see("a", Observation::Lag(Ok(Lag::Unknown))).see("b", lag(20));
    assert_eq!(fleet.hostgroup(5), "a(SHUNNED_REPLICATION_LAG) b");
    // Both fall behind, and are asked in turn: they do not take turns.
    fleet.see("a", lag(70)).see("b", lag(70));
    for seconds in (70..120).step_by(2) {
        fleet.see("b", lag(seconds + 1));
        assert_eq!(fleet.hostgroup(5), "a b(SHUNNED_REPLICATION_LAG)");
        fleet.see("a", lag(seconds + 2));
        assert_eq!(fleet.hostgroup(5), "a b(SHUNNED_REPLICATION_LAG)");
    }
    // With no floor, none stays; but a lone server always does.
    let mut fleet = Fleet::new(&format!("mysql_variables = {{ reader_floor=0 }}\n{PLAIN}"));
    fleet.see("a", lag(100)).see("b", lag(200));
    assert_eq!(fleet.hostgroup(5), "a(SHUNNED_REPLICATION_LAG) b(SHUNNED_REPLICATION_LAG)");
    for _ in 0..3 {
        fleet.see("a", ping(unreachable()));
    }
    assert_eq!(fleet.hostgroup(5), "a(SHUNNED,sever) b", "the last one");
}

#[test]
fn a_writer_does_not_lag() {
    let text = REPLICATION.replace("port=3306", "port=3306, max_replication_lag=10");
    let mut fleet = Fleet::new(&text);
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
    for server in ["a", "b", "c"] {
        fleet.see(server, Observation::Lag(Ok(Lag::Unknown)));
    }
    // The writer is the reader that the floor asks for.
    assert_eq!(fleet.layout(), "1: a; 2: a b(SHUNNED_REPLICATION_LAG) c(SHUNNED_REPLICATION_LAG)");
}

#[test]
fn lag_without_a_limit_changes_nothing() {
    let mut fleet = Fleet::new(REPLICATION);
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
    let layout = fleet.layout();
    fleet.events();
    for _ in 0..10 {
        fleet.pass(1_000).see("b", lag(86_400)).see("c", Observation::Lag(Ok(Lag::Unknown)));
    }
    for _ in 0..10 {
        fleet.pass(1_000).see("b", Observation::Lag(Err(ProbeError::Failed("no such table".into()))));
    }
    assert_eq!((fleet.layout(), fleet.events()), (layout, Vec::new()));
}

#[test]
fn a_restarted_server_waits_for_its_buffer_pool() {
    let waiting = format!("mysql_variables = {{ wait_for_buffer_pool_load=true }}\n{PLAIN}");
    let restart = |fleet: &mut Fleet| {
        for _ in 0..3 {
            fleet.pass(1_000).see("a", ping(unreachable()));
        }
        fleet.pass(1_000).see("a", Observation::Ping(Ok(100)));
    };
    let is_checked = |fleet: &Fleet| fleet.checks()["a:3306"].contains(&"BufferPool".to_owned());
    type Answer = Result<(bool, u64), ProbeError>;
    let answers: [(Answer, &str); 5] = [
        (Ok((false, 5)), "a(SHUNNED) b"),
        (Err(ProbeError::Timeout), "a(SHUNNED) b"),
        (Ok((true, 6)), "a b"),
        (Ok((false, 100_000)), "a b"),
        (Err(ProbeError::Denied("1045".to_owned())), "a b"),
    ];
    for (answer, expected) in answers {
        let mut fleet = Fleet::new(&waiting);
        assert!(!is_checked(&fleet));
        restart(&mut fleet);
        assert_eq!(fleet.layout(), "5: a(SHUNNED) b; 6: a", "in hostgroup 6 nobody else is there");
        assert!(is_checked(&fleet));
        fleet.pass(1_000).see("a", Observation::BufferPool(answer.clone()));
        assert_eq!(fleet.hostgroup(5), expected, "{answer:?}");
        fleet.pass(600_000);
        assert_eq!(fleet.hostgroup(5), "a b", "it ends by time");
        assert!(!is_checked(&fleet));
    }
    let mut fleet = Fleet::new(PLAIN);
    restart(&mut fleet);
    assert_eq!(fleet.hostgroup(5), "a b", "only if asked for");
}

#[test]
fn what_is_looked_at() {
    let text = "mysql_servers = ( { hostgroup=1, address=\"a\", port=3306 }, { hostgroup=2, address=\"a\", port=3307, use_ssl=1 },
        { hostgroup=2, address=\"/run/s\", port=0 }, { hostgroup=3, address=\"a\", port=3306, max_replication_lag=1, use_ssl=1 },
        { hostgroup=3, address=\"off\", port=3306, status=\"OFFLINE_HARD\" } )
      mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2, check_type=\"super_read_only\" } )";
    let fleet = Fleet::new(text);
    let checks = fleet.checks();
    assert_eq!(checks["a:3306"], ["Connect", "Ping", "ReadOnly(SuperReadOnly)", "Lag", "Gtids", "Sources"]);
    let unlimited = ["Connect", "Ping", "ReadOnly(SuperReadOnly)", "Lag", "Gtids", "Sources"];
    assert_eq!(checks["a:3307"], unlimited, "lag is measured for display, and another port is another server");
    assert_eq!(checks["/run/s"], unlimited, "a Unix socket is a server like others");
    assert_eq!(checks.len(), 3, "not what is OFFLINE_HARD");
    let of_ports = |check: &&topology::Check| check.addr.port != 0;
    assert!(fleet.topology.checks().iter().filter(of_ports).all(|check| check.server.use_ssl), "TLS wins over none");
}

fn gtids(set: &str) -> Observation {
    Observation::Gtids(Ok(GtidSet::parse(set).unwrap()))
}

/// Three servers, of which `a` writes, with a limit of 10 transactions.
fn counted(more: &str) -> Fleet {
    let mut fleet = Fleet::new(&format!("mysql_variables = {{ max_transactions_behind=10, {more} }}\n{REPLICATION}"));
    fleet.see("a", read_only(false)).see("b", read_only(true)).see("c", read_only(true));
    fleet
}

#[test]
fn a_replica_that_lacks_too_many_transactions_is_not_read_from() {
    let mut fleet = counted("");
    fleet.see("b", gtids("0-1-5")).see("c", gtids("0-1-100"));
    assert_eq!(fleet.hostgroup(2), "a b c", "nothing is known of the writer");
    fleet.pass(10).see("a", gtids("0-1-100"));
    assert_eq!(fleet.hostgroup(2), "a b c", "the replicas have not been asked since");
    fleet.pass(10).see("b", gtids("0-1-89")).see("c", gtids("0-1-90"));
    assert_eq!(fleet.hostgroup(2), "a b(SHUNNED_REPLICATION_LAG) c");
    fleet.pass(10).see("a", gtids("0-1-500"));
    assert_eq!(fleet.hostgroup(2), "a b(SHUNNED_REPLICATION_LAG) c", "what was written since is no lag yet");
    fleet.see("b", Observation::Gtids(Err(ProbeError::Timeout)));
    assert_eq!(fleet.hostgroup(2), "a b(SHUNNED_REPLICATION_LAG) c", "no answer is no sign of health");
    fleet.pass(10).see("b", gtids("0-1-495"));
    assert_eq!(fleet.hostgroup(2), "a b c");
    assert_eq!(fleet.hostgroup(1), "a", "the writer does not lag");
}

#[test]
fn a_count_of_results_and_the_floor_hold_for_transactions_too() {
    let mut fleet = counted("monitor_replication_lag_count=2, monitor_writer_is_also_reader=false, reader_floor=1");
    fleet.see("a", gtids("aa:1-100")).pass(10).see("b", gtids("aa:1-5")).see("c", gtids("aa:1-50"));
    assert_eq!(fleet.hostgroup(2), "b c", "once is not enough");
    fleet.pass(10).see("b", gtids("aa:1-6"));
    assert_eq!(fleet.hostgroup(2), "b(SHUNNED_REPLICATION_LAG) c");
    fleet.see("c", gtids("aa:1-51"));
    assert_eq!(fleet.hostgroup(2), "b(SHUNNED_REPLICATION_LAG) c", "the one that lacks least is kept");
}

#[test]
fn after_a_failover_the_new_writer_is_what_counts() {
    let mut fleet = counted("");
    fleet.see("a", gtids("aa:1-100")).see("b", gtids("aa:1-80")).see("c", gtids("aa:1-80"));
    assert_eq!(fleet.hostgroup(2), "a b(SHUNNED_REPLICATION_LAG) c(SHUNNED_REPLICATION_LAG)");
    fleet.see("a", read_only(true)).see("b", read_only(false)).see("b", read_only(false));
    assert_eq!(fleet.layout(), "1: b; 2: a b c", "b has no more than c");
}

/// Transactions of the old writer that the new one lacks in its first check after the takeover are reported once.
#[test]
fn a_new_writer_that_lacks_transactions_is_told_of() {
    let lacks = |fleet: &mut Fleet| -> Vec<String> {
        let events = fleet.topology.take_events();
        events.into_iter().filter(|event| event.to == "lacks transactions").map(|event| event.seen).collect()
    };
    for (old, new, wanted) in [("0-1-100", "0-1-95", &["5 transactions of a:3306"][..]), ("aa:1-100", "aa:1-100", &[])] {
        let mut fleet = counted("");
        fleet.see("a", gtids(old)).see("b", gtids(new));
        for _ in 0..3 {
            fleet.pass(20).see("a", Observation::ReadOnly(Err(unreachable())));
        }
        fleet.pass(20).see("b", read_only(false));
        assert_eq!(fleet.hostgroup(1), "b");
        assert_eq!(fleet.interval_ms("b", "Gtids"), 20, "it is asked at once");
        assert_eq!(lacks(&mut fleet), Vec::<String>::new(), "it may have caught up since it was asked");
        fleet.see("b", gtids(new));
        assert_eq!(lacks(&mut fleet), Vec::<String>::new(), "nor is this a look that came later");
        fleet.pass(20).see("b", gtids(new));
        assert_eq!(lacks(&mut fleet), wanted);
        fleet.pass(20).see("b", gtids(new));
        assert_eq!(lacks(&mut fleet), Vec::<String>::new(), "once");
        assert!(fleet.interval_ms("b", "Gtids") > 1_000);
    }
    // A server that does not report its GTIDs is asked at the usual interval, and reported when it does.
    let mut fleet = counted("");
    fleet.see("a", gtids("0-1-100")).see("b", gtids("0-1-99"));
    fleet.pass(20).see("a", read_only(true)).see("b", read_only(false)).pass(20).see("b", read_only(false));
    fleet.pass(20).see("b", Observation::Gtids(Err(ProbeError::Timeout)));
    assert!(fleet.interval_ms("b", "Gtids") > 1_000);
    fleet.pass(20).see("b", gtids("0-1-99"));
    assert_eq!(lacks(&mut fleet), ["1 transactions of a:3306"]);
}

/// A server that was too far behind to be read from becomes the writer.
#[test]
fn a_new_writer_that_was_behind_is_told_of() {
    let mut fleet = counted("");
    fleet.see("a", gtids("0-1-100")).see("b", gtids("0-1-50"));
    fleet.events();
    for _ in 0..3 {
        fleet.pass(20).see("a", Observation::ReadOnly(Err(unreachable())));
    }
    fleet.see("b", read_only(false));
    let told = fleet.whys();
    let why = "b reader>writer,reader: read_only is off; the server was excluded for lag until now, so it may lack transactions";
    assert!(told.contains(&why.to_owned()), "{told:#?}");
}

#[test]
fn gtids_are_asked_for_where_a_limit_is_or_somebody_may_take_over() {
    let asked = |fleet: &Fleet| fleet.checks().values().flatten().filter(|kind| *kind == "Gtids").count();
    assert_eq!(asked(&Fleet::new(REPLICATION)), 3);
    let of_aurora = REPLICATION.replace("reader_hostgroup=2 }", "reader_hostgroup=2, check_type=\"innodb_read_only\" }");
    assert_eq!(asked(&Fleet::new(&of_aurora)), 0);
    assert_eq!(asked(&Fleet::new(&format!("mysql_variables = {{ max_transactions_behind=10 }}\n{of_aurora}"))), 3);
    let lone = "mysql_servers = ( { hostgroup=1, address=\"a\", port=3306 } )
        mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";
    assert_eq!(asked(&Fleet::new(lone)), 0);
    let of_the_readers = "mysql_hostgroup_attributes = ( { hostgroup_id=2, hostgroup_settings=\"{\\\"max_transactions_behind\\\":5}\" } )";
    assert_eq!(asked(&Fleet::new(&format!("{of_the_readers}\n{of_aurora}"))), 3);
}

#[test]
fn events_of_a_status_tell_the_reason_of_that_change() {
    let mut fleet = Fleet::new(PLAIN);
    for _ in 0..3 {
        fleet.pass(1_000).see("b", ping(unreachable()));
    }
    let events = fleet.topology.take_events();
    assert_eq!((events[0].why.as_str(), events[0].seen.as_str()), ("it misses pings: connection refused", "pings: unreachable=3"));
    fleet.pass(1_000).see("b", Observation::Ping(Ok(100)));
    assert_eq!(fleet.whys(), ["b SHUNNED>ONLINE: well again; before: it misses pings: connection refused"]);
    fleet.see("a", lag(11)).whys();
    fleet.see("a", lag(9));
    assert_eq!(fleet.whys(), ["a SHUNNED_REPLICATION_LAG>ONLINE: no longer too far behind"]);
    fleet.configure(&PLAIN.replace("address=\"b\", port=3306", "address=\"b\", port=3306, status=\"OFFLINE_SOFT\""));
    assert_eq!(fleet.whys(), ["b ONLINE>OFFLINE_SOFT: the configuration says OFFLINE_SOFT"]);
    fleet.configure(PLAIN);
    assert_eq!(fleet.whys(), ["b OFFLINE_SOFT>ONLINE: the configuration says ONLINE"]);
}

/// The reads of a read/write split go to the writer while no reader takes work, and each turn is told once.
#[test]
fn a_split_without_a_reader_is_told() {
    let split = r#"{\"read_write_split\": {\"writer\": 1, \"reader\": 2}}"#;
    let config = |row: &str, more: &str| {
        format!(
            "mysql_variables = {{ {more} }}
             mysql_servers = ( {{ hostgroup=1, address=\"a\", port=3306 }} {row} )
             mysql_users = ( {{ username=\"u\", password=\"p\", default_hostgroup=1, attributes=\"{split}\" }} )"
        )
    };
    let row = |more: &str| format!(", {{ hostgroup=2, address=\"b\", port=3306 {more} }}");
    for out in [row(", status=\"OFFLINE_SOFT\""), row(", status=\"SHUNNED\""), row(", weight=0"), String::new()] {
        let mut fleet = Fleet::new(&config(&row(""), ""));
        let reads = |fleet: &mut Fleet| fleet.events().into_iter().filter(|event| event.starts_with("reads")).collect::<Vec<_>>();
        assert_eq!(reads(&mut fleet), [""; 0]);
        fleet.configure(&config(&out, ""));
        assert_eq!(reads(&mut fleet), ["reads - reads: 2>reads: 1"], "{out}");
        fleet.configure(&config(&out, ""));
        assert_eq!(reads(&mut fleet), [""; 0]);
        fleet.configure(&config(&row(""), ""));
        assert_eq!(reads(&mut fleet), ["reads - reads: 1>reads: 2"], "{out}");
        fleet.configure(&config(&out, "reads_to_writer_after_ms=0"));
        assert_eq!(reads(&mut fleet), [""; 0], "they wait");
    }
    // Found servers count as well.
    let mut fleet = Fleet::new(&config(&row(""), ""));
    for _ in 0..4 {
        fleet.pass(20).see("b", Observation::Ping(Err(unreachable())));
    }
    let told = fleet.events();
    assert!(told.contains(&"reads - reads: 2>reads: 1".to_owned()), "{told:?}");
    fleet.pass(20).see("b", Observation::Ping(Ok(1)));
    assert!(fleet.events().contains(&"reads - reads: 1>reads: 2".to_owned()));
}
