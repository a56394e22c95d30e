//! The query cache: results that may be given again, one cache for the process, shared by all workers.
//!
//! Only statements for which a rule gives a `cache_ttl` come here. A session, outside of transactions and pins:
//!
//! 1. makes the [`Key`] with [`QueryCache::key`]; None is "not cacheable": run it as ever;
//! 2. asks [`QueryCache::look`]: [`Look::Hit`] is the answer, [`Look::Follow`] waits for another session's fetch and is then
//!    an answer or none, [`Look::Lead`] runs the statement and feeds the reply's bytes to the [`Fill`], [`Look::Off`] runs it;
//! 3. answers with [`Entry::write_reply`], whose bytes go through `Reframe` with [`Entry::caps`] as the server's capabilities;
//! 4. ends a fill with [`Fill::finish`] once the reply is complete; a fill that is dropped releases those who wait.
//!
//! INVARIANTS: the memory of all entries, and of the results under way, never exceeds `query_cache_size_MB` (`budget`). An
//! entry is answered only to a key that is equal byte for byte (`key`), and in the other protocol only where every value
//! has one exact image (`rows`). Locks are held for a look-up or a store, never while converting, copying or waiting.

mod budget;
mod columns;
mod counts;
mod entry;
mod fill;
mod key;
mod params;
mod policy;
mod reply;
mod rows;
mod shard;
mod wording;

#[cfg(test)]
mod tests;

pub use entry::Entry;
pub use fill::{AwaitedFill, Fill};
pub use key::{Asked, AskedExecution, AskedText, Asker, Key, is_cacheable};
pub use policy::{CachePolicy, CacheSettings};
pub use reply::NotCached;
pub use rows::ResultProtocol;

use arc_swap::ArcSwap;
use budget::CacheBudget;
use counts::CacheCounts;
use fill::Role;
use key::Hashing;
use shard::{CacheQuestion, KnownReply, Lookup, Shard};
use sql::Analysis;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parts with a lock of their own.
const SHARDS: usize = 64;

/// See the module.
pub struct QueryCache {
    hashing: Hashing,
    shards: [Mutex<Shard>; SHARDS],
    budget: Arc<CacheBudget>,
    settings: ArcSwap<CacheSettings>,
    counts: CacheCounts,
    /// The shard from which something is evicted next.
    hand: AtomicUsize,
    flights: AtomicU64,
}

/// What [`QueryCache::look`] answers.
pub enum Look {
    /// The answer; it can be written in the form that was asked for.
    Hit(Arc<Entry>),
    /// Run the statement, and feed the reply.
    Lead(Fill),
    /// Another session runs it: wait.
    Follow(AwaitedFill),
    /// Run the statement; the cache has nothing to do with it.
    Off,
}

impl QueryCache {
    /// A cache that holds nothing.
    pub fn new(settings: CacheSettings) -> Arc<Self> {
        Arc::new(Self {
            hashing: Hashing::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
            budget: Arc::new(CacheBudget::new(settings.size_bytes)),
            settings: ArcSwap::from_pointee(settings),
            counts: CacheCounts::default(),
            hand: AtomicUsize::new(0),
            flights: AtomicU64::new(0),
        })
    }

    /// Puts other settings in force; what no longer fits leaves at once.
    pub fn configure(&self, settings: CacheSettings, now_ms: u64) {
        self.budget.set_limit(settings.size_bytes);
        self.settings.store(Arc::new(settings));
        self.make_room(0, now_ms);
    }

    /// False when `query_cache_size_MB` is 0: no key need be made.
    pub fn is_on(&self) -> bool {
        self.budget.limit() > 0
    }

    /// The key of a statement; None when its result is not cacheable.
    pub fn key(&self, asker: &Asker<'_>, asked: &Asked<'_>, analysis: &Analysis) -> Option<Key> {
        self.hashing.key(asker, asked, analysis)
    }

    /// Looks for the result. `now_ms` is the process clock.
    pub fn look(self: &Arc<Self>, key: Key, form: ResultProtocol, policy: CachePolicy, now_ms: u64) -> Look {
        if policy.ttl_ms == 0 || !self.is_on() {
            return Look::Off;
        }
        self.counts.look();
        let (refresh_at, wait_ms) = {
            let settings = self.settings.load();
            (settings.refresh_at(), settings.wait_ms)
        };
        let flight_id = self.flights.fetch_add(1, Ordering::Relaxed);
        let (key, ask) = (Arc::new(key), CacheQuestion { form, policy, now_ms, refresh_at, flight_id });
        match self.find(&key, &ask) {
            Lookup::Hit(entry) => {
                self.counts.answer(&entry);
                Look::Hit(entry)
            }
            Lookup::Lead(landing) => self.lead(key, ask, Role::First { id: flight_id, landing }),
            Lookup::LeadAlone(epoch) => self.lead(key, ask, Role::Alone { epoch }),
            Lookup::Flying(landed) if wait_ms > 0 => {
                Look::Follow(AwaitedFill { cache: Arc::clone(self), landed, form, since_ms: policy.since_ms, wait_ms })
            }
            Lookup::Flying(_) | Lookup::Hopeless | Lookup::Check(_) => Look::Off,
        }
    }

    /// Takes out what has expired. To be called now and then, such as once a second; answers do not depend on it.
    pub fn sweep(&self, now_ms: u64) {
        self.empty(|shard, gone| shard.sweep(now_ms, gone));
    }

    /// `PROXYSQL FLUSH QUERY CACHE`: takes out everything. What is being fetched now will not be stored. Returns how many
    /// entries there were.
    pub fn flush(&self) -> u64 {
        self.empty(Shard::flush)
    }

    /// Names and values for `stats_mysql_global`.
    pub fn values(&self) -> [(&'static str, u64); 8] {
        self.counts.values(&self.budget)
    }

    fn empty(&self, mut take: impl FnMut(&mut Shard, &mut Vec<KnownReply>)) -> u64 {
        let mut gone = Vec::new();
        let mut entries = 0;
        for shard in &self.shards {
            take(&mut lock(shard), &mut gone);
            entries += gone.iter().map(KnownReply::entries).sum::<u64>();
            self.counts.purge(&gone);
            gone.clear();
        }
        entries
    }

    fn find(&self, key: &Arc<Key>, ask: &CacheQuestion) -> Lookup {
        loop {
            let found = self.shard(key).find(key, ask);
            match found {
                // Not under the lock: the verdict is the entry's from now on, so it is asked for once.
                Lookup::Check(entry) => {
                    entry.answers(ask.form);
                }
                found => return found,
            }
        }
    }

    fn lead(self: &Arc<Self>, key: Arc<Key>, ask: CacheQuestion, role: Role) -> Look {
        Fill::begin(self, key, ask, role).map_or(Look::Off, Look::Lead)
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let at = key.shard(SHARDS);
        lock(self.shards.get(at).unwrap_or(&self.shards[0]))
    }

    /// Evicts until `wanted` bytes fit, shard by shard. What readers still hold comes free later, so this stops when it has
    /// let go of enough, and not only when it fits. After two rounds without a find there is nothing left.
    fn make_room(&self, wanted: usize, now_ms: u64) {
        let goal = self.budget.lacks(wanted);
        let (mut released, mut bare) = (0, 0);
        let mut gone = Vec::new();
        while self.budget.lacks(wanted) > 0 && released < goal.saturating_mul(2) && bare <= 2 * SHARDS {
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let Some(shard) = self.shards.get(at) else { return };
            let evicted = lock(shard).evict(now_ms, &mut gone);
            bare = if evicted { 0 } else { bare + 1 };
            released += gone.iter().map(KnownReply::charged).sum::<usize>();
            self.counts.purge(&gone);
            gone.clear();
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
