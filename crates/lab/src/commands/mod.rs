//! One module a subcommand: its arguments and its work. To add one: a module, a variant, a line in `run`.

mod demo;
mod serve;

use clap::Subcommand;
use lab::LabError;

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A primary, two replicas and the proxy before them, until Ctrl-C.
    Demo(demo::Args),
    /// One server, and the proxy before it when asked for, for other programs to use.
    Serve(serve::Args),
}

impl Command {
    pub(crate) fn run(&self) -> Result<(), LabError> {
        match self {
            Command::Demo(args) => demo::run(args),
            Command::Serve(args) => serve::run(args),
        }
    }
}
