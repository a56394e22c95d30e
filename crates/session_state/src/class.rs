//! Client flags that change what statements mean: a backend is opened with exactly the flags of the session it serves.

use model::HostgroupId;
use model::snapshot::User;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use wire::flags::Capabilities;

/// The meaning-changing part of a client's capabilities. Backends of different classes never stand in for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class(Capabilities);

/// CLIENT_INTERACTIVE chooses the timeout, FOUND_ROWS what "affected rows" counts, LOCAL_FILES and the MULTI_ ones
/// what is allowed at all, QUERY_ATTRIBUTES and the MariaDB flags the shape of packets.
const MEANING: Capabilities = Capabilities::FOUND_ROWS
    .union(Capabilities::NO_SCHEMA)
    .union(Capabilities::LOCAL_FILES)
    .union(Capabilities::IGNORE_SPACE)
    .union(Capabilities::INTERACTIVE)
    .union(Capabilities::MULTI_STATEMENTS)
    .union(Capabilities::MULTI_RESULTS)
    .union(Capabilities::PS_MULTI_RESULTS)
    .union(Capabilities::QUERY_ATTRIBUTES)
    .union(Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS)
    .union(Capabilities::MARIADB_CLIENT_BULK_UNIT_RESULTS)
    .union(Capabilities::MARIADB_CLIENT_EXTENDED_METADATA);

impl Class {
    /// The class of a client with these (negotiated) capabilities.
    pub fn of(caps: Capabilities) -> Self {
        Self(caps & MEANING)
    }

    /// The flags, to be announced to the server.
    pub fn capabilities(self) -> Capabilities {
        self.0
    }
}

/// What makes backends interchangeable.
#[derive(Clone)]
pub struct LaneKey {
    /// Hostgroup.
    pub hostgroup: HostgroupId,
    /// The user who is logged in.
    pub user: Arc<User>,
    /// The client flags.
    pub class: Class,
}

impl PartialEq for LaneKey {
    fn eq(&self, other: &Self) -> bool {
        self.hostgroup == other.hostgroup && self.class == other.class && self.user.name == other.user.name
    }
}

impl Eq for LaneKey {}

impl Hash for LaneKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.hostgroup, self.class, &self.user.name).hash(state);
    }
}
