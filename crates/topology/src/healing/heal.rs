//! Whether this proxy replaces a dead writer now (mode `full`), and what it waits for if it does not. Pure.
//!
//! INVARIANT: nothing is begun unless the verdict is `dead`, the choice names a server, and no brake holds.

use super::choose::{Choice, Lost};
use super::verdict::Verdict;

/// A proxy concludes nothing before it has looked for so long, ms.
pub const LOOKED_MS: u64 = 3_000;
/// No server is replaced so soon after it was promoted, ms.
pub const SETTLED_MS: u64 = 30_000;
/// Other work on a cluster ends by itself: a proxy looks again after so long, ms.
const BUSY_MS: u64 = 1_000;
/// Time after the first failed plan, ms; it doubles with each further one.
const BACKOFF_MS: u64 = 30_000;
/// Plans for one death.
const PLANS: u32 = 3;

/// What was tried for this death.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Death {
    /// Plans that failed.
    pub failures: u32,
    /// Time since the last one ended, ms.
    pub failed_ms: Option<u64>,
    /// Why it failed.
    pub why: String,
}

/// What holds a promotion back, beside what is known of the servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brakes {
    /// This proxy has looked at the cluster for so long, ms.
    pub looked_ms: u64,
    /// An operator suspended healing, in words.
    pub suspended: Option<String>,
    /// Time since this proxy promoted a server of the cluster, ms.
    pub promoted_ms: Option<u64>,
    /// An operator has acknowledged that promotion.
    pub is_acknowledged: bool,
    /// No second promotion for so long, ms.
    pub block_ms: u64,
    /// Clusters that have lost their writer lately, this one too.
    pub dead_clusters: u64,
    /// The most at which servers are promoted.
    pub max_clusters: u64,
    /// Other work on the cluster, in words.
    pub busy: Option<String>,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Nothing: the writer is not dead, and no brake would hold if it died.
    Rest,
    /// Not now; why. With the time until it may be tried again, ms, if time alone does it.
    Blocked(String, Option<u64>),
    /// A plan begins.
    Now,
}

/// See the module. While the writer is not dead, it names the brakes that would hold if it died.
pub fn due(verdict: Verdict, choice: &Choice, death: &Death, brakes: &Brakes) -> Due {
    if let Some(due) = standing(brakes) {
        return due;
    }
    if verdict != Verdict::Dead {
        return Due::Rest;
    }
    let blocked = |why: String| Due::Blocked(why, None);
    let in_ms = |why: String, ms: u64| Due::Blocked(why, Some(ms));
    let pause_ms = BACKOFF_MS << death.failures.saturating_sub(1).min(PLANS);
    let wait_ms = death.failed_ms.map_or(0, |ms| pause_ms.saturating_sub(ms));
    match () {
        () if brakes.looked_ms < LOOKED_MS => {
            let ms = LOOKED_MS - brakes.looked_ms;
            in_ms(format!("the proxy looks at the cluster for less than {} s", LOOKED_MS / 1_000), ms)
        }
        () if brakes.dead_clusters > brakes.max_clusters => blocked(format!(
            "{} clusters have lost their writers, and admin-healing_max_clusters is {}: the cause may be a network or a site",
            brakes.dead_clusters, brakes.max_clusters
        )),
        () if death.failures >= PLANS => blocked(format!(
            "{PLANS} plans failed, and the proxy waits for you: ACKNOWLEDGE HEALING HOSTGROUP n lets it try again. The last one: {}",
            death.why
        )),
        () if wait_ms > 0 => in_ms(format!("the last plan failed: {}", death.why), wait_ms),
        () if let Err(why) = &choice.plan => blocked(why.to_string()),
        () if let Some(busy) = &brakes.busy => in_ms(busy.clone(), BUSY_MS),
        () => Due::Now,
    }
}

/// Brakes that do not depend on a death.
fn standing(brakes: &Brakes) -> Option<Due> {
    if let Some(suspended) = &brakes.suspended {
        return Some(Due::Blocked(suspended.clone(), None));
    }
    let promoted_ms = brakes.promoted_ms?;
    let settled_ms = SETTLED_MS.saturating_sub(promoted_ms);
    let blocked_ms = if brakes.is_acknowledged { 0 } else { brakes.block_ms.saturating_sub(promoted_ms) };
    match () {
        () if blocked_ms > settled_ms => Some(Due::Blocked(
            format!(
                "the proxy promoted a server {} s ago, and block_ms is {} ms: ACKNOWLEDGE HEALING HOSTGROUP n ends the wait",
                promoted_ms / 1_000,
                brakes.block_ms
            ),
            Some(blocked_ms),
        )),
        () if settled_ms > 0 => {
            Some(Due::Blocked(format!("the writer was promoted less than {} s ago", SETTLED_MS / 1_000), Some(settled_ms)))
        }
        () => None,
    }
}

impl Lost {
    /// What a promotion loses, with the GTIDs, for people.
    pub fn told(&self) -> String {
        if self.gtids.is_empty() { self.to_string() } else { format!("{self}: {}", self.gtids) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healing::{Blocked, Plan};
    use model::ServerAddr;

    fn ready() -> Choice {
        let candidate = ServerAddr { host: "b".into(), port: 1 };
        let plan = Plan { candidate, because: String::new(), lost: Lost::default(), about_ms: 0, steps: Vec::new() };
        Choice { servers: Vec::new(), plan: Ok(plan) }
    }

    fn free() -> Brakes {
        Brakes { looked_ms: LOOKED_MS, block_ms: 3_600_000, dead_clusters: 1, max_clusters: 2, ..Brakes::default() }
    }

    fn of(death: &Death, brakes: &Brakes) -> Due {
        due(Verdict::Dead, &ready(), death, brakes)
    }

    /// Whether it is blocked for a reason with this text, and for how long.
    fn blocked(due: Due, text: &str) -> Option<u64> {
        match due {
            Due::Blocked(why, ms) if why.contains(text) => ms,
            other => panic!("not blocked by '{text}': {other:?}"),
        }
    }

    #[test]
    fn only_a_dead_writer_is_replaced() {
        for verdict in Verdict::ALL {
            let wanted = if verdict == Verdict::Dead { Due::Now } else { Due::Rest };
            assert_eq!(due(verdict, &ready(), &Death::default(), &free()), wanted, "{verdict:?}");
        }
        let nobody = Choice { servers: Vec::new(), plan: Err(Blocked::NoReplica) };
        assert_eq!(blocked(due(Verdict::Dead, &nobody, &Death::default(), &free()), "no"), None);
        assert_eq!(due(Verdict::Alive, &nobody, &Death::default(), &free()), Due::Rest);
    }

    #[test]
    fn each_brake_holds() {
        let rests = Death::default();
        assert_eq!(blocked(of(&rests, &Brakes { looked_ms: 2_000, ..free() }), "less than 3 s"), Some(1_000));
        let suspended = Brakes { suspended: Some("ann suspended it".to_owned()), ..free() };
        assert_eq!(blocked(of(&rests, &suspended), "ann suspended it"), None);
        assert_eq!(blocked(due(Verdict::Alive, &ready(), &rests, &suspended), "ann"), None, "it is shown before a death too");
        assert_eq!(blocked(of(&rests, &Brakes { dead_clusters: 3, ..free() }), "admin-healing_max_clusters is 2"), None);
        assert_eq!(of(&rests, &Brakes { dead_clusters: 2, ..free() }), Due::Now);
        assert_eq!(blocked(of(&rests, &Brakes { busy: Some("a switchover".to_owned()), ..free() }), "a switchover"), Some(BUSY_MS));
    }

    #[test]
    fn a_second_promotion_waits_for_an_operator_or_for_time() {
        let promoted = |promoted_ms, is_acknowledged| Brakes { promoted_ms: Some(promoted_ms), is_acknowledged, ..free() };
        let rests = Death::default();
        assert_eq!(blocked(of(&rests, &promoted(60_000, false)), "ACKNOWLEDGE HEALING"), Some(3_540_000));
        assert_eq!(of(&rests, &promoted(60_000, true)), Due::Now);
        assert_eq!(of(&rests, &promoted(3_600_000, false)), Due::Now);
        assert_eq!(blocked(of(&rests, &promoted(10_000, true)), "less than 30 s ago"), Some(20_000), "even if it is acknowledged");
        let short = Brakes { block_ms: 0, ..promoted(29_999, false) };
        assert_eq!(blocked(of(&rests, &short), "less than 30 s ago"), Some(1));
        assert_eq!(of(&rests, &Brakes { promoted_ms: Some(30_000), ..short }), Due::Now);
    }

    #[test]
    fn failed_plans_wait_longer_each_time_and_end_with_the_third() {
        let failed = |failures, failed_ms| Death { failures, failed_ms: Some(failed_ms), why: "no answer".to_owned() };
        assert_eq!(blocked(of(&failed(1, 10_000), &free()), "the last plan failed: no answer"), Some(20_000));
        assert_eq!(of(&failed(1, 30_000), &free()), Due::Now);
        assert_eq!(blocked(of(&failed(2, 30_000), &free()), "no answer"), Some(30_000));
        assert_eq!(of(&failed(2, 60_000), &free()), Due::Now);
        assert_eq!(blocked(of(&failed(3, 86_400_000), &free()), "3 plans failed"), None);
    }

    /// All combinations of brakes: a plan begins only if none holds.
    #[test]
    fn no_brake_is_hidden_by_another() {
        for bits in 0..64_u32 {
            let is = |bit: u32| bits & (1 << bit) != 0;
            let brakes = Brakes {
                looked_ms: if is(0) { 0 } else { LOOKED_MS },
                suspended: is(1).then(|| "suspended".to_owned()),
                promoted_ms: is(2).then_some(40_000),
                dead_clusters: if is(3) { 9 } else { 1 },
                busy: is(4).then(|| "busy".to_owned()),
                ..free()
            };
            let death = Death { failures: if is(5) { 3 } else { 0 }, ..Death::default() };
            assert_eq!(of(&death, &brakes) == Due::Now, bits == 0, "{bits:b}");
        }
    }
}
