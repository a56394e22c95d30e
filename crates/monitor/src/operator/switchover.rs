//! SWITCHOVER HOSTGROUP: another server writes, and clients wait instead of failing; or everything is as it was.
//!
//! In order: what can be found out beforehand, without touching anything; the hostgroup is held, until its open transactions
//! are over and the new writer is near; roles change; the new writer is seen as such; the hostgroup goes on. What is done is
//! noted before it is done, and undone in reverse when a later step fails or the deadline passes.
//!
//! A replica that is behind catches up while sessions wait. So that nobody waits long for that, they wait in short
//! breaths, and go on in between.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::Server;
use model::{HostgroupId, ServerAddr};
use topology::{CheckKind, Order};

use super::control::Control;
use super::plan::{Plan, Way, plan, writers};
use super::{HoldGuard, LOOK_AGAIN, galera, group, replication};
use crate::monitor::{Monitor, Running};

/// Longest that undoing may take.
const UNDO_LIMIT: Duration = Duration::from_secs(5);

/// Longest that sessions wait at a stretch for a new writer that is behind.
const BREATH: Duration = Duration::from_millis(300);
/// Sessions go on for as long in between.
const BETWEEN: Duration = Duration::from_millis(100);

/// What a session keeps its connection for is no obstacle if it is over within this time.
const BRIEF: Duration = Duration::from_millis(100);
/// Most sessions that a refusal names.
const NAMED: usize = 5;

/// What has been done, and has to be undone if the rest fails.
#[derive(Debug, Clone)]
pub(super) enum Done {
    /// `read_only` was set on the old writer, by the connection with this number.
    OldClosed(String),
    /// `read_only` was taken off the new one.
    NewOpened {
        /// What sets it as it was.
        before: &'static str,
    },
    /// The new one is preferred.
    Preferred,
    /// The group was asked to elect the new one.
    Elected,
}

/// A switchover under way.
pub(super) struct Switchover {
    pub(super) monitor: Arc<Monitor>,
    pub(super) plan: Plan,
    /// To who writes.
    pub(super) old: Control,
    /// To who is to write.
    pub(super) new: Control,
    /// For the answer: each step with the time since the beginning.
    steps: Vec<String>,
    done: Vec<Done>,
    begun: Instant,
    pub(super) deadline: Instant,
}

/// Does it, in `limit` at most (and as much as undoing takes).
pub(super) async fn run(
    monitor: &Arc<Monitor>,
    running: &Running,
    hostgroup: HostgroupId,
    to: ServerAddr,
    limit: Duration,
) -> Result<String, String> {
    let begun = Instant::now();
    let deadline = begun + limit;
    let plan = plan(&monitor.snapshot(), &monitor.layout(), hostgroup, &to)?;
    let reached = tokio::time::timeout_at(deadline.into(), async {
        Ok::<_, String>((Control::open(monitor, &plan.old).await?, Control::open(monitor, &plan.new).await?))
    });
    let (old, new) = reached.await.map_err(|_| "a server does not answer; nothing was changed".to_owned())??;
    let mut work = Switchover { monitor: Arc::clone(monitor), plan, old, new, steps: Vec::new(), done: Vec::new(), begun, deadline };
    let outcome = in_time(monitor, deadline, limit, work.prepare()).await;
    work.settle(outcome)?;
    let free = in_time(monitor, deadline, limit, work.look_at_sessions(running)).await;
    work.settle(free.map_err(|why| format!("{why}; nothing was changed")))?;
    work.note("checked");
    let held = in_time(monitor, deadline, limit, work.hold(running)).await;
    let hold = work.settle(held.map_err(|why| format!("{why}; nothing had been changed")))?;
    let mut outcome = in_time(monitor, deadline, limit, work.change()).await;
    if let Err(why) = outcome {
        outcome = Err(work.give_up(why).await);
    }
    drop(hold);
    work.note("sessions go on");
    work.settle(outcome)?;
    Ok(format!("{to} writes in hostgroup {hostgroup}: {}", work.steps.join("; ")))
}

/// A step, as long as there is time for it.
async fn in_time<T>(
    monitor: &Monitor,
    deadline: Instant,
    limit: Duration,
    step: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let mut stopping = monitor.stopping.subscribe();
    tokio::select! {
        outcome = step => outcome,
        () = tokio::time::sleep_until(deadline.into()) => Err(format!("the deadline of {} ms has passed", limit.as_millis())),
        _ = stopping.wait_for(|stop| *stop) => Err("the monitor stops".into()),
    }
}

impl Switchover {
    /// Notes a step for the answer.
    pub(super) fn note(&mut self, step: impl Into<String>) {
        let step = step.into();
        let at_ms = self.begun.elapsed().as_millis();
        tracing::info!("switchover of hostgroup {}: {step} after {at_ms} ms", self.plan.writer);
        self.steps.push(format!("{step} ({at_ms} ms)"));
    }

    /// What is about to be done has to be undone if the rest fails.
    pub(super) fn will(&mut self, done: Done) {
        self.done.push(done);
    }

    /// An error tells the steps before it.
    fn settle<T>(&self, outcome: Result<T, String>) -> Result<T, String> {
        let steps = if self.steps.is_empty() { "nothing".to_owned() } else { self.steps.join("; ") };
        outcome.map_err(|why| format!("{why}. Done before: {steps}"))
    }

    /// Everything that can be found out without touching anything.
    async fn prepare(&mut self) -> Result<(), String> {
        match self.plan.way {
            Way::Replication(check, hand) => replication::prepare(self, check, hand).await,
            Way::Galera => galera::prepare(self).await,
            Way::Group => group::prepare(self).await,
        }
    }

    /// Sessions that would not let go of the old writer, however long the others wait for them, end it before anybody waits.
    async fn look_at_sessions(&self, running: &Running) -> Result<(), String> {
        let before = running.fleet.bound(self.plan.writer);
        if before.is_empty() {
            return Ok(());
        }
        // Who takes a lock for a moment is waited for.
        tokio::time::sleep(BRIEF).await;
        let mut bound = running.fleet.bound(self.plan.writer);
        bound.retain(|bound| before.contains(bound));
        if bound.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = bound.iter().take(NAMED).map(|bound| format!("session {}: {}", bound.session, bound.why)).collect();
        let rest = if bound.len() > NAMED { ", ..." } else { "" };
        Err(format!(
            "{} sessions keep their connections to hostgroup {} for more than a transaction ({}{rest}): what they keep, or they themselves \
             (KILL CONNECTION), must end first; stats_tidegate_pins lists them",
            bound.len(),
            self.plan.writer,
            named.join(", ")
        ))
    }

    /// Sessions wait, nothing runs, and the new writer is near, or there is no time left to wait for that.
    async fn hold(&mut self, running: &Running) -> Result<HoldGuard, String> {
        let patience = self.deadline.saturating_duration_since(Instant::now()) / 2;
        let until = Instant::now() + patience;
        loop {
            let hold = HoldGuard::new(&self.monitor, &[self.plan.writer])?;
            self.note("sessions wait");
            self.quiet(running, patience).await?;
            if self.is_near().await? || Instant::now() >= until {
                return Ok(hold);
            }
            drop(hold);
            self.note("sessions go on: the new writer is behind");
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Whether the new one has all that was written, within a breath.
    async fn is_near(&mut self) -> Result<bool, String> {
        match self.plan.way {
            Way::Replication(..) => replication::is_near(self, BREATH).await,
            // Their members agree on each transaction before it is committed, and flow control bounds what is to be applied.
            Way::Galera | Way::Group => Ok(true),
        }
    }

    /// Everything that touches something.
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
            let load = running.fleet.load(self.plan.writer);
            if load.in_transaction == 0 && load.in_use == 0 {
                self.note("nothing runs");
                return Ok(());
            }
            if Instant::now() >= until {
                let (in_use, in_transaction) = (load.in_use, load.in_transaction);
                return Err(format!(
                    "after {} ms {in_use} sessions still use hostgroup {}, {in_transaction} of them in a transaction",
                    limit.as_millis(),
                    self.plan.writer
                ));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Has both servers looked at until the new one writes, and the old one does not.
    pub(super) async fn see(&mut self, kind: CheckKind) -> Result<(), String> {
        let wanted = self.plan.new.key.addr();
        loop {
            self.old.look(kind).await?;
            self.new.look(kind).await?;
            if self.writers() == [wanted.clone()] {
                self.note(format!("{wanted} is the writer"));
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Whoever writes now.
    pub(super) fn writers(&self) -> Vec<ServerAddr> {
        writers(&self.monitor.layout(), self.plan.writer).iter().map(|server| server.key.addr()).collect()
    }

    /// This one is preferred, and writes.
    pub(super) fn prefer(&mut self, server: Option<ServerAddr>) -> Result<(), String> {
        let order = Order::Prefer { writer: self.plan.writer, server };
        self.monitor.decide(|topology, now_ms| topology.order(now_ms, &order))
    }

    /// Undoes what was done, in reverse; what became of that is added to why.
    async fn give_up(&mut self, why: String) -> String {
        if self.done.is_empty() {
            return format!("{why}; nothing had been changed");
        }
        self.note(format!("failed: {why}"));
        match tokio::time::timeout(UNDO_LIMIT, self.undo()).await {
            Ok(Ok(())) => format!("{why}; everything is as it was"),
            Ok(Err(fault)) => format!("{why}; NOT EVERYTHING COULD BE UNDONE: {fault}"),
            Err(_) => format!("{why}; NOT EVERYTHING COULD BE UNDONE within {} ms", UNDO_LIMIT.as_millis()),
        }
    }

    /// Over new connections: the present ones may be in the middle of something.
    async fn undo(&mut self) -> Result<(), String> {
        let mut faults = Vec::new();
        while let Some(done) = self.done.pop() {
            let outcome = match &done {
                Done::OldClosed(connection) => replication::reopen_old(self, connection).await,
                Done::NewOpened { before } => replication::close_new(self, before).await,
                Done::Preferred => self.prefer(Some(self.plan.old.key.addr())),
                Done::Elected => group::elect_old(self).await,
            };
            match outcome {
                Ok(()) => self.note(format!("undone: {done:?}")),
                Err(fault) => faults.push(fault),
            }
        }
        match faults.is_empty() {
            true => self.see_as_before().await,
            false => Err(faults.join(", ")),
        }
    }

    /// The old one is seen as the writer again before anybody goes on.
    async fn see_as_before(&mut self) -> Result<(), String> {
        let (old, kind) = (Arc::clone(&self.plan.old), self.plan.kind());
        let mut controls = [self.fresh(&old).await?, self.fresh(&Arc::clone(&self.plan.new)).await?];
        while !self.writers().contains(&old.key.addr()) {
            for control in &mut controls {
                control.look(kind).await?;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Another connection to a server.
    pub(super) async fn fresh(&self, server: &Arc<Server>) -> Result<Control, String> {
        Control::open(&self.monitor, server).await
    }
}
