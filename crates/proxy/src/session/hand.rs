//! What is known of the statement at hand: it begins with a command, and the next one begins anew.

use super::backends::Backends;
use super::overdue::Watched;
use super::route::Directions;
use super::trail::Trail;
use cache::Fill;
use model::snapshot::RuleMultiplex;
use session_state::pins::PinReason;
use sql::Analysis;
use std::sync::Arc;
use traces::TraceId;

/// See the module.
#[derive(Default)]
pub(super) struct AtHand {
    /// When its command came (process clock, us).
    pub began_us: u64,
    /// How it is run.
    pub directions: Directions,
    /// Where rules begin with the next statement: a rule's `next_query_flagIN`.
    pub flag_in: u32,
    /// GTIDs that its server must have: its comment says so.
    pub min_gtid: Option<Arc<str>>,
    /// Looks whether it runs, on a server that is to be left.
    pub watch: Option<Box<Watched>>,
    /// Takes its reply into the query cache.
    pub fill: Option<Box<Fill>>,
    /// What is noted of it, while traces go anywhere.
    pub trail: Option<Box<Trail>>,
}

impl AtHand {
    /// Notes something of the statement at hand, while traces go anywhere.
    pub(super) fn traced(&mut self, note: impl FnOnce(&mut Trail)) {
        if let Some(trail) = self.trail.as_deref_mut() {
            note(trail);
        }
    }

    /// The trace that the statement at hand is in.
    pub(super) fn trace_id(&self) -> Option<TraceId> {
        self.trail.as_ref()?.trace_id()
    }

    /// Whether the statement at hand is run as if there were no causal reads.
    pub(super) fn is_not_causal(&self, at: &Backends) -> bool {
        at.lane.causal().is_none() && self.directions.gtid_from.is_none() && self.min_gtid.is_none()
    }

    /// Marks that a rule's `multiplex=0` leaves on a session that holds a backend.
    pub(super) fn note_rule(&mut self, at: &mut Backends, analysis: &Analysis) {
        if self.directions.multiplex == Some(RuleMultiplex::Off) && at.backend.is_some() {
            let now = at.worker.clock.now_ms();
            at.pins.begin(PinReason::Rule, now, analysis.digest);
        }
    }

    /// The statement that was to fill the cache has been answered (or has failed: then it does not).
    pub(super) fn end_fill(&mut self, at: &Backends, succeeded: bool) {
        let Some(fill) = self.fill.take().filter(|_| succeeded) else { return };
        if let Some(backend) = at.backend.as_ref() {
            // A result that is not kept is no fault: the client has it.
            let _ = fill.finish(backend.core.caps, at.worker.shared.clock.now_ms());
        }
    }
}
