//! The steps of a promotion, in the order of `monitor`'s `operator/promote`, with the same limits and the same undo. What is decided on the
//! way is decided by the product: the verdict, the choice with its steps, and what is lost. Servers are asked one after the other where the
//! product asks several at a time.

use std::cell::RefCell;
use std::task::Poll;

use topology::Fork;
use topology::healing::{Act, LinkState, Plan, Stopped, Verdict};

use crate::chaos;
use crate::checks::Report;
use crate::mind::Healer;
use crate::network::Control;
use crate::numbers::{Flavor, set};
use crate::rejoin;
use crate::sabotage::Sabotage;
use crate::server::{Gate, Server};
use crate::world::{State, WRITER, addr, place_of};

const LIMIT_MS: u64 = 30_000;
const REACHED_MS: u64 = 2_000;
const OPENS_WITHIN_MS: u64 = 2_000;
const OPENED_MS: u64 = 10_000;
const STEP_MS: u64 = 5_000;
const ACKNOWLEDGES_MS: u64 = 2_000;
const SEEN_MS: u64 = 10_000;
const UNDONE_MS: u64 = 15_000;
const FOLLOWS_MS: u64 = 10_000;
const SETTLES_MS: u64 = 500;
const AGAIN_MS: u64 = 50;

/// A change that is undone if no server is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Frozen(usize),
    Fetches { server: usize, before: usize },
    Stopped(usize),
    Noted { heir: usize, before: Option<(usize, u64)> },
}

/// Everything is done but the opening.
struct Ready {
    candidate: Control,
    others: Vec<Control>,
    plan: Plan,
    ran: Vec<usize>,
    gate: Gate,
    was_semi_sync: bool,
}

enum Opened {
    Yes,
    No(String),
    Unknown(String),
}

struct Work<'a> {
    healer: &'a Healer,
    old: usize,
    servers: Vec<usize>,
    channels: Vec<usize>,
    changes: RefCell<Vec<Done>>,
}

/// See the module. Who was promoted, or why nobody was.
pub(crate) async fn run(healer: &Healer, old: usize, servers: Vec<usize>, channels: Vec<usize>) -> Result<usize, String> {
    if std::mem::replace(&mut healer.mind.borrow_mut().is_claimed, true) {
        return Err("other work is under way; nothing was changed".to_owned());
    }
    let work = Work { healer, old, servers, channels, changes: RefCell::default() };
    let outcome = work.promote().await;
    healer.mind.borrow_mut().is_claimed = false;
    outcome
}

impl Work<'_> {
    async fn promote(&self) -> Result<usize, String> {
        let mut ready = match self.guarded(self.prepare()).await {
            Ok(ready) => ready,
            Err(why) => return Err(self.give_up(why, None).await),
        };
        let heir = ready.candidate.server;
        match self.open(&mut ready).await {
            Opened::Yes => {}
            Opened::No(why) => return Err(self.give_up(why, None).await),
            Opened::Unknown(why) => {
                self.changes.borrow_mut().retain(|done| !done.is_of(heir));
                self.healer.world.state.borrow_mut().disks[self.healer.number].suspended = Some("the proxy".to_owned());
                return Err(self.give_up(why, Some(heir)).await);
            }
        }
        self.changes.borrow_mut().clear();
        self.healer.note(|| format!("opened {}: {}", addr(heir), ready.plan.because));
        self.after(&mut ready).await;
        self.healer.world.state.borrow_mut().disks[self.healer.number].stopped.clear();
        Ok(heir)
    }

    fn now_ms(&self) -> u64 {
        self.healer.world.clock.now_ms()
    }

    /// Runs steps until they end, time is up, or the promotion is not wanted any more.
    async fn guarded<T>(&self, steps: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let end_ms = self.now_ms() + LIMIT_MS + self.healer.world.state.borrow().policy.apply_ms;
        let mut steps = std::pin::pin!(steps);
        std::future::poll_fn(|context| match steps.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending if self.now_ms() >= end_ms => Poll::Ready(Err("the plan was not done in time".to_owned())),
            Poll::Pending => self.is_wanted().map_or_else(|why| Poll::Ready(Err(why)), |()| Poll::Pending),
        })
        .await
    }

    fn is_wanted(&self) -> Result<(), String> {
        if let Some(by) = &self.healer.world.state.borrow().disks[self.healer.number].suspended {
            return Err(format!("{by} suspended healing"));
        }
        match self.healer.mind.borrow().seen.as_ref().map(|seen| seen.verdict) {
            Some(Verdict::Dead) => Ok(()),
            verdict => Err(verdict.unwrap_or(Verdict::Unknown).meaning().to_owned()),
        }
    }

    async fn prepare(&self) -> Result<Ready, String> {
        let mut servers = self.lock_all().await?;
        let ran = self.freeze(&servers).await?;
        let seen = self.healer.look_again(LIMIT_MS / 2).await.ok_or("the servers did not answer another look")?;
        if seen.verdict != Verdict::Dead {
            return Err(seen.verdict.meaning().to_owned());
        }
        let plan = seen.choice.plan.map_err(|blocked| blocked.to_string())?;
        self.healer.world.state.borrow_mut().note_chosen(place_of(&plan.candidate), self.now_ms());
        self.healer.note(|| format!("chosen {}: {}; {}", plan.candidate, plan.because, plan.lost.told()));
        for replica in seen.facts.replicas.iter().filter(|replica| replica.silence.is_none()) {
            let follows = replica.channel.as_ref().is_some_and(|channel| channel.is_from_primary);
            if follows && !servers.iter().any(|one| one.server == place_of(&replica.addr)) {
                return Err(format!("{} answers only now", replica.addr));
            }
        }
        let is_hasty = self.healer.world.lacks(Sabotage::PromoteBeforeApply);
        if !is_hasty {
            self.apply(&plan, &servers).await?;
        }
        let place = servers.iter().position(|server| server.server == place_of(&plan.candidate));
        let candidate = servers.swap_remove(place.ok_or("the candidate does not answer any more")?);
        let heir = candidate.server;
        let received = seen.facts.replicas.iter().find(|replica| replica.addr == plan.candidate).map(|replica| &replica.received);
        let has = candidate.tell(REACHED_MS, move |state, _| state.executed_of(heir)).await?;
        if !is_hasty && !received.is_some_and(|received| has.contains(received)) {
            return Err(format!("{} has not applied all that it received", plan.candidate));
        }
        self.is_gone().await?;
        let gate = candidate.on(REACHED_MS, |server| server.gate).await?;
        if gate == Gate::Open {
            return Err(format!("{} is writable already", plan.candidate));
        }
        self.keep_fork(heir, has).await;
        self.keep(heir, |one| one.is_applier = true);
        self.changes.borrow_mut().push(Done::Stopped(heir));
        candidate.on(REACHED_MS, |server| server.link.iter_mut().for_each(|link| link.stop())).await?;
        let was_semi_sync = seen.facts.primary.is_some_and(|primary| primary.semi_sync.is_some());
        self.note_report(&plan);
        Ok(Ready { candidate, others: servers, plan, ran, gate, was_semi_sync })
    }

    /// What the plan says that it loses: an operator reads it.
    fn note_report(&self, plan: &Plan) {
        let looked_ms = self.healer.mind.borrow().last.as_ref().map_or(0, |(asked_ms, _)| *asked_ms);
        let began_ms = self.healer.mind.borrow().promoting.looks_ms;
        let is_mute = self.healer.world.lacks(Sabotage::ReportNothingLost);
        let (count, gtids) = if is_mute { (0, String::new()) } else { (plan.lost.count, plan.lost.gtids.clone()) };
        self.healer.world.state.borrow_mut().checks.report = Some(Report { count, gtids, looked_ms, began_ms });
    }

    async fn lock_all(&self) -> Result<Vec<Control>, String> {
        let mut servers = Vec::new();
        for server in &self.servers {
            servers.extend(self.healer.world.connect(self.healer.number, *server, REACHED_MS).await.ok());
        }
        servers.sort_by_key(|one| one.server);
        for one in &servers {
            if !one.lock(REACHED_MS).await? {
                return Err(format!("another one is at work on {}", addr(one.server)));
            }
        }
        Ok(servers)
    }

    /// Stops the receivers. Returns the servers that replicated.
    async fn freeze(&self, servers: &[Control]) -> Result<Vec<usize>, String> {
        let (mut frozen, mut ran) = (Vec::new(), Vec::new());
        for one in servers.iter().filter(|one| self.channels.contains(&one.server)) {
            let said = one
                .on(REACHED_MS, |server| {
                    let link = server.link.as_ref()?;
                    let replicated = (link.receives() || link.receiver.error.is_some()) && link.applies && link.applier_error.is_none();
                    Some((link.receives(), replicated))
                })
                .await?;
            ran.extend(said.filter(|(_, replicated)| *replicated).map(|_| one.server));
            frozen.extend(said.filter(|(receives, _)| *receives).map(|_| one.server));
        }
        frozen.iter().for_each(|server| self.keep(*server, |_| ()));
        for one in servers.iter().filter(|one| frozen.contains(&one.server) && !self.healer.world.lacks(Sabotage::SkipFreeze)) {
            self.changes.borrow_mut().push(Done::Frozen(one.server));
            one.on(LIMIT_MS, |server| server.link.iter_mut().for_each(|link| link.stop_receiver())).await?;
        }
        Ok(ran)
    }

    /// On disk before the deed: the channel of a server that followed the old writer.
    fn keep(&self, server: usize, change: impl FnOnce(&mut Stopped)) {
        let all = &mut self.healer.world.state.borrow_mut().disks[self.healer.number].stopped;
        let place = all.iter().position(|one| one.is_about(&addr(server), "")).unwrap_or_else(|| {
            all.push(Stopped::receiver(addr(server), String::new(), Some(addr(self.old))));
            all.len() - 1
        });
        change(&mut all[place]);
    }

    /// Has the servers fetch and apply what the plan says.
    async fn apply(&self, plan: &Plan, servers: &[Control]) -> Result<(), String> {
        for step in &plan.steps {
            let (position, limit_ms) = match &step.act {
                Act::Apply { position, limit_ms } | Act::Fetch { position, limit_ms, .. } => (position.clone(), *limit_ms),
                _ => continue,
            };
            let server = servers.iter().find(|server| server.server == place_of(&step.server));
            let server = server.ok_or_else(|| format!("{} does not answer any more", step.server))?;
            if let Act::Fetch { from, before, .. } = &step.act {
                self.keep(server.server, |one| one.fetches_from = Some(from.clone()));
                self.changes.borrow_mut().push(Done::Fetches { server: server.server, before: place_of(before) });
                point(server, place_of(from), false).await?;
            }
            if position.is_empty() {
                continue;
            }
            if !self.applied(server, &position, limit_ms).await? {
                self.healer.mind.borrow_mut().promoting.unable.insert(server.server);
                return Err(format!("{} has not applied its received transactions within {limit_ms} ms", step.server));
            }
            if let Act::Fetch { .. } = &step.act {
                server.on(LIMIT_MS, |server| server.link.iter_mut().for_each(|link| link.stop_receiver())).await?;
            }
        }
        Ok(())
    }

    /// WAIT_FOR_EXECUTED_GTID_SET, MASTER_GTID_WAIT: the latter goes by number.
    async fn applied(&self, server: &Control, position: &str, limit_ms: u64) -> Result<bool, String> {
        let end_ms = self.now_ms() + limit_ms;
        let (wanted, place) = (set(position), server.server);
        loop {
            let wanted = wanted.clone();
            let is_there = move |server: &Server| match server.flavor {
                Flavor::MySql => server.executed_set().contains(&wanted),
                Flavor::MariaDb => {
                    let at = server.position.map_or(String::new(), |at| at.text(server.flavor));
                    let number = |text: &str| text.rsplit('-').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
                    number(&at) >= number(&wanted.to_string())
                }
            };
            if server.tell(REACHED_MS, move |state, _| is_there(&state.servers[place])).await? {
                return Ok(true);
            }
            if self.now_ms() >= end_ms {
                return Ok(false);
            }
            self.healer.world.clock.sleep(AGAIN_MS).await;
        }
    }

    /// An error if the old writer answers anything.
    async fn is_gone(&self) -> Result<(), String> {
        self.healer.world.step(self.healer.number).await;
        match self.healer.world.ask(self.healer.node(), self.old, REACHED_MS / 2, |_, _| ()).await {
            Err(_) => Ok(()),
            Ok(()) => Err(format!("{} answers again", addr(self.old))),
        }
    }

    /// On disk before the server can take a write.
    async fn keep_fork(&self, heir: usize, had: topology::GtidSet) {
        let now_ms = self.now_ms();
        {
            let mut state = self.healer.world.state.borrow_mut();
            let before = state.disks[self.healer.number].promoted.replace((heir, now_ms));
            self.changes.borrow_mut().push(Done::Noted { heir, before });
            let from = vec![addr(self.old)];
            let fork = Fork { writer: WRITER, heir: addr(heir), at_ms: 0, from, had, is_exact: true, is_noted: true };
            state.proxies[self.healer.number].topology.note_fork(now_ms, &fork);
        }
        self.healer.world.step(self.healer.number).await;
    }

    /// Lets the server take writes.
    async fn open(&self, ready: &mut Ready) -> Opened {
        let checked = self.guarded(async {
            self.may_open(ready).await?;
            let begun_ms = self.now_ms();
            let now_ms = ready.candidate.tell(OPENS_WITHIN_MS, |_, now_ms| now_ms).await?;
            self.is_gone().await?;
            self.is_wanted()?;
            if self.now_ms() > begun_ms + OPENS_WITHIN_MS {
                return Err("no answer in time".to_owned());
            }
            Ok(now_ms)
        });
        let asked_ms = match checked.await {
            Ok(asked_ms) => asked_ms,
            Err(why) => return Opened::No(why),
        };
        let deadline_ms = if self.healer.world.lacks(Sabotage::OpenWithoutDeadline) { u64::MAX } else { asked_ms + OPENS_WITHIN_MS };
        let heir = ready.candidate.server;
        chaos::at_opening(&self.healer.world, self.healer.number, self.old, heir);
        let opening = ready.candidate.tell(OPENS_WITHIN_MS, move |state, now_ms| {
            if now_ms < deadline_ms {
                state.servers[heir].gate = Gate::Open;
                state.note_opened(heir, now_ms);
            }
            state.servers[heir].gate
        });
        let answer = opening.await;
        match answer {
            Ok(Gate::Open) => Opened::Yes,
            Ok(_) => Opened::No(format!("{} was not opened in time", addr(heir))),
            Err(_) => self.is_opened(ready).await,
        }
    }

    /// What was true when the plan was made is still true.
    async fn may_open(&self, ready: &Ready) -> Result<(), String> {
        for other in &ready.others {
            if other.on(REACHED_MS, |server| server.gate).await != Ok(Gate::Open) {
                continue;
            }
            let proxy = self.healer.number;
            if self.healer.world.state.borrow().proxies[proxy].topology.fenced(WRITER).contains(&addr(other.server)) {
                rejoin::close(other).await?;
            } else {
                return Err(format!("{} is writable: the proxy makes no second writer", addr(other.server)));
            }
        }
        let gate = ready.candidate.on(REACHED_MS, |server| server.gate).await?;
        if gate == ready.gate { Ok(()) } else { Err("another program changed read_only".to_owned()) }
    }

    /// The connection that opened it said nothing. It is ended, and the server asked over another one.
    async fn is_opened(&self, ready: &mut Ready) -> Opened {
        let (heir, token, end_ms) = (ready.candidate.server, ready.candidate.token, self.now_ms() + OPENED_MS);
        while self.now_ms() < end_ms {
            let left_ms = REACHED_MS.min(end_ms - self.now_ms());
            if let Ok(control) = self.healer.world.connect(self.healer.number, heir, left_ms).await {
                let ended = control.on(left_ms, move |server| {
                    server.killed.insert(token);
                    server.gate
                });
                match ended.await {
                    Ok(Gate::Open) => {
                        ready.candidate = control;
                        return Opened::Yes;
                    }
                    Ok(_) => return Opened::No(format!("{} was not opened", addr(heir))),
                    Err(_) => {}
                }
            }
            self.healer.world.clock.sleep(AGAIN_MS).await;
        }
        Opened::Unknown(format!("{} has not answered since it was told to take writes", addr(heir)))
    }

    /// Sessions go on, the other replicas follow, and the new writer forgets its channel.
    async fn after(&self, ready: &mut Ready) {
        let heir = ready.candidate.server;
        let follow: Vec<usize> =
            ready.plan.steps.iter().filter(|step| matches!(step.act, Act::Follow { .. })).map(|step| place_of(&step.server)).collect();
        let end_ms = self.now_ms() + SEEN_MS;
        while self.now_ms() < end_ms {
            self.healer.world.check(self.healer.number, &[heir]).await;
            if self.healer.world.state.borrow().proxies[self.healer.number].writers() == [heir] {
                break;
            }
            self.healer.world.clock.sleep(AGAIN_MS).await;
        }
        let mut followers = 0;
        for server in follow.into_iter().filter(|server| ready.ran.contains(server)) {
            let outcome = self.follow(server, heir).await;
            self.healer.note(|| format!("{} follows {}: {outcome:?}", addr(server), addr(heir)));
            followers += u64::from(outcome.is_ok());
        }
        let end_ms = self.now_ms() + ACKNOWLEDGES_MS;
        while followers > 0 && ready.was_semi_sync && self.now_ms() < end_ms {
            let are_enough = ready.candidate.tell(STEP_MS, move |state, _| state.ackers_of(heir) >= state.servers[heir].semi.acks).await;
            if are_enough == Ok(true) {
                let _ = ready.candidate.on(STEP_MS, |server| (server.semi.is_source, server.semi.is_on) = (true, true)).await;
                break;
            }
            self.healer.world.clock.sleep(AGAIN_MS).await;
        }
        if followers == 0 {
            let _ = ready.candidate.on(STEP_MS, |server| server.semi.is_source = false).await;
        }
        let _ = ready.candidate.on(STEP_MS, |server| server.link = None).await;
    }

    async fn follow(&self, server: usize, heir: usize) -> Result<(), String> {
        let control = self.healer.world.connect(self.healer.number, server, LIMIT_MS).await?;
        let worked = async {
            point(&control, heir, false).await?;
            self.healer.settles(&control, FOLLOWS_MS, SETTLES_MS).await
        };
        let Err(why) = worked.await else { return Ok(()) };
        let control = self.healer.world.connect(self.healer.number, server, LIMIT_MS).await?;
        point(&control, self.old, true).await?;
        Err(why)
    }

    /// Undoes all changes, the last one first.
    async fn give_up(&self, why: String, unknown: Option<usize>) -> String {
        let mut left = std::collections::BTreeSet::new();
        let mut told = why;
        loop {
            let Some(done) = self.changes.borrow_mut().pop() else { break };
            if self.healer.world.lacks(Sabotage::SkipUndo) {
                continue;
            }
            if let Err(fault) = self.undo(done).await {
                told = format!("{told}; NOT UNDONE {done:?}: {fault}");
                left.extend(done.server());
            }
        }
        left.extend(unknown);
        let stopped = &mut self.healer.world.state.borrow_mut().disks[self.healer.number].stopped;
        stopped.retain(|one| left.contains(&place_of(&one.server)) || !self.servers.contains(&place_of(&one.server)));
        told
    }

    async fn undo(&self, done: Done) -> Result<(), String> {
        let fresh = |server: usize| self.healer.world.connect(self.healer.number, server, UNDONE_MS);
        match done {
            Done::Frozen(server) => {
                let start = |server: &mut Server| server.link.iter_mut().for_each(|link| link.start_receiver());
                fresh(server).await?.on(UNDONE_MS, start).await
            }
            Done::Fetches { server, before } => point(&fresh(server).await?, before, true).await,
            Done::Stopped(server) => fresh(server).await?.on(UNDONE_MS, Server::start).await,
            Done::Noted { heir, before } => {
                let now_ms = self.now_ms();
                let mut state = self.healer.world.state.borrow_mut();
                state.proxies[self.healer.number].topology.forget_fork(now_ms, WRITER, &addr(heir));
                state.disks[self.healer.number].promoted = before;
                Ok(())
            }
        }
    }
}

impl Done {
    /// Whose channel was changed.
    fn server(self) -> Option<usize> {
        match self {
            Self::Frozen(server) | Self::Fetches { server, .. } | Self::Stopped(server) => Some(server),
            Self::Noted { .. } => None,
        }
    }

    fn is_of(self, place: usize) -> bool {
        self.server() == Some(place) || matches!(self, Self::Noted { heir, .. } if heir == place)
    }
}

/// Points a channel elsewhere and starts it. MySQL keeps what it received only beside a running applier.
pub(crate) async fn point(control: &Control, source: usize, is_undone: bool) -> Result<(), String> {
    let place = control.server;
    let stop = |server: &mut Server| {
        let is_mariadb = server.flavor == Flavor::MariaDb;
        server.link.iter_mut().for_each(|link| if is_mariadb { link.stop() } else { link.stop_receiver() });
    };
    control.on(UNDONE_MS, stop).await?;
    let change = move |state: &mut State, now_ms| {
        if !is_undone {
            state.note_pointed(place, source, now_ms);
        }
        state.servers[place].change(source, false);
    };
    control.tell(UNDONE_MS, change).await?;
    let start = |server: &mut Server| match server.flavor {
        Flavor::MariaDb => server.start(),
        Flavor::MySql => server.link.iter_mut().for_each(|link| link.start_receiver()),
    };
    control.on(UNDONE_MS, start).await
}

impl Healer {
    /// Whether a server that was pointed follows, without an error for so long.
    pub(crate) async fn settles(&self, control: &Control, limit_ms: u64, settles_ms: u64) -> Result<(), String> {
        let (begun_ms, mut since_ms) = (self.world.clock.now_ms(), None);
        loop {
            let said =
                control.on(REACHED_MS, |server| server.link.as_ref().map(|link| (link.receiver.clone(), link.applier_error))).await?;
            let now_ms = self.world.clock.now_ms();
            match said {
                None => return Err("its channel is gone".to_owned()),
                Some((_, Some(code))) => return Err(format!("its applier has stopped with error {code}")),
                Some((receiver, _)) if receiver.state == LinkState::Stopped => {
                    return Err(format!("its receiver has stopped: {receiver:?}"));
                }
                Some((receiver, _)) if receiver.state == LinkState::Runs => {
                    if now_ms >= *since_ms.get_or_insert(now_ms) + settles_ms {
                        return Ok(());
                    }
                }
                Some(_) if now_ms >= begun_ms + limit_ms => return Err("it does not connect".to_owned()),
                Some(_) => since_ms = None,
            }
            self.world.clock.sleep(AGAIN_MS).await;
        }
    }
}
