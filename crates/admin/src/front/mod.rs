//! The admin port: MySQL's protocol in front of the SQL engine.
//!
//! Each connection has a task of its own, so a slow client delays no other one. The module owns sockets, logins and packets; the engine
//! interprets SQL. Lives on the runtime that calls [`Front::apply`], once in a process.
//!
//! INVARIANT: every command is answered, or the connection is closed.

mod accounts;
mod answer;
mod exposure;
pub(crate) mod listen;
mod literal;
mod login;
mod packets;
mod prepared;
mod seats;
mod session;
mod split;
#[cfg(test)]
mod tests;
mod trace;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use handover::Sockets;
use model::refusals::{Refusals, Told, WINDOW};
use model::{Config, Listen};
use tls::ServerTls;
use wire::auth::rsa::RsaKey;
use wire::auth::{Channel, Plugin};

pub use accounts::{Accounts, AdminAccount, Origin, may_connect};
pub use exposure::Exposure;

use crate::handle::EngineHandle;
use listen::{Arrival, Listeners};
use login::{Login, Peer};
use packets::Packets;
use seats::Seats;
use trace::Trace;

/// The version announced if `mysql-server_version` is empty.
const FALLBACK_VERSION: &str = "8.0.11";

/// All that an operator can set about the admin port.
#[derive(Debug, Clone)]
pub struct FrontSettings {
    /// The listeners' addresses: `admin-mysql_ifaces`.
    pub listen: Vec<Listen>,
    /// The accounts that may log in.
    pub accounts: Accounts,
    /// Most connections, less the reserve for this machine: `admin-max_connections`.
    pub max_connections: usize,
    /// How long a session may wait for its next command: `admin-wait_timeout`.
    pub idle_timeout: Duration,
    /// The version that clients are told: `mysql-server_version`.
    pub server_version: String,
    /// The plugin that clients are offered first: `mysql-default_authentication_plugin`.
    pub plugin: Plugin,
    /// `admin-login_failures`.
    pub most_failures: u64,
    /// TLS, when it is offered.
    pub tls: Option<Arc<ServerTls>>,
    /// The key for passwords that are kept as hashes; made when one is first needed.
    pub rsa: Option<Arc<RsaKey>>,
}

impl FrontSettings {
    /// Reads the settings of the port from the configuration.
    ///
    /// # Errors
    /// A sentence that names the variable.
    pub fn read(config: &Config, tls: Option<Arc<ServerTls>>) -> Result<Self, String> {
        let (admin, mysql) = (&config.admin, &config.mysql);
        let listen = Listen::parse_list(&admin.mysql_ifaces).map_err(|e| format!("admin-mysql_ifaces: {e}"))?;
        let version = if mysql.server_version.is_empty() { FALLBACK_VERSION } else { &mysql.server_version };
        Ok(Self {
            listen,
            accounts: Accounts::of(config),
            max_connections: usize::try_from(admin.max_connections).unwrap_or(usize::MAX),
            idle_timeout: Duration::from_millis(admin.wait_timeout),
            most_failures: admin.login_failures,
            server_version: version.to_owned(),
            plugin: Plugin::from_name(mysql.default_authentication_plugin.as_str().as_bytes()).unwrap_or(Plugin::Native),
            tls,
            rsa: None,
        })
    }
}

/// The state that all sessions of the port share.
struct Shared {
    engine: EngineHandle,
    settings: RwLock<Arc<FrontSettings>>,
    seats: Arc<Seats>,
    refusals: Arc<Refusals>,
    started: Instant,
    last_id: AtomicU32,
}

impl Shared {
    fn settings(&self) -> Arc<FrontSettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Why a session ended.
#[derive(Debug)]
enum End {
    /// The client left.
    Gone,
    /// The client said goodbye.
    Quit,
    /// No command for too long.
    Idle,
    /// It gave its seat to a local client.
    MadeRoom,
    /// The login took too long.
    LoginTimeout,
    /// The client does not read the answer.
    NotReading,
    /// It was told an error, or spoke something else.
    Refused(String),
    /// The socket failed.
    Lost(io::Error),
}

impl End {
    /// No line in the log is about it.
    fn is_usual(&self) -> bool {
        matches!(self, Self::Gone | Self::Quit | Self::Idle | Self::Lost(_))
    }
}

/// The admin port.
pub struct Front {
    shared: Arc<Shared>,
    listeners: Listeners,
}

impl Front {
    /// A port that does not listen yet; [`Front::apply`] opens it.
    pub fn new(engine: EngineHandle, settings: FrontSettings, sockets: Arc<Sockets>) -> Self {
        let shared = Shared {
            engine,
            settings: RwLock::new(Arc::new(settings)),
            seats: Arc::default(),
            refusals: Arc::default(),
            started: Instant::now(),
            last_id: AtomicU32::new(0),
        };
        Self { shared: Arc::new(shared), listeners: Listeners::new(sockets) }
    }

    /// Puts settings in force: listeners open and close, new logins are judged by them, sessions stay.
    ///
    /// # Errors
    /// The address that cannot be opened. Nothing has changed then.
    pub async fn apply(&mut self, mut settings: FrontSettings) -> Result<(), (Listen, io::Error)> {
        let shared = Arc::clone(&self.shared);
        self.listeners.apply(&settings.listen, move |arrival| arrive(&shared, arrival)).await?;
        settings.rsa = match self.shared.settings().rsa.clone() {
            None if settings.accounts.needs_key() => {
                tokio::task::spawn_blocking(RsaKey::generate).await.ok().and_then(Result::ok).map(Arc::new)
            }
            key => key,
        };
        *self.shared.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        Ok(())
    }

    /// The listeners' addresses, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<Listen> {
        self.listeners.addresses()
    }

    /// Open connections, those before their login too.
    pub fn connections(&self) -> usize {
        self.shared.seats.count()
    }

    /// Stops listening; sessions stay as long as the runtime.
    pub async fn close(&mut self) {
        self.listeners.close_all().await;
    }
}

/// Takes a client in, on a task of its own.
fn arrive(shared: &Arc<Shared>, arrival: Arrival) {
    let (packets, channel, peer) = match arrival {
        Arrival::Tcp(stream, peer) => {
            let _ = stream.set_nodelay(true);
            (Packets::new(stream), Channel::Plain, Some(peer))
        }
        Arrival::Unix(stream) => (Packets::new(stream), Channel::Local, None),
    };
    let origin = Origin::of(peer.map(|p| p.ip()));
    let host = peer.map_or_else(|| "localhost".to_owned(), |p| p.ip().to_string());
    let settings = shared.settings();
    let id = shared.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let trace = Trace::new(shared.engine.clone(), id, peer);
    let (refusals, started) = (Arc::clone(&shared.refusals), shared.started);
    let now_ms = move || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let attempts = Arc::clone(shared.engine.attempts());
    let login = Login::new(packets, channel, Peer { address: peer.map(|peer| peer.ip()), origin, host, attempts }, trace.clone());
    let Some(seat) = shared.seats.take(u64::from(id), origin, settings.max_connections) else {
        trace.is_turned_away("Too many connections");
        tokio::spawn(session::turn_away(login));
        tokio::spawn(
            async move { note_refused(&refusals, peer, now_ms(), &|| tracing::warn!("admin interface: too many connections")).await },
        );
        return;
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let end = session::serve(login, id, seat, shared).await;
        trace.ends(&end);
        if trace.has_entered() || end.is_usual() {
            note_end(peer, &end)
        } else {
            note_refused(&refusals, peer, now_ms(), &|| note_end(peer, &end)).await
        }
    });
}

/// Logs a login that failed. Of many in a short time some are logged, and how many were not.
async fn note_refused(refusals: &Refusals, peer: Option<SocketAddr>, now_ms: u64, note: &(dyn Fn() + Send + Sync)) {
    match refusals.next(peer.map(|peer| peer.ip()), now_ms) {
        Told::Logged => note(),
        Told::LeftOut => {}
        Told::FirstLeftOut => {
            tokio::time::sleep(WINDOW).await;
            tracing::warn!("admin interface: {}", refusals.summary());
        }
    }
}

/// Logs the end of a session if an operator may need it.
fn note_end(peer: Option<SocketAddr>, end: &End) {
    let from = peer.map_or_else(|| "a local socket".to_owned(), |p| p.to_string());
    match end {
        End::Gone | End::Quit | End::Idle => tracing::debug!("admin session from {from} ended: {end:?}"),
        End::MadeRoom => tracing::warn!("admin session from {from} closed to make room for a local client"),
        End::LoginTimeout => tracing::warn!("admin login from {from} took too long"),
        End::NotReading => tracing::warn!("admin session from {from} closed: the client does not read its results"),
        End::Refused(why) => tracing::warn!("admin session from {from}: {why}"),
        End::Lost(e) => tracing::debug!("admin session from {from} was lost: {e}"),
    }
}
