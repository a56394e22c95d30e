//! Where sessions of a replay wait until the order rule lets their next command start.
//!
//! If nothing ends for a while and nothing that runs explains it, the command with the smallest number starts out of order, and is counted:
//! two sessions may have come to a lock the other way round.

use capture::{Order, Timing, Turn};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing may end, until a command starts out of order.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a command waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    /// When it ran at the original.
    pub timing: Timing,
    /// Its turn, if it writes.
    pub turn: Option<Turn>,
}

/// How a command may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// It is its turn.
    InOrder,
    /// Nothing else moved any more.
    OutOfOrder,
    /// Not at all: the replay was interrupted.
    Not,
}

/// See the module.
pub(crate) struct Gate {
    state: Mutex<State>,
}

struct State {
    /// None: sessions do not wait for each other.
    order: Option<Order>,
    /// Those that wait for what they had seen, by `after` and number.
    unseen: BTreeMap<(u64, u64), (Ticket, Arc<Waiter>)>,
    /// Writes that wait for their turn, by that and number.
    in_turn: BTreeMap<(Turn, u64), Arc<Waiter>>,
    /// Commands that run, with their time at the original, us.
    running: BTreeMap<u64, u64>,
    moved_at: Instant,
    out_of_order: u64,
    is_stopped: bool,
}

#[derive(Default)]
struct Waiter {
    start: Mutex<Option<Start>>,
    told: Condvar,
}

impl Waiter {
    fn tell(&self, start: Start) {
        *self.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(start);
        self.told.notify_one();
    }

    fn wait(&self) -> Start {
        let held = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.told.wait_while(held, |start| start.is_none()).unwrap_or_else(PoisonError::into_inner);
        told.unwrap_or(Start::Not)
    }
}

impl Gate {
    /// With an order, sessions wait for each other.
    pub(crate) fn new(order: Option<Order>) -> Self {
        let state = State {
            order,
            unseen: BTreeMap::new(),
            in_turn: BTreeMap::new(),
            running: BTreeMap::new(),
            moved_at: Instant::now(),
            out_of_order: 0,
            is_stopped: false,
        };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a command may start.
    pub(crate) fn enter(&self, ticket: Ticket) -> Start {
        let Some(waiter) = self.lock().admit(ticket) else { return Start::InOrder };
        let start = waiter.wait();
        self.lock().begin(ticket.timing);
        start
    }

    /// A command has ended, or does not run.
    pub(crate) fn leave(&self, ticket: Ticket) {
        self.lock().leave(ticket);
    }

    /// Lets the first command start that waits, if nothing has ended for too long.
    pub(crate) fn look(&self, now: Instant) {
        self.lock().look(now);
    }

    /// Nothing starts any more.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        std::mem::take(&mut state.unseen).values().for_each(|(_, waiter)| waiter.tell(Start::Not));
        std::mem::take(&mut state.in_turn).values().for_each(|waiter| waiter.tell(Start::Not));
    }

    /// Whether any command runs.
    pub(crate) fn is_busy(&self) -> bool {
        !self.lock().running.is_empty()
    }

    /// Commands that started out of order.
    pub(crate) fn out_of_order(&self) -> u64 {
        self.lock().out_of_order
    }
}

impl State {
    /// A command runs from now on.
    fn begin(&mut self, timing: Timing) {
        self.running.insert(timing.seq, timing.time_us);
        self.moved_at = Instant::now();
    }

    /// None: the command may start at once.
    fn admit(&mut self, ticket: Ticket) -> Option<Arc<Waiter>> {
        let Timing { after, seq, .. } = ticket.timing;
        if self.running.is_empty() && self.unseen.is_empty() && self.in_turn.is_empty() {
            // Nobody waited during the pause before it.
            self.moved_at = Instant::now();
        }
        let waiter = Arc::new(Waiter::default());
        match &self.order {
            _ if self.is_stopped => waiter.tell(Start::Not),
            Some(order) if !order.has_seen(after) => drop(self.unseen.insert((after, seq), (ticket, Arc::clone(&waiter)))),
            Some(order) if ticket.turn.is_some_and(|turn| !order.is_turn(turn)) => self.wait_for_turn(ticket, &waiter),
            _ => {
                self.begin(ticket.timing);
                return None;
            }
        }
        Some(waiter)
    }

    fn wait_for_turn(&mut self, ticket: Ticket, waiter: &Arc<Waiter>) {
        if let Some(turn) = ticket.turn {
            self.in_turn.insert((turn, ticket.timing.seq), Arc::clone(waiter));
        }
    }

    fn leave(&mut self, ticket: Ticket) {
        self.running.remove(&ticket.timing.seq);
        self.moved_at = Instant::now();
        let Some(order) = self.order.as_mut() else { return };
        order.ended(ticket.timing.seq, ticket.turn);
        while let Some(first) = self.unseen.first_entry().filter(|first| order.has_seen(first.key().0)) {
            let (ticket, waiter) = first.remove();
            match ticket.turn {
                Some(turn) => drop(self.in_turn.insert((turn, ticket.timing.seq), waiter)),
                None => waiter.tell(Start::InOrder),
            }
        }
        while let Some(first) = self.in_turn.first_entry().filter(|first| order.is_turn(first.key().0)) {
            first.remove().tell(Start::InOrder);
        }
    }

    fn look(&mut self, now: Instant) {
        let longest_us = self.running.values().max().copied().unwrap_or(0);
        let patience = PATIENCE + Duration::from_micros(longest_us.saturating_mul(4));
        if now.saturating_duration_since(self.moved_at) < patience {
            return;
        }
        // Who releases locks helps most, and then who comes first.
        let waiter = match (self.in_turn.pop_first(), self.unseen.pop_first()) {
            (Some((key, waiter)), Some((of_unseen, unseen))) if key.1 <= of_unseen.1 => {
                self.unseen.insert(of_unseen, unseen);
                Some((key.1, waiter))
            }
            (in_turn, Some(((_, seq), (_, waiter)))) => {
                self.in_turn.extend(in_turn);
                Some((seq, waiter))
            }
            (in_turn, None) => in_turn.map(|((_, seq), waiter)| (seq, waiter)),
        };
        if let Some((_, waiter)) = waiter {
            self.out_of_order += 1;
            self.moved_at = now;
            waiter.tell(Start::OutOfOrder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::{Seqs, Turns};
    use std::sync::mpsc;

    fn gate(numbers: &[u64]) -> Gate {
        let mut seqs = Seqs::default();
        numbers.iter().for_each(|number| assert!(seqs.insert(*number)));
        Gate::new(Some(Order::new(seqs, Turns::default())))
    }

    fn ticket(after: u64, seq: u64, time_us: u64) -> Ticket {
        Ticket { timing: Timing { after, seq, begin_us: 0, time_us }, turn: None }
    }

    #[test]
    fn a_command_waits_for_those_that_had_ended() {
        let gate = gate(&[1, 2, 3]);
        assert_eq!([gate.enter(ticket(0, 1, 0)), gate.enter(ticket(0, 2, 0))], [Start::InOrder; 2], "they overlapped");
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(gate.enter(ticket(2, 3, 0))));
            gate.leave(ticket(0, 2, 0));
            assert!(receiver.try_recv().is_err());
            gate.leave(ticket(0, 1, 0));
            assert_eq!(receiver.recv(), Ok(Start::InOrder));
        });
        assert!(gate.is_busy() && gate.out_of_order() == 0);
    }

    #[test]
    fn writes_that_overlapped_take_turns() {
        let write = |seq| Ticket { turn: Some(Turn::of_write(seq)), ..ticket(0, seq, 0) };
        let mut seqs = Seqs::default();
        [1, 2].iter().for_each(|seq| assert!(seqs.insert(*seq)));
        let gate = Gate::new(Some(Order::new(seqs, Turns::new([1, 2].map(Turn::of_write).to_vec()))));
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(gate.enter(write(2))));
            assert_eq!(gate.enter(write(1)), Start::InOrder);
            assert!(receiver.try_recv().is_err());
            gate.leave(write(1));
            assert_eq!(receiver.recv(), Ok(Start::InOrder));
        });
    }

    #[test]
    fn a_jam_is_broken_and_a_long_command_is_none() {
        for (time_us, at_1_s) in [(0, 1), (1_000_000, 0)] {
            let gate = gate(&[1, 2]);
            gate.enter(ticket(0, 1, time_us));
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| gate.enter(ticket(1, 2, 0)));
                while gate.lock().unseen.is_empty() {
                    std::thread::yield_now();
                }
                gate.look(Instant::now() + Duration::from_secs(1));
                assert_eq!(gate.out_of_order(), at_1_s);
                gate.look(Instant::now() + Duration::from_secs(60));
                assert_eq!((gate.out_of_order(), waits.join().unwrap()), (1, Start::OutOfOrder));
            });
        }
    }

    #[test]
    fn a_pause_is_no_jam() {
        let ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        for begins in [false, true] {
            let gate = gate(&[1, 2]);
            gate.lock().moved_at = ago;
            if begins {
                gate.enter(ticket(0, 1, 0));
            }
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| gate.enter(ticket(1, 2, 0)));
                while gate.lock().unseen.is_empty() {
                    std::thread::yield_now();
                }
                assert!(gate.lock().moved_at > ago, "its patience begins now");
                gate.stop();
                assert_eq!((gate.out_of_order(), waits.join().unwrap()), (0, Start::Not));
            });
        }
    }

    #[test]
    fn an_interruption_lets_all_go() {
        let gate = gate(&[1, 2]);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gate.enter(ticket(1, 2, 0)));
            while gate.lock().unseen.is_empty() {
                std::thread::yield_now();
            }
            gate.stop();
            assert_eq!([waits.join().unwrap(), gate.enter(ticket(0, 1, 0))], [Start::Not; 2]);
        });
    }

    #[test]
    fn without_an_order_nothing_waits() {
        assert_eq!(Gate::new(None).enter(ticket(1, 2, 0)), Start::InOrder);
    }
}
