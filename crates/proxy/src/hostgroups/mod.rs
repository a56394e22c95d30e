//! A hostgroup: its servers, its lanes and queues, and the pool of its connections on a worker.

pub(crate) mod choice;
pub(crate) mod fleet;
#[cfg(test)]
pub(crate) mod fleet_tests;
pub(crate) mod gtid_source;
pub(crate) mod hostgroup;
pub(crate) mod lane;
pub(crate) mod no_server_reason;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod quota;
pub(crate) mod replays;
