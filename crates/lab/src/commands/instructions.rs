//! `lab instructions`: instructions of a query beside the kept figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use lab::bench::{instructions, peer};
use lab::{Flavor, LabError};

/// Arguments of `lab instructions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The proxy that is measured.
    #[arg(long)]
    program: PathBuf,
    /// The kept figures, as JSON: a number for each case.
    #[arg(long)]
    kept: PathBuf,
    /// Write the figures there instead of comparing them.
    #[arg(long)]
    keep: bool,
    /// Fails if a case needs more than this many times its kept figure.
    #[arg(long, default_value_t = 1.02)]
    limit: f64,
}

pub(crate) fn run(args: &Args) -> Result<(), LabError> {
    let server = peer::start_server(Flavor::Mariadb)?;
    let mut counted = BTreeMap::new();
    for case in &instructions::CASES {
        counted.insert(case.name.to_owned(), instructions::count(&args.program, &server, case)?);
    }
    if args.keep {
        let text = serde_json::to_string_pretty(&counted).map_err(|error| LabError::Protocol(error.to_string()))?;
        return fs::write(&args.kept, text + "\n").map_err(|error| LabError::io(format!("write {}", args.kept.display()), error));
    }
    let text = fs::read_to_string(&args.kept).map_err(|error| LabError::io(format!("read {}", args.kept.display()), error))?;
    let kept: BTreeMap<String, u64> = serde_json::from_str(&text).map_err(|error| LabError::Protocol(error.to_string()))?;
    println!("{:<28}{:>12}{:>10}{:>8}", "instructions of a query", "now", "kept", "ratio");
    let mut slower = Vec::new();
    for (name, now) in &counted {
        let before = *kept.get(name).ok_or_else(|| LabError::Protocol(format!("no figure is kept for '{name}'")))?;
        let ratio = *now as f64 / before as f64;
        println!("{name:<28}{now:>12}{before:>10}{ratio:>8.3}");
        if ratio > args.limit {
            slower.push(format!("{name} {ratio:.3}"));
        }
    }
    if slower.is_empty() {
        return Ok(());
    }
    Err(LabError::Protocol(format!("more instructions than {} times the kept figures: {}", args.limit, slower.join(", "))))
}
