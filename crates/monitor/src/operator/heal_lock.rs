//! The named locks under which a server is changed by healing: at most one healer, or one return of a server, is at work there.
//!
//! Everybody takes [`ANY`], whatever proxy, cluster or prefix it is. Proxies that heal by the same leases take a lock of their own first,
//! which names them. INVARIANT: who holds [`ANY`] and is of the same proxies holds their own lock too, so a new healer ends only a
//! connection that holds the latter.

use model::HostgroupId;

use super::control::Control;
use super::promote::Tenure;
use super::replication;
use crate::monitor::Monitor;

/// Of everybody.
pub(super) const ANY: &str = "tidegate.heal";

/// See the module. A server forgets its locks with the connection.
#[derive(Debug, Clone)]
pub(in crate::operator) struct HealLock {
    /// The lock of the proxies that heal by the same lease; None for a lone one.
    own: Option<String>,
}

impl HealLock {
    /// As this proxy heals the cluster.
    pub(in crate::operator) fn of(monitor: &Monitor, hostgroup: HostgroupId) -> Self {
        let scope = monitor.shares_healing().then(|| monitor.healing_scope()).flatten();
        Self { own: scope.map(|scope| name(&scope, hostgroup)) }
    }

    /// Takes both on a server. `healer` has the lease: what holds the own lock is a connection of a healer that lost it, of a return of a
    /// server, or an earlier one of the same plan. It is ended, and what it had sent ends with it. Returns who else is at work there, in
    /// words; None if nobody is.
    pub(in crate::operator) async fn take(&self, server: &mut Control, healer: Option<&Tenure>) -> Result<Option<String>, String> {
        if let Some(own) = &self.own
            && !got(server, own).await?
        {
            if let Some(healer) = healer {
                // NULL where it was given back meanwhile.
                if let Some(holder) = holder(server, own).await? {
                    healer.holds()?;
                    tracing::info!("{}: connection {holder} held the lock of an earlier healer and is ended", server.addr);
                    end(server, own, holder).await?;
                }
                healer.holds()?;
            }
            if healer.is_none() || !got(server, own).await? {
                return Ok(Some(format!("another proxy, or another order, is at work on {} (GET_LOCK)", server.addr)));
            }
        }
        if got(server, ANY).await? {
            return Ok(None);
        }
        let holder = holder(server, ANY).await?.map_or_else(|| "a connection".to_owned(), |holder| format!("connection {holder}"));
        Ok(Some(format!(
            "{holder} of {} holds the lock '{ANY}': another proxy with an etcd prefix or a hostgroup of its own, or another order, is at \
             work on the server",
            server.addr
        )))
    }
}

/// Ends a connection if it still holds the lock: its id may belong to another session by now.
pub(super) async fn end(server: &mut Control, lock: &str, connection: u64) -> Result<(), String> {
    if holder(server, lock).await? == Some(connection) {
        replication::end(server, connection).await?;
    }
    Ok(())
}

async fn got(server: &mut Control, lock: &str) -> Result<bool, String> {
    Ok(server.value(&format!("SELECT GET_LOCK('{lock}', 0)")).await? == "1")
}

async fn holder(server: &mut Control, lock: &str) -> Result<Option<u64>, String> {
    Ok(server.value(&format!("SELECT IS_USED_LOCK('{lock}')")).await?.parse().ok())
}

/// At most 64 characters, as MySQL allows.
fn name(scope: &str, hostgroup: HostgroupId) -> String {
    format!("{ANY}.{scope}.{hostgroup}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_its_proxies_and_their_cluster() {
        let scope = "0123456789abcdef0123456789abcdef";
        let longest = name(scope, HostgroupId(u32::MAX));
        assert_eq!(longest, format!("tidegate.heal.{scope}.4294967295"));
        assert!(longest.len() <= 64);
        assert!(name(scope, HostgroupId(1)) != name(scope, HostgroupId(2)) && name("a", HostgroupId(1)) != name("b", HostgroupId(1)));
    }
}
