//! A small blocking MySQL client for tests. It hides nothing: raw payloads, capability flags, sequence numbers, session tracking and the
//! order of packets can all be examined. Any command can be sent, even a wrong one.
//!
//! It is not a client library: no pooling, no reconnecting, no conversion of values.

mod channel;
mod login;
mod options;
mod prepared;
mod reply;
mod tls;
mod value;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use wire::handshake::Greeting;
use wire::message::{EOF, ERR, OK};
use wire::{Capabilities, Command, StatusFlags};

use self::channel::Channel;
use self::value::{binary_row, malformed, text_row};
use crate::error::LabError;

pub use self::options::{Compression, ConnectOptions, Target};
pub use self::prepared::{Execution, Prepared};
pub use self::reply::{Column, Outcome, Reply, ResultSet, Row, ServerError, Status};
pub use self::value::{Param, Value};

/// First byte of a request for a local file.
const LOCAL_INFILE: u8 = 0xfb;
/// A file is sent in packets of this many bytes.
const INFILE_CHUNK: usize = 64 * 1024;

/// Gives the content of a file that LOAD DATA LOCAL names; `None` refuses it.
pub type InfileHandler = Box<dyn FnMut(&str) -> Option<Vec<u8>> + Send>;

/// How rows of a reply are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Answers to COM_QUERY.
    Text,
    /// Answers to COM_STMT_EXECUTE and COM_STMT_FETCH.
    Binary,
}

/// One logged-in connection. Dropping it closes the socket without COM_QUIT.
pub struct Client {
    channel: Channel,
    greeting: Greeting,
    capabilities: Capabilities,
    login: Status,
    infile: Option<InfileHandler>,
    /// Replies not read yet, oldest first.
    awaited: VecDeque<Awaited>,
    /// Columns of each prepared statement as last described: a server that knows this leaves them out.
    known: HashMap<u32, Vec<Column>>,
}

/// A reply that will come.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// The sequence number it will begin with.
    seq: u8,
    /// The prepared statement it belongs to.
    statement: Option<u32>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects and logs in. A refusal is [`LabError::Server`].
    pub fn connect(options: &ConnectOptions) -> Result<Client, LabError> {
        login::connect(options)
    }

    /// The server's first packet.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The capabilities in use: those that the test asked for and the server has.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The OK packet that ended the login.
    pub fn login_status(&self) -> &Status {
        &self.login
    }

    /// The certificate that the server showed (DER); None without TLS.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.channel.certificate()
    }

    /// The connection id from the greeting.
    pub fn connection_id(&self) -> u32 {
        self.greeting.connection_id
    }

    /// This side's TCP address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.channel.local_addr()
    }

    /// The same TCP connection once more, to read what comes while this one sends; None on other streams.
    pub fn try_clone_tcp(&self) -> Option<std::net::TcpStream> {
        self.channel.try_clone_tcp()
    }

    /// Answers LOAD DATA LOCAL; without a handler every file is refused (an empty packet).
    pub fn set_infile_handler(&mut self, handler: InfileHandler) {
        self.infile = Some(handler);
    }

    /// Runs a text query and reads all of its results. A server's error is part of the reply, not an `Err`.
    pub fn query(&mut self, sql: impl AsRef<[u8]>) -> Result<Reply, LabError> {
        self.query_with_attributes(sql, &[])
    }

    /// As [`Client::query`] with query attributes, which are dropped when QUERY_ATTRIBUTES is not in use.
    pub fn query_with_attributes(&mut self, sql: impl AsRef<[u8]>, attributes: &[(&str, Param)]) -> Result<Reply, LabError> {
        self.send_query_with_attributes(sql, attributes)?;
        self.recv_reply(Encoding::Text)
    }

    /// Runs a statement that must succeed.
    pub fn run(&mut self, sql: impl AsRef<[u8]>) -> Result<Reply, LabError> {
        self.query(sql)?.check()
    }

    /// Runs a query that must succeed and gives the first field of its first row.
    pub fn scalar(&mut self, sql: impl AsRef<[u8]>) -> Result<Option<String>, LabError> {
        self.run(sql)?.scalar()
    }

    /// Sends a text query without waiting for its reply: read it later with [`Client::recv_reply`], in order.
    pub fn send_query(&mut self, sql: impl AsRef<[u8]>) -> Result<(), LabError> {
        self.send_query_with_attributes(sql, &[])
    }

    fn send_query_with_attributes(&mut self, sql: impl AsRef<[u8]>, attributes: &[(&str, Param)]) -> Result<(), LabError> {
        let mut body = Vec::new();
        if self.capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
            prepared::put_attributes(&mut body, attributes);
        }
        body.extend_from_slice(sql.as_ref());
        self.send_command(Command::Query, &body)
    }

    /// COM_PING.
    pub fn ping(&mut self) -> Result<Reply, LabError> {
        self.command(Command::Ping, b"")
    }

    /// COM_INIT_DB.
    pub fn init_db(&mut self, schema: &str) -> Result<Reply, LabError> {
        self.command(Command::InitDb, schema.as_bytes())
    }

    /// COM_RESET_CONNECTION.
    pub fn reset_connection(&mut self) -> Result<Reply, LabError> {
        self.command(Command::ResetConnection, b"")
    }

    /// COM_SET_OPTION: 0 turns multi-statements on, 1 off.
    pub fn set_option(&mut self, option: u16) -> Result<Reply, LabError> {
        self.command(Command::SetOption, &option.to_le_bytes())
    }

    /// COM_STATISTICS: a bare string.
    pub fn statistics(&mut self) -> Result<String, LabError> {
        self.send_command(Command::Statistics, b"")?;
        Ok(String::from_utf8_lossy(&self.recv_packet()?).into_owned())
    }

    /// COM_QUIT, and waits for the server to close.
    pub fn quit(mut self) -> Result<(), LabError> {
        self.send_command(Command::Quit, b"")?;
        match self.channel.recv() {
            Err(LabError::Io { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(LabError::Protocol("an answer to COM_QUIT".to_owned())),
        }
    }

    /// Cuts the connection in both directions, as a dying client does.
    pub fn cut(&mut self) {
        self.channel.shutdown();
    }

    /// COM_CHANGE_USER with the credentials, schema, charset and attributes of `options`.
    pub fn change_user(&mut self, options: &ConnectOptions) -> Result<Status, LabError> {
        self.channel.begin_command();
        login::change_user(&mut self.channel, &self.greeting, self.capabilities, options)
    }

    /// Sends a command and reads its reply as that of a text query.
    pub fn command(&mut self, command: Command, body: &[u8]) -> Result<Reply, LabError> {
        self.send_command(command, body)?;
        self.recv_reply(Encoding::Text)
    }

    /// Sends a command without reading anything.
    pub fn send_command(&mut self, command: Command, body: &[u8]) -> Result<(), LabError> {
        let mut payload = Vec::with_capacity(body.len() + 1);
        payload.push(command as u8);
        payload.extend_from_slice(body);
        self.send_payload(&payload, !command.has_no_reply())
    }

    /// Sends any payload as a new command (sequence number 0); `awaits_reply` says whether the server will answer.
    pub fn send_payload(&mut self, payload: &[u8], awaits_reply: bool) -> Result<(), LabError> {
        self.channel.begin_command();
        self.channel.send(payload)?;
        if awaits_reply {
            self.awaited.push_back(Awaited { seq: self.channel.seq, statement: executed_statement(payload) });
        }
        Ok(())
    }

    /// Sends bytes as they are, headers and all.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), LabError> {
        self.channel.send_bytes(bytes)
    }

    /// Receives one payload, whatever it is.
    pub fn recv_packet(&mut self) -> Result<Vec<u8>, LabError> {
        self.expect_reply();
        self.channel.recv()
    }

    /// Reads the whole reply of the oldest command that is still unanswered.
    pub fn recv_reply(&mut self, encoding: Encoding) -> Result<Reply, LabError> {
        let statement = self.expect_reply();
        let mut results = Vec::new();
        loop {
            let result = self.recv_result(encoding, statement)?;
            let more = match &result {
                Outcome::Ok(status) => status.more(),
                Outcome::Rows(set) => set.end.as_ref().is_ok_and(Status::more),
                Outcome::Err(_) => false,
            };
            results.push(result);
            if !more {
                return Ok(Reply { results });
            }
        }
    }

    /// Prepares for the oldest awaited reply; gives the prepared statement it belongs to.
    fn expect_reply(&mut self) -> Option<u32> {
        let awaited = self.awaited.pop_front()?;
        self.channel.seq = awaited.seq;
        awaited.statement
    }

    /// A payload, less MariaDB's progress reports.
    fn recv_payload(&mut self) -> Result<Vec<u8>, LabError> {
        loop {
            let payload = self.channel.recv()?;
            let progress = payload.starts_with(&[ERR, 0xff, 0xff]) && self.capabilities.contains(Capabilities::MARIADB_CLIENT_PROGRESS);
            if !progress {
                return Ok(payload);
            }
        }
    }

    fn recv_result(&mut self, encoding: Encoding, statement: Option<u32>) -> Result<Outcome, LabError> {
        let first = self.recv_payload()?;
        match first.first() {
            Some(&OK) => Ok(Outcome::Ok(Status::parse(&first, self.capabilities)?)),
            Some(&ERR) => Ok(Outcome::Err(ServerError::parse(&first, self.capabilities)?)),
            Some(&EOF) if first.len() < 9 => Ok(Outcome::Ok(Status::parse(&first, self.capabilities)?)),
            Some(&LOCAL_INFILE) => {
                self.send_infile(&first[1..])?;
                self.recv_result(encoding, statement)
            }
            _ => self.recv_rows(&first, encoding, statement).map(Outcome::Rows),
        }
    }

    fn send_infile(&mut self, name: &[u8]) -> Result<(), LabError> {
        let name = String::from_utf8_lossy(name);
        let content = self.infile.as_mut().and_then(|handler| handler(&name)).unwrap_or_default();
        for chunk in content.chunks(INFILE_CHUNK) {
            self.channel.send(chunk)?;
        }
        self.channel.send(b"")
    }

    fn recv_rows(&mut self, first: &[u8], encoding: Encoding, statement: Option<u32>) -> Result<ResultSet, LabError> {
        let (count, described) = self.column_count(first)?;
        let columns = if described { self.recv_columns(count)? } else { self.undescribed(count, statement) };
        if let (true, Some(id)) = (described, statement) {
            self.known.insert(id, columns.clone());
        }
        let columns_end = if self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            None
        } else {
            Some(Status::parse(&self.recv_payload()?, self.capabilities)?)
        };
        let cursor = columns_end.as_ref().filter(|end| end.status.contains(StatusFlags::CURSOR_EXISTS)).cloned();
        let (rows, mut end) = match cursor {
            Some(end) => (Vec::new(), Ok(end)),
            None => self.recv_until_end(&columns, encoding)?,
        };
        // MySQL says only in the first EOF that these are OUT parameters and that more follows.
        let of_parameters = StatusFlags::PS_OUT_PARAMS | StatusFlags::MORE_RESULTS;
        let first = columns_end.as_ref().map_or(StatusFlags::default(), |end| end.status);
        if let (Ok(end), true) = (end.as_mut(), first.contains(StatusFlags::PS_OUT_PARAMS)) {
            end.status |= first & of_parameters;
        }
        Ok(ResultSet { columns, columns_end, rows, end })
    }

    /// Columns whose definitions were left out: as they were known before, else without any detail.
    fn undescribed(&self, count: usize, statement: Option<u32>) -> Vec<Column> {
        let known = statement.and_then(|id| self.known.get(&id)).filter(|columns| columns.len() == count);
        known.cloned().unwrap_or_else(|| vec![Column::default(); count])
    }

    /// Number of columns, and whether their definitions follow.
    fn column_count(&self, first: &[u8]) -> Result<(usize, bool), LabError> {
        let optional = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CLIENT_CACHE_METADATA;
        let mut reader = wire::codec::Reader::new(first);
        let count = reader.lenenc().map_err(malformed)?;
        // MySQL's page puts the flag before the count; MySQL 9.7 and MariaDB 10.11 both send it behind.
        let mut described = true;
        if self.capabilities.intersects(optional) && !reader.is_empty() {
            described = reader.u8().map_err(malformed)? != 0;
        }
        let count = usize::try_from(count).map_err(|e| LabError::Protocol(e.to_string()))?;
        if reader.is_empty() && count <= 4096 {
            Ok((count, described))
        } else {
            Err(LabError::Protocol(format!("a column count was due, got {first:02x?}")))
        }
    }

    fn recv_columns(&mut self, count: usize) -> Result<Vec<Column>, LabError> {
        (0..count).map(|_| Column::parse(&self.recv_payload()?, self.capabilities)).collect()
    }

    /// Rows up to and with the packet that ends them.
    fn recv_until_end(&mut self, columns: &[Column], encoding: Encoding) -> Result<(Vec<Row>, Result<Status, ServerError>), LabError> {
        let mut rows = Vec::new();
        loop {
            let raw = self.recv_payload()?;
            match raw.first() {
                Some(&ERR) => return Ok((rows, Err(ServerError::parse(&raw, self.capabilities)?))),
                Some(&EOF) if raw.len() < self.longest_end() => {
                    return Ok((rows, Ok(Status::parse(&raw, self.capabilities)?)));
                }
                _ => {
                    let values = match encoding {
                        Encoding::Text => text_row(&raw, columns.len())?,
                        Encoding::Binary => binary_row(&raw, columns)?,
                    };
                    rows.push(Row { raw, values });
                }
            }
        }
    }

    /// A packet that starts with 0xfe and is at least this long is a row whose first field is longer than 16 MiB.
    fn longest_end(&self) -> usize {
        if self.capabilities.contains(Capabilities::DEPRECATE_EOF) { wire::packet::MAX_PAYLOAD } else { 9 }
    }
}

/// The id in a COM_STMT_EXECUTE.
fn executed_statement(payload: &[u8]) -> Option<u32> {
    match payload {
        [command, a, b, c, d, ..] if *command == Command::StmtExecute as u8 => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}
