//! A worker, its mail and its clock, and what all workers share.

pub(crate) mod ask;
pub(crate) mod begin_capture;
pub(crate) mod clock;
pub(crate) mod control;
pub(crate) mod counters;
pub(crate) mod in_force;
pub(crate) mod lateness;
pub(crate) mod mailbox;
pub(crate) mod prefetch;
pub(crate) mod safety;
pub(crate) mod shared;
pub(crate) mod start;
pub(crate) mod work;
pub(crate) mod worker;
