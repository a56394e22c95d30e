//! Experiments: something happens to a topology under load, and what clients saw of it is printed and written as JSON.
//!
//! One module an experiment; [`round`] is what they have in common: clients start, a change happens, writes flow again,
//! clients stop, rows are audited. What could not be measured is said in the report, never left out.

pub mod aurora;
pub mod failover;
pub mod galera;
pub mod group;
pub mod mirror;
pub mod report;
pub mod round;
pub mod scene;
pub mod stale;
pub mod switchover;

/// How much of an experiment is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A few seconds: that the experiment works, and its promises hold once.
    Short,
    /// Enough runs for figures.
    Full,
}
