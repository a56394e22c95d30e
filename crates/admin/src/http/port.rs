//! A port that speaks HTTP/1.1: its listener, which may move while it runs, and its connections, of which there are only so many.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use handover::{Opened, Sockets};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::routes;
use super::seats::{Seat, Seats};
use crate::front::listen::{bind_tcp, take_or_bind_tcp};

/// How long a client may take to send its request's head; also how long a kept connection may be silent.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The port. Lives on the runtime that calls [`Port::listen`].
pub(crate) struct Port {
    name: &'static str,
    seats: Arc<Seats>,
    sockets: Arc<Sockets>,
    open: Option<Open>,
}

struct Open {
    wanted: SocketAddr,
    bound: SocketAddr,
    accepting: JoinHandle<()>,
    _opened: Option<Opened>,
}

impl Port {
    /// A closed one, for `most` connections, which the log calls `name`.
    pub(crate) fn new(name: &'static str, most: usize, sockets: Arc<Sockets>) -> Self {
        Self { name, seats: Arc::new(Seats::new(name, most)), sockets, open: None }
    }

    /// Listens at `wanted` and nowhere else; `serve` is called with each client.
    ///
    /// # Errors
    /// The address that cannot be opened; the old one stays open then.
    pub(crate) async fn listen<S, F>(&mut self, wanted: Option<SocketAddr>, serve: S) -> Result<(), (SocketAddr, io::Error)>
    where
        S: Fn(TcpStream, SocketAddr, Seat) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        if self.open.as_ref().map(|open| open.wanted) == wanted {
            return Ok(());
        }
        let Some(wanted) = wanted else {
            self.shut().await;
            return Ok(());
        };
        // The same port on another address may overlap: then the old one has to go first.
        let old = self.open.as_ref().map(|open| open.wanted).filter(|old| old.port() == wanted.port());
        if old.is_some() {
            self.shut().await;
        }
        match take_or_bind_tcp(wanted, &self.sockets) {
            Ok(listener) => {
                self.shut().await;
                self.accept(wanted, listener, serve);
                Ok(())
            }
            Err(error) => {
                if let Some((old, Ok(listener))) = old.map(|old| (old, bind_tcp(old))) {
                    self.accept(old, listener, serve);
                }
                Err((wanted, error))
            }
        }
    }

    /// The address, with the port that the system chose.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.open.as_ref().map(|open| open.bound)
    }

    /// Stops listening.
    pub(crate) async fn shut(&mut self) {
        if let Some(open) = self.open.take() {
            open.accepting.abort();
            let _ = open.accepting.await;
            tracing::info!("{} no longer listens on {}", self.name, open.bound);
        }
    }

    fn accept<S, F>(&mut self, wanted: SocketAddr, listener: TcpListener, serve: S)
    where
        S: Fn(TcpStream, SocketAddr, Seat) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let bound = listener.local_addr().unwrap_or(wanted);
        tracing::info!("{} listens on {bound}", self.name);
        let opened = self.sockets.opened(&wanted.to_string(), listener.as_fd());
        let _opened = opened.inspect_err(|e| tracing::warn!("the next process cannot take over {wanted}: {e}")).ok();
        let (sockets, seats, name) = (Arc::clone(&self.sockets), Arc::clone(&self.seats), self.name);
        let accepting = tokio::spawn(async move {
            loop {
                match sockets.in_charge(|| listener.accept()).await {
                    Ok((stream, peer)) => {
                        let seat = Seats::take(&seats).await;
                        tokio::spawn(serve(stream, peer, seat));
                    }
                    Err(e) => {
                        tracing::error!("{name}: accept failed: {e}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
        self.open = Some(Open { wanted, bound, accepting, _opened });
    }
}

/// The verdict on a request's head: the allowed length of its body, and values for the answer.
pub(crate) struct Vetted<G> {
    /// Bytes of its body, at most. 0: its body is not read.
    pub max_body: usize,
    /// The value for `answer`.
    pub known: G,
}

/// The answer to a request of which no more is read.
pub(crate) type Refusal = Box<Response<Full<Bytes>>>;

/// Answers requests one after the other until the client leaves or must leave. `vet` judges a request by its head, at most `max_head`
/// bytes. The body is read only after that, so a stranger can make the process keep a head and no more.
pub(crate) async fn converse<I, G, V, A, F>(io: I, seat: Seat, max_head: usize, vet: V, answer: A)
where
    I: AsyncRead + AsyncWrite + Unpin,
    V: Fn(&Parts) -> Result<Vetted<G>, Refusal>,
    A: Fn(Request<Bytes>, G) -> F,
    F: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(|request: Request<Incoming>| {
        let (seat, vet, answer) = (&seat, &vet, &answer);
        async move {
            let (head, body) = request.into_parts();
            let Vetted { max_body, known } = match vet(&head) {
                Ok(vetted) => vetted,
                Err(refusal) => return Ok::<_, Infallible>(*refusal),
            };
            // A client that is still sending has asked nothing yet, and gives way to other clients.
            let body = match max_body {
                0 => Bytes::new(),
                _ => match routes::whole(body, max_body).await {
                    Ok(body) => body,
                    Err(refusal) => return Ok(refusal.into_response()),
                },
            };
            let _working = seat.works();
            Ok(answer(Request::from_parts(head, body), known).await)
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(max_head);
    tokio::select! {
        outcome = server.serve_connection(TokioIo::new(io), service) => {
            if let Err(e) = outcome {
                tracing::debug!("an HTTP connection ended: {e}");
            }
        }
        () = seat.told_to_leave() => {}
    }
}
