//! Promotes a replica in place of a dead writer (`mysql_healing`, mode `full`).
//!
//! The steps: claim the servers and lock each one; stop the receivers; look again and choose; apply what was received; note on disk what the
//! chosen server has; stop its channel; open it. Each change is registered before it is made, and undone if a later step fails. Once the
//! server may be open, the work goes forward only: sessions go there, and the other replicas follow ([`after`]).
//!
//! What is done to channels is written down before the deed, so that another process can undo it ([`undo`]).
//! INVARIANT: no server is opened unless the verdict is still `dead`, the old writer does not answer, and no other server may write
//! ([`opening`]).

mod acks;
mod after;
mod by_hand;
mod hooks;
mod ledger;
mod opening;
mod tenure;
mod undo;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use model::snapshot::{HealingMode, ReadOnlyCheck, Server};
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinSet;
use topology::healing::{Act, Lease, Plan, Record, Stopped, Verdict, Wish, not_revoked};
use topology::{Event, EventKind};

use super::claim::{Claim, Work};
use super::control::Control;
use super::gate::{Gate, lacks_right_to_set};
use super::repoint::{self, Channel, SemiSync};
use crate::channels::ThreadState;
use crate::client::{Access, Fault, open};
use crate::clock::unix_us;
use crate::healing;
use crate::monitor::{Account, Monitor, lock};
use crate::statements;

use after::{SEEN, STEP};
use opening::{OPENED, Opened};
use undo::point;

pub(crate) use tenure::Tenure;
pub(crate) use undo::resume;

/// Longest for everything before the server is opened, beside applying.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest until a server lets the proxy in.
const REACHED: Duration = Duration::from_secs(2);
/// Time between looks at whether the promotion is still wanted.
const WATCH_EVERY: Duration = Duration::from_millis(50);

/// A dead writer that is to be replaced.
#[derive(Debug, Clone)]
pub(crate) struct Promote {
    pub(crate) hostgroup: HostgroupId,
    /// The dead writer.
    pub(crate) old: Arc<Server>,
    /// The other servers that answer.
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) check: ReadOnlyCheck,
    /// The channels by which servers replicate from the dead writer. Others are left alone.
    pub(crate) channels: Vec<(ServerAddr, String)>,
    /// Longest time for applying what was received, ms.
    pub(crate) apply_ms: u64,
    /// Servers that could not apply what they had received, for this death, each with the reason: later plans do without them.
    pub(crate) unable: Unable,
    /// The record by which the plan was decided. The plan begins only if it is still the one in etcd.
    pub(crate) seen: Record,
    /// An operator ordered it so: then the mode does not count.
    pub(crate) wish: Option<Wish>,
}

impl Promote {
    /// Whether the plan has to do with this server.
    fn has(&self, server: &ServerAddr) -> bool {
        self.servers.iter().any(|one| one.key.addr() == *server)
    }
}

/// See [`Promote::unable`].
pub(crate) type Unable = Arc<Mutex<BTreeMap<ServerAddr, String>>>;

/// What came of it, in words.
#[derive(Debug)]
pub(crate) enum Promotion {
    /// Another server writes.
    Done(String),
    /// No server was promoted; or nobody knows.
    Failed(String),
}

/// A change that is undone if no server is opened.
#[derive(Debug, Clone)]
enum Done {
    /// The receiver was stopped.
    Frozen { server: Arc<Server>, channel: String },
    /// The channel was pointed at another replica, to fetch what is missing.
    Fetches { server: Arc<Server>, channel: String, before: ServerAddr },
    /// Both threads were stopped.
    Stopped { server: Arc<Server>, channel: String },
    /// The source side of its semi-synchronous replication was switched on.
    Waits { server: Arc<Server>, source: SemiSync },
    /// What the server has was noted, and that it is promoted.
    Noted { heir: ServerAddr },
}

/// Changes, in the order in which they were made.
type Changes = Arc<Mutex<Vec<Done>>>;

/// Everything is done but the opening.
struct Ready {
    candidate: Control,
    server: Arc<Server>,
    /// The other replicas, under their locks.
    others: Vec<Control>,
    plan: Plan,
    /// The channels that replicated when the plan began. What an operator had stopped before is not started.
    ran: Vec<(ServerAddr, String)>,
    /// The candidate's channel, which is stopped.
    taken: Channel,
    /// `read_only` of the candidate.
    gate: Gate,
    /// The dead writer waited for acknowledgements.
    was_semi_sync: bool,
}

/// The GRANT without which this server cannot be promoted; None if the monitor's user has all rights. An error if the server did not say.
pub(crate) async fn lacks_right(monitor: &Arc<Monitor>, server: &Arc<Server>) -> Result<Option<String>, String> {
    let asked = async {
        let mut control = Control::open(monitor, server, Instant::now() + REACHED).await?;
        let mut missing = Vec::from_iter(lacks_right_to_set(&mut control).await?);
        missing.extend(repoint::missing_rights(&mut control, true).await?);
        missing.dedup();
        if missing.is_empty() {
            return Ok(None);
        }
        let names: Vec<&str> = missing.iter().map(|privilege| privilege.trim_end_matches(" ON *.*")).collect();
        let account = control
            .value("SELECT CONCAT(QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))");
        Ok(Some(format!("the monitor's user lacks rights: GRANT {} ON *.* TO {}", names.join(", "), account.await?)))
    };
    tokio::time::timeout(REACHED, asked).await.unwrap_or_else(|_| Err(format!("no answer within {} s", REACHED.as_secs())))
}

/// See the module. On the monitor's thread.
pub(crate) async fn run(monitor: &Arc<Monitor>, promote: Promote) -> Promotion {
    let begun = Instant::now();
    let _claim = match Claim::take(monitor, promote.hostgroup, Work::Promotion) {
        Ok(claim) => claim,
        Err(why) => return Promotion::Failed(format!("{why}; nothing was changed")),
    };
    let changes = Changes::default();
    let tenure = Tenure::new(monitor, promote.hostgroup);
    let is_shared = tenure.is_shared();
    // What an earlier plan left at a server that did not answer.
    let left = if is_shared { monitor.record(promote.hostgroup).0.stopped } else { monitor.healing.orders.stopped(promote.hostgroup) };
    let left = left.into_iter().filter(|one| !promote.has(&one.server)).collect();
    let work = Arc::new(Healer {
        monitor: Arc::clone(monitor),
        promote,
        changes: Arc::clone(&changes),
        stopped: Mutex::new(left),
        tenure,
        is_shared,
        is_kept: AtomicBool::new(false),
        id: format!("{}-{}", monitor.own_name(), unix_us()),
    });
    work.note(&work.promote.old.key.addr(), "plan begins", "the writer is dead");
    // In a task of its own: what it has changed is undone even if it panics.
    let prepared = tokio::spawn({
        let work = Arc::clone(&work);
        async move { work.guarded(work.prepare()).await }
    });
    let mut ready = match prepared.await.unwrap_or_else(|e| Err(format!("the work has ended: {e}"))) {
        Ok(ready) => ready,
        Err(why) => return work.give_up(why, None).await,
    };
    let heir = ready.server.key.addr();
    match work.open(&mut ready).await {
        Opened::Yes => {}
        Opened::No(why) => return work.give_up(why, None).await,
        Opened::Unknown(why) => {
            // What was noted of it stays: it may take writes. INVARIANT: no other server is opened before somebody has looked at it.
            lock(&work.changes).retain(|done| !done.is_of(&heir));
            if work.is_shared {
                // Its record holds up every healer until the server answers.
                return work.give_up(why, Some(&heir)).await;
            }
            let suspended = work.suspend(format!("the proxy, because {heir} may be writable: look at it first")).await;
            let suspended = suspended.unwrap_or_else(|error| format!("healing could NOT be suspended: {error}"));
            return work.give_up(format!("{why}; {suspended}"), Some(&heir)).await;
        }
    }
    lock(&work.changes).clear();
    work.note(&heir, "opened", &ready.plan.because);
    let mut warnings = Vec::from_iter(work.keep_opened().await.err());
    if let (Some(why), Some(lost)) = (warnings.first(), work.lease().refusal()) {
        let told = format!("{heir} was opened, and another proxy may go on from here: {why}; {lost}");
        work.note(&heir, "plan left", &told);
        return Promotion::Failed(told);
    }
    warnings.extend(work.after(&mut ready, begun).await);
    warnings.extend(work.keep_done().await.err());
    warnings.extend(work.hook_after(&ready.plan).await.err());
    let took_ms = begun.elapsed().as_millis();
    let lost = ready.plan.lost.told();
    let warnings = if warnings.is_empty() { String::new() } else { format!("; WARNING: {}", warnings.join(", ")) };
    let told = format!("{heir} was promoted in place of {} within {took_ms} ms, {lost}{warnings}", work.promote.old.key.addr());
    work.note(&heir, "promoted", &told);
    Promotion::Done(told)
}

struct Healer {
    monitor: Arc<Monitor>,
    promote: Promote,
    changes: Changes,
    /// What is written down of channels.
    stopped: Mutex<Vec<Stopped>>,
    tenure: Tenure,
    /// Of several proxies, this one heals by a lease.
    is_shared: bool,
    /// The record has this plan, so that any other plan there ends this one.
    is_kept: AtomicBool,
    /// The plan, in the record that proxies share.
    id: String,
}

impl Done {
    fn is_of(&self, addr: &ServerAddr) -> bool {
        matches!(self, Self::Noted { heir } if heir == addr) || self.server().is_some_and(|server| server == *addr)
    }

    /// Whose channel was changed.
    fn server(&self) -> Option<ServerAddr> {
        match self {
            Self::Frozen { server, .. } | Self::Fetches { server, .. } | Self::Stopped { server, .. } | Self::Waits { server, .. } => {
                Some(server.key.addr())
            }
            Self::Noted { .. } => None,
        }
    }
}

impl Healer {
    fn lease(&self) -> Lease {
        let lease = self.tenure.lease();
        if !lease.is_own() || !self.is_kept.load(Ordering::Acquire) {
            return lease;
        }
        let record = self.monitor.record(self.promote.hostgroup).0;
        if record.plan == self.id { lease } else { Lease::Away(format!("{} has begun another plan", record.healer)) }
    }

    fn will(&self, done: Done) {
        lock(&self.changes).push(done);
    }

    /// An event and a line of the log.
    fn note(&self, server: &ServerAddr, to: &str, why: &str) {
        tracing::info!("healing of hostgroup {}: {server}: {to}: {why}", self.promote.hostgroup);
        self.monitor.journal_says(self.promote.hostgroup, server, to, why);
        self.monitor.note(vec![Event {
            at_ms: self.monitor.clock.now_ms(),
            cluster: Some(self.promote.hostgroup),
            server: Some(server.clone()),
            kind: EventKind::Healing,
            from: String::new(),
            to: to.to_owned(),
            seen: String::new(),
            by: "healing",
            why: why.to_owned(),
        }]);
    }

    /// Runs steps before the opening until they end, time is up, or the promotion is not wanted any more.
    async fn guarded<T>(&self, steps: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let limit = LIMIT + Duration::from_millis(self.promote.apply_ms) + self.hooks_limit();
        let mut stopping = self.monitor.stopping.subscribe();
        tokio::select! {
            outcome = steps => outcome,
            () = tokio::time::sleep(limit) => Err(format!("the plan was not done within {} s", limit.as_secs())),
            why = self.obstacle() => Err(why),
            _ = stopping.wait_for(|stop| *stop) => Err("the monitor stops".to_owned()),
        }
    }

    /// Waits until the promotion is not wanted any more; why.
    async fn obstacle(&self) -> String {
        loop {
            if let Err(why) = self.is_wanted() {
                return why;
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    }

    fn is_wanted(&self) -> Result<(), String> {
        let hostgroup = self.promote.hostgroup;
        let is_ordered = self.promote.wish.is_some();
        let is_meant = |mode: HealingMode| mode == HealingMode::Full || (is_ordered && mode != HealingMode::Off);
        let is_full = self.monitor.consult(|snapshot, _| snapshot.healing.get(&hostgroup).is_some_and(|row| is_meant(row.mode)));
        match self.monitor.healing.verdict(hostgroup) {
            _ if !self.monitor.keeps_files() => Err("another process of this proxy is in charge".to_owned()),
            _ if !is_full => Err("mysql_healing does not ask for it any more".to_owned()),
            _ if self.monitor.shares_healing() != self.is_shared => Err("admin-shared_config_endpoints was changed".to_owned()),
            _ if let Some(why) = self.lease().refusal() => Err(why),
            _ if let Some(why) = self.monitor.suspended(hostgroup) => Err(why),
            Some(Verdict::Dead) => Ok(()),
            verdict => Err(verdict.unwrap_or(Verdict::Unknown).meaning().to_owned()),
        }
    }

    /// Everything before the opening.
    async fn prepare(self: &Arc<Self>) -> Result<Ready, String> {
        self.has_rights().await?;
        let mut servers = self.lock_all().await?;
        self.is_wanted()?;
        self.before().await?;
        self.is_wanted()?;
        let ran = self.freeze(&mut servers).await?;
        let seen = healing::look_again(&self.monitor, self.promote.hostgroup, LIMIT / 2).await;
        let seen = seen.ok_or_else(|| "the servers did not answer another look".to_owned())?;
        if seen.verdict != Verdict::Dead {
            return Err(seen.verdict.meaning().to_owned());
        }
        let plan = self.agreed(&seen)?;
        self.note(&plan.candidate, "chosen", &format!("{}; {}", plan.because, plan.lost.told()));
        for replica in seen.facts.replicas.iter().filter(|replica| replica.silence.is_none()) {
            if replica.channel.as_ref().is_some_and(|channel| channel.is_from_primary)
                && !servers.iter().any(|one| one.addr == replica.addr)
            {
                return Err(format!("{} answers only now", replica.addr));
            }
        }
        if let Some(server) = not_revoked(&seen.facts) {
            return Err(format!("the receiver of {server} runs again: it could acknowledge commits of the old writer"));
        }
        self.is_wanted()?;
        self.apply(&plan, &mut servers).await?;
        let place = servers.iter().position(|server| server.addr == plan.candidate);
        let mut candidate = servers.swap_remove(place.ok_or_else(|| format!("{} does not answer any more", plan.candidate))?);
        let server = self.server(&plan.candidate)?;
        let received = seen.facts.replicas.iter().find(|replica| replica.addr == plan.candidate).map(|replica| &replica.received);
        let has = candidate.sight().await?;
        if !received.is_some_and(|received| has.executed.contains(received)) {
            return Err(format!("{} has not applied all that it received", plan.candidate));
        }
        self.fence(&plan).await?;
        self.is_gone().await?;
        let gate = Gate::of(&mut candidate).await?;
        if gate.is_open() {
            return Err(format!("{} is writable already: another program may be at work", plan.candidate));
        }
        self.is_wanted()?;
        self.keep_fork(&plan, has.executed).await?;
        let taken = self.take_off(&mut candidate, &server, &plan).await?;
        self.ready_acks(&seen.facts, &plan, (&mut candidate, &server), &mut servers).await?;
        let was_semi_sync = seen.facts.primary.is_some_and(|primary| primary.semi_sync.is_some());
        Ok(Ready { candidate, server, others: servers, plan, ran, taken, gate, was_semi_sync })
    }

    fn server(&self, addr: &ServerAddr) -> Result<Arc<Server>, String> {
        let found = self.promote.servers.iter().find(|server| server.key.addr() == *addr);
        found.cloned().ok_or_else(|| format!("{addr} did not answer when the plan began"))
    }

    /// A connection to each server that lets the proxy in, with its lock. In the order of their addresses, so that of two proxies one wins.
    async fn lock_all(&self) -> Result<Vec<Control>, String> {
        let deadline = Instant::now() + LIMIT + Duration::from_millis(self.promote.apply_ms) + self.hooks_limit() + OPENED + SEEN;
        let mut opening = JoinSet::new();
        for server in &self.promote.servers {
            let (monitor, server) = (Arc::clone(&self.monitor), Arc::clone(server));
            opening.spawn(async move { tokio::time::timeout(REACHED, Control::open(&monitor, &server, deadline)).await.ok()?.ok() });
        }
        let mut servers: Vec<Control> = opening.join_all().await.into_iter().flatten().collect();
        servers.sort_by(|one, other| one.addr.cmp(&other.addr));
        for server in &mut servers {
            within(REACHED, self.tenure.take_lock(server, self.is_shared)).await?;
        }
        Ok(servers)
    }

    /// Stops the receivers: from here on no server gets more. Returns the channels that replicated.
    async fn freeze(self: &Arc<Self>, servers: &mut Vec<Control>) -> Result<Vec<(ServerAddr, String)>, String> {
        let (mut frozen, mut ran, mut stopped) = (Vec::new(), Vec::new(), Vec::new());
        for control in servers.iter_mut() {
            let channels = repoint::channels(&control.channels().await?);
            for channel in channels.iter().filter(|channel| is_among(&self.promote.channels, &control.addr, &channel.link.name)) {
                let named = (control.addr.clone(), channel.link.name.clone());
                if replicated(channel) {
                    ran.push(named.clone());
                }
                if channel.receives() {
                    stopped.push(Stopped::receiver(named.0.clone(), named.1.clone(), channel.link.source.clone()));
                    frozen.push(named);
                }
            }
        }
        self.keep_begin(stopped).await?;
        let mut jobs = JoinSet::new();
        for mut control in servers.drain(..) {
            let server = self.server(&control.addr)?;
            let names: Vec<String> = frozen.iter().filter(|(addr, _)| *addr == control.addr).map(|(_, name)| name.clone()).collect();
            let (healer, changes) = (Arc::clone(self), Arc::clone(&self.changes));
            jobs.spawn(async move {
                for name in names {
                    healer.is_wanted()?;
                    lock(&changes).push(Done::Frozen { server: Arc::clone(&server), channel: name.clone() });
                    let stop = statements::stop_receiver(control.version(), &name);
                    control.tell(&stop, "its receiver is stopped").await?;
                }
                Ok::<_, String>(control)
            });
        }
        for frozen in jobs.join_all().await {
            let control = frozen?;
            self.note(&control.addr, "frozen", "its receiver is stopped");
            servers.push(control);
        }
        Ok(ran)
    }

    /// Has the servers fetch and apply what the plan says.
    async fn apply(&self, plan: &Plan, servers: &mut [Control]) -> Result<(), String> {
        for step in &plan.steps {
            let (position, limit_ms) = match &step.act {
                Act::Apply { position, limit_ms } | Act::Fetch { position, limit_ms, .. } => (position, *limit_ms),
                _ => continue,
            };
            let server = servers.iter_mut().find(|server| server.addr == step.server);
            let server = server.ok_or_else(|| format!("{} does not answer any more", step.server))?;
            if let Act::Fetch { channel, from, before, .. } = &step.act {
                self.fetch(server, channel, from, before).await?;
            }
            if position.is_empty() {
                continue;
            }
            if !position.chars().all(|c| c.is_ascii_alphanumeric() || "-:,_".contains(c)) {
                return Err(format!("{}: its position is not understood", step.server));
            }
            let begun = Instant::now();
            let seconds = format!("{}.{:03}", limit_ms / 1_000, limit_ms % 1_000);
            let wait = statements::wait(server.version(), position, seconds);
            let waited =
                server.try_do("it applies what it received", &wait).await.map_err(|fault| format!("{}: {wait}: {fault}", server.addr))?;
            if waited.scalar() != Some("0") {
                let why = format!("it had not applied within {limit_ms} ms what it had received (apply_ms), in an earlier plan");
                lock(&self.promote.unable).insert(step.server.clone(), why);
                return Err(format!("{} has not applied its received transactions within {limit_ms} ms (apply_ms)", step.server));
            }
            if let Act::Fetch { channel, .. } = &step.act {
                let stop = statements::stop_receiver(server.version(), channel);
                server.tell(&stop, "its receiver is stopped").await?;
            }
            self.note(&step.server, "applied", &format!("all that was received, within {} ms", begun.elapsed().as_millis()));
        }
        Ok(())
    }

    /// Points a frozen server at another replica. MariaDB changes no source beside an applier.
    async fn fetch(&self, control: &mut Control, channel: &str, from: &ServerAddr, before: &ServerAddr) -> Result<(), String> {
        let server = self.server(&control.addr)?;
        self.keep_channel(&control.addr, channel, before, |one| one.fetches_from = Some(from.clone())).await?;
        self.will(Done::Fetches { server, channel: channel.to_owned(), before: before.clone() });
        point(&self.tenure, control, channel, from).await?;
        self.note(&control.addr, "fetches", &format!("from {from} what it lacks"));
        Ok(())
    }

    /// An error if the old writer answers anything.
    async fn is_gone(&self) -> Result<(), String> {
        let old = self.promote.old.key.addr();
        let access = Access { wait_timeout_s: Some(10), ..Account::of(&self.monitor.snapshot()).access(&self.promote.old) };
        match tokio::time::timeout(REACHED / 2, open(&self.monitor.connector, &access)).await {
            Err(_) | Ok(Err(Fault::Io(_))) => Ok(()),
            Ok(Ok(_) | Err(_)) => Err(format!("{old} answers again")),
        }
    }

    /// Stops both threads of the candidate. Its channel is forgotten once it writes, not earlier.
    async fn take_off(&self, candidate: &mut Control, server: &Arc<Server>, plan: &Plan) -> Result<Channel, String> {
        let found = plan.steps.iter().find_map(|step| match &step.act {
            Act::TakeOff { channel, before } => Some((channel.clone(), before.clone())),
            _ => None,
        });
        let (name, before) = found.ok_or_else(|| format!("{} has no channel", plan.candidate))?;
        let channels = repoint::channels(&candidate.channels().await?);
        let taken = channels.into_iter().find(|channel| channel.link.name.eq_ignore_ascii_case(&name));
        let taken = taken.ok_or_else(|| format!("the channel of {} is gone", plan.candidate))?;
        self.keep_channel(&plan.candidate, &name, &before, |one| one.is_applier = true).await?;
        self.will(Done::Stopped { server: Arc::clone(server), channel: name.clone() });
        let stop = statements::stop(candidate.version(), &name);
        candidate.tell(&stop, "its channel is stopped").await?;
        self.note(&plan.candidate, "taken off", "it follows nobody");
        Ok(taken)
    }
}

/// The steps, or an error after so long.
pub(super) async fn within<T>(limit: Duration, steps: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(limit, steps).await.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())))
}

/// Whether the list names this channel.
fn is_among(channels: &[(ServerAddr, String)], server: &ServerAddr, name: &str) -> bool {
    channels.iter().any(|(addr, channel)| addr == server && channel.eq_ignore_ascii_case(name))
}

/// Whether nobody had stopped it. A receiver with an error has stopped by itself.
fn replicated(channel: &Channel) -> bool {
    let (receiver, applier) = (&channel.link.receiver, &channel.link.applier);
    (channel.receives() || receiver.error.is_some()) && applier.state != ThreadState::Stopped
}
