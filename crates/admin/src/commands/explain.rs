//! What the data plane would do, in words: EXPLAIN ROUTE and SHOW EFFECTIVE SETTINGS.

use model::control::RouteQuestion;
use model::stats::Value;

use super::{Answer, Command, open, refuse, rows as reply};
use crate::engine::{Ask, Engine};
use crate::error::AdminError;

pub(super) const COMMANDS: &[Command] = &[open("EXPLAIN ROUTE *", route), open("SHOW EFFECTIVE SETTINGS FOR USER * HOSTGROUP *", settings)];

const USAGE: &str = "EXPLAIN ROUTE 'statement' [USER 'name'] [SCHEMA 'name'] [FROM 'address'] [ON 'address:port']";

/// `EXPLAIN ROUTE '<sql>' [USER u] [SCHEMA s] [FROM addr] [ON 'addr:port']`
fn route(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let statement = ask.statement;
    if !statement.head.get(2).is_some_and(|token| token.is_quoted) {
        return refuse(USAGE);
    }
    let mut question = RouteQuestion { sql: statement.word(2).to_owned(), ..RouteQuestion::default() };
    let mut at = 3;
    while at < statement.head.len() {
        let value = statement.head.get(at + 1).map(|token| token.text.clone());
        let place = match () {
            () if value.is_none() => return refuse(USAGE),
            () if statement.is(at, "USER") => &mut question.user,
            () if statement.is(at, "SCHEMA") => &mut question.schema,
            () if statement.is(at, "FROM") => &mut question.client_addr,
            () if statement.is(at, "ON") => &mut question.listener,
            () => return refuse(USAGE),
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
        return refuse(format!("'{}' is no hostgroup", ask.statement.word(7)));
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
