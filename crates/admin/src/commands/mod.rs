//! The commands, as one table: their words, the role that they need, their effect.
//!
//! Words match in any letter case. `*` stands for any one token, `a|b` for either word; with [`Tail::Any`] more may follow. If several
//! lines match, the one with the most words counts. A statement without a match is SQL for SQLite.

mod capture;
mod checksum;
mod clients;
mod configuration;
mod execute;
mod explain;
mod failover;
mod files;
mod help;
mod history;
mod layers;
mod process;
mod rehearsal;
mod sharing;
pub(crate) mod show;
mod told;
mod variables;
mod views;

use crate::engine::statement::Statement;
use crate::engine::{Ask, Engine, sql};
use crate::error::AdminError;
use crate::reply::{Reply, Role};

pub(crate) use execute::execute;
use help::advice;

/// The result of a command.
pub(crate) type Answer = Result<Reply, AdminError>;

/// Whether more may follow a command's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// No further word.
    None,
    /// Any further words.
    Any,
}

/// One line of the table.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// The pattern that a statement must match.
    pub words: &'static str,
    /// Whether more may follow.
    pub tail: Tail,
    /// The least role that may send it. [`Role::Stats`] means every session.
    pub needs: Role,
    /// The function or query behind it.
    pub action: Action,
    /// Its help; None for statements that only drivers and tools send.
    pub help: Option<Help>,
}

/// The help text of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Help {
    /// Its words: `[...]` may be left out, small letters stand for a value.
    pub form: &'static str,
    /// Its effect, in a sentence or two.
    pub what: &'static str,
    /// A statement that works as it is.
    pub example: &'static str,
}

/// The effect of a command.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    Call(fn(&mut Engine, &Ask<'_>) -> Answer),
    Query(&'static str),
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words)
    }
}

/// A command for administrators whose words are all there is.
const fn exact(words: &'static str, run: fn(&mut Engine, &Ask<'_>) -> Answer) -> Command {
    Command { words, tail: Tail::None, needs: Role::Admin, action: Action::Call(run), help: None }
}

/// A command for administrators with arguments.
const fn open(words: &'static str, run: fn(&mut Engine, &Ask<'_>) -> Answer) -> Command {
    Command { words, tail: Tail::Any, needs: Role::Admin, action: Action::Call(run), help: None }
}

/// A command for administrators that stands for a query.
const fn query(words: &'static str, text: &'static str) -> Command {
    Command { words, tail: Tail::None, needs: Role::Admin, action: Action::Query(text), help: None }
}

/// The same for everybody.
const fn for_all(command: Command) -> Command {
    Command { needs: Role::Stats, ..command }
}

const TABLES: &[&[Command]] = &[
    process::COMMANDS,
    configuration::COMMANDS,
    files::COMMANDS,
    variables::COMMANDS,
    show::COMMANDS,
    clients::COMMANDS,
    explain::COMMANDS,
    failover::COMMANDS,
    rehearsal::COMMANDS,
    capture::COMMANDS,
    views::COMMANDS,
    sharing::COMMANDS,
    help::COMMANDS,
];

/// The command's line, or None if the statement is SQL.
pub(crate) fn find(statement: &Statement) -> Option<Command> {
    if let Some(command) = layers::find(statement).or_else(|| checksum::find(statement)) {
        return Some(command);
    }
    let all = TABLES.iter().flat_map(|table| table.iter());
    let matching = all.filter(|command| command.is(statement));
    matching.max_by_key(|command| command.words.split(' ').filter(|word| *word != "*").count()).copied()
}

impl Command {
    /// The same with what HELP says of it.
    const fn help(self, form: &'static str, what: &'static str, example: &'static str) -> Self {
        Self { help: Some(Help { form, what, example }), ..self }
    }

    /// Carries it out.
    pub(crate) fn run(&self, engine: &mut Engine, ask: &Ask<'_>) -> Answer {
        match self.action {
            Action::Call(call) => call(engine, ask),
            Action::Query(text) => sql::run(engine, ask.who, ask.session, text),
        }
    }

    /// Whether it changes nothing, here and in files.
    pub(crate) fn only_reads(&self, statement: &Statement) -> bool {
        const READERS: [&str; 8] = [
            "CONFIG CHECK",
            "CONFIG DIFF",
            "CONFIG HISTORY",
            "CONFIG HISTORY SHARED",
            "CONFIG REVISION",
            "CONFIG REVISION TEXT",
            "SELECT CONFIG FILE",
            "SELECT GLOBAL_CHECKSUM ( )",
        ];
        let is_by_verb = statement.is(0, "SHOW|EXPLAIN|DESC|DESCRIBE|CHECKSUM|USE");
        is_by_verb || matches!(self.action, Action::Query(_)) || READERS.contains(&self.words) || self.words == "SELECT $$"
    }

    /// Whether its words are followed by values of variables.
    pub(crate) fn sets(&self) -> bool {
        self.words.starts_with("SET")
    }

    /// Whether what follows its words is SQL, or anything at all.
    pub(crate) fn takes_texts(&self) -> bool {
        ["CREATE VIEW", "LOGENTRY"].contains(&self.words)
    }

    fn is(&self, statement: &Statement) -> bool {
        let count = self.words.split(' ').count();
        statement.has(0, self.words) && (self.tail == Tail::Any || statement.head.len() == count)
    }
}

/// An answer of text.
fn rows(columns: &[&str], rows: Vec<Vec<Option<String>>>) -> Reply {
    let bytes = |row: Vec<Option<String>>| row.into_iter().map(|value| value.map(String::into_bytes)).collect();
    Reply::Rows { columns: columns.iter().map(|name| (*name).to_owned()).collect(), rows: rows.into_iter().map(bytes).collect() }
}

/// A result of one row and one column.
fn single(column: &str, value: impl Into<String>) -> Reply {
    rows(&[column], vec![vec![Some(value.into())]])
}

/// Done, with a word about it.
fn done(affected: u64, info: impl Into<String>) -> Reply {
    Reply::Ok { affected, insert_id: 0, info: info.into(), warnings: Vec::new() }
}

/// The form of the command that a statement begins with, for error texts.
fn form(statement: &Statement) -> &'static str {
    find(statement).and_then(|command| command.help).map_or("", |help| help.form)
}

fn refuse<T>(text: impl Into<String>) -> Result<T, AdminError> {
    Err(AdminError::Refused(text.into()))
}
