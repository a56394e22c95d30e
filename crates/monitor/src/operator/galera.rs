//! Switchover of a Galera cluster: every node can write, so it is a matter of preference alone.

use std::time::Duration;

use topology::CheckKind;

use super::LOOK_AGAIN;
use super::control::Control;
use super::switchover::Switchover;
use super::undo::Done;
use crate::probe::Found;

/// Times that a node is asked. A refusal counts at once, an acceptance needs a second look.
const LOOKS: u32 = 3;
/// A node that is preferred writes at once, or not at all.
const CHOICE_LIMIT: Duration = Duration::from_secs(1);

/// Both are nodes that answer, and the new one would write if it were preferred.
pub(super) async fn would_write(work: &mut Switchover, kind: CheckKind) -> Result<(), String> {
    let mut outcome = Ok(());
    for _ in 0..LOOKS {
        work.old.look(kind).await?;
        let steady = is_steady(&mut work.new, kind).await;
        outcome = work.would_write().and(steady);
        if outcome.is_ok() {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    outcome
}

/// An error for a donor or a node that catches up: its role may change in a moment.
async fn is_steady(node: &mut Control, kind: CheckKind) -> Result<(), String> {
    match node.look(kind).await? {
        Found::Galera(view) if view.gives_state() => {
            Err(format!("{} is a donor or catches up (wsrep_local_state {}): wait until it is synced", node.addr, view.local_state))
        }
        _ => Ok(()),
    }
}

/// Waits until the new writer has applied the old one's commits, then prefers it.
pub(super) async fn change(work: &mut Switchover) -> Result<(), String> {
    work.new.ask("SET SESSION wsrep_sync_wait=1").await?;
    work.new.ask("SELECT COUNT(*) FROM information_schema.schemata").await?;
    work.note(format!("{} has everything", work.new.addr));
    choose(work, CheckKind::Galera).await
}

/// The new one is preferred, and writes.
pub(super) async fn choose(work: &mut Switchover, kind: CheckKind) -> Result<(), String> {
    let new = work.plan.new.key.addr();
    is_steady(&mut work.new, kind).await?;
    let before = work.monitor.preferred(work.plan.writer);
    work.will(Done::Preferred { before });
    work.prefer(Some(new.clone()))?;
    let seen = tokio::time::timeout(CHOICE_LIMIT, work.see(kind)).await;
    seen.unwrap_or_else(|_| {
        Err(match &work.awaited {
            Some(silent) => format!("{silent} has not reported its state after {} ms", CHOICE_LIMIT.as_millis()),
            None => format!("{new} is preferred, but is not the writer after {} ms", CHOICE_LIMIT.as_millis()),
        })
    })
}
