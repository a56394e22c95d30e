//! Why nothing is known of a difference ([`crate::Class::Unchecked`]).

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The second had no question left (`rechecks_per_s`).
    UsedUp,
    /// Two rounds of second questions were under way.
    Busy,
    /// The shadow did not catch up.
    Lag,
    /// A server did not answer a second question, or refused a write in it.
    NoAnswer,
    /// A time limit ended the statement on a shadow that was not slower.
    TimeLimit,
    /// A write of another session ran beside it, or the shadow lacks writes (mode `all`).
    Overlap,
    /// An error of locks (mode `all`).
    Locks,
    /// A row was too long to be read (mode `all`).
    TooLong,
}

/// All of them, in the order of their numbers.
pub const DOUBTS: [Doubt; 8] =
    [Doubt::UsedUp, Doubt::Busy, Doubt::Lag, Doubt::NoAnswer, Doubt::TimeLimit, Doubt::Overlap, Doubt::Locks, Doubt::TooLong];

impl Doubt {
    /// The name that the page shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::UsedUp => "rechecks_per_s used up",
            Self::Busy => "two rechecks running",
            Self::Lag => "shadow lagged",
            Self::NoAnswer => "recheck not answered",
            Self::TimeLimit => "time limit",
            Self::Overlap => "overlapping writes",
            Self::Locks => "lock errors",
            Self::TooLong => "row too long",
        }
    }
}
