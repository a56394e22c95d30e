//! Operators' orders: pause, drain, fail back, switch over.
//!
//! The caller's thread waits, and the work runs on the monitor's thread. INVARIANT: a hostgroup that is held for work is released on every
//! path, even if the work panics or the monitor stops.

mod acks;
mod claim;
mod company;
mod control;
mod galera;
mod gate;
mod group;
mod heal_lock;
mod holds;
mod journal;
mod plan;
mod promote;
mod rejoin;
mod replication;
mod repoint;
mod shadow;
mod switchover;
mod undo;

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use model::fleet::{
    Company, Decider, HealOrder, HealedStep, HealingStep, Held, Operator, Placement, Programs, ShadowOrder, ShadowState, StandingOrder,
    Told,
};
use model::snapshot::ServerStatus;
use model::{HostgroupId, ServerAddr};
use topology::{Event, EventKind, Order};

use crate::healing::take_back;
use crate::monitor::{Monitor, Running, lock};
use plan::Hand;

pub(crate) use acks::{NotSet, SetAcks, lacks_right_to_acks, run as set_acks};
#[cfg(test)]
pub(crate) use claim::claimed;
pub(crate) use claim::{Claims, servers};
pub(crate) use holds::{HoldGuard, Holds, Reason};
pub(crate) use journal::Journal;
pub(crate) use promote::{Promote, Promotion, Tenure, Unable, lacks_right, resume, run as promote};
pub(crate) use rejoin::{Outcome, Rejoin, run as rejoin};

const NOT_RUNNING: &str = "the monitor is not running";
/// Time between looks at the data plane's running statements.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

impl Monitor {
    fn ready(&self) -> Result<&Running, String> {
        self.running().ok_or_else(|| NOT_RUNNING.to_owned())
    }

    /// Has work done on the monitor's thread, and waits for it.
    fn have_done<W, F, T>(&self, work: W) -> Result<T, String>
    where
        W: FnOnce(Arc<Monitor>, Running) -> F,
        F: Future<Output = Result<T, String>> + Send + 'static,
        T: Send + 'static,
    {
        let running = self.ready()?;
        let me = self.me().ok_or(NOT_RUNNING)?;
        let (answer, answered) = mpsc::channel();
        let work = work(me, running.clone());
        let orders = Arc::clone(&self.orders);
        running.runtime.spawn(async move {
            let _under_way = orders.read().await;
            // The asker may be gone.
            let _ = answer.send(work.await);
        });
        answered.recv().unwrap_or_else(|_| Err("the command was aborted: the monitor stopped or the command panicked".into()))
    }

    fn timeout(&self, timeout_ms: Option<u64>) -> Duration {
        Duration::from_millis(timeout_ms.unwrap_or_else(|| self.snapshot().vars.switchover_timeout_ms))
    }

    /// The server as the configuration writes its name: letter case counts for nothing in names of hosts.
    fn as_written(&self, server: &ServerAddr) -> ServerAddr {
        self.consult(|_, layout| {
            let known = || layout.hostgroups.values().flatten().map(|placement| &placement.server.key);
            let is_exact = known().any(|key| key.port == server.port && key.host == server.host);
            let like = known().find(|key| !is_exact && key.port == server.port && key.host.eq_ignore_ascii_case(&server.host));
            // A path's does.
            like.filter(|_| server.port > 0).map_or_else(|| server.clone(), |key| key.addr())
        })
    }

    fn knows(&self, hostgroup: HostgroupId) -> Result<(), String> {
        let snapshot = self.snapshot();
        let is_known =
            snapshot.hostgroup(hostgroup).is_some() || snapshot.roles.iter().any(|group| group.hostgroups().any(|id| id == hostgroup));
        if is_known { Ok(()) } else { Err(format!("there is no hostgroup {hostgroup}")) }
    }
}

impl Monitor {
    /// The servers that are drained by an operator's order, for a process that takes this one's place.
    ///
    /// # Errors
    /// A hostgroup is held, and no other process would release the sessions that wait there; or a switchover still re-points replication.
    pub fn drained(&self) -> Result<Vec<ServerAddr>, String> {
        match lock(&self.holds).first() {
            Some((hostgroup, "pause")) => Err(format!("hostgroup {hostgroup} is paused: RESUME HOSTGROUP {hostgroup} first")),
            Some((hostgroup, why)) => Err(format!("a {why} of hostgroup {hostgroup} is under way")),
            None => match lock(&self.claims).first() {
                Some(work) => Err(format!("{work} is under way")),
                None => Ok(self.drained_servers()),
            },
        }
    }

    /// Drains servers as the process before did.
    ///
    /// # Errors
    /// The monitor does not run.
    pub fn drain_as_before(&self, servers: Vec<ServerAddr>) -> Result<(), String> {
        self.have_done(move |monitor, _| async move {
            for server in servers {
                let order = Order::Drain { server, is_drained: true };
                // One that is configured no more needs no draining.
                let _ = monitor.decide(|topology, now_ms| topology.order(now_ms, &order));
            }
            Ok(())
        })
    }
}

impl Operator for Monitor {
    fn switchover(&self, hostgroup: HostgroupId, to: &ServerAddr, timeout_ms: Option<u64>) -> Result<Told, String> {
        self.switch(hostgroup, to, timeout_ms, Hand::Ours)
    }

    fn switchover_by_hand(&self, hostgroup: HostgroupId, to: &ServerAddr, timeout_ms: Option<u64>) -> Result<Told, String> {
        self.switch(hostgroup, to, timeout_ms, Hand::Theirs)
    }

    fn explain_healing(&self, hostgroup: HostgroupId, dies: Option<&ServerAddr>) -> Result<Vec<HealingStep>, String> {
        self.ready()?;
        self.knows(hostgroup)?;
        self.explain(hostgroup, dies)
    }

    fn healing_remarks(&self) -> Vec<(HostgroupId, String)> {
        self.ready().map(|_| self.remarks_on_healing()).unwrap_or_default()
    }

    fn failback(&self, hostgroup: HostgroupId) -> Result<String, String> {
        self.have_done(|monitor, _| async move {
            let outcome = monitor.decide(|topology, now_ms| topology.order(now_ms, &Order::Failback { writer: hostgroup }));
            monitor.note_refusal("failback", Some(hostgroup), None, &outcome);
            outcome.map(|()| format!("hostgroup {hostgroup}: the preferred server writes again"))
        })
    }

    fn accept(&self, hostgroup: HostgroupId, from: Option<&ServerAddr>) -> Result<String, String> {
        let from = from.map(|server| self.as_written(server));
        self.have_done(move |monitor, _| async move {
            let order = Order::Accept { writer: hostgroup, from: from.clone() };
            let outcome = monitor.decide(|topology, now_ms| topology.order(now_ms, &order));
            monitor.note_refusal("accept", Some(hostgroup), from.as_ref(), &outcome);
            outcome?;
            let known = monitor.identities().into_iter().find(|one| one.writer == hostgroup).and_then(|one| one.cluster);
            Ok(format!("hostgroup {hostgroup}: the cluster is {} from now on", known.map(|known| known.to_string()).unwrap_or_default()))
        })
    }

    fn pause(&self, hostgroup: HostgroupId, is_paused: bool) -> Result<String, String> {
        let outcome = self.set_paused(hostgroup, is_paused);
        self.note_refusal(if is_paused { "pause" } else { "resume" }, Some(hostgroup), None, &outcome);
        outcome
    }

    fn drain(&self, server: &ServerAddr, timeout_ms: Option<u64>) -> Result<String, String> {
        let limit = self.timeout(timeout_ms);
        let server = self.as_written(server);
        self.have_done(move |monitor, running| async move {
            let order = Order::Drain { server: server.clone(), is_drained: true };
            let begun = monitor.decide(|topology, now_ms| topology.order(now_ms, &order));
            monitor.note_refusal("drain", None, Some(&server), &begun);
            begun?;
            let outcome = drain(&monitor, &running, server.clone(), limit).await;
            monitor.note_drain(server, &outcome);
            outcome
        })
    }

    fn undrain(&self, server: &ServerAddr) -> Result<String, String> {
        let server = self.as_written(server);
        self.have_done(|monitor, _| async move {
            let order = Order::Drain { server: server.clone(), is_drained: false };
            let outcome = monitor.decide(|topology, now_ms| topology.order(now_ms, &order));
            monitor.note_refusal("undrain", None, Some(&server), &outcome);
            outcome.map(|()| format!("{server} takes work again if its checks pass and its weight is above 0"))
        })
    }

    fn adopt(&self, server: &ServerAddr) -> Result<String, String> {
        self.ready()?;
        let server = self.as_written(server);
        let outcome = self.healing.adopt(&server);
        self.note_refusal("adopt", None, Some(&server), &outcome);
        outcome
    }

    fn suspend_healing(&self, hostgroup: Option<HostgroupId>, limit: Option<Duration>, by: &str) -> Result<String, String> {
        let outcome = hostgroup.map_or(Ok(()), |hostgroup| self.knows(hostgroup));
        let outcome = outcome.and_then(|()| self.suspend(hostgroup, limit, by));
        self.note_order("suspend healing", hostgroup, &outcome);
        self.healing.look_now();
        outcome
    }

    fn resume_healing(&self, hostgroup: Option<HostgroupId>) -> Result<String, String> {
        let outcome = Self::resume(self, hostgroup);
        self.note_order("resume healing", hostgroup, &outcome);
        self.healing.look_now();
        outcome
    }

    fn acknowledge_healing(&self, hostgroup: HostgroupId) -> Result<String, String> {
        let outcome = self.ready().and_then(|_| self.acknowledge(hostgroup));
        self.note_order("acknowledge healing", Some(hostgroup), &outcome);
        outcome
    }

    fn healed_steps(&self) -> Vec<(u64, HealedStep)> {
        lock(&self.journal).waiting()
    }

    fn forget_healed_steps(&self, last: u64) {
        lock(&self.journal).forget(last);
    }

    fn rejoin(&self, server: &ServerAddr, discarding: Option<u64>) -> Result<String, String> {
        self.ready()?;
        let server = self.as_written(server);
        let outcome = match discarding {
            Some(count) => self.refuse_to_discard(&server, count),
            None => self
                .rejoin_order(&server)
                .and_then(|(order, advice)| self.have_done(|monitor, _| async move { take_back(&monitor, &order, &advice).await })),
        };
        self.note_refusal("rejoin", None, Some(&server), &outcome);
        outcome
    }

    fn heal(&self, order: &HealOrder, by: &str) -> Result<String, String> {
        let order = HealOrder { to: order.to.as_ref().map(|to| self.as_written(to)), ..*order };
        let outcome = self.ready().and_then(|_| Self::heal(self, &order, by));
        self.note_order("heal", Some(order.hostgroup), &outcome);
        outcome
    }

    fn explain_heal(&self, order: &HealOrder) -> Result<Vec<HealingStep>, String> {
        self.ready()?;
        let order = HealOrder { to: order.to.as_ref().map(|to| self.as_written(to)), ..*order };
        Self::explain_heal(self, &order)
    }

    fn shadow_state(&self, shadow: HostgroupId) -> ShadowState {
        let state = self.have_done(move |monitor, _| async move { Ok(monitor.look_at_shadow(shadow).await) });
        state.unwrap_or_else(ShadowState::Unknown)
    }

    fn detach_shadow(&self, order: ShadowOrder) -> Result<Told, String> {
        self.have_done(|monitor, running| async move { monitor.detach(&running, order).await })
    }

    fn stand(&self, order: &StandingOrder, holds: bool) -> Result<(), String> {
        self.stand_by(order, holds)
    }

    fn standing(&self) -> Vec<StandingOrder> {
        self.standing_orders()
    }

    fn has_looked(&self) -> bool {
        Self::has_looked(self)
    }

    fn hold_for(&self, hostgroups: &[HostgroupId], limit: Duration) -> Result<Box<dyn Held>, String> {
        let hostgroups = hostgroups.to_vec();
        self.have_done(move |monitor, running| async move { company::hold(&monitor, &running, hostgroups, limit).await })
    }

    fn keep_decider(&self, decider: Arc<dyn Decider>) {
        let _ = self.decider.set(decider);
    }

    fn decider_changed(&self) {
        self.decider_moved.notify_one();
    }

    fn keep_programs(&self, programs: Arc<dyn Programs>) {
        let _ = self.programs.set(programs);
    }

    fn keep_company(&self, company: Arc<dyn Company>) {
        let _ = self.company.set(company);
    }
}

impl Monitor {
    /// `asked` tells who should set `read_only`, for clusters whose writer it decides.
    fn switch(&self, hostgroup: HostgroupId, to: &ServerAddr, timeout_ms: Option<u64>, asked: Hand) -> Result<Told, String> {
        let limit = self.timeout(timeout_ms);
        let to = self.as_written(to);
        self.have_done(move |monitor, running| async move {
            let outcome = switchover::run(&monitor, &running, hostgroup, (to.clone(), asked), limit).await;
            monitor.note_switchover(hostgroup, to, &outcome);
            outcome
        })
    }

    fn set_paused(&self, hostgroup: HostgroupId, is_paused: bool) -> Result<String, String> {
        self.ready()?;
        // A pause may outlive its hostgroup, and ends all the same.
        if is_paused {
            self.knows(hostgroup)?;
        }
        let is_new = if is_paused { self.hold(hostgroup, Reason::Pause) } else { self.release(hostgroup, Reason::Pause) };
        if is_new {
            self.note_pause(hostgroup, is_paused);
        }
        match (is_paused, is_new) {
            (true, true) => Ok(self.paused(hostgroup)),
            (false, true) => Ok(format!("hostgroup {hostgroup} is resumed: waiting statements run in order")),
            (true, false) => Err(format!("hostgroup {hostgroup} is paused already")),
            (false, false) => Err(format!("hostgroup {hostgroup} is not paused")),
        }
    }
}

/// Nothing new goes to the server; over when nothing runs on it.
async fn drain(monitor: &Arc<Monitor>, running: &Running, server: ServerAddr, limit: Duration) -> Result<String, String> {
    let begun = Instant::now();
    let stays = format!("It stays drained until UNDRAIN SERVER '{server}'{}", monitor.left_alone(&server));
    loop {
        let in_use = running.fleet.in_use(&server, None);
        if in_use == 0 {
            let waited_ms = begun.elapsed().as_millis();
            return Ok(format!("{server} is drained: its last statement ended {waited_ms} ms after the order. {stays}"));
        }
        if begun.elapsed() >= limit || *monitor.stopping.borrow() {
            let waited_ms = begun.elapsed().as_millis();
            return Err(format!(
                "{server} gets nothing new, but {in_use} of its connections are still in use after {waited_ms} ms. {stays}"
            ));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

impl Monitor {
    /// The effect of a pause on clients, in words.
    fn paused(&self, hostgroup: HostgroupId) -> String {
        let wait_ms = self.snapshot().effective_in(hostgroup).connect_timeout_server_max;
        let end = match wait_ms {
            0 => "Statements wait until then".to_owned(),
            _ => format!("Statements that wait longer than mysql-connect_timeout_server_max ({wait_ms} ms) fail with error 9001"),
        };
        format!(
            "hostgroup {hostgroup} is paused until RESUME HOSTGROUP {hostgroup}: nothing new begins there, open transactions go on. {end}"
        )
    }

    /// The effect of a drain on hostgroups without another ONLINE server, in words; empty if there are none.
    fn left_alone(&self, server: &ServerAddr) -> String {
        let (alone, are_readers) = self.consult(|snapshot, layout| {
            let is_here = |placement: &Placement| placement.server.key.addr() == *server;
            let serves = |placement: &Placement| placement.status == ServerStatus::Online && !is_here(placement);
            let alone = layout.hostgroups.iter().filter(|(_, all)| all.iter().any(is_here) && !all.iter().any(serves));
            let alone: Vec<HostgroupId> = alone.map(|(id, _)| *id).collect();
            let is_reader = |id: &HostgroupId| snapshot.roles.iter().any(|group| group.reader == *id && group.writer != *id);
            let are_readers = alone.iter().all(is_reader);
            (alone, are_readers)
        });
        if alone.is_empty() {
            return String::new();
        }
        let names: Vec<String> = alone.iter().map(ToString::to_string).collect();
        let named = format!("hostgroup{} {}", if alone.len() > 1 { "s" } else { "" }, names.join(", "));
        let reads =
            if are_readers { ". Reads of users with read_write_split go to the writer (mysql-reads_to_writer_after_ms)" } else { "" };
        format!(". No other server is ONLINE in {named}: statements there wait, then fail with error 9001{reads}")
    }

    fn note_pause(&self, hostgroup: HostgroupId, is_paused: bool) {
        let snapshot = self.snapshot();
        let group = snapshot.roles.iter().find(|group| group.hostgroups().any(|id| id == hostgroup));
        let (from, to) = if is_paused { ("in use", "paused") } else { ("paused", "in use") };
        let order = self.order_event(group.map(|group| group.writer), from, to);
        self.note(vec![Event { seen: format!("hostgroup {hostgroup}"), ..order }]);
    }

    /// An order that was refused leaves an event too.
    fn note_refusal<T>(&self, order: &str, hostgroup: Option<HostgroupId>, server: Option<&ServerAddr>, outcome: &Result<T, String>) {
        let Err(why) = outcome else { return };
        let snapshot = self.snapshot();
        let group = snapshot.roles.iter().find(|group| hostgroup.is_some_and(|hostgroup| group.hostgroups().any(|id| id == hostgroup)));
        let event = self.order_event(group.map(|group| group.writer), "", &format!("{order} refused"));
        self.note(vec![Event { server: server.cloned(), seen: why.clone(), ..event }]);
    }

    /// An order about healing, with its effect or the reason why it was refused.
    fn note_order(&self, order: &str, hostgroup: Option<HostgroupId>, outcome: &Result<String, String>) {
        self.note_refusal(order, hostgroup, None, outcome);
        if let Ok(seen) = outcome {
            self.note(vec![Event { seen: seen.clone(), ..self.order_event(hostgroup, "", order) }]);
        }
    }

    /// With its result, good or bad.
    fn note_drain(&self, server: ServerAddr, outcome: &Result<String, String>) {
        let state = if outcome.is_ok() { "drained" } else { "not drained in time" };
        let (Ok(seen) | Err(seen)) = outcome;
        let order = self.order_event(None, "draining", state);
        self.note(vec![Event { server: Some(server), seen: seen.clone(), ..order }]);
    }

    /// With its result, good or bad.
    fn note_switchover(&self, hostgroup: HostgroupId, to: ServerAddr, outcome: &Result<Told, String>) {
        let group = self.snapshot().roles.iter().any(|group| group.writer == hostgroup).then_some(hostgroup);
        let (state, seen) = match outcome {
            Ok(told) => ("switched over", &told.text),
            Err(why) => ("not switched over", why),
        };
        let order = self.order_event(group, "", state);
        self.note(vec![Event { server: Some(to), seen: seen.clone(), ..order }]);
    }

    fn order_event(&self, cluster: Option<HostgroupId>, from: &str, to: &str) -> Event {
        Event {
            at_ms: self.clock.now_ms(),
            cluster,
            server: None,
            kind: EventKind::Order,
            from: from.to_owned(),
            to: to.to_owned(),
            seen: String::new(),
            by: "operator",
            why: "an operator's order".to_owned(),
        }
    }
}
