//! Runs a plan: starts the server and the peers, puts every load on them in turn, gathers figures and failures.
//!
//! A peer that fails under a load has failed there, with the reason in the report; the rest goes on. A proxy that died
//! is started again for the next load.

use std::time::Instant;

use super::compare::{self, Compared};
use super::digests::{self, DigestSpeed};
use super::fleet::Fleet;
use super::idle::{self, Idle, Security};
use super::load_times::{self, LoadTimes};
use super::peer::{self, Kind, Peer};
use super::plan::{DIGESTS, LOAD_TIMES, Plan, Point};
use super::summary::{Figures, Ratio};
use super::usage::{self, Usage};
use crate::error::LabError;
use crate::flavor::Flavor;
use crate::server::Server;

/// Lines of a proxy's log shown with a failure.
const LOG_LINES: usize = 5;

/// The result of one load: for each peer its medians, or the error.
#[derive(Clone, Debug)]
pub struct PointOutcome {
    /// The load.
    pub point: Point,
    /// The peers in the order in which they took turns.
    pub peers: Vec<(Kind, Result<Figures, String>)>,
    /// Tidegate's cost as a multiple of HAProxy's.
    pub ratio: Option<Ratio>,
    /// The machine's load averages when it was done.
    pub load_average: String,
}

impl PointOutcome {
    /// A peer's figures, when it has any.
    pub fn figures(&self, kind: Kind) -> Option<&Figures> {
        self.peers.iter().find(|(peer, _)| *peer == kind).and_then(|(_, result)| result.as_ref().ok())
    }
}

/// The result of a whole run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The plan's name.
    pub plan: &'static str,
    /// Repeats of each measurement.
    pub repeats: usize,
    /// The loads.
    pub points: Vec<PointOutcome>,
    /// Tidegate against itself.
    pub compared: Vec<Compared>,
    /// Times of LOAD.
    pub load_times: Vec<LoadTimes>,
    /// Rates of analysis and digests.
    pub digests: Vec<DigestSpeed>,
    /// Memory of idle clients.
    pub idle: Vec<Idle>,
    /// Skipped and failed measurements with their reasons.
    pub not_measured: Vec<String>,
    /// Versions of the measured programs.
    pub versions: Vec<String>,
    /// Load averages before the first measurement.
    pub load_before: String,
    /// Load averages after the last.
    pub load_after: String,
    /// Seconds that all of it took.
    pub seconds: f64,
}

/// Something to show as soon as it is known.
#[derive(Debug)]
pub enum News<'a> {
    /// Work begins on this.
    Begins(&'a str),
    /// A load is done.
    Point(&'a PointOutcome),
    /// A comparison is done.
    Compared(&'a Compared),
    /// A table was loaded.
    LoadTimes(&'a LoadTimes),
    /// A statement was read.
    Digest(&'a DigestSpeed),
    /// A measurement of memory is done.
    Idle(&'a Idle),
}

/// Runs `plan` on `kinds`. An error is only what makes all of it impossible, such as no server.
pub fn run(plan: &Plan, kinds: &[Kind], tell: &mut dyn FnMut(News<'_>)) -> Result<Outcome, LabError> {
    let began = Instant::now();
    peer::raise_open_files()?;
    tell(News::Begins("the server"));
    let server = peer::start_server(Flavor::Mariadb)?;
    let mut runner = Runner { server, plan, peers: Vec::new(), outcome: Outcome::default() };
    runner.outcome.plan = plan.name;
    runner.outcome.repeats = plan.repeats;
    runner.outcome.versions = runner.versions()?;
    runner.outcome.load_before = usage::load_average();
    runner.leave_out(kinds);
    runner.start_peers(kinds);
    for point in &plan.points {
        let outcome = runner.point(point);
        tell(News::Point(&outcome));
        runner.outcome.points.push(outcome);
    }
    runner.peers.clear();
    runner.itself(kinds, tell);
    runner.idle(kinds, tell);
    runner.outcome.load_after = usage::load_average();
    runner.outcome.seconds = began.elapsed().as_secs_f64();
    Ok(runner.outcome)
}

struct Runner<'a> {
    server: Server,
    plan: &'a Plan,
    peers: Vec<Peer>,
    outcome: Outcome,
}

impl Runner<'_> {
    fn versions(&self) -> Result<Vec<String>, LabError> {
        let server = self.server.scalar("SELECT VERSION()")?.unwrap_or_default();
        let haproxy = peer::haproxy_version().unwrap_or_else(|| "no HAProxy".to_owned());
        Ok(vec![format!("server {server}"), haproxy, format!("tidegate {}", env!("CARGO_PKG_VERSION"))])
    }

    /// Notes the peers that were not asked for or cannot be measured here.
    fn leave_out(&mut self, kinds: &[Kind]) {
        let missing = Kind::ALL.iter().filter(|kind| !kinds.contains(kind));
        self.outcome.not_measured.extend(missing.map(|kind| format!("{}: left out by request", kind.name())));
        let proxysql = "ProxySQL: not installed on this machine, not measured";
        self.outcome.not_measured.push(proxysql.to_owned());
    }

    fn start_peers(&mut self, kinds: &[Kind]) {
        for kind in kinds {
            match Peer::start(*kind, &self.server) {
                Ok(peer) => self.peers.push(peer),
                Err(error) => self.outcome.not_measured.push(format!("{}: did not start: {error}", kind.name())),
            }
        }
    }

    /// All repeats of one load on all peers, taking turns.
    fn point(&mut self, point: &Point) -> PointOutcome {
        let mut measured: Vec<Result<Vec<Figures>, String>> = self.peers.iter().map(|_| Ok(Vec::new())).collect();
        for _ in 0..self.plan.repeats {
            for (peer, so_far) in self.peers.iter_mut().zip(&mut measured) {
                let Ok(figures) = so_far else { continue };
                match measure(peer, point, &self.server) {
                    Ok(more) => figures.push(more),
                    Err(error) => *so_far = Err(failed(peer, &error, &self.server)),
                }
            }
        }
        let ratio = self.ratio(&measured);
        let peers = self.peers.iter().zip(measured);
        let peers: Vec<_> = peers.map(|(peer, all)| (peer.kind(), all.map(|all| Figures::median(&all)))).collect();
        for (kind, result) in &peers {
            if let Err(reason) = result {
                let note = format!("{}: {}, {} clients: {reason}", kind.name(), point.name, point.clients);
                self.outcome.not_measured.push(note);
            }
        }
        PointOutcome { point: point.clone(), peers, ratio, load_average: usage::load_average() }
    }

    /// Pairs measurements of the same repeat, so that a slow minute of the machine weighs on both sides.
    fn ratio(&self, measured: &[Result<Vec<Figures>, String>]) -> Option<Ratio> {
        let of = |kind| {
            let index = self.peers.iter().position(|peer| peer.kind() == kind)?;
            measured[index].as_ref().ok()
        };
        Ratio::of_costs(of(Kind::Tidegate)?, of(Kind::Haproxy)?)
    }

    /// The measurements of Tidegate alone, if asked for.
    fn itself(&mut self, kinds: &[Kind], tell: &mut dyn FnMut(News<'_>)) {
        if !kinds.contains(&Kind::Tidegate) {
            return;
        }
        for comparison in &self.plan.comparisons {
            tell(News::Begins(comparison.point.name));
            let compared = compare::compare(comparison, self.plan.repeats, &self.server);
            tell(News::Compared(&compared));
            let failures = compared.rows.iter().filter_map(|row| Some((row, row.figures.as_ref().err()?)));
            let notes = failures.map(|(row, reason)| format!("{}: {}: {reason}", comparison.point.name, row.name));
            self.outcome.not_measured.extend(notes);
            self.outcome.compared.push(compared);
        }
        if let Some(sizes) = self.plan.load_times {
            tell(News::Begins(LOAD_TIMES));
            match load_times::measure(sizes, &self.server) {
                Ok(times) => self.outcome.load_times = times,
                Err(error) => self.outcome.not_measured.push(format!("{LOAD_TIMES}: {error}")),
            }
            self.outcome.load_times.iter().for_each(|times| tell(News::LoadTimes(times)));
        }
        if let Some(window) = self.plan.digest_window {
            tell(News::Begins(DIGESTS));
            self.outcome.digests = digests::measure(window);
            self.outcome.digests.iter().for_each(|speed| tell(News::Digest(speed)));
        }
    }

    /// Memory of idle clients, each on a peer of its own that has seen no load yet.
    fn idle(&mut self, kinds: &[Kind], tell: &mut dyn FnMut(News<'_>)) {
        let wanted = self.plan.idle_clients;
        let cases = [(Kind::Haproxy, Security::Plain), (Kind::Tidegate, Security::Plain), (Kind::Tidegate, Security::Tls)];
        for (kind, security) in cases.into_iter().filter(|(kind, _)| wanted > 0 && kinds.contains(kind)) {
            let name = format!("{} idle clients, {}", kind.name(), security.name());
            tell(News::Begins(&name));
            let clients = kind.idle_clients(wanted);
            if clients < wanted {
                let note = format!("{name}: {clients} instead of {wanted}: {} open files are allowed", peer::open_files());
                self.outcome.not_measured.push(note);
            }
            match idle::measure(kind, &self.server, security, clients) {
                Ok(idle) => {
                    tell(News::Idle(&idle));
                    self.outcome.idle.push(idle);
                }
                Err(error) => self.outcome.not_measured.push(format!("{name}: {error}")),
            }
        }
    }
}

/// One measurement: connect, warm up, measure, close.
pub(super) fn measure(peer: &Peer, point: &Point, server: &Server) -> Result<Figures, LabError> {
    let mut fleet = Fleet::open(&point.load(peer.address()))?;
    fleet.run(point.warm_up)?;
    let before = (peer.usage()?, Usage::read(server.pid())?);
    let run = fleet.run(point.window)?;
    let usage = peer.usage()?.since(&before.0);
    Ok(Figures::of(point, &run, &usage, &Usage::read(server.pid())?.since(&before.1)))
}

/// The text about a failure. A proxy that died is replaced.
fn failed(peer: &mut Peer, error: &LabError, server: &Server) -> String {
    let mut reason = error.to_string();
    let log = peer.log_tail(LOG_LINES);
    if !log.is_empty() {
        reason.push_str(&format!("; its log ends with:\n{log}"));
    }
    if peer.usage().is_err() {
        reason.push_str("\n(the process had died)");
        if let Ok(fresh) = Peer::start(peer.kind(), server) {
            *peer = fresh;
        }
    }
    reason
}
