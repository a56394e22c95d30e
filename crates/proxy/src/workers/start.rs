//! Starting and stopping the data plane.

use crate::clients::listener;
use crate::limits::watchdog;
use crate::session;
use crate::stats::ProxyStats;
use crate::takeover::hand_over_queue::HandOverQueue;
use crate::takeover::inheritance::{Inheritance, ProcessRecord};
use crate::workers::clock::Clock;
use crate::workers::control::Control;
use crate::workers::in_force::InForce;
use crate::workers::mailbox::Mail;
use crate::workers::shared::Shared;
use crate::workers::work;
use model::fleet::RoleKeeper;
use model::snapshot::Snapshot;
use model::{ConfigError, Listen};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wire::auth::rsa::RsaKey;

/// Least descriptors that clients leave to others.
const DESCRIPTORS_KEPT: u64 = 16;

/// Why the data plane could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener could not be opened.
    #[error("cannot listen on {listen}: {error}")]
    Listen {
        /// Which.
        listen: String,
        /// Why.
        error: io::Error,
    },
    /// Certificates.
    #[error("TLS: {0}")]
    Tls(String),
    /// Patterns of rules that cannot be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<ConfigError>),
    /// Threads, keys.
    #[error("{0}")]
    System(String),
}

/// The running data plane.
pub struct Proxy {
    shared: Arc<Shared>,
    control: Arc<Control>,
    workers: Vec<JoinHandle<()>>,
    accepting: Vec<tokio::task::JoinHandle<()>>,
    unix_sockets: Vec<std::path::PathBuf>,
}

impl Proxy {
    /// Binds the listeners, starts the workers and accepts clients. Runs inside a tokio runtime, which accepts. `keeper` says
    /// which server has which role; without one, servers are used as they are configured.
    ///
    /// # Errors
    /// [`StartError`] names the listener, file or limit that is in the way; nothing keeps running then.
    pub async fn start(snapshot: Arc<Snapshot>, datadir: &Path, keeper: Option<Arc<dyn RoleKeeper>>) -> Result<Self, StartError> {
        Self::take_over(snapshot, datadir, keeper, Inheritance::default()).await
    }

    /// The same in the place of another process: what it has listened on, and what of it is in `before`, goes on here.
    ///
    /// # Errors
    /// As for [`Proxy::start`].
    pub async fn take_over(
        snapshot: Arc<Snapshot>,
        datadir: &Path,
        keeper: Option<Arc<dyn RoleKeeper>>,
        before: Inheritance,
    ) -> Result<Self, StartError> {
        let in_force = Arc::new(InForce::compile(Arc::clone(&snapshot), None).map_err(StartError::Config)?);
        let vars = &snapshot.vars;
        let rsa = RsaKey::generate().map_err(|e| StartError::System(e.to_string()))?;
        let mut bound = Vec::new();
        for listen in &snapshot.listen {
            let one = listener::take_or_bind(listen, &before.sockets)
                .map_err(|error| StartError::Listen { listen: listen.to_string(), error })?;
            bound.push((listen.clone(), one));
        }
        let threads = usize::try_from(vars.threads).unwrap_or(1).max(1);
        let stack = usize::try_from(vars.stacksize).unwrap_or(1 << 20);
        let mut shared = Shared::new(in_force, keeper, threads, Some(rsa));
        shared.sockets = before.sockets;
        if let Some(process) = &before.process {
            take_over(process, &mut shared);
        }
        let shared = Arc::new(shared);
        if vars.have_ssl {
            shared.tls.store(Some(shared.tls_loads.load(datadir, &shared.client_tls).map_err(StartError::Tls)?));
        }
        shared.logs.start(datadir, &snapshot.vars);
        shared.traces.start(traces::Environment::of_process(), &snapshot.vars);
        let (open, is_open) = watch::channel(true);
        let stats = Arc::new(ProxyStats::new(Arc::clone(&shared)));
        let control = Arc::new(Control::new(Arc::clone(&shared), stats, datadir.to_path_buf(), bound.len(), open));
        let mut proxy = Self { shared, control, workers: Vec::new(), accepting: Vec::new(), unix_sockets: Vec::new() };
        for index in 0..threads {
            proxy.spawn_worker(index, stack)?;
        }
        proxy.learn_servers().await;
        let next_worker = Arc::new(AtomicUsize::new(0));
        for (listen, one) in bound {
            let (shared, next) = (Arc::clone(&proxy.shared), Arc::clone(&next_worker));
            if let Listen::Unix(path) = &listen {
                proxy.unix_sockets.push(path.clone());
            }
            tracing::info!("listening on {listen}");
            proxy.accepting.push(tokio::spawn(listener::serve(listen, one, shared, next, is_open.clone())));
        }
        proxy.accepting.push(tokio::spawn(watchdog::watch(Arc::clone(&proxy.shared))));
        Ok(proxy)
    }

    /// What an operator may do to it.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Leaves descriptors to servers and administrators: `limit` is what the process may have open. Call it when all is started,
    /// with how many are open then. Returns how many clients are let in at most.
    pub fn share_descriptors(&self, limit: u64, open: u64) -> u64 {
        let most = clients_within(limit.saturating_sub(open));
        self.shared.clients_max.store(most, Ordering::Release);
        most
    }

    fn spawn_worker(&mut self, index: usize, stack: usize) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new().name(format!("worker-{index}")).stack_size(stack.max(1 << 20)).spawn(move || {
            if let Err(e) = work::run(index, shared) {
                tracing::error!("worker {index} could not start: {e}");
            }
        });
        self.workers.push(spawned.map_err(|e| StartError::System(format!("thread for worker {index}: {e}")))?);
        Ok(())
    }

    /// Waits a moment for the first server to say what it is: clients are then told the same.
    async fn learn_servers(&self) {
        let has_servers = self.shared.hostgroups().iter().any(|h| !h.servers().is_empty());
        if !has_servers {
            return;
        }
        if let Some(mailbox) = self.shared.mailboxes.first() {
            mailbox.send(Mail::Probe);
        }
        let limit = Duration::from_millis(self.shared.in_force.load().snapshot.vars.connect_timeout_server).min(Duration::from_secs(3));
        let deadline = Instant::now() + limit;
        while self.shared.info.get().is_none() && Instant::now() < deadline && !self.shared.probe_failed.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops: no new clients, sessions end when idle, all of them at the deadline. True when all ended by themselves.
    pub async fn stop(mut self, drain: Duration) -> bool {
        for task in self.accepting.drain(..) {
            task.abort();
        }
        // Another process may be in charge of them by now.
        for path in self.unix_sockets.iter().filter(|_| self.shared.sockets.is_in_charge()) {
            // Whoever put a file in its place keeps it.
            let _ = model::listen::remove_socket(path);
        }
        self.shared.draining.store(true, Ordering::Release);
        self.shared.send_all(|| Mail::Drain);
        let deadline = Instant::now() + drain;
        while self.shared.frontends.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let left = self.shared.frontends.load(Ordering::Acquire);
        if left > 0 {
            let why = if drain.is_zero() {
                String::new()
            } else {
                format!(" that did not end within mysql-drain_timeout ({} ms)", drain.as_millis())
            };
            tracing::warn!("closing {left} sessions{why}");
        }
        self.shared.send_all(|| Mail::Stop);
        for worker in self.workers.drain(..) {
            // A worker that hangs must not keep the process: it is left behind after a moment.
            let deadline = Instant::now() + Duration::from_secs(3);
            while !worker.is_finished() && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if worker.is_finished() {
                let _ = worker.join();
            }
        }
        self.shared.captures.shut_down();
        self.shared.logs.stop();
        self.shared.traces.stop();
        left == 0
    }

    /// Sessions and idle connections go to another process from now on: each when it is at rest.
    pub fn hand_over(&self, successor: Arc<HandOverQueue>) {
        self.shared.captures.leave();
        self.shared.set_successor(Some(successor));
        self.shared.send_all(|| Mail::Ask(Box::new(session::hand_over)));
    }

    /// That process is gone: what is here stays.
    pub fn keep_all(&self) {
        self.shared.set_successor(None);
    }

    /// How many clients are connected.
    pub fn clients(&self) -> usize {
        self.shared.frontends.load(Ordering::Acquire)
    }

    /// Asks every worker to write what it does and knows to the log; begins new files of query log and audit log.
    pub fn report(&self) {
        self.shared.logs.flush_soon();
        self.shared.send_all(|| Mail::Report);
    }
}

/// Before the first worker runs.
pub(crate) fn take_over(process: &ProcessRecord, shared: &mut Shared) {
    shared.clock = Clock::since_ns(process.clock_origin_ns);
    shared.begin_session_ids_at(process.next_session_id);
    for (name, secrets) in &process.secrets {
        shared.user(name).learn(|learnt| learnt.clone_from(secrets));
    }
}

/// How many clients so many free descriptors are for.
fn clients_within(free: u64) -> u64 {
    free.saturating_sub((free / 4).max(DESCRIPTORS_KEPT)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::users::LearntSecrets;
    use crate::workers::worker::FIRST_SESSION_ID;
    use std::path::PathBuf;

    fn shared(workers: usize) -> Arc<Shared> {
        let in_force = InForce::compile(crate::bed::snapshot(&[(0, "a")], ""), None).unwrap();
        Arc::new(Shared::new(Arc::new(in_force), None, workers, None))
    }

    /// A process, and one with so many workers that starts in its place.
    fn processes(workers: usize, workers_of_new: usize) -> (Arc<Shared>, Arc<Shared>) {
        let old = shared(workers);
        old.sessions_begun.store(1_000, Ordering::Release);
        let stats = Arc::new(ProxyStats::new(Arc::clone(&old)));
        let control = Control::new(Arc::clone(&old), stats, PathBuf::new(), 0, watch::Sender::new(true));
        let mut new = shared(workers_of_new);
        take_over(&control.process_record(), Arc::get_mut(&mut new).unwrap());
        (old, new)
    }

    /// The old process accepts clients until the new one is ready.
    #[test]
    fn sessions_of_two_processes_have_different_ids() {
        for (workers, workers_of_new) in [(1, 1), (2, 2), (3, 8), (8, 3), (1, 7)] {
            let (old, new) = processes(workers, workers_of_new);
            let id = |number: u64, worker: usize, workers: usize| {
                let workers = workers as u64;
                FIRST_SESSION_ID - FIRST_SESSION_ID % workers + number * workers + worker as u64
            };
            old.sessions_begun.fetch_add(100, Ordering::AcqRel);
            // Workers have not begun these yet.
            old.frontends.store(7, Ordering::Release);
            new.count_elsewhere(old.holdings(), None);
            let last = id(1_000 + 100 + 7 - 1, workers - 1, workers);
            let first = id(new.sessions_begun.load(Ordering::Acquire), 0, workers_of_new);
            assert!(first > last, "{workers} workers, then {workers_of_new}: {first}, {last}");
        }
    }

    #[test]
    fn a_password_that_is_learnt_while_another_process_starts_is_known_there() {
        let (old, new) = processes(1, 1);
        let known = |name: &str| {
            let LearntSecrets { clear, sha1, fast, additional_fast } = new.user(name).secrets();
            (clear, sha1, fast, additional_fast)
        };
        let all = LearntSecrets { clear: Some(b"x".to_vec()), sha1: Some([1; 20]), fast: Some([2; 32]), additional_fast: Some([3; 32]) };
        old.user("anna").learn(|secrets| secrets.clone_from(&all));
        old.user("bert").learn(|secrets| secrets.clone_from(&all));
        new.user("bert").learn(|secrets| secrets.sha1 = Some([9; 20]));
        new.count_elsewhere(old.holdings(), None);
        let clear = Some(b"x".to_vec());
        assert_eq!(known("anna"), (clear.clone(), Some([1; 20]), Some([2; 32]), Some([3; 32])));
        assert_eq!(known("bert"), (clear, Some([9; 20]), Some([2; 32]), Some([3; 32])), "what it knows stays");
        assert!(old.holdings().secrets.is_empty(), "they are told once");
        let with = |password: &str| {
            let users = format!("mysql_users = ( {{ username=\"anna\", password=\"{password}\" }} )");
            crate::bed::snapshot(&[(0, "a")], &users)
        };
        new.configure_users(&with("x"), &with("y"));
        old.user("anna").learn(|secrets| secrets.clone_from(&all));
        new.count_elsewhere(old.holdings(), None);
        assert_eq!(known("anna"), (None, None, None, Some([3; 32])), "what is of an older password is not taken");
    }

    #[test]
    fn definitions_and_rights_that_change_are_known_in_both_processes() {
        let (old, new) = processes(1, 1);
        let epochs = || [&old, &new].map(|process| process.ddl_epoch.load(Ordering::Acquire));
        let exchange = || {
            new.count_elsewhere(old.holdings(), None);
            old.learn_changes(new.changes());
        };
        exchange();
        let [_, before] = epochs();
        old.anything_was_defined();
        exchange();
        assert!(epochs()[1] > before);
        let [before, _] = epochs();
        new.anything_was_defined();
        new.rights_changed_ms.store(77, Ordering::Release);
        exchange();
        assert!(epochs()[0] > before);
        assert_eq!(old.rights_changed_ms.load(Ordering::Acquire), 77);
        let before = epochs();
        exchange();
        exchange();
        assert_eq!(epochs(), before, "no process takes its own changes for the other's");
    }

    #[test]
    fn clients_leave_descriptors_to_others() {
        assert_eq!([0, 10, 40, 64, 1000].map(clients_within), [1, 1, 24, 48, 750]);
    }
}
