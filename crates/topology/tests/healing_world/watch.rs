//! When a writer and its replicas were heard. The rules of `monitor`'s `healing/watch`, on the virtual clock.

use std::collections::BTreeMap;

use topology::GtidSet;
use topology::healing::{Past, Replica, Verdict, Witness, witness};

use crate::look::Line;
use crate::world::place_of;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    lost: Option<Lost>,
    heard: BTreeMap<usize, Heard>,
}

#[derive(Debug, Clone, Copy)]
struct Lost {
    since_ms: u64,
    looked_ms: u64,
    received: u64,
    was_dead: bool,
}

#[derive(Debug, Default)]
struct Heard {
    received: GtidSet,
    heartbeats: u64,
    lag_ms: Option<u64>,
    changed_ms: Option<u64>,
    first_ms: Option<u64>,
    broken_ms: Option<u64>,
}

impl Watch {
    pub(crate) fn note<'a>(
        &mut self,
        lines: impl Iterator<Item = (usize, &'a Line)>,
        is_lost: bool,
        received: u64,
        (begun_ms, now_ms): (u64, u64),
    ) {
        for (place, line) in lines {
            self.heard.entry(place).or_default().hear(line, now_ms);
        }
        self.lost = match self.lost.take() {
            _ if !is_lost => None,
            None => Some(Lost { since_ms: begun_ms, looked_ms: now_ms, received, was_dead: false }),
            lost => lost,
        };
    }

    pub(crate) fn has_traffic(&mut self, received: u64, now_ms: u64) -> bool {
        let Some(lost) = &mut self.lost else { return false };
        let is_more = received > lost.received;
        if is_more {
            *lost = Lost { since_ms: now_ms, looked_ms: now_ms, was_dead: false, ..*lost };
        }
        lost.received = received;
        is_more
    }

    pub(crate) fn judged(&mut self, verdict: Verdict) {
        if let Some(lost) = &mut self.lost {
            lost.was_dead = verdict == Verdict::Dead;
        }
    }

    pub(crate) fn was_dead(&self) -> bool {
        self.lost.is_some_and(|lost| lost.was_dead)
    }

    pub(crate) fn lost_ms(&self, now_ms: u64) -> u64 {
        self.lost.map_or(0, |lost| now_ms.saturating_sub(lost.since_ms))
    }

    /// When the writer was last known to live.
    pub(crate) fn until_ms(&self, now_ms: u64) -> u64 {
        self.lost.map_or(now_ms, |lost| lost.since_ms)
    }

    pub(crate) fn heard_ms(&self, place: usize, now_ms: u64) -> Option<u64> {
        Some(self.until_ms(now_ms).saturating_sub(self.heard.get(&place)?.changed_ms?))
    }

    pub(crate) fn lag_ms(&self, place: usize) -> Option<u64> {
        self.heard.get(&place)?.lag_ms
    }

    pub(crate) fn witness(&self, replica: &Replica, dead_ms: u64, now_ms: u64) -> Witness {
        if replica.silence.is_some() {
            return Witness::Mute;
        }
        let heard = self.heard.get(&place_of(&replica.addr));
        let changed_ms = heard.and_then(|heard| heard.changed_ms);
        let broken_ms = heard.and_then(|heard| heard.broken_ms);
        let past = Past {
            has_heard: changed_ms.zip(self.lost).is_some_and(|(changed_ms, lost)| changed_ms > lost.looked_ms),
            quiet_ms: changed_ms.or_else(|| heard?.first_ms).map_or(0, |since_ms| now_ms.saturating_sub(since_ms)),
            was_broken: broken_ms.zip(self.lost).is_some_and(|(broken_ms, lost)| broken_ms + dead_ms < lost.since_ms),
        };
        witness(replica.channel.as_ref(), past)
    }
}

impl Heard {
    fn hear(&mut self, line: &Line, now_ms: u64) {
        let is_first = self.first_ms.is_none();
        self.first_ms.get_or_insert(now_ms);
        if self.received != line.received || self.heartbeats != line.heartbeats {
            (self.received, self.heartbeats) = (line.received.clone(), line.heartbeats);
            self.changed_ms = if is_first { self.changed_ms } else { Some(now_ms) };
        }
        self.lag_ms = line.channel.lag_ms.or(self.lag_ms);
        self.broken_ms = line.channel.receiver.has_lost_source().then(|| self.broken_ms.unwrap_or(now_ms));
    }
}
