//! A run: a cluster drawn from a seed, its proxy with its healer, clients, faults for a while, then calm, and what must hold.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use model::snapshot::{Healing, HealingMode, Loss, Promotion, SemiSyncRule, SiteRule};
use model::{HostgroupId, ServerAddr};

use crate::chaos;
use crate::checks::Checks;
use crate::clients;
use crate::clock::{Clock, Owner};
use crate::mind::{self, Disk};
use crate::network::Node;
use crate::numbers::{Flavor, Numbers};
use crate::proxy::Proxy;
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::server::{Gate, Life, Link, Nature, Semi, Server};

/// The cluster's writer hostgroup.
pub(crate) const WRITER: HostgroupId = HostgroupId(1);
/// Servers and receivers act so often.
const MOMENT_MS: u64 = 20;
/// Everything is in its place before anything happens.
pub(crate) const SETTLED_MS: u64 = 5_000;
/// After the last fault.
pub(crate) const CALM_MS: u64 = 150_000;

/// What a seed says of its cluster.
#[derive(Debug, Clone)]
pub(crate) struct Draw {
    pub(crate) flavor: Flavor,
    pub(crate) servers: usize,
    pub(crate) promotions: Vec<Promotion>,
    pub(crate) sites: Vec<&'static str>,
    /// Servers report the GTIDs of what they commit, and the proxy knows them.
    pub(crate) tells_gtids: bool,
    /// A commit waits until it is on so many replicas, and nothing ends that wait.
    pub(crate) is_lossless: bool,
    /// Nothing happens but that the writer dies and stays dead.
    pub(crate) is_simple: bool,
    /// What is known to be wrong counts too (`HEALING_STRICT`).
    pub(crate) is_strict: bool,
    /// The statement that opens a server is late.
    pub(crate) delays_opening: bool,
    pub(crate) write_every_ms: u64,
    pub(crate) chaos_ms: u64,
}

/// A healer that is frozen, or dies, before one of its steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ambush {
    pub(crate) step: u64,
    pub(crate) what: Blow,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Blow {
    Freeze {
        ms: u64,
    },
    Die {
        ms: u64,
    },
    /// The dead writer comes back just then.
    Revive,
    /// The way from the healer to a server is cut.
    Cut {
        server: usize,
        ms: u64,
    },
}

/// Everything that is shared.
pub(crate) struct State {
    pub(crate) draw: Draw,
    pub(crate) policy: Healing,
    pub(crate) servers: Vec<Server>,
    pub(crate) cuts: BTreeSet<(Node, Node)>,
    pub(crate) random: Random,
    pub(crate) proxies: Vec<Proxy>,
    /// What each healer keeps over restarts.
    pub(crate) disks: Vec<Disk>,
    pub(crate) checks: Checks,
    pub(crate) ambushes: Vec<Ambush>,
    pub(crate) steps: u64,
    /// Plans that failed for the present death.
    pub(crate) failures: u32,
    tokens: u64,
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

/// See the module.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) state: RefCell<State>,
    pub(crate) sabotage: Option<Sabotage>,
}

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

pub(crate) fn addr(place: usize) -> ServerAddr {
    ServerAddr { host: format!("s{}", place + 1).into(), port: 3306 }
}

pub(crate) fn place_of(addr: &ServerAddr) -> usize {
    addr.host[1..].parse::<usize>().map_or(0, |number| number - 1)
}

impl State {
    pub(crate) fn next_token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

impl World {
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.state.borrow_mut().trace {
            trace.push(format!("{:>7} {}", self.clock.now_ms(), what()));
        }
    }

    pub(crate) fn lacks(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Before each statement of a plan: here a healer can be frozen, or die.
    pub(crate) async fn step(self: &Rc<Self>, healer: usize) {
        let blow = {
            let mut state = self.state.borrow_mut();
            state.steps += 1;
            let step = state.steps;
            let place = state.ambushes.iter().position(|ambush| ambush.step == step);
            place.map(|place| state.ambushes.swap_remove(place).what)
        };
        if let Some(blow) = blow {
            self.note(|| format!("healer {healer} before step: {blow:?}"));
            chaos::strike(self, healer, blow);
        }
        self.clock.sleep(1).await;
    }
}

fn draw(random: &mut Random) -> (Draw, Healing) {
    let servers = random.pick(&[2, 3, 3, 3, 4]);
    let is_lossless = random.chance(40);
    let promotion = [Promotion::Neutral, Promotion::Neutral, Promotion::Neutral, Promotion::Prefer, Promotion::Avoid, Promotion::Never];
    let mut draw = Draw {
        flavor: random.pick(&[Flavor::MySql, Flavor::MariaDb]),
        servers,
        promotions: (0..servers).map(|_| random.pick(&promotion)).collect(),
        sites: (0..servers).map(|_| random.pick(&["", "", "", "", "", "west"])).collect(),
        tells_gtids: random.chance(75),
        is_lossless,
        is_simple: random.chance(20),
        is_strict: std::env::var_os("HEALING_STRICT").is_some(),
        delays_opening: false,
        write_every_ms: random.pick(&[30, 100, 400]),
        chaos_ms: random.within(10_000..=40_000),
    };
    draw.delays_opening = !draw.is_simple && random.chance(15);
    let loss = if is_lossless && random.chance(70) { Loss::None } else { random.pick(&[Loss::Reported, Loss::Reported, Loss::Any]) };
    let policy = Healing {
        writer: WRITER,
        mode: HealingMode::Full,
        dead_ms: random.pick(&[1_000, 4_000]),
        votes: 0,
        apply_ms: random.pick(&[5_000, 60_000]),
        loss,
        max_lost_ms: 10_000,
        site: random.pick(&[SiteRule::Same, SiteRule::Prefer, SiteRule::Any]),
        min_replicas: 0,
        block_ms: random.pick(&[0, 0, 3_600_000]),
        semi_sync: SemiSyncRule::Keep,
        acks: 1,
    };
    (draw, policy)
}

fn server(random: &mut Random, draw: &Draw, place: usize) -> Server {
    let is_first = place == 0;
    let oddity = if is_first || draw.is_simple { 100 } else { random.within(0..=99) };
    let gate = if is_first { Gate::Open } else { random.pick(&[Gate::ReadOnly, Gate::Closed]) };
    Server {
        number: place as u64 + 1,
        flavor: draw.flavor,
        life: Life::Up,
        incarnation: 0,
        gate,
        file_gate: if is_first { random.pick(&[Gate::Open, Gate::Open, Gate::ReadOnly]) } else { gate },
        is_strict: true,
        nature: Nature {
            apply_ms: if (10..25).contains(&oddity) { random.within(100..=1_500) } else { 1 },
            delay_ms: if oddity < 10 { 30_000 } else { 0 },
            breaks_ms: (90..100).contains(&oddity).then(|| random.within(0..=8_000)),
            net_timeout_ms: random.pick(&[2_000, 4_000]),
        },
        semi: Semi {
            is_source: is_first && draw.is_lossless,
            is_on: is_first && draw.is_lossless,
            is_after_sync: true,
            timeout_ms: 1_000_000_000,
            keeps_waiting: true,
            acks: 1,
            is_acker: !is_first && draw.is_lossless && (place == 1 || random.chance(70)),
        },
        log: Vec::new(),
        purged: 0,
        logged: Numbers::default(),
        executed: Numbers::default(),
        waiting: BTreeMap::new(),
        link: (!is_first).then(|| Link::to(0)),
        position: None,
        lock: None,
        killed: BTreeSet::new(),
        sessions: 0,
        slow_ms: 0,
    }
}

impl World {
    fn new(seed: u64, sabotage: Option<Sabotage>, is_traced: bool) -> Rc<Self> {
        let mut random = Random(seed);
        let (draw, policy) = draw(&mut random);
        let servers: Vec<Server> = (0..draw.servers).map(|place| server(&mut random, &draw, place)).collect();
        let proxies = vec![Proxy::new(draw.servers)];
        let state = State {
            servers,
            policy,
            cuts: BTreeSet::new(),
            random,
            proxies,
            disks: vec![Disk::default()],
            checks: Checks::default(),
            ambushes: Vec::new(),
            steps: 0,
            failures: 0,
            tokens: 0,
            trace: is_traced.then(Vec::new),
            counts: BTreeMap::new(),
            draw,
        };
        Rc::new(Self { clock: Clock::default(), state: RefCell::new(state), sabotage })
    }
}

/// Runs a seed's world.
pub(crate) fn run(seed: u64, sabotage: Option<Sabotage>, is_traced: bool) -> Outcome {
    let world = World::new(seed, sabotage, is_traced);
    let drawn = {
        let state = world.state.borrow();
        format!("{:?} {:?}", state.draw, state.policy)
    };
    world.note(|| drawn);
    let moments = Rc::clone(&world);
    world.clock.spawn(Owner::World, async move {
        loop {
            moments.state.borrow_mut().replicate(moments.clock.now_ms());
            moments.clock.sleep(MOMENT_MS).await;
        }
    });
    mind::begin(&world, 0);
    clients::begin(&world);
    let chaos_ms = world.state.borrow().draw.chaos_ms;
    let faults = Rc::clone(&world);
    world.clock.spawn(Owner::World, async move { chaos::run(&faults).await });
    let mut end_ms = SETTLED_MS + chaos_ms;
    world.clock.run_until(end_ms);
    chaos::mend(&world);
    for _ in 0..CALM_MS / 5_000 {
        end_ms += 5_000;
        world.clock.run_until(end_ms);
        if !world.state.borrow().checks.violations.is_empty() || world.is_at_rest() {
            break;
        }
    }
    world.check_end();
    world.clock.end();
    let mut state = world.state.borrow_mut();
    let trace = state.trace.take().unwrap_or_default();
    Outcome { violations: std::mem::take(&mut state.checks.violations), trace, counts: std::mem::take(&mut state.counts) }
}
