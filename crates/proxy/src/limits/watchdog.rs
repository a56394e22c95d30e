//! Looks at the process's memory and at its workers, and tells of both.

use crate::limits::overload::{Step, resident, there_is};
use crate::workers::shared::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How often memory and workers are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Looks between two at what memory there is: an operator may change a control group's limit.
const LOOKS_PER_LIMIT: u32 = 100;

/// Counts the process's memory, does what its step says, and tells of both and of workers that are stuck.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut interval = tokio::time::interval(LOOK);
    let (mut round, mut limit, mut told) = (0_u32, None, BTreeSet::new());
    loop {
        interval.tick().await;
        let snapshot = Arc::clone(&shared.in_force.load().snapshot);
        if round.is_multiple_of(LOOKS_PER_LIMIT) {
            limit = there_is();
        }
        round = round.wrapping_add(1);
        shared.memory.configure(snapshot.vars.memory_budget, limit);
        if let Some(step) = resident().and_then(|bytes| shared.memory.count(bytes)) {
            let (used, budget) = (shared.memory.used() >> 20, shared.memory.budget() >> 20);
            tracing::warn!("the process uses {used} MiB of memory, mysql-memory_budget is {budget} MiB: {}", step.words());
        }
        if shared.memory.step() >= Step::Caches {
            shared.cache.flush();
            shared.logs.kept.clear();
        }
        let (now_ms, limit_ms) = (shared.clock.now_ms(), snapshot.vars.stuck_worker_ms);
        let stuck: BTreeMap<usize, u64> = shared.beats.stuck(now_ms, limit_ms).collect();
        for (worker, ms) in stuck.iter().filter(|(worker, _)| !told.contains(*worker)) {
            tracing::warn!("worker {worker} is stuck: it has been busy with one task for {ms} ms");
        }
        for worker in told.iter().filter(|worker| !stuck.contains_key(worker)) {
            tracing::warn!("worker {worker} is no longer stuck");
        }
        told = stuck.into_keys().collect();
    }
}
