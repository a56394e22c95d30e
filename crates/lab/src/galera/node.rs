//! One node: its command line, its state, and an operator's acts on it.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use crate::client::{Client, ConnectOptions};
use crate::error::{IoContext, LabError};
use crate::flavor::{Flavor, Installation, flag};
use crate::network::{Network, Site};
use crate::port::Port;
use crate::process::Process;
use crate::server::{Options, Server, greets};
use crate::template;
use crate::wait;

/// For a node to join, or to say that it cannot.
const SYNC_LIMIT: Duration = Duration::from_secs(90);
/// For an answer of a node that may be frozen.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// The arguments that Galera needs.
const ARGS: &[&str] = &[
    "--log-bin=bin",
    "--log-slave-updates=1",
    "--binlog-format=ROW",
    "--innodb-autoinc-lock-mode=2",
    "--wsrep-on=ON",
    "--wsrep-cluster-name=lab",
    "--wsrep-sst-method=lab",
    "--wsrep-slave-threads=2",
    // MariaDB 11 makes a variable of each of Galera's options, but for `gmcast.isolate`, and then refuses to set them as text.
    "--loose-plugin-wsrep-provider=OFF",
];

/// Short timeouts: a node that is gone is noticed after 1 to 3 s. `pc.recovery` off: a crashed cluster is founded by hand.
const PROVIDER: &str = "evs.keepalive_period=PT0.2S;evs.inactive_check_period=PT0.2S;evs.suspect_timeout=PT1S;\
    evs.inactive_timeout=PT3S;evs.install_timeout=PT3S;evs.join_retrans_period=PT0.3S;pc.announce_timeout=PT2S;\
    gmcast.peer_timeout=PT1S;gcache.size=32M;gcache.page_size=8M;pc.recovery=FALSE";

/// Directory and ports of one node, beside the SQL port.
#[derive(Debug)]
pub(super) struct Plan {
    group: Port,
    ist: Port,
    sst: Port,
    host: String,
    site: Option<Arc<Site>>,
}

/// Reserves what `size` nodes need.
pub(super) fn plan(size: usize, network: Option<&Network>) -> Result<Vec<Plan>, LabError> {
    let site = |index: usize| network.and_then(|network| network.sites.get(index)).cloned();
    let one = |index| {
        let site = site(index);
        let host = site.as_ref().map_or("127.0.0.1", |site| site.group_host()).to_owned();
        Ok(Plan { group: Port::reserve()?, ist: Port::reserve()?, sst: Port::reserve()?, host, site })
    };
    (0..size).map(one).collect()
}

/// The address of the cluster: all its members.
pub(super) fn members(plans: &[Plan]) -> String {
    let addresses: Vec<String> = plans.iter().map(|plan| format!("{}:{}", plan.host, plan.group.number())).collect();
    format!("gcomm://{}", addresses.join(","))
}

/// A node of a cluster.
#[derive(Debug)]
pub struct GaleraNode {
    /// The MariaDB server that it is.
    pub server: Server,
    /// Keeps its ports for it.
    _plan: Plan,
}

impl GaleraNode {
    /// Starts the node without waiting for it; the first one founds the cluster.
    pub(super) fn launch(index: usize, plan: Plan, members: &str, sst_dir: &Path, options: &Options) -> Result<GaleraNode, LabError> {
        let founds: &[String] = if index == 0 { &["--wsrep-new-cluster".to_owned()] } else { &[] };
        let mut path = OsString::from(sst_dir);
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut options = options.clone().durable().args(ARGS.iter().copied()).args(plan.args(index, members)?);
        options = options.env("PATH", path).env("TIDEGATE_SST_DIR", sst_dir);
        if let Some(site) = &plan.site {
            options = options.site(site);
        }
        let server = Server::launch_with(Flavor::Mariadb, &options, founds)?;
        if index == 0 {
            server.wait_ready()?;
        }
        Ok(GaleraNode { server, _plan: plan })
    }

    /// How the node sees itself and the cluster.
    pub fn state(&self) -> Result<NodeState, LabError> {
        let options = ConnectOptions::unix(self.server.socket(), "root", "").timeout(ASK_LIMIT);
        NodeState::read(&mut Client::connect(&options)?)
    }

    /// Waits until it is synced in a primary component, of `size` nodes if given; fails at once when the server ends.
    pub fn wait_synced(&self, size: Option<usize>) -> Result<(), LabError> {
        let wanted = |state: &NodeState| state.is_synced() && size.is_none_or(|size| state.cluster_size == size);
        let what = format!("port {} to be synced", self.server.port());
        let waited = wait::try_until(&what, SYNC_LIMIT, || match self.server.exit_status() {
            Some(status) => Err(self.ended(status.to_string())),
            None => Ok(self.state().ok().filter(wanted).map(drop)),
        });
        waited.map_err(|error| match error {
            LabError::Deadline { what, limit, .. } => LabError::Deadline { what, limit, detail: format!(": {:?}", self.state()) },
            other => other,
        })
    }

    fn ended(&self, status: String) -> LabError {
        let log = self.server.log();
        let lines: Vec<&str> = log.lines().collect();
        let log_tail = lines[lines.len().saturating_sub(30)..].join("\n");
        LabError::Exited { name: format!("node on port {}", self.server.port()), status, log_tail }
    }

    /// `wsrep_desync`: the node no longer delays the other nodes when it is behind.
    pub fn desync(&self, on: bool) -> Result<(), LabError> {
        self.server.sql(if on { "SET GLOBAL wsrep_desync=ON" } else { "SET GLOBAL wsrep_desync=OFF" }).map(drop)
    }

    /// `wsrep_reject_queries`: the node refuses all clients with error 1047; connections stay.
    pub fn reject_queries(&self, on: bool) -> Result<(), LabError> {
        // The statement's own connection is refused from then on, but this statement is answered.
        self.server.sql(if on { "SET GLOBAL wsrep_reject_queries=ALL" } else { "SET GLOBAL wsrep_reject_queries=NONE" }).map(drop)
    }

    /// Cuts the node off from the other nodes, or joins it again: for them, its cable was pulled. Clients still reach it.
    pub fn isolate(&self, on: bool) -> Result<(), LabError> {
        let value = if on { "1" } else { "0" };
        self.server.sql(&format!("SET GLOBAL wsrep_provider_options='gmcast.isolate={value}'")).map(drop)
    }

    /// The node's position, as an argument for its next start. A server that crashed does not know it by itself.
    pub(super) fn start_position(&self) -> Result<String, LabError> {
        Ok(format!("--wsrep-start-position={}", self.recovered_position()?))
    }

    /// `uuid:seqno`, read from the data files of a node that does not run.
    pub(super) fn recovered_position(&self) -> Result<String, LabError> {
        let log = self.server.run_aside(&["--wsrep-recover"])?;
        let found = log.lines().rev().find_map(|line| line.split("Recovered position:").nth(1));
        let position = found.and_then(|text| text.split(',').next()).map(|text| text.trim().to_owned());
        position.ok_or_else(|| LabError::Protocol(format!("no position recovered\n{log}")))
    }

    /// Takes over all that `other` has; neither runs.
    pub(super) fn copy_data_of(&self, other: &GaleraNode) -> Result<(), LabError> {
        let datadir = self.server.datadir();
        fs::remove_dir_all(&datadir).context(|| format!("remove {}", datadir.display()))?;
        template::copy(&other.server.datadir(), &datadir)?;
        forget_views(&datadir);
        Ok(())
    }

    /// Lets a node that was not the last to leave found the cluster.
    pub(super) fn allow_founding(&self) -> Result<(), LabError> {
        let file = self.server.datadir().join("grastate.dat");
        let text = fs::read_to_string(&file).context(|| format!("read {}", file.display()))?;
        let text = text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
        fs::write(&file, text).context(|| format!("write {}", file.display()))
    }
}

impl Plan {
    fn args(&self, index: usize, members: &str) -> Result<Vec<OsString>, LabError> {
        let (host, group) = (&self.host, self.group.number());
        let provider = format!(
            "gmcast.listen_addr=tcp://{host}:{group};ist.recv_addr={host}:{};base_host={host};base_port={group};{PROVIDER}",
            self.ist.number()
        );
        Ok(vec![
            flag("--wsrep-provider", &Installation::find(Flavor::Mariadb)?.galera_library()?),
            format!("--wsrep-cluster-address={members}").into(),
            format!("--wsrep-node-name=node{index}").into(),
            format!("--wsrep-node-address={host}:{group}").into(),
            format!("--wsrep-sst-receive-address={host}:{}", self.sst.number()).into(),
            format!("--wsrep-provider-options={provider}").into(),
        ])
    }
}

/// A node's state by `SHOW STATUS LIKE 'wsrep%'` and its variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// `wsrep_local_state`: 1 joining, 2 donor or desynced, 3 joined, 4 synced.
    pub local_state: u8,
    /// `wsrep_local_state_comment`.
    pub comment: String,
    /// `wsrep_cluster_status`: `Primary`, `non-Primary`, `Disconnected`.
    pub cluster_status: String,
    /// Nodes that it sees, itself among them.
    pub cluster_size: usize,
    /// `wsrep_ready`: it takes statements.
    pub is_ready: bool,
}

impl NodeState {
    /// Donor, or desynced by an operator.
    pub const DONOR: u8 = 2;
    /// In step with the cluster.
    pub const SYNCED: u8 = 4;

    /// Asks a node.
    fn read(client: &mut Client) -> Result<NodeState, LabError> {
        let table = client.run("SHOW GLOBAL STATUS LIKE 'wsrep%'")?.table()?;
        let value = |name: &str| {
            let row = table.iter().find(|row| row.first().is_some_and(|field| field.as_deref() == Some(name)));
            row.and_then(|row| row.get(1).cloned().flatten()).unwrap_or_default()
        };
        Ok(NodeState {
            local_state: value("wsrep_local_state").parse().unwrap_or(0),
            comment: value("wsrep_local_state_comment"),
            cluster_status: value("wsrep_cluster_status"),
            cluster_size: value("wsrep_cluster_size").parse().unwrap_or(0),
            is_ready: value("wsrep_ready") == "ON",
        })
    }

    /// Part of the component that may write.
    pub fn is_primary(&self) -> bool {
        self.cluster_status == "Primary"
    }

    /// In step, ready, and part of the primary component.
    pub fn is_synced(&self) -> bool {
        self.local_state == NodeState::SYNCED && self.is_primary() && self.is_ready
    }
}

/// Makes a data directory that has a position in a cluster: a server founds one and leaves it in good order.
pub(crate) fn found_cluster(installation: &Installation, datadir: &Path) -> Result<(), LabError> {
    let plans = plan(1, None)?;
    let mut command = installation.server_command(datadir);
    let socket = datadir.with_extension("sock");
    command.args(ARGS).arg("--skip-log-bin").arg(flag("--socket", &socket)).arg("--skip-networking");
    command.args(plans[0].args(0, &members(&plans))?).arg("--wsrep-new-cluster");
    let server = Process::start("galera (template)", &command, &datadir.with_extension("log"))?;
    server.wait_ready(SYNC_LIMIT, || greets(&socket))?;
    let options = ConnectOptions::unix(&socket, "root", "");
    server.wait_ready(SYNC_LIMIT, || {
        let state = Client::connect(&options).and_then(|mut client| NodeState::read(&mut client));
        state.ok().filter(NodeState::is_synced).map(drop)
    })?;
    server.signal(Signal::TERM);
    server.wait_exit(SYNC_LIMIT)?;
    forget_views(datadir);
    Ok(())
}

/// A node that starts from these files has been part of no view, and has no transactions to give.
fn forget_views(datadir: &Path) {
    for file in ["galera.cache", "gvwstate.dat"] {
        let _ = fs::remove_file(datadir.join(file));
    }
}
