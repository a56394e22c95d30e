//! Experiments: a topology is changed under load, and the clients' view of it is printed and written as JSON.
//!
//! One module per experiment. [`round`] is their common part: clients start, a change happens, writes flow again, clients stop, rows are
//! audited. The report names everything that could not be measured.

pub mod aurora;
pub mod failover;
pub mod galera;
pub mod group;
pub mod mirror;
pub mod promotion;
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
