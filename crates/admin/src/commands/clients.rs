//! Statements that drivers and tools send on their own, answered so that they continue.

use super::show::schemas;
use super::{Answer, Command, done, for_all, open, rows as reply};
use crate::engine::{Ask, Engine};
use crate::reply::Reply;

/// Statements that are answered OK and do nothing. There are no transactions: each statement stands alone, as in ProxySQL.
pub(super) const COMMANDS: &[Command] = &[
    for_all(open("BEGIN", nothing)),
    for_all(open("START TRANSACTION", nothing)),
    for_all(open("COMMIT", nothing)),
    for_all(open("ROLLBACK", |_, _| Ok(done(0, "nothing to roll back: the admin port has no transactions")))),
    for_all(open("SAVEPOINT *", nothing)),
    for_all(open("RELEASE SAVEPOINT", nothing)),
    for_all(open("USE *", use_schema)),
    for_all(open("LOCK TABLES|TABLE", nothing)),
    for_all(open("UNLOCK TABLES|TABLE", nothing)),
    for_all(open("ALTER TABLE * DISABLE|ENABLE KEYS", nothing)),
    for_all(open("SELECT $$", |_, _| {
        Ok(Reply::Err { code: 1054, sqlstate: "42S22", text: "Unknown column '$$' in 'field list'".to_owned() })
    })),
    for_all(open("SHOW WARNINGS", |_, ask| {
        let line = |text: &String| ["Warning", WARNING, text].iter().map(|value| Some((*value).to_owned())).collect();
        Ok(reply(&["Level", "Code", "Message"], ask.session.warnings.iter().map(line).collect()))
    })),
    for_all(open("SHOW ERRORS", |_, _| Ok(reply(&["Level", "Code", "Message"], Vec::new())))),
    for_all(open("SHOW COUNT", |_, ask| {
        let (column, count) = if ask.statement.rest(2).to_ascii_uppercase().contains("ERRORS") {
            ("@@session.error_count", 0)
        } else {
            ("@@session.warning_count", ask.session.warnings.len())
        };
        Ok(reply(&[column], vec![vec![Some(count.to_string())]]))
    })),
    for_all(open("SHOW ENGINES", |_, _| {
        let line = ["SQLite", "DEFAULT", "The admin interface's tables", "NO", "NO", "NO"];
        let line = line.iter().map(|value| Some((*value).to_owned())).collect();
        Ok(reply(&["Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"], vec![line]))
    })),
    for_all(open("SHOW PLUGINS", |_, _| Ok(reply(&["Name", "Status", "Type", "Library", "License"], Vec::new())))),
    for_all(open("SHOW PRIVILEGES", |_, _| Ok(reply(&["Privilege", "Context", "Comment"], Vec::new())))),
    for_all(open("SHOW TRIGGERS", |_, _| Ok(reply(&["Trigger", "Event", "Table", "Statement", "Timing"], Vec::new())))),
    for_all(open("SHOW EVENTS", |_, _| Ok(reply(&["Db", "Name", "Definer", "Type", "Status"], Vec::new())))),
    for_all(open("SHOW PROCEDURE|FUNCTION STATUS", |_, _| Ok(reply(&["Db", "Name", "Type", "Definer", "Comment"], Vec::new())))),
    for_all(open("SHOW INDEX|INDEXES|KEYS FROM|IN *", |_, _| {
        Ok(reply(&["Table", "Non_unique", "Key_name", "Seq_in_index", "Column_name", "Index_type"], Vec::new()))
    })),
    for_all(open("SHOW MASTER|REPLICA|SLAVE|BINARY STATUS|LOGS", |_, _| Ok(reply(&["File", "Position"], Vec::new())))),
    for_all(open("SHOW GRANTS", |_, ask| {
        let grant = if ask.who == crate::Role::Admin { "ALL PRIVILEGES" } else { "SELECT" };
        Ok(reply(&["Grants"], vec![vec![Some(format!("GRANT {grant} ON *.* TO '{}'", ask.session.user))]]))
    })),
];

/// The session notes the schema; see [`crate::engine::sql::in_schema`].
fn use_schema(_: &mut Engine, ask: &Ask<'_>) -> Answer {
    let name = ask.statement.word(1);
    if schemas(ask.who).any(|known| known.eq_ignore_ascii_case(name)) {
        Ok(Reply::done())
    } else {
        Ok(Reply::Err { code: 1049, sqlstate: "42000", text: format!("Unknown database '{name}'") })
    }
}

fn nothing(_: &mut Engine, _: &Ask<'_>) -> Answer {
    Ok(Reply::done())
}

/// ER_UNKNOWN_ERROR: MySQL's number for warnings without one of their own.
const WARNING: &str = "1105";
