//! What is known of a writer that may be dead, who should take over and when, and which servers may come back: for `mysql_healing`.
//!
//! Pure: facts and a policy go in, a [`Verdict`] and a [`Choice`] come out. The verdict says whether the writer is dead, by all witnesses;
//! the choice says who should take over if it is, with every step, or why nobody should. Nothing here sends anything.
//! INVARIANT: a server that is chosen has, after its steps, all that any replica has which may hand its data on.

mod acks;
mod assess;
mod by_hand;
mod choose;
mod facts;
mod heal;
mod lease;
mod origin;
mod rejoin;
mod stopped;
mod verdict;

pub use acks::{AckStep, Managed, Outlook, ReplicaSide, Setting, Sides, SourceSide, manage, may_acknowledge, not_revoked};
pub use assess::{Assessed, shown};
pub use by_hand::{Refusal, Wish};
pub use choose::{Act, Blocked, Choice, Lost, Plan, Step, choose, votes};
pub use facts::{Channel, Facts, LinkState, LinkThread, Primary, Replica, SemiSync, ServerVersion};
pub use heal::{Brakes, Death, Due, LOOKED_MS, SETTLED_MS, due};
pub use lease::{Heir, Lease, Phase, Promoted, Record, Settled, Suspension, TTL_MS, Turn, is_gone, left_ms, settle, turn, waits_ms};
pub use origin::origin;
pub use rejoin::{Holding, Proof, Standing, Tended, Trail, next, prove, tend};
pub use stopped::{Resume, Stopped};
pub use verdict::{Answer, Evidence, Past, Verdict, Witness, verdict, witness};
