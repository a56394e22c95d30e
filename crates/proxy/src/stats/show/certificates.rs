//! `stats_tls_certificates` and `stats_proxysql_global`: the certificates that clients are shown, and when they were read.

use super::{Rows, Table};
use crate::stats::ProxyStats;
use crate::workers::clock::unix_us;
use model::stats::{StatsSchema, StatsTable, Value, stat};

/// See the module.
pub(super) const TABLES: &[Table] = &[
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tls_certificates",
            columns: &[
                stat("cert_type", "VARCHAR"),
                stat("file_path", "VARCHAR"),
                stat("subject_cn", "VARCHAR"),
                stat("issuer_cn", "VARCHAR"),
                stat("serial_number", "VARCHAR"),
                stat("not_before", "VARCHAR"),
                stat("not_after", "VARCHAR"),
                stat("days_until_expiry", "INT"),
                stat("sha256_fingerprint", "VARCHAR"),
                stat("loaded_at", "INT"),
            ],
            primary_key: &[],
            has_reset: false,
            help: "Certificates for clients, as last read; times are UTC, loaded_at is Unix time",
        },
        rows: |stats, _| certificates(stats),
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_proxysql_global",
            columns: &[stat("Variable_Name", "VARCHAR"), stat("Variable_Value", "VARCHAR")],
            primary_key: &["Variable_Name"],
            has_reset: false,
            help: "Time and files of the last read of certificates for clients",
        },
        rows: |stats, _| global(stats),
    },
];

fn certificates(stats: &ProxyStats) -> Rows {
    if stats.shared.tls.load().is_none() {
        return Rows::new();
    }
    let now = i64::try_from(unix_us() / 1_000_000).unwrap_or(i64::MAX);
    let loads = stats.shared.tls_loads.get();
    let row = |certificate: &tls::Certificate| -> Vec<Value> {
        vec![
            certificate.kind.into(),
            certificate.file.display().to_string().into(),
            certificate.subject.clone().into(),
            certificate.issuer.clone().into(),
            certificate.serial.clone().into(),
            utc(certificate.not_before).into(),
            utc(certificate.not_after).into(),
            certificate.not_after.saturating_sub(now).div_euclid(86_400).into(),
            certificate.fingerprint.clone().into(),
            loads.loaded_s.into(),
        ]
    };
    loads.certificates.iter().map(row).collect()
}

fn global(stats: &ProxyStats) -> Rows {
    let loads = stats.shared.tls_loads.get();
    let [cert, ca, key] = match &loads.files {
        Some(files) => files.each_ref().map(|file| file.display().to_string()),
        None => [const { String::new() }; 3],
    };
    let result = match (loads.last_s, loads.was_ok) {
        (0, _) => "NONE",
        (_, true) => "SUCCESS",
        (_, false) => "FAILED",
    };
    [
        ("TLS_Load_Count", loads.count.to_string()),
        ("TLS_Last_Load_Timestamp", loads.last_s.to_string()),
        ("TLS_Last_Load_Result", result.to_owned()),
        ("TLS_Server_Cert_File", cert),
        ("TLS_CA_Cert_File", ca),
        ("TLS_Key_File", key),
    ]
    .into_iter()
    .map(|(name, value)| vec![name.into(), value.into()])
    .collect()
}

fn utc(unix_s: i64) -> String {
    let at = jiff::Timestamp::from_second(unix_s).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S").to_string()
}
