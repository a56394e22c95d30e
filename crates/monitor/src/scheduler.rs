//! Brings the lanes that run into line with the checks that are wanted.
//!
//! Lives on the monitor's thread. A lane that is not wanted any more is aborted in the middle of whatever it does; one that
//! has died is started again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::ServerAddr;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::lane::{self, Lane, LanePlan};
use crate::monitor::{Monitor, Wanted};

/// First checks are spread so that this much time is between two of them.
const SPREAD_EACH: Duration = Duration::from_micros(250);

#[derive(Debug)]
struct Running {
    plan: watch::Sender<Arc<LanePlan>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    lanes: BTreeMap<(ServerAddr, Lane), Running>,
}

impl Scheduler {
    /// Starts, changes and ends lanes.
    pub(crate) fn reconcile(&mut self, monitor: &Arc<Monitor>, wanted: Wanted) {
        let plans = plans(wanted);
        self.lanes.retain(|key, running| plans.contains_key(key) && !running.task.is_finished());
        for (key, plan) in plans {
            match self.lanes.get(&key) {
                Some(running) => {
                    running.plan.send_if_modified(|current| {
                        let is_new = **current != plan;
                        if is_new {
                            *current = Arc::new(plan);
                        }
                        is_new
                    });
                }
                None => {
                    let (sender, receiver) = watch::channel(Arc::new(plan));
                    let task = tokio::spawn(lane::run(Arc::clone(monitor), key.0.clone(), receiver));
                    self.lanes.insert(key, Running { plan: sender, task });
                }
            }
        }
    }

    /// Lanes that run.
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }
}

/// The plan of each lane. There is one check of a kind for each server, whatever clusters want it.
fn plans(wanted: Wanted) -> BTreeMap<(ServerAddr, Lane), LanePlan> {
    let spread = SPREAD_EACH.saturating_mul(u32::try_from(wanted.checks.len()).unwrap_or(u32::MAX));
    let mut plans: BTreeMap<(ServerAddr, Lane), LanePlan> = BTreeMap::new();
    for check in wanted.checks {
        let key = (check.addr.clone(), Lane::of(check.kind));
        let empty =
            || LanePlan { checks: Vec::new(), access: wanted.account.access(&check.server), settings: wanted.settings.clone(), spread };
        let plan = plans.entry(key).or_insert_with(empty);
        if !check.peers.is_empty() {
            plan.settings.peers = Arc::clone(&check.peers);
        }
        if !check.foreign.is_empty() {
            plan.settings.foreign = Arc::clone(&check.foreign);
        }
        plan.checks.push(check);
    }
    plans
}

#[cfg(test)]
mod tests {
    use topology::{CheckKind, Topology};

    use super::*;
    use crate::monitor::Account;
    use crate::probe::ProbeSettings;

    #[test]
    fn channels_of_one_cluster_are_foreign_to_its_own_servers_only() {
        let snapshot = crate::testing::snapshot(
            r#"mysql_servers = ( { address="g", port=3306, hostgroup=10, max_replication_lag=9 },
                 { address="a", port=3306, hostgroup=20 }, { address="b", port=3306, hostgroup=21 } )
               mysql_galera_hostgroups = ( { writer_hostgroup=10, backup_writer_hostgroup=11, reader_hostgroup=12, offline_hostgroup=13 } )
               mysql_replication_hostgroups = ( { writer_hostgroup=20, reader_hostgroup=21 } )
               mysql_replication_channels = ( { writer_hostgroup=10, source_hostname="tidegate-east", source_port=6033 },
                 { writer_hostgroup=20, channel_name="west", source_hostname="tidegate-west", source_port=6033, active=0 } )"#,
        );
        let mut topology = Topology::new();
        topology.configure(&snapshot, 0);
        let wanted = Wanted { checks: topology.checks(), account: Account::of(&snapshot), settings: ProbeSettings::of(&snapshot) };
        let plans = plans(wanted);
        for (host, expected) in [("g", ""), ("a", "west"), ("b", "west")] {
            let plan = &plans[&(ServerAddr { host: host.into(), port: 3306 }, Lane::Background)];
            assert!(plan.checks.iter().any(|check| check.kind == CheckKind::Lag), "{host}");
            let expected: Arc<str> = expected.into();
            assert_eq!(*plan.settings.foreign, [expected], "{host}");
        }
    }
}
