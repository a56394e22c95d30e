//! The HTTP port: metrics, health and REST routes. No TLS and no logins, as in ProxySQL, so it listens on loopback unless
//! `admin-restapi_address` says otherwise.
//!
//! | path | answer |
//! |---|---|
//! | `GET /metrics` | metrics in Prometheus' text format |
//! | `GET /healthz` | 200 as long as the process answers |
//! | `GET /readyz` | 200 when clients can be served, else 503 and the reason |
//! | `/sync/<uri>` | the output of a script of `restapi_routes` |

mod routes;
mod seats;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use handover::{Opened, Sockets};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use model::Config;
use model::stats::StatsSource;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub use routes::Route;

use crate::front::listen::{bind_tcp, take_or_bind_tcp};
use crate::metrics;
use routes::Runner;
use seats::{Seat, Seats};

/// Most connections at a time: for one more, the one that has been without a request for the longest time is closed.
const MAX_CONNECTIONS: usize = 128;
/// How long a client may take to send its request's head; also how long a kept connection may be silent.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether clients can be served now; else the reason why not.
pub type Readiness = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// All that an operator can set about the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Where to listen; `None` when `admin-restapi_enabled` is off.
    pub listen: Option<SocketAddr>,
    /// What `/sync/` knows.
    pub routes: Vec<Route>,
}

impl HttpSettings {
    /// Reads what the configuration says.
    ///
    /// # Errors
    /// A sentence that names the variable.
    pub fn read(config: &Config) -> Result<Self, String> {
        let admin = &config.admin;
        let address: IpAddr = admin.restapi_address.trim().parse().map_err(|_| "admin-restapi_address must be an IP address".to_owned())?;
        let port = u16::try_from(admin.restapi_port).map_err(|_| "admin-restapi_port is out of range".to_owned())?;
        Ok(Self { listen: admin.restapi_enabled.then_some(SocketAddr::new(address, port)), routes: Route::read(config) })
    }
}

/// An answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: StatusCode,
    content_type: &'static str,
    body: String,
}

impl Answer {
    const JSON: &'static str = "application/json";
    /// Prometheus' text format.
    const METRICS: &'static str = "text/plain; version=0.0.4; charset=utf-8";
    const TEXT: &'static str = "text/plain; charset=utf-8";

    fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, content_type: Self::TEXT, body: text.into() }
    }

    fn json(status: StatusCode, value: &serde_json::Value) -> Self {
        Self { status, content_type: Self::JSON, body: value.to_string() }
    }

    fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        response
    }
}

/// What every connection sees.
struct Shared {
    sources: Vec<Arc<dyn StatsSource>>,
    is_ready: Readiness,
    routes: RwLock<Arc<Vec<Route>>>,
    runner: Runner,
    seats: Arc<Seats>,
}

/// The HTTP port. Lives on the runtime that calls [`Server::apply`].
pub struct Server {
    shared: Arc<Shared>,
    sockets: Arc<Sockets>,
    open: Option<Open>,
}

/// A listener that is open.
struct Open {
    wanted: SocketAddr,
    bound: SocketAddr,
    accepting: JoinHandle<()>,
    _opened: Option<Opened>,
}

impl Server {
    /// A port that is closed; [`Server::apply`] opens it when it is enabled.
    pub fn new(sources: Vec<Arc<dyn StatsSource>>, is_ready: Readiness, sockets: Arc<Sockets>) -> Self {
        let seats = Arc::new(Seats::new(MAX_CONNECTIONS));
        let shared = Shared { sources, is_ready, routes: RwLock::default(), runner: Runner::default(), seats };
        Self { shared: Arc::new(shared), sockets, open: None }
    }

    /// Puts settings in force.
    ///
    /// # Errors
    /// The address that cannot be opened; the old one stays open then.
    pub async fn apply(&mut self, settings: HttpSettings) -> Result<(), (SocketAddr, io::Error)> {
        if self.open.as_ref().map(|open| open.wanted) != settings.listen {
            self.listen(settings.listen).await?;
        }
        *self.shared.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings.routes);
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.open.as_ref().map(|open| open.bound)
    }

    /// Stops listening and ends the scripts.
    pub async fn close(&mut self) {
        self.shut().await;
        self.shared.runner.stop();
        self.shared.runner.finished().await;
    }

    async fn listen(&mut self, wanted: Option<SocketAddr>) -> Result<(), (SocketAddr, io::Error)> {
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
                self.serve(wanted, listener);
                Ok(())
            }
            Err(error) => {
                if let Some((old, Ok(listener))) = old.map(|old| (old, bind_tcp(old))) {
                    self.serve(old, listener);
                }
                Err((wanted, error))
            }
        }
    }

    fn serve(&mut self, wanted: SocketAddr, listener: TcpListener) {
        let bound = listener.local_addr().unwrap_or(wanted);
        tracing::info!("HTTP interface listens on {bound}");
        let opened = self.sockets.opened(&wanted.to_string(), listener.as_fd());
        let _opened = opened.inspect_err(|e| tracing::warn!("no other process could take over {wanted}: {e}")).ok();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&self.sockets), Arc::clone(&self.shared)));
        self.open = Some(Open { wanted, bound, accepting, _opened });
    }

    async fn shut(&mut self) {
        if let Some(open) = self.open.take() {
            open.accepting.abort();
            let _ = open.accepting.await;
            tracing::info!("HTTP interface no longer listens on {}", open.bound);
        }
    }
}

async fn accept(listener: TcpListener, sockets: Arc<Sockets>, shared: Arc<Shared>) {
    loop {
        match sockets.in_charge(|| listener.accept()).await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                let seat = Seats::take(&shared.seats).await;
                tokio::spawn(serve(stream, shared, seat));
            }
            Err(e) => {
                tracing::error!("HTTP interface: accept failed: {e}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>, seat: Seat) {
    let is_loopback = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let seat = Arc::new(seat);
    let service = service_fn(|request| {
        let (shared, seat) = (Arc::clone(&shared), Arc::clone(&seat));
        async move {
            // Who is still sending has asked nothing, and makes room for others.
            let request = match routes::whole(request).await {
                Ok(request) => request,
                Err(refusal) => return Ok::<_, Infallible>(refusal.into_response()),
            };
            let working = seat.works();
            let response = answer(&shared, request, is_loopback).await.into_response();
            drop(working);
            Ok(response)
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(64 << 10);
    tokio::select! {
        outcome = server.serve_connection(TokioIo::new(stream), service) => {
            if let Err(e) = outcome {
                tracing::debug!("an HTTP connection ended: {e}");
            }
        }
        () = seat.told_to_leave() => {}
    }
}

async fn answer(shared: &Arc<Shared>, request: Request<Bytes>, is_loopback: bool) -> Answer {
    let path = request.uri().path().to_owned();
    let page = path.strip_suffix('/').unwrap_or(&path);
    match (request.method(), page) {
        (&Method::GET | &Method::HEAD, "/metrics") => metrics_page(Arc::clone(shared)).await,
        (&Method::GET | &Method::HEAD, "/healthz") => Answer::text(StatusCode::OK, "ok\n"),
        (&Method::GET | &Method::HEAD, "/readyz") => match (shared.is_ready)() {
            Ok(()) => Answer::text(StatusCode::OK, "ok\n"),
            Err(why) => Answer::text(StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
        },
        (_, "/metrics" | "/healthz" | "/readyz") => Answer::text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n"),
        _ => match path.strip_prefix("/sync/") {
            Some(_) if is_foreign(request.headers(), is_loopback) => Answer::text(
                StatusCode::FORBIDDEN,
                "scripts are run for no page of another origin, and on loopback for no other host's name\n",
            ),
            Some(uri) => {
                let routes = Arc::clone(&shared.routes.read().unwrap_or_else(PoisonError::into_inner));
                shared.runner.answer(&routes, uri, request).await
            }
            None => Answer::text(StatusCode::NOT_FOUND, "not found\n"),
        },
    }
}

/// Whether a browser sends it for a page from elsewhere: one that names another origin, or that has a name of its own lead to
/// this machine.
fn is_foreign(headers: &HeaderMap, is_loopback: bool) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST).unwrap_or_default();
    let is_other_origin = text(ORIGIN).is_some_and(|origin| origin.split_once("://").is_none_or(|(_, authority)| authority != host));
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(name, _)| name);
    let is_here = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || name.is_empty();
    is_other_origin || (is_loopback && !is_here)
}

/// Sources may block for a moment, so they are asked on another thread.
async fn metrics_page(shared: Arc<Shared>) -> Answer {
    let gather = move || metrics::text(&shared.sources.iter().flat_map(|source| source.metrics()).collect::<Vec<_>>());
    match tokio::task::spawn_blocking(gather).await {
        Ok(body) => Answer { status: StatusCode::OK, content_type: Answer::METRICS, body },
        Err(_) => Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be gathered\n"),
    }
}
