//! Advice on the death of a writer, the promotion of a replica in its place, and the return of servers that do not follow it: `mysql_healing`.
//!
//! The keeper lives on the monitor's thread. In each round every cluster that has a row is looked at once: its servers are asked, and what
//! [`topology::healing`] says of the answers is shown. With mode `rejoin`, `tend` begins the work for one server at a time. With mode
//! `full`, `promote` begins a promotion.
//! INVARIANT: everything that is sent here only reads; a cluster without a row is not asked.

mod acks;
mod advice;
mod board;
mod by_hand;
mod errant;
mod hooks;
mod look;
mod notes;
mod orders;
mod promote;
mod rejoin;
mod round;
mod shared;
#[cfg(test)]
mod shared_tests;
mod take_back;
mod tend;
mod thaw;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::HostgroupId;
use model::snapshot::{HealingMode, Snapshot};
use tokio::task::JoinSet;

use crate::monitor::Monitor;

pub(crate) use board::Healing;
pub(crate) use hooks::{Told, longest as longest_hooks, run as run_hooks};
pub(crate) use look::{Sight, executed, look};
pub(crate) use orders::Promoted;
pub(crate) use promote::{Looked, look_again};
use round::Keeping;
pub(crate) use shared::follow_records;
pub(crate) use take_back::take_back;

/// The clusters that are looked at.
fn wanted(snapshot: &Snapshot) -> impl Iterator<Item = HostgroupId> + '_ {
    let is_looked_at = |writer: &HostgroupId| snapshot.roles.iter().any(|group| group.writer == *writer);
    let listed = snapshot.healing.values().filter(|row| row.mode != HealingMode::Off).map(|row| row.writer);
    listed.filter(|_| snapshot.vars.monitor_enabled).filter(is_looked_at)
}

/// What this proxy would heal is said so often.
const AGAIN: Duration = Duration::from_secs(1);
/// A round that has not ended so long after its servers had to answer hangs: what this proxy heals is given up.
const STALLS: Duration = Duration::from_secs(5);

/// Says what this proxy would heal. INVARIANT: it is not said while a round is under way.
fn lead(monitor: &Monitor, timeout: Duration) {
    if let Some(decider) = monitor.decider.get() {
        decider.lead(&monitor.healing.would_lead(), STALLS + timeout * 2);
    }
}

/// Waits, and says it again and again.
async fn lead_on(monitor: &Monitor, wait: Duration, timeout: Duration) {
    let end = Instant::now() + wait;
    while Instant::now() < end {
        tokio::time::sleep(AGAIN.min(end.saturating_duration_since(Instant::now()))).await;
        lead(monitor, timeout);
    }
}

/// Looks at clusters, for ever. On the monitor's thread.
pub(crate) async fn keep(monitor: &Arc<Monitor>) {
    let mut clusters: BTreeMap<HostgroupId, Keeping> = BTreeMap::new();
    loop {
        let begun = monitor.healing.begin();
        let (mut all, interval, timeout) = monitor.consult(|snapshot, _| {
            let (all, vars) = (wanted(snapshot).collect::<Vec<HostgroupId>>(), &snapshot.vars);
            (all, Duration::from_millis(vars.monitor_read_only_interval), Duration::from_millis(vars.monitor_read_only_timeout))
        });
        all.sort_unstable();
        monitor.healing.forget(&all);
        let mut rounds = JoinSet::new();
        for writer in all {
            let keeping = clusters.remove(&writer).unwrap_or_else(|| Keeping::new(writer));
            rounds.spawn(keeping.round(Arc::clone(monitor)));
        }
        // What is not looked at any more is let go.
        clusters.clear();
        while let Some(ended) = rounds.join_next().await {
            match ended {
                Ok(keeping) => drop(clusters.insert(keeping.writer, keeping)),
                Err(e) => tracing::error!("a look at a cluster of mysql_healing has ended: {e}"),
            }
        }
        monitor.healing.looked(begun);
        lead(monitor, timeout);
        tokio::select! {
            () = monitor.healing.due() => {}
            () = lead_on(monitor, interval, timeout) => {}
        }
    }
}
