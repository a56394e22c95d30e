//! The state a session begins with, after a login or COM_CHANGE_USER, and the OK that the client gets.

use super::Session;
use super::backends::Backends;
use super::end::End;
use super::fault::Fault;
use super::frontend::Frontend;
use super::tracked::track_defaults;
use crate::clients::session_handle::Limits;
use crate::hostgroups::pool::HostgroupPool;
use crate::net::link::Compression;
use model::settings::SessionTrackGtids;
use session_state::chosen::Chosen;
use session_state::held::TRACK_GTIDS;
use session_state::server_info::{Family, ServerInfo};
use session_state::state::{State, Text, canonical, is_wide};
use session_state::wants::Wants;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::charset::{self, Flavor};
use wire::compress::Method;
use wire::flags::{Capabilities, StatusFlags};
use wire::message::{OK, OkPacket};
use wire::session_state::{Change, put_change};
use wire::{codes, packet};

/// How long a login waits for a backend to ask whether the schema exists.
const SCHEMA_CHECK: Duration = Duration::from_millis(1000);

impl Session {
    /// State after a login (or COM_CHANGE_USER): character set, schema, limits.
    pub(super) fn begin(&mut self, schema: Option<&[u8]>) {
        let snapshot = self.worker.snapshot();
        self.wants.state.schema = None;
        self.handle.set_limits(Limits::from_settings(&self.at.lane.settings()));
        self.client.set_initial_variables(&self.at, &mut self.wants, self.client.collation);
        let default = snapshot.default_schema(&self.at.user).as_bytes();
        let schema = match schema {
            // Its own connection logs in as it did.
            Some(raw) if self.at.user.fast_forward => Some(raw.into()),
            Some(name) => Some(self.wants.in_utf8(self.worker.shared.info.get().as_deref(), self.client.collation, name)),
            None => Some(default).filter(|name| !name.is_empty()).map(Text::from),
        };
        self.wants.state.schema = schema.map(|name| self.worker.memory.borrow_mut().intern_text(name));
        self.client.set_initial_status(&self.at, &mut self.wants);
        self.client.filter =
            self.client.caps.contains(Capabilities::SESSION_TRACK).then(|| Box::new(self.wants.default_filter(track_defaults(&self.at))));
    }

    /// Asks a backend whether the schema may be used, unless one has said so a moment ago; then says OK to the client. A
    /// `fast_forward` user is answered when its own connection is there.
    pub(super) async fn check_schema(&mut self) -> Result<(), End> {
        if self.at.user.fast_forward {
            return Ok(());
        }
        if let Some(schema) = self.wants.state.schema.clone() {
            let (epoch, now) = (self.worker.shared.ddl_epoch.load(Ordering::Acquire), self.worker.clock.now_ms());
            let whose = (&*self.at.user.name, self.router().hostgroup_for_schema(&schema));
            let known = self.worker.memory.borrow().schema_is_valid(whose, &schema, epoch, now);
            if !known {
                self.ask_for_schema(&schema).await?;
            }
        }
        self.client.welcome(&mut self.at, &self.wants).await
    }

    pub(super) async fn ask_for_schema(&mut self, schema: &Text) -> Result<(), End> {
        let epoch = self.worker.shared.ddl_epoch.load(Ordering::Acquire);
        self.direct_for_schema(schema).await;
        // A hostgroup that is down does not keep clients from logging in: their statements wait, and say why.
        match tokio::time::timeout(SCHEMA_CHECK, self.obtain()).await {
            Ok(Ok(())) => {}
            Ok(Err(Fault::End(end))) => return Err(end),
            Ok(Err(Fault::Error { code, sqlstate, text })) if code != codes::NO_CONNECTION => {
                let state = String::from_utf8_lossy(&sqlstate).into_owned();
                self.client.send_error_at(&mut self.at, self.client.login_seq, code, &state, &text).await?;
                return Err(End::Refused(String::from_utf8_lossy(&text).into_owned()));
            }
            _ => return Ok(()),
        }
        let Some(backend) = self.at.backend.as_mut() else { return Ok(()) };
        if backend.core.held.state().schema.as_ref() == Some(schema) {
            self.at.give_back();
            return Ok(());
        }
        match tokio::time::timeout(SCHEMA_CHECK, backend.init_db(schema, &self.worker.buffers)).await {
            Ok(Ok(reply)) => {
                if let Some(e) = &reply.error {
                    self.account().held_server_erred(e.code, &e.message);
                }
                self.at.give_back();
                if let Some(e) = reply.error {
                    let state = String::from_utf8_lossy(&e.sqlstate).into_owned();
                    self.client.send_error_at(&mut self.at, self.client.login_seq, e.code, &state, &e.message).await?;
                    return Err(End::Refused(e.to_string()));
                }
                let now = self.worker.clock.now_ms();
                let whose = (&*self.at.user.name, self.at.pool.shared.id);
                self.worker.memory.borrow_mut().learn_schema(whose, schema, epoch, now);
            }
            // Lost, or silent: no reason to turn a client away.
            Ok(Err(_)) | Err(_) => self.at.discard_backend(),
        }
        Ok(())
    }

    /// Removes the session's state, as a reset does. Connections that it left in other hostgroups are cleaned by the caller.
    pub(super) fn drop_session_state(&mut self) {
        self.at.pins.clear();
        // The next one's statements go through the rules from their begin.
        self.hand.flag_in = 0;
        self.recovery.transcript = None;
        self.recovery.drop_gtid(&self.at, false);
        if let Some(writes) = &mut self.causal.writes {
            writes.forget_tokens();
        }
        self.facts.was_reset();
        self.statements.clear();
        self.wants.state = State { schema: self.wants.state.schema.take(), ..State::default() };
        self.wants.lex = sql::LexMode::default();
        self.client.set_initial_variables(&self.at, &mut self.wants, self.client.collation_after_reset(&self.at));
        if self.worker.shared.serves_mysql() {
            // No login gave it: it is the server's own.
            self.wants.chosen = Chosen::default();
        }
        self.client.tracking_wish = None;
        if self.client.filter.is_some() {
            self.client.filter = Some(Box::new(self.wants.default_filter(track_defaults(&self.at))));
        }
        self.client.set_initial_status(&self.at, &mut self.wants);
        self.handle.set_transaction(false, 0);
    }
}

impl Frontend {
    /// The status flags of a session in which nothing has happened. The same flag says how texts are read: a reply that repeats it
    /// is no change, so it must hold for both from the start.
    pub(super) fn set_initial_status(&mut self, at: &Backends, wants: &mut Wants) {
        self.status = at.worker.shared.initial_status();
        wants.lex.no_backslash_escapes = self.status.contains(StatusFlags::NO_BACKSLASH_ESCAPES);
    }

    /// The character set variables that a handshake's collation stands for; one that the server does not know leaves it at
    /// its defaults, as it would on a direct connection.
    pub(super) fn set_initial_variables(&self, at: &Backends, wants: &mut Wants, collation: u16) {
        at.handle.set_own_idle_limit(0);
        let info = at.worker.shared.info.get();
        let family = info.as_ref().map_or(Family::MySql, |i| i.family);
        let flavor = family.flavor();
        (wants.family, wants.stand_ins) = (family, None);
        wants.chosen = Chosen::by_login(collation);
        wants.lex.builtins = at.worker.shared.builtins();
        wants.lex.ignore_space = self.caps.contains(Capabilities::IGNORE_SPACE);
        let known = match info {
            Some(info) => best_informed(&at.pool, info).login_collation(collation),
            None => charset::collation_in(flavor, collation),
        };
        if let Some(collation) = known {
            wants.state.variables.set_names(collation);
        }
        wants.read_client_charset();
        if let Some(level) = at.user.attributes.default_transaction_isolation.as_deref() {
            let name = canonical("transaction_isolation", family);
            let level = level.trim().to_ascii_uppercase().replace(' ', "-");
            wants.state.variables.set(name, Some(level.as_bytes()));
        }
        let tells_gtids = at.worker.snapshot().vars.default_session_track_gtids == SessionTrackGtids::OwnGtid;
        if tells_gtids && at.worker.shared.serves_mysql() {
            wants.state.variables.set(TRACK_GTIDS, Some(SessionTrackGtids::OwnGtid.as_str().as_bytes()));
        }
        at.worker.memory.borrow_mut().share(&mut wants.state);
    }
}

impl Frontend {
    /// The collation of a session that was reset: MariaDB goes back to the handshake's, MySQL to the server's own.
    pub(super) fn collation_after_reset(&self, at: &Backends) -> u16 {
        let mysql = at.worker.shared.info.get().filter(|info| info.flavor == Flavor::MySql);
        mysql.map_or(self.collation, |info| u16::from(info.collation))
    }

    fn start_compression(&mut self, at: &Backends) {
        let method = if self.caps.contains(Capabilities::COMPRESS) {
            crate::backends::connect::zlib(&at.worker.snapshot())
        } else if self.caps.contains(Capabilities::ZSTD_COMPRESSION) {
            let max = at.worker.snapshot().vars.protocol_zstd_level_max;
            Method::Zstd { level: i32::from(self.zstd_level.max(1)).min(i32::try_from(max).unwrap_or(1)) }
        } else {
            return;
        };
        self.link.compress(Compression::new(method));
    }

    /// What becomes of a client whose handshake names a collation that the servers do not know (`handle_unknown_charset`), or one of
    /// a character set that no client can have.
    pub(super) async fn check_collation(&mut self, at: &mut Backends) -> Result<(), End> {
        let id = self.collation;
        let info = at.worker.shared.info.get();
        let known = info.as_ref().map_or_else(|| charset::collation(id), |info| info.collation_of(id));
        if let Some(wide) = known.filter(|known| is_wide(known.charset.as_bytes())) {
            let text = format!("Variable 'character_set_client' can't be set to the value of '{}'", wide.charset);
            self.send_error_at(at, self.login_seq, codes::WRONG_VALUE_FOR_VAR, "42000", text.as_bytes()).await?;
            return Err(End::Refused(text));
        }
        // Who says 0 names none.
        if id == 0 || info.is_none() || known.is_some() {
            return Ok(());
        }
        match at.worker.snapshot().vars.handle_unknown_charset {
            0 => {
                let text = format!("Unknown collation: '{id}'");
                self.send_error_at(at, self.login_seq, codes::UNKNOWN_COLLATION, "HY000", text.as_bytes()).await?;
                Err(End::Refused(text))
            }
            1 if at.worker.memory.borrow_mut().is_new_collation(id) => {
                let (user, host) = (&at.user.name, self.host());
                tracing::warn!(
                    "user '{user}' from {host} asks for collation {id}, which the servers do not know: the servers use their default"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn send_login_ok(&mut self, at: &mut Backends, wants: &Wants, seq: u8) -> Result<(), End> {
        let mut told = Vec::new();
        if let Some((schema, _)) = wants.state.schema.as_ref().zip(self.filter.as_ref().filter(|f| f.schema)) {
            put_change(&mut told, &Change::Schema(schema));
        }
        let status = self.current_status();
        // Of the greeting's login alone: COM_CHANGE_USER proves nothing, as on MariaDB.
        let proof = at.handle.certificate_proof.take();
        let info = proof.as_deref().map_or(&b""[..], |proof| &proof[..]);
        let ok = OkPacket { affected_rows: 0, last_insert_id: 0, status, warnings: 0, info, session_state: &told };
        let mut payload = Vec::new();
        ok.write(&mut payload, OK, self.caps);
        let mut out = Vec::new();
        let mut seq = seq;
        packet::put_packet(&mut out, &mut seq, &payload);
        self.write_front(at, &out).await
    }

    /// The login has succeeded.
    pub(super) async fn welcome(&mut self, at: &mut Backends, wants: &Wants) -> Result<(), End> {
        self.send_login_ok(at, wants, self.login_seq).await?;
        self.start_compression(at);
        Ok(())
    }

    /// MariaDB takes IGNORE_SPACE, which a client flag put there at the first login, out of sql_mode.
    pub(super) fn forget_ignore_space(&mut self, at: &mut Backends, wants: &mut Wants) {
        let mariadb = at.worker.shared.serves_mariadb();
        if mariadb && self.caps.contains(Capabilities::IGNORE_SPACE) {
            self.caps.remove(Capabilities::IGNORE_SPACE);
            wants.lex.ignore_space = false;
            at.choose_lane(self.caps);
        }
    }
}

/// The same as one of the pool's own servers says it that has told more of itself.
fn best_informed(pool: &HostgroupPool, info: Arc<ServerInfo>) -> Arc<ServerInfo> {
    let servers = pool.servers();
    let mut known = servers.iter().filter_map(|server| server.info.load_full());
    known.find(|known| known.version == info.version && known.tracking.get().is_some()).unwrap_or(info)
}
