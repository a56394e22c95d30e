//! Sessions for unit tests: their client and their servers are the ends of socket pairs, at whose other ends nobody is.

use super::Session;
use super::command::Incoming;
use super::connection::Connection;
use super::end::End;
use super::frontend::Frontend;
use super::plan::Plan;
use super::route::packets_of;
use crate::backends::backend::Backend;
use crate::bed;
use crate::clients::session_handle::SessionHandle;
use crate::servers::server::PlacedBy;
use crate::servers::terms::Terms;
use crate::workers::worker::{FIRST_SESSION_ID, Worker};
use model::fleet::{Placement, UnderWay};
use model::snapshot::{ServerStatus, Snapshot};
use model::{Config, HostgroupId};
use session_state::collected::packets;
use session_state::pins::{PinReason, PinSet};
use sql::{Analysis, LexMode};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use wire::charset::Flavor;
use wire::codec::put_lenenc_bytes;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};
use wire::message::{EOF, ErrPacket, OK, OkPacket};
use wire::packet::{self, HEADER, put_packet};
use wire::reframe::ReplyFacts;

/// The hostgroup of each session's user, and the other one.
pub(crate) const HOME: HostgroupId = HostgroupId(1);
pub(crate) const OTHER: HostgroupId = HostgroupId(2);

/// A worker under this configuration, with a server in each of two hostgroups, at which nobody listens.
pub(crate) fn worker(more: &str) -> Rc<Worker> {
    let server = |id: HostgroupId| format!("{{ hostgroup={}, address=\"127.0.0.1\", port={} }}", id.0, id.0);
    let text = format!("mysql_servers = ( {}, {} )\n{more}", server(HOME), server(OTHER));
    let (config, _): (Config, _) = model::parse(&text, "test.cnf").unwrap();
    bed::worker(Arc::new(Snapshot::compile(&config).unwrap()))
}

/// A session, and the other ends of its connections.
pub(crate) struct Bed {
    session: Session,
    /// The client's end, and then its servers', in the order in which it came to them.
    pub(crate) ends: Vec<UnixStream>,
    /// The commands that were answered.
    heard: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
}

/// When a server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closes {
    Now,
    WithTheNextCommand,
}

impl Deref for Bed {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Bed {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Bed {
    /// A session of `anna`, without a backend: each of two hostgroups has a server, and `more` is configured. Needs a runtime.
    pub(crate) fn new(more: &str) -> Self {
        let anna = "{ username=\"anna\", password=\"x\", default_hostgroup=1 }";
        Self::of_user(anna, more)
    }

    /// The same of the user in this row.
    pub(crate) fn of_user(user: &str, more: &str) -> Self {
        let worker = worker(&format!("mysql_users = ( {user} )\n{more}"));
        let user = Arc::clone(worker.snapshot().users.values().next().unwrap());
        let (link, far) = bed::link();
        let caps = Capabilities::PROTOCOL_41 | Capabilities::MULTI_STATEMENTS | Capabilities::MULTI_RESULTS;
        let proxy_addr = worker.memory.borrow_mut().proxy_addr(None, &[]);
        let client = Frontend { login_seq: 2, ..Frontend::new(link, caps, 45, [1; super::login::SCRAMBLE], proxy_addr) };
        let handle = Rc::new(SessionHandle::new(FIRST_SESSION_ID, worker.clock.now_ms()));
        let mut session = Session::new(worker, handle, client, user);
        session.begin(Some(b"shop"));
        Self { session, ends: vec![far], heard: channel() }
    }

    /// It holds a backend where it is.
    pub(crate) fn on(mut self, flavor: Flavor) -> Self {
        self.connect(flavor);
        self
    }

    /// It gets a backend where it is, which has what the session wants.
    pub(crate) fn connect(&mut self, flavor: Flavor) {
        let version = if flavor == Flavor::MySql { "8.4.0" } else { "11.8.2-MariaDB" };
        let (mut backend, far): (Backend, _) = bed::backend(&self.session.worker, &self.session.at.lane, flavor, version);
        self.session.wants.come_to(&backend.core.info);
        backend.core.held.was_brought_to(&self.session.wants.state);
        self.session.at.backend = Some(backend);
        self.session.at.backend.ran_for(self.session.handle.id);
        self.ends.push(far);
    }

    /// Another backend rests in the pool where it is; [`Bed::answers`] and [`Bed::sent`] are about that one from now on.
    pub(crate) fn another_rests(&mut self, flavor: Flavor) {
        let held = self.at.backend.take();
        self.connect(flavor);
        let other = self.at.backend.take().unwrap();
        self.at.pool.release_to(&self.worker, &self.at.lane, other);
        self.at.backend = held;
    }

    /// The server of its backend closes the connection: now, or as soon as it has the next command.
    pub(crate) fn closes(&mut self, when: Closes) {
        let mut end = self.ends.last().unwrap().try_clone().unwrap();
        match when {
            Closes::Now => end.shutdown(Shutdown::Both).unwrap(),
            Closes::WithTheNextCommand => drop(std::thread::spawn(move || {
                let _ = end.read(&mut [0; 4096]);
                end.shutdown(Shutdown::Both).unwrap();
            })),
        }
    }

    /// What a statement is to it.
    pub(crate) fn analysis(&self, text: &str) -> Analysis {
        sql::analyze(text.as_bytes(), self.wants.lex)
    }

    /// Its client sends a COM_QUERY.
    pub(crate) fn says(&mut self, text: &str) -> Incoming {
        self.client.joined = [&[Command::Query as u8], text.as_bytes()].concat();
        Incoming { byte: Command::Query as u8, wire_len: 4 + 1 + text.len(), joined: true, rewritten: false }
    }

    /// These bytes of its client have arrived.
    pub(crate) fn arrives(&mut self, mut bytes: &[u8]) {
        let Session { client, worker, .. } = &mut self.session;
        while !bytes.is_empty() {
            client.input.reserve(client.input.len() + bytes.len(), &worker.buffers);
            let space = client.input.space(&worker.buffers);
            let (now, later) = bytes.split_at(bytes.len().min(space.len()));
            space[..now.len()].copy_from_slice(now);
            client.input.advance(now.len());
            bytes = later;
        }
    }

    /// Its client sends this command, which is served: its answer's packets.
    pub(crate) async fn serve(&mut self, command: Command, body: &[u8]) -> Result<Vec<Vec<u8>>, End> {
        self.arrives(&packets_of(&[&[command as u8], body].concat()));
        let command = self.next_command().await?.unwrap();
        self.serve_command(command).await?;
        Ok(self.heard_by_client())
    }

    /// What its client was sent since it was looked at last: the payloads of packets.
    pub(crate) fn heard_by_client(&mut self) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        self.ends[0].set_nonblocking(true).unwrap();
        let _ = self.ends[0].read_to_end(&mut bytes);
        packets(&bytes).map(<[u8]>::to_vec).collect()
    }

    /// The statement ran, and this came of it.
    pub(crate) fn ran(&mut self, text: &str, reply: &ReplyFacts) {
        let (analysis, command) = (self.analysis(text), self.says(text));
        self.session.at.backend.note_answered(self.session.handle.id, &mut self.session.facts, reply);
        self.effects().note_effects(command, 0, &analysis, reply);
    }

    /// The same with what is noted for a replay, if that is on.
    pub(crate) fn ran_and_noted(&mut self, text: &str, reply: &ReplyFacts) {
        let (plan, command) = (Plan::new(self.analysis(text)), self.says(text));
        self.recovery.reply_hasher = self.recovery.reply_hasher_for(&self.at, &self.client, &plan, Capabilities::PROTOCOL_41);
        if let Some(hasher) = self.recovery.reply_hasher.as_mut() {
            hasher.feed(&packet_of(reply));
        }
        self.effects().note_effects(command, 0, &plan.analysis, reply);
        self.scribe().transcribe_text(command, &plan, reply);
    }

    /// The server of its backend is placed so now, and what is there has so long to finish.
    pub(crate) fn place(&self, status: ServerStatus, under_way: UnderWay, grace_ms: u64) {
        let server = &self.at.backend.as_ref().unwrap().core.server;
        let placement = Placement { status, under_way, ..Placement::clone(&server.placement()) };
        let terms = Terms { grace_ms, drain_ms: grace_ms, ..Terms::default() };
        // By the coarse clock, which is behind the other.
        server.place(&placement, &terms, PlacedBy::Observation, self.worker.clock.now_ms());
    }

    /// The server of its backend answers the next commands so.
    pub(crate) fn answers(&mut self, replies: &[Vec<u8>]) {
        let mut end = self.ends.last().unwrap().try_clone().unwrap();
        let (replies, heard) = (replies.to_vec(), self.heard.0.clone());
        std::thread::spawn(move || {
            for reply in replies {
                let mut header = [0; HEADER];
                while let Err(e) = end.read_exact(&mut header) {
                    // [`Bed::sent`] looks at the same socket, for a moment without waiting; else the bed is gone.
                    if e.kind() != ErrorKind::WouldBlock {
                        return;
                    }
                    std::thread::yield_now();
                }
                let mut command = vec![0; packet::header(&header).unwrap().0];
                end.read_exact(&mut command).unwrap();
                let _ = heard.send([&header[..], &command].concat());
                end.write_all(&reply).unwrap();
            }
        });
    }

    /// What the server of its backend was sent since it was looked at last: statements, and the names of other commands.
    pub(crate) fn sent(&mut self) -> Vec<String> {
        let mut bytes: Vec<u8> = self.heard.1.try_iter().flatten().collect();
        let end = self.ends.last_mut().unwrap();
        end.set_nonblocking(true).unwrap();
        // It ends as there is no more for now.
        let _ = end.read_to_end(&mut bytes);
        end.set_nonblocking(false).unwrap();
        let shown = |payload: &[u8]| match (Command::from_u8(payload[0]), String::from_utf8_lossy(&payload[1..])) {
            (Some(Command::Query), text) => text.into_owned(),
            (Some(Command::InitDb), schema) => format!("InitDb {schema}"),
            (other, _) => format!("{other:?}"),
        };
        packets(&bytes).map(shown).collect()
    }

    /// The names of its pins where it is.
    pub(crate) fn pins(&self) -> Vec<&'static str> {
        self.at.pins.set().iter().map(PinReason::name).collect()
    }

    /// It has this pin, too.
    pub(crate) fn pin(&mut self, reasons: &[PinReason]) {
        PinSet::of(reasons).iter().for_each(|reason| self.at.pins.begin(reason, 1, 2));
    }
}

/// An OK, or an error, as a server sends it.
pub(crate) fn packet_of(reply: &ReplyFacts) -> Vec<u8> {
    let mut payload = Vec::new();
    match reply.error {
        Some(code) => ErrPacket { code, sqlstate: *b"HY000", message: &reply.message }.write(&mut payload, Capabilities::PROTOCOL_41),
        None => {
            let status = reply.status.unwrap_or_default();
            let ok = OkPacket {
                affected_rows: reply.affected_rows,
                last_insert_id: reply.last_insert_id,
                status,
                warnings: reply.warnings,
                info: b"",
                session_state: b"",
            };
            ok.write(&mut payload, OK, Capabilities::PROTOCOL_41);
        }
    }
    numbered(&[payload])
}

/// What a server says of a column or a parameter.
pub(crate) const COLUMN: &[u8] = b"\x03def\0\0\0\x01c\0\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0";

/// What ends a list of columns, parameters or rows.
pub(crate) fn eof() -> Vec<u8> {
    [&[EOF, 0, 0][..], &StatusFlags::AUTOCOMMIT.bits().to_le_bytes()].concat()
}

/// Rows of text, as a server sends them: as many columns as the first has values.
pub(crate) fn result_of(rows: &[&[&str]]) -> Vec<u8> {
    let eof = eof();
    let columns = rows.first().map_or(1, |row| row.len());
    let mut payloads = vec![vec![u8::try_from(columns).unwrap()]];
    payloads.extend(std::iter::repeat_n(COLUMN.to_vec(), columns));
    payloads.push(eof.clone());
    for row in rows {
        let mut payload = Vec::new();
        row.iter().for_each(|value| put_lenenc_bytes(&mut payload, value.as_bytes()));
        payloads.push(payload);
    }
    payloads.push(eof);
    numbered(&payloads)
}

/// These payloads as the packets of an answer.
pub(crate) fn numbered(payloads: &[Vec<u8>]) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), 1);
    payloads.iter().for_each(|payload| put_packet(&mut out, &mut seq, payload));
    out
}

/// What a statement is that is read as most are.
pub(crate) fn analysis(text: &str) -> Analysis {
    sql::analyze(text.as_bytes(), LexMode::default())
}

/// A success, after which the connection is as most are.
pub(crate) fn ok() -> ReplyFacts {
    ReplyFacts { status: Some(StatusFlags::AUTOCOMMIT), ..ReplyFacts::default() }
}

/// A success in a transaction.
pub(crate) fn ok_open() -> ReplyFacts {
    ReplyFacts { status: Some(StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS), ..ReplyFacts::default() }
}

/// A result of so many rows.
pub(crate) fn rows(count: u64) -> ReplyFacts {
    ReplyFacts { rows: Some(count), had_rows: true, all_rows: count, ..ok() }
}

/// An error.
pub(crate) fn error(code: u16) -> ReplyFacts {
    ReplyFacts { error: Some(code), ..ReplyFacts::default() }
}

/// A success that tells of variables.
pub(crate) fn told(variables: &[(&str, &str)]) -> ReplyFacts {
    let variables = variables.iter().map(|(name, value)| ((*name).into(), value.as_bytes().into())).collect();
    ReplyFacts { variables, state_change: true, ..ok() }
}
