//! Which hostgroups are held, and why: an operator's pause and a switchover are separate reasons, and a hostgroup is let go
//! when there is none left.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::HostgroupId;

use crate::monitor::Monitor;

/// Why a hostgroup is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// `PAUSE HOSTGROUP`.
    Pause,
    /// A switchover is under way.
    Switchover,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: BTreeMap<HostgroupId, Vec<Reason>>,
}

impl Holds {
    /// Adds a reason; false when it is there already.
    pub(crate) fn add(&mut self, hostgroup: HostgroupId, reason: Reason) -> bool {
        let reasons = self.held.entry(hostgroup).or_default();
        let is_new = !reasons.contains(&reason);
        if is_new {
            reasons.push(reason);
        }
        is_new
    }

    /// Takes a reason away; false when it was not there.
    pub(crate) fn remove(&mut self, hostgroup: HostgroupId, reason: Reason) -> bool {
        let Some(reasons) = self.held.get_mut(&hostgroup) else { return false };
        let before = reasons.len();
        reasons.retain(|other| *other != reason);
        before != reasons.len()
    }

    /// Whether there is any reason.
    pub(crate) fn is_held(&self, hostgroup: HostgroupId) -> bool {
        self.held.get(&hostgroup).is_some_and(|reasons| !reasons.is_empty())
    }
}

/// Holds a hostgroup for as long as it lives.
pub(crate) struct HoldGuard {
    monitor: Arc<Monitor>,
    hostgroup: HostgroupId,
}

impl HoldGuard {
    /// Holds it; an error when a switchover holds it already.
    pub(crate) fn new(monitor: &Arc<Monitor>, hostgroup: HostgroupId) -> Result<Self, String> {
        match monitor.hold(hostgroup, Reason::Switchover) {
            true => Ok(Self { monitor: Arc::clone(monitor), hostgroup }),
            false => Err(format!("a switchover of hostgroup {hostgroup} is under way")),
        }
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.monitor.release(self.hostgroup, Reason::Switchover);
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
