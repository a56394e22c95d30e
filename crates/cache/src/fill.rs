//! One session fetches a result for the cache ([`Fill`]), others wait for it ([`AwaitedFill`]).
//!
//! A fill is fed the server's bytes as they pass to the client, and holds them only up to the limit. However it ends, those
//! who wait are released: with the result when it is finished, with nothing when it is refused or dropped.

use super::QueryCache;
use super::budget::Permit;
use super::entry::Entry;
use super::key::Key;
use super::reply::{Captured, NotCached};
use super::rows::ResultProtocol;
use super::shard::{CacheQuestion, Fetched, KnownReply};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use wire::flags::Capabilities;

/// What a slot takes besides key and result: its places in the tables, the two shared allocations, a flight.
const OVERHEAD: usize = 384;
/// The parts of a reply that are cut away (EOF packets, the end with its session state) may exceed the limit by this.
const ENDS: usize = 4096;
/// Least step in which the capture grows.
const STEP: usize = 2048;
/// A result that could not be kept is remembered for its `cache_ttl`, but not longer than this, ms.
const MAX_REFUSAL_MS: u64 = 5_000;

/// What an allocation of so many bytes is charged: allocators round up, by an eighth and more.
fn charge(bytes: usize) -> usize {
    bytes.saturating_add(bytes / 8)
}

/// Whose turn it is.
pub(crate) enum Role {
    /// The first: others wait.
    First {
        /// Of the flight.
        id: u64,
        /// Wakes those who wait; by a drop, too.
        landing: watch::Sender<Fetched>,
    },
    /// Nobody waits.
    Alone {
        /// Of the shard, when it began.
        epoch: u64,
    },
}

/// A result under way into the cache. Dropping it gives up.
pub struct Fill {
    cache: Arc<QueryCache>,
    key: Arc<Key>,
    ask: CacheQuestion,
    /// None once the flight is over.
    role: Option<Role>,
    bytes: Vec<u8>,
    permit: Permit,
    refused: Option<NotCached>,
}

impl Fill {
    /// None when there is no memory even for the key.
    pub(super) fn begin(cache: &Arc<QueryCache>, key: Arc<Key>, ask: CacheQuestion, role: Role) -> Option<Self> {
        let permit = cache.budget.permit();
        let mut fill = Self { cache: Arc::clone(cache), key, ask, role: Some(role), bytes: Vec::new(), permit, refused: None };
        fill.take(0).then_some(fill)
    }

    /// Takes note of bytes of the reply, in order, as the server sent them; sequence ids do not matter. Once it is clear that
    /// the result will not be kept, this does nothing.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.refused.is_some() {
            return;
        }
        let wanted = self.bytes.len().saturating_add(bytes.len());
        if wanted > self.cache.settings.load().max_entry_bytes.saturating_add(ENDS) {
            self.refuse(NotCached::TooLarge, self.ask.now_ms);
        } else if !self.make_place(wanted) {
            self.refuse(NotCached::NoRoom, self.ask.now_ms);
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The statement is sent again: what was fed is forgotten.
    pub fn restart(&mut self) {
        self.bytes.clear();
    }

    /// The reply is complete: keeps it, and hands it to those who wait. `from` is what was agreed with the server.
    ///
    /// # Errors
    /// [`NotCached`] when it is not kept. The client has its reply all the same.
    pub fn finish(mut self, from: Capabilities, now_ms: u64) -> Result<Arc<Entry>, NotCached> {
        if let Some(refusal) = self.refused {
            return Err(refusal);
        }
        match self.close(from, now_ms) {
            Ok(entry) => self.publish(entry),
            Err(refusal) => {
                self.refuse(refusal, now_ms);
                Err(refusal)
            }
        }
    }

    fn make_place(&mut self, wanted: usize) -> bool {
        let capacity = self.bytes.capacity();
        if wanted <= capacity {
            return true;
        }
        let larger = wanted.max(capacity + (capacity / 2).max(STEP));
        if self.take(larger) {
            self.bytes.reserve_exact(larger - self.bytes.len());
            return true;
        }
        false
    }

    /// Takes what a capture of this size costs from the budget; room is made by eviction.
    fn take(&mut self, capacity: usize) -> bool {
        let total = self.cost(capacity);
        let more = total.saturating_sub(self.permit.bytes());
        if self.permit.grow(more) {
            return true;
        }
        self.cache.make_room(more, self.ask.now_ms);
        self.permit.grow(more)
    }

    fn cost(&self, bytes: usize) -> usize {
        OVERHEAD + charge(self.key.len()) + charge(bytes)
    }

    /// The entry, if the reply may be kept.
    fn close(&mut self, from: Capabilities, now_ms: u64) -> Result<Arc<Entry>, NotCached> {
        let settings = self.cache.settings.load();
        let captured = Captured::read(std::mem::take(&mut self.bytes), from)?;
        if captured.packets.len() > settings.max_entry_bytes {
            return Err(NotCached::TooLarge);
        }
        if captured.warnings > 0 && !settings.keeps_warnings {
            return Err(NotCached::Warnings);
        }
        if captured.rows == 0 && !self.ask.policy.keeps_empty.unwrap_or(settings.keeps_empty) {
            return Err(NotCached::Empty);
        }
        let mut permit = std::mem::replace(&mut self.permit, self.cache.budget.permit());
        permit.shrink_to(self.cost(captured.packets.len()));
        let expires_ms = now_ms.saturating_add(self.ask.policy.ttl_ms);
        Ok(Arc::new(Entry::new(captured, self.ask.form, (self.ask.now_ms, now_ms, expires_ms), permit)))
    }

    fn publish(mut self, entry: Arc<Entry>) -> Result<Arc<Entry>, NotCached> {
        let role = self.role.take();
        let stored = self.put(role.as_ref(), KnownReply::Entry(Arc::clone(&entry)));
        // Those who wait asked before a flush that may have come in between, so they get the result in any case.
        if let Some(Role::First { landing, .. }) = role {
            landing.send_replace(Some(Arc::clone(&entry)));
        }
        if stored { Ok(entry) } else { Err(NotCached::Flushed) }
    }

    /// Ends the flight, and remembers it where that saves others a wait in vain.
    fn refuse(&mut self, refusal: NotCached, now_ms: u64) {
        self.refused = Some(refusal);
        self.bytes = Vec::new();
        let mut permit = std::mem::replace(&mut self.permit, self.cache.budget.permit());
        permit.shrink_to(self.cost(0));
        let role = self.role.take();
        match refusal {
            NotCached::Error(_) | NotCached::NoRoom | NotCached::Flushed | NotCached::InTransaction => self.land(role.as_ref()),
            _ => {
                let until_ms = now_ms.saturating_add(self.ask.policy.ttl_ms.min(MAX_REFUSAL_MS));
                self.put(role.as_ref(), KnownReply::Refused { until_ms, is_hopeless: refusal == NotCached::TooLarge, permit });
            }
        }
    }

    /// Stores what came of it, unless the cache was flushed or shrunk meanwhile.
    fn put(&self, role: Option<&Role>, held: KnownReply) -> bool {
        let mut gone = Vec::new();
        let stored = {
            let mut shard = self.cache.shard(&self.key);
            let is_current = match role {
                Some(Role::First { id, .. }) => shard.land(&self.key, *id),
                Some(Role::Alone { epoch }) => shard.epoch() == *epoch,
                None => false,
            };
            let stored = is_current && self.cache.budget.lacks(0) == 0;
            if stored {
                if let KnownReply::Entry(entry) = &held {
                    self.cache.counts.store(entry);
                }
                shard.put(Arc::clone(&self.key), self.ask.form, held, &mut gone);
            }
            stored
        };
        self.cache.counts.purge(&gone);
        stored
    }

    fn land(&self, role: Option<&Role>) {
        if let Some(Role::First { id, .. }) = role {
            self.cache.shard(&self.key).land(&self.key, *id);
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let role = self.role.take();
        self.land(role.as_ref());
    }
}

/// A result that another session is fetching.
pub struct AwaitedFill {
    pub(super) cache: Arc<QueryCache>,
    pub(super) landed: watch::Receiver<Fetched>,
    pub(super) form: ResultProtocol,
    /// What was asked for before that is of no use.
    pub(super) since_ms: u64,
    pub(super) wait_ms: u64,
}

impl AwaitedFill {
    /// Waits for it, at most `query_cache_wait_ms`. None: ask a server, without the cache. May be dropped at any time.
    pub async fn wait(mut self) -> Option<Arc<Entry>> {
        let limit = Duration::from_millis(self.wait_ms);
        let entry = match tokio::time::timeout(limit, self.landed.wait_for(Option::is_some)).await {
            Ok(Ok(fetched)) => fetched.clone()?,
            _ => return None,
        };
        if !entry.is_since(self.since_ms) || !entry.answers(self.form) {
            return None;
        }
        self.cache.counts.answer(&entry);
        Some(entry)
    }
}
