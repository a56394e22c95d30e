//! Opening a backend: socket, greeting, TLS, login, and ([`ready`]) what it begins with.

mod error;
mod ready;

pub(crate) use error::ConnectError;
pub(crate) use ready::{allow_several, make_ready, our_tracking, prepare_again};

use crate::backends::backend::Backend;
use crate::backends::proven::Proven;
use crate::clients::users::LearntSecrets;
use crate::net::buffer::{Buffer, BufferPool};
use crate::net::link::{Compression, Link};
use crate::net::stream::{Socket, Stream, invalid};
use crate::servers::server::{ServerShared, Slot, Transport};
use crate::workers::in_force::SnapshotInForce;
use crate::workers::worker::Worker;
use error::refusal;
use meter::error_key;
use model::MysqlVariables;
use model::snapshot::{Address, Password};
use session_state::class::LaneKey;
use session_state::collected::ServerError;
use session_state::server_info::{Family, ServerInfo};
use session_state::state::Text;
use socket2::TcpKeepalive;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use wire::auth::Plugin;
use wire::auth::client::{ClientAuth, ClientSecret, ClientStep, FirstAnswer};
use wire::charset::{self, Flavor};
use wire::codes;
use wire::compress::Method;
use wire::flags::Capabilities;
use wire::handshake::{ChangeUser, Greeting, HandshakeResponse, SslRequest, put_attribute};
use wire::packet;

/// What Tidegate always asks of a server, as far as the server has it.
const WANTED: Capabilities = Capabilities::LOGIN.union(Capabilities::CONNECT_ATTRS).union(Capabilities::SESSION_TRACK);

/// Largest packet of a login, bytes.
const MAX_LOGIN_PACKET: usize = 64 << 10;
/// Collation when the session's own is not known to the server: utf8mb4_general_ci, which all servers have.
const FALLBACK_COLLATION: u8 = 45;

/// A socket to a server with the greeting read.
pub(crate) struct Greeted {
    login: Login,
    /// What the server's row said before.
    transport: Transport,
    greeting: Greeting,
}

/// A login under way: packets with sequence ids.
struct Login {
    link: Link,
    input: Buffer,
    seq: u8,
}

impl Login {
    fn exchange(&mut self) -> Exchange<'_> {
        Exchange { link: &mut self.link, input: &mut self.input, seq: &mut self.seq }
    }

    /// Nothing is there that was not read. What is there before TLS was not said under it, and what is there after the login
    /// answers nothing: it would be taken for the answer to the first statement, and so on.
    fn heard_all(&self) -> Result<(), ConnectError> {
        if self.input.is_empty() {
            Ok(())
        } else {
            Err(ConnectError::Server("the server sent an unexpected packet during the login".into()))
        }
    }
}

/// The packets of a login.
struct Exchange<'a> {
    link: &'a mut Link,
    input: &'a mut Buffer,
    seq: &'a mut u8,
}

impl Exchange<'_> {
    async fn receive(&mut self, pool: &BufferPool) -> io::Result<Vec<u8>> {
        loop {
            if let Some((len, seq)) = packet::header(self.input.filled()) {
                if len > MAX_LOGIN_PACKET {
                    return Err(invalid("login packet is too long"));
                }
                if let Some(payload) = self.input.filled().get(packet::HEADER..packet::HEADER + len) {
                    let payload = payload.to_vec();
                    self.input.consume(packet::HEADER + len);
                    *self.seq = seq.wrapping_add(1);
                    return Ok(payload);
                }
                self.input.reserve(packet::HEADER + len, pool);
            }
            if self.link.read(self.input, pool).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection during the login"));
            }
        }
    }

    async fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut out = Vec::with_capacity(payload.len() + packet::HEADER);
        packet::put_packet(&mut out, self.seq, payload);
        self.link.write_all(&out).await
    }
}

/// Opens a connection for a lane, at this address whatever the server's name stands for, or at its own. `collation` is the session's;
/// the caller limits the time and holds the permit. It serves sessions when it was [made ready](make_ready).
pub(crate) async fn enter(
    worker: &Worker,
    server: &Arc<ServerShared>,
    address: Option<IpAddr>,
    lane: &LaneKey,
    collation: u8,
    slot: Slot,
) -> Result<Backend, ConnectError> {
    KnownPassword::of(worker, lane).secret(lane)?;
    let greeted = greet(worker, server, address).await?;
    let lacked = lacked(server, lane, greeted.greeting.capabilities);
    let collation = pool_collation(&info_of(&greeted.greeting), collation, &lane.user.name);
    let caps = backend_capabilities(worker, server, lane.class.capabilities(), greeted.greeting.capabilities, true);
    // The proxy logs in even if the server will not do. Servers block hosts that leave before the login (max_connect_errors), and what
    // the server said decides what later clients are offered.
    let backend = log_in(worker, server, lane, caps, collation, None, greeted, slot).await?;
    lacked.map_or(Ok(backend), Err)
}

/// Why a server that offers these capabilities cannot serve the lane; None if it can. A server without query attributes takes the
/// parameter count of an execution for the bits that mark NULLs, and writes other values.
fn lacked(server: &ServerShared, lane: &LaneKey, offered: Capabilities) -> Option<ConnectError> {
    let needed = lane.class.capabilities() & Capabilities::QUERY_ATTRIBUTES;
    (!offered.contains(needed)).then(|| {
        let text = "does not support query attributes (CLIENT_QUERY_ATTRIBUTES), which this client uses";
        ConnectError::Lacks(format!("{} {text}", server.key))
    })
}

/// What decides how packets look that pass untranslated.
const SHAPE: Capabilities = Capabilities::DEPRECATE_EOF
    .union(Capabilities::SESSION_TRACK)
    .union(Capabilities::QUERY_ATTRIBUTES)
    .union(Capabilities::MARIADB_CLIENT_EXTENDED_METADATA);

/// What a `fast_forward` session's client logged in with.
pub(crate) struct Raw {
    /// The capabilities that it was promised.
    pub capabilities: Capabilities,
    /// Its schema.
    pub schema: Option<Text>,
}

/// Opens a connection for a `fast_forward` session.
pub(crate) async fn open_raw(
    worker: &Worker,
    server: &Arc<ServerShared>,
    lane: &LaneKey,
    raw: &Raw,
    collation: u8,
    slot: Slot,
) -> Result<Backend, ConnectError> {
    KnownPassword::of(worker, lane).secret(lane)?;
    let greeted = greet(worker, server, None).await?;
    let shape = raw.capabilities & SHAPE;
    let mut caps = backend_capabilities(worker, server, lane.class.capabilities(), greeted.greeting.capabilities, false);
    // Compressed, packets are numbered otherwise, and nobody numbers them anew here.
    caps.remove(SHAPE | Capabilities::COMPRESS);
    let has_shape = greeted.greeting.capabilities.contains(shape);
    caps.insert(shape & greeted.greeting.capabilities);
    // As in [`enter`].
    let backend = log_in(worker, server, lane, caps, collation, raw.schema.as_deref(), greeted, slot).await?;
    if !has_shape {
        let text = "lacks protocol features that the proxy offered to the client";
        return Err(ConnectError::Lacks(format!("{} {text}", server.key)));
    }
    worker.shared.info.set(ServerInfo::clone(&backend.core.info));
    Ok(backend)
}

/// Connects and reads the greeting.
async fn greet(worker: &Worker, server: &ServerShared, address: Option<IpAddr>) -> Result<Greeted, ConnectError> {
    let transport = server.transport();
    let link = Link::new(Stream::new(connect_socket(worker, server, address).await?));
    let mut login = Login { link, input: Buffer::default(), seq: 0 };
    let payload = login.exchange().receive(&worker.buffers).await?;
    if payload.first() == Some(&wire::message::ERR) {
        return Err(ConnectError::Closed(ServerError::read(&payload, Capabilities::default())));
    }
    let greeting = Greeting::parse(&payload)?;
    Ok(Greeted { login, transport, greeting })
}

/// What a server says of itself, without logging in.
pub(crate) async fn probe(worker: &Worker, server: &ServerShared) -> Result<ServerInfo, ConnectError> {
    Ok(info_of(&greet(worker, server, None).await?.greeting))
}

fn info_of(greeting: &Greeting) -> ServerInfo {
    let version = String::from_utf8_lossy(greeting.version()).into_owned();
    let flavor = if greeting.is_mariadb() { Flavor::MariaDb } else { Flavor::MySql };
    ServerInfo {
        family: Family::of(flavor, &version),
        version,
        flavor,
        tracking: Arc::default(),
        capabilities: greeting.capabilities,
        collation: greeting.collation,
        status: greeting.status,
    }
}

async fn connect_socket(worker: &Worker, server: &ServerShared, at: Option<IpAddr>) -> io::Result<Socket> {
    #[cfg(feature = "sim")]
    if let Some(simulated) = worker.shared.simulated.get() {
        return Ok(Socket::Memory(simulated.connect(&server.config().address).await?));
    }
    match &server.config().address {
        Address::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path).await?)),
        Address::Tcp { host, port } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, format!("the name {host} has no address"));
            let names = &worker.shared.names;
            let addresses = match at {
                Some(ip) => Arc::from([ip]),
                None => names.addresses(host).await?,
            };
            for ip in addresses.iter() {
                let address = SocketAddr::new(*ip, *port);
                let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                match socket.connect(address).await {
                    Ok(stream) => {
                        tune(&stream, worker)?;
                        return Ok(Socket::Tcp(stream));
                    }
                    Err(e) => last = e,
                }
            }
            if at.is_none() {
                names.doubt(host);
            }
            Err(last)
        }
    }
}

/// TCP_NODELAY, and keep-alive as configured.
pub(crate) fn tune(stream: &TcpStream, worker: &Worker) -> io::Result<()> {
    let snapshot = worker.snapshot();
    let vars = &snapshot.vars;
    stream.set_nodelay(true)?;
    if vars.use_tcp_keepalive {
        socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive(vars))?;
    }
    Ok(())
}

/// Without them, a peer whose host has vanished is noticed by Linux after eleven minutes more; until then it holds its locks.
fn keepalive(vars: &MysqlVariables) -> TcpKeepalive {
    let mut keepalive = TcpKeepalive::new();
    if vars.tcp_keepalive_time > 0 {
        keepalive = keepalive.with_time(Duration::from_secs(vars.tcp_keepalive_time));
    }
    if vars.tcp_keepalive_interval > 0 {
        keepalive = keepalive.with_interval(Duration::from_secs(vars.tcp_keepalive_interval));
    }
    match u32::try_from(vars.tcp_keepalive_probes) {
        Ok(probes @ 1..) => keepalive.with_retries(probes),
        _ => keepalive,
    }
}

fn backend_capabilities(worker: &Worker, server: &ServerShared, class: Capabilities, offered: Capabilities, own: bool) -> Capabilities {
    let snapshot = worker.snapshot();
    let vars = &snapshot.vars;
    let mut wanted = WANTED | class;
    if own && vars.enable_server_deprecate_eof {
        wanted.insert(Capabilities::DEPRECATE_EOF);
    }
    if server.config().compression {
        wanted.insert(Capabilities::COMPRESS);
    }
    wanted & offered
}

#[allow(clippy::too_many_arguments)]
async fn log_in(
    worker: &Worker,
    server: &Arc<ServerShared>,
    lane: &LaneKey,
    mut caps: Capabilities,
    collation: u8,
    schema: Option<&[u8]>,
    greeted: Greeted,
    slot: Slot,
) -> Result<Backend, ConnectError> {
    let Greeted { mut login, transport, greeting } = greeted;
    login.heard_all()?;
    let info = info_of(&greeting);
    let schema = schema.filter(|s| !s.is_empty());
    if schema.is_some() {
        caps.insert(Capabilities::CONNECT_WITH_DB);
    }
    if server.config().use_ssl && !login.link.stream().is_secure() {
        if !greeting.capabilities.contains(Capabilities::SSL) {
            return Err(ConnectError::Server("use_ssl=1 requires TLS, but the server does not offer it".into()));
        }
        caps.insert(Capabilities::SSL);
        let mut payload = Vec::new();
        SslRequest { capabilities: caps, max_packet: MAX_PACKET, collation }.write(&mut payload);
        login.exchange().send(&payload).await?;
        let connection = tls::client(&worker.shared.client_tls, &server.config(), &lane.user.name).map_err(ConnectError::Tls)?;
        worker.shared.client_tls.complaints().iter().for_each(|line| tracing::warn!("{line}"));
        login.link.stream_mut().connect_tls(connection).await.map_err(|e| match ConnectError::from(e) {
            ConnectError::Server(text) => ConnectError::Server(format!("TLS: {text}")),
            refused => refused,
        })?;
    }
    let response = |first: &FirstAnswer| {
        let (attributes, mut payload) = (attributes(), Vec::new());
        HandshakeResponse {
            capabilities: caps,
            max_packet: MAX_PACKET,
            collation,
            user: lane.user.name.as_bytes(),
            auth_response: &first.response,
            schema,
            plugin: Some(first.plugin.name().as_bytes()),
            attributes: &attributes,
            zstd_level: 0,
        }
        .write(&mut payload);
        payload
    };
    let proven = prove(worker, lane, (&greeting.plugin, &greeting.scramble), caps, response, login.exchange()).await?;
    if caps.contains(Capabilities::COMPRESS) {
        login.link.compress(Compression::new(zlib(&worker.snapshot())));
    }
    let info = worker.shared.heard(server, info);
    login.heard_all()?;
    let Login { link, input, .. } = login;
    let mut backend =
        Backend::new(link, lane.clone(), Arc::clone(server), info, caps, greeting.connection_id, slot, worker.shared.clock.now_ms());
    backend.input = input;
    backend.core.transport = transport;
    let (plugin, scramble) = proven;
    backend.core.proven = Some(Box::new(Proven { plugin, scramble, collation }));
    set_charset_state(&mut backend, collation);
    Ok(backend)
}

/// Largest packet announced to servers, bytes; the real limit is the server's own.
const MAX_PACKET: u32 = 1 << 30;

/// What is said in the handshake for a session's collation.
fn known_collation(info: &ServerInfo, collation: u8) -> u8 {
    if charset::collation_in(info.flavor, u16::from(collation)).is_some() { collation } else { FALLBACK_COLLATION }
}

/// What is said in the handshake of a connection that others use as well: servers read the user's name in that character set.
fn pool_collation(info: &ServerInfo, collation: u8, user: &str) -> u8 {
    let collation = known_collation(info, collation);
    let reads_utf8 = || info.collation_of(u16::from(collation)).is_some_and(|known| charset::is_utf8(known.charset.as_bytes()));
    if user.is_ascii() || reads_utf8() { collation } else { FALLBACK_COLLATION }
}

/// The handshake's collation sets four variables, and the collations that go with two of them.
fn set_charset_state(backend: &mut Backend, collation: u8) {
    let info = &backend.core.info;
    let collation = known_collation(info, collation);
    if let Some(c) = info.login_collation(u16::from(collation)) {
        backend.core.held.began_with(c);
    }
}

/// Proves the password; `first` makes the first packet.
async fn prove(
    worker: &Worker,
    lane: &LaneKey,
    (plugin, scramble): (&[u8], &[u8]),
    caps: Capabilities,
    first: impl FnOnce(&FirstAnswer) -> Vec<u8>,
    mut login: Exchange<'_>,
) -> Result<(Plugin, Box<[u8]>), ConnectError> {
    let known = KnownPassword::of(worker, lane);
    let mut auth = ClientAuth::new(known.secret(lane)?, login.link.stream().channel());
    let answer = auth.begin(plugin, scramble)?;
    login.send(&first(&answer)).await?;
    loop {
        let packet = login.receive(&worker.buffers).await?;
        let step = match auth.feed(&packet).map_err(ConnectError::from) {
            Ok(step) => step,
            Err(error) => {
                if matches!(error, ConnectError::Impossible(_)) && login.send(auth.no_password()).await.is_ok() {
                    // Whatever it says, the login cannot be made.
                    _ = login.receive(&worker.buffers).await;
                }
                return Err(error);
            }
        };
        match step {
            ClientStep::Send(answer) => login.send(&answer).await?,
            ClientStep::Wait => {}
            ClientStep::Accepted => {
                let (plugin, scramble) = auth.last();
                return Ok((plugin, scramble.into()));
            }
            ClientStep::Refused => return Err(refusal(ServerError::read(&packet, caps))),
        }
    }
}

/// What is known of a user's password.
struct KnownPassword {
    snapshot: SnapshotInForce,
    learnt: LearntSecrets,
}

impl KnownPassword {
    fn of(worker: &Worker, lane: &LaneKey) -> Self {
        Self { snapshot: worker.snapshot(), learnt: worker.shared.user(&lane.user.name).secrets() }
    }

    /// What proves the password to servers. It is asked before a connect: servers count clients that leave before the login.
    fn secret<'a>(&'a self, lane: &'a LaneKey) -> Result<ClientSecret<'a>, ConnectError> {
        let credentials = self.snapshot.backend_user(lane.user.name.as_bytes()).unwrap_or(&lane.user);
        let frontend = self.snapshot.frontend_user(lane.user.name.as_bytes());
        secret_for(&credentials.password, frontend.map(|user| &user.password), &self.learnt).ok_or_else(|| {
            let text = "the proxy has only a hash of the password: store the password in clear text, or let a client log in first";
            ConnectError::NoSecret(text.into())
        })
    }
}

/// What proves the password of these credentials; None if only a hash of it is known. What logins of clients taught is of the `frontend`
/// row's password. The row for servers may have another one.
fn secret_for<'a>(credentials: &'a Password, frontend: Option<&Password>, learnt: &'a LearntSecrets) -> Option<ClientSecret<'a>> {
    match credentials {
        Password::Empty => Some(ClientSecret::Empty),
        Password::Clear(clear) => Some(ClientSecret::Clear(clear.expose())),
        Password::NativeHash(_) | Password::CachingSha2Hash(_) if frontend != Some(credentials) => None,
        Password::NativeHash(_) | Password::CachingSha2Hash(_) => {
            learnt.clear.as_deref().map(ClientSecret::Clear).or(learnt.sha1.map(ClientSecret::Sha1))
        }
    }
}

/// Connection attributes of the proxy's own.
fn attributes() -> Vec<u8> {
    let mut attributes = Vec::new();
    put_attribute(&mut attributes, b"_client_name", b"tidegate");
    put_attribute(&mut attributes, b"program_name", b"tidegate");
    put_attribute(&mut attributes, b"_client_version", env!("CARGO_PKG_VERSION").as_bytes());
    attributes
}

/// COM_CHANGE_USER to the same user: the connection is as after its login, without a schema.
///
/// # Errors
/// The connection is of no use any more. A server that refuses this once is not asked again.
pub(crate) async fn log_in_again(worker: &Worker, backend: &mut Backend) -> Result<(), ConnectError> {
    let Backend { link, input, core } = backend;
    let (mut seq, caps) = (0, core.caps);
    link.start_command();
    let Some(proven) = core.proven.take() else {
        return Err(ConnectError::Impossible("the connection was not opened by this process".into()));
    };
    let command = |first: &FirstAnswer| {
        let (attributes, mut payload) = (attributes(), Vec::new());
        ChangeUser {
            user: core.lane.user.name.as_bytes(),
            auth_response: &first.response,
            schema: b"",
            collation: Some(u16::from(proven.collation)),
            plugin: Some(first.plugin.name().as_bytes()),
            attributes: &attributes,
        }
        .write(&mut payload, caps);
        payload
    };
    let last = (proven.plugin.name().as_bytes(), &*proven.scramble);
    let exchange = Exchange { link, input, seq: &mut seq };
    let (plugin, scramble) = match prove(worker, &core.lane, last, caps, command, exchange).await {
        Ok(proven) => proven,
        Err(e) => {
            // At the user's limit some servers count it twice.
            if matches!(e, ConnectError::Login(_) | ConnectError::UsedUp(_) | ConnectError::Impossible(_) | ConnectError::NoSecret(_)) {
                core.server.info.refused_change_user();
            }
            return Err(e);
        }
    };
    core.proven = Some(Box::new(Proven { plugin, scramble, ..*proven }));
    core.held.logged_in_again();
    core.statements.clear();
    set_charset_state(backend, proven.collation);
    prepare_again(worker, backend).await
}

/// CLIENT_COMPRESS as it is configured.
pub(crate) fn zlib(snapshot: &model::Snapshot) -> Method {
    // At most 9.
    Method::Zlib { level: u32::try_from(snapshot.vars.protocol_compression_level).unwrap_or(9) }
}

/// Counts a connect to a server that has ended.
pub(crate) fn counted<T>(worker: &Worker, server: &ServerShared, lane: &LaneKey, result: &Result<T, ConnectError>) {
    server.counts.connected(result.is_ok(), server.connections());
    let (code, text) = match result {
        Ok(_) => return,
        Err(ConnectError::Closed(e) | ConnectError::Login(e) | ConnectError::UsedUp(e) | ConnectError::InitConnect(e)) => {
            (e.code, e.message.as_slice())
        }
        Err(ConnectError::Server(text) | ConnectError::Unfit(text) | ConnectError::Lacks(text) | ConnectError::Tls(text)) => {
            (codes::CONN_HOST_ERROR, text.as_bytes())
        }
        Err(ConnectError::Impossible(text) | ConnectError::NoSecret(text)) => (codes::ACCESS_DENIED, text.as_bytes()),
    };
    let key = error_key(&server.key, &lane.user.name, &[], code);
    worker.meter.count_error(key, None, text, worker.clock.now_ms());
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::HostgroupId;
    use model::snapshot::{NativeHash, Snapshot};
    use session_state::class::Class;
    use socket2::{Domain, Socket, Type};
    use std::io::{Read, Write};
    use std::rc::Rc;
    use std::sync::atomic::Ordering;
    use wire::flags::StatusFlags;

    /// The port of a server that offers these capabilities and accepts one login.
    fn server_with(capabilities: Capabilities) -> u16 {
        server_that(capabilities, drop)
    }

    /// The same, and what it does with the connection then.
    fn server_that(capabilities: Capabilities, serve: impl FnOnce(std::net::TcpStream) + Send + 'static) -> u16 {
        server_answering(capabilities, &[0, 0, 0, 2, 0, 0, 0], serve)
    }

    /// The same, and its answer to the login.
    fn server_answering(capabilities: Capabilities, answer: &[u8], serve: impl FnOnce(std::net::TcpStream) + Send + 'static) -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let greeting = Greeting {
            server_version: b"8.4.0".to_vec(),
            connection_id: 7,
            scramble: vec![b'a'; 20],
            capabilities,
            collation: 45,
            status: StatusFlags::AUTOCOMMIT,
            plugin: b"mysql_native_password".to_vec(),
        };
        let (mut payload, mut out, mut answered) = (Vec::new(), Vec::new(), Vec::new());
        greeting.write(&mut payload);
        packet::put_packet(&mut out, &mut 0, &payload);
        packet::put_packet(&mut answered, &mut 2, answer);
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            client.write_all(&out).expect("it reads");
            // The login is shorter.
            assert!(client.read(&mut [0; 4096]).expect("it logs in") > 0);
            client.write_all(&answered).expect("it reads");
            serve(client);
        });
        port
    }

    /// A worker, the server at this port, and a lane of clients with these capabilities.
    fn bed_of(port: u16, promised: Capabilities) -> (Rc<Worker>, Arc<ServerShared>, LaneKey) {
        bed_with(port, promised, "")
    }

    /// The same, and the password of its user.
    fn bed_with(port: u16, promised: Capabilities, password: &str) -> (Rc<Worker>, Arc<ServerShared>, LaneKey) {
        let text = format!(
            "mysql_servers = ( {{ hostgroup=0, address=\"127.0.0.1\", port={port} }} )\n\
             mysql_users = ( {{ username=\"u\", password=\"{password}\" }} )"
        );
        let snapshot = Arc::new(Snapshot::compile(&model::parse(&text, "test.cnf").expect("a configuration").0).expect("a valid one"));
        let worker = crate::bed::worker(Arc::clone(&snapshot));
        let server = Arc::clone(&worker.shared.hostgroup(HostgroupId(0)).servers()[0]);
        let lane = LaneKey { hostgroup: HostgroupId(0), user: Arc::clone(&snapshot.users["u"]), class: Class::of(promised) };
        (worker, server, lane)
    }

    #[tokio::test]
    async fn a_server_without_query_attributes_refuses_clients_that_have_them() {
        let attributes = Capabilities::QUERY_ATTRIBUTES;
        for (offered, promised) in [(false, true), (false, false), (true, true), (true, false)] {
            let only_if = |is_so| if is_so { attributes } else { Capabilities::default() };
            let port = server_with(Capabilities::LOGIN | only_if(offered));
            let (worker, server, lane) = bed_of(port, only_if(promised));
            let entered = enter(&worker, &server, None, &lane, 45, Slot::extra()).await;
            let is_refused = promised && !offered;
            let case = format!("{offered} {promised}: {:?}", entered.as_ref().err());
            assert!(if is_refused { matches!(entered, Err(ConnectError::Lacks(_))) } else { entered.is_ok() }, "{case}");
            assert_eq!(worker.shared.hostgroup(HostgroupId(0)).has(attributes), offered, "{case}: what later clients are offered");
        }
    }

    #[tokio::test]
    async fn a_server_sees_no_login_for_which_no_password_is_known() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("it can be set");
        let port = listener.local_addr().expect("an address").port();
        let (worker, server, lane) = bed_with(port, Capabilities::default(), "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19");
        let raw = Raw { capabilities: Capabilities::default(), schema: None };
        let entered = enter(&worker, &server, None, &lane, 45, Slot::extra()).await;
        let opened = open_raw(&worker, &server, &lane, &raw, 45, Slot::extra()).await;
        assert!([entered, opened].iter().all(|result| matches!(result, Err(ConnectError::NoSecret(_)))));
        assert_eq!(listener.accept().expect_err("nobody connects").kind(), io::ErrorKind::WouldBlock);
    }

    /// MySQL and MariaDB block hosts whose clients leave during the login (`max_connect_errors`).
    #[tokio::test]
    async fn a_login_that_cannot_be_made_is_ended_by_the_server() {
        // Without TLS the password is not sent in clear.
        for (plugin, wrong) in [("mysql_clear_password", &[0_u8][..]), ("unknown_plugin", &[][..])] {
            let (told, heard) = std::sync::mpsc::channel();
            let switch = [b"\xfe".as_slice(), plugin.as_bytes(), b"\0".as_slice()].concat();
            let port = server_answering(Capabilities::LOGIN, &switch, move |mut client| {
                let (mut header, mut refusal, mut rest) = ([0; packet::HEADER], Vec::new(), Vec::new());
                client.read_exact(&mut header).expect("a packet");
                let (len, seq) = packet::header(&header).expect("a header");
                let mut answer = vec![0; len];
                client.read_exact(&mut answer).expect("its payload");
                packet::put_packet(&mut refusal, &mut seq.wrapping_add(1), b"\xff\x15\x04#28000Access denied");
                client.write_all(&refusal).expect("it reads");
                client.read_to_end(&mut rest).expect("it closes");
                told.send((answer, rest)).expect("the test listens");
            });
            let (worker, server, lane) = bed_with(port, Capabilities::default(), "secret");
            let entered = enter(&worker, &server, None, &lane, 45, Slot::extra()).await;
            assert!(matches!(entered, Err(ConnectError::Impossible(_))), "{plugin}");
            assert_eq!(heard.recv().expect("a packet"), (wrong.to_vec(), Vec::new()), "{plugin}");
        }
    }

    /// Its password has expired: it may do nothing but change it.
    #[tokio::test]
    async fn what_a_server_refuses_to_one_account_is_asked_again() {
        let port = server_that(Capabilities::LOGIN | Capabilities::SESSION_TRACK, |mut client| {
            let (mut header, mut refusal) = ([0; packet::HEADER], Vec::new());
            packet::put_packet(&mut refusal, &mut 1, b"\xff\x1c\x07#HY000You must reset your password using ALTER USER");
            while client.read_exact(&mut header).is_ok() {
                let (len, _) = packet::header(&header).expect("a header");
                client.read_exact(&mut vec![0; len]).expect("a command");
                if client.write_all(&refusal).is_err() {
                    break;
                }
            }
        });
        let (worker, server, lane) = bed_of(port, Capabilities::default());
        let mut backend = enter(&worker, &server, None, &lane, 45, Slot::extra()).await.expect("it is let in");
        make_ready(&worker, &mut backend, 45).await.expect("it serves");
        assert!(backend.core.info.tracking.get().is_none() && !backend.core.held.tracks());
        assert!(!server.is_known_silent.load(Ordering::Relaxed), "it was not seen");
    }

    #[test]
    fn what_clients_proved_is_used_for_the_same_password_only() {
        let hash = |byte| Password::NativeHash(NativeHash([byte; 20]));
        let (one, other, clear) = (hash(1), hash(2), Password::Clear("secret".into()));
        let learnt = LearntSecrets { sha1: Some([7; 20]), ..LearntSecrets::default() };
        let is_known = |credentials: &Password, frontend: Option<&Password>| secret_for(credentials, frontend, &learnt).is_some();
        assert!(is_known(&one, Some(&one)));
        assert!(!is_known(&one, Some(&other)) && !is_known(&one, Some(&clear)) && !is_known(&one, None));
        assert!(is_known(&clear, Some(&one)) && is_known(&Password::Empty, Some(&one)), "nothing has to be learnt");
    }

    #[test]
    fn keepalives() {
        let seconds = Duration::from_secs;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let system = (socket.tcp_keepalive_interval().expect("it is told"), socket.tcp_keepalive_retries().expect("it is told"));
        let set = |vars: &MysqlVariables| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            socket.set_tcp_keepalive(&keepalive(vars)).expect("it can be set");
            let told = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval(), socket.tcp_keepalive_retries());
            (told.0.expect("it is told"), (told.1.expect("it is told"), told.2.expect("it is told")))
        };
        assert_eq!(set(&MysqlVariables::default()), (seconds(120), (seconds(15), 4)));
        let own = MysqlVariables { tcp_keepalive_time: 7, tcp_keepalive_interval: 0, tcp_keepalive_probes: 0, ..Default::default() };
        assert_eq!(set(&own), (seconds(7), system));
    }
}
