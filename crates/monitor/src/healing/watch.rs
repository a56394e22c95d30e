//! When a writer and its replicas were heard: what a verdict needs beyond one look. Lives in the keeping of a cluster from round to round.
//! Pure: answers and time come in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use model::ServerAddr;
use topology::GtidSet;
use topology::healing::{Past, Replica, Verdict, Witness, witness};

use super::look::Line;
use crate::clock::whole;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The writer does not answer.
    lost: Option<Lost>,
    heard: BTreeMap<ServerAddr, Heard>,
}

#[derive(Debug, Clone, Copy)]
struct Lost {
    /// Nobody of this proxy has heard from the writer since.
    since: Instant,
    /// When that was found: what replicas hear later, the writer sent later.
    looked: Instant,
    /// Bytes that had come from the writer to the data plane.
    received: Option<u64>,
    /// The verdict at the last look was `dead`.
    was_dead: bool,
}

/// What a replica heard of the writer.
#[derive(Debug, Default)]
struct Heard {
    received: GtidSet,
    heartbeats: Option<u64>,
    /// The last lag that it named: without its source a server shows NULL.
    lag_ms: Option<u64>,
    /// When what it received, or its heartbeats, changed.
    changed: Option<Instant>,
    /// When its channel was seen first.
    first: Option<Instant>,
    /// Since when its receiver has lost the writer.
    broken: Option<Instant>,
}

/// The times of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// Before the servers were asked.
    pub(super) begun: Instant,
    /// After they had answered.
    pub(super) now: Instant,
}

impl Watch {
    /// Only these servers are of the cluster.
    pub(super) fn keep_only(&mut self, is_member: impl Fn(&ServerAddr) -> bool) {
        self.heard.retain(|addr, _| is_member(addr));
    }

    /// Notes the replicas' channels from the writer, then whether the writer answered: all that replicas have said by now, they had heard
    /// before this proxy lost the writer. `received` are the bytes of the writer to the data plane.
    pub(super) fn note<'a>(
        &mut self,
        channels: impl Iterator<Item = (&'a ServerAddr, &'a Line)>,
        is_lost: bool,
        received: Option<u64>,
        round: Round,
    ) {
        for (addr, line) in channels {
            self.heard.entry(addr.clone()).or_default().hear(line, round.now);
        }
        self.lost = match self.lost.take() {
            _ if !is_lost => None,
            None => Some(Lost { since: round.begun, looked: round.now, received, was_dead: false }),
            lost => lost,
        };
    }

    /// Whether clients heard from the writer since the last look that missed it. Then it was lost later than that.
    pub(super) fn has_traffic(&mut self, received: Option<u64>, now: Instant) -> bool {
        let Some(lost) = &mut self.lost else { return false };
        let is_more = lost.received.zip(received).is_some_and(|(before, now)| now > before);
        if is_more {
            *lost = Lost { since: now, looked: now, was_dead: false, ..*lost };
        }
        lost.received = received.or(lost.received);
        is_more
    }

    /// What was found of the writer.
    pub(super) fn judged(&mut self, verdict: Verdict) {
        if let Some(lost) = &mut self.lost {
            lost.was_dead = verdict == Verdict::Dead;
        }
    }

    pub(super) fn was_dead(&self) -> bool {
        self.lost.is_some_and(|lost| lost.was_dead)
    }

    /// For how long nobody of this proxy has heard from the writer, ms.
    pub(super) fn lost_ms(&self, now: Instant) -> u64 {
        self.lost.map_or(0, |lost| ms(now, lost.since))
    }

    /// When the writer was last known to live.
    pub(super) fn until(&self, now: Instant) -> Instant {
        self.lost.map_or(now, |lost| lost.since)
    }

    /// Time from a replica's last word of the writer until the writer was last known to live, ms.
    pub(super) fn heard_ms(&self, addr: &ServerAddr, now: Instant) -> Option<u64> {
        Some(ms(self.until(now), self.heard.get(addr)?.changed?))
    }

    /// The last lag that a replica named, ms.
    pub(super) fn lag_ms(&self, addr: &ServerAddr) -> Option<u64> {
        self.heard.get(addr)?.lag_ms
    }

    /// What a replica says about the writer.
    pub(super) fn witness(&self, replica: &Replica, dead_ms: u64, now: Instant) -> Witness {
        if replica.silence.is_some() {
            return Witness::Mute;
        }
        let heard = self.heard.get(&replica.addr);
        let changed = heard.and_then(|heard| heard.changed);
        let broken = heard.and_then(|heard| heard.broken);
        // A replica may notice a death some time before this proxy does.
        let is_before = |(broken, lost): (Instant, Lost)| broken + Duration::from_millis(dead_ms) < lost.since;
        let past = Past {
            has_heard: changed.zip(self.lost).is_some_and(|(changed, lost)| changed > lost.looked),
            quiet_ms: changed.or_else(|| heard?.first).map_or(0, |since| ms(now, since)),
            was_broken: broken.zip(self.lost).is_some_and(is_before),
        };
        witness(replica.channel.as_ref(), past)
    }
}

impl Heard {
    fn hear(&mut self, line: &Line, now: Instant) {
        let is_first = self.first.is_none();
        self.first.get_or_insert(now);
        let is_news = self.received != line.received || self.heartbeats != line.heartbeats;
        if is_news {
            (self.received, self.heartbeats) = (line.received.clone(), line.heartbeats);
            self.changed = if is_first { self.changed } else { Some(now) };
        }
        self.lag_ms = line.channel.lag_ms.or(self.lag_ms);
        self.broken = line.channel.receiver.has_lost_source().then(|| self.broken.unwrap_or(now));
    }
}

fn ms(now: Instant, since: Instant) -> u64 {
    whole(now.saturating_duration_since(since).as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::ServerId;
    use topology::healing::{Channel, LinkState, LinkThread};

    const DEAD_MS: u64 = 4_000;

    fn addr() -> ServerAddr {
        ServerAddr { host: "b".into(), port: 1 }
    }

    fn line(heartbeats: u64, errno: Option<u64>) -> Line {
        let state = if errno.is_some() { LinkState::Connecting } else { LinkState::Runs };
        let channel = Channel {
            name: String::new(),
            source: ServerAddr { host: "a".into(), port: 1 },
            is_from_primary: true,
            is_by_gtid: true,
            position: String::new(),
            receiver: LinkThread { state, error: errno },
            applier: LinkThread { state: LinkState::Runs, error: None },
            delay_s: 0,
            has_filters: false,
            lag_ms: errno.is_none().then_some(7_000),
            heard_ms: None,
            heartbeat_ms: Some(1_000),
        };
        Line { channel, source_id: ServerId::default(), received: GtidSet::default(), heartbeats: Some(heartbeats) }
    }

    /// A watch with a clock in ms and one replica.
    struct Bed {
        watch: Watch,
        start: Instant,
        line: Line,
    }

    impl Bed {
        fn new() -> Self {
            Self { watch: Watch::default(), start: Instant::now(), line: line(0, None) }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        /// A round that takes 100 ms; then what the replica is as a witness.
        fn round(&mut self, ms: u64, is_lost: bool, line: Line) -> Witness {
            self.line = line;
            let round = Round { begun: self.at(ms), now: self.at(ms + 100) };
            self.watch.note([(&addr(), &self.line)].into_iter(), is_lost, Some(1), round);
            let replica = Replica { silence: None, channel: Some(self.line.channel.clone()), ..Replica::silent(addr(), "") };
            self.watch.witness(&replica, DEAD_MS, round.now)
        }
    }

    /// The writer dies between its last heartbeat and this proxy's look: the heartbeat is older than the loss.
    #[test]
    fn what_was_heard_in_the_round_that_lost_the_writer_is_no_life() {
        let mut bed = Bed::new();
        bed.round(0, false, line(1, None));
        assert_eq!(bed.round(1_000, true, line(2, None)), Witness::Quiet);
        assert_eq!(bed.round(2_000, true, line(2, None)), Witness::Quiet);
        assert_eq!(bed.round(3_000, true, line(3, None)), Witness::Hears);
    }

    #[test]
    fn a_replica_that_lost_the_writer_long_before_is_no_witness() {
        let mut bed = Bed::new();
        bed.round(0, false, line(1, Some(2_003)));
        assert_eq!(bed.round(10_000, true, line(1, Some(2_003))), Witness::Aside);
        // It is one if it had the writer again, or lost it about when this proxy did.
        bed.round(20_000, false, line(2, None));
        bed.round(21_000, false, line(2, Some(2_003)));
        assert_eq!(bed.round(24_000, true, line(2, Some(2_003))), Witness::Broken);
        assert_eq!(bed.round(90_000, true, line(2, Some(2_003))), Witness::Broken, "however long it lasts");
    }

    #[test]
    fn traffic_of_clients_puts_the_loss_off() {
        let mut bed = Bed::new();
        bed.round(0, true, line(1, Some(2_003)));
        bed.watch.judged(Verdict::Dead);
        assert!(bed.watch.was_dead() && bed.watch.lost_ms(bed.at(5_000)) == 5_000);
        assert!(bed.watch.has_traffic(Some(2), bed.at(5_000)));
        assert!(!bed.watch.was_dead());
        assert!(!bed.watch.has_traffic(Some(2), bed.at(6_000)), "no more of it");
        assert_eq!(bed.watch.lost_ms(bed.at(6_000)), 1_000);
    }

    #[test]
    fn the_last_known_lag_counts_when_the_source_is_gone() {
        let mut bed = Bed::new();
        bed.round(0, false, line(1, None));
        bed.round(1_000, true, line(1, Some(2_003)));
        assert_eq!(bed.watch.lag_ms(&addr()), Some(7_000));
    }
}
