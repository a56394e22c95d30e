//! Limits of the whole process: memory, time of workers, clients by address, mirrored statements.

pub(crate) mod addresses;
pub(crate) mod host_cache;
pub(crate) mod mirror_room;
pub(crate) mod overload;
pub(crate) mod watchdog;
