//! Where a proxy's time goes under one load: system calls a query and a sampled profile, with `perf` where it works.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::fleet::{Fleet, Load, Run};
use super::peer::{self, Kind, Peer};
use super::work::Work;
use crate::dirs;
use crate::error::{IoContext, LabError};

/// Clients of the profiled load.
const CLIENTS: usize = 64;
/// How long each of the two parts is watched.
const WATCH: Duration = Duration::from_secs(4);
/// The load runs this much longer than it is watched.
const MARGIN: Duration = Duration::from_millis(1500);
/// System calls that a proxy makes for traffic.
const CALLS: &[&str] = &[
    "read",
    "write",
    "readv",
    "writev",
    "recvfrom",
    "sendto",
    "recvmsg",
    "sendmsg",
    "epoll_wait",
    "epoll_pwait",
    "epoll_ctl",
    "futex",
    "madvise",
];

/// A profile of `kind` under 64 clients with text point selects, as text.
pub fn profile(kind: Kind) -> Result<String, LabError> {
    peer::raise_open_files()?;
    let server = peer::start_server()?;
    let peer = Peer::start(kind, &server)?;
    let pid = peer.pid().ok_or_else(|| LabError::Protocol("only a proxy can be profiled".to_owned()))?;
    let mut fleet = Fleet::open(&Load { address: peer.address(), clients: CLIENTS, work: Work::PointText, pace: None })?;
    fleet.run(Duration::from_secs(1))?;
    let calls = system_calls(pid, &mut fleet)?;
    let samples = samples(pid, &mut fleet)?;
    Ok(format!("{}: {CLIENTS} clients, text point selects\n\n{calls}\n{samples}", kind.name()))
}

/// Calls and context switches for each query.
fn system_calls(pid: u32, fleet: &mut Fleet) -> Result<String, LabError> {
    let events: Vec<String> = CALLS.iter().map(|call| format!("syscalls:sys_enter_{call}")).collect();
    let events = format!("context-switches,raw_syscalls:sys_enter,{}", events.join(","));
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", &events, "-p", &pid.to_string(), "--", "sleep", &WATCH.as_secs().to_string()]);
    let (output, run) = watched(perf, fleet)?;
    let queries = per_second(&run) * WATCH.as_secs_f64();
    let mut text = "for each query:\n".to_owned();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let count = fields.first().and_then(|count| count.parse::<f64>().ok());
        if let (Some(count), Some(name)) = (count.filter(|count| *count > 0.0), fields.get(2)) {
            text.push_str(&format!("  {:>7.3}  {}\n", count / queries, name.trim_start_matches("syscalls:sys_enter_")));
        }
    }
    Ok(text)
}

/// The functions that were running, by share of the samples.
fn samples(pid: u32, fleet: &mut Fleet) -> Result<String, LabError> {
    let data = dirs::instance("perf")?.join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", "1999", "-p", &pid.to_string(), "-o"]).arg(&data);
    perf.args(["--", "sleep", &WATCH.as_secs().to_string()]);
    let (_, run) = watched(perf, fleet)?;
    let user = report(&data, &["--sort", "dso"])?;
    let symbols = report(&data, &["--sort", "dso,symbol", "--percent-limit", "0.4"])?;
    Ok(format!("{:.0} queries/s while sampled\n{user}\n{symbols}", per_second(&run)))
}

fn report(data: &Path, more: &[&str]) -> Result<String, LabError> {
    let mut perf = Command::new("perf");
    perf.args(["report", "--stdio", "--no-children", "-q", "-i"]).arg(data).args(more).stdin(Stdio::null());
    let output = perf.output().context(|| "start perf".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("{}\n", line.trim_end())).collect())
}

/// Runs the load while `perf` watches.
fn watched(mut perf: Command, fleet: &mut Fleet) -> Result<(Output, Run), LabError> {
    perf.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child: Child = perf.spawn().context(|| "start perf".to_owned())?;
    let run = fleet.run(WATCH + MARGIN);
    let output = child.wait_with_output().context(|| "wait for perf".to_owned())?;
    if !output.status.success() {
        return Err(LabError::Exited {
            name: "perf".to_owned(),
            status: output.status.to_string(),
            log_tail: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    Ok((output, run?))
}

fn per_second(run: &Run) -> f64 {
    run.completed as f64 / run.elapsed.as_secs_f64()
}
