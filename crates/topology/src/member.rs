//! The servers of a cluster: the operator's rows for each, and derived rows in hostgroups where it has none.
//!
//! Rebuilt from each configuration, with one more member for each found server. INVARIANT: a member has a row for every hostgroup of its
//! cluster, its own or derived.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::snapshot::{Address, RoleGroup, RoleKind, Server, ServerDefaults, ServerStatus, Snapshot};
use model::{HostgroupId, ServerAddr};

/// One server of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Its row for each hostgroup of the cluster.
    rows: BTreeMap<HostgroupId, Arc<Server>>,
    /// Hostgroups where the operator wrote it.
    pub configured: Vec<HostgroupId>,
    /// Whether the operator wrote it to the writer hostgroup.
    pub is_explicit_writer: bool,
    /// Its weight as a writer: that of its row in the writer hostgroup, else the largest of its rows. In the second case 0 only means "no
    /// reads": as a writer it would get 1.
    pub weight: u32,
}

impl Member {
    /// From the rows that the operator wrote; there is one at least.
    fn new(group: &RoleGroup, own: &BTreeMap<HostgroupId, Arc<Server>>) -> Option<Self> {
        let stand_in = [group.writer, group.reader].iter().find_map(|id| own.get(id)).or_else(|| own.values().next())?;
        let row = |id: HostgroupId| (id, own.get(&id).map_or_else(|| stand_for(group, stand_in, id), Arc::clone));
        let explicit = own.get(&group.writer);
        let heaviest = own.values().map(|row| row.weight).max().unwrap_or_default();
        Some(Self {
            rows: group.hostgroups().map(row).collect(),
            configured: own.keys().copied().collect(),
            is_explicit_writer: explicit.is_some(),
            weight: explicit.map_or(heaviest, |row| row.weight),
        })
    }

    /// A found server. Settings that `defaults` leaves out are copied from `like`.
    pub(crate) fn found(group: &RoleGroup, addr: &ServerAddr, like: &Server, defaults: &ServerDefaults) -> Self {
        let weight = defaults.weight.unwrap_or(match &group.kind {
            RoleKind::Aurora(row) => row.new_reader_weight,
            _ => 1,
        });
        let mut row = Server { status: ServerStatus::Online, weight, comment: "found by the monitor".into(), ..like.clone() };
        row.max_connections = defaults.max_connections.unwrap_or(row.max_connections);
        row.use_ssl = defaults.use_ssl.unwrap_or(row.use_ssl);
        row.key.host = Arc::clone(&addr.host);
        row.key.port = addr.port;
        row.address = Address::Tcp { host: Arc::clone(&addr.host), port: addr.port };
        let rows = group.hostgroups().map(|id| (id, stand_for(group, &row, id))).collect();
        Self { rows, configured: Vec::new(), is_explicit_writer: false, weight }
    }

    /// One of a configuration of before, of which only this is known. It has no rows, and counts until the present one is laid out.
    pub(crate) fn remembered(group: &RoleGroup, configured: Vec<HostgroupId>) -> Self {
        let is_explicit_writer = configured.contains(&group.writer);
        Self { rows: BTreeMap::new(), configured, is_explicit_writer, weight: 0 }
    }

    pub(crate) fn row(&self, id: HostgroupId) -> Option<&Arc<Server>> {
        self.rows.get(&id)
    }

    /// Its rows, one for each hostgroup of the cluster.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.rows.values()
    }

    /// Some row that stands for it: one that is checked, if any is; of those, TLS wins over none.
    pub(crate) fn any_row(&self) -> Option<&Arc<Server>> {
        self.rows.values().min_by_key(|row| (!is_checked(row), !row.use_ssl))
    }

    /// Whether it is looked at.
    pub(crate) fn is_checked(&self) -> bool {
        self.rows.values().any(|row| is_checked(row))
    }

    /// The operator's status of the server in a hostgroup; ONLINE where it has no row.
    pub(crate) fn status(&self, id: HostgroupId) -> ServerStatus {
        self.rows.get(&id).map_or(ServerStatus::Online, |row| row.status)
    }

    /// Its row in this hostgroup says that it is sent nothing.
    pub(crate) fn is_weightless(&self, id: HostgroupId) -> bool {
        self.rows.get(&id).is_some_and(|row| row.weight == 0)
    }

    /// Whether the operator keeps it out of every hostgroup.
    pub(crate) fn is_off(&self) -> bool {
        self.rows.values().all(|row| row.status != ServerStatus::Online)
    }
}

/// A server that the operator set to OFFLINE_HARD is not probed.
pub(crate) fn is_checked(server: &Server) -> bool {
    server.status != ServerStatus::OfflineHard
}

/// The members that the operator wrote.
pub(crate) fn configured(group: &RoleGroup, snapshot: &Snapshot) -> BTreeMap<ServerAddr, Member> {
    let mut own: BTreeMap<ServerAddr, BTreeMap<HostgroupId, Arc<Server>>> = BTreeMap::new();
    for id in group.hostgroups() {
        for server in snapshot.hostgroup(id).into_iter().flat_map(|h| &h.servers) {
            own.entry(server.key.addr()).or_default().insert(id, Arc::clone(server));
        }
    }
    own.into_iter().filter_map(|(addr, rows)| Some((addr, Member::new(group, &rows)?))).collect()
}

/// A derived row for a hostgroup without one. Weight 0 stops reads, not writes, so it becomes 1 in the writer hostgroup.
fn stand_for(group: &RoleGroup, row: &Server, id: HostgroupId) -> Arc<Server> {
    let mut row = row.clone();
    row.key.hostgroup = id;
    if id == group.writer {
        row.weight = row.weight.max(1);
    }
    Arc::new(row)
}
