//! One module a subcommand: its arguments and its work. To add one: a module, a variant, a line in `run`.

mod bench;
mod demo;
mod differential;
mod multiplex;
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
    /// Many sessions on few backends: connections over time, and LAST_INSERT_ID() while backends are shared.
    Multiplex(multiplex::Args),
    /// One server, and the proxy before it when asked for, for other programs to use.
    Serve(serve::Args),
}

impl Command {
    pub(crate) fn run(&self) -> Result<(), LabError> {
        match self {
            Command::Bench(args) => bench::run(args),
            Command::Demo(args) => demo::run(args),
            Command::Differential(args) => differential::run(args),
            Command::Multiplex(args) => multiplex::run(args),
            Command::Serve(args) => serve::run(args),
        }
    }
}
