//! What is counted for each server: by workers as plain memory, and by all of them where it is rare.

use crate::histogram::Histogram;
use hashbrown::HashMap;
use model::HostgroupId;
use sql::Kind;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A server by its hostgroup and its number there, which it keeps as long as the process lives.
pub type ServerId = (HostgroupId, usize);

macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident = $name:literal: $($kind:ident)|*;)*) => {
        /// What a statement does, as far as its latency is told apart.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LatencyClass {
            $($(#[$doc])* $class,)*
            /// Everything else.
            Other,
        }

        impl LatencyClass {
            /// The classes in order.
            pub const ALL: &[Self] = &[$(Self::$class,)* Self::Other];

            /// The class of a kind of statement.
            pub fn of(kind: Kind) -> Self {
                match kind {
                    $($(Kind::$kind)|* => Self::$class,)*
                    _ => Self::Other,
                }
            }

            /// The name shown to operators.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$class => $name,)*
                    Self::Other => "other",
                }
            }
        }
    };
}

classes! {
    /// Rows are read.
    Read = "read": Select | Show | Explain;
    /// Rows are written.
    Write = "write": Insert | Replace | Update | Delete | LoadData;
    /// A transaction begins or ends.
    Transaction = "transaction": Begin | Commit | Rollback | Savepoint | RollbackTo | ReleaseSavepoint | Xa;
    /// Definitions change.
    Ddl = "ddl": Ddl | CreateTemporaryTable | DropTable | Grant;
    /// Stored code.
    Call = "call": Call | Compound;
}

/// What one worker counts for one server.
#[derive(Clone, Debug, Default)]
pub struct ServerMeter {
    /// Statements it answered.
    pub queries: u64,
    /// Bytes of packets sent to it.
    pub bytes_sent: u64,
    /// Bytes of packets received from it.
    pub bytes_received: u64,
    latency: [Option<Histogram>; LatencyClass::ALL.len()],
}

impl ServerMeter {
    /// Adds what another worker counted.
    pub fn add(&mut self, other: &Self) {
        self.queries += other.queries;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        for (mine, theirs) in self.latency.iter_mut().zip(&other.latency) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().merge(theirs);
            }
        }
    }

    /// What another process has counted for a class.
    pub fn take_over(&mut self, class: LatencyClass, counted: Histogram) {
        if let Some(histogram) = self.latency.get_mut(class as usize) {
            *histogram = Some(counted);
        }
    }

    /// A statement of this class was answered after so long (us).
    pub fn count(&mut self, class: LatencyClass, time_us: u64) {
        self.queries += 1;
        if let Some(histogram) = self.latency.get_mut(class as usize) {
            histogram.get_or_insert_default().record(time_us);
        }
    }

    /// The latencies of the classes that have any.
    pub fn latency(&self) -> impl Iterator<Item = (LatencyClass, &Histogram)> {
        LatencyClass::ALL.iter().zip(&self.latency).filter_map(|(class, h)| Some((*class, h.as_ref()?)))
    }
}

/// One worker's servers.
#[derive(Default)]
pub struct ServerTable {
    by_id: HashMap<ServerId, usize, foldhash::fast::RandomState>,
    meters: Vec<(ServerId, ServerMeter)>,
    /// Place of the one that was asked for last.
    latest: usize,
}

impl ServerTable {
    /// What is counted for this server.
    pub fn meter(&mut self, id: ServerId) -> &mut ServerMeter {
        if self.meters.get(self.latest).is_none_or(|(latest, _)| *latest != id) {
            let next = self.meters.len();
            self.latest = *self.by_id.entry(id).or_insert(next);
            if self.latest == next {
                self.meters.push((id, ServerMeter::default()));
            }
        }
        // INVARIANT: `by_id` holds places in `meters`, which only grows.
        &mut self.meters[self.latest].1
    }

    /// Bytes that came from these servers.
    pub fn received(&self, ids: &[ServerId]) -> u64 {
        let meters = self.meters.iter().filter(|(id, _)| ids.contains(id));
        meters.map(|(_, meter)| meter.bytes_received).sum()
    }

    /// Up to `n` meters from place `from` on, and where to go on.
    pub fn slice(&self, from: usize, n: usize) -> (Vec<(ServerId, ServerMeter)>, Option<usize>) {
        let end = from.saturating_add(n).min(self.meters.len());
        (self.meters.get(from..end).unwrap_or_default().to_vec(), (end < self.meters.len()).then_some(end))
    }

    /// Latencies begin anew.
    pub fn reset_latency(&mut self) {
        self.meters.iter_mut().for_each(|(_, meter)| meter.latency = Default::default());
    }
}

/// What all workers count together for one server: rare events, so they may share memory.
#[derive(Default)]
pub struct ServerCounts {
    /// Logins that succeeded.
    pub connects_ok: AtomicU64,
    /// Connects and logins that failed.
    pub connects_failed: AtomicU64,
    most: AtomicU32,
}

impl ServerCounts {
    /// A connect ended; `connections` exist now. One is opened only when no other is free.
    pub fn connected(&self, succeeded: bool, connections: u32) {
        let counter = if succeeded { &self.connects_ok } else { &self.connects_failed };
        counter.fetch_add(1, Ordering::Relaxed);
        if succeeded {
            self.most.fetch_max(connections, Ordering::Relaxed);
        }
    }

    /// Most connections that were in use at a time, as far as it was seen: when one was opened, and when this was asked
    /// (`used` are now).
    pub fn most_used(&self, used: u32) -> u32 {
        self.most.fetch_max(used, Ordering::Relaxed).max(used)
    }

    /// [`ServerCounts::most_used`] begins anew.
    pub fn reset_most(&self) {
        self.most.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meters_are_told_apart_and_read_in_slices() {
        let mut table = ServerTable::default();
        for i in 0..10 {
            table.meter((HostgroupId(i % 2), i as usize)).count(LatencyClass::Read, 100);
        }
        table.meter((HostgroupId(0), 0)).count(LatencyClass::Write, 7);
        let (first, next) = table.slice(0, 8);
        let (rest, end) = table.slice(next.unwrap(), 8);
        assert_eq!((first.len(), rest.len(), end), (8, 2, None));
        let (id, meter) = &first[0];
        assert_eq!((*id, meter.queries), ((HostgroupId(0), 0), 2));
        let mut sum = meter.clone();
        sum.add(&rest[0].1);
        let read: Vec<_> = sum.latency().map(|(class, h)| (class.name(), h.count())).collect();
        assert_eq!(read, [("read", 2), ("write", 1)]);
        table.reset_latency();
        assert_eq!(table.meter((HostgroupId(0), 0)).latency().count(), 0);
    }

    #[test]
    fn most_used_is_a_high_water_mark() {
        let counts = ServerCounts::default();
        counts.connected(true, 3);
        counts.connected(false, 9);
        assert_eq!((counts.most_used(2), counts.most_used(5), counts.most_used(1)), (3, 5, 5));
        counts.reset_most();
        assert_eq!(counts.most_used(1), 1);
        assert_eq!(counts.connects_failed.load(Ordering::Relaxed), 1);
    }
}
