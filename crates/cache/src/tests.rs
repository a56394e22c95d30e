//! The cache's promises, against naive models where there is one.

mod bounds;
mod conversions;
mod keys;
mod life;
mod replies;
mod server;
mod threads;

use super::key::Hashing;
use super::reply::NotCached;
use super::{CachePolicy, CacheSettings, Entry, Key, Look, QueryCache, ResultProtocol};
use server::{TEXT_CAPS, column, reply, text_row};
use std::sync::Arc;

const TTL: CachePolicy = CachePolicy { ttl_ms: 1000, keeps_empty: None, since_ms: 0 };

fn cache(change: impl FnOnce(&mut CacheSettings)) -> Arc<QueryCache> {
    let mut settings = CacheSettings::default();
    change(&mut settings);
    QueryCache::new(settings)
}

fn key(cache: &QueryCache, name: &str) -> Key {
    Key::of(&cache.hashing, name.as_bytes())
}

fn look(cache: &Arc<QueryCache>, name: &str, now_ms: u64) -> Look {
    cache.look(key(cache, name), ResultProtocol::Text, TTL, now_ms)
}

/// A reply with one string.
fn one(value: &str) -> Vec<u8> {
    reply(&[column(253)], &[text_row(&[Some(value.as_bytes())])], TEXT_CAPS)
}

/// Fetches for the cache as the one who was asked to.
fn fill(found: Look, bytes: &[u8], now_ms: u64) -> Result<Arc<Entry>, NotCached> {
    let Look::Lead(mut fill) = found else { panic!("not asked to fetch") };
    fill.feed(bytes);
    fill.finish(TEXT_CAPS, now_ms)
}

fn value(cache: &QueryCache, name: &str) -> u64 {
    cache.values().into_iter().find(|(known, _)| known.ends_with(name)).unwrap().1
}

/// The string of a reply made by [`one`], as a client would read it.
fn read_one(entry: &Entry) -> String {
    let mut out = Vec::new();
    entry.write_reply(ResultProtocol::Text, Default::default(), &mut out).unwrap();
    let row = server::payloads(&out)[2].clone();
    String::from_utf8(wire::codec::Reader::new(&row).lenenc_bytes().unwrap().to_vec()).unwrap()
}

#[test]
fn keys_are_found_by_all_their_bytes() {
    let hashing = Hashing::default();
    assert_eq!(Key::of(&hashing, b"a"), Key::of(&hashing, b"a"));
    assert_ne!(Key::of(&hashing, b"a"), Key::of(&hashing, b"b"));
}
