//! Acknowledgements of a promoted server where the proxy sets semi-synchronous replication up (`semi_sync` is `managed`).
//!
//! With `loss` `none` the server waits for acknowledgements from its first write on: the replica sides of those that will follow are on, and
//! then its own source side, before it is opened. Otherwise it begins to wait when replicas have connected.
//! INVARIANT: commits wait for no more replicas than follow.

use std::sync::Arc;

use model::ServerAddr;
use model::snapshot::{Healing, Loss, Server};
use topology::healing::{Act, Facts, Plan, Setting, may_acknowledge};

use super::{Done, Healer, Ready, STEP, within};
use crate::operator::acks::{connected, set_source, will_acknowledge};
use crate::operator::control::Control;
use crate::operator::repoint::SemiSync;

impl Healer {
    /// The row, if the proxy sets semi-synchronous replication up.
    pub(super) fn managed(&self) -> Option<Arc<Healing>> {
        let snapshot = self.monitor.snapshot();
        snapshot.healing.get(&self.promote.hostgroup).filter(|row| row.manages_acks()).cloned()
    }

    /// Before the opening: the candidate's channel is stopped. What a server refuses is an event, and the plan goes on.
    pub(super) async fn ready_acks(
        &self,
        facts: &Facts,
        plan: &Plan,
        (candidate, server): (&mut Control, &Arc<Server>),
        others: &mut [Control],
    ) -> Result<(), String> {
        let Some(policy) = self.managed() else { return Ok(()) };
        let replica = |addr: &ServerAddr| facts.replicas.iter().find(|replica| replica.addr == *addr);
        let site = replica(&plan.candidate).map(|replica| Arc::clone(&replica.site)).unwrap_or_else(|| "".into());
        let follows = |control: &&mut Control| {
            let is_it = |step: &topology::healing::Step| step.server == control.addr && matches!(step.act, Act::Follow { .. });
            let is_fit = replica(&control.addr).is_some_and(|replica| may_acknowledge(replica, &site, &policy).is_ok());
            is_fit && plan.steps.iter().any(is_it)
        };
        let mut ackers = 0;
        for control in others.iter_mut().filter(follows) {
            match will_acknowledge(control).await {
                Ok(()) => ackers += 1,
                Err(why) => {
                    self.note(&control.addr, "acknowledges nothing", &why);
                    // An answer that came too late must not be read as that of the last checks.
                    within(STEP, control.id()).await?;
                }
            }
        }
        if policy.loss != Loss::None || ackers == 0 {
            return Ok(());
        }
        let acks = if candidate.version().is_mariadb { 1 } else { policy.acks.clamp(1, ackers) };
        let Some(source) = candidate.sight().await?.source_side() else {
            self.note(&plan.candidate, "does not wait", "semi-synchronous replication is not installed there (stats_tidegate_healing)");
            return Ok(());
        };
        let setting = Setting { needs: 0, ..Setting::of(&source, Loss::None, acks) };
        if setting.is_done() {
            return Ok(());
        }
        let Some(own) = within(STEP, SemiSync::of(candidate)).await? else { return Ok(()) };
        if setting.switch_on {
            self.will(Done::Waits { server: Arc::clone(server), source: own });
        }
        match set_source(candidate, &setting).await {
            Ok(()) => self.note(&plan.candidate, "semi-synchronous", &format!("before its first write: {}", setting.told())),
            Err(why) => self.note(&plan.candidate, "does not wait", &why),
        }
        // An answer that came too late must not be read as the next one.
        within(STEP, candidate.id()).await.map(drop)
    }

    /// Nobody follows, and commits may wait: a warning.
    pub(super) async fn warn_of_waiting(&self, ready: &mut Ready) -> Result<(), String> {
        let heir = ready.candidate.addr.clone();
        match ready.candidate.sight().await?.source_side() {
            Some(source) if source.is_enabled => {
                Err(format!("NO REPLICA FOLLOWS {heir}, AND ITS COMMITS WAIT (loss is none): let a replica follow it"))
            }
            _ => Ok(()),
        }
    }

    /// Replicas follow: the new writer waits for as many as have connected, at most for `acks`. An error is a warning.
    pub(super) async fn settle_acks(&self, ready: &mut Ready, policy: &Healing, followers: usize) -> Result<(), String> {
        let heir = ready.candidate.addr.clone();
        let source = ready.candidate.sight().await?.source_side();
        let source = source.ok_or_else(|| format!("{heir} has no semi-synchronous replication, so its commits wait for nobody"))?;
        let is_mariadb = ready.candidate.version().is_mariadb;
        let wanted = if is_mariadb { 1 } else { policy.acks.min(followers as u64).max(1) };
        let begun = std::time::Instant::now();
        let mut live = connected(&mut ready.candidate).await?;
        while live < wanted && begun.elapsed() < super::after::ACKNOWLEDGES {
            tokio::time::sleep(super::WATCH_EVERY).await;
            live = connected(&mut ready.candidate).await?;
        }
        // Commits that wait already have been promised so many.
        let promised = if policy.loss == Loss::None && source.is_enabled { source.acks.unwrap_or(1) } else { 0 };
        if live > 0 && live < promised {
            return Err(format!("COMMITS OF {heir} WAIT for {promised} replicas, and {live} acknowledge (loss is none): start a replica"));
        }
        match (live.min(wanted.max(promised)), source.is_enabled) {
            (0, true) => Err(format!("NO REPLICA ACKNOWLEDGES, AND COMMITS OF {heir} WAIT (loss is none): start a replica")),
            (0, false) => Err(format!("no replica is connected to acknowledge, so commits of {heir} do not wait")),
            (acks, _) => {
                let setting = Setting::of(&source, policy.loss, acks);
                if !setting.is_done() {
                    set_source(&mut ready.candidate, &setting).await?;
                }
                self.note(&heir, "semi-synchronous", &format!("its commits wait for {acks} of {followers} replicas that follow"));
                Ok(())
            }
        }
    }
}
