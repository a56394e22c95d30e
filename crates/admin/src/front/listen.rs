//! Sockets that the admin port listens on, and their change while it runs.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use model::Listen;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// Connections the kernel holds for us until they are accepted.
const BACKLOG: i32 = 1024;
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A client that was accepted.
#[derive(Debug)]
pub enum Arrival {
    /// Over TCP.
    Tcp(TcpStream, SocketAddr),
    /// Over a Unix socket.
    Unix(UnixStream),
}

/// A socket that is bound.
#[derive(Debug)]
pub enum Bound {
    /// TCP.
    Tcp(TcpListener),
    /// Unix.
    Unix(UnixListener),
}

/// What to do about a change of the listeners.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// To be opened.
    pub open: Vec<Listen>,
    /// To be closed.
    pub close: Vec<Listen>,
}

/// What turns the open listeners into the wanted ones.
pub fn change<'a>(open: impl Iterator<Item = &'a Listen> + Clone, wanted: &[Listen]) -> Change {
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
#[derive(Debug, Default)]
pub struct Listeners {
    open: HashMap<Listen, Open>,
}

#[derive(Debug)]
struct Open {
    address: Listen,
    accepting: JoinHandle<()>,
}

impl Listeners {
    /// Opens and closes until the wanted ones are open. On an error everything is as it was. `arrive` is called with each
    /// client. Runs inside the runtime that is to accept.
    pub async fn apply<F>(&mut self, wanted: &[Listen], arrive: F) -> Result<(), (Listen, io::Error)>
    where
        F: Fn(Arrival) + Clone + Send + 'static,
    {
        let Change { open, close } = change(self.open.keys(), wanted);
        let bound = match bind_all(&open) {
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
                            Err((listen, e)) => tracing::error!("{listen} could not be opened again: {e}"),
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

    /// Where clients can connect: the ports that the system chose in place of port 0.
    pub fn addresses(&self) -> Vec<Listen> {
        self.open.values().map(|open| open.address.clone()).collect()
    }

    fn accept<F: Fn(Arrival) + Clone + Send + 'static>(&mut self, listens: &[Listen], bound: Vec<Bound>, arrive: &F) {
        for (listen, one) in listens.iter().zip(bound) {
            let address = one.address().unwrap_or_else(|| listen.clone());
            tracing::info!("admin interface listens on {address}");
            let accepting = tokio::spawn(accept(one, arrive.clone()));
            self.open.insert(listen.clone(), Open { address, accepting });
        }
    }

    /// Closes them; their sockets are closed when this returns.
    async fn close(&mut self, listens: &[Listen]) {
        for listen in listens {
            let Some(open) = self.open.remove(listen) else { continue };
            open.accepting.abort();
            let _ = open.accepting.await;
            if let Listen::Unix(path) = listen {
                let _ = model::listen::remove_socket(path);
            }
            tracing::info!("admin interface no longer listens on {listen}");
        }
    }

    /// Closes all of them.
    pub async fn close_all(&mut self) {
        let all: Vec<Listen> = self.open.keys().cloned().collect();
        self.close(&all).await;
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

/// Binds one. A Unix socket that nobody listens on is replaced.
pub fn bind(listen: &Listen) -> io::Result<Bound> {
    match listen {
        Listen::Tcp(address) => bind_tcp(*address).map(Bound::Tcp),
        Listen::Unix(path) => bind_unix(path).map(Bound::Unix),
    }
}

/// Binds a TCP socket; one of IPv6 is for IPv6 alone.
pub fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
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

/// Whether it could be bound now; nothing is left behind. `ours` are open, and free for who is to come in their place.
pub fn could_bind(listen: &Listen, ours: &[Listen]) -> io::Result<()> {
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

async fn accept<F: Fn(Arrival)>(bound: Bound, arrive: F) {
    loop {
        let arrival = match &bound {
            Bound::Tcp(listener) => listener.accept().await.map(|(stream, peer)| Arrival::Tcp(stream, peer)),
            Bound::Unix(listener) => listener.accept().await.map(|(stream, _)| Arrival::Unix(stream)),
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
