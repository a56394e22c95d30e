//! Carries out a statement: a command of the table in [`super`], or SQL for SQLite.

use model::control::AdminEvent;

use super::{Command, advice, find, told};
use crate::engine::statement::Statement;
use crate::engine::{Ask, Engine, hints, sql};
use crate::error::AdminError;
use crate::reply::{Reply, Role, SessionInfo};

/// Statements that are answered while another process takes over.
const READS: &[&str] = &["SELECT", "SHOW", "EXPLAIN", "DESC", "DESCRIBE", "USE"];

/// Writes the audit line, then runs the command or the SQL. Every fault is a reply.
pub(crate) fn execute(engine: &mut Engine, who: Role, session: &SessionInfo, sql: &[u8]) -> Reply {
    let Ok(sql) = std::str::from_utf8(sql) else {
        return Reply::refused("the statement is not UTF-8");
    };
    let statement = Statement::parse(sql);
    if statement.text.is_empty() {
        return if statement.was_comment {
            Reply::done()
        } else {
            Reply::Err { code: 1065, sqlstate: "42000", text: "Query was empty".to_owned() }
        };
    }
    let command = find(&statement);
    audit(engine, who, session, &statement, command.as_ref());
    if engine.frozen.is_set() && !READS.iter().any(|word| statement.is(0, word)) {
        return Reply::frozen();
    }
    let ask = Ask { who, session, statement: &statement };
    let outcome = match command {
        Some(command) if who == Role::Stats && command.needs == Role::Admin => Err(AdminError::Refused("Command not allowed".to_owned())),
        Some(command) => command.run(engine, &ask),
        None => {
            sql::in_schema(engine, who, session, &statement.text).and_then(|sql| sql::run(engine, who, session, &sql)).map_err(|error| {
                error
                    .of_no_command(|| advice(&statement))
                    .of_no_table(|name| engine.nearest_table(who, name))
                    .of_no_column(|name| hints::nearest_column(sql, name))
            })
        }
    };
    outcome.unwrap_or_else(Reply::refused)
}

/// Tells the audit log of a statement that does more than read, before it is executed, if the session's are told at all.
fn audit(engine: &Engine, who: Role, session: &SessionInfo, statement: &Statement, command: Option<&Command>) {
    let Some(line) = &session.audit else { return };
    let only_reads = match command {
        Some(command) => command.only_reads(statement),
        None => sql::only_reads(engine, who, session, &statement.text).unwrap_or(false),
    };
    if !only_reads {
        engine.plane.audit(AdminEvent { extra: Some(told::masked(statement, command)), ..(**line).clone() });
    }
}
