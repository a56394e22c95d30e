//! Listening sockets, and handing new clients to the workers in turn.

use crate::net::stream::DetachedSocket;
use crate::servers::log_throttle::LogThrottle;
use crate::workers::mailbox::Mail;
use crate::workers::shared::Shared;
use ::handover::Sockets;
use model::Listen;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

/// Connections the kernel holds for us until they are accepted.
const BACKLOG: i32 = 4096;
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Clients that are being refused for want of descriptors at a time.
const SURPLUS: u64 = 4;
/// Pause until they are gone.
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);

/// A bound socket.
pub(crate) enum BoundSocket {
    /// TCP.
    Tcp(std::net::TcpListener),
    /// Unix.
    Unix(std::os::unix::net::UnixListener),
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Binds one listener. A Unix socket that nobody listens on is replaced.
pub(crate) fn bind(listen: &Listen) -> io::Result<BoundSocket> {
    match listen {
        Listen::Tcp(address) => {
            let domain = if address.is_ipv4() { socket2::Domain::IPV4 } else { socket2::Domain::IPV6 };
            let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.bind(&(*address).into())?;
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            Ok(BoundSocket::Tcp(socket.into()))
        }
        Listen::Unix(path) => {
            model::listen::clear_path(path)?;
            let listener = std::os::unix::net::UnixListener::bind(path)?;
            // Whoever may come is the login's matter, as with MySQL's own.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
            listener.set_nonblocking(true)?;
            Ok(BoundSocket::Unix(listener))
        }
    }
}

/// The listener of the process before, where it gave it, else a new one.
pub(crate) fn take_or_bind(listen: &Listen, sockets: &Sockets) -> io::Result<BoundSocket> {
    let Some(given) = sockets.take(&listen.to_string()) else { return bind(listen) };
    Ok(match listen {
        Listen::Tcp(_) => BoundSocket::Tcp(given.into()),
        Listen::Unix(_) => BoundSocket::Unix(given.into()),
    })
}

/// Whether it could be bound now; nothing is left behind. `ours` are open, and will be free for who comes in our place.
pub(crate) fn could_bind(listen: &Listen, ours: &[Listen]) -> io::Result<()> {
    if listen.comes_after(ours) {
        return Ok(());
    }
    drop(bind(listen)?);
    match listen {
        Listen::Unix(path) => model::listen::remove_socket(path),
        Listen::Tcp(_) => Ok(()),
    }
}

/// Pause between attempts to listen again.
const BIND_PAUSE: Duration = Duration::from_millis(200);

/// Accepts clients while `open` is true, until the caller drops the future. While it is false the socket is closed.
pub(crate) async fn serve(
    listen: Listen,
    bound: BoundSocket,
    shared: Arc<Shared>,
    next_worker: Arc<AtomicUsize>,
    mut open: watch::Receiver<bool>,
) {
    let (mut bound, told, name) = (Some(bound), LogThrottle::default(), listen.to_string());
    loop {
        let opened = bound.take().map_or_else(|| bind(&listen), Ok);
        match opened.and_then(|one| Ok((shared.sockets.opened(&name, one.as_fd())?, one))) {
            Ok((_opened, one)) => {
                shared.unopened().remove(&name);
                told.forget();
                shared.listening.fetch_add(1, Ordering::AcqRel);
                tokio::select! {
                    biased;
                    changed = open.wait_for(|open| !open) => match changed {
                        Ok(_) => tracing::info!("paused: no longer listening on {listen}"),
                        Err(_) => return,
                    },
                    result = accept(one, &shared, &next_worker) => if let Err(e) = result {
                        tracing::error!("listening on {listen} failed: {e}");
                    },
                }
                shared.listening.fetch_sub(1, Ordering::AcqRel);
            }
            Err(e) => {
                let text = format!("cannot listen on {name}: {e}");
                if let Some(line) = told.due(&format!("{text}; the proxy keeps trying"), shared.clock.now_ms()) {
                    tracing::error!("{line}");
                }
                shared.unopened().insert(name.clone(), text);
                tokio::time::sleep(BIND_PAUSE).await;
            }
        }
        if open.wait_for(|open| *open).await.is_err() {
            return;
        }
    }
}

async fn accept(bound: BoundSocket, shared: &Arc<Shared>, next_worker: &AtomicUsize) -> io::Result<()> {
    let told = LogThrottle::default();
    match bound {
        BoundSocket::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            let local = listener.local_addr().ok();
            loop {
                leave_room(shared).await;
                match shared.sockets.in_charge(|| listener.accept()).await {
                    Ok((stream, peer)) => {
                        let _ = stream.set_nodelay(true);
                        match stream.into_std() {
                            Ok(stream) => give(shared, next_worker, DetachedSocket::Tcp(stream), Some(peer), local),
                            Err(e) => tracing::warn!("cannot hand a new client to a worker, connection closed: {e}"),
                        }
                    }
                    Err(e) => pause(&e, &told, shared).await,
                }
            }
        }
        BoundSocket::Unix(listener) => {
            let listener = UnixListener::from_std(listener)?;
            loop {
                leave_room(shared).await;
                match shared.sockets.in_charge(|| listener.accept()).await {
                    Ok((stream, _)) => match stream.into_std() {
                        Ok(stream) => give(shared, next_worker, DetachedSocket::Unix(stream), None, None),
                        Err(e) => tracing::warn!("cannot hand a new client to a worker, connection closed: {e}"),
                    },
                    Err(e) => pause(&e, &told, shared).await,
                }
            }
        }
    }
}

/// Waits while so many clients that are to be refused for want of descriptors are not gone yet that they would take the last.
async fn leave_room(shared: &Shared) {
    let most = shared.clients_max.load(Ordering::Relaxed).saturating_add(SURPLUS);
    while shared.frontends.load(Ordering::Acquire) as u64 >= most {
        tokio::time::sleep(REFUSAL_PAUSE).await;
    }
}

/// A client that is gone before it was accepted is its own matter; want of descriptors passes.
async fn pause(e: &io::Error, told: &LogThrottle, shared: &Shared) {
    if e.kind() != io::ErrorKind::ConnectionAborted {
        if let Some(line) = told.due(&format!("accept failed: {e}"), shared.clock.now_ms()) {
            tracing::error!("{line}");
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// In turn, so that the workers serve equally many clients. One that is stuck is passed over, as long as another one is not.
fn give(shared: &Shared, next_worker: &AtomicUsize, socket: DetachedSocket, peer: Option<SocketAddr>, local: Option<SocketAddr>) {
    let (now_ms, limit_ms) = (shared.clock.now_ms(), shared.in_force.load().snapshot.vars.stuck_worker_ms);
    let turn = || next_worker.fetch_add(1, Ordering::Relaxed) % shared.mailboxes.len().max(1);
    let mut next = turn();
    for _ in 1..shared.mailboxes.len() {
        if shared.beats.stuck_ms(next, now_ms, limit_ms).is_none() {
            break;
        }
        next = turn();
    }
    let Some(mailbox) = shared.mailboxes.get(next) else { return };
    shared.frontends.fetch_add(1, Ordering::AcqRel);
    mailbox.send(Mail::Accept { socket, peer, local });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_may_connect_to_a_unix_socket() {
        let path = std::env::temp_dir().join(format!("tidegate-{}-everybody.sock", std::process::id()));
        let _bound = bind(&Listen::Unix(path.clone())).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
        std::fs::remove_file(path).unwrap();
    }
}
