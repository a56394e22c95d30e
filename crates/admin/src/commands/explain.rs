//! The data plane's decisions in words: EXPLAIN ROUTE and SHOW EFFECTIVE SETTINGS.

use model::control::RouteQuestion;
use model::stats::Value;

use super::{Answer, Command, open, refuse, rows as reply};
use crate::engine::{Ask, Engine};
use crate::error::AdminError;

pub(super) const COMMANDS: &[Command] = &[
    open("EXPLAIN ROUTE *", route).help(
        "EXPLAIN ROUTE 'statement' [USER 'name'] [SCHEMA 'name'] [FROM 'address'] [ON 'address:port']",
        "Where a statement would go, and why. Nothing is sent.",
        "EXPLAIN ROUTE 'SELECT * FROM t FOR UPDATE' USER app",
    ),
    open("SHOW EFFECTIVE SETTINGS FOR USER * HOSTGROUP *", settings).help(
        "SHOW EFFECTIVE SETTINGS FOR USER name HOSTGROUP n",
        "Settings that hold for a user in a hostgroup, and where each comes from.",
        "SHOW EFFECTIVE SETTINGS FOR USER app HOSTGROUP 0",
    ),
];

/// `EXPLAIN ROUTE '<sql>' [USER u] [SCHEMA s] [FROM addr] [ON 'addr:port']`
fn route(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let statement = ask.statement;
    if !statement.head.get(2).is_some_and(|token| token.is_quoted) {
        return refuse(format!("the command is: {}", super::form(statement)));
    }
    let mut question = RouteQuestion { sql: statement.word(2).to_owned(), ..RouteQuestion::default() };
    let mut at = 3;
    while at < statement.head.len() {
        let value = statement.head.get(at + 1).map(|token| token.text.clone());
        let place = match () {
            () if value.is_none() => return refuse(format!("the command is: {}", super::form(statement))),
            () if statement.is(at, "USER") => &mut question.user,
            () if statement.is(at, "SCHEMA") => &mut question.schema,
            () if statement.is(at, "FROM") => &mut question.client_addr,
            () if statement.is(at, "ON") => &mut question.listener,
            () => return refuse(format!("the command is: {}", super::form(statement))),
        };
        *place = value;
        at += 2;
    }
    let steps = engine.plane.explain_route(&question).map_err(AdminError::Refused)?;
    let lines = steps.into_iter().map(|step| vec![Some(step.step), Some(step.outcome), Some(step.detail)]).collect();
    Ok(reply(&["step", "outcome", "detail"], lines))
}

/// `SHOW EFFECTIVE SETTINGS FOR USER u HOSTGROUP h`
fn settings(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let Ok(hostgroup) = ask.statement.word(7).parse() else {
        return refuse(format!("'{}' is not a hostgroup number", ask.statement.word(7)));
    };
    let found = engine.plane.effective_settings(ask.statement.word(5), hostgroup).map_err(AdminError::Refused)?;
    let shown = |value: Value| match value {
        Value::Null => None,
        Value::Integer(number) => Some(number.to_string()),
        Value::Text(text) => Some(text),
    };
    let lines = found.into_iter().map(|line| line.into_iter().map(shown).collect()).collect();
    Ok(reply(&["setting", "value", "source"], lines))
}
