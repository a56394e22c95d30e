//! Who writes, who reads, who is out: decided by pure code from what probes and traffic saw.
//!
//! [`Topology`] is the whole fleet's state as a value: sightings, signals, orders and the passing of time go in, a
//! [`Layout`](model::fleet::Layout), the checks that should be made, and events come out. It has no clock, no randomness and
//! no sockets; the same input gives the same output.
//!
//! INVARIANTS: at most `max_writers` servers of a cluster write; a cluster is never without a writer while a valid candidate
//! has been seen for as many samples as its kind asks for; one bad view moves no role; every state that is not ONLINE ends, by
//! a sighting or by time; a lone last server is never out for lag; the reader hostgroup keeps `reader_floor` readers.

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
mod health;
mod identity;
mod judgement;
mod knowledge;
mod member;
mod order;
mod rds;
mod replication;
mod roll;
mod seen;
mod standing;
mod story;
mod topology;

pub use check::{Check, CheckKind};
pub use cluster::Fork;
pub use event::{Event, EventKind};
pub use gtids::GtidSet;
pub use identity::{Identity, MemberIdentity};
pub use knowledge::Knowledge;
pub use order::Order;
pub use seen::{AuroraInstance, AuroraView, GaleraView, GroupView, Lag, ProbeError, RdsView, Seen, ServerId, Source, SourcesView};
pub use standing::{KnownIdentity, Standing, Standings};
pub use topology::Topology;
