//! A worker's memory of the rules' answers. It is limited, and may be cleared at any time without changing an answer.
//!
//! One per worker. It belongs to one [`RuleSet`](crate::RuleSet); for another one it is cleared first. If half of its entries are new, the
//! older half is dropped. Entries that are used meanwhile move to the new half.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::{Outcome, Plan};
use crate::request::ClassKey;

/// Classes of statements remembered, in each half.
const MAX_CLASSES: usize = 16_384;
/// Places of rules in all plans remembered.
const MAX_PLAN_WEIGHT: usize = 1 << 21;
/// Texts remembered, in each half.
const MAX_TEXTS: usize = 1_024;
/// Longest text remembered, bytes.
const MAX_TEXT_LEN: usize = 2_048;

/// The remembered answer for a class of statements.
#[derive(Debug, Clone)]
pub(crate) enum Known {
    /// The answer, whatever the text is.
    Fixed(Arc<Outcome>),
    /// The rules that are left to try on the text.
    Open(Arc<Plan>),
}

#[derive(Debug)]
struct TextEntry {
    text: Box<[u8]>,
    outcome: Arc<Outcome>,
}

/// A worker's memory. See the module.
#[derive(Debug, Default)]
pub struct Memo {
    owner: Option<Arc<()>>,
    pub(crate) hits: Option<Arc<[AtomicU64]>>,
    classes: Halves<ClassKey, Known, MAX_CLASSES>,
    /// Plans in use: most classes have the same few.
    plans: HashSet<Arc<Plan>, foldhash::fast::RandomState>,
    plan_weight: usize,
    /// By class and the text's hash; texts are compared.
    texts: Halves<(ClassKey, u64), Arc<TextEntry>, MAX_TEXTS>,
    hasher: foldhash::fast::RandomState,
    pub(crate) scratch: Scratch,
}

/// Buffers that are kept.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub candidates: Vec<u32>,
    pub walk: Vec<u32>,
}

impl Memo {
    /// An empty memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the entries belong to the rules with this identity.
    pub(crate) fn belongs_to(&self, identity: &Arc<()>) -> bool {
        self.owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, identity))
    }

    /// Forgets everything and begins to serve other rules, whose matches are counted in `hits`.
    pub(crate) fn serve(&mut self, identity: &Arc<()>, hits: Arc<[AtomicU64]>) {
        // The owner is kept alive, so that no other rules can have its address.
        *self = Self { owner: Some(identity.clone()), hits: Some(hits), ..Self::default() };
    }

    /// Counts a match. Only this worker writes this counter.
    pub(crate) fn count(&self, places: &[u32]) {
        let Some(hits) = &self.hits else {
            return;
        };
        for place in places {
            if let Some(counter) = usize::try_from(*place).ok().and_then(|place| hits.get(place)) {
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn class(&mut self, key: &ClassKey) -> Option<Known> {
        self.classes.get(key)
    }

    pub(crate) fn remember_class(&mut self, key: ClassKey, known: Known) {
        self.classes.put(key, known);
    }

    /// The plan that is remembered already, if there is an equal one.
    pub(crate) fn share(&mut self, plan: Plan) -> Arc<Plan> {
        if let Some(same) = self.plans.get(&plan) {
            return same.clone();
        }
        self.plan_weight += plan.weight();
        if self.plan_weight > MAX_PLAN_WEIGHT {
            // The classes hold plans too.
            self.classes = Halves::default();
            self.plans.clear();
            self.plan_weight = plan.weight();
        }
        let plan = Arc::new(plan);
        self.plans.insert(plan.clone());
        plan
    }

    pub(crate) fn text(&mut self, class: &ClassKey, text: &[u8]) -> Option<Arc<Outcome>> {
        if text.len() > MAX_TEXT_LEN {
            return None;
        }
        let key = (*class, self.hasher.hash_one(text));
        let remembered = self.texts.get(&key)?;
        (*remembered.text == *text).then(|| remembered.outcome.clone())
    }

    pub(crate) fn remember_text(&mut self, class: ClassKey, text: &[u8], outcome: Arc<Outcome>) {
        if text.len() > MAX_TEXT_LEN {
            return;
        }
        let key = (class, self.hasher.hash_one(text));
        self.texts.put(key, Arc::new(TextEntry { text: text.into(), outcome }));
    }
}

/// A map in two halves of age, each of `MOST` entries at most.
#[derive(Debug)]
struct Halves<K, V, const MOST: usize> {
    newer: HashMap<K, V, foldhash::fast::RandomState>,
    older: HashMap<K, V, foldhash::fast::RandomState>,
}

impl<K, V, const MOST: usize> Default for Halves<K, V, MOST> {
    fn default() -> Self {
        Self { newer: HashMap::default(), older: HashMap::default() }
    }
}

impl<K: Hash + Eq, V: Clone, const MOST: usize> Halves<K, V, MOST> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.newer.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.older.remove_entry(key)?;
        self.put(key, value.clone());
        Some(value)
    }

    /// Whatever enters the newer half enters here, so neither half grows beyond its limit.
    fn put(&mut self, key: K, value: V) {
        if self.newer.len() >= MOST {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_again_takes_no_more_room() {
        let mut halves = Halves::<u32, u32, 4>::default();
        for round in 0..20 {
            (0..3).for_each(|new| halves.put(round * 3 + new, 0));
            for old in 0..round * 3 {
                halves.get(&old);
            }
            assert!(halves.newer.len() <= 4 && halves.older.len() <= 4, "round {round}");
        }
    }
}
