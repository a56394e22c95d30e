//! What one server says of itself in one look, and what a healer makes of all looks: the product's `Facts`.

use std::collections::BTreeMap;

use model::snapshot::Loss;
use topology::healing::{Channel, Facts, LinkState, LinkThread, Primary, Replica, SemiSync, ServerVersion};
use topology::{GtidSet, ServerId};

use crate::mind::Mind;
use crate::network::Fault;
use crate::numbers::{Flavor, Numbers, set};
use crate::replication::HEARTBEAT_MS;
use crate::sabotage::Sabotage;
use crate::server::Gate;
use crate::world::{State, WRITER, World, addr};

/// A server's answers.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    pub(crate) id: ServerId,
    pub(crate) version: ServerVersion,
    pub(crate) executed: GtidSet,
    pub(crate) purged: GtidSet,
    pub(crate) gate: Gate,
    pub(crate) is_strict: bool,
    pub(crate) is_acker: bool,
    pub(crate) semi_sync: Option<SemiSync>,
    pub(crate) line: Option<Line>,
}

/// Its channel.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) channel: Channel,
    pub(crate) source: usize,
    pub(crate) received: GtidSet,
    pub(crate) heartbeats: u64,
}

impl Sight {
    pub(crate) fn received(&self) -> GtidSet {
        let own = self.executed.clone();
        self.line.iter().fold(own, |all, line| all.with(&line.received))
    }

    /// MariaDB has no `super_read_only`.
    pub(crate) fn is_closed(&self) -> bool {
        self.gate == Gate::Closed || (self.version.is_mariadb && self.gate != Gate::Open)
    }
}

/// Each server's answer, or why there is none.
pub(crate) type Said = BTreeMap<usize, Result<Sight, Fault>>;

impl State {
    pub(crate) fn sight(&self, place: usize, now_ms: u64) -> Sight {
        let server = &self.servers[place];
        Sight {
            id: server.id(),
            version: server.version(),
            executed: self.executed_of(place),
            purged: server.purged_set(),
            gate: server.gate,
            is_strict: server.flavor == Flavor::MariaDb && server.is_strict,
            is_acker: server.semi.is_acker && server.link.as_ref().is_some_and(|link| link.cursor.is_some()),
            semi_sync: self.semi_sync(place),
            line: self.line(place, now_ms),
        }
    }

    /// MariaDB adds `gtid_slave_pos`.
    pub(crate) fn executed_of(&self, place: usize) -> GtidSet {
        let server = &self.servers[place];
        let position = server.position.filter(|_| server.flavor == Flavor::MariaDb).map(|at| set(&at.text(server.flavor)));
        position.iter().fold(server.executed_set(), |all, one| all.with(one))
    }

    fn line(&self, place: usize, now_ms: u64) -> Option<Line> {
        let server = &self.servers[place];
        let link = server.link.as_ref()?;
        let runs = link.receiver.state == LinkState::Runs && link.applies && link.applier_error.is_none();
        let is_applying = link.applies && link.applier_error.is_none();
        let behind_ms = link.relay.front().map_or(0, |one| now_ms.saturating_sub(one.at_ms));
        let channel = Channel {
            name: String::new(),
            source: addr(link.source),
            is_from_primary: false,
            is_by_gtid: true,
            position: server.received_text(),
            receiver: link.receiver.clone(),
            applier: LinkThread { state: if is_applying { LinkState::Runs } else { LinkState::Stopped }, error: link.applier_error },
            delay_s: server.nature.delay_ms / 1_000,
            has_filters: false,
            lag_ms: runs.then_some(behind_ms / 1_000 * 1_000),
            heard_ms: None,
            heartbeat_ms: Some(HEARTBEAT_MS),
        };
        Some(Line { channel, source: link.source, received: set(&server.received_text()), heartbeats: link.heartbeats })
    }
}

impl World {
    /// The facts of a look, as `monitor`'s `healing/round` puts them together.
    pub(crate) fn facts(&self, healer: usize, mind: &Mind, said: &Said, is_alive: bool) -> Facts {
        let Some(primary) = mind.primary else { return Facts::default() };
        let (now_ms, state) = (self.clock.now_ms(), self.state.borrow());
        let last = mind.last.as_ref().map(|(_, sight)| sight);
        let fenced = state.proxies[healer].topology.fenced(WRITER);
        let standing = |place: usize| Replica {
            declared: Some(state.draw.promotions[place]),
            weight: 1,
            site: state.draw.sites[place].into(),
            offline: fenced.contains(&addr(place)).then(|| "it is kept out, as another server took over from it".to_owned()),
            unable: mind.promoting.unable.contains(&place).then(|| "it had not applied in time what it had received".to_owned()),
            was_errant: mind.errant.get(&place).cloned().unwrap_or_default(),
            ..Replica::silent(addr(place), "it does not answer")
        };
        let of_one = |place: usize| {
            let Some(Ok(sight)) = said.get(&place) else { return standing(place) };
            let received = sight.received();
            let channel = sight.line.as_ref().map(|line| Channel {
                is_from_primary: line.source == primary,
                heard_ms: mind.watch.heard_ms(place, now_ms),
                lag_ms: line.channel.lag_ms.or_else(|| mind.watch.lag_ms(place)),
                position: if sight.version.is_mariadb { line.channel.position.clone() } else { received.to_string() },
                applier: if self.lacks(Sabotage::IgnoreBrokenAppliers) {
                    LinkThread { state: LinkState::Runs, error: None }
                } else {
                    line.channel.applier.clone()
                },
                ..line.channel.clone()
            });
            Replica {
                silence: None,
                id: sight.id.clone(),
                version: sight.version,
                executed: sight.executed.clone(),
                received,
                purged: sight.purged.clone(),
                has_gtids: true,
                is_open: sight.gate == Gate::Open,
                is_closed: sight.is_closed(),
                is_strict: sight.is_strict,
                logs: true,
                logs_updates: true,
                channels: usize::from(channel.is_some()),
                is_acker: if is_alive { sight.is_acker } else { mind.ackers.contains(&place) },
                channel,
                ..standing(place)
            }
        };
        let replicas = (0..state.servers.len()).filter(|place| *place != primary).map(of_one).collect();
        let age_ms = mind.last.as_ref().map(|(asked_ms, _)| mind.watch.until_ms(now_ms).saturating_sub(*asked_ms));
        let any = || said.values().find_map(|said| said.as_ref().ok());
        let primary = Primary {
            addr: addr(primary),
            // Of one that was never seen its replicas know what it calls itself.
            id: last.map_or_else(|| state.servers[primary].id(), |sight| sight.id.clone()),
            version: last.or_else(any).map(|sight| sight.version).unwrap_or_default(),
            executed: last.map(|sight| sight.executed.clone()),
            latest: None,
            purged: last.map(|sight| sight.purged.clone()).unwrap_or_default(),
            acknowledged: if is_alive { GtidSet::default() } else { state.acknowledged(healer, primary) },
            is_strict: last.is_some_and(|sight| sight.is_strict),
            semi_sync: last.and_then(|sight| sight.semi_sync),
            age_ms: age_ms.unwrap_or(0),
            site: state.draw.sites[primary].into(),
        };
        debug_assert!(state.policy.loss != Loss::None || state.draw.is_lossless);
        Facts { primary: Some(primary), is_alive, replicas }
    }
}

impl State {
    /// What clients of this proxy got OK for and this server wrote.
    fn acknowledged(&self, proxy: usize, server: usize) -> GtidSet {
        let (flavor, number) = (self.draw.flavor, server as u64 + 1);
        let own = self.proxies[proxy].acknowledged.iter().filter(|gtid| gtid.server == number);
        set(&Numbers::of(own).text(flavor))
    }
}
