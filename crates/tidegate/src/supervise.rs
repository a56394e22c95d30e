//! `--supervise`: a small parent of the process that serves. It stays when that is upgraded, where the first process must stay: in a
//! container, or under a supervisor that knows one process id.
//!
//! It passes signals on, follows the process that takes over, and ends as the last one ended.

use crate::cli::{Cli, program_name};
use crate::process::program;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use tokio::signal::unix::{SignalKind, signal};

/// The signals passed to the process that serves.
const PASSED: [Signal; 5] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1, Signal::USR2];

/// Starts the process that serves, and stays until it, or the last one that took over, has ended. The answer is how that ended.
///
/// # Errors
/// It could not be started.
pub(crate) fn supervise(cli: &Cli, datadir: &Path) -> Result<ExitCode> {
    // Orphaned descendants become children of this process. Processes that take over do, too.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("a parent of processes that take over")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut ended = signal(SignalKind::child())?;
        let mut passed = Vec::new();
        for one in PASSED {
            passed.push((one, signal(SignalKind::from_raw(one.as_raw()))?));
        }
        let mut command = Command::new(program()?);
        let child = command.arg0(program_name()).args(cli.arguments()).spawn().context("the process that serves")?;
        let mut serves = Pid::from_child(&child);
        loop {
            let next = async {
                let waits = passed.iter_mut().map(|(one, stream)| {
                    Box::pin(async move {
                        stream.recv().await;
                        *one
                    })
                });
                first(waits.collect()).await
            };
            tokio::select! {
                one = next => {
                    // It may have ended just now.
                    let _ = rustix::process::kill_process(serves, one);
                }
                _ = ended.recv() => {
                    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                        if pid != serves {
                            continue;
                        }
                        match heir(datadir, pid) {
                            Some(heir) => serves = heir,
                            None => return Ok(code(status)),
                        }
                    }
                }
            }
        }
    })
}

/// The first of these that ends.
async fn first<T, F: Future<Output = T> + Unpin>(mut of: Vec<F>) -> T {
    std::future::poll_fn(|cx| {
        let done = of.iter_mut().find_map(|one| match std::pin::Pin::new(one).poll(cx) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        });
        done.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await
}

/// The process that has taken the ended one's place: it has signed the data directory, and is there.
fn heir(datadir: &Path, ended: Pid) -> Option<Pid> {
    let user = ::admin::user_of(datadir).ok()?;
    let heir = Pid::from_raw(i32::try_from(user).ok()?).filter(|heir| *heir != ended)?;
    rustix::process::test_kill_process(heir).is_ok().then_some(heir)
}

/// As a shell tells how a process ended.
fn code(status: WaitStatus) -> ExitCode {
    let signal = || status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or_else(signal).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
