//! A healer's rounds: it looks at its cluster, has the product judge, and begins work. The order is that of `monitor`'s `healing/round`.
//!
//! What a healer remembers dies with it; its [`Disk`], and what its topology keeps, do not.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use topology::GtidSet;
use topology::healing::{Answer, Choice, Evidence, Facts, Stopped, Verdict, Witness, choose, verdict, votes};

use crate::clock::Owner;
use crate::look::{Said, Sight};
use crate::network::{Fault, Node};
use crate::promoting::Promoting;
use crate::server::Gate;
use crate::tending::Tending;
use crate::watch::Watch;
use crate::world::{World, addr, place_of};

/// A server has so long to answer a look.
const LOOK_MS: u64 = 800;
/// The writer is asked first.
const WRITER_FIRST_MS: u64 = 100;
/// Looks while all is well.
const CALM_MS: u64 = 1_000;
/// Looks once something broke.
const HASTE_MS: u64 = 100;
const HASTE_ENDS_MS: u64 = 15_000;

/// What a healer keeps over restarts.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Whom it promoted last, and when.
    pub(crate) promoted: Option<(usize, u64)>,
    /// Channels that a plan stopped, or pointed elsewhere.
    pub(crate) stopped: Vec<Stopped>,
    pub(crate) suspended: Option<String>,
}

/// What the last look found.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) verdict: Verdict,
    pub(crate) facts: Facts,
    pub(crate) choice: Choice,
}

/// See the module.
pub(crate) struct Mind {
    pub(crate) primary: Option<usize>,
    /// What the writer said last, and when it was asked.
    pub(crate) last: Option<(u64, Sight)>,
    pub(crate) watch: Watch,
    pub(crate) ackers: BTreeSet<usize>,
    pub(crate) errant: BTreeMap<usize, GtidSet>,
    stuck: Option<(u64, GtidSet)>,
    pub(crate) seen: Option<Seen>,
    /// Looks that were asked for, and those that are over.
    pub(crate) asked: u64,
    pub(crate) looked: u64,
    pub(crate) tending: Tending,
    pub(crate) promoting: Promoting,
    /// Work on the cluster is under way.
    pub(crate) is_claimed: bool,
}

/// A healer, as its tasks share it.
#[derive(Clone)]
pub(crate) struct Healer {
    pub(crate) world: Rc<World>,
    pub(crate) number: usize,
    pub(crate) mind: Rc<RefCell<Mind>>,
}

/// A process begins: its proxy's checks, and its healer.
pub(crate) fn begin(world: &Rc<World>, number: usize) {
    let mind = Mind {
        primary: None,
        last: None,
        watch: Watch::default(),
        ackers: BTreeSet::new(),
        errant: BTreeMap::new(),
        stuck: None,
        seen: None,
        asked: 0,
        looked: 0,
        tending: Tending::default(),
        promoting: Promoting::new(world.clock.now_ms()),
        is_claimed: false,
    };
    let healer = Healer { world: Rc::clone(world), number, mind: Rc::new(RefCell::new(mind)) };
    world.clock.spawn(Owner::Healer(number), Rc::clone(world).checks(number));
    world.clock.spawn(Owner::Healer(number), async move {
        loop {
            let begun = healer.mind.borrow().asked;
            healer.round().await;
            healer.mind.borrow_mut().looked = begun;
            let until_ms = world_ms(&healer) + healer.pause_ms();
            healer.world.clock.until(until_ms, || healer.mind.borrow().asked > begun).await;
        }
    });
}

fn world_ms(healer: &Healer) -> u64 {
    healer.world.clock.now_ms()
}

impl Healer {
    /// Short while the writer is missing, but not for ever: that only takes the test's time.
    fn pause_ms(&self) -> u64 {
        let (mind, now_ms) = (self.mind.borrow(), world_ms(self));
        let is_alive = mind.seen.as_ref().is_some_and(|seen| seen.verdict == Verdict::Alive);
        if is_alive || mind.watch.lost_ms(now_ms) > HASTE_ENDS_MS { CALM_MS } else { HASTE_MS }
    }

    pub(crate) fn node(&self) -> Node {
        Node::Proxy(self.number)
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        self.world.note(|| format!("healer {}: {}", self.number, what()));
    }

    /// What a look finds that begins after this call.
    pub(crate) async fn look_again(&self, limit_ms: u64) -> Option<Seen> {
        let asked = {
            let mut mind = self.mind.borrow_mut();
            mind.asked += 1;
            mind.asked
        };
        let until_ms = world_ms(self) + limit_ms;
        let is_over = self.world.clock.until(until_ms, || self.mind.borrow().looked >= asked).await;
        self.mind.borrow().seen.clone().filter(|_| is_over)
    }

    async fn round(&self) {
        let begun_ms = world_ms(self);
        self.follow_writer();
        let mut said = self.ask_all().await;
        if self.mind.borrow().primary.is_none() {
            self.mind.borrow_mut().primary = named_source(&said);
        }
        let primary = self.mind.borrow().primary;
        let answer = self.take_answer(primary.and_then(|primary| said.remove(&primary)), begun_ms);
        let is_lost = matches!(answer, Answer::Refused | Answer::Silent);
        self.watch(&said, is_lost, begun_ms);
        let is_alive = matches!(answer, Answer::Open | Answer::Closed);
        let mut facts = self.world.facts(self.number, &self.mind.borrow(), &said, is_alive);
        let policy = self.world.state.borrow().policy.clone();
        let mut choice = choose(&facts, &policy);
        if facts.is_alive && choice.servers.iter().any(|one| !one.errant.is_empty()) {
            self.ask_again(&mut facts).await;
            choice = choose(&facts, &policy);
        }
        self.remember(&facts, &choice);
        let verdict = self.verdict(&facts, answer);
        let before = self.mind.borrow().seen.as_ref().map(|seen| seen.verdict);
        if before != Some(verdict) {
            self.note(|| format!("{} is {verdict:?}", primary.map_or_else(|| "nobody".to_owned(), |place| addr(place).to_string())));
        }
        self.mind.borrow_mut().seen = Some(Seen { verdict, facts: facts.clone(), choice: choice.clone() });
        self.tend(&facts, verdict);
        self.consider(&facts, &choice, verdict);
    }

    /// Another server that writes is the primary from now on; one that is gone stays it.
    fn follow_writer(&self) {
        let writers = self.world.state.borrow().proxies[self.number].writers();
        let mut mind = self.mind.borrow_mut();
        let still = mind.primary.filter(|primary| writers.contains(primary) || writers.is_empty());
        let now = still.or_else(|| writers.first().copied());
        if now != mind.primary {
            (mind.last, mind.stuck, mind.watch) = (None, None, Watch::default());
            mind.ackers.clear();
            mind.errant.clear();
            mind.primary = now;
        }
    }

    /// The writer first, and the others at the same time unless it answers at once.
    async fn ask_all(&self) -> Said {
        let (clock, primary) = (&self.world.clock, self.mind.borrow().primary);
        let look = |place: usize| self.world.send(self.node(), place, |_| true, move |state, now_ms| state.sight(place, now_ms));
        let servers = self.world.state.borrow().servers.len();
        let mut said = Said::new();
        let end_ms = clock.now_ms() + LOOK_MS;
        let mut first = primary.map(|place| (place, look(place)));
        if let Some((_, sent)) = &first {
            clock.until(clock.now_ms() + WRITER_FIRST_MS, || sent.is_there()).await;
        }
        let others: Vec<_> = (0..servers).filter(|place| Some(*place) != primary).map(|place| (place, look(place))).collect();
        for (place, sent) in first.take().into_iter().chain(others) {
            let left_ms = end_ms.saturating_sub(clock.now_ms());
            said.insert(place, self.world.get(sent, left_ms).await);
        }
        said
    }

    async fn ask_again(&self, facts: &mut Facts) {
        let Some(primary) = &mut facts.primary else { return };
        let place = place_of(&primary.addr);
        let latest = self.world.ask(self.node(), place, LOOK_MS, move |state, _| state.executed_of(place)).await;
        primary.latest = latest.ok();
    }

    fn take_answer(&self, said: Option<Result<Sight, Fault>>, begun_ms: u64) -> Answer {
        let has_writer = !self.world.state.borrow().proxies[self.number].writers().is_empty();
        let mut mind = self.mind.borrow_mut();
        match said {
            Some(Ok(sight)) => {
                let is_closed = sight.gate != Gate::Open && !has_writer;
                let waits = sight.semi_sync.is_some_and(|source| source.waits > 0);
                mind.stuck = match mind.stuck.take() {
                    _ if !waits => None,
                    Some((since_ms, had)) if had == sight.executed => Some((since_ms, had)),
                    _ => Some((begun_ms, sight.executed.clone())),
                };
                mind.last = Some((begun_ms, sight));
                if is_closed { Answer::Closed } else { Answer::Open }
            }
            Some(Err(Fault::Refused)) => Answer::Refused,
            Some(Err(Fault::Silent)) | None => Answer::Silent,
        }
    }

    /// Bytes that came from the writer to clients.
    fn traffic(&self) -> u64 {
        self.mind.borrow().primary.map_or(0, |primary| self.world.state.borrow().proxies[self.number].received[primary])
    }

    fn watch(&self, said: &Said, is_lost: bool, begun_ms: u64) {
        let (now_ms, received) = (world_ms(self), self.traffic());
        let mut mind = self.mind.borrow_mut();
        let primary = mind.primary;
        let lines = said.iter().filter_map(|(place, said)| Some((*place, said.as_ref().ok()?.line.as_ref()?)));
        mind.watch.note(lines.filter(|(_, line)| Some(line.source) == primary), is_lost, received, (begun_ms, now_ms));
    }

    /// Keeps what counts when the writer does not answer any more.
    fn remember(&self, facts: &Facts, choice: &Choice) {
        if !facts.is_alive {
            return;
        }
        let mut mind = self.mind.borrow_mut();
        let answered = || facts.replicas.iter().zip(&choice.servers).filter(|(replica, _)| replica.silence.is_none());
        mind.ackers = answered().filter(|(replica, _)| replica.is_acker).map(|(replica, _)| place_of(&replica.addr)).collect();
        let is_sure = facts.primary.as_ref().is_some_and(|primary| primary.latest.is_some());
        for (replica, found) in answered() {
            if found.errant.is_empty() {
                mind.errant.remove(&place_of(&replica.addr));
            } else if is_sure {
                mind.errant.insert(place_of(&replica.addr), found.errant.clone());
            }
        }
    }

    fn verdict(&self, facts: &Facts, answer: Answer) -> Verdict {
        if facts.primary.is_none() {
            return Verdict::Unknown;
        }
        let (now_ms, traffic, policy) = (world_ms(self), self.traffic(), self.world.state.borrow().policy.clone());
        let mut mind = self.mind.borrow_mut();
        let has_traffic = mind.watch.has_traffic(traffic, now_ms);
        let witnesses: Vec<Witness> = facts.replicas.iter().map(|replica| mind.watch.witness(replica, policy.dead_ms, now_ms)).collect();
        let verdict = verdict(&Evidence {
            answer,
            has_traffic,
            witnesses: &witnesses,
            votes: votes(facts, &policy),
            lost_ms: mind.watch.lost_ms(now_ms),
            dead_ms: policy.dead_ms,
            was_dead: mind.watch.was_dead(),
            stuck_ms: mind.stuck.as_ref().map_or(0, |(since_ms, _)| now_ms.saturating_sub(*since_ms)),
        });
        mind.watch.judged(verdict);
        verdict
    }
}

/// Who wrote before this proxy looked.
fn named_source(said: &Said) -> Option<usize> {
    let lines = said.iter().filter_map(|(place, said)| Some((*place, said.as_ref().ok()?.line.as_ref()?.source)));
    let links: Vec<_> = lines.map(|(place, source)| (addr(place), addr(source))).collect();
    topology::healing::origin(&links).map(|found| place_of(&found))
}
