//! `lab failover`: the writer is killed, a script promotes a replica; side by side.

use lab::LabError;
use lab::experiments::failover::{Contender, Plan};
use lab::experiments::report::{Series, charts, heading, ms};
use serde_json::json;

use super::experiments::Common;

/// Arguments of `lab failover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Only this one: direct, haproxy, tidegate, tidegate+replay. May be given again.
    #[arg(long, value_parser = ["direct", "haproxy", "tidegate", "tidegate+replay"])]
    only: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), LabError> {
    let flavor = args.common.flavor();
    let mut plan = Plan::new(flavor, args.common.extent());
    plan.runs = args.common.runs(plan.runs);
    if !args.only.is_empty() {
        plan.contenders = Contender::ALL.into_iter().filter(|contender| args.only.iter().any(|name| name == contender.name())).collect();
    }
    let series = plan.run(|contender, round| {
        let (tally, first) = (&round.tally, ms(round.tally.first_write_us));
        eprintln!(
            "... {}: first write {first} ms, downtime {} ms, {} errors",
            contender.name(),
            ms(Some(tally.downtime_us)),
            tally.error_count()
        );
    })?;
    let title = format!("{} kill -9 of the writer, semi-synchronous replication, a script promotes a replica", flavor.name());
    let errors = series.iter().flat_map(Series::error_lines).map(|line| format!("  {line}"));
    let table: Vec<String> = [title.clone(), heading()].into_iter().chain(series.iter().map(Series::line)).chain(errors).collect();
    table.iter().for_each(|line| println!("{line}"));
    let document =
        json!({ "experiment": "failover", "flavor": flavor.name(), "series": series.iter().map(Series::json).collect::<Vec<_>>() });
    args.common.write(&document, &title, &table, &charts(&series, "kill -9 of the writer"))?;
    if series.iter().all(|one| one.audit().is_clean()) {
        Ok(())
    } else {
        Err(LabError::Protocol("rows were lost or doubled: see above".to_owned()))
    }
}
