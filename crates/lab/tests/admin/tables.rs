//! `docs/reference/tables.md` and `docs/reference/metrics.md` say what a proxy has. With `UPDATE_DOCS=1` they are written anew. The program that is
//! asked is the one that was built last: `cargo build -p tidegate` first.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;

use lab::Tidegate;
use lab::port::Port;

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
    is_fresh("docs/reference/tables.md", &page);
}

/// A page that the program makes is as it is in the repository; UPDATE_DOCS writes it.
fn is_fresh(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "{name} is stale: run cargo build -p tidegate && UPDATE_DOCS=1 cargo test -p lab --test admin page_of");
}

/// Where a metric's unit is told by its name, as Prometheus advises, and where it is not.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    [
        ("_milliseconds", "ms"),
        ("_seconds", "s"),
        ("_ms", "ms"),
        ("_us", "us"),
        ("_ns", "ns"),
        ("_bytes", "bytes"),
        ("_bytes_sent", "bytes"),
        ("_bytes_received", "bytes"),
    ]
    .into_iter()
    .find_map(|(end, unit)| name.ends_with(end).then_some(unit))
    .unwrap_or_default()
}

#[test]
fn the_page_of_metrics_is_fresh() {
    let port = Port::reserve().unwrap();
    // A server's metrics are there whether it answers or not.
    let builder = Tidegate::builder().variable("threads", 1).server(0, "127.0.0.1", 1).admin_variable("restapi_enabled", true);
    // So are those of a shared configuration.
    let builder = builder.admin_variable("shared_config_endpoints", "http://127.0.0.1:1");
    let _proxy = builder.admin_variable("restapi_port", i64::from(port.number())).start().unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", port.number())).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let mut page = "# Metrics\n\nMade from the program itself: `UPDATE_DOCS=1 cargo test -p lab --test admin page_of_metrics`.\n\
                    `GET /metrics` of the HTTP port gives them ([monitoring.md](../how-to/monitoring.md)), and so does `SHOW PROMETHEUS METRICS` on the admin port.\n\
                    Those that begin with `proxysql_` are named and counted as ProxySQL's.\n\n\
                    | metric | kind | unit | what it says |\n|---|---|---|---|\n"
        .to_owned();
    let mut rows: Vec<String> = Vec::new();
    let mut help = ("", "");
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            help = said.split_once(' ').unwrap();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|said| said.split_once(' ')) {
            assert_eq!(name, help.0);
            assert!(!help.1.is_empty(), "{name} has no help");
            rows.push(format!("| `{name}` | {kind} | {} | {} |\n", unit(name), help.1.replace('|', "\\|")));
        }
    }
    rows.sort();
    page.push_str(&rows.concat());
    is_fresh("docs/reference/metrics.md", &page);
}
