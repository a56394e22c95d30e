//! A connection to a server on its way to another process.

use super::{Backend, Core, Tracking};
use crate::class::Class;
use crate::connect::ProvenRecord;
use crate::lane::LaneKey;
use crate::link::LinkRecord;
use crate::server::Transport;
use crate::server_info::InfoRecord;
use crate::state::{State, Text, Variables};
use crate::stmt_cache::{Apart, ApartRecord};
use crate::worker::Worker;
use model::HostgroupId;
use model::snapshot::User;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use wire::flags::{Capabilities, StatusFlags};

/// What another process needs to know of a connection, besides its socket. Times are of the process clock, which goes on there.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendRecord {
    hostgroup: HostgroupId,
    host: Arc<str>,
    port: u16,
    class: Capabilities,
    link: LinkRecord,
    info: InfoRecord,
    caps: Capabilities,
    transport: Transport,
    /// It serves nobody new.
    is_astray: bool,
    thread_id: u32,
    state: State,
    defaults: Variables,
    tracking: Tracking,
    tells_gtids: bool,
    must_reset: bool,
    outlives_reset: bool,
    member: Option<Arc<str>>,
    last_insert_id: Option<u64>,
    has_warnings: bool,
    refused_schema: Option<Text>,
    killed: bool,
    status: StatusFlags,
    apart: Vec<(Apart, ApartRecord)>,
    proven: Option<ProvenRecord>,
    opened_ms: u64,
    idle_since_ms: u64,
    worked_ms: u64,
}

/// Numbers of statements that are set apart on servers: those of before, and those of here.
pub type Numbers = HashMap<Apart, Apart>;

/// [`Backend::record`] of one that may be none; its socket follows the others.
pub fn record(backend: Option<&Backend>, sockets: &mut Vec<OwnedFd>) -> Option<Option<BackendRecord>> {
    let Some(backend) = backend else { return Some(None) };
    let (record, socket) = backend.record()?;
    sockets.push(socket);
    Some(Some(record))
}

/// The connection, if there is one, over the next of the sockets, for this user.
///
/// # Errors
/// As for [`BackendRecord::attach`], and where there is no socket.
pub fn attach(
    record: Option<BackendRecord>,
    worker: &Rc<Worker>,
    user: &Arc<User>,
    next: &mut impl FnMut() -> Result<OwnedFd, String>,
    numbers: &mut Numbers,
) -> Result<Option<Backend>, String> {
    let Some(record) = record else { return Ok(None) };
    let (backend, moved) = record.attach(worker, user, next()?)?;
    numbers.extend(moved);
    Ok(Some(backend))
}

impl Backend {
    /// What another process needs to go on with it, and a copy of its socket. Statements that it has prepared for whoever asks are
    /// unknown there: they are closed before. None where it cannot go.
    pub fn record(&self) -> Option<(BackendRecord, OwnedFd)> {
        if !self.is_even() {
            return None;
        }
        let Self { link, input: _, core } = self;
        let Core {
            lane: LaneKey { hostgroup, user: _, class },
            server,
            info,
            caps,
            transport,
            turn: _,
            local: _,
            peer: _,
            thread_id,
            state,
            defaults,
            tracking,
            tells_gtids,
            is_labelled,
            is_owed: _,
            must_reset,
            outlives_reset,
            member,
            last_insert_id,
            has_warnings,
            refused_schema,
            killed,
            kill: _,
            status,
            statements,
            proven,
            opened_ms,
            idle_since_ms,
            worked_ms,
            taken_us: _,
            _slot: _,
        } = &**core;
        if *is_labelled {
            return None;
        }
        let record = BackendRecord {
            hostgroup: *hostgroup,
            host: Arc::clone(&server.key.host),
            port: server.key.port,
            class: class.capabilities(),
            link: link.record()?,
            info: InfoRecord::of(info),
            caps: *caps,
            transport: *transport,
            is_astray: core.is_astray(),
            thread_id: *thread_id,
            state: state.clone(),
            defaults: defaults.clone(),
            tracking: *tracking,
            tells_gtids: *tells_gtids,
            must_reset: *must_reset,
            outlives_reset: *outlives_reset,
            member: member.clone(),
            last_insert_id: *last_insert_id,
            has_warnings: *has_warnings,
            refused_schema: refused_schema.clone(),
            killed: *killed,
            status: *status,
            apart: statements.records(),
            proven: proven.as_ref().map(|proven| proven.record()),
            opened_ms: *opened_ms,
            idle_since_ms: *idle_since_ms,
            worked_ms: *worked_ms,
        };
        Some((record, link.stream().copy().ok()?))
    }
}

impl BackendRecord {
    /// Where it belongs.
    pub fn hostgroup(&self) -> HostgroupId {
        self.hostgroup
    }

    /// The connection over this socket, for this user; and under which numbers statements are set apart that were set apart under
    /// others.
    ///
    /// # Errors
    /// Its server is not in the hostgroup, or the system's words.
    pub fn attach(self, worker: &Rc<Worker>, user: &Arc<User>, socket: OwnedFd) -> Result<(Backend, Numbers), String> {
        let Self {
            hostgroup,
            host,
            port,
            class,
            link,
            info,
            caps,
            transport,
            is_astray,
            thread_id,
            state,
            defaults,
            tracking,
            tells_gtids,
            must_reset,
            outlives_reset,
            member,
            last_insert_id,
            has_warnings,
            refused_schema,
            killed,
            status,
            apart,
            proven,
            opened_ms,
            idle_since_ms,
            worked_ms,
        } = self;
        let pool = worker.pool(hostgroup);
        let found = pool.servers().iter().find(|server| server.key.host == host && server.key.port == port).cloned();
        let server = found.ok_or_else(|| format!("{host}:{port} is no server of hostgroup {hostgroup}"))?;
        let lane = LaneKey { hostgroup, user: Arc::clone(user), class: Class::of(class) };
        let slot = server.take_over(&pool.lane(worker, &lane).quota);
        let link = link.attach(socket).map_err(|e| e.to_string())?;
        let info = worker.shared.heard(&server, info.info());
        let mut backend = Backend::new(link, lane, server, info, caps, thread_id, slot, opened_ms);
        let core = &mut *backend.core;
        (core.transport, core.state, core.defaults, core.tracking) = (transport, state, defaults, tracking);
        (core.tells_gtids, core.must_reset, core.outlives_reset) = (tells_gtids, must_reset, outlives_reset);
        (core.member, core.last_insert_id, core.has_warnings) = (member, last_insert_id, has_warnings);
        (core.refused_schema, core.killed, core.status) = (refused_schema, killed, status);
        (core.idle_since_ms, core.worked_ms) = (idle_since_ms, worked_ms);
        core.proven = proven.map(|proven| Box::new(proven.proven()));
        if is_astray {
            core.turn = core.turn.wrapping_sub(1);
        }
        let user = Arc::clone(&core.lane.user);
        let list = |key: &Arc<_>, shape| worker.meter.list_prepared(&user.name, key, sql::LexMode::default(), shape);
        let numbers = apart.into_iter().filter_map(|(before, record)| Some((before, core.statements.take_over(record, list)?))).collect();
        Ok((backend, numbers))
    }
}
