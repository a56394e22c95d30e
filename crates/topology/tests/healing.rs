//! Who takes over from a dead primary: tables of what happens to people, and every small cluster.

#![allow(clippy::unwrap_used, clippy::panic)]

use model::snapshot::{Healing, HealingMode, Loss, Promotion, SemiSyncRule, SiteRule};
use model::{HostgroupId, ServerAddr};
use topology::healing::{
    Act, Assessed, Blocked, Channel, Choice, Facts, LinkState, LinkThread, Plan, Primary, Replica, SemiSync, ServerVersion, choose,
};
use topology::{GtidSet, ServerId};

fn addr(name: &str) -> ServerAddr {
    ServerAddr { host: name.into(), port: 3306 }
}

fn set(text: &str) -> GtidSet {
    GtidSet::parse(text).unwrap()
}

fn policy() -> Healing {
    Healing {
        writer: HostgroupId(10),
        mode: HealingMode::Advise,
        dead_ms: 4_000,
        votes: 0,
        apply_ms: 60_000,
        loss: Loss::Reported,
        max_lost_ms: 10_000,
        site: SiteRule::Same,
        min_replicas: 0,
        block_ms: 3_600_000,
        semi_sync: SemiSyncRule::Keep,
        acks: 1,
    }
}

/// A healthy replica of `p` that has applied `has`.
fn replica(name: &str, has: &str) -> Replica {
    let runs = LinkThread { state: LinkState::Runs, error: None };
    Replica {
        silence: None,
        id: ServerId::new(Some(u64::from(name.as_bytes()[0])), Some(name)),
        version: ServerVersion { is_mariadb: false, number: (9, 7, 0) },
        executed: set(has),
        received: set(has),
        has_gtids: true,
        logs: true,
        logs_updates: true,
        is_written_as_writer: true,
        weight: 1,
        channel: Some(Channel {
            name: String::new(),
            source: addr("p"),
            is_from_primary: true,
            is_by_gtid: true,
            position: has.to_owned(),
            receiver: runs.clone(),
            applier: runs,
            delay_s: 0,
            has_filters: false,
            lag_ms: Some(0),
            heard_ms: Some(0),
            heartbeat_ms: Some(1_000),
        }),
        ..Replica::silent(addr(name), "")
    }
}

fn channel(mut replica: Replica, change: impl FnOnce(&mut Channel)) -> Replica {
    change(replica.channel.as_mut().unwrap());
    replica
}

/// A primary `p` with the UUID `p`, which had `has`.
fn cluster(has: &str, replicas: Vec<Replica>) -> Facts {
    let primary = Primary {
        addr: addr("p"),
        id: ServerId::new(Some(112), Some("p")),
        version: ServerVersion::default(),
        executed: Some(set(has)),
        latest: None,
        purged: GtidSet::default(),
        acknowledged: GtidSet::default(),
        is_strict: true,
        semi_sync: None,
        age_ms: 0,
        site: "".into(),
    };
    Facts { primary: Some(primary), is_alive: false, replicas }
}

fn plan(choice: &Choice) -> &Plan {
    choice.plan.as_ref().unwrap_or_else(|blocked| panic!("{blocked}: {:#?}", choice.servers))
}

fn of<'a>(choice: &'a Choice, name: &str) -> &'a Assessed {
    choice.servers.iter().find(|one| &*one.addr.host == name).unwrap()
}

fn errant(choice: &Choice, name: &str) -> String {
    of(choice, name).errant.to_string()
}

fn chosen(choice: &Choice) -> &str {
    &plan(choice).candidate.host
}

/// One applier broken long ago, one delayed, one behind, one with a write of its own: what a careful human would do.
#[test]
fn the_server_that_a_careful_human_would_name() {
    let broken = channel(replica("a", "p:1-3"), |channel| {
        channel.applier = LinkThread { state: LinkState::Stopped, error: Some(1_062) };
        channel.lag_ms = None;
    });
    let delayed = channel(replica("b", "p:1-50"), |channel| channel.delay_s = 3_600);
    let mut behind = replica("c", "p:1-40");
    behind.received = set("p:1-100");
    let behind = channel(behind, |channel| channel.lag_ms = Some(20_000));
    let errant = replica("d", "p:1-100,d:1");
    let facts = cluster("p:1-100", vec![broken.clone(), delayed.clone(), behind.clone(), errant.clone()]);
    let choice = choose(&facts, &policy());
    assert_eq!(chosen(&choice), "c");
    assert_eq!(choice.line(&addr("p"), false), "if p:3306 died now: c:3306 in about 25 s, nothing known to be lost");
    assert_eq!(of(&choice, "a").why_not, "its applier has stopped with error 1062 (0 transactions not applied)");
    assert_eq!(of(&choice, "b").why_not, "it is delayed by 3600 s on purpose");
    assert_eq!(of(&choice, "d").why_not, "it has transactions that no other server has: d:1");
    assert_eq!((of(&choice, "c").applied_behind, of(&choice, "b").received_behind), (Some(60), Some(51)));
    assert_eq!(of(&choice, "d").errant, set("d:1"));

    assert_eq!(choice.line(&addr("p"), true), "p:3306 is dead: c:3306 should take over, nothing known to be lost");

    // With a fourth that is well, nobody waits for the one behind.
    let choice = choose(&cluster("p:1-100", vec![broken, delayed, behind, errant, replica("e", "p:1-100")]), &policy());
    assert_eq!(chosen(&choice), "e");
}

#[test]
fn what_keeps_a_server_from_being_chosen() {
    let well = || replica("a", "p:1-9");
    let stopped = |errno: u64| LinkThread { state: LinkState::Stopped, error: (errno > 0).then_some(errno) };
    let table: Vec<(Replica, &str)> = vec![
        (Replica::silent(addr("a"), "Connection refused"), "it does not answer: Connection refused"),
        (Replica { channel: None, ..well() }, "it replicates from nobody"),
        (
            channel(well(), |channel| (channel.is_from_primary, channel.source) = (false, addr("x"))),
            "it replicates from x:3306, not from p:3306",
        ),
        (channel(well(), |channel| channel.applier = stopped(0)), "somebody stopped its applier (STOP REPLICA)"),
        (channel(well(), |channel| channel.has_filters = true), "its replication filters leave changes out"),
        (channel(well(), |channel| channel.is_by_gtid = false), "its channel does not use GTIDs (SOURCE_AUTO_POSITION)"),
        (Replica { logs: false, ..well() }, "it has no binary log (log_bin), so no replica could follow it"),
        (Replica { logs_updates: false, ..well() }, "log_replica_updates is off, so no replica could follow it"),
        (Replica { has_gtids: false, ..well() }, "it writes no GTIDs (gtid_mode)"),
        (Replica { version: ServerVersion::default(), ..well() }, "its version is not known"),
        (Replica { declared: Some(Promotion::Never), ..well() }, "promotion is never (mysql_healing_servers)"),
        (Replica { weight: 0, ..well() }, "its weight is 0 (mysql_servers)"),
        (Replica { offline: Some("it is drained".to_owned()), ..well() }, "it is drained"),
        (Replica { unable: Some("it had not applied it in time".to_owned()), ..well() }, "it had not applied it in time"),
        (Replica { site: "west".into(), ..well() }, "it is on site 'west', and p:3306 on '' (site is same)"),
        (
            channel(Replica { executed: set("p:1-2"), ..well() }, |channel| channel.lag_ms = Some(600_000)),
            "it would need about 600 s to apply what it received (apply_ms is 60000 ms)",
        ),
        (
            channel(Replica { executed: set("p:1-2"), ..well() }, |channel| channel.lag_ms = None),
            "its lag is not known, so the time to apply what it received is not known either",
        ),
        (
            channel(replica("a", "p:1-4"), |channel| channel.heard_ms = Some(172_800_000)),
            "it had heard nothing from p:3306 for 172800000 ms (max_lost_ms is 10000)",
        ),
        (
            channel(replica("a", "p:1-4"), |channel| channel.heard_ms = None),
            "it is not known to have heard from p:3306 within max_lost_ms (10000 ms)",
        ),
    ];
    for (replica, why) in table {
        let choice = choose(&cluster("p:1-9", vec![replica, self::replica("z", "p:1-9")]), &policy());
        assert_eq!((chosen(&choice), of(&choice, "a").why_not.as_str()), ("z", why));
    }
    // What is no reason: a receiver that lost the primary, and slow heartbeats of a replica that has what the primary was seen to have.
    let lost = channel(well(), |channel| (channel.receiver, channel.heard_ms) = (stopped(2_003), Some(60_000)));
    assert_eq!(chosen(&choose(&cluster("p:1-9", vec![lost.clone()]), &policy())), "a");
    // What the primary was seen to have an hour before it died is no reason to trust it.
    let mut facts = cluster("p:1-9", vec![lost]);
    facts.primary.as_mut().unwrap().age_ms = 3_600_000;
    assert_eq!(of(&choose(&facts, &policy()), "a").why_not, "it had heard nothing from p:3306 for 60000 ms (max_lost_ms is 10000)");
}

/// While the writer lives, a receiver that does not run is a fault. The first step of a promotion stops all of them.
#[test]
fn a_stopped_receiver_counts_while_the_writer_lives() {
    for (errno, why) in [
        (None, "somebody stopped its receiver (STOP REPLICA)"),
        (Some(1_236), "its receiver has stopped with error 1236"),
        (Some(2_003), ""),
    ] {
        let stopped = channel(replica("a", "p:1-9"), |channel| channel.receiver = LinkThread { state: LinkState::Stopped, error: errno });
        let mut facts = cluster("p:1-9", vec![stopped]);
        assert_eq!(chosen(&choose(&facts, &policy())), "a", "{errno:?}");
        facts.is_alive = true;
        assert_eq!(of(&choose(&facts, &policy()), "a").why_not, why, "{errno:?}");
    }
}

/// Two replicas share a transaction that the writer lacked: they do not clear each other when the writer dies. A server that does not
/// replicate from the writer clears nobody either.
#[test]
fn what_the_writer_lacked_stays_errant_after_its_death() {
    let mut replicas = vec![replica("a", "p:1-9,x:1"), replica("b", "p:1-9,x:1"), replica("c", "p:1-9")];
    let choice = choose(&Facts { is_alive: true, ..cluster("p:1-9", replicas.clone()) }, &policy());
    for replica in &mut replicas {
        replica.was_errant = of(&choice, &replica.addr.host).errant.clone();
    }
    let dead = choose(&cluster("p:1-9", replicas.clone()), &policy());
    assert_eq!((chosen(&dead), errant(&dead, "a").as_str(), errant(&dead, "b").as_str()), ("c", "x:1", "x:1"));
    assert_eq!(of(&dead, "a").why_not, "it has transactions that the writer lacked: x:1");
    // One of them was built anew since.
    replicas[0] = Replica { was_errant: set("x:1"), ..replica("a", "p:1-9") };
    assert_eq!(chosen(&choose(&cluster("p:1-9", replicas), &policy())), "a");

    let stray = Replica { channel: None, ..replica("s", "p:1-9,a:1") };
    let leaf = channel(replica("l", "p:1-9,a:1"), |channel| (channel.is_from_primary, channel.source) = (false, addr("a")));
    for other in [stray, leaf] {
        let choice = choose(&cluster("p:1-9", vec![replica("a", "p:1-9,a:1"), other, replica("c", "p:1-9")]), &policy());
        assert_eq!((chosen(&choice), errant(&choice, "a").as_str()), ("c", "a:1"));
    }
}

/// What a server has purged it can hand on to nobody that lacks it.
#[test]
fn purged_transactions_are_not_fetched_and_not_followed() {
    let preferred = Replica { declared: Some(Promotion::Prefer), ..replica("b", "p:1-5") };
    let purged = Replica { purged: set("p:1-7"), ..replica("a", "p:1-9") };
    let choice = choose(&cluster("p:1-9", vec![purged.clone(), preferred.clone()]), &policy());
    assert_eq!(chosen(&choice), "a", "b could not fetch from it");
    let why = plan(&choice).steps.iter().find_map(|step| match &step.act {
        Act::Leave { why } if step.server == addr("b") => Some(why.clone()),
        _ => None,
    });
    assert_eq!(why.as_deref(), Some("it lacks transactions that the promoted server has purged (gtid_purged)"));
    let choice = choose(&cluster("p:1-9", vec![purged.clone(), preferred.clone(), replica("c", "p:1-9")]), &policy());
    let from = plan(&choice).steps.iter().find_map(|step| match &step.act {
        Act::Fetch { from, .. } => Some(from.clone()),
        _ => None,
    });
    assert_eq!((chosen(&choice), from), ("b", Some(addr("c"))));
    let nobody = choose(&cluster("p:1-9", vec![Replica { weight: 0, ..purged }, preferred]), &policy()).plan.unwrap_err();
    assert!(nobody.to_string().contains("b:3306: it lacks transactions that other servers have purged (gtid_purged)"), "{nobody}");
}

/// A server that did not apply what it had received is left out of later plans, and nobody waits for it as a source either.
#[test]
fn a_server_that_could_not_apply_is_left_out() {
    let unable = Replica { unable: Some("it could not apply".to_owned()), ..replica("a", "p:1-9") };
    let choice = choose(&cluster("p:1-9", vec![unable.clone(), replica("b", "p:1-9"), replica("c", "p:1-8")]), &policy());
    assert_eq!(chosen(&choice), "b");
    let choice = choose(&cluster("p:1-9", vec![unable, replica("b", "p:1-8")]), &policy());
    let why = choice.plan.unwrap_err().to_string();
    let wanted = "a:3306: it could not apply; b:3306: it lacks transactions of a server that could not apply them";
    assert!(why.ends_with(wanted), "{why}");
}

#[test]
fn of_several_that_may_the_best_is_chosen() {
    let two = |change: fn(&mut Replica)| {
        let mut second = replica("b", "p:1-9");
        change(&mut second);
        choose(&cluster("p:1-9", vec![replica("a", "p:1-9"), second, replica("c", "p:1-9")]), &policy()).plan.unwrap()
    };
    assert_eq!(two(|_| ()).candidate, addr("a"), "by name");
    assert_eq!(two(|b| b.declared = Some(Promotion::Prefer)).candidate, addr("b"));
    assert_eq!(two(|b| b.weight = 5).candidate, addr("b"));
    // A preferred server that lacks something gets it first.
    let fetches = two(|b| (b.declared, b.received, b.executed) = (Some(Promotion::Prefer), set("p:1-7"), set("p:1-7")));
    assert_eq!((fetches.candidate.clone(), fetches.lost.count), (addr("b"), 0));
    assert!(fetches.steps.iter().any(|step| matches!(&step.act, Act::Fetch { from, .. } if *from == addr("a"))), "{fetches:#?}");
    assert_eq!(two(|b| (b.weight, b.received, b.executed) = (5, set("p:1-7"), set("p:1-7"))).candidate, addr("a"), "weight alone does not");
    // A newer version cannot be followed by older ones.
    let newer = two(|b| (b.weight, b.version) = (5, ServerVersion { is_mariadb: false, number: (26, 7, 0) }));
    assert_eq!(newer.candidate, addr("a"));
    // Sites.
    let far = |rule| {
        let mut replicas = vec![replica("a", "p:1-9"), replica("b", "p:1-9")];
        (replicas[0].site, replicas[0].weight) = ("west".into(), 9);
        choose(&cluster("p:1-9", replicas), &Healing { site: rule, ..policy() }).plan.unwrap().candidate
    };
    assert_eq!([far(SiteRule::Same), far(SiteRule::Prefer), far(SiteRule::Any)], [addr("b"), addr("b"), addr("a")]);
}

#[test]
fn steps_come_in_order_and_each_server_has_an_end() {
    let errant = replica("c", "p:1-9,c:1");
    let choice = choose(&cluster("p:1-9", vec![replica("a", "p:1-9"), replica("b", "p:1-8"), errant]), &policy());
    let steps: Vec<String> = plan(&choice)
        .steps
        .iter()
        .map(|step| {
            let word = format!("{:?}", step.act);
            format!("{} {}", step.server.host, word.split([' ', '{']).next().unwrap())
        })
        .collect();
    let wanted = ["a Freeze", "b Freeze", "c Freeze", "a Apply", "p Close", "a TakeOff", "a Open", "b Follow", "c Leave", "p Leave"];
    assert_eq!(steps, wanted);
}

/// MariaDB deletes what a channel received and did not apply when the channel is pointed elsewhere.
#[test]
fn mariadb_applies_what_it_received_before_it_fetches() {
    let all = ["a Apply 0-1-9", "b Apply 0-1-7", "b Fetch 0-1-9"];
    for (is_mariadb, wanted) in [(true, vec![all[0], all[1], all[2]]), (false, vec![all[0], all[2]])] {
        let version = ServerVersion { is_mariadb, number: (10, 11, 9) };
        let a = Replica { version, ..replica("a", "0-1-9") };
        let b = Replica { version, executed: set("0-1-5"), declared: Some(Promotion::Prefer), ..replica("b", "0-1-7") };
        let choice = choose(&cluster("0-1-9", vec![a, b]), &policy());
        let steps = plan(&choice).steps.iter().filter_map(|step| match &step.act {
            Act::Apply { position, limit_ms } => Some((format!("{} Apply {position}", step.server.host), *limit_ms)),
            Act::Fetch { position, limit_ms, .. } => Some((format!("{} Fetch {position}", step.server.host), *limit_ms)),
            _ => None,
        });
        let (steps, limits_ms): (Vec<String>, Vec<u64>) = steps.unzip();
        assert_eq!(steps, wanted);
        assert!(limits_ms.iter().sum::<u64>() <= policy().apply_ms, "{limits_ms:?}");
    }
}

/// A replica of a replica stays where it is if its source is promoted.
#[test]
fn a_chain_is_left_as_it_is() {
    let leaf = channel(replica("b", "p:1-9"), |channel| (channel.is_from_primary, channel.source) = (false, addr("a")));
    let left = |replicas| {
        let choice = choose(&cluster("p:1-9", replicas), &policy());
        let step = plan(&choice).steps.iter().find(|step| step.server == addr("b")).unwrap().act.clone();
        let Act::Leave { why } = step else { panic!("{step:?}") };
        why
    };
    assert_eq!(left(vec![replica("a", "p:1-9"), leaf.clone()]), "it follows a:3306 already");
    let other = Replica { weight: 9, ..replica("c", "p:1-9") };
    assert_eq!(left(vec![replica("a", "p:1-9"), leaf, other]), "it replicates from a:3306, not from p:3306");
}

#[test]
fn what_blocks_a_promotion() {
    let blocked = |facts: &Facts, policy: &Healing| choose(facts, policy).plan.unwrap_err();
    let well = || vec![replica("a", "p:1-9"), replica("b", "p:1-8")];
    assert_eq!(blocked(&Facts::default(), &policy()), Blocked::NoPrimary);
    assert_eq!(blocked(&cluster("p:1", Vec::new()), &policy()), Blocked::NoReplica);
    let few = cluster("p:1-9", vec![replica("a", "p:1-9"), silent("b"), silent("c")]);
    assert_eq!(blocked(&few, &policy()), Blocked::FewVotes { heard: 1, needed: 2 });
    assert_eq!(blocked(&cluster("p:1-9", well()), &Healing { votes: 3, ..policy() }), Blocked::FewVotes { heard: 2, needed: 3 });
    assert_eq!(blocked(&cluster("p:1-9", well()), &Healing { min_replicas: 2, ..policy() }), Blocked::FewFollowers { have: 1, needed: 2 });
    let never = vec![Replica { weight: 0, ..replica("a", "p:1-9") }];
    assert!(blocked(&cluster("p:1-9", never), &policy()).to_string().contains("no replica may take over: a:3306: its weight is 0"));
    let torn = cluster("p:1-9", vec![replica("a", "p:1-7:9"), replica("b", "p:1-8")]);
    let said = blocked(&torn, &Healing { loss: Loss::Any, ..policy() }).to_string();
    assert!(said.contains("a:3306: alone has p:9; b:3306: alone has p:8"), "{said}");
}

fn silent(name: &str) -> Replica {
    Replica { weight: 1, ..Replica::silent(addr(name), "timeout") }
}

#[test]
fn loss_is_counted_and_may_be_forbidden() {
    let facts = cluster("p:1-12", vec![replica("a", "p:1-9"), replica("b", "p:1-8")]);
    let choice = choose(&facts, &policy());
    assert_eq!((plan(&choice).lost.count, plan(&choice).lost.gtids.as_str()), (3, "p:10-12"));
    assert!(choice.line(&addr("p"), false).ends_with("a:3306 in about 5 s, at least 3 transactions lost"));
    // A delayed replica received more than anybody who may take over.
    let delayed = channel(replica("b", "p:1-12"), |channel| channel.delay_s = 60);
    let choice = choose(&cluster("p:1-12", vec![replica("a", "p:1-9"), delayed]), &policy());
    assert_eq!((chosen(&choice), plan(&choice).lost.count), ("a", 3));
    assert!(plan(&choice).steps.iter().any(|step| step.server == addr("b") && matches!(&step.act, Act::Leave { .. })));

    // So did a replica of a replica, whose source is dead. What that source alone had is errant, and no loss.
    let leaf = |has: &str, of: &str| channel(replica("l", has), |channel| (channel.is_from_primary, channel.source) = (false, addr(of)));
    let one_vote = Healing { votes: 1, ..policy() };
    let choice = choose(&cluster("p:1-9", vec![replica("a", "p:1-9"), silent("c"), leaf("p:1-12", "c")]), &one_vote);
    assert_eq!((chosen(&choice), plan(&choice).lost.count, plan(&choice).lost.gtids.as_str()), ("a", 3, "p:10-12"));
    let own = vec![replica("a", "p:1-9,a:1"), leaf("p:1-9,a:1", "a"), replica("c", "p:1-9")];
    let choice = choose(&cluster("p:1-9", own), &policy());
    assert_eq!((chosen(&choice), plan(&choice).lost.count), ("c", 0));

    let none = Healing { loss: Loss::None, ..policy() };
    let semi_sync = |source: Option<SemiSync>, ackers: &[bool], replicas: Vec<Replica>| {
        let mut facts = cluster("p:1-9", replicas);
        facts.primary.as_mut().unwrap().semi_sync = source;
        facts.replicas.iter_mut().zip(ackers).for_each(|(replica, is_acker)| replica.is_acker = *is_acker);
        choose(&facts, &none).plan.map(|plan| plan.lost.to_string()).map_err(|blocked| blocked.to_string())
    };
    let well = || vec![replica("a", "p:1-9"), replica("b", "p:1-9")];
    let source = SemiSync { is_on: true, is_after_sync: true, timeout_ms: 1_000_000, keeps_waiting: true, acks: 1, ackers: 2, waits: 0 };
    assert_eq!(semi_sync(Some(source), &[true, true], well()), Ok("nothing lost".to_owned()));
    let no = |source, ackers: &[bool], replicas, why: &str| {
        let said = semi_sync(source, ackers, replicas).unwrap_err();
        assert!(said.starts_with("loss is none, and ") && said.contains(why), "{said}");
    };
    no(None, &[true, true], well(), "does not replicate semi-synchronously");
    no(Some(SemiSync { is_on: false, ..source }), &[true, true], well(), "do not wait for acknowledgements");
    no(Some(SemiSync { timeout_ms: 10_000, ..source }), &[true, true], well(), "AFTER_SYNC");
    no(Some(SemiSync { is_after_sync: false, ..source }), &[true, true], well(), "AFTER_SYNC");
    no(Some(SemiSync { keeps_waiting: false, ..source }), &[true, true], well(), "rpl_semi_sync_source_wait_no_replica");
    // An errant replica received, and acknowledged, what nobody else has.
    let errant = vec![replica("a", "p:1-9"), replica("b", "p:1-10,b:1")];
    no(Some(source), &[true, true], errant, "at least 1 transaction would be lost: p:10");
    no(Some(source), &[true, false], well(), "too few replicas that acknowledge answer");
    no(Some(source), &[true, true], vec![replica("a", "p:1-8"), replica("b", "p:1-7")], "at least 1 transaction would be lost: p:9");
    // The writer was too full to say so for an hour.
    let mut old = cluster("p:1-9", well());
    let primary = old.primary.as_mut().unwrap();
    (primary.semi_sync, primary.age_ms) = (Some(source), 3_600_000);
    old.replicas.iter_mut().for_each(|replica| replica.is_acker = true);
    let said = choose(&old, &none).plan.unwrap_err().to_string();
    assert_eq!(said, "loss is none, and the writer had not said for 3600000 ms how it replicates (max_lost_ms is 10000)");
    // Two acknowledgements of three: any two of them have each commit.
    let two = SemiSync { acks: 2, ackers: 3, ..source };
    assert_eq!(semi_sync(Some(two), &[true, true], well()), Ok("nothing lost".to_owned()));
}

/// Replicas of a primary under load are asked one after the other: who is asked last has most.
#[test]
fn while_the_primary_lives_the_order_of_looks_does_not_count() {
    let alive = |replicas| Facts { is_alive: true, ..cluster("p:1-9", replicas) };
    let choice = choose(&alive(vec![replica("a", "p:1-10"), replica("b", "p:1-12"), replica("c", "p:1-8")]), &policy());
    assert_eq!((chosen(&choice), plan(&choice).lost.count), ("a", 0));
    assert_eq!((of(&choice, "a").received_behind, of(&choice, "c").received_behind), (Some(0), Some(1)));
    // What came to the primary from elsewhere meanwhile is no errant transaction: it is asked again.
    let mut facts = alive(vec![replica("a", "p:1-10,far:1-3"), replica("b", "p:1-9")]);
    assert_eq!(errant(&choose(&facts, &policy()), "a"), "far:1-3");
    facts.primary.as_mut().unwrap().latest = Some(set("p:1-11,far:1-4"));
    assert_eq!(errant(&choose(&facts, &policy()), "a"), "");
    // Two replicas that share it are not right for that.
    let choice = choose(&alive(vec![replica("a", "p:1-9,x:1"), replica("b", "p:1-9,x:1"), replica("c", "p:1-9")]), &policy());
    assert_eq!((chosen(&choice), errant(&choice, "a").as_str(), errant(&choice, "b").as_str()), ("c", "x:1", "x:1"));
}

/// MariaDB: positions name their servers. The old primary 1 died with 0-1-6 and 0-1-7, and came back as a replica of 2.
#[test]
fn mariadb_forks_and_own_writes_are_errant() {
    let mariadb = |name: &str, number: u64, has: &str| Replica {
        id: ServerId::new(Some(number), None),
        version: ServerVersion { is_mariadb: true, number: (10, 11, 6) },
        ..replica(name, has)
    };
    let of_two = |replicas| {
        let primary =
            Primary { id: ServerId::new(Some(2), None), executed: Some(set("0-1-5,0-2-9")), ..cluster("", Vec::new()).primary.unwrap() };
        choose(&Facts { primary: Some(primary), is_alive: false, replicas }, &policy())
    };
    let choice = of_two(vec![mariadb("a", 1, "0-1-7,0-2-9"), mariadb("b", 3, "0-2-9"), mariadb("c", 4, "0-1-5,0-2-9,0-4-10")]);
    assert_eq!(chosen(&choice), "b", "its position names no other server, and that is no reproach");
    assert_eq!([errant(&choice, "a"), errant(&choice, "c")], ["0-1-7", "0-4-10"]);
    // It was a primary of earlier times, and all others have what it wrote.
    let choice = of_two(vec![mariadb("a", 1, "0-1-5,0-2-9"), mariadb("b", 3, "0-2-9")]);
    assert_eq!(errant(&choice, "a"), "");
}

/// Up to four servers, every set of three GTIDs, promotion and site.
#[test]
fn in_every_small_cluster_the_chosen_one_has_everything() {
    use Promotion::{Avoid, Neutral, Never, Prefer};
    const PROMOTIONS: [Option<Promotion>; 5] = [None, Some(Prefer), Some(Neutral), Some(Avoid), Some(Never)];
    // Two of the primary, and a third one that may be of the replica `a` itself.
    let text = |third: &str, bits: usize| {
        let all: Vec<&str> =
            ["p:1", "p:2", third].into_iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1).map(|(_, one)| one).collect();
        all.join(",")
    };
    let (mut plans, mut diverged) = (0, 0);
    for third in ["p:3", "a:1"] {
        // Each digit is a replica: its set, its promotion and its site.
        for (count, case) in [1, 2, 3].into_iter().flat_map(|count| (0..80_usize.pow(count)).map(move |case| (count as usize, case))) {
            let digits = [case % 80, case / 80 % 80, case / 80 / 80];
            let replica = |(digit, name): (&usize, &str)| Replica {
                declared: PROMOTIONS[digit / 8 % 5],
                site: if digit / 40 == 1 { "west" } else { "" }.into(),
                ..replica(name, &text(third, digit % 8))
            };
            let replicas: Vec<Replica> = digits.iter().zip(["a", "b", "c"]).take(count).map(replica).collect();
            let facts = cluster("p:1", replicas);
            let rule = if case % 2 == 0 { SiteRule::Same } else { SiteRule::Any };
            let choice = choose(&facts, &Healing { site: rule, ..policy() });
            match check(&facts, &choice, rule) {
                Some(true) => plans += 1,
                Some(false) => diverged += 1,
                None => {}
            }
        }
    }
    println!("{plans} plans, {diverged} diverged");
    assert!(plans > 10_000 && diverged > 1_000);
}

/// Some(true) for a plan, Some(false) for replicas that have diverged.
fn check(facts: &Facts, choice: &Choice, rule: SiteRule) -> Option<bool> {
    let context = || format!("{facts:#?} {choice:#?}");
    let sound: Vec<&Replica> = facts.replicas.iter().filter(|replica| of(choice, &replica.addr.host).errant.is_empty()).collect();
    match &choice.plan {
        Ok(plan) => {
            let chosen = sound.iter().find(|replica| replica.addr == plan.candidate).unwrap_or_else(|| panic!("errant: {}", context()));
            assert!(chosen.promotion() != Promotion::Never && (rule == SiteRule::Any || chosen.site.is_empty()), "{}", context());
            let from = plan.steps.iter().find_map(|step| match &step.act {
                Act::Fetch { from, .. } => facts.replicas.iter().find(|replica| replica.addr == *from),
                _ => None,
            });
            let has = from.map_or(&chosen.received, |from| &from.received);
            assert!(has.contains(&chosen.received), "{}", context());
            assert!(sound.iter().all(|replica| has.contains(&replica.received)), "{}", context());
            // All that the primary was seen to have, and what errant replicas got from it.
            let known = facts
                .replicas
                .iter()
                .fold(set("p:1"), |known, replica| known.with(&replica.received.without(&of(choice, &replica.addr.host).errant)));
            assert_eq!(plan.lost.count, known.missing_in(has), "{}", context());
            let better = sound.iter().filter(|one| rule == SiteRule::Any || one.site.is_empty());
            assert!(better.clone().all(|one| one.promotion() >= chosen.promotion()), "{}", context());
            Some(true)
        }
        Err(Blocked::Diverged(_)) => {
            let has_all = |one: &&&Replica| sound.iter().all(|other| one.received.contains(&other.received));
            assert!(!sound.iter().any(|one| has_all(&one)), "{}", context());
            Some(false)
        }
        Err(Blocked::Nobody(reasons)) => {
            assert!(reasons.iter().all(|(_, why)| !why.is_empty()), "{}", context());
            assert!(choice.servers.iter().all(|one| !one.is_eligible), "{}", context());
            None
        }
        Err(other) => panic!("{other}: {}", context()),
    }
}

/// Mode `full` does without no safety that mode `advise` only recommends.
#[test]
fn a_promotion_by_the_proxy_needs_rights_and_strict_gtids() {
    let full = Healing { mode: HealingMode::Full, ..policy() };
    let mariadb =
        |is_strict| Replica { version: ServerVersion { is_mariadb: true, number: (10, 11, 9) }, is_strict, ..replica("a", "0-1-9") };
    let choice = choose(&cluster("0-1-9", vec![mariadb(false)]), &full);
    assert!(of(&choice, "a").why_not.starts_with("gtid_strict_mode is OFF"), "{}", of(&choice, "a").why_not);
    assert!(choice.plan.is_err());
    assert_eq!(chosen(&choose(&cluster("0-1-9", vec![mariadb(true)]), &full)), "a");
    assert_eq!(chosen(&choose(&cluster("0-1-9", vec![mariadb(false)]), &policy())), "a", "advice has a note for it");
    let socket = ServerAddr { host: "/run/a.sock".into(), port: 0 };
    let choice = choose(&cluster("p:1-9", vec![Replica { addr: socket, ..replica("a", "p:1-9") }]), &full);
    assert!(choice.servers[0].why_not.contains("Unix socket"), "{:?}", choice.servers);
    let without = Replica { no_right: Some("GRANT RELOAD".to_owned()), ..replica("a", "p:1-9") };
    assert_eq!(of(&choose(&cluster("p:1-9", vec![without.clone()]), &full), "a").why_not, "GRANT RELOAD");
    assert_eq!(chosen(&choose(&cluster("p:1-9", vec![without, replica("b", "p:1-9")]), &full)), "b");
}

/// Clients got OK for transactions that the monitor did not see on the writer.
#[test]
fn what_clients_got_ok_for_is_reported_as_lost() {
    let mut facts = cluster("p:1-9", vec![replica("a", "p:1-10")]);
    let told = |facts: &Facts| plan(&choose(facts, &policy())).lost.told();
    assert_eq!(told(&facts), "nothing known to be lost");
    facts.primary.as_mut().unwrap().acknowledged = set("p:7-12");
    assert_eq!(told(&facts), "at least 2 transactions lost: p:11-12");
}
