//! What a promotion writes down before the deed: in files of this proxy, or in the record that several proxies share.
//!
//! INVARIANT: of several proxies, only the one with the lease writes its plan there, and never over another plan.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{HostgroupId, ServerAddr};
use topology::Fork;
use topology::healing::{Phase, Plan, Record, Stopped};

use super::{Done, Healer};
use crate::clock::unix_us;
use crate::healing::Promoted;
use crate::monitor::{Monitor, lock};

impl Healer {
    /// What the server has is on disk before it can take a write, and so is the promotion. With several proxies, all of them know it first.
    pub(super) async fn keep_fork(&self, plan: &Plan, had: topology::GtidSet) -> Result<(), String> {
        let (monitor, writer, heir) = (&self.monitor, self.promote.hostgroup, &plan.candidate);
        self.will(Done::Noted { heir: heir.clone() });
        let (from, at_ms) = (vec![self.promote.old.key.addr()], 0);
        let fork = Fork { writer, heir: heir.clone(), at_ms, from, had: had.clone(), is_exact: true, is_noted: true };
        monitor.decide(|topology, now_ms| topology.note_fork(now_ms, &fork));
        if !self.is_shared {
            let promoted = Promoted { heir: heir.clone(), at_ms: unix_us() / 1_000, is_acknowledged: false };
            self.write_own(move |monitor, writer| monitor.healing.orders.will_open(writer, promoted)).await?;
        }
        let written = monitor.write_standings().await;
        written.map_err(|e| format!("what {heir} has could not be written to the data directory: {e}"))?;
        if self.is_shared {
            let heir = heir.clone();
            self.keep_own(move |record| record.fork(&heir, had.clone(), unix_us() / 1_000)).await?;
        }
        Ok(())
    }

    /// The plan begins: what is about to be stopped is written down.
    pub(super) async fn keep_begin(&self, stopped: Vec<Stopped>) -> Result<(), String> {
        if !self.is_shared {
            return self.keep_stopped(|all| all.extend(stopped)).await;
        }
        let stopped = {
            let mut all = lock(&self.stopped);
            all.extend(stopped);
            all.clone()
        };
        let seen = self.promote.seen.clone();
        let (id, healer, from) = (self.id.clone(), self.monitor.own_name(), self.promote.old.key.addr());
        let begun = self.monitor.write_record(self.promote.hostgroup, true, move |record| match record.phase {
            _ if *record != seen => Err("the record in etcd has changed since the plan was decided: it is decided again".to_owned()),
            _ if let Some(suspended) = suspension(record) => Err(suspended),
            Phase::Plan | Phase::Fork => Err(format!("a plan of {} is not settled", record.healer)),
            Phase::Rest | Phase::Open => {
                record.begin(&id, &healer, &from, stopped.clone());
                Ok(())
            }
        });
        begun.await?;
        self.is_kept.store(true, Ordering::Release);
        Ok(())
    }

    /// Nothing of this plan is left to be undone, and the heir writes.
    pub(super) async fn keep_done(&self) -> Result<(), String> {
        let done = |stopped: &mut Vec<Stopped>| stopped.retain(|one| !self.promote.has(&one.server));
        if !self.is_shared {
            return self.keep_stopped(done).await;
        }
        let left = self.noted(done);
        self.keep_own(move |record| record.end(left.clone())).await
    }

    /// The heir writes, and every proxy knows it.
    pub(super) async fn keep_opened(&self) -> Result<(), String> {
        if !self.is_shared {
            return self.write_own(|monitor, writer| monitor.healing.orders.was_opened(writer)).await;
        }
        self.keep_own(Record::open).await
    }

    /// Changes the record of this plan.
    async fn keep_own(&self, mut change: impl FnMut(&mut Record) + Send + 'static) -> Result<(), String> {
        let id = self.id.clone();
        let written = self.monitor.write_record(self.promote.hostgroup, true, move |record| {
            // A suspension that came before the point of no return wins.
            let suspended = if record.phase == Phase::Plan { suspension(record) } else { None };
            match suspended {
                Some(suspended) => Err(suspended),
                None if record.plan != id => Err(format!("{} has begun another plan", record.healer)),
                None if record.phase == Phase::Rest => Err("the plan was undone".to_owned()),
                None => {
                    change(record);
                    Ok(())
                }
            }
        });
        written.await
    }

    /// Writes down what is about to be done to a channel.
    pub(super) async fn keep_channel(
        &self,
        server: &ServerAddr,
        channel: &str,
        before: &ServerAddr,
        change: impl FnOnce(&mut Stopped),
    ) -> Result<(), String> {
        self.keep_stopped(|all| {
            let place = all.iter().position(|one| one.is_about(server, channel)).unwrap_or_else(|| {
                all.push(Stopped::receiver(server.clone(), channel.to_owned(), Some(before.clone())));
                all.len() - 1
            });
            if let Some(one) = all.get_mut(place) {
                change(one);
            }
        })
        .await
    }

    /// Writes down what is done to channels, or is left of it.
    pub(super) async fn keep_stopped(&self, change: impl FnOnce(&mut Vec<Stopped>)) -> Result<(), String> {
        // Noted here first: whoever gives up in the middle of the write knows of it.
        let stopped = self.noted(change);
        if self.is_shared {
            return self.keep_own(move |record| record.stopped.clone_from(&stopped)).await;
        }
        let (monitor, writer) = (Arc::clone(&self.monitor), self.promote.hostgroup);
        let written = tokio::task::spawn_blocking(move || monitor.healing.orders.stop(writer, stopped)).await;
        written.map_err(|e| e.to_string())?
    }

    /// Changes what is to be written down, and returns it.
    fn noted(&self, change: impl FnOnce(&mut Vec<Stopped>)) -> Vec<Stopped> {
        let mut stopped = lock(&self.stopped);
        change(&mut stopped);
        stopped.clone()
    }

    /// Changes this proxy's file.
    pub(super) async fn write_own(
        &self,
        change: impl FnOnce(&Monitor, HostgroupId) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let (monitor, writer) = (Arc::clone(&self.monitor), self.promote.hostgroup);
        let written = tokio::task::spawn_blocking(move || change(&monitor, writer)).await;
        written.map_err(|e| e.to_string())?
    }

    /// As `SUSPEND HEALING HOSTGROUP` without an end. Returns the effect in words.
    pub(super) async fn suspend(&self, by: String) -> Result<String, String> {
        let (monitor, writer) = (Arc::clone(&self.monitor), self.promote.hostgroup);
        let written = tokio::task::spawn_blocking(move || monitor.healing.orders.suspend(Some(writer), None, &by)).await;
        written.map_err(|e| e.to_string())?
    }

    /// Writes down that the plan was undone, and what is left of it. A server that may be open stays noted.
    pub(super) async fn keep_undone(&self, why: &str, left: &[ServerAddr], is_unknown: bool) -> Result<(), String> {
        if !self.is_shared {
            return self.keep_stopped(|stopped| stopped.retain(|one| left.contains(&one.server) || !self.promote.has(&one.server))).await;
        }
        let stopped = lock(&self.stopped).clone();
        let left: Vec<Stopped> = stopped.into_iter().filter(|one| left.contains(&one.server) || !self.promote.has(&one.server)).collect();
        let (id, why) = (self.id.clone(), why.to_owned());
        let written = self.monitor.write_record(self.promote.hostgroup, true, move |record| {
            let left = left.clone();
            let (is_own, now_ms) = (record.plan == id && matches!(record.phase, Phase::Plan | Phase::Fork), unix_us() / 1_000);
            if is_own && !is_unknown {
                record.undo(&why, left, now_ms);
            } else {
                record.stopped = if is_own { left } else { record.stopped.clone() };
                record.fail(&why, now_ms);
            }
            Ok(())
        });
        written.await
    }
}

/// Why an operator does not want it, by the record.
fn suspension(record: &Record) -> Option<String> {
    let now_ms = unix_us() / 1_000;
    let suspended = record.suspended.as_ref().filter(|suspended| suspended.holds(now_ms))?;
    Some(suspended.told(now_ms, "RESUME HEALING"))
}
