//! A client of etcd's JSON gateway (etcd 3.4 and newer, paths below `/v3/`): ranges, transactions, leases, watches, logins.
//!
//! Members are asked in turn. If one does not answer in time, or has no leader, the next one is asked. An expired token is replaced, and
//! the request repeated. Every request may therefore be executed twice: a write is conditional, or sets a key to a value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use http_client::Line;
use hyper::StatusCode;
use hyper::body::{Body, Bytes, Incoming};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use std::sync::Arc;
use std::time::Duration;

use crate::settings::Settings;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// No member has answered. The request may have been executed or not.
    #[error("etcd does not answer: {0}")]
    Away(String),
    /// The member's error, with its text.
    #[error("etcd refuses: {0}")]
    Refused(String),
    /// More bytes than a limit allows.
    #[error("{0}")]
    TooLarge(String),
}

impl EtcdError {
    /// More than [`Settings::max_bytes`].
    pub(crate) fn too_large(what: &str, limit: u64) -> Self {
        Self::TooLarge(format!("{what} has more than {limit} bytes (admin-shared_config_max_bytes)"))
    }
}

/// A key with its value and revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The whole key, with the prefix.
    pub key: String,
    /// Decoded from base64.
    pub value: Vec<u8>,
    /// The revision of etcd that wrote it last.
    pub mod_revision: i64,
    /// The revision of etcd that made it.
    pub create_revision: i64,
}

impl Entry {
    /// Bytes of key and value, for the limit of kept keys.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.key.len() + self.value.len()).unwrap_or(u64::MAX)
    }
}

/// The answer to a range.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// The keys, in order.
    pub entries: Vec<Entry>,
    /// etcd's revision, as of which this holds.
    pub revision: i64,
}

/// Which member is spoken to, and how.
#[derive(Debug, Default)]
struct State {
    line: Option<Line>,
    /// Index of the endpoint that is asked next.
    next: usize,
    token: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Etcd {
    settings: Arc<Settings>,
    state: Mutex<State>,
}

/// The meaning of an answer other than 200.
enum Meaning {
    /// The token is none, or none any more.
    LogIn,
    /// This member cannot; another may.
    TryAnother(String),
    /// No member will.
    Refused(String),
}

impl Etcd {
    /// A client; it connects when it is asked for something.
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, state: Mutex::default() }
    }

    /// The client is replaced if these change.
    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Asks the members in turn until one answers. Each is asked once, and one of them twice: a connection that was open may have been
    /// closed.
    async fn call(&self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let body = Bytes::from(body.to_string());
        let mut state = self.state.lock().await;
        let (mut last, mut has_logged_in) = (String::new(), false);
        let mut tries = self.settings.endpoints.len() + 1;
        while tries > 0 {
            tries -= 1;
            match self.ask(&mut state, path, &body).await {
                Ok((StatusCode::OK, answer)) => {
                    return serde_json::from_slice(&answer).map_err(|e| EtcdError::Refused(format!("the reply is not JSON: {e}")));
                }
                Ok((status, answer)) => match meaning(status, &answer) {
                    Meaning::LogIn if !has_logged_in && !self.settings.username.is_empty() => {
                        has_logged_in = true;
                        tries += 1;
                        state.token = None;
                    }
                    Meaning::LogIn => return Err(EtcdError::Refused(said(&answer))),
                    Meaning::Refused(why) => return Err(EtcdError::Refused(why)),
                    Meaning::TryAnother(why) => {
                        last = why;
                        self.leave(&mut state);
                    }
                },
                Err(EtcdError::Away(why)) => {
                    last = why;
                    self.leave(&mut state);
                }
                Err(refused) => return Err(refused),
            }
        }
        Err(EtcdError::Away(last))
    }

    /// The next member is asked from now on.
    fn leave(&self, state: &mut State) {
        state.line = None;
        state.next = (state.next + 1) % self.settings.endpoints.len();
    }

    async fn ask(&self, state: &mut State, path: &str, body: &Bytes) -> Result<(StatusCode, Bytes), EtcdError> {
        let limit = self.settings.timeout;
        if state.line.as_ref().is_none_or(|line| !line.is_open()) {
            let endpoint = &self.settings.endpoints[state.next];
            state.line = Some(Line::open(endpoint, &self.settings.tls, self.settings.timeout).await.map_err(EtcdError::Away)?);
        }
        let Some(line) = state.line.as_mut() else {
            return Err(EtcdError::Away(String::new()));
        };
        if state.token.is_none() && !self.settings.username.is_empty() {
            state.token = Some(log_in(line, &self.settings).await?);
        }
        let endpoint = &self.settings.endpoints[state.next];
        let away = |why: String| EtcdError::Away(format!("{endpoint}: {why}"));
        ask(line, path, body.clone(), state.token.as_deref(), limit).await.map_err(away)
    }

    /// The keys of a range; an `end` of None is one key.
    pub(crate) async fn range(&self, key: &str, end: Option<&str>, keys_only: bool) -> Result<Found, EtcdError> {
        let mut body = json!({ "key": encode(key), "keys_only": keys_only });
        if let Some(end) = end {
            body["range_end"] = encode(end).into();
        }
        found(&self.call("/v3/kv/range", &body).await?)
    }

    /// A transaction: `compare` decides whether `success` or `failure` is executed. Returns whether it held, and the result of the first
    /// range in the executed branch.
    pub(crate) async fn transact(&self, compare: Vec<Value>, success: Vec<Value>, failure: Vec<Value>) -> Result<(bool, Found), EtcdError> {
        let answer = self.call("/v3/kv/txn", &json!({ "compare": compare, "success": success, "failure": failure })).await?;
        // A value that is false is left out.
        let held = answer["succeeded"].as_bool().unwrap_or(false);
        let first = answer["responses"].as_array().into_iter().flatten().find_map(|one| one.get("response_range"));
        let mut found = first.map(found).transpose()?.unwrap_or_default();
        found.revision = number(&answer["header"]["revision"]);
        Ok((held, found))
    }

    /// Sets a key; with a lease it goes when that ends.
    pub(crate) async fn put(&self, key: &str, value: &[u8], lease: Option<i64>) -> Result<(), EtcdError> {
        let mut body = json!({ "key": encode(key), "value": STANDARD.encode(value) });
        if let Some(lease) = lease {
            body["lease"] = lease.to_string().into();
        }
        self.call("/v3/kv/put", &body).await.map(drop)
    }

    /// Deletes a key; whether it was there.
    pub(crate) async fn delete(&self, key: &str) -> Result<bool, EtcdError> {
        let answer = self.call("/v3/kv/deleterange", &json!({ "key": encode(key) })).await?;
        Ok(number(&answer["deleted"]) > 0)
    }

    /// A lease of so many seconds.
    pub(crate) async fn grant(&self, seconds: u64) -> Result<i64, EtcdError> {
        let answer = self.call("/v3/lease/grant", &json!({ "TTL": seconds.to_string() })).await?;
        match number(&answer["ID"]) {
            0 => Err(EtcdError::Refused(format!("etcd grants no lease: {}", answer["error"]))),
            id => Ok(id),
        }
    }

    /// Keeps a lease for another while; false when it has ended.
    pub(crate) async fn keep(&self, lease: i64) -> Result<bool, EtcdError> {
        let answer = self.call("/v3/lease/keepalive", &json!({ "ID": lease.to_string() })).await?;
        // A dead lease is answered without a TTL, and without an error.
        Ok(number(&answer["result"]["TTL"]) > 0)
    }

    /// Follows what changes below `key` from `revision` on, on a connection of its own to the member that is asked now.
    pub(crate) async fn watch(&self, key: &str, end: &str, revision: i64) -> Result<Watch, EtcdError> {
        let (next, token) = {
            let state = self.state.lock().await;
            (state.next, state.token.clone())
        };
        let endpoint = &self.settings.endpoints[next];
        let mut line = Line::open(endpoint, &self.settings.tls, self.settings.timeout).await.map_err(EtcdError::Away)?;
        let start_revision = revision.to_string();
        let create = json!({ "create_request": { "key": encode(key), "range_end": encode(end), "start_revision": start_revision } });
        let away = |why: String| EtcdError::Away(format!("{endpoint}: {why}"));
        let response =
            line.send("/v3/watch", &headers(token.as_deref()), create.to_string().into(), self.settings.timeout).await.map_err(away)?;
        if response.status() != StatusCode::OK {
            return Err(EtcdError::Away(format!("{endpoint}: a watch was answered with {}", response.status())));
        }
        Ok(Watch { body: response.into_body(), rest: Vec::new(), _line: line })
    }
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The key has this value now.
    Put(Entry),
    /// The key is gone, as of this revision.
    Gone(String, i64),
}

#[derive(Debug)]
pub(crate) struct Watch {
    body: Incoming,
    rest: Vec<u8>,
    _line: Line,
}

/// Longest line of a watch, bytes.
const LONGEST: usize = 16 << 20;

impl Watch {
    /// The next changes, in order; empty for a sign of life.
    ///
    /// # Errors
    /// The watch has ended: its keys must be listed again.
    pub(crate) async fn next(&mut self) -> Result<Vec<Change>, String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return changes(&line);
            }
            if self.rest.len() > LONGEST || self.body.is_end_stream() {
                return Err("the watch has ended".to_owned());
            }
            let frame = self.body.frame().await.ok_or("the watch has ended")?.map_err(|e| e.to_string())?;
            self.rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    }
}

fn changes(line: &[u8]) -> Result<Vec<Change>, String> {
    let line: Value = serde_json::from_slice(line).map_err(|e| format!("the watch did not send JSON: {e}"))?;
    if line.get("error").is_some() || line["result"]["canceled"].as_bool() == Some(true) {
        return Err(format!("the watch was canceled: {}", line["error"]["message"].as_str().unwrap_or("its beginning is compacted")));
    }
    let events = line["result"]["events"].as_array().into_iter().flatten();
    events
        .map(|event| {
            let entry = entry(&event["kv"]).ok_or("the watch named no key")?;
            Ok(match event["type"].as_str() {
                Some("DELETE") => Change::Gone(entry.key, entry.mod_revision),
                _ => Change::Put(entry),
            })
        })
        .collect()
}

/// One token, with a connection that has none yet.
async fn log_in(line: &mut Line, settings: &Arc<Settings>) -> Result<String, EtcdError> {
    let body = json!({ "name": settings.username, "password": settings.password.expose_text() });
    let (status, answer) =
        ask(line, "/v3/auth/authenticate", body.to_string().into(), None, settings.timeout).await.map_err(EtcdError::Away)?;
    let parsed: Value = serde_json::from_slice(&answer).unwrap_or_default();
    match parsed["token"].as_str() {
        Some(token) if status == StatusCode::OK => Ok(token.to_owned()),
        _ => match meaning(status, &answer) {
            Meaning::TryAnother(why) => Err(EtcdError::Away(why)),
            _ => Err(EtcdError::Refused(format!("user {}: {}", settings.username, said(&answer)))),
        },
    }
}

fn headers(token: Option<&str>) -> Vec<(&str, &str)> {
    std::iter::once(("Content-Type", "application/json")).chain(token.map(|token| ("Authorization", token))).collect()
}

async fn ask(line: &mut Line, path: &str, body: Bytes, token: Option<&str>, limit: Duration) -> Result<(StatusCode, Bytes), String> {
    let answer = line.ask(path, &headers(token), body, limit).await?;
    Ok((answer.status(), answer.into_body()))
}

/// The message of an error.
fn said(answer: &[u8]) -> String {
    let parsed: Value = serde_json::from_slice(answer).unwrap_or_default();
    let text = parsed["message"].as_str().or_else(|| parsed["error"].as_str());
    text.map_or_else(|| String::from_utf8_lossy(&answer[..answer.len().min(200)]).into_owned(), str::to_owned)
}

/// By gRPC's codes: 4 deadline exceeded, 14 unavailable, 16 unauthenticated. etcd says of a missing token 3, invalid argument.
fn meaning(status: StatusCode, answer: &[u8]) -> Meaning {
    let parsed: Value = serde_json::from_slice(answer).unwrap_or_default();
    let text = said(answer);
    match parsed["code"].as_i64() {
        Some(16) => Meaning::LogIn,
        _ if text.contains("user name is empty") || text.contains("invalid auth token") || text.contains("revision of auth store") => {
            Meaning::LogIn
        }
        Some(4 | 14) => Meaning::TryAnother(text),
        None if status.is_server_error() => Meaning::TryAnother(text),
        _ => Meaning::Refused(text),
    }
}

/// A key as the gateway wants it.
pub(crate) fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

pub(crate) fn encode_bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// 64-bit numbers come as text; one that is 0 is left out.
fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn entry(kv: &Value) -> Option<Entry> {
    let bytes = |value: &Value| STANDARD.decode(value.as_str().unwrap_or_default()).ok();
    let key = String::from_utf8(bytes(kv.get("key")?)?).ok()?;
    let (mod_revision, create_revision) = (number(&kv["mod_revision"]), number(&kv["create_revision"]));
    Some(Entry { key, value: bytes(&kv["value"])?, mod_revision, create_revision })
}

fn found(answer: &Value) -> Result<Found, EtcdError> {
    let entries = answer["kvs"].as_array().into_iter().flatten().map(entry).collect::<Option<Vec<_>>>();
    let entries = entries.ok_or_else(|| EtcdError::Refused("the reply names no keys".to_owned()))?;
    Ok(Found { entries, revision: number(&answer["header"]["revision"]) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_watch_tells_puts_and_deletes_in_order() {
        let line = br#"{"result":{"header":{"revision":"7"},"events":[
            {"kv":{"key":"L2E=","mod_revision":"6","value":"MQ=="}},{"type":"DELETE","kv":{"key":"L2E=","mod_revision":"7"}}]}}"#;
        let put = Change::Put(Entry { key: "/a".into(), value: b"1".to_vec(), mod_revision: 6, create_revision: 0 });
        assert_eq!(changes(line).unwrap(), [put, Change::Gone("/a".into(), 7)]);
        assert!(changes(br#"{"result":{"created":true}}"#).unwrap().is_empty());
    }

    #[test]
    fn a_watch_that_is_canceled_is_over() {
        let compacted = br#"{"result":{"canceled":true,"compact_revision":"4"}}"#;
        assert!(changes(compacted).unwrap_err().contains("compacted"));
        assert!(changes(br#"{"error":{"grpc_code":16,"message":"invalid auth token"}}"#).unwrap_err().contains("invalid auth token"));
    }

    #[test]
    fn an_error_is_understood_by_its_code() {
        let is = |status, text: &str| match meaning(status, text.as_bytes()) {
            Meaning::LogIn => "log in",
            Meaning::TryAnother(_) => "another",
            Meaning::Refused(_) => "refused",
        };
        assert_eq!(is(StatusCode::UNAUTHORIZED, r#"{"message":"etcdserver: invalid auth token","code":16}"#), "log in");
        assert_eq!(is(StatusCode::BAD_REQUEST, r#"{"message":"etcdserver: user name is empty","code":3}"#), "log in");
        assert_eq!(is(StatusCode::SERVICE_UNAVAILABLE, r#"{"message":"etcdserver: no leader","code":14}"#), "another");
        assert_eq!(is(StatusCode::FORBIDDEN, r#"{"message":"etcdserver: permission denied","code":7}"#), "refused");
        assert_eq!(is(StatusCode::BAD_GATEWAY, "<html>"), "another");
    }

    proptest! {
        #[test]
        fn nothing_that_a_peer_says_is_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), status in 200u16..600) {
            let _ = changes(&bytes);
            let _ = meaning(StatusCode::from_u16(status).unwrap(), &bytes);
            let parsed: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let _ = found(&parsed);
        }
    }
}
