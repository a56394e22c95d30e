//! Who heals a cluster, and the record of what was healed: `live/heal/CLUSTER/leader` and `live/heal/CLUSTER/state` in etcd.
//!
//! A leader is a key under a lease, which this proxy renews each second on connections of their own: an answer may take longer than that.
//! It stands for a key only while nobody holds it. INVARIANT: a leader's record is written only if the leader's key is still the one that
//! this proxy made, by its revision and by its value: an etcd that was restored counts its revisions again. [`Leading::renewed`] is a time
//! before etcd heard of the last renewal: a lease that is counted from it is over before etcd ends it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::fleet::RecordChange;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::etcd::{Entry, EtcdError, encode};
use crate::store::{LEASE_LINES, Store, is_at, put};
use crate::thread::{Seen, new_id};

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
    /// The value of its key, and the revision of etcd that made it.
    pub(crate) key: Option<(String, i64)>,
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

/// A leadership of this proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leading {
    /// When the last renewal of its lease was sent that succeeded.
    pub renewed: Instant,
    /// When this proxy learnt that it leads.
    pub obtained: Instant,
    /// The revision of etcd that made its key.
    pub made_at: i64,
}

/// This proxy's leaderships.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    wanted: watch::Sender<Wanted>,
    held: Mutex<Held>,
}

/// The clusters that this proxy would heal, and for how long that holds if it is not said again.
#[derive(Debug, Default)]
struct Wanted {
    clusters: BTreeSet<u32>,
    until: Option<Instant>,
}

impl Wanted {
    fn now(&self) -> BTreeSet<u32> {
        if self.until.is_some_and(|until| Instant::now() < until) { self.clusters.clone() } else { BTreeSet::new() }
    }
}

#[derive(Debug, Default)]
struct Held {
    /// When the last renewal was sent that succeeded.
    sent: Option<Instant>,
    /// The leaders' keys that this proxy made.
    keys: BTreeMap<u32, Key>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    /// Its create revision.
    made_at: i64,
    /// No other lease has the same.
    value: String,
    obtained: Instant,
}

impl Key {
    /// The conditions under which it is still there.
    fn holds(&self, key: &str) -> [Value; 2] {
        let value = json!({ "key": encode(key), "target": "VALUE", "result": "EQUAL", "value": encode(&self.value) });
        [is_made_at(key, self.made_at), value]
    }

    fn is(&self, entry: &Entry) -> bool {
        entry.create_revision == self.made_at && entry.value == self.value.as_bytes()
    }
}

impl Held {
    /// Gives up the leaderships of other clusters.
    fn take_all_but(&mut self, wanted: &BTreeSet<u32>) -> BTreeMap<u32, Key> {
        let (kept, lost) = std::mem::take(&mut self.keys).into_iter().partition(|(cluster, _)| wanted.contains(cluster));
        self.keys = kept;
        lost
    }

    fn is_over(&self) -> bool {
        self.sent.is_none_or(|sent| sent.elapsed() > Duration::from_secs(LEASE_S))
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
    /// The clusters that this proxy would heal, for so long. What is not wanted again in this time is given up.
    pub(crate) fn want(&self, clusters: BTreeSet<u32>, limit: Duration) {
        self.wanted.send_if_modified(|wanted| {
            let is_new = wanted.now() != clusters;
            *wanted = Wanted { clusters, until: Some(Instant::now() + limit) };
            is_new
        });
    }

    /// If this proxy leads there.
    pub(crate) fn leading(&self, cluster: u32) -> Option<Leading> {
        let held = self.held();
        let (renewed, key) = held.sent.zip(held.keys.get(&cluster))?;
        Some(Leading { renewed, obtained: key.obtained, made_at: key.made_at })
    }

    /// Where etcd is has changed: nothing is led there yet.
    pub(crate) fn forget(&self) {
        *self.held() = Held::default();
    }

    /// Other proxies need not wait for the lease to end.
    pub(crate) async fn resign(&self, store: &Store) {
        let keys = std::mem::take(&mut *self.held()).keys;
        for (cluster, key) in keys {
            leave(store, cluster, &key).await;
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes leader where that is wanted and nobody is, and stays it; until etcd is configured elsewhere. `name` is what others see.
    pub(crate) async fn keep(&self, store: &Arc<Store>, seen: &watch::Sender<Arc<Seen>>, name: impl Fn() -> String) {
        loop {
            let mut wanted = self.wanted.subscribe();
            if wanted.wait_for(|wanted| !wanted.now().is_empty()).await.is_err() {
                return;
            }
            // What fails is tried again; what is held lapses by itself.
            let _ = self.keep_once(store, seen, &name).await;
            *self.held() = Held::default();
            tokio::time::sleep(RENEW).await;
        }
    }

    /// One lease, until it ends or nothing is wanted.
    async fn keep_once(&self, store: &Arc<Store>, seen: &watch::Sender<Arc<Seen>>, name: impl Fn() -> String) -> Result<(), EtcdError> {
        let sent = Instant::now();
        let lease = store.lease(0).grant(LEASE_S).await?;
        self.held().sent = Some(sent);
        let value = json!({ "name": name(), "lease": lease.to_string(), "id": new_id() }).to_string();
        tokio::select! {
            ended = self.renew(store, lease) => ended,
            () = self.stand_on(store, seen.subscribe(), lease, &value) => Ok(()),
        }
    }

    /// Renews the lease each second, whether or not the renewals before were answered, while something is wanted. Returns when it has ended.
    async fn renew(&self, store: &Arc<Store>, lease: i64) -> Result<(), EtcdError> {
        let mut lines: Vec<usize> = (0..LEASE_LINES).collect();
        let mut under_way = JoinSet::new();
        let mut tick = tokio::time::interval(RENEW);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut fault = EtcdError::Away("no renewal of the lease was answered".to_owned());
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    let is_wanted = !self.wanted.borrow().now().is_empty();
                    if let Some(line) = lines.pop_if(|_| is_wanted) {
                        let (store, sent) = (Arc::clone(store), Instant::now());
                        under_way.spawn(async move { (line, sent, store.lease(line).keep(lease).await) });
                    }
                }
                Some(Ok((line, sent, kept))) = under_way.join_next() => {
                    lines.push(line);
                    match kept {
                        Ok(true) => {
                            let mut held = self.held();
                            held.sent = held.sent.max(Some(sent));
                        }
                        Ok(false) => return Ok(()),
                        // Members that answer again may still have it.
                        Err(error) => fault = error,
                    }
                }
            }
            if self.held().is_over() {
                return Err(fault);
            }
        }
    }

    /// Stands for keys that nobody holds, and gives up those that are not wanted any more. `value` is that of this lease's keys. Returns when
    /// nothing is wanted.
    /// INVARIANT: a key of this lease that etcd shows is either led by or deleted: a request without an answer may have been executed or not.
    async fn stand_on(&self, store: &Store, mut seen: watch::Receiver<Arc<Seen>>, lease: i64, value: &str) {
        let mut wanted = self.wanted.subscribe();
        loop {
            let now = wanted.borrow_and_update().now();
            let known = Arc::clone(&seen.borrow_and_update());
            let mut lost = self.held().take_all_but(&now);
            for (cluster, key) in unwanted(&known, &now, value) {
                lost.entry(cluster).or_insert(key);
            }
            for (cluster, key) in lost {
                leave(store, cluster, &key).await;
            }
            if now.is_empty() {
                return;
            }
            for cluster in now.iter().copied() {
                let own = self.held().keys.get(&cluster).cloned();
                match own {
                    // A failure here says nothing about the lease.
                    Some(key) if is_there(store, cluster, &key).await == Ok(false) => drop(self.held().keys.remove(&cluster)),
                    None if may_stand(&known, cluster, value) => {
                        if let Ok(Some(made_at)) = stand(store, cluster, value, lease).await {
                            let key = Key { made_at, value: value.to_owned(), obtained: Instant::now() };
                            self.held().keys.insert(cluster, key);
                        }
                    }
                    Some(_) | None => {}
                }
            }
            let is_due =
                |seen: &Seen| now.iter().any(|cluster| may_stand(seen, *cluster, value) && !self.held().keys.contains_key(cluster));
            let freed = async { while seen.changed().await.is_ok() && !is_due(&seen.borrow_and_update()) {} };
            tokio::select! {
                () = freed => {}
                _ = wanted.changed() => {}
                () = tokio::time::sleep(RENEW) => {}
            }
        }
    }

    /// Writes a record as `change` makes it of the present one, atomically. `as_leader` only while this proxy leads. `known` is the record
    /// that was seen last, with its revision. Returns the text and the revision that wrote it.
    pub(crate) async fn write(
        &self,
        store: &Store,
        cluster: u32,
        as_leader: bool,
        known: Option<(String, i64)>,
        mut change: RecordChange,
    ) -> Result<(String, i64), WriteError> {
        let (key, of_leader) = (store.key(&state(cluster)), store.key(&leader(cluster)));
        let leads = if as_leader { Some(self.held().keys.get(&cluster).cloned().ok_or(WriteError::NotLeader)?) } else { None };
        let (mut before, mut is_read) = (known, false);
        for _ in 0..TRIES {
            let next = match change(before.as_ref().map(|(text, _)| text.as_str())) {
                Ok(next) => next,
                Err(why) if is_read => return Err(WriteError::Unfit(why)),
                Err(_) => {
                    before = state_of(store.heal().range(&key, None, false).await?.entries.first())?;
                    is_read = true;
                    continue;
                }
            };
            if next.len() > LONGEST {
                return Err(WriteError::Unfit(format!("the record of hostgroup {cluster} would have more than {LONGEST} bytes")));
            }
            let mut compare = vec![is_at(&key, before.as_ref().map_or(0, |(_, revision)| *revision))];
            compare.extend(leads.iter().flat_map(|own| own.holds(&of_leader)));
            let acts = vec![put(&key, &encode(&next))];
            let (held, now) = store.heal().transact(compare, acts, vec![get(&key)]).await?;
            if held {
                return Ok((next, now.revision));
            }
            (before, is_read) = (state_of(now.entries.first())?, true);
            if let Some((_, revision)) = before.as_ref().filter(|(text, _)| *text == next) {
                // An answer was lost, and the transaction said twice.
                return Ok((next, *revision));
            }
            if let Some(own) = &leads
                && !is_there(store, cluster, own).await?
            {
                self.held().keys.remove(&cluster);
                return Err(WriteError::NotLeader);
            }
        }
        Err(WriteError::Overtaken)
    }
}

/// Whether nobody heals the cluster, as far as etcd was read, or the leader's key has this lease's `value`.
fn may_stand(seen: &Seen, cluster: u32, value: &str) -> bool {
    let is_own = |heal: &Heal| heal.key.as_ref().is_some_and(|(found, _)| found == value);
    seen.is_known && seen.heal.get(&cluster).is_none_or(|heal| heal.leader.is_none() || is_own(heal))
}

/// The keys with this lease's `value` in clusters that this proxy is not to heal.
fn unwanted(seen: &Seen, wanted: &BTreeSet<u32>, value: &str) -> BTreeMap<u32, Key> {
    let own = |(cluster, heal): (&u32, &Heal)| {
        let (found, made_at) = heal.key.as_ref().filter(|(found, _)| found == value && !wanted.contains(cluster))?;
        Some((*cluster, Key { made_at: *made_at, value: found.clone(), obtained: Instant::now() }))
    };
    seen.heal.iter().filter_map(own).collect()
}

/// Whether the leader's key is still the one that this proxy made.
async fn is_there(store: &Store, cluster: u32, own: &Key) -> Result<bool, EtcdError> {
    let now = store.heal().range(&store.key(&leader(cluster)), None, false).await?;
    Ok(now.entries.first().is_some_and(|entry| own.is(entry)))
}

/// Deletes the leader's key that this proxy made. If that fails, it is tried again while etcd shows the key; the key ends with the lease.
async fn leave(store: &Store, cluster: u32, own: &Key) {
    let key = store.key(&leader(cluster));
    let gone = json!({ "request_delete_range": { "key": encode(&key) } });
    let _ = store.heal().transact(own.holds(&key).to_vec(), vec![gone], Vec::new()).await;
}

/// Makes the leader's key where nobody leads. Returns the revision that made it, if it is this lease's.
async fn stand(store: &Store, cluster: u32, value: &str, lease: i64) -> Result<Option<i64>, EtcdError> {
    let key = store.key(&leader(cluster));
    let mut act = put(&key, &encode(value));
    act["request_put"]["lease"] = lease.to_string().into();
    let (is_made, now) = store.heal().transact(vec![is_made_at(&key, 0)], vec![act], vec![get(&key)]).await?;
    if is_made {
        return Ok(Some(now.revision));
    }
    Ok(now.entries.first().filter(|entry| entry.value == value.as_bytes()).map(|entry| entry.create_revision))
}

/// A record, with the revision that wrote it.
fn state_of(entry: Option<&Entry>) -> Result<Option<(String, i64)>, WriteError> {
    entry.map(|entry| Ok((text_of(entry).map_err(WriteError::Unfit)?, entry.mod_revision))).transpose()
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
                heal.key = Some((text, entry.create_revision));
            }
            "state" => heal.state = Some((text, entry.mod_revision)),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use model::settings::AdminVariables;

    use super::*;
    use crate::settings::Settings;

    #[test]
    fn keys_say_who_heals_and_what_was_healed() {
        let entry = |key: &str, value: &str, mod_revision| Entry {
            key: format!("/tidegate/main/live/heal/{key}"),
            value: value.as_bytes().to_vec(),
            mod_revision,
            create_revision: 1,
        };
        let leader = "{\"name\":\"p1\",\"lease\":\"7\"}";
        let entries = [
            entry("10/leader", leader, 4),
            entry("10/state", "{}", 9),
            entry("11/leader", "?", 5),
            entry("x/state", "{}", 6),
            entry("12", "{}", 7),
        ];
        let found = seen(entries.iter(), "/tidegate/main/live/heal/");
        let wanted = Heal { leader: Some("p1".into()), key: Some((leader.into(), 1)), state: Some(("{}".into(), 9)) };
        assert_eq!(found[&10], wanted);
        assert_eq!((found[&11].leader.as_deref(), found.len()), (Some("unknown"), 2));
    }

    fn key(made_at: i64, value: &str) -> Key {
        Key { made_at, value: value.to_owned(), obtained: Instant::now() }
    }

    #[test]
    fn a_proxy_leads_where_it_has_made_the_key() {
        let lead = Lead::default();
        assert_eq!(lead.leading(10), None);
        let (now, own) = (Instant::now(), key(4, "a"));
        *lead.held() = Held { sent: Some(now), keys: BTreeMap::from([(10, own.clone())]) };
        let leading = Leading { renewed: now, obtained: own.obtained, made_at: 4 };
        assert_eq!((lead.leading(10), lead.leading(11)), (Some(leading), None));
        assert!(lead.held().take_all_but(&BTreeSet::from([10])).is_empty());
        assert!(lead.leading(10).is_some());
        assert_eq!(lead.held().take_all_but(&BTreeSet::new()), BTreeMap::from([(10, own)]));
        assert_eq!(lead.leading(10), None);
    }

    /// An etcd that was restored or wiped gives the same revision to another proxy's key.
    #[test]
    fn a_key_is_known_by_its_revision_and_its_value() {
        let entry = |value: &str, create_revision| Entry {
            key: "leader".to_owned(),
            value: value.as_bytes().to_vec(),
            mod_revision: create_revision,
            create_revision,
        };
        let own = key(4, "a");
        assert!(own.is(&entry("a", 4)) && !own.is(&entry("b", 4)) && !own.is(&entry("a", 5)));
        let [made, value] = own.holds("leader");
        assert_eq!((&made["target"], &made["create_revision"]), (&json!("CREATE"), &json!("4")));
        assert_eq!((&value["target"], &value["value"]), (&json!("VALUE"), &json!(encode("a"))));
    }

    /// The monitor says in each round what it would heal: one that hangs says nothing more.
    #[test]
    fn what_is_wanted_is_given_up_unless_it_is_said_again() {
        let lead = Lead::default();
        let mut news = lead.wanted.subscribe();
        let ten = || BTreeSet::from([10]);
        lead.want(ten(), Duration::from_secs(60));
        assert!(news.has_changed().unwrap() && news.borrow_and_update().now() == ten());
        lead.want(ten(), Duration::from_secs(60));
        assert!(!news.has_changed().unwrap(), "nothing new");
        lead.want(ten(), Duration::ZERO);
        assert!(news.borrow().now().is_empty());
        lead.want(ten(), Duration::from_secs(60));
        assert!(news.has_changed().unwrap() && news.borrow_and_update().now() == ten(), "again");
    }

    /// What etcd says of hostgroup 10: its leader's name, and the value of the key.
    fn shown(is_known: bool, leader: Option<(&str, &str)>) -> Seen {
        let (name, key) = (leader.map(|(name, _)| name.to_owned()), leader.map(|(_, value)| (value.to_owned(), 4)));
        Seen { is_known, heal: BTreeMap::from([(10, Heal { leader: name, key, state: None })]), ..Seen::default() }
    }

    #[test]
    fn a_proxy_stands_only_where_it_knows_that_nobody_else_leads() {
        let none = Seen { is_known: true, ..Seen::default() };
        assert!(may_stand(&none, 10, "a") && may_stand(&shown(true, None), 10, "a"));
        assert!(!may_stand(&shown(true, Some(("two", "b"))), 10, "a") && !may_stand(&shown(false, None), 10, "a"));
        assert!(!may_stand(&shown(true, Some(("one", "before"))), 10, "a"), "a key of its lease before");
        assert!(may_stand(&shown(true, Some(("one", "a"))), 10, "a"), "it does not know that it made it");
    }

    #[test]
    fn a_key_that_was_not_deleted_is_given_up_again() {
        let (own, other) = (shown(true, Some(("one", "a"))), shown(true, Some(("two", "b"))));
        let left = unwanted(&own, &BTreeSet::from([11]), "a");
        assert!(left.len() == 1 && left[&10].made_at == 4 && left[&10].value == "a");
        assert!(unwanted(&own, &BTreeSet::from([10]), "a").is_empty() && unwanted(&other, &BTreeSet::new(), "a").is_empty());
    }

    /// The next request's body; None at the end of the connection.
    fn request(line: &mut BufReader<TcpStream>) -> Option<Value> {
        let mut bytes = 0;
        loop {
            let mut head = String::new();
            if line.read_line(&mut head).ok()? == 0 {
                return None;
            }
            match head.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => bytes = value.trim().parse().ok()?,
                None if head.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0_u8; bytes];
        line.read_exact(&mut body).ok()?;
        serde_json::from_slice(&body).ok()
    }

    /// An etcd with room for one key. It executes its first transactions and closes the connection without an answer.
    fn etcd(mut lost: usize) -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoints = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut key = None;
            for line in listener.incoming() {
                let mut line = BufReader::new(line.unwrap());
                while let Some(asked) = request(&mut line) {
                    let put = &asked["success"][0]["request_put"];
                    let is_made = key.is_none() && !put.is_null();
                    if is_made {
                        key = Some(json!({ "key": put["key"], "value": put["value"], "create_revision": "4", "mod_revision": "4" }));
                    }
                    if lost > 0 {
                        lost -= 1;
                        break;
                    }
                    let found = json!({ "kvs": key.iter().collect::<Vec<&Value>>() });
                    let (revision, responses) = (json!({ "revision": "4" }), json!([{ "response_range": found }]));
                    let answer =
                        json!({ "header": revision, "succeeded": is_made, "kvs": found["kvs"], "responses": responses }).to_string();
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
                    line.get_mut().write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        let mut vars = AdminVariables::default();
        vars.set("shared_config_endpoints", &endpoints).unwrap();
        Store::new(&Arc::new(Settings::read(&vars).unwrap().unwrap()))
    }

    #[test]
    fn a_proxy_leads_by_a_key_that_it_made_without_an_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // A request is sent twice.
            let (store, lead) = (etcd(2), Lead::default());
            let seen = watch::Sender::new(Arc::new(Seen { is_known: true, ..Seen::default() }));
            lead.want(BTreeSet::from([10]), Duration::from_secs(60));
            lead.held().sent = Some(Instant::now());
            let led = async {
                tokio::time::sleep(RENEW / 2).await;
                assert_eq!(lead.leading(10), None);
                seen.send_replace(Arc::new(shown(true, Some(("one", "a")))));
                while lead.leading(10).is_none() {
                    tokio::time::sleep(RENEW / 100).await;
                }
                lead.leading(10)
            };
            let led = tokio::select! {
                () = lead.stand_on(&store, seen.subscribe(), 7, "a") => None,
                led = tokio::time::timeout(RENEW * 10, led) => led.ok().flatten(),
            };
            assert_eq!(led.map(|leading| leading.made_at), Some(4));
        });
    }
}
