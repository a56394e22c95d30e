//! Opening a connection: socket, greeting, TLS, login.
//!
//! A server that accepts connections and stays silent costs only a socket. Logins count against [`LOGINS_MAX`] from the greeting on, when
//! the work of TLS and passwords begins.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use model::snapshot::Address;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use wire::Capabilities;
use wire::auth::Channel;
use wire::auth::client::{ClientAuth, ClientSecret, ClientStep};
use wire::handshake::{Greeting, HandshakeResponse, SslRequest, put_attribute};
use wire::message::ERR;

use super::packets::Packets;
use super::{Access, Connection, Fault, Version};
use crate::dns::Resolver;

/// Logins at work at a time, past the greeting.
const LOGINS_MAX: usize = 256;
/// A connect that has no answer after this time is tried again; each further one waits twice as long.
const CONNECT_AGAIN: Duration = Duration::from_millis(50);
/// Connects that are tried beside the first.
const CONNECTS_BESIDE: u32 = 3;
/// Largest packet that is announced, bytes.
const MAX_PACKET: u32 = 1 << 24;
/// utf8mb4_general_ci, which all servers have.
const COLLATION: u8 = 45;

const WANTED: Capabilities = Capabilities::LOGIN.union(Capabilities::CONNECT_ATTRS);

/// The TLS settings and the limit that all connections share. One for the process.
#[derive(Debug)]
pub(crate) struct Connector {
    /// Names to addresses.
    pub(crate) resolver: Arc<Resolver>,
    tls: tls::ClientConfigs,
    logins: Semaphore,
}

impl Connector {
    pub(crate) fn new() -> Self {
        Self { resolver: Arc::default(), tls: tls::ClientConfigs::default(), logins: Semaphore::new(LOGINS_MAX) }
    }
}

/// Connects, logs in and returns a connection for statements. Dropped, it closes the socket.
pub(crate) async fn open(connector: &Connector, access: &Access) -> Result<Connection, Fault> {
    let (mut packets, peer) = reach(connector, &access.server.address).await?;
    let mut channel = if peer.is_some() { Channel::Plain } else { Channel::Local };
    let greeting = greet(&mut packets).await?;
    // Never closed, so it is always got.
    let _permit = connector.logins.acquire().await;
    let mut caps = WANTED & greeting.capabilities;
    if access.server.use_ssl && channel == Channel::Plain {
        packets = secure(connector, access, packets, &greeting, &mut caps).await?;
        channel = Channel::Secure;
    }
    authenticate(access, &mut packets, &greeting, caps, channel).await?;
    let mut connection = Connection { packets, caps, version: Version::of(&greeting), peer };
    if let Some(seconds) = access.wait_timeout_s {
        connection.query(&format!("SET SESSION wait_timeout={seconds}")).await?;
    }
    Ok(connection)
}

/// A socket, and the address behind it if it is not a Unix socket.
async fn reach(connector: &Connector, address: &Address) -> Result<(Packets, Option<IpAddr>), Fault> {
    match address {
        Address::Unix(path) => Ok((Packets::new(UnixStream::connect(path).await?), None)),
        Address::Tcp { host, port } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, format!("the name {host} has no address"));
            for ip in connector.resolver.resolve(host).await?.iter() {
                match connect((*ip, *port).into()).await {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok((Packets::new(stream), Some(*ip)));
                    }
                    Err(e) => last = e,
                }
            }
            // The name may stand for another address by now.
            connector.resolver.doubt(host);
            Err(last.into())
        }
    }
}

/// If a connect's first packet is lost, the system repeats it after a second, which is longer than most checks may take. So a second
/// connect is tried beside it, and the first answer counts.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for n in 0.. {
        attempts.spawn(TcpStream::connect(address));
        let patience = if n < CONNECTS_BESIDE { CONNECT_AGAIN * 2u32.pow(n) } else { Duration::MAX };
        if let Ok(Some(answer)) = tokio::time::timeout(patience, attempts.join_next()).await {
            return answer.map_err(io::Error::other)?;
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

async fn greet(packets: &mut Packets) -> Result<Greeting, Fault> {
    let payload = packets.receive().await?;
    match payload.first() {
        Some(&ERR) => Err(Fault::of_packet(&payload, Capabilities::empty())),
        _ => Ok(Greeting::parse(&payload)?),
    }
}

async fn secure(
    connector: &Connector,
    access: &Access,
    mut packets: Packets,
    greeting: &Greeting,
    caps: &mut Capabilities,
) -> Result<Packets, Fault> {
    if !greeting.capabilities.contains(Capabilities::SSL) {
        return Err(Fault::Login("use_ssl=1 requires TLS, but the server does not offer it".into()));
    }
    caps.insert(Capabilities::SSL);
    let (config, name) = tls::towards(&connector.tls, &access.server, &access.user).map_err(Fault::Login)?;
    connector.tls.complaints().iter().for_each(|line| tracing::warn!("monitor: {line}"));
    let mut payload = Vec::new();
    SslRequest { capabilities: *caps, max_packet: MAX_PACKET, collation: COLLATION }.write(&mut payload);
    packets.send(&payload).await?;
    let Some((stream, sequence)) = packets.into_stream() else {
        return Err(Fault::Protocol("the server sent data before the TLS handshake".into()));
    };
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => Ok(Packets::resume(stream, sequence)),
        // rustls' refusals: the certificate is not trusted, no common version, ...
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(Fault::Login(format!("TLS: {e}"))),
        Err(e) => Err(e.into()),
    }
}

async fn authenticate(
    access: &Access,
    packets: &mut Packets,
    greeting: &Greeting,
    caps: Capabilities,
    channel: Channel,
) -> Result<(), Fault> {
    let mut auth = ClientAuth::new(ClientSecret::Clear(access.password.expose()), channel);
    let first = auth.begin(&greeting.plugin, &greeting.scramble)?;
    let mut attributes = Vec::new();
    put_attribute(&mut attributes, b"_client_name", b"tidegate");
    put_attribute(&mut attributes, b"program_name", b"tidegate-monitor");
    let mut payload = Vec::new();
    HandshakeResponse {
        capabilities: caps,
        max_packet: MAX_PACKET,
        collation: COLLATION,
        user: access.user.as_bytes(),
        auth_response: &first.response,
        schema: None,
        plugin: Some(first.plugin.name().as_bytes()),
        attributes: &attributes,
        zstd_level: 0,
    }
    .write(&mut payload);
    packets.send(&payload).await?;
    loop {
        let packet = packets.receive().await?;
        match auth.feed(&packet)? {
            ClientStep::Send(answer) => packets.send(&answer).await?,
            ClientStep::Wait => {}
            ClientStep::Accepted => return Ok(()),
            ClientStep::Refused => return Err(Fault::of_packet(&packet, caps)),
        }
    }
}
