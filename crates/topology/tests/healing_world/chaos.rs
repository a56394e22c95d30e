//! Faults: servers die and freeze, ways are cut, people write where they should not, healers are frozen or die between two steps.

use std::rc::Rc;

use crate::clock::Owner;
use crate::mind;
use crate::network::Node;
use crate::server::{Gate, Life};
use crate::world::{Ambush, Blow, SETTLED_MS, State, World, addr};

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The writer dies, for a time or for ever.
    KillWriter,
    KillOne,
    FreezeWriter,
    FreezeOne,
    /// The writer is cut off from everybody.
    IsolateWriter,
    Isolate,
    CutProxy,
    CutClients,
    CutServers,
    /// Somebody with all rights writes on a server that is not the writer.
    Errant,
    /// Binary logs are purged.
    Purge,
    Slow,
    /// The healer is struck within its next steps.
    Strike,
    /// An operator moves the writer's part to a replica.
    Switchover,
    /// A script opens a returned writer and writes there.
    Script,
}

const ALL: [Fault; 15] = [
    Fault::KillWriter,
    Fault::KillOne,
    Fault::FreezeWriter,
    Fault::FreezeOne,
    Fault::IsolateWriter,
    Fault::Isolate,
    Fault::CutProxy,
    Fault::CutClients,
    Fault::CutServers,
    Fault::Errant,
    Fault::Purge,
    Fault::Slow,
    Fault::Strike,
    Fault::Switchover,
    Fault::Script,
];

/// Breaks things until time is up.
pub(crate) async fn run(world: &Rc<World>) {
    world.clock.sleep(SETTLED_MS).await;
    let (is_simple, kinds, pause_ms, end_ms) = {
        let mut state = world.state.borrow_mut();
        let end_ms = world.clock.now_ms() + state.draw.chaos_ms;
        // A few kinds at a time, so that they coincide; the writer's death is what this is about.
        let mut kinds = vec![Fault::KillWriter];
        for _ in 0..state.random.within(1..=4) {
            let kind = state.random.pick(&ALL);
            kinds.push(kind);
        }
        if state.random.chance(50) {
            kinds.push(Fault::Strike);
        }
        (state.draw.is_simple, kinds, state.random.pick(&[500, 3_000, 10_000]), end_ms)
    };
    if is_simple {
        let mut state = world.state.borrow_mut();
        let life = state.random.pick(&[Life::Crashed, Life::Lost]);
        state.servers[0].die(life);
        state.checks.died_ms = Some(world.clock.now_ms());
        return;
    }
    while world.clock.now_ms() < end_ms {
        let (fault, wait_ms) = {
            let mut state = world.state.borrow_mut();
            (state.random.pick(&kinds), state.random.within(1..=pause_ms))
        };
        world.clock.sleep(wait_ms).await;
        if world.clock.now_ms() < end_ms {
            one(world, fault);
        }
    }
}

fn one(world: &Rc<World>, fault: Fault) {
    let (place, ms, chance) = {
        let mut state = world.state.borrow_mut();
        let servers = state.servers.len();
        let place = state.random.index(servers);
        let long_ms = state.random.pick(&[300, 3_000, 15_000, 40_000]);
        (place, state.random.within(50..=long_ms), state.random.within(0..=99))
    };
    let writer = world.state.borrow().heir();
    world.note(|| format!("fault {fault:?}: {} for {ms} ms, the writer is {}", addr(place), addr(writer)));
    match fault {
        Fault::KillWriter => kill(world, writer, ms, chance),
        Fault::KillOne => kill(world, place, ms, chance),
        Fault::FreezeWriter => freeze(world, writer, ms),
        Fault::FreezeOne => freeze(world, place, ms),
        Fault::IsolateWriter => isolate(world, writer, ms),
        Fault::Isolate => isolate(world, place, ms),
        Fault::CutProxy => cut(world, vec![(Node::Proxy(0), Node::Server(place))], ms),
        Fault::CutClients => cut(world, vec![(Node::Clients, Node::Proxy(0))], ms),
        Fault::CutServers => cut(world, vec![(Node::Server(writer), Node::Server(place))], ms),
        Fault::Errant => write_errant(&mut world.state.borrow_mut(), place, world.clock.now_ms()),
        Fault::Purge => {
            let server = &mut world.state.borrow_mut().servers[place];
            server.purged = server.log.len().saturating_sub(3).max(server.purged);
        }
        Fault::Slow => {
            world.state.borrow_mut().servers[place].slow_ms = chance * 5;
            later(world, ms, move |world| world.state.borrow_mut().servers[place].slow_ms = 0);
        }
        Fault::Strike => {
            let mut state = world.state.borrow_mut();
            let step = state.steps + state.random.within(1..=45);
            let what = match chance {
                0..35 => Blow::Freeze { ms },
                35..65 => Blow::Die { ms: ms.min(10_000) },
                65..85 => Blow::Revive,
                _ => Blow::Cut { server: place, ms },
            };
            state.ambushes.push(Ambush { step, what });
        }
        Fault::Switchover => switch_over(world, place),
        Fault::Script => script(world, ms),
    }
}

/// Does something later, whatever happens until then.
fn later(world: &Rc<World>, ms: u64, what: impl FnOnce(&Rc<World>) + 'static) {
    let then = Rc::clone(world);
    world.clock.spawn(Owner::World, async move {
        then.clock.sleep(ms).await;
        what(&then);
    });
}

fn kill(world: &Rc<World>, place: usize, ms: u64, chance: u64) {
    if !world.state.borrow().servers[place].is_up() {
        return;
    }
    world.state.borrow_mut().servers[place].die(if chance.is_multiple_of(2) { Life::Crashed } else { Life::Lost });
    // Some stay dead.
    if chance < 60 {
        later(world, ms, move |world| revive(world, place));
    }
}

fn revive(world: &Rc<World>, place: usize) {
    let mut state = world.state.borrow_mut();
    if matches!(state.servers[place].life, Life::Crashed | Life::Lost) {
        state.servers[place].restart();
        drop(state);
        world.note(|| format!("{} is back", addr(place)));
    }
}

fn freeze(world: &Rc<World>, place: usize, ms: u64) {
    let server = &mut world.state.borrow_mut().servers[place];
    if server.is_up() {
        server.life = Life::Frozen;
        later(world, ms, move |world| {
            let server = &mut world.state.borrow_mut().servers[place];
            if server.life == Life::Frozen {
                server.life = Life::Up;
            }
        });
    }
}

fn isolate(world: &Rc<World>, place: usize, ms: u64) {
    let servers = world.state.borrow().servers.len();
    let others = (0..servers).filter(|other| *other != place).map(Node::Server).chain([Node::Proxy(0)]);
    cut(world, others.map(|other| (other, Node::Server(place))).collect(), ms);
}

fn cut(world: &Rc<World>, ways: Vec<(Node, Node)>, ms: u64) {
    let ways: Vec<_> = ways.into_iter().filter(|(one, other)| one != other).map(|(one, other)| (one.min(other), one.max(other))).collect();
    world.state.borrow_mut().cuts.extend(ways.iter().copied());
    later(world, ms, move |world| world.state.borrow_mut().cuts.retain(|way| !ways.contains(way)));
}

/// Not while a plan is made: what somebody writes between two statements of it nobody can tell.
fn write_errant(state: &mut State, place: usize, now_ms: u64) {
    let is_busy = state.servers.iter().any(|one| one.lock.is_some());
    if place == state.writer() || place == state.heir() || is_busy || !state.servers[place].is_up() {
        return;
    }
    let gate = std::mem::replace(&mut state.servers[place].gate, Gate::Open);
    let gtid = state.servers[place].commit(now_ms, true);
    state.servers[place].gate = gate;
    state.checks.errant.extend(gtid);
    state.count("errant writes");
}

/// A script that knows no proxy writes on a former writer that has come back open, until it is ended.
fn script(world: &Rc<World>, ms: u64) {
    let end_ms = world.clock.now_ms() + ms;
    let world = Rc::clone(world);
    world.clock.spawn(Owner::World, {
        let world = Rc::clone(&world);
        async move {
            while world.clock.now_ms() < end_ms {
                {
                    let (mut state, now_ms) = (world.state.borrow_mut(), world.clock.now_ms());
                    let writers = [state.writer(), state.heir()];
                    for place in (0..state.servers.len()).filter(|place| !writers.contains(place)) {
                        let is_open = state.servers[place].gate == Gate::Open && state.servers[place].is_up();
                        let gtid = if is_open { state.servers[place].commit(now_ms, false) } else { None };
                        state.checks.errant.extend(gtid);
                    }
                }
                world.clock.sleep(70).await;
            }
        }
    });
}

/// Everything at once, as a careful operator does it: only to a replica that has all.
fn switch_over(world: &Rc<World>, heir: usize) {
    let now_ms = world.clock.now_ms();
    let mut state = world.state.borrow_mut();
    let old = state.heir();
    let has_all = state.servers[heir].logged.has_all(&state.servers[old].logged) && state.servers[old].waiting.is_empty();
    let is_busy = state.servers.iter().any(|one| one.lock.is_some() || !one.is_up());
    if heir == old || !has_all || is_busy || !state.cuts.is_empty() || state.servers[heir].nature.delay_ms > 0 {
        return;
    }
    if state.checks.errant.iter().any(|gtid| state.servers[heir].has(*gtid)) {
        return;
    }
    let semi = state.servers[old].semi;
    for place in 0..state.servers.len() {
        let one = &mut state.servers[place];
        one.sessions += 1;
        if place == heir {
            (one.gate, one.link) = (Gate::Open, None);
            (one.semi.is_source, one.semi.is_on) = (semi.is_source, semi.is_on);
        } else {
            if place == old {
                (one.gate, one.semi.is_source, one.semi.is_acker) = (Gate::ReadOnly, false, semi.is_source);
            }
            one.link.iter_mut().for_each(|link| link.stop());
            one.change(heir, place == old);
            one.start();
        }
    }
    state.note_moved(heir, now_ms);
    state.count("switchovers");
}

/// What happens to a healer before a step.
pub(crate) fn strike(world: &Rc<World>, healer: usize, blow: Blow) {
    match blow {
        Blow::Freeze { ms } => {
            world.clock.freeze(healer, true);
            later(world, ms, move |world| world.clock.freeze(healer, false));
        }
        Blow::Die { ms } => {
            world.clock.kill(healer);
            world.state.borrow_mut().count("healers died");
            world.state.borrow_mut().proxies[healer].is_up = false;
            later(world, ms, move |world| begin(world, healer));
        }
        Blow::Revive => {
            let writer = world.state.borrow().writer();
            let servers = world.state.borrow().servers.len();
            // The statement under way may be the opening: the one who died before is meant.
            for place in (0..servers).filter(|place| *place == writer || world.state.borrow().servers[*place].gate == Gate::Open) {
                revive(world, place);
            }
        }
        Blow::Cut { server, ms } => cut(world, vec![(Node::Proxy(healer), Node::Server(server))], ms),
    }
}

/// Where the seed says so, the statement that opens a server is late, and the dead writer comes back meanwhile.
pub(crate) fn at_opening(world: &Rc<World>, healer: usize, old: usize, heir: usize) {
    if !world.state.borrow().draw.delays_opening {
        return;
    }
    let ms = world.state.borrow_mut().random.within(1_500..=15_000);
    cut(world, vec![(Node::Proxy(healer), Node::Server(heir))], ms);
    later(world, 500, move |world| revive(world, old));
}

fn begin(world: &Rc<World>, healer: usize) {
    if !world.state.borrow().proxies[healer].is_up {
        world.state.borrow_mut().proxies[healer].restart(world.clock.now_ms());
        mind::begin(world, healer);
        world.note(|| format!("healer {healer} begins"));
    }
}

/// All is mended, except for servers that stay dead.
pub(crate) fn mend(world: &Rc<World>) {
    world.note(|| "everything is mended".to_owned());
    world.clock.freeze(0, false);
    begin(world, 0);
    let mut state = world.state.borrow_mut();
    state.note_mended(world.clock.now_ms());
    state.ambushes.clear();
    state.cuts.clear();
    for one in &mut state.servers {
        one.slow_ms = 0;
        if one.life == Life::Frozen {
            one.life = Life::Up;
        }
    }
}
