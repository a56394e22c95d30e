//! Where a session's captures and rehearsals hear of its commands: when one begins, when its statement is about to run, when it is answered
//! otherwise, when it was served. A session that has nothing [`Beside`] it leaves
//! this file at once.

use super::Session;
use super::beside::Beside;
use super::command::Incoming;
use super::pipeline::Statement;
use super::plan::Plan;
use super::rehearsed::left_out_of_comparison;
use crate::workers::worker::Worker;
use wire::command::Command;

impl Session {
    /// A command has come.
    pub(super) fn beside_begins(&mut self, command: Incoming) {
        if self.beside.is_some() || self.worker.shared.is_listening() {
            self.capture_begins(command);
            self.copy_begins(command);
        }
    }

    /// A statement is about to run where the session is now.
    pub(super) fn listening_begins(&mut self, statement: &Statement) {
        if self.beside.is_none() && !self.worker.shared.is_listening() {
            return;
        }
        let forms = [self.rehearsal_wants(statement), self.capture_wants(statement), self.copy_wants(statement)];
        let form = forms.into_iter().flatten().next();
        let left_out = form.map_or(Vec::new(), |_| left_out_of_comparison(self, statement));
        if let Some(beside) = self.beside.as_mut() {
            beside.listen_for(form, left_out, self.worker.shared.clock);
        }
    }

    /// The statement has waited for a backend. If a rehearsal has begun meanwhile, it is copied too.
    pub(super) fn listening_goes_on(&mut self, command: Incoming, plan: &Plan) {
        let epoch = self.worker.shared.rehearsals.epoch();
        if let Some((form, _)) = plan.heard.filter(|(_, since)| *since != epoch) {
            self.listening_begins(&Statement { command, analysis: plan.analysis, form });
        }
    }

    /// A statement was served.
    pub(super) fn beside_ran(&mut self, statement: &Statement) {
        if self.beside.is_some() {
            self.capture_statement(statement);
            self.copy_statement(statement);
        }
    }

    /// A command that is no statement was served.
    pub(super) fn beside_served(&mut self, kind: Command) {
        if self.beside.is_some() {
            self.capture_command(kind);
            self.copy_command(kind);
        }
    }
}

impl Beside {
    /// A rule has answered or refused the statement at hand.
    pub(super) fn stops(&mut self) {
        self.captured.stops();
        self.copied.stops();
    }

    /// The statement at hand is answered by the proxy, since it cannot be run.
    pub(super) fn is_answered_unsent(&mut self) {
        self.copied.stops();
    }

    /// The client waits until the shadow has room, if it is to.
    pub(super) async fn command_ended(&mut self, worker: &Worker) {
        if self.copied.waits() {
            Box::pin(self.copied.wait_for_room(worker)).await;
        }
    }
}
