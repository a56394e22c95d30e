//! A connection to a server on its way to another process.

use super::{Backend, BackendState};
use crate::backends::proven::ProvenRecord;
use crate::net::link::LinkRecord;
use crate::net::stream::DetachedSocket;
use crate::servers::server::{ServerShared, Slot, Transport};
use crate::statements::stmt_cache::{Apart, ApartRecord};
use meter::prepared::Listed;
use model::HostgroupId;
use serde::{Deserialize, Serialize};
use session_state::class::{Class, LaneKey};
use session_state::held::{Held, HeldRecord, Tracking};
use session_state::server_info::{InfoRecord, ServerInfo};
use session_state::state::{State, Text, Variables};
use session_state::statement_key::StatementKey;
use std::collections::HashMap;
use std::sync::Arc;
use wire::flags::{Capabilities, StatusFlags};

/// What another process needs to know of a connection, besides its socket. Times are of the process clock, which goes on there.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackendRecord {
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

/// What this process has for a connection of another one.
pub(crate) struct Home {
    /// Whom it may serve.
    pub lane: LaneKey,
    /// Its server.
    pub server: Arc<ServerShared>,
    /// The right to it.
    pub slot: Slot,
    /// What its server is.
    pub info: Arc<ServerInfo>,
}

/// Numbers of statements that are set apart on servers: those of before, and those of here.
pub(crate) type Numbers = HashMap<Apart, Apart>;

/// [`Backend::record`] of one that may be none; its socket follows the others.
pub(crate) fn record(backend: Option<&Backend>, sockets: &mut Vec<DetachedSocket>) -> Option<Option<BackendRecord>> {
    let Some(backend) = backend else { return Some(None) };
    let (record, socket) = backend.record()?;
    sockets.push(socket);
    Some(Some(record))
}

impl Backend {
    /// It is another process's from here on, and is counted as that one's; here it is dropped.
    pub(crate) fn count_elsewhere(&mut self) {
        self.core.slot.hand_over();
    }

    /// What another process needs to go on with it, and a copy of its socket. Statements that it has prepared for whoever asks are
    /// unknown there: they are closed before. None where it cannot go.
    pub(crate) fn record(&self) -> Option<(BackendRecord, DetachedSocket)> {
        if !self.is_even() {
            return None;
        }
        let Self { link, input: _, core } = self;
        let BackendState {
            lane: LaneKey { hostgroup, user: _, class },
            server,
            info,
            caps,
            transport,
            turn: _,
            local: _,
            peer: _,
            thread_id,
            held,
            defaults,
            has_assigned_gtid,
            is_owed: _,
            killed,
            kill: _,
            statements,
            proven,
            opened_ms,
            idle_since_ms,
            worked_ms,
            taken_us: _,
            slot: _,
        } = &**core;
        if *has_assigned_gtid {
            return None;
        }
        let HeldRecord {
            state,
            tracking,
            tells_gtids,
            must_reset,
            outlives_reset,
            member,
            last_insert_id,
            has_warnings,
            refused_schema,
            status,
            // The session that takes it up says so itself.
            session: _,
        } = held.record().clone();
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
            state,
            defaults: defaults.clone(),
            tracking,
            tells_gtids,
            must_reset,
            outlives_reset,
            member,
            last_insert_id,
            has_warnings,
            refused_schema,
            killed: *killed,
            status,
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
    pub(crate) fn hostgroup(&self) -> HostgroupId {
        self.hostgroup
    }

    pub(crate) fn server(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The connection over this socket, at home here as `home` says; and under which numbers statements are set apart that were set
    /// apart under others.
    ///
    /// # Errors
    /// The system's words.
    pub(crate) fn attach(
        self,
        home: impl FnOnce(Class, ServerInfo) -> Home,
        list: impl Fn(&Arc<StatementKey>, (u16, u16)) -> Arc<Listed>,
        socket: DetachedSocket,
    ) -> Result<(Backend, Numbers), String> {
        let Self {
            hostgroup: _,
            host: _,
            port: _,
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
        let link = link.attach(socket).map_err(|e| e.to_string())?;
        let Home { lane, server, slot, info } = home(Class::of(class), info.info());
        let mut backend = Backend::new(link, lane, server, info, caps, thread_id, slot, opened_ms);
        let core = &mut *backend.core;
        core.held = Held::of(HeldRecord {
            state,
            tracking,
            tells_gtids,
            must_reset,
            outlives_reset,
            member,
            last_insert_id,
            has_warnings,
            refused_schema,
            status,
            session: None,
        });
        (core.transport, core.defaults, core.killed) = (transport, defaults, killed);
        (core.idle_since_ms, core.worked_ms) = (idle_since_ms, worked_ms);
        core.proven = proven.map(|proven| Box::new(proven.proven()));
        if is_astray {
            core.turn = core.turn.wrapping_sub(1);
        }
        let numbers = apart.into_iter().filter_map(|(before, record)| Some((before, core.statements.take_over(record, &list)?))).collect();
        Ok((backend, numbers))
    }
}
