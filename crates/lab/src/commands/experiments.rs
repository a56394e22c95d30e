//! `lab switchover`, `lab galera`, `lab group`, `lab aurora`, `lab stale-reads`: experiments with Tidegate alone.

use std::path::PathBuf;

use lab::experiments::scene::{self, Seen};
use lab::experiments::{Extent, aurora, galera, group, report, stale, switchover};
use lab::{Flavor, LabError};
use serde_json::{Value, json};

use super::output;

/// Arguments that every experiment has.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// A few seconds instead of all.
    #[arg(long)]
    short: bool,
    /// How many rounds, where rounds are alike.
    #[arg(long)]
    runs: Option<usize>,
    /// MySQL instead of MariaDB, where there is a choice.
    #[arg(long)]
    mysql: bool,
    /// Where to write the figures.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Common {
    /// How much of it is done.
    pub(crate) fn extent(&self) -> Extent {
        if self.short { Extent::Short } else { Extent::Full }
    }

    /// The servers.
    pub(crate) fn flavor(&self) -> Flavor {
        if self.mysql { Flavor::Mysql } else { Flavor::Mariadb }
    }

    /// As many rounds as were asked for, else `usual`.
    pub(crate) fn runs(&self, usual: usize) -> usize {
        self.runs.unwrap_or(usual)
    }

    /// Writes the figures.
    pub(crate) fn write(&self, document: &Value) -> Result<(), LabError> {
        output::write(self.json.as_deref(), document)
    }
}

/// Arguments of the experiments with Tidegate alone.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Only scenes whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

impl Args {
    fn extent(&self) -> Extent {
        self.common.extent()
    }

    /// Writes the figures, and fails when a promise was not kept.
    fn end(&self, name: &str, figures: &[Value], is_kept: bool) -> Result<(), LabError> {
        self.common.write(&json!({ "experiment": name, "figures": figures }))?;
        match is_kept {
            true => Ok(()),
            false => Err(LabError::Protocol("not everything that was promised held: see above".to_owned())),
        }
    }
}

pub(crate) fn switchover(args: &Args) -> Result<(), LabError> {
    let runs = args.common.runs(switchover::runs(args.extent()));
    let series = switchover::run(args.common.flavor(), runs, |round, said| {
        eprintln!("... stall {} ms, {} errors; {said}", report::ms(Some(round.tally.longest_stall_us)), round.tally.error_count());
    })?;
    println!("SWITCHOVER under load, back and forth\n{}\n{}", report::heading(), series.line());
    series.error_lines().iter().for_each(|line| println!("  {line}"));
    let errors: u64 = series.rounds.iter().map(|round| round.tally.error_count()).sum();
    args.end("switchover", &[series.json()], errors == 0 && series.audit().is_clean())
}

pub(crate) fn galera(args: &Args) -> Result<(), LabError> {
    println!("{}", scene::HEADING);
    let mut figures = Vec::new();
    let is_kept = galera::run(args.extent(), args.only.as_deref(), |value, seen| {
        figures.push(json!({ "writer_is_also_reader": value, "seen": shown(&format!("{value} "), seen) }));
    })?;
    args.end("galera", &figures, is_kept)
}

pub(crate) fn group(args: &Args) -> Result<(), LabError> {
    println!("{}", scene::HEADING);
    let mut figures = Vec::new();
    let is_kept = group::run(args.extent(), args.only.as_deref(), |name, seen| match seen {
        Some(seen) => figures.push(shown("", seen)),
        None => {
            println!("{name}: not measured, networks need root and the program ip");
            figures.push(json!({ "scene": name, "not_measured": "needs root and the program ip" }));
        }
    })?;
    args.end("group", &figures, is_kept)
}

pub(crate) fn aurora(args: &Args) -> Result<(), LabError> {
    println!("a stand-in, not Aurora: MariaDB servers behind a front that answers replica_host_status\n{}", scene::HEADING);
    let mut figures = Vec::new();
    let is_kept = aurora::run(args.extent(), args.only.as_deref(), |seen| figures.push(shown("", seen)))?;
    args.end("aurora stand-in", &figures, is_kept)
}

pub(crate) fn stale_reads(args: &Args) -> Result<(), LabError> {
    println!("{}", stale::HEADING);
    let measured = stale::run(args.common.flavor(), args.extent(), |one| println!("{}", one.line()))?;
    let figures: Vec<Value> = measured.iter().map(stale::Measured::json).collect();
    args.end("stale reads", &figures, measured.iter().all(stale::Measured::is_kept))
}

/// Prints a scene, and gives it for machines.
fn shown(prefix: &str, seen: &Result<Seen, LabError>) -> Value {
    match seen {
        Ok(seen) => {
            println!("{prefix}{}", seen.line());
            seen.error_lines().iter().for_each(|line| println!("      {line}"));
            seen.json()
        }
        Err(error) => {
            println!("{prefix}FAILED: {error}");
            json!({ "failed": error.to_string() })
        }
    }
}
