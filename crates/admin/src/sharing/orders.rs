//! Orders that hold for all proxies of the cluster: a pause, drain or preference by one proxy is carried out by all. The other proxies also
//! hold their sessions while one makes a switchover.
//!
//! Below `orders/` in etcd, `paused/HOSTGROUP`, `drained/SERVER` and `preferred/HOSTGROUP` exist as long as they hold. `failback/HOSTGROUP`
//! is carried out once, whenever it is written. `switchover/HOSTGROUP` ends with its lease, and the proxies answer it under
//! `held/HOSTGROUP/UUID`. Observed states are never written there.
//!
//! Preferred and drained servers outlive this process, so the first reading also takes back orders that ended before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::fleet::{Company, CompanyHold, Held, Operator, StandingOrder};
use model::{HostgroupId, ServerAddr};
use serde::{Deserialize, Serialize};
use shared_config::{EtcdError, Link, Seen, new_id};

use super::Sharing;
use crate::take_over::Frozen;

/// How long a proxy waits to see the new writer before its sessions continue.
const SEEN_WITHIN: Duration = Duration::from_secs(3);
/// How much longer than its limit an order to wait is kept.
const SPARE: Duration = Duration::from_secs(2);
/// Seconds that the end of a switchover can be read.
const OVER_S: u64 = 30;
/// Time between attempts to carry out what could not be.
const AGAIN: Duration = Duration::from_secs(2);

/// The value of `switchover/HOSTGROUP`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Wait {
    id: String,
    /// The proxy that switches over: its uuid, then its name.
    by: String,
    proxy: String,
    hostgroups: Vec<u32>,
    /// How long a proxy may wait until nothing runs, ms.
    patience_ms: u64,
    /// When sessions go on whatever happens, ms after this was read.
    limit_ms: u64,
    /// The new writer, once the switchover is over.
    writer: Option<String>,
}

/// The value of `held/HOSTGROUP/UUID`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Answer {
    id: String,
    /// Why this proxy does not wait; empty when it does.
    error: String,
}

/// A hold on behalf of another proxy's switchover.
enum Hold {
    /// Nothing is held yet.
    Asked,
    /// Sessions wait.
    Held(Box<dyn Held>),
    /// It is over, or was refused.
    Over,
}

/// The holds of switchovers: by hostgroup, the order's id and the state.
type Holds = Arc<Mutex<BTreeMap<String, (String, Hold)>>>;

/// Carries out all proxies' orders on this one.
pub(super) struct Orders {
    operator: Arc<dyn Operator>,
    standing: BTreeSet<StandingOrder>,
    /// The revision of the fail-back that was carried out last, by hostgroup.
    failbacks: BTreeMap<String, i64>,
    /// Hostgroups whose fail-back came before this process read the orders. It is carried out once the servers were looked at.
    missed: BTreeSet<HostgroupId>,
    /// Whether the orders were read once: earlier fail-backs are over.
    is_known: bool,
    failed: Option<Instant>,
    holds: Holds,
}

fn server(text: &str) -> Option<ServerAddr> {
    if text.starts_with('/') {
        return Some(ServerAddr { host: text.into(), port: 0 });
    }
    let (host, port) = text.rsplit_once(':')?;
    Some(ServerAddr { host: host.trim_start_matches('[').trim_end_matches(']').into(), port: port.parse().ok()? })
}

/// The order of a key in etcd; None for a key that is no lasting order.
fn standing(name: &str, value: &str) -> Option<StandingOrder> {
    let (kind, subject) = name.split_once('/')?;
    match kind {
        "paused" => Some(StandingOrder::Paused(HostgroupId(subject.parse().ok()?))),
        "drained" => Some(StandingOrder::Drained(server(subject)?)),
        "preferred" => Some(StandingOrder::Preferred(HostgroupId(subject.parse().ok()?), server(value)?)),
        _ => None,
    }
}

/// The key of an order in etcd, and its value.
fn key(order: &StandingOrder) -> (String, String) {
    match order {
        StandingOrder::Paused(hostgroup) => (format!("paused/{hostgroup}"), String::new()),
        StandingOrder::Drained(server) => (format!("drained/{server}"), String::new()),
        StandingOrder::Preferred(hostgroup, server) => (format!("preferred/{hostgroup}"), server.to_string()),
    }
}

/// Whether there can be only one of these two orders. Letter case counts for nothing in names of hosts.
fn have_same_subject(one: &StandingOrder, other: &StandingOrder) -> bool {
    match (one, other) {
        (StandingOrder::Drained(one), StandingOrder::Drained(other)) if one.port > 0 => {
            one.port == other.port && one.host.eq_ignore_ascii_case(&other.host)
        }
        _ => key(one).0 == key(other).0,
    }
}

impl Orders {
    pub(super) fn new(operator: Arc<dyn Operator>) -> Self {
        let (standing, failbacks, missed) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        Self { operator, standing, failbacks, missed, is_known: false, failed: None, holds: Holds::default() }
    }

    /// Follows the orders as long as the thread lives. It does not wait for a configuration, as a switchover does not either.
    pub(super) async fn follow(mut self, sharing: Arc<Sharing>, frozen: Frozen) {
        let mut news = sharing.shared.news();
        loop {
            let seen = news.borrow_and_update().clone();
            self.operator.decider_changed();
            if seen.link != Link::Off && !frozen.is_set() {
                self.step(&sharing, &seen).await;
            }
            let _ = tokio::time::timeout(AGAIN, news.changed()).await;
        }
    }

    /// Carries out new orders, and takes ended ones back.
    async fn step(&mut self, sharing: &Arc<Sharing>, seen: &Seen) {
        if !seen.is_known {
            return;
        }
        self.follow_switchovers(sharing, seen);
        if self.failed.is_some_and(|when| when.elapsed() < AGAIN) {
            return;
        }
        self.failed = None;
        let wanted: BTreeSet<StandingOrder> = seen.orders.iter().filter_map(|(name, (value, _))| standing(name, value)).collect();
        if !self.is_known {
            self.recall(sharing, seen, &wanted);
        }
        // If another order has the same subject, it replaces the old one, which is not taken back.
        let over: Vec<_> = self.standing.difference(&wanted).cloned().map(|order| (order, false)).collect();
        let is_replaced = |order: &StandingOrder| wanted.iter().any(|other| have_same_subject(other, order));
        let over = over.into_iter().filter(|(order, _)| !is_replaced(order));
        let new: Vec<_> = wanted.difference(&self.standing).cloned().map(|order| (order, true)).collect();
        for (order, holds) in over.chain(new).collect::<Vec<_>>() {
            let (operator, same) = (Arc::clone(&self.operator), order.clone());
            match sharing.shared.block_on(move || operator.stand(&same, holds)).await {
                Some(Ok(())) => {
                    tracing::info!("shared order: {order:?} {}", if holds { "holds" } else { "holds no more" });
                    sharing.note_own(&key(&order).0, false);
                    self.standing.retain(|other| !have_same_subject(other, &order));
                    if holds {
                        self.standing.insert(order);
                    }
                }
                // An order that ended for an unknown server or hostgroup is dropped.
                Some(Err(_)) if !holds => _ = self.standing.remove(&order),
                Some(Err(why)) => {
                    tracing::debug!("shared order {order:?}: {why}");
                    self.failed = Some(Instant::now());
                }
                None => return,
            }
        }
        self.fail_back(sharing, seen).await;
        self.is_known = true;
    }

    async fn fail_back(&mut self, sharing: &Arc<Sharing>, seen: &Seen) {
        let me = sharing.me().uuid;
        self.failbacks.retain(|name, _| seen.orders.contains_key(name));
        for (name, (by, revision)) in seen.orders.iter().filter(|(name, _)| name.starts_with("failback/")) {
            let Some(hostgroup) = name.strip_prefix("failback/").and_then(|id| id.parse().ok()).map(HostgroupId) else { continue };
            let known = self.failbacks.insert(name.clone(), *revision);
            // etcd was restored or wiped, and counts from a smaller revision. All proxies then carry out what it has.
            let is_back = known.is_some_and(|known| known > *revision);
            let is_new = known != Some(*revision) && (is_back || *by != me);
            // A later SWITCHOVER counts.
            let is_over = seen.orders.get(&format!("preferred/{hostgroup}")).is_some_and(|(_, preferred)| preferred > revision);
            if is_new && !is_over && self.is_known {
                self.fail_back_now(sharing, hostgroup).await;
            }
        }
        if !self.missed.is_empty() && self.operator.has_looked() {
            for hostgroup in std::mem::take(&mut self.missed) {
                self.fail_back_now(sharing, hostgroup).await;
            }
        }
    }

    async fn fail_back_now(&self, sharing: &Arc<Sharing>, hostgroup: HostgroupId) {
        let operator = Arc::clone(&self.operator);
        let outcome = sharing.shared.block_on(move || operator.failback(hostgroup)).await;
        tracing::info!("shared order: FAILBACK HOSTGROUP {hostgroup}: {:?}", outcome);
    }

    /// At the first reading, the orders that an earlier process left here count as carried out: those that etcd does not have have ended
    /// meanwhile. Only FAILBACK ends a preference.
    fn recall(&mut self, sharing: &Sharing, seen: &Seen, wanted: &BTreeSet<StandingOrder>) {
        self.standing = self.operator.standing().into_iter().filter(|order| !sharing.is_own(order)).collect();
        let ended = self.standing.iter().filter(|order| !wanted.iter().any(|other| have_same_subject(other, order)));
        let unpreferred = ended.filter_map(|order| match order {
            StandingOrder::Preferred(hostgroup, _) => Some(*hostgroup),
            StandingOrder::Paused(_) | StandingOrder::Drained(_) => None,
        });
        self.missed = unpreferred.filter(|hostgroup| seen.orders.contains_key(&format!("failback/{hostgroup}"))).collect();
    }

    /// Begins, and ends, holds for other proxies' switchovers.
    fn follow_switchovers(&self, sharing: &Arc<Sharing>, seen: &Seen) {
        let me = sharing.me().uuid;
        let orders = seen.orders.iter().filter_map(|(name, (value, _))| {
            let wait: Wait = serde_json::from_str(value).ok()?;
            (wait.by != me).then_some((name.strip_prefix("switchover/")?.to_owned(), wait))
        });
        let orders: BTreeMap<String, Wait> = orders.collect();
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        // An order that is gone is over: its hold is let go.
        holds.retain(|hostgroup, (id, _)| orders.get(hostgroup).is_some_and(|wait| wait.id == *id));
        for (hostgroup, wait) in orders {
            let known = holds.get_mut(&hostgroup);
            match (known, &wait.writer) {
                (None, None) => {
                    holds.insert(hostgroup.clone(), (wait.id.clone(), Hold::Asked));
                    self.begin(sharing, hostgroup, wait);
                }
                (Some((_, hold)), Some(writer)) => {
                    if let (Hold::Held(held), Some(writer)) = (std::mem::replace(hold, Hold::Over), server(writer)) {
                        tracing::info!("switchover of hostgroup {hostgroup} by {}: {writer} writes", wait.proxy);
                        std::thread::spawn(move || held.until_writes(&writer, SEEN_WITHIN));
                    }
                }
                _ => {}
            }
        }
    }

    /// Holds the hostgroups and writes the answer.
    fn begin(&self, sharing: &Arc<Sharing>, hostgroup: String, wait: Wait) {
        let (operator, holds, sharing) = (Arc::clone(&self.operator), Arc::clone(&self.holds), Arc::clone(sharing));
        let shared = Arc::clone(&sharing.shared);
        shared.spawn(async move {
            let hostgroups: Vec<HostgroupId> = wait.hostgroups.iter().copied().map(HostgroupId).collect();
            let patience = Duration::from_millis(wait.patience_ms);
            let outcome = sharing.shared.block_on(move || operator.hold_for(&hostgroups, patience)).await;
            let error = match outcome {
                Some(Ok(held)) => {
                    let mut holds = holds.lock().unwrap_or_else(PoisonError::into_inner);
                    match holds.get_mut(&hostgroup) {
                        Some((id, hold)) if *id == wait.id && matches!(hold, Hold::Asked) => *hold = Hold::Held(held),
                        // It was taken back meanwhile.
                        _ => return,
                    }
                    String::new()
                }
                Some(Err(why)) => why,
                None => "this proxy stops".to_owned(),
            };
            tracing::info!(
                "switchover of hostgroup {hostgroup} by {}: {}",
                wait.proxy,
                if error.is_empty() { "sessions wait" } else { &error }
            );
            let answer = serde_json::to_string(&Answer { id: wait.id.clone(), error }).unwrap_or_default();
            let name = format!("held/{hostgroup}/{}", sharing.me().uuid);
            if let Err(why) = sharing.shared.tell(&name, &answer, 60).await {
                tracing::warn!("switchover of hostgroup {hostgroup} by {}: {why}", wait.proxy);
            }
            // The limit counts even if the other proxy is lost.
            tokio::time::sleep(Duration::from_millis(wait.limit_ms) + SPARE).await;
            let mut holds = holds.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((id, hold)) = holds.get_mut(&hostgroup)
                && *id == wait.id
                && matches!(std::mem::replace(hold, Hold::Over), Hold::Held(_))
            {
                tracing::warn!("switchover of hostgroup {hostgroup} by {}: no news in time, sessions continue", wait.proxy);
            }
        });
    }
}

/// What became of an order in etcd.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// etcd has it now, and had it not before.
    pub(crate) is_changed: bool,
    /// For the operator.
    pub(crate) warning: Option<String>,
}

impl Sharing {
    /// Publishes that an order holds for all proxies, or has ended.
    pub(crate) fn share_order(&self, order: &StandingOrder, holds: bool) -> Shared {
        let (name, value) = key(order);
        self.share(&name, holds.then_some(value.as_str()))
    }

    /// Publishes a fail-back that was carried out here. Returns a warning for the operator.
    pub(crate) fn share_failback(&self, hostgroup: HostgroupId) -> Option<String> {
        let preferred = self.share(&format!("preferred/{hostgroup}"), None).warning;
        preferred.or_else(|| self.share(&format!("failback/{hostgroup}"), Some(&self.me().uuid)).warning)
    }

    fn share(&self, name: &str, value: Option<&str>) -> Shared {
        let seen = self.seen();
        let is_off = seen.link == Link::Off;
        let had = seen.orders.get(name).map(|(value, _)| value.as_str());
        let written = if is_off { Ok(false) } else { self.shared.order(name, value) };
        let is_lasting = value.is_some_and(|value| standing(name, value).is_some());
        self.note_own(name, is_lasting && (is_off || written.is_err()));
        match written {
            Ok(is_written) => Shared { is_changed: is_written && (value.is_none() || had != value), warning: None },
            Err(error) => Shared { is_changed: false, warning: Some(format!("the command is in force on this proxy only: {error}")) },
        }
    }

    /// Notes whether the order with this key holds on this proxy only.
    fn note_own(&self, name: &str, is_own: bool) {
        let mut state = self.lock();
        state.own_orders.retain(|other| !other.eq_ignore_ascii_case(name));
        if is_own {
            state.own_orders.insert(name.to_owned());
        }
    }

    /// Whether this order was given to this proxy only.
    fn is_own(&self, order: &StandingOrder) -> bool {
        let name = key(order).0;
        self.lock().own_orders.iter().any(|own| own.eq_ignore_ascii_case(&name))
    }
}

/// A switchover of this proxy, for which the others hold their sessions.
struct Asked {
    sharing: Arc<Sharing>,
    name: String,
    wait: Wait,
    warning: Option<String>,
    /// etcd has the order, or may have it.
    may_be_given: bool,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.may_be_given {
            self.sharing.shared.take_back(&self.name, &serde_json::to_string(&self.wait).unwrap_or_default());
        }
    }
}

impl Asked {
    /// Takes etcd's answer to the order.
    ///
    /// # Errors
    /// Another proxy switches over.
    fn answered(&mut self, given: Result<bool, EtcdError>) -> Result<(), String> {
        // Where the answer was lost, or the answer to a first attempt, etcd has it all the same.
        self.may_be_given = true;
        match given {
            Ok(true) => Ok(()),
            Ok(false) => {
                let hostgroup = self.name.trim_start_matches("switchover/");
                Err(format!("another proxy already runs a switchover of hostgroup {hostgroup}"))
            }
            Err(error) => {
                self.warning = Some(format!("{error}, so other proxies may not have waited"));
                Ok(())
            }
        }
    }

    /// Tells the other proxies who writes.
    fn end(mut self, writer: &ServerAddr, preferred: Option<&StandingOrder>) {
        if let Some(order) = preferred {
            self.sharing.share_order(order, true);
        }
        let end = Wait { writer: Some(writer.to_string()), ..self.wait.clone() };
        let value = serde_json::to_string(&end).unwrap_or_default();
        // If the write fails, the other proxies continue when the order's lease ends.
        self.may_be_given = self.sharing.shared.order_for(&self.name, &value, OVER_S).is_err();
    }
}

impl CompanyHold for Asked {
    fn over(self: Box<Self>, writer: &ServerAddr, is_by_preference: bool) {
        let hostgroup = self.name.strip_prefix("switchover/").and_then(|id| id.parse().ok()).map(HostgroupId);
        let preferred = hostgroup.filter(|_| is_by_preference).map(|hostgroup| StandingOrder::Preferred(hostgroup, writer.clone()));
        match self.warning {
            _ if !self.may_be_given => preferred.iter().for_each(|order| self.sharing.note_own(&key(order).0, true)),
            None => (*self).end(writer, preferred.as_ref()),
            // etcd has not answered, and the sessions here do not wait for it once more.
            Some(_) => {
                let writer = writer.clone();
                std::thread::spawn(move || (*self).end(&writer, preferred.as_ref()));
            }
        }
    }

    fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}

/// The monitor's way to the other proxies.
#[derive(Debug)]
pub(super) struct Others(pub(super) Arc<Sharing>);

impl Company for Others {
    fn hold(
        &self,
        writer: HostgroupId,
        hostgroups: &[HostgroupId],
        patience: Duration,
        limit: Duration,
    ) -> Result<Box<dyn CompanyHold>, String> {
        let sharing = &self.0;
        let me = sharing.me();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let wait = Wait {
            id: new_id(),
            by: me.uuid.clone(),
            proxy: me.name,
            hostgroups: hostgroups.iter().map(|id| id.0).collect(),
            patience_ms: ms(patience),
            limit_ms: ms(limit),
            writer: None,
        };
        let name = format!("switchover/{writer}");
        let mut asked = Asked { sharing: Arc::clone(sharing), name: name.clone(), wait, warning: None, may_be_given: false };
        let seen = sharing.seen();
        if seen.link != Link::Up {
            asked.warning =
                (seen.link != Link::Off).then(|| "etcd does not answer, so the proxy could not ask other proxies to wait".to_owned());
            return Ok(Box::new(asked));
        }
        let (base, before) = seen.orders.get(&name).map_or((0, None), |(value, at)| (*at, serde_json::from_str::<Wait>(value).ok()));
        if let Some(before) = before.filter(|before| before.writer.is_none() && before.by != me.uuid) {
            return Err(format!("{} already runs a switchover of hostgroup {writer}", before.proxy));
        }
        let value = serde_json::to_string(&asked.wait).map_err(|e| e.to_string())?;
        asked.answered(sharing.shared.order_if(&name, &value, base, (limit + SPARE).as_secs() + 1))?;
        if asked.warning.is_some() {
            return Ok(Box::new(asked));
        }
        let (begun, prefix) = (Instant::now(), format!("held/{writer}/"));
        loop {
            let seen = sharing.seen();
            let answers: BTreeMap<&str, Answer> = seen
                .orders
                .range(prefix.clone()..)
                .map_while(|(name, (value, _))| Some((name.strip_prefix(&prefix)?, value)))
                .filter_map(|(uuid, value)| Some((uuid, serde_json::from_str::<Answer>(value).ok()?)))
                .filter(|(_, answer)| answer.id == asked.wait.id)
                .collect();
            let others = || seen.proxies.iter().filter(|proxy| proxy.uuid != me.uuid);
            let refused =
                others().find_map(|proxy| Some((proxy, answers.get(proxy.uuid.as_str()).filter(|answer| !answer.error.is_empty())?)));
            if let Some((proxy, answer)) = refused {
                return Err(format!("{}: {}", proxy.name, answer.error));
            }
            let Some(silent) = others().find(|proxy| !answers.contains_key(proxy.uuid.as_str())) else {
                return Ok(Box::new(asked));
            };
            if begun.elapsed() >= patience {
                return Err(format!(
                    "proxy {} has not confirmed within {} ms that its sessions wait",
                    silent.name,
                    begun.elapsed().as_millis()
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use model::fleet::Told;
    use shared_config::{ProxyLine, SharedConfig};

    use super::*;

    /// Has orders of an earlier process, and notes the new ones.
    struct Fake {
        standing: Vec<StandingOrder>,
        told: Mutex<Vec<String>>,
    }

    impl Fake {
        fn note(&self, what: String) -> Result<String, String> {
            self.told.lock().unwrap().push(what.clone());
            Ok(what)
        }
    }

    impl Operator for Fake {
        fn switchover(&self, _: HostgroupId, _: &ServerAddr, _: Option<u64>) -> Result<Told, String> {
            Ok(Told::default())
        }

        fn failback(&self, hostgroup: HostgroupId) -> Result<String, String> {
            self.note(format!("failback {hostgroup}"))
        }

        fn accept(&self, _: HostgroupId, _: Option<&ServerAddr>) -> Result<String, String> {
            Ok(String::new())
        }

        fn pause(&self, _: HostgroupId, _: bool) -> Result<String, String> {
            Ok(String::new())
        }

        fn drain(&self, _: &ServerAddr, _: Option<u64>) -> Result<String, String> {
            Ok(String::new())
        }

        fn undrain(&self, _: &ServerAddr) -> Result<String, String> {
            Ok(String::new())
        }

        fn stand(&self, order: &StandingOrder, holds: bool) -> Result<(), String> {
            self.note(format!("{} {holds}", key(order).0)).map(drop)
        }

        fn standing(&self) -> Vec<StandingOrder> {
            self.standing.clone()
        }
    }

    fn started() -> Arc<Sharing> {
        let me = ProxyLine { uuid: "p2".to_owned(), ..ProxyLine::default() };
        let shared = SharedConfig::start(me, Arc::default()).unwrap();
        Arc::new(Sharing { shared, state: Mutex::default() })
    }

    /// What a proxy is told at its first reading, when these orders hold there and `seen` are in etcd.
    fn told(standing: Vec<StandingOrder>, own: &[&str], seen: &[(&str, &str)]) -> Vec<String> {
        let seen: Vec<_> = seen.iter().map(|(name, value)| (*name, *value, 7)).collect();
        told_by(standing, own, &[seen.as_slice(), seen.as_slice()])
    }

    /// The same of several readings, each with the revisions that wrote the orders.
    fn told_by(standing: Vec<StandingOrder>, own: &[&str], readings: &[&[(&str, &str, i64)]]) -> Vec<String> {
        let sharing = started();
        own.iter().for_each(|name| sharing.note_own(name, true));
        let operator = Arc::new(Fake { standing, told: Mutex::default() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut carried_out = Orders::new(Arc::clone(&operator) as Arc<dyn Operator>);
        for reading in readings {
            let orders = reading.iter().map(|(name, value, at)| ((*name).to_owned(), ((*value).to_owned(), *at))).collect();
            let seen = Seen { link: Link::Up, is_known: true, orders, ..Seen::default() };
            runtime.block_on(carried_out.step(&sharing, &seen));
        }
        sharing.stop();
        operator.told.lock().unwrap().clone()
    }

    #[test]
    fn an_order_that_ended_while_this_proxy_was_away_is_taken_back() {
        let db = |host: &str| ServerAddr { host: host.into(), port: 3306 };
        let preferred = || StandingOrder::Preferred(HostgroupId(10), db("n2"));
        let drained = || StandingOrder::Drained(db("n3"));
        assert_eq!(told(vec![preferred()], &[], &[]), ["preferred/10 false"]);
        let failback = ("failback/10", "p1");
        assert_eq!(told(vec![preferred()], &[], &[failback]), ["preferred/10 false", "failback 10"]);
        assert!(told(vec![], &[], &[failback]).is_empty(), "an old one");
        assert_eq!(told(vec![drained(), StandingOrder::Paused(HostgroupId(1))], &[], &[]), ["paused/1 false", "drained/n3:3306 false"]);
        // They hold still.
        assert!(told(vec![preferred(), drained()], &[], &[("preferred/10", "n2:3306"), ("drained/n3:3306", "")]).is_empty());
        assert_eq!(told(vec![preferred()], &[], &[("preferred/10", "n3:3306")]), ["preferred/10 true"], "replaced");
        assert_eq!(told(vec![drained()], &[], &[("drained/N3:3306", "")]), ["drained/N3:3306 true"], "the same server");
        // They never were in etcd.
        assert!(told(vec![preferred(), drained()], &["preferred/10", "drained/N3:3306"], &[]).is_empty());
    }

    #[test]
    fn a_failback_counts_after_etcd_was_restored_or_wiped() {
        let told = |readings: &[&[(&str, &str, i64)]]| told_by(Vec::new(), &[], readings);
        let (first, by_others, by_this) = (("failback/10", "p1", 5), ("failback/10", "p1", 7), ("failback/10", "p2", 7));
        assert_eq!(told(&[&[first], &[by_others], &[by_others]]), ["failback 10"]);
        assert!(told(&[&[first], &[by_this]]).is_empty(), "it was carried out when it was ordered");
        assert_eq!(told(&[&[by_others], &[first], &[first], &[by_others]]), ["failback 10", "failback 10"], "restored");
        assert_eq!(told(&[&[by_this], &[("failback/10", "p2", 3)]]), ["failback 10"], "as all do");
        assert_eq!(told(&[&[by_others], &[], &[first]]), ["failback 10"], "wiped");
        let later = ("preferred/10", "n2:3306", 8);
        assert_eq!(told(&[&[first], &[by_others, later]]), ["preferred/10 true"], "a switchover came later");
    }

    #[test]
    fn a_switchover_whose_order_got_no_answer_is_ended_in_etcd() {
        let sharing = started();
        let asked = || {
            let wait = Wait {
                id: new_id(),
                by: "p2".to_owned(),
                proxy: String::new(),
                hostgroups: vec![10],
                patience_ms: 1,
                limit_ms: 1,
                writer: None,
            };
            Asked { sharing: Arc::clone(&sharing), name: "switchover/10".to_owned(), wait, warning: None, may_be_given: false }
        };
        for (given, warns, fails) in [
            (Ok(true), false, false),
            // Another proxy's order, or the repetition of a request whose answer was lost: only its own value is taken back.
            (Ok(false), false, true),
            (Err(EtcdError::Away("no answer in time".to_owned())), true, false),
        ] {
            let mut asked = asked();
            assert!(!asked.may_be_given, "nothing was asked");
            assert_eq!((asked.answered(given).is_err(), asked.warning().is_some(), asked.may_be_given), (fails, warns, true));
        }
        // etcd was not asked at all.
        let db = ServerAddr { host: "n2".into(), port: 3306 };
        Box::new(asked()).over(&db, true);
        assert!(sharing.is_own(&StandingOrder::Preferred(HostgroupId(10), db)));
        sharing.stop();
    }

    #[test]
    fn an_order_is_found_again_by_its_key() {
        let db = |host: &str, port| ServerAddr { host: host.into(), port };
        for order in [
            StandingOrder::Paused(HostgroupId(7)),
            StandingOrder::Drained(db("db1.example", 3306)),
            StandingOrder::Drained(db("::1", 3307)),
            StandingOrder::Drained(db("/run/mysqld.sock", 0)),
            StandingOrder::Preferred(HostgroupId(10), db("db2", 3306)),
        ] {
            let (name, value) = key(&order);
            assert_eq!(standing(&name, &value), Some(order), "{name} {value}");
        }
        assert_eq!(standing("switchover/10", "{}"), None);
        assert_eq!(standing("paused/x", ""), None);
    }
}
