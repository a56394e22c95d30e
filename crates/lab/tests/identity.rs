//! A server of another cluster answers at an address of ours: it serves nothing, and ours goes on.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use lab::client::{Client, ConnectOptions};
use lab::fault::Relay;
use lab::topology::{OFFLINE, READER, Topology, WRITER, layout};
use lab::{Galera, Group, Options, Server, Tidegate, wait};

const LIMIT: Duration = Duration::from_secs(60);
const OTHER: &str = "0b5e55ed-0000-4000-8000-0000000000bb";

/// Ours, with its last server behind a relay that can lead elsewhere, another cluster, and the proxy before ours.
struct Bed {
    ours: Topology,
    theirs: Topology,
    relay: Relay,
    proxy: Tidegate,
}

impl Bed {
    fn new(ours: Topology, theirs: Topology) -> Self {
        let create = "CREATE TABLE test.t(i INT PRIMARY KEY)";
        [&ours, &theirs].iter().for_each(|topology| drop(topology.servers()[0].sql(create).unwrap()));
        let relay = Relay::to(&ours.servers()[2].address()).unwrap();
        let mut endpoints = ours.endpoints();
        endpoints[2] = ("127.0.0.1".to_owned(), relay.port());
        let builder = ours.describe_at(Tidegate::builder(), &endpoints, &[]).app_user().user("empty", "", READER);
        let builder =
            builder.variable("monitor_galera_healthcheck_interval", 200).variable("monitor_groupreplication_healthcheck_interval", 200);
        let proxy = builder.variable("monitor_ping_interval", 200).start().unwrap();
        let bed = Self { ours, theirs, relay, proxy };
        bed.wait_places("all of ours", |bed| bed.serves(bed.port(0), WRITER) && bed.serves(bed.relay.port(), READER));
        bed
    }

    fn port(&self, index: usize) -> u16 {
        self.ours.servers()[index].port()
    }

    fn serves(&self, port: u16, hostgroup: i64) -> bool {
        let is_there =
            |p: &lab::topology::Placed| p.hostgroup == hostgroup && p.status == "ONLINE" && p.server.ends_with(&port.to_string());
        layout(&self.proxy).unwrap().iter().any(is_there)
    }

    fn wait_places(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        wait::until(what, LIMIT, || is_so(self).then_some(())).unwrap();
    }

    fn events(&self, of: &str) -> String {
        let sql = format!("SELECT COUNT(*) FROM stats_tidegate_events WHERE {of}");
        self.proxy.admin().unwrap().scalar(sql).unwrap().unwrap()
    }

    /// The last server is gone, and one of theirs answers at its address.
    fn usurp(&self) {
        self.ours.servers()[2].kill9();
        self.relay.cut();
        self.relay.turn_to(&self.theirs.servers()[0].address()).unwrap();
        let told = format!("kind='identity' AND to_state='stranger' AND port={}", self.relay.port());
        wait::until("the stranger to be told", LIMIT, || (self.events(&told) == "1").then_some(())).unwrap();
    }

    fn state(&self) -> String {
        let sql = format!("SELECT state, is_settled FROM stats_tidegate_identities WHERE port={}", self.relay.port());
        let table = self.proxy.admin().unwrap().run(sql).unwrap().table().unwrap();
        table.iter().flatten().flatten().cloned().collect::<Vec<_>>().join(" ")
    }

    /// Starts the proxy again while only a stranger answers: that server stays one until the operator accepts the cluster.
    fn restart_and_accept(&mut self) {
        let file = self.proxy.dir().join("tidegate_writers.json");
        wait::until("the identity to be kept", LIMIT, || fs::read_to_string(&file).ok().filter(|kept| kept.contains("identity"))).unwrap();
        self.proxy.stop().unwrap();
        self.ours.servers()[..2].iter().for_each(|server| server.kill9());
        self.proxy.start_again(&[]).unwrap();
        let told = "kind='identity' AND to_state='stranger' AND hostname IS NULL";
        wait::until("the cluster without servers to be told", LIMIT, || (self.events(told) == "1").then_some(())).unwrap();
        assert!(!self.serves(self.relay.port(), WRITER) && !self.serves(self.relay.port(), READER), "{:?}", layout(&self.proxy));
        let mut admin = self.proxy.admin().unwrap();
        admin.run(format!("ACCEPT CLUSTER HOSTGROUP {WRITER}")).unwrap();
        assert!(admin.run(format!("ACCEPT CLUSTER HOSTGROUP {WRITER}")).unwrap_err().to_string().contains("nothing was changed"));
        self.wait_places("it to write", |bed| bed.serves(bed.relay.port(), WRITER));
        assert_eq!(self.state(), "member 1");
        self.proxy.connect_app().unwrap().run("INSERT INTO t VALUES(1)").unwrap();
        assert_eq!(Bed::rows(self.theirs.servers()[0]), "1");
    }

    fn rows(server: &Server) -> String {
        server.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap()
    }
}

fn ports(servers: &[&Server]) -> BTreeSet<u16> {
    servers.iter().map(|server| server.port()).collect()
}

fn a_stranger_serves_nothing(ours: Topology, theirs: Topology) {
    let mut bed = Bed::new(ours, theirs);
    let mut client: Client = bed.proxy.connect_app().unwrap();
    client.run("INSERT INTO t VALUES(1)").unwrap();
    bed.usurp();
    let mut reader = Client::connect(&ConnectOptions::tcp(bed.proxy.address(), "empty", "")).unwrap();
    for i in 2..200 {
        client.run(format!("INSERT INTO t VALUES({i})")).unwrap();
        let asked: u16 = reader.scalar("SELECT @@port").unwrap().unwrap().parse().unwrap();
        assert!(ports(&bed.ours.servers()).contains(&asked), "{asked} is none of ours");
    }
    assert_eq!(Bed::rows(bed.theirs.servers()[0]), "0");
    assert_eq!(Bed::rows(bed.ours.servers()[0]), "199");
    assert!(bed.serves(bed.port(0), WRITER) && bed.serves(bed.port(1), READER), "{:?}", layout(&bed.proxy));
    let placed = layout(&bed.proxy).unwrap();
    let out = placed.iter().find(|p| p.server.ends_with(&bed.relay.port().to_string())).unwrap();
    assert_eq!((out.hostgroup, &*out.status), (OFFLINE, "SHUNNED"));
    let found = placed.iter().filter(|p| ports(&bed.theirs.servers()).iter().any(|port| p.server.ends_with(&port.to_string())));
    assert_eq!(found.count(), 0, "nobody is found by a stranger's words: {placed:?}");
    assert_eq!(bed.state(), "stranger 1");
    bed.restart_and_accept();
}

#[test]
fn a_node_of_another_galera_cluster_serves_nothing() {
    let ours = Topology::Galera(Galera::start(3, &Options::new()).unwrap());
    a_stranger_serves_nothing(ours, Topology::Galera(Galera::start_elsewhere(3, &Options::new()).unwrap()));
}

#[test]
fn a_member_of_another_group_serves_nothing() {
    let ours = Topology::Group(Group::start(3, &Options::new()).unwrap());
    a_stranger_serves_nothing(ours, Topology::Group(Group::start_named(OTHER, 3, &Options::new()).unwrap()));
}
