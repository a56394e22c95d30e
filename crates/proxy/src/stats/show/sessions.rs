//! Tables about clients: sessions, users, addresses that fail to log in.

use super::{Rows, Table, text};
use crate::clients::processlist::HeldConnection;
use crate::clients::session_handle::{Activity, SessionHandle};
use crate::stats::{ProxyStats, collect};
use crate::workers::worker::Worker;
use meter::digest::{Digest, shown};
use model::HostgroupId;
use model::stats::{Reading, StatsSchema, StatsTable, Value, stat, stat_null};
use serde_json::json;
use session_state::pins::PinSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::command::Command;

/// See the module.
pub(super) const TABLES: &[Table] = &[
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_processlist",
            columns: &[
                stat("ThreadID", "INT"),
                stat("SessionID", "INTEGER"),
                stat_null("user", "VARCHAR"),
                stat_null("db", "VARCHAR"),
                stat_null("cli_host", "VARCHAR"),
                stat_null("cli_port", "INT"),
                stat_null("hostgroup", "INT"),
                stat_null("l_srv_host", "VARCHAR"),
                stat_null("l_srv_port", "INT"),
                stat_null("srv_host", "VARCHAR"),
                stat_null("srv_port", "INT"),
                stat_null("command", "VARCHAR"),
                stat("time_ms", "INT"),
                stat_null("info", "VARCHAR"),
                stat_null("status_flags", "INT"),
                stat_null("extended_info", "VARCHAR"),
                stat_null("pins", "VARCHAR"),
                stat_null("last_digest", "VARCHAR"),
                stat_null("last_digest_text", "VARCHAR"),
            ],
            primary_key: &["SessionID"],
            has_reset: false,
            help: "Sessions; info: first mysql-processlist_max_query_length bytes of the running statement; pins: why the connection is \
                   kept; last_digest: the last statement that ended",
        },
        rows: processlist,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_users",
            columns: &[stat("username", "VARCHAR"), stat("frontend_connections", "INT"), stat("frontend_max_connections", "INT")],
            primary_key: &["username"],
            has_reset: false,
            help: "Users with their client connections",
        },
        rows: users,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_client_host_cache",
            columns: &[stat("client_address", "VARCHAR"), stat("error_count", "INT"), stat("last_updated", "BIGINT")],
            primary_key: &[],
            has_reset: true,
            help: "Addresses with failed logins since their last successful login; last_updated is Unix time",
        },
        rows: client_hosts,
    },
];

/// One session.
struct ListedSession {
    worker: usize,
    id: u64,
    user: Option<String>,
    schema: Option<String>,
    client: Option<SocketAddr>,
    proxy: Option<SocketAddr>,
    held: Option<HeldConnection>,
    waits_for: Option<HostgroupId>,
    command: &'static str,
    age_ms: u64,
    info: Option<String>,
    status: u16,
    is_tls: bool,
    in_transaction: bool,
    pins: PinSet,
    connected_at_ms: u64,
    digest: Option<Arc<Digest>>,
}

impl ListedSession {
    fn of(worker: &Worker, handle: &SessionHandle, now_ms: u64) -> Self {
        let (activity, since_ms) = handle.activity();
        let view = &handle.row;
        let limit = usize::try_from(worker.snapshot().vars.processlist_max_query_length).unwrap_or(usize::MAX);
        let busy = matches!(activity, Activity::Running | Activity::Delayed | Activity::Waiting);
        Self {
            worker: worker.index,
            id: handle.id,
            user: handle.user.borrow().as_ref().map(|user| user.name.to_string()),
            schema: view.schema.borrow().as_deref().map(|schema| String::from_utf8_lossy(schema).into_owned()),
            client: view.client.get(),
            proxy: view.proxy.get(),
            held: view.held.get().filter(|_| handle.waits_for().is_none()),
            waits_for: handle.waits_for(),
            command: command(activity, view.command.get(), view.passes_through.get()),
            age_ms: now_ms.saturating_sub(since_ms),
            info: busy.then(|| view.info(limit)).filter(|info| !info.is_empty()),
            status: view.status.get(),
            is_tls: view.is_tls.get(),
            in_transaction: handle.is_in_transaction(),
            pins: handle.all_pins(),
            connected_at_ms: view.connected_at_ms.get(),
            digest: worker.meter.known_digest(view.digest.get()),
        }
    }

    fn pins(&self) -> Vec<&'static str> {
        self.pins.iter().map(|pin| pin.name()).collect()
    }

    fn extended(&self) -> serde_json::Value {
        let pins = self.pins();
        json!({
            "session_id": self.id,
            "worker": self.worker,
            "client": self.client.map(|a| a.to_string()),
            "proxy": self.proxy.map(|a| a.to_string()),
            "connected_at_ms": self.connected_at_ms,
            "tls": self.is_tls,
            "in_transaction": self.in_transaction,
            "pins": pins,
            "backend_thread_id": self.held.map(|held| held.thread_id),
        })
    }
}

/// ProxySQL's word for what a session does.
fn command(activity: Activity, command: u8, passes_through: bool) -> &'static str {
    match activity {
        Activity::Login => "Connecting client",
        _ if passes_through => "Fast forward",
        Activity::Idle | Activity::Parked => "Sleep",
        Activity::Waiting => "Connect",
        Activity::Delayed => "Delay",
        Activity::Running => match Command::from_u8(command) {
            Some(Command::StmtExecute | Command::StmtBulkExecute | Command::StmtFetch) => "Execute",
            Some(Command::StmtPrepare) => "Prepare",
            Some(Command::InitDb) => "InitDB",
            Some(Command::ChangeUser) => "Change user client",
            Some(Command::ResetConnection) => "Resetting connection",
            _ => "Query",
        },
    }
}

fn processlist(stats: &ProxyStats, _: Reading) -> Rows {
    let extended = stats.shared.in_force.load().snapshot.vars.show_processlist_extended;
    let now_ms = stats.shared.clock.now_ms();
    let mut listed = collect::sessions(&stats.shared, move |worker, handle| Some(ListedSession::of(worker, handle, now_ms)));
    listed.sort_unstable_by_key(|session| session.id);
    listed.into_iter().map(|session| row(stats, session, extended)).collect()
}

fn row(stats: &ProxyStats, session: ListedSession, extended: u64) -> Vec<Value> {
    let info = match extended {
        0 => Value::Null,
        1 => session.extended().to_string().into(),
        _ => format!("{:#}", session.extended()).into(),
    };
    let host = |address: Option<SocketAddr>| address.map(|a| a.ip().to_string());
    let port = |address: Option<SocketAddr>| address.map(|a| a.port());
    let server = session.held.and_then(|held| stats.server(held.server)).map(|server| server.key.clone());
    let local = session.held.and_then(|held| held.local);
    let pins = session.pins().join(", ");
    vec![
        (session.worker as u64).into(),
        session.id.into(),
        session.user.unwrap_or_else(|| "unauthenticated user".to_owned()).into(),
        session.schema.into(),
        host(session.client).unwrap_or_else(|| "localhost".to_owned()).into(),
        port(session.client).into(),
        server.as_ref().map(|key| key.hostgroup).or(session.waits_for).map_or(Value::Integer(-1), |hostgroup| hostgroup.0.into()),
        host(local).into(),
        port(local).into(),
        server.as_ref().map(|key| key.host.to_string()).into(),
        server.as_ref().map(|key| key.port).into(),
        session.command.into(),
        session.age_ms.into(),
        session.info.into(),
        u32::from(session.status).into(),
        info,
        Some(pins).filter(|pins| !pins.is_empty()).into(),
        session.digest.as_ref().map(|digest| shown(digest.hash)).into(),
        session.digest.as_ref().map_or(Value::Null, |digest| text(&digest.text)),
    ]
}

fn users(stats: &ProxyStats, _: Reading) -> Rows {
    let in_force = stats.shared.in_force.load_full();
    let mut rows = Rows::new();
    for (name, user) in &in_force.snapshot.users {
        let connections = stats.shared.user(name).connections.load(Ordering::Acquire);
        rows.push(vec![(**name).into(), connections.into(), user.max_connections.into()]);
    }
    rows
}

fn client_hosts(stats: &ProxyStats, reading: Reading) -> Rows {
    let hosts = stats.shared.hosts.rows();
    if reading == Reading::Reset {
        stats.shared.hosts.clear();
    }
    let row = |(host, known): (std::net::IpAddr, crate::limits::host_cache::HostErrors)| {
        vec![host.to_string().into(), known.errors.into(), stats.unix_s(known.updated_ms).into()]
    };
    hosts.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_do_what_proxysql_calls_it() {
        let cases = [
            (Activity::Login, 0, false, "Connecting client"),
            (Activity::Parked, 3, false, "Sleep"),
            (Activity::Waiting, 3, false, "Connect"),
            (Activity::Delayed, 3, false, "Delay"),
            (Activity::Running, 3, false, "Query"),
            (Activity::Running, 0x17, false, "Execute"),
            (Activity::Running, 0x16, false, "Prepare"),
            (Activity::Running, 2, false, "InitDB"),
            (Activity::Idle, 0, true, "Fast forward"),
        ];
        for (activity, byte, passes, word) in cases {
            assert_eq!(command(activity, byte, passes), word);
        }
    }
}
