//! Undoes a failed switchover: its changes in reverse, until the old writer is seen as the writer.

use std::time::Duration;

use model::ServerAddr;

use super::gate::Gate;
use super::plan::writers;
use super::repoint::SemiSync;
use super::switchover::{OTHERS_LIMIT, Switchover};
use super::{LOOK_AGAIN, group, replication, repoint};

/// Longest that undoing may take.
const UNDO_LIMIT: Duration = Duration::from_secs(5);
/// Longest that the new writer's channel takes of it: the old writer is reopened after that, and the new one may be lost.
const PUT_ON_LIMIT: Duration = Duration::from_secs(1);

/// A change that has to be undone if the rest fails.
#[derive(Debug, Clone)]
pub(super) enum Done {
    /// `read_only` was set on the old writer.
    OldClosed {
        /// The connection that set it, which may still wait.
        connection: u64,
        /// The values before.
        before: Gate,
    },
    /// `read_only` was taken off the new one.
    NewOpened {
        /// The connection that did so.
        connection: u64,
        /// The values before.
        before: Gate,
    },
    /// The new one no longer follows the old one.
    TakenOff {
        /// The connection that stopped its channel.
        connection: u64,
        name: String,
        /// Its source side of semi-synchronous replication was switched on.
        semi_sync: Option<SemiSync>,
    },
    /// The new writer is preferred.
    Preferred {
        /// The server preferred before, if any.
        before: Option<ServerAddr>,
    },
    /// The group was asked to elect the new one.
    Elected {
        /// The connection that asked, which may still wait.
        connection: u64,
        uuid: String,
    },
}

impl Switchover {
    /// Undoes the changes in reverse. Returns `why` with the result of undoing.
    pub(super) async fn give_up(&mut self, why: String) -> String {
        if self.done.is_empty() {
            return format!("{why}; nothing had been changed");
        }
        self.note(format!("failed: {why}"));
        match tokio::time::timeout(UNDO_LIMIT, self.undo()).await {
            Ok(Ok(())) => format!("{why}; everything is as it was"),
            Ok(Err(fault)) => format!("{why}; NOT EVERYTHING COULD BE UNDONE: {fault}"),
            Err(_) => format!("{why}; NOT EVERYTHING COULD BE UNDONE within {} ms", UNDO_LIMIT.as_millis()),
        }
    }

    /// Over new connections: the present ones may be in the middle of something.
    async fn undo(&mut self) -> Result<(), String> {
        let (mut faults, mut preferred, mut may_new_write, mut is_old_open) = (Vec::new(), None, false, false);
        while let Some(done) = self.done.pop() {
            let (old, new) = (self.plan.old.key.addr(), self.plan.new.key.addr());
            let outcome = match &done {
                Done::OldClosed { .. } if may_new_write => Err(format!("{old} stays read-only: {new} may be writable")),
                Done::OldClosed { connection, before } => replication::reopen_old(self, *connection, before).await,
                Done::NewOpened { connection, before } => replication::close_new(self, *connection, before).await,
                Done::TakenOff { connection, name, semi_sync } => {
                    within(PUT_ON_LIMIT, &new, repoint::put_on(self, *connection, name, *semi_sync)).await
                }
                // A cluster that is gone has no preference.
                Done::Preferred { .. } if !self.has_cluster() => Ok(()),
                Done::Preferred { before } => {
                    preferred = Some(before.clone());
                    self.prefer(Some(old.clone()))
                }
                Done::Elected { connection, uuid } => group::elect_old(self, *connection, uuid).await,
            };
            is_old_open |= outcome.is_ok() && matches!(done, Done::OldClosed { .. });
            match outcome {
                Ok(()) => self.note(match done {
                    Done::OldClosed { .. } => format!("undone: {old} may write again"),
                    Done::NewOpened { .. } => format!("undone: {new} is read-only again"),
                    Done::TakenOff { .. } => format!("undone: {new} follows {old} again"),
                    Done::Preferred { .. } => format!("undone: {old} is preferred"),
                    Done::Elected { .. } => format!("undone: {old} is the primary again"),
                }),
                Err(fault) => {
                    may_new_write |= matches!(done, Done::NewOpened { .. });
                    faults.push(fault);
                }
            }
        }
        // Sessions continue with the server that is seen as the writer, so this step is needed even if other ones failed.
        if is_old_open || faults.is_empty() {
            faults.extend(self.see_as_before().await.err());
        }
        if !faults.is_empty() {
            return Err(faults.join(", "));
        }
        // It was preferred so that it writes at once, no longer.
        if let Some(before) = preferred {
            self.monitor.decide(|topology, now_ms| topology.put_back_preferred(now_ms, self.plan.writer, before));
        }
        Ok(())
    }

    /// The old one is seen as the writer again before anybody goes on.
    async fn see_as_before(&mut self) -> Result<(), String> {
        let (old, kind) = (self.plan.old.key.addr(), self.plan.kind());
        let mut control = self.fresh(&self.plan.old).await?;
        // It may be lost: that may be why this is undone.
        let other = tokio::time::timeout(OTHERS_LIMIT, self.fresh(&self.plan.new)).await;
        let mut other = other.ok().and_then(Result::ok);
        while self.has_cluster() && !self.writers().contains(&old) {
            control.look(kind).await?;
            if let Some(new) = &mut other
                && new.look(kind).await.is_err()
            {
                other = None;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    fn writers(&self) -> Vec<ServerAddr> {
        let writers = self.monitor.consult(|_, layout| writers(layout, self.plan.writer));
        writers.iter().map(|server| server.key.addr()).collect()
    }

    /// Whether the old writer is still configured to be one.
    fn has_cluster(&self) -> bool {
        let old = self.plan.old.key.addr();
        self.monitor.consult(|snapshot, layout| {
            let group = snapshot.roles.iter().find(|group| group.writer == self.plan.writer);
            let mut placed = group.into_iter().flat_map(|group| group.hostgroups()).filter_map(|id| layout.hostgroups.get(&id)).flatten();
            placed.any(|placement| placement.server.key.addr() == old)
        })
    }
}

/// A part of the undoing that the rest must not wait for any longer.
async fn within(limit: Duration, server: &ServerAddr, work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let outcome = tokio::time::timeout(limit, work).await;
    outcome.unwrap_or_else(|_| Err(format!("{server} has not answered in {} ms: its channel may be stopped", limit.as_millis())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_is_lost_is_a_fault_and_holds_up_nobody() {
        let server = ServerAddr { host: "b".into(), port: 1 };
        let fault = within(Duration::ZERO, &server, std::future::pending()).await.unwrap_err();
        assert_eq!(fault, "b:1 has not answered in 0 ms: its channel may be stopped");
        assert_eq!(within(PUT_ON_LIMIT, &server, async { Ok(()) }).await, Ok(()));
    }
}
