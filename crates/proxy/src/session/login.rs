//! The login: greeting, TLS, who is it, proof of the password, schema. Also COM_CHANGE_USER.

use super::Session;
use super::effects::TRACK_GTIDS;
use super::end::End;
use super::facts::SessionFacts;
use super::statements::Statements;
use crate::buffer::Buffer;
use crate::class::Class;
use crate::counters::count;
use crate::entry::{Entry, Limits};
use crate::lane::LaneKey;
use crate::link::{Compression, Link};
use crate::pins::Pins;
use crate::shared::{HostLogin, UserShared};
use crate::state::State;
use crate::worker::Worker;
use model::settings::SessionTrackGtids;
use model::snapshot::{Password, User};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::WireError;
use wire::auth::server::{Account, ServerAuth, Step, Stored, Verified};
use wire::auth::{Channel, Plugin};
use wire::charset::{self, Flavor};
use wire::compress::Method;
use wire::flags::{Capabilities, StatusFlags};
use wire::handshake::{AuthSwitchRequest, ChangeUser, Greeting, HandshakeResponse, SslRequest};
use wire::message::{ErrPacket, OK, OkPacket};
use wire::packet::{self, HEADER};
use wire::proxy_protocol::{self, Origin, Parsed};
use wire::session_state::{self, Change};

/// Length of a scramble, bytes.
pub const SCRAMBLE: usize = 20;
/// Largest packet of a login, bytes: connection attributes may be long.
const MAX_LOGIN_PACKET: usize = 128 << 10;
/// What is announced as long as no backend was seen and nothing is configured.
const FALLBACK_VERSION: &str = "8.0.11";
/// ER_UNKNOWN_COLLATION.
const UNKNOWN_COLLATION: u16 = 1273;
/// utf8mb4_general_ci.
const FALLBACK_COLLATION: u8 = 45;
/// How long a login waits for a backend to ask whether the schema exists.
const SCHEMA_CHECK: Duration = Duration::from_millis(1000);

/// Offered to every client.
const OFFERED: Capabilities = Capabilities::FOUND_ROWS
    .union(Capabilities::LONG_FLAG)
    .union(Capabilities::CONNECT_WITH_DB)
    .union(Capabilities::NO_SCHEMA)
    .union(Capabilities::ODBC)
    .union(Capabilities::LOCAL_FILES)
    .union(Capabilities::IGNORE_SPACE)
    .union(Capabilities::PROTOCOL_41)
    .union(Capabilities::INTERACTIVE)
    .union(Capabilities::IGNORE_SIGPIPE)
    .union(Capabilities::TRANSACTIONS)
    .union(Capabilities::SECURE_CONNECTION)
    .union(Capabilities::MULTI_RESULTS)
    .union(Capabilities::PS_MULTI_RESULTS)
    .union(Capabilities::PLUGIN_AUTH)
    .union(Capabilities::CONNECT_ATTRS)
    .union(Capabilities::PLUGIN_AUTH_LENENC)
    .union(Capabilities::SESSION_TRACK);

/// Offered when the backends have them.
const IF_BACKENDS: Capabilities = Capabilities::QUERY_ATTRIBUTES;
/// Offered when the backends have them and the version that is announced is MariaDB's.
const IF_MARIADB: Capabilities = Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS
    .union(Capabilities::MARIADB_CLIENT_EXTENDED_METADATA)
    .union(Capabilities::MARIADB_CLIENT_BULK_UNIT_RESULTS);

/// A login under way.
struct Login {
    worker: Rc<Worker>,
    link: Link,
    input: Buffer,
    seq: u8,
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
    offered: Capabilities,
    caps: Capabilities,
    scramble: [u8; SCRAMBLE],
}

/// What the client asked for.
struct Request {
    user: Vec<u8>,
    response: Vec<u8>,
    plugin: Option<Vec<u8>>,
    schema: Option<Vec<u8>>,
    collation: u16,
    zstd_level: u8,
}

/// Logs a client in; the client has its error when this fails.
pub async fn log_in(
    worker: Rc<Worker>,
    entry: Rc<Entry>,
    link: Link,
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
) -> Result<Session, End> {
    let limit = Duration::from_millis(worker.snapshot().vars.connect_timeout_client);
    let login = Login {
        link,
        input: Buffer::default(),
        seq: 0,
        peer,
        local,
        offered: Capabilities::default(),
        caps: Capabilities::default(),
        scramble: scramble(),
        worker: Rc::clone(&worker),
    };
    let result = match tokio::time::timeout(limit, login.run(entry)).await {
        Ok(result) => result,
        Err(_) => Err(End::LoginTimeout),
    };
    if result.is_err() {
        count(&worker.counters.clients_refused);
    }
    result
}

/// Random bytes, none of them 0 or `$`.
fn scramble() -> [u8; SCRAMBLE] {
    let mut bytes = [0; SCRAMBLE];
    // INVARIANT: the system's generator does not fail once the process has started; a fixed scramble must never be sent.
    aws_lc_rs::rand::fill(&mut bytes).unwrap_or_else(|_| std::process::abort());
    bytes.map(|b| b % 89 + 37)
}

impl Login {
    async fn run(mut self, entry: Rc<Entry>) -> Result<Session, End> {
        if self.worker.shared.is_draining() {
            return Err(self.refuse(1053, "08S01", "Server shutdown in progress").await);
        }
        let max = self.worker.snapshot().vars.max_connections;
        if self.worker.shared.frontends.load(Ordering::Acquire) as u64 > max {
            return Err(self.refuse(1040, "08004", "Too many connections").await);
        }
        self.turn_away_blocked()?;
        self.greet(&entry).await?;
        let request = self.request().await?;
        *entry.view.claimed.borrow_mut() = String::from_utf8_lossy(&request.user).into();
        let user = self.authenticate(&request).await?;
        self.count_user(&user).await?;
        *entry.user.borrow_mut() = Some(Arc::clone(&user));
        self.worker.shared.note_session(entry.id, Some(&user.name));
        let mut session = self.into_session(entry, user, &request)?;
        session.check_collation().await?;
        session.check_schema().await?;
        Ok(session)
    }

    /// An address that failed too often is not even greeted.
    fn turn_away_blocked(&self) -> Result<(), End> {
        let limit = self.worker.snapshot().vars.client_host_error_counts;
        let Some(peer) = self.peer.filter(|peer| limit > 0 && self.worker.shared.hosts.is_blocked(peer.ip(), limit)) else {
            return Ok(());
        };
        count(&self.worker.counters.hosts_blocked);
        Err(End::Refused(format!("{} failed to log in {limit} times or more (client_host_error_counts)", peer.ip())))
    }

    async fn greet(&mut self, entry: &Entry) -> Result<(), End> {
        let snapshot = self.worker.snapshot();
        let vars = &snapshot.vars;
        let info = self.worker.shared.info.get();
        let version = match (vars.server_version.as_str(), info) {
            ("", Some(info)) => info.version.clone(),
            ("", None) => FALLBACK_VERSION.to_owned(),
            (version, _) => version.to_owned(),
        };
        let is_mariadb = version.contains("MariaDB");
        let mut offered = OFFERED;
        offered.set(Capabilities::LONG_PASSWORD, !is_mariadb);
        offered.set(Capabilities::MULTI_STATEMENTS, vars.client_multi_statements);
        offered.set(Capabilities::DEPRECATE_EOF, vars.enable_client_deprecate_eof);
        offered.set(Capabilities::LOCAL_FILES, vars.enable_load_data_local_infile);
        offered.set(Capabilities::COMPRESS, vars.have_compress);
        offered.set(Capabilities::ZSTD_COMPRESSION, vars.have_compress && !is_mariadb);
        offered.set(Capabilities::SSL, self.worker.shared.tls.load().is_some());
        if let Some(info) = info {
            offered.insert(info.capabilities & IF_BACKENDS);
            offered.insert(if is_mariadb { info.capabilities & IF_MARIADB } else { Capabilities::default() });
        }
        self.offered = offered;
        let greeting = Greeting {
            server_version: version.into_bytes(),
            connection_id: u32::try_from(entry.id).unwrap_or(u32::MAX),
            scramble: self.scramble.to_vec(),
            capabilities: offered,
            collation: info.map_or(FALLBACK_COLLATION, |i| i.collation),
            status: StatusFlags::AUTOCOMMIT,
            plugin: self.default_plugin().name().as_bytes().to_vec(),
        };
        let mut payload = Vec::new();
        greeting.write(&mut payload);
        self.send(&payload).await
    }

    fn default_plugin(&self) -> Plugin {
        Plugin::from_name(self.worker.snapshot().vars.default_authentication_plugin.as_str().as_bytes()).unwrap_or(Plugin::Native)
    }

    /// The client's answer, after PROXY header and TLS.
    async fn request(&mut self) -> Result<Request, End> {
        self.read_proxy_header().await?;
        let mut payload = self.receive().await?;
        if SslRequest::parse(&payload).map_err(malformed)?.is_some() {
            let Some(config) = self.worker.shared.tls.load_full().filter(|_| self.offered.contains(Capabilities::SSL)) else {
                return Err(malformed(WireError::Malformed("TLS was not offered")));
            };
            let connection = rustls::ServerConnection::new(config).map_err(|e| End::Refused(e.to_string()))?;
            let early = self.input.filled().to_vec();
            self.input.consume(early.len());
            self.link.stream_mut().accept_tls(connection, &early).await.map_err(|e| End::Refused(format!("TLS: {e}")))?;
            payload = self.receive().await?;
        }
        let response = HandshakeResponse::parse(&payload).map_err(malformed)?;
        self.caps = response.capabilities & (self.offered | Capabilities::SSL);
        Ok(Request {
            user: response.user.to_vec(),
            response: response.auth_response.to_vec(),
            plugin: response.plugin.map(<[u8]>::to_vec),
            schema: response.schema.filter(|s| !s.is_empty()).map(<[u8]>::to_vec),
            collation: u16::from(response.collation),
            zstd_level: response.zstd_level,
        })
    }

    /// A proxy before us may say who the client is: only one from a trusted network is believed.
    async fn read_proxy_header(&mut self) -> Result<(), End> {
        let trusted = self.peer.is_some_and(|p| self.worker.snapshot().proxy_networks.contains(p.ip()));
        if !trusted {
            return Ok(());
        }
        loop {
            match proxy_protocol::parse(self.input.filled()) {
                Parsed::NeedMore => self.read().await?,
                Parsed::Header { origin, consumed } => {
                    self.input.consume(consumed);
                    if let Origin::Relayed { src, dst } = origin {
                        self.peer = Some(src);
                        self.local = Some(dst);
                    }
                    return Ok(());
                }
                Parsed::Invalid(_) => return Ok(()),
            }
        }
    }

    /// Proof of the password; the client has its error when this fails.
    async fn authenticate(&mut self, request: &Request) -> Result<Arc<User>, End> {
        let worker = Rc::clone(&self.worker);
        let user = worker.snapshot().frontend_user(&request.user).cloned();
        let channel = if self.link.stream().is_secure() { Channel::Secure } else { Channel::Plain };
        let mut auth = ServerAuth::new(self.scramble, self.default_plugin(), channel);
        let verified = self.prove(&mut auth, user.as_deref(), request.plugin.as_deref(), &request.response).await?;
        let known = user.zip(verified);
        let Some((user, verified)) = known else {
            return Err(self.deny(&request.user, !request.response.is_empty()).await);
        };
        if user.use_ssl && self.link.stream().tls().is_none() {
            let text = tls_is_required(&user, &self.host());
            return Err(self.refuse(1045, "28000", &text).await);
        }
        worker.shared.note_host(self.peer, HostLogin::Succeeded);
        learn(&worker.shared.user(&user.name), &verified);
        if let Some(packet) = verified.before_ok {
            self.send(&packet).await?;
        }
        Ok(user)
    }

    /// Runs the exchange; None when the password is wrong. Unknown users go through the same motions.
    async fn prove(
        &mut self,
        auth: &mut ServerAuth,
        user: Option<&User>,
        plugin: Option<&[u8]>,
        response: &[u8],
    ) -> Result<Option<Verified>, End> {
        let worker = Rc::clone(&self.worker);
        let secrets = user.map(|u| worker.shared.user(&u.name).secrets()).unwrap_or_default();
        let decoy = scramble();
        let account =
            Account { stored: user.map_or(Stored::Clear(&decoy), stored), fast: secrets.fast.as_ref(), key: worker.shared.rsa.as_ref() };
        let mut step = auth.start(&account, plugin, response).map_err(malformed)?;
        loop {
            step = match step {
                Step::Done(verified) => return Ok(Some(verified)),
                Step::Denied => return Ok(None),
                Step::Send(payload) => {
                    self.send(&payload).await?;
                    let answer = self.receive().await?;
                    auth.feed(&account, &answer).map_err(malformed)?
                }
                Step::Switch(plugin) => {
                    let data = [&self.scramble[..], &[0]].concat();
                    let mut payload = Vec::new();
                    AuthSwitchRequest { plugin: plugin.name().as_bytes(), data: &data }.write(&mut payload);
                    self.send(&payload).await?;
                    let answer = self.receive().await?;
                    auth.feed(&account, &answer).map_err(malformed)?
                }
                // Milliseconds of hashing: not on the worker's thread.
                Step::Check(check) => tokio::task::spawn_blocking(move || check.run()).await.unwrap_or(Step::Denied),
            };
        }
    }

    /// Counts the session with its user's, within `mysql_users.max_connections`.
    async fn count_user(&mut self, user: &User) -> Result<(), End> {
        let worker = Rc::clone(&self.worker);
        match count_session(&worker, user) {
            Ok(()) => Ok(()),
            Err(text) => Err(self.refuse(1226, "42000", &text).await),
        }
    }

    fn host(&self) -> String {
        self.peer.map_or_else(|| "localhost".to_owned(), |p| p.ip().to_string())
    }

    async fn deny(&mut self, user: &[u8], with_password: bool) -> End {
        let using = if with_password { "YES" } else { "NO" };
        let text = format!("Access denied for user '{}'@'{}' (using password: {using})", String::from_utf8_lossy(user), self.host());
        self.refuse(1045, "28000", &text).await
    }

    /// Sends an error and answers the reason for the log.
    async fn refuse(&mut self, code: u16, sqlstate: &str, text: &str) -> End {
        let counters = &self.worker.counters;
        count(&counters.own_errors);
        match code {
            1040 => count(&counters.denied_max_connections),
            1045 => {
                count(&counters.denied_password);
                self.worker.shared.note_host(self.peer, HostLogin::Failed);
            }
            1226 => count(&counters.denied_max_user_connections),
            _ => {}
        }
        let mut state = ErrPacket::GENERAL;
        if let Some(given) = sqlstate.as_bytes().first_chunk() {
            state = *given;
        }
        let mut payload = Vec::new();
        let caps = self.caps | if self.seq > 1 { Capabilities::PROTOCOL_41 } else { Capabilities::default() };
        ErrPacket { code, sqlstate: state, message: text.as_bytes() }.write(&mut payload, caps);
        let _ = self.send(&payload).await;
        self.link.stream_mut().close_notify();
        End::Refused(text.to_owned())
    }

    fn into_session(self, entry: Rc<Entry>, user: Arc<User>, request: &Request) -> Result<Session, End> {
        let worker = self.worker;
        let pool = worker.pool(user.default_hostgroup);
        let key = LaneKey { hostgroup: user.default_hostgroup, user: Arc::clone(&user), class: Class::of(self.caps) };
        let proxy_addr = worker.memory.borrow_mut().proxy_addr(self.local);
        let mut session = Session {
            lane: pool.lane(&worker, &key),
            before: None,
            flag_in: 0,
            directions: Default::default(),
            strand: None,
            fill: None,
            client_addr: self.peer.map(|peer| peer.ip().to_canonical().to_string().into()),
            proxy_addr,
            pool,
            entry,
            front: self.link,
            input: self.input,
            backend: None,
            user,
            caps: self.caps,
            collation: request.collation,
            state: State::default(),
            status: StatusFlags::AUTOCOMMIT,
            lex: sql::LexMode::default(),
            pins: Pins::default(),
            facts: SessionFacts::default(),
            statements: Statements::default(),
            filter: None,
            tracking_wish: None,
            joined: Vec::new(),
            streamed_input: false,
            streamed: Default::default(),
            command_seq: 1,
            scramble: self.scramble,
            login_seq: self.seq,
            zstd_level: request.zstd_level,
            peer: self.peer,
            began_us: 0,
            again_until_us: None,
            label: None,
            lost_at_us: None,
            transcript: None,
            witness: None,
            replay_until_us: None,
            replaying: None,
            writes: None,
            min_gtid: None,
            worker,
        };
        session.begin(request.schema.as_deref());
        Ok(session)
    }

    async fn read(&mut self) -> Result<(), End> {
        let n = self.link.read(&mut self.input, &self.worker.buffers).await.map_err(End::ClientError)?;
        if n == 0 { Err(End::Refused("the client closed the connection during the login".into())) } else { Ok(()) }
    }

    async fn receive(&mut self) -> Result<Vec<u8>, End> {
        loop {
            if let Some((len, seq)) = packet::header(self.input.filled()) {
                if len > MAX_LOGIN_PACKET {
                    return Err(malformed(WireError::Malformed("login packet is too long")));
                }
                if let Some(payload) = self.input.filled().get(HEADER..HEADER + len) {
                    let payload = payload.to_vec();
                    self.input.consume(HEADER + len);
                    self.seq = seq.wrapping_add(1);
                    return Ok(payload);
                }
                self.input.reserve(HEADER + len, &self.worker.buffers);
            }
            self.read().await?;
        }
    }

    async fn send(&mut self, payload: &[u8]) -> Result<(), End> {
        let mut out = Vec::with_capacity(payload.len() + HEADER);
        packet::put_packet(&mut out, &mut self.seq, payload);
        self.link.write_all(&out).await.map_err(End::ClientError)
    }
}

fn malformed(e: WireError) -> End {
    End::Refused(format!("bad handshake: {e}"))
}

fn stored(user: &User) -> Stored<'_> {
    match &user.password {
        Password::Empty => Stored::Empty,
        Password::Clear(secret) => Stored::Clear(secret.expose()),
        Password::NativeHash(hash) => Stored::NativeHash(hash.0),
        // INVARIANT: `Password::read` takes only ASCII text that begins with `$A$`; anything else would not verify.
        Password::CachingSha2Hash(text) => Stored::CachingSha2(std::str::from_utf8(text.expose()).unwrap_or_default()),
    }
}

/// Counts a session with its user's, within `mysql_users.max_connections`; the text for the client when there are too many.
fn count_session(worker: &Worker, user: &User) -> Result<(), String> {
    let max = user.max_connections;
    let counted =
        worker.shared.user(&user.name).connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < max).then_some(n + 1));
    match counted {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("User '{}' has exceeded the 'max_user_connections' resource (current value: {max})", user.name)),
    }
}

fn tls_is_required(user: &User, host: &str) -> String {
    format!("Access denied for user '{}'@'{host}' (SSL is required)", user.name)
}

/// Keeps what the login proved: later logins are faster, and backends can be logged in to.
fn learn(shared: &UserShared, verified: &Verified) {
    shared.learn(|secrets| {
        if let Some(clear) = &verified.clear {
            secrets.clear = Some(clear.clone());
        }
        secrets.sha1 = verified.sha1.or(secrets.sha1);
        secrets.fast = verified.fast.or(secrets.fast);
    });
}

impl Session {
    /// State after a login (or COM_CHANGE_USER): character set, schema, limits.
    fn begin(&mut self, schema: Option<&[u8]>) {
        let snapshot = self.worker.snapshot();
        let default = snapshot.default_schema(&self.user);
        let schema = schema.or(Some(default.as_bytes()).filter(|s| !s.is_empty()));
        self.state.schema = schema.map(Into::into);
        self.entry.set_limits(Limits::from_settings(&self.lane.settings()));
        self.set_initial_variables(self.collation);
        self.status = self.initial_status();
        self.filter = self.caps.contains(Capabilities::SESSION_TRACK).then(|| Box::new(self.default_filter()));
    }

    /// Status flags of a session in which nothing has happened.
    pub(super) fn initial_status(&self) -> StatusFlags {
        let server = self.worker.shared.info.get().map_or(StatusFlags::AUTOCOMMIT, |i| i.status);
        server & (StatusFlags::AUTOCOMMIT | StatusFlags::NO_BACKSLASH_ESCAPES)
    }

    /// The collation of a session that was reset: MariaDB goes back to the handshake's, MySQL to the server's own.
    pub(super) fn collation_after_reset(&self) -> u16 {
        let mysql = self.worker.shared.info.get().filter(|info| info.flavor == Flavor::MySql);
        mysql.map_or(self.collation, |info| u16::from(info.collation))
    }

    /// The character set variables that a handshake's collation stands for; one that the server does not know leaves it at
    /// its defaults, as it would on a direct connection.
    pub(super) fn set_initial_variables(&mut self, collation: u16) {
        let info = self.worker.shared.info.get();
        let flavor = info.map_or(Flavor::MySql, |i| i.flavor);
        let servers = self.pool.servers();
        let tracking = servers.iter().find_map(|server| server.tracking.get());
        let known = match info {
            Some(info) => info.login_collation(collation, tracking),
            None => charset::collation_in(flavor, collation),
        };
        if let Some(collation) = known {
            for name in ["character_set_client", "character_set_connection", "character_set_results"] {
                self.state.variables.set(name, Some(collation.charset.as_bytes()));
            }
            self.state.variables.set("collation_connection", Some(collation.name.as_bytes()));
            self.state.variables.set(crate::state::RESULTS_COLLATION, Some(collation.name.as_bytes()));
        }
        if let Some(level) = self.user.attributes.default_transaction_isolation.as_deref() {
            let name = if flavor == Flavor::MariaDb { "tx_isolation" } else { "transaction_isolation" };
            let level = level.trim().to_ascii_uppercase().replace(' ', "-");
            self.state.variables.set(name, Some(level.as_bytes()));
        }
        let tells_gtids = self.worker.snapshot().vars.default_session_track_gtids == SessionTrackGtids::OwnGtid;
        if tells_gtids && self.worker.shared.info.get().is_some_and(|info| info.flavor == Flavor::MySql) {
            self.state.variables.set(TRACK_GTIDS, Some(SessionTrackGtids::OwnGtid.as_str().as_bytes()));
        }
        // Sessions that log in alike hold one copy of what they want.
        let memory = &mut self.worker.memory.borrow_mut();
        self.state.variables = memory.intern(std::mem::take(&mut self.state.variables));
        if let Some(schema) = self.state.schema.take() {
            self.state.schema = Some(memory.intern_text(schema));
        }
    }

    /// What becomes of a client whose handshake names a collation that the servers do not know (`handle_unknown_charset`).
    async fn check_collation(&mut self) -> Result<(), End> {
        let id = self.collation;
        // Who says 0 names none.
        if id == 0 || self.worker.shared.info.get().is_none_or(|info| info.collation_of(id).is_some()) {
            return Ok(());
        }
        match self.worker.snapshot().vars.handle_unknown_charset {
            0 => {
                let text = format!("Unknown collation: '{id}'");
                self.send_error_at(self.login_seq, UNKNOWN_COLLATION, "HY000", text.as_bytes()).await?;
                Err(End::Refused(text))
            }
            1 if self.worker.memory.borrow_mut().is_new_collation(id) => {
                let (user, host) = (&self.user.name, self.host());
                tracing::warn!("user '{user}' from {host} asks for collation {id}, which the servers do not know: they use their default");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Asks a backend whether the schema may be used, unless one has said so a moment ago; then says OK to the client.
    async fn check_schema(&mut self) -> Result<(), End> {
        if let Some(schema) = self.state.schema.clone() {
            let now = self.now_ms();
            let known = self.worker.memory.borrow().schema_is_valid(&self.user.name, &schema, now);
            if !known && !self.user.fast_forward {
                self.ask_for_schema(&schema).await?;
            }
        }
        self.send_login_ok(self.login_seq).await?;
        self.start_compression();
        Ok(())
    }

    async fn ask_for_schema(&mut self, schema: &crate::state::Text) -> Result<(), End> {
        // A hostgroup that is down does not keep clients from logging in: their statements wait, and say why.
        match tokio::time::timeout(SCHEMA_CHECK, self.obtain()).await {
            Ok(Ok(())) => {}
            Ok(Err(super::acquire::Fault::End(end))) => return Err(end),
            Ok(Err(super::acquire::Fault::Error { code, sqlstate, text })) if code != 9001 => {
                let state = String::from_utf8_lossy(&sqlstate).into_owned();
                self.send_error_at(self.login_seq, code, &state, &text).await?;
                return Err(End::Refused(String::from_utf8_lossy(&text).into_owned()));
            }
            _ => return Ok(()),
        }
        let Some(backend) = self.backend.as_mut() else { return Ok(()) };
        if backend.core.state.schema.as_ref() == Some(schema) {
            self.give_back();
            return Ok(());
        }
        match tokio::time::timeout(SCHEMA_CHECK, backend.init_db(schema, &self.worker.buffers)).await {
            Ok(Ok(reply)) => {
                self.give_back();
                if let Some(e) = reply.error {
                    let state = String::from_utf8_lossy(&e.sqlstate).into_owned();
                    self.send_error_at(self.login_seq, e.code, &state, &e.message).await?;
                    return Err(End::Refused(e.to_string()));
                }
                let now = self.now_ms();
                self.worker.memory.borrow_mut().learn_schema(&self.user.name, schema, now);
            }
            // Lost, or silent: no reason to turn a client away.
            Ok(Err(_)) | Err(_) => self.backend = None,
        }
        Ok(())
    }

    async fn send_login_ok(&mut self, seq: u8) -> Result<(), End> {
        let mut told = Vec::new();
        if let Some((schema, _)) = self.state.schema.as_ref().zip(self.filter.as_ref().filter(|f| f.schema)) {
            session_state::put_change(&mut told, &Change::Schema(schema));
        }
        let status = self.current_status();
        let ok = OkPacket { affected_rows: 0, last_insert_id: 0, status, warnings: 0, info: b"", session_state: &told };
        let mut payload = Vec::new();
        ok.write(&mut payload, OK, self.caps);
        let mut out = Vec::new();
        let mut seq = seq;
        packet::put_packet(&mut out, &mut seq, &payload);
        self.write_front(&out).await
    }

    fn start_compression(&mut self) {
        let method = if self.caps.contains(Capabilities::COMPRESS) {
            Method::Zlib { level: 6 }
        } else if self.caps.contains(Capabilities::ZSTD_COMPRESSION) {
            Method::Zstd { level: i32::from(self.zstd_level.clamp(1, 22)) }
        } else {
            return;
        };
        self.front.compress(Compression::new(method, true));
    }
}

/// COM_CHANGE_USER: the whole login but greeting and TLS. The old user's state is gone whatever comes.
pub async fn change_user(session: &mut Session, payload: &[u8]) -> Result<(), End> {
    let change = ChangeUser::parse(payload, session.caps).map_err(malformed)?;
    let worker = Rc::clone(&session.worker);
    let user = worker.snapshot().frontend_user(change.user).cloned();
    let channel = if session.front.stream().is_secure() { Channel::Secure } else { Channel::Plain };
    let default = Plugin::from_name(worker.snapshot().vars.default_authentication_plugin.as_str().as_bytes()).unwrap_or(Plugin::Native);
    let mut auth = ServerAuth::new(session.scramble, default, channel);
    let seq = session.prove_again(&mut auth, user.as_deref(), &change).await?;
    let Some((user, seq)) = user.zip(seq) else {
        let text = format!("Access denied for user '{}'@'{}'", String::from_utf8_lossy(change.user), session.host());
        return Err(session.refuse_change(1045, "28000", text).await);
    };
    session.login_seq = seq;
    if user.use_ssl && session.front.stream().tls().is_none() {
        let text = tls_is_required(&user, &session.host());
        return Err(session.refuse_change(1045, "28000", text).await);
    }
    if user.name != session.user.name {
        if let Err(text) = count_session(&worker, &user) {
            return Err(session.refuse_change(1226, "42000", text).await);
        }
        // From here on the entry's user is the new one: whoever is in the entry is counted, and no longer at the session's end.
        worker.shared.user(&session.user.name).connections.fetch_sub(1, Ordering::AcqRel);
    }
    *session.entry.user.borrow_mut() = Some(Arc::clone(&user));
    worker.shared.note_session(session.entry.id, Some(&user.name));
    session.pool = worker.pool(user.default_hostgroup);
    session.user = user;
    session.collation = change.collation.unwrap_or(session.collation);
    session.state.schema = None;
    session.drop_session_state();
    session.choose_lane();
    session.forget_ignore_space();
    session.begin(Some(change.schema).filter(|s| !s.is_empty()));
    session.check_collation().await?;
    if let Some(schema) = session.state.schema.clone() {
        session.ask_for_schema(&schema).await?;
    }
    session.send_login_ok(seq).await
}

impl Session {
    fn host(&self) -> String {
        self.peer.map_or_else(|| "localhost".to_owned(), |p| p.ip().to_string())
    }

    /// Sends the error that ends a COM_CHANGE_USER, and the session with it.
    async fn refuse_change(&mut self, code: u16, sqlstate: &str, text: String) -> End {
        let counters = &self.worker.counters;
        count(if code == 1045 { &counters.denied_password } else { &counters.denied_max_user_connections });
        match self.send_error_at(self.login_seq, code, sqlstate, text.as_bytes()).await {
            Ok(()) => End::Refused(text),
            Err(end) => end,
        }
    }

    /// The exchange of COM_CHANGE_USER; the sequence id that comes next, or None when the password is wrong.
    async fn prove_again(&mut self, auth: &mut ServerAuth, user: Option<&User>, change: &ChangeUser<'_>) -> Result<Option<u8>, End> {
        let worker = Rc::clone(&self.worker);
        let secrets = user.map(|u| worker.shared.user(&u.name).secrets()).unwrap_or_default();
        let decoy = scramble();
        let account =
            Account { stored: user.map_or(Stored::Clear(&decoy), stored), fast: secrets.fast.as_ref(), key: worker.shared.rsa.as_ref() };
        let mut seq = 1;
        let mut step = auth.start(&account, change.plugin, change.auth_response).map_err(malformed)?;
        loop {
            self.login_seq = seq;
            let payload = match step {
                Step::Denied => return Ok(None),
                Step::Check(check) => {
                    step = tokio::task::spawn_blocking(move || check.run()).await.unwrap_or(Step::Denied);
                    continue;
                }
                Step::Done(verified) => {
                    if let Some(user) = user {
                        learn(&worker.shared.user(&user.name), &verified);
                    }
                    if let Some(packet) = verified.before_ok {
                        self.send_login_packet(&packet, &mut seq).await?;
                    }
                    return Ok(Some(seq));
                }
                Step::Send(payload) => payload,
                Step::Switch(plugin) => {
                    let data = [&self.scramble[..], &[0]].concat();
                    let mut payload = Vec::new();
                    AuthSwitchRequest { plugin: plugin.name().as_bytes(), data: &data }.write(&mut payload);
                    payload
                }
            };
            self.send_login_packet(&payload, &mut seq).await?;
            let (answer, next) = self.receive_login_packet().await?;
            seq = next;
            step = auth.feed(&account, &answer).map_err(malformed)?;
        }
    }

    async fn send_login_packet(&mut self, payload: &[u8], seq: &mut u8) -> Result<(), End> {
        let mut out = Vec::new();
        packet::put_packet(&mut out, seq, payload);
        self.write_front(&out).await
    }

    /// A packet behind the command at the front of the input, and the sequence id that follows it.
    async fn receive_login_packet(&mut self) -> Result<(Vec<u8>, u8), End> {
        loop {
            let bytes = self.input.filled();
            let skip = packet::header(bytes).map_or(0, |(len, _)| HEADER + len);
            if let Some((len, seq)) = bytes.get(skip..).and_then(packet::header) {
                if len > MAX_LOGIN_PACKET {
                    return Err(malformed(WireError::Malformed("login packet is too long")));
                }
                if let Some(payload) = bytes.get(skip + HEADER..skip + HEADER + len) {
                    let payload = payload.to_vec();
                    self.input.consume_behind(skip, HEADER + len);
                    return Ok((payload, seq.wrapping_add(1)));
                }
            }
            self.read_more(self.input.len() + HEADER).await?;
        }
    }
}
