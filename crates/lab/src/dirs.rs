//! The lab's directories: on a memory file system if there is one, so that fsync costs nothing.
//!
//! Layout: `<base>/templates/` is shared by all test processes of this user; `<base>/run-<pid>/` belongs to one process. Each process holds
//! a lock beside its directory. A directory with a free lock was left by a process that died, and the next process removes it.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{IoContext, LabError};

/// The directory that holds everything the lab writes: `TIDEGATE_LAB_DIR`, else a folder per user under `/dev/shm`,
/// else one under the temporary directory.
pub fn base() -> PathBuf {
    if let Some(dir) = env::var_os("TIDEGATE_LAB_DIR") {
        return PathBuf::from(dir);
    }
    let name = format!("tidegate-lab-{}", rustix::process::getuid().as_raw());
    let shm = Path::new("/dev/shm");
    if env::var_os("TMPDIR").is_none() && fs::create_dir_all(shm.join(&name)).is_ok() {
        return shm.join(name);
    }
    env::temp_dir().join(name)
}

/// A new empty directory for one server or proxy of this process; `name` is its prefix.
pub fn instance(name: &str) -> Result<PathBuf, LabError> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = run()?.join(format!("{name}-{number}"));
    fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
    Ok(dir)
}

/// Takes the exclusive lock on `path`, waiting for it. It is released when the file is dropped or the process dies.
pub fn lock(path: &Path) -> Result<File, LabError> {
    let file = File::options().create(true).truncate(false).write(true).open(path).context(|| format!("open {}", path.display()))?;
    file.lock().context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

/// This process's directory, made at first use.
fn run() -> Result<PathBuf, LabError> {
    static RUN: OnceLock<(PathBuf, File)> = OnceLock::new();
    if let Some((dir, _)) = RUN.get() {
        return Ok(dir.clone());
    }
    let base = base();
    fs::create_dir_all(&base).context(|| format!("create {}", base.display()))?;
    let _guard = lock(&base.join("lock"))?;
    if RUN.get().is_none() {
        sweep(&base);
        let dir = base.join(format!("run-{}", process::id()));
        let held = lock(&dir.with_extension("lock"))?;
        fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
        // No other thread can have been faster: the base lock is held.
        let _ = RUN.set((dir, held));
    }
    RUN.get().map(|(dir, _)| dir.clone()).ok_or_else(|| LabError::NoFile(base))
}

/// Removes what dead processes left. The base lock must be held. Failures are of no consequence: the next one tries again.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let ours = path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("run-") && n.ends_with(".lock"));
        if !ours {
            continue;
        }
        let Ok(file) = File::options().write(true).open(&path) else {
            continue;
        };
        if file.try_lock().is_ok() {
            let _ = fs::remove_dir_all(path.with_extension(""));
            let _ = fs::remove_file(&path);
        }
    }
}
