//! Running a statement: a backend for it, the session's state on that, the statement and its reply; again where nothing can have
//! happened.

use super::Session;
use super::command::Incoming;
use super::connection::Connection;
use super::door::door;
use super::fault::Fault;
use super::leave::BackendAtStart;
use super::plan::Plan;
use super::relay::Outgoing;
use super::sync::Ahead;
use super::trail::Trail;
use session_state::causal::Writing;
use session_state::facts::is_about_diagnostics;
use sql::Facts;
use wire::reframe::ReplyFacts;

impl Session {
    /// Runs a statement, and writes down in `reply` what its answer said; a lost connection or a refusal is made good where it is
    /// certain that nothing happened.
    pub(super) async fn run_plan(&mut self, command: Incoming, plan: &Plan, reply: &mut ReplyFacts) -> Result<(), Fault> {
        self.recovery.forget_retries();
        self.facts.begin();
        let mut patience = None;
        if plan.analysis.facts.contains(Facts::UNKNOWN_FUNCTION) {
            self.facts.routines_defined = self.worker.shared.routines_defined.count();
        }
        self.assign_gtid(command, plan);
        let result = loop {
            self.hand.traced(Trail::attempt_begins);
            let tried = self.try_plan(command, plan, reply).await;
            self.hand.traced(|trail| trail.attempt_ends(&self.at, tried.as_ref().map(|()| &*reply)));
            match tried {
                Ok(()) => break Ok(()),
                // Rare, and long.
                Err(fault) => {
                    let patience = patience.get_or_insert_with(|| Box::new(self.hand.patience(&self.at)));
                    match Box::pin(self.run_again(patience, fault, command, plan)).await {
                        Ok(()) => {}
                        Err(fault) => {
                            self.causal.note_lost(&self.at, &self.hand, &plan.analysis, &fault);
                            break Err(fault);
                        }
                    }
                }
            }
        };
        if result.is_ok() {
            self.at.backend.note_answered(self.handle.id, &mut self.facts, reply);
        }
        if self.hand.fill.is_some() {
            self.hand.end_fill(&self.at, result.is_ok());
        }
        if self.recovery.assigned_gtid.is_some() {
            Box::pin(self.recovery.gtid_after(&mut door!(self))).await;
        }
        result
    }

    /// Brings the backend at hand to the session's state for this statement. Returns what is to be sent ahead of it.
    async fn sync_plan(&mut self, command: Incoming, plan: &Plan) -> Result<Ahead, Fault> {
        if self.hand.is_not_causal(&self.at) {
            return self.sync(&plan.as_synced()).await;
        }
        let must_stay = self.router().must_stay(&self.statements, command, plan);
        self.sync_causally(&plan.as_synced(), must_stay).await
    }

    async fn try_plan(&mut self, command: Incoming, plan: &Plan, reply: &mut ReplyFacts) -> Result<(), Fault> {
        if self.recovery.assigned_gtid.is_some()
            && let Some(settled) = Box::pin(self.settle_commit(command, plan)).await?
        {
            *reply = settled;
            return Ok(());
        }
        let (ahead, readied) = loop {
            let gathered = self.gathered(command, plan);
            match if gathered.is_some() { BackendAtStart::None } else { self.obtain_at_once()? } {
                BackendAtStart::AtHand => {}
                kept => {
                    self.hand.traced(|trail| trail.attempt_waits(&self.at));
                    if self.obtain_or_ride(kept, gathered, command, plan, reply).await? {
                        return Ok(());
                    }
                    self.listening_goes_on(command, plan);
                }
            }
            self.hand.traced(|trail| trail.attempt_has_backend(&self.at));
            if self.is_proof_due(command, plan) {
                Box::pin(self.prove(command, plan)).await?;
            }
            let mut ahead =
                if self.hand.is_not_causal(&self.at) && self.hand.is_in_sync(&mut self.at, &self.wants, &self.facts, &plan.as_synced()) {
                    Ahead::default()
                } else {
                    self.hand.traced(Trail::attempt_syncs);
                    Box::pin(self.sync_plan(command, plan)).await?
                };
            if self.facts.own_error().is_some() && is_about_diagnostics(&plan.analysis) {
                Box::pin(self.door().raise_own_error()).await?;
            }
            if self.recovery.assigned_gtid.is_some()
                && let Some(settled) = Box::pin(self.settle_write(&mut ahead)).await?
            {
                *reply = settled;
                return Ok(());
            }
            if self.recovery.assigned_gtid.is_some() {
                Box::pin(self.door().learn_member()).await?;
            }
            let readied = match plan.statement {
                Some(id) => match self.statements.found_on_backend_as_bound(&mut self.at, id) {
                    Some(server_id) => self.statements.with_server_id(&mut self.at, &mut self.client, command, id, server_id),
                    None => {
                        self.hand.traced(Trail::attempt_syncs);
                        match Box::pin(self.ready_execution(command, id, &mut ahead)).await {
                            Ok(readied) => readied,
                            Err(fault) => {
                                Box::pin(self.send_unless_lost(&ahead)).await;
                                return Err(fault);
                            }
                        }
                    }
                },
                None => None,
            };
            // Readying may have taken round trips, in which the server may have lost its role.
            if self.recovery.may_begin(&mut self.at, &mut self.facts) {
                break (ahead, readied);
            }
        };
        self.hand.traced(|trail| trail.attempt_sends(&self.at));
        let outgoing = match readied.as_ref().or(plan.rewritten.as_ref()) {
            Some(bytes) => Outgoing::Bytes(bytes),
            None => Outgoing::AsItCame(command.wire_len),
        };
        if self.recovery.assigned_gtid.is_some() {
            *reply = Box::pin(self.run_with_gtid(ahead, outgoing, command, plan)).await?;
            return Ok(());
        }
        let learns_since_us = self.learns_since(command, plan);
        self.send_statement(&ahead, outgoing).await?;
        self.relay_to(plan, reply).await?;
        if let Some(since_us) = learns_since_us {
            self.statements.learn_habit(&self.at, &self.wants, plan, reply, since_us);
        }
        if self.at.lane.causal().writes == Writing::Remembered {
            self.causal.note_written(&self.at, &self.hand, &plan.analysis, reply);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod loss_tests;
