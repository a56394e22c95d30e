//! The login to the admin port: greeting, TLS, proof of the password, and the check of the client's origin. Also COM_CHANGE_USER.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use model::Secret;
use model::refusals::shown_name;
use wire::auth::hash::certificate_proof;
use wire::auth::server::{Account, ServerAuth, Step, Stored};
use wire::auth::{Channel, Plugin};
use wire::handshake::{AuthSwitchRequest, ChangeUser, Greeting, HandshakeResponse, SslRequest};
use wire::{Capabilities, WireError};

use super::accounts::{Origin, may_connect};
use super::answer;
use super::packets::Packets;
use super::trace::Trace;
use super::{End, FrontSettings};
use crate::attempts::{Attempt, Attempts};
use crate::reply::Role;
use wire::codes;

/// Length of a scramble, bytes.
const SCRAMBLE: usize = 20;
/// Largest packet of a login, bytes: connection attributes may be long.
const MAX_LOGIN_PACKET: usize = 128 << 10;
/// utf8mb4_general_ci.
const COLLATION: u8 = 45;

/// Offered to every client.
const OFFERED: Capabilities = Capabilities::LONG_PASSWORD
    .union(Capabilities::FOUND_ROWS)
    .union(Capabilities::LONG_FLAG)
    .union(Capabilities::CONNECT_WITH_DB)
    .union(Capabilities::NO_SCHEMA)
    .union(Capabilities::ODBC)
    .union(Capabilities::IGNORE_SPACE)
    .union(Capabilities::PROTOCOL_41)
    .union(Capabilities::INTERACTIVE)
    .union(Capabilities::IGNORE_SIGPIPE)
    .union(Capabilities::TRANSACTIONS)
    .union(Capabilities::SECURE_CONNECTION)
    .union(Capabilities::MULTI_STATEMENTS)
    .union(Capabilities::MULTI_RESULTS)
    .union(Capabilities::PS_MULTI_RESULTS)
    .union(Capabilities::PLUGIN_AUTH)
    .union(Capabilities::CONNECT_ATTRS)
    .union(Capabilities::PLUGIN_AUTH_LENENC)
    .union(Capabilities::DEPRECATE_EOF);

/// A connection on its way in, and what COM_CHANGE_USER needs again.
pub(super) struct Login {
    /// The connection after its login.
    pub packets: Packets,
    /// The capabilities of both sides.
    pub caps: Capabilities,
    /// The client's address.
    pub peer: Peer,
    /// The session's lines in the audit log.
    pub trace: Trace,
    channel: Channel,
    scramble: [u8; SCRAMBLE],
    /// Of the certificate that the client was shown.
    fingerprint: Option<[u8; 32]>,
    /// The proof of that certificate for the login's OK; empty without one.
    pub proof: Vec<u8>,
}

/// A client's address and the way to it.
pub(super) struct Peer {
    /// None is a Unix socket.
    pub address: Option<IpAddr>,
    /// Local clients may more.
    pub origin: Origin,
    /// How the client is called in errors: its address, or `localhost`.
    pub host: String,
    /// Logins that were tried, from there and from elsewhere.
    pub attempts: Arc<Attempts>,
}

/// A client that has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub user: String,
    /// The role of its sessions.
    pub role: Role,
    pub schema: Option<String>,
}

/// The client's login request.
struct Request {
    user: Vec<u8>,
    response: Vec<u8>,
    plugin: Option<Vec<u8>>,
    schema: Vec<u8>,
    /// The response answers an older scramble, as COM_CHANGE_USER's does: the client is asked again.
    is_old: bool,
}

/// Random bytes, none of them 0 or `$`.
fn scramble() -> [u8; SCRAMBLE] {
    let mut bytes = [0; SCRAMBLE];
    // INVARIANT: the system's generator does not fail once the process has started; a fixed scramble must never be sent.
    aws_lc_rs::rand::fill(&mut bytes).unwrap_or_else(|_| std::process::abort());
    bytes.map(|b| b % 89 + 37)
}

impl Login {
    /// A connection that nothing was said on. `channel` is that of the bare socket.
    pub(super) fn new(packets: Packets, channel: Channel, peer: Peer, trace: Trace) -> Self {
        Self { packets, caps: Capabilities::default(), peer, trace, channel, scramble: scramble(), fingerprint: None, proof: Vec::new() }
    }

    /// Greets and lets in; the client has its error when this fails. The OK is not sent yet.
    pub(super) async fn run(mut self, id: u32, settings: &FrontSettings) -> Result<(Self, Known), End> {
        let offered = self.greet(id, settings).await?;
        let (mut login, request) = self.request(offered, settings).await?;
        let known = login.prove(&request, settings).await?;
        Ok((login, known))
    }

    /// COM_CHANGE_USER: a new proof of the password. The OK is not sent yet.
    pub(super) async fn change(&mut self, payload: &[u8], settings: &FrontSettings) -> Result<Known, End> {
        let change = ChangeUser::parse(payload, self.caps)?;
        let is_old = self.caps.contains(Capabilities::PLUGIN_AUTH);
        if is_old {
            self.scramble = scramble();
        }
        let request = Request {
            user: change.user.to_vec(),
            response: change.auth_response.to_vec(),
            plugin: change.plugin.map(<[u8]>::to_vec),
            schema: change.schema.to_vec(),
            is_old,
        };
        self.prove(&request, settings).await
    }

    /// Sends an error and gives the reason for the log.
    pub(super) async fn refuse(&mut self, code: u16, sqlstate: &str, text: String) -> End {
        let _ = answer::put_err(&mut self.packets, self.caps, code, sqlstate, &text).await;
        let _ = self.packets.flush().await;
        End::Refused(text)
    }

    async fn greet(&mut self, id: u32, settings: &FrontSettings) -> Result<Capabilities, End> {
        let mut offered = OFFERED;
        offered.set(Capabilities::SSL, settings.tls.is_some());
        let greeting = Greeting {
            server_version: settings.server_version.clone().into_bytes(),
            connection_id: id,
            scramble: self.scramble.to_vec(),
            capabilities: offered,
            collation: COLLATION,
            status: super::answer::STATUS,
            plugin: settings.plugin.name().as_bytes().to_vec(),
        };
        let mut payload = Vec::new();
        greeting.write(&mut payload);
        self.packets.send(&payload).await?;
        Ok(offered)
    }

    /// The client's answer, after TLS if it asks for that.
    async fn request(mut self, offered: Capabilities, settings: &FrontSettings) -> Result<(Self, Request), End> {
        let mut payload = self.receive().await?;
        if SslRequest::parse(&payload)?.is_some() {
            let tls = settings.tls.clone().ok_or(WireError::Malformed("the client asked for TLS, which the proxy did not offer"))?;
            self.packets = self.packets.accept_tls(Arc::clone(&tls.config)).await?;
            self.fingerprint = Some(tls.fingerprint);
            self.channel = Channel::Secure;
            self.trace.is_tls();
            payload = self.receive().await?;
        }
        let response = HandshakeResponse::parse(&payload)?;
        self.caps = response.capabilities & offered;
        let request = Request {
            user: response.user.to_vec(),
            response: response.auth_response.to_vec(),
            plugin: response.plugin.map(<[u8]>::to_vec),
            schema: response.schema.unwrap_or_default().to_vec(),
            is_old: false,
        };
        Ok((self, request))
    }

    async fn receive(&mut self) -> Result<Vec<u8>, End> {
        self.packets.read(MAX_LOGIN_PACKET).await?.ok_or(End::Gone)
    }

    /// Runs the exchange. Unknown users go through the same motions as known ones.
    async fn prove(&mut self, request: &Request, settings: &FrontSettings) -> Result<Known, End> {
        let account = settings.accounts.get(&request.user);
        self.trace.claims(&request.user);
        let decoy = Secret::new(scramble().to_vec());
        let stored = account.map_or(Stored::Clear(decoy.expose()), |a| a.stored());
        let proof = Account { stored, fast: None, additional: None, key: settings.rsa.as_deref() };
        let mut auth = ServerAuth::new(self.scramble, settings.plugin, self.channel);
        let mut step = if request.is_old {
            auth.ask(&proof, request.plugin.as_deref())?
        } else {
            auth.start(&proof, request.plugin.as_deref(), &request.response)?
        };
        let mut attempt = None;
        let verified = loop {
            // Nothing is hashed, and nothing said of the password, before it is this login's turn.
            if attempt.is_none() && matches!(step, Step::Done(_) | Step::Denied | Step::Check(_)) {
                attempt = Some(self.turn(settings).await?);
            }
            let payload = match step {
                Step::Done(verified) => break Some(verified),
                Step::Denied => break None,
                Step::Check(check) => {
                    // Hashing takes milliseconds: other sessions are served meanwhile.
                    let _hashing = self.peer.attempts.hashing().await;
                    step = tokio::task::spawn_blocking(move || check.run()).await.unwrap_or(Step::Denied);
                    continue;
                }
                Step::Send(payload) => payload,
                Step::Switch(plugin) => self.switch_request(plugin),
            };
            self.packets.send(&payload).await?;
            step = auth.feed(&proof, &self.receive().await?)?;
        };
        let name = shown_name(&request.user);
        let Some((account, verified)) = account.zip(verified) else {
            let using = if auth.with_password() { "YES" } else { "NO" };
            let text = format!("Access denied for user '{name}'@'{}' (using password: {using})", self.peer.host);
            return Err(self.refuse(codes::ACCESS_DENIED, "28000", text).await);
        };
        attempt.into_iter().for_each(Attempt::succeeds);
        if !may_connect(&request.user, self.peer.origin) {
            return Err(self.refuse(codes::CON_COUNT, "42000", format!("User '{name}' can only connect locally")).await);
        }
        if let Some(payload) = verified.before_ok {
            self.packets.send(&payload).await?;
        }
        let is_mariadb = !self.caps.contains(Capabilities::LONG_PASSWORD);
        let proven = verified.native.zip(self.fingerprint).filter(|_| is_mariadb);
        self.proof = proven.map_or(Vec::new(), |(hash, print)| certificate_proof(&hash, &self.scramble, &print).to_vec());
        let schema = Some(String::from_utf8_lossy(&request.schema).into_owned()).filter(|s| !s.is_empty());
        Ok(Known { user: name, role: account.role, schema })
    }

    /// Waits until a login from there may be judged.
    async fn turn(&mut self, settings: &FrontSettings) -> Result<Attempt, End> {
        if let Some(attempt) = self.peer.attempts.begin(self.peer.address, settings.most_failures).await {
            return Ok(attempt);
        }
        let text = format!(
            "Host '{}' is blocked: too many logins failed, and too many wait (admin-login_failures): try again later",
            self.peer.host
        );
        Err(self.refuse(codes::HOST_IS_BLOCKED, "HY000", text).await)
    }

    fn switch_request(&self, plugin: Plugin) -> Vec<u8> {
        let (data, mut payload) = ([&self.scramble[..], &[0]].concat(), Vec::new());
        AuthSwitchRequest { plugin: plugin.name().as_bytes(), data: &data }.write(&mut payload);
        payload
    }
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::NotReading,
            _ => Self::Lost(error),
        }
    }
}
