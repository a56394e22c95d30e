//! SWITCHOVER HOSTGROUP: another server becomes the writer while clients wait; on failure everything is as before.
//!
//! The steps: Claim the servers, so that no other switchover has them. Check everything that can be checked without a change. Hold the
//! hostgroup until its open transactions are over and the new writer is near. Change the roles and see the new writer as such. Release the
//! hostgroup. Each change is noted before it is made. If a later step fails, or the deadline passes, the changes are undone in reverse.
//! Finally the other servers follow the new writer ([`super::repoint`]), while sessions already continue.
//!
//! A lagging replica catches up while sessions wait. They wait in short periods and continue in between, so that none waits for long.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fleet::{Bound, CompanyHold, HostgroupLoad, Told};
use model::snapshot::{ReadOnlyCheck, Server};
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinSet;
use topology::{CheckKind, Order};

use super::claim::{Claim, Work};
use super::control::Control;
use super::plan::{Hand, Plan, Way, obstacle, plan, writers};
use super::replication::Gates;
use super::repoint::Repoint;
use super::undo::Done;
use super::{HoldGuard, LOOK_AGAIN, galera, group, replication, repoint};
use crate::monitor::{Monitor, Running};

/// Longest that sessions wait at a stretch for a lagging new writer.
const BREATH: Duration = Duration::from_millis(300);
/// Sessions go on for as long in between.
const BETWEEN: Duration = Duration::from_millis(100);

/// Waiting sessions get an error after `connect_timeout_server_max`. This part of it may pass before the roles have changed; the rest is
/// for undoing the change.
const FOR_CLIENTS: f64 = 0.75;

/// A session that still keeps its connection after this time is an obstacle.
pub(super) const BRIEF: Duration = Duration::from_millis(100);
/// Most sessions that a refusal names.
const NAMED: usize = 5;

/// Longest that servers which are asked beside the two are waited for.
pub(super) const OTHERS_LIMIT: Duration = Duration::from_millis(500);
/// Time between looks at whether the new writer may still become one.
const WATCH_EVERY: Duration = Duration::from_millis(10);

/// A switchover under way.
pub(super) struct Switchover {
    pub(super) monitor: Arc<Monitor>,
    pub(super) plan: Plan,
    /// The connection to the present writer.
    pub(super) old: Control,
    /// The connection to the server that shall write.
    pub(super) new: Control,
    /// Replication with `read_only` set by the proxy: connections to the other servers, which are asked while sessions wait.
    pub(super) others: Vec<Control>,
    /// The same: the values of `read_only` before.
    pub(super) gates: Option<Gates>,
    /// The plan for the servers' replication, if the proxy changes it.
    pub(super) repoint: Option<Repoint>,
    /// Servers of which it was said why they do not follow the new writer, or need not.
    pub(super) spoken_for: Vec<ServerAddr>,
    /// For the answer: each step with the time since the beginning.
    steps: Vec<String>,
    pub(super) done: Vec<Done>,
    /// A group in multi-primary mode: the proxy's preference decides.
    pub(super) is_by_preference: bool,
    /// The server whose answer [`Switchover::see`] waits for.
    pub(super) awaited: Option<ServerAddr>,
    /// Since when sessions wait.
    held_since: Instant,
    begun: Instant,
    pub(super) deadline: Instant,
}

/// Does it, in `limit` at most (and as much as undoing takes). `asked` is whose hand the operator counts on.
pub(super) async fn run(
    monitor: &Arc<Monitor>,
    running: &Running,
    hostgroup: HostgroupId,
    (to, asked): (ServerAddr, Hand),
    limit: Duration,
) -> Result<Told, String> {
    let begun = Instant::now();
    let claim = Claim::take(monitor, hostgroup, Work::Switchover)?;
    let plan = monitor.consult(|snapshot, layout| plan(snapshot, layout, hostgroup, &to))?;
    plan.has_a_hand(asked)?;
    claim.covers(&plan)?;
    if let Some(why) = monitor.barred().get(&hostgroup).and_then(|barred| barred.get(&to)) {
        return Err(format!("nothing was changed: no proxy would send writes to {to}: {why}"));
    }
    let mut watch = Watch { monitor: Arc::clone(monitor), plan: plan.clone(), deadline: begun + limit, limit, is_for_clients: false };
    let old = reach(monitor, &plan.old, &watch).await?;
    let new = reach(monitor, &plan.new, &watch).await?;
    let (monitor, deadline) = (Arc::clone(monitor), watch.deadline);
    let mut work = Switchover {
        monitor,
        plan,
        old,
        new,
        others: Vec::new(),
        gates: None,
        repoint: None,
        spoken_for: Vec::new(),
        steps: Vec::new(),
        done: Vec::new(),
        is_by_preference: false,
        awaited: None,
        held_since: begun,
        begun,
        deadline,
    };
    let outcome = watch.over(work.prepare()).await;
    work.settle(outcome)?;
    let free = watch.over(work.look_at_sessions(running)).await;
    work.settle(free.map_err(|why| format!("{why}; nothing was changed")))?;
    work.note("checked");
    let held = watch.over(work.hold(running)).await;
    let (hold, company) = work.settle(held.map_err(|why| format!("{why}; nothing had been changed")))?;
    if let Some(wait) = work.clients_wait() {
        watch.shorten(work.held_since + wait.mul_f64(FOR_CLIENTS));
    }
    let mut outcome = watch.over(work.change()).await;
    if let Err(why) = outcome {
        outcome = Err(work.give_up(why).await);
    }
    let is_by_preference = work.plan.way == Way::Galera || work.is_by_preference;
    // If it failed, the other proxies continue as before.
    let company = company.filter(|_| outcome.is_ok());
    let wanted = to.clone();
    let told = tokio::task::spawn_blocking(move || super::company::tell(company, &wanted, is_by_preference)).await;
    let (is_known, warning) = told.unwrap_or_default();
    drop(hold);
    work.note("sessions go on");
    work.settle(outcome)?;
    let is_repointed = work.repoint.is_some();
    let mut warnings = repoint::follow(&mut work).await;
    drop(claim);
    warnings.extend(work.strays().await);
    let mut text = format!("{to} writes in {}: {}", work.hostgroups(), work.steps.join("; "));
    if is_by_preference && !is_known {
        text.push_str("; only this proxy knows: run the same command on every other proxy");
    }
    if !warnings.is_empty() {
        let unread = if work.shuns_strays() { ". A replica serves no reads until it replicates from the new writer" } else { "" };
        let what = if is_repointed { "not every server follows it" } else { "replication was not changed" };
        text.push_str(&format!("; WARNING: {what}: {}{unread}", warnings.join(", ")));
    }
    if let Some(warning) = warning {
        text.push_str(&format!("; WARNING: {warning}"));
        warnings.push(warning);
    }
    Ok(Told { text, warnings })
}

/// The first connection to a server; nothing was changed before.
async fn reach(monitor: &Arc<Monitor>, server: &Arc<Server>, watch: &Watch) -> Result<Control, String> {
    let reached = tokio::time::timeout_at(watch.deadline.into(), Control::open(monitor, server, watch.deadline)).await;
    let reached = reached.unwrap_or_else(|_| Err(format!("{} before {} had answered", watch.deadline_passed(), server.key.addr())));
    reached.map_err(|why| format!("{why}; nothing was changed"))
}

/// The events that end a switchover from outside, watched during each step.
struct Watch {
    monitor: Arc<Monitor>,
    plan: Plan,
    deadline: Instant,
    limit: Duration,
    /// The deadline is that of waiting clients, earlier than the order's: they would get an error.
    is_for_clients: bool,
}

impl Watch {
    /// Sessions that wait get an error soon after this time.
    fn shorten(&mut self, deadline: Instant) {
        if deadline < self.deadline {
            (self.deadline, self.is_for_clients) = (deadline, true);
        }
    }

    fn deadline_passed(&self) -> String {
        if self.is_for_clients {
            "sessions cannot wait any longer: mysql-connect_timeout_server_max would expire".to_owned()
        } else {
            format!("the deadline of {} ms has passed", self.limit.as_millis())
        }
    }

    /// Runs a step until it ends, the deadline passes, the new writer cannot become one, or the monitor stops.
    async fn over<T>(&self, step: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let mut stopping = self.monitor.stopping.subscribe();
        tokio::select! {
            outcome = step => outcome,
            () = tokio::time::sleep_until(self.deadline.into()) => Err(self.deadline_passed()),
            why = self.obstacle() => Err(why),
            _ = stopping.wait_for(|stop| *stop) => Err("the monitor stops".into()),
        }
    }

    /// Waits until the new writer cannot become one any more; why.
    async fn obstacle(&self) -> String {
        loop {
            tokio::time::sleep(WATCH_EVERY).await;
            if let Some(why) = self.monitor.consult(|snapshot, layout| obstacle(snapshot, layout, &self.plan)) {
                return why;
            }
        }
    }
}

impl Switchover {
    /// Adds a step to the answer and the log, with its time.
    pub(super) fn note(&mut self, step: impl Into<String>) {
        let step = step.into();
        let at_ms = self.begun.elapsed().as_millis();
        tracing::info!("switchover of hostgroup {}: {step} after {at_ms} ms", self.plan.writer);
        self.steps.push(format!("{step} ({at_ms} ms)"));
    }

    /// Registers a change before it is made, for undoing.
    pub(super) fn will(&mut self, done: Done) {
        self.done.push(done);
    }

    /// Adds the steps so far to an error.
    fn settle<T>(&self, outcome: Result<T, String>) -> Result<T, String> {
        let steps = if self.steps.is_empty() { "nothing".to_owned() } else { self.steps.join("; ") };
        outcome.map_err(|why| format!("{why}. Done before: {steps}"))
    }

    /// Checks everything that can be checked without a change.
    async fn prepare(&mut self) -> Result<(), String> {
        match self.plan.way {
            Way::Replication(check, hand) => replication::prepare(self, check, hand).await,
            Way::Galera => galera::would_write(self, CheckKind::Galera).await,
            Way::Group => group::prepare(self).await,
        }?;
        self.confirm()
    }

    /// An error if the same plan would not be made now. If another program sets `read_only`, it may have begun.
    fn confirm(&self) -> Result<(), String> {
        if matches!(self.plan.way, Way::Replication(_, Hand::Theirs)) {
            return Ok(());
        }
        let to = self.plan.new.key.addr();
        let now = self.monitor.consult(|snapshot, layout| plan(snapshot, layout, self.plan.writer, &to))?;
        if now.is_same(&self.plan) {
            Ok(())
        } else {
            Err(format!("another change of {} came in between during the switchover", self.hostgroups()))
        }
    }

    /// The held hostgroups in words, for answers.
    fn hostgroups(&self) -> String {
        let named: Vec<String> = self.plan.held.iter().map(ToString::to_string).collect();
        format!("{} {}", if named.len() > 1 { "hostgroups" } else { "hostgroup" }, named.join(", "))
    }

    /// The sessions that keep connections in the held hostgroups.
    fn bound(&self, running: &Running) -> Vec<Bound> {
        self.plan.held.iter().flat_map(|id| running.fleet.bound(*id)).collect()
    }

    /// The sum of their loads.
    fn load(&self, running: &Running) -> HostgroupLoad {
        let mut sum = HostgroupLoad::default();
        for load in self.plan.held.iter().map(|id| running.fleet.load(*id)) {
            sum.waiting += load.waiting;
            sum.in_use += load.in_use;
            sum.in_transaction += load.in_transaction;
        }
        sum
    }

    /// Whether servers that do not replicate from the new writer serve no reads.
    fn shuns_strays(&self) -> bool {
        let is_judged = matches!(self.plan.way, Way::Replication(ReadOnlyCheck::ReadOnly | ReadOnlyCheck::SuperReadOnly, _));
        is_judged && self.monitor.consult(|snapshot, _| snapshot.effective_in(self.plan.writer).shun_stray_replicas)
    }

    /// Warnings about servers that do not replicate from the new writer. No session waits for it; within twice [`OTHERS_LIMIT`].
    async fn strays(&self) -> Vec<String> {
        match self.plan.way {
            Way::Replication(..) => replication::strays(self).await,
            Way::Galera | Way::Group => Vec::new(),
        }
    }

    /// Asks the other servers of the cluster, and `these`, all at once.
    pub(super) async fn ask_others<T, F>(
        &self,
        these: &[&Arc<Server>],
        ask: impl Fn(Control) -> F + Clone + Send + Sync + 'static,
    ) -> Vec<(ServerAddr, Result<T, String>)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, String>> + Send,
    {
        let (mut asked, deadline) = (JoinSet::new(), self.deadline);
        for server in self.plan.others.iter().chain(these.iter().copied()) {
            let (monitor, server, ask) = (Arc::clone(&self.monitor), Arc::clone(server), ask.clone());
            asked.spawn(async move {
                let answer = async { ask(Control::open(&monitor, &server, deadline).await?).await };
                let addr = server.key.addr();
                let answer = tokio::time::timeout(OTHERS_LIMIT, answer).await;
                let answer = answer.unwrap_or_else(|_| Err(format!("{addr} has not answered in {} ms", OTHERS_LIMIT.as_millis())));
                (addr, answer)
            });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by(|(one, _), (other, _)| one.cmp(other));
        answers
    }

    /// Whether the new one would write if it were preferred now; why not.
    pub(super) fn would_write(&self) -> Result<(), String> {
        let (writer, new) = (self.plan.writer, self.plan.new.key.addr());
        let layout = self.monitor.suppose(&Order::Prefer { writer, server: Some(new.clone()) })?;
        let wanted: Vec<ServerAddr> = writers(&layout, writer).iter().map(|server| server.key.addr()).collect();
        if wanted == [new.clone()] {
            return Ok(());
        }
        let placed = layout.hostgroups.values().flatten().filter(|placed| placed.server.key.addr() == new);
        let said: Vec<String> = placed
            .map(|placed| format!("{} in hostgroup {}: {}", placed.status.as_str(), placed.server.key.hostgroup, placed.why))
            .collect();
        Err(format!("{new} would not become the writer even if preferred ({})", said.join(", ")))
    }

    /// An error for sessions that would not release the old writer however long others wait. It comes before any session waits.
    async fn look_at_sessions(&self, running: &Running) -> Result<(), String> {
        let before = self.bound(running);
        if before.is_empty() {
            return Ok(());
        }
        // A session that holds a lock for a moment only is no obstacle.
        tokio::time::sleep(BRIEF).await;
        let mut bound = self.bound(running);
        bound.retain(|bound| before.contains(bound));
        if bound.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = bound.iter().take(NAMED).map(|bound| format!("session {}: {}", bound.session, bound.why)).collect();
        let rest = if bound.len() > NAMED { ", ..." } else { "" };
        let (sessions, what) = match bound.len() {
            1 => ("1 session keeps its connection".to_owned(), "what it keeps, or the session itself"),
            several => (format!("{several} sessions keep their connections"), "what they keep, or the sessions themselves"),
        };
        Err(format!(
            "{sessions} to {} for more than a transaction ({}{rest}): {what} (KILL CONNECTION) must end first; stats_tidegate_pins \
             lists them",
            self.hostgroups(),
            named.join(", ")
        ))
    }

    /// Sessions wait, nothing runs, and the new writer is near, or there is no time left to wait for that.
    async fn hold(&mut self, running: &Running) -> Result<(HoldGuard, Option<Box<dyn CompanyHold>>), String> {
        let left = self.deadline.saturating_duration_since(Instant::now()) / 2;
        let until = Instant::now() + left;
        // Half of it is left, so that waiting sessions get no error.
        let patience = self.clients_wait().map_or(left, |wait| left.min(wait / 2));
        loop {
            let hold = HoldGuard::new(&self.monitor, &self.plan.held)?;
            self.held_since = Instant::now();
            self.note("sessions wait");
            let (monitor, plan) = (Arc::clone(&self.monitor), self.plan.clone());
            let limit = self.deadline.saturating_duration_since(Instant::now());
            let others = monitor.ask_company(plan.writer, &plan.held, patience, limit);
            let (quiet, others) = tokio::join!(self.quiet(running, patience), others);
            quiet?;
            let others = others?;
            if others.is_some() {
                self.note("other proxies wait too");
            }
            self.confirm()?;
            if self.is_near().await? || Instant::now() >= until {
                return Ok((hold, others));
            }
            drop(hold);
            drop(others);
            self.note("sessions go on: the new writer is behind");
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// How long held sessions wait; None if for ever.
    fn clients_wait(&self) -> Option<Duration> {
        self.monitor.consult(|snapshot, _| {
            let waits = self.plan.held.iter().map(|id| snapshot.effective_in(*id).connect_timeout_server_max);
            waits.filter(|ms| *ms > 0).min().map(Duration::from_millis)
        })
    }

    /// Whether the new writer has, within a breath, all that was written until now.
    async fn is_near(&mut self) -> Result<bool, String> {
        match self.plan.way {
            Way::Replication(..) => replication::is_near(self, BREATH).await,
            // Members agree on each transaction before its commit, and flow control limits the queue of the applier.
            Way::Galera | Way::Group => Ok(true),
        }
    }

    /// Changes the roles. From here on failures are undone.
    async fn change(&mut self) -> Result<(), String> {
        match self.plan.way {
            Way::Replication(check, hand) => replication::change(self, check, hand).await,
            Way::Galera => galera::change(self).await,
            Way::Group => group::change(self).await,
        }
    }

    /// Waits until nothing runs in the hostgroup.
    async fn quiet(&mut self, running: &Running, limit: Duration) -> Result<(), String> {
        let until = Instant::now() + limit;
        loop {
            let load = self.load(running);
            if load.in_transaction == 0 && load.in_use == 0 {
                self.note("nothing runs");
                return Ok(());
            }
            if Instant::now() >= until {
                let (in_use, in_transaction) = (load.in_use, load.in_transaction);
                return Err(format!(
                    "after {} ms {in_use} sessions still use {}, {in_transaction} of them in a transaction",
                    limit.as_millis(),
                    self.hostgroups()
                ));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Has both servers looked at until the new one writes, and the old one does not.
    pub(super) async fn see(&mut self, kind: CheckKind) -> Result<(), String> {
        let wanted = self.plan.new.key.addr();
        loop {
            self.awaited = Some(self.old.addr.clone());
            self.old.look(kind).await?;
            self.awaited = Some(self.new.addr.clone());
            self.new.look(kind).await?;
            self.awaited = None;
            if self.all_written_by(&wanted) {
                self.note(format!("{wanted} is the writer"));
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Whether this server, and no other, writes in each hostgroup that is held, and still the writers' of a cluster.
    fn all_written_by(&self, addr: &ServerAddr) -> bool {
        self.monitor.consult(|snapshot, layout| {
            let held = self.plan.held.iter().filter(|id| snapshot.roles.iter().any(|group| group.writer == **id));
            held.map(|id| writers(layout, *id)).all(|writers| writers.len() == 1 && writers.iter().all(|server| server.key.addr() == *addr))
        })
    }

    /// Prefers this server in the cluster, as an operator's order would; None ends the preference.
    pub(super) fn prefer(&mut self, server: Option<ServerAddr>) -> Result<(), String> {
        let order = Order::Prefer { writer: self.plan.writer, server };
        self.monitor.decide(|topology, now_ms| topology.order(now_ms, &order))
    }

    /// A new connection to a server, with the order's deadline.
    pub(super) async fn fresh(&self, server: &Arc<Server>) -> Result<Control, String> {
        Control::open(&self.monitor, server, self.deadline).await
    }
}
