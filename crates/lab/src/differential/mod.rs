//! The differential tester. The same session scripts run on private connections and through the proxy, where sessions interleave and share
//! fewer backends. Everything that a client can see is compared.
//!
//! A round has several sessions. Each has a schema of its own, so its results cannot depend on the order in which the sessions take turns.
//! Turns are taken in one thread, so a seed always gives the same run. A session may be pinned (a transaction, a temporary table, a lock)
//! only while a backend is left for the others.
//!
//! Source of the rule: "session equality". Whatever backend serves a statement, the client sees the same as on one private connection.

mod blocks;
mod compare;
mod data;
mod generate;
mod pins;
mod player;
mod readers;
mod rng;
mod round;
mod seen;
mod shrink;
mod step;

pub use self::compare::{Campaign, Difference, Finding, Summary};
pub use self::generate::script;
pub use self::player::Player;
pub use self::readers::Readers;
pub use self::rng::Rng;
pub use self::round::{Round, Turn};
pub use self::seen::{reply_lines, status_line};
pub use self::step::{Block, Login, Script, Step};
