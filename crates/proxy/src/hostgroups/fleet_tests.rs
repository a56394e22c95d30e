//! Layouts over what all workers share, with a role keeper that says what the test wants.

use crate::bed::{self, placement_in, snapshot};
use crate::workers::in_force::InForce;
use crate::workers::shared::Shared;
use model::HostgroupId;
use model::fleet::{Layout, Placement, RoleKeeper, Signal, SignalKind};
use model::snapshot::{ServerStatus, Snapshot};
use session_state::server_info::ServerInfo;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use wire::charset::Flavor;
use wire::flags::Capabilities;

/// Places everything as it is configured, with revisions that grow; remembers signals.
#[derive(Default)]
struct Keeper {
    revision: Mutex<u64>,
    signals: Mutex<Vec<Signal>>,
}

impl RoleKeeper for Keeper {
    fn configure(&self, snapshot: &Arc<Snapshot>) -> Layout {
        let mut revision = self.revision.lock().unwrap();
        *revision += 10;
        Layout { revision: *revision, ..Layout::as_configured(snapshot) }
    }

    fn signal(&self, signal: Signal) {
        self.signals.lock().unwrap().push(signal);
    }
}

const ROLES: &str = r#"mysql_replication_hostgroups = ( { writer_hostgroup=0, reader_hostgroup=1 } )"#;

fn shared(keeper: Option<Arc<Keeper>>) -> Shared {
    let snapshot = snapshot(&[(0, "a"), (1, "b")], ROLES);
    let in_force = Arc::new(InForce::compile(snapshot, None).unwrap());
    Shared::new(in_force, keeper.map(|keeper| keeper as Arc<dyn RoleKeeper>), 1, None)
}

fn layout(revision: u64, placements: Vec<Placement>) -> Layout {
    let mut layout = Layout { revision, ..Layout::default() };
    for placement in placements {
        layout.hostgroups.entry(placement.server.key.hostgroup).or_default().push(placement);
    }
    layout
}

/// Who is ONLINE in a hostgroup.
fn online(shared: &Shared, hostgroup: u32) -> Vec<String> {
    let servers = shared.hostgroup(HostgroupId(hostgroup)).servers();
    servers.iter().filter(|s| s.is_online()).map(|s| s.key.host.to_string()).collect()
}

fn placed(hostgroup: u32, host: &str, status: ServerStatus) -> Placement {
    placement_in(hostgroup, host, 1, status)
}

#[test]
fn the_later_layout_holds_whatever_the_order() {
    let shared = shared(Some(Arc::default()));
    assert_eq!((online(&shared, 0), online(&shared, 1)), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert!(shared.arrange(layout(12, vec![placed(0, "b", ServerStatus::Online), placed(1, "a", ServerStatus::Shunned)])));
    assert_eq!((online(&shared, 0), online(&shared, 1)), (vec!["b".to_owned()], vec![]));
    assert!(!shared.arrange(layout(11, vec![placed(0, "a", ServerStatus::Online)])), "older");
    assert_eq!(online(&shared, 0), ["b"]);
    assert_eq!(shared.layout().revision, 12);
    assert!(shared.arrange(layout(13, Vec::new())));
    assert_eq!((online(&shared, 0), online(&shared, 1)), (vec![], vec![]), "a hostgroup that is not named has no servers");
}

/// A LOAD that moves rows does not fight with roles: who serves what, the keeper says, also then.
#[test]
fn a_configuration_is_laid_out_by_the_keeper() {
    let shared = shared(Some(Arc::default()));
    let before = layout(5, vec![placed(0, "z", ServerStatus::Online)]);
    shared.configure_hostgroups(&snapshot(&[(0, "b"), (1, "a")], ROLES));
    assert_eq!((online(&shared, 0), online(&shared, 1), shared.layout().revision), (vec!["b".to_owned()], vec!["a".to_owned()], 20));
    assert!(!shared.arrange(before), "decided before the configuration");
}

#[test]
fn without_a_keeper_the_rows_decide() {
    let shared = shared(None);
    shared.configure_hostgroups(&snapshot(&[(0, "b")], ROLES));
    assert_eq!((online(&shared, 0), online(&shared, 1)), (vec!["b".to_owned()], vec![]));
    let server = Arc::clone(&shared.hostgroup(HostgroupId(0)).servers()[1]);
    shared.server_erred(&server, 1290, b"--read-only", false);
    assert!(!server.standing.is_suspect(shared.clock.now_ms()), "nobody would look whether it is true");
}

#[test]
fn a_refused_write_is_told_and_suspected_where_writes_go() {
    let keeper = Arc::new(Keeper::default());
    let shared = shared(Some(Arc::clone(&keeper)));
    let server = |hostgroup| Arc::clone(&shared.hostgroup(HostgroupId(hostgroup)).servers()[0]);
    for (hostgroup, is_suspect) in [(0, true), (1, false)] {
        let server = server(hostgroup);
        shared.server_erred(&server, 1290, b"... running with the --read-only option ...", false);
        shared.server_erred(&server, 1290, b"... running with the --read-only option ...", false);
        shared.server_erred(&server, 1062, b"Duplicate entry", false);
        assert_eq!(server.standing.is_suspect(shared.clock.now_ms()), is_suspect, "hostgroup {hostgroup}");
    }
    let told = keeper.signals.lock().unwrap().clone();
    let kinds: Vec<_> = told.iter().map(|s| (s.hostgroup.0, s.server.to_string(), s.kind)).collect();
    let expected = [(0, "a:3306".to_owned(), SignalKind::ReadOnly), (1, "b:3306".to_owned(), SignalKind::ReadOnly)];
    assert_eq!(kinds, expected, "once each, for a while");
}

/// `max_num_online_servers`: who resumes a hostgroup does not put one server too many to use; fewer servers do, or a higher limit.
#[test]
fn too_many_servers_stop_a_hostgroup() {
    let most = |most: u32| format!("mysql_hostgroup_attributes = ( {{ hostgroup_id=0, max_num_online_servers={most} }} )");
    let in_force = Arc::new(InForce::compile(snapshot(&[(0, "a")], &most(1)), None).unwrap());
    let shared = Shared::new(in_force, None, 1, None);
    let hostgroup = shared.hostgroup(HostgroupId(0));
    let both = || vec![placed(0, "a", ServerStatus::Online), placed(0, "b", ServerStatus::Online)];
    assert!(!hostgroup.is_held());
    assert!(shared.arrange(layout(1, both())));
    hostgroup.hold(true);
    hostgroup.hold(false);
    assert!(hostgroup.is_held() && hostgroup.crowd().unwrap().starts_with("2 servers are ONLINE"));
    assert!(shared.arrange(layout(2, vec![placed(0, "a", ServerStatus::Shunned), placed(0, "b", ServerStatus::Online)])));
    assert!(!hostgroup.is_held());
    assert!(shared.arrange(layout(3, both())));
    assert!(hostgroup.is_held());
    shared.configure_hostgroups(&snapshot(&[(0, "a"), (0, "b")], &most(2)));
    assert!(!hostgroup.is_held());
}

/// A server that was not heard of does not count, nor does one that has left.
#[test]
fn what_all_servers_have_is_what_each_that_was_heard_of_has() {
    let attributes = Capabilities::QUERY_ATTRIBUTES;
    let shared = shared(None);
    let servers = [0, 1].map(|id| shared.hostgroup(HostgroupId(id)).servers()[0].clone());
    assert!(shared.all_have(attributes));
    shared.heard(&servers[0], ServerInfo { capabilities: attributes, ..bed::info(Flavor::MySql, "8.4.1") });
    assert!(shared.all_have(attributes) && !shared.all_have(attributes | Capabilities::COMPRESS));
    shared.heard(&servers[1], bed::info(Flavor::MariaDb, "11.8.2-MariaDB"));
    assert!(!shared.all_have(attributes));
    assert!(shared.hostgroup(HostgroupId(0)).has(attributes) && !shared.hostgroup(HostgroupId(1)).has(attributes));
    shared.configure_hostgroups(&snapshot(&[(0, "a")], ROLES));
    assert!(shared.all_have(attributes), "the other one has left");
}

/// What clients are told is what the servers are, for as long as one of them is.
#[test]
fn a_server_of_another_version_is_another_server() {
    let (old, new) = ("10.5.29-MariaDB", "8.4.1");
    let info = |version: &str| bed::info(if version == old { Flavor::MariaDb } else { Flavor::MySql }, version);
    let shared = shared(None);
    let servers = [0, 1].map(|id| shared.hostgroup(HostgroupId(id)).servers()[0].clone());
    let told = || (shared.info.get().unwrap().version.clone(), shared.is_mixed.load(Ordering::Relaxed), shared.is_of_one_version());
    for server in &servers {
        let info = shared.heard(server, info(old));
        shared.info.set(ServerInfo::clone(&info));
    }
    assert_eq!(told(), (old.into(), false, true));
    let first = shared.heard(&servers[0], info(new));
    assert_eq!((servers[0].info.turns(), servers[1].info.turns()), (1, 0));
    assert_eq!(told(), (old.into(), true, false), "one of the old version is left");
    let again = shared.heard(&servers[0], info(new));
    assert!(Arc::ptr_eq(&first.tracking, &again.tracking), "what was learnt of it is there for each connection");
    shared.heard(&servers[1], info(new));
    assert_eq!((servers[0].info.turns(), servers[1].info.turns()), (1, 1));
    assert_eq!(told(), (new.into(), true, true));
    // Several behind one address: no news each time.
    for version in [old, new, old, new] {
        shared.heard(&servers[0], info(version));
    }
    assert_eq!(servers[0].info.turns(), 1);
    let (_, turned) = servers[0].heard(info(old), 60_000 + shared.clock.now_ms());
    assert!(turned.unwrap().is_news, "it was put back later");
}
