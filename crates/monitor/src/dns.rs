//! A bounded cache of the servers' names and addresses; the resolver itself is the system's.
//!
//! A name is looked up if its entry is older than `monitor_local_dns_cache_ttl`, and after a connect to all of its addresses failed. It is
//! also looked up in the background, to notice a moved name whose old address still answers. If a look-up fails, the known addresses stay
//! in use. A look-up continues after its callers gave up, and its answer is kept: a slow name server delays the first connect only. The
//! data plane ([`model::names::AddressBook`]) waits for no look-up once an address is known.
//!
//! An address that the answers lack may be gone, or may return later (round robin). It counts as gone if at least two answers in a row
//! lacked it, for the life of an entry (the smaller of ttl and refresh interval). If addresses of the name came back before, the time is
//! twice the longest of these absences.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::settings::MysqlVariables;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

/// Most names that are remembered; beyond it all are forgotten but those that were moved.
const NAMES_MAX: usize = 10_000;
/// Look-ups at a time: each has a thread of the runtime's.
pub(crate) const LOOKUPS_MAX: usize = 64;
/// Longest look-up, whether or not its callers still wait.
const LOOKUP_LIMIT: Duration = Duration::from_secs(30);
/// How long a probe waits for a look-up of a name whose old addresses are known.
const STALE_PATIENCE: Duration = Duration::from_millis(200);
/// Addresses of a name's earlier answers that are remembered; beyond it the oldest go.
const PAST_MAX: usize = 64;
/// Answers in a row that must lack an address before it is gone.
const GONE_AFTER: u32 = 2;

/// How often it is looked whether refreshing has been switched on.
const REFRESH_LOOK: Duration = Duration::from_secs(1);

/// The cache's part of the settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DnsSettings {
    /// An older entry is not used without a look-up; zero remembers nothing.
    ttl: Duration,
    /// Time between look-ups in the background; None for none.
    refresh: Option<Duration>,
    /// Names that may wait for a look-up.
    queue_max: usize,
}

impl DnsSettings {
    /// The durations and the limit that the variables set.
    pub(crate) fn of(vars: &MysqlVariables) -> Self {
        let refresh = vars.monitor_local_dns_cache_refresh_interval;
        Self {
            ttl: Duration::from_millis(vars.monitor_local_dns_cache_ttl),
            refresh: (refresh > 0).then(|| Duration::from_millis(refresh)),
            queue_max: usize::try_from(vars.monitor_local_dns_resolver_queue_maxsize).unwrap_or(usize::MAX),
        }
    }

    /// How long an entry is used before it is looked up again.
    fn life(&self) -> Duration {
        self.refresh.map_or(self.ttl, |refresh| refresh.min(self.ttl))
    }

    /// How long answers must lack an address before it is gone. `longest` is the longest absence of an address that came back.
    fn patience(&self, longest: Duration) -> Duration {
        (longest * 2).clamp(self.life(), self.longest_turn() * 2)
    }

    /// An address that returns after a longer absence was moved away and back.
    fn longest_turn(&self) -> Duration {
        self.ttl.max(self.life()) * 2
    }
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self::of(&MysqlVariables::default())
    }
}

/// The cache's counters, for ProxySQL's metrics.
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
    /// Addresses that earlier answers had, the oldest first.
    past: Vec<Past>,
    /// The longest absence of an address that came back.
    longest_absence: Duration,
    /// The addresses that [`Resolver::moved`] has reported as gone.
    gone: Vec<IpAddr>,
}

/// An address that the last answers lacked.
#[derive(Debug, Clone)]
struct Past {
    address: IpAddr,
    since: Instant,
    /// Answers in a row that lacked it.
    answers: u32,
}

/// A name whose gone addresses have changed.
#[derive(Debug, PartialEq)]
pub(crate) struct Moved {
    pub(crate) host: Arc<str>,
    pub(crate) addresses: Arc<[IpAddr]>,
    pub(crate) gone: Vec<IpAddr>,
    /// Addresses in `gone` that were not there in the last report.
    pub(crate) newly: Vec<IpAddr>,
}

/// The result of a look-up, shared by all callers that wait for it.
type Answer = Result<Arc<[IpAddr]>, (io::ErrorKind, String)>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Resolver {
    settings: Mutex<DnsSettings>,
    known: Mutex<HashMap<Arc<str>, Known>>,
    lookups: Semaphore,
    /// The look-ups that are waiting or at work: one for each name.
    under_way: Mutex<HashMap<Arc<str>, watch::Receiver<Option<Answer>>>>,
    pub(crate) counts: DnsCounts,
}

impl Default for Resolver {
    fn default() -> Self {
        Self {
            settings: Mutex::default(),
            known: Mutex::default(),
            lookups: Semaphore::new(LOOKUPS_MAX),
            under_way: Mutex::default(),
            counts: DnsCounts::default(),
        }
    }
}

/// Whether a name has to be looked up.
#[derive(Debug, PartialEq)]
enum Plan {
    Use(Arc<[IpAddr]>),
    /// Look it up; these will do if that fails.
    LookUp(Option<Arc<[IpAddr]>>),
}

impl Resolver {
    /// New settings apply to old entries too.
    pub(crate) fn configure(&self, settings: DnsSettings) {
        let mut known = lock(&self.known);
        *lock(&self.settings) = settings;
        if settings.ttl.is_zero() {
            // The rest goes once `moved` has reported that these addresses no longer count as gone.
            known.retain(|_, known| !known.gone.is_empty());
            known.values_mut().for_each(|known| known.past.clear());
        }
    }

    /// The addresses of a name, at least one. IP addresses stand for themselves.
    pub(crate) async fn resolve(self: &Arc<Self>, host: &str) -> io::Result<Arc<[IpAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Arc::from([ip]));
        }
        self.counts.queried.fetch_add(1, Ordering::Relaxed);
        match self.plan(host, Instant::now()) {
            Plan::Use(addresses) => {
                self.counts.hits.fetch_add(1, Ordering::Relaxed);
                Ok(addresses)
            }
            Plan::LookUp(None) => self.look_up(host).await,
            Plan::LookUp(Some(stale)) => match tokio::time::timeout(STALE_PATIENCE, self.look_up(host)).await {
                Ok(Ok(addresses)) => Ok(addresses),
                Ok(Err(_)) | Err(_) => Ok(stale),
            },
        }
    }

    /// The addresses may have changed: the next [`Resolver::resolve`] looks the name up.
    pub(crate) fn doubt(&self, host: &str) {
        if let Some(known) = lock(&self.known).get_mut(host) {
            known.is_doubted = true;
        }
    }

    /// Whether a connection to this address may be kept. False once the name has other addresses.
    pub(crate) fn stands_for(&self, host: &str, ip: IpAddr) -> bool {
        lock(&self.known).get(host).is_none_or(|known| known.addresses.contains(&ip))
    }

    /// Whether a name's first look-up is still running.
    pub(crate) fn is_unresolved(&self, host: &str) -> bool {
        lock(&self.under_way).contains_key(host) && !lock(&self.known).contains_key(host)
    }

    /// Looks every name up again, time after time.
    pub(crate) async fn keep_fresh(self: &Arc<Self>) {
        loop {
            let refresh = lock(&self.settings).refresh;
            tokio::time::sleep(refresh.unwrap_or(REFRESH_LOOK)).await;
            if refresh.is_some() {
                self.refresh().await;
            }
        }
    }

    /// A name whose server does not answer delays the others by [`STALE_PATIENCE`] at most.
    async fn refresh(self: &Arc<Self>) {
        let names: Vec<Arc<str>> = lock(&self.known).keys().cloned().collect();
        for some in names.chunks(LOOKUPS_MAX / 2) {
            let begun: Vec<_> = some.iter().filter_map(|host| self.begin(host).ok()).collect();
            for lookup in begun {
                let _ = tokio::time::timeout(STALE_PATIENCE, outcome(lookup)).await;
            }
        }
    }

    /// The names whose addresses that are gone have changed since this was last asked.
    pub(crate) fn moved(&self, now: Instant) -> Vec<Moved> {
        let settings = *lock(&self.settings);
        let mut moved = Vec::new();
        let mut all = lock(&self.known);
        for (host, known) in all.iter_mut().filter(|(_, known)| !known.past.is_empty() || !known.gone.is_empty()) {
            let gone = known.gone(now, settings.patience(known.longest_absence));
            if gone != known.gone {
                let newly = gone.iter().copied().filter(|address| !known.gone.contains(address)).collect();
                known.gone.clone_from(&gone);
                moved.push(Moved { host: Arc::clone(host), addresses: Arc::clone(&known.addresses), gone, newly });
            }
        }
        if settings.ttl.is_zero() {
            all.clear();
        }
        moved
    }

    fn plan(&self, host: &str, now: Instant) -> Plan {
        let ttl = lock(&self.settings).ttl;
        let known = lock(&self.known);
        let Some(known) = known.get(host).filter(|_| !ttl.is_zero()) else { return Plan::LookUp(None) };
        if known.is_doubted || now.saturating_duration_since(known.since) >= ttl {
            Plan::LookUp(Some(Arc::clone(&known.addresses)))
        } else {
            Plan::Use(Arc::clone(&known.addresses))
        }
    }

    /// Looks a name up, or waits for the look-up that is under way.
    pub(crate) async fn look_up(self: &Arc<Self>, host: &str) -> io::Result<Arc<[IpAddr]>> {
        outcome(self.begin(host)?).await
    }

    /// Starts a look-up, or joins the running one. It continues even if its callers give up.
    fn begin(self: &Arc<Self>, host: &str) -> io::Result<watch::Receiver<Option<Answer>>> {
        self.begin_with(host, ask_system(host.to_owned()))
    }

    fn begin_with(
        self: &Arc<Self>,
        host: &str,
        ask: impl Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    ) -> io::Result<watch::Receiver<Option<Answer>>> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let queue_max = lock(&self.settings).queue_max;
        let mut under_way = lock(&self.under_way);
        if let Some(lookup) = under_way.get(host) {
            return Ok(lookup.clone());
        }
        if under_way.len() >= queue_max {
            return Err(io::Error::other(format!(
                "{queue_max} names already wait for the resolver (mysql-monitor_local_dns_resolver_queue_maxsize)"
            )));
        }
        let (answer, lookup) = watch::channel(None);
        let host: Arc<str> = host.into();
        under_way.insert(Arc::clone(&host), lookup.clone());
        let entry = UnderWay { resolver: Arc::clone(self), host };
        runtime.spawn(async move { answer.send_replace(Some(entry.finish(ask).await)) });
        Ok(lookup)
    }

    fn remember(&self, host: &Arc<str>, addresses: Vec<IpAddr>, now: Instant) -> Arc<[IpAddr]> {
        let addresses: Arc<[IpAddr]> = addresses.into();
        // The settings are read under the lock of the entries: none is added after `configure` has cleared them.
        let mut known = lock(&self.known);
        let settings = *lock(&self.settings);
        if settings.ttl.is_zero() {
            return addresses;
        }
        if known.len() >= NAMES_MAX {
            known.retain(|_, known| !known.gone.is_empty());
        }
        let before = known.remove(host);
        if before.as_ref().is_none_or(|before| before.addresses != addresses) {
            self.counts.updated.fetch_add(1, Ordering::Relaxed);
        }
        known.insert(Arc::clone(host), Known::after(before, Arc::clone(&addresses), now, settings.longest_turn()));
        addresses
    }
}

impl Known {
    /// The entry after an answer. An address that returns within `longest_turn` was only absent in turn.
    fn after(before: Option<Self>, addresses: Arc<[IpAddr]>, now: Instant, longest_turn: Duration) -> Self {
        let fresh = Self { addresses, since: now, is_doubted: false, past: Vec::new(), longest_absence: Duration::ZERO, gone: Vec::new() };
        let Some(before) = before else { return fresh };
        let mut after = Self { longest_absence: before.longest_absence, gone: before.gone, ..fresh };
        for past in before.past {
            let absence = now.saturating_duration_since(past.since);
            match after.addresses.contains(&past.address) {
                false => after.past.push(Past { answers: past.answers.saturating_add(1), ..past }),
                true if absence <= longest_turn => after.longest_absence = after.longest_absence.max(absence),
                true => {}
            }
        }
        let missing = before.addresses.iter().filter(|address| !after.addresses.contains(address));
        after.past.extend(missing.map(|address| Past { address: *address, since: now, answers: 1 }));
        let surplus = after.past.len().saturating_sub(PAST_MAX);
        after.past.drain(..surplus);
        after
    }

    fn gone(&self, now: Instant, patience: Duration) -> Vec<IpAddr> {
        let is_gone = |past: &&Past| past.answers >= GONE_AFTER && now.saturating_duration_since(past.since) >= patience;
        self.past.iter().filter(is_gone).map(|past| past.address).collect()
    }
}

impl Resolver {
    /// [`model::names::AddressBook::find`].
    pub(crate) fn find(self: &Arc<Self>, host: &str) -> Option<Arc<[IpAddr]>> {
        self.counts.queried.fetch_add(1, Ordering::Relaxed);
        let addresses = match self.plan(host, Instant::now()) {
            Plan::Use(addresses) => addresses,
            Plan::LookUp(stale) => {
                let stale = stale?;
                // If the look-up cannot start, the next caller tries again.
                let _ = self.begin(host);
                stale
            }
        };
        self.counts.hits.fetch_add(1, Ordering::Relaxed);
        Some(addresses)
    }
}

/// A look-up's entry among those under way; gone with it, also where its runtime ends before.
struct UnderWay {
    resolver: Arc<Resolver>,
    host: Arc<str>,
}

impl UnderWay {
    /// Looks up in turn, and keeps the answer.
    async fn finish(self, ask: impl Future<Output = io::Result<Vec<IpAddr>>>) -> Answer {
        let _permit = self.resolver.lookups.acquire().await;
        let addresses = match tokio::time::timeout(LOOKUP_LIMIT, ask).await {
            Ok(answer) => answer.map_err(|e| (e.kind(), e.to_string()))?,
            Err(_) => {
                let why = format!("no name server has answered for {} within {} s", self.host, LOOKUP_LIMIT.as_secs());
                return Err((io::ErrorKind::TimedOut, why));
            }
        };
        Ok(self.resolver.remember(&self.host, addresses, Instant::now()))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.resolver.under_way).remove(&self.host);
    }
}

async fn outcome(mut lookup: watch::Receiver<Option<Answer>>) -> io::Result<Arc<[IpAddr]>> {
    let answer = lookup.wait_for(Option::is_some).await.map_err(|_| io::Error::other("the lookup was aborted"))?;
    match &*answer {
        Some(Ok(addresses)) => Ok(Arc::clone(addresses)),
        Some(Err((kind, why))) => Err(io::Error::new(*kind, why.clone())),
        None => Err(io::Error::other("the lookup was aborted")),
    }
}

async fn ask_system(host: String) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((&*host, 0)).await;
    let found = found.map_err(|e| io::Error::new(e.kind(), format!("cannot resolve '{host}': {e}")))?;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    addresses.dedup();
    if addresses.is_empty() {
        Err(io::Error::new(io::ErrorKind::NotFound, format!("the name {host} has no address")))
    } else {
        Ok(addresses)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const NEW: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn resolver(ttl_s: u64, refresh_s: Option<u64>) -> Arc<Resolver> {
        let resolver = Arc::new(Resolver::default());
        let refresh = refresh_s.map(Duration::from_secs);
        resolver.configure(DnsSettings { ttl: Duration::from_secs(ttl_s), refresh, queue_max: 16 });
        resolver
    }

    fn known(resolver: &Resolver, host: &str) -> Arc<[IpAddr]> {
        resolver.remember(&host.into(), vec![OLD], Instant::now())
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn an_entry_is_used_until_it_is_old_or_doubted() {
        let resolver = resolver(300, Some(60));
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
        assert!(resolver.stands_for("db", OLD), "nothing is known");
        known(&resolver, "db");
        assert!(resolver.stands_for("db", OLD) && !resolver.stands_for("db", NEW));
        resolver.remember(&"db".into(), vec![NEW], Instant::now());
        assert!(!resolver.stands_for("db", OLD) && resolver.stands_for("db", NEW));
    }

    /// The addresses reported as gone for a name whose answers are these, one each second.
    fn told(resolver: &Resolver, answers: &[IpAddr]) -> Vec<(usize, Vec<IpAddr>)> {
        let begun = Instant::now();
        let mut told = Vec::new();
        for (n, answer) in answers.iter().enumerate() {
            let now = begun + Duration::from_secs(n as u64);
            resolver.remember(&"db".into(), vec![*answer], now);
            told.extend(resolver.moved(now).into_iter().map(|moved| (n, moved.gone)));
        }
        told
    }

    #[test]
    fn an_address_is_gone_when_answers_have_lacked_it_for_the_life_of_an_entry() {
        assert_eq!(told(&resolver(300, Some(3)), &[OLD, NEW, NEW, NEW, NEW, NEW]), [(4, vec![OLD])], "once, after 3 s");
        assert_eq!(told(&resolver(2, None), &[OLD, NEW, NEW, NEW, OLD, OLD]), [(3, vec![OLD]), (4, vec![])], "it is back");
        assert_eq!(told(&resolver(1, None), &[OLD, OLD, NEW, OLD]), [], "one answer is not enough");
        let moved = resolver(2, None);
        told(&moved, &[OLD, NEW, NEW]);
        let all = moved.moved(Instant::now() + Duration::from_secs(9));
        let expected = Moved { host: "db".into(), addresses: [NEW].into(), gone: vec![OLD], newly: vec![OLD] };
        assert_eq!(all, [expected], "time alone makes it so, once two answers have lacked it");
    }

    #[test]
    fn addresses_that_take_turns_are_not_gone_all_the_time() {
        const TURNS: [u8; 5] = [1, 2, 3, 4, 5];
        let resolver = resolver(300, Some(3));
        let answers: Vec<IpAddr> = TURNS.iter().cycle().take(60).map(|n| IpAddr::from([192, 0, 2, *n])).collect();
        let told = told(&resolver, &answers);
        assert!(told.iter().all(|(n, _)| *n < 2 * TURNS.len()), "it was learnt in the first rounds: {told:?}");
        let later = Instant::now() + Duration::from_secs(3_600);
        resolver.remember(&"db".into(), vec![NEW], later);
        resolver.remember(&"db".into(), vec![NEW], later + Duration::from_secs(20));
        assert_eq!(resolver.moved(later + Duration::from_secs(21)).len(), 1, "a name that stops turning is noticed");
    }

    #[test]
    fn who_is_moved_and_moved_back_does_not_take_turns() {
        let answers: Vec<IpAddr> = (0..60).map(|n| if (n / 20) % 2 == 0 { OLD } else { NEW }).collect();
        let changes: Vec<usize> = told(&resolver(2, None), &answers).into_iter().map(|(n, _)| n).collect();
        assert_eq!(changes, [22, 40, 42], "back from an absence of 20 s, its patience is what it was");
    }

    #[test]
    fn names_are_looked_up_again_in_the_background() {
        let resolver = resolver(300, Some(60));
        known(&resolver, "localhost");
        runtime().block_on(resolver.refresh());
        assert!(!resolver.stands_for("localhost", OLD));
    }

    /// A name server that is slower than the callers' patience.
    #[test]
    fn an_answer_that_comes_too_late_is_kept() {
        runtime().block_on(async {
            let resolver = resolver(300, None);
            let (answer, slow) = tokio::sync::oneshot::channel();
            resolver.begin_with("db", async { slow.await.map_err(io::Error::other) }).unwrap();
            for _ in 0..3 {
                let asked = tokio::time::timeout(Duration::from_millis(5), resolver.resolve("db")).await;
                assert!(asked.is_err() && resolver.is_unresolved("db"));
            }
            assert_eq!(lock(&resolver.under_way).len(), 1, "one look-up, whoever asks");
            answer.send(vec![NEW]).unwrap();
            assert_eq!(*resolver.look_up("db").await.unwrap(), [NEW]);
            assert_eq!(resolver.find("db").as_deref(), Some(&[NEW][..]));
            assert!(!resolver.is_unresolved("db") && lock(&resolver.under_way).is_empty());
        });
    }

    #[test]
    fn what_is_old_serves_while_a_look_up_takes_long() {
        runtime().block_on(async {
            let resolver = resolver(300, None);
            known(&resolver, "db");
            resolver.doubt("db");
            resolver.begin_with("db", std::future::pending()).unwrap();
            assert_eq!(*resolver.resolve("db").await.unwrap(), [OLD]);
            assert!(!resolver.is_unresolved("db"), "something is known of it");
        });
    }

    #[test]
    fn the_data_plane_is_given_what_is_known_and_the_rest_is_looked_up_behind_it() {
        let resolver = resolver(300, None);
        assert_eq!(resolver.find("localhost"), None, "nothing is known");
        runtime().block_on(async {
            known(&resolver, "localhost");
            known(&resolver, "nobody.invalid");
            assert_eq!(resolver.find("localhost").as_deref(), Some(&[OLD][..]));
            assert!(lock(&resolver.under_way).is_empty(), "it is fresh");
            for host in ["localhost", "nobody.invalid"] {
                resolver.doubt(host);
                assert_eq!(resolver.find(host).as_deref(), Some(&[OLD][..]), "{host}: it will do until it is looked up");
            }
            while !resolver.find("localhost").is_some_and(|found| found.iter().all(IpAddr::is_loopback)) {
                tokio::task::yield_now().await;
            }
            assert_eq!(resolver.find("nobody.invalid").as_deref(), Some(&[OLD][..]), "a name that cannot be looked up stays");
        });
    }

    #[test]
    fn without_a_ttl_nothing_is_remembered() {
        let resolver = resolver(0, None);
        known(&resolver, "db");
        assert_eq!(resolver.plan("db", Instant::now()), Plan::LookUp(None));
    }

    #[test]
    fn a_ttl_that_becomes_zero_forgets_all_addresses() {
        let resolver = resolver(300, Some(3));
        let without = DnsSettings { ttl: Duration::ZERO, refresh: None, queue_max: 16 };
        known(&resolver, "db");
        resolver.configure(without);
        resolver.remember(&"db".into(), vec![NEW], Instant::now());
        assert_eq!(resolver.find("db"), None, "each connect looks the name up");
        assert!(resolver.stands_for("db", NEW) && lock(&resolver.known).is_empty());
        resolver.configure(DnsSettings { ttl: Duration::from_secs(300), refresh: Some(Duration::from_secs(3)), queue_max: 16 });
        assert_eq!(told(&resolver, &[OLD, NEW, NEW, NEW, NEW]), [(4, vec![OLD])]);
        resolver.configure(without);
        assert_eq!(resolver.find("db"), None);
        let moved = resolver.moved(Instant::now());
        assert_eq!(
            moved.into_iter().map(|moved| (moved.gone, moved.newly)).collect::<Vec<_>>(),
            [(Vec::<IpAddr>::new(), Vec::<IpAddr>::new())]
        );
        assert!(lock(&resolver.known).is_empty());
    }

    #[test]
    fn addresses_stand_for_themselves_and_look_ups_are_bounded() {
        runtime().block_on(async {
            let resolver = Arc::new(Resolver::default());
            resolver.configure(DnsSettings { ttl: Duration::from_secs(1), refresh: None, queue_max: 0 });
            assert_eq!(*resolver.resolve("::1").await.unwrap(), [IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]);
            assert!(resolver.resolve("localhost").await.unwrap_err().to_string().contains("queue_maxsize"));
            assert!(lock(&resolver.under_way).is_empty());
        });
    }
}
