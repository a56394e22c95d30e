//! A small MySQL client: log in, ping, ask, leave.
//!
//! Owns one connection's bytes and sequence. Has no time limits of its own: callers drop what takes too long, and with it the
//! connection. INVARIANT: the password is in no error and no log, and goes out in clear over TLS or a Unix socket only.

mod fault;
mod login;
mod packets;
mod rows;
mod version;

use std::net::IpAddr;
use std::sync::Arc;

use model::Secret;
use model::snapshot::Server;
use wire::Capabilities;
use wire::command::Command;
use wire::packet::MAX_PAYLOAD;
use wire::query::put_query;
use wire::reply::{Frame, ReplyKind, Step, Tracker};

pub(crate) use fault::Fault;
pub(crate) use rows::{Row, Rows, is_on, whole_number};
pub(crate) use version::Version;

use packets::Packets;

/// Most bytes of an answer. Group views, status lists and topology tables of the largest clusters are a tenth of it.
const ANSWER_MAX: usize = 4 << 20;
/// Longest event of a binary log that is read, bytes: longer ones come in several packets.
const EVENT_MAX: usize = (1 << 24) - 2;
/// Longest event that is put together of several packets, bytes: what servers allow (`max_allowed_packet`), and its head.
const EVENTS_MAX: usize = (1 << 30) + (1 << 20);
/// Bytes that a packet counts besides its payload, because an empty row costs memory too.
const PACKET_COST: usize = 64;

/// A server's address and the monitor's account.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Access {
    /// Its address, and whether to use TLS.
    pub(crate) server: Arc<Server>,
    /// `mysql-monitor_username`.
    pub(crate) user: Arc<str>,
    pub(crate) password: Secret,
    /// The `wait_timeout` that connections are given, s.
    pub(crate) wait_timeout_s: Option<u64>,
}

/// Which events of a binary log are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Longest {
    /// Those that come in one packet. A longer one is a fault.
    InOnePacket,
    /// Events of any length.
    Any,
}

pub(crate) struct Connection {
    packets: Packets,
    caps: Capabilities,
    version: Version,
    peer: Option<IpAddr>,
}

impl Connection {
    /// The address that was connected to; None for a Unix socket.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// The version that the greeting gave.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// COM_PING.
    pub(crate) async fn ping(&mut self) -> Result<(), Fault> {
        self.packets.restart();
        self.packets.send(&[Command::Ping as u8]).await?;
        self.reply(ReplyKind::Simple).await.map(drop)
    }

    /// COM_QUERY; the rows of the first result, if it has any.
    pub(crate) async fn query(&mut self, sql: &str) -> Result<Rows, Fault> {
        let mut payload = Vec::with_capacity(sql.len() + 3);
        put_query(&mut payload, sql.as_bytes(), self.caps);
        self.packets.restart();
        self.packets.send(&payload).await?;
        self.reply(ReplyKind::Results).await
    }

    /// Asks for the events of binary logs. From here on the connection is for [`Connection::event`] alone.
    pub(crate) async fn begin_events(&mut self, request: &[u8], longest: Longest) -> Result<(), Fault> {
        self.packets.allow(if longest == Longest::Any { MAX_PAYLOAD } else { EVENT_MAX });
        self.packets.restart();
        self.packets.send(request).await
    }

    /// The next event; None at the end of the last log.
    pub(crate) async fn event(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let mut payload = self.packets.receive().await?;
        let mut last = payload.len();
        while last == MAX_PAYLOAD {
            let more = self.packets.receive().await?;
            last = more.len();
            if payload.len() + last > EVENTS_MAX {
                return Err(Fault::Protocol(format!("an event is longer than {EVENTS_MAX} bytes")));
            }
            payload.extend(more);
        }
        match payload.first() {
            Some(0) => {
                payload.remove(0);
                Ok(Some(payload))
            }
            Some(&wire::message::ERR) => Err(Fault::of_packet(&payload, self.caps)),
            _ => Ok(None),
        }
    }

    /// COM_QUIT; the server need not answer.
    pub(crate) async fn quit(mut self) {
        self.packets.restart();
        let _ = self.packets.send(&[Command::Quit as u8]).await;
    }

    /// Waits until the server ends an idle connection, by closing it or with a last word.
    pub(crate) async fn ended(&mut self) {
        self.packets.disturbed().await;
    }

    async fn reply(&mut self, kind: ReplyKind) -> Result<Rows, Fault> {
        let mut tracker = Tracker::new(kind, self.caps);
        let mut rows = Rows::default();
        let (mut length, mut results) = (0, 0);
        while !tracker.is_done() {
            let payload = self.packets.receive().await?;
            length += payload.len() + PACKET_COST;
            if length > ANSWER_MAX {
                return Err(Fault::Protocol(format!("the answer is longer than {ANSWER_MAX} bytes")));
            }
            let Step::Frame(frame) = tracker.frame(payload.len(), &payload)? else {
                return Err(Fault::Protocol("a packet is too short".into()));
            };
            match frame {
                Frame::Err => return Err(Fault::of_packet(&payload, self.caps)),
                Frame::LocalInfile => return Err(Fault::Protocol("the server asks for a file".into())),
                Frame::ColumnCount(_) => results += 1,
                Frame::Definition if results == 1 => rows.add_column(&payload)?,
                Frame::Row if results == 1 => rows.add_row(&payload)?,
                _ => {}
            }
        }
        Ok(rows)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("version", &self.version).finish_non_exhaustive()
    }
}

pub(crate) use login::{Connector, open};
