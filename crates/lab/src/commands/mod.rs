//! One module a subcommand: its arguments and its work. To add one: a module, a variant, a line in `run`.

mod bench;
mod demo;
mod differential;
mod experiments;
mod failover;
mod instructions;
mod multiplex;
mod output;
mod scale;
mod serve;

use clap::Subcommand;
use lab::LabError;

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Processor time, rates and memory of direct connections, HAProxy and Tidegate side by side.
    Bench(bench::Args),
    /// A primary, two replicas and the proxy before them, until Ctrl-C.
    Demo(demo::Args),
    /// Session scripts, direct and through the proxy, compared field by field.
    Differential(differential::Args),
    /// The writer is killed, a script promotes a replica: direct, HAProxy and Tidegate side by side.
    Failover(failover::Args),
    /// Instructions of a query, counted by valgrind, beside the kept figures.
    Instructions(instructions::Args),
    /// Planned switchovers under load, back and forth.
    Switchover(experiments::Args),
    /// What happens to Galera nodes, under load: crashes, maintenance, partitions, restarts.
    Galera(experiments::Args),
    /// What happens to members of Group Replication, under load.
    Group(experiments::Args),
    /// What happens to a stand-in for Aurora, under load.
    Aurora(experiments::Args),
    /// Reads of one's own writes from a replica that lags, with causal reads off and on.
    StaleReads(experiments::Args),
    /// Writes that are mirrored on a second server: what becomes of the copies, and what they cost.
    Mirror(experiments::Args),
    /// The proxy promotes by itself when a writer is lost, and does not when it only seems to be.
    Promotion(experiments::Args),
    /// Many sessions on few backends: connections over time, and LAST_INSERT_ID() while backends are shared.
    Multiplex(multiplex::Args),
    /// What a query costs as clients grow, when most of them wait.
    Scale(scale::Args),
    /// One server or a topology, and the proxy before it when asked for, for other programs to use.
    Serve(serve::Args),
}

impl Command {
    pub(crate) fn run(&self) -> Result<(), LabError> {
        match self {
            Command::Bench(args) => bench::run(args),
            Command::Demo(args) => demo::run(args),
            Command::Differential(args) => differential::run(args),
            Command::Failover(args) => failover::run(args),
            Command::Instructions(args) => instructions::run(args),
            Command::Switchover(args) => experiments::switchover(args),
            Command::Galera(args) => experiments::galera(args),
            Command::Group(args) => experiments::group(args),
            Command::Aurora(args) => experiments::aurora(args),
            Command::StaleReads(args) => experiments::stale_reads(args),
            Command::Mirror(args) => experiments::mirror(args),
            Command::Promotion(args) => experiments::promotion(args),
            Command::Multiplex(args) => multiplex::run(args),
            Command::Scale(args) => scale::run(args),
            Command::Serve(args) => serve::run(args),
        }
    }
}
