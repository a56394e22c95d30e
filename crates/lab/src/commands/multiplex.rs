//! `lab multiplex`: many sessions on few backends. It counts connections on both sides over time, with and without
//! `auto_increment_delay_multiplex`, and checks LAST_INSERT_ID() while backends are shared.

mod checks;
mod load;

use std::path::PathBuf;
use std::time::Duration;

use lab::plot::{self, Chart, Shape};
use lab::{Flavor, LabError, Options, Server, Tidegate};

use load::{Load, Sample};

/// Arguments of `lab multiplex`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// MySQL instead of MariaDB.
    #[arg(long)]
    mysql: bool,
    /// Clients that are connected all the time.
    #[arg(long, default_value_t = 600)]
    clients: usize,
    /// Length of each of the two runs, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Checks of LAST_INSERT_ID().
    #[arg(long, default_value_t = 100_000)]
    checks: u64,
    /// Sessions that check.
    #[arg(long, default_value_t = 40)]
    check_sessions: usize,
    /// Backends that the checking sessions share.
    #[arg(long, default_value_t = 3)]
    check_backends: i64,
    /// Seed of all choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print only the JSON.
    #[arg(long)]
    json: bool,
    /// Where to write a page with charts; its first chart lies beside it as SVG.
    #[arg(long)]
    page: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), LabError> {
    let flavor = if args.mysql { Flavor::Mysql } else { Flavor::Mariadb };
    let server = Server::start(flavor, &Options::new().arg("--max-connections=2000"))?;
    load::create_table(&server)?;
    let plain = measured(args, &server, 0)?;
    let delayed = measured(args, &server, 5)?;
    let checked = checks::run(args.check_sessions, args.check_backends, args.checks, args.seed, &server)?;
    if !args.json {
        show("auto_increment_delay_multiplex=0", &plain);
        show("auto_increment_delay_multiplex=5", &delayed);
        println!("\nLAST_INSERT_ID(): {} checks, {} wrong", checked.checks, checked.wrong.len());
    }
    println!("{}", json(args, &plain, &delayed, &checked));
    if let Some(path) = &args.page {
        let summary = format!("LAST_INSERT_ID(): {} checks, {} wrong", checked.checks, checked.wrong.len());
        plot::write_beside(path, "Connections of clients, and connections to the server", &summary, &charts(&plain, &delayed))?;
    }
    for wrong in checked.wrong.iter().take(10) {
        eprintln!("{wrong}");
    }
    verdict(&plain, &checked)
}

fn measured(args: &Args, server: &Server, delay: i64) -> Result<Vec<Sample>, LabError> {
    let proxy = Tidegate::builder().backend(0, server).app_user().variable("auto_increment_delay_multiplex", delay).start()?;
    let load = Load { clients: args.clients, length: Duration::from_secs(args.seconds), seed: args.seed };
    load.run(server, &proxy)
}

fn show(title: &str, samples: &[Sample]) {
    println!("\n{title}\n  {:>8}  {:>9}  {:>8}  {:>7}  {:>8}", "second", "frontends", "backends", "share", "queries");
    for sample in samples {
        println!(
            "  {:>8}  {:>9}  {:>8}  {:>6.1}%  {:>8}",
            sample.second,
            sample.frontends,
            sample.backends,
            sample.share() * 100.0,
            sample.queries
        );
    }
}

/// Connections over time.
fn charts(plain: &[Sample], delayed: &[Sample]) -> Vec<Chart> {
    let line = |name: &str, samples: &[Sample], value: fn(&Sample) -> u64| {
        let point = |sample: &Sample| (sample.second as f64, value(sample) as f64);
        (name.to_owned(), samples.iter().map(point).collect())
    };
    let chart = |title: &str, shape| Chart { title: title.to_owned(), x: "seconds".to_owned(), y: "connections".to_owned(), shape };
    let to_server =
        [("default", plain), ("auto_increment_delay_multiplex = 5", delayed)].map(|(name, samples)| line(name, samples, |s| s.backends));
    vec![
        chart(
            "Many clients share few connections",
            Shape::Logarithmic(vec![line("clients", plain, |s| s.frontends), line("connections to the server", plain, |s| s.backends)]),
        ),
        chart("Connections to the server", Shape::Lines(to_server.into())),
    ]
}

/// Fails when the promises are not kept: at most 5 % of the frontends, and no wrong id.
fn verdict(plain: &[Sample], checked: &checks::Outcome) -> Result<(), LabError> {
    let most = most_share(plain);
    if most > 0.05 {
        return Err(LabError::Protocol(format!("backends rose to {:.1} % of the frontends, more than 5 %", most * 100.0)));
    }
    match checked.wrong.len() {
        0 => Ok(()),
        n => Err(LabError::Protocol(format!("{n} wrong values of LAST_INSERT_ID()"))),
    }
}

fn most_share(samples: &[Sample]) -> f64 {
    samples.iter().map(Sample::share).fold(0.0, f64::max)
}

fn json(args: &Args, plain: &[Sample], delayed: &[Sample], checked: &checks::Outcome) -> String {
    let list = |samples: &[Sample]| {
        let rows: Vec<String> = samples
            .iter()
            .map(|s| format!(r#"{{"second":{},"frontends":{},"backends":{},"queries":{}}}"#, s.second, s.frontends, s.backends, s.queries))
            .collect();
        format!("[{}]", rows.join(","))
    };
    format!(
        r#"{{"clients":{},"seconds":{},"default":{},"delay_5":{},"most_share_default":{:.4},"most_share_delay_5":{:.4},"checks":{},"wrong":{}}}"#,
        args.clients,
        args.seconds,
        list(plain),
        list(delayed),
        most_share(plain),
        most_share(delayed),
        checked.checks,
        checked.wrong.len()
    )
}
