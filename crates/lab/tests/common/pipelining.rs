//! What the tests of reads that share connections have in common (`mysql-pipeline_depth`).

use std::time::Instant;

use lab::client::Encoding;
use lab::tidegate::Builder;
use lab::{Client, Flavor, Tidegate, wait};

use super::LIMIT;

pub(crate) const BOTH: [Flavor; 2] = [Flavor::Mariadb, Flavor::Mysql];
const WAITERS: &str = "SELECT SUM(waiters) FROM stats_tidegate_waits";
pub(crate) const PIPELINED: &str = "SELECT SUM(pipelined) FROM stats_tidegate_waits";
pub(crate) const AGAIN: &str = "SELECT SUM(pipelined_again) FROM stats_tidegate_waits";

/// What takes long on this machine is quick all the same; what was looked up holds.
pub(crate) fn eager(builder: Builder, late_ms: i64) -> Builder {
    let builder = builder.variable("pipeline_depth", 8).variable("pipeline_late_ms", late_ms);
    let builder = builder.variable("pipeline_max_statement_us", 1_000_000).variable("prepared_metadata_max_age", 3_600_000);
    builder.variable("connection_growth_delay_us", 0)
}

pub(crate) fn admin(proxy: &Tidegate) -> Client {
    wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap()
}

pub(crate) fn number(admin: &mut Client, sql: &str) -> u64 {
    admin.scalar(sql).unwrap().unwrap().parse().unwrap()
}

/// A session waits for one of the two connections. Statements are watched only where that happens.
pub(crate) fn run_short(proxy: &Tidegate) {
    let session = || Client::connect(&proxy.options("app", "app-pass").timeout(LIMIT)).unwrap();
    let (mut line, mut third) = (Line::new(proxy, [session(), session()]), session());
    line.asks(|| third.send_query("SELECT 1").unwrap());
    line.moves();
    third.recv_reply(Encoding::Text).unwrap();
}

/// Two connections that are taken for a while. Sessions that ask meanwhile get them afterwards, in the order in which they asked.
pub(crate) struct Line {
    pub(crate) admin: Client,
    holders: [Client; 2],
    waiting: u64,
}

impl Line {
    /// `holders` take the connections. They do not share them, since they are in transactions.
    pub(crate) fn new(proxy: &Tidegate, mut holders: [Client; 2]) -> Self {
        holders.iter_mut().for_each(|holder| drop(holder.run("BEGIN").unwrap()));
        Self { admin: admin(proxy), holders, waiting: 0 }
    }

    /// A session sends a statement, and has a place in the line.
    pub(crate) fn asks(&mut self, send: impl FnOnce()) {
        send();
        self.waiting += 1;
        let (admin, waiting) = (&mut self.admin, self.waiting);
        wait::until("it waits", LIMIT, || (number(admin, WAITERS) == waiting).then_some(())).unwrap();
    }

    /// The connections are free.
    pub(crate) fn moves(&mut self) -> Instant {
        self.holders.iter_mut().for_each(|holder| holder.send_query("COMMIT").unwrap());
        Instant::now()
    }
}
