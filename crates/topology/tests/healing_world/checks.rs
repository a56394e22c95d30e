//! What must hold, judged by the truth of the run and never by what the healer believes.

use std::collections::BTreeSet;

use model::snapshot::{Loss, Promotion, SiteRule};
use topology::healing::LinkState;

use crate::numbers::Gtid;
use crate::server::{Gate, Life, Link, Server};
use crate::world::{CALM_MS, State, World, addr};

/// Steps beside detection and applying take at most so long (liveness).
const STEPS_MS: u64 = 3_000;
/// Applying takes at most so long where all replicas are quick (liveness).
const SOON_MS: u64 = 3_000;

/// A write that its client got OK for.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    gtid: Gtid,
    executed_ms: u64,
}

/// What a plan says that it loses, and when the dead writer was asked last.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) count: u64,
    pub(crate) gtids: String,
    pub(crate) looked_ms: u64,
    /// The healer's process began then: what it saw before is forgotten.
    pub(crate) began_ms: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) violations: Vec<String>,
    acknowledged: Vec<Acknowledged>,
    /// Each server that took over, by a healer or by an operator, and since when clients write there.
    epochs: Vec<(u64, usize)>,
    /// A healer has opened this server, and no client has written there yet.
    opened: Option<(u64, usize)>,
    /// Written on a server that was not the writer.
    pub(crate) errant: BTreeSet<Gtid>,
    pub(crate) report: Option<Report>,
    /// Everything was mended then.
    pub(crate) mended_ms: Option<u64>,
    /// So many plans had failed by then.
    failed_before: u32,
    /// Why the last plan after that failed.
    failed_since: Option<String>,
    /// The writer died for good at this time, and nothing else happens.
    pub(crate) died_ms: Option<u64>,
    /// Writes that are known to be lost: each is judged once.
    lost: BTreeSet<Gtid>,
}

impl State {
    fn violation(&mut self, now_ms: u64, what: String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now_ms:>7} VIOLATION {what}"));
        }
        self.checks.violations.push(format!("at {now_ms} ms: {what}"));
    }

    /// The server that is the writer by the last takeover.
    pub(crate) fn writer(&self) -> usize {
        self.checks.epochs.last().map_or(0, |(_, place)| *place)
    }

    /// The same, or the one that a healer has just opened.
    pub(crate) fn heir(&self) -> usize {
        self.checks.opened.map_or_else(|| self.writer(), |(_, heir)| heir)
    }

    /// A client got OK.
    pub(crate) fn note_acknowledged(&mut self, gtid: Gtid, server: usize, executed_ms: u64, now_ms: u64) {
        self.checks.acknowledged.push(Acknowledged { gtid, executed_ms });
        if self.checks.opened.is_some_and(|(_, heir)| heir == server) {
            self.checks.opened = None;
            self.checks.epochs.push((executed_ms, server));
            self.check_missing(server, now_ms);
        }
        let (since_ms, writer) = self.checks.epochs.last().copied().unwrap_or_default();
        if server != writer && executed_ms > since_ms {
            let what =
                format!("two writers: {} took a write at {executed_ms} ms, and {} took over at {since_ms} ms", addr(server), addr(writer));
            self.violation(now_ms, what);
        }
        // It was executed before, and is lost all the same.
        if server != writer && executed_ms <= since_ms && !self.servers[writer].has(gtid) {
            self.check_lost(&[Acknowledged { gtid, executed_ms }], now_ms);
        }
    }

    /// An operator has moved the writer's part.
    pub(crate) fn note_moved(&mut self, heir: usize, now_ms: u64) {
        self.checks.opened = None;
        self.checks.epochs.push((now_ms, heir));
    }

    /// A plan names a server. One whose applier had stopped with an error a moment before is not it.
    pub(crate) fn note_chosen(&mut self, place: usize, now_ms: u64) {
        let server = &self.servers[place];
        let link = server.link.as_ref().filter(|link| link.applier_error.is_some());
        let stopped_ms = link.and_then(|link| link.relay.front()).map(|next| next.at_ms.max(server.nature.breaks_ms.unwrap_or(0)));
        if stopped_ms.is_some_and(|stopped_ms| now_ms > stopped_ms + SOON_MS) {
            self.violation(now_ms, format!("{} is chosen, and its applier has stopped", addr(place)));
        }
    }

    /// A healer's statement has opened a server.
    pub(crate) fn note_opened(&mut self, heir: usize, now_ms: u64) {
        let server = &self.servers[heir];
        let wrongs = [
            (server.nature.delay_ms > 0).then(|| "it is delayed on purpose".to_owned()),
            server.link.as_ref().and_then(|link| link.applier_error).map(|code| format!("its applier has stopped with error {code}")),
            (self.draw.promotions[heir] == Promotion::Never).then(|| "its promotion is never".to_owned()),
            self.checks.errant.iter().find(|gtid| server.has(**gtid)).map(|gtid| format!("it is errant: {gtid:?}")),
        ];
        for wrong in wrongs.into_iter().flatten() {
            self.violation(now_ms, format!("{} was promoted: {wrong}", addr(heir)));
        }
        self.checks.opened = Some((now_ms, heir));
        self.check_missing(heir, now_ms);
    }

    /// Writes that a new writer has not.
    fn check_missing(&mut self, heir: usize, now_ms: u64) {
        let logged = &self.servers[heir].logged;
        let is_new = |one: &&Acknowledged| !logged.has(one.gtid) && !self.checks.lost.contains(&one.gtid);
        let missing: Vec<Acknowledged> = self.checks.acknowledged.iter().filter(is_new).copied().collect();
        self.check_lost(&missing, now_ms);
    }

    /// Acknowledged writes that the new writer has not.
    fn check_lost(&mut self, missing: &[Acknowledged], now_ms: u64) {
        self.checks.lost.extend(missing.iter().map(|one| one.gtid));
        if self.policy.loss == Loss::Any || missing.is_empty() {
            return;
        }
        let Some(report) = self.checks.report.clone() else { return };
        let flavor = self.draw.flavor;
        if self.policy.loss == Loss::None {
            return self.violation(now_ms, format!("loss is none, and acknowledged writes are lost: {missing:?}"));
        }
        // A list that is cut off is checked by its length alone.
        let told = (!report.gtids.ends_with("...")).then(|| crate::numbers::set(&report.gtids));
        let is_told = |one: &&Acknowledged| {
            // Later than this process's last sight of it.
            let is_unseen = one.executed_ms > report.looked_ms && (!self.draw.tells_gtids || one.executed_ms < report.began_ms);
            is_unseen || told.as_ref().is_none_or(|told| told.contains(&crate::numbers::set(&one.gtid.text(flavor))))
        };
        let untold: Vec<_> = missing.iter().filter(|one| !is_told(one)).collect();
        if !untold.is_empty() || (self.draw.tells_gtids && report.began_ms == 0 && missing.len() as u64 > report.count) {
            let what = format!(
                "{} acknowledged writes are lost, and {} were reported ({}): {untold:?}",
                missing.len(),
                report.count,
                report.gtids
            );
            self.violation(now_ms, what);
        }
    }

    /// A plan has ended, done or undone.
    pub(crate) fn note_plan(&mut self, failed: Option<&String>, now_ms: u64) {
        self.failures = if failed.is_some() { self.failures + 1 } else { 0 };
        if self.checks.mended_ms.is_some_and(|mended_ms| now_ms > mended_ms) {
            self.checks.failed_since = failed.cloned().or(self.checks.failed_since.take());
        }
    }

    pub(crate) fn note_mended(&mut self, now_ms: u64) {
        (self.checks.mended_ms, self.checks.failed_before) = (Some(now_ms), self.failures);
    }

    /// A healer names a server's source.
    pub(crate) fn note_pointed(&mut self, place: usize, source: usize, now_ms: u64) {
        let server = &self.servers[place];
        let extra = server.log.iter().find(|one| !self.servers[source].has(one.gtid));
        if let Some(extra) = extra {
            let what = format!("{} was pointed at {}, which lacks {:?}", addr(place), addr(source), extra.gtid);
            self.violation(now_ms, what);
        }
    }

    /// A healer closes a former writer.
    pub(crate) fn note_closed(&mut self, place: usize, now_ms: u64) {
        // Known: a server whose files say read_only=0 restarts as a second writer, and takes over if its source does not answer.
        if !self.draw.is_strict {
            self.servers[place].file_gate = Gate::ReadOnly;
        }
        if place == self.heir() && self.servers[place].gate == Gate::Open {
            self.violation(now_ms, format!("the present writer {} is demoted", addr(place)));
        }
    }
}

impl World {
    /// Nothing is left to be done.
    pub(crate) fn is_at_rest(&self) -> bool {
        let state = self.state.borrow();
        let is_well = |(place, one): (usize, &Server)| {
            let link = one.link.as_ref();
            let follows = link.is_some_and(|link| link.receiver.state == LinkState::Runs && link.applies && link.relay.is_empty());
            follows || (place == state.writer() && one.is_up() && one.gate == Gate::Open)
        };
        let is_idle = state.servers.iter().all(|one| one.lock.is_none()) && state.disks[0].stopped.is_empty();
        is_idle && state.servers.iter().enumerate().all(is_well) && state.proxies[0].writers() == [state.writer()]
    }

    /// Everything was mended long ago, except for servers that stay dead.
    pub(crate) fn check_end(&self) {
        let (mut state, now_ms) = (self.state.borrow_mut(), self.clock.now_ms());
        if !state.checks.violations.is_empty() {
            return;
        }
        let (writer, is_suspended) = (state.writer(), state.disks[0].suspended.is_some());
        for place in 0..state.servers.len() {
            let one = &state.servers[place];
            // Others replicate from a server that was replaced.
            let follows = |link: &&Link| link.source == writer && one.is_up() && place != writer && !is_suspended;
            let Some(link) = one.link.as_ref().filter(follows) else { continue };
            let is_stopped = link.receiver.state == LinkState::Stopped && link.receiver.error.is_none();
            if is_stopped || !link.applies {
                let what = format!("{} was left stopped: receiver {:?}, applier runs: {}", addr(place), link.receiver, link.applies);
                state.violation(now_ms, what);
            }
        }
        if state.policy.loss == Loss::None && state.servers[writer].is_up() {
            let lost: Vec<Gtid> =
                state.checks.acknowledged.iter().map(|one| one.gtid).filter(|gtid| !state.servers[writer].has(*gtid)).collect();
            if !lost.is_empty() {
                state.violation(now_ms, format!("loss is none, and {} lacks acknowledged writes: {lost:?}", addr(writer)));
            }
        }
        state.check_liveness(now_ms);
    }
}

impl State {
    /// Replicas that may take over, as far as it is beyond doubt: sound, near, wanted, and with all that any other one has.
    fn candidates(&self) -> impl Iterator<Item = usize> {
        let dead = self.writer();
        let follows = move |one: &&Server| one.is_up() && one.link.as_ref().is_some_and(|link| link.source == dead);
        let has = |one: &Server, gtid: &Gtid| one.has(*gtid);
        let has_all = move |one: &Server| {
            let received = |other: &Server| other.link.as_ref().is_some_and(|link| link.relay.iter().all(|next| has(one, &next.gtid)));
            self.servers.iter().filter(follows).all(|other| one.logged.has_all(&other.logged) && received(other))
        };
        let is_sound = move |place: usize, one: &Server| {
            let applies = one.link.as_ref().is_some_and(|link| link.applies && link.applier_error.is_none());
            let is_near = self.policy.site != SiteRule::Same || self.draw.sites[place] == self.draw.sites[dead];
            let is_quick = one.nature.apply_ms < 100 && one.nature.delay_ms == 0;
            applies && is_near && is_quick && self.draw.promotions[place] != Promotion::Never
        };
        let all = self.servers.iter().enumerate().filter(move |(_, one)| follows(one));
        all.filter(move |(place, one)| is_sound(*place, one) && has_all(one)).map(|(place, _)| place)
    }

    /// Where the writer is dead and a replica could take over, one does, and no plan fails once everything is mended.
    fn check_liveness(&mut self, now_ms: u64) {
        let limit_ms = self.checks.died_ms.map(|died_ms| {
            let net_timeout_ms = self.servers.iter().map(|one| one.nature.net_timeout_ms).max().unwrap_or(0);
            let noticed_ms = if self.servers[0].life == Life::Lost { net_timeout_ms } else { 0 };
            died_ms + self.policy.dead_ms + SOON_MS + STEPS_MS + noticed_ms
        });
        let opened = self.checks.epochs.last().or(self.checks.opened.as_ref());
        if let (Some(limit_ms), Some((at_ms, _))) = (limit_ms, opened)
            && *at_ms > limit_ms
        {
            return self.violation(now_ms, format!("a server took over at {at_ms} ms, later than {limit_ms} ms"));
        }
        let is_dead = matches!(self.servers[self.writer()].life, Life::Crashed | Life::Lost);
        let is_braked = self.disks[0].suspended.is_some()
            || (self.disks[0].promoted.is_some() && self.policy.block_ms > 0)
            || self.checks.failed_before >= 3
            // What it knew of the writer is gone with it; and nothing proves what is lost.
            || self.counts.contains_key("healers died")
            || (self.policy.loss != Loss::Any && !self.draw.is_simple);
        // Known: replicas that had lost the writer before it died are no witnesses for ever.
        let is_blind = !self.draw.is_simple && self.checks.failed_since.is_none();
        let is_known = !self.draw.is_strict && is_blind;
        let is_late = self.checks.mended_ms.is_some_and(|mended_ms| now_ms >= mended_ms + CALM_MS);
        let heir = self.candidates().next().filter(|_| is_dead && !is_braked && !is_known && is_late);
        if let Some(heir) = heir {
            let why = self.checks.failed_since.clone();
            self.violation(now_ms, format!("the writer is dead, and {} has not taken over; the last plan: {why:?}", addr(heir)));
        }
    }
}
