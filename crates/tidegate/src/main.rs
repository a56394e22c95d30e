//! The Tidegate program: command line, configuration, log, signals.

mod cli;
mod log;

use anyhow::{Context, Result, bail};
use clap::Parser;
use cli::Cli;
use model::Snapshot;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tidegate: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let (config, notices) = match model::load(&cli.config) {
        Ok(loaded) => loaded,
        Err(errors) => {
            for e in &errors {
                eprintln!("{e}");
            }
            bail!("{} is not usable: {} error(s)", cli.config.display(), errors.len());
        }
    };
    let snapshot = match Snapshot::compile(&config) {
        Ok(snapshot) => Arc::new(snapshot),
        Err(errors) => {
            for e in &errors {
                eprintln!("{e}");
            }
            bail!("{} is not usable: {} error(s)", cli.config.display(), errors.len());
        }
    };
    let datadir = match (&cli.datadir, config.globals.datadir.as_str()) {
        (Some(datadir), _) => datadir.clone(),
        (None, "") => Path::new(".").to_path_buf(),
        (None, datadir) => Path::new(datadir).to_path_buf(),
    };
    std::fs::create_dir_all(&datadir).with_context(|| format!("data directory {}", datadir.display()))?;
    log::start(cli, &config.globals.errorlog, &datadir)?;
    for notice in &notices {
        tracing::warn!("{notice}");
    }
    raise_descriptor_limit();
    let _pidfile = PidFile::write(&config.globals.pidfile, &datadir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(snapshot, &datadir))
}

/// Runs until SIGTERM or SIGINT; a second one ends the drain.
async fn serve(snapshot: Arc<Snapshot>, datadir: &Path) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut report = signal(SignalKind::user_defined1())?;
    let drain = Duration::from_millis(snapshot.vars.drain_timeout);
    let proxy = proxy::Proxy::start(snapshot, datadir).await?;
    tracing::info!("Tidegate {} is ready", env!("CARGO_PKG_VERSION"));
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = report.recv() => {
                log::reopen();
                proxy.report();
            }
        }
    }
    tracing::info!("stopping: sessions have {} ms to end", drain.as_millis());
    tokio::select! {
        _ = proxy.stop(drain) => {}
        _ = terminate.recv() => tracing::warn!("told to stop twice: stopping at once"),
        _ = interrupt.recv() => tracing::warn!("told to stop twice: stopping at once"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// The file with the process id; gone when the process stops cleanly.
struct PidFile(Option<PathBuf>);

impl PidFile {
    /// Writes the file; a name without a slash is in the data directory, an empty one writes none.
    fn write(name: &str, datadir: &Path) -> Result<Self> {
        if name.is_empty() {
            return Ok(Self(None));
        }
        let path = datadir.join(name);
        std::fs::write(&path, format!("{}\n", std::process::id())).with_context(|| format!("pid file {}", path.display()))?;
        Ok(Self(Some(path)))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A proxy needs a descriptor for each connection: as many as the system allows.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(e) = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised) {
        tracing::warn!("the limit of open files could not be raised: {e}");
    }
}
