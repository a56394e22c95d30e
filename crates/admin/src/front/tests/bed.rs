//! A front over a fake engine on a thread of its own; the statement's text says the answer.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use lab::client::{Client, ConnectOptions};
use lab::error::LabError;
use model::{Config, Listen};
use tls::ServerTls;
use tokio::sync::oneshot;

use crate::front::{Front, FrontSettings};
use crate::handle::channel;
use crate::reply::{Reply, Role, SessionInfo};

type Call = Box<dyn FnOnce(&mut Front) + Send>;
type Apply = (FrontSettings, oneshot::Sender<Result<Vec<Listen>, String>>);

/// A running front. Dropping it stops it.
pub(super) struct Bed {
    calls: Option<tokio::sync::mpsc::UnboundedSender<Apply>>,
    looks: tokio::sync::mpsc::UnboundedSender<Call>,
    thread: Option<JoinHandle<()>>,
    pub addresses: Vec<Listen>,
    pub settings: FrontSettings,
}

/// Settings with the default logins, `root:secret` and `hash:` with a stored hash, on a port that the system chooses.
pub(super) fn settings(tls: Option<Arc<ServerTls>>) -> FrontSettings {
    let mut config = Config::default();
    config.admin.set("mysql_ifaces", "127.0.0.1:0").unwrap();
    config.admin.set("admin_credentials", "admin:admin;root:secret").unwrap();
    FrontSettings::read(&config, tls).unwrap()
}

impl Bed {
    pub(super) fn start(settings: FrontSettings) -> Self {
        let (handle, jobs) = channel(Arc::new(Config::default()));
        std::thread::spawn(move || {
            for job in jobs {
                let _ = job.answer.send(answer(job.who, &job.session, &String::from_utf8_lossy(&job.sql)));
            }
        });
        let (calls, mut called) = tokio::sync::mpsc::unbounded_channel::<Apply>();
        let (looks, mut looked) = tokio::sync::mpsc::unbounded_channel::<Call>();
        let first = settings.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut front = Front::new(handle, first, handover::Sockets::fresh());
                loop {
                    tokio::select! {
                        call = called.recv() => {
                            let Some((settings, answer)) = call else { break };
                            let applied = front.apply(settings).await.map_err(|(listen, e)| format!("{listen}: {e}"));
                            answer.send(applied.map(|()| front.addresses())).unwrap();
                        }
                        Some(look) = looked.recv() => look(&mut front),
                    }
                }
                front.close().await;
            });
        });
        let mut bed = Self { calls: Some(calls), looks, thread: Some(thread), addresses: Vec::new(), settings };
        bed.apply(|_| ()).unwrap();
        bed
    }

    /// Changes the settings of the running front.
    pub(super) fn apply(&mut self, change: impl FnOnce(&mut FrontSettings)) -> Result<(), String> {
        let mut settings = self.settings.clone();
        change(&mut settings);
        let (answer, answered) = oneshot::channel();
        self.calls.as_ref().unwrap().send((settings.clone(), answer)).unwrap();
        self.addresses = answered.blocking_recv().unwrap()?;
        self.settings = settings;
        Ok(())
    }

    pub(super) fn connections(&self) -> usize {
        let (answer, answered) = mpsc::channel();
        self.looks.send(Box::new(move |front| answer.send(front.connections()).unwrap())).unwrap();
        answered.recv().unwrap()
    }

    pub(super) fn options(&self, user: &str, password: &str) -> ConnectOptions {
        match &self.addresses[0] {
            Listen::Tcp(address) => ConnectOptions::tcp(address.to_string(), user, password),
            Listen::Unix(path) => ConnectOptions::unix(path.clone(), user, password),
        }
    }

    pub(super) fn admin(&self) -> Client {
        Client::connect(&self.options("admin", "admin")).unwrap()
    }

    /// The error of a login that must fail.
    pub(super) fn refusal(&self, options: &ConnectOptions) -> (u16, String) {
        match Client::connect(options) {
            Err(LabError::Server { code, message, .. }) => (code, message),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.calls.take();
        let _ = self.thread.take().unwrap().join();
    }
}

/// `rows N LEN`, `who`, `null`, `ok`, `fail`, SHOW FIELDS; anything else comes back as one row.
fn answer(who: Role, session: &SessionInfo, sql: &str) -> Reply {
    let one = |text: String| Reply::Rows { columns: vec!["a".into()], rows: vec![vec![Some(text.into_bytes())]] };
    let words: Vec<&str> = sql.split_whitespace().collect();
    match words.as_slice() {
        ["rows", count, len] => {
            let row = vec![Some(vec![b'x'; len.parse().unwrap()])];
            Reply::Rows { columns: vec!["a".into()], rows: vec![row; count.parse().unwrap()] }
        }
        ["who"] => one(format!("{who:?} {} {} {:?}", session.user, session.peer, session.schema)),
        ["null"] => Reply::Rows { columns: vec!["a".into(), "b".into(), "c".into()], rows: vec![vec![None, Some(b"v".to_vec()), None]] },
        ["ok"] => Reply::Ok { affected: 7, insert_id: 5, info: "seven".into(), warnings: vec!["beware".into()] },
        ["USE", ..] => Reply::done(),
        ["fail"] => Reply::refused("no"),
        ["SHOW", "FIELDS", "FROM", "`t`"] => {
            let row = |name: &str| vec![Some(name.as_bytes().to_vec()), Some(b"INT".to_vec())];
            Reply::Rows { columns: vec!["Field".into(), "Type".into()], rows: vec![row("id"), row("name")] }
        }
        _ => one(sql.to_owned()),
    }
}
