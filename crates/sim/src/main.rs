//! `sim --seeds FROM..TO`: runs worlds until one is wrong; `sim --seed N --trace` shows one.

use clap::Parser;
use sim::{Lack, Settings};
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

/// The seeded simulator.
#[derive(Parser)]
struct Arguments {
    /// Runs these seeds, FROM..TO; the end is not one of them.
    #[arg(long, value_parser = seeds, default_value = "0..1000")]
    seeds: Range<u64>,
    /// Runs this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints what happened.
    #[arg(long)]
    trace: bool,
    /// Says which seed runs.
    #[arg(long)]
    verbose: bool,
    /// Switches a safety check off, or leaves something out; --list names them.
    #[arg(long)]
    without: Vec<String>,
    /// The proxy's process stays: without upgrades a seed's world is what it was before there were any.
    #[arg(long)]
    never_upgraded: bool,
    /// Lists what --without takes.
    #[arg(long)]
    list: bool,
    /// Goes on after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Lines of a failing seed's trace that are printed; 0 prints all.
    #[arg(long, default_value_t = 60)]
    lines: usize,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("FROM..TO")?;
    let number = |t: &str| t.parse::<u64>().map_err(|e| e.to_string());
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if std::env::var_os("SIM_LOG").is_some() {
        tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).without_time().init();
    }
    if arguments.list {
        Lack::all().iter().for_each(|lack| println!("{}", lack.name()));
        return ExitCode::SUCCESS;
    }
    let without: Option<Vec<Lack>> = arguments.without.iter().map(|name| Lack::named(name)).collect();
    let Some(without) = without else {
        eprintln!("--without takes what --list names");
        return ExitCode::FAILURE;
    };
    let settings = Settings { is_traced: arguments.trace, without, is_never_upgraded: arguments.never_upgraded };
    let range = arguments.seed.map_or(arguments.seeds.clone(), |seed| seed..seed + 1);
    let (began, mut failed) = (Instant::now(), 0);
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in range.clone() {
        if arguments.verbose {
            println!("seed {seed}");
        }
        let outcome = sim::run(seed, &settings);
        for (what, n) in &outcome.counts {
            *counts.entry(what).or_default() += n;
        }
        if arguments.trace {
            outcome.trace.iter().for_each(|line| println!("{line}"));
        }
        if outcome.violations.is_empty() {
            continue;
        }
        failed += 1;
        report(seed, &outcome, &arguments, &settings);
        if !arguments.keep_going {
            break;
        }
    }
    println!("{} seeds, {failed} failed, {:.1} s, {counts:?}", range.end - range.start, began.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(seed: u64, outcome: &sim::Outcome, arguments: &Arguments, settings: &Settings) {
    println!("seed {seed} FAILED:");
    outcome.violations.iter().for_each(|violation| println!("  {violation}"));
    if arguments.trace || arguments.keep_going {
        return;
    }
    let trace = sim::run(seed, &Settings { is_traced: true, ..settings.clone() }).trace;
    let from = if arguments.lines == 0 { 0 } else { trace.len().saturating_sub(arguments.lines) };
    trace.iter().skip(from).for_each(|line| println!("  {line}"));
}
