//! Statistics by digest: what one worker counts, and what the reader adds up from all of them.
//!
//! A worker's [`DigestTable`] is plain memory that one thread touches: a known digest costs one lookup and a few adds.
//! The reader takes the counts out in slices, leaving the keys, and adds them to its own [`DigestTotals`]. Both are
//! bounded; what is pushed out is counted as "others". INVARIANT: totals + what workers hold + others = all statements.

use super::spread::Spread;
use crate::digest::Digest;
use hashbrown::{HashMap, HashTable};
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

/// The hostgroup of what the proxy answered itself.
pub const NO_HOSTGROUP: i64 = -1;

/// One row of `stats_mysql_query_digest`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct DigestKey {
    /// Hostgroup, or [`NO_HOSTGROUP`].
    pub hostgroup: i64,
    /// The session's schema; empty for none.
    pub schema: Box<[u8]>,
    /// The user.
    pub user: Box<str>,
    /// The client, where `query_digests_track_hostname` is on.
    pub client: Option<IpAddr>,
    /// The digest.
    pub digest: Arc<Digest>,
}

impl DigestKey {
    /// Bytes that it takes, with its share of the tables that it is in.
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<DigestSlot>() + self.schema.len() + self.user.len() + self.digest.text.len()
    }
}

/// A key as the hot path has it: nothing is owned. `statement` is the analysis' key, which stands for the digest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyParts<'a> {
    /// Hostgroup, or [`NO_HOSTGROUP`].
    pub hostgroup: i64,
    /// The session's schema; empty for none.
    pub schema: &'a [u8],
    /// The user.
    pub user: &'a str,
    /// The client, where it is tracked.
    pub client: Option<IpAddr>,
    /// Key of the analysis.
    pub statement: u64,
}

impl KeyParts<'_> {
    fn owned(&self, digest: Arc<Digest>) -> Arc<DigestKey> {
        Arc::new(DigestKey { hostgroup: self.hostgroup, schema: self.schema.into(), user: self.user.into(), client: self.client, digest })
    }
}

/// What is summed up for one key. Times are process clock, ms; durations are us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sums {
    /// Statements.
    pub count: u64,
    /// Their durations.
    pub sum_us: u64,
    /// The shortest.
    pub min_us: u64,
    /// The longest.
    pub max_us: u64,
    /// Rows changed.
    pub rows_affected: u64,
    /// Rows sent.
    pub rows_sent: u64,
    /// When the first one ended.
    pub first_ms: u64,
    /// When the last one ended.
    pub last_ms: u64,
}

impl Sums {
    /// Those of one statement: how long it took (us), its rows, when it ended (process clock, ms).
    pub fn one(time_us: u64, rows_affected: u64, rows_sent: u64, now_ms: u64) -> Self {
        Self { count: 1, sum_us: time_us, min_us: time_us, max_us: time_us, rows_affected, rows_sent, first_ms: now_ms, last_ms: now_ms }
    }

    /// What was summed up since `earlier`. Extremes and times are those of all statements.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            sum_us: self.sum_us.saturating_sub(earlier.sum_us),
            rows_affected: self.rows_affected.saturating_sub(earlier.rows_affected),
            rows_sent: self.rows_sent.saturating_sub(earlier.rows_sent),
            ..*self
        }
    }

    /// Adds what `other` summed up.
    pub fn add(&mut self, other: &Self) {
        if self.count == 0 {
            *self = *other;
        } else if other.count > 0 {
            self.count += other.count;
            self.sum_us = self.sum_us.saturating_add(other.sum_us);
            self.min_us = self.min_us.min(other.min_us);
            self.max_us = self.max_us.max(other.max_us);
            self.rows_affected = self.rows_affected.saturating_add(other.rows_affected);
            self.rows_sent = self.rows_sent.saturating_add(other.rows_sent);
            self.first_ms = self.first_ms.min(other.first_ms);
            self.last_ms = self.last_ms.max(other.last_ms);
        }
    }
}

/// What was pushed out of a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Keys pushed out.
    pub keys: u64,
    /// Statements that had been counted for them and were not read.
    pub statements: u64,
}

impl Others {
    /// Adds what another table pushed out.
    pub fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.statements += other.statements;
    }
}

/// How much a table may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Keys.
    pub keys: usize,
    /// Bytes.
    pub bytes: usize,
    /// Whether it is counted how durations are spread.
    pub spreads: bool,
}

/// A key with what was counted since it was last read.
pub struct Counted {
    /// The key.
    pub key: Arc<DigestKey>,
    /// Its sums.
    pub sums: Sums,
    /// How durations were spread, if that was counted.
    pub spread: Option<Box<Spread>>,
}

/// So many statements of a key come before their durations are spread: a percentile of fewer says nothing.
pub(crate) const SPREAD_FROM: u8 = 16;

struct DigestSlot {
    hash: u64,
    statement: u64,
    key: Arc<DigestKey>,
    unread: Sums,
    /// What is unread of it is counted; the memory stays.
    spread: Option<Box<Spread>>,
    /// Statements, up to [`SPREAD_FROM`].
    seen: u8,
    /// Used since the hand of the clock last passed.
    used: bool,
    command: u8,
}

impl DigestSlot {
    fn is(&self, parts: &KeyParts<'_>) -> bool {
        let key = &*self.key;
        self.statement == parts.statement
            && key.hostgroup == parts.hostgroup
            && key.client == parts.client
            && *key.user == *parts.user
            && *key.schema == *parts.schema
    }

    fn bytes(&self) -> usize {
        self.key.bytes() + spread_bytes(self.spread.as_deref())
    }

    /// What was counted since this was last asked; the key stays.
    fn take(&mut self) -> Counted {
        let spread = self.spread.as_mut().filter(|spread| !spread.is_empty());
        let spread = spread.map(|spread| Box::new(std::mem::take(&mut **spread)));
        Counted { key: Arc::clone(&self.key), sums: std::mem::take(&mut self.unread), spread }
    }
}

fn spread_bytes(spread: Option<&Spread>) -> usize {
    spread.map_or(0, |_| size_of::<Spread>())
}

/// See the module.
pub struct DigestTable {
    slots: Vec<DigestSlot>,
    index: HashTable<usize>,
    hasher: foldhash::fast::RandomState,
    bounds: Bounds,
    bytes: usize,
    hand: usize,
    others: Others,
    /// Counts under texts that are made otherwise now.
    retired: Vec<Counted>,
}

impl DigestTable {
    /// An empty table.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            slots: Vec::new(),
            index: HashTable::new(),
            hasher: foldhash::fast::RandomState::default(),
            bounds,
            bytes: 0,
            hand: 0,
            others: Others::default(),
            retired: Vec::new(),
        }
    }

    fn hash(&self, parts: &KeyParts<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(parts.statement);
        hasher.write_i64(parts.hostgroup);
        hasher.write(parts.schema);
        hasher.write(parts.user.as_bytes());
        if let Some(IpAddr::V4(client)) = parts.client {
            hasher.write_u32(client.to_bits());
        } else if let Some(IpAddr::V6(client)) = parts.client {
            hasher.write_u128(client.to_bits());
        }
        hasher.finish()
    }

    /// Counts a statement whose key is known; answers its command class. None when the key is new.
    pub(crate) fn count(&mut self, parts: &KeyParts<'_>, one: &Sums) -> Option<u8> {
        let hash = self.hash(parts);
        let at = *self.index.find(hash, |at| self.slots.get(*at).is_some_and(|slot| slot.is(parts)))?;
        let slot = self.slots.get_mut(at)?;
        slot.unread.add(one);
        slot.used = true;
        match &mut slot.spread {
            Some(spread) => spread.record(one.sum_us),
            None if !self.bounds.spreads => {}
            None if slot.seen < SPREAD_FROM => slot.seen += 1,
            // Once for each key, if there is room.
            None if self.bytes + size_of::<Spread>() <= self.bounds.bytes => {
                self.bytes += size_of::<Spread>();
                slot.spread.insert(Box::default()).record(one.sum_us);
            }
            None => {}
        }
        Some(slot.command)
    }

    /// Counts the first statement of a key.
    pub(crate) fn insert(&mut self, parts: &KeyParts<'_>, digest: Arc<Digest>, command: u8, one: Sums) {
        let key = parts.owned(digest);
        if key.bytes() > self.bounds.bytes || self.bounds.keys == 0 {
            return self.others.add(Others { keys: 1, statements: 1 });
        }
        let hash = self.hash(parts);
        while self.slots.len() >= self.bounds.keys || self.bytes + key.bytes() > self.bounds.bytes {
            self.push_one_out();
        }
        self.bytes += key.bytes();
        self.slots.push(DigestSlot { hash, statement: parts.statement, key, unread: one, spread: None, seen: 1, used: true, command });
        let (slots, at) = (&self.slots, self.slots.len() - 1);
        self.index.insert_unique(hash, at, |at| slots.get(*at).map_or(0, |slot| slot.hash));
    }

    /// Pushes out a key that was not used since the hand last came by.
    fn push_one_out(&mut self) {
        loop {
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            match self.slots.get_mut(self.hand) {
                None => return,
                Some(slot) if slot.used => slot.used = false,
                Some(_) => break,
            }
        }
        let gone = self.remove(self.hand);
        self.others.add(Others { keys: 1, statements: gone.unread.count });
    }

    /// Takes a slot out; the last one takes its place.
    fn remove(&mut self, at: usize) -> DigestSlot {
        let gone = self.slots.swap_remove(at);
        self.bytes -= gone.bytes().min(self.bytes);
        if let Ok(entry) = self.index.find_entry(gone.hash, |i| *i == at) {
            entry.remove();
        }
        if let Some(moved) = self.slots.get(at)
            && let Some(i) = self.index.find_mut(moved.hash, |i| *i == self.slots.len())
        {
            *i = at;
        }
        gone
    }

    /// Takes the counts of up to `n` keys out; the keys stay. Answers where to go on; None at the end.
    pub fn take(&mut self, from: usize, n: usize) -> (Vec<Counted>, Option<usize>) {
        if !self.retired.is_empty() {
            let rest = self.retired.len().saturating_sub(n);
            let taken = self.retired.split_off(rest);
            if rest == 0 {
                self.retired = Vec::new();
            }
            return (taken, Some(from));
        }
        let end = from.saturating_add(n).min(self.slots.len());
        let slots = self.slots.get_mut(from..end).unwrap_or_default().iter_mut().filter(|slot| slot.unread.count > 0);
        let taken = slots.map(DigestSlot::take).collect();
        (taken, (end < self.slots.len()).then_some(end))
    }

    /// What was pushed out since this was last asked.
    pub fn take_others(&mut self) -> Others {
        std::mem::take(&mut self.others)
    }

    /// Texts are made otherwise from here on: what was counted stays to be read, under the old ones.
    pub(crate) fn retire(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        self.index.clear();
        (self.bytes, self.hand) = (0, 0);
        for mut slot in slots.into_iter().filter(|slot| slot.unread.count > 0) {
            if self.retired.len() < self.bounds.keys {
                self.retired.push(slot.take())
            } else {
                self.others.add(Others { keys: 1, statements: slot.unread.count })
            }
        }
    }

    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        for slot in self.slots.iter_mut().filter(|_| !bounds.spreads) {
            self.bytes -= spread_bytes(slot.spread.take().as_deref()).min(self.bytes);
        }
        while !self.slots.is_empty() && (self.slots.len() > bounds.keys || self.bytes > bounds.bytes) {
            self.push_one_out();
        }
    }

    /// Bytes that its keys and the table itself take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The reader's sums of all workers.
#[derive(Default)]
pub struct DigestTotals {
    rows: HashMap<Arc<DigestKey>, (Sums, Option<Box<Spread>>), foldhash::fast::RandomState>,
    bytes: usize,
    others: Others,
    cleared_ms: Option<u64>,
}

impl DigestTotals {
    /// Adds what a worker counted; when there is too much, the rows that were used longest ago go.
    pub fn add(&mut self, Counted { key, sums, spread }: Counted, bounds: Bounds) {
        let bytes = key.bytes();
        let spread = spread.filter(|_| bounds.spreads);
        match self.rows.entry(key) {
            hashbrown::hash_map::Entry::Occupied(mut row) => {
                let (mine, known) = row.get_mut();
                mine.add(&sums);
                match (known, spread) {
                    (Some(known), Some(spread)) => known.merge(&spread),
                    (known @ None, Some(spread)) => {
                        self.bytes += size_of::<Spread>();
                        *known = Some(spread);
                    }
                    (_, None) => {}
                }
            }
            hashbrown::hash_map::Entry::Vacant(row) => {
                self.bytes += bytes + spread_bytes(spread.as_deref());
                row.insert((sums, spread));
            }
        }
        if self.rows.len() > bounds.keys || self.bytes > bounds.bytes {
            self.push_out(bounds);
        }
    }

    /// Pushes out an eighth more than must go, so that this is rare.
    fn push_out(&mut self, bounds: Bounds) {
        let mut by_age: Vec<_> = self.rows.iter().map(|(key, (sums, _))| (sums.last_ms, sums.count, Arc::clone(key))).collect();
        by_age.sort_unstable_by_key(|(last_ms, count, _)| (*last_ms, *count));
        let (keys, bytes) = (bounds.keys - bounds.keys / 8, bounds.bytes - bounds.bytes / 8);
        for (_, count, key) in by_age {
            if self.rows.len() <= keys && self.bytes <= bytes {
                break;
            }
            let spread = self.rows.remove(&key).and_then(|(_, spread)| spread);
            self.bytes -= (key.bytes() + spread_bytes(spread.as_deref())).min(self.bytes);
            self.others.add(Others { keys: 1, statements: count });
        }
    }

    /// Adds what workers pushed out.
    pub fn add_others(&mut self, others: Others) {
        self.others.add(others);
    }

    /// The rows, in no order.
    pub fn rows(&self) -> impl Iterator<Item = (&DigestKey, &Sums, Option<&Spread>)> {
        self.rows.iter().map(|(key, (sums, spread))| (&**key, sums, spread.as_deref()))
    }

    /// Begins anew, at this time of the process clock; what was pushed out stays counted.
    pub fn clear(&mut self, now_ms: u64) {
        drop(self.take(now_ms));
    }

    /// The same. Returns the rows until now, for [`Self::put_back`].
    pub fn take(&mut self, now_ms: u64) -> Self {
        let (rows, bytes) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.bytes));
        Self { rows, bytes, others: Others::default(), cleared_ms: self.cleared_ms.replace(now_ms) }
    }

    /// Adds the rows that [`Self::take`] took.
    pub fn put_back(&mut self, taken: Self, bounds: Bounds) {
        self.cleared_ms = taken.cleared_ms;
        for (key, (sums, spread)) in taken.rows {
            self.add(Counted { key, sums, spread }, bounds);
        }
    }

    /// When it last began anew: process clock, ms.
    pub fn cleared_ms(&self) -> Option<u64> {
        self.cleared_ms
    }

    /// What was pushed out since the start.
    pub fn others(&self) -> Others {
        self.others
    }

    /// Bytes that its keys and the table itself take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
#[path = "digest_table_tests.rs"]
mod tests;
