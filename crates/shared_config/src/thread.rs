//! The thread that follows etcd: its content, this proxy's own line, requests of other threads.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::fleet::RecordChange;
use tokio::sync::watch;

use crate::etcd::{Change, Entry, EtcdError};
use crate::heal::{self, Heal, Lead, Leading, WriteError};
use crate::manifest::{Manifest, ProxyLine, Revision};
use crate::parts::sum;
use crate::settings::Settings;
use crate::store::{Head, PublishError, Store, end, head, json_of};

/// Seconds that a proxy's line outlives its last sign of life.
const LEASE_S: u64 = 15;
/// Time between signs of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(4);
/// Time between looks whether the watch has missed something.
const LOOK: Duration = Duration::from_secs(5);
/// Waits after failures.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long a start or stop of another thread's waits for an answer that never comes otherwise: many parts of a large configuration.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether etcd is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Link {
    /// Nothing is shared.
    #[default]
    Off,
    /// It was not reached yet.
    Connecting,
    /// The last request was answered.
    Up,
    /// It is not reached since this time (Unix seconds), for this reason.
    Down(i64, String),
}

/// The last state read from etcd.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Whether it is reached.
    pub link: Link,
    /// Whether etcd was read since it was configured. Only then a missing head means that there is none.
    pub is_known: bool,
    /// The manifest; None if there is none, or see `fault`.
    pub head: Option<Arc<Head>>,
    /// Why the manifest in etcd cannot be read.
    pub fault: Option<String>,
    /// Every live proxy.
    pub proxies: Vec<ProxyLine>,
    /// Orders by their name, as they were written, with the revision of etcd that wrote each.
    pub orders: BTreeMap<String, (String, i64)>,
    /// Who heals each cluster, and what was healed.
    pub heal: BTreeMap<u32, Heal>,
}

/// Counters for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Times that etcd was lost.
    pub lost: AtomicU64,
    /// Watches begun; each loss of etcd adds one.
    pub watches: AtomicU64,
    /// Revisions that were published here.
    pub published: AtomicU64,
    /// Publications that lost against another proxy's.
    pub races_lost: AtomicU64,
    /// Revisions and lists of keys that were refused because they were too large.
    pub too_large: AtomicU64,
}

/// See the crate.
#[derive(Debug)]
pub struct SharedConfig {
    settings: watch::Sender<Option<Arc<Settings>>>,
    store: watch::Sender<Option<Arc<Store>>>,
    seen: watch::Sender<Arc<Seen>>,
    report: watch::Sender<ProxyLine>,
    resting: Arc<AtomicBool>,
    lead: Lead,
    stopped: watch::Sender<bool>,
    runtime: tokio::runtime::Handle,
    /// Read by the metrics.
    pub counts: Counts,
}

/// A unique id: UUID version 4, RFC 9562.
pub fn new_id() -> String {
    let mut bytes = [0_u8; 16];
    // It fails where the system has no randomness at all; the time is as good as nothing then.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        bytes = now.as_nanos().to_be_bytes();
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl SharedConfig {
    /// Starts the thread. It does nothing until [`SharedConfig::configure`] says where etcd is. While `resting` is set, this proxy writes
    /// nothing of itself: another process takes its place.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(me: ProxyLine, resting: Arc<AtomicBool>) -> io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::new(Self {
            settings: watch::Sender::new(None),
            store: watch::Sender::new(None),
            seen: watch::Sender::default(),
            report: watch::Sender::new(me),
            resting,
            lead: Lead::default(),
            stopped: watch::Sender::new(false),
            runtime: runtime.handle().clone(),
            counts: Counts::default(),
        });
        let me = Arc::clone(&shared);
        let body = move || {
            runtime.block_on(async {
                let mut stopped = me.stopped.subscribe();
                tokio::select! {
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                    () = me.keep_up() => {}
                }
            });
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("shared-config".to_owned()).spawn(body)?;
        Ok(shared)
    }

    /// Sets the place of etcd; `None` if nothing is shared.
    pub fn configure(&self, settings: Option<Settings>) {
        self.settings.send_if_modified(|now| {
            let is_new = now.as_deref() != settings.as_ref();
            if is_new {
                *now = settings.map(Arc::new);
            }
            is_new
        });
    }

    /// Ends the thread. The proxy's line goes at once, unless another process takes its place. Blocks for a second at most.
    pub fn stop(self: &Arc<Self>) {
        let store = self.store.borrow().clone().filter(|_| self.seen().link == Link::Up && !self.is_resting());
        if let Some(store) = store {
            let (gone, is_gone) = std::sync::mpsc::channel();
            let (me, name) = (Arc::clone(self), self.own_name());
            self.runtime.spawn(async move {
                me.lead.resign(&store).await;
                let _ = gone.send(store.etcd().delete(&store.key(&name)).await);
            });
            let _ = is_gone.recv_timeout(Duration::from_secs(1));
        }
        self.stopped.send_replace(true);
    }

    /// The last state, without waiting.
    pub fn seen(&self) -> Arc<Seen> {
        self.seen.borrow().clone()
    }

    /// The last state, and notice of each change.
    pub fn news(&self) -> watch::Receiver<Arc<Seen>> {
        self.seen.subscribe()
    }

    /// Changes this proxy's line. It is written to etcd soon after.
    pub fn report(&self, change: impl FnOnce(&mut ProxyLine)) {
        self.report.send_if_modified(|line| {
            let before = line.clone();
            change(line);
            *line != before
        });
    }

    /// This proxy's line.
    pub fn line(&self) -> ProxyLine {
        self.report.borrow().clone()
    }

    fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Acquire)
    }

    fn current(&self) -> Result<Arc<Store>, EtcdError> {
        let seen = self.seen.borrow();
        match &seen.link {
            Link::Off => Err(EtcdError::Away("nothing is shared".to_owned())),
            Link::Connecting => Err(EtcdError::Away("etcd was not reached yet".to_owned())),
            Link::Down(since, why) => Err(EtcdError::Away(format!("for {} s: {why}", now_s() - since))),
            Link::Up => self.store.borrow().clone().ok_or_else(|| EtcdError::Away("nothing is shared".to_owned())),
        }
    }

    /// Has something done on the thread, and waits for it. For threads that are not a runtime's.
    fn wait<T: Send + 'static, F>(&self, act: impl FnOnce(Arc<Store>) -> F) -> Result<T, EtcdError>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (answer, answered) = std::sync::mpsc::channel();
        let work = act(self.current()?);
        self.runtime.spawn(async move {
            let _ = answer.send(work.await);
        });
        answered.recv_timeout(PATIENCE).map_err(|_| EtcdError::Away("no answer in time".to_owned()))
    }

    /// Publishes a revision; see [`PublishError`]. Blocks.
    ///
    /// # Errors
    /// Nothing was published, or (etcd has not answered) it is not known; what etcd has then comes as news.
    pub fn publish(self: &Arc<Self>, text: String, manifest: Manifest, base: i64) -> Result<Head, PublishError> {
        let outcome = self.wait(move |store| async move {
            let head = store.publish(&text, manifest, base).await?;
            // The caller need not wait for it.
            let (store, old) = (Arc::clone(&store), head.clone());
            tokio::spawn(async move {
                if let Err(error) = store.collect(&old).await {
                    tracing::debug!("cannot delete old parts of the shared configuration: {error}");
                }
            });
            Ok(head)
        });
        let outcome = outcome.unwrap_or_else(|error| Err(PublishError::Etcd(error)));
        match &outcome {
            Ok(head) => {
                self.counts.published.fetch_add(1, Ordering::Relaxed);
                self.note_head(Some(head.clone()));
            }
            Err(PublishError::Lost(head)) => {
                self.counts.races_lost.fetch_add(1, Ordering::Relaxed);
                self.note_head(head.as_deref().cloned());
            }
            Err(PublishError::Etcd(error)) => _ = self.measured::<()>(Err(error.clone())),
        }
        outcome
    }

    /// Takes a head that is known before the watch reports it.
    fn note_head(&self, head: Option<Head>) {
        self.seen.send_if_modified(|seen| {
            let is_news = head.as_ref().is_some_and(|head| seen.head.as_ref().is_none_or(|known| known.mod_revision < head.mod_revision));
            if is_news {
                Arc::make_mut(seen).head = head.map(Arc::new);
            }
            is_news
        });
    }

    /// The text of a revision. Blocks.
    ///
    /// # Errors
    /// etcd does not answer, or has not all of it.
    pub fn text(&self, revision: Revision) -> Result<String, EtcdError> {
        self.measured(self.wait(move |store| async move { store.text(&revision).await })?)
    }

    /// The text of a revision, for tasks on the thread.
    ///
    /// # Errors
    /// See [`SharedConfig::text`].
    pub async fn read(&self, revision: &Revision) -> Result<String, EtcdError> {
        let store = self.current()?;
        self.measured(store.text(revision).await)
    }

    fn measured<T>(&self, outcome: Result<T, EtcdError>) -> Result<T, EtcdError> {
        if matches!(outcome, Err(EtcdError::TooLarge(_))) {
            self.counts.too_large.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Manifests that held, the newest first. Blocks.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn history(&self) -> Result<Vec<Manifest>, EtcdError> {
        self.wait(|store| async move { store.history().await })?
    }

    /// Gives an order to all, or takes it back. Blocks.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn order(&self, name: &str, value: Option<&str>) -> Result<bool, EtcdError> {
        let (name, value) = (format!("live/orders/{name}"), value.map(str::to_owned));
        self.wait(move |store| async move {
            let key = store.key(&name);
            match value {
                Some(value) => store.etcd().put(&key, value.as_bytes(), None).await.map(|()| true),
                None => store.etcd().delete(&key).await,
            }
        })?
    }

    /// Gives an order that ends by itself after `seconds`. Its key must last have been written by the etcd revision `base` (0: it must not
    /// exist). Returns whether it was given. Blocks.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn order_if(&self, name: &str, value: &str, base: i64, seconds: u64) -> Result<bool, EtcdError> {
        let (name, value) = (format!("live/orders/{name}"), value.to_owned());
        self.wait(move |store| async move {
            let lease = store.etcd().grant(seconds).await?;
            store.put_if(&name, &value, base, lease).await
        })?
    }

    /// Gives an order that ends by itself after `seconds`. Blocks.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn order_for(&self, name: &str, value: &str, seconds: u64) -> Result<(), EtcdError> {
        let (name, value) = (format!("live/orders/{name}"), value.to_owned());
        self.wait(move |store| async move {
            let lease = store.etcd().grant(seconds).await?;
            store.etcd().put(&store.key(&name), value.as_bytes(), Some(lease)).await
        })?
    }

    /// Writes a key below the orders that ends by itself after `seconds`. For tasks on the thread.
    ///
    /// # Errors
    /// etcd does not answer.
    pub async fn tell(&self, name: &str, value: &str, seconds: u64) -> Result<(), EtcdError> {
        let store = self.current()?;
        let lease = store.etcd().grant(seconds).await?;
        store.etcd().put(&store.key(&format!("live/orders/{name}")), value.as_bytes(), Some(lease)).await
    }

    /// Takes an order back if it still has this value. Does not wait for etcd.
    pub fn take_back(&self, name: &str, value: &str) {
        let (store, name, value) = (self.current(), format!("live/orders/{name}"), value.to_owned());
        if let Ok(store) = store {
            self.runtime.spawn(async move {
                // It ends by itself otherwise.
                let _ = store.delete_if(&name, &value).await;
            });
        }
    }

    /// The clusters that this proxy would heal: it becomes the healer of each where no other proxy is. It gives them up after `limit` unless
    /// this is said again.
    pub fn lead(&self, clusters: BTreeSet<u32>, limit: Duration) {
        self.lead.want(clusters, limit);
    }

    /// If this proxy is the healer of a cluster.
    pub fn leading(&self, cluster: u32) -> Option<Leading> {
        self.lead.leading(cluster)
    }

    /// What all proxies have in common that may heal by the same leases: a sum of the place of their keys, as 32 hexadecimal digits. Empty
    /// while nothing is shared.
    pub fn scope(&self) -> String {
        let mut scope = self.settings.borrow().as_ref().map(|settings| sum(settings.root.as_bytes())).unwrap_or_default();
        scope.truncate(32);
        scope
    }

    /// Writes the record of a cluster's healing as `change` makes it of the present one; as its healer, only while this proxy is that.
    /// Returns the revision that wrote it. Blocks.
    ///
    /// # Errors
    /// It was not written; or etcd has not answered, and it may have been.
    pub fn write_heal(self: &Arc<Self>, cluster: u32, as_leader: bool, change: RecordChange) -> Result<i64, WriteError> {
        let me = Arc::clone(self);
        // One question less: if it is not the present one, the transaction says which is.
        let known = self.seen.borrow().heal.get(&cluster).and_then(|heal| heal.state.clone());
        let written = self.wait(move |store| async move { me.lead.write(&store, cluster, as_leader, known, change).await })?;
        let (text, revision) = written?;
        // Known before the watch reports it.
        self.seen.send_modify(|seen| {
            let heal = Arc::make_mut(seen).heal.entry(cluster).or_default();
            if heal.state.as_ref().is_none_or(|(_, known)| *known < revision) {
                heal.state = Some((text, revision));
            }
        });
        Ok(revision)
    }

    /// Has something done that blocks, on a thread of its own.
    pub async fn block_on<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.runtime.spawn_blocking(work).await.ok()
    }

    /// Follows each configuration of where etcd is.
    async fn keep_up(&self) {
        let mut settings = self.settings.subscribe();
        loop {
            let now = settings.borrow_and_update().clone();
            let link = if now.is_some() { Link::Connecting } else { Link::Off };
            self.seen.send_replace(Arc::new(Seen { link, ..Seen::default() }));
            let store = now.map(|settings| Arc::new(Store::new(&settings)));
            self.store.send_replace(store.clone());
            self.lead.forget();
            let serve = async {
                match &store {
                    None => std::future::pending().await,
                    Some(store) => {
                        let name = || self.report.borrow().name.clone();
                        tokio::join!(self.follow(store), self.stay(store), self.lead.keep(store, &self.seen, name))
                    }
                }
            };
            tokio::select! {
                changed = settings.changed() => if changed.is_err() { return },
                _ = serve => {}
            }
            if let Some(store) = store {
                self.leave(&store);
            }
        }
    }

    /// The line of a proxy that shares nothing more goes at once.
    fn leave(&self, store: &Arc<Store>) {
        let (store, name) = (Arc::clone(store), self.own_name());
        tokio::spawn(async move {
            let _ = store.etcd().delete(&store.key(&name)).await;
        });
    }

    fn own_name(&self) -> String {
        format!("live/proxies/{}", self.report.borrow().uuid)
    }

    /// Keeps [`Seen`] up to date for ever.
    async fn follow(&self, store: &Store) {
        let mut wait = BACK_OFF.0;
        loop {
            let (began, why) = (Instant::now(), self.follow_once(store).await);
            self.lost(&why);
            if began.elapsed() > BACK_OFF.1 {
                wait = BACK_OFF.0;
            }
            // Not all proxies come at once.
            let part = u32::try_from(now_ns() % 512).unwrap_or_default() + 512;
            tokio::time::sleep(wait * part / 1_024).await;
            wait = (wait * 2).min(BACK_OFF.1);
        }
    }

    /// Lists, then watches, until that ends; why.
    async fn follow_once(&self, store: &Store) -> String {
        let live = store.key("live/");
        let listed = match store.etcd().range(&live, Some(&end(&live)), false).await {
            Ok(listed) => listed,
            Err(error) => return error.to_string(),
        };
        let mut keys: BTreeMap<String, Entry> = listed.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        if let Err(error) = self.bounded(store, &keys) {
            return error.to_string();
        }
        self.publish_seen(store, &keys, true);
        let mut watch = match store.etcd().watch(&live, &end(&live), listed.revision + 1).await {
            Ok(watch) => watch,
            Err(error) => return error.to_string(),
        };
        self.counts.watches.fetch_add(1, Ordering::Relaxed);
        let mut look = tokio::time::interval_at(tokio::time::Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut newest = listed.revision;
        loop {
            tokio::select! {
                changes = watch.next() => match changes {
                    Err(why) => return why,
                    Ok(changes) => {
                        for change in changes {
                            match change {
                                Change::Put(entry) => {
                                    newest = newest.max(entry.mod_revision);
                                    keys.insert(entry.key.clone(), entry);
                                }
                                Change::Gone(key, revision) => {
                                    newest = newest.max(revision);
                                    keys.remove(&key);
                                }
                            }
                        }
                        if let Err(error) = self.bounded(store, &keys) {
                            return error.to_string();
                        }
                        self.publish_seen(store, &keys, false);
                    }
                },
                // A watch on a member that has stopped, or that was cut off, says nothing.
                _ = look.tick() => match self.has_missed(store, &keys, newest).await {
                    Ok(false) => {}
                    Ok(true) => return "the watch missed a change".to_owned(),
                    Err(error) => return error.to_string(),
                },
            }
        }
    }

    /// Fails if the kept keys take more than the limit, whichever client writes them.
    fn bounded(&self, store: &Store, keys: &BTreeMap<String, Entry>) -> Result<(), EtcdError> {
        let (bytes, limit) = (keys.values().map(Entry::bytes).sum::<u64>(), store.etcd().settings().max_bytes);
        let refused = || EtcdError::too_large(&format!("etcd, below {},", store.key("live/")), limit);
        self.measured(if bytes > limit { Err(refused()) } else { Ok(()) })
    }

    /// Whether the manifest or a record of healing differs from the watch's, or etcd's revisions begin again.
    async fn has_missed(&self, store: &Store, keys: &BTreeMap<String, Entry>, newest: i64) -> Result<bool, EtcdError> {
        let (config, heal) = (store.key("live/config"), store.key("live/heal/"));
        let now = store.etcd().range(&config, None, true).await?;
        let healed = store.etcd().range(&heal, Some(&end(&heal)), true).await?;
        let is_older = now.revision < newest || healed.revision < newest;
        Ok(is_older || is_behind(keys, &config, &now.entries) || is_behind(keys, &heal, &healed.entries))
    }

    /// A list is complete. A watch may be behind this proxy's own publication, so it never replaces a newer head.
    fn publish_seen(&self, store: &Store, keys: &BTreeMap<String, Entry>, is_list: bool) {
        let (proxies, orders) = (store.key("live/proxies/"), store.key("live/orders/"));
        let below = |prefix: &str| keys.values().filter(move |entry| entry.key.starts_with(prefix)).collect::<Vec<_>>();
        let (now, fault) = match keys.get(&store.key("live/config")).map(head) {
            Some(Ok(head)) => (Some(Arc::new(head)), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let known = self.seen.borrow().head.clone().filter(|_| !is_list);
        let healed = if is_list { BTreeMap::new() } else { self.seen.borrow().heal.clone() };
        let now = match (now, known) {
            (Some(now), Some(known)) if now.mod_revision < known.mod_revision => Some(known),
            (now, _) => now,
        };
        let prefix = store.key("live/heal/");
        let mut heal = heal::seen(below(&prefix).into_iter(), &prefix);
        for (cluster, known) in healed {
            let now = heal.entry(cluster).or_default();
            let revision = |state: &Option<(String, i64)>| state.as_ref().map_or(0, |(_, revision)| *revision);
            if revision(&now.state) > 0 && revision(&now.state) < revision(&known.state) {
                now.state = known.state;
            }
        }
        let seen = Seen {
            heal,
            link: Link::Up,
            is_known: true,
            head: now,
            fault,
            proxies: below(&proxies).iter().filter_map(|entry| serde_json::from_slice(&entry.value).ok()).collect(),
            orders: below(&orders)
                .iter()
                .filter_map(|entry| {
                    let name = entry.key.strip_prefix(&orders)?.to_owned();
                    Some((name, (String::from_utf8(entry.value.clone()).ok()?, entry.mod_revision)))
                })
                .collect(),
        };
        if let Link::Down(since, _) = &self.seen.borrow().link {
            tracing::info!("shared configuration: etcd is reached again after {} s", now_s() - since);
        }
        self.seen.send_replace(Arc::new(seen));
    }

    /// etcd cannot be reached: the last state stays.
    fn lost(&self, why: &str) {
        let is_reached = why.starts_with("the watch");
        self.seen.send_if_modified(|seen| {
            if is_reached || matches!(&seen.link, Link::Down(_, known) if known == why) {
                return false;
            }
            let since = match &seen.link {
                Link::Down(since, _) => *since,
                _ => {
                    tracing::warn!(
                        "shared configuration: {why}; the present revision stays in force, and changes are refused until etcd is back"
                    );
                    self.counts.lost.fetch_add(1, Ordering::Relaxed);
                    now_s()
                }
            };
            Arc::make_mut(seen).link = Link::Down(since, why.to_owned());
            true
        });
    }

    /// Keeps this proxy's line there for ever.
    async fn stay(&self, store: &Store) {
        loop {
            if let Err(error) = self.stay_once(store).await {
                tracing::debug!("shared configuration: cannot write this proxy's line: {error}");
            }
            tokio::time::sleep(BACK_OFF.1 / 4).await;
        }
    }

    /// A lease, and the line under it, until the lease ends.
    async fn stay_once(&self, store: &Store) -> Result<(), EtcdError> {
        let (mut report, mut seen) = (self.report.subscribe(), self.news());
        let lease = store.etcd().grant(LEASE_S).await?;
        let mut is_due = true;
        loop {
            if is_due && !self.is_resting() {
                let line = report.borrow_and_update().clone();
                let key = store.key(&format!("live/proxies/{}", line.uuid));
                store.etcd().put(&key, &json_of(&line), Some(lease)).await?;
                is_due = false;
            }
            tokio::select! {
                changed = report.changed() => is_due |= changed.is_ok(),
                // If another client deletes the line, or its lease ends, it is written again.
                changed = seen.changed() => is_due |= changed.is_ok() && self.is_missing(&seen.borrow_and_update()),
                () = tokio::time::sleep(SIGN_OF_LIFE) => {
                    if !store.etcd().keep(lease).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Whether all proxies are known, and this one is not among them.
    fn is_missing(&self, seen: &Seen) -> bool {
        let uuid = &self.report.borrow().uuid;
        seen.link == Link::Up && seen.proxies.iter().all(|line| line.uuid != *uuid)
    }

    /// Runs `act` on the thread, without waiting.
    pub fn spawn(&self, act: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(act);
    }
}

/// Whether a key below `prefix` has changed, has come or is gone, without a report of the watch. `now` holds all of them as they are. If the
/// watch is ahead of `now`, the answer may be true without need: then the keys are only listed again.
fn is_behind(keys: &BTreeMap<String, Entry>, prefix: &str, now: &[Entry]) -> bool {
    let is_newer = |entry: &Entry| keys.get(&entry.key).is_none_or(|known| known.mod_revision < entry.mod_revision);
    let is_gone = |key: &String| key.starts_with(prefix) && now.iter().all(|entry| entry.key != *key);
    now.iter().any(is_newer) || keys.keys().any(is_gone)
}

fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_says_nothing_is_behind() {
        let entry = |key: &str, mod_revision| Entry { key: key.to_owned(), value: Vec::new(), mod_revision, create_revision: 1 };
        let known = [entry("heal/1/leader", 4), entry("heal/1/state", 5), entry("other", 6)];
        let known = BTreeMap::from(known.map(|entry| (entry.key.clone(), entry)));
        let is_behind = |now: &[Entry]| is_behind(&known, "heal/", now);
        assert!(!is_behind(&[entry("heal/1/leader", 4), entry("heal/1/state", 5)]));
        assert!(!is_behind(&[entry("heal/1/leader", 3), entry("heal/1/state", 5)]), "the watch is ahead");
        assert!(is_behind(&[entry("heal/1/leader", 4), entry("heal/1/state", 7)]), "changed");
        assert!(is_behind(&[entry("heal/1/state", 5)]), "gone");
        assert!(is_behind(&[entry("heal/1/leader", 4), entry("heal/1/state", 5), entry("heal/2/state", 7)]), "new");
    }
}
