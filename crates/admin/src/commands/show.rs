//! SHOW and DESCRIBE: each is a query over existing tables.

use model::config::TABLES;

use super::{Answer, Command, for_all, open, query, refuse, rows as reply};
use crate::engine::statement::{Statement, literal};
use crate::engine::{Ask, Engine, sql, variables};
use crate::error::AdminError;
use crate::live::SCHEMAS;
use crate::reply::{Reply, Role};
use crate::store::layout::stored_ddl;

pub(super) const COMMANDS: &[Command] = &[
    for_all(open("SHOW TABLES", |engine, ask| tables(engine, ask, 2, false)).help(
        "SHOW TABLES [FROM schema] [LIKE 'pattern']",
        "Tables of a schema.",
        "SHOW TABLES FROM stats",
    )),
    for_all(open("SHOW FULL TABLES", |engine, ask| tables(engine, ask, 3, true))),
    for_all(open("SHOW TABLE STATUS", table_status)),
    for_all(open("SHOW CREATE TABLE|VIEW", create_table).help(
        "SHOW CREATE TABLE table",
        "The definition of a table or a view.",
        "SHOW CREATE TABLE mysql_servers",
    )),
    for_all(open("SHOW CREATE DATABASE|SCHEMA *", |_, ask| {
        let name = ask.statement.word(3);
        Ok(reply(&["Database", "Create Database"], vec![vec![Some(name.to_owned()), Some(format!("CREATE DATABASE `{name}`"))]]))
    })),
    for_all(open("SHOW DATABASES|SCHEMAS", databases).help("SHOW DATABASES", "The schemas.", "SHOW DATABASES")),
    for_all(open("SHOW CHARSET", charsets)),
    for_all(open("SHOW CHARACTER SET", charsets)),
    for_all(open("SHOW COLLATION", collations)),
    query("SHOW MYSQL USERS", "SELECT * FROM mysql_users ORDER BY username, frontend").help(
        "SHOW MYSQL USERS",
        "Users in memory.",
        "SHOW MYSQL USERS",
    ),
    query("SHOW MYSQL SERVERS", "SELECT * FROM mysql_servers ORDER BY hostgroup_id, hostname, port").help(
        "SHOW MYSQL SERVERS",
        "Servers in memory. runtime_mysql_servers has their present roles.",
        "SHOW MYSQL SERVERS",
    ),
    open("SHOW MYSQL VARIABLES", |engine, ask| own_variables(engine, ask, "mysql-%")).help(
        "SHOW MYSQL VARIABLES [LIKE 'pattern']",
        "Settings of the data plane in memory.",
        "SHOW MYSQL VARIABLES LIKE 'mysql-monitor%'",
    ),
    open("SHOW ADMIN VARIABLES", |engine, ask| own_variables(engine, ask, "admin-%")).help(
        "SHOW ADMIN VARIABLES [LIKE 'pattern']",
        "Settings of the admin interface in memory.",
        "SHOW ADMIN VARIABLES",
    ),
    open("SHOW LDAP VARIABLES", |engine, ask| own_variables(engine, ask, "ldap-%")),
    for_all(open("SHOW VARIABLES", |engine, ask| variables(engine, ask, 2)).help(
        "SHOW VARIABLES [LIKE 'pattern']",
        "All settings in memory.",
        "SHOW VARIABLES LIKE '%timeout%'",
    )),
    for_all(open("SHOW GLOBAL|SESSION|LOCAL|ALL VARIABLES", |engine, ask| variables(engine, ask, 3))),
    for_all(query("SHOW MYSQL STATUS", STATUS).help("SHOW MYSQL STATUS", "Counters of the proxy.", "SHOW MYSQL STATUS")),
    for_all(open("SHOW STATUS", |engine, ask| status(engine, ask, 2))),
    for_all(open("SHOW GLOBAL|SESSION|LOCAL STATUS", |engine, ask| status(engine, ask, 3))),
    for_all(
        query(
            "SHOW PROCESSLIST",
            "SELECT SessionID, user, db, hostgroup, command, time_ms, SUBSTR(info, 1, 99) AS info, pins, SUBSTR(last_digest_text, 1, 99) AS \
             last_digest_text FROM stats_mysql_processlist",
        )
        .help("SHOW PROCESSLIST", "Sessions and what they do.", "SHOW PROCESSLIST"),
    ),
    for_all(query("SHOW FULL PROCESSLIST", "SELECT * FROM stats_mysql_processlist").help(
        "SHOW FULL PROCESSLIST",
        "Sessions with all columns and whole statements.",
        "SHOW FULL PROCESSLIST",
    )),
    for_all(open("SHOW FIELDS|COLUMNS FROM|IN *", |engine, ask| fields(engine, ask, 3))),
    for_all(open("SHOW FULL FIELDS|COLUMNS FROM|IN *", |engine, ask| fields(engine, ask, 4))),
    for_all(open("DESCRIBE|DESC *", |engine, ask| fields(engine, ask, 1)).help(
        "DESCRIBE table",
        "Columns of a table.",
        "DESCRIBE mysql_servers",
    )),
];

const STATUS: &str = "SELECT Variable_Name AS Variable_name, Variable_Value AS Value FROM stats_mysql_global ORDER BY Variable_Name";

fn run(engine: &Engine, ask: &Ask<'_>, text: &str) -> Answer {
    sql::run(engine, ask.who, ask.session, text)
}

/// The schemas that a session sees.
pub(super) fn schemas(who: Role) -> impl Iterator<Item = &'static str> {
    SCHEMAS.iter().copied().filter(move |name| who == Role::Admin || *name != "disk")
}

fn databases(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let lines = engine
        .connection(ask.who)
        .prepare("PRAGMA database_list")?
        .query_map([], |row| Ok(vec![Some(row.get::<_, i64>(0)?.to_string()), Some(row.get(1)?), row.get(2)?]))?
        .collect::<Result<Vec<_>, _>>()?;
    Ok(reply(&["seq", "name", "file"], lines))
}

/// `[FROM s] [LIKE 'p' | WHERE ...]` behind a command's words.
#[derive(Debug, Default)]
struct Filter {
    schema: Option<String>,
    condition: String,
}

impl Filter {
    /// Reads the words from token `index` on; LIKE applies to `column`.
    fn read(statement: &Statement, index: usize, column: &str) -> Result<Self, AdminError> {
        let (mut filter, mut at) = (Self::default(), index);
        if statement.is(at, "FROM|IN") {
            filter.schema = Some(statement.word(at + 1).to_owned());
            at += 2;
        }
        filter.condition = match () {
            () if statement.head.len() == at => "1".to_owned(),
            () if statement.is(at, "LIKE") => format!("{column} LIKE {} ESCAPE '\\'", literal(statement.word(at + 1))),
            () if statement.is(at, "WHERE") => statement.rest(at + 1).to_owned(),
            () => return refuse(format!("near '{}': write FROM, LIKE or WHERE here", statement.word(at))),
        };
        Ok(filter)
    }

    /// The requested pairs of `Variable_name` and `Value` in `source`. WHERE may also say `variable_value`, as tables do.
    fn of_pairs(&self, source: &str) -> String {
        let named = format!("SELECT Variable_name, Value, Value AS variable_value FROM ({source})");
        format!("SELECT Variable_name, Value FROM ({named}) WHERE {} ORDER BY Variable_name", self.condition)
    }

    /// The schema that is meant: as named, else the session's, else `main`.
    fn schema(&self, ask: &Ask<'_>) -> Result<&'static str, AdminError> {
        let named = self.schema.as_deref().or(ask.session.schema.as_deref().filter(|own| schemas(ask.who).any(|known| known == *own)));
        match named {
            None => Ok("main"),
            Some(name) => schemas(ask.who)
                .find(|known| known.eq_ignore_ascii_case(name))
                .ok_or_else(|| AdminError::Refused(format!("Unknown database '{name}'"))),
        }
    }
}

fn tables(engine: &mut Engine, ask: &Ask<'_>, index: usize, is_full: bool) -> Answer {
    let filter = Filter::read(ask.statement, index, "tables")?;
    let schema = filter.schema(ask)?;
    let more = if is_full { ", Table_type" } else { "" };
    // TEMP views are what CREATE VIEW made where `main` could not hold them.
    let temporary = match (ask.who, schema) {
        (Role::Admin, "main") => "UNION ALL SELECT name, type FROM temp.sqlite_master WHERE type = 'view'",
        _ => "",
    };
    let text = format!(
        "SELECT tables{more} FROM (SELECT name AS tables, IIF(type = 'view', 'VIEW', 'BASE TABLE') AS Table_type FROM \
         (SELECT name, type FROM {schema}.sqlite_master {temporary}) \
         WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite|_%' ESCAPE '|') WHERE {} ORDER BY tables",
        filter.condition
    );
    run(engine, ask, &text)
}

fn table_status(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let filter = Filter::read(ask.statement, 3, "Name")?;
    let schema = filter.schema(ask)?;
    let text = format!(
        "SELECT * FROM (SELECT name AS Name, 'SQLite' AS Engine, 10 AS Version, 'Dynamic' AS Row_format, NULL AS Rows, 0 AS Avg_row_length, \
         0 AS Data_length, 0 AS Max_data_length, 0 AS Index_length, 0 AS Data_free, NULL AS Auto_increment, NULL AS Create_time, \
         NULL AS Update_time, NULL AS Check_time, 'utf8mb4_general_ci' AS Collation, NULL AS Checksum, '' AS Create_options, '' AS Comment \
         FROM {schema}.sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite|_%' ESCAPE '|') WHERE {} ORDER BY Name",
        filter.condition
    );
    run(engine, ask, &text)
}

/// The table that is named at `index`, as `t`, `s.t` or with quotes, and the index behind it.
pub(super) fn qualified(statement: &Statement, index: usize) -> (Option<String>, String, usize) {
    let first = statement.word(index);
    if statement.word(index + 1) == "." {
        return (Some(first.to_owned()), statement.word(index + 2).to_owned(), index + 3);
    }
    if let Some(name) = statement.head.get(index + 1).and_then(|token| token.text.strip_prefix('.')) {
        return (Some(first.to_owned()), name.to_owned(), index + 2);
    }
    let is_quoted = statement.head.get(index).is_some_and(|token| token.is_quoted);
    match first.split_once('.').filter(|_| !is_quoted) {
        Some((schema, "")) => (Some(schema.to_owned()), statement.word(index + 1).to_owned(), index + 2),
        Some((schema, name)) => (Some(schema.to_owned()), name.to_owned(), index + 1),
        None => (None, first.to_owned(), index + 1),
    }
}

/// The schemas to search for a table: the named one, else all that the session sees.
fn places(schema: Option<&str>, who: Role) -> Vec<&'static str> {
    let temporary = (who == Role::Admin).then_some("temp");
    temporary.into_iter().chain(schemas(who)).filter(|known| schema.is_none_or(|schema| schema.eq_ignore_ascii_case(known))).collect()
}

fn create_table(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let (schema, name, _) = qualified(ask.statement, 3);
    for place in places(schema.as_deref(), ask.who) {
        if let Some(stored) = stored_ddl(engine.connection(ask.who), place, &name)? {
            let live = engine.live.find(Some(place), &name).or_else(|| engine.live.find(None, &name));
            let text = live.filter(|_| stored.starts_with("CREATE VIRTUAL")).map_or(stored, crate::live::LiveTable::ddl);
            return Ok(reply(&["table", "Create Table"], vec![vec![Some(name), Some(text)]]));
        }
    }
    missing(engine, ask, &name)
}

/// With MySQL's own number, which libraries look for when they ask whether a table is there.
fn missing(engine: &Engine, ask: &Ask<'_>, name: &str) -> Answer {
    let error = AdminError::Sql(format!("no such table: {name}")).of_no_table(|name| engine.nearest_table(ask.who, name));
    Ok(Reply::Err { code: 1146, sqlstate: "42S02", text: error.to_string() })
}

fn fields(engine: &mut Engine, ask: &Ask<'_>, index: usize) -> Answer {
    let (mut schema, name, next) = qualified(ask.statement, index);
    if ask.statement.is(next, "FROM|IN") {
        schema = Some(ask.statement.word(next + 1).to_owned());
    }
    let is_full = ask.statement.is(1, "FULL");
    for place in places(schema.as_deref(), ask.who) {
        let sql = "SELECT name, \"notnull\", pk, dflt_value FROM pragma_table_info(?1, ?2)";
        let found = engine
            .connection(ask.who)
            .prepare(sql)?
            .query_map([name.as_str(), place], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?, row.get::<_, i64>(2)? > 0, row.get::<_, Option<String>>(3)?))
            })?
            .collect::<Result<Vec<_>, _>>()?;
        if !found.is_empty() {
            return Ok(field_lines(engine, place, &name, found, is_full));
        }
    }
    missing(engine, ask, &name)
}

type Field = (String, bool, bool, Option<String>);

fn field_lines(engine: &Engine, place: &str, name: &str, found: Vec<Field>, is_full: bool) -> Reply {
    let live = engine.live.find(Some(place), name).filter(|_| TABLES.iter().all(|table| !table.name.eq_ignore_ascii_case(name)));
    let line = |(field, is_needed, is_key, default): Field| {
        let known = live.and_then(|table| table.columns.iter().find(|column| column.name == field));
        let is_nullable = known.map_or(!is_needed, |column| column.is_nullable);
        let is_key = is_key || live.is_some_and(|table| table.key.contains(&field));
        let default = default.map(|text| crate::engine::statement::unquoted(&text));
        let (null, key) = (if is_nullable { "YES" } else { "NO" }, if is_key { "PRI" } else { "" });
        let own = |text: &str| Some(text.to_owned());
        if !is_full {
            vec![Some(field), own("varchar(255)"), own(null), own(key), default, own("")]
        } else {
            vec![Some(field), own("varchar(255)"), own("utf8mb4_general_ci"), own(null), own(key), default, own(""), own("select"), own("")]
        }
    };
    let columns: &[&str] = if !is_full {
        &["Field", "Type", "Null", "Key", "Default", "Extra"]
    } else {
        &["Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment"]
    };
    reply(columns, found.into_iter().map(line).collect())
}

const NAMES: &str = "variable_name AS Variable_name, variable_value AS Value";

fn own_variables(engine: &mut Engine, ask: &Ask<'_>, pattern: &str) -> Answer {
    let filter = Filter::read(ask.statement, 3, "Variable_name")?;
    let source = format!("SELECT {NAMES} FROM main.global_variables WHERE variable_name LIKE '{pattern}'");
    run(engine, ask, &filter.of_pairs(&source))
}

/// `SHOW VARIABLES`: the proxy's own, from memory. With LIKE or WHERE, a MySQL server's variables too.
fn variables(engine: &mut Engine, ask: &Ask<'_>, index: usize) -> Answer {
    let filter = Filter::read(ask.statement, index, "Variable_name")?;
    let server: Vec<String> =
        variables::variables(engine, ask.session).iter().map(|(name, value)| format!("({}, {})", literal(name), literal(value))).collect();
    let server = format!("SELECT column1 AS Variable_name, column2 AS Value FROM (VALUES {})", server.join(", "));
    let own = format!("SELECT {NAMES} FROM main.global_variables");
    let source = match (ask.who, filter.condition.as_str()) {
        (Role::Stats, _) => server,
        (Role::Admin, "1") => own,
        (Role::Admin, _) => format!("{own} UNION ALL {server}"),
    };
    run(engine, ask, &filter.of_pairs(&source))
}

fn status(engine: &mut Engine, ask: &Ask<'_>, index: usize) -> Answer {
    let filter = Filter::read(ask.statement, index, "Variable_name")?;
    let source = "SELECT Variable_Name AS Variable_name, Variable_Value AS Value FROM stats_mysql_global";
    run(engine, ask, &filter.of_pairs(source))
}

fn all_collations() -> impl Iterator<Item = &'static wire::charset::Collation> {
    (1..=4_000).filter_map(wire::charset::collation)
}

fn is_default(collation: &wire::charset::Collation) -> bool {
    collation.default_for.contains(wire::charset::Flavor::MySql)
}

fn charsets(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let longest = |charset: &str| if charset == "utf8mb4" { 4 } else { 3 };
    let line =
        |found: &wire::charset::Collation| format!("({}, {}, '', {})", literal(found.charset), literal(found.name), longest(found.charset));
    let lines = all_collations().filter(|collation| is_default(collation)).map(line).collect();
    let at = if ask.statement.is(1, "CHARSET") { 2 } else { 3 };
    listed(engine, ask, &["Charset", "Default collation", "Description", "Maxlen"], lines, at)
}

fn collations(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let line = |found: &wire::charset::Collation| {
        let default = if is_default(found) { "Yes" } else { "" };
        format!("({}, {}, {}, '{default}', 'Yes', 1)", literal(found.name), literal(found.charset), found.id)
    };
    listed(engine, ask, &["Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"], all_collations().map(line).collect(), 2)
}

/// The lines that the LIKE, which is about the first column, or the WHERE behind word `at` leaves.
fn listed(engine: &Engine, ask: &Ask<'_>, columns: &[&str], lines: Vec<String>, at: usize) -> Answer {
    let filter = Filter::read(ask.statement, at, columns.first().unwrap_or(&""))?;
    let named: Vec<String> = (1..).zip(columns).map(|(number, name)| format!("column{number} AS \"{name}\"")).collect();
    let text = format!("SELECT * FROM (SELECT {} FROM (VALUES {})) WHERE {}", named.join(", "), lines.join(", "), filter.condition);
    run(engine, ask, &text)
}

/// The rows of `mysql_collations`: id, name, character set, whether it is the default.
pub(crate) fn collation_rows() -> impl Iterator<Item = (i64, &'static str, &'static str, &'static str)> {
    all_collations().map(|found| (i64::from(found.id), found.name, found.charset, if is_default(found) { "Yes" } else { "" }))
}
