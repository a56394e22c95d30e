//! A connection to the server of a replay: commands, and what a reply says.

use admin::client::Client;
use anyhow::{Context, Result, bail};
use capture::Params;
use rehearsal::{Answer, AnswerReader, Form};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::codec::put_u16;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};
use wire::message::{ERR, ErrPacket, OK, OkPacket};
use wire::packet::{self, HEADER};
use wire::prepared::{PrepareOk, put_stmt_id};
use wire::query;
use zeroize::Zeroizing;

/// How long a server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Capabilities of clients that change what statements mean, or what is answered.
const OF_CLIENT: Capabilities = Capabilities::FOUND_ROWS.union(Capabilities::IGNORE_SPACE).union(Capabilities::MULTI_STATEMENTS);
/// What a replay understands.
const OWN: Capabilities = Capabilities::MULTI_RESULTS.union(Capabilities::PS_MULTI_RESULTS);

/// Where sessions are replayed, and as whom.
#[derive(Clone)]
pub(crate) struct Target {
    /// `host:port` or a socket's path.
    pub address: String,
    /// Who logs in for most sessions.
    pub usual: Account,
    /// Who logs in for sessions of these captured users.
    pub others: BTreeMap<String, Account>,
    /// Who vouches for the server.
    pub ca: Option<PathBuf>,
}

/// A user of the server.
#[derive(Clone)]
pub(crate) struct Account {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: Zeroizing<String>,
}

/// See the module.
pub(crate) struct Connection {
    client: Client,
    is_lost: bool,
    is_in_transaction: bool,
}

/// What a server says of itself.
pub(crate) struct ServerIdentity {
    /// Its version.
    pub version: String,
    /// Its UUID, or host and port.
    pub name: String,
}

impl Target {
    /// Captured users, each with the user of the server that stands for it, where that is not the usual one.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&str, &str)> {
        self.others.iter().map(|(captured, account)| (captured.as_str(), account.user.as_str()))
    }

    /// Logs in for a captured user, with what of these capabilities changes answers.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the login.
    pub(crate) fn connect(&self, captured: &str, capabilities: u64) -> Result<Connection> {
        let wanted = OWN.union(Capabilities::from_bits(capabilities & OF_CLIENT.bits()));
        let Account { user, password } = self.others.get(captured).unwrap_or(&self.usual);
        let client = Client::connect_with(&self.address, user, password, self.ca.as_deref(), wanted)?;
        Ok(Connection { client, is_lost: false, is_in_transaction: false })
    }

    /// What the server says of itself. All users log in for that.
    ///
    /// # Errors
    /// As for [`Target::connect`].
    pub(crate) fn server(&self) -> Result<ServerIdentity> {
        for (captured, user) in self.others() {
            self.connect(captured, 0).with_context(|| format!("user '{user}' for '{captured}'"))?;
        }
        let Account { user, password } = &self.usual;
        let mut client = Client::connect(&self.address, user, password, self.ca.as_deref())?;
        let limit = admin::client::Limit { bytes: 1 << 20, time: Duration::from_secs(10) };
        let mut value = |sql: &str| -> Result<std::result::Result<String, String>> {
            Ok(client.rows(sql, limit)?.and_then(|rows| rows.into_iter().flatten().flatten().next().ok_or(format!("{sql}: no value"))))
        };
        let version = value("SELECT VERSION()")?.map_err(anyhow::Error::msg)?;
        let name = match value("SELECT @@server_uuid")? {
            Ok(name) => name,
            // MariaDB has none.
            Err(_) => value("SELECT CONCAT(@@hostname, ':', @@port)")?.map_err(anyhow::Error::msg)?,
        };
        Ok(ServerIdentity { version, name })
    }
}

impl Connection {
    /// The connection can be used no more.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// A transaction is open, as the server has said last.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.is_in_transaction
    }

    /// Runs a text; what was answered, and how long that took, us.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn query(&mut self, text: &[u8]) -> Result<(Answer, u64)> {
        let mut payload = Vec::with_capacity(text.len() + 1);
        query::put_query(&mut payload, text, self.client.capabilities());
        self.ask(&payload, Form::Text)
    }

    /// Runs a prepared statement.
    ///
    /// # Errors
    /// As for [`Connection::query`].
    pub(crate) fn execute(&mut self, statement: u32, params: &Params<'_>) -> Result<(Answer, u64)> {
        self.ask(&params.payload(statement), Form::Binary)
    }

    /// A command with an answer of one packet; its error, if it is one.
    ///
    /// # Errors
    /// As for [`Connection::query`].
    pub(crate) fn simple(&mut self, command: Command, body: &[u8]) -> Result<Option<u16>> {
        self.send(&[&[command as u8], body].concat())?;
        let (caps, mut input) = (self.client.capabilities(), Vec::new());
        self.hear(&mut |bytes| {
            input.extend_from_slice(bytes);
            packet::header(&input).is_some_and(|(len, _)| input.len() >= HEADER + len)
        })?;
        let body = input.get(HEADER..).unwrap_or_default();
        if let Some(ok) = (body.first() == Some(&OK)).then(|| OkPacket::parse(body, caps)).and_then(std::result::Result::ok) {
            self.is_in_transaction = ok.status.contains(StatusFlags::IN_TRANS);
        }
        Ok((body.first() == Some(&ERR)).then(|| ErrPacket::parse(body, caps).map_or(0, |error| error.code)))
    }

    /// Prepares a text: its number on this connection, or the error.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn prepare(&mut self, text: &[u8]) -> Result<std::result::Result<u32, u16>> {
        let caps = self.client.capabilities();
        let (mut input, mut first, mut left, mut is_confused) = (Vec::new(), None, 1_usize, false);
        self.send(&[&[Command::StmtPrepare as u8], text].concat())?;
        self.hear(&mut |bytes| {
            input.extend_from_slice(bytes);
            while let Some((len, _)) = packet::header(&input).filter(|(len, _)| input.len() >= HEADER + len) {
                let body: Vec<u8> = input.drain(..HEADER + len).skip(HEADER).collect();
                let Some(others) = left.checked_sub(1) else {
                    is_confused = true;
                    return true;
                };
                left = others;
                if first.is_none() {
                    left = first.insert(prepared(&body, caps)).as_ref().map_or(0, |(_, packets)| *packets);
                }
            }
            left == 0
        })?;
        match first {
            Some(Ok((id, _))) if !is_confused => Ok(Ok(id)),
            Some(Err(Some(code))) if !is_confused => Ok(Err(code)),
            _ => self.lose("the answer to a PREPARE cannot be read"),
        }
    }

    /// A part of a parameter; it has no answer.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn long_data(&mut self, statement: u32, parameter: u16, bytes: &[u8]) -> Result<()> {
        let mut payload = vec![Command::StmtSendLongData as u8];
        payload.extend_from_slice(&statement.to_le_bytes());
        put_u16(&mut payload, parameter);
        payload.extend_from_slice(bytes);
        self.send(&payload)
    }

    /// Closes a prepared statement; that has no answer.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn close_statement(&mut self, statement: u32) -> Result<()> {
        let mut payload = vec![Command::StmtClose as u8, 0, 0, 0, 0];
        put_stmt_id(&mut payload, statement)?;
        self.send(&payload)
    }

    fn ask(&mut self, payload: &[u8], form: Form) -> Result<(Answer, u64)> {
        let began = Instant::now();
        self.send(payload)?;
        let mut reader = AnswerReader::new(form, self.client.capabilities());
        self.hear(&mut |bytes| {
            reader.feed(bytes);
            reader.is_done() || reader.is_confused()
        })?;
        let time_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (is_error, status) = (reader.error().is_some(), reader.status());
        let answer = reader.finish();
        if !is_error {
            self.is_in_transaction = status.contains(StatusFlags::IN_TRANS);
        } else if answer.is_some() {
            // An error does not say whether the transaction is still open: a CREATE TABLE that fails has committed.
            self.simple(Command::Ping, &[])?;
        }
        match answer {
            Some(answer) => Ok((answer, time_us)),
            None => self.lose("an answer cannot be read"),
        }
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        let sent = self.client.send_command(payload);
        self.is_lost |= sent.is_err();
        sent
    }

    fn hear(&mut self, hears: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let heard = self.client.hear_reply(PATIENCE, hears);
        self.is_lost |= heard.is_err();
        heard
    }

    fn lose<T>(&mut self, why: &str) -> Result<T> {
        self.is_lost = true;
        bail!("{why}")
    }
}

/// The number of a statement and how many packets follow, or the error; None for what cannot be read.
fn prepared(body: &[u8], caps: Capabilities) -> std::result::Result<(u32, usize), Option<u16>> {
    if body.first() == Some(&ERR) {
        return Err(ErrPacket::parse(body, caps).ok().map(|error| error.code));
    }
    let ok = PrepareOk::parse(body, caps).map_err(|_| None)?;
    let ends = usize::from(!caps.contains(Capabilities::DEPRECATE_EOF));
    let of = |count: u16| if count == 0 { 0 } else { usize::from(count) + ends };
    Ok((ok.stmt_id, of(ok.params) + of(ok.columns)))
}
