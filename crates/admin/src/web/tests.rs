use std::thread;

use hyper::header::{COOKIE, ORIGIN};

use super::*;
use crate::handle::channel;

const HOST_NAME: &str = "127.0.0.1:6080";

fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    config.admin.set("web_enabled", "true").unwrap();
    change(&mut config);
    config
}

/// A page whose statements are answered with the role that asks.
fn page(config: &Config) -> Arc<Shared> {
    let (engine, jobs) = channel(Arc::new(config.clone()));
    thread::spawn(move || {
        for job in jobs {
            if job.sql == b"fail" {
                let _ = job.answer.send(Reply::refused("no"));
                continue;
            }
            let rows = vec![vec![Some(format!("{:?}", job.who).into_bytes()), None]];
            let _ = job.answer.send(Reply::Rows { columns: vec!["role".to_owned(), "empty".to_owned()], rows });
        }
    });
    Web::new(engine, WebSettings::read(config, None).unwrap(), Vec::new(), Sockets::fresh()).shared
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

const LOCAL: fn() -> Caller = || Caller { peer: "127.0.0.1:40000".parse().unwrap(), is_tls: false, is_loopback: true };

struct Answered {
    status: u16,
    body: String,
    cookie: Option<String>,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn ask_from(caller: Caller, shared: &Arc<Shared>, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> Answered {
    use http_body_util::BodyExt;
    let own = format!("http://{HOST_NAME}");
    let mut request = Request::builder().method(method).uri(path).header(HOST, HOST_NAME);
    request = request.header(CONTENT_TYPE, "application/json").header(ORIGIN, own);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Bytes::from(body.to_string())).unwrap();
    let head = request.clone().into_parts().0;
    let response = guarded(match vet(shared, &head, caller) {
        Ok(vetted) => answer(shared, &request, vetted.known).await,
        Err(refusal) => *refusal,
    });
    assert!(response.headers().contains_key("content-security-policy"));
    let cookie = response.headers().get(SET_COOKIE).map(|value| value.to_str().unwrap().split(';').next().unwrap().to_owned());
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Answered { status, body: String::from_utf8_lossy(&bytes).into_owned(), cookie }
}

async fn ask(shared: &Arc<Shared>, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> Answered {
    ask_from(LOCAL(), shared, method, path, headers, body).await
}

async fn log_in(shared: &Arc<Shared>, user: &str, password: &str) -> Answered {
    ask(shared, Method::POST, "/api/login", &[], &json!({ "user": user, "password": password })).await
}

#[test]
fn a_viewer_has_the_rights_of_the_login() {
    let shared = page(&config(|_| ()));
    run(async {
        for path in ["/api/session", "/api/view/now", "/api/samples"] {
            assert_eq!(ask(&shared, Method::GET, path, &[], &Value::Null).await.status, 401, "{path}");
        }
        for (user, role) in [("admin", "Admin"), ("stats", "Stats")] {
            let session = log_in(&shared, user, user).await;
            let (cookie, token) = (session.cookie.clone().unwrap(), session.json()["token"].as_str().unwrap().to_owned());
            let with_token = [(COOKIE.as_str(), cookie.as_str()), ("x-tidegate-token", token.as_str())];
            let view = ask(&shared, Method::GET, "/api/view/now", &with_token, &Value::Null).await.json();
            let results = view["results"].as_object().unwrap();
            assert!(results.values().all(|result| result["rows"] == json!([[role, null]])), "{view}");
            let statement = json!({ "sql": "SELECT 1" });
            assert_eq!(ask(&shared, Method::POST, "/api/sql", &with_token[..1], &statement).await.status, 401, "the token is missing");
            let answer = ask(&shared, Method::POST, "/api/sql", &with_token, &statement).await.json();
            assert_eq!(answer, json!({ "columns": ["role", "empty"], "rows": [[role, null]], "cut": false }));
            let error = ask(&shared, Method::POST, "/api/sql", &with_token, &json!({ "sql": "fail" })).await.json();
            assert_eq!(error, json!({ "error": { "code": 1045, "text": "no" } }), "ProxySQL's words are for its own clients");
            assert_eq!(ask(&shared, Method::POST, "/api/logout", &with_token, &Value::Null).await.status, 204);
            assert_eq!(ask(&shared, Method::GET, "/api/session", &with_token, &Value::Null).await.status, 401, "it is over");
        }
    });
}

#[test]
fn another_password_ends_the_session() {
    let shared = page(&config(|_| ()));
    run(async {
        let session = log_in(&shared, "admin", "admin").await;
        let (cookie, token) = (session.cookie.clone().unwrap(), session.json()["token"].as_str().unwrap().to_owned());
        let headers = [(COOKIE.as_str(), cookie.as_str()), ("x-tidegate-token", token.as_str())];
        let told = ask(&shared, Method::GET, "/api/session", &headers, &Value::Null).await.json()["exposure"].clone();
        assert!(told["open"] == false && told["text"].as_str().unwrap().contains("only this machine may log in as 'admin'"), "{told}");
        let changed = config(|config| config.admin.set("admin_credentials", "admin:changed").unwrap());
        *shared.settings.write().unwrap() = Arc::new(WebSettings::read(&changed, None).unwrap());
        assert_eq!(ask(&shared, Method::GET, "/api/session", &headers, &Value::Null).await.status, 401);
        assert_eq!(log_in(&shared, "admin", "changed").await.status, 200);
    });
}

#[test]
fn logins_that_fail_are_slow_and_shut_nobody_out() {
    let shared = page(&config(|_| ()));
    run(async {
        let began = std::time::Instant::now();
        assert_eq!(log_in(&shared, "admin", "wrong").await.status, 401);
        assert!(began.elapsed() >= PAUSE);
        for _ in 0..10 {
            drop(shared.engine.attempts().begin(Some(LOCAL().peer.ip()), 0).await);
        }
        // Behind a balancer all clients have one address.
        assert_eq!(log_in(&shared, "admin", "admin").await.status, 200);
        // The admin port's rule: these names are for this machine.
        let remote = Caller { peer: "192.0.2.1:4000".parse().unwrap(), ..LOCAL() };
        let body = json!({ "user": "admin", "password": "admin" });
        assert_eq!(ask_from(remote, &shared, Method::POST, "/api/login", &[], &body).await.status, 401);
    });
}

#[test]
fn who_guesses_from_many_addresses_keeps_nobody_waiting() {
    let shared = page(&config(|config| config.admin.set("admin_credentials", "admin:admin;far:right").unwrap()));
    run(async {
        let from = |n: u8| Caller { peer: SocketAddr::new([192, 0, 2, n].into(), 4000), ..LOCAL() };
        let guess = |n: u8| {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let body = json!({ "user": "far", "password": "wrong" });
                for _ in 0..3 {
                    assert_eq!(ask_from(from(n), &shared, Method::POST, "/api/login", &[], &body).await.status, 401);
                }
            })
        };
        let guesses: Vec<_> = (1..=12).map(guess).collect();
        let right = json!({ "user": "far", "password": "right" });
        for _ in 0..30 {
            tokio::task::yield_now().await;
            assert_eq!(ask_from(from(99), &shared, Method::POST, "/api/login", &[], &right).await.status, 200);
        }
        for guess in guesses {
            guess.await.unwrap();
        }
        assert_eq!(shared.engine.attempts().counts(), (36, 0));
    });
}

/// Without TLS another program on this host is given the cookie too.
#[test]
fn without_tls_the_cookie_alone_is_nobody() {
    let shared = page(&config(|_| ()));
    run(async {
        let session = log_in(&shared, "admin", "admin").await;
        let (cookie, token) = (session.cookie.clone().unwrap(), session.json()["token"].as_str().unwrap().to_owned());
        let both = [(COOKIE.as_str(), cookie.as_str()), ("x-tidegate-token", token.as_str())];
        for path in ["/api/session", "/api/view/now", "/api/samples"] {
            assert_eq!(ask(&shared, Method::GET, path, &both[..1], &Value::Null).await.status, 401, "{path}");
            assert_eq!(ask(&shared, Method::GET, path, &both[1..], &Value::Null).await.status, 401, "{path}: the token alone");
            assert_eq!(ask(&shared, Method::GET, path, &both, &Value::Null).await.status, 200, "{path}");
        }
    });
}

/// The most that a stranger's request may make the process keep, by its head.
#[test]
fn bodies_of_strangers_are_not_read() {
    let shared = page(&config(|_| ()));
    let limit = |path: &str, host: &str, headers: &[(&str, &str)]| {
        let mut request = Request::builder().method(Method::POST).uri(path).header(HOST, host).header(CONTENT_TYPE, "application/json");
        request = request.header(ORIGIN, format!("http://{host}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let head = request.body(()).unwrap().into_parts().0;
        vet(&shared, &head, LOCAL()).map(|vetted| vetted.max_body).unwrap_or(0)
    };
    assert_eq!(limit("/api/sql", HOST_NAME, &[]), 0);
    assert_eq!(limit("/api/sql", HOST_NAME, &[(COOKIE.as_str(), "tidegate_session=0")]), 0);
    assert_eq!(limit("/api/login", "evil.example", &[]), 0);
    assert_eq!(limit("/", HOST_NAME, &[]), 0);
    assert_eq!(limit("/api/login", HOST_NAME, &[]), MAX_LOGIN);
    let session = run(log_in(&shared, "admin", "admin"));
    let (cookie, token) = (session.cookie.clone().unwrap(), session.json()["token"].as_str().unwrap().to_owned());
    let both = [(COOKIE.as_str(), cookie.as_str()), ("x-tidegate-token", token.as_str())];
    assert_eq!((limit("/api/sql", HOST_NAME, &both), limit("/api/sql", HOST_NAME, &both[..1])), (MAX_BODY, 0));
    assert_eq!(limit("/api/nothing", HOST_NAME, &both), 0);
}

#[test]
fn without_tls_the_page_is_for_this_machine() {
    let remote = Caller { is_loopback: false, ..LOCAL() };
    let status = |shared: &Arc<Shared>, caller| run(ask_from(caller, shared, Method::GET, "/", &[], &Value::Null)).status;
    let (closed, open) = (page(&config(|_| ())), page(&config(|config| config.admin.set("web_plain_http", "true").unwrap())));
    assert_eq!((status(&closed, LOCAL()), status(&closed, remote), status(&open, remote)), (200, 403, 200));
    let encrypted = Caller { is_tls: true, ..remote };
    assert_eq!(status(&closed, encrypted), 200);
}
