//! The probes, one for each kind of check.
//!
//! A probe asks over an open connection and reads the answer; `topology` draws the conclusions. Every probe only reads, as a user without
//! other privileges. If a privilege is missing, the error names it.

mod aurora;
mod buffer_pool;
mod galera;
mod group;
mod gtids;
mod lag;
mod rds;
mod read_only;
#[cfg(test)]
mod real_tests;

use std::sync::Arc;
use std::time::Instant;

use model::ServerAddr;
use model::snapshot::Snapshot;
use topology::{CheckKind, GaleraView, GtidSet, Lag, Observation, ProbeError, RdsView, SourcesView};

use crate::client::{Connection, Fault};
use crate::clock::whole;

pub(crate) use aurora::AuroraRow;
pub(crate) use group::{Group, look as group, view as group_view};
pub(crate) use lag::{channels, name as channel_name, receiving, replicates, source as channel_source};
pub(crate) use read_only::is_read_only;

/// The settings that all probes share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ProbeSettings {
    /// `monitor_replication_lag_use_percona_heartbeat`: `schema.table`, or empty.
    pub(crate) heartbeat_table: Arc<str>,
    /// `monitor_replication_channel`: the channel whose lag counts, or empty.
    pub(crate) channel: Arc<str>,
    /// `mysql_replication_channels`: channels that bring other clusters' writes to a cluster of the server.
    pub(crate) foreign: Arc<[Arc<str>]>,
    /// The servers of the cluster that the server replicates in.
    pub(crate) peers: Peers,
}

/// Servers of one cluster.
pub(crate) type Peers = Arc<[ServerAddr]>;

impl ProbeSettings {
    /// What is the same for all servers.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let vars = &snapshot.vars;
        Self {
            heartbeat_table: vars.monitor_replication_lag_use_percona_heartbeat.as_str().into(),
            channel: vars.monitor_replication_channel.as_str().into(),
            ..Self::default()
        }
    }

    fn is_peer(&self, addr: &ServerAddr) -> bool {
        self.peers.iter().any(|peer| peer.is_same(addr))
    }
}

/// The result of a probe, with the values that only logs show.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Found {
    /// A login succeeded.
    Connect,
    /// The round trip, us.
    Ping(u64),
    /// The value that the row's kind of check reads.
    ReadOnly(bool),
    /// See [`Lag`].
    Lag(Lag),
    /// The executed GTIDs, and the server's own text of them.
    Gtids(GtidSet, String),
    /// A node's state.
    Galera(GaleraView),
    /// A member's state and view.
    Group(Group),
    /// The topology table, all rows.
    Aurora(Vec<AuroraRow>),
    /// Whether the buffer pool is loaded; uptime, s.
    BufferPool(bool, u64),
    /// The servers that it replicates from, and its own id.
    Sources(SourcesView),
    /// The cluster's members.
    Rds(RdsView),
}

/// Looks once. A check of kind Connect is over when the connection is there.
pub(crate) async fn look(kind: CheckKind, connection: &mut Connection, settings: &ProbeSettings) -> Result<Found, Fault> {
    match kind {
        CheckKind::Connect => Ok(Found::Connect),
        CheckKind::Ping => ping(connection).await.map(Found::Ping),
        CheckKind::ReadOnly(check) => read_only::look(connection, check).await.map(Found::ReadOnly),
        CheckKind::Lag => lag::look(connection, settings).await.map(Found::Lag),
        CheckKind::Gtids => gtids::look(connection).await.map(|(set, text)| Found::Gtids(set, text)),
        CheckKind::Galera => galera::look(connection).await.map(Found::Galera),
        CheckKind::Group => group::look(connection).await.map(Found::Group),
        CheckKind::Aurora => aurora::look(connection).await.map(Found::Aurora),
        CheckKind::BufferPool => buffer_pool::look(connection).await.map(|(is_loaded, uptime_s)| Found::BufferPool(is_loaded, uptime_s)),
        CheckKind::Sources => lag::sources(connection, settings).await.map(Found::Sources),
        CheckKind::RdsTopology => rds::look(connection).await.map(Found::Rds),
    }
}

async fn ping(connection: &mut Connection) -> Result<u64, Fault> {
    let start = Instant::now();
    connection.ping().await?;
    Ok(whole(start.elapsed().as_micros()))
}

/// A check's outcome as `topology` takes it; None where it takes no interest.
pub(crate) fn seen(
    kind: CheckKind,
    outcome: &Result<Found, ProbeError>,
    translate: impl FnOnce(&Group) -> topology::GroupView,
) -> Option<Observation> {
    let error = || outcome.as_ref().err().cloned().unwrap_or_else(|| ProbeError::Failed("a reply to another query".into()));
    let seen = match (kind, outcome) {
        (CheckKind::Connect, _) => return None,
        (_, Ok(Found::Ping(us))) => Observation::Ping(Ok(*us)),
        (_, Ok(Found::ReadOnly(is_set))) => Observation::ReadOnly(Ok(*is_set)),
        (_, Ok(Found::Lag(lag))) => Observation::Lag(Ok(*lag)),
        (_, Ok(Found::Gtids(set, _))) => Observation::Gtids(Ok(set.clone())),
        (_, Ok(Found::Galera(view))) => Observation::Galera(Ok(view.clone())),
        (_, Ok(Found::Group(group))) => Observation::Group(Ok(translate(group))),
        (_, Ok(Found::Aurora(rows))) => Observation::Aurora(Ok(aurora::view(rows))),
        (_, Ok(Found::BufferPool(is_loaded, uptime_s))) => Observation::BufferPool(Ok((*is_loaded, *uptime_s))),
        (_, Ok(Found::Sources(sources))) => Observation::Sources(Ok(sources.clone())),
        (_, Ok(Found::Rds(view))) => Observation::Rds(Ok(view.clone())),
        (CheckKind::Ping, _) => Observation::Ping(Err(error())),
        (CheckKind::ReadOnly(_), _) => Observation::ReadOnly(Err(error())),
        (CheckKind::Lag, _) => Observation::Lag(Err(error())),
        (CheckKind::Gtids, _) => Observation::Gtids(Err(error())),
        (CheckKind::Galera, _) => Observation::Galera(Err(error())),
        (CheckKind::Group, _) => Observation::Group(Err(error())),
        (CheckKind::Aurora, _) => Observation::Aurora(Err(error())),
        (CheckKind::BufferPool, _) => Observation::BufferPool(Err(error())),
        (CheckKind::Sources, _) => Observation::Sources(Err(error())),
        (CheckKind::RdsTopology, _) => Observation::Rds(Err(error())),
    };
    Some(seen)
}
