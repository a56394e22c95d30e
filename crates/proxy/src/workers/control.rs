//! What an operator may do to the running data plane: put another configuration in force, pause, kill, look.
//!
//! Called from the admin's threads, never from a worker. INVARIANT: configurations are put in force one at a time, and
//! whole: the call returns when every worker has taken it over.

use crate::clients::listener;
use crate::limits::overload;
use crate::logs::audit::AuditRecord;
use crate::net::stream::DetachedSocket;
use crate::session::Offered;
use crate::shadow;
use crate::statements::explain;
use crate::stats::{Counts, ProxyStats, rehearsal_page, settle_rehearsal};
use crate::takeover::hand_over_queue::OfferReply;
use crate::takeover::inheritance::ProcessRecord;
use crate::takeover::other_process::{Changes, Connections, Holdings, SendKill};
use crate::workers::ask;
use crate::workers::begin_capture::begin_capture;
use crate::workers::in_force::InForce;
use crate::workers::mailbox::{KillKind, Mail};
use crate::workers::shared::Shared;
use crate::workers::worker::Worker;
use ::handover::Sockets;
use cache::CacheSettings;
use model::ConfigError;
use model::control::{AdminEvent, CaptureOrder, DataPlane, Flush, RehearsalOrder, Rehearsed, RouteQuestion, RouteStep};
use model::fleet::{Placement, UnderWay};
use model::remark::{About, Remark, RowName, Scope};
use model::snapshot::{ServerStatus, Snapshot};
use model::stats::{Metric, Reading, StatsSource, StatsTable, Value};
use model::{HostgroupId, Listen};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// See the module.
pub struct Control {
    shared: Arc<Shared>,
    stats: Arc<ProxyStats>,
    datadir: PathBuf,
    /// How many listeners there are when clients are accepted.
    listeners: usize,
    /// Whether clients are accepted.
    open: watch::Sender<bool>,
    /// TLS towards clients as it is offered, for the admin port.
    tls: watch::Sender<Option<Arc<tls::ServerTls>>>,
    applying: Mutex<()>,
    /// The worker that gets the next idle connection of another process.
    next_taker: AtomicUsize,
    /// What was in force at the start: some of it cannot change before the next one.
    started: Arc<Snapshot>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>, stats: Arc<ProxyStats>, datadir: PathBuf, listeners: usize, open: watch::Sender<bool>) -> Self {
        let tls = watch::Sender::new(shared.tls.load_full());
        let started = Arc::clone(&shared.in_force.load().snapshot);
        Self { shared, stats, datadir, listeners, open, tls, applying: Mutex::default(), next_taker: AtomicUsize::new(0), started }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Has servers' names looked up there from now on.
    pub fn use_address_book(&self, book: Arc<dyn model::names::AddressBook>) {
        self.shared.names.open(book);
    }

    /// TLS towards clients as it is offered, now and after each change.
    pub fn server_tls(&self) -> watch::Receiver<Option<Arc<tls::ServerTls>>> {
        self.tls.subscribe()
    }

    fn offer_tls(&self, config: Option<Arc<tls::ServerTls>>) {
        self.shared.tls.store(config.clone());
        self.tls.send_replace(config);
    }

    /// TLS for clients follows `mysql-have_ssl`. Without usable files nothing is offered, as the log says.
    fn configure_tls(&self, snapshot: &Snapshot) {
        match (snapshot.vars.have_ssl, self.shared.tls.load().is_some()) {
            (false, true) => self.offer_tls(None),
            (true, false) => match self.shared.tls_loads.load(&self.datadir, &self.shared.client_tls) {
                Ok(config) => self.offer_tls(Some(config)),
                Err(e) => tracing::error!("the proxy does not offer TLS to clients: {e}"),
            },
            _ => {}
        }
    }

    /// What goes with the process when another one takes its place.
    pub fn process_record(&self) -> ProcessRecord {
        let shared = &self.shared;
        ProcessRecord {
            clock_origin_ns: shared.clock.origin_ns(),
            next_session_id: shared.next_session_id(),
            secrets: shared.secrets(),
            is_paused: !self.is_open(),
        }
    }

    /// Takes in what another process offers; `answer` is called once that is decided.
    pub fn take_in(&self, record: &[u8], sockets: Vec<DetachedSocket>, answer: OfferReply) {
        let offered = match ::handover::decode::<Offered>(record) {
            Ok(offered) => offered,
            Err(e) => return answer(Err(e.to_string())),
        };
        let workers = self.shared.mailboxes.len();
        let next = || self.next_taker.fetch_add(1, Ordering::Relaxed) % workers;
        let place = offered.place(workers).unwrap_or_else(next);
        match self.shared.mailboxes.get(place) {
            Some(mailbox) => mailbox.send(Mail::Ask(Box::new(move |worker| answer(offered.take_in(worker, sockets))))),
            None => answer(Err("there is no worker".to_owned())),
        }
    }

    /// What this process has, for the one that takes its place.
    pub fn holdings(&self) -> Holdings {
        self.shared.holdings()
    }

    /// What the process before still has: it counts towards the limits here. KILLs of its sessions go to `kill`.
    pub fn count_elsewhere(&self, holdings: Holdings, kill: Option<SendKill>) {
        self.shared.count_elsewhere(holdings, kill);
    }

    /// This process's connections, for the one whose place it takes.
    pub fn own_connections(&self) -> Connections {
        self.shared.own_connections()
    }

    /// Whether this process has a connection to a server, idle or not. The monitor's do not count.
    pub fn has_connections(&self) -> bool {
        !self.shared.own_connections().0.is_empty()
    }

    /// The process that takes this one's place has these connections: they count towards limits here.
    pub fn count_connections_elsewhere(&self, connections: &Connections) {
        self.shared.count_connections_elsewhere(connections);
    }

    /// Definitions and rights as this process's statements have changed them, for the other process.
    pub fn changes(&self) -> Changes {
        self.shared.changes()
    }

    /// Statements of the other process have changed definitions and rights: what was known of them here may be stale.
    pub fn learn_changes(&self, changes: Changes) {
        self.shared.learn_changes(changes);
    }

    /// The process that was to take this one's place is gone. Its connections do not count any more, and the next one is told everything.
    pub fn successor_failed(&self) {
        self.shared.elsewhere.failed();
        self.shared.count_connections_elsewhere(&Connections::default());
    }

    /// All that was counted here, for the process that takes this one's place. Blocks while workers answer.
    pub fn counts(&self) -> Counts {
        self.stats.counts()
    }

    /// What was counted here since the last call of this or of [`Control::counts`]. Blocks while workers answer.
    pub fn more_counts(&self) -> Counts {
        self.stats.more_counts()
    }

    /// The process that has these counts is gone.
    pub fn forget_handed_counts(&self) {
        self.stats.forget_handed();
    }

    /// Adds what the process before has counted.
    pub fn add_counts(&self, counts: Counts) {
        self.stats.add_counts(counts);
    }

    /// KILL that the other process passes on, of a session of this one. A session that has gone to the process that takes this one's place
    /// is killed there. The KILL never goes back to a process before this one.
    pub fn kill_here(&self, id: u64, is_query: bool) {
        self.shared.kill_here_or_in_successor(id, if is_query { KillKind::Query } else { KillKind::Connection });
    }

    /// The process's listening sockets.
    pub fn sockets(&self) -> Arc<Sockets> {
        Arc::clone(&self.shared.sockets)
    }

    /// Whether clients are accepted.
    pub fn is_open(&self) -> bool {
        *self.open.borrow() && !self.shared.draining.load(Ordering::Acquire)
    }

    /// Why not every client is served: a listener does not accept them, or a worker is stuck.
    ///
    /// # Errors
    /// Clients are not accepted, or every new one is refused; which worker is stuck, or which listeners cannot be opened.
    pub fn is_ready(&self) -> Result<(), String> {
        if !self.is_open() {
            return Err("the proxy is paused: PROXYSQL RESUME accepts clients again".to_owned());
        }
        let (clients, most) = (self.shared.frontends.load(Ordering::Acquire) as u64, self.shared.most_clients());
        if clients >= most {
            return Err(format!("{clients} clients are connected; beyond {most} the proxy refuses logins (error 1040)"));
        }
        if self.shared.memory.step() >= overload::Step::Logins {
            return Err("the proxy refuses new clients (error 1041): its memory is close to mysql-memory_budget".to_owned());
        }
        let (now_ms, limit_ms) = (self.shared.clock.now_ms(), self.shared.in_force.load().snapshot.vars.stuck_worker_ms);
        if let Some((worker, ms)) = self.shared.beats.stuck(now_ms, limit_ms).next() {
            return Err(format!("worker {worker} has been stuck for {ms} ms"));
        }
        let unopened: Vec<String> = self.shared.unopened().values().cloned().collect();
        if unopened.is_empty() { Ok(()) } else { Err(format!("{}; the proxy keeps trying", unopened.join(", "))) }
    }

    /// Whether a process that starts in this one's place by `snapshot` would have its certificates and addresses, `others` too.
    /// `ours` are open besides those for clients.
    ///
    /// # Errors
    /// What would be in its way.
    pub fn could_start(&self, snapshot: &Snapshot, datadir: &Path, others: &[Listen], ours: &[Listen]) -> Result<(), String> {
        if snapshot.vars.have_ssl {
            tls::server(datadir, self.shared.client_tls.keys()).map_err(|e| format!("TLS: {e}"))?;
        }
        let unopened = self.shared.unopened().clone();
        let is_open = |listen: &&Listen| self.is_open() && !unopened.contains_key(&listen.to_string());
        let ours: Vec<Listen> = self.started.listen.iter().filter(is_open).chain(ours).cloned().collect();
        let mut wanted = snapshot.listen.iter().chain(others);
        wanted.try_for_each(|listen| listener::could_bind(listen, &ours).map_err(|e| format!("cannot listen on {listen}: {e}")))
    }

    fn set_open(&self, open: bool) -> Result<(), ()> {
        if open && !self.is_open() {
            self.shared.unopened().clear();
        }
        let changed = self.open.send_if_modified(|now| std::mem::replace(now, open) != open);
        if !changed {
            return Err(());
        }
        // Whoever asked may count on it; a listener that cannot be opened again is tried until it can.
        let wanted = if open { self.listeners } else { 0 };
        let deadline = Instant::now() + ask::ANSWER_WITHIN;
        let failed = || if open { self.shared.unopened().len() } else { 0 };
        while self.shared.listening.load(Ordering::Acquire) + failed() != wanted && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Accepts no clients and ends every session; [`DataPlane::resume`] serves again. An error when it is so already.
    pub fn stop_serving(&self) -> Result<(), String> {
        self.pause()?;
        ask::ask_all(&self.shared, Worker::end_sessions);
        Ok(())
    }
}

impl Control {
    /// Logs that are to be written to directories which do not exist.
    fn logs_nowhere(&self, snapshot: &Snapshot) -> Vec<String> {
        let vars = &snapshot.vars;
        let files = [("mysql-eventslog_filename", &vars.eventslog_filename), ("mysql-auditlog_filename", &vars.auditlog_filename)];
        let nowhere = files.into_iter().filter(|(_, file)| !file.is_empty()).filter_map(|(name, file)| {
            let path = self.datadir.join(file);
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty() && !directory.is_dir())?;
            Some(format!("{name}: directory {} does not exist, so the log is not written", directory.display()))
        });
        nowhere.collect()
    }
}

impl StatsSource for Control {
    fn tables(&self) -> Vec<&'static StatsTable> {
        self.stats.tables()
    }

    fn rows(&self, table: &'static StatsTable, reading: Reading) -> Vec<Vec<Value>> {
        self.stats.rows(table, reading)
    }

    fn metrics(&self) -> Vec<Metric> {
        self.stats.metrics()
    }
}

impl DataPlane for Control {
    fn check(&self, snapshot: &Snapshot) -> Result<(), Vec<ConfigError>> {
        let before = self.shared.in_force.load();
        InForce::compile(Arc::new(snapshot.clone()), Some(&before)).map(drop)
    }

    fn apply(&self, snapshot: Arc<Snapshot>) -> Result<Vec<String>, Vec<ConfigError>> {
        let _one_at_a_time = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.shared.in_force.load_full();
        let in_force = Arc::new(InForce::compile(Arc::clone(&snapshot), Some(&before))?);
        let old = &before.snapshot;
        self.configure_tls(&snapshot);
        self.shared.configure_hostgroups(&snapshot);
        self.shared.in_force.store(in_force);
        self.shared.configure_users(old, &snapshot);
        self.shared.logs.configure(&snapshot.vars);
        self.shared.traces.configure(&snapshot.vars);
        self.shared.cache.configure(CacheSettings::of(&snapshot.vars), self.shared.clock.now_ms());
        let ended = self.shared.rehearsals.configure(&snapshot.rehearsals, self.shared.clock.now_ms());
        self.shared.end_copying(self.shared.clock.now_ms());
        for run in ended {
            settle_rehearsal(&self.stats, &run);
        }
        // Users and schemas may lead to other servers.
        self.shared.ddl_epoch.fetch_add(1, Ordering::AcqRel);
        let taken = ask::ask_all(&self.shared, Worker::configure).len();
        if taken < self.shared.mailboxes.len() {
            tracing::warn!("{taken} of {} workers use the new configuration so far", self.shared.mailboxes.len());
        }
        self.shared.hosts.shrink_to(usize::try_from(snapshot.vars.client_host_cache_size).unwrap_or(usize::MAX));
        let mut notes: Vec<String> =
            needs_restart(&self.started, &snapshot).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        notes.extend(self.logs_nowhere(&snapshot));
        Ok(notes)
    }

    fn is_short_of_memory(&self) -> bool {
        self.shared.memory.step() >= overload::Step::LargeCommands
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.shared.in_force.load().snapshot)
    }

    fn remarks(&self, snapshot: &Snapshot, scope: Scope) -> Vec<Remark> {
        match scope {
            Scope::Dead => routing::dead(snapshot),
            Scope::All => {
                let pending = needs_restart(&self.started, snapshot).into_iter().map(|(name, text)| Remark {
                    table: "global_variables",
                    row: RowName::called("variable_name", name),
                    column: "variable_value",
                    about: About::Pending,
                    text,
                });
                routing::lint(snapshot).into_iter().chain(pending).collect()
            }
        }
    }

    fn placements(&self) -> Vec<Placement> {
        let mut placements: Vec<Placement> = self.shared.layout().hostgroups.values().flatten().cloned().collect();
        let hostgroups = self.shared.hostgroups();
        let servers = hostgroups.iter().flat_map(|h| h.servers().to_vec());
        let gone = servers.filter(|server| server.is_removed() && server.connections() > 0);
        placements.extend(gone.map(|server| Placement {
            status: ServerStatus::OfflineHard,
            under_way: UnderWay::MayFinish,
            why: "the server no longer serves the hostgroup; its connections are still open".into(),
            ..Placement::clone(&server.placement())
        }));
        placements
    }

    fn explain_route(&self, question: &RouteQuestion) -> Result<Vec<RouteStep>, String> {
        explain::explain(&self.shared, question)
    }

    fn effective_settings(&self, user: &str, hostgroup: u32) -> Result<Vec<[Value; 3]>, String> {
        let snapshot = self.snapshot();
        let user = snapshot.users.get(user).ok_or_else(|| format!("there is no user '{user}' at runtime"))?;
        let explained = snapshot.explain_effective(user, HostgroupId(hostgroup));
        Ok(explained.into_iter().map(|(name, text, source)| [name.into(), text.into(), source.as_str().into()]).collect())
    }

    fn pause(&self) -> Result<(), String> {
        self.set_open(false).map_err(|()| "the proxy is already paused".to_owned())
    }

    fn resume(&self) -> Result<(), String> {
        let changed = self.set_open(true);
        self.is_ready()?;
        changed.map_err(|()| "the proxy is not paused".to_owned())
    }

    fn audit(&self, event: AdminEvent) {
        if self.shared.logs.audits.is_on() {
            self.shared.logs.audits.write(AuditRecord::of_admin(event));
        }
    }

    fn rehearse(&self, order: &RehearsalOrder) -> Result<Rehearsed, String> {
        match order {
            RehearsalOrder::Start { name, seconds } => shadow::begin(&self.stats, name, *seconds),
            RehearsalOrder::Stop { name } => {
                let now_ms = self.shared.clock.now_ms();
                let run = self.shared.rehearsals.stop(name, now_ms)?;
                self.shared.end_copying(now_ms);
                settle_rehearsal(&self.stats, &run);
                Ok(Rehearsed::Done(format!(
                    "rehearsal '{name}' ended after {} s; SHOW REHEARSAL '{name}' shows the verdict",
                    run.seconds(now_ms)
                )))
            }
        }
    }

    fn rehearsal_page(&self, name: &str) -> Result<Vec<(&'static str, String)>, String> {
        rehearsal_page(&self.stats, name)
    }

    fn capture(&self, order: &CaptureOrder) -> Result<String, String> {
        match order {
            CaptureOrder::Start(start) => begin_capture(&self.shared, &self.datadir, start),
            CaptureOrder::Stop { name } => {
                let run = self.shared.captures.stop(name)?;
                Ok(format!("capture '{name}' ends; stats_tidegate_captures shows when its file is complete: {}", run.file()))
            }
        }
    }

    fn kill_session(&self, id: u64) -> bool {
        let is_known = self.shared.user_of(id).is_some();
        if is_known {
            self.shared.kill(id, KillKind::Connection);
        }
        is_known
    }

    fn forget_replica(&self, server_id: u32) -> usize {
        self.shared.positions.forget(server_id)
    }

    fn take_digests(&self) -> Vec<Vec<Value>> {
        self.stats.take_digests()
    }

    fn settle_digests(&self, are_saved: bool) {
        self.stats.settle_digests(are_saved);
    }

    fn logged_queries(&self, after: u64, limit: usize) -> Vec<Vec<Value>> {
        self.shared.logs.kept.buffered(after, limit)
    }

    fn forget_logged_queries(&self, up_to: u64, into_table: bool) -> usize {
        self.shared.logs.kept.dumped(up_to, into_table)
    }

    fn flush(&self, what: Flush) -> Result<(), String> {
        match what {
            Flush::QueryCache => drop(self.shared.cache.flush()),
            Flush::Logs => {
                self.shared.logs.flush()?;
                self.shared.client_tls.keys().reopen()?;
            }
            Flush::ClientHosts => self.shared.hosts.clear(),
        }
        Ok(())
    }

    fn log_tls_keys(&self, file: &str) -> Result<(), String> {
        let path = (!file.is_empty()).then(|| self.datadir.join(file));
        self.shared.client_tls.keys().open(path.as_deref())
    }

    /// Sessions keep what they have.
    fn reload_tls(&self) -> Result<String, String> {
        if !self.shared.in_force.load().snapshot.vars.have_ssl {
            return Err("mysql-have_ssl is false".to_owned());
        }
        self.offer_tls(Some(self.shared.tls_loads.load(&self.datadir, &self.shared.client_tls)?));
        Ok("certificates for clients were reloaded".to_owned())
    }
}

/// Settings that differ from what the process started with, and that it cannot change: the name, and what holds until the next start.
fn needs_restart(started: &Snapshot, new: &Snapshot) -> Vec<(&'static str, String)> {
    let values = |snapshot: &Snapshot| {
        let listen = snapshot.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(";");
        [
            ("mysql-threads", snapshot.vars.threads.to_string()),
            ("mysql-stacksize", snapshot.vars.stacksize.to_string()),
            ("mysql-interfaces", listen),
        ]
    };
    let changed = values(started).into_iter().zip(values(new)).filter(|((_, old), (_, new))| old != new);
    let text = |old: &str, new: &str| format!("'{new}' takes effect at the next start; until then '{old}' is in force");
    changed.map(|((name, old), (_, new))| (name, text(&old, &new))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_restart_says_what_holds_until_then() {
        let of = |text: &str| Snapshot::compile(&model::parse(text, "t.cnf").unwrap().0).unwrap();
        let started = of("mysql_variables = { threads=2, interfaces=\"127.0.0.1:6033\" }");
        assert_eq!(needs_restart(&started, &started), []);
        let new = of("mysql_variables = { threads=8, interfaces=\"127.0.0.1:6033\" }");
        let text = "'8' takes effect at the next start; until then '2' is in force".to_owned();
        assert_eq!(needs_restart(&started, &new), [("mysql-threads", text)]);
    }
}
