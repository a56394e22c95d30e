//! A frame from a real admin port, whose engine answers fixed rows.

use super::*;
use admin::outside::{Outside, OutsideParts};
use admin::{Reply, channel};
use clap::Parser;
use std::sync::Arc;

fn rows(rows: &[&[&str]]) -> Reply {
    let columns = vec!["a".into(); rows.first().map_or(1, |row| row.len())];
    let rows = rows.iter().map(|row| row.iter().map(|v| Some(v.as_bytes().to_vec())).collect()).collect();
    Reply::Rows { columns, rows }
}

fn answer(sql: &str) -> Reply {
    let first = sql.split("FROM ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    match first {
        "stats_mysql_global" => rows(&[&["Questions", "5"], &["ProxySQL_Uptime", "61"], &["mysql_listener_paused", "false"]]),
        "stats_mysql_connection_pool" => rows(&[&["1", "db1", "3306", "ONLINE", "2", "3", "0", "9", "1", "1", "100"]]),
        "stats_tidegate_pins_summary" => rows(&[&["transaction", "4", "1500"]]),
        _ => Reply::refused("no such table: stats_mysql_query_digest"),
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    top: TopOptions,
}

fn options(words: &[&str]) -> TopOptions {
    Line::parse_from([&["top"], words].concat()).top
}

#[test]
fn one_frame_as_text() {
    let mut config = model::Config::default();
    config.admin.set("mysql_ifaces", "127.0.0.1:0").unwrap();
    config.admin.set("stats_credentials", "stats:secret").unwrap();
    let (engine, jobs) = channel(Arc::new(config));
    std::thread::spawn(move || {
        for job in jobs {
            let _ = job.answer.send(answer(&String::from_utf8_lossy(&job.sql)));
        }
    });
    let (_tls, tls) = tokio::sync::watch::channel(None);
    let parts = OutsideParts {
        engine,
        sources: Vec::new(),
        board: Arc::default(),
        tls,
        is_ready: Arc::new(|| Ok(())),
        sockets: handover::Sockets::fresh(),
    };
    let outside = Outside::start(parts).unwrap();
    let target = outside.addresses().mysql[0].to_string();
    let mut out = Vec::new();
    once(&options(&[&target, "--password", "secret", "--interval", "0.1", "--once"]), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for part in ["up 00:01:01", "queries/s 0 ", "    1 db1:3306", &format!("{:<24} {:>8} {:>10}", "transaction", 4, "1.50s")] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("stats_mysql_query_digest: no such table"), "{text}");
    let refused = once(&options(&[&target, "--password", "wrong", "--once"]), &mut Vec::new()).unwrap_err();
    assert!(format!("{refused:#}").contains("Access denied for user 'stats'"), "{refused:#}");
}

#[test]
fn an_interval_out_of_range() {
    assert!(options(&["--interval", "0"]).interval().is_err());
    assert_eq!(options(&[]).interval().unwrap(), Duration::from_secs(1));
}
