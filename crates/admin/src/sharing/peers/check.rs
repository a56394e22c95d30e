//! Asks each peer for its revision every `admin-cluster_check_interval_ms`, and pulls newer ones.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use model::Config;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::{Choice, Peer, PeerChecksum, PeerLine, Peers, Pulled, choose, diffs_before_sync, is_on};
use crate::client::{Client, Fault, Limit};
use crate::clock::now;
use crate::handle::WeakHandle;
use crate::reply::{Reply, Role, SessionInfo};
use crate::take_over::Frozen;

/// Most peers that are asked.
const MOST: usize = 256;
/// Limit of an answer that is no configuration: 1,000 ids of revisions have 40 kB.
const SHORT: Limit = Limit { bytes: 256 << 10, time: Duration::from_secs(30) };
/// How long a configuration may take to come.
const PULL: Duration = Duration::from_secs(60);
/// Time after which a revision that was refused is pulled again.
const AGAIN: Duration = Duration::from_secs(30);

/// The state that the threads share.
#[derive(Clone)]
struct Checks {
    peers: Arc<Peers>,
    engine: Arc<WeakHandle>,
    runtime: watch::Receiver<Arc<Config>>,
    frozen: Frozen,
}

impl Peers {
    /// Asks the peers of the configuration in force for as long as the engine lives.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        engine: WeakHandle,
        runtime: watch::Receiver<Arc<Config>>,
        frozen: Frozen,
    ) -> std::io::Result<()> {
        let checks = Checks { peers: Arc::clone(self), engine: Arc::new(engine), runtime, frozen };
        let waits = tokio::runtime::Builder::new_current_thread().build()?;
        thread::Builder::new().name("peers".to_owned()).spawn(move || checks.keep_up(&waits)).map(drop)
    }
}

/// The rows of `proxysql_servers`.
fn listed(config: &Config) -> Vec<((String, u16), i64, String)> {
    if !is_on(config) {
        return Vec::new();
    }
    let row = |row: &model::config::Row| {
        let port = row.integer("port").and_then(|port| u16::try_from(port).ok())?;
        Some((
            (row.text("hostname")?.to_owned(), port),
            row.integer("weight").unwrap_or(0),
            row.text("comment").unwrap_or_default().to_owned(),
        ))
    };
    config.rows("proxysql_servers").iter().filter_map(row).take(MOST).collect()
}

impl Checks {
    /// Keeps one thread for each peer that is listed, until the engine is gone, which announces configurations.
    fn keep_up(mut self, waits: &Runtime) {
        let mut asked: BTreeSet<(String, u16)> = BTreeSet::new();
        while self.engine.is_alive() {
            let config = self.runtime.borrow_and_update().clone();
            let rows = listed(&config);
            {
                let mut state = self.peers.lock();
                state.peers.retain(|at, _| rows.iter().any(|(row, ..)| row == at));
                for (at, weight, comment) in &rows {
                    let peer = state.peers.entry(at.clone()).or_default();
                    (peer.weight, peer.comment) = (*weight, comment.clone());
                }
            }
            asked.retain(|at| rows.iter().any(|(row, ..)| row == at));
            for (at, ..) in rows {
                if asked.insert(at.clone()) {
                    let checks = self.clone();
                    let name = format!("peer-{}", at.1);
                    if let Err(error) = thread::Builder::new().name(name).spawn(move || checks.follow(&at)) {
                        tracing::error!("no thread for a peer: {error}");
                    }
                }
            }
            if waits.block_on(self.runtime.changed()).is_err() {
                return;
            }
        }
    }

    /// Asks one peer until it is listed no more.
    fn follow(&self, at: &(String, u16)) {
        let (mut client, mut checks) = (None, 0_u64);
        let mut connected_by = self.runtime.borrow().clone();
        while self.engine.is_alive() && self.peers.lock().peers.contains_key(at) {
            let config = self.runtime.borrow().clone();
            if !Arc::ptr_eq(&config, &connected_by) {
                // The new configuration may have another password or other CAs.
                (client, connected_by) = (None, Arc::clone(&config));
            }
            let begun = Instant::now();
            let with_status =
                config.admin.cluster_check_status_frequency > 0 && checks.is_multiple_of(config.admin.cluster_check_status_frequency);
            match self.check(&mut client, at, &config, with_status) {
                Ok(()) => checks += 1,
                Err(why) => {
                    client.iter().for_each(|client| self.peers.measure(client));
                    client = None;
                    if let Some(peer) = self.peers.lock().peers.get_mut(at) {
                        peer.checks_err += 1;
                        peer.newer = 0;
                        // A peer that does not answer does not count.
                        peer.line = None;
                        if peer.error != why {
                            tracing::warn!("peer {}:{}: {why}", at.0, at.1);
                            peer.error = why;
                        }
                    }
                }
            }
            self.decide(&mut client, at, &config);
            let interval = Duration::from_millis(config.admin.cluster_check_interval_ms);
            thread::sleep(interval.saturating_sub(begun.elapsed()).max(Duration::from_millis(1)));
        }
    }

    fn check(&self, client: &mut Option<Client>, at: &(String, u16), config: &Config, with_status: bool) -> Result<(), String> {
        if client.is_none() {
            *client = Some(connect(at, config)?);
        }
        let Some(client) = client.as_mut() else { return Err("no connection".to_owned()) };
        let begun = Instant::now();
        let line = ask(client, "CONFIG REVISION")?;
        let text = line.first().and_then(|row| row.first()?.clone()).ok_or("the peer has not reported its revision")?;
        let line = serde_json::from_str(&text).map(PeerLine::bounded);
        let line = line.map_err(|e| format!("the peer's reply about its revision cannot be read: {e}"))?;
        let ping_us = i64::try_from(begun.elapsed().as_micros()).unwrap_or(i64::MAX);
        let sums = ask(client, "SELECT name, version, epoch, checksum FROM runtime_checksums_values")?;
        let own = match self.ask_self("SELECT name, checksum FROM runtime_checksums_values") {
            Some(Reply::Rows { rows, .. }) => rows,
            _ => Vec::new(),
        };
        let counters = if with_status { ask(client, COUNTERS)? } else { Vec::new() };
        let mut state = self.peers.lock();
        let Some(peer) = state.peers.get_mut(at) else { return Ok(()) };
        peer.line = Some(line);
        (peer.ping_us, peer.checked, peer.checks_ok) = (ping_us, Some(Instant::now()), peer.checks_ok + 1);
        peer.error.clear();
        let is_told = |name: &String| sums.iter().any(|row| row.first().is_some_and(|told| told.as_ref() == Some(name)));
        peer.checksums.retain(|name, _| is_told(name));
        for row in sums {
            let field = |index: usize| row.get(index).cloned().flatten().unwrap_or_default();
            let (name, checksum) = (field(0), field(3));
            let same = own.iter().any(|own| matches!(&own[..], [Some(a), Some(b)] if *a == name.as_bytes() && *b == checksum.as_bytes()));
            let known = peer.checksums.entry(name).or_default();
            let changed_at = if known.checksum == checksum { known.changed_at } else { now() };
            let differs = if same { 0 } else { known.differs + 1 };
            let (version, epoch) = (field(1).parse().unwrap_or(0), field(2).parse().unwrap_or(0));
            *known = PeerChecksum { version, epoch, checksum, changed_at, updated_at: now(), differs };
        }
        for row in counters {
            let value = row.get(1).cloned().flatten().and_then(|text| text.parse().ok()).unwrap_or(0);
            match row.first().and_then(|name| name.as_deref()).unwrap_or_default() {
                "ProxySQL_Uptime" => peer.uptime_s = value,
                "Questions" => peer.queries = value,
                "Client_Connections_connected" => peer.clients_connected = value,
                "Client_Connections_created" => peer.clients_created = value,
                _ => {}
            }
        }
        Ok(())
    }

    fn ask_self(&self, sql: &str) -> Option<Reply> {
        let session = SessionInfo { user: "peers".to_owned(), ..SessionInfo::default() };
        self.engine.execute(Role::Admin, &session, sql)
    }

    /// Pulls the peer's revision, if it is the chosen one, and was so for enough checks.
    fn decide(&self, client: &mut Option<Client>, at: &(String, u16), config: &Config) {
        let (line, is_joining) = {
            let mut state = self.peers.lock();
            let own = &self.peers.uuid;
            let lines: Vec<(&(String, u16), &PeerLine)> =
                state.peers.iter().filter_map(|(at, peer)| Some((at, peer.line.as_ref().filter(|line| line.uuid != *own)?))).collect();
            let others: Vec<_> = lines.iter().map(|(_, line)| line.descent.as_ref()).collect();
            let is_equal: Vec<bool> = lines.iter().map(|(_, line)| line.sha256 == state.sha256).collect();
            let choice = choose(state.descent.as_ref(), &others, &is_equal);
            let is_this = matches!(&choice, Choice::Pull(index) if lines[*index].0 == at);
            let conflict = match &choice {
                Choice::Conflict(indices) => {
                    let named: Vec<String> =
                        indices.iter().filter_map(|index| Some((lines[*index].1, others[*index]?))).map(named).collect();
                    Some(format!(
                        "conflict with {}: the configurations have no common history. CONFIG REBASE MINE puts this proxy's in force \
                         everywhere, CONFIG REBASE SHARED takes the other proxy's",
                        named.join(", ")
                    ))
                }
                Choice::Undecided(indices) => {
                    // Peers with other shared modules differ in any case.
                    let differing = indices.iter().map(|index| lines[*index].1).filter(|line| line.modules == state.modules);
                    let named: Vec<&str> = differing.map(|line| line.name.as_str()).collect();
                    (!named.is_empty()).then(|| {
                        format!(
                            "the configuration of {} differs, and no peer has a revision yet: run LOAD or CONFIG SHARE on the proxy \
                             whose configuration is right",
                            named.join(", ")
                        )
                    })
                }
                _ => None,
            };
            let joining = match &choice {
                Choice::Join(index) if lines[*index].0 == at => Some(lines[*index].1.clone()),
                _ => None,
            };
            let is_joining = joining.is_some();
            if let Some(conflict) = conflict.as_ref().filter(|conflict| state.conflict.as_ref() != Some(conflict)) {
                tracing::error!("shared configuration: {conflict}");
            }
            state.conflict = conflict;
            state.joining = joining.or(state.joining.take());
            let refused = state.refused.clone();
            let Some(peer) = state.peers.get_mut(at) else { return };
            peer.newer = if is_this { peer.newer + 1 } else { 0 };
            let line = peer.line.clone().filter(|_| is_this && peer.newer >= patience(config, peer));
            let is_refused =
                |line: &PeerLine| refused.as_ref().is_some_and(|(id, _)| line.descent.as_ref().is_some_and(|one| one.revision.id == *id));
            // Not at each check, while the reason may go away by itself.
            let again = AGAIN.as_millis().checked_div(u128::from(config.admin.cluster_check_interval_ms)).unwrap_or(1).max(1);
            (line.filter(|line| !is_refused(line) || u128::from(peer.newer).is_multiple_of(again)), is_joining)
        };
        if self.frozen.is_set() {
            return;
        }
        if is_joining {
            let _ = self.ask_self("CONFIG FOLLOW");
        }
        let (Some(line), Some(open)) = (line, client.as_mut()) else { return };
        let (number, id) = line.descent.as_ref().map(|one| (one.revision.number, one.revision.id.clone())).unwrap_or_default();
        let outcome = pull(open, line, config).and_then(|pulled| {
            self.peers.lock().pulled = Some(pulled);
            match self.ask_self("CONFIG FOLLOW") {
                Some(Reply::Err { text, .. }) => Err(text),
                _ => Ok(()),
            }
        });
        if open.fault().is_some() {
            self.peers.measure(open);
            *client = None;
        }
        if let Err(why) = outcome {
            tracing::error!(
                "shared configuration: revision {number} of {}:{} is not used: {why}; the earlier revision stays in force",
                at.0,
                at.1
            );
            self.peers.lock().refused = Some((id, why));
        }
    }
}

const COUNTERS: &str = "SELECT variable_name, variable_value FROM stats_mysql_global WHERE variable_name IN ('ProxySQL_Uptime', 'Questions', \
     'Client_Connections_connected', 'Client_Connections_created')";

fn named((line, descent): (&PeerLine, &super::Descent)) -> String {
    format!("{}, whose revision is {}", line.name, super::described(descent))
}

/// Checks that a newer revision must have been seen in: the most that any module wants that differs.
fn patience(config: &Config, peer: &Peer) -> u64 {
    let differing = super::SHARED.iter().filter(|(_, name)| peer.checksums.get(*name).is_some_and(|sum| sum.differs > 0));
    differing.map(|(words, _)| diffs_before_sync(config, words)).max().unwrap_or(1)
}

/// A connection to a peer.
pub(super) fn connect(at: &(String, u16), config: &Config) -> Result<Client, String> {
    let target = if at.0.contains(':') { format!("[{}]:{}", at.0, at.1) } else { format!("{}:{}", at.0, at.1) };
    let (password, ca) = (config.admin.cluster_password.expose_text(), &config.admin.shared_config_ca);
    let ca = (!ca.is_empty()).then(|| Path::new(ca));
    Client::connect(&target, &config.admin.cluster_username, &password, ca).map_err(|e| format!("{e:#}"))
}

fn ask(client: &mut Client, sql: &str) -> Result<Vec<Vec<Option<String>>>, String> {
    client.rows(sql, SHORT).map_err(|e| format!("{e:#}"))?.map_err(|why| format!("{why}: the peer is not a Tidegate of this version"))
}

/// The revision that a peer has said it has, whole.
pub(super) fn pull(client: &mut Client, line: PeerLine, config: &Config) -> Result<Pulled, String> {
    let descent = line.descent.ok_or("the peer has no revision")?;
    let bytes = config.admin.shared_config_max_bytes;
    let rows = client.rows("CONFIG REVISION TEXT", Limit { bytes: bytes + SHORT.bytes, time: PULL });
    let rows = rows.map_err(|e| match client.fault() {
        Some(Fault::TooLong) => format!("the revision has more than {bytes} bytes (admin-shared_config_max_bytes)"),
        _ => format!("{e:#}"),
    })??;
    let text: String = rows.into_iter().filter_map(|row| row.into_iter().next()?).collect();
    if shared_config::sum(text.as_bytes()) == line.sha256 {
        Ok(Pulled { descent, modules: line.modules, text })
    } else {
        Err("the peer has another revision by now".to_owned())
    }
}
