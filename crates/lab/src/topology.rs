//! The four kinds of topology under one name, with the proxy's configuration for each.

use std::time::Duration;

use crate::aurora::{AuroraStandIn, DOMAIN};
use crate::client::{Client, ConnectOptions};
use crate::error::LabError;
use crate::flavor::Flavor;
use crate::galera::Galera;
use crate::group::Group;
use crate::replication::Replication;
use crate::server::{Options, Server};
use crate::tidegate::{Builder, Setting, Tidegate};
use crate::wait;

/// Hostgroup of writers, everywhere in the lab.
pub const WRITER: i64 = 0;
/// Hostgroup of readers.
pub const READER: i64 = 1;
/// Hostgroup of those that could write.
pub const BACKUP: i64 = 2;
/// Hostgroup of those that are out.
pub const OFFLINE: i64 = 3;

/// A name for one of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Semi-synchronous replication with GTIDs.
    Replication(Flavor),
    /// MariaDB Galera.
    Galera,
    /// MySQL Group Replication.
    Group,
    /// The stand-in for Aurora.
    Aurora,
}

/// A topology of three servers that runs.
#[derive(Debug)]
pub enum Topology {
    /// The primary first, at the beginning.
    Replication(Vec<Server>),
    /// All could write.
    Galera(Galera),
    /// The primary first, at the beginning.
    Group(Group),
    /// The writer first, at the beginning.
    Aurora(AuroraStandIn),
}

impl Kind {
    /// Starts three servers of this kind.
    pub fn start(self, options: &Options) -> Result<Topology, LabError> {
        Ok(match self {
            Kind::Replication(flavor) => Topology::Replication(Replication::start_semi_sync(flavor, 2, options)?.into_servers()),
            Kind::Galera => Topology::Galera(Galera::start(3, options)?),
            Kind::Group => Topology::Group(Group::start(3, options)?),
            Kind::Aurora => Topology::Aurora(AuroraStandIn::start(2, options)?),
        })
    }
}

impl Topology {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Topology::Replication(_) => "replication",
            Topology::Galera(_) => "galera",
            Topology::Group(_) => "group",
            Topology::Aurora(_) => "aurora stand-in",
        }
    }

    /// Its servers, in the order in which they keep their places.
    pub fn servers(&self) -> Vec<&Server> {
        match self {
            Topology::Replication(servers) => servers.iter().collect(),
            Topology::Galera(galera) => galera.nodes.iter().map(|node| &node.server).collect(),
            Topology::Group(group) => group.members.iter().collect(),
            Topology::Aurora(aurora) => aurora.instances.iter().map(|instance| &instance.server).collect(),
        }
    }

    /// Host and port of each server, for clients and the proxy.
    pub fn endpoints(&self) -> Vec<(String, u16)> {
        match self {
            Topology::Aurora(aurora) => (0..aurora.instances.len()).map(|index| (aurora.host(index), aurora.port())).collect(),
            _ => self.servers().iter().map(|server| (server.host().to_owned(), server.port())).collect(),
        }
    }

    /// Adds servers and roles to the proxy's configuration. The first server is the heaviest.
    pub fn describe(&self, builder: Builder) -> Builder {
        self.describe_with(builder, &[])
    }

    /// As [`Topology::describe`], with more columns for the row about roles.
    pub fn describe_with(&self, builder: Builder, more: &[(&str, Setting)]) -> Builder {
        self.describe_at(builder, &self.endpoints(), more)
    }

    /// As [`Topology::describe_with`], where the servers are reached in other ways than directly.
    pub fn describe_at(&self, mut builder: Builder, endpoints: &[(String, u16)], more: &[(&str, Setting)]) -> Builder {
        for (index, (host, port)) in endpoints.iter().enumerate() {
            // If the proxy must find the writer, all servers but one begin as readers.
            let hostgroup = if index == 0 { WRITER } else { READER };
            let weight = if index == 0 { 1000 } else { 100 };
            builder = builder.server_with(hostgroup, host, *port, &[("weight", weight.into())]);
        }
        let roles = [("writer_hostgroup", WRITER.into()), ("reader_hostgroup", READER.into())];
        let spare = [("backup_writer_hostgroup", BACKUP.into()), ("offline_hostgroup", OFFLINE.into()), ("active", 1.into())];
        let (table, row) = match self {
            Topology::Replication(_) => ("mysql_replication_hostgroups", roles.to_vec()),
            Topology::Galera(_) => ("mysql_galera_hostgroups", [&roles[..], &spare, &[("max_transactions_behind", 100.into())]].concat()),
            Topology::Group(_) => ("mysql_group_replication_hostgroups", [&roles[..], &spare].concat()),
            Topology::Aurora(aurora) => {
                let name = [("domain_name", DOMAIN.into()), ("aurora_port", i64::from(aurora.port()).into())];
                ("mysql_aws_aurora_hostgroups", [&roles[..], &name].concat())
            }
        };
        builder.row(table, &[&row[..], more].concat())
    }

    /// A proxy before it: `app` begins in the writers' hostgroup, `empty` in the readers'.
    pub fn proxied(&self) -> Builder {
        self.describe(Tidegate::builder()).app_user().user("empty", "", READER)
    }

    /// Options to connect to a server as `app` and in its schema, as a client would without a proxy.
    pub fn direct(&self, index: usize) -> ConnectOptions {
        let (host, port) = &self.endpoints()[index];
        ConnectOptions::tcp(format!("{host}:{port}"), "app", "app-pass").database("test")
    }
}

/// One row of `runtime_mysql_servers`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// Hostgroup.
    pub hostgroup: i64,
    /// Port, which tells the lab's servers apart; of the stand-in the host does.
    pub server: String,
    /// `ONLINE`, `SHUNNED`, ...
    pub status: String,
}

/// The present hostgroups of all servers, sorted.
pub fn layout(proxy: &Tidegate) -> Result<Vec<Placed>, LabError> {
    layout_of(&mut proxy.admin()?)
}

fn layout_of(admin: &mut Client) -> Result<Vec<Placed>, LabError> {
    let table = admin.run("SELECT hostgroup_id, hostname, port, status FROM runtime_mysql_servers")?.table()?;
    let field = |row: &[Option<String>], place: usize| row.get(place).cloned().flatten().unwrap_or_default();
    let mut placed: Vec<Placed> = table
        .iter()
        .map(|row| Placed {
            hostgroup: field(row, 0).parse().unwrap_or(-1),
            server: format!("{}:{}", field(row, 1), field(row, 2)),
            status: field(row, 3),
        })
        .collect();
    placed.sort();
    Ok(placed)
}

/// Waits until the layout is as wanted.
pub fn wait_layout(
    proxy: &Tidegate,
    what: &str,
    limit: Duration,
    mut wanted: impl FnMut(&[Placed]) -> bool,
) -> Result<Vec<Placed>, LabError> {
    let mut admin = proxy.admin()?;
    let mut last = Vec::new();
    let waited = wait::try_until(what, limit, || {
        last = layout_of(&mut admin)?;
        Ok(wanted(&last).then(|| last.clone()))
    });
    waited.map_err(|error| match error {
        LabError::Deadline { what, limit, .. } => LabError::Deadline { what, limit, detail: format!(": {last:?}") },
        other => other,
    })
}
