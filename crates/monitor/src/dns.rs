//! Names of servers to addresses, remembered.
//!
//! Owns a bounded cache; the resolver itself is the system's. A name is looked up when its entry is older than
//! `monitor_local_dns_cache_ttl`, after a connect to all of its addresses failed, and from time to time in the background, so
//! that a name that was moved is noticed though its old address still answers. While a look-up fails, the addresses that are
//! known go on to be used. Probes wait for a look-up that is due; the data plane ([`AddressBook`]) never does: it is given what
//! is known, and the look-up is made in the background.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::names::AddressBook;
use model::settings::MysqlVariables;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// Most names that are remembered; beyond it all are forgotten.
const NAMES_MAX: usize = 10_000;
/// Look-ups at a time: each has a thread of the runtime's.
const LOOKUPS_MAX: usize = 16;

/// How often it is looked whether refreshing has been switched on.
const REFRESH_LOOK: Duration = Duration::from_secs(1);

/// How long what is remembered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DnsSettings {
    /// An older entry is not used without a look-up; zero remembers nothing.
    ttl: Duration,
    /// Time between look-ups in the background; None for none.
    refresh: Option<Duration>,
    /// Names that may wait for a look-up.
    queue_max: u64,
}

impl DnsSettings {
    /// From the settings.
    pub(crate) fn of(vars: &MysqlVariables) -> Self {
        let refresh = vars.monitor_local_dns_cache_refresh_interval;
        Self {
            ttl: Duration::from_millis(vars.monitor_local_dns_cache_ttl),
            refresh: (refresh > 0).then(|| Duration::from_millis(refresh)),
            queue_max: vars.monitor_local_dns_resolver_queue_maxsize,
        }
    }
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self::of(&MysqlVariables::default())
    }
}

/// What the cache did, for ProxySQL's metrics.
#[derive(Debug, Default)]
pub(crate) struct DnsCounts {
    /// Asked for a name.
    pub(crate) queried: AtomicU64,
    /// Answered from memory.
    pub(crate) hits: AtomicU64,
    /// Entries written or changed.
    pub(crate) updated: AtomicU64,
}

#[derive(Debug, Clone)]
struct Known {
    addresses: Arc<[IpAddr]>,
    since: Instant,
    is_doubted: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Resolver {
    settings: Mutex<DnsSettings>,
    known: Mutex<HashMap<Arc<str>, Known>>,
    lookups: Semaphore,
    waiting: AtomicU64,
    /// Names that the data plane uses and that are due.
    due: Mutex<HashSet<Arc<str>>>,
    fell_due: Notify,
    /// For the metrics.
    pub(crate) counts: DnsCounts,
}

impl Default for Resolver {
    fn default() -> Self {
        Self {
            settings: Mutex::default(),
            known: Mutex::default(),
            lookups: Semaphore::new(LOOKUPS_MAX),
            waiting: AtomicU64::new(0),
            due: Mutex::default(),
            fell_due: Notify::new(),
            counts: DnsCounts::default(),
        }
    }
}

/// What to do about a name.
#[derive(Debug, PartialEq)]
enum Plan {
    Use(Arc<[IpAddr]>),
    /// Look it up; these will do if that fails.
    LookUp(Option<Arc<[IpAddr]>>),
}

impl Resolver {
    /// Takes over settings; what is known stays.
    pub(crate) fn configure(&self, settings: DnsSettings) {
        *lock(&self.settings) = settings;
    }

    /// The addresses of a name, at least one. IP addresses stand for themselves.
    pub(crate) async fn resolve(&self, host: &Arc<str>) -> io::Result<Arc<[IpAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Arc::from([ip]));
        }
        self.counts.queried.fetch_add(1, Ordering::Relaxed);
        match self.plan(host, Instant::now()) {
            Plan::Use(addresses) => {
                self.counts.hits.fetch_add(1, Ordering::Relaxed);
                Ok(addresses)
            }
            Plan::LookUp(stale) => match (self.look_up(host).await, stale) {
                (Ok(addresses), _) => Ok(self.remember(host, addresses)),
                (Err(_), Some(stale)) => Ok(stale),
                (Err(e), None) => Err(e),
            },
        }
    }

    /// The addresses may have changed: the next [`Resolver::resolve`] looks the name up.
    pub(crate) fn doubt(&self, host: &str) {
        if let Some(known) = lock(&self.known).get_mut(host) {
            known.is_doubted = true;
        }
    }

    /// Whether a connection to this address of a name may be kept: false once the name is known to stand for others.
    pub(crate) fn stands_for(&self, host: &str, ip: IpAddr) -> bool {
        lock(&self.known).get(host).is_none_or(|known| known.addresses.contains(&ip))
    }

    /// Looks names up again: every one time after time, and at once those that the data plane uses and that are due.
    pub(crate) async fn keep_fresh(&self) {
        let every = async {
            loop {
                let refresh = lock(&self.settings).refresh;
                tokio::time::sleep(refresh.unwrap_or(REFRESH_LOOK)).await;
                if refresh.is_some() {
                    self.refresh().await;
                }
            }
        };
        tokio::join!(every, self.keep_up());
    }

    async fn refresh(&self) {
        let names: Vec<Arc<str>> = lock(&self.known).keys().cloned().collect();
        for host in names {
            if let Ok(addresses) = self.look_up(&host).await {
                self.remember(&host, addresses);
            }
        }
    }

    /// Looks up what falls due, side by side: a name that nobody answers for holds no other one up.
    async fn keep_up(&self) {
        let mut lookups = JoinSet::new();
        // One look-up of a name at a time: each has a thread.
        let mut asked = HashSet::new();
        loop {
            tokio::select! {
                () = self.fell_due.notified() => {
                    for host in std::mem::take(&mut *lock(&self.due)) {
                        if asked.insert(Arc::clone(&host)) {
                            lookups.spawn(async move { (ask_system(&host).await, host) });
                        }
                    }
                }
                Some(Ok((answer, host))) = lookups.join_next() => {
                    asked.remove(&host);
                    if let Ok(addresses) = answer {
                        self.remember(&host, addresses);
                    }
                }
            }
        }
    }

    fn plan(&self, host: &str, now: Instant) -> Plan {
        let ttl = lock(&self.settings).ttl;
        let Some(known) = lock(&self.known).get(host).cloned() else { return Plan::LookUp(None) };
        match known.is_doubted || now.saturating_duration_since(known.since) >= ttl {
            true => Plan::LookUp(Some(known.addresses)),
            false => Plan::Use(known.addresses),
        }
    }

    async fn look_up(&self, host: &Arc<str>) -> io::Result<Vec<IpAddr>> {
        let queue_max = lock(&self.settings).queue_max;
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= queue_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other(format!(
                "{queue_max} names wait to be resolved already (monitor_local_dns_resolver_queue_maxsize)"
            )));
        }
        let _waiting = Waiting(&self.waiting);
        let _permit = self.lookups.acquire().await;
        ask_system(host).await
    }

    fn remember(&self, host: &Arc<str>, addresses: Vec<IpAddr>) -> Arc<[IpAddr]> {
        let addresses: Arc<[IpAddr]> = addresses.into();
        if lock(&self.settings).ttl.is_zero() {
            return addresses;
        }
        let mut known = lock(&self.known);
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        let fresh = Known { addresses: Arc::clone(&addresses), since: Instant::now(), is_doubted: false };
        let before = known.insert(Arc::clone(host), fresh);
        if before.is_none_or(|before| before.addresses != addresses) {
            self.counts.updated.fetch_add(1, Ordering::Relaxed);
        }
        addresses
    }
}

impl AddressBook for Resolver {
    fn find(&self, host: &str) -> Option<Arc<[IpAddr]>> {
        self.counts.queried.fetch_add(1, Ordering::Relaxed);
        let addresses = match self.plan(host, Instant::now()) {
            Plan::Use(addresses) => addresses,
            Plan::LookUp(stale) => {
                let stale = stale?;
                if lock(&self.due).insert(host.into()) {
                    self.fell_due.notify_one();
                }
                stale
            }
        };
        self.counts.hits.fetch_add(1, Ordering::Relaxed);
        Some(addresses)
    }

    fn learn(&self, host: &str, addresses: &[IpAddr]) {
        self.remember(&host.into(), addresses.to_vec());
    }

    fn doubt(&self, host: &str) {
        Self::doubt(self, host);
    }
}

async fn ask_system(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect();
    addresses.dedup();
    match addresses.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"))),
        false => Ok(addresses),
    }
}

/// One less waits when it is dropped, also with a look-up that was given up.
struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(resolver: &Resolver, host: &str) -> Arc<[IpAddr]> {
        resolver.remember(&host.into(), vec![IpAddr::from([127, 0, 0, 1])])
    }

    #[test]
    fn an_entry_is_used_until_it_is_old_or_doubted() {
        let resolver = Resolver::default();
        let settings = DnsSettings { ttl: Duration::from_secs(300), refresh: Some(Duration::from_secs(60)), queue_max: 1 };
        resolver.configure(settings);
        let now = Instant::now();
        assert_eq!(resolver.plan("db", now), Plan::LookUp(None));
        let addresses = known(&resolver, "db");
        assert_eq!(resolver.plan("db", now), Plan::Use(addresses.clone()));
        assert_eq!(resolver.plan("db", now + Duration::from_secs(301)), Plan::LookUp(Some(addresses.clone())));
        resolver.doubt("db");
        assert_eq!(resolver.plan("db", now), Plan::LookUp(Some(addresses)));
    }

    #[test]
    fn a_name_that_was_moved_no_longer_stands_for_its_old_address() {
        let resolver = Resolver::default();
        let (old, new) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        assert!(resolver.stands_for("db", old), "nothing is known");
        known(&resolver, "db");
        assert!(resolver.stands_for("db", old) && !resolver.stands_for("db", new));
        resolver.remember(&"db".into(), vec![new]);
        assert!(!resolver.stands_for("db", old) && resolver.stands_for("db", new));
    }

    #[test]
    fn names_are_looked_up_again_in_the_background() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let resolver = Resolver::default();
        resolver.remember(&"localhost".into(), vec![IpAddr::from([192, 0, 2, 1])]);
        runtime.block_on(resolver.refresh());
        assert!(!resolver.stands_for("localhost", IpAddr::from([192, 0, 2, 1])));
    }

    #[test]
    fn the_data_plane_is_given_what_is_known_and_the_rest_is_looked_up_behind_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let resolver = Resolver::default();
        resolver.configure(DnsSettings { ttl: Duration::from_secs(300), refresh: None, queue_max: 1 });
        let old = [IpAddr::from([192, 0, 2, 1])];
        assert_eq!(resolver.find("localhost"), None, "nothing is known");
        resolver.learn("localhost", &old);
        resolver.learn("nobody.invalid", &old);
        assert_eq!(resolver.find("localhost").as_deref(), Some(&old[..]));
        assert!(lock(&resolver.due).is_empty(), "it is fresh");
        for host in ["localhost", "nobody.invalid"] {
            AddressBook::doubt(&resolver, host);
            assert_eq!(resolver.find(host).as_deref(), Some(&old[..]), "{host}: it will do until it is looked up");
        }
        let looked_up = async {
            while !resolver.find("localhost").is_some_and(|found| found.iter().all(IpAddr::is_loopback)) {
                tokio::task::yield_now().await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                () = resolver.keep_fresh() => {}
                () = looked_up => {}
            }
        });
        assert_eq!(resolver.find("nobody.invalid").as_deref(), Some(&old[..]), "a name that cannot be looked up stays");
    }

    #[test]
    fn without_a_ttl_nothing_is_remembered() {
        let resolver = Resolver::default();
        resolver.configure(DnsSettings { ttl: Duration::ZERO, refresh: None, queue_max: 1 });
        known(&resolver, "db");
        assert_eq!(resolver.plan("db", Instant::now()), Plan::LookUp(None));
    }

    #[test]
    fn addresses_stand_for_themselves_and_names_are_bounded() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let resolver = Resolver::default();
            resolver.configure(DnsSettings { ttl: Duration::from_secs(1), refresh: None, queue_max: 0 });
            assert_eq!(*resolver.resolve(&"::1".into()).await.unwrap(), [IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]);
            assert!(resolver.resolve(&"localhost".into()).await.unwrap_err().to_string().contains("queue_maxsize"));
            assert_eq!(resolver.waiting.load(Ordering::Relaxed), 0);
        });
    }
}
