//! Semi-synchronous replication that the proxy sets up: which change is next, and what is missing.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use model::snapshot::{Healing, HealingMode, Loss, Promotion, SemiSyncRule, SiteRule};
use model::{HostgroupId, ServerAddr};
use topology::healing::{
    AckStep, Channel, Facts, LinkState, LinkThread, Managed, Outlook, Primary, Replica, ReplicaSide, SemiSync, ServerVersion, Setting,
    Sides, SourceSide, Standing, Tended, choose, manage, may_acknowledge, not_revoked,
};
use topology::{GtidSet, ServerId};

fn addr(name: &str) -> ServerAddr {
    ServerAddr { host: name.into(), port: 3306 }
}

fn policy(loss: Loss, acks: u64) -> Healing {
    Healing {
        writer: HostgroupId(10),
        mode: HealingMode::Full,
        dead_ms: 4_000,
        votes: 0,
        apply_ms: 60_000,
        loss,
        max_lost_ms: 10_000,
        site: SiteRule::Same,
        min_replicas: 0,
        block_ms: 3_600_000,
        semi_sync: SemiSyncRule::Managed,
        acks,
    }
}

const MYSQL: ServerVersion = ServerVersion { is_mariadb: false, number: (9, 7, 4) };
const MARIADB: ServerVersion = ServerVersion { is_mariadb: true, number: (10, 11, 19) };
const OFF: SourceSide = SourceSide { is_enabled: false, is_after_sync: true, timeout_ms: 10_000, keeps_waiting: true, acks: Some(1) };
const ON: SourceSide = SourceSide { is_enabled: true, timeout_ms: 4_294_967_295, ..OFF };

/// A cluster of `p` with healthy replicas.
struct World {
    policy: Healing,
    facts: Facts,
    sides: BTreeMap<ServerAddr, Sides>,
    tended: Vec<Tended>,
    resting: BTreeSet<ServerAddr>,
    short_ms: u64,
    stuck_ms: u64,
    nudged_ms: Option<u64>,
}

impl World {
    fn new(version: ServerVersion, policy: Healing, source: SourceSide, replicas: &[&str]) -> Self {
        let primary = Primary {
            addr: addr("p"),
            id: ServerId::new(Some(112), Some("p")),
            version,
            executed: Some(GtidSet::default()),
            latest: None,
            purged: GtidSet::default(),
            acknowledged: GtidSet::default(),
            is_strict: true,
            semi_sync: None,
            age_ms: 0,
            site: "".into(),
        };
        let facts =
            Facts { primary: Some(primary), is_alive: true, replicas: replicas.iter().map(|name| replica(name, version)).collect() };
        let source = SourceSide { acks: source.acks.filter(|_| !version.is_mariadb), ..source };
        let own = SourceSide { is_enabled: false, ..source };
        let idle = ReplicaSide { is_enabled: false, acknowledges: false };
        let mut sides: BTreeMap<_, _> =
            replicas.iter().map(|name| (addr(name), Sides { source: Some(own), replica: Some(idle) })).collect();
        sides.insert(addr("p"), Sides { source: Some(source), replica: Some(idle) });
        let follows = |name: &&str| Tended {
            addr: addr(name),
            standing: Standing::Follows,
            why: String::new(),
            is_out: false,
            extra: GtidSet::default(),
            is_due: false,
        };
        let tended = replicas.iter().map(follows).collect();
        Self { policy, facts, sides, tended, resting: BTreeSet::new(), short_ms: 0, stuck_ms: 0, nudged_ms: None }
    }

    /// These acknowledge.
    fn with(mut self, ackers: &[&str]) -> Self {
        for (name, sides) in &mut self.sides {
            let acknowledges = ackers.contains(&&*name.host);
            sides.replica = Some(ReplicaSide { is_enabled: acknowledges, acknowledges });
        }
        self
    }

    fn change(mut self, name: &str, change: impl FnOnce(&mut Replica)) -> Self {
        change(self.facts.replicas.iter_mut().find(|one| &*one.addr.host == name).unwrap());
        self
    }

    fn waiting(mut self, waits: u64, stuck_ms: u64) -> Self {
        self.facts.primary.as_mut().unwrap().semi_sync = Some(SemiSync { is_on: true, waits, ..SemiSync::default() });
        self.stuck_ms = stuck_ms;
        self
    }

    fn judge(&self) -> Managed {
        let choice = choose(&self.facts, &self.policy);
        manage(&Outlook {
            policy: &self.policy,
            facts: &self.facts,
            servers: &choice.servers,
            tended: &self.tended,
            sides: &self.sides,
            resting: &self.resting,
            short_ms: self.short_ms,
            stuck_ms: self.stuck_ms,
            nudged_ms: self.nudged_ms,
        })
    }

    fn step(&self) -> Option<AckStep> {
        self.judge().step
    }
}

fn replica(name: &str, version: ServerVersion) -> Replica {
    let runs = LinkThread { state: LinkState::Runs, error: None };
    Replica {
        silence: None,
        id: ServerId::new(Some(u64::from(name.as_bytes()[0])), Some(name)),
        version,
        has_gtids: true,
        is_closed: true,
        is_strict: true,
        logs: true,
        logs_updates: true,
        is_written_as_writer: true,
        weight: 1,
        channel: Some(Channel {
            name: String::new(),
            source: addr("p"),
            is_from_primary: true,
            is_by_gtid: true,
            position: String::new(),
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

fn stopped(replica: &mut Replica) {
    replica.channel.as_mut().unwrap().receiver.state = LinkState::Stopped;
}

fn source(setting: Setting) -> Option<AckStep> {
    Some(AckStep::Source(addr("p"), setting))
}

#[test]
fn replicas_come_first_one_at_a_time_and_then_the_writer() {
    for loss in [Loss::None, Loss::Reported, Loss::Any] {
        let world = |ackers: &[&str]| World::new(MYSQL, policy(loss, 2), OFF, &["a", "b"]).with(ackers);
        assert_eq!(world(&[]).step(), Some(AckStep::Acknowledge(addr("a"))));
        assert_eq!(world(&["a"]).step(), Some(AckStep::Acknowledge(addr("b"))));
        let is_lossless = loss == Loss::None;
        let setting =
            Setting { timeout_ms: is_lossless.then_some(4_294_967_295), acks: Some(2), switch_on: true, needs: 2, ..Setting::default() };
        assert_eq!(world(&["a", "b"]).step(), source(setting), "{loss:?}");
    }
    let on = SourceSide { acks: Some(2), ..ON };
    let done = World::new(MYSQL, policy(Loss::None, 2), on, &["a", "b"]).with(&["a", "b"]).judge();
    assert_eq!((done.step.clone(), done.missing(), done.told().as_str()), (None, 0, "2 replicas acknowledge, and 2 must"));
    let mut resting = World::new(MYSQL, policy(Loss::None, 1), OFF, &["a", "b"]);
    resting.resting.insert(addr("a"));
    assert_eq!(resting.step(), Some(AckStep::Acknowledge(addr("b"))));
}

/// MariaDB commits before it waits unless it is told, and knows one acknowledgement.
#[test]
fn mariadb_is_told_to_wait_before_others_see_a_commit() {
    let off = SourceSide { is_after_sync: false, keeps_waiting: false, ..OFF };
    let world = World::new(MARIADB, policy(Loss::None, 2), off, &["a", "b"]).with(&["a", "b"]);
    let setting = Setting { after_sync: true, timeout_ms: Some(4_294_967_295), keep_waiting: true, acks: None, switch_on: true, needs: 1 };
    assert_eq!(world.step(), source(setting));
    assert!(world.judge().faults.iter().any(|fault| fault == "MariaDB waits for one acknowledgement, so acks=2 counts as 1"));
    let own = World::new(MARIADB, policy(Loss::Reported, 1), OFF, &["a"]).with(&["a"]);
    assert_eq!(own.step(), source(Setting { switch_on: true, needs: 1, ..Setting::default() }), "its own timeout stays");
}

/// V#18712: a source that is switched on before anybody acknowledges locks the cluster.
#[test]
fn the_source_is_never_switched_on_before_enough_acknowledge() {
    for acks in 1..=3_u64 {
        for live in 0..=3_usize {
            for loss in [Loss::None, Loss::Reported, Loss::Any] {
                let names = ["a", "b", "c"];
                let mut world = World::new(MYSQL, policy(loss, acks), OFF, &names).with(&names[..live]);
                world.resting.extend(names.map(addr));
                let step = world.step();
                let needed = if loss == Loss::None { acks } else { 1 };
                if (live as u64) < needed {
                    assert_eq!(step, None, "{loss:?} {live} of {acks}");
                } else {
                    let Some(AckStep::Source(_, setting)) = step else { panic!("{loss:?} {live} of {acks}: {step:?}") };
                    assert!(setting.switch_on && setting.needs <= live as u64, "{setting:?}");
                    assert_eq!(setting.acks.unwrap_or(1), acks.min(live as u64), "{setting:?}");
                }
            }
        }
    }
}

#[test]
fn replicas_that_leave_stop_commits_only_where_nothing_may_be_lost() {
    let on = SourceSide { acks: Some(2), ..ON };
    let world = |loss, ackers: &[&str]| World::new(MYSQL, policy(loss, 2), on, &["a", "b"]).with(ackers).change("b", stopped);
    let strict = world(Loss::None, &["a", "b"]);
    let found = strict.judge();
    assert_eq!((found.step.clone(), found.is_short, found.missing()), (None, true, 1), "it never waits for fewer");
    assert_eq!(
        found.stopped.as_deref(),
        Some("COMMITS OF p:3306 WAIT: 1 of 2 replicas acknowledge, and loss is none. Start the replicas, or set loss to reported")
    );
    let late = World { short_ms: 60_000, ..world(Loss::None, &["a", "b"]) };
    assert_eq!(late.step(), None);
    let mild = world(Loss::Reported, &["a", "b"]);
    assert_eq!((mild.step(), mild.judge().stopped), (None, None), "not for a moment");
    let mild = World { short_ms: 3_000, ..mild };
    assert_eq!(mild.step(), source(Setting { acks: Some(1), needs: 1, ..Setting::default() }));
    // It is there again.
    let one = SourceSide { acks: Some(1), ..on };
    let back = World::new(MYSQL, policy(Loss::Reported, 2), one, &["a", "b"]).with(&["a", "b"]);
    assert_eq!(back.step(), source(Setting { acks: Some(2), needs: 2, ..Setting::default() }));
    // Nobody acknowledges: the proxy's own timeout ends, and the source stays on.
    let nobody = World { short_ms: 60_000, ..world(Loss::Any, &[]).change("a", stopped) };
    assert_eq!(nobody.step(), source(Setting { timeout_ms: Some(10_000), ..Setting::default() }));
    // The operator wants fewer.
    let fewer = World { policy: policy(Loss::None, 1), ..world(Loss::None, &[]).change("a", stopped) };
    assert_eq!(fewer.step(), source(Setting { acks: Some(1), ..Setting::default() }));
    // No other change tightens what already waits for too few.
    let weak = SourceSide { timeout_ms: 10, keeps_waiting: false, ..on };
    let weak = World { sides: BTreeMap::from([(addr("p"), Sides { source: Some(weak), replica: None })]), ..world(Loss::None, &[]) };
    assert_eq!(weak.step(), None);
}

#[test]
fn commits_go_on_once_the_operator_accepts_a_loss() {
    let world = |loss, source| World::new(MYSQL, policy(loss, 1), source, &["a"]).change("a", stopped);
    let ends = Setting { timeout_ms: Some(10_000), ..Setting::default() };
    assert_eq!(world(Loss::None, ON).step(), None);
    assert_eq!(world(Loss::Reported, ON).step(), source(ends));
    assert_eq!(world(Loss::Any, SourceSide { timeout_ms: 2_000_000, ..ON }).step(), None, "the operator's own timeout");
    assert_eq!(world(Loss::Reported, SourceSide { is_enabled: false, ..ON }).step(), None);
}

#[test]
fn only_those_acknowledge_whose_word_is_of_use() {
    type Change = fn(&mut Replica);
    let unfit: [(&str, Change); 5] = [
        ("it is delayed by 60 s on purpose", |one| one.channel.as_mut().unwrap().delay_s = 60),
        ("it is never promoted", |one| one.declared = Some(Promotion::Never)),
        ("it is never promoted", |one| one.weight = 0),
        ("it is on another site (site is same)", |one| one.site = "west".into()),
        ("its replication filters leave changes out", |one| one.channel.as_mut().unwrap().has_filters = true),
    ];
    for (why, change) in unfit {
        let world = |ackers: &[&str]| World::new(MYSQL, policy(Loss::None, 1), ON, &["a", "b"]).with(ackers).change("b", change);
        assert_eq!(may_acknowledge(&world(&[]).facts.replicas[1], "", &world(&[]).policy).unwrap_err(), why);
        assert_eq!(world(&["a"]).step(), None, "{why}: it is not switched on");
        assert_eq!(world(&["a", "b"]).step(), Some(AckStep::Quit(addr("b"))), "{why}");
        let alone = World { resting: BTreeSet::from([addr("a")]), ..world(&["b"]) };
        assert_eq!(alone.step(), None, "{why}: it stays while nobody else acknowledges");
    }
    let far =
        World { policy: Healing { site: SiteRule::Any, ..policy(Loss::None, 1) }, ..World::new(MYSQL, policy(Loss::None, 1), ON, &["a"]) };
    assert_eq!(far.change("a", |one| one.site = "west".into()).step(), Some(AckStep::Acknowledge(addr("a"))));
    // One with a broken applier is not switched on, and one that is behind neither.
    let broken = World::new(MYSQL, policy(Loss::None, 1), OFF, &["a"]);
    let broken =
        broken.change("a", |one| one.channel.as_mut().unwrap().applier = LinkThread { state: LinkState::Stopped, error: Some(1_062) });
    assert_eq!(broken.step(), None);
}

#[test]
fn nothing_is_done_at_a_writer_that_does_not_answer() {
    let mut world = World::new(MYSQL, policy(Loss::None, 1), OFF, &["a"]);
    world.facts.is_alive = false;
    world.sides.remove(&addr("p"));
    assert_eq!((world.step(), world.judge().told().as_str()), (None, "0 replicas acknowledge, and 1 must"));
}

/// A replica whose source side is on applies nothing: nobody acknowledges to it. That comes before all else.
#[test]
fn a_replica_that_waits_for_acknowledgements_is_released_first() {
    let mut world = World::new(MYSQL, policy(Loss::None, 1), OFF, &["a", "b"]);
    world.sides.get_mut(&addr("b")).unwrap().source = Some(ON);
    assert_eq!(world.step(), Some(AckStep::Release(addr("b"))));
    world.tended[1].is_out = true;
    assert_eq!(
        world.step(),
        Some(AckStep::Acknowledge(addr("a"))),
        "a former writer without a proof is not touched: its clients come first"
    );
    world.tended[1].is_out = false;
    let open = world.change("b", |one| one.is_closed = false);
    assert_eq!(open.step(), Some(AckStep::Acknowledge(addr("a"))), "clients may wait there");
}

#[test]
fn a_lost_acknowledgement_is_told_and_fetched() {
    let world = |waits, stuck_ms| World::new(MYSQL, policy(Loss::None, 1), ON, &["a"]).with(&["a"]).waiting(waits, stuck_ms);
    assert_eq!((world(1, 4_999).step(), world(0, 60_000).step()), (None, None));
    let lost = world(1, 5_000);
    assert_eq!(lost.step(), Some(AckStep::Nudge(addr("p"))));
    assert!(lost.judge().told().contains("sessions that wait on p:3306: 1, for 5 s, while enough replicas acknowledge (1)"));
    assert_eq!(World { nudged_ms: Some(29_999), ..world(1, 60_000) }.step(), None);
    assert_eq!(World { nudged_ms: Some(30_000), ..world(1, 60_000) }.step(), Some(AckStep::Nudge(addr("p"))));
    let missing = world(1, 60_000).change("a", stopped);
    assert_eq!((missing.step(), missing.judge().is_short), (None, true), "it is not lost: nobody acknowledges");
}

#[test]
fn what_is_not_installed_is_named_with_its_statement() {
    let mut world = World::new(MYSQL, policy(Loss::None, 1), OFF, &["a"]);
    world.sides.insert(addr("p"), Sides::default());
    world.sides.insert(addr("a"), Sides::default());
    let found = world.judge();
    assert_eq!(found.step, None);
    let has = |server: &str, plugin: &str| {
        let wanted = format!("{server}:3306: semi-synchronous replication is not installed: INSTALL PLUGIN {plugin}");
        assert!(found.faults.contains(&wanted), "{wanted}: {:#?}", found.faults);
    };
    has("p", "rpl_semi_sync_source SONAME 'semisync_source.so'");
    has("a", "rpl_semi_sync_replica SONAME 'semisync_replica.so'");
    has("a", "rpl_semi_sync_source SONAME 'semisync_source.so'");
    world.facts.primary.as_mut().unwrap().version.number = (5, 7, 44);
    assert!(world.judge().told().contains("INSTALL PLUGIN rpl_semi_sync_master SONAME 'semisync_master.so'"));
}

#[test]
fn a_plan_counts_only_on_receivers_that_stand_still() {
    let mut world = World::new(MYSQL, policy(Loss::None, 1), ON, &["a", "b"]).change("a", stopped);
    world.facts.is_alive = false;
    assert_eq!(not_revoked(&world.facts), None, "b acknowledged nothing");
    let world = world.change("b", |one| one.is_acker = true);
    assert_eq!(not_revoked(&world.facts), Some(&addr("b")));
    assert_eq!(not_revoked(&world.change("b", stopped).facts), None);
}
