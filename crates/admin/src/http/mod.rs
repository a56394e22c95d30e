//! The HTTP port: metrics, health and REST routes. As in ProxySQL it has neither TLS nor logins. So it listens on loopback unless
//! `admin-restapi_address` says otherwise.
//!
//! | path | answer |
//! |---|---|
//! | `GET /metrics` | metrics in Prometheus' text format |
//! | `GET /healthz` | 200 as long as the process answers |
//! | `GET /readyz` | 200 when clients can be served, else 503 and the reason |
//! | `/sync/<uri>` | the output of a script of `restapi_routes` |

pub(crate) mod port;
mod routes;
pub(crate) mod seats;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

use handover::Sockets;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use model::Config;
use model::stats::StatsSource;
use tokio::net::TcpStream;

pub use routes::Route;

use crate::metrics;
use port::{Port, Vetted, converse};
use routes::{MAX_BODY, Runner};
use seats::Seat;

/// Most connections at a time: for one more, the one that has been without a request for the longest time is closed.
const MAX_CONNECTIONS: usize = 128;

/// Largest head of a request, bytes: parameters of a GET are part of it.
const MAX_HEAD: usize = 64 << 10;

/// Whether clients can be served now; else the reason why not.
pub type Readiness = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// All that an operator can set about the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The address; `None` if `admin-restapi_enabled` is off.
    pub listen: Option<SocketAddr>,
    /// The routes below `/sync/`.
    pub routes: Vec<Route>,
}

impl HttpSettings {
    /// Reads the settings of the port from the configuration.
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

/// The state that all connections share.
struct Shared {
    sources: Vec<Arc<dyn StatsSource>>,
    is_ready: Readiness,
    routes: RwLock<Arc<Vec<Route>>>,
    runner: Runner,
}

/// The HTTP port. Lives on the runtime that calls [`Server::apply`].
pub struct Server {
    shared: Arc<Shared>,
    port: Port,
}

impl Server {
    /// A port that is closed; [`Server::apply`] opens it when it is enabled.
    pub fn new(sources: Vec<Arc<dyn StatsSource>>, is_ready: Readiness, sockets: Arc<Sockets>) -> Self {
        let shared = Shared { sources, is_ready, routes: RwLock::default(), runner: Runner::default() };
        Self { shared: Arc::new(shared), port: Port::new("HTTP interface", MAX_CONNECTIONS, sockets) }
    }

    /// Puts settings in force.
    ///
    /// # Errors
    /// The address that cannot be opened; the old one stays open then.
    pub async fn apply(&mut self, settings: HttpSettings) -> Result<(), (SocketAddr, io::Error)> {
        let shared = Arc::clone(&self.shared);
        self.port.listen(settings.listen, move |stream, _, seat| serve(stream, Arc::clone(&shared), seat)).await?;
        *self.shared.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings.routes);
        Ok(())
    }

    /// The address, with the port that the system chose.
    pub fn address(&self) -> Option<SocketAddr> {
        self.port.address()
    }

    /// Stops listening and ends the scripts.
    pub async fn close(&mut self) {
        self.port.shut().await;
        self.shared.runner.stop();
        self.shared.runner.finished().await;
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>, seat: Seat) {
    let is_loopback = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let vet = |head: &Parts| Ok(Vetted { max_body: body_of(&shared, head, is_loopback), known: () });
    let answer = |request, ()| {
        let shared = Arc::clone(&shared);
        async move { answer(&shared, request, is_loopback).await.into_response() }
    };
    converse(stream, seat, MAX_HEAD, vet, answer).await;
}

/// Bytes of its body that a request may send: only a script's parameters are read.
fn body_of(shared: &Shared, head: &Parts, is_loopback: bool) -> usize {
    let routes = Arc::clone(&shared.routes.read().unwrap_or_else(PoisonError::into_inner));
    let route = head.uri.path().strip_prefix("/sync/").and_then(|uri| Route::find(&routes, uri, &head.method));
    let is_read = route.is_some() && head.method == Method::POST && !is_foreign(&head.headers, is_loopback);
    if is_read { MAX_BODY } else { 0 }
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
                "requests from pages of another origin, or on loopback for another host name, run no scripts\n",
            ),
            Some(uri) => {
                let routes = Arc::clone(&shared.routes.read().unwrap_or_else(PoisonError::into_inner));
                shared.runner.answer(&routes, uri, request).await
            }
            None => Answer::text(StatusCode::NOT_FOUND, "not found\n"),
        },
    }
}

/// Whether a browser sends the request for another site's page: it says so, names another origin, or reached this machine by a name of the
/// other site. For images and links a browser sends no Origin.
fn is_foreign(headers: &HeaderMap, is_loopback: bool) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST.as_str()).unwrap_or_default();
    let is_other_origin =
        text(ORIGIN.as_str()).is_some_and(|origin| origin.split_once("://").is_none_or(|(_, authority)| authority != host));
    let is_other_site = text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(name, _)| name);
    let is_here = is_fixed_name(name) || name.is_empty();
    is_other_origin || is_other_site || (is_loopback && !is_here)
}

/// Whether the name cannot be pointed elsewhere by a name server: an address, or localhost.
pub(crate) fn is_fixed_name(name: &str) -> bool {
    name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

/// Sources may block for a moment, so they are asked on another thread.
async fn metrics_page(shared: Arc<Shared>) -> Answer {
    let gather = move || metrics::text(&shared.sources.iter().flat_map(|source| source.metrics()).collect::<Vec<_>>());
    match tokio::task::spawn_blocking(gather).await {
        Ok(body) => Answer { status: StatusCode::OK, content_type: Answer::METRICS, body },
        Err(_) => Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "cannot gather the metrics\n"),
    }
}
