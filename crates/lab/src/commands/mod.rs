//! One module a subcommand: its arguments and its work. To add one: a module, a variant, a line in `run`.

mod demo;

use clap::Subcommand;
use lab::LabError;

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A primary, two replicas and the proxy before them, until Ctrl-C.
    Demo(demo::Args),
}

impl Command {
    pub(crate) fn run(&self) -> Result<(), LabError> {
        match self {
            Command::Demo(args) => demo::run(args),
        }
    }
}
