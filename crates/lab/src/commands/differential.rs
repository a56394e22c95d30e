//! `lab differential`: generated session scripts, direct and through the proxy, compared field by field.

use std::time::Duration;

use lab::differential::{Campaign, Readers, Summary};
use lab::{Client, ConnectOptions, Flavor, LabError, Options, Server, Tidegate};

/// Rounds between two lines of progress.
const PROGRESS: u64 = 50;

/// A reply that takes longer counts as lost.
const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// Arguments of `lab differential`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Same seed, same scripts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many session scripts to play.
    #[arg(long, default_value_t = 1000)]
    scripts: u64,
    /// Which server: mariadb, mysql or both.
    #[arg(long, default_value = "both")]
    flavor: String,
    /// Sessions that interleave.
    #[arg(long, default_value_t = 6)]
    sessions: usize,
    /// Backends that they share; at least 2.
    #[arg(long, default_value_t = 2)]
    backends: usize,
    /// Worker threads of the proxy.
    #[arg(long, default_value_t = 2)]
    threads: i64,
    /// So many sessions read beside the scripts, and quick reads of all sessions share connections (`mysql-pipeline_depth` is 8).
    #[arg(long, default_value_t = 0)]
    readers: usize,
    /// How often a round with a difference is played again to make it smaller.
    #[arg(long, default_value_t = 300)]
    shrink: usize,
    /// Compare the server with itself: are the scripts' results reproducible?
    #[arg(long)]
    self_check: bool,
    /// Do not stop at differences: count them by what they look like.
    #[arg(long)]
    survey: bool,
    /// Print the scripts of the round with this number and play it alone.
    #[arg(long)]
    round: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<(), LabError> {
    let flavors: &[Flavor] = match args.flavor.as_str() {
        "mariadb" => &[Flavor::Mariadb],
        "mysql" => &[Flavor::Mysql],
        "both" => &[Flavor::Mariadb, Flavor::Mysql],
        other => return Err(LabError::Protocol(format!("no flavor {other:?}: mariadb, mysql or both"))),
    };
    let mut differences = 0;
    for flavor in flavors {
        differences += campaign(args, *flavor)?;
    }
    match differences {
        0 => Ok(()),
        n => Err(LabError::Protocol(format!("{n} differences"))),
    }
}

fn campaign(args: &Args, flavor: Flavor) -> Result<usize, LabError> {
    let server = Server::start(flavor, &Options::new())?;
    let proxy = if args.self_check { None } else { Some(proxy(args, &server)?) };
    let direct = ConnectOptions::tcp(server.address(), "app", "app-pass").timeout(REPLY_LIMIT);
    let campaign = Campaign {
        flavor,
        proxied: proxy.as_ref().map_or(direct.clone(), |proxy| proxy.options("app", "app-pass").timeout(REPLY_LIMIT)),
        direct,
        root: ConnectOptions::unix(server.socket(), "root", ""),
        admin: proxy.as_ref().map(Tidegate::admin_options),
        sessions: args.sessions,
        backends: args.backends,
        shrink_plays: args.shrink,
    };
    let readers = match args.readers {
        0 => None,
        count => Some(Readers::start(&campaign.root, &campaign.proxied.clone().database("test"), "read_beside", count)?),
    };
    if let Some(number) = args.round {
        let round = campaign.round(args.seed, number);
        let (_, found) = campaign.compare(&round)?;
        println!("{round:#?}\n{found:#?}");
        return Ok(usize::from(found.is_some()));
    }
    if args.survey {
        return survey(&campaign, args);
    }
    let (mut rounds, mut shown) = (0, 0);
    let summary = campaign.run(args.seed, args.scripts, |summary| {
        rounds += 1;
        if rounds % PROGRESS == 0 {
            println!("{}: {}", flavor.name(), line(summary));
        }
        for difference in &summary.differences[shown..] {
            println!("\n{difference}");
        }
        shown = summary.differences.len();
    })?;
    println!("{}: {}", flavor.name(), line(&summary));
    if let (Some(readers), Some(admin)) = (readers, &campaign.admin) {
        let shared = Client::connect(admin)?.scalar("SELECT SUM(pipelined) FROM stats_tidegate_waits")?;
        println!("{} replies to readers, {} statements shared a connection", readers.stop()?, shared.unwrap_or_default());
    }
    Ok(summary.differences.len())
}

fn survey(campaign: &Campaign, args: &Args) -> Result<usize, LabError> {
    let findings = campaign.survey(args.seed, args.scripts)?;
    for finding in &findings {
        println!("{} x, first in round {}: {}", finding.count, finding.round, finding.step);
        println!("    direct : {}\n    proxied: {}", finding.direct, finding.proxied);
    }
    Ok(findings.len())
}

fn proxy(args: &Args, server: &Server) -> Result<Tidegate, LabError> {
    let limit = i64::try_from(args.backends).unwrap_or(i64::MAX);
    let builder = match args.readers {
        0 => Tidegate::builder(),
        _ => Tidegate::builder().variable("pipeline_depth", 8).variable("pipeline_max_statement_us", 1_000_000),
    };
    builder
        .server_with(0, server.host(), server.port(), &[("max_connections", limit.into())])
        .app_user()
        .variable("threads", args.threads)
        .variable("connect_timeout_server_max", 1500)
        .start()
}

fn line(summary: &Summary) -> String {
    format!("{} scripts, {} steps, {} differences", summary.scripts, summary.steps, summary.differences.len())
}
