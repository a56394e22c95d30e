//! After a statement: what must be read before the backend is lent on, then giving it back; cleaning up after a
//! session that ended.

use super::Session;
use super::end::End;
use super::facts::Diagnostics;
use super::guard::guarded;
use super::sync::is_about_diagnostics;
use crate::backend::{Backend, Tracking, put_query};
use crate::connect;
use crate::lane::Lane;
use crate::pins::{PinReason, PinSet};
use crate::pool::HostgroupPool;
use crate::reframe::ReplyFacts;
use crate::shared::Slot;
use crate::state::State;
use crate::worker::Worker;
use sql::{Analysis, Facts, Kind};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use wire::charset::Flavor;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};
use wire::reply::ReplyKind;

/// Why a backend could not be reset.
#[derive(Debug, PartialEq, Eq)]
pub enum ResetError {
    /// The server cannot, or what is asked needs a new login.
    Unsupported,
    /// The connection failed, or the server refused.
    Failed,
}

/// What is to be read from a backend before it is lent on.
#[derive(Clone, Copy, Default)]
struct Unread {
    warnings: bool,
    last_insert_id: bool,
    /// The insert id in the reply, 0 for none.
    reply_id: u64,
}

impl Session {
    /// Ends a statement: reads what the session must know, gives the backend back when no pin holds.
    /// `certain` answers whether the statement's text proves that an insert id was generated.
    pub(super) async fn settle(
        &mut self,
        analysis: &Analysis,
        reply: &ReplyFacts,
        certain: impl Fn(&Self, u64) -> bool,
    ) -> Result<(), End> {
        let unread = self.remember(analysis, reply, certain);
        if !self.multiplexes && self.backend.is_some() {
            let now = self.now_ms();
            self.pins.begin(PinReason::MultiplexingOff, now, analysis.digest);
        }
        if !self.pins.set().is_empty() {
            return Ok(());
        }
        if self.backend.as_ref().is_some_and(|b| b.core.tracking == Tracking::Clients) {
            self.restore_tracking().await;
        }
        if (unread.warnings || unread.last_insert_id) && self.read_unread(unread).await.is_err() {
            // The connection failed after the answer: nothing is lost but the warnings.
            self.backend = None;
            return Ok(());
        }
        let delay_ms = self.worker.snapshot.vars.connection_delay_multiplex_ms;
        if delay_ms > 0 && self.pins.set().is_empty() {
            self.entry.hold_backend_until(self.now_ms() + delay_ms);
        } else {
            self.give_back();
        }
        Ok(())
    }

    /// Gives an unpinned backend back to the pool.
    pub(super) fn give_back(&mut self) {
        if self.pins.set().is_empty()
            && let Some(backend) = self.backend.take()
        {
            self.pool.release_to(&self.worker, &self.lane, backend);
        }
    }

    /// Notes the facts of a reply that later statements may ask for.
    fn remember(&mut self, analysis: &Analysis, reply: &ReplyFacts, certain: impl Fn(&Self, u64) -> bool) -> Unread {
        let mut unread = Unread { reply_id: reply.last_insert_id, ..Unread::default() };
        let failed = reply.error.is_some();
        let kept = std::mem::take(&mut self.facts.keeps_warnings) && !failed && reply.warnings == 0;
        if !is_about_diagnostics(analysis) && !kept {
            self.facts.warnings = if failed { 1 } else { reply.warnings };
            self.facts.errors = u16::from(failed);
            self.facts.diagnostics = None;
            unread.warnings = failed || reply.warnings > 0;
            if let Some(backend) = self.backend.as_mut() {
                // MariaDB forgets old warnings only when a statement reads a table.
                let sticky = backend.core.info.flavor == Flavor::MariaDb && backend.core.has_warnings;
                backend.core.has_warnings = unread.warnings || sticky;
            }
        }
        match (reply.error, reply.rows) {
            (Some(_), _) => self.facts.row_count = -1,
            (None, Some(rows)) => {
                self.facts.row_count = -1;
                if !is_about_diagnostics(analysis) {
                    self.facts.found_rows = rows;
                }
            }
            (None, None) => self.facts.row_count = i64::try_from(reply.affected_rows).unwrap_or(i64::MAX),
        }
        unread.last_insert_id = self.remember_insert_id(analysis, reply, certain);
        unread
    }

    /// MariaDB keeps the warnings of an earlier statement as long as statements read no table.
    pub(super) fn leaves_warnings(&self, analysis: &Analysis, sql: &[u8]) -> bool {
        let mariadb = self.worker.shared.info.get().is_some_and(|i| i.flavor == Flavor::MariaDb);
        let tableless = matches!(
            analysis.kind,
            Kind::Set | Kind::Commit | Kind::Begin | Kind::Rollback | Kind::Do | Kind::Use | Kind::UnlockTables | Kind::Select
        );
        let reads_table = || sql.to_ascii_lowercase().windows(5).any(|w| w == b"from ");
        mariadb && tableless && self.facts.diagnostics.is_some() && !reads_table()
    }

    /// Notes LAST_INSERT_ID(); true when it must be asked for because the reply does not prove it.
    fn remember_insert_id(&mut self, analysis: &Analysis, reply: &ReplyFacts, certain: impl Fn(&Self, u64) -> bool) -> bool {
        let stored_code =
            analysis.kind == Kind::Call || analysis.facts.intersects(Facts::LAST_INSERT_ID_SET | Facts::MULTI | Facts::UNKNOWN_FUNCTION);
        let inserts = matches!(analysis.kind, Kind::Insert | Kind::Replace | Kind::LoadData | Kind::Compound | Kind::Execute);
        let id = reply.last_insert_id;
        if !self.pins.set().is_empty() {
            // The backend keeps the truth while the session keeps the backend; it is asked when the pin ends.
            if id != 0 || stored_code || inserts {
                self.facts.insert_id_with_backend = true;
            }
            return false;
        }
        if std::mem::take(&mut self.facts.insert_id_with_backend) || stored_code {
            return true;
        }
        if id == 0 {
            return inserts && reply.error.is_some();
        }
        if !inserts || !certain(self, id) {
            return true;
        }
        self.facts.last_insert_id = id;
        if let Some(backend) = self.backend.as_mut() {
            backend.core.last_insert_id = Some(id);
        }
        false
    }

    /// Reads warnings and LAST_INSERT_ID() in one round trip; the client has its answer already.
    async fn read_unread(&mut self, unread: Unread) -> io::Result<()> {
        let Some(backend) = self.backend.as_mut() else { return Ok(()) };
        let pool = &self.worker.buffers;
        let mut out = Vec::with_capacity(64);
        if unread.warnings {
            put_query(&mut out, b"SHOW WARNINGS", backend.core.caps);
        }
        if unread.last_insert_id {
            put_query(&mut out, b"SELECT LAST_INSERT_ID()", backend.core.caps);
        }
        backend.link.start_command();
        guarded(&self.worker, &self.entry, backend.link.write_all(&out)).await?;
        let mut status = backend.core.status;
        if unread.warnings {
            let reply = guarded(&self.worker, &self.entry, backend.collect(ReplyKind::Results, true, pool)).await?;
            let errors = reply.rows.iter().filter(|row| row.get(1..6) == Some(b"Error")).count();
            self.facts.errors = u16::try_from(errors).unwrap_or(u16::MAX);
            self.facts.warnings = u16::try_from(reply.rows.len()).unwrap_or(u16::MAX).max(self.facts.warnings);
            status = reply.ok.status;
            let diagnostics = Diagnostics { packets: reply.raw, caps: backend.core.caps };
            self.facts.diagnostics = Some(Box::new(diagnostics));
        }
        if unread.last_insert_id {
            let reply = guarded(&self.worker, &self.entry, backend.collect(ReplyKind::Results, false, pool)).await?;
            status = reply.ok.status;
            let row = reply.rows.first().map(Vec::as_slice).unwrap_or_default();
            if let Some(id) = wire::codec::Reader::new(row).lenenc_bytes().ok().and_then(|t| std::str::from_utf8(t).ok()?.parse().ok()) {
                // What the backend had before is another session's: the statement left it alone, unless the
                // reply says that it is its own.
                let own = id == unread.reply_id || backend.core.last_insert_id != Some(id);
                if own {
                    self.facts.last_insert_id = id;
                }
                backend.core.last_insert_id = Some(id);
            }
        }
        // An error does not say whether it left a transaction open (autocommit=0); these replies do.
        self.status = (self.status & !(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY))
            | (status & (StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY));
        if status.contains(StatusFlags::IN_TRANS) {
            let now = self.now_ms();
            self.pins.begin(PinReason::Transaction, now, 0);
        }
        Ok(())
    }

    async fn restore_tracking(&mut self) {
        let Some(backend) = self.backend.as_mut() else { return };
        let Ok(set) = guarded(&self.worker, &self.entry, connect::our_tracking(&self.worker, backend)).await else {
            self.backend = None;
            return;
        };
        match guarded(&self.worker, &self.entry, backend.query(&set, &self.worker.buffers)).await {
            Ok(reply) if reply.error.is_none() => backend.core.tracking = Tracking::Ours,
            _ => self.backend = None,
        }
    }
}

/// Makes a backend as good as new, without a new login. The schema stays, character sets are unknown after.
pub async fn reset(worker: &Worker, backend: &mut Backend, change_user: bool) -> Result<(), ResetError> {
    // Servers have COM_RESET_CONNECTION since about when they have session tracking (MySQL 5.7, MariaDB 10.2).
    if change_user || !backend.core.caps.contains(Capabilities::SESSION_TRACK) {
        return Err(ResetError::Unsupported);
    }
    let limit = Duration::from_millis(worker.snapshot.vars.connect_timeout_server);
    let work = async {
        backend.send(Command::ResetConnection, &[]).await.map_err(|_| ResetError::Failed)?;
        let reply = backend.collect(ReplyKind::Simple, false, &worker.buffers).await.map_err(|_| ResetError::Failed)?;
        if reply.error.is_some() {
            return Err(ResetError::Unsupported);
        }
        let core = &mut backend.core;
        core.state = State { schema: core.state.schema.take(), ..State::default() };
        for name in ["character_set_client", "character_set_connection", "character_set_results", "collation_connection"] {
            core.state.variables.set(name, Some(b"?"));
        }
        core.statements.clear();
        core.last_insert_id = Some(0);
        core.has_warnings = false;
        connect::prepare(worker, backend).await.map_err(|_| ResetError::Failed)
    };
    tokio::time::timeout(limit, work).await.unwrap_or(Err(ResetError::Failed))
}

/// The session is gone and left a backend with state on it: end what runs, roll back, give back or close.
pub async fn abandon(worker: Rc<Worker>, pool: Rc<HostgroupPool>, mut backend: Backend, pins: PinSet, running: bool) {
    if running && worker.snapshot.vars.kill_backend_connection_when_disconnect {
        return end_connection(worker, pool, backend).await;
    }
    if running || pins.contains(PinReason::Replication) {
        return drop(backend);
    }
    if reset(&worker, &mut backend, false).await.is_ok() {
        pool.release(&worker, backend);
    }
}

/// Closes a connection whose statement still runs, and tells the server to end it: a server notices a closed socket only
/// when it writes. The connection counts until the server has been told.
async fn end_connection(worker: Rc<Worker>, pool: Rc<HostgroupPool>, backend: Backend) {
    let lane = pool.lane(&backend.core.lane);
    let sql = format!("KILL {}", backend.core.thread_id);
    let index = backend.core.server.index;
    let Backend { link, core, .. } = backend;
    drop(link);
    send_kill(&worker, &pool, &lane, index, &sql).await;
    drop(core);
    pool.grow(&worker);
}

/// Ends the statement that runs on `backend`, from another connection, in the background.
pub fn kill_statement(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, backend: &Backend) {
    let (worker, pool) = (Rc::clone(worker), Rc::clone(pool));
    let lane = pool.lane(&backend.core.lane);
    let sql = format!("KILL QUERY {}", backend.core.thread_id);
    let index = backend.core.server.index;
    tokio::task::spawn_local(async move { send_kill(&worker, &pool, &lane, index, &sql).await });
}

/// How long a KILL may take, connection included.
const KILL_WAIT: Duration = Duration::from_secs(5);

async fn send_kill(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, lane: &Rc<Lane>, server: usize, sql: &str) {
    match tokio::time::timeout(KILL_WAIT, try_kill(worker, pool, lane, server, sql)).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => tracing::warn!("{sql} was not done: {why}"),
        Err(_) => tracing::warn!("{sql} was not done within {} s", KILL_WAIT.as_secs()),
    }
}

/// On an idle connection if there is one; else on one more than `max_connections` allows, of which each server has at
/// most one at a time.
async fn try_kill(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, lane: &Rc<Lane>, server: usize, sql: &str) -> Result<(), String> {
    if let Some(mut backend) = lane.take(server, &State::default()) {
        kill_on(worker, &mut backend, sql).await?;
        pool.release(worker, backend);
        return Ok(());
    }
    let Some(shared) = pool.shared.servers.get(server) else { return Err("the server is gone".into()) };
    let _turn = shared.kills.acquire().await.map_err(|e| e.to_string())?;
    let mut backend = connect::open(worker, shared, &lane.key, 0, Slot::extra()).await.map_err(|e| format!("{e:?}"))?;
    kill_on(worker, &mut backend, sql).await
}

async fn kill_on(worker: &Worker, backend: &mut Backend, sql: &str) -> Result<(), String> {
    let reply = backend.query(sql, &worker.buffers).await.map_err(|e| e.to_string())?;
    // 1094: it ended by itself.
    let failed = reply.error.filter(|e| e.code != 1094);
    backend.core.has_warnings |= failed.is_some();
    failed.map_or(Ok(()), |e| Err(e.to_string()))
}
