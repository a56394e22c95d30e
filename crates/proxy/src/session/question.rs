//! All that the proxy itself asks the server of a session, and the door through which it asks: [`Door::ask`].
//!
//! A question takes the place of what the server knew of the session's last statement: its warnings, ROW_COUNT(), FOUND_ROWS().
//! INVARIANT: the door first reads what a question [clobbers](Question::clobbers) and only the server knows, so that no caller has to.
//! It also notes what an answer leaves on the connection.

use super::backends::Backends;
use super::connection::Connection;
use super::guard::{guarded, unless_killed};
use super::views::SchemaTable;
use super::{Session, charsets};
use crate::backends::backend::{Backend, put_command, put_query};
use crate::hostgroups::gtid_source::AssignedGtid;
use crate::net::buffer::BufferPool;
use session_state::collected::Collected;
use session_state::facts::{SessionFacts, Unread};
use session_state::pins::PinReason;
use session_state::state::Text;
use sql::Routine;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;
use wire::charset::Flavor;
use wire::codec::Reader;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};
use wire::reply::ReplyKind;

/// One question. Each is one command with one reply.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    /// The warnings of the last statement.
    Warnings,
    /// LAST_INSERT_ID().
    InsertId,
    /// LAST_INSERT_ID() and FOUND_ROWS().
    InsertIdAndFoundRows,
    /// ROW_COUNT(). Only MariaDB is asked, which keeps the warnings over it.
    RowCount,
    /// The values of these expressions; as plain bytes, where results may come in a character set that is not known.
    Values { expressions: &'a [String], as_bytes: bool },
    /// A text as results have it, then the first four of [`CHARSETS`](session_state::state::CHARSETS) as plain bytes: a change of one may have
    /// changed all.
    Charsets,
    /// These user variables: [`COLUMNS_OF_VARIABLE`] columns for each. A value of more than `max` bytes is left out.
    UserVariables { names: &'a [String], max: u64 },
    /// How a routine was created.
    Body(&'a Routine),
    /// For each of these by its number: its type, and its definition if it is a view.
    Tables(&'a [&'a SchemaTable]),
    /// What the server calls itself, which no other one of its cluster does.
    ServerName(Flavor),
    /// The GTIDs of what the session wrote; MySQL knows only those of the whole server.
    Gtids(Flavor),
    /// Whether the transaction with this GTID is applied.
    IsApplied(&'a AssignedGtid),
    /// Waits until the server has what the session is to see: the text of [`Written::question`](session_state::causal::Written::question).
    Wait(&'a str),
    /// Nothing: the reply has the connection's status (COM_PING).
    Status,
    /// Enters a schema (COM_INIT_DB).
    Enter(&'a Text),
    /// Assigns variables: the text of a SET.
    Set(&'a str),
    /// Gives the connection this LAST_INSERT_ID().
    GiveInsertId(u64),
    /// Begins, commits or rolls back a transaction.
    Transaction(&'static str),
    /// Fails with an error of the session's own: the text of a SIGNAL.
    Raise(&'a str),
    /// A statement among several that find out what became of a lost write.
    Claim(&'a str),
}

/// A fact of the session's last statement that its server keeps, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptFact {
    /// The list of warnings, or the error.
    Warnings,
    /// ROW_COUNT().
    RowCount,
    /// FOUND_ROWS().
    FoundRows,
    /// LAST_INSERT_ID().
    InsertId,
}

/// Columns of the answer to [`Question::UserVariables`] for each variable.
pub(super) const COLUMNS_OF_VARIABLE: usize = 5;

impl<'a> Question<'a> {
    /// The statement that is sent; empty where another command is.
    pub(super) fn text(&self) -> Cow<'a, str> {
        match self {
            Self::Warnings => "SHOW WARNINGS".into(),
            Self::InsertId => "SELECT LAST_INSERT_ID()".into(),
            Self::InsertIdAndFoundRows => "SELECT LAST_INSERT_ID(),FOUND_ROWS()".into(),
            Self::RowCount => "SELECT ROW_COUNT()".into(),
            Self::Values { expressions, as_bytes } => values(expressions, *as_bytes).into(),
            Self::Charsets => {
                "SELECT @@character_set_client,CAST(@@character_set_client AS BINARY),CAST(@@character_set_connection AS BINARY),\
                 CAST(@@character_set_results AS BINARY),CAST(@@collation_connection AS BINARY)"
                    .into()
            }
            Self::UserVariables { names, max } => user_variables(names, *max).into(),
            Self::Body(routine) => body(routine).into(),
            Self::Tables(tables) => tables_and_views(tables).into(),
            Self::ServerName(Flavor::MySql) => "SELECT @@server_uuid".into(),
            Self::ServerName(Flavor::MariaDb) => "SELECT @@global.server_id".into(),
            Self::Gtids(Flavor::MySql) => "SELECT @@GLOBAL.gtid_executed".into(),
            Self::Gtids(Flavor::MariaDb) => "SELECT @@last_gtid".into(),
            Self::IsApplied(gtid) => format!("SELECT GTID_SUBSET('{gtid}',@@GLOBAL.gtid_executed)").into(),
            Self::GiveInsertId(id) => format!("SET @@session.last_insert_id={id}").into(),
            Self::Transaction(text) => (*text).into(),
            Self::Wait(text) | Self::Set(text) | Self::Raise(text) | Self::Claim(text) => (*text).into(),
            Self::Status | Self::Enter(_) => "".into(),
        }
    }

    /// What the server loses of the session's last statement. MariaDB keeps warnings until a statement reads a table or fails, which
    /// almost any question may.
    pub(super) fn clobbers(&self) -> &'static [KeptFact] {
        use KeptFact::{FoundRows, InsertId, RowCount, Warnings};
        match self {
            Self::Warnings | Self::Status => &[RowCount],
            Self::RowCount => &[RowCount, FoundRows],
            Self::Set(_) | Self::Transaction(_) | Self::Raise(_) | Self::Enter(_) => &[Warnings, RowCount],
            Self::GiveInsertId(_) => &[Warnings, RowCount, InsertId],
            Self::InsertId
            | Self::InsertIdAndFoundRows
            | Self::Values { .. }
            | Self::Charsets
            | Self::UserVariables { .. }
            | Self::Body(_)
            | Self::Tables(_)
            | Self::ServerName(_)
            | Self::Gtids(_)
            | Self::IsApplied(_)
            | Self::Wait(_)
            | Self::Claim(_) => &[Warnings, RowCount, FoundRows],
        }
    }

    /// Whether packets of the answer say something that the values do not.
    fn needs_packets(&self) -> bool {
        matches!(self, Self::Warnings | Self::Charsets | Self::UserVariables { .. } | Self::Body(_))
    }

    fn put(&self, out: &mut Vec<u8>, caps: Capabilities) {
        match self {
            Self::Status => put_command(out, Command::Ping, &[]),
            Self::Enter(schema) => put_command(out, Command::InitDb, schema),
            _ => put_query(out, self.text().as_bytes(), caps),
        }
    }

    fn reply_kind(&self) -> ReplyKind {
        if matches!(self, Self::Status | Self::Enter(_)) { ReplyKind::Simple } else { ReplyKind::Results }
    }
}

/// Sends questions together, and reads the reply to each. What they clobber is lost: a session asks by its [`Door`].
///
/// # Errors
/// The connection is of no use any more. What the server refuses is an answer.
pub(super) async fn exchange(backend: &mut Backend, questions: &[Question<'_>], pool: &BufferPool) -> io::Result<Vec<Collected>> {
    let mut out = Vec::with_capacity(128);
    questions.iter().for_each(|question| question.put(&mut out, backend.core.caps));
    backend.start_exchange()?;
    backend.link.write_all(&out).await?;
    let mut replies = Vec::with_capacity(questions.len());
    for question in questions {
        let reply = backend.collect(question.reply_kind(), question.needs_packets(), pool).await?;
        backend.core.asked(&reply);
        replies.push(reply);
    }
    Ok(replies)
}

/// Where the proxy asks the server at hand. It has what a question may change: where the session works, what it knows of its last
/// statement, and the status that its client sees.
pub(super) struct Door<'a> {
    /// Where the session works.
    pub at: &'a mut Backends,
    /// What it knows of its last statement.
    pub facts: &'a mut SessionFacts,
    pub status: &'a mut StatusFlags,
}

/// The door of a session, or of its [`Effects`](super::effects::Effects), beside the other parts: a method would borrow those too.
macro_rules! door {
    ($session:expr) => {
        $crate::session::question::Door { at: &mut $session.at, facts: &mut $session.facts, status: &mut $session.client.status }
    };
}
pub(super) use door;

impl Door<'_> {
    /// Asks the server at hand, within the limit of [`guarded`].
    ///
    /// # Errors
    /// There is no backend, or its connection is of no use any more. What the server refuses is an answer.
    pub(super) async fn ask(&mut self, question: Question<'_>) -> io::Result<Collected> {
        let mut replies = self.ask_all(&[question]).await?;
        replies.pop().ok_or_else(|| io::Error::other("no reply"))
    }

    /// Asks several questions in one round trip. Returns the reply to each.
    ///
    /// # Errors
    /// As for [`Door::ask`].
    pub(super) async fn ask_all(&mut self, questions: &[Question<'_>]) -> io::Result<Vec<Collected>> {
        self.will_ask(questions).await?;
        let Backends { backend, worker, handle, .. } = &mut *self.at;
        let Some(backend) = backend.as_mut() else { return Err(io::Error::other("no backend")) };
        let replies = guarded(worker, handle, exchange(backend, questions, &worker.buffers)).await;
        if replies.is_err() {
            self.at.backend.mark_broken();
        }
        replies
    }

    /// Waits for GTIDs, as long as `limit` and the client let it.
    ///
    /// # Errors
    /// As for [`Door::ask`], and when the time is over.
    pub(super) async fn wait(&mut self, question: &str, limit: Duration) -> io::Result<Collected> {
        let questions = [Question::Wait(question)];
        self.will_ask(&questions).await?;
        let Backends { backend, worker, handle, .. } = &mut *self.at;
        let Some(backend) = backend.as_mut() else { return Err(io::Error::other("no backend")) };
        let in_time = async {
            let replies = tokio::time::timeout(limit, exchange(backend, &questions, &worker.buffers)).await;
            replies.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the server did not report its GTID in time")))
        };
        let mut replies = unless_killed(handle, in_time).await?;
        replies.pop().ok_or_else(|| io::Error::other("no reply"))
    }

    /// Enters a schema.
    ///
    /// # Errors
    /// As for [`Door::ask`].
    pub(super) async fn enter(&mut self, schema: &Text) -> io::Result<Collected> {
        self.will_ask(&[Question::Enter(schema)]).await?;
        let Backends { backend, worker, handle, .. } = &mut *self.at;
        let Some(backend) = backend.as_mut() else { return Err(io::Error::other("no backend")) };
        guarded(worker, handle, backend.init_db(schema, &worker.buffers)).await
    }

    /// Reads what these questions clobber, where only the server at hand knows it. For questions that are asked otherwise than by
    /// [`Door::ask`], or when facts are needed before they are asked.
    ///
    /// # Errors
    /// As for [`Door::ask`].
    pub(super) async fn will_ask(&mut self, questions: &[Question<'_>]) -> io::Result<()> {
        let clobbers = |fact| questions.iter().any(|question| question.clobbers().contains(&fact));
        let unread = self.facts.unread();
        let clobbered = Unread {
            warnings: unread.warnings && clobbers(KeptFact::Warnings),
            last_insert_id: unread.last_insert_id && clobbers(KeptFact::InsertId),
            found_rows: unread.found_rows && clobbers(KeptFact::FoundRows),
        };
        // A backend that ran nothing of the session knows nothing of its last statement.
        if clobbered.any() && self.at.backend.ran_last_for(self.at.handle.id) {
            Box::pin(self.read(clobbered)).await?;
        }
        if clobbers(KeptFact::RowCount) {
            self.facts.lose_row_count();
        }
        Ok(())
    }

    /// Reads facts of the session's last statement in one round trip; the client has its answer already.
    ///
    /// # Errors
    /// As for [`Door::ask`]. Without a backend nothing is read.
    pub(super) async fn read(&mut self, wanted: Unread) -> io::Result<()> {
        let Backends { backend, worker, handle, pins, .. } = &mut *self.at;
        let (Some(backend), true) = (backend.as_mut(), wanted.any()) else { return Ok(()) };
        // One of the two questions clobbers what the other one reads. MySQL even leaves a warning of its own, of FOUND_ROWS(), which
        // the client would be shown on a connection that it keeps.
        let asks = wanted.last_insert_id || wanted.found_rows;
        let unread = self.facts.unread();
        let shows = !pins.set().is_empty() && !self.facts.knows_warnings();
        let warnings = wanted.warnings || asks && (unread.warnings || shows);
        let all = [warnings.then_some(Question::Warnings), asks.then_some(Question::InsertIdAndFoundRows)];
        let questions: Vec<Question<'_>> = all.into_iter().flatten().collect();
        self.facts.lose_row_count();
        let replies = guarded(worker, handle, exchange(backend, &questions, &worker.buffers)).await;
        let Ok(mut replies) = replies else {
            self.at.backend.mark_broken();
            return replies.map(drop);
        };
        let status = replies.last().map(|reply| reply.ok.status).unwrap_or_default();
        if asks && let Some(reply) = replies.pop() {
            let [id, found_rows] = reply.rows.first().map_or([None; 2], |row| numbers_in(row));
            if let Some(found_rows) = found_rows.filter(|_| wanted.found_rows || unread.found_rows) {
                self.facts.learn_found_rows(found_rows);
            }
            if let Some(id) = id.filter(|_| wanted.last_insert_id) {
                self.facts.insert_id.read(id, backend.core.held.has_insert_id(id));
            }
        }
        if warnings && let Some(reply) = replies.pop() {
            self.facts.read_warnings(reply, backend.core.caps);
        }
        self.note_open(status);
        Ok(())
    }

    /// An error does not say whether it left a transaction open (autocommit=0); the reply to a question does.
    fn note_open(&mut self, status: StatusFlags) {
        let open = StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY;
        *self.status = (*self.status & !open) | (status & open);
        if status.contains(StatusFlags::IN_TRANS) {
            let now_ms = self.at.worker.clock.now_ms();
            self.at.pins.begin(PinReason::Transaction, now_ms, 0);
        }
    }
}

impl Session {
    /// Where the proxy asks for this session.
    pub(super) fn door(&mut self) -> Door<'_> {
        door!(self)
    }
}

/// The numbers in the first two columns of a row; None for what is none.
fn numbers_in(row: &[u8]) -> [Option<u64>; 2] {
    let mut columns = Reader::new(row);
    [(); 2].map(|()| charsets::narrow(columns.lenenc_bytes().ok()?)?.parse().ok())
}

fn values(expressions: &[String], as_bytes: bool) -> String {
    let column = |text: &String| if as_bytes { format!("CAST({text} AS BINARY)") } else { text.clone() };
    let columns: Vec<String> = expressions.iter().map(column).collect();
    format!("SELECT {}", columns.join(","))
}

fn user_variables(names: &[String], max: u64) -> String {
    let mut question = String::from("SELECT ");
    for name in names {
        let (comma, name) = (if question.ends_with(' ') { "" } else { "," }, name.replace('`', "``"));
        let is_short = format!("LENGTH(@`{name}`)<={max}");
        let _ = write!(
            question,
            "{comma}IF({is_short},@`{name}`,NULL),@`{name}` IS NULL,CAST(CHARSET(@`{name}`) AS BINARY),\
             CAST(COLLATION(@`{name}`) AS BINARY),CAST(IF({is_short},HEX(CONCAT(@`{name}`)),NULL) AS BINARY)"
        );
    }
    question
}

fn body(routine: &Routine) -> String {
    let kind = if routine.is_procedure { "PROCEDURE" } else { "FUNCTION" };
    let (schema, name) = (routine.schema.as_deref().unwrap_or_default().replace('`', "``"), routine.name.replace('`', "``"));
    format!("SHOW CREATE {kind} `{schema}`.`{name}`")
}

/// The conditions are constants, so that MariaDB opens no other tables; a limit of its own holds in place of `sql_select_limit`.
fn tables_and_views(tables: &[&SchemaTable]) -> String {
    let mut question = String::with_capacity(tables.len() * 320);
    for (n, table) in tables.iter().enumerate() {
        let union = if n == 0 { "" } else { " UNION ALL " };
        let is_it = format!("TABLE_SCHEMA='{}' AND TABLE_NAME='{}'", table.schema, table.name);
        let _ = write!(
            question,
            "{union}SELECT {n},CAST(TABLE_TYPE AS BINARY),CAST('' AS BINARY) FROM information_schema.TABLES WHERE {is_it} \
             UNION ALL SELECT {n},CAST('VIEW' AS BINARY),CAST(VIEW_DEFINITION AS BINARY) FROM information_schema.VIEWS WHERE {is_it}"
        );
    }
    question.push_str(" LIMIT 1000");
    question
}

impl Door<'_> {
    /// Reads what is unread, as far as it is wanted. False when the connection failed: nothing is lost but the warnings, and the
    /// best word on the id is the reply's.
    pub(super) async fn read_or_lose(&mut self) -> bool {
        self.forget_unhandled();
        let unread = self.facts.unread();
        if !unread.any() || self.read(unread).await.is_ok() {
            return true;
        }
        self.facts.lose_backend();
        self.at.backend = None;
        false
    }

    /// With `handle_warnings=0` a session that gives its backend back forgets its warnings, and a round trip is saved.
    pub(super) fn forget_unhandled(&mut self) {
        if self.at.lane.settings().handle_warnings == 0 && self.facts.unread().warnings {
            self.facts.forget_warnings();
        }
    }
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
