//! A session of a replay that is resumed: commands that ran before the interruption make its state again, and what was answered then is judged.

use super::super::engine::Job;
use super::super::progress::ReachedBySession;
use super::super::said::Said;
use super::{Player, Transaction};
use anyhow::Result;
use capture::{Command, What};
use rehearsal::Repeat;
use sql::{Facts, Kind, LexMode, Lexer};
use std::sync::Arc;

/// What a session that is resumed has of the time before.
#[derive(Default)]
pub(super) struct CatchUp {
    /// Its commands still are of that time.
    is_on: bool,
    /// State that cannot be made again.
    missing: Option<&'static str>,
    last_insert_id: u64,
    /// SET TRANSACTION for the next transaction, which has not begun.
    of_next: Option<Arc<[u8]>>,
}

impl Player<'_> {
    /// A command that ran before the replay was interrupted: it is judged by what was answered then, and makes the session's state again.
    pub(super) fn repeat_state(&mut self, command: &Command<'_>, job: &Job) -> Result<()> {
        self.catch_up.is_on = true;
        let Some(said) = &job.said else {
            let is_state = !matches!(command.what, What::LongData { .. } | What::ChangeUser { .. });
            if matches!(command.what, What::Reset(_)) {
                self.catch_up = CatchUp { is_on: true, ..CatchUp::default() };
            }
            return if is_state && self.names_prepared(&command.what) { self.command(&command.what) } else { Ok(()) };
        };
        let timing = command.timing;
        let (text, schema) = match &command.what {
            What::Query(text) => (Arc::from(*text), Arc::clone(&self.schema)),
            What::Execute { statement, .. } => match self.prepared.get(statement) {
                Some(prepared) => (Arc::clone(&prepared.text), Arc::clone(&prepared.schema)),
                None => {
                    if self.stage.judge.stored(self.stage.file, timing.seq)?.is_some() {
                        let error = format!("it cannot be prepared again: {}", self.stage.judge.shown(&said.text));
                        self.stage.judge.give_up("answers of before cannot be judged", &error);
                    }
                    return Ok(());
                }
            },
            What::Prepare { statement, text } => {
                // Whether the server refuses it now, after later commands, says nothing.
                self.prepare(*statement, text)?;
                return match self.stage.judge.stored(self.stage.file, timing.seq)? {
                    Some((answer, _)) => self.judge_prepare(timing, text, said, &answer),
                    None => Ok(()),
                };
            }
            _ => {
                // It was not captured, and is counted so.
                self.is_wanted(command, job);
                return Ok(());
            }
        };
        self.catch_up.missing = self.catch_up.missing.or_else(|| unmakeable(said));
        if let Some((answer, time_us)) = self.stage.judge.stored(self.stage.file, timing.seq)? {
            let beside = self.beside(timing, said);
            self.note(&text, said, command.reply.as_ref(), &answer);
            if answer.insert_id > 0 {
                self.catch_up.last_insert_id = answer.insert_id;
            }
            if job.is_compared {
                if !self.stage.reads_only || said.is_read {
                    self.stage.judge.ran(said, timing.time_us);
                }
                self.judge(timing, (&text, &schema), said, command.reply.as_ref(), (&answer, time_us), beside)?;
            }
        }
        if Repeat::of(&said.analysis, command.reply.as_ref().and_then(|reply| reply.error)) == Repeat::RollBack {
            self.transaction = Transaction::default();
        }
        let kind = said.analysis.kind;
        let is_of_next = kind == Kind::SetTransaction && is_of_next_transaction(&text);
        if is_of_next || !matches!(kind, Kind::Set | Kind::SetTransaction | Kind::Use) {
            self.catch_up.of_next = is_of_next.then(|| Arc::clone(&text));
        }
        if said.is_state && !is_of_next && matches!(kind, Kind::Set | Kind::SetTransaction | Kind::Use) {
            self.set_last_insert_id()?;
            self.pin(timing, said, command.reply.as_ref())?;
            let Some(connection) = self.connection.as_mut() else { return Ok(()) };
            match &command.what {
                What::Execute { statement, params } => {
                    if let Some(prepared) = self.prepared.get(statement) {
                        connection.execute(prepared.id, params)?;
                    }
                }
                _ => {
                    let (answer, _) = connection.query(&text)?;
                    self.note_schema(&text, said, &answer);
                }
            }
        }
        Ok(())
    }

    fn set_last_insert_id(&mut self) -> Result<()> {
        let id = self.catch_up.last_insert_id;
        if let (Some(connection), true) = (self.connection.as_mut(), id > 0) {
            connection.query(format!("SET last_insert_id={id}").as_bytes())?;
        }
        Ok(())
    }

    /// The first command that did not run before the replay was interrupted. A session that cannot go on is given up.
    pub(super) fn go_on(&mut self, reached: ReachedBySession) {
        let why = match self.catch_up.missing {
            _ if reached.is_given_up => Some("it was given up before the interruption"),
            _ if reached.is_unknown => Some("whether its last write was committed is not known"),
            missing if self.catch_up.is_on => missing,
            _ => None,
        };
        if let Some(why) = why {
            self.ends("cannot be resumed", why);
        } else if self.catch_up.is_on {
            // A transaction that the server has lost still is: what follows of it does not run.
            self.transaction = Transaction { is_lost: self.transaction.is_lost, ..Transaction::default() };
            let done = self.set_last_insert_id().and_then(|()| match (self.connection.as_mut(), self.catch_up.of_next.take()) {
                (Some(connection), Some(text)) => connection.query(&text).map(drop),
                _ => Ok(()),
            });
            self.catch_up = CatchUp::default();
            self.told(done);
        }
    }
}

/// State that a statement leaves in its session and that a new connection does not get.
fn unmakeable(said: &Said) -> Option<&'static str> {
    match said.analysis.kind {
        _ if said.analysis.facts.contains(Facts::MULTI) => Some("it sent several statements in one text"),
        Kind::CreateTemporaryTable => Some("it had a temporary table"),
        Kind::LockTables | Kind::FlushReadLock | Kind::BackupLock => Some("it had a table lock"),
        Kind::Prepare => Some("it had a statement prepared in SQL text"),
        Kind::Handler => Some("it had a HANDLER"),
        Kind::Xa => Some("it had an XA transaction"),
        Kind::Call | Kind::Compound => Some("it called code that may have set user variables"),
        Kind::SetRole => Some("it set a role"),
        Kind::Set | Kind::SetTransaction => (!said.is_state).then_some("it set a variable that may be another one now"),
        _ if said.analysis.facts.contains(Facts::GET_LOCK) => Some("it had a lock by name"),
        _ if said.analysis.facts.contains(Facts::USER_VARIABLE_ASSIGN) => Some("it set user variables in a query"),
        _ => None,
    }
}

/// Whether a SET TRANSACTION is of the next transaction alone: it has no scope.
fn is_of_next_transaction(text: &[u8]) -> bool {
    let mut lexer = Lexer::new(text, LexMode::default());
    lexer.token();
    lexer.token().text(text).eq_ignore_ascii_case(b"transaction")
}

#[cfg(test)]
mod tests {
    use super::super::super::said::Known;
    use super::{is_of_next_transaction, unmakeable};

    #[test]
    fn state_that_cannot_be_made_again_is_known() {
        for (text, is_missing) in [
            ("CREATE TEMPORARY TABLE t (a INT)", true),
            ("SELECT @a := 5", true),
            ("SET @a = (SELECT MAX(a) FROM t)", true),
            ("SELECT GET_LOCK('a', 1)", true),
            ("PREPARE a FROM 'SELECT 1'", true),
            ("SET ROLE reader", true),
            ("SET @a = 1; SET @b = 2", true),
            ("SET SESSION TRANSACTION READ WRITE", true),
            ("SET SESSION TRANSACTION READ ONLY", false),
            ("SET @a = LAST_INSERT_ID()", false),
            ("SET sql_mode = 'ANSI'", false),
            ("INSERT INTO t VALUES (1)", false),
            ("SELECT @a", false),
        ] {
            assert_eq!(unmakeable(&Known::default().read(text.as_bytes())).is_some(), is_missing, "{text}");
        }
    }

    #[test]
    fn the_next_transaction_alone_has_no_scope() {
        for (text, expected) in [
            ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", true),
            ("set /* all */ session transaction read only", false),
            ("SET LOCAL TRANSACTION READ ONLY", false),
        ] {
            assert_eq!(is_of_next_transaction(text.as_bytes()), expected, "{text}");
        }
    }
}
