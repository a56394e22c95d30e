//! Tidegate against Tidegate: what rules, statistics and the cache cost or save, by configurations that take turns.
//!
//! One proxy a configuration, all before the same server, all alive during the comparison; those whose turn it is not are
//! idle. INVARIANT: as with the peers, a ratio pairs measurements of the same repeat.

use std::process::Command;

use super::arrangement::{Arrangement, Comparison};
use super::peer::{self, Peer};
use super::runner::measure;
use super::summary::{Figures, Ratio};
use super::usage;
use crate::error::{IoContext, LabError};
use crate::replication::set_read_only;
use crate::server::Server;
use crate::tidegate::find_program;

/// The result of one comparison.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The compared configurations.
    pub comparison: Comparison,
    /// For each arrangement, in order.
    pub rows: Vec<Row>,
    /// The machine's load averages when it was done.
    pub load_average: String,
}

/// The result of one configuration.
#[derive(Clone, Debug)]
pub struct Row {
    /// The arrangement's name.
    pub name: String,
    /// Medians, or the error.
    pub figures: Result<Figures, String>,
    /// Its cost as a multiple of the first one's; `None` for the first.
    pub ratio: Option<Ratio>,
    /// The share of look-ups that the query cache answered, warm-ups included, 0 to 1; `None` when nothing was looked up.
    pub cache_hits: Option<f64>,
    /// The share of its cost that was a rehearsal's copies, warm-ups included, 0 to 1; `None` where nothing was rehearsed.
    pub copies: Option<f64>,
}

/// Measures all arrangements, `repeats` times.
pub fn compare(comparison: &Comparison, repeats: usize, server: &Server) -> Compared {
    let mut runs: Vec<Run> = comparison.arrangements.iter().map(|arrangement| Run::start(*arrangement, server)).collect();
    for _ in 0..repeats {
        for run in &mut runs {
            run.once(comparison, server);
        }
    }
    let base = runs.first().and_then(|run| run.measured.as_ref().ok()).cloned();
    let rows = runs.into_iter().enumerate().map(|(index, run)| run.row(base.as_deref().filter(|_| index > 0))).collect();
    Compared { comparison: comparison.clone(), rows, load_average: usage::load_average() }
}

/// One configuration's proxy and its measurements so far.
struct Run {
    name: String,
    peer: Option<Peer>,
    _shadow: Option<Server>,
    measured: Result<Vec<Figures>, String>,
}

impl Run {
    fn start(arrangement: Arrangement, server: &Server) -> Run {
        let name = arrangement.name();
        match started(arrangement, server) {
            Ok((peer, shadow)) => Run { name, peer: Some(peer), _shadow: shadow, measured: Ok(Vec::new()) },
            Err(error) => Run { name, peer: None, _shadow: None, measured: Err(format!("did not start: {error}")) },
        }
    }

    fn once(&mut self, comparison: &Comparison, server: &Server) {
        let (Some(peer), Ok(figures)) = (&self.peer, &mut self.measured) else { return };
        match measure(peer, &comparison.point, server) {
            Ok(more) => figures.push(more),
            Err(error) => self.measured = Err(format!("{error}\n{}", peer.log_tail(5))),
        }
    }

    fn row(self, base: Option<&[Figures]>) -> Row {
        let cache_hits = self.peer.as_ref().and_then(|peer| cache_hits(peer).ok().flatten());
        let copies = self.peer.as_ref().and_then(|peer| copies(peer).ok().flatten());
        let ratio = base.zip(self.measured.as_ref().ok()).and_then(|(base, ours)| Ratio::of_costs(ours, base));
        Row { name: self.name, figures: self.measured.map(|all| Figures::median(&all)), ratio, cache_hits, copies }
    }
}

/// The proxy of an arrangement, with the second server that it has.
fn started(arrangement: Arrangement, server: &Server) -> Result<(Peer, Option<Server>), LabError> {
    let shadow = arrangement.needs_shadow().then(|| peer::start_server(server.flavor())).transpose()?;
    shadow.as_ref().map_or(Ok(()), |shadow| set_read_only(shadow, true))?;
    let peer = Peer::tidegate(server, |builder| arrangement.apply(builder, shadow.as_ref()))?;
    let Some(tidegate) = peer.as_tidegate() else { return Ok((peer, shadow)) };
    let key = tidegate.dir().join("bench");
    if let Some(order) = arrangement.order(&format!("{}.pub.pem", key.display())) {
        let made = Command::new(find_program()?).args(["replay", "--keygen"]).arg(&key).output();
        made.context(|| "make a key".to_owned())?;
        tidegate.admin()?.run(order)?;
    }
    Ok((peer, shadow))
}

fn cache_hits(peer: &Peer) -> Result<Option<f64>, LabError> {
    let Some(tidegate) = peer.as_tidegate() else { return Ok(None) };
    let mut admin = tidegate.admin()?;
    let mut count = |name: &str| -> Result<f64, LabError> {
        let value = admin.scalar(format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='{name}'"))?;
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0.0))
    };
    let (asked, answered) = (count("Query_Cache_count_GET")?, count("Query_Cache_count_GET_OK")?);
    Ok((asked > 0.0).then(|| answered / asked))
}

fn copies(peer: &Peer) -> Result<Option<f64>, LabError> {
    let Some(tidegate) = peer.as_tidegate() else { return Ok(None) };
    let busy_ms = tidegate.admin()?.scalar("SELECT busy_ms FROM stats_tidegate_rehearsals")?;
    let busy_ms = busy_ms.and_then(|ms| ms.parse::<f64>().ok());
    let (all_us, _) = peer.usage()?.split_us();
    Ok(busy_ms.map(|ms| ms * 1_000.0 / all_us))
}
