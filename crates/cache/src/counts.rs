//! What the cache counts, under the names of `stats_mysql_global`.

use super::budget::CacheBudget;
use super::entry::Entry;
use super::shard::KnownReply;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. INVARIANT: results stored less results purged are the results held.
#[derive(Debug, Default)]
pub(crate) struct CacheCounts {
    looked: AtomicU64,
    answered: AtomicU64,
    stored: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    purged: AtomicU64,
    entries: AtomicU64,
}

impl CacheCounts {
    pub(crate) fn look(&self) {
        add(&self.looked, 1);
    }

    pub(crate) fn answer(&self, entry: &Entry) {
        add(&self.answered, 1);
        add(&self.bytes_out, entry.packet_bytes() as u64);
    }

    pub(crate) fn store(&self, entry: &Entry) {
        add(&self.stored, 1);
        add(&self.entries, 1);
        add(&self.bytes_in, entry.packet_bytes() as u64);
    }

    /// These left: replaced, expired, evicted or flushed.
    pub(crate) fn purge(&self, gone: &[KnownReply]) {
        let entries = gone.iter().map(KnownReply::entries).sum();
        add(&self.purged, entries);
        self.entries.fetch_sub(entries, Ordering::Relaxed);
    }

    /// Names and values, in the order of `stats_mysql_global`.
    pub(crate) fn values(&self, budget: &CacheBudget) -> [(&'static str, u64); 8] {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("Query_Cache_Memory_bytes", budget.used() as u64),
            ("Query_Cache_count_GET", read(&self.looked)),
            ("Query_Cache_count_GET_OK", read(&self.answered)),
            ("Query_Cache_count_SET", read(&self.stored)),
            ("Query_Cache_bytes_IN", read(&self.bytes_in)),
            ("Query_Cache_bytes_OUT", read(&self.bytes_out)),
            ("Query_Cache_Purged", read(&self.purged)),
            ("Query_Cache_Entries", read(&self.entries)),
        ]
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
