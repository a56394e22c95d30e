//! The history of role changes, limited by `monitor_events_max`. Each event is also a line of the program's log.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::HostgroupId;
use model::snapshot::{RoleKind, Snapshot};
use serde::{Deserialize, Serialize};
use topology::{Event, EventKind};

use crate::clock::Clock;

/// Most changes of an Aurora cluster's writer that are kept.
const FAILOVERS_MAX: usize = 1_000;
/// `mysql-monitor_events_max` by default.
const EVENTS_MAX: usize = 1_000;

/// An event as it is kept and shown: the fields of an [`Event`] in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Noted {
    /// Grows by one with each event, over restarts too. A gap shows dropped events.
    pub(crate) sequence: u64,
    /// When it was decided, Unix ms.
    pub(crate) at_unix_ms: u64,
    pub(crate) cluster: Option<u32>,
    pub(crate) kind: Cow<'static, str>,
    pub(crate) host: Option<Arc<str>>,
    pub(crate) port: Option<u16>,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) seen: String,
    pub(crate) by: Cow<'static, str>,
    pub(crate) why: String,
}

impl Noted {
    fn new(sequence: u64, at_unix_ms: u64, event: Event) -> Self {
        let Event { at_ms: _, cluster, server, kind, from, to, seen, by, why } = event;
        let (host, port) = server.map(|server| (server.host, server.port)).unzip();
        let (cluster, kind, by) = (cluster.map(|id| id.0), kind.as_str().into(), by.into());
        Self { sequence, at_unix_ms, cluster, kind, host, port, from, to, seen, by, why }
    }
}

/// An Aurora cluster has another writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failover {
    /// The key of the cluster.
    pub(crate) writer: HostgroupId,
    /// Its new writer.
    pub(crate) host: Arc<str>,
    /// When it was seen, Unix ms.
    pub(crate) at_unix_ms: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Noted>,
    failovers: VecDeque<Failover>,
    sequence: u64,
    events_max: usize,
    aurora: BTreeSet<HostgroupId>,
}

impl Default for History {
    fn default() -> Self {
        Self { events: VecDeque::new(), failovers: VecDeque::new(), sequence: 0, events_max: EVENTS_MAX, aurora: BTreeSet::new() }
    }
}

impl History {
    /// How much is kept, and which clusters are Aurora's.
    pub(crate) fn configure(&mut self, snapshot: &Snapshot) {
        self.events_max = usize::try_from(snapshot.vars.monitor_events_max).unwrap_or(usize::MAX);
        let aurora = snapshot.roles.iter().filter(|group| matches!(group.kind, RoleKind::Aurora(_)));
        self.aurora = aurora.map(|group| group.writer).collect();
        self.trim();
    }

    /// Adds an event. Beyond the limit the oldest is dropped.
    pub(crate) fn add(&mut self, event: Event, clock: &Clock) {
        self.sequence += 1;
        let at_unix_ms = clock.unix_ms(event.at_ms);
        report(&event);
        self.note_failover(&event, at_unix_ms);
        self.events.push_back(Noted::new(self.sequence, at_unix_ms, event));
        self.trim();
    }

    /// Goes on after the events of an earlier process, oldest first. Before the first event of this one.
    pub(crate) fn recall(&mut self, earlier: Vec<Noted>) {
        self.sequence = earlier.last().map_or(0, |noted| noted.sequence);
        self.events = earlier.into();
        self.trim();
    }

    /// Goes on after events that another process wrote meanwhile, oldest first. The own events after number `written` follow them, with new
    /// numbers.
    pub(crate) fn follow(&mut self, earlier: Vec<Noted>, written: u64) {
        let own: Vec<Noted> = self.events.iter().filter(|noted| noted.sequence > written).cloned().collect();
        self.recall(earlier);
        for noted in own {
            self.sequence += 1;
            self.events.push_back(Noted { sequence: self.sequence, ..noted });
        }
        self.trim();
    }

    /// The number of the last event; 0 before the first.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.sequence
    }

    /// The events that are kept, oldest first.
    pub(crate) fn events(&self) -> impl DoubleEndedIterator<Item = &Noted> {
        self.events.iter()
    }

    /// The changes of Aurora's writers that are kept, oldest first.
    pub(crate) fn failovers(&self) -> impl Iterator<Item = &Failover> {
        self.failovers.iter()
    }

    fn trim(&mut self) {
        let surplus = self.events.len().saturating_sub(self.events_max);
        self.events.drain(..surplus);
    }

    fn note_failover(&mut self, event: &Event, at_unix_ms: u64) {
        if let (EventKind::Role, Some(writer), Some(server)) = (event.kind, event.cluster, &event.server)
            && writes(&event.to)
            && !writes(&event.from)
            && self.aurora.contains(&writer)
        {
            if self.failovers.len() == FAILOVERS_MAX {
                self.failovers.pop_front();
            }
            self.failovers.push_back(Failover { writer, host: Arc::clone(&server.host), at_unix_ms });
        }
    }
}

/// Whether `writer` is among the roles.
fn writes(roles: &str) -> bool {
    roles.split(',').any(|role| role == "writer")
}

/// An event as the log has it. A suspicion has no state before it.
fn line(event: &Event) -> String {
    let cluster = event.cluster.map(|id| format!("cluster {id}: ")).unwrap_or_default();
    let server = event.server.as_ref().map(|addr| format!("{addr} ")).unwrap_or_default();
    let Event { kind, from, to, seen, by, why, .. } = event;
    let seen = if seen.is_empty() { String::new() } else { format!(": {seen}") };
    let from = if from.is_empty() { String::new() } else { format!("{from} -> ") };
    format!("{cluster}{server}{}: {from}{to} ({why}; seen by {by}{seen})", kind.as_str())
}

fn report(event: &Event) {
    let line = line(event);
    match event.kind {
        EventKind::Identity if event.to != "stranger" => tracing::info!("{line}"),
        EventKind::Status
        | EventKind::Writer
        | EventKind::Reads
        | EventKind::Role
        | EventKind::Address
        | EventKind::Identity
        | EventKind::Healing
        | EventKind::Channel => {
            tracing::warn!("{line}")
        }
        EventKind::Discovery | EventKind::Suspicion | EventKind::Order => tracing::info!("{line}"),
    }
}

#[cfg(test)]
mod tests {
    use model::ServerAddr;

    use super::*;

    #[test]
    fn an_event_without_a_state_before_it_has_no_arrow() {
        let role = Event { why: "it said so".into(), ..event("1") };
        assert_eq!(line(&role), "cluster 1: writer: none -> 1 (it said so; seen by probe)");
        let suspicion = Event { kind: EventKind::Suspicion, from: String::new(), to: "connection_lost".into(), ..role };
        assert_eq!(line(&suspicion), "cluster 1: suspicion: connection_lost (it said so; seen by probe)");
    }

    fn event(to: &str) -> Event {
        Event {
            at_ms: 0,
            cluster: Some(HostgroupId(1)),
            server: None,
            kind: EventKind::Writer,
            from: "none".into(),
            to: to.into(),
            seen: String::new(),
            by: "probe",
            why: String::new(),
        }
    }

    #[test]
    fn the_oldest_events_go_and_numbers_stay() {
        let clock = Clock::new();
        let mut history = History { events_max: 2, ..History::default() };
        for to in ["a", "b", "c"] {
            history.add(event(to), &clock);
        }
        let kept: Vec<_> = history.events().map(|noted| (noted.sequence, &*noted.to)).collect();
        assert_eq!(kept, [(2, "b"), (3, "c")]);
        let mut next = History { events_max: 2, ..History::default() };
        next.recall(history.events().cloned().collect());
        next.add(event("d"), &clock);
        let kept: Vec<_> = next.events().map(|noted| (noted.sequence, &*noted.to)).collect();
        assert_eq!(kept, [(3, "c"), (4, "d")], "after a restart");
    }

    #[test]
    fn a_new_writer_of_an_aurora_cluster_is_a_failover() {
        let clock = Clock::new();
        let mut history = History { aurora: BTreeSet::from([HostgroupId(1)]), ..History::default() };
        let server = Some(ServerAddr { host: "db-1.x".into(), port: 3306 });
        for (from, to) in [("reader", "writer,reader"), ("writer,reader", "writer"), ("writer", "reader")] {
            let event = Event { kind: EventKind::Role, server: server.clone(), from: from.into(), ..event(to) };
            history.add(event, &clock);
        }
        assert_eq!(history.failovers().count(), 1);
        history.add(Event { kind: EventKind::Role, server, cluster: Some(HostgroupId(2)), ..event("writer") }, &clock);
        assert_eq!(history.failovers().count(), 1, "of another kind");
    }
}
