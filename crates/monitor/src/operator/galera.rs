//! Switchover of a Galera cluster: every node can write, so it is a matter of preference alone.

use topology::CheckKind;

use super::switchover::{Done, Switchover};

/// Both are nodes that answer.
pub(super) async fn prepare(work: &mut Switchover) -> Result<(), String> {
    work.old.look(CheckKind::Galera).await?;
    work.new.look(CheckKind::Galera).await
}

/// The new one has applied what the old one has committed, and is preferred.
pub(super) async fn change(work: &mut Switchover) -> Result<(), String> {
    work.new.ask("SET SESSION wsrep_sync_wait=1").await?;
    work.new.ask("SELECT COUNT(*) FROM information_schema.schemata").await?;
    let new = work.plan.new.key.addr();
    work.note(format!("{new} has everything"));
    work.will(Done::Preferred);
    work.prefer(Some(new))?;
    work.see(CheckKind::Galera).await
}
