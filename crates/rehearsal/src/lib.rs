//! The judgement of a rehearsal: what two servers answered to the same statement, and what that says about an upgrade.
//!
//! [`AnswerReader`] reduces a reply to an [`Answer`] of fixed size, [`compare`] puts two answers into a [`Class`], [`Tally`] counts
//! the classes by digest, and [`verdict`](verdict::verdict) sums them up. [`Desk`] has the rehearsals that run. No IO, no clock, no
//! randomness.

mod answer;
mod before;
mod desk;
mod doubt;
mod judge;
mod plan;
mod repeat;
mod spread;
mod statement;
mod tally;
mod value;
pub mod verdict;

pub use answer::{Answer, AnswerReader, COLUMN_PARTS, Columns, Form, MAX_ROW, RowHashes};
pub use before::Before;
pub use desk::{Desk, Ending, Findings, GIVE_UPS, GaveUp, PLAN_ENDS, PlanEnd, PlanTurn, Run, SKIPS, ServerName, Skip};
pub use doubt::{DOUBTS, Doubt};
pub use judge::{
    CLASSES, Class, Excuses, Finding, Round, Weight, compare, ignored, is_of_locks, judge_once, left_out, recheck, refuses_stale_writes,
};
pub use plan::{Likeness, QueryPlan};
pub use repeat::{Repeat, is_of_read_only, is_of_rows};
pub use spread::Spread;
pub use statement::{Reads, Traits, traits};
pub use tally::{Compared, MAX_DIGESTS, MAX_PLANS, OfDigest, Opinion, PlanPair, Sample, Tally};
