//! What a look at a cluster found, with what earlier looks left.

use std::sync::Arc;

use model::ServerAddr;
use model::snapshot::Promotion;

use crate::gtids::GtidSet;
use crate::observation::ServerId;

/// A cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// The server that writes, or wrote last; None while nobody was seen to write.
    pub primary: Option<Primary>,
    /// It answered this look, before its replicas did: what they have beyond it is younger.
    pub is_alive: bool,
    /// All other servers of the cluster.
    pub replicas: Vec<Replica>,
}

/// The server that writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Primary {
    /// Where.
    pub addr: ServerAddr,
    /// What its replicas call it.
    pub id: ServerId,
    /// What it is, as far as is known.
    pub version: ServerVersion,
    /// What it had when it answered last; None if it never has.
    pub executed: Option<GtidSet>,
    /// The same after its replicas were asked; None where that was not needed.
    pub latest: Option<GtidSet>,
    /// What its binary logs no longer hold; empty where that is not known (MariaDB).
    pub purged: GtidSet,
    /// Transactions of it for which clients of this proxy got OK, as far as servers report GTIDs; empty while it answers.
    pub acknowledged: GtidSet,
    /// MariaDB: `gtid_strict_mode`, so a server with other transactions cannot follow it without an error.
    pub is_strict: bool,
    /// Its semi-synchronous replication when it answered last; None where it has none.
    pub semi_sync: Option<SemiSync>,
    /// How old that answer was when the server was last known to live, ms. Refusals and traffic of clients are life, and no such answer.
    pub age_ms: u64,
    /// Where it is; empty where nobody says.
    pub site: Arc<str>,
}

/// The source side of semi-synchronous replication.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SemiSync {
    /// It is on, and commits wait for acknowledgements now.
    pub is_on: bool,
    /// A commit waits before others can see it (`AFTER_SYNC`).
    pub is_after_sync: bool,
    /// A commit waits at most so long, ms.
    pub timeout_ms: u64,
    /// A commit waits also while fewer than `acks` replicas are connected; else the source turns asynchronous then.
    pub keeps_waiting: bool,
    /// Acknowledgements that a commit needs.
    pub acks: u64,
    /// Replicas that may acknowledge.
    pub ackers: u64,
    /// Sessions that wait for an acknowledgement.
    pub waits: u64,
}

impl SemiSync {
    /// A server waits so long, or for ever, ms: 1000 s.
    const FOR_EVER_MS: u64 = 1_000_000;

    /// Whether each acknowledged commit is on a replica.
    pub(super) fn is_lossless(&self) -> bool {
        self.is_on && self.is_after_sync && self.keeps_waiting && self.timeout_ms >= Self::FOR_EVER_MS
    }
}

/// Kind and version of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerVersion {
    /// MariaDB, not one of MySQL's.
    pub is_mariadb: bool,
    /// Major, minor, patch; zeros where that is not known.
    pub number: (u32, u32, u32),
}

impl ServerVersion {
    /// The part by which replication between servers is supported.
    pub(super) fn series(self) -> (u32, u32) {
        (self.number.0, self.number.1)
    }
}

impl std::fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flavor = if self.is_mariadb { "MariaDB" } else { "MySQL" };
        write!(f, "{flavor} {}.{}.{}", self.number.0, self.number.1, self.number.2)
    }
}

/// A server that does not write.
#[derive(Debug, Clone, PartialEq)]
pub struct Replica {
    /// Where.
    pub addr: ServerAddr,
    /// Why nothing is known of it; None if it answered.
    pub silence: Option<String>,
    /// Its host refuses the connection: no server runs there.
    pub refuses: bool,
    /// What others call it.
    pub id: ServerId,
    /// What it is.
    pub version: ServerVersion,
    /// What it has applied.
    pub executed: GtidSet,
    /// What it has received or applied.
    pub received: GtidSet,
    /// What its binary logs no longer hold, so that it cannot hand it on; empty where that is not known (MariaDB).
    pub purged: GtidSet,
    /// Transactions that it had and the primary lacked at the last look that the primary answered. Two replicas can share them.
    pub was_errant: GtidSet,
    /// Why it is out of use: by its status in `mysql_servers`, by an operator's order, or as a former writer.
    pub offline: Option<String>,
    /// Why an earlier plan for the present death failed with it: it did not apply what it had received in time.
    pub unable: Option<String>,
    /// It gives GTIDs to what it writes.
    pub has_gtids: bool,
    /// It takes writes of ordinary clients.
    pub is_open: bool,
    /// It takes no writes of privileged clients either: MySQL's `super_read_only`, MariaDB's `read_only`.
    pub is_closed: bool,
    /// MariaDB: `gtid_strict_mode`.
    pub is_strict: bool,
    /// A right for a promotion that the monitor's user lacks there, in words; None if it was not asked for or has them all.
    pub no_right: Option<String>,
    /// It has a binary log.
    pub logs: bool,
    /// What it replicates is in its binary log too.
    pub logs_updates: bool,
    /// The channel by which it gets what its cluster writes; None if it replicates from nobody.
    pub channel: Option<Channel>,
    /// How many channels it has that are not from other clusters.
    pub channels: usize,
    /// It acknowledges commits of its source.
    pub is_acker: bool,
    /// What the operator says; None is `auto`.
    pub declared: Option<Promotion>,
    /// It has a row in the writer hostgroup.
    pub is_written_as_writer: bool,
    /// The weight of its row in the writer hostgroup, else of its other one.
    pub weight: u32,
    /// Where it is; empty where nobody says.
    pub site: Arc<str>,
    /// What makes a promotion slower or riskier, and does not forbid it.
    pub notes: Vec<String>,
}

impl Replica {
    /// A server that did not answer.
    pub fn silent(addr: ServerAddr, why: impl Into<String>) -> Self {
        Self {
            addr,
            silence: Some(why.into()),
            refuses: false,
            id: ServerId::default(),
            version: ServerVersion::default(),
            executed: GtidSet::default(),
            received: GtidSet::default(),
            purged: GtidSet::default(),
            was_errant: GtidSet::default(),
            offline: None,
            unable: None,
            has_gtids: false,
            is_open: false,
            is_closed: false,
            is_strict: false,
            no_right: None,
            logs: false,
            logs_updates: false,
            channel: None,
            channels: 0,
            is_acker: false,
            declared: None,
            is_written_as_writer: false,
            weight: 0,
            site: "".into(),
            notes: Vec::new(),
        }
    }

    /// Whether it is wanted as writer, by what is written of it.
    pub fn promotion(&self) -> Promotion {
        self.declared.unwrap_or(match (self.weight, self.is_written_as_writer) {
            (0, _) => Promotion::Never,
            (_, true) => Promotion::Neutral,
            (_, false) => Promotion::Avoid,
        })
    }
}

/// A replication channel within the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Channel {
    /// Its name; empty for the one without.
    pub name: String,
    /// Where it receives from.
    pub source: ServerAddr,
    /// That is the primary.
    pub is_from_primary: bool,
    /// It finds its place by GTIDs.
    pub is_by_gtid: bool,
    /// What it received, in words that the server takes in a statement.
    pub position: String,
    /// The thread that receives.
    pub receiver: LinkThread,
    /// The thread that applies.
    pub applier: LinkThread,
    /// It applies nothing before so long after it was written, s.
    pub delay_s: u64,
    /// It leaves some changes out.
    pub has_filters: bool,
    /// How far it is behind by its own word, ms; None if it never said so. A server that shows NULL without its source counts as it said last.
    pub lag_ms: Option<u64>,
    /// Time from its last word of the source, be it a heartbeat, until the source was last known to live, ms; None where that is not known.
    pub heard_ms: Option<u64>,
    /// Time between heartbeats, ms; None where that is not known or where there are none.
    pub heartbeat_ms: Option<u64>,
}

/// A thread of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkThread {
    /// What it does.
    pub state: LinkState,
    /// The number of its last error. Its text can hold values of rows, so it is not kept.
    pub error: Option<u64>,
}

/// What a thread of a channel does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LinkState {
    /// Nothing.
    #[default]
    Stopped,
    /// It tries to reach the source.
    Connecting,
    /// It works.
    Runs,
}

impl LinkState {
    /// As tables name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Connecting => "connecting",
            Self::Runs => "running",
        }
    }
}

impl LinkThread {
    /// Errors of a server that cannot reach its source or loses it: CR_CONNECTION_ERROR, CR_CONN_HOST_ERROR, CR_SERVER_GONE_ERROR,
    /// CR_SERVER_LOST, CR_SERVER_LOST_EXTENDED, ER_SERVER_SHUTDOWN, ER_NET_*. Others can come from a source that lives: 1040 (too many
    /// connections), 2026 (TLS), 2059 and 2061 (authentication).
    const LOST: [u64; 10] = [2_002, 2_003, 2_006, 2_013, 2_055, 1_053, 1_158, 1_159, 1_160, 1_161];

    /// Whether it does not work because its source is not there.
    pub fn has_lost_source(&self) -> bool {
        self.state != LinkState::Runs && self.error.is_some_and(|code| Self::LOST.contains(&code))
    }
}
