//! The targets of the load: the server itself, HAProxy before it, Tidegate before it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::login::{PASSWORD, USER};
use super::usage::Usage;
use crate::dirs;
use crate::error::{IoContext, LabError};
use crate::flavor::Flavor;
use crate::port::Port;
use crate::process::Process;
use crate::server::{Options, Server};
use crate::tidegate::{Builder, Tidegate};

/// Worker threads of either proxy.
const THREADS: i64 = 2;
/// Clients that Tidegate is told to allow.
const MANY: i64 = 100_000;
/// Connections that the server is told to allow.
const SERVER_CONNECTIONS: usize = 10_500;
/// Descriptors that a process needs besides one for each connection.
const OTHER_FILES: usize = 200;
const START_LIMIT: Duration = Duration::from_secs(10);

/// Which peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The server itself.
    Direct,
    /// HAProxy in TCP mode.
    Haproxy,
    /// Tidegate.
    Tidegate,
}

impl Kind {
    /// All, in the order in which they take turns.
    pub const ALL: [Kind; 3] = [Kind::Direct, Kind::Haproxy, Kind::Tidegate];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::Haproxy => "haproxy",
            Kind::Tidegate => "tidegate",
        }
    }

    /// How many of `wanted` idle clients the limit on open files allows it.
    pub fn idle_clients(self, wanted: usize) -> usize {
        let files = open_files().saturating_sub(OTHER_FILES);
        match self {
            // A descriptor for the client and one for the server.
            Kind::Haproxy => wanted.min(files / 2),
            Kind::Direct | Kind::Tidegate => wanted.min(files),
        }
    }
}

/// A peer that runs. Its process ends when dropped.
#[derive(Debug)]
pub struct Peer {
    kind: Kind,
    address: SocketAddr,
    proxy: Proxy,
}

#[derive(Debug)]
enum Proxy {
    None,
    Haproxy { process: Process, _port: Port },
    Tidegate(Tidegate),
}

impl Drop for Peer {
    /// In good order: an instrumented proxy (`scripts/release`) writes its profile as it ends.
    fn drop(&mut self) {
        if let Proxy::Tidegate(tidegate) = &self.proxy {
            let _ = tidegate.stop();
        }
    }
}

impl Peer {
    /// Starts it before `server` and waits until it listens.
    pub fn start(kind: Kind, server: &Server) -> Result<Peer, LabError> {
        let (proxy, port) = match kind {
            Kind::Direct => (Proxy::None, server.port()),
            Kind::Haproxy => start_haproxy(server)?,
            Kind::Tidegate => return Peer::tidegate(server, |builder| builder),
        };
        Ok(Peer { kind, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), proxy })
    }

    /// Starts Tidegate with what `arrange` adds to its configuration.
    pub fn tidegate(server: &Server, arrange: impl FnOnce(Builder) -> Builder) -> Result<Peer, LabError> {
        let tidegate = arrange(configured(server)).start()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, tidegate.port()));
        Ok(Peer { kind: Kind::Tidegate, address, proxy: Proxy::Tidegate(tidegate) })
    }

    /// Some if this peer is Tidegate.
    pub fn as_tidegate(&self) -> Option<&Tidegate> {
        match &self.proxy {
            Proxy::Tidegate(tidegate) => Some(tidegate),
            Proxy::None | Proxy::Haproxy { .. } => None,
        }
    }

    /// Which it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The proxy's process; `None` for the server itself.
    pub fn pid(&self) -> Option<u32> {
        match &self.proxy {
            Proxy::None => None,
            Proxy::Haproxy { process, .. } => Some(process.pid()),
            Proxy::Tidegate(tidegate) => Some(tidegate.pid()),
        }
    }

    /// The proxy's usage so far; zero for the server itself.
    pub fn usage(&self) -> Result<Usage, LabError> {
        self.pid().map_or(Ok(Usage::default()), Usage::read)
    }

    /// The last lines that the proxy logged.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = match &self.proxy {
            Proxy::None => String::new(),
            Proxy::Haproxy { process, .. } => process.log(),
            Proxy::Tidegate(tidegate) => tidegate.log(),
        };
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// A server with room for the table in memory and for as many connections as there are clients.
pub fn start_server(flavor: Flavor) -> Result<Server, LabError> {
    let options = Options::new()
        .arg(format!("--max-connections={SERVER_CONNECTIONS}"))
        .arg(format!("--open-files-limit={}", open_files()))
        .args(["--innodb-buffer-pool-size=512M", "--back-log=4096", "--thread-cache-size=1200"])
        .args(["--table-open-cache=3000", "--max-allowed-packet=256M"]);
    let server = Server::start(flavor, &options)?;
    let mut root = server.root()?;
    for statement in super::work::TABLE {
        root.run(statement)?;
    }
    Ok(server)
}

/// Raises this process's limit on open files as far as it may; children inherit it.
pub fn raise_open_files() -> Result<(), LabError> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|errno| LabError::io("raise the limit on open files", errno.into()))
}

/// The hard limit on open files of one process.
pub fn open_files() -> usize {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// First line of `haproxy -v`; `None` when it is not installed.
pub fn haproxy_version() -> Option<String> {
    let output = Command::new(haproxy_program().ok()?).arg("-v").output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

/// HAProxy's program. Errors if it is not installed.
pub(crate) fn haproxy_program() -> Result<PathBuf, LabError> {
    let usual = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy", "/usr/bin/haproxy"];
    let found = usual.map(PathBuf::from).into_iter().find(|path| path.exists());
    found.ok_or(LabError::Missing { program: "haproxy".to_owned(), remedy: "scripts/setup" })
}

/// One process with two threads, no logging, and timeouts that no run reaches.
fn start_haproxy(server: &Server) -> Result<(Proxy, u16), LabError> {
    let program = haproxy_program()?;
    let (dir, port) = (dirs::instance("haproxy")?, Port::reserve()?);
    let clients = Kind::Haproxy.idle_clients(SERVER_CONNECTIONS);
    let text = format!(
        "global\n  nbthread {THREADS}\n  maxconn {clients}\n\
         defaults\n  mode tcp\n  timeout connect 60s\n  timeout client 1h\n  timeout server 1h\n\
         listen mysql\n  bind 127.0.0.1:{}\n  server one {}\n",
        port.number(),
        server.address()
    );
    let config = dir.join("haproxy.cfg");
    fs::write(&config, text).context(|| format!("write {}", config.display()))?;
    let mut command = Command::new(program);
    command.args(["-db", "-f"]).arg(&config);
    let process = Process::start("haproxy", &command, &dir.join("log"))?;
    let number = port.number();
    process.wait_ready(START_LIMIT, || TcpStream::connect((Ipv4Addr::LOCALHOST, number)).ok())?;
    Ok((Proxy::Haproxy { process, _port: port }, number))
}

/// Two workers, default settings, limits on clients out of the way.
fn configured(server: &Server) -> Builder {
    Tidegate::builder()
        .backend(0, server)
        .user_with(USER, PASSWORD, 0, &[("max_connections", MANY.into())])
        .variable("threads", THREADS)
        .variable("max_connections", MANY)
}
