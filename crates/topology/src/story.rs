//! What changed between two layouts, told as events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::fleet::Placement;
use model::snapshot::{RoleGroup, ServerStatus};
use model::{HostgroupId, ServerAddr};

use crate::event::{Event, EventKind};
use crate::health::Lags;
use crate::judgement::Judgements;

/// What made somebody decide anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A check ended.
    Probe,
    /// Traffic reported something.
    Traffic,
    /// Time has passed.
    Time,
    /// An operator's order.
    Operator,
    /// A new configuration.
    Configuration,
}

impl Cause {
    /// As events name it.
    pub fn as_str(self) -> &'static str {
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

/// Whom the events are about, and who decided when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Teller<'a> {
    /// The cluster; None for a hostgroup in none.
    pub group: Option<&'a Arc<RoleGroup>>,
    /// What was seen of its servers.
    pub judgements: &'a Judgements,
    /// What was seen of those that are too far behind.
    pub lags: &'a Lags,
    /// What made somebody decide.
    pub cause: Cause,
    /// When, ms.
    pub at_ms: u64,
}

/// A server's hostgroups, with its status and the reason in each.
type Places<'a> = BTreeMap<HostgroupId, (ServerStatus, &'a str)>;

impl Teller<'_> {
    /// The events of a change. Servers that are new, or gone, make none here.
    pub fn tell(&self, old: &Part, new: &Part) -> Vec<Event> {
        let (old_places, new_places) = (by_server(old), by_server(new));
        let mut events = Vec::new();
        for (addr, new_place) in &new_places {
            let Some(old_place) = old_places.get(addr) else { continue };
            let why = new_place.values().map(|(_, why)| *why).find(|why| !why.is_empty()).unwrap_or("healthy");
            let (from, to) = (self.roles(old_place), self.roles(new_place));
            if from != to {
                events.push(self.event(EventKind::Role, Some(addr), (from, to), why));
            }
            for (from, to) in statuses(old_place, new_place) {
                let mut event = self.event(EventKind::Status, Some(addr), (from.as_str().to_owned(), to.as_str().to_owned()), why);
                if let Some(lag) = self.lags.get(addr).filter(|_| to == ServerStatus::ShunnedReplicationLag) {
                    event.seen = format!("{lag} {}", event.seen).trim_end().to_owned();
                }
                events.push(event);
            }
        }
        events.extend(self.writers(old, new));
        events
    }

    /// Whether the cluster lost its last writer, or has one again.
    fn writers(&self, old: &Part, new: &Part) -> Option<Event> {
        let group = self.group?;
        let (from, to) = (online(old, group.writer), online(new, group.writer));
        let why = if to.is_empty() { "nobody may write" } else { "the cluster has a writer again" };
        let name = |writers: Vec<String>| if writers.is_empty() { "none".to_owned() } else { writers.join(",") };
        (from.is_empty() != to.is_empty()).then(|| self.event(EventKind::Writer, None, (name(from), name(to)), why))
    }

    /// Servers that came back and are kept out, of which that was not so `before`.
    pub fn returned(&self, before: &Judgements) -> impl Iterator<Item = Event> {
        let is_new = |addr: &ServerAddr| before.get(addr).is_some_and(|judgement| !judgement.is_kept_out());
        let returned = self.judgements.iter().filter(move |(addr, judgement)| judgement.is_kept_out() && is_new(addr));
        let shunned = || ServerStatus::Shunned.as_str().to_owned();
        returned.map(move |(addr, judgement)| self.event(EventKind::Status, Some(addr), (shunned(), shunned()), &judgement.why))
    }

    /// An event, with what was seen of its server.
    pub fn event(&self, kind: EventKind, server: Option<&ServerAddr>, (from, to): (String, String), why: &str) -> Event {
        let seen = server.and_then(|addr| self.judgements.get(addr)).map(|judgement| judgement.seen.clone());
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
            all.entry(placement.server.key.addr()).or_default().insert(*id, (placement.status, &*placement.why));
        }
    }
    all
}

/// The changes of status in hostgroups that a server is still in, each once.
fn statuses(old: &Places<'_>, new: &Places<'_>) -> Vec<(ServerStatus, ServerStatus)> {
    let changes = new.iter().filter_map(|(id, (to, _))| old.get(id).map(|(from, _)| (*from, *to)));
    let mut seen = BTreeSet::new();
    changes.filter(|(from, to)| from != to && seen.insert((from.as_str(), to.as_str()))).collect()
}

fn online(part: &Part, id: HostgroupId) -> Vec<String> {
    let placements = part.get(&id).map_or(&[][..], Vec::as_slice);
    placements.iter().filter(|p| p.status == ServerStatus::Online).map(|p| p.server.key.addr().to_string()).collect()
}
