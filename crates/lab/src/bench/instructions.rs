//! Instructions of a query, counted by valgrind: a figure that does not depend on the machine's speed or on what else runs there.
//!
//! One worker serves a fixed sequence of statements. All clients send one statement each, and the next round begins when all have
//! their replies. Only the worker's thread is counted, and the best of a few windows: what timers do in a window depends on how long it
//! takes. The kernel's part is not counted: neither system calls nor wake-ups.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::connection::{Connection, Progress};
use super::peer::Peer;
use super::work::Work;
use crate::dirs;
use crate::error::{IoContext, LabError};
use crate::server::Server;

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name in the table and in the kept figures.
    pub name: &'static str,
    work: fn() -> Work,
    clients: usize,
    /// Connections to the server.
    backends: i64,
}

/// One client; clients that always have a connection; clients of which most wait for one.
pub const CASES: [Case; 5] = [
    Case { name: "text, 1 client", work: || Work::PointText, clients: 1, backends: 1 },
    Case { name: "text, 64 clients", work: || Work::PointText, clients: 64, backends: 64 },
    Case { name: "text, 64 clients wait", work: || Work::PointText, clients: 64, backends: 8 },
    Case { name: "prepared, 1 client", work: || Work::PointPrepared, clients: 1, backends: 1 },
    Case { name: "prepared, 64 clients wait", work: || Work::PointPrepared, clients: 64, backends: 8 },
];

/// Statements before counting begins: shapes are known, connections open, buffers have their size.
const WARM: usize = 2_000;
/// Statements of a window, in whole rounds of the largest case.
const COUNTED: usize = 1_920;
const WINDOWS: usize = 4;
/// If a round of replies takes longer, the case fails.
const ROUND_LIMIT: Duration = Duration::from_secs(60);

/// Instructions of the proxy's process for each statement of `case`. `program` is the proxy.
///
/// # Errors
/// The proxy does not start under valgrind, a reply is wrong or late, or valgrind writes no figure.
pub fn count(program: &Path, server: &Server, case: &Case) -> Result<u64, LabError> {
    let dir = dirs::instance("instructions")?;
    let wrapped = wrapper(&dir, program)?;
    let peer = Peer::tidegate(server, |builder| builder.program(wrapped).variable("threads", 1).variable("monitor_enabled", false))?;
    let proxy = peer.as_tidegate().ok_or_else(|| LabError::Protocol("this measures Tidegate".to_owned()))?;
    let mut admin = proxy.admin()?;
    admin.run(format!("UPDATE mysql_servers SET max_connections={}", case.backends))?;
    admin.run("LOAD MYSQL SERVERS TO RUNTIME")?;
    let work = (case.work)();
    let mut clients = Clients::open(&peer, &work, case.clients)?;
    vgdb(proxy.pid(), "instrumentation on")?;
    clients.statements(WARM)?;
    let mut least = u64::MAX;
    for window in 1..=WINDOWS {
        vgdb(proxy.pid(), "zero")?;
        clients.statements(COUNTED)?;
        vgdb(proxy.pid(), "dump")?;
        least = least.min(busiest(&dir, window)? / COUNTED as u64);
    }
    Ok(least)
}

/// A program that starts the proxy under valgrind with the same arguments. Counting is off until it is asked for.
fn wrapper(dir: &Path, program: &Path) -> Result<PathBuf, LabError> {
    let path = dir.join("counted");
    let out = dir.join("callgrind");
    let text = format!(
        "#!/bin/sh\nexec valgrind --tool=callgrind --separate-threads=yes --instr-atstart=no --callgrind-out-file={} -q {} \"$@\"\n",
        out.display(),
        program.display()
    );
    fs::write(&path, text).context(|| format!("write {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context(|| format!("make {} executable", path.display()))?;
    Ok(path)
}

/// Gives a command to callgrind in a running process.
fn vgdb(pid: u32, command: &str) -> Result<(), LabError> {
    let pid = format!("--pid={pid}");
    let output = Command::new("vgdb").arg(pid).args(command.split(' ')).output().context(|| "run vgdb".to_owned())?;
    if !output.status.success() {
        return Err(LabError::Protocol(format!("vgdb {command}: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(())
}

/// Instructions of the thread that had most of them in this dump.
fn busiest(dir: &Path, dump: usize) -> Result<u64, LabError> {
    let prefix = format!("callgrind.{dump}-");
    let mut most = None;
    for entry in fs::read_dir(dir).context(|| format!("list {}", dir.display()))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let path = entry.path();
            let text = fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
            let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
            most = most.max(total);
        }
    }
    most.ok_or_else(|| LabError::Protocol(format!("callgrind wrote no totals of dump {dump}")))
}

/// Clients that all ask, then all wait.
struct Clients {
    work: Work,
    all: Vec<Connection>,
    buffer: Vec<u8>,
}

impl Clients {
    fn open(peer: &Peer, work: &Work, count: usize) -> Result<Clients, LabError> {
        let mut clients = Clients { work: work.clone(), all: Vec::new(), buffer: vec![0; 64 * 1024] };
        for index in 0..count {
            clients.all.push(Connection::open(peer.address(), work, index)?);
            clients.wait()?;
        }
        Ok(clients)
    }

    /// At least `count` statements, in whole rounds.
    fn statements(&mut self, count: usize) -> Result<(), LabError> {
        for _ in 0..count.div_ceil(self.all.len()) {
            for client in &mut self.all {
                client.send(Instant::now())?;
            }
            self.wait()?;
        }
        Ok(())
    }

    /// Until all are idle.
    fn wait(&mut self) -> Result<(), LabError> {
        let end = Instant::now() + ROUND_LIMIT;
        loop {
            let mut busy = 0;
            for (index, client) in self.all.iter_mut().enumerate().filter(|(_, client)| !client.is_idle()) {
                if client.on_readable(&mut self.buffer, &self.work, index)? == Progress::Waiting {
                    busy += 1;
                }
            }
            if busy == 0 {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(LabError::Protocol(format!("{busy} clients have no reply after {} s", ROUND_LIMIT.as_secs())));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
