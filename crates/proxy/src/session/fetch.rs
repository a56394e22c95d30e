//! COM_STMT_FETCH: rows of an open cursor, on the backend that holds it.

use super::Session;
use super::command::Incoming;
use super::door::door;
use super::end::End;
use super::fault::Fault;
use super::plan::Plan;
use sql::Analysis;
use wire::codes;
use wire::flags::StatusFlags;
use wire::prepared::stmt_id;
use wire::reframe::ReplyFacts;
use wire::reply::ReplyKind;

impl Session {
    /// Serves COM_STMT_FETCH.
    pub(super) async fn fetch_rows(&mut self, command: Incoming) -> Result<(), End> {
        if self.client.is_short(&self.at, command, 8) {
            return self.client.malformed(&mut self.at).await;
        }
        let raw_id = stmt_id(self.client.payload(command)).unwrap_or(0);
        let open = self.statements.named_statement(&self.at, &self.client, command).filter(|id| self.statements.has_cursor(*id));
        if let Some(id) = open {
            self.statements.travel_to_cursor(&mut door!(self), id).await;
        }
        if open.is_some() && self.at.backend.is_none() {
            self.statements.lose_cursors_at(&mut self.at);
        }
        let Some(id) = open.filter(|_| self.at.backend.is_some()) else {
            let known = self.statements.named_statement(&self.at, &self.client, command).is_some();
            let fault = if known {
                let stop = if self.worker.shared.serves_mysql() { "." } else { "" };
                Fault::error(codes::STMT_HAS_NO_OPEN_CURSOR, b"HY000", format!("The statement ({raw_id}) has no open cursor{stop}"))
            } else {
                Fault::unknown_statement(&self.worker, raw_id, "mysqld_stmt_fetch")
            };
            return self.report(fault).await;
        };
        let analysis = Analysis::of_command(command.byte);
        let plan = Plan { statement: Some(id), reply: ReplyKind::Fetch, ..Plan::new(analysis) };
        let mut reply = ReplyFacts::default();
        match self.run_plan(command, &plan, &mut reply).await {
            Ok(()) => {
                self.effects().note_status(&analysis, &reply);
                let ended = reply.error.is_some() || reply.status.is_some_and(|s| s.contains(StatusFlags::LAST_ROW_SENT));
                if ended {
                    self.statements.cursor_ended(&mut self.at, id).await?;
                }
                self.statements.note_cursors(&mut self.at, analysis.digest);
                // FOUND_ROWS() stays that of the execution, and so do its warnings.
                self.facts.learn_row_count(-1);
                self.statements.count_fetched_rows(&mut self.facts, id, &reply);
                self.facts.keep_warnings(reply.warnings == 0);
                self.settle_uncounted(&analysis, &reply).await
            }
            Err(fault) => self.report(fault).await,
        }
    }
}
