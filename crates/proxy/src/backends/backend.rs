//! One connection to a server, and what we know it to hold.

mod hand_over;

use crate::backends::proven::Proven;
use crate::clients::processlist::HeldConnection;
use crate::net::buffer::{Buffer, BufferPool};
use crate::net::link::{DetachedLink, Link};
use crate::net::stream::invalid;
use crate::servers::server::{ServerShared, Slot, Transport};
use crate::statements::kill::Kill;
use crate::statements::stmt_cache::StatementCache;
use crate::workers::counters::{Counters, add};
use session_state::causal::ConnectedServer;
use session_state::class::LaneKey;
use session_state::collected::{Collected, OkReply, ServerError};
use session_state::held::{CLIENT_CHARSET, Held};
use session_state::server_info::ServerInfo;
use session_state::state::{self, Diff, State, Text, Variables, is_charset_name};
use std::io;
use std::sync::Arc;
use wire::charset;
use wire::command::Command;
use wire::flags::Capabilities;
use wire::packet;
use wire::prepared::PrepareOk;
use wire::reply::{Frame, ReplyKind, Step, Tracker};

pub(crate) use hand_over::{BackendRecord, Home, Numbers, record};

/// A backend connection. Everything in it can move to another worker but the socket's registration.
pub(crate) struct Backend {
    /// The bytes.
    pub link: Link,
    /// Replies not yet consumed.
    pub input: Buffer,
    /// The rest.
    pub core: Box<BackendState>,
}

/// The part of a backend that does not depend on the runtime of its worker.
pub(crate) struct BackendState {
    /// Where it belongs: hostgroup, user and class.
    pub lane: LaneKey,
    /// Its server.
    pub server: Arc<ServerShared>,
    /// What the server said at login.
    pub info: Arc<ServerInfo>,
    /// Negotiated capabilities.
    pub caps: Capabilities,
    /// What its server's row said of TLS and compression when it was opened.
    pub transport: Transport,
    /// How often another server had been in its server's place when it was opened.
    turn: u32,
    /// Our end of the connection; None on Unix sockets.
    pub local: Option<std::net::SocketAddr>,
    /// The server's end of it; None on Unix sockets.
    pub peer: Option<std::net::IpAddr>,
    /// The server's id of this connection, for KILL.
    pub thread_id: u32,
    /// What it has of the session that used it last.
    pub held: Held,
    /// Variables in which a fresh connection differed from its server's global ones: what is not listed in `held` has these.
    pub defaults: Variables,
    /// Its `gtid_next` is, or may be, a GTID that the proxy chose (MySQL): it serves nobody else before that is AUTOMATIC again.
    pub has_assigned_gtid: bool,
    /// An answer to a command of the proxy's own is outstanding: who would read it took it for another one's.
    is_owed: bool,
    /// A KILL QUERY was sent for it, and may still arrive: it never serves another session.
    pub killed: bool,
    /// What was sent, or is to be sent, to end the statement that runs on it.
    pub kill: Option<Arc<Kill>>,
    /// Statements prepared on it.
    pub statements: StatementCache,
    /// What it logged in with.
    pub proven: Option<Box<Proven>>,
    /// Process clock (ms) when it was opened and when it was last given back.
    pub opened_ms: u64,
    /// Process clock (ms) when it was last given back.
    pub idle_since_ms: u64,
    /// When (process clock, ms) a session gave it back last.
    pub worked_ms: u64,
    /// When (process clock, us) one who waited got it, if one did; 0 once it is idle.
    pub taken_us: u64,
    slot: Slot,
}

impl BackendState {
    /// Whether its server's name stands for other addresses by now, another server is in its place, or it is to be connected to
    /// otherwise: it serves nobody new.
    pub(crate) fn is_astray(&self) -> bool {
        let is_gone = self.server.addresses.has_moved() && self.peer.is_some_and(|ip| self.server.addresses.is_gone(ip));
        is_gone || self.transport != self.server.transport() || self.turn != self.server.info.turns()
    }

    /// Its server, as causal reads tell it from another one in its place.
    pub(crate) fn end(&self) -> ConnectedServer<'_> {
        ConnectedServer { server: &self.server.key, ip: self.peer, since_ms: self.opened_ms.max(self.server.standing.used_since_ms()) }
    }

    /// What brings it to `want`. A server that does not track sessions is an old one, where a variable without a global value has no safe
    /// way back, and COM_CHANGE_USER leaves `timestamp` as it was.
    pub(crate) fn diff_to(&self, want: &State) -> Diff {
        if !self.held.tracks() && state::lacks_way_back(want, self.held.state()) {
            return Diff::Reset { change_user: false };
        }
        state::diff(want, self.held.state(), &self.defaults, &self.info)
    }

    /// A statement of the proxy's own got this reply.
    pub(crate) fn asked(&mut self, reply: &Collected) {
        match reply.error {
            Some(_) => self.held.failed(),
            None => self.held.succeeded(reply.ok.warnings),
        }
    }
}

/// A backend on its way to another worker.
pub(crate) struct DetachedBackend {
    link: DetachedLink,
    core: Box<BackendState>,
}

impl DetachedBackend {
    /// Registers the backend with the calling worker.
    pub(crate) fn attach(self) -> io::Result<Backend> {
        Ok(Backend { link: self.link.attach()?, input: Buffer::default(), core: self.core })
    }
}

/// What is said of a connection that is not [even](Backend::is_even).
pub(crate) const OUTSTANDING: &str = "the reply to another command is still unread";

/// Largest reply to a statement of our own, bytes.
const MAX_COLLECTED: usize = 4 << 20;
/// Most packets of such a reply: an empty row costs memory too. SHOW WARNINGS may answer 65,535 rows, and a prepared
/// statement may have as many parameters.
const MAX_PACKETS: usize = 1 << 17;

impl Backend {
    /// The connection, for those who show it.
    pub(crate) fn shown(&self) -> HeldConnection {
        let core = &self.core;
        let server = (core.server.key.hostgroup, core.server.index);
        HeldConnection { server, local: core.local, thread_id: core.thread_id, opened_ms: core.opened_ms }
    }

    /// Puts the parts together; called once the login is done.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        link: Link,
        lane: LaneKey,
        server: Arc<ServerShared>,
        info: Arc<ServerInfo>,
        caps: Capabilities,
        thread_id: u32,
        slot: Slot,
        now_ms: u64,
    ) -> Self {
        let held = Held::logged_in(info.status);
        let statements = StatementCache::default();
        let core = BackendState {
            lane,
            transport: server.transport(),
            turn: server.info.turns(),
            server,
            info,
            caps,
            local: link.stream().local_addr(),
            peer: link.stream().peer_ip(),
            thread_id,
            held,
            defaults: Variables::default(),
            has_assigned_gtid: false,
            is_owed: false,
            killed: false,
            kill: None,
            statements,
            proven: None,
            opened_ms: now_ms,
            idle_since_ms: now_ms,
            worked_ms: now_ms,
            taken_us: 0,
            slot,
        };
        Self { link, input: Buffer::default(), core: Box::new(core) }
    }

    /// Takes the backend from this worker. Refused (with the backend lost) only when the kernel refuses.
    pub(crate) fn detach(self) -> io::Result<DetachedBackend> {
        Ok(DetachedBackend { link: self.link.detach()?, core: self.core })
    }

    /// Whether every answer was read: what comes next answers what is sent next.
    pub(crate) fn is_even(&self) -> bool {
        !self.core.is_owed && self.input.is_empty()
    }

    /// Whether an answer to a command of our own is outstanding.
    pub(crate) fn is_owed(&self) -> bool {
        self.core.is_owed
    }

    /// A command of our own begins, which has an answer: it is owed until [`Backend::collect`] or [`Backend::settled`].
    ///
    /// # Errors
    /// Another answer is outstanding: the connection is of no use any more.
    pub(crate) fn start_exchange(&mut self) -> io::Result<()> {
        if !self.is_even() {
            return Err(io::Error::other(OUTSTANDING));
        }
        self.core.is_owed = true;
        self.link.start_command();
        Ok(())
    }

    /// All of an answer was read by other means than [`Backend::collect`].
    pub(crate) fn settled(&mut self) {
        self.core.is_owed = false;
    }

    /// Sends a command of our own.
    pub(crate) async fn send(&mut self, command: Command, body: &[u8]) -> io::Result<()> {
        let mut out = Vec::with_capacity(body.len() + 8);
        put_command(&mut out, command, body);
        self.start_exchange()?;
        self.link.write_all(&out).await
    }

    /// Sends a statement of our own.
    pub(crate) async fn send_query(&mut self, sql: &str) -> io::Result<()> {
        let mut out = Vec::with_capacity(sql.len() + 8);
        put_query(&mut out, sql.as_bytes(), self.core.caps);
        self.start_exchange()?;
        self.link.write_all(&out).await
    }

    /// Sends a statement of our own and reads its whole reply.
    pub(crate) async fn query(&mut self, sql: &str, pool: &BufferPool) -> io::Result<Collected> {
        self.send_query(sql).await?;
        self.collect(ReplyKind::Results, false, pool).await
    }

    /// Sends statements of our own together, and reads the reply to each.
    pub(crate) async fn query_all<S: AsRef<str>>(&mut self, statements: &[S], pool: &BufferPool) -> io::Result<Vec<Collected>> {
        let mut out = Vec::with_capacity(512);
        for sql in statements {
            put_query(&mut out, sql.as_ref().as_bytes(), self.core.caps);
        }
        self.start_exchange()?;
        self.link.write_all(&out).await?;
        let mut replies = Vec::with_capacity(statements.len());
        for _ in statements {
            replies.push(self.collect(ReplyKind::Results, false, pool).await?);
        }
        Ok(replies)
    }

    /// Closes prepared statements, by the server's ids.
    pub(crate) async fn close_statements(&mut self, counters: &Counters, ids: &[u32]) -> io::Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        add(&counters.backend_closes, ids.len() as u64);
        let mut out = Vec::with_capacity(ids.len() * 9);
        for id in ids {
            put_command(&mut out, Command::StmtClose, &id.to_le_bytes());
        }
        self.link.start_command();
        self.link.write_all(&out).await
    }

    /// Chooses a schema.
    pub(crate) async fn init_db(&mut self, schema: &Text, pool: &BufferPool) -> io::Result<Collected> {
        // Names are read in the connection's character set, and this one is UTF-8.
        let charset = self.core.held.state().variables.get(CLIENT_CHARSET).filter(|_| !schema.is_ascii());
        let other = charset.filter(|charset| !charset::is_utf8(charset)).cloned();
        if other.is_some() {
            self.set_client_charset("utf8mb4", pool).await?;
        }
        self.send(Command::InitDb, schema).await?;
        let reply = self.collect(ReplyKind::Simple, false, pool).await?;
        match reply.error {
            Some(_) => self.core.held.failed(),
            None => self.core.held.entered(Some(schema.clone())),
        }
        if let Some(back) = other.as_deref().and_then(|charset| std::str::from_utf8(charset).ok()).filter(|name| is_charset_name(name)) {
            self.set_client_charset(back, pool).await?;
        }
        Ok(reply)
    }

    async fn set_client_charset(&mut self, name: &str, pool: &BufferPool) -> io::Result<()> {
        match self.query(&format!("SET {CLIENT_CHARSET}={name}"), pool).await?.error {
            Some(error) => Err(io::Error::other(error.to_string())),
            None => {
                self.core.held.reads_in(name);
                Ok(())
            }
        }
    }

    /// Reads one whole reply to a command of our own; `keep_raw` also keeps its packets.
    pub(crate) async fn collect(&mut self, kind: ReplyKind, keep_raw: bool, pool: &BufferPool) -> io::Result<Collected> {
        let mut reply = self.begin_collecting(kind, keep_raw);
        while let Some(wanted) = self.collect_more(&mut reply)? {
            self.input.reserve(wanted, pool);
            if self.link.read(&mut self.input, pool).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.input.release(pool);
        Ok(reply.reply)
    }

    /// For a caller that waits for the reply's bytes itself.
    pub(crate) fn begin_collecting(&mut self, kind: ReplyKind, keep_raw: bool) -> Collecting {
        self.core.is_owed = true;
        Collecting { tracker: Tracker::new(kind, self.core.caps), reply: Collected::default(), keep_raw, size: 0, packets: 0 }
    }

    /// Takes what is at hand of a reply; answers how many bytes must be there to go on, or None when it was all.
    pub(crate) fn collect_more(&mut self, into: &mut Collecting) -> io::Result<Option<usize>> {
        let Collecting { tracker, reply, keep_raw, size, packets } = into;
        while !tracker.is_done() {
            let (len, frame) = match self.next_frame(tracker)? {
                Next::Frame(len, frame) => (len, frame),
                Next::Needs(wanted) => return Ok(Some(wanted)),
            };
            let bytes = self.input.filled();
            let payload = bytes.get(packet::HEADER..packet::HEADER + len).unwrap_or_default();
            match frame {
                Frame::Row => reply.rows.push(payload.to_vec()),
                Frame::Ok | Frame::ResultEnd => reply.ok = OkReply::read(payload, tracker, self.core.caps),
                Frame::Err => {
                    reply.unasked = self.link.numbers_packets() && packet::header(bytes).is_some_and(|(_, seq)| seq == 0);
                    reply.error = Some(ServerError::read(payload, self.core.caps));
                }
                _ => {}
            }
            if *keep_raw {
                reply.raw.extend_from_slice(bytes.get(..packet::HEADER + len).unwrap_or_default());
            }
            *size += len;
            *packets += 1;
            if *size > MAX_COLLECTED || *packets > MAX_PACKETS {
                return Err(io::Error::other("reply to an internal statement is too long"));
            }
            self.input.consume(packet::HEADER + len);
        }
        self.core.is_owed = false;
        self.core.held.has_status(tracker.status());
        Ok(None)
    }

    /// The payload's length and meaning of the whole frame at the front of the input.
    fn next_frame(&self, tracker: &mut Tracker) -> io::Result<Next> {
        let bytes = self.input.filled();
        let mut wanted = packet::HEADER;
        if let Some((len, _)) = packet::header(bytes) {
            wanted += len;
            if bytes.len() >= wanted {
                let body = bytes.get(packet::HEADER..wanted).unwrap_or_default();
                return match tracker.frame(len, body).map_err(invalid)? {
                    Step::Frame(frame) => Ok(Next::Frame(len, frame)),
                    Step::Need(_) => Err(invalid("the proxy cannot parse the reply")),
                };
            }
        }
        if wanted > MAX_COLLECTED {
            return Err(io::Error::other("reply to an internal statement is too long"));
        }
        Ok(Next::Needs(wanted))
    }
}

/// A reply to a command of our own, as far as it is there.
pub(crate) struct Collecting {
    tracker: Tracker,
    /// What it said.
    pub reply: Collected,
    keep_raw: bool,
    size: usize,
    packets: usize,
}

/// What is at the front of the input.
enum Next {
    /// A frame: its payload's length, and what it is.
    Frame(usize, Frame),
    /// Part of one: so many bytes must be there.
    Needs(usize),
}

/// Appends a command packet.
pub(crate) fn put_command(out: &mut Vec<u8>, command: Command, body: &[u8]) {
    let mut seq = 0;
    let start = packet::begin_packet(out);
    out.push(command as u8);
    out.extend_from_slice(body);
    packet::finish_packet(out, start, &mut seq);
}

/// Appends a COM_QUERY packet of our own.
pub(crate) fn put_query(out: &mut Vec<u8>, sql: &[u8], caps: Capabilities) {
    let mut seq = 0;
    let start = packet::begin_packet(out);
    wire::query::put_query(out, sql, caps);
    packet::finish_packet(out, start, &mut seq);
}

/// Replies for unit tests.
/// The server's answer to a PREPARE that it took, the first of these packets.
pub(crate) fn prepare_ok(packets: &[u8]) -> Option<PrepareOk> {
    let (len, _) = packet::header(packets)?;
    PrepareOk::parse(packets.get(packet::HEADER..packet::HEADER + len)?, Capabilities::default()).ok()
}

#[cfg(test)]
pub(crate) mod made {
    use session_state::collected::{Collected, ServerError};

    pub(crate) fn row(values: &[&str]) -> Collected {
        let mut row = Vec::new();
        values.iter().for_each(|value| wire::codec::put_lenenc_bytes(&mut row, value.as_bytes()));
        Collected { rows: vec![row], ..Collected::default() }
    }

    pub(crate) fn error(code: u16) -> Collected {
        Collected { error: Some(ServerError { code, sqlstate: *b"HY000", message: Vec::new() }), ..Collected::default() }
    }
}
