//! The programs that a plan runs (`mysql_healing_hooks`).

use std::time::Duration;

use model::snapshot::HookMoment;
use topology::healing::Plan;

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

    /// Whatever comes of it, the server was promoted.
    pub(super) async fn hook_after(&self, plan: &Plan) -> Result<(), String> {
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
