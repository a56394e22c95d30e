//! What the data plane counts, and the tables and metrics that show it.
//!
//! Each worker has plain numbers in [`crate::workers::counters::Counters`], and a [`meter::Meter`] for what is counted by digest, command,
//! server or error. Only its own thread touches them. Readers live on other threads: they ask the
//! workers for copies, in slices, and add them up. A table is one unit: its description and the function that makes its
//! rows stand together, and `TABLES` collects them. INVARIANT: reading holds no worker up for more than a slice.

pub(crate) mod collect;
mod handed;
mod show;
mod source;

pub use handed::Counts;
pub(crate) use show::{ran_before, rehearsal_page, settle_rehearsal};
pub(crate) use source::ProxyStats;
