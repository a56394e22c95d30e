//! Scenes: a cluster is changed and changed back, while clients work through the proxy and its layout is watched.
//!
//! The layout has a short form: `w=1 r=2,3 b=2 o=-` names the servers (from 1) of the writers', readers', backup writers' and offline
//! hostgroups. A server that is not ONLINE has a letter: `s` SHUNNED, `f` OFFLINE_SOFT, `h` OFFLINE_HARD.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::report::{self, Class, Series, ms, round_json};
use super::round::{self, Changed, Round};
use crate::aurora::AuroraStandIn;
use crate::client::Client;
use crate::error::LabError;
use crate::failover::{Load, Peer};
use crate::galera::Galera;
use crate::group::Group;
use crate::plot::{Chart, Shape};
use crate::server::Server;
use crate::tidegate::{Builder, Setting, Tidegate};
use crate::topology::{self, BACKUP, OFFLINE, Placed, READER, Topology, WRITER};
use crate::wait;

/// A layout that has been the same for this long has settled.
const SETTLED: Duration = Duration::from_millis(1_200);
/// One that has not settled after this long is reported as it is.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
/// Time between two looks at the layout.
const LOOK: Duration = Duration::from_millis(25);

/// The parts that a scene works on.
#[derive(Debug)]
pub struct Stage<'a> {
    /// The servers.
    pub topology: &'a Topology,
    /// The proxy before them.
    pub proxy: &'a Tidegate,
    /// A connection that holds a lock from the change to its end.
    held: Mutex<Option<Client>>,
}

/// A change, or its undoing.
type Act = fn(&Stage<'_>) -> Result<(), LabError>;

/// The promise about the clients' view of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// No error at all.
    NoError,
    /// Errors only of writes under way and of open transactions on a server that was lost.
    OnlyInFlight,
    /// Errors may come, when the outage is longer than clients are held.
    Anything,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Its name in reports.
    pub name: &'static str,
    /// The change.
    pub change: Act,
    /// How it is undone.
    pub heal: Act,
    /// The promise about the clients' view.
    pub promise: Promise,
    /// The layout that must come while it is so.
    pub expects: fn(&str) -> bool,
}

/// The observations of a scene.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The scene's name.
    pub name: String,
    /// The layout before.
    pub before: String,
    /// When the change was done and writes flowed.
    pub during: String,
    /// When it was undone and the layout had settled.
    pub after: String,
    /// Each layout that was seen, with the ms since the change began.
    pub layouts: Vec<(u64, String)>,
    /// The clients' view.
    pub round: Round,
    /// The promise that was made.
    pub promise: Promise,
    /// Whether the layout came that must.
    pub is_expected: bool,
}

impl Stage<'_> {
    /// The Galera cluster that it is.
    pub fn galera(&self) -> Result<&Galera, LabError> {
        match self.topology {
            Topology::Galera(galera) => Ok(galera),
            _ => Err(self.wrong_kind()),
        }
    }

    /// The group that it is.
    pub fn group(&self) -> Result<&Group, LabError> {
        match self.topology {
            Topology::Group(group) => Ok(group),
            _ => Err(self.wrong_kind()),
        }
    }

    /// The stand-in that it is.
    pub fn aurora(&self) -> Result<&AuroraStandIn, LabError> {
        match self.topology {
            Topology::Aurora(aurora) => Ok(aurora),
            _ => Err(self.wrong_kind()),
        }
    }

    fn wrong_kind(&self) -> LabError {
        LabError::Protocol(format!("this scene does not play on {}", self.topology.name()))
    }

    /// Keeps a connection, with its locks, until [`Stage::let_go`].
    pub fn hold(&self, client: Client) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }

    /// Closes the kept connections.
    pub fn let_go(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Sets a server's status in every hostgroup, as an operator does.
    pub fn set_status(&self, index: usize, status: &str) -> Result<(), LabError> {
        let (host, port) = &self.topology.endpoints()[index];
        let mut admin = self.proxy.admin()?;
        admin.run(format!("UPDATE mysql_servers SET status='{status}' WHERE hostname='{host}' AND port={port}"))?;
        admin.run("LOAD MYSQL SERVERS TO RUNTIME").map(drop)
    }
}

/// The proxy before a topology, as scenes need it: default settings, but a preferred writer is back after a second.
pub fn proxied(topology: &Topology, roles: &[(&str, Setting)]) -> Builder {
    let builder = topology.describe_with(Tidegate::builder(), roles).app_user().user("empty", "", READER);
    builder.variable("failback", "delayed").variable("failback_delay_ms", 1_000)
}

impl Scene {
    /// Plays it with clients at work. The topology is in order before, and after.
    pub fn play(&self, topology: &Topology, builder: &Builder, load: Load) -> Result<Seen, LabError> {
        let peer = Peer::tidegate(builder.start()?);
        let Some(proxy) = peer.as_tidegate() else { return Err(LabError::Protocol("no proxy".to_owned())) };
        let stage = Stage { topology, proxy, held: Mutex::new(None) };
        let watch = Watch::new(topology, proxy);
        let before = watch.settle(|layout| layout.contains("w=") && !layout.contains("w=-"))?;
        prepare(topology)?;
        let during = Mutex::new(String::new());
        let (round, layouts) = watch.over(|| {
            round::run(peer.route(), load, || {
                (self.change)(&stage)?;
                *during.lock().unwrap_or_else(PoisonError::into_inner) = watch.settle(self.expects)?;
                (self.heal)(&stage)?;
                let writer = watch.settled_writer(&before)?;
                Ok(Changed { writer, writable: None })
            })
        });
        let round = round.map_err(|error| LabError::Protocol(format!("{}: {error}\nlayouts {layouts:?}", self.name)))?;
        let during = during.into_inner().unwrap_or_else(PoisonError::into_inner);
        let after = watch.layout()?;
        let is_expected = (self.expects)(&during);
        Ok(Seen { name: self.name.to_owned(), before, during, after, layouts, round, promise: self.promise, is_expected })
    }
}

/// Expectation of a scene that should change nothing, or of which nothing is known: there is a writer.
pub fn has_writer(layout: &str) -> bool {
    !layout.starts_with("w=-")
}

/// Expectation: the first server does not write.
pub fn first_is_no_writer(layout: &str) -> bool {
    has_writer(layout) && !layout.starts_with("w=1 ") && !layout.starts_with("w=1,")
}

/// Expectation: the third server does not read.
pub fn third_is_no_reader(layout: &str) -> bool {
    let readers = layout.split(" r=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    has_writer(layout) && !readers.split(',').any(|one| one == "3")
}

/// Creates the clients' table on the writer.
fn prepare(topology: &Topology) -> Result<(), LabError> {
    let servers = topology.servers();
    let takes_writes = |server: &&Server| server.scalar("SELECT @@global.read_only").is_ok_and(|value| value.as_deref() == Some("0"));
    let writer = servers.iter().copied().find(takes_writes).unwrap_or(servers[0]);
    round::prepare(writer, &servers)
}

/// Looks at the proxy's layout.
struct Watch<'a> {
    topology: &'a Topology,
    proxy: &'a Tidegate,
    names: BTreeMap<String, usize>,
}

impl<'a> Watch<'a> {
    fn new(topology: &'a Topology, proxy: &'a Tidegate) -> Watch<'a> {
        let endpoints = topology.endpoints().into_iter().enumerate();
        let names = endpoints.map(|(index, (host, port))| (format!("{host}:{port}"), index + 1)).collect();
        Watch { topology, proxy, names }
    }

    fn layout(&self) -> Result<String, LabError> {
        Ok(short(&topology::layout(self.proxy)?, &self.names))
    }

    /// Waits until the layout is as wanted and has been the same for a while; gives it as it is when that takes too long.
    fn settle(&self, wanted: impl Fn(&str) -> bool) -> Result<String, LabError> {
        let mut last = (self.layout()?, Instant::now());
        let settled = wait::try_until("the layout to settle", SETTLE_LIMIT, || {
            let now = self.layout()?;
            if now != last.0 {
                last = (now, Instant::now());
            }
            Ok((wanted(&last.0) && last.1.elapsed() >= SETTLED).then(|| last.0.clone()))
        });
        match settled {
            Ok(layout) => Ok(layout),
            Err(LabError::Deadline { .. }) => Ok(last.0),
            Err(error) => Err(error),
        }
    }

    /// Waits until the layout is as before, or another one that lasts. Returns a server that has all rows.
    fn settled_writer(&self, before: &str) -> Result<&'a Server, LabError> {
        let is_whole = |layout: &str| layout == before || !layout.contains(['s', 'h', 'f']) && self.has_all(layout);
        let layout = self.settle(is_whole)?;
        let writer = layout.split("w=").nth(1).and_then(|rest| rest.chars().next()).and_then(|digit| digit.to_digit(10));
        let index = writer.map_or(0, |number| (number as usize).saturating_sub(1));
        Ok(self.topology.servers()[index])
    }

    fn has_all(&self, layout: &str) -> bool {
        let used = layout.split(" o=").next().unwrap_or_default();
        self.names.values().all(|number| used.contains(&number.to_string()))
    }

    /// Notes each new layout while `work` runs.
    fn over<T>(&self, work: impl FnOnce() -> T) -> (T, Vec<(u64, String)>) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let (start, mut seen) = (Instant::now(), Vec::<(u64, String)>::new());
                while !is_over.load(Ordering::Acquire) {
                    if let Ok(now) = self.layout()
                        && seen.last().is_none_or(|(_, last)| *last != now)
                    {
                        seen.push((u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX), now));
                    }
                    thread::sleep(LOOK);
                }
                seen
            });
            let done = work();
            is_over.store(true, Ordering::Release);
            (done, looking.join().unwrap_or_default())
        })
    }
}

/// A layout in short.
fn short(placed: &[Placed], names: &BTreeMap<String, usize>) -> String {
    let one = |placed: &Placed| {
        let number = names.get(&placed.server).map_or("?".to_owned(), usize::to_string);
        let letter = match placed.status.as_str() {
            "ONLINE" => "",
            "SHUNNED" => "s",
            "OFFLINE_SOFT" => "f",
            _ => "h",
        };
        format!("{number}{letter}")
    };
    let of = |hostgroup: i64| {
        let mut all: Vec<String> = placed.iter().filter(|placed| placed.hostgroup == hostgroup).map(one).collect();
        all.sort();
        if all.is_empty() { "-".to_owned() } else { all.join(",") }
    };
    format!("w={} r={} b={} o={}", of(WRITER), of(READER), of(BACKUP), of(OFFLINE))
}

/// Heading of [`Seen::line`].
pub const HEADING: &str = "scene                            errors: unknown  open  other  stall, ms  down, ms  lost+doubled  \
                       layout before > during > after";

impl Seen {
    /// Works and errors over time.
    pub fn chart(&self, prefix: &str) -> Chart {
        let names = ["works", "errors"].map(str::to_owned).into_iter();
        let lines = names.zip(report::lines(&self.round.tally, &(i64::MIN..i64::MAX))).collect();
        let title = format!("{prefix}{}: done at 0", self.name);
        Chart { title, x: "seconds".to_owned(), y: "a second".to_owned(), shape: Shape::Lines(lines) }
    }

    fn series(&self) -> Series {
        Series { name: self.name.clone(), rounds: vec![self.round.clone()] }
    }

    /// One line of the table.
    pub fn line(&self) -> String {
        let (series, tally, audit) = (self.series(), &self.round.tally, self.round.audit);
        format!(
            "{:<33}{:>15}{:>6}{:>7}{:>11}{:>10}{:>14}  {} > {} > {}{}",
            self.name,
            series.errors(Class::Unknown),
            series.errors(Class::OpenTransaction),
            series.errors(Class::Avoidable),
            ms(Some(tally.longest_stall_us)),
            ms(Some(tally.downtime_us)),
            audit.lost + audit.doubled + audit.foreign + audit.torn,
            self.before,
            self.during,
            self.after,
            if self.is_kept() { "" } else { "   BROKEN" }
        )
    }

    /// Errors with an example of each.
    pub fn error_lines(&self) -> Vec<String> {
        self.series().error_lines()
    }

    /// Whether the promise held.
    pub fn is_kept(&self) -> bool {
        self.broken(&[]).is_empty()
    }

    /// The broken promises; `known` are places where errors are known to come that should not.
    pub fn broken(&self, known: &[&str]) -> Vec<String> {
        let mut broken = Vec::new();
        for ((code, during), (count, _)) in self.round.tally.errors.iter().filter(|((_, during), _)| !known.contains(during)) {
            let is_allowed = match self.promise {
                Promise::NoError => false,
                Promise::OnlyInFlight => Class::of(*code, during) != Class::Avoidable,
                Promise::Anything => true,
            };
            if !is_allowed {
                broken.push(format!("{count} x {code} at {during}"));
            }
        }
        let facts = [
            (self.round.audit.is_clean(), "rows are lost or doubled"),
            (self.round.is_flowing, "writes do not flow"),
            (self.is_expected, "the layout did not come"),
        ];
        broken.extend(facts.iter().filter(|(holds, _)| !holds).map(|(_, what)| (*what).to_owned()));
        broken
    }

    /// For machines.
    pub fn json(&self) -> Value {
        json!({
            "scene": self.name,
            "before": self.before,
            "during": self.during,
            "after": self.after,
            "layouts": self.layouts.iter().map(|(at_ms, layout)| json!({ "ms": at_ms, "layout": layout })).collect::<Vec<_>>(),
            "is_expected": self.is_expected,
            "is_kept": self.is_kept(),
            "round": round_json(&self.round),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_in_short() {
        let names = [("h:1".to_owned(), 1), ("h:2".to_owned(), 2)].into();
        let placed = |hostgroup, server: &str, status: &str| Placed { hostgroup, server: server.to_owned(), status: status.to_owned() };
        let all = [placed(0, "h:1", "ONLINE"), placed(1, "h:2", "SHUNNED"), placed(1, "h:1", "ONLINE"), placed(3, "x:9", "OFFLINE_HARD")];
        assert_eq!(short(&all, &names), "w=1 r=1,2s b=- o=?h");
    }

    #[test]
    fn expectations() {
        assert!(first_is_no_writer("w=2 r=1 b=- o=-") && first_is_no_writer("w=1f,3 r=2 b=2 o=-"));
        assert!(!first_is_no_writer("w=1 r=2 b=- o=-") && !first_is_no_writer("w=- r=2 b=- o=1s"));
        assert!(third_is_no_reader("w=1 r=2,3s b=- o=-") && third_is_no_reader("w=1 r=2 b=3 o=3"));
        assert!(!third_is_no_reader("w=1 r=2,3 b=- o=-"));
    }
}
