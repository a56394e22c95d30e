//! Two servers and a data plane inside this process. No monitor runs: the test decides the roles.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::in_process::InProcess;
use lab::fault::Relay;
use lab::tidegate::Builder;
use lab::{Client, ConnectOptions, Mariadb, Options, Server, Tidegate, wait};
use model::fleet::{Fleet, Layout, Placement, RoleKeeper, Signal, SignalKind, UnderWay};
use model::snapshot::{ServerStatus, Snapshot};
use model::{HostgroupId, ServerAddr, ServerKey};
use proxy::Control;

/// Longest that anything may take on a machine that does other work too.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Writes go here.
pub(crate) const WRITER: HostgroupId = HostgroupId(0);

/// Gives the data plane the layout that the test set last; records signals.
#[derive(Default)]
pub(crate) struct Keeper {
    layout: Mutex<Option<Layout>>,
    signals: Mutex<Vec<Signal>>,
}

impl RoleKeeper for Keeper {
    fn configure(&self, snapshot: &Arc<Snapshot>) -> Layout {
        self.layout.lock().unwrap().clone().unwrap_or_else(|| Layout::as_configured(snapshot))
    }

    fn signal(&self, signal: Signal) {
        self.signals.lock().unwrap().push(signal);
    }
}

/// How one server is placed.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub hostgroup: HostgroupId,
    /// Which of the two servers.
    pub server: usize,
    pub status: ServerStatus,
    pub under_way: UnderWay,
}

/// ONLINE in the writer hostgroup.
pub(crate) fn writer(server: usize) -> Place {
    Place { hostgroup: WRITER, server, status: ServerStatus::Online, under_way: UnderWay::MayFinish }
}

/// In the writer hostgroup with this status.
pub(crate) fn writer_is(server: usize, status: ServerStatus) -> Place {
    Place { status, ..writer(server) }
}

pub(crate) struct Bed {
    pub servers: [Server; 2],
    pub keeper: Arc<Keeper>,
    pub control: Arc<Control>,
    revision: AtomicU64,
    proxy: InProcess,
    /// Through which the proxy reaches server 0, if it is far.
    pub network: Option<Relay>,
}

impl Bed {
    /// Server 0 is in the writer hostgroup, server 1 in the reader's; clients write.
    pub(crate) fn new(more: impl FnOnce(Builder) -> Builder) -> Bed {
        Bed::with(more, |_| None)
    }

    /// The same, with a network that may fail between the proxy and server 0.
    pub(crate) fn far(more: impl FnOnce(Builder) -> Builder) -> Bed {
        Bed::with(more, |server| Some(Relay::to(&server.address()).unwrap()))
    }

    fn with(more: impl FnOnce(Builder) -> Builder, network: impl FnOnce(&Server) -> Option<Relay>) -> Bed {
        let servers = [0, 1].map(|_| Mariadb::start(&Options::new()).unwrap());
        let network = network(&servers[0]);
        let first = network.as_ref().map_or(servers[0].port(), Relay::port);
        for server in &servers {
            server.sql("CREATE TABLE test.t (n INT PRIMARY KEY, note VARCHAR(40))").unwrap();
        }
        let builder = Tidegate::builder().server(0, "127.0.0.1", first).backend(1, &servers[1]);
        let obeyed = [("attributes", r#"{"comment_directives": true}"#.into())];
        let builder = builder.user_with("app", "app-pass", 0, &obeyed);
        let builder = builder.variable("threads", 2);
        let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
        let keeper = Arc::new(Keeper::default());
        let proxy = InProcess::start("fleet", more(builder), Some(Arc::clone(&keeper) as Arc<dyn RoleKeeper>));
        Bed { servers, keeper, control: Arc::clone(&proxy.control), revision: AtomicU64::new(1), proxy, network }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&ConnectOptions::tcp(&self.proxy.address, "app", "app-pass").database("test").timeout(LIMIT)).unwrap()
    }

    /// A layout that is later than all before.
    pub(crate) fn layout(&self, places: &[Place]) -> Layout {
        let mut layout = Layout { revision: self.revision.fetch_add(1, Ordering::AcqRel) + 1, ..Layout::default() };
        let snapshot = model::control::DataPlane::snapshot(&*self.control);
        for place in places {
            let port = self.addr(place.server).port;
            let known = snapshot.hostgroups.values().flat_map(|h| &h.servers).find(|s| s.key.port == port).unwrap();
            let key = ServerKey { hostgroup: place.hostgroup, ..known.key.clone() };
            let server = Arc::new(model::Server { key, ..model::Server::clone(known) });
            let placement = Placement { server, status: place.status, under_way: place.under_way, why: "the test says so".into() };
            layout.hostgroups.entry(place.hostgroup).or_default().push(placement);
        }
        layout
    }

    pub(crate) fn arrange(&self, places: &[Place]) {
        let layout = self.layout(places);
        *self.keeper.layout.lock().unwrap() = Some(layout.clone());
        self.control.arrange(layout);
    }

    /// As the proxy knows it.
    pub(crate) fn addr(&self, server: usize) -> ServerAddr {
        let relay = self.network.as_ref().filter(|_| server == 0);
        let port = relay.map_or(self.servers[server].port(), Relay::port);
        ServerAddr { host: self.servers[server].host().into(), port }
    }

    /// The answer of the server to `sql`, without the proxy.
    pub(crate) fn ask(&self, server: usize, sql: &str) -> String {
        self.servers[server].scalar(sql).unwrap().unwrap_or_default()
    }

    /// Waits until the server answers so.
    pub(crate) fn until(&self, server: usize, sql: &str, wanted: &str) {
        wait::until(&format!("{sql}: {wanted}"), LIMIT, || (self.ask(server, sql) == wanted).then_some(())).unwrap();
    }

    /// Waits for a signal of this kind about the server.
    pub(crate) fn until_signal(&self, server: usize, kind: SignalKind) {
        let addr = self.addr(server);
        let told = || self.keeper.signals.lock().unwrap().iter().any(|s| s.server == addr && s.kind == kind).then_some(());
        wait::until(&format!("the signal {kind:?}"), LIMIT, told).unwrap();
    }

    /// Waits until so many sessions wait for the writer.
    pub(crate) fn until_waiting(&self, count: u32) {
        wait::until("sessions to wait", LIMIT, || (self.control.load(WRITER).waiting == count).then_some(())).unwrap();
    }
}

/// Which server answers, by its port.
pub(crate) const WHO: &str = "SELECT @@port";

pub(crate) fn get(client: &mut Client, sql: &str) -> String {
    client.scalar(sql).unwrap_or_else(|e| panic!("{sql}: {e}")).unwrap_or_default()
}

/// The error that a statement is answered with: number and text.
pub(crate) fn error(client: &mut Client, sql: &str) -> (u16, String) {
    let reply = client.query(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let told = reply.err().unwrap_or_else(|| panic!("{sql} succeeded"));
    (told.code, told.message.clone())
}
