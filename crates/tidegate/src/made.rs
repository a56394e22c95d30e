//! Files that a start makes before the proxy serves. A start that fails removes them: the corrected start finds the place as it was.
//!
//! INVARIANT: only files that were missing when this process locked the data directory are removed, and only empty directories.

use anyhow::{Context, Result, bail};
use model::{Config, Listen};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::cli::{Cli, Defaults};

/// See the module. [`Made::stays`] ends it.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The lock's file first, if this start made it.
    files: Vec<PathBuf>,
    /// A start that waits for the data directory must find it as it was: nothing is removed after this is closed.
    lock: Option<OwnedFd>,
    /// The deepest first.
    directories: Vec<PathBuf>,
}

impl Made {
    /// Makes the data directory if it is missing.
    pub(crate) fn directory(datadir: &Path) -> Result<Self> {
        let directories = datadir.ancestors().filter(|path| !path.as_os_str().is_empty() && !path.exists()).map(Path::to_owned).collect();
        let made = Self { files: Vec::new(), lock: None, directories };
        std::fs::create_dir_all(datadir).with_context(|| format!("data directory {}", datadir.display()))?;
        Ok(made)
    }

    /// The data directory is this process's for as long as `lock` is open; `file` is the lock's, if this start made it.
    pub(crate) fn locked(&mut self, lock: OwnedFd, file: Option<PathBuf>) {
        self.lock = Some(lock);
        self.files.extend(file);
    }

    /// Marks those of these files that are missing now as this start's. The caller has locked the data directory.
    pub(crate) fn watch(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.files.extend(files.into_iter().filter(|path| path.symlink_metadata().is_err()));
    }

    /// The start has filled these files, which were blank or of no use before.
    pub(crate) fn filled(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.files.extend(files);
    }

    /// The start has succeeded.
    pub(crate) fn stays(mut self) {
        self.files.clear();
        self.directories.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // The lock's file goes last: without it a third process could lock another file of that name.
        for file in self.files.iter().rev() {
            let _ = std::fs::remove_file(file);
        }
        for directory in &self.directories {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// The Unix sockets that a configuration opens.
pub(crate) fn sockets(config: &Config) -> Vec<PathBuf> {
    let lists = [&config.mysql.interfaces, &config.admin.mysql_ifaces];
    let listens = lists.into_iter().flat_map(|list| Listen::parse_list(list).unwrap_or_default());
    listens.filter_map(|listen| if let Listen::Unix(path) = listen { Some(path) } else { None }).collect()
}

/// Refuses to fill the current directory when the operator named neither a file nor a data directory.
///
/// # Errors
/// What to say instead.
pub(crate) fn refuse_by_accident(cli: &Cli, config_file: Option<&Path>, datadir: &Path) -> Result<()> {
    let places = Defaults::here();
    let is_accident =
        cli.datadir.is_none() && config_file.is_none() && datadir == Path::new(".") && !datadir.join(::admin::DISK_FILE).exists();
    if !is_accident {
        return Ok(());
    }
    bail!(
        "no configuration was found: {} does not exist, and the current directory has no {}.\n  tidegate -c FILE        starts from a \
         configuration file\n  tidegate init --help    writes such a file from a running server\n  tidegate -D DIRECTORY   starts without \
         servers; the admin port takes the configuration",
        places.config,
        ::admin::DISK_FILE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_missing_goes_again() {
        let dir = tempfile::tempdir().unwrap();
        let datadir = dir.path().join("new/data");
        let file = |name: &str| datadir.join(name);
        let mut made = Made::directory(&datadir).unwrap();
        std::fs::write(file("old"), "").unwrap();
        made.watch([file("old"), file("new"), file("never")]);
        std::fs::write(file("new"), "").unwrap();
        drop(made);
        assert!(file("old").exists() && !file("new").exists());

        std::fs::remove_file(file("old")).unwrap();
        std::fs::remove_dir_all(dir.path().join("new")).unwrap();
        drop(Made::directory(&datadir).unwrap());
        assert!(dir.path().exists() && !dir.path().join("new").exists());

        let mut made = Made::directory(&datadir).unwrap();
        std::fs::write(file("blank"), "").unwrap();
        made.watch([file("blank")]);
        made.filled([file("blank")]);
        made.stays();
        assert!(file("blank").exists());
    }
}
