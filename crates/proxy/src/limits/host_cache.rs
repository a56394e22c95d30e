//! The client host cache: addresses that fail to log in, and when they are turned away.
//!
//! One for the process, asked at accept and told at login only. Off while `client_host_cache_size` is 0.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// An address that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostErrors {
    /// Failed logins since the last that succeeded.
    pub errors: u64,
    /// The last one, process clock, ms.
    pub updated_ms: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct HostCache(Mutex<HashMap<IpAddr, HostErrors>>);

impl HostCache {
    fn hosts(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, HostErrors>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this address failed `limit` times or more; a limit of 0 blocks nobody.
    pub(crate) fn is_blocked(&self, host: IpAddr, limit: u64) -> bool {
        limit > 0 && self.hosts().get(&host).is_some_and(|h| h.errors >= limit)
    }

    /// A login failed, or was not finished in time. At most `size` addresses are kept: the one that failed longest ago goes.
    pub(crate) fn failed(&self, host: IpAddr, now_ms: u64, size: usize) {
        let mut hosts = self.hosts();
        if !hosts.contains_key(&host) {
            shrink(&mut hosts, size.saturating_sub(1));
        }
        if size == 0 {
            return;
        }
        let known = hosts.entry(host).or_insert(HostErrors { errors: 0, updated_ms: now_ms });
        known.errors += 1;
        known.updated_ms = now_ms;
    }

    /// At most `size` addresses stay; those that failed longest ago go.
    pub(crate) fn shrink_to(&self, size: usize) {
        shrink(&mut self.hosts(), size);
    }

    /// A login succeeded: the address starts over.
    pub(crate) fn succeeded(&self, host: IpAddr) {
        self.hosts().remove(&host);
    }

    /// The addresses in order.
    pub(crate) fn rows(&self) -> Vec<(IpAddr, HostErrors)> {
        let mut rows: Vec<_> = self.hosts().iter().map(|(host, errors)| (*host, *errors)).collect();
        rows.sort_unstable_by_key(|(host, _)| *host);
        rows
    }

    /// Forgets all addresses.
    pub(crate) fn clear(&self) {
        self.hosts().clear();
    }
}

fn shrink(hosts: &mut HashMap<IpAddr, HostErrors>, size: usize) {
    let Some(surplus) = hosts.len().checked_sub(size).filter(|surplus| *surplus > 0) else { return };
    let mut oldest: Vec<_> = hosts.iter().map(|(host, known)| (known.updated_ms, *host)).collect();
    if surplus < oldest.len() {
        oldest.select_nth_unstable(surplus);
    }
    for (_, host) in oldest.into_iter().take(surplus) {
        hosts.remove(&host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn an_address_is_blocked_until_it_succeeds() {
        let cache = HostCache::default();
        cache.failed(host(1), 5, 10);
        assert!(!cache.is_blocked(host(1), 2));
        cache.failed(host(1), 6, 10);
        assert!(cache.is_blocked(host(1), 2) && !cache.is_blocked(host(1), 0) && !cache.is_blocked(host(2), 1));
        assert_eq!(cache.rows(), [(host(1), HostErrors { errors: 2, updated_ms: 6 })]);
        cache.succeeded(host(1));
        assert!(!cache.is_blocked(host(1), 1));
    }

    #[test]
    fn the_oldest_goes_when_the_cache_is_full() {
        let cache = HostCache::default();
        for n in 0..5 {
            cache.failed(host(n), u64::from(n), 3);
        }
        assert_eq!(cache.rows().iter().map(|(h, _)| *h).collect::<Vec<_>>(), [host(2), host(3), host(4)]);
        cache.shrink_to(2);
        assert_eq!(cache.rows().iter().map(|(h, _)| *h).collect::<Vec<_>>(), [host(3), host(4)]);
        cache.failed(host(9), 9, 0);
        assert!(cache.rows().is_empty(), "switched off, it forgets");
    }
}
