//! Fleets from the text of a configuration file, and helpers for the results of checks.
#![allow(dead_code, clippy::unwrap_used)] // each test uses a part; tests may panic

pub(crate) mod histories;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::fleet::{Signal, SignalKind, UnderWay};
use model::snapshot::ServerStatus;
use model::{HostgroupId, ServerAddr, Snapshot};
use topology::{
    AuroraInstance, AuroraView, CheckKind, Event, GaleraView, GroupView, Identity, Knowledge, Observation, ProbeError, ServerId,
    SourcesView, Topology,
};

/// A compiled configuration.
pub(crate) fn snapshot(text: &str) -> Arc<Snapshot> {
    let (config, _) = model::parse(text, "t.cnf").unwrap_or_else(|errors| panic!("{text}: {errors:#?}"));
    Arc::new(Snapshot::compile(&config).unwrap())
}

/// `a` is `a:3306`.
pub(crate) fn addr(name: &str) -> ServerAddr {
    let (host, port) = name.split_once(':').unwrap_or((name, "3306"));
    ServerAddr { host: host.into(), port: port.parse().unwrap() }
}

/// How a server that is out is to be left, after its status.
fn ends(under_way: UnderWay) -> &'static str {
    match under_way {
        UnderWay::MayFinish => "",
        UnderWay::EndsAfterGrace => ",cut off",
        UnderWay::Severed => ",sever",
    }
}

/// The knowledge after it was written to a file and read again.
fn through_a_file(knowledge: &Knowledge) -> Knowledge {
    serde_json::from_str(&serde_json::to_string(knowledge).unwrap()).unwrap()
}

/// A fleet and its clock.
#[derive(Clone)]
pub(crate) struct Fleet {
    pub topology: Topology,
    pub now_ms: u64,
    /// The sources that servers report.
    pub sources: BTreeMap<String, Result<Vec<ServerAddr>, ProbeError>>,
    /// The ids that servers report.
    pub ids: BTreeMap<String, ServerId>,
}

impl Fleet {
    pub(crate) fn new(text: &str) -> Self {
        let mut topology = Topology::new();
        topology.configure(&snapshot(text), 0);
        Self { topology, now_ms: 0, sources: BTreeMap::new(), ids: BTreeMap::new() }
    }

    /// The fleet after a restart of the proxy, with the state that it keeps.
    pub(crate) fn restarted(&self, text: &str) -> Self {
        let mut topology = Topology::new();
        topology.recall(self.topology.standings());
        topology.learn(through_a_file(&self.topology.knowledge_to_keep()));
        topology.configure(&snapshot(text), 0);
        Self { topology, now_ms: 0, sources: self.sources.clone(), ids: self.ids.clone() }
    }

    /// A new process goes on with all that this one knows.
    pub(crate) fn upgraded(&self, text: &str) -> Self {
        let mut topology = Topology::new();
        topology.recall(self.topology.standings());
        topology.learn(through_a_file(&self.topology.knowledge()));
        topology.configure(&snapshot(text), 0);
        Self { topology, now_ms: 0, sources: self.sources.clone(), ids: self.ids.clone() }
    }

    pub(crate) fn configure(&mut self, text: &str) {
        self.topology.configure(&snapshot(text), self.now_ms);
    }

    /// Lets time pass, and ticks whenever the topology asks for it.
    pub(crate) fn pass(&mut self, ms: u64) -> &mut Self {
        let end = self.now_ms + ms;
        while let Some(at) = self.topology.next_tick().filter(|at| *at <= end) {
            assert!(at > self.now_ms, "next_tick must be in the future");
            self.now_ms = at;
            self.topology.tick(at);
        }
        self.now_ms = end;
        self
    }

    /// A check ended. A writable server has no source unless the test gives one.
    pub(crate) fn see(&mut self, server: &str, seen: Observation) -> &mut Self {
        let is_writable = seen == read_only(false);
        self.topology.observe(self.now_ms, &addr(server), seen);
        if is_writable {
            self.topology.observe(self.now_ms, &addr(server), self.sources_of(server));
        }
        self
    }

    /// The server reports `read_only` and its sources.
    pub(crate) fn see_both(&mut self, server: &str, is_read_only: bool) -> &mut Self {
        self.see(server, read_only(is_read_only));
        self.topology.observe(self.now_ms, &addr(server), self.sources_of(server));
        self
    }

    /// The sources that a server reports.
    fn sources_of(&self, server: &str) -> Observation {
        let sources = self.sources.get(server).cloned().unwrap_or_else(|| Ok(Vec::new()));
        let id = self.ids.get(server).cloned().unwrap_or_default();
        Observation::Sources(sources.map(|sources| SourcesView { id, ..SourcesView::from_addresses(sources) }))
    }

    /// Answers every check of sources that is wanted now.
    pub(crate) fn answer_sources(&mut self) -> &mut Self {
        for check in self.topology.checks().into_iter().filter(|check| check.kind == CheckKind::Sources) {
            self.topology.observe(self.now_ms, &check.addr, self.sources_of(&check.addr.host));
        }
        self
    }

    /// From now on this server replicates from these.
    pub(crate) fn follow(&mut self, server: &str, sources: &[&str]) -> &mut Self {
        self.sources.insert(server.to_owned(), Ok(sources.iter().map(|source| addr(source)).collect()));
        self
    }

    pub(crate) fn signal(&mut self, server: &str, hostgroup: u32, kind: SignalKind) -> &mut Self {
        let signal = Signal { server: addr(server), hostgroup: HostgroupId(hostgroup), kind };
        self.topology.signal(self.now_ms, &signal);
        self
    }

    /// `a b(SHUNNED)`: the servers of a hostgroup, by name.
    pub(crate) fn hostgroup(&self, id: u32) -> String {
        let placements = self.topology.layout().hostgroups.get(&HostgroupId(id)).map_or(&[][..], Vec::as_slice);
        let name = |p: &model::fleet::Placement| {
            let name = if p.server.key.port == 3306 { p.server.key.host.to_string() } else { p.server.key.addr().to_string() };
            match p.status {
                ServerStatus::Online => name,
                status => format!("{name}({}{})", status.as_str(), ends(p.under_way)),
            }
        };
        let mut names: Vec<String> = placements.iter().map(name).collect();
        names.sort();
        names.join(" ")
    }

    /// Hostgroups that have servers, as `100: a; 101: b c`.
    pub(crate) fn layout(&self) -> String {
        let ids: Vec<u32> = self.topology.layout().hostgroups.keys().map(|id| id.0).collect();
        let all = ids.into_iter().map(|id| (id, self.hostgroup(id))).filter(|(_, servers)| !servers.is_empty());
        all.map(|(id, servers)| format!("{id}: {servers}")).collect::<Vec<_>>().join("; ")
    }

    /// Events since the last call, as `kind server from>to`.
    pub(crate) fn events(&mut self) -> Vec<String> {
        let word = |e: &Event| {
            let server = e.server.as_ref().map_or("-".to_owned(), |s| s.host.to_string());
            format!("{} {server} {}>{}", e.kind.as_str(), e.from, e.to)
        };
        self.topology.take_events().iter().map(word).collect()
    }

    /// Events of servers since the last call, as `server from>to: why`.
    pub(crate) fn whys(&mut self) -> Vec<String> {
        let events = self.topology.take_events();
        let word = |e: &Event| Some(format!("{} {}>{}: {}", e.server.as_ref()?.host, e.from, e.to, e.why));
        events.iter().filter_map(word).collect()
    }

    /// The shortest interval of the checks of a server that begin with this name.
    pub(crate) fn interval_ms(&self, server: &str, kind: &str) -> u64 {
        let checks = self.topology.checks();
        let of = checks.iter().filter(|c| c.addr == addr(server) && format!("{:?}", c.kind).starts_with(kind));
        of.map(|c| c.interval_ms).min().unwrap_or_else(|| panic!("{server} has no check {kind}: {checks:#?}"))
    }

    /// The kinds of checks of each server.
    pub(crate) fn checks(&self) -> BTreeMap<String, Vec<String>> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for check in self.topology.checks() {
            all.entry(check.addr.to_string()).or_default().push(format!("{:?}", check.kind));
        }
        all
    }
}

pub(crate) fn read_only(is_set: bool) -> Observation {
    Observation::ReadOnly(Ok(is_set))
}

pub(crate) fn unreachable() -> ProbeError {
    ProbeError::Unreachable("connection refused".to_owned())
}

pub(crate) fn synced() -> GaleraView {
    GaleraView {
        local_state: 4,
        read_only: false,
        recv_queue: 0,
        desync: false,
        reject_queries: false,
        sst_donor_rejects_queries: false,
        primary_partition: true,
        maintenance: false,
        segment: 0,
        cluster_size: 3,
        identity: None,
    }
}

/// Says that it belongs to this cluster.
pub(crate) fn of(cluster: &str) -> Option<Identity> {
    Identity::new(cluster)
}

pub(crate) fn galera(change: impl FnOnce(&mut GaleraView)) -> Observation {
    let mut view = synced();
    change(&mut view);
    Observation::Galera(Ok(view))
}

/// The configuration of the issue.
pub(crate) fn issue(writer_is_also_reader: u8) -> String {
    format!(
        "mysql_servers = (
           {{ hostgroup=100, address=\"22\", port=3306, weight=10000, max_connections=2000, comment=\"DC1\" }},
           {{ hostgroup=101, address=\"22\", port=3306, weight=100, max_connections=2000, comment=\"DC1\" }},
           {{ hostgroup=101, address=\"23\", port=3306, weight=10000, max_connections=2000, comment=\"DC1\" }},
           {{ hostgroup=101, address=\"233\", port=3306, weight=10000, max_connections=2000, comment=\"DC1\" }} )
         mysql_galera_hostgroups = ( {{ writer_hostgroup=100, backup_writer_hostgroup=102, reader_hostgroup=101,
           offline_hostgroup=9101, active=1, max_writers=1, writer_is_also_reader={writer_is_also_reader}, max_transactions_behind=10 }} )"
    )
}

/// Three servers of a replication cluster, hostgroups 1 and 2: `a` writes, `b` and `c` read.
pub(crate) const REPLICATION: &str = "mysql_servers = (
    { hostgroup=1, address=\"a\", port=3306 }, { hostgroup=2, address=\"b\", port=3306 }, { hostgroup=2, address=\"c\", port=3306 } )
  mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";

/// A server's view of a group: itself viable and read-only, `a` primary of `a`, `b`, `c`.
pub(crate) fn secondary() -> GroupView {
    GroupView {
        viable: true,
        read_only: true,
        transactions_behind: 0,
        primary: Some(addr("a")),
        members: ["a", "b", "c"].map(|name| (addr(name), "ONLINE".to_owned())).to_vec(),
        view_id: "1".to_owned(),
        identity: None,
        uuid: String::new(),
        uuids: BTreeMap::new(),
    }
}

pub(crate) fn group(change: impl FnOnce(&mut GroupView)) -> Observation {
    let mut view = secondary();
    change(&mut view);
    Observation::Group(Ok(view))
}

/// Three members; hostgroups 1 (writer), 2 (backup), 3 (reader), 4 (offline).
pub(crate) fn group_replication(max_writers: u8, writer_is_also_reader: u8) -> String {
    format!(
        "mysql_servers = ( {{ hostgroup=1, address=\"a\", port=3306 }}, {{ hostgroup=3, address=\"b\", port=3306 }},
           {{ hostgroup=3, address=\"c\", port=3306 }} )
         mysql_group_replication_hostgroups = ( {{ writer_hostgroup=1, backup_writer_hostgroup=2, reader_hostgroup=3,
           offline_hostgroup=4, active=1, max_writers={max_writers}, writer_is_also_reader={writer_is_also_reader},
           max_transactions_behind=100 }} )"
    )
}

/// Aurora's topology as `instances` give it: `name` and lag, ms. The first one writes.
pub(crate) fn aurora(instances: &[(&str, u64)], age_ms: u64) -> Observation {
    let row = |(index, (name, lag_ms)): (usize, &(&str, u64))| AuroraInstance {
        server_id: (*name).to_owned(),
        is_writer: index == 0,
        lag_ms: *lag_ms,
        age_ms,
        cpu: 1,
    };
    Observation::Aurora(Ok(AuroraView { instances: instances.iter().enumerate().map(row).collect() }))
}

/// Three instances `a.x`, `b.x`, `c.x`, hostgroups 0 and 1.
pub(crate) const AURORA: &str =
    "mysql_servers = ( { hostgroup=0, address=\"a.x\", port=3306 }, { hostgroup=1, address=\"b.x\", port=3306 },
    { hostgroup=1, address=\"c.x\", port=3306 } )
  mysql_aws_aurora_hostgroups = ( { writer_hostgroup=0, reader_hostgroup=1, domain_name=\".x\", writer_is_also_reader=1,
    new_reader_weight=7, max_lag_ms=1000 } )";
