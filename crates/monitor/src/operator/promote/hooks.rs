//! The programs that a plan runs (`mysql_healing_hooks`).

use std::time::Duration;

use model::snapshot::HookMoment;
use topology::healing::{Phase, Plan};

use super::Healer;
use crate::healing::{Told, longest_hooks, run_hooks};

impl Healer {
    /// Longest for the programs that run before a server is opened.
    pub(super) fn hooks_limit(&self) -> Duration {
        longest_hooks(&self.monitor, self.promote.hostgroup, &[HookMoment::Before, HookMoment::Fence])
    }

    /// Nothing is changed yet: a program that is required and fails ends the plan.
    pub(super) async fn before(&self) -> Result<(), String> {
        self.run(HookMoment::Before, None, "the writer is dead").await
    }

    /// The old writer is made sure to be down: a program that is required and fails ends the plan, which is undone.
    pub(super) async fn fence(&self, plan: &Plan) -> Result<(), String> {
        self.run(HookMoment::Fence, Some(plan), "another server is about to take over").await
    }

    /// Whatever comes of it, the server was promoted. Of several proxies, one runs the programs: this one if the record says that the server
    /// writes; otherwise the one that writes so when it ends this plan.
    pub(super) async fn hook_after(&self, plan: &Plan) -> Result<(), String> {
        let has_any = !longest_hooks(&self.monitor, self.promote.hostgroup, &[HookMoment::After]).is_zero();
        // The record first: while the lease holds after that, no other proxy has ended the plan.
        if self.is_shared && has_any && self.monitor.record(self.promote.hostgroup).0.phase != Phase::Open {
            return Err("the programs of the moment `after` run when the plan is brought to its end in etcd".to_owned());
        }
        if let Some(lost) = self.lease().refusal().filter(|_| has_any) {
            return Err(format!("the programs of the moment `after` did not run: {lost}"));
        }
        self.run(HookMoment::After, Some(plan), &plan.because).await
    }

    async fn run(&self, moment: HookMoment, plan: Option<&Plan>, reason: &str) -> Result<(), String> {
        let told = Told {
            old: Some(self.promote.old.key.addr()),
            new: plan.map(|plan| plan.candidate.clone()),
            server: None,
            reason: reason.to_owned(),
            lost: plan.map(|plan| plan.lost.count),
        };
        run_hooks(&self.monitor, self.promote.hostgroup, moment, &told).await
    }
}
