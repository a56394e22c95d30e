//! Spans of statements in OTLP: one SERVER span per client statement, with one CLIENT span below it per attempt.
//!
//! Names and attributes are those of OpenTelemetry's semantic conventions for database spans (stable), and `tidegate.*`.

use crate::context::Parent;
use crate::policy::Why;
use crate::record::{Answered, Attempt, Failure, Record};
use crate::settings::Settings;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span::SpanKind, status::StatusCode};
use std::borrow::Cow;

/// `Span.flags`: it is known whether the parent is in another process, and it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// Lowest byte of `Span.flags`: W3C's flags, here that the trace is sampled.
const SAMPLED: u32 = 1;
/// The conventions' limit of `db.query.summary`.
const MAX_SUMMARY: usize = 255;

/// The request for these statements. `id` must give numbers that no other span has.
pub(crate) fn request(records: &[Record], settings: &Settings, mut id: impl FnMut() -> [u8; 8]) -> ExportTraceServiceRequest {
    let mut attributes = vec![text("service.name", &settings.service_name), text("service.version", env!("CARGO_PKG_VERSION"))];
    let own = settings.resource_attributes.iter().filter(|(name, _)| attributes.iter().all(|known| known.key != *name));
    let own: Vec<KeyValue> = own.map(|(name, value)| text(name, value)).collect();
    attributes.extend(own);
    let scope = InstrumentationScope { name: "tidegate".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), ..Default::default() };
    let spans = records.iter().flat_map(|record| spans(record, &mut id)).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..Default::default() }];
    let resource = Some(Resource { attributes, ..Default::default() });
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans, ..Default::default() }] }
}

/// How many spans a record becomes.
pub(crate) fn count(record: &Record) -> u64 {
    1 + record.attempts.len() as u64
}

fn spans(record: &Record, id: &mut impl FnMut() -> [u8; 8]) -> Vec<Span> {
    let query = String::from_utf8_lossy(&record.text);
    let name = summary(&query).into_owned();
    let common = common(record, &query, &name);
    let own = Span {
        trace_id: record.trace_id.to_vec(),
        span_id: id().to_vec(),
        parent_span_id: record.parent.as_ref().map(|parent| parent.span_id.to_vec()).unwrap_or_default(),
        flags: SAMPLED | HAS_IS_REMOTE | record.parent.map_or(0, |_: Parent| IS_REMOTE),
        name,
        kind: SpanKind::Server.into(),
        start_time_unix_nano: unix_ns(record, record.began_us),
        end_time_unix_nano: unix_ns(record, record.ended_us),
        attributes: common.iter().cloned().chain(of_statement(record)).collect(),
        status: failure(record).map(|_| failed()),
        ..Default::default()
    };
    let attempts: Vec<Span> = (1..)
        .zip(&record.attempts)
        .map(|(number, attempt)| {
            // Of many attempts the last takes the place of those that are left out.
            let number = if number == record.attempts.len() { record.tried as usize } else { number };
            Span {
                trace_id: own.trace_id.clone(),
                span_id: id().to_vec(),
                parent_span_id: own.span_id.clone(),
                flags: SAMPLED | HAS_IS_REMOTE,
                name: own.name.clone(),
                kind: SpanKind::Client.into(),
                start_time_unix_nano: unix_ns(record, attempt.began_us),
                end_time_unix_nano: unix_ns(record, attempt.ended_us),
                attributes: common.iter().cloned().chain(of_attempt(attempt, number)).collect(),
                status: attempt.failure.map(|_| failed()),
                ..Default::default()
            }
        })
        .collect();
    std::iter::once(own).chain(attempts).collect()
}

/// The attributes that all spans of a statement share.
fn common(record: &Record, query: &str, summary: &str) -> Vec<KeyValue> {
    let system = if record.is_mariadb { "mariadb" } else { "mysql" };
    let mut all = vec![text("db.system.name", system), text("db.query.summary", summary), text("db.query.text", query)];
    if let Some(schema) = &record.schema {
        all.push(text("db.namespace", &String::from_utf8_lossy(schema)));
    }
    all
}

fn of_statement(record: &Record) -> Vec<KeyValue> {
    let mut all = vec![
        text("tidegate.sampled_by", record.why.as_str()),
        text("tidegate.digest", &record.digest),
        text("tidegate.user", &record.user),
        number("tidegate.session", record.session),
        number("tidegate.attempts", u64::from(record.tried)),
        number("tidegate.rows_sent", record.rows_sent),
        number("tidegate.rows_affected", record.rows_affected),
        boolean("tidegate.prepared", record.is_execution),
        text("tidegate.answered_by", if record.answered == Answered::Server { "server" } else { "proxy" }),
    ];
    if let Some(client) = record.client {
        all.push(text("client.address", &client.ip().to_string()));
        all.push(number("client.port", u64::from(client.port())));
    }
    if let Some(rule) = record.rule {
        all.push(number("tidegate.rule", u64::from(rule)));
    }
    if record.is_replayed {
        all.push(boolean("tidegate.replayed", true));
    }
    if record.is_held {
        all.push(boolean("tidegate.held", true));
    }
    if let Some(first) = record.attempts.first() {
        // From the command's arrival: reading, routing, delays by rules.
        all.push(number("tidegate.route_us", first.began_us.saturating_sub(record.began_us)));
    }
    all.extend(failure(record).into_iter().flat_map(of_failure));
    all
}

fn of_attempt(attempt: &Attempt, which: usize) -> Vec<KeyValue> {
    let mut all = vec![number("tidegate.attempt", which as u64)];
    if let Some(server) = &attempt.server {
        all.push(text("server.address", &server.host));
        if server.port != 0 {
            all.push(number("server.port", u64::from(server.port)));
        }
        all.push(number("tidegate.hostgroup", u64::from(server.hostgroup.0)));
        all.push(number("tidegate.backend.thread_id", u64::from(attempt.thread_id)));
    }
    let held_us = attempt.held_us.unwrap_or(attempt.ended_us);
    all.push(number("tidegate.wait_us", held_us.saturating_sub(attempt.began_us)));
    if attempt.held_us.is_some() {
        let sent_us = attempt.sent_us.unwrap_or(attempt.ended_us);
        all.push(number("tidegate.sync_us", sent_us.saturating_sub(held_us)));
    }
    if let Some(sent_us) = attempt.sent_us {
        all.push(number("tidegate.run_us", attempt.ended_us.saturating_sub(sent_us)));
    }
    all.extend(attempt.failure.into_iter().flat_map(of_failure));
    all
}

/// How the statement failed; one that the client was told nothing of ended with its last attempt.
fn failure(record: &Record) -> Option<Failure> {
    let of_last = || record.attempts.last().filter(|_| record.why == Why::Failed)?.failure;
    record.error.map(Failure::Error).or_else(of_last)
}

/// A lost connection has no code: no server gave one.
fn of_failure(failure: Failure) -> Vec<KeyValue> {
    match failure {
        Failure::Error(code) => vec![text("db.response.status_code", &code.to_string()), text("error.type", &code.to_string())],
        Failure::Lost => vec![text("error.type", "connection_lost")],
        Failure::Ended => vec![text("error.type", "session_ended")],
    }
}

/// No text: a server's may quote values.
fn failed() -> Status {
    Status { code: StatusCode::Error.into(), ..Default::default() }
}

fn unix_ns(record: &Record, at_us: u64) -> u64 {
    record.ended_unix_us.saturating_sub(record.ended_us.saturating_sub(at_us)).saturating_mul(1000)
}

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    pair(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: u64) -> KeyValue {
    pair(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn boolean(key: &str, value: bool) -> KeyValue {
    pair(key, Value::BoolValue(value))
}

/// `SELECT t` of `SELECT a FROM t WHERE b = ?`: the verb, and the first table if the text shows it at once.
fn summary(query: &str) -> Cow<'_, str> {
    let mut words = query.trim_start_matches(['(', ' ']).split_ascii_whitespace();
    let Some(verb) = words.next().map(|word| word.trim_end_matches(|c: char| !c.is_ascii_alphabetic())).filter(|verb| !verb.is_empty())
    else {
        return Cow::Borrowed("statement");
    };
    let verb_shown = verb.to_ascii_uppercase();
    let mut behind = |mark: &str| words.by_ref().skip_while(|word| !word.eq_ignore_ascii_case(mark)).nth(1);
    let target = match verb_shown.as_str() {
        "SELECT" | "DELETE" => behind("FROM"),
        "INSERT" | "REPLACE" => behind("INTO"),
        "UPDATE" => words.next(),
        _ => None,
    };
    let end = |c: char| matches!(c, '(' | ')' | ',' | ';');
    match target.and_then(|target| target.split(end).next()).filter(|target| !target.is_empty()) {
        Some(target) => {
            let mut all = format!("{verb_shown} {target}");
            let limit = (0..=MAX_SUMMARY).rev().find(|at| all.is_char_boundary(*at)).unwrap_or(0);
            all.truncate(limit);
            Cow::Owned(all)
        }
        None => Cow::Owned(verb_shown),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use model::{HostgroupId, ServerKey};

    /// A statement that was lost with one server and answered by another.
    pub(crate) fn record() -> Record {
        let server = |port| ServerKey { hostgroup: HostgroupId(3), host: "db".into(), port };
        let attempt = |began_us, port, failure| Attempt {
            began_us,
            held_us: Some(began_us + 10),
            sent_us: Some(began_us + 15),
            ended_us: began_us + 100,
            server: Some(server(port)),
            thread_id: 7,
            failure,
        };
        Record {
            trace_id: [1; 16],
            parent: Some(Parent { trace_id: [1; 16], span_id: [9; 8], is_sampled: true }),
            why: Why::Retried,
            began_us: 1_000,
            ended_us: 2_000,
            ended_unix_us: 1_700_000_000_000_000,
            text: b"SELECT a FROM t WHERE b = ?"[..].into(),
            digest: "0xAB".to_owned(),
            is_execution: false,
            is_mariadb: true,
            session: 5,
            user: "anna".into(),
            schema: Some(b"shop"[..].into()),
            client: Some(([10, 0, 0, 1], 5000).into()),
            rule: Some(12),
            answered: Answered::Server,
            error: None,
            rows_sent: 1,
            rows_affected: 0,
            attempts: vec![attempt(1_100, 3306, Some(Failure::Lost)), attempt(1_500, 3307, None)],
            tried: 2,
            is_replayed: false,
            is_held: false,
        }
    }

    fn value<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
        span.attributes.iter().find(|pair| pair.key == key)?.value.as_ref()?.value.as_ref()
    }

    fn all(record: &Record) -> Vec<Span> {
        let mut last = 0_u64;
        spans(record, &mut || {
            last += 1;
            last.to_be_bytes()
        })
    }

    #[test]
    fn each_attempt_is_a_span_below_the_statements() {
        let spans = all(&record());
        let [own, first, second] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((own.kind(), first.kind(), second.kind()), (SpanKind::Server, SpanKind::Client, SpanKind::Client));
        assert_eq!((own.parent_span_id.as_slice(), own.flags), (&[9; 8][..], 0x301));
        assert!(first.parent_span_id == own.span_id && second.parent_span_id == own.span_id && first.span_id != second.span_id);
        assert_eq!((own.name.as_str(), first.name.as_str()), ("SELECT t", "SELECT t"));
        assert_eq!(own.end_time_unix_nano - own.start_time_unix_nano, 1_000_000);
        assert_eq!(
            (first.start_time_unix_nano - own.start_time_unix_nano, first.end_time_unix_nano - first.start_time_unix_nano),
            (100_000, 100_000)
        );
        assert_eq!(value(first, "error.type"), Some(&Value::StringValue("connection_lost".to_owned())));
        assert_eq!(value(first, "db.response.status_code"), None);
        assert_eq!(
            (value(second, "server.port"), value(second, "tidegate.attempt")),
            (Some(&Value::IntValue(3307)), Some(&Value::IntValue(2)))
        );
        let times = ["tidegate.wait_us", "tidegate.sync_us", "tidegate.run_us"].map(|key| value(second, key).cloned());
        assert_eq!(times, [10, 5, 85].map(|us| Some(Value::IntValue(us))));
        assert_eq!(value(own, "db.system.name"), Some(&Value::StringValue("mariadb".to_owned())));
        assert_eq!((own.status.is_none(), first.status.as_ref().unwrap().code()), (true, StatusCode::Error));
        assert_eq!(count(&record()), 3);
    }

    #[test]
    fn a_failed_root_has_code_and_no_parent() {
        let spans = all(&Record { parent: None, error: Some(1146), attempts: Vec::new(), answered: Answered::Proxy, ..record() });
        let [own] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((own.parent_span_id.len(), own.flags), (0, 0x101));
        assert_eq!(value(own, "db.response.status_code"), Some(&Value::StringValue("1146".to_owned())));
        assert_eq!(value(own, "tidegate.answered_by"), Some(&Value::StringValue("proxy".to_owned())));
        assert_eq!(own.status.as_ref().unwrap().code(), StatusCode::Error);
    }

    #[test]
    fn summaries_name_verb_and_table() {
        for (query, wanted) in [
            ("SELECT a FROM shop.t WHERE b = ?", "SELECT shop.t"),
            ("select ?", "SELECT"),
            ("SELECT x FROM (SELECT ? FROM t) AS q", "SELECT"),
            ("INSERT INTO `t`(i) VALUES (?)", "INSERT `t`"),
            ("UPDATE t SET a=?", "UPDATE t"),
            ("DELETE FROM t", "DELETE t"),
            ("COMMIT", "COMMIT"),
            ("CREATE TABLE t(i INT)", "CREATE"),
            ("(SELECT ?)", "SELECT"),
            ("", "statement"),
        ] {
            assert_eq!(summary(query), wanted, "{query}");
        }
        assert!(summary(&format!("UPDATE {}", "é".repeat(200))).len() <= MAX_SUMMARY);
    }
}
