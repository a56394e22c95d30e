//! Data directories that are initialised once and copied for each server.
//!
//! Initialising takes a second (MariaDB) to several (MySQL); a copy takes milliseconds. A template's name holds a hash of all its inputs,
//! so a new server version or a changed list of users makes a new one. By a lock file, parallel test processes wait for the first instead
//! of doing the same work. The rename at the end makes it all or nothing.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use rustix::process::Signal;

use crate::dirs;
use crate::error::{IoContext, LabError};
use crate::flavor::{Flavor, Installation, flag};
use crate::galera;
use crate::process::Process;

/// Initialising MySQL on a busy machine with two cores has taken 20 s.
const INITIALIZE_LIMIT: Duration = Duration::from_secs(180);
/// For the one start that creates users, and for the stop after it.
const FIRST_START_LIMIT: Duration = Duration::from_secs(120);

/// Which prepared data directory a server starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seed {
    /// Users and nothing else.
    #[default]
    Plain,
    /// As plain, and a position in a Galera cluster: servers that start from copies of it need no full state transfer.
    Galera,
    /// As that, in another cluster.
    GaleraElsewhere,
}

impl Seed {
    fn suffix(self) -> &'static str {
        match self {
            Seed::Plain => "",
            Seed::Galera => "-galera",
            Seed::GaleraElsewhere => "-galera-elsewhere",
        }
    }
}

/// Copies the template of `installation` to `datadir`, which must not exist, making the template first if needed.
pub(crate) fn copy_to(installation: &Installation, seed: Seed, datadir: &Path) -> Result<(), LabError> {
    copy(&ready(installation, seed)?, datadir)?;
    // Equal server UUIDs would make MySQL refuse to replicate between copies.
    let _ = fs::remove_file(datadir.join("auto.cnf"));
    Ok(())
}

/// Copies a data directory to `to`, which must not exist; no server may use it meanwhile.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    let mut copy = Command::new("cp");
    copy.args(["-a", "--sparse=always"]).arg(from).arg(to);
    run_to_end("cp", &copy, &to.with_extension("cp.log"), FIRST_START_LIMIT)
}

/// The template's path; it is complete when this returns.
fn ready(installation: &Installation, seed: Seed) -> Result<PathBuf, LabError> {
    let plain = match seed {
        Seed::Plain => None,
        Seed::Galera | Seed::GaleraElsewhere => Some(ready(installation, Seed::Plain)?),
    };
    let dir = dirs::base().join("templates");
    fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
    let users = users_sql(installation.flavor);
    let name = format!("{}{}-{:016x}", installation.flavor.name(), seed.suffix(), fingerprint(installation, users));
    let template = dir.join(&name);
    let _guard = dirs::lock(&dir.join(format!("{name}.lock")))?;
    if !template.exists() {
        let unfinished = dir.join(format!("{name}.new"));
        let _ = fs::remove_dir_all(&unfinished);
        match plain {
            None => make(installation, users, &unfinished)?,
            Some(plain) => {
                copy(&plain, &unfinished)?;
                galera::found_cluster(installation, &unfinished)?;
            }
        }
        fs::rename(&unfinished, &template).context(|| format!("rename to {}", template.display()))?;
    }
    Ok(template)
}

fn make(installation: &Installation, users: &str, datadir: &Path) -> Result<(), LabError> {
    let log = datadir.with_extension("log");
    let name = format!("{} (template)", installation.flavor.name());
    fs::create_dir_all(datadir).context(|| format!("create {}", datadir.display()))?;
    run_to_end(&name, &installation.initialize_command(datadir), &log, INITIALIZE_LIMIT)?;
    let script = datadir.with_extension("sql");
    fs::write(&script, users).context(|| format!("write {}", script.display()))?;
    create_users(&name, installation, datadir, &script, &log)
}

/// Starts the server once with the users as its init file, and stops it in good order, so copies start without recovery.
fn create_users(name: &str, installation: &Installation, datadir: &Path, script: &Path, log: &Path) -> Result<(), LabError> {
    let socket = datadir.with_extension("sock");
    let mut command = installation.server_command(datadir);
    command.arg(flag("--init-file", script)).arg(flag("--socket", &socket)).arg("--skip-networking");
    if installation.flavor == Flavor::Mysql {
        command.arg("--skip-log-bin");
    }
    let server = Process::start(name, &command, log)?;
    // The init file is executed before the first connection is answered with a greeting.
    server.wait_ready(FIRST_START_LIMIT, || crate::server::greets(&socket))?;
    server.signal(Signal::TERM);
    let status = server.wait_exit(FIRST_START_LIMIT)?;
    if !status.success() || server.log().contains("[ERROR]") {
        let (status, log_tail) = (status.to_string(), server.log());
        return Err(LabError::Exited { name: name.to_owned(), status, log_tail });
    }
    Ok(())
}

fn run_to_end(name: &str, command: &Command, log: &Path, limit: Duration) -> Result<(), LabError> {
    let process = Process::start(name, command, log)?;
    let status = process.wait_exit(limit)?;
    if status.success() {
        return Ok(());
    }
    Err(LabError::Exited { name: name.to_owned(), status: status.to_string(), log_tail: process.log() })
}

/// Changes when the server program, its flags or the users change.
fn fingerprint(installation: &Installation, users: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    users.hash(&mut hasher);
    let command = installation.initialize_command(Path::new("datadir"));
    command.get_args().for_each(|arg| arg.hash(&mut hasher));
    installation.server.hash(&mut hasher);
    let changed = fs::metadata(&installation.server).and_then(|meta| meta.modified()).ok();
    changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|age| age.as_secs()).hash(&mut hasher);
    hasher.finish()
}

/// One statement a line: that is how servers read an init file.
fn users_sql(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Mariadb => include_str!("users-mariadb.sql"),
        Flavor::Mysql => include_str!("users-mysql.sql"),
    }
}
