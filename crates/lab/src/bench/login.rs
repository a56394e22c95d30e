//! One login as a state machine, so that thousands can be under way on one thread. No IO.

use wire::auth::Channel as Secrecy;
use wire::auth::client::{ClientAuth, ClientSecret, ClientStep};
use wire::handshake::{Greeting, HandshakeResponse};
use wire::message::ERR;
use wire::packet::{HEADER, header, put_packet};
use wire::{Capabilities, WireError};

use crate::client::ConnectOptions;
use crate::error::LabError;

/// The lab's user on every server.
pub const USER: &str = "app";
/// Its password.
pub const PASSWORD: &str = "app-pass";
/// Its schema.
pub const SCHEMA: &str = "test";

/// The longest packet that this client announces, in bytes.
const MAX_PACKET: u32 = 1 << 30;
/// utf8mb4_general_ci.
const COLLATION: u8 = 45;

/// The next act after bytes arrived.
#[derive(Debug)]
pub enum Step {
    /// Send this packet.
    Send(Vec<u8>),
    /// Wait for more.
    Wait,
    /// Logged in, with these capabilities.
    Accepted(Capabilities),
}

/// A login under way.
#[derive(Debug)]
pub struct Login {
    inbox: Vec<u8>,
    greeted: Option<(ClientAuth<'static>, Capabilities)>,
}

impl Default for Login {
    fn default() -> Self {
        Login::new()
    }
}

impl Login {
    /// Waits for the greeting.
    pub fn new() -> Login {
        Login { inbox: Vec::new(), greeted: None }
    }

    /// Takes bytes from the peer.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Step, LabError> {
        self.inbox.extend_from_slice(bytes);
        let mut step = Step::Wait;
        while let Some((payload, seq)) = self.next_packet() {
            if !matches!(step, Step::Wait) {
                return Err(LabError::Protocol("a packet that nobody asked for during login".to_owned()));
            }
            step = self.packet(&payload, seq)?;
        }
        Ok(step)
    }

    fn next_packet(&mut self) -> Option<(Vec<u8>, u8)> {
        let (length, seq) = header(&self.inbox)?;
        let payload = self.inbox.get(HEADER..HEADER + length)?.to_vec();
        self.inbox.drain(..HEADER + length);
        Some((payload, seq))
    }

    fn packet(&mut self, payload: &[u8], seq: u8) -> Result<Step, LabError> {
        if payload.first() == Some(&ERR) {
            return Err(refused(payload));
        }
        let Some((auth, capabilities)) = &mut self.greeted else {
            return self.greeting(payload, seq);
        };
        match auth.feed(payload).map_err(malformed)? {
            ClientStep::Send(answer) => Ok(Step::Send(packet(seq, &answer))),
            ClientStep::Wait => Ok(Step::Wait),
            ClientStep::Accepted => Ok(Step::Accepted(*capabilities)),
            ClientStep::Refused => Err(refused(payload)),
        }
    }

    fn greeting(&mut self, payload: &[u8], seq: u8) -> Result<Step, LabError> {
        let greeting = Greeting::parse(payload).map_err(malformed)?;
        let wanted = ConnectOptions::MODERN.union(Capabilities::CONNECT_WITH_DB);
        let mut capabilities = wanted & greeting.capabilities;
        // MariaDB does not announce it; absent, it would mean that MariaDB's extended capabilities are spoken.
        capabilities.insert(Capabilities::LONG_PASSWORD);
        let mut auth = ClientAuth::new(ClientSecret::Clear(PASSWORD.as_bytes()), Secrecy::Plain);
        let answer = auth.begin(&greeting.plugin, &greeting.scramble).map_err(malformed)?;
        let mut response = Vec::new();
        HandshakeResponse {
            capabilities,
            max_packet: MAX_PACKET,
            collation: COLLATION,
            user: USER.as_bytes(),
            auth_response: &answer.response,
            schema: Some(SCHEMA.as_bytes()),
            plugin: Some(answer.plugin.name().as_bytes()),
            attributes: &[],
            zstd_level: 0,
        }
        .write(&mut response);
        self.greeted = Some((auth, capabilities));
        Ok(Step::Send(packet(seq, &response)))
    }
}

/// `payload` as the packet that answers the one with sequence number `seq`.
fn packet(seq: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_packet(&mut out, &mut seq.wrapping_add(1), payload);
    out
}

fn refused(payload: &[u8]) -> LabError {
    let code = payload.get(1..3).map_or(0, |code| u16::from_le_bytes([code[0], code[1]]));
    let message = String::from_utf8_lossy(payload.get(3..).unwrap_or_default()).into_owned();
    LabError::Server { code, sqlstate: String::new(), message }
}

fn malformed(error: WireError) -> LabError {
    LabError::Protocol(error.to_string())
}
