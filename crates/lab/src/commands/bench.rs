//! `lab bench`: measures direct, HAProxy and Tidegate side by side; prints a table and writes JSON.

use std::path::PathBuf;

use lab::bench::builds::{self, Build};
use lab::bench::bystanders;
use lab::bench::peer::{Kind, Peer};
use lab::bench::plan::Point;
use lab::bench::runner::News;
use lab::bench::{Outcome, Plan, json, profile, report, run as measure};
use lab::plot;
use lab::{Flavor, LabError};

use super::output;

/// Arguments of `lab bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fewer and shorter measurements: under three minutes instead of under twenty.
    #[arg(long)]
    quick: bool,
    /// Only what has a name that contains this: loads, `query rules`, `statistics`, `query cache`, `LOAD times`,
    /// `digest throughput`; `none` leaves only the memory of idle clients.
    #[arg(long)]
    only: Option<String>,
    /// How many idle clients to measure the memory of; 0 for no such measurement.
    #[arg(long)]
    idle: Option<usize>,
    /// Leave out this peer: direct, haproxy or tidegate. May be given again.
    #[arg(long, value_parser = ["direct", "haproxy", "tidegate"])]
    without: Vec<String>,
    /// Instead of measuring, profile the proxies, or each --build, with perf, under the first load that --only
    /// names, or text point selects.
    #[arg(long)]
    profile: bool,
    /// Instead of measuring, show how long clients of each --build wait beside statements that are slow now and then.
    #[arg(long, requires = "build")]
    bystanders: bool,
    /// How many clients the profiled load has, or the one of bystanders.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Instead of that, measure this build of the proxy, HAProxy and direct connections in turn, under text and prepared point selects:
    /// NAME=PATH, and variables to set as ,NAME=NUMBER. May be given again.
    #[arg(long)]
    build: Vec<Build>,
    /// Builds are measured before MySQL instead of MariaDB.
    #[arg(long, requires = "build")]
    mysql: bool,
    /// How often each build is measured under each load.
    #[arg(long, default_value_t = 15)]
    repeats: usize,
    /// Where to write the figures.
    #[arg(long, default_value = "docs/bench/latest.json")]
    json: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), LabError> {
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !args.without.iter().any(|name| name == kind.name())).collect();
    if args.profile {
        return profiles(args, &kinds);
    }
    let flavor = if args.mysql { Flavor::Mysql } else { Flavor::Mariadb };
    if args.bystanders {
        println!("{}", bystanders::HEADING);
        return bystanders::run(&args.build, flavor, args.clients, args.repeats, &mut |line| println!("{line}"));
    }
    if !args.build.is_empty() {
        println!("{}", builds::HEADING);
        return builds::run(&args.build, flavor, args.only.as_deref(), args.repeats, &mut |line| println!("{line}"));
    }
    println!("{}", report::HEADING);
    let outcome = measure(&plan(args), &kinds, &mut |news| match news {
        News::Begins(what) => eprintln!("... {what}"),
        News::Point(point) => println!("{}", report::point(point)),
        News::Compared(compared) => println!("\n{}", report::compared(compared)),
        News::LoadTimes(times) => println!("{}", report::load_times(times)),
        News::Digest(speed) => println!("{}", report::digest(speed)),
        News::Idle(idle) => println!("{}", report::idle(idle)),
    })?;
    println!("{}", report::ending(&outcome));
    output::write(Some(&args.json), &json::document(&outcome))?;
    let table: Vec<String> = [report::HEADING.to_owned()].into_iter().chain(outcome.points.iter().map(report::point)).collect();
    plot::write_beside(&args.json, "Direct, HAProxy and Tidegate side by side", &table.join("\n"), &report::charts(&outcome))?;
    complete(&outcome, &kinds)
}

fn plan(args: &Args) -> Plan {
    let mut plan = if args.quick { Plan::quick() } else { Plan::full() };
    if let Some(part) = &args.only {
        plan = plan.only(part);
    }
    plan.idle_clients = args.idle.unwrap_or(plan.idle_clients);
    plan
}

fn profiles(args: &Args, kinds: &[Kind]) -> Result<(), LabError> {
    let points = plan(args).points.into_iter();
    let point = points.map(|point| Point { clients: args.clients, ..point }).next();
    let point = point.ok_or_else(|| LabError::Protocol("no load has that name".to_owned()))?;
    for build in &args.build {
        println!("{}", profile::profile(&build.name, &point, |server| build.start(server))?);
    }
    for kind in kinds.iter().filter(|kind| **kind != Kind::Direct && args.build.is_empty()) {
        println!("{}", profile::profile(kind.name(), &point, |server| Peer::start(*kind, server))?);
    }
    Ok(())
}

/// Fails when a peer that was asked for gave no figures at some load.
fn complete(outcome: &Outcome, kinds: &[Kind]) -> Result<(), LabError> {
    let whole = outcome.points.iter().all(|point| kinds.iter().all(|kind| point.figures(*kind).is_some()))
        && outcome.compared.iter().all(|compared| compared.rows.iter().all(|row| row.figures.is_ok()));
    if whole { Ok(()) } else { Err(LabError::Protocol("some loads could not be measured: see above".to_owned())) }
}
