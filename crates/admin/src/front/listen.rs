//! Sockets that the admin port listens on, and their change while it runs.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use handover::{Opened, Sockets};
use model::Listen;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// Connections the kernel holds for us until they are accepted.
const BACKLOG: i32 = 1024;
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A client that was accepted.
#[derive(Debug)]
pub(crate) enum Arrival {
    Tcp(TcpStream, SocketAddr),
    /// Over a Unix socket.
    Unix(UnixStream),
}

/// A bound socket that accepts clients.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The steps of a change of listeners.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub open: Vec<Listen>,
    pub close: Vec<Listen>,
}

/// The difference between the open listeners and the wanted ones.
pub(crate) fn change<'a>(open: impl Iterator<Item = &'a Listen> + Clone, wanted: &[Listen]) -> Change {
    let mut change = Change::default();
    for listen in wanted {
        if !open.clone().any(|o| o == listen) && !change.open.contains(listen) {
            change.open.push(listen.clone());
        }
    }
    change.close = open.filter(|o| !wanted.contains(o)).cloned().collect();
    change
}

/// Listeners that are open, each with the task that accepts.
#[derive(Debug)]
pub(crate) struct Listeners {
    sockets: Arc<Sockets>,
    open: HashMap<Listen, Open>,
}

#[derive(Debug)]
struct Open {
    address: Listen,
    accepting: JoinHandle<()>,
    _opened: Option<Opened>,
}

impl Listeners {
    /// None yet, among the process's sockets.
    pub(crate) fn new(sockets: Arc<Sockets>) -> Self {
        Self { sockets, open: HashMap::new() }
    }

    /// Opens and closes until the wanted ones are open. On an error everything is as it was. `arrive` is called with each
    /// client. Runs inside the runtime that is to accept.
    pub(crate) async fn apply<F>(&mut self, wanted: &[Listen], arrive: F) -> Result<(), (Listen, io::Error)>
    where
        F: Fn(Arrival) + Clone + Send + 'static,
    {
        let Change { open, close } = change(self.open.keys(), wanted);
        let bound = match self.take_or_bind_all(&open) {
            Ok(bound) => {
                self.close(&close).await;
                bound
            }
            // A new address may overlap an old one, such as 0.0.0.0 and 127.0.0.1: then the old one has to go first.
            Err(_) if !close.is_empty() => {
                self.close(&close).await;
                match bind_all(&open) {
                    Ok(bound) => bound,
                    Err(error) => {
                        match bind_all(&close) {
                            Ok(bound) => self.accept(&close, bound, &arrive),
                            Err((listen, e)) => tracing::error!("cannot listen on {listen} again: {e}"),
                        }
                        return Err(error);
                    }
                }
            }
            Err(error) => return Err(error),
        };
        self.accept(&open, bound, &arrive);
        Ok(())
    }

    /// The addresses for clients: port 0 is replaced by the chosen port.
    pub(crate) fn addresses(&self) -> Vec<Listen> {
        self.open.values().map(|open| open.address.clone()).collect()
    }

    fn accept<F: Fn(Arrival) + Clone + Send + 'static>(&mut self, listens: &[Listen], bound: Vec<Bound>, arrive: &F) {
        for (listen, one) in listens.iter().zip(bound) {
            let address = one.address().unwrap_or_else(|| listen.clone());
            tracing::info!("admin interface listens on {address}");
            let opened = self.sockets.opened(&listen.to_string(), one.as_fd());
            let _opened = opened.inspect_err(|e| tracing::warn!("the next process cannot take over {listen}: {e}")).ok();
            let accepting = tokio::spawn(accept(one, Arc::clone(&self.sockets), arrive.clone()));
            self.open.insert(listen.clone(), Open { address, accepting, _opened });
        }
    }

    /// Closes them; their sockets are closed when this returns.
    async fn close(&mut self, listens: &[Listen]) {
        for listen in listens {
            let Some(open) = self.open.remove(listen) else { continue };
            open.accepting.abort();
            let _ = open.accepting.await;
            // Another process may own the socket's file by now.
            if let (Listen::Unix(path), true) = (listen, self.sockets.is_in_charge()) {
                let _ = model::listen::remove_socket(path);
            }
            tracing::info!("admin interface no longer listens on {listen}");
        }
    }

    fn take_or_bind_all(&self, listens: &[Listen]) -> Result<Vec<Bound>, (Listen, io::Error)> {
        listens.iter().map(|listen| take_or_bind(listen, &self.sockets).map_err(|e| (listen.clone(), e))).collect()
    }

    pub(crate) async fn close_all(&mut self) {
        let all: Vec<Listen> = self.open.keys().cloned().collect();
        self.close(&all).await;
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Bound {
    fn address(&self) -> Option<Listen> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(Listen::Tcp),
            Self::Unix(_) => None,
        }
    }
}

fn bind_all(listens: &[Listen]) -> Result<Vec<Bound>, (Listen, io::Error)> {
    listens.iter().map(|listen| bind(listen).map_err(|e| (listen.clone(), e))).collect()
}

fn take_or_bind(listen: &Listen, sockets: &Sockets) -> io::Result<Bound> {
    let Some(given) = sockets.take(&listen.to_string()) else { return bind(listen) };
    match listen {
        Listen::Tcp(_) => TcpListener::from_std(given.into()).map(Bound::Tcp),
        Listen::Unix(_) => UnixListener::from_std(given.into()).map(Bound::Unix),
    }
}

/// Binds one, or takes that of the process before.
pub(crate) fn take_or_bind_tcp(address: SocketAddr, sockets: &Sockets) -> io::Result<TcpListener> {
    match sockets.take(&address.to_string()) {
        Some(given) => TcpListener::from_std(given.into()),
        None => bind_tcp(address),
    }
}

/// Binds one address. A Unix socket without a listener is replaced.
pub(crate) fn bind(listen: &Listen) -> io::Result<Bound> {
    match listen {
        Listen::Tcp(address) => bind_tcp(*address).map(Bound::Tcp),
        Listen::Unix(path) => bind_unix(path).map(Bound::Unix),
    }
}

/// Binds a TCP socket; one of IPv6 is for IPv6 alone.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::from_std(open_tcp(address)?.into())
}

fn open_tcp(address: SocketAddr) -> io::Result<socket2::Socket> {
    let domain = if address.is_ipv4() { socket2::Domain::IPV4 } else { socket2::Domain::IPV6 };
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether the address could be bound now; leaves nothing behind. `ours` are open and count as free, as they end before.
pub(crate) fn could_bind(listen: &Listen, ours: &[Listen]) -> io::Result<()> {
    if listen.comes_after(ours) {
        return Ok(());
    }
    match listen {
        Listen::Tcp(address) => open_tcp(*address).map(drop),
        Listen::Unix(path) => {
            model::listen::clear_path(path)?;
            drop(std::os::unix::net::UnixListener::bind(path)?);
            model::listen::remove_socket(path)
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    model::listen::clear_path(path)?;
    UnixListener::bind(path)
}

async fn accept<F: Fn(Arrival)>(bound: Bound, sockets: Arc<Sockets>, arrive: F) {
    loop {
        let arrival = match &bound {
            Bound::Tcp(listener) => sockets.in_charge(|| listener.accept()).await.map(|(stream, peer)| Arrival::Tcp(stream, peer)),
            Bound::Unix(listener) => sockets.in_charge(|| listener.accept()).await.map(|(stream, _)| Arrival::Unix(stream)),
        };
        match arrival {
            Ok(arrival) => arrive(arrival),
            // A client that is gone before it was accepted is its own matter; want of descriptors passes.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(e) => {
                tracing::error!("admin interface: accept failed: {e}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_changes() {
        let list = |text: &str| Listen::parse_list(text).unwrap();
        let (old, new) = (list("0.0.0.0:1;/a"), list("/a;[::1]:1;[::1]:1"));
        assert_eq!(change(old.iter(), &new), Change { open: list("[::1]:1"), close: list("0.0.0.0:1") });
        assert_eq!(change(old.iter(), &old), Change::default());
    }
}
