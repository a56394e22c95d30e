//! What plans did to servers, statement by statement: promotions, returns, switchovers, rehearsals, and the undoing of what a plan left.
//! The admin interface moves the steps to `stats_history.history_tidegate_healing`.
//!
//! INVARIANT: a step has no password in it, and a step that is given up is noted too. Steps that nobody takes are limited.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fleet::HealedStep;
use model::{HostgroupId, ServerAddr};

use super::claim::servers;
use crate::clock::{unix_us, whole};
use crate::monitor::{Monitor, lock};

/// Most steps that wait for the admin interface.
const STEPS_MAX: usize = 10_000;
/// Longest text of a statement or a result, characters.
const TEXT_MAX: usize = 4_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    steps: VecDeque<(u64, HealedStep)>,
    last: u64,
}

impl Journal {
    fn add(&mut self, step: HealedStep) {
        self.last += 1;
        if self.steps.len() == STEPS_MAX {
            self.steps.pop_front();
        }
        self.steps.push_back((self.last, step));
    }

    /// The steps that wait, oldest first, with their numbers.
    pub(super) fn waiting(&self) -> Vec<(u64, HealedStep)> {
        self.steps.iter().cloned().collect()
    }

    /// The steps up to this number are kept elsewhere.
    pub(super) fn forget(&mut self, last: u64) {
        self.steps.retain(|(number, _)| *number > last);
    }
}

/// A statement that a server is carrying out. It is noted when this ends, as given up unless [`Running::ended`] says more.
pub(super) struct Running {
    monitor: Arc<Monitor>,
    server: ServerAddr,
    step: String,
    statement: String,
    begun: Instant,
    result: String,
}

impl Running {
    /// `step` says what it is for.
    pub(super) fn new(monitor: &Arc<Monitor>, server: &ServerAddr, step: &str, statement: String) -> Self {
        let (monitor, server, step) = (Arc::clone(monitor), server.clone(), step.to_owned());
        Self { monitor, server, step, statement, begun: Instant::now(), result: "given up without an answer".to_owned() }
    }

    /// The server answered.
    pub(super) fn ended(mut self, outcome: Result<(), String>) {
        self.result = outcome.err().unwrap_or_else(|| "ok".to_owned());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (server, step) = (self.server.clone(), std::mem::take(&mut self.step));
        let (statement, result) = (std::mem::take(&mut self.statement), std::mem::take(&mut self.result));
        self.monitor.journal(None, &server, (step, statement, result), self.begun.elapsed());
    }
}

impl Monitor {
    /// Notes what a plan found or decided, without a statement.
    pub(crate) fn journal_says(&self, writer: HostgroupId, server: &ServerAddr, step: &str, why: &str) {
        self.journal(Some(writer), server, (step.to_owned(), String::new(), why.to_owned()), Duration::ZERO);
    }

    fn journal(
        &self,
        writer: Option<HostgroupId>,
        server: &ServerAddr,
        (step, statement, result): (String, String, String),
        took: Duration,
    ) {
        let claimed = match writer {
            Some(writer) => lock(&self.claims).of_cluster(writer).map(|plan| (writer, plan)),
            None => lock(&self.claims).of_server(server),
        };
        let cluster = || {
            self.consult(|snapshot, layout| {
                let mut writers = snapshot.roles.iter().map(|group| group.writer);
                writers.find(|writer| servers(snapshot, layout, *writer).contains(server))
            })
        };
        // What an earlier process left is put back without a claim.
        let (writer, plan, number) = match claimed {
            Some((writer, (plan, number))) => (Some(writer), plan, Some(number)),
            None => (writer.or_else(cluster), "undo", None),
        };
        let epoch = writer.map(|writer| self.record(writer).1).filter(|epoch| *epoch > 0);
        let short = |text: String| text.chars().take(TEXT_MAX).collect();
        lock(&self.journal).add(HealedStep {
            at_unix_us: unix_us(),
            plan,
            number,
            epoch,
            by: self.own_name(),
            writer,
            server: server.clone(),
            step,
            statement: short(statement),
            result: short(result),
            took_ms: whole(took.as_millis()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str) -> HealedStep {
        HealedStep {
            at_unix_us: 0,
            plan: "undo",
            number: None,
            epoch: None,
            by: String::new(),
            writer: None,
            server: ServerAddr { host: "a".into(), port: 1 },
            step: name.to_owned(),
            statement: String::new(),
            result: String::new(),
            took_ms: 0,
        }
    }

    #[test]
    fn steps_wait_until_they_are_kept_and_are_limited() {
        let mut journal = Journal::default();
        for name in ["a", "b", "c"] {
            journal.add(step(name));
        }
        let numbers = |journal: &Journal| journal.waiting().iter().map(|(number, _)| *number).collect::<Vec<_>>();
        journal.forget(2);
        assert_eq!(numbers(&journal), [3]);
        for _ in 0..STEPS_MAX {
            journal.add(step("d"));
        }
        assert_eq!((journal.steps.len(), journal.steps[0].1.step.as_str()), (STEPS_MAX, "d"));
        journal.forget(u64::MAX);
        assert!(journal.waiting().is_empty());
    }
}
