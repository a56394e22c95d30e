//! The steps for a channel, without servers.

use model::snapshot::Channel;
use model::{HostgroupId, ServerAddr};
use topology::GtidSet;

use super::judge::*;
use super::position::Position;

fn at(host: &str) -> ServerAddr {
    ServerAddr { host: host.into(), port: 3306 }
}

fn east(is_active: bool) -> Channel {
    Channel { writer: HostgroupId(10), name: "east".into(), source: at("far"), is_active }
}

fn position(text: &str) -> Position {
    Position::parse(text).unwrap()
}

fn gtids(text: &str) -> GtidSet {
    GtidSet::parse(text).unwrap()
}

fn thread(state: ThreadState) -> Thread {
    Thread { state, error: None }
}

fn link(state: ThreadState) -> Link {
    Link {
        name: "East".into(),
        source: Some(at("FAR")),
        receiver: thread(state),
        applier: thread(state),
        is_by_gtid: true,
        ..Link::default()
    }
}

fn runs() -> Link {
    link(ThreadState::Runs)
}

fn rests() -> Link {
    link(ThreadState::Stopped)
}

fn mysql(links: &[Link]) -> Sight {
    Sight { links: links.to_vec(), has_gtids: true, ..Sight::default() }
}

/// A MariaDB server that writes in domain 1, and has `replicated` and `logged`.
fn mariadb(links: &[Link], replicated: &str, logged: &str) -> Sight {
    Sight {
        is_mariadb: true,
        links: links.to_vec(),
        replicated: position(replicated),
        logged: position(logged),
        own_domains: vec![1],
        ..Sight::default()
    }
}

/// The first one writes.
fn members(sights: &[(&str, Result<Sight, String>)]) -> Vec<Member> {
    let member = |(index, (host, sight)): (usize, &(&str, Result<Sight, String>))| Member {
        addr: at(host),
        is_writer: index == 0,
        sight: sight.clone(),
    };
    sights.iter().enumerate().map(member).collect()
}

struct Case<'a> {
    channel: Channel,
    kind: Kind,
    memory: Memory<'a>,
    has_credentials: bool,
    source: Source,
}

impl Default for Case<'_> {
    fn default() -> Self {
        let (channel, kind, source) = (east(true), Kind::Replication, Source::Silent);
        Self { channel, kind, memory: Memory::default(), has_credentials: false, source }
    }
}

impl Case<'_> {
    fn judge(&self, members: &[Member]) -> Judgement {
        let Case { channel, kind, memory, has_credentials, source } = self;
        judge(&Scene { channel, kind: *kind, members, memory: *memory, has_credentials: *has_credentials, source })
    }

    fn of(&self, sights: &[(&str, Result<Sight, String>)]) -> Judgement {
        self.judge(&members(sights))
    }
}

fn acts(judged: &Judgement) -> Vec<(&str, &Act)> {
    judged.steps.iter().map(|step| (&*step.server.host, &step.act)).collect()
}

fn down() -> Result<Sight, String> {
    Err("Connection refused".into())
}

#[test]
fn one_that_runs_on_the_writer_is_left_alone() {
    let judged = Case::default().of(&[("a", Ok(mysql(&[runs()]))), ("b", Ok(mysql(&[rests()]))), ("c", down())]);
    assert_eq!(judged, Judgement::rest(State::Running, Some(&at("a")), ""));
}

#[test]
fn it_is_stopped_elsewhere_before_it_is_started() {
    let judged = Case::default().of(&[("b", Ok(mysql(&[rests()]))), ("a", Ok(mysql(&[runs()]))), ("c", Ok(mysql(&[runs()])))]);
    assert_eq!(acts(&judged), [("a", &Act::Stop), ("c", &Act::Stop)]);
    assert!(judged.steps[0].why.contains("b:3306 is the writer"));
    // But not where it could not be started then.
    let judged = Case::default().of(&[("b", Ok(mysql(&[]))), ("a", Ok(mysql(&[runs()])))]);
    assert_eq!((judged.state, judged.server, judged.steps.len()), (State::Blocked, Some(at("a")), 0));
}

#[test]
fn it_goes_on_where_the_writer_is() {
    let a = at("a");
    let case = Case { memory: Memory { tended: Some(&a), ..Memory::default() }, ..Case::default() };
    // It was made there before, and its last words are from then.
    let mut before = rests();
    before.applier.error = Some((1062, "Duplicate entry".into()));
    let judged = case.of(&[("b", Ok(mysql(&[before]))), ("a", down())]);
    assert_eq!(acts(&judged), [("b", &Act::Start)]);
    assert!(judged.reason.contains("b:3306 is the writer now"));
    // It never was there.
    let refused = case.of(&[("b", Ok(mysql(&[]))), ("a", down())]);
    assert_eq!(refused.state, State::Blocked);
    assert!(refused.reason.contains("no such channel") && refused.steps.is_empty(), "{refused:?}");
    let case = Case { has_credentials: true, ..case };
    assert_eq!(acts(&case.of(&[("b", Ok(mysql(&[])))])), [("b", &Act::Point), ("b", &Act::Start)]);
}

#[test]
fn another_source_is_followed() {
    let other = Link { source: Some(at("elsewhere")), ..runs() };
    let judged = Case::default().of(&[("a", Ok(mysql(&[other])))]);
    assert_eq!(acts(&judged), [("a", &Act::Stop), ("a", &Act::Point), ("a", &Act::Start)]);
}

#[test]
fn other_channels_are_never_touched() {
    let other = Link { name: "west".into(), ..runs() };
    let judged = Case::default().of(&[("a", Ok(mysql(&[runs()]))), ("b", Ok(mysql(&[other])))]);
    assert_eq!((judged.state, judged.steps.len()), (State::Running, 0));
    let own = Link { source: Some(at("B")), ..runs() };
    let judged = Case::default().of(&[("a", Ok(mysql(&[]))), ("b", Ok(mysql(&[own])))]);
    assert_eq!((judged.state, judged.steps.len()), (State::Blocked, 0));
    assert!(judged.reason.contains("the cluster's own"));
}

#[test]
fn without_a_writer_nothing_is_touched() {
    let mut members = members(&[("a", Ok(mysql(&[runs()]))), ("b", Ok(mysql(&[])))]);
    members[0].is_writer = false;
    let judged = Case::default().judge(&members);
    assert_eq!((judged.state, judged.server, judged.steps.len()), (State::Waiting, Some(at("a")), 0));
    let judged = Case::default().of(&[("a", down()), ("b", Ok(mysql(&[runs()])))]);
    assert_eq!((judged.state, judged.steps.len()), (State::Waiting, 0));
}

#[test]
fn of_several_writers_the_one_that_runs_it_keeps_it() {
    let mut members = members(&[("a", Ok(mysql(&[rests()]))), ("b", Ok(mysql(&[runs()]))), ("c", Ok(mysql(&[runs()])))]);
    members.iter_mut().for_each(|member| member.is_writer = true);
    assert_eq!(acts(&Case::default().judge(&members)), [("c", &Act::Stop)]);
}

#[test]
fn one_that_stopped_is_started_again_unless_an_error_stopped_it() {
    assert_eq!(acts(&Case::default().of(&[("a", Ok(mysql(&[rests()])))])), [("a", &Act::Start)]);
    let mut half = runs();
    half.applier = Thread { state: ThreadState::Stopped, error: Some((1062, "Duplicate entry".into())) };
    let judged = Case::default().of(&[("a", Ok(mysql(&[half])))]);
    assert_eq!((judged.state, judged.steps.len()), (State::Failed, 0));
    assert!(judged.reason.contains("Duplicate entry"));
    let mut purged = runs();
    purged.receiver = Thread { state: ThreadState::Stopped, error: Some((13_114, "Got fatal error 1236".into())) };
    assert_eq!(Case::default().of(&[("a", Ok(mysql(&[purged])))]).state, State::Failed);
}

#[test]
fn one_that_gave_up_reaching_its_source_is_started_from_time_to_time() {
    let mut lost = runs();
    lost.receiver = Thread { state: ThreadState::Stopped, error: Some((2003, "cannot connect".into())) };
    let sights = [("a", Ok(mysql(std::slice::from_ref(&lost))))];
    assert_eq!(acts(&Case::default().of(&sights)), [("a", &Act::Start)]);
    let fresh = Case { memory: Memory { is_fresh: true, ..Memory::default() }, ..Case::default() };
    assert_eq!((fresh.of(&sights).state, fresh.of(&sights).steps.len()), (State::Connecting, 0));
    lost.receiver.state = ThreadState::Connecting;
    assert_eq!(Case::default().of(&[("a", Ok(mysql(&[lost])))]).state, State::Connecting);
}

#[test]
fn one_that_is_not_active_is_stopped_once() {
    let case = Case { channel: east(false), ..Case::default() };
    let sights = members(&[("a", Ok(mysql(&[runs()]))), ("b", Ok(mysql(&[rests()]))), ("c", down())]);
    assert_eq!(acts(&case.judge(&sights)), [("a", &Act::Stop)]);
    assert_eq!(released(&case.channel, &sights), [at("b")]);
    let both = [at("a"), at("b")];
    let case = Case { memory: Memory { released: &both, ..Memory::default() }, ..case };
    let judged = case.judge(&sights);
    assert_eq!((judged.state, judged.steps.len()), (State::Inactive, 0));
    assert!(judged.reason.contains("leaves the channel alone"));
    // A server that was away, and comes back with it.
    let back = members(&[("a", Ok(mysql(&[rests()]))), ("c", Ok(mysql(&[runs()])))]);
    assert_eq!(acts(&case.judge(&back)), [("c", &Act::Stop)]);
}

#[test]
fn what_somebody_else_takes_away_again_and_again_is_left_to_them() {
    let b = at("b");
    let sights = [("b", Ok(mysql(&[rests()]))), ("a", Ok(mysql(&[runs()])))];
    let case = |contests| Case { memory: Memory { tended: Some(&b), contests, ..Memory::default() }, ..Case::default() };
    let judged = case(CONTESTS_MAX - 1).of(&sights);
    assert!(judged.is_contested && judged.steps.len() == 1);
    let judged = case(CONTESTS_MAX).of(&sights);
    assert_eq!((judged.state, judged.steps.len()), (State::Blocked, 0));
}

#[test]
fn mysql_goes_on_only_where_nothing_is_lost() {
    let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    let of = |purged: &str, executed: &str, has_gtids| Case {
        source: Source::Mysql { has_gtids, purged: gtids(purged), executed: gtids(executed), uuid: uuid.into() },
        ..Case::default()
    };
    let writer = |has_gtids| {
        let executed = gtids(&format!("{uuid}:1-50,aaaaaaaa-71ca-11e1-9e33-c80aa9429562:1-9"));
        [("a", Ok(Sight { executed, has_gtids, ..mysql(&[rests()]) }))]
    };
    let has = |text: &str| format!("{uuid}:{text}");
    assert!(of(&has("1-50"), &has("1-60"), true).of(&writer(true)).starts());
    for (case, writer, why) in [
        (of(&has("1-51"), &has("1-60"), true), writer(true), "has purged 1 transactions"),
        (of("", &has("1-48"), true), writer(true), "has 2 transactions of the source"),
        (of("", &has("1-60"), false), writer(true), "gtid_mode is not ON on the source"),
        (Case::default(), writer(false), "gtid_mode is not ON on a:3306"),
        (Case { source: Source::Mariadb { logged: position(""), domain: 7 }, ..Case::default() }, writer(true), "is MariaDB"),
    ] {
        let judged = case.of(&writer);
        assert!(judged.state == State::Blocked && judged.reason.contains(why), "{why}: {judged:?}");
    }
}

#[test]
fn mariadb_needs_domains_of_its_own() {
    let of = |logged: &str, domain| Case { source: Source::Mariadb { logged: position(logged), domain }, ..Case::default() };
    let writer = |link: Link| [("a", Ok(mariadb(&[link], "1-1-5,7-3-9", "1-1-5,7-3-9")))];
    assert!(of("7-3-12", 7).of(&writer(rests())).starts());
    let judged = of("1-3-12", 1).of(&writer(rests()));
    assert!(judged.state == State::Blocked && judged.reason.contains("gtid_domain_id of its own"), "{judged:?}");
    let judged = of("7-3-12,1-1-4", 7).of(&writer(rests()));
    assert!(judged.state == State::Blocked && judged.reason.contains("IGNORE_DOMAIN_IDS=(1)"), "{judged:?}");
    assert!(of("7-3-12,1-1-4", 7).of(&writer(Link { ignored_domains: vec![1], ..rests() })).starts());
}

/// Its own cluster would send it the channel's changes again.
#[test]
fn a_mariadb_writer_follows_nobody_of_its_own_cluster() {
    let inner = Link { name: String::new(), source: Some(at("b")), ..runs() };
    let writer = mariadb(&[rests(), inner.clone()], "7-3-9", "7-3-9");
    let judged = Case::default().of(&[("a", Ok(writer.clone())), ("b", down())]);
    assert!(judged.state == State::Waiting && judged.reason.contains("gtid_ignore_duplicates"), "{judged:?}");
    let ignores = Sight { ignores_duplicates: true, ..writer };
    assert!(Case::default().of(&[("a", Ok(ignores)), ("b", down())]).starts());
    let chosen = mariadb(&[rests(), Link { chosen_domains: "1".into(), ..inner }], "7-3-9", "7-3-9");
    assert!(Case::default().of(&[("a", Ok(chosen)), ("b", down())]).starts());
}

#[test]
fn a_galera_node_goes_on_after_what_any_node_has() {
    let case = Case { kind: Kind::Galera, ..Case::default() };
    let writer = Sight { nodes: Some(3), ..mariadb(&[rests()], "7-3-9", "1-1-5,7-3-20") };
    let other = mariadb(&[rests()], "1-9-99,7-3-22", "1-1-5,7-3-22");
    let judged = case.of(&[("a", Ok(writer.clone())), ("b", Ok(other.clone())), ("c", Ok(other.clone()))]);
    assert_eq!(acts(&judged), [("a", &Act::Place(position("7-3-22"))), ("a", &Act::Start)]);
    // One that cannot be asked is a node still.
    let judged = case.of(&[("a", Ok(writer.clone())), ("b", Ok(other.clone())), ("c", down())]);
    assert!(judged.state == State::Waiting && judged.reason.contains("c:3306 may still run the channel"), "{judged:?}");
    let smaller = Sight { nodes: Some(2), ..writer.clone() };
    assert!(case.of(&[("a", Ok(smaller)), ("b", Ok(other.clone())), ("c", down())]).starts());
    // A position cannot be set while any channel runs.
    let west = Link { name: "west".into(), ..runs() };
    let busy = Sight { links: vec![rests(), west], ..writer.clone() };
    let judged = case.of(&[("a", Ok(busy)), ("b", Ok(other.clone())), ("c", Ok(other))]);
    assert!(judged.state == State::Blocked && judged.reason.contains("'west' runs"), "{judged:?}");
    let lacking = Sight { lacks: vec!["wsrep_gtid_mode=ON"], ..writer };
    let judged = case.of(&[("a", Ok(lacking))]);
    assert!(judged.state == State::Blocked && judged.reason.contains("wsrep_gtid_mode=ON"), "{judged:?}");
}
