//! Logging in to a server: the client's side of every plugin, one value a login.
//!
//! [`ClientAuth::begin`] gives what goes into the login packet; [`ClientAuth::feed`] takes each payload that follows and
//! says what to do.
//!
//! INVARIANT: the password goes out in clear only where [`Channel::is_secure_for`] says so; else it is a named error, and nothing is sent.

use super::hash::{fast_response, native_response, sha1};
use super::{ASK_KEY_CACHING, ASK_KEY_SHA256, Channel, FAST_OK, FULL_NEEDED, Plugin, ed25519, rsa};
use crate::error::{PluginName, Result, WireError};
use crate::handshake::{AUTH_MORE_DATA, AUTH_SWITCH, AuthSwitchRequest, auth_more_data};
use crate::message::{ERR, OK};

/// The secret for a login: the password, or as much as is known of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ClientSecret<'a> {
    /// No password.
    Empty,
    /// The password itself.
    Clear(&'a [u8]),
    /// SHA1(password): enough for mysql_native_password, and for nothing else.
    Sha1([u8; 20]),
}

impl std::fmt::Debug for ClientSecret<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Clear(_) => "Clear(..)",
            Self::Sha1(_) => "Sha1(..)",
        })
    }
}

/// The plugin and the answer for the login packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstAnswer {
    /// The plugin that made the answer.
    pub plugin: Plugin,
    /// The answer; may be empty.
    pub response: Vec<u8>,
}

/// The next act of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientStep {
    /// Send this payload (it may be empty: a packet without payload) and feed the answer.
    Send(Vec<u8>),
    /// Nothing to send; feed the next payload.
    Wait,
    /// The payload was OK: logged in. The caller parses it.
    Accepted,
    /// The payload was ERR: refused. The caller parses it.
    Refused,
}

/// The payload that the plugin waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// OK, ERR, a switch, or caching_sha2_password's fast ok or "full needed".
    Verdict,
    /// The RSA public key.
    Key,
}

/// The client's side of one login.
#[derive(Debug)]
pub struct ClientAuth<'a> {
    secret: ClientSecret<'a>,
    channel: Channel,
    server_key: Option<&'a [u8]>,
    plugin: Plugin,
    scramble: Vec<u8>,
    due: Due,
    switches: u8,
}

/// Switches to another plugin that a server may ask for: an account has one or a few.
const MOST_SWITCHES: u8 = 8;

impl<'a> ClientAuth<'a> {
    /// Holds the state of one login; it is not reused.
    #[must_use]
    pub fn new(secret: ClientSecret<'a>, channel: Channel) -> Self {
        let secret = if secret == ClientSecret::Clear(b"") { ClientSecret::Empty } else { secret };
        Self { secret, channel, server_key: None, plugin: Plugin::Native, scramble: Vec::new(), due: Due::Verdict, switches: 0 }
    }

    /// Trusts this RSA public key (PEM) instead of the one that the server would send over a channel that anyone on the
    /// path can change.
    #[must_use]
    pub fn with_server_key(mut self, public_pem: &'a [u8]) -> Self {
        self.server_key = Some(public_pem);
        self
    }

    /// The plugin and the answer for the login packet, to the greeting's plugin. A plugin that cannot answer here is replaced by
    /// mysql_native_password, whose answer reveals nothing. The server then switches to the plugin of its choice.
    pub fn begin(&mut self, plugin: &[u8], scramble: &[u8]) -> Result<FirstAnswer> {
        self.scramble = scramble.to_vec();
        self.plugin = Plugin::from_name(plugin).unwrap_or(Plugin::Native);
        let response = match self.answer() {
            Ok(response) => response,
            Err(_) => {
                self.plugin = Plugin::Native;
                self.answer()?
            }
        };
        Ok(FirstAnswer { plugin: self.plugin, response })
    }

    /// What a client without a password sends, whatever the secret is. Where [`ClientAuth::feed`] fails, the caller sends this and reads
    /// on until the server has refused the login: a server counts clients that leave before (`max_connect_errors`).
    #[must_use]
    pub fn no_password(&self) -> &'static [u8] {
        match self.plugin {
            Plugin::Native | Plugin::Ed25519 => &[],
            Plugin::CachingSha2 | Plugin::Sha256 | Plugin::Clear => &[0],
        }
    }

    /// The plugin and the scramble that were answered last: a COM_CHANGE_USER in the same connection begins with them.
    pub fn last(&self) -> (Plugin, &[u8]) {
        (self.plugin, &self.scramble)
    }

    /// Takes the next payload from the server.
    pub fn feed(&mut self, payload: &[u8]) -> Result<ClientStep> {
        match payload.first() {
            Some(&OK) => Ok(ClientStep::Accepted),
            Some(&ERR) => Ok(ClientStep::Refused),
            Some(&AUTH_SWITCH) => self.switch(AuthSwitchRequest::parse(payload)?),
            Some(&AUTH_MORE_DATA) => self.more_data(auth_more_data(payload)?),
            Some(2) => Err(WireError::UnexpectedAuth("a second authentication factor is not supported")),
            _ => Err(WireError::UnexpectedAuth("neither OK, ERR, switch nor more data")),
        }
    }

    fn switch(&mut self, request: AuthSwitchRequest<'_>) -> Result<ClientStep> {
        self.switches += 1;
        if self.switches > MOST_SWITCHES {
            return Err(WireError::UnexpectedAuth("the server switches plugins without end"));
        }
        self.plugin = Plugin::from_name(request.plugin).ok_or(WireError::UnknownPlugin(PluginName::new(request.plugin)))?;
        self.scramble = request.data.to_vec();
        Ok(ClientStep::Send(self.answer()?))
    }

    /// The current plugin's first answer.
    fn answer(&mut self) -> Result<Vec<u8>> {
        self.due = Due::Verdict;
        match (self.plugin, self.secret) {
            (_, ClientSecret::Empty) => Ok(self.no_password().to_vec()),
            (Plugin::Native, ClientSecret::Sha1(password_sha1)) => Ok(self.native(&password_sha1)),
            (_, ClientSecret::Sha1(_)) => Err(WireError::ClearTextNeeded),
            (Plugin::Native, ClientSecret::Clear(password)) => Ok(self.native(&sha1(&[password]))),
            (Plugin::CachingSha2, ClientSecret::Clear(password)) => Ok(fast_response(password, self.short_scramble()).to_vec()),
            (Plugin::Clear, ClientSecret::Clear(password)) => self.clear_text(password),
            (Plugin::Sha256, ClientSecret::Clear(password)) => self.sealed_or_asked(password, ASK_KEY_SHA256),
            (Plugin::Ed25519, ClientSecret::Clear(password)) => self.signed(password),
        }
    }

    /// The scramble that SHA plugins take: 20 bytes at most.
    fn short_scramble(&self) -> &[u8] {
        self.scramble.get(..20).unwrap_or(&self.scramble)
    }

    fn native(&self, password_sha1: &[u8; 20]) -> Vec<u8> {
        native_response(password_sha1, self.short_scramble()).to_vec()
    }

    fn signed(&self, password: &[u8]) -> Result<Vec<u8>> {
        let nonce = self.scramble.first_chunk().ok_or(WireError::Malformed("ed25519 nonce is too short"))?;
        Ok(ed25519::sign(password, nonce).to_vec())
    }

    /// The password and its NUL, over a secure channel only.
    fn clear_text(&self, password: &[u8]) -> Result<Vec<u8>> {
        if self.channel.is_secure_for(self.plugin) { Ok([password, &[0]].concat()) } else { Err(WireError::InsecureChannel) }
    }

    /// The password in the best way there is: in clear over a secure channel, under a known key, or after asking for it.
    fn sealed_or_asked(&mut self, password: &[u8], ask: u8) -> Result<Vec<u8>> {
        match (self.channel.is_secure_for(self.plugin), self.server_key) {
            (true, _) => self.clear_text(password),
            (false, Some(key)) => rsa::encrypt_password(key, password, self.short_scramble()),
            (false, None) => {
                self.due = Due::Key;
                Ok(vec![ask])
            }
        }
    }

    fn more_data(&mut self, data: &[u8]) -> Result<ClientStep> {
        let ClientSecret::Clear(password) = self.secret else {
            return Err(WireError::UnexpectedAuth("the server asks for more authentication steps than this login has"));
        };
        match (self.plugin, self.due, data) {
            (Plugin::CachingSha2 | Plugin::Sha256, Due::Key, key) => {
                self.due = Due::Verdict;
                rsa::encrypt_password(key, password, self.short_scramble()).map(ClientStep::Send)
            }
            (Plugin::CachingSha2, Due::Verdict, [FAST_OK]) => Ok(ClientStep::Wait),
            (Plugin::CachingSha2, Due::Verdict, [FULL_NEEDED]) => self.sealed_or_asked(password, ASK_KEY_CACHING).map(ClientStep::Send),
            _ => Err(WireError::UnexpectedAuth("more data that the plugin does not define")),
        }
    }
}
