//! A proxy's memory per client that is connected and silent.

use std::time::{Duration, Instant};

use super::fleet::{Fleet, Load};
use super::login::{PASSWORD, SCHEMA, USER};
use super::peer::{Kind, Peer};
use super::usage;
use super::work::Work;
use crate::client::{Client, ConnectOptions};
use crate::error::LabError;
use crate::server::Server;

/// This many clients connect before memory is first read. One-time allocations do not count then.
const FIRST: usize = 100;
/// Memory has settled if it has not fallen for this long: allocators return free memory in steps, over ten seconds.
const SETTLE: Duration = Duration::from_secs(12);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Queries a second for the second look: each client sends one, and few are under way at a time.
const PACE: u32 = 4_000;

/// How clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Without TLS.
    Plain,
    /// With TLS towards the proxy.
    Tls,
}

impl Security {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Security::Plain => "plain",
            Security::Tls => "TLS",
        }
    }
}

/// Memory and connecting costs of idle clients.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Which proxy.
    pub kind: Kind,
    /// How the clients connected.
    pub security: Security,
    /// How many.
    pub clients: usize,
    /// Resident bytes for each, after login.
    pub bytes: f64,
    /// Resident bytes for each, after one point select each.
    pub bytes_after_query: f64,
    /// Processor time of the proxy to accept and log in one, in microseconds.
    pub login_us: f64,
}

/// Measures `clients` idle clients on a fresh proxy of this kind.
pub fn measure(kind: Kind, server: &Server, security: Security, clients: usize) -> Result<Idle, LabError> {
    let peer = Peer::start(kind, server)?;
    let pid = peer.pid().ok_or_else(|| LabError::Protocol("idle clients are measured on proxies".to_owned()))?;
    let mut first = Crowd::open(&peer, security, FIRST)?;
    first.one_query_each()?;
    let (empty, before) = (usage::rss_bytes(pid)?, peer.usage()?);
    let mut crowd = Crowd::open(&peer, security, clients.saturating_sub(FIRST))?;
    let count = crowd.len() as f64;
    let spent = peer.usage()?.since(&before);
    let each = |rss: u64| (rss as f64 - empty as f64) / count;
    let bytes = each(settled(pid)?);
    crowd.one_query_each()?;
    let bytes_after_query = each(settled(pid)?);
    Ok(Idle { kind, security, clients, bytes, bytes_after_query, login_us: spent.split_us().0 / count })
}

/// Resident memory once it has stopped falling: a proxy may let go of what only busy clients need some time after they
/// were.
fn settled(pid: u32) -> Result<u64, LabError> {
    let mut least = usage::rss_bytes(pid)?;
    let mut since = Instant::now();
    while since.elapsed() < SETTLE {
        std::thread::sleep(LOOK_EVERY);
        let now = usage::rss_bytes(pid)?;
        if now < least {
            (least, since) = (now, Instant::now());
        }
    }
    usage::rss_bytes(pid)
}

/// Connected clients of either sort.
enum Crowd {
    Plain(Fleet, usize),
    Tls(Vec<Client>),
}

impl Crowd {
    fn open(peer: &Peer, security: Security, clients: usize) -> Result<Crowd, LabError> {
        if security == Security::Plain {
            let load = Load { address: peer.address(), clients, work: Work::PointText, pace: Some(PACE) };
            return Ok(Crowd::Plain(Fleet::open(&load)?, clients));
        }
        let options = ConnectOptions::tcp(peer.address().to_string(), USER, PASSWORD).database(SCHEMA).tls();
        let clients: Result<Vec<Client>, LabError> = (0..clients).map(|_| Client::connect(&options)).collect();
        Ok(Crowd::Tls(clients?))
    }

    fn len(&self) -> usize {
        match self {
            Crowd::Plain(_, clients) => *clients,
            Crowd::Tls(clients) => clients.len(),
        }
    }

    fn one_query_each(&mut self) -> Result<(), LabError> {
        match self {
            // The paced load gives each client its turn.
            Crowd::Plain(fleet, clients) => fleet.run(Duration::from_secs_f64(*clients as f64 / f64::from(PACE))).map(|_| ()),
            Crowd::Tls(clients) => clients.iter_mut().try_for_each(|client| client.run("SELECT c FROM sbtest1 WHERE id=12345").map(|_| ())),
        }
    }
}
