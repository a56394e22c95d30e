//! One part of the cache, under one lock: its entries, their order of eviction, and who is fetching what.
//!
//! Decisions only: nothing here waits, copies a result or converts one. What leaves is handed to the caller, who drops it
//! after the lock. Eviction is a clock: a slot that was used since the hand last passed gets another round.
//!
//! INVARIANT: `ring` names each slot once, and nothing else.

use super::budget::Permit;
use super::entry::{Crossing, Entry};
use super::key::Key;
use super::policy::CachePolicy;
use super::rows::ResultProtocol;
use std::collections::hash_map::Entry as Place;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;

type Map<V> = HashMap<Arc<Key>, V, foldhash::fast::FixedState>;

/// What a fetch ends with; None until then.
pub(crate) type Fetched = Option<Arc<Entry>>;

/// What is remembered of a statement in one protocol.
#[derive(Debug)]
pub(crate) enum KnownReply {
    /// Its result.
    Entry(Arc<Entry>),
    /// Its last result could not be kept: until then nobody waits for the next one.
    Refused {
        /// When that is forgotten, ms.
        until_ms: u64,
        /// The next one is not worth reading either: it was too large.
        is_hopeless: bool,
        /// For the memory of the slot.
        permit: Permit,
    },
}

impl KnownReply {
    fn is_expired(&self, now_ms: u64) -> bool {
        match self {
            Self::Entry(entry) => entry.is_expired(now_ms),
            Self::Refused { until_ms, .. } => now_ms >= *until_ms,
        }
    }

    /// How many results this is.
    pub(crate) fn entries(&self) -> u64 {
        u64::from(matches!(self, Self::Entry(_)))
    }

    /// Bytes of the budget that it takes.
    pub(crate) fn charged(&self) -> usize {
        match self {
            Self::Entry(entry) => entry.charged(),
            Self::Refused { permit, .. } => permit.bytes(),
        }
    }
}

/// One statement's slot.
#[derive(Debug, Default)]
struct CacheSlot {
    text: Option<KnownReply>,
    binary: Option<KnownReply>,
    /// Since the hand last passed.
    is_used: bool,
}

impl CacheSlot {
    fn held(&self, form: ResultProtocol) -> Option<&KnownReply> {
        match form {
            ResultProtocol::Text => self.text.as_ref(),
            ResultProtocol::Binary => self.binary.as_ref(),
        }
    }

    fn place(&mut self, form: ResultProtocol) -> &mut Option<KnownReply> {
        match form {
            ResultProtocol::Text => &mut self.text,
            ResultProtocol::Binary => &mut self.binary,
        }
    }

    fn fresh(&self, form: ResultProtocol, ask: &CacheQuestion) -> Option<&Arc<Entry>> {
        match self.held(form) {
            Some(KnownReply::Entry(entry)) if entry.is_fresh(ask.policy, ask.now_ms) => Some(entry),
            _ => None,
        }
    }

    fn is_expired(&self, now_ms: u64) -> bool {
        let expired = |held: &Option<KnownReply>| held.as_ref().is_none_or(|held| held.is_expired(now_ms));
        expired(&self.text) && expired(&self.binary)
    }

    fn leave(self, out: &mut Vec<KnownReply>) {
        out.extend(self.text.into_iter().chain(self.binary));
    }
}

/// A fetch in progress that others may wait for.
struct Flight {
    id: u64,
    landed: watch::Receiver<Fetched>,
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheQuestion {
    /// The protocol of the answer.
    pub form: ResultProtocol,
    /// The rule's words.
    pub policy: CachePolicy,
    /// Now, ms.
    pub now_ms: u64,
    /// Share of an entry's life after which it is refreshed, percent.
    pub refresh_at: Option<u64>,
    /// Names the flight that may begin.
    pub flight_id: u64,
}

/// What a shard answers.
pub(crate) enum Lookup {
    /// This entry answers.
    Hit(Arc<Entry>),
    /// This entry would do if it can be given in the protocol that is wanted: find out ([`Entry::answers`]) and ask again.
    Check(Arc<Entry>),
    /// Somebody fetches it.
    Flying(watch::Receiver<Fetched>),
    /// Fetch it; others wait for the sender.
    Lead(watch::Sender<Fetched>),
    /// Fetch it; nobody waits. Store it only while [`Shard::epoch`] is still this.
    LeadAlone(u64),
    /// Do not fetch it for the cache.
    Hopeless,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Shard {
    slots: Map<CacheSlot>,
    ring: VecDeque<Arc<Key>>,
    flights: Map<Flight>,
    /// Counts flushes.
    epoch: u64,
}

impl Shard {
    /// Looks for an answer; begins a flight when there is none.
    pub(crate) fn find(&mut self, key: &Arc<Key>, ask: &CacheQuestion) -> Lookup {
        let flies = self.flights.contains_key(key);
        let (known, alone) = match self.slots.get_mut(key) {
            Some(slot) => {
                slot.is_used = true;
                (slot.answer(ask), slot.remembers_refusal(ask))
            }
            None => (None, None),
        };
        match known {
            Some(Lookup::Hit(entry)) if !flies && ask.refresh_at.is_some_and(|at| entry.is_due(ask.policy.ttl_ms, at, ask.now_ms)) => {
                self.take_off(key, ask.flight_id)
            }
            Some(found) => found,
            None => match (self.flights.get(key), alone) {
                (_, Some(true)) => Lookup::Hopeless,
                (_, Some(false)) => Lookup::LeadAlone(self.epoch),
                (Some(flight), None) => Lookup::Flying(flight.landed.clone()),
                (None, None) => self.take_off(key, ask.flight_id),
            },
        }
    }

    fn take_off(&mut self, key: &Arc<Key>, id: u64) -> Lookup {
        let (sender, landed) = watch::channel(None);
        self.flights.insert(Arc::clone(key), Flight { id, landed });
        Lookup::Lead(sender)
    }

    /// Ends a flight; false when it is not known any more.
    pub(crate) fn land(&mut self, key: &Key, id: u64) -> bool {
        let is_it = self.flights.get(key).is_some_and(|flight| flight.id == id);
        if is_it {
            self.flights.remove(key);
        }
        is_it
    }

    /// Counts flushes: what was begun before one must not be stored after it.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Remembers something in place of what was held; that goes to `out`.
    pub(crate) fn put(&mut self, key: Arc<Key>, form: ResultProtocol, held: KnownReply, out: &mut Vec<KnownReply>) {
        let slot = match self.slots.entry(key) {
            Place::Occupied(place) => place.into_mut(),
            Place::Vacant(place) => {
                self.ring.push_back(Arc::clone(place.key()));
                place.insert(CacheSlot::default())
            }
        };
        out.extend(slot.place(form).replace(held));
    }

    /// Takes out the slot at which the clock's hand stops. False when it went round and found used slots only: their marks
    /// are gone now, so in the next round it stops unless they are used again.
    pub(crate) fn evict(&mut self, now_ms: u64, out: &mut Vec<KnownReply>) -> bool {
        for _ in 0..self.ring.len() {
            let Some(key) = self.ring.pop_front() else { return false };
            match self.slots.get_mut(&key) {
                Some(slot) if slot.is_used && !slot.is_expired(now_ms) => {
                    slot.is_used = false;
                    self.ring.push_back(key);
                }
                _ => {
                    if let Some(slot) = self.slots.remove(&key) {
                        slot.leave(out);
                    }
                    self.shrink();
                    return true;
                }
            }
        }
        false
    }

    /// Takes out what nobody can be answered with any more.
    pub(crate) fn sweep(&mut self, now_ms: u64, out: &mut Vec<KnownReply>) {
        let before = self.slots.len();
        for slot in self.slots.extract_if(|_, slot| slot.is_expired(now_ms)).map(|(_, slot)| slot) {
            slot.leave(out);
        }
        if self.slots.len() < before {
            let slots = &self.slots;
            self.ring.retain(|key| slots.contains_key(key));
            self.shrink();
        }
    }

    /// Takes out everything; who is fetching now fetches for those only who wait already.
    pub(crate) fn flush(&mut self, out: &mut Vec<KnownReply>) {
        self.epoch += 1;
        self.flights = Map::default();
        self.ring = VecDeque::new();
        for slot in std::mem::take(&mut self.slots).into_values() {
            slot.leave(out);
        }
    }

    /// Gives back tables that are mostly empty, so that what they take stays within what entries are charged.
    fn shrink(&mut self) {
        let wanted = self.slots.len() * 2;
        if self.slots.capacity() > 64 && self.slots.capacity() > wanted * 2 {
            self.slots.shrink_to(wanted);
            self.ring.shrink_to(wanted);
        }
    }
}

impl CacheSlot {
    /// The entry that answers, in its own protocol first.
    fn answer(&self, ask: &CacheQuestion) -> Option<Lookup> {
        if let Some(entry) = self.fresh(ask.form, ask) {
            return Some(Lookup::Hit(Arc::clone(entry)));
        }
        let entry = self.fresh(ask.form.other(), ask)?;
        match entry.crossing() {
            Crossing::Exact => Some(Lookup::Hit(Arc::clone(entry))),
            Crossing::Unknown => Some(Lookup::Check(Arc::clone(entry))),
            Crossing::Apart => None,
        }
    }

    /// Whether the last result in this protocol was refused a while ago, and how.
    fn remembers_refusal(&self, ask: &CacheQuestion) -> Option<bool> {
        match self.held(ask.form) {
            Some(KnownReply::Refused { until_ms, is_hopeless, .. }) if ask.now_ms < *until_ms => Some(*is_hopeless),
            _ => None,
        }
    }
}
