//! MariaDB Galera clusters: real nodes on one machine, with short timeouts, so that a lost node is noticed in 1 to 3 s.
//!
//! Nodes start from copies of a data directory that already has a position in a cluster. So they join by incremental state transfer in
//! about a second; otherwise they get a copy of the data. A node can be put through everything that an operator or an accident does:
//! maintenance, desync, a donor's role, a crash, a freeze, isolation from the group. The whole cluster can be stopped or crash.

mod node;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::dirs;
use crate::error::{IoContext, LabError};
use crate::network::Network;
use crate::server::{Options, Server};
use crate::template::Seed;
use crate::wait;

pub(crate) use node::found_cluster;
pub use node::{GaleraNode, NodeState};

/// Joining takes a second or two; the limit is for a loaded machine.
const JOIN_LIMIT: Duration = Duration::from_secs(90);

/// A cluster. Its nodes keep their places: a node that crashed is still `nodes[i]`.
#[derive(Debug)]
pub struct Galera {
    /// In the order in which they were started.
    pub nodes: Vec<GaleraNode>,
    sst_dir: PathBuf,
    network: Option<Network>,
}

impl Galera {
    /// Starts `size` nodes on loopback and waits until all are synced.
    pub fn start(size: usize, options: &Options) -> Result<Galera, LabError> {
        Galera::start_in(size, &options.clone().seed(Seed::Galera), None)
    }

    /// Starts `size` nodes of another cluster than that of which all are that are started in other ways: with another state UUID.
    pub fn start_elsewhere(size: usize, options: &Options) -> Result<Galera, LabError> {
        Galera::start_in(size, &options.clone().seed(Seed::GaleraElsewhere), None)
    }

    /// Starts `size` nodes, each in a network of its own that can be cut ([`crate::network`]).
    pub fn start_apart(size: usize, options: &Options) -> Result<Galera, LabError> {
        Galera::start_in(size, &options.clone().seed(Seed::Galera), Some(Network::new(size)?))
    }

    fn start_in(size: usize, options: &Options, network: Option<Network>) -> Result<Galera, LabError> {
        let sst_dir = install_sst()?;
        let plans = node::plan(size, network.as_ref())?;
        let members = node::members(&plans);
        let nodes = plans.into_iter().enumerate().map(|(index, plan)| GaleraNode::launch(index, plan, &members, &sst_dir, options));
        let cluster = Galera { nodes: nodes.collect::<Result<_, _>>()?, sst_dir, network };
        cluster.wait_synced()?;
        Ok(cluster)
    }

    /// A node's server.
    pub fn server(&self, index: usize) -> &Server {
        &self.nodes[index].server
    }

    /// The networks, when the cluster was started apart.
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Waits until every node is synced and sees all other nodes.
    pub fn wait_synced(&self) -> Result<(), LabError> {
        self.nodes.iter().try_for_each(|node| node.wait_synced(Some(self.nodes.len())))
    }

    /// Waits until node `index` sees `size` nodes in a primary component.
    pub fn wait_size(&self, index: usize, size: usize) -> Result<(), LabError> {
        let what = format!("node {index} to see {size} nodes");
        let node = &self.nodes[index];
        wait::until(&what, JOIN_LIMIT, || node.state().ok().filter(|state| state.is_primary() && state.cluster_size == size).map(drop))
    }

    /// Starts a node again that crashed or was stopped, without waiting for it.
    pub fn bring_back(&self, index: usize) -> Result<(), LabError> {
        let node = &self.nodes[index];
        node.server.relaunch(&[node.start_position()?])
    }

    /// Starts a node again that crashed or was stopped, and waits until it is synced.
    pub fn restart(&self, index: usize) -> Result<(), LabError> {
        self.bring_back(index)?;
        self.nodes[index].wait_synced(None)
    }

    /// While held, a donor stays one: state transfers do not go on. Nodes that join wait.
    pub fn hold_donor(&self, hold: bool) -> Result<(), LabError> {
        let file = self.sst_dir.join("hold");
        if hold {
            fs::write(&file, "").context(|| format!("write {}", file.display()))
        } else {
            fs::remove_file(&file).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(LabError::io(format!("remove {}", file.display()), error)),
            })
        }
    }

    /// The node that is a donor now.
    pub fn wait_donor(&self) -> Result<usize, LabError> {
        let is_donor = |node: &GaleraNode| node.state().is_ok_and(|state| state.local_state == NodeState::DONOR);
        wait::until("a donor", JOIN_LIMIT, || self.nodes.iter().position(is_donor))
    }

    /// Kills every node at the same time.
    pub fn crash_all(&self) {
        thread::scope(|scope| {
            for node in &self.nodes {
                scope.spawn(|| node.server.kill9());
            }
        });
    }

    /// Founds the cluster again after all nodes crashed or were stopped, from the node with the most transactions, and waits until all are
    /// synced. Nodes at another position get a copy of its data first, as by a full state transfer: the cache for an incremental one may
    /// not survive a crash. Returns the first node.
    pub fn found_again(&self) -> Result<usize, LabError> {
        let positions = self.nodes.iter().map(GaleraNode::recovered_position).collect::<Result<Vec<_>, _>>()?;
        let seqno = |position: &str| position.rsplit(':').next().and_then(|number| number.parse::<i64>().ok()).unwrap_or(-1);
        let first = (0..positions.len()).rev().max_by_key(|index| seqno(&positions[*index])).unwrap_or(0);
        for (node, _) in self.nodes.iter().zip(&positions).filter(|(_, position)| **position != positions[first]) {
            node.copy_data_of(&self.nodes[first])?;
        }
        self.nodes[first].allow_founding()?;
        for index in std::iter::once(first).chain((0..self.nodes.len()).filter(|index| *index != first)) {
            let position = format!("--wsrep-start-position={}", positions[first]);
            let node = &self.nodes[index];
            if index == first {
                node.server.restart_with(&[position.as_str(), "--wsrep-new-cluster"])?
            } else {
                node.server.relaunch(&[position])?
            }
        }
        self.wait_synced()?;
        Ok(first)
    }
}

/// Writes the state transfer script to a directory of its own.
fn install_sst() -> Result<PathBuf, LabError> {
    let dir = dirs::instance("sst")?;
    let script = dir.join("wsrep_sst_lab");
    fs::write(&script, include_str!("sst.sh")).context(|| format!("write {}", script.display()))?;
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&script, executable).context(|| format!("make {} executable", script.display()))?;
    Ok(dir)
}
