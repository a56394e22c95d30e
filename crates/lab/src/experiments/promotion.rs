//! The proxy promotes by itself (`mysql_healing`, mode `full`): the writer is lost in several ways, or only seems to be.
//!
//! Each round has a primary and two replicas of its own. Clients keep an account of their writes. What they were told to be committed and
//! the new writer lacks is compared with what the proxy reports as lost.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Extent;
use super::report::{ms, round_json};
use super::round::{self, Changed, Round};
use crate::error::LabError;
use crate::failover::{Audit, Load, Peer, median};
use crate::fault::Relay;
use crate::flavor::Flavor;
use crate::healing::{cluster, promoting, reported};
use crate::replication::{Replication, follow_at, set_read_only};
use crate::server::Server;
use crate::tidegate::{Builder, Tidegate};
use crate::topology::WRITER;
use crate::wait;

/// Longest until the proxy is ready to promote, has promoted, or a server is as it must be.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a frozen writer stays frozen.
const FROZEN: Duration = Duration::from_secs(30);
/// How long a cut lasts that must not lead to a promotion.
const CUT: Duration = Duration::from_secs(6);
/// A proxy that has just begun to look promotes nobody for so long.
const FIRST_LOOK: Duration = Duration::from_secs(3);

/// One way to lose a writer.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name in reports.
    pub name: &'static str,
    is_semi_sync: bool,
    /// What is wrong with the first replica before the writer is lost. The second one must take over then.
    flaw: Option<Flaw>,
    loss: Loss,
}

/// Damages a replica of a primary.
type Flaw = fn(&Server, &Server) -> Result<(), LabError>;

/// What happens to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Killed,
    Frozen,
    /// The proxy does not reach it, its replicas do.
    CutFromProxy,
    /// Its replicas do not reach it, the proxy does.
    CutFromReplicas,
}

/// All cases, in the order of reports.
pub const CASES: &[Case] = &[
    Case { name: "killed", is_semi_sync: false, flaw: None, loss: Loss::Killed },
    Case { name: "killed, semi-sync", is_semi_sync: true, flaw: None, loss: Loss::Killed },
    Case { name: "frozen for 30 s", is_semi_sync: false, flaw: None, loss: Loss::Frozen },
    Case { name: "killed, broken applier", is_semi_sync: false, flaw: Some(break_applier), loss: Loss::Killed },
    Case { name: "killed, delayed replica", is_semi_sync: false, flaw: Some(delay), loss: Loss::Killed },
    Case { name: "killed, errant replica", is_semi_sync: false, flaw: Some(write_errant), loss: Loss::Killed },
    Case { name: "killed, frozen replica", is_semi_sync: false, flaw: Some(freeze), loss: Loss::Killed },
    Case { name: "cut off from the proxy", is_semi_sync: false, flaw: None, loss: Loss::CutFromProxy },
    Case { name: "cut off from replicas", is_semi_sync: false, flaw: None, loss: Loss::CutFromReplicas },
];

/// One round.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The clients' view.
    pub round: Round,
    /// Lost transactions that the proxy reported.
    pub reported: u64,
    /// Servers that took writes in the end beside the writer.
    pub second_writers: usize,
    /// Whether the right server wrote in the end.
    pub is_right: bool,
}

/// All rounds of a case.
#[derive(Clone, Debug)]
pub struct Measured {
    case: Case,
    outcomes: Vec<Outcome>,
}

/// Heading of [`Measured::line`].
pub fn heading() -> String {
    format!(
        "{:<26}{:>5}{:>22}{:>8}{:>10}{:>7}{:>9}{:>16}{:>14}",
        "", "runs", "no write, ms: median", "max", "reported", "lost", "doubled", "second writers", "right server"
    )
}

/// Runs the cases whose name contains `only`, each `runs` times, and calls `news` after each round.
pub fn run(flavor: Flavor, runs: usize, only: Option<&str>, mut news: impl FnMut(&Case, &Outcome)) -> Result<Vec<Measured>, LabError> {
    let chosen = CASES.iter().filter(|case| only.is_none_or(|words| case.name.contains(words)));
    let mut all = Vec::new();
    for case in chosen {
        let mut outcomes = Vec::new();
        for _ in 0..runs {
            let outcome = case.play(flavor).map_err(|error| LabError::Protocol(format!("{}: {error}", case.name)))?;
            news(case, &outcome);
            outcomes.push(outcome);
        }
        all.push(Measured { case: *case, outcomes });
    }
    Ok(all)
}

/// How many rounds of each case.
pub fn runs(extent: Extent) -> usize {
    match extent {
        Extent::Short => 1,
        Extent::Full => 20,
    }
}

impl Case {
    fn play(&self, flavor: Flavor) -> Result<Outcome, LabError> {
        let servers = cluster(flavor, 2, self.is_semi_sync)?;
        let primary = &servers.primary;
        let relay = Relay::to(&primary.address())?;
        if self.loss == Loss::CutFromReplicas {
            servers.replicas.iter().try_for_each(|replica| follow_at(replica, "127.0.0.1", relay.port()))?;
            servers.wait_caught_up()?;
        }
        let port = if self.loss == Loss::CutFromProxy { relay.port() } else { primary.port() };
        let peer = Peer::tidegate(before(promoting(&[]), port, &servers).start()?);
        let Some(proxy) = peer.as_tidegate() else { return Err(LabError::Protocol("no proxy".to_owned())) };
        if let Some(flaw) = self.flaw {
            flaw(&servers.replicas[0], primary)?;
        }
        let is_ready = || healing(proxy, "verdict || ready").filter(|said| said == "alive1");
        wait::until("a cluster that is ready", LIMIT, is_ready)
            .map_err(|error| LabError::Protocol(format!("{error}: {:?}", healing(proxy, "blocked_by"))))?;
        thread::sleep(FIRST_LOOK);
        let mut plan = String::new();
        let round = round::run(peer.route(), Load::USUAL, || {
            let writer = self.lose(&servers, proxy, &relay, &mut plan)?;
            Ok(Changed { writer, writable: None })
        })?;
        let right = match (self.promotes(), self.flaw) {
            (false, _) => plan.is_empty(),
            (true, None) => !plan.is_empty(),
            (true, Some(_)) => plan.starts_with(&servers.replicas[1].address()),
        };
        if self.flaw.is_some() {
            servers.replicas[0].sigcont();
        }
        let reported = if plan.is_empty() { 0 } else { reported(&plan).ok_or_else(|| LabError::Protocol(plan.clone()))? };
        let open = std::iter::once(primary).chain(&servers.replicas).filter(|server| is_open(server)).count();
        Ok(Outcome { round, reported, second_writers: open.saturating_sub(1), is_right: right && open > 0 })
    }

    /// Whether somebody must be promoted.
    fn promotes(&self) -> bool {
        matches!(self.loss, Loss::Killed | Loss::Frozen)
    }

    /// Loses the writer, and waits for what the proxy does. Returns the server that writes in the end.
    fn lose<'a>(&self, servers: &'a Replication, proxy: &Tidegate, relay: &Relay, plan: &mut String) -> Result<&'a Server, LabError> {
        let primary = &servers.primary;
        let begun = Instant::now();
        match self.loss {
            Loss::Killed => primary.kill9(),
            Loss::Frozen => primary.sigstop(),
            Loss::CutFromProxy | Loss::CutFromReplicas => {
                relay.silence_all(true);
                thread::sleep(CUT);
                relay.silence_all(false);
                relay.cut();
                *plan = last_plan(proxy).unwrap_or_default();
                return Ok(primary);
            }
        }
        *plan = wait::until("a promotion", LIMIT, || last_plan(proxy))
            .map_err(|error| LabError::Protocol(format!("{error}: {:?} {:?}", healing(proxy, "verdict"), healing(proxy, "blocked_by"))))?;
        let heir = servers.replicas.iter().find(|replica| plan.starts_with(&replica.address()));
        let heir = heir.ok_or_else(|| LabError::Protocol(plan.clone()))?;
        if self.loss == Loss::Frozen {
            thread::sleep(FROZEN.saturating_sub(begun.elapsed()));
            primary.sigcont();
            wait::until("the old writer to be closed", LIMIT, || (!is_open(primary)).then_some(()))?;
        }
        Ok(heir)
    }
}

fn before(builder: Builder, primary: u16, servers: &Replication) -> Builder {
    let builder = builder.admin_variable("healing_alone", true).server(WRITER, "127.0.0.1", primary);
    servers.replicas.iter().fold(builder, |builder, replica| builder.backend(WRITER, replica))
}

fn healing(proxy: &Tidegate, columns: &str) -> Option<String> {
    proxy.admin().ok()?.scalar(format!("SELECT {columns} FROM stats_tidegate_healing")).ok()?
}

fn last_plan(proxy: &Tidegate) -> Option<String> {
    healing(proxy, "last_plan").filter(|plan| plan.contains("was promoted in place of"))
}

fn is_open(server: &Server) -> bool {
    server.scalar("SELECT @@global.read_only").is_ok_and(|value| value.as_deref() == Some("0"))
}

fn write_past_read_only(replica: &Server, statement: &str) -> Result<(), LabError> {
    set_read_only(replica, false)?;
    replica.sql(statement)?;
    set_read_only(replica, true)
}

/// Its applier stops at a row that is there already.
fn break_applier(replica: &Server, primary: &Server) -> Result<(), LabError> {
    primary.sql("CREATE TABLE test.broken(n BIGINT PRIMARY KEY)")?;
    wait::until("the table", LIMIT, || replica.sql("SELECT n FROM test.broken").ok())?;
    set_read_only(replica, false)?;
    let mut root = replica.root()?;
    root.run("SET sql_log_bin=0")?;
    root.run("INSERT INTO test.broken VALUES(1)")?;
    set_read_only(replica, true)?;
    primary.sql("INSERT INTO test.broken VALUES(1)")?;
    let (status, column) = match replica.flavor() {
        Flavor::Mariadb => ("SHOW SLAVE STATUS", "Slave_SQL_Running"),
        Flavor::Mysql => ("SHOW REPLICA STATUS", "Replica_SQL_Running"),
    };
    wait::try_until("its applier to stop", LIMIT, || {
        Ok((replica.sql(status)?.rows()?.field(0, column).as_deref() == Some("No")).then_some(()))
    })
}

/// It applies an hour later.
fn delay(replica: &Server, _primary: &Server) -> Result<(), LabError> {
    let statements = match replica.flavor() {
        Flavor::Mariadb => ["STOP SLAVE", "CHANGE MASTER TO MASTER_DELAY=3600", "START SLAVE"],
        Flavor::Mysql => ["STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_DELAY=3600", "START REPLICA"],
    };
    statements.iter().try_for_each(|statement| replica.sql(statement).map(drop))
}

/// It has a transaction that nobody else has.
fn write_errant(replica: &Server, _primary: &Server) -> Result<(), LabError> {
    write_past_read_only(replica, "CREATE TABLE test.errant(n BIGINT PRIMARY KEY)")
}

/// It answers nothing.
fn freeze(replica: &Server, _primary: &Server) -> Result<(), LabError> {
    replica.sigstop();
    Ok(())
}

impl Measured {
    fn audit(&self) -> Audit {
        self.outcomes.iter().map(|outcome| outcome.round.audit).fold(Audit::default(), Audit::plus)
    }

    /// Whether in each round the right server wrote alone, writes flowed, no row was doubled or torn, and no more was lost than reported.
    pub fn is_kept(&self) -> bool {
        self.outcomes.iter().all(|outcome| {
            let audit = outcome.round.audit;
            let is_whole = audit.doubled + audit.torn + audit.foreign == 0 && audit.lost <= outcome.reported;
            let is_lossless = !self.case.is_semi_sync || audit.lost == 0;
            outcome.is_right && outcome.round.is_flowing && outcome.second_writers == 0 && is_whole && is_lossless
        })
    }

    /// One line of the table.
    pub fn line(&self) -> String {
        let down: Vec<u64> = self.outcomes.iter().map(|outcome| outcome.round.tally.downtime_us).collect();
        let audit = self.audit();
        let right = self.outcomes.iter().filter(|outcome| outcome.is_right).count();
        format!(
            "{:<26}{:>5}{:>22}{:>8}{:>10}{:>7}{:>9}{:>16}{:>14}{}",
            self.case.name,
            self.outcomes.len(),
            ms(median(&down)),
            ms(down.iter().max().copied()),
            self.outcomes.iter().map(|outcome| outcome.reported).sum::<u64>(),
            audit.lost,
            audit.doubled + audit.foreign + audit.torn,
            self.outcomes.iter().map(|outcome| outcome.second_writers).sum::<usize>(),
            format!("{right} of {}", self.outcomes.len()),
            if self.is_kept() { "" } else { "  BROKEN" }
        )
    }

    /// Everything, for machines.
    pub fn json(&self) -> Value {
        let outcome = |one: &Outcome| json!({ "reported": one.reported, "second_writers": one.second_writers, "is_right": one.is_right, "round": round_json(&one.round) });
        json!({ "case": self.case.name, "rounds": self.outcomes.iter().map(outcome).collect::<Vec<_>>() })
    }
}
