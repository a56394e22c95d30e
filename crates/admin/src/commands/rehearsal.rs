//! START, STOP and SHOW REHEARSAL: reads or whole sessions are repeated on a server of another version, and the answers compared.
//!
//! START logs in to both servers, and in mode `all` takes the shadow out of replication, so it runs on a thread of its own.

use std::sync::Arc;

use model::control::{RehearsalOrder, Rehearsed};
use model::fleet::{Operator, ShadowState, Told};

use super::{Answer, Command, for_all, form, open, refuse, rows};
use crate::engine::statement::Statement;
use crate::engine::{Ask, Engine};
use crate::reply::Reply;

pub(super) const COMMANDS: &[Command] = &[
    open("START REHEARSAL", order).help(
        "START REHEARSAL 'name' [FOR s SECONDS]",
        "Repeats reads of a share of the sessions (mode 'reads') or whole sessions (mode 'all') on the shadow server and compares the \
         answers. The row stands in mysql_rehearsals at runtime. The shadow must have read_only=1. Mode 'all' holds the source's \
         hostgroup for a moment and takes the shadow out of replication for good. What an earlier rehearsal of this name found is forgotten.",
        "START REHEARSAL 'mariadb118' FOR 3600 SECONDS",
    ),
    open("STOP REHEARSAL", order).help(
        "STOP REHEARSAL 'name'",
        "Ends a rehearsal. What it found stays until the next START REHEARSAL.",
        "STOP REHEARSAL 'mariadb118'",
    ),
    for_all(open("SHOW REHEARSAL", page)).help(
        "SHOW REHEARSAL 'name'",
        "The verdict, SAFE, NOT ENOUGH or NOT SAFE, with reasons, coverage and differences.",
        "SHOW REHEARSAL 'mariadb118'",
    ),
];

fn order(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let order = match parse(ask.statement) {
        Ok(order) => order,
        Err(reason) => return refuse(reason),
    };
    tracing::info!("{}@{}: {}", ask.session.user, ask.session.peer, ask.statement.text);
    let plane = Arc::clone(&engine.plane);
    let operator = engine.operator.clone();
    engine.later(Box::new(move || match plane.rehearse(&order).and_then(|rehearsed| carry_out(rehearsed, operator.as_deref())) {
        Ok(told) => {
            tracing::info!("{}", told.text);
            Reply::Ok { affected: 0, insert_id: 0, info: told.text, warnings: told.warnings }
        }
        Err(reason) => Reply::refused(reason),
    }))
}

/// Does what the data plane cannot do of an order.
fn carry_out(mut rehearsed: Rehearsed, operator: Option<&dyn Operator>) -> Result<Told, String> {
    loop {
        rehearsed = match rehearsed {
            Rehearsed::Done(text) => return Ok(Told::from(text)),
            Rehearsed::Detach(order) => {
                return operator.ok_or("mode 'all' needs the monitor: set mysql-monitor_enabled")?.detach_shadow(order);
            }
            Rehearsed::Look(look) => {
                let unknown = || ShadowState::Unknown("mysql-monitor_enabled is false".to_owned());
                let state = operator.map_or_else(unknown, |operator| operator.shadow_state(look.shadow));
                (look.then)(state)?
            }
        };
    }
}

fn page(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let name = match name(ask.statement).and_then(|name| ends_at(ask.statement, 3).map(|()| name)) {
        Ok(name) => name,
        Err(reason) => return refuse(reason),
    };
    match engine.plane.rehearsal_page(&name) {
        Ok(lines) => {
            let line = |(part, text): (&str, String)| vec![Some(part.to_owned()), Some(text)];
            Ok(rows(&["part", "text"], lines.into_iter().map(line).collect()))
        }
        Err(reason) => refuse(reason),
    }
}

fn parse(statement: &Statement) -> Result<RehearsalOrder, String> {
    let name = name(statement)?;
    if statement.is(0, "STOP") {
        return ends_at(statement, 3).map(|()| RehearsalOrder::Stop { name });
    }
    if !statement.is(3, "FOR") {
        return ends_at(statement, 3).map(|()| RehearsalOrder::Start { name, seconds: None });
    }
    let seconds = statement.word(4).parse().ok().filter(|seconds| (1..=31_536_000).contains(seconds));
    match seconds {
        Some(seconds) if statement.is(5, "SECOND|SECONDS") => {
            ends_at(statement, 6).map(|()| RehearsalOrder::Start { name, seconds: Some(seconds) })
        }
        Some(_) => Err(wrong(statement, "SECONDS is missing")),
        None => Err(wrong(statement, &format!("'{}' is not a number of seconds from 1 to 31536000", statement.word(4)))),
    }
}

fn name(statement: &Statement) -> Result<String, String> {
    match statement.word(2) {
        "" => Err(wrong(statement, "no rehearsal is named")),
        name => Ok(name.to_owned()),
    }
}

fn ends_at(statement: &Statement, count: usize) -> Result<(), String> {
    if statement.head.len() == count {
        return Ok(());
    }
    Err(wrong(statement, &format!("'{}' is not understood", statement.rest(count))))
}

fn wrong(statement: &Statement, what: &str) -> String {
    format!("{what}; the command is: {}", form(statement))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read() {
        let read = |sql: &str| parse(&Statement::parse(sql));
        let start = |seconds| Ok(RehearsalOrder::Start { name: "new".to_owned(), seconds });
        assert_eq!(read("START REHEARSAL 'new'"), start(None));
        assert_eq!(read("start rehearsal new for 60 seconds;"), start(Some(60)));
        assert_eq!(read("START REHEARSAL new FOR 1 SECOND"), start(Some(1)));
        assert_eq!(read("STOP REHEARSAL 'new'"), Ok(RehearsalOrder::Stop { name: "new".to_owned() }));
        for (sql, error) in [
            ("START REHEARSAL", "no rehearsal is named"),
            ("START REHEARSAL new FOR soon SECONDS", "'soon' is not a number of seconds"),
            ("START REHEARSAL new FOR 0 SECONDS", "'0' is not a number"),
            ("START REHEARSAL new FOR 5", "SECONDS is missing"),
            ("START REHEARSAL new FOR 5 SECONDS please", "'please' is not understood"),
            ("STOP REHEARSAL new now", "'now' is not understood"),
        ] {
            let found = read(sql).unwrap_err();
            assert!(found.contains(error) && found.contains("the command is: "), "{sql}: {found}");
        }
    }
}
