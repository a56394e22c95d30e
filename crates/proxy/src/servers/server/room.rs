//! How many connections a server has, and how many it may have.
//!
//! INVARIANT: the count is exact. Each connection is counted once, by whoever took room for it, until that one gives the room back.

use crate::workers::safety::Safety;
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module.
#[derive(Default)]
pub(crate) struct Room {
    max_connections: AtomicU32,
    connections: AtomicU32,
    /// How many of them another process has, whose place this one takes or which takes this one's.
    elsewhere: AtomicU32,
}

impl Room {
    /// Most connections to the server from now on; what is open beyond it stays counted.
    pub(super) fn limit(&self, max_connections: u32) {
        self.max_connections.store(max_connections, Ordering::Release);
    }

    /// Most connections to it, from all workers together.
    pub(crate) fn max_connections(&self) -> u32 {
        self.max_connections.load(Ordering::Relaxed)
    }

    /// Connections that exist or are being made.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::Acquire)
    }

    /// Those of them that are this process's.
    pub(super) fn own(&self) -> u32 {
        self.connections().saturating_sub(self.elsewhere.load(Ordering::Acquire))
    }

    /// True when `max_connections` is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.connections() >= self.max_connections() && !Safety::ConnectionLimit.is_off()
    }

    /// Takes room for one more connection, if `max_connections` allows.
    pub(super) fn take(&self) -> bool {
        let max = if Safety::ConnectionLimit.is_off() { u32::MAX } else { self.max_connections() };
        self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < max).then_some(n + 1)).is_ok()
    }

    /// Takes the room of a connection that is there already, of another process: whatever the limit is.
    pub(super) fn take_over(&self) {
        let was_counted = self.elsewhere.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)).is_ok();
        if !was_counted {
            self.connections.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A connection is another process's now: that one closes it.
    pub(super) fn hand_over(&self) {
        self.elsewhere.fetch_add(1, Ordering::AcqRel);
    }

    /// A connection is closed.
    pub(super) fn give_back(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// Another process has so many connections now: they count towards `max_connections`.
    pub(super) fn count_elsewhere(&self, count: u32) {
        let before = self.elsewhere.swap(count, Ordering::AcqRel);
        if count != before {
            self.connections.fetch_add(count.wrapping_sub(before), Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(max_connections: u32) -> Room {
        let room = Room::default();
        room.limit(max_connections);
        room
    }

    #[test]
    fn the_limit_is_never_passed_and_may_come_later() {
        let room = room(2);
        assert!(room.take() && !room.is_full() && room.take() && room.is_full() && !room.take());
        assert_eq!(room.connections(), 2);
        room.limit(1);
        room.give_back();
        assert!(room.is_full() && !room.take(), "one is left, which is as many as may be");
        room.give_back();
        assert!(room.take());
    }

    #[test]
    fn connections_of_another_process_take_room_until_it_has_fewer() {
        let room = room(3);
        room.count_elsewhere(2);
        assert!(room.take() && !room.take());
        room.count_elsewhere(1);
        assert_eq!(room.connections(), 2);
        room.count_elsewhere(1);
        assert_eq!(room.connections(), 2, "the same count again changes nothing");
        room.count_elsewhere(0);
        assert_eq!(room.connections(), 1);
    }

    #[test]
    fn what_is_handed_over_takes_room_until_the_other_process_says_what_it_has() {
        let room = room(2);
        assert!(room.take() && room.take());
        room.hand_over();
        assert!(room.is_full(), "it is open still");
        assert_eq!(room.own(), 1);
        room.count_elsewhere(0);
        assert_eq!((room.own(), room.connections()), (1, 1), "it was closed there");
    }

    #[test]
    fn what_is_taken_over_is_counted_once() {
        let room = room(1);
        room.count_elsewhere(1);
        room.take_over();
        assert_eq!(room.connections(), 1, "it was counted as the other process's");
        room.count_elsewhere(0);
        assert_eq!(room.connections(), 1, "the other process has it no more, and this one has");
        room.take_over();
        assert_eq!(room.connections(), 2, "it is open, whatever the limit is");
        room.give_back();
        room.give_back();
        assert_eq!(room.connections(), 0);
    }
}
