//! A proxy's time under one load: system calls per query, and a sampled profile with `perf` if it works.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::fleet::Fleet;
use super::peer::{self, Peer};
use super::plan::Point;
use crate::dirs;
use crate::error::{IoContext, LabError};
use crate::flavor::Flavor;
use crate::server::Server;

/// How long each of the two parts is watched.
const WATCH: Duration = Duration::from_secs(4);
/// The load runs in slices of this length until `perf` is done, so that both see the same time, apart from its start.
const SLICE: Duration = Duration::from_millis(500);
/// Kernel functions shown.
const KERNEL_LINES: usize = 15;
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

/// A profile of what `start` starts, under the load of `point`, as text.
pub fn profile(name: &str, point: &Point, start: impl FnOnce(&Server) -> Result<Peer, LabError>) -> Result<String, LabError> {
    peer::raise_open_files()?;
    let server = peer::start_server(Flavor::Mariadb)?;
    let peer = start(&server)?;
    let pid = peer.pid().ok_or_else(|| LabError::Protocol("only a proxy can be profiled".to_owned()))?;
    let mut fleet = Fleet::open(&point.load(peer.address()))?;
    fleet.run(Duration::from_secs(1))?;
    let calls = system_calls(pid, &mut fleet)?;
    let samples = samples(pid, &mut fleet)?;
    let waits = waits(&peer)?;
    Ok(format!("{name}: {}, {} clients\n\n{calls}{waits}\n{samples}", point.name, point.clients))
}

/// What Tidegate says of all its statements, and of those that shared a connection.
fn waits(peer: &Peer) -> Result<String, LabError> {
    let Some(tidegate) = peer.as_tidegate() else { return Ok(String::new()) };
    let mut admin = tidegate.admin()?;
    let all = admin.query("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Questions'")?.scalar()?;
    let shared = admin.query("SELECT pipelined, pipelined_again, pipelined_dropped FROM stats_tidegate_waits")?.table()?;
    let shared: Vec<String> = shared.into_iter().flatten().flatten().collect();
    Ok(format!("statements: {}; pipelined, sent again, dropped replies: {}\n", all.unwrap_or_default(), shared.join(", ")))
}

/// Calls and context switches for each query.
fn system_calls(pid: u32, fleet: &mut Fleet) -> Result<String, LabError> {
    let events: Vec<String> = CALLS.iter().map(|call| format!("syscalls:sys_enter_{call}")).collect();
    let events = format!("context-switches,raw_syscalls:sys_enter,{}", events.join(","));
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", &events, "-p", &pid.to_string(), "--", "sleep", &WATCH.as_secs().to_string()]);
    let (output, per_second) = watched(perf, fleet)?;
    let queries = per_second * WATCH.as_secs_f64();
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
    let (_, per_second) = watched(perf, fleet)?;
    let files = report(&data, &["--sort", "dso"])?;
    let symbols = report(&data, &["--sort", "dso,symbol", "--percent-limit", "0.3"])?;
    let (kernel, user): (Vec<&str>, Vec<&str>) = symbols.lines().partition(|line| line.contains("[kernel"));
    let kernel = kernel.into_iter().take(KERNEL_LINES).collect::<Vec<_>>().join("\n");
    Ok(format!("{per_second:.0} queries/s while sampled\n{files}\n{}\n\n{kernel}\n", user.join("\n")))
}

fn report(data: &Path, more: &[&str]) -> Result<String, LabError> {
    let mut perf = Command::new("perf");
    perf.args(["report", "--stdio", "--no-children", "-q", "-i"]).arg(data).args(more).stdin(Stdio::null());
    let output = perf.output().context(|| "start perf".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().map(|line| line.trim_end_matches([' ', '-'])).filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect())
}

/// Runs the load while `perf` watches; gives the queries a second as well.
fn watched(mut perf: Command, fleet: &mut Fleet) -> Result<(Output, f64), LabError> {
    perf.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = perf.spawn().context(|| "start perf".to_owned())?;
    let (mut queries, mut seconds) = (0, 0.0);
    while child.try_wait().context(|| "wait for perf".to_owned())?.is_none() {
        let run = fleet.run(SLICE)?;
        queries += run.completed;
        seconds += run.elapsed.as_secs_f64();
    }
    let output = child.wait_with_output().context(|| "wait for perf".to_owned())?;
    if output.status.success() {
        return Ok((output, queries as f64 / seconds));
    }
    let (status, log_tail) = (output.status.to_string(), String::from_utf8_lossy(&output.stderr).into_owned());
    Err(LabError::Exited { name: "perf".to_owned(), status, log_tail })
}
