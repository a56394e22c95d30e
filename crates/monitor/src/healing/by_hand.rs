//! An operator's promotion (`HEAL HOSTGROUP`): the order waits on the board until the next look, the plan is the one of mode `full`, and the
//! operator hears what became of it. In every mode but `off`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use model::HostgroupId;
use model::fleet::{HealOrder, HealingStep};
use model::snapshot::Healing;
use topology::healing::{Facts, Lease, Record, Turn, Verdict, Wish, turn};

use super::advice::{say, steps};
use super::board::Seen;
use super::promote::{Field, Healed, Promoting, heir_of, unsettled};
use crate::monitor::{Monitor, lock};

/// Longest wait for what passes by itself: the lease of the healer, the first looks, another proxy's plan.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longest for a plan beside applying: its own limits end it earlier.
const PLAN: Duration = Duration::from_secs(120);
/// Longest wait for a look.
const LOOK: Duration = Duration::from_secs(5);

/// An order that waits.
#[derive(Debug, Clone)]
pub(super) struct Ordered {
    pub(super) wish: Wish,
    by: String,
    since: Instant,
    answer: Sender<Result<String, String>>,
}

/// The orders that wait, one for each cluster.
pub(super) type Orders = BTreeMap<HostgroupId, Ordered>;

impl Ordered {
    /// Tells the operator, who may have gone.
    pub(super) fn tell(&self, outcome: Result<String, String>) {
        let _ = self.answer.send(outcome);
    }

    /// For events.
    pub(super) fn by(&self) -> &str {
        &self.by
    }
}

impl Promoting {
    /// Carries out the order that waits, refuses it, or lets it wait. True once its plan has begun.
    pub(super) fn obey(
        &mut self,
        monitor: &Arc<Monitor>,
        field: &Field<'_>,
        facts: &Facts,
        verdict: Verdict,
        (lease, record): (&Lease, &Record),
    ) -> bool {
        let writer = field.policy.writer;
        let Some(ordered) = monitor.healing.order(writer) else { return false };
        let may_wait = ordered.since.elapsed() < PATIENCE;
        let choice = ordered.wish.choose(facts, field.policy);
        let refused = match turn(lease, record) {
            Turn::Wait(why) => Some((why, matches!(lease, Lease::Other(None) | Lease::New(_)))),
            Turn::Settle => Some((unsettled(record, heir_of(record, facts)), true)),
            Turn::Begin => {
                let checked = ordered.wish.check(verdict, facts, &choice, &self.brakes(monitor, field));
                checked.err().map(|refusal| (refusal.why, refusal.passes))
            }
        };
        match refused {
            Some((_, true)) if may_wait => false,
            Some((why, _)) => {
                monitor.healing.take_order(writer);
                let hint = if verdict == Verdict::Dead { hint(writer, &ordered.wish, facts, field.policy) } else { String::new() };
                ordered.tell(Err(format!("no server was promoted: {why}{hint}; nothing was changed")));
                false
            }
            // The operator's patience may have ended meanwhile.
            None if !monitor.healing.take_order(writer) => false,
            None => {
                let begun = self.begin(monitor, field, facts, record.clone(), Some(&ordered));
                if begun {
                    self.ordered = Some(ordered);
                } else {
                    ordered.tell(Err("no server was promoted: the writer is not a server of the configuration".to_owned()));
                }
                begun
            }
        }
    }
}

impl Healed {
    /// Of a plan that an operator ordered.
    pub(super) fn under_way() -> Self {
        Self { is_under_way: true, ..Self::default() }
    }
}

impl Monitor {
    /// See [`model::fleet::Operator::heal`]. Blocks.
    pub(crate) fn heal(&self, order: &HealOrder, by: &str) -> Result<String, String> {
        let (writer, apply_ms) = (order.hostgroup, self.healed_row(order.hostgroup)?);
        let wish = wish(order);
        let (answer, answered) = mpsc::channel();
        self.healing.give_order(writer, Ordered { wish, by: by.to_owned(), since: Instant::now(), answer })?;
        self.healing.look_now();
        match answered.recv_timeout(PATIENCE + PLAN + Duration::from_millis(apply_ms)) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) if self.healing.take_order(writer) => {
                Err("the servers were not looked at in time: no server was promoted, and nothing was changed".to_owned())
            }
            Err(_) => Err("the plan has not ended: see last_plan in stats_tidegate_healing".to_owned()),
        }
    }

    /// See [`model::fleet::Operator::explain_heal`]. Blocks.
    pub(crate) fn explain_heal(&self, order: &HealOrder) -> Result<Vec<HealingStep>, String> {
        self.healed_row(order.hostgroup)?;
        let seen = self.healing.seen_anew(order.hostgroup, Instant::now() + LOOK);
        let seen = seen.ok_or_else(|| "the servers have not been looked at in time: try again in a moment".to_owned())?;
        Ok(explained(&seen, &wish(order)))
    }

    /// `apply_ms` of the cluster. An error if it is not looked at.
    fn healed_row(&self, writer: HostgroupId) -> Result<u64, String> {
        let snapshot = self.snapshot();
        if !super::wanted(&snapshot).any(|one| one == writer) {
            return Err(format!(
                "hostgroup {writer} is not a cluster in mysql_healing with mode 'advise', 'rejoin' or 'full': nothing was changed"
            ));
        }
        Ok(snapshot.healing.get(&writer).map_or(0, |row| row.apply_ms))
    }

    /// Who ordered the plan that is about to begin, for the log.
    pub(super) fn note_order_to_heal(&self, writer: HostgroupId, by: &str, wish: &Wish) {
        let to = wish.to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
        let losing = wish.losing.map(|count| format!(", losing {count} transactions")).unwrap_or_default();
        tracing::warn!("healing of hostgroup {writer}: {by} ordered a promotion{to}{losing}");
    }
}

/// The order that would be carried out, where only what may be lost forbids a promotion.
fn hint(writer: HostgroupId, wish: &Wish, facts: &Facts, policy: &Healing) -> String {
    let is_blocked = wish.losing.is_none() && wish.choose(facts, policy).plan.is_err();
    let forced = Wish { losing: Some(0), ..wish.clone() }.choose(facts, policy).plan;
    let to = wish.to.as_ref().map(|to| format!(" TO '{to}'")).unwrap_or_default();
    match forced {
        Ok(plan) if is_blocked => format!("; HEAL HOSTGROUP {writer}{to} FORCE LOSING {} allows it", plan.lost.count),
        _ => String::new(),
    }
}

fn wish(order: &HealOrder) -> Wish {
    Wish { to: order.to.clone(), losing: order.losing }
}

/// The plan as rows, and whether the order would be carried out now.
fn explained(seen: &Seen, wish: &Wish) -> Vec<HealingStep> {
    let choice = wish.choose(&seen.facts, &seen.policy);
    let verdict = match (seen.verdict, wish.agreed(&choice)) {
        (Verdict::Dead, Ok(plan)) => say("allowed", Some(&plan.candidate), format!("the writer is dead; {}", plan.lost.told())),
        (Verdict::Dead, Err(why)) => say("refused", None, format!("{why}{}", hint(seen.policy.writer, wish, &seen.facts, &seen.policy))),
        (verdict, _) => say("refused", None, format!("only a dead writer is replaced, and {}", verdict.meaning())),
    };
    std::iter::once(verdict).chain(steps(&seen.facts, &choice)).collect()
}

impl super::Healing {
    fn give_order(&self, writer: HostgroupId, ordered: Ordered) -> Result<(), String> {
        let mut orders = lock(&self.by_hand);
        if orders.contains_key(&writer) {
            return Err(format!("another order to heal hostgroup {writer} waits: nothing was changed"));
        }
        orders.insert(writer, ordered);
        Ok(())
    }

    /// The order that waits.
    fn order(&self, writer: HostgroupId) -> Option<Ordered> {
        lock(&self.by_hand).get(&writer).cloned()
    }

    /// True if one waited.
    fn take_order(&self, writer: HostgroupId) -> bool {
        lock(&self.by_hand).remove(&writer).is_some()
    }

    /// Whether one waits.
    pub(super) fn is_ordered(&self, writer: HostgroupId) -> bool {
        lock(&self.by_hand).contains_key(&writer)
    }
}
