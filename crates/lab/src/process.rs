//! One child process: its log, its signals, its end.
//!
//! INVARIANT: a child never outlives this process, however this process ends. It is killed on drop. It is started through `setpriv
//! --pdeathsig KILL`, so the kernel kills it when the starting thread dies. That thread lives as long as the process does, so a server that
//! a test keeps in a `static` is not killed with that test's thread.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{IoContext, LabError};
use crate::wait;

/// How long the threads of a process may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Lines of a log shown in an error.
const TAIL_LINES: usize = 25;

/// A running child, or the process that has taken its place. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Mutex<Child>,
    /// The child, or the process that has taken its place.
    pid: Pid,
    /// Whether it is the process that took over.
    is_heir: bool,
}

impl Process {
    /// Starts `command` with standard output and error going to the end of the file `log`.
    pub fn start(name: &str, command: &Command, log: &Path) -> Result<Process, LabError> {
        let sink = File::options().create(true).append(true).open(log).context(|| format!("open {}", log.display()))?;
        let errors = sink.try_clone().context(|| format!("open {}", log.display()))?;
        let mut guarded = guarded(command);
        guarded.stdin(Stdio::null()).stdout(sink).stderr(errors);
        let child = spawn_from_lasting_thread(guarded).context(|| format!("start {name}"))?;
        let pid = Pid::from_child(&child);
        Ok(Process { name: name.to_owned(), log: log.to_owned(), child: Mutex::new(child), pid, is_heir: false })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The process `pid` takes this one's place: waits for the child's end. The heir is of the child's process group.
    pub fn follow(&mut self, pid: u32, limit: Duration) -> Result<ExitStatus, LabError> {
        let status = self.wait_exit(limit)?;
        let heir = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(heir) = heir else { return Err(self.exited(status)) };
        (self.pid, self.is_heir) = (heir, true);
        Ok(status)
    }

    fn has_heir_ended(&self) -> bool {
        !is_there(self.pid())
    }

    /// Sends a signal; does nothing when the child has ended.
    pub fn signal(&self, signal: Signal) {
        if self.is_heir {
            if !self.has_heir_ended() {
                let _ = kill_process(self.pid, signal);
            }
            return;
        }
        let mut child = self.child();
        // While the lock is held and the child not reaped, the id cannot belong to anyone else.
        if matches!(child.try_wait(), Ok(None)) {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Stops it by a signal, and waits until each of its threads has stopped: a busy machine lets them run on for a while.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let _ = wait::until("the threads to stop", STOP_LIMIT, || self.threads().iter().all(|state| *state == 'T').then_some(()));
    }

    /// The state of each thread, as in proc_pid_stat(5).
    fn threads(&self) -> Vec<char> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
        stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next()).collect()
    }

    /// Kills the child at once (`SIGKILL`, also when it is stopped) and reaps it.
    pub fn kill9(&self) {
        if self.is_heir {
            self.signal(Signal::KILL);
            let _ = wait::until("the heir to end", STOP_LIMIT, || self.has_heir_ended().then_some(()));
            return;
        }
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// How the child ended; `None` while it runs.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        if self.is_heir {
            // Its parent alone is told how it ended.
            return self.has_heir_ended().then(|| ExitStatus::from_raw(0));
        }
        self.child().try_wait().ok().flatten()
    }

    /// Waits for the end.
    pub fn wait_exit(&self, limit: Duration) -> Result<ExitStatus, LabError> {
        wait::until(&format!("{} to end", self.name), limit, || self.exit_status()).map_err(|e| self.with_log(e))
    }

    /// Asks for an orderly end (`SIGTERM`), waits for it, and demands exit code 0.
    pub fn stop(&self, limit: Duration) -> Result<(), LabError> {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let status = self.wait_exit(limit)?;
        if status.success() { Ok(()) } else { Err(self.exited(status)) }
    }

    /// Waits until `ready` gives a value; fails at once when the child ends before.
    pub fn wait_ready<T>(&self, limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Result<T, LabError> {
        let what = format!("{} to be ready", self.name);
        let waited = wait::try_until(&what, limit, || match ready() {
            Some(value) => Ok(Some(value)),
            None => self.exit_status().map_or(Ok(None), |status| Err(self.exited(status))),
        });
        waited.map_err(|e| self.with_log(e))
    }

    /// All that the child has written so far.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The child's output since byte `offset` of its log, and the offset for the next call.
    pub fn log_since(&self, offset: u64) -> (String, u64) {
        let mut bytes = Vec::new();
        let read = File::open(&self.log).and_then(|mut file| file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_to_end(&mut bytes)));
        let gained = read.map_or(0, |count| count as u64);
        (String::from_utf8_lossy(&bytes).into_owned(), offset + gained)
    }

    /// Resident memory in bytes, from `/proc/<pid>/status`.
    pub fn rss_bytes(&self) -> Result<u64, LabError> {
        let text = self.proc_file("status")?;
        let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).and_then(|v| v.split_whitespace().next());
        Ok(kib.and_then(|v| v.parse::<u64>().ok()).unwrap_or(0) * 1024)
    }

    /// User plus system time used so far, in clock ticks (100 a second on Linux), from `/proc/<pid>/stat`.
    pub fn cpu_ticks(&self) -> Result<u64, LabError> {
        let text = self.proc_file("stat")?;
        // Fields 14 and 15 of proc(5); the second field may hold spaces, so count from behind its closing bracket.
        let after = text.rsplit(')').next().unwrap_or_default();
        Ok(after.split_whitespace().skip(11).take(2).filter_map(|v| v.parse::<u64>().ok()).sum())
    }

    fn proc_file(&self, file: &str) -> Result<String, LabError> {
        let path = format!("/proc/{}/{file}", self.pid());
        fs::read_to_string(&path).context(|| format!("read {path}"))
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exited(&self, status: ExitStatus) -> LabError {
        let status = match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => status.to_string(),
        };
        LabError::Exited { name: self.name.clone(), status, log_tail: tail(&self.log()) }
    }

    fn with_log(&self, error: LabError) -> LabError {
        match error {
            LabError::Deadline { what, limit, .. } => LabError::Deadline { what, limit, detail: format!("\n{}", tail(&self.log())) },
            other => other,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Whether a process still runs. A process that was not yet reaped has ended once all its threads have: the last one closes its files.
pub fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count());
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') || threads() > 1)
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// The same command, with a parent-death signal.
fn guarded(command: &Command) -> Command {
    let mut guarded = Command::new("setpriv");
    guarded.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    // A group of its own: Ctrl-C on the terminal is for this program, which then stops its children in order.
    guarded.process_group(0);
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => guarded.env(key, value),
            None => guarded.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        guarded.current_dir(dir);
    }
    guarded
}

/// A command to start and where to put the child.
type Job = (Command, Sender<io::Result<Child>>);

/// The parent-death signal fires when the *thread* that started the child ends; this one never does.
fn spawn_from_lasting_thread(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Sender<Job>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        thread::spawn(move || {
            for (mut command, answer) in jobs {
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (answer, result) = channel();
    let gone = || io::Error::other("the thread that starts processes is gone");
    starter.send((command, answer)).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirs;

    fn start(script: &str) -> Process {
        let log = dirs::instance("process").unwrap().join("log");
        Process::start("child", Command::new("sh").args(["-c", script]), &log).unwrap()
    }

    #[test]
    fn an_early_end_is_told_with_its_log() {
        let child = start("echo no such luck; exit 3");
        let error = child.wait_ready(Duration::from_secs(10), || None::<()>).unwrap_err().to_string();
        assert!(error.contains("no such luck") && error.contains('3'), "{error}");
    }

    #[test]
    fn stop_wants_exit_code_zero() {
        let good = start("trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done");
        good.wait_ready(Duration::from_secs(10), || good.log().contains("up").then_some(())).unwrap();
        good.stop(Duration::from_secs(10)).unwrap();
        let bad = start("sleep 1000");
        assert!(bad.rss_bytes().unwrap() > 0);
        assert!(bad.stop(Duration::from_secs(10)).is_err());
    }

    #[test]
    fn drop_kills_even_a_stopped_child() {
        let child = start("exec sleep 1000");
        let path = format!("/proc/{}", child.pid());
        child.signal(Signal::STOP);
        drop(child);
        assert!(!Path::new(&path).exists());
    }
}
