//! Load that keeps an account of itself while servers change roles.
//!
//! Clients of four kinds work nearly without a pause: autocommit writers, readers, clients with transactions, and clients that connect for
//! each transaction. Every client notes the begin, end and error of each of its works, and the row ids that were acknowledged. Afterwards
//! the rows on the writer are compared with that. An acknowledged id must be there exactly once, any other at most once, a transaction
//! whole or not at all.

mod audit;
mod client;
mod peer;
mod record;
mod tally;

pub use audit::Audit;
pub use client::{Clients, Load};
pub use peer::{Peer, Route, Way};
pub use record::{ClientKind, Clock, Event, Recording};
pub use tally::{SLOT_MS, Slot, Tally, median};
