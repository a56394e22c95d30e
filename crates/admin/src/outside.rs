//! The thread of the admin interface's ports: MySQL port, HTTP port and scheduler on a runtime of their own. So an operator gets in however
//! busy the workers are.
//!
//! Follows the configuration in force: every LOAD ... TO RUNTIME takes effect here. If a part cannot (an address is in use), an error is
//! logged and the old state stays.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use handover::Sockets;
use model::stats::StatsSource;
use model::{Config, Listen};
use tls::ServerTls;
use tokio::sync::{oneshot, watch};

use crate::error::AdminError;
use crate::front::listen::could_bind;
use crate::front::{Exposure, Front, FrontSettings};
use crate::handle::EngineHandle;
use crate::http::{HttpSettings, Readiness, Server};
use crate::scheduler::{Board, Job, Scheduler};
use crate::sharing::Sharing;
use crate::web::{Web, WebSettings};

/// Threads for what blocks: hashing passwords, gathering metrics.
const BLOCKING_THREADS: usize = 4;

/// The parts that the thread of the ports gets from the process at its start.
pub struct OutsideParts {
    /// Executes SQL and publishes the configuration in force.
    pub engine: EngineHandle,
    /// The sources of the metrics at `/metrics`.
    pub sources: Vec<Arc<dyn StatsSource>>,
    /// The scheduler's results; give it to the engine as a source too.
    pub board: Arc<Board>,
    /// TLS for clients of the MySQL port, as the data plane offers it; a reload sends a new one.
    pub tls: watch::Receiver<Option<Arc<ServerTls>>>,
    /// The answer of `/readyz`.
    pub is_ready: Readiness,
    /// The process's listening sockets. While another process is in charge of them, no client is admitted and no script runs.
    pub sockets: Arc<Sockets>,
}

/// The addresses at which the ports listen now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The MySQL port's listeners, with the ports that the system chose.
    pub mysql: Vec<Listen>,
    /// The HTTP port, when it is enabled.
    pub http: Option<SocketAddr>,
    /// The web page's, when it is enabled.
    pub web: Option<SocketAddr>,
}

/// The running thread of ports; dropped, it stops.
pub struct Outside {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    addresses: Addresses,
}

impl Outside {
    /// Opens the ports and starts the scheduler. Blocks until that is done.
    ///
    /// # Errors
    /// The address that cannot be opened or the setting that is wrong; nothing keeps running then.
    pub fn start(parts: OutsideParts) -> Result<Self, AdminError> {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let failed = |e: std::io::Error| AdminError::Refused(format!("the admin interface's thread: {e}"));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(BLOCKING_THREADS).build().map_err(failed)?;
        let body = move || {
            runtime.block_on(live(parts, tell, stopped));
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(body).map_err(failed)?;
        match told.recv().unwrap_or_else(|_| Err("the admin interface's thread ended".to_owned())) {
            Ok(addresses) => Ok(Self { stop: Some(stop), thread: Some(thread), addresses }),
            Err(why) => {
                // With the thread go its handles of the engine.
                let _ = thread.join();
                Err(AdminError::Refused(why))
            }
        }
    }

    /// The ports' addresses at the start.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Closes the ports and ends sessions and scripts; blocks until the scripts are gone, some seconds at most.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether the ports and the sharing understand the admin variables of `config`. Opens nothing, so it holds for a later start too.
///
/// # Errors
/// The variable that they do not understand.
pub(crate) fn could_read(config: &Config) -> Result<(), String> {
    shared_config::Settings::read(&config.admin)?;
    FrontSettings::read(config, None)?;
    HttpSettings::read(config)?;
    WebSettings::read(config, None)?;
    Ok(())
}

/// Whether the addresses of `config` could be opened where those of `runtime` are.
///
/// # Errors
/// The variable, and why its address cannot be opened.
pub(crate) fn could_follow(runtime: &Config, config: &Config) -> Result<(), String> {
    let addresses = |config: &Config| {
        let front = FrontSettings::read(config, None)?.listen.into_iter().map(|listen| ("admin-mysql_ifaces", listen));
        let http = HttpSettings::read(config)?.listen.map(|address| ("admin-restapi_port", Listen::Tcp(address)));
        let web = WebSettings::read(config, None)?.listen.map(|address| ("admin-web_port", Listen::Tcp(address)));
        Ok::<_, String>(front.chain(http).chain(web).collect::<Vec<_>>())
    };
    let ours: Vec<Listen> = addresses(runtime)?.into_iter().map(|(_, listen)| listen).collect();
    let mut wanted = addresses(config)?.into_iter();
    wanted.try_for_each(|(name, listen)| could_bind(&listen, &ours).map_err(|e| format!("{name}: cannot listen on {listen}: {e}")))
}

/// The three parts that settings apply to.
struct Parts {
    sharing: Option<Arc<Sharing>>,
    front: Front,
    http: Server,
    web: Web,
    scheduler: Scheduler,
    sockets: Arc<Sockets>,
    /// The last log line on guessable passwords.
    told: Option<Exposure>,
}

async fn live(parts: OutsideParts, tell: mpsc::Sender<Result<Addresses, String>>, mut stopped: oneshot::Receiver<()>) {
    let OutsideParts { engine, mut sources, board, mut tls, is_ready, sockets } = parts;
    sources.extend(engine.numbers());
    sources.extend(engine.sharing().cloned().map(|sharing| sharing as Arc<dyn StatsSource>));
    let mut runtime = engine.runtime();
    let config = Arc::clone(&runtime.borrow_and_update());
    let offered = tls.borrow_and_update().clone();
    let read = FrontSettings::read(&config, offered.clone());
    let (settings, of_web) = match read.and_then(|settings| Ok((settings, WebSettings::read(&config, offered.clone())?))) {
        Ok(settings) => settings,
        Err(e) => return drop(tell.send(Err(e))),
    };
    let sharing = engine.sharing().cloned();
    let web = Web::new(engine.clone(), of_web, sources.clone(), Arc::clone(&sockets));
    let front = Front::new(engine, settings, Arc::clone(&sockets));
    let http = Server::new(sources, is_ready, Arc::clone(&sockets));
    let mut in_charge = sockets.watch();
    let mut parts = Parts { sharing, front, http, web, scheduler: Scheduler::new(board), sockets, told: None };
    let faults = parts.apply(&config, offered).await;
    let addresses = Addresses { mysql: parts.front.addresses(), http: parts.http.address(), web: parts.web.address() };
    if faults.is_empty() {
        let _ = tell.send(Ok(addresses));
        parts.follow(&mut runtime, &mut tls, &mut in_charge, &mut stopped).await;
    } else {
        let _ = tell.send(Err(faults.join("; ")));
    }
    parts.front.close().await;
    tokio::join!(parts.http.close(), parts.web.close(), parts.scheduler.stop());
}

impl Parts {
    /// Puts in force whatever is published, until told to stop.
    async fn follow(
        &mut self,
        runtime: &mut watch::Receiver<Arc<Config>>,
        tls: &mut watch::Receiver<Option<Arc<ServerTls>>>,
        in_charge: &mut watch::Receiver<bool>,
        stopped: &mut oneshot::Receiver<()>,
    ) {
        loop {
            tokio::select! {
                biased;
                _ = &mut *stopped => return,
                Ok(()) = runtime.changed() => {}
                Ok(()) = tls.changed() => {}
                Ok(()) = in_charge.changed() => {}
            }
            let (config, offered) = (Arc::clone(&runtime.borrow_and_update()), tls.borrow_and_update().clone());
            for fault in self.apply(&config, offered).await {
                tracing::error!("{fault}; the earlier setting stays in force");
            }
        }
    }

    /// Puts a configuration in force; what could not be, one line each.
    async fn apply(&mut self, config: &Config, tls: Option<Arc<ServerTls>>) -> Vec<String> {
        let mut faults = Vec::new();
        match FrontSettings::read(config, tls.clone()) {
            Ok(settings) => {
                let applied = self.front.apply(settings).await;
                faults.extend(applied.err().map(|(listen, e)| format!("admin-mysql_ifaces: cannot listen on {listen}: {e}")));
            }
            Err(e) => faults.push(e),
        }
        match HttpSettings::read(config) {
            Ok(settings) => {
                let applied = self.http.apply(settings).await;
                faults.extend(applied.err().map(|(address, e)| format!("admin-restapi_port: cannot listen on {address}: {e}")));
            }
            Err(e) => faults.push(e),
        }
        match WebSettings::read(config, tls) {
            Ok(settings) => {
                let applied = self.web.apply(settings).await;
                faults.extend(applied.err().map(|(address, e)| format!("admin-web_port: cannot listen on {address}: {e}")));
            }
            Err(e) => faults.push(e),
        }
        if faults.is_empty() {
            self.tell(Exposure::of(config));
        }
        // While this process is not in charge, the other one does all this.
        if let Some(sharing) = self.sharing.as_ref().filter(|_| self.sockets.is_in_charge()) {
            faults.extend(sharing.configure(config).err());
        }
        self.scheduler.apply(if self.sockets.is_in_charge() { Job::read(config) } else { Vec::new() });
        faults
    }

    /// Logs news about guessable passwords once.
    fn tell(&mut self, exposure: Option<Exposure>) {
        if self.told == exposure {
            return;
        }
        match &exposure {
            Some(Exposure { text, is_open: true }) => tracing::warn!("{text}"),
            Some(Exposure { text, .. }) => tracing::info!("{text}"),
            None => {}
        }
        self.told = exposure;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{Jobs, channel};
    use lab::client::{Client, ConnectOptions};
    use std::time::{Duration, Instant};

    fn config(change: impl FnOnce(&mut Config)) -> Arc<Config> {
        let mut config = Config::default();
        config.admin.set("mysql_ifaces", "127.0.0.1:0").unwrap();
        change(&mut config);
        Arc::new(config)
    }

    fn start(config: Arc<Config>) -> (Result<Outside, AdminError>, Jobs) {
        let (engine, jobs) = channel(config);
        let (_, tls) = watch::channel(None);
        let parts = OutsideParts {
            engine,
            sources: Vec::new(),
            board: Arc::default(),
            tls,
            is_ready: Arc::new(|| Ok(())),
            sockets: Sockets::fresh(),
        };
        (Outside::start(parts), jobs)
    }

    #[test]
    fn follows_the_configuration_in_force() {
        let (outside, jobs) = start(config(|_| ()));
        let outside = outside.unwrap();
        let Listen::Tcp(address) = outside.addresses().mysql[0].clone() else { panic!() };
        let log_in = |password: &str| Client::connect(&ConnectOptions::tcp(address.to_string(), "admin", password));
        log_in("admin").unwrap();
        jobs.publish(config(|c| c.admin.set("admin_credentials", "admin:changed").unwrap()));
        let deadline = Instant::now() + Duration::from_secs(20);
        while log_in("changed").is_err() {
            assert!(Instant::now() < deadline, "the new password never holds");
        }
        assert!(log_in("admin").is_err());
        outside.stop();
        assert!(log_in("changed").is_err());
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let (outside, _jobs) = start(config(|c| {
            c.admin.set("restapi_enabled", "true").unwrap();
            c.admin.set("restapi_port", &port.to_string()).unwrap();
        }));
        let error = outside.err().unwrap().to_string();
        assert!(error.starts_with(&format!("admin-restapi_port: cannot listen on 127.0.0.1:{port}")), "{error}");
    }
}
