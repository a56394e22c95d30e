//! The difference of two layouts, as events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::fleet::Placement;
use model::snapshot::{RoleGroup, RoleKind, ServerStatus, WriterReads};
use model::{HostgroupId, ServerAddr};

use crate::cluster::Choice;
use crate::event::{Event, EventKind};
use crate::health::Lags;
use crate::judgement::{Fitness, Judgement, Judgements};

/// The reason for a new decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A check ended.
    Probe,
    /// Traffic reported something.
    Traffic,
    /// A deadline has passed.
    Time,
    Operator,
    Configuration,
}

impl Cause {
    /// As events name it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Traffic => "traffic",
            Self::Time => "time",
            Self::Operator => "operator",
            Self::Configuration => "configuration",
        }
    }
}

/// Hostgroups with their servers: a part of a layout.
pub(crate) type Part = BTreeMap<HostgroupId, Vec<Placement>>;

/// The context of the events: their cluster, and when and why it was decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventWriter<'a> {
    /// The cluster; None for a hostgroup in none.
    pub group: Option<&'a Arc<RoleGroup>>,
    /// The servers' judgements in this decision.
    pub judgements: &'a Judgements,
    /// How its writers were chosen.
    pub choice: Option<&'a Choice>,
    /// The servers beyond their lag limit.
    pub lags: &'a Lags,
    /// The reason for this decision.
    pub cause: Cause,
    /// On the caller's clock, ms.
    pub at_ms: u64,
}

/// A server's hostgroups with its status in each.
type Places<'a> = BTreeMap<HostgroupId, &'a Placement>;

impl EventWriter<'_> {
    /// The events of a change. Servers that are new, or gone, make none here, but for writers that a configuration has no more.
    pub(crate) fn tell(&self, old: &Part, new: &Part) -> Vec<Event> {
        let (old_places, new_places) = (by_server(old), by_server(new));
        let mut events = Vec::new();
        for (addr, new_place) in &new_places {
            let Some(old_place) = old_places.get(addr) else { continue };
            let (from, to) = (self.roles(old_place), self.roles(new_place));
            if from != to {
                let why = self.why_role(addr, old_place, new_place);
                events.push(self.event(EventKind::Role, Some(addr), (from, to), &why));
            }
            for (old, new) in statuses(old_place, new_place) {
                let change = (old.status.as_str().to_owned(), new.status.as_str().to_owned());
                let mut event = self.event(EventKind::Status, Some(addr), change, &self.why_status(addr, old, new));
                if let Some(lag) = self.lags.get(addr).filter(|_| new.status == ServerStatus::ShunnedReplicationLag) {
                    event.seen = format!("{lag} {}", event.seen).trim_end().to_owned();
                }
                events.push(event);
            }
        }
        let gone = old_places.iter().filter(|(addr, _)| self.cause == Cause::Configuration && !new_places.contains_key(addr));
        for (addr, place) in gone.filter(|(_, place)| self.group.is_some_and(|group| place.contains_key(&group.writer))) {
            let change = (self.roles(place), "none".to_owned());
            events.push(self.event(EventKind::Role, Some(addr), change, "removed from the configuration"));
        }
        events.extend(self.writers(old, new));
        events
    }

    fn why_role(&self, addr: &ServerAddr, old: &Places<'_>, new: &Places<'_>) -> String {
        // If an operator switched off one of its hostgroups, this is why it appears in another one.
        let off = old.iter().filter_map(|(id, old)| Some((old, new.get(id)?))).find(|(old, new)| old.server.status != new.server.status);
        if let Some((_, new)) = off.filter(|(_, new)| new.server.status != ServerStatus::Online) {
            return format!("the configuration says {} in hostgroup {}", new.server.status.as_str(), new.server.key.hostgroup);
        }
        let is_off = |place: &&Placement| place.server.status != ServerStatus::Online;
        if let Some(off) = new.values().find(|_| self.cause == Cause::Configuration && new.values().all(is_off)) {
            return format!("the configuration says {}", off.server.status.as_str());
        }
        let holds = |places: &Places<'_>, id: Option<HostgroupId>| id.is_some_and(|id| places.contains_key(&id));
        let (writer, reader) = (self.group.map(|group| group.writer), self.group.map(|group| group.reader));
        let reads = self.group.map(|group| group.writer_reads);
        let chosen = match (holds(old, writer), holds(new, writer)) {
            (true, false) if self.group.is_some_and(|group| group.max_writers == 0) => Some("max_writers is 0".to_owned()),
            (false, true) => self.why_chosen(addr, old),
            (true, false) => self.choice.and_then(|choice| choice.of_dismissed(addr, self.judgements)),
            (true, true) if reads == Some(WriterReads::Backups) && holds(new, reader) => {
                Some("no backup writer is left to read".to_owned())
            }
            (true, true) if reads == Some(WriterReads::Backups) => Some("backup writers read".to_owned()),
            (true, true) if reads == Some(WriterReads::No) => Some("writers do not read here".to_owned()),
            (true, true) | (false, false) => None,
        };
        let judged = || self.judgements.get(addr).filter(|judgement| judgement.fitness != Fitness::Unseen);
        let otherwise = || match self.cause {
            Cause::Configuration => "the configuration says so".to_owned(),
            _ => "the server was not probed yet".to_owned(),
        };
        chosen.unwrap_or_else(|| judged().map_or_else(otherwise, |judgement| judgement.why.clone()))
    }

    /// Why a server writes, and that it was known to be behind; None where its judgement says it all.
    fn why_chosen(&self, addr: &ServerAddr, old: &Places<'_>) -> Option<String> {
        let chosen = self.choice.and_then(|choice| choice.of_chosen(addr, self.judgements));
        if !old.values().any(|place| place.status == ServerStatus::ShunnedReplicationLag) {
            return chosen;
        }
        let why = chosen.or_else(|| self.judgements.get(addr).map(|judgement| judgement.why.clone())).unwrap_or_default();
        Some(format!("{why}; the server was excluded for lag until now, so it may lack transactions"))
    }

    /// Why a server's status in a hostgroup changed.
    fn why_status(&self, addr: &ServerAddr, old: &Placement, new: &Placement) -> String {
        let was_behind = old.status == ServerStatus::ShunnedReplicationLag && !self.lags.contains_key(addr);
        let why = if new.why.is_empty() { "well again" } else { &*new.why };
        match new.status {
            status if new.server.status == status && status != ServerStatus::Online => {
                format!("the configuration says {}", status.as_str())
            }
            ServerStatus::Online if old.server.status != ServerStatus::Online => "the configuration says ONLINE".to_owned(),
            ServerStatus::Online if was_behind => "no longer too far behind".to_owned(),
            ServerStatus::Online if !old.why.is_empty() => format!("{why}; before: {}", old.why),
            _ => why.to_owned(),
        }
    }

    /// Whether the cluster lost its last writer, or has one again; of replication, whether several write.
    fn writers(&self, old: &Part, new: &Part) -> Option<Event> {
        let group = self.group?;
        let (from, to) = (online(old, group.writer), online(new, group.writer));
        let is_replication = matches!(group.kind, RoleKind::Replication(_));
        let are_others = is_replication && from != to && from.len().max(to.len()) > 1;
        let why = match self.choice.is_some_and(|choice| choice.is_first) {
            _ if to.is_empty() && group.max_writers == 0 => "max_writers is 0, so no server may write".to_owned(),
            _ if to.is_empty() => "no server may write".to_owned(),
            _ if to.len() > 1 => format!("{} servers take writes: {}", to.len(), to.join(", ")),
            _ if !from.is_empty() => "one server takes writes".to_owned(),
            true => "the cluster has a writer".to_owned(),
            false => "the cluster has a writer again".to_owned(),
        };
        let name = |writers: Vec<String>| if writers.is_empty() { "none".to_owned() } else { writers.join(",") };
        (from.is_empty() != to.is_empty() || are_others).then(|| self.event(EventKind::Writer, None, (name(from), name(to)), &why))
    }

    /// Servers that could write and are kept out, of which that was not so `before`.
    pub(crate) fn returned(&self, before: &Judgements) -> impl Iterator<Item = Event> {
        let is_new = |addr: &ServerAddr| before.get(addr).is_some_and(|judgement| !judgement.is_kept_out());
        let returned = self.judgements.iter().filter(move |(addr, judgement)| judgement.is_kept_out() && is_new(addr));
        let change = |judgement: &Judgement| (judgement.kept_out.unwrap_or_default().to_owned(), "kept out".to_owned());
        returned.map(move |(addr, judgement)| self.event(EventKind::Status, Some(addr), change(judgement), &judgement.why))
    }

    /// The event's `seen` are the values of the server's judgement.
    pub(crate) fn event(&self, kind: EventKind, server: Option<&ServerAddr>, (from, to): (String, String), why: &str) -> Event {
        let seen = server.and_then(|addr| self.judgements.get(addr)).map(|judgement| match judgement.fitness {
            Fitness::Unseen if judgement.seen.is_empty() => "nothing yet".to_owned(),
            _ => judgement.seen.clone(),
        });
        Event {
            at_ms: self.at_ms,
            cluster: self.group.map(|group| group.writer),
            server: server.cloned(),
            kind,
            from,
            to,
            seen: seen.unwrap_or_default(),
            by: self.cause.as_str(),
            why: why.to_owned(),
        }
    }

    /// The roles that hostgroups stand for, as `writer,reader`.
    fn roles(&self, places: &Places<'_>) -> String {
        let Some(group) = self.group else { return String::new() };
        let all = [
            (Some(group.writer), "writer"),
            (group.backup_writer, "backup_writer"),
            (Some(group.reader), "reader"),
            (group.offline, "offline"),
        ];
        let held = all.into_iter().filter(|(id, _)| id.is_some_and(|id| places.contains_key(&id)));
        let names: Vec<&str> = held.map(|(_, name)| name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    }
}

fn by_server(part: &Part) -> BTreeMap<ServerAddr, Places<'_>> {
    let mut all: BTreeMap<ServerAddr, Places<'_>> = BTreeMap::new();
    for (id, placements) in part {
        for placement in placements {
            all.entry(placement.server.key.addr()).or_default().insert(*id, placement);
        }
    }
    all
}

/// The changes of status in hostgroups that a server is still in, each once. If a server was off everywhere and moved, the end of that is a
/// change too.
fn statuses<'a>(old: &Places<'a>, new: &Places<'a>) -> Vec<(&'a Placement, &'a Placement)> {
    let is_off = |place: &&&Placement| matches!(place.status, ServerStatus::OfflineSoft | ServerStatus::OfflineHard);
    let has_moved = !new.keys().any(|id| old.contains_key(id)) && old.values().all(|place| is_off(&place));
    let back = old.values().next().zip(new.values().next()).filter(|_| has_moved).map(|(old, new)| (*old, *new));
    let changes = new.iter().filter_map(|(id, new)| old.get(id).map(|old| (*old, *new))).chain(back);
    let mut seen = BTreeSet::new();
    changes.filter(|(old, new)| old.status != new.status && seen.insert((old.status.as_str(), new.status.as_str()))).collect()
}

fn online(part: &Part, id: HostgroupId) -> Vec<String> {
    let placements = part.get(&id).map_or(&[][..], Vec::as_slice);
    placements.iter().filter(|p| p.status == ServerStatus::Online).map(|p| p.server.key.addr().to_string()).collect()
}
