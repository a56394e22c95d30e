//! A connection that somebody has used becomes as good as new for somebody else, or is closed.

use crate::backends::backend::Backend;
use crate::backends::connect;
use crate::backends::side_connection::{KilledBy, Loss, end_connection, end_lost_connection};
use crate::hostgroups::pool::HostgroupPool;
use crate::workers::safety::Safety;
use crate::workers::worker::Worker;
use session_state::pins::{PinReason, PinSet, WISHES};
use std::rc::Rc;
use std::time::Duration;
use wire::charset::Flavor;
use wire::command::Command;
use wire::flags::Capabilities;
use wire::reply::ReplyKind;

/// Why a backend could not be reset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResetError {
    /// The server cannot, or what is asked needs a new login.
    Unsupported,
    /// The connection failed, or the server refused.
    Failed,
}

/// Makes a backend as good as new, without a new connection. The schema stays, unless `change_user`.
pub(crate) async fn reset(worker: &Worker, backend: &mut Backend, change_user: bool) -> Result<(), ResetError> {
    let core = &backend.core;
    // MariaDB forgets what only the handshake gives: IGNORE_SPACE in sql_mode, the wait_timeout of an interactive client.
    let of_the_handshake = core.caps.intersects(Capabilities::IGNORE_SPACE | Capabilities::INTERACTIVE);
    if core.has_assigned_gtid || of_the_handshake && core.info.flavor == Flavor::MariaDb {
        return Err(ResetError::Unsupported);
    }
    // Servers have COM_RESET_CONNECTION since about when they track sessions (MySQL 5.7, MariaDB 10.2), and COM_CHANGE_USER leaves
    // `timestamp`, `insert_id` and LAST_INSERT_ID() on those before.
    if !core.held.tracks() || change_user && !core.server.info.takes_change_user() {
        return Err(ResetError::Unsupported);
    }
    let limit = Duration::from_millis(worker.snapshot().vars.connect_timeout_server);
    let work = async {
        if change_user {
            return connect::log_in_again(worker, backend).await.map_err(|e| {
                tracing::warn!("COM_CHANGE_USER failed on {}, the proxy opens a new connection instead: {e}", backend.core.server.key);
                ResetError::Failed
            });
        }
        backend.send(Command::ResetConnection, &[]).await.map_err(|_| ResetError::Failed)?;
        let reply = backend.collect(ReplyKind::Simple, false, &worker.buffers).await.map_err(|_| ResetError::Failed)?;
        if reply.error.is_some() {
            return Err(ResetError::Unsupported);
        }
        backend.core.held.was_reset();
        backend.core.statements.clear();
        connect::prepare_again(worker, backend).await.map_err(|_| ResetError::Failed)
    };
    tokio::time::timeout(limit, work).await.unwrap_or(Err(ResetError::Failed))
}

/// Whether a backend with these pins is closed rather than reset: what passes through is unknown, a role outlives a reset (and on
/// MariaDB even COM_CHANGE_USER), and MariaDB loses a prepared XA transaction with a reset, though not with a connection.
pub(crate) fn outlives_reset(backend: &Backend, pins: PinSet) -> bool {
    let lasting = [PinReason::Replication, PinReason::ReplicationGtid, PinReason::Role, PinReason::Xa];
    backend.core.held.outlives_reset() || lasting.into_iter().any(|reason| pins.contains(reason))
}

/// The session is gone and left a backend with state on it: end what runs, roll back, give back or close.
pub(crate) async fn abandon(worker: Rc<Worker>, pool: Rc<HostgroupPool>, backend: Backend, pins: PinSet, running: bool) {
    if running && worker.snapshot().vars.kill_backend_connection_when_disconnect {
        return end_connection(worker, pool, backend, KilledBy::Proxy).await;
    }
    if !running && backend.is_owed() && !backend.core.server.is_severed() {
        return end_lost_connection(worker, pool, backend, Loss::Closed).await;
    }
    if running || outlives_reset(&backend, pins) || backend.core.has_assigned_gtid {
        return drop(backend);
    }
    if Safety::ResetOnRelease.is_off() {
        return pool.release(&worker, backend);
    }
    if let Some(backend) = cleaned(&worker, &pool, backend, pins).await {
        pool.release(&worker, backend);
    }
}

/// As [`abandon`], for a session that was killed: what runs ends, whatever it waits for.
pub(crate) async fn abandon_killed(worker: Rc<Worker>, pool: Rc<HostgroupPool>, backend: Backend, pins: PinSet) {
    if worker.snapshot().vars.kill_backend_connection_when_disconnect {
        return end_connection(worker, pool, backend, KilledBy::Client).await;
    }
    abandon(worker, pool, backend, pins, true).await;
}

/// A backend that had these pins, reset. None: it is closed. If its connection failed, what its server keeps open there is ended in
/// the background.
pub(crate) async fn cleaned(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, mut backend: Backend, pins: PinSet) -> Option<Backend> {
    match reset(worker, &mut backend, false).await {
        Ok(()) => return Some(backend),
        // It was closed from without, perhaps.
        Err(ResetError::Failed) if (backend.is_owed() || !pins.without(WISHES).is_empty()) && !backend.core.server.is_severed() => {
            tokio::task::spawn_local(end_lost_connection(Rc::clone(worker), Rc::clone(pool), backend, Loss::Closed));
        }
        Err(_) => {}
    }
    None
}

/// Closes these statements on an idle backend, pings it and puts it back, or closes it.
pub(crate) async fn ping(worker: Rc<Worker>, pool: Rc<HostgroupPool>, mut backend: Backend, statements: Vec<u32>) {
    let limit = Duration::from_millis(worker.snapshot().vars.ping_timeout_server);
    let alive = worker.within(limit, async {
        backend.close_statements(&worker.counters, &statements).await?;
        backend.send(Command::Ping, &[]).await?;
        backend.collect(ReplyKind::Simple, false, &worker.buffers).await
    });
    match alive.await {
        Some(Ok(reply)) if reply.error.is_none() => pool.rest(&worker, backend),
        _ => tracing::info!("an idle connection to {} did not answer a ping and was closed", backend.core.server.key),
    }
}
