//! Statements are traced, from a client's span to each server that was asked, and a receiver that fails affects no client.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::LIMIT;
use lab::client::{Encoding, Param};
use lab::tidegate::Builder;
use lab::{Client, Flavor, Options, Server, Tidegate, wait};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use prost::Message;
use wire::Capabilities;

lab::each!(
    a_clients_trace_goes_on_to_the_server,
    a_statement_that_is_sent_again_shows_each_server,
    what_is_lifted_out_of_comments_is_shared,
    what_is_held_or_replayed_is_traced,
    what_fails_is_traced_and_logged_with_its_trace,
    a_receiver_that_is_of_no_use_harms_nobody,
    the_receiver_may_change_while_clients_work,
);

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Stands for a status: a request is never answered.
const HANG: u16 = 0;

#[derive(Default)]
struct Taken {
    requests: Vec<ExportTraceServiceRequest>,
    /// Path and headers of the last request.
    head: String,
}

/// A receiver of OTLP over HTTP.
struct Receiver {
    port: u16,
    taken: Arc<Mutex<Taken>>,
    status: Arc<AtomicU16>,
}

impl Receiver {
    fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver =
            Receiver { port: listener.local_addr().unwrap().port(), taken: Arc::default(), status: Arc::new(AtomicU16::new(200)) };
        let (taken, status) = (Arc::clone(&receiver.taken), Arc::clone(&receiver.status));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (taken, status) = (Arc::clone(&taken), Arc::clone(&status));
                thread::spawn(move || while take(&stream, &taken, &status).is_some() {});
            }
        });
        receiver
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    fn head(&self) -> String {
        self.taken.lock().unwrap().head.clone()
    }

    fn spans(&self) -> Vec<Span> {
        let taken = self.taken.lock().unwrap();
        let resources = taken.requests.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    /// The spans of the statement that contains this text, once they are there: SERVER first, its children in their order.
    fn spans_of(&self, text: &str) -> Vec<Span> {
        let found = wait::until(&format!("spans of {text}"), LIMIT, || {
            let all = self.spans();
            let own = all.iter().find(|span| span.kind() == SpanKind::Server && shown(span, "db.query.text").contains(text))?;
            Some(std::iter::once(own).chain(all.iter().filter(|span| span.parent_span_id == own.span_id)).cloned().collect())
        });
        found.unwrap_or_else(|e| panic!("{e}: {:?}", self.spans().iter().map(|s| shown(s, "db.query.text")).collect::<Vec<_>>()))
    }

    fn resource(&self) -> Vec<KeyValue> {
        self.taken.lock().unwrap().requests[0].resource_spans[0].resource.clone().unwrap().attributes
    }
}

/// Reads one request and answers it; None when the connection is over.
fn take(stream: &TcpStream, taken: &Mutex<Taken>, status: &AtomicU16) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let length = head.to_ascii_lowercase().split("content-length: ").nth(1)?.lines().next()?.trim().parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    match status.load(Ordering::SeqCst) {
        HANG => {
            // Until the proxy has enough of it.
            let _ = reader.read_line(&mut head);
            None
        }
        200 => {
            let mut taken = taken.lock().unwrap();
            taken.requests.push(ExportTraceServiceRequest::decode(body.as_slice()).unwrap());
            taken.head = head;
            drop(taken);
            (&*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n").ok()
        }
        status => (&*stream).write_all(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n").as_bytes()).ok(),
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes.iter().find(|pair| pair.key == key)?.value.as_ref()?.value.as_ref()
}

/// An attribute as text; empty when it is not there.
fn shown(span: &Span, key: &str) -> String {
    match value(&span.attributes, key) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

fn proxy(servers: &[&Server], receiver: &str, more: impl FnOnce(Builder) -> Builder) -> Tidegate {
    let builder = Tidegate::builder()
        .app_user()
        .variable("threads", 1)
        .variable("monitor_enabled", false)
        .variable("trace_endpoint", receiver)
        .variable("trace_sample_ratio", "0");
    // The first one is as good as always asked first.
    let weights = std::iter::once(10_000_000_i64).chain(std::iter::repeat(1));
    let with = |builder: Builder, (server, weight): (&&Server, i64)| {
        builder.server_with(0, server.host(), server.port(), &[("weight", weight.into())])
    };
    more(servers.iter().zip(weights).fold(builder, with)).start().unwrap()
}

fn counter(proxy: &Tidegate, name: &str) -> u64 {
    let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='{name}'");
    proxy.admin().unwrap().scalar(sql).unwrap().unwrap().parse().unwrap()
}

fn a_clients_trace_goes_on_to_the_server(flavor: Flavor) {
    let server = Server::start(flavor, &Options::new()).unwrap();
    server.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    let receiver = Receiver::start();
    let proxy = proxy(&[&server], &receiver.url(), |b| {
        b.variable("trace_headers", "api-key=a%20b")
            .variable("trace_service_name", "shop-proxy")
            .variable("trace_resource_attributes", "deployment.environment.name=test")
            .row(
                "mysql_query_rules",
                &[("rule_id", 7.into()), ("active", 1.into()), ("match_digest", "^SELECT".into()), ("apply", 1.into())],
            )
    });
    let options = proxy.options("app", "app-pass").database("test").timeout(LIMIT);
    let mut client = Client::connect(&options.clone().with(Capabilities::QUERY_ATTRIBUTES)).unwrap();
    client.run(format!("SELECT i, 1 FROM t WHERE i = 5 /*traceparent='{}'*/", traceparent("01"))).unwrap();
    let spans = receiver.spans_of("SELECT i,? FROM t");
    let [own, asked] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((hex(&own.trace_id), hex(&own.parent_span_id)), (TRACE.to_owned(), SPAN.to_owned()));
    assert_eq!((hex(&asked.trace_id), asked.kind()), (TRACE.to_owned(), SpanKind::Client));
    assert_eq!(own.name, "SELECT t");
    let system = if flavor == Flavor::Mysql { "mysql" } else { "mariadb" };
    assert_eq!([shown(own, "db.system.name"), shown(own, "db.namespace"), shown(own, "tidegate.sampled_by")], [system, "test", "parent"]);
    assert!(!shown(own, "db.query.text").contains('5'), "values are not sent");
    assert_eq!(shown(own, "tidegate.rule"), "7");
    assert_eq!([shown(asked, "server.address"), shown(asked, "server.port")], ["127.0.0.1".to_owned(), server.port().to_string()]);
    assert!(shown(asked, "tidegate.backend.thread_id").parse::<u32>().unwrap() > 0);
    let lies_within = |inner: &Span, outer: &Span| {
        inner.start_time_unix_nano >= outer.start_time_unix_nano && inner.end_time_unix_nano <= outer.end_time_unix_nano
    };
    assert!(lies_within(asked, own), "{own:?} {asked:?}");
    let head = receiver.head().to_ascii_lowercase();
    assert!(head.starts_with("post /v1/traces ") && head.contains("api-key: a b") && head.contains("application/x-protobuf"), "{head}");
    let resource = receiver.resource();
    assert_eq!(value(&resource, "service.name"), Some(&Value::StringValue("shop-proxy".to_owned())));
    assert_eq!(value(&resource, "deployment.environment.name"), Some(&Value::StringValue("test".to_owned())));

    // Query attributes are the servers' to have: MariaDB has none.
    if client.capabilities().contains(Capabilities::QUERY_ATTRIBUTES) {
        let attribute = Param::Text(traceparent("01"));
        client.query_with_attributes("SELECT 2 FROM t AS by_attribute", &[("traceparent", attribute)]).unwrap().check().unwrap();
        let spans = receiver.spans_of("AS by_attribute");
        assert_eq!((hex(&spans[0].trace_id), hex(&spans[0].parent_span_id)), (TRACE.to_owned(), SPAN.to_owned()));
    }
    // A malformed traceparent is ignored, and one that says "not sampled" is obeyed.
    client.run(format!("SELECT 3 FROM t AS upper /*traceparent='{}'*/", traceparent("01").to_uppercase())).unwrap();
    client.run(format!("SELECT 4 FROM t AS unsampled /*traceparent='{}'*/", traceparent("00"))).unwrap();
    client.run(format!("SELECT 5 FROM t AS last /*traceparent='{}'*/", traceparent("01"))).unwrap();
    receiver.spans_of("AS last");
    assert!(receiver.spans().iter().all(|span| !shown(span, "db.query.text").contains("upper")));
    assert!(receiver.spans().iter().all(|span| !shown(span, "db.query.text").contains("unsampled")));
    // Executions of a prepared statement.
    let sql = format!("SELECT i FROM t AS prepared WHERE i = ? /*traceparent='{}'*/", traceparent("01"));
    let statement = client.prepare(&sql).unwrap();
    client.execute(&statement, &[Param::Int(1)]).unwrap().check().unwrap();
    let spans = receiver.spans_of("AS prepared");
    assert_eq!((shown(&spans[0], "tidegate.prepared"), hex(&spans[0].trace_id)), ("true".to_owned(), TRACE.to_owned()));
    assert!(proxy.log().lines().all(|line| !line.contains("a%20b")), "a header's value is a secret");
}

fn a_statement_that_is_sent_again_shows_each_server(flavor: Flavor) {
    let servers: Vec<Server> = (0..2).map(|_| Server::start(flavor, &Options::new()).unwrap()).collect();
    for server in &servers {
        server.sql("CREATE TABLE test.t(i INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    }
    // Only there it takes long.
    servers[0].sql("INSERT INTO test.t VALUES(1)").unwrap();
    let receiver = Receiver::start();
    let proxy = proxy(&[&servers[0], &servers[1]], &receiver.url(), |b| {
        b.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())])
    });
    let mut client = Client::connect(&proxy.options("app", "app-pass").database("test").timeout(LIMIT)).unwrap();
    client.send_query("SELECT COUNT(*) FROM t WHERE SLEEP(100) = 0").unwrap();
    wait::until("the statement to run", LIMIT, || {
        let running = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE 'SELECT COUNT%'";
        (servers[0].scalar(running).unwrap().as_deref() == Some("1")).then_some(())
    })
    .unwrap();
    servers[0].kill9();
    assert_eq!(client.recv_reply(Encoding::Text).unwrap().scalar().unwrap().as_deref(), Some("0"));
    let spans = receiver.spans_of("SELECT COUNT(*) FROM t");
    let (own, asked) = spans.split_first().unwrap();
    assert_eq!([shown(own, "tidegate.sampled_by"), shown(own, "error.type")], ["retried", ""]);
    assert!(own.parent_span_id.is_empty(), "a trace of its own");
    assert!(asked.len() >= 2, "{asked:?}");
    let (first, last) = (asked.first().unwrap(), asked.last().unwrap());
    assert_eq!([shown(first, "server.port"), shown(last, "server.port")], [servers[0].port().to_string(), servers[1].port().to_string()]);
    assert_eq!([shown(first, "error.type"), shown(last, "error.type")], ["connection_lost", ""]);
    assert_eq!(shown(own, "tidegate.attempts"), asked.len().to_string());
    assert!(first.end_time_unix_nano <= last.start_time_unix_nano);
}

/// A comment of its own in each statement: servers see one text, the cache has one result, and one statement is prepared.
fn what_is_lifted_out_of_comments_is_shared(flavor: Flavor) {
    let server = Server::start(flavor, &Options::new()).unwrap();
    server.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    server.sql("INSERT INTO test.t VALUES (1)").unwrap();
    server.sql("SET GLOBAL log_output = 'TABLE'").unwrap();
    server.sql("SET GLOBAL general_log = 1").unwrap();
    let receiver = Receiver::start();
    let cached = [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "AS cached".into()), ("cache_ttl", 600_000.into())];
    let proxy = proxy(&[&server], &receiver.url(), |b| b.variable("trace_lift_comments", true).row("mysql_query_rules", &cached));
    let options = proxy.options("app", "app-pass").database("test").timeout(LIMIT);
    let mut clients = [0, 1].map(|_| Client::connect(&options).unwrap());
    let comment = |n: usize| format!("/*traceparent='00-{TRACE}-{n:016x}-01'*/");
    let parents = |text: &str, count: usize| {
        let found = wait::until(&format!("{count} spans of {text}"), LIMIT, || {
            let own = |span: &Span| span.kind() == SpanKind::Server && shown(span, "db.query.text").contains(text);
            let mut ids: Vec<_> = receiver.spans().iter().filter(|span| own(span)).map(|span| hex(&span.parent_span_id)).collect();
            ids.sort();
            (ids.len() == count).then_some(ids)
        });
        found.unwrap()
    };
    let wanted = |numbers: std::ops::Range<usize>| numbers.map(|n| format!("{n:016x}")).collect::<Vec<_>>();

    for n in 1..9 {
        let sql = format!("SELECT COUNT(*) FROM t AS cached {}", comment(n));
        assert_eq!(clients[n % 2].scalar(sql).unwrap().as_deref(), Some("1"));
        server.sql(&format!("INSERT INTO test.t VALUES ({})", n + 1)).unwrap();
    }
    assert_eq!(parents("AS cached", 8), wanted(1..9), "each has the span of its own client's");

    let prepares = || {
        let rows = server.sql("SHOW GLOBAL STATUS LIKE 'Com_stmt_prepare'").unwrap().table().unwrap();
        rows[0][1].as_ref().unwrap().parse::<u64>().unwrap()
    };
    let before = prepares();
    for n in 1..9 {
        let client = &mut clients[n % 2];
        let statement = client.prepare(format!("SELECT i FROM t AS once WHERE i = ? {}", comment(n))).unwrap();
        assert_eq!(client.execute(&statement, &[Param::Int(1)]).unwrap().scalar().unwrap().as_deref(), Some("1"));
        client.close_statement(&statement).unwrap();
    }
    assert!(prepares() - before <= 2, "{} times prepared", prepares() - before);
    assert_eq!(parents("AS once", 8), wanted(1..9));

    // The rest of a comment stays. A text that the removal would break is left alone, as is one that is code.
    let other = format!("SELECT 3 AS tagged /*route='%2Fcart',{}", &comment(1)[2..]);
    let nested = format!("SELECT 4 AS nested /* a {}", comment(2));
    for (sql, value) in [(&other, "3"), (&nested, "4")] {
        assert_eq!(clients[0].scalar(sql).unwrap().as_deref(), Some(value), "{sql}");
    }
    let logged = |like: &str| {
        let sql = format!("SELECT COUNT(*) FROM mysql.general_log WHERE user_host LIKE 'app%' AND argument LIKE '{like}'");
        server.scalar(&sql).unwrap().unwrap()
    };
    assert_eq!([logged("%/*route=''%2Fcart''*/"), logged("%AS nested /* a /*traceparent%"), logged("%traceparent%")], ["1", "1", "1"]);
    let mut admin = proxy.admin().unwrap();
    admin.run("SET mysql-trace_lift_comments = 'false'").unwrap();
    admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    clients[0].run(format!("SELECT 5 AS as_it_came {}", comment(3))).unwrap();
    assert_eq!([logged("SELECT 5 AS as_it_came /*traceparent%"), logged("%traceparent%")], ["1", "2"]);
}

fn what_is_held_or_replayed_is_traced(flavor: Flavor) {
    let server = Server::start(flavor, &Options::new()).unwrap();
    server.sql("CREATE TABLE test.t(i INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    let receiver = Receiver::start();
    let proxy = proxy(&[&server], &receiver.url(), |b| b.variable("transaction_replay", true));
    let mut client = proxy.connect_app().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut set_status = |status: &str| {
        admin.run(format!("UPDATE mysql_servers SET status='{status}'")).unwrap();
        admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
    };
    set_status("OFFLINE_SOFT");
    client.send_query("SELECT 1 AS held").unwrap();
    let mut watcher = proxy.admin().unwrap();
    wait::until("the statement to wait", LIMIT, || {
        let waiting = watcher.scalar("SELECT COUNT(*) FROM stats_mysql_processlist WHERE command='Connect'").unwrap();
        (waiting.as_deref() == Some("1")).then_some(())
    })
    .unwrap();
    set_status("ONLINE");
    assert!(client.recv_reply(Encoding::Text).unwrap().err().is_none());
    let spans = receiver.spans_of("AS held");
    assert_eq!([shown(&spans[0], "tidegate.sampled_by"), shown(&spans[0], "tidegate.held")], ["held", "true"]);
    assert!(shown(&spans[1], "tidegate.wait_us").parse::<u64>().unwrap() > 0);

    client.run("BEGIN").unwrap();
    client.run("INSERT INTO t VALUES(1)").unwrap();
    let mut root = server.root().unwrap();
    let id = root.scalar("SELECT id FROM information_schema.processlist WHERE user='app'").unwrap().unwrap();
    root.run(format!("KILL {id}")).unwrap();
    client.run("INSERT INTO t VALUES(2) /* again */").unwrap();
    client.run("COMMIT").unwrap();
    assert_eq!(server.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("2"));
    let replayed = wait::until("a replay", LIMIT, || receiver.spans().into_iter().find(|span| shown(span, "tidegate.replayed") == "true"));
    assert_eq!(replayed.unwrap().name, "INSERT t");
}

fn what_fails_is_traced_and_logged_with_its_trace(flavor: Flavor) {
    let server = Server::start(flavor, &Options::new()).unwrap();
    let receiver = Receiver::start();
    let proxy = proxy(&[&server], &receiver.url(), |b| {
        b.variable("eventslog_filename", "queries")
            .variable("eventslog_format", 2)
            .variable("eventslog_default_log", 1)
            .variable("verbose_query_error", true)
    });
    let mut client = proxy.connect_app().unwrap();
    client.run("SELECT 1 AS plain").unwrap();
    assert!(client.run("SELECT 'secret' FROM nowhere").is_err());
    let spans = receiver.spans_of("FROM nowhere");
    let [own, asked] = &spans[..] else { panic!("{spans:?}") };
    for span in [own, asked] {
        assert_eq!([shown(span, "db.response.status_code"), shown(span, "error.type")], ["1146", "1146"]);
        assert!(!format!("{span:?}").contains("secret"));
    }
    assert!(receiver.spans().iter().all(|span| !shown(span, "db.query.text").contains("plain")), "at ratio 0 what is well is not traced");
    let trace_id = hex(&own.trace_id);
    wait::until("the error log", LIMIT, || proxy.log().contains(&format!("trace {trace_id}")).then_some(())).unwrap();
    wait::until("the query log", LIMIT, || {
        let files =
            std::fs::read_dir(proxy.dir()).unwrap().flatten().filter(|file| file.file_name().to_string_lossy().starts_with("queries"));
        let text: String = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
        text.contains(&format!("\"trace_id\":\"{trace_id}\"")).then_some(())
    })
    .unwrap();
    // So many in a second, and no more.
    let mut admin = proxy.admin().unwrap();
    for sql in ["SET mysql-trace_max_per_second = 1", "LOAD MYSQL VARIABLES TO RUNTIME"] {
        admin.run(sql).unwrap();
    }
    for _ in 0..20 {
        assert!(client.run("SELECT 1 FROM nowhere").is_err());
    }
    assert!(counter(&proxy, "Trace_Statements_limited") > 0);
}

fn a_receiver_that_is_of_no_use_harms_nobody(flavor: Flavor) {
    let server = Server::start(flavor, &Options::new()).unwrap();
    let receiver = Receiver::start();
    let proxy = proxy(&[&server], &receiver.url(), |b| {
        b.variable("trace_sample_ratio", "1")
            .variable("trace_queue_size", 20)
            .variable("trace_timeout_ms", 100)
            .variable("trace_max_per_second", 100_000)
    });
    let mut client = proxy.connect_app().unwrap();
    let mut admin = proxy.admin().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for status in [HANG, 503, 400, u16::MAX] {
        if status == u16::MAX {
            for sql in [format!("SET mysql-trace_endpoint = 'http://{gone}'"), "LOAD MYSQL VARIABLES TO RUNTIME".to_owned()] {
                admin.run(sql).unwrap();
            }
        }
        receiver.answers(status);
        let now = || ["Trace_Spans_dropped", "Trace_Spans_failed", "Trace_Batches_failed"].map(|name| counter(&proxy, name));
        let before = now();
        wait::until(&format!("losses to be counted at {status}"), LIMIT, || {
            for _ in 0..100 {
                assert_eq!(client.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
            }
            now().iter().zip(before).all(|(now, before)| *now > before).then_some(())
        })
        .unwrap();
    }
    assert!(counter(&proxy, "Trace_Batches_retried") > 0);
    assert!(receiver.spans().is_empty());
    assert!(proxy.log().contains("does not accept spans"), "{}", proxy.log());
    // It does again.
    receiver.answers(200);
    for sql in [format!("SET mysql-trace_endpoint = '{}'", receiver.url()), "LOAD MYSQL VARIABLES TO RUNTIME".to_owned()] {
        admin.run(sql).unwrap();
    }
    wait::until("spans", LIMIT, || {
        client.run("SELECT 1 AS again").unwrap();
        (!receiver.spans().is_empty() && counter(&proxy, "Trace_Spans_exported") > 0).then_some(())
    })
    .unwrap();
    // Nor does one that hangs keep the proxy from ending.
    receiver.answers(HANG);
    client.run("SELECT 1").unwrap();
    drop((client, admin));
    let began = std::time::Instant::now();
    proxy.stop().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

fn the_receiver_may_change_while_clients_work(flavor: Flavor) {
    let server = Server::start(flavor, &Options::new()).unwrap();
    let (one, two) = (Receiver::start(), Receiver::start());
    let proxy = proxy(&[&server], "", |b| b.variable("trace_sample_ratio", "1"));
    let mut client = proxy.connect_app().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut change = |sql: String| {
        admin.run(sql).unwrap();
        admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    };
    client.run("SELECT 1 AS nowhere_to").unwrap();
    change(format!("SET mysql-trace_endpoint = '{}'", one.url()));
    client.run("SELECT 1 AS to_one").unwrap();
    one.spans_of("to_one");
    change(format!("SET mysql-trace_endpoint = '{}/own/path'", two.url()));
    client.run("SELECT 1 AS to_two").unwrap();
    two.spans_of("to_two");
    assert!(two.head().starts_with("POST /own/path "), "{}", two.head());
    change("SET mysql-trace_endpoint = ''".to_owned());
    client.run("SELECT 1 AS nowhere_again").unwrap();
    change(format!("SET mysql-trace_endpoint = '{}'", two.url()));
    client.run("SELECT 1 AS last").unwrap();
    two.spans_of("AS last");
    let texts: Vec<String> = one.spans().iter().chain(&two.spans()).map(|span| shown(span, "db.query.text")).collect();
    assert!(texts.iter().all(|text| !text.contains("nowhere")), "{texts:?}");
    assert!(
        texts.iter().any(|text| text.contains("to_one")) && !one.spans().iter().any(|span| shown(span, "db.query.text").contains("to_two"))
    );
    let refused = proxy.admin().unwrap().run("SET mysql-trace_endpoint = 'collector:4318'").unwrap_err().to_string();
    assert!(refused.contains("URL"), "{refused}");
}
