//! One statement in the query log, as a JSON object or in the binary form that `docs/reference/query-log.md` describes.

use super::file::LogFormat;
use super::local_time;
use super::log::Record;
use meter::digest::shown;
use model::{HostgroupId, ServerKey, stats};
use serde_json::{Map, Value};
use session_state::state::Text;
use sql::LexMode;
use std::borrow::Cow;
use std::net::SocketAddr;
use wire::codec::{put_lenenc, put_lenenc_bytes};

/// How a statement came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoggedCommand {
    /// COM_QUERY.
    Query,
    /// COM_STMT_EXECUTE of the client's statement with this id.
    Execute(u32),
    /// COM_STMT_PREPARE, answered with this id.
    Prepare(u32),
}

impl LoggedCommand {
    /// Name in JSON, number in the binary form (1 to 15 are events of ProxySQL's audit log and of its own), the client's statement id.
    fn parts(self) -> (&'static str, u8, Option<u32>) {
        match self {
            Self::Query => ("COM_QUERY", 0, None),
            Self::Execute(id) => ("COM_STMT_EXECUTE", 16, Some(id)),
            Self::Prepare(id) => ("COM_STMT_PREPARE", 17, Some(id)),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct QueryEvent {
    /// The session.
    pub thread_id: u64,
    /// How it came.
    pub command: LoggedCommand,
    /// The user.
    pub user: Box<str>,
    /// The session's schema.
    pub schema: Option<Text>,
    /// The client; None on Unix sockets.
    pub client: Option<SocketAddr>,
    /// Where it was routed; None when the proxy answered itself.
    pub hostgroup: Option<HostgroupId>,
    /// Who answered it.
    pub server: Option<ServerKey>,
    /// When it ended, us since 1970.
    pub ended_us: u64,
    /// How long it took, us.
    pub duration_us: u64,
    /// Rows changed, when it answered so.
    pub rows_affected: Option<u64>,
    /// The insert id it answered; 0 for none.
    pub last_insert_id: u64,
    /// Rows sent.
    pub rows_sent: u64,
    /// Hash of its digest.
    pub digest: u64,
    /// Its text.
    pub query: Box<[u8]>,
    /// How that is read.
    pub lex: LexMode,
    /// It is written without its literals.
    pub hides_literals: bool,
    /// Number and text of the error that it was answered with.
    pub error: Option<(u16, Box<[u8]>)>,
    /// The trace that it is in.
    pub trace_id: Option<traces::TraceId>,
}

/// A client as logs write it.
pub(crate) fn client_name(client: Option<SocketAddr>) -> String {
    client.map_or_else(|| "localhost".to_owned(), |c| c.to_string())
}

fn server_name(server: &ServerKey) -> String {
    match server.port {
        0 => server.host.to_string(),
        port => format!("{}:{port}", server.host),
    }
}

const TIME: &str = "%Y-%m-%d %H:%M:%S.%6f";
/// Stands for "no hostgroup" in the binary form.
const NO_HOSTGROUP: u64 = u64::MAX;

impl QueryEvent {
    fn started_us(&self) -> u64 {
        self.ended_us.saturating_sub(self.duration_us)
    }

    /// The statement as it may be written down.
    fn text(&self) -> Cow<'_, [u8]> {
        if self.hides_literals { Cow::Owned(sql::without_literals(&self.query, self.lex)) } else { sql::shown(&self.query, self.lex) }
    }

    /// The error's text as it may be written down.
    fn error_text<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        if self.hides_literals || sql::error_may_carry_password(&self.query, self.lex) {
            Cow::Owned(sql::without_quoted(text))
        } else {
            Cow::Borrowed(text)
        }
    }

    /// As it is kept in memory: what must not be written down is out of it already, and its text is cut.
    pub(super) fn into_kept(self, max_text: usize) -> Self {
        let error = self.error.as_ref().map(|(code, text)| (*code, self.error_text(text).into()));
        let text = self.text();
        let query = text.get(..max_text).unwrap_or(&text).into();
        Self { query, error, ..self }
    }

    /// A row of `stats_mysql_query_events`, of an event that was made for it ([`QueryEvent::into_kept`]).
    pub(super) fn row(&self, number: u64) -> Vec<stats::Value> {
        let (_, event, stmt_id) = self.command.parts();
        let shown_text = |text: &[u8]| stats::Value::Text(String::from_utf8_lossy(text).into_owned());
        vec![
            number.into(),
            self.thread_id.into(),
            (*self.user).into(),
            shown_text(self.schema.as_deref().unwrap_or_default()),
            self.started_us().into(),
            self.ended_us.into(),
            shown(self.digest).into(),
            shown_text(&self.query),
            self.server.as_ref().map(server_name).into(),
            client_name(self.client).into(),
            i64::from(event).into(),
            self.hostgroup.map_or(-1, |h| i64::from(h.0)).into(),
            stats::Value::Null,
            self.rows_affected.unwrap_or(0).into(),
            self.last_insert_id.into(),
            self.rows_sent.into(),
            stmt_id.into(),
            stats::Value::Null,
            self.error.as_ref().map_or(0, |(code, _)| i64::from(*code)).into(),
            self.error.as_ref().map(|(_, text)| String::from_utf8_lossy(text).into_owned()).into(),
        ]
    }

    fn json(&self) -> Value {
        let (name, _, stmt_id) = self.command.parts();
        let mut map = Map::new();
        let mut put = |name: &str, value: Value| drop(map.insert(name.to_owned(), value));
        put("hostgroup_id", self.hostgroup.map_or(Value::from(-1), |h| h.0.into()));
        put("thread_id", self.thread_id.into());
        put("event", name.into());
        put("username", (*self.user).into());
        put("schemaname", String::from_utf8_lossy(self.schema.as_deref().unwrap_or_default()).into());
        put("client", client_name(self.client).into());
        if let Some(server) = &self.server {
            put("server", server_name(server).into());
        }
        if let Some(rows) = self.rows_affected {
            put("rows_affected", rows.into());
        }
        if self.last_insert_id != 0 {
            put("last_insert_id", self.last_insert_id.into());
        }
        put("rows_sent", self.rows_sent.into());
        put("query", String::from_utf8_lossy(&self.text()).into());
        put("starttime_timestamp_us", self.started_us().into());
        put("starttime", local_time(self.started_us(), TIME).into());
        put("endtime_timestamp_us", self.ended_us.into());
        put("endtime", local_time(self.ended_us, TIME).into());
        put("duration_us", self.duration_us.into());
        put("digest", shown(self.digest).into());
        if let Some(id) = &self.trace_id {
            put("trace_id", traces::shown(id).into());
        }
        if let Some(id) = stmt_id {
            put("client_stmt_id", id.into());
        }
        if let Some((code, text)) = &self.error {
            put("errno", (*code).into());
            put("error", String::from_utf8_lossy(&self.error_text(text)).into());
        }
        Value::Object(map)
    }

    /// As in MySQL's slow query log. What the proxy cannot know (locks, rows examined) is 0; attributes of its own stand in a line that
    /// pt-query-digest takes for more of the same.
    fn slow(&self, out: &mut Vec<u8>) {
        let at = i64::try_from(self.ended_us).ok().and_then(|us| jiff::Timestamp::from_microsecond(us).ok()).unwrap_or_default();
        // A name is no place for lines of somebody's own making.
        let plain = |name: &str| name.replace(char::is_control, "?");
        let (user, client) = (plain(&self.user), self.client.map_or_else(|| "localhost".to_owned(), |client| client.ip().to_string()));
        let schema = plain(&String::from_utf8_lossy(self.schema.as_deref().unwrap_or_default()));
        let errno = self.error.as_ref().map_or(0, |(code, _)| *code);
        let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
        let (hostgroup, server) =
            (self.hostgroup.map_or(-1, |h| i64::from(h.0)), self.server.as_ref().map_or_else(String::new, server_name));
        let head = format!(
            "# Time: {}\n# User@Host: {user}[{user}] @  [{client}]  Id: {}\n# Schema: {schema}  Last_errno: {errno}\n# Query_time: {}  \
             Lock_time: 0.000000  Rows_sent: {}  Rows_examined: 0  Rows_affected: {}\n# Hostgroup: {hostgroup}  Server: {server}\n",
            at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ"),
            self.thread_id,
            seconds(self.duration_us),
            self.rows_sent,
            self.rows_affected.unwrap_or(0),
        );
        out.extend_from_slice(head.as_bytes());
        if !schema.is_empty() {
            out.extend_from_slice(format!("use {schema};\n").as_bytes());
        }
        out.extend_from_slice(format!("SET timestamp={};\n", self.started_us() / 1_000_000).as_bytes());
        let text = self.text();
        out.extend_from_slice(text.trim_ascii_end());
        out.extend_from_slice(if text.trim_ascii_end().ends_with(b";") { b"\n" } else { b";\n" });
    }

    fn binary(&self, out: &mut Vec<u8>) {
        let (_, number, stmt_id) = self.command.parts();
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        out.push(number);
        put_lenenc(out, self.thread_id);
        put_lenenc_bytes(out, self.user.as_bytes());
        put_lenenc_bytes(out, self.schema.as_deref().unwrap_or_default());
        put_lenenc_bytes(out, client_name(self.client).as_bytes());
        match (self.hostgroup, &self.server) {
            (Some(hostgroup), Some(server)) => {
                put_lenenc(out, u64::from(hostgroup.0));
                put_lenenc_bytes(out, server_name(server).as_bytes());
            }
            _ => put_lenenc(out, NO_HOSTGROUP),
        }
        put_lenenc(out, self.started_us());
        put_lenenc(out, self.ended_us);
        if let Some(id) = stmt_id {
            put_lenenc(out, u64::from(id));
        }
        put_lenenc(out, self.rows_affected.unwrap_or(0));
        put_lenenc(out, self.last_insert_id);
        put_lenenc(out, self.rows_sent);
        put_lenenc(out, self.digest);
        put_lenenc_bytes(out, &self.text());
        let length = (out.len() - start - 8) as u64;
        if let Some(place) = out.get_mut(start..start + 8) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }
}

impl Record for QueryEvent {
    fn size(&self) -> usize {
        size_of::<Self>() + self.query.len() + self.user.len() + self.error.as_ref().map_or(0, |(_, text)| text.len())
    }

    fn encode(&self, form: LogFormat, out: &mut Vec<u8>) {
        match form {
            LogFormat::Json => out.extend_from_slice(self.json().to_string().as_bytes()),
            LogFormat::Binary => self.binary(out),
            LogFormat::Slow => self.slow(out),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use wire::codec::Reader;

    /// A statement that failed.
    pub(crate) fn event() -> QueryEvent {
        QueryEvent {
            thread_id: 1_073_741_824,
            command: LoggedCommand::Query,
            user: "anna".into(),
            schema: Some(b"shop"[..].into()),
            client: Some(([10, 0, 0, 1], 5000).into()),
            hostgroup: Some(HostgroupId(3)),
            server: Some(ServerKey { hostgroup: HostgroupId(3), host: "db1".into(), port: 3306 }),
            ended_us: 1_000_250,
            duration_us: 250,
            rows_affected: None,
            last_insert_id: 0,
            rows_sent: 1,
            digest: 0xab,
            query: b"SELECT '\xff\n'"[..].into(),
            lex: LexMode::default(),
            hides_literals: false,
            error: Some((1146, b"no such table"[..].into())),
            trace_id: None,
        }
    }

    #[test]
    fn literals_are_hidden_where_the_setting_says_so() {
        let query = b"SELECT * FROM cards WHERE holder = 'Anna'"[..].into();
        let error = Some((1366, b"Incorrect value: 'Anna' for column"[..].into()));
        for form in [LogFormat::Binary, LogFormat::Json, LogFormat::Slow] {
            let written = |hides_literals| {
                let mut out = Vec::new();
                QueryEvent { query: Clone::clone(&query), error: error.clone(), hides_literals, ..event() }.encode(form, &mut out);
                String::from_utf8_lossy(&out).into_owned()
            };
            assert!(written(false).contains("'Anna'"));
            assert!(!written(true).contains("Anna") && written(true).contains("holder = ?"), "{}", written(true));
        }
    }

    #[test]
    fn json_has_sorted_keys_and_valid_text() {
        let mut out = Vec::new();
        event().encode(LogFormat::Json, &mut out);
        let text = String::from_utf8(out).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["digest"], "0x00000000000000AB");
        assert_eq!((value["errno"].as_u64(), &value["error"]), (Some(1146), &Value::from("no such table")));
        assert_eq!(value["query"], "SELECT '\u{fffd}\n'");
        assert_eq!((&value["client"], &value["server"]), (&Value::from("10.0.0.1:5000"), &Value::from("db1:3306")));
        assert_eq!((value["starttime_timestamp_us"].as_u64(), value["endtime_timestamp_us"].as_u64()), (Some(1_000_000), Some(1_000_250)));
        assert!(value["starttime"].as_str().unwrap().ends_with(".000000"));
        assert!(value.get("rows_affected").is_none() && value.get("client_stmt_id").is_none());
        let places: Vec<_> = value.as_object().unwrap().keys().map(|k| text.find(&format!("\"{k}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{text}");
        assert!(!text.contains('\n'), "one line");
    }

    #[test]
    fn a_slow_query_is_written_as_mysql_does() {
        let mut out = Vec::new();
        let query = b"SELECT SLEEP(1);"[..].into();
        let event = QueryEvent { query, ended_us: 1_700_000_001_500_000, duration_us: 1_250_000, ..event() };
        event.encode(LogFormat::Slow, &mut out);
        let wanted = "# Time: 2023-11-14T22:13:21.500000Z\n# User@Host: anna[anna] @  [10.0.0.1]  Id: 1073741824\n\
            # Schema: shop  Last_errno: 1146\n\
            # Query_time: 1.250000  Lock_time: 0.000000  Rows_sent: 1  Rows_examined: 0  Rows_affected: 0\n\
            # Hostgroup: 3  Server: db1:3306\nuse shop;\nSET timestamp=1700000000;\nSELECT SLEEP(1);\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
        let (mut out, schema) = (Vec::new(), Some(b"a\n# Time: forged"[..].into()));
        QueryEvent { schema, ..event }.encode(LogFormat::Slow, &mut out);
        assert!(String::from_utf8(out).unwrap().contains("# Schema: a?# Time: forged  Last_errno"));
    }

    #[test]
    fn passwords_are_left_out() {
        let query = b"SET PASSWORD FOR u = 'S3cret' x"[..].into();
        let error = Some((1064, b"near 'S3cret' x' at line 1"[..].into()));
        let event = QueryEvent { query, error, ..event() };
        let value = event.json();
        assert_eq!(value["query"], "SET PASSWORD FOR u = ? x");
        assert_eq!(value["error"], "near '...' at line 1");
        let mut out = Vec::new();
        event.binary(&mut out);
        assert_eq!(read(&out).3.last().unwrap(), b"SET PASSWORD FOR u = ? x");
    }

    /// Reads a record as docs/reference/query-log.md says.
    fn read(bytes: &[u8]) -> (u64, u8, Vec<u64>, Vec<Vec<u8>>) {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let mut r = Reader::new(&bytes[9..]);
        let (mut numbers, mut texts) = (vec![r.lenenc().unwrap()], Vec::new());
        for _ in 0..3 {
            texts.push(r.lenenc_bytes().unwrap().to_vec());
        }
        numbers.push(r.lenenc().unwrap());
        if numbers[1] != u64::MAX {
            texts.push(r.lenenc_bytes().unwrap().to_vec());
        }
        for _ in 0..if bytes[8] == 0 { 6 } else { 7 } {
            numbers.push(r.lenenc().unwrap());
        }
        texts.push(r.lenenc_bytes().unwrap().to_vec());
        assert!(r.is_empty(), "the length is right");
        (length, bytes[8], numbers, texts)
    }

    #[test]
    fn the_binary_form_is_as_documented() {
        let mut out = Vec::new();
        event().encode(LogFormat::Binary, &mut out);
        let (length, number, numbers, texts) = read(&out);
        assert_eq!((length as usize, number), (out.len() - 8, 0));
        assert_eq!(numbers, [1_073_741_824, 3, 1_000_000, 1_000_250, 0, 0, 1, 0xab]);
        assert_eq!(texts, [&b"anna"[..], b"shop", b"10.0.0.1:5000", b"db1:3306", b"SELECT '\xff\n'"]);
        out.clear();
        QueryEvent { command: LoggedCommand::Execute(7), hostgroup: None, server: None, ..event() }.encode(LogFormat::Binary, &mut out);
        let (length, number, numbers, _) = read(&out);
        assert_eq!((length as usize, number, numbers[1], numbers[4]), (out.len() - 8, 16, u64::MAX, 7));
    }
}
