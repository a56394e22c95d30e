//! Which nodes can reach each other, and how fast.

use super::pipe::{Cable, End, pair};
use crate::random::Random;
use model::snapshot::Address;
use proxy::sim::{Connecting, Pipe};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::sync::{Notify, mpsc};

/// A participant of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    /// The proxy's workers.
    Proxy,
    /// The prober of the servers.
    Monitor,
    /// The operator that promotes servers.
    Operator,
    /// A server, by number.
    Server(usize),
}

/// The state of a server's address.
enum Host {
    /// A server that accepts.
    Listening(mpsc::UnboundedSender<End>),
    /// The machine is up without a listener: connects are refused.
    Refusing,
    /// The machine is gone: nothing answers.
    Silent,
}

struct Connection {
    server: usize,
    cable: Cable,
}

struct State {
    random: Random,
    /// Longest delay of one direction, ms.
    delay_ms: u64,
    hosts: Vec<Host>,
    /// Pairs that do not hear each other, in both orders.
    cuts: BTreeMap<(Node, Node), u32>,
    connections: Vec<Connection>,
    /// Connections of the proxy to each server, as the proxy counts them; and the most there were.
    open: Vec<(u32, u32)>,
}

/// See the module.
pub(crate) struct Network {
    state: Mutex<State>,
    changed: Notify,
}

impl Network {
    /// A network with so many servers, none of which listens yet.
    pub(crate) fn new(servers: usize, delay_ms: u64, random: Random) -> Arc<Self> {
        let state = State {
            random,
            delay_ms,
            hosts: (0..servers).map(|_| Host::Refusing).collect(),
            cuts: BTreeMap::new(),
            connections: Vec::new(),
            open: vec![(0, 0); servers],
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection between a client and the proxy.
    pub(crate) fn client_pair(&self) -> (End, End) {
        let mut state = self.state();
        let (there, back) = (state.delay(), state.delay());
        let (near, far, _) = pair(there, back);
        (near, far)
    }

    /// The delay of one message from one node to another.
    pub(crate) fn delay(&self) -> Duration {
        self.state().delay()
    }

    /// The server listens; accepted connections are answered.
    pub(crate) fn listen(&self, server: usize) -> mpsc::UnboundedReceiver<End> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.set_host(server, Host::Listening(sender));
        receiver
    }

    /// The server's process is gone: its connections are reset, connects refused.
    pub(crate) fn refuse(&self, server: usize) {
        self.set_host(server, Host::Refusing);
        self.reset_all(server);
    }

    /// The server's machine is gone: its connections fall silent, as do connects.
    pub(crate) fn silence(&self, server: usize) {
        self.set_host(server, Host::Silent);
        for connection in self.state().connections.iter().filter(|c| c.server == server) {
            connection.cable.freeze(true);
        }
    }

    fn set_host(&self, server: usize, host: Host) {
        if let Some(slot) = self.state().hosts.get_mut(server) {
            *slot = host;
        }
        self.changed.notify_waiters();
    }

    /// Resets every connection of the proxy to a server.
    pub(crate) fn reset_all(&self, server: usize) {
        for connection in self.of(server) {
            connection.reset();
        }
    }

    /// Resets one connection of the proxy to a server, if there is any.
    pub(crate) fn reset_one(&self, server: usize, random: &mut Random) {
        let all = self.of(server);
        if !all.is_empty() {
            random.pick(&all).reset();
        }
    }

    fn of(&self, server: usize) -> Vec<Cable> {
        let mut state = self.state();
        state.connections.retain(|c| !c.cable.is_over());
        state.connections.iter().filter(|c| c.server == server).map(|c| c.cable.clone()).collect()
    }

    /// Two nodes do not hear each other from now on. Cuts add up: each is to be mended.
    pub(crate) fn cut(&self, a: Node, b: Node) {
        {
            let mut state = self.state();
            for key in [(a, b), (b, a)] {
                *state.cuts.entry(key).or_default() += 1;
            }
        }
        self.follow_cuts(a, b);
    }

    /// Ends one cut.
    pub(crate) fn mend(&self, a: Node, b: Node) {
        {
            let mut state = self.state();
            for key in [(a, b), (b, a)] {
                if let Some(n) = state.cuts.get_mut(&key) {
                    *n = n.saturating_sub(1);
                }
            }
        }
        self.follow_cuts(a, b);
    }

    fn follow_cuts(&self, a: Node, b: Node) {
        let server = match (a, b) {
            (Node::Proxy, Node::Server(server)) | (Node::Server(server), Node::Proxy) => server,
            _ => return self.changed.notify_waiters(),
        };
        let frozen = !self.hears(a, b) || self.is_silent(server);
        for cable in self.of(server) {
            cable.freeze(frozen);
        }
        self.changed.notify_waiters();
    }

    /// Can the two hear each other?
    pub(crate) fn hears(&self, a: Node, b: Node) -> bool {
        self.state().cuts.get(&(a, b)).is_none_or(|n| *n == 0)
    }

    /// Is its machine gone?
    pub(crate) fn is_silent(&self, server: usize) -> bool {
        matches!(self.state().hosts.get(server), Some(Host::Silent))
    }

    /// Waits for a change of the reachable nodes.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Connections of the proxy to a server: now, and the most there were.
    pub(crate) fn open(&self, server: usize) -> (u32, u32) {
        self.state().open.get(server).copied().unwrap_or_default()
    }

    fn count(&self, server: usize, change: i32) {
        if let Some((now, most)) = self.state().open.get_mut(server) {
            *now = now.saturating_add_signed(change);
            *most = (*most).max(*now);
        }
    }

    /// One try: None while nothing answers.
    fn try_connect(&self, server: usize) -> Option<io::Result<End>> {
        if !self.hears(Node::Proxy, Node::Server(server)) {
            return None;
        }
        let mut state = self.state();
        let (there, back) = (state.delay(), state.delay());
        let answer = match state.hosts.get(server) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(Host::Silent) => return None,
            Some(Host::Refusing) => Err(io::ErrorKind::ConnectionRefused.into()),
            Some(Host::Listening(accept)) => {
                let (near, far, cable) = pair(there, back);
                match accept.send(far) {
                    Ok(()) => Ok((near, cable)),
                    Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
                }
            }
        };
        Some(answer.map(|(near, cable)| {
            state.connections.push(Connection { server, cable });
            near
        }))
    }

    async fn connect(self: Arc<Self>, server: usize) -> io::Result<Box<dyn Pipe>> {
        tokio::time::sleep(self.delay()).await;
        loop {
            let changed = self.changed.notified();
            if let Some(answer) = self.try_connect(server) {
                tokio::time::sleep(self.delay()).await;
                let end = answer?;
                self.count(server, 1);
                let open = Arc::new(Open { server, network: Arc::clone(&self) });
                return Ok(Box::new(Counted { end, open }));
            }
            changed.await;
        }
    }
}

impl State {
    fn delay(&mut self) -> Duration {
        Duration::from_millis(self.random.below(self.delay_ms + 1))
    }
}

/// The number of the server with this address: hosts are named `db0`, `db1`, ...
pub(crate) fn server_of(host: &str) -> Option<usize> {
    host.strip_prefix("db")?.parse().ok()
}

/// The network as the proxy sees it.
pub(crate) struct ProxysView(pub Arc<Network>);

impl proxy::sim::Network for ProxysView {
    fn connect(&self, address: &Address) -> Connecting {
        let server = match address {
            Address::Tcp { host, .. } => server_of(host),
            Address::Unix(_) => None,
        };
        let network = Arc::clone(&self.0);
        Box::pin(async move {
            match server {
                Some(server) => network.connect(server).await,
                None => Err(io::ErrorKind::NotFound.into()),
            }
        })
    }
}

/// The proxy's end of a connection to a server.
struct Counted {
    end: End,
    open: Arc<Open>,
}

/// A connection that is counted until its last copy is dropped.
struct Open {
    server: usize,
    network: Arc<Network>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.network.count(self.server, -1);
    }
}

impl Pipe for Counted {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.end.poll_read_ready(cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.end.poll_write_ready(cx)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pipe::poll_read(&mut self.end, cx, buf)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pipe::poll_write(&mut self.end, cx, bytes)
    }

    fn shutdown(&self) -> io::Result<()> {
        self.end.shutdown()
    }

    fn copy(&self) -> Box<dyn Pipe> {
        Box::new(Self { end: self.end.clone(), open: Arc::clone(&self.open) })
    }
}
