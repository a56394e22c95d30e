//! The right of one plan to change servers: the lease under which it began, and a lock on each server.
//!
//! INVARIANT: a plan changes a channel only while this proxy has the very lease under which the plan began, and only where the server takes
//! no writes. A proxy that freezes between that look and its statement loses its connection: the next healer ends the one that has the lock.

use std::sync::Arc;

use model::HostgroupId;
use topology::healing::Lease;

use crate::monitor::Monitor;
use crate::operator::control::Control;
use crate::operator::gate::Gate;
use crate::operator::heal_lock::HealLock;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Tenure {
    monitor: Arc<Monitor>,
    hostgroup: HostgroupId,
    is_shared: bool,
    /// Which lease, of several proxies. A lease that was lost and taken again is another one.
    term: Option<i64>,
    lock: HealLock,
}

impl Tenure {
    /// By the lease that this proxy has now.
    pub(crate) fn new(monitor: &Arc<Monitor>, hostgroup: HostgroupId) -> Self {
        let is_shared = monitor.shares_healing();
        let term = is_shared.then(|| monitor.term(hostgroup)).flatten();
        Self { monitor: Arc::clone(monitor), hostgroup, is_shared, term, lock: HealLock::of(monitor, hostgroup) }
    }

    /// Whether several proxies heal, and this one by a lease.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// What is left of the lease.
    pub(super) fn lease(&self) -> Lease {
        if !self.is_shared {
            return Lease::Alone;
        }
        // In this order: a lease that is lost and taken again in between has another term.
        let lease = self.monitor.lease(self.hostgroup);
        same(lease, self.term, self.monitor.term(self.hostgroup))
    }

    /// An error if the lease is not this one any more.
    pub(in crate::operator) fn holds(&self) -> Result<(), String> {
        self.lease().refusal().map_or(Ok(()), Err)
    }

    /// An error if a channel of this server must not be changed now.
    pub(in crate::operator) async fn may_change(&self, server: &mut Control) -> Result<(), String> {
        if Gate::of(server).await?.is_open() {
            return Err(format!("{} takes writes: its channels are left alone", server.addr));
        }
        self.holds()
    }

    /// Has the server do something about its channels, while that is allowed.
    pub(in crate::operator) async fn tell(&self, server: &mut Control, sql: &str, what: &str) -> Result<(), String> {
        self.may_change(server).await?;
        server.tell(sql, what).await
    }

    /// Takes the locks on a server. `is_forced`: this proxy has the lease of the healer, see [`HealLock::take`].
    pub(in crate::operator) async fn take_lock(&self, server: &mut Control, is_forced: bool) -> Result<(), String> {
        self.holds()?;
        self.lock.take(server, is_forced.then_some(self)).await?.map_or(Ok(()), Err)
    }
}

/// The lease, if it is still the one of this term.
fn same(lease: Lease, term: Option<i64>, now: Option<i64>) -> Lease {
    match lease {
        Lease::Own(_) if term.is_none() || now != term => {
            Lease::Away("its lease was lost and taken again: another proxy may have healed meanwhile".to_owned())
        }
        lease => lease,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_was_taken_again_is_another_one() {
        assert_eq!(same(Lease::Own(7), Some(4), Some(4)), Lease::Own(7));
        for (term, now) in [(Some(4), Some(9)), (Some(4), None), (None, Some(9)), (None, None)] {
            assert!(same(Lease::Own(7), term, now).refusal().is_some(), "{term:?} {now:?}");
        }
        assert_eq!(same(Lease::Other(None), Some(4), Some(4)), Lease::Other(None));
    }
}
