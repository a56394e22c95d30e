//! Replicas, and clients that read the binlog, which replicate through the proxy.

use super::{Rows, Table};
use crate::clients::processlist::HeldConnection;
use crate::clients::replica::Replica;
use crate::servers::positions::Position;
use crate::stats::{ProxyStats, collect};
use model::stats::{Reading, StatsSchema, StatsTable, Value, stat, stat_null};
use std::net::SocketAddr;

/// See the module.
pub(super) const TABLES: &[Table] = &[STREAMS, POSITIONS];

const STREAMS: Table = Table {
    table: StatsTable {
        schema: StatsSchema::Stats,
        name: "stats_tidegate_replicas",
        columns: &[
            stat("session", "INTEGER"),
            stat("server_id", "INTEGER"),
            stat_null("server_uuid", "VARCHAR"),
            stat("user", "VARCHAR"),
            stat("client", "VARCHAR"),
            stat_null("hostgroup", "INT"),
            stat_null("server", "VARCHAR"),
            stat("asked_from", "VARCHAR"),
            stat("bytes", "INTEGER"),
            stat("since_ms", "INTEGER"),
        ],
        primary_key: &["session"],
        has_reset: false,
        help: "Replicas that replicate through the proxy, with their server, start position and bytes",
    },
    rows: replicas,
};

const POSITIONS: Table = Table {
    table: StatsTable {
        schema: StatsSchema::Stats,
        name: "stats_tidegate_positions",
        columns: &[
            stat("user", "VARCHAR"),
            stat("server_id", "INTEGER"),
            stat("server", "VARCHAR"),
            stat("identity", "VARCHAR"),
            stat("asked_from", "VARCHAR"),
            stat("since_ms", "INTEGER"),
            stat("refused", "INTEGER"),
        ],
        primary_key: &["user", "server_id"],
        has_reset: false,
        help: "Replicas that use file and position: the last server they read, its identity, and refusals by other servers since",
    },
    rows: positions,
};

fn positions(stats: &ProxyStats, _: Reading) -> Rows {
    let now_ms = stats.shared.clock.now_ms();
    let row = |Position { user, server_id, server, identity, from, since_ms, refused }: Position| {
        let since_ms = now_ms.saturating_sub(since_ms);
        vec![(*user).into(), server_id.into(), (*server).into(), (*identity).into(), (*from).into(), since_ms.into(), refused.into()]
    };
    stats.shared.positions.all().into_iter().map(row).collect()
}

fn replicas(stats: &ProxyStats, _: Reading) -> Rows {
    type Found = (u64, String, Option<SocketAddr>, Option<HeldConnection>, Replica);
    let mut found: Vec<Found> = collect::sessions(&stats.shared, |_, handle| {
        let replica = handle.replica()?;
        let user = handle.user.borrow().as_ref().map(|user| user.name.to_string()).unwrap_or_default();
        Some((handle.id, user, handle.row.client.get(), handle.row.held.get(), replica))
    });
    found.sort_unstable_by_key(|(session, ..)| *session);
    let now_ms = stats.shared.clock.now_ms();
    let row = |(session, user, client, held, replica): Found| {
        let server = held.and_then(|held| stats.server(held.server));
        vec![
            session.into(),
            replica.server_id.into(),
            replica.uuid.as_deref().map_or(Value::Null, Value::from),
            user.as_str().into(),
            crate::logs::event::client_name(client).into(),
            server.as_ref().map(|server| server.key.hostgroup.0).into(),
            server.as_ref().map(|server| format!("{}:{}", server.key.host, server.key.port)).into(),
            (*replica.from).into(),
            replica.bytes.into(),
            now_ms.saturating_sub(replica.since_ms).into(),
        ]
    };
    found.into_iter().map(row).collect()
}
