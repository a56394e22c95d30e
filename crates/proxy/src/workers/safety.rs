//! Safety checks by name, so that the simulator can show that each of them is needed: with one switched off, some seed fails.
//!
//! Only the feature `sim` can switch one off, for the calling thread; without it every check holds and costs nothing to ask.

#[cfg(feature = "sim")]
use std::cell::Cell;

/// A check that a promise depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sim"), allow(unreachable_pub))]
pub enum Safety {
    /// A statement is sent again only when it is certain that it had no effect.
    RetryCertainty,
    /// What a session cannot carry does not move with it.
    Movability,
    /// A lost statement is told, not taken for done.
    HonestLoss,
    /// A backend that a session left behind is cleaned before it serves another one.
    ResetOnRelease,
    /// A backend is brought to its session's state.
    StateSync,
    /// LAST_INSERT_ID() is given to the backend.
    InsertIdSync,
    /// An open transaction keeps its backend.
    TransactionPin,
    /// A temporary table keeps its backend.
    TemporaryTablePin,
    /// GET_LOCK() keeps its backend.
    LockPin,
    /// Nothing new goes to a server that lost its role.
    RoleCheck,
    /// The role is looked at once more when the backend is ready.
    LastLook,
    /// Who is bound to a demoted server leaves it when the grace is over.
    GraceEnd,
    /// New work waits for a server.
    Hold,
    /// `max_connections`.
    ConnectionLimit,
    /// Of several statements under way on a connection, the first reply is the first one's.
    OwnReply,
    /// None of their replies is dropped for which somebody waits.
    EveryReply,
    /// Each of them is sent once.
    SentOnce,
}

impl Safety {
    /// All of them.
    #[cfg(feature = "sim")]
    pub const ALL: [Self; 17] = [
        Self::RetryCertainty,
        Self::Movability,
        Self::HonestLoss,
        Self::ResetOnRelease,
        Self::StateSync,
        Self::InsertIdSync,
        Self::TransactionPin,
        Self::TemporaryTablePin,
        Self::LockPin,
        Self::RoleCheck,
        Self::LastLook,
        Self::GraceEnd,
        Self::Hold,
        Self::ConnectionLimit,
        Self::OwnReply,
        Self::EveryReply,
        Self::SentOnce,
    ];

    /// Its name on the command line.
    #[cfg(feature = "sim")]
    pub fn name(self) -> &'static str {
        match self {
            Self::RetryCertainty => "retry_certainty",
            Self::Movability => "movability",
            Self::HonestLoss => "honest_loss",
            Self::ResetOnRelease => "reset_on_release",
            Self::StateSync => "state_sync",
            Self::InsertIdSync => "insert_id_sync",
            Self::TransactionPin => "transaction_pin",
            Self::TemporaryTablePin => "temporary_table_pin",
            Self::LockPin => "lock_pin",
            Self::RoleCheck => "role_check",
            Self::LastLook => "last_look",
            Self::GraceEnd => "grace_end",
            Self::Hold => "hold",
            Self::ConnectionLimit => "connection_limit",
            Self::OwnReply => "own_reply",
            Self::EveryReply => "every_reply",
            Self::SentOnce => "sent_once",
        }
    }

    #[cfg(not(feature = "sim"))]
    #[inline(always)]
    pub(crate) const fn is_off(self) -> bool {
        false
    }

    /// Whether it was switched off on this thread.
    #[cfg(feature = "sim")]
    pub(crate) fn is_off(self) -> bool {
        OFF.get() & (1 << self as u32) != 0
    }
}

#[cfg(feature = "sim")]
thread_local! {
    // Of the thread, not of the process: tests with different checks run side by side.
    static OFF: Cell<u32> = const { Cell::new(0) };
}

/// Switches these checks off for the calling thread, and all others on.
#[cfg(feature = "sim")]
pub fn do_without(checks: &[Safety]) {
    OFF.set(checks.iter().fold(0, |bits, check| bits | 1 << *check as u32));
}
