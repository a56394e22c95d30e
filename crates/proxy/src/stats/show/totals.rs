//! Everything that is one number for the whole process, read at one moment.

use super::pool::{Pooled, every};
use crate::logs::LogCounts;
use crate::stats::ProxyStats;
use crate::stats::collect::{self, Census};
use crate::workers::shared::Shared;
use meter::digest_table::Others;
use meter::prepared::{Side, last_id};
use model::Snapshot;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tikv_jemalloc_ctl::{epoch, stats as jemalloc};

/// See the module.
pub(super) struct Totals {
    /// Counters of all workers.
    pub census: Census,
    /// The servers, those too that serve no more: sums over the process do not shrink.
    pub servers: Vec<Pooled>,
    /// The configuration in force.
    pub snapshot: Arc<Snapshot>,
    /// Since the start, s.
    pub uptime_s: u64,
    /// Client connections now.
    pub clients: u64,
    /// Worker threads.
    pub workers: u64,
    /// Prepared statements.
    pub prepared: PreparedTotals,
    /// Query log.
    pub events: LogCounts,
    /// Logged queries in memory that made room before a dump.
    pub events_made_room: u64,
    /// The slow log.
    pub slow: LogCounts,
    /// Audit log.
    pub audits: LogCounts,
    /// Spans.
    pub traces: traces::Counts,
    /// Digests pushed out of their table.
    pub others: Others,
    /// Bytes of statistics by digest, workers' and the reader's.
    pub digest_bytes: u64,
    /// What the allocator has.
    pub heap: Heap,
    /// What the process has of memory and of its workers' time.
    pub shared: Arc<Shared>,
}

/// Prepared statements: how many times held, and how many of them are different, on each side.
#[derive(Default)]
pub(super) struct PreparedTotals {
    /// Held by clients.
    pub clients: u64,
    /// Different ones of those.
    pub clients_unique: u64,
    /// Prepared on servers.
    pub servers: u64,
    /// Different ones of those.
    pub servers_unique: u64,
    /// Different ones, on any side.
    pub cached: u64,
    /// The largest number given.
    pub last_id: u64,
}

/// What jemalloc has, in bytes. All are 0 where it gives no answer, and small in a test, whose allocator is the system's.
#[derive(Default)]
pub(super) struct Heap {
    /// In use by the program.
    pub allocated: u64,
    /// In pages that hold at least one allocation.
    pub active: u64,
    /// In physical memory, its own records included.
    pub resident: u64,
    /// In mappings that hold allocations or may at once.
    pub mapped: u64,
    /// Its own records.
    pub metadata: u64,
    /// Mapped, but given back to the system.
    pub retained: u64,
}

impl Heap {
    fn read() -> Self {
        Self::ask().unwrap_or_default()
    }

    fn ask() -> tikv_jemalloc_ctl::Result<Self> {
        // All figures are of the last epoch.
        epoch::advance()?;
        Ok(Self {
            allocated: jemalloc::allocated::read()? as u64,
            active: jemalloc::active::read()? as u64,
            resident: jemalloc::resident::read()? as u64,
            mapped: jemalloc::mapped::read()? as u64,
            metadata: jemalloc::metadata::read()? as u64,
            retained: jemalloc::retained::read()? as u64,
        })
    }
}

impl Totals {
    /// Asks the workers.
    pub(super) fn read(stats: &ProxyStats) -> Self {
        let shared = &stats.shared;
        let census = collect::census(shared);
        let (others, reader_bytes) = {
            let digests = stats.digests();
            (digests.others(), digests.bytes() as u64)
        };
        Self {
            digest_bytes: census.digest_bytes + reader_bytes,
            census,
            servers: every(shared),
            snapshot: Arc::clone(&shared.in_force.load().snapshot),
            uptime_s: shared.clock.now_ms() / 1000,
            shared: Arc::clone(shared),
            clients: shared.frontends.load(Ordering::Acquire) as u64,
            workers: shared.mailboxes.len() as u64,
            prepared: prepared(shared),
            events: shared.logs.events.counts(),
            events_made_room: shared.logs.kept.overwritten.load(Ordering::Relaxed),
            slow: shared.logs.slow.counts(),
            audits: shared.logs.audits.counts(),
            traces: shared.traces.counts(),
            others,
            heap: Heap::read(),
        }
    }

    /// The servers that are shown one by one.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Pooled> {
        self.servers.iter().filter(|server| server.is_listed())
    }

    /// A sum over the servers.
    pub(super) fn of_servers(&self, what: impl Fn(&Pooled) -> u64) -> u64 {
        self.servers.iter().map(what).sum()
    }
}

fn prepared(shared: &Shared) -> PreparedTotals {
    let listed = collect::prepared(shared);
    let mut totals = PreparedTotals { last_id: last_id(), ..PreparedTotals::default() };
    let mut unique = [HashSet::new(), HashSet::new(), HashSet::new()];
    for statement in &listed {
        let (clients, servers) = (statement.holders(Side::Client), statement.holders(Side::Server));
        totals.clients += u64::from(clients);
        totals.servers += u64::from(servers);
        for (set, is_member) in unique.iter_mut().zip([clients > 0, servers > 0, true]) {
            if is_member {
                set.insert((&statement.user, &statement.key));
            }
        }
    }
    [totals.clients_unique, totals.servers_unique, totals.cached] = unique.map(|set| set.len() as u64);
    totals
}
