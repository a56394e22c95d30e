//! Which prepared statements there are, and how many clients and server connections have each.
//!
//! A worker lists the statements that its sessions prepared; what holds one keeps a [`Holder`]. Connections change
//! workers, so the counts are shared; the list is the worker's own. INVARIANT: it keeps no text alive that nobody holds.

use crate::digest::Digest;
use session_state::statement_key::StatementKey;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Who holds a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A session, for its client.
    Client,
    /// A connection to a server.
    Server,
}

/// One statement of one user.
#[derive(Debug)]
pub struct Listed {
    /// Its number in the process.
    pub id: u64,
    /// Who prepared it.
    pub user: Box<str>,
    /// Text and schema.
    pub key: Arc<StatementKey>,
    /// Its digest.
    pub digest: Arc<Digest>,
    /// Columns and parameters.
    pub shape: (u16, u16),
    clients: AtomicU32,
    servers: AtomicU32,
}

impl Listed {
    fn counter(&self, side: Side) -> &AtomicU32 {
        match side {
            Side::Client => &self.clients,
            Side::Server => &self.servers,
        }
    }

    /// How many hold it.
    pub fn holders(&self, side: Side) -> u32 {
        self.counter(side).load(Ordering::Relaxed)
    }

    /// Notes one more holder.
    pub fn hold(self: &Arc<Self>, side: Side) -> Holder {
        self.counter(side).fetch_add(1, Ordering::Relaxed);
        Holder { listed: Arc::clone(self), side }
    }

    fn is_held(&self) -> bool {
        self.holders(Side::Client) + self.holders(Side::Server) > 0
    }
}

/// Counts as long as it lives.
#[derive(Debug)]
pub struct Holder {
    /// What is held.
    pub listed: Arc<Listed>,
    side: Side,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.listed.counter(self.side).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Clone for Holder {
    fn clone(&self) -> Self {
        self.listed.hold(self.side)
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The largest number given so far.
pub fn last_id() -> u64 {
    NEXT_ID.load(Ordering::Relaxed) - 1
}

/// See the module.
#[derive(Default)]
pub struct PreparedList {
    /// By the hash of user and key; of two with one hash the later one is listed.
    by_hash: HashMap<u64, Weak<Listed>, foldhash::fast::RandomState>,
    /// Statements from which on the list is looked through for those that are gone.
    look_at: usize,
}

/// The list is never looked through for fewer.
const LOOK_AT: usize = 1024;

impl PreparedList {
    /// The entry of a statement, made when there is none.
    pub fn list(&mut self, user: &str, key: &Arc<StatementKey>, digest: impl FnOnce() -> Arc<Digest>, shape: (u16, u16)) -> Arc<Listed> {
        let hash = self.by_hash.hasher().hash_one((user, key));
        let known = self.by_hash.get(&hash).and_then(Weak::upgrade);
        if let Some(listed) = known.filter(|listed| *listed.user == *user && listed.key == *key) {
            return listed;
        }
        if self.by_hash.len() >= self.look_at.max(LOOK_AT) {
            self.by_hash.retain(|_, listed| listed.strong_count() > 0);
            self.look_at = self.by_hash.len() * 2;
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (clients, servers) = (AtomicU32::new(0), AtomicU32::new(0));
        let listed = Listed { id, user: user.into(), key: Arc::clone(key), digest: digest(), shape, clients, servers };
        let listed = Arc::new(listed);
        self.by_hash.insert(hash, Arc::downgrade(&listed));
        listed
    }

    /// Those that someone holds, of the `n` from place `from` on, and where to go on. What is prepared between two
    /// slices may change places.
    pub fn held(&self, from: usize, n: usize) -> (Vec<Arc<Listed>>, Option<usize>) {
        let slice = self.by_hash.values().skip(from).take(n).filter_map(Weak::upgrade);
        let end = from.saturating_add(n);
        (slice.filter(|listed| listed.is_held()).collect(), (end < self.by_hash.len()).then_some(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session_state::statement_key::Meaning;

    fn key(text: &str) -> Arc<StatementKey> {
        Arc::new(
            Meaning { schema: None, mode: Arc::from(&b""[..]), user_variables: None, text: text.as_bytes().into(), types: None }.into(),
        )
    }

    fn digest() -> Arc<Digest> {
        Arc::new(Digest { hash: 1, text: Box::default(), len: 0 })
    }

    #[test]
    fn holders_are_counted_while_they_live() {
        let mut list = PreparedList::default();
        let text = key("SELECT ?");
        let listed = list.list("anna", &text, digest, (1, 1));
        let same = list.list("anna", &key("SELECT ?"), || unreachable!("it is listed"), (1, 1));
        assert_eq!(listed.id, same.id);
        assert_ne!(listed.id, list.list("ben", &key("SELECT ?"), digest, (1, 1)).id);
        let client = listed.hold(Side::Client);
        let (second, server) = (client.clone(), listed.hold(Side::Server));
        assert_eq!((listed.holders(Side::Client), listed.holders(Side::Server)), (2, 1));
        assert_eq!(list.held(0, usize::MAX).0.len(), 1);
        drop((client, second, server));
        assert!(list.held(0, usize::MAX).0.is_empty());
        drop((listed, same));
        assert_eq!(Arc::strong_count(&text), 1, "the list does not keep the text");
    }

    #[test]
    fn what_nobody_holds_is_forgotten() {
        let mut list = PreparedList::default();
        let kept: Vec<_> = (0..10).map(|n| list.list("anna", &key(&n.to_string()), digest, (0, 0)).hold(Side::Client)).collect();
        for n in 0..LOOK_AT * 10 {
            list.list("ben", &key(&n.to_string()), digest, (0, 0));
        }
        assert!(list.by_hash.len() <= LOOK_AT + 1);
        assert_eq!(list.held(0, usize::MAX).0.len(), kept.len());
    }
}
