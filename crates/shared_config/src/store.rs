//! The layout of the keys in etcd, and how a revision is published.
//!
//! Below `PREFIX/CLUSTER/`: `live/config` is the manifest. `live/proxies/UUID` are the proxies, each under a lease. `live/orders/...` are
//! orders. `live/heal/CLUSTER/leader` and `state` are who heals a cluster and what was healed. `parts/SHA256` are pieces of text, compressed. `history/NUMBER` are earlier manifests. `collected` changes whenever parts are
//! deleted.
//!
//! INVARIANT: every part of a manifest exists before the manifest does. A publication writes parts first, and its transaction fails if
//! parts were deleted meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::etcd::{Entry, Etcd, EtcdError, encode, encode_bytes};
use crate::manifest::{Manifest, Revision};
use crate::parts::{cut, sum};
use crate::settings::Settings;

/// Most bytes of compressed parts in one request.
const BATCH: usize = 700 << 10;
/// Most operations in one request; etcd's own limit is 128.
const OPERATIONS: usize = 100;
/// Most memory that unpacking a part may take for what repeats, as a power of two. Parts have half a MiB.
const WINDOW: u32 = 23;
/// Attempts of a publication: it begins again if parts were deleted meanwhile.
const TRIES: usize = 5;
/// Renewals of a lease that may wait for their answers at the same time.
pub(crate) const LEASE_LINES: usize = 4;
/// Unneeded parts are deleted every so many revisions.
const COLLECT_EVERY: u64 = 10;

/// A manifest as it stands in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Decoded and checked.
    pub manifest: Manifest,
    /// The revision of etcd that wrote it.
    pub mod_revision: i64,
}

/// Why a revision was not published.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PublishError {
    /// Another proxy published first. The head now, if there is one.
    #[error("another revision exists already")]
    Lost(Option<Box<Head>>),
    /// See [`EtcdError`].
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

/// Keys below the root.
#[derive(Debug)]
pub(crate) struct Store {
    etcd: Etcd,
    /// For who heals and what was healed: neither waits for the configuration.
    heal: Etcd,
    /// For renewals of the healer's lease alone.
    leases: [Etcd; LEASE_LINES],
    root: String,
    /// Parts of the text that was read last.
    known: Mutex<BTreeMap<String, Vec<u8>>>,
}

/// The key behind all that begin with `prefix`.
pub(crate) fn end(prefix: &str) -> String {
    // Our prefixes end with a slash, and '0' is the character behind it.
    format!("{}0", prefix.trim_end_matches('/'))
}

impl Store {
    pub(crate) fn new(settings: &Arc<Settings>) -> Self {
        let etcd = || Etcd::new(Arc::clone(settings));
        let leases = std::array::from_fn(|_| etcd());
        Self { etcd: etcd(), heal: etcd(), leases, root: settings.root.clone(), known: Mutex::default() }
    }

    pub(crate) fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    pub(crate) fn heal(&self) -> &Etcd {
        &self.heal
    }

    /// One of [`LEASE_LINES`].
    pub(crate) fn lease(&self, line: usize) -> &Etcd {
        &self.leases[line % LEASE_LINES]
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.root)
    }

    /// Publishes `text` as `manifest` describes it. `base` is the etcd revision of the manifest that it is based on; 0 for none. The sums
    /// of the parts and the number of bytes are filled in.
    pub(crate) async fn publish(&self, text: &str, mut manifest: Manifest, base: i64) -> Result<Head, PublishError> {
        let limit = self.etcd.settings().max_bytes;
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > limit {
            return Err(EtcdError::too_large("the configuration", limit).into());
        }
        let parts: Vec<(String, &[u8])> = cut(text).into_iter().map(|part| (sum(part), part)).collect();
        manifest.revision.sha256 = sum(text.as_bytes());
        manifest.revision.bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        manifest.revision.parts = parts.iter().map(|(sum, _)| sum.clone()).collect();
        let value = encode_bytes(&json_of(&manifest));
        // The history is a lineage itself.
        let past = encode_bytes(&json_of(&Manifest { lineage: Vec::new(), ..manifest.clone() }));
        for _ in 0..TRIES {
            let collected = self.etcd.range(&self.key("collected"), None, false).await?;
            let collected = collected.entries.first().map_or(0, |entry| entry.mod_revision);
            self.put_parts(&parts).await?;
            let (config, old) = (self.key("live/config"), self.key(&history_name(manifest.revision.number)));
            let compare = vec![is_at(&config, base), is_at(&self.key("collected"), collected)];
            let success = vec![put(&config, &value), put(&old, &past)];
            let failure = vec![json!({ "request_range": { "key": encode(&config) } })];
            let (held, found) = self.etcd.transact(compare, success, failure).await?;
            if held {
                return Ok(Head { manifest, mod_revision: found.revision });
            }
            let now = found.entries.first().map(head).transpose().map_err(EtcdError::Refused)?;
            match now {
                // An answer was lost, and the transaction said twice.
                Some(head) if head.manifest.revision.id == manifest.revision.id => return Ok(head),
                now if now.as_ref().map_or(0, |head| head.mod_revision) != base => return Err(PublishError::Lost(now.map(Box::new))),
                _ => {}
            }
        }
        Err(EtcdError::Refused("etcd keeps dropping the parts of the revision: try again".to_owned()).into())
    }

    async fn put_parts(&self, parts: &[(String, &[u8])]) -> Result<(), EtcdError> {
        let prefix = self.key("parts/");
        let there = self.etcd.range(&prefix, Some(&end(&prefix)), true).await?;
        let there: BTreeSet<&str> = there.entries.iter().filter_map(|entry| entry.key.strip_prefix(&prefix)).collect();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (sum, part) in parts.iter().filter(|(sum, _)| !there.contains(sum.as_str())) {
            let packed = zstd::bulk::compress(part, 3).map_err(|e| EtcdError::Refused(format!("compressing: {e}")))?;
            bytes += packed.len();
            if !batch.is_empty() && (bytes > BATCH || batch.len() >= OPERATIONS) {
                self.etcd.transact(Vec::new(), std::mem::take(&mut batch), Vec::new()).await?;
                bytes = packed.len();
            }
            batch.push(put(&format!("{prefix}{sum}"), &encode_bytes(&packed)));
        }
        if !batch.is_empty() {
            self.etcd.transact(Vec::new(), batch, Vec::new()).await?;
        }
        Ok(())
    }

    /// The text of a revision, checked by its sums.
    pub(crate) async fn text(&self, revision: &Revision) -> Result<String, EtcdError> {
        let broken = |why: String| EtcdError::Refused(format!("revision {}: {why}", revision.number));
        let (name, limit) = (format!("revision {}", revision.number), self.etcd.settings().max_bytes);
        if revision.bytes > limit {
            return Err(EtcdError::too_large(&name, limit));
        }
        // Any client with rights below the prefix may write anything: no more is unpacked or joined than the manifest says.
        let mut left = revision.bytes;
        let known = std::mem::take(&mut *self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let mut parts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for sum in &revision.parts {
            if !parts.contains_key(sum) {
                let part = match known.get(sum) {
                    Some(part) => part.clone(),
                    None => self.part(sum, left).await.map_err(|e| match e {
                        EtcdError::Refused(why) => broken(why),
                        other => other,
                    })?,
                };
                parts.insert(sum.clone(), part);
            }
            let bytes = parts.get(sum).map_or(0, |part| u64::try_from(part.len()).unwrap_or(u64::MAX));
            left = left.checked_sub(bytes).ok_or_else(|| broken(more_than(revision.bytes)))?;
        }
        if left > 0 {
            return Err(broken(format!("its parts have {left} bytes less than declared")));
        }
        let whole: Vec<u8> = revision.parts.iter().filter_map(|sum| parts.get(sum)).flatten().copied().collect();
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = parts;
        if sum(&whole) != revision.sha256 {
            return Err(broken("its parts do not match its checksum".to_owned()));
        }
        String::from_utf8(whole).map_err(|_| broken("the text is not UTF-8".to_owned()))
    }

    async fn part(&self, name: &str, most: u64) -> Result<Vec<u8>, EtcdError> {
        let found = self.etcd.range(&self.key(&format!("parts/{name}")), None, false).await?;
        let packed = found.entries.first().ok_or_else(|| EtcdError::Refused(format!("part {name} is missing")))?;
        let part = unpack(&packed.value, most).map_err(EtcdError::Refused)?;
        part.filter(|part| sum(part) == name).ok_or_else(|| EtcdError::Refused(format!("part {name} is damaged")))
    }

    /// Sets a key under a lease if it was last written by this revision; whether it was.
    pub(crate) async fn put_if(&self, name: &str, value: &str, base: i64, lease: i64) -> Result<bool, EtcdError> {
        let key = self.key(name);
        let mut act = put(&key, &encode(value));
        act["request_put"]["lease"] = lease.to_string().into();
        Ok(self.etcd.transact(vec![is_at(&key, base)], vec![act], Vec::new()).await?.0)
    }

    /// Deletes a key if it has this value; whether it had.
    pub(crate) async fn delete_if(&self, name: &str, value: &str) -> Result<bool, EtcdError> {
        let key = encode(&self.key(name));
        let has = json!({ "key": key, "target": "VALUE", "result": "EQUAL", "value": encode(value) });
        let gone = json!({ "request_delete_range": { "key": key } });
        Ok(self.etcd.transact(vec![has], vec![gone], Vec::new()).await?.0)
    }

    /// Manifests that held, the newest first.
    pub(crate) async fn history(&self) -> Result<Vec<Manifest>, EtcdError> {
        let prefix = self.key("history/");
        let found = self.etcd.range(&prefix, Some(&end(&prefix)), false).await?;
        Ok(found.entries.iter().rev().filter_map(|entry| serde_json::from_slice(&entry.value).ok()).collect())
    }

    /// Deletes manifests beyond the length of the history, and unneeded parts, if it is time.
    pub(crate) async fn collect(&self, head: &Head) -> Result<(), EtcdError> {
        if !head.manifest.revision.number.is_multiple_of(COLLECT_EVERY) {
            return Ok(());
        }
        let (old, prefix) = (self.history().await?, self.key("parts/"));
        let most = usize::try_from(self.etcd.settings().history).unwrap_or(usize::MAX);
        let kept = || old.iter().take(most).chain([&head.manifest]);
        let before = kept().filter_map(|manifest| manifest.rollout.as_ref()).map(|rollout| &rollout.before);
        let needed: BTreeSet<&String> = kept().map(|manifest| &manifest.revision).chain(before).flat_map(|one| &one.parts).collect();
        let parts = self.etcd.range(&prefix, Some(&end(&prefix)), true).await?;
        let unused = parts.entries.into_iter().map(|entry| entry.key);
        let unused = unused.filter(|key| key.strip_prefix(&prefix).is_some_and(|sum| !needed.contains(&sum.to_owned())));
        let gone: Vec<String> =
            old.iter().skip(most).map(|manifest| self.key(&history_name(manifest.revision.number))).chain(unused).collect();
        for some in gone.chunks(OPERATIONS - 1) {
            let mut acts: Vec<Value> = some.iter().map(|key| json!({ "request_delete_range": { "key": encode(key) } })).collect();
            acts.push(put(&self.key("collected"), &encode(&head.manifest.revision.number.to_string())));
            // A manifest published since may need parts that this one does not.
            let (held, _) = self.etcd.transact(vec![is_at(&self.key("live/config"), head.mod_revision)], acts, Vec::new()).await?;
            if !held {
                break;
            }
        }
        Ok(())
    }
}

/// A manifest, with the revision that wrote it.
pub(crate) fn head(entry: &Entry) -> Result<Head, String> {
    let manifest = serde_json::from_slice(&entry.value).map_err(|e| format!("the manifest cannot be read: {e}"))?;
    Ok(Head { manifest, mod_revision: entry.mod_revision })
}

pub(crate) fn json_of<T: serde::Serialize>(value: &T) -> Vec<u8> {
    // Types of this crate have text keys only, so that nothing can fail.
    serde_json::to_vec(value).unwrap_or_default()
}

fn more_than(bytes: u64) -> String {
    format!("its parts have more than the declared {bytes} bytes")
}

/// Unpacks a part; None if it is not whole.
///
/// # Errors
/// It has more than `most` bytes.
fn unpack(packed: &[u8], most: u64) -> Result<Option<Vec<u8>>, String> {
    let mut part = Vec::new();
    let unpacked = zstd::stream::read::Decoder::new(packed).and_then(|mut from| {
        from.window_log_max(WINDOW)?;
        from.take(most.saturating_add(1)).read_to_end(&mut part)
    });
    match unpacked {
        Ok(bytes) if u64::try_from(bytes).unwrap_or(u64::MAX) > most => Err(more_than(most)),
        Ok(_) => Ok(Some(part)),
        Err(_) => Ok(None),
    }
}

fn history_name(number: u64) -> String {
    format!("history/{number:020}")
}

pub(crate) fn put(key: &str, value: &str) -> Value {
    json!({ "request_put": { "key": encode(key), "value": value } })
}

/// The key was written by this revision; 0 says that it is not there.
pub(crate) fn is_at(key: &str, mod_revision: i64) -> Value {
    json!({ "key": encode(key), "target": "MOD", "result": "EQUAL", "mod_revision": mod_revision.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_unpacked_than_is_allowed() {
        let packed = |bytes: usize| zstd::bulk::compress(&vec![0; bytes], 3).unwrap();
        assert_eq!(unpack(&packed(1_000), 1_000), Ok(Some(vec![0; 1_000])));
        assert!(unpack(&packed(1_001), 1_000).unwrap_err().contains("more than the declared 1000 bytes"));
        assert!(unpack(&packed(64 << 20), 1_000).is_err());
        assert_eq!(unpack(b"no zstd", 1_000), Ok(None));
        // One that wants a window of half a GiB.
        let mut wide = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        wide.window_log(29).unwrap();
        wide.long_distance_matching(true).unwrap();
        std::io::Write::write_all(&mut wide, &[1; 1_000]).unwrap();
        assert_eq!(unpack(&wide.finish().unwrap(), 1_000), Ok(None));
    }
}
