//! A promotion that an operator orders (`HEAL HOSTGROUP`): the same choice as in mode `full`, and the brakes that are about safety. Pure.
//!
//! INVARIANT: an order lifts brakes that wait for an operator, and no others. What is lost is what the operator was shown.

use model::ServerAddr;
use model::snapshot::{Healing, HealingMode, Loss, Promotion, SiteRule};

use super::choose::{Blocked, Choice, Plan, choose, votes};
use super::facts::Facts;
use super::heal::{Brakes, LOOKED_MS, SETTLED_MS};
use super::verdict::Verdict;

/// What the operator wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// The server that is to take over; None leaves the choice to the proxy.
    pub to: Option<ServerAddr>,
    /// So many transactions may be lost, and exactly so many must be known to be: `FORCE LOSING`.
    pub losing: Option<u64>,
}

/// Why an order is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In words.
    pub why: String,
    /// It passes by itself within seconds.
    pub passes: bool,
}

impl Refusal {
    fn lasting(why: impl Into<String>) -> Self {
        Self { why: why.into(), passes: false }
    }
}

impl Wish {
    /// What would be done. The operator's word stands for the site and, with `FORCE LOSING`, for what may be lost. The votes are those of the
    /// cluster, and a server that may never be promoted is not.
    pub fn choose(&self, facts: &Facts, policy: &Healing) -> Choice {
        let needed = u64::try_from(votes(facts, policy)).unwrap_or(u64::MAX);
        let mut policy = Healing { mode: HealingMode::Full, votes: needed, ..policy.clone() };
        if self.losing.is_some() {
            policy.loss = Loss::Any;
        }
        let Some(to) = &self.to else { return choose(facts, &policy) };
        policy.site = SiteRule::Any;
        let mut facts = facts.clone();
        for replica in &mut facts.replicas {
            let is_wanted = replica.addr.is_same(to) && replica.promotion() != Promotion::Never;
            replica.declared = Some(if is_wanted { Promotion::Prefer } else { Promotion::Never });
            if is_wanted {
                // The operator may have mended it.
                replica.unable = None;
            }
        }
        choose(&facts, &policy)
    }

    /// The plan of a choice, if it loses what the operator was shown.
    ///
    /// # Errors
    /// Nobody could take over, or something else would be lost.
    pub fn agreed(&self, choice: &Choice) -> Result<Plan, String> {
        let plan = choice.plan.as_ref().map_err(|blocked| self.blocked(choice, blocked))?;
        match self.losing {
            Some(losing) if losing != plan.lost.count => Err(format!(
                "{} would lose {} transactions, not {losing}: the number must be the one that is shown",
                plan.candidate, plan.lost.count
            )),
            _ => Ok(plan.clone()),
        }
    }

    /// Of a server that was named only its own reason counts: the others are out by the operator's word.
    fn blocked(&self, choice: &Choice, blocked: &Blocked) -> String {
        let own = choice.servers.iter().find(|one| self.to.as_ref().is_some_and(|to| one.addr.is_same(to)));
        match (own, blocked) {
            (Some(own), Blocked::Nobody(_)) if !own.why_not.is_empty() => format!("{} may not take over: {}", own.addr, own.why_not),
            _ => blocked.to_string(),
        }
    }

    /// Whether the order may be carried out now. Brakes of automation do not count: `block_ms`, plans that failed, many clusters at once.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, verdict: Verdict, facts: &Facts, choice: &Choice, brakes: &Brakes) -> Result<Plan, Refusal> {
        let is_member = |to: &ServerAddr| facts.replicas.iter().any(|replica| replica.addr.is_same(to));
        match () {
            () if let Some(to) = self.to.as_ref().filter(|to| !is_member(to)) => {
                Err(Refusal::lasting(format!("{to} is not a server beside the writer of this cluster")))
            }
            () if verdict == Verdict::Suspected => {
                Err(Refusal { why: format!("only a dead writer is replaced, and {}", verdict.meaning()), passes: true })
            }
            () if verdict != Verdict::Dead => Err(Refusal::lasting(format!("only a dead writer is replaced, and {}", verdict.meaning()))),
            () if let Some(suspended) = &brakes.suspended => Err(Refusal::lasting(suspended.clone())),
            () if let Some(ms) = brakes.promoted_ms.filter(|ms| *ms < SETTLED_MS) => Err(Refusal::lasting(format!(
                "the writer was promoted {} s ago: give the order again {} s after that",
                ms / 1_000,
                SETTLED_MS / 1_000
            ))),
            () if brakes.looked_ms < LOOKED_MS => {
                Err(Refusal { why: format!("the proxy looks at the cluster for less than {} s", LOOKED_MS / 1_000), passes: true })
            }
            () if let Some(busy) = &brakes.busy => Err(Refusal { why: busy.clone(), passes: true }),
            () => self.agreed(choice).map_err(Refusal::lasting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::choose::Lost;
    use super::*;

    fn addr(host: &str) -> ServerAddr {
        ServerAddr { host: host.into(), port: 1 }
    }

    fn losing(count: u64) -> Choice {
        let lost = Lost { count, ..Lost::default() };
        let plan = Plan { candidate: addr("b"), because: String::new(), lost, about_ms: 0, steps: Vec::new() };
        Choice { servers: Vec::new(), plan: Ok(plan) }
    }

    fn free() -> Brakes {
        Brakes { looked_ms: LOOKED_MS, block_ms: 3_600_000, dead_clusters: 1, max_clusters: 2, ..Brakes::default() }
    }

    fn refused(wish: &Wish, verdict: Verdict, choice: &Choice, brakes: &Brakes) -> Refusal {
        wish.check(verdict, &Facts::default(), choice, brakes).unwrap_err()
    }

    #[test]
    fn only_a_dead_writer_is_replaced_by_hand_too() {
        for verdict in Verdict::ALL.into_iter().filter(|verdict| *verdict != Verdict::Dead) {
            let refusal = refused(&Wish::default(), verdict, &losing(0), &free());
            assert_eq!(refusal.passes, verdict == Verdict::Suspected, "{verdict:?}");
        }
        assert!(Wish::default().check(Verdict::Dead, &Facts::default(), &losing(9), &free()).is_ok());
    }

    #[test]
    fn brakes_of_patience_are_lifted_and_those_of_safety_are_not() {
        let patience = Brakes { promoted_ms: Some(60_000), dead_clusters: 9, ..free() };
        assert!(Wish::default().check(Verdict::Dead, &Facts::default(), &losing(0), &patience).is_ok());
        for (brakes, why) in [
            (Brakes { suspended: Some("ann suspended it".to_owned()), ..free() }, "ann"),
            (Brakes { promoted_ms: Some(29_999), ..free() }, "promoted 29 s ago"),
            (Brakes { looked_ms: 0, ..free() }, "less than 3 s"),
            (Brakes { busy: Some("a switchover".to_owned()), ..free() }, "a switchover"),
        ] {
            let refusal = refused(&Wish::default(), Verdict::Dead, &losing(0), &brakes);
            assert!(refusal.why.contains(why), "{refusal:?}");
        }
    }

    #[test]
    fn what_is_lost_is_what_was_shown() {
        let force = |count| Wish { to: None, losing: Some(count) };
        assert_eq!(force(3).agreed(&losing(3)).unwrap().lost.count, 3);
        for count in [0, 2, 4] {
            let why = force(count).agreed(&losing(3)).unwrap_err();
            assert!(why.contains(&format!("lose 3 transactions, not {count}")), "{why}");
        }
        let blocked = Choice { servers: Vec::new(), plan: Err(Blocked::NoReplica) };
        assert_eq!(force(0).agreed(&blocked).unwrap_err(), Blocked::NoReplica.to_string());
    }

    #[test]
    fn a_server_that_is_no_member_is_not_promoted() {
        let wish = Wish { to: Some(addr("x")), losing: None };
        assert!(refused(&wish, Verdict::Dead, &losing(0), &free()).why.contains("x:1 is not a server"));
    }
}
