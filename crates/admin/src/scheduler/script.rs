//! Runs one script, for the scheduler's rows and for the REST routes.
//!
//! A script is a program with an absolute path: no shell, no search. Its environment is `PATH`, and what healing tells its programs; it has no standard input. It has a
//! process group of its own, so that its children end with it. To stop it (at a time limit or at the shutdown) it gets SIGTERM, and SIGKILL
//! after [`GRACE`].
//!
//! INVARIANT: only processes that were started here are signalled, and never after they were reaped.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::capture::{Capture, Keep};

/// Between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(3);
/// The directories of programs that a script calls.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long output is read after the script ended: its children may hold the pipes open.
const LAST_OUTPUT: Duration = Duration::from_millis(200);
/// The exit code that shells give for what could not be started.
const NOT_STARTED: i32 = 127;
/// Added to the number of the signal that ended a process, as shells do.
const BY_SIGNAL: i32 = 128;

/// A program to run, with its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The program's absolute path.
    pub program: String,
    /// Passed as they are: no shell reads them.
    pub args: Vec<String>,
    /// Its environment beside `PATH`.
    pub environment: Vec<(&'static str, String)>,
    /// How long it may run; `None` is as long as it likes.
    pub limit: Option<Duration>,
    /// How much of each output is kept, bytes.
    pub max_output: usize,
    /// The part that is kept beyond that.
    pub keep: Keep,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It ended by itself or by a signal from outside; the code as shells give it.
    Exited(i32),
    /// It ran too long and was ended.
    TimedOut,
    /// The shutdown ended it.
    Stopped,
    /// It did not start.
    NotStarted {
        /// The reason, with the program's path.
        why: String,
        /// The system's number of the error; None if the system was not asked.
        errno: Option<i32>,
    },
}

impl Ended {
    /// A code as shells give it; 0 is success.
    pub fn code(&self) -> i32 {
        match self {
            Self::Exited(code) => *code,
            Self::TimedOut | Self::Stopped => BY_SIGNAL + Signal::TERM.as_raw(),
            Self::NotStarted { .. } => NOT_STARTED,
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// By itself, by a limit, or not started.
    pub ended: Ended,
    /// Standard output.
    pub stdout: Capture,
    /// Standard error.
    pub stderr: Capture,
    /// From the start to the end of its output.
    pub took: Duration,
}

/// Set once, before anybody logs in: no administrator can take it back.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// From now on this process runs no script.
pub fn forbid() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

/// Whether [`forbid`] was called.
pub fn is_forbidden() -> bool {
    FORBIDDEN.load(Ordering::Relaxed)
}

/// Runs a script to its end. `stop` becoming true (or its sender going away) ends it.
pub async fn run(script: &Script, stop: &mut watch::Receiver<bool>) -> Run {
    let begun = Instant::now();
    let capture = || Capture::new(script.keep, script.max_output);
    let (mut stdout, mut stderr) = (capture(), capture());
    let ended = match start(script) {
        Ok(child) => supervise(child, script.limit, stop, (&mut stdout, &mut stderr)).await,
        Err(e) => Ended::NotStarted { why: format!("{}: {e}", script.program), errno: e.raw_os_error() },
    };
    Run { ended, stdout, stderr, took: begun.elapsed() }
}

fn start(script: &Script) -> io::Result<Child> {
    if FORBIDDEN.load(Ordering::Relaxed) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "scripts are forbidden (--no-scripts)"));
    }
    if !script.program.starts_with('/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "give an absolute path"));
    }
    Command::new(&script.program)
        .args(&script.args)
        .env_clear()
        .env("PATH", PATH)
        .envs(script.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn supervise(
    mut child: Child,
    limit: Option<Duration>,
    stop: &mut watch::Receiver<bool>,
    (stdout, stderr): (&mut Capture, &mut Capture),
) -> Ended {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reading = async { tokio::join!(read(out, stdout), read(err, stderr)) };
    tokio::pin!(reading);
    let mut has_read = false;
    let ending = end(&mut child, limit, stop);
    tokio::pin!(ending);
    loop {
        tokio::select! {
            ended = &mut ending => {
                if !has_read {
                    let _ = timeout(LAST_OUTPUT, reading).await;
                }
                return ended;
            }
            _ = &mut reading, if !has_read => has_read = true,
        }
    }
}

/// Waits for the end, or brings it about.
async fn end(child: &mut Child, limit: Option<Duration>, stop: &mut watch::Receiver<bool>) -> Ended {
    let too_long = async {
        match limit {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let why = tokio::select! {
        biased;
        status = child.wait() => return Ended::Exited(code(status)),
        () = too_long => Ended::TimedOut,
        _ = stop.wait_for(|stop| *stop) => Ended::Stopped,
    };
    // A reaped script has no id any more, while its children may go on in its group.
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    signal(group, Signal::TERM);
    let is_over = timeout(GRACE, child.wait()).await.is_ok();
    signal(group, Signal::KILL);
    if !is_over {
        let _ = child.wait().await;
    }
    why
}

/// Signals the script and its children.
fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
}

fn code(status: io::Result<ExitStatus>) -> i32 {
    let Ok(status) = status else { return NOT_STARTED };
    status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal)).unwrap_or(NOT_STARTED)
}

async fn read(pipe: Option<impl AsyncRead + Unpin>, capture: &mut Capture) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; 8 << 10];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        capture.push(buffer.get(..n).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str, limit_ms: Option<u64>) -> Script {
        let limit = limit_ms.map(Duration::from_millis);
        Script {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), text.into()],
            environment: Vec::new(),
            limit,
            max_output: 100,
            keep: Keep::Head,
        }
    }

    fn run_now(script: &Script) -> Run {
        let (_keep, mut stop) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(script, &mut stop))
    }

    #[test]
    fn output_code_and_environment() {
        let run = run_now(&shell("echo out; echo err >&2; exit 3", None));
        assert_eq!((run.ended, run.stdout.text(), run.stderr.text()), (Ended::Exited(3), "out\n".into(), "err\n".into()));
        let run = run_now(&Script { program: "/usr/bin/env".into(), args: Vec::new(), ..shell("", None) });
        assert_eq!(run.stdout.text(), format!("PATH={PATH}\n"));
        assert_eq!(run_now(&shell("kill -9 $$", None)).ended, Ended::Exited(137));
    }

    #[test]
    fn what_cannot_be_started() {
        for program in ["sh", "/does/not/exist"] {
            let run = run_now(&Script { program: program.into(), ..shell("", None) });
            assert!(matches!(run.ended, Ended::NotStarted { .. }) && run.ended.code() == 127);
        }
    }

    #[test]
    fn output_is_bounded() {
        let run = run_now(&shell("i=0; while [ $i -lt 1000 ]; do echo 0123456789; i=$((i+1)); done", None));
        assert_eq!((run.ended, run.stdout.text().len(), run.stdout.is_cut()), (Ended::Exited(0), 100, true));
    }

    #[test]
    fn a_limit_ends_the_script_and_what_it_started() {
        let run = run_now(&shell("sleep 1000 & echo $!; wait", Some(300)));
        assert_eq!(run.ended, Ended::TimedOut);
        let child = run.stdout.text().trim().to_owned();
        let deadline = Instant::now() + Duration::from_secs(10);
        let is_alive = || std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while is_alive() {
            assert!(Instant::now() < deadline, "the sleep goes on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_ignores_the_request_is_killed() {
        let run = run_now(&shell("trap '' TERM; while :; do sleep 1; done", Some(100)));
        assert_eq!(run.ended, Ended::TimedOut);
        assert!(run.took >= GRACE);
    }

    #[test]
    fn a_left_over_with_the_pipes_holds_up_nobody() {
        let run = run_now(&shell("sleep 5 & echo done", None));
        assert_eq!((run.ended, run.stdout.text()), (Ended::Exited(0), "done\n".into()));
        assert!(run.took < Duration::from_secs(4));
    }
}
