//! Which hostgroups a server serves once the writers are chosen, and what keeps it from being ONLINE there.
//!
//! INVARIANT: a server that is to finish its work (drained, leaving, switched off) stays in the hostgroups that it served.

use std::collections::{BTreeMap, BTreeSet};

use model::fleet::UnderWay;
use model::snapshot::{ReadOnlyCheck, RoleKind, ServerStatus, WriterReads};
use model::{HostgroupId, ServerAddr};

use super::{Cluster, Memory, World, is_warming};
use crate::converge::Tier;
use crate::facts::Facts;
use crate::health::{Behind, Quiet, Seat, Sources, Vital, excessive_lack, excessive_lag, vital};
use crate::judgement::{Fitness, Judgement, Judgements, NOT_KNOWN};
use crate::member::Member;
use crate::observation::AuroraInstance;

/// One server in one decision.
#[derive(Debug, Clone, Copy)]
struct Part<'a> {
    addr: &'a ServerAddr,
    member: &'a Member,
    judgement: &'a Judgement,
    is_writer: bool,
    writers: &'a BTreeSet<ServerAddr>,
    quiet: Option<Quiet>,
    has_backups: bool,
}

impl Cluster {
    /// The seats of every hostgroup.
    pub(super) fn seats(
        &self,
        world: World<'_>,
        judgements: &Judgements,
        writers: &BTreeSet<ServerAddr>,
        memory: &mut Memory,
    ) -> BTreeMap<HostgroupId, Vec<Seat>> {
        let mut seats: BTreeMap<HostgroupId, Vec<Seat>> = self.group.hostgroups().map(|id| (id, Vec::new())).collect();
        let unseen = Judgement::new(Fitness::Unseen, "not seen yet", "");
        let has_backups = self
            .members
            .iter()
            .any(|(addr, member)| !writers.contains(addr) && self.tier(world, addr, member, judgements.get(addr)) == Some(Tier::Fit));
        for (addr, member) in &self.members {
            let judgement = judgements.get(addr).unwrap_or(&unseen);
            let part = Part { addr, member, judgement, is_writer: writers.contains(addr), writers, quiet: memory.quiet, has_backups };
            for id in self.hostgroups_of(world, part, memory) {
                if let Some(mut seat) = self.seat(world, part, id) {
                    seat.serves = id == self.group.reader && memory.readers.contains(addr);
                    seats.entry(id).or_default().push(seat);
                }
            }
        }
        seats
    }

    /// The hostgroups that a server serves; those that it served are remembered for when it must leave without moving.
    fn hostgroups_of(&self, world: World<'_>, part: Part<'_>, memory: &mut Memory) -> BTreeSet<HostgroupId> {
        let configured: BTreeSet<HostgroupId> = part.member.configured.iter().copied().collect();
        let held = memory.places.get(part.addr).unwrap_or(&configured);
        let is_leaving = matches!(part.judgement.fitness, Fitness::Leaving { .. }) && !part.is_writer;
        if part.member.is_off() || world.drained.contains(part.addr) || is_leaving {
            return if held.is_empty() { BTreeSet::from([self.group.reader]) } else { held.clone() };
        }
        let writer_is_off = part.member.status(self.group.writer) != ServerStatus::Online;
        let kept = held.get(&self.group.writer).filter(|_| writer_is_off).copied();
        let mut places = self.role(world, part, &configured);
        if !matches!(part.judgement.fitness, Fitness::Out(_)) || part.is_writer {
            memory.places.insert(part.addr.clone(), places.iter().chain(&kept).copied().collect());
        }
        places.extend(kept);
        places
    }

    /// The hostgroups that a server's role gives it.
    fn role(&self, world: World<'_>, part: Part<'_>, configured: &BTreeSet<HostgroupId>) -> BTreeSet<HostgroupId> {
        let group = &self.group;
        if part.is_writer {
            let reads = match group.writer_reads {
                _ if part.judgement.fitness == Fitness::Unseen => return configured.clone(),
                WriterReads::No => false,
                WriterReads::Yes => true,
                WriterReads::Backups => !part.has_backups,
            };
            return [Some(group.writer), reads.then_some(group.reader)].into_iter().flatten().collect();
        }
        let is_backup = self.tier(world, part.addr, part.member, Some(part.judgement)) == Some(Tier::Fit);
        match part.judgement.fitness {
            Fitness::Out(_) => group.offline.into_iter().collect(),
            Fitness::Unseen if !configured.contains(&group.writer) => configured.clone(),
            _ => group.backup_writer.filter(|_| is_backup).into_iter().chain([group.reader]).collect(),
        }
    }

    /// How many transactions of the writers' a replica lacks, where that is too many.
    fn lack(&self, world: World<'_>, facts: &Facts, writers: &BTreeSet<ServerAddr>, id: HostgroupId) -> Option<Behind> {
        let writers: Vec<&Facts> = writers.iter().filter_map(|addr| world.facts.get(addr)).collect();
        match self.group.kind {
            RoleKind::Replication(_) => excessive_lack(facts, &writers, world.policy(id), &world.snapshot.vars),
            RoleKind::Galera | RoleKind::GroupReplication | RoleKind::Aurora(_) => None,
        }
    }

    /// Since when a server is read-only while another one writes: from then on it should have a source. None for `innodb_read_only`, which
    /// Aurora's instances report without replicating.
    pub(super) fn to_follow_since_ms(&self, world: World<'_>, facts: &Facts, writers: &BTreeSet<ServerAddr>) -> Option<u64> {
        let RoleKind::Replication(ReadOnlyCheck::ReadOnly | ReadOnlyCheck::SuperReadOnly) = self.group.kind else { return None };
        let writes = |addr: &ServerAddr| world.facts.get(addr).is_some_and(|other| other.read_only.last == Some(false));
        (facts.read_only.last == Some(true) && writers.iter().any(writes)).then_some(facts.read_only.since_ms)
    }

    /// How far behind the kind says that a server is, where that is too far.
    fn behind(&self, judgement: &Judgement) -> Option<Behind> {
        let (by, limit) = (judgement.behind, self.group.max_transactions_behind);
        let words = match &self.group.kind {
            RoleKind::Aurora(row) if by >= AuroraInstance::LAG_UNKNOWN_MS => format!("lag unknown; max_lag_ms={}", row.max_lag_ms),
            RoleKind::Aurora(row) => format!("{by} ms behind; max_lag_ms={}", row.max_lag_ms),
            RoleKind::Galera => format!("{by} in its receive queue; max_transactions_behind={limit}"),
            RoleKind::GroupReplication | RoleKind::Replication(_) => format!("{by} transactions behind; max_transactions_behind={limit}"),
        };
        judgement.is_behind.then_some(Behind { by, words })
    }

    fn seat(&self, world: World<'_>, part: Part<'_>, id: HostgroupId) -> Option<Seat> {
        let facts = world.facts.get(part.addr);
        let judgement = part.judgement;
        let vars = &world.snapshot.vars;
        let mut seat = Seat::new(part.member.row(id)?);
        seat.is_drained = world.drained.contains(part.addr);
        let is_slow = facts.is_some_and(|facts| vital(facts, vars) == Vital::Slow);
        seat.slow = if is_slow { Some(UnderWay::Severed) } else { judgement.is_silent.then_some(UnderWay::EndsAfterGrace) };
        seat.is_warming = is_warming(facts);
        seat.why = match judgement.fitness {
            Fitness::Unseen => String::new(),
            Fitness::Hesitant | Fitness::Leaving { .. } | Fitness::Out(_) if part.is_writer => {
                format!("no better server is left: {}", judgement.why)
            }
            _ => judgement.why.clone(),
        };
        if !part.is_writer && id == self.group.reader {
            let sources = |facts| Sources { to_follow_since_ms: self.to_follow_since_ms(world, facts, part.writers), quiet: part.quiet };
            let lag = facts.and_then(|facts| excessive_lag(facts, &seat.row, sources(facts), world.policy(id), vars));
            let lack = facts.and_then(|facts| self.lack(world, facts, part.writers, id));
            seat.behind = self.behind(judgement).max(lag).max(lack);
        }
        match judgement.fitness {
            Fitness::Leaving { .. } if !part.is_writer => seat.status = ServerStatus::OfflineSoft,
            Fitness::Fenced => seat.status = ServerStatus::Shunned,
            Fitness::Out(_) if !part.is_writer => seat.status = ServerStatus::Shunned,
            _ => {}
        }
        if judgement.is_down {
            seat.status = ServerStatus::Shunned;
            let found = || match judgement.under_way {
                UnderWay::Severed => "it does not answer",
                UnderWay::MayFinish | UnderWay::EndsAfterGrace => "it cannot be reached",
            };
            seat.why = if facts.is_some_and(|facts| facts.refuses) {
                NOT_KNOWN.to_owned()
            } else {
                facts.and_then(Facts::closed).unwrap_or_else(|| found().to_owned())
            };
        }
        if seat.status == ServerStatus::Shunned {
            let slow = seat.slow.filter(|_| judgement.fitness == Fitness::Fenced);
            seat.under_way = slow.unwrap_or_default().max(judgement.under_way);
        }
        Some(seat)
    }
}
