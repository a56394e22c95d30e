//! Runs a session's own SQL: within its rights, for a bounded time, with a bounded answer.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use model::config::ddl;
use model::control::DataPlane;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode};

use super::Engine;
use super::statement::{Token, tokens};
use crate::error::{AdminError, READ_ONLY};
use crate::reply::{Reply, Role, SessionInfo};
use crate::store::Level;
use crate::store::rows::description;

/// How long one statement may run: all sessions wait for it.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// How large an answer may be, in bytes of values.
const MAX_ANSWER: usize = 256 << 20;
/// The same for a login that may only read statistics: it may have many connections that do not read their answers.
const MAX_READER_ANSWER: usize = 32 << 20;
/// Bytes of an answer between two looks at the memory that the process has left.
const MEMORY_STEP: usize = 1 << 20;

const VARIABLE: &str = "mysql_variable('";

/// Runs SQL on the role's connection, within the limits of an answer.
pub(crate) fn run(engine: &Engine, who: Role, session: &SessionInfo, sql: &str) -> Result<Reply, AdminError> {
    let level = match who {
        Role::Stats => Level::Stats,
        Role::Admin if engine.is_read_only() => Level::ReadOnly,
        Role::Admin => Level::Admin,
    };
    let sql = &*as_sqlite(sql);
    let has_variables = sql.contains("@@");
    let db = engine.connection(who);
    engine.live.describe(who, names_schema(sql).then_some(db))?;
    if has_variables {
        engine.describe_variables(who, session)?;
    }
    engine.live.begin_statement();
    engine.store.facts.enter(session);
    engine.store.guard.enter(level, Some(TIME_LIMIT));
    let most = if who == Role::Stats { MAX_READER_ANSWER } else { MAX_ANSWER };
    let room = Room { most, plane: &*engine.plane };
    let outcome = if has_variables { query(db, &with_variables(sql), &room) } else { query(db, sql, &room) };
    let made_way = engine.store.guard.is_in_the_way();
    engine.store.guard.leave();
    engine.store.facts.leave();
    engine.live.begin_statement();
    if !db.is_autocommit() {
        let _ = db.execute_batch("ROLLBACK");
    }
    outcome.map_err(|error| explain(error, level, made_way))
}

/// Whether `sql` only reads, by SQLite. A statement that cannot be prepared counts as a change: its meaning is unknown.
pub(crate) fn only_reads(engine: &Engine, who: Role, session: &SessionInfo, sql: &str) -> Result<bool, AdminError> {
    let sql = &*in_schema(engine, who, session, sql)?;
    let sql = &*as_sqlite(sql);
    let has_variables = sql.contains("@@");
    let db = engine.connection(who);
    engine.live.describe(who, names_schema(sql).then_some(db))?;
    engine.store.guard.enter(Level::Admin, Some(TIME_LIMIT));
    let prepared = if has_variables { db.prepare(&with_variables(sql)) } else { db.prepare(sql) };
    // For EXPLAIN, SQLite reports the accesses of the explained statement, which is not executed.
    let is_reading = |asked: bool, statement: &rusqlite::Statement<'_>| statement.is_explain() != 0 || statement.readonly() && !asked;
    let reads = prepared.map(|statement| is_reading(engine.store.guard.was_asked_to_change(), &statement));
    engine.store.guard.leave();
    Ok(reads?)
}

/// The schema whose tables have the same names as those of `main`; all other names are unique.
const TWIN: &str = "disk";

/// The statement of a session that has said `USE disk`: SQLite would take the tables of `main`. Table names without a schema get it.
pub(crate) fn in_schema<'a>(engine: &Engine, who: Role, session: &SessionInfo, sql: &'a str) -> Result<Cow<'a, str>, AdminError> {
    if who != Role::Admin || !session.schema.as_deref().is_some_and(|schema| schema.eq_ignore_ascii_case(TWIN)) {
        return Ok(Cow::Borrowed(sql));
    }
    let mut found = engine.connection(who).prepare("SELECT LOWER(name) FROM disk.sqlite_master WHERE type = 'table'")?;
    let tables = found.query_map([], |row| row.get(0))?.collect::<Result<HashSet<String>, _>>()?;
    Ok(Cow::Owned(qualified(sql, |name| tables.contains(name))))
}

/// `sql` with the schema before each name of a table that has none.
fn qualified(sql: &str, is_table: impl Fn(&str) -> bool) -> String {
    /// A name in double quotes is one behind these; elsewhere it may be a text.
    const LEAD: [&str; 5] = ["from", "into", "update", "join", "table"];
    let all: Vec<Token> = tokens(sql).collect();
    let (mut out, mut at) = (String::with_capacity(sql.len() + 16), 0);
    for (index, token) in all.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| all.get(before)).filter(|before| !before.is_quoted);
        let before = before.map(|before| before.text.to_ascii_lowercase()).unwrap_or_default();
        let has_column = all.get(index + 1).is_some_and(|next| !next.is_quoted && next.text.starts_with('.'));
        let is_name = match sql.get(token.start..).unwrap_or_default().as_bytes().first() {
            Some(b'\'') => false,
            Some(b'"') => LEAD.contains(&before.as_str()),
            _ => true,
        };
        if is_name && !has_column && !before.ends_with('.') && before != "as" && is_table(&token.text.to_ascii_lowercase()) {
            out.push_str(sql.get(at..token.start).unwrap_or_default());
            out.push_str(TWIN);
            out.push('.');
            at = token.start;
        }
    }
    out.push_str(sql.get(at..).unwrap_or_default());
    out
}

/// Whether a statement asks what there is.
fn names_schema(sql: &str) -> bool {
    const NAME: &[u8] = b"information_schema";
    sql.as_bytes().windows(NAME.len()).any(|window| window.eq_ignore_ascii_case(NAME))
}

fn explain(error: rusqlite::Error, level: Level, made_way: bool) -> AdminError {
    let is = |code| error.sqlite_error_code() == Some(code);
    match level {
        Level::ReadOnly if is(ErrorCode::AuthorizationForStatementDenied) => AdminError::Sql(READ_ONLY.to_owned()),
        _ if is(ErrorCode::AuthorizationForStatementDenied) => AdminError::Sql(format!("Command not allowed: {}", AdminError::from(error))),
        _ if is(ErrorCode::OperationInterrupted) && made_way => {
            AdminError::Sql("interrupted: an administrator's statement was waiting".to_owned())
        }
        _ if is(ErrorCode::OperationInterrupted) => AdminError::Sql(format!("the statement ran longer than {} s", TIME_LIMIT.as_secs())),
        _ => error.into(),
    }
}

/// An answer's share of memory.
struct Room<'a> {
    most: usize,
    plane: &'a dyn DataPlane,
}

impl Room<'_> {
    /// Whether an answer may have `size` bytes, `more` of which are new.
    fn check(&self, size: usize, more: usize) -> rusqlite::Result<()> {
        let refused = |why: String| Err(rusqlite::Error::ModuleError(why));
        let is_looked_at = size / MEMORY_STEP != (size - more) / MEMORY_STEP;
        match () {
            () if size > self.most => refused(format!("the answer is larger than {} MiB", self.most >> 20)),
            () if is_looked_at && self.plane.is_short_of_memory() => {
                refused(format!("the proxy is close to its mysql-memory_budget, and the answer is larger than {} MiB", size >> 20))
            }
            () => Ok(()),
        }
    }
}

/// Runs one statement and collects its rows.
fn query(db: &Connection, sql: &str, room: &Room<'_>) -> rusqlite::Result<Reply> {
    let mut statement = db.prepare(sql)?;
    if statement.column_count() == 0 {
        let affected = statement.execute([])?;
        // SQLite's count is that of the last statement that changed rows.
        let affected = if statement.readonly() || !changes_rows(sql) { 0 } else { u64::try_from(affected).unwrap_or(u64::MAX) };
        let insert_id =
            if affected > 0 && fills_numbered_table(sql) { u64::try_from(db.last_insert_rowid()).unwrap_or_default() } else { 0 };
        return Ok(Reply::Ok { affected, insert_id, info: String::new(), warnings: Vec::new() });
    }
    let columns = statement.column_names().map(without_variables).collect::<Vec<_>>();
    let (mut rows, mut size) = (Vec::new(), 0);
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let values = (0..columns.len()).map(|index| row.get_ref(index).map(text)).collect::<rusqlite::Result<Vec<_>>>()?;
        let more = values.iter().map(|value| value.as_ref().map_or(1, |value| value.len() + 24)).sum::<usize>();
        size += more;
        room.check(size, more)?;
        rows.push(values);
    }
    Ok(Reply::Rows { columns, rows })
}

fn text(value: ValueRef<'_>) -> Option<Vec<u8>> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string().into_bytes()),
        ValueRef::Real(number) => Some(real(number).into_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
    }
}

/// A number as SQLite shows it: always with a point.
fn real(number: f64) -> String {
    format!("{number:?}")
}

/// Rewrites MySQL's words for SQLite: `INSERT IGNORE` becomes `INSERT OR IGNORE`. A final `FOR UPDATE` is dropped, as statements stand
/// alone here.
fn as_sqlite(sql: &str) -> Cow<'_, str> {
    let mut first = tokens(sql);
    let is = |token: Option<&Token>, word: &str| token.is_some_and(|token| !token.is_quoted && token.text.eq_ignore_ascii_case(word));
    let (verb, second) = (first.next(), first.next());
    if is(verb.as_ref(), "insert") && is(second.as_ref(), "ignore") {
        let rest = second.and_then(|token| sql.get(token.end..)).unwrap_or_default();
        return Cow::Owned(format!("INSERT OR IGNORE{rest}"));
    }
    // The last words are looked at first: most statements are read no further.
    let ends_so = sql.len().checked_sub("update".len()).and_then(|at| sql.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case("update"));
    if is(verb.as_ref(), "select") && ends_so {
        let all: Vec<Token> = tokens(sql).collect();
        if let [.., before, last] = all.as_slice()
            && is(Some(before), "for")
            && is(Some(last), "update")
        {
            return Cow::Borrowed(sql.get(..before.start).unwrap_or(sql));
        }
    }
    Cow::Borrowed(sql)
}

/// Whether it is one of those that change rows, and not tables.
fn changes_rows(sql: &str) -> bool {
    const VERBS: [&str; 5] = ["insert", "replace", "update", "delete", "with"];
    tokens(sql).next().is_some_and(|verb| VERBS.iter().any(|word| verb.text.eq_ignore_ascii_case(word)))
}

/// Whether a statement inserts into a table whose rows are given numbers.
fn fills_numbered_table(sql: &str) -> bool {
    let words: Vec<String> = tokens(sql).take(8).map(|token| token.text.to_ascii_lowercase()).collect();
    let is_insert = words.first().is_some_and(|verb| verb == "insert" || verb == "replace");
    let after = words.iter().position(|word| word == "into").map_or(&[][..], |at| &words[at + 1..]);
    let name = match after {
        [_, dot, name, ..] if dot == "." => name,
        [schema, name, ..] if schema.ends_with('.') => name,
        [name, ..] => name.rsplit('.').next().unwrap_or(name),
        [] => return false,
    };
    is_insert && description(name).is_some_and(ddl::numbers_itself)
}

/// `@@name` is no expression to SQLite: a function stands in for it.
fn with_variables(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 32);
    let mut quote = None;
    let mut rest = sql;
    while let Some(letter) = rest.chars().next() {
        let mut length = letter.len_utf8();
        match quote {
            Some(open) if open == letter => quote = None,
            Some(_) => {}
            None if matches!(letter, '\'' | '"' | '`') => quote = Some(letter),
            None if rest.starts_with("@@") => {
                length = variable_length(rest);
                out.push_str(VARIABLE);
                out.push_str(&rest[..length]);
                out.push_str("')");
                rest = &rest[length..];
                continue;
            }
            None => {}
        }
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

/// The length of the `@@name` that `text` begins with. Only our own modules' names have dashes.
fn variable_length(text: &str) -> usize {
    let name = &text[2..];
    let bare = ["global.", "session.", "local."].iter().find_map(|scope| strip_ignoring_case(name, scope)).unwrap_or(name);
    let is_ours = ["mysql-", "admin-"].iter().any(|module| strip_ignoring_case(bare, module).is_some());
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '$') || (is_ours && letter == '-');
    2 + name.find(|letter| !is_part(letter)).unwrap_or(name.len())
}

fn strip_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

/// The name of a column as its client wrote it.
fn without_variables(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once(VARIABLE) {
        let Some((variable, tail)) = after.split_once("')") else {
            break;
        };
        out.push_str(before);
        out.push_str(variable);
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_mysql() {
        for (sql, sqlite) in [
            ("insert ignore into t values (1)", "INSERT OR IGNORE into t values (1)"),
            ("SELECT * FROM t WHERE a = 'FOR UPDATE' for update", "SELECT * FROM t WHERE a = 'FOR UPDATE' "),
            ("SELECT 'for update'", "SELECT 'for update'"),
            ("SELECT a AS \"update\" FROM t", "SELECT a AS \"update\" FROM t"),
            ("SELECT 1", "SELECT 1"),
            ("é", "é"),
        ] {
            assert_eq!(as_sqlite(sql), sqlite);
        }
        for (sql, fills) in [
            ("INSERT INTO mysql_query_rules (active) VALUES (1)", true),
            ("REPLACE INTO main.`scheduler` VALUES (1)", true),
            ("INSERT OR IGNORE INTO scheduler VALUES (1)", true),
            ("INSERT INTO mysql_servers VALUES (1)", false),
            ("UPDATE scheduler SET id = 1", false),
        ] {
            assert_eq!(fills_numbered_table(sql), fills, "{sql}");
        }
    }

    #[test]
    fn names_of_tables_get_their_schema() {
        for (sql, meant) in [
            ("DELETE FROM mysql_servers", "DELETE FROM disk.mysql_servers"),
            ("SELECT * FROM `mysql_servers` s, MYSQL_USERS", "SELECT * FROM disk.`mysql_servers` s, disk.MYSQL_USERS"),
            ("INSERT INTO \"mysql_users\"(a) VALUES ('mysql_users')", "INSERT INTO disk.\"mysql_users\"(a) VALUES ('mysql_users')"),
            ("SELECT mysql_users.a FROM main.mysql_users", "SELECT mysql_users.a FROM main.mysql_users"),
            ("SELECT `mysql_users`.a FROM `main`.`mysql_users`", "SELECT `mysql_users`.a FROM `main`.`mysql_users`"),
            ("SELECT \"mysql_users\" FROM stats AS mysql_users", "SELECT \"mysql_users\" FROM stats AS mysql_users"),
            ("UPDATE mysql_users SET a = 'é'", "UPDATE disk.mysql_users SET a = 'é'"),
        ] {
            assert_eq!(qualified(sql, |name| name == "mysql_servers" || name == "mysql_users"), meant);
        }
    }

    #[test]
    fn variables_become_calls_and_names_stay() {
        let sql = "SELECT @@session.a AS x, CONCAT(@@version, '@@b'), @@mysql-threads-1";
        let rewritten = with_variables(sql);
        assert_eq!(
            rewritten,
            "SELECT mysql_variable('@@session.a') AS x, CONCAT(mysql_variable('@@version'), '@@b'), mysql_variable('@@mysql-threads-1')"
        );
        assert_eq!(without_variables(&rewritten), sql);
    }
}
