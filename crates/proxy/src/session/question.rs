//! What the proxy itself asks the server of a session, and the door through which it asks: [`Attachments::ask`].
//!
//! INVARIANT: what an answer leaves on the connection is noted at the door, so no caller has to.

use super::attachments::Attachments;
use super::guard::guarded;
use super::views::Table;
use crate::backend::Collected;
use crate::gtid_source::AssignedGtid;
use sql::Routine;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use wire::charset::Flavor;
use wire::reply::ReplyKind;

/// One question. Each is one statement with one result set.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    /// LAST_INSERT_ID().
    InsertId,
    /// ROW_COUNT().
    RowCount,
    /// The values of these expressions; as plain bytes, where results may come in a character set that is not known.
    Values { expressions: &'a [String], as_bytes: bool },
    /// A text as results have it, then the first four of [`CHARSETS`](crate::state::CHARSETS) as plain bytes: a change of one may have
    /// changed all.
    Charsets,
    /// These user variables: [`COLUMNS_OF_VARIABLE`] columns for each. A value of more than `max` bytes is left out.
    UserVariables { names: &'a [String], max: u64 },
    /// How a routine was created.
    Body(&'a Routine),
    /// For each of these by its number: its type, and its definition if it is a view.
    Tables(&'a [&'a Table]),
    /// What the server calls itself, which no other one of its cluster does.
    ServerName(Flavor),
    /// The GTIDs of what the session wrote; MySQL knows only those of the whole server.
    Gtids(Flavor),
    /// Whether the transaction with this GTID is applied.
    IsApplied(&'a AssignedGtid),
}

/// Columns of the answer to [`Question::UserVariables`] for each variable.
pub(super) const COLUMNS_OF_VARIABLE: usize = 5;

impl Question<'_> {
    fn text(&self) -> Cow<'static, str> {
        match self {
            Self::InsertId => "SELECT LAST_INSERT_ID()".into(),
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
        }
    }

    /// Whether the columns' definitions say something that the values do not.
    fn needs_definitions(&self) -> bool {
        matches!(self, Self::Charsets | Self::UserVariables { .. } | Self::Body(_))
    }
}

impl Attachments {
    /// Asks the server at hand, within the limit of [`guarded`].
    ///
    /// # Errors
    /// There is no backend, or its connection is of no use any more. What the server refuses is an answer.
    pub(super) async fn ask(&mut self, question: Question<'_>) -> io::Result<Collected> {
        let Some(backend) = self.backend.as_mut() else { return Err(io::Error::other("no backend")) };
        let exchange = async {
            backend.send_query(&question.text()).await?;
            backend.collect(ReplyKind::Results, question.needs_definitions(), &self.worker.buffers).await
        };
        let reply = guarded(&self.worker, &self.entry, exchange).await?;
        backend.core.asked(&reply);
        Ok(reply)
    }
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
fn tables_and_views(tables: &[&Table]) -> String {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::session::bed::{Bed, error, packet_of, result_of};
    use Flavor::{MariaDb, MySql};

    #[test]
    fn a_name_is_quoted_in_each_question() {
        let names = ["a`b".to_owned(), "c".to_owned()];
        let text = Question::UserVariables { names: &names, max: 9 }.text();
        assert!(
            text.starts_with("SELECT IF(LENGTH(@`a``b`)<=9,@`a``b`,NULL),") && text.contains(",IF(LENGTH(@`c`)<=9,@`c`,NULL),"),
            "{text}"
        );
        let routine = Routine { schema: Some("s`t".into()), name: "f`g".into(), is_procedure: false };
        assert_eq!(Question::Body(&routine).text(), "SHOW CREATE FUNCTION `s``t`.`f``g`");
    }

    #[test]
    fn values_are_plain_bytes_where_results_may_come_in_any_character_set() {
        let expressions = ["@@a".to_owned(), "@@b".to_owned()];
        for (as_bytes, expected) in [(false, "SELECT @@a,@@b"), (true, "SELECT CAST(@@a AS BINARY),CAST(@@b AS BINARY)")] {
            assert_eq!(Question::Values { expressions: &expressions, as_bytes }.text(), expected);
        }
    }

    #[tokio::test]
    async fn what_an_answer_leaves_is_noted_at_the_door() {
        for (flavor, question) in [(MySql, Question::InsertId), (MariaDb, Question::RowCount), (MySql, Question::Gtids(MySql))] {
            let mut bed = Bed::new("").on(flavor);
            bed.answers(&[result_of(&[])]);
            bed.at.ask(question).await.unwrap();
            assert_eq!(bed.sent(), [question.text()]);
            assert!(!bed.at.backend.as_ref().unwrap().core.held.has_warnings());
            bed.answers(&[packet_of(&error(1227))]);
            assert!(bed.at.ask(question).await.unwrap().error.is_some(), "what the server refuses is an answer");
            assert!(bed.at.backend.as_ref().unwrap().core.held.has_warnings(), "the error stands in the diagnostics area");
        }
    }

    #[tokio::test]
    async fn without_a_backend_there_is_no_answer() {
        let mut bed = Bed::new("").on(MySql);
        bed.at.backend = None;
        assert!(bed.at.ask(Question::InsertId).await.is_err());
    }
}
