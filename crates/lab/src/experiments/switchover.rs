//! A planned switchover under load, back and forth: `SWITCHOVER HOSTGROUP` through the admin port.
//!
//! The proxy pauses, waits for the new writer to catch up, flips `read_only` on both and resumes. Then it points the old writer and the
//! other replica at the new writer, so that the next switchover can go back.

use std::time::Instant;

use super::Extent;
use super::report::Series;
use super::round::{self, Changed, Round};
use crate::client::ConnectOptions;
use crate::error::LabError;
use crate::failover::{Load, Peer};
use crate::flavor::Flavor;
use crate::replication::Replication;
use crate::server::{Options, Server};
use crate::tidegate::Tidegate;
use crate::topology::{self, Topology, WRITER};

/// How often it goes back or forth.
pub fn runs(extent: Extent) -> usize {
    match extent {
        Extent::Short => 2,
        Extent::Full => 20,
    }
}

/// Switches back and forth, and calls `news` after each round.
pub fn run(flavor: Flavor, runs: usize, mut news: impl FnMut(&Round, &str)) -> Result<Series, LabError> {
    let servers = Replication::start(flavor, 2, &Options::new().durable())?;
    servers.allow_switchover()?;
    let topology = Topology::Replication(servers.into_servers());
    let proxy = topology.proxied().variable("switchover_manages_read_only", true);
    let proxy = proxy.variable("replication_username", "repl").variable("replication_password", "repl-pass");
    let peer = Peer::tidegate(proxy.start()?);
    let Some(proxy) = peer.as_tidegate() else { return Err(LabError::Protocol("no proxy".to_owned())) };
    let mut series = Series { name: format!("{} switchover", flavor.name()), rounds: Vec::new() };
    for number in 0..runs {
        let (from, to) = if number % 2 == 0 { (0, 1) } else { (1, 0) };
        let round = one(&topology, proxy, &peer, from, to)?;
        news(&round.0, &round.1);
        series.rounds.push(round.0);
    }
    Ok(series)
}

/// One switchover, with the proxy's answer.
fn one(topology: &Topology, proxy: &Tidegate, peer: &Peer, from: usize, to: usize) -> Result<(Round, String), LabError> {
    let servers = topology.servers();
    let (old, new, other) = (servers[from], servers[to], servers[2]);
    round::prepare(old, &[new, other])?;
    topology::wait_layout(proxy, "the writer to be known", std::time::Duration::from_secs(20), |placed| {
        placed.iter().any(|one| one.hostgroup == WRITER && one.server == old.address() && one.status == "ONLINE")
    })?;
    let mut said = String::new();
    let round = round::run(peer.route(), Load::USUAL, || {
        said = switch(proxy, new)?;
        Ok(Changed { writer: new, writable: None })
    })?;
    Ok((round, said))
}

/// Gives the order; an answer that is an error is an error.
fn switch(proxy: &Tidegate, to: &Server) -> Result<String, LabError> {
    let options = ConnectOptions::tcp(format!("127.0.0.1:{}", proxy.admin_port()), "admin", "admin");
    let start = Instant::now();
    let reply = crate::client::Client::connect(&options)?.run(format!("SWITCHOVER HOSTGROUP {WRITER} TO '{}'", to.address()))?;
    let text = reply.status().map(|status| status.info.clone()).unwrap_or_default();
    Ok(format!("{} ms: {text}", start.elapsed().as_millis()))
}
