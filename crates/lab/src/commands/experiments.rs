//! `lab switchover`, `lab galera`, `lab group`, `lab aurora`, `lab stale-reads`, `lab mirror`, `lab promotion`: experiments with Tidegate alone.

use std::path::PathBuf;

use lab::experiments::scene::{self, Seen};
use lab::experiments::{Extent, aurora, galera, group, mirror, promotion, report, stale, switchover};
use lab::plot::{self, Chart};
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

    /// Writes the figures, and beside them a page with the table and charts.
    pub(crate) fn write(&self, document: &Value, title: &str, table: &[String], charts: &[Chart]) -> Result<(), LabError> {
        output::write(self.json.as_deref(), document)?;
        self.json.as_deref().map_or(Ok(()), |path| plot::write_beside(path, title, &table.join("\n"), charts))
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
    fn end(&self, shown: Shown, is_kept: bool) -> Result<(), LabError> {
        let Shown { name, figures, table, charts } = shown;
        self.common.write(&json!({ "experiment": name, "figures": figures }), name, &table, &charts)?;
        if is_kept { Ok(()) } else { Err(LabError::Protocol("not everything that was promised held: see above".to_owned())) }
    }
}

/// The result of an experiment.
struct Shown {
    name: &'static str,
    figures: Vec<Value>,
    table: Vec<String>,
    charts: Vec<Chart>,
}

impl Shown {
    /// Nothing yet.
    fn new(name: &'static str) -> Self {
        Self { name, figures: Vec::new(), table: Vec::new(), charts: Vec::new() }
    }

    /// Prints a line, and keeps it for the page.
    fn say(&mut self, line: impl Into<String>) {
        let line = line.into();
        println!("{line}");
        self.table.push(line);
    }

    /// A scene: printed, drawn, and given for machines.
    fn scene(&mut self, prefix: &str, seen: &Result<Seen, LabError>) -> Value {
        match seen {
            Ok(seen) => {
                self.say(format!("{prefix}{}", seen.line()));
                seen.error_lines().iter().for_each(|line| self.say(format!("      {line}")));
                self.charts.push(seen.chart(prefix));
                seen.json()
            }
            Err(error) => {
                self.say(format!("{prefix}FAILED: {error}"));
                json!({ "failed": error.to_string() })
            }
        }
    }
}

pub(crate) fn switchover(args: &Args) -> Result<(), LabError> {
    let runs = args.common.runs(switchover::runs(args.extent()));
    let series = switchover::run(args.common.flavor(), runs, |round, said| {
        eprintln!("... stall {} ms, {} errors; {said}", report::ms(Some(round.tally.longest_stall_us)), round.tally.error_count());
    })?;
    let mut shown = Shown::new("switchover");
    shown.say(format!("SWITCHOVER under load, back and forth\n{}\n{}", report::heading(), series.line()));
    series.error_lines().iter().for_each(|line| shown.say(format!("  {line}")));
    shown.figures.push(series.json());
    let (errors, is_clean) = (series.rounds.iter().map(|round| round.tally.error_count()).sum::<u64>(), series.audit().is_clean());
    shown.charts = report::charts(&[series], "SWITCHOVER");
    args.end(shown, errors == 0 && is_clean)
}

pub(crate) fn galera(args: &Args) -> Result<(), LabError> {
    let mut shown = Shown::new("galera");
    shown.say(scene::HEADING);
    let is_kept = galera::run(args.extent(), args.only.as_deref(), |value, seen| {
        let seen = shown.scene(&format!("{value} "), seen);
        shown.figures.push(json!({ "writer_is_also_reader": value, "seen": seen }));
    })?;
    args.end(shown, is_kept)
}

pub(crate) fn group(args: &Args) -> Result<(), LabError> {
    let mut shown = Shown::new("group");
    shown.say(scene::HEADING);
    let is_kept = group::run(args.extent(), args.only.as_deref(), |name, seen| match seen {
        Some(seen) => {
            let seen = shown.scene("", seen);
            shown.figures.push(seen);
        }
        None => {
            shown.say(format!("{name}: not measured, networks need root and the program ip"));
            shown.figures.push(json!({ "scene": name, "not_measured": "needs root and the program ip" }));
        }
    })?;
    args.end(shown, is_kept)
}

pub(crate) fn aurora(args: &Args) -> Result<(), LabError> {
    let mut shown = Shown::new("aurora stand-in");
    shown.say(format!("a stand-in, not Aurora: MariaDB servers behind a front that answers replica_host_status\n{}", scene::HEADING));
    let is_kept = aurora::run(args.extent(), args.only.as_deref(), |seen| {
        let seen = shown.scene("", seen);
        shown.figures.push(seen);
    })?;
    args.end(shown, is_kept)
}

pub(crate) fn stale_reads(args: &Args) -> Result<(), LabError> {
    let mut shown = Shown::new("stale reads");
    shown.say(stale::HEADING);
    let measured = stale::run(args.common.flavor(), args.extent(), |one| shown.say(one.line()))?;
    shown.figures = measured.iter().map(stale::Measured::json).collect();
    shown.charts = stale::charts(&measured);
    args.end(shown, measured.iter().all(stale::Measured::is_kept))
}

pub(crate) fn mirror(args: &Args) -> Result<(), LabError> {
    let mut shown = Shown::new("mirrored writes");
    shown.say(mirror::HEADING);
    let measured = mirror::run(args.common.flavor(), args.extent(), |one| shown.say(one.line()))?;
    shown.figures = measured.iter().map(mirror::Measured::json).collect();
    shown.charts = mirror::charts(&measured);
    args.end(shown, measured.iter().all(mirror::Measured::is_kept))
}

pub(crate) fn promotion(args: &Args) -> Result<(), LabError> {
    let mut shown = Shown::new("promotion by the proxy");
    let runs = args.common.runs(promotion::runs(args.extent()));
    let measured = promotion::run(args.common.flavor(), runs, args.only.as_deref(), |case, one| {
        let (down, audit) = (report::ms(Some(one.round.tally.downtime_us)), one.round.audit);
        eprintln!("... {}: {down} ms without a write, {} reported, {} lost", case.name, one.reported, audit.lost);
    })?;
    shown.say(promotion::heading());
    measured.iter().for_each(|one| shown.say(one.line()));
    shown.figures = measured.iter().map(promotion::Measured::json).collect();
    args.end(shown, measured.iter().all(promotion::Measured::is_kept))
}
