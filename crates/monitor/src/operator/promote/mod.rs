//! Promotes a replica in place of a dead writer (`mysql_healing`, mode `full`).
//!
//! The steps: claim the servers and lock each one; stop the receivers; look again and choose; apply what was received; note on disk what the
//! chosen server has; stop its channel; open it. Each change is registered before it is made, and undone if a later step fails. Once the
//! server may be open, the work goes forward only: sessions go there, and the other replicas follow.
//!
//! INVARIANT: no server is opened unless the verdict is still `dead`, the old writer does not answer, and no other server may write. The
//! statement that opens it has no effect after its deadline, however late it arrives.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use model::snapshot::{HealingMode, ReadOnlyCheck, Server};
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinSet;
use topology::healing::{Act, Plan, Verdict};
use topology::{CheckKind, Event, EventKind, Fork};

use super::LOOK_AGAIN;
use super::claim::{Claim, Work};
use super::control::Control;
use super::gate::{Gate, is_still, lacks_right_to_set};
use super::plan::writers;
use super::replication;
use super::repoint::{self, Acks, Channel, Move, NotDone, Pointer, SemiSync, Was};
use crate::channels::ThreadState;
use crate::client::{Access, Fault, open};
use crate::clock::unix_us;
use crate::healing::{self, Promoted};
use crate::monitor::{Account, Monitor, lock};
use crate::statements::{self, Credentials, Place, Pointing};

/// Longest for everything before the server is opened, beside applying.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest until a server lets the proxy in.
const REACHED: Duration = Duration::from_secs(2);
/// The statement that opens a server has no effect later than this after the server was asked for its time, s.
const OPENS_WITHIN_S: u64 = 2;
/// Longest until it is known whether a server was opened.
const OPENED: Duration = Duration::from_secs(10);
/// Longest for each of the steps after the opening, beside following.
const STEP: Duration = Duration::from_secs(5);
/// Longest until replicas that follow are connected to acknowledge.
const ACKNOWLEDGES: Duration = Duration::from_secs(2);
/// Longest until the proxy's own checks see the new writer.
const SEEN: Duration = Duration::from_secs(10);
/// Longest until a change is undone.
const UNDONE: Duration = Duration::from_secs(15);
/// Time between looks at whether the promotion is still wanted.
const WATCH_EVERY: Duration = Duration::from_millis(50);
/// A server that was pointed at the new writer follows if no error comes in this time.
const SETTLES: Duration = Duration::from_millis(500);
/// Each server is under this lock meanwhile; it forgets the lock with the connection.
const LOCK: &str = "SELECT GET_LOCK('tidegate.heal', 0)";

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
}

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
    /// What the server has was noted, and that it is promoted; with the promotion before.
    Noted { heir: ServerAddr, before: Option<Promoted> },
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

/// How the report of an undone plan ends.
const AS_IT_WAS: &str = "everything is as it was";

/// Whether the server was opened.
enum Opened {
    Yes,
    No(String),
    Unknown(String),
}

/// The right that a promotion of this server would need and the monitor's user lacks; None if it has them all. An error if the server did
/// not say.
pub(crate) async fn lacks_right(monitor: &Arc<Monitor>, server: &Arc<Server>) -> Result<Option<String>, String> {
    let user = monitor.snapshot().vars.monitor_username.clone();
    let asked = async {
        let mut control = Control::open(monitor, server, Instant::now() + REACHED).await?;
        if let Some(why) = lacks_right_to_set(&mut control).await? {
            return Ok(Some(why));
        }
        let Err(why) = repoint::may_repoint(&mut control, true, &user).await else { return Ok(None) };
        // Its connection lasts where only a right is missing.
        control.ask("DO 0").await?;
        Ok(Some(why))
    };
    tokio::time::timeout(REACHED, asked).await.unwrap_or_else(|_| Err(format!("no answer within {} s", REACHED.as_secs())))
}

/// Starts a receiver that a plan stopped and did not start again. Not on a server that takes writes by now.
pub(crate) async fn thaw(monitor: &Arc<Monitor>, server: &Arc<Server>, name: &str) -> Result<(), String> {
    let started = async {
        let mut control = Control::open(monitor, server, Instant::now() + UNDONE).await?;
        if control.value(LOCK).await? != "1" {
            return Err("another proxy, or another order, is at work on it (GET_LOCK)".to_owned());
        }
        if Gate::of(&mut control).await?.is_open() {
            return Ok(());
        }
        let channels = repoint::channels(&control.channels().await?);
        if channels.iter().any(|channel| channel.link.name.eq_ignore_ascii_case(name) && !channel.receives()) {
            let start = statements::start_receiver(control.version(), name);
            control.tell(&start, "its receiver is started").await?;
        }
        Ok(())
    };
    tokio::time::timeout(UNDONE, started).await.unwrap_or_else(|_| Err(format!("no answer within {} s", UNDONE.as_secs())))
}

/// See the module. On the monitor's thread.
pub(crate) async fn run(monitor: &Arc<Monitor>, promote: Promote) -> Promotion {
    let begun = Instant::now();
    let _claim = match Claim::take(monitor, promote.hostgroup, Work::Promotion) {
        Ok(claim) => claim,
        Err(why) => return Promotion::Failed(format!("{why}; nothing was changed")),
    };
    let changes = Changes::default();
    let work = Arc::new(Healer { monitor: Arc::clone(monitor), promote, changes: Arc::clone(&changes) });
    work.note(&work.promote.old.key.addr(), "plan begins", "the writer is dead");
    // In a task of its own: what it has changed is undone even if it panics.
    let prepared = tokio::spawn({
        let work = Arc::clone(&work);
        async move { work.guarded(work.prepare()).await }
    });
    let mut ready = match prepared.await.unwrap_or_else(|e| Err(format!("the work has ended: {e}"))) {
        Ok(ready) => ready,
        Err(why) => return work.give_up(why, AS_IT_WAS).await,
    };
    let heir = ready.server.key.addr();
    match work.open(&mut ready).await {
        Opened::Yes => {}
        Opened::No(why) => return work.give_up(why, AS_IT_WAS).await,
        Opened::Unknown(why) => {
            // What was noted of it stays: it may take writes. INVARIANT: no other server is opened before somebody has looked at it.
            lock(&work.changes).retain(|done| !done.is_of(&heir));
            let suspended = work.suspend(format!("the proxy, because {heir} may be writable: look at it first")).await;
            let suspended = suspended.unwrap_or_else(|error| format!("healing could NOT be suspended: {error}"));
            return work.give_up(format!("{why}; {suspended}"), "the other servers are as they were").await;
        }
    }
    lock(&work.changes).clear();
    work.note(&heir, "opened", &ready.plan.because);
    let mut warnings = work.after(&mut ready, begun).await;
    warnings.extend(work.write_frozen(Vec::new()).await.err());
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
}

impl Done {
    fn is_of(&self, addr: &ServerAddr) -> bool {
        match self {
            Self::Frozen { server, .. } | Self::Fetches { server, .. } | Self::Stopped { server, .. } => server.key.addr() == *addr,
            Self::Noted { heir, .. } => heir == addr,
        }
    }
}

impl Healer {
    fn will(&self, done: Done) {
        lock(&self.changes).push(done);
    }

    /// An event and a line of the log.
    fn note(&self, server: &ServerAddr, to: &str, why: &str) {
        tracing::info!("healing of hostgroup {}: {server}: {to}: {why}", self.promote.hostgroup);
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
        let limit = LIMIT + Duration::from_millis(self.promote.apply_ms);
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
        let is_full = self.monitor.consult(|snapshot, _| snapshot.healing.get(&hostgroup).is_some_and(|row| row.mode == HealingMode::Full));
        match self.monitor.healing.verdict(hostgroup) {
            _ if !self.monitor.keeps_files() => Err("another process of this proxy is in charge".to_owned()),
            _ if !is_full => Err("mysql_healing does not ask for it any more".to_owned()),
            _ if let Some(why) = self.monitor.healing.orders.suspended(hostgroup) => Err(why),
            Some(Verdict::Dead) => Ok(()),
            verdict => Err(verdict.unwrap_or(Verdict::Unknown).meaning().to_owned()),
        }
    }

    /// Everything before the opening.
    async fn prepare(&self) -> Result<Ready, String> {
        let mut servers = self.lock_all().await?;
        let ran = self.freeze(&mut servers).await?;
        let seen = healing::look_again(&self.monitor, self.promote.hostgroup, LIMIT / 2).await;
        let seen = seen.ok_or_else(|| "the servers did not answer another look".to_owned())?;
        if seen.verdict != Verdict::Dead {
            return Err(seen.verdict.meaning().to_owned());
        }
        let plan = seen.choice.plan.map_err(|blocked| blocked.to_string())?;
        self.note(&plan.candidate, "chosen", &format!("{}; {}", plan.because, plan.lost.told()));
        for replica in seen.facts.replicas.iter().filter(|replica| replica.silence.is_none()) {
            if replica.channel.as_ref().is_some_and(|channel| channel.is_from_primary)
                && !servers.iter().any(|one| one.addr == replica.addr)
            {
                return Err(format!("{} answers only now", replica.addr));
            }
        }
        self.apply(&plan, &mut servers).await?;
        let place = servers.iter().position(|server| server.addr == plan.candidate);
        let mut candidate = servers.swap_remove(place.ok_or_else(|| format!("{} does not answer any more", plan.candidate))?);
        let server = self.server(&plan.candidate)?;
        let received = seen.facts.replicas.iter().find(|replica| replica.addr == plan.candidate).map(|replica| &replica.received);
        let has = candidate.sight().await?;
        if !received.is_some_and(|received| has.executed.contains(received)) {
            return Err(format!("{} has not applied all that it received", plan.candidate));
        }
        self.is_gone().await?;
        let gate = Gate::of(&mut candidate).await?;
        if gate.is_open() {
            return Err(format!("{} is writable already: another program may be at work", plan.candidate));
        }
        self.keep_fork(&plan.candidate, has.executed).await?;
        let taken = self.take_off(&mut candidate, &server, &plan).await?;
        let was_semi_sync = seen.facts.primary.is_some_and(|primary| primary.semi_sync.is_some());
        Ok(Ready { candidate, server, others: servers, plan, ran, taken, gate, was_semi_sync })
    }

    fn server(&self, addr: &ServerAddr) -> Result<Arc<Server>, String> {
        let found = self.promote.servers.iter().find(|server| server.key.addr() == *addr);
        found.cloned().ok_or_else(|| format!("{addr} did not answer when the plan began"))
    }

    /// A connection to each server that lets the proxy in, with its lock. In the order of their addresses, so that of two proxies one wins.
    async fn lock_all(&self) -> Result<Vec<Control>, String> {
        let deadline = Instant::now() + LIMIT + Duration::from_millis(self.promote.apply_ms) + OPENED + SEEN;
        let mut opening = JoinSet::new();
        for server in &self.promote.servers {
            let (monitor, server) = (Arc::clone(&self.monitor), Arc::clone(server));
            opening.spawn(async move { tokio::time::timeout(REACHED, Control::open(&monitor, &server, deadline)).await.ok()?.ok() });
        }
        let mut servers: Vec<Control> = opening.join_all().await.into_iter().flatten().collect();
        servers.sort_by(|one, other| one.addr.cmp(&other.addr));
        for server in &mut servers {
            if server.value(LOCK).await? != "1" {
                return Err(format!("another proxy, or another order, is at work on {} (GET_LOCK)", server.addr));
            }
        }
        Ok(servers)
    }

    /// Stops the receivers: from here on no server gets more. Returns the channels that replicated.
    async fn freeze(&self, servers: &mut Vec<Control>) -> Result<Vec<(ServerAddr, String)>, String> {
        let (mut frozen, mut ran) = (Vec::new(), Vec::new());
        for control in servers.iter_mut() {
            let channels = repoint::channels(&control.channels().await?);
            for channel in channels.iter().filter(|channel| is_among(&self.promote.channels, &control.addr, &channel.link.name)) {
                let named = (control.addr.clone(), channel.link.name.clone());
                if replicated(channel) {
                    ran.push(named.clone());
                }
                if channel.receives() {
                    frozen.push(named);
                }
            }
        }
        self.write_frozen(frozen.clone()).await?;
        let mut jobs = JoinSet::new();
        for mut control in servers.drain(..) {
            let server = self.server(&control.addr)?;
            let names: Vec<String> = frozen.iter().filter(|(addr, _)| *addr == control.addr).map(|(_, name)| name.clone()).collect();
            let changes = Arc::clone(&self.changes);
            jobs.spawn(async move {
                for name in names {
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
            if server.value(&wait).await? != "0" {
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
        self.will(Done::Fetches { server, channel: channel.to_owned(), before: before.clone() });
        point(control, channel, from).await?;
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

    /// What the server has is on disk before it can take a write, and so is the promotion.
    async fn keep_fork(&self, heir: &ServerAddr, had: topology::GtidSet) -> Result<(), String> {
        let (monitor, writer) = (&self.monitor, self.promote.hostgroup);
        let before = monitor.healing.orders.promoted(writer).map(|(promoted, _)| promoted);
        self.will(Done::Noted { heir: heir.clone(), before });
        let (from, at_ms) = (vec![self.promote.old.key.addr()], 0);
        let fork = Fork { writer, heir: heir.clone(), at_ms, from, had, is_exact: true, is_noted: true };
        monitor.decide(|topology, now_ms| topology.note_fork(now_ms, &fork));
        let promoted = Promoted { heir: heir.clone(), at_ms: unix_us() / 1_000, is_acknowledged: false };
        self.write_promoted(Some(promoted)).await?;
        monitor.write_standings().await.map_err(|e| format!("what {heir} has could not be written to the data directory: {e}"))
    }

    async fn write_frozen(&self, frozen: Vec<(ServerAddr, String)>) -> Result<(), String> {
        let (monitor, writer) = (Arc::clone(&self.monitor), self.promote.hostgroup);
        let written = tokio::task::spawn_blocking(move || monitor.healing.orders.freeze(writer, frozen)).await;
        written.map_err(|e| e.to_string())?
    }

    async fn write_promoted(&self, promoted: Option<Promoted>) -> Result<(), String> {
        let (monitor, writer) = (Arc::clone(&self.monitor), self.promote.hostgroup);
        let written = tokio::task::spawn_blocking(move || monitor.healing.orders.promote(writer, promoted)).await;
        written.map_err(|e| e.to_string())?
    }

    /// As `SUSPEND HEALING HOSTGROUP` without an end. Returns the effect in words.
    async fn suspend(&self, by: String) -> Result<String, String> {
        let (monitor, writer) = (Arc::clone(&self.monitor), self.promote.hostgroup);
        let written = tokio::task::spawn_blocking(move || monitor.healing.orders.suspend(Some(writer), None, &by)).await;
        written.map_err(|e| e.to_string())?
    }

    /// Stops both threads of the candidate. Its channel is forgotten once it writes, not earlier.
    async fn take_off(&self, candidate: &mut Control, server: &Arc<Server>, plan: &Plan) -> Result<Channel, String> {
        let name = plan.steps.iter().find_map(|step| match &step.act {
            Act::TakeOff { channel, .. } => Some(channel.clone()),
            _ => None,
        });
        let name = name.ok_or_else(|| format!("{} has no channel", plan.candidate))?;
        let channels = repoint::channels(&candidate.channels().await?);
        let taken = channels.into_iter().find(|channel| channel.link.name.eq_ignore_ascii_case(&name));
        let taken = taken.ok_or_else(|| format!("the channel of {} is gone", plan.candidate))?;
        self.will(Done::Stopped { server: Arc::clone(server), channel: name.clone() });
        let stop = statements::stop(candidate.version(), &name);
        candidate.tell(&stop, "its channel is stopped").await?;
        self.note(&plan.candidate, "taken off", "it follows nobody");
        Ok(taken)
    }

    /// Lets the server take writes.
    async fn open(&self, ready: &mut Ready) -> Opened {
        let limit = Duration::from_secs(OPENS_WITHIN_S);
        let checked = self.guarded(async {
            let connection = within(REACHED, ready.candidate.id()).await?;
            within(LIMIT / 2, self.may_open(ready)).await?;
            // The server's deadline begins before the last look at the old writer: what that look says is never older than the deadline.
            let last = async {
                let now = time_of(&mut ready.candidate).await?;
                self.is_gone().await?;
                self.is_wanted()?;
                Ok(now)
            };
            Ok((connection, within(limit, last).await?))
        });
        let (connection, now) = match checked.await {
            Ok(checked) => checked,
            Err(why) => return Opened::No(why),
        };
        match tokio::time::timeout(limit, open_in_time(&mut ready.candidate, &now)).await {
            Ok(Ok(true)) => Opened::Yes,
            Ok(Ok(false)) => Opened::No(format!("{} was not opened in time", ready.candidate.addr)),
            _ => self.is_opened(ready, connection).await,
        }
    }

    /// The last checks: what was true when the plan was made is still true.
    async fn may_open(&self, ready: &mut Ready) -> Result<(), String> {
        for other in &mut ready.others {
            // One that is lost by now writes nothing that this proxy could know.
            if let Ok(Ok(gate)) = tokio::time::timeout(REACHED, Gate::of(other)).await
                && gate.is_open()
            {
                return Err(format!("{} is writable: the proxy makes no second writer", other.addr));
            }
        }
        is_still(&mut ready.candidate, &ready.gate).await?;
        if *self.monitor.stopping.borrow() {
            return Err("the monitor stops".to_owned());
        }
        Ok(())
    }

    /// The connection that opened it said nothing. It is ended, and the server asked over another one.
    async fn is_opened(&self, ready: &mut Ready, connection: u64) -> Opened {
        let addr = ready.candidate.addr.clone();
        let asked = async {
            loop {
                let answer = async {
                    let mut control = Control::open(&self.monitor, &ready.server, Instant::now() + OPENED).await?;
                    replication::end(&mut control, connection).await?;
                    let gate = Gate::of(&mut control).await?;
                    Ok::<_, String>((control, gate))
                };
                match tokio::time::timeout(REACHED, answer).await {
                    Ok(Ok(answered)) => return answered,
                    _ => tokio::time::sleep(WATCH_EVERY).await,
                }
            }
        };
        match tokio::time::timeout(OPENED, asked).await {
            Ok((control, gate)) if gate.is_open() => {
                // The connection before may still get the answer to something else.
                ready.candidate = control;
                Opened::Yes
            }
            Ok(_) => Opened::No(format!("{addr} was not opened")),
            Err(_) => Opened::Unknown(format!("{addr} has not answered since it was told to take writes")),
        }
    }

    /// Sessions go on, the other replicas follow, and the new writer forgets its channel. Returns warnings.
    async fn after(&self, ready: &mut Ready, begun: Instant) -> Vec<String> {
        let mut warnings = Vec::new();
        let heir = ready.server.key.addr();
        if !ready.plan.steps.iter().any(|step| matches!(step.act, Act::Follow { .. })) {
            // Before sessions go there: their commits would wait for nobody.
            let stopped = within(STEP, self.stop_waiting(ready)).await;
            self.renew(ready, stopped.is_err()).await;
            warnings.extend(stopped.err());
        }
        match tokio::time::timeout(SEEN, self.see(ready)).await {
            Ok(Ok(())) => self.note(&heir, "writes", &format!("{} ms after the plan began", begun.elapsed().as_millis())),
            Ok(Err(why)) => warnings.push(format!("the proxy does not see {heir} as the writer: {why}")),
            Err(_) => {
                warnings.push(format!("the proxy does not see {heir} as the writer after {} s", SEEN.as_secs()));
                self.renew(ready, true).await;
            }
        }
        let (followers, lost) = self.follow(ready).await;
        warnings.extend(lost);
        let acks = within(STEP, self.set_acks(ready, followers)).await;
        self.renew(ready, acks.is_err()).await;
        warnings.extend(acks.err());
        warnings.extend(within(STEP, self.forget(ready)).await.err());
        warnings
    }

    /// A new connection to the new writer where a step failed: a late answer must not be read as another statement's.
    async fn renew(&self, ready: &mut Ready, has_failed: bool) {
        if has_failed && let Ok(control) = within(REACHED, Control::open(&self.monitor, &ready.server, Instant::now() + LIMIT)).await {
            ready.candidate = control;
        }
    }

    /// The proxy's own check sees the new writer, and no other one.
    async fn see(&self, ready: &mut Ready) -> Result<(), String> {
        let heir = ready.server.key.addr();
        loop {
            if ready.candidate.look(CheckKind::ReadOnly(self.promote.check)).await.is_err() {
                ready.candidate = Control::open(&self.monitor, &ready.server, Instant::now() + SEEN).await?;
            }
            let now = self.monitor.consult(|_, layout| writers(layout, self.promote.hostgroup));
            if now.len() == 1 && now.iter().all(|server| server.key.addr() == heir) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Points the other replicas at the new writer. Returns how many follow, and why others do not.
    async fn follow(&self, ready: &mut Ready) -> (usize, Vec<String>) {
        let new = match within(STEP, repoint::node(&mut ready.candidate)).await {
            Ok(new) => new,
            Err(why) => {
                self.renew(ready, true).await;
                return (0, vec![format!("no replica was pointed at the new writer: {why}")]);
            }
        };
        let mut jobs = JoinSet::new();
        let (mut followers, mut warnings) = (0, Vec::new());
        for step in &ready.plan.steps {
            let Act::Follow { channel, before, .. } = &step.act else { continue };
            let Ok(server) = self.server(&step.server) else { continue };
            if !is_among(&ready.ran, &step.server, channel) {
                self.note(&step.server, "left", "its replication was stopped before the plan began");
                continue;
            }
            let was = Some(Was { source: before.clone(), runs: true });
            let to = Move { name: channel.clone(), was, is_old: false };
            let (monitor, taken) = (Arc::clone(&self.monitor), Channel::default());
            let pointer = Pointer { monitor, server, new: new.clone(), to, taken, credentials: None, semi_sync: None, settles: SETTLES };
            jobs.spawn(async move { (pointer.server.key.addr(), pointer.follow().await) });
        }
        for (server, outcome) in jobs.join_all().await {
            match outcome {
                Ok(()) => {
                    followers += 1;
                    self.note(&server, "follows", &format!("the new writer {}", new.addr));
                }
                Err(why) => {
                    self.note(&server, "does not follow", &why);
                    warnings.push(format!("{server} does not follow {}: {why}", new.addr));
                }
            }
        }
        for (server, why) in ready.plan.steps.iter().filter_map(|step| match &step.act {
            Act::Leave { why } if step.server != self.promote.old.key.addr() => Some((&step.server, why)),
            _ => None,
        }) {
            self.note(server, "left", why);
        }
        (followers, warnings)
    }

    /// Whether the new writer waits for acknowledgements, now that its replicas are there.
    async fn set_acks(&self, ready: &mut Ready, followers: usize) -> Result<(), String> {
        match followers {
            0 => self.stop_waiting(ready).await,
            _ if ready.was_semi_sync => self.wait_for_acks(ready).await,
            _ => Ok(()),
        }
    }

    /// Commits of a server that nobody follows would wait for nobody. An error where that was so, as it is a warning.
    async fn stop_waiting(&self, ready: &mut Ready) -> Result<(), String> {
        let heir = ready.candidate.addr.clone();
        let Some(own) = SemiSync::of(&mut ready.candidate).await? else { return Ok(()) };
        if own.is_source() {
            if Acks::of(&mut ready.candidate).await?.are_enough() {
                return Ok(());
            }
            own.set_source(&mut ready.candidate, false).await?;
        } else if !ready.was_semi_sync {
            return Ok(());
        }
        Err(format!("no server follows {heir}, so its semi-synchronous replication is off: switch it on when a replica follows"))
    }

    /// The new writer waits for acknowledgements as the old one did, if enough replicas are connected to give them.
    async fn wait_for_acks(&self, ready: &mut Ready) -> Result<(), String> {
        let heir = ready.candidate.addr.clone();
        let own = SemiSync::of(&mut ready.candidate).await?;
        let own = own.ok_or_else(|| format!("{heir} has no semi-synchronous replication"))?;
        if own.is_source() {
            return Ok(());
        }
        let until = Instant::now() + ACKNOWLEDGES;
        loop {
            let acks = Acks::of(&mut ready.candidate).await?;
            if acks.are_enough() {
                break;
            }
            if Instant::now() >= until {
                return Err(format!("{acks}, so semi-synchronous replication of {heir} is off: switch it on when there are enough"));
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
        own.set_source(&mut ready.candidate, true).await?;
        self.note(&heir, "semi-synchronous", "its commits wait for acknowledgements from now on");
        Ok(())
    }

    /// A restart would start a channel that is not forgotten. It stays where its account may exist nowhere else.
    async fn forget(&self, ready: &mut Ready) -> Result<(), String> {
        let (heir, name) = (ready.candidate.addr.clone(), &ready.taken.link.name);
        let credentials = self.monitor.consult(|snapshot, _| {
            let vars = &snapshot.vars;
            Credentials { user: vars.replication_username.clone(), password: vars.replication_password.clone() }
        });
        let stays = |why: &str| Err(format!("channel '{name}' of {heir} stays there, stopped, as {why}: RESET it, or a restart starts it"));
        if credentials.user.is_empty() || ready.taken.user.as_ref() != Some(&credentials.user) {
            return stays("its account is not known to be mysql-replication_username");
        }
        let access = Access {
            server: Arc::clone(&ready.server),
            user: credentials.user.as_str().into(),
            password: credentials.password.clone(),
            wait_timeout_s: None,
        };
        match tokio::time::timeout(REACHED, open(&self.monitor.connector, &access)).await {
            Ok(Ok(_)) => {}
            _ => return stays("mysql-replication_username cannot log in there"),
        }
        let forget = statements::forget(ready.candidate.version(), name);
        ready.candidate.tell(&forget, "its channel is forgotten").await
    }

    /// Undoes all changes, the last one first. Returns what became of it.
    async fn give_up(&self, why: String, undone: &str) -> Promotion {
        let old = self.promote.old.key.addr();
        let (mut faults, mut frozen) = (Vec::new(), Vec::new());
        let is_changed = !lock(&self.changes).is_empty();
        loop {
            let Some(done) = lock(&self.changes).pop() else { break };
            let undone = tokio::time::timeout(UNDONE, self.undo(&done)).await;
            let undone = undone.unwrap_or_else(|_| Err(format!("no answer within {} s", UNDONE.as_secs())));
            if let (Err(_), Done::Frozen { server, channel }) = (&undone, &done) {
                frozen.push((server.key.addr(), channel.clone()));
            }
            faults.extend(undone.err());
        }
        // Those that did not answer are started later.
        faults.extend(self.write_frozen(frozen).await.err());
        let told = match (is_changed, faults.is_empty()) {
            (false, _) => format!("no server was promoted: {why}; nothing was changed"),
            (true, true) => format!("no server was promoted: {why}; {undone}"),
            (true, false) => format!("no server was promoted: {why}; NOT EVERYTHING COULD BE UNDONE: {}", faults.join(", ")),
        };
        self.note(&old, "plan failed", &told);
        Promotion::Failed(told)
    }

    /// Over a new connection: the present one may be in the middle of something.
    async fn undo(&self, done: &Done) -> Result<(), String> {
        let fresh = |server: &Arc<Server>| {
            let server = Arc::clone(server);
            async move { Control::open(&self.monitor, &server, Instant::now() + UNDONE).await }
        };
        match done {
            Done::Frozen { server, channel } => {
                let mut control = fresh(server).await?;
                // An earlier STOP may still be waiting: this one ends after it.
                let stop = statements::stop_receiver(control.version(), channel);
                control.tell(&stop, "its receiver is stopped").await?;
                let start = statements::start_receiver(control.version(), channel);
                control.tell(&start, "its receiver is started").await
            }
            Done::Fetches { server, channel, before } => {
                let mut control = fresh(server).await?;
                point(&mut control, channel, before).await
            }
            Done::Stopped { server, channel } => {
                let mut control = fresh(server).await?;
                let stop = statements::stop(control.version(), channel);
                control.tell(&stop, "its channel is stopped").await?;
                let start = statements::start(control.version(), channel);
                control.tell(&start, "its channel is started").await
            }
            Done::Noted { heir, before } => {
                self.monitor.decide(|topology, now_ms| topology.forget_fork(now_ms, self.promote.hostgroup, heir));
                self.write_promoted(before.clone()).await
            }
        }
    }
}

/// Points a channel elsewhere and starts it. MySQL keeps what it received only beside a running applier.
async fn point(control: &mut Control, channel: &str, source: &ServerAddr) -> Result<(), String> {
    let version = control.version().clone();
    let (stop, start) = if version.is_mariadb {
        (statements::stop(&version, channel), statements::start(&version, channel))
    } else {
        (statements::stop_receiver(&version, channel), statements::start_receiver(&version, channel))
    };
    control.tell(&stop, "its channel is stopped").await?;
    let to = Pointing { name: channel, source, retry_s: None, credentials: None, tls: &[], place: Place::Kept };
    control.change(&to).await?;
    control.tell(&start, "its channel is started").await
}

/// The steps, or an error after so long.
async fn within<T>(limit: Duration, steps: impl Future<Output = Result<T, String>>) -> Result<T, String> {
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

/// The server's time, s, as it writes it.
async fn time_of(candidate: &mut Control) -> Result<String, String> {
    // An hour that comes twice would fool the comparison.
    candidate.ask("SET SESSION time_zone='+00:00'").await?;
    let now = candidate.plain("SELECT UNIX_TIMESTAMP(SYSDATE(6))", ".").await?;
    if now.parse::<f64>().is_err() {
        return Err(format!("{}: its time is not understood", candidate.addr));
    }
    Ok(now)
}

/// The statement does nothing after its deadline by the server's own clock. Returns whether the server is open now.
async fn open_in_time(candidate: &mut Control, now: &str) -> Result<bool, String> {
    candidate.ask(&opening(now)).await?;
    Ok(Gate::of(candidate).await?.is_open())
}

/// `now` is the server's time, s. On MySQL it ends `super_read_only` too.
fn opening(now: &str) -> String {
    format!("SET GLOBAL read_only = IF(UNIX_TIMESTAMP(SYSDATE(6)) < {now} + {OPENS_WITHIN_S}, 0, 1)")
}

impl Pointer {
    /// Points the server and watches it; puts it back if it does not follow.
    async fn follow(&self) -> Result<(), String> {
        let work = async {
            let mut server = Control::open(&self.monitor, &self.server, Instant::now() + LIMIT).await.map_err(NotDone::Untouched)?;
            self.point_and_watch(&mut server).await.map_err(NotDone::Touched)
        };
        match self.limited(work).await {
            Ok(()) => Ok(()),
            Err(NotDone::Untouched(why)) => Err(why),
            Err(NotDone::Touched(why)) => Err(self.undo(why).await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_opened_before_a_deadline_of_its_own_clock() {
        assert_eq!(opening("1764436332.123456"), "SET GLOBAL read_only = IF(UNIX_TIMESTAMP(SYSDATE(6)) < 1764436332.123456 + 2, 0, 1)");
    }
}
