//! What a session keeps to go on after a loss: how long a lost statement may be tried again, the open transaction that may have to be
//! replayed, and the GTID by which a lost write is found again.

use super::assigned_gtid::{Assignment, GtidStanding, Scope};
use super::backends::Backends;
use super::frontend::Frontend;
use super::hand::AtHand;
use super::plan::Plan;
use super::replay::transcript::{Gap, Progress, Transcript};
use crate::hostgroups::replays::Stake;
use sql::Kind;
use wire::flags::{Capabilities, StatusFlags};
use wire::reframe::TRANSACTION;
use wire::reply_digest::{ReplyHasher, Rows};

/// See the module.
#[derive(Default)]
pub(super) struct Recovery {
    /// Until when (process clock, us) a statement that is sent again waits for a server.
    pub again_until_us: Option<u64>,
    /// When (process clock, us) the statement at hand was first lost while it ran.
    pub lost_at_us: Option<u64>,
    /// What was said in the open transaction.
    pub transcript: Option<Box<Transcript>>,
    /// Hashes the reply that is under way, if a replay may have to compare it.
    pub reply_hasher: Option<Box<ReplyHasher>>,
    /// Until when (process clock, us) a replay may take.
    pub replay_until_us: Option<u64>,
    /// The GTID that was chosen for the transaction at hand (`settle_lost_writes`).
    pub assigned_gtid: Option<Box<Assignment>>,
}

impl Recovery {
    /// A statement begins: what the one before had to wait for is over.
    pub(super) fn forget_retries(&mut self) {
        self.again_until_us = None;
        self.lost_at_us = None;
        self.replay_until_us = None;
    }

    pub(super) fn has_gap(&self) -> bool {
        self.transcript.as_ref().is_some_and(|t| matches!(t.progress, Progress::Lost(_)))
    }

    /// Nothing ran yet in the transaction.
    pub(super) fn is_only_opened(&self) -> bool {
        self.transcript.as_ref().is_some_and(|t| t.progress == Progress::Opening)
    }

    /// The server of the open transaction is lost, and others let it go first.
    pub(super) fn is_stranded(&self) -> bool {
        self.transcript.as_ref().and_then(|transcript| transcript.stake.as_ref()).is_some_and(Stake::is_stranded)
    }

    /// How things stand with the assigned GTID at hand.
    pub(super) fn standing(&self) -> Option<GtidStanding> {
        self.assigned_gtid.as_ref().map(|assignment| assignment.standing)
    }

    pub(super) fn set_standing(&mut self, standing: GtidStanding) {
        if let Some(assignment) = self.assigned_gtid.as_mut() {
            assignment.standing = standing;
            assignment.is_spent |= matches!(standing, GtidStanding::InDoubt | GtidStanding::Undecided);
        }
    }

    pub(super) fn is_of(&self, scope: Scope) -> bool {
        self.assigned_gtid.as_ref().is_some_and(|assignment| assignment.scope == scope)
    }

    /// The COMMIT of the client's transaction was lost, and is proven not to have happened.
    pub(super) fn is_commit_disproved(&self) -> bool {
        self.is_of(Scope::Transaction) && matches!(self.standing(), Some(GtidStanding::Disproved | GtidStanding::Claimed))
    }

    /// What is said of a loss that ends the session: why the transaction was not replayed, where that can be helped.
    pub(super) fn told_with_gap(&self, why: &str) -> String {
        match self.transcript.as_ref().map(|transcript| transcript.progress) {
            Some(Progress::Lost(Gap::TooLarge)) => {
                format!("{why}; the transaction is larger than transaction_replay_max_bytes, so it cannot be replayed")
            }
            Some(Progress::Lost(Gap::HandedOver)) => {
                format!("{why}; the transaction began before the proxy was upgraded, so it cannot be replayed")
            }
            _ => why.to_owned(),
        }
    }

    /// The statement is part of a transaction, or opens one by itself.
    fn listens(&self, client: &Frontend) -> bool {
        self.transcript.is_some() || !client.status.contains(StatusFlags::AUTOCOMMIT)
    }

    /// A hasher for the reply to `plan`, where a replay may have to compare the reply.
    pub(super) fn reply_hasher_for(&self, at: &Backends, client: &Frontend, plan: &Plan, from: Capabilities) -> Option<Box<ReplyHasher>> {
        let is_on = at.lane.settings().transaction_replay;
        if !is_on || !self.listens(client) && plan.analysis.kind != Kind::Begin || self.has_gap() && plan.analysis.kind != Kind::Begin {
            return None;
        }
        let rows = if plan.patches.is_empty() { Rows::Counted } else { Rows::Replaced };
        Some(Box::new(ReplyHasher::new(plan.reply, from, rows)))
    }

    /// Whether what ran may belong into a transcript, or end one.
    pub(super) fn may_transcribe(&self, client: &Frontend, kind: Kind) -> bool {
        self.reply_hasher.is_some() || self.listens(client) || matches!(kind, Kind::Begin | Kind::SetTransaction)
    }

    /// Whether the client is not given the reply at hand yet.
    pub(super) fn is_reply_held(&self) -> bool {
        self.assigned_gtid.as_ref().is_some_and(|assignment| assignment.held.is_some())
    }

    /// What the client is not told of the backend's status.
    pub(super) fn hidden(&self, hand: &AtHand) -> StatusFlags {
        match () {
            () if self.is_reply_held() => TRANSACTION,
            () if hand.directions.alone => StatusFlags::AUTOCOMMIT,
            () => StatusFlags::empty(),
        }
    }
}
