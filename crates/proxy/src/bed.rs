//! Servers, workers and connections for unit tests.

use crate::backends::backend::Backend;
use crate::hostgroups::lane::Lane;
use crate::net::link::Link;
use crate::net::stream::{DetachedSocket, Stream};
use crate::servers::server::ServerShared;
use crate::servers::terms::Terms;
use crate::workers::in_force::InForce;
use crate::workers::shared::Shared;
use crate::workers::worker::Worker;
use model::fleet::{Placement, UnderWay};
use model::snapshot::{Server, ServerStatus, Snapshot};
use model::{Config, HostgroupId};
use session_state::held::Tracking;
use session_state::server_info::{Family, ServerInfo, ServerTracking, TrackDefaults};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use wire::charset::Flavor;
use wire::flags::{Capabilities, StatusFlags};

/// A configuration in which each of these (hostgroup, host) is a server with port 3306.
pub(crate) fn snapshot(servers: &[(u32, &str)], more: &str) -> Arc<Snapshot> {
    let rows: Vec<String> = servers.iter().map(|(hostgroup, host)| format!("{{ hostgroup={hostgroup}, address=\"{host}\" }}")).collect();
    let text = format!("mysql_servers = ( {} )\n{more}", rows.join(", "));
    let (config, _): (Config, _) = model::parse(&text, "test.cnf").unwrap();
    Arc::new(Snapshot::compile(&config).unwrap())
}

/// A server of hostgroup 0 that is placed so.
pub(crate) fn placement(host: &str, weight: u32, status: ServerStatus) -> Placement {
    placement_in(0, host, weight, status)
}

/// The same in any hostgroup.
pub(crate) fn placement_in(hostgroup: u32, host: &str, weight: u32, status: ServerStatus) -> Placement {
    let snapshot = snapshot(&[(hostgroup, host)], "");
    let server = &snapshot.hostgroup(HostgroupId(hostgroup)).unwrap().servers[0];
    Placement { server: Arc::new(Server { weight, ..Server::clone(server) }), status, under_way: UnderWay::MayFinish, why: "".into() }
}

/// What a server of this version says of itself.
pub(crate) fn info(flavor: Flavor, version: &str) -> ServerInfo {
    ServerInfo {
        version: version.into(),
        flavor,
        family: Family::of(flavor, version),
        capabilities: Capabilities::default(),
        collation: 45,
        status: StatusFlags::default(),
        tracking: Arc::default(),
    }
}

/// A server that is ONLINE.
pub(crate) fn server(host: &str, weight: u32) -> Arc<ServerShared> {
    let terms = Terms { default_max_latency_ms: 1000, ..Terms::default() };
    Arc::new(ServerShared::new(&placement(host, weight, ServerStatus::Online), 0, &terms, 0))
}

/// The only worker under this configuration. Nobody runs it.
pub(crate) fn worker(snapshot: Arc<Snapshot>) -> Rc<Worker> {
    let in_force = Arc::new(InForce::compile(snapshot, None).unwrap());
    Worker::new(0, Arc::new(Shared::new(in_force, None, 1, None)))
}

/// A connection, and its other end. Needs a runtime.
pub(crate) fn link() -> (Link, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    (Link::new(Stream::new(DetachedSocket::Unix(near).attach().unwrap())), far)
}

/// A connection of this lane to the first server of its hostgroup, which is of this version; and its other end, where nobody is.
pub(crate) fn backend(worker: &Worker, lane: &Lane, flavor: Flavor, version: &str) -> (Backend, UnixStream) {
    let server = Arc::clone(&worker.pool(lane.key.hostgroup).servers()[0]);
    let info = worker.shared.heard(&server, ServerInfo { status: StatusFlags::AUTOCOMMIT, ..info(flavor, version) });
    let ours = "SET SESSION session_track_schema=ON".into();
    let _ = info.tracking.set(ServerTracking { defaults: TrackDefaults::default(), ours, collations: "".into(), known: Box::default() });
    worker.shared.info.set(ServerInfo::clone(&info));
    let (slot, (link, far)) = (server.take_over(&lane.quota), link());
    let caps = lane.key.class.capabilities() | Capabilities::PROTOCOL_41 | Capabilities::SESSION_TRACK;
    let mut backend = Backend::new(link, lane.key.clone(), server, info, caps, 7, slot, worker.clock.now_ms());
    backend.core.held.began_tracking(Tracking::Ours);
    (backend, far)
}
