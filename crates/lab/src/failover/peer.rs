//! The clients' way to the servers: Tidegate, HAProxy, or directly.
//!
//! HAProxy checks with `mysql-check` every 500 ms and takes a server for dead after two failures. The first server gets writes, the next
//! one in line if it is dead; reads go to all. A client without a proxy has the list of servers: at each connect it looks for the first one
//! that answers and is not read-only.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::bench::peer::{Kind, haproxy_program};
use crate::client::{Client, ConnectOptions};
use crate::dirs;
use crate::error::{IoContext, LabError};
use crate::flavor::Flavor;
use crate::port::Port;
use crate::process::Process;
use crate::tidegate::{Builder, Tidegate};
use crate::topology::Topology;

const START_LIMIT: Duration = Duration::from_secs(10);
/// A client waits this long for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// A client that looks for a server by itself gives each one this long.
const LOOK_LIMIT: Duration = Duration::from_secs(1);
/// Answers only from a server that is part of its cluster.
const ARE_YOU_WRITER: &str = "SELECT @@global.read_only, (SELECT MAX(n) FROM test.writes)";

/// How one kind of clients connects.
#[derive(Clone, Debug)]
pub enum Way {
    /// To one address.
    To(ConnectOptions),
    /// To the first of these that takes writes.
    FirstWriter(Vec<ConnectOptions>),
    /// To the first of these that answers.
    FirstThatAnswers(Vec<ConnectOptions>),
}

impl Way {
    /// A new connection.
    pub(super) fn connect(&self) -> Result<Client, LabError> {
        match self {
            Way::To(options) => Client::connect(options),
            Way::FirstThatAnswers(list) => first(list, Client::connect),
            Way::FirstWriter(list) => first(list, connect_to_writer),
        }
    }
}

/// The first of a list that works, else the last one's error.
fn first(list: &[ConnectOptions], connect: impl Fn(&ConnectOptions) -> Result<Client, LabError>) -> Result<Client, LabError> {
    let mut last = LabError::Protocol("no server".to_owned());
    for options in list {
        match connect(options) {
            Ok(client) => return Ok(client),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to_writer(options: &ConnectOptions) -> Result<Client, LabError> {
    let mut client = Client::connect(options)?;
    match client.scalar(ARE_YOU_WRITER)?.as_deref() {
        Some("0") => Ok(client),
        _ => Err(LabError::Server { code: 1290, sqlstate: "HY000".to_owned(), message: "no server takes writes".to_owned() }),
    }
}

/// Ways for writes and for reads.
#[derive(Clone, Debug)]
pub struct Route {
    /// For the clients that write.
    pub writes: Way,
    /// For readers.
    pub reads: Way,
}

/// A peer that runs before a topology. Its process ends when dropped.
#[derive(Debug)]
pub struct Peer {
    kind: Kind,
    route: Route,
    proxy: Proxy,
}

#[derive(Debug)]
enum Proxy {
    None,
    Haproxy { _process: Process, _ports: [Port; 2] },
    Tidegate(Tidegate),
}

impl Peer {
    /// Starts it before `topology`; `arrange` adds to Tidegate's configuration.
    pub fn start(kind: Kind, topology: &Topology, arrange: impl FnOnce(Builder) -> Builder) -> Result<Peer, LabError> {
        match kind {
            Kind::Direct => Ok(direct(topology)),
            Kind::Haproxy => haproxy(topology),
            Kind::Tidegate => Ok(Peer::tidegate(arrange(topology.proxied()).start()?)),
        }
    }

    /// Tidegate, already running.
    pub fn tidegate(tidegate: Tidegate) -> Peer {
        let way = |user: &str, password: &str| Way::To(tidegate.options(user, password).database("test").timeout(ANSWER_LIMIT));
        let route = Route { writes: way("app", "app-pass"), reads: way("empty", "") };
        Peer { kind: Kind::Tidegate, route, proxy: Proxy::Tidegate(tidegate) }
    }

    /// Which it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How clients connect.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Some if this peer is Tidegate.
    pub fn as_tidegate(&self) -> Option<&Tidegate> {
        match &self.proxy {
            Proxy::Tidegate(tidegate) => Some(tidegate),
            Proxy::None | Proxy::Haproxy { .. } => None,
        }
    }
}

fn direct(topology: &Topology) -> Peer {
    let all: Vec<ConnectOptions> = (0..topology.endpoints().len()).map(|index| topology.direct(index).timeout(LOOK_LIMIT)).collect();
    let reads = all.iter().rev().cloned().collect();
    let route = Route { writes: Way::FirstWriter(all), reads: Way::FirstThatAnswers(reads) };
    Peer { kind: Kind::Direct, route, proxy: Proxy::None }
}

fn haproxy(topology: &Topology) -> Result<Peer, LabError> {
    let (dir, ports) = (dirs::instance("haproxy")?, [Port::reserve()?, Port::reserve()?]);
    let config = dir.join("haproxy.cfg");
    let check = mysql_check(topology.servers()[0].flavor());
    let text = haproxy_config(check, &topology.endpoints(), ports[0].number(), ports[1].number());
    fs::write(&config, text).context(|| format!("write {}", config.display()))?;
    let mut command = Command::new(haproxy_program()?);
    command.args(["-db", "-f"]).arg(&config);
    let process = Process::start("haproxy", &command, &dir.join("log"))?;
    process.wait_ready(START_LIMIT, || TcpStream::connect((Ipv4Addr::LOCALHOST, ports[0].number())).ok())?;
    let way = |port: &Port| {
        let options = ConnectOptions::tcp(format!("127.0.0.1:{}", port.number()), "app", "app-pass");
        Way::To(options.database("test").timeout(ANSWER_LIMIT))
    };
    let route = Route { writes: way(&ports[0]), reads: way(&ports[1]) };
    Ok(Peer { kind: Kind::Haproxy, route, proxy: Proxy::Haproxy { _process: process, _ports: ports } })
}

/// Its check logs in with a password plugin that MySQL no longer has; there it is content with the server's greeting.
fn mysql_check(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Mariadb => "option mysql-check user empty post-41",
        Flavor::Mysql => "option mysql-check",
    }
}

/// Writes to the first server that is alive, in their order; reads to all in turn.
fn haproxy_config(check: &str, endpoints: &[(String, u16)], write_port: u16, read_port: u16) -> String {
    let mut text = format!(
        "global\n  nbthread 2\n  maxconn 2000\n\
         defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  {check}\n\
         \x20 default-server check inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions\n\
         listen writes\n  bind 127.0.0.1:{write_port}\n"
    );
    let line = |(index, (host, port)): (usize, &(String, u16)), backup: &str| format!("  server s{index} {host}:{port}{backup}\n");
    for (index, endpoint) in endpoints.iter().enumerate() {
        text.push_str(&line((index, endpoint), if index == 0 { "" } else { " backup" }));
    }
    text.push_str(&format!("listen reads\n  bind 127.0.0.1:{read_port}\n  balance roundrobin\n"));
    text.extend(endpoints.iter().enumerate().map(|entry| line(entry, "")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn haproxy_has_one_server_for_writes_and_all_for_reads() {
        let text = haproxy_config(mysql_check(Flavor::Mariadb), &[("127.0.0.1".to_owned(), 1), ("127.0.0.1".to_owned(), 2)], 10, 20);
        assert_eq!(text.matches(" backup\n").count(), 1);
        assert_eq!(text.matches("server s1").count(), 2);
    }
}
