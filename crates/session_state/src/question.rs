//! All that the proxy itself asks the server of a session, and how the numbers in the answers are read.
//!
//! A question takes the place of what the server knew of the session's last statement: its warnings, ROW_COUNT(), FOUND_ROWS().
//! [`Question::clobbers`] says which.

use crate::charsets;
use crate::state::Text;
use crate::views::SchemaTable;
use sql::Routine;
use std::borrow::Cow;
use std::fmt::Write as _;
use wire::charset::Flavor;
use wire::codec::Reader;
use wire::reply::ReplyKind;

/// One question. Each is one command with one reply.
#[derive(Clone, Copy)]
pub enum Question<'a> {
    /// The warnings of the last statement.
    Warnings,
    /// LAST_INSERT_ID().
    InsertId,
    /// LAST_INSERT_ID() and FOUND_ROWS().
    InsertIdAndFoundRows,
    /// ROW_COUNT(). Only MariaDB is asked, which keeps the warnings over it.
    RowCount,
    /// The values of these expressions; as plain bytes, where results may come in a character set that is not known.
    Values {
        /// What is asked for.
        expressions: &'a [String],
        /// Whether each comes as plain bytes.
        as_bytes: bool,
    },
    /// A text as results have it, then the first four of [`CHARSETS`](crate::state::CHARSETS) as plain bytes: a change of one may have
    /// changed all.
    Charsets,
    /// These user variables: [`COLUMNS_OF_VARIABLE`] columns for each. A value of more than `max` bytes is left out.
    UserVariables {
        /// Their names.
        names: &'a [String],
        /// The longest value that is sent, bytes.
        max: u64,
    },
    /// How a routine was created.
    Body(&'a Routine),
    /// For each of these by its number: its type, and its definition if it is a view.
    Tables(&'a [&'a SchemaTable]),
    /// What the server calls itself, which no other one of its cluster does.
    ServerName(Flavor),
    /// The GTIDs of what the session wrote; MySQL knows only those of the whole server.
    Gtids(Flavor),
    /// Whether the transaction with this GTID is applied.
    IsApplied(&'a str),
    /// Waits until the server has what the session is to see: the text of [`Written::question`](crate::causal::Written::question).
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
pub enum KeptFact {
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
pub const COLUMNS_OF_VARIABLE: usize = 5;

impl<'a> Question<'a> {
    /// The statement that is sent; empty where another command is.
    pub fn text(&self) -> Cow<'a, str> {
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
    pub fn clobbers(&self) -> &'static [KeptFact] {
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
    pub fn needs_packets(&self) -> bool {
        matches!(self, Self::Warnings | Self::Charsets | Self::UserVariables { .. } | Self::Body(_))
    }

    /// How the reply is read.
    pub fn reply_kind(&self) -> ReplyKind {
        if matches!(self, Self::Status | Self::Enter(_)) { ReplyKind::Simple } else { ReplyKind::Results }
    }
}

/// The numbers in the first two columns of a row; None for what is none.
pub fn numbers_in(row: &[u8]) -> [Option<u64>; 2] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use wire::codec::put_lenenc_bytes;

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

    #[test]
    fn numbers_are_read_in_whatever_character_set_they_come() {
        let row = |columns: &[&[u8]]| {
            let mut row = Vec::new();
            columns.iter().for_each(|column| put_lenenc_bytes(&mut row, column));
            numbers_in(&row)
        };
        assert_eq!(row(&[b"7", b"18446744073709551615"]), [Some(7), Some(u64::MAX)]);
        assert_eq!(row(&[b"\x004\x002", b"x"]), [Some(42), None]);
        assert_eq!(row(&[b"7"]), [Some(7), None]);
        assert_eq!(numbers_in(&[0xfb]), [None, None], "NULL");
    }
}
