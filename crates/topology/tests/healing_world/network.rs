//! Statements on their way: each takes time, waits while the way is cut or the server is frozen, and is executed when it arrives, whatever
//! has become of its sender by then.

use std::cell::RefCell;
use std::rc::Rc;

use crate::clock::Owner;
use crate::server::{Life, Server};
use crate::world::{State, World};

/// A place in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Clients,
    /// A proxy with its healer.
    Proxy(usize),
    Server(usize),
}

/// A way that is cut for longer loses what is on it.
const KEPT_MS: u64 = 20_000;
/// How often what waits is looked at.
const AGAIN_MS: u64 = 20;

/// No answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The host refuses the connection, or it was reset.
    Refused,
    Silent,
}

type Reply<R> = Rc<RefCell<Option<Result<R, Fault>>>>;

/// An answer to come.
pub(crate) struct Sent<R>(Reply<R>);

impl<R> Sent<R> {
    pub(crate) fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }
}

/// A connection of a healer. Its lock ends with it.
pub(crate) struct Control {
    world: Rc<World>,
    healer: usize,
    pub(crate) server: usize,
    pub(crate) token: u64,
    incarnation: u32,
}

impl Drop for Control {
    fn drop(&mut self) {
        let lock = &mut self.world.state.borrow_mut().servers[self.server].lock;
        if *lock == Some(self.token) {
            *lock = None;
        }
    }
}

impl State {
    pub(crate) fn is_cut(&self, one: Node, other: Node) -> bool {
        self.cuts.contains(&(one.min(other), one.max(other)))
    }
}

impl World {
    /// Sends a statement; `is_valid` says whether its connection still is one when it arrives.
    pub(crate) fn send<R: 'static>(
        self: &Rc<Self>,
        from: Node,
        to: usize,
        is_valid: impl Fn(&Server) -> bool + 'static,
        statement: impl FnOnce(&mut State, u64) -> R + 'static,
    ) -> Sent<R> {
        let reply: Reply<R> = Rc::default();
        let (world, slot, node) = (Rc::clone(self), Rc::clone(&reply), Node::Server(to));
        self.clock.spawn(Owner::World, async move {
            let clock = &world.clock;
            let (there_ms, back_ms) = {
                let mut state = world.state.borrow_mut();
                let slow_ms = state.servers[to].slow_ms;
                (state.random.within(1..=3), state.random.within(1..=3) + slow_ms)
            };
            clock.sleep(there_ms).await;
            let end_ms = clock.now_ms() + KEPT_MS;
            loop {
                let (is_cut, life) = {
                    let state = world.state.borrow();
                    (state.is_cut(from, node), state.servers[to].life)
                };
                match life {
                    _ if clock.now_ms() >= end_ms => return,
                    _ if is_cut => {}
                    Life::Up => break,
                    Life::Crashed => return drop(slot.replace(Some(Err(Fault::Refused)))),
                    Life::Lost | Life::Frozen => {}
                }
                clock.sleep(AGAIN_MS).await;
            }
            let answer = {
                let mut state = world.state.borrow_mut();
                let is_valid = is_valid(&state.servers[to]);
                is_valid.then(|| statement(&mut state, clock.now_ms())).ok_or(Fault::Refused)
            };
            clock.sleep(back_ms).await;
            while world.state.borrow().is_cut(from, node) {
                if clock.now_ms() >= end_ms {
                    return;
                }
                clock.sleep(AGAIN_MS).await;
            }
            slot.replace(Some(answer));
        });
        Sent(reply)
    }

    /// The answer, within so long.
    pub(crate) async fn get<R>(&self, sent: Sent<R>, limit_ms: u64) -> Result<R, Fault> {
        self.clock.until(self.clock.now_ms() + limit_ms, || sent.0.borrow().is_some()).await;
        sent.0.take().unwrap_or(Err(Fault::Silent))
    }

    /// A question over a connection of its own.
    pub(crate) async fn ask<R: 'static>(
        self: &Rc<Self>,
        from: Node,
        to: usize,
        limit_ms: u64,
        statement: impl FnOnce(&mut State, u64) -> R + 'static,
    ) -> Result<R, Fault> {
        let sent = self.send(from, to, |_| true, statement);
        self.get(sent, limit_ms).await
    }

    /// A connection on which a healer can send one statement after the other.
    pub(crate) async fn connect(self: &Rc<Self>, healer: usize, server: usize, limit_ms: u64) -> Result<Control, String> {
        self.step(healer).await;
        let incarnation = self.ask(Node::Proxy(healer), server, limit_ms, move |state, _| state.servers[server].incarnation).await;
        let incarnation = incarnation.map_err(|fault| format!("s{}: {fault:?}", server + 1))?;
        let token = self.state.borrow_mut().next_token();
        Ok(Control { world: Rc::clone(self), healer, server, token, incarnation })
    }
}

impl Control {
    /// Sends a statement, and waits for its answer. Before it is sent its healer may be frozen, or die.
    pub(crate) async fn tell<R: 'static>(
        &self,
        limit_ms: u64,
        statement: impl FnOnce(&mut State, u64) -> R + 'static,
    ) -> Result<R, String> {
        self.world.step(self.healer).await;
        let (incarnation, token) = (self.incarnation, self.token);
        let is_valid = move |server: &Server| server.incarnation == incarnation && !server.killed.contains(&token);
        let sent = self.world.send(Node::Proxy(self.healer), self.server, is_valid, statement);
        self.world.get(sent, limit_ms).await.map_err(|fault| format!("s{}: {fault:?}", self.server + 1))
    }

    /// A statement that concerns the server alone.
    pub(crate) async fn on<R: 'static>(&self, limit_ms: u64, statement: impl FnOnce(&mut Server) -> R + 'static) -> Result<R, String> {
        let server = self.server;
        self.tell(limit_ms, move |state, _| statement(&mut state.servers[server])).await
    }

    /// GET_LOCK: whether it got it.
    pub(crate) async fn lock(&self, limit_ms: u64) -> Result<bool, String> {
        let token = self.token;
        self.on(limit_ms, move |server| {
            let is_ours = server.lock.is_none_or(|holder| holder == token);
            if is_ours {
                server.lock = Some(token);
            }
            is_ours
        })
        .await
    }
}
