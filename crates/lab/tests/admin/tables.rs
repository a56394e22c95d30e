//! `docs/tables.md` says what a proxy has. `UPDATE_DOCS=1` rewrites it.

use std::fmt::Write;
use std::path::Path;

use lab::Tidegate;

/// Schemas, and what they are for.
const SCHEMAS: [(&str, &str); 5] = [
    ("main", "The configuration in memory, and by `runtime_...` what is in force. Changes take effect with LOAD ... TO RUNTIME."),
    ("disk", "The configuration that the next start takes: SAVE ... TO DISK writes it."),
    (
        "stats",
        "Statistics and the state of sessions, servers and clusters, as they are when they are read. Tables that end in `_reset` begin anew when they are read.",
    ),
    ("monitor", "The last checks of the monitor."),
    ("stats_history", "Samples of statistics, kept on disk."),
];

#[test]
fn the_page_of_tables_is_fresh() {
    let proxy = Tidegate::builder().variable("threads", 1).start().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut rows = |sql: String| {
        let rows = admin.run(sql).unwrap().table().unwrap();
        rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let mut page =
        "# Tables of the admin port\n\nMade from the program itself: `UPDATE_DOCS=1 cargo test -p lab --test admin page_of_tables`.\n\
                    `SHOW CREATE TABLE stats.stats_mysql_global` shows one, `SHOW TABLES FROM stats` lists a schema's.\n"
            .to_owned();
    for (schema, purpose) in SCHEMAS {
        write!(page, "\n## {schema}\n\n{purpose}\n\n| table | columns | what it has |\n|---|---|---|\n").unwrap();
        let tables =
            format!("SELECT table_name, table_comment FROM information_schema.tables WHERE table_schema='{schema}' ORDER BY table_name");
        for table in rows(tables) {
            let columns = format!(
                "SELECT column_name FROM information_schema.columns WHERE table_schema='{schema}' AND table_name='{}' ORDER BY ordinal_position",
                table[0]
            );
            let columns: Vec<String> = rows(columns).concat();
            writeln!(page, "| `{}` | {} | {} |", table[0], columns.join(", "), table[1].replace('|', "\\|")).unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tables.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/tables.md is stale: run UPDATE_DOCS=1 cargo test -p lab --test admin page_of_tables");
}
