//! Who heals a cluster, and the record of what was healed: `live/heal/CLUSTER/leader` and `live/heal/CLUSTER/state` in etcd.
//!
//! A leader is a key under a lease, which this proxy renews each second. INVARIANT: a leader's record is written only if the leader's key
//! is still the one that this proxy made. [`Lead::since`] is a time before etcd heard of the last renewal: a lease that is
//! counted from it is over before etcd ends it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::fleet::RecordChange;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::etcd::{Entry, EtcdError, encode};
use crate::store::{Store, is_at, put};

/// Seconds that a leader outlives its last renewal.
const LEASE_S: u64 = 6;
/// Time between renewals, and between attempts to become a leader.
const RENEW: Duration = Duration::from_secs(1);
/// Attempts of a write that others overtake.
const TRIES: usize = 5;
/// Longest record, bytes.
const LONGEST: usize = 256 << 10;

/// What etcd says of a cluster's healing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heal {
    /// The leader's name.
    pub leader: Option<String>,
    /// The record, and the revision of etcd that wrote it.
    pub state: Option<(String, i64)>,
}

/// Why a record was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// By its change: it does not fit to what is there.
    #[error("{0}")]
    Unfit(String),
    /// This proxy is not the leader any more.
    #[error("another proxy may heal this cluster now: the lease in etcd is lost")]
    NotLeader,
    /// Other writers were faster, again and again.
    #[error("the record in etcd was changed by others meanwhile: try again")]
    Overtaken,
    /// See [`EtcdError`].
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

/// This proxy's leaderships.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    wanted: watch::Sender<BTreeSet<u32>>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// When the last renewal was sent that succeeded.
    sent: Option<Instant>,
    /// Create revisions of the leaders' keys.
    keys: BTreeMap<u32, i64>,
}

impl Held {
    /// Gives up the leaderships of other clusters.
    fn take_all_but(&mut self, wanted: &BTreeSet<u32>) -> BTreeMap<u32, i64> {
        let (kept, lost) = std::mem::take(&mut self.keys).into_iter().partition(|(cluster, _)| wanted.contains(cluster));
        self.keys = kept;
        lost
    }
}

fn leader(cluster: u32) -> String {
    format!("live/heal/{cluster}/leader")
}

fn state(cluster: u32) -> String {
    format!("live/heal/{cluster}/state")
}

/// The key was made by this revision; 0 says that it is not there.
fn is_made_at(key: &str, create_revision: i64) -> Value {
    json!({ "key": encode(key), "target": "CREATE", "result": "EQUAL", "create_revision": create_revision.to_string() })
}

fn get(key: &str) -> Value {
    json!({ "request_range": { "key": encode(key) } })
}

impl Lead {
    /// The clusters that this proxy would heal.
    pub(crate) fn want(&self, clusters: BTreeSet<u32>) {
        self.wanted.send_if_modified(|wanted| {
            let is_new = *wanted != clusters;
            *wanted = clusters;
            is_new
        });
    }

    /// If this proxy leads there: when its last successful renewal was sent, and the revision that made its key.
    pub(crate) fn since(&self, cluster: u32) -> Option<(Instant, i64)> {
        let held = self.held();
        held.sent.zip(held.keys.get(&cluster).copied())
    }

    /// Where etcd is has changed: nothing is led there yet.
    pub(crate) fn forget(&self) {
        *self.held() = Held::default();
    }

    /// Other proxies need not wait for the lease to end.
    pub(crate) async fn resign(&self, store: &Store) {
        let keys = std::mem::take(&mut *self.held()).keys;
        for (cluster, made_at) in keys {
            leave(store, cluster, made_at).await;
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes leader where that is wanted and nobody is, and stays it; until etcd is configured elsewhere. `name` is what others see.
    pub(crate) async fn keep(&self, store: &Store, name: impl Fn() -> String) {
        loop {
            let mut wanted = self.wanted.subscribe();
            if wanted.wait_for(|wanted| !wanted.is_empty()).await.is_err() {
                return;
            }
            // What fails is tried again; what is held lapses by itself.
            let _ = self.keep_once(store, &name).await;
            *self.held() = Held::default();
            tokio::time::sleep(RENEW).await;
        }
    }

    /// One lease, until it ends.
    async fn keep_once(&self, store: &Store, name: impl Fn() -> String) -> Result<(), EtcdError> {
        let mut wanted = self.wanted.subscribe();
        let sent = Instant::now();
        let lease = store.etcd().grant(LEASE_S).await?;
        self.held().sent = Some(sent);
        loop {
            let now = wanted.borrow_and_update().clone();
            let lost = self.held().take_all_but(&now);
            for (cluster, made_at) in lost {
                leave(store, cluster, made_at).await;
            }
            if now.is_empty() {
                return Ok(());
            }
            for cluster in now {
                // A failure here says nothing about the lease.
                if let Ok(made_at) = stand(store, cluster, &name(), lease).await {
                    let mut held = self.held();
                    match made_at {
                        Some(made_at) => held.keys.insert(cluster, made_at),
                        None => held.keys.remove(&cluster),
                    };
                }
            }
            let is_changed = tokio::time::timeout(RENEW, wanted.changed()).await;
            if let Ok(Err(_)) = is_changed {
                return Ok(());
            }
            let sent = Instant::now();
            match store.etcd().keep(lease).await {
                Ok(true) => self.held().sent = Some(sent),
                Ok(false) => return Ok(()),
                // Members that answer again may still have it.
                Err(error) if self.held().sent.is_some_and(|sent| sent.elapsed() > Duration::from_secs(LEASE_S)) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Writes a record as `change` makes it of the present one, atomically. `as_leader` only while this proxy leads. Returns the text and
    /// the revision that wrote it.
    pub(crate) async fn write(
        &self,
        store: &Store,
        cluster: u32,
        as_leader: bool,
        mut change: RecordChange,
    ) -> Result<(String, i64), WriteError> {
        let key = store.key(&state(cluster));
        let leads = if as_leader { Some(self.held().keys.get(&cluster).copied().ok_or(WriteError::NotLeader)?) } else { None };
        for _ in 0..TRIES {
            let found = store.etcd().range(&key, None, false).await?;
            let before = found.entries.first();
            let text = before.map(text_of).transpose().map_err(WriteError::Unfit)?;
            let next = change(text.as_deref()).map_err(WriteError::Unfit)?;
            if next.len() > LONGEST {
                return Err(WriteError::Unfit(format!("the record of hostgroup {cluster} would have more than {LONGEST} bytes")));
            }
            let mut compare = vec![is_at(&key, before.map_or(0, |entry| entry.mod_revision))];
            compare.extend(leads.map(|made_at| is_made_at(&store.key(&leader(cluster)), made_at)));
            let acts = vec![put(&key, &encode(&next))];
            let (held, now) = store.etcd().transact(compare, acts, vec![get(&key)]).await?;
            if held {
                return Ok((next, now.revision));
            }
            if let Some(entry) = now.entries.first().filter(|entry| entry.value == next.as_bytes()) {
                // An answer was lost, and the transaction said twice.
                return Ok((next, entry.mod_revision));
            }
            if let Some(made_at) = leads {
                let now = store.etcd().range(&store.key(&leader(cluster)), None, true).await?;
                if now.entries.first().is_none_or(|entry| entry.create_revision != made_at) {
                    self.held().keys.remove(&cluster);
                    return Err(WriteError::NotLeader);
                }
            }
        }
        Err(WriteError::Overtaken)
    }
}

/// Deletes the leader's key that this proxy made. It ends with the lease otherwise.
async fn leave(store: &Store, cluster: u32, made_at: i64) {
    let key = store.key(&leader(cluster));
    let gone = json!({ "request_delete_range": { "key": encode(&key) } });
    let _ = store.etcd().transact(vec![is_made_at(&key, made_at)], vec![gone], Vec::new()).await;
}

/// Makes the leader's key where nobody leads. Returns the revision that made it, if it is this lease's.
async fn stand(store: &Store, cluster: u32, name: &str, lease: i64) -> Result<Option<i64>, EtcdError> {
    let key = store.key(&leader(cluster));
    let value = json!({ "name": name, "lease": lease.to_string() }).to_string();
    let mut act = put(&key, &encode(&value));
    act["request_put"]["lease"] = lease.to_string().into();
    let (is_made, now) = store.etcd().transact(vec![is_made_at(&key, 0)], vec![act], vec![get(&key)]).await?;
    if is_made {
        return Ok(Some(now.revision));
    }
    Ok(now.entries.first().filter(|entry| entry.value == value.as_bytes()).map(|entry| entry.create_revision))
}

fn text_of(entry: &Entry) -> Result<String, String> {
    String::from_utf8(entry.value.clone()).map_err(|_| format!("{} is not UTF-8", entry.key))
}

/// What the keys below `live/heal/` say, by cluster. `prefix` is what stands before the cluster.
pub(crate) fn seen<'a>(entries: impl Iterator<Item = &'a Entry>, prefix: &str) -> BTreeMap<u32, Heal> {
    let mut all: BTreeMap<u32, Heal> = BTreeMap::new();
    for entry in entries {
        let Some((cluster, what)) = entry.key.strip_prefix(prefix).and_then(|rest| rest.split_once('/')) else { continue };
        let (Ok(cluster), Ok(text)) = (cluster.parse(), text_of(entry)) else { continue };
        let heal = all.entry(cluster).or_default();
        match what {
            "leader" => {
                let value: Value = serde_json::from_str(&text).unwrap_or_default();
                heal.leader = Some(value["name"].as_str().unwrap_or("unknown").to_owned());
            }
            "state" => heal.state = Some((text, entry.mod_revision)),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_who_heals_and_what_was_healed() {
        let entry = |key: &str, value: &str, mod_revision| Entry {
            key: format!("/tidegate/main/live/heal/{key}"),
            value: value.as_bytes().to_vec(),
            mod_revision,
            create_revision: 1,
        };
        let entries = [
            entry("10/leader", "{\"name\":\"p1\",\"lease\":\"7\"}", 4),
            entry("10/state", "{}", 9),
            entry("11/leader", "?", 5),
            entry("x/state", "{}", 6),
            entry("12", "{}", 7),
        ];
        let found = seen(entries.iter(), "/tidegate/main/live/heal/");
        assert_eq!(found[&10], Heal { leader: Some("p1".into()), state: Some(("{}".into(), 9)) });
        assert_eq!((found[&11].leader.as_deref(), found.len()), (Some("unknown"), 2));
    }

    #[test]
    fn a_proxy_leads_where_it_has_made_the_key() {
        let lead = Lead::default();
        assert_eq!(lead.since(10), None);
        let now = Instant::now();
        *lead.held() = Held { sent: Some(now), keys: BTreeMap::from([(10, 4)]) };
        assert_eq!((lead.since(10), lead.since(11)), (Some((now, 4)), None));
        assert!(lead.held().take_all_but(&BTreeSet::from([10])).is_empty());
        assert!(lead.since(10).is_some());
        assert_eq!(lead.held().take_all_but(&BTreeSet::new()), BTreeMap::from([(10, 4)]));
        assert_eq!(lead.since(10), None);
    }
}
