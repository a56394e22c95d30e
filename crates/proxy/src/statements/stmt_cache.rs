//! Statements prepared on one backend: least recently used ones are closed when there are too many.

use cache::AskedText;
use foldhash::fast::FixedState;
use meter::prepared::{Holder, Listed, Side};
use serde::{Deserialize, Serialize};
use session_state::statement_key::{Meaning, StatementKey};
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A prepared statement as the query cache knows it.
pub(crate) fn asked(key: &StatementKey) -> AskedText<'_> {
    AskedText { text: &key.text, schema: key.schema.as_deref(), mode: &key.mode }
}

/// Which one of a backend's statements is one client's alone; another backend has none under this number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Apart(NonZero<u64>);

/// A statement on the server.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// The server's id.
    pub id: u32,
    /// Parameter types sent last with an execution, as on the wire; empty before the first.
    pub bound_types: Vec<u8>,
    /// It is to be closed instead of being executed for anybody else.
    pub is_spent: bool,
    used: u64,
    /// Its place in the list of prepared statements.
    holder: Holder,
}

/// A statement that is one client's alone, for another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApartRecord {
    id: u32,
    bound_types: Vec<u8>,
    is_spent: bool,
    meaning: Meaning,
    shape: (u16, u16),
}

impl Prepared {
    fn is_unheld(&self) -> bool {
        self.holder.listed.holders(Side::Client) == 0
    }
}

/// The statements of one backend.
#[derive(Default)]
pub(crate) struct StatementCache {
    by_key: HashMap<Arc<StatementKey>, Prepared, FixedState>,
    /// Those that are one client's alone, since they have its cursor or its long data.
    apart: HashMap<Apart, Prepared, FixedState>,
    tick: u64,
    bytes: usize,
}

impl StatementCache {
    /// The statement, marked as used.
    pub(crate) fn get(&mut self, key: &Arc<StatementKey>) -> Option<&mut Prepared> {
        self.tick += 1;
        let tick = self.tick;
        let found = self.by_key.get_mut(key)?;
        found.used = tick;
        Some(found)
    }

    /// Those that are one client's alone, for another process.
    pub(crate) fn records(&self) -> Vec<(Apart, ApartRecord)> {
        let record = |prepared: &Prepared| {
            let Prepared { id, bound_types, is_spent, used: _, holder } = prepared;
            let (meaning, shape) = (Meaning::clone(&holder.listed.key), holder.listed.shape);
            ApartRecord { id: *id, bound_types: bound_types.clone(), is_spent: *is_spent, meaning, shape }
        };
        self.apart.iter().map(|(number, prepared)| (*number, record(prepared))).collect()
    }

    /// Takes one of another process; its number here. `list` finds its place in the list of prepared statements.
    pub(crate) fn take_over(
        &mut self,
        record: ApartRecord,
        list: impl FnOnce(&Arc<StatementKey>, (u16, u16)) -> Arc<Listed>,
    ) -> Option<Apart> {
        let ApartRecord { id, bound_types, is_spent, meaning, shape } = record;
        let key = Arc::new(StatementKey::from(meaning.taken_over()));
        self.insert(Arc::clone(&key), id, list(&key, shape).hold(Side::Server));
        let apart = self.set_apart(&key)?;
        let prepared = self.get_apart(apart)?;
        (prepared.bound_types, prepared.is_spent) = (bound_types, is_spent);
        Some(apart)
    }

    /// The server's ids of those that are for whoever asks; they are known no more.
    pub(crate) fn take_shared(&mut self) -> Vec<u32> {
        self.bytes = 0;
        self.by_key.drain().map(|(_, prepared)| prepared.id).collect()
    }

    pub(crate) fn insert(&mut self, key: Arc<StatementKey>, id: u32, holder: Holder) {
        self.tick += 1;
        self.bytes += key.bytes();
        self.by_key.insert(key, Prepared { id, bound_types: Vec::new(), is_spent: false, used: self.tick, holder });
    }

    /// From now on the statement is for whom the answer is told to, until it is shared again or forgotten. It is closed for no other
    /// statement's sake, and does not count towards what is kept.
    pub(crate) fn set_apart(&mut self, key: &StatementKey) -> Option<Apart> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let prepared = self.take(key)?;
        let apart = Apart(NonZero::new(NEXT.fetch_add(1, Ordering::Relaxed))?);
        self.apart.insert(apart, prepared);
        Some(apart)
    }

    /// A statement that was set apart.
    pub(crate) fn get_apart(&mut self, apart: Apart) -> Option<&mut Prepared> {
        self.apart.get_mut(&apart)
    }

    /// A statement that was set apart is for all again, under this key. One that is spent, or where there is another one by now, is
    /// forgotten instead: answers the server's id to close.
    pub(crate) fn share(&mut self, apart: Apart, key: Arc<StatementKey>) -> Option<u32> {
        let prepared = self.apart.remove(&apart)?;
        if prepared.is_spent || self.by_key.contains_key(&key) {
            return Some(prepared.id);
        }
        self.bytes += key.bytes();
        self.by_key.insert(key, prepared);
        None
    }

    /// Forgets a statement that was set apart; answers the server's id to close.
    pub(crate) fn remove_apart(&mut self, apart: Apart) -> Option<u32> {
        self.apart.remove(&apart).map(|gone| gone.id)
    }

    /// The statement as it is to be executed: one that was never executed becomes this one, where it has types.
    pub(crate) fn find(&mut self, key: &Arc<StatementKey>) -> Option<&mut Prepared> {
        if !self.by_key.contains_key(key) && key.types.is_some() {
            return self.settle_types(key);
        }
        self.get(key)
    }

    /// A statement that was never executed becomes this one, which has types.
    fn settle_types(&mut self, key: &Arc<StatementKey>) -> Option<&mut Prepared> {
        let fresh = key.as_prepared();
        if !self.by_key.get(&fresh)?.bound_types.is_empty() {
            return None;
        }
        let prepared = self.by_key.remove(&fresh)?;
        self.by_key.insert(Arc::clone(key), prepared);
        self.get(key)
    }

    /// Forgets a statement; answers the server's id to close.
    pub(crate) fn remove(&mut self, key: &StatementKey) -> Option<u32> {
        self.take(key).map(|gone| gone.id)
    }

    fn take(&mut self, key: &StatementKey) -> Option<Prepared> {
        let taken = self.by_key.remove(key)?;
        self.bytes -= key.bytes().min(self.bytes);
        Some(taken)
    }

    /// Takes out the least recently used statements until at most `max` (with at most `max_bytes` of text) are left beside those
    /// that are set apart; answers the server's ids to close.
    pub(crate) fn shrink(&mut self, max: usize, max_bytes: usize) -> Vec<u32> {
        let mut closed = Vec::new();
        while self.by_key.len() > max || (self.bytes > max_bytes && self.by_key.len() > 1) {
            let Some(key) = self.by_key.iter().min_by_key(|(_, p)| p.used).map(|(k, _)| Arc::clone(k)) else { break };
            closed.extend(self.remove(&key));
        }
        closed
    }

    /// Whether there are some that no client has.
    pub(crate) fn has_unheld(&self) -> bool {
        self.by_key.values().any(Prepared::is_unheld)
    }

    /// Takes out those that no client has; answers the server's ids to close. One that a client of another worker has may be among
    /// them: it is prepared again when it is wanted.
    pub(crate) fn take_unheld(&mut self) -> Vec<u32> {
        let unheld: Vec<_> = self.by_key.iter().filter(|(_, p)| p.is_unheld()).map(|(key, _)| Arc::clone(key)).collect();
        unheld.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len() + self.apart.len()
    }

    /// The connection was reset: the server has forgotten all.
    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
        self.apart.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meter::digest::Digest;
    use meter::prepared::PreparedList;

    fn holder(key: &Arc<StatementKey>) -> Holder {
        let digest = || Arc::new(Digest { hash: 0, text: Box::default(), len: 0 });
        PreparedList::default().list("anna", key, digest, (0, 0)).hold(Side::Server)
    }

    fn key(text: &str) -> Arc<StatementKey> {
        Arc::new(
            Meaning { schema: None, mode: Arc::from(&b""[..]), user_variables: None, text: text.as_bytes().into(), types: None }.into(),
        )
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut c = StatementCache::default();
        for (i, t) in ["a", "b", "c"].iter().enumerate() {
            c.insert(key(t), i as u32, holder(&key(t)));
        }
        c.get(&key("a"));
        assert_eq!(c.shrink(2, 100), [1]);
        assert!(c.shrink(2, 100).is_empty());
        assert!(c.get(&key("b")).is_none());
        assert_eq!(c.by_key.len(), 2);
    }

    #[test]
    fn bytes_are_capped_but_one_statement_always_fits() {
        let mut c = StatementCache::default();
        c.insert(key("aaaa"), 1, holder(&key("aaaa")));
        c.insert(key("bbbb"), 2, holder(&key("bbbb")));
        assert_eq!(c.shrink(10, 5), [1]);
        assert!(c.shrink(10, 1).is_empty());
        c.clear();
        assert!(c.by_key.is_empty());
    }

    #[test]
    fn what_is_set_apart_is_nobody_elses() {
        let mut c = StatementCache::default();
        let a = key("aaaa");
        c.insert(Arc::clone(&a), 1, holder(&a));
        let apart = c.set_apart(&a).unwrap();
        assert!(c.get(&a).is_none() && c.set_apart(&a).is_none());
        for id in 2..5 {
            let other = key(&id.to_string());
            c.insert(Arc::clone(&other), id, holder(&other));
        }
        assert_eq!((c.shrink(1, 1), c.len(), c.get_apart(apart).map(|p| p.id)), (vec![2, 3], 2, Some(1)));
        assert_eq!((c.take_unheld(), c.len()), (vec![4], 1));
        assert_eq!((c.share(apart, Arc::clone(&a)), c.get(&a).map(|p| p.id), c.bytes), (None, Some(1), 4));
        // Another one like it meanwhile.
        let apart = c.set_apart(&a).unwrap();
        c.insert(Arc::clone(&a), 5, holder(&a));
        assert_eq!((c.share(apart, Arc::clone(&a)), c.get(&a).map(|p| p.id), c.len()), (Some(1), Some(5), 1));
        let apart = c.set_apart(&a).unwrap();
        assert_eq!((c.remove_apart(apart), c.remove_apart(apart), c.len(), c.bytes), (Some(5), None, 0, 0));
    }
}
