//! Login: greeting, optional TLS, authentication, and COM_CHANGE_USER, which repeats the last.

use std::collections::{HashMap, VecDeque};

use wire::auth::client::{ClientAuth, ClientSecret, ClientStep};
use wire::handshake::{ChangeUser, Greeting, HandshakeResponse, SslRequest, put_attribute};
use wire::message::ERR;
use wire::{Capabilities, Command};

use super::Client;
use super::channel::Channel;
use super::options::{Compression, ConnectOptions};
use super::reply::{ServerError, Status};
use super::value::malformed;
use crate::error::LabError;

/// The longest packet that this client announces, in bytes; servers use their own limit.
const MAX_PACKET: u32 = 1 << 30;

pub(super) fn connect(options: &ConnectOptions) -> Result<Client, LabError> {
    let mut channel = Channel::open(&options.target, options.timeout)?;
    let first = channel.recv()?;
    if first.first() == Some(&ERR) {
        return Err(ServerError::parse(&first, Capabilities::empty())?.to_lab_error());
    }
    let greeting = Greeting::parse(&first).map_err(malformed)?;
    let capabilities = agree(options, &greeting)?;
    if options.tls {
        let mut request = Vec::new();
        SslRequest { capabilities, max_packet: MAX_PACKET, collation: options.charset }.write(&mut request);
        channel.send(&request)?;
        channel.start_tls(options.tls12)?;
    }
    let login = authenticate(&mut channel, &greeting, capabilities, options)?;
    if let Some(algorithm) = options.compression {
        channel.compress(algorithm);
    }
    Ok(Client { channel, greeting, capabilities, login, infile: None, awaited: VecDeque::new(), known: HashMap::new() })
}

/// The capabilities that both sides have. An error if TLS or compression is wanted and the server lacks it.
fn agree(options: &ConnectOptions, greeting: &Greeting) -> Result<Capabilities, LabError> {
    let wanted = options.wanted();
    let mut agreed = wanted & greeting.capabilities;
    // MariaDB does not announce LONG_PASSWORD: absent there, the bit means "I speak MariaDB's extended capabilities".
    let plain = wanted.mariadb_bits() == 0;
    agreed.set(Capabilities::LONG_PASSWORD, plain && wanted.contains(Capabilities::LONG_PASSWORD));
    let needed = Capabilities::SSL | Capabilities::COMPRESS | Capabilities::ZSTD_COMPRESSION;
    if (wanted & needed).difference(agreed) != Capabilities::empty() {
        return Err(LabError::Protocol("the server has no TLS or no such compression".to_owned()));
    }
    Ok(agreed)
}

fn authenticate(
    channel: &mut Channel,
    greeting: &Greeting,
    capabilities: Capabilities,
    options: &ConnectOptions,
) -> Result<Status, LabError> {
    let mut auth = begin_auth(channel, options);
    let answer = auth.begin(claimed_plugin(greeting, options), &greeting.scramble).map_err(malformed)?;
    let attributes = attribute_block(options);
    let mut payload = Vec::new();
    HandshakeResponse {
        capabilities,
        max_packet: MAX_PACKET,
        collation: options.charset,
        user: options.user.as_bytes(),
        auth_response: &answer.response,
        schema: options.database.as_deref().map(str::as_bytes),
        plugin: Some(answer.plugin.name().as_bytes()),
        attributes: &attributes,
        zstd_level: zstd_level(options),
    }
    .write(&mut payload);
    channel.send(&payload)?;
    converse(channel, &mut auth, capabilities)
}

/// COM_CHANGE_USER on a logged-in connection whose sequence numbers were just reset. Servers ask again, so it says nothing of the
/// password at first.
pub(super) fn change_user(
    channel: &mut Channel,
    greeting: &Greeting,
    capabilities: Capabilities,
    options: &ConnectOptions,
) -> Result<Status, LabError> {
    let mut auth = begin_auth(channel, options);
    let answer = auth.begin(claimed_plugin(greeting, options), &greeting.scramble).map_err(malformed)?;
    let attributes = attribute_block(options);
    let mut payload = Vec::new();
    ChangeUser {
        user: options.user.as_bytes(),
        auth_response: b"",
        schema: options.database.as_deref().unwrap_or_default().as_bytes(),
        collation: Some(u16::from(options.charset)),
        plugin: Some(answer.plugin.name().as_bytes()),
        attributes: &attributes,
    }
    .write(&mut payload, capabilities);
    debug_assert_eq!(payload.first(), Some(&(Command::ChangeUser as u8)));
    channel.send(&payload)?;
    converse(channel, &mut auth, capabilities)
}

fn begin_auth<'a>(channel: &Channel, options: &'a ConnectOptions) -> ClientAuth<'a> {
    ClientAuth::new(ClientSecret::Clear(&options.password), channel.secrecy())
}

fn claimed_plugin<'a>(greeting: &'a Greeting, options: &'a ConnectOptions) -> &'a [u8] {
    options.plugin.as_deref().map_or(greeting.plugin.as_slice(), str::as_bytes)
}

/// Answers the server until it accepts or refuses.
fn converse(channel: &mut Channel, auth: &mut ClientAuth<'_>, capabilities: Capabilities) -> Result<Status, LabError> {
    loop {
        let payload = channel.recv()?;
        match auth.feed(&payload).map_err(malformed)? {
            ClientStep::Send(answer) => channel.send(&answer)?,
            ClientStep::Wait => {}
            ClientStep::Accepted => return Status::parse(&payload, capabilities),
            ClientStep::Refused => {
                return Err(ServerError::parse(&payload, capabilities)?.to_lab_error());
            }
        }
    }
}

fn attribute_block(options: &ConnectOptions) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in &options.attributes {
        put_attribute(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

fn zstd_level(options: &ConnectOptions) -> u8 {
    match options.compression {
        Some(Compression::Zstd(level)) => u8::try_from(level).unwrap_or(3),
        _ => 0,
    }
}
