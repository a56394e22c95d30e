//! What the proxy knows of statements: digests, prepared statements, metadata, how long they take, how they are routed.

pub(crate) mod execution;
pub(crate) mod explain;
pub(crate) mod habits;
pub(crate) mod kill;
pub(crate) mod memory;
pub(crate) mod stmt_cache;
