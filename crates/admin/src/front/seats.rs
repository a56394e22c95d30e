//! The number of connections to the admin port, and which one is closed if a local client needs room.
//!
//! Up to `admin-max_connections` any client is admitted. A reserve beyond it is for clients of this machine, and only administrators keep
//! such a place. If the reserve is full too, the connection that waited longest for a command is closed. So an operator on the machine
//! always gets in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::accounts::Origin;

/// Seats beyond the limit, for clients of this machine.
const RESERVE: usize = 16;

/// The state of a connection, for the choice of one to close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Logging in or waiting for a command, since then.
    Waiting(Instant),
    Working,
    /// Told to go.
    Leaving,
}

#[derive(Debug)]
struct Seat {
    doing: Doing,
    leave: Arc<Notify>,
}

/// Every connection of the admin port.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: Mutex<HashMap<u64, Seat>>,
}

/// A seat that is held; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Held {
    seats: Arc<Seats>,
    id: u64,
    leave: Arc<Notify>,
}

impl Seats {
    /// A seat for the connection `id`; `None` when it must go away.
    pub(super) fn take(self: &Arc<Self>, id: u64, origin: Origin, max: usize) -> Option<Held> {
        let mut taken = self.lock();
        let count = present(&taken);
        let limit = if origin == Origin::Local { max + RESERVE } else { max };
        if count >= limit && (origin == Origin::Remote || !evict_one(&mut taken)) {
            return None;
        }
        let leave = Arc::new(Notify::new());
        taken.insert(id, Seat { doing: Doing::Waiting(Instant::now()), leave: Arc::clone(&leave) });
        Some(Held { seats: Arc::clone(self), id, leave })
    }

    /// How many connections there are.
    pub(super) fn count(&self) -> usize {
        present(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Seat>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, id: u64, doing: Doing) {
        if let Some(seat) = self.lock().get_mut(&id).filter(|seat| seat.doing != Doing::Leaving) {
            seat.doing = doing;
        }
    }
}

fn present(taken: &HashMap<u64, Seat>) -> usize {
    taken.values().filter(|seat| seat.doing != Doing::Leaving).count()
}

/// Tells the one that has waited longest to go; false when all are working.
fn evict_one(taken: &mut HashMap<u64, Seat>) -> bool {
    let waiting = taken.values_mut().filter_map(|seat| match seat.doing {
        Doing::Waiting(since) => Some((since, seat)),
        Doing::Working | Doing::Leaving => None,
    });
    let Some((_, seat)) = waiting.min_by_key(|(since, _)| *since) else { return false };
    seat.doing = Doing::Leaving;
    seat.leave.notify_one();
    true
}

impl Held {
    /// Returns when the connection must make room.
    pub(super) async fn told_to_leave(&self) {
        self.leave.notified().await;
    }

    /// The connection waits for a command.
    pub(super) fn waits(&self) {
        self.seats.note(self.id, Doing::Waiting(Instant::now()));
    }

    /// The connection executes a command.
    pub(super) fn works(&self) {
        self.seats.note(self.id, Doing::Working);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.seats.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_clients_stop_at_the_limit_and_local_ones_do_not() {
        let seats = Arc::new(Seats::default());
        let mut held: Vec<Held> = (0..2).filter_map(|id| seats.take(id, Origin::Remote, 2)).collect();
        assert!(seats.take(2, Origin::Remote, 2).is_none());
        held.extend((3..3 + RESERVE as u64).filter_map(|id| seats.take(id, Origin::Local, 2)));
        assert_eq!(seats.count(), 2 + RESERVE);
        held[0].works();
        let one_more = seats.take(99, Origin::Local, 2).unwrap();
        assert_eq!(seats.count(), 2 + RESERVE, "the one that waited longest was told to leave");
        let leaving = |held: &Held| seats.lock()[&held.id].doing == Doing::Leaving;
        assert_eq!((leaving(&held[0]), leaving(&held[1])), (false, true));
        drop((held, one_more));
        assert_eq!(seats.count(), 0);
    }

    #[test]
    fn nobody_who_works_is_sent_away() {
        let seats = Arc::new(Seats::default());
        let held: Vec<Held> = (0..RESERVE as u64).filter_map(|id| seats.take(id, Origin::Local, 0)).collect();
        held.iter().for_each(Held::works);
        assert!(seats.take(99, Origin::Local, 0).is_none());
    }
}
