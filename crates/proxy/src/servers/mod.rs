//! One server: what the operator configured, what was observed, and how much work it gets.

pub(crate) mod log_throttle;
pub(crate) mod positions;
pub(crate) mod ramp;
pub(crate) mod refusals;
pub(crate) mod server;
pub(crate) mod signals;
pub(crate) mod sizing;
pub(crate) mod terms;
