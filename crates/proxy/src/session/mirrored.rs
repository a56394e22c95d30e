//! Makes copies of statements for [`mirror`]: decided here, with what the session knows, and run elsewhere.

use super::Session;
use super::command::Incoming;
use super::route::Asked;
use crate::class::Class;
use crate::lane::LaneKey;
use crate::mirror::{self, Mirrored, Wish};
use crate::state::State;
use model::HostgroupId;
use routing::Route;
use sql::Analysis;
use std::sync::Arc;

impl Session {
    /// Copies a COM_QUERY that is about to run, if a rule or a comment wants it.
    pub(super) fn mirror(&mut self, command: Incoming, start: usize, analysis: &Analysis) {
        let Some(wish) = self.directions.mirror.filter(|_| mirror::is_copied(analysis)) else { return };
        if self.sql_text(command, start).len() >= mirror::MAX_TEXT {
            return mirror::drop_copy(&self.worker, "it is too long");
        }
        let Some(route) = self.route_of_copy(wish, command, start, analysis) else { return };
        let destination = route.destination_hostgroup.or(wish.hostgroup).unwrap_or(self.user.default_hostgroup);
        let copy = self.copy(command, start, analysis, destination, &route);
        let strand = self.strand.get_or_insert_default();
        mirror::admit(&self.worker, strand, copy);
    }

    /// What the rules say of the copy; None when it is not to run.
    fn route_of_copy(&self, wish: Wish, command: Incoming, start: usize, analysis: &Analysis) -> Option<Route> {
        let Some(flag) = wish.flag else { return Some(Route::default()) };
        let text = self.sql_text(command, start);
        let digest = self.worker.digest(text, self.lex, analysis);
        let asked = Asked { flag_in: flag, comment: None, schema: self.state.schema.as_deref().unwrap_or_default() };
        let route = self.ask_rules(&self.worker.in_force(), text, analysis, &digest, asked);
        // A message has nobody to go to.
        (route.error_msg.is_none() && route.ok_msg.is_none()).then_some(route)
    }

    fn copy(&self, command: Incoming, start: usize, analysis: &Analysis, hostgroup: HostgroupId, route: &Route) -> Mirrored {
        let (body, analysis) = match &route.rewritten {
            None => (self.body(command).to_vec(), *analysis),
            Some(text) => {
                let attributes = self.body(command).get(..start).unwrap_or_default();
                ([attributes, text].concat(), sql::analyze_with(text, self.lex, self.worker.meter.grouping()))
            }
        };
        let class = Class::of(self.caps);
        Mirrored {
            body,
            start,
            analysis,
            lex: self.lex,
            state: state_of_copy(&self.state),
            lane: LaneKey { hostgroup, user: Arc::clone(&self.user), class },
            collation: u8::try_from(self.collation).unwrap_or(0),
            timeout_ms: route.timeout_ms,
            client: self.client_ip(),
        }
    }
}

/// The session's state, but for its transactions: a copy is one of its own, and ends with its statement.
fn state_of_copy(state: &State) -> State {
    let mut state = state.clone();
    if state.variables.get("autocommit").is_some() {
        state.variables.set("autocommit", None);
    }
    state
}
