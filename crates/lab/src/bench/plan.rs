//! The loads, their lengths and their repeats. Data only.

use std::net::SocketAddr;
use std::time::Duration;

use super::arrangement::{Comparison, comparisons};
use super::fleet::Load;
use super::load_times::Sizes;
use super::work::Work;

/// Client numbers of the point selects.
const CLIENTS: [usize; 5] = [1, 16, 64, 256, 1024];
/// Commands a second of the paced load: well below what two cores can do.
const PACE: u32 = 8_000;
/// Queries a second where copies are compared.
const COPIES_PACE: u32 = 4_000;

/// Comparisons of a quick run are many, so each is short.
const QUICK_WARM_UP: Duration = Duration::from_millis(200);
const QUICK_WINDOW: Duration = Duration::from_millis(500);
/// Name of the measurement of LOAD.
pub const LOAD_TIMES: &str = "LOAD times";
/// Name of the measurement of analysis and digests.
pub const DIGESTS: &str = "digest throughput";

/// The unit of work, for costs and rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A query.
    Query,
    /// A connection with one query.
    Connection,
    /// A million bytes of rows.
    Megabyte,
}

impl Unit {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Query => "query",
            Unit::Connection => "connection",
            Unit::Megabyte => "MB",
        }
    }
}

/// One load, to be put on all peers in turn.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its name in reports.
    pub name: &'static str,
    /// Number of clients.
    pub clients: usize,
    /// The work of each client.
    pub work: Work,
    /// Commands a second, when not as many as go.
    pub pace: Option<u32>,
    /// The unit of the costs.
    pub unit: Unit,
    /// Time before each measurement, for pools and caches to fill.
    pub warm_up: Duration,
    /// Time of each measurement.
    pub window: Duration,
}

/// All of a run of the benchmark.
#[derive(Clone, Debug)]
pub struct Plan {
    /// `quick` or `full`.
    pub name: &'static str,
    /// The loads, in order.
    pub points: Vec<Point>,
    /// Measurements of each point on each peer, of which the median is told.
    pub repeats: usize,
    /// Configurations of Tidegate against each other.
    pub comparisons: Vec<Comparison>,
    /// How much configuration is loaded; `None` for no such measurement.
    pub load_times: Option<Sizes>,
    /// How long each figure of digests takes, once; `None` for no such measurement.
    pub digest_window: Option<Duration>,
    /// Idle clients whose memory is measured.
    pub idle_clients: usize,
}

impl Plan {
    /// Under twenty minutes: every point three times.
    pub fn full() -> Plan {
        let (warm_up, window) = (Duration::from_millis(500), Duration::from_secs(4));
        let point = |name, work: &Work, clients| Point::new(name, work, clients, warm_up, window);
        let mut points = Vec::new();
        points.extend(CLIENTS.map(|clients| point("point select, text", &Work::PointText, clients)));
        points.push(point("point select, text, paced", &Work::PointText, 64).paced(PACE));
        points.extend(CLIENTS.map(|clients| point("point select, prepared", &Work::PointPrepared, clients)));
        points.extend([1, 16, 64, 256, 1_024].map(|clients| point("connect, query, close", &Work::Connect, clients)));
        points.extend(large(Duration::from_millis(2000)));
        Plan {
            name: "full",
            points,
            repeats: 3,
            comparisons: comparisons(COPIES_PACE, point),
            load_times: Some(Sizes { rules: 100_000, servers: 10_000 }),
            digest_window: Some(Duration::from_millis(300)),
            idle_clients: 10_000,
        }
    }

    /// Under three minutes: fewer points, shorter.
    pub fn quick() -> Plan {
        let (warm_up, window) = (Duration::from_millis(250), Duration::from_millis(700));
        let point = |name, work: &Work, clients| Point::new(name, work, clients, warm_up, window);
        let mut points = Vec::new();
        points.extend(CLIENTS.map(|clients| point("point select, text", &Work::PointText, clients)));
        points.push(point("point select, text, paced", &Work::PointText, 64).paced(PACE));
        points.push(point("point select, prepared", &Work::PointPrepared, 64));
        points.push(point("connect, query, close", &Work::Connect, 16));
        points.extend(large(Duration::from_millis(500)));
        Plan {
            name: "quick",
            points,
            repeats: 3,
            comparisons: comparisons(COPIES_PACE, |name, work, clients| Point::new(name, work, clients, QUICK_WARM_UP, QUICK_WINDOW)),
            load_times: Some(Sizes { rules: 10_000, servers: 1_000 }),
            digest_window: Some(Duration::from_millis(20)),
            idle_clients: 2_000,
        }
    }

    /// Only loads whose name contains `part`.
    pub fn only(mut self, part: &str) -> Plan {
        self.points.retain(|point| point.name.contains(part));
        self.comparisons.retain(|comparison| comparison.point.name.contains(part));
        self.load_times = self.load_times.filter(|_| LOAD_TIMES.contains(part));
        self.digest_window = self.digest_window.filter(|_| DIGESTS.contains(part));
        self
    }
}

impl Point {
    /// A load without a pace.
    pub fn new(name: &'static str, work: &Work, clients: usize, warm_up: Duration, window: Duration) -> Point {
        let unit = match work {
            Work::PointText | Work::PointPrepared | Work::PointHot | Work::PointHotPrepared => Unit::Query,
            Work::Connect => Unit::Connection,
            Work::Large { .. } => Unit::Megabyte,
        };
        Point { name, clients, work: work.clone(), pace: None, unit, warm_up, window }
    }

    /// The load that it puts on a peer.
    pub fn load(&self, address: SocketAddr) -> Load {
        Load { address, clients: self.clients, work: self.work.clone(), pace: self.pace }
    }

    pub(super) fn paced(mut self, per_second: u32) -> Point {
        self.pace = Some(per_second);
        self
    }
}

/// Results of 1 MB and of 100 MB, one client. A window holds at least one.
fn large(window: Duration) -> [Point; 2] {
    let point = |name, rows, window| Point::new(name, &Work::Large { rows }, 1, Duration::from_millis(50), window);
    [point("result of 1 MB", 1_000, window), point("result of 100 MB", 100_000, window)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds that the windows and warm-ups take on three peers and in all arrangements.
    fn seconds(plan: &Plan) -> f64 {
        let time = |point: &Point| (point.warm_up + point.window).as_secs_f64();
        let each: f64 = plan.points.iter().map(time).sum();
        let compared: f64 = plan.comparisons.iter().map(|all| time(&all.point) * all.arrangements.len() as f64).sum();
        (each * 3.0 + compared) * plan.repeats as f64
    }

    #[test]
    fn plans_fit_their_time() {
        assert!(seconds(&Plan::quick()) < 115.0, "{}", seconds(&Plan::quick()));
        assert!(seconds(&Plan::full()) < 920.0, "{}", seconds(&Plan::full()));
        assert_eq!(Plan::full().only("MB").points.len(), 2);
        let rules = Plan::quick().only("query rules");
        assert_eq!((rules.comparisons.len(), rules.load_times, rules.digest_window), (1, None, None));
    }
}
