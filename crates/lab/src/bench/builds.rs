//! Builds of the proxy, or one build under several settings, against each other, HAProxy and direct connections. Many short
//! measurements in turn show differences of a percent. A [`super::plan`] of three repeats cannot tell those from the machine's noise.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::peer::{self, Kind, Peer};
use super::plan::{Plan, Point, Unit};
use super::runner::measure;
use super::summary::{Figures, Ratio};
use crate::error::LabError;
use crate::flavor::Flavor;
use crate::server::Server;

const WARM_UP: Duration = Duration::from_millis(100);
const WINDOW: Duration = Duration::from_millis(400);

/// The heading of the lines that [`run`] tells.
pub const HEADING: &str = "load                            clients  peer         CPU us/query   least  (user)  switches  x HAProxy  x first  \
                           server us  x direct   units/s  p50 ms  p99 ms";

/// A build and its variables: `NAME=PATH[,VARIABLE=NUMBER...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Its name in the report.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Variables of the group `mysql_variables`.
    pub variables: Vec<(String, i64)>,
}

impl FromStr for Build {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(|part| part.split_once('=').ok_or_else(|| format!("`{part}` has no `=`")));
        let (name, program) = parts.next().unwrap_or_else(|| Err("no build".to_owned()))?;
        let number = |(name, value): (&str, &str)| match value.parse() {
            Ok(value) => Ok((name.to_owned(), value)),
            Err(_) => Err(format!("`{value}` is no number")),
        };
        let variables = parts.map(|part| part.and_then(number)).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), program: program.into(), variables })
    }
}

impl Build {
    /// Starts it before `server`, with its variables.
    pub fn start(&self, server: &Server) -> Result<Peer, LabError> {
        Peer::tidegate(server, |builder| {
            let builder = builder.program(&self.program);
            self.variables.iter().fold(builder, |builder, (name, value)| builder.variable(name, *value))
        })
    }
}

/// Measures the builds, HAProxy and direct connections to a server of `flavor` in turn, `repeats` times. The loads are the point selects
/// of at least 16 clients, paced ones too, whose name contains `only`. Passes a line for each peer under each load to `tell`.
pub fn run(builds: &[Build], flavor: Flavor, only: Option<&str>, repeats: usize, tell: &mut dyn FnMut(String)) -> Result<(), LabError> {
    peer::raise_open_files()?;
    let server = peer::start_server(flavor)?;
    let mut peers = vec![("direct", Peer::start(Kind::Direct, &server)?), ("haproxy", Peer::start(Kind::Haproxy, &server)?)];
    for build in builds {
        peers.push((&build.name, build.start(&server)?));
    }
    for point in points(only) {
        let mut all: Vec<Vec<Figures>> = vec![Vec::new(); peers.len()];
        for round in 0..repeats {
            // Each comes after each other one.
            for turn in 0..peers.len() {
                let i = (turn + round) % peers.len();
                all[i].push(measure(&peers[i].1, &point, &server)?);
            }
        }
        for ((name, _), figures) in peers.iter().zip(&all) {
            tell(line(&point, name, figures, &all));
        }
    }
    Ok(())
}

fn points(only: Option<&str>) -> Vec<Point> {
    let plan = only.into_iter().fold(Plan::full(), Plan::only);
    let points = plan.points.into_iter().filter(|point| point.unit == Unit::Query);
    points.filter(|point| point.clients >= 16).map(|point| Point { warm_up: WARM_UP, window: WINDOW, ..point }).collect()
}

/// `all`: direct, HAProxy, the first build, ...
fn line(point: &Point, name: &str, figures: &[Figures], all: &[Vec<Figures>]) -> String {
    let median = Figures::median(figures);
    let least = figures.iter().map(|f| f.cpu_us).min_by(f64::total_cmp).unwrap_or_default();
    let ratio = |to: usize, cost| {
        let ratio = all.get(to).and_then(|to| Ratio::of(figures, to, cost));
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.3}", ratio.median))
    };
    format!(
        "{:<31} {:>7}  {name:<12} {:>12.2}  {least:>6.2}  {:>6.2}  {:>8.2}  {:>9}  {:>7}  {:>9.2}  {:>8}  {:>8.0}  {:>6.2}  {:>6.2}",
        point.name,
        point.clients,
        median.cpu_us,
        median.user_us,
        median.switches,
        ratio(1, |f| f.cpu_us),
        ratio(2, |f| f.cpu_us),
        median.server_us,
        ratio(0, |f| f.server_us),
        median.per_second,
        median.p50_us / 1000.0,
        median.p99_us / 1000.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_as_they_are_written() {
        let build: Build = "new=target/release/tidegate,threads=2,max_connections=100".parse().unwrap();
        assert_eq!((build.name.as_str(), build.program.to_str()), ("new", Some("target/release/tidegate")));
        assert_eq!(build.variables, [("threads".to_owned(), 2), ("max_connections".to_owned(), 100)]);
        for wrong in ["", "new", "new=a,b", "new=a,b=c"] {
            assert!(wrong.parse::<Build>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn loads_are_those_of_point_selects() {
        let clients = |only| points(only).iter().map(|point| (point.name, point.clients)).collect::<Vec<_>>();
        assert_eq!(clients(Some("prepared")), [16, 64, 256, 1024].map(|clients| ("point select, prepared", clients)));
        assert_eq!(clients(None).len(), 9, "with the paced one");
    }
}
