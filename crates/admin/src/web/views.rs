//! The views: which tables each shows, as SQL of the admin port. All viewers of a view are given the same copy, so many cost as one does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::clock::now_ms;
use crate::handle::EngineHandle;
use crate::reply::{Reply, Role, SessionInfo};

/// The views' SQL, which the page's source keeps.
const VIEWS: &str = include_str!("../../../../web/views.json");
/// Most rows of a table in a view.
const MAX_ROWS: usize = 2_000;

#[derive(Debug, Deserialize)]
struct View {
    /// For how long a copy is given to viewers, ms.
    every_ms: u64,
    /// Whether a login for statistics may see all of it: it holds no secret.
    #[serde(default)]
    is_for_all: bool,
    /// Statements by the page's name for them.
    queries: BTreeMap<String, String>,
    #[serde(skip)]
    of_admin: Copy,
    #[serde(skip)]
    of_stats: Copy,
}

/// A copy of a view, and when it was made.
type Copy = Mutex<Option<(Instant, Bytes)>>;

/// The views of the file, by name.
pub(super) struct Views(BTreeMap<String, View>);

/// The views as they were written.
///
/// # Errors
/// The text is no list of views.
fn parsed() -> Result<BTreeMap<String, View>, serde_json::Error> {
    serde_json::from_str(VIEWS)
}

impl Views {
    /// All of them, none of which was looked at yet.
    pub(super) fn new() -> Self {
        // A test reads them all.
        Self(parsed().unwrap_or_default())
    }

    /// The view of that name for this role, as JSON; None if there is no such view.
    pub(super) async fn show(&self, name: &str, role: Role, engine: &EngineHandle) -> Option<Bytes> {
        let view = self.0.get(name)?;
        let role = if view.is_for_all { Role::Admin } else { role };
        let copy = match role {
            Role::Admin => &view.of_admin,
            Role::Stats => &view.of_stats,
        };
        // One request makes it, and other requests wait for that.
        let mut copy = copy.lock().await;
        let fresh = Duration::from_millis(view.every_ms);
        if let Some((_, body)) = copy.as_ref().filter(|(made, _)| made.elapsed() < fresh) {
            return Some(body.clone());
        }
        let info = SessionInfo { user: "web page".to_owned(), peer: "localhost".to_owned(), ..SessionInfo::default() };
        let mut results = Map::new();
        for (key, sql) in &view.queries {
            let reply = engine.execute(role, &info, sql.as_bytes().to_vec()).await;
            results.insert(key.clone(), shown(sql, reply));
        }
        let body = Bytes::from(json!({ "at": now_ms(), "results": results }).to_string());
        *copy = Some((Instant::now(), body.clone()));
        Some(body)
    }
}

fn shown(sql: &str, reply: Reply) -> Value {
    match reply {
        Reply::Rows { columns, mut rows } => {
            rows.truncate(MAX_ROWS);
            json!({ "sql": sql, "columns": columns, "rows": rows_of(&rows) })
        }
        Reply::Ok { .. } => json!({ "sql": sql, "columns": [], "rows": [] }),
        Reply::Err { text, .. } => json!({ "sql": sql, "error": text }),
    }
}

/// Rows as JSON; invalid UTF-8 is replaced.
pub(super) fn rows_of(rows: &[Vec<Option<Vec<u8>>>]) -> Value {
    let value = |value: &Option<Vec<u8>>| value.as_ref().map_or(Value::Null, |text| String::from_utf8_lossy(text).into());
    rows.iter().map(|row| Value::Array(row.iter().map(value).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_reads_only() {
        let views = parsed().unwrap();
        assert!(views.len() > 5, "{views:?}");
        for (name, view) in views {
            assert!((200..=60_000).contains(&view.every_ms), "{name}: {}", view.every_ms);
            assert!(view.queries.values().all(|sql| ["SELECT ", "SHOW ", "CONFIG "].iter().any(|verb| sql.starts_with(verb))), "{name}");
            let has_secrets =
                |sql: &String| ["users", "CONFIG", "SELECT * FROM runtime_global_variables"].iter().any(|word| sql.contains(word));
            assert!(!view.is_for_all || !view.queries.values().any(has_secrets), "{name}");
        }
    }
}
