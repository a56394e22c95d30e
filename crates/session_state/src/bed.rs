//! Servers, configurations and a door with a table of answers, for unit tests.

use crate::collected::{Collected, OkReply};
use crate::door::{Door, Rescued};
use crate::held::Held;
use crate::pins::Pins;
use crate::server_info::{Family, ServerInfo};
use model::Config;
use model::snapshot::Snapshot;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use wire::charset::Flavor;
use wire::codec::put_lenenc_bytes;
use wire::flags::{Capabilities, StatusFlags};

/// What a server of this version says of itself.
pub(crate) fn info(flavor: Flavor, version: &str) -> ServerInfo {
    ServerInfo {
        version: version.into(),
        flavor,
        family: Family::of(flavor, version),
        capabilities: Capabilities::default(),
        collation: 45,
        status: StatusFlags::default(),
        tracking: Arc::default(),
    }
}

/// A configuration in which each of these (hostgroup, host) is a server with port 3306.
pub(crate) fn snapshot(servers: &[(u32, &str)], more: &str) -> Arc<Snapshot> {
    let rows: Vec<String> = servers.iter().map(|(hostgroup, host)| format!("{{ hostgroup={hostgroup}, address=\"{host}\" }}")).collect();
    let text = format!("mysql_servers = ( {} )\n{more}", rows.join(", "));
    let (config, _): (Config, _) = model::parse(&text, "test.cnf").unwrap();
    Arc::new(Snapshot::compile(&config).unwrap())
}

/// A connection whose server gives these answers, one to each question. Without one it fails.
pub(crate) struct Table {
    pub(crate) answers: VecDeque<Collected>,
    /// The texts of the questions.
    pub(crate) asked: Vec<String>,
    /// None once it is closed.
    pub(crate) held: Option<Held>,
    pub(crate) pins: Pins,
    pub(crate) ran_last: bool,
    pub(crate) handles_warnings: bool,
    pub(crate) info: ServerInfo,
    pub(crate) idle_limit_ms: u64,
}

impl Table {
    pub(crate) fn new(answers: &[Collected]) -> Self {
        Self {
            answers: answers.iter().cloned().collect(),
            asked: Vec::new(),
            held: Some(Held::logged_in(StatusFlags::AUTOCOMMIT)),
            pins: Pins::default(),
            ran_last: true,
            handles_warnings: true,
            info: info(Flavor::MySql, "8.4.0"),
            idle_limit_ms: 0,
        }
    }
}

impl Door for Table {
    async fn exchange(&mut self, questions: Rescued<'_>) -> io::Result<Vec<Collected>> {
        self.asked.extend(questions.questions().iter().map(|question| question.text().into_owned()));
        let fails = || io::Error::other("the connection is closed");
        questions.questions().iter().map(|_| self.answers.pop_front().ok_or_else(fails)).collect()
    }

    fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    fn held_mut(&mut self) -> Option<&mut Held> {
        self.held.as_mut()
    }

    fn info(&self) -> Option<&ServerInfo> {
        self.held.as_ref().map(|_| &self.info)
    }

    fn caps(&self) -> Capabilities {
        Capabilities::PROTOCOL_41
    }

    fn ran_last(&self) -> bool {
        self.ran_last
    }

    fn pins_mut(&mut self) -> &mut Pins {
        &mut self.pins
    }

    fn now_ms(&self) -> u64 {
        1
    }

    fn handles_warnings(&self) -> bool {
        self.handles_warnings
    }

    fn close_backend(&mut self) {
        self.held = None;
    }

    fn set_idle_limit(&mut self, ms: u64) {
        self.idle_limit_ms = ms;
    }
}

/// Rows of text, as they are read from a server that has this status now.
pub(crate) fn rows(rows: &[&[&str]], status: StatusFlags) -> Collected {
    let row = |values: &&[&str]| {
        let mut row = Vec::new();
        values.iter().for_each(|value| put_lenenc_bytes(&mut row, value.as_bytes()));
        row
    };
    Collected { ok: OkReply { status, ..OkReply::default() }, rows: rows.iter().map(row).collect(), ..Collected::default() }
}

/// What comes of a future that waits for nothing: a table answers at once.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}
