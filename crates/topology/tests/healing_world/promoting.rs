//! Whether a promotion begins, what became of it, and receivers that a dead plan left stopped: `monitor`'s `healing/promote`.

use std::collections::BTreeSet;

use topology::healing::{Brakes, Choice, Death, Due, Facts, Resume, Stopped, Verdict, due};

use crate::clock::Owner;
use crate::mind::Healer;
use crate::promotion;
use crate::server::{Gate, Server};
use crate::world::place_of;

/// A statement of the work on stopped receivers has so long.
const THAWED_MS: u64 = 15_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Promoting {
    pub(crate) looks_ms: u64,
    pub(crate) failures: u32,
    failed: Option<(u64, String)>,
    /// Servers that could not apply what they had received, for the present death.
    pub(crate) unable: BTreeSet<usize>,
    is_under_way: bool,
    is_thawing: bool,
    /// Why nothing is begun.
    pub(crate) blocked: Option<String>,
}

impl Promoting {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { looks_ms: now_ms, failures: 0, failed: None, unable: BTreeSet::new(), is_under_way: false, is_thawing: false, blocked: None }
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
            promoting.unable.clear();
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

    /// Puts back what an earlier plan left, where its servers answer and do not write.
    fn thaw(&self, facts: &Facts) {
        let stopped = self.world.state.borrow().disks[self.number].stopped.clone();
        if self.mind.borrow().promoting.is_thawing || stopped.is_empty() {
            return;
        }
        let answers = |one: &&Stopped| {
            facts.replicas.iter().any(|replica| replica.addr == one.server && replica.silence.is_none() && !replica.is_open)
        };
        let writes = |one: &Stopped| facts.primary.as_ref().is_some_and(|primary| primary.addr == one.server && facts.is_alive);
        let due: Vec<Stopped> = stopped.iter().filter(answers).cloned().collect();
        self.world.state.borrow_mut().disks[self.number].stopped.retain(|one| !writes(one));
        if due.is_empty() {
            return;
        }
        self.mind.borrow_mut().promoting.is_thawing = true;
        let healer = self.clone();
        self.world.clock.spawn(Owner::Healer(self.number), async move {
            for one in due {
                if healer.thaw_one(&one).await.is_ok() {
                    healer.world.state.borrow_mut().disks[healer.number].stopped.retain(|other| *other != one);
                }
            }
            healer.mind.borrow_mut().promoting.is_thawing = false;
        });
    }

    async fn thaw_one(&self, one: &Stopped) -> Result<(), String> {
        let place = place_of(&one.server);
        let control = self.world.connect(self.number, place, THAWED_MS).await?;
        if !control.lock(THAWED_MS).await? {
            return Err("locked".to_owned());
        }
        let is_open = control.on(THAWED_MS, |server| server.gate == Gate::Open).await?;
        let sight = control.tell(THAWED_MS, move |state, now_ms| state.sight(place, now_ms)).await?;
        let resume = one.resume(sight.line.as_ref().map(|line| &line.channel), is_open);
        match &resume {
            Resume::Nothing => return Ok(()),
            Resume::Receiver => control.on(THAWED_MS, |server| server.link.iter_mut().for_each(|link| link.start_receiver())).await?,
            Resume::Both => control.on(THAWED_MS, Server::start).await?,
            Resume::Back(before) => {
                promotion::point(&control, place_of(before), true).await?;
                control.on(THAWED_MS, Server::start).await?;
            }
        }
        self.note(|| format!("what a plan stopped of {} is started: {resume:?}", one.server));
        Ok(())
    }
}
