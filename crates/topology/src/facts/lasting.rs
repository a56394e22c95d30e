//! Which of a server's facts are written down, and which changes are worth writing: last answers and losses, not times and measured values.

use super::{Facts, KEPT_SAMPLES, Track};
use crate::observation::{AuroraView, GaleraView, GroupView, Observation, ProbeError};

/// Failures in a row beyond which more of them say nothing new.
const FAILURES_MAX: u32 = 30;
/// Answers in a row beyond which more of them say nothing new.
const REPEATS_MAX: u32 = 2;

impl<T: Clone> Track<T> {
    /// Without words of errors, which may be long.
    fn kept(&self) -> Self {
        Self { failure: None, ..self.clone() }
    }

    fn gist(&self, settle: impl FnMut(&mut T)) -> Self {
        let mut last = self.last.clone();
        last.iter_mut().for_each(settle);
        let failures = |count: u32| count.min(FAILURES_MAX);
        Self {
            last,
            repeats: self.repeats.min(REPEATS_MAX),
            unreachable: failures(self.unreachable),
            timeouts: failures(self.timeouts),
            failed: failures(self.failed),
            is_denied: self.is_denied,
            ..Self::default()
        }
    }
}

impl Facts {
    /// The part for a file: without samples, which are measured again, and without traffic's reports.
    pub(crate) fn kept(&self) -> Self {
        Self {
            ping: self.ping.kept(),
            read_only: self.read_only.kept(),
            galera: self.galera.kept(),
            group: self.group.kept(),
            aurora: self.aurora.kept(),
            rds: self.rds.kept(),
            sources: self.sources.kept(),
            giving_since_ms: self.giving_since_ms,
            is_broken: self.is_broken,
            refuses: self.refuses,
            unreachable_ms: self.unreachable_ms,
            is_lost: self.is_lost,
            ..Self::default()
        }
    }

    /// The part whose changes are worth a new file.
    pub(crate) fn gist(&self) -> Self {
        Self {
            ping: self.ping.gist(|us| *us = 0),
            read_only: self.read_only.gist(|_| ()),
            galera: self.galera.gist(|view: &mut GaleraView| view.recv_queue = 0),
            group: self.group.gist(|view: &mut GroupView| view.transactions_behind = 0),
            aurora: self.aurora.gist(forget_measured),
            rds: self.rds.gist(|_| ()),
            sources: self.sources.gist(|_| ()),
            is_broken: self.is_broken,
            refuses: self.refuses,
            unreachable_ms: self.unreachable_ms,
            is_lost: self.is_lost,
            ..Self::default()
        }
    }

    /// The same without what members of clusters say that agree among themselves: after a restart they are asked first.
    pub(crate) fn without_views(self) -> Self {
        Self { galera: Track::default(), group: Track::default(), aurora: Track::default(), ..self }
    }

    /// Restores a member's answers from `kept` if the server now refuses the monitor.
    pub(crate) fn recall(&mut self, kept: &Self, seen: &Observation) {
        if !matches!(seen.error(), Some(ProbeError::Denied(_))) {
            return;
        }
        match seen {
            Observation::Galera(_) if self.galera.last.is_none() => self.galera.clone_from(&kept.galera),
            Observation::Group(_) if self.group.last.is_none() => self.group.clone_from(&kept.group),
            Observation::Aurora(_) if self.aurora.last.is_none() => self.aurora.clone_from(&kept.aurora),
            _ => {}
        }
    }

    /// Cuts a record to the usual limits, as a file may come from elsewhere.
    pub(crate) fn within_limits(mut self) -> Self {
        self.behind.truncate(KEPT_SAMPLES);
        self.lag.latest.truncate(KEPT_SAMPLES);
        self.lag_unanswered_ms.truncate(KEPT_SAMPLES);
        self.gtids.latest.truncate(KEPT_SAMPLES);
        self
    }
}

fn forget_measured(view: &mut AuroraView) {
    for instance in &mut view.instances {
        (instance.lag_ms, instance.age_ms, instance.cpu) = (0, 0, 0);
    }
}
