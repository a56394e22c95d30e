//! Whether a writer is dead: what every witness says, as one word.

use super::facts::{Channel, LinkState};

/// What this proxy's own look at the writer found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It answers, and takes writes.
    Open,
    /// It answers, and is read-only, and nobody else takes writes.
    Closed,
    /// It answers, and lets nobody in: too many connections, no right. That is life too.
    Denied,
    /// Its host refuses the connection: there is nobody.
    Refused,
    /// Nothing comes back.
    Silent,
}

/// What a replica says about the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// It does not answer itself.
    Mute,
    /// It has heard from the writer since this proxy has not.
    Hears,
    /// It is connected, and its next heartbeat is not due yet.
    Quiet,
    /// It is connected, and has heard nothing for longer than heartbeats are apart.
    Overdue,
    /// It has lost the writer.
    Broken,
    /// It is no witness: it follows somebody else, or somebody stopped it, or it had lost the writer long before this proxy did.
    Aside,
}

/// What is known of a writer.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// By this proxy's look.
    pub answer: Answer,
    /// Bytes came from it to this proxy's clients since the last look.
    pub has_traffic: bool,
    /// By its replicas.
    pub witnesses: &'a [Witness],
    /// Replicas that must say the same; at least one must.
    pub votes: usize,
    /// Since when nobody of this proxy has heard from it, ms.
    pub lost_ms: u64,
    /// For so long all must agree, ms.
    pub dead_ms: u64,
    /// The verdict was `Dead` at the look before, and nobody has heard from the writer since.
    pub was_dead: bool,
    /// For so long sessions have waited for an acknowledgement while nothing was committed, ms.
    pub stuck_ms: u64,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It lives.
    Alive,
    /// Everybody has lost it, for as long as it takes.
    Dead,
    /// Everybody has lost it, not for long enough yet; or a replica is still to find out.
    Suspected,
    /// A replica hears it: this proxy is cut off from it.
    Unreachable,
    /// Nobody hears it, and a replica is still connected to it: it may be frozen.
    Silent,
    /// Too few replicas answer: it may be this proxy that is cut off.
    Blind,
    /// It answers, and commits do not return.
    Stuck,
    /// It answers, and somebody has made it read-only.
    Closed,
    /// Nobody was seen to write yet.
    Unknown,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 9] =
        [Self::Alive, Self::Dead, Self::Suspected, Self::Unreachable, Self::Silent, Self::Blind, Self::Stuck, Self::Closed, Self::Unknown];

    /// As tables and metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Dead => "dead",
            Self::Suspected => "suspected",
            Self::Unreachable => "unreachable",
            Self::Silent => "silent",
            Self::Blind => "blind",
            Self::Stuck => "stuck",
            Self::Closed => "closed",
            Self::Unknown => "unknown",
        }
    }

    /// What it means, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Alive => "the writer answers",
            Self::Dead => "the proxy and every replica that answers have lost the writer",
            Self::Suspected => "the proxy has lost the writer, and waits for mysql_healing.dead_ms or for a replica to notice",
            Self::Unreachable => "a replica still hears the writer, so only this proxy is cut off from it",
            Self::Silent => "a replica is still connected to the writer but hears nothing: the writer may be frozen",
            Self::Blind => "too few replicas answer, so this proxy may be cut off",
            Self::Stuck => "the writer answers, but commits wait for acknowledgements of replicas",
            Self::Closed => "the writer answers and is read-only: somebody closed it",
            Self::Unknown => "no server was seen to write yet",
        }
    }
}

/// See the module.
pub fn verdict(evidence: &Evidence<'_>) -> Verdict {
    match evidence.answer {
        Answer::Open if evidence.stuck_ms >= evidence.dead_ms => return Verdict::Stuck,
        Answer::Open | Answer::Denied => return Verdict::Alive,
        Answer::Closed => return Verdict::Closed,
        Answer::Refused | Answer::Silent if evidence.has_traffic => return Verdict::Alive,
        Answer::Refused | Answer::Silent => {}
    }
    let count = |wanted: Witness| evidence.witnesses.iter().filter(|witness| **witness == wanted).count();
    let said = evidence.witnesses.iter().filter(|witness| !matches!(witness, Witness::Mute | Witness::Aside)).count();
    match () {
        () if count(Witness::Hears) > 0 => Verdict::Unreachable,
        // The first step of a promotion stops the witnesses.
        () if said < evidence.votes.max(1) && evidence.was_dead => Verdict::Dead,
        () if said < evidence.votes.max(1) => Verdict::Blind,
        () if count(Witness::Quiet) > 0 => Verdict::Suspected,
        () if count(Witness::Overdue) > 0 => Verdict::Silent,
        () if evidence.lost_ms >= evidence.dead_ms => Verdict::Dead,
        () => Verdict::Suspected,
    }
}

/// How many heartbeats may be missing.
const HEARTBEATS: u64 = 2;
/// How late a heartbeat may be besides, ms.
const HEARTBEAT_LATE_MS: u64 = 1_000;
/// A receiver gives up after so long where heartbeats are not known, ms: servers' own default.
const NET_TIMEOUT_MS: u64 = 60_000;

/// What earlier looks say about a replica's channel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Past {
    /// It has heard from the writer since this proxy has not.
    pub has_heard: bool,
    /// It has heard nothing for so long, ms.
    pub quiet_ms: u64,
    /// It had lost the writer while this proxy had not: the way from it to the writer is broken, and that says nothing about the writer.
    pub was_broken: bool,
}

/// What a channel says about its source.
pub fn witness(channel: Option<&Channel>, past: Past) -> Witness {
    let Some(channel) = channel.filter(|channel| channel.is_from_primary) else { return Witness::Aside };
    let due_ms = channel.heartbeat_ms.map_or(NET_TIMEOUT_MS, |ms| ms.saturating_mul(HEARTBEATS).saturating_add(HEARTBEAT_LATE_MS));
    match channel.receiver.state {
        _ if channel.receiver.has_lost_source() && past.was_broken => Witness::Aside,
        _ if channel.receiver.has_lost_source() => Witness::Broken,
        LinkState::Stopped => Witness::Aside,
        _ if past.quiet_ms >= due_ms => Witness::Overdue,
        _ if past.has_heard => Witness::Hears,
        _ => Witness::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healing::facts::LinkThread;
    use Witness::{Aside, Broken, Hears, Mute, Overdue, Quiet};
    use model::ServerAddr;

    fn evidence(answer: Answer, witnesses: &[Witness]) -> Evidence<'_> {
        Evidence { answer, has_traffic: false, witnesses, votes: 1, lost_ms: 4_000, dead_ms: 4_000, was_dead: false, stuck_ms: 0 }
    }

    fn of(answer: Answer, witnesses: &[Witness]) -> Verdict {
        verdict(&evidence(answer, witnesses))
    }

    #[test]
    fn each_row_of_the_table() {
        let table: &[(Answer, &[Witness], Verdict)] = &[
            (Answer::Open, &[Broken, Broken], Verdict::Alive),
            (Answer::Denied, &[Broken], Verdict::Alive),
            (Answer::Closed, &[Hears], Verdict::Closed),
            (Answer::Silent, &[Broken, Broken], Verdict::Dead),
            (Answer::Refused, &[Broken, Mute], Verdict::Dead),
            (Answer::Refused, &[Broken, Aside], Verdict::Dead),
            (Answer::Silent, &[Broken, Hears], Verdict::Unreachable),
            (Answer::Refused, &[Hears, Mute], Verdict::Unreachable),
            (Answer::Silent, &[Overdue, Overdue], Verdict::Silent),
            (Answer::Silent, &[Overdue, Broken], Verdict::Silent),
            (Answer::Silent, &[Quiet, Broken], Verdict::Suspected),
            (Answer::Silent, &[Mute, Mute], Verdict::Blind),
            (Answer::Refused, &[Mute, Aside], Verdict::Blind),
            (Answer::Refused, &[], Verdict::Blind),
        ];
        for (answer, witnesses, wanted) in table {
            assert_eq!(of(*answer, witnesses), *wanted, "{answer:?} {witnesses:?}");
        }
    }

    #[test]
    fn death_takes_time_votes_and_no_traffic() {
        let all = [Broken, Broken, Mute];
        let dead = Evidence { votes: 2, ..evidence(Answer::Silent, &all) };
        assert_eq!(verdict(&dead), Verdict::Dead);
        assert_eq!(verdict(&Evidence { lost_ms: 3_999, ..dead }), Verdict::Suspected);
        assert_eq!(verdict(&Evidence { votes: 3, ..dead }), Verdict::Blind);
        assert_eq!(verdict(&Evidence { votes: 0, witnesses: &[Mute], ..dead }), Verdict::Blind, "never on the proxy's word alone");
        assert_eq!(verdict(&Evidence { has_traffic: true, ..dead }), Verdict::Alive);
        let stuck = Evidence { answer: Answer::Open, stuck_ms: 4_000, ..dead };
        assert_eq!([verdict(&stuck), verdict(&Evidence { stuck_ms: 3_999, ..stuck })], [Verdict::Stuck, Verdict::Alive]);
    }

    /// Somebody stops the receivers of a dead writer's replicas, as the first step of a promotion.
    #[test]
    fn a_dead_writer_stays_dead_while_nobody_says_otherwise() {
        let then = |answer, witnesses: &[Witness]| verdict(&Evidence { was_dead: true, ..evidence(answer, witnesses) });
        assert_eq!(then(Answer::Silent, &[Aside, Aside]), Verdict::Dead);
        assert_eq!(then(Answer::Silent, &[Aside, Hears]), Verdict::Unreachable);
        assert_eq!(then(Answer::Silent, &[Overdue, Broken]), Verdict::Silent);
        assert_eq!(then(Answer::Open, &[Aside, Aside]), Verdict::Alive);
        let hears = Evidence { was_dead: true, has_traffic: true, ..evidence(Answer::Refused, &[Aside]) };
        assert_eq!(verdict(&hears), Verdict::Alive);
    }

    /// Whatever the witnesses say: dead only if nobody hears it, and everybody who answers has lost it.
    #[test]
    fn no_combination_of_witnesses_kills_a_writer_that_somebody_hears() {
        const ALL: [Witness; 6] = [Mute, Hears, Quiet, Overdue, Broken, Aside];
        for number in 0..6_usize.pow(4) {
            let witnesses: Vec<Witness> = (0..4).map(|place| ALL[number / 6_usize.pow(place) % 6]).collect();
            let is_dead = of(Answer::Silent, &witnesses) == Verdict::Dead;
            let is_agreed = witnesses.contains(&Broken) && witnesses.iter().all(|one| matches!(one, Broken | Mute | Aside));
            assert_eq!(is_dead, is_agreed, "{witnesses:?}");
        }
    }

    #[test]
    fn a_channel_is_a_witness_while_it_follows_the_writer() {
        let thread = |state, code| LinkThread { state, error: (code != 0).then_some(code) };
        let channel = |state, code| Channel {
            name: String::new(),
            source: ServerAddr { host: "a".into(), port: 1 },
            is_from_primary: true,
            is_by_gtid: true,
            position: String::new(),
            receiver: thread(state, code),
            applier: thread(LinkState::Runs, 0),
            delay_s: 0,
            has_filters: false,
            lag_ms: None,
            heard_ms: None,
            heartbeat_ms: Some(1_000),
        };
        let past = |has_heard, quiet_ms| Past { has_heard, quiet_ms, was_broken: false };
        let said = |state, code, has_heard, quiet_ms| witness(Some(&channel(state, code)), past(has_heard, quiet_ms));
        use LinkState::{Connecting, Runs, Stopped};
        assert_eq!(said(Runs, 0, true, 0), Hears);
        assert_eq!([said(Runs, 0, false, 2_999), said(Runs, 0, false, 3_000)], [Quiet, Overdue]);
        assert_eq!([said(Connecting, 2_003, false, 0), said(Stopped, 2_003, false, 0)], [Broken, Broken]);
        assert_eq!(said(Runs, 2_003, true, 0), Hears, "the error is of earlier times");
        assert_eq!([said(Stopped, 0, false, 0), said(Stopped, 1_236, false, 0)], [Aside, Aside]);
        for code in [2_002, 2_003, 2_006, 2_013, 2_055, 1_053, 1_158, 1_161] {
            assert_eq!(said(Connecting, code, false, 0), Broken, "{code}");
        }
        // Words of a writer that lives: too many connections, TLS, authentication.
        for code in [1_040, 1_045, 2_026, 2_059, 2_061] {
            assert_eq!([said(Connecting, code, false, 0), said(Connecting, code, false, 3_000)], [Quiet, Overdue], "{code}");
            assert_eq!(said(Stopped, code, false, 0), Aside, "{code}");
        }
        let was_broken = Past { was_broken: true, ..Past::default() };
        assert_eq!(witness(Some(&channel(Connecting, 2_003)), was_broken), Aside, "it had no route to the writer for days");
        assert_eq!(witness(None, past(false, 0)), Aside);
        assert_eq!(witness(Some(&Channel { is_from_primary: false, ..channel(Runs, 0) }), past(true, 0)), Aside);
        let unknown = Channel { heartbeat_ms: None, ..channel(Runs, 0) };
        assert_eq!([witness(Some(&unknown), past(false, 59_999)), witness(Some(&unknown), past(false, 60_000))], [Quiet, Overdue]);
    }
}
