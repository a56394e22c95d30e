//! One session of a replay: a thread with a connection of its own, which runs the session's commands in their order.

mod catch_up;

use super::engine::{Job, Stage};
use super::gate::Start;
use super::judge::{Beside, Replayed};
use super::progress::{Boundary, Ended};
use super::said::Said;
use super::target::Connection;
use anyhow::Result;
use capture::{Command, Params, Record, SessionStart, Timing, What};
use catch_up::CatchUp;
use rehearsal::{Answer, Repeat};
use sql::{Analysis, Facts, Kind, LexMode, Target, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use wire::codec::Reader;
use wire::codes;
use wire::command;

/// What makes the server refuse writes of a session.
const READ_ONLY: &[u8] = b"SET SESSION TRANSACTION READ ONLY";

/// A statement that the session has prepared.
#[derive(Clone)]
struct Prepared {
    /// Its number on this connection.
    id: u32,
    text: Arc<[u8]>,
    /// The schema of its PREPARE.
    schema: Arc<str>,
}

/// Where a session stands between transactions.
#[derive(Clone, Copy, Default)]
struct Transaction {
    /// Statements belong to it until it ends.
    is_open: bool,
    /// A write of another session ran beside one of its statements.
    is_raced: bool,
    /// The server has rolled it back, which the original's did not.
    is_lost: bool,
}

/// See the module.
pub(super) struct Player<'a> {
    stage: &'a Stage<'a>,
    /// Its number in the file.
    number: u64,
    connection: Option<Connection>,
    user: String,
    /// The schema that it is in.
    schema: Arc<str>,
    prepared: HashMap<u32, Prepared>,
    transaction: Transaction,
    /// A transaction of the session was lost: it is given up, and goes on behind the transaction.
    has_lost: bool,
    /// autocommit is off.
    holds_open: bool,
    /// The second that `timestamp` has.
    pinned_s: Option<u64>,
    /// The session sets `timestamp` itself.
    sets_clock: bool,
    /// What the statement at hand was answered, and how long that took, us.
    answered: Option<(Answer, u64)>,
    /// Long data waits for its execution.
    has_long_data: bool,
    catch_up: CatchUp,
}

impl<'a> Player<'a> {
    /// A session that has not begun.
    pub(super) fn new(stage: &'a Stage<'a>) -> Self {
        Self {
            stage,
            number: 0,
            connection: None,
            user: String::new(),
            schema: "".into(),
            prepared: HashMap::new(),
            transaction: Transaction::default(),
            has_lost: false,
            holds_open: false,
            pinned_s: None,
            sets_clock: false,
            answered: None,
            has_long_data: false,
            catch_up: CatchUp::default(),
        }
    }

    /// Runs what comes, until nothing more does.
    pub(super) fn play(mut self, jobs: &Receiver<Job>) {
        for job in jobs {
            self.stage.taken(job.record.len());
            let Ok(Some(record)) = Record::decode(&mut Reader::new(&job.record)) else { continue };
            match record {
                Record::Session(start) => self.begin(&start),
                Record::Command(command) => self.run(&command, &job),
                Record::Gap(_) | Record::End { .. } => {}
            }
        }
    }

    fn begin(&mut self, start: &SessionStart<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (self.number, self.user, self.schema) = (start.session, text(start.user), text(start.schema).into());
        match self.stage.target.connect(&self.user, start.capabilities) {
            Ok(connection) => self.connection = Some(connection),
            Err(e) => return self.ends("cannot log in", &format!("{e:#}")),
        }
        let done = self.set_up(&start.setup, start.schema);
        self.told(done);
    }

    /// Brings the connection into the session's state.
    fn set_up(&mut self, setup: &[&[u8]], schema: &[u8]) -> Result<()> {
        (self.transaction, self.pinned_s, self.holds_open) = (Transaction::default(), None, false);
        let Some(connection) = self.connection.as_mut() else { return Ok(()) };
        if !schema.is_empty()
            && let Some(code) = connection.simple(command::Command::InitDb, schema)?
        {
            self.stage.judge.give_up("no such schema", &format!("schema '{}': error {code}", self.schema));
        }
        for text in setup {
            self.holds_open = autocommit_of(text).map_or(self.holds_open, |is_on| !is_on);
            if let (Answer { error: Some(code), .. }, _) = connection.query(text)? {
                // A character set or a mode that the server does not have: the session's statements would mean something else.
                let error = format!("error {code} at {}", self.stage.judge.shown(text));
                self.stage.judge.give_up("its state is refused", &error);
            }
        }
        if self.stage.reads_only
            && let (Answer { error: Some(code), .. }, _) = connection.query(READ_ONLY)?
        {
            self.ends("cannot be made read only", &format!("error {code} at {}", String::from_utf8_lossy(READ_ONLY)));
        }
        Ok(())
    }

    /// The session is given up, and so it is if the replay is resumed.
    fn ends(&mut self, why: &'static str, error: &str) {
        self.connection = None;
        self.stage.judge.give_up(why, error);
        if let Err(e) = self.stage.gives_up(self.number) {
            self.stage.judge.give_up("cannot be recorded", &format!("{e:#}"));
        }
    }

    fn told(&mut self, done: Result<()>) {
        let is_lost = self.connection.as_ref().is_some_and(Connection::is_lost);
        match done {
            Err(e) if is_lost => self.ends("connection lost", &format!("{e:#}")),
            Err(e) => self.stage.judge.give_up("cannot be recorded", &format!("{e:#}")),
            Ok(()) if is_lost => self.ends("connection lost", "the server has closed the connection"),
            Ok(()) => {}
        }
    }

    /// Runs a command in its turn.
    fn run(&mut self, command: &Command<'_>, job: &Job) {
        let Some(ticket) = job.ticket else { return };
        let (session, seq) = (command.session, command.timing.seq);
        let reached = self.stage.reached(session);
        let is_done = reached.is_some_and(|reached| Some(seq) <= reached.done);
        if !is_done && self.connection.is_some() {
            self.go_on(reached.unwrap_or_default());
        }
        if self.connection.is_none() {
            self.stage.judge.skip("session not replayed");
        } else if is_done {
            if self.stage.gate.enter(ticket) != Start::Not {
                self.transaction.is_raced |= self.stage.was_out_of_order(seq);
                let done = self.repeat_state(command, job);
                self.told(done);
            }
        } else if self.is_wanted(command, job) && self.stage.wait_until(job.due_us) {
            match self.stage.gate.enter(ticket) {
                Start::Not => self.stage.judge.skip("interrupted"),
                start => {
                    self.transaction.is_raced |= start == Start::OutOfOrder;
                    let done = self.execute_and_note(command, job, start);
                    self.told(done);
                }
            }
        }
        self.stage.gate.leave(ticket);
        self.stage.ended();
    }

    /// Executes a command, and keeps how far the session came.
    fn execute_and_note(&mut self, command: &Command<'_>, job: &Job, start: Start) -> Result<()> {
        let (session, seq) = (command.session, command.timing.seq);
        let is_open = self.connection.as_ref().is_some_and(Connection::is_in_transaction);
        let may_commit = job.said.as_ref().is_some_and(|said| may_commit(said, is_open));
        if may_commit {
            self.stage.begins(session, seq)?;
        }
        self.answered = None;
        self.execute(command, job)?;
        self.has_long_data = match &command.what {
            What::LongData { .. } => true,
            What::Execute { .. } | What::ResetStatement(_) | What::Reset(_) => false,
            _ => self.has_long_data,
        };
        let Some(connection) = self.connection.as_ref().filter(|connection| !connection.is_lost()) else { return Ok(()) };
        let is_open = connection.is_in_transaction();
        let answer = self.answered.take();
        let has_failed = answer.as_ref().is_some_and(|(answer, _)| answer.error.is_some());
        let boundary = match &job.said {
            // They may stand before a command with a smaller number, and are made again.
            _ if matches!(command.what, What::InitDb(_) | What::Prepare { .. }) => Boundary::Same,
            _ if !is_open && !self.has_long_data => Boundary::Behind,
            Some(said) if may_commit => boundary_of(said, is_open, !self.has_long_data && !has_failed),
            _ => Boundary::Same,
        };
        let ended = Ended { boundary, is_out_of_order: start == Start::OutOfOrder };
        self.stage.note_end(session, seq, answer.as_ref().map(|(answer, time_us)| (answer, *time_us)), ended)
    }

    /// Whether the command is sent; says why it is not.
    fn is_wanted(&self, command: &Command<'_>, job: &Job) -> bool {
        let what = &command.what;
        let Some(said) = &job.said else { return !matches!(what, What::ChangeUser { .. }) && self.names_prepared(what) };
        if let What::Withheld { why, .. } = what {
            self.stage.judge.ran(said, command.timing.time_us);
            return self.skips(why.name());
        }
        let is_preparation = matches!(what, What::Prepare { .. });
        match () {
            () if self.stage.reads_only && !said.is_read && !said.is_state => !is_preparation && self.skips("may write"),
            () if !job.is_compared && !is_preparation && !said.is_state => false,
            () if matches!(what, What::Execute { .. }) => self.names_prepared(what) || self.skips("statement not prepared"),
            () => true,
        }
    }

    /// A command about a prepared statement names one that is there.
    fn names_prepared(&self, what: &What<'_>) -> bool {
        match what {
            What::Execute { statement, .. } | What::LongData { statement, .. } => self.prepared.contains_key(statement),
            What::CloseStatement(statement) | What::ResetStatement(statement) => self.prepared.contains_key(statement),
            _ => true,
        }
    }

    fn skips(&self, why: &'static str) -> bool {
        self.stage.judge.skip(why);
        false
    }

    fn execute(&mut self, command: &Command<'_>, job: &Job) -> Result<()> {
        match (&command.what, &job.said) {
            (What::Query(text), Some(said)) => {
                let schema = Arc::clone(&self.schema);
                self.statement(command, (text, &schema), said, job, None)
            }
            (What::Execute { statement, params }, Some(said)) => {
                let Some(found) = self.prepared.get(statement).cloned() else { return Ok(()) };
                self.statement(command, (&found.text, &found.schema), said, job, Some((found.id, params)))
            }
            (What::Prepare { statement, text }, Some(said)) => match self.prepare(*statement, text)? {
                Some(code) => {
                    self.answered = Some((Answer::of_error(code), 0));
                    self.judge_prepare(command.timing, text, said, &Answer::of_error(code))
                }
                None => Ok(()),
            },
            (what, _) => self.command(what),
        }
    }

    /// A command that is no statement.
    fn command(&mut self, what: &What<'_>) -> Result<()> {
        let Some(connection) = self.connection.as_mut() else { return Ok(()) };
        match what {
            What::LongData { statement, parameter, bytes } => match self.prepared.get(statement) {
                Some(prepared) => connection.long_data(prepared.id, *parameter, bytes),
                None => Ok(()),
            },
            What::CloseStatement(statement) => match self.prepared.remove(statement) {
                Some(prepared) => connection.close_statement(prepared.id),
                None => Ok(()),
            },
            What::ResetStatement(statement) => match self.prepared.get(statement) {
                Some(prepared) => connection.simple(command::Command::StmtReset, &prepared.id.to_le_bytes()).map(drop),
                None => Ok(()),
            },
            What::Reset(setup) => {
                connection.simple(command::Command::ResetConnection, &[])?;
                self.prepared.clear();
                self.set_up(setup, &[])
            }
            What::InitDb(schema) => {
                if connection.simple(command::Command::InitDb, schema)?.is_none() {
                    self.schema = String::from_utf8_lossy(schema).into();
                }
                Ok(())
            }
            What::SetOption(option) => connection.simple(command::Command::SetOption, &option.to_le_bytes()).map(drop),
            _ => Ok(()),
        }
    }

    /// Prepares a statement; the server's error, if it refuses.
    fn prepare(&mut self, statement: u32, text: &[u8]) -> Result<Option<u16>> {
        let Some(connection) = self.connection.as_mut() else { return Ok(None) };
        match connection.prepare(text)? {
            Ok(id) => {
                self.prepared.insert(statement, Prepared { id, text: text.into(), schema: Arc::clone(&self.schema) });
                Ok(None)
            }
            Err(code) => Ok(Some(code)),
        }
    }

    /// A PREPARE failed. The original's succeeded, or it would not be in the file.
    fn judge_prepare(&self, timing: Timing, text: &[u8], said: &Said, answer: &Answer) -> Result<()> {
        self.judge(timing, (text, &self.schema), said, Some(&Answer::default()), (answer, 0), Beside::Nothing)
    }

    /// Runs a statement, as text or (`prepared`) by its number, and has the answer judged.
    fn statement(
        &mut self,
        command: &Command<'_>,
        (text, schema): (&[u8], &str),
        said: &Said,
        job: &Job,
        prepared: Option<(u32, &Params<'_>)>,
    ) -> Result<()> {
        let timing = command.timing;
        let is_open = self.connection.as_ref().is_some_and(Connection::is_in_transaction);
        let repeat = repeat(said, command.reply.as_ref(), is_open);
        if repeat != Repeat::Run {
            if job.is_compared {
                self.stage.judge.skip("stopped at the original");
            }
            return self.follow_stopped(repeat, said, prepared.map(|(id, _)| id));
        }
        if self.transaction.is_lost && !runs_without_transaction(said) {
            if job.is_compared {
                self.stage.judge.skip("transaction lost");
            }
            return Ok(());
        }
        let beside = self.beside(timing, said);
        self.pin(timing, said, command.reply.as_ref())?;
        let Some(connection) = self.connection.as_mut() else { return Ok(()) };
        let asked = match prepared {
            None => connection.query(text),
            Some((id, params)) => connection.execute(id, params),
        };
        let (answer, time_us) = match asked {
            Ok(asked) => asked,
            Err(e) => {
                self.ends("connection lost", &format!("{e:#}"));
                (Answer::of_error(codes::SERVER_LOST), 0)
            }
        };
        self.answered = Some((answer.clone(), time_us));
        self.note(text, said, command.reply.as_ref(), &answer);
        if !job.is_compared {
            return Ok(());
        }
        if !self.stage.reads_only || said.is_read {
            self.stage.judge.ran(said, timing.time_us);
        }
        if self.stage.reads_only && answer.is_refused_write() {
            self.stage.judge.skip("may write");
            return Ok(());
        }
        self.judge(timing, (text, schema), said, command.reply.as_ref(), (&answer, time_us), beside)
    }

    /// Does what the original's server did in place of a statement that it refused or stopped. `prepared`: its number on this connection.
    fn follow_stopped(&mut self, repeat: Repeat, said: &Said, prepared: Option<u32>) -> Result<()> {
        if repeat == Repeat::Unknown {
            let error = format!("the original stopped a statement of which a part may have run: {}", self.stage.judge.shown(&said.text));
            self.ends("its state at the original is unknown", &error);
            return Ok(());
        }
        let Some(connection) = self.connection.as_mut() else { return Ok(()) };
        // The original's execution has used the long data up.
        if let Some(id) = prepared.filter(|_| self.has_long_data) {
            connection.simple(command::Command::StmtReset, &id.to_le_bytes())?;
        }
        if repeat == Repeat::RollBack {
            connection.query(b"ROLLBACK")?;
            self.transaction = Transaction::default();
        }
        Ok(())
    }

    fn judge(
        &self,
        timing: Timing,
        (text, schema): (&[u8], &str),
        said: &Said,
        original: Option<&Answer>,
        (answer, time_us): (&Answer, u64),
        beside: Beside,
    ) -> Result<()> {
        let (user, file, plan) = (self.user.as_str(), self.stage.file, self.stage.plan);
        let (refuses_stale_writes, is_timed) = (plan.refuses_stale_writes(), plan.losses.is_some());
        self.stage.judge.judge(&Replayed {
            file,
            user,
            schema,
            timing,
            text,
            said,
            original,
            refuses_stale_writes,
            is_timed,
            answer,
            time_us,
            beside,
        })
    }

    /// Whether writes of other sessions ran beside the statement, or beside one before in its transaction.
    fn beside(&mut self, timing: Timing, said: &Said) -> Beside {
        let races = &self.stage.plan.races;
        let is_raced = if self.stage.reads_only {
            // No write is replayed: an answer can be that of the original only before the first one.
            !self.stage.has_base && races.any_before(timing.seq)
        } else {
            races.beside(timing.after, timing.seq, said.is_write) > 0
        };
        self.transaction.is_raced |= is_raced;
        let beside = if self.transaction.is_raced { Beside::Writes } else { Beside::Nothing };
        if !self.transaction.is_open && !self.holds_open && !takes_snapshot(said) {
            self.transaction.is_raced = false;
        }
        beside
    }

    /// Sets the clock and the next AUTO_INCREMENT value as they were at the original.
    fn pin(&mut self, timing: Timing, said: &Said, reply: Option<&Answer>) -> Result<()> {
        let (Some(connection), true) = (self.connection.as_mut(), self.stage.pins) else { return Ok(()) };
        let second = self.stage.unix_s(timing.begin_us);
        if !self.sets_clock && (said.is_write || said.traits.reads_clock) && self.pinned_s != Some(second) {
            connection.query(format!("SET timestamp={second}").as_bytes())?;
            self.pinned_s = Some(second);
        }
        let is_insert = matches!(said.analysis.kind, Kind::Insert | Kind::Replace);
        if let Some(id) = reply.filter(|reply| is_insert && reply.error.is_none()).map(|reply| reply.insert_id).filter(|id| *id > 0) {
            connection.query(format!("SET insert_id={id}").as_bytes())?;
        }
        Ok(())
    }

    /// Follows USE.
    fn note_schema(&mut self, text: &[u8], said: &Said, answer: &Answer) {
        let entered = || sql::parse_use(text, LexMode::default());
        if let Some(schema) = (said.analysis.kind == Kind::Use && answer.error.is_none()).then(entered).flatten() {
            self.schema = String::from_utf8_lossy(&schema).into();
        }
    }

    /// Follows the schema and the transaction.
    fn note(&mut self, text: &[u8], said: &Said, original: Option<&Answer>, answer: &Answer) {
        self.note_schema(text, said, answer);
        let transaction = &mut self.transaction;
        match said.analysis.kind {
            Kind::Begin => {
                // A write beside it may be in the snapshot or not.
                let is_raced = transaction.is_raced && takes_snapshot(said);
                *transaction = Transaction { is_open: true, is_raced, ..Transaction::default() };
            }
            Kind::Commit | Kind::Rollback | Kind::Ddl => *transaction = Transaction::default(),
            Kind::Set => {
                let is_on = autocommit_of(text).filter(|_| answer.error.is_none());
                // Turned on, it commits. Where it was on, it commits nothing.
                if is_on == Some(true) && self.holds_open {
                    *transaction = Transaction::default();
                }
                self.holds_open = is_on.map_or(self.holds_open, |is_on| !is_on);
                self.sets_clock |= text.windows(9).any(|part| part.eq_ignore_ascii_case(b"timestamp"));
            }
            _ => {}
        }
        if has_lost(original, answer) && (self.transaction.is_open || self.holds_open) {
            self.transaction.is_lost = true;
            if !std::mem::replace(&mut self.has_lost, true) {
                self.stage.judge.give_up("transaction lost", "the server has rolled a transaction back that the original's did not");
            }
        }
    }
}

/// Whether the statement may leave something that a lost connection does not take back. `is_open`: a transaction is open.
fn may_commit(said: &Said, is_open: bool) -> bool {
    // BEGIN commits what is open, and so does SET autocommit=1.
    is_open && matches!(said.analysis.kind, Kind::Begin | Kind::Set) || said.is_write && !(is_open && is_of_rows(said))
}

/// Of a statement that may have committed and behind which something is open: a transaction (`is_open`) or long data.
/// `may_repeat`: it has not failed, and there is no long data.
fn boundary_of(said: &Said, is_open: bool, may_repeat: bool) -> Boundary {
    match said.analysis.kind {
        // Without autocommit, a first statement begins a transaction.
        _ if is_open && is_of_rows(said) => Boundary::Same,
        Kind::Begin if may_repeat && !said.analysis.facts.contains(Facts::MULTI) => Boundary::Before,
        _ => Boundary::Lost,
    }
}

/// One statement that changes rows only, or reads.
fn is_of_rows(said: &Said) -> bool {
    let Analysis { kind, facts, .. } = said.analysis;
    matches!(kind, Kind::Select | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete) && !facts.contains(Facts::MULTI)
}

/// Whether the statement is sent, after what the original answered. `is_open`: a transaction is open.
fn repeat(said: &Said, original: Option<&Answer>, is_open: bool) -> Repeat {
    match Repeat::of(&said.analysis, original.and_then(|answer| answer.error)) {
        // Whether the transaction was committed before the statement was refused is not known.
        Repeat::Skip if is_open && !rehearsal::is_of_rows(said.analysis.kind) => Repeat::Unknown,
        repeat => repeat,
    }
}

/// Whether a deadlock has ended a transaction that went on at the original.
fn has_lost(original: Option<&Answer>, answer: &Answer) -> bool {
    let is_deadlock = |answer: &Answer| answer.error == Some(codes::LOCK_DEADLOCK);
    is_deadlock(answer) && !original.is_some_and(is_deadlock)
}

/// START TRANSACTION WITH CONSISTENT SNAPSHOT: reads of the transaction have the data of this moment.
fn takes_snapshot(said: &Said) -> bool {
    const WORD: &[u8] = b"snapshot";
    said.analysis.kind == Kind::Begin && said.text.windows(WORD.len()).any(|part| part.eq_ignore_ascii_case(WORD))
}

/// Whether a statement ends a transaction, or changes the session only: it is sent though the server has lost the transaction.
fn runs_without_transaction(said: &Said) -> bool {
    let ends = matches!(said.analysis.kind, Kind::Begin | Kind::Commit | Kind::Rollback | Kind::Ddl);
    ends || said.is_state && matches!(said.analysis.kind, Kind::Set | Kind::Use)
}

/// Whether a SET turns autocommit on or off. None: it does neither, or to a value that the text does not show.
pub(super) fn autocommit_of(text: &[u8]) -> Option<bool> {
    let Some(assignments) = sql::parse_set(text, LexMode::default()) else { return turns_autocommit_off(text).then_some(false) };
    let is_autocommit = |target: &Target| matches!(target, Target::Session(name) if name == "autocommit");
    let value = match &assignments.iter().rev().find(|one| is_autocommit(&one.target))?.value {
        Value::Default => return Some(true),
        Value::Literal(text) | Value::Word(text) => text.trim_matches(['\'', '"']).to_ascii_lowercase(),
        Value::Expression => return None,
    };
    match &*value {
        "1" | "on" | "true" => Some(true),
        "0" | "off" | "false" => Some(false),
        _ => None,
    }
}

/// SET autocommit=0, among others that are not understood.
fn turns_autocommit_off(text: &[u8]) -> bool {
    const NAME: &[u8] = b"autocommit";
    let Some(at) = text.windows(NAME.len()).position(|part| part.eq_ignore_ascii_case(NAME)) else { return false };
    let behind = text.get(at + NAME.len()..).unwrap_or_default();
    let value: Vec<u8> = behind.iter().copied().filter(|byte| !b" `:='\"".contains(byte)).take(3).collect();
    value.first() == Some(&b'0') || value.eq_ignore_ascii_case(b"off")
}

#[cfg(test)]
mod tests {
    use super::super::progress::Boundary;
    use super::super::said::Known;
    use super::{autocommit_of, boundary_of, has_lost, may_commit, repeat, runs_without_transaction, takes_snapshot};
    use rehearsal::{Answer, Repeat};

    #[test]
    fn a_deadlock_counts_where_the_other_server_had_none() {
        let (deadlock, other) = (Answer::of_error(1213), Answer::of_error(1062));
        for (original, answer, expected) in
            [(Some(&other), &deadlock, true), (None, &deadlock, true), (Some(&deadlock), &deadlock, false), (Some(&other), &other, false)]
        {
            assert_eq!(has_lost(original, answer), expected);
        }
    }

    #[test]
    fn what_the_original_did_not_do_is_not_sent() {
        for (text, error, alone, in_transaction) in [
            ("UPDATE t SET a = 1", 1205, Repeat::Skip, Repeat::Skip),
            ("UPDATE t SET a = 1", 1290, Repeat::Skip, Repeat::Skip),
            ("UPDATE t SET a = 1", 1213, Repeat::RollBack, Repeat::RollBack),
            ("UPDATE t SET a = 1", 1062, Repeat::Run, Repeat::Run),
            ("CREATE TABLE t (a INT)", 1290, Repeat::Skip, Repeat::Unknown),
            ("COMMIT", 1290, Repeat::Skip, Repeat::Unknown),
            ("CALL p()", 1205, Repeat::Unknown, Repeat::Unknown),
        ] {
            let said = Known::default().read(text.as_bytes());
            let found = [false, true].map(|is_open| repeat(&said, Some(&Answer::of_error(error)), is_open));
            assert_eq!(found, [alone, in_transaction], "{text} {error}");
        }
        assert_eq!(repeat(&Known::default().read(b"UPDATE t SET a = 1"), None, true), Repeat::Run, "its answer is not known");
    }

    #[test]
    fn behind_a_lost_transaction_only_its_end_is_sent() {
        for (text, expected) in [
            ("COMMIT", true),
            ("ROLLBACK", true),
            ("BEGIN", true),
            ("SET NAMES latin1", true),
            ("SET @a = (SELECT MAX(a) FROM t)", false),
            ("UPDATE t SET a = 1", false),
            ("SELECT a FROM t", false),
            ("SAVEPOINT s", false),
        ] {
            assert_eq!(runs_without_transaction(&Known::default().read(text.as_bytes())), expected, "{text}");
        }
    }

    #[test]
    fn what_may_commit_is_noted_before_it_is_sent() {
        for (text, in_transaction, alone) in [
            ("INSERT INTO t VALUES (1)", false, true),
            ("INSERT INTO t VALUES (1); COMMIT", true, true),
            ("SELECT a FROM t", false, false),
            ("BEGIN", true, false),
            ("START TRANSACTION READ ONLY", true, false),
            ("SET autocommit=1", true, false),
            ("USE shop; INSERT INTO t VALUES (1)", true, true),
            ("COMMIT", true, true),
            ("CREATE TABLE t (a INT)", true, true),
            ("LOCK TABLES t READ", true, true),
            ("CALL p()", true, true),
        ] {
            let said = Known::default().read(text.as_bytes());
            assert_eq!([may_commit(&said, true), may_commit(&said, false)], [in_transaction, alone], "{text}");
        }
    }

    #[test]
    fn what_a_statement_has_committed_does_not_run_again_while_another_transaction_is_open() {
        for (text, may_repeat, expected) in [
            ("BEGIN", true, Boundary::Before),
            ("BEGIN", false, Boundary::Lost),
            ("BEGIN; INSERT INTO t VALUES (1)", true, Boundary::Lost),
            ("COMMIT AND CHAIN", true, Boundary::Lost),
            ("INSERT INTO t VALUES (1)", true, Boundary::Same),
            ("CALL p()", true, Boundary::Lost),
        ] {
            assert_eq!(boundary_of(&Known::default().read(text.as_bytes()), true, may_repeat), expected, "{text}");
        }
        let insert = Known::default().read(b"INSERT INTO t VALUES (1)");
        assert_eq!(boundary_of(&insert, false, false), Boundary::Lost, "it was committed beside long data");
    }

    #[test]
    fn a_begin_that_takes_a_snapshot_is_known() {
        for (text, expected) in [
            ("START TRANSACTION WITH CONSISTENT SNAPSHOT", true),
            ("start transaction read only, with consistent snapshot", true),
            ("START TRANSACTION READ ONLY", false),
            ("SELECT snapshot FROM t", false),
        ] {
            assert_eq!(takes_snapshot(&Known::default().read(text.as_bytes())), expected, "{text}");
        }
    }

    #[test]
    fn a_session_without_autocommit_is_known() {
        for (texts, expected) in [
            (&["SET autocommit=0", "SET @@session.autocommit := OFF, sql_mode=''", "SET `autocommit` = 'OFF'"][..], Some(false)),
            (&["SET autocommit = FALSE", "SET autocommit=0; SELECT 1"], Some(false)),
            (&["SET autocommit=1", "SET autocommit = ON", "SET @@autocommit = TRUE", "SET SESSION autocommit = DEFAULT"], Some(true)),
            (&["SET autocommit=0, autocommit='on'"], Some(true)),
            (&["SET a = 0", "SET autocommit", "SET GLOBAL autocommit = 1", "SET @autocommit = 1", "SET autocommit = @old"], None),
        ] {
            for text in texts {
                assert_eq!(autocommit_of(text.as_bytes()), expected, "{text}");
            }
        }
    }
}
