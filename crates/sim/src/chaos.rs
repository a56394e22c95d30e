//! The faults: their kinds, times and durations. Every fault is repaired again.

use crate::fleet::Fleet;
use crate::net::Node;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::server::Crash;
use crate::trace::Trace;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A server's process dies.
    CrashProcess,
    /// A server's machine dies.
    CrashMachine,
    /// The writer dies, one way or the other.
    CrashWriter,
    /// Every connection of the proxy to a server is reset.
    ResetAll,
    /// A single connection is reset.
    ResetOne,
    /// The proxy and a server do not hear each other.
    CutProxy,
    /// The monitor and a server do not hear each other.
    CutMonitor,
    /// The operator and a server do not hear each other.
    CutOperator,
    /// Two servers do not hear each other.
    CutServers,
    /// A server is cut off from all others.
    Isolate,
    /// Statements take long.
    Slow,
    /// Probes take long.
    SlowProbe,
    /// A replica applies with a delay.
    Lag,
    /// A server says the wrong thing of read_only.
    Lie,
    /// A planned change of writers.
    Switchover,
}

const FAULTS: [Fault; 15] = [
    Fault::CrashProcess,
    Fault::CrashMachine,
    Fault::CrashWriter,
    Fault::ResetAll,
    Fault::ResetOne,
    Fault::CutProxy,
    Fault::CutMonitor,
    Fault::CutOperator,
    Fault::CutServers,
    Fault::Isolate,
    Fault::Slow,
    Fault::SlowProbe,
    Fault::Lag,
    Fault::Lie,
    Fault::Switchover,
];

/// The part that causes faults.
pub(crate) struct Chaos {
    /// The servers that it breaks.
    pub fleet: Rc<Fleet>,
    /// Told of faults, to judge their effects.
    pub oracle: Rc<Oracle>,
    /// The log of the run.
    pub trace: Trace,
}

impl Chaos {
    /// Breaks and mends things until `end`, and for a moment longer; everything is well again when this returns.
    pub(crate) async fn run(self: Rc<Self>, mut random: Random, end: Instant) {
        // Some worlds have only a few kinds of faults, so that these often coincide.
        let kinds: Vec<Fault> =
            if random.chance(60) { (0..random.within(1..=3)).map(|_| *random.pick(&FAULTS)).collect() } else { FAULTS.to_vec() };
        let pause_ms = *random.pick(&[300, 1500, 5000]);
        let mut under_way = Vec::new();
        loop {
            tokio::time::sleep(Duration::from_millis(random.within(1..=pause_ms))).await;
            if Instant::now() >= end {
                break;
            }
            let fault = *random.pick(&kinds);
            let (chaos, random) = (Rc::clone(&self), random.fork());
            under_way.push(tokio::task::spawn_local(chaos.one(fault, random)));
        }
        for task in under_way {
            let _ = task.await;
        }
    }

    async fn one(self: Rc<Self>, fault: Fault, mut random: Random) {
        let fleet = &self.fleet;
        let id = random.index(fleet.servers.len());
        let other = (id + 1 + random.index(fleet.servers.len() - 1)) % fleet.servers.len();
        let long_ms = *random.pick(&[200, 2000, 6000]);
        let time = Duration::from_millis(random.within(20..=long_ms));
        self.oracle.fault();
        self.trace.note(|| format!("fault {fault:?} db{id} (db{other}) for {} ms", time.as_millis()));
        match fault {
            Fault::CrashProcess => self.crash(id, Crash::Process, time).await,
            Fault::CrashMachine => self.crash(id, Crash::Machine, time).await,
            Fault::CrashWriter => {
                let how = *random.pick(&[Crash::Process, Crash::Machine]);
                self.crash(fleet.primary.get().unwrap_or(id), how, time).await;
            }
            Fault::ResetAll => fleet.network.reset_all(id),
            Fault::ResetOne => fleet.network.reset_one(id, &mut random),
            Fault::CutProxy => self.cut(&[(Node::Proxy, Node::Server(id))], time).await,
            Fault::CutMonitor => self.cut(&[(Node::Monitor, Node::Server(id))], time).await,
            Fault::CutOperator => self.cut(&[(Node::Operator, Node::Server(id))], time).await,
            Fault::CutServers => self.cut(&[(Node::Server(other), Node::Server(id))], time).await,
            Fault::Isolate => {
                let others = (0..fleet.servers.len()).filter(|o| *o != id).map(Node::Server);
                let all: Vec<_> = others.chain([Node::Proxy, Node::Monitor, Node::Operator]).map(|n| (n, Node::Server(id))).collect();
                self.cut(&all, time).await;
            }
            Fault::Slow => {
                let slow = random.within(20..=800);
                self.during(time, |on| fleet.servers[id].state().slow_ms = if on { slow } else { 3 }).await;
            }
            Fault::SlowProbe => {
                let slow = random.within(50..=3000);
                self.during(time, |on| fleet.servers[id].state().probe_slow_ms = if on { slow } else { 2 }).await;
            }
            Fault::Lag => {
                let lag = random.within(50..=3000);
                self.during(time, |on| fleet.servers[id].state().lag_ms = if on { lag } else { 5 }).await;
            }
            Fault::Lie => {
                let lie = random.chance(50);
                self.during(time, |on| fleet.servers[id].state().claims_read_only = on.then_some(lie)).await;
            }
            Fault::Switchover => fleet.switch_over().await,
        }
    }

    async fn during(&self, time: Duration, set: impl Fn(bool)) {
        set(true);
        tokio::time::sleep(time).await;
        set(false);
    }

    async fn crash(&self, id: usize, how: Crash, time: Duration) {
        let server = &self.fleet.servers[id];
        if !server.state().is_up {
            return;
        }
        server.crash(how);
        tokio::time::sleep(time).await;
        server.start();
    }

    async fn cut(&self, pairs: &[(Node, Node)], time: Duration) {
        pairs.iter().for_each(|(a, b)| self.fleet.network.cut(*a, *b));
        tokio::time::sleep(time).await;
        pairs.iter().for_each(|(a, b)| self.fleet.network.mend(*a, *b));
        self.trace.note(|| format!("mended {pairs:?}"));
        // A replica that was cut off may have missed commits.
        self.fleet.moved.notify_waiters();
    }
}
