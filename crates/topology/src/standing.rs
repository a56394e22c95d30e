//! What has to be kept over a restart of the proxy, because no server says it.

use model::{HostgroupId, ServerAddr};

/// Where the proxy chooses who writes: whom it chose for another reason than weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The cluster's writer hostgroup.
    pub writer: HostgroupId,
    /// Which server.
    pub server: ServerAddr,
    /// An operator prefers it; otherwise it writes, and the policy of fail-back lets nobody take its place.
    pub is_preferred: bool,
}
