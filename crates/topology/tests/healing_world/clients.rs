//! Clients that write through a proxy, and note what was acknowledged.

use std::rc::Rc;

use model::fleet::UnderWay;

use crate::clock::Owner;
use crate::network::Node;
use crate::numbers::Gtid;
use crate::world::World;

/// How long a statement may be under way on a server that does not write any more (`mysql-demotion_grace_ms`).
const GRACE_MS: u64 = 5_000;
/// A client gives up after so long.
const PATIENCE_MS: u64 = 30_000;
const CLIENTS: usize = 2;

pub(crate) fn begin(world: &Rc<World>) {
    for client in 0..CLIENTS {
        let world = Rc::clone(world);
        world.clock.spawn(Owner::World, {
            let world = Rc::clone(&world);
            async move {
                world.clock.sleep(1_000 + 37 * client as u64).await;
                loop {
                    write(&world, 0).await;
                    let pause_ms = world.state.borrow().draw.write_every_ms;
                    world.clock.sleep(pause_ms).await;
                }
            }
        });
    }
}

/// One write, whatever comes of it.
async fn write(world: &Rc<World>, proxy: usize) {
    let server = {
        let state = world.state.borrow();
        let is_there = state.proxies[proxy].is_up && !state.is_cut(Node::Clients, Node::Proxy(proxy)) && !world.clock.is_frozen(proxy);
        let writers = state.proxies[proxy].writers();
        writers.first().copied().filter(|_| is_there)
    };
    let Some(server) = server else { return };
    let Some((gtid, executed_ms)) = committed(world, proxy, server).await else { return };
    // The bytes are there; a frozen proxy hands them on when it goes on.
    world.clock.until(world.clock.now_ms() + PATIENCE_MS, || !world.clock.is_frozen(proxy)).await;
    let now_ms = world.clock.now_ms();
    let mut state = world.state.borrow_mut();
    if !state.proxies[proxy].is_up {
        return;
    }
    state.proxies[proxy].received[server] += 1;
    if state.draw.tells_gtids {
        state.proxies[proxy].acknowledge(gtid);
    }
    if !state.is_cut(Node::Clients, Node::Proxy(proxy)) {
        state.note_acknowledged(gtid, server, executed_ms, now_ms);
    }
}

/// A commit whose answer came back, and when the server executed it.
async fn committed(world: &Rc<World>, proxy: usize, server: usize) -> Option<(Gtid, u64)> {
    let node = Node::Proxy(proxy);
    let incarnation = world.state.borrow().servers[server].incarnation;
    let sent = world.send(
        node,
        server,
        move |one| one.incarnation == incarnation,
        move |state, now_ms| {
            let one = &mut state.servers[server];
            one.commit(now_ms, false).map(|gtid| (gtid, now_ms, one.sessions))
        },
    );
    let begun_ms = world.clock.now_ms();
    let (gtid, executed_ms, session) = world.get(sent, GRACE_MS).await.ok()??;
    let done = || {
        let state = world.state.borrow();
        let one = &state.servers[server];
        let is_over = one.sessions != session || !state.proxies[proxy].is_up;
        let is_acknowledged = one.is_up() && !one.waiting.contains_key(&gtid) && !state.is_cut(node, Node::Server(server));
        // What the proxy does with a statement on a server that does not write any more.
        let is_given_up = match state.proxies[proxy].fate(server) {
            UnderWay::MayFinish => false,
            UnderWay::EndsAfterGrace => world.clock.now_ms() >= begun_ms + GRACE_MS,
            UnderWay::Severed => true,
        };
        (is_over || is_given_up, is_acknowledged)
    };
    world.clock.until(begun_ms + PATIENCE_MS, || done().0 || done().1).await;
    let (is_over, is_acknowledged) = done();
    (is_acknowledged && !is_over).then_some((gtid, executed_ms))
}
