//! SET: variables of the proxy in memory, checked at once; a session's own are answered and change nothing.

use model::settings::{AdminVariables, MysqlVariables};
use model::{Origin, Setting, SettingError};

use super::{Answer, Command, done, for_all, open, refuse};
use crate::engine::statement::{tokens, unquoted};
use crate::engine::variables::is_settable;
use crate::engine::{Ask, Engine};
use crate::error::{AdminError, READ_ONLY};
use crate::reply::{Reply, Role};
use crate::store::rows;

pub(super) const COMMANDS: &[Command] = &[
    for_all(open("SET", set).help(
        "SET variable = value",
        "Changes a setting in memory. LOAD ... VARIABLES TO RUNTIME puts it in force.",
        "SET mysql-max_connections = 4000",
    )),
    for_all(open("SET NAMES|PASSWORD", |_, _| Ok(Reply::done()))),
    for_all(open("SET CHARACTER SET", |_, _| Ok(Reply::done()))),
    for_all(open("SET CHARSET *", |_, _| Ok(Reply::done()))),
    for_all(open("SET TRANSACTION", |_, _| Ok(Reply::done()))),
    for_all(open("SET SESSION|GLOBAL|LOCAL TRANSACTION", |_, _| Ok(Reply::done()))),
];

/// The target of one assignment.
enum Target {
    /// A variable of the proxy.
    Ours(&'static Setting),
    /// Something of the session's that changes nothing here.
    Session,
}

/// All assignments of one SET are made, or none.
fn set(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let mut ours = Vec::new();
    for part in split(ask.statement.rest(1)) {
        let Some((name, value)) = assignment(&part) else {
            return refuse(format!("near '{part}': SET takes name = value, separated by commas"));
        };
        match target(&name)? {
            Target::Session => {}
            Target::Ours(setting) => ours.push((setting, check(setting, &meant(setting, value)?)?)),
        }
    }
    if ours.is_empty() {
        return Ok(Reply::done());
    }
    if ask.who == Role::Stats {
        return refuse("Command not allowed");
    }
    if engine.is_read_only() && !ours.iter().all(|(setting, _)| setting.full_name() == "admin-read_only") {
        return refuse(READ_ONLY);
    }
    let db = &engine.store.admin;
    rows::transaction(db, || {
        for (setting, value) in &ours {
            db.execute("INSERT OR REPLACE INTO main.global_variables VALUES (?1, ?2)", [&setting.full_name(), value])?;
        }
        Ok(done(u64::try_from(ours.len()).unwrap_or(u64::MAX), ""))
    })
}

fn target(name: &str) -> Result<Target, AdminError> {
    let bare = name.trim_start_matches("@@");
    if let Some(setting) = Setting::by_full_name(bare) {
        return if model::config::text::is_read_only(setting) {
            refuse(format!("'{bare}' is read only"))
        } else {
            Ok(Target::Ours(setting))
        };
    }
    let is_retired = bare.split_once('-').is_some_and(|(module, rest)| model::settings::retired(module, rest).is_some());
    let is_session = (name.starts_with('@') && !name.starts_with("@@")) || is_settable(bare) || is_retired;
    if is_session {
        return Ok(Target::Session);
    }
    let known = ["mysql", "admin"].into_iter().find_map(|module| Setting::by_full_name(&format!("{module}-{bare}")));
    let hint = known.map(|setting| format!(" Did you mean '{}'?", setting.full_name())).unwrap_or_else(|| nearest(bare));
    refuse(format!("Unknown global variable: '{bare}'.{hint}"))
}

/// The hint of the registry's own error.
fn nearest(name: &str) -> String {
    let error = match name.split_once('-') {
        Some((AdminVariables::MODULE, _)) => AdminVariables::default().set(name, "").err(),
        Some((MysqlVariables::MODULE, _)) => MysqlVariables::default().set(name, "").err(),
        _ => None,
    };
    match (error, name.split_once('-')) {
        (Some(SettingError::Unknown { suggestion: Some(near) }), Some((module, _))) => format!(" Did you mean '{module}-{near}'?"),
        _ => String::new(),
    }
}

/// The value that the text of a SET means. `NULL` without quotes is an empty value, as clients send it; `DEFAULT` without quotes is the
/// default. An expression is refused, not stored as a text.
fn meant(setting: &'static Setting, value: &str) -> Result<String, AdminError> {
    let is = |word: &str| value.eq_ignore_ascii_case(word);
    if is("NULL") {
        return Ok(String::new());
    }
    let text = unquoted(value);
    let is_bare = text == value;
    if is_bare && (value.starts_with('@') || value.contains(['\'', '"', '`', '(', ')', '|']) || value.contains(char::is_whitespace)) {
        return refuse(format!("near '{value}': SET takes a word, a number, or a text in quotes; a quote within it is written twice"));
    }
    let default = || match setting.module {
        MysqlVariables::MODULE => MysqlVariables::default().get(setting.name),
        _ => AdminVariables::default().get(setting.name),
    };
    Ok(Some("DEFAULT").filter(|word| is(word)).and_then(|_| default()).unwrap_or(text))
}

/// The value as it is stored, if the variable takes it.
fn check(setting: &'static Setting, value: &str) -> Result<String, AdminError> {
    let (mut mysql, mut admin) = (MysqlVariables::default(), AdminVariables::default());
    let outcome = match setting.module {
        MysqlVariables::MODULE => mysql.set(setting.name, value),
        _ => admin.set(setting.name, value),
    };
    let at = Origin::Row(format!("global_variables, variable_name={}", setting.full_name()).into());
    outcome.map_err(|error| AdminError::Config(vec![model::ConfigError::new(at, "", error.into())]))?;
    let kept = if setting.module == MysqlVariables::MODULE { mysql.get(setting.name) } else { admin.get(setting.name) };
    Ok(kept.unwrap_or_default())
}

/// The parts between commas that stand outside of quotes and brackets.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0_i32);
    for token in tokens(text) {
        match (token.is_quoted, token.text.as_str()) {
            (false, "(") => depth += 1,
            (false, ")") => depth -= 1,
            (false, ",") if depth == 0 => {
                parts.push(text[from..token.start].trim().to_owned());
                from = token.end;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim().to_owned());
    parts
}

/// Name and value, as written, of `[GLOBAL|SESSION|LOCAL] name = value`; scopes and `@@scope.` are no part of the name.
fn assignment(part: &str) -> Option<(String, &str)> {
    let mut found = tokens(part).peekable();
    found.next_if(|token| ["global", "session", "local", "persist"].iter().any(|scope| token.text.eq_ignore_ascii_case(scope)));
    let name = found.next()?;
    found.next_if(|token| token.text == ":");
    let equals = found.next().filter(|token| !token.is_quoted && token.text == "=")?;
    let lower = name.text.to_ascii_lowercase();
    let scope = ["@@global.", "@@session.", "@@local."].iter().find(|scope| lower.starts_with(**scope));
    let bare = scope.map_or(name.text.as_str(), |scope| &name.text[scope.len()..]);
    let value = part.get(equals.end..)?.trim();
    (!value.is_empty()).then(|| (bare.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_read() {
        let parts = split("GLOBAL mysql-threads = 4, @@session.sql_mode='a,b', @a:=f(1,2)");
        let read: Vec<_> = parts.iter().map(|part| assignment(part).unwrap()).collect();
        let expected = [("mysql-threads", "4"), ("sql_mode", "'a,b'"), ("@a", "f(1,2)")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(assignment("mysql-threads=-1").unwrap().1, "-1");
        assert!(assignment("mysql-threads").is_none() && assignment("mysql-threads=").is_none());
    }
}
