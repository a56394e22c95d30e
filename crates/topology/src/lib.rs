//! The writers, readers and excluded servers of a fleet: decided by pure code from the results of probes and the reports of traffic.
//!
//! [`Topology`] is the whole fleet's state as a value. Sightings, signals, orders and the passing of time go in. A
//! [`Layout`](model::fleet::Layout), the checks that are due, and events come out. It has no clock, no randomness and no sockets: the same
//! input gives the same output.
//!
//! INVARIANTS:
//! - At most `max_writers` servers of a cluster write.
//! - A cluster has a writer if a valid candidate was seen for as many samples as its kind asks for.
//! - One bad view changes no role.
//! - Every state but ONLINE ends, by a sighting or by time.
//! - A lone last server is never out for lag.
//! - The reader hostgroup keeps `reader_floor` readers.

mod aurora;
mod check;
mod checks;
mod cluster;
mod converge;
mod event;
mod facts;
mod galera;
mod group;
mod gtids;
pub mod healing;
mod health;
mod identity;
mod judgement;
mod knowledge;
mod member;
mod observation;
mod order;
mod rds;
mod replication;
mod roster;
mod standing;
mod story;
mod topology;

pub use check::{Check, CheckKind};
pub use cluster::Fork;
pub use event::{Event, EventKind};
pub use gtids::GtidSet;
pub use health::Distance;
pub use identity::{Identity, MemberIdentity};
pub use knowledge::Knowledge;
pub use observation::{
    AuroraInstance, AuroraView, GaleraView, GroupView, Lag, Observation, ProbeError, RdsView, ServerId, Source, SourcesView,
};
pub use order::Order;
pub use standing::{KnownIdentity, Standing, Standings};
pub use topology::Topology;
