//! What is different in a plan that an operator ordered.

use super::{Healer, lacks_right};
use crate::healing::Looked;
use topology::healing::Plan;

impl Healer {
    /// The plan after the last look: with the operator's wish, if there is one, as it was agreed.
    pub(super) fn agreed(&self, seen: &Looked) -> Result<Plan, String> {
        let Some(wish) = &self.promote.wish else { return seen.choice.plan.clone().map_err(|blocked| blocked.to_string()) };
        let policy = self.monitor.snapshot().healing.get(&self.promote.hostgroup).cloned();
        let policy = policy.ok_or_else(|| "mysql_healing does not name the cluster any more".to_owned())?;
        wish.agreed(&wish.choose(&seen.facts, &policy))
    }

    /// Other modes than `full` do not ask for rights before they are needed.
    pub(super) async fn has_rights(&self) -> Result<(), String> {
        if self.promote.wish.is_none() {
            return Ok(());
        }
        for server in &self.promote.servers {
            if let Ok(Some(why)) = lacks_right(&self.monitor, server).await {
                return Err(format!("{}: {why}", server.key.addr()));
            }
        }
        Ok(())
    }
}
