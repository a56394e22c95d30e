//! The `lab` program: real servers and the real proxy, put together from the command line.

mod commands;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;

/// Real database servers and the proxy on this machine, for demonstrations and measurements.
#[derive(Debug, Parser)]
#[command(name = "lab")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}
