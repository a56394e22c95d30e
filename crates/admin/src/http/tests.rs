use super::*;
use model::stats::{Metric, MetricKind, Reading, Sample, StatsTable, Value};
use std::io::{Read, Write};
use std::net::TcpStream as StdStream;
use std::time::Duration;

use super::port::HEAD_TIMEOUT;

struct Source;

impl StatsSource for Source {
    fn tables(&self) -> Vec<&'static StatsTable> {
        Vec::new()
    }

    fn rows(&self, _: &'static StatsTable, _: Reading) -> Vec<Vec<Value>> {
        Vec::new()
    }

    fn metrics(&self) -> Vec<Metric> {
        let sample = |labels, value| vec![Sample { suffix: "", labels, value }];
        let uptime = sample(Vec::new(), 2.0);
        let status = sample(vec![("endpoint", "db\"1\\\n:3306".to_owned()), ("hostgroup", "1".to_owned())], -0.5);
        vec![
            Metric { name: "proxysql_uptime_seconds_total", help: "Up.", kind: MetricKind::Counter, samples: uptime },
            Metric { name: "proxysql_connpool_conns_status", help: "Two\nlines.", kind: MetricKind::Gauge, samples: status },
        ]
    }
}

/// Sends a request and gives status, head and body.
fn send(address: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = StdStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_owned(), body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost:6070\r\nConnection: close\r\n\r\n"))
}

fn post(address: SocketAddr, path: &str, body: &str) -> (u16, String, String) {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost:6070\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    send(address, &(head + body))
}

/// Runs `check` on another thread against a server with these routes.
fn with_server(routes: Vec<Route>, check: impl FnOnce(SocketAddr) + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut server = Server::new(vec![Arc::new(Source)], Arc::new(|| Err("no server answers".to_owned())), handover::Sockets::fresh());
        let listen = Some("127.0.0.1:0".parse().unwrap());
        server.apply(HttpSettings { listen, routes }).await.unwrap();
        let address = server.address().unwrap();
        tokio::task::spawn_blocking(move || check(address)).await.unwrap();
        server.close().await;
        // Another process may have the port by now.
        assert_eq!(server.address(), None);
    });
}

#[test]
fn metrics_and_health() {
    with_server(Vec::new(), |address| {
        let (status, head, body) = get(address, "/metrics");
        let page = concat!(
            "# HELP proxysql_uptime_seconds_total Up.\n# TYPE proxysql_uptime_seconds_total counter\nproxysql_uptime_seconds_total 2\n",
            "# HELP proxysql_connpool_conns_status Two\\nlines.\n# TYPE proxysql_connpool_conns_status gauge\n",
            "proxysql_connpool_conns_status{endpoint=\"db\\\"1\\\\\\n:3306\",hostgroup=\"1\"} -0.5\n",
        );
        assert_eq!((status, body.as_str()), (200, page));
        assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"));
        assert_eq!(get(address, "/healthz").0, 200);
        let (status, _, body) = get(address, "/readyz");
        assert_eq!((status, body.as_str()), (503, "no server answers\n"));
        assert_eq!((get(address, "/").0, post(address, "/metrics", "").0), (404, 405));
    });
}

/// A connection without a request delays no other one.
#[test]
fn silent_connections() {
    with_server(Vec::new(), |address| {
        let mut kept: Vec<StdStream> = (0..3 * MAX_CONNECTIONS)
            .map(|n| {
                let mut stream = StdStream::connect(address).unwrap();
                if n % 2 == 0 {
                    stream.write_all(b"GET /he").unwrap();
                }
                stream
            })
            .collect();
        let began = std::time::Instant::now();
        for _ in 0..3 {
            assert_eq!(get(address, "/healthz").0, 200);
        }
        assert!(began.elapsed() < HEAD_TIMEOUT, "nobody waited for the others' time to be over");
        // The youngest is there still, until its time is over.
        let youngest = kept.last_mut().unwrap();
        youngest.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost:6070\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        youngest.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    });
}

#[test]
fn scripts() {
    let dir = tempfile::tempdir().unwrap();
    let route = |uri: &str, method: Method, text: &str| {
        let path = dir.path().join(uri);
        let mut file = std::fs::File::create(&path).unwrap();
        write!(file, "#!/bin/sh\n{text}\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        file.set_permissions(mode).unwrap();
        Route { method, uri: uri.to_owned(), script: path.to_str().unwrap().to_owned(), limit: Duration::from_millis(400) }
    };
    let routes = vec![
        route("echo", Method::POST, r#"printf '{"got":%s}' "$1""#),
        route("show", Method::GET, r#"printf '%s' "$1""#),
        route("fail", Method::GET, "echo out; echo err >&2; exit 4"),
        route("words", Method::GET, "echo words"),
        route("empty", Method::GET, "true"),
        route("slow", Method::GET, "exec sleep 100"),
        Route { script: "/does/not/exist".into(), ..route("none", Method::GET, "") },
    ];
    with_server(routes, |address| {
        let (status, head, body) = post(address, "/sync/echo", r#"{"a":[1]}"#);
        assert_eq!((status, body.as_str()), (200, r#"{"got":{"a":[1]}}"#));
        assert!(head.to_lowercase().contains("content-type: application/json"));
        assert_eq!(get(address, "/sync/show?a=1&b=x%20y").2, r#"{"a":"1","b":"x y"}"#);
        assert_eq!(get(address, "/sync/show").2, "{}");
        for (path, body) in [("/sync/echo", ""), ("/sync/echo", "{"), ("/sync/nowhere", "{}"), ("/sync/show", "{}")] {
            let (status, _, body) = post(address, path, body);
            assert_eq!((status, body.contains(r#""type":"in""#)), (400, true), "{path}");
        }
        assert_eq!(post(address, "/sync/echo", &format!("\"{}\"", "x".repeat(200_000))).0, 400);
        let (status, _, body) = get(address, "/sync/fail");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["type"], &body["error_code"]), (424, &"out".into(), &"4".into()));
        assert_eq!((&body["script_stdout"], &body["script_stderr"]), (&"out\n".into(), &"err\n".into()));
        for path in ["/sync/words", "/sync/empty", "/sync/slow", "/sync/none"] {
            assert_eq!(get(address, path).0, 424, "{path}");
        }
        // Pages from elsewhere: with an origin of their own, or with a name that leads here.
        let status = |host: &str, more: &str| {
            send(address, &format!("GET /sync/show HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n")).0
        };
        for (host, more) in [
            ("localhost:6070", "Origin: https://evil.example\r\n"),
            ("evil.example", ""),
            ("evil.example:80", "Origin: http://evil.example:80\r\n"),
            // An image of another page.
            ("localhost:6070", "Sec-Fetch-Site: cross-site\r\n"),
            // A page of another port.
            ("localhost:6070", "Sec-Fetch-Site: same-site\r\n"),
        ] {
            assert_eq!(status(host, more), 403, "{host} {more}");
        }
        for (host, more) in [
            ("127.0.0.1", ""),
            ("[::1]:6070", ""),
            ("LocalHost", "Origin: http://LocalHost\r\n"),
            ("localhost:6070", "Sec-Fetch-Site: none\r\n"),
            ("localhost:6070", "Sec-Fetch-Site: same-origin\r\n"),
        ] {
            assert_eq!(status(host, more), 200, "{host} {more}");
        }
    });
}

/// As many clients as there are seats send a part of a question each; health is told all the same.
#[test]
fn who_sends_slowly_makes_room() {
    with_server(Vec::new(), |address| {
        let slow: Vec<StdStream> = (0..MAX_CONNECTIONS)
            .map(|_| {
                let mut stream = StdStream::connect(address).unwrap();
                stream.write_all(b"POST /sync/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{").unwrap();
                stream
            })
            .collect();
        assert_eq!(get(address, "/healthz").0, 200);
        drop(slow);
    });
}

#[test]
fn the_port_changes_live() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let settings = |listen: Option<SocketAddr>| HttpSettings { listen, routes: Vec::new() };
        let mut server = Server::new(Vec::new(), Arc::new(|| Ok(())), handover::Sockets::fresh());
        server.apply(settings(None)).await.unwrap();
        assert_eq!(server.address(), None);
        server.apply(settings("127.0.0.1:0".parse().ok())).await.unwrap();
        let first = server.address().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(server.apply(settings(taken.local_addr().ok())).await.is_err());
        assert_eq!(server.address(), Some(first), "the old one stays");
        server.apply(settings(None)).await.unwrap();
        assert_eq!(server.address(), None);
    });
}
