//! The held hostgroups and their reasons. An operator's pause and a switchover are separate reasons, and a hostgroup is released with the
//! last one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use model::HostgroupId;
use model::stats::{Metric, MetricKind, Sample, Value};

use crate::monitor::{Monitor, lock};

/// Why a hostgroup is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// An operator's `PAUSE HOSTGROUP`.
    Pause,
    /// A switchover is under way.
    Switchover,
    /// A rehearsal in mode `all` begins.
    Rehearsal,
}

impl Reason {
    /// As tables and metrics name it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Switchover => "switchover",
            Self::Rehearsal => "rehearsal",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// With the time at which each began.
    held: BTreeMap<(HostgroupId, Reason), Instant>,
}

impl Holds {
    /// Adds a reason; false when it is there already.
    pub(crate) fn add(&mut self, hostgroup: HostgroupId, reason: Reason) -> bool {
        let is_new = !self.held.contains_key(&(hostgroup, reason));
        if is_new {
            self.held.insert((hostgroup, reason), Instant::now());
        }
        is_new
    }

    /// Takes a reason away; false when it was not there.
    pub(crate) fn remove(&mut self, hostgroup: HostgroupId, reason: Reason) -> bool {
        self.held.remove(&(hostgroup, reason)).is_some()
    }

    /// Whether there is any reason.
    pub(crate) fn is_held(&self, hostgroup: HostgroupId) -> bool {
        self.held.keys().any(|(held, _)| *held == hostgroup)
    }

    /// The hostgroups that an operator paused.
    pub(crate) fn paused(&self) -> Vec<HostgroupId> {
        self.held.keys().filter(|(_, reason)| *reason == Reason::Pause).map(|(hostgroup, _)| *hostgroup).collect()
    }

    /// The first hostgroup that is held, and why.
    pub(crate) fn first(&self) -> Option<(HostgroupId, &'static str)> {
        self.held.keys().next().map(|(hostgroup, reason)| (*hostgroup, reason.as_str()))
    }

    /// The rows of `stats_tidegate_holds`.
    pub(crate) fn rows(&self) -> Vec<Vec<Value>> {
        let held_ms = |since: &Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.held.iter().map(|((id, reason), since)| vec![id.0.into(), reason.as_str().into(), held_ms(since).into()]).collect()
    }

    /// The held hostgroups as a metric.
    pub(crate) fn metric(&self) -> Metric {
        let labels = |(id, reason): &(HostgroupId, Reason)| vec![("hostgroup", id.to_string()), ("reason", reason.as_str().to_owned())];
        let samples = self.held.keys().map(|key| Sample { suffix: "", labels: labels(key), value: 1.0 }).collect();
        Metric { name: "tidegate_hostgroup_held", help: "Hostgroups that start no new work, by reason", kind: MetricKind::Gauge, samples }
    }
}

/// Holds hostgroups for as long as it lives.
pub(crate) struct HoldGuard {
    monitor: Arc<Monitor>,
    held: Vec<HostgroupId>,
    reason: Reason,
}

impl HoldGuard {
    /// Holds them all for a switchover; an error when one holds one already.
    pub(crate) fn new(monitor: &Arc<Monitor>, hostgroups: &[HostgroupId]) -> Result<Self, String> {
        Self::for_reason(monitor, hostgroups, Reason::Switchover)
    }

    /// Holds them all; an error when one is held for this reason already.
    pub(crate) fn for_reason(monitor: &Arc<Monitor>, hostgroups: &[HostgroupId], reason: Reason) -> Result<Self, String> {
        let mut guard = Self { monitor: Arc::clone(monitor), held: Vec::new(), reason };
        for hostgroup in hostgroups {
            if !monitor.hold(*hostgroup, reason) {
                return Err(format!("a {} of hostgroup {hostgroup} is under way", reason.as_str()));
            }
            guard.held.push(*hostgroup);
        }
        Ok(guard)
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        for hostgroup in &self.held {
            self.monitor.release(*hostgroup, self.reason);
        }
    }
}

impl Monitor {
    /// Holds a hostgroup for a reason; false when it is held for it already.
    pub(crate) fn hold(&self, hostgroup: HostgroupId, reason: Reason) -> bool {
        self.change_hold(hostgroup, |holds| holds.add(hostgroup, reason))
    }

    /// Takes the reason away; false when it was not held for it.
    pub(crate) fn release(&self, hostgroup: HostgroupId, reason: Reason) -> bool {
        self.change_hold(hostgroup, |holds| holds.remove(hostgroup, reason))
    }

    /// The data plane is told under the lock, so that the last word is the last change.
    fn change_hold(&self, hostgroup: HostgroupId, change: impl FnOnce(&mut Holds) -> bool) -> bool {
        let mut holds = lock(&self.holds);
        let before = holds.is_held(hostgroup);
        let is_new = change(&mut holds);
        let now = holds.is_held(hostgroup);
        if before != now
            && let Some(running) = self.running()
        {
            running.fleet.hold(hostgroup, now);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostgroup_is_held_while_there_is_a_reason() {
        let (mut holds, id) = (Holds::default(), HostgroupId(1));
        assert!(holds.add(id, Reason::Pause) && holds.add(id, Reason::Switchover) && !holds.add(id, Reason::Pause));
        assert!(holds.remove(id, Reason::Switchover) && holds.is_held(id));
        assert!(holds.remove(id, Reason::Pause) && !holds.is_held(id) && !holds.remove(id, Reason::Pause));
    }
}
