//! What this proxy and the others know of a cluster's healing: who heals it, the record of the last plan, and what follows for roles here.
//!
//! Alone, the orders of this proxy's file are all there is. With a shared configuration, the record in etcd holds for all proxies.
//! INVARIANT: a proxy that does not know the record does not heal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fleet::{Decider, HealingView, RecordChange};
use model::snapshot::{HealingMode, Snapshot};
use model::{HostgroupId, ServerAddr};
use topology::Fork;
use topology::healing::{Lease, Phase, Record, TTL_MS, left_ms, waits_ms};

use super::orders::{suspension, told_of, unix_ms};
use crate::clock::whole;
use crate::monitor::Monitor;
use crate::operator::servers;

/// Roles are brought into line with the record at least so often: servers and hostgroups come and go.
const LOOK: Duration = Duration::from_secs(1);

/// Longest that a healer waits until its record is written.
const WRITTEN: Duration = Duration::from_secs(4);

/// Plans whose forks were taken over from records, with the heir, by cluster: what is undone elsewhere is forgotten here.
pub(super) type Noted = BTreeMap<HostgroupId, (String, ServerAddr)>;

impl Monitor {
    /// Several proxies heal, and etcd says which one.
    pub(crate) fn shares_healing(&self) -> bool {
        self.snapshot().healing_is_shared
    }

    fn decider(&self) -> Result<&Arc<dyn Decider>, String> {
        self.decider.get().ok_or_else(|| "etcd was not read yet".to_owned())
    }

    /// The name by which other proxies know this one.
    pub(crate) fn own_name(&self) -> String {
        self.decider().map(|decider| decider.name()).unwrap_or_default()
    }

    /// Names the proxies that heal by the same leases; None while that is not known.
    pub(crate) fn healing_scope(&self) -> Option<String> {
        self.decider().ok().map(|decider| decider.scope()).filter(|scope| !scope.is_empty())
    }

    fn view(&self, writer: HostgroupId) -> HealingView {
        let away = |why| HealingView { away: Some(why), ..HealingView::default() };
        self.decider().map_or_else(away, |decider| decider.view(writer))
    }

    /// Whether this proxy may heal the cluster now.
    pub(crate) fn lease(&self, writer: HostgroupId) -> Lease {
        if self.shares_healing() { lease(&self.view(writer)) } else { Lease::Alone }
    }

    /// Which lease this proxy has there, if it has one.
    pub(crate) fn term(&self, writer: HostgroupId) -> Option<i64> {
        self.view(writer).term
    }

    /// The record that all proxies see, and its epoch. Empty where there is none, or none is known: then the lease refuses every step.
    pub(crate) fn record(&self, writer: HostgroupId) -> (Record, i64) {
        let known = if self.shares_healing() { known(&self.view(writer)) } else { None };
        known.unwrap_or_default()
    }

    /// Who heals the cluster, for people; None while this proxy is alone.
    pub(super) fn healer(&self, writer: HostgroupId) -> Option<String> {
        self.shares_healing().then(|| self.view(writer).healer).flatten()
    }

    /// Why an operator does not want this cluster to be healed now, in words.
    pub(crate) fn suspended(&self, writer: HostgroupId) -> Option<String> {
        let of_record = || {
            let (suspended, now_ms) = (self.record(writer).0.suspended?, unix_ms());
            suspended.holds(now_ms).then(|| suspended.told(now_ms, &format!("RESUME HEALING HOSTGROUP {writer}")))
        };
        self.healing.orders.suspended(writer).or_else(of_record)
    }

    /// How long ago the last promotion of this cluster was, ms, and whether an operator has acknowledged it.
    pub(super) fn promoted(&self, writer: HostgroupId) -> Option<(u64, bool)> {
        let own = self.healing.orders.promoted(writer).map(|(promoted, ms)| (ms, promoted.is_acknowledged));
        let record = self.record(writer).0;
        let told = (record.promoted_ms > 0).then(|| (unix_ms().saturating_sub(record.promoted_ms), record.is_acknowledged));
        own.into_iter().chain(told).min()
    }

    /// Changes the record of a cluster, atomically; `as_healer` only while this proxy heals it. An error after
    /// 4 s: the record may be written nevertheless.
    pub(crate) async fn write_record(
        self: &Arc<Self>,
        writer: HostgroupId,
        as_healer: bool,
        change: impl FnMut(&mut Record) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let me = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || me.write_record_now(writer, as_healer, change));
        let written = tokio::time::timeout(WRITTEN, written).await.map_err(|_| "etcd did not answer in time".to_owned())?;
        written.map_err(|e| e.to_string())?
    }

    /// The same. Blocks.
    fn write_record_now(
        &self,
        writer: HostgroupId,
        as_healer: bool,
        mut change: impl FnMut(&mut Record) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let change: RecordChange = Box::new(move |text| {
            let mut record = match text {
                Some(text) => serde_json::from_str(text).map_err(|e| format!("the record in etcd cannot be read: {e}"))?,
                None => Record::default(),
            };
            change(&mut record)?;
            serde_json::to_string(&record).map_err(|e| e.to_string())
        });
        self.decider()?.write(writer, as_healer, change)?;
        self.decider_moved.notify_one();
        Ok(())
    }

    /// The clusters that an order is about.
    fn meant(&self, hostgroup: Option<HostgroupId>) -> Vec<HostgroupId> {
        let snapshot = self.snapshot();
        let listed = snapshot.healing.values().filter(|row| row.mode != HealingMode::Off).map(|row| row.writer);
        hostgroup.map_or_else(|| listed.collect(), |hostgroup| vec![hostgroup])
    }

    /// `SUSPEND HEALING`, for all proxies where they share their configuration: then it holds for the clusters of this moment, and a row that
    /// comes later is not suspended. Returns the effect in words. Blocks.
    pub(crate) fn suspend(&self, hostgroup: Option<HostgroupId>, limit: Option<Duration>, by: &str) -> Result<String, String> {
        if !self.shares_healing() {
            return self.healing.orders.suspend(hostgroup, limit, by);
        }
        let suspension = suspension(limit, by)?;
        let meant = self.meant(hostgroup);
        if meant.is_empty() {
            return Err("mysql_healing has no row with another mode than 'off': nothing was suspended".to_owned());
        }
        let (mut for_all, mut failed) = (Vec::new(), Vec::new());
        for writer in meant {
            let suspended = suspension.clone();
            let written = self.write_record_now(writer, false, move |record| {
                record.suspended = Some(suspended.clone());
                Ok(())
            });
            match written {
                Ok(()) => for_all.push(writer.to_string()),
                Err(why) => failed.push((writer.to_string(), why)),
            }
        }
        let Some((_, why)) = failed.first() else {
            let what = format!("hostgroup {}", for_all.join(", "));
            let told = told_of(&what, hostgroup, limit, "no proxy promotes a server, and none takes one back");
            let later = if hostgroup.is_none() { ". Rows that are added to mysql_healing later are not suspended" } else { "" };
            return Ok(format!("{told}{later}"));
        };
        let here = self.healing.orders.suspend(hostgroup, limit, by)?;
        if for_all.is_empty() {
            return Ok(format!("{here}. It holds on this proxy only: {why}"));
        }
        let failed: Vec<&str> = failed.iter().map(|(writer, _)| writer.as_str()).collect();
        let (for_all, failed) = (for_all.join(", "), failed.join(", "));
        Ok(format!("{here}. It holds on all proxies for hostgroup {for_all}, and on this proxy only for hostgroup {failed}: {why}"))
    }

    /// `RESUME HEALING`, the same way. Without a hostgroup it ends the suspension of every cluster that has a record, with a row or without.
    /// Returns the effect in words. Blocks.
    pub(crate) fn resume(&self, hostgroup: Option<HostgroupId>) -> Result<String, String> {
        let (mut is_resumed, mut failed) = (false, None);
        let mut meant = BTreeSet::from_iter(self.meant(hostgroup));
        if let (None, Ok(decider)) = (hostgroup, self.decider()) {
            meant.extend(decider.clusters());
        }
        for writer in meant.iter().copied().filter(|writer| self.record(*writer).0.suspended.is_some()) {
            let written = self.write_record_now(writer, false, |record| {
                record.suspended = None;
                Ok(())
            });
            match written {
                Ok(()) => is_resumed = true,
                Err(why) => failed = Some(why),
            }
        }
        if let Some(why) = failed {
            return Err(format!("healing stays suspended: {why}"));
        }
        if let Some(why) = self.unread(&meant) {
            return Err(format!("healing may stay suspended, as the record in etcd is not known: {why}. Repeat it when etcd answers"));
        }
        match self.healing.orders.resume(hostgroup) {
            Err(_) if is_resumed => Ok("healing goes on".to_owned()),
            told => told,
        }
    }

    /// Why it is not known what etcd says of these clusters; None if it is, or if this proxy is alone.
    fn unread(&self, clusters: &BTreeSet<HostgroupId>) -> Option<String> {
        if !self.shares_healing() {
            return None;
        }
        // Before etcd is read no cluster may be known. Then the view of any cluster says so.
        let any = clusters.is_empty().then_some(HostgroupId(0));
        let unknown = clusters.iter().copied().chain(any).map(|writer| self.view(writer)).find(|view| known(view).is_none())?;
        Some(unknown.away.unwrap_or_else(|| "it cannot be read".to_owned()))
    }

    /// `ACKNOWLEDGE HEALING`. Returns whether there was a promotion to acknowledge. Blocks.
    pub(super) fn acknowledge_promotion(&self, writer: HostgroupId) -> Result<bool, String> {
        let is_new = self.promoted(writer).is_some_and(|(_, is_acknowledged)| !is_acknowledged);
        self.healing.orders.acknowledge(writer)?;
        if !self.shares_healing() {
            return Ok(is_new);
        }
        self.write_record_now(writer, false, |record| {
            record.acknowledge(unix_ms());
            Ok(())
        })?;
        Ok(is_new)
    }

    /// Brings the roles of all clusters into line with their records. Where no record holds any more, none excludes a server.
    pub(super) fn follow_once(&self, noted: &mut Noted) {
        let followed = followed(&self.snapshot());
        for writer in self.barred().into_keys().filter(|writer| !followed.contains(writer)) {
            self.decide(|topology, now_ms| topology.bar(now_ms, writer, &BTreeMap::new()));
        }
        noted.retain(|writer, _| followed.contains(writer));
        for writer in followed {
            self.follow_record(writer, noted);
        }
    }

    /// Brings the roles of a cluster into line with its record. While that is not known, everything stays as it is.
    fn follow_record(&self, writer: HostgroupId, noted: &mut Noted) {
        let Some((record, epoch)) = known(&self.view(writer)) else { return };
        let (members, takes_back) = self.consult(|snapshot, layout| {
            let takes_back = snapshot.healing.get(&writer).is_some_and(|row| row.mode.takes_back());
            (servers(snapshot, layout, writer), takes_back)
        });
        // Where nobody takes former writers back, they are out while the plan runs.
        let are_out = takes_back || record.phase != Phase::Rest;
        let bars = members.iter().filter(|_| are_out).filter_map(|addr| Some((addr.clone(), record.bars(epoch, addr)?))).collect();
        self.decide(|topology, now_ms| topology.bar(now_ms, writer, &bars));
        let heir = match (record.phase, record.heir, &record.from) {
            (Phase::Fork | Phase::Open, Some(heir), Some(from)) if record.outcasts.contains(from) => {
                let is_noted = noted.get(&writer).is_some_and(|(plan, _)| *plan == record.plan);
                let is_known = is_noted || self.past(writer).0.iter().any(|fork| fork.heir == heir && fork.had == record.had);
                if !is_known {
                    let from = vec![from.clone()];
                    let fork = Fork { writer, heir: heir.clone(), at_ms: 0, from, had: record.had, is_exact: true, is_noted: true };
                    self.decide(|topology, now_ms| topology.note_fork(now_ms, &fork));
                    noted.insert(writer, (record.plan, heir));
                }
                return;
            }
            // Another plan's rest does not say that this heir was never opened.
            (Phase::Rest, ..) if noted.get(&writer).is_some_and(|(plan, _)| *plan == record.plan) => noted.remove(&writer),
            _ => None,
        };
        if let Some((_, heir)) = heir {
            self.decide(|topology, now_ms| topology.forget_fork(now_ms, writer, &heir));
        }
    }
}

fn lease(view: &HealingView) -> Lease {
    if let Some((text, _)) = &view.record
        && let Err(why) = serde_json::from_str::<Record>(text)
    {
        return Lease::Away(format!("the record in etcd cannot be read ({why})"));
    }
    match (view.since, &view.away) {
        // The lease counts, not the connection; but a record that was never read says nothing.
        (Some(since), away) if away.is_none() || view.record.is_some() => {
            let ms = |then: Instant| whole(then.elapsed().as_millis());
            match view.obtained.map_or(TTL_MS, |obtained| waits_ms(ms(obtained))) {
                0 => Lease::Own(left_ms(ms(since))),
                wait_ms => Lease::New(wait_ms),
            }
        }
        (_, Some(why)) => Lease::Away(why.clone()),
        (_, None) => Lease::Other(view.healer.clone()),
    }
}

/// The record and its epoch, empty where etcd has none; None where that is not known.
fn known(view: &HealingView) -> Option<(Record, i64)> {
    match &view.record {
        Some((text, epoch)) => Some((serde_json::from_str(text).ok()?, *epoch)),
        None => view.away.is_none().then(Default::default),
    }
}

/// The clusters whose records hold here. In every mode but `off`: an operator may order a promotion.
fn followed(snapshot: &Snapshot) -> BTreeSet<HostgroupId> {
    super::wanted(snapshot).filter(|_| snapshot.healing_is_shared).collect()
}

/// Keeps roles in line with the records of all clusters, for ever. On the monitor's thread.
pub(crate) async fn follow_records(monitor: &Arc<Monitor>) {
    let mut noted = Noted::new();
    loop {
        monitor.follow_once(&mut noted);
        let _ = tokio::time::timeout(LOOK, monitor.decider_moved.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_heals_by_its_own_lease_and_a_record_that_it_knows() {
        let record = || Some(("{}".to_owned(), 7));
        let obtained = Instant::now().checked_sub(Duration::from_secs(60));
        let own = HealingView { since: Some(Instant::now()), obtained, record: record(), ..HealingView::default() };
        assert!(lease(&own).is_own());
        let new = HealingView { obtained: Some(Instant::now()), ..own.clone() };
        assert!(matches!(lease(&new), Lease::New(1..)) && !lease(&new).is_own());
        let cut_off = HealingView { away: Some("gone".to_owned()), ..own.clone() };
        assert!(lease(&cut_off).is_own(), "until it is over");
        let old = HealingView { since: Instant::now().checked_sub(Duration::from_secs(5)), ..cut_off.clone() };
        assert_eq!(lease(&old), Lease::Own(0));
        assert_eq!(lease(&HealingView { record: None, ..cut_off }), Lease::Away("gone".to_owned()));
        assert!(lease(&HealingView { record: None, ..own.clone() }).is_own(), "there is none");
        let broken = HealingView { record: Some(("?".to_owned(), 7)), ..own };
        assert!(lease(&broken).refusal().unwrap().contains("cannot be read"));
        let other = HealingView { healer: Some("two".to_owned()), record: record(), ..HealingView::default() };
        assert_eq!(lease(&other), Lease::Other(Some("two".to_owned())));
    }
    #[test]
    fn a_record_that_is_not_known_is_not_an_empty_one() {
        let view = |away: Option<&str>, record: Option<&str>| HealingView {
            away: away.map(str::to_owned),
            record: record.map(|text| (text.to_owned(), 7)),
            ..HealingView::default()
        };
        let none = Some((Record::default(), 0));
        assert_eq!(known(&view(None, None)), none, "etcd says that there is none");
        assert_eq!(known(&view(None, Some("{}"))), Some((Record::default(), 7)));
        let outcast = known(&view(Some("gone"), Some(r#"{"phase": "open", "outcasts": [{"host": "a", "port": 1}]}"#)));
        assert_eq!(outcast.map(|(record, _)| record.outcasts.len()), Some(1), "what was read last holds");
        for away in [None, Some("gone")] {
            assert_eq!(known(&view(away, Some("?"))), None);
            assert_eq!(known(&view(away, Some(r#"{"phase": "later"}"#))), None, "of a later version");
        }
        assert_eq!(known(&view(Some("etcd was not read yet"), None)), None);
    }
}
