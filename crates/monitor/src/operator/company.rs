//! Other proxies before the same servers: they wait while this one switches over, and this one waits for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fleet::{CompanyHold, Held, RoleKeeper, Signal, SignalKind, StandingOrder};
use model::{HostgroupId, ServerAddr};
use topology::Order;

use super::plan::writers;
use super::switchover::BRIEF;
use super::{HoldGuard, LOOK_AGAIN, Reason};
use crate::monitor::{Monitor, Running, lock};

/// Time between words to the monitor that a writer has changed.
const REMIND: Duration = Duration::from_millis(20);

/// A hold of hostgroups for another proxy's switchover; see [`Held`].
struct HeldForOthers {
    guard: HoldGuard,
    monitor: Arc<Monitor>,
    hostgroups: Vec<HostgroupId>,
}

/// Holds the hostgroups once nothing runs there.
pub(super) async fn hold(
    monitor: &Arc<Monitor>,
    running: &Running,
    hostgroups: Vec<HostgroupId>,
    limit: Duration,
) -> Result<Box<dyn Held>, String> {
    let guard = HoldGuard::new(monitor, &hostgroups)?;
    let begun = Instant::now();
    loop {
        let loads = hostgroups.iter().map(|id| running.fleet.load(*id));
        let in_use: u32 = loads.map(|load| load.in_use.max(load.in_transaction)).sum();
        if in_use == 0 {
            return Ok(Box::new(HeldForOthers { guard, monitor: Arc::clone(monitor), hostgroups }));
        }
        let bound = || hostgroups.iter().flat_map(|id| running.fleet.bound(*id)).next();
        if let Some(bound) = Some(()).filter(|()| begun.elapsed() > BRIEF).and_then(|()| bound()) {
            return Err(format!("session {} keeps its connection for more than a transaction ({})", bound.session, bound.why));
        }
        if begun.elapsed() >= limit || *monitor.stopping.borrow() {
            return Err(format!("after {} ms {in_use} sessions still use the hostgroups", begun.elapsed().as_millis()));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

impl Held for HeldForOthers {
    fn until_writes(self: Box<Self>, writer: &ServerAddr, limit: Duration) {
        let until = Instant::now() + limit;
        let mut reminded: Option<Instant> = None;
        while !self.is_written_by(writer) && Instant::now() < until {
            if reminded.is_none_or(|when| when.elapsed() >= REMIND) {
                self.have_looked_at(writer);
                reminded = Some(Instant::now());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        drop(self.guard);
    }
}

impl HeldForOthers {
    /// Whether this server is the only writer of each held writer hostgroup.
    fn is_written_by(&self, writer: &ServerAddr) -> bool {
        self.monitor.consult(|snapshot, layout| {
            let held = self.hostgroups.iter().filter(|id| snapshot.roles.iter().any(|group| group.writer == **id));
            held.map(|id| writers(layout, *id)).all(|all| all.len() == 1 && all.iter().all(|server| server.key.addr() == *writer))
        })
    }

    /// Checks the old and the new writer at once: the other proxy has changed their roles.
    fn have_looked_at(&self, writer: &ServerAddr) {
        let before = self.monitor.consult(|_, layout| {
            let all = self.hostgroups.iter().flat_map(|id| writers(layout, *id).into_iter().map(move |server| (*id, server.key.addr())));
            all.collect::<Vec<_>>()
        });
        let all = before.into_iter().chain(self.hostgroups.first().map(|id| (*id, writer.clone())));
        for (hostgroup, server) in all {
            self.monitor.signal(Signal { server, hostgroup, kind: SignalKind::ReadOnly });
        }
    }
}

impl Monitor {
    /// Another proxy's order holds here too, or has ended.
    pub(super) fn stand_by(&self, order: &StandingOrder, holds: bool) -> Result<(), String> {
        let order = match order {
            StandingOrder::Paused(hostgroup) => {
                if holds {
                    self.knows(*hostgroup)?;
                }
                let is_new = if holds { self.hold(*hostgroup, Reason::Pause) } else { self.release(*hostgroup, Reason::Pause) };
                if is_new {
                    self.note_pause(*hostgroup, holds);
                }
                return self.ready().map(drop);
            }
            StandingOrder::Drained(server) => Order::Drain { server: self.as_written(server), is_drained: holds },
            StandingOrder::Preferred(writer, server) => Order::Prefer { writer: *writer, server: holds.then(|| self.as_written(server)) },
        };
        self.have_done(move |monitor, _| async move { monitor.decide(|topology, now_ms| topology.order(now_ms, &order)) })
    }

    /// The orders that hold here now.
    pub(super) fn standing_orders(&self) -> Vec<StandingOrder> {
        let paused = lock(&self.holds).paused().into_iter().map(StandingOrder::Paused);
        let drained = self.drained_servers().into_iter().map(StandingOrder::Drained);
        let snapshot = self.snapshot();
        let writers = snapshot.roles.iter().map(|group| group.writer);
        let preferred = writers.filter_map(|writer| Some(StandingOrder::Preferred(writer, self.preferred(writer)?)));
        paused.chain(drained).chain(preferred).collect()
    }

    /// Has the other proxies hold these hostgroups. None when there are none.
    pub(super) async fn ask_company(
        &self,
        writer: HostgroupId,
        hostgroups: &[HostgroupId],
        patience: Duration,
        limit: Duration,
    ) -> Result<Option<Box<dyn CompanyHold>>, String> {
        let Some(company) = self.company.get().cloned() else { return Ok(None) };
        let hostgroups = hostgroups.to_vec();
        let asked = tokio::task::spawn_blocking(move || company.hold(writer, &hostgroups, patience, limit)).await;
        asked.map_err(|e| e.to_string())?.map(Some)
    }
}

/// Ends the other proxies' hold and names the writer to them.
pub(super) fn tell(company: Option<Box<dyn CompanyHold>>, writer: &ServerAddr, is_by_preference: bool) -> (bool, Option<String>) {
    match company {
        None => (false, None),
        Some(company) => {
            let warning = company.warning();
            company.over(writer, is_by_preference);
            (true, warning)
        }
    }
}
