//! Connections of another process, taken up by this one.

use crate::backends::backend::{Backend, BackendRecord, Home, Numbers};
use crate::net::stream::DetachedSocket;
use crate::workers::worker::Worker;
use model::snapshot::User;
use session_state::class::{Class, LaneKey};
use session_state::server_info::ServerInfo;
use session_state::statement_key::StatementKey;
use std::rc::Rc;
use std::sync::Arc;

/// The connection over this socket, for this user; and under which numbers statements are set apart that were set apart under others.
///
/// # Errors
/// Its server is not in the hostgroup, or the system's words.
pub(super) fn take_up(
    record: BackendRecord,
    worker: &Rc<Worker>,
    user: &Arc<User>,
    socket: DetachedSocket,
) -> Result<(Backend, Numbers), String> {
    let (hostgroup, (host, port)) = (record.hostgroup(), record.server());
    let pool = worker.pool(hostgroup);
    let found = pool.servers().iter().find(|server| *server.key.host == *host && server.key.port == port).cloned();
    let server = found.ok_or_else(|| format!("{host}:{port} is not a server of hostgroup {hostgroup}"))?;
    let home = |class: Class, info: ServerInfo| {
        let lane = LaneKey { hostgroup, user: Arc::clone(user), class };
        let slot = server.take_over(&pool.lane(worker, &lane).quota);
        let info = worker.shared.heard(&server, info);
        Home { lane, server, slot, info }
    };
    let list = |key: &Arc<StatementKey>, shape| worker.meter.list_prepared(&user.name, key, sql::LexMode::default(), shape);
    record.attach(home, list, socket)
}

/// The same for one that may be none, with the next of the sockets.
///
/// # Errors
/// As for [`take_up`], and where there is no socket.
pub(super) fn take_up_any(
    record: Option<BackendRecord>,
    worker: &Rc<Worker>,
    user: &Arc<User>,
    next: &mut impl FnMut() -> Result<DetachedSocket, String>,
    numbers: &mut Numbers,
) -> Result<Option<Backend>, String> {
    let Some(record) = record else { return Ok(None) };
    let (backend, moved) = take_up(record, worker, user, next()?)?;
    numbers.extend(moved);
    Ok(Some(backend))
}
