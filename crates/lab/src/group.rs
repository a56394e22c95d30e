//! MySQL Group Replication: real members on one machine, single-primary, quick to notice a lost member.
//!
//! XCom stack, `member_expel_timeout=0`, no automatic rejoin: a member that was expelled or left comes back on request. Members start from
//! copies of one data directory. A member that restarts gets the rest from the other members' binary logs.

use std::fmt::Write;
use std::thread;
use std::time::Duration;

use crate::client::{Client, ConnectOptions};
use crate::error::LabError;
use crate::flavor::Flavor;
use crate::network::Network;
use crate::port::Port;
use crate::server::{Options, Server};
use crate::wait;

/// Joining takes two or three seconds; the limit is for a loaded machine.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
/// Lines of each member's log that an error shows.
const LOG_LINES: usize = 5;
/// For an answer of a member that may be frozen.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// The arguments that Group Replication needs, with the smallest possible `performance_schema`.
const ARGS: &[&str] = &[
    "--performance-schema=ON",
    "--performance-schema-max-table-instances=200",
    "--performance-schema-max-thread-instances=300",
    "--performance-schema-digests-size=100",
    "--performance-schema-events-statements-history-long-size=10",
    "--performance-schema-events-waits-history-long-size=10",
    "--performance-schema-events-stages-history-long-size=10",
    "--performance-schema-events-transactions-history-long-size=10",
    "--performance-schema-error-size=10",
    "--performance-schema-max-memory-classes=0",
    "--performance-schema-max-mutex-classes=0",
    "--performance-schema-max-rwlock-classes=0",
    "--performance-schema-max-cond-classes=0",
    "--performance-schema-max-file-classes=0",
    "--plugin-load-add=group_replication.so",
    "--plugin-load-add=mysql_clone.so",
    "--log-bin=bin",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--relay-log=relay",
    "--loose-group-replication-start-on-boot=OFF",
    "--loose-group-replication-bootstrap-group=OFF",
    "--loose-group-replication-communication-stack=XCOM",
    "--loose-group-replication-member-expel-timeout=0",
    "--loose-group-replication-unreachable-majority-timeout=0",
    "--loose-group-replication-recovery-get-public-key=ON",
    "--loose-group-replication-recovery-reconnect-interval=1",
    "--loose-group-replication-exit-state-action=READ_ONLY",
    "--loose-group-replication-autorejoin-tries=0",
    "--loose-group-replication-message-cache-size=134217728",
];

/// The group's name where none is given.
const NAME: &str = "7d1de9a7-0000-4000-8000-0000000000aa";

/// Not written to the binary log, so that every member can be given it by itself.
const RECOVERY_USER: &[&str] = &[
    "SET sql_log_bin=0",
    "GRANT CONNECTION_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO repl@'%'",
    "GRANT SELECT ON performance_schema.* TO monitor@'%'",
    "SET sql_log_bin=1",
    "CHANGE REPLICATION SOURCE TO SOURCE_USER='repl', SOURCE_PASSWORD='repl-pass' FOR CHANNEL 'group_replication_recovery'",
];

/// A group. Its members keep their places: a member that crashed is still `members[i]`.
#[derive(Debug)]
pub struct Group {
    /// In the order in which they joined.
    pub members: Vec<Server>,
    network: Option<Network>,
    _ports: Vec<Port>,
}

/// One row of `performance_schema.replication_group_members`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// SQL port of the member that the row is about.
    pub port: u16,
    /// `ONLINE`, `RECOVERING`, `OFFLINE`, `ERROR`, `UNREACHABLE`.
    pub state: String,
    /// `PRIMARY` or `SECONDARY`; may be empty for one that is out.
    pub role: String,
}

fn named(name: &str, options: &Options) -> Options {
    options.clone().arg(format!("--loose-group-replication-group-name={name}"))
}

impl Group {
    /// Starts `size` members on loopback, the first one primary, and waits until all are ONLINE.
    pub fn start(size: usize, options: &Options) -> Result<Group, LabError> {
        Group::start_in(size, &named(NAME, options), None)
    }

    /// Starts `size` members of a group of another name, a UUID.
    pub fn start_named(name: &str, size: usize, options: &Options) -> Result<Group, LabError> {
        Group::start_in(size, &named(name, options), None)
    }

    /// Starts `size` members, each in a network of its own that can be cut ([`crate::network`]).
    pub fn start_apart(size: usize, options: &Options) -> Result<Group, LabError> {
        Group::start_in(size, &named(NAME, options), Some(Network::new(size)?))
    }

    fn start_in(size: usize, options: &Options, network: Option<Network>) -> Result<Group, LabError> {
        let ports = (0..size).map(|_| Port::reserve()).collect::<Result<Vec<_>, _>>()?;
        let site = |index: usize| network.as_ref().and_then(|network| network.sites.get(index));
        let host = |index: usize| site(index).map_or("127.0.0.1", |site| site.group_host());
        let addresses: Vec<String> = (0..size).map(|index| format!("{}:{}", host(index), ports[index].number())).collect();
        let launch = |index: usize| {
            let mut options = options.clone().durable().args(ARGS.iter().copied());
            options = options.arg(format!("--loose-group-replication-local-address={}", addresses[index]));
            options = options.arg(format!("--loose-group-replication-group-seeds={}", addresses.join(",")));
            if let Some(site) = site(index) {
                // Members fetch from each other at the reported address, so it must be one that they share.
                let allow = "--loose-group-replication-ip-allowlist=AUTOMATIC,10.0.0.0/8";
                options = options.site(site).arg("--bind-address=*").arg(format!("--report-host={}", site.group_host())).arg(allow);
            }
            Server::launch(Flavor::Mysql, &options)
        };
        let members = (0..size).map(launch).collect::<Result<Vec<_>, _>>()?;
        let group = Group { members, network, _ports: ports };
        for member in &group.members {
            member.wait_ready()?;
            let mut root = member.root()?;
            RECOVERY_USER.iter().try_for_each(|statement| root.run(statement).map(drop))?;
        }
        group.found(0)?;
        (1..size).try_for_each(|index| group.join(index))?;
        group.wait_online()?;
        Ok(group)
    }

    /// The networks, when the group was started apart.
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Begins a group with this member alone.
    pub fn found(&self, index: usize) -> Result<(), LabError> {
        let mut root = self.members[index].root()?;
        root.run("SET GLOBAL group_replication_bootstrap_group=ON")?;
        root.run("START GROUP_REPLICATION")?;
        root.run("SET GLOBAL group_replication_bootstrap_group=OFF")?;
        self.wait_seen_online(index, 1)
    }

    /// Lets a member join the group that there is.
    pub fn join(&self, index: usize) -> Result<(), LabError> {
        self.members[index].sql("START GROUP_REPLICATION").map(drop)
    }

    /// Lets a member leave in good order; it stays up and becomes read-only.
    pub fn leave(&self, index: usize) -> Result<(), LabError> {
        self.members[index].sql("STOP GROUP_REPLICATION").map(drop)
    }

    /// Starts a member again that crashed or was stopped, and lets it join; waits until all are ONLINE.
    pub fn bring_back(&self, index: usize) -> Result<(), LabError> {
        self.members[index].restart()?;
        self.join(index)?;
        self.wait_online()
    }

    /// Makes a member the primary, in good order.
    pub fn switch_to(&self, index: usize) -> Result<(), LabError> {
        let member = &self.members[index];
        let uuid = member.scalar("SELECT @@server_uuid")?.unwrap_or_default();
        member.scalar(&format!("SELECT group_replication_set_as_primary('{uuid}')"))?;
        self.wait_primary_among(&[index]).map(drop)
    }

    /// The group as a member sees it, ordered by port.
    pub fn view(&self, index: usize) -> Result<Vec<MemberView>, LabError> {
        let options = ConnectOptions::unix(self.members[index].socket(), "root", "").timeout(ASK_LIMIT);
        let query = "SELECT MEMBER_PORT, MEMBER_STATE, MEMBER_ROLE FROM performance_schema.replication_group_members ORDER BY 1";
        let table = Client::connect(&options)?.run(query)?.table()?;
        let field = |row: &[Option<String>], place: usize| row.get(place).cloned().flatten().unwrap_or_default();
        Ok(table
            .iter()
            .map(|row| MemberView { port: field(row, 0).parse().unwrap_or(0), state: field(row, 1), role: field(row, 2) })
            .collect())
    }

    /// Waits until every member sees all as ONLINE.
    pub fn wait_online(&self) -> Result<(), LabError> {
        (0..self.members.len()).try_for_each(|index| self.wait_seen_online(index, self.members.len()))
    }

    /// Waits until member `index` sees `count` members ONLINE.
    pub fn wait_seen_online(&self, index: usize, count: usize) -> Result<(), LabError> {
        let what = format!("member {index} to see {count} ONLINE");
        let online = |view: &[MemberView]| view.iter().filter(|row| row.state == "ONLINE").count() == count;
        let waited = wait::until(&what, JOIN_LIMIT, || self.view(index).ok().filter(|view| online(view)).map(drop));
        waited.map_err(|error| self.with_views(error))
    }

    /// The member that takes writes now: ONLINE, primary in its own eyes, and not read-only.
    pub fn primary(&self) -> Option<usize> {
        (0..self.members.len()).find(|index| self.takes_writes(*index))
    }

    /// Waits until one of these members takes writes, and gives it.
    pub fn wait_primary_among(&self, candidates: &[usize]) -> Result<usize, LabError> {
        let found = || candidates.iter().copied().find(|index| self.takes_writes(*index));
        wait::until("a primary that takes writes", JOIN_LIMIT, found).map_err(|error| self.with_views(error))
    }

    fn takes_writes(&self, index: usize) -> bool {
        let member = &self.members[index];
        let is_primary = |row: &MemberView| row.port == member.port() && row.role == "PRIMARY" && row.state == "ONLINE";
        if !self.view(index).is_ok_and(|view| view.iter().any(is_primary)) {
            return false;
        }
        let options = ConnectOptions::unix(member.socket(), "root", "").timeout(ASK_LIMIT);
        let read_only = Client::connect(&options).and_then(|mut client| client.scalar("SELECT @@super_read_only"));
        read_only.is_ok_and(|value| value.as_deref() == Some("0"))
    }

    /// Kills every member at the same time.
    pub fn crash_all(&self) {
        thread::scope(|scope| {
            for member in &self.members {
                scope.spawn(|| member.kill9());
            }
        });
    }

    /// Adds what each member sees to an error.
    fn with_views(&self, error: LabError) -> LabError {
        match error {
            LabError::Deadline { what, limit, mut detail } => {
                for index in 0..self.members.len() {
                    let _ = write!(detail, "\nmember {index}: {:?}", self.view(index));
                    let log = self.members[index].log();
                    let noted = log.lines().rev().filter(|line| line.contains("[ERROR]") || line.contains("[Warning]")).take(LOG_LINES);
                    noted.for_each(|line| detail.push_str(&format!("\n    {line}")));
                }
                LabError::Deadline { what, limit, detail }
            }
            other => other,
        }
    }
}
