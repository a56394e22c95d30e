//! The login: greeting, TLS, who is it, proof of the password.

use super::Session;
use super::end::End;
use super::frontend::Frontend;
use crate::clients::session_handle::{SessionHandle, Signal};
use crate::clients::users::LearntSecrets;
use crate::limits::overload;
use crate::net::buffer::{Buffer, CHUNK, grown};
use crate::net::link::Link;
use crate::workers::counters::count;
use crate::workers::shared::{HostLogin, Shared};
use crate::workers::worker::Worker;
use meter::errors::ErrorKey;
use model::refusals::shown_name;
use model::settings::TlsVersion;
use model::snapshot::{Password, Snapshot, User};
use session_state::server_info::name_in_utf8;
use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;
use wire::auth::Plugin;
use wire::auth::hash::{CERTIFICATE_PROOF, certificate_proof};
use wire::auth::server::{Account, Known, ServerAuth, Step, Stored, Verified, Which};
use wire::charset::Flavor;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};
use wire::handshake::{AuthSwitchRequest, Greeting, HandshakeResponse, OldLogin, SslRequest};
use wire::message::{ErrPacket, OK, OkPacket};
use wire::packet::{self, HEADER};
use wire::proxy_protocol::{self, Origin, Parsed};
use wire::{WireError, codes};

/// Length of a scramble, bytes.
pub(super) const SCRAMBLE: usize = 20;
/// Largest packet of a login, bytes: connection attributes may be long.
pub(super) const MAX_LOGIN_PACKET: usize = 128 << 10;
/// What is announced as long as no backend was seen and nothing is configured.
const FALLBACK_VERSION: &str = "8.0.11";
/// ER_NOT_SUPPORTED_AUTH_MODE.
const OLD_CLIENT: &str = "Client does not support authentication protocol requested by server; consider upgrading MySQL client";
/// utf8mb4_general_ci.
const FALLBACK_COLLATION: u8 = 45;

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
/// Those of both that each server must have which was heard of: a session may use any of them. Extended metadata is left out, since the
/// proxy adds it to the answers of servers without it.
const IF_ALL: [Capabilities; 3] =
    [Capabilities::QUERY_ATTRIBUTES, Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS, Capabilities::MARIADB_CLIENT_BULK_UNIT_RESULTS];

/// Which of these a greeting offers; `heard` are the capabilities of the server that it speaks for.
fn offered_of(heard: Capabilities, is_mariadb: bool, all_have: impl Fn(Capabilities) -> bool) -> Capabilities {
    let mut offered = heard & if is_mariadb { IF_BACKENDS | IF_MARIADB } else { IF_BACKENDS };
    for flag in IF_ALL {
        if offered.contains(flag) && !all_have(flag) {
            offered.remove(flag);
        }
    }
    offered
}

/// A login under way.
struct ClientLogin {
    worker: Rc<Worker>,
    link: Link,
    input: Buffer,
    seq: u8,
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
    offered: Capabilities,
    caps: Capabilities,
    scramble: [u8; SCRAMBLE],
    /// SHA-256 of the certificate that the client was shown.
    fingerprint: Option<[u8; 32]>,
    /// What the login's OK says of that certificate.
    certificate_proof: Option<Box<[u8; CERTIFICATE_PROOF]>>,
    /// The client is from before MySQL 4.1, and knows no SQLSTATE.
    is_old: bool,
    /// The user of that name, whether or not the password is right.
    user: Option<Arc<User>>,
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
pub(super) async fn log_in(
    worker: Rc<Worker>,
    handle: Rc<SessionHandle>,
    link: Link,
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
) -> Result<Session, End> {
    let limit = Duration::from_millis(worker.snapshot().vars.connect_timeout_client);
    let login = ClientLogin {
        link,
        input: Buffer::default(),
        seq: 0,
        peer,
        local,
        offered: Capabilities::default(),
        caps: Capabilities::default(),
        scramble: scramble(),
        fingerprint: None,
        certificate_proof: None,
        is_old: false,
        user: None,
        worker: Rc::clone(&worker),
    };
    let waits = Rc::clone(&handle);
    let result = match tokio::time::timeout(limit, unless_stopped(&waits, login.log_client_in(handle))).await {
        Ok(result) => result,
        Err(_) => {
            // As a proxy before us told it.
            worker.shared.note_host(waits.row.client.get(), HostLogin::Failed);
            Err(End::LoginTimeout)
        }
    };
    if result.as_ref().is_err_and(|end| !matches!(end, End::Quit)) {
        count(&worker.counters.clients_refused);
    }
    result
}

/// A login ends with the process, and when it is killed: whoever has not said who it is has nothing to lose.
async fn unless_stopped(handle: &SessionHandle, login: impl Future<Output = Result<Session, End>>) -> Result<Session, End> {
    let mut login = pin!(login);
    poll_fn(|cx| {
        if let Poll::Ready(result) = login.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        match handle.poll_signal(cx) {
            Some(Signal::Drain | Signal::Stop) => Poll::Ready(Err(End::Shutdown)),
            Some(Signal::KillConnection) => Poll::Ready(Err(End::Killed)),
            _ => Poll::Pending,
        }
    })
    .await
}

/// Random bytes, none of them 0 or `$`.
pub(super) fn scramble() -> [u8; SCRAMBLE] {
    let mut bytes = [0; SCRAMBLE];
    // INVARIANT: the system's generator does not fail once the process has started; a fixed scramble must never be sent.
    aws_lc_rs::rand::fill(&mut bytes).unwrap_or_else(|_| std::process::abort());
    bytes.map(|b| b % 89 + 37)
}

impl ClientLogin {
    async fn log_client_in(mut self, handle: Rc<SessionHandle>) -> Result<Session, End> {
        if self.worker.shared.is_draining() {
            return Err(self.refuse(codes::SERVER_SHUTDOWN, "08S01", "Server shutdown in progress").await);
        }
        if self.worker.shared.frontends.load(Ordering::Acquire) as u64 > self.worker.shared.most_clients() {
            return Err(self.refuse(codes::CON_COUNT, "08004", "Too many connections").await);
        }
        if self.worker.shared.memory.step() >= overload::Step::Logins {
            self.worker.shared.memory.refused_logins.fetch_add(1, Ordering::Relaxed);
            let text = "Out of memory: the proxy is close to its mysql-memory_budget, so it refuses new clients";
            return Err(self.refuse(codes::OUT_OF_RESOURCES, "08004", text).await);
        }
        self.turn_away_blocked()?;
        if !self.is_trusted() {
            self.take_place(&handle).await?;
        }
        self.greet(&handle).await?;
        let request = self.request(&handle).await?;
        *handle.row.claimed.borrow_mut() = shown_name(&request.user).into();
        if let Err(text) = self.is_safe_enough() {
            return Err(self.refuse(codes::SECURE_TRANSPORT_REQUIRED, "HY000", &text).await);
        }
        let user = self.authenticate(&request).await?;
        self.count_user(&user).await?;
        *handle.user.borrow_mut() = Some(Arc::clone(&user));
        self.worker.shared.note_session(handle.id, Some(&user.name));
        let mut session = self.into_session(handle, user, &request)?;
        session.client.check_collation(&mut session.at).await?;
        session.check_schema().await?;
        Ok(session)
    }

    /// An address that failed too often is not even greeted, or, where it is told by a proxy before us, heard.
    fn turn_away_blocked(&self) -> Result<(), End> {
        let vars = &self.worker.snapshot().vars;
        let limit = if vars.client_host_cache_size > 0 { vars.client_host_error_counts } else { 0 };
        let Some(peer) = self.peer.filter(|peer| limit > 0 && self.worker.shared.hosts.is_blocked(peer.ip(), limit)) else {
            return Ok(());
        };
        count(&self.worker.counters.hosts_blocked);
        Err(End::Refused(format!("{} failed to log in {limit} times or more (mysql-client_host_error_counts)", peer.ip())))
    }

    /// Whether the client came as the settings want it; what it lacks.
    fn is_safe_enough(&self) -> Result<(), String> {
        let vars = &self.worker.snapshot().vars;
        match self.link.stream().tls() {
            None if vars.require_secure_transport && self.peer.is_some() => {
                Err("The proxy requires TLS (mysql-require_secure_transport): connect with TLS".to_owned())
            }
            Some(tls) if vars.tls_min_version == TlsVersion::V1_3 && tls.protocol_version() != Some(rustls::ProtocolVersion::TLSv1_3) => {
                Err(format!("The proxy requires {} (mysql-tls_min_version): use a client that supports it", vars.tls_min_version.as_str()))
            }
            _ => Ok(()),
        }
    }

    /// Its place among the connections of its address, as far as that is known by now.
    async fn take_place(&mut self, handle: &SessionHandle) -> Result<(), End> {
        let most = self.worker.snapshot().vars.max_connections_per_address;
        handle.place.take();
        let Some(address) = self.peer.map(|peer| peer.ip()) else { return Ok(()) };
        match self.worker.shared.addresses.place(address, most) {
            Some(place) => {
                handle.place.replace(Some(place));
                Ok(())
            }
            None => {
                if self.seq > 0 {
                    // A client that was greeted reads no error before it has sent its login.
                    self.receive().await?;
                }
                let text = format!("Too many connections from {address} (mysql-max_connections_per_address)");
                Err(self.refuse(codes::CON_COUNT, "08004", &text).await)
            }
        }
    }

    async fn greet(&mut self, handle: &SessionHandle) -> Result<(), End> {
        let snapshot = self.worker.snapshot();
        let vars = &snapshot.vars;
        let info = self.worker.shared.info.get();
        let version = match (vars.server_version.as_str(), &info) {
            ("", Some(info)) => info.announced(vars.mariadb_version_prefix),
            ("", None) => FALLBACK_VERSION.to_owned(),
            (version, _) => version.to_owned(),
        };
        let is_mariadb = match (vars.server_version.as_str(), &info) {
            ("", Some(info)) => info.flavor == Flavor::MariaDb,
            _ => version.contains("MariaDB"),
        };
        let mut offered = OFFERED;
        offered.set(Capabilities::LONG_PASSWORD, !is_mariadb);
        offered.set(Capabilities::MULTI_STATEMENTS, vars.client_multi_statements);
        offered.set(Capabilities::DEPRECATE_EOF, vars.enable_client_deprecate_eof);
        offered.set(Capabilities::LOCAL_FILES, vars.enable_load_data_local_infile);
        offered.set(Capabilities::COMPRESS, vars.have_compress);
        offered.set(Capabilities::ZSTD_COMPRESSION, vars.have_compress && !is_mariadb);
        offered.set(Capabilities::SSL, self.worker.shared.tls.load().is_some());
        if let Some(info) = &info {
            offered.insert(offered_of(info.capabilities, is_mariadb, |flag| self.worker.shared.all_have(flag)));
        }
        self.offered = offered;
        let greeting = Greeting {
            server_version: version.into_bytes(),
            connection_id: u32::try_from(handle.id).unwrap_or(u32::MAX),
            scramble: self.scramble.to_vec(),
            capabilities: offered,
            collation: info.map_or(FALLBACK_COLLATION, |i| i.collation),
            status: StatusFlags::AUTOCOMMIT,
            plugin: self.default_plugin().name().as_bytes().to_vec(),
        };
        let mut payload = Vec::new();
        greeting.write(&mut payload);
        // Whoever left before the greeting was a health check.
        self.send_packet(&payload).await.map_err(|_| End::Quit)
    }

    fn default_plugin(&self) -> Plugin {
        Plugin::from_name(self.worker.snapshot().vars.default_authentication_plugin.as_str().as_bytes()).unwrap_or(Plugin::Native)
    }

    /// The client's answer, after PROXY header and TLS.
    async fn request(&mut self, handle: &SessionHandle) -> Result<Request, End> {
        self.read_proxy_header(handle).await?;
        let mut payload = self.receive().await?;
        let asks_for_tls = match SslRequest::parse(&payload) {
            Ok(request) => request.is_some(),
            Err(WireError::OldClient) => return Err(self.old_login(&payload).await),
            Err(e) => return Err(self.bad_handshake(e).await),
        };
        if asks_for_tls {
            let Some(tls) = self.worker.shared.tls.load_full().filter(|_| self.offered.contains(Capabilities::SSL)) else {
                return Err(self.bad_handshake(WireError::Malformed("the client asked for TLS, which the proxy did not offer")).await);
            };
            let connection = rustls::ServerConnection::new(Arc::clone(&tls.config)).map_err(|e| End::Refused(e.to_string()))?;
            self.fingerprint = Some(tls.fingerprint);
            let early = self.input.filled().to_vec();
            self.input.consume(early.len());
            self.link.stream_mut().accept_tls(connection, &early).await.map_err(|e| End::Refused(format!("TLS: {e}")))?;
            payload = self.receive().await?;
        }
        let response = match HandshakeResponse::parse(&payload) {
            Ok(response) => response,
            Err(e) => return Err(self.bad_handshake(e).await),
        };
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

    /// A client from before MySQL 4.1. Where the servers are MariaDB's it is logged in without a password, as there: a check of
    /// HAProxy's asks for no more. What it asks beyond COM_QUIT is refused.
    async fn old_login(&mut self, payload: &[u8]) -> End {
        self.is_old = true;
        let Some(login) = OldLogin::parse(payload).ok().filter(|_| self.worker.shared.serves_mariadb()) else {
            return self.bad_handshake(WireError::OldClient).await;
        };
        if let Err(text) = self.is_safe_enough() {
            return self.refuse(codes::SECURE_TRANSPORT_REQUIRED, "HY000", &text).await;
        }
        let user = self.worker.snapshot().frontend_user(login.user).cloned();
        let is_let_in = |user: &User| user.password == Password::Empty && !user.use_ssl && !login.has_password;
        if !user.is_some_and(|user| is_let_in(&user)) {
            return self.deny(login.user, login.has_password).await;
        }
        self.worker.shared.note_host(self.peer, HostLogin::Succeeded);
        let mut ok = Vec::new();
        OkPacket { status: StatusFlags::AUTOCOMMIT, ..OkPacket::default() }.write(&mut ok, OK, login.capabilities);
        if let Err(end) = self.send_packet(&ok).await {
            return end;
        }
        self.seq = 0;
        match self.receive().await {
            Ok(command) if command.first() == Some(&(Command::Quit as u8)) => End::Quit,
            Ok(_) => self.bad_handshake(WireError::OldClient).await,
            Err(_) => End::Quit,
        }
    }

    /// A proxy before us may say who the client is: only one from a trusted network is believed, and another one is told so.
    async fn read_proxy_header(&mut self, handle: &SessionHandle) -> Result<(), End> {
        let trusted = self.is_trusted();
        loop {
            match proxy_protocol::parse(self.input.filled()) {
                Parsed::NeedMore => self.read().await?,
                Parsed::Header { consumed, .. } if !trusted => {
                    self.input.consume(consumed);
                    // The client behind it reads no error before it has sent its login.
                    self.receive().await?;
                    let text = format!(
                        "The proxy accepts no PROXY protocol header from {}: add the address to mysql-proxy_protocol_networks",
                        self.host()
                    );
                    return Err(self.refuse(codes::HOST_NOT_PRIVILEGED, "HY000", &text).await);
                }
                Parsed::Header { origin, consumed } => {
                    self.input.consume(consumed);
                    if let Origin::Relayed { src, dst } = origin {
                        self.peer = Some(src);
                        self.local = Some(dst);
                        handle.row.is_between(self.peer, self.local);
                        self.turn_away_blocked()?;
                        return self.take_place(handle).await;
                    }
                    return self.take_place(handle).await;
                }
                // A trusted network's own clients send none.
                Parsed::Invalid(why) if proxy_protocol::is_one(self.input.filled()) => return Err(malformed(WireError::Malformed(why))),
                Parsed::Invalid(_) if trusted => return self.take_place(handle).await,
                Parsed::Invalid(_) => return Ok(()),
            }
        }
    }

    /// Whether the peer may name another address as the client's.
    fn is_trusted(&self) -> bool {
        self.peer.is_some_and(|peer| self.worker.snapshot().proxy_networks.contains(peer.ip()))
    }

    /// Proof of the password; the client has its error when this fails.
    async fn authenticate(&mut self, request: &Request) -> Result<Arc<User>, End> {
        let worker = Rc::clone(&self.worker);
        let name = name_in_utf8(worker.shared.info.get().as_deref(), request.collation, &request.user);
        let user = worker.snapshot().frontend_user(&name).cloned();
        self.user.clone_from(&user);
        let channel = self.link.stream().channel();
        let mut auth = ServerAuth::new(self.scramble, self.default_plugin(), channel);
        let verified = self.prove(&mut auth, (&name, user.as_deref()), request).await?;
        let known = user.zip(verified);
        let Some((user, verified)) = known else {
            return Err(self.deny(&name, auth.with_password()).await);
        };
        if user.use_ssl && self.link.stream().tls().is_none() {
            let text = tls_is_required(&user, &self.host());
            return Err(self.refuse(codes::ACCESS_DENIED, "28000", &text).await);
        }
        if !learn(&worker.shared, &user, &verified) {
            return Err(self.deny(&name, auth.with_password()).await);
        }
        worker.shared.note_host(self.peer, HostLogin::Succeeded);
        // As MariaDB from 11.4 on; a client of MySQL would take it for a statement's text.
        let proven = verified.native.zip(self.fingerprint).filter(|_| !self.caps.contains(Capabilities::LONG_PASSWORD));
        self.certificate_proof = proven.map(|(hash, fingerprint)| Box::new(certificate_proof(&hash, &self.scramble, &fingerprint)));
        if let Some(packet) = verified.before_ok {
            self.send_packet(&packet).await?;
        }
        Ok(user)
    }

    /// Runs the exchange; None when the password is wrong. Unknown users go through the same motions as others.
    async fn prove(
        &mut self,
        auth: &mut ServerAuth,
        (name, user): (&[u8], Option<&User>),
        request: &Request,
    ) -> Result<Option<Verified>, End> {
        let worker = Rc::clone(&self.worker);
        let snapshot = worker.snapshot();
        let secrets = user.map(|u| worker.shared.user(&u.name).secrets()).unwrap_or_default();
        let secret = scramble();
        let account = account(&worker.shared, user.map_or_else(|| decoy(&snapshot, name, &secret), stored), &secrets);
        let mut step = auth.start(&account, request.plugin.as_deref(), &request.response).map_err(malformed)?;
        loop {
            step = match step {
                Step::Done(verified) => return Ok(Some(verified)),
                Step::Denied => return Ok(None),
                Step::Send(payload) => {
                    self.send_packet(&payload).await?;
                    let answer = self.receive().await?;
                    auth.feed(&account, &answer).map_err(malformed)?
                }
                Step::Switch(plugin) => {
                    let data = [&self.scramble[..], &[0]].concat();
                    let mut payload = Vec::new();
                    AuthSwitchRequest { plugin: plugin.name().as_bytes(), data: &data }.write(&mut payload);
                    self.send_packet(&payload).await?;
                    let answer = self.receive().await?;
                    auth.feed(&account, &answer).map_err(malformed)?
                }
                // Milliseconds of hashing: not on the worker's thread.
                Step::Check(check) => worker.check(move || check.run()).await.unwrap_or(Step::Denied),
            };
        }
    }

    /// Counts the session with its user's, within `mysql_users.max_connections`.
    async fn count_user(&mut self, user: &User) -> Result<(), End> {
        let worker = Rc::clone(&self.worker);
        match count_session(&worker, user) {
            Ok(()) => Ok(()),
            Err(text) => Err(self.refuse(codes::USER_LIMIT_REACHED, "42000", &text).await),
        }
    }

    fn host(&self) -> String {
        host_of(self.peer)
    }

    async fn deny(&mut self, user: &[u8], with_password: bool) -> End {
        let text = denied(user, &self.host(), with_password);
        self.refuse(codes::ACCESS_DENIED, "28000", &text).await
    }

    /// A login that cannot be read.
    async fn bad_handshake(&mut self, e: WireError) -> End {
        let (code, sqlstate, text) = match e {
            WireError::OldClient => (codes::NOT_SUPPORTED_AUTH_MODE, "08004", OLD_CLIENT),
            _ => (codes::HANDSHAKE, "08S01", "Bad handshake"),
        };
        let _ = self.refuse(code, sqlstate, text).await;
        malformed(e)
    }

    /// Sends an error and returns the reason for the log.
    async fn refuse(&mut self, code: u16, sqlstate: &str, text: &str) -> End {
        let counters = &self.worker.counters;
        count(&counters.own_errors);
        match code {
            codes::CON_COUNT => count(&counters.denied_max_connections),
            codes::ACCESS_DENIED => {
                count(&counters.denied_password);
                self.worker.shared.note_host(self.peer, HostLogin::Failed);
            }
            codes::USER_LIMIT_REACHED => count(&counters.denied_max_user_connections),
            _ => {}
        }
        self.count_refusal(code, text);
        let mut state = ErrPacket::GENERAL;
        if let Some(given) = sqlstate.as_bytes().first_chunk() {
            state = *given;
        }
        let mut payload = Vec::new();
        let caps = self.caps | if self.seq > 1 && !self.is_old { Capabilities::PROTOCOL_41 } else { Capabilities::default() };
        ErrPacket { code, sqlstate: state, message: text.as_bytes() }.write(&mut payload, caps);
        let _ = self.send_packet(&payload).await;
        self.link.stream_mut().close_notify();
        End::Refused(text.to_owned())
    }

    /// Counts a refused login in `stats_mysql_errors`. An unknown name is no key there: strangers could fill the table with names.
    fn count_refusal(&self, code: u16, text: &str) {
        let (user, hostgroup) = self.user.as_ref().map_or_else(Default::default, |user| (user.name.clone(), user.default_hostgroup.0));
        let key = ErrorKey { hostgroup, host: "".into(), port: 0, user, schema: Box::default(), code };
        let client = self.peer.map(|peer| peer.ip());
        self.worker.meter.count_error(key, client, text.as_bytes(), self.worker.shared.clock.now_ms());
    }

    fn into_session(self, handle: Rc<SessionHandle>, user: Arc<User>, request: &Request) -> Result<Session, End> {
        let worker = self.worker;
        let proxy_addr = worker.memory.borrow_mut().proxy_addr(self.local, &worker.snapshot().listen);
        let client = Frontend {
            input: self.input,
            zstd_level: request.zstd_level,
            peer: self.peer,
            addr: self.peer.map(|peer| peer.ip().to_canonical().to_string().into()),
            login_seq: self.seq,
            ..Frontend::new(self.link, self.caps, request.collation, self.scramble, proxy_addr)
        };
        handle.certificate_proof.set(self.certificate_proof);
        let mut session = Session::new(worker, handle, client, user);
        session.begin(request.schema.as_deref());
        Ok(session)
    }

    async fn read(&mut self) -> Result<(), End> {
        // A health check connects and closes. The greeting that it leaves unread makes that a reset.
        let is_silent = self.seq <= 1 && self.input.is_empty();
        match self.link.read(&mut self.input, &self.worker.buffers).await {
            Ok(0) if is_silent => Err(End::Quit),
            Err(e) if is_silent && e.kind() == std::io::ErrorKind::ConnectionReset => Err(End::Quit),
            Ok(0) => Err(End::Refused("the client closed the connection during the login".into())),
            Ok(_) => Ok(()),
            Err(e) => Err(End::ClientError(e)),
        }
    }

    async fn receive(&mut self) -> Result<Vec<u8>, End> {
        loop {
            if let Some((len, seq)) = packet::header(self.input.filled()) {
                if seq != self.seq {
                    let _ = self.refuse(codes::NET_PACKETS_OUT_OF_ORDER, "08S01", "Got packets out of order").await;
                    return Err(malformed(WireError::OutOfOrder { expected: self.seq, got: seq }));
                }
                if len > MAX_LOGIN_PACKET {
                    return Err(self.bad_handshake(WireError::Malformed("login packet is too long")).await);
                }
                if let Some(payload) = self.input.filled().get(HEADER..HEADER + len) {
                    let payload = payload.to_vec();
                    self.input.consume(HEADER + len);
                    self.seq = seq.wrapping_add(1);
                    return Ok(payload);
                }
                // A client that announces much and sends nothing owns one step only.
                let step = grown(self.input.len()).max(CHUNK);
                self.input.reserve((HEADER + len).min(step), &self.worker.buffers);
            }
            self.read().await?;
        }
    }

    async fn send_packet(&mut self, payload: &[u8]) -> Result<(), End> {
        let mut out = Vec::with_capacity(payload.len() + HEADER);
        packet::put_packet(&mut out, &mut self.seq, payload);
        self.link.write_all(&out).await.map_err(End::ClientError)
    }
}

/// A client's address, as accounts name it.
pub(super) fn host_of(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "localhost".to_owned(), |peer| peer.ip().to_string())
}

pub(super) fn malformed(e: WireError) -> End {
    End::Refused(format!("bad handshake: {e}"))
}

/// A user's password, and the additional one.
pub(super) type Passwords<'a> = (Stored<'a>, Option<Stored<'a>>);

/// What a login is proven against.
pub(super) fn account<'a>(shared: &'a Shared, (stored, additional): Passwords<'a>, learnt: &'a LearntSecrets) -> Account<'a> {
    let additional = additional.map(|stored| Known { stored, fast: learnt.additional_fast.as_ref() });
    Account { stored, fast: learnt.fast.as_ref(), additional, key: shared.rsa.as_ref() }
}

pub(super) fn stored(user: &User) -> Passwords<'_> {
    (as_stored(&user.password), user.attributes.additional_password.as_ref().map(as_stored))
}

fn as_stored(password: &Password) -> Stored<'_> {
    match password {
        Password::Empty => Stored::Empty,
        Password::Clear(secret) => Stored::Clear(secret.expose()),
        Password::NativeHash(hash) => Stored::NativeHash(hash.0),
        // INVARIANT: `Password::read` takes only ASCII text that begins with `$A$`; anything else would not verify.
        Password::CachingSha2Hash(text) => Stored::CachingSha2(std::str::from_utf8(text.expose()).unwrap_or_default()),
    }
}

/// What a user who is not there has instead of a password, which nobody has: for one name always of the same kind, and of each
/// kind as often as users have it who are there.
pub(super) fn decoy<'a>(snapshot: &'a Snapshot, name: &[u8], secret: &'a [u8; SCRAMBLE]) -> Passwords<'a> {
    static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let users = snapshot.users.len().max(1) as u64;
    let nth = usize::try_from(NAMES.hash_one(name) % users).unwrap_or_default();
    let unlike = |like: Stored<'a>| match like {
        Stored::NativeHash(_) => Stored::NativeHash(*secret),
        Stored::CachingSha2(_) => like,
        Stored::Clear(_) | Stored::Empty => Stored::Clear(secret),
    };
    let (first, additional) = snapshot.users.values().nth(nth).map_or((Stored::Empty, None), |user| stored(user));
    (unlike(first), additional.map(unlike))
}

/// Counts a session with its user's, within `mysql_users.max_connections`; the text for the client when there are too many.
pub(super) fn count_session(worker: &Worker, user: &User) -> Result<(), String> {
    let max = user.max_connections;
    let counted =
        worker.shared.user(&user.name).connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < max).then_some(n + 1));
    match counted {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("User '{}' has exceeded the 'max_user_connections' resource (current value: {max})", user.name)),
    }
}

pub(super) fn tls_is_required(user: &User, host: &str) -> String {
    format!("Access denied for user '{}'@'{host}' (SSL is required)", user.name)
}

/// What a client is told who has the wrong name or password.
pub(super) fn denied(user: &[u8], host: &str, with_password: bool) -> String {
    let using = if with_password { "YES" } else { "NO" };
    format!("Access denied for user '{}'@'{host}' (using password: {using})", shown_name(user))
}

/// Keeps what the login proved: later logins are faster, and backends can be logged in to. False when the user has another
/// password by now, or is none any more: what was proved is worth nothing.
pub(super) fn learn(shared: &Shared, user: &User, verified: &Verified) -> bool {
    shared.user(&user.name).learn(|secrets| {
        // What is in force is looked at under the lock under which a change of passwords forgets them.
        let in_force = shared.in_force.load();
        let now = in_force.snapshot.frontend_user(user.name.as_bytes());
        let is_it_still = now.is_some_and(|now| match verified.which {
            Which::Primary => now.password == user.password,
            Which::Additional => now.attributes.additional_password == user.attributes.additional_password,
        });
        if !is_it_still {
            return false;
        }
        if verified.which == Which::Additional {
            secrets.additional_fast = verified.fast.or(secrets.additional_fast);
            return true;
        }
        if let Some(clear) = &verified.clear {
            secrets.clear = Some(clear.clone());
        }
        secrets.sha1 = verified.sha1.or(secrets.sha1);
        secrets.fast = verified.fast.or(secrets.fast);
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags are compared one by one: MariaDB has had bulk executions for longer than their unit results.
    #[test]
    fn clients_are_offered_what_all_servers_have() {
        let (attributes, metadata) = (Capabilities::QUERY_ATTRIBUTES, Capabilities::MARIADB_CLIENT_EXTENDED_METADATA);
        let (bulk, units) = (Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS, Capabilities::MARIADB_CLIENT_BULK_UNIT_RESULTS);
        let mariadb = bulk | units | metadata;
        for (heard, is_mariadb, of_all, offered) in [
            (mariadb, true, mariadb, mariadb),
            (mariadb, true, bulk | metadata, bulk | metadata),
            (mariadb, true, attributes, metadata),
            (mariadb | attributes, false, mariadb | attributes, attributes),
            (attributes, false, mariadb, Capabilities::default()),
            (Capabilities::default(), true, mariadb | attributes, Capabilities::default()),
        ] {
            assert_eq!(offered_of(heard, is_mariadb, |flag| of_all.contains(flag)), offered, "{heard:?} {of_all:?}");
        }
    }
}
