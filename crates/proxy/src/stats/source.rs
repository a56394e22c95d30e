//! The tables and metrics, as the admin interface asks for them.

use super::handed::Counts;
use super::show::{self, Table};
use crate::servers::server::ServerShared;
use crate::workers::shared::Shared;
use meter::digest_table::DigestTotals;
use meter::server_counts::ServerId;
use model::stats::{Metric, Reading, StatsSource, StatsTable, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was shown of a server when its counters were last set to zero: the counters themselves only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Baseline {
    /// Logins that succeeded.
    pub connects_ok: u64,
    /// Connects and logins that failed.
    pub connects_failed: u64,
    /// Statements.
    pub queries: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
}

/// What the data plane publishes. One for the process; called from any thread but a worker's.
pub(crate) struct ProxyStats {
    pub(crate) shared: Arc<Shared>,
    digests: Mutex<DigestTotals>,
    /// Digests that are being saved, until that has succeeded.
    saving: Mutex<Option<DigestTotals>>,
    baselines: Mutex<HashMap<ServerId, Baseline>>,
    pub(super) handed: Mutex<Option<Counts>>,
}

impl ProxyStats {
    /// Of the data plane behind `shared`.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (digests, saving, baselines, handed) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Self { shared, digests, saving, baselines, handed }
    }

    /// The reader's sums by digest.
    pub(super) fn digests(&self) -> MutexGuard<'_, DigestTotals> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sums that left [`Self::digests`] to be saved.
    pub(super) fn saving(&self) -> MutexGuard<'_, Option<DigestTotals>> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the servers' counters were when they were last set to zero.
    pub(super) fn baselines(&self) -> MutexGuard<'_, HashMap<ServerId, Baseline>> {
        self.baselines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the process that takes this one's place has been told, without texts.
    pub(super) fn handed(&self) -> MutexGuard<'_, Option<Counts>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server with this number.
    pub(super) fn server(&self, (hostgroup, index): ServerId) -> Option<Arc<ServerShared>> {
        self.shared.hostgroup(hostgroup).servers().get(index).cloned()
    }

    /// Unix time (s) of a time on the process clock (ms).
    pub(super) fn unix_s(&self, at_ms: u64) -> u64 {
        let age_ms = self.shared.clock.now_ms().saturating_sub(at_ms);
        (crate::workers::clock::unix_us() / 1000).saturating_sub(age_ms) / 1000
    }
}

fn all() -> impl Iterator<Item = &'static Table> {
    show::TABLES.iter().copied().flatten()
}

impl StatsSource for ProxyStats {
    fn tables(&self) -> Vec<&'static StatsTable> {
        all().map(|table| &table.table).collect()
    }

    fn rows(&self, table: &'static StatsTable, reading: Reading) -> Vec<Vec<Value>> {
        let found = all().find(|t| t.table.name == table.name && t.table.schema == table.schema);
        found.map(|t| (t.rows)(self, reading)).unwrap_or_default()
    }

    fn metrics(&self) -> Vec<Metric> {
        show::metrics(self)
    }
}
