//! `lab scale`: the cost of a query for the proxy as clients grow, and of the monitor as servers do. Later figures are compared with that
//! of the first number.

use std::time::Duration;

use lab::bench::{peer, scale};
use lab::{Flavor, LabError};

/// Arguments of `lab scale`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Numbers of clients; the limit on open files bounds them.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 4_000, 16_000])]
    clients: Vec<usize>,
    /// Most connections to the server.
    #[arg(long, default_value_t = 50)]
    backends: i64,
    /// Length of each load, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Sessions that lose their server in a transaction, all at once; 0 for no such measurement.
    #[arg(long, default_value_t = 4_000)]
    lost: usize,
    /// Numbers of servers that the monitor watches.
    #[arg(long, value_delimiter = ',', default_values_t = [150, 300, 600, 1_200])]
    servers: Vec<u16>,
}

pub(crate) fn run(args: &Args) -> Result<(), LabError> {
    peer::raise_open_files()?;
    let server = peer::start_server(Flavor::Mariadb)?;
    println!("{}", scale::HEADING);
    for clients in &args.clients {
        scale::measure(&server, *clients, args.backends, Duration::from_secs(args.seconds), &mut |row| println!("{}", scale::line(&row)))?;
    }
    if args.lost > 0 {
        let other = peer::start_server(Flavor::Mariadb)?;
        let loss = scale::lose_all(&server, &other, args.lost)?;
        println!(
            "{} sessions lose their server: a bystander's longest query {:.1} ms, before {:.1} ms",
            loss.sessions, loss.longest_ms, loss.longest_before_ms
        );
    }
    let read_only = peer::start_server(Flavor::Mariadb)?;
    read_only.root()?.run("SET GLOBAL read_only=1")?;
    let writable = peer::start_server(Flavor::Mariadb)?;
    for count in &args.servers {
        let pct = scale::monitor_pct(&writable, &read_only, *count, Duration::from_secs(args.seconds))?;
        println!("{count} servers are well: the proxy takes {pct:.1} % of a processor, {:.4} for each", pct / f64::from(*count));
    }
    Ok(())
}
