//! An operator takes one server back (`REJOIN SERVER`): now, in every mode but `off`, by the same proof and the same steps as mode `rejoin`.
//!
//! INVARIANT: no order makes a server follow that has transactions which the writer lacks. They are in its data, so it has to be rebuilt.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::Server;
use model::{HostgroupId, ServerAddr};
use topology::Fork;
use topology::healing::{Channel, Facts, LinkState, LinkThread, Proof, Replica, Verdict, shown};

use super::board::Seen;
use super::rejoin::rebuild;
use super::tend::{has_stepped_down, is_former, runs};
use crate::monitor::{Monitor, lock};
use crate::operator::{Outcome, Rejoin, rejoin};

/// Longest wait for a look.
const LOOK: Duration = Duration::from_secs(5);

/// The servers of a cluster, as far as a return needs them.
pub(super) struct Members<'a> {
    pub(super) writer: HostgroupId,
    pub(super) servers: &'a [Arc<Server>],
    pub(super) foreign: &'a [Arc<str>],
}

/// What takes this server back, by the promotions that were seen; None if it or the writer is not known.
pub(super) fn rejoin_of(members: &Members<'_>, facts: &Facts, addr: &ServerAddr, is_former: bool, forks: &[Fork]) -> Option<Rejoin> {
    let writer = &facts.primary.as_ref()?.addr;
    let known = |addr: &ServerAddr| members.servers.iter().find(|server| server.key.addr() == *addr).cloned();
    let others = || facts.replicas.iter().filter(|replica| replica.addr != *addr && replica.silence.is_none());
    Some(Rejoin {
        hostgroup: members.writer,
        server: known(addr)?,
        writer: known(writer)?,
        followers: others().filter(|replica| follows(replica)).filter_map(|replica| known(&replica.addr)).collect(),
        has_replicas: others().any(|replica| replica.channel.is_some()),
        has_stepped_down: has_stepped_down(forks, addr),
        members: members.servers.iter().map(|server| server.key.addr()).collect(),
        others: others().map(|replica| replica.id.clone()).collect(),
        foreign: members.foreign.to_vec(),
        is_former,
        fork: forks.last().filter(|fork| fork.heir == *writer).cloned(),
        is_ordered: false,
    })
}

fn follows(replica: &Replica) -> bool {
    let both_run = |receiver: &LinkThread, applier: &LinkThread| runs(receiver) && runs(applier);
    replica.channel.as_ref().is_some_and(|channel| channel.is_from_primary && both_run(&channel.receiver, &channel.applier))
}

impl Monitor {
    /// `REJOIN SERVER`, as far as it is read from what a look finds: what is to be done, and the look. Blocks.
    pub(crate) fn rejoin_order(&self, addr: &ServerAddr) -> Result<(Rejoin, Advice), String> {
        let seen = self.seen_beside(addr)?;
        let (writer, facts) = (seen.policy.writer, &seen.facts);
        let (Some(primary), Some(replica)) = (&facts.primary, facts.replicas.iter().find(|one| one.addr == *addr)) else {
            return Err(format!("{addr} is not beside a writer: nothing was changed"));
        };
        let advice = Advice { writer: primary.addr.clone(), rebuild: rebuild(primary, replica) };
        match () {
            () if let Some(why) = &replica.silence => return Err(format!("{addr} does not answer: {why}; nothing was changed")),
            () if seen.verdict != Verdict::Alive => return Err(format!("{}; nothing was changed", seen.verdict.meaning())),
            () if let Some(why) = self.suspended(writer) => return Err(format!("{why}; nothing was changed")),
            () => {}
        }
        let (forks, former) = self.former(writer);
        let (servers, foreign) = self.consult(|snapshot, layout| {
            let groups = snapshot.roles.iter().filter(|group| group.writer == writer);
            let placed = groups.flat_map(|group| group.hostgroups()).filter_map(|id| layout.hostgroups.get(&id)).flatten();
            let servers: Vec<Arc<Server>> = placed.map(|placement| Arc::clone(&placement.server)).collect();
            let listed = snapshot.channels.iter().filter(|channel| channel.writer == writer);
            (servers, listed.map(|channel| Arc::clone(&channel.name)).collect::<Vec<_>>())
        });
        let is_former = is_former((&forks, &former), addr);
        let is_out = seen.tended.iter().any(|one| one.addr == *addr && one.is_out);
        if follows(replica) && !is_out {
            return Err(format!("{addr} follows {} already: nothing was changed", primary.addr));
        }
        // Another tool may have promoted it, or this proxy sees a part of the cluster only.
        let receives = |channel: &Channel| channel.receiver.state == LinkState::Runs && channel.source.is_same(addr);
        let mut others = facts.replicas.iter().filter(|other| other.addr != *addr && other.silence.is_none());
        if is_former && let Some(other) = others.find(|other| other.channel.as_ref().is_some_and(receives)) {
            return Err(format!("{} receives from {addr}, which may still be a writer: nothing was changed", other.addr));
        }
        let members = Members { writer, servers: &servers, foreign: &foreign };
        let rejoin = rejoin_of(&members, facts, addr, is_former, &forks);
        let rejoin = rejoin.ok_or_else(|| format!("{addr} or its writer is not in mysql_servers any more: nothing was changed"))?;
        Ok((Rejoin { is_ordered: true, ..rejoin }, advice))
    }

    /// `REJOIN SERVER ... DISCARDING n`: refused, with what has to be done instead. Blocks.
    pub(crate) fn refuse_to_discard(&self, addr: &ServerAddr, count: u64) -> Result<String, String> {
        let seen = self.seen_beside(addr)?;
        let replica = seen.facts.replicas.iter().find(|one| one.addr == *addr);
        let commands = seen.facts.primary.as_ref().zip(replica).map(|(primary, replica)| rebuild(primary, replica)).unwrap_or_default();
        Err(format!(
            "nothing was changed, and the {count} transactions are still there: they are in the data of {addr}, and no statement takes them out \
             of it. Save them with tidegate errant dump {addr} --to FILE, then rebuild the server: {commands}"
        ))
    }

    /// A fresh look at the cluster that has this server beside its writer.
    fn seen_beside(&self, addr: &ServerAddr) -> Result<Seen, String> {
        let writer = self.healing.cluster_of(addr).ok_or_else(|| {
            format!(
                "{addr} is not beside the writer of a cluster in mysql_healing: nothing was changed. stats_tidegate_healing_servers lists the \
                 servers"
            )
        })?;
        let seen = self.healing.seen_anew(writer, Instant::now() + LOOK);
        seen.ok_or_else(|| "the servers were not looked at in time: nothing was changed".to_owned())
    }
}

/// For an operator whose server does not come back.
pub(crate) struct Advice {
    writer: ServerAddr,
    rebuild: String,
}

/// Takes the server back, and says what came of it. On the monitor's thread.
pub(crate) async fn take_back(monitor: &Arc<Monitor>, order: &Rejoin, advice: &Advice) -> Result<String, String> {
    let (addr, writer) = (order.server.key.addr(), &advice.writer);
    let outcome = rejoin(monitor, order).await;
    let why = match outcome {
        Outcome::Follows => {
            lock(&monitor.healing.returned).insert(addr.clone());
            monitor.note_rejoin(order.hostgroup, &addr, "follows the writer", "by order; it has nothing that the writer lacks");
            monitor.healing.look_now();
            return Ok(format!("{addr} follows {writer}"));
        }
        Outcome::Postponed(why) => return Err(format!("{why}; {addr} was not changed")),
        Outcome::Failed(why) => format!("{addr} does not follow {writer}: {why}"),
        Outcome::Stays(Proof::Extra(extra)) => format!(
            "{addr} stays out, closed: it has transactions that {writer} lacks: {} (stats_tidegate_errant). Nothing was reset. Save them with \
             tidegate errant dump {addr} --to FILE, then rebuild the server: {}",
            shown(&extra),
            advice.rebuild
        ),
        Outcome::Stays(Proof::Purged(purged)) => format!(
            "{addr} stays out: {writer} has no binary log of {} any more, which {addr} lacks. Rebuild the server: {}",
            shown(&purged),
            advice.rebuild
        ),
        Outcome::Stays(Proof::Unknown(why)) => format!("{addr} stays out: {why}"),
        Outcome::Stays(Proof::Clean) => format!("{addr} stays out"),
    };
    monitor.note_rejoin(order.hostgroup, &addr, "not taken back", &why);
    Err(why)
}
