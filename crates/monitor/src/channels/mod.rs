//! Replication channels from other clusters, kept on the writer of the receiving one: `mysql_replication_channels`.
//!
//! The keeper lives on the monitor's thread. Each cluster that has channels is a round of its own: its servers are asked,
//! [`judge`] says what follows, and the steps are taken. Nothing is remembered that servers can be asked, so that several proxies
//! may keep the same channel. INVARIANT: a cluster has one round at a time; a channel that is not listed is never touched.

mod act;
mod board;
mod judge;
#[cfg(test)]
mod judge_tests;
mod look;
mod position;
mod round;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::HostgroupId;
use tokio::task::JoinSet;

use crate::monitor::Monitor;

pub(crate) use board::Board;
pub(crate) use judge::{Link, Thread, ThreadState};
pub(crate) use look::{is_of_group, link};
use round::Keeping;

/// Keeps channels, for ever. On the monitor's thread.
pub(crate) async fn keep(monitor: &Arc<Monitor>) {
    let mut idle: BTreeMap<HostgroupId, Keeping> = BTreeMap::new();
    let mut rounds: JoinSet<Keeping> = JoinSet::new();
    let mut under_way: BTreeSet<HostgroupId> = BTreeSet::new();
    // Clusters whose roles changed while they were being looked at.
    let mut again: BTreeSet<HostgroupId> = BTreeSet::new();
    let mut due_at = Instant::now();
    loop {
        tokio::select! {
            Some(ended) = rounds.join_next(), if !rounds.is_empty() => match ended {
                Ok(keeping) => {
                    under_way.remove(&keeping.writer);
                    let is_due = keeping.is_moving | again.remove(&keeping.writer);
                    let writer = keeping.writer;
                    idle.insert(writer, keeping);
                    if is_due {
                        begin(monitor, writer, &mut idle, &mut rounds, &mut under_way);
                    }
                }
                Err(e) => {
                    tracing::error!("a round of replication channels has ended: {e}");
                    // The failed round is unknown, so all channels begin again without memory.
                    rounds.abort_all();
                    (rounds, under_way) = (JoinSet::new(), BTreeSet::new());
                }
            },
            () = monitor.channels_due.notified() => due_at = Instant::now(),
            () = tokio::time::sleep_until(due_at.into()) => {
                let (wanted, interval) = monitor.consult(|snapshot, _| {
                    let wanted: BTreeSet<HostgroupId> = if snapshot.vars.monitor_enabled { snapshot.channels.iter().map(|channel| channel.writer).collect() } else { BTreeSet::new() };
                    (wanted, Duration::from_millis(snapshot.vars.replication_channel_check_interval))
                });
                idle.retain(|writer, _| wanted.contains(writer));
                monitor.forget_channels();
                for writer in wanted {
                    if under_way.contains(&writer) {
                        again.insert(writer);
                    } else {
                        begin(monitor, writer, &mut idle, &mut rounds, &mut under_way);
                    }
                }
                due_at = Instant::now() + interval;
            }
        }
    }
}

fn begin(
    monitor: &Arc<Monitor>,
    writer: HostgroupId,
    idle: &mut BTreeMap<HostgroupId, Keeping>,
    rounds: &mut JoinSet<Keeping>,
    under_way: &mut BTreeSet<HostgroupId>,
) {
    let keeping = idle.remove(&writer).unwrap_or_else(|| Keeping::new(writer));
    under_way.insert(writer);
    rounds.spawn(keeping.round(Arc::clone(monitor)));
}
