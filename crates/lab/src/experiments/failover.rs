//! The writer is killed with `kill -9`, and a script promotes a replica: for clients of Tidegate, of HAProxy and without a proxy.
//!
//! Semi-synchronous replication with two replicas, a fresh topology for each round. The script waits until the replicas have applied all
//! received transactions. It points the other one to the new writer, and lets that take writes. The time to the first write is measured
//! from just before that moment.

use super::Extent;
use super::report::Series;
use super::round::{self, Changed, Round};
use crate::bench::peer::Kind as PeerKind;
use crate::error::LabError;
use crate::failover::{Load, Peer};
use crate::flavor::Flavor;
use crate::replication;
use crate::server::{Options, Server};
use crate::tidegate::Builder;
use crate::topology::{self, Topology};

/// The program between clients and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// None: clients connect to the servers.
    Direct,
    /// HAProxy.
    Haproxy,
    /// Tidegate as it comes.
    Tidegate,
    /// Tidegate with what hides more: replay of transactions, and writes in flight that are looked up.
    TidegateReplay,
}

impl Contender {
    /// All, in the order in which they take turns.
    pub const ALL: [Contender; 4] = [Contender::Direct, Contender::Haproxy, Contender::Tidegate, Contender::TidegateReplay];

    /// Its name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Direct => "direct",
            Contender::Haproxy => "haproxy",
            Contender::Tidegate => "tidegate",
            Contender::TidegateReplay => "tidegate+replay",
        }
    }

    fn start(self, topology: &Topology) -> Result<Peer, LabError> {
        match self {
            Contender::Direct => Peer::start(PeerKind::Direct, topology, |builder| builder),
            Contender::Haproxy => Peer::start(PeerKind::Haproxy, topology, |builder| builder),
            Contender::Tidegate => Peer::start(PeerKind::Tidegate, topology, |builder| builder),
            Contender::TidegateReplay => Peer::start(PeerKind::Tidegate, topology, with_replay),
        }
    }
}

fn with_replay(builder: Builder) -> Builder {
    builder.variable("transaction_replay", true).variable("settle_lost_writes", true)
}

/// The rounds to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which servers.
    pub flavor: Flavor,
    /// Rounds for each contender.
    pub runs: usize,
    /// The contenders, in turn.
    pub contenders: Vec<Contender>,
}

impl Plan {
    /// One round of Tidegate, or twenty of each.
    pub fn new(flavor: Flavor, extent: Extent) -> Plan {
        match extent {
            Extent::Short => Plan { flavor, runs: 1, contenders: vec![Contender::Tidegate] },
            Extent::Full => Plan { flavor, runs: 20, contenders: Contender::ALL.to_vec() },
        }
    }

    /// Runs all contenders in turn, and calls `news` after each round.
    pub fn run(&self, mut news: impl FnMut(Contender, &Round)) -> Result<Vec<Series>, LabError> {
        let named = |contender: &Contender| Series { name: contender.name().to_owned(), rounds: Vec::new() };
        let mut series: Vec<Series> = self.contenders.iter().map(named).collect();
        for _ in 0..self.runs {
            for (contender, series) in self.contenders.iter().zip(&mut series) {
                let round = one(self.flavor, *contender)?;
                news(*contender, &round);
                series.rounds.push(round);
            }
        }
        Ok(series)
    }
}

/// One round on servers of its own.
pub fn one(flavor: Flavor, contender: Contender) -> Result<Round, LabError> {
    let topology = topology::Kind::Replication(flavor).start(&Options::new())?;
    let servers = topology.servers();
    let (writer, replicas) = (servers[0], &servers[1..]);
    round::prepare(writer, replicas)?;
    let peer = contender.start(&topology)?;
    round::run(peer.route(), Load::USUAL, || crash(writer, replicas))
}

fn crash<'a>(writer: &Server, replicas: &[&'a Server]) -> Result<Changed<'a>, LabError> {
    writer.kill9();
    let took_over = replication::fail_over(replicas)?;
    Ok(Changed { writer: replicas[took_over.place], writable: Some(took_over.writable) })
}
