//! What the whole process shares: hostgroups, users' counts, mailboxes of the workers.
//!
//! A statement that finds an idle backend on its own worker touches nothing here but a few atomics of its hostgroup and
//! its servers, which change rarely.

use crate::captures;
use crate::clients::tls_loads::TlsLoads;
use crate::clients::users::{LearntSecrets, UserShared};
use crate::hostgroups::hostgroup::HostgroupShared;
use crate::limits::addresses::Addresses;
use crate::limits::host_cache::HostCache;
use crate::limits::overload;
use crate::logs::Logs;
use crate::servers::positions::Positions;
use crate::servers::server::{PlacedBy, ServerShared, Turned};
use crate::servers::signals;
use crate::servers::terms::Terms;
use crate::takeover::hand_over_queue::HandOverQueue;
use crate::takeover::other_process::{Changes, Connections, Holdings, OtherProcess, SendKill};
use crate::workers::clock::Clock;
use crate::workers::in_force::InForce;
use crate::workers::mailbox::{KillKind, Mail, Mailbox};
use crate::workers::worker::{FIRST_SESSION_ID, Worker};
use ::handover::Sockets;
use arc_swap::{ArcSwap, ArcSwapOption};
use cache::{CacheSettings, QueryCache};
use model::fleet::{Layout, RoleKeeper, Signal, SignalKind, UnderWay};
use model::pace::Pace;
use model::refusals::Refusals;
use model::snapshot::{HostgroupAttributes, Password, Snapshot, User};
use model::{HostgroupId, ServerAddr, ServerKey};
use session_state::routines::Definitions;
use session_state::server_info::{ServerInfo, builtins_of};
use sql::Builtins;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use wire::auth::rsa::RsaKey;
use wire::charset::Flavor;
use wire::codes;
use wire::flags::{Capabilities, StatusFlags};

/// What is learnt once, until something else has taken its place.
pub(crate) struct Learnt<T>(ArcSwapOption<T>);

impl<T> Default for Learnt<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T> Learnt<T> {
    /// What is known.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.0.load_full()
    }

    /// Whether it is known, and so.
    pub(crate) fn is(&self, is_so: impl FnOnce(&T) -> bool) -> bool {
        self.0.load().as_ref().is_some_and(|known| is_so(known))
    }

    /// Learns it, unless something is known already.
    pub(crate) fn set(&self, value: T) {
        self.0.compare_and_swap(&None::<Arc<T>>, Some(Arc::new(value)));
    }

    /// This has taken its place.
    fn replace(&self, value: Arc<T>) {
        self.0.store(Some(value));
    }
}

/// How a login went, for the client host cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostLogin {
    /// The client is in.
    Succeeded,
    /// Wrong name or password.
    Failed,
}

/// Everything the workers share.
pub(crate) struct Shared {
    /// The configuration in force.
    pub in_force: ArcSwap<InForce>,
    hostgroups: RwLock<HashMap<HostgroupId, Arc<HostgroupShared>>>,
    /// The layout in use. Held while one is taken over.
    layout: Mutex<Arc<Layout>>,
    /// The servers of the layout by address.
    places: ArcSwap<BTreeMap<ServerAddr, Vec<Arc<ServerShared>>>>,
    /// Who decides about roles, if anybody watches the servers.
    pub keeper: Option<Arc<dyn RoleKeeper>>,
    users: RwLock<HashMap<Box<str>, Arc<UserShared>>>,
    /// A user's password was set or changed since the start: what another process knows may be of an older one.
    passwords_changed: AtomicBool,
    rule_paces: Mutex<HashMap<u32, Arc<Pace>>>,
    /// Mail to each worker.
    pub mailboxes: Vec<Mailbox>,
    /// Frontend connections in the process.
    pub frontends: AtomicUsize,
    /// The same by address.
    pub addresses: Arc<Addresses>,
    /// Most that may be logged in, whatever `max_connections` says: others need descriptors too.
    pub clients_max: AtomicU64,
    /// What the process has of memory.
    pub memory: overload::MemoryAccount,
    /// Which workers are alive.
    pub beats: overload::Beats,
    /// The process's listening sockets.
    pub sockets: Arc<Sockets>,
    /// Listeners that are open.
    pub listening: AtomicUsize,
    /// Those that cannot be opened, and why. They are tried again.
    unopened: Mutex<BTreeMap<String, String>>,
    /// What the backends say they are; None until one was seen.
    pub info: Learnt<ServerInfo>,
    /// One of the other family than `info` says was met.
    pub is_mixed: AtomicBool,
    /// No server could be asked what it is.
    pub probe_failed: AtomicBool,
    /// Sessions that are logged in, with their users: for KILL.
    pub sessions: Mutex<HashMap<u64, Box<str>>>,
    /// What the process before still has.
    pub elsewhere: OtherProcess,
    /// Results that may be given again.
    pub cache: Arc<QueryCache>,
    /// TLS towards clients, when it is offered.
    pub tls: ArcSwapOption<tls::ServerTls>,
    /// When what that is made of was read.
    pub tls_loads: TlsLoads,
    /// TLS towards servers.
    pub client_tls: tls::ClientConfigs,
    /// The key clients may encrypt passwords with when they have no TLS.
    pub rsa: Option<RsaKey>,
    /// Grows with each statement about definitions or rights seen by any worker, and with each configuration: what servers said
    /// before it of tables, routines and schemas is stale.
    pub ddl_epoch: AtomicU64,
    /// Process clock (ms) after the last statement about accounts and rights: connections opened before have older rights.
    pub rights_changed_ms: AtomicU64,
    /// Those of them that may be of stored routines.
    pub routines_defined: Definitions,
    /// Addresses of servers' names.
    pub names: crate::net::names::Names,
    /// The process clock.
    pub clock: Clock,
    /// Query log and audit log.
    pub logs: Logs,
    /// Statements that are traced, on their way to a receiver.
    pub traces: traces::Exporter,
    /// How many refused logins were logged lately.
    pub refusals: Refusals,
    /// Addresses that failed to log in.
    pub hosts: HostCache,
    /// Where replicas read last.
    pub positions: Positions,
    /// How many mirrored statements run at a time.
    pub mirrors: Arc<crate::limits::mirror_room::Limit>,
    /// Rehearsals that run or have run.
    pub rehearsals: rehearsal::Desk,
    /// The rehearsal in mode `all`.
    pub copying: crate::copying::CopyDesk,
    /// Captures that run or have run.
    pub captures: Arc<captures::Desk>,
    /// The process that takes this one's place, while one does.
    successor: ArcSwapOption<HandOverQueue>,
    /// Whether there is one.
    has_successor: AtomicBool,
    /// Set when the process is told to stop: sessions end at their next idle moment.
    pub draining: AtomicBool,
    /// Sessions so far: their ids are made of it.
    pub sessions_begun: AtomicU64,
    /// The simulated world, where there is one.
    #[cfg(feature = "sim")]
    pub simulated: std::sync::OnceLock<crate::sim::World>,
}

impl Shared {
    /// Whether a capture runs, or a rehearsal runs or ever ran: else no session has to take part in one. What `capture_begins`,
    /// `copy_begins` and `rehearsal_wants` ask lies within this.
    pub(crate) fn is_listening(&self) -> bool {
        self.captures.running() != 0 || self.rehearsals.epoch() != 0
    }

    /// If the rehearsal in mode `all` has ended, nothing of it waits any more.
    pub(crate) fn end_copying(&self, now_ms: u64) {
        if let Some(copying) = self.copying.load_full().filter(|copying| copying.run.ended_ms(now_ms).is_some()) {
            copying.close();
        }
    }

    /// Shared state for `workers` workers.
    pub(crate) fn new(in_force: Arc<InForce>, keeper: Option<Arc<dyn RoleKeeper>>, workers: usize, rsa: Option<RsaKey>) -> Self {
        let shared = Self {
            in_force: ArcSwap::new(Arc::clone(&in_force)),
            hostgroups: RwLock::default(),
            layout: Mutex::default(),
            places: ArcSwap::default(),
            keeper,
            users: RwLock::default(),
            passwords_changed: AtomicBool::new(false),
            rule_paces: Mutex::default(),
            mailboxes: (0..workers).map(|_| Mailbox::default()).collect(),
            frontends: AtomicUsize::new(0),
            addresses: Arc::default(),
            clients_max: AtomicU64::new(u64::MAX),
            memory: overload::MemoryAccount::default(),
            beats: overload::Beats::new(workers),
            sockets: Sockets::fresh(),
            listening: AtomicUsize::new(0),
            unopened: Mutex::default(),
            info: Learnt::default(),
            is_mixed: AtomicBool::new(false),
            probe_failed: AtomicBool::new(false),
            sessions: Mutex::default(),
            elsewhere: OtherProcess::of_workers(workers),
            cache: QueryCache::new(CacheSettings::of(&in_force.snapshot.vars)),
            tls: ArcSwapOption::empty(),
            tls_loads: TlsLoads::default(),
            client_tls: tls::ClientConfigs::default(),
            names: crate::net::names::Names::default(),
            rsa,
            ddl_epoch: AtomicU64::new(0),
            rights_changed_ms: AtomicU64::new(0),
            routines_defined: Definitions::default(),
            clock: Clock::new(),
            logs: Logs::default(),
            traces: traces::Exporter::default(),
            refusals: Refusals::default(),
            hosts: HostCache::default(),
            positions: Positions::default(),
            mirrors: crate::limits::mirror_room::Limit::new(in_force.snapshot.vars.mirror_max_concurrency),
            rehearsals: rehearsal::Desk::default(),
            copying: crate::copying::CopyDesk::empty(),
            captures: Arc::default(),
            successor: ArcSwapOption::empty(),
            has_successor: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            sessions_begun: AtomicU64::new(0),
            #[cfg(feature = "sim")]
            simulated: std::sync::OnceLock::new(),
        };
        shared.configure_hostgroups(&in_force.snapshot);
        shared
    }

    /// Takes what a configuration says of hostgroups and their servers over: who serves what under it, the role keeper
    /// says.
    pub(crate) fn configure_hostgroups(&self, snapshot: &Arc<Snapshot>) {
        for id in snapshot.hostgroups.keys() {
            self.hostgroup_of(*id, snapshot);
        }
        for hostgroup in self.hostgroups() {
            hostgroup.configure(&attributes_of(snapshot, hostgroup.id), Terms::of(snapshot, hostgroup.id));
        }
        let layout = match &self.keeper {
            Some(keeper) => keeper.configure(snapshot),
            None => Layout::as_configured(snapshot),
        };
        self.take_over(layout, snapshot, PlacedBy::Configuration);
    }

    /// Uses the servers as this says; false when it is older than what is in use.
    pub(crate) fn arrange(&self, layout: Layout) -> bool {
        let snapshot = Arc::clone(&self.in_force.load().snapshot);
        self.take_over(layout, &snapshot, PlacedBy::Observation)
    }

    fn take_over(&self, layout: Layout, snapshot: &Snapshot, by: PlacedBy) -> bool {
        let mut in_use = self.layout.lock().unwrap_or_else(PoisonError::into_inner);
        if layout.revision < in_use.revision {
            // How many may be ONLINE can have changed all the same.
            self.hostgroups().iter().for_each(|hostgroup| hostgroup.look_whether_crowded());
            return false;
        }
        let now_ms = self.clock.now_ms();
        let lost = lost(&layout);
        for hostgroup in self.hostgroups().iter().filter(|h| !layout.hostgroups.contains_key(&h.id)) {
            hostgroup.place(&[], &lost, by, now_ms);
        }
        for (id, placements) in &layout.hostgroups {
            self.hostgroup_of(*id, snapshot).place(placements, &lost, by, now_ms);
        }
        let mut places: BTreeMap<ServerAddr, Vec<Arc<ServerShared>>> = BTreeMap::new();
        for server in self.hostgroups().iter().flat_map(|hostgroup| hostgroup.servers().to_vec()) {
            places.entry(server.key.addr()).or_default().push(server);
        }
        self.places.store(Arc::new(places));
        *in_use = Arc::new(layout);
        true
    }

    /// Does this with a server in all of its hostgroups.
    pub(crate) fn for_each_place(&self, server: &ServerAddr, act: impl Fn(&ServerShared)) {
        self.places.load().get(server).into_iter().flatten().for_each(|place| act(place));
    }

    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A hostgroup. One that the configuration does not name has no servers: its sessions wait, and are told why.
    pub(crate) fn hostgroup(&self, id: HostgroupId) -> Arc<HostgroupShared> {
        self.hostgroup_of(id, &self.in_force.load().snapshot)
    }

    fn hostgroup_of(&self, id: HostgroupId, snapshot: &Snapshot) -> Arc<HostgroupShared> {
        if let Some(hostgroup) = self.hostgroups.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Arc::clone(hostgroup);
        }
        let mut hostgroups = self.hostgroups.write().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let (attributes, terms) = (attributes_of(snapshot, id), Terms::of(snapshot, id));
            Arc::new(HostgroupShared::new(id, &attributes, terms, self.mailboxes.len()))
        };
        Arc::clone(hostgroups.entry(id).or_insert_with(new))
    }

    /// Whether a hostgroup is configured, or was named before.
    pub(crate) fn knows_hostgroup(&self, id: HostgroupId, snapshot: &Snapshot) -> bool {
        let is_role = || snapshot.roles.iter().any(|group| group.writer == id || group.is_beside_writer(id));
        snapshot.hostgroup(id).is_some() || is_role() || self.hostgroups.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// Every hostgroup that was ever named, by number.
    pub(crate) fn hostgroups(&self) -> Vec<Arc<HostgroupShared>> {
        let mut all: Vec<_> = self.hostgroups.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_by_key(|h| h.id);
        all
    }

    /// Status flags of a session in which nothing has happened.
    pub(crate) fn initial_status(&self) -> StatusFlags {
        let server = self.info.get().map_or(StatusFlags::AUTOCOMMIT, |i| i.status);
        server & (StatusFlags::AUTOCOMMIT | StatusFlags::NO_BACKSLASH_ESCAPES)
    }

    /// Whether the servers are MySQL's, as far as one has said; those of MariaDB are the other kind.
    pub(crate) fn serves_mysql(&self) -> bool {
        self.info.is(|info| info.flavor == Flavor::MySql)
    }

    /// Whether they are MariaDB's.
    pub(crate) fn serves_mariadb(&self) -> bool {
        self.info.is(|info| info.flavor == Flavor::MariaDb)
    }

    /// Whose servers they are; MySQL's as long as none has said.
    pub(crate) fn flavor(&self) -> Flavor {
        if self.serves_mariadb() { Flavor::MariaDb } else { Flavor::MySql }
    }

    /// What a server says of itself at a login. One of another version than before is another server in its place.
    pub(crate) fn heard(&self, server: &ServerShared, info: ServerInfo) -> Arc<ServerInfo> {
        let (info, turned) = server.heard(info, self.clock.now_ms());
        if let Some(Turned { before, is_news }) = turned {
            if is_news {
                let (key, was, is) = (&server.key, &before.version, &info.version);
                tracing::warn!(
                    "{key} changed from {was} to {is}: the proxy reads the server's properties again and reuses no older connection"
                );
            }
            if self.info.is(|known| known.version == before.version) && !self.is_there_still(&before.version, &server.key) {
                self.info.replace(Arc::clone(&info));
            }
            self.anything_was_defined();
        }
        if self.info.is(|known| known.flavor != info.flavor) {
            self.is_mixed.store(true, Ordering::Relaxed);
        }
        info
    }

    /// Whether any server but the one at this address is of this version.
    fn is_there_still(&self, version: &str, but: &ServerKey) -> bool {
        let is_it = |server: &Arc<ServerShared>| {
            let is_another = server.key.host != but.host || server.key.port != but.port;
            is_another && !server.is_removed() && server.info.load().as_ref().is_some_and(|info| info.version == version)
        };
        self.hostgroups().iter().any(|hostgroup| hostgroup.servers().iter().any(is_it))
    }

    /// Whether all servers are of one version, as far as they are known.
    pub(crate) fn is_of_one_version(&self) -> bool {
        let hostgroups = self.hostgroups();
        let servers = hostgroups.iter().flat_map(|hostgroup| hostgroup.servers().to_vec()).filter(|server| !server.is_removed());
        let mut versions = servers.filter_map(|server| server.info.load().as_ref().map(|info| info.version.clone()));
        let first = versions.next();
        versions.all(|version| Some(version) == first)
    }

    /// Whether each server of the process has these capabilities, as far as the servers were heard of.
    pub(crate) fn all_have(&self, capabilities: Capabilities) -> bool {
        let hostgroups = self.hostgroups.read().unwrap_or_else(PoisonError::into_inner);
        hostgroups.values().all(|hostgroup| hostgroup.has(capabilities))
    }

    /// Anything may have been defined anew, stored routines too.
    pub(crate) fn anything_was_defined(&self) {
        self.ddl_epoch.fetch_add(1, Ordering::AcqRel);
        self.routines_defined.note(None);
    }

    /// Whose built-in functions texts are read by.
    pub(crate) fn builtins(&self) -> Builtins {
        match self.info.get().filter(|_| !self.is_mixed.load(Ordering::Relaxed)).map(|info| info.flavor) {
            None => Builtins::Common,
            Some(flavor) => builtins_of(flavor),
        }
    }

    /// The places in time of a rule's statements.
    pub(crate) fn pace_of_rule(&self, rule_id: u32) -> Arc<Pace> {
        let mut paces = self.rule_paces.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(paces.entry(rule_id).or_default())
    }

    /// What is shared of a user, which outlives a reload of the users.
    pub(crate) fn user(&self, name: &str) -> Arc<UserShared> {
        if let Some(user) = self.users.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Arc::clone(user);
        }
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(users.entry(name.into()).or_default())
    }

    /// Whether sessions of a user are left, here or in another process of the same upgrade.
    pub(crate) fn has_sessions_of(&self, user: &str) -> bool {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        users.get(user).is_some_and(|user| user.connections.load(Ordering::Acquire) > 0)
    }

    /// Forgets users that are neither configured nor connected, and what was learnt of passwords that have changed. The new
    /// configuration is in force by now: what is learnt from here on is of its passwords.
    pub(crate) fn configure_users(&self, old: &Snapshot, new: &Snapshot) {
        let is_changed = |name: &str, password: fn(&User) -> Option<&Password>| {
            let (before, after) = (old.users.get(name), new.users.get(name));
            before.and_then(|user| password(user)) != after.and_then(|user| password(user))
        };
        let is_any_changed = new.users.keys().any(|name| {
            is_changed(name, |user| Some(&user.password)) || is_changed(name, |user| user.attributes.additional_password.as_ref())
        });
        if is_any_changed {
            self.passwords_changed.store(true, Ordering::Release);
        }
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        users.retain(|name, user| new.users.contains_key(name) || user.connections.load(Ordering::Acquire) > 0);
        for (name, user) in users.iter() {
            if is_changed(name, |user| Some(&user.password)) {
                tracing::debug!("the password of '{name}' has changed");
                user.learn(|secrets| *secrets = LearntSecrets { additional_fast: secrets.additional_fast, ..LearntSecrets::default() });
            }
            if is_changed(name, |user| user.attributes.additional_password.as_ref()) {
                tracing::debug!("the additional password of '{name}' has changed");
                user.learn(|secrets| secrets.additional_fast = None);
            }
        }
    }

    pub(crate) fn user_of(&self, session: u64) -> Option<Box<str>> {
        let here = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned();
        here.or_else(|| self.elsewhere.user_of(session))
    }

    /// How many clients may be there: as configured, or fewer where descriptors are few.
    pub(crate) fn most_clients(&self) -> u64 {
        self.in_force.load().snapshot.vars.max_connections.min(self.clients_max.load(Ordering::Relaxed))
    }

    /// No session of this process has this id or a higher one. That includes clients that were accepted but have no id yet.
    pub(crate) fn next_session_id(&self) -> u64 {
        let workers = self.mailboxes.len().max(1) as u64;
        // A listener may have accepted one client that is not counted yet.
        let under_way = self.frontends.load(Ordering::Acquire) + self.listening.load(Ordering::Acquire);
        FIRST_SESSION_ID + (self.sessions_begun.load(Ordering::Acquire) + under_way as u64 + 1) * workers
    }

    /// New sessions get this id or a higher one, whatever the number of workers of the process that used the lower ones.
    pub(crate) fn begin_session_ids_at(&self, id: u64) {
        let workers = self.mailboxes.len().max(1) as u64;
        // The first id is a multiple of the number of workers, so it may be below FIRST_SESSION_ID.
        let begun = id.saturating_sub(FIRST_SESSION_ID) / workers + 2;
        self.sessions_begun.fetch_max(begun, Ordering::AcqRel);
    }

    /// Whether a client with this session id is logged in to this process.
    pub(crate) fn has_session(&self, id: u64) -> bool {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// What this process has, for the one that takes its place.
    pub(crate) fn holdings(&self) -> Holdings {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = sessions.iter().map(|(id, user)| (*id, user.clone())).collect();
        let Changes { definitions, rights_changed_ms } = self.changes();
        Holdings {
            sessions,
            connections: self.own_connections(),
            positions: self.positions.all(),
            rights_changed_ms,
            definitions,
            acknowledged: self.elsewhere.take_acknowledged(),
            next_session_id: self.next_session_id(),
            secrets: self.untold_secrets(),
        }
    }

    /// What statements of this process have changed for all sessions.
    pub(crate) fn changes(&self) -> Changes {
        Changes {
            definitions: self.elsewhere.defined_here(|| self.ddl_epoch.load(Ordering::Acquire)),
            rights_changed_ms: self.rights_changed_ms.load(Ordering::Acquire),
        }
    }

    /// Statements of the other process have changed this.
    pub(crate) fn learn_changes(&self, changes: Changes) {
        let Changes { definitions, rights_changed_ms } = changes;
        // The two clocks are one.
        self.rights_changed_ms.fetch_max(rights_changed_ms, Ordering::AcqRel);
        self.elsewhere.has_defined(definitions, || self.anything_was_defined());
    }

    /// This process's connections.
    pub(crate) fn own_connections(&self) -> Connections {
        let servers = self.hostgroups().into_iter().flat_map(|hostgroup| hostgroup.servers().to_vec());
        let counted = servers.filter(|server| server.own_connections() > 0);
        let of = |server: Arc<ServerShared>| {
            let ServerKey { hostgroup, host, port } = &server.key;
            (*hostgroup, Arc::clone(host), *port, server.own_connections())
        };
        Connections(counted.map(of).collect())
    }

    /// What the process before still has counts here, in the place of what was counted before.
    pub(crate) fn count_elsewhere(&self, holdings: Holdings, kill: Option<SendKill>) {
        let Holdings { sessions, connections, positions, rights_changed_ms, definitions, acknowledged, next_session_id, secrets } =
            holdings;
        self.begin_session_ids_at(next_session_id);
        self.learn_secrets(secrets);
        self.positions.take_over(positions);
        self.learn_changes(Changes { definitions, rights_changed_ms });
        self.elsewhere.acknowledge(acknowledged.iter().map(String::as_bytes));
        let there = {
            let here = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.into_iter().filter(|(id, _)| !here.contains_key(id)).collect()
        };
        let (new, gone) = self.elsewhere.replace(there, kill);
        for user in new {
            self.frontends.fetch_add(1, Ordering::AcqRel);
            self.user(&user).connections.fetch_add(1, Ordering::AcqRel);
        }
        for user in gone {
            self.frontends.fetch_sub(1, Ordering::AcqRel);
            self.user(&user).disconnected();
        }
        self.count_connections_elsewhere(&connections);
    }

    /// The other process has these connections now, in the place of what was counted before.
    pub(crate) fn count_connections_elsewhere(&self, Connections(connections): &Connections) {
        for server in self.hostgroups().into_iter().flat_map(|hostgroup| hostgroup.servers().to_vec()) {
            let is_it = |(id, host, port, _): &&(HostgroupId, Arc<str>, u16, u32)| {
                (*id, host, *port) == (server.key.hostgroup, &server.key.host, server.key.port)
            };
            server.count_elsewhere(connections.iter().find(is_it).map_or(0, |(.., count)| *count));
        }
    }

    /// Sends mail to every worker.
    pub(crate) fn send_all(&self, mail: impl Fn() -> Mail) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(mail()));
    }

    /// KILLs a session, wherever it is.
    pub(crate) fn kill(&self, id: u64, kind: KillKind) {
        if !self.kill_here_or_in_successor(id, kind) {
            self.elsewhere.kill(id, kind == KillKind::Query);
        }
    }

    /// KILLs a session that is here, or that may have gone to the process that takes this one's place. False where neither can be.
    pub(crate) fn kill_here_or_in_successor(&self, id: u64, kind: KillKind) -> bool {
        // The id names its worker.
        match self.mailboxes.get(Worker::owner_of(id, self.mailboxes.len())).filter(|_| self.has_session(id)) {
            Some(mailbox) => {
                mailbox.send(Mail::Kill { id, kind });
                true
            }
            None => self.kill_in_successor(id, kind),
        }
    }

    /// KILLs a session that is not here any more, in the process that takes this one's place. False without such a process.
    pub(crate) fn kill_in_successor(&self, id: u64, kind: KillKind) -> bool {
        let Some(successor) = self.successor() else { return false };
        successor.kill(id, kind == KillKind::Query);
        true
    }

    /// A session logged in (or changed its user), or (None) ended.
    pub(crate) fn note_session(&self, session: u64, user: Option<&str>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        match user {
            Some(user) => sessions.insert(session, user.into()),
            None => sessions.remove(&session),
        };
    }

    /// Tells the client host cache of a login, if the cache is on.
    pub(crate) fn note_host(&self, peer: Option<std::net::SocketAddr>, login: HostLogin) {
        let size = self.in_force.load().snapshot.vars.client_host_cache_size;
        let Some(peer) = peer.filter(|_| size > 0) else { return };
        match login {
            HostLogin::Succeeded => self.hosts.succeeded(peer.ip()),
            HostLogin::Failed => self.hosts.failed(peer.ip(), self.clock.now_ms(), usize::try_from(size).unwrap_or(usize::MAX)),
        }
    }

    /// Listeners that cannot be opened, and why.
    pub(crate) fn unopened(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.unopened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sessions go to another process from now on, or (None) to none any more.
    pub(crate) fn set_successor(&self, successor: Option<Arc<HandOverQueue>>) {
        let is_one = successor.is_some();
        if is_one {
            self.elsewhere.begins();
        }
        self.successor.store(successor);
        self.has_successor.store(is_one, Ordering::Release);
    }

    /// Whether a process takes this one's place.
    pub(crate) fn has_successor(&self) -> bool {
        self.has_successor.load(Ordering::Relaxed)
    }

    /// The process that takes this one's place, while one does.
    pub(crate) fn successor(&self) -> Option<Arc<HandOverQueue>> {
        self.has_successor.load(Ordering::Acquire).then(|| self.successor.load_full()).flatten()
    }

    /// What logins have taught of each user's password.
    pub(crate) fn secrets(&self) -> Vec<(Box<str>, LearntSecrets)> {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        users.iter().map(|(name, user)| (name.clone(), user.secrets())).collect()
    }

    /// The same as far as it may have changed since this was asked last.
    fn untold_secrets(&self) -> Vec<(Box<str>, LearntSecrets)> {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        users.iter().filter_map(|(name, user)| Some((name.clone(), user.untold_secrets()?))).collect()
    }

    /// What logins in another process have taught of passwords. Nothing is learnt once a password was changed here.
    pub(crate) fn learn_secrets(&self, secrets: impl IntoIterator<Item = (Box<str>, LearntSecrets)>) {
        for (name, there) in secrets {
            self.user(&name).learn(|here| {
                // Looked at under the lock under which a change of passwords forgets them.
                if !self.passwords_changed.load(Ordering::Acquire) {
                    here.add(there);
                }
            });
        }
    }

    /// True once the process was told to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

/// What holds in a hostgroup; one that is not named has what the variables say.
/// Servers that are dead or cut off. They are so in every hostgroup, also in one that they have left.
fn lost(layout: &Layout) -> HashMap<ServerAddr, UnderWay> {
    let mut lost = HashMap::new();
    for placement in layout.hostgroups.values().flatten().filter(|p| p.under_way != UnderWay::MayFinish) {
        let worst = lost.entry(placement.server.key.addr()).or_default();
        *worst = placement.under_way.max(*worst);
    }
    lost
}

fn attributes_of(snapshot: &Snapshot, id: HostgroupId) -> HostgroupAttributes {
    match snapshot.hostgroup(id) {
        Some(hostgroup) => hostgroup.attributes.clone(),
        None => HostgroupAttributes::from_variables(&snapshot.vars),
    }
}

impl Shared {
    /// Tells the role keeper what was seen of a server. Does not block.
    pub(crate) fn signal(&self, server: &ServerShared, kind: SignalKind) {
        let Some(keeper) = &self.keeper else { return };
        if server.signals.take(kind, self.clock.now_ms()) {
            keeper.signal(Signal { server: server.key.addr(), hostgroup: server.key.hostgroup, kind });
        }
    }

    /// A server answered a statement with this error.
    pub(crate) fn server_erred(&self, server: &ServerShared, code: u16, message: &[u8], in_read_only_transaction: bool) {
        if self.keeper.is_none() {
            return;
        }
        // Galera is asked for only where the code needs it.
        let terms = || self.hostgroup(server.key.hostgroup).terms();
        let is_galera = matches!(code, codes::ERROR_DURING_COMMIT | codes::LOCK_WAIT_TIMEOUT | codes::LOCK_DEADLOCK) && terms().is_galera;
        let Some(kind) = signals::of_error(code, message, in_read_only_transaction, is_galera) else { return };
        let terms = terms();
        if signals::is_suspicion(code, kind, &terms) {
            server.suspect(self.clock.now_ms().saturating_add(terms.suspicion_ms));
        }
        self.signal(server, kind);
    }
}
