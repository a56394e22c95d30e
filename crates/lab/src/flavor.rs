//! The two kinds of database server the lab can run: where their programs are, how they are called.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::LabError;

/// Which product a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// MariaDB, as installed on this machine (`TIDEGATE_MARIADB_ROOT` names a tree that `scripts/setup mariadb-10.5` and its
    /// like unpacked, `TIDEGATE_MARIADBD` another `mariadbd`).
    Mariadb,
    /// Oracle's MySQL, unpacked by `scripts/setup mysql` and run with the loader that came with it
    /// (`TIDEGATE_MYSQL_ROOT` names another root).
    Mysql,
}

impl Flavor {
    /// Lower-case name, used for directories and messages.
    pub fn name(self) -> &'static str {
        match self {
            Flavor::Mariadb => "mariadb",
            Flavor::Mysql => "mysql",
        }
    }

    /// Flags that keep a throw-away server small and quick to start. Durability is of no interest here.
    fn small_flags(self) -> &'static [&'static str] {
        match self {
            Flavor::Mariadb => MARIADB_SMALL,
            Flavor::Mysql => MYSQL_SMALL,
        }
    }
}

const MARIADB_SMALL: &[&str] = &[
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=4M",
    "--innodb-log-buffer-size=2M",
    "--innodb-data-file-path=ibdata1:4M:autoextend",
    "--innodb-temp-data-file-path=ibtmp1:2M:autoextend",
    "--innodb-autoextend-increment=1",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-use-native-aio=0",
    "--innodb-read-io-threads=1",
    "--innodb-write-io-threads=1",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--innodb-buffer-pool-load-at-startup=0",
    "--aria-pagecache-buffer-size=1M",
    "--key-buffer-size=1M",
    "--table-definition-cache=400",
    "--max-connections=1000",
    "--plugin-maturity=gamma",
];

const MYSQL_SMALL: &[&str] = &[
    "--performance-schema=OFF",
    "--mysqlx=OFF",
    "--innodb-buffer-pool-size=24M",
    "--innodb-redo-log-capacity=8M",
    "--innodb-log-buffer-size=2M",
    "--innodb-autoextend-increment=1",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    "--innodb-use-native-aio=0",
    "--innodb-read-io-threads=1",
    "--innodb-write-io-threads=1",
    "--innodb-page-cleaners=1",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--innodb-buffer-pool-load-at-startup=0",
    "--temptable-max-ram=2M",
    "--key-buffer-size=1M",
    "--table-definition-cache=400",
    "--max-connections=1000",
    "--secure-file-priv=",
];

/// The programs of one flavor on this machine.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Which product.
    pub flavor: Flavor,
    /// The server program.
    pub server: PathBuf,
    /// `--basedir`: the `usr` that holds messages, character sets and `lib/mysql/plugin`.
    basedir: PathBuf,
    /// Directory of the foreign loader and libraries; `None` for a program of this machine's own release.
    libraries: Option<PathBuf>,
}

impl Installation {
    /// Finds the flavor's programs, or says how to get them.
    pub fn find(flavor: Flavor) -> Result<Installation, LabError> {
        match flavor {
            Flavor::Mariadb => find_mariadb(),
            Flavor::Mysql => find_mysql(),
        }
    }

    /// A MariaDB that `scripts/setup mariadb-VERSION` unpacked, whichever the others of this process are.
    pub fn unpacked_mariadb(version: &str) -> Result<Installation, LabError> {
        mariadb_in(&cache().join(format!("mariadb-{version}/root")))
    }

    /// The server's command line up to its data directory: program, base paths and small flags.
    pub fn server_command(&self, datadir: &Path) -> Command {
        let mut command = self.bare_server_command(datadir);
        command.args(self.flavor.small_flags());
        command
    }

    /// The flavor's command line client, without the options of any file.
    pub fn client_command(&self) -> Command {
        let name = match self.flavor {
            Flavor::Mariadb => "bin/mariadb",
            Flavor::Mysql => "bin/mysql",
        };
        let mut command = self.launch(&self.basedir.join(name));
        command.arg("--no-defaults");
        command
    }

    /// The flavor's program that shows binary logs, without the options of any file.
    pub fn binlog_command(&self) -> Command {
        let name = match self.flavor {
            Flavor::Mariadb => "bin/mariadb-binlog",
            Flavor::Mysql => "bin/mysqlbinlog",
        };
        let mut command = self.launch(&self.basedir.join(name));
        command.arg("--no-defaults");
        command
    }

    /// The command that fills an empty data directory.
    pub fn initialize_command(&self, datadir: &Path) -> Command {
        match self.flavor {
            Flavor::Mariadb => self.mariadb_install_db(datadir),
            Flavor::Mysql => {
                let mut command = self.server_command(datadir);
                command.args(["--initialize-insecure", "--skip-log-bin"]);
                command
            }
        }
    }

    fn bare_server_command(&self, datadir: &Path) -> Command {
        let mut command = self.launch(&self.server);
        command.arg("--no-defaults");
        if rustix::process::getuid().is_root() {
            command.arg("--user=root");
        }
        let share = self.share();
        command
            .arg(flag("--basedir", &self.basedir))
            .arg(flag("--lc-messages-dir", &share))
            .arg(flag("--character-sets-dir", &share.join("charsets")))
            .arg(flag("--plugin-dir", &self.basedir.join("lib/mysql/plugin")))
            .arg(flag("--datadir", datadir))
            .args(["--skip-name-resolve", "--local-infile=1"]);
        command
    }

    /// The directory of messages and character sets; MariaDB renamed it in 11.x.
    fn share(&self) -> PathBuf {
        let renamed = self.basedir.join("share/mariadb");
        if renamed.join("charsets").exists() { renamed } else { self.basedir.join("share/mysql") }
    }

    /// Galera's library of this installation (`TIDEGATE_GALERA` names another).
    pub(crate) fn galera_library(&self) -> Result<PathBuf, LabError> {
        let named = env::var_os("TIDEGATE_GALERA").map(PathBuf::from);
        let usual = ["lib/galera/libgalera_smm.so", "lib64/galera-4/libgalera_smm.so", "lib/libgalera_smm.so"];
        let found = named.into_iter().chain(usual.map(|path| self.basedir.join(path))).find(|path| path.exists());
        found.ok_or(LabError::Missing { program: "libgalera_smm.so".to_owned(), remedy: "scripts/setup" })
    }

    /// MariaDB's own install script, told the sizes that the server will be given.
    fn mariadb_install_db(&self, datadir: &Path) -> Command {
        let mut command = Command::new(self.basedir.join("bin/mariadb-install-db"));
        command.arg("--no-defaults").arg(flag("--basedir", &self.basedir)).arg(flag("--datadir", datadir)).args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        if rustix::process::getuid().is_root() {
            command.arg("--user=root");
        }
        command.args(MARIADB_SMALL.iter().filter(|flag| flag.starts_with("--innodb") || flag.starts_with("--aria")));
        command
    }

    /// Starts `program` directly, or through the loader it was linked for.
    fn launch(&self, program: &Path) -> Command {
        let Some(libraries) = &self.libraries else {
            return Command::new(program);
        };
        let mut command = Command::new(libraries.join(LOADER));
        command.arg("--library-path").arg(libraries).arg(program);
        command.env("OPENSSL_MODULES", libraries.join("ossl-modules"));
        command
    }
}

/// The glibc loader's file name on the one architecture that the packages are fetched for.
#[cfg(target_arch = "x86_64")]
const LOADER: &str = "ld-linux-x86-64.so.2";
#[cfg(target_arch = "aarch64")]
const LOADER: &str = "ld-linux-aarch64.so.1";

/// `--name=path` as one argument.
pub(crate) fn flag(name: &str, path: &Path) -> OsString {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(path);
    text
}

/// An unpacked tree must have it: a test of that version never runs on another version instead.
fn mariadb_in(root: &Path) -> Result<Installation, LabError> {
    let basedir = root.join("usr");
    let server = basedir.join("sbin/mariadbd");
    if server.exists() {
        Ok(Installation { flavor: Flavor::Mariadb, server, basedir, libraries: None })
    } else {
        Err(LabError::Missing { program: server.display().to_string(), remedy: "scripts/setup mariadb-VERSION" })
    }
}

fn find_mariadb() -> Result<Installation, LabError> {
    if let Some(root) = env::var_os("TIDEGATE_MARIADB_ROOT").filter(|root| !root.is_empty()) {
        return mariadb_in(Path::new(&root));
    }
    let named = env::var_os("TIDEGATE_MARIADBD").map(PathBuf::from);
    let usual = ["/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd", "/usr/bin/mariadbd"].map(PathBuf::from);
    let server = named.into_iter().chain(usual).find(|path| path.exists());
    let missing = || LabError::Missing { program: "mariadbd".to_owned(), remedy: "scripts/setup" };
    let server = server.ok_or_else(missing)?;
    let basedir = server.parent().and_then(Path::parent).ok_or_else(missing)?.to_owned();
    Ok(Installation { flavor: Flavor::Mariadb, server, basedir, libraries: None })
}

fn find_mysql() -> Result<Installation, LabError> {
    let root = mysql_root();
    let basedir = root.join("usr");
    let server = basedir.join("sbin/mysqld");
    let libraries = fs::read_dir(basedir.join("lib"))
        .ok()
        .and_then(|entries| entries.flatten().map(|entry| entry.path()).find(|path| path.join(LOADER).exists()));
    match libraries {
        Some(libraries) if server.exists() => Ok(Installation { flavor: Flavor::Mysql, server, basedir, libraries: Some(libraries) }),
        _ => Err(LabError::Missing { program: server.display().to_string(), remedy: "scripts/setup mysql" }),
    }
}

/// The directory of `scripts/setup mysql`: keep the two in step.
fn mysql_root() -> PathBuf {
    if let Some(root) = env::var_os("TIDEGATE_MYSQL_ROOT") {
        return PathBuf::from(root);
    }
    cache().join("mysql/root")
}

fn cache() -> PathBuf {
    env::var_os("TIDEGATE_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        home.join(".cache/tidegate")
    })
}

/// Each named function, which is given a flavor, becomes two tests, one a flavor.
#[macro_export]
macro_rules! each {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn mariadb() {
                super::$name($crate::Flavor::Mariadb);
            }
            #[test]
            fn mysql() {
                super::$name($crate::Flavor::Mysql);
            }
        }
    )*};
}
