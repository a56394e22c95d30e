//! A cluster's memory as a value, and a cluster that goes on with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::settings::{Failback, SecondWriters};
use model::snapshot::{RoleGroup, ServerDefaults};
use model::{HostgroupId, ServerAddr};
use serde::{Deserialize, Serialize};

use super::{Cluster, Memory, Return, Strangers};
use crate::health::Lags;
use crate::judgement::Judgements;
use crate::knowledge::pairs;
use crate::member::Member;
use crate::roster::Roster;

/// The state of one cluster that outlives the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterKnowledge {
    writer: HostgroupId,
    kind: String,
    /// Its servers, each with the hostgroups where the operator wrote it; none for those that were found.
    #[serde(with = "pairs")]
    members: BTreeMap<ServerAddr, Vec<HostgroupId>>,
    #[serde(default)]
    preferred: Option<ServerAddr>,
    #[serde(default)]
    awaited: Option<ServerAddr>,
    #[serde(default, with = "pairs")]
    rewritten: BTreeMap<ServerAddr, u64>,
    #[serde(default)]
    roster: Roster,
    /// Until the record of healing is read again, what it said last holds.
    #[serde(default, with = "pairs")]
    barred: BTreeMap<ServerAddr, String>,
    #[serde(default)]
    memory: Memory,
}

impl ClusterKnowledge {
    pub(crate) fn is_of(&self, group: &RoleGroup) -> bool {
        self.writer == group.writer && self.kind == group.kind.as_str()
    }

    /// The part for a file.
    pub(crate) fn kept(mut self) -> Self {
        self.memory.takeovers.clear();
        self
    }

    /// The part whose changes are worth a new file.
    pub(crate) fn gist(&self) -> Self {
        let memory = &self.memory;
        Self {
            roster: self.roster.gist(),
            memory: Memory {
                fit_since_ms: BTreeMap::new(),
                writerless_since_ms: None,
                quiet: None,
                aurora: memory.aurora.gist(),
                takeovers: Vec::new(),
                ..memory.clone()
            },
            ..self.clone()
        }
    }

    /// The cluster in its old state, for a first decision by its row.
    pub(crate) fn into_cluster(self, group: &Arc<RoleGroup>) -> Cluster {
        let remembered = |(addr, configured): (ServerAddr, Vec<HostgroupId>)| (addr, Member::remembered(group, configured));
        let told_identity = self.memory.identity.settled().map(|(identity, _)| identity.clone());
        Cluster {
            group: Arc::clone(group),
            members: self.members.into_iter().map(remembered).collect(),
            suspicion_ms: 0,
            found_like: ServerDefaults::default(),
            judgements: Judgements::new(),
            strangers: Strangers::default(),
            told_strangers: Strangers::default(),
            told_identity,
            lags: Lags::new(),
            choice: None,
            preferred: self.preferred,
            awaited: self.awaited,
            barred: self.barred,
            shut: BTreeMap::new(),
            comeback: Return { policy: Failback::Never, delay_ms: 0 },
            second_writers: SecondWriters::Configured,
            shuns_strays: false,
            rewritten: self.rewritten,
            roster: self.roster,
            before: self.memory.clone(),
            memory: self.memory,
            at_ms: 0,
            next_ms: None,
        }
    }
}

impl Cluster {
    pub(crate) fn knowledge(&self) -> ClusterKnowledge {
        ClusterKnowledge {
            writer: self.group.writer,
            kind: self.group.kind.as_str().to_owned(),
            members: self.members.iter().map(|(addr, member)| (addr.clone(), member.configured.clone())).collect(),
            preferred: self.preferred.clone(),
            awaited: self.awaited.clone(),
            rewritten: self.rewritten.clone(),
            roster: self.roster.clone(),
            barred: self.barred.clone(),
            memory: self.memory.clone(),
        }
    }
}
