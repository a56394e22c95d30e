//! What would be done, in words: EXPLAIN ROUTE, SHOW EFFECTIVE SETTINGS and EXPLAIN HEALING.

use model::control::RouteQuestion;
use model::fleet::HealingStep;
use model::stats::Value;
use model::{HostgroupId, ServerAddr};

use super::failover::address;
use super::{Answer, Command, open, refuse, rows as reply};
use crate::engine::statement::Statement;
use crate::engine::{Ask, Engine};
use crate::error::AdminError;
use crate::reply::Reply;

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
    open("EXPLAIN HEALING", healing).help(
        "EXPLAIN HEALING HOSTGROUP n [IF 'host:port' DIES]",
        "The steps by which a replica should take over if the writer of a cluster in mysql_healing died now, with the statement \
         and its undo. Nothing is sent.",
        "EXPLAIN HEALING HOSTGROUP 0",
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

/// `EXPLAIN HEALING HOSTGROUP n [IF 'h:p' DIES]`
fn healing(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let (hostgroup, dies) = match healing_question(ask.statement) {
        Ok(question) => question,
        Err(reason) => return refuse(reason),
    };
    let Some(operator) = engine.operator.clone() else {
        return refuse("the monitor does not run here, and EXPLAIN HEALING needs it: set mysql-monitor_enabled");
    };
    // The first look at a cluster may be waited for.
    engine.later(Box::new(move || match operator.explain_healing(hostgroup, dies.as_ref()) {
        Err(reason) => Reply::refused(reason),
        Ok(steps) => explained(steps),
    }))
}

/// The steps of a plan as rows.
pub(super) fn explained(steps: Vec<HealingStep>) -> Reply {
    let line = |step: HealingStep| [step.step, step.server, step.statement, step.undo].map(Some).to_vec();
    reply(&["step", "server", "statement", "undo"], steps.into_iter().map(line).collect())
}

fn healing_question(statement: &Statement) -> Result<(HostgroupId, Option<ServerAddr>), String> {
    let wrong = |what: String| format!("{what}; the command is: {}", super::form(statement));
    if !statement.has(0, "EXPLAIN HEALING HOSTGROUP *") {
        return Err(wrong(format!("'{}' is not understood", statement.text)));
    }
    let hostgroup = match statement.word(3).parse() {
        Ok(number) if number <= HostgroupId::MAX => HostgroupId(number),
        _ => return Err(wrong(format!("'{}' is not a hostgroup number", statement.word(3)))),
    };
    if statement.head.len() == 4 {
        return Ok((hostgroup, None));
    }
    if !statement.is(4, "IF") {
        return Err(wrong(format!("'{}' is not understood", statement.rest(4))));
    }
    let (server, next) = address(statement, 5).map_err(wrong)?;
    if !statement.is(next, "DIES") || statement.head.len() != next + 1 {
        return Err(wrong(format!("'{}' is not understood", statement.rest(5))));
    }
    Ok((hostgroup, Some(server)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_about_healing() {
        let read = |sql: &str| healing_question(&Statement::parse(sql));
        let db = ServerAddr { host: "db1".into(), port: 3307 };
        assert_eq!(read("EXPLAIN HEALING HOSTGROUP 10"), Ok((HostgroupId(10), None)));
        assert_eq!(read("explain healing hostgroup 10 if 'db1:3307' dies;"), Ok((HostgroupId(10), Some(db.clone()))));
        assert_eq!(read("EXPLAIN HEALING HOSTGROUP 10 IF db1:3307 DIES"), Ok((HostgroupId(10), Some(db))));
        for (sql, named) in [
            ("EXPLAIN HEALING", "is not understood"),
            ("EXPLAIN HEALING HOSTGROUP ten", "'ten' is not a hostgroup number"),
            ("EXPLAIN HEALING HOSTGROUP 1 NOW", "'NOW' is not understood"),
            ("EXPLAIN HEALING HOSTGROUP 1 IF 'db:x' DIES", "'db:x' is not host:port"),
            ("EXPLAIN HEALING HOSTGROUP 1 IF 'db:1' LIVES", "is not understood"),
            ("EXPLAIN HEALING HOSTGROUP 1 IF 'db:1' DIES TWICE", "is not understood"),
            ("EXPLAIN HEALING HOSTGROUP 1 IF", "no server is named"),
        ] {
            let reason = read(sql).unwrap_err();
            assert!(reason.contains(named) && reason.contains("the command is: EXPLAIN HEALING HOSTGROUP n"), "{sql}: {reason}");
        }
    }
}
