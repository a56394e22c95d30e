//! What the whole process shares: servers with their limits and health, users' counts, mailboxes of the workers.
//!
//! Nothing here is touched by a statement that finds an idle backend on its own worker, but for one relaxed load per
//! hostgroup (are others waiting?). Counts are exact: a connection to a server exists only while a [`Slot`] is held.

use crate::clock::Clock;
use crate::mailbox::Mailbox;
use model::HostgroupId;
use model::snapshot::{HostgroupAttributes, Server, Snapshot, User};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use wire::auth::rsa::RsaKey;
use wire::charset::Flavor;
use wire::flags::{Capabilities, StatusFlags};

/// What a server said of itself when it was last logged in to.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// `8.0.36`, `5.5.5-10.11.6-MariaDB-...` without the replication prefix.
    pub version: String,
    /// Which family's collations and extensions it has.
    pub flavor: Flavor,
    /// Capabilities it announced.
    pub capabilities: Capabilities,
    /// The collation id of its greeting.
    pub collation: u8,
    /// Status flags of its greeting.
    pub status: StatusFlags,
}

/// The server's own settings for session tracking, which a client sees unless it changes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackDefaults {
    /// `session_track_system_variables`, None where the server has none.
    pub system_variables: Option<String>,
    /// `session_track_schema`.
    pub schema: bool,
    /// `session_track_state_change`.
    pub state_change: bool,
}

/// How a server's session tracker is used.
#[derive(Clone, Debug)]
pub struct ServerTracking {
    /// As it stands without us.
    pub defaults: TrackDefaults,
    /// The SET that makes it tell all.
    pub ours: Arc<str>,
}

/// One server of one hostgroup, for all workers.
pub struct ServerShared {
    /// Its configuration.
    pub server: Arc<Server>,
    /// Its number in the hostgroup.
    pub index: usize,
    connections: AtomicU32,
    connecting: AtomicU32,
    /// Worker clock (ms) before which no new connection is tried; 0 when healthy.
    retry_at_ms: AtomicU64,
    failures: AtomicU32,
    last_error: Mutex<Option<String>>,
    /// Connections for KILL: one at a time.
    pub kills: tokio::sync::Semaphore,
    /// Session tracking on this server, once the first connection has asked.
    pub tracking: OnceLock<ServerTracking>,
}

/// The right to hold one connection to a server; gives itself back.
pub struct Slot(Option<Arc<ServerShared>>);

impl Slot {
    /// The right to one connection beside the counted ones, to send a KILL: the caller holds its server's turn.
    pub fn extra() -> Self {
        Self(None)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(server) = &self.0 {
            server.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The right to be connecting; gives itself back.
pub struct ConnectPermit(Arc<ServerShared>);

impl Drop for ConnectPermit {
    fn drop(&mut self) {
        self.0.connecting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// First pause after a failed connect, ms; doubles with each further failure.
const RETRY_FIRST_MS: u64 = 10;
/// Longest pause between connects to a failing server, ms.
const RETRY_MAX_MS: u64 = 1000;

impl ServerShared {
    fn new(server: Arc<Server>, index: usize) -> Self {
        Self {
            server,
            index,
            connections: AtomicU32::new(0),
            connecting: AtomicU32::new(0),
            retry_at_ms: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            last_error: Mutex::new(None),
            kills: tokio::sync::Semaphore::new(1),
            tracking: OnceLock::new(),
        }
    }

    /// Connections that exist or are being made.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Acquire)
    }

    /// True when `max_connections` is reached.
    pub fn is_full(&self) -> bool {
        self.connections() >= self.server.max_connections
    }

    /// True while connects fail and the pause before the next try is not over.
    pub fn is_backing_off(&self, now_ms: u64) -> bool {
        self.retry_at_ms.load(Ordering::Acquire) > now_ms
    }

    /// Takes the right to hold a connection, if `max_connections` allows.
    pub fn reserve(self: &Arc<Self>) -> Option<Slot> {
        let max = self.server.max_connections;
        let taken = self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < max).then_some(n + 1));
        taken.ok().map(|_| Slot(Some(Arc::clone(self))))
    }

    /// Takes the right to connect now: at most `concurrency` at a time; one at a time after failures.
    pub fn begin_connect(self: &Arc<Self>, concurrency: u32) -> Option<ConnectPermit> {
        let limit = if self.failures.load(Ordering::Acquire) > 0 { 1 } else { concurrency };
        let taken = self.connecting.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1));
        taken.ok().map(|_| ConnectPermit(Arc::clone(self)))
    }

    /// A login succeeded.
    pub fn connect_succeeded(&self) {
        self.failures.store(0, Ordering::Release);
        self.retry_at_ms.store(0, Ordering::Release);
    }

    /// A connect failed for a reason that concerns the server; pauses grow until one succeeds.
    pub fn connect_failed(&self, error: &str, now_ms: u64) {
        let failures = self.failures.fetch_add(1, Ordering::AcqRel).min(16);
        let pause = (RETRY_FIRST_MS << failures).min(RETRY_MAX_MS);
        self.retry_at_ms.store(now_ms + pause, Ordering::Release);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_owned());
    }

    /// The last connect error, while connects fail.
    pub fn last_error(&self) -> Option<String> {
        if self.failures.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// No one waits.
pub const NOBODY: u64 = u64::MAX;

/// One hostgroup, for all workers.
pub struct HostgroupShared {
    /// Its number.
    pub id: HostgroupId,
    /// Its servers, in the order of the configuration.
    pub servers: Vec<Arc<ServerShared>>,
    /// Per worker: since when (process clock, us) its first waiter waits, or [`NOBODY`].
    pub oldest_waiter_us: Vec<AtomicU64>,
    /// Workers with waiters.
    pub waiting_workers: AtomicU32,
    /// Share of `max_connections` that may stay idle, percent.
    pub free_connections_pct: u32,
    /// New connections are spaced by this, us (from connections per second); the next one is due at `next_connect_us`.
    connect_interval_us: u64,
    next_connect_us: AtomicU64,
}

impl HostgroupShared {
    fn new(id: HostgroupId, servers: &[Arc<Server>], attributes: &HostgroupAttributes, workers: usize) -> Self {
        let servers = servers.iter().enumerate().map(|(i, s)| Arc::new(ServerShared::new(Arc::clone(s), i))).collect();
        Self {
            id,
            servers,
            oldest_waiter_us: (0..workers).map(|_| AtomicU64::new(NOBODY)).collect(),
            waiting_workers: AtomicU32::new(0),
            connect_interval_us: 1_000_000 / u64::from(attributes.throttle_connections_per_sec).max(1),
            free_connections_pct: u32::from(attributes.free_connections_pct),
            next_connect_us: AtomicU64::new(0),
        }
    }

    /// Takes one new connection from the hostgroup's rate, if it allows one now.
    pub fn take_connect_rate(&self, now_us: u64) -> bool {
        let interval = self.connect_interval_us;
        let taken = self.next_connect_us.fetch_update(Ordering::AcqRel, Ordering::Acquire, |due| {
            (due <= now_us).then_some(due.max(now_us.saturating_sub(interval)) + interval)
        });
        taken.is_ok()
    }

    /// Notes since when `worker`'s first waiter waits.
    pub fn set_oldest(&self, worker: usize, since_us: u64) {
        let Some(cell) = self.oldest_waiter_us.get(worker) else { return };
        let before = cell.swap(since_us, Ordering::AcqRel);
        match (before == NOBODY, since_us == NOBODY) {
            (true, false) => self.waiting_workers.fetch_add(1, Ordering::AcqRel),
            (false, true) => self.waiting_workers.fetch_sub(1, Ordering::AcqRel),
            _ => 0,
        };
    }

    /// The worker, other than `me`, whose first waiter waits longest, with the time (us) it waits since.
    pub fn longest_waiting_other(&self, me: usize) -> Option<(usize, u64)> {
        let others = self.oldest_waiter_us.iter().enumerate().filter(|(w, _)| *w != me);
        let oldest = others.map(|(w, since)| (w, since.load(Ordering::Acquire))).min_by_key(|(_, since)| *since);
        oldest.filter(|(_, since)| *since != NOBODY)
    }
}

/// One user, for all workers.
#[derive(Default)]
pub struct UserShared {
    /// Frontend connections of this user.
    pub connections: AtomicU32,
    secrets: Mutex<LearntSecrets>,
}

/// What logins taught us about a user's password, kept in memory only.
#[derive(Clone, Default)]
pub struct LearntSecrets {
    /// Clear text, from a full authentication against a stored hash.
    pub clear: Option<Vec<u8>>,
    /// SHA1(password), from a mysql_native_password login: enough to log in to servers with that plugin.
    pub sha1: Option<[u8; 20]>,
    /// SHA256(SHA256(password)): the fast path of caching_sha2_password.
    pub fast: Option<[u8; 32]>,
}

impl UserShared {
    /// What is known.
    pub fn secrets(&self) -> LearntSecrets {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what a login proved.
    pub fn learn(&self, update: impl FnOnce(&mut LearntSecrets)) {
        update(&mut self.secrets.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Everything the workers share.
pub struct Shared {
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// Hostgroups by number.
    pub hostgroups: HashMap<HostgroupId, Arc<HostgroupShared>>,
    /// Users by name.
    pub users: HashMap<Vec<u8>, Arc<UserShared>>,
    /// Mail to each worker.
    pub mailboxes: Vec<Mailbox>,
    /// Frontend connections in the process.
    pub frontends: AtomicUsize,
    /// What the backends say they are; None until one was seen.
    pub info: OnceLock<ServerInfo>,
    /// No server could be asked what it is.
    pub probe_failed: std::sync::atomic::AtomicBool,
    /// Sessions that are logged in, with their users: for KILL.
    pub sessions: Mutex<HashMap<u64, Box<str>>>,
    /// TLS towards clients, when it is offered.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// TLS towards servers.
    pub client_tls: crate::tls::ClientConfigs,
    /// The key clients may encrypt passwords with when they have no TLS.
    pub rsa: Option<RsaKey>,
    /// Grows with each DDL statement seen by any worker: prepared metadata from before it is stale.
    pub ddl_epoch: AtomicU64,
    /// The process clock.
    pub clock: Clock,
    /// Set when the process is told to stop: sessions end at their next idle moment.
    pub draining: std::sync::atomic::AtomicBool,
}

impl Shared {
    /// Shared state for `workers` workers.
    pub fn new(snapshot: Arc<Snapshot>, workers: usize, tls: Option<Arc<rustls::ServerConfig>>, rsa: Option<RsaKey>) -> Self {
        let global = HostgroupAttributes::from_variables(&snapshot.vars);
        let mut hostgroups: HashMap<_, _> = snapshot
            .hostgroups
            .values()
            .map(|h| (h.id, Arc::new(HostgroupShared::new(h.id, &h.servers, &h.attributes, workers))))
            .collect();
        for user in snapshot.users.values() {
            // A user may point to a hostgroup without servers: its sessions wait, and are told why.
            let id = user.default_hostgroup;
            hostgroups.entry(id).or_insert_with(|| Arc::new(HostgroupShared::new(id, &[], &global, workers)));
        }
        let users = snapshot.users.values().map(|u: &Arc<User>| (u.name.as_bytes().to_vec(), Arc::default())).collect();
        Self {
            snapshot,
            hostgroups,
            users,
            mailboxes: (0..workers).map(|_| Mailbox::default()).collect(),
            frontends: AtomicUsize::new(0),
            info: OnceLock::new(),
            probe_failed: std::sync::atomic::AtomicBool::new(false),
            sessions: Mutex::default(),
            tls,
            client_tls: crate::tls::ClientConfigs::default(),
            rsa,
            ddl_epoch: AtomicU64::new(0),
            clock: Clock::new(),
            draining: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// The user of a session that is logged in.
    pub fn user_of(&self, session: u64) -> Option<Box<str>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    /// A session logged in (or changed its user), or (None) ended.
    pub fn note_session(&self, session: u64, user: Option<&str>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        match user {
            Some(user) => sessions.insert(session, user.into()),
            None => sessions.remove(&session),
        };
    }

    /// True once the process was told to stop.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
