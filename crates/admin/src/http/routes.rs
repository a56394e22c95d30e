//! `/sync/<uri>`: the scripts of the table `restapi_routes`.
//!
//! The script gets one argument, a JSON text: the body of a POST, or the query parameters of a GET as an object of
//! strings. It answers JSON on its standard output. Statuses and the shape of errors are ProxySQL's.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes};
use hyper::{Method, Request, StatusCode};
use model::Config;
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, watch};

use super::Answer;
use crate::scheduler::{Ended, Keep, Run, Script, run};

/// Most bytes of a body: it becomes one argument, and Linux takes no longer ones than 128 KiB.
pub(super) const MAX_BODY: usize = 100 << 10;
/// Most bytes of a script's output.
const MAX_OUTPUT: usize = 1 << 20;
/// Most scripts at a time.
const MAX_SCRIPTS: usize = 16;
/// How long a client may take to send the body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// One active row of `restapi_routes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// GET or POST.
    pub method: Method,
    /// The path behind `/sync/`.
    pub uri: String,
    /// The program's absolute path.
    pub script: String,
    /// How long it may run.
    pub limit: Duration,
}

impl Route {
    /// The route of a request to `/sync/<uri>`.
    pub(super) fn find<'a>(routes: &'a [Self], uri: &str, method: &Method) -> Option<&'a Self> {
        routes.iter().find(|route| route.uri == uri.trim_matches('/') && route.method == *method)
    }

    /// The active rows.
    pub fn read(config: &Config) -> Vec<Self> {
        let rows = config.rows("restapi_routes").iter().filter(|row| row.flag("active"));
        let route = |row: &model::config::Row| {
            let method = if row.text("method").is_some_and(|m| m.eq_ignore_ascii_case("POST")) { Method::POST } else { Method::GET };
            Self {
                method,
                uri: row.text("uri").unwrap_or_default().trim_matches('/').to_owned(),
                script: row.text("script").unwrap_or_default().to_owned(),
                limit: Duration::from_millis(row.integer("timeout_ms").and_then(|ms| u64::try_from(ms).ok()).unwrap_or(1_000)),
            }
        };
        rows.map(route).collect()
    }
}

/// Runs routes' scripts, not too many at a time. One a server.
#[derive(Debug)]
pub(super) struct Runner {
    permits: Semaphore,
    stop: watch::Sender<bool>,
}

impl Default for Runner {
    fn default() -> Self {
        Self { permits: Semaphore::new(MAX_SCRIPTS), stop: watch::Sender::new(false) }
    }
}

impl Runner {
    /// Ends the scripts that run.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns when no script runs.
    pub(super) async fn finished(&self) {
        let _ = self.permits.acquire_many(u32::try_from(MAX_SCRIPTS).unwrap_or(u32::MAX)).await;
    }

    /// Answers a request to `/sync/<uri>`.
    pub(super) async fn answer(&self, routes: &[Route], uri: &str, request: Request<Bytes>) -> Answer {
        let Some(route) = Route::find(routes, uri, request.method()) else {
            return refused("The requested route does not exist");
        };
        let parameters = match parameters(&request) {
            Ok(parameters) => parameters,
            Err(why) => return refused(why),
        };
        let Ok(_permit) = self.permits.try_acquire() else {
            return Answer::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "type": "in", "error": "Too many scripts are running" }));
        };
        let (program, limit) = (route.script.clone(), Some(route.limit));
        let script = Script { program, args: vec![parameters], environment: Vec::new(), limit, max_output: MAX_OUTPUT, keep: Keep::Head };
        judge(&run(&script, &mut self.stop.subscribe()).await)
    }
}

/// The whole body of a request, or why it is refused.
pub(super) async fn whole<B>(body: B, max_body: usize) -> Result<Bytes, Answer>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, max_body).collect()).await;
    let collected = collected.map_err(|_| refused("The parameters took too long"))?;
    Ok(collected.map_err(|_| refused("The parameters are too long or were cut"))?.to_bytes())
}

/// The script's argument.
fn parameters(request: &Request<Bytes>) -> Result<String, &'static str> {
    if request.method() == Method::GET {
        let pairs = query_pairs(request.uri().query().unwrap_or_default());
        return Ok(Value::Object(pairs.into_iter().map(|(name, value)| (name, Value::String(value))).collect::<Map<_, _>>()).to_string());
    }
    let text = String::from_utf8(request.body().to_vec()).map_err(|_| "The parameters are not valid JSON")?;
    match serde_json::from_str::<Value>(&text) {
        _ if text.trim().is_empty() => Err("Empty parameters"),
        // The kernel's arguments end at a NUL; JSON has none outside of escapes, so this is for whitespace alone.
        Ok(_) if !text.contains('\0') => Ok(text),
        _ => Err("The parameters are not valid JSON"),
    }
}

/// Names and values of a query string, decoded.
fn query_pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// Decodes `+` and `%xx`; invalid UTF-8 is replaced.
fn decoded(text: &str) -> String {
    let (mut out, mut left) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, rest)) = left.split_first() {
        let hex = rest.get(..2).filter(|_| first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = hex.filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit())).and_then(|h| u8::from_str_radix(h, 16).ok());
        left = if byte.is_some() { rest.get(2..).unwrap_or_default() } else { rest };
        out.push(byte.unwrap_or(if first == b'+' { b' ' } else { first }));
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The answer that a run earns: its output when it succeeded and printed JSON.
fn judge(run: &Run) -> Answer {
    let output = run.stdout.text();
    let why = match &run.ended {
        Ended::Exited(0) if run.stdout.is_cut() => "The script's output is too long",
        Ended::Exited(0) if output.trim().is_empty() => "The script's output is empty",
        Ended::Exited(0) if serde_json::from_str::<Value>(&output).is_err() => "The script's output is not valid JSON",
        Ended::Exited(0) => return Answer { status: StatusCode::OK, content_type: Answer::JSON, body: output },
        Ended::Exited(_) => "The script failed",
        Ended::TimedOut => "The script took too long",
        Ended::Stopped => "The script was ended by the shutdown",
        Ended::NotStarted { why, .. } => why,
    };
    Answer::json(
        StatusCode::FAILED_DEPENDENCY,
        &json!({
            "type": "out",
            "error": why,
            "error_code": error_code(&run.ended).to_string(),
            "script_stdout": output,
            "script_stderr": run.stderr.text(),
        }),
    )
}

/// ProxySQL's code: the system's error if there is one, else the script's exit code.
fn error_code(ended: &Ended) -> i32 {
    match ended {
        Ended::TimedOut => Errno::TIME.raw_os_error(),
        Ended::NotStarted { errno: Some(errno), .. } => *errno,
        Ended::Exited(_) | Ended::Stopped | Ended::NotStarted { errno: None, .. } => ended.code(),
    }
}

fn refused(why: &str) -> Answer {
    Answer::json(StatusCode::BAD_REQUEST, &json!({ "type": "in", "error": why }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn query_strings() {
        let pairs = query_pairs("a=1&b=x+y%26%c3%a4&c&=d&&e=%zz%2");
        let expected = [("a", "1"), ("b", "x y&ä"), ("c", ""), ("", "d"), ("e", "%zz%2")];
        assert_eq!(pairs, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn rows_of_the_table() {
        let text = r#"restapi = ( { id=1, timeout_ms=500, method="post", uri="/x/", script="/a" }, { id=2, active=0, timeout_ms=100, method="GET", uri="y", script="/b" } )"#;
        let (config, _) = model::parse(text, "test.cnf").unwrap();
        let expected = Route { method: Method::POST, uri: "x".into(), script: "/a".into(), limit: Duration::from_millis(500) };
        assert_eq!(Route::read(&config), [expected]);
    }

    #[test]
    fn codes_of_scripts_are_those_that_proxysql_answers() {
        let missing = Ended::NotStarted { why: "gone".into(), errno: Some(2) };
        let relative = Ended::NotStarted { why: "give an absolute path".into(), errno: None };
        let ended = [Ended::Exited(3), Ended::TimedOut, Ended::Stopped, missing, relative];
        assert_eq!(ended.map(|ended| error_code(&ended)), [3, 62, 143, 2, 127]);
    }

    proptest! {
        #[test]
        fn decoding_never_panics(text: String) {
            query_pairs(&text);
        }
    }
}
