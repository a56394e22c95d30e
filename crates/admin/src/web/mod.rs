//! The web page: an operator's view of the proxy, and its actions. It shows and does only what SQL of the admin port can, with the rights
//! of the login.
//!
//! | path | answer |
//! |---|---|
//! | `GET /`, `/app.js`, `/app.css`, `/favicon.svg` | the page, made by npm from `web/` and part of the program |
//! | `POST /api/login`, `/api/logout`, `GET /api/session` | the login, its end, its role |
//! | `GET /api/view/<name>` | the tables of a view, one copy for all viewers |
//! | `GET /api/samples?since=<Unix ms>` | numbers of the last hour, one row a second |
//! | `GET /api/recent?minutes=<n>`, `?digest=<hash>`, `?servers` | the last hour by digest and by server |
//! | `POST /api/sql` | one statement on the admin port |
//!
//! INVARIANT: a page of another origin changes nothing. Before the login is known, no body is read but that of a login.

mod files;
mod guard;
mod recent;
mod samples;
mod sessions;
#[cfg(test)]
mod tests;
mod views;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use handover::Sockets;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION, SET_COOKIE};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use model::control::{AdminAction, AdminEvent};
use model::stats::StatsSource;
use model::{Config, Secret};
use serde_json::{Value, json};
use tls::ServerTls;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::attempts::PAUSE;
use crate::clock::now_ms;
use crate::front::{Accounts, AdminAccount, Exposure, Origin, may_connect};
use crate::handle::EngineHandle;
use crate::http::port::{Port, Refusal, Vetted, converse};
use crate::http::seats::Seat;
use crate::reply::{Reply, Role, SessionInfo};
use files::File;
use guard::Caller;
use recent::Recent;
use samples::Samples;
use sessions::{Sessions, Viewer};
use views::Views;

/// Most connections at a time; a browser opens up to six.
const MAX_CONNECTIONS: usize = 1_024;
/// Largest head of a request, bytes. As much memory a connection may take before anybody knows whose it is.
const MAX_HEAD: usize = 16 << 10;
/// Largest body of a login, bytes.
const MAX_LOGIN: usize = 4 << 10;
/// Largest body of a statement, bytes.
const MAX_BODY: usize = 1 << 20;
/// Most rows of an answer to a statement.
const MAX_ROWS: usize = 10_000;
/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// First byte of a TLS record that begins a handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// The browser's rights for the page: it may load only files from here.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// All that an operator can set about the page.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// The address; `None` if `admin-web_enabled` is off.
    pub listen: Option<SocketAddr>,
    /// The accounts that may log in.
    accounts: Accounts,
    /// TLS, when there is a certificate.
    tls: Option<Arc<ServerTls>>,
    /// `admin-web_plain_http`.
    allows_plain: bool,
    /// `admin-web_hosts`, in lower case.
    hosts: Vec<String>,
    /// `admin-web_idle_timeout`.
    idle: Duration,
    /// `admin-web_trusted_proxies`.
    trusted: Vec<IpAddr>,
    /// `admin-login_failures`.
    most_failures: u64,
    /// The page's warning about guessable passwords.
    exposure: Option<Exposure>,
}

impl WebSettings {
    /// Reads the settings of the page from the configuration.
    ///
    /// # Errors
    /// A sentence that names the variable.
    pub fn read(config: &Config, tls: Option<Arc<ServerTls>>) -> Result<Self, String> {
        let admin = &config.admin;
        let address: IpAddr = admin.web_address.trim().parse().map_err(|_| "admin-web_address must be an IP address".to_owned())?;
        let port = u16::try_from(admin.web_port).map_err(|_| "admin-web_port is out of range".to_owned())?;
        Ok(Self {
            listen: admin.web_enabled.then_some(SocketAddr::new(address, port)),
            accounts: Accounts::of(config),
            tls,
            allows_plain: admin.web_plain_http,
            hosts: admin.web_hosts.split(',').map(|host| host.trim().to_ascii_lowercase()).filter(|host| !host.is_empty()).collect(),
            idle: Duration::from_millis(admin.web_idle_timeout),
            trusted: addresses("admin-web_trusted_proxies", &admin.web_trusted_proxies)?,
            most_failures: admin.login_failures,
            exposure: Exposure::of(config),
        })
    }

    /// The account with this name, if it may log in from this address.
    fn account(&self, user: &str, from: IpAddr) -> Option<&AdminAccount> {
        self.accounts.get(user.as_bytes()).filter(|_| may_connect(user.as_bytes(), Origin::of(Some(from))))
    }
}

fn addresses(variable: &str, list: &str) -> Result<Vec<IpAddr>, String> {
    let each = list.split(',').map(str::trim).filter(|text| !text.is_empty());
    let read =
        |text: &str| text.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(|_| format!("{variable}: '{text}' is not an IP address"));
    each.map(read).collect()
}

/// The state that all connections share.
struct Shared {
    engine: EngineHandle,
    settings: RwLock<Arc<WebSettings>>,
    sessions: Sessions,
    views: Views,
    samples: Samples,
    recent: Recent,
    files: Vec<File>,
    last_id: AtomicU64,
}

impl Shared {
    fn settings(&self) -> Arc<WebSettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The page's port. Lives on the runtime that calls [`Web::apply`].
pub struct Web {
    shared: Arc<Shared>,
    port: Port,
    sockets: Arc<Sockets>,
    sampling: Option<JoinHandle<()>>,
}

impl Web {
    /// A port that is closed; [`Web::apply`] opens it when it is enabled. `sources` are sampled once a second while it is.
    pub fn new(engine: EngineHandle, settings: WebSettings, sources: Vec<Arc<dyn StatsSource>>, sockets: Arc<Sockets>) -> Self {
        let sources = Arc::new(sources);
        let shared = Shared {
            engine,
            settings: RwLock::new(Arc::new(settings)),
            sessions: Sessions::default(),
            views: Views::new(),
            samples: Samples::new(Arc::clone(&sources)),
            recent: Recent::new(sources),
            files: files::all(),
            last_id: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared), port: Port::new("web page", MAX_CONNECTIONS, Arc::clone(&sockets)), sockets, sampling: None }
    }

    /// Puts settings in force.
    ///
    /// # Errors
    /// The address that cannot be opened; the old one stays open then.
    pub async fn apply(&mut self, settings: WebSettings) -> Result<(), (SocketAddr, io::Error)> {
        let shared = Arc::clone(&self.shared);
        self.port.listen(settings.listen, move |stream, peer, seat| serve(stream, peer, Arc::clone(&shared), seat)).await?;
        match (settings.listen, &self.sampling) {
            (Some(_), None) => {
                let (shared, sockets) = (Arc::clone(&self.shared), Arc::clone(&self.sockets));
                let both = async move {
                    tokio::join!(shared.samples.keep_sampling(&sockets), shared.recent.keep_reading(&sockets));
                };
                self.sampling = Some(tokio::spawn(both));
            }
            (None, Some(_)) => self.stop_sampling(),
            _ => {}
        }
        *self.shared.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        Ok(())
    }

    /// The address, with the port that the system chose.
    pub fn address(&self) -> Option<SocketAddr> {
        self.port.address()
    }

    /// Stops listening.
    pub async fn close(&mut self) {
        self.stop_sampling();
        self.port.shut().await;
    }

    fn stop_sampling(&mut self) {
        self.sampling.take().inspect(JoinHandle::abort);
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>, seat: Seat) {
    let _ = stream.set_nodelay(true);
    let is_loopback = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let mut first = [0];
    // A connection without a byte is no client. hyper limits clients that have begun to send.
    let peeked = tokio::time::timeout(HANDSHAKE_TIMEOUT, stream.peek(&mut first)).await;
    let Ok(Ok(1)) = peeked else { return };
    let settings = shared.settings();
    let is_tls = first[0] == TLS_HANDSHAKE;
    let caller = Caller { peer, is_tls, is_loopback };
    let vet = |head: &Parts| vet(&shared, head, caller).map_err(|refusal| Box::new(guarded(*refusal)));
    let answer = |request, known| {
        let shared = Arc::clone(&shared);
        async move { guarded(answer(&shared, &request, known).await) }
    };
    match (is_tls, settings.tls.clone()) {
        (false, _) => converse(stream, seat, MAX_HEAD, vet, answer).await,
        (true, None) => tracing::debug!("web page: {peer} speaks TLS, but the proxy has no certificate"),
        (true, Some(tls)) => match tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(Arc::clone(&tls.config)).accept(stream)).await
        {
            Ok(Ok(stream)) => converse(stream, seat, MAX_HEAD, vet, answer).await,
            failed => tracing::debug!("web page: no TLS with {peer}: {:?}", failed.map(|done| done.err())),
        },
    }
}

/// The headers of every answer.
fn guarded(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let headers = response.headers_mut();
    let all = [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ];
    for (name, value) in all {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned() + "\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn json_bytes(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn json_of(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    json_bytes(status, value.to_string().into())
}

fn refused(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    json_of(status, &json!({ "error": why }))
}

/// The request, as its head says it.
enum Wants {
    /// A file of the page, by its place.
    File(usize),
    Login,
    Session(Viewer),
    Samples,
    Recent,
    View(Viewer),
    Logout(Viewer),
    Sql(Viewer),
}

/// The facts about a request before its body is read.
struct Known {
    settings: Arc<WebSettings>,
    /// The client, behind proxies that are trusted.
    caller: Caller,
    wants: Wants,
}

/// Judges a request by its head. Without a login, it may only send a name and a password.
fn vet(shared: &Shared, head: &Parts, caller: Caller) -> Result<Vetted<Known>, Refusal> {
    let settings = shared.settings();
    let headers = &head.headers;
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !guard::is_own_name(host, &settings.hosts, caller.is_tls) {
        return Err(Box::new(text(
            StatusCode::MISDIRECTED_REQUEST,
            "This page does not answer to that host name: add the name to admin-web_hosts.",
        )));
    }
    if !caller.is_tls && !caller.is_loopback && !settings.allows_plain {
        return Err(Box::new(needs_tls(&settings, host, head)));
    }
    let caller = caller.behind(&settings.trusted, headers);
    let path = head.uri.path();
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let Some(api) = path.strip_prefix("/api/") else {
        return match shared.files.iter().position(|file| file.path == path) {
            Some(place) if is_read => Ok(Vetted { max_body: 0, known: Known { settings, caller, wants: Wants::File(place) } }),
            Some(_) => Err(Box::new(text(StatusCode::METHOD_NOT_ALLOWED, "GET only"))),
            None => Err(Box::new(text(StatusCode::NOT_FOUND, "not found"))),
        };
    };
    guard::is_from_own_page(head, host, caller.is_tls).map_err(|why| Box::new(refused(StatusCode::FORBIDDEN, why)))?;
    if !is_read && api == "login" {
        return Ok(Vetted { max_body: MAX_LOGIN, known: Known { settings, caller, wants: Wants::Login } });
    }
    let viewer = guard::session_id(headers, caller.is_tls).and_then(|id| {
        let is_known = |viewer: &Viewer| settings.account(&viewer.user, caller.peer.ip()) == Some(&viewer.account);
        shared.sessions.find(&id, settings.idle, is_known)
    });
    let has_token = |viewer: &Viewer| guard::has_token(headers, &viewer.token);
    // Without TLS a browser gives the cookie to every port of this host, so it proves nothing by itself.
    let viewer = viewer.filter(|viewer| caller.is_tls || has_token(viewer));
    let Some(viewer) = viewer else { return Err(Box::new(refused(StatusCode::UNAUTHORIZED, "log in first"))) };
    if !is_read && !has_token(&viewer) {
        return Err(Box::new(refused(StatusCode::FORBIDDEN, "the page's token is missing: load the page again")));
    }
    let (wants, max_body) = match (is_read, api) {
        (true, "session") => (Wants::Session(viewer), 0),
        (true, "samples") => (Wants::Samples, 0),
        (true, "recent") => (Wants::Recent, 0),
        (true, _) if api.starts_with("view/") => (Wants::View(viewer), 0),
        (false, "logout") => (Wants::Logout(viewer), MAX_LOGIN),
        (false, "sql") => (Wants::Sql(viewer), MAX_BODY),
        _ => return Err(Box::new(refused(StatusCode::NOT_FOUND, "not found"))),
    };
    Ok(Vetted { max_body, known: Known { settings, caller, wants } })
}

fn needs_tls(settings: &WebSettings, host: &str, head: &Parts) -> Response<Full<Bytes>> {
    let to = HeaderValue::from_str(&format!("https://{host}{}", head.uri.path()));
    let (Some(_), Ok(to)) = (&settings.tls, to) else {
        return text(StatusCode::FORBIDDEN, "This page needs TLS: set mysql-have_ssl, or allow plain HTTP with admin-web_plain_http.");
    };
    let mut response = text(StatusCode::PERMANENT_REDIRECT, "This page needs https://.");
    response.headers_mut().insert(LOCATION, to);
    response
}

async fn answer(shared: &Arc<Shared>, request: &Request<Bytes>, known: Known) -> Response<Full<Bytes>> {
    let Known { settings, caller, wants } = known;
    match wants {
        Wants::File(place) => match shared.files.get(place) {
            Some(file) => file.answer(request.headers()),
            None => text(StatusCode::NOT_FOUND, "not found"),
        },
        Wants::Login => login(shared, &settings, request.body(), caller).await,
        Wants::Session(viewer) => json_of(StatusCode::OK, &session(shared, &viewer)),
        Wants::Recent => json_bytes(StatusCode::OK, shared.recent.show(request.uri().query().unwrap_or_default())),
        Wants::Samples => json_bytes(StatusCode::OK, shared.samples.since(request.uri().query().unwrap_or_default())),
        Wants::View(viewer) => {
            let name = request.uri().path().strip_prefix("/api/view/").unwrap_or_default();
            match shared.views.show(name, viewer.account.role, &shared.engine).await {
                Some(body) => json_bytes(StatusCode::OK, body),
                None => refused(StatusCode::NOT_FOUND, "there is no such view"),
            }
        }
        Wants::Logout(viewer) => {
            shared.sessions.end(&viewer.id);
            tell(shared, &viewer.user, viewer.number, caller, AdminAction::Quit, None);
            let mut response = text(StatusCode::NO_CONTENT, "");
            *response.body_mut() = Full::default();
            response.headers_mut().extend(guard::cookie("", caller.is_tls).map(|cookie| (SET_COOKIE, cookie)));
            response
        }
        Wants::Sql(viewer) => sql(shared, &viewer, request.body(), caller).await,
    }
}

/// A line of the audit log.
fn line(user: &str, number: u64, caller: Caller, action: AdminAction) -> AdminEvent {
    AdminEvent {
        action,
        session_id: number,
        user: model::refusals::shown_name(user.as_bytes()),
        schema: String::new(),
        client: caller.peer.to_string(),
        connected_at_ms: now_ms(),
        is_tls: caller.is_tls,
        extra: None,
    }
}

/// Writes a line to the audit log.
fn tell(shared: &Shared, user: &str, number: u64, caller: Caller, action: AdminAction, extra: Option<String>) {
    shared.engine.audit(AdminEvent { extra, ..line(user, number, caller, action) });
}

/// The page's facts about its login.
fn session(shared: &Shared, viewer: &Viewer) -> Value {
    let me = shared.engine.sharing().map(|sharing| sharing.me());
    let (name, version) = me.map(|me| (me.name, me.version)).unwrap_or_default();
    let role = match viewer.account.role {
        Role::Admin => "admin",
        Role::Stats => "stats",
    };
    let settings = shared.settings();
    // A login for statistics only does not get hints about administrators' logins.
    let exposure = settings.exposure.as_ref().filter(|_| viewer.account.role == Role::Admin);
    let exposure = exposure.map(|exposure| json!({ "text": exposure.text, "open": exposure.is_open }));
    json!({ "user": viewer.user, "role": role, "token": viewer.token, "name": name, "version": version, "exposure": exposure })
}

async fn login(shared: &Arc<Shared>, settings: &WebSettings, body: &[u8], caller: Caller) -> Response<Full<Bytes>> {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let given = |name: &str| parsed.as_ref()?.get(name)?.as_str().map(ToOwned::to_owned);
    let (Some(user), Some(password)) = (given("user"), given("password").map(|password| Secret::from(password.as_str()))) else {
        return refused(StatusCode::BAD_REQUEST, "send user and password as JSON");
    };
    let attempts = shared.engine.attempts();
    let Some(attempt) = attempts.begin(Some(caller.peer.ip()), settings.most_failures).await else {
        return refused(StatusCode::TOO_MANY_REQUESTS, "too many logins from your address failed, and too many wait: try again later");
    };
    let number = shared.last_id.fetch_add(1, Ordering::Relaxed) + 1;
    let account = settings.account(&user, caller.peer.ip()).cloned();
    // Hashes are slow on purpose. The turn ends with the hash, so a wrong password delays no other login.
    let turn = attempts.hashing().await;
    let proven = tokio::task::spawn_blocking(move || account.filter(|account| account.is_proven_by(password.expose())));
    let proven = proven.await.ok().flatten();
    drop(turn);
    let Some(account) = proven else {
        drop(attempt);
        let why = "Access denied";
        tracing::warn!("web page: login as '{}' from {} refused", model::refusals::shown_name(user.as_bytes()), caller.peer);
        tell(shared, &user, number, caller, AdminAction::ConnectErr, Some(why.to_owned()));
        tokio::time::sleep(PAUSE).await;
        return refused(StatusCode::UNAUTHORIZED, "wrong user or password, or this user may not log in from your address");
    };
    attempt.succeeds();
    let viewer = shared.sessions.begin(user, account, number);
    tell(shared, &viewer.user, number, caller, AdminAction::ConnectOk, None);
    let mut response = json_of(StatusCode::OK, &session(shared, &viewer));
    response.headers_mut().extend(guard::cookie(&viewer.id, caller.is_tls).map(|cookie| (SET_COOKIE, cookie)));
    response
}

async fn sql(shared: &Arc<Shared>, viewer: &Viewer, body: &[u8], caller: Caller) -> Response<Full<Bytes>> {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let Some(sql) = parsed.as_ref().and_then(|value| value.get("sql")?.as_str()) else {
        return refused(StatusCode::BAD_REQUEST, "send sql as JSON");
    };
    let info = SessionInfo {
        user: viewer.user.clone(),
        peer: caller.peer.to_string(),
        connection_id: u32::try_from(viewer.number).unwrap_or(u32::MAX),
        audit: Some(Box::new(line(&viewer.user, viewer.number, caller, AdminAction::Statement))),
        ..SessionInfo::default()
    };
    let reply = shared.engine.execute(viewer.account.role, &info, sql.as_bytes().to_vec()).await;
    json_of(
        StatusCode::OK,
        &match reply {
            Reply::Rows { columns, mut rows } => {
                let is_cut = rows.len() > MAX_ROWS;
                rows.truncate(MAX_ROWS);
                json!({ "columns": columns, "rows": views::rows_of(&rows), "cut": is_cut })
            }
            Reply::Ok { affected, info, warnings, .. } => json!({ "affected": affected, "info": info, "warnings": warnings }),
            Reply::Err { code, text, .. } => json!({ "error": { "code": code, "text": text } }),
        },
    )
}
