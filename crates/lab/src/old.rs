//! Servers from before session tracking, as `scripts/setup old-servers` unpacked them: MySQL 5.5.9 and MariaDB 10.1.23, and MariaDB
//! 10.2.11, one of the first that track. Killed when dropped.
//!
//! Users: `root` without a password (socket), `app`/`app-pass` and `monitor`/`monitor` with all rights.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::client::{Client, ConnectOptions};
use crate::dirs;
use crate::error::{IoContext, LabError};
use crate::flavor::flag;
use crate::port::Port;
use crate::process::Process;

/// A start takes a second; the limit is for a loaded machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old {
    /// MySQL 5.5.9: no session tracking.
    Mysql55,
    /// MariaDB 10.1.23: no session tracking.
    Mariadb101,
    /// MariaDB 10.2.11: session tracking.
    Mariadb102,
}

impl Old {
    /// Its directory in the cache.
    fn name(self) -> &'static str {
        match self {
            Self::Mysql55 => "mysql-5.5",
            Self::Mariadb101 => "mariadb-10.1",
            Self::Mariadb102 => "mariadb-10.2",
        }
    }

    /// The directory of the unpacked server; None if it is missing.
    pub fn root(self) -> Option<PathBuf> {
        let usual = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/tidegate");
        let cache = env::var_os("TIDEGATE_CACHE").map_or_else(usual, PathBuf::from);
        Some(cache.join(self.name()).join("root")).filter(|root| root.join("bin/mysqld").exists())
    }
}

/// A running one.
#[derive(Debug)]
pub struct OldServer {
    port: Port,
    process: Process,
    dir: PathBuf,
}

impl OldServer {
    /// Starts one with an empty database `test`, and waits until it answers.
    ///
    /// # Errors
    /// It is not unpacked, or does not start.
    pub fn start(which: Old) -> Result<OldServer, LabError> {
        let program = format!("{} of Maven", which.name());
        let root = which.root().ok_or(LabError::Missing { program, remedy: "scripts/setup old-servers" })?;
        let (dir, port) = (dirs::instance(which.name())?, Port::reserve()?);
        let (data, socket) = (dir.join("data"), dir.join("sock"));
        let root_user = rustix::process::getuid().is_root().then_some("--user=root");
        let libraries = root.join("libs");
        match which {
            Old::Mysql55 => copy(&root.join("data"), &data)?,
            Old::Mariadb101 | Old::Mariadb102 => {
                let script = ["scripts/mysql_install_db", "bin/mysql_install_db"].map(|path| root.join(path));
                let script = script.iter().find(|path| path.exists()).unwrap_or(&script[0]);
                let mut install = Command::new(script);
                install.arg("--no-defaults").arg(flag("--basedir", &root)).arg(flag("--datadir", &data));
                install.args(["--force", "--skip-name-resolve"]).args(root_user).env("LD_LIBRARY_PATH", &libraries);
                fs::create_dir_all(&data).context(|| format!("create {}", data.display()))?;
                install.output().context(|| format!("run {}", script.display()))?;
            }
        }
        let mut command = Command::new(root.join("bin/mysqld"));
        command.arg("--no-defaults").args(root_user).arg("--skip-name-resolve").env("LD_LIBRARY_PATH", &libraries).current_dir("/");
        for (name, path) in [
            ("--basedir", &root),
            ("--datadir", &data),
            ("--lc-messages-dir", &root.join("share")),
            ("--character-sets-dir", &root.join("share/charsets")),
            ("--socket", &socket),
            ("--pid-file", &dir.join("pid")),
        ] {
            command.arg(flag(name, path));
        }
        command.args([&format!("--port={}", port.number()), "--bind-address=127.0.0.1", "--log-bin=bin", "--server-id=1"]);
        command.args(["--log-bin-trust-function-creators=1", "--innodb-use-native-aio=0", "--innodb-buffer-pool-size=16M"]);
        let process = Process::start(which.name(), &command, &dir.join("log"))?;
        let options = ConnectOptions::unix(&socket, "root", "");
        let mut client = process.wait_ready(START_LIMIT, || Client::connect(&options).ok())?;
        for sql in [
            "DELETE FROM mysql.user WHERE user=''",
            "FLUSH PRIVILEGES",
            "CREATE DATABASE IF NOT EXISTS test",
            "CREATE USER app@'%' IDENTIFIED BY 'app-pass'",
            "GRANT ALL ON *.* TO app@'%'",
            "CREATE USER monitor@'%' IDENTIFIED BY 'monitor'",
            "GRANT ALL ON *.* TO monitor@'%'",
        ] {
            client.run(sql)?;
        }
        Ok(OldServer { port, process, dir })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

impl Drop for OldServer {
    fn drop(&mut self) {
        self.process.kill9();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    let what = || format!("copy {} to {}", from.display(), to.display());
    fs::create_dir_all(to).context(what)?;
    for entry in fs::read_dir(from).context(what)?.flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).context(what)?;
        }
    }
    Ok(())
}
