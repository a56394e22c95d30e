//! What was in force at the client's PREPARE. A statement keeps it as long as it lives: wherever else it is prepared, it is
//! prepared under the same.
//!
//! MySQL (since 8.0.22) settles there what many settings say, and the types of user variables; MariaDB only how the text is read.

use super::Session;
use super::door::ServerDoor;
use super::fault::Fault;
use super::frontend::Frontend;
use super::statements::Statements;
use crate::backends::backend::Backend;
use crate::workers::worker::Worker;
use session_state::collected::Collected;
use session_state::prepare_settings::{head, join};
use session_state::question::Question;
use session_state::state::{Text, type_of_null};
use session_state::statement_key::{StatementKey, ValuesAtPrepare};
use session_state::user_variables::UNSET;
use session_state::wants::Wants;
use std::io;
use std::sync::Arc;
use wire::flags::Capabilities;

impl Session {
    /// Prepares on the held backend, which is in the state of then but for user variables: those that the statement names get
    /// their values of then for as long as that takes.
    pub(super) async fn prepare_with_values(&mut self, key: &Arc<StatementKey>) -> Result<Collected, Fault> {
        let changed = match &key.user_variables {
            Some(ValuesAtPrepare::Known(then)) => self.wants.changed_since_prepare(&self.at.pins, then),
            _ => Vec::new(),
        };
        if changed.is_empty() {
            return self.prepare_in_schema(key).await;
        }
        let (mut there, mut back) = (Assignments::default(), Assignments::default());
        for (at, (name, literal)) in changed.iter().enumerate() {
            let saved = format!("@`tidegate then {at}`");
            let of_session = format!("@`{}`", name.replace('`', "``"));
            let now = String::from_utf8_lossy(self.wants.user_variable(name));
            if !self.at.pins.hides(name) && now.as_bytes() == UNSET {
                back.unset(&of_session);
            } else if !self.at.pins.hides(name) && type_of_null(&now).is_some() {
                back.then.push((of_session.clone(), now.into_owned()));
            } else {
                there.first.push((saved.clone(), of_session.clone()));
                back.then.push((of_session.clone(), saved));
            }
            match &**literal {
                UNSET => there.unset(&of_session),
                literal => there.then.push((of_session, String::from_utf8_lossy(literal).into_owned())),
            }
        }
        self.door().assign(&there).await?;
        let reply = self.prepare_in_schema(key).await;
        if self.at.backend.as_ref().is_some_and(Backend::is_even)
            && let Err(fault) = self.door().assign(&back).await
        {
            // Nobody may meet what it has now.
            self.at.backend = None;
            return Err(fault);
        }
        reply
    }
}

impl Frontend {
    /// The session variables that decide at PREPARE, joined.
    pub(super) fn mode(&self, wants: &Wants, worker: &Worker) -> Text {
        let ignores_space = self.caps.contains(Capabilities::IGNORE_SPACE);
        let mode = join(&wants.state.variables, ignores_space, settles_at_prepare(worker));
        worker.memory.borrow_mut().intern_text(mode.into())
    }

    /// The session variables that decide what the columns of a statement look like, joined. On MariaDB most of them act at the
    /// execution too, and are no part of [`Self::mode`].
    pub(super) fn column_settings(&self, wants: &Wants, worker: &Worker) -> Text {
        let ignores_space = self.caps.contains(Capabilities::IGNORE_SPACE);
        let settings = join(&wants.state.variables, ignores_space, true);
        worker.memory.borrow_mut().intern_text(settings.into())
    }

    /// Is text read as it was at the PREPARE?
    pub(super) fn reads_as_then(&self, wants: &Wants, worker: &Worker, mode: &[u8]) -> bool {
        let now = self.mode(wants, worker);
        head(mode).eq(head(&now))
    }
}

impl ServerDoor<'_> {
    /// Runs assignments that servers do not refuse.
    async fn assign(&mut self, assignments: &Assignments) -> Result<(), Fault> {
        if self.at.backend.is_none() {
            return Ok(());
        }
        let statements = assignments.statements();
        let questions: Vec<Question<'_>> = statements.iter().map(|text| Question::Set(text)).collect();
        let replies = self.ask_all(&questions).await.map_err(|e| self.at.lost_before(&e))?;
        match replies.into_iter().find_map(|reply| reply.error) {
            Some(error) => Err(self.at.lost_before(&io::Error::other(error.to_string()))),
            None => Ok(()),
        }
    }
}

/// Assignments to user variables: names and values.
#[derive(Default)]
struct Assignments {
    first: Vec<(String, String)>,
    then: Vec<(String, String)>,
    last: Vec<(String, String)>,
}

impl Assignments {
    /// As it is before it is ever set: a NULL that is text without a character set. NULL itself leaves the type as it was.
    fn unset(&mut self, name: &str) {
        self.then.push((name.to_owned(), "_binary''".to_owned()));
        self.last.push((name.to_owned(), "NULL".to_owned()));
    }

    fn statements(&self) -> Vec<String> {
        let set = |all: &&Vec<(String, String)>| {
            let all: Vec<String> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("SET {}", all.join(","))
        };
        [&self.first, &self.then, &self.last].iter().filter(|all| !all.is_empty()).map(set).collect()
    }
}

/// Do the servers settle at PREPARE what many settings say, and the types of user variables?
pub(super) fn settles_at_prepare(worker: &Worker) -> bool {
    worker.shared.serves_mysql()
}

impl Statements {
    /// Whether the text of a prepared statement means now what it meant at its PREPARE.
    pub(super) fn reads_as_prepared(&self, client: &Frontend, wants: &Wants, worker: &Worker, id: u32) -> bool {
        self.get(id).is_some_and(|prepared| client.reads_as_then(wants, worker, &prepared.key.mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn user_variables_decide_at_prepare_on_mysql() {
        use crate::session::bed::{Bed, ok};
        use wire::charset::Flavor::{MariaDb, MySql};
        for (flavor, text, expected) in [
            (MySql, "SELECT @a", Some("5")),
            (MySql, "SELECT @b", Some("NULL")),
            (MySql, "SELECT a FROM t", None),
            // It settles nothing there.
            (MariaDb, "SELECT @a", None),
        ] {
            let mut bed = Bed::new("").on(flavor);
            bed.ran("SET @a = 5", &ok());
            let found = bed.wants.named_variables(&bed.at.pins, settles_at_prepare(&bed.worker), text.as_bytes(), &bed.analysis(text));
            let literal = found.map(|found| match found {
                ValuesAtPrepare::Known(values) => String::from_utf8_lossy(&values.entries()[0].1).into_owned(),
                ValuesAtPrepare::Unknown(_) => panic!("{text}"),
            });
            assert_eq!(literal.as_deref(), expected, "{flavor:?} {text}");
        }
        let mut bed = Bed::new("").on(MySql);
        bed.ran("SET @a = UUID()", &ok());
        let unknown = bed.wants.named_variables(&bed.at.pins, true, b"SELECT @a", &bed.analysis("SELECT @a"));
        assert!(matches!(unknown, Some(ValuesAtPrepare::Unknown(_))), "the server alone has its value");
    }

    #[tokio::test]
    async fn a_statement_keeps_the_settings_that_it_was_prepared_under() {
        use crate::session::bed::{Bed, told};
        use wire::charset::Flavor::MySql;
        let mut bed = Bed::new("").on(MySql);
        let then = bed.client.mode(&bed.wants, &bed.worker);
        assert!(bed.client.reads_as_then(&bed.wants, &bed.worker, &then));
        bed.ran("SET autocommit = 0", &told(&[("autocommit", "OFF")]));
        assert_eq!(bed.client.mode(&bed.wants, &bed.worker), then, "it acts at the execution");
        bed.ran("SET lc_time_names = 'de_DE'", &told(&[("lc_time_names", "de_DE")]));
        assert!(
            bed.client.mode(&bed.wants, &bed.worker) != then && bed.client.reads_as_then(&bed.wants, &bed.worker, &then),
            "it is read alike, and means something else"
        );
        bed.ran("SET sql_mode = 'ANSI'", &told(&[("sql_mode", "ANSI")]));
        assert!(!bed.client.reads_as_then(&bed.wants, &bed.worker, &then));
        let variables = bed.wants.variables_then(true, &then);
        assert_eq!((variables.get("sql_mode"), variables.get("lc_time_names")), (None, None));
        assert!(variables.get("autocommit").is_some(), "what acts at the execution is as it is now");
    }
}
