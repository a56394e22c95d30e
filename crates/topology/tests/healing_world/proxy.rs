//! A proxy: its checks feed the product's own `Topology`, which says where sessions go. Its healer is in `mind`.

use std::rc::Rc;
use std::sync::Arc;

use model::Snapshot;
use model::fleet::{Placement, UnderWay};
use model::snapshot::ServerStatus;
use topology::{Observation, ProbeError, SourcesView, Topology};

use crate::network::{Fault, Node};
use crate::numbers::Gtid;
use crate::server::Gate;
use crate::world::{WRITER, World, addr, place_of};

/// A check has so long.
const CHECK_MS: u64 = 800;
/// Checks while all is well.
const CALM_MS: u64 = 1_000;
/// Checks while the writer is missing.
const HASTE_MS: u64 = 100;
/// Checks that go on in haste only take the test's time.
const HASTE_ENDS_MS: u64 = 15_000;
/// GTIDs that clients got OK for are kept, so many.
const ACKNOWLEDGED_MAX: usize = 10_000;

/// See the module.
pub(crate) struct Proxy {
    pub(crate) topology: Topology,
    snapshot: Arc<Snapshot>,
    pub(crate) is_up: bool,
    /// Bytes from each server to clients.
    pub(crate) received: Vec<u64>,
    /// GTIDs that clients got OK for.
    pub(crate) acknowledged: Vec<Gtid>,
}

fn snapshot(servers: usize) -> Arc<Snapshot> {
    let row = |place: usize| format!("{{ hostgroup={}, address=\"s{}\", port=3306 }}", if place == 0 { 1 } else { 2 }, place + 1);
    let rows: Vec<String> = (0..servers).map(row).collect();
    let text = format!(
        "mysql_servers = ( {} ) mysql_replication_hostgroups = ( {{ writer_hostgroup=1, reader_hostgroup=2 }} )
         mysql_healing = ( {{ writer_hostgroup=1, mode=\"rejoin\" }} )",
        rows.join(", ")
    );
    let (config, _) = model::parse(&text, "world.cnf").unwrap_or_else(|errors| panic!("{errors:?}"));
    Arc::new(Snapshot::compile(&config).unwrap_or_else(|errors| panic!("{errors:?}")))
}

impl Proxy {
    pub(crate) fn new(servers: usize) -> Self {
        let snapshot = snapshot(servers);
        let mut topology = Topology::new();
        topology.configure(&snapshot, 0);
        Self { topology, snapshot, is_up: true, received: vec![0; servers], acknowledged: Vec::new() }
    }

    /// Another process, with what is kept on disk.
    pub(crate) fn restart(&mut self, now_ms: u64) {
        let mut topology = Topology::new();
        topology.recall(self.topology.standings());
        topology.learn(self.topology.knowledge_to_keep());
        topology.configure(&self.snapshot, now_ms);
        (self.topology, self.is_up) = (topology, true);
        self.received.fill(0);
        self.acknowledged.clear();
    }

    fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.topology.layout().hostgroups.get(&WRITER).into_iter().flatten()
    }

    /// The servers that write.
    pub(crate) fn writers(&self) -> Vec<usize> {
        let online = self.placements().filter(|one| one.status == ServerStatus::Online);
        online.map(|one| place_of(&one.server.key.addr())).collect()
    }

    /// The fate of a statement that is under way there, if the server is not a writer any more.
    pub(crate) fn fate(&self, server: usize) -> UnderWay {
        let placement = self.placements().find(|one| place_of(&one.server.key.addr()) == server);
        placement
            .map_or(UnderWay::EndsAfterGrace, |one| if one.status == ServerStatus::Online { UnderWay::MayFinish } else { one.under_way })
    }

    pub(crate) fn acknowledge(&mut self, gtid: Gtid) {
        if self.acknowledged.len() < ACKNOWLEDGED_MAX {
            self.acknowledged.push(gtid);
        }
    }
}

impl World {
    /// One check of each of these servers, all at the same time.
    pub(crate) async fn check(self: &Rc<Self>, proxy: usize, servers: &[usize]) {
        let question = |server: usize| {
            self.send(
                Node::Proxy(proxy),
                server,
                |_| true,
                move |state, _| {
                    let one = &state.servers[server];
                    let source = one.link.as_ref().filter(|link| link.receives() && link.cursor.is_some()).map(|link| link.source);
                    (one.gate != Gate::Open, source, one.id(), state.executed_of(server))
                },
            )
        };
        let sent: Vec<_> = servers.iter().map(|server| (*server, question(*server))).collect();
        let end_ms = self.clock.now_ms() + CHECK_MS;
        for (server, sent) in sent {
            let answer = self.get(sent, end_ms.saturating_sub(self.clock.now_ms())).await;
            let (now_ms, topology) = (self.clock.now_ms(), &mut self.state.borrow_mut().proxies[proxy].topology);
            match answer {
                Ok((is_read_only, source, id, executed)) => {
                    topology.observe(now_ms, &addr(server), Observation::ReadOnly(Ok(is_read_only)));
                    let view = SourcesView { id, ..SourcesView::from_addresses(source.map(addr)) };
                    topology.observe(now_ms, &addr(server), Observation::Sources(Ok(view)));
                    topology.observe(now_ms, &addr(server), Observation::Gtids(Ok(executed)));
                }
                Err(Fault::Refused) => {
                    let error = ProbeError::Unreachable("connection refused".to_owned());
                    topology.observe(now_ms, &addr(server), Observation::ReadOnly(Err(error)));
                }
                Err(Fault::Silent) => topology.observe(now_ms, &addr(server), Observation::ReadOnly(Err(ProbeError::Timeout))),
            }
            if topology.next_tick().is_some_and(|at_ms| at_ms <= now_ms) {
                topology.tick(now_ms);
            }
        }
    }

    /// The checks of a proxy, for ever.
    pub(crate) async fn checks(self: Rc<Self>, proxy: usize) {
        let servers: Vec<usize> = (0..self.state.borrow().servers.len()).collect();
        let (mut before, mut since_ms) = (Vec::new(), 0);
        loop {
            self.check(proxy, &servers).await;
            let (writers, events) = {
                let proxy = &mut self.state.borrow_mut().proxies[proxy];
                (proxy.writers(), proxy.topology.take_events())
            };
            for event in events {
                let server = event.server.map_or(String::new(), |server| server.to_string());
                self.note(|| format!("proxy {proxy}: {server} {} -> {}: {}", event.from, event.to, event.why));
            }
            if writers != before {
                self.note(|| format!("proxy {proxy}: writers {writers:?}"));
                before.clone_from(&writers);
                since_ms = self.clock.now_ms();
            }
            let is_calm = writers.len() == 1 || self.clock.now_ms() > since_ms + HASTE_ENDS_MS;
            let pause_ms = if is_calm { CALM_MS } else { HASTE_MS };
            self.clock.sleep(pause_ms).await;
        }
    }
}
