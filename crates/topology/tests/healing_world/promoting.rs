//! Whether a promotion begins, what became of it, and receivers that a dead plan left stopped: `monitor`'s `healing/promote`.

use topology::healing::{Brakes, Choice, Death, Due, Facts, Verdict, due};

use crate::clock::Owner;
use crate::mind::Healer;
use crate::promotion;
use crate::server::Gate;
use crate::world::place_of;

/// A statement of the work on stopped receivers has so long.
const THAWED_MS: u64 = 15_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Promoting {
    pub(crate) looks_ms: u64,
    pub(crate) failures: u32,
    failed: Option<(u64, String)>,
    is_under_way: bool,
    is_thawing: bool,
    /// Why nothing is begun.
    pub(crate) blocked: Option<String>,
}

impl Promoting {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { looks_ms: now_ms, failures: 0, failed: None, is_under_way: false, is_thawing: false, blocked: None }
    }
}

impl Healer {
    pub(crate) fn consider(&self, facts: &Facts, choice: &Choice, verdict: Verdict) {
        if !self.mind.borrow().promoting.is_under_way {
            self.thaw(facts);
        }
        if verdict == Verdict::Alive {
            let promoting = &mut self.mind.borrow_mut().promoting;
            (promoting.failures, promoting.failed) = (0, None);
            self.world.state.borrow_mut().failures = 0;
        }
        if self.mind.borrow().promoting.is_under_way {
            return;
        }
        let now = due(verdict, choice, &self.death(), &self.brakes());
        let blocked = match &now {
            Due::Blocked(why, _) => Some(why.clone()),
            Due::Rest | Due::Now => None,
        };
        let is_news = self.mind.borrow().promoting.blocked.is_some() != blocked.is_some();
        if is_news {
            self.note(|| format!("blocked: {blocked:?}"));
        }
        self.mind.borrow_mut().promoting.blocked = blocked;
        if now == Due::Now {
            self.begin_promotion(facts);
        }
    }

    fn death(&self) -> Death {
        let promoting = &self.mind.borrow().promoting;
        let failed_ms = promoting.failed.as_ref().map(|(when_ms, _)| self.world.clock.now_ms().saturating_sub(*when_ms));
        let why = promoting.failed.as_ref().map(|(_, why)| why.clone()).unwrap_or_default();
        Death { failures: promoting.failures, failed_ms, why }
    }

    fn brakes(&self) -> Brakes {
        let (mind, state, now_ms) = (self.mind.borrow(), self.world.state.borrow(), self.world.clock.now_ms());
        let disk = &state.disks[self.number];
        let busy = mind.promoting.is_thawing.then(|| "receivers that an earlier plan stopped are started first".to_owned());
        Brakes {
            looked_ms: now_ms.saturating_sub(mind.promoting.looks_ms),
            suspended: disk.suspended.clone(),
            promoted_ms: disk.promoted.map(|(_, at_ms)| now_ms.saturating_sub(at_ms)),
            is_acknowledged: false,
            block_ms: state.policy.block_ms,
            dead_clusters: 1,
            max_clusters: 2,
            busy: busy.or_else(|| mind.is_claimed.then(|| "other work on the cluster is under way".to_owned())),
        }
    }

    fn begin_promotion(&self, facts: &Facts) {
        let Some(primary) = &facts.primary else { return };
        let answering = facts.replicas.iter().filter(|replica| replica.silence.is_none());
        let servers = answering.clone().map(|replica| place_of(&replica.addr)).collect();
        let follow = |replica: &&&topology::healing::Replica| replica.channel.as_ref().is_some_and(|channel| channel.is_from_primary);
        let channels = answering.collect::<Vec<_>>().iter().filter(follow).map(|replica| place_of(&replica.addr)).collect();
        let old = place_of(&primary.addr);
        self.mind.borrow_mut().promoting.is_under_way = true;
        let healer = self.clone();
        self.world.clock.spawn(Owner::Healer(self.number), async move {
            let outcome = promotion::run(&healer, old, servers, channels).await;
            healer.note(|| format!("plan ends: {outcome:?}"));
            healer.world.state.borrow_mut().count(if outcome.is_ok() { "promotions" } else { "failed plans" });
            let now_ms = healer.world.clock.now_ms();
            let promoting = &mut healer.mind.borrow_mut().promoting;
            promoting.is_under_way = false;
            healer.world.state.borrow_mut().note_plan(outcome.as_ref().err(), now_ms);
            match outcome {
                Ok(_) => (promoting.failures, promoting.failed) = (0, None),
                Err(why) => {
                    promoting.failures += 1;
                    promoting.failed = Some((now_ms, why));
                }
            }
        });
    }

    /// Starts receivers that an earlier plan left stopped, where their servers answer and do not write.
    fn thaw(&self, facts: &Facts) {
        let frozen = self.world.state.borrow().disks[self.number].frozen.clone();
        if self.mind.borrow().promoting.is_thawing || frozen.is_empty() {
            return;
        }
        let answers =
            |place: &usize| facts.replicas.iter().any(|one| place_of(&one.addr) == *place && one.silence.is_none() && !one.is_open);
        let is_gone = |place: &usize| facts.primary.as_ref().is_some_and(|primary| place_of(&primary.addr) == *place && facts.is_alive);
        let due: Vec<usize> = frozen.iter().filter(|place| answers(place)).copied().collect();
        self.world.state.borrow_mut().disks[self.number].frozen.retain(|place| !is_gone(place));
        if due.is_empty() {
            return;
        }
        self.mind.borrow_mut().promoting.is_thawing = true;
        let healer = self.clone();
        self.world.clock.spawn(Owner::Healer(self.number), async move {
            for place in due {
                if healer.thaw_one(place).await.is_ok() {
                    healer.world.state.borrow_mut().disks[healer.number].frozen.remove(&place);
                }
            }
            healer.mind.borrow_mut().promoting.is_thawing = false;
        });
    }

    async fn thaw_one(&self, place: usize) -> Result<(), String> {
        let control = self.world.connect(self.number, place, THAWED_MS).await?;
        if !control.lock(THAWED_MS).await? {
            return Err("locked".to_owned());
        }
        if control.on(THAWED_MS, |server| server.gate == Gate::Open).await? {
            return Ok(());
        }
        let start = |server: &mut crate::server::Server| {
            if let Some(link) = &mut server.link {
                link.start_receiver();
            }
        };
        control.on(THAWED_MS, start).await?;
        self.note(|| format!("the receiver of s{} is started", place + 1));
        Ok(())
    }
}
