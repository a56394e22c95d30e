//! Servers that do not follow the writer, from round to round: `monitor`'s `healing/tend`.

use std::collections::BTreeMap;

use topology::Fork;
use topology::healing::{Facts, LinkState, LinkThread, Replica, Standing, Tended, Trail, Verdict, next, tend};

use crate::clock::Owner;
use crate::mind::Healer;
use crate::rejoin::{self, Outcome, Rejoin};
use crate::sabotage::Sabotage;
use crate::world::{WRITER, addr, place_of};

/// A new writer is left in peace for so long.
const CALM_MS: u64 = 5_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tending {
    /// Who writes, and since when this healer sees it.
    writer: Option<(usize, u64)>,
    servers: BTreeMap<usize, Memory>,
    at_work: Option<usize>,
}

/// What was seen of a server.
#[derive(Debug, Default)]
struct Memory {
    ran: Option<Option<usize>>,
    is_left: bool,
    has_followed: bool,
    astray_ms: Option<u64>,
    is_settled: bool,
    tried_ms: Option<u64>,
    failures: u32,
    failed: String,
    standing: Option<Standing>,
}

impl Memory {
    fn look(&mut self, replica: &Replica, is_alive: impl Fn(usize) -> bool) {
        if replica.silence.is_some() || !replica.is_closed {
            self.is_settled = false;
        }
        if replica.silence.is_some() {
            return;
        }
        let is_still = |thread: &LinkThread| thread.state == LinkState::Stopped;
        let running = replica.channel.as_ref().filter(|channel| !is_still(&channel.receiver) && !is_still(&channel.applier));
        let runs = running.map(|channel| place_of(&channel.source));
        self.is_left = match (&self.ran, &runs) {
            (_, Some(_)) => false,
            (None, None) => true,
            (Some(Some(source)), None) => is_alive(*source),
            (Some(None), None) => self.is_left,
        };
        self.ran = Some(runs);
    }

    fn trail(&self, is_former: bool, now_ms: u64) -> Trail {
        let since_ms = |then_ms: u64| now_ms.saturating_sub(then_ms);
        Trail {
            is_former: !self.has_followed && is_former,
            is_left: self.is_left,
            is_settled: self.is_settled,
            astray_ms: self.astray_ms.map_or(0, since_ms),
            tried_ms: self.tried_ms.map(since_ms),
            failures: self.failures,
            failed: self.failed.clone(),
        }
    }
}

impl Healer {
    pub(crate) fn tend(&self, facts: &Facts, verdict: Verdict) {
        let Some(primary) = &facts.primary else { return };
        let (now_ms, writer) = (self.world.clock.now_ms(), place_of(&primary.addr));
        self.follow_tended(writer, now_ms);
        let (forks, fenced) = {
            let topology = &self.world.state.borrow().proxies[self.number].topology;
            (topology.forks(), topology.fenced(WRITER))
        };
        let fork = forks.last().filter(|fork| fork.heir == primary.addr).cloned();
        let is_own = fork.as_ref().is_some_and(|fork| fork.is_noted);
        let at_work = self.mind.borrow().tending.at_work;
        let answers = |place: usize| {
            let is_primary = place == writer && facts.is_alive;
            is_primary || facts.replicas.iter().any(|one| place_of(&one.addr) == place && one.silence.is_none())
        };
        for replica in facts.replicas.iter().filter(|replica| Some(place_of(&replica.addr)) != at_work) {
            self.mind.borrow_mut().tending.servers.entry(place_of(&replica.addr)).or_default().look(replica, answers);
        }
        let is_new = !is_own && self.mind.borrow().tending.writer.is_some_and(|(_, since_ms)| now_ms.saturating_sub(since_ms) < CALM_MS);
        let is_former = |place: usize| has_stepped_down(&forks, place) || fenced.contains(&addr(place));
        let trails: BTreeMap<_, _> = {
            let mind = self.mind.borrow();
            mind.tending.servers.iter().map(|(place, memory)| (addr(*place), memory.trail(is_former(*place), now_ms))).collect()
        };
        let pause = self.pause(writer, verdict, is_new);
        let mut tended = tend(facts, &trails, fork.as_ref(), pause.as_deref());
        for one in tended.iter_mut().filter(|one| Some(place_of(&one.addr)) == at_work) {
            let is_out = trails.get(&one.addr).is_some_and(|trail| trail.is_former);
            let standing = if is_out { Standing::Outcast } else { Standing::Stray };
            *one = Tended { standing, is_out, is_due: false, ..one.clone() };
        }
        if verdict == Verdict::Alive && !is_new {
            self.note_tended(&tended, now_ms);
        }
        let out = tended.iter().filter(|one| one.is_out).map(|one| (one.addr.clone(), "outcast".to_owned())).collect();
        self.world.state.borrow_mut().proxies[self.number].topology.cast_out(now_ms, WRITER, &out);
        if self.world.lacks(Sabotage::ActOnAnOldRecord)
            && let Some(old) = forks.first().filter(|old| old.from.contains(&primary.addr) && old.heir != primary.addr)
        {
            return self.begin_rejoin(facts, writer, place_of(&old.heir), true, Some(old.clone()));
        }
        if let Some(one) = next(facts, &tended) {
            self.begin_rejoin(facts, place_of(&one.addr), writer, one.is_out, fork);
        }
    }

    /// Everything that was seen counts for one writer.
    fn follow_tended(&self, writer: usize, now_ms: u64) {
        let tending = &mut self.mind.borrow_mut().tending;
        if tending.writer.is_some_and(|(place, _)| place == writer) {
            return;
        }
        tending.writer = Some((writer, now_ms));
        tending.servers.remove(&writer);
        for memory in tending.servers.values_mut() {
            *memory = Memory { ran: memory.ran.take(), is_left: memory.is_left, ..Memory::default() };
        }
    }

    /// Why nothing is begun now.
    fn pause(&self, writer: usize, verdict: Verdict, is_new: bool) -> Option<String> {
        let (mind, state) = (self.mind.borrow(), self.world.state.borrow());
        match () {
            () if state.disks[self.number].suspended.is_some() => Some("suspended".to_owned()),
            () if !matches!(verdict, Verdict::Alive | Verdict::Stuck) => Some(format!("the proxy waits: {}", verdict.meaning())),
            () if state.proxies[self.number].writers() != [writer] => Some("the proxy waits until one server writes".to_owned()),
            () if is_new => Some("another tool may still be at work".to_owned()),
            () if mind.tending.at_work.is_some() => Some("another server comes first".to_owned()),
            () if mind.is_claimed => Some("a promotion is under way".to_owned()),
            () => None,
        }
    }

    fn note_tended(&self, tended: &[Tended], now_ms: u64) {
        for one in tended {
            let before = {
                let mut mind = self.mind.borrow_mut();
                let memory = mind.tending.servers.entry(place_of(&one.addr)).or_default();
                match one.standing {
                    Standing::Follows => (memory.has_followed, memory.astray_ms, memory.failures) = (true, None, 0),
                    Standing::Silent => memory.astray_ms = None,
                    _ => drop(memory.astray_ms.get_or_insert(now_ms)),
                }
                memory.standing.replace(one.standing)
            };
            if before != Some(one.standing) {
                self.note(|| format!("{} is {:?}: {}", one.addr, one.standing, one.why));
            }
        }
    }

    fn begin_rejoin(&self, facts: &Facts, server: usize, writer: usize, is_former: bool, fork: Option<Fork>) {
        let others = || facts.replicas.iter().filter(|replica| place_of(&replica.addr) != server && replica.silence.is_none());
        let runs = |thread: &LinkThread| thread.state == LinkState::Runs;
        let follows = |replica: &&Replica| {
            let channel = replica.channel.as_ref();
            channel.is_some_and(|channel| channel.is_from_primary && runs(&channel.receiver) && runs(&channel.applier))
        };
        let forks = self.world.state.borrow().proxies[self.number].topology.forks();
        let work = Rejoin {
            server,
            writer,
            has_followers: others().any(|replica| follows(&replica)),
            has_replicas: others().any(|replica| replica.channel.is_some()),
            has_stepped_down: self.world.lacks(Sabotage::ActOnAnOldRecord) || has_stepped_down(&forks, server),
            others: others().map(|replica| replica.id.clone()).collect(),
            is_former,
            fork,
        };
        {
            let mut mind = self.mind.borrow_mut();
            if mind.tending.at_work.is_some() {
                return;
            }
            mind.tending.servers.entry(server).or_default().tried_ms = Some(self.world.clock.now_ms());
            mind.tending.at_work = Some(server);
        }
        self.note(|| format!("takes {} back", addr(server)));
        let healer = self.clone();
        self.world.clock.spawn(Owner::Healer(self.number), async move {
            let outcome = rejoin::run(&healer, &work).await;
            healer.note(|| format!("{}: {outcome:?}", addr(server)));
            healer.world.state.borrow_mut().count(outcome.name());
            let tending = &mut healer.mind.borrow_mut().tending;
            tending.at_work = None;
            let memory = tending.servers.entry(server).or_default();
            match outcome {
                Outcome::Follows => (memory.failures, memory.has_followed, memory.failed) = (0, true, String::new()),
                Outcome::Stays => (memory.failures, memory.is_settled) = (0, true),
                Outcome::Postponed(why) => memory.failed = why,
                Outcome::Failed(why) => (memory.failures, memory.failed) = (memory.failures + 1, why),
            }
        });
    }
}

/// Whether a server wrote and another one took over, after it had taken over itself.
fn has_stepped_down(forks: &[Fork], place: usize) -> bool {
    let addr = addr(place);
    let last = forks.iter().rev().find(|fork| fork.heir == addr || fork.from.contains(&addr));
    last.is_some_and(|fork| fork.heir != addr)
}
